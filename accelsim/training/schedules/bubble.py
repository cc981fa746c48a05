"""Bubbles of schedules that are not simulated: the time a stage waits in one iteration.

p stages. A microbatch takes `forward_s` and `backward_s` on a whole stage, of which `weight_s` are
gradients of weights alone; sends take no time and stages are alike.
"""

from __future__ import annotations

import numpy as np

from accelsim.workloads.graph import FloatArray


def zero_bubble_v_bubble_s(
    stage_count: int, forward_s: FloatArray, backward_s: FloatArray, weight_s: FloatArray
) -> FloatArray:
    """Bubble of ZB-V: none where forward, input and weight gradients take the same time.

    Qi et al. 2024, arXiv:2405.15362, section 3. Where they differ, an estimate: the longest of the
    three over their mean, for each of p - 1 steps of half a stage (two chunks a stage).
    """
    parts = np.stack([forward_s, backward_s - weight_s, weight_s])
    excess: FloatArray = (stage_count - 1) / 2 * 3 * (parts.max(axis=0) - parts.mean(axis=0))
    return excess


def dualpipe_bubble_s(
    stage_count: float, overlapped_s: FloatArray, backward_s: FloatArray, weight_s: FloatArray
) -> FloatArray:
    """Bubble of DualPipe: (p / 2 - 1)(F&B + B - 3 W); each rank holds two copies of its layers.

    DeepSeek-V3 technical report, arXiv:2412.19437, table 2, and the repository's README.

    Args:
        stage_count: Stages, even.
        overlapped_s: A forward and a backward chunk that overlap.
        backward_s: A whole backward chunk.
        weight_s: Its part for the weights.
    """
    return (stage_count / 2 - 1) * (overlapped_s + backward_s - 3 * weight_s)
