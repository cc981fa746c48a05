"""Device profiles: what one CPU, GPU, FPGA or ASIC is, in sourced numbers.

A profile holds datasheet facts and derived peaks only; parameters fitted to measurements live in
overlays beside it and never change a value here. Rates are dense unless the field says sparse, in
FLOP/s with a multiply-add counted as 2 FLOP (integer operations likewise). `scope` says whether
power and memory are of a die, a board or a node.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BeforeValidator, Field, model_validator

from accelsim.dtype import Dtype
from accelsim.hardware.sourced import FrozenModel, Positive, PositiveCount, Sourced, value_of
from accelsim.plain import Values
from accelsim.units import to_si

#: Kebab-case names; ``local/...`` for this machine's own devices, ``...@...`` for slices.
DEVICE_NAME = r"^(?:local/)?[a-z0-9](?:[a-z0-9.+-]*[a-z0-9+])?(?:@[a-z0-9.=]+)?$"


class DeviceClass(StrEnum):
    """The four classes of device; each has its own cost model."""

    CPU = "cpu"
    GPU = "gpu"
    FPGA = "fpga"
    ASIC = "asic"


class Dataflow(StrEnum):
    """Which operand stays in a systolic array."""

    OUTPUT_STATIONARY = "output_stationary"
    WEIGHT_STATIONARY = "weight_stationary"
    INPUT_STATIONARY = "input_stationary"
    ROW_STATIONARY = "row_stationary"


def _dtype(value: object) -> object:
    if not isinstance(value, str):
        return value
    if value.upper() not in Dtype.__members__:
        labels = ", ".join(d.label for d in Dtype)
        raise ValueError(f"unknown dtype {value!r}; expected one of {labels}")
    return Dtype[value.upper()]


DtypeName = Annotated[Dtype, BeforeValidator(_dtype)]
#: Peak rates by dtype, FLOP/s (or integer operation/s), dense.
Rates = Annotated[Mapping[DtypeName, Positive], Field(default_factory=dict)]
Scope = Literal["die", "board", "node"]


class MemoryLevel(FrozenModel):
    """One level of memory: a cache, scratchpad, or the main memory.

    Capacity is that of one instance: one core's (or SM's) where `shared_by_core_count` is 1, one
    cluster's where it is larger, the device's where it is None. Bandwidth is the sum over the
    device (all cores or SMs together), one direction at a time unless noted. A datasheet's "GB" of
    DRAM is 2^30 bytes (JEDEC JESD100B.01). `usable_bytes` is what the driver reports as total:
    error correction that lies beside the data takes the rest.

    Attributes:
        name: Its name: "L2", "HBM3".
        capacity_bytes: Bytes of one instance.
        usable_bytes: Bytes that the driver reports as total; as the capacity where unknown.
        bandwidth_bytes_per_s: Bytes per second over the whole device, in one direction.
        technology: Kind of memory: GDDR6, HBM3, SRAM.
        inline_ecc: Whether error correction takes part of the capacity and bandwidth.
        shared_by_core_count: Cores or SMs that share an instance; all where left out.
        is_unified: Whether it is the host's memory too, so that nothing is copied between them.
        note: What a reader should know.
    """

    name: Annotated[str, Field(min_length=1)]
    capacity_bytes: Positive
    usable_bytes: Positive | None = None
    bandwidth_bytes_per_s: Positive | None = None
    technology: str | None = None
    # error correction is on by default and its codes lie beside the data: they take bandwidth
    inline_ecc: bool = False
    shared_by_core_count: Annotated[int, Field(ge=1)] | None = (
        None  # None: shared by the whole device
    )
    is_unified: bool = False
    note: str | None = None

    def total_bytes(self, core_count: int) -> float:
        """Capacity of all instances together on a device of ``core_count`` cores or SMs."""
        sharing = self.shared_by_core_count
        return self.capacity_bytes.value * (1 if sharing is None else max(core_count // sharing, 1))


class HostLink(FrozenModel):
    """A link of the device, to its host or to peers. Bandwidth is per direction.

    Attributes:
        name: Its name: "PCIe 4.0 x16".
        bandwidth_bytes_per_s: Bytes per second in each direction.
        latency_s: Seconds that an empty transfer takes.
        device_count: Devices that a bridge joins; None where a board joins all.
    """

    name: Annotated[str, Field(min_length=1)]
    bandwidth_bytes_per_s: Positive
    latency_s: Positive | None = None
    device_count: PositiveCount | None = None


class PowerSpec(FrozenModel):
    """Power of the scope the profile names.

    Attributes:
        limit_w: Thermal design power, or the board's limit, in watts.
        idle_w: Watts at rest.
        note: What a reader should know.
        set_limit_w: Limit that its owner sets below `limit_w`, in watts; no part of its content.
    """

    limit_w: Positive | None = None  # TDP or board power limit
    idle_w: Positive | None = None
    note: str | None = None
    set_limit_w: Annotated[float | None, Field(exclude=True)] = None


class Conflict(FrozenModel):
    """An independent source that disagrees with a profile, and why the profile keeps its value.

    Attributes:
        field: Field of the profile.
        reference_value: What the other source says.
        reference_source: The other source.
        reason: Why the profile keeps its value.
    """

    field: str
    reference_value: float | str
    reference_source: str
    reason: Annotated[str, Field(min_length=8)]


class Instance(FrozenModel):
    """The cloud instance that a device is bought in.

    Attributes:
        name: Its name as the provider writes it.
        device_count: Devices of it.
    """

    name: Annotated[str, Field(min_length=1)]
    device_count: Annotated[int, Field(ge=1)]


class _Base(FrozenModel):
    """What all devices have.

    Attributes:
        name: Name that commands take: letters, digits and signs of a file's name.
        title: Name as the vendor writes it.
        aliases: Further names that commands take.
        vendor: Who makes it.
        year: Year of its launch.
        scope: What power and memory are of.
        process_nm: Node of the chip, nanometres.
        matrix_flop_per_s: Dense FLOP per second of the matrix units by format; a multiply-add is 2.
        matrix_sparse_flop_per_s: The same with the structured sparsity the chip has a rate for.
        vector_flop_per_s: FLOP per second of the vector units, by format.
        memory: Main memory.
        on_chip: Caches and scratchpads.
        power: Limit and idle power.
        host_link: Link to the host.
        peer_link: Link to devices like it.
        launch_price_usd: List price at its launch, US dollars.
        sources: Citations by the short names that `source` fields use.
        conflicts: Independent sources that disagree.
        note: What a reader should know.
        instance: Cloud instance that it was named by, whose price it has; no part of its content.
        joined_count: Devices like it that share a model, as it was named (``2 x rtx-3090``); no
            part of its content.
    """

    name: Annotated[str, Field(pattern=DEVICE_NAME, max_length=80)]
    title: Annotated[str, Field(min_length=2)]
    aliases: tuple[str, ...] = Field(default=(), strict=False)
    vendor: Annotated[str, Field(min_length=1)]
    year: Annotated[int, Field(ge=1950, le=2100)]
    scope: Scope = "board"
    process_nm: Positive | None = None
    matrix_flop_per_s: Rates
    matrix_sparse_flop_per_s: Rates
    vector_flop_per_s: Rates
    memory: MemoryLevel
    on_chip: tuple[MemoryLevel, ...] = Field(default=(), strict=False)
    power: PowerSpec = PowerSpec()
    host_link: HostLink | None = None
    peer_link: HostLink | None = None
    launch_price_usd: Positive | None = None
    sources: Mapping[str, str] = Field(default_factory=dict)
    conflicts: tuple[Conflict, ...] = Field(default=(), strict=False)
    note: str | None = None
    instance: Annotated[Instance | None, Field(exclude=True)] = None
    joined_count: Annotated[int, Field(exclude=True, ge=1)] = 1

    @property
    def peak_flop_per_s(self) -> dict[Dtype, float]:
        """Best dense rate per dtype over matrix and vector units, FLOP/s."""
        rates = {dtype: rate.value for dtype, rate in self.vector_flop_per_s.items()}
        for dtype, rate in self.matrix_flop_per_s.items():
            rates[dtype] = max(rate.value, rates.get(dtype, 0.0))
        return rates

    @property
    def label(self) -> str:
        """Name, with the count of those that share a model."""
        return self.name if self.joined_count == 1 else f"{self.joined_count} x {self.name}"

    @property
    def whole_name(self) -> str:
        """Name of the device this one is a slice of; its own where it is whole."""
        return self.name.partition("@")[0]

    @property
    def memory_bytes(self) -> float:
        """Main memory as the driver reports it; its capacity where that is unknown."""
        return (self.memory.usable_bytes or self.memory.capacity_bytes).value

    @property
    def memory_bandwidth_bytes_per_s(self) -> float | None:
        """Bandwidth of the main memory, or None where unknown."""
        return value_of(self.memory.bandwidth_bytes_per_s, None)


class _Divisible(_Base):
    """A device that slices are taken of; `slice_fraction` is of the whole's compute units.

    Attributes:
        slice_of: Device that it is a share of.
        slice_fraction: Its share of the whole's compute units.
    """

    slice_of: str | None = None
    slice_fraction: Annotated[float, Field(gt=0, le=1)] = 1.0


_Value = TypeVar("_Value")


class Identity(Generic[_Value]):
    """A value compared by which object it is, as a key of what is made of it."""

    __slots__ = ("value",)

    def __init__(self, value: _Value) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


class CpuProfile(_Divisible):
    """A CPU socket (or a slice of one).

    `simd_width_bits` and `fma_ports` are per core; `vector_flop_per_s` is cores x lanes x ports x 2
    x clock at the clock that vector code holds, `matrix_flop_per_s` that of AMX, SME or dot-product
    units. `matrix_unit` names it. `sustained_clock_hz` is what all cores hold in long products of
    the widest vectors, where that is known to be less than the clock of the rates.

    Attributes:
        core_count: Cores of a socket.
        threads_per_core: Hardware threads of a core.
        simd_width_bits: Bits of a vector register.
        fma_ports: Vectors of multiply-adds that a core starts per cycle.
        base_clock_hz: Clock that is guaranteed, hertz.
        boost_clock_hz: Highest clock of a core, hertz.
        vector_clock_hz: Clock of the vector rates, hertz.
        sustained_clock_hz: Clock of all cores in long products of the widest vectors, hertz.
        matrix_unit: Name of its matrix unit: AMX, SME.
        numa_node_count: Parts of memory with an own controller.
        memory_channel_count: Channels of main memory.
    """

    device_class: Literal["cpu"] = "cpu"
    core_count: PositiveCount
    threads_per_core: PositiveCount | None = None
    simd_width_bits: PositiveCount
    fma_ports: PositiveCount
    base_clock_hz: Positive
    boost_clock_hz: Positive | None = None
    vector_clock_hz: Positive | None = None
    sustained_clock_hz: Positive | None = None
    matrix_unit: str | None = None
    numa_node_count: PositiveCount | None = None
    memory_channel_count: PositiveCount | None = None


class GpuProfile(_Divisible):
    """A GPU board (or a slice of one): SMs or compute units, their lanes, matrix cores and
    memories.

    `matrix_fp32_accumulate_flop_per_s` holds the formats whose listed matrix rate is of sums in
    FP16: what the cores reach where they sum in FP32, as libraries do.

    Attributes:
        architecture: Generation: Ampere, CDNA 3.
        matrix_fp32_accumulate_flop_per_s: Dense FLOP per second where they sum in FP32, by format.
        sm_count: Streaming multiprocessors or compute units.
        lanes_per_sm: FP32 lanes of each.
        base_clock_hz: Clock that is guaranteed, hertz.
        boost_clock_hz: Highest clock, hertz.
        register_file_bytes_per_sm: Bytes of registers of each.
        shared_memory_bytes_per_sm: Bytes of scratchpad of each.
        l2_bytes: Bytes of the last-level cache.
        max_threads_per_sm: Threads that each holds at once.
    """

    device_class: Literal["gpu"] = "gpu"
    architecture: Annotated[str, Field(min_length=2)]
    matrix_fp32_accumulate_flop_per_s: Rates
    sm_count: PositiveCount
    lanes_per_sm: PositiveCount
    base_clock_hz: Positive | None = None
    boost_clock_hz: Positive
    register_file_bytes_per_sm: Positive | None = None
    shared_memory_bytes_per_sm: Positive | None = None
    l2_bytes: Positive | None = None
    max_threads_per_sm: PositiveCount | None = None

    @property
    def whole_name(self) -> str:
        """Name of the board this one is a slice of; its own where it is whole."""
        return self.slice_of or super().whole_name


class DpuCore(FrozenModel):
    """A soft or hard overlay core for convolutional networks (AMD DPU architectures, PG338).

    Attributes:
        name: Name of the core's architecture: DPUCZDX8G_B4096.
        pixel_parallelism: Output pixels per cycle.
        input_channel_parallelism: Input channels per cycle.
        output_channel_parallelism: Output channels per cycle.
        core_count: Cores on the device.
        clock_hz: Clock of the multiply-adders, hertz.
    """

    name: str
    pixel_parallelism: PositiveCount
    input_channel_parallelism: PositiveCount
    output_channel_parallelism: PositiveCount
    core_count: PositiveCount
    clock_hz: Positive


class FpgaProfile(_Base):
    """An FPGA board: full and usable resources, fabric clock, memories, supported flows.

    Attributes:
        part: Part number of the chip.
        lut_count: Look-up tables.
        flip_flop_count: Flip-flops.
        dsp_count: Multiply-add slices.
        bram_36k_count: Blocks of RAM of 36 Kibit.
        uram_count: Blocks of UltraRAM.
        usable_fraction: Share of the resources that the shell leaves.
        fabric_clock_hz: Clock of the fabric, hertz.
        flows: Ways it is programmed: overlay, dataflow.
        overlay: Its overlay core.
    """

    device_class: Literal["fpga"] = "fpga"
    part: str
    lut_count: PositiveCount | None = None
    flip_flop_count: PositiveCount | None = None
    dsp_count: PositiveCount | None = None
    bram_36k_count: PositiveCount | None = None
    uram_count: PositiveCount | None = None
    usable_fraction: Sourced[Annotated[float, Field(gt=0, le=1)]] | None = None
    fabric_clock_hz: Positive
    flows: tuple[Literal["overlay", "dataflow"], ...] = Field(default=(), strict=False)
    overlay: DpuCore | None = None


#: Ten times the multiply-adders of a whole wafer (Cerebras WSE-3: 7.2 million).
MOST_MULTIPLY_ADDERS = 72_000_000


class ComputeArray(FrozenModel):
    """The matrix unit of an ASIC: `count` systolic (or equivalent) arrays of rows x columns
    multiply-accumulators.

    Attributes:
        rows: Rows of an array.
        columns: Columns of an array.
        count: Arrays of the chip.
        dataflow: What stays in the array: os, ws or is.
        equivalent: Whether the unit is no systolic array; the shape then has its peak.
        convolves: By whole windows (im2col), whose taps share the rows of an array, or tap by tap,
            whose products contract the input channels alone.
    """

    rows: PositiveCount
    columns: PositiveCount
    count: PositiveCount
    dataflow: Annotated[Dataflow, Field(strict=False)]
    equivalent: bool = False  # True: not a systolic array; shape chosen so that its peak matches
    convolves: Literal["windows", "taps"] = "windows"

    @model_validator(mode="after")
    def _check_size(self) -> ComputeArray:
        elements = self.rows.value * self.columns.value * self.count.value
        if elements > MOST_MULTIPLY_ADDERS:
            allowed = f"at most {MOST_MULTIPLY_ADDERS:,}, ten wafers'"
            raise ValueError(f"{elements:,} multiply-adders; expected {allowed}")
        return self


class AsicProfile(_Base):
    """An ASIC or TPU chip: matrix arrays, vector unit, on-chip memory, HBM, chip links.

    `weight_cache_bytes` is on-chip memory, part of `sram_bytes`, whose weights stay from one
    inference to the next. `core_count` cores have scratchpads of their own, so that each fetches
    the weights it needs; unset where all arrays share one. `operator_overhead_s` is time to start
    an operator beyond the class's, `launch_overhead_s` the host's to start a program.

    Attributes:
        arrays: Its matrix arrays.
        clock_hz: Clock of the arrays, hertz.
        sram_bytes: Bytes of on-chip memory.
        weight_cache_bytes: Bytes of it that keep weights from one inference to the next.
        core_count: Cores with scratchpads of their own.
        operator_overhead_s: Seconds to start an operator, beyond the class's.
        launch_overhead_s: Seconds of the host to start a program, which hide behind the one before.
        training: Whether it can train.
        unsupported_operators: Kinds of operators that it leaves to its host.
    """

    device_class: Literal["asic"] = "asic"
    arrays: ComputeArray
    clock_hz: Positive
    sram_bytes: Positive | None = None
    weight_cache_bytes: Positive | None = None
    core_count: PositiveCount | None = None
    operator_overhead_s: Positive | None = None
    launch_overhead_s: Positive | None = None
    training: bool = True
    unsupported_operators: tuple[str, ...] = Field(default=(), strict=False)


DeviceProfile = CpuProfile | GpuProfile | FpgaProfile | AsicProfile
_BY_CLASS: Mapping[str, type[DeviceProfile]] = {
    "cpu": CpuProfile,
    "gpu": GpuProfile,
    "fpga": FpgaProfile,
    "asic": AsicProfile,
}


def _cited(data: object, sources: Mapping[str, str]) -> object:
    """The data with each ``source`` that is a key of ``sources`` replaced by its citation."""
    if isinstance(data, list):
        return [_cited(item, sources) for item in data]
    if not isinstance(data, Mapping):
        return data
    resolved = {key: _cited(item, sources) for key, item in data.items() if key != "sources"}
    source = resolved.get("source")
    if isinstance(source, str):
        resolved["source"] = sources.get(source, source)
    return resolved


def with_citations(data: Values) -> dict[str, Any]:
    """The contents of a file in SI units, its source keys as citations from its ``sources``."""
    table = data.get("sources", {})
    citations = table if isinstance(table, Mapping) else {}
    return {**to_si(_cited(data, citations)), "sources": table}


def parse_device(data: Values) -> DeviceProfile:
    """Validate the contents of one device file.

    Spec-sheet units become SI; source keys become citations from the file's ``sources`` table;
    ``class`` is an accepted spelling of ``device_class``.

    Args:
        data: Parsed YAML.

    Returns:
        The frozen profile of its class.

    Raises:
        pydantic.ValidationError: With the field of each problem.
        ValueError: If the class is none of the four, or a field is given twice in different units.
    """
    prepared = with_citations(data)
    if "class" in prepared:
        prepared["device_class"] = prepared.pop("class")
    device_class = prepared.get("device_class")
    if device_class is None:
        raise ValueError("class is missing: expected cpu, gpu, fpga or asic")
    if str(device_class) not in _BY_CLASS:
        raise ValueError(f"class {device_class!r} is not one of {', '.join(_BY_CLASS)}")
    return _BY_CLASS[str(device_class)].model_validate(prepared)
