"""The points of a sweep as columns: groups that differ in their sizes alone, and a key for each.

A point is known by the hash of what it asks, however it was asked: fields that are None count as
left out, and sizes are told apart from all else, so that the points of a grid, of a list and of
draws share their keys. Draws are those of `scipy.stats.qmc` (Sobol 1967, scrambled by Owen 1998;
Latin hypercubes of McKay, Beckman & Conover 1979) or independent.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from itertools import pairwise, product
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from accelsim.estimation.estimate_many import SHAPE_COLUMNS
from accelsim.exploration.sweeps.spec import Range, Scalar, SweepSpec
from accelsim.frozen import frozen
from accelsim.plain import Values
from accelsim.simulation.randomness import RandomStreams
from accelsim.workloads.graph import FloatArray, IntArray

#: Length of the hash that a point is known by.
KEY_BYTES = 16
#: Points of one group that are answered together. Sums of floating-point numbers depend on it in
#: their last digit, so that it depends on nothing but the sweep.
CELL = 1024
#: Larger sizes are no sizes; `estimate` says so at their point.
_LARGEST = 2**62


@frozen(eq=False)
class PointGroup:
    """Points that differ in their sizes alone.

    Attributes:
        of: Function asked.
        fields: What they share, none of it None.
        sizes: Columns of `SHAPE_COLUMNS` that they give, shape (n,).
        count: Points n.
    """

    of: str
    fields: Values
    sizes: Mapping[str, IntArray]
    count: int

    @classmethod
    def of_point(cls, of: str, fields: Values, sizes: Mapping[str, IntArray]) -> Self:
        """A group whose sizes are all in columns, one of each point at least.

        Args:
            of: Function asked.
            fields: What the points share.
            sizes: Columns of sizes.
        """
        count = len(next(iter(sizes.values()))) if sizes else 1
        columns = dict[str, IntArray](sizes)
        shared = {n: value for n, value in fields.items() if value is not None and n not in columns}
        for name in SHAPE_COLUMNS:
            if of == "estimate" and name in shared and _is_size(shared[name]):
                columns[name] = np.full(count, shared.pop(name))
        ordered: dict[str, IntArray] = {
            name: columns[name] for name in SHAPE_COLUMNS if name in columns
        }
        return cls(of, shared, ordered, count)

    def point_keys(self) -> list[bytes]:
        """Hash of each point."""
        keys: list[bytes] = self.key_numbers().view(f"V{KEY_BYTES}")[:, 0].tolist()
        return keys

    def key_numbers(self) -> NDArray[np.uint64]:
        """Hash of each point as two numbers, shape (n, 2)."""
        shared = {name: self.fields[name] for name in sorted(self.fields)}
        text = json.dumps([self.of, shared, list(self.sizes)]).encode()
        head = np.frombuffer(blake2b(text, digest_size=KEY_BYTES).digest(), dtype="<u8")
        mixed = np.repeat(head[None], self.count, axis=0)
        for column in self.sizes.values():
            mixed = _mixed(mixed + column[:, None].astype(np.uint64))
        return mixed.astype("<u8", copy=False)

    def take(self, places: IntArray) -> PointGroup:
        """Some of its points."""
        sizes = {name: column[places] for name, column in self.sizes.items()}
        return PointGroup(self.of, self.fields, sizes, len(places))


def _mixed(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Each number as another that looks drawn at random, no two as one: the step of SplitMix64
    (Steele, Lea & Flood, OOPSLA 2014, figure 15).
    """
    state = state + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


def _is_size(value: object) -> bool:
    return type(value) is int and 0 <= value < _LARGEST


def point_groups(spec: SweepSpec) -> Iterator[PointGroup]:
    """The points of a sweep, at most `CELL` at once; those of one model follow each other.

    Args:
        spec: The sweep.
    """
    if isinstance(spec.points, list):
        for point in spec.points:
            yield PointGroup.of_point(spec.of, {**spec.fixed, **point}, {})
    elif spec.method == "grid":
        yield from _grid(spec)
    else:
        yield from _drawn(spec)


def _grid(spec: SweepSpec) -> Iterator[PointGroup]:
    lists = {name: values for name, values in spec.vary.items() if isinstance(values, list)}
    narrow, wide = _split(spec)
    columns = [np.array(lists[name]) for name in wide]
    shape = tuple(map(len, columns))
    for values in product(*(lists[name] for name in narrow)):
        fields = {**spec.fixed, **dict(zip(narrow, values, strict=True))}
        for start, end in _cells(0, math.prod(shape)):
            indices = np.unravel_index(np.arange(start, end), shape) if shape else ()
            rows = zip(wide, columns, indices, strict=True)
            sizes = {name: column[index] for name, column, index in rows}
            yield PointGroup.of_point(spec.of, fields, sizes)


def _split(spec: SweepSpec) -> tuple[list[str], list[str]]:
    """Fields that vary: those that groups share, the model first, and sizes, a column each."""
    fields = spec.vary.items()
    wide = [name for name, axis in fields if spec.of == "estimate" and _are_sizes(name, axis)]
    return sorted(spec.vary.keys() - set(wide), key=_model_first), wide


def _model_first(name: str) -> tuple[bool, str]:
    return name != "model", name


def _cells(start: int, end: int) -> Iterator[tuple[int, int]]:
    """Ends of the cells of points that lie from `start` to `end`."""
    return ((at, min(at + CELL, end)) for at in range(start, end, CELL))


def _drawn(spec: SweepSpec) -> Iterator[PointGroup]:
    narrow, wide = _split(spec)
    names = sorted(spec.vary, key=_model_first)
    draws = zip(names, _unit_draws(spec, names), strict=True)
    columns = {name: _placed(spec.vary[name], unit) for name, unit in draws}
    order, starts = _alike([columns[name] for name in narrow], spec.count)
    for start, end in (cell for ends in pairwise(starts) for cell in _cells(*ends)):
        places = order[start:end]
        shared = {name: _scalar(spec.vary[name], columns[name][places[0]]) for name in narrow}
        sizes = {name: _numbers(spec.vary[name], columns[name][places]) for name in wide}
        yield PointGroup.of_point(spec.of, {**spec.fixed, **shared}, sizes)


def _unit_draws(spec: SweepSpec, names: list[str]) -> Iterator[FloatArray]:
    """Numbers from 0 to 1 for each field, shape (points,)."""
    streams = RandomStreams(spec.seed)
    if spec.method == "random":
        yield from (streams.stream(f"sweep {name}").random(spec.count) for name in names)
        return
    from scipy.stats import qmc

    generator = streams.stream(f"sweep {spec.method}")
    if spec.method == "sobol":
        power = (spec.count - 1).bit_length()
        drawn = qmc.Sobol(len(names), seed=generator).random_base2(power)[: spec.count]
    else:
        drawn = qmc.LatinHypercube(len(names), seed=generator).random(spec.count)
    yield from drawn.T


def _placed(values: Range | list[Scalar], unit: FloatArray) -> NDArray[Any]:
    """What numbers from 0 to 1 stand for: values of a range, or places in a list.

    Inversion of the distribution function (Devroye, Non-Uniform Random Variate Generation, 1986,
    section II.2).
    """
    if isinstance(values, list):
        places = np.minimum((unit * len(values)).astype(np.int64), len(values) - 1)
        return places.astype(np.min_scalar_type(len(values)))
    is_log = values.scale == "log"
    low, high = (np.log(end) if is_log else float(end) for end in (values.low, values.high))
    drawn = low + unit * (high - low)
    drawn = np.clip(np.exp(drawn) if is_log else drawn, values.low, values.high)
    if not values.is_whole:
        return drawn
    is_short = values.low >= -(2**31) and values.high < 2**31
    return np.rint(drawn).astype(np.int32 if is_short else np.int64)


def _are_sizes(name: str, values: Range | list[Scalar]) -> bool:
    """Whether all values of a field go into columns."""
    if name not in SHAPE_COLUMNS:
        return False
    if isinstance(values, list):
        return all(map(_is_size, values))
    return values.is_whole and values.low >= 0


def _alike(columns: list[NDArray[Any]], count: int) -> tuple[IntArray, list[int]]:
    """Points in an order that has those together whose columns are equal, and where each such
    group starts, with the end of the last.
    """
    group = np.zeros(count, dtype=np.int32)
    for column in columns:
        codes = np.unique(column, return_inverse=True)[1]
        pairs = group * (int(codes.max()) + 1) + codes
        group = np.unique(pairs, return_inverse=True)[1].astype(np.int32)
    order = np.argsort(group, kind="stable")
    return order, np.flatnonzero(np.diff(group[order], prepend=-1, append=-1)).tolist()


def _numbers(values: Range | list[Scalar], drawn: NDArray[Any]) -> IntArray:
    """Sizes of what was drawn."""
    numbers: IntArray = drawn if isinstance(values, Range) else np.array(values)[drawn]
    return numbers.astype(np.int64)


def _scalar(values: Range | list[Scalar], drawn: Any) -> Scalar:
    """The value of one that was drawn."""
    value: Scalar = drawn.item() if isinstance(values, Range) else values[int(drawn)]
    return value
