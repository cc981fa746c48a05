"""Slices of a device: the vCPUs of a cloud instance, the MIG instances of a GPU, or any fraction of
either.

A slice takes a share of the whole's compute units and a share of its memory. Rates, the private
caches' bandwidth and power scale with the compute share (dynamic power is proportional to active
units; idle power is shared by allocation, as cloud carbon accounting does). Memory capacity, memory
bandwidth and GPU L2 scale with the memory share (NVIDIA MIG User Guide: an instance owns whole
memory slices with their L2 banks). The host link stays whole, being shared by all slices; peer
links are dropped, since MIG instances have no peer access. Every scaled number is marked as
derived.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from accelsim.dtype import Dtype
from accelsim.errors import InvalidValueError
from accelsim.frozen import frozen
from accelsim.hardware.profile import (
    DEVICE_NAME,
    CpuProfile,
    DeviceProfile,
    GpuProfile,
    MemoryLevel,
    PowerSpec,
    Rates,
)
from accelsim.hardware.sourced import FrozenModel, Positive, PositiveCount, SourceKind, value_of
from accelsim.plain import Document

#: SMs of one MIG compute slice (NVIDIA MIG User Guide, tables of supported profiles), by
#: architecture.
_MIG_SM_COUNT: Mapping[str, int] = {"Ampere": 14, "Hopper": 16}
#: MIG profiles that get more SMs than slices x SMs per slice, on Hopper.
_MIG_EXCEPTIONS: Mapping[tuple[str, int], int] = {("Hopper", 3): 60}
_COUNTED = re.compile(r"(\d{1,5})(vcpu|core|cores|sm|sms)\Z")
_FRACTION = re.compile(r"fraction=(0?\.\d{1,9}|1(?:\.0*)?|0)\Z")
_MIG = re.compile(r"(\d)g\.(\d{1,4})gb\Z")


Units = Annotated[int, Field(ge=1)]
Amount = Annotated[float, Field(gt=0)]


class SliceSpec(FrozenModel):
    """What to take of a device; exactly one of the compute fields is given.

    Attributes:
        of: Name of the whole device.
        fraction: Share of the compute units, in (0, 1].
        vcpu_count: Hardware threads of a CPU.
        core_count: Cores of a CPU.
        sm_count: SMs (or compute units) of a GPU.
        memory_bytes: Memory of the slice; by default the compute share of the whole's.
        memory_bandwidth_bytes_per_s: Bandwidth of the slice; by default the memory share of the
            whole's for a GPU, the compute share for a CPU.
    """

    of: Annotated[str, Field(min_length=1, max_length=160)]
    fraction: Annotated[float, Field(gt=0, le=1)] | None = None
    vcpu_count: Units | None = None
    core_count: Units | None = None
    sm_count: Units | None = None
    memory_bytes: Amount | None = None
    memory_bandwidth_bytes_per_s: Amount | None = None


class SliceFile(FrozenModel):
    """A device file that defines a slice instead of a profile."""

    name: Annotated[str, Field(pattern=DEVICE_NAME, max_length=80)] | None = None
    title: Annotated[str, Field(min_length=2)] | None = None
    slice: SliceSpec
    note: str | None = None


def parse_slice_syntax(device_name: str, share: str, device: DeviceProfile) -> SliceSpec:
    """Read the part of a name after ``@``.

    Args:
        device_name: Name before the ``@``.
        share: ``8vcpu``, ``4cores``, ``28sm``, ``2g.20gb`` (MIG) or ``fraction=0.25``.
        device: The device named by ``of``; MIG profiles depend on it.

    Returns:
        The slice it names.

    Raises:
        InvalidValueError: If the text is none of these, or the device has no MIG.
    """
    amount: Document = {}
    if match := _COUNTED.match(share):
        amount = {f"{match[2].removesuffix('s')}_count": int(match[1])}
    elif match := _FRACTION.match(share):
        amount = {"fraction": float(match[1])}
    if amount:
        if not any(amount.values()):
            raise InvalidValueError("device slice", share, "more than nothing")
        return SliceSpec(of=device_name, **amount)
    if match := _MIG.match(share):
        return _mig(device_name, share, int(match[1]), int(match[2]), device)
    allowed = "8vcpu, 4cores, 28sm, 2g.20gb or fraction=0.25"
    raise InvalidValueError("device slice", share, allowed, f"Write it as {device_name}@8vcpu.")


def slice_device(device: DeviceProfile, spec: SliceSpec, name: str) -> DeviceProfile:
    """Scale a CPU or GPU profile down to a slice.

    Args:
        device: The device to take from.
        spec: What to take.
        name: Name of the slice.

    Returns:
        A profile whose scaled numbers are ``derived`` and name the whole.

    Raises:
        InvalidValueError: If the slice exceeds the whole, or the device's class has no slices.
    """
    if isinstance(device, CpuProfile):
        cores = device.core_count.value
        counts = {"vcpu_count": cores * value_of(device.threads_per_core, 1), "core_count": cores}
    elif isinstance(device, GpuProfile):
        counts = {"sm_count": device.sm_count.value}
    else:
        raise InvalidValueError(
            "slice.of", device.name, "a CPU or GPU", "Boards of other classes are rented whole."
        )
    share = _Share(_compute_fraction(spec, counts, device.name), device.name)
    memory, cache_share = _memory(device, spec, share), share
    changes = _common(device, name, share) | {"memory": memory}
    if isinstance(device, CpuProfile):
        for field in ("core_count", "numa_node_count", "memory_channel_count"):
            changes[field] = share.count(getattr(device, field))
    else:
        memory_fraction = memory.capacity_bytes.value / device.memory.capacity_bytes.value
        cache_share = _Share(memory_fraction, device.name)
        rates = device.matrix_fp32_accumulate_flop_per_s
        changes["sm_count"] = share.count(device.sm_count)
        changes["l2_bytes"] = cache_share.number(device.l2_bytes)
        changes["matrix_fp32_accumulate_flop_per_s"] = share.rates(rates)
    levels = [_level(level, device, share, cache_share) for level in device.on_chip]
    return device.model_copy(update={**changes, "on_chip": tuple(levels)})


@frozen
class _Share:
    """A share of a device's numbers, each of which is then derived."""

    fraction: float
    device: str

    def number(self, number: Positive | None) -> Positive | None:
        if number is None:
            return None
        source = f"{self.fraction:.4g} of {number.value:g} of {self.device}; {number.source}"
        return _derived(number.value * self.fraction, source[:1000])

    def rates(self, rates: Rates) -> dict[Dtype, Positive | None]:
        return {dtype: self.number(rate) for dtype, rate in rates.items()}

    def count(self, number: PositiveCount | None) -> PositiveCount | None:
        """Units of the slice, rounded up, so that a slice of half a core still has one."""
        if number is None:
            return None
        count = max(1, math.ceil(number.value * self.fraction - 1e-6))
        source = f"{self.fraction:.4g} of {number.value} of {self.device}"
        return PositiveCount(value=count, kind=SourceKind.DERIVED, source=source)


#: Share of a unified memory that Metal lets a program take, up to so many GiB and above
#: (recommendedMaxWorkingSetSize in logs of llama.cpp: 10.7 of 16 GiB, 144 of 192).
_SMALL_GIB = 36.0
_SMALL_SHARE = 2.0 / 3.0


def with_memory(device: DeviceProfile, capacity_bytes: float) -> DeviceProfile:
    """The device as it is sold with less memory, which is as fast. Estimate: the share of a unified
    memory that programs may take is that of logs of llama.cpp.

    Args:
        device: The device.
        capacity_bytes: Its memory.

    Raises:
        InvalidValueError: If that is nothing, or more than the profile has.
    """
    level = device.memory
    if not capacity_bytes > 0:
        raise InvalidValueError("memory", capacity_bytes, "more than 0")
    _at_most("memory", capacity_bytes, level.capacity_bytes, device.name)
    usable = level.usable_bytes
    if usable is not None:
        share = usable.value / level.capacity_bytes.value
        if level.is_unified and capacity_bytes <= _SMALL_GIB * 2**30:
            share = min(share, _SMALL_SHARE)
        usable = _derived(capacity_bytes * share, f"{share:.3g} of the memory")
    sold = {"capacity_bytes": _derived(capacity_bytes, f"{device.name} with less memory")}
    memory = level.model_copy(update={**sold, "usable_bytes": usable})
    return device.model_copy(update={"memory": memory})


def _mig(
    device_name: str, share: str, slices: int, memory_gib: int, device: DeviceProfile
) -> SliceSpec:
    """A MIG instance of so many compute slices and GiB (NVIDIA MIG User Guide). Estimate: its name
    may round the memory up by 5 %.
    """
    if not isinstance(device, GpuProfile) or not _has_mig(device):
        allowed = "a MIG profile of an A100, A30, H100 or H200"
        raise InvalidValueError("device slice", share, allowed)
    sm_count = _mig_sm_count(share, slices, device)
    if memory_gib == 0:
        raise InvalidValueError("device slice", share, "some memory")
    capacity_bytes, asked_bytes = device.memory.capacity_bytes.value, memory_gib * 1024.0**3
    if asked_bytes > capacity_bytes * 1.05:
        raise InvalidValueError("device slice", share, f"at most the memory of {device.name}")
    memory_bytes = min(asked_bytes, capacity_bytes)
    return SliceSpec(of=device_name, sm_count=sm_count, memory_bytes=memory_bytes)


def _mig_sm_count(share: str, slices: int, device: GpuProfile) -> int:
    architecture, total = device.architecture, device.sm_count.value
    most = 4 if device.name.startswith("a30") else 7
    if slices not in {1, 2, 3, 4, 7} or slices > most:
        allowed = f"1g, 2g, 3g, 4g or 7g, up to {most}g on {device.name}"
        raise InvalidValueError("device slice", share, allowed)
    if slices == 7 and architecture == "Hopper":
        return total
    sm_count = _MIG_EXCEPTIONS.get((architecture, slices), slices * _MIG_SM_COUNT[architecture])
    if sm_count > total:
        raise InvalidValueError("device slice", share, f"at most {total} SMs, not {sm_count}")
    return sm_count


def _has_mig(device: GpuProfile) -> bool:
    data_centre = "HBM" in (device.memory.technology or device.memory.name)
    return device.vendor == "NVIDIA" and device.architecture in _MIG_SM_COUNT and data_centre


def _compute_fraction(spec: SliceSpec, counts: Mapping[str, int], device: str) -> float:
    """Compute share of a slice, from whichever field gives it."""
    fields = {"fraction", "vcpu_count", "core_count", "sm_count"}
    amounts = spec.model_dump(include=fields, exclude_none=True)
    allowed = ", ".join(["fraction", *counts])
    if len(amounts) != 1:
        allowed_fields = f"exactly one of {allowed}"
        raise InvalidValueError(f"slice of {device}", sorted(amounts) or None, allowed_fields)
    ((field, value),) = amounts.items()
    if field == "fraction":
        return float(value)
    if field not in counts:
        raise InvalidValueError(f"slice.{field}", value, f"one of {allowed} for {device}")
    if value > counts[field]:
        raise InvalidValueError(f"slice.{field}", value, f"at most the {counts[field]} of {device}")
    return float(value / counts[field])


def _common(device: CpuProfile | GpuProfile, name: str, share: _Share) -> Document:
    power = PowerSpec(
        limit_w=share.number(device.power.limit_w),
        idle_w=share.number(device.power.idle_w),
        note="share of the whole device's power",
    )
    return {
        "name": name,
        "title": f"{device.title} ({share.fraction:.4g} of it)",
        "aliases": (),
        "matrix_flop_per_s": share.rates(device.matrix_flop_per_s),
        "matrix_sparse_flop_per_s": share.rates(device.matrix_sparse_flop_per_s),
        "vector_flop_per_s": share.rates(device.vector_flop_per_s),
        "power": power,
        "peer_link": None,
        "launch_price_usd": None,
        "slice_of": device.slice_of or device.name,
        "slice_fraction": device.slice_fraction * share.fraction,
    }


def _memory(device: CpuProfile | GpuProfile, spec: SliceSpec, share: _Share) -> MemoryLevel:
    level, capacity_bytes = device.memory, spec.memory_bytes
    if capacity_bytes is None:
        capacity_bytes = level.capacity_bytes.value * share.fraction
    _at_most("slice.memory_bytes", capacity_bytes, level.capacity_bytes, device.name)
    memory_share = _Share(capacity_bytes / level.capacity_bytes.value, device.name)
    bandwidth_share = share if isinstance(device, CpuProfile) else memory_share
    bandwidth = bandwidth_share.number(level.bandwidth_bytes_per_s)
    if spec.memory_bandwidth_bytes_per_s is not None:
        field, stated = "memory_bandwidth_bytes_per_s", spec.memory_bandwidth_bytes_per_s
        _at_most(f"slice.{field}", stated, level.bandwidth_bytes_per_s, device.name)
        bandwidth = _derived(stated, f"given for this slice of {device.name}")
    source = f"{memory_share.fraction:.4g} of the memory of {device.name}"
    changes = {
        "capacity_bytes": _derived(capacity_bytes, source),
        "usable_bytes": memory_share.number(level.usable_bytes),
        "bandwidth_bytes_per_s": bandwidth,
    }
    return level.model_copy(update=changes)


def _level(
    level: MemoryLevel, device: CpuProfile | GpuProfile, share: _Share, cache_share: _Share
) -> MemoryLevel:
    """Private caches keep their size; a cache of the whole device is allotted by share, a GPU's by
    that of the memory.
    """
    is_private = level.shared_by_core_count is not None
    level_share = share if is_private else cache_share
    changes: Document = {"bandwidth_bytes_per_s": level_share.number(level.bandwidth_bytes_per_s)}
    if isinstance(device, CpuProfile):
        changes["note"] = None
    if not is_private:
        fraction = level_share.fraction
        source = f"{fraction:.4g} of the {level.name} of {device.name}"
        changes["capacity_bytes"] = _derived(level.capacity_bytes.value * fraction, source)
    return level.model_copy(update=changes)


def _at_most(field: str, value: float, most: Positive | None, device: str) -> None:
    if most is not None and value > most.value * (1 + 1e-9):
        raise InvalidValueError(field, value, f"at most {most.value:g}, all that {device} has")


def _derived(value: float, source: str) -> Positive:
    return Positive(value=value, kind=SourceKind.DERIVED, source=source)
