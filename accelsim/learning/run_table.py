"""Reads tables of runs (CSV), and logs of training.

Columns of a table: ``model, device, metric, value``, and as needed ``stack, precision, mode, batch,
seq_len, output_len, image_size`` of a run of its own, ``users, prompt, output, tp`` of a server, or
``cluster, gpus, plan, batch`` (of all devices) of training on several devices. In place of metric
and value, a column may be named after a metric. A table with a column ``step`` is a log: its rows
are steps of one run, whose median after the first tenth counts, and columns that nobody knows
(loss, rate of learning) are passed over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import median
from typing import Annotated, Literal, get_args

from pydantic import ConfigDict, Field

from accelsim.errors import InvalidValueError, ProfileError
from accelsim.files.plainfile import table_rows
from accelsim.learning.readings import Count, Entry, FileEntry, Positive, Reading, Told, filled
from accelsim.plain import Document, Values

_MAX_BYTES = 32_000_000
_WARM_UP = 0.1
#: Metrics of a server: seconds, and the phase.
_OfServer = Literal["ttft_ms", "tpot_ms"]
_PHASES = {"ttft_ms": "prompt", "tpot_ms": "decode"}
#: Metrics of a batch: seconds of one, and what a rate is of.
_TIMES = {"latency_s": 1.0, "latency_ms": 1e-3, "iteration_s": 1.0, "iteration_ms": 1e-3}
_RATES = {
    "throughput_per_s": ("batch",),
    "samples_per_s": ("batch",),
    "tokens_per_s": ("batch", "seq_len"),
    "tokens_per_s_per_device": ("batch", "seq_len", "gpus"),
}
_OfInference = Literal["latency_s", "latency_ms", "throughput_per_s", "samples_per_s"]
_OfTraining = Literal["iteration_s", "iteration_ms", "tokens_per_s", "tokens_per_s_per_device"]
_METRICS = (*get_args(_OfServer), *get_args(_OfInference), *get_args(_OfTraining))
_SIZES = ("batch", "seq_len", "output_len", "image_size")


class Row(FileEntry):
    """A line of a table; an empty cell is left out."""

    model_config = ConfigDict(extra="forbid")

    model: str = ""
    device: str = ""
    stack: str = ""
    precision: str = ""
    driver: str = ""
    date: str = ""
    mode: Literal["inference", "training"] | None = None
    batch: Count | None = None
    seq_len: Count | None = None
    output_len: Count | None = None
    image_size: Count | None = None
    users: Count = 1
    prompt: str = ""
    output: str = ""
    tp: Count | None = None
    cluster: str = ""
    gpus: Count | None = None
    plan: str = ""
    metrics: Annotated[dict[_OfServer | _OfInference | _OfTraining, Positive], Field(min_length=1)]


def table_entries(path: Path, told: Told) -> Iterator[Entry]:
    """Lines of a table, or a log as a whole.

    Args:
        path: The file.
        told: What its rows do not say.

    Raises:
        ProfileError: If no column is of a metric, or one stands twice. An entry is, if a column is
            unknown or a cell is no value of its column: names the line and the column; its
            InvalidValueError, if a model, a device or a size is said nowhere.
    """
    lines = list(table_rows(path, _MAX_BYTES))
    header = [name.strip() for name in lines[0]] if lines else []
    if not {"metric", *_METRICS} & set(header) or len(set(header)) < len(header):
        names = ", ".join((*list(Row.model_fields)[:-1], "metric, value", *_METRICS))
        problem = f"line 1: a column metric, or one named after one, and none twice: {names}"
        raise ProfileError(str(path), [problem])
    rows = {
        f"{path.name}, line {line}": {n: c.strip() for n, c in zip(header, cells, strict=False)}
        for line, cells in enumerate(lines[1:], 2)
        if any(cell.strip() for cell in cells)
    }
    if "step" in header:
        yield Entry(path.name, partial(_of_log, path.name, rows, told))
        return
    for source, cells in rows.items():
        yield Entry(source, partial(_of_row, source, cells, told))


def _of_row(source: str, cells: Mapping[str, str], told: Told) -> Iterator[Reading]:
    """Runs of a row."""
    row = _row(source, cells)
    for metric, value in row.metrics.items():
        yield _reading(source, row, metric, value, told)


def _of_log(source: str, lines: Mapping[str, Mapping[str, str]], told: Told) -> Iterator[Reading]:
    """The run of a log: its last row, with the median of the metric that it has first."""
    columns = {*Row.model_fields, *_METRICS}
    rows = [
        _row(line, {name: cell for name, cell in cells.items() if name in columns})
        for line, cells in lines.items()
        if any(cells.get(name) for name in _METRICS)
    ]
    for metric in list(rows[-1].metrics)[:1] if rows else ():
        values = [row.metrics[metric] for row in rows if metric in row.metrics]
        steady = median(values[int(_WARM_UP * len(values)) :])
        last = rows[-1].model_copy(update={"mode": "training"})
        yield _reading(source, last, metric, steady, told)


def _row(source: str, cells: Mapping[str, str]) -> Row:
    data: Document = {name: cell for name, cell in cells.items() if cell}
    metrics = {name: data.pop(name) for name in _METRICS if name in data}
    if "metric" in data:
        metrics[data.pop("metric")] = data.pop("value", None)
    data["metrics"] = metrics
    return Row.read(source, data)


def _reading(source: str, row: Row, metric: str, value: float, told: Told) -> Reading:
    """A run of a row."""
    if metric in _PHASES:
        run = filled(source, _from_file(row), told, ("model", "device"))
        load = _known(row.model_dump(include={"prompt", "output", "users"}))
        return Reading(source, run, {_PHASES[metric]: value / 1e3}, load, date=row.date)
    return _batch_reading(source, row, metric, value, told)


def _from_file(row: Row) -> Document:
    return row.model_dump() | {"engine": row.stack}


def _batch_reading(source: str, row: Row, metric: str, value: float, told: Told) -> Reading:
    """A run of a row that measured batches."""
    is_of_training = metric in get_args(_OfTraining)
    mode: str = row.mode or ("training" if is_of_training else "inference")
    platform = "cluster" if row.cluster or told.cluster else "device"
    needed = _RATES.get(metric, ()) if mode == "training" else ()
    run = filled(source, _from_file(row), told, ("model", platform, *needed))
    if mode == "inference" and (is_of_training or run.is_planned):
        raise InvalidValueError("mode", mode, f"training, with {metric} or a plan: {source}")
    sizes = {**asdict(run), **_known(row.model_dump(include=set(_SIZES)))}
    shape = _known({name: sizes.get(name) for name in _SIZES})
    measured_s = {mode: _batch_s(metric, value, run)}
    return Reading(source, run, measured_s, shape=shape, date=row.date)


def _known(values: Values) -> Document:
    return {name: value for name, value in values.items() if value}


def _batch_s(metric: str, value: float, run: Told) -> float:
    """Seconds of a batch, from its time or from a rate of samples or tokens."""
    if metric in _TIMES:
        return _TIMES[metric] * value
    rate_of = _RATES[metric]
    tokens = (run.seq_len or 1) if "seq_len" in rate_of else 1
    devices = (run.gpus or 1) if "gpus" in rate_of else 1
    return (run.batch or 1) * tokens / (value * devices)
