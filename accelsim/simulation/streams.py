"""Which rows run side by side: levels of the dependency graph, spread over several streams.

List scheduling by levels (Hu, Operations Research 9, 1961): a row's level is one more than that of
the latest row it waits for; rows of one level may overlap. Each level's rows go to the streams
longest first, to the one with least work (Graham, SIAM J. Appl. Math. 17, 1969), and a level with
more than one row ends with all streams waiting for each other. Kernels that fill the device gain
nothing from running side by side: a level never takes less than the sum of its rows' time x
occupancy.
"""

from __future__ import annotations

import heapq
import itertools

import numpy as np

from accelsim.frozen import frozen
from accelsim.workloads.graph import FloatArray, IntArray


@frozen(eq=False)
class Segment:
    """Rows that run back to back on one stream after all segments of the previous stage.

    Attributes:
        stage: Stage number; stages follow each other.
        stream: Stream number.
        rows: Row indices in launch order.
        stretch: Factor on the rows' times for sharing the device, >= 1.
    """

    stage: int
    stream: int
    rows: IntArray
    stretch: float


def dependency_levels(dependency_offset: IntArray, dependency: IntArray) -> IntArray:
    """Level of each row: 0 where it waits for none, else one more than the latest row it waits for.

    Args:
        dependency_offset: Start of each row's slice of `dependency`, shape (n + 1,).
        dependency: Earlier rows each row waits for, shape (edges,).

    Returns:
        Shape (n,).
    """
    offset, edges = dependency_offset.tolist(), dependency.tolist()
    level: list[int] = []
    for low, high in itertools.pairwise(offset):
        level.append(1 + max((level[edge] for edge in edges[low:high]), default=-1))
    return np.array(level, dtype=np.int64)


def spread_over_streams(
    time_s: FloatArray, level: IntArray, stream_count: int, occupancy: FloatArray | None = None
) -> list[Segment]:
    """Segments of a graph on several streams, in stage order.

    Args:
        time_s: Time of each row alone on the device, shape (n,), in seconds.
        level: Level of each row, shape (n,).
        stream_count: Streams >= 1.
        occupancy: Share of the device a row fills, shape (n,), from 0 to 1; 1 where None.
    """
    if stream_count == 1:
        return [Segment(0, 0, np.arange(len(time_s)), 1.0)]
    filled_s = time_s if occupancy is None else time_s * occupancy
    segments: list[Segment] = []
    single: list[int] = []
    for rows in _rows_by_level(level):
        if len(rows) == 1:
            single.append(int(rows[0]))
            continue
        if single:
            segments.append(Segment(_next_stage(segments), 0, np.array(single), 1.0))
            single = []
        segments.extend(_spread_level(rows, time_s, filled_s, stream_count, _next_stage(segments)))
    if single:
        segments.append(Segment(_next_stage(segments), 0, np.array(single), 1.0))
    return segments


def _next_stage(segments: list[Segment]) -> int:
    return segments[-1].stage + 1 if segments else 0


def _rows_by_level(level: IntArray) -> list[IntArray]:
    order = np.argsort(level, kind="stable")
    starts = np.flatnonzero(np.diff(level[order])) + 1
    return np.split(order, starts)


def _spread_level(
    rows: IntArray, time_s: FloatArray, filled_s: FloatArray, stream_count: int, stage: int
) -> list[Segment]:
    """Longest row first to the stream with least work; stretched where together they overfill the
    device.
    """
    loads = [(0.0, stream) for stream in range(stream_count)]
    chosen: dict[int, list[int]] = {}
    for row in rows[np.argsort(-time_s[rows], kind="stable")].tolist():
        load, stream = heapq.heappop(loads)
        chosen.setdefault(stream, []).append(row)
        heapq.heappush(loads, (load + float(time_s[row]), stream))
    longest_s = max(load for load, _ in loads)
    stretch = max(1.0, float(filled_s[rows].sum()) / longest_s) if longest_s > 0 else 1.0
    return [
        Segment(stage, stream, np.sort(np.array(part)), stretch)
        for stream, part in sorted(chosen.items())
    ]
