"""Folders of devices and models that no shared table holds: names resolve, tiers answer, fits come
from the folder.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from accelsim import catalog
from accelsim.cost.gpu import GpuParameters
from accelsim.cost.table import Execution
from accelsim.dtype import Dtype
from accelsim.scoreboard import row_records, scoreboard_dict, validate
from accelsim.scoreboard.names import device_of
from tools.scoreboard.gpu_operators import KernelPrediction
from tools.scoreboard.operator_columns import gemm_graph

#: Names of the tables and the boards they stand for.
BOARDS = {
    "H100": "h100-sxm-80gb",
    "L4": "l4",
    "A100-80": "a100-pcie-80gb",
    "MI210": "mi210",
    "MI250": "mi250@fraction=0.5",
}
#: Their operator lists come with accelsim; the second is a mixture of experts.
MODELS = {"gpt3_27": (2048, 2), "switchxl4": (512, 2)}
HEADER = "op,device,split,b,m,n,k,latency_ms\n"
#: Times a board of this speed would have, relative to the class-wide model.
SPEED = 0.8


def shapes(count=400):
    random = np.random.default_rng(11)
    return np.unique(np.round(2.0 ** random.uniform(6, 12, (count, 3))).astype(int), axis=0)


def made_up_rows(device: str, sizes) -> str:
    """GEMM rows as the class-wide model times them, sped up by `SPEED`: nobody's measurements."""

    m, n, k = (sizes[:, i].astype(float) for i in range(3))
    graph = gemm_graph(np.ones(len(m)), m, k, n, Dtype.FP32, batched=np.zeros(len(m), dtype=bool))
    costs = KernelPrediction(graph, device_of(device), Execution.EAGER).costs(
        GpuParameters.class_wide()
    )
    times = 1e3 * (costs.dispatch_s + SPEED * costs.time_s)
    rows = zip(*(column.astype(int).tolist() for column in (m, n, k)), times.tolist(), strict=True)
    return "".join(f"linear,{device},train,1,{a},{b},{c},{t!r}\n" for a, b, c, t in rows)


@pytest.fixture
def data(tmp_path):
    def write(operators: str = "", labels: str = ""):
        (tmp_path / "gpu_kernels").mkdir(exist_ok=True)
        if operators:
            (tmp_path / "gpu_kernels" / "ops_gemm.csv").write_text(HEADER + operators)
        if labels:
            text = "device,model,mode,seq,batch,e2e_ms\n" + labels
            (tmp_path / "gpu_kernels" / "e2e_labels.csv").write_text(text)
        return tmp_path

    return write


@pytest.mark.parametrize(("name", "board"), BOARDS.items())
def test_names_resolve(name, board):
    assert device_of(name).name == catalog.device(board).name


@pytest.mark.parametrize("tier", ["best", "spec", "fitted", "measured"])
def test_every_tier_answers_or_refuses_by_name(data, tier):
    operators = "".join(f"bmm,{name},test,8,256,64,512,0.4\n" for name in BOARDS)
    labels = "".join(
        f"{name},{m},inf,{seq},{batch},900\n"
        for name in BOARDS
        for m, (seq, batch) in MODELS.items()
    )
    folder = data(operators, labels)
    board = validate(["gpu-operators", "gpu-models"], folder, tier)
    assert board.problems == ()
    for record in row_records(board):
        assert record["profile"] == BOARDS[record["device"]]
        if record["refusal"]:
            assert tier in {"fitted", "measured"}
            assert record["refusal"].startswith("no ")
        else:
            assert 0 < record["low_s"] < record["predicted_s"] < record["high_s"]
    answered = sum(not record["refusal"] for record in row_records(board))
    assert answered == {"best": 15, "spec": 15, "fitted": 3, "measured": 0}[tier]


def test_parameters_of_kernel_tables_give_way_where_rows_are_of_other_operators(data):
    folder = data(made_up_rows("H100", shapes()))
    (best,) = validate(["gpu-operators"], folder, "best").suites
    assert best.tier == "spec"  # no shipped parameters saw such rows: all are scored
    assert best.rows_used_in_fit == 0
    (measured,) = validate(["gpu-operators"], folder, "measured").suites
    # its kernel tables, where they are installed, hold other operators
    reason = "no measured table of h100-sxm-80gb"
    assert list(measured.refused) in ([reason], [f"{reason} with such operators"])


def test_a_gpu_without_an_overlay_is_refused_at_tier_fitted(data):
    (score,) = validate(["gpu-operators"], data(made_up_rows("L4", shapes(100))), "fitted").suites
    assert list(score.refused) == ["no overlay calibration/fitted/l4.yaml"]


def test_the_json_has_the_published_keys_and_finite_numbers(data):
    labels = "".join(
        f"{name},{m},inf,{seq},{batch},900\n"
        for name in BOARDS
        for m, (seq, batch) in MODELS.items()
    )
    labels += "B9000,gpt3_27,inf,2048,2,900\n"
    report = json.loads(
        json.dumps(scoreboard_dict(validate(["gpu-models"], data("", labels))), allow_nan=False)
    )
    suite = report["suites"]["gpu-models"]
    figures = {
        "mape_fraction",
        "median_ape_fraction",
        "p90_ape_fraction",
        "max_ape_fraction",
        "bias_fraction",
    }
    figures |= {
        "kendall_tau",
        "interval_coverage_fraction",
        "roofline_mape_fraction",
        "rows_asked",
        "rows_answered",
    }
    assert figures | {"tier", "refused", "groups"} <= set(suite)
    assert suite["refused"] == {"unknown device B9000": 1}
    for group in suite["groups"]:
        assert figures | {"device", "model", "tier", "refused"} <= set(group)
        for name in figures:
            assert group[name] is None or isinstance(group[name], (int, float))
    assert report["bad_data"][0]["column"] == "device"
