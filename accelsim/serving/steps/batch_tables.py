"""Step times of models that run batches: vision, recommenders, encoders; one pass per batch."""

from __future__ import annotations

import math
from typing import NoReturn

import numpy as np

from accelsim.confidence.quantiles import Z90
from accelsim.cost.idle import idle_power_w
from accelsim.cost.memory import memory_short
from accelsim.errors import UnsupportedOperatorError
from accelsim.estimation.estimate import estimate
from accelsim.estimation.estimate_many import EstimateColumns, estimate_many
from accelsim.estimation.options import RunOptions
from accelsim.estimation.run import ResolvedRun
from accelsim.serving.steps.step_times import StepCurve, StepSurface, TabulatedSteps

#: Batches that are costed.
_BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)


def batch_tables(
    run: ResolvedRun, options: RunOptions, *, max_batch: int, overhead_s: float
) -> TabulatedSteps:
    """Times of batches, each alone from its copy to its result. Estimate: in the part of
    its latency that other batches could overlap, a batch alone leaves the device idle.

    Args:
        run: The model on its device.
        options: What runs, as `estimate_many` takes it.
        max_batch: Items of a full batch.
        overhead_s: Host time per batch.

    Raises:
        DoesNotFitError: If a full batch needs more memory than the device has.
        UnsupportedOperatorError: If the device cannot run the model.
    """
    batches = [*(batch for batch in _BATCHES if batch < max_batch), max_batch]
    at = np.array(batches if len(batches) > 1 else [1, 2])
    columns = estimate_many(
        run.workload.name, run.device.name, options, shapes={"batch": at, "output_len": 0}
    )
    if any(columns["reason"]):
        _refuse(run, options, columns)
    idle_w = idle_power_w(run.device)
    latency_s = columns["latency_s"]
    waits_s = latency_s - at / columns["throughput_per_s"]
    energy_j = columns["energy_j"] + (idle_w or 0.0) * waits_s
    if np.isnan(energy_j).any():
        idle_w, energy_j = None, np.zeros(len(at))  # unknown without the idle power, too
    nothing = np.zeros((2, 2))
    flat = StepSurface(np.array([1, 2]), np.array([0.0, 1.0]), nothing, nothing)
    spread = math.log(columns["latency_high_s"][0] / latency_s[0]) / Z90
    return TabulatedSteps(
        layers=StepCurve(at, latency_s, energy_j),
        decode_layers=StepCurve(at, latency_s, energy_j),
        logits=StepCurve(np.array([1, 2]), np.zeros(2), np.zeros(2)),
        prefill=flat,
        decode=flat,
        overhead_s=overhead_s,
        idle_w=idle_w,
        log_sigma=spread,
    )


def _refuse(run: ResolvedRun, options: RunOptions, columns: EstimateColumns) -> NoReturn:
    """Raise why batches cannot run: memory, or what `estimate` says of one item."""
    needed = np.nanmax(np.append(columns["memory_bytes"], 0.0))
    room = run.available_bytes
    if needed > room:
        remedy = "Choose a smaller --max-seqs, a smaller format, or a device with more memory."
        raise memory_short(run.device, float(needed), room, remedy)
    estimate(run.workload.name, run.device.name, options)
    raise UnsupportedOperatorError(run.device.name, run.workload.name, str(max(columns["reason"])))
