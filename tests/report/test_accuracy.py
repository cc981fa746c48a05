"""The scoreboard as tables: totals per suite, groups per device, refusals, and what is asked of one
device.
"""

from __future__ import annotations

import pytest
from rich.console import Console

import tools.scoreboard  # noqa: F401  (its suites, too)
from accelsim.report.accuracy import accuracy_view
from accelsim.scoreboard.score_rows import SCORE_COLUMNS, score_rows

FIGURES = {
    "rows_answered": 4,
    "mape_fraction": 0.1234,
    "mape_noise_fraction": 0.02,
    "median_ape_fraction": 0.05,
    "p90_ape_fraction": 0.3,
    "max_ape_fraction": 0.5,
    "bias_fraction": -0.01,
    "kendall_tau": None,
    "interval_coverage_fraction": 0.9,
    "interval_width_fraction": 0.4,
    "interval_score_fraction": 0.5,
    "roofline_mape_fraction": None,
}


def group(device, name, key="operator", **changes):
    head = {
        "device": device,
        "profile": device.lower(),
        key: name,
        "tier": "spec",
        "rows_asked": 5,
        "refused": {},
    }
    return head | FIGURES | changes


def report(**suites):
    made = {}
    for name, groups in suites.items():
        head = {
            "tier": "spec",
            "title": "t",
            "systems": 2,
            "rows_asked": 10,
            "refused": {"unknown device B9000": 3},
        }
        made[name.replace("_", "-")] = head | FIGURES | {"notes": {}, "groups": groups}
    return {"suites": made, "skipped": {"dpu": "no fpga/vitis_ai_dpu.csv.gz"}, "bad_data": []}


@pytest.fixture
def found():
    return report(
        gpu_operators=[
            group("T4", "bmm"),
            group("T4", "ln", rows_answered=0),
            group("V100", "bmm", profile="v100@1/2"),
        ],
        gpu_models=[group("T4", "bert", "model")],
    )


def drawn(view, width=100):
    console = Console(width=width, color_system=None, highlight=False)
    with console.capture() as captured:
        console.print(view)
    return [line.rstrip() for line in captured.get().splitlines()]


def test_rows_have_every_column_and_suites_come_before_their_groups(found):
    rows = score_rows(found)
    assert [(row["suite"], row["group"]) for row in rows] == [
        ("gpu-operators", ""),
        ("gpu-operators", "bmm"),
        ("gpu-operators", "ln"),
        ("gpu-operators", "bmm"),
        ("gpu-models", ""),
        ("gpu-models", "bert"),
    ]
    assert all(tuple(row) == SCORE_COLUMNS for row in rows)
    assert rows[0]["refused"] == "3 unknown device B9000"


@pytest.mark.parametrize("name", ["T4", "t4"])
def test_one_device_has_its_groups_alone_by_either_name(found, name):
    rows = score_rows(found, name)
    assert {row["device"] for row in rows} == {"T4"}
    assert len(rows) == 3


def test_a_slice_is_found_by_the_name_of_the_whole(found):
    assert [row["device"] for row in score_rows(found, "v100")] == ["V100"]
    assert score_rows(found, "a100") == []


def test_totals_are_percent_and_unknown_figures_are_empty(found):
    header, first, *_ = drawn(accuracy_view(found))
    assert header.split() == [
        "suite",
        "systems",
        "rows",
        "answered",
        "MAPE",
        "median",
        "p90",
        "max",
        "bias",
        "cover",
        "score",
        "roofl.",
    ]
    assert first.split() == [
        "gpu-operators",
        "2",
        "10",
        "4",
        "12.3",
        "5.0",
        "30.0",
        "50.0",
        "-1.0",
        "90.0",
        "50.0",
    ]


def test_refusals_and_skipped_suites_are_listed(found):
    lines = drawn(accuracy_view(found))
    assert ["gpu-operators", "3", "unknown", "device", "B9000"] in [line.split() for line in lines]
    assert ["dpu", "no", "fpga/vitis_ai_dpu.csv.gz"] in [line.split() for line in lines]
    assert not any("refused" in line for line in drawn(accuracy_view(found, "t4")))


def test_groups_are_a_table_per_suite_without_those_nobody_answered(found):
    lines = drawn(accuracy_view(found, groups=True))
    operators, models = lines.index("gpu-operators"), lines.index("gpu-models")
    assert lines[operators + 1].startswith("device operator or model")
    assert [line.split()[:2] for line in lines[operators + 2 : operators + 4]] == [
        ["T4", "bmm"],
        ["V100", "bmm"],
    ]
    assert lines[models + 1].startswith("operator or model")  # one device: no column for it
    assert not any(" ln " in line for line in lines)


@pytest.mark.parametrize("width", [24, 40, 60, 80, 120])
def test_every_width_keeps_names_and_errors_whole(found, width):
    lines = drawn(accuracy_view(found, groups=True), width)
    text = "\n".join(lines)
    assert max(map(len, lines)) <= width
    assert "…" not in text
    for word in ("gpu-operators", "gpu-models", "V100", "12.3"):
        assert word in text
