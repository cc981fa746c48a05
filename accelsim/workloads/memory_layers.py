"""Layers bound by memory: elementwise operators, norms, softmax, reductions, pools, look-ups and
copies, as `builder` writes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from accelsim.dtype import Dtype
from accelsim.errors import InvalidValueError
from accelsim.workloads.operator import OperatorKind
from accelsim.workloads.pointwise import POINTWISE_FLOP
from accelsim.workloads.row_writer import NOTHING, RowWriter, Saved, Tensor
from accelsim.workloads.window import per_axis, pooled_size

_K = OperatorKind
#: Name of dropout's rows.
DROPOUT = "dropout"
#: Activations whose gradient needs only the output.
_SAVES_OUTPUT = {"relu", "sigmoid", "tanh", "exp"}


class MemoryBoundLayers(RowWriter):
    """Layers that move more than they multiply, each a method that takes and returns tensors."""

    def elementwise(
        self,
        *inputs: Tensor,
        name: str,
        flop_per_element: int = 1,
        saves: Saved = NOTHING,
        shape: Sequence[int] | None = None,
    ) -> Tensor:
        """One output element per element of the first input (or of `shape`)."""
        out = tuple(inputs[0].shape if shape is None else shape)
        return self.operator(
            _K.ELEMENTWISE,
            (prod(out), len(inputs), flop_per_element),
            inputs,
            out,
            name=name,
            saves=saves,
        )

    def activation(self, x: Tensor, function: str = "relu", *, at: str = "") -> Tensor:
        """A named activation."""
        flop = POINTWISE_FLOP.get(function, 1)
        saves = Saved(output=True) if function in _SAVES_OUTPUT else Saved([x])
        with self.scope(at):
            return self.elementwise(x, name=function, flop_per_element=flop, saves=saves)

    def dropout(self, x: Tensor) -> Tensor:
        """Dropout, which runs in training alone: beside the output it writes a mask of a byte per
        element, which the backward pass reads (PyTorch, native_dropout).
        """
        if not self.is_training:
            return x
        mask_bytes = 1.0 * x.elements
        return self.operator(
            _K.ELEMENTWISE,
            (x.elements, 1, POINTWISE_FLOP["native_dropout"]),
            [x],
            x.shape,
            name=DROPOUT,
            read_bytes=x.bytes + mask_bytes,
            saves=Saved(extra_bytes=mask_bytes),
        )

    def add(self, a: Tensor, b: Tensor, *, name: str = "add") -> Tensor:
        """Sum of two tensors of one shape."""
        return self.elementwise(a, b, name=name)

    def multiply(self, a: Tensor, b: Tensor, *, name: str = "mul") -> Tensor:
        """Product of two tensors (b may be smaller and broadcast)."""
        return self.elementwise(a, b, name=name, saves=Saved([a, b]))

    def _norm(
        self, kind: OperatorKind, x: Tensor, rows: int, parameters: int, tensors: int, at: str
    ) -> Tensor:
        full = Dtype.FP32 if kind != _K.RMS_NORM and self.is_mixed else None
        with self.scope(at):
            self.parameters(parameters, tensors)
            x = self.cast(x, full) if full else x
            return self.operator(
                kind,
                (rows, x.elements // rows),
                [x],
                x.shape,
                name=kind.label,
                weights=parameters,
                saves=Saved([x], extra_bytes=8.0 * rows),
                dtype=full,
            )

    def layer_norm(
        self, x: Tensor, *, bias: bool = True, scale: bool = True, at: str = ""
    ) -> Tensor:
        """Normalise the last axis; a learned scale and bias follow unless they are false.

        Ba et al. 2016, arXiv:1607.06450.
        """
        width = x.shape[-1]
        rows = x.elements // width
        return self._norm(_K.LAYER_NORM, x, rows, width * (scale + bias), scale + bias, at)

    def rms_norm(self, x: Tensor, *, at: str = "") -> Tensor:
        """Scale the last axis to unit root mean square."""
        width = x.shape[-1]
        return self._norm(_K.RMS_NORM, x, x.elements // width, width, 1, at)

    def batch_norm(self, x: Tensor, *, at: str = "") -> Tensor:
        """Normalise each channel of x (n, c, ...) with running (inference) or batch (training)
        statistics; frozen ones scale and shift it in training.

        Ioffe and Szegedy, ICML 2015, arXiv:1502.03167.
        """
        channels = x.shape[1]
        with self.scope(at):
            self.parameters(2 * channels, 2)
            if self.is_training and self.norms_are_frozen:
                return self.elementwise(x, name="frozen_batch_norm", flop_per_element=2)
            return self.operator(
                _K.BATCH_NORM,
                (x.elements // channels, channels),
                [x],
                x.shape,
                name="batch_norm",
                weights=4 * channels,
                saves=Saved([x], extra_bytes=8.0 * channels),
            )

    def group_norm(self, x: Tensor, groups: int, *, at: str = "") -> Tensor:
        """Normalise groups of channels of x (n, c, ...); groups = channels is instance norm.

        Wu and He, ECCV 2018, arXiv:1803.08494.
        """
        rows, channels = x.shape[0] * groups, x.shape[1]
        tensors = max(1, 2 * channels // max(x.elements // rows, 1))
        return self._norm(_K.GROUP_NORM, x, rows, 2 * channels, tensors, at)

    def softmax(self, x: Tensor, *, name: str = "softmax") -> Tensor:
        """Softmax over the last axis; in mixed precision one kernel reads 16 bits and writes FP32
        (PyTorch, autocast's policy fp32_set_opt_dtype).
        """
        full = Dtype.FP32 if self.is_mixed else None
        rows = x.elements // x.shape[-1]
        return self.operator(
            _K.SOFTMAX,
            (rows, x.shape[-1]),
            [x],
            x.shape,
            name=name,
            saves=Saved(output=True),
            dtype=full,
        )

    def reduce(self, x: Tensor, *shape: int, name: str = "mean") -> Tensor:
        """Reduce x to `shape`."""
        rows = max(prod(shape), 1)
        dims = (rows, x.elements // rows)
        return self.operator(_K.REDUCTION, dims, [x], shape, name=name)

    def pool(
        self,
        x: Tensor,
        kernel: int | Sequence[int],
        *,
        stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0,
        mode: str = "max",
        ceil: bool = False,
        at: str = "",
    ) -> Tensor:
        """Max or average pooling of x (n, c, spatial...)."""
        rank = len(x.shape) - 2
        window = per_axis(kernel, rank)
        step, pad = per_axis(window if stride is None else stride, rank), per_axis(padding, rank)
        out = tuple(
            pooled_size(i, w, s, p, ceil=ceil)
            for i, w, s, p in zip(x.shape[2:], window, step, pad, strict=True)
        )
        if min(out) < 1:
            raise InvalidValueError(
                "input size", x.shape[2:], f"at least the pooling window {window}"
            )
        with self.scope(at):
            return self._pool(x, out, prod(window), mode)

    def global_pool(self, x: Tensor, size: int = 1, *, at: str = "") -> Tensor:
        """Adaptive average pooling to size x size (x ...)."""
        out = (size,) * (len(x.shape) - 2)
        with self.scope(at):
            return self._pool(x, out, max(1, prod(x.shape[2:]) // prod(out)), "avg")

    def _pool(self, x: Tensor, out: tuple[int, ...], volume: int, mode: str) -> Tensor:
        batch, channels = x.shape[:2]
        outputs = batch * channels * prod(out)
        return self.operator(
            _K.POOLING,
            (batch, channels, prod(x.shape[2:]), prod(out), volume),
            [x],
            (batch, channels, *out),
            name=f"{mode}_pool",
            # int64 indices
            saves=Saved([x], extra_bytes=8.0 * outputs) if mode == "max" else NOTHING,
        )

    def embedding(
        self,
        ids: Tensor,
        table_rows: int,
        width: int,
        *,
        name: str = "embedding",
        tied: bool = False,
        at: str = "",
    ) -> Tensor:
        """Gather one row of a (table_rows, width) table per id."""
        lookups = ids.elements
        with self.scope(at):
            if not tied:
                self.parameters(table_rows * width)
            return self.operator(
                _K.EMBEDDING,
                (lookups, width, table_rows),
                [ids],
                (*ids.shape, width),
                name=name,
                read_bytes=ids.bytes + lookups * width * self.precision.activation.bytes,
                saves=Saved(extra_bytes=ids.bytes),
            )

    def embedding_bag(
        self, bags: int, pooling: int, table_rows: int, width: int, *, name: str = "embedding_bag"
    ) -> Tensor:
        """Sum `pooling` gathered rows into each of `bags` outputs.

        As the sparse features of DLRM (Naumov et al., arXiv:1906.00091).
        """
        self.parameters(table_rows * width)
        lookups = bags * pooling
        ids_bytes = 8.0 * lookups
        return self.operator(
            _K.EMBEDDING_BAG,
            (lookups, width, table_rows, bags),
            [],
            (bags, width),
            name=name,
            read_bytes=ids_bytes + lookups * width * self.precision.activation.bytes,
            saves=Saved(extra_bytes=ids_bytes),
        )

    def copy(
        self, *inputs: Tensor, shape: Sequence[int] | None = None, name: str = "copy"
    ) -> Tensor:
        """Move the inputs to new storage: concatenation, transposition made contiguous, padding,
        repetition.
        """
        out = tuple(inputs[0].shape if shape is None else shape)
        return self.operator(_K.COPY, (prod(out),), inputs, out, name=name)

    def concat(self, inputs: Sequence[Tensor], axis: int = 1) -> Tensor:
        """Concatenate along one axis."""
        shape = inputs[0].shape
        axis %= len(shape)
        before, after = shape[:axis], shape[axis + 1 :]
        for x in inputs:
            if (x.shape[:axis], x.shape[axis + 1 :]) != (before, after):
                allowed = f"{shape} but for axis {axis}, to be concatenated"
                raise InvalidValueError("input size", x.shape, allowed)
        total = sum(x.shape[axis] for x in inputs)
        return self.copy(*inputs, shape=(*before, total, *after), name="concat")

    def upsample(self, x: Tensor, factor: int = 2) -> Tensor:
        """Nearest-neighbour upsampling of x (n, c, spatial...)."""
        sides = (factor * side for side in x.shape[2:])
        return self.copy(x, shape=(*x.shape[:2], *sides), name="upsample")
