"""What a sweep runs over: fixed fields, varied fields, and how they are combined."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from accelsim.datafile import read_mapping, validated
from accelsim.errors import ProfileError
from accelsim.planning.options import EstimateKeywords
from accelsim.simulation.randomness import RandomStreams

__all__ = ["Range", "Scalar", "SweepSpec", "canonical", "load_sweep"]

Scalar = str | int | float | bool | None
_FIELDS: Final = frozenset(("model", "device", *EstimateKeywords.__annotations__))
_MAX_BYTES: Final = 50_000_000
_MAX_POINTS: Final = 100_000_000


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Range(_Model):
    """Numbers a random sweep draws from; whole where both ends are.

    Attributes:
        low: Least.
        high: Largest.
        scale: Even over the values, or over their logarithms.
    """

    low: int | float
    high: int | float
    scale: Literal["linear", "log"] = "linear"

    @model_validator(mode="after")
    def _is_ordered(self) -> Range:
        finite = math.isfinite(self.low) and math.isfinite(self.high)
        if not finite or self.low > self.high or (self.scale == "log" and self.low <= 0):
            raise ValueError("expected low <= high, and low > 0 on a log scale")
        return self

    def drawn(self, generator: np.random.Generator) -> int | float:
        """A number of the range."""
        is_log = self.scale == "log"
        ends = (math.log(self.low), math.log(self.high)) if is_log else (self.low, self.high)
        value = float(generator.uniform(*ends))
        value = min(max(math.exp(value) if is_log else value, self.low), self.high)
        whole = isinstance(self.low, int) and isinstance(self.high, int)
        return round(value) if whole else value


class SweepSpec(_Model):
    """A sweep.

    Attributes:
        name: Its name.
        method: grid takes every combination, list the points as given, random draws.
        fixed: Fields of `accelsim.estimate` that stay.
        vary: Fields with their values, or a range for random.
        points: Of a list: fields by point. Of a random sweep: how many are drawn.
        seed: Seed of the draws.
    """

    name: str = Field(min_length=1, max_length=200)
    method: Literal["grid", "list", "random"] = "grid"
    fixed: Mapping[str, Scalar] = Field(default_factory=dict)
    vary: Mapping[str, list[Scalar] | Range] = Field(default_factory=dict)
    points: list[Mapping[str, Scalar]] | int | None = None
    seed: int = Field(default=0, ge=0)

    @field_validator("fixed", "vary")
    @classmethod
    def _are_known(cls, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        _check_fields(fields)
        return fields

    @model_validator(mode="after")
    def _is_whole(self) -> SweepSpec:
        if self.method == "list":
            if not isinstance(self.points, list) or not self.points or self.vary:
                raise ValueError("a list needs points, each with its fields, and no vary")
            for point in self.points:
                _check_fields(point)
        elif not self.vary or any(values == [] for values in self.vary.values()):
            raise ValueError("vary needs at least one field, each with values")
        if self.method == "random" and not (isinstance(self.points, int) and self.points > 0):
            raise ValueError("a random sweep needs points: how many are drawn")
        if self.method == "grid":
            if self.points is not None:
                raise ValueError("a grid has no points; it takes every combination")
            if any(isinstance(values, Range) for values in self.vary.values()):
                raise ValueError("a grid needs lists of values; a range is for method: random")
        if self.count > _MAX_POINTS:
            raise ValueError(f"{self.count:,} points are more than {_MAX_POINTS:,}")
        return self

    @property
    def count(self) -> int:
        """Points, equal ones counted as often as they come."""
        if isinstance(self.points, int):
            return self.points
        if isinstance(self.points, list):
            return len(self.points)
        return math.prod(len(values) for values in self.vary.values() if isinstance(values, list))

    def each(self) -> Iterator[dict[str, Scalar]]:
        """The points in order, each with all of its fields."""
        if isinstance(self.points, list):
            for point in self.points:
                yield {**self.fixed, **point}
        elif self.method == "random":
            yield from self._drawn()
        else:
            lists = [values for values in self.vary.values() if isinstance(values, list)]
            for values in product(*lists):
                yield {**self.fixed, **dict(zip(self.vary, values, strict=True))}

    def _drawn(self) -> Iterator[dict[str, Scalar]]:
        generator = RandomStreams(self.seed).stream("sweep")
        for _ in range(self.count):
            yield {
                **self.fixed,
                **{
                    name: values.drawn(generator)
                    if isinstance(values, Range)
                    else values[int(generator.integers(len(values)))]
                    for name, values in self.vary.items()
                },
            }


def _check_fields(fields: Mapping[str, Any]) -> None:
    unknown = sorted(fields.keys() - _FIELDS)
    if unknown:
        raise ValueError(f"{unknown[0]} is no field of accelsim.estimate")


def load_sweep(source: str | Path | Mapping[str, Any]) -> SweepSpec:
    """Read a sweep.

    Args:
        source: File, or its content as a mapping.

    Raises:
        ProfileError: If it cannot be read or a field is wrong.
    """
    if isinstance(source, Mapping):
        from pydantic import ValidationError

        try:
            return SweepSpec.model_validate(dict(source))
        except ValidationError as error:
            problems = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
            raise ProfileError("sweep", problems) from None
    path = Path(source)
    return validated(
        path, lambda: SweepSpec.model_validate(read_mapping(path, max_bytes=_MAX_BYTES))
    )


def canonical(point: Mapping[str, Scalar]) -> str:
    """Text that two points have in common only if they ask the same."""
    given = {name: value for name, value in point.items() if value is not None}
    return json.dumps(given, sort_keys=True)
