"""Fitted corrections of the GPU's kernels: which surface a row has, and its time with it.

A library picks its kernel by shape, and the model of tiles and waves does not know every choice.
What measurements of a device say beyond the model is a `Surface` per operator and number format.
They are the device's own (tiers `measured` and `fitted`) or those of its relatives (tier `spec`,
see `accelsim.cost.gpu.relatives`). A corrected time never undercuts the
arithmetic at the data sheet's peak, nor, where a kernel streams, its bytes at the data sheet's
bandwidth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from accelsim.cost.gpu.filled import FILLED, FilledRows, least_filled_s, sequence_reads
from accelsim.cost.gpu.repeated import with_cached_operands
from accelsim.cost.shape_surface import Surface
from accelsim.cost.table import RowCosts, Rows
from accelsim.dtype import DTYPE_BYTES, Dtype
from accelsim.workloads.graph import FloatArray, IntArray
from accelsim.workloads.operator import (
    ATTENTION_KINDS,
    CONTRACTION_KINDS,
    CONV_KINDS,
    OperatorKind,
)

if TYPE_CHECKING:
    from accelsim.cost.gpu.gpu_parameters import GpuParameters, LoopConditions
    from accelsim.cost.gpu.machine import GpuMachine

_K = OperatorKind
#: Sizes a surface may span, by operator; it spans the first few of them.
AXES: Mapping[str, tuple[str, ...]] = {
    "gemm": ("m", "n", "k"),
    "grouped_gemm": ("rows", "groups", "batch_share", "n", "k", "skew"),
    "prefill": ("blocks", "tokens", "heads_per_kv_head", "head_dim", "batch"),
    "batched_gemm": ("batch", "m", "n", "k"),
    "conv": ("positions", "channels_in", "channels_out", "side"),
    "rows": ("rows", "columns"),
    "stream": ("bytes",),
    "decode": ("caches", "keys", "heads_per_kv_head", "head_dim", "batch"),
}
#: Queries up to which attention to a longer cache is decoding: they fill one matrix instruction
#: together.
_DECODE_QUERIES = 16.0
#: Arithmetic per element up to which an elementwise operator only streams; a power is more.
_LIGHT_FLOP = 10.0
#: Most taps of a window and inputs of an operator that have a name of their own, and the stride
#: that names convolutions with groups or dilation.
_MOST_TAPS, _MOST_INPUTS, _SPARSE = 400, 7, 15
#: Operators whose axes are dimensions as they are.
_PLAIN = frozenset({"gemm", "batched_gemm", "rows"})
_ATTENTION_FORMS = ("", " window", " latent", " backward", " full")
Formula = Callable[[Rows, "GpuMachine"], RowCosts]


def coordinates(
    rows: Rows, operator: str, conditions: LoopConditions | None = None, axes: int | None = None
) -> list[FloatArray]:
    """log2 sizes of rows, in the order of `AXES`.

    Expert kernels choose their tiles, and some lay out their memory, by the rows of the whole
    batch: a multiple of the device's own under expert parallelism.

    Args:
        rows: Rows of the kind that `operator` belongs to.
        operator: A key of `AXES`.
        conditions: Of the measurement; a device has the whole batch, evenly routed, where None.
        axes: How many of the first sizes are asked for; all where None.
    """
    if operator in _PLAIN:
        sizes = [rows[name] for name in AXES[operator]]
    elif operator == "conv":
        pixels = rows["out_h"] * rows["out_w"]
        sizes = [rows["batch"] * pixels, rows["channels_in"], rows["channels_out"], np.sqrt(pixels)]
    elif operator == "stream":
        sizes = [rows.bytes]
    elif operator == "grouped_gemm":
        sizes = _expert_sizes(rows, conditions)
    else:
        kv_heads = np.maximum(rows["kv_heads"], 1.0)
        shared = [rows["heads"] / kv_heads, rows["head_dim"], rows["batch"]]
        if operator == "prefill":
            sizes = [rows["batch"] * rows["heads"], rows["q_len"], *shared]
        else:
            sizes = [rows["batch"] * kv_heads, rows["kv_len"], *shared]
    return [np.log2(np.maximum(size, 1e-3)) for size in sizes[:axes]]


def _expert_sizes(rows: Rows, conditions: LoopConditions | None) -> list[FloatArray]:
    device_rows = np.maximum(rows["m"], 1.0)
    batch_rows = (
        device_rows
        if conditions is None
        else np.maximum(conditions.batch_rows[rows.index], device_rows)
    )
    exponent = None if conditions is None else conditions.routing_exponent
    skew = np.ones(len(rows)) if exponent is None else 2.0 ** exponent[rows.index]
    return [device_rows, rows["groups"], batch_rows / device_rows, rows["n"], rows["k"], skew]


def surface_rows(rows: Rows) -> dict[str, tuple[str, IntArray]]:
    """Which of the rows have which surface: rows and operator (a key of `AXES`) by surface name.

    The name holds the operator, the format of the arithmetic and how weights or cache are stored:
    "gemm fp8 w8", "gemm fp8 w8 scaled" (a scale per block of weights), "decode bf16 cache8".
    """
    base = rows.base if isinstance(rows, FilledRows) else rows
    columns, name = _NAMING.get(base.kind, _row_wise_names)(base)
    key_columns = [(base.column("dtype"), len(DTYPE_BYTES)), *columns]
    shape = [size for _, size in key_columns]
    keys = [np.asarray(column).astype(np.int64) for column, _ in key_columns]
    codes = np.ravel_multi_index(keys, shape)
    if isinstance(rows, FilledRows):  # a larger batch has the surface of its own
        codes = codes[rows.base_index]
    surface_rows = {}
    for code in np.flatnonzero(np.bincount(codes)).tolist():  # counted, not sorted: few codes
        dtype, *values = map(int, np.unravel_index(code, shape))
        label = name(Dtype(dtype).label, *values)
        surface_rows[label] = label.split()[0], np.flatnonzero(codes == code)
    return surface_rows


#: Columns of whole numbers from 0 that tell rows with different surfaces apart, each with the
#: number of its values, and the name of a surface by format and such numbers.
Naming = tuple[Sequence[tuple[NDArray[Any], int]], Callable[..., str]]


def _gemm_names(rows: Rows) -> Naming:
    is_grouped = rows.kind == _K.GROUPED_GEMM
    kind, count = (rows.kind.label, rows["groups" if is_grouped else "batch"])
    elements = np.maximum(count * rows["n"] * rows["k"], 1.0)
    per_weight = 8.0 * rows.column("weight_bytes") / elements
    stored = 8.0 * rows.element_bytes
    bits = np.where(per_weight > 0, np.floor(per_weight + 1e-6), stored)
    is_scaled = per_weight > bits + 1e-6

    def name(dtype: str, bits: int, is_scaled: int) -> str:
        return f"{kind} {dtype} w{bits}" + " scaled" * is_scaled

    return [(np.minimum(bits, 127), 128), (is_scaled, 2)], name


def _row_wise_names(rows: Rows) -> Naming:
    return [], lambda dtype: f"rows {dtype} {rows.kind.label}"


def _convolution_names(rows: Rows) -> Naming:
    """By window and stride."""
    taps = rows["kernel_h"] * rows["kernel_w"] * rows["kernel_d"]
    is_sparse = (rows["groups"] > 1) | (rows["dilation"] > 1)
    stride = np.where(is_sparse, _SPARSE, np.minimum(rows["stride"], _SPARSE - 1))
    gradient = "" if rows.kind == _K.CONV else rows.kind.label.removeprefix("conv_") + " "

    def name(dtype: str, window: int, stride: int) -> str:
        return f"conv {dtype} {gradient}w{window} s{stride}"

    return [(np.minimum(taps, _MOST_TAPS), _MOST_TAPS + 1), (stride, _SPARSE + 1)], name


def _stream_names(rows: Rows) -> Naming:
    """By inputs."""
    inputs = np.minimum(rows["inputs"], _MOST_INPUTS)
    is_heavy = rows["flop_per_element"] > _LIGHT_FLOP

    def name(dtype: str, inputs: int, is_heavy: int) -> str:
        return f"stream {dtype} i{inputs}" + " heavy" * is_heavy

    return [(inputs, _MOST_INPUTS + 1), (is_heavy, 2)], name


def _attention_names(rows: Rows) -> Naming:
    dtype, latent = rows.column("dtype"), rows["latent"]
    query, stored = sequence_reads(rows)
    bits = np.round(8.0 * (rows.column("read_bytes") - query) / stored)
    if rows.kind == _K.ATTENTION:  # what all sequences share, a bias, is no part of the cache
        bits = np.minimum(bits, 8.0 * DTYPE_BYTES[dtype])
    is_decode = (rows["q_len"] <= _DECODE_QUERIES) & (rows["kv_len"] > rows["q_len"])
    # Latent attention has narrower values than keys where it is expanded, and one row for both
    # where it is absorbed.
    is_latent = (latent > 0) | (rows["value_dim"] != rows["head_dim"])
    form = np.where(is_latent, 2, rows["window"] > 0)
    # Engines' kernels for prompts fill the cache besides; those of encoders do not.
    form = np.where((form == 0) & ~is_decode & (rows["causal"] == 0), 4, form)
    form = np.where(rows.kind == _K.ATTENTION_BACKWARD, 3, form)

    def name(dtype: str, bits: int, form: int, is_decode: int) -> str:
        operator = ("prefill", "decode")[is_decode]
        return f"{operator} {dtype} cache{bits}" + _ATTENTION_FORMS[form]

    columns = [(np.clip(bits, 0, 127), 128), (form, len(_ATTENTION_FORMS)), (is_decode, 2)]
    return columns, name


_NAMING: Mapping[OperatorKind, Callable[[Rows], Naming]] = {
    **dict.fromkeys(ATTENTION_KINDS, _attention_names),
    **dict.fromkeys((_K.GEMM, _K.GROUPED_GEMM), _gemm_names),
    **dict.fromkeys(CONV_KINDS, _convolution_names),
    _K.ELEMENTWISE: _stream_names,
    _K.BATCHED_GEMM: lambda _: ([], "batched_gemm {}".format),
}


def with_surfaces(formula: Formula) -> Formula:
    """A formula whose times follow the surfaces of the parameters, where they have any.

    Estimate: corrections are fitted to measured kernels; the floor is the roofline of Williams et
    al., CACM 52(4), 2009.
    """

    @wraps(formula)
    def with_measured_shape(rows: Rows, machine: GpuMachine) -> RowCosts:
        costs, parameters = formula(rows, machine), machine.parameters
        conditions = parameters.conditions
        if conditions is not None:
            cycle_bytes = conditions.cycle_bytes[rows.index]
            costs = with_cached_operands(costs, cycle_bytes, machine)
        if not parameters.surfaces:
            return costs
        shaped = _on_surfaces(costs, rows, machine)
        if conditions is not None or rows.kind not in FILLED:
            return shaped

        def filled_s(filled: FilledRows) -> FloatArray:
            costs, factor = formula(filled, machine), np.ones(len(filled))
            for surface, index, sizes in _placed(filled, parameters):
                factor[index] = np.exp(surface(sizes))
            return _scaled(costs, factor, filled, machine, is_sustained=True).time_s

        return _within(shaped, least_filled_s(rows, shaped.time_s, filled_s))

    return with_measured_shape


def _within(costs: RowCosts, time_s: FloatArray) -> RowCosts:
    """Costs that take no longer than some times."""
    return replace(
        costs,
        time_s=time_s,
        compute_s=np.minimum(costs.compute_s, time_s),
        memory_s=np.minimum(costs.memory_s, time_s),
    )


def _on_surfaces(costs: RowCosts, rows: Rows, machine: GpuMachine) -> RowCosts:
    """Costs of rows, those with a surface as it says."""
    parameters = machine.parameters
    factor = np.ones(len(rows))
    formula_sigma = np.asarray(costs.log_sigma, dtype=np.float64)
    sigma = np.broadcast_to(formula_sigma, (len(rows),)).copy()
    shared, outside = np.full(len(rows), np.nan), np.zeros(len(rows))
    for surface, index, sizes in _placed(rows, parameters):
        factor[index] = np.exp(surface(sizes))
        sigma[index], shared[index], outside[index] = surface.spread(sizes)
    return replace(
        _scaled(costs, factor, rows, machine, is_sustained=parameters.conditions is None),
        log_sigma=sigma,
        shared_log_sigma=shared,
        outside_decades=outside,
    )


def _placed(
    rows: Rows, parameters: GpuParameters
) -> Iterator[tuple[Surface, IntArray, list[FloatArray]]]:
    """Surfaces with the rows that each counts for, and where these lie on it."""
    for name, (operator, index) in surface_rows(rows).items():
        surfaces = _ranked_surfaces(parameters, name)
        if not surfaces:
            continue
        axes = max(len(surface.knots) for surface in surfaces)
        columns = coordinates(rows, operator, parameters.conditions, axes)
        sizes = [column[index] for column in columns]
        if len(surfaces) == 1:
            yield surfaces[0], index, sizes
            continue
        nearest = np.argmin([surface.outside_decades(sizes) for surface in surfaces], axis=0)
        for number, surface in enumerate(surfaces):
            rows_nearest = np.flatnonzero(nearest == number)
            yield surface, index[rows_nearest], [column[rows_nearest] for column in sizes]


def maker_name(name: str, maker: str) -> str:
    """Name of a stack's own surface of a kernel: "decode bf16 cache8 @vllm".

    Args:
        name: Of the surface that counts for other stacks.
        maker: Name of the stack.
    """
    return f"{name} @{maker}"


def _ranked_surfaces(parameters: GpuParameters, name: str) -> list[Surface]:
    """The surfaces of a name, of which that whose sizes are nearest counts, the first where equal.

    A stack's own kernels are those measured under it, where they were. FP16 and BF16 kernels are
    the same but for the format, and one stands for the other where it alone was measured; so do
    products of two operands of 8 bits, whole or not, and weights of 4 bits with scales and those
    without: of products where they alone were measured, of experts, which were measured in few
    sizes with scales, by size.
    """
    same = name.replace(" fp16 ", " bf16 ")
    names = [name if _surface(parameters, name) else same]
    if "gemm bf16 w4 scaled" in same:
        names.append(same.removesuffix(" scaled"))
    elif same == "gemm int8 w8":
        names.append("gemm fp8 w8")
    surfaces = [
        surface for candidate in names if (surface := _surface(parameters, candidate)) is not None
    ]
    return surfaces if same.startswith(OperatorKind.GROUPED_GEMM.label) else surfaces[:1]


def _surface(parameters: GpuParameters, name: str) -> Surface | None:
    """A surface by its name: the stack's own where there is one."""
    surfaces, maker = parameters.surfaces, parameters.maker
    maker_surface = None if maker is None else surfaces.get(maker_name(name, maker.name))
    return maker_surface or surfaces.get(name)


def _scaled(
    costs: RowCosts, factor: FloatArray, rows: Rows, machine: GpuMachine, *, is_sustained: bool
) -> RowCosts:
    """Times multiplied by `factor`, at least the arithmetic at the peak and, in sustained work, the
    weights of the experts hit at the bandwidth; their parts stay below the whole.

    The bounds are the roofline's (Williams et al., CACM 52(4), 2009).
    """
    if rows.kind in CONTRACTION_KINDS:
        least_s = costs.flop / machine.contraction_rate(rows)
        if rows.kind == _K.GROUPED_GEMM and is_sustained:
            read_s = rows.column("weight_bytes") / machine.bandwidth_bytes_per_s
            least_s = np.maximum(least_s, read_s)
    else:
        # What the cache serves in a measuring loop is faster than memory.
        least_s = np.minimum(costs.bytes / machine.bandwidth_bytes_per_s, costs.memory_s)
    time_s = np.maximum(costs.time_s * factor, least_s)
    slowed = replace(costs, compute_s=costs.compute_s * factor, memory_s=costs.memory_s * factor)
    return _within(slowed, time_s)
