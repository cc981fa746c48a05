"""Calls of normalisations, reductions, elementwise operators, pooling, gathers and copies, forward
and backward.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from accelsim.calibration.measurement.operands import (
    ATEN,
    BUILDERS,
    Builder,
    Call,
    Source,
    builds,
)

__all__: list[str] = []

# -- normalisations, softmax, reductions
# -----------------------------------------------------------------------------


def _table(source: Source) -> torch.Tensor:
    return source.values(source.shape["rows"], source.shape["columns"])


def _of_table(function: Callable[[torch.Tensor], Any]) -> Builder:
    def build(source: Source) -> Call:
        x = _table(source)
        return lambda: function(x)

    return build


BUILDERS |= {
    "_softmax": _of_table(lambda x: torch.softmax(x, -1)),
    "_log_softmax": _of_table(lambda x: torch.log_softmax(x, -1)),
    "sum": _of_table(lambda x: x.sum(-1)),
    "var": _of_table(lambda x: x.var(-1)),
    "mean": _of_table(lambda x: x.mean(-1, keepdim=True)),
    "amax": _of_table(lambda x: x.amax(-1)),
    "max_place": _of_table(lambda x: x.max(-1)),
    "arg_place": _of_table(lambda x: x.argmax(-1)),
    "sum_rows": _of_table(lambda x: x.sum(0)),
    "copy": _of_table(lambda x: x.clone()),
}


@builds("mean_spatial")
def _mean_spatial(source: Source) -> Call:
    s = source.shape
    side = max(1, round(s["columns"] ** 0.5))
    x = source.values(1, s["rows"], side, max(1, s["columns"] // side))
    return lambda: x.mean((2, 3))


def _of_stretches(function: Callable[[torch.Tensor], Any]) -> Builder:
    """Reductions whose innermost axis stays: of heads, of a sequence."""

    def build(source: Source) -> Call:
        s = source.shape
        x = source.values(s["outer"], s["columns"], s["inner"])
        return lambda: function(x)

    return build


BUILDERS |= {
    "sum_outer": _of_stretches(lambda x: x.sum(1)),
    "mean_outer": _of_stretches(lambda x: x.mean(1)),
    "amax_outer": _of_stretches(lambda x: x.amax(1)),
}


@builds("_masked_softmax")
def _masked_softmax(source: Source) -> Call:
    """Scores of one head with a mask of keys that leaves out none."""
    x = _table(source)[None, None]
    mask = torch.zeros(x.shape[-1], dtype=torch.bool, device=source.device).expand(x.shape)
    return lambda: ATEN._masked_softmax(x, mask, 3, 2)  # noqa: SLF001


@builds("_softmax_backward_data")
def _softmax_backward(source: Source) -> Call:
    gradient, output = _table(source), torch.softmax(_table(source), -1)
    return lambda: ATEN._softmax_backward_data(gradient, output, -1, source.dtype)  # noqa: SLF001


@builds("_log_softmax_backward_data")
def _log_softmax_backward(source: Source) -> Call:
    gradient, output = _table(source), torch.log_softmax(_table(source), -1)
    return lambda: ATEN._log_softmax_backward_data(gradient, output, -1, source.dtype)  # noqa: SLF001


@builds("native_layer_norm")
def _layer_norm(source: Source) -> Call:
    x = _table(source)
    layer = torch.nn.LayerNorm(
        x.shape[-1], device=source.device, dtype=source.dtype
    ).requires_grad_(False)
    return lambda: layer(x)


@builds("native_layer_norm_backward")
def _layer_norm_backward(source: Source) -> Call:
    x, gradient = _table(source), _table(source)
    width = [x.shape[-1]]
    weight, bias = source.stored(*width), source.stored(*width)
    _, mean, deviation = torch.native_layer_norm(x, width, weight, bias, 1e-5)
    arguments = (gradient, x, width, mean, deviation, weight, bias, [True, True, True])
    return lambda: ATEN.native_layer_norm_backward(*arguments)


@builds("_fused_rms_norm")
def _rms_norm(source: Source) -> Call:
    x, weight = _table(source), source.stored(source.shape["columns"])
    return lambda: functional.rms_norm(x, weight.shape, weight, 1e-5)


def _channels(source: Source) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    s = source.shape
    side = round(s["pixels"] ** 0.5)
    x = source.values(s["batch"], s["channels"], side, side)
    kept = torch.float32 if source.dtype is torch.bfloat16 else source.dtype
    return x, source.values(s["channels"]), source.values(s["channels"], dtype=kept)


@builds("native_batch_norm")
def _batch_norm(source: Source) -> Call:
    x, _, _ = _channels(source)
    layer = (
        torch.nn.BatchNorm2d(x.shape[1], device=source.device, dtype=source.dtype)
        .eval()
        .requires_grad_(False)
    )
    return lambda: layer(x)


@builds("native_batch_norm_train")
def _batch_norm_train(source: Source) -> Call:
    x, _, _ = _channels(source)
    layer = torch.nn.BatchNorm2d(
        x.shape[1], device=source.device, dtype=source.dtype
    ).requires_grad_(False)
    return lambda: layer(x)


@builds("native_batch_norm_backward")
def _batch_norm_backward(source: Source) -> Call:
    x, weight, _ = _channels(source)
    gradient = source.values(*x.shape)
    _, mean, deviation = torch.native_batch_norm(x, weight, weight, None, None, True, 0.1, 1e-5)
    arguments = (gradient, x, weight, None, None, mean, deviation, True, 1e-5, [True, True, True])
    return lambda: ATEN.native_batch_norm_backward(*arguments)


@builds("native_group_norm")
def _group_norm(source: Source) -> Call:
    x, _, _ = _channels(source)
    layer = torch.nn.GroupNorm(
        32, x.shape[1], device=source.device, dtype=source.dtype
    ).requires_grad_(False)
    return lambda: layer(x)


# -- elementwise
# -----------------------------------------------------------------------------------------------------


def _unary(function: Callable[[torch.Tensor], Any]) -> Builder:
    def build(source: Source) -> Call:
        x = source.values(source.shape["elements"])
        return lambda: function(x)

    return build


def _binary(function: Callable[[torch.Tensor, torch.Tensor], Any]) -> Builder:
    def build(source: Source) -> Call:
        x, y = (source.values(source.shape["elements"]) for _ in range(2))
        return lambda: function(x, y)

    return build


BUILDERS |= {
    "relu": _unary(torch.relu),
    "gelu": _unary(functional.gelu),
    "silu": _unary(functional.silu),
    "sigmoid": _unary(torch.sigmoid),
    "gelu_tanh": _unary(lambda x: functional.gelu(x, approximate="tanh")),
    "mish": _unary(functional.mish),
    "sin": _unary(torch.sin),
    "tanh": _unary(torch.tanh),
    "hardswish": _unary(functional.hardswish),
    "hardsigmoid": _unary(functional.hardsigmoid),
    "hardtanh": _unary(functional.relu6),
    "leaky_relu": _unary(functional.leaky_relu),
    "elu": _unary(functional.elu),
    "mul_scalar": _unary(lambda x: x * 0.125),
    "neg": _unary(torch.neg),
    "rsqrt": _unary(torch.rsqrt),
    "pow": _unary(lambda x: x.pow(2)),
    "exp": _unary(torch.exp),
    "zeros": _unary(torch.zeros_like),
    "native_dropout": _unary(lambda x: torch.native_dropout(x, 0.1, train=True)),
    "add": _binary(torch.add),
    "sub": _binary(torch.sub),
    "mul": _binary(torch.mul),
    "div": _binary(torch.div),
    "threshold_backward": _binary(lambda g, x: ATEN.threshold_backward(g, x, 0)),
    "gelu_backward": _binary(ATEN.gelu_backward),
    "gelu_tanh_backward": _binary(lambda g, x: ATEN.gelu_backward(g, x, approximate="tanh")),
    "silu_backward": _binary(ATEN.silu_backward),
    "sigmoid_backward": _binary(ATEN.sigmoid_backward),
    "tanh_backward": _binary(ATEN.tanh_backward),
}


@builds("log")
def _log(source: Source) -> Call:
    x = source.values(source.shape["elements"]).abs_()
    return lambda: torch.log(x)


@builds("to_bf16")
def _to_bf16(source: Source) -> Call:
    x = source.values(source.shape["elements"])
    other = torch.float32 if source.dtype is torch.bfloat16 else torch.bfloat16
    return lambda: x.to(other)


@builds("add_bias")
def _add_bias(source: Source) -> Call:
    """Of few columns in place, as behind a product of what is no matrix."""
    s = source.shape
    width = s.get("columns") or max(1, min(1024, s["elements"] // 16))
    x, bias = source.values(s["elements"] // width, width), source.values(width)
    return (lambda: x.add_(bias)) if "columns" in s else lambda: x + bias


@builds("mul_rows")
def _mul_rows(source: Source) -> Call:
    """A weight of each row: what lies together is a row."""
    s = source.shape
    x, weights = source.values(s["rows"], s["columns"]), source.values(s["rows"], 1)
    return lambda: x * weights


@builds("where")
def _where(source: Source) -> Call:
    """What a causal mask keeps, row by row."""
    x = source.values(source.shape["elements"])
    width = max(1, round(x.numel() ** 0.5))
    place = torch.arange(x.numel(), device=source.device)
    mask = place % width > place // width
    return lambda: x.masked_fill(mask, -1e9)


@builds("_prelu_kernel_backward")
def _prelu_backward(source: Source) -> Call:
    gradient, x = (source.values(source.shape["elements"]) for _ in range(2))
    weight = source.values(1)
    return lambda: ATEN._prelu_kernel_backward(gradient, x, weight)  # noqa: SLF001


@builds("native_dropout_backward")
def _dropout_backward(source: Source) -> Call:
    gradient = source.values(source.shape["elements"])
    mask = gradient > 0
    return lambda: ATEN.native_dropout_backward(gradient, mask, 1.1)


# -- pooling, gathers, copies
# ----------------------------------------------------------------------------------------


def _pooled(source: Source) -> tuple[torch.Tensor, int]:
    """What a convolution and an activation leave: neighbours are alike, and a maximum's branches
    depend on the values.
    """
    s = source.shape
    x = source.stored(s["batch"], s["channels"], s["side"], s["side"])
    smooth = functional.avg_pool2d(x, 3, 1, 1).relu_()
    if source.operator.endswith("_last"):
        smooth = smooth.contiguous(memory_format=torch.channels_last)
    source.written.append(smooth.data)
    return smooth, s["kernel"]


@builds("max_pool2d_with_indices", "max_pool2d_last")
def _max_pool(source: Source) -> Call:
    x, kernel = _pooled(source)
    stride = source.shape.get("stride", 2)
    return lambda: functional.max_pool2d(x, kernel, stride, (kernel - 1) // 2)


@builds("max_pool1d")
def _max_pool_1d(source: Source) -> Call:
    s = source.shape
    x = source.values(s["batch"], s["channels"], s["length"])
    return lambda: functional.max_pool1d(x, s["kernel"])


@builds("avg_pool2d", "avg_pool2d_last")
def _average_pool(source: Source) -> Call:
    x, kernel = _pooled(source)
    return lambda: functional.avg_pool2d(x, kernel, 2, (kernel - 1) // 2)


@builds("_adaptive_avg_pool2d")
def _adaptive_pool(source: Source) -> Call:
    x, kernel = _pooled(source)
    side = max(2, x.shape[-1] // (2 * kernel))
    return lambda: functional.adaptive_avg_pool2d(x, side)


@builds("upsample_nearest2d", "upsample_bilinear2d")
def _upsample(source: Source) -> Call:
    s = source.shape
    x, side = (
        source.values(s["batch"], s["channels"], s["side"], s["side"]),
        s["side"] * s["factor"],
    )
    if source.operator == "upsample_nearest2d":
        return lambda: functional.interpolate(x, size=side, mode="nearest")
    return lambda: functional.interpolate(x, size=side, mode="bilinear")


@builds("upsample_nearest2d_backward", "upsample_bilinear2d_backward")
def _upsample_backward(source: Source) -> Call:
    s = source.shape
    coarse, side = [s["batch"], s["channels"], s["side"], s["side"]], s["side"] * s["factor"]
    gradient = source.values(*coarse[:2], side, side)
    if source.operator == "upsample_nearest2d_backward":
        return lambda: ATEN.upsample_nearest2d_backward(gradient, [side, side], coarse)
    return lambda: ATEN.upsample_bilinear2d_backward(gradient, [side, side], coarse, False)


@builds("max_pool2d_with_indices_backward")
def _max_pool_backward(source: Source) -> Call:
    x, kernel = _pooled(source)
    stride, pad = [2, 2], [(kernel - 1) // 2] * 2
    output, indices = ATEN.max_pool2d_with_indices(x, [kernel] * 2, stride, pad)
    gradient = source.values(*output.shape)
    arguments = (gradient, x, [kernel] * 2, stride, pad, [1, 1], False, indices)
    return lambda: ATEN.max_pool2d_with_indices_backward(*arguments)


@builds("embedding")
def _embedding(source: Source) -> Call:
    s = source.shape
    table, wanted = source.stored(s["table"], s["width"]), source.indices(s["table"], s["lookups"])
    return lambda: functional.embedding(wanted, table)


@builds("embedding_dense_backward")
def _embedding_backward(source: Source) -> Call:
    s = source.shape
    gradient, wanted = (
        source.values(s["lookups"], s["width"]),
        source.indices(s["table"], s["lookups"]),
    )
    return lambda: ATEN.embedding_dense_backward(gradient, wanted, s["table"], -1, False)


@builds("_embedding_bag")
def _embedding_bag(source: Source) -> Call:
    """With gradients wanted, as of a model's tables: without, the framework skips the sizes of the
    bags.
    """
    s = source.shape
    table = source.stored(s["table"], s["width"]).requires_grad_()
    wanted = source.indices(s["table"], s["bags"], s["lookups"] // s["bags"])
    return lambda: functional.embedding_bag(wanted, table, mode="sum")


@builds("im2col", "col2im")
def _unfold(source: Source) -> Call:
    s = source.shape
    kernel, pad, step, side = s["kernel"], s["kernel"] // 2, s["stride"], s["side"]
    if source.operator == "im2col":
        x = source.values(s["batch"], s["channels"], side, side)
        return lambda: functional.unfold(x, kernel, 1, pad, step)
    out = (side + 2 * pad - kernel) // step + 1
    columns = source.values(s["batch"], s["channels"] * kernel**2, out**2)
    return lambda: functional.fold(columns, side, kernel, 1, pad, step)


@builds("pixel_shuffle")
def _pixel_shuffle(source: Source) -> Call:
    s = source.shape
    x = source.values(s["batch"], s["channels"] * s["factor"] ** 2, s["side"], s["side"])
    return lambda: functional.pixel_shuffle(x, s["factor"])


@builds("grid_sampler_2d")
def _grid_sample(source: Source) -> Call:
    """Images read at places between their pixels."""
    s = source.shape
    x = source.values(s["batch"], s["channels"], s["side"], s["side"])
    grid = source.values(s["batch"], s["places"], s["places"], 2).clamp_(-1.0, 1.0)
    return lambda: functional.grid_sample(x, grid, align_corners=True)


@builds("constant_pad_nd")
def _pad(source: Source) -> Call:
    s = source.shape
    x = source.values(s["batch"], s["channels"], s["side"], s["side"])
    return lambda: functional.pad(x, [s["pad"]] * 4)


@builds("reflection_pad1d")
def _reflected(source: Source) -> Call:
    s = source.shape
    x = source.values(1, s["channels"], s["length"])
    return lambda: functional.pad(x, [3, 3], "reflect")


@builds("clone")
def _clone(source: Source) -> Call:
    """Heads to the front or back: the innermost axis stays."""
    s = source.shape
    x = source.values(s["rows"], s["middle"], s["columns"]).transpose(0, 1)
    call: Call = x.contiguous
    return call


@builds("clone_strided")
def _clone_strided(source: Source) -> Call:
    """Rows and columns change places."""
    s = source.shape
    call: Call = source.values(s["batch"], s["rows"], s["columns"]).transpose(1, 2).contiguous
    return call


@builds("add_strided")
def _add_strided(source: Source) -> Call:
    s = source.shape
    x, y = (
        source.values(s["batch"], s["columns"], s["rows"]),
        source.values(s["batch"], s["rows"], s["columns"]),
    )
    return lambda: x + y.transpose(1, 2)


@builds("cat")
def _cat(source: Source) -> Call:
    s = source.shape
    parts = [source.values(s["rows"], s["columns"] * s["middle"] // 2) for _ in range(2)]
    return lambda: torch.cat(parts, -1)


@builds("topk")
def _topk(source: Source) -> Call:
    x, chosen = _table(source), source.shape.get("k", 2)
    return lambda: torch.topk(x, chosen, -1)


@builds("index")
def _index(source: Source) -> Call:
    x = _table(source)
    chosen = source.indices(x.shape[0], x.shape[0])
    return lambda: x[chosen]


@builds("stack")
def _stack(source: Source) -> Call:
    """Features side by side, sample by sample."""
    s = source.shape
    parts = [source.values(s["rows"], s["columns"]) for _ in range(s["parts"])]
    return lambda: torch.stack(parts, 1)


@builds("index_add", "index_put")
def _index_add(source: Source) -> Call:
    """Rows added where indices say: messages of a graph's nodes, and the gradient of rows that were
    looked up.
    """
    s = source.shape
    target, values = source.values(s["table"], s["width"]), source.values(s["lookups"], s["width"])
    chosen = source.indices(s["table"], s["lookups"])
    if source.operator == "index_add":
        return lambda: target.index_add(0, chosen, values)
    return lambda: ATEN.index_put(target, [chosen], values, True)


@builds("scatter")
def _scatter(source: Source) -> Call:
    s = source.shape
    target, values = source.values(s["table"], s["width"]), source.values(s["lookups"], s["width"])
    chosen = source.indices(s["table"], s["lookups"], s["width"])
    return lambda: target.scatter_add(0, chosen, values)


@builds("gather")
def _gather(source: Source) -> Call:
    x = _table(source)
    chosen = source.indices(x.shape[1], *x.shape)
    return lambda: torch.gather(x, 1, chosen)
