"""Rows that measured training of a model under a plan: how they are predicted, and the models and
clusters that several tables name.

A row's iteration is simulated as `accelsim.train` does, with one profile per device and one set of
conditions for all tables. What a row does not state and the suite assumes is in that suite's
module.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from accelsim import catalog
from accelsim.errors import AccelsimError
from accelsim.estimation.options import RunOptions, run_options
from accelsim.estimation.run import resolve
from accelsim.frozen import frozen
from accelsim.hardware.cluster import Cluster
from accelsim.hardware.profile import DeviceProfile
from accelsim.plain import Values
from accelsim.scoreboard.suite import Batch, Prediction, fixed_prediction, refused_batch
from accelsim.training.iteration import Iteration, simulate_iteration
from accelsim.training.plan import ParallelismPlan, check_model
from accelsim.training.setup import TrainingSetup
from accelsim.training.trust import iteration_log_sigma, row_spreads
from accelsim.workloads.model import Workload
from accelsim.workloads.spec import parse_workload


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


@frozen
class PlannedRow:
    """One measured row.

    Attributes:
        device: Name in the table.
        group: Model.
        label: Configuration.
        measured_s: Measured seconds of an iteration.
        run: What was run; None where it is refused.
        refusal: Why it is not asked.
        views: Names of subsets that it belongs to.
    """

    device: str
    group: str
    label: str
    measured_s: float
    run: PlannedRun | None = None
    refusal: str = ""
    views: frozenset[str] = field(default_factory=frozenset)


@lru_cache(maxsize=256)
def gpt(hidden: int, heads: int, layers: int, seq_len: int, vocabulary: int = 51_200) -> Workload:
    """A GPT of Megatron-LM: learned positions, biases, tied embeddings, four times as wide inside.

    Narayanan et al. 2021, arXiv:2104.04473, section 5; 51,200 words after padding.
    """
    parameters: Values = {
        "layout": "gpt2",
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "layers": layers,
        "heads": heads,
        "intermediate_size": 4 * hidden,
        "activation": "gelu",
        "gated": False,
        "norm": "layer_norm",
        "positions": "learned",
        "max_positions": seq_len,
        "tied_embeddings": True,
        "attention_bias": True,
        "output_bias": True,
        "feed_forward_bias": True,
        "fused_qkv": True,
    }
    return decoder(f"gpt-{hidden}-{layers}", parameters, seq_len)


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
def _setup(
    workload: Workload,
    where: Cluster | None,
    device_count: int,
    device: str,
    batch: int,
    options: tuple[tuple[str, Any], ...],
) -> TrainingSetup:
    profile = catalog.device(device or (where.device_name if where else ""))
    chosen = run_options(RunOptions(), {"mode": "training", "batch": batch, **dict(options)})
    run = resolve(workload, profile, chosen)
    joined = None if where is None or device_count == 1 else where.with_devices(device_count)
    return TrainingSetup(run, joined, device_count)


def iteration_of(run: PlannedRun) -> Iteration:
    """The quickest iteration of a run's plans.

    Raises:
        InvalidValueError: If a plan does not divide the model or the batch.
    """
    sizes = (run.device_count, run.device, run.global_batch)
    setup = _setup(run.workload, run.cluster, *sizes, run.options)
    found = []
    for plan in run.plans:
        check_model(plan, setup.run.workload, setup.run.seq_len)
        found.append(simulate_iteration(setup, plan, run.global_batch))
    fitting = [x for x in found if x.memory_bytes <= setup.capacity_bytes]
    return min(fitting or found, key=lambda x: x.iteration_s)


#: View of rows whose plan needs more memory than the model says there is; they ran.
_NO_FIT = "predicted not to fit"


def planned_batches(rows: Iterable[PlannedRow]) -> list[Batch]:
    """Predict rows; one batch per device and reason of refusal, in which order does not matter."""
    parts: dict[tuple[str, str], list[_Predicted]] = {}
    for row in rows:
        found = _predicted(row)
        parts.setdefault((found.row.device, found.row.refusal), []).append(found)
    return [_batch(own) for own in parts.values()]


@frozen
class _Predicted:
    """A row with what is predicted of it."""

    row: PlannedRow
    time_s: float = float("nan")
    log_sigma: float = float("nan")
    setting: str = ""


def _predicted(row: PlannedRow) -> _Predicted:
    """A row with its predicted time and spread; refused where it cannot be predicted."""
    if row.run is None:
        return _Predicted(row)
    try:
        found = iteration_of(row.run)
    except AccelsimError as error:
        reason = str(error).split(". ")[0].rstrip(".")
        return _Predicted(replace(row, run=None, refusal=reason))
    if found.memory_bytes > found.setup.capacity_bytes:
        row = replace(row, views=row.views | {_NO_FIT})
    setting = str(row_spreads(found).setting)
    return _Predicted(row, found.iteration_s, iteration_log_sigma(found), setting)


def _batch(own: list[_Predicted]) -> Batch:
    rows = [found.row for found in own]
    first = rows[0]
    group = np.array([row.group for row in rows], dtype=str)
    label = np.array([row.label for row in rows], dtype=str)
    columns = (first.device, group, label, np.array([row.measured_s for row in rows]))
    if first.refusal or first.run is None:
        return refused_batch(*columns, first.refusal)
    profile = first.run.profile
    peak_s = [_peak_s(row.run) for row in rows if row.run is not None]
    names = sorted({name for row in rows for name in row.views})
    views = tuple((name, np.array([name in row.views for row in rows])) for name in names)
    times, sigmas = np.array([(found.time_s, found.log_sigma) for found in own]).T
    return Batch(
        first.device,
        profile,
        *columns[1:],
        roofline_s=np.array(peak_s),
        predict=fixed_prediction(Prediction(times, sigmas)),
        views=views,
        setting=np.array([found.setting for found in own]),
    )


def _peak_s(run: PlannedRun) -> float:
    """Model arithmetic at the devices' peak rate; NaN where the rate is unknown."""
    setup = _setup(
        run.workload, run.cluster, run.device_count, run.device, run.global_batch, run.options
    )
    peak = run.profile.peak_flop_per_s.get(setup.run.precision.compute)
    if not peak:
        return float("nan")
    flop = model_flop(run.workload, setup.run.seq_len) * run.global_batch
    return float(flop / peak / run.device_count)
