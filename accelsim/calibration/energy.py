"""Reads energy: NVML on NVIDIA GPUs, RAPL through powercap on CPUs; None wherever nothing is
readable, never 0.

NVML's total-energy counter (Volta and later) counts millijoules; older boards give sampled power
only, whose average over a short run is uncertain by the sampling interval (20-100 ms; Yang et al.,
"Part-time power measurements", SC 2024), which the reading says. RAPL counts microjoules and wraps
at ``max_energy_range_uj``. Imports nothing beyond the standard library until a meter is asked for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

__all__ = [
    "EnergyReading",
    "Meter",
    "NvmlMeter",
    "RaplMeter",
    "cuda_uuid",
    "energy_runs",
    "find_meter",
    "measure_energy",
    "nvml_facts",
]

_SAMPLE_S: Final = 0.02
#: Calls issued ahead of the device: its queue holds a thousand, which may take minutes.
_CALLS_AHEAD: Final = 16


@dataclass(frozen=True, slots=True)
class EnergyReading:
    """Energy of a stretch of time.

    Attributes:
        energy_j: Energy.
        duration_s: Its length.
        method: "nvml counter", "nvml sampled power" or "rapl".
        caveat: What limits its accuracy; None for counters.
    """

    energy_j: float
    duration_s: float
    method: str
    caveat: str | None = None

    @property
    def power_w(self) -> float:
        """Mean power."""
        return self.energy_j / self.duration_s


class Meter(Protocol):
    """Something that measures the energy of a call."""

    def measure(self, run: Callable[[], Any]) -> EnergyReading | None:
        """Energy of one call of `run`; None where it could not be read."""
        ...

    def synchronize(self) -> None:
        """Wait until everything issued has run."""
        ...


class RaplMeter:
    """Package energy of the CPU.

    Args:
        root: The powercap folder.
    """

    def __init__(self, root: Path = Path("/sys/class/powercap")) -> None:
        self._domains = [p for p in sorted(root.glob("intel-rapl:*")) if p.name.count(":") == 1]

    @property
    def readable(self) -> bool:
        """Whether there is a package counter this user may read."""
        return bool(self._domains) and all(x is not None for x in self._counters())

    def measure(self, run: Callable[[], Any]) -> EnergyReading | None:
        """Energy of one call of `run`, all packages together."""
        before, start = self._counters(), time.perf_counter()
        run()
        duration, after = time.perf_counter() - start, self._counters()
        parts = [
            self._difference(d, a, b) for d, a, b in zip(self._domains, before, after, strict=True)
        ]
        known = [part for part in parts if part is not None]
        if len(known) != len(parts) or not known or duration <= 0 or sum(known) <= 0:
            return None
        return EnergyReading(sum(known), duration, "rapl")

    def synchronize(self) -> None:
        """Nothing runs behind a CPU's back."""

    def _counters(self) -> list[int | None]:
        return [_integer(domain / "energy_uj") for domain in self._domains]

    @staticmethod
    def _difference(domain: Path, before: int | None, after: int | None) -> float | None:
        if before is None or after is None:
            return None
        if after < before:
            span = _integer(domain / "max_energy_range_uj")
            return None if span is None else (after + span - before) * 1e-6
        return (after - before) * 1e-6


def _integer(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


class NvmlMeter:
    """Board energy of one NVIDIA GPU.

    Args:
        index: Device index.
        nvml: The ``pynvml`` module, or a stand-in.
        synchronize: Waits for the device; called before each reading.
        uuid: The device's identifier, see `nvml_handle`.
    """

    def __init__(
        self, index: int, nvml: Any, synchronize: Callable[[], Any], uuid: str | None = None
    ) -> None:
        self._nvml, self._wait = nvml, synchronize
        nvml.nvmlInit()
        self._handle = nvml_handle(nvml, index, uuid)

    def measure(self, run: Callable[[], Any]) -> EnergyReading | None:
        """Energy of one call of `run`, by the counter where the board has one, else by sampled
        power.
        """
        self.synchronize()
        before = self._counter_mj()
        if before is None:
            return self._sampled(run)
        start = time.perf_counter()
        run()
        self.synchronize()
        duration, after = time.perf_counter() - start, self._counter_mj()
        if after is None or after <= before:
            return None
        return EnergyReading((after - before) * 1e-3, duration, "nvml counter")

    def synchronize(self) -> None:
        """Wait for the device."""
        self._wait()

    def _counter_mj(self) -> int | None:
        try:
            return int(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle))
        except self._nvml.NVMLError:
            return None

    def _sampled(self, run: Callable[[], Any]) -> EnergyReading | None:
        samples: list[float] = []
        stop = threading.Event()

        def sample() -> None:
            while not stop.is_set():
                try:
                    samples.append(self._nvml.nvmlDeviceGetPowerUsage(self._handle) * 1e-3)
                except self._nvml.NVMLError:
                    return
                stop.wait(_SAMPLE_S)

        thread = threading.Thread(target=sample, daemon=True)
        start = time.perf_counter()
        thread.start()
        try:
            run()
            self.synchronize()
        finally:
            stop.set()
            thread.join()
        duration = time.perf_counter() - start
        if len(samples) < 3 or sum(samples) <= 0:
            return None
        caveat = (
            f"mean of {len(samples)} power samples; boards average power over up to 100 ms before "
            "they report it"
        )
        return EnergyReading(
            sum(samples) / len(samples) * duration, duration, "nvml sampled power", caveat
        )


def nvml_handle(nvml: Any, index: int, uuid: str | None) -> Any:
    """NVML's handle of a CUDA device.

    CUDA counts the devices it may see, fastest first; NVML counts all, by bus: only the identifier
    names the same board.

    Args:
        nvml: The ``pynvml`` module, or a stand-in.
        index: CUDA's index, used where there is no identifier or NVML does not know it.
        uuid: As torch gives it, without prefix.
    """
    if uuid is not None:
        try:
            return nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
        except nvml.NVMLError:
            pass
    return nvml.nvmlDeviceGetHandleByIndex(index)


def cuda_uuid(torch: Any, device: str) -> str | None:
    """Identifier of a CUDA device; None where this torch does not tell it."""
    found = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    return None if found is None else str(found)


def find_meter(device: str) -> Meter | None:
    """The meter of a device; None where nothing can be read.

    Args:
        device: "cpu" or "cuda:N".
    """
    if device == "cpu":
        meter = RaplMeter()
        return meter if meter.readable else None
    try:
        import pynvml  # type: ignore[import-not-found, unused-ignore]
        import torch

        index = int(device.partition(":")[2] or 0)
        return NvmlMeter(index, pynvml, torch.cuda.synchronize, cuda_uuid(torch, device))
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
        "caveat": load.caveat,
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


def nvml_facts(index: int, uuid: str | None = None) -> dict[str, Any]:
    """Driver, power limit and clocks of a GPU; None for each that cannot be read."""
    facts: dict[str, Any] = dict.fromkeys(
        ("driver_version", "power_limit_w", "sm_clock_mhz", "memory_clock_mhz")
    )
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = nvml_handle(pynvml, index, uuid)
    except Exception:  # noqa: BLE001  (one unreadable fact hides no other)
        return facts
    queries: dict[str, Callable[[], Any]] = {
        "driver_version": pynvml.nvmlSystemGetDriverVersion,
        "power_limit_w": lambda: pynvml.nvmlDeviceGetPowerManagementLimit(handle) / 1e3,
        "sm_clock_mhz": lambda: pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM),
        "memory_clock_mhz": lambda: pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_MEM),
    }
    for name, query in queries.items():
        try:
            value = query()
            facts[name] = value.decode() if isinstance(value, bytes) else value
        except Exception:  # noqa: BLE001  (one unreadable fact hides no other)
            facts[name] = None
    return facts
