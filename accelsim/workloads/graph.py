"""The operator graph: numpy columns, one row per operator.

Cost models read whole columns at once; schedulers read the dependencies. A graph is immutable;
`GraphBuilder` makes one row by row, `concatenate` joins several in sequence. It saves to and loads
from plain JSON, so that a graph captured where torch is installed can be used where it is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accelsim.dtype import Dtype
from accelsim.errors import InvalidValueError
from accelsim.frozen import frozen
from accelsim.plain import Document, Values
from accelsim.workloads.operator import (
    CONTRACTION_KINDS,
    DIMENSIONS,
    MAX_DIMENSIONS,
    OperatorKind,
    Phase,
)
from accelsim.workloads.variant import (
    Trait,
    codes_with_operation,
    codes_with_trait,
    variant_codes,
    variant_texts,
)

if TYPE_CHECKING:
    import pandas as pd

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
TextArray = NDArray[np.str_]

#: Kinds whose last dimensions may be left out: they are 0 for most rows.
_FEWEST_DIMENSIONS = {OperatorKind.COPY: 1, OperatorKind.OPTIMIZER: 3}


def is_kind(codes: NDArray[np.integer[Any]], kinds: frozenset[OperatorKind]) -> BoolArray:
    """Which `OperatorKind` codes are of some kinds, shape of the codes."""
    is_of_kind: BoolArray = _among(kinds)[codes]
    return is_of_kind


def codes(count: int, code: int) -> NDArray[np.int8]:
    """A column of one dtype or phase."""
    return np.full(count, int(code), dtype=np.int8)


@lru_cache(maxsize=128)
def _among(kinds: frozenset[OperatorKind]) -> BoolArray:
    """Whether each code is of some kinds: a look-up takes 1 us, `np.isin` 70."""
    return np.array([code in kinds for code in range(max(OperatorKind) + 1)])


@lru_cache(maxsize=4)
def _rows_by_kind(graph: OperatorGraph) -> tuple[tuple[OperatorKind, IntArray], ...]:
    """Kept, as a cost model asks forty times; np.unique would import numpy.ma: 25 ms."""
    kinds = np.flatnonzero(np.bincount(graph.kind)).tolist()
    return tuple((OperatorKind(code), np.flatnonzero(graph.kind == code)) for code in kinds)


@frozen(eq=False)
class OperatorGraph:
    """Operators of one run, in launch order; n rows.

    Attributes:
        kind: `OperatorKind` codes, shape (n,).
        dims: Dimensions in the order of `DIMENSIONS[kind]`, zero-padded, shape (n, MAX_DIMENSIONS).
        dtype: Compute `Dtype` codes, shape (n,).
        phase: `Phase` codes, shape (n,).
        flop: FLOP (multiply-add = 2), shape (n,).
        read_bytes: Activation bytes read, shape (n,).
        write_bytes: Bytes written, shape (n,).
        weight_bytes: Parameter bytes read, shape (n,).
        saved_bytes: Activation bytes a forward row keeps for the backward pass, shape (n,).
        name: Operator names, length n.
        path: Module paths ("layer1.0.conv1"), length n; "" where unknown.
        dependency_offset: Start of each row's slice of `dependency`, shape (n + 1,).
        dependency: Rows each row waits for (always earlier rows), shape (edges,).
        epilogue_flop: FLOP of elementwise operators fused behind matrix rows, which `flop` leaves
            out, shape (n,); None where nothing was fused.
        variant: Which version of its operator each row runs, codes of `variant`, shape (n,); read
            from `name` where it is not given.
    """

    kind: NDArray[np.int16]
    dims: IntArray
    dtype: NDArray[np.int8]
    phase: NDArray[np.int8]
    flop: FloatArray
    read_bytes: FloatArray
    write_bytes: FloatArray
    weight_bytes: FloatArray
    saved_bytes: FloatArray
    name: tuple[str, ...]
    path: tuple[str, ...]
    dependency_offset: IntArray
    dependency: IntArray
    epilogue_flop: FloatArray | None = None
    variant: NDArray[np.int32] = None  # type: ignore[assignment]  # never None once made

    def __post_init__(self) -> None:
        if self.variant is None:
            object.__setattr__(self, "variant", variant_codes(self.name))

    def __len__(self) -> int:
        return len(self.kind)

    def __repr__(self) -> str:
        return (
            f"<OperatorGraph: {len(self)} operators, {self.total_flop:.4g} FLOP, "
            f"{self.total_bytes:.4g} bytes>"
        )

    @property
    def bytes(self) -> FloatArray:
        """Bytes moved by each row: read + weights + written, shape (n,)."""
        return self.read_bytes + self.weight_bytes + self.write_bytes

    @property
    def model_flop(self) -> float:
        """FLOP of the matrix arithmetic: what published model figures count."""
        return float(self.flop[is_kind(self.kind, CONTRACTION_KINDS)].sum())

    @property
    def total_flop(self) -> float:
        """FLOP of all operators."""
        return float(self.flop.sum())

    @property
    def total_bytes(self) -> float:
        """Bytes moved by all operators, each row counted alone."""
        return float(self.bytes.sum())

    def rows_by_kind(self) -> tuple[tuple[OperatorKind, IntArray], ...]:
        """Each kind the graph has, in the order of their codes, and its rows."""
        return _rows_by_kind(self)

    def dimension(
        self, name: str, rows: IntArray | BoolArray | slice, kind: OperatorKind
    ) -> FloatArray:
        """One named dimension of rows of one kind, as float64.

        Args:
            name: A name in ``DIMENSIONS[kind]``.
            rows: Row indices or mask; all must be of `kind` (or share its layout).
            kind: Kind whose layout to use.
        """
        return self.dims[rows, DIMENSIONS[kind].index(name)].astype(np.float64)

    def has_trait(self, trait: Trait) -> BoolArray:
        """Which rows have a trait, or one of several, shape (n,)."""
        return codes_with_trait(self.variant, trait)

    def is_operation(self, operations: frozenset[str]) -> BoolArray:
        """Which rows run one of some operators, shape (n,)."""
        return codes_with_operation(self.variant, operations)

    @property
    def reader(self) -> IntArray:
        """The row that waits, for each entry of `dependency`, shape (edges,)."""
        return np.repeat(np.arange(len(self)), np.diff(self.dependency_offset))

    @property
    def last_reader(self) -> IntArray:
        """The last row that waits for each row, shape (n,); the last of all where none does."""
        last = np.full(len(self), -1, dtype=np.int64)
        np.maximum.at(last, self.dependency, self.reader)
        return np.where(last < 0, len(self) - 1, last)

    @property
    def reader_count(self) -> IntArray:
        """Rows that wait for each row, shape (n,)."""
        return np.bincount(self.dependency, minlength=len(self))

    def dependencies_of(self, row: int) -> IntArray:
        """Rows that `row` waits for."""
        return self.dependency[self.dependency_offset[row] : self.dependency_offset[row + 1]]

    def take(self, rows: IntArray | BoolArray) -> OperatorGraph:
        """The given rows in the given order, chained one after the other.

        Args:
            rows: Row indices (may repeat) or a boolean mask.
        """
        index = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows.astype(np.int64)
        indices = index.tolist()
        names = tuple([self.name[row] for row in indices])
        return self._chain_of(index, names, tuple([self.path[row] for row in indices]))

    def part(self, begin: int, end: int) -> OperatorGraph:
        """Rows from one to before another, chained as by `take`; the columns are views."""
        rows = slice(begin, end)
        return self._chain_of(rows, self.name[rows], self.path[rows])

    def _chain_of(
        self, rows: IntArray | slice, names: tuple[str, ...], paths: tuple[str, ...]
    ) -> OperatorGraph:
        """Some rows, each waiting for the one before."""
        columns = {name: getattr(self, name)[rows] for name in _ARRAY_COLUMNS}
        offset, dependency = chained(len(names))
        return OperatorGraph(
            **columns,
            name=names,
            path=paths,
            dependency_offset=offset,
            dependency=dependency,
            epilogue_flop=None if self.epilogue_flop is None else self.epilogue_flop[rows],
        )

    def with_phase(self, phase: Phase) -> OperatorGraph:
        """The same graph with every row in `phase`."""
        return replace(self, phase=codes(len(self), phase))

    def to_frame(self) -> pd.DataFrame:
        """One row per operator, with kind, dtype and phase as words."""
        import pandas as pd

        columns: Document = {
            "name": self.name,
            "path": self.path,
            **self._labels(),
            "dimensions": [self.dimensions_of(row) for row in range(len(self))],
        }
        columns |= {column: getattr(self, column) for column in FLOAT_COLUMNS}
        return pd.DataFrame(columns)

    def _labels(self) -> dict[str, list[str]]:
        """Kind, dtype and phase of each row as words."""
        return {
            column: [enum(code).label for code in getattr(self, column).tolist()]
            for column, (enum, _) in _ENUMS.items()
        }

    def dimensions_of(self, row: int) -> dict[str, int]:
        """Named dimensions of one row."""
        names = DIMENSIONS[OperatorKind(int(self.kind[row]))]
        return dict(zip(names, self.dims[row].tolist(), strict=False))

    def to_dict(self) -> Document:
        """Plain lists, ready for JSON; `from_dict` reads it back exactly."""
        columns = {column: getattr(self, column).tolist() for column in _ARRAY_COLUMNS}
        columns |= self._labels()
        columns["dims"] = [list(self.dimensions_of(row).values()) for row in range(len(self))]
        if self.epilogue_flop is not None:
            columns["epilogue_flop"] = self.epilogue_flop.tolist()
        return {
            **columns,
            "name": list(self.name),
            "variant": variant_texts(self.variant),
            "path": list(self.path),
            "dependencies": [self.dependencies_of(row).tolist() for row in range(len(self))],
        }

    @classmethod
    def from_dict(cls, data: Values) -> OperatorGraph:
        """Read `to_dict`'s form, checking every column.

        Raises:
            InvalidValueError: If a column is missing, of the wrong length, or holds a bad value.
        """
        count = len(_column(data, "kind", None))
        variant_column = "variant" if "variant" in data else "name"
        floats = (*FLOAT_COLUMNS, *(["epilogue_flop"] if "epilogue_flop" in data else []))
        columns: Document = {column: _floats(data, column, count) for column in floats}
        for column, (enum, width) in _ENUMS.items():
            of_rows = [_code(enum, column, label) for label in _column(data, column, count)]
            columns[column] = np.array(of_rows, dtype=width)
        offset, dependency = _edges(_column(data, "dependencies", count))
        return cls(
            **columns,
            dims=_dims(_column(data, "dims", count), columns["kind"].tolist()),
            name=_texts(data, "name", count),
            path=_texts(data, "path", count),
            dependency_offset=offset,
            dependency=dependency,
            variant=variant_codes(_texts(data, variant_column, count)),
        )


_Codes = type[OperatorKind] | type[Dtype] | type[Phase]
#: Columns of codes, what they stand for and the width they are kept in.
_ENUMS: Mapping[str, tuple[_Codes, type[np.int16] | type[np.int8]]]
_ENUMS = {"kind": (OperatorKind, np.int16), "dtype": (Dtype, np.int8), "phase": (Phase, np.int8)}
FLOAT_COLUMNS = ("flop", "read_bytes", "write_bytes", "weight_bytes", "saved_bytes")
_ARRAY_COLUMNS = (*_ENUMS, "dims", "variant", *FLOAT_COLUMNS)


def concatenate(graphs: Sequence[OperatorGraph], *, waits: bool = True) -> OperatorGraph:
    """Graphs one after the other: first rows of each wait for the last row of the one before.

    Args:
        graphs: At least one graph.
        waits: Whether they do; else no row waits for one of another graph.

    Raises:
        InvalidValueError: If there is none.
    """
    if not graphs:
        raise InvalidValueError("graphs", graphs, "at least one graph")
    if len(graphs) == 1:
        return graphs[0]
    columns = {name: np.concatenate([getattr(g, name) for g in graphs]) for name in _ARRAY_COLUMNS}
    offset, dependency = _joined_dependencies(graphs, waits=waits)
    return OperatorGraph(
        **columns,
        name=tuple(chain.from_iterable([g.name for g in graphs])),
        path=tuple(chain.from_iterable([g.path for g in graphs])),
        dependency_offset=offset,
        dependency=dependency,
        epilogue_flop=_joined_epilogues(graphs),
    )


def _joined_epilogues(graphs: Sequence[OperatorGraph]) -> FloatArray | None:
    """What is fused behind the rows of graphs one after the other; None where nothing is."""
    epilogues = [graph.epilogue_flop for graph in graphs]
    if all(flop is None for flop in epilogues):
        return None
    filled = zip(graphs, epilogues, strict=True)
    return np.concatenate([np.zeros(len(g)) if flop is None else flop for g, flop in filled])


def _joined_dependencies(
    graphs: Sequence[OperatorGraph], *, waits: bool
) -> tuple[IntArray, IntArray]:
    """Dependencies of graphs one after the other, as compressed sparse rows."""
    lengths = [len(graph) for graph in graphs]
    edges = [len(graph.dependency) for graph in graphs]
    before = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    edge_counts = np.concatenate([np.diff(graph.dependency_offset) for graph in graphs])
    first_row = np.repeat(before, lengths)
    starts = np.flatnonzero((edge_counts == 0) & (first_row > 0) & waits)
    edge_counts[starts] = 1
    offset = np.concatenate([[0], np.cumsum(edge_counts)])
    inner_edges = np.concatenate([graph.dependency for graph in graphs]) + np.repeat(before, edges)
    is_start = np.zeros(offset[-1], dtype=bool)
    is_start[offset[starts]] = True
    dependency = np.empty(offset[-1], dtype=np.int64)
    dependency[is_start], dependency[~is_start] = first_row[starts] - 1, inner_edges
    return offset.astype(np.int64), dependency


def compressed_rows(lists: Sequence[Sequence[int]]) -> tuple[IntArray, IntArray]:
    """Offsets and flat entries of lists of row numbers (compressed sparse rows).

    Args:
        lists: One list per row.

    Returns:
        Offsets, shape (rows + 1,), and all entries one after the other.
    """
    lengths = np.fromiter((len(x) for x in lists), dtype=np.int64, count=len(lists))
    offset = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])
    flat = [item for entries in lists for item in entries]
    return offset, np.array(flat, dtype=np.int64)


def parts(graph: OperatorGraph, counts: ArrayLike) -> list[OperatorGraph]:
    """The rows of a graph in parts of so many, one after the other; see `OperatorGraph.part`."""
    ends = np.cumsum(counts).tolist()
    return [graph.part(begin, end) for begin, end in pairwise([0, *ends])]


def chained(count: int) -> tuple[IntArray, IntArray]:
    """Dependencies of a chain of `count` rows."""
    offset = np.maximum(np.arange(count + 1, dtype=np.int64) - 1, 0)
    return offset, np.arange(max(count - 1, 0), dtype=np.int64)


def _column(data: Values, name: str, count: int | None) -> list[Any]:
    column = data.get(name)
    if not isinstance(column, list):
        raise InvalidValueError(f"graph.{name}", column, "a list with one entry per operator")
    if count is not None and len(column) != count:
        raise InvalidValueError(
            f"graph.{name}", f"{len(column)} entries", f"{count} entries, as in graph.kind"
        )
    return column


def _texts(data: Values, name: str, count: int) -> tuple[str, ...]:
    column = _column(data, name, count)
    for word in column:
        if not isinstance(word, str):
            raise InvalidValueError(f"graph.{name}", word, "text")
    return tuple(column)


def _floats(data: Values, name: str, count: int | None) -> FloatArray:
    column = _column(data, name, count)
    for value in column:
        if type(value) not in {int, float} or not 0 <= value < 1e30:
            raise InvalidValueError(f"graph.{name}", value, "numbers from 0 to 1e30")
    return np.array(column, dtype=np.float64)


def _code(enum: _Codes, column: str, label: Any) -> int:
    try:
        return int(enum[label.upper()])
    except (KeyError, AttributeError):
        labels = ", ".join(member.name.lower() for member in enum)
        raise InvalidValueError(f"graph.{column}", label, f"one of {labels}") from None


def _dims(column: list[object], kinds: Sequence[int]) -> IntArray:
    dims = np.zeros((len(column), MAX_DIMENSIONS), dtype=np.int64)
    for row, (values, kind) in enumerate(zip(column, kinds, strict=True)):
        width = len(DIMENSIONS[OperatorKind(kind)])
        fewest = _FEWEST_DIMENSIONS.get(OperatorKind(kind), width)
        if not isinstance(values, list) or not fewest <= len(values) <= width:
            raise InvalidValueError(
                "graph.dims", values, f"{width} integers for {OperatorKind(kind).label}"
            )
        for value in values:
            if type(value) is not int or not 0 <= value < 2**62:
                raise InvalidValueError("graph.dims", value, "integers from 0 to 2**62")
        dims[row, : len(values)] = values
    return dims


def _edges(column: list[Any]) -> tuple[IntArray, IntArray]:
    for row, edges in enumerate(column):
        if not isinstance(edges, list):
            raise InvalidValueError(
                "graph.dependencies", edges, "a list of row numbers per operator"
            )
        for edge in edges:
            if type(edge) is not int or not 0 <= edge < row:
                raise InvalidValueError(
                    "graph.dependencies", edge, f"numbers of earlier rows (0 to {row - 1})"
                )
    return compressed_rows(column)
