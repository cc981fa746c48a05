"""A pass of a run with its costs and its simulation: its timeline, the activations it holds, and
the operators that take most of its time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from accelsim.cost.table import Bound, CostTable
from accelsim.estimation.schedule import PassResult, device_settings
from accelsim.frozen import frozen
from accelsim.simulation.liveness import activation_live_bytes
from accelsim.simulation.timeline import StepFunction, Timeline
from accelsim.workloads.graph import IntArray, OperatorGraph
from accelsim.workloads.operator import OperatorKind

if TYPE_CHECKING:
    from accelsim.estimation.run import ResolvedRun


@frozen
class OperatorShare:
    """One operator's device time in an iteration, and its share of the iteration's time."""

    name: str
    kind: str
    time_s: float
    bound: str
    share_fraction: float


@frozen(eq=False)
class SimulatedPass:
    """A pass with its costs and its simulation.

    Attributes:
        name: "forward", "training step", "prefill", "decode", ...
        repeats: Times it runs; need not be whole.
        graph: Its operators.
        table: What each costs, in graph order.
        result: What the device takes for it.
        input_bytes: Bytes of one batch as it comes from the host.
    """

    name: str
    repeats: float
    graph: OperatorGraph
    table: CostTable
    result: PassResult
    input_bytes: float

    @property
    def latency_s(self) -> float:
        """Time of all its repeats, one after the other."""
        return self.result.latency_s * self.repeats

    def phase(self, run: ResolvedRun) -> str:
        """What the pass is of in its run, as runs that were measured are told apart."""
        return {"prefill": "prompt", "decode": "decode"}.get(self.name, run.mode)

    def timeline(self, run: ResolvedRun) -> Timeline:
        """One iteration of the pass alone, its rows by name."""
        from accelsim.simulation.device import simulate_device

        settings = device_settings(run, self.input_bytes, is_decode=self.name == "decode")
        once = replace(settings, iterations=1, warmup_iterations=1)
        line = simulate_device(self.table, once, self.graph.name).timeline
        iterations = int((line.resource == line.code_of("compute")).sum()) // len(self.graph)
        order = np.lexsort((line.end_s, line.start_s, line.resource))
        count = np.bincount(line.resource, minlength=len(line.resources))
        begin = np.cumsum(count) - count
        position_on_resource = np.arange(len(line)) - begin[line.resource[order]]
        is_of_first = position_on_resource < count[line.resource[order]] // iterations
        return line.take(order[is_of_first])

    def activations_in_use(self, line: Timeline) -> StepFunction:
        """Bytes of activations from the start of each operator on; 0 after the last one."""
        start_s = np.sort(line.select(resource="compute").start_s)
        level = np.append(activation_live_bytes(self.graph), 0.0)
        return StepFunction(np.append(start_s, line.makespan_s), level)


def largest_operators(
    passes: Sequence[SimulatedPass], latency_s: float, count: int | None
) -> tuple[OperatorShare, ...]:
    """Operators by device time, largest first; the same operator of repeated layers counts as one.

    Args:
        passes: Passes of an iteration.
        latency_s: Time of the iteration.
        count: How many; all where None.
    """
    time_of: dict[tuple[str, int, int], float] = {}
    for p in passes:
        labels, codes = _labels(p.graph)
        times = np.bincount(codes * len(Bound) + p.table.bound, weights=p.table.time_s * p.repeats)
        for code in np.argsort(-times)[:count].tolist():
            if not times[code]:
                break
            key = (*labels[code // len(Bound)], code % len(Bound))
            time_of[key] = time_of.get(key, 0.0) + float(times[code])
    largest = sorted(time_of.items(), key=lambda item: -item[1])[:count]
    return tuple(
        OperatorShare(
            name,
            OperatorKind(kind).label,
            time_s,
            Bound(bound).label,
            time_s / latency_s if latency_s else 0.0,
        )
        for (name, kind, bound), time_s in largest
    )


@lru_cache(maxsize=64)
def _labels(graph: OperatorGraph) -> tuple[tuple[tuple[str, int], ...], IntArray]:
    """Distinct (path and name with layer numbers as ``*``, kind) of a graph's rows, and each row's
    position among them.
    """
    positions: dict[tuple[str, int], int] = {}
    rows = zip(graph.path, graph.name, graph.kind.tolist(), strict=True)
    codes = [
        positions.setdefault(
            (f"{_without_numbers(path)}.{name}" if path else name, kind), len(positions)
        )
        for path, name, kind in rows
    ]
    return tuple(positions), np.array(codes, dtype=np.int64)


@lru_cache(maxsize=8192)
def _without_numbers(path: str) -> str:
    return ".".join("*" if part.isdigit() else part for part in path.split("."))
