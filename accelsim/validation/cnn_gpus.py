"""Suite `cnn-gpus`: convolutional networks on single GPUs, as published.

Three sources. ResNet-50 v1.5 inference over batch sizes and training steps in PyTorch, and forward
and backward passes of ten networks in Torch7 (both in ``claims/reference_measurements.csv``);
single-GPU throughputs of NVIDIA's DeepLearningExamples
(``training/nvidia_deeplearningexamples.csv.gz``). Rows that do not say what was run are refused by
name: several tables parsed under one precision, no batch size, a precision the table does not
state.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accelsim.cost.table import Execution
from accelsim.errors import InputError, UnknownNameError
from accelsim.validation.data_folder import WRONG_UNIT, DataFolder, Table, schema
from accelsim.validation.measured_runs import MeasuredRun, RunModel, run_batches
from accelsim.validation.metrics import knee_batch
from accelsim.validation.names import gpu_of, note_unknown_devices, workload_of
from accelsim.validation.runs import (
    TRAINING_STEP,
    ModelRun,
    run_roofline_s,
    run_time_s,
)
from accelsim.validation.scored_rows import ScoredRows
from accelsim.validation.suite import Batch, register_suite
from accelsim.workloads.dtype import precision
from accelsim.workloads.model import RunShape
from accelsim.workloads.operator import Phase

__all__ = ["EXAMPLES_SCHEMA", "MEASUREMENTS_SCHEMA"]

MEASUREMENTS_SCHEMA = schema("claims/reference_measurements.csv")
EXAMPLES_SCHEMA = schema("training/nvidia_deeplearningexamples.csv.gz")
_MEASURED = ("workload", "phase", "device", "precision", "batch", "note", "source", "value")
#: What names a table among the examples.
_TABLE_KEY = ("framework", "family", "task_mode", "gpu", "precision", "metric_header")
#: Units of throughputs that say no more than that the table's header names it.
_STATED_IN_HEADER = ("", "img/s", "images/s")
_SWEEP = "NVIDIA/DeepLearningExamples PyTorch ResNet50v1.5"
#: Images of a batch; more is a slip.
_LARGEST_BATCH = 1_000_000
_TORCH7 = "jcjohnson/cnn-benchmarks"
_TORCH7_PHASES: Mapping[str, tuple[Phase, ...]] = {
    "forward": (Phase.FORWARD,),
    "backward": (Phase.BACKWARD, Phase.GRADIENT),
    "train_step": (Phase.FORWARD, Phase.BACKWARD, Phase.GRADIENT),
}
_TORCH7_IMAGE = 224
#: Image networks of the examples' families.
_FAMILIES = (
    *("RN50v1.5", "resnet50v1.5", "resnext101-32x4d"),
    *("efficientnet_v1", "Efficientdet", "UNet_Medical"),
)
_EXAMPLE_PRECISIONS = {"amp": "fp16", "fp16": "fp16", "fp32": "fp32", "tf32": "tf32"}
_EXAMPLE_PHASES: Mapping[str, tuple[Phase, ...]] = {
    "training": TRAINING_STEP,
    "inference": (Phase.FORWARD,),
}
_EFFICIENTNETS = {224: "efficientnet-b0", 380: "efficientnet-b4"}
Mask = NDArray[np.bool_]
#: A knee this many times the measured one (or less) is within one power of two.
_ONE_POWER = 2.0


def knees(rows: Sequence[ScoredRows]) -> dict[str, Any]:
    """The batch size from which more does not help, measured and predicted, of every sweep."""
    found = []
    for part in rows:
        sweeps: dict[str, list[tuple[int, int]]] = {}
        for index, label in enumerate(part.label.tolist() if not part.refusal else []):
            match = re.fullmatch(r"(.* inference .*) batch (\d+) sweep", label)
            if match:
                sweeps.setdefault(match[1], []).append((int(match[2]), index))
        found += [
            _knee(part, name, sorted(points)) for name, points in sweeps.items() if len(points) > 2
        ]
    return {"knees": found} if found else {}


def _knee(part: ScoredRows, name: str, points: list[tuple[int, int]]) -> dict[str, Any]:
    batch, index = np.array(points).T
    measured = knee_batch(batch.astype(np.float64), part.measured_s[index])
    predicted = knee_batch(batch.astype(np.float64), part.predicted_s[index])
    return {
        "device": part.device,
        "sweep": name,
        "measured_batch": measured,
        "predicted_batch": predicted,
        "within_one_power_of_two": max(measured, predicted)
        <= _ONE_POWER * min(measured, predicted),
    }


@register_suite(
    "cnn-gpus",
    "convolutional networks on single GPUs",
    (),
    "model",
    optional_files=(MEASUREMENTS_SCHEMA, EXAMPLES_SCHEMA),
    is_ranked=True,
    findings=knees,
)
def load(folder: DataFolder) -> list[Batch]:
    """Batches of both tables, by device."""
    rows: list[MeasuredRun] = []
    if (table := folder.table(MEASUREMENTS_SCHEMA)) is not None:
        asked = table.take(_is_asked(table))
        note_unknown_devices(folder, asked)
        wanted = np.where(asked["metric"] == "throughput", "images/s", "ms")
        rows += _measurements(asked, folder.refuse_units(asked, wanted))
    if (examples := folder.table(EXAMPLES_SCHEMA)) is not None:
        asked = examples.take(_is_image_throughput(examples))
        note_unknown_devices(folder, asked, "gpu")
        wanted = np.where(np.isin(asked["unit"], _STATED_IN_HEADER), "", "img/s")
        rows += _examples(asked, folder.refuse_units(asked, wanted))
    return run_batches(map(_lowerable, rows), RunModel(gpu_of, run_roofline_s, run_time_s))


def _lowerable(row: MeasuredRun) -> MeasuredRun:
    """The row; refused where its workload has no such run."""
    try:
        if row.run is not None:
            row.run.graph()
    except InputError as error:
        return row.refused(_not_understood(error))
    return row


def _not_understood(error: Exception) -> str:
    return f"not understood: {str(error)[:80]}"


def _is_asked(table: Table) -> Mask:
    """Rows of one device and the three measurements of this suite."""
    source = table["source"]
    torch7, sweep = np.char.startswith(source, _TORCH7), np.char.startswith(source, _SWEEP)
    latency = table["metric"] == "latency_avg"
    training = (table["phase"] == "train") & (table["metric"] == "throughput")
    asked: Mask = (
        (table["n_devices"] == "1")
        & (table["batch"] != "")
        & (torch7 | (sweep & (latency | training)))
    )
    return asked


def _measurements(table: Table, wrong_unit: Mask) -> Iterable[MeasuredRun]:
    for record, is_wrong in zip(_records(table, _MEASURED), wrong_unit.tolist(), strict=True):
        yield _measurement(record, is_wrong=is_wrong)


def _records(table: Table, names: Sequence[str]) -> list[dict[str, Any]]:
    columns = (table[name].tolist() for name in names)
    return [dict(zip(names, cells, strict=True)) for cells in zip(*columns, strict=True)]


def _measurement(record: Mapping[str, Any], *, is_wrong: bool) -> MeasuredRun:
    workload, phase, form, batch = (
        record[name] for name in ("workload", "phase", "precision", "batch")
    )
    size = int(batch) if batch.isascii() and batch.isdecimal() and len(batch) < 9 else 0
    label = f"{workload} {phase} {form} batch {batch}"
    row = MeasuredRun(record["device"], workload, label, record["value"])
    if is_wrong:
        return row.refused(WRONG_UNIT)
    if not 1 <= size <= _LARGEST_BATCH:
        return row.refused(f"batch size {batch[:20]!r} is no number of images")
    try:
        if record["source"].startswith(_TORCH7):
            return _torch7(row, phase, size, record["note"])
        return _pytorch(row, phase, form, size)
    except (InputError, KeyError) as error:
        return row.refused(_not_understood(error))


def _torch7(row: MeasuredRun, phase: str, batch: int, note: str) -> MeasuredRun:
    library = note.split(",")[1].strip() if "," in note else note
    label = f"{row.group} {phase} batch {batch} {library}"
    row = replace(row, label=label, measured_s=row.measured_s * 1e-3)
    if "cuDNN None" in note:
        return row.refused("without cuDNN: another algorithm (explicit im2col)")
    try:
        model = workload_of(row.group)
    except UnknownNameError as error:
        return row.refused(f"no workload {error.name}")
    shape = RunShape(batch=batch, image_size=_TORCH7_IMAGE)
    stack = "torch7 " + ".".join(library.split(".")[:2]).lower()
    phases = _TORCH7_PHASES[phase]
    return replace(row, run=ModelRun(model, shape, precision("fp32"), phases=phases, stack=stack))


def _pytorch(row: MeasuredRun, phase: str, form: str, batch: int) -> MeasuredRun:
    """Training throughput, or the latency of a batch of a sweep."""
    model, shape, formats = workload_of(row.group), RunShape(batch=batch), precision(form)
    if phase == "train":
        what, end, measured_s = "training", "", batch / row.measured_s
        run = ModelRun(model, shape, formats, phases=TRAINING_STEP)
    else:
        what, end, measured_s = "inference", " sweep", row.measured_s * 1e-3
        run = ModelRun(model, shape, formats, is_autocast=form == "fp16")
    label = f"resnet-50 {what} {form} batch {batch}{end}"
    return replace(row, group="resnet-50", label=label, measured_s=measured_s, run=run)


def _is_image_throughput(table: Table) -> Mask:
    """Throughput rows of image families on one GPU."""
    header = np.char.find(table["metric_header"], "hroughput") >= 0
    one = np.isin(table["n_gpus"], ["1", "1.0"]) & np.isin(table["family"], _FAMILIES)
    asked: Mask = header & one & (table["metric_kind"] == "throughput")
    return asked


def _examples(rows: Table, wrong_unit: Mask) -> Iterable[MeasuredRun]:
    records = _records(rows, (*_TABLE_KEY, "batch", "row_context", "value"))
    seen = Counter((_table_of(record), record["batch"]) for record in records)
    merged = {table for (table, _), count in seen.items() if count > 1}
    for record, is_wrong in zip(records, wrong_unit.tolist(), strict=True):
        yield _example(record, is_merged=_table_of(record) in merged, is_wrong=is_wrong)


def _table_of(record: Mapping[str, Any]) -> tuple[Any, ...]:
    """What names a table; two rows of one batch size mean that several tables were parsed under one
    name.
    """
    return (*(record[name] for name in _TABLE_KEY), _context(record).get("Resolution", ""))


def _context(record: Mapping[str, Any]) -> dict[str, str]:
    try:
        context = json.loads(record["row_context"])
    except json.JSONDecodeError:
        return {}
    return {key: str(value) for key, value in context.items()} if isinstance(context, dict) else {}


def _example(record: Mapping[str, Any], *, is_merged: bool, is_wrong: bool) -> MeasuredRun:
    family, form = record["family"], record["precision"]
    batch = _batch_size(record["batch"], form)
    label = f"{record['framework']} {family} {record['task_mode']} {form} batch {record['batch']}"
    size = _context(record).get("Resolution", "")
    label = f"{label} {size}".rstrip()
    measured_s = (batch or 1) / record["value"] if record["value"] else 0.0

    row = MeasuredRun(record["gpu"], family, label, measured_s)
    reason = WRONG_UNIT if is_wrong else _ambiguity(record, batch, is_merged=is_merged)
    if reason or batch is None:
        return row.refused(reason)
    try:
        model = workload_of(_example_model(family, size))
        image = int(size.partition("x")[0]) if size else 0
        phases, form = _EXAMPLE_PHASES[record["task_mode"]], _EXAMPLE_PRECISIONS[form]
    except UnknownNameError as error:
        return row.refused(f"no workload {error.name}")
    except (KeyError, ValueError) as error:
        return row.refused(_not_understood(error))
    shape = RunShape(batch=batch, image_size=image)
    run = ModelRun(model, shape, precision(form), Execution.GRAPH, phases)
    return replace(row, group=model.name, run=run)


def _ambiguity(record: Mapping[str, Any], batch: int | None, *, is_merged: bool) -> str:
    """Why a row does not say what was run; empty where it does."""
    if not record["value"]:
        return "the table says 0 per second"
    if batch is None:
        return "batch size not stated in the row"
    if is_merged:
        return "several tables under one precision: which one is not stated in the row"
    return (
        f"variant not modelled: {record['metric_header']}" if "+" in record["metric_header"] else ""
    )


def _example_model(family: str, size: str) -> str:
    if family == "efficientnet_v1" and size:
        return _EFFICIENTNETS.get(int(size.partition("x")[0]), family)
    return "unet" if family == "UNet_Medical" else family


def _batch_size(cell: str, form: str) -> int | None:
    """Batch of a row; "64 (FP32) / 128 (AMP)" gives the one of the row's precision."""
    if re.fullmatch(r"[0-9]+", cell):
        return int(cell) if len(cell) < 9 and 1 <= int(cell) <= _LARGEST_BATCH else None
    wanted = "amp" if form == "amp" else form.upper()
    for part in cell.split("/"):
        match = re.fullmatch(r"\s*(\d+)\s*\((\w+)\)\s*", part)
        if match and match[2].upper().rstrip("32") == wanted.upper().rstrip("32"):
            return int(match[1])
    return None
