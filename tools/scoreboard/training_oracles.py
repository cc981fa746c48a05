"""Suite `training-oracles`: published closed forms of training, equal or not.

Activations, states, FLOP, bubbles, ZeRO, bus bandwidths and collectives. Bubbles of schedules are
those of tasks simulated on the engine where the schedule is simulated, memory and collectives come
from the functions that price plans.
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
from accelsim.training.memory import state_bytes
from accelsim.training.schedules import bubble
from accelsim.training.schedules.pipeline import PipelineWork, simulate_pipeline
from accelsim.training.schedules.schedule import pipeline_order
from tools.scoreboard import training_closed_forms as closed_form
from tools.scoreboard.quantity_batches import QUANTITY
from tools.scoreboard.systolic import EXACT_FRACTION, mismatches

ORACLES = schema("training/closed_form_oracles.csv")
_SCALES = {"GiB": 2.0**30, "GB(1e9)": 1e9}
#: Closed forms hold on any device; the scores ask for one.
_ANY_DEVICE = "a100-sxm-80gb"
Inputs = Mapping[str, float]
_ACTIVATIONS = {
    "none (TP only)": "tensor",
    "sequence parallel": "sequence",
    "selective (TP only)": "selective",
    "selective+sequence": "selective sequence",
    "full (store layer input, TP)": "full",
    "no parallelism": "whole",
}


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


def _activation(name: str, x: Inputs) -> float:
    form = _ACTIVATIONS[name.split("_", 2)[2]]
    return closed_form.activation_bytes(
        form,
        sequence=x["s"],
        batch=x["b"],
        hidden=x["h"],
        heads=x["a"],
        layers=x["L"],
        tensor_ranks=x["t"],
        stages=x["p"],
        chunks=x["v"],
    )


def _state(_name: str, x: Inputs) -> float:
    return closed_form.gpt_state_bytes(
        hidden=x["h"], layers=x["L"], tensor_ranks=x["t"], stages=x["p"]
    )


def _sizes(x: Inputs) -> dict[str, float]:
    return {"hidden": x["h"], "layers": x["l"], "vocabulary": x["V"], "sequence": x["s"]}


def _flop(function: Callable[..., float]) -> Callable[[str, Inputs], float]:
    return lambda _name, x: function(batch=x["B"], **_sizes(x))


def _days(_name: str, x: Inputs) -> float:
    return closed_form.training_days(
        parameters=x["P"], tokens=x["T"], devices=x["n"], flop_per_s=x["X"]
    )


def _simulated_ratio(
    schedule: str, x: Inputs, times: tuple[float, float, float], chunks: int = 1
) -> float:
    """Bubble over ideal time of an iteration on the engine."""
    stages = int(x["p"])
    count = int(x["m"])
    forward, backward, weight = (np.full((stages, chunks), s / chunks) for s in times)
    none = np.zeros(stages)
    work = PipelineWork(forward, backward, weight, 0.0, none, 1, none)
    run = simulate_pipeline(pipeline_order(schedule, stages, count, chunks), work)
    ideal = count * sum(times)
    return (run.makespan_s - ideal) / ideal


def _bubble(name: str, x: Inputs) -> float:
    if name.startswith("bubble_int"):
        return _simulated_ratio("interleaved", x, (1.0, 2.0, 0.0), int(x["v"]))
    if name.startswith("bubble_zbh1"):
        return _simulated_ratio("zb-h1", x, (1.0, 1.0, 1.0))
    return _simulated_ratio("1f1b", x, (1.0, 2.0, 0.0))


def _bubble_time(name: str, x: Inputs) -> Any:
    stages = x["PP"]
    backward = x["B"]
    weight = x["W"]
    if name.startswith("bub_1f1b"):
        return closed_form.one_forward_one_backward_bubble_s(stages, x["F"], backward)
    if name.startswith("bub_zb1p"):
        return closed_form.zero_bubble_h1_bubble_s(stages, x["F"], backward, weight)
    times = (np.array(x[name]) for name in ("F&B", "B", "W"))
    return bubble.dualpipe_bubble_s(stages, *times)


def _zero(name: str, x: Inputs) -> float:
    stage = 0 if name.startswith("DP") else int(name[len("ZeRO-")])
    held = state_bytes(x["psi"], stage, x["Nd"], optimizer_bytes=x["K"])
    return float(sum(held))


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
    found = collective_costs(kind, 1.0, RankGroup(ranks), _switch(ranks), algorithm=algorithm)
    return float(found.bytes_on_link.sum())


def _collective(name: str, x: Inputs) -> float:
    ranks = int(x["n"])
    algorithm = "ring" if name.startswith("ring") else "halving_doubling"
    group = RankGroup(ranks)
    cluster = _switch(ranks, x["B"], x["alpha"])
    found = collective_costs("all_reduce", x["S"], group, cluster, algorithm=algorithm)
    return float(found.time_s[0])


def _switch(ranks: int, bandwidth: float = 1.0, latency: float = 0.0) -> Cluster:
    """Ranks on one switch."""
    tier = Tier("switch", "", "switch", ranks, bandwidth, latency)
    return Cluster("switch", "", Node("", "", 0, "", ranks), 1, 1, (tier,))


_FUNCTIONS: Mapping[str, Callable[[str, Inputs], Any]] = {
    "act_": _activation,
    "state_": _state,
    "params_": lambda _name, x: closed_form.gpt_parameter_count(**_sizes(x)),
    "flops_full": _flop(closed_form.gpt_recompute_flop),
    "flops_model": _flop(closed_form.gpt_model_flop),
    "flops_hw_sel": _flop(closed_form.gpt_selective_flop),
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
