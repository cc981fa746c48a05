"""The check of a calibration: predictions that stay as they were frozen, times of fresh processes,
errors and drift.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from accelsim.calibration import check as check_module
from accelsim.calibration.check import (
    CheckCase,
    CheckResult,
    FrozenPrediction,
    MeasurementError,
    check_list,
    drift,
    freeze,
    measure_model,
    read_frozen,
    summary,
)
from accelsim.errors import InvalidValueError, ProfileError


@pytest.mark.parametrize(
    ("faults", "best", "times", "processes"),
    [
        (0.0, 2.99, [3.0], 1),
        (900.0, 2.99, [3.0, 2.9, 3.1], 3),  # alike: three are enough
        (0.0, 2.0, [3.0, 2.9, 3.1], 3),  # repeats of one process differ
        (900.0, 2.99, [3.0, 1.0, 2.0, 3.0, 1.0, 2.0], 6),  # never settled
    ],
)
def test_the_time_of_a_model_that_faults_is_the_mean_of_fresh_processes(
    monkeypatch, faults, best, times, processes
):
    left, asked = iter(times), []

    def timed(case, budget_s, device):
        assert device == "cpu"
        asked.append(case)
        timing = {
            "minor_faults": faults,
            "noise_fraction": 0.01,
            "undisturbed": True,
            "time_s": best,
        }
        return timing | {"reference_s": 4e-3, "energy_j": None} | {"mean_s": next(left)}

    monkeypatch.setattr(check_module, "_timed", timed)
    time_s, spread, _, reference = measure_model(CheckCase("mlp", 1, "fp32", 1))
    assert len(asked) == processes
    assert time_s == pytest.approx(np.mean(times))
    assert spread == pytest.approx(max(0.01, (max(times) - min(times)) / 2 / np.mean(times)))
    assert reference == 4e-3


def test_disturbed_processes_do_not_count_on_several_threads(monkeypatch):
    timing = {"minor_faults": 0.0, "noise_fraction": 0.0, "undisturbed": False, "reference_s": 4e-3}
    timing |= {"time_s": 1.0, "mean_s": 1.0}
    monkeypatch.setattr(check_module, "_timed", lambda *_: timing)
    with pytest.raises(MeasurementError, match="other programs"):
        measure_model(CheckCase("mlp", 1, "fp32", 2))


def predictions():
    return [
        FrozenPrediction(CheckCase("mlp", b, "fp32", 1), 1.0 * b, 0.8 * b, 1.25 * b, "measured")
        for b in (1, 2, 3)
    ]


def test_frozen_predictions_cannot_be_changed():
    document = freeze(predictions(), {"machine": "x"})
    assert read_frozen(json.loads(json.dumps(document)), "f") == predictions()
    document["predictions"][0]["time_s"] = 1.1
    with pytest.raises(ProfileError, match="hash"):
        read_frozen(document, "f")


def test_summary_and_intervals():
    measured = (1.0, 2.2, 6.0)
    results = [CheckResult(p, m, 0.0) for p, m in zip(predictions(), measured, strict=True)]
    total = summary([*results, CheckResult(predictions()[0], None, None, "too large")])
    assert total["count"] == 3
    assert total["max_fraction"] == pytest.approx(0.5)
    assert total["mape_fraction"] == pytest.approx((0 + 0.2 / 2.2 + 0.5) / 3)
    assert total["coverage_fraction"] == pytest.approx(2 / 3)
    assert summary([])["mape_fraction"] is None


def test_drift_is_the_median_change():
    old = {"a": 1.0, "b": 2.0, "c": 3.0}
    assert drift(old, {k: 1.02 * v for k, v in old.items()}) == (pytest.approx(0.02), False)
    assert drift(old, {k: 1.3 * v for k, v in old.items()}) == (pytest.approx(0.3), True)
    with pytest.raises(InvalidValueError):
        drift(old, {"d": 1.0})


def test_the_check_list_is_long_enough_and_unique():
    cases = check_list((1, 2), ("fp32", "bf16"))
    assert len({c.key for c in cases}) == len(cases)
    assert len({c.model for c in cases if not c.is_training}) >= 10
    assert len({c.model for c in cases if c.is_training}) >= 6
