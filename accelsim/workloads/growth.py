"""One pass of a workload at many batches: once several were asked for, the rows of further ones are
those of batch 1 and as many times their growth, if every number grows evenly with the batch.

Whether it does is tried at the first batches, which tell remainders, and at a large one, which
tells whole blocks and limits. A pass of which a number does not (experts that few tokens reach) is
written anew each time. Captured modules are taken to other batches alike (`capture.captured`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import TYPE_CHECKING

import numpy as np

from accelsim.errors import InvalidValueError
from accelsim.workloads.graph import FloatArray, IntArray

if TYPE_CHECKING:
    from accelsim.workloads.model import Lowered

_GROWING = ("dims", "flop", "read_bytes", "write_bytes", "weight_bytes", "saved_bytes")
#: Batches that are written before growth is looked for: as many as that itself writes, so that no
#: number of batches takes twice the time of writing each.
_WRITTEN_COUNT = 4
_TRIED = (2, 3, 65_537)
#: Of sums of binary fractions.
_ROUNDING = 1e-12


class BatchedPass:
    """A pass at any batch.

    Args:
        write: Writes the pass at a batch.
    """

    __slots__ = ("_asked_count", "_base", "_step", "_write")

    def __init__(self, write: Callable[[int], Lowered]) -> None:
        self._write = write
        self._asked_count = 0
        self._base: Lowered | None = None
        self._step: dict[str, FloatArray | IntArray] = {}

    def at(self, batch: int) -> Lowered:
        """The pass at a batch.

        Raises:
            InvalidValueError: If the workload cannot be lowered at it.
        """
        self._asked_count += 1
        if self._asked_count == _WRITTEN_COUNT + 1:
            self._find_growth()
        return self._write(batch) if self._base is None else self._grown(self._base, batch)

    def _find_growth(self) -> None:
        try:
            base, *tried = (self._write(batch) for batch in (1, *_TRIED))
        except InvalidValueError:
            return
        if len({one.graph.name for one in (base, *tried)}) > 1:
            return
        self._step = {
            name: getattr(tried[0].graph, name) - getattr(base.graph, name) for name in _GROWING
        }
        grown = (self._grown(base, batch) for batch in _TRIED)
        if all(map(_is_same, grown, tried)):
            self._base = base

    def _grown(self, base: Lowered, batch: int) -> Lowered:
        columns = {
            name: getattr(base.graph, name) + (batch - 1) * step
            for name, step in self._step.items()
        }
        return replace(base, graph=replace(base.graph, **columns))


def _is_same(one: Lowered, other: Lowered) -> bool:
    parts = ((getattr(one, f.name), getattr(other, f.name)) for f in fields(one))
    columns = (
        (getattr(one.graph, f.name), getattr(other.graph, f.name)) for f in fields(one.graph)
    )
    return all(map(_is_close, *zip(*columns, strict=True))) and all(
        a == b for a, b in parts if a is not one.graph
    )


def _is_close(a: object, b: object) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.shape == b.shape and np.allclose(a, b, rtol=_ROUNDING, atol=0.0)
    return a == b
