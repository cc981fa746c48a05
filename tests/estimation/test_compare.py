"""Comparisons keep every pair and mark the best."""

import json

import pytest

import accelsim
from accelsim.errors import UnknownNameError
from accelsim.estimation.compare import Comparison, ComparisonRow, compare


def test_every_pair_has_a_row():
    table = compare(
        ["resnet-50", "bert-base"],
        ["t4", "a100-sxm-80gb", "zcu102"],
        modes=("inference", "training"),
        batch=4,
    )
    assert len(table.rows) == 2 * 3 * 2
    reasons = {(r.workload, r.device, r.mode): r.reason for r in table.rows if r.reason}
    assert set(reasons) == {
        ("resnet-50", "zcu102", "training"),
        ("bert-base", "zcu102", "inference"),
        ("bert-base", "zcu102", "training"),
    }


def test_best_is_the_extreme_of_its_column():
    table = compare("resnet-50", ["t4", "a100-sxm-80gb", "epyc-7763"], batch=8)
    by_device = {row.device: row.estimate for row in table.rows}
    fastest = table.best("latency_s")[("resnet-50", "inference")]
    assert by_device[fastest].latency_s == min(e.latency_s for e in by_device.values())
    busiest = table.best("throughput_per_s")[("resnet-50", "inference")]
    assert by_device[busiest].throughput_per_s == max(
        e.throughput_per_s for e in by_device.values()
    )


def test_a_model_that_does_not_fit_says_how_much_is_missing():
    (row,) = compare("llama-3.1-70b", ["t4"], output_len=0).rows
    assert "GB short" in row.reason
    assert row.estimate.latency_s is None


def test_nothing_compared_has_columns_and_no_rows():
    empty = accelsim.compare([], [])
    assert empty.rows == ()
    assert {"workload", "device", "latency_s"} <= set(empty.columns)


def test_frames_and_json_hold_all_rows():
    table = compare("resnet-50", ["t4", "zcu102"], modes=("training",), batch=2)
    frame = table.to_frame()
    assert frame["device"].tolist() == ["t4", "zcu102"]
    assert frame["reason"].isna().tolist() == [True, False]
    assert [row["device"] for row in json.loads(table.to_json())] == ["t4", "zcu102"]


def test_a_wrong_name_stops_the_comparison():
    with pytest.raises(UnknownNameError):
        compare("resnet-50", ["t4", "no-such-device"])


def test_one_name_is_one_device():
    assert [row.device for row in compare("resnet-50", "t4").rows] == ["t4"]


def test_only_a_figure_with_a_better_end_has_a_best():
    table = compare("llama-3.1-8b", ["a100", "h100"], modes="inference", execution="graph")
    assert table.best("tokens_per_s") == table.best("time_per_output_token_s")
    with pytest.raises(UnknownNameError, match="Did you mean throughput_per_s"):
        table.best("throughput")
    assert not {"evidence", "relatives", "memory"} & set(table.to_frame().columns)


def test_what_costs_nothing_ties():
    table = compare("resnet-50", ["a100", "h100"], usd_per_hour=0.0)
    assert len(table.leaders("cost_usd_per_1000")["resnet-50", "inference"]) == 2


@pytest.mark.parametrize(
    ("device", "precision"),
    [("xeon-platinum-8280", "fp32"), ("epyc-7763", "fp32"), ("xeon-8480", "bf16")],
)
def test_a_cpu_runs_what_people_run_on_it(device, precision):
    """bf16 where there are units for it, else fp32; int8 (VNNI) only when asked."""
    (row,) = compare("resnet-50", device).rows
    assert row.estimate.precision == precision
    assert compare("resnet-50", device, precision="int8").rows[0].estimate.precision == "int8"


def test_notebooks_show_a_row_per_pair_and_names_as_text():
    row = ComparisonRow("<b>m</b>", "d", "inference", None, "<i>why</i>")
    shown = Comparison((row,) * 201)._repr_html_()
    assert "<b>" not in shown
    assert "&lt;i&gt;why" in shown
    assert "1 more rows" in shown
    done = accelsim.compare("resnet-50", ["t4"])
    assert f"{done[0].estimate.throughput_per_s:.4g}" in done._repr_html_()
    columns = accelsim.estimate_many("resnet-50", "t4", shapes={"batch": [1, 2]})
    assert columns._repr_html_().count("resnet-50") == 2
    costs = accelsim.simulate("resnet-50", "t4").passes[0].table
    assert "<table" in costs._repr_html_()
