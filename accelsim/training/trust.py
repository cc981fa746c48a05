"""How far an iteration may be off, and what that rests on.

The rows of a rank spread as those of an estimate do, collectives and waits apart. No interval is
narrower than the residuals of measured runs like it: on several devices those of the frameworks
whose iterations, and speed-ups to as many devices, the scoreboard has, on one device those of
estimates.
"""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist
from typing import TYPE_CHECKING

from accelsim import catalog
from accelsim.catalog.stacks import UNMEASURED_LOG_SIGMA
from accelsim.confidence.hierarchy import Correction
from accelsim.confidence.quantiles import Z90
from accelsim.confidence.residual import run_log_sigma
from accelsim.estimation.evidence import (
    LEAST_ROWS,
    Evidence,
    evidence,
    least_log_sigma,
    residual_log_sigma,
    shipped_evidence,
)
from accelsim.hardware.profile import GpuProfile

if TYPE_CHECKING:
    from accelsim.estimation.learned import System
    from accelsim.estimation.likeness import Setting
    from accelsim.hardware.profile import DeviceProfile
    from accelsim.training.iteration import Iteration
    from accelsim.training.layers import RowSpreads

#: Spread of ln(true / predicted) of collectives beside computation, and of what ranks share: an
#: estimate.
_COLLECTIVE_LOG_SIGMA = 0.25
#: Spread of ln(true / predicted) of the memory of weights, gradients and states: an estimate, as
#: trainers differ in the formats they hold (4.1 or 4.5 bits of a weight in NF4).
_STATE_LOG_SIGMA = 0.05
#: The same of all other memory, by what allocates it. Live tensors of torch on a CPU are met
#: within 3 % (suite training-memory). One GPU's allocator loses 3 to 15 % beside them (`setup`).
#: Trainers of many GPUs differ in what they keep, too: published peaks lie 0.02 to 0.06 from the
#: prediction where the version is named (suite fleet), and two versions of one trainer 0.27 apart.
_LIVE_LOG_SIGMA = {"host": 0.03, "gpu": 0.1, "gpus": 0.2}
_STATES = ("weight_bytes", "gradient_bytes", "optimizer_bytes")
#: Parts of an iteration that links take.
_ON_LINKS = ("tensor", "context", "expert", "data")


def row_spreads(iteration: Iteration) -> RowSpreads:
    """Rows of one rank of an iteration, and what runs they are like."""
    return iteration.costs.rows[iteration.unit]


def iteration_log_sigma(iteration: Iteration) -> float:
    """Standard deviation of ln(true / predicted) of an iteration's time."""
    return iteration_correction(iteration).log_sigma


def iteration_correction(iteration: Iteration) -> Correction:
    """What the user's own runs say of an iteration's time; nothing without any."""
    sigma, learned = _prior_log_sigma(iteration), iteration.setup.run.learned
    if learned is None:
        return Correction(0.0, sigma)
    return learned.correction(iteration_system(iteration), sigma)


def learned_notes(iteration: Iteration) -> tuple[str, ...]:
    """What to know of a correction by the user's own runs."""
    learned = iteration.setup.run.learned
    return () if learned is None else learned.notes([iteration_system(iteration)])


def iteration_system(iteration: Iteration) -> System:
    """What an iteration is of, as runs that were measured are told apart: its ranks' passes decide,
    not how many ranks repeat them.
    """
    from accelsim.estimation.learned import System, pass_sizes

    run, plan = iteration.setup.run, iteration.plan
    degrees = {"tp": plan.tp, "cp": plan.cp, "ep": plan.ep}
    return System(
        "training",
        run.device.whole_name,
        run.stack.name,
        run.stack.version.version,
        row_spreads(iteration).setting.precision,
        run.workload.architecture,
        str(run.device.device_class),
        pass_sizes(batch=plan.microbatch, seq_len=run.seq_len, **degrees),
    )


def _prior_log_sigma(iteration: Iteration) -> float:
    """The same before any run of the user's own.

    Estimate: the parts of an iteration on devices and on links are off independently.
    """
    run, rows = iteration.setup.run, row_spreads(iteration)
    rows_sigma = run_log_sigma(rows.kind, rows.time_s, rows.log_sigma, rows.shared_log_sigma)
    device = math.hypot(rows_sigma, rows.context_log_sigma)
    total = iteration.iteration_s
    apart = sum(iteration.time_s[name] for name in _ON_LINKS)
    share = min(max(apart / total, 0.0), 1.0) if total else 0.0
    sigma = math.hypot((1.0 - share) * device, share * _COLLECTIVE_LOG_SIGMA)
    least = least_log_sigma(run.device, rows.tier, rows.setting, run.spreads)
    if iteration.setup.cluster is None:
        return max(sigma, least)
    device_class, alike = str(run.device.device_class), (rows.setting, speed_up_setting(iteration))
    measured = (residual_log_sigma(device_class, setting, run.spreads) for setting in alike)
    return max(sigma, least, *measured)


def trainer_evidence(iteration: Iteration) -> tuple[int, float]:
    """Measured runs of an iteration's trainer on its kind of devices (GPUs of an architecture have
    kernels of their own) and of model, and the spread of ln(true / predicted) that trainers do not
    share.

    Estimate: the root mean square of the 90th percentiles of its runs over the normal's, and no
    less than that of a stack nobody measured where there are few runs.
    """
    run, setting = iteration.setup.run, row_spreads(iteration).setting
    alike = [
        runs
        for runs in shipped_evidence()["runs"]
        if runs["suite"] in run.stack.suites
        and _kind_of(catalog.device(runs["profile"])) == _kind_of(run.device)
        and runs["setting"].split()[0].endswith("training")
        and runs["setting"].endswith(setting.model)
    ]
    rows = sum(runs["rows"] for runs in alike)
    if not rows:
        return 0, UNMEASURED_LOG_SIGMA
    squares = sum(runs["rows"] * (math.log1p(runs["p90"]) / Z90) ** 2 for runs in alike)
    sigma = math.sqrt(squares / rows)
    return rows, sigma if rows >= LEAST_ROWS else max(sigma, UNMEASURED_LOG_SIGMA)


def _kind_of(device: DeviceProfile) -> str:
    return device.architecture if isinstance(device, GpuProfile) else str(device.device_class)


def are_tied(iteration: Iteration, other: Iteration) -> bool:
    """Whether the 90 % interval of ln(time of one / time of another) holds 0.

    Estimate: both run the same model on the same devices, so that what is off in the devices' time
    is off in both and cancels, but for the share of the time in which they differ. Trainers share
    no error of their own.
    """
    link = [
        sum(run.time_s[name] for name in _ON_LINKS) / max(run.iteration_s, 1e-12)
        for run in (iteration, other)
    ]
    apart = abs(link[0] - link[1])
    sigma = apart * math.hypot(_COLLECTIVE_LOG_SIGMA, UNMEASURED_LOG_SIGMA)
    if iteration.setup.run.stack != other.setup.run.stack:
        sigma = math.hypot(sigma, *(trainer_evidence(run)[1] for run in (iteration, other)))
    return abs(math.log(iteration.iteration_s / other.iteration_s)) <= Z90 * sigma


def memory_log_sigma(iteration: Iteration) -> float:
    """Standard deviation of ln(true / predicted) of the worst rank's memory.

    Estimate: states and all else are off independently, each by a spread of its own.
    """
    setup, parts = iteration.setup, iteration.scores.memory
    states = sum(float(parts[name][0]) for name in _STATES) / max(iteration.memory_bytes, 1.0)
    alone = "gpu" if isinstance(setup.run.device, GpuProfile) else "host"
    where = alone if setup.cluster is None or alone == "host" else "gpus"
    return math.hypot(states * _STATE_LOG_SIGMA, (1.0 - states) * _LIVE_LOG_SIGMA[where])


def fit_probability(iteration: Iteration) -> float:
    """Probability that the worst rank's memory is within the device's."""
    ratio = iteration.setup.capacity_bytes / max(iteration.memory_bytes, 1.0)
    return NormalDist().cdf(math.log(max(ratio, 1e-9)) / memory_log_sigma(iteration))


def speed_up_setting(iteration: Iteration) -> Setting:
    """What measured speed-ups the speed-up to an iteration's devices is like."""
    return replace(row_spreads(iteration).setting, mode="parallel-speed-up")


def iteration_evidence(iteration: Iteration) -> Evidence:
    """What is known of predictions like this one."""
    device, rows = iteration.setup.run.device, row_spreads(iteration)
    system = (device.whole_name, str(device.device_class), rows.tier.value)
    nearest, learned = evidence(*system, rows.relatives, rows.setting), iteration.setup.run.learned
    basis = "" if learned is None else learned.basis([iteration_system(iteration)])
    return replace(nearest, sentence=nearest.sentence + basis)
