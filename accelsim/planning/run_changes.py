"""The same run with something changed: other batches, and one option at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from accelsim.errors import InputError
from accelsim.frozen import frozen
from accelsim.hardware.profile import DeviceProfile
from accelsim.planning.estimate import Estimate, estimate
from accelsim.planning.options import PriceChoice, RunOptions, run_options
from accelsim.workloads.model import Workload

#: Batches of a curve.
CURVE_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
#: Share of the highest throughput from which a batch counts as large enough: estimate, a rule of
#: reading rather than of physics.
KNEE_FRACTION = 0.9
_PRECISIONS = ("fp32", "bf16", "fp16", "fp8", "int8")
_EXECUTIONS = ("eager", "graph", "compiled")


@frozen
class RunChange:
    """A run with one thing changed.

    Attributes:
        words: What was changed.
        estimate: The answer; None where it cannot run.
        reason: Why it cannot; empty where it can.
    """

    words: str
    estimate: Estimate | None
    reason: str = ""


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
    found: list[Estimate] = []
    for batch in batches:
        run = replace(options, shape=replace(options.shape, batch=batch))
        try:
            one = estimate(workload, device, run, price)
        except InputError:
            break
        if one.latency_s is None:
            break
        found.append(one)
    return found


def batch_knee(curve: Sequence[Estimate]) -> Estimate | None:
    """The smallest batch with `KNEE_FRACTION` of the curve's highest throughput; None if empty.

    Args:
        curve: Estimates by ascending batch.
    """
    best = max((one.throughput_per_s or 0.0 for one in curve), default=0.0)
    return next(
        (one for one in curve if (one.throughput_per_s or 0.0) >= KNEE_FRACTION * best), None
    )


def run_changes(
    workload: str | Path | Workload,
    device: DeviceProfile,
    options: RunOptions,
    price: PriceChoice,
    base: Estimate,
) -> list[RunChange]:
    """The run with twice and half its batch, other precisions and other modes of its stack.

    Args:
        workload: What runs.
        device: Where.
        options: How.
        price: What it costs.
        base: Its estimate, whose own values are left out.
    """
    found = []
    for words, changed in _changes(base):
        try:
            one = estimate(workload, device, run_options(options, changed), price)
        except InputError as error:
            found.append(RunChange(words, None, str(error)))
            continue
        found.append(RunChange(words, one, "" if one.fits else "does not fit in memory"))
    return found


def _changes(base: Estimate) -> Iterator[tuple[str, dict[str, Any]]]:
    for batch in (base.batch // 2, base.batch * 2):
        if batch:
            yield f"batch {batch:,}", {"batch": batch}
    for name in _PRECISIONS:
        if name != base.precision:
            yield f"precision {name}", {"precision": name}
    if base.execution in _EXECUTIONS:
        for name in _EXECUTIONS:
            if name != base.execution:
                yield f"execution {name}", {"execution": name}
