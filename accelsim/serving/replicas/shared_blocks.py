"""Prefixes that requests of a trace share, from the hashes of their blocks.

A hash stands for a block and all before it (Mooncake's traces: 512 tokens a block), so that equal
hashes are equal prefixes. Requests form chains: one that continues the end of a chain lengthens it;
one that leaves a chain in the middle begins a chain that forks from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from accelsim.serving.loads.requests import NO_GROUP
from accelsim.workloads.graph import IntArray

_BLOCK_TOKENS = 512


class SharedBlocks:
    """Chains of the requests so far.

    Attributes:
        forks: By chain that forks: the chain it forks from, and the tokens it has of that.
    """

    def __init__(self) -> None:
        self._owner: dict[int, int] = {}
        self._ends: list[int] = []  # last hash of each chain
        self._groups: list[int] = []
        self._depths: list[int] = []
        self.forks: dict[int, tuple[int, int]] = {}

    @property
    def are_shared(self) -> bool:
        """Whether any request has hashes."""
        return bool(self._owner)

    def fill(self, count: int) -> None:
        """Let the first `count` requests, where they are not taken yet, be without hashes."""
        missing = count - len(self._groups)
        self._groups += [NO_GROUP] * missing
        self._depths += [0] * missing

    def add(self, requests: Iterable[Any]) -> None:
        """Take the hashes of requests; None for those without."""
        for hashes in requests:
            self._groups.append(self._chain_of(hashes) if hashes else NO_GROUP)
            self._depths.append(len(hashes or ()))

    def _chain_of(self, hashes: list[int]) -> int:
        """Chain of a request; a hash stands for a block and all before it (Qin et al., Mooncake,
        FAST 2025).
        """
        owner, depth = self._owner, len(hashes)
        while depth and hashes[depth - 1] not in owner:
            depth -= 1
        group = owner[hashes[depth - 1]] if depth else NO_GROUP
        if depth == len(hashes):
            return group
        if not depth or self._ends[group] != hashes[depth - 1]:
            before, group = group, len(self._ends)
            if depth:
                self.forks[group] = before, depth * _BLOCK_TOKENS
            self._ends.append(hashes[-1])
        owner.update(dict.fromkeys(hashes[depth:], group))
        self._ends[group] = hashes[-1]
        return group

    def columns(self, prompt_tokens: IntArray) -> tuple[IntArray, IntArray]:
        """Group of each request, and the tokens it shares."""
        tokens = np.minimum(np.array(self._depths) * _BLOCK_TOKENS, prompt_tokens)
        return np.array(self._groups), tokens
