"""Requests as columns: when they come, how long they are, what they share, and what became of them.

The columns are typed arrays of the standard library, or views of what was asked: a scheduler reads
and writes single places, which numpy does ten times slower, and statistics see them as numpy arrays
without a copy. A request takes 60 bytes in all, so that ten million fit into 600 MB.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accelsim.errors import InvalidValueError
from accelsim.frozen import frozen
from accelsim.workloads.graph import FloatArray, IntArray

#: Prefix group of a request that shares nothing.
NO_GROUP = -1
#: Longest prompt or output.
LONGEST_TOKENS = 10_000_000


@frozen(eq=False)
class RequestColumns:
    """What is asked of the servers, n requests.

    Attributes:
        arrival_s: Seconds from the start, ascending, shape (n,); NaN for one that comes after
            another has ended.
        prompt_tokens: Input tokens (items of a batch model), >= 1, shape (n,).
        output_tokens: Tokens generated, >= 1; 0 for models that generate none, shape (n,).
        prefix_group: Requests of one group start with the same tokens; `NO_GROUP` for none.
        prefix_tokens: How many; all of the prompt and the output for the turns of one session.
        forks: By group that begins as another one does: that group, and the tokens it has of it.
        after: Request whose end a NaN arrival waits for, -1 for none: the turns of a session.
        think_s: Seconds from that end to the arrival.
        joins: Request whose arrival also waits for the end of this one, -1 for none: the last step
            of a sub-agent.
        session: Session of each request; no sessions where None.
        priority: Lower is served first.
        model: Which of a fleet's models is asked, by place; the first where None.
        service_class: Class of service, by place; no classes where None.
    """

    arrival_s: FloatArray
    prompt_tokens: IntArray
    output_tokens: IntArray
    prefix_group: IntArray | None = None
    prefix_tokens: IntArray | None = None
    forks: Mapping[int, tuple[int, int]] | None = None
    after: IntArray | None = None
    think_s: FloatArray | None = None
    joins: IntArray | None = None
    session: IntArray | None = None
    priority: IntArray | None = None
    model: IntArray | None = None
    service_class: IntArray | None = None

    def __post_init__(self) -> None:
        """Refuse columns that are no requests.

        Raises:
            InvalidValueError: Naming the column and the first place.
        """
        count = len(self.arrival_s)
        if not count:
            raise InvalidValueError("requests", 0, "at least one request")
        for name, column, lowest in (
            ("prompt_tokens", self.prompt_tokens, 1),
            ("output_tokens", self.output_tokens, 0),
        ):
            wrong = (column < lowest) | (column > LONGEST_TOKENS)
            if len(column) != count or wrong.any():
                value = int(column[wrong][0]) if wrong.any() else f"{len(column)} values"
                allowed = f"whole numbers from {lowest} to {LONGEST_TOKENS:,}, one per request"
                raise InvalidValueError(name, value, allowed)
        times = self.arrival_s[~np.isnan(self.arrival_s)]
        if (times < 0).any() or (np.diff(times) < 0).any() or not np.isfinite(times).all():
            remedy = "Sort the requests by arrival."
            raise InvalidValueError("arrival_s", "unsorted or negative", "times >= 0", remedy)

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def start_count(self) -> int:
        """Requests that come at a time of their own, which stand first."""
        return int((~np.isnan(self.arrival_s)).sum())

    @property
    def per_start(self) -> float:
        """Requests for each that comes at a time of its own, as a session's others follow it."""
        return len(self) / max(self.start_count, 1)

    def hit_tokens(self) -> IntArray:
        """Tokens of each prompt that a cache has, of requests that come in their order, shape (n,).
        Estimate: the cache forgets nothing.
        """
        if self.prefix_group is None or self.prefix_tokens is None:
            return np.broadcast_to(np.int64(0), len(self))
        order = np.argsort(self.prefix_group, kind="stable")
        group, shared_tokens = self.prefix_group[order], self.prefix_tokens[order].astype(np.int64)
        is_first = np.diff(group, prepend=NO_GROUP - 1) != 0
        above = np.cumsum(is_first) * (2 * LONGEST_TOKENS + 1)  # keeps groups apart
        before = np.roll(np.maximum.accumulate(shared_tokens + above) - above, 1)
        forks = self.forks or {}
        before[is_first] = [forks.get(chain, (0, 0))[1] for chain in group[is_first].tolist()]
        least = np.minimum(self.prompt_tokens[order] - 1, shared_tokens)
        hits = np.empty(len(self), dtype=np.int64)
        hits[order] = np.where(group == NO_GROUP, 0, np.minimum(before, least))
        return hits

    @property
    def rate_per_s(self) -> float:
        """Requests per second between the first and the last arrival.

        Raises:
            InvalidValueError: If all come at once.
        """
        times = self.arrival_s[~np.isnan(self.arrival_s)]
        span_s = float(np.ptp(times)) if len(times) else 0.0
        if not span_s:
            raise InvalidValueError("arrival_s", "all at once", "arrivals that have a rate")
        return (len(times) - 1) / span_s

    def at_rate(self, rate_per_s: float) -> RequestColumns:
        """The same requests at another rate: all gaps longer or shorter by one factor."""
        return replace(self, arrival_s=self.arrival_s * (self.rate_per_s / rate_per_s))

    @property
    def longest(self) -> int:
        """Tokens of the longest request, prompt and output."""
        return int((self.prompt_tokens + self.output_tokens).max())


def chain_starts(before: IntArray) -> IntArray:
    """First request of the chain of each, shape (n,); any of a circle.

    Args:
        before: The request before each in its chain, below 0 for none, shape (n,).
    """
    start = np.where(before < 0, np.arange(len(before)), before)
    for _ in range(len(before).bit_length()):
        start = start[start]
    return start


def _shared(code: str, column: NDArray[Any]) -> memoryview:
    """A column to read; whole numbers in 32 bits, which hold the longest. No copy where it is so
    already.
    """
    return np.ascontiguousarray(column, dtype=code).data


def _typed(code: str, column: NDArray[Any]) -> array[Any]:
    """A column to read and write."""
    typed = array(code)
    typed.frombytes(_shared(code, column).cast("B"))
    return typed


def _unwritten(count: int) -> array[float]:
    return array("d", [math.nan]) * count


class RequestLog:
    """Requests and what became of them; places that nothing has written are NaN.

    Attributes:
        requests: The columns that were asked.
        arrival_s: Arrivals, those that follow another filled in when they happen.
        prompt_tokens: Input tokens.
        output_tokens: Tokens to generate.
        scheduled_s: First time a part of the request was in a batch.
        first_token_s: End of its prompt.
        finish_s: End of its last token.
        replica: Place of the replica that has it, or had it last; below 0 before.
        prompt_replica: The one that computed its prompt, of requests that went on elsewhere.
        rejected: Reasons by request that was refused.
        service_class: Class of service, by place; the first where there are none.
        prefix_group: Groups that share prefixes; None for none.
        prefix_tokens: Tokens of the prefixes; None for none.
    """

    def __init__(self, columns: RequestColumns) -> None:
        count = len(columns)
        self.requests = columns
        classes = columns.service_class
        no_classes: NDArray[Any] = np.broadcast_to(np.int8(0), count)
        self.service_class = no_classes if classes is None else classes
        group, tokens = columns.prefix_group, columns.prefix_tokens
        self.prefix_group = None if group is None else _shared("q", group)
        self.prefix_tokens = None if tokens is None else _shared("q", tokens)
        follows = bool(np.isnan(columns.arrival_s).any())
        self.arrival_s: Any = (_typed if follows else _shared)("d", columns.arrival_s)
        self.prompt_tokens = _shared("i", columns.prompt_tokens)
        self.output_tokens = _shared("i", columns.output_tokens)
        self.scheduled_s, self.first_token_s = _unwritten(count), _unwritten(count)
        self.finish_s = _unwritten(count)
        self.replica = array("i", [-1]) * count
        self.prompt_replica: dict[int, int] = {}
        self.rejected: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self.arrival_s)

    def of_prompts(self) -> RequestLog:
        """The same requests up to their first token, which is the end of them here."""
        prompts = copy(self)
        prompts.output_tokens = memoryview(array("i", [1]) * len(self))
        prompts.finish_s = _unwritten(len(self))
        return prompts

    def forget(self, request: int) -> None:
        """Let a request start anew: what it has been given is lost."""
        self.scheduled_s[request] = self.first_token_s[request] = math.nan

    def column(self, name: str) -> NDArray[Any]:
        """A column as a numpy array that shares its memory."""
        return np.asarray(getattr(self, name))
