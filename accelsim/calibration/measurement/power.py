"""Energy of a few operators of a GPU, replayed in graphs for a second each: what leakage and
clocks, bytes and arithmetic draw.

A board's meter is read before and after; a draw settles within the first half second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from accelsim.calibration.energy import Meter, energy_per_call_j
from accelsim.calibration.measurement.case import Case

_WARM_UP_S, _READ_S = 0.7, 1.2
#: Sides of products: small ones leave room below the power limit.
_PRODUCTS = (
    (256, 2048, 2048),
    (512, 1024, 4096),
    (1024, 1024, 4096),
    (2048, 2048, 2048),
    (4096, 4096, 4096),
)
#: What streams, and what only keeps the clocks up, with their elements.
_STREAMS = (("relu", 2**26), ("add", 2**26), ("tanh", 2**26), ("relu", 1024))


def power_suite(dtypes: Sequence[str]) -> list[Case]:
    """Operators whose draw tells static power, bytes and arithmetic apart.

    Args:
        dtypes: Formats of the calibration.
    """
    return list(_cases(dtypes))


def _cases(dtypes: Sequence[str]) -> Iterator[Case]:
    for dtype in dtypes:
        streams = [] if dtype == "tf32" else _STREAMS
        for operator, elements in streams:
            shape = {"elements": elements}
            yield Case("elementwise", operator, shape, dtype, threads=0, execution="graph")
        for m, n, k in _PRODUCTS:
            shape = {"m": m, "n": n, "k": k}
            yield Case("gemm", "addmm", shape, dtype, threads=0, execution="graph")


def energy_of_graph(
    meter: Meter, replay: Callable[[], Any], count: int
) -> tuple[float, float] | None:
    """Seconds and joules of one of the calls of a graph, replayed back to back; None where the
    meter cannot be read.

    Args:
        meter: Of the board.
        replay: Replays the graph.
        count: Calls in it.
    """
    energy_per_call_j(meter, replay, _WARM_UP_S)
    calls = 0

    def counted() -> None:
        nonlocal calls
        replay()
        calls += 1

    begin = time.perf_counter()
    energy_j = energy_per_call_j(meter, counted, _READ_S)
    elapsed_s = time.perf_counter() - begin
    if energy_j is None:
        return None
    return elapsed_s / (calls * count), energy_j / count
