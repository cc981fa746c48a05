"""One size for each of many scenarios, written as if it were one number.

A family writes its layers with the arithmetic of whole numbers. Given `Sizes` in place of a batch
or a length, the same code writes the rows of all scenarios at once: sums and products are columns.
Where the code asks a question (``if length > window``) that the scenarios answer differently, they
part (`ScenariosPart`), and each answer is written on its own.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

from accelsim.workloads.graph import IntArray


class ScenariosPart(Exception):  # noqa: N818  (asks for a split, is no error)
    """Scenarios answer a question of the code differently.

    Attributes:
        answer: The answer of each scenario, as codes from 0, shape (scenarios,).
    """

    def __init__(self, answer: IntArray) -> None:
        super().__init__("scenarios part here")
        self.answer = answer


def _agreed(values: NDArray[Any]) -> Any:
    """The one value of all scenarios."""
    value = values[0]
    if not (values == value).all():
        _, answer = np.unique(values, return_inverse=True)
        raise ScenariosPart(answer.astype(np.int64))
    return value


class Sizes(NDArrayOperatorsMixin):
    """A number per scenario, shape (scenarios,).

    Arithmetic gives sizes, a comparison the one answer that all scenarios have.
    """

    __slots__ = ("values",)

    def __init__(self, values: NDArray[Any]) -> None:
        self.values = values

    def __repr__(self) -> str:
        return f"Sizes({self.values!r})"

    def __array_ufunc__(self, function: np.ufunc, method: str, *operands: Any, **_: Any) -> Any:
        """What all operators come to; never in place, as of plain numbers."""
        values = (x.values if isinstance(x, Sizes) else x for x in operands)
        result = getattr(function, method)(*values)
        return bool(_agreed(result)) if result.dtype == np.bool_ else Sizes(result)

    def __mul__(self, other: Any) -> Sizes:  # the most frequent by far: not by way of numpy's mixin
        return Sizes(self.values * (other.values if isinstance(other, Sizes) else other))

    __rmul__ = __mul__

    def __hash__(self) -> int:
        return hash(self.values.tobytes())

    def __bool__(self) -> bool:
        return bool(_agreed(self.values != 0))

    def __round__(self, digits: int = 0) -> Sizes:
        return Sizes(np.round(self.values, digits))

    def __ceil__(self) -> Sizes:
        return Sizes(np.ceil(self.values).astype(np.int64))

    def __floor__(self) -> Sizes:
        return Sizes(np.floor(self.values).astype(np.int64))

    def __index__(self) -> int:
        return int(_agreed(self.values))

    def __int__(self) -> int:
        return int(_agreed(self.values))

    def __float__(self) -> float:
        return float(_agreed(self.values))


Integral.register(Sizes)  # stands where an integer is asked for
