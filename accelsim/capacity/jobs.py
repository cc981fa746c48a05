"""Jobs with deadlines: how long each takes on so many devices, and what it uses.

Training is the best plan that `accelsim.train` finds there, over trainers where none is named, with
its checkpoints; samples to be answered go through batches at their best size. A search of plans is
dear, so that a job first has a bound: no run does more than a share of the peak. Failures and
preemptions come as a Poisson process of all instances; each costs the work since the last
checkpoint and a restart.
"""

from __future__ import annotations

import math
from dataclasses import field, replace
from functools import cached_property
from statistics import NormalDist

import numpy as np

from accelsim.capacity.replica_answers import SampleAnswer, sample_answer
from accelsim.capacity.scenario import BatchJob, TrainingJob
from accelsim.confidence.quantiles import Z90
from accelsim.errors import InputError
from accelsim.frozen import frozen
from accelsim.plain import Values
from accelsim.training.estimate import TrainingEstimate, train
from accelsim.training.length import RunLength

#: Share of the peak that no training run is predicted above: the law of the project is 0.85, and
#: the largest of a sweep over all devices was 0.888.
_MOST_MFU = 0.9
#: Points of the normal distribution that the probability of a deadline is averaged over.
_POINTS = 201


@frozen
class JobRun:
    """A job on so many devices.

    Attributes:
        work_s: Time without failures, checkpoints included, median.
        log_sigma: Spread of ln(true / predicted).
        energy_j: Energy of its devices; None where unknown.
        mtbf_s: Mean time between failures of any of its instances; None for none.
        lost_s: Time that a failure costs.
        is_bound: Whether the time is a lower bound alone.
        about: Plan, trainer and formats.
    """

    work_s: float
    log_sigma: float
    energy_j: float | None
    mtbf_s: float | None = None
    lost_s: float = 0.0
    is_bound: bool = False
    about: Values = field(default_factory=dict, compare=False)

    @property
    def time_s(self) -> float:
        """Expected time, failures included."""
        failures = 0.0 if self.mtbf_s is None else self.work_s / self.mtbf_s
        return self.work_s + failures * self.lost_s

    def at(self, size: float) -> JobRun:
        """The same with `size` times the work."""
        energy = None if self.energy_j is None else self.energy_j * size
        return replace(self, work_s=self.work_s * size, energy_j=energy)

    def time_at_s(self, z: float) -> float:
        """Time at a quantile of the model's error, in its standard deviations."""
        if self.is_bound and z < 0:  # its spread is not known yet
            return 0.0
        return self.time_s * math.exp(z * self.log_sigma)

    def in_time(self, deadline_s: float) -> float:
        """Probability that it is done by a deadline, over model error and failures."""
        levels = (np.arange(_POINTS) + 0.5) / _POINTS
        z = np.array([NormalDist().inv_cdf(level) for level in levels.tolist()])
        work = self.work_s * np.exp(self.log_sigma * z)
        if self.mtbf_s is None or not self.lost_s:
            return float(np.mean(work <= deadline_s))
        from scipy.stats import poisson

        most = np.floor((deadline_s - work) / self.lost_s)
        return float(np.mean(np.where(most < 0, 0.0, poisson.cdf(most, work / self.mtbf_s))))


@frozen(eq=False, slots=False)
class TrainingPlace:
    """A training job on so many devices of a kind, searched when it is asked for.

    Attributes:
        job: The job.
        device: Their name.
        count: How many.
        mtbf_s: Mean time between failures of any of its instances; None for none.
        restart_s: From a failure to the first new step.
        alone: One iteration on one device, whatever its memory; None where nothing is known.
    """

    job: TrainingJob
    device: str
    count: int
    mtbf_s: float | None
    restart_s: float
    alone: TrainingEstimate | None

    @property
    def bound(self) -> JobRun:
        """The least time that its arithmetic takes; nothing where the peak is unknown."""
        single = self.alone
        if single is None or not single.mfu_fraction or not single.time_to_train_s:
            return JobRun(0.0, 0.0, None, is_bound=True)
        least = single.time_to_train_s * single.mfu_fraction / _MOST_MFU / self.count
        return JobRun(least, 0.0, None, is_bound=True)

    @property
    def known(self) -> JobRun | str:
        """What is known by now: the best plan or why there is none, or a bound."""
        run: JobRun | str = vars(self).get("run", self.bound)
        return run

    @cached_property
    def run(self) -> JobRun | str:
        """The best plan that is found; why there is none."""
        try:
            trained = _trained(self.job, self.device, self.count, self.mtbf_s, self.restart_s)
        except InputError as error:
            return str(error)
        return _training_run(trained)


def _training_run(trained: TrainingEstimate) -> JobRun:
    time_s, high_s = trained.time_to_train_s or 0.0, trained.time_to_train_high_s or math.inf
    failures = trained.expected_failures or 0.0
    work_s = time_s * (trained.goodput_fraction or 1.0) if failures else time_s
    plan = trained.inputs["plan"]
    return JobRun(
        work_s,
        math.log(high_s / time_s) / Z90,
        trained.total_energy_j,
        work_s / failures if failures else None,
        (time_s - work_s) / failures if failures else 0.0,
        about={
            "plan": plan,
            "trainer": trained.iteration.setup.run.stack.label if trained.iteration else None,
            "precision": trained.precision,
            "global_batch": trained.plan["global_batch"],
            "devices": trained.device_count,
        },
    )


def _trained(
    job: TrainingJob, device: str, count: int, mtbf_s: float | None, restart_s: float
) -> TrainingEstimate:
    """What `accelsim.train` finds."""
    length = RunLength(
        samples=job.samples,
        tokens=job.tokens,
        preemption_mtbf_s=mtbf_s,
        checkpoint_s=job.checkpoint_s,
        restart_s=restart_s,
    )
    return train(
        job.model,
        device=device,
        gpus=count,
        plan=job.plan,
        global_batch=job.global_batch,
        length=length,
        search=True,
        **job.run,
    )


def alone(job: TrainingJob, device: str) -> TrainingEstimate | str:
    """One iteration of a job on one device, whatever its memory; why it cannot run there.

    Args:
        job: The job.
        device: Name of a device or slice.
    """
    length = RunLength(samples=job.samples, tokens=job.tokens)
    adapters = [word for word in (job.plan or "").split(",") if word.startswith("lora_rank")]
    try:
        return train(
            job.model,
            device=device,
            plan=",".join(adapters) or None,
            length=length,
            check_memory=False,
            **job.run,
        )
    except InputError as error:
        return str(error)


def batch_rate(job: BatchJob, device: str) -> tuple[SampleAnswer, float] | str:
    """How one device answers samples, and how many a second; why it cannot.

    Args:
        job: The job.
        device: Name of a device or slice.
    """
    answer = sample_answer(job, device)
    if isinstance(answer, str):
        return answer
    return answer, answer.times.saturated_rate_per_s(answer.times.sizes[-1])


def batch_on(
    job: BatchJob,
    each: tuple[SampleAnswer, float],
    count: int,
    mtbf_s: float | None,
    lost_s: float,
) -> JobRun:
    """Samples answered on so many devices.

    Args:
        job: The job.
        each: How one device answers, and how many a second.
        count: Devices.
        mtbf_s: Mean time between failures of any instance; None for none.
        lost_s: Time that a failure costs.
    """
    answer, rate = each
    work = job.samples / (rate * count)
    energy = None
    if answer.idle_w is not None:
        energy = job.samples * answer.energy_at_j(rate) + answer.idle_w * count * work
    about = {**answer.about, "devices": count}
    return JobRun(work, answer.log_sigma, energy, mtbf_s, lost_s, about=about)
