"""The matrix products inside an operator: every contraction as grouped (m x k) times (k x n)
products.

Convolutions are implicit GEMMs (Chellapilla et al. 2006; Chetlur et al., cuDNN, arXiv 1410.0759):
the pixels are rows, the window the contraction, the filters the columns; the data gradient
multiplies by the window's columns, the weight gradient contracts over the pixels. Attention is two
products per key-value head, over the query-key pairs its mask leaves.
"""

from __future__ import annotations

import numpy as np

from accelsim.cost.table import Rows
from accelsim.frozen import frozen
from accelsim.workloads.graph import FloatArray
from accelsim.workloads.operator import CONV_KINDS, RECURRENT_GATES, OperatorKind

_K = OperatorKind


@frozen(eq=False)
class Contraction:
    """`groups` products of (m x k) by (k x n); each column has shape (r,)."""

    groups: FloatArray
    m: FloatArray
    n: FloatArray
    k: FloatArray

    @property
    def flop(self) -> FloatArray:
        """2 groups m n k, shape (r,).

        A multiply and an addition per product (Golub and Van Loan, Matrix Computations,
        2013).
        """
        return 2.0 * self.groups * self.m * self.n * self.k


def contraction(rows: Rows) -> Contraction:
    """Matrix products of GEMM and convolution rows.

    Convolutions as implicit GEMMs: Chetlur et al., cuDNN, arXiv:1410.0759 (2014), section 3.

    Args:
        rows: Rows of one GEMM or convolution kind.

    Returns:
        Their products; for GROUPED_GEMM the rows are spread evenly over the experts.
    """
    if rows.kind in CONV_KINDS:
        return _convolution(rows)
    groups, m, n, k = (
        rows[name]
        for name in ("groups" if rows.kind == _K.GROUPED_GEMM else "batch", "m", "n", "k")
    )
    if rows.kind == _K.GROUPED_GEMM:
        m = m / np.maximum(groups, 1.0)
    return Contraction(groups, m, n, k)


def window_volume(rows: Rows) -> FloatArray:
    """Taps of each convolution's window, shape (r,)."""
    return rows["kernel_d"] * rows["kernel_h"] * rows["kernel_w"]


def _convolution(rows: Rows) -> Contraction:
    """Convolution as a product (Chetlur et al., cuDNN, 2014)."""
    groups = np.maximum(rows["groups"], 1.0)
    volume = window_volume(rows)
    per_group_in, per_group_out = rows["channels_in"] / groups, rows["channels_out"] / groups
    out_pixels = rows["batch"] * rows["out_d"] * rows["out_h"] * rows["out_w"]
    if rows.kind == _K.CONV_TRANSPOSE:
        in_pixels = rows["batch"] * rows["in_d"] * rows["in_h"] * rows["in_w"]
        return Contraction(groups, in_pixels, per_group_out * volume, per_group_in)
    if rows.kind == _K.CONV_BACKWARD_DATA:
        return Contraction(groups, out_pixels, per_group_in * volume, per_group_out)
    if rows.kind == _K.CONV_BACKWARD_WEIGHT:
        return Contraction(groups, per_group_out, per_group_in * volume, out_pixels)
    return Contraction(groups, out_pixels, per_group_out, per_group_in * volume)


def visible_pairs(
    q_len: FloatArray, kv_len: FloatArray, causal: FloatArray, window: FloatArray
) -> FloatArray:
    """Query-key pairs of one head that the mask leaves.

    Query i of q sees min(kv - q + i + 1, window) keys when causal, min(kv, window) otherwise.

    A count of the mask's entries: causal (Vaswani et al., NeurIPS 2017, section 3.2.3) and sliding
    window (Beltagy et al., Longformer, arXiv:2004.05150, 2020, section 3).

    Args:
        q_len: Queries, shape (r,).
        kv_len: Keys, shape (r,).
        causal: 1 where causal, shape (r,).
        window: Keys a query sees at most; 0 sees all, shape (r,).

    Returns:
        Pairs, shape (r,); at most q_len x kv_len.
    """
    limit = np.where(window > 0, np.minimum(window, kv_len), kv_len)
    prefix = np.maximum(kv_len - q_len, 0.0)
    growing = np.minimum(np.maximum(limit - prefix, 0.0), q_len)
    triangle = growing * (prefix + (growing + 1) / 2 - limit) + q_len * limit
    return np.where(causal > 0, triangle, q_len * limit)


@frozen(eq=False)
class Attention:
    """The products of attention rows; columns of shape (r,).

    Attributes:
        scores: Q K^T, the query heads of one key-value head together.
        context: P V.
        pairs: Scores computed, over all batches and heads.
        flop: FLOP executed: the row's own count, less the pairs its mask skips.
    """

    scores: Contraction
    context: Contraction
    pairs: FloatArray
    flop: FloatArray


def attention_products(rows: Rows) -> Attention:
    """Scores and context products of attention rows, with masked pairs left out.

    The backward kind multiplies five times instead of two; its extra products show in `flop`.

    Two products per head, query heads sharing keys: Vaswani et al., NeurIPS 2017; Ainslie et al.,
    grouped-query attention, arXiv:2305.13245 (2023).
    """
    q_len, kv_len, heads = rows["q_len"], rows["kv_len"], rows["heads"]
    pairs = visible_pairs(q_len, kv_len, rows["causal"], rows["window"])
    keys_per_query = pairs / np.maximum(q_len, 1.0)
    kv_heads = np.where(rows["latent"] > 0, 1.0, np.maximum(rows["kv_heads"], 1.0))
    groups, m = rows["batch"] * kv_heads, q_len * heads / kv_heads
    limit = np.where(rows["window"] > 0, np.minimum(rows["window"], kv_len), kv_len)
    executed = rows.column("flop") * pairs / np.maximum(q_len * limit, 1.0)
    return Attention(
        Contraction(groups, m, keys_per_query, rows["head_dim"]),
        Contraction(groups, m, rows["value_dim"], keys_per_query),
        rows["batch"] * heads * pairs,
        executed,
    )


@frozen(eq=False)
class Recurrence:
    """A recurrent layer: one product over all steps' inputs, then `steps` dependent products;
    columns of shape (r,).

    Attributes:
        inputs: Input weights times all steps.
        step: Recurrent weights times one step's state.
        steps: Dependent steps (both directions run one after the other).
        passes: FLOP of the row over those of one forward pass (2 for a backward row).
    """

    inputs: Contraction
    step: Contraction
    steps: FloatArray
    passes: FloatArray


def recurrence(rows: Rows) -> Recurrence:
    """Matrix products of RNN, LSTM and GRU rows.

    Inputs of all steps in one product: Appleyard et al., arXiv:1604.01946 (2016); gates: Hochreiter
    and Schmidhuber (LSTM, 1997), Cho et al. (GRU, arXiv:1406.1078, 2014).
    """
    batch, steps, hidden = rows["batch"], rows["steps"], rows["hidden_size"]
    gates = RECURRENT_GATES[rows.kind] * hidden
    directions = np.maximum(rows["directions"], 1.0)
    inputs = Contraction(directions, batch * steps, gates, rows["input_size"])
    step = Contraction(np.ones_like(batch), batch, gates, hidden)
    total = inputs.flop + directions * steps * step.flop
    passes = np.where(total > 0, rows.column("flop") / np.maximum(total, 1.0), 0.0)
    return Recurrence(inputs, step, directions * steps, passes)
