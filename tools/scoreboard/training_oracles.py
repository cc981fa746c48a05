"""Suite `training-oracles`: published closed forms of training, equal or not.

Activations, states, FLOP, bubbles, ZeRO, bus bandwidths and collectives. Memory, sizes and FLOP
are those that `accelsim.train` gives of the models named (`trained_gpt`); bubbles are of tasks
simulated on the engine where the schedule is simulated; collectives come from the functions that
price plans.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from accelsim import catalog
from accelsim.cost.collective import collective_costs
from accelsim.errors import InvalidValueError
from accelsim.hardware.cluster import Cluster, Node, Tier
from accelsim.hardware.placement import RankGroup
from accelsim.scoreboard.data_folder import DataFolder, Table, schema
from accelsim.scoreboard.suite import (
    MeasuredBatch,
    Prediction,
    fixed_prediction,
    refused_batch,
    register_suite,
)
from accelsim.training.schedules import bubble
from accelsim.training.schedules.pipeline import PipelineWork, simulate_pipeline
from accelsim.training.schedules.schedule import pipeline_order
from tools.scoreboard import trained_gpt
from tools.scoreboard.quantity_batches import QUANTITY
from tools.scoreboard.systolic import EXACT_FRACTION, mismatches

ORACLES = schema("training/closed_form_oracles.csv")
_SCALES = {"GiB": 2.0**30, "GB(1e9)": 1e9}
#: Closed forms hold on any device; the scores ask for one.
_ANY_DEVICE = "a100-sxm-80gb"
Inputs = Mapping[str, float]
_SECONDS_A_DAY = 86_400.0


def oracle(name: str, quantity: str, inputs: str) -> float:
    """Value of one row of the table, in SI units.

    Args:
        name: Its id.
        quantity: What it is.
        inputs: Symbols and their values, ``p=2 m=4``.

    Raises:
        InvalidValueError: If there is no such quantity.
    """
    values = {
        symbol: float(number) for symbol, number in re.findall(r"([\w&]+)=([-+.\deE]+)", inputs)
    }
    for start, function in _FUNCTIONS.items():
        if name.startswith(start):
            return float(function(name, values))
    raise InvalidValueError("quantity", quantity, "a closed form that is known")


def _days(_name: str, x: Inputs) -> float:
    """8 T P/(n X) (Narayanan et al. 2021, arXiv:2104.04473, equation 4)."""
    return 8.0 * x["T"] * x["P"] / (x["n"] * x["X"]) / _SECONDS_A_DAY


def _simulated_ratio(
    schedule: str, x: Inputs, times: tuple[float, float, float], chunks: int = 1
) -> float:
    """Bubble over ideal time of an iteration on the engine."""
    count = int(x["m"])
    return _simulated_s(schedule, int(x["p"]), count, times, chunks) / (count * sum(times))


def _simulated_s(
    schedule: str, stages: int, count: int, times: tuple[float, float, float], chunks: int = 1
) -> float:
    """Bubble of an iteration on the engine.

    Args:
        schedule: A schedule that is simulated.
        stages: Stages.
        count: Microbatches.
        times: Forward pass of a stage, backward pass without gradients of weights, those.
        chunks: Chunks a stage.
    """
    forward, backward, weight = (np.full((stages, chunks), s / chunks) for s in times)
    none = np.zeros(stages)
    work = PipelineWork(forward, backward, weight, 0.0, none, 1, none)
    run = simulate_pipeline(pipeline_order(schedule, stages, count, chunks), work)
    return run.makespan_s - count * sum(times)


def _bubble(name: str, x: Inputs) -> float:
    if name.startswith("bubble_int"):
        return _simulated_ratio("interleaved", x, (1.0, 2.0, 0.0), int(x["v"]))
    if name.startswith("bubble_zbh1"):
        return _simulated_ratio("zb-h1", x, (1.0, 1.0, 1.0))
    return _simulated_ratio("1f1b", x, (1.0, 2.0, 0.0))


def _bubble_time(name: str, x: Inputs) -> Any:
    stages = int(x["PP"])
    backward, weight = x["B"], x["W"]
    if name.startswith("bub_1f1b"):
        return _simulated_s("1f1b", stages, 2 * stages, (x["F"], backward, 0.0))
    if name.startswith("bub_zb1p"):
        return _simulated_s("zb-h1", stages, 2 * stages, (x["F"], backward - weight, weight))
    times = (np.array(x[name]) for name in ("F&B", "B", "W"))
    return bubble.dualpipe_bubble_s(stages, *times)


def _zero(name: str, x: Inputs) -> float:
    return trained_gpt.zero_bytes(0 if name.startswith("DP") else int(name[len("ZeRO-")]), x)


def _volume(name: str, _x: Inputs) -> float:
    """Elements a rank sends in a step, in the limit of many ranks: reductions of gradients, and
    gathers of weights as the stage needs them.
    """
    many = 2**20
    stage = int(name[-1]) if name[-1].isdigit() else 0
    if stage == 0:
        return round(_sent_share("all_reduce", "ring", many), 3)
    gathers = 2 if stage == 3 else 1
    share = _sent_share("reduce_scatter", "ring", many)
    return round(share + gathers * _sent_share("all_gather", "ring", many), 3)


_BUS = {
    "all_reduce ring": ("all_reduce", "ring"),
    "reduce_scatter/all_gather": ("reduce_scatter", "ring"),
    "all_to_all": ("all_to_all", "pairwise"),
    "broadcast/reduce": ("broadcast", "chain"),
}


def _bus(name: str, x: Inputs) -> float:
    words = name.removeprefix("busbw_").rsplit("_", 1)[0]
    return _sent_share(*_BUS[words], int(x["n"]))


def _sent_share(kind: str, algorithm: str, ranks: int) -> float:
    """Bytes a rank sends for each byte of payload."""
    costs = collective_costs(kind, 1.0, RankGroup(ranks), _switch(ranks), algorithm=algorithm)
    return float(costs.bytes_on_link.sum())


def _collective(name: str, x: Inputs) -> float:
    ranks = int(x["n"])
    algorithm = "ring" if name.startswith("ring") else "halving_doubling"
    group = RankGroup(ranks)
    cluster = _switch(ranks, x["B"], x["alpha"])
    costs = collective_costs("all_reduce", x["S"], group, cluster, algorithm=algorithm)
    return float(costs.time_s[0])


def _switch(ranks: int, bandwidth: float = 1.0, latency: float = 0.0) -> Cluster:
    """Ranks on one switch."""
    tier = Tier("switch", "", "switch", ranks, bandwidth, latency)
    return Cluster("switch", "", Node("", "", 0, "", ranks), 1, 1, (tier,))


_FUNCTIONS: Mapping[str, Callable[[str, Inputs], Any]] = {
    "act_": lambda name, x: trained_gpt.activation_bytes(name.split("_", 2)[2], x),
    "state_": lambda _name, x: trained_gpt.state_bytes(x),
    "params_": lambda _name, x: trained_gpt.parameter_count(x),
    "flops_full": lambda _name, x: trained_gpt.recompute_flop(x),
    "flops_model": lambda _name, x: trained_gpt.model_flop(x),
    "flops_hw_sel": lambda _name, x: trained_gpt.selective_flop(x),
    "days_": _days,
    "bubble_": _bubble,
    "bub_": _bubble_time,
    "DP_": _zero,
    "ZeRO-": _zero,
    "vol_": _volume,
    "busbw_": _bus,
    "ring_ar": _collective,
    "rhd_ar": _collective,
}


@register_suite(
    "training-oracles",
    "closed forms of training, equal or not",
    (ORACLES,),
    "operator",
    findings=mismatches,
    quantity=QUANTITY,
)
def load(folder: DataFolder) -> list[MeasuredBatch]:
    """One batch of all rows that are known, one of those that are not."""
    table = folder.filled(ORACLES)
    if table is None:
        return []
    known = np.array([_value(table, row) for row in range(len(table))])
    scale = np.array([_SCALES.get(unit, 1.0) for unit in table["unit"].tolist()])
    answered = np.isfinite(known)
    batches = [_batch(table.take(answered), known[answered] / scale[answered])]
    if not answered.all():
        rest = table.take(~answered)
        columns = (rest["quantity"], rest["id"], rest["expected"])
        batches.append(refused_batch("closed forms", *columns, "quantity is not known"))
    return batches


def _value(table: Table, row: int) -> float:
    cells = (str(table[name][row]) for name in ("id", "quantity", "inputs"))
    try:
        return oracle(*cells)
    except (InvalidValueError, KeyError):
        return float("nan")


def _batch(table: Table, values: Any) -> MeasuredBatch:
    count = len(table)
    return MeasuredBatch(
        device="closed forms",
        profile=catalog.device(_ANY_DEVICE),
        group=table["quantity"],
        label=table["id"],
        measured_s=table["expected"],
        roofline_s=np.full(count, np.nan),
        predict=fixed_prediction(Prediction(values, np.full(count, EXACT_FRACTION))),
    )
