"""Sums over the layers of each pipeline stage, for many ways to cut a model into stages.

A table holds the stages of plans that share the number of stages: a row per unit (how one rank runs
a microbatch) and number of chunks. Scoring a plan looks its row up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accelsim.frozen import frozen
from accelsim.training.candidates import CandidatePlans
from accelsim.training.layers import FIELDS, BlockCosts, of_layers
from accelsim.training.plan import RECOMPUTE, layers_of_chunks
from accelsim.training.setup import TrainingSetup
from accelsim.workloads.graph import FloatArray, IntArray


@frozen(eq=False)
class StageTable:
    """Stage sums.

    Attributes:
        values: Shape (rows, stages) each, by name in `layers.FIELDS`: sums, for `working_bytes` the
            largest; "block_counts" of blocks, "block_saved_bytes" and "block_parameters", the most
            of one block, "pair_parameters", of one and the next, "input_bytes", what is kept where
            layers keep their inputs alone, "again_bytes" and "selective_again_bytes", what a layer
            that is computed again, whole or in part, holds beyond what any block works with.
        boundary_bytes: What is sent from stage to stage, shape (rows,).
        unit_values: Of the unit of each row, shape (rows,) each; see `layers.UNIT_FIELDS`.
    """

    values: dict[str, FloatArray]
    boundary_bytes: FloatArray
    unit_values: dict[str, FloatArray]

    def __getitem__(self, name: str) -> FloatArray:
        return self.values[name]


@frozen(eq=False)
class StagedPlans:
    """k plans of one number of stages, with the sums of their stages.

    Attributes:
        setup: Model and devices.
        plans: The plans.
        table: Stages of all of them.
        row: Row of each plan in the table, shape (k,).
        microbatch_count: Microbatches of each, shape (k,).
    """

    setup: TrainingSetup
    plans: CandidatePlans
    table: StageTable
    row: IntArray
    microbatch_count: IntArray

    def __len__(self) -> int:
        return len(self.row)

    def __getitem__(self, name: str) -> NDArray[Any]:
        """A field of the plans, shape (k,)."""
        return self.plans[name]

    def sums(self, name: str) -> FloatArray:
        """Sums over the layers of each stage, shape (k, stages)."""
        return self.table[name][self.row]

    def recomputed(
        self, full: FloatArray, selective: FloatArray | float, none: FloatArray | float = 0.0
    ) -> FloatArray:
        """Columns of the plans that recompute all, some and none of the activations, shape (k,
        stages).
        """
        recompute = self["recompute"][:, None]
        cases = [recompute == RECOMPUTE.index(word) for word in ("full", "selective")]
        return np.select(cases, [full, selective], none)

    @property
    def updated(self) -> FloatArray:
        """Parameters that the optimizer updates in every step, of each stage: all but tables and
        frozen weights.
        """
        return self.sums("trained_parameters") + self.sums("trained_experts")

    @property
    def data_ranks(self) -> IntArray:
        """Ranks that hold copies of the same dense layers."""
        ranks: IntArray = self["dp"] * self["cp"]
        return ranks

    @property
    def state_ranks(self) -> IntArray:
        """Of these, the ranks that share states."""
        return np.where(self["shard_group"] > 0, self["shard_group"], self.data_ranks)

    @property
    def expert_ranks(self) -> tuple[IntArray, IntArray]:
        """Ranks that hold copies of the same experts, and devices from one to the next; see
        `Shard.expert_tp`.

        Expert parallelism: Lepikhin et al. 2020, arXiv:2006.16668.
        """
        alone = np.where(self["ep"] == 1, self["tp"], 1)
        spread = self["ep"] * np.where(self["etp"] > 0, self["etp"], alone)
        return np.maximum(self.data_ranks * self["tp"] // spread, 1), spread


def chunk_of_blocks(
    costs: BlockCosts, stage_count: int, chunk_count: int, layers: Sequence[int] | None = None
) -> IntArray:
    """Chunk that each block belongs to, numbered through the model: stages of chunk 0 first.

    Args:
        costs: Blocks.
        stage_count: Stages.
        chunk_count: Chunks a stage.
        layers: Layers of each stage; even where None.
    """
    if stage_count == 1 and chunk_count == 1:
        return np.zeros(costs.block_count, dtype=np.int64)
    count = stage_count * chunk_count
    if layers is None:
        layers = layers_of_chunks(costs.layer_count, count)
    return np.concatenate([[0], np.repeat(np.arange(count), layers), [count - 1]])


def stage_table(
    costs: BlockCosts,
    units: IntArray,
    chunk_counts: IntArray,
    stage_count: int,
    layers: Sequence[int] | None = None,
) -> StageTable:
    """Sum blocks up to stages.

    Args:
        costs: Blocks of every unit.
        units: Unit of each row of the table, shape (rows,).
        chunk_counts: Chunks a stage of each row, shape (rows,).
        stage_count: Stages.
        layers: Layers of each stage; even where None.
    """
    saved, working = costs["saved_bytes"], costs["working_bytes"]
    selective, count = costs["selective_saved_bytes"], costs.layer_count
    inputs = saved - of_layers(saved - _entering(costs["output_bytes"]), count)
    peaks = {  # what a block holds at most, and what it keeps that is freed before earlier ones run
        "working_bytes": (working, saved),
        "again_bytes": (of_layers(saved + working, count), inputs),
        "selective_again_bytes": (saved - selective + working, selective),
    }
    largest = {
        "block_saved_bytes": saved,
        "block_parameters": costs["parameters"],
        "pair_parameters": _with_next(costs["parameters"]),
    }
    fields = np.zeros((len(FIELDS), len(units), stage_count))
    names = (*largest, *peaks, "block_counts", "input_bytes")
    sums = {name: np.zeros(fields.shape[1:]) for name in names}
    boundary = np.zeros(len(units))
    for chunks in np.unique(chunk_counts).tolist():
        rows = np.flatnonzero(chunk_counts == chunks)
        stage = chunk_of_blocks(costs, stage_count, chunks, layers) % stage_count
        one_of = (stage[:, None] == np.arange(stage_count)).astype(np.float64)
        picked, order = units[rows], np.argsort(stage, kind="stable")
        starts = np.searchsorted(stage[order], np.arange(stage_count))
        fields[:, rows] = costs.values[:, picked] @ one_of
        for name, column in largest.items():
            sums[name][rows] = np.maximum.reduceat(column[picked][:, order], starts, axis=1)
        for name, (column, kept_bytes) in peaks.items():
            later = _later(kept_bytes[picked], stage) if chunks == 1 else 0.0
            held_bytes = (column[picked] - later)[:, order]
            sums[name][rows] = np.maximum.reduceat(held_bytes, starts, axis=1)
        sums["block_counts"][rows] = one_of.sum(axis=0)
        sums["input_bytes"][rows] = inputs[picked] @ one_of
        inner = max(costs.block_count - 1, 1)
        boundary[rows] = np.median(costs["output_bytes"][picked, :inner], axis=1)
    sums = dict(zip(FIELDS, fields, strict=True)) | sums
    of_unit = {name: column[units] for name, column in costs.unit_values.items()}
    if stage_count == 1:  # a table that is embedding and last layer is held once
        sums["parameters"][:, 0] -= of_unit["tied_parameters"]
        sums["trained_parameters"][:, 0] -= of_unit["tied_trained"]
        sums["weight_bytes"][:, 0] -= of_unit["tied_bytes"]
    for name in ("again_bytes", "selective_again_bytes"):
        sums[name] = np.maximum(sums[name] - sums["working_bytes"], 0.0)
    return StageTable(sums, boundary, of_unit)


def _entering(output: FloatArray) -> FloatArray:
    """What each block takes from the one before, shape (u, blocks)."""
    entering = np.zeros_like(output)
    entering[:, 1:] = output[:, :-1]
    return entering


def _later(kept_bytes: FloatArray, stage: IntArray) -> FloatArray:
    """What the later blocks of each block's stage keep, which is freed before its backward pass
    runs, shape (rows, blocks).

    Args:
        kept_bytes: What each block keeps, shape (rows, blocks).
        stage: Stage of each block, ascending, shape (blocks,).
    """
    before = kept_bytes.cumsum(axis=1)
    last = np.searchsorted(stage, stage, side="right") - 1
    later: FloatArray = before[:, last] - before
    return later


def _with_next(column: FloatArray) -> FloatArray:
    """Each block's sums with those of the next one, shape (u, blocks)."""
    both = column.copy()
    both[:, :-1] += column[:, 1:]
    return both
