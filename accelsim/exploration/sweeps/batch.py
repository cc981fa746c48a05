"""A batch of points: what a worker is given, and the Parquet file that it gives back.

Estimates go through `estimate_many`, group by group; where one point of a group is refused, its
points are asked one by one, so that an error stays at its point. Answers of other functions are
asked one by one. Columns and their types depend on the sweep alone, so that all parts of a dataset
are alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from accelsim.capacity.answer import CapacityPlan, FleetAnswer
from accelsim.estimation.estimate_many import SHAPE_COLUMNS, empty_columns, estimate_many
from accelsim.exploration.sweeps.functions import answer
from accelsim.exploration.sweeps.points import PointGroup
from accelsim.exploration.sweeps.spec import SweepSpec
from accelsim.frozen import frozen
from accelsim.plain import Document, Values
from accelsim.result import Result
from accelsim.serving.result import PERCENTILES, ServingResult
from accelsim.training.estimate import TrainingEstimate

if TYPE_CHECKING:
    import pyarrow as pa

_ASKED = "asked_"
_NUMBERS = frozenset(("float", "float | None", "int", "int | None"))
_WORDS = frozenset(("str", "str | None"))
_DISTRIBUTION = ("mean", *(f"p{percent:g}" for percent in PERCENTILES))
#: Fields of an estimate that have columns of their own.
_NAMED = frozenset(("model", "device", *SHAPE_COLUMNS))


@frozen(eq=False)
class PointBatch:
    """Points to be answered together.

    Attributes:
        groups: The points.
        keys: Their keys, in order.
        asked: Columns of what was asked: field, and whether its values are numbers.
    """

    groups: Sequence[PointGroup]
    keys: Sequence[bytes]
    asked: Mapping[str, bool]

    @property
    def name(self) -> str:
        """Name of its part."""
        return blake2b(b"".join(self.keys), digest_size=16).hexdigest() + ".parquet"


@frozen
class Part:
    """A finished batch.

    Attributes:
        content: Parquet file.
        error_count: Points with a reason in place of figures.
        busy_s: CPU time that it took.
    """

    content: bytes
    error_count: int
    busy_s: float


def asked_columns(spec: SweepSpec) -> dict[str, bool]:
    """Fields of a sweep that get a column, and whether all of their values are numbers.

    Args:
        spec: The sweep.
    """
    left_out = _NAMED if spec.of == "estimate" else frozenset()
    return {
        name: all(type(value) in {int, float} for value in values if value is not None)
        for name, values in sorted(spec.values.items())
        if name not in left_out
    }


def compute(batch: PointBatch) -> Part:
    """Answer a batch.

    Args:
        batch: Points.

    Raises:
        MemoryError: If there is too little of it: a matter of the worker, not of a point.
    """
    import time

    import pyarrow as pa
    import pyarrow.parquet as pq

    start = time.process_time()
    parts = [_with_asked(_answered(group), group, batch.asked) for group in batch.groups]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    keys = pa.array([key.hex() for key in batch.keys], pa.string())
    table = pa.table({"point": keys} | {name: _arrow(columns[name]) for name in columns})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    errors = int((columns["reason"] != "").sum())
    return Part(sink.getvalue().to_pybytes(), errors, time.process_time() - start)


def _arrow(column: NDArray[Any]) -> pa.Array:
    import pyarrow as pa

    if column.dtype == object:
        return pa.array(column, pa.string())
    return pa.array(column, from_pandas=column.dtype.kind == "f")


def _with_asked(columns: Values, group: PointGroup, asked: Mapping[str, bool]) -> Document:
    shared = {
        _ASKED + name: np.repeat(_column(group.fields.get(name), is_number=is_number), group.count)
        for name, is_number in asked.items()
    }
    return {**columns, **shared}


def _column(value: object, *, is_number: bool) -> NDArray[Any]:
    """One value as a column, unknown numbers NaN."""
    if is_number:
        return np.array([np.nan if value is None else value], dtype=float)
    return np.array([None if value is None else str(value)], dtype=object)


def _answered(group: PointGroup) -> Values:
    if group.of != "estimate":
        return _row(group)
    columns = _estimated(group)
    if columns is not None:
        return columns
    rows = []
    for index in range(group.count):
        point = group.take(np.array([index]))
        row = _estimated(point) if group.count > 1 else None
        rows.append(_refused(point) if row is None else row)
    return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}


def _estimated(group: PointGroup) -> Values | None:
    """Columns of estimates; None where one of them is refused."""
    options = {
        name: value for name, value in group.fields.items() if name not in {"model", "device"}
    }
    model = [group.fields.get("model", "")] * group.count
    try:
        device = group.fields.get("device", "")
        return estimate_many(model, device, shapes=group.sizes, **options).columns
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001  (the reason is found point by point)
        return None


def _refused(group: PointGroup) -> Values:
    """A row whose reason is the error of its point."""
    row = empty_columns(1)
    row["workload"][:] = str(group.fields.get("model", ""))
    row["device"][:] = str(group.fields.get("device", ""))
    for name, column in group.sizes.items():
        row[name][:] = column
    _, row["reason"][:] = _asked_alone(group)
    return row


def _asked_alone(group: PointGroup) -> tuple[Result | None, str]:
    """The answer of a point and why there is none."""
    try:
        sizes = {name: int(column[0]) for name, column in group.sizes.items()}
        return answer(group.of, {**group.fields, **sizes}), ""  # type: ignore[arg-type]
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001  (an error belongs to its point)
        return None, str(error) or type(error).__name__


def _row(group: PointGroup) -> Document:
    """The answer of one point of a function that is no estimate, unknown figures NaN."""
    result, reason = _asked_alone(group)
    figures = {} if result is None else dict(_figures(result))
    columns = {
        name: _column(figures.get(name), is_number=is_number)
        for name, is_number in _answer_columns(group.of)
    }
    return {**columns, "reason": np.array([reason], dtype=object)}


def _answer_columns(function: str) -> Iterator[tuple[str, bool]]:
    """Columns of an answer, and whether they are numbers."""
    kind = {"train": TrainingEstimate, "serve": ServingResult, "plan": FleetAnswer}[function]
    for field in fields(kind):
        if field.type in _NUMBERS or field.type in _WORDS:
            yield field.name, field.type in _NUMBERS
        elif field.type == "Distribution":
            yield from ((f"{field.name}.{statistic}", True) for statistic in _DISTRIBUTION)
    if function == "plan":
        yield from (("fleet", False), ("conflicts", False))


def _figures(result: Result) -> Iterator[tuple[str, object]]:
    if isinstance(result, CapacityPlan):
        yield from _of_plan(result)
        return
    for name, value in result.figures().items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{key}", figure) for key, figure in value.items())
        else:
            yield name, value


def _of_plan(result: CapacityPlan) -> Iterator[tuple[str, object]]:
    yield "conflicts", ", ".join(result.conflicts)
    if result.recommended is not None:
        yield from result.recommended.to_dict().items()
        offers = result.recommended.offers
        yield "fleet", " + ".join(f"{entry.count} x {entry.offer}" for entry in offers)
