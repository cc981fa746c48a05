"""Suite `mlperf-inference`: offline throughput of MLPerf Inference submissions (closed division), per accelerator.

A submission feeds every accelerator with batches of its own choice as fast as they finish; the prediction is one batch of
the size below in a compiled engine, in the format submitters use (INT8 for vision, recommendation and BERT at 99 % of the
reference accuracy, FP16 where 99.9 % is asked). Rows of generated tokens are scored by the serving suites. Sizes of a
sample: BERT runs without padding, so a SQuAD sample is its mean length (384 tokens over a packing factor of 2.2; Krell et
al., arXiv:2107.02027); a DLRM sample is 100 to 700 user-item pairs, 270 on average (MLPerf Inference, recommendation
reference); a RetinaNet sample is an 800 x 800 image.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from accelsim.calibration.validation.cnn_gpus import run_batches
from accelsim.calibration.validation.names import gpu_of, note_unknown_devices, workload_of
from accelsim.calibration.validation.runs import ModelRun
from accelsim.calibration.validation.suite import Batch, register_suite
from accelsim.calibration.validation.tables import DataFolder, Schema, Table, number, text
from accelsim.cost.table import Execution
from accelsim.errors import UnknownNameError
from accelsim.hardware.profile import GpuProfile
from accelsim.workloads.dtype import PRECISIONS, Dtype, Precision
from accelsim.workloads.model import RunShape

__all__ = ["MLPERF_SCHEMA"]

MLPERF_SCHEMA = Schema(
    "serving/mlperf_inference.csv",
    (
        *text("round", "submitter", "system", "accelerator", "model", "scenario", "valid", "unit", "framework"),
        *number("acc_per_node", "samples_per_s", optional=True),
        *number("nodes"),
    ),
)


@dataclass(frozen=True, slots=True)
class _Task:
    """How a benchmark's sample maps to a workload: batch in samples, and rows of the workload per sample."""

    batch: int
    rows_per_sample: float = 1.0
    seq_len: int = 0
    image_size: int = 0


_TASKS: Mapping[str, _Task] = {
    "resnet50": _Task(batch=256),
    "ssd-mobilenet": _Task(batch=256),
    "retinanet": _Task(batch=16, image_size=800),
    "bert-99": _Task(batch=256, seq_len=175),
    "bert-99.9": _Task(batch=256, seq_len=175),
    "dlrm-99": _Task(batch=200, rows_per_sample=270.0),
    "dlrm-99.9": _Task(batch=200, rows_per_sample=270.0),
    "dlrm-v2-99": _Task(batch=200, rows_per_sample=270.0),
    "dlrm-v2-99.9": _Task(batch=200, rows_per_sample=270.0),
}
_REFUSED_TASKS: Mapping[str, str] = {
    "3d-unet-99": "a sample is a volume of varying size, cut into windows: windows per sample unknown",
    "3d-unet-99.9": "a sample is a volume of varying size, cut into windows: windows per sample unknown",
    "stable-diffusion-xl": "a sample is several networks run many times",
}


@dataclass(frozen=True, slots=True)
class _Row:
    device: str
    model: str
    label: str
    measured_s: float
    run: ModelRun | None
    refusal: str = ""


@register_suite(
    "mlperf-inference", "MLPerf Inference offline throughput per accelerator", (MLPERF_SCHEMA,), "model", is_ranked=True
)
def load(folder: DataFolder) -> list[Batch]:
    """Offline rows by device."""
    table = folder.table(MLPERF_SCHEMA)
    if table is None:
        return []
    offline = table.take(table["scenario"] == "offline")
    note_unknown_devices(folder, offline, "accelerator")
    return run_batches(_rows(offline))


def _rows(table: Table) -> Iterable[_Row]:
    names = ("accelerator", "model", "unit", "acc_per_node", "nodes", "samples_per_s", "valid")
    for accelerator, model, unit, per_node, nodes, rate, valid in zip(*(table[n].tolist() for n in names), strict=True):
        yield _row(accelerator, model, unit, max(per_node, 1.0) * max(nodes, 1.0), rate, is_valid=valid == "VALID")


def _row(accelerator: str, model: str, unit: str, count: float, rate: float, *, is_valid: bool) -> _Row:
    task = _TASKS.get(model, _Task(1))
    usable = bool(np.isfinite(rate)) and rate > 0
    measured_s = task.batch * count / rate if usable else float("nan")
    has_accelerator = accelerator not in {"", "-"}
    device = accelerator if has_accelerator else "CPU"
    reason = _refusal(model, unit, has_accelerator=has_accelerator, is_usable=is_valid and usable)
    if reason:
        return _Row(device, model, model, measured_s, None, reason)
    try:
        profile, workload = gpu_of(accelerator), workload_of(model)
    except UnknownNameError as error:
        reason = f"no workload {model}" if error.what == "workload" else f"no GPU profile of {accelerator}"
        return _Row(device, model, model, measured_s, None, reason)
    shape = RunShape(batch=round(task.batch * task.rows_per_sample), seq_len=task.seq_len, image_size=task.image_size)
    run = ModelRun(workload, shape, _precision(model, profile), Execution.COMPILED)
    return _Row(device, model, model, measured_s, run)


def _refusal(model: str, unit: str, *, has_accelerator: bool, is_usable: bool) -> str:
    """Why a row is not asked; empty where it is."""
    if not has_accelerator:
        return "submission without an accelerator"
    if not is_usable:
        return "no valid samples per second in the row"
    if unit != "samples/s":
        return "generated tokens are scored by the serving suites"
    if model not in _TASKS:
        return _REFUSED_TASKS.get(model, f"no workload {model}")
    return ""


def _precision(model: str, profile: GpuProfile) -> Precision:
    """INT8, or FP16 where 99.9 % of the reference accuracy is asked; FP32 where the board has neither."""
    wanted = (Dtype.FP16, "fp16") if model.endswith("99.9") else (Dtype.INT8, "int8")
    has = wanted[0] in profile.peak_flop_per_s
    return PRECISIONS[wanted[1] if has else "fp32"]
