"""What a scheduler of requests knows of a device: how long a step of a batch takes.

A step computes `prefill_tokens` tokens of prompts and one token of each of `decode_count`
sequences. The layers see all tokens alike; attention sees the keys each token attends to, so that
two sums describe a batch (Agrawal et al., OSDI 2024, section 4; Agrawal et al., MLSys 2024):

    step = layers(prefill tokens + decode count) + logits(sequences that emit a token)
           + prefill attention(tokens, keys) + decode attention(count, keys) + host overhead.

`TabulatedSteps` reads the four parts from tables, linearly between their points; more tokens of
prompts than a table reaches are as many passes of its last point.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from accelsim.errors import InvalidValueError
from accelsim.frozen import frozen
from accelsim.workloads.graph import FloatArray, IntArray

#: Finest width of a cell along the keys of a surface, in tokens.
_CELL_TOKENS = 16
#: Lines made at a time.
_TOGETHER = 64


#: Tokens of prompts that a step computes, the sum over them of the keys each attends to, itself
#: included, sequences that get one further token, and the sum over these of the cached tokens.
StepBatch = tuple[int, float, int, float]
#: Seconds and joules of one step or several.
StepCost = tuple[float, float]


class StepTimes(Protocol):
    """Times and energies of steps on one replica.

    Attributes:
        idle_w: Power between steps, watts; None where unknown.
        log_sigma: Standard deviation of ln(true / predicted) of a step.
        common_fraction: Share of that variance that all steps have in common.
    """

    @property
    def idle_w(self) -> float | None:
        """Power between steps, watts."""

    @property
    def log_sigma(self) -> float:
        """Standard deviation of ln(true / predicted) of a step."""

    @property
    def common_fraction(self) -> float:
        """Share of the variance that all steps have in common."""

    def step(
        self,
        prefill_tokens: int,
        prefill_context_sum: float,
        decode_count: int,
        decode_context_sum: float,
        /,
    ) -> StepCost:
        """One step: seconds and joules.

        Args:
            prefill_tokens: Tokens of prompts computed.
            prefill_context_sum: Sum over them of the keys each attends to, itself included.
            decode_count: Sequences that get one further token.
            decode_context_sum: Sum over these of the tokens in their caches.
        """

    def decode_run(self, count: int, context: float, n: int) -> StepCost:
        """`n` steps of the same sequences one after the other: seconds and joules in all.

        Args:
            count: Sequences, >= 1.
            context: Sum of the tokens in their caches before the first step.
            n: Steps, >= 1.
        """


@frozen
class StepCurve:
    """Seconds and joules over a count, linear between points; constant before the first.

    Attributes:
        at: Counts, ascending, shape (n,).
        time_s: Seconds, shape (n,).
        energy_j: Joules, shape (n,).
    """

    at: IntArray
    time_s: FloatArray
    energy_j: FloatArray

    def spread(self, last: int) -> list[StepCost]:
        """Seconds and joules of each count from 0 to `last`; nothing takes nothing."""
        counts = np.arange(last + 1)
        time_s = np.interp(counts, self.at, self.time_s)
        energy_j = np.interp(counts, self.at, self.energy_j)
        time_s[0] = energy_j[0] = 0.0
        return list(zip(time_s.tolist(), energy_j.tolist(), strict=True))


#: Seconds and joules over the keys for one number of tokens: of each cell the intercept and slope
#: of the seconds, then of the joules.
_Line = list[tuple[float, float, float, float]]


@frozen
class StepSurface:
    """Seconds and joules of attention over tokens and what is cached before them, bilinear.

    Attributes:
        tokens: Tokens of one prompt, or sequences of one token each, ascending, shape (n,).
        cached: Tokens in the cache of each, ascending, shape (k,).
        time_s: Seconds, shape (n, k).
        energy_j: Joules, shape (n, k).
    """

    tokens: IntArray
    cached: FloatArray
    time_s: FloatArray
    energy_j: FloatArray

    def lines(self, tokens: IntArray, *, is_prompt: bool) -> list[_Line]:
        """The surface at numbers of tokens; the last cell extends beyond the last point. Estimate:
        between points attention is linear in both (Agrawal et al., MLSys 2024).

        Args:
            tokens: Tokens, or sequences, shape (m,).
            is_prompt: Whether a cell comes before the first, for tokens of several short prompts:
                their work is that of one prompt with less than nothing cached, and falls to that of
                the fewest tokens where they have no keys.
        """
        position = np.interp(tokens, self.tokens, np.arange(len(self.tokens)))
        low = np.minimum(position.astype(int), len(self.tokens) - 2)
        weight = (position - low)[:, None]
        knots = np.tile(self.cached, (len(tokens), 1))
        if is_prompt:
            knots = np.column_stack([-0.5 * (tokens + 1), knots])
        columns: list[FloatArray] = []
        for values in (self.time_s, self.energy_j):
            rows = (1 - weight) * values[low] + weight * values[low + 1]
            if is_prompt:
                rows = np.column_stack([np.minimum(values[0, 0], rows[:, 0]), rows])
            slope = np.diff(rows) / np.diff(knots)
            columns += [rows[:, :-1] - slope * knots[:, :-1], slope]
        return [list(map(tuple, line)) for line in np.stack(columns, axis=-1).tolist()]

    def cells(self) -> list[int]:
        """Cell of each multiple of `_CELL_TOKENS` cached tokens."""
        marks = np.arange(0, self.cached[-1] + _CELL_TOKENS, _CELL_TOKENS)
        cells = np.searchsorted(self.cached[1:-1], marks, side="right")
        return [int(cell) for cell in cells]


@dataclass(slots=True, eq=False)
class TabulatedSteps:
    """Steps from tables.

    Attributes:
        layers: Everything but attention and logits, over the tokens of a step with prompts.
        decode_layers: The same of a step without.
        logits: Logits and sampling, over the sequences that emit a token.
        prefill: Attention of prompts' tokens.
        decode: Attention of one token per sequence.
        overhead_s: Host time per step that nothing overlaps.
        idle_w: Power between steps, and of the overhead.
        log_sigma: Standard deviation of ln(true / predicted) of a step.
        common_fraction: Share of that variance that all steps have in common.
        checked: Tokens of each sequence in a step, which read its cache once (speculation).
        prompt_issue_s: Least time of a step with prompts: the host's to issue its operators.
    """

    layers: StepCurve
    decode_layers: StepCurve
    logits: StepCurve
    prefill: StepSurface
    decode: StepSurface
    overhead_s: float = 0.0
    idle_w: float | None = None
    log_sigma: float = 0.0
    common_fraction: float = 1.0
    checked: int = 1
    prompt_issue_s: float = 0.0
    _layers: list[StepCost] = field(init=False, repr=False)
    _decode_layers: list[StepCost] = field(init=False, repr=False)
    _logits: list[StepCost] = field(init=False, repr=False)
    _fixed: StepCost = field(init=False, repr=False)
    _prefill_lines: dict[int, _Line] = field(init=False, repr=False, default_factory=dict)
    _decode_lines: dict[int, tuple[float, float, _Line]] = field(
        init=False, repr=False, default_factory=dict
    )
    _beside: dict[int, tuple[float, float, _Line]] = field(
        init=False, repr=False, default_factory=dict
    )
    _prefill_most: int = field(init=False, repr=False)
    _prefill_cells: list[int] = field(init=False, repr=False)
    _decode_cells: list[int] = field(init=False, repr=False)
    _decode_ends: list[float] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Spread the curves over every count, so that a step is look-ups.

        Raises:
            InvalidValueError: If a table is empty or out of order.
        """
        _check_ascending("layers", self.layers.at)
        _check_ascending("decode_layers", self.decode_layers.at)
        _check_ascending("logits", self.logits.at)
        for name, surface in (("prefill", self.prefill), ("decode", self.decode)):
            _check_ascending(name, surface.tokens)
            _check_ascending(name, surface.cached)
        self._layers = self.layers.spread(int(self.layers.at[-1]))
        self._decode_layers = self.decode_layers.spread(int(self.decode_layers.at[-1]))
        self._logits = self.logits.spread(int(self.logits.at[-1]))
        self._fixed = (self.overhead_s, self.overhead_s * (self.idle_w or 0.0))
        self._prefill_most = int(self.prefill.tokens[-1])
        self._prefill_cells = self.prefill.cells()
        self._decode_cells = self.decode.cells()
        self._decode_ends = [*self.decode.cached[1:-1].tolist(), float("inf")]

    def step(
        self,
        prefill_tokens: int,
        prefill_context_sum: float,
        decode_count: int,
        decode_context_sum: float,
    ) -> StepCost:
        """One step: seconds and joules; see `StepTimes`.

        Sums that describe a batch: Agrawal et al., OSDI 2024, section 4.
        """
        if not prefill_tokens:
            return self.decode_run(decode_count, decode_context_sum, 1)
        seconds, joules = _passes(self._layers, prefill_tokens + decode_count * self.checked)
        tokens, passes = prefill_tokens, 1.0
        if tokens > self._prefill_most:  # several prompts: none is longer
            tokens = self._prefill_most
            passes = prefill_tokens / tokens
        line = self._prefill_lines.get(tokens) or self._prefill_line(tokens)
        cached = prefill_context_sum / prefill_tokens - 0.5 * (tokens + 1)
        cells = self._prefill_cells
        cell = cells[min(int(cached) >> 4, len(cells) - 1)] + 1 if cached >= 0 else 0
        base_s, slope_s, base_j, slope_j = line[cell]
        seconds += passes * (base_s + slope_s * cached)
        joules += passes * (base_j + slope_j * cached)
        further = self._beside.get(decode_count) or self._beside_prompts(decode_count)
        seconds += further[0]
        joules += further[1]
        if decode_count:
            cached, cells = decode_context_sum / decode_count, self._decode_cells
            base_s, slope_s, base_j, slope_j = further[2][
                cells[min(int(cached) >> 4, len(cells) - 1)]
            ]
            seconds += base_s + slope_s * cached
            joules += base_j + slope_j * cached
        if seconds < self.prompt_issue_s:
            joules += (self.prompt_issue_s - seconds) * (self.idle_w or 0.0)
            seconds = self.prompt_issue_s
        return seconds, joules

    def decode_run(self, count: int, context: float, n: int) -> StepCost:
        """Steps of one batch; its mean cache grows by one per step, and the sum of a line over
        equal steps is its value in the middle times their number; see `StepTimes` (Agrawal et al.,
        MLSys 2024).
        """
        fixed_s, fixed_j, line = self._decode_lines.get(count) or self._decode_line(count)
        cached, cells = context / count, self._decode_cells
        cell = cells[min(int(cached) >> 4, len(cells) - 1)]
        seconds, joules, left, ends = n * fixed_s, n * fixed_j, n, self._decode_ends
        while left:
            room = ends[cell] - cached
            steps = left if left <= room else min(left, max(1, int(room) + 1))
            middle = cached + 0.5 * (steps - 1)
            base_s, slope_s, base_j, slope_j = line[cell]
            seconds += steps * (base_s + slope_s * middle)
            joules += steps * (base_j + slope_j * middle)
            left -= steps
            cached += steps
            cell += 1
        return seconds, joules

    def _prefill_line(self, tokens: int) -> _Line:
        """A line, made with its neighbours."""
        near = _near(tokens)
        lines = self.prefill.lines(near, is_prompt=True)
        self._prefill_lines.update(zip(near.tolist(), lines, strict=True))
        return self._prefill_lines[tokens]

    def _beside_prompts(self, count: int) -> tuple[float, float, _Line]:
        """Logits and host time of a step with prompts and `count` sequences, whose attention takes
        a line more (Agrawal et al., OSDI 2024, section 4).
        """
        logits = self._logits[min(count * self.checked + 1, len(self._logits) - 1)]
        line = (self._decode_lines.get(count) or self._decode_line(max(count, 1)))[2]
        fixed_s, fixed_j = self._fixed
        costs = self._beside[count] = (fixed_s + logits[0], fixed_j + logits[1], line)
        return costs

    def _decode_line(self, count: int) -> tuple[float, float, _Line]:
        """What a step of `count` sequences takes besides attention, and its attention; made with
        its neighbours (parts of a step: Agrawal et al., MLSys 2024).
        """
        near = _near(count)
        lines = self.decode.lines(near, is_prompt=False)
        for sequences, line in zip(near.tolist(), lines, strict=True):
            rows = sequences * self.checked
            layers = self._decode_layers[min(rows, len(self._decode_layers) - 1)]
            logits = self._logits[min(rows, len(self._logits) - 1)]
            fixed_s = self._fixed[0] + layers[0] + logits[0]
            fixed_j = self._fixed[1] + layers[1] + logits[1]
            self._decode_lines[sequences] = (fixed_s, fixed_j, line)
        return self._decode_lines[count]


def _near(count: int) -> IntArray:
    """Counts above 0 whose lines are made together with that of one."""
    begin = count // _TOGETHER * _TOGETHER
    return np.arange(max(begin, 1), begin + _TOGETHER)


def _passes(values: list[StepCost], count: int) -> StepCost:
    """Seconds and joules of a count. Estimate: beyond the end as many passes of the last one."""
    last = len(values) - 1
    if count <= last:
        return values[count]
    (seconds, joules), passes = values[last], count / last
    return seconds * passes, joules * passes


def _check_ascending(name: str, points: Sequence[float] | FloatArray | IntArray) -> None:
    values = np.asarray(points)
    if len(values) < 2 or (np.diff(values) <= 0).any():
        raise InvalidValueError(name, values.tolist()[:8], "at least two points, ascending")
