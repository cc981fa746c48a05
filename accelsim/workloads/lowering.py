"""Lowers one pass of a workload at many sizes at once.

`lower` runs the family's own code once with `Sizes` in place of numbers: the rows of all scenarios
come out as columns. Rows that are the same in every scenario (the layers of a transformer) are kept
once, with the order they are launched in. Scenarios that the family treats differently (a length
within a window and one beyond it) come out as separate batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from typing import TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accelsim.arguments import checked
from accelsim.dtype import PRECISIONS, Precision
from accelsim.frozen import frozen
from accelsim.plain import Document
from accelsim.workloads.builder import GraphBuilder
from accelsim.workloads.cache import SequenceCache
from accelsim.workloads.graph import (
    FLOAT_COLUMNS,
    BoolArray,
    FloatArray,
    IntArray,
    OperatorGraph,
    codes,
    is_kind,
)
from accelsim.workloads.model import Lowered, PassShape, Workload
from accelsim.workloads.operator import LOOKUP_KINDS, MAX_DIMENSIONS, Phase
from accelsim.workloads.options import ModelOptions
from accelsim.workloads.row_writer import PassForm, RowEntry
from accelsim.workloads.sharding import WHOLE, Shard
from accelsim.workloads.sizes import ScenariosPart, Sizes
from accelsim.workloads.variant import variant_codes

_T = TypeVar("_T", PassShape, Shard)
_RANKS = ("tp", "cp", "ep", "etp")
_SIZES = tuple(f.name for f in fields(PassShape))
#: A row that a layer launches so often is still told from the same of the layer before.
_MOST_IN_LAYER = 4
#: FLOP and bytes of a batch's rows; what they keep for a backward pass is none of them.
_MOVED = FLOAT_COLUMNS[:4]


@checked
@frozen(eq=False)
class ShapeColumns:
    """Sizes of one pass in each scenario, shape (scenarios,) each; see `PassShape`."""

    batch: IntArray
    seq_len: IntArray
    context_len: IntArray
    target_len: IntArray
    source_len: IntArray
    image_size: IntArray

    @classmethod
    def of(cls, **columns: ArrayLike) -> ShapeColumns:
        """Columns from arrays and numbers, which stand for every scenario.

        Args:
            columns: Fields of `PassShape`; batch is 1 and the others 0 where left out.
        """
        defaults = {name: 1 if name == "batch" else 0 for name in _SIZES}
        arrays = [np.asarray(value, dtype=np.int64) for value in (defaults | columns).values()]
        return cls(*np.broadcast_arrays(*(np.atleast_1d(array) for array in arrays)))

    def __len__(self) -> int:
        return len(self.batch)

    def take(self, scenarios: IntArray | BoolArray) -> ShapeColumns:
        """Columns of some scenarios."""
        return ShapeColumns(*(getattr(self, name)[scenarios] for name in _SIZES))

    def shape(self) -> PassShape:
        """A shape whose sizes stand for all scenarios; plain numbers where they are one."""
        return PassShape(**{name: _size(getattr(self, name)) for name in _SIZES})


def _size(column: IntArray) -> int:
    value = int(column[0])
    return value if (column == value).all() else cast("int", Sizes(column))


@frozen(eq=False)
class LoweredBatch:
    """One pass in s scenarios that have the same operators: r launched rows, d of them distinct.

    Attributes:
        scenario: Places of the scenarios among those asked for, shape (s,).
        kind: `OperatorKind` codes of the distinct rows, shape (d,).
        dtype: Compute `Dtype` codes, shape (d,).
        dims: Dimensions, shape (s, d, MAX_DIMENSIONS).
        flop: FLOP, shape (s, d).
        read_bytes: Activation bytes read, shape (s, d).
        write_bytes: Bytes written, shape (s, d).
        weight_bytes: Parameter bytes read, shape (s, d).
        name: Operator names, length d.
        path: Module paths, length d; those of the first launch.
        order: Distinct row of each launch, shape (r,).
        dependency_offset: Start of each launch's slice of `dependency`, shape (r + 1,).
        dependency: Launches that each waits for, shape (edges,).
        phase: Phase of all rows.
        parameter_count: Parameters of the model.
        parameter_tensor_count: Tensors they live in.
        parameter_bytes: Bytes they are stored in.
        cache: What its layers keep of one sequence.
        epilogue_flop: FLOP fused behind matrix rows, shape (s, d); None where nothing is fused.
        copied_bytes: Bytes of one batch as it comes from the host, shape (s,), of fused rows.
    """

    scenario: IntArray
    kind: NDArray[np.int16]
    dtype: NDArray[np.int8]
    dims: IntArray
    flop: FloatArray
    read_bytes: FloatArray
    write_bytes: FloatArray
    weight_bytes: FloatArray
    name: tuple[str, ...]
    path: tuple[str, ...]
    order: IntArray
    dependency_offset: IntArray
    dependency: IntArray
    phase: Phase
    parameter_count: int
    parameter_tensor_count: int
    parameter_bytes: float
    cache: SequenceCache
    epilogue_flop: FloatArray | None = None
    copied_bytes: FloatArray | None = None

    @property
    def repeat_count(self) -> IntArray:
        """Launches of each distinct row, shape (d,)."""
        return np.bincount(self.order, minlength=len(self.kind))

    def take(self, scenarios: IntArray | BoolArray) -> LoweredBatch:
        """Some of the scenarios, by place or mask."""
        columns = ["scenario", "dims", *_MOVED]
        if self.epilogue_flop is not None:
            columns += ["epilogue_flop", "copied_bytes"]
        return replace(self, **{name: getattr(self, name)[scenarios] for name in columns})

    def launched(self) -> OperatorGraph:
        """All launches of the first scenario, with their dependencies."""
        rows = self.take(np.arange(1)).distinct_rows().take(self.order)
        offset, dependency = self.dependency_offset, self.dependency
        return replace(rows, dependency_offset=offset, dependency=dependency)

    def distinct_rows(self) -> OperatorGraph:
        """The distinct rows of all scenarios, one scenario after the other; no dependencies."""
        scenarios, rows = self.flop.shape
        count = scenarios * rows
        return OperatorGraph(
            kind=np.tile(self.kind, scenarios),
            dims=self.dims.reshape(count, MAX_DIMENSIONS),
            dtype=np.tile(self.dtype, scenarios),
            phase=codes(count, self.phase),
            **{name: getattr(self, name).reshape(count) for name in _MOVED},
            saved_bytes=np.zeros(count),
            name=self.name * scenarios,
            path=self.path * scenarios,
            dependency_offset=np.zeros(count + 1, dtype=np.int64),
            dependency=np.zeros(0, dtype=np.int64),
            epilogue_flop=None if self.epilogue_flop is None else self.epilogue_flop.reshape(count),
            variant=np.tile(variant_codes(self.name), scenarios),
        )

    def launches_before(self) -> tuple[IntArray, IntArray]:
        """Launches that decide how long issuing holds the device up, and how often each distinct
        row has been launched before them.

        Between the first and the last copy of a layer, what is issued and what is left to run
        change by the same amount from copy to copy: one of the two ends is the largest.

        Returns:
            Launches, shape (k,), and counts before each, shape (d, k).
        """
        launched = np.zeros((len(self.kind), len(self.order) + 1), dtype=np.int64)
        launched[self.order, np.arange(1, len(self.order) + 1)] = 1
        before = np.cumsum(launched, axis=1)[:, :-1]
        by_row = np.argsort(self.order, kind="stable")
        counts, rows = before[:, by_row], self.order[by_row]
        is_between = np.zeros(len(by_row), dtype=bool)
        for apart in range(1, _MOST_IN_LAYER + 1):
            steps = counts[:, apart:] - counts[:, :-apart]
            even = (steps[:, apart:] == steps[:, :-apart]).all(axis=0)
            same = rows[2 * apart :] == rows[: -2 * apart]
            is_between[by_row[apart:-apart]] |= even & same
        decisive = np.flatnonzero(~is_between)
        return decisive, before[:, decisive]

    def peak_live_bytes(self) -> FloatArray:
        """Largest set of outputs alive at once with the first row's operands, shape (s,); see
        `accelsim.cost.memory.live_bytes`.
        """
        launches = len(self.order)
        last = np.full(launches, -1, dtype=np.int64)
        reader = np.repeat(np.arange(launches), np.diff(self.dependency_offset))
        np.maximum.at(last, self.dependency, reader)
        last[last < 0] = launches - 1
        alive = np.zeros((len(self.kind), launches + 1), dtype=np.int64)
        np.add.at(alive, (self.order, np.arange(launches)), 1)
        np.subtract.at(alive, (self.order, last + 1), 1)
        sets = np.unique(np.cumsum(alive, axis=1)[:, :launches], axis=1)  # of copied layers once
        peak: FloatArray = self.read_bytes[:, self.order[0]] + (self.write_bytes @ sets).max(axis=1)
        return peak

    def input_bytes(self) -> FloatArray:
        """Bytes of one batch as it comes from the host, shape (s,): operands no row wrote, 8-byte
        ids for lookups.
        """
        if self.copied_bytes is not None:
            return self.copied_bytes
        roots = self.order[np.diff(self.dependency_offset) == 0]
        is_lookup = is_kind(self.kind[roots], LOOKUP_KINDS)
        ids = 8.0 * self.dims[:, roots[is_lookup], 0].sum(axis=1)
        total: FloatArray = self.read_bytes[:, roots[~is_lookup]].sum(axis=1) + ids
        return total


@checked
def lower(
    workload: Workload,
    model: ModelOptions,
    shapes: ShapeColumns,
    shard: Shard = WHOLE,
    *,
    phase: Phase = Phase.FORWARD,
    merges: bool = False,
) -> tuple[LoweredBatch, ...]:
    """Lower one pass of a catalogued workload in many scenarios.

    Args:
        workload: A workload of a family; captured modules are lowered one by one.
        model: Precision (bf16 where it names none), formats and form of attention.
        shapes: Sizes of each scenario.
        shard: The part of one rank; the whole model unless given.
        phase: FORWARD, PREFILL or DECODE.
        merges: Whether products of one input are one product.

    Returns:
        Batches of scenarios with the same operators; each scenario is in one of them.

    Raises:
        InvalidValueError: If the workload has no family, or the sizes or ranks do not fit it.
    """
    key = tuple(getattr(shapes, name).tobytes() for name in _SIZES)
    form = PassForm(model.fused_attention, shard, merges=merges)
    return _lowered(workload, model.policy(PRECISIONS["bf16"]), phase, form, key)


@lru_cache(maxsize=64)
def _lowered(
    workload: Workload,
    precision: Precision,
    phase: Phase,
    form: PassForm,
    key: tuple[bytes, ...],
) -> tuple[LoweredBatch, ...]:
    shapes = ShapeColumns(*(np.frombuffer(column, dtype=np.int64) for column in key))

    def write(scenarios: IntArray) -> GraphBuilder:
        return workload.write(shapes.take(scenarios).shape(), precision, phase, form)

    written = _written_apart(write, [np.arange(len(shapes))])
    return tuple(_batch(builder, scenarios) for scenarios, builder in written)


def _written_apart(
    write: Callable[[IntArray], GraphBuilder], pending: list[IntArray]
) -> Iterator[tuple[IntArray, GraphBuilder]]:
    """Scenarios that have the same rows, and what was written of them.

    Args:
        write: Writes the rows of some scenarios.
        pending: Scenarios that may have the same rows.
    """
    while pending:
        scenarios = pending.pop()
        try:
            builder = write(scenarios)
        except ScenariosPart as parting:
            answers = np.unique(parting.answer)
            pending += [scenarios[parting.answer == answer] for answer in answers]
        else:
            yield scenarios, builder


def lower_each(
    workload: Workload,
    precision: Precision,
    form: PassForm,
    shapes: Sequence[PassShape],
    shards: Sequence[Shard],
) -> list[Lowered]:
    """Lower the forward pass of a catalogued workload as `Workload.lower` does, for several shapes
    and shards: those that have the same rows in one go.

    Args:
        workload: A workload of a family.
        precision: Dtypes.
        form: How the pass is written, but for the shard.
        shapes: Sizes of each pass.
        shards: The part of one rank, of each.

    Raises:
        InvalidValueError: If the sizes or ranks do not fit the workload.
    """
    alike: dict[tuple[object, ...], list[int]] = {}
    for index, shard in enumerate(shards):
        alike.setdefault((shard.form, shard.stage), []).append(index)

    def write(scenarios: IntArray) -> GraphBuilder:
        indices = scenarios.tolist()
        shard = _joined([shards[index] for index in indices], _RANKS)
        shape = _joined([shapes[index] for index in indices], _SIZES)
        return workload.write(shape, precision, Phase.FORWARD, form._replace(shard=shard))

    lowered: dict[int, Lowered] = {}
    for scenarios, builder in _written_apart(write, [np.array(same) for same in alike.values()]):
        passes = _passes(builder, len(scenarios))
        lowered.update(zip(scenarios.tolist(), passes, strict=True))
    return [lowered[index] for index in range(len(shards))]


def _joined(every: Sequence[_T], names: Sequence[str]) -> _T:
    """One whose fields of some names stand for those of all."""
    columns = {name: [getattr(entry, name) for entry in every] for name in names}
    sizes: Document = {
        name: _size(np.array(column)) for name, column in columns.items() if None not in column
    }
    return replace(every[0], **sizes)


def _passes(builder: GraphBuilder, count: int) -> Iterator[Lowered]:
    """What was written, of each scenario."""
    dims, amounts = _sizes_of(builder.rows, count)
    shared = builder.columns() | {"variant": variant_codes(builder.names)}
    cache = SequenceCache.of(builder.cached)
    for scenario in range(count):
        columns = dict(zip(FLOAT_COLUMNS, amounts[:, scenario], strict=True))
        graph = OperatorGraph(**shared, **columns, dims=dims[scenario])
        parameters, tensors, size = (
            total.values[scenario].item() if isinstance(total, Sizes) else total
            for total in builder.parameter_totals
        )
        yield Lowered(graph, int(parameters), int(tensors), size, cache, builder.folded)


def _batch(builder: GraphBuilder, scenario: IntArray) -> LoweredBatch:
    order, first_launches = _distinct(builder)
    rows = [builder.rows[launch] for launch in first_launches]
    dims, amounts = _sizes_of(rows, len(scenario))
    offset, dependency = builder.dependencies()
    parameter_count, tensor_count, parameter_bytes = builder.parameter_totals
    return LoweredBatch(
        scenario=scenario,
        kind=np.array([row.kind for row in rows], dtype=np.int16),
        dtype=np.array([row.dtype for row in rows], dtype=np.int8),
        dims=dims,
        **dict(zip(_MOVED, amounts, strict=False)),
        name=tuple(builder.names[launch] for launch in first_launches),
        path=tuple(builder.paths[launch] for launch in first_launches),
        order=order,
        dependency_offset=offset,
        dependency=dependency,
        phase=builder.phase,
        parameter_count=parameter_count,
        parameter_tensor_count=tensor_count,
        parameter_bytes=parameter_bytes,
        cache=SequenceCache.of(builder.cached),
    )


def _distinct(builder: GraphBuilder) -> tuple[IntArray, list[int]]:
    """Distinct row of each launch, and the first launch of each distinct row."""
    by_object: dict[int, int] = {}  # copies of a layer are the same objects
    by_content: dict[tuple[object, ...], int] = {}
    order = np.empty(len(builder.rows), dtype=np.int64)
    first_launches: list[int] = []
    for launch, (row, name) in enumerate(zip(builder.rows, builder.names, strict=True)):
        distinct_row = by_object.get(id(row))
        if distinct_row is None:
            content = (*row[:3], row.amounts[:4], name)  # but for what it keeps
            distinct_row = by_content.setdefault(content, len(first_launches))
            by_object[id(row)] = distinct_row
            if distinct_row == len(first_launches):
                first_launches.append(launch)
        order[launch] = distinct_row
    return order, first_launches


def _sizes_of(rows: list[RowEntry], count: int) -> tuple[IntArray, FloatArray]:
    """Dimensions of rows in each of `count` scenarios, shape (s, d, MAX_DIMENSIONS), and their FLOP
    and bytes, shape (5, s, d).
    """
    dims = np.zeros((count, len(rows), MAX_DIMENSIONS), dtype=np.int64)
    amounts = np.empty((len(FLOAT_COLUMNS), count, len(rows)))
    for index, row in enumerate(rows):
        for axis, size in enumerate(row.dims):
            dims[:, index, axis] = size.values if isinstance(size, Sizes) else size
        for axis, amount in enumerate(row.amounts):
            amounts[axis, :, index] = amount.values if isinstance(amount, Sizes) else amount
    return dims, amounts
