"""The physical quantities a kernel's time is made of.

A kernel's time is modelled as a sum of terms, each a quantity times a coefficient with a unit: a
start (s), work (s per FLOP), bytes read, written and packed (s per byte), bytes beyond the
second-level cache, beyond the last-level cache, of weights that are in no cache, of fresh pages, of
images that fill no whole vectors, three counts of the kernel's own loops, and
what is added where other operators have evicted the inner caches. With non-negative
coefficients the sum keeps the model's laws: more work, more bytes or a larger working set never
take less time.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from accelsim.cost.cpu.cache_counts import (
    LOOKUP_KINDS,
    lookup_lines,
    occupied_bytes,
    round_share,
    share_beyond,
)
from accelsim.cost.cpu.convolutions import block_bytes, conv_counts, visible_taps
from accelsim.cost.cpu.kind_rows import KindRows, rows_of_kind
from accelsim.cost.cpu.recurrent_memory import workspaces
from accelsim.cost.cpu.recurrent_steps import (
    SINGLE_ROWS,
    further_bytes,
    gate_rests,
    step_work,
)
from accelsim.cost.cpu.row_counts import (
    mean_copy_bytes,
    reduction_counts,
    row_counts,
    softmax_counts,
)
from accelsim.dtype import Dtype
from accelsim.frozen import frozen
from accelsim.workloads.graph import FloatArray, OperatorGraph, is_kind
from accelsim.workloads.operator import (
    ATTENTION_KINDS,
    CONV_KINDS,
    RECURRENT_KINDS,
    SORTED_WIDTH,
    OperatorKind,
    Phase,
)
from accelsim.workloads.variant import Trait

_K = OperatorKind
_LINE_BYTES = 64.0
#: Memory that a prefetcher does not leave.
_PAGE_BYTES = 4096.0
#: Columns in whose time the math library multiplies 4 to 15 of a batched product that lie together.
_FEW_COLUMNS = 30.0
#: Sets of a first-level cache that is indexed by the bits within a page (4096 / 64), and ways of a
#: second-level one (Intel and AMD server cores: 16).
_FIRST_LEVEL_SETS = 64
_SECOND_LEVEL_WAYS = 16
#: Taps whose outcomes the branch predictor learns half of.
_LEARNED_TAPS = 80_000.0
#: The same of a selection's elements, and the share of a row up to which it keeps the chosen ones
#: in a heap.
_LEARNED_CHOICES = 30_000.0
_HEAP_FRACTION = 64.0
#: Terms of a kernel's time, in column order, with the unit of the quantity.
TERMS = (
    "start",  # 1
    "flop",  # FLOP executed
    "read_bytes",
    "write_bytes",
    "weight_bytes",
    "cold_weight_bytes",
    "bytes_beyond_l2",
    "bytes_beyond_l3",
    "fresh_bytes",
    "loop_count",  # of its main loop: rows, outputs, lookups, steps, multiply-adds of whole tiles
    "inner_count",  # of the loop inside or beside it: taps, elements, stretches, lines
    "rest_count",  # of what is done beside the loops: blocks, elements left over, waits
    "evicted",  # 1 where others have overwritten the inner caches
    "partial_bytes",  # of images whose channels fill no whole vectors
    "evicted_bytes",  # weights and results that are not in the inner caches then
)
_NORMS = (_K.LAYER_NORM, _K.RMS_NORM, _K.GROUP_NORM, _K.BATCH_NORM, _K.SOFTMAX)
#: Kinds that pass over their operands in order; lookups over what they write.
_STREAMING = LOOKUP_KINDS.union(
    _NORMS, (_K.ELEMENTWISE, _K.COPY, _K.REDUCTION, _K.POOLING, _K.SCATTER, _K.OPTIMIZER)
)
_MAXIMA = frozenset(f"max_pool{rank}d{way}" for rank in (1, 2, 3) for way in ("", "_with_indices"))
_SCALING = frozenset({"mul", "div"})
_ADDED_ROWS = frozenset({"index_add"})
_CONVS = (_K.CONV, _K.CONV_BACKWARD_DATA, _K.CONV_BACKWARD_WEIGHT)
WORK_TERMS = np.array(
    [term in {"flop", "loop_count", "inner_count", "rest_count"} for term in TERMS]
)
MEMORY_TERMS = np.array([term.endswith(("bytes", "_l2", "_l3")) for term in TERMS])


@frozen
class Context:
    """Where and how rows run.

    Attributes:
        l1_bytes: First-level data cache of one core.
        l2_bytes: Second-level cache of one core.
        l3_bytes: Last-level cache.
        reuse_bytes: Bytes touched between two uses of a row's weights, shape (n,) or a scalar: 0
            where it runs again and again, infinite where they always come from main memory.
        is_training: Whether the graph has backward rows: norms then keep statistics, recurrent
            layers their gates.
        page_fault_bytes: Outputs above this size are always fresh memory.
        fresh_bytes: Fresh memory of each row where it is known, shape (n,); it replaces that rule.
        memory_bytes: Bytes beside weights that each row reads or writes and that come from main
            memory, shape (n,) or a scalar: a cache of keys and values, what was written long
            before, buffers used last long before.
        evicted: How far other operators overwrite the inner caches between two runs of a row, shape
            (n,) or a scalar: 0 for the same operator again and again, 1 for models that exceed
            those caches.
    """

    l1_bytes: float
    l2_bytes: float
    l3_bytes: float
    reuse_bytes: FloatArray | float
    is_training: bool
    page_fault_bytes: float
    fresh_bytes: FloatArray | None = None
    evicted: FloatArray | float = 0.0
    memory_bytes: FloatArray | float = 0.0

    def cold(self, count: int) -> FloatArray:
        """Share of each row's weights that come from main memory, shape (count,)."""
        reuse = np.broadcast_to(np.asarray(self.reuse_bytes, dtype=np.float64), (count,))
        return round_share(reuse, self.l3_bytes)


def kernel_terms(graph: OperatorGraph, context: Context) -> FloatArray:
    """Quantities of each row's terms, shape (n, len(TERMS)).

    Args:
        graph: Operators, n rows.
        context: Caches and state of memory.
    """
    read = graph.read_bytes + further_bytes(graph)
    moved = read + graph.write_bytes + mean_copy_bytes(graph) + block_bytes(graph)
    moved += workspaces(graph, is_training=context.is_training)
    cold = context.cold(len(graph))
    cached = graph.weight_bytes * (1.0 - cold)
    held = moved + cached
    beyond_l2 = share_beyond(held, context.l2_bytes)
    reused_beyond_l2 = share_beyond(np.asarray(context.reuse_bytes), context.l2_bytes)
    weights_beyond_l2 = np.maximum(beyond_l2, reused_beyond_l2)
    beyond_l3 = held * share_beyond(held, context.l3_bytes)
    from_memory = np.broadcast_to(np.asarray(context.memory_bytes, dtype=np.float64), moved.shape)
    # whose own long rows tell the cost of a byte of main memory
    streams = is_kind(graph.kind, _STREAMING)
    counts = np.zeros((len(graph), 3))
    flop = graph.flop.copy()
    for kind, index in graph.rows_by_kind():
        rows = rows_of_kind(graph, kind)
        for place, column in enumerate(_counts(rows, context)):
            counts[index, place] = column
        if kind in {_K.ATTENTION, _K.ATTENTION_BACKWARD}:
            flop[index] *= _visible_fraction(rows)
        elif kind in _CONVS:
            flop[index] *= visible_taps(rows)
        elif kind in RECURRENT_KINDS:
            flop[index] = step_work(rows, is_training=context.is_training).flop
            beyond_l3[index] = _recurrent_beyond(rows, held, context)
    evicted = np.broadcast_to(np.asarray(context.evicted, dtype=np.float64), moved.shape)
    reread = graph.weight_bytes * (_passes(graph) - 1.0)
    reread_memory = reread * share_beyond(graph.weight_bytes, context.l3_bytes)
    reread_l3 = (reread - reread_memory) * share_beyond(graph.weight_bytes, context.l2_bytes)
    columns = [
        np.ones(len(graph)),
        flop,
        read,
        graph.write_bytes,
        graph.weight_bytes + reread,
        graph.weight_bytes * cold + reread_memory + np.where(streams, 0.0, from_memory),
        moved * beyond_l2 + cached * weights_beyond_l2 + reread_l3,
        np.where(streams, np.maximum(beyond_l3, np.minimum(from_memory, moved)), beyond_l3),
        _fresh_bytes(graph, context),
    ]
    return np.column_stack(
        [
            *columns,
            counts,
            evicted,
            _partial_bytes(graph),
            evicted * (cached + graph.write_bytes),
        ]
    )


def _passes(graph: OperatorGraph) -> FloatArray:
    """How often a product goes through its weights, shape (n,): of few rows once a row.

    The math library multiplies up to three rows in fp32 one by one: 37 MB take 1.6 ms for one, 4.8
    for three, 2.6 for four (EPYC 9005).
    """
    passes = np.ones(len(graph))
    rows = np.flatnonzero((graph.kind == _K.GEMM) & (graph.dtype == Dtype.FP32))
    m, batch = (graph.dimension(name, rows, _K.GEMM) for name in ("m", "batch"))
    passes[rows] = np.where((m <= SINGLE_ROWS) & (batch <= 1), np.maximum(m, 1.0), 1.0)
    return passes


def _partial_bytes(graph: OperatorGraph) -> FloatArray:
    """Bytes of a convolution's images whose channels fill no whole vectors of 16, shape (n,):
    copied into blocks one by one.

    The few channels of a first image are read as they are. Gradients of weights are counted for
    depthwise convolutions alone. Of a GRU's gates what is left of
    the vectors that a sigmoid takes together.
    """
    found = np.zeros(len(graph))
    for kind, index in graph.rows_by_kind():
        rows = rows_of_kind(graph, kind)
        if kind == _K.GRU:
            forward = graph.phase[index] != Phase.BACKWARD
            found[index] = (
                forward
                * gate_rests(rows["hidden_size"], rows.width)
                * rows["batch"]
                * rows["steps"]
            )
            found[index] *= np.maximum(rows["directions"], 1.0) * rows.width
        if kind not in _CONVS:
            continue
        inside, outside = rows["channels_in"], rows["channels_out"]
        copied = (
            inside * rows["in_d"] * rows["in_h"] * rows["in_w"] * ((inside % 16 > 0) & (inside > 4))
        )
        copied = copied + outside * rows["out_d"] * rows["out_h"] * rows["out_w"] * (
            outside % 16 > 0
        )
        if kind == _K.CONV_BACKWARD_WEIGHT:
            copied = np.where((rows["groups"] > 1) & (rows["kernel_w"] <= 3), copied, 0.0)
        found[index] = copied * rows["batch"] * rows.width
    return found


def _fresh_bytes(graph: OperatorGraph, context: Context) -> FloatArray:
    if context.fresh_bytes is not None:
        return context.fresh_bytes
    in_place = graph.kind == _K.OPTIMIZER
    always = (graph.write_bytes > context.page_fault_bytes) & ~in_place
    return np.where(always, graph.write_bytes, 0.0)


def _query_block(q_len: FloatArray) -> FloatArray:
    """Queries the framework's attention kernel takes at a time (ATen FlashAttentionKernel.cpp)."""
    return np.where(q_len >= 768, 256.0, np.where(q_len >= 192, 64.0, 32.0))


def _visible_fraction(rows: KindRows) -> FloatArray:
    """Share of query-key pairs a blocked causal kernel computes."""
    causal, q_len = rows["causal"], rows["q_len"]
    return np.where(
        (causal > 0) & (q_len > 1),
        np.minimum(1.0, 0.5 + 0.5 * _query_block(q_len) / np.maximum(q_len, 1.0)),
        1.0,
    )


Counts = tuple[FloatArray | float, FloatArray | float, FloatArray | float]


def _product_counts(rows: KindRows, context: Context) -> Counts:
    """Products with edges filled to a 6 x 16 and to a 16 x 16 block, and the number of small
    blocks.

    Forward in fp32 one column is a product with a vector, up to four take vectors of eight: 6,144
    rows of 256 times 1, 2, 4, 8 and 16 columns take 100, 211, 273, 524 and 589 us (EPYC 9005). Of
    batched products the columns lie together: with 64 rows and a contraction of 64 they run at 13,
    23, 21, 45 and 31 GFLOP/s for 4, 8, 10, 12 and 15 columns, at 81 for 16. Single rows in fp32
    count first pages of the rows of weights instead of blocks, of what comes from main memory:
    prefetchers do not leave a page (62, 55, 41, 35 and 31 ps a byte for rows of 600, 1,200, 3,072,
    8,192 and 20,108).
    """
    batch, m, n, k = (np.maximum(rows[name], 1.0) for name in ("batch", "m", "n", "k"))
    forward = ~rows.is_backward
    narrow = (rows.width == 4) & (n <= 4) & forward
    columns = np.where(narrow, np.where(n > 1, 8.0, 1.0), np.ceil(n / 16) * 16)
    few = (rows.kind == _K.BATCHED_GEMM) & (rows.width == 4) & (n >= 4) & (n < 16)
    columns = np.where(few, _FEW_COLUMNS, columns)
    lines = batch * np.ceil(m / 6)
    single = (
        (m <= SINGLE_ROWS) & (batch <= 1) & (rows.width == 4) & forward & (rows.weight_bytes > 0)
    )
    far = context.cold(len(rows.graph))[rows.index]
    far = far + (m - 1.0) * share_beyond(n * k * rows.width, context.l3_bytes)
    starts = n * np.minimum(k * rows.width / _PAGE_BYTES, 1.0) * far
    blocks = np.where(single, starts, lines * np.ceil(n / 16))
    return 6.0 * lines * columns * k, batch * np.ceil(m / 16) * 16 * columns * k, blocks


def _attention_counts(rows: KindRows) -> Counts:
    """Scores, heads, and blocks of queries and keys."""
    heads = rows["batch"] * rows["heads"]
    pairs = heads * rows["q_len"] * rows["kv_len"] * _visible_fraction(rows)
    blocks = (
        heads * np.ceil(rows["q_len"] / _query_block(rows["q_len"])) * np.ceil(rows["kv_len"] / 512)
    )
    return pairs, heads, blocks


def _copy_counts(rows: KindRows, context: Context) -> Counts:
    """Elements, and those of small resampled images whose neighbours leave the first-level cache
    before they are used.

    Of other copies the stretches after the first, and the elements of those walked against an
    operand's innermost axis so far that its lines leave the second-level cache before their next
    element is read. The framework copies such an image to have its channels together, resamples it
    and copies it back: the first copy reads one element of every channel, the second one of every
    pixel. Lines whose distance is a multiple of the cache's share its sets. The gradient of the
    nearest element adds what it copied one by one: pairs overlap, more wait for each other.
    """
    elements, channels, pixels = rows["elements"], rows["channels"], rows["out_h"] * rows["out_w"]
    apart = elements * _caches_exceeded(channels, pixels * rows.width, context)
    occupied = occupied_bytes(pixels, channels * rows.width, _FIRST_LEVEL_SETS)
    back = elements * share_beyond(occupied, context.l1_bytes)
    gradient = rows.is_backward
    coarse = rows.graph.write_bytes[rows.index] / rows.width
    waits = elements * (elements > 6.0 * coarse)
    resampled, runs = channels > 0, np.maximum(rows["runs"], 1.0)
    spread = rows.has_trait(Trait.STRIDED)
    lines = elements / runs * _LINE_BYTES
    far = np.where(spread, elements * share_beyond(lines, context.l2_bytes), 0.0)
    return (
        elements,
        np.where(resampled, np.where(gradient, waits, apart), runs - 1.0),
        np.where(resampled, np.where(gradient, 0.0, back), far),
    )


def _caches_exceeded(count: FloatArray, stride_bytes: FloatArray, context: Context) -> FloatArray:
    """Caches that do not hold `count` elements at a distance until their neighbours are read: 0 to
    2.
    """
    lines = context.l2_bytes / _LINE_BYTES
    second_sets = 2 ** max(0, round(np.log2(lines / _SECOND_LEVEL_WAYS)))  # a power of two
    first = occupied_bytes(count, stride_bytes, _FIRST_LEVEL_SETS)
    second = occupied_bytes(count, stride_bytes, second_sets)
    return share_beyond(first, context.l1_bytes) + share_beyond(second, context.l2_bytes)


def _pooling_counts(rows: KindRows, context: Context) -> Counts:
    """Outputs, taps, and new maxima whose place the branch predictor does not know; of channels
    together, pixels read.

    The n-th tap is new once in n (harmonic numbers): 10, 16, 24, 35, 51 and 73 ns for 2 to 64 taps,
    half where up to 51,000 come again (EPYC 9005). A sequence's maximum without its places goes
    through a line's outputs tap by tap.
    """
    lines, volume = rows["batch"] * rows["channels"], np.maximum(rows["kernel_volume"], 1.0)
    outputs, taps = lines * rows["out_pixels"], lines * rows["out_pixels"] * volume
    new = (
        outputs
        * np.maximum(np.log(volume) + 0.5772 + 0.5 / volume - 1.0, 0.0)
        * share_beyond(taps, _LEARNED_TAPS)
    )
    flat = rows.has_trait(Trait.FLAT) & (not context.is_training)
    third = np.where(flat, lines * volume, new)
    read_taps = np.where(rows.is_operation(_MAXIMA), volume, 1.0)
    pixels = rows["batch"] * rows["out_pixels"] * read_taps
    return outputs, taps, np.where(rows.has_trait(Trait.CHANNELS_LAST), pixels, third)


def _elementwise_counts(rows: KindRows) -> Counts:
    """Elements, stretches after the first, and elements that these leave over from whole vectors,
    taken one by one.

    Products and quotients in 16 bits take them together where every operand goes on along the
    stretch: 16 elements of a row by a row's take 3 ns, by a number 20, a sum of two such rows 16
    (EPYC 9005).
    """
    runs = np.maximum(rows["runs"], 1.0)
    left = np.where(runs > 1, runs * (rows["elements"] / runs % (_LINE_BYTES / rows.width)), 0.0)
    together = rows.is_operation(_SCALING) & (rows["even"] > 0) & (rows.width == 2)
    return rows["elements"], runs - 1.0, np.where(together, 0.0, left)


def _choice_counts(rows: KindRows) -> Counts:
    """Rows, elements, and elements whose place the branch predictor does not know.

    Up to a sixty-fourth of a row is kept in a heap that few elements enter, for more the row is
    parted (ATen TopKImpl.h).
    """
    elements = rows["tokens"] * rows["experts"]
    parted = rows["top_k"] * _HEAP_FRACTION > rows["experts"]
    return (
        rows["tokens"],
        elements,
        np.where(parted, elements * share_beyond(elements, _LEARNED_CHOICES), 0.0),
    )


def _gather_counts(rows: KindRows, context: Context) -> Counts:
    """Lookups, and cache lines that each cache does not hold: of tables, of values that are added
    in their table's order.
    """
    row_bytes = rows["width"] * rows.width
    if rows.kind in LOOKUP_KINDS:
        reuse, evicted = (
            np.broadcast_to(x, len(rows.graph))[rows.index]
            for x in (context.reuse_bytes, context.evicted)
        )
        caches = (context.l2_bytes, context.l3_bytes)
        return rows["lookups"], *lookup_lines(
            rows["lookups"], rows["table_rows"], row_bytes, reuse, evicted, caches
        )
    lines, extent = rows["lookups"] * np.ceil(row_bytes / 64.0), rows["table_rows"] * row_bytes
    added = rows.is_operation(_ADDED_ROWS)
    single = added & (rows["width"] < SORTED_WIDTH)
    by_target = (added & ~single) | rows.has_trait(Trait.ROWS)
    extent = np.where(by_target, rows["lookups"] * row_bytes, extent)
    added_count = rows["lookups"] * np.where(single, rows["width"], 1.0)
    beyond_l2 = lines * share_beyond(extent, context.l2_bytes)
    beyond_l3 = lines * share_beyond(extent, context.l3_bytes)
    return added_count, beyond_l2, beyond_l3


def _recurrent_counts(rows: KindRows, context: Context) -> Counts:
    """Steps, gate elements, and bytes of weights and their gradients that go through the caches
    again each step.
    """
    work = step_work(rows, is_training=context.is_training)
    return (
        work.steps,
        work.steps * rows["batch"] * rows["hidden_size"],
        work.steps * work.moved_bytes,
    )


def _recurrent_beyond(rows: KindRows, held: FloatArray, context: Context) -> FloatArray:
    """Bytes beyond the last-level cache: of an LSTM's weights, which are copied, and of what steps
    move; shape (k,).
    """
    weights = rows.weight_bytes
    once = (held[rows.index] + weights) * (rows.kind == _K.LSTM)
    work, l3_bytes = step_work(rows, is_training=context.is_training), context.l3_bytes
    return once * share_beyond(once, l3_bytes) + work.far_bytes(l3_bytes)


_COUNTS: dict[OperatorKind, Callable[[KindRows], Counts]] = {
    _K.BATCH_NORM: lambda rows: (rows["columns"], rows["rows"] * rows["columns"], 0.0),
    _K.OPTIMIZER: lambda rows: (
        rows["tensors"],
        rows["parameters"],
        rows["idle"],
    ),  # square roots of zeros are slow
    _K.MOE_ROUTING: _choice_counts,
    _K.ELEMENTWISE: _elementwise_counts,
    _K.SOFTMAX: softmax_counts,
    _K.REDUCTION: reduction_counts,
    **dict.fromkeys(CONV_KINDS, conv_counts),
    **dict.fromkeys(ATTENTION_KINDS, _attention_counts),
    **dict.fromkeys((_K.LAYER_NORM, _K.RMS_NORM, _K.GROUP_NORM), row_counts),
}
#: Of kinds whose counts depend on the caches.
_CACHED_COUNTS: dict[OperatorKind, Callable[[KindRows, Context], Counts]] = {
    _K.POOLING: _pooling_counts,
    _K.COPY: _copy_counts,
    **dict.fromkeys((_K.GEMM, _K.BATCHED_GEMM), _product_counts),
    **dict.fromkeys((_K.EMBEDDING, _K.EMBEDDING_BAG, _K.SCATTER), _gather_counts),
    **dict.fromkeys(RECURRENT_KINDS, _recurrent_counts),
}


def _counts(rows: KindRows, context: Context) -> Counts:
    """Counts of the main loop, of the inner one, and of the rest; zeros where a kind has none."""
    if rows.kind in _CACHED_COUNTS:
        return _CACHED_COUNTS[rows.kind](rows, context)
    return _COUNTS[rows.kind](rows) if rows.kind in _COUNTS else (0.0, 0.0, 0.0)
