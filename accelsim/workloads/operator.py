"""Operator kinds and the dimensions each kind is described by.

An operator is one kernel-sized unit of work. Its row in an `OperatorGraph` has a kind, a fixed
tuple of integer dimensions whose meaning the kind defines, a compute dtype, FLOP, and bytes read,
written and of weights. A multiply-add counts as 2 FLOP. For attention, FLOP counts the full query x
key rectangle (the convention of PaLM's MFU and of torch.utils.flop_counter); what a causal or
windowed kernel really executes is worked out by the cost models from the dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from math import prod

#: Ending of the name of a captured operator that overwrites what it reads, or adds rows to what is
#: there.
IN_PLACE = ".in_place"
#: Suffix of the name of a batch norm that takes the statistics of its own images, whatever the
#: module's mode.
OWN_STATISTICS = "own"
#: Elements of a row from which rows that indices add are sorted first and added whole.
SORTED_WIDTH = 16


class LabelledCode(IntEnum):
    """Codes whose names in lower case are what files and tables say."""

    @property
    def label(self) -> str:
        """Lower-case name."""
        return self.name.lower()


class OperatorKind(LabelledCode):
    """Kinds of operator, by code."""

    GEMM = 0  # activation x weight: (batch x) m x k times k x n
    BATCHED_GEMM = 1  # activation x activation
    GROUPED_GEMM = 2  # one GEMM per expert, `m` rows over all experts
    ATTENTION = 3  # softmax(Q K^T) V as one operator
    ATTENTION_BACKWARD = 4
    CONV = 5
    CONV_TRANSPOSE = 6
    CONV_BACKWARD_DATA = 7
    CONV_BACKWARD_WEIGHT = 8
    LAYER_NORM = 9
    RMS_NORM = 10
    BATCH_NORM = 11
    GROUP_NORM = 12
    SOFTMAX = 13
    ELEMENTWISE = 14
    REDUCTION = 15
    POOLING = 16
    EMBEDDING = 17  # gather of rows
    EMBEDDING_BAG = 18  # gather and sum
    SCATTER = 19  # scatter-add of rows (embedding backward)
    RNN = 20
    LSTM = 21
    GRU = 22
    MOE_ROUTING = 23
    OPTIMIZER = 24
    COPY = 25  # device memory to device memory, transposes, concatenation
    HOST_TO_DEVICE = 26
    DEVICE_TO_HOST = 27
    ALL_REDUCE = 28
    ALL_GATHER = 29
    REDUCE_SCATTER = 30
    ALL_TO_ALL = 31
    BROADCAST = 32
    SEND_RECV = 33
    TREE_ENSEMBLE = 34  # gradient-boosted trees, prediction
    TREE_HISTOGRAM = 35  # gradient-boosted trees, histogram building in training


class Phase(LabelledCode):
    """Which part of the run a row belongs to."""

    FORWARD = 0
    BACKWARD = 1
    GRADIENT = 2  # gradient accumulation, clipping, reduction
    OPTIMIZER = 3
    PREFILL = 4
    DECODE = 5


_K = OperatorKind
#: Dimensions by kinds. causal: 0 or 1. window: keys each query sees at most, 0 = all. latent: width
#: of a compressed (MLA) cache row, 0 = none; attention whose scores pass through memory is batched
#: GEMMs, elementwise and softmax rows instead. runs: stretches that lie together, else 0; even: 1
#: where every operand goes on along all of a stretch. inner: results that lie together, where the
#: innermost axis stays, else 0. idle: whose gradients have been zero throughout. out_h, out_w of
#: copies: sizes of resampled images alone, else 0. group: a `ParallelGroup`.
_NAMES = """
    gemm batched_gemm: batch m n k;
    grouped_gemm: groups m n k;
    attention attention_backward: batch heads kv_heads q_len kv_len head_dim value_dim
        causal window latent;
    conv conv_transpose conv_backward_data conv_backward_weight: batch channels_in
        channels_out groups in_d in_h in_w out_d out_h out_w kernel_d kernel_h kernel_w
        stride dilation;
    layer_norm rms_norm batch_norm group_norm softmax: rows columns;
    elementwise: elements inputs flop_per_element runs even;
    reduction: rows columns inner;
    pooling: batch channels in_pixels out_pixels kernel_volume;
    embedding scatter: lookups width table_rows;
    embedding_bag: lookups width table_rows bags;
    rnn lstm gru: batch steps input_size hidden_size directions;
    moe_routing: tokens experts top_k;
    optimizer: parameters states tensors idle;
    copy: elements channels out_h out_w runs;
    host_to_device device_to_host: bytes ranks;
    all_reduce all_gather reduce_scatter all_to_all broadcast send_recv: bytes ranks group;
    tree_ensemble: rows features trees depth;
    tree_histogram: rows features trees depth bins
"""
#: Names of the dimensions of each kind, in column order.
DIMENSIONS: Mapping[OperatorKind, tuple[str, ...]] = {
    OperatorKind[kind.upper()]: tuple(names.split())
    for kinds, names in (entry.split(":") for entry in _NAMES.split(";"))
    for kind in kinds.split()
}
MAX_DIMENSIONS = max(len(names) for names in DIMENSIONS.values())

CONV_KINDS = frozenset({_K.CONV, _K.CONV_TRANSPOSE, _K.CONV_BACKWARD_DATA, _K.CONV_BACKWARD_WEIGHT})
ATTENTION_KINDS = frozenset({_K.ATTENTION, _K.ATTENTION_BACKWARD})
#: Gate matrices of one recurrent cell.
RECURRENT_GATES: Mapping[OperatorKind, int] = {_K.RNN: 1, _K.LSTM: 4, _K.GRU: 3}
RECURRENT_KINDS = frozenset(RECURRENT_GATES)
#: Kinds whose FLOP count as model FLOP: the matrix arithmetic published figures count.
CONTRACTION_KINDS = (
    CONV_KINDS
    | ATTENTION_KINDS
    | RECURRENT_KINDS
    | frozenset({_K.GEMM, _K.BATCHED_GEMM, _K.GROUPED_GEMM})
)
#: Kinds that multiply weights.
PRODUCT_KINDS = CONTRACTION_KINDS - ATTENTION_KINDS
#: Products whose operands are both activations.
ACTIVATION_PRODUCT_KINDS = ATTENTION_KINDS | {_K.BATCHED_GEMM}
LOOKUP_KINDS = frozenset({_K.EMBEDDING, _K.EMBEDDING_BAG})
TRANSFER_KINDS = frozenset({_K.HOST_TO_DEVICE, _K.DEVICE_TO_HOST})
COLLECTIVE_KINDS = frozenset(
    {_K.ALL_REDUCE, _K.ALL_GATHER, _K.REDUCE_SCATTER, _K.ALL_TO_ALL, _K.BROADCAST, _K.SEND_RECV}
)


def _convolution_flop(dims: Sequence[int], positions: Sequence[int]) -> float:
    """FLOP of a convolution over so many places.

    Two per multiply-add, a window for each output (Dumoulin and Visin, arXiv:1603.07285).
    """
    batch, c_in, c_out, groups, *_ = dims
    return 2.0 * batch * prod(positions) * c_out * c_in // groups * prod(dims[10:13])


def _attention_flop(dims: Sequence[int]) -> float:
    """FLOP of scores and context.

    The full rectangle counts, as in PaLM's MFU (Chowdhery et al. 2022, arXiv:2204.02311).
    """
    batch, heads, _, q_len, kv_len, head_dim, value_dim, _, window, _ = dims
    keys = min(kv_len, window) if window else kv_len
    return 2.0 * batch * heads * q_len * keys * (head_dim + value_dim)


def _per_element(flop: float) -> Callable[[Sequence[int]], float]:
    """So many per element of rows x columns, tokens x experts, or rows that are looked up."""
    return lambda dims: flop * dims[0] * dims[1]


def _recurrent_flop(gates: int) -> Callable[[Sequence[int]], float]:
    """One product with input and state per gate.

    Gates as in Hochreiter and Schmidhuber 1997 (LSTM) and Cho et al. 2014 (GRU, arXiv:1406.1078).
    """
    return lambda dims: 2.0 * prod(dims[:2]) * gates * prod(dims[3:5]) * (dims[2] + dims[3])


_FLOP: Mapping[OperatorKind, Callable[[Sequence[int]], float]] = {
    _K.GEMM: lambda dims: 2.0 * prod(dims),
    _K.BATCHED_GEMM: lambda dims: 2.0 * prod(dims),
    _K.GROUPED_GEMM: lambda dims: 2.0 * prod(dims[1:]),
    _K.CONV: lambda dims: _convolution_flop(dims, dims[7:10]),
    _K.CONV_TRANSPOSE: lambda dims: _convolution_flop(dims, dims[4:7]),
    _K.ATTENTION: _attention_flop,
    _K.LAYER_NORM: _per_element(8.0),
    _K.RMS_NORM: _per_element(4.0),
    _K.BATCH_NORM: _per_element(4.0),
    _K.GROUP_NORM: _per_element(8.0),
    _K.SOFTMAX: _per_element(6.0),
    _K.ELEMENTWISE: lambda dims: 1.0 * dims[0] * dims[2],
    _K.REDUCTION: _per_element(1.0),
    _K.POOLING: lambda dims: 1.0 * dims[0] * dims[1] * dims[3] * dims[4],
    _K.EMBEDDING_BAG: _per_element(1.0),
    _K.MOE_ROUTING: _per_element(8.0),
    _K.TREE_ENSEMBLE: lambda dims: 1.0 * dims[0] * dims[2] * (dims[3] + 1),
} | {kind: _recurrent_flop(gates) for kind, gates in RECURRENT_GATES.items()}


def row_flop(kind: OperatorKind, dims: Sequence[int]) -> float:
    """FLOP of a forward row, a multiply-add as 2 (the conventions of torch.utils.flop_counter).

    A convolution takes channels_in / groups x window multiply-adds for each output position and
    channel, a transposed one for each input position; attention the whole rectangle of queries and
    keys, or of the window. What norms, softmax and routing take per element is an estimate: the
    arithmetic of the usual kernels.

    Args:
        kind: Kind; those without arithmetic of their own have 0.
        dims: Dimensions in the order of ``DIMENSIONS[kind]``.
    """
    formula = _FLOP.get(kind)
    return 0.0 if formula is None else formula(dims)
