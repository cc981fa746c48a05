"""Orders in which the stages of a pipeline run forward and backward passes of microbatches.

GPipe (Huang et al. 2019, arXiv:1811.06965) runs all forward passes first; 1F1B (PipeDream-Flush,
Narayanan et al. 2021, arXiv:2006.09503) alternates after a warm-up; interleaved 1F1B gives each
stage several chunks of layers (Narayanan et al. 2021, arXiv:2104.04473, section 2.2); ZB-H1 puts
gradients of weights off into the bubbles (Qi et al. 2024, arXiv:2401.10241).
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache

import numpy as np

from accelsim.errors import InvalidValueError
from accelsim.frozen import frozen
from accelsim.workloads.graph import IntArray

#: Schedules that are simulated, by name.
SCHEDULES = ("gpipe", "1f1b", "interleaved", "zb-h1")


class StagePass(IntEnum):
    """What a step of a stage computes."""

    FORWARD = 0
    BACKWARD = 1
    WEIGHT = 2  # gradients of weights, where they are apart


@frozen(eq=False)
class PipelineOrder:
    """Steps of all stages; row s holds those of stage s in order.

    Attributes:
        kind: `StagePass` codes, shape (stages, steps).
        chunk: Chunk of the stage's layers, shape (stages, steps).
        microbatch: Microbatch, shape (stages, steps).
        chunk_count: Chunks of each stage.
        microbatch_count: Microbatches.
    """

    kind: IntArray
    chunk: IntArray
    microbatch: IntArray
    chunk_count: int
    microbatch_count: int

    @property
    def stage_count(self) -> int:
        """Stages."""
        return len(self.kind)

    @property
    def has_weight_passes(self) -> bool:
        """Whether gradients of weights are passes of their own."""
        return bool((self.kind == StagePass.WEIGHT).any())

    def in_flight(self) -> IntArray:
        """Most chunks of activations that each stage holds at once, shape (stages,)."""
        last = StagePass.WEIGHT if self.has_weight_passes else StagePass.BACKWARD
        change = (self.kind == StagePass.FORWARD).astype(np.int64) - (self.kind == last)
        most: IntArray = np.cumsum(change, axis=1).max(axis=1)
        return most


@lru_cache(maxsize=64)
def pipeline_order(
    schedule: str, stage_count: int, microbatch_count: int, chunk_count: int = 1
) -> PipelineOrder:
    """The order of a schedule.

    Args:
        schedule: A name in `SCHEDULES`.
        stage_count: Stages, >= 1.
        microbatch_count: Microbatches, >= 1.
        chunk_count: Chunks of layers a stage; more than 1 for the interleaved schedule alone.

    Raises:
        InvalidValueError: If interleaving does not divide the microbatches.
    """
    if chunk_count > 1 and microbatch_count % stage_count:
        allowed = f"a multiple of the {stage_count} stages, as interleaving needs"
        raise InvalidValueError("microbatch_count", microbatch_count, allowed)
    stages = range(stage_count)
    if schedule == "gpipe":
        steps = [_gpipe(microbatch_count) for _ in stages]
    elif schedule == "zb-h1":
        steps = [_zero_bubble(s, stage_count, microbatch_count) for s in stages]
    else:
        steps = [_alternating(s, stage_count, microbatch_count, chunk_count) for s in stages]
    kind, chunk, microbatch = np.stack(steps).transpose(1, 0, 2)
    return PipelineOrder(kind, chunk, microbatch, chunk_count, microbatch_count)


def _steps(kind: StagePass, microbatches: IntArray, chunks: IntArray | int = 0) -> IntArray:
    columns = np.broadcast_arrays(int(kind), chunks, microbatches)
    return np.stack(columns).astype(np.int64)


def _gpipe(microbatch_count: int) -> IntArray:
    every = np.arange(microbatch_count)
    passes = [_steps(StagePass.FORWARD, every), _steps(StagePass.BACKWARD, every)]
    return np.concatenate(passes, axis=1)


def _alternating(stage: int, stages: int, microbatches: int, chunks: int) -> IntArray:
    """1F1B, and with chunks Megatron-LM's interleaved form of it.

    Narayanan et al. 2021, arXiv:2006.09503 (1F1B) and arXiv:2104.04473, section 2.2 (interleaved);
    the warm-up is that of Megatron-LM, core/pipeline_parallel/schedules.py.
    """
    total = microbatches * chunks
    warm_up = (
        stages - stage - 1 if chunks == 1 else 2 * (stages - stage - 1) + (chunks - 1) * stages
    )
    warm_up = min(total, warm_up)
    position = np.arange(total)
    within = position % (stages * chunks)
    microbatch = position // (stages * chunks) * stages + within % stages
    chunk = within // stages
    if chunks == 1:
        microbatch, chunk = position, np.zeros_like(position)
    forward = _steps(StagePass.FORWARD, microbatch, chunk)
    backward = _steps(StagePass.BACKWARD, microbatch, chunks - 1 - chunk)
    steady = total - warm_up
    pairs = np.stack([forward[:, warm_up:], backward[:, :steady]], axis=2).reshape(3, -1)
    return np.concatenate([forward[:, :warm_up], pairs, backward[:, steady:]], axis=1)


def _zero_bubble(stage: int, stages: int, microbatches: int) -> IntArray:
    """ZB-H1: stage s puts s gradients of weights off until it would wait.

    Qi et al. 2024, arXiv:2401.10241.
    """
    warm_up = min(microbatches, stages - stage - 1)
    steps = [(StagePass.FORWARD, i) for i in range(warm_up)]
    weights = 0
    for i in range(microbatches):
        if warm_up + i < microbatches:
            steps.append((StagePass.FORWARD, warm_up + i))
        steps.append((StagePass.BACKWARD, i))
        if i - weights >= stage:
            steps.append((StagePass.WEIGHT, weights))
            weights += 1
    steps += [(StagePass.WEIGHT, i) for i in range(weights, microbatches)]
    kind, microbatch = np.array(steps, dtype=np.int64).T
    return np.stack([kind, np.zeros_like(kind), microbatch])
