"""Suites `training-scaling`, `training-time`, `training-power`: data-parallel training as NVIDIA's
DeepLearningExamples and MLPerf Training report it.

`training-scaling` scores the speed-up from few devices to many, so that neither the samples a
second of either count; where a table has no row of fewer, those of one GPU are predicted.
`training-time` takes the epochs that a submission needed, and adds no evaluation or start-up.
`training-power` is the mean power of a metered node. Models, data sets, clusters and what is
refused are in ``calibration/published/training_mlperf.yaml``. Every device has a copy of the model,
or of its dense part, unless plans are named; MLPerf's run compiled, in 16 bits where no other
format is. A row of examples with two batches has the larger one in mixed precision.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from accelsim.catalog.clusters import cluster
from accelsim.errors import InputError
from accelsim.estimation.evidence import POWER_LOG_SIGMA, residual_log_sigma
from accelsim.plain import Values
from accelsim.scoreboard.data_folder import DataFolder, published, schema
from accelsim.scoreboard.measured_runs import MeasuredRun, run_batches
from accelsim.scoreboard.names import cluster_of, workload_of
from accelsim.scoreboard.parameters import parameters
from accelsim.scoreboard.suite import MeasuredBatch, register_suite
from accelsim.training.estimate import iteration_energy_j
from accelsim.training.plan import ParallelismPlan, parse_plan, plan_on
from accelsim.training.trust import (
    iteration_log_sigma,
    row_spreads,
    speed_up_setting,
)
from tools.scoreboard.left_out import others_log_sigma
from tools.scoreboard.training_plans import PlannedRun, iteration_of

EXAMPLES_SCHEMA = schema("training/nvidia_deeplearningexamples.csv.gz")
PAIRS_SCHEMA = schema("training/mlperf_scaling_pairs.csv")
TIMES_SCHEMA = schema("training/mlperf_time_to_train.csv.gz")
POWER_SCHEMA = schema("training/mlperf_power.csv")
_FACTS: Values = published("training_mlperf")
#: Least spread of a speed-up: both ends share the errors of kernels; estimate.
_RATIO_LOG_SIGMA = 0.08
#: What the label of a speed-up says whose one GPU is predicted.
_ONE_PREDICTED = ", one GPU as predicted"
#: Class of a metered system whose name has none: that of most submissions.
_METERED = "H100"


@lru_cache(maxsize=1024)
def _run(
    benchmark: str,
    where: str,
    devices: int,
    batch: int,
    precision: str,
    seq_len: int | None = None,
    device: str = "",
) -> PlannedRun:
    """A data-parallel run of a benchmark.

    Raises:
        InputError: If there is none; it says why.
    """
    facts = _FACTS["models"].get(benchmark)
    if facts is None and benchmark in _FACTS["refused"]:
        raise InputError(_FACTS["refused"][benchmark])
    facts = facts or {"workload": benchmark, "execution": "eager"}
    plans = _plans(facts, devices, batch)
    if not plans:
        raise InputError("a batch that the devices do not divide: other parallelism, not stated")
    options: list[tuple[str, Any]] = [("precision", precision), ("execution", facts["execution"])]
    options += [
        (name, facts[name]) for name in ("seq_len", "image_size", "optimizer") if name in facts
    ]
    if seq_len is not None:
        options.append(("seq_len", seq_len))
    model = workload_of(facts["workload"])
    asked = (model, cluster(where), devices, batch, plans, tuple(options))
    return PlannedRun(*asked, device=device)


def _plans(facts: Values, devices: int, batch: int) -> tuple[ParallelismPlan, ...]:
    """The plans of a benchmark on so many devices, data parallelism where none is named; those that
    do not divide devices and batch are left out.
    """
    plans = []
    for words in facts.get("plans", [""]):
        values = parse_plan(words)
        ranks = math.prod(values.get(name, 1) for name in ("tp", "pp", "cp"))
        copies = devices // ranks
        if devices % ranks == 0 and batch % copies == 0:
            each = 1 if values else batch // copies
            plans.append(plan_on(devices, values | {"microbatch": each}))
    return tuple(plans)


def _submitted(benchmark: str, chip: str, devices: int, batch: int, board: str = "") -> PlannedRun:
    """A submission to MLPerf; errors as of `_run`.

    Args:
        benchmark: Its benchmark.
        chip: Class of its devices, which has a cluster.
        devices: Devices.
        batch: Samples of an iteration.
        board: Board of that class; empty where the row does not name it.
    """
    precision = _FACTS["formats"].get(benchmark, {}).get(chip, "bf16")
    profile = _FACTS["boards"].get(board, _FACTS["boards"].get(chip, ""))
    trained = _trained(benchmark, devices, batch)
    return _run(benchmark, _cluster(chip), trained, batch, precision, device=profile)


def _trained(benchmark: str, devices: int, batch: int) -> int:
    """Devices that train: as many as samples where there are fewer of these, and others of a run
    evaluate (NVIDIA's U-Net has 72 GPUs and a batch of 56).
    """
    is_copied = "plans" not in _FACTS["models"].get(benchmark, {})
    return batch if is_copied and batch < devices else devices


def _cluster(chip: str) -> str:
    """The cluster of a class of devices: as the facts have it, else as the catalogue names it."""
    return str(_FACTS["clusters"].get(chip) or cluster_of(chip))


def _chip(named: str, system: str) -> str:
    """Class of the devices of a row; that of the system's name where the row's has no figure."""
    match = re.search(r"tpu-v\d[a-z]?", system)
    return match[0].upper() if match and not re.search(r"\d", named) else named


def _network(record: Values) -> str:
    """The benchmark of a row, by the name of the network it means in that round."""
    name = str(record["benchmark"])
    other = _FACTS["renamed"].get(name)
    is_later = other is not None and record["round"] >= other["from"]
    return str(other["benchmark"]) if is_later else name


# -- speed-ups


@register_suite(
    "training-scaling",
    "Speed-up of data-parallel training over devices",
    (),
    "model",
    optional_files=(EXAMPLES_SCHEMA, PAIRS_SCHEMA),
    quantity="speed-up",
    has_best_alone=True,
)
def load_scaling(folder: DataFolder) -> list[MeasuredBatch]:
    """Pairs of rows that differ in the count of devices."""
    rows = [_pair(record) for record in folder.records(PAIRS_SCHEMA)]
    return run_batches([*rows, *_examples(folder.records(EXAMPLES_SCHEMA))])


def _speed_up(row: MeasuredRun, small: PlannedRun, large: PlannedRun) -> MeasuredRun:
    few, many = (iteration_of(run) for run in (small, large))
    rates = [run.global_batch / one.iteration_s for run, one in ((small, few), (large, many))]
    setting, origin = speed_up_setting(many), large.workload.name
    like = residual_log_sigma(
        str(large.profile.device_class), setting, parameters().spreads(origin)
    )
    return replace(
        row,
        predicted_s=rates[1] / rates[0],
        log_sigma=max(_RATIO_LOG_SIGMA, like),
        setting=str(setting),
        origin=origin,
        profile=large.profile.name,
    )


def _pair(record: Values) -> MeasuredRun:
    benchmark, chip = _network(record), _chip(record["acc"], record["source"])
    counts = [int(record[name]) for name in ("n_small", "n_large")]
    label = "{} {} {} {} to {} {}".format(record["round"], record["org"], benchmark, *counts, chip)

    def figure(row: MeasuredRun) -> MeasuredRun:
        _cluster(chip)
        batches = [record[name] for name in ("gbs_small", "gbs_large")]
        if not np.isfinite(batches).all():
            raise InputError("no global batch in the row")
        runs = [
            _submitted(benchmark, chip, count, int(batch))
            for count, batch in zip(counts, batches, strict=True)
        ]
        return _speed_up(row, *runs)

    ratio = record["tput_large"] / record["tput_small"]
    return MeasuredRun(chip, benchmark, label, ratio).answered(figure)


def _examples(records: Iterator[Values]) -> Iterator[MeasuredRun]:
    """Training rows of several GPUs against those of the fewest of their table; where a table has
    one count alone, against one GPU as `train` has it.
    """
    keys = ("framework", "family", "gpu", "precision", "batch", "metric_header", "seq_len")
    groups: dict[tuple[str, ...], dict[int, list[Values]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        if (record["task_mode"], record["metric_kind"]) == ("training", "throughput"):
            key = (*(record[name] for name in keys), record["source"])
            groups[key][_devices_of(record)].append(record)
    for counts in groups.values():
        fewest = min(counts)
        for count in sorted(set(counts) - {1}):
            for record in counts[count]:
                is_pair = fewest < count and len(counts[fewest]) == len(counts[count]) == 1
                is_one_table = is_pair or len(counts[count]) == 1
                base = counts[fewest][0] if is_pair else None
                yield _example(record, base) if is_one_table else _several(record)


def _devices_of(record: Values) -> int:
    """Devices of a row, all its nodes together; 1 where it names none."""
    counts = (record["n_gpus"], record["n_nodes"])
    return math.prod(int(count) for count in counts if count.isdigit())


def _label(record: Values, fewest: int = 1) -> str:
    words = " ".join(record[name] for name in ("framework", "family", "precision"))
    return f"{words} {fewest} to {_devices_of(record)}"


def _several(record: Values) -> MeasuredRun:
    row = MeasuredRun(record["gpu"], record["family"], _label(record), math.nan)
    return row.refused("several tables under one heading")


def _example(record: Values, base: Values | None) -> MeasuredRun:
    """A row against the one of the fewest GPUs of its table; one GPU as predicted where None."""
    fewest = 1 if base is None else _devices_of(base)
    label = _label(record, fewest) + (_ONE_PREDICTED if base is None else "")
    row = MeasuredRun(record["gpu"], record["family"], label, math.nan)
    return row.answered(lambda row: _example_figure(row, record, base))


def _example_figure(row: MeasuredRun, record: Values, base: Values | None) -> MeasuredRun:
    where = _FACTS["clusters"].get(record["gpu"])
    family = record["family"]
    benchmark = _FACTS["examples"].get(family) or workload_of(family).name
    batches = _batches(record)
    precision = _FACTS["precisions"].get(record["precision"])
    if where is None or precision is None:
        raise InputError("no board or precision")
    if not batches:
        raise InputError("no batch of one GPU in the row")
    each = max(batches) if precision == "fp16" else min(batches)
    seq_len = int(record["seq_len"]) if record["seq_len"].isdigit() else None
    counts = (1 if base is None else _devices_of(base), _devices_of(record))
    runs = [_run(benchmark, where, n, n * each, precision, seq_len) for n in counts]
    if base is not None:
        return _speed_up(replace(row, measured_s=record["value"] / base["value"]), *runs)
    samples = _FACTS["rates"].get(family)
    if samples is None:
        raise InputError("no row of fewer GPUs beside it, and its rate counts no samples")
    alone = runs[0].global_batch / iteration_of(runs[0]).iteration_s / samples
    views = row.views | {_ONE_PREDICTED.strip(" ,")}
    return _speed_up(replace(row, measured_s=record["value"] / alone, views=views), *runs)


def _batches(record: Values) -> list[int]:
    """Batches of one GPU: one a precision where the column of a row says so, else one number, which
    may have commas or a k.
    """
    column = re.search(r'"([^"]*[Bb]atch[^"]*)":', record["row_context"])
    is_one = column is not None and not re.search(r"mixed|FP32|TF32|FP16|BF16", column[1])
    text = record["batch"].replace(",", "") if is_one else record["batch"]
    matches = re.findall(r"(\d+)(k?)", text)
    return [int(number) * (1024 if thousands else 1) for number, thousands in matches]


# -- time to train


@register_suite(
    "training-time",
    "MLPerf Training: time to train with the epochs it took",
    (TIMES_SCHEMA,),
    "model",
    has_best_alone=True,
)
def load_times(folder: DataFolder) -> list[MeasuredBatch]:
    """Rows by accelerator."""
    return run_batches(map(_time, folder.records(TIMES_SCHEMA)))


def _time(record: Values) -> MeasuredRun:
    chip, benchmark = _chip(record["acc_class"], record["system"]), _network(record)
    devices = int(record["n_acc"]) if record["n_acc"] >= 1 else 0
    label = f"{record['round']} {record['org']} {benchmark} on {devices} {chip}"

    def figure(row: MeasuredRun) -> MeasuredRun:
        if not devices:
            raise InputError("no count of accelerators in the row")
        run, samples = _submission(record, benchmark, chip, devices)
        iteration = iteration_of(run)
        return replace(
            row,
            predicted_s=samples / run.global_batch * iteration.iteration_s,
            log_sigma=iteration_log_sigma(iteration),
            setting=str(row_spreads(iteration).setting),
            profile=run.profile.name,
        )

    measured_s = 60.0 * record["minutes_olympic_mean"]
    return MeasuredRun(chip, benchmark, label, measured_s).answered(figure)


def _submission(
    record: Values, benchmark: str, chip: str, devices: int
) -> tuple[PlannedRun, float]:
    """The run of a submission, and the samples it saw; errors as of `_run`."""
    batch = record["global_batch_size"]
    _cluster(chip)
    samples = _sample_count(benchmark, record["epochs_median"])
    if not np.isfinite([batch, samples]).all():
        known = _FACTS["refused"].get(benchmark)
        raise InputError(known or "no batch or epochs in the row, or no count of samples")
    return _submitted(benchmark, chip, devices, int(batch), record["acc_model"]), samples


def _sample_count(benchmark: str, epochs: float) -> float:
    """Samples of a run; NaN where unknown. Later rounds log samples in place of epochs; DLRM's
    first epoch is number 1.
    """
    if benchmark in _FACTS["models"] and epochs > _FACTS["least_sample_count"]:
        return epochs
    size = _FACTS["samples"].get(benchmark, math.nan)
    return float((epochs - _FACTS["first_epoch"].get(benchmark, 0.0)) * size)


# -- power


@register_suite(
    "training-power",
    "MLPerf Training: mean power of a metered node",
    (POWER_SCHEMA, TIMES_SCHEMA),
    "model",
    quantity="power of a node, W",
    has_best_alone=True,
)
def load_power(folder: DataFolder) -> list[MeasuredBatch]:
    """Metered runs, with the usual batch of submissions on H100; their spread is that of the other
    benchmarks.
    """
    batches: dict[tuple[str, int], list[float]] = defaultdict(list)
    for record in folder.records(TIMES_SCHEMA):
        is_counted = record["acc_class"] == "H100" and record["n_acc"] >= 1
        if is_counted and math.isfinite(record["global_batch_size"]):
            key = (record["benchmark"], int(record["n_acc"]))
            batches[key].append(record["global_batch_size"])
    runs = [_power(record, batches) for record in folder.records(POWER_SCHEMA)]
    errors: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        if not run.refusal:
            errors[run.group].append(math.log(run.predicted_s / run.measured_s))
    sigmas = {}
    for benchmark in errors:
        others = [np.array(own) for name, own in errors.items() if name != benchmark]
        sigmas[benchmark] = others_log_sigma(others) if len(others) > 1 else POWER_LOG_SIGMA
    return run_batches(replace(run, log_sigma=sigmas.get(run.group, math.nan)) for run in runs)


def _power(record: Values, batches: Mapping[tuple[str, int], list[float]]) -> MeasuredRun:
    system, benchmark = record["system"], record["benchmark"]
    chip, nodes, per_node = _metered(system)
    devices = (nodes or int(record["n_nodes_metered"] or 1)) * per_node

    def figure(row: MeasuredRun) -> MeasuredRun:
        batch = _usual_batch(batches, benchmark, devices)
        run = _submitted(benchmark, chip, devices, batch)
        iteration = iteration_of(run)
        energy = iteration_energy_j(iteration)
        if energy is None:
            raise InputError("no idle power of the device")
        watts = energy / iteration.iteration_s * per_node / run.device_count
        profile = run.profile.name
        return replace(row, predicted_s=watts, profile=profile)

    label = f"{system} {benchmark} {record['run']}"
    measured = record["avg_power_W_per_node_meter"]
    return MeasuredRun(chip, benchmark, label, measured).answered(figure)


def _metered(system: str) -> tuple[str, int, int]:
    """Class of the devices, nodes (0 where its name has none), devices of a node of a system such
    as `9xSMC-H100-SXM-80GB` or `SR780aV3-8xB200_SXM_180GB`; eight where none stands.
    """
    chip = re.search(r"(?<![A-Z0-9])(?:GB|[ABHV])\d{3}(?![0-9])", system.partition("x")[2])
    nodes, count = re.match(r"(\d+)x", system), re.search(r"[-_x](\d+)x", system)
    return (
        chip[0] if chip else _METERED,
        int(nodes[1]) if nodes else 0,
        int(count[1]) if count else 8,
    )


def _usual_batch(
    batches: Mapping[tuple[str, int], list[float]], benchmark: str, devices: int
) -> int:
    """Median batch of submissions on as many devices; where there is none, as many samples a device
    as on other counts.

    Raises:
        InputError: If no submission states its batch.
    """
    if same := batches.get((benchmark, devices)):
        return int(np.median(same))
    each = [
        batch / count
        for (name, count), found in batches.items()
        for batch in found
        if name == benchmark
    ]
    if not each:
        raise InputError(f"no submission of {benchmark} states its batch")
    return devices * max(round(float(np.median(each))), 1)
