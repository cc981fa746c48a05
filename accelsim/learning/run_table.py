"""Reads tables of runs (CSV), and logs of training.

Columns of a table: ``model, device, metric, value``, and as needed ``stack, precision, mode, batch,
seq_len, output_len, image_size`` of a run of its own, ``users, prompt, output, tp`` of a server, or
``cluster, gpus, plan, batch`` (of all devices) of training on several devices. In place of metric
and value, a column may be named after a metric. A table with a column ``step`` is a log: its rows
are steps of one run, whose median after the first tenth counts, and columns that nobody knows
(loss, rate of learning) are passed over.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from accelsim.errors import InvalidValueError, ProfileError
from accelsim.files.plainfile import table_rows
from accelsim.learning.readings import Reading, Told, filled
from accelsim.plain import Document

_MAX_BYTES = 32_000_000
_SIZES = ("batch", "seq_len", "output_len", "image_size")
_TEXTS = ("model", "device", "stack", "precision", "cluster", "plan", "driver")
_COUNTS = ("users", "tp", "gpus", *_SIZES)
_WARM_UP = 0.1
#: Metrics of a batch: seconds of one, and what a rate is of.
_TIMES = {"latency_s": 1.0, "latency_ms": 1e-3, "iteration_s": 1.0, "iteration_ms": 1e-3}
_RATES = {
    "throughput_per_s": ("batch",),
    "samples_per_s": ("batch",),
    "tokens_per_s": ("batch", "seq_len"),
    "tokens_per_s_per_device": ("batch", "seq_len", "gpus"),
}
#: Metrics that only training has.
_TRAINING = frozenset({"iteration_s", "iteration_ms", *list(_RATES)[2:]})
_OF_SERVER = {"ttft_ms": "prompt", "tpot_ms": "decode"}
METRICS = (*_TIMES, *_RATES, *_OF_SERVER)
_COLUMNS = frozenset((*_TEXTS, *_COUNTS, "mode", "date", "prompt", "output", "metric", "value"))


def read_table(path: Path, told: Told) -> Iterator[Reading]:
    """Runs of a table, or the run of a log.

    Args:
        path: The file.
        told: What its rows do not say.

    Raises:
        ProfileError: If a column is missing or unknown, or a cell is no value of its column; names
            the line and the column.
        InvalidValueError: If a model, a device or a size is said nowhere.
    """
    rows = list(table_rows(path, _MAX_BYTES))
    header = [name.strip() for name in rows[0]] if rows else []
    lines = _Lines(path, header)
    lines.check()
    cells = [
        (line, {n: c.strip() for n, c in zip(header, row, strict=False)})
        for line, row in enumerate(rows[1:], 2)
        if any(cell.strip() for cell in row)
    ]
    if "step" in header:
        yield from lines.log(cells, told)
        return
    for line, row in cells:
        for metric, value in lines.figures(line, row):
            yield lines.reading(line, row, metric, value, told)


class _Lines:
    """Lines of a table.

    Args:
        path: The file.
        header: Names of its columns.
    """

    def __init__(self, path: Path, header: Sequence[str]) -> None:
        self.path, self.header = path, header
        self.metrics = [name for name in header if name in METRICS]

    def check(self) -> None:
        """Refuse a table without a figure, or with a column that nobody knows."""
        named = {"metric", "value"} <= set(self.header)
        known = _COLUMNS | set(METRICS)
        unknown = [n for n in self.header if n not in known and "step" not in self.header]
        twice = [n for n in self.header if self.header.count(n) > 1]
        if not named and not self.metrics:
            raise self.refused(1, f"no column metric and value, nor one of {', '.join(METRICS)}")
        if twice:
            raise self.refused(1, f"column {twice[0]} stands twice")
        if unknown:
            columns = ", ".join(sorted(known))
            raise self.refused(1, f"unknown column {unknown[0]}; columns are {columns}")

    def refused(self, line: int, problem: str) -> ProfileError:
        return ProfileError(str(self.path), [f"line {line}: {problem}"])

    def number(self, line: int, name: str, cell: str) -> float:
        """A number above 0."""
        try:
            value = float(cell)
        except ValueError:
            value = math.nan
        if not 0 < value < math.inf:
            raise self.refused(line, f"{name}: {cell[:60]!r} is no number above 0")
        return value

    def count(self, line: int, name: str, cell: str) -> int:
        """A whole number above 0."""
        value = self.number(line, name, cell)
        if value != int(value):
            raise self.refused(line, f"{name}: {cell[:60]!r} is no whole number")
        return int(value)

    def figures(self, line: int, row: Mapping[str, str]) -> Iterator[tuple[str, float]]:
        """Metrics of a row."""
        for name in self.metrics:
            if row.get(name):
                yield name, self.number(line, name, row[name])
        if not self.metrics:
            metric = row["metric"]
            if metric not in METRICS:
                known = ", ".join(METRICS)
                raise self.refused(line, f"metric: {metric[:60]!r} is none of {known}")
            yield metric, self.number(line, "value", row["value"])

    def log(self, cells: Sequence[tuple[int, Mapping[str, str]]], told: Told) -> Iterator[Reading]:
        """The run of a log, by each of its metrics' first."""
        figures: dict[str, list[float]] = {}
        for line, row in cells:
            for metric, value in self.figures(line, row):
                figures.setdefault(metric, []).append(value)
        for metric, values in list(figures.items())[:1]:
            steady = values[int(_WARM_UP * len(values)) :]
            row = {**cells[-1][1], "mode": "training"}
            yield self.reading(cells[-1][0], row, metric, median(steady), told)

    def reading(
        self, line: int, row: Mapping[str, str], metric: str, value: float, told: Told
    ) -> Reading:
        """A run of a row."""
        source, date = f"{self.path.name}, line {line}", row.get("date", "")
        counts = {name: self.count(line, name, row[name]) for name in _COUNTS if row.get(name)}
        known: Document = {name: row.get(name) for name in _TEXTS} | counts
        known["engine"] = known.pop("stack")
        if metric in _OF_SERVER:
            said = filled(source, known, told, ("model", "device"))
            load: Document = {name: row[name] for name in ("prompt", "output") if row.get(name)}
            load["users"] = counts.get("users", 1)
            return Reading(source, said, {_OF_SERVER[metric]: value / 1e3}, load, date=date)
        mode = row.get("mode") or ("training" if metric in _TRAINING else "inference")
        if mode not in {"inference", "training"}:
            raise self.refused(line, f"mode: {mode[:60]!r} is neither inference nor training")
        if metric in _TRAINING and mode != "training":
            raise self.refused(line, f"metric: {metric} is of training")
        return _of_batch(Reading(source, Told(), {mode: value}, date=date), known, metric, told)


def _of_batch(reading: Reading, known: Document, metric: str, told: Told) -> Reading:
    """A run of its own, or of training on several devices, with seconds of a batch."""
    ((mode, value),) = reading.measured_s.items()
    where = "cluster" if known["cluster"] or told.cluster else "device"
    needed = _RATES.get(metric, ()) if mode == "training" else ()
    said = filled(reading.source, known, told, ("model", where, *needed))
    if mode == "inference" and said.is_planned:
        allowed = f"no value of an inference: {reading.source}"
        raise InvalidValueError("plan", said.plan or said.gpus or said.cluster, allowed)
    sizes = {name: known.get(name) or getattr(said, name, None) for name in _SIZES}
    shape = {name: size for name, size in sizes.items() if size}
    if metric in _TIMES:
        seconds = _TIMES[metric] * value
    else:
        amounts = dict.fromkeys(_RATES[metric], 1) | shape
        seconds = amounts["batch"] * (amounts["seq_len"] if "seq_len" in needed else 1) / value
        seconds /= (said.gpus or 1) if "gpus" in needed else 1
    return replace(reading, told=said, measured_s={mode: seconds}, shape=shape)
