"""Which library kernel runs each row of a graph.

Kernels are named after the framework's operators as captures name them, because two operators of
one kind (a product with weights and one of a gradient) are different code. Shapes decide further:
thin products, attention with a single query, and what `convolutions` tells of those.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from accelsim.cost.cpu.convolutions import conv_names
from accelsim.cost.cpu.recurrent_steps import SINGLE_ROWS
from accelsim.workloads.dtype import DTYPE_BYTES, Dtype
from accelsim.workloads.graph import OperatorGraph
from accelsim.workloads.operator import CONV_KINDS, SORTED_WIDTH, OperatorKind, Phase
from accelsim.workloads.variant import Trait, Variant, variant

__all__ = [
    "MIRROR_PADDING",
    "NARROW_COLUMNS",
    "RESAMPLING",
    "THIN_ROWS",
    "compiled_names",
    "kernel_names",
    "substitute",
]

_K = OperatorKind
_SOFTMAX: Final = tuple(
    f"{name}{way}" for name in ("_softmax", "_log_softmax") for way in ("", "_backward_data")
)
_ALIASES = {
    "adam": "adamw",
    "lamb": "adamw",
    "momentum": "sgd",
    "_to_copy": "to_bf16",
    "select_backward": "copy",
    "slice_backward": "copy",
    "relu6": "hardtanh",
    "threshold": "relu",
    "_safe_softmax": "_softmax",
    **dict.fromkeys(("fill", "full", "ones"), "zeros"),
    **dict.fromkeys(("expand", "contiguous"), "clone"),
    "stack": "cat",
    "adaptive_avg_pool2d": "_adaptive_avg_pool2d",
    "square": "pow",
    "addcmul": "mul",
    "masked_fill": "where",
    "gelu.tanh": "gelu_tanh",
    "gelu_backward.tanh": "gelu_tanh_backward",
    "max_pool2d_with_indices.1d": "max_pool1d",
    "max_pool2d_with_indices.last": "max_pool2d_last",
    **dict.fromkeys(("avg_pool2d.last", "_adaptive_avg_pool2d.last"), "avg_pool2d_last"),
    "cos": "sin",
    "erf": "sin",
    **dict.fromkeys(("softplus", "celu"), "elu"),
    **dict.fromkeys(
        ("hardtanh_backward", "hardswish_backward", "leaky_relu_backward"), "threshold_backward"
    ),
    **dict.fromkeys(("max", "amin"), "amax"),
    **dict.fromkeys(("max.place", "min.place", "all", "any"), "max_place"),
    **dict.fromkeys(("argmax.place", "argmin.place"), "arg_place"),
    "glu": "silu",
    "bernoulli": "native_dropout",
    # element by element: along the last axis as gathers are measured, across as additions are
    **dict.fromkeys(("scatter", "scatter_add", "scatter_reduce"), "gather"),
    **dict.fromkeys(
        ("gather.across", "scatter.across", "scatter_add.across", "scatter_reduce.across"),
        "scatter",
    ),
    **dict.fromkeys(("scatter_add.rows", "scatter_reduce.rows", "index_copy"), "index_add"),
    **dict.fromkeys(("_index_put_impl", "_unsafe_index_put"), "index_put"),
    "mse_loss": "mean",
    "sum.outer": "sum_rows",
    "mean.outer": "mean_outer",
    "amax.outer": "amax_outer",
    "amin.outer": "amax_outer",
    "log_sigmoid_forward": "elu",
    **dict.fromkeys(("elu_backward", "softplus_backward", "glu_backward"), "silu_backward"),
    **dict.fromkeys(("var_mean", "std", "std_mean"), "var"),
    "pixel_unshuffle": "pixel_shuffle",
    "_upsample_nearest_exact2d": "upsample_nearest2d",
    "replication_pad1d": "reflection_pad1d",
    # sequences and volumes, which have no way of their own for channels that lie together
    **dict.fromkeys(
        (
            "upsample_nearest1d",
            "upsample_nearest3d",
            "_upsample_nearest_exact1d",
            "_upsample_nearest_exact3d",
        ),
        "upsample_nearest2d_wide",
    ),
    "upsample_linear1d": "upsample_bilinear2d_wide",
    **dict.fromkeys(
        ("upsample_nearest1d_backward", "upsample_nearest3d_backward"),
        "upsample_nearest2d_backward",
    ),
    **dict.fromkeys(
        (
            "upsample_linear1d_backward",
            "upsample_trilinear3d_backward",
            "upsample_bicubic2d_backward",
        ),
        "upsample_bilinear2d_backward",
    ),
    "max_pool3d_with_indices": "max_pool2d_with_indices",
    **dict.fromkeys(
        (
            "max_pool3d_with_indices_backward",
            "adaptive_max_pool2d_backward",
            "adaptive_max_pool3d_backward",
        ),
        "max_pool2d_with_indices_backward",
    ),
    "sqrt": "rsqrt",
    **dict.fromkeys(("log2", "log10", "log1p"), "log"),
    **{f"{name}.across": f"{name}_across" for name in _SOFTMAX},
    **dict.fromkeys(("cumprod", "cummax", "cummin", "logcumsumexp"), "cumsum"),
    **dict.fromkeys(
        (f"{name}.across" for name in ("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp")),
        "cumsum",
    ),
    **dict.fromkeys(("argsort", "kthvalue", "median"), "sort"),
    **dict.fromkeys(
        (f"{name}.across" for name in ("sort", "argsort", "kthvalue", "median")), "sort"
    ),
    **dict.fromkeys(("norm.outer", "linalg_vector_norm.outer"), "norm_outer"),
    **dict.fromkeys(
        ("rand", "rand_like", "randn_like", "randint", "randint_like", "random"), "randn"
    ),
    **dict.fromkeys(("normal", "normal_functional", "uniform", "exponential"), "randn"),
    **dict.fromkeys(("ge", "lt", "le", "eq", "ne", "isnan", "isinf", "logical_not"), "gt"),
    **dict.fromkeys(("_fft_r2c", "_fft_c2r", "_fft_c2c"), "fft"),
    **dict.fromkeys(
        ("upsample_trilinear3d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"),
        "upsample_bicubic2d",
    ),
    **dict.fromkeys(
        ("reflection_pad3d", "replication_pad2d", "replication_pad3d"), "reflection_pad2d"
    ),
    **dict.fromkeys(
        (
            f"{way}_pad{rank}d_backward"
            for way in ("reflection", "replication")
            for rank in (1, 2, 3)
        ),
        "reflection_pad2d_backward",
    ),
}
#: Kernels known by the operator's own name, whatever its dimensions.
_NAMED = frozenset(
    {
        "relu",
        "gelu",
        "gelu_tanh",
        "mish",
        "sin",
        "log",
        "where",
        "silu",
        "sigmoid",
        "tanh",
        "hardswish",
        "hardsigmoid",
        "hardtanh",
        "leaky_relu",
        "elu",
        "neg",
        "rsqrt",
        "pow",
        "exp",
        "zeros",
        "native_dropout",
        "sub",
        "mul",
        "div",
        "threshold_backward",
        "gelu_backward",
        "gelu_tanh_backward",
        "silu_backward",
        "sigmoid_backward",
        "tanh_backward",
        "_prelu_kernel_backward",
        "to_bf16",
        "native_dropout_backward",
        "clone",
        "cat",
        "copy",
        "topk",
        "index",
        "gather",
        "grid_sampler_2d",
        "index_add",
        "index_put",
        "scatter",
        "max_pool2d_with_indices",
        "max_pool1d",
        "max_pool2d_last",
        "avg_pool2d_last",
        "im2col",
        "col2im",
        "avg_pool2d",
        "_adaptive_avg_pool2d",
        "max_pool2d_with_indices_backward",
        "adamw",
        "sgd",
        "_softmax",
        "_masked_softmax",
        "_log_softmax",
        "_softmax_backward_data",
        "_log_softmax_backward_data",
        *(f"{name}_across" for name in _SOFTMAX),
        "randn",
        "gt",
        "fft",
        "upsample_bicubic2d",
        "reflection_pad2d",
        "reflection_pad2d_backward",
        "add_strided",
        "clone_strided",
        "upsample_nearest2d",
        "upsample_bilinear2d",
        "upsample_nearest2d_wide",
        "upsample_bilinear2d_wide",
        "upsample_nearest2d_backward",
        "upsample_bilinear2d_backward",
        "pixel_shuffle",
        "constant_pad_nd",
        "reflection_pad1d",
    }
)
#: Elementwise kernels whose time depends on how many full operands they read.
_ARITHMETIC: Final = frozenset({"add", "mul", "sub", "div"})
_REDUCTIONS: Final = (
    "mean",
    "amax",
    "var",
    "max_place",
    "arg_place",
    "sum_rows",
    "mean_outer",
    "amax_outer",
)
_SCANS: Final = ("cumsum", "sort", "norm_outer")
_KNOWN_REDUCTIONS: Final = frozenset((*_REDUCTIONS, *_SCANS))
_WAYS: Final = ("", "_backward")
#: Resampling, which takes its elements one by one however they lie.
RESAMPLING: Final = frozenset(
    f"upsample_{name}{way}"
    for name in (
        *("nearest1d", "nearest2d", "nearest3d"),
        *("linear1d", "bilinear2d", "trilinear3d", "bicubic2d"),
    )
    for way in _WAYS
)
#: Padding with what lies at the edge.
MIRROR_PADDING: Final = frozenset(
    f"{name}_pad{rank}d{way}"
    for name in ("reflection", "replication")
    for rank in (1, 2, 3)
    for way in _WAYS
)
#: Operators whose operands' strides cost nothing more.
_ELEMENT_BY_ELEMENT: Final = RESAMPLING | {"_prelu_kernel_backward"}
_COPIES = frozenset({"clone", "copy", "_to_copy", "expand", "contiguous", "cat", "stack"})
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
#: What stands for kernels that a run did not measure.
_STAND_IN = {
    "conv_depthwise_1d": "conv_depthwise",
    "conv_depthwise_plain": "conv_grad_weight_depthwise_plain",
    "conv_transpose_native": "conv_transpose",
    "conv_unfolded": "conv_grouped_plain",
    "conv_grad_input_unfolded": "conv_grad_input",
    "conv_grad_weight_unfolded": "conv_grad_weight",
    "_masked_softmax": "_softmax",
    "linear_rows": "linear_thin",
    "elu": "exp",
    "gelu_tanh": "elu",
    "gelu_tanh_backward": "elu",
    "mish": "tanh",
    "sin": "exp",
    "log": "exp",
    "where": "add",
    "var": "group_norm",
    "max_pool1d": "max_pool2d_with_indices",
    "pixel_shuffle": "clone_strided",
    "grid_sampler_2d": "gather",
    "index_add": "embedding_backward",
    "index_put": "embedding_backward",
    "scatter": "gather",
    "max_place": "amax",
    "arg_place": "max_place",
    "constant_pad_nd": "clone",
    "reflection_pad1d": "clone_strided",
    "cumsum": "sum",
    "sort": "max_place",
    "norm_outer": "amax_outer",
    "randn": "native_dropout",
    "gt": "mul_scalar",
    "fft": "mul_scalar",
    "upsample_bicubic2d": "clone_strided",
    "reflection_pad2d": "clone",
    "reflection_pad2d_backward": "clone",
    "_prelu_kernel_backward": "where",
    "max_pool2d_last": "max_pool2d_with_indices",
    "avg_pool2d_last": "avg_pool2d",
    **dict.fromkeys(("im2col", "col2im"), "clone_strided"),
    **{f"upsample_nearest2d{way}": "clone" for way in ("", "_wide", "_backward")},
    **{f"upsample_bilinear2d{way}": "clone_strided" for way in ("", "_wide", "_backward")},
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
    (_K.ELEMENTWISE,): _COMPILED_LOOP,
    (_K.LAYER_NORM, _K.RMS_NORM): "compiled_layer_norm",
    (_K.SOFTMAX,): "compiled_softmax",
}
#: Height plus width of a resampled image up to which the framework takes its kernel for channels
#: that lie together.
_NARROW_IMAGE = 128
#: Columns up to which the math library multiplies in fp32 with vectors, of weights and others
#: alike.
NARROW_COLUMNS = 4
#: Rows up to which a product has a kernel of its own.
THIN_ROWS = 16


def _own_kernel(version: Variant) -> str:
    """The kernel that an operator names itself."""
    is_strided = version.traits & Trait.STRIDED
    if is_strided and version.operation not in _ELEMENT_BY_ELEMENT:
        return "clone_strided" if version.operation in _COPIES else "add_strided"
    return _ALIASES.get(version.label, version.label)


@lru_cache(maxsize=16)
def _own_kernels(count: int) -> NDArray[np.str_]:
    """`_own_kernel` of the first codes."""
    return np.array([_own_kernel(variant(code)) for code in range(count)], dtype="<U60")


@lru_cache(maxsize=64)
def _own_among(kernels: frozenset[str], count: int) -> NDArray[np.bool_]:
    """Which of the first codes name one of some kernels."""
    return np.array([name in kernels for name in _own_kernels(count).tolist()], dtype=bool)


def _names_one_of(
    graph: OperatorGraph, rows: NDArray[np.int64], kernels: frozenset[str]
) -> NDArray[np.bool_]:
    """Which rows name one of some kernels themselves, shape (k,)."""
    codes = graph.variant[rows]
    found: NDArray[np.bool_] = _own_among(kernels, int(codes.max(initial=0)) + 1)[codes]
    return found


def _own(graph: OperatorGraph, rows: NDArray[np.int64]) -> NDArray[np.str_]:
    """The kernels that rows name themselves, shape (k,)."""
    codes = graph.variant[rows]
    found: NDArray[np.str_] = _own_kernels(int(codes.max(initial=0)) + 1)[codes]
    return found


def substitute(kernel: str) -> str:
    """The kernel that stands for one that was not measured: of a version of it, the kernel itself.

    Args:
        kernel: A kernel's name; returned as it is where nothing stands for it.
    """
    if kernel.startswith("gru_"):
        return "gru"
    return _STAND_IN.get(
        kernel,
        kernel.replace("_volume", "")
        .removesuffix("_plain")
        .removesuffix("_outer")
        .removesuffix("_across"),
    )


def kernel_names(graph: OperatorGraph, *, is_training: bool, threads: int = 1) -> NDArray[np.str_]:
    """Kernel of each row, shape (n,); empty where none is known.

    Args:
        graph: Operators, n rows.
        is_training: Whether the graph has backward rows.
        threads: Threads of the framework, on which its choice of a convolution library depends.
    """
    names = np.zeros(len(graph), dtype="<U40")
    backward = graph.phase == int(Phase.BACKWARD)
    for kind, rows in graph.rows_by_kind():
        names[rows] = (
            conv_names(graph, kind, rows, threads)
            if kind in CONV_KINDS
            else _names_of(graph, kind, rows, backward[rows], is_training)
        )
    return names


def compiled_names(
    graph: OperatorGraph, names: NDArray[np.str_], known: Collection[str]
) -> NDArray[np.str_]:
    """Kernels of a graph that a compiler generates loops for, shape (n,): elementwise chains,
    forward norms and softmax.

    Args:
        graph: Operators, fused, n rows.
        names: Kernels that run without the compiler, shape (n,).
        known: Kernels that were measured; others stay as they are.
    """
    backward = graph.phase == int(Phase.BACKWARD)
    for kinds, kernel in _COMPILED.items():
        if kernel in known:
            own = np.isin(graph.kind, [int(kind) for kind in kinds]) & (
                ~backward | (kernel == _COMPILED_LOOP)
            )
            names = np.where(own, kernel, names)
    return names


def _names_of(
    graph: OperatorGraph,
    kind: OperatorKind,
    rows: NDArray[np.int64],
    backward: NDArray[np.bool_],
    is_training: bool,
) -> NDArray[np.str_]:
    if kind == _K.GEMM:
        m, n = (graph.dimension(name, rows, kind) for name in ("m", "n"))
        narrow = (n <= NARROW_COLUMNS) & (DTYPE_BYTES[graph.dtype[rows]] == 4) & ~backward
        weights = (graph.weight_bytes[rows] > 0) | narrow
        thin = np.where(_single_rows(graph, rows), "linear_rows", "linear_thin")
        forward = np.where(weights, np.where(m <= THIN_ROWS, thin, "linear"), "mm_nn")
        return np.where(backward, np.where(weights, "mm_nn", "mm_tn"), forward)
    if kind == _K.ATTENTION:
        return np.where(graph.dimension("q_len", rows, kind) <= 4, "attention_decode", "attention")
    if kind in _BY_PHASE:
        inference, training, gradient = _BY_PHASE[kind]
        own = graph.has_trait(Trait.OWN_STATISTICS)[rows]
        return np.where(backward, gradient, np.where(own | is_training, training, inference))
    if kind == _K.REDUCTION:
        plain = _own(graph, rows)
        inner = np.where(_names_one_of(graph, rows, _KNOWN_REDUCTIONS), plain, "sum")
        return np.where(
            backward & ~np.isin(inner, ["max_place", "arg_place", *_SCANS]), "sum_rows", inner
        )
    default = _BY_KIND.get(kind, "")
    named = _own(graph, rows)
    found = np.where(_names_one_of(graph, rows, _NAMED), named, default)
    if kind == _K.POOLING and is_training:  # which keeps where each maximum was
        return np.where(found == "max_pool1d", "max_pool2d_with_indices", found)
    further = {_K.COPY: _copy_names, _K.ELEMENTWISE: _binary_names, _K.SCATTER: _scatter_names}.get(
        kind
    )
    return further(graph, rows, found) if further else found


def _single_rows(graph: OperatorGraph, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Products whose rows the math library multiplies one by one, as a matrix and a vector, shape
    (k,).
    """
    m, batch = (graph.dimension(name, rows, _K.GEMM) for name in ("m", "batch"))
    own = (graph.weight_bytes[rows] > 0) & (graph.dtype[rows] == int(Dtype.FP32))
    single: NDArray[np.bool_] = (m <= SINGLE_ROWS) & (batch <= 1) & own
    return single


def _copy_names(
    graph: OperatorGraph, rows: NDArray[np.int64], names: NDArray[np.str_]
) -> NDArray[np.str_]:
    """Small images are resampled with their channels together, wide ones line by line (ATen
    UpSampleKernel.cpp).
    """
    sides = graph.dimension("out_h", rows, _K.COPY) + graph.dimension("out_w", rows, _K.COPY)
    wide = (sides > _NARROW_IMAGE) & np.isin(names, ["upsample_nearest2d", "upsample_bilinear2d"])
    return np.where(wide, np.char.add(names, "_wide"), names)


def _scatter_names(
    graph: OperatorGraph, rows: NDArray[np.int64], names: NDArray[np.str_]
) -> NDArray[np.str_]:
    """Rows of 16 elements or more are sorted by index and added as rows, shorter ones element by
    element.

    ATen ScatterGatherKernel.cpp, can_use_expanded_index_path.
    """
    short = (names == "index_add") & (graph.dimension("width", rows, _K.SCATTER) < SORTED_WIDTH)
    return np.where(short, "scatter", names)


def _binary_names(
    graph: OperatorGraph, rows: NDArray[np.int64], names: NDArray[np.str_]
) -> NDArray[np.str_]:
    """Elementwise rows by what they read: two full operands, one and a short one, one."""
    plain = _own(graph, rows)
    elements, width = (
        graph.dimension("elements", rows, _K.ELEMENTWISE),
        DTYPE_BYTES[graph.dtype[rows]],
    )
    operands = (graph.read_bytes[rows] + graph.weight_bytes[rows]) / np.maximum(
        elements * width, 1.0
    )
    adding = _names_one_of(graph, rows, _ARITHMETIC) | ~_names_one_of(graph, rows, _NAMED)
    two = np.where(_names_one_of(graph, rows, _ARITHMETIC), plain, "add")
    inputs = graph.dimension("inputs", rows, _K.ELEMENTWISE)
    one = np.where(inputs >= 2, "add_bias", "mul_scalar")
    picked = np.where(operands > 1.5, two, np.where(operands > 0, one, "zeros"))
    return np.where(adding, picked, names)
