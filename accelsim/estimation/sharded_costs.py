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
from accelsim.workloads.graph import FloatArray, IntArray, OperatorGraph, concatenate, is_kind
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
    steps = [False] * len(graphs) if decodes is None else decodes
    every = list(zip(graphs, runs, steps, strict=True))
    if len(every) < 2 or not isinstance(runs[0].device, GpuProfile) or runs[0].host is not None:
        return [run_costs(graph, run, parameters, is_decode=step) for graph, run, step in every]
    first = runs[0]
    known = first.parameters if parameters is None else parameters
    computed = [_computed(graph, run) for graph, run, _ in every]
    whole = operator_costs(concatenate(computed), first.device, first.execution, known)
    ends = np.cumsum([0, *map(len, computed)]).tolist()
    tables = [whole.part(slice(begin, end)) for begin, end in pairwise(ends)]
    effect = first.stack_effect
    return [
        on_stack(_with_links(table, graph, run), graph, effect, is_decode=step)
        for table, (graph, run, step) in zip(tables, every, strict=True)
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
    known = run.parameters if parameters is None else parameters
    computed = _computed(graph, run)
    table = operator_costs(computed, run.device, run.execution, known, host=run.host)
    return _with_links(table, graph, run)


def _computed(graph: OperatorGraph, run: ResolvedRun) -> OperatorGraph:
    """The rows that the device computes.

    Raises:
        InvalidValueError: If there are others but no cluster.
    """
    joins = is_kind(graph.kind, COLLECTIVE_KINDS)
    if not joins.any():
        return graph
    if run.cluster is None:
        remedy = "See: accelsim clusters list."
        raise InvalidValueError("cluster", None, "the cluster that joins the ranks", remedy)
    return graph.take(~joins)


def _with_links(table: CostTable, graph: OperatorGraph, run: ResolvedRun) -> CostTable:
    """The costs of the rows that the device computes, and those of the others by the cluster."""
    places = np.flatnonzero(is_kind(graph.kind, COLLECTIVE_KINDS))
    if run.cluster is None or not places.size:
        return table
    return _joined(table, graph, places, _times_s(graph, places, run, run.cluster))


def _joined(
    table: CostTable,
    graph: OperatorGraph,
    places: IntArray,
    joined: tuple[FloatArray, FloatArray],
) -> CostTable:
    """The device's rows with collectives, their times and spreads, in their places of the graph."""
    count = len(graph)
    computed = np.ones(count, dtype=bool)
    computed[places] = False
    columns: Document = {}
    for column in fields(CostTable):
        values = getattr(table, column.name)
        if isinstance(values, np.ndarray):
            columns[column.name] = np.zeros(count, dtype=values.dtype)
            columns[column.name][computed] = values
    times, sigmas = joined
    columns["time_s"][places] = times
    columns["memory_s"][places] = columns["time_s"][places]
    columns["dispatch_s"][places] = np.median(table.dispatch_s)  # a kernel like the others
    columns["bytes"][places] = graph.bytes[places]
    columns["bound"][places] = Bound.LINK
    columns["log_sigma"][places] = sigmas
    if table.shared_log_sigma is not None:
        columns["shared_log_sigma"][places] = sigmas
    return replace(table, **columns)


def _times_s(
    graph: OperatorGraph, places: IntArray, run: ResolvedRun, cluster: Cluster
) -> tuple[FloatArray, FloatArray]:
    """Times of collectives and their spreads, those of one kind and group in one call."""
    from accelsim.cost.collective import collective_costs

    times, sigmas = np.zeros(len(places)), np.zeros(len(places))
    group_axis = DIMENSIONS[OperatorKind.ALL_REDUCE].index("group")
    kinds, groups = graph.kind[places], graph.dims[places, group_axis]
    for kind, group in {*zip(kinds.tolist(), groups.tolist(), strict=True)}:
        same = (kinds == kind) & (groups == group)
        ranks = rank_group(ParallelGroup(group), run.shard)
        payload = graph.dims[places[same], 0]
        copies = _experts_of_token(run) if group == ParallelGroup.EXPERT else 1
        gathers, joins = run.stack.gathers_tokens, OperatorKind(kind)
        costs = collective_costs(joins, payload, ranks, cluster, copies=copies, gathers=gathers)
        times[same], sigmas[same] = costs.time_s, costs.log_sigma
    return times, sigmas


def _experts_of_token(run: ResolvedRun) -> int:
    """Experts that each token goes to; 1 where the model has none."""
    mixture = getattr(run.workload.parameters, "mixture", None)
    return 1 if mixture is None else int(mixture.top_k)
