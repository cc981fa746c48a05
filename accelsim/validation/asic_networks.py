"""Suite `asic-networks`: whole networks on matrix chips, as their makers publish them. Nothing is
fitted to them.

A row is a batch that so many programs, each with its own weights, share on one chip; its time is
per sample. Where one program runs one sample (Coral's latencies) the transfer of its input over the
host's link counts, elsewhere it hides behind other batches.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accelsim.cost.registry import operator_costs
from accelsim.cost.table import Execution
from accelsim.errors import UnknownNameError
from accelsim.hardware.profile import DeviceProfile
from accelsim.hardware.sourced import Sourced, SourceKind
from accelsim.validation.columns import correlated_log_sigma, roofline_s
from accelsim.validation.data_folder import DataFolder, Schema, Table, number, text, time_column
from accelsim.validation.names import device_of, workload_of
from accelsim.validation.suite import Batch, Predict, Prediction, refused_batch, register_suite
from accelsim.workloads.dtype import precision as find_precision
from accelsim.workloads.fusion import fuse_elementwise
from accelsim.workloads.graph import OperatorGraph
from accelsim.workloads.model import RunShape

__all__ = ["NETWORKS_SCHEMA"]

NETWORKS_SCHEMA = Schema(
    "asic/networks.csv",
    (
        *text("device", "model", "precision", "source"),
        *number("batch", "programs", "seq_len", "image_size"),
        *time_column("seconds_per_sample"),
    ),
)


@dataclass(frozen=True, slots=True, eq=False)
class _Run:
    """One row: its graph, samples, and the bytes its input sends over the link before it starts."""

    graph: OperatorGraph
    profile: DeviceProfile
    samples: float
    sent_bytes: float


@register_suite(
    "asic-networks", "whole networks on matrix chips, as published", (NETWORKS_SCHEMA,), "model"
)
def load(folder: DataFolder) -> list[Batch]:
    """One batch per row."""
    table = folder.table(NETWORKS_SCHEMA)
    return [] if table is None else [_batch(table, row) for row in range(len(table))]


def _batch(table: Table, row: int) -> Batch:
    device, model = str(table["device"][row]), str(table["model"][row])
    group, measured = np.array([model]), table["seconds_per_sample"][row : row + 1]
    label = np.array([f"{model}-{table['batch'][row]:.0f}"])
    try:
        run = _run(table, row, device_of(device), model)
    except UnknownNameError as error:
        return refused_batch(device, group, label, measured, f"no {error.what} {error.name}")
    line = np.array([roofline_s(run.graph, run.profile).sum() / run.samples])
    return Batch(device, run.profile, group, label, measured, line, _predict(run))


def _run(table: Table, row: int, profile: DeviceProfile, model: str) -> _Run:
    sizes = {name: round(float(table[name][row])) for name in ("batch", "seq_len", "image_size")}
    lowered = workload_of(model).lower(
        RunShape(**sizes), find_precision(str(table["precision"][row]))
    )
    programs = max(round(float(table["programs"][row])), 1)
    cores = Sourced(value=programs, kind=SourceKind.DERIVED, source="programs of the published run")
    alone = sizes["batch"] == 1
    sent = float(lowered.graph.read_bytes[0]) if alone else 0.0
    graph = fuse_elementwise(lowered.graph)
    return _Run(
        graph, profile.model_copy(update={"core_count": cores}), float(sizes["batch"]), sent
    )


def _predict(run: _Run) -> Predict:
    def predict(parameters: object | None) -> Prediction:
        costs = operator_costs(run.graph, run.profile, Execution.COMPILED, parameters)
        link = run.profile.host_link
        sent_s = 0.0 if link is None else run.sent_bytes / link.bandwidth_bytes_per_s.value
        total_s = float(costs.time_s.sum()) + sent_s
        sigma = correlated_log_sigma(costs, run.graph)
        return Prediction(np.array([total_s / run.samples]), np.array([sigma]))

    return predict
