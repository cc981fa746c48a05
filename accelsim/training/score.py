"""Time, energy and memory of many plans at once, in closed form.

A plan's iteration is the work of its busiest stage, the pipeline's bubble, and what data
parallelism, the optimizer and the input add that nothing hides. `iteration` simulates the same task
by task; the two agree exactly where stages are alike.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from accelsim.frozen import frozen
from accelsim.training.candidates import Candidates, distinct_rows
from accelsim.training.data_parallel import DataParallel, data_parallel
from accelsim.training.layers import BlockCosts
from accelsim.training.memory import worst_memory
from accelsim.training.plan import RECOMPUTE, SCHEDULES
from accelsim.training.setup import TrainingSetup
from accelsim.training.stages import StageTable, stage_table
from accelsim.workloads.graph import FloatArray, IntArray
from accelsim.workloads.operator import OperatorKind

#: What an iteration's time goes to, exposed seconds each; the sum is the iteration.
TIME_PARTS = (
    "compute",
    "tensor",
    "context",
    "expert",
    "pipeline_bubble",
    "data",
    "optimizer",
    "input",
    "other",
)
_FULL, _SELECTIVE = RECOMPUTE.index("full"), RECOMPUTE.index("selective")
_CODES = {name: code for code, name in enumerate(SCHEDULES)}
#: Parts of a microbatch's passes.
_WORK = ("compute", "tensor", "context", "expert")
#: Above any number of chunks, for codes of rows.
_LARGEST_CHUNKS = 2**20
#: Stages of plans that are scored together: columns that stay in a processor's cache.
_IN_CACHE = 2**16


@frozen(eq=False)
class Scores:
    """Columns of k plans.

    Attributes:
        time_s: Exposed seconds by name in `TIME_PARTS`, shape (k,) each.
        memory_bytes: Of the worst rank.
        worst_stage: Its stage.
        memory: Memory of that rank by part.
        energy_j: Dynamic energy of all devices in one iteration.
    """

    time_s: dict[str, FloatArray]
    memory_bytes: FloatArray
    worst_stage: IntArray
    memory: dict[str, FloatArray]
    energy_j: FloatArray

    @property
    def iteration_s(self) -> FloatArray:
        """Sum of all parts."""
        return np.asarray(sum(self.time_s.values()))


@frozen(eq=False)
class StageTimes:
    """What one microbatch takes on each stage, shape (k, stages) each.

    Attributes:
        forward_s: Forward pass with its collectives, no faster than it is issued.
        backward_s: Backward pass with what is computed again.
        weight_s: Its part for gradients of weights.
        parts: Exposed seconds of both by name ("compute", "tensor", "context", "expert").
        send_s: A send to the next stage, shape (k,).
    """

    forward_s: FloatArray
    backward_s: FloatArray
    weight_s: FloatArray
    parts: dict[str, FloatArray]
    send_s: FloatArray


def score(
    setup: TrainingSetup,
    plans: Candidates,
    microbatch_count: IntArray,
    units: IntArray,
    costs: BlockCosts,
) -> Scores:
    """Score plans.

    Args:
        setup: Model and devices.
        plans: k plans that fit the model and the batch.
        microbatch_count: Microbatches of each, shape (k,).
        units: Unit of each plan in `costs`, shape (k,).
        costs: Blocks of every unit.
    """
    count = len(plans)
    whole: dict[str, Any] = {}
    for stages in np.unique(plans["pp"]).tolist():
        same = np.flatnonzero(plans["pp"] == stages)
        codes = units[same] * _LARGEST_CHUNKS + plans["chunks"][same]
        keys, row = np.unique(codes, return_inverse=True)
        table = stage_table(costs, *np.divmod(keys, _LARGEST_CHUNKS), stages, plans.stage_layers)
        for part in np.array_split(np.arange(len(same)), -(-len(same) * stages // _IN_CACHE)):
            rows = same[part]
            columns = _score_stages(
                setup, plans.take(rows), table, row.ravel()[part], microbatch_count[rows]
            )
            for name, column in columns.items():
                whole.setdefault(name, np.zeros(count))[rows] = column
    times = {name: whole.pop(f"time.{name}") for name in TIME_PARTS}
    memory = {
        name.removeprefix("memory."): whole.pop(name)
        for name in list(whole)
        if name.startswith("memory.")
    }
    stage = whole["worst_stage"].astype(np.int64)
    return Scores(times, whole["memory_bytes"], stage, memory, whole["energy_j"])


def _score_stages(
    setup: TrainingSetup,
    plans: Candidates,
    table: StageTable,
    row: IntArray,
    microbatch_count: IntArray,
) -> dict[str, FloatArray]:
    """Columns of plans with one number of stages."""
    words = ("recompute", "tensor_overlap", "activation_offload", "dp")
    first, again = distinct_rows(row, *(plans[name] for name in words))
    alike = plans.take(first)
    times = stage_times(setup, alike, table, row[first])
    shown = (times.forward_s[again, 0], times.backward_s[again, 0])
    data = data_parallel(setup, plans, table, row, microbatch_count, *shown)
    pace = {name: column[again] for name, column in _pace(alike, times).items()}
    columns = _times(setup, plans, pace, data, microbatch_count)
    memory = worst_memory(setup, plans, table, row, microbatch_count)
    energy = _energy_j(plans, table, row, microbatch_count)
    return columns | memory | {"energy_j": energy + data.energy_j}


def stage_times(
    setup: TrainingSetup, plans: Candidates, table: StageTable, row: IntArray
) -> StageTimes:
    """Times of one microbatch on each stage.

    Args:
        setup: Model and devices.
        plans: k plans of one number of stages.
        table: Their stages.
        row: Row of each plan in it, shape (k,).
    """
    slowest = setup.conditions.slowest_ratio(plans["dp"] * plans["tp"] * plans["cp"])[:, None]
    forward, issue_f = _direction(plans, table, row, "forward")
    backward, issue_b = _direction(plans, table, row, "backward")
    again, inner = plans["recompute"][:, None] == _FULL, plans["recompute"][:, None] == _SELECTIVE
    for name, seconds in (forward | {"compute": table["again_compute_s"][row]}).items():
        backward[name] = backward[name] + np.where(again, seconds, 0.0)
    backward["compute"] = backward["compute"] + np.where(inner, table["inner_attention_s"][row], 0)
    for parts in (forward, backward):
        parts["expert"] = parts["expert"] + _exchange_s(setup, plans, table, row)
        parts["compute"] = parts["compute"] * slowest
    forward_s = np.maximum(sum(forward.values()), issue_f)
    backward_s = np.maximum(
        sum(backward.values()), issue_b + np.where(again, table["again_issue_s"][row], 0.0)
    )
    offloaded = plans["activation_offload"].astype(bool)[:, None]
    moved_s = np.where(offloaded, table["saved_bytes"][row] / setup.host_link_bytes_per_s, 0.0)
    parts = {name: forward[name] + backward[name] for name in forward}
    return StageTimes(
        np.maximum(forward_s, moved_s),
        np.maximum(backward_s, moved_s),
        np.minimum(table["weight_gradient_s"][row] * slowest, backward_s),
        parts,
        _send_s(setup, plans, table, row),
    )


def _direction(
    plans: Candidates, table: StageTable, row: IntArray, word: str
) -> tuple[dict[str, FloatArray], FloatArray]:
    """Exposed seconds of a pass by part, and the time to issue it."""
    parts = {name: table[f"{name}_{word}_s"][row] for name in _WORK}
    ranks, tensor = plans["tp"][:, None], parts["tensor"]
    hidden = np.maximum(tensor - parts["compute"], 0.0)
    cut_up = tensor / ranks + hidden * (1.0 - 1.0 / ranks)
    parts["tensor"] = np.where(plans["tensor_overlap"].astype(bool)[:, None], cut_up, tensor)
    return parts, table[f"issue_{word}_s"][row]


def _exchange_s(
    setup: TrainingSetup, plans: Candidates, table: StageTable, row: IntArray
) -> FloatArray:
    """All-to-all of what embedding tables give, each held by one rank (Naumov et al. 2019,
    arXiv:1906.00091, section 4).
    """
    payload = table["pooled_bytes"][row]
    if not payload.any():
        return np.zeros(payload.shape)
    ranks = plans["dp"] * plans["cp"]
    found = setup.collective_s(OperatorKind.ALL_TO_ALL, payload.sum(axis=1), ranks, plans["tp"])
    return found[:, None]


def _send_s(
    setup: TrainingSetup, plans: Candidates, table: StageTable, row: IntArray
) -> FloatArray:
    stages = table.block_counts.shape[1]
    if stages == 1:
        return np.zeros(len(plans))
    stride = plans["dp"] * plans["tp"] * plans["cp"]
    payload = table.boundary_bytes[row]
    pair = np.full(len(plans), 2)
    return setup.collective_s(OperatorKind.SEND_RECV, payload, pair, stride)


def _pace(plans: Candidates, times: StageTimes) -> dict[str, FloatArray]:
    """What a microbatch takes on the busiest stage, by part and in all ("pair"), and how far the
    other stages lag behind: columns that the number of microbatches and the schedule do not change.

    "rest" is what all stages but the busiest take, "weight" its part for weights.
    """
    every = np.arange(len(plans))
    pair = times.forward_s + times.backward_s
    busiest = pair.argmax(axis=1)
    found = {name: part[every, busiest] for name, part in times.parts.items()}
    most = pair[every, busiest]
    return found | {
        "pair": most,
        "rest": pair.sum(axis=1) - most,
        "weight": times.weight_s.sum(axis=1) - times.weight_s.max(axis=1),
        "cycle": np.maximum(_longest_cycle_s(times) - most, 0.0),
        "sends": 2.0 * (pair.shape[1] - 1) * times.send_s,
        "zb-v": _zero_bubble_v_s(times),
        "dualpipe": _dualpipe_s(times),
    }


def _times(
    setup: TrainingSetup,
    plans: Candidates,
    pace: dict[str, FloatArray],
    data: DataParallel,
    microbatch_count: IntArray,
) -> dict[str, FloatArray]:
    work = {name: microbatch_count * pace[name] for name in _WORK}
    busy = microbatch_count * pace["pair"]
    bubble = _bubble_s(plans, pace, microbatch_count)
    loader = setup.conditions.loader_samples_per_s
    waits = np.zeros(len(plans))
    if loader:
        local = microbatch_count * plans["microbatch"] / (plans["tp"] * plans["cp"] * plans["pp"])
        iteration = busy + bubble + data.exposed_s + data.update_s
        waits = np.maximum(local / loader - iteration, 0.0)
    parts = work | {
        "pipeline_bubble": bubble,
        "data": data.exposed_s,
        "optimizer": data.update_s,
        "input": waits,
        "other": busy - sum(work.values()),
    }
    return {f"time.{name}": parts[name] for name in TIME_PARTS}


def _bubble_s(
    plans: Candidates, pace: dict[str, FloatArray], microbatch_count: IntArray
) -> FloatArray:
    """Time of the pipeline beyond the busiest stage's own work.

    Formulas of `training.schedules.bubble` for stages that differ: what all stages but the busiest
    take for one microbatch, over the chunks. In 1F1B stage s has at most p - s microbatches under
    way, so that sends also lengthen its cycle.
    """
    stages = int(plans["pp"][0])
    if stages == 1:
        return np.zeros(len(plans))
    codes, rest = plans["schedule"], pace["rest"]
    ideal = np.select(
        [codes == _CODES[name] for name in ("interleaved", "zb-h1", "zb-v", "dualpipe")],
        [
            rest / plans["chunks"],
            np.maximum(rest - 2.0 * pace["weight"], 0.0),
            pace["zb-v"],
            pace["dualpipe"],
        ],
        rest,
    )
    waits = np.maximum(microbatch_count - stages, 0) * pace["cycle"]
    bubble: FloatArray = ideal + pace["sends"] + np.where(codes == _CODES["1f1b"], waits, 0.0)
    return bubble


def _longest_cycle_s(times: StageTimes) -> FloatArray:
    """Least time from a microbatch to the next in 1F1B: a stage's round trip to the last one over
    the microbatches it may have under way.
    """
    pair = times.forward_s + times.backward_s
    stages = pair.shape[1]
    to_last = np.cumsum(pair[:, ::-1], axis=1)[:, ::-1]
    hops = np.arange(stages - 1, -1, -1)
    trip = to_last + 2.0 * times.send_s[:, None] * hops
    cycle: FloatArray = (trip / (hops + 1.0)).max(axis=1)
    return cycle


def _means(times: StageTimes) -> tuple[FloatArray, FloatArray, FloatArray]:
    columns = (times.forward_s, times.backward_s, times.weight_s)
    forward, backward, weight = (column.mean(axis=1) for column in columns)
    return forward, backward, weight


def _zero_bubble_v_s(times: StageTimes) -> FloatArray:
    from accelsim.training.schedules.bubble import zero_bubble_v_bubble_s

    return np.asarray(zero_bubble_v_bubble_s(times.forward_s.shape[1], *_means(times)))


def _dualpipe_s(times: StageTimes) -> FloatArray:
    from accelsim.training.schedules.bubble import dualpipe_bubble_s

    forward, backward, weight = _means(times)
    both = forward + backward
    found = dualpipe_bubble_s(times.forward_s.shape[1], both, backward, weight)
    return np.maximum(found, 0.0)


def _energy_j(
    plans: Candidates,
    table: StageTable,
    row: IntArray,
    microbatch_count: IntArray,
) -> FloatArray:
    """Dynamic energy of the passes on all devices."""
    forward, backward, layers = (
        table[f"{name}_j"].sum(axis=1)[row]
        for name in ("energy_forward", "energy_backward", "again_energy")
    )
    again = np.where(plans["recompute"] == _FULL, layers, 0.0)
    ranks = plans["dp"] * plans["tp"] * plans["cp"]
    energy: FloatArray = ranks * microbatch_count * (forward + backward + again)
    return energy
