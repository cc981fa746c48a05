"""The one form of a result: figures with intervals, what they rest on, and where they come from.

`Result` is the base of estimates and simulations, and of whatever else answers a question about a
run. A subclass is a frozen dataclass whose fields are its figures, in SI units with the unit in the
name (`UNIT_SUFFIXES`); the base gives it JSON, a table, a short text and a comparison with another.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, field
from typing import TYPE_CHECKING, ClassVar

from accelsim.frozen import frozen
from accelsim.plain import Document, Values

if TYPE_CHECKING:
    import pandas as pd

#: Units a key of a result may end in; a key without one is a count, a name or a flag.
UNIT_SUFFIXES = (
    *("_s", "_per_s", "_j", "_w", "_usd", "_bytes", "_kgco2e", "_hz"),
    *("usd_per_hour", "_usd_per_1000", "_usd_per_million_tokens"),
    *("_fraction", "_ratio", "_count"),
)


@frozen
class Metric:
    """A figure and how sure it is.

    Attributes:
        value: The figure; None where unknown.
        low: Lower end of its interval; None where none is known.
        high: Upper end.
        level: Probability the interval is meant to hold.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    level: float | None = None

    def to_dict(self) -> dict[str, float | None]:
        """Value, low, high and level."""
        return asdict(self)


@frozen
class Provenance:
    """What a result was made with.

    Attributes:
        version: Version of accelsim.
        seed: Seed of its random numbers; None where it has none.
        parts: Profiles, workloads and parameters by their role, or functions that give them;
            `data_hashes` tells them apart.
    """

    version: str
    seed: int | None = None
    parts: Values = field(default_factory=dict, repr=False, compare=False)

    @property
    def data_hashes(self) -> dict[str, str]:
        """First 16 hexadecimal digits of the SHA-256 of each part's content."""
        return {role: _digest(part) for role, part in self.parts.items()}

    def to_dict(self) -> Document:
        """Version, seed and data hashes."""
        return {"version": self.version, "seed": self.seed, "data_hashes": self.data_hashes}


def _digest(part: object) -> str:
    content = part() if callable(part) else part
    dumped = getattr(content, "model_dump_json", None)
    text = dumped() if dumped is not None else repr(content)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@frozen
class Difference:
    """One figure of two results.

    Attributes:
        before: Value in the first result; None where it has none.
        after: Value in the other.
    """

    before: object
    after: object

    @property
    def ratio(self) -> float | None:
        """After over before; None where that has no meaning."""
        before, after = _as_number(self.before), _as_number(self.after)
        return after / before if before and after is not None else None


class Result:
    """Base of results.

    A subclass has fields or properties `inputs`, `evidence`, `provenance` and `warnings`, and says
    which of its figures are metrics.
    """

    __slots__ = ()
    kind: ClassVar[str]
    schema_version: ClassVar[int] = 1
    #: Figures that are no scalars.
    nested: ClassVar[frozenset[str]] = frozenset()

    if TYPE_CHECKING:

        @property
        def inputs(self) -> Values:
            """What was asked, resolved."""

        @property
        def provenance(self) -> Provenance:
            """Version, data and seed."""

        @property
        def warnings(self) -> tuple[str, ...]:
            """What a reader should know before trusting the figures."""

    @property
    def metrics(self) -> dict[str, Metric]:
        """Figures by name, with their intervals."""
        raise NotImplementedError

    def figures(self) -> Document:
        """Flat figures and lists of the result, ready for JSON."""
        raise NotImplementedError

    def with_intervals(self) -> Document:
        """`figures`, with the ends of their intervals by name under "low" and "high"."""
        metrics = self.metrics.items()
        low = {name: metric.low for name, metric in metrics}
        return self.figures() | {"low": low, "high": {name: m.high for name, m in metrics}}

    def to_dict(self) -> Document:
        """Plain values, ready for JSON; unknown figures are None."""
        head = {"kind": self.kind, "schema_version": self.schema_version}
        context = {
            "inputs": dict(self.inputs),
            "metrics": {name: metric.to_dict() for name, metric in self.metrics.items()},
            "provenance": self.provenance.to_dict(),
            "warnings": list(self.warnings),
        }
        return head | self.figures() | context

    def to_json(self) -> str:
        """`to_dict` as JSON text."""
        return json_text(self.to_dict())

    def to_frame(self) -> pd.DataFrame:
        """One row with every scalar figure."""
        import pandas as pd

        figures = self.figures()
        return pd.DataFrame([{name: figures[name] for name in figures if name not in self.nested}])

    def diff(self, other: Result) -> dict[str, Difference]:
        """Figures and inputs that differ from another result of the same kind.

        Args:
            other: The result to compare with.

        Raises:
            TypeError: If it is of another kind.
        """
        if other.kind != self.kind:
            raise TypeError(f"cannot compare a result of kind {self.kind} with one of {other.kind}")
        mine, theirs = _comparable(self), _comparable(other)
        return {
            name: Difference(mine.get(name), theirs.get(name))
            for name in {**mine, **theirs}
            if mine.get(name) != theirs.get(name)
        }

    def _repr_html_(self) -> str:
        """A table of the metrics, as notebooks show it."""
        import html

        rows = "".join(
            f"<tr><th>{html.escape(name)}</th><td>{_number(metric.value)}</td>"
            f"<td>{_interval(metric)}</td></tr>"
            for name, metric in self.metrics.items()
            if metric.value is not None
        )
        caption = html.escape(repr(self))
        return f"<table><caption>{caption}</caption>{rows}</table>"


def json_text(document: object) -> str:
    """Strict JSON text of plain values: no NaN, indented by two."""
    return json.dumps(document, indent=2, allow_nan=False)


def _as_number(value: object) -> float | None:
    return None if isinstance(value, bool) or not isinstance(value, int | float) else value


def _comparable(result: Result) -> Document:
    return dict(result.inputs) | {name: metric.value for name, metric in result.metrics.items()}


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"


def _interval(metric: Metric) -> str:
    if metric.low is None or metric.high is None:
        return ""
    return f"{_number(metric.low)} to {_number(metric.high)}"
