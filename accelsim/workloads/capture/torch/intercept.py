"""Keeps attention, RMS norms and recurrent layers whole while a torch module is captured.

On the meta device ``scaled_dot_product_attention`` and ``torch.lstm`` fall apart into products,
softmax and one matrix product per time step. `Interceptor` is a function mode that answers these
calls itself: one row forward and one backward each, with outputs of the right shape that autograd
can follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import prod
from threading import get_ident
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from accelsim.errors import CaptureError
from accelsim.frozen import frozen
from accelsim.workloads.capture.torch.aten import (
    Call,
    Kernel,
    Operand,
    attention_kernel,
    recurrent_kernel,
)
from accelsim.workloads.capture.torch.aten_memory import elementwise
from accelsim.workloads.capture.torch.recorder import OperatorRecorder, Row
from accelsim.workloads.operator import RECURRENT_GATES, OperatorKind

_Function = Callable[..., Any]
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
    """

    def __init__(self, recorder: OperatorRecorder, *, fused_attention: bool) -> None:
        super().__init__()
        self._recorder = recorder
        self._fused_attention = fused_attention

    @contextmanager
    def active(self) -> Iterator[None]:
        """Intercept calls made inside."""
        thread = get_ident()

        def stand_in(original: _Function) -> _Function:
            def answer(*args: object, **keywords: object) -> object:
                is_captured = get_ident() == thread
                function = self._answers.get(original, original) if is_captured else original
                return function(*args, **keywords)

            return answer

        originals = {name: getattr(functional, name) for name in _STAND_INS}
        self._answers = self._answers_to(originals)
        try:
            for name, original in originals.items():
                setattr(functional, name, stand_in(original))
            with self:
                yield
        finally:
            for name, original in originals.items():
                setattr(functional, name, original)

    def _answers_to(self, originals: Mapping[str, _Function]) -> dict[_Function, _Function]:
        """What answers a call instead of the function that is called."""
        recorder, linear = self._recorder, originals["linear"]
        answers: dict[_Function, _Function] = {
            originals["dropout"]: _dropout,
            originals["rms_norm"]: partial(_rms_norm, recorder),
            linear: partial(_linear, linear),
        }
        for name in _RECURRENT:
            answers[getattr(torch, name)] = partial(_recurrent, recorder, name)
        if self._fused_attention:
            packet = torch.ops.aten.scaled_dot_product_attention
            for function in (originals["scaled_dot_product_attention"], packet, packet.default):
                answers[function] = partial(_attention, recorder)
        return answers

    def __torch_function__(
        self, func: _Function, types: object, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Answer the call, or pass it on."""
        return self._answers.get(func, func)(*args, **(kwargs or {}))


class _Layer(Protocol):
    """A call that adds rows of its own, forward and backward."""

    def forward(self, *tensors: Tensor) -> tuple[object, Sequence[Tensor]]:
        """The outputs, and the tensors kept for the backward pass."""

    def backward(
        self, gradient: Tensor, saved: Sequence[Tensor], *, needs_input: bool
    ) -> Sequence[Tensor]:
        """Gradients of the tensors."""


class _WholeCall(torch.autograd.Function):  # type: ignore[misc]
    """Runs a layer such that autograd can follow."""

    @staticmethod
    def forward(ctx: Any, layer: _Layer, *tensors: Tensor) -> Any:
        outputs, saved = layer.forward(*tensors)
        ctx.layer = layer
        ctx.save_for_backward(*saved)
        return outputs

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> Any:
        needs_input = ctx.needs_input_grad[1]
        return (None, *ctx.layer.backward(gradient, ctx.saved_tensors, needs_input=needs_input))


def _linear(
    original: _Function,
    input: Tensor,  # noqa: A002  (torch's name)
    weight: Tensor,
    bias: Tensor | None = None,
) -> Tensor:
    """Adds the bias in place where the input does not lie together; under a dispatch mode torch
    itself does not.
    """
    if bias is None or input.dim() <= 2 or input.is_contiguous():
        return original(input, weight, bias)
    return original(input, weight).add_(bias)


def _dropout(
    input: Tensor,  # noqa: A002  (torch's name)
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
) -> Tensor:
    """Dropout as accelerators run it: one kernel that writes the result and a one-byte mask."""
    if not training or p == 0.0:
        return input
    result: Tensor = torch.native_dropout(input, p, True)[0]
    return input.copy_(result) if inplace and not input.requires_grad else result


def _is_differentiable(*tensors: Tensor) -> bool:
    """Whether autograd will keep what a call on these tensors saves."""
    return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)


# -- attention


def _attention(
    recorder: OperatorRecorder,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **_: object,
) -> Tensor:
    """``scaled_dot_product_attention`` as one row; dropout inside the fused kernel costs no row."""
    del dropout_p
    query, key, value = tensors = [recorder.to_meta(x) for x in (query, key, value)]
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        shapes = "{}, {} and {}".format(*(tuple(x.shape) for x in tensors))
        raise CaptureError(
            f"scaled_dot_product_attention in {recorder.path!r}: shapes {shapes} do not match."
        )
    mask = () if attn_mask is None else (recorder.operand(recorder.to_meta(attn_mask)),)
    layer = _Attention(recorder, mask, bool(is_causal), _is_differentiable(*tensors))
    return _WholeCall.apply(layer, *tensors)


@frozen
class _Attention:
    """One ATTENTION row forward, one ATTENTION_BACKWARD row backward."""

    recorder: OperatorRecorder
    mask: tuple[Operand, ...]
    is_causal: bool
    is_differentiable: bool

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Sequence[Tensor]]:
        # The result is laid out as the queries are: where these lie inside tokens, merging the
        # heads moves nothing (ATen FlashAttentionKernel.cpp; a GPU's kernels do the same).
        is_alike = v.shape[-1] == q.shape[-1]
        output = torch.empty_like(q) if is_alike else q.new_empty((*q.shape[:-1], v.shape[-1]))
        *operands, written = self.recorder.operands(q, k, v, output)
        reads = (*operands, *self.mask)
        kernel = attention_kernel(operands, reads, (written,), causal=self.is_causal)
        row = self.recorder.add([kernel], "scaled_dot_product_attention")
        if self.is_differentiable:  # log-sum-exp, FP32
            row.saved_fixed_bytes += 4.0 * output.numel() / max(output.shape[-1], 1)
        return output, (q, k, v, output)

    def backward(
        self, gradient: Tensor, saved: Sequence[Tensor], *, needs_input: bool
    ) -> Sequence[Tensor]:
        del needs_input  # one kernel computes all three
        results = [torch.empty_like(x) for x in saved[:3]]
        reads, writes = self.recorder.operands(gradient, *saved), self.recorder.operands(*results)
        kernel = attention_kernel(reads[1:4], reads, writes, causal=self.is_causal, backward=True)
        self.recorder.add([kernel], "scaled_dot_product_attention_backward")
        return results


# -- RMS norm


def _rms_norm(
    recorder: OperatorRecorder,
    input: Tensor,  # noqa: A002  (torch's name)
    normalized_shape: list[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """``rms_norm`` as the one kernel accelerators run, rather than its parts."""
    del eps
    tensors = [recorder.to_meta(x) for x in (input, weight) if x is not None]
    layer = _RmsNorm(recorder, prod(normalized_shape), _is_differentiable(*tensors))
    return _WholeCall.apply(layer, *tensors)


@frozen
class _RmsNorm:
    """One row forward (4 FLOP per element) and one backward (twice that)."""

    recorder: OperatorRecorder
    columns: int
    is_differentiable: bool

    def forward(self, *tensors: Tensor) -> tuple[Tensor, Sequence[Tensor]]:
        output = torch.empty_like(tensors[0])
        row = self._add(tensors, [output], 4, "rms_norm")
        if self.is_differentiable:  # reciprocal root mean squares, FP32
            row.saved_fixed_bytes += 4.0 * output.numel() / self.columns
        return output, tensors

    def backward(
        self, gradient: Tensor, saved: Sequence[Tensor], *, needs_input: bool
    ) -> Sequence[Tensor]:
        del needs_input  # one kernel computes both
        results = [torch.empty_like(x) for x in saved]
        self._add((gradient, *saved), results, 8, "rms_norm_backward")
        return results

    def _add(
        self, reads: Sequence[Tensor], writes: Sequence[Tensor], element_flop: int, name: str
    ) -> Row:
        elements = writes[0].numel()
        dims, flop = (elements // self.columns, self.columns), float(element_flop * elements)
        operands = self.recorder.operands(*reads), self.recorder.operands(*writes)
        return self.recorder.add([Kernel(OperatorKind.RMS_NORM, dims, *operands, flop=flop)], name)


# -- recurrent layers


def _recurrent(recorder: OperatorRecorder, name: str, *args: Any) -> Any:
    """``torch.lstm`` and its kin over padded sequences."""
    if isinstance(args[3], (list, tuple)):
        raise CaptureError(
            f"{recorder.path!r} runs {name} on a packed sequence, whose layout is data. Pass "
            f"padded sequences instead."
        )
    x, state, weights, biased, layers, dropout, training, bidirectional, batch_first = args
    states = list(state) if isinstance(state, (list, tuple)) else [state]
    directions = 2 if bidirectional else 1
    weight_count = len(weights) // (layers * directions)
    is_projected = name == "lstm" and weight_count == (5 if biased else 3)
    tensors = [recorder.to_meta(t) for t in (x, *states, *weights)]
    stack = _RecurrentStack(
        recorder,
        name,
        layers=layers,
        directions=directions,
        dropout=dropout if training else 0.0,
        batch_first=batch_first,
        hidden=weights[0].shape[0] // RECURRENT_GATES[_RECURRENT[name]],
        projection=weights[weight_count - 1].shape[0] if is_projected else 0,
        layer_weights=weight_count * directions,
        state_count=len(states),
        is_differentiable=_is_differentiable(*tensors),
    )
    return tuple(_WholeCall.apply(stack, *tensors))


@frozen
class _RecurrentStack:
    """A recurrent call: layers x directions over one sequence, one row per layer forward and
    backward.
    """

    recorder: OperatorRecorder
    name: str
    layers: int
    directions: int
    dropout: float
    batch_first: bool
    hidden: int
    projection: int
    layer_weights: int
    state_count: int
    is_differentiable: bool

    @property
    def gates(self) -> int:
        """Products per hidden unit and step."""
        return RECURRENT_GATES[_RECURRENT[self.name]]

    def forward(self, x: Tensor, *others: Tensor) -> tuple[object, Sequence[Tensor]]:
        states, weights = others[: self.state_count], others[self.state_count :]
        outputs = [x]
        final_states = [torch.empty_like(state) for state in states]
        for layer in range(self.layers):
            first = layer * self.directions
            initial = [state.narrow(0, first, self.directions) for state in states]
            reads = [outputs[-1], *self._weights_of(layer, weights), *initial]
            outputs.append(self._forward_layer(layer, reads))
        for state in final_states:
            self.recorder.write(state)
        saved = (*outputs, *weights, *states) if self.is_differentiable else ()
        return (outputs[-1], *final_states), saved

    def _forward_layer(self, layer: int, reads: Sequence[Tensor]) -> Tensor:
        """The output of a layer, behind a dropout where another layer follows.

        Estimate: a training pass keeps the gates and the cell state of every step.
        """
        width = self.projection or self.hidden
        output = reads[0].new_empty((*reads[0].shape[:2], width * self.directions))
        row = self.recorder.add(
            [self._kernel(reads[0], reads, [output], f"layer{layer}")], self.name
        )
        if self.is_differentiable:
            row.saved_elements += output.numel() * (self.gates + 1) * self.hidden / width
        if layer + 1 < self.layers and self.dropout:
            operand = self.recorder.operand(output)
            dropout = Call("native_dropout", {"input": operand}, (operand,))
            self.recorder.add(elementwise(dropout), dropout.name)
        return output

    def backward(
        self, gradient: Tensor, saved: Sequence[Tensor], *, needs_input: bool
    ) -> Sequence[Tensor]:
        """Estimate: twice the forward's products; without the input's gradient its share is left
        out.
        """
        outputs, others = saved[: self.layers + 1], saved[self.layers + 1 :]
        weights, states = others[: -self.state_count], others[-self.state_count :]
        results = [torch.empty_like(w) for w in weights]
        for layer in reversed(range(self.layers)):
            source, is_needed = outputs[layer], layer > 0 or needs_input
            source_gradient = torch.empty_like(source)
            reads = [source, outputs[layer + 1], gradient, *self._weights_of(layer, weights)]
            writes = [*self._weights_of(layer, results), *([source_gradient] * is_needed)]
            kernel = self._kernel(source, reads, writes)
            input_flop = 2.0 * source.numel() * self.directions * self.gates * self.hidden
            flop = 2.0 * kernel.flop - (0.0 if is_needed else input_flop)
            self.recorder.add([replace(kernel, flop=flop)], f"{self.name}_backward")
            gradient = source_gradient
        return (gradient, *(torch.empty_like(state) for state in states), *results)

    def _weights_of(self, layer: int, weights: Sequence[Tensor]) -> Sequence[Tensor]:
        return weights[layer * self.layer_weights : (layer + 1) * self.layer_weights]

    def _kernel(
        self,
        source: Tensor,
        reads: Sequence[Tensor],
        writes: Sequence[Tensor],
        suffix: str = "",
    ) -> Kernel:
        batch, steps = source.shape[:2] if self.batch_first else source.shape[1::-1]
        return recurrent_kernel(
            _RECURRENT[self.name],
            (batch, steps, source.shape[2], self.hidden, self.directions),
            self.recorder.operands(*reads),
            self.recorder.operands(*writes),
            projection=self.projection,
            suffix=suffix,
        )
