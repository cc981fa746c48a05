"""Sums a replica keeps of its steps: time, energy, power, cache, and the gaps between tokens."""

from __future__ import annotations

from typing import Final

import numpy as np

from accelsim.workloads.graph import FloatArray

__all__ = ["GapHistogram", "Tally"]

_LOW_S: Final = 1e-7
_HIGH_S: Final = 1e5
_BINS: Final = 12_000  # 0.23 % each
_KEPT: Final = 1 << 16


class GapHistogram:
    """Gaps between tokens, weighted, in logarithmic bins."""

    def __init__(self) -> None:
        self._edges = np.geomspace(_LOW_S, _HIGH_S, _BINS + 1)
        self._weight = np.zeros(_BINS)
        self._sum_s = np.zeros(_BINS)
        self._gaps: list[float] = []
        self._counts: list[int] = []

    def add(self, gap_s: float, count: int) -> None:
        """Count a gap so many times."""
        self._gaps.append(gap_s)
        self._counts.append(count)
        if len(self._gaps) >= _KEPT:
            self._flush()

    def _flush(self) -> None:
        gaps, counts = np.array(self._gaps), np.array(self._counts, dtype=np.float64)
        place = np.clip(np.searchsorted(self._edges, gaps, side="right") - 1, 0, _BINS - 1)
        self._weight += np.bincount(place, counts, _BINS)
        self._sum_s += np.bincount(place, counts * gaps, _BINS)
        self._gaps, self._counts = [], []

    def merged(self, others: list[GapHistogram]) -> tuple[FloatArray, FloatArray]:
        """Mean gap and weight of each bin that has any, with those of others."""
        for histogram in (self, *others):
            histogram._flush()  # noqa: SLF001  (its own class)
        weight = np.sum([h._weight for h in (self, *others)], axis=0)  # noqa: SLF001
        total = np.sum([h._sum_s for h in (self, *others)], axis=0)  # noqa: SLF001
        some = weight > 0
        return total[some] / weight[some], weight[some]


class Tally:
    """Sums over the steps of one replica.

    Attributes:
        busy_s: Time in steps.
        energy_j: Energy of the steps.
        peak_power_w: Largest mean power of a step.
        block_s: Integral of the blocks in use over the busy time.
        peak_blocks: Most blocks in use.
        step_count: Steps.
        event_count: Events that stood for them.
        preemption_count: Requests put back into the queue.
        prompt_tokens: Tokens of prompts computed.
        gaps: Gaps between tokens.
    """

    __slots__ = (
        "block_s",
        "busy_s",
        "energy_j",
        "event_count",
        "gaps",
        "peak_blocks",
        "peak_power_w",
        "preemption_count",
        "prompt_tokens",
        "step_count",
    )

    def __init__(self) -> None:
        self.busy_s = self.energy_j = self.peak_power_w = self.block_s = 0.0
        self.peak_blocks = self.step_count = self.event_count = self.preemption_count = (
            self.prompt_tokens
        ) = 0
        self.gaps = GapHistogram()

    def note(self, seconds: float, joules: float, steps: int, decodes: int, blocks: float) -> None:
        """Add steps of one batch.

        Args:
            seconds: Time of all of them.
            joules: Energy of all of them.
            steps: How many.
            decodes: Sequences that got a further token in each.
            blocks: Mean blocks in use.
        """
        self.busy_s += seconds
        self.energy_j += joules
        self.block_s += blocks * seconds
        self.step_count += steps
        self.event_count += 1
        if joules > self.peak_power_w * seconds:
            self.peak_power_w = joules / seconds
        if decodes:
            self.gaps.add(seconds / steps, decodes * steps)
