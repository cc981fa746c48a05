"""A GPU that the catalogue does not have, from what its driver says of it and a board of its
compute capability.

SMs of one compute capability are alike (CUDA C++ Programming Guide, "Compute Capabilities"): rates
follow from a catalogued board by the number of SMs and the clock. Capacity, bus width and memory
clock are the driver's; the bandwidth is that of two transfers per clock, as the driver counts
clocks of DDR, GDDR and HBM alike.
"""

from __future__ import annotations

from collections.abc import Mapping

from accelsim.dtype import Dtype
from accelsim.files.datafile import data_root, read_mapping
from accelsim.hardware.local import name_candidates
from accelsim.hardware.profile import GpuProfile, HostLink, MemoryLevel, PowerSpec
from accelsim.hardware.sourced import Positive, PositiveCount, SourceKind
from accelsim.plain import Document, Values

#: A catalogued board of each compute capability: class data, key `compute_capability_boards`.
_BOARDS_FILE = "calibration/class/gpu-boards.yaml"
_NEEDED = (
    "multiprocessor_count",
    "device_memory_bytes",
    "boost_clock_mhz",
    "memory_clock_max_mhz",
    "memory_bus_bits",
)
_DRIVER = "driver of this machine"
_OF_AN_SM = (
    "lanes_per_sm",
    "register_file_bytes_per_sm",
    "shared_memory_bytes_per_sm",
    "max_threads_per_sm",
)
_RATES = (
    "vector_flop_per_s",
    "matrix_flop_per_s",
    "matrix_fp32_accumulate_flop_per_s",
    "matrix_sparse_flop_per_s",
)


def reference_board(facts: Values) -> str | None:
    """Catalogue name of the board whose SMs are those of a GPU; None where none is, or the driver
    says too little.

    Args:
        facts: Environment of a calibration run.
    """
    if facts.get("hip_version") or any(not facts.get(name) for name in _NEEDED):
        return None
    boards = read_mapping(data_root() / _BOARDS_FILE)["compute_capability_boards"]
    board = boards.get(str(facts.get("compute_capability")))
    return None if board is None else str(board)


def estimated_gpu_profile(facts: Values, reference: GpuProfile) -> GpuProfile:
    """Profile of a GPU by its driver's facts.

    Args:
        facts: Environment of a calibration run: product, SMs, clocks in MHz, memory in bytes, bus
            in bits.
        reference: Profile of the board `reference_board` names.

    Returns:
        A profile under the product's name; figures are marked as measured, derived or estimated.
    """
    product = str(facts["device_name"])
    sms, clock = int(facts["multiprocessor_count"]), 1e6 * float(facts["boost_clock_mhz"])
    ratio = sms * clock / (reference.sm_count.value * reference.boost_clock_hz.value)
    per_sm = f"{reference.name}'s per SM and clock, {sms} SMs at {clock / 1e6:.0f} MHz"

    def scaled(value: Positive) -> Positive:
        return _number(value.value * ratio, SourceKind.DERIVED, per_sm)

    def read(name: str) -> Positive:
        return _number(float(facts[name]), SourceKind.MEASURED, _DRIVER)

    bus = float(facts["memory_bus_bits"])
    bandwidth = 2e6 * float(facts["memory_clock_max_mhz"]) * bus / 8
    transfers = f"2 transfers per clock x {bus:.0f} bits"
    memory = MemoryLevel(
        name=reference.memory.name,
        technology=reference.memory.technology,
        inline_ecc=reference.memory.inline_ecc,
        capacity_bytes=read("device_memory_bytes"),
        bandwidth_bytes_per_s=_number(bandwidth, SourceKind.DERIVED, transfers),
    )
    limit = read("power_limit_w") if facts.get("power_limit_w") else None
    same = ("vendor", "year", "architecture", "process_nm", *_OF_AN_SM)
    rates: Document = {
        table: {dtype: scaled(rate) for dtype, rate in getattr(reference, table).items()}
        for table in _RATES
    }
    return GpuProfile(
        name=name_candidates(product)[0],
        title=f"{product} (by its driver)",
        **{name: getattr(reference, name) for name in same},
        sm_count=PositiveCount(value=sms, kind=SourceKind.MEASURED, source=_DRIVER),
        boost_clock_hz=_number(clock, SourceKind.MEASURED, _DRIVER),
        l2_bytes=read("l2_bytes") if facts.get("l2_bytes") else reference.l2_bytes,
        memory=memory,
        power=PowerSpec(limit_w=limit),
        host_link=_assumed(reference.host_link, reference.name),
        note=(
            f"made from what the driver says and {reference.name}; year, process and host link are"
            " that board's"
        ),
        **rates,
    )


def device_document(profile: GpuProfile) -> Document:
    """A profile as the contents of a device file, which `parse_device` reads back."""
    document = profile.model_dump(mode="json", exclude_defaults=True)
    document["device_class"] = profile.device_class
    for name in _RATES:
        rates: Mapping[Dtype, Positive] = getattr(profile, name)
        document[name] = {
            dtype.label: rate.model_dump(mode="json") for dtype, rate in rates.items()
        }
    return document


def _number(value: float, kind: SourceKind, source: str) -> Positive:
    return Positive(value=value, kind=kind, source=source)


def _assumed(link: HostLink | None, name: str) -> HostLink | None:
    if link is None:
        return None
    bandwidth = link.bandwidth_bytes_per_s.value
    assumed = _number(bandwidth, SourceKind.ESTIMATE, f"as {name}'s")
    return HostLink(name=link.name, bandwidth_bytes_per_s=assumed)
