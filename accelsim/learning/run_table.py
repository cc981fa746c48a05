"""Reads a table of runs (CSV): one measured figure a row.

Columns: ``model, device, metric, value``, and as needed ``stack, precision, mode, batch, seq_len,
output_len, image_size`` of a run of its own, or ``users, prompt, output, tp`` of a server. Metrics:
``latency_s``, ``latency_ms``, ``throughput_per_s`` (samples), ``ttft_ms`` and ``tpot_ms``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

from accelsim.errors import ProfileError
from accelsim.files.plainfile import table_rows
from accelsim.learning.readings import Reading, Told, filled
from accelsim.plain import Document

_MAX_BYTES = 32_000_000
_SIZES = ("batch", "seq_len", "output_len", "image_size")
_LOAD = ("users", "prompt", "output")
_TEXTS = ("model", "device", "stack", "precision", "mode", "metric", "date")
_COLUMNS = frozenset((*_TEXTS, *_SIZES, *_LOAD, "tp", "value"))
#: Metrics of a run of its own: seconds of a batch from value and batch; and of a server: phase.
_OF_BATCH = frozenset(("latency_s", "latency_ms", "throughput_per_s"))
_OF_SERVER = {"ttft_ms": "prompt", "tpot_ms": "decode"}


def read_table(path: Path, told: Told) -> Iterator[Reading]:
    """Runs of a table.

    Args:
        path: The file.
        told: What its rows do not say.

    Raises:
        ProfileError: If a column is missing or unknown, or a cell is no value of its column; names
            the line and the column.
        InvalidValueError: If model or device is said nowhere.
    """
    rows = list(table_rows(path, _MAX_BYTES))
    header = [name.strip() for name in rows[0]] if rows else []
    missing = [name for name in ("metric", "value") if name not in header]
    unknown = [name for name in header if name not in _COLUMNS]
    if missing or unknown:
        told_of = f"no column {missing[0]}" if missing else f"unknown column {unknown[0]}"
        allowed = ", ".join(sorted(_COLUMNS))
        raise ProfileError(str(path), [f"line 1: {told_of}; columns are {allowed}"])
    for line, row in enumerate(rows[1:], 2):
        if any(cell.strip() for cell in row):
            cells = {n: c.strip() for n, c in zip(header, row, strict=False)}
            yield _reading(path, line, cells, told)


def _reading(path: Path, line: int, cells: Mapping[str, str], told: Told) -> Reading:
    source = f"{path.name}, line {line}"

    def number(name: str) -> float:
        try:
            value = float(cells[name])
        except ValueError:
            value = math.nan
        if not 0 < value < math.inf:
            problem = f"line {line}, {name}: {cells[name][:60]!r} is no number above 0"
            raise ProfileError(str(path), [problem])
        return value

    sizes: Document = {name: int(number(name)) for name in _SIZES if cells.get(name)}
    metric, value = cells["metric"], number("value")
    known: Document = {name: cells.get(name) for name in ("model", "device", "precision")}
    known |= {"engine": cells.get("stack"), "tp": int(number("tp")) if cells.get("tp") else None}
    asked = filled(source, known, told, ("model", "device"))
    date = cells.get("date", "")
    if metric in _OF_SERVER:
        load: Document = {name: cells[name] for name in _LOAD[1:] if cells.get(name)}
        load["users"] = int(number("users")) if cells.get("users") else 1
        return Reading(source, asked, {_OF_SERVER[metric]: value / 1e3}, load, date=date)
    if metric not in _OF_BATCH:
        allowed = ", ".join(sorted((*_OF_BATCH, *_OF_SERVER)))
        raise ProfileError(
            str(path), [f"line {line}, metric: {metric[:60]!r} is none of {allowed}"]
        )
    seconds = {
        "latency_s": value,
        "latency_ms": value / 1e3,
        "throughput_per_s": sizes.get("batch", 1) / value,
    }[metric]
    mode = cells.get("mode") or "inference"
    if mode not in {"inference", "training"}:
        raise ProfileError(str(path), [f"line {line}, mode: expected inference or training"])
    return Reading(source, asked, {mode: seconds}, shape=sizes, date=date)
