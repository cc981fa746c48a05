"""How long a pass holds what its rows write.

A captured pass knows when the last reference to a tensor goes. Else one passed to a module is taken
to be held by its caller until the module returns; queries, keys and values by the module that
attends.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from accelsim.workloads.graph import OperatorGraph
from accelsim.workloads.operator import IN_PLACE, OperatorKind, Phase

__all__ = ["rows_freed"]


def rows_freed(graph: OperatorGraph, count: int) -> list[list[int]]:
    """Rows whose outputs are freed after each of the first `count` rows: those that nothing holds
    any more.

    Args:
        graph: A pass, n rows.
        count: Rows of it, n or those of its forward pass.
    """
    parts = [tuple(path.split(".")) if path else () for path in graph.path[:count]]
    ends = _module_ends(parts)
    last, owner = list(range(count)), list(range(count))  # the row that allocated what a row writes
    used = np.zeros(count, dtype=bool)
    attends = (graph.kind == int(OperatorKind.ATTENTION)).tolist()
    offsets, dependencies = graph.dependency_offset.tolist(), graph.dependency.tolist()
    for row in range(count):
        sources = dependencies[offsets[row] : offsets[row + 1]]
        if IN_PLACE in graph.name[row]:
            same = [
                source for source in sources if graph.write_bytes[source] >= graph.write_bytes[row]
            ]
            owner[row] = owner[same[-1]] if same else row
        for source in sources:
            shared = _shared(parts[source], parts[row])
            held = ends[row][shared] if shared < len(parts[row]) else row
            if attends[row] and parts[row]:
                held = ends[row][-1]
            last[owner[source]] = max(last[owner[source]], held)
            used[owner[source]] = True
    until = [last[row] if used[row] else count - 1 for row in range(count)]
    if graph.freed_after is not None and count == len(graph):
        steps = np.flatnonzero(graph.phase != int(Phase.OPTIMIZER))
        returned = (graph.freed_after == count) & (
            graph.phase != int(Phase.BACKWARD)
        )  # held by the backward call
        freed = np.where(returned, steps[-1], np.minimum(graph.freed_after, count - 1)).tolist()
        until = [known if known >= 0 else guess for known, guess in zip(freed, until, strict=True)]
    frees: list[list[int]] = [[] for _ in range(count)]
    for row in reversed(
        range(count)
    ):  # what inner modules hold goes first, gradients in the order of parameters
        frees[until[row]].append(row)
    return frees


def _module_ends(parts: Sequence[tuple[str, ...]]) -> list[list[int]]:
    """Last row of each module a row is in, from the outermost to its own."""
    ends: list[list[int]] = [[] for _ in parts]
    for row in range(len(parts) - 1, -1, -1):
        following = parts[row + 1] if row + 1 < len(parts) else ()
        shared = _shared(parts[row], following)
        ends[row] = [
            ends[row + 1][depth] if depth < shared else row for depth in range(len(parts[row]))
        ]
    return ends


def _shared(a: Sequence[str], b: Sequence[str]) -> int:
    """Number of leading parts two module paths have in common."""
    for place, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return place
    return min(len(a), len(b))
