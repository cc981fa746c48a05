"""Steps fitted to measured ones: a line over the work of attention, and over tokens one in pieces.

    step = tokens' time(prefill tokens + decode count) + a x prefill keys + b x decode keys + c x
           decode count,

the first over pieces that never fall (layers read their weights once and then compute; Williams et
al., CACM 52(4), 2009), all coefficients >= 0 by non-negative least squares of relative errors
(Lawson and Hanson, Solving Least Squares Problems, 1974, chapter 23).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from accelsim.errors import InvalidValueError
from accelsim.frozen import frozen
from accelsim.serving.steps.step_times import StepBatch, StepCost
from accelsim.workloads.graph import FloatArray

#: Numbers of tokens at which the pieces may bend.
_BENDS = (1, 16, 64, 256, 1024, 4096, 16_384, 65_536)
_FEWEST_ROWS = 4
BATCH_COLUMNS = ("prefill_tokens", "prefill_context_sum", "decode_count", "decode_context_sum")


@frozen(eq=False)
class StepColumns:
    """Measured steps, n of them.

    Attributes:
        prefill_tokens: Tokens of prompts computed, shape (n,).
        prefill_context_sum: Sum over them of the keys each attends to, itself included.
        decode_count: Sequences that get one further token.
        decode_context_sum: Sum over these of the tokens in their caches.
        time_s: Seconds.
        energy_j: Joules; None where they are not known.
    """

    prefill_tokens: FloatArray
    prefill_context_sum: FloatArray
    decode_count: FloatArray
    decode_context_sum: FloatArray
    time_s: FloatArray
    energy_j: FloatArray | None = None

    def __post_init__(self) -> None:
        """Refuse columns that are no steps.

        Raises:
            InvalidValueError: Naming the column.
        """
        for name, column in zip(BATCH_COLUMNS, self.batches, strict=True):
            _check(name, column, least=0.0)
        _check("s", self.time_s, least=np.nextafter(0.0, 1.0))
        if self.energy_j is not None:
            _check("J", self.energy_j, least=0.0)
        if len(self.time_s) < _FEWEST_ROWS:
            raise InvalidValueError("step times", len(self.time_s), f"{_FEWEST_ROWS} rows or more")
        if not (self.prefill_tokens + self.decode_count > 0).all():
            remedy = "Leave such rows out."
            raise InvalidValueError("decode_count", 0, "steps that compute a token", remedy)

    def __len__(self) -> int:
        return len(self.time_s)

    @property
    def batches(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """What the steps compute: columns of `BATCH_COLUMNS`, shape (n,) each."""
        prompts = self.prefill_tokens, self.prefill_context_sum
        return (*prompts, self.decode_count, self.decode_context_sum)


def _check(name: str, values: FloatArray, least: float) -> None:
    wrong = ~(values >= least) | ~np.isfinite(values)
    if wrong.any():
        allowed = "finite numbers >= 0" if least == 0 else "finite numbers above 0"
        raise InvalidValueError(name, float(values[wrong][0]), allowed)


@frozen
class _Line:
    """One quantity of a step: its value over tokens, and slopes."""

    tokens: tuple[float, ...]
    at: tuple[float, ...]
    per_prefill_key: float
    per_decode_key: float
    per_sequence: float

    def value(self, prefill: float, keys: float, count: float, cached: float) -> float:
        """Of one step. Estimate: the sum of its parts."""
        slopes = self.per_prefill_key * keys + self.per_decode_key * cached
        return self.over_tokens(prefill + count) + slopes + self.per_sequence * count

    def over_tokens(self, tokens: float) -> float:
        """What its tokens take. Estimate: beyond the last bend it goes on along the last piece."""
        at, values = self.tokens, self.at
        if tokens > at[-1]:
            slope = (values[-1] - values[-2]) / (at[-1] - at[-2])
            return values[-1] + slope * (tokens - at[-1])
        return float(np.interp(tokens, at, values))


@dataclass(slots=True, eq=False)
class FittedSteps:
    """Steps from a fit; see `StepTimes`.

    Attributes:
        seconds: Seconds of a step.
        joules: Joules; None where unknown.
        idle_w: Power between steps; None where the joules are unknown.
        log_sigma: Standard deviation of ln(measured / fitted) of the steps.
        common_fraction: 0: what runs differ by as a whole one run does not tell.
    """

    seconds: _Line
    joules: _Line | None
    idle_w: float | None = None
    log_sigma: float = 0.0
    common_fraction: float = 0.0
    _fixed_costs: dict[int, StepCost] = field(init=False, repr=False, default_factory=dict)

    def step(self, *batch: *StepBatch) -> StepCost:
        """One step: seconds and joules; see `StepTimes`."""
        joules = 0.0 if self.joules is None else self.joules.value(*batch)
        return self.seconds.value(*batch), joules

    def decode_run(self, count: int, context: float, n: int) -> StepCost:
        """Steps of the same sequences: their caches grow by a token each, so that the cached tokens
        are an arithmetic series (Agrawal et al., OSDI 2024); see `StepTimes`.
        """
        fixed = self._fixed_costs.get(count)
        if fixed is None:
            fixed = self._fixed_costs[count] = self.step(0, 0.0, count, 0.0)
        cached = n * context + 0.5 * count * n * (n - 1)
        slope_j = 0.0 if self.joules is None else self.joules.per_decode_key
        seconds = n * fixed[0] + self.seconds.per_decode_key * cached
        return seconds, n * fixed[1] + slope_j * cached


def fit_steps(columns: StepColumns, idle_w: float | None = None) -> FittedSteps:
    """Fit steps. Their spread is 1.4826 times the median absolute deviation (Rousseeuw and Croux,
    Journal of the American Statistical Association 88, 1993).

    Args:
        columns: Measured steps.
        idle_w: Power between steps, where it is known.
    """
    seconds = _fitted(columns, columns.time_s)
    joules = None if columns.energy_j is None else _fitted(columns, columns.energy_j)
    spread = np.log(columns.time_s / _values(seconds, columns))
    middle = float(np.median(spread))
    sigma = 1.4826 * float(np.median(np.abs(spread - middle)))  # of a normal distribution
    return FittedSteps(seconds, joules, idle_w if joules is not None else None, sigma)


def _values(line: _Line, columns: StepColumns) -> FloatArray:
    steps = zip(*(column.tolist() for column in columns.batches), strict=True)
    return np.maximum([line.value(*step) for step in steps], 1e-12)


def _fitted(columns: StepColumns, wanted: FloatArray) -> _Line:
    """The line of one quantity.

    Lawson and Hanson, Solving Least Squares Problems, 1974.
    """
    from scipy.optimize import nnls

    tokens = columns.prefill_tokens + columns.decode_count
    bends = np.array([bend for bend in _BENDS if bend < tokens.max()] or [1], dtype=np.float64)
    bends = np.append(bends, max(float(tokens.max()), bends[-1] + 1.0))
    ramps = [np.clip(tokens - low, 0.0, high - low) for low, high in pairwise(bends.tolist())]
    slopes = [columns.prefill_context_sum, columns.decode_context_sum, columns.decode_count]
    design = np.stack([np.ones(len(tokens)), *ramps, *slopes], axis=1)
    scale = np.maximum(np.abs(design).max(axis=0), 1e-12)
    weight = 1.0 / np.maximum(wanted, 1e-12)
    coefficients, _ = nnls(design / scale * weight[:, None], np.ones(len(tokens)))
    base, *further = (coefficients / scale).tolist()
    pieces = further[: len(ramps)]
    at = base + np.concatenate([[0.0], np.cumsum(pieces * np.diff(bends))])
    return _Line(tuple(bends.tolist()), tuple(at.tolist()), *further[len(ramps) :])
