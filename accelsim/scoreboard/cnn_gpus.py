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
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from accelsim.catalog.stacks import stack
from accelsim.cost.table import Execution
from accelsim.dtype import precision
from accelsim.errors import InputError, UnknownNameError
from accelsim.plain import Document, Values
from accelsim.scoreboard.data_folder import WRONG_UNIT, DataFolder, Table, schema
from accelsim.scoreboard.measured_runs import MeasuredRun, RunModel, run_batches
from accelsim.scoreboard.metrics import knee_batch
from accelsim.scoreboard.names import gpu_of, note_unknown_devices, workload_of
from accelsim.scoreboard.runs import (
    TRAINING_STEP,
    ModelRun,
    run_roofline_s,
    run_time_s,
)
from accelsim.scoreboard.scored_rows import ScoredRows
from accelsim.scoreboard.suite import MeasuredBatch, register_suite
from accelsim.workloads.graph import BoolArray
from accelsim.workloads.model import PassShape
from accelsim.workloads.operator import Phase

MEASUREMENTS_SCHEMA = schema("claims/reference_measurements.csv")
EXAMPLES_SCHEMA = schema("training/nvidia_deeplearningexamples.csv.gz")
#: What names a table among the examples.
_TABLE_KEY = ("framework", "family", "task_mode", "gpu", "precision", "metric_header")
Mask: TypeAlias = BoolArray
#: Units of throughputs that say no more than that the table's header names it.
_STATED_IN_HEADER = ("", "img/s", "images/s")
_SWEEP = "NVIDIA/DeepLearningExamples PyTorch ResNet50v1.5"
#: Images of a batch; more is a slip.
_LARGEST_BATCH = 1_000_000
_TORCH7 = "jcjohnson/cnn-benchmarks"
_TORCH7_PHASES = {
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
#: What ran the examples of a framework.
_STACKS = {
    "MxNet": "mxnet",
    "PaddlePaddle": "paddle",
    "PyTorch": "pytorch",
    "TensorFlow": "tensorflow@1.15",
    "TensorFlow2": "tensorflow",
}
#: MXNet replays graphs since September 2020: on the boards launched from that year on. Estimate:
#: the rows name neither version nor launch.
_REPLAYS_SINCE = 2020
_EXAMPLE_PRECISIONS = {"amp": "fp16", "fp16": "fp16", "fp32": "fp32", "tf32": "tf32"}
_EXAMPLE_PHASES = {"training": TRAINING_STEP, "inference": (Phase.FORWARD,)}
_EFFICIENTNETS = {224: "efficientnet-b0", 380: "efficientnet-b4"}
#: A knee this many times the measured one (or less) is within one power of two.
_ONE_POWER = 2.0


def knees(rows: Sequence[ScoredRows]) -> Document:
    """The batch size from which more does not help, measured and predicted, of every sweep."""
    runs = []
    for batch_rows in rows:
        sweeps: dict[str, list[tuple[int, int]]] = {}
        for index, label in enumerate(batch_rows.label.tolist() if not batch_rows.refusal else ()):
            if match := re.fullmatch(r"(.* inference .*) batch (\d+) sweep", label):
                sweeps.setdefault(match[1], []).append((int(match[2]), index))
        for name, points in sweeps.items():
            if len(points) > 2:
                batch, index = np.array(sorted(points)).T
                times = (batch_rows.measured_s[index], batch_rows.predicted_s[index])
                measured, predicted = (knee_batch(batch.astype(float), time) for time in times)
                ratio = max(measured, predicted) / min(measured, predicted)
                runs.append(
                    {
                        "device": batch_rows.device,
                        "sweep": name,
                        "measured_batch": measured,
                        "predicted_batch": predicted,
                        "within_one_power_of_two": ratio <= _ONE_POWER,
                    }
                )
    return {"knees": runs} if runs else {}


@register_suite(
    "cnn-gpus",
    "convolutional networks on single GPUs",
    (),
    "model",
    optional_files=(MEASUREMENTS_SCHEMA, EXAMPLES_SCHEMA),
    is_ranked=True,
    findings=knees,
)
def load(folder: DataFolder) -> list[MeasuredBatch]:
    """Batches of both tables, by device."""
    rows: list[MeasuredRun] = []
    if (table := folder.table(MEASUREMENTS_SCHEMA)) is not None:
        scored = table.take(_is_asked(table))
        note_unknown_devices(folder, scored)
        wanted = np.where(scored["metric"] == "throughput", "images/s", "ms")
        rows += _read(scored, folder.refuse_units(scored, wanted), _measurement)
    if (examples := folder.table(EXAMPLES_SCHEMA)) is not None:
        scored = examples.take(_is_image_throughput(examples))
        note_unknown_devices(folder, scored, "gpu")
        wanted = np.where(np.isin(scored["unit"], _STATED_IN_HEADER), "", "img/s")
        seen = Counter((_table_of(record), record["batch"]) for record in scored.records())
        merged = {table for (table, _), count in seen.items() if count > 1}
        read = partial(_example, merged=merged)
        rows += _read(scored, folder.refuse_units(scored, wanted), read)
    return run_batches(rows, RunModel(gpu_of, run_roofline_s, run_time_s))


def _read(
    table: Table, wrong_unit: Mask, read: Callable[[Values, str], MeasuredRun]
) -> list[MeasuredRun]:
    """Rows as runs; `read` takes a record and why it is refused already."""
    reasons = np.where(wrong_unit, WRONG_UNIT, "").tolist()
    return [read(record, why) for record, why in zip(table.records(), reasons, strict=True)]


def _with_run(row: MeasuredRun, build: Callable[[], ModelRun]) -> MeasuredRun:
    """The row with what was run; refused where the catalogue has no such run."""
    try:
        run = build()
        run.graph()
    except (InputError, KeyError, ValueError) as error:
        if isinstance(error, UnknownNameError) and error.what == "workload":
            return row.refused(f"no workload {error.name}")
        return row.refused(f"not understood: {str(error)[:80]}")
    return replace(row, run=run)


def _is_asked(table: Table) -> Mask:
    """Rows of one device and the three measurements of this suite."""
    source = table["source"]
    torch7 = np.char.startswith(source, _TORCH7)
    sweep = np.char.startswith(source, _SWEEP)
    latency = table["metric"] == "latency_avg"
    training = (table["phase"] == "train") & (table["metric"] == "throughput")
    is_scored: Mask = (
        (table["n_devices"] == "1")
        & (table["batch"] != "")
        & (torch7 | (sweep & (latency | training)))
    )
    return is_scored


def _measurement(record: Values, reason: str) -> MeasuredRun:
    names = ("workload", "phase", "precision", "batch")
    workload, phase, form, batch = (record[name] for name in names)
    size = _size(batch)
    label = f"{workload} {phase} {form} batch {batch}"
    row = MeasuredRun(record["device"], workload, label, record["value"])
    if not (reason or size):
        reason = f"batch size {batch[:20]!r} is no number of images"
    if reason:
        return row.refused(reason)
    read = _torch7 if record["source"].startswith(_TORCH7) else _pytorch
    return read(row, record, size)


def _size(cell: str) -> int:
    """Images of a batch; 0 where the cell is no such number."""
    size = int(cell) if re.fullmatch("[0-9]{1,8}", cell) else 0
    return size if size <= _LARGEST_BATCH else 0


def _torch7(row: MeasuredRun, record: Values, batch: int) -> MeasuredRun:
    note = record["note"]
    phase = record["phase"]
    library = note.split(",")[1].strip() if "," in note else note
    label = f"{row.group} {phase} batch {batch} {library}"
    row = replace(row, label=label, measured_s=row.measured_s * 1e-3)
    if "cuDNN None" in note:
        return row.refused("without cuDNN: another algorithm (explicit im2col)")
    shape = PassShape(batch=batch, image_size=_TORCH7_IMAGE)
    stack = "torch7 " + ".".join(library.split(".")[:2]).lower()

    def run() -> ModelRun:
        phases = _TORCH7_PHASES[phase]
        model = workload_of(row.group)
        return ModelRun(model, shape, precision("fp32"), phases=phases, stack=stack)

    return _with_run(row, run)


def _pytorch(row: MeasuredRun, record: Values, batch: int) -> MeasuredRun:
    """Training throughput, or the latency of a batch of a sweep."""
    form = record["precision"]
    is_training = record["phase"] == "train"
    what, end = ("training", "") if is_training else ("inference", " sweep")

    def run() -> ModelRun:
        parts = (workload_of(row.group), PassShape(batch=batch), precision(form))
        if is_training:
            return ModelRun(*parts, phases=TRAINING_STEP)
        return ModelRun(*parts, is_autocast=form == "fp16")

    return replace(
        _with_run(row, run),
        group="resnet-50",
        label=f"resnet-50 {what} {form} batch {batch}{end}",
        measured_s=batch / row.measured_s if is_training else row.measured_s * 1e-3,
        views=frozenset() if is_training else frozenset({"batch sweep"}),
    )


def _is_image_throughput(table: Table) -> Mask:
    """Throughput rows of image families on one GPU; tables of inference may leave the count out."""
    header = np.char.find(table["metric_header"], "hroughput") >= 0
    inferred = (table["n_gpus"] == "") & (table["task_mode"] == "inference")
    is_one_gpu = np.isin(table["n_gpus"], ["1", "1.0"]) | inferred
    is_scored: Mask = header & is_one_gpu & np.isin(table["family"], _FAMILIES)
    is_scored &= table["metric_kind"] == "throughput"
    return is_scored


def _table_of(record: Values) -> tuple[Any, ...]:
    """What names a table; two rows of one batch size mean that several tables were parsed under one
    name.
    """
    return (*(record[name] for name in _TABLE_KEY), _context(record).get("Resolution", ""))


def _context(record: Values) -> dict[str, str]:
    try:
        context = json.loads(record["row_context"])
    except json.JSONDecodeError:
        return {}
    return {key: str(value) for key, value in context.items()} if isinstance(context, dict) else {}


def _example(record: Values, reason: str, merged: Collection[tuple[Any, ...]]) -> MeasuredRun:
    family, form, mode = (record[name] for name in ("family", "precision", "task_mode"))
    batch = _batch_size(record["batch"], form)
    size = _context(record).get("Resolution", "")
    label = f"{record['framework']} {family} {mode} {form} batch {record['batch']} {size}"
    measured_s = (batch or 1) / record["value"] if record["value"] else 0.0
    row = MeasuredRun(record["gpu"], family, label.rstrip(), measured_s)
    reason = reason or _ambiguity(record, batch, is_merged=_table_of(record) in merged)
    if reason:
        return row.refused(reason)

    run = _with_run(row, partial(_example_run, record, batch, size))
    return run if run.run is None else replace(run, group=run.run.workload.name)


def _example_run(record: Values, batch: int, size: str) -> ModelRun:
    """What an example of a framework ran, on images of a size such as ``224x224``."""
    image = int(size.partition("x")[0]) if size else 0
    shape = PassShape(batch=batch, image_size=image)
    form, mode = record["precision"], record["task_mode"]
    model = workload_of(_example_model(record["family"], image))
    framework = stack(_STACKS[record["framework"]])
    replays = framework.name == "mxnet" and gpu_of(record["gpu"]).year >= _REPLAYS_SINCE
    path = framework.paths["graph" if replays else "eager"]
    return ModelRun(
        *(model, shape, precision(_EXAMPLE_PRECISIONS[form])),
        *(Execution(path.launch), _EXAMPLE_PHASES[mode]),
        is_autocast=framework.name == "pytorch" and form == "amp" and mode == "inference",
        fuses=path.fuses,
        host=framework.version.gpu_host_ratio,
        spread=framework.log_sigmas("gpu", mode)["whole"],
    )


def _ambiguity(record: Values, batch: int, *, is_merged: bool) -> str:
    """Why a row does not say what was run; empty where it does."""
    header = record["metric_header"]
    reasons = (
        (not record["value"], "the table says 0 per second"),
        (not batch, "batch size not stated in the row"),
        (is_merged, "several tables under one precision: which one is not stated in the row"),
        ("+" in header, f"variant not modelled: {header}"),
        (record["framework"] not in _STACKS, f"no stack {record['framework']}"),
    )
    return next((reason for holds, reason in reasons if holds), "")


def _example_model(family: str, image: int) -> str:
    if family == "efficientnet_v1":
        return _EFFICIENTNETS.get(image, family)
    return "unet" if family == "UNet_Medical" else family


def _batch_size(cell: str, form: str) -> int:
    """Batch of a row, 0 where it is not stated; "64 (FP32) / 128 (AMP)" gives the one of the row's
    precision.
    """
    for alternative in cell.split("/"):
        match = re.fullmatch(r"\s*(\d+)\s*\((\w+)\)\s*", alternative)
        if match and match[2].upper().rstrip("32") == form.upper().rstrip("32"):
            return int(match[1])
    return _size(cell)
