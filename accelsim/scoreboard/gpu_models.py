"""Suite `gpu-models`: whole transformers measured on GPUs, from the operator lists that come with
the measurements.

A row is one inference, or one forward and backward pass, of a Hugging Face model in eager FP32
PyTorch (NeuSight, ASPLOS 2025). Its operator list gives every operator with its dimensions and how
often it runs. The host issues operators one after the other and the device runs them in order, so
launch and dispatch are part of the predicted time. No parameter is fitted to these rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from accelsim.cost.registry import Parameters, operator_costs
from accelsim.dtype import Dtype
from accelsim.errors import UnknownNameError
from accelsim.estimation.likeness import Setting
from accelsim.files.datafile import data_root
from accelsim.frozen import frozen
from accelsim.hardware.profile import GpuProfile
from accelsim.scoreboard.columns import (
    FLOP_PER_ELEMENT,
    TWO_INPUTS,
    correlated_log_sigma,
    graph_of_columns,
    issued_time_s,
    roofline_s,
)
from accelsim.scoreboard.data_folder import DataFolder, Table, schema
from accelsim.scoreboard.names import device_refusal, gpu_of, note_unknown_devices
from accelsim.scoreboard.suite import MeasuredBatch, predict_each, refused_batch, register_suite
from accelsim.workloads.graph import BoolArray, FloatArray, IntArray, OperatorGraph, TextArray
from accelsim.workloads.operator import OperatorKind

_K = OperatorKind
_KINDS = {
    "linear": _K.GEMM,
    "bmm": _K.BATCHED_GEMM,
    "mem": _K.COPY,
    "softmax": _K.SOFTMAX,
    "ln": _K.LAYER_NORM,
}
#: Settings by the table's modes.
_SETTINGS = {
    mode: str(Setting(name, "fp32", "transformer"))
    for mode, name in {"inf": "inference", "train": "training"}.items()
}
LABEL_SCHEMA = schema("gpu_kernels/e2e_labels.csv")
LIST_SCHEMA = schema("gpu_kernels/e2e_opgraphs.csv.gz")


@frozen(eq=False)
class Run:
    """Operators of one workload.

    Attributes:
        graph: Distinct operators, n rows.
        repeat: How often each runs, shape (n,).
        order: Rows in the order in which they run, repeats included.
    """

    graph: OperatorGraph
    repeat: FloatArray
    order: IntArray


def lowered_operators(table: Table) -> Run:
    """The operator list of one workload as FP32 rows."""
    op = table["op"]
    b, m, n, k, h, moved = (table[name] for name in ("b", "m", "n", "k", "h", "bytes"))
    product = np.isin(op, ["linear", "bmm"])
    row_wise = np.isin(op, ["softmax", "ln"])
    copy = op == "mem"
    elements = b * h
    per_element = np.array(
        [FLOP_PER_ELEMENT.get(name, 1) for name in op.tolist()], dtype=np.float64
    )
    inputs = np.where(np.isin(op, TWO_INPUTS), 2.0, 1.0)
    dims = (
        np.where(product | row_wise, b, np.where(copy, moved / 8, elements)),
        np.where(product, m, np.where(row_wise, h, np.where(copy, 0, inputs))),
        np.where(
            product, k, np.where(row_wise | copy, 0, per_element)
        ),  # k is the output width, n the contraction
        np.where(product, n, 0),
    )
    graph = graph_of_columns(
        [_KINDS.get(name, _K.ELEMENTWISE) for name in op.tolist()],
        dims,
        Dtype.FP32,
        flop=np.where(product, 2 * b * m * n * k, np.where(copy, 0, per_element * elements)),
        read=np.where(
            product, 4 * b * (m * n + n * k), np.where(copy, moved / 2, 4 * elements * inputs)
        ),
        write=np.where(product, 4 * b * m * k, np.where(copy, moved / 2, 4 * elements)),
    )
    return Run(graph, table["repeat"], issue_order(table["repeat"], table["phase"] != "fw"))


def issue_order(repeat: FloatArray, is_backward: BoolArray) -> IntArray:
    """Rows in the order in which they run: forward, then backward in reverse.

    Neighbouring rows of one phase with the same repeat count are the body of a layer, which runs as
    a whole that many times.

    Args:
        repeat: How often each row runs, shape (n,).
        is_backward: Rows of the backward pass, shape (n,).
    """
    parts: list[IntArray] = []
    for rows in (np.flatnonzero(~is_backward), np.flatnonzero(is_backward)[::-1]):
        ends = np.flatnonzero(np.diff(repeat[rows])) + 1
        parts += [
            np.tile(block, int(repeat[block[0]])) for block in np.split(rows, ends) if block.size
        ]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


@register_suite(
    "gpu-models",
    "whole transformers on GPUs, eager FP32",
    (LABEL_SCHEMA,),
    "model",
    optional_files=(LIST_SCHEMA,),
    is_ranked=True,
    is_of_operators=True,
)
def load(folder: DataFolder) -> list[MeasuredBatch]:
    """One batch per device; rows whose operator list is missing are refused."""
    rows = folder.table(LABEL_SCHEMA)
    if rows is None:
        return []
    desc = _descriptions(rows)
    runs = operator_runs(folder, set(desc.tolist()))
    if runs is None:
        return []
    note_unknown_devices(folder, rows, find=gpu_of)
    batches: list[MeasuredBatch] = []
    for device in np.unique(rows["device"]).tolist():
        batches += _device_batches(device, rows, desc, runs)
    return batches


def operator_runs(folder: DataFolder, wanted: set[str]) -> dict[str, Run] | None:
    """Operators of each workload: from the folder's lists, else from those that ship, since they
    belong to no device.

    None where the folder's lists are refused as a whole.
    """
    folder_runs: dict[str, Run] = {}
    if folder.has(LIST_SCHEMA):
        lists = folder.table(LIST_SCHEMA)
        if lists is None:
            return None
        folder_runs = _runs(lists, wanted)
    if wanted <= folder_runs.keys():
        return folder_runs
    shipped = DataFolder(data_root() / "calibration" / "published").table(LIST_SCHEMA)
    if shipped is None:
        return folder_runs
    return _runs(shipped, wanted - folder_runs.keys()) | folder_runs


def _descriptions(rows: Table) -> TextArray:
    sizes = zip(rows["model"], rows["mode"], rows["seq"], rows["batch"], strict=True)
    return np.array(
        [f"{model}-{mode}-{seq:.0f}-{batch:.0f}" for model, mode, seq, batch in sizes], dtype=str
    )


def _runs(lists: Table, wanted: set[str]) -> dict[str, Run]:
    if not len(lists):
        return {}
    order = np.argsort(lists["desc"], kind="stable")
    names, first = np.unique(lists["desc"][order], return_index=True)
    return {
        name: lowered_operators(lists.take(rows))
        for name, rows in zip(names.tolist(), np.split(order, first[1:]), strict=True)
        if name in wanted
    }


def _device_batches(
    device: str, rows: Table, desc: TextArray, runs: Mapping[str, Run]
) -> Iterator[MeasuredBatch]:
    is_of_device = rows["device"] == device
    is_known = np.isin(desc, list(runs))
    columns = (rows["model"], desc, rows["e2e_ms"] * 1e-3)
    models, names, measured_s = (column[is_of_device & is_known] for column in columns)
    known = (models, names, measured_s)
    try:
        profile = gpu_of(device)
    except UnknownNameError as error:
        yield refused_batch(device, *known, device_refusal(error))
    else:
        device_runs = [runs[name] for name in names.tolist()]
        times = [(roofline_s(run.graph, profile) * run.repeat).sum() for run in device_runs]
        predict = predict_each(
            device_runs, lambda run, parameters: _predicted(run, profile, parameters)
        )
        line_s = np.array(times, dtype=np.float64)
        setting = np.array(
            [_SETTINGS[mode] for mode in rows["mode"][is_of_device & is_known].tolist()]
        )
        yield MeasuredBatch(device, profile, *known, line_s, predict, setting=setting)
    models, names, measured_s = (column[is_of_device & ~is_known] for column in columns)
    yield refused_batch(device, models, names, measured_s, "no operator list")


def _predicted(run: Run, profile: GpuProfile, parameters: Parameters | None) -> tuple[float, float]:
    costs = operator_costs(run.graph, profile, parameters=parameters)
    total = issued_time_s(costs.time_s[run.order], costs.dispatch_s[run.order])
    return total, correlated_log_sigma(costs, run.graph, run.repeat)
