"""Step times of a language model from its operators: tables of layers, logits and attention.

The layers of a step are lowered over its tokens, attention over tokens and cached tokens; each is
priced on the replica's device, collectives on its cluster. Prompts and further tokens that share a
step share one pass over the weights.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import TypeVar

import numpy as np

from accelsim.confidence.residual import run_log_sigma
from accelsim.cost.registry import operator_costs
from accelsim.cost.stack import on_stack
from accelsim.cost.table import CostTable
from accelsim.estimation.passes import fused
from accelsim.estimation.prompt_issue import prompt_issue_s
from accelsim.estimation.run import ResolvedRun
from accelsim.estimation.schedule import device_settings
from accelsim.estimation.sharded_costs import sharded_costs
from accelsim.frozen import frozen
from accelsim.hardware.profile import AsicProfile
from accelsim.serving.adapters import adapter_rows
from accelsim.serving.options import ServingOptions
from accelsim.serving.steps.combined_steps import PipelinedSteps
from accelsim.serving.steps.step_times import StepCurve, StepSurface, TabulatedSteps
from accelsim.simulation.device_settings import DeviceSettings, device_time_s
from accelsim.workloads.graph import (
    BoolArray,
    FloatArray,
    IntArray,
    OperatorGraph,
    concatenate,
    is_kind,
)
from accelsim.workloads.lowering import LoweredBatch, ShapeColumns, lower
from accelsim.workloads.model import Lowered, PassShape, Workload
from accelsim.workloads.operator import CONTRACTION_KINDS, OperatorKind, Phase
from accelsim.workloads.options import ModelOptions
from accelsim.workloads.sharding import Shard, Stage

T = TypeVar("T")
_ATTENTION = int(OperatorKind.ATTENTION)
#: Tokens of the pass whose spread stands for all.
_MIDDLE = 64
#: Points per doubling of the tokens of a step: two from 64 tokens on, where the tiles of matrix
#: products make steps.
_TOKENS = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768)
_CACHED = (0, 256, 1024, 4096, 16384, 65536, 262144, 1048576)
_CONTEXTS = (16, 128, 512, 1024, 2048, 4096, 8192, 16384, 65536, 262144, 1048576)


@frozen
class StepLimits:
    """Limits of the steps that are tabulated.

    Attributes:
        max_tokens: Tokens of a full step.
        max_seqs: Sequences at once.
        max_context: Longest sequence.
    """

    max_tokens: int
    max_seqs: int
    max_context: int


def step_tables(
    run: ResolvedRun, options: ServingOptions, limits: StepLimits, overhead_s: float
) -> TabulatedSteps | PipelinedSteps:
    """Step times of a language model on one replica; with speculation, of steps that check what was
    guessed. Tables over tokens and cached tokens: Agrawal et al., Vidur, MLSys 2024.

    Args:
        run: The model on one rank, with its shard and cluster.
        options: Ranks, adapters and speculation.
        limits: What steps may hold.
        overhead_s: Host time per step.

    Raises:
        UnsupportedOperatorError: If the device cannot run an operator.
    """
    pricing = _Pricing(run, options, device_settings(run, is_decode=True))
    checked = 1 if options.guessed is None else options.guessed.tokens + 1
    longest = most_positions(run)
    context = min(limits.max_context, longest) if longest else limits.max_context
    curves, spread = _curves(pricing, limits.max_tokens, limits.max_seqs * checked)
    most_tokens = min(limits.max_tokens, context)
    tokens = _up_to((1, 16, 64, 128, 256, 512, 1024, 2048, 4096), most_tokens, 2)
    prefill = _surface(pricing, tokens, _up_to(_CACHED, context, 4), Phase.PREFILL)
    sequences = _up_to((1, 2, 4, 8, 16, 32, 64, 128, 256, 512), limits.max_seqs, 2)
    contexts = _up_to(_CONTEXTS, max(context - 1, 17), 2)
    decode = _surface(pricing, sequences, contexts, Phase.DECODE)
    settings, stages = pricing.settings, options.pp
    launch_s = settings.graph_launch_s if settings.is_captured else None
    own_host_s = 0.0 if launch_s is None else run.step_host_s  # is part of it
    devices = pricing.ranks * stages * options.dp
    tables = TabulatedSteps(
        **curves,
        prefill=prefill,
        decode=decode,
        overhead_s=overhead_s + ((launch_s or 0.0) - own_host_s) * stages,
        idle_w=None if settings.idle_w is None else settings.idle_w * devices,
        log_sigma=spread[0],
        common_fraction=spread[1],
        checked=checked,
        prompt_issue_s=_prompt_issue_s(pricing),
    )
    batches = stages * options.dp
    return tables if batches == 1 else PipelinedSteps(tables, batches, limits.max_tokens)


def _prompt_issue_s(pricing: _Pricing) -> float:
    """Least time of a step with prompts, of all stages."""
    run = pricing.run
    graphs = (_step_graph(run, _MIDDLE, 1, shard) for shard in pricing.shards)
    return sum(prompt_issue_s(run, graph) for graph in graphs)


def pass_costs(
    run: ResolvedRun, options: ServingOptions, shapes: ShapeColumns, phase: Phase
) -> FloatArray:
    """Seconds and joules of whole passes, logits included, of all stages and ranks, shape (n, 2).

    Args:
        run: The model on one rank, with its shard and cluster.
        options: Pipeline stages.
        shapes: Sizes of n passes.
        phase: Prefill or decoding.
    """
    pricing = _Pricing(run, options, device_settings(run, is_decode=True))
    costs = pricing.sums(shapes, phase, pricing.pass_costs)
    if phase is Phase.PREFILL:
        costs[:, 0] = np.maximum(costs[:, 0], _prompt_issue_s(pricing))
    return costs


def most_positions(run: ResolvedRun) -> int:
    """Positions of a model with a learned table of them, of what is heard where it has two; 0 for
    no limit.

    Args:
        run: The model.
    """
    model = run.workload
    if family_parameter(model, "positions", "") == "learned":
        return int(model.parameters.max_positions)
    return family_parameter(model, "source_positions", 0)


def family_parameter(model: Workload, name: str, otherwise: T) -> T:
    """A parameter that only some families have.

    Args:
        model: The model.
        name: Name of the parameter.
        otherwise: Its value for the other families.
    """
    value: T = getattr(model.parameters, name, otherwise)
    return value


def _up_to(points: tuple[int, ...], last: int, ratio: int) -> list[int]:
    """Points below `last`, further ones a ratio apart, and `last`."""
    counts = [points[0], *(point for point in points[1:] if point < last)]
    while 0 < counts[-1] * ratio < last:
        counts.append(counts[-1] * ratio)
    return [*counts, last] if last > counts[-1] else [*counts, counts[-1] + 1]


def stages_of(run: ResolvedRun, count: int) -> Iterator[Shard]:
    """The run's shard in each of so many pipeline stages."""
    for index in range(count):
        yield replace(run.shard, stage=Stage(index, count))


@frozen
class _Pricing:
    """How rows are priced on the run's device."""

    run: ResolvedRun
    options: ServingOptions
    settings: DeviceSettings

    @property
    def ranks(self) -> int:
        """Ranks of a stage that compute alike."""
        return self.run.shard.tp * self.run.shard.cp

    @property
    def shards(self) -> Iterator[Shard]:
        """Part of the model that a rank of each stage holds."""
        return stages_of(self.run, self.options.pp)

    def sums(
        self,
        shapes: ShapeColumns,
        phase: Phase,
        costs: Callable[[LoweredBatch, Shard], FloatArray],
    ) -> FloatArray:
        """Seconds of all stages, and joules of all ranks, of n scenarios, shape (n, 2).

        Args:
            shapes: Sizes of the scenarios.
            phase: Prefill or decoding.
            costs: Seconds and joules of a batch of s scenarios on one rank, shape (s, 2).
        """
        run, totals = self.run, np.zeros((len(shapes), 2))
        model = ModelOptions(precision=run.precision, fused_attention=run.fused_attention)
        for shard in self.shards:
            batches = lower(
                run.workload, model, shapes, shard, phase=phase, merges=run.stack_path.merges
            )
            for lowered in batches:
                totals[lowered.scenario] += costs(lowered, shard)
        totals[:, 1] *= self.ranks
        return totals

    def pass_costs(self, lowered: LoweredBatch, shard: Shard) -> FloatArray:
        """Costs of whole passes."""
        graph = lowered.distinct_rows()
        return self.summed(lowered, graph, self.graph(graph, shard), lowered.repeat_count)

    def attention_costs(self, lowered: LoweredBatch, _shard: Shard) -> FloatArray:
        """Costs of attention alone."""
        rows = np.flatnonzero(lowered.kind == _ATTENTION)
        scenarios = len(lowered.scenario)
        if not len(rows):
            return np.zeros((scenarios, 2))
        places = (np.arange(scenarios)[:, None] * len(lowered.kind) + rows).ravel()
        graph = lowered.distinct_rows().take(places)
        run = self.run
        table = operator_costs(graph, run.device, run.execution, run.parameters)
        return self.summed(lowered, graph, table, lowered.repeat_count[rows])

    def summed(
        self, lowered: LoweredBatch, graph: OperatorGraph, table: CostTable, launches: IntArray
    ) -> FloatArray:
        """Costs of each scenario from those of its distinct rows and how often each is launched."""
        row_costs = self.costs(self.on_stack(table, graph, lowered.phase))
        row_costs = row_costs.reshape(len(lowered.scenario), -1, 2)
        sums: FloatArray = np.einsum("srk,r->sk", row_costs, launches)
        return sums

    def graph(self, graph: OperatorGraph, shard: Shard) -> CostTable:
        """Costs of one rank's rows, before its stack."""
        return sharded_costs(graph, replace(self.run, shard=shard), self.run.parameters)

    def on_stack(self, table: CostTable, graph: OperatorGraph, phase: Phase) -> CostTable:
        """Costs as the run's stack has them."""
        return on_stack(table, graph, self.run.stack_effect, is_decode=phase is Phase.DECODE)

    def times(self, table: CostTable, first_rows: Sequence[int] = (0,)) -> FloatArray:
        """Device times of rows; where the host issues them one by one, no less than that takes."""
        times = device_time_s(table, self.settings)
        if self.settings.is_captured or not self.settings.is_asynchronous:
            return times
        issue_s, run_s = (
            np.add.reduceat(column, first_rows) for column in (table.dispatch_s, times)
        )
        slowdown = np.maximum(1.0, issue_s / np.maximum(run_s, 1e-12))
        by_row: FloatArray = np.repeat(slowdown, np.diff([*first_rows, len(times)]))
        return times * by_row

    def costs(self, table: CostTable, first_rows: Sequence[int] = (0,)) -> FloatArray:
        """Seconds, and joules with the idle power of that time, shape (n, 2).

        Args:
            table: Rows of passes one after the other.
            first_rows: First row of each pass.
        """
        times = self.times(table, first_rows)
        joules = table.energy_j + (self.settings.idle_w or 0.0) * times
        return np.stack([times, joules], axis=1)


def lowered_pass(run: ResolvedRun, shape: PassShape, phase: Phase, shard: Shard) -> Lowered:
    """A pass of one rank, fused as its stack does.

    Args:
        run: The model on one rank.
        shape: Sizes of the pass.
        phase: Prefill or decoding.
        shard: The rank's part of the model.
    """
    lowered = run.workload.lower(
        shape,
        run.precision,
        phase,
        fused_attention=run.fused_attention,
        shard=shard,
        merges=run.stack_path.merges,
    )
    return replace(lowered, graph=fused(run, lowered.graph))


def _curves(
    pricing: _Pricing, max_tokens: int, max_seqs: int
) -> tuple[dict[str, StepCurve], tuple[float, float]]:
    """Layers over tokens, logits over sequences, and the spread of a step in the middle.

    Layers with prompts and without are the same rows; stacks run them at rates of their own.
    """
    max_seqs = max(max_seqs, 2)
    points = sorted({*_up_to(_TOKENS, max(max_tokens, max_seqs), 2), max_seqs})
    costs = {name: np.zeros((len(points), 2)) for name in ("layers", "decode_layers", "logits")}
    # What an ASIC keeps on the chip depends on the whole graph: there a pass is priced by itself.
    is_alone = isinstance(pricing.run.device, AsicProfile)
    together = [[point] for point in points] if is_alone else [points]
    for shard in pricing.shards:
        priced = [_stage_costs(pricing, group, max_seqs, shard) for group in together]
        for name, column in costs.items():
            np.add(column, np.concatenate([columns[name] for columns, _ in priced]), out=column)
        spread = priced[bisect_right(points, _MIDDLE) - 1 if is_alone else 0][1]
    at = np.array(points)
    few = at <= max_seqs
    curves = {}
    for name, column in costs.items():
        chosen = few | (name == "layers")
        seconds, joules = column[chosen].T
        curves[name] = StepCurve(at[chosen], seconds, joules * pricing.ranks)
    return curves, spread


def _stage_costs(
    pricing: _Pricing, points: list[int], max_seqs: int, shard: Shard
) -> tuple[dict[str, FloatArray], tuple[float, float]]:
    """Seconds and joules of a stage at each number of tokens, all of them priced at once, and the
    spread of the pass in the middle. Estimate: adapters add to the layers, whatever runs beside.
    """
    adapters = pricing.options.adapters
    graphs = [_step_graph(pricing.run, tokens, max_seqs, shard) for tokens in points]
    first_rows, graph = _first_rows(graphs), concatenate(graphs)
    parts = [layer_and_head_rows(step_graph, shard) for step_graph in graphs]
    is_layer, is_head = (np.concatenate(part) for part in zip(*parts, strict=True))
    kernels = pricing.graph(graph, shard)
    prompts = pricing.costs(pricing.on_stack(kernels, graph, Phase.PREFILL), first_rows)
    table = pricing.on_stack(kernels, graph, Phase.DECODE)
    decode = pricing.costs(table, first_rows)
    costs = {
        "layers": np.add.reduceat(prompts * is_layer[:, None], first_rows),
        "decode_layers": np.add.reduceat(decode * is_layer[:, None], first_rows),
        "logits": np.add.reduceat(decode * is_head[:, None], first_rows),
    }
    if adapters is not None:
        beside = [
            adapter_rows(step_graph, part[0], adapters, tokens)
            for step_graph, part, tokens in zip(graphs, parts, points, strict=True)
        ]
        starts, rows = _first_rows(beside), concatenate(beside)
        added = np.add.reduceat(pricing.costs(pricing.graph(rows, shard), starts), starts)
        costs["layers"] += added
        costs["decode_layers"] += added
    middle = max(bisect_right(points, _MIDDLE) - 1, 0)
    rows_of = slice(first_rows[middle], first_rows[middle] + len(graphs[middle]))
    return costs, _spread(graph, table, rows_of)


def _first_rows(graphs: Sequence[OperatorGraph]) -> list[int]:
    """First row of each of some graphs one after the other."""
    return [0, *accumulate(len(graph) for graph in graphs[:-1])]


def _step_graph(run: ResolvedRun, tokens: int, max_seqs: int, shard: Shard) -> OperatorGraph:
    """Rows of a step of so many tokens: of one each of sequences, or of prompts where those are
    fewer.
    """
    if tokens <= max_seqs:
        shape = PassShape(batch=tokens, seq_len=1, context_len=1, source_len=run.seq_len)
        return lowered_pass(run, shape, Phase.DECODE, shard).graph
    length = min(tokens, most_positions(run) or tokens)
    shape = PassShape(batch=-(-tokens // length), seq_len=length)
    return lowered_pass(run, shape, Phase.PREFILL, shard).graph


def layer_and_head_rows(graph: OperatorGraph, shard: Shard) -> tuple[BoolArray, BoolArray]:
    """Rows of layers and rows of the logits, shape (n,) each; attention is neither.

    Args:
        graph: A pass of n rows.
        shard: Part of the model that it is of.
    """
    is_attention = graph.kind == _ATTENTION
    is_head = np.zeros(len(graph), dtype=bool)
    if shard.stage.is_last:
        products = np.flatnonzero(is_kind(graph.kind, CONTRACTION_KINDS) & ~is_attention)
        is_head[products[-1] :] = True
    return ~is_attention & ~is_head, is_head


def _spread(graph: OperatorGraph, table: CostTable, rows: slice) -> tuple[float, float]:
    """Standard deviation of ln(true / predicted) of a pass, and the share of its variance that all
    passes have in common.

    Errors of one kind add up linearly, those of different kinds in quadrature (JCGM 100:2008,
    section 5.2).
    """
    kind, time_s, sigma = graph.kind[rows], table.time_s[rows], table.log_sigma[rows]
    shared_column = table.shared_log_sigma
    shared = sigma if shared_column is None else shared_column[rows]
    total = run_log_sigma(kind, time_s, sigma, None if shared_column is None else shared)
    common = run_log_sigma(kind, time_s, shared, None)
    weights = np.zeros(len(graph))
    weights[rows] = time_s
    context = table.context_of(weights)
    variance = total**2 + context**2
    if not variance:
        return 0.0, 1.0
    return math.sqrt(variance), min(1.0, (common**2 + context**2) / variance)


def _surface(pricing: _Pricing, counts: list[int], cached: list[int], phase: Phase) -> StepSurface:
    """Attention over tokens (or sequences) and what is cached, of all stages (Agrawal et al.,
    Vidur, MLSys 2024).
    """
    run = pricing.run
    count, context = (axis.ravel() for axis in np.meshgrid(counts, cached, indexing="ij"))
    sizes = {"batch": count, "seq_len": 1} if phase is Phase.DECODE else {"seq_len": count}
    if longest := most_positions(run):  # no sequence is longer: what would be is read as that
        context = np.clip(context, 0, longest - np.asarray(sizes["seq_len"]))
    most_target = family_parameter(
        run.workload, "target_positions", longest or int(context.max()) + 1
    )
    target_context = np.minimum(context, most_target - 1)  # of a decoder beside an encoder
    shapes = ShapeColumns.of(context_len=target_context, source_len=context, **sizes)
    costs = pricing.sums(shapes, phase, pricing.attention_costs)
    seconds, joules = costs.T.reshape(2, len(counts), len(cached))
    return StepSurface(np.array(counts), np.array(cached, dtype=np.float64), seconds, joules)
