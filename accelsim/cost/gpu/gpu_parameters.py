"""Parameters of the GPU cost model, by what they describe.

One set serves every GPU at tier `spec`; a device's overlay replaces some of them. The values live
in ``calibration/class/gpu.yaml`` with their provenance, each under the name of its group and its
own ("gemm.prologue_k"); the classes here give unit, range and meaning. None of them was fitted to
an end-to-end run: they come from single-operator measurements and from published figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields, replace
from functools import cache
from pathlib import Path

from accelsim.confidence.residual import FamilyResidual, read_families
from accelsim.cost.class_parameters import entry_problems
from accelsim.cost.fitted import FittedParameters
from accelsim.cost.gpu.generation import vendor_generation
from accelsim.cost.shape_surface import Surface
from accelsim.cost.stack import KernelMaker
from accelsim.cost.table import ParameterTier
from accelsim.errors import InvalidValueError, ProfileError
from accelsim.files.datafile import data_root, read_mapping
from accelsim.frozen import frozen
from accelsim.plain import Document
from accelsim.workloads.graph import FloatArray

#: Largest value of a fraction of a data-sheet rate, and of any other parameter.
_WHOLE, _LARGEST = 1.0, 1e6


class _Group:
    """Checks the numbers of a group when it is made."""

    __slots__: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a fraction above 1, an efficiency of 0, and what is negative."""
        group = type(self).__name__.removesuffix("Parameters").lower()
        for name in self.__slots__:
            value = getattr(self, name)
            largest = _WHOLE if name.endswith(("efficiency", "_fraction")) else _LARGEST
            is_empty = value == 0 and name.endswith("efficiency")
            if is_empty or not 0 <= value <= largest:
                raise InvalidValueError(
                    f"gpu parameter {group}.{name}", value, f"a number up to {largest:g}"
                )


@frozen
class GemmParameters(_Group):
    """Matrix products. Fractions are of the data-sheet rate, in (0, 1].

    Attributes:
        vector_efficiency: Best GEMM rate on vector (SIMT) lanes over their peak.
        matrix_efficiency: Best GEMM rate on NVIDIA matrix (tensor) cores over their peak.
        other_matrix_efficiency: The same on other vendors' matrix cores.
        fp32_matrix_efficiency: The same in FP32, which other vendors' matrix cores alone have.
        batched_ratio: Rate of batched activation GEMMs over plain GEMMs of the same tiles; 0.5 to
            1.5.
        other_batched_ratio: The same of other vendors' kernels.
        operand_bytes_per_clock: Operand bytes the vector lanes of one SM take from L2 and shared
            memory per clock, however many they are; 4 to 256 B.
        matrix_operand_bytes_per_clock: Operand bytes the matrix cores of one SM take per clock; 32
            to 1024 B.
        operand_exposed_fraction: Part of operand loading that arithmetic does not hide, 0 to 1.
        prologue_k: Extra steps of k a tile pays to fill and drain its pipeline; 0 to 256 elements
            (32-bit).
        lone_tile_loss: Loss of a tile of 64 threads that has an SM to itself; 0 (none) to 1 (as
            long as four tiles).
        page_walk_loss: Slow-down of plain GEMMs with very long rows on early boards, less 1; 0 to
            4.
        latency_s: Start, drain and memory latency of a matrix kernel, with its set-up and epilogue;
            1 to 20 us.
        overlap_exponent: p of the p-norm that joins compute and memory time; 1 (no overlap) to
            infinity (perfect).
    """

    vector_efficiency: float
    matrix_efficiency: float
    other_matrix_efficiency: float
    fp32_matrix_efficiency: float
    batched_ratio: float
    other_batched_ratio: float
    operand_bytes_per_clock: float
    matrix_operand_bytes_per_clock: float
    operand_exposed_fraction: float
    prologue_k: float
    lone_tile_loss: float
    page_walk_loss: float
    latency_s: float
    overlap_exponent: float


@frozen
class MemoryParameters(_Group):
    """Kernels bound by memory, and the bandwidth that all kernels see.

    Attributes:
        kernel_latency_s: Start, drain and memory latency of a streaming kernel on the device; 1 to
            10 us.
        gddr_efficiency: Streaming bandwidth over the data sheet's, GDDR boards with error
            correction beside the data.
        plain_gddr_efficiency: The same, other boards with GDDR or LPDDR.
        hbm_efficiency: The same, HBM boards.
        early_efficiency: The same, boards before Volta, whose memory controllers reach less
            whatever the memory.
        other_efficiency: The same, HBM boards of other vendors.
        softmax_efficiency: Softmax bandwidth over streaming bandwidth, rows that stay in registers.
        long_softmax_ratio: The same of longer rows, which are read more than once, over that.
        norm_efficiency: Layer, group, RMS and batch normalisation bandwidth over streaming
            bandwidth.
        special_efficiency: Vector peak reached by elementwise and reduction arithmetic.
        other_softmax_efficiency: `softmax_efficiency` of other vendors' kernels.
        other_norm_efficiency: `norm_efficiency` of other vendors' kernels.
        other_special_efficiency: `special_efficiency` of other vendors' kernels.
    """

    kernel_latency_s: float
    gddr_efficiency: float
    plain_gddr_efficiency: float
    hbm_efficiency: float
    early_efficiency: float
    other_efficiency: float
    softmax_efficiency: float
    long_softmax_ratio: float
    norm_efficiency: float
    special_efficiency: float
    other_softmax_efficiency: float
    other_norm_efficiency: float
    other_special_efficiency: float


@frozen
class ConvolutionParameters(_Group):
    """Convolutions, forward and gradients.

    Attributes:
        vector_efficiency: Implicit-GEMM convolution over the vector peak, edges of tiles apart.
        matrix_efficiency: Implicit-GEMM convolution over GEMM of the same shape, matrix cores.
        winograd_efficiency: Multiply rate of fused Winograd F(2x2, 3x3) over the vector peak.
        transformed_efficiency: Product between the transforms of unfused Winograd F(4x4, 3x3) over
            GEMM of the same shape.
        direct_efficiency: Vector peak reached by direct (depthwise, grouped) convolution kernels.
        backward_efficiency: Convolution gradients over the forward convolution.
    """

    vector_efficiency: float
    matrix_efficiency: float
    winograd_efficiency: float
    transformed_efficiency: float
    direct_efficiency: float
    backward_efficiency: float


@frozen
class AttentionParameters(_Group):
    """Fused attention.

    Attributes:
        efficiency: Fused attention arithmetic over GEMM's rate.
        backward_efficiency: Its backward pass over the forward pass.
    """

    efficiency: float
    backward_efficiency: float


@frozen
class RecurrentKernelParameters(_Group):
    """Recurrent layers.

    Attributes:
        step_s: Serial latency of one recurrent step; 2 to 30 us.
    """

    step_s: float


@frozen
class PowerParameters(_Group):
    """Energy of arithmetic and movement, and what a board's power limit does.

    Attributes:
        vector_energy_overhead: Energy of a vector instruction over its arithmetic (fetch,
            registers, caches) at 12 nm, >= 1.
        vector_overhead_node_exponent: Power of the node by which that overhead shrinks faster than
            the arithmetic; 0 to 2.
        matrix_energy_overhead: The same for matrix cores, >= 1.
        on_chip_energy_per_byte_j: Energy of moving one byte between main memory and the lanes (L2,
            network, load and store instructions) on the largest chips, whatever their node; 20 to
            400 pJ.
        window_s: Length of a kernel that runs alone from which on the power limit holds; 0.1 to 100
            ms.
        burst_ratio: Draw that such a short kernel may reach over the power limit; 1 to 3.
        isolated_ratio: Draw over the power limit of longer kernels that run alone, again and again:
            a hot chip leaks and leaves them less; a measurement's, not a model's; 0.6 to 1.2.
        active_static_w: Power of a board with clocks up and no work, part that does not scale; W.
        active_static_fraction: The same, part proportional to the power limit.
        largest_static_fraction: Most of the power limit that both parts may take: what does not
            scale is of whole boards.
    """

    vector_energy_overhead: float
    vector_overhead_node_exponent: float
    matrix_energy_overhead: float
    on_chip_energy_per_byte_j: float
    window_s: float
    burst_ratio: float
    isolated_ratio: float
    active_static_w: float
    active_static_fraction: float
    largest_static_fraction: float


@frozen
class HostParameters(_Group):
    """Copies between host and device.

    Attributes:
        link_efficiency: Copy rate over the host link's rate.
        copy_latency_s: Latency of one host-device copy; s.
    """

    link_efficiency: float
    copy_latency_s: float


@frozen
class DispatchParameters(_Group):
    """Host time to issue operators in an eager framework, and gaps of replayed graphs; s.

    Attributes:
        contraction_s: To issue one matrix operator.
        batched_s: The same for batched GEMMs.
        convolution_s: The same for convolutions.
        plan_lookup_s: Mean wait of a convolution between its call and its kernels, beyond that, in
            a process that has run thousands of other shapes. Calls wait anything between none and
            twice as long, whatever their shape. A model's own few shapes do not wait.
        norm_s: To issue a normalisation or reduction.
        softmax_s: The same for softmax.
        scalar_s: The same for elementwise operators of one tensor, whose number is wrapped as a
            tensor first, and simple activations.
        activation_s: The same for GELU and other activations of more arithmetic.
        elementwise_s: The same for all other operators.
        trailing_s: Part of that host time that follows the kernel's launch (the way back to the
            caller, the closing event): in calls timed one by one it hides kernels that are shorter;
            0 to 50 us.
        graph_gap_s: Gap between two kernels of a replayed graph beyond the kernels' own latency;
            >= 0.
    """

    contraction_s: float
    batched_s: float
    convolution_s: float
    plan_lookup_s: float
    norm_s: float
    softmax_s: float
    scalar_s: float
    activation_s: float
    elementwise_s: float
    trailing_s: float
    graph_gap_s: float


@frozen
class SpreadParameters(_Group):
    """Standard deviations of ln(measured / predicted) of rows that no family describes.

    Attributes:
        gemm: GEMMs.
        convolution: Convolutions.
        attention: Attention.
        memory: Memory-bound operators.
        recurrent: Recurrent layers.
    """

    gemm: float
    convolution: float
    attention: float
    memory: float
    recurrent: float


@frozen(eq=False)
class LoopConditions:
    """What a loop around single kernels does to them; columns over all rows of the graph, shape
    (n,) each.

    Attributes:
        cycle_bytes: Bytes touched from one use of a row's operands to the next, which the cache may
            hold; infinite where nothing comes again.
        batch_rows: Rows that the whole batch routes to experts of all devices; of grouped GEMMs
            alone, 0 elsewhere.
        routing_exponent: Power law by which experts differ in popularity; 0 (even) where None.
    """

    cycle_bytes: FloatArray
    batch_rows: FloatArray
    routing_exponent: FloatArray | None = None


@frozen
class GpuParameters:
    """What a GPU data sheet does not say.

    Attributes:
        gemm: Matrix products.
        memory: Kernels bound by memory.
        convolution: Convolutions.
        attention: Fused attention.
        recurrent: Recurrent layers.
        power: Energy and power limit.
        host: Copies between host and device.
        dispatch: Time to issue operators.
        other_dispatch: The same under other vendors' software.
        spread: Spreads of rows that no family describes.
        surfaces: Corrections of one device's kernels over their shape, by name: its own, or those
            of its relatives.
        families: Residuals of measured rows by operator family, where they are known.
        relatives: Boards whose surfaces stand for the device's own.
        maker: Stack whose own kernels run; the makers' of other tables where None.
        tier: Where the numbers come from.
        is_isolated: Whether kernels are measured one by one, with pauses: short ones then keep the
            boost clock.
        is_early_library: Whether the board's first libraries run it (to 2018), with tiles of their
            own for plain GEMMs.
        conditions: How a graph's kernels were measured, where they were measured in a loop; None in
            sustained work.
    """

    gemm: GemmParameters
    memory: MemoryParameters
    convolution: ConvolutionParameters
    attention: AttentionParameters
    recurrent: RecurrentKernelParameters
    power: PowerParameters
    host: HostParameters
    dispatch: DispatchParameters
    other_dispatch: DispatchParameters
    spread: SpreadParameters
    surfaces: Mapping[str, Surface] = field(default_factory=dict, hash=False)
    families: Mapping[str, FamilyResidual] = field(default_factory=dict, hash=False)
    relatives: tuple[str, ...] = ()
    maker: KernelMaker | None = None
    tier: ParameterTier = ParameterTier.SPEC
    is_isolated: bool = False
    is_early_library: bool = False
    conditions: LoopConditions | None = field(default=None, hash=False, compare=False)

    def numbers(self) -> dict[str, float]:
        """All numbers by name, group by group."""
        return {name: self.value(name) for name in _NAMES}

    def value(self, name: str) -> float:
        """One number.

        Args:
            name: Group and name: "gemm.prologue_k".
        """
        group, _, field_name = name.partition(".")
        number: float = getattr(getattr(self, group), field_name)
        return number

    def with_values(self, values: Mapping[str, float]) -> GpuParameters:
        """The same parameters with other values of some.

        Args:
            values: By name.

        Raises:
            InvalidValueError: If there is no such parameter, or a value is out of range.
        """
        for name in values:
            if name not in _NAMES:
                raise InvalidValueError("gpu parameter", name, f"one of {', '.join(_NAMES)}")
        return replace(self, **_groups({**self.numbers(), **values}))

    def of_vendor(self, vendor: str) -> GpuParameters:
        """The same parameters with those of a vendor's kernels and software in place of NVIDIA's.

        Args:
            vendor: As profiles name it.
        """
        if vendor_generation(vendor).is_reference:
            return self
        gemm = replace(
            self.gemm,
            matrix_efficiency=self.gemm.other_matrix_efficiency,
            batched_ratio=self.gemm.other_batched_ratio,
        )
        memory = replace(
            self.memory,
            softmax_efficiency=self.memory.other_softmax_efficiency,
            norm_efficiency=self.memory.other_norm_efficiency,
            special_efficiency=self.memory.other_special_efficiency,
        )
        return replace(self, gemm=gemm, memory=memory, dispatch=self.other_dispatch)

    def with_overlay(self, overlay: FittedParameters) -> GpuParameters:
        """The same parameters with a device's overlay.

        Args:
            overlay: Its values replace these; its residuals and surfaces come on top of them.

        Raises:
            ProfileError: If the overlay names a parameter that there is not.
        """
        values = {**overlay.pinned, **overlay.parameters}
        if unknown := sorted(set(values) - set(_NAMES)):
            expected = f"expected one of {', '.join(_NAMES)}"
            problem = f"parameters.{unknown[0]}: unknown; {expected}"
            raise ProfileError(f"fitted/{overlay.device}.yaml", [problem])
        device_families = {
            name: replace(entry, is_own=True) for name, entry in overlay.families.items()
        }
        surfaces = overlay.surfaces
        if self.surfaces:
            surfaces = {**self.surfaces, **surfaces}
        return replace(
            self.with_values(values),
            families={**self.families, **device_families},
            surfaces=surfaces,
            tier=overlay.tier,
        )

    @classmethod
    def class_wide(cls) -> GpuParameters:
        """The parameters that serve every GPU, from ``calibration/class/gpu.yaml``."""
        return _class_wide()


#: Groups of numbers.
GROUPS: Mapping[str, type[_Group]] = {
    "gemm": GemmParameters,
    "memory": MemoryParameters,
    "convolution": ConvolutionParameters,
    "attention": AttentionParameters,
    "recurrent": RecurrentKernelParameters,
    "power": PowerParameters,
    "host": HostParameters,
    "dispatch": DispatchParameters,
    "other_dispatch": DispatchParameters,
    "spread": SpreadParameters,
}
_NAMES = tuple(
    f"{group}.{entry.name}"
    for group, group_type in GROUPS.items()
    for entry in fields(group_type)  # type: ignore[arg-type]
)


def _groups(values: Mapping[str, float]) -> Document:
    """All groups with values by name."""
    return {
        group: group_type(*(values[name] for name in _NAMES if name.startswith(f"{group}.")))
        for group, group_type in GROUPS.items()
    }


@cache
def _class_wide() -> GpuParameters:
    return read_parameters(data_root() / "calibration" / "class" / "gpu.yaml")


def read_parameters(path: Path) -> GpuParameters:
    """A whole set from a file with ``parameters`` and, where known, ``families``.

    Raises:
        ProfileError: If the file is not well formed, or a parameter is missing, unknown, or has no
            source.
    """
    data = read_mapping(path)
    entries = data["parameters"]
    problems = entry_problems(entries)
    if wrong := sorted(set(_NAMES) ^ set(entries)):
        problems.append(f"parameters: missing or unknown: {', '.join(wrong)}")
    if problems:
        raise ProfileError(str(path), problems)
    groups = _groups({name: float(entry["value"]) for name, entry in entries.items()})
    return GpuParameters(**groups, families=read_families(path, data.get("families")))
