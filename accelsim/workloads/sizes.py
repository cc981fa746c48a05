"""One size for each of many scenarios, written as if it were one number.

A family writes its layers with the arithmetic of whole numbers. Given `Sizes` in place of a batch
or a length, the same code writes the rows of all scenarios at once: sums and products are columns.
Where the code asks a question (``if length > window``) that the scenarios answer differently, they
part (`ScenariosPart`), and each answer is written on its own.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from accelsim.workloads.graph import BoolArray, IntArray


class ScenariosPart(Exception):  # noqa: N818  (asks for a split, is no error)
    """Scenarios answer a question of the code differently.

    Attributes:
        answer: The answer of each scenario, as codes from 0, shape (scenarios,).
    """

    def __init__(self, answer: IntArray) -> None:
        super().__init__("scenarios part here")
        self.answer = answer


def _values(other: Any) -> Any:
    return other.values if isinstance(other, Sizes) else other


def _arithmetic(function: Callable[[Any, Any], Any]) -> Callable[[Sizes, Any], Sizes]:
    def apply(self: Sizes, other: Any) -> Sizes:
        return Sizes(function(self.values, _values(other)))

    return apply


def _reflected(function: Callable[[Any, Any], Any]) -> Callable[[Sizes, Any], Sizes]:
    def apply(self: Sizes, other: Any) -> Sizes:
        return Sizes(function(other, self.values))

    return apply


def _question(function: Callable[[Any, Any], Any]) -> Callable[[Sizes, Any], bool]:
    def ask(self: Sizes, other: Any) -> bool:
        return _agreed(function(self.values, _values(other)))

    return ask


def _agreed(answers: BoolArray) -> bool:
    """The one answer of all scenarios."""
    first = bool(answers[0])
    if not (answers == first).all():
        raise ScenariosPart(answers.astype(np.int64))
    return first


class Sizes:
    """A number per scenario, shape (scenarios,)."""

    __array_ufunc__ = None  # numpy's own numbers leave arithmetic to this class
    __slots__ = ("values",)

    def __init__(self, values: NDArray[Any]) -> None:
        self.values = values

    def __repr__(self) -> str:
        return f"Sizes({self.values!r})"

    __add__ = _arithmetic(operator.add)
    __radd__ = _reflected(operator.add)
    __sub__ = _arithmetic(operator.sub)
    __rsub__ = _reflected(operator.sub)
    __mul__ = _arithmetic(operator.mul)
    __rmul__ = _reflected(operator.mul)
    __floordiv__ = _arithmetic(operator.floordiv)
    __rfloordiv__ = _reflected(operator.floordiv)
    __truediv__ = _arithmetic(operator.truediv)
    __rtruediv__ = _reflected(operator.truediv)
    __mod__ = _arithmetic(operator.mod)
    __pow__ = _arithmetic(np.power)
    __rpow__ = _reflected(np.power)
    __lt__ = _question(operator.lt)
    __le__ = _question(operator.le)
    __gt__ = _question(operator.gt)
    __ge__ = _question(operator.ge)

    def __eq__(self, other: object) -> bool:
        return _question(operator.eq)(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.values.tobytes())

    def __bool__(self) -> bool:
        return _agreed(self.values != 0)

    def __neg__(self) -> Sizes:
        return Sizes(-self.values)

    def __round__(self, digits: int = 0) -> Sizes:
        return Sizes(np.round(self.values, digits))

    def __ceil__(self) -> Sizes:
        return Sizes(np.ceil(self.values).astype(np.int64))

    def __floor__(self) -> Sizes:
        return Sizes(np.floor(self.values).astype(np.int64))

    def __index__(self) -> int:
        return int(self._one())

    def __int__(self) -> int:
        return int(self._one())

    def __float__(self) -> float:
        return float(self._one())

    def _one(self) -> Any:
        """The value that all scenarios have."""
        first = self.values[0]
        if not (self.values == first).all():
            self._part()
        return first

    def _part(self) -> NoReturn:
        _, answer = np.unique(self.values, return_inverse=True)
        raise ScenariosPart(answer.astype(np.int64))
