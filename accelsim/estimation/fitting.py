"""What would make a run fit that does not: a narrower precision, a smaller batch, a shorter prompt,
layers in host memory, a larger device of the class, or several of the device; where none of these
is enough, several of the largest.

Each change is tried alone and by the same memory model as the run itself
(`accelsim.cost.memory`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from functools import lru_cache

from accelsim import catalog
from accelsim.catalog.clusters import smallest_joining
from accelsim.cost.memory import available_bytes
from accelsim.dtype import PRECISIONS
from accelsim.errors import InputError
from accelsim.estimation.passes import RunPasses, run_passes
from accelsim.estimation.run import ResolvedRun
from accelsim.frozen import frozen
from accelsim.hardware.profile import DeviceProfile
from accelsim.plain import Document
from accelsim.workloads.sharding import Shard

#: Devices that may share a model's heads and columns.
_DEVICE_COUNTS = (2, 4, 8, 16, 32, 64)
#: What a precision's weights may take less than its mean per weight says (an estimate: mixes of
#: formats differ by the sizes of a model's layers).
_MIX_MARGIN = 1.1
#: Parts of the longest prompt by a line, tried in order: memory is not quite one.
_LENGTH_SHARES = (1.0, 0.98, 0.9, 0.5)
_WORDS = {
    "precision": "precision {}",
    "batch": "batch {:,}",
    "seq_len": "a prompt of {:,} tokens, the longest",
    "offload": "{} layers in host memory (offload)",
    "device": "device {}",
    "device_count": "{} devices that share each layer (tensor parallelism)",
    "devices": "{} that share each layer (tensor parallelism)",
}


@frozen
class FittingChange:
    """One change that makes a run fit.

    Attributes:
        what: "precision", "batch", "seq_len", "offload", "device", "device_count", or "devices":
            how many of another.
        value: Its new value.
        memory_bytes: Memory the changed run needs, on each device.
    """

    what: str
    value: str | int
    memory_bytes: float

    def __str__(self) -> str:
        return _WORDS[self.what].format(self.value)

    def to_dict(self) -> Document:
        """Field by field."""
        return asdict(self)


def fitting_changes(run: ResolvedRun, passes: RunPasses) -> tuple[FittingChange, ...]:
    """Changes that make a run fit, each alone; empty where none is known.

    Args:
        run: A run that does not fit its device.
        passes: Its passes.
    """
    weights = passes.memory.weight_bytes
    changes = (
        _precision(run, weights),
        _batch(run, passes),
        _seq_len(run, passes),
        _device(run, passes),
        _device_count(run, weights),
    )
    sufficient = tuple(filter(None, changes))
    several = None if sufficient else _devices(run, weights)
    return (*sufficient, *filter(None, (several, _offload(run))))


def _needed_bytes(run: ResolvedRun) -> float:
    return run_passes(run).memory.total_bytes


def _first_fit(
    run: ResolvedRun, option: str, runs: Iterator[tuple[str | int, ResolvedRun]]
) -> FittingChange | None:
    for value, changed in runs:
        with suppress(InputError):
            needed = _needed_bytes(changed)
            if needed <= run.available_bytes:
                return FittingChange(option, value, needed)
    return None


def _precision(run: ResolvedRun, weight_bytes: float) -> FittingChange | None:
    """The widest narrower precision that stack and device run, of those whose weights alone fit;
    first those that change the weights alone. Estimate: weights take their formats' mean bits.
    """
    computes = run.device.peak_flop_per_s.keys()
    most_bytes = run.available_bytes * _MIX_MARGIN
    widest = sorted(PRECISIONS.values(), key=lambda p: (-p.weight.bytes, -p.compute.bytes))
    narrower = [
        p
        for p in (p.on(computes) for p in widest if not run.stack.lacking(p))
        if p.weight.bytes < run.precision.weight.bytes
        and weight_bytes * p.weight.bytes / run.precision.weight.bytes <= most_bytes
        and p.compute in computes
        and (p.trainable or run.mode == "inference")
    ]
    changed = ((p.name, replace(run, precision=p)) for p in narrower)
    return _first_fit(run, "precision", changed)


def _batch(run: ResolvedRun, passes: RunPasses) -> FittingChange | None:
    """The largest batch that fits. Estimate: memory grows by the same with each sample."""
    if run.batch == 1:
        return None
    single = replace(run, batch=1, accumulation=1)
    most = _most_units(run, passes, run.batch, single)
    if most is None:
        return None
    batches = (most, max(most - 1, 1))
    return _first_fit(run, "batch", ((b, replace(single, batch=b)) for b in batches))


def _most_units(run: ResolvedRun, passes: RunPasses, units: int, single: ResolvedRun) -> int | None:
    """Samples or tokens that fit, of so many that do not. Estimate: memory is a line in them.

    Args:
        run: A run of `units`.
        passes: Its passes.
        units: Samples of its batch, or tokens of its prompt.
        single: The run of one of them.
    """
    single_bytes = _needed_bytes(single)
    unit_bytes = (passes.memory.total_bytes - single_bytes) / (units - 1)
    room_bytes = run.available_bytes - single_bytes
    if room_bytes < 0 or unit_bytes <= 0:
        return None
    return min(units - 1, 1 + int(room_bytes / unit_bytes))


def _seq_len(run: ResolvedRun, passes: RunPasses) -> FittingChange | None:
    """The longest prompt that fits. Estimate: memory grows by about the same with each token. None
    with pictures, whose tokens are not asked for as a length.
    """
    if not run.output_len or run.seq_len <= 1 or run.images:
        return None
    most = _most_units(run, passes, run.seq_len, replace(run, seq_len=1))
    if most is None:
        return None
    lengths = (max(1, int(most * share)) for share in _LENGTH_SHARES)
    return _first_fit(run, "seq_len", ((n, replace(run, seq_len=n)) for n in lengths))


def _offload(run: ResolvedRun) -> FittingChange | None:
    """The fewest layers whose weights in host memory make it fit."""
    from accelsim.estimation.resolution import USUAL_HOST, with_offload

    if run.mode == "training" or run.offload is not None or run.images:
        return None
    with suppress(InputError):
        passes = run_passes(with_offload(run, "auto"))
        host = available_bytes(run.host or catalog.device(USUAL_HOST))
        if passes.host_bytes <= host and passes.memory.short_bytes(run.available_bytes) <= 0:
            return FittingChange("offload", passes.host_layers, passes.memory.total_bytes)
    return None


@lru_cache(maxsize=4)
def _profiles(device_class: str) -> tuple[DeviceProfile, ...]:
    """Catalogued devices of a class, those with the least memory first."""
    profiles = [catalog.device(name) for name in catalog.device_names()]
    of_class = [p for p in profiles if p.device_class == device_class]
    return tuple(sorted(of_class, key=lambda p: (available_bytes(p), -p.year)))


def _device(run: ResolvedRun, passes: RunPasses) -> FittingChange | None:
    """The device of the class with the least memory that is enough, of the vendor if it has one."""
    needed, share = passes.memory.total_bytes, run.stack.memory_fraction
    profiles = _profiles(str(run.device.device_class))
    for profile in sorted(profiles, key=lambda p: p.vendor != run.device.vendor):
        if _computes(run, profile) and available_bytes(profile, share) >= needed:
            return FittingChange("device", profile.name, needed)
    return None


def _device_count(run: ResolvedRun, weight_bytes: float) -> FittingChange | None:
    """The fewest devices that hold the run when each has its part of every layer; None of a device
    that nothing joins.
    """
    counts = (n for n in _DEVICE_COUNTS if weight_bytes / n <= run.available_bytes)
    changed = ((n, replace(run, shard=Shard(tp=n))) for n in counts)
    with suppress(InputError):
        smallest_joining(run.device, _DEVICE_COUNTS[0])
        return _first_fit(run, "device_count", changed)
    return None


def _devices(run: ResolvedRun, weight_bytes: float) -> FittingChange | None:
    """The fewest of the class's largest device that the stack runs on."""
    for profile in reversed(_profiles(str(run.device.device_class))):
        if _computes(run, profile):
            change = _device_count(replace(run, device=profile), weight_bytes)
            if change is not None:
                return replace(change, what="devices", value=f"{change.value} x {profile.name}")
    return None


def _computes(run: ResolvedRun, device: DeviceProfile) -> bool:
    """Whether the run's stack and precision are a device's, too."""
    return run.stack.runs(device) and run.precision.compute in device.peak_flop_per_s
