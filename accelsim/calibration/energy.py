"""Reads energy: NVML on NVIDIA GPUs, RAPL through powercap on CPUs; None wherever nothing is
readable, never 0.

NVML's total-energy counter (Volta and later) counts millijoules. RAPL counts microjoules and wraps
at ``max_energy_range_uj``. Imports nothing beyond the standard library until a meter is asked for.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType

from accelsim.plain import Document

#: Calls issued ahead of the device: its queue holds a thousand, which may take minutes.
_CALLS_AHEAD = 16


class Meter:
    """Counters of energy, and what waits for the device they belong to."""

    def counters_j(self) -> list[tuple[float, float]] | None:
        """Each counter's reading and where it wraps; None where one could not be read."""
        raise NotImplementedError

    def synchronize(self) -> None:
        """Wait until everything issued has run."""

    def energy_j(self, run: Callable[[], object]) -> float | None:
        """Energy of one call of `run`, all counters together; None where it could not be read."""
        self.synchronize()
        before = self.counters_j()
        run()
        self.synchronize()
        after = self.counters_j()
        if before is None or after is None:
            return None
        pairs = zip(before, after, strict=True)
        energy_j = sum((new - old) % span for (old, _), (new, span) in pairs)
        return energy_j if 0 < energy_j < math.inf else None


class RaplMeter(Meter):
    """Package energy of the CPU.

    Args:
        root: The powercap folder.
    """

    def __init__(self, root: Path = Path("/sys/class/powercap")) -> None:
        self._domains = [p for p in sorted(root.glob("intel-rapl:*")) if p.name.count(":") == 1]

    def counters_j(self) -> list[tuple[float, float]] | None:
        """Readings of the packages; None where there are none that this user may read."""
        try:
            readings = [
                (_joules(domain / "energy_uj"), _joules(domain / "max_energy_range_uj"))
                for domain in self._domains
            ]
        except (OSError, ValueError):
            return None
        return readings or None


def _joules(microjoules: Path) -> float:
    return 1e-6 * int(microjoules.read_bytes())


class NvmlMeter(Meter):
    """Board energy of one NVIDIA GPU.

    Args:
        nvml: The ``pynvml`` module, or a stand-in.
        handle: NVML's handle of the device.
        synchronize: Waits for the device; called before each reading.
    """

    def __init__(self, nvml: ModuleType, handle: object, synchronize: Callable[[], object]) -> None:
        self._nvml, self._handle, self._wait = nvml, handle, synchronize

    def synchronize(self) -> None:
        """Wait for the device."""
        self._wait()

    def counters_j(self) -> list[tuple[float, float]] | None:
        """The board's reading; None where it has no counter."""
        try:
            reading = self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)
        except self._nvml.NVMLError:
            return None
        return [(1e-3 * int(reading), math.inf)]


def _nvml_handle(nvml: ModuleType, cuda: ModuleType, device: str) -> object:
    """NVML's handle of a CUDA device.

    CUDA counts the devices it may see, fastest first; NVML counts all, by bus: only the identifier
    names the same board. The index serves where this torch or NVML does not tell it.
    """
    nvml.nvmlInit()
    with suppress(AttributeError, nvml.NVMLError):
        uuid = cuda.get_device_properties(device).uuid
        return nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
    return nvml.nvmlDeviceGetHandleByIndex(int(device.partition(":")[2] or 0))


def find_meter(device: str) -> Meter | None:
    """The meter of a device; None where nothing can be read.

    Args:
        device: "cpu" or "cuda:N".
    """
    if device == "cpu":
        meter = RaplMeter()
        return meter if meter.counters_j() else None
    try:
        import pynvml  # type: ignore[import-not-found, unused-ignore]
        from torch import cuda

        return NvmlMeter(pynvml, _nvml_handle(pynvml, cuda, device), cuda.synchronize)
    except Exception:  # noqa: BLE001  (one unreadable fact hides no other)
        return None


def time_and_energy(
    meter: Meter, run: Callable[[], object], duration_s: float = 1.0
) -> tuple[float, float] | None:
    """Seconds and joules of a call of `run`, which repeats for about `duration_s`; None where the
    meter cannot be read.
    """
    calls = 0

    def repeat() -> None:
        nonlocal calls
        end = time.perf_counter() + duration_s
        while time.perf_counter() < end:
            run()
            calls += 1
            if calls % _CALLS_AHEAD == 0:
                meter.synchronize()

    begin = time.perf_counter()
    energy_j = meter.energy_j(repeat)
    elapsed_s = time.perf_counter() - begin
    return None if energy_j is None else (elapsed_s / max(calls, 1), energy_j / max(calls, 1))


def nvml_facts(cuda: ModuleType, device: str) -> Document:
    """Driver, power limit and clocks of a GPU; None for each that cannot be read.

    Args:
        cuda: ``torch.cuda``.
        device: "cuda:N".
    """
    names = ("driver_version", "power_limit_w", "sm_clock_mhz", "memory_clock_mhz")
    facts: Document = dict.fromkeys(names)
    with suppress(Exception):  # one unreadable fact hides no other
        import pynvml as nvml

        handle = _nvml_handle(nvml, cuda, device)
        version = nvml.nvmlSystemGetDriverVersion()
        facts["driver_version"] = version.decode() if isinstance(version, bytes) else version
        clocks = {"sm_clock_mhz": nvml.NVML_CLOCK_SM, "memory_clock_mhz": nvml.NVML_CLOCK_MEM}
        for name, clock in clocks.items():
            with suppress(nvml.NVMLError):
                facts[name] = nvml.nvmlDeviceGetMaxClockInfo(handle, clock)
        facts["power_limit_w"] = nvml.nvmlDeviceGetPowerManagementLimit(handle) / 1e3
    return facts
