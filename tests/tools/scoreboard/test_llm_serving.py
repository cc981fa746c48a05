"""Time per output token of served language models: which rows are asked, and what the time is made
of.
"""

from __future__ import annotations

import numpy as np
import pytest

from accelsim.scoreboard import validate
from accelsim.scoreboard.data_folder import DataFolder
from tools.scoreboard.llm_serving import SERVING_SCHEMA, load

HEADER = [column.name for column in SERVING_SCHEMA.columns]
ROW = {
    "id": "a",
    "backend": "vllm",
    "model_path": "meta-llama/Llama-3.1-8B-Instruct",
    "system": "h200_sxm",
    "precision": "fp8",
    "mode": "agg",
    "isl": 1024,
    "osl": 1024,
    "batch_size": 8,
    "tp_size": 1,
    "pp_size": 1,
    "attention_dp_size": "",
    "moe_tp_size": 1,
    "moe_ep_size": 1,
    "silicon_tpot_ms": 8.0,
}


@pytest.fixture
def folder(tmp_path):
    def write(*rows):
        path = tmp_path / SERVING_SCHEMA.file
        path.parent.mkdir(exist_ok=True)
        lines = [
            ",".join(HEADER),
            *(",".join(str((ROW | row).get(name, "")) for name in HEADER) for row in rows),
        ]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return tmp_path

    return write


def predicted(folder_of, **row) -> float:
    (batch,) = load(DataFolder(folder_of(row)))
    return float(batch.predict(None).time_s[0])


def test_more_requests_in_flight_cost_each_token_more_time(folder):
    times = [predicted(folder, batch_size=requests) for requests in (1, 8, 64)]
    assert times == sorted(times)
    assert times[0] < times[2] / 1.3


def test_prompts_of_the_others_run_between_the_tokens(folder):
    """An eighth of the answer: eight times the prompts per token."""
    short, long = (predicted(folder, batch_size=64, isl=4096, osl=tokens) for tokens in (128, 1024))
    assert short > 2 * long
    alone = [predicted(folder, batch_size=1, isl=4096, osl=tokens) for tokens in (128, 1024)]
    assert alone[0] == pytest.approx(alone[1], rel=0.02)


def test_requests_that_do_not_fit_in_the_memory_wait(folder):
    crowded, more = (
        predicted(folder, batch_size=requests, isl=65536, osl=8192) for requests in (64, 4096)
    )
    assert more == pytest.approx(crowded)


def test_a_token_of_one_request_takes_at_least_its_weights_from_memory(folder):
    assert predicted(folder, batch_size=1) > 8.0e9 * 0.85 / 4.8e12


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"mode": "disagg"}, "different devices"),
        ({"tp_size": 8}, "several devices"),
        ({"attention_dp_size": 8}, "several devices"),
        ({"silicon_tpot_ms": ""}, "no time per output token"),
        ({"precision": "fp3"}, "no precision fp3"),
        ({"model_path": "nobody/knows"}, "no workload nobody/knows"),
    ],
)
def test_what_is_not_modelled_is_refused_by_name(folder, changes, reason):
    (batch,) = load(DataFolder(folder(changes)))
    assert reason in batch.refusal
    assert batch.predict is None


def test_a_device_nobody_knows_is_named(folder):
    data = DataFolder(folder({"system": "x900"}))
    (batch,) = load(data)
    assert "x900" in batch.refusal
    assert [problem.reason for problem in data.problems] == ["unknown device"]


def test_four_bit_checkpoints_run_in_bf16_where_there_is_no_fp4_arithmetic(folder):
    """gpt-oss-120b on a Hopper: 4-bit weights come from memory, products are BF16's; a prompt takes
    longer than in FP8.
    """
    model = {"model_path": "openai/gpt-oss-120b", "precision": "fp4"}
    (batch,) = load(DataFolder(folder(model)))
    assert batch.predict is not None
    stored_gb = 117e9 * 0.5 / 1e9
    assert predicted(folder, **model, batch_size=256) > stored_gb * 1e9 * 0.9 / 4.8e12
    prompts = {"batch_size": 64, "isl": 8192, "osl": 64}
    assert predicted(folder, **model, **prompts) > 1.2 * predicted(
        folder, **model | {"precision": "fp8"}, **prompts
    )


def test_intervals_hold_what_the_rows_of_other_engines_say_servers_add(folder):
    """Squares of independent spreads add up: what is left without the server's is the kernels',
    under any engine.
    """
    servers = {"vllm": 0.21, "trtllm": 0.25, "sglang": 0.23, "other": 0.23}
    sigma = {}
    for backend in servers:
        (batch,) = load(DataFolder(folder({"backend": backend})))
        (sigma[backend],) = batch.predict(None).log_sigma
    kernels = [sigma[backend] ** 2 - server**2 for backend, server in servers.items()]
    assert kernels == pytest.approx([kernels[0]] * len(servers))
    assert kernels[0] > 0.05**2


def test_the_suite_scores_a_folder(folder):
    board = validate(["llm-serving"], folder({}, {"tp_size": 2, "id": "b"}), "spec")
    (score,) = board.suites
    assert (score.rows_asked, sum(score.refused.values())) == (2, 1)
    assert np.isfinite(score.figures.median_ape_fraction)
