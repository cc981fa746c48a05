"""Suite `mlperf-inference`: offline throughput of MLPerf Inference submissions (closed division),
per accelerator.

A submission feeds every accelerator (a socket where there is none) with batches of its own choice
as fast as they finish; the prediction is the best of the batches below, or the batch that
submitters publish, in a compiled engine, in the format submitters use: INT8 for vision,
recommendation and BERT at 99 % of the reference accuracy, FP16 where 99.9 % is asked and for images
from text. Rows of generated tokens are scored by the serving suites. Sizes of a sample: BERT runs
without padding, so a SQuAD sample is its mean length (384 tokens over a packing factor of 2.2;
Krell et al., arXiv:2107.02027); a DLRM sample is 100 to 700 user-item pairs, 270 on average (MLPerf
Inference, recommendation reference); a RetinaNet sample is an 800 x 800 image, whose boxes are
chosen from 264 scores of 120,087 anchors, an SSD-ResNet-34 sample one of 1200 x 1200. A 3D-UNet
sample is one volume of 224 x 224 x 160 up to round 1.1 (BraTS 2019). From 2.0 on it is a KiTS 2019
scan cut into windows of 128 voxels every 64, at 1.6 x 1.2 x 1.2 mm: the mean number of windows in a
plane over the 42 cases of the benchmark, from their pixel widths (kits.json), is 20.2, times 3 for
the median length of a scan, 128 slices of 3.22 mm (Isensee and Maier-Hein, arXiv:1908.02182): 61
windows. A Stable Diffusion XL sample is 20 steps of the U-Net on two prompts (guidance) and one
pass of the image decoder (MLPerf Inference, text_to_image reference); the text encoders, under 1 %
of the work, are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from accelsim.dtype import PRECISIONS, Dtype, Precision
from accelsim.errors import UnknownNameError
from accelsim.frozen import frozen
from accelsim.hardware.profile import DeviceProfile
from accelsim.plain import Values
from accelsim.scoreboard.data_folder import WRONG_UNIT, DataFolder, Table, published, schema
from accelsim.scoreboard.measured_runs import MeasuredRun, RunModel, run_batches
from accelsim.scoreboard.names import device_of, note_unknown_devices, workload_of
from accelsim.scoreboard.suite import MeasuredBatch, register_suite
from accelsim.scoreboard.throughput import (
    PipelineNetwork,
    Throughput,
    sample_time_s,
    throughput_roofline_s,
)
from accelsim.workloads.model import PassShape

MLPERF_SCHEMA = schema("serving/mlperf_inference.csv")
_UNITS = ("samples/s", "tokens/s")


@frozen
class _Task:
    """How a benchmark's sample maps to a workload.

    Attributes:
        batches: Pieces of samples per batch a submitter may choose.
        part: Pieces of a sample.
        rows_per_sample: Rows of the workload's batch per sample.
        seq_len: Tokens, where the workload has them.
        image_size: Pixels, where not the workload's own.
        workload: Name in the catalogue, where it is not the benchmark's.
        repeats: Times the workload runs for one batch.
        decoder: A network that runs once on each sample afterwards.
        scores: Class scores of a sample from which its boxes are chosen.
    """

    batches: Sequence[float]
    part: float = 1.0
    rows_per_sample: float = 1.0
    seq_len: int = 0
    image_size: int = 0
    workload: str = ""
    repeats: float = 1.0
    decoder: str = ""
    scores: float = 0.0

    @property
    def samples(self) -> tuple[float, ...]:
        """Samples per batch; need not be whole."""
        return tuple(count / self.part for count in self.batches)


_TASKS: Values = published("mlperf_tasks")
_MIXED_FORMATS = "engine of mixed INT8 and FP16: which layers run in which is not published"


@register_suite(
    "mlperf-inference",
    "MLPerf Inference offline throughput per accelerator",
    (MLPERF_SCHEMA,),
    "model",
    is_ranked=True,
)
def load(folder: DataFolder) -> list[MeasuredBatch]:
    """Offline rows by device, and by reason where they are refused."""
    table = folder.table(MLPERF_SCHEMA)
    if table is None:
        return []
    offline = table.take(table["scenario"] == "offline")
    note_unknown_devices(folder, offline, "accelerator")
    folder.refuse_units(offline, np.where(np.isin(offline["unit"], _UNITS), "", _UNITS[0]))
    return run_batches(
        mlperf_runs(offline), RunModel(device_of, throughput_roofline_s, sample_time_s)
    )


def mlperf_runs(table: Table) -> Iterable[MeasuredRun]:
    """What rows of the table ran."""
    for row in table.records():
        is_host = row["accelerator"] in {"", "-"}
        device = row["host_cpu"] or row["accelerator"] if is_host else row["accelerator"]
        count = row["sockets"] if is_host else row["acc_per_node"]
        device_count = count if np.isfinite(count) and count > 0 else 1.0
        yield _row(row, device, device_count * max(row["nodes"], 1.0))


def _row(row: Values, device: str, count: float) -> MeasuredRun:
    """One row; its time is that of one sample on one of `count` devices."""
    model, rate = row["model"], row["samples_per_s"]
    is_usable = bool(np.isfinite(rate)) and rate > 0
    measured_s = count / rate if is_usable else float("nan")
    measured = MeasuredRun(device, model, model, measured_s)
    task = _task(row["round"], model)
    is_valid = is_usable and row["valid"] == "VALID"
    reason = _refusal(device, model, row["unit"], task, is_usable=is_valid)
    if reason or task is None:
        return measured.refused(reason)
    try:
        profile = device_of(device)
        programs, samples = _TASKS["programs"].get(profile.name, {}).get(model, (0, 0))
        task = replace(task, batches=[programs * samples]) if programs else task
        stages = _stages(model, task)
    except UnknownNameError as error:
        lacking = f"workload {model}" if error.what == "workload" else f"profile of {device}"
        return measured.refused(f"no {lacking}")
    if model in _TASKS["mixed"].get(profile.name, ()):
        return measured.refused(_MIXED_FORMATS)
    run = Throughput(stages, task.samples, _precision(model, profile), task.scores)
    return replace(measured, run=run, program_count=programs)


def _stages(model: str, task: _Task) -> tuple[PipelineNetwork, ...]:
    """The benchmark's network, and what runs after it."""

    def stage(name: str, rows_per_sample: float, repeats: float = 1.0) -> PipelineNetwork:
        shapes = tuple(
            PassShape(
                batch=round(samples * rows_per_sample),
                seq_len=task.seq_len,
                image_size=task.image_size,
            )
            for samples in task.samples
        )
        return PipelineNetwork(workload_of(name), shapes, repeats)

    first = stage(task.workload or model, task.rows_per_sample, task.repeats)
    return (first, stage(task.decoder, 1.0)) if task.decoder else (first,)


def _task(version: str, model: str) -> _Task | None:
    base = model.removesuffix("-99.9").removesuffix("-99")
    is_brats = base == "3d-unet" and version in _TASKS["brats_rounds"]
    entry = _TASKS["tasks"].get(f"{base} brats" if is_brats else base)
    return None if entry is None else _Task(**entry)


def _refusal(device: str, model: str, unit: str, task: _Task | None, *, is_usable: bool) -> str:
    """Why a row is not asked; empty where it is."""
    if device in {"", "-"}:
        return "submission without an accelerator whose host is not named"
    if not is_usable:
        return "no valid samples per second in the row"
    if unit not in _UNITS:
        return WRONG_UNIT
    if unit == "tokens/s":
        return "generated tokens are scored by the serving suites"
    return "" if task is not None else _TASKS["refused"].get(model, f"no workload {model}")


def _precision(model: str, profile: DeviceProfile) -> Precision:
    """INT8, or FP16 where 99.9 % of the reference accuracy is asked; FP32 where the device has
    neither.
    """
    is_half = model.endswith("99.9") or model in _TASKS["half"]
    wanted = Dtype.FP16 if is_half else Dtype.INT8
    return PRECISIONS[wanted.label if wanted in profile.peak_flop_per_s else "fp32"]
