"""Suite `asic-networks`: whole networks on matrix chips, as their makers publish them. Nothing is
fitted to them.

A row is a batch that so many programs, each with its own weights, share on one chip; its time is
per sample. Where one program runs one sample (Coral's latencies) the transfer of its input over the
host's link counts, elsewhere it hides behind other batches.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from accelsim.cost.registry import operator_costs
from accelsim.cost.table import Execution
from accelsim.errors import UnknownNameError
from accelsim.frozen import frozen
from accelsim.hardware.profile import DeviceProfile
from accelsim.planning.likeness import Setting, setting_of
from accelsim.validation.columns import correlated_log_sigma, roofline_s
from accelsim.validation.data_folder import DataFolder, Table, schema
from accelsim.validation.measured_runs import MeasuredRun, RunModel, run_batches
from accelsim.validation.names import device_of, workload_of
from accelsim.validation.suite import Batch, register_suite
from accelsim.workloads.dtype import precision as find_precision
from accelsim.workloads.fusion import fuse_elementwise
from accelsim.workloads.graph import OperatorGraph
from accelsim.workloads.model import PassShape

NETWORKS_SCHEMA = schema("asic/networks.csv")


@frozen(eq=False)
class _Run:
    """What one row ran: its graph, samples, the bytes its input sends over the link before it
    starts, and its mode, format and kind.
    """

    graph: OperatorGraph
    samples: float
    sent_bytes: float
    setting: Setting


@register_suite(
    "asic-networks", "whole networks on matrix chips, as published", (NETWORKS_SCHEMA,), "model"
)
def load(folder: DataFolder) -> list[Batch]:
    """Rows by device and programs, or by reason where they are refused."""
    table = folder.table(NETWORKS_SCHEMA)
    rows = [] if table is None else [_row(table, index) for index in range(len(table))]
    return run_batches(rows, RunModel(device_of, _roofline_s, _time_s))


def _row(table: Table, index: int) -> MeasuredRun:
    device, model, form = (str(table[name][index]) for name in ("device", "model", "precision"))
    names = ("batch", "seq_len", "image_size")
    sizes = {name: round(float(table[name][index])) for name in names}
    label = f"{model}-{table['batch'][index]:.0f}"
    row = MeasuredRun(device, model, label, float(table["seconds_per_sample"][index]))
    try:
        device_of(device)
        graph = workload_of(model).lower(PassShape(**sizes), find_precision(form)).graph
    except UnknownNameError as error:
        return row.refused(f"no {error.what} {error.name}")
    sent_bytes = float(graph.read_bytes[0]) if sizes["batch"] == 1 else 0.0
    setting = setting_of("inference", find_precision(form), graph)
    run = _Run(fuse_elementwise(graph), float(sizes["batch"]), sent_bytes, setting)
    return replace(row, run=run, program_count=max(round(float(table["programs"][index])), 1))


def _roofline_s(run: _Run, device: DeviceProfile) -> float:
    return float(roofline_s(run.graph, device).sum() / run.samples)


def _time_s(run: _Run, device: DeviceProfile, parameters: Any | None) -> tuple[float, float]:
    """Time per sample and its log standard deviation."""
    costs = operator_costs(run.graph, device, Execution.COMPILED, parameters)
    link = device.host_link
    sent_s = 0.0 if link is None else run.sent_bytes / link.bandwidth_bytes_per_s.value
    total_s = float(costs.time_s.sum()) + sent_s
    return total_s / run.samples, correlated_log_sigma(costs, run.graph)
