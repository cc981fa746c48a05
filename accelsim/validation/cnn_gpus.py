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
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accelsim.cost.table import Execution
from accelsim.errors import InputError, UnknownNameError
from accelsim.validation.data_folder import (
    WRONG_UNIT,
    DataFolder,
    Schema,
    Table,
    number,
    text,
    time_column,
)
from accelsim.validation.metrics import knee_batch
from accelsim.validation.names import gpu_of, note_unknown_devices, workload_of
from accelsim.validation.runs import TRAINING_STEP, ModelRun, run_prediction, run_roofline_s
from accelsim.validation.score import ScoredRows
from accelsim.validation.suite import Batch, refused_batch, register_suite
from accelsim.workloads.dtype import precision
from accelsim.workloads.model import RunShape
from accelsim.workloads.operator import Phase

__all__ = ["EXAMPLES_SCHEMA", "MEASUREMENTS_SCHEMA"]

_MEASUREMENT_KEY = (
    "workload",
    "phase",
    "device",
    "n_devices",
    "precision",
    "batch",
    "metric",
    "note",
    "source",
)
MEASUREMENTS_SCHEMA = Schema(
    "claims/reference_measurements.csv",
    (*text(*_MEASUREMENT_KEY, "unit"), *time_column("value")),
    _MEASUREMENT_KEY,
)
EXAMPLES_SCHEMA = Schema(
    "training/nvidia_deeplearningexamples.csv.gz",
    (
        *text(
            "framework",
            "family",
            "task_mode",
            "gpu",
            "n_gpus",
            "precision",
            "batch",
            "metric_kind",
            "metric_header",
        ),
        *text("row_context", "source"),
        *text("unit", may_lack=True),
        *number("value"),
    ),
)
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
_FAMILIES = frozenset(
    {
        "RN50v1.5",
        "resnet50v1.5",
        "resnext101-32x4d",
        "efficientnet_v1",
        "Efficientdet",
        "UNet_Medical",
    }
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


@dataclass(frozen=True, slots=True)
class _Row:
    """One measured run."""

    device: str
    model: str
    label: str
    measured_s: float
    run: ModelRun | None
    refusal: str = ""


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
    batch, index = (
        np.array([p[0] for p in points], dtype=np.float64),
        np.array([p[1] for p in points]),
    )
    measured = knee_batch(batch, part.measured_s[index])
    predicted = knee_batch(batch, part.predicted_s[index])
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
    rows: list[_Row] = []
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
    return run_batches(map(_lowerable, rows))


def _lowerable(row: _Row) -> _Row:
    """The row; refused where its workload has no such run."""
    try:
        if row.run is not None:
            row.run.graph()
    except InputError as error:
        return replace(row, run=None, refusal=f"not understood: {str(error)[:80]}")
    return row


def run_batches(rows: Iterable[Any]) -> list[Batch]:
    """One batch per device, and one per device and reason of refusal; rows as `_Row`."""
    parts: dict[tuple[str, str], list[Any]] = {}
    for row in rows:
        parts.setdefault((row.device, row.refusal), []).append(row)
    return [_batch(device, refusal, own) for (device, refusal), own in parts.items()]


def _batch(device: str, refusal: str, rows: list[Any]) -> Batch:
    group = np.array([row.model for row in rows], dtype=str)
    label = np.array([row.label for row in rows], dtype=str)
    measured = np.array([row.measured_s for row in rows])
    if refusal:
        return refused_batch(device, group, label, measured, refusal)
    try:
        profile = gpu_of(device)
    except UnknownNameError as error:
        return refused_batch(device, group, label, measured, f"no GPU profile of {error.name}")
    runs = [row.run for row in rows]
    line = run_roofline_s(runs, profile)
    sweep = np.array([name.endswith(" sweep") for name in label.tolist()], dtype=np.bool_)
    views = (("batch sweep", sweep),) if sweep.any() else ()
    return Batch(
        device, profile, group, label, measured, line, run_prediction(runs, profile), views=views
    )


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


def _measurements(table: Table, wrong_unit: Mask) -> Iterable[_Row]:
    names = ("workload", "phase", "device", "precision", "batch", "note", "source", "value")
    for *cells, is_wrong in zip(
        *(table[n].tolist() for n in names), wrong_unit.tolist(), strict=True
    ):
        yield _measurement(*cells, is_wrong=is_wrong)


def _measurement(
    workload: str,
    phase: str,
    device: str,
    form: str,
    batch: str,
    note: str,
    source: str,
    value: float,
    *,
    is_wrong: bool,
) -> _Row:
    size = int(batch) if batch.isascii() and batch.isdecimal() and len(batch) < 9 else 0
    label = f"{workload} {phase} {form} batch {batch}"
    if is_wrong:
        return _Row(device, workload, label, value, None, WRONG_UNIT)
    if not 1 <= size <= _LARGEST_BATCH:
        return _Row(
            device,
            workload,
            label,
            value,
            None,
            f"batch size {batch[:20]!r} is no number of images",
        )
    try:
        if source.startswith(_TORCH7):
            return _torch7(workload, phase, device, size, note, value * 1e-3)
        if phase == "train":
            return _training(workload, device, form, size, size / value)
        return _sweep(workload, device, form, size, value * 1e-3)
    except (InputError, KeyError) as error:
        return _Row(device, workload, label, value, None, f"not understood: {str(error)[:80]}")


def _torch7(
    workload: str, phase: str, device: str, batch: int, note: str, measured_s: float
) -> _Row:
    library = note.split(",")[1].strip() if "," in note else note
    label = f"{workload} {phase} batch {batch} {library}"
    if "cuDNN None" in note:
        return _Row(
            device,
            workload,
            label,
            measured_s,
            None,
            "without cuDNN: another algorithm (explicit im2col)",
        )
    try:
        model = workload_of(workload)
    except UnknownNameError as error:
        return _Row(device, workload, label, measured_s, None, f"no workload {error.name}")
    shape = RunShape(batch=batch, image_size=_TORCH7_IMAGE)
    stack = "torch7 " + ".".join(library.split(".")[:2]).lower()
    run = ModelRun(model, shape, precision("fp32"), phases=_TORCH7_PHASES[phase], stack=stack)
    return _Row(device, workload, label, measured_s, run)


def _sweep(workload: str, device: str, form: str, batch: int, measured_s: float) -> _Row:
    run = ModelRun(
        workload_of(workload), RunShape(batch=batch), precision(form), is_autocast=form == "fp16"
    )
    return _Row(
        device, "resnet-50", f"resnet-50 inference {form} batch {batch} sweep", measured_s, run
    )


def _training(workload: str, device: str, form: str, batch: int, measured_s: float) -> _Row:
    run = ModelRun(
        workload_of(workload), RunShape(batch=batch), precision(form), phases=TRAINING_STEP
    )
    return _Row(device, "resnet-50", f"resnet-50 training {form} batch {batch}", measured_s, run)


def _is_image_throughput(table: Table) -> Mask:
    """Throughput rows of image families on one GPU."""
    header = np.char.find(table["metric_header"], "hroughput") >= 0
    one = np.isin(table["n_gpus"], ["1", "1.0"]) & np.isin(table["family"], list(_FAMILIES))
    asked: Mask = header & one & (table["metric_kind"] == "throughput")
    return asked


def _examples(rows: Table, wrong_unit: Mask) -> Iterable[_Row]:
    names = (
        "framework",
        "family",
        "task_mode",
        "gpu",
        "precision",
        "batch",
        "metric_header",
        "row_context",
        "value",
    )
    records = [
        dict(zip(names, cells, strict=True))
        for cells in zip(*(rows[n].tolist() for n in names), strict=True)
    ]
    seen = Counter((_table_of(record), record["batch"]) for record in records)
    merged = {table for (table, _), count in seen.items() if count > 1}
    for record, is_wrong in zip(records, wrong_unit.tolist(), strict=True):
        yield _example(record, is_merged=_table_of(record) in merged, is_wrong=is_wrong)


def _table_of(record: Mapping[str, Any]) -> tuple[Any, ...]:
    """What names a table; two rows of one batch size mean that several tables were parsed under one
    name.
    """
    size = _context(record).get("Resolution", "")
    return (
        *(
            record[n]
            for n in ("framework", "family", "task_mode", "gpu", "precision", "metric_header")
        ),
        size,
    )


def _context(record: Mapping[str, Any]) -> dict[str, str]:
    try:
        context = json.loads(record["row_context"])
    except json.JSONDecodeError:
        return {}
    return {key: str(value) for key, value in context.items()} if isinstance(context, dict) else {}


def _example(record: Mapping[str, Any], *, is_merged: bool, is_wrong: bool) -> _Row:
    family, form = record["family"], record["precision"]
    batch = _batch_size(record["batch"], form)
    label = f"{record['framework']} {family} {record['task_mode']} {form} batch {record['batch']}"
    size = _context(record).get("Resolution", "")
    label = f"{label} {size}".rstrip()
    measured_s = (batch or 1) / record["value"] if record["value"] else 0.0

    reason = WRONG_UNIT if is_wrong else _ambiguity(record, batch, is_merged=is_merged)
    if reason or batch is None:
        return _Row(record["gpu"], family, label, measured_s, None, reason)
    try:
        model = workload_of(_example_model(family, size))
        image = int(size.partition("x")[0]) if size else 0
        phases, form = _EXAMPLE_PHASES[record["task_mode"]], _EXAMPLE_PRECISIONS[form]
    except UnknownNameError as error:
        return _Row(record["gpu"], family, label, measured_s, None, f"no workload {error.name}")
    except (KeyError, ValueError) as error:
        return _Row(
            record["gpu"], family, label, measured_s, None, f"not understood: {str(error)[:80]}"
        )
    run = ModelRun(
        model, RunShape(batch=batch, image_size=image), precision(form), Execution.GRAPH, phases
    )
    return _Row(record["gpu"], model.name, label, measured_s, run)


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
