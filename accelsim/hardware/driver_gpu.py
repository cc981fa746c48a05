"""A GPU that the catalogue does not have, from what its driver says of it and a board of its
compute capability.

SMs of one compute capability are alike (CUDA C++ Programming Guide, "Compute Capabilities"): rates
follow from a catalogued board by the number of SMs and the clock. Capacity, bus width and memory
clock are the driver's; the bandwidth is that of two transfers per clock, as the driver counts
clocks of DDR, GDDR and HBM alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from accelsim.hardware.local import name_candidates
from accelsim.hardware.profile import GpuProfile, HostLink, MemoryLevel, PowerSpec
from accelsim.hardware.sourced import Positive, PositiveCount, SourceKind
from accelsim.workloads.dtype import Dtype

__all__ = ["device_document", "estimated_gpu_profile", "kin_board"]

#: A catalogued board of each compute capability.
_BOARDS: Final[Mapping[str, str]] = {
    "5.2": "m40-24gb",
    "6.0": "p100-pcie-16gb",
    "6.1": "p4",
    "7.0": "v100-pcie-32gb",
    "7.5": "t4",
    "8.0": "a100-sxm-80gb",
    "8.6": "a40",
    "8.9": "l40s",
    "9.0": "h100-sxm-80gb",
    "10.0": "b200-sxm",
    "10.3": "b300-sxm",
    "12.0": "rtx-pro-6000-blackwell",
}
_NEEDED: Final = (
    "multiprocessor_count",
    "device_memory_bytes",
    "boost_clock_mhz",
    "memory_clock_max_mhz",
    "memory_bus_bits",
)
_DRIVER: Final = "driver of this machine"
_RATES: Final = ("vector_flop_per_s", "matrix_flop_per_s", "matrix_sparse_flop_per_s")


def kin_board(facts: Mapping[str, Any]) -> str | None:
    """Catalogue name of the board whose SMs are those of a GPU; None where none is, or the driver
    says too little.

    Args:
        facts: Environment of a calibration run.
    """
    if facts.get("hip_version") or any(not facts.get(name) for name in _NEEDED):
        return None
    return _BOARDS.get(str(facts.get("compute_capability")))


def estimated_gpu_profile(facts: Mapping[str, Any], kin: GpuProfile) -> GpuProfile:
    """Profile of a GPU by its driver's facts.

    Args:
        facts: Environment of a calibration run: product, SMs, clocks in MHz, memory in bytes, bus
            in bits.
        kin: Profile of the board `kin_board` names.

    Returns:
        A profile under the product's name; figures are marked as measured, derived or estimated.
    """
    product = str(facts["device_name"])
    sms, clock = int(facts["multiprocessor_count"]), 1e6 * float(facts["boost_clock_mhz"])
    ratio = sms * clock / (kin.sm_count.value * kin.boost_clock_hz.value)
    per_sm = f"{kin.name}'s per SM and clock, {sms} SMs at {clock / 1e6:.0f} MHz"

    def scaled(value: Positive) -> Positive:
        return Positive(value=value.value * ratio, kind=SourceKind.DERIVED, source=per_sm)

    transfers = 2e6 * float(facts["memory_clock_max_mhz"])
    bus = float(facts["memory_bus_bits"])
    bandwidth = Positive(
        value=transfers * bus / 8,
        kind=SourceKind.DERIVED,
        source=f"2 transfers per clock x {bus:.0f} bits",
    )
    memory = MemoryLevel(
        name=kin.memory.name,
        technology=kin.memory.technology,
        inline_ecc=kin.memory.inline_ecc,
        capacity_bytes=_read(float(facts["device_memory_bytes"])),
        bandwidth_bytes_per_s=bandwidth,
    )
    l2 = _read(float(facts["l2_bytes"])) if facts.get("l2_bytes") else kin.l2_bytes
    limit = facts.get("power_limit_w")
    return GpuProfile(
        name=name_candidates(product)[0],
        title=f"{product} (by its driver)",
        vendor=kin.vendor,
        year=kin.year,
        architecture=kin.architecture,
        process_nm=kin.process_nm,
        sm_count=PositiveCount(value=sms, kind=SourceKind.MEASURED, source=_DRIVER),
        lanes_per_sm=kin.lanes_per_sm,
        boost_clock_hz=_read(clock),
        register_file_bytes_per_sm=kin.register_file_bytes_per_sm,
        shared_memory_bytes_per_sm=kin.shared_memory_bytes_per_sm,
        max_threads_per_sm=kin.max_threads_per_sm,
        l2_bytes=l2,
        memory=memory,
        power=PowerSpec(limit_w=_read(float(limit)) if limit else None),
        host_link=_assumed(kin.host_link, kin.name),
        note=f"made from what the driver says and {kin.name}; year, process and host link are that board's",
        vector_flop_per_s={dtype: scaled(rate) for dtype, rate in kin.vector_flop_per_s.items()},
        matrix_flop_per_s={dtype: scaled(rate) for dtype, rate in kin.matrix_flop_per_s.items()},
        matrix_sparse_flop_per_s={
            dtype: scaled(rate) for dtype, rate in kin.matrix_sparse_flop_per_s.items()
        },
    )


def device_document(profile: GpuProfile) -> dict[str, Any]:
    """A profile as the contents of a device file, which `parse_device` reads back."""
    document = profile.model_dump(mode="json", exclude_defaults=True)
    document["device_class"] = profile.device_class
    for name in _RATES:
        rates: Mapping[Dtype, Positive] = getattr(profile, name)
        document[name] = {
            dtype.label: rate.model_dump(mode="json") for dtype, rate in rates.items()
        }
    return document


def _read(value: float) -> Positive:
    return Positive(value=value, kind=SourceKind.MEASURED, source=_DRIVER)


def _assumed(link: HostLink | None, name: str) -> HostLink | None:
    if link is None:
        return None
    bandwidth = Positive(
        value=link.bandwidth_bytes_per_s.value, kind=SourceKind.ESTIMATE, source=f"as {name}'s"
    )
    return HostLink(name=link.name, bandwidth_bytes_per_s=bandwidth)
