"""Suites `training-scaling`, `training-time`, `training-power`: data-parallel training as NVIDIA's
DeepLearningExamples and MLPerf Training report it.

`training-scaling` scores the speed-up from few devices to many, so that neither the samples a
second of either count. `training-time` takes the epochs that a submission needed, and adds no
evaluation or start-up. `training-power` is the mean power of a metered node. Models, data sets,
clusters and what is refused are in ``calibration/published/training_mlperf.yaml``. Every device has
a copy of the model, or of its dense part, unless plans are named; MLPerf's run compiled, in 16 bits
where no other format is. A row of examples with
two batches has the larger one in mixed precision.
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
from accelsim.errors import AccelsimError
from accelsim.estimation.evidence import residual_log_sigma
from accelsim.frozen import frozen
from accelsim.plain import Values
from accelsim.scoreboard.data_folder import DataFolder, Table, published, schema
from accelsim.scoreboard.names import workload_of
from accelsim.scoreboard.parameters import parameters
from accelsim.scoreboard.suite import (
    Batch,
    Prediction,
    fixed_prediction,
    refused_batch,
    register_suite,
)
from accelsim.training.estimate import iteration_energy_j
from accelsim.training.plan import ParallelismPlan, parse_plan, plan_on
from accelsim.training.trust import (
    iteration_log_sigma,
    row_spreads,
    speed_up_setting,
)
from tools.scoreboard.training_plans import PlannedRow, PlannedRun, iteration_of

EXAMPLES_SCHEMA = schema("training/nvidia_deeplearningexamples.csv.gz")
PAIRS_SCHEMA = schema("training/mlperf_scaling_pairs.csv")
TIMES_SCHEMA = schema("training/mlperf_time_to_train.csv.gz")
POWER_SCHEMA = schema("training/mlperf_power.csv")
_FACTS: Values = published("training_mlperf")
#: Least spread of a speed-up: both ends share the errors of kernels; estimate.
_RATIO_LOG_SIGMA = 0.08
#: Spread of a node's power beside its devices': the share of its limit that the host draws.
_POWER_LOG_SIGMA = 0.1


@frozen
class _Figure:
    """One row with its prediction; `row.measured_s` is in the suite's quantity, `setting` that of
    iterations whose time or speed-up is asked; `origin` is the board or model left out with it.
    """

    row: PlannedRow
    predicted: float = float("nan")
    log_sigma: float = float("nan")
    setting: str = ""
    origin: str = ""


def _batches(figures: Iterator[_Figure]) -> list[Batch]:
    parts: dict[tuple[str, str], list[_Figure]] = defaultdict(list)
    for figure in figures:
        parts[figure.row.device, figure.row.refusal].append(figure)
    return [_batch(own) for own in parts.values()]


def _batch(own: list[_Figure]) -> Batch:
    first = own[0].row
    group = np.array([figure.row.group for figure in own], dtype=str)
    label = np.array([figure.row.label for figure in own], dtype=str)
    columns = (first.device, group, label, np.array([figure.row.measured_s for figure in own]))
    if first.refusal or first.run is None:
        return refused_batch(*columns, first.refusal)
    profile = first.run.profile
    values = np.array([figure.predicted for figure in own])
    sigma = np.array([figure.log_sigma for figure in own])
    predict = fixed_prediction(Prediction(values, sigma))
    setting = np.array([figure.setting for figure in own])
    origin = np.array([figure.origin or profile.name for figure in own])
    unknown = np.full(len(own), np.nan)
    return Batch(
        first.device, profile, *columns[1:], unknown, predict, setting=setting, origin=origin
    )


def _refused(row: PlannedRow, error: AccelsimError) -> _Figure:
    return _Figure(replace(row, run=None, refusal=str(error).split(". ")[0].rstrip(".")))


@lru_cache(maxsize=1024)
def _run(
    benchmark: str,
    where: str,
    devices: int,
    batch: int,
    precision: str,
    seq_len: int | None = None,
    device: str = "",
) -> PlannedRun | str:
    """A data-parallel run of a benchmark; why there is none otherwise."""
    facts = _FACTS["models"].get(benchmark)
    if facts is None:
        return str(_FACTS["refused"].get(benchmark, f"no workload {benchmark}"))
    plans = _plans(facts, devices, batch)
    if not plans:
        return "a batch that the devices do not divide: other parallelism, not stated"
    options: list[tuple[str, Any]] = [("precision", precision), ("execution", facts["execution"])]
    options += [(name, facts[name]) for name in ("seq_len", "image_size") if name in facts]
    if seq_len is not None:
        options.append(("seq_len", seq_len))
    model = workload_of(facts["workload"])
    asked = (model, cluster(where), devices, batch, plans, tuple(options))
    return PlannedRun(*asked, device=device)


def _plans(facts: Values, devices: int, batch: int) -> tuple[ParallelismPlan, ...]:
    """The plans of a benchmark on so many devices, data parallelism where none is named; those that
    do not divide devices and batch are left out.
    """
    found = []
    for words in facts.get("plans", [""]):
        values = parse_plan(words)
        ranks = math.prod(values.get(name, 1) for name in ("tp", "pp", "cp"))
        copies = devices // ranks
        if devices % ranks == 0 and batch % copies == 0:
            each = 1 if values else batch // copies
            found.append(plan_on(devices, values | {"microbatch": each}))
    return tuple(found)


def _submitted(
    benchmark: str, chip: str, devices: int, batch: int, board: str = ""
) -> PlannedRun | str:
    """A submission to MLPerf.

    Args:
        benchmark: Its benchmark.
        chip: Class of its devices, which has a cluster.
        devices: Devices.
        batch: Samples of an iteration.
        board: Board of that class; empty where the row does not name it.
    """
    precision = _FACTS["formats"].get(benchmark, {}).get(chip, "bf16")
    profile = _FACTS["boards"].get(board, _FACTS["boards"].get(chip, ""))
    where = _FACTS["clusters"][chip]
    return _run(benchmark, where, devices, batch, precision, device=profile)


def _network(table: Table, row: int) -> str:
    """The benchmark of a row, by the name of the network it means in that round."""
    name = str(table["benchmark"][row])
    other = _FACTS["renamed"].get(name)
    is_later = other is not None and str(table["round"][row]) >= other["from"]
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
def load_scaling(folder: DataFolder) -> list[Batch]:
    """Pairs of rows that differ in the count of devices."""
    figures: list[_Figure] = []
    pairs = folder.table(PAIRS_SCHEMA)
    examples = folder.table(EXAMPLES_SCHEMA)
    if pairs is not None:
        figures += [_pair(pairs, row) for row in range(len(pairs))]
    if examples is not None:
        figures += _examples(examples)
    return _batches(iter(figures))


def _speed_up(row: PlannedRow, small: PlannedRun | str, large: PlannedRun | str) -> _Figure:
    for run in (small, large):
        if isinstance(run, str):
            return _Figure(replace(row, refusal=run))
    assert isinstance(small, PlannedRun)
    assert isinstance(large, PlannedRun)
    try:
        few, many = (iteration_of(run) for run in (small, large))
    except AccelsimError as error:
        return _refused(row, error)
    rates = [run.global_batch / one.iteration_s for run, one in ((small, few), (large, many))]
    setting, origin = speed_up_setting(many), large.workload.name
    like = residual_log_sigma(
        str(large.profile.device_class), setting, parameters().spreads(origin)
    )
    sigma = max(_RATIO_LOG_SIGMA, like)
    return _Figure(replace(row, run=large), rates[1] / rates[0], sigma, str(setting), origin)


def _pair(table: Table, row: int) -> _Figure:
    benchmark = _network(table, row)
    chip = str(table["acc"][row])
    few = int(table["n_small"][row])
    many = int(table["n_large"][row])
    label = f"{table['round'][row]} {table['org'][row]} {benchmark} {few} to {many} {chip}"
    ratio = float(table["tput_large"][row] / table["tput_small"][row])
    found = PlannedRow(chip, benchmark, label, ratio)
    where = _FACTS["clusters"].get(chip)
    if where is None:
        return _Figure(replace(found, refusal=f"no cluster of {chip} in the catalogue"))
    batches = [table[name][row] for name in ("gbs_small", "gbs_large")]
    if not np.isfinite(batches).all():
        return _Figure(replace(found, refusal="no global batch in the row"))
    runs = [
        _submitted(benchmark, chip, count, int(batch))
        for count, batch in zip((few, many), batches, strict=True)
    ]
    return _speed_up(found, *runs)


def _examples(table: Table) -> Iterator[_Figure]:
    """Training rows of several GPUs against the one of one GPU beside them."""
    keys = ("framework", "family", "gpu", "precision", "batch", "metric_header", "seq_len")
    is_asked = (table["task_mode"] == "training") & (table["metric_kind"] == "throughput")
    groups: dict[tuple[str, ...], dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for row in np.flatnonzero(is_asked).tolist():
        key = (*(str(table[name][row]) for name in keys), str(table["source"][row]))
        groups[key][str(table["n_gpus"][row])].append(row)
    for key, counts in groups.items():
        for count, rows in counts.items():
            if count not in {"", "1"}:
                yield from _example(table, dict(zip(keys, key, strict=False)), counts, rows)


def _example(
    table: Table, about: Mapping[str, str], counts: Mapping[str, list[int]], rows: list[int]
) -> Iterator[_Figure]:
    for row in rows:
        devices = int(table["n_gpus"][row])
        label = f"{about['framework']} {about['family']} {about['precision']} 1 to {devices}"
        alone = counts.get("1", [])
        nothing = PlannedRow(about["gpu"], about["family"], label, float("nan"))
        if len(alone) != 1 or len(rows) != 1:
            reason = "no single row of one GPU beside it, or several tables under one heading"
            yield _Figure(replace(nothing, refusal=reason))
            continue
        ratio = float(table["value"][row] / table["value"][alone[0]])
        found = replace(nothing, measured_s=ratio)
        yield _example_figure(found, about, devices)


def _example_figure(found: PlannedRow, about: Mapping[str, str], devices: int) -> _Figure:
    where = _FACTS["clusters"].get(about["gpu"])
    benchmark = _FACTS["examples"].get(about["family"])
    batches = [int(word) for word in re.findall(r"\d+", about["batch"])]
    precision = _FACTS["precisions"].get(about["precision"])
    if where is None or benchmark is None or precision is None:
        lacking = f"no workload {about['family']}" if benchmark is None else "no board or precision"
        return _Figure(replace(found, refusal=lacking))
    if not batches:
        return _Figure(replace(found, refusal="no batch of one GPU in the row"))
    each = max(batches) if precision == "fp16" else min(batches)
    seq_len = int(about["seq_len"]) if about["seq_len"].isdigit() else None
    runs = [_run(benchmark, where, n, n * each, precision, seq_len) for n in (1, devices)]
    return _speed_up(found, *runs)


# -- time to train


@register_suite(
    "training-time",
    "MLPerf Training: time to train with the epochs it took",
    (TIMES_SCHEMA,),
    "model",
    has_best_alone=True,
)
def load_times(folder: DataFolder) -> list[Batch]:
    """Rows by accelerator."""
    table = folder.table(TIMES_SCHEMA)
    if table is None:
        return []
    return _batches(_time(table, row) for row in range(len(table)))


def _time(table: Table, row: int) -> _Figure:
    chip = str(table["acc_class"][row])
    benchmark = _network(table, row)
    count = float(table["n_acc"][row])
    devices = int(count) if count >= 1 else 0
    label = f"{table['round'][row]} {table['org'][row]} {benchmark} on {devices} {chip}"
    measured_s = 60.0 * float(table["minutes_olympic_mean"][row])
    found = PlannedRow(chip, benchmark, label, measured_s)
    if not devices:
        return _Figure(replace(found, refusal="no count of accelerators in the row"))
    run, samples = _submission(table, row, benchmark, chip, devices)
    if isinstance(run, str):
        return _Figure(replace(found, refusal=run))
    try:
        iteration = iteration_of(run)
    except AccelsimError as error:
        return _refused(found, error)
    seconds = samples / run.global_batch * iteration.iteration_s
    setting = str(row_spreads(iteration).setting)
    return _Figure(replace(found, run=run), seconds, iteration_log_sigma(iteration), setting)


def _submission(
    table: Table, row: int, benchmark: str, chip: str, devices: int
) -> tuple[PlannedRun | str, float]:
    """The run of a submission, or why there is none, and the samples it saw."""
    where = _FACTS["clusters"].get(chip)
    if where is None:
        return f"no cluster of {chip} in the catalogue", 0.0
    batch = float(table["global_batch_size"][row])
    epochs = float(table["epochs_median"][row])
    samples = _sample_count(benchmark, epochs)
    if not np.isfinite([batch, samples]).all():
        known = _FACTS["refused"].get(benchmark)
        return known or "no batch or epochs in the row, or no count of samples", 0.0
    board = str(table["acc_model"][row])
    return _submitted(benchmark, chip, devices, int(batch), board), samples


def _sample_count(benchmark: str, epochs: float) -> float:
    """Samples of a run; NaN where unknown. Later rounds log samples in place of epochs; DLRM's
    first epoch is number 1.
    """
    size = _FACTS["samples"].get(benchmark)
    if benchmark in _FACTS["models"] and epochs > _FACTS["least_sample_count"]:
        return epochs
    if size is None:
        return float("nan")
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
def load_power(folder: DataFolder) -> list[Batch]:
    """Metered runs, with the usual batch of submissions on H100."""
    power = folder.table(POWER_SCHEMA)
    times = folder.table(TIMES_SCHEMA)
    if power is None or times is None:
        return []
    batches: dict[tuple[str, int], list[float]] = defaultdict(list)
    for row in np.flatnonzero((times["acc_class"] == "H100") & (times["n_acc"] >= 1)).tolist():
        key = (str(times["benchmark"][row]), int(times["n_acc"][row]))
        batches[key].append(float(times["global_batch_size"][row]))
    return _batches(_power(power, row, batches) for row in range(len(power)))


def _power(table: Table, row: int, batches: Mapping[tuple[str, int], list[float]]) -> _Figure:
    system = str(table["system"][row])
    benchmark = str(table["benchmark"][row])
    measured = float(table["avg_power_W_per_node_meter"][row])
    found = PlannedRow("H100", benchmark, f"{system} {benchmark} {table['run'][row]}", measured)
    devices = 8 * int(system.partition("x")[0])
    batch = _usual_batch(batches, benchmark, devices)
    if batch is None:
        return _Figure(replace(found, refusal=f"no submission of {benchmark} states its batch"))
    run = _submitted(benchmark, "H100", devices, batch)
    if isinstance(run, str):
        return _Figure(replace(found, refusal=run))
    try:
        iteration = iteration_of(run)
    except AccelsimError as error:
        return _refused(found, error)
    energy = iteration_energy_j(iteration)
    if energy is None:
        return _Figure(replace(found, refusal="no idle power of the device"))
    nodes = devices / iteration.setup.cluster.node.device_count if iteration.setup.cluster else 1
    watts = energy / iteration.iteration_s / nodes
    return _Figure(replace(found, run=run), watts, _POWER_LOG_SIGMA)


def _usual_batch(
    batches: Mapping[tuple[str, int], list[float]], benchmark: str, devices: int
) -> int | None:
    """Median batch of submissions on as many devices; where there is none, as many samples a device
    as on other counts.
    """
    same = [batch for batch in batches.get((benchmark, devices), []) if np.isfinite(batch)]
    if same:
        return int(np.median(same))
    each = [
        batch / count
        for (name, count), found in batches.items()
        for batch in found
        if name == benchmark and np.isfinite(batch)
    ]
    return devices * max(round(float(np.median(each))), 1) if each else None
