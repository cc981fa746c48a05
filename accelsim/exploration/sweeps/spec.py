"""What a sweep runs over: a function of the library, fields that stay, and fields that vary."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from accelsim.capacity.hardware_asked import Name
from accelsim.catalog import group_devices
from accelsim.errors import ProfileError
from accelsim.exploration.sweeps.functions import SweptFunction, unknown_field
from accelsim.files.datafile import read_mapping, validated
from accelsim.plain import Values

Scalar = str | int | float | bool | None
Method = Literal["grid", "list", "random", "sobol", "latin-hypercube"]
_MAX_BYTES = 50_000_000
_MAX_POINTS = 20_000_000
#: Whole numbers beyond are no longer told apart where they are drawn.
_MAX_WHOLE = 2**53
#: Dimensions that `scipy.stats.qmc.Sobol` has direction numbers for.
_MAX_SOBOL = 21_201


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Range(_Model):
    """Numbers that points are drawn from; whole where both ends are.

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
        if self.is_whole and max(abs(self.low), abs(self.high)) > _MAX_WHOLE:
            raise ValueError(f"expected whole numbers of at most {_MAX_WHOLE:,}")
        return self

    @property
    def is_whole(self) -> bool:
        """Whether only whole numbers are drawn."""
        return isinstance(self.low, int) and isinstance(self.high, int)


class SweepSpec(_Model):
    """A sweep.

    Attributes:
        name: Its name.
        of: Function of the library whose answers are wanted.
        method: grid takes every combination, list the points as given; random, sobol and
            latin-hypercube draw.
        fixed: Fields of that function that stay.
        vary: Fields with their values, or a range for the methods that draw.
        points: Of a list: fields by point. Of draws: how many.
        seed: Seed of the draws.
    """

    name: Name
    of: SweptFunction = "estimate"
    method: Method = "grid"
    fixed: Mapping[str, Scalar] = Field(default_factory=dict)
    vary: Mapping[str, list[Scalar] | Range] = Field(default_factory=dict)
    points: list[Mapping[str, Scalar]] | int | None = None
    seed: int = Field(default=0, ge=0)

    @field_validator("vary")
    @classmethod
    def _each_of_a_group(cls, fields: Values) -> Values:
        listed = fields.get("device")
        if not isinstance(listed, list):
            return fields
        devices = [name for word in listed for name in group_devices(str(word))]
        return {**fields, "device": list(dict.fromkeys(devices))}

    @model_validator(mode="after")
    def _is_whole(self) -> SweepSpec:
        self._check_fields()
        self._check_points()
        if self.count > _MAX_POINTS:
            raise ValueError(f"{self.count:,} points are more than {_MAX_POINTS:,}")
        if self.method == "sobol" and len(self.vary) > _MAX_SOBOL:
            raise ValueError(f"a sobol sweep varies at most {_MAX_SOBOL:,} fields")
        return self

    def _check_points(self) -> None:
        if self.method == "list":
            if not isinstance(self.points, list) or not self.points or self.vary:
                raise ValueError("a list needs points, each with its fields, and no vary")
        elif not self.vary or [] in self.vary.values():
            raise ValueError("vary needs at least one field, each with values")
        elif self.method == "grid":
            self._check_grid()
        elif not isinstance(self.points, int) or self.points < 1:
            raise ValueError(f"a {self.method} sweep needs points: how many are drawn")

    def _check_grid(self) -> None:
        if self.points is not None:
            raise ValueError("a grid has no points; it takes every combination")
        if any(isinstance(values, Range) for values in self.vary.values()):
            raise ValueError("a grid needs lists of values; a range is for methods that draw")

    def _check_fields(self) -> None:
        listed = self.points if isinstance(self.points, list) else []
        for fields in (self.fixed, self.vary, *listed):
            unknown = unknown_field(self.of, fields)
            if unknown is not None:
                raise ValueError(f"{unknown} is no field of accelsim.{self.of}")

    @property
    def count(self) -> int:
        """Points, equal ones counted as often as they come."""
        if isinstance(self.points, int):
            return self.points
        if isinstance(self.points, list):
            return len(self.points)
        return math.prod(len(values) for values in self.vary.values() if isinstance(values, list))

    @property
    def values(self) -> dict[str, list[Scalar]]:
        """Each field with the values it takes; ends of ranges stand for what is drawn."""
        listed = self.points if isinstance(self.points, list) else []
        values_of_field: dict[str, list[Scalar]] = {
            name: [value] for name, value in self.fixed.items()
        }
        for name, values in self.vary.items():
            ends: list[Scalar] = [values.low, values.high] if isinstance(values, Range) else values
            values_of_field.setdefault(name, []).extend(ends)
        for point in listed:
            for name, value in point.items():
                values_of_field.setdefault(name, []).append(value)
        return values_of_field


def load_sweep(source: str | Path | Values) -> SweepSpec:
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
