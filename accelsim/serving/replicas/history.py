"""What a replica's steps take over time, in equal parts that become twice as long when the run goes
on: any run keeps as much.
"""

from __future__ import annotations

import numpy as np

from accelsim.workloads.graph import FloatArray

_PARTS = 512
_FIRST_PART_S = 1e-3


class StepHistory:
    """Busy time, energy and cache use of one replica over time.

    Attributes:
        part_s: Length of a part.
        sums: Busy seconds, joules, and blocks times seconds of each part, shape (3, parts).
    """

    def __init__(self) -> None:
        self.part_s = _FIRST_PART_S
        self.sums = np.zeros((3, _PARTS))

    def add(
        self, end_s: FloatArray, seconds: FloatArray, joules: FloatArray, blocks: FloatArray
    ) -> None:
        """Add steps. Estimate: what each takes is spread evenly over its time.

        Args:
            end_s: Ends of the steps, shape (n,); ascending, but after a step that was lost.
            seconds: Their lengths.
            joules: Their energies.
            blocks: Cache blocks in use.
        """
        moments = np.stack([end_s - seconds, end_s], axis=1).ravel()
        moments = np.maximum.accumulate(moments)
        while moments[-1] > _PARTS * self.part_s:
            self.part_s *= 2
            if self.sums.any():
                pairs = self.sums.reshape(3, -1, 2).sum(axis=2)
                self.sums = np.concatenate([pairs, np.zeros_like(pairs)], axis=1)
        edges = self.part_s * np.arange(_PARTS + 1)
        for row, column in enumerate((seconds, joules, blocks * seconds)):
            total = np.repeat(np.cumsum(column), 2)
            total[::2] -= column
            self.sums[row] += np.diff(np.interp(edges, moments, total))

    def between(self, edges_s: FloatArray) -> FloatArray:
        """Sums of other parts of the time, shape (3, n); what is before or after them counts in the
        first or the last.

        Args:
            edges_s: Where they begin and end, ascending, shape (n + 1,).
        """
        own_s = self.part_s * np.arange(_PARTS + 1)
        total = np.concatenate([np.zeros((3, 1)), np.cumsum(self.sums, axis=1)], axis=1)
        sums = np.stack([np.interp(edges_s, own_s, row) for row in total])
        sums[:, [0, -1]] = total[:, [0, -1]]
        return np.diff(sums, axis=1)
