"""What a replica keeps of its steps: time, energy, power, cache, and the gaps between tokens.

An event is one row; rows are summed up many at a time.
"""

from __future__ import annotations

from itertools import chain

import numpy as np

from accelsim.serving.replicas.history import StepHistory
from accelsim.workloads.graph import FloatArray

_LOW_S = 1e-7
_HIGH_S = 1e5
_BINS = 12_000  # 0.23 % each
#: Edges of the bins of gaps.
GAP_EDGES_S = np.geomspace(_LOW_S, _HIGH_S, _BINS + 1)
_KEPT = 1 << 12


class Tally:
    """Sums over the steps of one replica; complete after `close`.

    Attributes:
        peak_power_w: Largest mean power of a step.
        peak_blocks: Most blocks in use.
        step_count: Steps.
        event_count: Events that stood for them.
        preemption_count: Requests put back into the queue.
        prompt_tokens: Tokens of prompts computed.
        gap_count: Gaps between tokens by logarithmic bin of their length.
        gap_sum_s: Their sums.
        history: What the steps take over time.
        rows: What is noted and not summed up yet: of steps of one batch, the time and energy of all
            of them, how many, sequences that got a further token in each, blocks in use, the time
            before the first step in which the sequences waited, and when the last one ends.
    """

    def __init__(self) -> None:
        self.peak_power_w = 0.0
        self.peak_blocks = self.step_count = self.event_count = self.preemption_count = 0
        self.prompt_tokens = 0
        self.gap_count, self.gap_sum_s = np.zeros(_BINS), np.zeros(_BINS)
        self.history = StepHistory()
        self.rows: list[tuple[float, float, int, int, int, float, float]] = []

    @property
    def busy_s(self) -> float:
        """Time in steps."""
        return float(self.history.sums[0].sum())

    @property
    def energy_j(self) -> float:
        """Energy of the steps."""
        return float(self.history.sums[1].sum())

    @property
    def block_s(self) -> float:
        """Integral of the blocks in use over the busy time."""
        return float(self.history.sums[2].sum())

    def sum_up(self) -> None:
        """Sum up what is noted where it is much."""
        if len(self.rows) >= _KEPT:
            self.close()

    def close(self) -> None:
        """Sum up what is noted. Estimate: all steps of a row are equally long."""
        if not self.rows:
            return
        numbers = np.fromiter(chain.from_iterable(self.rows), float, 7 * len(self.rows))
        seconds, joules, steps, decodes, blocks, stall_s, end_s = numbers.reshape(-1, 7).T
        self.history.add(end_s, seconds, joules, blocks)
        self.event_count += len(self.rows)
        self.rows.clear()
        self.step_count += int(steps.sum())
        self.peak_blocks = max(self.peak_blocks, int(blocks.max()))
        power = np.divide(joules, seconds, out=np.zeros_like(joules), where=seconds > 0)
        self.peak_power_w = max(self.peak_power_w, float(power.max()))
        gap_s = seconds / steps
        stalled = (stall_s > 0) & (decodes > 0)
        self._add_gaps(gap_s, decodes * (steps - stalled))
        self._add_gaps((gap_s + stall_s)[stalled], decodes[stalled])

    def _add_gaps(self, gap_s: FloatArray, count: FloatArray) -> None:
        bins = np.clip(np.searchsorted(GAP_EDGES_S, gap_s, side="right"), 1, _BINS) - 1
        np.add.at(self.gap_count, bins, count)
        np.add.at(self.gap_sum_s, bins, count * gap_s)

    def gaps(self, *others: Tally) -> tuple[FloatArray, FloatArray]:
        """Mean gap between tokens and its count, of each bin that has any, with those of others."""
        weight = sum((tally.gap_count for tally in others), self.gap_count)
        total = sum((tally.gap_sum_s for tally in others), self.gap_sum_s)
        is_filled = weight > 0
        return total[is_filled] / weight[is_filled], weight[is_filled]
