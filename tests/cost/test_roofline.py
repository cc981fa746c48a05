"""The plain roofline: Williams et al., CACM 2009."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from operator_cases import gemm

from accelsim import catalog
from accelsim.cost.roofline import Roofline, rate_table
from accelsim.dtype import Dtype
from accelsim.errors import UnsupportedOperatorError


def test_substitutes_are_wider_and_never_invent_fp64():
    table = rate_table({Dtype.FP32: 2.0})
    assert table[Dtype.BF16] == 2.0
    assert table[Dtype.INT8] == 2.0
    assert np.isnan(table[Dtype.FP64])
    assert np.isnan(rate_table({Dtype.FP32: 2.0}, substitute=False)[Dtype.BF16])


@settings(max_examples=40, deadline=None)
@given(m=st.integers(1, 4096), n=st.integers(1, 4096), k=st.integers(1, 4096))
def test_time_is_the_larger_of_both_bounds(m, n, k):
    device = catalog.device("xeon-e5-2630-v3")
    graph = gemm(m, n, k)
    expected = max(2 * m * n * k / 0.6144e12, 4 * (m * n + m * k + n * k) / 59.7e9)
    time_s = Roofline.of(device).time_s(graph.flop, graph.bytes, graph.dtype)
    assert time_s == pytest.approx([expected])


def test_unknown_format_is_named():
    line = Roofline("box", rate_table({Dtype.FP32: 1.0}), 1.0)
    with pytest.raises(UnsupportedOperatorError, match="fp64"):
        line.time_s(np.ones(1), np.ones(1), np.array([Dtype.FP64], dtype=np.int8))
