"""Plans of shapes: space-filling in the logarithm of each dimension, by the Halton sequence
(Halton, 1960).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

__all__ = ["Plan", "Shape", "halton"]

Shape = dict[str, int]
_BASES = (2, 3, 5, 7, 11, 13, 17, 19)


def halton(index: int, base: int) -> float:
    """Element of the van der Corput sequence: the digits of `index` in `base`, mirrored at the
    point.

    Args:
        index: 1, 2, 3 ...
        base: A prime.
    """
    value, scale = 0.0, 1.0
    while index > 0:
        scale /= base
        value += scale * (index % base)
        index //= base
    return value


def _is_odd(index: int) -> bool:
    """Whether a point keeps sizes that are no multiples: one in four, by a hash that follows none
    of the bases.
    """
    return (index * 2654435761 >> 16) % 4 == 0


def _no_change(shape: Shape) -> Shape:
    return shape


def _all(_shape: Shape) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Plan:
    """Shapes of one operator.

    Attributes:
        family: Family the operator is reported under.
        operators: Operators that take these shapes, each its own share of the points.
        ranges: (low, high, multiple) of each dimension; the multiple is kept from twice its value
            on.
        count: Shapes per operator.
        fixed: Dimensions that are the same everywhere.
        finish: Derives dimensions from the drawn ones.
        allowed: Whether a shape's work and memory are in bounds.
        cold: Whether weights are measured cold too.
        dtypes: Formats to measure; None for all asked for.
        devices: Device types it runs on.
    """

    family: str
    operators: tuple[str, ...]
    ranges: Mapping[str, tuple[int, int, int]]
    count: int
    fixed: Mapping[str, int] = field(default_factory=dict)
    finish: Callable[[Shape], Shape] = _no_change
    allowed: Callable[[Shape], bool] = _all
    cold: bool = False
    dtypes: tuple[str, ...] | None = None
    devices: tuple[str, ...] = ("cpu", "cuda")

    def shapes(self, operator: str) -> Iterator[Shape]:
        """Shapes of one operator, `count` of them."""
        offset = 1 + 37 * self.operators.index(operator)
        found = 0
        for index in range(offset, offset + 400 * self.count):
            shape = self._shape(index)
            if self.allowed(shape):
                yield shape
                found += 1
                if found == self.count:
                    return

    def _shape(self, index: int) -> Shape:
        shape = dict(self.fixed)
        for position, (name, (low, high, multiple)) in enumerate(self.ranges.items()):
            share = halton(index, _BASES[position])
            value = round(math.exp(math.log(low) + share * math.log(high / low)))
            rounded = multiple * max(1, round(value / multiple)) if value >= 2 * multiple else value
            shape[name] = value if _is_odd(index) else rounded
        return self.finish(shape)
