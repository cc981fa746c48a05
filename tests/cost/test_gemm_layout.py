"""The first matrix-core libraries read operands at rates that depend on their layout; all other
rows read as a stream.
"""

from __future__ import annotations

import numpy as np
import pytest

from accelsim import catalog
from accelsim.cost.gpu import GpuParameters
from accelsim.cost.table import Execution
from accelsim.dtype import Dtype
from accelsim.scoreboard.columns import gemm_graph
from tools.scoreboard.gpu_operators import KernelPrediction

PARAMETERS = GpuParameters.class_wide().with_values(
    {"gemm.m_contiguous_ratio": 1.25, "gemm.k_contiguous_ratio": 0.5}
)


def skinny(dtype: Dtype, layout, device: str = "t4") -> KernelPrediction:
    """Four products that main memory bounds."""
    m = np.full(4, 8192.0)
    graph = gemm_graph(
        np.ones(4), m, np.full(4, 16.0), m, dtype, batched=np.zeros(4, dtype=np.bool_)
    )
    return KernelPrediction(graph, catalog.device(device), Execution.GRAPH, layout)


LAYOUT = np.array([True, False, True, False])


def test_memory_time_follows_the_layout():
    plain = skinny(Dtype.FP16, None).costs(PARAMETERS)
    known = skinny(Dtype.FP16, LAYOUT).costs(PARAMETERS)
    assert known.memory_s / plain.memory_s == pytest.approx(np.where(LAYOUT, 1 / 1.25, 2.0))
    assert (known.time_s[LAYOUT] < plain.time_s[LAYOUT]).all()
    assert (known.time_s[~LAYOUT] > plain.time_s[~LAYOUT]).all()
    assert known.energy_j == pytest.approx(
        plain.energy_j, rel=0.2
    )  # the same bytes and arithmetic, at another clock


def test_vector_lanes_and_rows_of_unknown_layout_read_as_a_stream():
    plain = skinny(Dtype.FP32, None).costs(PARAMETERS)
    assert skinny(Dtype.FP32, LAYOUT).costs(PARAMETERS).time_s.tolist() == plain.time_s.tolist()
    even = PARAMETERS.with_values({"gemm.m_contiguous_ratio": 1.0, "gemm.k_contiguous_ratio": 1.0})
    unknown = skinny(Dtype.FP16, None)
    assert unknown.costs(even).time_s.tolist() == unknown.costs(PARAMETERS).time_s.tolist()


def test_some_rows_keep_their_layout():
    part = skinny(Dtype.FP16, LAYOUT).take(np.array([1, 2]))
    assert part.is_m_contiguous.tolist() == [False, True]
    whole = skinny(Dtype.FP16, LAYOUT).costs(PARAMETERS).time_s
    assert part.costs(PARAMETERS).time_s.tolist() == whole[[1, 2]].tolist()
