"""Writes rows of an operator graph one by one: shapes, storage, dependencies, parameters, what the
backward pass keeps.

`Tensor` is a shape with the row that made it and a storage identity; views share storage. What a
forward row keeps for the backward pass (`saved_bytes`) is counted once per storage, as PyTorch's
autograd does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from math import prod
from typing import NamedTuple, cast

import numpy as np

from accelsim.dtype import Dtype, Precision, StoredFormat
from accelsim.errors import InvalidValueError
from accelsim.plain import Document
from accelsim.workloads.cache import CacheLayer
from accelsim.workloads.graph import FLOAT_COLUMNS, IntArray, OperatorGraph, codes
from accelsim.workloads.operator import (
    ACTIVATION_PRODUCT_KINDS,
    MAX_DIMENSIONS,
    PRODUCT_KINDS,
    OperatorKind,
    Phase,
    row_flop,
)
from accelsim.workloads.sharding import WHOLE, ParallelGroup, Shard

#: Formats trained under `torch.autocast`. FP16 is a network halved as a whole, with FP32 weights
#: at the optimizer alone (Micikevicius et al., arXiv:1710.03740; Apex O2): with what it keeps,
#: eight published BERT trainings fill 84 to 96 % of their boards, and autocast would not fit.
_MIXED = frozenset({"bf16"})
#: Kinds whose output is as wide as their widest input.
_PROMOTING = frozenset({OperatorKind.ELEMENTWISE, OperatorKind.COPY, OperatorKind.REDUCTION})


class Tensor(NamedTuple):
    """A shape, the row that produced it (-1: an input of the model) and a storage identity; with
    its number of elements and their bytes.
    """

    shape: tuple[int, ...]
    row: int
    storage: int
    element_bytes: float
    elements: int
    bytes: float

    @classmethod
    def of(cls, shape: Sequence[int], row: int, storage: int, element_bytes: float) -> Tensor:
        """A tensor of a shape."""
        elements = prod(shape)
        return cls(tuple(shape), row, storage, element_bytes, elements, elements * element_bytes)


class RowEntry(NamedTuple):
    """A row as it is written.

    Attributes:
        kind: `OperatorKind` code.
        dims: Dimensions in the order of ``DIMENSIONS[kind]``.
        dtype: Compute `Dtype` code.
        amounts: FLOP and bytes in the order of `FLOAT_COLUMNS`.
    """

    kind: int
    dims: tuple[int, ...]
    dtype: int
    amounts: tuple[float, ...]


class ParameterTotals(NamedTuple):
    """Trainable parameters, the tensors they live in and the bytes they are stored in."""

    parameters: int = 0
    tensors: int = 0
    bytes: float = 0.0

    def plus(self, totals: ParameterTotals, times: int = 1) -> ParameterTotals:
        """The sum of these and a multiple of others."""
        return ParameterTotals(
            self.parameters + times * totals.parameters,
            self.tensors + times * totals.tensors,
            self.bytes + times * totals.bytes,
        )


class Saved(NamedTuple):
    """What the backward pass needs of an operator.

    Attributes:
        tensors: Inputs.
        output: Whether it needs the output.
        extra_bytes: Other bytes kept (masks, indices, statistics).
    """

    tensors: Sequence[Tensor] = ()
    output: bool = False
    extra_bytes: float = 0.0


NOTHING = Saved()


class _Progress(NamedTuple):
    """How much has been written."""

    rows: int
    sources: int
    storages: int
    cached: int
    totals: ParameterTotals


class _Scope(NamedTuple):
    """Names of the modules around what is written, and one more inside a ``with``; a generator's
    takes twice the time.
    """

    names: list[str]
    name: str

    def __enter__(self) -> None:
        if self.name:
            self.names.append(self.name)

    def __exit__(self, *_: object) -> None:
        if self.name:
            self.names.pop()


class PassForm(NamedTuple):
    """How a pass is written.

    Attributes:
        fused_attention: One attention operator with fused traffic; False writes scores, softmax and
            context separately.
        shard: The part of the model that is written.
        is_training: Whether a backward pass follows: dropout runs, and BF16 is PyTorch's
            automatic mixed precision.
        merges: Whether products of one input are one product, as serving engines have them.
        folds: Whether of equal layers one after the other only the first two and the last are
            written; `folded` says how many more each of these stands for.
        document_len: Tokens of the documents that are packed into a sequence, each of which fused
            attention stays within; 0 where a sequence is one.
    """

    fused_attention: bool = True
    shard: Shard = WHOLE
    is_training: bool = False
    merges: bool = False
    folds: bool = False
    document_len: int = 0


class RowWriter:
    """Collects rows and their dependencies, parameters and kept tensors; `build` returns the
    immutable graph.

    Args:
        precision: Which dtypes to use.
        phase: Phase of the rows.
        form: How it is written.
    """

    def __init__(
        self,
        precision: Precision,
        phase: Phase = Phase.FORWARD,
        form: PassForm = PassForm(),  # noqa: B008, immutable
    ) -> None:
        self.precision = precision
        self.phase = phase
        self.fused_attention, self.shard, self.is_training = form[:3]
        self.merges, self.folds, self.document_len = form[3:]
        #: Equal layers that are not written, by the path of the one that stands for them.
        self.folded: dict[str, int] = {}
        #: Whether batch norms scale and shift by statistics that stay as they are.
        self.norms_are_frozen = False
        #: Whether norms and softmax run in FP32 between products of 16 bits.
        self.is_mixed = form.is_training and precision.name in _MIXED
        self.parameter_totals = ParameterTotals()
        self.cached: list[CacheLayer] = []  # of one sequence, by layer
        self.rows: list[RowEntry] = []
        self.names: list[str] = []
        self.paths: list[str] = []
        self._source_counts: list[int] = []  # rows that each waits for
        self._sources: list[int] = []  # those, row after row
        self._scope: list[str] = []
        self._saved: set[int] = set()
        self._shards: dict[int, Tensor] = {}  # by storage of what was gathered from them
        self._storages = 0

    def scope(self, name: str | int) -> _Scope:
        """Extend the module path of the rows inside by `name`, if it is not empty."""
        return _Scope(self._scope, str(name))

    def _path(self, at: str = "") -> str:
        """The module path of the scope, and of a module within it."""
        return ".".join([*self._scope, at] if at else self._scope)

    def input(self, *shape: int, dtype: StoredFormat | None = None) -> Tensor:
        """A tensor that is there at the start."""
        width = (dtype or self.precision.activation).bytes
        return Tensor.of(shape, -1, self._storage(), width)

    def view(self, x: Tensor, *shape: int) -> Tensor:
        """The same storage under another shape; no row."""
        if prod(shape) != x.elements:
            raise InvalidValueError("shape", shape, f"{x.elements} elements, as in {x.shape}")
        return Tensor.of(shape, x.row, x.storage, x.element_bytes)

    def part(self, x: Tensor, *shape: int) -> Tensor:
        """A view of a part of the storage (slice, chunk, select); no row."""
        return Tensor.of(shape, x.row, x.storage, x.element_bytes)

    def split(self, x: Tensor, widths: Sequence[int]) -> tuple[Tensor, ...]:
        """Disjoint parts of the last axis; no row. Each part counts as storage of its own when it
        is kept.
        """
        if sum(widths) != x.shape[-1]:
            raise InvalidValueError("widths", tuple(widths), f"widths that add up to {x.shape[-1]}")
        return tuple(
            Tensor.of((*x.shape[:-1], width), x.row, self._storage(), x.element_bytes)
            for width in widths
        )

    def dependencies(self) -> tuple[IntArray, IntArray]:
        """Offsets, shape (rows + 1,), and rows waited for, as an `OperatorGraph` has them."""
        offset = np.zeros(len(self.rows) + 1, dtype=np.int64)
        np.cumsum(self._source_counts, out=offset[1:])
        return offset, np.array(self._sources, dtype=np.int64)

    def build(self) -> OperatorGraph:
        """The graph of all rows so far."""
        count = len(self.rows)
        dims = np.zeros((count, MAX_DIMENSIONS), dtype=np.int64)
        for row, entry in enumerate(self.rows):
            dims[row, : len(entry.dims)] = entry.dims
        amounts = np.array([row.amounts for row in self.rows], dtype=np.float64).reshape(count, 5)
        floats: Document = dict(zip(FLOAT_COLUMNS, amounts.T.copy(), strict=True))
        return OperatorGraph(**self.columns(), **floats, dims=dims)

    def columns(self) -> Document:
        """Columns of all rows that no size decides on."""
        offset, dependency = self.dependencies()
        return {
            "kind": np.array([row.kind for row in self.rows], dtype=np.int16),
            "dtype": np.array([row.dtype for row in self.rows], dtype=np.int8),
            "phase": codes(len(self.rows), self.phase),
            "name": tuple(self.names),
            "path": tuple(self.paths),
            "dependency_offset": offset,
            "dependency": dependency,
        }

    def operator(
        self,
        kind: OperatorKind,
        dims: Sequence[int],
        inputs: Sequence[Tensor],
        output_shape: Sequence[int],
        *,
        name: str,
        weights: int = 0,
        read_bytes: float | None = None,
        saves: Saved = NOTHING,
        dtype: Dtype | None = None,
        output_dtype: StoredFormat | None = None,
    ) -> Tensor:
        """Append one row; every layer method ends here.

        Args:
            kind: Operator kind.
            dims: Dimensions in the order of ``DIMENSIONS[kind]``.
            inputs: Tensors read.
            output_shape: Shape written.
            name: Operator name.
            weights: Number of parameter elements read.
            read_bytes: Activation bytes read, if not the sum of the inputs.
            saves: What the backward pass needs.
            dtype: Dtype it computes in and writes, where not that of its kind.
            output_dtype: Stored dtype of the output, where another.
        """
        if self.is_mixed and dtype is None and kind in _PROMOTING:
            is_wide = any(x.element_bytes == Dtype.FP32.bytes for x in inputs)
            dtype = Dtype.FP32 if is_wide else self.precision.activation
        width = (output_dtype or dtype or self.precision.activation).bytes
        output = Tensor.of(output_shape, len(self.rows), self._storage(), width)
        path, precision = self._path(), self._policy(kind is OperatorKind.GROUPED_GEMM)
        stored = precision.stored_bytes(path, is_product=kind in PRODUCT_KINDS)
        amounts = (
            row_flop(kind, dims),
            sum(x.bytes for x in inputs) if read_bytes is None else read_bytes,
            output.bytes,
            weights * stored,
            self._saved_bytes(saves, output),
        )
        computed = self._computed(kind) if dtype is None else dtype
        code = precision.activation if precision.keeps(path) else computed
        self.rows.append(RowEntry(int(kind), tuple(dims), int(code), amounts))
        self.names.append(name)
        self.paths.append(path)
        sources = sorted({x.row for x in inputs if x.row >= 0})
        self._source_counts.append(len(sources))
        self._sources += sources
        return output

    def _computed(self, kind: OperatorKind) -> Dtype:
        """What rows of a kind compute in: products in the precision's compute format."""
        if kind in ACTIVATION_PRODUCT_KINDS:
            return self.precision.attention
        if kind not in PRODUCT_KINDS:
            return self.precision.activation
        return self._policy(kind is OperatorKind.GROUPED_GEMM).compute

    def cast(self, x: Tensor, dtype: Dtype) -> Tensor:
        """The tensor in another format, as automatic mixed precision has it before an operator;
        the tensor itself elsewhere.

        `torch.autocast` casts each operator's inputs anew: to 16 bits before products, to FP32
        before norms and softmax (PyTorch, "CUDA Ops that can autocast").
        """
        if not self.is_mixed or x.element_bytes == dtype.bytes:
            return x
        return self.operator(
            OperatorKind.COPY, (x.elements,), [x], x.shape, name="cast", dtype=dtype
        )

    def collective(
        self,
        kind: OperatorKind,
        x: Tensor,
        group: ParallelGroup,
        shape: Sequence[int],
    ) -> Tensor:
        """Append a collective over a group of ranks; nothing where the group is one rank.

        Of what the ranks of a tensor group gather, a rank keeps its own part for the backward pass,
        which gathers it again beside other work (Korthikanti et al. 2022, arXiv:2205.05198, section
        4.2.2).

        Args:
            kind: A collective kind.
            x: What the rank brings.
            group: The ranks.
            shape: What it has afterwards; the payload is the larger of this and what it brings.
        """
        ranks = self.shard.ranks[group]
        if ranks == 1:
            return x
        payload = max(x.bytes, prod(shape) * x.element_bytes)
        output = self.operator(
            kind,
            (cast("int", payload // 1), ranks, int(group)),
            [x],
            shape,
            name=f"{group.label}.{kind.label}",
        )
        if kind is OperatorKind.ALL_GATHER and group is ParallelGroup.TENSOR:
            self._shards[output.storage] = x
        return output

    def repeated(
        self, x: Tensor, scopes: Sequence[str], write: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """Equal layers one after the other: the first two are written, the others are copies of the
        second.

        A second layer reads what the first made, as a third reads what the second made, and keeps
        for the backward pass what no layer before it has kept. Layers that the precision treats
        differently, as some of their modules are not quantised, are not equal.

        Args:
            x: Input of the first layer; each layer's output has its shape.
            scopes: Scope of each layer.
            write: Writes one layer.
        """
        kept_within = self.precision.kept_within
        for _, run in groupby(scopes, key=lambda scope: kept_within(self._path(scope))):
            x = self._repeated(x, list(run), write)
        return x

    def _repeated(
        self, x: Tensor, scopes: Sequence[str], write: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """Equal layers that the precision treats alike."""
        first_row = len(self.rows)
        start = self._progress()
        for scope in scopes[:2]:
            start = self._progress()
            with self.scope(scope):
                x = write(x)
        return self._copied(x, first_row, start, scopes[1:]) if len(scopes) > 2 else x

    def _progress(self) -> _Progress:
        counts = len(self.rows), len(self._sources), self._storages, len(self.cached)
        return _Progress(*counts, self.parameter_totals)

    def _copied(self, x: Tensor, first_row: int, start: _Progress, scopes: Sequence[str]) -> Tensor:
        """Append copies of the rows since `start`, the layer at the first of the scopes, for the
        others.
        """
        count, rows = len(scopes) - 1, len(self.rows) - start.rows
        if self.folds and count > 1:
            self.folded[self._path(scopes[0])] = count - 1
            scopes = (scopes[0], scopes[-1])
        copies = len(scopes) - 1
        paths = self.paths[start.rows :]
        sources = np.array(self._sources[start.sources :], dtype=np.int64)
        is_shared = sources < first_row  # each layer reads it, also one that is not written
        repeats = np.where(is_shared, 1 + count - copies, 1)
        reader = np.repeat(np.arange(rows), self._source_counts[start.rows :])
        counts = np.bincount(reader, repeats, minlength=rows).astype(np.int64).tolist()
        self._source_counts += counts * copies
        self.rows += self.rows[start.rows :] * copies
        self.names += self.names[start.rows :] * copies
        within = len(self._path(scopes[0]))
        for copy, scope in enumerate(scopes[1:], start=1):
            layer_path = self._path(scope)
            self.paths += [layer_path + path[within:] for path in paths]
            shifted = sources + rows * copy * ~is_shared
            self._sources += np.repeat(shifted, repeats).tolist()
        new_storages = (self._storages - start.storages) * copies
        self._saved |= {saved + new_storages for saved in self._saved if saved > start.storages}
        self._storages += new_storages
        layer = self.parameter_totals.plus(start.totals, -1)
        self.parameter_totals = self.parameter_totals.plus(layer, count)
        self.cached += self.cached[start.cached :] * count
        storage = x.storage + new_storages * (x.storage > start.storages)
        return x._replace(row=x.row + rows * copies, storage=storage)

    def parameters(
        self, count: int, tensors: int = 1, *, of_product: bool = False, of_experts: bool = False
    ) -> None:
        """Count `count` trainable parameters in `tensors` tensors, of a matrix operator or not; one
        of routed experts or not.
        """
        stored = self._policy(of_experts).stored_bytes(self._path(), is_product=of_product)
        counted = ParameterTotals(count, tensors, count * stored)
        self.parameter_totals = self.parameter_totals.plus(counted)

    def count_once(self, before: ParameterTotals, layers: int) -> None:
        """Count the parameters that equal layers share once: all since `before` are of so many."""
        since = self.parameter_totals.plus(before, -1)
        count, tensors, size = (total / layers for total in since)
        self.parameter_totals = before.plus(ParameterTotals(round(count), round(tensors), size))

    def keeps(self, at: str) -> bool:
        """Whether weights of the module at a path within the scope are not quantised."""
        return self.precision.keeps(self._path(at))

    def _policy(self, is_expert: bool) -> Precision:
        """The precision of a module."""
        return self.precision.of_experts if is_expert else self.precision

    def _storage(self) -> int:
        self._storages += 1
        return self._storages

    def _saved_bytes(self, saves: Saved, output: Tensor) -> float:
        """Bytes kept for the backward pass of what no row before has kept."""
        total = saves.extra_bytes
        for x in (*saves.tensors, output) if saves.output else saves.tensors:
            shard = self._shards.get(x.storage, x)
            total += 0.0 if shard.storage in self._saved else shard.bytes
            self._saved.add(shard.storage)
        return total
