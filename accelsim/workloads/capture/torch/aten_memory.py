"""Formulas of ATen operators bound by memory: norms, softmax, pooling, gathers, reductions, copies,
elementwise.

Registered in `aten.FORMULAS`. FLOP per element follow `builder`: a norm's backward takes twice its
forward's. An operator without a formula is elementwise when torch tags it pointwise or its name is
known; otherwise `by_bytes` charges what it reads and writes, and the capture says so.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import log2, prod

from accelsim.workloads.capture.torch.aten import (
    Call,
    Kernel,
    Operand,
    backward_of,
    formula,
    inner_tensor,
    made_contiguous,
    names,
    single_kernel,
)
from accelsim.workloads.operator import OWN_STATISTICS, OperatorKind, row_flop
from accelsim.workloads.pointwise import POINTWISE_FLOP

_K = OperatorKind
#: Names that mark an operator as matrix arithmetic: unknown ones are refused, never priced by bytes
#: alone.
CONTRACTION_MARKS = names("mm conv attention einsum linear matmul lstm gru rnn bilinear")
#: Operators that allocate or describe without moving data.
FREE = names(
    """
    empty new_empty new_empty_strided empty_like empty_strided empty_permuted lift_fresh lift detach
    alias is_same_size set_ as_strided_ squeeze_ unsqueeze_ transpose_ t_ detach_
    _sparse_coo_tensor_with_dims_and_tensors _indices _values resize_ _local_scalar_dense
    record_stream sym_size _version _assert_async _assert_scalar _assert_tensor_metadata
    _async_error sym_constrain_range_for_size sym_constrain_range
    """
)
_WRITE_ONLY = names("fill_ zero_ bernoulli_ uniform_ normal_ random_ exponential_ copy_")


def rows_along(x: Operand, axis: int) -> tuple[int, int]:
    """Rows of a tensor along an axis, and the elements of each."""
    columns = x.shape[axis] if x.shape else 1
    return x.elements // max(columns, 1), columns


def elementwise(call: Call) -> list[Kernel]:
    """Each output element from one element of each input; `_foreach` operators sum over their
    lists.
    """
    inputs = _values_read(call)
    results = call.outputs if call.name.startswith("_foreach") else call.outputs[:1]
    written = sum(x.elements for x in results)
    elements = written or max((x.elements for x in inputs), default=0)
    name = call.name.rstrip("_").removeprefix("_foreach_").removesuffix("_backward")
    flop = POINTWISE_FLOP.get(name, 1) if inputs else 0
    form = "tanh" if call.arguments.get("approximate") == "tanh" else ""
    return [Kernel(_K.ELEMENTWISE, (elements, len(inputs), flop), inputs, call.outputs, form)]


def _values_read(call: Call) -> tuple[Operand, ...]:
    """Operands whose values an elementwise operator reads, not their shape alone."""
    if call.name.startswith("new_") or call.name.endswith("_like"):
        return ()
    return call.inputs[1:] if call.name in _WRITE_ONLY else call.inputs


def by_bytes(call: Call) -> list[Kernel]:
    """An operator nothing is known of but its tensors: their bytes, and no arithmetic."""
    elements = max((x.elements for x in (*call.outputs, *call.inputs)), default=0)
    return single_kernel(call, _K.ELEMENTWISE, (elements, len(call.inputs), 0))


#: Gates of one step after their products: 3 sigmoids, 2 tanhs and the state's update per hidden
#: unit (LSTM); backward one pass over gates and gradients.
formula(
    "_thnn_fused_lstm_cell _thnn_fused_gru_cell",
    "_thnn_fused_lstm_cell_backward_impl _thnn_fused_gru_cell_backward",
)(elementwise)


@formula("bucketize searchsorted")
def search(call: Call) -> list[Kernel]:
    """Each value among sorted boundaries, halved until one is left: a comparison a halving."""
    boundaries = call.inputs[1 if call.name == "bucketize" else 0]
    halvings = (boundaries.shape[-1] if boundaries.shape else 1).bit_length()
    dims = (call.outputs[0].elements, len(call.inputs), halvings)
    return single_kernel(call, _K.ELEMENTWISE, dims)


# -- normalisations


def _norm(call: Call, kind: OperatorKind, rows: int, suffix: str = "") -> list[Kernel]:
    """Backward takes twice the FLOP. Estimate: gradients of the input and of the scale."""
    backward = call.is_backward
    dims = (rows, call.inputs[backward].elements // max(rows, 1))
    return single_kernel(call, kind, dims, (1 + backward) * row_flop(kind, dims), suffix)


def _normalized_rows(call: Call) -> int:
    backward = call.is_backward
    columns = prod(call.arguments["normalized_shape"])
    return call.inputs[backward].elements // max(columns, 1)


@formula("native_layer_norm native_layer_norm_backward")
def layer_norm(call: Call) -> list[Kernel]:
    """Over the normalised axes; what is not contiguous is copied first (ATen layer_norm.cpp, .cu).

    784 rows of 192 elements take 58 us, transposed ones 115, the copy alone 56 (EPYC 9005, fp32).
    """
    kernels = _norm(call, _K.LAYER_NORM, _normalized_rows(call))
    return made_contiguous(kernels, *call.inputs[: 1 + call.is_backward])


@formula("_fused_rms_norm _fused_rms_norm_backward")
def rms_norm(call: Call) -> list[Kernel]:
    """Over the normalised axes."""
    return _norm(call, _K.RMS_NORM, _normalized_rows(call))


@formula("native_group_norm native_group_norm_backward")
def group_norm(call: Call) -> list[Kernel]:
    """One row per sample and group."""
    samples = call.inputs[call.is_backward].shape[0]
    return _norm(call, _K.GROUP_NORM, samples * call.arguments["group"])


@formula(
    """
    native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training
    _batch_norm_with_update _batch_norm_no_update cudnn_batch_norm miopen_batch_norm
    native_batch_norm_backward batch_norm_backward cudnn_batch_norm_backward
    """
)
def batch_norm(call: Call) -> list[Kernel]:
    """Channels are axis 1. With statistics of its own (an instance norm) it is named so."""
    x = call.inputs[call.is_backward]
    is_own = call.arguments.get("training") or "with_update" in call.name
    suffix = OWN_STATISTICS if is_own and not call.is_backward else ""
    return _norm(call, _K.BATCH_NORM, rows_along(x, 1)[0], suffix)


# -- softmax, reductions


def across(x: Operand, axis: int) -> str:
    """Suffix of an operator along another axis than the last, whose neighbours lie together."""
    inner = prod(x.shape[axis % len(x.shape) + 1 :]) if x.shape else 1
    return "across" if inner > 1 and x.shape[axis] > 1 else ""


@formula("_softmax _log_softmax _softmax_backward_data _log_softmax_backward_data")
def softmax(call: Call) -> list[Kernel]:
    """Backward takes 4 FLOP per element: product, row sum, difference, product.

    The kernel takes rows as they lie: an operand that is not contiguous is copied first (ATen
    SoftMax.cpp, .cu). Over another axis than the last it goes from vector to vector of neighbours,
    however few the elements of a row. 307,328 scores transposed from heads last take 235 us in 32
    bits and 315 in 16, contiguous ones 168 and 232 (EPYC 9005).
    """
    x = call.inputs[0]
    axis = call.arguments["dim"]
    rows = rows_along(x, axis)
    flop = 4 * x.elements if call.is_backward else row_flop(_K.SOFTMAX, rows)
    return made_contiguous(single_kernel(call, _K.SOFTMAX, rows, flop, across(x, axis)), x)


@formula("_safe_softmax")
def safe_softmax(call: Call) -> list[Kernel]:
    """A softmax, behind which rows of nothing but minus infinity become zeros: looked for, reduced
    and chosen by row.

    In attention that no fused kernel takes (ATen SoftMax.cpp): 1.8 million scores take 0.96 ms, and
    2.35 ms more.
    """
    x, result = call.inputs[0], call.outputs[0]
    count = x.elements
    rows = max(rows_along(x, call.arguments["dim"])[0], 1)
    weights = inner_tensor(x, count)
    flags = replace(weights, element_bytes=1, scaled=False)
    masked = replace(flags, shape=(rows,))
    return [
        *(replace(kernel, writes=(weights,)) for kernel in softmax(call)),
        Kernel(_K.ELEMENTWISE, (count, 1, 1), (weights,), (flags,), "eq"),
        Kernel(_K.REDUCTION, (rows, count // rows), (flags,), (masked,), "all"),
        Kernel(_K.ELEMENTWISE, (count, 2, 1), (masked, weights), (result,), "where"),
    ]


@formula("topk")
def top_k(call: Call) -> list[Kernel]:
    """The choice of experts by a router: tokens x experts; softmax is counted where it is
    called.
    """
    x = call.inputs[0]
    dims = (*rows_along(x, call.arguments["dim"]), call.arguments["k"])
    return single_kernel(call, _K.MOE_ROUTING, dims, 2 * x.elements)


# -- pooling

_FLAT_POOLS = "avg_pool2d avg_pool3d max_pool2d_with_indices max_pool3d_with_indices"
_ADAPTIVE = "_adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_max_pool2d adaptive_max_pool3d"


def _pool(call: Call, x: Operand, small: Operand) -> Kernel:
    """From the positions of x to those of a smaller tensor, by windows of the size that an argument
    says. Estimate: adaptive ones are of the mean size, input over output positions.
    """
    # Axes that it slides along: the number before the first "d" in its name.
    rank = int(call.name.partition("d_")[0].removesuffix("d")[-1])
    channels = x.shape[-rank - 1] if len(x.shape) > rank else 1
    batch = x.shape[0] if len(x.shape) == rank + 2 else 1
    positions, outputs = prod(x.shape[-rank:]), prod(small.shape[-rank:])
    if "adaptive" in call.name:
        volume = max(1, positions // max(outputs, 1))
    else:
        sizes = call.arguments["kernel_size"]
        sizes = sizes if isinstance(sizes, (list, tuple)) else [sizes]
        volume = prod(sizes) if len(sizes) == rank else int(sizes[0]) ** rank
    # Whole vectors of channels.
    is_channels_last = rank == 2 and channels > 1 and x.stride[-3] == 1 and positions > 1
    form = "last" if is_channels_last else ""
    dims = (batch, channels, positions, outputs, volume)
    return single_kernel(call, _K.POOLING, dims, suffix=form)[0]


@formula("avg_pool1d", _FLAT_POOLS, _ADAPTIVE)
def pool(call: Call) -> list[Kernel]:
    """One FLOP per element of each window; a sequence's maximum comes as an image of one line."""
    x = call.inputs[0]
    kernel = _pool(call, x, call.outputs[0])
    is_line = call.name == "max_pool2d_with_indices" and x.shape[-2] == 1
    if is_line and next(iter(call.arguments["kernel_size"])) == 1:
        kernel = replace(kernel, suffix="1d")
    return [kernel]


@formula(backward_of(_FLAT_POOLS), backward_of(_ADAPTIVE))
def pool_backward(call: Call) -> list[Kernel]:
    """Each gradient goes to its window; the picture itself is not read."""
    gradient, image = call.inputs[:2]
    x = call.outputs[0] if "adaptive" in call.name else image
    reads = tuple(operand for operand in call.inputs if operand is not image)
    return [replace(_pool(call, x, gradient), reads=reads, suffix="")]


# -- copies


@formula(
    """
    cat stack clone contiguous _to_copy copy _reshape_copy repeat repeat_interleave flip
    constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d
    replication_pad2d replication_pad3d upsample_nearest1d upsample_nearest3d
    _upsample_nearest_exact1d _upsample_nearest_exact3d upsample_bicubic2d upsample_linear1d
    upsample_trilinear3d _upsample_bilinear2d_aa _upsample_bicubic2d_aa
    upsample_nearest1d_backward upsample_nearest3d_backward upsample_bicubic2d_backward
    upsample_linear1d_backward upsample_trilinear3d_backward
    _upsample_bilinear2d_aa_backward reflection_pad1d_backward reflection_pad2d_backward
    reflection_pad3d_backward replication_pad1d_backward replication_pad2d_backward
    replication_pad3d_backward pixel_shuffle pixel_unshuffle channel_shuffle
    native_channel_shuffle unfold_backward slice_backward select_backward slice_scatter
    select_scatter as_strided_scatter diagonal_scatter diag_embed
    """
)
def copy(call: Call) -> list[Kernel]:
    """Moves its inputs to its output; a copy into a tensor does not read it."""
    inputs = call.inputs[1:] if call.name == "copy_" else call.inputs
    inputs = inputs[:1] if "_pad" in call.name else inputs  # a gradient needs no image
    elements = sum(x.elements for x in call.outputs)
    pieces: tuple[int, ...] = ()
    if call.name == "stack":  # piece by piece
        axis, shape = call.arguments["dim"], call.outputs[0].shape
        pieces = (0, 0, 0, len(inputs) * prod(shape[: axis % len(shape)]))
    return [Kernel(_K.COPY, (elements, *pieces), inputs, call.outputs)]


@formula("roll")
def roll(call: Call) -> list[Kernel]:
    """Moved along one axis after the other, each time into a copy (ATen TensorTransformations.cpp,
    roll_common).

    301,000 floats rolled along two axes take 55 us, copied once 25 (EPYC 9005).
    """
    axes = call.arguments["dims"]
    count = max(1, len(axes)) if isinstance(axes, (list, tuple)) else 1
    result = call.outputs[0]
    between = replace(inner_tensor(result, *result.shape), stride=result.stride)
    tensors = (call.inputs[0], *[between] * (count - 1), result)
    return [Kernel(_K.COPY, (result.elements,), (a,), (b,)) for a, b in pairwise(tensors)]


@formula(
    """
    upsample_nearest2d _upsample_nearest_exact2d upsample_bilinear2d
    upsample_nearest2d_backward upsample_bilinear2d_backward
    """
)
def resample(call: Call) -> list[Kernel]:
    """Images of another size; the gradient has the output's dimensions too."""
    fine = call.inputs[0] if call.name.endswith("_backward") else call.outputs[0]
    return [Kernel(_K.COPY, (fine.elements, *fine.shape[1:]), call.inputs[:1], call.outputs)]


@formula("_fft_r2c _fft_c2r _fft_c2c")
def spectrum(call: Call) -> list[Kernel]:
    """Fast Fourier transform: 2.5 n log2 n FLOP for n numbers, real and imaginary parts apart
    (Cooley and Tukey, 1965).
    """
    x, result = call.inputs[0], call.outputs[0]
    full = result if call.name.endswith("c2r") else x
    rank = len(full.shape)
    axes = {axis % rank for axis in call.arguments["dim"]}
    length = prod(full.shape[axis] for axis in axes)
    elements = full.elements * (2 if call.name.endswith("c2c") else 1)
    element_flop = round(2.5 * log2(max(length, 2)))
    runs = 1 if rank - 1 in axes else elements
    return single_kernel(call, _K.ELEMENTWISE, (elements, 1, element_flop, runs))


@formula("im2col col2im")
def unfold(call: Call) -> list[Kernel]:
    """An image's windows as columns, and columns added up to an image: each element of the columns
    is moved.
    """
    return single_kernel(call, _K.COPY, (max(call.inputs[0].elements, call.outputs[0].elements),))


@formula("split_with_sizes_copy unbind_copy split_copy chunk_cat _foreach_copy")
def list_copy(call: Call) -> list[Kernel]:
    """Moves a list of tensors."""
    elements = sum(x.elements for x in call.outputs) or sum(x.elements for x in call.inputs) // 2
    return single_kernel(call, _K.COPY, (elements,))
