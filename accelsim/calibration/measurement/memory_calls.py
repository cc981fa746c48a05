"""Calls of operators bound by memory: norms, reductions, elementwise operators, pooling, lookups
and copies, forward and backward.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from accelsim.calibration.measurement.operands import Operands, builds
from accelsim.calibration.measurement.timing import Call

_ATEN = torch.ops.aten
_ROWS, _LINE = "rows columns", "elements"
_IMAGE, _WANTED = "batch channels side side", "indices: table lookups"

# -- softmax, norms, reductions, scans


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


@builds("log")
def _log(source: Operands) -> Call:
    x = source.operand(_LINE).abs_()
    return lambda: torch.log(x)


@builds("to_bf16")
def _to_bf16(source: Operands) -> Call:
    x = source.operand(_LINE)
    target = torch.float32 if source.dtype is torch.bfloat16 else torch.bfloat16
    return lambda: x.to(target)


@builds("add_bias")
def _add_bias(source: Operands) -> Call:
    """Of few columns in place, as behind a product of what is no matrix."""
    elements = source.shape["elements"]
    width = source.shape.get("columns") or max(1, min(1024, elements // 16))
    x, bias = source.values(elements // width, width), source.table(width)
    in_place = "columns" in source.shape
    return (lambda: x.add_(bias)) if in_place else (lambda: x + bias)


@builds("where")
def _where(source: Operands) -> Call:
    """What a causal mask keeps, row by row."""
    x = source.operand(_LINE)
    width = max(1, round(x.numel() ** 0.5))
    position = torch.arange(x.numel(), device=source.device)
    mask = position % width > position // width
    return lambda: x.masked_fill(mask, -1e9)


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
    x, (kernel, stride) = _activated(source), source.sizes("kernel stride")
    pad = (kernel - 1) // 2
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


# -- lookups


@builds("index_put")
def _add_rows(source: Operands) -> Call:
    """Rows added where indices say: the gradient of rows that were looked up."""
    target, values = source.operand("table width"), source.operand("lookups width")
    chosen = source.operand(_WANTED)
    return lambda: _ATEN.index_put(target, [chosen], values, True)


@builds("index")
def _index(source: Operands) -> Call:
    x = source.operand(_ROWS)
    chosen = source.indices(x.shape[0], x.shape[0])
    return lambda: x[chosen]


# -- copies


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
