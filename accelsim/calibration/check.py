"""Checks a calibration on whole models it has never seen: predict, freeze, measure, compare.

The list of models and the predictions are written with a hash before anything is measured; the
measurements are then joined to them. Later checks compare with the first measurements as well: a
machine whose models all became slower or faster has changed (driver, clocks, limits), whatever the
predictions say.
"""

from __future__ import annotations

import csv
import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from accelsim.confidence.quantiles import Z90
from accelsim.errors import AccelsimError, InvalidValueError, ProfileError
from accelsim.frozen import frozen
from accelsim.plain import Document, Values, grouped

if TYPE_CHECKING:
    from accelsim.cost.cpu.parameters import CpuParameters
    from accelsim.hardware.profile import CpuProfile
    from accelsim.workloads.graph import OperatorGraph

#: A model is run in at least so many fresh processes where the first shows page faults or repeats
#: further apart than this, and in more, up to a limit, until the standard error of their mean is
#: below a share of it.
_PROCESSES = 3
_MOST_PROCESSES = 6
_ERROR_FRACTION = 0.04
_FURTHER_BUDGET = 0.4
#: A change of the median that counts as drift.
_DRIFT_FRACTION = 0.1
#: How glibc is told to keep what is freed (glibc manual, memory allocation tunables): nothing
#: mapped, nothing given back.
_KEPT_HEAP = "glibc.malloc.trim_threshold=1099511627776:glibc.malloc.mmap_threshold=1099511627776"
_FEW_FAULTS = 16.0
_QUIET_FRACTION = 0.05
#: Figures of `summary`, in the order of a table.
SUMMARY_FIGURES = ("mape_fraction", "median_fraction", "max_fraction", "coverage_fraction")
#: Networks of the check, their batches in inference, the last in every format and thread count, and
#: at which batch they are trained too.
_NETWORKS = Path(__file__).with_name("check_list.csv")


@frozen
class CheckCase:
    """One run of one model.

    Attributes:
        model: Name in `check_models.CHECK_MODELS`.
        batch: Samples.
        dtype: "fp32" or "bf16".
        threads: Threads; 0 on a GPU.
        is_training: A training step with AdamW instead of a forward pass.
        execution: "eager"; on a GPU also "graph" or "compiled".
        heap: "default", or "kept" where the allocator keeps freed memory; CPU only.
    """

    model: str
    batch: int
    dtype: str
    threads: int
    is_training: bool = False
    execution: str = "eager"
    heap: str = "default"

    @property
    def key(self) -> str:
        """Unique label."""
        where = f"{self.threads}t" if self.threads else self.execution
        return f"{self.model} b{self.batch} {self.dtype} {where} {self.mode}"

    @property
    def mode(self) -> str:
        """Inference or training, and whether the heap is kept."""
        return ("training" if self.is_training else "inference") + (
            ", heap kept" if self.heap == "kept" else ""
        )


@frozen
class FrozenPrediction:
    """What was said before measuring; the energy of one run is None where it is not predicted."""

    case: CheckCase
    time_s: float
    low_s: float
    high_s: float
    tier: str
    energy_j: float | None = None


@frozen
class CheckResult:
    """A prediction and what was measured; `measured_s` is None where the model could not run, with
    the reason.

    `slowdown_ratio` is the reference operator's time beside the model over its time in the
    calibration.
    """

    prediction: FrozenPrediction
    measured_s: float | None
    noise_fraction: float | None = None
    skipped: str | None = None
    energy_j: float | None = None
    slowdown_ratio: float | None = None

    @property
    def error_fraction(self) -> float | None:
        """(predicted - measured) / measured."""
        return None if self.measured_s is None else self.prediction.time_s / self.measured_s - 1.0

    def at_calibrated_speed(self) -> CheckResult:
        """The same with the measurement as it would be if the machine still ran at its speed in the
        calibration.
        """
        if self.measured_s is None or self.slowdown_ratio is None:
            return self
        return replace(self, measured_s=self.measured_s / self.slowdown_ratio, slowdown_ratio=1.0)

    @property
    def energy_error_fraction(self) -> float | None:
        """(predicted - measured) / measured energy; None where either is not known."""
        if self.energy_j is None or self.prediction.energy_j is None:
            return None
        return self.prediction.energy_j / self.energy_j - 1.0

    @property
    def is_inside(self) -> bool | None:
        """Whether the measurement lies in the interval."""
        if self.measured_s is None:
            return None
        return self.prediction.low_s <= self.measured_s <= self.prediction.high_s


def check_list(threads: Sequence[int], dtypes: Sequence[str]) -> list[CheckCase]:
    """The frozen set: every model and batch in the first format, one batch in the others and on
    more threads.

    Each is run with the allocator as it comes and with one that keeps what is freed.

    Args:
        threads: Thread counts; the first is the main one.
        dtypes: Formats; the first is the main one.
    """
    runs = [(dtype, threads[0]) for dtype in dtypes] + [(dtypes[0], n) for n in threads[1:]]
    inference, training = [], []
    with _NETWORKS.open(newline="", encoding="utf-8") as lines:
        for line in csv.DictReader(lines):
            *further, last = map(int, line["batches"].split())
            inference += [CheckCase(line["model"], batch, *runs[0]) for batch in further]
            inference += [CheckCase(line["model"], last, *run) for run in runs]
            if line["trained_batch"]:
                batch = int(line["trained_batch"])
                training += [
                    CheckCase(line["model"], batch, *run, is_training=True) for run in runs
                ]
    cases = inference + training
    return [replace(case, heap=heap) for case in cases for heap in ("default", "kept")]


def model_graph(case: CheckCase, models: Values | None = None) -> OperatorGraph:
    """The operators of a check case, by capturing its module in the case's format, with the casts
    that it makes.

    Eager execution leaves attention that it writes out apart.
    """
    from accelsim.calibration.check_models import CHECK_MODELS, in_format
    from accelsim.calibration.measurement.operands import torch_dtype
    from accelsim.dtype import precision
    from accelsim.workloads.capture.torch.meta_module import made
    from accelsim.workloads.capture.torch.module import capture
    from accelsim.workloads.capture.workload import captured_training
    from accelsim.workloads.model import PassShape

    factory = (models or CHECK_MODELS)[case.model]
    # shapes suffice: weights would take time and memory
    network = made(lambda: factory(case.batch))
    module, inputs = in_format(network, torch_dtype(case.dtype))
    rule = "adamw" if case.is_training else None
    workload = capture(
        module.train(case.is_training),
        inputs,
        case.is_training,
        rule,
        name=case.model,
        merge_attention=case.execution != "eager",
        batch_dimension=None,
    )
    shape, policy = PassShape(batch=workload.default.batch), precision(case.dtype)
    if case.is_training:
        single = replace(policy, master_weight=None)
        return captured_training(workload, shape, single, optimizer_name="adamw")
    return workload.lower(shape, policy).graph


def predict(
    cases: Iterable[CheckCase],
    profile: CpuProfile,
    parameters: CpuParameters,
    graph_of: Callable[[CheckCase], OperatorGraph] = model_graph,
) -> list[FrozenPrediction]:
    """Predicted time and 90 % interval of each case.

    Args:
        cases: What will be measured.
        profile: This machine.
        parameters: Its calibration.
        graph_of: The operators of a case.
    """
    cases = list(cases)
    # neither threads nor heap change the graph
    alike = grouped(cases, lambda case: replace(case, threads=1, heap="default"))
    predictions: dict[CheckCase, FrozenPrediction] = {}
    for group in alike.values():
        graph = graph_of(group[0])
        predictions |= {case: _predict(case, graph, profile, parameters) for case in group}
    return [predictions[case] for case in cases]


def _predict(
    case: CheckCase, graph: OperatorGraph, profile: CpuProfile, parameters: CpuParameters
) -> FrozenPrediction:
    """Estimate: ln(true / predicted) is normal, with the spread of the rows and that of a whole run
    as independent parts.
    """
    from accelsim.confidence.residual import run_log_sigma
    from accelsim.cost.cpu import cost_cpu

    table = cost_cpu(
        graph,
        profile,
        parameters=replace(parameters, thread_count=case.threads, keeps_heap=case.heap == "kept"),
    )
    total = table.total_time_s
    rows = run_log_sigma(graph.kind, table.time_s, table.log_sigma, table.shared_log_sigma)
    spread = math.exp(Z90 * math.hypot(rows, table.context_of(table.time_s)))
    return FrozenPrediction(case, total, total / spread, total * spread, table.tier.value)


def measure_model(
    case: CheckCase, budget_s: float = 1.5, device: str = "cpu"
) -> tuple[float, float, float | None, float | None]:
    """Time, noise and energy of one run of a check case on this machine, in a process of its own.

    What the memory allocator keeps from one model changes the next one's page faults; a fresh
    process is what a user has. Even then the heap lies differently from process to process
    (addresses and hash seeds are drawn anew): the time of a model that page-faults, or whose
    repeats differ, is the mean of three to six processes. A kept heap needs but one.

    Args:
        case: What to run.
        budget_s: Time to spend on repeats.
        device: "cpu" or "cuda:N".

    Returns:
        (seconds, noise fraction, joules or None, reference or None): the mean of repeats and
        processes, the median's distance from the best repeat or half the range of the processes,
        and seconds of the reference operator.

    Raises:
        MeasurementError: If the model could not run; says why.
    """
    timings = _timings(case, budget_s, device)
    usable = [timing for timing in timings if case.threads <= 1 or timing["undisturbed"]]
    if not usable:
        raise MeasurementError(
            f"{case.key}: other programs took a core during every repeat; "
            "measure on an idle machine"
        )
    times = [float(t["mean_s"]) for t in usable]
    references = [t["reference_s"] for t in usable if t["reference_s"]]
    time_s = statistics.fmean(times)
    noise = max(float(usable[0]["noise_fraction"]), (max(times) - min(times)) / (2.0 * time_s))
    reference_s = statistics.median(references) if references else None
    return time_s, noise, usable[0]["energy_j"], reference_s


def _timings(case: CheckCase, budget_s: float, device: str) -> list[Document]:
    """Timings of as many processes as it takes."""
    timing = _timed(case, budget_s, device)
    timings = [timing]
    if device != "cpu" or case.heap == "kept":
        return timings
    spread = timing["mean_s"] / timing["time_s"] - 1.0
    if timing["minor_faults"] > _FEW_FAULTS or spread > _QUIET_FRACTION:
        while len(timings) < _MOST_PROCESSES and not _is_settled(timings):
            timings.append(_timed(case, _FURTHER_BUDGET * budget_s, device))
    return timings


def _is_settled(timings: Sequence[Values]) -> bool:
    """Whether the mean of the processes is known well enough."""
    if len(timings) < _PROCESSES:
        return False
    times = [float(timing["mean_s"]) for timing in timings]
    standard_error = statistics.stdev(times) / math.sqrt(len(times))
    return standard_error <= _ERROR_FRACTION * statistics.fmean(times)


def _timed(case: CheckCase, budget_s: float, device: str) -> Document:
    """The timing of one process, which is given up after two minutes on a CPU and ten on a GPU,
    where compiling takes that long.
    """
    settings = json.dumps({**asdict(case), "budget_s": budget_s, "device": device})
    command = [sys.executable, "-m", "accelsim.calibration.model_timer", settings]
    limit_s = 120.0 if device == "cpu" else 600.0
    limits = {"OMP_NUM_THREADS", "MKL_NUM_THREADS"}
    environment = {name: value for name, value in os.environ.items() if name not in limits}
    if case.heap == "kept":
        environment["GLIBC_TUNABLES"] = _KEPT_HEAP
    try:
        answer = subprocess.run(  # noqa: S603  (a fixed command, found on the user's own PATH)
            command, capture_output=True, text=True, timeout=limit_s, check=False, env=environment
        )
    except subprocess.TimeoutExpired:
        raise MeasurementError(f"{case.key}: took longer than {limit_s:.0f} s") from None
    if answer.returncode != 0:
        lines = answer.stderr.strip().splitlines()
        raise MeasurementError(f"{case.key}: {lines[-1] if lines else 'the process died'}")
    timing: Document = json.loads(answer.stdout)
    return timing


class MeasurementError(AccelsimError):
    """A model of the check could not be measured."""


def freeze(predictions: Sequence[FrozenPrediction], origin: Values) -> Document:
    """Predictions as a document with a hash over its content.

    Args:
        predictions: Made before anything was measured.
        origin: Machine, run and date they come from.
    """
    rows = [(values := asdict(p)).pop("case") | values for p in predictions]
    body: Document = {"origin": dict(origin), "predictions": rows}
    return {**body, "hash": _digest(body)}


def _digest(body: Values) -> str:
    return sha256(json.dumps(body, sort_keys=True, allow_nan=False).encode()).hexdigest()


def read_frozen(document: Values, path: str) -> list[FrozenPrediction]:
    """Predictions of a frozen document.

    Raises:
        ProfileError: If its hash does not match, or a field is missing.
    """
    body = {key: value for key, value in document.items() if key != "hash"}
    if document.get("hash") != _digest(body):
        raise ProfileError(
            path, ["hash: does not match; the predictions were changed after they were frozen"]
        )
    try:
        return [
            FrozenPrediction(
                **_fields(FrozenPrediction, row), case=CheckCase(**_fields(CheckCase, row))
            )
            for row in document["predictions"]
        ]
    except (KeyError, TypeError) as error:
        raise ProfileError(path, [f"predictions: {error}"]) from None


def _fields(kind: type[CheckCase | FrozenPrediction], row: Values) -> Document:
    """Those fields of a class that a row has."""
    return {name: row[name] for name in kind.__dataclass_fields__ if name in row}


def summary(results: Sequence[CheckResult]) -> Document:
    """Mean, median and largest error, and the share of intervals that hold their measurement; None
    without results.
    """
    errors = [abs(r.error_fraction) for r in results if r.error_fraction is not None]
    if not errors:
        return {"count": 0} | dict.fromkeys(SUMMARY_FIGURES)
    inside = statistics.fmean(r.is_inside for r in results if r.is_inside is not None)
    figures = (statistics.fmean(errors), statistics.median(errors), max(errors), inside)
    return {"count": len(errors)} | dict(zip(SUMMARY_FIGURES, figures, strict=True))


def drift(old: Mapping[str, float], new: Mapping[str, float]) -> tuple[float, bool]:
    """Median change of the models measured both times, and whether it exceeds the limit.

    Args:
        old: Measured seconds by case key, when the calibration was made.
        new: The same now.

    Raises:
        InvalidValueError: If no case was measured both times.
    """
    ratios = [new[key] / old[key] for key in new.keys() & old.keys()]
    if not ratios:
        allowed = "at least one model measured both times"
        raise InvalidValueError("runs", "no model in common", allowed)
    change = statistics.median(ratios) - 1.0
    return change, abs(change) > _DRIFT_FRACTION
