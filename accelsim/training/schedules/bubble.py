"""Bubbles of pipeline schedules in closed form: the time a stage waits in one iteration.

p stages, m microbatches, v chunks of layers a stage. A microbatch takes `forward_s` and
`backward_s` on a whole stage, of which `weight_s` are gradients of weights alone; sends take no
time and stages are alike.
"""

from __future__ import annotations

from numpy.typing import ArrayLike


def one_forward_one_backward_bubble_s(
    stage_count: ArrayLike, forward_s: ArrayLike, backward_s: ArrayLike
) -> ArrayLike:
    """Bubble of GPipe and of 1F1B: (p - 1)(F + B).

    Huang et al. 2019, arXiv:1811.06965; Narayanan et al. 2021, arXiv:2104.04473, section 2.2.
    """
    return (stage_count - 1) * (forward_s + backward_s)  # type: ignore[operator]


def interleaved_bubble_s(
    stage_count: ArrayLike, chunk_count: ArrayLike, forward_s: ArrayLike, backward_s: ArrayLike
) -> ArrayLike:
    """Bubble of interleaved 1F1B: (p - 1)(F + B) / v, where p divides m.

    Narayanan et al. 2021, arXiv:2104.04473, section 2.2.2.
    """
    whole = one_forward_one_backward_bubble_s(stage_count, forward_s, backward_s)
    return whole / chunk_count  # type: ignore[operator]


def zero_bubble_h1_bubble_s(
    stage_count: ArrayLike, forward_s: ArrayLike, backward_s: ArrayLike, weight_s: ArrayLike
) -> ArrayLike:
    """Bubble of ZB-H1 (ZB1P): (p - 1)(F + B - 2 W), B with its weight part, at least 2 p
    microbatches.

    Qi et al. 2024, arXiv:2401.10241, section 2.
    """
    return (stage_count - 1) * (forward_s + backward_s - 2 * weight_s)  # type: ignore[operator]


def zero_bubble_v_bubble_s(
    stage_count: ArrayLike, forward_s: ArrayLike, backward_s: ArrayLike, weight_s: ArrayLike
) -> ArrayLike:
    """Bubble of ZB-V: none where forward, input and weight gradients take the same time.

    Qi et al. 2024, arXiv:2405.15362, section 3. Where they differ, an estimate: the longest of the
    three over their mean, for each of p - 1 steps of half a stage (two chunks a stage).
    """
    import numpy as np

    input_s = np.subtract(backward_s, weight_s)
    parts = np.stack(np.broadcast_arrays(forward_s, input_s, weight_s))
    excess: ArrayLike = (
        np.subtract(stage_count, 1) / 2 * 3 * (parts.max(axis=0) - parts.mean(axis=0))
    )
    return excess


def dualpipe_bubble_s(
    stage_count: ArrayLike, overlapped_s: ArrayLike, backward_s: ArrayLike, weight_s: ArrayLike
) -> ArrayLike:
    """Bubble of DualPipe: (p / 2 - 1)(F&B + B - 3 W); each rank holds two copies of its layers.

    DeepSeek-V3 technical report, arXiv:2412.19437, table 2, and the repository's README.

    Args:
        stage_count: Stages, even.
        overlapped_s: A forward and a backward chunk that overlap.
        backward_s: A whole backward chunk.
        weight_s: Its part for the weights.
    """
    return (stage_count / 2 - 1) * (overlapped_s + backward_s - 3 * weight_s)  # type: ignore[operator]
