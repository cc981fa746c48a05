"""Energy readings and the facts a run is compared by, on stand-ins for counters and drivers."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from accelsim.calibration import energy
from accelsim.calibration.energy import (
    NvmlMeter,
    RaplMeter,
    find_meter,
    time_and_energy,
)
from accelsim.calibration.environment import (
    STABLE,
    describe,
    differences,
    environment_hash,
    machine_name,
)


class NvmlError(Exception):
    pass


def nvml(counter_mj=None):
    """A stand-in for pynvml: a list of counter readings."""
    readings = iter(counter_mj or ())

    def total(_handle):
        if counter_mj is None:
            raise NvmlError
        return next(readings)

    return SimpleNamespace(
        NVMLError=NvmlError,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetTotalEnergyConsumption=total,
    )


def test_nvml_counter_is_in_millijoules():
    reading = NvmlMeter(nvml([1000, 3500]), 0, lambda: None).energy_j(lambda: None)
    assert reading == pytest.approx(2.5)


def test_unreadable_energy_is_none_never_zero():
    assert NvmlMeter(nvml(), 0, lambda: None).energy_j(lambda: None) is None
    assert NvmlMeter(nvml([5, 5]), 0, lambda: None).energy_j(lambda: None) is None
    assert find_meter("cuda:0") is None


def powercap(root, values, span=10_000_000):
    for index, value in enumerate(values):
        domain = root / f"intel-rapl:{index}"
        domain.mkdir(parents=True, exist_ok=True)
        (domain / "energy_uj").write_text(str(value))
        (domain / "max_energy_range_uj").write_text(str(span))


def test_rapl_adds_packages_and_unwraps(tmp_path):
    powercap(tmp_path, [1_000_000, 9_500_000])
    meter = RaplMeter(tmp_path)
    assert meter.counters_j()
    reading = meter.energy_j(lambda: powercap(tmp_path, [3_000_000, 500_000]))
    assert reading == pytest.approx(2.0 + 1.0)


def test_rapl_that_cannot_be_read(tmp_path):
    assert not RaplMeter(tmp_path).counters_j()
    powercap(tmp_path, [7])
    meter = RaplMeter(tmp_path)
    (tmp_path / "intel-rapl:0" / "energy_uj").write_text("?")
    assert meter.energy_j(lambda: None) is None


def test_environment_is_plain_and_names_differences():
    facts = describe("cpu")
    assert set(STABLE) <= set(facts)
    assert facts["cpu_count_given"] >= 1
    assert environment_hash(facts) == environment_hash(dict(facts))
    other = {**facts, "torch_version": "0.1"}
    assert environment_hash(other) != environment_hash(facts)
    assert differences(facts, other) == [
        f"torch_version: {facts['torch_version']!r} there, '0.1' now"
    ]
    assert differences(facts, {**facts, "load_average": [9, 9, 9]}) == []
    assert machine_name(facts).isascii()


def test_environment_without_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert describe("cpu")["torch_version"] is None


def test_work_is_not_queued_far_ahead_of_the_device(monkeypatch):
    now, calls, calls_at_waits = 0.0, 0, []

    def call():
        nonlocal now, calls
        now, calls = now + 0.25, calls + 1

    monkeypatch.setattr(energy, "time", SimpleNamespace(perf_counter=lambda: now))
    meter = NvmlMeter(nvml([0, 1000]), 0, lambda: calls_at_waits.append(calls))
    assert time_and_energy(meter, call, 10.0) == (0.25, 1.0 / 40)
    assert calls_at_waits == [0, 16, 32, 40]
