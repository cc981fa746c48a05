"""Keeps attention, RMS norms and recurrent layers whole while a torch module is captured.

On the meta device ``scaled_dot_product_attention`` and ``torch.lstm`` fall apart into products,
softmax and one matrix product per time step. `Interceptor` is a function mode that answers these
calls itself: one row forward and one backward each, with outputs of the right shape that autograd
can follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod
from threading import get_ident
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from accelsim.errors import CaptureError
from accelsim.workloads.capture.aten import (
    Call,
    Kernel,
    Operand,
    attention_kernel,
    recurrent_kernel,
)
from accelsim.workloads.capture.aten_memory import elementwise
from accelsim.workloads.capture.recorder import Recorder
from accelsim.workloads.capture.stepped_layers import stepped
from accelsim.workloads.operator import RECURRENT_GATES, OperatorKind

__all__ = ["Interceptor"]

_RECURRENT = {
    "lstm": OperatorKind.LSTM,
    "gru": OperatorKind.GRU,
    "rnn_tanh": OperatorKind.RNN,
    "rnn_relu": OperatorKind.RNN,
}


#: Functions of ``torch.nn.functional`` stood in for.
_STAND_INS = ("scaled_dot_product_attention", "dropout", "rms_norm", "linear")


class Interceptor(TorchFunctionMode):  # type: ignore[misc]
    """Answers attention, recurrent and dropout calls with whole rows.

    Python functions of torch (``multi_head_attention_forward``) run outside the mode; the calls
    they make are caught by standing in for the functions of ``torch.nn.functional`` while the
    interceptor is active, in this thread alone.

    Args:
        recorder: Where the rows go.
        fused_attention: False lets attention fall apart.
        fused_always: False lets it fall apart where a CPU's kernel does not take it, and plain
            recurrent layers into steps.
    """

    def __init__(self, recorder: Recorder, *, fused_attention: bool, fused_always: bool) -> None:
        super().__init__()
        self._recorder = recorder
        self._fused_attention, self._fused_always = fused_attention, fused_always

    @contextmanager
    def active(self) -> Iterator[None]:
        """Intercept calls made inside."""
        thread = get_ident()
        originals = {name: getattr(functional, name) for name in _STAND_INS}

        def stand_in(original: Any) -> Any:
            def answer(*args: Any, **keywords: Any) -> Any:
                here = get_ident() == thread
                return (
                    self._answer(original, args, keywords) if here else original(*args, **keywords)
                )

            return answer

        self._originals = originals
        try:
            for name, original in originals.items():
                setattr(functional, name, stand_in(original))
            with self:
                yield
        finally:
            for name, original in originals.items():
                setattr(functional, name, original)

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Answer the call, or pass it on."""
        return self._answer(func, args, dict(kwargs or {}))

    def _answer(self, func: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if (
            self._is_attention(func)
            and self._fused_attention
            and (self._fused_always or _is_flash(*args, **keywords))
        ):
            return _attention(self._recorder, *args, **keywords)
        if func is self._originals["dropout"]:
            return _dropout(*args, **keywords)
        if func is self._originals["rms_norm"]:
            return _rms_norm(self._recorder, *args, **keywords)
        if func is self._originals["linear"] and "input" not in keywords:
            return _linear(func, *args, **keywords)
        name = getattr(func, "__name__", "")
        if name in _RECURRENT and func is getattr(torch, name, None):
            plain = _RECURRENT[name] is OperatorKind.RNN and not self._fused_always
            return (_stepped if plain else _recurrent)(self._recorder, name, args)
        return func(*args, **keywords)

    def _is_attention(self, func: Any) -> bool:
        packet = torch.ops.aten.scaled_dot_product_attention
        return (
            func is self._originals["scaled_dot_product_attention"]
            or func is packet
            or func is packet.default
        )


def _linear(
    func: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """Adds the bias in place where the input does not lie together; under a dispatch mode torch
    itself does not.
    """
    if bias is None or x.dim() <= 2 or x.is_contiguous():
        result: torch.Tensor = func(x, weight, bias)
        return result
    result = func(x, weight)
    return result.add_(bias)


def _dropout(
    x: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> torch.Tensor:
    """Dropout as accelerators run it: one kernel that writes the result and a one-byte mask."""
    if not training or p == 0.0:
        return x
    result: torch.Tensor = torch.native_dropout(x, p, True)[0]
    return x.copy_(result) if inplace and not x.requires_grad else result


# -- attention


@dataclass(frozen=True, slots=True)
class _AttentionCall:
    recorder: Recorder
    mask: Operand | None
    causal: bool
    differentiable: bool


def _is_flash(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> bool:
    """Whether a CPU's fused kernel takes the call (ATen sdp_utils_cpp.cpp); others are products and
    a softmax.

    Tensors are (batch, heads, tokens, width), of one width and each token's together; nothing is
    dropped, and no gradient of the mask is asked for.
    """
    del is_causal, scale
    tensors = (query, key, value)
    alike = len({(x.shape[0], 0 if enable_gqa else x.shape[1], x.shape[-1]) for x in tensors}) == 1
    formed = all(x.dim() == 4 and x.stride(-1) == 1 for x in tensors)
    maskable = attn_mask is None or (attn_mask.dim() in {2, 4} and not attn_mask.requires_grad)
    return not dropout_p and formed and alike and maskable


def _attention(
    recorder: Recorder,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """``scaled_dot_product_attention`` as one row; dropout inside the fused kernel costs no row."""
    del dropout_p, scale, enable_gqa
    query, key, value = (recorder.to_meta(x) for x in (query, key, value))
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise CaptureError(
            f"scaled_dot_product_attention in {recorder.path!r}: shapes {tuple(query.shape)}, "
            f"{tuple(key.shape)} and "
            f"{tuple(value.shape)} do not match."
        )
    mask = None if attn_mask is None else recorder.operand(recorder.to_meta(attn_mask))
    call = _AttentionCall(recorder, mask, bool(is_causal), _differentiable(query, key, value))
    result: torch.Tensor = _Attention.apply(call, query, key, value)
    return result


def _differentiable(*tensors: torch.Tensor) -> bool:
    """Whether autograd will keep what a call on these tensors saves."""
    return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)


def _attention_output(q: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The result's memory, laid out as the queries are: where these lie inside tokens, merging the
    heads moves nothing.

    ATen FlashAttentionKernel.cpp; a GPU's kernels do the same with queries as layers leave them.
    """
    return (
        torch.empty_like(q)
        if v.shape[-1] == q.shape[-1]
        else q.new_empty((*q.shape[:-1], v.shape[-1]))
    )


def _operands(recorder: Recorder, *tensors: torch.Tensor) -> tuple[Operand, ...]:
    return tuple(recorder.operand(x) for x in tensors)


class _Attention(torch.autograd.Function):  # type: ignore[misc]
    """One ATTENTION row forward, one ATTENTION_BACKWARD row backward."""

    @staticmethod
    def forward(
        ctx: Any, call: _AttentionCall, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> torch.Tensor:
        recorder = call.recorder
        output = _attention_output(q, v)
        parts = _operands(recorder, q, k, v)
        reads = parts if call.mask is None else (*parts, call.mask)
        kernel = attention_kernel(parts, reads, (recorder.operand(output),), causal=call.causal)
        row = recorder.rows[recorder.add([kernel], "scaled_dot_product_attention")]
        ctx.call = call
        ctx.save_for_backward(q, k, v, output)
        if call.differentiable:
            row.saved_fixed_bytes += (
                4.0 * output.numel() / max(output.shape[-1], 1)
            )  # log-sum-exp, FP32
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        recorder = ctx.call.recorder
        q, k, v, output = ctx.saved_tensors
        results = [torch.empty_like(x) for x in (q, k, v)]
        parts = _operands(recorder, q, k, v)
        reads = _operands(recorder, gradients[0], q, k, v, output)
        writes = _operands(recorder, *results)
        causal = ctx.call.causal
        kernel = attention_kernel(parts, reads, writes, causal=causal, backward=True)
        recorder.add([kernel], "scaled_dot_product_attention_backward")
        return (None, *results)


# -- RMS norm


def _rms_norm(
    recorder: Recorder,
    x: torch.Tensor,
    normalized_shape: list[int],
    weight: torch.Tensor | None = None,
    eps: float | None = None,
) -> torch.Tensor:
    """``rms_norm`` as the one kernel accelerators run, rather than its parts."""
    del eps
    weights = () if weight is None else (recorder.to_meta(weight),)
    x = recorder.to_meta(x)
    result: torch.Tensor = _RmsNorm.apply(recorder, prod(normalized_shape), x, *weights)
    if _differentiable(x, *weights):  # reciprocal root mean squares, FP32
        recorder.rows[-1].saved_fixed_bytes += 4.0 * x.numel() / prod(normalized_shape)
    return result


class _RmsNorm(torch.autograd.Function):  # type: ignore[misc]
    """One row forward (4 FLOP per element) and one backward (twice that)."""

    @staticmethod
    def forward(
        ctx: Any, recorder: Recorder, columns: int, x: torch.Tensor, *weights: torch.Tensor
    ) -> torch.Tensor:
        output = torch.empty_like(x)
        _rms_norm_row(recorder, columns, [x, *weights], [output], 4, "rms_norm")
        ctx.recorder, ctx.columns = recorder, columns
        ctx.save_for_backward(x, *weights)
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        results = [torch.empty_like(t) for t in ctx.saved_tensors]
        reads = [gradients[0], *ctx.saved_tensors]
        _rms_norm_row(ctx.recorder, ctx.columns, reads, results, 8, "rms_norm_backward")
        return (None, None, *results)


def _rms_norm_row(
    recorder: Recorder,
    columns: int,
    reads: list[torch.Tensor],
    writes: list[torch.Tensor],
    flop: int,
    name: str,
) -> None:
    elements = writes[0].numel()
    rows = (elements // columns, columns)
    operands = _operands(recorder, *reads), _operands(recorder, *writes)
    kernel = Kernel(OperatorKind.RMS_NORM, rows, float(flop * elements), *operands)
    recorder.add([kernel], name)


# -- recurrent layers


@dataclass(frozen=True, slots=True)
class _Stack:
    """A recurrent call: layers x directions over one sequence."""

    recorder: Recorder
    name: str
    layers: int
    directions: int
    dropout: float
    batch_first: bool
    hidden: int
    projection: int
    per_layer: int
    differentiable: bool

    @property
    def gates(self) -> int:
        """Gate matrices of one cell."""
        return RECURRENT_GATES[_RECURRENT[self.name]]

    @property
    def width(self) -> int:
        """Features of one direction's output."""
        return self.projection or self.hidden


def _stepped(recorder: Recorder, name: str, args: tuple[Any, ...]) -> Any:
    """``torch.rnn_tanh`` and ``torch.rnn_relu``, of which a CPU has no kernel."""
    if len(args) < 9:  # packed
        return _recurrent(recorder, name, args)
    x, state, weights, *further = args
    return stepped(
        name,
        recorder.to_meta(x),
        recorder.to_meta(state),
        [recorder.to_meta(w) for w in weights],
        *further,
    )


def _recurrent(recorder: Recorder, name: str, args: tuple[Any, ...]) -> Any:
    """``torch.lstm`` and its kin over padded sequences."""
    x, state, weights, biased, layers, dropout, training, bidirectional = args[:8]
    if (isinstance(state, (list, tuple)) and not isinstance(weights, (list, tuple))) or len(
        args
    ) < 9:
        raise CaptureError(
            f"{recorder.path!r} runs {name} on a packed sequence, whose layout is data. Pass "
            f"padded sequences instead."
        )
    states = list(state) if isinstance(state, (list, tuple)) else [state]
    directions = 2 if bidirectional else 1
    per_layer = len(weights) // (int(layers) * directions)
    gates = RECURRENT_GATES[_RECURRENT[name]]
    hidden = weights[0].shape[0] // gates
    projection = (
        weights[per_layer - 1].shape[0]
        if name == "lstm" and per_layer == (5 if biased else 3)
        else 0
    )
    rate = float(dropout) if training else 0.0
    tensors = [recorder.to_meta(t) for t in (x, *states, *weights)]
    stack = _Stack(
        recorder,
        name,
        int(layers),
        directions,
        rate,
        bool(args[8]),
        hidden,
        projection,
        per_layer * directions,
        _differentiable(*tensors),
    )
    outputs = _Recurrent.apply(stack, len(states), *tensors)
    return tuple(outputs)


class _Recurrent(torch.autograd.Function):  # type: ignore[misc]
    """One row per layer, forward and backward."""

    @staticmethod
    def forward(
        ctx: Any, stack: _Stack, state_count: int, *tensors: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        x, states, weights = tensors[0], tensors[1 : 1 + state_count], tensors[1 + state_count :]
        layers = [x]  # in inference the last alone
        shape = (*x.shape[:2], stack.width * stack.directions)
        finals = [torch.empty_like(state) for state in states]
        for layer in range(stack.layers):
            own, target = _layer_weights(stack, weights, layer), x.new_empty(shape)
            first = [
                state.narrow(0, layer * stack.directions, stack.directions) for state in states
            ]
            row = _layer_row(stack, layers[-1], target, [*own, *first], layer)
            if stack.differentiable:
                _keep_gates(stack, row, target)
            if layer + 1 < stack.layers and stack.dropout:
                _dropout_row(stack, target)
            layers = [*layers, target] if stack.differentiable else [target]
        for final in finals:
            stack.recorder.write(final)
        ctx.stack, ctx.state_count = stack, state_count
        if stack.differentiable:
            ctx.save_for_backward(*layers, *weights, *states)
        return (layers[-1], *finals)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        stack = ctx.stack
        saved = ctx.saved_tensors
        layers = saved[: stack.layers + 1]
        weights = saved[stack.layers + 1 : len(saved) - ctx.state_count]
        states = saved[len(saved) - ctx.state_count :]
        weight_gradients = [torch.empty_like(w) for w in weights]
        upstream = gradients[0]
        for layer in reversed(range(stack.layers)):
            needed = layer > 0 or ctx.needs_input_grad[2]
            downstream = torch.empty_like(layers[layer])
            own = _layer_weights(stack, weights, layer)
            results = [
                *_layer_weights(stack, weight_gradients, layer),
                *([downstream] if needed else []),
            ]
            _backward_row(
                stack, (layers[layer], layers[layer + 1], upstream), own, results, needed=needed
            )
            upstream = downstream
        state_gradients = [torch.empty_like(state) for state in states]
        return (None, None, upstream, *state_gradients, *weight_gradients)


def _layer_weights(stack: _Stack, weights: Any, layer: int) -> list[torch.Tensor]:
    return list(weights[layer * stack.per_layer : (layer + 1) * stack.per_layer])


def _layer_kernel(
    stack: _Stack,
    source: torch.Tensor,
    reads: list[torch.Tensor],
    writes: list[torch.Tensor],
    suffix: str,
) -> Kernel:
    batch, steps = source.shape[:2] if stack.batch_first else source.shape[1::-1]
    return recurrent_kernel(
        _RECURRENT[stack.name],
        (batch, steps, source.shape[2], stack.hidden, stack.directions),
        _operands(stack.recorder, *reads),
        _operands(stack.recorder, *writes),
        projection=stack.projection,
        suffix=suffix,
    )


def _layer_row(
    stack: _Stack,
    source: torch.Tensor,
    target: torch.Tensor,
    others: list[torch.Tensor],
    layer: int,
) -> int:
    kernel = _layer_kernel(stack, source, [source, *others], [target], f"layer{layer}")
    return stack.recorder.add([kernel], stack.name)


def _keep_gates(stack: _Stack, row: int, output: torch.Tensor) -> None:
    """The reserve space of a training pass: gates and cell state of every step (as
    `GraphBuilder.recurrent`).
    """
    per_feature = (stack.gates + 1) * stack.hidden / stack.width
    stack.recorder.rows[row].saved_elements += output.numel() * per_feature


def _dropout_row(stack: _Stack, x: torch.Tensor) -> None:
    operand = stack.recorder.operand(x)
    stack.recorder.add(
        elementwise(Call("native_dropout", (operand,), {}, (operand,))), "native_dropout"
    )


def _backward_row(
    stack: _Stack,
    activations: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    weights: list[torch.Tensor],
    results: list[torch.Tensor],
    *,
    needed: bool,
) -> None:
    """Twice the forward's products; without the input's gradient its share is left out."""
    source = activations[0]
    kernel = _layer_kernel(stack, source, [*activations, *weights], results, "")
    skipped = 2.0 * source.numel() * stack.directions * stack.gates * stack.hidden
    flop = 2.0 * kernel.flop - (0.0 if needed else skipped)
    stack.recorder.add([replace(kernel, flop=flop)], f"{stack.name}_backward")
