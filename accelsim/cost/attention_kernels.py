"""Attention by the kernels that a trainer calls, at the rates that their authors measured.

``calibration/class/attention-kernels.yaml`` has, for each kernel and architecture, FLOP per second
of one board by length, forward and backward. A board of the architecture has the same share of its
own peak. Without such a figure the model of kernels stands.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from accelsim.cost.contraction import visible_pairs
from accelsim.dtype import DTYPE_BYTES
from accelsim.files.datafile import data_root, read_mapping
from accelsim.frozen import frozen
from accelsim.plain import Document
from accelsim.workloads.graph import BoolArray, FloatArray, OperatorGraph
from accelsim.workloads.operator import DIMENSIONS, OperatorKind

_KINDS = (int(OperatorKind.ATTENTION), int(OperatorKind.ATTENTION_BACKWARD))
#: Backward products over the forward pass's: five where that has two (Dao et al., 2022).
_BACKWARD_PRODUCTS = 2.5
#: Queries of a block, and heads of the figures (Dao, arXiv:2307.08691, section 3.3).
_QUERY_BLOCK, _HEAD, _NARROW = 128.0, 128.0, 64.0
_HALF_BYTES = 2.0


@frozen(eq=False)
class AttentionKernel:
    """A kernel on one board.

    Attributes:
        lengths: Queries of the figures, ascending.
        forward: FLOP/s of the forward pass at each, without a mask.
        backward: The same of the backward pass.
        causal: Rate under a causal mask over that.
        narrow: Rate of heads of 64 over heads of 128, forward and backward.
        sm_count: Multiprocessors, which blocks are spread over.
    """

    lengths: FloatArray
    forward: FloatArray
    backward: FloatArray
    causal: FloatArray
    narrow: tuple[float, float]
    sm_count: int


def attention_kernel(
    name: str, architecture: str, peak_flop_per_s: float, sm_count: int
) -> AttentionKernel | None:
    """A kernel on a board; None where no figure of its architecture is known.

    Args:
        name: In the file.
        architecture: As in profiles.
        peak_flop_per_s: The board's dense rate in 16 bits.
        sm_count: Its multiprocessors.
    """
    entry = _data()["kernels"].get(name, {}).get(architecture)
    if entry is None:
        return None
    share = 1e12 * peak_flop_per_s / _data()["peak_flop_per_s"][entry["board"]]
    forward, backward, causal = (
        np.array(entry[way], dtype=np.float64) for way in ("forward", "backward", "causal")
    )
    narrow = (float(entry["narrow_forward"]), float(entry["narrow_backward"]))
    lengths = np.array(_data()["lengths"], dtype=np.float64)
    return AttentionKernel(lengths, forward * share, backward * share, causal, narrow, sm_count)


def kernel_names() -> tuple[str, ...]:
    """Names of all kernels."""
    return tuple(_data()["kernels"])


@cache
def _data() -> Document:
    return read_mapping(data_root() / "calibration" / "class" / "attention-kernels.yaml")


def attention_s(graph: OperatorGraph, kernel: AttentionKernel) -> tuple[FloatArray, BoolArray]:
    """Time of attention rows in 16 bits, shape (n,), and which rows they are: those of at least the
    shortest length of the figures.

    Rates go with the logarithm of the length. The last wave of blocks is a whole one. Rates between
    lengths, windows and narrow heads: estimate, from figures of Dao, arXiv:2307.08691.

    Args:
        graph: n rows.
        kernel: What runs them.
    """
    names = ("batch", "heads", "q_len", "kv_len", "head_dim", "value_dim", "causal", "window")
    places = [DIMENSIONS[OperatorKind.ATTENTION].index(name) for name in names]
    batch, heads, q_len, kv_len, head, value, causal, window = (
        graph.dims[:, column].astype(np.float64) for column in places
    )
    is_replaced = np.isin(graph.kind, _KINDS) & (q_len >= kernel.lengths[0])
    is_replaced &= DTYPE_BYTES[graph.dtype] == _HALF_BYTES
    backward = graph.kind == _KINDS[1]
    pairs = visible_pairs(q_len, kv_len, causal, window)
    flop = 2.0 * batch * heads * pairs * (head + value) * np.where(backward, _BACKWARD_PRODUCTS, 1)
    log_length = np.log(
        np.clip(np.where(window > 0, np.minimum(window, kv_len), kv_len), 1.0, None)
    )
    at = np.log(kernel.lengths)
    rate = np.where(
        backward,
        np.interp(log_length, at, kernel.backward),
        np.interp(log_length, at, kernel.forward),
    )
    rate = rate * np.where(causal > 0, np.interp(log_length, at, kernel.causal), 1.0)
    share = np.clip((_HEAD - np.minimum(head, value)) / (_HEAD - _NARROW), 0.0, 1.0)
    narrow = np.where(backward, kernel.narrow[1], kernel.narrow[0])
    rate = rate * narrow**share
    blocks = np.maximum(batch * heads * np.ceil(q_len / _QUERY_BLOCK), 1.0)
    waves = np.ceil(blocks / kernel.sm_count) * kernel.sm_count / blocks
    return np.where(is_replaced, flop / rate * waves, 0.0), is_replaced
