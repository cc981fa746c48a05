"""Costs of a graph whose rows run on one rank of a cluster: the device prices what it computes, the
cluster what joins the ranks.

Ranks are numbered with tensor parallelism innermost, then context, then pipeline stages, as
Megatron-LM places them (Narayanan et al. 2021, arXiv:2104.04473): the busiest groups share the
nearest links.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from accelsim.cost.registry import Parameters, operator_costs
from accelsim.cost.stack import on_stack
from accelsim.cost.table import Bound, CostTable
from accelsim.errors import InvalidValueError
from accelsim.estimation.run import ResolvedRun
from accelsim.hardware.profile import GpuProfile
from accelsim.plain import Document
from accelsim.workloads.graph import (
    BoolArray,
    FloatArray,
    IntArray,
    OperatorGraph,
    concatenate,
    is_kind,
)
from accelsim.workloads.operator import COLLECTIVE_KINDS, DIMENSIONS, OperatorKind
from accelsim.workloads.sharding import ParallelGroup, Shard

if TYPE_CHECKING:
    from accelsim.hardware.cluster import Cluster
    from accelsim.hardware.placement import RankGroup


def rank_group(group: ParallelGroup, shard: Shard) -> RankGroup:
    """Where the ranks of a group stand.

    Args:
        group: The group.
        shard: Ranks of every group.
    """
    from accelsim.hardware.placement import RankGroup

    strides = {
        ParallelGroup.TENSOR: 1,
        ParallelGroup.EXPERT_TENSOR: 1,
        ParallelGroup.CONTEXT: shard.tp,
        ParallelGroup.EXPERT: shard.expert_tp,
        ParallelGroup.PIPELINE: shard.tp * shard.cp,
        ParallelGroup.DATA: shard.tp * shard.cp,
    }
    return RankGroup(shard.ranks.get(group, 1), strides[group])


def run_costs(
    graph: OperatorGraph, run: ResolvedRun, parameters: Parameters | None = None, *, is_decode: bool
) -> CostTable:
    """Costs of every row of one rank's graph as the run's stack has them; see `sharded_costs`."""
    kernels = sharded_costs(graph, run, parameters)
    return on_stack(kernels, graph, run.stack_effect, is_decode=is_decode)


def rank_costs(
    graphs: Sequence[OperatorGraph],
    runs: Sequence[ResolvedRun],
    parameters: Parameters | None = None,
    decodes: Sequence[bool] | None = None,
) -> list[CostTable]:
    """Costs of several graphs, each as `run_costs` has them.

    What a GPU takes for a row depends on no other row: the rows of all are priced in one call.

    Args:
        graphs: Operators and collectives.
        runs: The run of each; they differ in batch, shard and adapters alone.
        parameters: Parameters of the device's class; those of the run's tier where None.
        decodes: Whether each is a decode step; none where None.

    Raises:
        InvalidValueError: If there are collectives but no cluster.
        UnsupportedOperatorError: Naming the first row that the device cannot run.
    """
    decodes = [False] * len(graphs) if decodes is None else decodes
    if len(graphs) < 2 or not isinstance(runs[0].device, GpuProfile) or runs[0].host is not None:
        return [
            run_costs(graph, run, parameters, is_decode=is_decode)
            for graph, run, is_decode in zip(graphs, runs, decodes, strict=True)
        ]
    ends = np.cumsum([0, *map(len, graphs)])
    costs = _many_costs(concatenate(graphs), ends, runs, parameters)
    tables = (costs.part(slice(begin, end)) for begin, end in pairwise(ends.tolist()))
    effect = runs[0].stack_effect
    return [
        on_stack(table, graph, effect, is_decode=is_decode)
        for table, graph, is_decode in zip(tables, graphs, decodes, strict=True)
    ]


def sharded_costs(
    graph: OperatorGraph, run: ResolvedRun, parameters: Parameters | None = None
) -> CostTable:
    """Cost every row of one rank's graph, before the run's stack.

    Args:
        graph: Operators and collectives.
        run: The run on one rank, with its shard and cluster.
        parameters: Parameters of the device's class; those of the run's tier where None.

    Raises:
        InvalidValueError: If there are collectives but no cluster.
        UnsupportedOperatorError: Naming the first row that the device cannot run.
    """
    return _many_costs(graph, np.array([0, len(graph)]), [run], parameters)


def _many_costs(
    graph: OperatorGraph, ends: IntArray, runs: Sequence[ResolvedRun], parameters: Parameters | None
) -> CostTable:
    """Cost every row of several runs' graphs, one after the other, before the runs' stack.

    Args:
        graph: Operators and collectives of all.
        ends: Rows before each run's first, and all rows, shape (runs + 1,).
        runs: The runs.
        parameters: Parameters of the device's class; those of the runs' tier where None.
    """
    run = runs[0]
    if parameters is None:
        parameters = run.parameters
    joins = is_kind(graph.kind, COLLECTIVE_KINDS)
    if not joins.any():
        return operator_costs(graph, run.device, run.execution, parameters, host=run.host)
    if run.cluster is None:
        remedy = "See: accelsim clusters list."
        raise InvalidValueError("cluster", None, "the cluster that joins the ranks", remedy)
    computed = graph.take(~joins)
    table = operator_costs(computed, run.device, run.execution, parameters, host=run.host)
    return _with_collectives(table, graph, joins, ends, runs, run.cluster)


def _with_collectives(
    table: CostTable,
    graph: OperatorGraph,
    joins: BoolArray,
    ends: IntArray,
    runs: Sequence[ResolvedRun],
    cluster: Cluster,
) -> CostTable:
    """Costs of all rows, of those of what is computed.

    Args:
        table: Costs of what is computed.
        graph: All rows.
        joins: Which of them are collectives.
        ends: As in `_many_costs`.
        runs: The runs.
        cluster: What joins the ranks.
    """
    of_run = np.repeat(np.arange(len(runs)), np.diff(ends))
    columns: Document = {}
    for column in fields(CostTable):
        values = getattr(table, column.name)
        if isinstance(values, np.ndarray):
            columns[column.name] = np.zeros(len(graph), dtype=values.dtype)
            columns[column.name][~joins] = values
    times, sigmas = _times_s(graph, np.flatnonzero(joins), of_run[joins], runs, cluster)
    columns["time_s"][joins] = times
    columns["memory_s"][joins] = times
    # a kernel like the others
    issued = [np.median(columns["dispatch_s"][a:b][~joins[a:b]]) for a, b in pairwise(ends)]
    columns["dispatch_s"][joins] = np.array(issued)[of_run[joins]]
    columns["bytes"][joins] = graph.bytes[joins]
    columns["bound"][joins] = Bound.LINK
    columns["log_sigma"][joins] = sigmas
    if table.shared_log_sigma is not None:
        columns["shared_log_sigma"][joins] = sigmas
    return replace(table, **columns)


def _times_s(
    graph: OperatorGraph,
    rows: IntArray,
    of_run: IntArray,
    runs: Sequence[ResolvedRun],
    cluster: Cluster,
) -> tuple[FloatArray, FloatArray]:
    """Times of collectives and their spreads, those of one kind and group in one call.

    Args:
        graph: Rows of all runs.
        rows: Collectives among them, shape (k,).
        of_run: Run of each.
        runs: The runs.
        cluster: What joins the ranks.
    """
    from accelsim.cost.collective import collectives_s

    times, sigmas = np.zeros(len(rows)), np.zeros(len(rows))
    group_axis = DIMENSIONS[OperatorKind.ALL_REDUCE].index("group")
    kinds, groups = graph.kind[rows], graph.dims[rows, group_axis]
    gathers, experts = runs[0].stack.gathers_tokens, _experts_of_token(runs[0])
    for kind, group in {*zip(kinds.tolist(), groups.tolist(), strict=True)}:
        same = (kinds == kind) & (groups == group)
        payload_bytes = graph.dims[rows[same], 0]
        ranks = [rank_group(ParallelGroup(group), run.shard) for run in runs]
        size = np.array([group_ranks.size for group_ranks in ranks])[of_run[same]]
        stride = np.array([group_ranks.stride for group_ranks in ranks])[of_run[same]]
        times[same], sigmas[same] = collectives_s(
            OperatorKind(kind),
            payload_bytes,
            size,
            stride,
            cluster,
            copies=experts if group == ParallelGroup.EXPERT else 1,
            gathers=gathers,
        )
        if (kind, group) == (OperatorKind.ALL_REDUCE, ParallelGroup.TENSOR):
            stack_s = _stack_all_reduce_s(payload_bytes, ranks[0], runs[0], cluster)
            times[same] = np.minimum(times[same], stack_s)
    return times, sigmas


def _stack_all_reduce_s(
    payload_bytes: IntArray, ranks: RankGroup, run: ResolvedRun, cluster: Cluster
) -> FloatArray | float:
    """All-reduces by the stack's own kernel; infinite where it has none, or not on these links.

    vLLM 0.9 (2025), csrc/custom_all_reduce.cuh: see `direct_all_reduce_s`.
    """
    from accelsim.cost.collective import direct_all_reduce_s
    from accelsim.hardware.placement import place

    start_s = run.stack.all_reduce_start_s(run.device)
    if start_s is None or ranks.size == 1:
        return np.inf
    levels = place(ranks, cluster).levels
    if len(levels) != 1 or not levels[0].is_any_to_any:
        return np.inf
    return direct_all_reduce_s(payload_bytes, ranks.size, start_s, levels[0].bandwidth_bytes_per_s)


def _experts_of_token(run: ResolvedRun) -> int:
    """Experts that each token goes to; 1 where the model has none."""
    mixture = getattr(run.workload.parameters, "mixture", None)
    return 1 if mixture is None else int(mixture.top_k)
