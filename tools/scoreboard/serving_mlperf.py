"""Suite `serving-mlperf`: what a submission to MLPerf Inference serves under its latency limit over
what it does offline.

The server scenario sends samples as a Poisson process and asks that 99 % be answered within the
benchmark's limit. A device takes what waits, as many as it likes, as soon as it is free: the
largest rate that keeps the limit, over the largest rate of any batch, of the same networks and
formats as in suite `mlperf-inference`. Devices of a system share the samples evenly. Rows without
an offline row of the same system are refused by name, and those that state less than a hundredth
of the offline rate, which no limit explains. Intervals have the spread of other boards' ratios.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from accelsim.capacity.batch_queue import BatchTimes, largest_rate_per_s
from accelsim.errors import InputError, UnsupportedOperatorError
from accelsim.estimation.evidence import residual_log_sigma
from accelsim.scoreboard.data_folder import DataFolder, Table, published
from accelsim.scoreboard.measured_runs import MeasuredRun, run_batches
from accelsim.scoreboard.mlperf_inference import MLPERF_SCHEMA, mlperf_runs
from accelsim.scoreboard.names import device_of
from accelsim.scoreboard.parameters import parameters
from accelsim.scoreboard.suite import MeasuredBatch, register_suite
from accelsim.scoreboard.throughput import Throughput, batch_times_s
from accelsim.scoreboard.tiers import choose

#: Latency that 99 % of the samples keep, s, by benchmark.
_LIMITS_S: Mapping[str, float] = published("mlperf_tasks")["server_limits_s"]
_KEY = ("round", "submitter", "system", "accelerator", "model", "framework")
#: Share of the queries that are answered within the limit: the benchmark's 99th percentile.
_SHARE = 0.99
_SEED = 0
_LEAST_SHARE = 0.01


@register_suite(
    "serving-mlperf",
    "MLPerf Inference: server throughput over offline throughput",
    (MLPERF_SCHEMA,),
    "model",
    quantity="server rate over offline rate",
    has_best_alone=True,
)
def load(folder: DataFolder) -> list[MeasuredBatch]:
    """Server rows beside the offline rows of the same systems."""
    table = folder.table(MLPERF_SCHEMA)
    return [] if table is None else run_batches(_rows(table))


def _rows(table: Table) -> Iterator[MeasuredRun]:
    server = table.take(table["scenario"] == "server")
    is_sample = server["unit"] == "queries/s"  # a query of a server scenario is a sample
    unit = np.where(is_sample, "samples/s", server["unit"])
    server = replace(server, columns={**server.columns, "unit": unit})
    offline = table.take(table["scenario"] == "offline")
    rates = {_key(offline, row): offline["samples_per_s"][row] for row in range(len(offline))}
    for index, row in enumerate(mlperf_runs(server)):
        rate = rates.get(_key(server, index), float("nan"))
        measured = float(server["samples_per_s"][index]) / rate
        ratio = replace(row, measured_s=measured, program_count=0)
        if row.refusal:
            yield ratio
        elif not np.isfinite(measured):
            yield ratio.refused("no offline row of the same system and software")
        elif measured < _LEAST_SHARE:
            yield ratio.refused("less than a hundredth of the offline rate: a slip")
        else:
            yield ratio.answered(_answered)


def _answered(row: MeasuredRun) -> MeasuredRun:
    limit_s = _LIMITS_S.get(row.group.removesuffix("-99.9").removesuffix("-99"))
    if limit_s is None or row.run is None:
        raise InputError("no latency limit of the benchmark is known")
    ratio = server_over_offline(row.run, row.device, limit_s)
    setting = replace(row.run.setting, mode="serving-rate")
    device = device_of(row.device)
    spreads = parameters().spreads(device.whole_name)
    sigma = residual_log_sigma(str(device.device_class), setting, spreads)
    return replace(row, predicted_s=ratio, log_sigma=sigma, setting=str(setting))


def _key(table: Table, row: int) -> tuple[Any, ...]:
    return tuple(table[name][row] for name in _KEY)


@lru_cache(maxsize=256)
def server_over_offline(run: Throughput, device: str, limit_s: float) -> float:
    """The largest rate under a limit over that without one.

    Args:
        run: Networks, batches and formats.
        device: Name in the table.
        limit_s: Latency that 99 % keep.

    Raises:
        UnsupportedOperatorError: If no batch fits or a batch of one is too slow.
    """
    profile = device_of(device)
    batches = batch_times_s(run, profile, choose(profile, "best").parameters)
    sizes = [max(1, round(samples)) for samples, _, _ in batches]
    places = [index for index, size in enumerate(sizes) if size not in sizes[:index]]
    seconds = np.maximum.accumulate([batches[place][1] for place in places])
    held = [sizes[place] for place in places]
    if held[0] != 1:  # batches smaller than any that submitters publish take its time
        held, seconds = [1, *held], np.concatenate([seconds[:1], seconds])
    times = BatchTimes(tuple(held), tuple(seconds.tolist()))
    best = max(size / time_s for size, time_s in zip(held, seconds.tolist(), strict=True))
    generator = np.random.default_rng(_SEED)
    rate = largest_rate_per_s(times, limit_s, held[-1], _SHARE, generator)
    if not rate:
        name = run.stages[0].workload.name
        raise UnsupportedOperatorError(profile.name, name, "no batch is answered within the limit")
    return float(rate / best)
