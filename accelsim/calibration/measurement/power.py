"""Energy of a few operators of a GPU, replayed in graphs for a second each: what leakage and
clocks, bytes and arithmetic draw.

A board's meter is read before and after; a draw settles within the first half second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from accelsim.calibration.energy import Meter, time_and_energy
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
    streams = [("elementwise", operator, {"elements": count}) for operator, count in _STREAMS]
    products = [("gemm", "addmm", {"m": m, "n": n, "k": k}) for m, n, k in _PRODUCTS]
    return [
        Case(*operator, dtype, threads=0, execution="graph")
        for dtype in dtypes
        for operator in (products if dtype == "tf32" else streams + products)
    ]


def energy_of_graph(
    meter: Meter, replay: Callable[[], object], count: int
) -> tuple[float, float] | None:
    """Seconds and joules of one of the calls of a graph, replayed back to back; None where the
    meter cannot be read.

    Args:
        meter: Of the board.
        replay: Replays the graph.
        count: Calls in it.
    """
    time_and_energy(meter, replay, _WARM_UP_S)
    reading = time_and_energy(meter, replay, _READ_S)
    return None if reading is None else (reading[0] / count, reading[1] / count)
