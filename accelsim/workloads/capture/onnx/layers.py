"""ONNX operators of products, convolutions, attention, recurrent layers, norms, pools and
reductions.
"""

from __future__ import annotations

from itertools import chain
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from accelsim.plain import Document
from accelsim.workloads.capture.onnx.registry import (
    Tensors,
    TorchStep,
    operator,
    operators,
    sizes_of,
)

# -- matrices


@operator("MatMul MatMulInteger", 3)
def product(step: TorchStep, a: Tensor, b: Tensor, *bias: Tensor | None) -> Tensor:
    """With a matrix of weights, a linear layer; its bias is what `module` has joined to it."""
    if isinstance(b, torch.nn.Parameter) and b.dim() == 2:
        has_bias = bias and step.node.operator == "MatMul"
        return functional.linear(a, b.t(), bias[0] if has_bias else None)
    return torch.matmul(a, b)


@operator("FusedMatMul")
def scaled_product(step: TorchStep, a: Tensor, b: Tensor) -> Tensor:
    """Either side transposed."""
    a = a.transpose(-1, -2) if step.get("transA") else a
    return product(step, a, b.transpose(-1, -2) if step.get("transB") else b)


@operator("MatMulNBits", 2, 3, 4)
def packed_product(step: TorchStep, a: Tensor, packed: Tensor, *_: Tensor | None) -> Tensor:
    """Weights of N rows of K, packed in blocks: the parameters are those of the matrix."""
    n, k = step.get("N", 0), step.get("K", 0)
    if packed.numel() * 8 != n * k * step.get("bits", 4):
        raise step.refuse(f"packs {packed.numel():,} bytes for a matrix of {n} x {k}")
    return functional.linear(a, packed.new_empty((n, k), dtype=a.dtype))


@operator("Gemm")
def gemm(step: TorchStep, a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """a b + c, either transposed."""
    a = a.t() if step.get("transA") else a
    return functional.linear(a, b if step.get("transB") else b.t(), bias)


operators({"Einsum": lambda step, *tensors: torch.einsum(step.get("equation", ""), *tensors)})


# -- convolutions and pools


class _Window(NamedTuple):
    """Sizes of a window along each axis, the steps it takes, and the distance of its elements."""

    sizes: list[int]
    stride: list[int]
    dilation: list[int]


def _window(step: TorchStep, sizes: list[int]) -> _Window:
    rank = len(sizes)
    if not 1 <= rank <= 3:
        raise step.refuse(f"has a window of {rank} axes: expected 1 to 3")
    return _Window(sizes, *(step.get(name) or [1] * rank for name in ("strides", "dilations")))


def _window_padding(
    step: TorchStep, window: _Window, sizes: list[int]
) -> tuple[list[int], list[int]]:
    """Padding before and after each axis, as attributes or ``auto_pad`` say."""
    rank, mode = len(window.sizes), step.get("auto_pad", "NOTSET")
    if mode.startswith("SAME"):
        is_transposed = step.node.operator == "ConvTranspose"
        totals = [
            _same_padding(*axis, is_transposed=is_transposed)
            for axis in zip(sizes, *window, strict=True)
        ]
        less = [total // 2 for total in totals]
        more = [total - half for total, half in zip(totals, less, strict=True)]
        return (more, less) if mode == "SAME_LOWER" else (less, more)
    pads = (step.get("pads") if mode == "NOTSET" else None) or [0] * (2 * rank)
    if len(pads) != 2 * rank:
        raise step.refuse(f"has {len(pads)} pads for {rank} axes")
    return pads[:rank], pads[rank:]


def _same_padding(
    size: int, window: int, stride: int, dilation: int, *, is_transposed: bool
) -> int:
    """Padding of an axis such that its length is divided by the stride, or multiplied with it.

    ONNX operator specifications, Conv and ConvTranspose, ``auto_pad``; sizes: Dumoulin and Visin,
    arXiv:1603.07285.
    """
    reach = dilation * (window - 1) + 1
    if is_transposed:
        return reach - stride
    return max(0, (-(-size // stride) - 1) * stride + reach - size)


def _padded(
    x: Tensor, before: list[int], after: list[int], value: float = 0.0, *, apart: bool = False
) -> tuple[Tensor, list[int]]:
    """The tensor, padded by an operator of its own where sides differ or that is asked for, and
    what is left to pad.
    """
    if before == after and not apart:
        return x, before
    sides = list(chain.from_iterable(zip(reversed(before), reversed(after), strict=True)))
    return functional.pad(x, sides, value=value), [0] * len(before)


@operator("Conv ConvInteger ConvTranspose", 3)
def convolution(step: TorchStep, x: Tensor, weight: Tensor, *bias: Tensor | None) -> Tensor:
    """Of one, two or three axes; padding takes away from the result of a transposed one."""
    window, kind = _window(step, list(weight.shape[2:])), step.node.operator
    before, after = _window_padding(step, window, list(x.shape[2:]))
    output_padding = [0] * len(before)
    if kind == "ConvTranspose":
        further = step.get("output_padding") or output_padding
        output_padding = [m + b - a for m, b, a in zip(further, before, after, strict=True)]
    else:
        x, before = _padded(x, before, after)
    sizes = (window.stride, before, window.dilation, kind == "ConvTranspose", output_padding)
    has_bias = bias and kind != "ConvInteger"
    return torch.convolution(x, weight, bias[0] if has_bias else None, *sizes, step.get("group", 1))


#: Scales and zero points of quantised operands are part of the kernel.
operators(
    {
        "QLinearConv": lambda step, *tensors: convolution(step, tensors[0], tensors[3]),
        "QLinearMatMul": lambda step, *tensors: product(step, tensors[0], tensors[3]),
    },
    *(1, 2, 4, 5, 6, 7),
)


@operator("MaxPool AveragePool")
def pool(step: TorchStep, x: Tensor) -> Tensor:
    """Windows of one, two or three axes."""
    window = _window(step, list(step.get("kernel_shape") or ()))
    before, after = _window_padding(step, window, list(x.shape[2:]))
    is_max = step.node.operator == "MaxPool"
    # torch pads half a window at most
    is_wide = any(2 * pad > size for pad, size in zip(before, window.sizes, strict=True))
    x, padding = _padded(x, before, after, float("-inf") if is_max else 0.0, apart=is_wide)
    call = getattr(functional, f"{'max' if is_max else 'avg'}_pool{len(before)}d")
    windows, is_ceil = (window.sizes, window.stride, padding), bool(step.get("ceil_mode"))
    if is_max:
        return call(x, *windows, window.dilation, is_ceil)
    return call(x, *windows, is_ceil, bool(step.get("count_include_pad")))


@operator("GlobalAveragePool GlobalMaxPool")
def global_pool(step: TorchStep, x: Tensor) -> Tensor:
    """One value for each channel."""
    rank = x.dim() - 2
    if not 1 <= rank <= 3:
        raise step.refuse(f"takes {x.dim()} axes: expected 3 to 5")
    kind = "max" if step.node.operator == "GlobalMaxPool" else "avg"
    return getattr(functional, f"adaptive_{kind}_pool{rank}d")(x, [1] * rank)


# -- attention


#: Index of earlier keys among the inputs behind query, key and value; earlier values follow.
_PAST = {"Attention": 1, "MultiHeadAttention": 3, "GroupQueryAttention": 0}


@operator("Attention MultiHeadAttention GroupQueryAttention", 4, 5, 6, 7, 8)
def attention(
    step: TorchStep,
    query: Tensor,
    key: Tensor | None = None,
    value: Tensor | None = None,
    *others: Tensor | None,
) -> Tensors:
    """ONNX's own operator (opset 23) and those of ONNX Runtime with query, key and value apart."""
    kind, is_onnx = step.node.operator, not step.node.domain
    if key is None or value is None or (kind == "Attention" and not is_onnx):
        raise step.refuse("takes query, key and value packed: export them apart")
    others = (*others, *[None] * 5)
    heads = step.get("q_num_heads" if is_onnx else "num_heads", 0)
    kv_heads = step.get("kv_num_heads", heads)
    q = _in_heads(step, query, heads)
    k, v = (
        _behind(past, _in_heads(step, x, kv_heads))
        for x, past in zip((key, value), others[_PAST[kind] :], strict=False)
    )
    mask = others[0] if is_onnx else None
    causal = kind == "GroupQueryAttention" or step.get("is_causal", step.get("unidirectional"))
    result = functional.scaled_dot_product_attention(
        q, k, v, mask, is_causal=mask is None and bool(causal), enable_gqa=q.shape[1] != k.shape[1]
    )
    return result.transpose(1, 2).flatten(2) if query.dim() == 3 else result, k, v


def _behind(past: Tensor | None, x: Tensor) -> Tensor:
    return x if past is None else torch.cat([past, x], dim=2)


def _in_heads(step: TorchStep, x: Tensor, heads: int) -> Tensor:
    """(batch, tokens, width) as (batch, heads, tokens, width of one)."""
    if x.dim() == 4:
        return x
    if heads < 1 or x.shape[-1] % heads:
        raise step.refuse(f"has {heads} heads of {x.shape[-1]} columns together")
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


# -- recurrent layers


@operator("LSTM GRU RNN", 4)
def recurrent(
    step: TorchStep, x: Tensor, weight: Tensor, state: Tensor, *optional: Tensor | None
) -> Tensors:
    """One layer, one or both directions, over padded sequences (steps, batch, width)."""
    bias, _, *initial_states, peepholes = [*optional, *[None] * 5][:5]
    kind = step.node.operator.lower()
    if step.get("layout"):
        raise step.refuse("has its batch first: expected layout 0")
    if peepholes is not None:
        raise step.refuse("has peepholes, which no library runs")
    directions, hidden = weight.shape[0], state.shape[-1]
    states = [
        x.new_zeros((directions, x.shape[1], hidden)) if initial is None else initial
        for initial in initial_states
    ]
    flat: list[Tensor] = []
    for direction in range(directions):
        flat += [weight[direction], state[direction]]
        flat += [] if bias is None else bias[direction].chunk(2)
    if kind == "rnn":
        kind = "rnn_relu" if step.get("activations", ["Tanh"])[0] == "Relu" else "rnn_tanh"
    options = (bias is not None, 1, 0.0, step.training, directions == 2, False)
    initial_state = states if kind == "lstm" else states[0]
    result, *final_states = getattr(torch, kind)(x, initial_state, flat, *options)
    return (result.unflatten(-1, (directions, hidden)).transpose(1, 2), *final_states)


# -- norms


@operator("BatchNormalization", 3, 4)
def batch_norm(step: TorchStep, x: Tensor, scale: Tensor, bias: Tensor, *running: Tensor) -> Tensor:
    """By running statistics, or in training by those of the batch."""
    mean, variance, *_ = running
    return functional.batch_norm(x, mean, variance, scale, bias, training=step.training)


@operator(
    "LayerNormalization SkipLayerNormalization RMSNormalization SimplifiedLayerNormalization "
    "SkipSimplifiedLayerNormalization"
)
def row_norm(step: TorchStep, x: Tensor, *tensors: Tensor | None) -> Tensors:
    """Over the last axes; ONNX Runtime's that skip take a residual in first."""
    kind = step.node.operator
    if kind.startswith("Skip"):
        x, tensors = x + tensors[0], tensors[1:]
    shape = list(x.shape[step.get("axis", -1) % x.dim() :])
    if "Simplified" in kind or "RMS" in kind:
        normal = functional.rms_norm(x, shape, tensors[0] if tensors else None)
    else:
        scale, bias = [*tensors, None, None][:2]
        normal = functional.layer_norm(x, shape, scale, bias)
    return (normal, x, x, x) if len(step.node.outputs) > 1 else normal


operators(
    {
        "InstanceNormalization": lambda _, x, scale, bias: functional.instance_norm(
            x, weight=scale, bias=bias
        ),
        "GroupNormalization": lambda step, x, scale, bias: functional.group_norm(
            x, step.get("num_groups", 1), scale, bias
        ),
        "LRN": lambda step, x: functional.local_response_norm(x, step.get("size", 1)),
        "LpNormalization": lambda step, x: functional.normalize(
            x, step.get("p", 2), step.get("axis", -1)
        ),
    }
)


@operator("Softmax LogSoftmax")
def softmax(step: TorchStep, x: Tensor) -> Tensor:
    """Over one axis; before version 13 over all from it on."""
    call = torch.softmax if step.node.operator == "Softmax" else torch.log_softmax
    if step.opset >= 13:
        return call(x, step.get("axis", -1))
    axis = step.get("axis", 1) % x.dim()
    return call(x.flatten(axis), axis).reshape(x.shape)


# -- reductions


_REDUCTIONS: Document = {
    "Mean": torch.mean,
    "Sum": torch.sum,
    "Max": torch.amax,
    "Min": torch.amin,
    "LogSumExp": torch.logsumexp,
    "L1": lambda x, axes, keep: torch.linalg.vector_norm(x, 1, axes, keep),
    "L2": lambda x, axes, keep: torch.linalg.vector_norm(x, 2, axes, keep),
    "LogSum": lambda x, axes, keep: torch.log(torch.sum(x, axes, keep)),
    "SumSquare": lambda x, axes, keep: torch.sum(x * x, axes, keep),
}


def _product_over(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    """Torch multiplies along one axis alone."""
    reduced = {axis % x.dim() for axis in axes}
    others = [axis for axis in range(x.dim()) if axis not in reduced]
    result = x.permute([*others, *reduced]).flatten(len(others)).prod(-1)
    shape = [1 if axis in reduced else size for axis, size in enumerate(x.shape)]
    return result.reshape(shape) if keep else result


@operator(" ".join(f"Reduce{name}" for name in (*_REDUCTIONS, "Prod")))
def reduction(step: TorchStep, x: Tensor, named_axes: Tensor | None = None) -> Tensor:
    """Over some axes: all of them unless named."""
    axes = step.sizes("axes", named_axes)
    if not axes and step.get("noop_with_empty_axes"):
        return x
    call = _REDUCTIONS.get(step.node.operator.removeprefix("Reduce"), _product_over)
    return call(x, axes or list(range(x.dim())), bool(step.get("keepdims", 1)))


@operator("ArgMax ArgMin")
def index_of_extreme(step: TorchStep, x: Tensor) -> Tensor:
    """Where the largest or smallest lies."""
    call = torch.argmax if step.node.operator == "ArgMax" else torch.argmin
    return call(x, step.get("axis", 0), bool(step.get("keepdims", 1)))


@operator("TopK")
def largest(step: TorchStep, x: Tensor, count: Tensor | None = None) -> Tensors:
    """The largest of an axis and where they lie."""
    k = step.get("k", 1) if count is None else prod(sizes_of(count))
    return tuple(torch.topk(x, k, step.get("axis", -1)))


operators({"CumSum": lambda _, x, axis: torch.cumsum(x, sizes_of(axis)[0])}, 1)
