"""Which library kernel runs each row of a graph.

Kernels are named after the framework's operators as captures name them, because two operators of
one kind (a product with weights and one of a gradient) are different code. Shapes decide further:
thin products, attention with a single query, convolutions by their groups and taps.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Mapping
from functools import cache, lru_cache
from pathlib import Path

import numpy as np

from accelsim.cost.table import Rows
from accelsim.dtype import Dtype
from accelsim.frozen import frozen
from accelsim.workloads.graph import BoolArray, OperatorGraph, TextArray, is_kind
from accelsim.workloads.operator import CONV_KINDS, OperatorKind, Phase
from accelsim.workloads.variant import Trait, variant

_K = OperatorKind
#: Elementwise kernels whose time depends on how many full operands they read.
_ARITHMETIC = frozenset({"add", "mul", "sub", "div"})
_REDUCTIONS = (
    "mean",
    "amax",
    "var",
    "max_place",
    "arg_place",
    "sum_rows",
    "mean_outer",
    "amax_outer",
)
_SCANS = ("cumsum", "sort", "norm_outer")
_KNOWN_REDUCTIONS = frozenset((*_REDUCTIONS, *_SCANS))
_BY_KIND = {
    _K.BATCHED_GEMM: "bmm",
    _K.ATTENTION_BACKWARD: "attention_backward",
    _K.RMS_NORM: "rms_norm",
    _K.GROUP_NORM: "group_norm",
    _K.EMBEDDING: "embedding",
    _K.EMBEDDING_BAG: "embedding_bag",
    _K.SCATTER: "embedding_backward",
    _K.MOE_ROUTING: "topk",
    _K.OPTIMIZER: "adamw",
    _K.COPY: "copy",
    _K.SOFTMAX: "_softmax",
    _K.POOLING: "avg_pool2d",
    _K.ELEMENTWISE: "mul_scalar",
}
#: Kernels of inference, of the forward pass of training (which keeps statistics and gates), and of
#: the backward pass.
_BY_PHASE = {
    _K.LAYER_NORM: ("layer_norm", "layer_norm", "layer_norm_backward"),
    _K.BATCH_NORM: ("batch_norm", "batch_norm_train", "batch_norm_backward"),
    _K.LSTM: ("lstm", "lstm_train", "lstm_backward"),
    _K.GRU: ("gru", "gru_train", "gru_backward"),
}
#: What a compiler makes of elementwise operators.
_COMPILED_LOOP = "compiled_elementwise"
_COMPILED = {
    frozenset({_K.ELEMENTWISE}): _COMPILED_LOOP,
    frozenset({_K.LAYER_NORM, _K.RMS_NORM}): "compiled_layer_norm",
    frozenset({_K.SOFTMAX}): "compiled_softmax",
}
#: Columns up to which the math library multiplies in fp32 with vectors, of weights and others
#: alike.
NARROW_COLUMNS = 4
#: Rows up to which the math library multiplies in fp32 row by row, as a matrix and a vector.
SINGLE_ROWS = 3
#: Rows up to which a product has a kernel of its own.
THIN_ROWS = 16


@frozen
class _KernelTable:
    """The file `kernels.csv`.

    Attributes:
        by_operator: Kernel of operators that run one by another name.
        of_any_dimensions: Kernels known by their name, whatever the dimensions of the operator.
        stand_in: What stands for kernels that a run did not measure.
    """

    by_operator: Mapping[str, str]
    of_any_dimensions: frozenset[str]
    stand_in: Mapping[str, str]


@cache
def _kernel_table() -> _KernelTable:
    with Path(__file__).with_name("kernels.csv").open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    return _KernelTable(
        {operator: row["kernel"] for row in rows for operator in row["operators"].split()},
        frozenset(row["kernel"] for row in rows if row["whatever_dimensions"] == "yes"),
        {row["kernel"]: row["stand_in"] for row in rows if row["stand_in"]},
    )


@lru_cache(maxsize=16)
def _self_named_kernels(count: int) -> TextArray:
    """The kernels that operators of the first codes name themselves."""
    labels = (variant(code).label for code in range(count))
    by_operator = _kernel_table().by_operator
    return np.array([by_operator.get(label, label) for label in labels], dtype="<U60")


def _self_named(rows: Rows) -> TextArray:
    """The kernels that rows name themselves, shape (k,)."""
    codes = rows.graph.variant[rows.index]
    return _self_named_kernels(int(codes.max(initial=0)) + 1)[codes]


def _names_one_of(rows: Rows, kernels: frozenset[str]) -> BoolArray:
    """Which rows name one of some kernels themselves, shape (k,)."""
    codes = rows.graph.variant[rows.index]
    is_among: BoolArray = np.isin(_self_named_kernels(int(codes.max(initial=0)) + 1), list(kernels))
    return is_among[codes]


def substitute(kernel: str) -> str:
    """The kernel that stands for one that was not measured: of a version of it, the kernel itself.

    Args:
        kernel: A kernel's name; returned as it is where nothing stands for it.
    """
    if kernel.startswith("gru_"):
        return "gru"
    return _kernel_table().stand_in.get(
        kernel,
        kernel.replace("_volume", "")
        .removesuffix("_plain")
        .removesuffix("_outer")
        .removesuffix("_across"),
    )


def kernel_names(graph: OperatorGraph, *, is_training: bool) -> TextArray:
    """Kernel of each row, shape (n,); empty where none is known.

    Args:
        graph: Operators, n rows.
        is_training: Whether the graph has backward rows.
    """
    names = np.zeros(len(graph), dtype="<U40")
    for kind, index in graph.rows_by_kind():
        rows = Rows(graph, index, kind)
        names[index] = _conv_names(rows) if kind in CONV_KINDS else _names_of(rows, is_training)
    return names


def compiled_names(
    graph: OperatorGraph, names: TextArray, measured_kernels: Collection[str]
) -> TextArray:
    """Kernels of a graph that a compiler generates loops for, shape (n,): elementwise chains,
    forward norms and softmax.

    Args:
        graph: Operators, fused, n rows.
        names: Kernels that run without the compiler, shape (n,).
        measured_kernels: Kernels that were measured; others stay as they are.
    """
    backward = graph.phase == Phase.BACKWARD
    for kinds, kernel in _COMPILED.items():
        if kernel in measured_kernels:
            is_compiled = is_kind(graph.kind, kinds) & (~backward | (kernel == _COMPILED_LOOP))
            names = np.where(is_compiled, kernel, names)
    return names


def _names_of(rows: Rows, is_training: bool) -> TextArray:
    kind, backward = rows.kind, rows.column("phase") == Phase.BACKWARD
    if kind == _K.GEMM:
        m, n = rows["m"], rows["n"]
        narrow = (n <= NARROW_COLUMNS) & (rows.element_bytes == 4) & ~backward
        is_linear = rows.column("weight_bytes") > 0
        weights = is_linear | narrow
        single = (m <= SINGLE_ROWS) & (rows["batch"] <= 1) & (rows.column("dtype") == Dtype.FP32)
        thin = np.where(single & is_linear, "linear_rows", "linear_thin")
        forward = np.where(weights, np.where(m <= THIN_ROWS, thin, "linear"), "mm_nn")
        return np.where(backward, np.where(weights, "mm_nn", "mm_tn"), forward)
    if kind == _K.ATTENTION:
        return np.where(rows["q_len"] <= 4, "attention_decode", "attention")
    if kind in _BY_PHASE:
        inference, training, gradient = _BY_PHASE[kind]
        uses_batch_statistics = rows.graph.has_trait(Trait.OWN_STATISTICS)[rows.index]
        return np.where(
            backward, gradient, np.where(uses_batch_statistics | is_training, training, inference)
        )
    if kind == _K.REDUCTION:
        plain = _self_named(rows)
        inner = np.where(_names_one_of(rows, _KNOWN_REDUCTIONS), plain, "sum")
        return np.where(
            backward & ~np.isin(inner, ["max_place", "arg_place", *_SCANS]), "sum_rows", inner
        )
    default = _BY_KIND.get(kind, "")
    self_named = _self_named(rows)
    kernels = np.where(_names_one_of(rows, _kernel_table().of_any_dimensions), self_named, default)
    if kind == _K.POOLING and is_training:  # which keeps where each maximum was
        return np.where(kernels == "max_pool1d", "max_pool2d_with_indices", kernels)
    return _binary_names(rows, kernels) if kind == _K.ELEMENTWISE else kernels


def _conv_names(rows: Rows) -> TextArray:
    """Convolutions by their groups and taps, and gradients of one filter a channel."""
    groups = rows["groups"]
    depthwise = (groups > 1) & (groups >= rows["channels_in"])
    if rows.kind == _K.CONV_TRANSPOSE:
        return np.full(len(rows), "conv_transpose")
    if rows.kind != _K.CONV:
        name = "conv_grad_input" if rows.kind == _K.CONV_BACKWARD_DATA else "conv_grad_weight"
        return np.where(depthwise, f"{name}_depthwise", name)
    taps = rows["kernel_d"] * rows["kernel_h"] * rows["kernel_w"]
    grouped = np.where(depthwise, "conv_depthwise", "conv_grouped")
    return np.where(groups > 1, grouped, np.where(taps == 1, "conv_1x1", "conv"))


def _binary_names(rows: Rows, names: TextArray) -> TextArray:
    """Elementwise rows by what they read: two full operands, one and a short one, one."""
    self_named = _self_named(rows)
    operand_bytes = np.maximum(rows["elements"] * rows.element_bytes, 1.0)
    operands = (rows.column("read_bytes") + rows.column("weight_bytes")) / operand_bytes
    arithmetic = _names_one_of(rows, _ARITHMETIC)
    adding = arithmetic | ~_names_one_of(rows, _kernel_table().of_any_dimensions)
    two_operand_kernel = np.where(arithmetic, self_named, "add")
    inputs = rows["inputs"]
    one_operand_kernel = np.where(inputs >= 2, "add_bias", "mul_scalar")
    picked = np.where(
        operands > 1.5, two_operand_kernel, np.where(operands > 0, one_operand_kernel, "zeros")
    )
    return np.where(adding, picked, names)
