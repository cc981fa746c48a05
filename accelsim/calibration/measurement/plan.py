"""Which shapes of which operators are measured: the table ``operators.csv`` beside this module.

A line names operators, their dimensions and how many shapes of them are drawn. Dimensions are
``name=low..high/multiple`` (the multiple is kept from twice its value on), a choice ``name=1|1|2``,
or a product of others, ``channels_in=groups*_width``; a name that begins with an underscore is no
dimension of the case. Limits, apart by semicolons, bound such products from one side or both.
Shapes fill the logarithm of each range by the Halton sequence (Halton, 1960). Needs the standard
library alone, as measuring does.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import cache
from pathlib import Path

from accelsim.frozen import frozen

Shape = dict[str, int]
_TABLE = Path(__file__).with_name("operators.csv")
_BASES = (2, 3, 5, 7, 11, 13, 17, 19)
_RANGE = re.compile(r"(\d+)\.\.(\d+)(?:/(\d+))?")
_FACTOR = re.compile(r"([*/]?)([\w.]+)")
#: Points tried for each shape wanted.
_TRIES = 400
#: Points between the first shapes of two operators of one plan.
_STRIDE = 37


@frozen
class Plan:
    """Shapes of some operators.

    Attributes:
        family: Family the operators are reported under.
        operators: Operators that take these shapes, each its own share of the points.
        count: Shapes per operator.
        dimensions: How each dimension is drawn or follows from others, in order.
        limits: Bounds on products of dimensions.
        cold: Whether weights are measured cold too, on a CPU.
        dtypes: Formats to measure; empty for all asked for.
        devices: Device types it runs on.
        growth: Factor on the upper end of dimensions, and on what limits allow of them, on a GPU,
            which does in microseconds what takes a core milliseconds.
    """

    family: str
    operators: tuple[str, ...]
    count: int
    dimensions: Mapping[str, str]
    limits: tuple[str, ...] = ()
    cold: bool = False
    dtypes: tuple[str, ...] = ()
    devices: tuple[str, ...] = ("cpu",)
    growth: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_compiled(self) -> bool:
        """Whether a compiler generates the operators' code."""
        return self.operators[0].startswith("compiled")

    def shapes(self, operator: str, device: str = "cpu") -> Iterator[Shape]:
        """Shapes of one operator on a device type, `count` of them, by Halton's sequence (1960)."""
        growth = {} if device == "cpu" else self.growth
        first_index = 1 + _STRIDE * self.operators.index(operator)
        shape_count = 0
        for index in range(first_index, first_index + _TRIES * self.count):
            drawn = self._drawn(index, growth)
            if self._is_allowed(drawn, growth):
                yield {name: value for name, value in drawn.items() if not name.startswith("_")}
                shape_count += 1
                if shape_count == self.count:
                    return

    def _drawn(self, index: int, growth: Mapping[str, int]) -> Shape:
        shape: Shape = {}
        bases = iter(_BASES)
        for name, text in self.dimensions.items():
            bounds, choices = _RANGE.fullmatch(text), text.split("|")
            if bounds:
                low, high, multiple = (int(bound or 1) for bound in bounds.groups())
                fraction = halton(index, next(bases))
                shape[name] = _between(fraction, low, high * growth.get(name, 1), multiple, index)
            elif len(choices) > 1:
                shape[name] = int(choices[int(halton(index, next(bases)) * len(choices))])
            else:
                shape[name] = int(product_of(text, shape))
        return shape

    def _is_allowed(self, shape: Shape, growth: Mapping[str, int]) -> bool:
        shrunk = {name: max(1, value // growth.get(name, 1)) for name, value in shape.items()}
        return all(_holds(limit, shrunk) for limit in self.limits)


def _between(fraction: float, low: int, high: int, multiple: int, index: int) -> int:
    """A size at a place from 0 to 1 of a logarithmic range."""
    value = round(low * math.exp(fraction * math.log(high / low)))
    if value < 2 * multiple or _is_odd(index):
        return value
    return multiple * round(value / multiple)


def _is_odd(index: int) -> bool:
    """Whether a point keeps sizes that are no multiples: one in four, by a hash that follows none
    of the bases (Knuth, The Art of Computer Programming 3, section 6.4).
    """
    return (index * 2654435761 >> 16) % 4 == 0


@cache
def _factors(text: str) -> list[tuple[str, str]]:
    """Parts of a product with the sign before each."""
    return _FACTOR.findall(text)


def product_of(text: str, shape: Mapping[str, int]) -> float:
    """Value of a product such as ``batch*side*side/stride``."""
    value = 1.0
    for sign, factor in _factors(text):
        size = shape[factor] if factor in shape else float(factor)
        value = value / size if sign == "/" else value * size
    return value


def _holds(limit: str, shape: Mapping[str, int]) -> bool:
    """Whether a limit such as ``1e4<=batch*side<=1e6`` holds."""
    values = [product_of(product, shape) for product in limit.split("<=")]
    return values == sorted(values)


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


@cache
def read_plans() -> Sequence[Plan]:
    """Every plan of the table, in its order."""
    with _TABLE.open(newline="", encoding="utf-8") as lines:
        return tuple(_plan(line) for line in csv.DictReader(lines))


def _plan(line: Mapping[str, str]) -> Plan:
    growth = {name: int(value) for name, value in pairs(line["growth"]).items()}
    limits = line["limits"].split("; ") if line["limits"] else []
    return Plan(
        line["family"],
        tuple(line["operators"].split()),
        int(line["count"]),
        pairs(line["shape"]),
        tuple(limits),
        cold=bool(line["cold"]),
        dtypes=tuple(line["dtypes"].split()),
        devices=tuple(line["devices"].split()),
        growth=growth,
    )


def pairs(text: str) -> dict[str, str]:
    """Values by name of a text such as ``m=4 n=2``."""
    return dict(pair.split("=") for pair in text.split())
