"""Reads energy: NVML on NVIDIA GPUs, RAPL through powercap on CPUs; None wherever nothing is
readable, never 0.

NVML's total-energy counter (Volta and later) counts millijoules. RAPL counts microjoules and wraps
at ``max_energy_range_uj``. Imports nothing beyond the standard library until a meter is asked for.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

__all__ = [
    "EnergyReading",
    "Meter",
    "NvmlMeter",
    "RaplMeter",
    "energy_runs",
    "find_meter",
    "measure_energy",
    "nvml_facts",
]

#: Calls issued ahead of the device: its queue holds a thousand, which may take minutes.
_CALLS_AHEAD: Final = 16


@dataclass(frozen=True, slots=True)
class EnergyReading:
    """Energy of a stretch of time.

    Attributes:
        energy_j: Energy.
        duration_s: Its length.
        method: "nvml counter" or "rapl".
    """

    energy_j: float
    duration_s: float
    method: str

    @property
    def power_w(self) -> float:
        """Mean power."""
        return self.energy_j / self.duration_s


class Meter:
    """Counters of energy, and what waits for the device they belong to."""

    method = ""

    def counters_j(self) -> list[tuple[float, float]] | None:
        """Each counter's reading and where it wraps; None where one could not be read."""
        raise NotImplementedError

    def synchronize(self) -> None:
        """Wait until everything issued has run."""

    def measure(self, run: Callable[[], Any]) -> EnergyReading | None:
        """Energy of one call of `run`, all counters together; None where it could not be read."""
        self.synchronize()
        before, start = self.counters_j(), time.perf_counter()
        run()
        self.synchronize()
        duration_s, after = time.perf_counter() - start, self.counters_j()
        if before is None or after is None:
            return None
        pairs = zip(before, after, strict=True)
        energy_j = sum((new - old) % span for (old, _), (new, span) in pairs)
        is_known = 0 < energy_j < math.inf and duration_s > 0
        return EnergyReading(energy_j, duration_s, self.method) if is_known else None


class RaplMeter(Meter):
    """Package energy of the CPU.

    Args:
        root: The powercap folder.
    """

    method = "rapl"

    def __init__(self, root: Path = Path("/sys/class/powercap")) -> None:
        self._domains = [p for p in sorted(root.glob("intel-rapl:*")) if p.name.count(":") == 1]

    def counters_j(self) -> list[tuple[float, float]] | None:
        """Readings of the packages; None where there are none that this user may read."""
        names = ("energy_uj", "max_energy_range_uj")
        try:
            found = [[1e-6 * int((x / name).read_bytes()) for name in names] for x in self._domains]
        except (OSError, ValueError):
            return None
        return [(reading, span) for reading, span in found] or None


class NvmlMeter(Meter):
    """Board energy of one NVIDIA GPU.

    Args:
        nvml: The ``pynvml`` module, or a stand-in.
        handle: NVML's handle of the device.
        synchronize: Waits for the device; called before each reading.
    """

    method = "nvml counter"

    def __init__(self, nvml: Any, handle: Any, synchronize: Callable[[], Any]) -> None:
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


def _nvml_handle(nvml: Any, cuda: Any, device: str) -> Any:
    """NVML's handle of a CUDA device.

    CUDA counts the devices it may see, fastest first; NVML counts all, by bus: only the identifier
    names the same board. The index serves where this torch or NVML does not tell it.
    """
    nvml.nvmlInit()
    uuid = getattr(cuda.get_device_properties(device), "uuid", None)
    if uuid is not None:
        try:
            return nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
        except nvml.NVMLError:
            pass
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


def measure_energy(
    meter: Meter | None, run: Callable[[], Any], duration_s: float = 1.0
) -> dict[str, Any] | None:
    """Idle and loaded power while `run` repeats for about `duration_s`; None where nothing can be
    read.
    """
    if meter is None:
        return None
    idle = meter.measure(lambda: time.sleep(duration_s))
    calls = 0

    def loaded() -> None:
        nonlocal calls
        end = time.perf_counter() + duration_s
        while time.perf_counter() < end:
            run()
            calls += 1
            if calls % _CALLS_AHEAD == 0:
                meter.synchronize()

    load = meter.measure(loaded)
    if load is None:
        return None
    return {
        "idle_w": None if idle is None else idle.power_w,
        "loaded_w": load.power_w,
        "energy_per_call_j": load.energy_j / max(calls, 1),
        "method": load.method,
    }


def energy_runs(
    torch: Any, device: str, dtypes: Sequence[str]
) -> Iterator[tuple[str, str, Callable[[], Any]]]:
    """What energy is measured of: a large product in each format, and a copy past the cache.

    Args:
        torch: The module.
        device: "cpu" or "cuda:N".
        dtypes: Formats of the run.

    Returns:
        Operator, format and call.
    """
    from accelsim.calibration.measurement.cuda import tf32_products
    from accelsim.calibration.measurement.operators import torch_dtype

    side, elements = (1024, 2**25) if device == "cpu" else (8192, 2**27)

    def product(a: Any, allowed: bool) -> Any:
        with tf32_products(torch, allowed):
            return torch.mm(a, a)

    for dtype in dtypes:
        a = torch.randn(side, side, device=device).to(torch_dtype(dtype))
        yield f"mm m={side} n={side} k={side}", dtype, partial(product, a, dtype == "tf32")
    yield f"clone elements={elements}", "fp32", torch.randn(elements, device=device).clone


def nvml_facts(cuda: Any, device: str) -> dict[str, Any]:
    """Driver, power limit and clocks of a GPU; None for each that cannot be read.

    Args:
        cuda: ``torch.cuda``.
        device: "cuda:N".
    """
    names = ("driver_version", "power_limit_w", "sm_clock_mhz", "memory_clock_mhz")
    facts: dict[str, Any] = dict.fromkeys(names)
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
