"""The sentence an estimate carries about measurements on its device."""

from __future__ import annotations

import pytest

from accelsim.calibration.evidence import evidence


def group(profile, rows, median, p90, **extra):
    return {"profile": profile, "rows_answered": rows, "median_ape_fraction": median, "p90_ape_fraction": p90, **extra}


REPORT = {
    "suites": {
        "models": {
            "groups": [
                group("t4", 3, 0.04, 0.10, model="a"),
                group("t4", 1, 0.08, 0.30, model="b"),
                group("t4", 4, 0.05, 0.15, model="all", is_view=True),
                group("v100-pcie-32gb", 5, 0.5, 0.5, model="a"),
                group("t4", 0, None, None, model="refused"),
            ]
        },
        "operators": {"groups": [group("t4", 1000, 0.10, 0.25, operator="bmm")]},
    }
}


def test_models_come_before_operators_and_totals_count():
    assert evidence("t4", REPORT) == (
        "4 whole-model runs within 5% (median), 15% (p90); 1,000 operators within 10% (median), 25% (p90)"
    )


def test_a_slice_has_its_devices_evidence():
    assert evidence("t4@fraction=0.5", REPORT) == evidence("t4", REPORT)


@pytest.mark.parametrize("device", ["tpu-v1", "t40"])
def test_nothing_is_said_where_nothing_was_measured(device):
    assert evidence(device, REPORT) is None


def test_the_shipped_report_knows_measured_devices():
    assert "whole-model runs" in (evidence("v100-pcie-32gb") or "")
    assert evidence("groq-lpu-v1") is None
