"""Step times of the user's own server: from a CSV of steps, or from a benchmark of vLLM.

``vllm bench serve --save-result --save-detailed`` writes when each request started, its time to the
first token and the gaps between its tokens. All sequences of a batch get their tokens in one step:
the gaps of one of them are the steps' times, and who else was under way says what the steps held.
Prompts count to the step that ends with their first token, as far as its token budget goes, the
rest to the steps before (chunked prefill).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from accelsim.errors import InvalidValueError, ProfileError
from accelsim.files.plainfile import parse_values, read_plain, table_rows
from accelsim.frozen import frozen
from accelsim.plain import Document
from accelsim.serving.steps.fitted_steps import BATCH_COLUMNS, StepColumns
from accelsim.workloads.graph import FloatArray, IntArray

#: Columns of a file of step times; the last may be empty.
STEP_COLUMNS = (*BATCH_COLUMNS, "s", "J")
_LISTS = ("input_lens", "output_lens", "ttfts", "itls", "start_times")
#: Gaps shorter than this share of the median are tokens that came in one piece over the network.
_LEAST_GAP = 0.2
_JITTER_S = 1e-3
#: Largest table of steps, and largest result of a benchmark, in bytes.
_LARGEST_TABLE, _LARGEST_RESULT = 8_000_000, 128_000_000


@frozen
class ServerRun:
    """Steps of a benchmark.

    Attributes:
        steps: The steps.
        requests: Requests they come from.
        skips: What was left out, by reason.
    """

    steps: StepColumns
    requests: int
    skips: Mapping[str, int]


def read_step_times(path: Path) -> StepColumns:
    """Steps of a CSV file with the columns `STEP_COLUMNS`.

    Args:
        path: The file.

    Raises:
        ProfileError: If a column is missing or a cell is no number.
        InvalidValueError: If a value is out of range.
    """
    rows = list(table_rows(path, _LARGEST_TABLE))
    header = [name.strip() for name in rows[0]] if rows else []
    missing = [name for name in STEP_COLUMNS[:-1] if name not in header]
    if missing:
        raise ProfileError(
            str(path), [f"line 1: no column {missing[0]}; it has {', '.join(header)}"]
        )
    table = [
        _step(path, line, dict(zip(header, row, strict=False)))
        for line, row in enumerate(rows[1:], 2)
        if "".join(row).strip()
    ]
    columns = np.array(table, dtype=np.float64).reshape(-1, len(STEP_COLUMNS)).T
    prefill, keys, count, cached, time_s, energy_j = columns
    is_unknown = np.isnan(energy_j).any()
    return StepColumns(prefill, keys, count, cached, time_s, None if is_unknown else energy_j)


def _step(path: Path, line: int, texts: Mapping[str, str]) -> list[float]:
    return [_number(path, line, name, texts.get(name, "").strip()) for name in STEP_COLUMNS]


def _number(path: Path, line: int, name: str, text: str) -> float:
    if not text and name == STEP_COLUMNS[-1]:
        return float("nan")
    try:
        return float(text)
    except ValueError:
        raise ProfileError(str(path), [f"line {line}, {name}: {text!r} is no number"]) from None


def step_rows(columns: StepColumns) -> list[Document]:
    """Steps as rows of such a file."""
    parts = [column.tolist() for column in (*columns.batches, columns.time_s)]
    energy = [None] * len(columns) if columns.energy_j is None else columns.energy_j.tolist()
    return [dict(zip(STEP_COLUMNS, row, strict=True)) for row in zip(*parts, energy, strict=True)]


def read_benchmark(path: Path, max_batch_tokens: int = 8192) -> ServerRun:
    """Steps that a benchmark of vLLM shows.

    Args:
        path: JSON of ``vllm bench serve --save-result --save-detailed``.
        max_batch_tokens: Tokens of a step of that server (vLLM's max_num_batched_tokens).

    Raises:
        ProfileError: If the file is no such result.
        InvalidValueError: If it shows too few steps, or `max_batch_tokens` is out of range.
    """
    if max_batch_tokens < 1:
        raise InvalidValueError("max_batch_tokens", max_batch_tokens, "a whole number >= 1")
    requests, skips = _requests(path)
    columns = _Steps(requests, max_batch_tokens).columns(skips)
    return ServerRun(columns, len(requests), dict(skips))


@frozen(eq=False)
class _Request:
    """One answered request of a measured run."""

    prompt: int
    token_s: FloatArray  # when each token came


def _requests(path: Path) -> tuple[list[_Request], Counter[str]]:
    """Requests of a benchmark with their tokens' times."""
    content = parse_values(read_plain(path, _LARGEST_RESULT), str(path))
    if not isinstance(content, Mapping):
        raise ProfileError(str(path), ["no object; give the result of one benchmark"])
    for name in _LISTS:
        if not isinstance(content.get(name), list):
            remedy = (
                "run vllm bench serve with --save-result --save-detailed, version 0.11 or newer"
            )
            raise ProfileError(str(path), [f"no list {name}: {remedy}"])
    lists = [content[name] for name in _LISTS]
    if len({len(values) for values in lists}) != 1:
        raise ProfileError(str(path), ["lists of different lengths: " + ", ".join(_LISTS)])
    requests, skips = [], Counter[str]()
    for row in zip(*lists, strict=True):
        request = _request(*row)
        if isinstance(request, str):
            skips[request] += 1
        else:
            requests.append(request)
    return requests, skips


def _request(
    prompt: float, output: float, ttft: float, gaps: Sequence[float], start: float
) -> _Request | str:
    """A request, or why it is left out; entries of the file may be of any type."""
    try:
        numbers = np.array([float(prompt), float(output), float(ttft), float(start)])
        between = np.array([float(gap) for gap in gaps])
    except (TypeError, ValueError):
        return "requests whose entries are no numbers"
    if not np.isfinite(numbers).all() or not np.isfinite(between).all() or (between < 0).any():
        return "requests whose entries are not finite or negative"
    if numbers[0] < 1 or numbers[2] <= 0:
        return "requests that failed or generated nothing"
    return _Request(int(numbers[0]), np.cumsum([numbers[3] + numbers[2], *between]))


class _Steps:
    """Steps seen by one sequence after the other."""

    def __init__(self, requests: list[_Request], budget: int) -> None:
        self.requests, self.budget = requests, budget
        self.first_s = np.array([request.token_s[0] for request in requests])
        self.last_s = np.array([request.token_s[-1] for request in requests])
        self.prompt = np.array([request.prompt for request in requests], dtype=np.float64)

    def columns(self, skips: Counter[str]) -> StepColumns:
        """All steps; what is left out is counted.

        Raises:
            InvalidValueError: If there are too few.
        """
        rows: list[tuple[float, ...]] = []
        for watch in self._watches():
            rows += self._watched(watch)
        if not rows:
            raise InvalidValueError("from", "no gaps", "requests with two tokens or more")
        table = np.array(rows)
        long = table[:, -1] >= _LEAST_GAP * np.median(table[:, -1])
        skips["gaps of tokens that came in one piece"] += int((~long).sum())
        return StepColumns(*table[long].T)

    def _watches(self) -> IntArray:
        """Requests that are watched one after the other: each the one that lasts longest of those
        under way when the last has ended.
        """
        watches, now_s = [], -np.inf
        while len(later := np.flatnonzero(self.last_s > now_s)):
            running = later[self.first_s[later] <= now_s]
            if not len(running):
                now_s = float(self.first_s[later].min())
                running = later[self.first_s[later] <= now_s]
            watch = int(running[np.argmax(self.last_s[running])])
            if self.last_s[watch] <= now_s:
                break
            watches.append(watch)
            now_s = float(self.last_s[watch])
        return np.array(watches, dtype=np.int64)

    def _watched(self, watch: int) -> list[tuple[float, ...]]:
        """Steps between the tokens of one request, last first for prompts of several steps, which
        are computed in parts (Agrawal et al., OSDI 2024).
        """
        token_s = self.requests[watch].token_s
        left = np.zeros(0)  # prompts' tokens that this step and those before computed
        rows: list[tuple[float, ...]] = []
        for start_s, end_s in zip(token_s[-2::-1], token_s[:0:-1], strict=True):
            running = self._running(start_s, end_s)
            count = float(len(running))
            came = (self.first_s > start_s + _JITTER_S) & (self.first_s <= end_s + _JITTER_S)
            left = np.concatenate([left, self.prompt[came]])
            tokens, keys, left = _computed(left, self.budget - count)
            cached = float(sum(self._cached(request, start_s) for request in running))
            rows.append((tokens, keys, count, cached, float(end_s - start_s)))
        return rows

    def _running(self, start_s: float, end_s: float) -> list[int]:
        """Requests that get a further token in a step."""
        inside = (self.first_s <= start_s + _JITTER_S) & (self.last_s >= end_s - _JITTER_S)
        return [int(request) for request in np.flatnonzero(inside)]

    def _cached(self, index: int, now_s: float) -> float:
        """Tokens in a request's cache: its prompt and what it has generated but the last token,
        whose keys the next step writes (Kwon et al., SOSP 2023).
        """
        request = self.requests[index]
        came = int(np.searchsorted(request.token_s, now_s + _JITTER_S, side="right"))
        return request.prompt + max(came - 1, 0)


def _computed(left: FloatArray, budget: float) -> tuple[float, float, FloatArray]:
    """Tokens of prompts a step computed, the keys they attend to, and what is left to the steps
    before; the ends of prompts come last.

    Chunked prefill: Agrawal et al., OSDI 2024. Estimate: a step's budget is filled from the last
    prompt backwards.
    """
    tokens = keys = 0.0
    remaining = []
    for length in left.tolist():
        computed = min(length, max(budget - tokens, 0.0))
        keys += computed * (length - computed + 0.5 * (computed + 1))
        tokens += computed
        if length > computed:
            remaining.append(length - computed)
    return tokens, keys, np.array(remaining)
