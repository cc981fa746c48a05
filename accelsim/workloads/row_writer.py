"""Writes rows of an operator graph one by one: shapes, storage, dependencies, parameters, what the
backward pass keeps.

`Tensor` is a shape with the row that made it and a storage identity; views share storage. What a
forward row keeps for the backward pass (`saved_bytes`) is counted once per storage, as PyTorch's
autograd does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from math import prod
from typing import NamedTuple, cast

import numpy as np

from accelsim.dtype import Dtype, Precision, StoredFormat
from accelsim.errors import InvalidValueError
from accelsim.plain import Document
from accelsim.workloads.cache import CacheLayer
from accelsim.workloads.graph import FLOAT_COLUMNS, IntArray, OperatorGraph
from accelsim.workloads.operator import (
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


#: Kind, dimensions, dtype, FLOP, bytes read, written and of weights, bytes kept.
RowEntry = tuple[int, tuple[int, ...], int, float, float, float, float, float]


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


class Written(NamedTuple):
    """Rows of a graph before they are columns; `sources` lists what each row waits for, row after
    row, `source_counts` how many rows that is.
    """

    rows: list[RowEntry]
    names: list[str]
    paths: list[str]
    source_counts: list[int]
    sources: list[int]

    def dependencies(self) -> tuple[IntArray, IntArray]:
        """Offsets, shape (rows + 1,), and rows waited for, as an `OperatorGraph` has them."""
        offset = np.zeros(len(self.rows) + 1, dtype=np.int64)
        np.cumsum(self.source_counts, out=offset[1:])
        return offset, np.array(self.sources, dtype=np.int64)


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
        self.parameter_count = 0
        self.parameter_tensor_count = 0
        self.parameter_bytes = 0.0
        self.cached: list[CacheLayer] = []  # of one sequence, by layer
        self._rows: list[RowEntry] = []
        self._names: list[str] = []
        self._paths: list[str] = []
        self._source_counts: list[int] = []
        self._sources: list[int] = []
        self._scope: list[str] = []
        self._saved: set[int] = set()
        self._shards: dict[int, Tensor] = {}  # by storage of what was gathered from them
        self._storages = 0
        mixed = precision.activation.bytes != precision.compute.bytes
        self.attention_dtype = precision.activation if mixed else precision.compute

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

    def written(self) -> Written:
        """Rows so far as they were written, for who makes columns of them."""
        return Written(self._rows, self._names, self._paths, self._source_counts, self._sources)

    def build(self) -> OperatorGraph:
        """The graph of all rows so far."""
        count = len(self._rows)
        dims = np.zeros((count, MAX_DIMENSIONS), dtype=np.int64)
        for row, entry in enumerate(self._rows):
            dims[row, : len(entry[1])] = entry[1]
        numbers = np.array([row[3:] for row in self._rows], dtype=np.float64).reshape(count, 5)
        moved: Document = dict(zip(FLOAT_COLUMNS, numbers.T.copy(), strict=True))
        offset, dependency = self.written().dependencies()
        return OperatorGraph(
            kind=np.array([row[0] for row in self._rows], dtype=np.int16),
            dims=dims,
            dtype=np.array([row[2] for row in self._rows], dtype=np.int8),
            phase=np.full(count, int(self.phase), dtype=np.int8),
            **moved,
            name=tuple(self._names),
            path=tuple(self._paths),
            dependency_offset=offset,
            dependency=dependency,
        )

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
            dtype: Compute dtype; the activation dtype unless given.
            output_dtype: Stored dtype of the output; the activation dtype unless given.
        """
        row = len(self._rows)
        if self.is_mixed and output_dtype is None and kind in _PROMOTING:
            output_dtype = dtype = self._promoted(inputs)
        width = (output_dtype or self.precision.activation).bytes
        output = Tensor.of(output_shape, row, self._storage(), width)
        saved = saves.extra_bytes + sum(self._save(x) for x in saves.tensors)
        saved += self._save(output) if saves.output else 0.0
        activation_read_bytes = sum(x.bytes for x in inputs) if read_bytes is None else read_bytes
        path = self._path()
        code = self.precision.activation
        is_expert = kind is OperatorKind.GROUPED_GEMM
        if dtype is not None and not self._policy(is_expert).keeps(path):
            code = dtype
        stored = self._policy(is_expert).stored_bytes(path, is_product=kind in PRODUCT_KINDS)
        weight_bytes = weights * stored
        amounts = (row_flop(kind, dims), activation_read_bytes, output.bytes, weight_bytes, saved)
        self._rows.append((int(kind), tuple(dims), int(code), *amounts))
        self._names.append(name)
        self._paths.append(path)
        sources = sorted({x.row for x in inputs if x.row >= 0})
        self._source_counts.append(len(sources))
        self._sources += sources
        return output

    def _promoted(self, inputs: Sequence[Tensor]) -> Dtype:
        """FP32 where an input is, else the activation's format."""
        wide = any(x.element_bytes == Dtype.FP32.bytes for x in inputs)
        return Dtype.FP32 if wide else self.precision.activation

    def cast(self, x: Tensor, dtype: Dtype) -> Tensor:
        """The tensor in another format, as automatic mixed precision has it before an operator;
        the tensor itself elsewhere.

        `torch.autocast` casts each operator's inputs anew: to 16 bits before products, to FP32
        before norms and softmax (PyTorch, "CUDA Ops that can autocast").
        """
        if not self.is_mixed or x.element_bytes == dtype.bytes:
            return x
        return self.operator(
            OperatorKind.COPY,
            (x.elements,),
            [x],
            x.shape,
            name="cast",
            dtype=dtype,
            output_dtype=dtype,
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
        result = Tensor.of(shape, x.row, x.storage, x.element_bytes)
        payload = max(x.bytes, result.bytes)
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
        self, x: Tensor, places: Sequence[str], write: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """Equal layers one after the other: the first two are written, the others are copies of the
        second.

        A second layer reads what the first made, as a third reads what the second made, and keeps
        for the backward pass what no layer before it has kept.

        Args:
            x: Input of the first layer; each layer's output has its shape.
            places: Scope of each layer.
            write: Writes one layer.
        """
        for alike in self._kept_alike(places):
            x = self._repeated(x, alike, write)
        return x

    def _kept_alike(self, places: Sequence[str]) -> Iterator[Sequence[str]]:
        """Runs of places that the precision treats alike: those whose modules are quantised and
        those that it keeps, whole or in part.
        """
        if not self.precision.kept:
            yield places
            return
        for _, run in groupby(
            places, key=lambda path: self.precision.kept_within(self._path(path))
        ):
            yield list(run)

    def _repeated(
        self, x: Tensor, places: Sequence[str], write: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """Equal layers that are kept alike."""
        first = start = self._counts()
        for place in places[:2]:
            start = self._counts()
            with self.scope(place):
                x = write(x)
        return self._copied(x, first[0], start, places[1:]) if len(places) > 2 else x

    def _counts(self) -> tuple[int, int, int, int, int, int, float]:
        places = len(self._rows), len(self._sources), self._storages, len(self.cached)
        return *places, *self.parameter_totals

    def _copied(
        self,
        x: Tensor,
        first_row: int,
        start: tuple[int, int, int, int, int, int, float],
        places: Sequence[str],
    ) -> Tensor:
        """Append copies of the rows since `start`, the layer at the first place, for the other
        places.
        """
        rows, _, storages, _, _, tensors, parameter_bytes = (
            now - then for now, then in zip(self._counts(), start, strict=True)
        )
        count, row, storage = len(places) - 1, int(start[0]), int(start[2])
        if self.folds and count > 1:
            self.folded[self._path(places[0])] = count - 1
            places = (places[0], places[-1])
        copies = len(places) - 1
        names, paths = self._names[row:], self._paths[row:]
        sources = np.array(self._sources[start[1] :], dtype=np.int64)
        reader = np.repeat(np.arange(rows), self._source_counts[row:])
        is_shared = sources < first_row  # each layer reads it, also one that is not written
        often = np.where(is_shared, 1 + count - copies, 1)
        counts = np.bincount(reader, often, minlength=int(rows)).astype(np.int64).tolist()
        within = len(self._path(places[0]))
        self._rows += self._rows[row:] * copies
        self._names += names * copies
        for copy, place in enumerate(places[1:], start=1):
            scope = self._path(place)
            self._paths += [scope + path[within:] for path in paths]
            shifted = sources + int(rows) * copy * ~is_shared
            self._sources += np.repeat(shifted, often).tolist()
            self._source_counts += counts
        moved = int(storages) * copies
        self._saved |= {kept + moved for kept in self._saved if kept > storage}
        self._storages += moved
        self.parameter_count += (self.parameter_count - start[4]) * count
        self.parameter_tensor_count += int(tensors) * count
        self.parameter_bytes += parameter_bytes * count
        self.cached += self.cached[start[3] :] * count
        made_inside = x.storage > storage
        return Tensor.of(
            x.shape, x.row + int(rows) * copies, x.storage + moved * made_inside, x.element_bytes
        )

    def parameters(
        self, count: int, tensors: int = 1, *, of_product: bool = False, of_experts: bool = False
    ) -> None:
        """Count `count` trainable parameters in `tensors` tensors, of a matrix operator or not; one
        of routed experts or not.
        """
        self.parameter_count += count
        self.parameter_tensor_count += tensors
        path = self._path()
        stored = self._policy(of_experts).stored_bytes(path, is_product=of_product)
        self.parameter_bytes += count * stored

    @property
    def parameter_totals(self) -> tuple[int, int, float]:
        """Parameters counted so far, their tensors and bytes."""
        return self.parameter_count, self.parameter_tensor_count, self.parameter_bytes

    def count_once(self, before: tuple[int, int, float], layers: int) -> None:
        """Count the parameters that equal layers share once: all since `held` are of so many."""
        count, tensors, size = (
            (now - then) / layers for now, then in zip(self.parameter_totals, before, strict=True)
        )
        self.parameter_count = before[0] + round(count)
        self.parameter_tensor_count = before[1] + round(tensors)
        self.parameter_bytes = before[2] + size

    def include(self, writer: RowWriter) -> None:
        """Count the parameters of another writer's layers, whose rows are not run."""
        self.parameter_count += writer.parameter_count
        self.parameter_tensor_count += writer.parameter_tensor_count
        self.parameter_bytes += writer.parameter_bytes

    def keeps(self, at: str) -> bool:
        """Whether weights of the module at a path within the scope are not quantised."""
        return self.precision.keeps(self._path(at))

    def _policy(self, is_expert: bool) -> Precision:
        """The precision of a module."""
        return self.precision.of_experts if is_expert else self.precision

    def _storage(self) -> int:
        self._storages += 1
        return self._storages

    def _save(self, x: Tensor) -> float:
        x = self._shards.get(x.storage, x)
        if x.storage in self._saved:
            return 0.0
        self._saved.add(x.storage)
        return x.bytes
