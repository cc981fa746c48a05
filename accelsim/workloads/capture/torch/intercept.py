"""Keeps attention, RMS norms and recurrent layers whole while a torch module is captured.

On the meta device ``scaled_dot_product_attention`` and ``torch.lstm`` fall apart into products,
softmax and one matrix product per time step. `Interceptor` is a function mode that answers these
calls itself: one row forward and one backward each, with outputs of the right shape that autograd
can follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from threading import get_ident
from typing import Any

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
from accelsim.workloads.capture.torch.recorder import OperatorRecorder
from accelsim.workloads.operator import RECURRENT_GATES, OperatorKind

_RECURRENT = {
    "lstm": OperatorKind.LSTM,
    "gru": OperatorKind.GRU,
    "rnn_tanh": OperatorKind.RNN,
    "rnn_relu": OperatorKind.RNN,
}


#: Positional arguments of ``scaled_dot_product_attention``.
_ATTENTION_ARGUMENTS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
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

        def stand_in(original: Any) -> Any:
            def answer(*args: Any, **keywords: Any) -> Any:
                if get_ident() != thread:
                    return original(*args, **keywords)
                return self._answer(original, args, keywords)

            return answer

        self._originals = {name: getattr(functional, name) for name in _STAND_INS}
        try:
            for name, original in self._originals.items():
                setattr(functional, name, stand_in(original))
            with self:
                yield
        finally:
            for name, original in self._originals.items():
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
        recorder, name = self._recorder, getattr(func, "__name__", "")
        packet = torch.ops.aten.scaled_dot_product_attention
        if func in (self._originals["scaled_dot_product_attention"], packet, packet.default):
            given = dict(zip(_ATTENTION_ARGUMENTS, args, strict=False)) | keywords
            tensors, mask = (
                [given[name] for name in _ATTENTION_ARGUMENTS[:3]],
                given.get("attn_mask"),
            )
            if self._fused_attention:
                causal = bool(given.get("is_causal"))
                return _attention(recorder, tensors, mask, is_causal=causal)
        elif func is self._originals["dropout"]:
            return _dropout(*args, **keywords)
        elif func is self._originals["rms_norm"]:
            return _rms_norm(recorder, *args, **keywords)
        elif func is self._originals["linear"] and "input" not in keywords:
            return _linear(func, *args, **keywords)
        elif name in _RECURRENT and func is getattr(torch, name, None):
            return _recurrent(recorder, name, args)
        return func(*args, **keywords)


class _Whole(torch.autograd.Function):  # type: ignore[misc]
    """A call that adds rows of its own, forward and backward: those of its layer."""

    @staticmethod
    def forward(ctx: Any, layer: Any, *tensors: Tensor) -> Any:
        outputs, kept = layer.forward(*tensors)
        ctx.layer = layer
        ctx.save_for_backward(*kept)
        return outputs

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        asked = ctx.needs_input_grad[1]
        return (None, *ctx.layer.backward(gradients[0], ctx.saved_tensors, asked))


def _linear(func: Any, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Adds the bias in place where the input does not lie together; under a dispatch mode torch
    itself does not.
    """
    if bias is None or x.dim() <= 2 or x.is_contiguous():
        return func(x, weight, bias)
    result = func(x, weight)
    return result.add_(bias)


def _dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Dropout as accelerators run it: one kernel that writes the result and a one-byte mask."""
    if not training or p == 0.0:
        return x
    result: Tensor = torch.native_dropout(x, p, True)[0]
    return x.copy_(result) if inplace and not x.requires_grad else result


# -- attention


def _attention(
    recorder: OperatorRecorder, tensors: Sequence[Tensor], mask: Tensor | None, *, is_causal: bool
) -> Tensor:
    """``scaled_dot_product_attention`` as one row; dropout inside the fused kernel costs no row."""
    query, key, value = (recorder.to_meta(x) for x in tensors)
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        shapes = "{}, {} and {}".format(*(tuple(x.shape) for x in (query, key, value)))
        raise CaptureError(
            f"scaled_dot_product_attention in {recorder.path!r}: shapes {shapes} do not match."
        )
    masks = () if mask is None else _operands(recorder, recorder.to_meta(mask))
    layer = _Attention(recorder, masks, is_causal, _differentiable(query, key, value))
    return _Whole.apply(layer, query, key, value)


def _differentiable(*tensors: Tensor) -> bool:
    """Whether autograd will keep what a call on these tensors saves."""
    return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)


def _attention_output(q: Tensor, v: Tensor) -> Tensor:
    """The result's memory, laid out as the queries are: where these lie inside tokens, merging the
    heads moves nothing.

    ATen FlashAttentionKernel.cpp; a GPU's kernels do the same with queries as layers leave them.
    """
    return (
        torch.empty_like(q)
        if v.shape[-1] == q.shape[-1]
        else q.new_empty((*q.shape[:-1], v.shape[-1]))
    )


def _operands(recorder: OperatorRecorder, *tensors: Tensor) -> tuple[Operand, ...]:
    return tuple(recorder.operand(x) for x in tensors)


@frozen
class _Attention:
    """One ATTENTION row forward, one ATTENTION_BACKWARD row backward."""

    recorder: OperatorRecorder
    mask: tuple[Operand, ...]
    causal: bool
    differentiable: bool

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Any:
        recorder, output = self.recorder, _attention_output(q, v)
        *parts, written = _operands(recorder, q, k, v, output)
        reads = (*parts, *self.mask)
        kernel = attention_kernel(parts, reads, (written,), causal=self.causal)
        row = recorder.rows[recorder.add([kernel], "scaled_dot_product_attention")]
        if self.differentiable:  # log-sum-exp, FP32
            row.saved_fixed_bytes += 4.0 * output.numel() / max(output.shape[-1], 1)
        return output, (q, k, v, output)

    def backward(self, gradient: Tensor, saved: tuple[Tensor, ...], _: bool) -> Any:
        results = [torch.empty_like(x) for x in saved[:3]]
        reads = _operands(self.recorder, gradient, *saved)
        writes = _operands(self.recorder, *results)
        kernel = attention_kernel(reads[1:4], reads, writes, causal=self.causal, backward=True)
        self.recorder.add([kernel], "scaled_dot_product_attention_backward")
        return results


# -- RMS norm


def _rms_norm(
    recorder: OperatorRecorder,
    x: Tensor,
    normalized_shape: list[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """``rms_norm`` as the one kernel accelerators run, rather than its parts."""
    del eps
    tensors = [recorder.to_meta(t) for t in (x, weight) if t is not None]
    columns = prod(normalized_shape)
    result: Tensor = _Whole.apply(_RmsNorm(recorder, columns), *tensors)
    if _differentiable(*tensors):  # reciprocal root mean squares, FP32
        recorder.rows[-1].saved_fixed_bytes += 4.0 * x.numel() / columns
    return result


@frozen
class _RmsNorm:
    """One row forward (4 FLOP per element) and one backward (twice that)."""

    recorder: OperatorRecorder
    columns: int

    def forward(self, *tensors: Tensor) -> Any:
        output = torch.empty_like(tensors[0])
        self._row(tensors, [output], 4, "rms_norm")
        return output, tensors

    def backward(self, gradient: Tensor, saved: tuple[Tensor, ...], _: bool) -> Any:
        results = [torch.empty_like(t) for t in saved]
        self._row((gradient, *saved), results, 8, "rms_norm_backward")
        return results

    def _row(self, reads: Iterable[Tensor], writes: Any, flop: int, name: str) -> None:
        elements = writes[0].numel()
        dims = (elements // self.columns, self.columns)
        operands = _operands(self.recorder, *reads), _operands(self.recorder, *writes)
        kernel = Kernel(OperatorKind.RMS_NORM, dims, *operands, flop=float(flop * elements))
        self.recorder.add([kernel], name)


# -- recurrent layers


def _recurrent(recorder: OperatorRecorder, name: str, args: tuple[Any, ...]) -> Any:
    """``torch.lstm`` and its kin over padded sequences."""
    if isinstance(args[3], (list, tuple)):
        raise CaptureError(
            f"{recorder.path!r} runs {name} on a packed sequence, whose layout is data. Pass "
            f"padded sequences instead."
        )
    x, state, weights, biased, layers, dropout, training, bidirectional, batch_first = args
    states = list(state) if isinstance(state, (list, tuple)) else [state]
    directions = 2 if bidirectional else 1
    each = len(weights) // (int(layers) * directions)
    is_projected = name == "lstm" and each == (5 if biased else 3)
    tensors = [recorder.to_meta(t) for t in (x, *states, *weights)]
    stack = _Stack(
        recorder,
        name,
        layers=int(layers),
        directions=directions,
        dropout=float(dropout) if training else 0.0,
        batch_first=bool(batch_first),
        hidden=weights[0].shape[0] // RECURRENT_GATES[_RECURRENT[name]],
        projection=weights[each - 1].shape[0] if is_projected else 0,
        per_layer=each * directions,
        state_count=len(states),
        differentiable=_differentiable(*tensors),
    )
    return tuple(_Whole.apply(stack, *tensors))


@frozen
class _Stack:
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
    per_layer: int
    state_count: int
    differentiable: bool

    def forward(self, x: Tensor, *others: Tensor) -> Any:
        states, weights = others[: self.state_count], others[self.state_count :]
        width = self.projection or self.hidden
        per_feature = (RECURRENT_GATES[_RECURRENT[self.name]] + 1) * self.hidden / width
        layers = [x]  # in inference the last alone
        finals = [torch.empty_like(state) for state in states]
        for layer in range(self.layers):
            target = x.new_empty((*x.shape[:2], width * self.directions))
            own = self._own(weights, layer)
            first = [s.narrow(0, layer * self.directions, self.directions) for s in states]
            reads = [layers[-1], *own, *first]
            kernel = self._kernel(layers[-1], reads, [target], f"layer{layer}")
            row = self.recorder.add([kernel], self.name)
            if self.differentiable:  # gates and cell state of every step, a training pass's reserve
                self.recorder.rows[row].saved_elements += target.numel() * per_feature
            if layer + 1 < self.layers and self.dropout:
                (operand,) = _operands(self.recorder, target)
                call = Call("native_dropout", (operand,), {}, (operand,))
                self.recorder.add(elementwise(call), call.name)
            layers = [*layers, target] if self.differentiable else [target]
        for final in finals:
            self.recorder.write(final)
        kept = (*layers, *weights, *states) if self.differentiable else ()
        return (layers[-1], *finals), kept

    def backward(self, gradient: Tensor, saved: tuple[Tensor, ...], asked: bool) -> Any:
        """Twice the forward's products; without the input's gradient its share is left out."""
        layers, others = saved[: self.layers + 1], saved[self.layers + 1 :]
        weights, states = others[: -self.state_count], others[-self.state_count :]
        results = [torch.empty_like(w) for w in weights]
        for layer in reversed(range(self.layers)):
            source, is_needed = layers[layer], layer > 0 or asked
            downstream = torch.empty_like(source)
            reads = [source, layers[layer + 1], gradient, *self._own(weights, layer)]
            writes = [*self._own(results, layer), *([downstream] if is_needed else [])]
            kernel = self._kernel(source, reads, writes, "")
            gates = RECURRENT_GATES[_RECURRENT[self.name]]
            skipped = 2.0 * source.numel() * self.directions * gates * self.hidden
            flop = 2.0 * kernel.flop - (0.0 if is_needed else skipped)
            self.recorder.add([replace(kernel, flop=flop)], f"{self.name}_backward")
            gradient = downstream
        return (gradient, *(torch.empty_like(state) for state in states), *results)

    def _own(self, weights: Sequence[Tensor], layer: int) -> Sequence[Tensor]:
        """The weights of one layer."""
        return weights[layer * self.per_layer : (layer + 1) * self.per_layer]

    def _kernel(
        self,
        source: Tensor,
        reads: list[Tensor],
        writes: list[Tensor],
        suffix: str,
    ) -> Kernel:
        batch, steps = source.shape[:2] if self.batch_first else source.shape[1::-1]
        return recurrent_kernel(
            _RECURRENT[self.name],
            (batch, steps, source.shape[2], self.hidden, self.directions),
            _operands(self.recorder, *reads),
            _operands(self.recorder, *writes),
            projection=self.projection,
            suffix=suffix,
        )
