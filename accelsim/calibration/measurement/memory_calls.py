"""Calls of operators bound by memory: norms, reductions, elementwise operators, pooling, lookups
and copies, forward and backward.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from accelsim.calibration.measurement.operands import BUILDERS, Call, Operands, builds, of

__all__: list[str] = []

_ATEN = torch.ops.aten
_ROWS, _ACROSS, _LINE = "rows columns", "outer columns inner", "elements"
_IMAGE = "batch channels side side"

# -- softmax, norms, reductions, scans

_ROW_FUNCTIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "_softmax": lambda x: torch.softmax(x, -1),
    "_log_softmax": lambda x: torch.log_softmax(x, -1),
    "sum": lambda x: x.sum(-1),
    "var": lambda x: x.var(-1),
    "mean": lambda x: x.mean(-1, keepdim=True),
    "amax": lambda x: x.amax(-1),
    "max_place": lambda x: x.max(-1),
    "arg_place": lambda x: x.argmax(-1),
    "sum_rows": lambda x: x.sum(0),
    "cumsum": lambda x: x.cumsum(-1),
    "sort": lambda x: x.sort(-1),
    "copy": lambda x: x.clone(),
}
#: Of the middle of three axes: the innermost stays.
_MIDDLE_FUNCTIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "_softmax_across": lambda x: torch.softmax(x, 1),
    "_log_softmax_across": lambda x: torch.log_softmax(x, 1),
    "cumsum_across": lambda x: x.cumsum(1),
    "norm_outer": lambda x: torch.linalg.vector_norm(x, dim=1),
    "sum_outer": lambda x: x.sum(1),
    "mean_outer": lambda x: x.mean(1),
    "amax_outer": lambda x: x.amax(1),
}
BUILDERS |= {name: of(function, _ROWS) for name, function in _ROW_FUNCTIONS.items()}
BUILDERS |= {name: of(function, _ACROSS) for name, function in _MIDDLE_FUNCTIONS.items()}


@builds("mean_spatial")
def _mean_spatial(source: Operands) -> Call:
    rows, columns = source.sizes(_ROWS)
    side = max(1, round(columns**0.5))
    x = source.values(1, rows, side, max(1, columns // side))
    return lambda: x.mean((2, 3))


@builds("_masked_softmax")
def _masked_softmax(source: Operands) -> Call:
    """Scores of one head with a mask of keys that leaves out none."""
    x = source.operand(_ROWS)[None, None]
    mask = torch.zeros(x.shape[-1], dtype=torch.bool, device=source.device).expand(x.shape)
    return lambda: _ATEN._masked_softmax(x, mask, 3, 2)  # noqa: SLF001


@builds(
    "_softmax_backward_data",
    "_log_softmax_backward_data",
    "_softmax_backward_data_across",
    "_log_softmax_backward_data_across",
)
def _softmax_backward(source: Operands) -> Call:
    across = source.operator.endswith("across")
    gradient, scores = (source.operand(_ACROSS if across else _ROWS) for _ in range(2))
    output = torch.softmax(scores, 1)
    is_log = source.operator.startswith("_log")
    function = _ATEN._log_softmax_backward_data if is_log else _ATEN._softmax_backward_data  # noqa: SLF001
    return lambda: function(gradient, output, 1, source.dtype)


@builds("fft", "fft_across")
def _spectrum(source: Operands) -> Call:
    """In 32 bits, as the library has no transform of fewer."""
    names = _ACROSS if source.operator.endswith("across") else _ROWS
    x = source.values(*source.sizes(names), dtype=torch.float32)
    return lambda: torch.fft.rfft(x, dim=1)


@builds("native_layer_norm")
def _layer_norm(source: Operands) -> Call:
    x = source.operand(_ROWS)
    layer = source.layer(torch.nn.LayerNorm, x.shape[-1]).requires_grad_(False)
    return lambda: layer(x)


@builds("native_layer_norm_backward")
def _layer_norm_backward(source: Operands) -> Call:
    x, gradient = source.operand(_ROWS), source.operand(_ROWS)
    width = [x.shape[-1]]
    weight, bias = source.table(*width), source.table(*width)
    _, mean, deviation = torch.native_layer_norm(x, width, weight, bias, 1e-5)
    arguments = (gradient, x, width, mean, deviation, weight, bias, [True, True, True])
    return lambda: _ATEN.native_layer_norm_backward(*arguments)


@builds("_fused_rms_norm")
def _rms_norm(source: Operands) -> Call:
    x, weight = source.operand(_ROWS), source.operand("table: columns")
    return lambda: functional.rms_norm(x, weight.shape, weight, 1e-5)


def _channels(source: Operands) -> torch.Tensor:
    side = round(source.shape["pixels"] ** 0.5)
    return source.values(*source.sizes("batch channels"), side, side)


@builds("native_batch_norm", "native_batch_norm_train", "native_group_norm")
def _channel_norm(source: Operands) -> Call:
    x = _channels(source)
    if source.operator == "native_group_norm":
        layer = source.layer(torch.nn.GroupNorm, 32, x.shape[1])
    else:
        layer = source.layer(torch.nn.BatchNorm2d, x.shape[1])
    layer.train(source.operator.endswith("train")).requires_grad_(False)
    return lambda: layer(x)


@builds("native_batch_norm_backward")
def _batch_norm_backward(source: Operands) -> Call:
    x = _channels(source)
    weight, gradient = source.table(x.shape[1]), source.values(*x.shape)
    _, mean, deviation = torch.native_batch_norm(x, weight, weight, None, None, True, 0.1, 1e-5)
    arguments = (gradient, x, weight, None, None, mean, deviation, True, 1e-5, [True, True, True])
    return lambda: _ATEN.native_batch_norm_backward(*arguments)


# -- elementwise

_UNARY: dict[str, Callable[[torch.Tensor], Any]] = {
    "relu": torch.relu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "silu": functional.silu,
    "sigmoid": torch.sigmoid,
    "mish": functional.mish,
    "sin": torch.sin,
    "tanh": torch.tanh,
    "hardswish": functional.hardswish,
    "hardsigmoid": functional.hardsigmoid,
    "hardtanh": functional.relu6,
    "leaky_relu": functional.leaky_relu,
    "elu": functional.elu,
    "mul_scalar": lambda x: x * 0.125,
    "neg": torch.neg,
    "rsqrt": torch.rsqrt,
    "pow": lambda x: x.pow(2),
    "exp": torch.exp,
    "zeros": torch.zeros_like,
    "randn": torch.randn_like,
    "gt": lambda x: x > 0,
    "native_dropout": lambda x: torch.native_dropout(x, 0.1, train=True),
}
_BINARY: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "threshold_backward": lambda g, x: _ATEN.threshold_backward(g, x, 0),
    "gelu_backward": _ATEN.gelu_backward,
    "gelu_tanh_backward": lambda g, x: _ATEN.gelu_backward(g, x, approximate="tanh"),
    "silu_backward": _ATEN.silu_backward,
    "sigmoid_backward": _ATEN.sigmoid_backward,
    "tanh_backward": _ATEN.tanh_backward,
}
BUILDERS |= {name: of(function, _LINE) for name, function in _UNARY.items()}
BUILDERS |= {name: of(function, _LINE, _LINE) for name, function in _BINARY.items()}
BUILDERS["mul_rows"] = of(torch.mul, _ROWS, "rows 1")
BUILDERS["_prelu_kernel_backward"] = of(
    _ATEN._prelu_kernel_backward,  # noqa: SLF001
    _LINE,
    _LINE,
    "table: 1",
)


@builds("log")
def _log(source: Operands) -> Call:
    x = source.operand(_LINE).abs_()
    return lambda: torch.log(x)


@builds("to_bf16")
def _to_bf16(source: Operands) -> Call:
    x = source.operand(_LINE)
    other = torch.float32 if source.dtype is torch.bfloat16 else torch.bfloat16
    return lambda: x.to(other)


@builds("add_bias")
def _add_bias(source: Operands) -> Call:
    """Of few columns in place, as behind a product of what is no matrix."""
    elements = source.shape["elements"]
    width = source.shape.get("columns") or max(1, min(1024, elements // 16))
    x, bias = source.values(elements // width, width), source.table(width)
    in_place = "columns" in source.shape
    return (lambda: x.add_(bias)) if in_place else (lambda: x + bias)


@builds("add_strided")
def _add_strided(source: Operands) -> Call:
    x, y = source.operand("batch columns rows"), source.operand("batch rows columns")
    return lambda: x + y.transpose(1, 2)


@builds("where")
def _where(source: Operands) -> Call:
    """What a causal mask keeps, row by row."""
    x = source.operand(_LINE)
    width = max(1, round(x.numel() ** 0.5))
    place = torch.arange(x.numel(), device=source.device)
    mask = place % width > place // width
    return lambda: x.masked_fill(mask, -1e9)


@builds("native_dropout_backward")
def _dropout_backward(source: Operands) -> Call:
    gradient = source.operand(_LINE)
    mask = gradient > 0
    return lambda: _ATEN.native_dropout_backward(gradient, mask, 1.1)


# -- pooling, resampling


def _activated(source: Operands) -> torch.Tensor:
    """What a convolution and an activation leave: neighbours are alike, and a maximum's branches
    depend on the values.
    """
    smooth = functional.avg_pool2d(source.operand(f"stored: {_IMAGE}"), 3, 1, 1).relu_()
    if source.operator.endswith("_last"):
        smooth = smooth.contiguous(memory_format=torch.channels_last)
    source.written.append(smooth.data)
    return smooth


@builds(
    "max_pool2d_with_indices",
    "max_pool2d_last",
    "avg_pool2d",
    "avg_pool2d_last",
    "_adaptive_avg_pool2d",
)
def _pool(source: Operands) -> Call:
    x, kernel = _activated(source), source.shape["kernel"]
    stride, pad = source.shape.get("stride", 2), (kernel - 1) // 2
    if source.operator.startswith("max"):
        return lambda: functional.max_pool2d(x, kernel, stride, pad)
    if source.operator.startswith("avg"):
        return lambda: functional.avg_pool2d(x, kernel, stride, pad)
    side = max(2, x.shape[-1] // (2 * kernel))
    return lambda: functional.adaptive_avg_pool2d(x, side)


@builds("max_pool2d_with_indices_backward")
def _max_pool_backward(source: Operands) -> Call:
    x, kernel = _activated(source), source.shape["kernel"]
    window = ([kernel] * 2, [2, 2], [(kernel - 1) // 2] * 2)
    output, indices = _ATEN.max_pool2d_with_indices(x, *window)
    gradient = source.values(*output.shape)
    arguments = (gradient, x, *window, [1, 1], False, indices)
    return lambda: _ATEN.max_pool2d_with_indices_backward(*arguments)


@builds("max_pool1d")
def _max_pool_1d(source: Operands) -> Call:
    x, kernel = source.operand("batch channels length"), source.shape["kernel"]
    return lambda: functional.max_pool1d(x, kernel)


@builds("upsample_nearest2d", "upsample_bilinear2d", "upsample_bicubic2d")
def _upsample(source: Operands) -> Call:
    x = source.operand(_IMAGE)
    mode = source.operator.removeprefix("upsample_").removesuffix("2d")
    side = source.shape["side"] * source.shape["factor"]
    return lambda: functional.interpolate(x, size=side, mode=mode)


@builds("upsample_nearest2d_backward", "upsample_bilinear2d_backward")
def _upsample_backward(source: Operands) -> Call:
    coarse = source.sizes(_IMAGE)
    fine = [source.shape["side"] * source.shape["factor"]] * 2
    gradient = source.values(*coarse[:2], *fine)
    if source.operator == "upsample_nearest2d_backward":
        return lambda: _ATEN.upsample_nearest2d_backward(gradient, fine, coarse)
    return lambda: _ATEN.upsample_bilinear2d_backward(gradient, fine, coarse, False)


# -- lookups


def _wanted(source: Operands) -> torch.Tensor:
    return source.indices(source.shape["table"], source.shape["lookups"])


@builds("embedding")
def _embedding(source: Operands) -> Call:
    table, wanted = source.operand("table: table width"), _wanted(source)
    return lambda: functional.embedding(wanted, table)


@builds("embedding_dense_backward")
def _embedding_backward(source: Operands) -> Call:
    gradient, wanted = source.operand("lookups width"), _wanted(source)
    rows = source.shape["table"]
    return lambda: _ATEN.embedding_dense_backward(gradient, wanted, rows, -1, False)


@builds("_embedding_bag")
def _embedding_bag(source: Operands) -> Call:
    """With gradients wanted, as of a model's tables: without, the framework skips the sizes of the
    bags.
    """
    table = source.operand("table: table width").requires_grad_()
    wanted = _wanted(source).view(source.shape["bags"], -1)
    return lambda: functional.embedding_bag(wanted, table, mode="sum")


@builds("index_add", "index_put", "scatter")
def _add_rows(source: Operands) -> Call:
    """Rows added where indices say: messages of a graph's nodes, and the gradient of rows that were
    looked up.
    """
    target, values = source.operand("table width"), source.operand("lookups width")
    if source.operator == "scatter":
        places = source.indices(target.shape[0], *values.shape)
        return lambda: target.scatter_add(0, places, values)
    chosen = _wanted(source)
    if source.operator == "index_add":
        return lambda: target.index_add(0, chosen, values)
    return lambda: _ATEN.index_put(target, [chosen], values, True)


@builds("topk")
def _topk(source: Operands) -> Call:
    x, chosen = source.operand(_ROWS), source.shape.get("k", 2)
    return lambda: torch.topk(x, chosen, -1)


@builds("index")
def _index(source: Operands) -> Call:
    x = source.operand(_ROWS)
    chosen = source.indices(x.shape[0], x.shape[0])
    return lambda: x[chosen]


@builds("gather")
def _gather(source: Operands) -> Call:
    x = source.operand(_ROWS)
    chosen = source.indices(x.shape[1], *x.shape)
    return lambda: torch.gather(x, 1, chosen)


@builds("grid_sampler_2d")
def _grid_sample(source: Operands) -> Call:
    """Images read at places between their pixels."""
    x, grid = source.operand(_IMAGE), source.operand("batch places places 2").clamp_(-1.0, 1.0)
    return lambda: functional.grid_sample(x, grid, align_corners=True)


# -- copies


@builds("clone")
def _clone(source: Operands) -> Call:
    """Heads to the front or back: the innermost axis stays."""
    call: Call = source.operand("rows middle columns").transpose(0, 1).contiguous
    return call


@builds("clone_strided")
def _clone_strided(source: Operands) -> Call:
    """Rows and columns change places."""
    call: Call = source.operand("batch rows columns").transpose(1, 2).contiguous
    return call


@builds("cat")
def _cat(source: Operands) -> Call:
    rows, middle, columns = source.sizes("rows middle columns")
    parts = [source.values(rows, columns * middle // 2) for _ in range(2)]
    return lambda: torch.cat(parts, -1)


@builds("stack")
def _stack(source: Operands) -> Call:
    """Features side by side, sample by sample."""
    parts = [source.operand(_ROWS) for _ in range(source.shape["parts"])]
    return lambda: torch.stack(parts, 1)


@builds("im2col", "col2im")
def _unfold(source: Operands) -> Call:
    kernel, stride, side = source.sizes("kernel stride side")
    batch, channels = source.sizes("batch channels")
    pad = kernel // 2
    if source.operator == "im2col":
        x = source.operand(_IMAGE)
        return lambda: functional.unfold(x, kernel, 1, pad, stride)
    out = (side + 2 * pad - kernel) // stride + 1
    columns = source.values(batch, channels * kernel**2, out**2)
    return lambda: functional.fold(columns, side, kernel, 1, pad, stride)


@builds("pixel_shuffle")
def _pixel_shuffle(source: Operands) -> Call:
    batch, channels, side, factor = source.sizes("batch channels side factor")
    x = source.values(batch, channels * factor**2, side, side)
    return lambda: functional.pixel_shuffle(x, factor)


@builds("constant_pad_nd", "reflection_pad2d")
def _pad(source: Operands) -> Call:
    x, pads = source.operand(_IMAGE), [source.shape["pad"]] * 4
    mode = "reflect" if source.operator.startswith("reflection") else "constant"
    return lambda: functional.pad(x, pads, mode)


@builds("reflection_pad1d")
def _pad_sequence(source: Operands) -> Call:
    x = source.operand("1 channels length")
    return lambda: functional.pad(x, [3, 3], "reflect")


@builds("reflection_pad2d_backward")
def _pad_backward(source: Operands) -> Call:
    x, pad = source.operand(_IMAGE), source.shape["pad"]
    padded = x.shape[-1] + 2 * pad
    gradient = source.values(*x.shape[:2], padded, padded)
    return lambda: _ATEN.reflection_pad2d_backward(gradient, x, [pad] * 4)
