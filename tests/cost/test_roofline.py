"""The plain roofline: Williams et al., CACM 2009."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from operator_cases import add, gemm, inference_zoo

from accelsim import catalog
from accelsim.cost.roofline import (
    Roofline,
    arithmetic_intensity,
    cost_roofline,
    rate_table,
    ridge_point,
)
from accelsim.errors import InvalidValueError, UnsupportedOperatorError
from accelsim.workloads.dtype import Dtype


def test_ridge_point_of_tpu_v1_is_the_papers_1350_macs_per_byte():
    # Jouppi et al., ISCA 2017, section 4: ridge at about 1350 MACs per weight byte, 92 TOPS over 34
    # GB/s.
    tpu = catalog.device("tpu-v1")
    ridge = ridge_point(tpu.peak_flop_per_s[Dtype.INT8], tpu.memory_bandwidth_bytes_per_s)
    assert ridge / 2 == pytest.approx(1350, rel=0.01)


def test_arithmetic_intensity_of_a_square_gemm():
    # 2 n^3 FLOP over 3 n^2 elements of 4 bytes is n / 6.
    graph = gemm(600, 600, 600)
    assert arithmetic_intensity(graph.flop, graph.bytes)[0] == pytest.approx(100.0)


def test_arithmetic_intensity_without_bytes_or_work():
    assert arithmetic_intensity([0.0, 1.0, 0.0], [1.0, 0.0, 0.0]).tolist() == [0.0, np.inf, 0.0]


@pytest.mark.parametrize(("peak", "bandwidth"), [(0.0, 1.0), (1.0, 0.0), (float("nan"), 1.0)])
def test_ridge_point_refuses_rates_that_are_not_positive(peak, bandwidth):
    with pytest.raises(InvalidValueError, match="above 0"):
        ridge_point(peak, bandwidth)


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
    assert cost_roofline(graph, device).total_time_s == pytest.approx(expected)


def test_bound_changes_at_the_ridge():
    device = catalog.device("xeon-e5-2630-v3")
    assert cost_roofline(gemm(2048, 2048, 2048), device).bound[0] == 0
    assert cost_roofline(add(10_000), device).bound[0] == 1


def test_whole_zoo_has_a_roofline_and_energy():
    table = cost_roofline(inference_zoo(), catalog.device("epyc-7763"))
    assert (table.time_s > 0).all()
    assert (table.energy_j > 0).all()


def test_unknown_format_is_named():
    line = Roofline("box", rate_table({Dtype.FP32: 1.0}), 1.0)
    with pytest.raises(UnsupportedOperatorError, match="fp64"):
        line.time_s(np.ones(1), np.ones(1), np.array([Dtype.FP64], dtype=np.int8))
