"""Operator graphs of measured kernels: GEMM, attention and MoE layers of
`tools.scoreboard.aiconfigurator_rows`.

A GEMM or attention row is one operator, multi-head latent attention (MLA) included, but for FP8
GEMMs that search for their input's scale. A MoE row is the expert layer on one device: the rows of
tokens routed to its experts go through a grouped GEMM (gate and up together), the activation, and a
second grouped GEMM. Under tensor parallelism a device has a slice of every expert's width; under
expert parallelism whole experts and their share of the tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accelsim.cost.gpu.gpu_parameters import GpuParameters, LoopConditions
from accelsim.cost.table import CostTable
from accelsim.dtype import DTYPE_BYTES, Dtype
from accelsim.errors import InvalidValueError
from accelsim.frozen import frozen
from accelsim.hardware.profile import GpuProfile
from accelsim.scoreboard.columns import graph_of_columns
from accelsim.workloads.graph import BoolArray, FloatArray, OperatorGraph, concatenate
from accelsim.workloads.operator import OperatorKind
from tools.scoreboard.aiconfigurator_rows import FORMATS, KernelRows, format_names
from tools.scoreboard.expert_load import busiest_device_load, routing_exponent
from tools.scoreboard.operator_columns import attention_graph, gemm_graph, vector_graph

#: Widths of a query or key head, and of a value head, of DeepSeek-V3's latent attention: expanded
#: (128 without positions, 64 with rotary ones; 128) and absorbed (the 512 of the latent and those
#: 64; 512).
_EXPANDED = (192, 128)
_ABSORBED = (576, 512)
#: Backends and formats whose GEMM tables include the search for the input's scale; served
#: checkpoints come with it.
_SCALED_AT_RUN_TIME = frozenset({("trtllm", "fp8")})
#: Those that include the kernel that quantises the input: with a scale that is known (vLLM's) or
#: one per token that it finds itself (SGLang's; collector/{vllm,sglang}/collect_gemm.py).
_QUANTISED_APART = frozenset({("vllm", "fp8"), ("sglang", "fp8")})
#: Formats whose GEMMs TensorRT's profiler timed layer by layer in one pass
#: (collector/trtllm/collect_gemm_trt.py of aiconfigurator): each lies between two events, and
#: starts and drains alone.
_BETWEEN_EVENTS = frozenset({"sq", "int8_wo", "int4_wo"})
_EVENTS = 2
#: TensorRT-LLM's blockwise FP8 on the workstation's Blackwell quantises its input with a Triton
#: kernel of 64 blocks of one warp, each of which goes through its share of the rows one after the
#: other (tensorrt_llm/quantization/utils/fp8_utils.py, per_token_quant_and_transform). A row takes
#: at least the load it waits for. Estimate: 877 clocks on that architecture, as Jarmusch et al. are
#: said to measure ("Dissecting the NVIDIA Blackwell Architecture with Microbenchmarks",
#: arXiv:2507.10789, 2025); the figure was not checked against the paper.
_QUANTISED_BY_ROWS = ("rtx_pro_6000_server", "trtllm", "fp8_block")
_ROW_BLOCKS, _LOAD_CLOCKS = 64, 877.0
#: Most copies of the weights that a GEMM's loop goes through, and routings that a loop of an expert
#: layer does.
_MOST_COPIES, _ROUTINGS = 5, 5
#: Backends whose GEMM loop goes through so many copies, whatever the cache holds.
_FIXED_COPIES = {"sglang": 6}
#: (hidden, expert) sizes of the models without gates (squared ReLU), which TensorRT-LLM's tables
#: mark "nongated".
_UNGATED_SIZES = ((2688, 1856), (1024, 2688), (4096, 2688), (2048, 5120), (8192, 5120))
#: Kernel families whose expert layers keep the layout of the whole batch.
_WHOLE_BATCH_KERNELS = ("triton", "marlin", "fused_moe")


@frozen(eq=False)
class KernelGraph:
    """Rows of one number format as a graph.

    Attributes:
        rows: The measured rows, n of them.
        format_name: Name of the format, with the cache's where it differs.
        graph: Operators; `stages` of n rows each, one after the other.
        stages: Operators a measured row stands for.
    """

    rows: KernelRows
    format_name: str
    graph: OperatorGraph
    stages: int

    def measured(self, parameters: GpuParameters, device: GpuProfile) -> GpuParameters:
        """Parameters under the conditions of the measurement: kernels ran in a loop, with operands
        the cache may hold.

        Args:
            parameters: Of sustained work.
            device: Board.
        """
        cache_bytes = 0.0 if device.l2_bytes is None else float(device.l2_bytes.value)
        return replace(parameters, conditions=_CONDITIONS[self.rows.kind](self, cache_bytes))

    def beside_s(self, parameters: GpuParameters, device: GpuProfile) -> FloatArray:
        """Time of each measured row that no operator of it takes, shape (n,).

        Events wait until what is before them has drained; some inputs are quantised row after row.

        Args:
            parameters: Whose latency of a kernel an event has.
            device: Board.
        """
        beside = np.zeros(len(self.rows))
        if self.rows.kind != "gemm":
            return beside
        if self.format_name in _BETWEEN_EVENTS:
            beside += _EVENTS * parameters.memory.kernel_latency_s
        if (self.rows.system, self.rows.backend, self.format_name) == _QUANTISED_BY_ROWS:
            beside += (
                np.ceil(self.rows.sizes["m"] / _ROW_BLOCKS)
                * _LOAD_CLOCKS
                / float(device.boost_clock_hz.value)
            )
        return beside

    def sum_stages(self, values: FloatArray) -> FloatArray:
        """Add the operators of each measured row, shape (n,)."""
        total: FloatArray = values.reshape(self.stages, len(self.rows)).sum(axis=0)
        return total

    def log_sigma(self, costs: CostTable) -> FloatArray:
        """Standard deviation of ln(true / predicted) of each measured row: errors of its operators
        go together.
        """
        return self.sum_stages(costs.time_s * costs.log_sigma) / self.sum_stages(costs.time_s)


def kernel_graphs(rows: KernelRows) -> list[KernelGraph]:
    """One graph per number format of a table.

    Args:
        rows: Rows of one kind.

    Raises:
        InvalidValueError: If a format is not known.
    """
    words = format_names(rows)
    graphs = []
    for label in np.unique(words).tolist():
        part = rows.take(words == label)
        graph, stages = _BUILD[rows.kind](part)
        graphs.append(KernelGraph(part, label, graph, stages))
    return graphs


def _formats(rows: KernelRows) -> list[tuple[Dtype, Dtype]]:
    """(compute, storage) of each format column of rows that share them."""
    formats = []
    for name, column in rows.formats.items():
        word = str(column[0])
        if word not in FORMATS:
            raise InvalidValueError(name, word, "one of " + ", ".join(FORMATS))
        formats.append((FORMATS[word].compute, FORMATS[word].weight))
    return formats


def _scale_bytes(rows: KernelRows) -> float:
    """Bytes of block scales per weight."""
    return FORMATS[str(next(iter(rows.formats.values()))[0])].scale_bytes


def _gemm(rows: KernelRows) -> tuple[OperatorGraph, int]:
    m, n, k = (rows.sizes[name] for name in ("m", "n", "k"))
    ((compute, weight),) = _formats(rows)
    plain = np.zeros(len(rows), dtype=bool)
    graph = gemm_graph(
        np.ones(len(rows)), m, n, k, compute, batched=plain, weight=weight, output=Dtype.BF16
    )
    product = replace(graph, weight_bytes=graph.weight_bytes + _scale_bytes(rows) * n * k)
    collected = rows.backend, str(rows.formats["gemm_dtype"][0])
    if collected in _QUANTISED_APART:
        return concatenate([product, _scaling(m, k)[-1]]), 2
    if collected not in _SCALED_AT_RUN_TIME:
        return product, 1
    return concatenate([product, *_scaling(m, k)]), 5


def _scaling(m: FloatArray, k: FloatArray) -> list[OperatorGraph]:
    """Quantisation of an m x k input with a scale found at run time: magnitudes, their maximum, the
    scale, the division.
    """
    wide = Dtype.BF16.bytes
    narrow = Dtype.FP8.bytes

    def row_wise(
        kind: OperatorKind, dims: tuple[Any, ...], read: FloatArray, write: FloatArray
    ) -> OperatorGraph:
        return graph_of_columns(kind, dims, Dtype.BF16, flop=m * k, read=read, write=write)

    ones = np.ones(len(m))
    tensor = m * k
    return [
        row_wise(OperatorKind.ELEMENTWISE, (tensor, 1, 1), wide * tensor, wide * tensor),
        row_wise(OperatorKind.REDUCTION, (m, k), wide * tensor, wide * m),
        row_wise(OperatorKind.ELEMENTWISE, (ones, 1, 1), wide * ones, wide * ones),
        row_wise(OperatorKind.ELEMENTWISE, (tensor, 1, 1), wide * tensor, narrow * tensor),
    ]


def _attention(rows: KernelRows) -> tuple[OperatorGraph, int]:
    sizes = rows.sizes
    (compute, _), (_, cache) = _formats(rows)
    graph = attention_graph(
        sizes["batch_size"],
        (sizes["num_heads"], sizes["num_key_value_heads"]),
        (sizes["isl"], sizes["isl"] + sizes["step"]),
        sizes["head_dim"],
        sizes["window_size"],
        compute,
        cache,
    )
    return graph, 1


def _latent_attention(rows: KernelRows) -> tuple[OperatorGraph, int]:
    """Multi-head latent attention: expanded heads in a prefill, one latent row per token while
    decoding.
    """
    sizes = rows.sizes
    (compute, _), (_, cache) = _formats(rows)
    expanded = rows.kind == "context_mla"
    head_dim, value_dim = _EXPANDED if expanded else _ABSORBED
    batch = sizes["batch_size"]
    heads = sizes["num_heads"]
    query = sizes["isl"]
    keys = query + sizes["step"]
    ones = np.ones(len(rows))
    zero = np.zeros(len(rows))
    kv_heads, latent = (heads, zero) if expanded else (ones, zero + head_dim)
    # A prefill attends to the heads it has just expanded, in the cache's format.
    stored = DTYPE_BYTES[cache] * (heads * (head_dim + value_dim) if expanded else head_dim)
    queries = batch * heads * query
    graph = graph_of_columns(
        OperatorKind.ATTENTION,
        (batch, heads, kv_heads, query, keys, head_dim, value_dim, int(expanded), 0, latent),
        compute,
        flop=2.0 * queries * keys * (head_dim + value_dim),
        read=DTYPE_BYTES[compute] * queries * head_dim + batch * keys * stored,
        write=DTYPE_BYTES[compute] * queries * value_dim,
    )
    return graph, 1


def _moe(rows: KernelRows) -> tuple[OperatorGraph, int]:
    sizes = rows.sizes
    ((compute, weight),) = _formats(rows)
    exponent = _by_word(rows.words["distribution"], routing_exponent)
    routed, active = busiest_device_load(
        sizes["num_tokens"], sizes["topk"], sizes["num_experts"], sizes["moe_ep_size"], exponent
    )
    routed = np.ceil(routed)
    active = np.ceil(active)
    inter = np.maximum(sizes["inter_size"] / sizes["moe_tp_size"], 1.0)
    gates = np.where(_is_ungated(rows), 1.0, 2.0)
    hidden = sizes["hidden_size"]
    # Kernels that keep the batch's layout store (as zeros) and activate the rows of other devices'
    # experts, too.
    sources = rows.words["kernel_source"].astype(str)
    keeps = np.logical_or.reduce(
        [np.char.find(sources, family) >= 0 for family in _WHOLE_BATCH_KERNELS]
    )
    stored = np.where(keeps, np.maximum(sizes["num_tokens"] * sizes["topk"], routed), routed)
    scales = _scale_bytes(rows)
    up = _grouped(active, routed, gates * inter, hidden, compute, weight, scales, stored)
    activation = vector_graph(np.where(gates == 2, "mul", "relu"), stored, inter, Dtype.BF16)
    down = _grouped(active, routed, hidden, inter, compute, weight, scales, stored)
    combine = _combine(sizes["num_tokens"], stored, hidden)
    return concatenate([up, activation, down, combine]), 4


def _is_ungated(rows: KernelRows) -> BoolArray:
    """Layers whose experts have no gate projection: some backends say so in the kernel's name, all
    by the model's sizes.
    """
    hidden = rows.sizes["hidden_size"]
    inter = rows.sizes["inter_size"]
    by_size = np.logical_or.reduce([(hidden == a) & (inter == b) for a, b in _UNGATED_SIZES])
    ungated: BoolArray = by_size | (
        np.char.find(rows.words["kernel_source"].astype(str), "nongated") >= 0
    )
    return ungated


def _combine(tokens: FloatArray, stored: FloatArray, hidden: FloatArray) -> OperatorGraph:
    """The sum of each token's expert outputs."""
    width = Dtype.BF16.bytes
    return graph_of_columns(
        OperatorKind.ELEMENTWISE,
        (tokens * hidden, stored / tokens, 2.0),
        Dtype.BF16,
        flop=2.0 * stored * hidden,
        read=width * stored * hidden,
        write=width * tokens * hidden,
    )


def _by_word(words: NDArray[Any], value: Callable[[str], float]) -> FloatArray:
    """A number for each row's word, shape (n,)."""
    known, inverse = np.unique(words, return_inverse=True)
    return np.array([value(str(word)) for word in known], dtype=np.float64)[inverse.reshape(-1)]


def _grouped(
    groups: FloatArray,
    m: FloatArray,
    n: FloatArray,
    k: FloatArray,
    compute: Dtype,
    weight: Dtype,
    scales: float,
    stored: FloatArray,
) -> OperatorGraph:
    return graph_of_columns(
        OperatorKind.GROUPED_GEMM,
        (groups, m, n, k),
        compute,
        flop=2.0 * m * n * k,
        read=DTYPE_BYTES[compute] * m * k,
        weight=(DTYPE_BYTES[weight] + scales) * groups * n * k,
        write=Dtype.BF16.bytes * stored * n,
    )


_BUILD = {
    "gemm": _gemm,
    "context_attention": _attention,
    "generation_attention": _attention,
    "context_mla": _latent_attention,
    "generation_mla": _latent_attention,
    "moe": _moe,
}


def _gemm_loop(kernels: KernelGraph, cache_bytes: float) -> LoopConditions:
    """A GEMM's loop goes through as many copies of the weights as fill the cache, five at most, or
    a fixed number; a single pass is no loop.
    """
    if kernels.format_name in _BETWEEN_EVENTS:
        return _prefill_loop(kernels, cache_bytes)
    graph = kernels.graph
    weights = kernels.sum_stages(graph.weight_bytes)
    ((_, stored),) = _formats(kernels.rows)
    unscaled = np.maximum(
        DTYPE_BYTES[stored] * kernels.rows.sizes["n"] * kernels.rows.sizes["k"], 1.0
    )
    filling = np.clip(np.ceil(cache_bytes / unscaled), 1, _MOST_COPIES)
    copies = _FIXED_COPIES.get(kernels.rows.backend, filling)
    first = slice(0, len(weights))
    turn = copies * weights + graph.read_bytes[first] + graph.write_bytes[first]
    return LoopConditions(np.tile(turn, kernels.stages), np.zeros(len(graph)))


def _decode_loop(kernels: KernelGraph, _cache_bytes: float) -> LoopConditions:
    """A loop of decoding has the same queries, keys and values in each turn."""
    return LoopConditions(kernels.graph.bytes, np.zeros(len(kernels.graph)))


def _prefill_loop(kernels: KernelGraph, _cache_bytes: float) -> LoopConditions:
    """A prefill writes as much as the cache holds: nothing comes from it."""
    return LoopConditions(np.full(len(kernels.graph), np.inf), np.zeros(len(kernels.graph)))


def _moe_loop(kernels: KernelGraph, _cache_bytes: float) -> LoopConditions:
    """A turn of an expert layer touches the weights of the experts that any of its routings
    reaches, and the rows.
    """
    rows = kernels.rows
    graph = kernels.graph
    sizes = rows.sizes
    weights = kernels.sum_stages(graph.weight_bytes)
    own = np.maximum(sizes["num_experts"] / sizes["moe_ep_size"], 1.0)
    active = np.minimum(
        graph.dimension("groups", np.arange(len(rows)), OperatorKind.GROUPED_GEMM) / own, 1.0
    )
    exponent = _by_word(rows.words["distribution"], routing_exponent)
    routings = np.where(exponent > 0, _ROUTINGS, 1)
    reached = (1.0 - (1.0 - active) ** routings) / active
    turn = np.tile(weights * reached + kernels.sum_stages(graph.write_bytes), kernels.stages)
    is_grouped = graph.kind == OperatorKind.GROUPED_GEMM
    batch = np.tile(sizes["num_tokens"] * sizes["topk"], kernels.stages)
    # What lies between the grouped GEMMs reads what has just been written.
    turns = np.where(is_grouped, turn, graph.bytes)
    return LoopConditions(
        turns, np.where(is_grouped, batch, 0.0), np.tile(exponent, kernels.stages)
    )


#: Conditions of the loop around the kernels of a kind.
_CONDITIONS: dict[str, Callable[[KernelGraph, float], LoopConditions]] = {
    "gemm": _gemm_loop,
    "context_attention": _prefill_loop,
    "generation_attention": _decode_loop,
    "context_mla": _prefill_loop,
    "generation_mla": _decode_loop,
    "moe": _moe_loop,
}
