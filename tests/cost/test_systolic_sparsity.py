"""Structured sparse weights: the chip's sparse rate for products with weights, dense everything
else, refusals.
"""

from __future__ import annotations

import numpy as np
import pytest

import accelsim
from accelsim import catalog
from accelsim.catalog.workloads import workload
from accelsim.cost.systolic import cost_systolic, sparse_parameters
from accelsim.dtype import precision
from accelsim.errors import InvalidValueError, UnsupportedOperatorError
from accelsim.workloads.operator import OperatorKind

CHIP = catalog.device("trainium2").model_copy(
    update={"core_count": None}
)  # each weight is fetched once
RATIO = 667 / 2563  # AWS Neuron documentation: dense and sparse bf16 TFLOPS


@pytest.fixture(scope="module")
def tables():
    model = workload("bert-base")
    graph = model.lower(model.default.__class__(batch=16, seq_len=128), precision("bf16")).graph
    return (
        graph,
        cost_systolic(graph, CHIP),
        cost_systolic(graph, CHIP, parameters=sparse_parameters()),
    )


def test_products_with_weights_take_the_sparse_rate_and_others_stay(tables):
    graph, dense, sparse = tables
    gemm = (graph.kind == int(OperatorKind.GEMM)) & (graph.weight_bytes > 0)
    assert gemm.any()
    assert sparse.compute_s[gemm] == pytest.approx(dense.compute_s[gemm] * RATIO)
    assert sparse.flop[gemm] == pytest.approx(dense.flop[gemm] * RATIO)
    assert np.array_equal(sparse.time_s[~gemm], dense.time_s[~gemm])
    assert np.array_equal(sparse.energy_j[~gemm], dense.energy_j[~gemm])


def test_weights_are_stored_with_their_places(tables):
    graph, dense, sparse = tables
    alone = (
        (graph.kind == int(OperatorKind.GEMM))
        & (dense.bytes == graph.weight_bytes)
        & (graph.weight_bytes > 0)
    )
    assert alone.any()
    assert sparse.bytes[alone] == pytest.approx(dense.bytes[alone] * RATIO * (1 + 2 / 16))


def test_skipped_weights_draw_nothing(tables):
    _, dense, sparse = tables
    assert 0.2 < sparse.energy_j.sum() / dense.energy_j.sum() < 0.7


def test_a_run_is_quicker_and_says_so():
    runs = [
        accelsim.estimate("bert-base", "trainium2", batch=64, sparse_weights=sparse)
        for sparse in (False, True)
    ]
    assert runs[1].latency_s < runs[0].latency_s
    assert runs[1].energy_j < runs[0].energy_j
    assert [run.sparse_weights for run in runs] == [False, True]
    assert runs[1].flop == runs[0].flop


@pytest.mark.parametrize(
    ("device", "settings", "reason"),
    [
        ("tpu-v4", {}, "no rate for sparse weights"),
        ("trainium2", {"precision": "fp8"}, "for bf16"),
        ("a100-sxm-80gb", {}, "matrix ASICs alone"),
    ],
)
def test_chips_without_the_rate_refuse(device, settings, reason):
    with pytest.raises(UnsupportedOperatorError, match=reason):
        accelsim.estimate("bert-base", device, sparse_weights=True, **settings)
    (row,) = accelsim.compare("bert-base", device, sparse_weights=True, **settings).rows
    assert reason in row.reason


def test_training_has_dense_weights():
    with pytest.raises(InvalidValueError, match="sparse_weights"):
        accelsim.estimate("bert-base", "trainium2", mode="training", sparse_weights=True)
