"""Runs of published figures of one device.

A row names a stack, its mode, a network and a board, and is asked as a user asks: through the
options of a run. Its time is that of an iteration (throughput), of a batch (latency), of a token
(decode), of all tokens (generation) or of a prompt. A stack's ratios are fitted to such rows: every
row is predicted with the ratios of all boards but its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from accelsim.cost.registry import Parameters
from accelsim.errors import AccelsimError, UnknownNameError
from accelsim.estimation.likeness import Setting, setting_of
from accelsim.estimation.options import ModelOptions, RunOptions, RunShape, TrainingOptions
from accelsim.estimation.passes import RunPasses, run_passes
from accelsim.estimation.resolution import resolve
from accelsim.estimation.run import ResolvedRun
from accelsim.estimation.simulate import Simulation, check_memory, simulated
from accelsim.frozen import frozen
from accelsim.hardware.profile import DeviceProfile
from accelsim.plain import Values
from accelsim.scoreboard.columns import roofline_s
from accelsim.scoreboard.measured_runs import MeasuredRun, RunModel
from accelsim.scoreboard.names import device_of, workload_of
from accelsim.scoreboard.parameters import parameters
from accelsim.scoreboard.suite import reason_of


@frozen(eq=False)
class PublishedRun:
    """What a row ran, and which of its times was measured.

    Attributes:
        run: The run, resolved; its board had no part in the stack's ratios.
        passes: Its passes.
        metric: Name of the measured figure.
    """

    run: ResolvedRun
    passes: RunPasses
    metric: str

    @property
    def setting(self) -> Setting:
        """Mode, format and kind of model."""
        first = self.passes.passes[0].graph
        run = self.run
        return setting_of(run.mode, run.precision, first, generates=run.output_len > 0)


def _decode_s(simulation: Simulation) -> float:
    return float(simulation.time_per_output_token_s or np.nan)


#: Predicted seconds by metric.
PREDICTED_S: Mapping[str, Callable[[Simulation], float]] = {
    "samples_per_s": lambda simulation: simulation.period_s,
    "iterations_per_s": lambda simulation: simulation.period_s,
    "latency_ms": lambda simulation: simulation.latency_s,
    "decode_tokens_per_s": _decode_s,
    "generated_tokens_per_s": lambda simulation: simulation.latency_s,
    "prompt_tokens_per_s": lambda simulation: simulation.latency_s,
}


def _measured_s(metric: str, value: float, shape: RunShape) -> float:
    """Seconds that a figure stands for."""
    batch = shape.batch or 1
    work = {
        "samples_per_s": batch,
        "iterations_per_s": 1,
        "decode_tokens_per_s": batch,
        "generated_tokens_per_s": batch * (shape.output_len or 0),
        "prompt_tokens_per_s": batch * (shape.seq_len or 0),
    }
    return value * 1e-3 if metric == "latency_ms" else work[metric] / value


def published_row(record: Values) -> MeasuredRun:
    """A row of the table as a run; a stack that is not named is the device's own."""
    stack = " ".join(filter(None, (record["stack"], record["execution"])))
    sizes = (f"{record[name]:.0f}" if record[name] >= 0 else "" for name in _SIZES)
    label_parts = (
        record["workload"],
        record["mode"],
        record["precision"],
        *sizes,
        record["metric"],
    )
    shape = RunShape(**{name: _size(record[name]) for name in _SIZES})
    measured_s = _measured_s(record["metric"], record["value"], shape)
    row = MeasuredRun(record["device"], stack, " ".join(filter(None, label_parts)), measured_s)
    try:
        return replace(row, run=_run(record, shape))
    except UnknownNameError as error:
        return row.refused(f"no {error.what} {error.name}")
    except AccelsimError as error:
        return row.refused(reason_of(error))


_SIZES = ("batch", "seq_len", "output_len", "image_size")


def _size(value: float) -> int | None:
    return int(value) if value >= 0 else None


def _run(record: Values, shape: RunShape) -> PublishedRun:
    model = ModelOptions(
        precision=record["precision"],
        stack=record["stack"] or None,
        execution=record["execution"] or None,
        fused_attention=record["fused_attention"] != "false",
    )
    training = TrainingOptions(optimizer=record["optimizer"] or None)
    options = RunOptions(record["mode"], model, shape, training)
    device = device_of(record["device"])
    run = resolve(workload_of(record["workload"]), device, options)
    if record["layout"] and not run.stack_path.lays_out:
        laid_out = replace(model, layout=record["layout"])
        run = resolve(run.workload, device, replace(options, model=laid_out))
    board = device.whole_name
    unseen = parameters()
    run = replace(run, stack=unseen.stack(run.stack, board), spreads=unseen.spreads(board))
    passes = run_passes(run)
    check_memory(run, passes)
    return PublishedRun(run, passes, record["metric"])


def _roofline_s(run: PublishedRun, device: DeviceProfile) -> float:
    parts = [roofline_s(p.graph, device).sum() * p.repeats for p in _timed(run)]
    return float(sum(parts))


def _timed(run: PublishedRun) -> list[Any]:
    """Passes that the figure counts; a token's time is that of a mean decode step."""
    if run.metric != "decode_tokens_per_s":
        return list(run.passes.passes)
    decodes = [p for p in run.passes.passes if p.name == "decode"]
    steps = sum(p.repeats for p in decodes)
    return [replace(p, repeats=p.repeats / steps) for p in decodes]


def _time_s(
    run: PublishedRun, _device: DeviceProfile, parameters: Parameters | None
) -> tuple[float, float]:
    """Predicted time and its log standard deviation."""
    simulation = simulated(run.run, run.passes, parameters)
    return PREDICTED_S[run.metric](simulation), simulation.log_sigma


#: How rows are predicted.
PUBLISHED = RunModel(device_of, _roofline_s, _time_s)
