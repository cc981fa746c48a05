"""A whole training run: iterations, checkpoints, failures and restarts, evaluation, energy, cost.

Failures come as a Poisson process of all devices. A checkpoint every tau seconds costs delta; after
a failure half an interval is lost and the job restarts (Young, CACM 17(9), 1974; Daly, Future
Generation Computer Systems 22(3), 2006).
"""

from __future__ import annotations

import math
from dataclasses import fields
from typing import TYPE_CHECKING

from accelsim.arguments import checked
from accelsim.errors import InvalidValueError
from accelsim.frozen import frozen
from accelsim.option import amount, option
from accelsim.plain import Document
from accelsim.training.plan import named_texts
from accelsim.training.setup import Conditions

if TYPE_CHECKING:
    from accelsim.estimation.run import ResolvedRun
    from accelsim.training.iteration import Iteration

#: Storage that checkpoints go to, for each device: an estimate (a shared file system of 2 GB/s for
#: a node of eight).
_STORAGE_BYTES_PER_S = 0.25e9
#: From a failure to the first new step, detection, new node and start included: an estimate.
_RESTART_S = 600.0
_AMOUNTS = ("tokens", "samples", "epochs", "iterations")


@checked
@frozen
class RunLength:
    """How long a training run is; give exactly one of the first four fields.

    Attributes:
        iterations: Iterations.
        preemption_mtbf_s: Mean time between preemptions of the whole job, as spot offers have.
        storage_bytes_per_s: Storage bandwidth for each device.
        checkpoint_is_asynchronous: Whether training goes on while a checkpoint is written.
        restart_s: From a failure to the first new step.
        evaluation_s: Evaluation in the whole run.
    """

    tokens: float | None = option("Tokens of the whole run: 100M, 1T.", parse=amount, metavar="N")
    samples: float | None = option("Samples of the whole run.", parse=amount, metavar="N")
    epochs: float | None = option("Epochs of the whole run.")
    iterations: float | None = None
    epoch_samples: float | None = option("Samples of an epoch.", parse=amount, metavar="N")
    mtbf_s: float | None = option(
        "Mean time between failures of one device, in hours.",
        metavar="HOURS",
        flags="--mtbf",
        scale=3600.0,
    )
    preemption_mtbf_s: float | None = None
    checkpoint_s: float | None = option(
        "Time between two checkpoints. Default with failures: the best one.",
        metavar="SECONDS",
        flags="--checkpoint",
    )
    storage_bytes_per_s: float = _STORAGE_BYTES_PER_S
    checkpoint_is_asynchronous: bool = False
    restart_s: float = _RESTART_S
    evaluation_s: float = 0.0

    def __post_init__(self) -> None:
        """Refuse lengths that contradict each other, and values out of range.

        Raises:
            InvalidValueError: Naming the field.
        """
        self._check_amount()
        optional = ("epoch_samples", "mtbf_s", "preemption_mtbf_s", "checkpoint_s")
        for name in (*_AMOUNTS, *optional, "storage_bytes_per_s"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise InvalidValueError(name, value, "a finite number above 0")
        for name, value in (("restart_s", self.restart_s), ("evaluation_s", self.evaluation_s)):
            if value < 0:
                raise InvalidValueError(name, value, "seconds >= 0")

    def _check_amount(self) -> None:
        amounts = [name for name in _AMOUNTS if getattr(self, name) is not None]
        if len(amounts) != 1:
            allowed = f"exactly one of {', '.join(_AMOUNTS)}"
            raise InvalidValueError("length", " and ".join(amounts) or None, allowed)
        if self.epochs is not None and self.epoch_samples is None:
            allowed = "samples of an epoch beside epochs"
            raise InvalidValueError("epoch_samples", None, allowed, "Give samples instead.")

    def iteration_count(self, global_batch: int, seq_len: int) -> float:
        """Iterations of the run.

        Raises:
            InvalidValueError: If tokens are asked of a model without a sequence.
        """
        if self.iterations is not None:
            return self.iterations
        if self.tokens is not None:
            if not seq_len:
                allowed = "no value: the model has no tokens"
                raise InvalidValueError("tokens", self.tokens, allowed, "Give samples or epochs.")
            return self.tokens / (global_batch * seq_len)
        samples = self.samples
        if samples is None:
            samples = (self.epochs or 0.0) * (self.epoch_samples or 0.0)
        return samples / global_batch


#: Fields of a length that are conditions of a run, and no option of their own.
_OF_LENGTH = (
    "preemption_mtbf_s",
    "storage_bytes_per_s",
    "checkpoint_is_asynchronous",
    "restart_s",
    "evaluation_s",
)


def parse_conditions(text: str) -> tuple[Conditions, Document]:
    """Conditions, and fields of `RunLength`, from words such as ``pue=1.2,evaluation_s=600``.

    Args:
        text: Fields of `Conditions`, and of `RunLength` those of failures, storage and evaluation;
            flags are 0 or 1.

    Raises:
        UnknownNameError: If a field does not exist.
        InvalidValueError: If a value is no number or out of range, or a field is named twice.
    """
    names = [*(f.name for f in fields(Conditions)), *_OF_LENGTH]
    values: Document = {}
    for name, word in named_texts(text, "condition", names, "Conditions").items():
        try:
            values[name] = float(word)
        except ValueError:
            raise InvalidValueError(name, word, "a number, flags 0 or 1") from None
    of_length: Document = {name: values.pop(name) for name in _OF_LENGTH if name in values}
    if "checkpoint_is_asynchronous" in of_length:
        of_length["checkpoint_is_asynchronous"] = bool(of_length["checkpoint_is_asynchronous"])
    return Conditions(**values), of_length


@frozen
class TrainingRun:
    """One iteration's figures, as a run multiplies them.

    Attributes:
        iteration_s: Time.
        low_s: Lower end of its interval.
        high_s: Upper end.
        energy_j: Energy; None where unknown.
        cost_usd: Price; None where unknown.
        carbon_kgco2e: Carbon; None where unknown.
        checkpoint_bytes: Weights and optimizer states of the whole model.
    """

    iteration_s: float
    low_s: float
    high_s: float
    energy_j: float | None
    cost_usd: float | None
    carbon_kgco2e: float | None
    checkpoint_bytes: float


def checkpoint_bytes(iteration: Iteration) -> float:
    """Weights and optimizer states of the whole model, or of its adapters.

    Rajbhandari et al. 2020, arXiv:1910.02054, section 3.1; gradients are not kept.
    """
    costs, unit = iteration.costs, iteration.unit
    names = ("trained_parameters", "table_parameters", "trained_experts")
    dense, tables, experts = (float(costs[name][unit].sum()) for name in names)
    shard = iteration.plan.shard
    parameters = (
        dense + tables - float(costs.unit_values["tied_trained"][unit])
    ) * shard.tp + experts * shard.ep * shard.expert_tp
    setup = iteration.setup
    return parameters * (setup.run.precision.weight.bytes + setup.state_bytes)


def best_checkpoint_interval_s(write_s: float, mtbf_s: float) -> float:
    """Time between checkpoints that loses the least: sqrt(2 delta M).

    Young, CACM 17(9), 1974.

    Args:
        write_s: Time to write one, delta.
        mtbf_s: Mean time between failures of the job, M.
    """
    return math.sqrt(2.0 * write_s * mtbf_s)


def expected_run_s(
    work_s: float, write_s: float, interval_s: float, mtbf_s: float, restart_s: float
) -> float:
    """Expected time of a run with checkpoints and failures.

    M e^(R/M) (e^((tau + delta)/M) - 1) T / tau (Daly, Future Generation Computer Systems 22(3),
    2006, equation 13).

    Args:
        work_s: Time without failures and checkpoints, T.
        write_s: Time to write a checkpoint, delta.
        interval_s: Work between two of them, tau.
        mtbf_s: Mean time between failures of the job, M.
        restart_s: Time to restart, R.

    Returns:
        Seconds; infinite where failures come faster than an interval ends.
    """
    exponent = (interval_s + write_s) / mtbf_s
    if exponent > 700 or restart_s / mtbf_s > 700:
        return math.inf
    return mtbf_s * math.exp(restart_s / mtbf_s) * math.expm1(exponent) * work_s / interval_s


def training_run(
    length: RunLength, iteration: TrainingRun, run: ResolvedRun, device_count: int
) -> Document:
    """Figures of the whole run, by name in `TrainingEstimate`.

    Failures of all devices as one Poisson process, and the best interval: Daly, Future Generation
    Computer Systems 22(3), 2006.

    Args:
        length: How long it is.
        iteration: One iteration.
        run: The resolved run.
        device_count: Devices.

    Raises:
        InvalidValueError: If it would never end.
    """
    count = length.iteration_count(run.batch, run.seq_len)
    rate = device_count / length.mtbf_s if length.mtbf_s else 0.0
    rate += 1.0 / length.preemption_mtbf_s if length.preemption_mtbf_s else 0.0
    write = iteration.checkpoint_bytes / (length.storage_bytes_per_s * device_count)
    shown = 0.0 if length.checkpoint_is_asynchronous else write
    total, low, high = (
        _expected_s(length, count * seconds, write, shown, rate)
        for seconds in (iteration.iteration_s, iteration.low_s, iteration.high_s)
    )
    if not math.isfinite(total):
        allowed = "failures rare enough for a checkpoint to be written between them"
        raise InvalidValueError("mtbf_s", length.mtbf_s, allowed, "Write checkpoints more often.")
    work = count * iteration.iteration_s
    ratio = total / work
    per_iteration = {
        "total_energy_j": iteration.energy_j,
        "total_cost_usd": iteration.cost_usd,
        "total_carbon_kgco2e": iteration.carbon_kgco2e,
    }
    return {
        "time_to_train_s": total,
        "time_to_train_low_s": low,
        "time_to_train_high_s": high if math.isfinite(high) else None,
        **{
            name: None if value is None else value * count * ratio
            for name, value in per_iteration.items()
        },
        "expected_failures": total * rate,
        "goodput_fraction": work / total,
    }


def _expected_s(
    length: RunLength, work_s: float, write_s: float, shown_s: float, rate_per_s: float
) -> float:
    """Expected time with checkpoints, failures and evaluation.

    Daly, Future Generation Computer Systems 22(3), 2006; without an interval of one's own the best
    one.
    """
    interval = length.checkpoint_s
    if not rate_per_s:
        writes = work_s / interval * shown_s if interval else 0.0
        return work_s + writes + length.evaluation_s
    mtbf = 1.0 / rate_per_s
    if interval is None:
        interval = min(best_checkpoint_interval_s(max(write_s, 1.0), mtbf), work_s)
    busy_s = work_s + length.evaluation_s
    return expected_run_s(busy_s, shown_s, interval, mtbf, length.restart_s)
