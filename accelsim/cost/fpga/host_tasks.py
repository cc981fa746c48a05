"""What the host of an overlay does with a network's outputs: pixels classified, boxes chosen,
pictures copied.

Work on outputs that stay in the host's cache runs on several processors at once; beyond it, memory
holds the threads up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from enum import IntEnum

import numpy as np

from accelsim.cost.fpga.network_layers import DEPTHWISE, POOL, LayerColumns
from accelsim.frozen import frozen
from accelsim.workloads.graph import BoolArray, FloatArray, IntArray

#: Processors of a Zynq UltraScale+ (AMD UG1085).
HOST_CORES = 4.0
#: Their shared second-level cache (AMD UG1085).
_CACHE_BYTES = 2.0**20
#: Bytes written for each pixel's class: a result cleared, filled and copied (Vitis AI library,
#: `segmentation_post_process_8UC1`).
_CLASS_BYTES = 3.0
#: Largest window of average pooling on the overlay (AMD PG338: 8 x 8); wider ones run on the host.
_LARGEST_POOL = 64


class HostTask(IntEnum):
    """What the host does with a network's outputs."""

    NONE = 0
    PIXELS = 1
    SOFTMAX_BOXES = 2
    SIGMOID_BOXES = 3
    IMAGE = 4
    YOLO = 5
    WIDE_POOL = 6
    KEYPOINTS = 7


@frozen(eq=False)
class HostWork:
    """Host work of k network runs, columns of shape (k,).

    Attributes:
        task: `HostTask`.
        amount: What the task is proportional to: bytes of scores and classes, or of outputs.
        input_pixels: Pixels of the image.
        is_cached: Whether outputs stay in the host's cache.
    """

    task: IntArray
    amount: FloatArray
    input_pixels: FloatArray
    is_cached: BoolArray


def host_work(layers: LayerColumns, task: HostTask) -> HostWork:
    """Host work of one network.

    Args:
        layers: The network.
        task: What its outputs are; a classifier whose last pooling is too wide for the overlay
            leaves that to the host.
    """
    if task is HostTask.NONE and _wide_pool_bytes(layers) > 0:
        task = HostTask.WIDE_POOL
    outputs = float(layers.output_bytes.sum())
    is_picture = task in {HostTask.PIXELS, HostTask.IMAGE}
    cached_bytes = max(outputs, layers.input_pixels) if is_picture else outputs
    return HostWork(
        task=np.array([int(task)]),
        amount=np.array([_amount(layers, task)]),
        input_pixels=np.array([layers.input_pixels]),
        is_cached=np.array([cached_bytes <= _CACHE_BYTES]),
    )


def join_work(work: Sequence[HostWork]) -> HostWork:
    """The work of several runs, end to end."""
    names = (f.name for f in fields(HostWork))
    return HostWork(*(np.concatenate([getattr(run, name) for run in work]) for name in names))


def _amount(layers: LayerColumns, task: HostTask) -> float:
    if task is HostTask.WIDE_POOL:
        return _wide_pool_bytes(layers)
    if task is not HostTask.PIXELS:
        return float(layers.output_bytes.sum())
    last = int(
        np.flatnonzero(layers.kind <= DEPTHWISE)[-1]
    )  # classes of the last convolution, at full size
    return layers.input_pixels * (float(layers.channels_out[last]) + _CLASS_BYTES)


def _wide_pool_bytes(layers: LayerColumns) -> float:
    """Bytes of a last pooling over a window too wide for the overlay; 0 without."""
    pools = np.flatnonzero(layers.kind == POOL)
    if not pools.size or layers.window[pools[-1]] <= _LARGEST_POOL or layers.rows[pools[-1]] != 1:
        return 0.0
    return float(layers.map_bytes[pools[-1]])
