"""Requests of a trace: CSV, JSON lines or JSON, read in one pass and a part at a time.

Column names of the public traces are known: Azure's LLM inference traces (TIMESTAMP, ContextTokens,
GeneratedTokens), Mooncake's (timestamp in ms, input_length, output_length, hash_ids), and plain
ones (arrival_s, prompt_tokens, output_tokens), all of them with sessions where they have columns of
`accelsim.serving.loads.trace_sessions`. JSON files are a server benchmark's detailed result
(vLLM's: input_lens, output_lens, start_times) or ShareGPT's conversations, whose first turns count
a token per four characters. Rows that are no requests are skipped and named.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from accelsim.errors import InvalidValueError, ProfileError
from accelsim.files.plainfile import parse_values, read_plain, table_rows, text_lines
from accelsim.frozen import frozen
from accelsim.plain import Values
from accelsim.serving.loads.requests import LONGEST_TOKENS, RequestColumns
from accelsim.serving.loads.trace_sessions import LINKS, linked
from accelsim.serving.replicas.shared_blocks import SharedBlocks
from accelsim.workloads.graph import BoolArray, FloatArray, IntArray

T = TypeVar("T")
#: Columns of the arrival, with the seconds of their unit.
_TIMES = {"arrival_s": 1.0, "arrived_at": 1.0, "timestamp": 1e-3, "TIMESTAMP": 1.0}
_PROMPTS = ("prompt_tokens", "num_prefill_tokens", "input_length", "ContextTokens")
_OUTPUTS = ("output_tokens", "num_decode_tokens", "output_length", "GeneratedTokens")
_HASHES = "hash_ids"
_PART_ROWS = 100_000
#: Most bytes of a table, bytes of a JSON document, rows, and hashes.
_MOST_BYTES, _MOST_JSON_BYTES, _MOST_ROWS, _MOST_LISTED = 10**9, 128_000_000, 10_000_000, 5_000_000
#: Values of a row that are no hashes.
_ROW_VALUES = 8
#: OpenAI's rule of thumb for English text (help centre, "What are tokens").
_CHARACTERS_PER_TOKEN = 4
#: Time, prompt, output, hashes, and what is said of sessions.
Row = tuple[object, object, object, Any, Sequence[object] | None]


@frozen(eq=False)
class Trace:
    """What a file holds.

    Attributes:
        requests: Its requests, by arrival from 0.
        skips: Rows left out, by reason.
        has_times: Whether the file says when requests come.
        unsorted_count: Rows earlier than the row before them, which are sorted in.
    """

    requests: RequestColumns
    skips: Mapping[str, int]
    has_times: bool = True
    unsorted_count: int = 0

    def at(self, arrival_s: FloatArray) -> RequestColumns:
        """The requests at other times, ascending; of sessions, their first ones."""
        times = self.requests.arrival_s.copy()
        times[: self.requests.start_count] = arrival_s
        return replace(self.requests, arrival_s=times)


def read_trace(path: Path, limit: int | None = None) -> Trace:
    """Read a trace.

    Args:
        path: A ``.csv``, ``.jsonl`` or ``.json`` file.
        limit: Rows to read at most; all where None.

    Raises:
        InvalidValueError: If the name ends otherwise, the limit is below 1, a time below 0, or
            sessions are none; see `accelsim.serving.loads.trace_sessions.linked`.
        ProfileError: If the file cannot be read, lacks a column, or holds no request.
    """
    if path.suffix not in _READERS:
        raise InvalidValueError("arrivals", str(path), "a file ending in .csv, .jsonl or .json")
    if limit is not None and limit < 1:
        raise InvalidValueError("requests", limit, "a whole number >= 1")
    try:
        columns = _read_columns(path, limit)
    except KeyError as error:
        known_names = ", ".join((*_TIMES, *_PROMPTS, *_OUTPUTS))
        problem = f"no column for the {error.args[0]}; known are {known_names}"
        raise ProfileError(str(path), [problem]) from None
    except _FormError as error:
        raise ProfileError(str(path), [f"is no JSON of a known form: {error}"]) from None
    if not columns.count:
        reasons = "; ".join(f"{count} rows: {reason}" for reason, count in columns.skips.items())
        raise ProfileError(str(path), [f"no requests ({reasons or 'no rows'})"])
    return columns.trace()


def _read_columns(path: Path, limit: int | None) -> _Columns:
    columns = _Columns()
    rows = islice(_READERS[path.suffix](path), limit)
    while batch := list(islice(rows, _PART_ROWS)):
        columns.add(batch)
        if columns.seen > _MOST_ROWS:
            problem = f"more than {_MOST_ROWS:,} rows, the most that are read; set a limit"
            raise ProfileError(str(path), [problem])
    return columns


class _FormError(Exception):
    """A JSON file of no known form."""


class _Columns:
    """Requests read so far, a part of the rows at a time."""

    def __init__(self) -> None:
        self.count, self.seen, self.skips = 0, 0, Counter[str]()
        self._parts: list[tuple[FloatArray, NDArray[np.int32], NDArray[np.int32]]] = []
        self._blocks = SharedBlocks()
        self._has_times = True
        self._rows: list[IntArray] = []
        self._links: list[Sequence[object]] = []

    @np.errstate(invalid="ignore")
    def add(self, rows: Sequence[Row]) -> None:
        """Take rows."""
        times, prompts, outputs, hashes, links = zip(*rows, strict=True)
        time_s, follows = self._arrivals(times, links)
        prompt, output = _numbers(prompts), _numbers(outputs)
        problems = {
            "cut short, or not of the file's form": np.array([row is _CUT for row in rows]),
            "no time": ~np.isfinite(time_s) & ~follows,
            "no length, or one below 0": ~((prompt >= 0) & (output >= 0)),
            "no tokens in or out": (prompt < 1) | (output < 1),
            f"more than {LONGEST_TOKENS:,} tokens": np.fmax(prompt, output) > LONGEST_TOKENS,
        }
        keep = self._without(problems)
        kept_rows, count_before = np.flatnonzero(keep), self.count
        self.count += len(kept_rows)
        self._parts.append(
            (time_s[keep], prompt[keep].astype(np.int32), output[keep].astype(np.int32))
        )
        self._rows.append(kept_rows + self.seen)
        self.seen += len(rows)
        if self._links or any(links):
            self._links += [_NO_LINK] * (count_before - len(self._links))
            self._links += [links[row] or _NO_LINK for row in kept_rows.tolist()]
        if self._blocks.are_shared or any(hashes):
            self._blocks.fill(count_before)
            self._blocks.add(hashes[row] for row in kept_rows.tolist())

    def _without(self, problems: Mapping[str, BoolArray]) -> BoolArray:
        """Rows with no problem; the others are counted by their first one."""
        wrong = np.stack(list(problems.values()))
        keep: BoolArray = np.logical_not(wrong.any(axis=0))
        first_reasons = np.argmax(wrong, axis=0)[~keep]
        counts = np.bincount(first_reasons, minlength=len(problems)).tolist()
        self.skips.update({reason: n for reason, n in zip(problems, counts, strict=True) if n})
        return keep

    def _arrivals(
        self, times: Sequence[object], links: Sequence[Sequence[object] | None]
    ) -> tuple[FloatArray, BoolArray]:
        """Seconds of each row, and whether it follows another and has none."""
        follows = np.array([link is not None and link[_PARENT] not in _EMPTY for link in links])
        self._has_times = times[0] is not _TIMELESS
        time_s = _seconds(times) if self._has_times else np.zeros(len(times))
        time_s[follows] = np.nan
        early = time_s[(time_s < 0) & np.isfinite(time_s)]
        if len(early):
            remedy = "Count the times from the first request."
            raise InvalidValueError("arrival_s", float(early.min()), "times >= 0", remedy)
        return time_s, follows

    def trace(self) -> Trace:
        """All requests by arrival; those of one time in their order."""
        times, prompts, outputs = (
            np.concatenate(column) for column in zip(*self._parts, strict=True)
        )
        self._parts = []
        order: IntArray | slice = slice(None)
        starts_s = times[~np.isnan(times)]
        unsorted_count = int((np.diff(starts_s) < 0).sum())
        if unsorted_count or len(starts_s) < len(times):
            order = np.argsort(times, kind="stable")  # those that follow others come last
        times = times[order] - starts_s.min(initial=np.inf)
        columns = RequestColumns(times, prompts[order], outputs[order])
        if self._blocks.are_shared:
            self._blocks.fill(self.count)
            group, tokens = self._blocks.columns(prompts)
            columns = replace(
                columns,
                prefix_group=group[order],
                prefix_tokens=tokens[order],
                forks=self._blocks.forks,
            )
        if self._links:
            self._links += [_NO_LINK] * (self.count - len(self._links))
            rows, links = np.concatenate(self._rows)[order], np.array(self._links, dtype=object)
            columns = linked(columns, rows, dict(zip(LINKS, links[order].T, strict=True)))
        return Trace(columns, dict(self.skips), self._has_times, unsorted_count)


def _numbers(values: Sequence[object]) -> FloatArray:
    """Numbers; NaN for what is none."""
    import pandas as pd

    try:
        numbers = pd.to_numeric(pd.Series(list(values), dtype=object), errors="coerce")
    except (OverflowError, UnicodeEncodeError):  # beyond a double, or a lone surrogate
        return np.array([_number(value, math.nan) for value in values])
    return np.array(numbers, dtype=np.float64)


def _number(value: Any, otherwise: T) -> float | T:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return otherwise


def _seconds(values: Sequence[object]) -> FloatArray:
    """Seconds of numbers, or of dates and times; one without a zone is UTC."""
    import pandas as pd

    times_s = _numbers(values)
    is_text = np.isnan(times_s) & np.array([isinstance(value, str) for value in values])
    if is_text.any():
        chosen = [str(values[index]) for index in np.flatnonzero(is_text).tolist()]
        texts = pd.Series([text.encode(errors="replace").decode() for text in chosen])
        moments = pd.to_datetime(texts, utc=True, errors="coerce", format="ISO8601")
        since = (moments - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(seconds=1)
        times_s[is_text] = np.asarray(since, dtype=np.float64)
    return times_s


_TIMELESS = object()
#: A row that is none.
_CUT: Row = (None, None, None, None, None)
_PARENT, _EMPTY = LINKS.index("parent"), ("", None)
_NO_LINK = (None,) * len(LINKS)


def _csv_rows(path: Path) -> Iterator[Row]:
    reader = table_rows(path, _MOST_BYTES)
    header = next(reader, [])
    time = _column(header, "arrival", _TIMES)
    prompt, output = _column(header, "prompt", _PROMPTS), _column(header, "output", _OUTPUTS)
    scale = _TIMES[header[time]]
    link_columns = {name: header.index(name) for name in LINKS if name in header}
    last = max(time, prompt, output, *link_columns.values())
    for row in reader:
        if len(row) > last:
            link = None
            if link_columns:
                link = tuple(row[link_columns[n]] if n in link_columns else None for n in LINKS)
            yield _scaled(row[time], scale), row[prompt], row[output], None, link
        elif row:
            yield _CUT


def _column(header: Sequence[str], quantity: str, names: Iterable[str]) -> int:
    """Column of the first of some names that a header has.

    Raises:
        KeyError: With the quantity, if it has none.
    """
    for name in names:
        if name in header:
            return header.index(name)
    raise KeyError(quantity)


def _scaled(value: object, scale: float) -> object:
    """A time in seconds; dates as they are."""
    if scale == 1.0:
        return value
    number = _number(value, None)
    return value if number is None else number * scale


def _json_lines(path: Path) -> Iterator[Row]:
    values = 0
    for line in text_lines(path, _MOST_BYTES):
        values += max(0, line.count(",") - _ROW_VALUES)
        if values > _MOST_LISTED:
            raise ProfileError(str(path), [f"more than {_MOST_LISTED:,} hashes"])
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        yield _json_row(row) if isinstance(row, dict) else _CUT


def _json_row(row: Values) -> Row:
    time = next((name for name in _TIMES if name in row), None)
    prompt = next((row[name] for name in _PROMPTS if name in row), None)
    output = next((row[name] for name in _OUTPUTS if name in row), None)
    moment = None if time is None else _scaled(row[time], _TIMES[time])
    hashes = row.get(_HASHES)
    if hashes and not (isinstance(hashes, list) and set(map(type, hashes)) <= {int, str}):
        return _CUT
    links = tuple(map(row.get, LINKS)) if not row.keys().isdisjoint(LINKS) else None
    return moment, prompt, output, hashes, links


def _json_rows(path: Path) -> Iterator[Row]:
    """A server benchmark's result, or conversations."""
    document = parse_values(read_plain(path, _MOST_JSON_BYTES), str(path))
    if isinstance(document, list):
        yield from (_talk(talk) for talk in document)
        return
    if not isinstance(document, dict) or not {"input_lens", "output_lens"} <= set(document):
        known_forms = (
            "a list of conversations, or a benchmark's result with input_lens and output_lens"
        )
        raise _FormError(f"expected {known_forms} (vllm bench serve --save-detailed)")
    lengths = document["input_lens"], document["output_lens"]
    times = document.get("start_times")
    listed = {"input_lens": lengths[0], "output_lens": lengths[1], "start_times": times or []}
    for name, values in listed.items():
        if not isinstance(values, list):
            raise _FormError(f"{name} is no list of numbers; give the benchmark's own file")
    times = times or [_TIMELESS] * len(lengths[0])
    for time, prompt, output in zip(times, *lengths, strict=False):
        yield time, prompt, output, None, None


def _talk(talk: object) -> Row:
    """Tokens of the first two turns of a conversation."""
    turns = talk.get("conversations") if isinstance(talk, dict) else None
    turns = turns if isinstance(turns, list) else []
    texts = [turn.get("value") for turn in turns[:2] if isinstance(turn, dict)]
    sizes = [-(-len(text) // _CHARACTERS_PER_TOKEN) for text in texts if isinstance(text, str)]
    prompt, output = sizes if len(sizes) == 2 else (None, None)
    return _TIMELESS, prompt, output, None, None


_READERS = {".csv": _csv_rows, ".jsonl": _json_lines, ".json": _json_rows}
