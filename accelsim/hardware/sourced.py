"""A number with its origin.

Every quantity of a profile says what kind of number it is and where it comes from, so that a reader
can check it. In YAML a source is a key of the file's ``sources`` table or a full citation;
`DeviceProfile` resolves keys to citations.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["FrozenModel", "Positive", "PositiveCount", "SourceKind", "Sourced", "value_of"]

T = TypeVar("T")
D = TypeVar("D")


class FrozenModel(BaseModel):
    """Base of all boundary models: frozen, no unknown keys, no silent conversions, no NaN."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        defer_build=True,  # a command builds the validators of the one class that it reads
    )


class SourceKind(StrEnum):
    """What kind of number a value is."""

    DATASHEET = "datasheet"
    MEASURED = "measured"
    DERIVED = "derived"
    ESTIMATE = "estimate"


class Sourced(FrozenModel, Generic[T]):
    """A value, its kind and its source."""

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
