"""What ran where and when: frozen columns of a finished simulation.

A `Timeline` holds one row per operator or task with its resource, start, end and dynamic energy. A
`StepFunction` is a piecewise constant quantity over time (power, memory in use). Names are stored
once and referred to by code, so that a million rows stay a few numpy columns; nothing here needs
the engine that produced them.
"""

from __future__ import annotations

import heapq
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accelsim.errors import InvalidValueError, UnknownNameError
from accelsim.files.output import write_file
from accelsim.frozen import frozen
from accelsim.workloads.graph import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    import pandas as pd

CodeArray = NDArray[np.int32]
_CHUNK_ROWS = 32_768
#: Digits after the point of a time in microseconds: picoseconds.
_DIGITS = 6
#: Quick, and within some percent of the smallest file.
_COMPRESSION_LEVEL = 3
_COLUMNS = ("resource", "name", "category", "start_s", "end_s", "energy_j")


@frozen(eq=False)
class StepFunction:
    """A piecewise constant quantity: `value[i]` holds from `time_s[i]` until `time_s[i + 1]`, the
    last one for ever.

    Attributes:
        time_s: Times of the steps, ascending, shape (k,), in seconds.
        value: Value from each step on, shape (k,); 0 before the first.
    """

    time_s: FloatArray
    value: FloatArray

    @property
    def maximum(self) -> float:
        """Largest value reached, or 0 where there is no step."""
        return float(self.value.max(initial=0.0))

    def at(self, time_s: ArrayLike) -> FloatArray:
        """Value at the given times; a step counts from its own time on."""
        index = np.searchsorted(self.time_s, np.asarray(time_s, dtype=np.float64), side="right")
        return np.concatenate([np.zeros(1), self.value])[index]

    def integral(self, start_s: float, end_s: float) -> float:
        """Integral over [start_s, end_s], in unit of value times seconds."""
        inside = self.time_s[(self.time_s > start_s) & (self.time_s < end_s)]
        edges = np.concatenate([[start_s], inside, [end_s]])
        return float((self.at(edges[:-1]) * np.diff(edges)).sum())


@frozen(eq=False)
class Timeline:
    """When each task ran: n rows, in no particular order.

    Attributes:
        resource: Codes into `resources`, shape (n,).
        name: Codes into `names`, shape (n,).
        category: Codes into `categories`, shape (n,).
        start_s: Start times, shape (n,), in seconds.
        end_s: End times, shape (n,), in seconds.
        energy_j: Dynamic energy of each row, shape (n,), in joules.
        resources: Resource names.
        capacities: Tasks each resource runs at once.
        names: Row names.
        categories: Category names.
        counters: Quantities over time that the rows do not tell, by name with unit, as
            `memory_bytes`.
    """

    resource: CodeArray
    name: CodeArray
    category: CodeArray
    start_s: FloatArray
    end_s: FloatArray
    energy_j: FloatArray
    resources: tuple[str, ...]
    capacities: tuple[int, ...]
    names: tuple[str, ...]
    categories: tuple[str, ...]
    counters: Mapping[str, StepFunction] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.start_s)

    @property
    def duration_s(self) -> FloatArray:
        """Duration of each row, shape (n,), in seconds."""
        return self.end_s - self.start_s

    @property
    def makespan_s(self) -> float:
        """End of the last row; 0 where there is none."""
        return float(self.end_s.max(initial=0.0))

    def code_of(self, resource: str) -> int:
        """Code of a resource.

        Raises:
            UnknownNameError: If the timeline has no such resource.
        """
        if resource not in self.resources:
            raise UnknownNameError("resource", resource, self.resources)
        return self.resources.index(resource)

    def take(self, rows: BoolArray | IntArray) -> Timeline:
        """The given rows (mask or indices), with the same name tables."""
        return replace(self, **{column: getattr(self, column)[rows] for column in _COLUMNS})

    def select(self, *, resource: str | None = None, category: str | None = None) -> Timeline:
        """Rows of one resource, of one category, or both."""
        keep = np.ones(len(self), dtype=bool)
        if resource is not None:
            keep &= self.resource == self.code_of(resource)
        if category is not None:
            if category not in self.categories:
                raise UnknownNameError("category", category, self.categories)
            keep &= self.category == self.categories.index(category)
        return self.take(keep)

    def sorted(self) -> Timeline:
        """Rows by start, then end."""
        return self.take(np.lexsort((self.end_s, self.start_s)))

    def shifted(self, offset_s: float) -> Timeline:
        """The same rows, `offset_s` seconds later."""
        counters = {
            name: StepFunction(steps.time_s + offset_s, steps.value)
            for name, steps in self.counters.items()
        }
        start_s, end_s = self.start_s + offset_s, self.end_s + offset_s
        return replace(self, start_s=start_s, end_s=end_s, counters=counters)

    def between(self, start_s: float, end_s: float) -> Timeline:
        """Rows that overlap the window, clipped to it; a cut row keeps its share of the energy.
        Counters stay whole.

        A row of zero duration is in the window that it starts in, its end excluded, with all of its
        energy.
        """
        rows = self.take(
            (self.start_s < end_s) & ((self.end_s > start_s) | (self.start_s >= start_s))
        )
        first, last = np.maximum(rows.start_s, start_s), np.minimum(rows.end_s, end_s)
        duration = rows.duration_s
        share = np.divide(last - first, duration, out=np.ones_like(duration), where=duration > 0)
        return replace(rows, start_s=first, end_s=last, energy_j=rows.energy_j * share)

    def busy_intervals(self, resource: str) -> tuple[FloatArray, FloatArray]:
        """Maximal intervals in which the resource runs at least one task.

        Returns:
            Starts and ends, ascending, in seconds.
        """
        rows = self.select(resource=resource)
        order = np.argsort(rows.start_s, kind="stable")
        start, end = rows.start_s[order], np.maximum.accumulate(rows.end_s[order])
        opens = np.concatenate([[True], start[1:] > end[:-1]])[: len(start)]
        closes = np.concatenate([opens[1:], [True]])[: len(start)]
        return start[opens], end[closes]

    def busy_s(self, resource: str) -> float:
        """Time in which the resource runs at least one task, in seconds."""
        start, end = self.busy_intervals(resource)
        return float((end - start).sum())

    def utilisation(self, resource: str, start_s: float = 0.0, end_s: float | None = None) -> float:
        """Share of a resource's capacity that is used in a window, from 0 to 1.

        The utilisation law (Denning and Buzen, ACM Computing Surveys 10, 1978).

        Args:
            resource: Resource name.
            start_s: Start of the window, in seconds.
            end_s: End of the window; the makespan where None.

        Raises:
            InvalidValueError: If the window is empty.
        """
        last = self.makespan_s if end_s is None else end_s
        if not last > start_s:
            raise InvalidValueError("end_s", last, f"a time after start_s = {start_s}")
        code = self.code_of(resource)
        window = self.between(start_s, last)
        if self.capacities[code] == 1:
            return window.busy_s(resource) / (last - start_s)
        used = float(window.duration_s[window.resource == code].sum())
        return used / (self.capacities[code] * (last - start_s))

    def power(self, idle_w: float = 0.0) -> StepFunction:
        """Power over time: each row spends its energy evenly from start to end, above a constant
        idle power.

        Rows of zero duration have no power; their energy is left out.

        Args:
            idle_w: Idle power from time 0 on, in watts.
        """
        lasts = self.end_s > self.start_s
        start_s, end_s = self.start_s[lasts], self.end_s[lasts]
        draw_w = self.energy_j[lasts] / (end_s - start_s)
        times = np.concatenate([[0.0], start_s, end_s])
        change = np.concatenate([[idle_w], draw_w, -draw_w])
        return accumulate(times, change)

    def to_frame(self) -> pd.DataFrame:
        """One row per task, with names as words, by start."""
        import pandas as pd

        rows = self.sorted()
        tables = (rows.resources, rows.names, rows.categories)
        columns = {name: getattr(rows, name) for name in _COLUMNS}
        for name, table in zip(_COLUMNS, tables, strict=False):
            columns[name] = np.array(table, dtype=object)[columns[name]]
        return pd.DataFrame(columns)

    def to_perfetto(self, path: str | Path, *, force: bool = False) -> None:
        """Write a trace that https://ui.perfetto.dev and chrome://tracing open.

        The format is the JSON of Chrome's trace viewer ("Trace Event Format", Google): complete
        events ("ph": "X") on tracks, their names as metadata ("M"), counters ("C"); times in
        microseconds. Events are written some thousands at a time, so that a trace of a million rows
        takes little more memory than its timeline.

        Each resource is a track; one that runs several rows at once has a track for each of them.
        Dynamic power (where rows have energy) and `counters` are counter tracks.

        Args:
            path: A JSON file, compressed where its name ends in .gz.
            force: Whether an existing file may be replaced.

        Raises:
            OutputError: If the file exists or cannot be written.
        """

        def write(temporary: Path) -> None:
            with _opened(temporary) as file:
                file.write('{"displayTimeUnit":"ns","traceEvents":[\n')
                file.write(_metadata("process_name", 0, "accelsim"))
                for events in _events(self):
                    file.write(",\n")
                    file.write(",\n".join(events))
                file.write("\n]}\n")

        write_file(Path(path), write, force=force)


def accumulate(time_s: FloatArray, change: FloatArray) -> StepFunction:
    """Step function of the running sum of changes; changes at one time become one step.

    Args:
        time_s: Times of the changes, any order, shape (k,), in seconds.
        change: Amount each adds, shape (k,).
    """
    order = np.argsort(time_s, kind="stable")
    time, level = time_s[order], np.cumsum(change[order])
    last_of_time = np.concatenate([time[1:] > time[:-1], [True]])[: len(time)]
    return StepFunction(time[last_of_time], level[last_of_time])


def merge(timelines: Sequence[Timeline]) -> Timeline:
    """One timeline of several; equal resource names become one resource.

    Of counters of one name the last one stays.

    Args:
        timelines: At least one timeline.

    Raises:
        InvalidValueError: If there is no timeline.
    """
    if not timelines:
        raise InvalidValueError("timelines", timelines, "at least one timeline")
    capacities: dict[str, int] = {}
    counters: dict[str, StepFunction] = {}
    for line in timelines:
        for server, capacity in zip(line.resources, line.capacities, strict=True):
            capacities[server] = max(capacity, capacities.get(server, 1))
        counters |= line.counters
    resource, resources = _joined([(line.resource, line.resources) for line in timelines])
    name, names = _joined([(line.name, line.names) for line in timelines])
    category, categories = _joined([(line.category, line.categories) for line in timelines])
    start_s, end_s, energy_j = (
        np.concatenate([getattr(line, column) for line in timelines]) for column in _COLUMNS[3:]
    )
    return Timeline(
        resource,
        name,
        category,
        start_s,
        end_s,
        energy_j,
        resources,
        tuple(capacities.values()),
        names,
        categories,
        counters,
    )


def _joined(
    columns: Sequence[tuple[CodeArray, tuple[str, ...]]],
) -> tuple[CodeArray, tuple[str, ...]]:
    """One column of several columns of codes with their names; equal names become one."""
    table: dict[str, int] = {}
    joined = []
    for codes, names in columns:
        recode = [table.setdefault(name, len(table)) for name in names]
        joined.append(np.array(recode, dtype=np.int32)[codes])
    return np.concatenate(joined), tuple(table)


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    """A new text file; compressed ones carry no time, so that equal runs give equal bytes."""
    with path.open("xb") as file:
        if path.suffix == ".gz":
            import gzip

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
        labels = (
            [resource] if lane_count == 1 else [f"{resource} #{n + 1}" for n in range(lane_count)]
        )
        yield [_metadata("thread_name", *row) for row in zip(tracks, labels, strict=True)]
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


def _metadata(kind: str, track: int, name: str) -> str:
    event = {"ph": "M", "pid": 1, "tid": track, "name": kind, "args": {"name": name}}
    return json.dumps(event)


def _spans(timeline: Timeline, rows: IntArray, track: IntArray) -> list[str]:
    """Complete events of some rows."""
    start_us = _microseconds(timeline.start_s[rows])
    duration_us = np.round(_microseconds(timeline.end_s[rows]) - start_us, _DIGITS)
    columns = (
        *(column.tolist() for column in (track, start_us, duration_us, timeline.energy_j[rows])),
        _json_texts(timeline.names, timeline.name[rows]),
        _json_texts(timeline.categories, timeline.category[rows]),
    )
    return [
        f'{{"ph":"X","pid":1,"tid":{tid},"ts":{ts},"dur":{dur},'
        f'"name":{name},"cat":{category},"args":{{"energy_j":{energy_j}}}}}'
        for tid, ts, dur, energy_j, name, category in zip(*columns, strict=True)
    ]


def _counter(name: str, steps: StepFunction) -> Iterator[list[str]]:
    """Counter events of a quantity; of steps within a picosecond the last one counts."""
    time_us = _microseconds(steps.time_s)
    steps_at = np.flatnonzero(np.append(time_us[1:] > time_us[:-1], [True])[: len(time_us)])
    key = json.dumps(name)
    for low in range(0, len(steps_at), _CHUNK_ROWS):
        chunk = steps_at[low : low + _CHUNK_ROWS]
        pairs = zip(time_us[chunk].tolist(), steps.value[chunk].tolist(), strict=True)
        yield [
            f'{{"ph":"C","pid":1,"name":{key},"ts":{time},"args":{{{key}:{value}}}}}'
            for time, value in pairs
        ]


def _json_texts(table: tuple[str, ...], codes: CodeArray) -> list[str]:
    """JSON texts of coded words."""
    distinct, index_of = np.unique(codes, return_inverse=True)
    texts = [json.dumps(table[code]) for code in distinct.tolist()]
    return [texts[index] for index in index_of.tolist()]


def _microseconds(time_s: FloatArray) -> FloatArray:
    return np.asarray(np.round(time_s * 1e6, _DIGITS))
