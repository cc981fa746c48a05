"""Timelines as traces that ui.perfetto.dev and chrome://tracing open.

The format is the JSON of Chrome's trace viewer ("Trace Event Format", Google): complete events
("ph": "X") on tracks, their names as metadata ("M"), counters ("C"); times in microseconds. Events
are written some thousands at a time, so that a trace of a million rows takes little more memory
than its timeline.
"""

from __future__ import annotations

import gzip
import heapq
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import numpy as np

from accelsim.files.output import write_file

if TYPE_CHECKING:
    from accelsim.simulation.timeline import CodeArray, StepFunction, Timeline
    from accelsim.workloads.graph import FloatArray, IntArray

_CHUNK_ROWS = 32_768
#: Digits after the point of a time in microseconds: picoseconds.
_DIGITS = 6
#: Quick, and within some percent of the smallest file.
_COMPRESSION_LEVEL = 3


def write_trace(timeline: Timeline, path: str | Path, *, force: bool = False) -> None:
    """Write a timeline as a Chrome trace.

    Each resource is a track; one that runs several rows at once has a track for each of them.
    Dynamic power (where rows have energy) and the timeline's counters are counter tracks.

    Args:
        timeline: Rows and counters.
        path: A JSON file, compressed where its name ends in .gz.
        force: Whether an existing file may be replaced.

    Raises:
        OutputError: If the file exists or cannot be written.
    """
    target = Path(path)

    def write(temporary: Path) -> None:
        with _opened(temporary) as file:
            file.write('{"displayTimeUnit":"ns","traceEvents":[\n')
            file.write(_metadata("process_name", 0, "accelsim"))
            for events in _events(timeline):
                file.write(",\n")
                file.write(",\n".join(events))
            file.write("\n]}\n")

    write_file(target, write, force=force)


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    """A new text file; compressed ones carry no time, so that equal runs give equal bytes."""
    with path.open("xb") as file:
        if path.suffix == ".gz":
            packed = gzip.GzipFile("", "wb", _COMPRESSION_LEVEL, file, mtime=0)
            with packed, io.TextIOWrapper(packed, encoding="utf-8") as text:
                yield text
        else:
            with io.TextIOWrapper(file, encoding="utf-8") as text:
                yield text


def _events(timeline: Timeline) -> Iterator[list[str]]:
    """All events as JSON texts, in lists of some thousands."""
    track_count = 0
    for code, resource in enumerate(timeline.resources):
        rows = np.flatnonzero(timeline.resource == code)
        rows = rows[np.lexsort((timeline.end_s[rows], timeline.start_s[rows]))]
        lane = _lanes(timeline.start_s[rows], timeline.end_s[rows])
        lane_count = int(lane.max(initial=0)) + 1
        tracks = range(track_count + 1, track_count + lane_count + 1)
        yield [_track(resource, track, tracks) for track in tracks]
        for low in range(0, len(rows), _CHUNK_ROWS):
            chunk = slice(low, low + _CHUNK_ROWS)
            yield _spans(timeline, rows[chunk], lane[chunk] + tracks.start)
        track_count += lane_count
    if timeline.energy_j.any():
        yield from _counter("power_w", timeline.power())
    for name, steps in timeline.counters.items():
        yield from _counter(name, steps)


def _lanes(start_s: FloatArray, end_s: FloatArray) -> IntArray:
    """Smallest lane that is free at each row's start; rows of one lane do not overlap.

    Args:
        start_s: Start times, ascending, shape (n,), in seconds.
        end_s: End times, shape (n,), in seconds.
    """
    lane = np.zeros(len(start_s), dtype=np.int64)
    latest_s = np.maximum.accumulate(end_s)
    if (start_s[1:] >= latest_s[:-1]).all():
        return lane
    running: list[tuple[float, int]] = []
    free: list[int] = []
    for row, (start, end) in enumerate(zip(start_s.tolist(), end_s.tolist(), strict=True)):
        while running and running[0][0] <= start:
            heapq.heappush(free, heapq.heappop(running)[1])
        number = heapq.heappop(free) if free else len(running)
        lane[row] = number
        heapq.heappush(running, (end, number))
    return lane


def _track(resource: str, track: int, tracks: range) -> str:
    number = track - tracks.start + 1
    name = resource if len(tracks) == 1 else f"{resource} #{number}"
    return _metadata("thread_name", track, name)


def _metadata(kind: str, track: int, name: str) -> str:
    event = {"ph": "M", "pid": 1, "tid": track, "name": kind, "args": {"name": name}}
    return json.dumps(event)


def _spans(timeline: Timeline, rows: IntArray, track: IntArray) -> list[str]:
    """Complete events of some rows."""
    start_us = _microseconds(timeline.start_s[rows])
    duration_us = np.round(_microseconds(timeline.end_s[rows]) - start_us, _DIGITS)
    names = _words(timeline.names, timeline.name[rows])
    categories = _words(timeline.categories, timeline.category[rows])
    columns = (track, start_us, duration_us, timeline.energy_j[rows])
    lists = (column.tolist() for column in columns)
    return [
        f'{{"ph":"X","pid":1,"tid":{tid},"ts":{ts},"dur":{dur},'
        f'"name":{name},"cat":{category},"args":{{"energy_j":{energy_j}}}}}'
        for tid, ts, dur, energy_j, name, category in zip(*lists, names, categories, strict=True)
    ]


def _counter(name: str, steps: StepFunction) -> Iterator[list[str]]:
    """Counter events of a quantity; of steps within a picosecond the last one counts."""
    time_us = _microseconds(steps.time_s)
    is_last = np.ones(len(time_us), dtype=bool)
    is_last[:-1] = time_us[1:] > time_us[:-1]
    steps_at = np.flatnonzero(is_last)
    head = f'{{"ph":"C","pid":1,"name":{json.dumps(name)},"ts":'
    key = json.dumps(name)
    for low in range(0, len(steps_at), _CHUNK_ROWS):
        chunk = steps_at[low : low + _CHUNK_ROWS]
        pairs = zip(time_us[chunk].tolist(), steps.value[chunk].tolist(), strict=True)
        yield [f'{head}{time},"args":{{{key}:{value}}}}}' for time, value in pairs]


def _words(table: tuple[str, ...], codes: CodeArray) -> list[str]:
    """JSON texts of coded words."""
    distinct, place = np.unique(codes, return_inverse=True)
    texts = [json.dumps(table[code]) for code in distinct.tolist()]
    return [texts[index] for index in place.tolist()]


def _microseconds(time_s: FloatArray) -> FloatArray:
    return np.asarray(np.round(time_s * 1e6, _DIGITS))
