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

from accelsim.cost.memory import transient_bytes
from accelsim.cost.table import CostTable, ParameterTier
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
from accelsim.training.blocks import Blocks, numbered_blocks
from accelsim.training.row_columns import row_columns
from accelsim.workloads.graph import FloatArray, IntArray, OperatorGraph, concatenate
from accelsim.workloads.operator import Phase

if TYPE_CHECKING:
    import pandas as pd

#: Runs that are priced in one call: more take memory, and hardly less time.
_AT_ONCE = 48
_BOTH = ("forward", "backward")
#: Columns of `BlockCosts`, all sums over a block's rows for one microbatch.
FIELDS = (
    *(
        f"{word}_{direction}_s"
        for direction in _BOTH
        for word in ("compute", "tensor", "context", "expert")
    ),
    *(f"issue_{direction}_s" for direction in _BOTH),
    *(f"energy_{direction}_j" for direction in _BOTH),
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
_INDEX = {name: index for index, name in enumerate(FIELDS)}
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
        column: FloatArray = self.values[_INDEX[name]]
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
    slots = [_unit_slot(RunKey(run)) for run in runs]
    missing = [(slot, run) for slot, run in zip(slots, runs, strict=True) if not slot]
    missing.sort(key=lambda pair: pair[1].shard.form)  # those that are written alike together
    for start in range(0, len(missing), _AT_ONCE):
        empty_slots, group = zip(*missing[start : start + _AT_ONCE], strict=True)
        for slot, unit in zip(empty_slots, _units(group), strict=True):
            slot.append(unit)
    units = [slot[0] for slot in slots]
    return BlockCosts(
        np.stack([unit.values for unit in units], axis=1),
        {name: np.array([unit.unit_values[name] for unit in units]) for name in UNIT_FIELDS},
        units[0].layer_count,
        tuple(unit.rows for unit in units),
    )


@frozen(eq=False)
class _Unit:
    """What the blocks of one run cost, shape (fields, blocks), beside the spreads of their rows."""

    values: FloatArray
    unit_values: dict[str, float]
    layer_count: int
    rows: RowSpreads


@lru_cache(maxsize=1024)
def _unit_slot(_: RunKey) -> list[_Unit]:
    """Where a run's unit is kept once it is priced, empty until then."""
    return []


@frozen(eq=False)
class _RunRows:
    """Rows of one run: its step, its distinct blocks, their rows, and the optimizer's step; all
    rows of the passes where the device prices them as a whole.
    """

    run: ResolvedRun
    step: TrainingStep
    blocks: Blocks
    rows: OperatorGraph
    update: OperatorGraph
    passes: OperatorGraph | None

    @classmethod
    def of(cls, run: ResolvedRun, step: TrainingStep, *, is_whole: bool) -> _RunRows:
        """Rows of a run's step."""
        rows = fused(run, step.rows)
        count = int(np.count_nonzero(rows.phase != int(Phase.OPTIMIZER)))
        passes, update = rows.part(0, count), rows.part(count, len(rows))
        blocks = Blocks.of(step, passes, run)
        block_rows = passes.take(blocks.distinct_rows)
        return cls(run, step, blocks, block_rows, update, passes if is_whole else None)


def _units(runs: Sequence[ResolvedRun]) -> list[_Unit]:
    """Price runs, whose rows are summed up together."""
    # a CPU prices a row by the weights of all others, too
    is_whole = isinstance(runs[0].device, CpuProfile)
    steps = training_steps(runs, folds=not is_whole)
    rows_of_runs = [
        _RunRows.of(run, step, is_whole=is_whole) for run, step in zip(runs, steps, strict=True)
    ]
    updates = concatenate([rows.update for rows in rows_of_runs])
    graphs = [rows.rows if rows.passes is None else rows.passes for rows in rows_of_runs]
    *tables, update = _tables([*graphs, updates], [*runs, runs[0]])
    if is_whole:
        pairs = zip(tables, rows_of_runs, strict=True)
        tables = [table.part(rows.blocks.distinct_rows) for table, rows in pairs]
    sums = _block_sums(rows_of_runs, tables)
    run_of_update = np.repeat(np.arange(len(runs)), [len(rows.update) for rows in rows_of_runs])
    update_s, update_issue_s = (
        np.bincount(run_of_update, column, len(runs)).tolist()
        for column in (update.time_s, update.dispatch_s)
    )
    byte_s = device_settings(runs[0], 1.0, is_decode=False).copy_s
    units = []
    for index, (rows, table) in enumerate(zip(rows_of_runs, tables, strict=True)):
        values = sums[:, index]
        unit_values = _tied(values, rows.step, rows.run) | {
            "update_s": update_s[index],
            "update_issue_s": update_issue_s[index],
            "copy_s": byte_s * input_bytes(rows.step.rows),
        }
        units.append(_Unit(values, unit_values, rows.blocks.layer_count, _spreads(rows, table)))
    return units


def _block_sums(rows_of_runs: Sequence[_RunRows], tables: Sequence[CostTable]) -> FloatArray:
    """Sums over the rows of each block of runs, in the order of `FIELDS`, shape (fields, runs,
    blocks).
    """
    every = [rows.blocks for rows in rows_of_runs]
    block, alike = numbered_blocks(every)
    columns = row_columns(
        [rows.rows for rows in rows_of_runs], tables, [rows.run for rows in rows_of_runs]
    )
    size = int(alike.max()) + 1
    sums = {
        name: np.bincount(block, weights=column, minlength=size).astype(np.float64)
        for name, column in columns.items()
    }
    sums["output_bytes"] = np.concatenate([blocks.output_bytes for blocks in every])
    sums["working_bytes"] = np.concatenate([_working_bytes(rows) for rows in rows_of_runs])
    values = {name: column[alike] for name, column in sums.items()}
    layers = every[0].layer_count
    for name in ("compute_s", "issue_s", "energy_j"):
        quantity, unit = name.rsplit("_", 1)
        values[f"again_{name}"] = of_layers(values[f"{quantity}_forward_{unit}"], layers)
    values["again_flop"] = of_layers(values["flop"], layers)
    return np.stack([values[name] for name in FIELDS])


def _working_bytes(rows: _RunRows) -> FloatArray:
    """The most that a row of each block's backward pass holds beyond what the block keeps, shape
    (distinct_count,).
    """
    block = rows.blocks.distinct_block
    working = np.zeros(rows.blocks.distinct_count)
    np.maximum.at(working, block, transient_bytes(rows.rows, rows.rows, block))
    return working


def _tied(values: FloatArray, step: TrainingStep, run: ResolvedRun) -> dict[str, float]:
    """Parameters that the last block shares with the first; row sums count them twice.

    Estimate: what rows have more than the model is tied.
    """
    parameters, trained, weight_bytes = (values[_INDEX[name]] for name in _OF_TIED)
    tied = 0.0
    if getattr(run.workload.parameters, "tied_embeddings", False):
        adapters = 0.0 if run.lora_rank is None else float(trained.sum())
        tied = max(float(parameters.sum()) - adapters - step.lowered.parameter_count, 0.0)
    return {
        "tied_parameters": tied,
        "tied_trained": tied if run.lora_rank is None else 0.0,
        "tied_bytes": tied * float(weight_bytes[0] / max(parameters[0], 1.0)),
    }


def _spreads(rows: _RunRows, table: CostTable) -> RowSpreads:
    run, blocks = rows.run, rows.blocks
    mode = "training" if run.cluster is None else "parallel-training"
    copies = np.bincount(blocks.alike, minlength=blocks.distinct_count)
    times = table.time_s * copies[blocks.distinct_block]
    return RowSpreads(
        kind=rows.rows.kind.astype(np.int64),
        time_s=times,
        log_sigma=table.log_sigma,
        shared_log_sigma=(
            table.log_sigma if table.shared_log_sigma is None else table.shared_log_sigma
        ),
        context_log_sigma=table.context_of(times),
        tier=table.tier,
        setting=setting_of(mode, run.precision, rows.step.forward),
        relatives=getattr(run.parameters, "relatives", ()),
    )


def _tables(graphs: Sequence[OperatorGraph], runs: Sequence[ResolvedRun]) -> list[CostTable]:
    settings = device_settings(runs[0], is_decode=False)
    tables = rank_costs(graphs, runs)
    return [replace(table, time_s=device_time_s(table, settings)) for table in tables]


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
