"""Weights that stay on the chip between inferences: what fits is never fetched, the excess always, training keeps none."""

from __future__ import annotations

import numpy as np
import pytest

import accelsim
from accelsim import catalog
from accelsim.cost.systolic import cost_systolic
from accelsim.hardware.sourced import Sourced
from accelsim.workload_catalog import workload
from accelsim.workloads.dtype import precision
from accelsim.workloads.operator import OperatorKind
from accelsim.workloads.training import backward_graph


def graph_of(name, dtype="int8"):
    model = workload(name)
    return model.lower(model.default.__class__(batch=1, image_size=224), precision(dtype)).graph


def with_cache(device, size_bytes):
    cache = None if size_bytes is None else Sourced(value=size_bytes, kind="estimate", source="a cache of the test")
    return catalog.device(device).model_copy(update={"weight_cache_bytes": cache})


def test_weights_that_fit_are_never_fetched():
    graph, chip = graph_of("mobilenet-v1"), catalog.device("edge-tpu")
    assert graph.weight_bytes.sum() < chip.weight_cache_bytes.value
    products = graph.kind == int(OperatorKind.GEMM)
    assert cost_systolic(graph, chip).bytes[products].sum() == 0
    without = cost_systolic(graph, with_cache("edge-tpu", None))
    assert without.bytes[products].sum() == graph.weight_bytes[products].sum()


def test_the_excess_is_fetched_in_every_inference():
    graph = graph_of("vgg-16")
    whole = graph.weight_bytes.sum()
    classifier = graph.kind == int(OperatorKind.GEMM)
    moved = [
        cost_systolic(graph, with_cache("edge-tpu", size)).bytes[classifier].sum() for size in (whole / 4, whole / 2)
    ]
    assert moved == pytest.approx(
        [0.75 * graph.weight_bytes[classifier].sum(), 0.5 * graph.weight_bytes[classifier].sum()]
    )


def test_a_larger_cache_never_slows():
    graph = graph_of("resnet-50")
    times = [cost_systolic(graph, with_cache("edge-tpu", size)).total_time_s for size in np.logspace(5, 9, 20)]
    assert np.all(np.diff(times) <= 1e-12)
    assert times[-1] < times[0] / 2


def test_updated_weights_are_not_kept():
    graph = backward_graph(graph_of("resnet-18", "bf16"))
    assert np.array_equal(
        cost_systolic(graph, with_cache("tpu-v4", 1e12)).time_s, cost_systolic(graph, with_cache("tpu-v4", None)).time_s
    )


# Coral, Edge TPU performance benchmarks (coral.ai/docs/edgetpu/benchmarks): Dev Board, ms per inference.
CORAL = {
    ("mobilenet-v1", 224): 2.4,
    ("mobilenet-v2", 224): 2.6,
    ("inception-v1", 224): 4.1,
    ("densenet-121", 224): 25.0,
    ("resnet-50", 299): 56.0,
    ("resnet-152", 299): 151.0,
    ("vgg-16", 224): 343.0,
    ("vgg-19", 224): 357.0,
}


def test_the_edge_tpu_is_near_its_published_times():
    runs = {key: accelsim.estimate(key[0], "edge-tpu", batch=1, image_size=key[1]) for key in CORAL}
    error = np.array([runs[key].latency_s * 1e3 / published - 1 for key, published in CORAL.items()])
    assert np.mean(np.abs(error)) < 0.40
    inside = [runs[key].latency_low_s <= t * 1e-3 <= runs[key].latency_high_s for key, t in CORAL.items()]
    assert sum(inside) >= 6
    streamed = [runs[key].bound == "memory" for key in CORAL]
    assert streamed == [False] * 4 + [True] * 4  # those beyond 8 MiB of weights
