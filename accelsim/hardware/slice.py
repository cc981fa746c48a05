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


def parse_slice_syntax(of: str, share: str, whole: DeviceProfile) -> SliceSpec:
    """Read the part of a name after ``@``.

    Args:
        of: Name before the ``@``.
        share: ``8vcpu``, ``4cores``, ``28sm``, ``2g.20gb`` (MIG) or ``fraction=0.25``.
        whole: The device named by ``of``; MIG profiles depend on it.

    Returns:
        The slice it names.

    Raises:
        InvalidValueError: If the text is none of these, or the device has no MIG.
    """
    if found := _COUNTED.match(share):
        return _spec(of, share, f"{found[2].removesuffix('s')}_count", int(found[1]))
    if found := _FRACTION.match(share):
        return _spec(of, share, "fraction", float(found[1]))
    if found := _MIG.match(share):
        return _mig(of, share, int(found[1]), int(found[2]), whole)
    allowed = "8vcpu, 4cores, 28sm, 2g.20gb or fraction=0.25"
    raise InvalidValueError("device slice", share, allowed, f"Write it as {of}@8vcpu.")


def slice_device(whole: DeviceProfile, spec: SliceSpec, name: str) -> DeviceProfile:
    """Scale a CPU or GPU profile down to a slice.

    Args:
        whole: The device to take from.
        spec: What to take.
        name: Name of the slice.

    Returns:
        A profile whose scaled numbers are ``derived`` and name the whole.

    Raises:
        InvalidValueError: If the slice exceeds the whole, or the device's class has no slices.
    """
    if isinstance(whole, CpuProfile):
        cores = whole.core_count.value
        threads = cores * value_of(whole.threads_per_core, 1)
        share = _share(spec, {"vcpu_count": threads, "core_count": cores}, whole.name)
        memory = _memory(whole, spec, share)
        level_share = share
        counts: tuple[str, ...] = _CPU_COUNTS
        own: Document = {}
    elif isinstance(whole, GpuProfile):
        share = _share(spec, {"sm_count": whole.sm_count.value}, whole.name)
        memory = _memory(whole, spec, share)
        level_share = memory.capacity_bytes.value / whole.memory.capacity_bytes.value
        counts = ("sm_count",)
        table = "matrix_fp32_accumulate_flop_per_s"
        own = {
            "l2_bytes": _scaled(whole.l2_bytes, level_share, whole.name),
            table: _scaled_rates(getattr(whole, table), share, whole.name),
        }
    else:
        raise InvalidValueError(
            "slice.of", whole.name, "a CPU or GPU", "Boards of other classes are rented whole."
        )
    levels = tuple(_level(level, whole, share, level_share) for level in whole.on_chip)
    numbers = {field: _count(getattr(whole, field), share, whole.name) for field in counts}
    changes = _common(whole, name, share) | {"memory": memory, "on_chip": levels, **numbers, **own}
    return whole.model_copy(update=changes)


#: Share of a unified memory that Metal lets a program take, up to so many GiB and above
#: (recommendedMaxWorkingSetSize in logs of llama.cpp: 10.7 of 16 GiB, 144 of 192).
_SMALL_GIB = 36.0
_SMALL_SHARE = 2.0 / 3.0


def with_memory(whole: DeviceProfile, capacity_bytes: float) -> DeviceProfile:
    """The device as it is sold with less memory, which is as fast.

    Args:
        whole: The device.
        capacity_bytes: Its memory.

    Raises:
        InvalidValueError: If that is nothing, or more than the profile has.
    """
    level = whole.memory
    if not capacity_bytes > 0:
        raise InvalidValueError("memory", capacity_bytes, "more than 0")
    _at_most("memory", capacity_bytes, level.capacity_bytes, whole.name)
    usable = level.usable_bytes
    if usable is not None:
        share = usable.value / level.capacity_bytes.value
        if level.is_unified and capacity_bytes <= _SMALL_GIB * 2**30:
            share = min(share, _SMALL_SHARE)
        usable = _derived(capacity_bytes * share, f"{share:.3g} of the memory")
    sold = {"capacity_bytes": _derived(capacity_bytes, f"{whole.name} with less memory")}
    memory = level.model_copy(update={**sold, "usable_bytes": usable})
    return whole.model_copy(update={"memory": memory})


_CPU_COUNTS = ("core_count", "numa_node_count", "memory_channel_count")


def _spec(of: str, share: str, field: str, value: float) -> SliceSpec:
    if value == 0:
        raise InvalidValueError("device slice", share, "more than nothing")
    return SliceSpec.model_validate({"of": of, field: value})


def _mig(of: str, share: str, slices: int, memory_gib: int, whole: DeviceProfile) -> SliceSpec:
    def refused(allowed: str) -> InvalidValueError:
        return InvalidValueError("device slice", share, allowed)

    if not isinstance(whole, GpuProfile) or not _has_mig(whole):
        raise refused("a MIG profile of an A100, A30, H100 or H200")
    most = 4 if whole.name.startswith("a30") else 7
    if slices not in {1, 2, 3, 4, 7} or slices > most:
        raise refused(f"1g, 2g, 3g, 4g or 7g, up to {most}g on {whole.name}")
    architecture, total = whole.architecture, whole.sm_count.value
    sm_count = _MIG_EXCEPTIONS.get((architecture, slices), slices * _MIG_SM_COUNT[architecture])
    if slices == 7 and architecture == "Hopper":
        sm_count = total
    if sm_count > total:
        raise refused(f"at most {total} SMs, not {sm_count}")
    if memory_gib == 0:
        raise refused("some memory")
    capacity, asked = whole.memory.capacity_bytes.value, memory_gib * 1024.0**3
    if asked > capacity * 1.05:
        raise refused(f"at most the memory of {whole.name}")
    return SliceSpec(of=of, sm_count=sm_count, memory_bytes=min(asked, capacity))


def _has_mig(whole: GpuProfile) -> bool:
    data_centre = "HBM" in (whole.memory.technology or whole.memory.name)
    return whole.vendor == "NVIDIA" and whole.architecture in _MIG_SM_COUNT and data_centre


def _share(spec: SliceSpec, counts: Mapping[str, int], device: str) -> float:
    """Compute share of a slice, from whichever field gives it."""
    fields = ("fraction", "vcpu_count", "core_count", "sm_count")
    given = {field: getattr(spec, field) for field in fields if getattr(spec, field) is not None}
    allowed = ", ".join(["fraction", *counts])
    if len(given) != 1:
        asked = f"exactly one of {allowed}"
        raise InvalidValueError(f"slice of {device}", sorted(given) or None, asked)
    ((field, value),) = given.items()
    if field == "fraction":
        return float(value)
    if field not in counts:
        raise InvalidValueError(f"slice.{field}", value, f"one of {allowed} for {device}")
    if value > counts[field]:
        raise InvalidValueError(f"slice.{field}", value, f"at most the {counts[field]} of {device}")
    return float(value / counts[field])


def _common(whole: CpuProfile | GpuProfile, name: str, share: float) -> Document:
    tables = ("matrix_flop_per_s", "matrix_sparse_flop_per_s", "vector_flop_per_s")
    power = PowerSpec(
        limit_w=_scaled(whole.power.limit_w, share, whole.name),
        idle_w=_scaled(whole.power.idle_w, share, whole.name),
        note="share of the whole device's power",
    )
    return {
        "name": name,
        "title": f"{whole.title} ({share:.4g} of it)",
        "aliases": (),
        **{table: _scaled_rates(getattr(whole, table), share, whole.name) for table in tables},
        "power": power,
        "peer_link": None,
        "launch_price_usd": None,
        "slice_of": whole.slice_of or whole.name,
        "slice_fraction": whole.slice_fraction * share,
    }


def _memory(whole: CpuProfile | GpuProfile, spec: SliceSpec, share: float) -> MemoryLevel:
    level = whole.memory
    capacity = spec.memory_bytes
    if capacity is None:
        capacity = level.capacity_bytes.value * share
    _at_most("slice.memory_bytes", capacity, level.capacity_bytes, whole.name)
    memory_share = capacity / level.capacity_bytes.value
    bandwidth_share = share if isinstance(whole, CpuProfile) else memory_share
    bandwidth = _scaled(level.bandwidth_bytes_per_s, bandwidth_share, whole.name)
    given = spec.memory_bandwidth_bytes_per_s
    if given is not None:
        field = "slice.memory_bandwidth_bytes_per_s"
        _at_most(field, given, level.bandwidth_bytes_per_s, whole.name)
        bandwidth = _derived(given, f"given for this slice of {whole.name}")
    source = f"{memory_share:.4g} of the memory of {whole.name}"
    changes = {
        "capacity_bytes": _derived(capacity, source),
        "usable_bytes": _scaled(level.usable_bytes, memory_share, whole.name),
        "bandwidth_bytes_per_s": bandwidth,
    }
    return level.model_copy(update=changes)


def _level(
    level: MemoryLevel, whole: CpuProfile | GpuProfile, share: float, memory_share: float
) -> MemoryLevel:
    """Private caches keep their size; a cache of the whole device is allotted by share, a GPU's by
    that of the memory.
    """
    private = level.shared_by_core_count is not None
    level_share = share if private else memory_share
    changes: Document = {
        "bandwidth_bytes_per_s": _scaled(level.bandwidth_bytes_per_s, level_share, whole.name)
    }
    if isinstance(whole, CpuProfile):
        changes["note"] = None
    if not private:
        source = f"{level_share:.4g} of the {level.name} of {whole.name}"
        changes["capacity_bytes"] = _derived(level.capacity_bytes.value * level_share, source)
    return level.model_copy(update=changes)


def _at_most(field: str, value: float, most: Positive | None, device: str) -> None:
    if most is not None and value > most.value * (1 + 1e-9):
        raise InvalidValueError(field, value, f"at most {most.value:g}, all that {device} has")


def _derived(value: float, source: str) -> Positive:
    return Positive(value=value, kind=SourceKind.DERIVED, source=source)


def _scaled_rates(rates: Rates, share: float, device: str) -> dict[Dtype, Positive]:
    scaled = {dtype: _scaled(rate, share, device) for dtype, rate in rates.items()}
    return {dtype: rate for dtype, rate in scaled.items() if rate is not None}


def _scaled(number: Positive | None, share: float, device: str) -> Positive | None:
    if number is None:
        return None
    source = f"{share:.4g} of {number.value:g} of {device}; {number.source}"
    return _derived(number.value * share, source[:1000])


def _count(number: PositiveCount | None, share: float, device: str) -> PositiveCount | None:
    """Units of the slice, rounded up, so that a slice of half a core still has one."""
    if number is None:
        return None
    count = max(1, math.ceil(number.value * share - 1e-6))
    source = f"{share:.4g} of {number.value} of {device}"
    return PositiveCount(value=count, kind=SourceKind.DERIVED, source=source)
