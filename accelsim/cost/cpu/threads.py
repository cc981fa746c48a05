"""Several threads: what of a kernel's one-thread time they share, and what a parallel region adds.

What starts a call, a step or a tensor is done by one thread. Of the rest the framework splits what
its rules say (``at::parallel_for``, ATen/TensorIterator.h): elementwise kernels, reductions and
lookups from 32,768 elements on, norms and softmax between rows. Products of up to four rows go to
the math library's matrix-vector code, which runs on one thread. Where no rule is known, a kernel's
own rows tell from which time on it is split.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from accelsim.cost.cpu.kernel_terms import TERMS
from accelsim.cost.cpu.kernels import MIRROR_PADDING, RESAMPLING
from accelsim.dtype import Dtype
from accelsim.frozen import frozen
from accelsim.workloads.graph import BoolArray, FloatArray, IntArray, OperatorGraph, TextArray
from accelsim.workloads.operator import OperatorKind, Phase

_K = OperatorKind
#: Parallel regions shorter than this on one thread stay on one where neither a rule nor a kernel's
#: own rows say otherwise.
SERIAL_S = 8e-6
#: Terms on several threads: fork and join, traffic beyond the last cache, page faults, serial and
#: parallel work, start with evicted caches, work that every thread repeats.
THREAD_TERMS = (
    "start",
    "bytes_beyond_l3",
    "fresh_bytes",
    "serial_s",
    "parallel_s",
    "evicted",
    "repeated",
)
#: Kernels that enter one parallel region for each step or tensor, their first count.
_STEPWISE = ("lstm", "gru", "adamw", "sgd")
#: Kernels of which every thread packs or prepares all weights.
_PACKING = ("linear", "mm_", "conv", "lstm", "gru", "batch_norm")
#: Single-precision numbers of a cache line.
_LINE_FLOATS = 16
#: Elements up to which the framework does not split (ATen/TensorIterator.h, GRAIN_SIZE).
_GRAIN = 32768.0
#: Rows up to which the math library multiplies on one thread.
_SERIAL_ROWS = 4
#: Time of a FLOP in a product of so few rows over that in one of many.
_FEW_ROWS_RATIO = 3.0
#: Additions at places that indices give.
_INDEXED = frozenset({"index_put", "_index_put_impl", "_unsafe_index_put"})
#: Copies with rules of their own: piece by piece, resampled, padded.
_PIECEWISE = frozenset({"cat", "stack"}) | RESAMPLING | MIRROR_PADDING
_FIXED = np.isin(TERMS, ["start", "evicted"])
_FIRST = np.array([term == "loop_count" for term in TERMS])


@frozen(eq=False)
class OneThread:
    """Rows on one thread, and how several split them; columns of shape (n,).

    Attributes:
        time_s: Predicted time less page faults; NaN where the kernel was not measured.
        fixed_s: What of it starts the call, its steps or its tensors.
        work: How several threads split the rest.
    """

    time_s: FloatArray
    fixed_s: FloatArray
    work: SharedWork

    def __getitem__(self, index: IntArray) -> OneThread:
        """Some of the rows."""
        return OneThread(self.time_s[index], self.fixed_s[index], self.work[index])


@frozen(eq=False)
class SharedWork:
    """How several threads split rows; columns of shape (n,).

    Attributes:
        region_count: Parallel regions.
        share: Share of the work that is split by the libraries' own rules, 0 to 1; NaN where its
            time decides.
        repeated: What every thread does again or for both: bytes of weights that a product packs, a
            convolution or a recurrent layer rearranges or a batch norm prepares; rows of a norm's
            gradients that share a cache line; blocks of attention, whose products take longer to
            start inside a parallel region; elements added atomically.
    """

    region_count: FloatArray
    share: FloatArray
    repeated: FloatArray

    def __getitem__(self, index: IntArray) -> SharedWork:
        """Some of the rows."""
        return SharedWork(self.region_count[index], self.share[index], self.repeated[index])


def _start_with(names: TextArray, kernels: tuple[str, ...]) -> BoolArray:
    return np.array([name.startswith(kernels) for name in names.tolist()], dtype=bool)


def fixed_terms(kernel: str) -> BoolArray:
    """Terms of a kernel's one-thread time that no thread shares, shape (len(TERMS),)."""
    return _FIXED | _FIRST if kernel.startswith(_STEPWISE) else _FIXED


def shared_work(graph: OperatorGraph, names: TextArray, terms: FloatArray) -> SharedWork:
    """How several threads split each row.

    Args:
        graph: Operators, n rows.
        names: Their kernels, shape (n,).
        terms: Their quantities, shape (n, len(TERMS)).
    """
    stepwise = _start_with(names, _STEPWISE)
    regions = np.where(stepwise, np.maximum(terms[:, TERMS.index("loop_count")], 1.0), 1.0)
    weights = terms[:, TERMS.index("weight_bytes")]
    attention = _start_with(names, ("attention",))
    blocks = np.where(attention, terms[:, TERMS.index("rest_count")], 0.0)
    repeated = np.where(_start_with(names, _PACKING), weights, blocks)
    norms = np.flatnonzero(names == "layer_norm_backward")
    if len(norms):
        columns = graph.dimension("columns", norms, _K.LAYER_NORM)
        repeated[norms] = graph.dimension("rows", norms, _K.LAYER_NORM) * (
            columns % _LINE_FLOATS > 0
        )
    added = np.flatnonzero(names == "index_put")
    if len(added):
        repeated[added] = _atomic_elements(graph, _K.SCATTER, added)
    return SharedWork(regions, _split_shares(graph), repeated)


def _split_shares(graph: OperatorGraph) -> FloatArray:
    """Share of each row's work that the libraries' own rules split, shape (n,); NaN where none is
    known.
    """
    shares = np.full(len(graph), np.nan)
    for kind, rows in graph.rows_by_kind():
        rule = _SPLITS.get(kind)
        if rule is not None:
            shares[rows] = rule(graph, kind, rows)
    return shares


def _atomic_elements(graph: OperatorGraph, kind: OperatorKind, rows: IntArray) -> FloatArray:
    """Elements that several threads add where indices say, atomically, shape (k,): from the grain
    on, in fp32.

    Other formats are added by one thread (ATen IndexKernel.cpp, index_put_kernel). 894,000 elements
    take 0.41 ms on one thread and 2.35 on two, 769,000 take 0.53 and 2.18, of bf16 1.07 and 1.04
    (EPYC 9005).
    """
    elements = graph.dimension("lookups", rows, kind) * graph.dimension("width", rows, kind)
    atomic: FloatArray = np.where(
        (elements >= _GRAIN) & (graph.dtype[rows] == int(Dtype.FP32)), elements, 0.0
    )
    return atomic


def _additions(graph: OperatorGraph, kind: OperatorKind, rows: IntArray) -> FloatArray:
    """Gradients of rows that were looked up by indices; how other operators scatter their own rows
    tell.
    """
    indexed = graph.is_operation(_INDEXED)[rows]
    split: FloatArray = np.where(indexed, np.sign(_atomic_elements(graph, kind, rows)), np.nan)
    return split


def _by_elements(*names: str) -> _Rule:
    """Split from the framework's grain on; the dimensions' product is the count of elements."""

    def rule(graph: OperatorGraph, kind: OperatorKind, rows: IntArray) -> FloatArray:
        sizes = [graph.dimension(name, rows, kind) for name in names]
        split: FloatArray = np.where(np.prod(sizes, axis=0) >= _GRAIN, 1.0, 0.0)
        return split

    return rule


def _by_rows(graph: OperatorGraph, kind: OperatorKind, rows: IntArray) -> FloatArray:
    split: FloatArray = np.where(graph.dimension("rows", rows, kind) > 1, 1.0, 0.0)
    return split


def _copies(graph: OperatorGraph, kind: OperatorKind, rows: IntArray) -> FloatArray:
    """Plain copies; pieces of a concatenation are copied one by one, resampling has rules of its
    own.
    """
    plain = ~graph.is_operation(_PIECEWISE)[rows]
    split: FloatArray = np.where(plain, _by_elements("elements")(graph, kind, rows), np.nan)
    return split


def _products(graph: OperatorGraph, kind: OperatorKind, rows: IntArray) -> FloatArray:
    """In fp32 the math library takes up to four rows on one thread."""
    few = (graph.dimension("m", rows, kind) <= _SERIAL_ROWS) & (
        graph.dimension("batch", rows, kind) <= 1
    )
    split: FloatArray = np.where(few & (graph.dtype[rows] == int(Dtype.FP32)), 0.0, np.nan)
    return split


def _gated_steps(graph: OperatorGraph, kind: OperatorKind, rows: IntArray) -> FloatArray:
    """A GRU runs operator by operator: the inputs of all steps are one product, the states of each
    are one of `batch` rows.

    In fp32 the math library takes those of up to four rows on one thread.
    """
    inside, hidden = (graph.dimension(name, rows, kind) for name in ("input_size", "hidden_size"))
    few = (graph.dimension("batch", rows, kind) <= _SERIAL_ROWS) & (
        graph.dtype[rows] == int(Dtype.FP32)
    )
    few &= graph.phase[rows] != int(Phase.BACKWARD)
    split: FloatArray = np.where(
        few, inside / np.maximum(inside + _FEW_ROWS_RATIO * hidden, 1.0), np.nan
    )
    return split


def _heads(graph: OperatorGraph, kind: OperatorKind, rows: IntArray) -> FloatArray:
    heads = graph.dimension("batch", rows, kind) * graph.dimension("heads", rows, kind)
    split: FloatArray = np.where(heads > 1, 1.0, 0.0)
    return split


_Rule = Callable[[OperatorGraph, OperatorKind, IntArray], FloatArray]
_SPLITS: Mapping[OperatorKind, _Rule] = {
    _K.GEMM: _products,
    _K.GRU: _gated_steps,
    _K.COPY: _copies,
    _K.ATTENTION: _heads,
    _K.ATTENTION_BACKWARD: _heads,
    _K.SOFTMAX: _by_rows,
    _K.LAYER_NORM: _by_rows,
    _K.ELEMENTWISE: _by_elements("elements"),
    _K.REDUCTION: _by_elements("rows", "columns"),
    _K.RMS_NORM: _by_elements("rows", "columns"),  # a chain of elementwise kernels
    _K.EMBEDDING: _by_elements("lookups", "width"),
    _K.SCATTER: _additions,
}


def thread_terms(
    terms: FloatArray, one_thread: OneThread, serial_s: FloatArray | float = SERIAL_S
) -> FloatArray:
    """Quantities of rows on several threads, relative to their time on one, shape (n,
    len(THREAD_TERMS)).

    Args:
        terms: Quantities of the rows, shape (n, len(TERMS)).
        one_thread: The rows on one thread.
        serial_s: Regions up to this time on one thread stay on one where no rule is known.
    """
    work, time_s = one_thread.work, one_thread.time_s
    splits = time_s > serial_s * work.region_count
    shares = np.where(np.isnan(work.share), splits, work.share)
    split_s = shares * np.maximum(time_s - one_thread.fixed_s, 0.0)
    parallel = shares > 0
    memory = terms[:, TERMS.index("bytes_beyond_l3")] + terms[:, TERMS.index("cold_weight_bytes")]
    columns = [
        parallel * work.region_count,
        parallel * memory,
        terms[:, TERMS.index("fresh_bytes")],
        time_s - split_s,
        split_s,
        parallel * terms[:, TERMS.index("evicted")],
        parallel * work.repeated,
    ]
    stacked: FloatArray = np.column_stack(columns)
    return stacked
