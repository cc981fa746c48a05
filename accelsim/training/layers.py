"""What each block of a model takes on one rank: times, bytes and parameters of its layers.

A model's rows are cut into blocks: what stands before its layers, each layer, and what follows.
Equal blocks are priced once. A block's row sums are what stages of a pipeline, buckets of gradients
and sharded weights are made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from accelsim.cost.contraction import visible_pairs
from accelsim.cost.memory import transient_bytes
from accelsim.cost.table import CostTable, ParameterTier
from accelsim.dtype import DTYPE_BYTES
from accelsim.estimation.likeness import Setting, setting_of
from accelsim.estimation.passes import (
    TrainingStep,
    fused,
    input_bytes,
    training_step,
    training_steps,
)
from accelsim.estimation.run import ResolvedRun, RunKey
from accelsim.estimation.schedule import device_settings
from accelsim.estimation.sharded_costs import rank_costs
from accelsim.frozen import frozen
from accelsim.hardware.profile import CpuProfile
from accelsim.simulation.device_settings import device_time_s
from accelsim.workloads.adapters import is_adapter
from accelsim.workloads.graph import (
    BoolArray,
    FloatArray,
    IntArray,
    OperatorGraph,
    concatenate,
    is_kind,
)
from accelsim.workloads.operator import (
    COLLECTIVE_KINDS,
    CONTRACTION_KINDS,
    DIMENSIONS,
    PRODUCT_KINDS,
    OperatorKind,
    Phase,
)
from accelsim.workloads.recomputation import layer_of, selectively
from accelsim.workloads.sharding import ParallelGroup

if TYPE_CHECKING:
    import pandas as pd

_K = OperatorKind
_LOOKUPS = (int(_K.EMBEDDING), int(_K.EMBEDDING_BAG))
#: Runs that are priced in one call: more take memory, and hardly less time.
_AT_ONCE = 48
#: Group of a collective -> word in the names of fields.
_GROUPS = {
    ParallelGroup.TENSOR: "tensor",
    ParallelGroup.EXPERT_TENSOR: "expert",
    ParallelGroup.EXPERT: "expert",
    ParallelGroup.CONTEXT: "context",
}
_BOTH = ("forward", "backward")
#: Columns of `BlockCosts`, all sums over a block's rows for one microbatch.
FIELDS = (
    *(f"{word}_{part}_s" for part in _BOTH for word in ("compute", "tensor", "context", "expert")),
    *(f"issue_{part}_s" for part in _BOTH),
    *(f"energy_{part}_j" for part in _BOTH),
    "weight_gradient_s",  # of the backward pass, the part that no other layer waits for
    # of the forward pass, what full recomputation does again: layers
    *(f"again_{name}" for name in ("compute_s", "issue_s", "energy_j", "flop")),
    # of the forward pass, what selective recomputation does again
    *(f"selective_{name}" for name in ("compute_s", "issue_s", "energy_j", "flop")),
    "saved_bytes",
    "selective_saved_bytes",  # what is kept where selective recomputation does the rest again
    "output_bytes",
    "working_bytes",
    "parameters",
    "expert_parameters",
    "table_parameters",  # of embedding bags
    "trained_parameters",  # of those that are neither
    "trained_experts",
    "weight_bytes",  # as they are held; of dense layers
    "expert_weight_bytes",
    "tensors",  # weights and biases, each a tensor
    "pooled_bytes",  # what embedding bags give
    "flop",
)

_OF_TIED = ("parameters", "trained_parameters", "weight_bytes")
_PLACES = {name: place for place, name in enumerate(FIELDS)}
#: Columns in which the rows of two blocks are the same where the blocks are.
_CONTENT = ("kind", "dims", "dtype", "phase", "read_bytes", "write_bytes", "saved_bytes")
#: What a unit has beside its blocks.
UNIT_FIELDS = (
    "tied_parameters",  # of the first block that the last one uses, too
    "tied_trained",  # those of them that are trained
    "tied_bytes",
    "update_s",  # the optimizer's step of all parameters
    "update_issue_s",
    "copy_s",  # one microbatch's input from the host
)


@frozen(eq=False)
class BlockCosts:
    """Sums over the rows of each block, for u units (ways to run one microbatch on one rank).

    Attributes:
        values: In the order of `FIELDS`, shape (fields, u, blocks).
        unit_values: By name in `UNIT_FIELDS`, of no block, shape (u,) each.
        layer_count: Blocks between the first and the last that are layers of the model.
        rows: Times and spreads of each unit's distinct rows, for intervals.
    """

    values: FloatArray
    unit_values: dict[str, FloatArray]
    layer_count: int
    rows: tuple[RowSpreads, ...]

    def __getitem__(self, name: str) -> FloatArray:
        column: FloatArray = self.values[_PLACES[name]]
        return column

    @property
    def block_count(self) -> int:
        """Blocks."""
        return int(self.values.shape[-1])


@frozen(eq=False)
class RowSpreads:
    """Rows that the interval of an iteration is made from.

    Attributes:
        kind: `OperatorKind` codes, shape (n,).
        time_s: Times of all repeats of each row.
        log_sigma: Spread of each.
        shared_log_sigma: Part that rows of one kind share.
        context_log_sigma: What all rows share.
        tier: Where the parameters come from.
        setting: Mode, format and kind of model.
        relatives: Boards whose kernel surfaces stand for the device's own.
    """

    kind: IntArray
    time_s: FloatArray
    log_sigma: FloatArray
    shared_log_sigma: FloatArray
    context_log_sigma: float
    tier: ParameterTier
    setting: Setting
    relatives: tuple[str, ...]


def block_costs(runs: Sequence[ResolvedRun]) -> BlockCosts:
    """Price one microbatch of each run, forward and backward.

    Args:
        runs: Runs of one workload that differ in batch, shard and adapters alone; the batch is a
            microbatch, the shard has no stages.

    Raises:
        InvalidValueError: If a shard does not divide the model.
        UnsupportedOperatorError: If the device cannot run a row.
    """
    kept = [_kept(RunKey(run)) for run in runs]
    new = [(one, run) for one, run in zip(kept, runs, strict=True) if not one]
    new.sort(key=lambda pair: pair[1].shard.form)  # those that are written alike together
    for start in range(0, len(new), _AT_ONCE):
        some = new[start : start + _AT_ONCE]
        for (one, _), unit in zip(some, _units([run for _, run in some]), strict=True):
            one.append(unit)
    units = [one[0] for one in kept]
    values = np.stack([unit.values for unit in units], axis=1)
    whole = {name: np.array([unit.unit_values[name] for unit in units]) for name in UNIT_FIELDS}
    return BlockCosts(values, whole, units[0].layer_count, tuple(unit.rows for unit in units))


@frozen(eq=False)
class _Unit:
    """What the blocks of one run cost, shape (fields, blocks), beside the spreads of their rows."""

    values: FloatArray
    unit_values: dict[str, float]
    layer_count: int
    rows: RowSpreads


@lru_cache(maxsize=1024)
def _kept(_: RunKey) -> list[_Unit]:
    """Where a run's unit is kept once it is priced, empty until then."""
    return []


@frozen(eq=False)
class _Written:
    """Rows of one run: its step, its distinct blocks and their rows, the rows to price, and the
    optimizer's step.
    """

    step: TrainingStep
    blocks: _Blocks
    rows: OperatorGraph
    graph: OperatorGraph
    update: OperatorGraph

    def priced(self, table: CostTable) -> CostTable:
        """What the blocks' rows cost, from the costs of all rows."""
        return table if self.graph is self.rows else table.part(self.blocks.distinct_rows)


def _written(run: ResolvedRun, step: TrainingStep, *, is_whole: bool) -> _Written:
    """Rows of a run, or all of the device's where it is priced as a whole."""
    rows = fused(run, step.rows)
    count = int(np.count_nonzero(rows.phase != int(Phase.OPTIMIZER)))
    passes, update = rows.part(0, count), rows.part(count, len(rows))
    blocks = _Blocks.of(step, passes, run)
    block_rows = passes.take(blocks.distinct_rows)
    return _Written(step, blocks, block_rows, passes if is_whole else block_rows, update)


def _units(runs: Sequence[ResolvedRun]) -> list[_Unit]:
    """Price runs, whose rows are summed up together."""
    # a CPU prices a row by the weights of all others, too
    is_whole = isinstance(runs[0].device, CpuProfile)
    steps = training_steps(runs, folds=not is_whole)
    written = [
        _written(run, step, is_whole=is_whole) for run, step in zip(runs, steps, strict=True)
    ]
    updates = concatenate([rows_of_run.update for rows_of_run in written])
    tables = _tables([*(rows_of_run.graph for rows_of_run in written), updates], [*runs, runs[0]])
    priced = [
        rows_of_run.priced(table) for table, rows_of_run in zip(tables, written, strict=False)
    ]
    rows = [rows_of_run.rows for rows_of_run in written]
    sums = _block_sums(rows, priced, [rows_of_run.blocks for rows_of_run in written], runs)
    of_run = np.repeat(np.arange(len(runs)), [len(rows_of_run.update) for rows_of_run in written])
    update_s, issue_s = (
        np.bincount(of_run, column, len(runs))
        for column in (tables[-1].time_s, tables[-1].dispatch_s)
    )
    byte_s = device_settings(runs[0], 1.0, is_decode=False).copy_s
    mode = "training" if runs[0].cluster is None else "parallel-training"
    relatives: tuple[str, ...] = getattr(runs[0].parameters, "relatives", ())
    units = []
    for index, (run, rows_of_run) in enumerate(zip(runs, written, strict=True)):
        values = sums[:, index]
        whole = _tied(values, rows_of_run.step, run) | {
            "update_s": float(update_s[index]),
            "update_issue_s": float(issue_s[index]),
            "copy_s": byte_s * input_bytes(rows_of_run.step.rows),
        }
        setting = setting_of(mode, run.precision, rows_of_run.step.forward)
        spreads = _spreads(rows[index], priced[index], rows_of_run.blocks, setting, relatives)
        units.append(_Unit(values, whole, rows_of_run.blocks.layer_count, spreads))
    return units


def _block_sums(
    graphs: Sequence[OperatorGraph],
    tables: Sequence[CostTable],
    every: Sequence[_Blocks],
    runs: Sequence[ResolvedRun],
) -> FloatArray:
    """Sums over the rows of each block of runs, in the order of `FIELDS`, shape (fields, runs,
    blocks).
    """
    counts = [blocks.distinct_count for blocks in every]
    starts = np.cumsum([0, *counts])[:-1]
    block = np.concatenate([b.distinct_block + s for b, s in zip(every, starts, strict=True)])
    alike = np.stack([b.alike + s for b, s in zip(every, starts, strict=True)])
    of_run = np.repeat(np.arange(len(runs)), [len(graph) for graph in graphs])
    adapts = np.array([run.lora_rank is not None for run in runs])[of_run]
    graph, size = concatenate(graphs), sum(counts)
    recomputed = selectively(graph, runs[0].selective, of_run)
    columns = _columns(graph, _PassCosts.joined(tables), recomputed, adapts, runs[0])
    sums = {
        name: np.bincount(block, weights=column, minlength=size).astype(np.float64)
        for name, column in columns.items()
    }
    sums["output_bytes"] = np.concatenate([blocks.output_bytes for blocks in every])
    sums["working_bytes"] = np.concatenate(
        [_working_bytes(*graph_and_blocks) for graph_and_blocks in zip(graphs, every, strict=True)]
    )
    values = {name: sums[name][alike] for name in FIELDS if name in sums}
    layers = every[0].layer_count
    for word, unit in (("compute", "s"), ("issue", "s"), ("energy", "j")):
        values[f"again_{word}_{unit}"] = of_layers(values[f"{word}_forward_{unit}"], layers)
    values["again_flop"] = of_layers(values["flop"], layers)
    return np.stack([values[name] for name in FIELDS])


@frozen(eq=False)
class _PassCosts:
    """Costs of the rows of all runs, shape (n,) each; see `CostTable`."""

    time_s: FloatArray
    dispatch_s: FloatArray
    energy_j: FloatArray

    @classmethod
    def joined(cls, tables: Sequence[CostTable]) -> _PassCosts:
        """Those of some tables, one after the other."""
        names = ("time_s", "dispatch_s", "energy_j")
        return cls(*(np.concatenate([getattr(table, name) for table in tables]) for name in names))


def operator_frame(run: ResolvedRun) -> pd.DataFrame:
    """Operators of one microbatch on one rank, forward and backward, with what each costs.

    Args:
        run: A run whose batch is a microbatch.
    """
    rows = fused(run, training_step(run).rows)
    graph = rows.take(rows.phase != int(Phase.OPTIMIZER))
    return _tables([graph], [run])[0].to_frame(graph)


def of_layers(sums: FloatArray, layer_count: int) -> FloatArray:
    """Sums of layers, which full recomputation runs again: 0 for what stands before the first and
    after the last one.

    Args:
        sums: Sums of blocks, shape (..., blocks).
        layer_count: Layers among them.
    """
    layer_sums = sums.copy()
    if layer_count < layer_sums.shape[-1]:
        layer_sums[..., [0, -1]] = 0.0
    return layer_sums


def _tables(graphs: Sequence[OperatorGraph], runs: Sequence[ResolvedRun]) -> list[CostTable]:
    settings = device_settings(runs[0], is_decode=False)
    tables = rank_costs(graphs, runs)
    return [replace(table, time_s=device_time_s(table, settings)) for table in tables]


def _columns(
    graph: OperatorGraph,
    table: _PassCosts,
    recomputed: tuple[FloatArray, BoolArray],
    adapts: BoolArray,
    run: ResolvedRun,
) -> dict[str, FloatArray]:
    """Columns of the rows to sum over blocks, by field.

    Args:
        graph: Rows of all runs, shape (n,).
        table: What they cost.
        recomputed: What each keeps under selective recomputation, and whether it runs again.
        adapts: Whether adapters alone are trained.
        run: One of the runs.
    """
    is_forward = graph.phase == int(Phase.FORWARD)
    joins = is_kind(graph.kind, COLLECTIVE_KINDS)
    kept_bytes, again = recomputed
    flop = _needed_flop(graph) * (is_kind(graph.kind, CONTRACTION_KINDS) & is_forward)
    columns = {
        "weight_gradient_s": table.time_s * _ends(graph, (".grad_weight", ".grad_bias")),
        "selective_compute_s": table.time_s * again,
        "selective_issue_s": table.dispatch_s * again,
        "selective_energy_j": table.energy_j * again,
        "saved_bytes": graph.saved_bytes,
        "selective_saved_bytes": kept_bytes,
        "flop": flop,
        "selective_flop": flop * again,
    }
    for direction, rows in (("forward", is_forward), ("backward", ~is_forward)):
        columns[f"compute_{direction}_s"] = table.time_s * (rows & ~joins)
        columns[f"issue_{direction}_s"] = table.dispatch_s * rows
        columns[f"energy_{direction}_j"] = table.energy_j * rows
        for word in ("tensor", "context", "expert"):
            columns[f"{word}_{direction}_s"] = table.time_s * (rows & joins & _is_of(graph, word))
    return columns | _parameters(graph, is_forward, adapts, run)


def _needed_flop(graph: OperatorGraph) -> FloatArray:
    """Arithmetic of the model, of attention that of the pairs that its mask leaves, shape (n,).

    Megatron Core and MaxText (from 2025-07) count so; a full rectangle has twice as many under a
    causal mask, which kernels leave out.
    """
    names = ("q_len", "kv_len", "causal", "window")
    places = [DIMENSIONS[_K.ATTENTION].index(name) for name in names]
    q_len, kv_len, causal, window = (graph.dims[:, at].astype(np.float64) for at in places)
    share = visible_pairs(q_len, kv_len, causal, window) / np.maximum(q_len * kv_len, 1.0)
    needed: FloatArray = graph.flop * np.where(graph.kind == int(_K.ATTENTION), share, 1.0)
    return needed


def _is_of(graph: OperatorGraph, word: str) -> BoolArray:
    groups = [int(group) for group, label in _GROUPS.items() if label == word]
    is_of_group: BoolArray = np.isin(graph.dims[:, 2], groups)
    return is_of_group


def _ends(graph: OperatorGraph, suffixes: tuple[str, ...]) -> BoolArray:
    return np.array([name.endswith(suffixes) for name in graph.name], dtype=bool)


def _parameters(
    graph: OperatorGraph, is_forward: BoolArray, adapts: BoolArray, run: ResolvedRun
) -> dict[str, FloatArray]:
    """Parameters of forward rows and their bytes: stored weights, whole tables, all experts."""
    adapters = is_adapter(graph) if adapts.any() else adapts
    width = _weight_widths(graph, run)
    count = graph.weight_bytes / np.where(adapters, run.precision.activation.bytes, width)
    lookups = np.isin(graph.kind, _LOOKUPS)
    sizes = graph.dims.astype(np.float64)
    count = np.where(lookups, sizes[:, 1] * sizes[:, 2], count)
    grouped = graph.kind == int(_K.GROUPED_GEMM)
    count = np.where(grouped, sizes[:, 0] * sizes[:, 2] * sizes[:, 3], count) * is_forward
    bags = graph.kind == int(_K.EMBEDDING_BAG)
    is_frozen = adapts & ~adapters
    trained = count * ~is_frozen
    held_bytes = np.where(is_frozen, width, run.precision.trained.held_bytes) * count
    return {
        "weight_bytes": held_bytes * ~(grouped | bags),
        "expert_weight_bytes": held_bytes * grouped,
        "parameters": count,
        "expert_parameters": count * grouped,
        "table_parameters": count * bags,
        "trained_parameters": trained * ~(grouped | bags),
        "trained_experts": trained * grouped,
        "tensors": 1.0 * np.where(is_forward, count > 0, _ends(graph, (".grad_bias",))),
        "pooled_bytes": graph.write_bytes * (bags & is_forward),
    }


def _weight_widths(graph: OperatorGraph, run: ResolvedRun) -> FloatArray:
    """Bytes of one stored weight of each row, shape (n,)."""
    policy = run.precision
    if run.workload.captured is not None:
        is_narrow = graph.dtype == policy.compute
        return np.where(is_narrow, policy.weight.bytes, DTYPE_BYTES[graph.dtype])
    products = is_kind(graph.kind, PRODUCT_KINDS)
    if not policy.kept:
        return np.where(products, policy.weight.bytes, policy.unquantised.bytes)
    widths = (
        policy.stored_bytes(path, is_product=is_product)
        for path, is_product in zip(graph.path, products.tolist(), strict=True)
    )
    return np.fromiter(widths, dtype=np.float64, count=len(graph))


def _working_bytes(graph: OperatorGraph, blocks: _Blocks) -> FloatArray:
    """The most that a row of each block's backward pass holds beyond what the block keeps, shape
    (distinct_count,).
    """
    working = np.zeros(blocks.distinct_count)
    row_bytes = transient_bytes(graph, graph, blocks.distinct_block)
    np.maximum.at(working, blocks.distinct_block, row_bytes)
    return working


def _tied(values: FloatArray, step: TrainingStep, run: ResolvedRun) -> dict[str, float]:
    """Parameters that the last block shares with the first; row sums count them twice."""
    tied, (parameters, trained, weight_bytes) = 0.0, (values[_PLACES[name]] for name in _OF_TIED)
    if getattr(run.workload.parameters, "tied_embeddings", False):
        adapters = 0.0 if run.lora_rank is None else float(trained.sum())
        row_parameters = float(parameters.sum()) - adapters
        tied = max(row_parameters - step.lowered.parameter_count, 0.0)
    width = float(weight_bytes[0] / max(parameters[0], 1.0))
    trained_tied = tied if run.lora_rank is None else 0.0
    return {"tied_parameters": tied, "tied_trained": trained_tied, "tied_bytes": tied * width}


def _spreads(
    graph: OperatorGraph,
    table: CostTable,
    blocks: _Blocks,
    setting: Setting,
    relatives: tuple[str, ...],
) -> RowSpreads:
    copies = np.bincount(blocks.alike, minlength=blocks.distinct_count)
    shared = table.log_sigma if table.shared_log_sigma is None else table.shared_log_sigma
    times = table.time_s * copies[blocks.distinct_block]
    about = (table.context_of(times), table.tier, setting, relatives)
    return RowSpreads(graph.kind.astype(np.int64), times, table.log_sigma, shared, *about)


@frozen(eq=False)
class _Blocks:
    """Which rows stand for which blocks.

    Attributes:
        distinct_rows: Rows of one block of each sort, shape (k,).
        distinct_block: The sort of each, shape (k,).
        distinct_count: Sorts of blocks.
        output_bytes: What a block of each sort hands on: what its last operator writes, before a
            compiler joins it with those of the next block; shape (distinct_count,).
        alike: Sort of each block, shape (blocks,).
        layer_count: Layers among the blocks.
    """

    distinct_rows: IntArray
    distinct_block: IntArray
    distinct_count: int
    output_bytes: FloatArray
    alike: IntArray
    layer_count: int

    @classmethod
    def of(cls, step: TrainingStep, passes: OperatorGraph, run: ResolvedRun) -> _Blocks:
        """Blocks of the rows of a forward and a backward pass."""
        keys = _keys(step.forward.path, is_split=_is_split(run))
        block = np.array([keys[path] for path in passes.path], dtype=np.int64)
        count = max(keys.values()) + 1
        output, plain = np.zeros(count), step.forward
        numbers = np.array([keys[path] for path in plain.path], dtype=np.int64)
        output[numbers] = plain.write_bytes  # the last row's stays
        order = np.argsort(block, kind="stable")
        starts = np.searchsorted(block[order], np.arange(count + 1))
        sorts: dict[bytes, int] = {}
        alike: list[int] = []
        rows: list[IntArray] = []
        sort_of_rows: list[IntArray] = []
        first_blocks: list[int] = []
        for number in range(count):
            rows_of_block = order[starts[number] : starts[number + 1]]
            key = b"".join(getattr(passes, name)[rows_of_block].tobytes() for name in _CONTENT)
            sort = sorts.setdefault(key, len(sorts))
            if sort == len(rows):
                rows.append(rows_of_block)
                sort_of_rows.append(np.full(len(rows_of_block), sort))
                first_blocks.append(number)
            alike.append(sort)
        copies = np.ones(count, dtype=np.int64)
        for path, number in keys.items():
            copies[number] = 1 + step.lowered.folded.get(layer_of(path)[0], 0)
        layers = int(copies.sum()) - 2 if _is_split(run) else count
        picked = (np.concatenate(rows), np.concatenate(sort_of_rows))
        return cls(*picked, len(sorts), output[first_blocks], np.repeat(alike, copies), layers)


def _is_split(run: ResolvedRun) -> bool:
    return run.workload.family is not None and run.workload.family.shards


@lru_cache(maxsize=64)
def _keys(paths: tuple[str, ...], *, is_split: bool) -> dict[str, int]:
    """Block of each path: of a model of layers the rows before, each layer, and the rows after; of
    others what shares the first number in its path.
    """
    block_of_path: dict[str, int] = {}
    blocks: dict[str, int] = {"": 0} if is_split else {}
    layers = [layer_of(path) for path in paths]
    last = max((index for index, layer in enumerate(layers) if layer[1]), default=0)
    for index, (path, (prefix, is_layer)) in enumerate(zip(paths, layers, strict=True)):
        if is_split and not is_layer:
            block_of_path.setdefault(path, 0 if index < last else -1)
        else:
            block_of_path.setdefault(path, blocks.setdefault(prefix, len(blocks)))
    return {path: len(blocks) if block < 0 else block for path, block in block_of_path.items()}
