"""Sessions of a trace: which request comes after which, and whose context it continues.

Columns: ``session``, a name; ``parent``, the number of the row of the file, from 0, that a row
comes after; ``gap_s``, the seconds from that row's end to its arrival; ``kind``: ``step`` (the
usual one) continues its parent's context, ``agent`` begins a context of its own, and ``join``
continues its parent's once all that the agents of its parent have begun has ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from accelsim.errors import InvalidValueError
from accelsim.serving.loads.requests import NO_GROUP, RequestColumns, chain_starts
from accelsim.workloads.graph import FloatArray, IntArray

#: Columns of sessions.
LINKS = ("session", "parent", "gap_s", "kind")
KINDS = ("step", "agent", "join")
_NO_GAP = ("", None)


def linked(
    columns: RequestColumns, rows: IntArray, links: Mapping[str, Sequence[Any]]
) -> RequestColumns:
    """Requests with what they wait for and share.

    Args:
        columns: The requests, those without a parent first, by arrival.
        rows: Number of the row of each, shape (n,).
        links: What the file says of each by column of `LINKS`, None where it says nothing.

    Raises:
        InvalidValueError: If a parent is no request of the file, rows wait for each other, a gap is
            below 0, or a kind is none.
    """
    after = _parents(rows, links["parent"])
    kind = [str(text or KINDS[0]) for text in links["kind"]]
    for request, text in enumerate(kind):
        if text not in KINDS or (text != KINDS[0] and after[request] < 0):
            allowed = f"one of {', '.join(KINDS)}; step of a row without a parent"
            raise InvalidValueError("kind", f"{text} in row {rows[request]}", allowed)
    start = chain_starts(after)
    if len(wrong := np.flatnonzero(after[start] >= 0)):
        allowed = "rows that do not wait for each other in a circle"
        raise InvalidValueError("parent", f"that of row {rows[wrong[0]]}", allowed)
    session = _sessions(links["session"], start, rows)
    kinds = np.array(kind)
    # whose context: the parent's, but for agents and contexts that were cut
    up = np.where(after < 0, _first_of(session), after)
    context_tokens = columns.prompt_tokens[up]
    is_own = (kinds == "agent") | (columns.prompt_tokens < context_tokens)
    group = chain_starts(np.where(is_own | (up == np.arange(len(up))), NO_GROUP, up))
    requests = replace(
        columns,
        after=after,
        think_s=_gaps(links["gap_s"], rows),
        joins=_joins(after, kind, rows) if "join" in kind else None,
        session=session,
    )
    if columns.prefix_group is not None:  # the hashes of its blocks say more
        return requests
    context_after = columns.prompt_tokens.astype(np.int64) + columns.output_tokens
    return replace(requests, prefix_group=group, prefix_tokens=context_after)


def _parents(rows: IntArray, texts: Sequence[Any]) -> IntArray:
    """The request that each comes after, shape (n,)."""
    requests = {str(row): request for request, row in enumerate(rows.tolist())}
    after = np.full(len(rows), NO_GROUP)
    for request, text in enumerate(texts):
        if text in _NO_GAP:
            continue
        parent = requests.get(str(text).strip().removesuffix(".0"))
        if parent is None:
            allowed = "the number of a row that is a request, from 0"
            raise InvalidValueError("parent", f"{text} in row {rows[request]}", allowed)
        after[request] = parent
    return after


def _gaps(values: Sequence[Any], rows: IntArray) -> FloatArray:
    gaps = np.zeros(len(rows))
    for request, value in enumerate(values):
        if value in _NO_GAP:
            continue
        try:
            gaps[request] = float(value)
        except (TypeError, ValueError, OverflowError):
            gaps[request] = np.nan
        if not 0 <= gaps[request] < np.inf:
            raise InvalidValueError("gap_s", f"{value} in row {rows[request]}", "seconds >= 0")
    return gaps


def _sessions(names: Sequence[Any], starts: IntArray, rows: IntArray) -> IntArray:
    """Number of the session of each; rows without a name are of their first row's, shape (n,)."""
    texts = [None if name in _NO_GAP else str(name) for name in names]
    numbers: dict[Any, int] = {}
    session = np.empty(len(rows), dtype=np.int64)
    for request, start in enumerate(starts.tolist()):
        name = start if texts[start] is None else texts[start]
        if texts[request] not in (None, name):
            allowed = f"{name}, that of its parent"
            raise InvalidValueError("session", f"{texts[request]} in row {rows[request]}", allowed)
        session[request] = numbers.setdefault(name, len(numbers))
    return session


def _first_of(session: IntArray) -> IntArray:
    """The first request of each one's session, shape (n,)."""
    _, first_request, inverse = np.unique(session, return_index=True, return_inverse=True)
    return np.asarray(first_request[inverse])


def _joins(after: IntArray, kind: Sequence[str], rows: IntArray) -> IntArray:
    """The join that waits for the last requests of agents, shape (n,)."""
    parents, joins = after.tolist(), np.full(len(after), NO_GROUP)
    joined: dict[int, int] = {}
    for request, text in enumerate(kind):
        if text == "join" and joined.setdefault(parents[request], request) != request:
            value = f"join in row {rows[request]}"
            raise InvalidValueError("kind", value, "one join after a row, which has another")
    for request in set(range(len(parents))) - set(parents):
        begun = request
        while begun >= 0 and joins[request] < 0:
            if kind[begun] == "agent":
                joins[request] = joined.get(parents[begun], NO_GROUP)
            begun = parents[begun]
    return joins
