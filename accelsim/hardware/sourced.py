"""A number with its origin.

Every quantity of a profile says what kind of number it is and where it comes from, so that a reader
can check it. In YAML a source is a key of the file's ``sources`` table or a full citation;
`DeviceProfile` resolves keys to citations.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from enum import Enum, StrEnum
from typing import Annotated, Any, Generic, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from accelsim.plain import Document

T = TypeVar("T")
D = TypeVar("D")


#: Least and largest plausible value by name of a field, or by its end: estimates, about a thousand
#: times beyond what has been built (a wafer moves 2.1e16 B/s, a CPU has 288 cores).
_PLAUSIBLE: Mapping[str, tuple[float, float]] = {
    "core_count": (1, 1e5),
    "sm_count": (1, 1e5),
    "lanes_per_sm": (1, 65_536),
    "max_threads_per_sm": (1, 1e6),
    "threads_per_core": (1, 1024),
    "simd_width_bits": (8, 1e6),
    "fma_ports": (1, 1024),
    "_count": (1, 1e9),
    "_parallelism": (1, 65_536),
    "_flop_per_s": (1e6, 1e20),
    "_bytes_per_s": (1e3, 1e19),
    "_bytes_per_sm": (1, 1e12),
    "_bytes": (1, 1e16),
    "_hz": (1e5, 1e11),
    "_nm": (0.1, 1e5),
    "_usd": (0.01, 1e8),
    "_w": (1e-6, 1e6),
}


class FrozenModel(BaseModel):
    """Base of all boundary models: frozen, no unknown keys, no silent conversions, no NaN, and
    numbers of devices within what is plausible.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        defer_build=True,  # a command builds the validators of the one class that it reads
    )

    @model_validator(mode="after")
    def _is_plausible(self) -> Self:
        for field, value in self:
            numbers = value.values() if isinstance(value, Mapping) else (value,)
            for number in numbers:
                if isinstance(number, Sourced):
                    _check_plausible(field, number.value)
        return self


def _check_plausible(field: str, value: float) -> None:
    ranges = (ends for name, ends in _PLAUSIBLE.items() if field.endswith(name))
    least, most = next(ranges, (-math.inf, math.inf))
    if not least <= value <= most:
        allowed = f"expected {least:,g} to {most:,g}"
        raise ValueError(f"{field} = {value:g} is not plausible: {allowed}")


class SourceKind(StrEnum):
    """What kind of number a value is."""

    DATASHEET = "datasheet"
    MEASURED = "measured"
    DERIVED = "derived"
    ESTIMATE = "estimate"


class Sourced(FrozenModel, Generic[T]):
    """A value, its kind and its source.

    Attributes:
        value: The number, in the unit that the field's name ends in.
        kind: datasheet, measured, derived or estimate.
        source: Where it was read: a page, a file, or a short name of the profile's `sources`.
    """

    value: T
    kind: Annotated[SourceKind, Field(strict=False)] = SourceKind.DATASHEET
    source: Annotated[str, Field(min_length=3, max_length=1000)]


#: A quantity > 0 with its source; unknown quantities are absent (None), never 0.
Positive = Sourced[Annotated[float, Field(gt=0)]]
#: A count >= 1 with its source.
PositiveCount = Sourced[Annotated[int, Field(ge=1)]]


def value_of(sourced: Sourced[T] | None, default: D) -> T | D:
    """The value, or ``default`` where the profile does not know it."""
    return default if sourced is None else sourced.value


def device_numbers(profile: BaseModel) -> list[Document]:
    """Every sourced number of a profile: field, value, kind, source.

    Args:
        profile: A device, or a part of one.
    """
    return [
        {"field": path, "value": number.value, "kind": number.kind.value, "source": number.source}
        for path, number in _walk("", profile)
    ]


def _walk(path: str, value: object) -> Iterator[tuple[str, Sourced[Any]]]:
    if isinstance(value, Sourced):
        yield path, value
    elif isinstance(value, BaseModel):
        for name, item in value:
            yield from _walk(f"{path}.{name}" if path else name, item)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _walk(f"{path}.{_label(key)}", item)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _walk(f"{path}[{getattr(item, 'name', index)}]", item)


def _label(key: object) -> str:
    return key.name.lower() if isinstance(key, Enum) else str(key)
