"""Rows that measured training of a model under a plan: how they are predicted, and the models and
clusters that several tables name.

A row's iteration is simulated as `accelsim.train` does, with one profile per device and one set of
conditions for all tables. What a row does not state and the suite assumes is in that suite's
module.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from accelsim import catalog
from accelsim.catalog.workload_spec import parse_workload
from accelsim.estimation.options import RunOptions, run_options
from accelsim.estimation.resolution import resolve
from accelsim.frozen import frozen
from accelsim.hardware.cluster import Cluster
from accelsim.hardware.profile import DeviceProfile
from accelsim.plain import Values
from accelsim.scoreboard.measured_runs import MeasuredRun
from accelsim.training.iteration import Iteration
from accelsim.training.plan import ParallelismPlan, check_model
from accelsim.training.setup import TrainingSetup
from accelsim.training.simulated_iteration import simulate_iteration
from accelsim.training.trust import iteration_log_sigma, row_spreads
from accelsim.workloads.model import Workload


@frozen
class PlannedRun:
    """One iteration of a model on devices.

    Attributes:
        workload: Model.
        cluster: Where; None for one device.
        device_count: Devices.
        device: Device, where the cluster does not name it.
        global_batch: Samples of an iteration.
        plans: Plans; the quickest counts where a row does not state which.
        options: Fields of `RunOptions`, as (name, value).
    """

    workload: Workload
    cluster: Cluster | None
    device_count: int
    global_batch: int
    plans: tuple[ParallelismPlan, ...]
    options: tuple[tuple[str, Any], ...] = ()
    device: str = ""

    @property
    def profile(self) -> DeviceProfile:
        """Profile of the devices."""
        return catalog.device(self.device or (self.cluster.device_name if self.cluster else ""))


@lru_cache(maxsize=256)
def gpt(hidden: int, heads: int, layers: int, seq_len: int, vocabulary: int = 51_200) -> Workload:
    """A GPT of Megatron-LM: learned positions, biases, tied embeddings, four times as wide inside.

    Narayanan et al. 2021, arXiv:2104.04473, section 5; 51,200 words after padding.
    """
    parameters = gpt_parameters(vocabulary, hidden, layers, heads, seq_len, positions="learned")
    return decoder(f"gpt-{hidden}-{layers}", parameters, seq_len)


def gpt_parameters(
    vocabulary: int,
    hidden: int,
    layers: int,
    heads: int,
    max_positions: int,
    *,
    positions: str = "none",
    has_biases: bool = True,
) -> Values:
    """A decoder with layer norms and GELU, four times as wide inside, its embeddings tied."""
    return {
        "layout": "gpt2",
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "layers": layers,
        "heads": heads,
        "intermediate_size": 4 * hidden,
        "activation": "gelu",
        "gated": False,
        "norm": "layer_norm",
        "positions": positions,
        "max_positions": max_positions,
        "tied_embeddings": True,
        "fused_qkv": True,
        **dict.fromkeys(("attention_bias", "output_bias", "feed_forward_bias"), has_biases),
    }


def decoder(name: str, parameters: Values, seq_len: int) -> Workload:
    """A decoder-only model of given parameters."""
    return parse_workload(
        {
            "name": name,
            "title": name,
            "task": "text-generation",
            "family": "decoder",
            "parameters": parameters,
            "default": {"seq_len": seq_len},
        }
    )


def model_flop(workload: Workload, seq_len: int, batch: int = 1) -> float:
    """Arithmetic of a forward and a backward pass, attention as a full rectangle."""
    from accelsim.dtype import PRECISIONS
    from accelsim.workloads.model import PassShape

    shape = PassShape(batch=batch, seq_len=seq_len)
    return 3.0 * float(workload.lower(shape, PRECISIONS["bf16"]).graph.model_flop)


@lru_cache(maxsize=256)
def _setup(run: PlannedRun) -> TrainingSetup:
    chosen = run_options(
        RunOptions(), {"mode": "training", "batch": run.global_batch, **dict(run.options)}
    )
    resolved = resolve(run.workload, run.profile, chosen)
    count = run.device_count
    joined = None if run.cluster is None or count == 1 else run.cluster.with_devices(count)
    return TrainingSetup(resolved, joined, count)


def iteration_of(run: PlannedRun) -> Iteration:
    """The quickest iteration of a run's plans.

    Raises:
        InvalidValueError: If a plan does not divide the model or the batch.
    """
    setup = _setup(replace(run, plans=()))
    iterations = []
    for plan in run.plans:
        check_model(plan, setup.run.workload, setup.run.seq_len)
        iterations.append(simulate_iteration(setup, plan, run.global_batch))
    fitting = [x for x in iterations if x.memory_bytes <= setup.capacity_bytes]
    return min(fitting or iterations, key=lambda x: x.iteration_s)


def fits(run: PlannedRun) -> bool:
    """Whether the quickest of a run's plans is predicted to fit."""
    iteration = iteration_of(run)
    return iteration.memory_bytes <= iteration.setup.capacity_bytes


#: View of rows whose plan needs more memory than the model says there is; they ran.
_NO_FIT = "predicted not to fit"


def planned(row: MeasuredRun, run: PlannedRun) -> MeasuredRun:
    """A row with its predicted time and spread; refused where it cannot be predicted."""

    def figure(row: MeasuredRun) -> MeasuredRun:
        iteration = iteration_of(run)
        return replace(
            row,
            profile=run.profile.name,
            predicted_s=iteration.iteration_s,
            log_sigma=iteration_log_sigma(iteration),
            roofline_s=_peak_s(run, iteration.setup),
            setting=str(row_spreads(iteration).setting),
            views=row.views | {_NO_FIT}
            if iteration.memory_bytes > iteration.setup.capacity_bytes
            else row.views,
        )

    return row.answered(figure)


def _peak_s(run: PlannedRun, setup: TrainingSetup) -> float:
    """Model arithmetic at the devices' peak rate; NaN where the rate is unknown."""
    peak = run.profile.peak_flop_per_s.get(setup.run.precision.compute)
    if not peak:
        return float("nan")
    flop = model_flop(run.workload, setup.run.seq_len) * run.global_batch
    return float(flop / peak / run.device_count)
