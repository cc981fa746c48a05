"""The products inside operators: their FLOP against counts over loops, masks against masks drawn
out.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from operator_cases import row

from accelsim.cost.contraction import attention_products, contraction, recurrence, visible_pairs
from accelsim.cost.table import Rows
from accelsim.dtype import precision
from accelsim.workloads.builder import GraphBuilder
from accelsim.workloads.operator import OperatorKind as K


def rows_of(graph) -> Rows:
    assert len(graph) == 1
    return Rows(graph, np.zeros(1, dtype=np.int64), K(int(graph.kind[0])))


def case(kind, dims, **columns) -> Rows:
    return rows_of(row(kind, dims, **columns))


def sizes(shape) -> tuple[float, ...]:
    return tuple(float(column[0]) for column in (shape.groups, shape.m, shape.n, shape.k))


CONVOLUTION = (
    2,
    6,
    10,
    2,
    1,
    9,
    7,
    1,
    5,
    4,
    1,
    3,
    2,
    2,
    1,
)  # 2 images, 6 to 10 channels in 2 groups, 9 x 7 to 5 x 4
MULTIPLY_ADDS = 2 * 10 * 20 * (6 // 2) * 6  # images x filters x pixels x channels of a group x taps


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (K.CONV, (2, 2 * 20, 5, 3 * 6)),
        (K.CONV_BACKWARD_DATA, (2, 2 * 20, 3 * 6, 5)),
        (K.CONV_BACKWARD_WEIGHT, (2, 5, 3 * 6, 2 * 20)),
    ],
)
def test_convolution_and_gradients_multiply_alike(kind, expected):
    shape = contraction(case(kind, CONVOLUTION))
    assert sizes(shape) == expected
    assert shape.flop[0] == 2 * MULTIPLY_ADDS


def test_a_transposed_convolution_works_at_its_input():
    shape = contraction(case(K.CONV_TRANSPOSE, CONVOLUTION))
    assert sizes(shape) == (2, 2 * 9 * 7, 5 * 6, 3)
    assert shape.flop[0] == 2 * 2 * 63 * 10 * 3 * 6


def test_volumes_count_their_depth():
    dims = (1, 4, 8, 1, 3, 5, 5, 2, 5, 5, 3, 3, 3, 1, 1)
    assert sizes(contraction(case(K.CONV, dims))) == (1, 2 * 25, 8, 4 * 27)
    assert sizes(contraction(case(K.CONV_TRANSPOSE, dims))) == (1, 3 * 25, 8 * 27, 4)


@pytest.mark.parametrize(
    ("kind", "dims", "expected"),
    [
        (K.GEMM, (1, 3, 5, 7), (1, 3, 5, 7)),
        (K.BATCHED_GEMM, (4, 3, 5, 7), (4, 3, 5, 7)),
        (K.GROUPED_GEMM, (4, 12, 5, 7), (4, 3, 5, 7)),  # twelve rows over four experts
        (K.GROUPED_GEMM, (4, 6, 5, 7), (4, 1.5, 5, 7)),
    ],
)
def test_products_are_what_they_say(kind, dims, expected):
    assert sizes(contraction(case(kind, dims))) == expected


def drawn(q_len, kv_len, causal, window):
    """The mask, entry by entry."""
    query, key = np.arange(q_len)[:, None] + kv_len - q_len, np.arange(kv_len)[None, :]
    seen = np.ones((q_len, kv_len), dtype=bool)
    if causal:
        seen &= key <= query
    if window and causal:
        seen &= key > query - window
    return seen.sum() if causal or not window else q_len * min(window, kv_len)


@settings(max_examples=150, deadline=None)
@given(
    q_len=st.integers(1, 40),
    past=st.integers(0, 40),
    causal=st.integers(0, 1),
    window=st.integers(0, 90),
)
def test_visible_pairs_are_those_of_the_mask(q_len, past, causal, window):
    columns = [np.array([float(value)]) for value in (q_len, q_len + past, causal, window)]
    expected = drawn(q_len, q_len + past, causal, window)
    assert visible_pairs(*columns)[0] == expected


@settings(max_examples=60, deadline=None)
@given(
    heads=st.sampled_from([(8, 8), (8, 2), (4, 1)]),
    q_len=st.integers(1, 30),
    past=st.integers(0, 30),
    causal=st.booleans(),
    window=st.integers(0, 50),
)
def test_attention_executes_four_flop_per_visible_pair_and_width(
    heads, q_len, past, causal, window
):
    query_heads, kv_heads = heads
    b = GraphBuilder(precision("fp16"))
    q, k, v = (
        b.input(3, query_heads, q_len, 16),
        b.input(3, kv_heads, q_len, 16),
        b.input(3, kv_heads, q_len, 16),
    )
    b.attention(q, k, v, causal=causal, window=window, context_len=past)
    parts = attention_products(rows_of(b.build()))
    pairs = 3 * query_heads * drawn(q_len, q_len + past, causal, window)
    assert parts.pairs[0] == pytest.approx(pairs)
    assert parts.scores.flop[0] == pytest.approx(2 * pairs * 16)
    assert parts.context.flop[0] == pytest.approx(2 * pairs * 16)
    assert parts.flop[0] == pytest.approx(4 * pairs * 16)
    assert parts.scores.groups[0] == 3 * kv_heads
    assert (
        parts.scores.m[0] == q_len * query_heads / kv_heads
    )  # the heads that share keys multiply together


def test_backward_attention_keeps_its_five_products():
    dims = (2, 4, 4, 10, 10, 16, 16, 1, 0, 0)
    full = 5 * 2 * 2 * 4 * 100 * 16
    parts = attention_products(case(K.ATTENTION_BACKWARD, dims, flop=float(full)))
    assert parts.flop[0] == pytest.approx(full * 55 / 100)  # 10 x 11 / 2 of 100 pairs


def test_latent_attention_shares_one_key_over_all_heads():
    dims = (2, 16, 16, 1, 100, 576, 512, 0, 0, 1)
    parts = attention_products(case(K.ATTENTION, dims, flop=2.0 * 2 * 16 * 100 * (576 + 512)))
    assert sizes(parts.scores) == (2, 16, 100, 576)
    assert sizes(parts.context) == (2, 16, 512, 100)
    assert parts.flop[0] == parts.scores.flop[0] + parts.context.flop[0]


@pytest.mark.parametrize(("kind", "gates"), [(K.RNN, 1), (K.GRU, 3), (K.LSTM, 4)])
@pytest.mark.parametrize("directions", [1, 2])
def test_recurrent_layers_are_one_product_and_dependent_steps(kind, gates, directions):
    flop = 2.0 * directions * 5 * 7 * gates * 12 * (11 + 12)
    parts = recurrence(case(kind, (5, 7, 11, 12, directions), flop=3 * flop))
    assert sizes(parts.inputs) == (directions, 35, gates * 12, 11)
    assert sizes(parts.step) == (1, 5, gates * 12, 12)
    assert parts.steps[0] == 7 * directions
    assert parts.passes[0] == pytest.approx(3)
    assert recurrence(case(kind, (0, 0, 0, 0, 1), flop=0.0)).passes[0] == 0
