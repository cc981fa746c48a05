"""The cost table and the protocol every device class's cost model follows.

A cost model fills one `CostTable` for a whole graph with a few vectorised calls: rows are grouped
by operator kind, each kind's registered formula returns `RowCosts` for its rows, and `evaluate`
scatters them back, adds energy and names each row's bound. A formula is a pure function of the
rows' dimensions and the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, fields, replace
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from accelsim.dtype import DTYPE_BYTES, Dtype
from accelsim.errors import InvalidValueError, UnsupportedOperatorError
from accelsim.frozen import frozen
from accelsim.plain import Document
from accelsim.workloads.graph import BoolArray, FloatArray, IntArray, OperatorGraph
from accelsim.workloads.operator import OperatorKind

if TYPE_CHECKING:
    import pandas as pd


class Bound(IntEnum):
    """What limits a row."""

    COMPUTE = 0
    MEMORY = 1
    OVERHEAD = 2  # fixed latency of the kernel or layer
    DISPATCH = 3  # the host issuing work
    LINK = 4  # host or device link

    @property
    def label(self) -> str:
        """Lower-case name."""
        return self.name.lower()


class ParameterTier(StrEnum):
    """Where the parameters behind a number come from."""

    SPEC = "spec"
    FITTED = "fitted"
    MEASURED = "measured"


class Execution(StrEnum):
    """How the framework issues operators."""

    EAGER = "eager"
    GRAPH = "graph"  # captured once, replayed with one launch
    COMPILED = "compiled"  # captured, with elementwise chains fused
    COMPILED_CALLS = "compiled-calls"  # fused alike, but each kernel is called by the host


@frozen(eq=False)
class CostTable:
    """Costs of each operator on one device; n rows, in graph order.

    Attributes:
        time_s: Time on the device, including the kernel's own latency, shape (n,).
        compute_s: Time of its arithmetic alone, shape (n,).
        memory_s: Time of its memory traffic alone, shape (n,).
        dispatch_s: Host time to issue it, shape (n,).
        energy_j: Dynamic energy (idle power excluded), shape (n,).
        flop: FLOP its algorithm really executes, shape (n,).
        bytes: Bytes really moved to and from main memory, shape (n,).
        bound: `Bound` codes, shape (n,).
        log_sigma: Standard deviation of ln(true / predicted) of each row's time, shape (n,).
        tier: Where the parameters come from.
        shared_log_sigma: What all rows of one kind and format share inside a model on this device,
            shape (n,); all of it where None.
        context_log_sigma: What all rows share besides, shape (n,) or one for all: where buffers
            lie, what ran before, which pages fault, how far a stack's kernels are from the model's.
        extrapolation_decades: How far each row lies outside the measured range, shape (n,); None
            where unknown.
    """

    time_s: FloatArray
    compute_s: FloatArray
    memory_s: FloatArray
    dispatch_s: FloatArray
    energy_j: FloatArray
    flop: FloatArray
    bytes: FloatArray
    bound: NDArray[np.int8]
    log_sigma: FloatArray
    tier: ParameterTier = ParameterTier.SPEC
    shared_log_sigma: FloatArray | None = None
    context_log_sigma: FloatArray | float = 0.0
    extrapolation_decades: FloatArray | None = None

    def __len__(self) -> int:
        return len(self.time_s)

    def __repr__(self) -> str:
        return (
            f"<CostTable: {len(self)} operators, {self.total_time_s:.4g} s, "
            f"{self.total_energy_j:.4g} J, {self.tier}>"
        )

    def _repr_html_(self) -> str:
        """The table that notebooks show."""
        return str(self.to_frame().to_html(max_rows=60, notebook=True))

    @property
    def total_time_s(self) -> float:
        """Sum of device times: the run with every row back to back."""
        return float(self.time_s.sum())

    @property
    def total_energy_j(self) -> float:
        """Sum of dynamic energies."""
        return float(self.energy_j.sum())

    def context_of(self, time_s: FloatArray) -> float:
        """Spread that rows share, weighted with their times, shape (n,): of one cause, errors add
        linearly (JCGM 100:2008, section 5.2.2); 0 of no time.
        """
        total_s = float(time_s.sum())
        return float((self.context_log_sigma * time_s).sum()) / total_s if total_s else 0.0

    def part(self, rows: slice | IntArray) -> CostTable:
        """Some of the rows."""
        columns: Document = {
            f.name: value[rows]
            for f in fields(self)
            if isinstance(value := getattr(self, f.name), np.ndarray)
        }
        return replace(self, **columns)

    def scaled(self, repeats: FloatArray | float) -> CostTable:
        """Every additive column times `repeats` (rows that run several times)."""
        columns: Document = {name: getattr(self, name) * repeats for name in _ADDITIVE}
        return replace(self, **columns)

    def to_frame(self, graph: OperatorGraph | None = None) -> pd.DataFrame:
        """One row per operator; with the graph's name, path and kind where it is given."""
        import pandas as pd

        columns: Document = {
            f.name: getattr(self, f.name)
            for f in fields(self)
            if f.name not in _NOT_COLUMNS and getattr(self, f.name) is not None
        }
        columns["bound"] = [Bound(code).label for code in self.bound.tolist()]
        frame = pd.DataFrame(columns)
        return (
            frame
            if graph is None
            else pd.concat([graph.to_frame()[["name", "path", "kind", "phase"]], frame], axis=1)
        )


_NOT_COLUMNS = {"bound", "tier", "context_log_sigma"}
_ADDITIVE = ("time_s", "compute_s", "memory_s", "dispatch_s", "energy_j", "flop", "bytes")


class CostModel(Protocol):
    """What a device class offers: one vectorised call from graph to table."""

    def __call__(
        self, graph: OperatorGraph, device: Any, execution: Execution, parameters: Any | None = None
    ) -> CostTable:
        """Cost every row of `graph` on `device`.

        Args:
            graph: Operators.
            device: Profile of the model's class.
            execution: Eager, graph-captured or compiled.
            parameters: Class-wide or fitted parameters; None takes the class-wide ones.

        Raises:
            UnsupportedOperatorError: Naming the first row the device cannot run.
        """
        ...


@frozen(eq=False)
class Rows:
    """The rows of one kind, as a formula sees them; k rows.

    `rows["m"]` is a dimension as float64, shape (k,), to be read alone: formulas ask often.
    """

    graph: OperatorGraph
    index: IntArray
    kind: OperatorKind
    _columns: dict[str, FloatArray] = field(default_factory=dict, kw_only=True)

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, dimension: str) -> FloatArray:
        if dimension not in self._columns:
            column = self._dimension(dimension)
            column.setflags(write=False)
            self._columns[dimension] = column
        return self._columns[dimension]

    def _dimension(self, name: str) -> FloatArray:
        return self.graph.dimension(name, self.index, self.kind)

    def column(self, name: str) -> Any:
        """A graph column (``flop``, ``read_bytes``, ``dtype`` ...) of these rows, shape (k,)."""
        return getattr(self.graph, name)[self.index]

    def without_batch(self, figures: Callable[[Rows], FloatArray]) -> FloatArray:
        """Figures of rows that do not depend on their batch, shape (..., k)."""
        return figures(self)

    @property
    def bytes(self) -> FloatArray:
        """Bytes each row reads and writes once, shape (k,)."""
        read_bytes: FloatArray = self.column("read_bytes")
        total: FloatArray = read_bytes + self.column("weight_bytes") + self.column("write_bytes")
        return total

    @property
    def element_bytes(self) -> FloatArray:
        """Bytes of one element of each row's dtype, shape (k,)."""
        width: FloatArray = DTYPE_BYTES[self.column("dtype")]
        return width

    @property
    def epilogue_flop(self) -> FloatArray:
        """FLOP of elementwise operators fused behind each row, shape (k,)."""
        fused = self.graph.epilogue_flop
        return np.zeros(len(self)) if fused is None else fused[self.index]

    def by_dtype(self, rates: FloatArray, device: str) -> FloatArray:
        """Rate of each row's dtype, shape (k,).

        Args:
            rates: Rate by dtype code; NaN where there is none.
            device: Device name, for the message.

        Raises:
            UnsupportedOperatorError: If a row's dtype has no rate.
        """
        codes = self.column("dtype")
        values: FloatArray = rates[codes]
        missing = np.flatnonzero(np.isnan(values))
        if missing.size:
            label = Dtype(int(codes[missing[0]])).label
            name = self.graph.name[int(self.index[missing[0]])]
            operator = f"{self.kind.label} {name!r}" if name else self.kind.label
            raise UnsupportedOperatorError(device, operator, f"it has no {label} arithmetic")
        return values


@frozen(eq=False)
class RowCosts:
    """What a formula returns for its k rows; every column has shape (k,).

    `time_s` may exceed max(compute_s, memory_s) (imperfect overlap, latency), never undercut it.
    `shared_log_sigma` is the part of the spread that rows of a kind share, NaN where the formula
    does not know it; `outside_decades` the distance from the sizes its corrections were measured
    on.
    """

    time_s: FloatArray
    compute_s: FloatArray
    memory_s: FloatArray
    flop: FloatArray
    bytes: FloatArray
    log_sigma: FloatArray | float = 0.3
    shared_log_sigma: FloatArray | float = np.nan
    outside_decades: FloatArray | float = 0.0

    def or_faster(self, alternative: RowCosts, index: IntArray | slice = slice(None)) -> RowCosts:
        """Row by row the faster of two ways; the alternative has the costs of the rows `index`."""
        wins = alternative.time_s < self.time_s[index]
        columns = {}
        for name in ("time_s", "compute_s", "memory_s", "flop", "bytes"):
            column = getattr(self, name).copy()
            column[index] = np.where(wins, getattr(alternative, name), column[index])
            columns[name] = column
        return replace(self, **columns)


def refuse_rows(
    graph: OperatorGraph,
    device_name: str,
    labels: Sequence[str],
    refusals: Sequence[tuple[BoolArray, str, str]],
) -> None:
    """Raise for the first row that a device cannot run.

    Args:
        graph: Operators.
        device_name: Device, for the message.
        labels: What to call each row.
        refusals: Rows refused, shape (n,), with the reason and the remedy; the first counts.

    Raises:
        UnsupportedOperatorError: If any row is refused.
    """
    for refused, reason, remedy in refusals:
        if refused.any():
            row = int(np.argmax(refused))
            kind, dtype = OperatorKind(int(graph.kind[row])), Dtype(int(graph.dtype[row]))
            operator = f"{kind.label} {labels[row]!r} in {dtype.label}"
            raise UnsupportedOperatorError(device_name, operator, reason, remedy)


D = TypeVar("D")
Formula = Callable[[Rows, D], RowCosts]


class Formulas(Generic[D]):
    """Formulas of one device class, by operator kind.

    Args:
        device_class: Name, for messages.
    """

    def __init__(self, device_class: str) -> None:
        self.device_class = device_class
        self._by_kind: dict[OperatorKind, Formula[D]] = {}

    def register(self, *kinds: OperatorKind) -> Callable[[Formula[D]], Formula[D]]:
        """Register the decorated formula for `kinds`.

        Raises:
            InvalidValueError: If a kind has a formula already.
        """

        def add(formula: Formula[D]) -> Formula[D]:
            for kind in kinds:
                if kind in self._by_kind:
                    raise InvalidValueError(
                        "kind", kind.label, f"a kind with no {self.device_class} formula yet"
                    )
                self._by_kind[kind] = formula
            return formula

        return add

    @property
    def kinds(self) -> frozenset[OperatorKind]:
        """Kinds that have a formula."""
        return frozenset(self._by_kind)

    def evaluate(
        self,
        graph: OperatorGraph,
        device: D,
        device_name: str,
        among: BoolArray | None = None,
    ) -> RowCosts:
        """Costs of every row of a graph, shape (n,) each; 0 where not among those asked for.

        Raises:
            UnsupportedOperatorError: If a kind of the graph has no formula.
        """
        parts: list[tuple[IntArray, RowCosts]] = []
        for kind, rows in graph.rows_by_kind():
            index = rows if among is None else rows[among[rows]]
            if not len(index):
                continue
            formula = self._by_kind.get(kind)
            if formula is None:
                name = graph.name[int(index[0])]
                raise UnsupportedOperatorError(
                    device_name,
                    f"{kind.label} {name!r}",
                    f"the {self.device_class} model has no such operator",
                )
            parts.append((index, formula(Rows(graph, index, kind), device)))
        return gather_costs(parts, len(graph))


def gather_costs(parts: list[tuple[IntArray, RowCosts]], count: int) -> RowCosts:
    """Scatter the costs of row subsets back into graph order.

    Args:
        parts: Row indices and their costs; together they cover all rows.
        count: Number of rows.
    """
    columns = {f.name: np.zeros(count) for f in fields(RowCosts)}
    for index, costs in parts:
        for name, column in columns.items():
            column[index] = getattr(costs, name)
    return RowCosts(**columns)


def bound_of(
    compute_s: FloatArray, memory_s: FloatArray, overhead_s: FloatArray | float
) -> NDArray[np.int8]:
    """The largest of the three terms of each row, as `Bound` codes.

    Williams et al., CACM 52(4), 2009.
    """
    overhead = np.broadcast_to(np.asarray(overhead_s, dtype=np.float64), compute_s.shape)
    bound: NDArray[np.int8] = np.argmax(np.stack([compute_s, memory_s, overhead]), axis=0).astype(
        np.int8
    )
    return bound
