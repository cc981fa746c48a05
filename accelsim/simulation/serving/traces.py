"""Requests of a trace: CSV or JSON lines, read in one pass.

Column names of the public traces are known: Azure's LLM inference traces (TIMESTAMP, ContextTokens,
GeneratedTokens), Mooncake's (timestamp in ms, input_length, output_length), and plain ones
(arrival_s, prompt_tokens, output_tokens). Rows that are no requests are skipped and named.
"""

from __future__ import annotations

import csv
import json
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, Final, TextIO

import numpy as np

from accelsim.errors import InvalidValueError, ProfileError
from accelsim.simulation.serving.requests import LONGEST_TOKENS, RequestColumns

__all__ = ["Trace", "read_trace"]

#: Columns of the arrival, with the seconds of their unit.
_TIMES: Final = {"arrival_s": 1.0, "arrived_at": 1.0, "timestamp": 1e-3, "TIMESTAMP": 1.0}
_PROMPTS: Final = ("prompt_tokens", "num_prefill_tokens", "input_length", "ContextTokens")
_OUTPUTS: Final = ("output_tokens", "num_decode_tokens", "output_length", "GeneratedTokens")


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """What a file holds.

    Attributes:
        requests: Its requests, by arrival from 0.
        skips: Rows left out, by reason.
    """

    requests: RequestColumns
    skips: Mapping[str, int]


def read_trace(path: Path, limit: int | None = None) -> Trace:
    """Read a trace.

    Args:
        path: A ``.csv`` or ``.jsonl`` file.
        limit: Rows to read at most; all where None.

    Raises:
        InvalidValueError: If the name ends otherwise, or the limit is below 1.
        ProfileError: If the file cannot be read, lacks a column, or holds no request.
    """
    if path.suffix not in {".csv", ".jsonl"}:
        raise InvalidValueError("arrivals", str(path), "a file ending in .csv or .jsonl")
    if limit is not None and limit < 1:
        raise InvalidValueError("requests", limit, "a whole number >= 1")
    columns, skips = (array("d"), array("q"), array("q")), Counter[str]()
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = _csv_rows(file) if path.suffix == ".csv" else _json_rows(file)
            for row in islice(rows, limit):
                _add(row, columns, skips)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ProfileError(str(path), [f"cannot be read: {error}"]) from None
    except KeyError as error:
        known = ", ".join((*_TIMES, *_PROMPTS, *_OUTPUTS))
        problem = f"no column for the {error.args[0]}; known are {known}"
        raise ProfileError(str(path), [problem]) from None
    if not len(columns[0]):
        found = "; ".join(f"{count} rows: {reason}" for reason, count in skips.items())
        raise ProfileError(str(path), [f"no requests ({found or 'no rows'})"])
    times, prompts, outputs = (np.array(column) for column in columns)
    order = np.argsort(times, kind="stable")
    times = times[order] - times[order[0]]
    return Trace(RequestColumns(times, prompts[order], outputs[order]), dict(skips))


def _csv_rows(file: TextIO) -> Iterator[Mapping[str, Any]]:
    reader = csv.DictReader(file)
    header = reader.fieldnames or ()
    for what, names in (("arrival", _TIMES), ("prompt", _PROMPTS), ("output", _OUTPUTS)):
        if not set(header) & set(names):
            raise KeyError(what)
    yield from reader


def _json_rows(file: TextIO) -> Iterator[Mapping[str, Any]]:
    for line in file:
        try:
            row = json.loads(line)
        except ValueError:
            row = {}
        yield row if isinstance(row, dict) else {}


def _add(
    row: Mapping[str, Any],
    columns: tuple[array[float], array[int], array[int]],
    skips: Counter[str],
) -> None:
    time_s = _time_s(row)
    prompt, output = _count(row, _PROMPTS), _count(row, _OUTPUTS)
    if time_s is None or not 0 <= time_s < float("inf"):
        skips["no time, or one below 0"] += 1
    elif prompt is None or output is None or prompt < 0 or output < 0:
        skips["no length, or one below 0"] += 1
    elif not prompt or not output:
        skips["no tokens in or out"] += 1
    elif max(prompt, output) > LONGEST_TOKENS:
        skips[f"more than {LONGEST_TOKENS:,} tokens"] += 1
    else:
        columns[0].append(time_s)
        columns[1].append(prompt)
        columns[2].append(output)


def _time_s(row: Mapping[str, Any]) -> float | None:
    for name, unit_s in _TIMES.items():
        if name in row:
            text = row[name]
            try:
                return float(text) * unit_s
            except (TypeError, ValueError):
                return _moment_s(str(text))
    return None


def _moment_s(text: str) -> float | None:
    """Seconds of a date and time, to microseconds; one without a zone is UTC."""
    try:
        moment = datetime.fromisoformat(text[:26])
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _count(row: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    for name in names:
        if name in row:
            try:
                return int(row[name])
            except (OverflowError, TypeError, ValueError):
                return None
    return None
