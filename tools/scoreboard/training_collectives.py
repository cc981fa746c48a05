"""Suite `training-collectives`: all-reduces by count of ranks and payload.

Rows of A100 and V100 are of nccl-tests inside one node (github VIA-Research/vTrain): even MiB of 2,
4 and 7 GPUs fitted the fabrics of ``calibration/class/fabrics.yaml``; the view "held out" has the
others. Rows of DeepBench are of servers whose links it does not state: taken as 8 cards on PCI
Express 3.0 with one InfiniBand card of 56 Gbit/s, and no fit saw them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from accelsim.catalog.clusters import cluster
from accelsim.cost.collective import collective_costs
from accelsim.errors import UnknownNameError
from accelsim.frozen import frozen
from accelsim.hardware.placement import RankGroup
from accelsim.plain import Document
from accelsim.scoreboard.data_folder import DataFolder, Table, schema
from accelsim.scoreboard.names import device_of
from accelsim.scoreboard.scored_rows import ScoredRows
from accelsim.scoreboard.suite import (
    MeasuredBatch,
    Prediction,
    fixed_prediction,
    refused_batch,
    register_suite,
)
from accelsim.workloads.graph import BoolArray, FloatArray, IntArray
from tools.scoreboard.gpu_operators import DEEPBENCH_SCHEMA

SCHEMA = schema("training/nccl_allreduce.csv.gz")
SCALING_SCHEMA = schema("training/collectives_scaling.csv")
#: Node and device by name in the table.
_NODES = {"A100": "dgx-a100", "V100": "dgx-1"}
_DEEPBENCH_NODE = "pcie3-server-8"
_HELD_OUT_RANKS = 6
_NO_SYSTEM = "the row names no system"
_NO_ALL_REDUCE = "scaling of a network's training, no collective"


@frozen(eq=False)
class AllReduces:
    """Measured all-reduces of one kind of node, n rows.

    Attributes:
        device: Name in the table.
        node_name: Node in the catalogue.
        ranks: Shape (n,).
        payload_bytes: Shape (n,).
        measured_s: Shape (n,).
    """

    device: str
    node_name: str
    ranks: IntArray
    payload_bytes: FloatArray
    measured_s: FloatArray


def measured_all_reduces(table: Table) -> Iterator[AllReduces]:
    """Rows of nccl-tests by device."""
    for device in np.unique(table["gpu"]).tolist():
        rows = table.take(table["gpu"] == device)
        ranks = rows["n_gpus"].astype(np.int64)
        measured = rows["time_us_outofplace"] * 1e-6
        yield AllReduces(device, _NODES.get(device, ""), ranks, rows["size_bytes"], measured)


def is_held_out(ranks: IntArray, payload_bytes: FloatArray) -> BoolArray:
    """Rows that no fit saw: six ranks, and sizes of an odd count of MiB."""
    is_odd: BoolArray = (payload_bytes / 2**20) % 2 >= 1
    kept: BoolArray = is_odd | (ranks == _HELD_OUT_RANKS)
    return kept


def _geomean_errors(rows: Sequence[ScoredRows]) -> Document:
    """exp(mean |ln(predicted / measured)|) - 1 by device, of all rows and of those held out."""
    geomean_errors: Document = {}
    for part in rows:
        if not part.refusal:
            error = np.abs(np.log(part.predicted_s / part.measured_s))
            kept = dict(part.views).get("held out", np.ones(len(part), dtype=bool))
            for name, mask in (("geomean error", slice(None)), ("geomean error, held out", kept)):
                figures = geomean_errors.setdefault(name, {})
                figures[part.device] = round(float(np.expm1(error[mask].mean())), 4)
    return geomean_errors


@register_suite(
    "training-collectives",
    "All-reduce times inside a node and between nodes",
    (SCHEMA,),
    "operator",
    optional_files=(DEEPBENCH_SCHEMA, SCALING_SCHEMA),
    findings=_geomean_errors,
)
def load(folder: DataFolder) -> list[MeasuredBatch]:
    """Rows of nccl-tests and of DeepBench by device, and refused ones by reason."""
    table = folder.table(SCHEMA)
    batches = [] if table is None else [_batch(rows) for rows in measured_all_reduces(table)]
    deepbench = folder.table(DEEPBENCH_SCHEMA)
    if deepbench is not None:
        rows = deepbench.take(deepbench["op"] == "allreduce")
        devices = np.unique(rows["device"]).tolist()
        batches += [_batch(_deepbench(rows, device)) for device in devices]
    scaling = folder.table(SCALING_SCHEMA)
    if scaling is not None:
        batches += [*_refused(scaling)]
    return batches


def _deepbench(table: Table, device: str) -> AllReduces:
    rows = table.take(table["device"] == device)
    ranks = rows["ranks"].astype(np.int64)
    return AllReduces(device, _DEEPBENCH_NODE, ranks, 4.0 * rows["floats"], rows["fwd_ms"] * 1e-3)


def _batch(rows: AllReduces) -> MeasuredBatch:
    label = [
        f"all-reduce {ranks} x {size / 2**20:.4g} MiB"
        for ranks, size in zip(rows.ranks.tolist(), rows.payload_bytes.tolist(), strict=True)
    ]
    group = np.array([f"{ranks} ranks" for ranks in rows.ranks.tolist()])
    columns = (rows.device, group, np.array(label), rows.measured_s)
    try:
        profile = device_of(rows.device)
    except UnknownNameError:
        return refused_batch(*columns, f"no profile of {rows.device}")
    if not rows.node_name:
        return refused_batch(*columns, f"no node of {rows.device}")
    prediction, wire_s = _predicted(rows)
    views: tuple[tuple[str, BoolArray], ...] = ()
    if rows.node_name != _DEEPBENCH_NODE:
        views = (("held out", is_held_out(rows.ranks, rows.payload_bytes)),)
    return MeasuredBatch(
        rows.device,
        profile,
        *columns[1:],
        roofline_s=wire_s,
        predict=fixed_prediction(prediction),
        views=views,
    )


def _predicted(rows: AllReduces) -> tuple[Prediction, FloatArray]:
    """Times, and those of the bytes that a ring must send at the bandwidth of its slowest link."""
    pattern = cluster(rows.node_name)
    time_s = np.zeros(len(rows.ranks))
    wire_s = np.zeros(len(rows.ranks))
    sigma = np.zeros(len(rows.ranks))
    for ranks in np.unique(rows.ranks).tolist():
        own = rows.ranks == ranks
        group = RankGroup(ranks)
        payload = rows.payload_bytes[own]
        costs = collective_costs("all_reduce", payload, group, pattern)
        time_s[own], sigma[own] = costs.time_s, costs.log_sigma
        tier = pattern.tiers[0] if ranks <= pattern.node.device_count else pattern.tiers[-1]
        wire_s[own] = 2.0 * (ranks - 1) / ranks * payload / tier.bandwidth_bytes_per_s
    return Prediction(time_s, sigma), wire_s


def _refused(table: Table) -> Iterator[MeasuredBatch]:
    is_collective = table["what"] == "all_reduce busbw"
    reasons: Mapping[str, BoolArray] = {
        _NO_SYSTEM: is_collective,
        _NO_ALL_REDUCE: ~is_collective,
    }
    for reason, own in reasons.items():
        rows = table.take(own)
        label = np.char.add(np.char.add(rows["what"], " "), rows["size_or_model"])
        yield refused_batch("not named", rows["what"], label, rows["value"], reason)
