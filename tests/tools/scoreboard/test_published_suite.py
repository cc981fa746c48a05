"""Published speeds of other people's stacks: every row answered or refused, by stack."""

from __future__ import annotations

import numpy as np
import pytest

import tools.scoreboard  # noqa: F401  (its suites, too)
from accelsim.scoreboard import scoreboard_dict, validate

HEAD = (
    "source,stack,execution,layout,workload,device,metric,value,mode,batch,precision,"
    "fused_attention,seq_len,output_len,image_size,optimizer\n"
)
DEFAULTS = {
    "source": "a page",
    "stack": "pytorch",
    "workload": "resnet-50",
    "device": "t4",
    "metric": "samples_per_s",
    "value": "400",
    "mode": "inference",
    "batch": "8",
    "precision": "fp16",
}


def row(**values):
    filled = {
        **dict.fromkeys(HEAD.strip().split(","), ""),
        **DEFAULTS,
        **values,
    }
    return ",".join(filled.values()) + "\n"


@pytest.fixture
def scored(folder):
    def score(*rows):
        path = folder({"published/single_device.csv": HEAD + "".join(rows)})
        board = validate(["published"], path)
        return board, scoreboard_dict(board)["suites"]["published"]

    return score


def test_every_row_is_answered_or_refused_by_name(scored):
    _, suite = scored(
        row(),
        row(device="no-such-board"),
        row(workload="no-such-net"),
        row(precision="int3"),
        row(stack="openvino"),
        row(batch="900000"),
    )
    assert (suite["rows_asked"], suite["rows_answered"]) == (6, 1)
    reasons = " ".join(suite["refused"])
    for word in ("no-such-board", "no-such-net", "int3", "OpenVINO", "memory"):
        assert word in reasons


def test_a_figure_stands_for_its_seconds(scored):
    llm = {"workload": "llama-3.1-8b", "device": "a100-sxm-80gb", "precision": "bf16"}
    llm |= {"batch": "2", "seq_len": "128", "output_len": "64", "stack": "llama-cpp"}
    board, _ = scored(
        row(metric="samples_per_s", value="400"),
        row(metric="latency_ms", value="20", seq_len="", batch="8"),
        row(**llm, metric="decode_tokens_per_s", value="100"),
        row(**llm, metric="generated_tokens_per_s", value="100"),
        row(**{**llm, "output_len": "0"}, metric="prompt_tokens_per_s", value="6400"),
    )
    parts = board.suites[0].rows
    measured = np.concatenate([part.measured_s for part in parts])
    assert measured == pytest.approx([8 / 400, 0.02, 2 / 100, 2 * 64 / 100, 2 * 128 / 6400])
    predicted = np.concatenate([part.predicted_s for part in parts])
    assert ((predicted / measured > 0.1) & (predicted / measured < 10)).all()


def test_stacks_are_scored_apart_and_together(scored):
    board, suite = scored(row(), row(value="300"), row(stack="tensorrt", value="900"))
    by_name = {entry["stack"]: entry for entry in suite["stacks"]}
    assert set(by_name) == {"pytorch", "tensorrt", "all"}
    assert by_name["all"]["rows_answered"] == 3
    ratio = np.concatenate([part.predicted_s / part.measured_s for part in board.suites[0].rows])
    assert by_name["all"]["bias_ratio"] == pytest.approx(np.exp(np.log(ratio).mean()))
    measured = np.concatenate([part.measured_s for part in board.suites[0].rows])
    eager = ratio[measured > 8 / 500]
    assert len(eager) == 2
    far = (np.maximum(eager, 1 / eager) > 1.5).mean()
    assert by_name["pytorch"]["beyond_1.5_fraction"] == far
