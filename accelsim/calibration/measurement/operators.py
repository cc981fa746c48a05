"""Builds the torch calls of a case: calls that do its work on random data, with hot or cold weights.

Backward operators are called as ATen operators, which is how autograd calls them. Data are normal random numbers, never
zeros: power, and on some devices time, depend on the bits that toggle. Calls of a cold case take a different copy of
the weights each, so many that together they exceed any last-level cache; on a GPU every operand rotates past the cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.nn import functional

from accelsim.calibration.measurement.case import Case

__all__ = ["BUILDERS", "Call", "Prepared", "build_calls", "prepare", "torch_dtype"]

Call = Callable[[], Any]
Shape = Mapping[str, int]

_DTYPES: Final = {
    "fp32": torch.float32,
    "tf32": torch.float32,  # the products of FP32 operands, see `cuda.tf32_products`
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp64": torch.float64,
}
#: Bytes of weights that cold calls cycle through: three times the largest last-level cache of one core complex in use.
COLD_BYTES: Final = 96 * 2**20
#: Most copies of the weights; smaller weights are not worth more.
MOST_COPIES: Final = 1024
_ATEN = torch.ops.aten


def torch_dtype(label: str) -> torch.dtype:
    """The torch format of a label such as "bf16"."""
    return _DTYPES[label]


class Pool:
    """Random numbers, made once per format and device, that operands are cut from.

    Making them anew for each case would take longer than measuring it.
    """

    #: Elements of the pool; as bf16 they exceed `COLD_BYTES`.
    COUNT: Final = COLD_BYTES // 2 + 2**20

    def __init__(self, device: str, seed: int = 0) -> None:
        self.device = device
        self.generator = torch.Generator(device=device).manual_seed(seed)
        self._values: dict[torch.dtype, torch.Tensor] = {}
        self._place = 0

    def take(self, dtype: torch.dtype, *sizes: int) -> torch.Tensor:
        """The next part of the pool, as a view; longer tensors than the pool repeat it, in memory of their own."""
        count = math.prod(sizes)
        values = self._of(dtype)
        if count > self.COUNT:
            return torch.cat([values] * (count // self.COUNT) + [values[: count % self.COUNT]]).view(sizes)
        if self._place + count > self.COUNT:
            self._place = 0
        start, self._place = self._place, self._place + -(-count // 64) * 64
        return values[start : start + count].view(sizes)

    def _of(self, dtype: torch.dtype) -> torch.Tensor:
        if dtype not in self._values:
            made = torch.randn(2**21, generator=self.generator, device=self.device).to(dtype)
            self._values[dtype] = torch.cat([made] * (self.COUNT // 2**21) + [made[: self.COUNT % 2**21]])
        return self._values[dtype]


class Source:
    """Makes operands of one case.

    Args:
        case: The case.
        pool: Random numbers.
    """

    def __init__(self, case: Case, pool: Pool) -> None:
        self.shape, self.pool, self.device = case.shape, pool, pool.device
        self.dtype = torch_dtype(case.dtype)
        self._inputs: dict[tuple[int, ...], torch.Tensor] = {}
        self.written: list[torch.Tensor] = []

    def values(self, *sizes: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Normal random numbers of their own, as the operator before writes them."""
        made = self.stored(*sizes, dtype=dtype)
        self.written.append(made.data)  # not the tensor: autograd would count the writes
        return made

    def stored(self, *sizes: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Normal random numbers of their own that were written long ago: weights, tables, saved activations."""
        taken = self.pool.take(dtype or self.dtype, *sizes)
        return taken if taken.numel() > self.pool.COUNT else taken.clone()

    def weight(self, *sizes: int) -> torch.nn.Parameter:
        """Weights: another part of the pool each time."""
        return torch.nn.Parameter(self.pool.take(self.dtype, *sizes), requires_grad=False)

    def input(self, *sizes: int) -> torch.Tensor:
        """Activations: the same tensor for all calls of the case."""
        if sizes not in self._inputs:
            self._inputs[sizes] = self.values(*sizes)
        return self._inputs[sizes]

    def indices(self, below: int, *sizes: int) -> torch.Tensor:
        """Uniform random integers from 0 to `below` - 1."""
        return torch.randint(below, sizes, generator=self.pool.generator, device=self.device)

    def image(self) -> torch.Tensor:
        """A batch of images."""
        s = self.shape
        return self.input(s["batch"], s["channels_in"], s["side"], s["side"])


Builder = Callable[[Source], Call]
BUILDERS: dict[str, Builder] = {}


def _builds(*operators: str) -> Callable[[Builder], Builder]:
    def add(builder: Builder) -> Builder:
        for operator in operators:
            if operator in BUILDERS:
                raise ValueError(f"{operator} has a builder already")
            BUILDERS[operator] = builder
        return builder

    return add


@dataclass(frozen=True, slots=True)
class Prepared:
    """A case ready to run.

    Attributes:
        calls: What it cycles through.
        inputs: Tensors that the operator before would have written.
    """

    calls: list[Call]
    inputs: list[torch.Tensor]


def build_calls(case: Case, pool: Pool, copies: int | None = None) -> list[Call]:
    """The calls of `prepare`."""
    return prepare(case, pool, copies).calls


def prepare(case: Case, pool: Pool, copies: int | None = None) -> Prepared:
    """The calls a case cycles through: one where weights stay hot, many on separate weights where they are cold.

    Args:
        case: What to run.
        pool: Random numbers, on the device.
        copies: Number of calls with operands of their own; chosen from the weights' size where None.

    Raises:
        KeyError: If no builder has the case's operator.
        RuntimeError: Whatever torch raises where the device cannot hold or run it.
    """
    builder = BUILDERS[case.operator]
    if copies is not None:
        return Prepared([builder(Source(case, pool)) for _ in range(copies)], [])
    source = Source(case, pool)
    calls = [builder(source) for _ in range(_weight_copies(case) if case.cold else 1)]
    return Prepared(calls, source.written)


def _weight_copies(case: Case) -> int:
    s = case.shape
    if case.operator == "addmm":
        elements = s["n"] * s["k"]
    else:
        elements = s["channels_out"] * s["channels_in"] // s["groups"] * s["kernel"] ** 2
    return int(min(MOST_COPIES, max(2, COLD_BYTES // (elements * _DTYPES[case.dtype].itemsize))))


# -- products --------------------------------------------------------------------------------------------------------


@_builds("addmm")
def _addmm(source: Source) -> Call:
    s = source.shape
    weight, bias, x = source.weight(s["n"], s["k"]), source.weight(s["n"]), source.input(s["m"], s["k"])
    return lambda: functional.linear(x, weight, bias)


@_builds("mm_nn")
def _mm_nn(source: Source) -> Call:
    """Gradient of a linear layer's input: output gradient times weight."""
    s = source.shape
    a, b = source.values(s["m"], s["k"]), source.stored(s["k"], s["n"])
    return lambda: torch.mm(a, b)


@_builds("mm_tn")
def _mm_tn(source: Source) -> Call:
    """Gradient of a linear layer's weight: transposed output gradient times input."""
    s = source.shape
    a, b = source.values(s["k"], s["m"]), source.stored(s["k"], s["n"])
    return lambda: torch.mm(a.t(), b)


@_builds("bmm")
def _bmm(source: Source) -> Call:
    s = source.shape
    a, b = source.values(s["batch"], s["m"], s["k"]), source.values(s["batch"], s["k"], s["n"])
    return lambda: torch.bmm(a, b)


@_builds("scaled_dot_product_attention")
def _attention(source: Source) -> Call:
    q, k, v, causal = _heads(source)
    return lambda: functional.scaled_dot_product_attention(q, k, v, is_causal=causal)


@_builds("scaled_dot_product_attention_backward")
def _attention_backward(source: Source) -> Call:
    q, k, v, causal = _heads(source)
    inputs = [x.requires_grad_() for x in (q, k, v)]
    output = functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    gradient = source.values(*output.shape)
    return lambda: torch.autograd.grad(output, inputs, gradient, retain_graph=True)


def _heads(source: Source) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, bool]:
    """Query, key and value as models have them: (batch, length, heads, width) seen as (batch, heads, length, width)."""
    s = source.shape
    q, k, v = (
        source.values(s["batch"], length, s["heads"], s["head_dim"]).transpose(1, 2)
        for length in (s["q_len"], s["kv_len"], s["kv_len"])
    )
    return q, k, v, bool(s["causal"])


# -- convolutions ----------------------------------------------------------------------------------------------------


@_builds("convolution")
def _convolution(source: Source) -> Call:
    s = source.shape
    weight = source.weight(s["channels_out"], s["channels_in"] // s["groups"], s["kernel"], s["kernel"])
    x, stride, pad, groups = source.image(), s["stride"], s["kernel"] // 2, s["groups"]
    return lambda: functional.conv2d(x, weight, None, stride, pad, 1, groups)


@_builds("convolution_1d")
def _convolution_1d(source: Source) -> Call:
    s = source.shape
    weight = source.stored(s["channels_out"], s["channels_in"], s["kernel"])
    x = source.values(s["batch"], s["channels_in"], s["side"] ** 2)
    return lambda: functional.conv1d(x, weight, None, s["stride"], s["kernel"] // 2)


@_builds("convolution_transpose")
def _convolution_transpose(source: Source) -> Call:
    s = source.shape
    weight = source.stored(s["channels_in"], s["channels_out"], 2, 2)
    x = source.image()
    return lambda: functional.conv_transpose2d(x, weight, None, 2)


@_builds("convolution_backward.grad_input")
def _convolution_grad_input(source: Source) -> Call:
    return _convolution_backward(source, [True, False, False])


@_builds("convolution_backward.grad_weight")
def _convolution_grad_weight(source: Source) -> Call:
    return _convolution_backward(source, [False, True, False])


def _convolution_backward(source: Source, mask: Sequence[bool]) -> Call:
    s = source.shape
    pad, stride = [s["kernel"] // 2] * 2, [s["stride"]] * 2
    x = source.stored(s["batch"], s["channels_in"], s["side"], s["side"])
    weight = source.stored(s["channels_out"], s["channels_in"] // s["groups"], s["kernel"], s["kernel"])
    gradient = source.values(*functional.conv2d(x, weight, None, stride, pad, 1, s["groups"]).shape)
    arguments = (gradient, x, weight, None, stride, pad, [1, 1], False, [0, 0], s["groups"], list(mask))
    return lambda: _ATEN.convolution_backward(*arguments)


# -- normalisations, softmax, reductions -----------------------------------------------------------------------------


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
    "mean": _of_table(lambda x: x.mean(-1, keepdim=True)),
    "amax": _of_table(lambda x: x.amax(-1)),
    "sum_rows": _of_table(lambda x: x.sum(0)),
    "copy": _of_table(lambda x: x.clone()),
}


@_builds("mean_spatial")
def _mean_spatial(source: Source) -> Call:
    s = source.shape
    side = max(1, round(s["columns"] ** 0.5))
    x = source.values(1, s["rows"], side, max(1, s["columns"] // side))
    return lambda: x.mean((2, 3))


@_builds("_softmax_backward_data")
def _softmax_backward(source: Source) -> Call:
    gradient, output = _table(source), torch.softmax(_table(source), -1)
    return lambda: _ATEN._softmax_backward_data(gradient, output, -1, source.dtype)  # noqa: SLF001


@_builds("_log_softmax_backward_data")
def _log_softmax_backward(source: Source) -> Call:
    gradient, output = _table(source), torch.log_softmax(_table(source), -1)
    return lambda: _ATEN._log_softmax_backward_data(gradient, output, -1, source.dtype)  # noqa: SLF001


@_builds("native_layer_norm")
def _layer_norm(source: Source) -> Call:
    x = _table(source)
    layer = torch.nn.LayerNorm(x.shape[-1], device=source.device, dtype=source.dtype).requires_grad_(False)
    return lambda: layer(x)


@_builds("native_layer_norm_backward")
def _layer_norm_backward(source: Source) -> Call:
    x, gradient = _table(source), _table(source)
    width = [x.shape[-1]]
    weight, bias = source.stored(*width), source.stored(*width)
    _, mean, deviation = torch.native_layer_norm(x, width, weight, bias, 1e-5)
    arguments = (gradient, x, width, mean, deviation, weight, bias, [True, True, True])
    return lambda: _ATEN.native_layer_norm_backward(*arguments)


@_builds("_fused_rms_norm")
def _rms_norm(source: Source) -> Call:
    x, weight = _table(source), source.stored(source.shape["columns"])
    return lambda: functional.rms_norm(x, weight.shape, weight, 1e-5)


def _channels(source: Source) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    s = source.shape
    side = round(s["pixels"] ** 0.5)
    x = source.values(s["batch"], s["channels"], side, side)
    kept = torch.float32 if source.dtype is torch.bfloat16 else source.dtype
    return x, source.values(s["channels"]), source.values(s["channels"], dtype=kept)


@_builds("native_batch_norm")
def _batch_norm(source: Source) -> Call:
    x, _, _ = _channels(source)
    layer = torch.nn.BatchNorm2d(x.shape[1], device=source.device, dtype=source.dtype).eval().requires_grad_(False)
    return lambda: layer(x)


@_builds("native_batch_norm_train")
def _batch_norm_train(source: Source) -> Call:
    x, _, _ = _channels(source)
    layer = torch.nn.BatchNorm2d(x.shape[1], device=source.device, dtype=source.dtype).requires_grad_(False)
    return lambda: layer(x)


@_builds("native_batch_norm_backward")
def _batch_norm_backward(source: Source) -> Call:
    x, weight, _ = _channels(source)
    gradient = source.values(*x.shape)
    _, mean, deviation = torch.native_batch_norm(x, weight, weight, None, None, True, 0.1, 1e-5)
    arguments = (gradient, x, weight, None, None, mean, deviation, True, 1e-5, [True, True, True])
    return lambda: _ATEN.native_batch_norm_backward(*arguments)


@_builds("native_group_norm")
def _group_norm(source: Source) -> Call:
    x, _, _ = _channels(source)
    layer = torch.nn.GroupNorm(32, x.shape[1], device=source.device, dtype=source.dtype).requires_grad_(False)
    return lambda: layer(x)


# -- elementwise -----------------------------------------------------------------------------------------------------


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
    "tanh": _unary(torch.tanh),
    "hardswish": _unary(functional.hardswish),
    "hardsigmoid": _unary(functional.hardsigmoid),
    "hardtanh": _unary(functional.relu6),
    "leaky_relu": _unary(functional.leaky_relu),
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
    "threshold_backward": _binary(lambda g, x: _ATEN.threshold_backward(g, x, 0)),
    "gelu_backward": _binary(_ATEN.gelu_backward),
    "silu_backward": _binary(_ATEN.silu_backward),
    "sigmoid_backward": _binary(_ATEN.sigmoid_backward),
    "tanh_backward": _binary(_ATEN.tanh_backward),
}


@_builds("to_bf16")
def _to_bf16(source: Source) -> Call:
    x = source.values(source.shape["elements"])
    other = torch.float32 if source.dtype is torch.bfloat16 else torch.bfloat16
    return lambda: x.to(other)


@_builds("add_bias")
def _add_bias(source: Source) -> Call:
    width = max(1, min(1024, source.shape["elements"] // 16))
    x, bias = source.values(source.shape["elements"] // width, width), source.values(width)
    return lambda: x + bias


@_builds("native_dropout_backward")
def _dropout_backward(source: Source) -> Call:
    gradient = source.values(source.shape["elements"])
    mask = gradient > 0
    return lambda: _ATEN.native_dropout_backward(gradient, mask, 1.1)


# -- pooling, gathers, copies ----------------------------------------------------------------------------------------


def _pooled(source: Source) -> tuple[torch.Tensor, int]:
    """What a convolution and an activation leave: neighbours are alike, and a maximum's branches depend on the values."""
    s = source.shape
    x = source.stored(s["batch"], s["channels"], s["side"], s["side"])
    smooth = functional.avg_pool2d(x, 3, 1, 1).relu_()
    source.written.append(smooth.data)
    return smooth, s["kernel"]


@_builds("max_pool2d_with_indices")
def _max_pool(source: Source) -> Call:
    x, kernel = _pooled(source)
    return lambda: functional.max_pool2d(x, kernel, 2, (kernel - 1) // 2)


@_builds("avg_pool2d")
def _average_pool(source: Source) -> Call:
    x, kernel = _pooled(source)
    return lambda: functional.avg_pool2d(x, kernel, 2, (kernel - 1) // 2)


@_builds("_adaptive_avg_pool2d")
def _adaptive_pool(source: Source) -> Call:
    x, kernel = _pooled(source)
    side = max(2, x.shape[-1] // (2 * kernel))
    return lambda: functional.adaptive_avg_pool2d(x, side)


@_builds("max_pool2d_with_indices_backward")
def _max_pool_backward(source: Source) -> Call:
    x, kernel = _pooled(source)
    stride, pad = [2, 2], [(kernel - 1) // 2] * 2
    output, indices = _ATEN.max_pool2d_with_indices(x, [kernel] * 2, stride, pad)
    gradient = source.values(*output.shape)
    arguments = (gradient, x, [kernel] * 2, stride, pad, [1, 1], False, indices)
    return lambda: _ATEN.max_pool2d_with_indices_backward(*arguments)


@_builds("embedding")
def _embedding(source: Source) -> Call:
    s = source.shape
    table, wanted = source.stored(s["table"], s["width"]), source.indices(s["table"], s["lookups"])
    return lambda: functional.embedding(wanted, table)


@_builds("embedding_dense_backward")
def _embedding_backward(source: Source) -> Call:
    s = source.shape
    gradient, wanted = source.values(s["lookups"], s["width"]), source.indices(s["table"], s["lookups"])
    return lambda: _ATEN.embedding_dense_backward(gradient, wanted, s["table"], -1, False)


@_builds("_embedding_bag")
def _embedding_bag(source: Source) -> Call:
    s = source.shape
    table = source.stored(s["table"], s["width"])
    wanted = source.indices(s["table"], s["bags"], s["lookups"] // s["bags"])
    return lambda: functional.embedding_bag(wanted, table, mode="sum")


@_builds("clone")
def _clone(source: Source) -> Call:
    """Heads to the front or back: the innermost axis stays."""
    s = source.shape
    x = source.values(s["rows"], s["middle"], s["columns"]).transpose(0, 1)
    call: Call = x.contiguous
    return call


@_builds("clone_strided")
def _clone_strided(source: Source) -> Call:
    """Rows and columns change places."""
    s = source.shape
    call: Call = source.values(s["batch"], s["rows"], s["columns"]).transpose(1, 2).contiguous
    return call


@_builds("add_strided")
def _add_strided(source: Source) -> Call:
    s = source.shape
    x, y = source.values(s["batch"], s["columns"], s["rows"]), source.values(s["batch"], s["rows"], s["columns"])
    return lambda: x + y.transpose(1, 2)


@_builds("cat")
def _cat(source: Source) -> Call:
    s = source.shape
    parts = [source.values(s["rows"], s["columns"] * s["middle"] // 2) for _ in range(2)]
    return lambda: torch.cat(parts, -1)


@_builds("topk")
def _topk(source: Source) -> Call:
    x = _table(source)
    return lambda: torch.topk(x, 2, -1)


@_builds("index")
def _index(source: Source) -> Call:
    x = _table(source)
    chosen = source.indices(x.shape[0], x.shape[0])
    return lambda: x[chosen]


@_builds("gather")
def _gather(source: Source) -> Call:
    x = _table(source)
    chosen = source.indices(x.shape[1], *x.shape)
    return lambda: torch.gather(x, 1, chosen)


# -- recurrent layers, optimizers, transfers -------------------------------------------------------------------------


def _recurrent(source: Source, kind: str) -> tuple[torch.nn.Module, torch.Tensor]:
    s = source.shape
    maker = torch.nn.LSTM if kind == "lstm" else torch.nn.GRU
    layer = maker(s["input"], s["hidden"], batch_first=True, device=source.device, dtype=source.dtype)
    return layer, source.values(s["batch"], s["steps"], s["input"])


def _recurrent_builder(kind: str) -> Builder:
    def build(source: Source) -> Call:
        # weights keep requires_grad, as a model's do: without it the framework takes another path (bf16 GRU, 8 times slower)
        layer, x = _recurrent(source, kind)
        return lambda: layer(x)

    return build


BUILDERS |= {
    "lstm": _recurrent_builder("lstm"),
    "gru": _recurrent_builder("gru"),
    "lstm_train": _recurrent_builder("lstm"),
}


@_builds("lstm_backward")
def _lstm_backward(source: Source) -> Call:
    layer, x = _recurrent(source, "lstm")
    inputs = [x.requires_grad_(), *layer.parameters()]
    output, _ = layer(x)
    gradient = source.values(*output.shape)
    return lambda: torch.autograd.grad(output, inputs, gradient, retain_graph=True)


def _optimizer_builder(maker: Callable[[list[torch.Tensor]], torch.optim.Optimizer]) -> Builder:
    def build(source: Source) -> Call:
        s = source.shape
        each = s["parameters"] // s["tensors"]
        parameters = [source.stored(each).requires_grad_() for _ in range(s["tensors"])]
        for x in parameters:
            x.grad = source.stored(each)
        step: Call = maker(parameters).step
        return step

    return build


BUILDERS |= {
    "adamw": _optimizer_builder(lambda x: torch.optim.AdamW(x, lr=1e-6)),
    "sgd": _optimizer_builder(lambda x: torch.optim.SGD(x, lr=1e-6)),
}


@_builds("module_call")
def _module_call(source: Source) -> Call:
    """What a module adds to an operator: a chain of modules that do nothing."""
    chain = torch.nn.Sequential(*(torch.nn.Identity() for _ in range(source.shape["count"])))
    x = source.values(16)
    return lambda: chain(x)


@_builds("plain_chain")
def _plain_chain(source: Source) -> Call:
    x, count = source.values(16), source.shape["count"]
    return lambda: _chain(x, count)


@_builds("gradient_chain")
def _gradient_chain(source: Source) -> Call:
    """The same chain forward and backward: twice its operators, and the graph between them."""
    x, count, gradient = source.values(16).requires_grad_(), source.shape["count"], source.values(16)
    return lambda: torch.autograd.grad(_chain(x, count), x, gradient)


def _chain(x: torch.Tensor, count: int) -> torch.Tensor:
    for _ in range(count):
        x = torch.neg(x)
    return x


@_builds("host_to_device")
def _host_to_device(source: Source) -> Call:
    x = torch.randn(source.shape["elements"]).pin_memory()
    return lambda: x.to(source.device, non_blocking=True)


@_builds("device_to_host")
def _device_to_host(source: Source) -> Call:
    x = source.values(source.shape["elements"])
    target = torch.empty(x.shape, dtype=x.dtype, pin_memory=True)
    return lambda: target.copy_(x, non_blocking=True)
