"""One pass of a workload at many batches: once several were asked for, the rows of further ones are
those of batch 1 and as many times their growth, if every number grows evenly with the batch.

Whether it does is tried at the first batches, which tell remainders, and at a large one, which
tells whole blocks and limits. A pass of which a number does not (experts that few tokens reach) is
written anew each time. Captured modules are taken to other batches alike (`capture.captured`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace

import numpy as np

from accelsim.errors import InvalidValueError
from accelsim.frozen import frozen
from accelsim.workloads.graph import FloatArray, IntArray, OperatorGraph

_GROWING = ("dims", "flop", "read_bytes", "write_bytes", "weight_bytes", "saved_bytes")
#: Batches that are written before growth is looked for: as many as that itself writes, so that no
#: number of batches takes twice the time of writing each.
_WRITTEN_COUNT = 4
_TRIED = (2, 3, 65_537)
#: Of sums of binary fractions.
_ROUNDING = 1e-12


@frozen(eq=False)
class Lowered:
    """A graph with the model-wide counts its memory depends on.

    Attributes:
        graph: The operators.
        parameter_count: Trainable parameters.
        parameter_tensor_count: Tensors they live in (for per-tensor optimizer kernels).
        parameter_bytes: Bytes they are stored in.
        kv_bytes_per_token: Cache bytes one token of one sequence takes over all layers; 0 where
            there is no cache.
    """

    graph: OperatorGraph
    parameter_count: int
    parameter_tensor_count: int
    parameter_bytes: float
    kv_bytes_per_token: float


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
