"""One model on one device over batches: the largest that fits, and the knee of the curve.

Memory grows with the batch, so that the largest that fits is found by halving. The knee is the
smallest batch with nine tenths of the highest throughput.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from accelsim.errors import InputError, InvalidValueError
from accelsim.estimation.estimate import Estimate, estimate
from accelsim.estimation.options import (
    EstimateKeywords,
    PriceChoice,
    RunKeywords,
    RunOptions,
    options_and_price,
    run_options,
)
from accelsim.estimation.passes import run_passes
from accelsim.estimation.resolution import LARGEST_BATCH, resolve
from accelsim.estimation.run import ResolvedRun
from accelsim.frozen import frozen
from accelsim.hardware.profile import DeviceProfile
from accelsim.plain import Document
from accelsim.workloads.model import Workload

#: Batches of a curve.
CURVE_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
#: Share of the highest throughput from which a batch counts as large enough: estimate, a rule of
#: reading rather than of physics.
KNEE_FRACTION = 0.9


@frozen
class BatchCurve:
    """Estimates of one model on one device at several batches.

    Attributes:
        estimates: One per batch, in the order asked.
    """

    estimates: tuple[Estimate, ...]

    @property
    def knee(self) -> int | None:
        """The smallest batch with most of the highest throughput; None where none fits."""
        best = batch_knee([e for e in self.estimates if e.fits])
        return None if best is None else best.batch

    def to_dict(self) -> Document:
        """The knee and each estimate, ready for JSON."""
        return {"knee": self.knee, "batches": [e.to_dict() for e in self.estimates]}


def estimate_batches(
    workload: str | Path | Workload,
    device: str | DeviceProfile,
    batches: Sequence[int],
    options: RunOptions | None = None,
    price: PriceChoice | None = None,
    **keywords: Unpack[EstimateKeywords],
) -> BatchCurve:
    """Estimate a run at several batches.

    Args:
        workload: Name, path of a workload file, or a `Workload`.
        device: Name or profile.
        batches: Samples per iteration of each.
        options: What else runs; defaults where None.
        price: Which price; the cheapest on-demand offer where None.
        keywords: Fields of either, in place of theirs.

    Raises:
        InputError: If a name, batch or setting is wrong.
    """
    if not batches:
        raise InvalidValueError("batches", list(batches), "at least one batch")
    chosen, paid = options_and_price(options, price, keywords)
    return BatchCurve(tuple(estimate(workload, device, chosen, paid, batch=b) for b in batches))


def largest_batch(
    workload: str | Path | Workload,
    device: str | DeviceProfile,
    options: RunOptions | None = None,
    **keywords: Unpack[RunKeywords],
) -> int:
    """The largest batch whose memory the device has; 1 where not even that fits.

    Args:
        workload: Name, path of a workload file, or a `Workload`.
        device: Name or profile.
        options: What runs; its batch does not count.
        keywords: Fields of `RunOptions`, in place of theirs.

    Raises:
        InputError: If a name or setting is wrong.
    """
    chosen = run_options(options, keywords)
    run = resolve(workload, device, chosen, batch=1, accumulation=None)
    count = chosen.training.accumulation or 1
    return count * _largest_microbatch(run, LARGEST_BATCH // count)


def _largest_microbatch(run: ResolvedRun, most: int) -> int:
    """The largest batch of a run up to `most` that fits; 1 where not even that does.

    Doubled until it does not, then halved in between (Bentley and Yao, Information Processing
    Letters 5(3), 1976).
    """
    low, high = 1, 2
    while high <= most and _fits(run, high):
        low, high = high, 2 * high
    high = min(high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _fits(run, middle) else (low, middle)
    return low


def _fits(run: ResolvedRun, batch: int) -> bool:
    needed = run_passes(replace(run, batch=batch, accumulation=1)).memory
    return needed.short_bytes(run.available_bytes) <= 0


def batch_curve(
    workload: str | Path | Workload,
    device: DeviceProfile,
    options: RunOptions,
    price: PriceChoice,
    batches: Sequence[int] = CURVE_BATCHES,
) -> list[Estimate]:
    """Estimates over the batch, up to the first that does not fit.

    Args:
        workload: What runs.
        device: Where.
        options: How; the batch is set here.
        price: What it costs.
        batches: Samples per iteration, ascending.
    """
    curve: list[Estimate] = []
    for batch in batches:
        try:
            answer = estimate(workload, device, options, price, batch=batch)
        except InputError:
            break
        if answer.latency_s is None:
            break
        curve.append(answer)
    return curve


def batch_knee(curve: Sequence[Estimate]) -> Estimate | None:
    """The smallest batch with `KNEE_FRACTION` of the curve's highest throughput; None if empty.

    Args:
        curve: Estimates by ascending batch.
    """
    best = max((answer.throughput_per_s or 0.0 for answer in curve), default=0.0)
    large = (a for a in curve if (a.throughput_per_s or 0.0) >= KNEE_FRACTION * best)
    return next(large, None)
