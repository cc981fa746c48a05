"""Batches in parts, activations of training, cores that fetch weights themselves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import accelsim
from accelsim import catalog
from accelsim.catalog.workloads import workload
from accelsim.cost.contraction import contraction
from accelsim.cost.systolic import asic_machine, cost_systolic, systolic_parameters
from accelsim.cost.systolic.traffic import batch_parts, in_parts
from accelsim.cost.table import Rows
from accelsim.dtype import Dtype, precision
from accelsim.hardware.sourced import Sourced
from accelsim.workloads.builder import GraphBuilder
from accelsim.workloads.fusion import fuse_elementwise
from accelsim.workloads.operator import OperatorKind
from accelsim.workloads.training import OPTIMIZERS, training_graph

CHIP = catalog.device("tpu-v4")


def graph_of(name, batch, dtype="bf16", **sizes):
    model = workload(name)
    return model.lower(model.default.__class__(batch=batch, **sizes), precision(dtype)).graph


def machine_for(graph, device=CHIP):
    return asic_machine(device, systolic_parameters()).running(graph, device)


def convolutions(graph):
    return Rows(graph, np.flatnonzero(graph.kind == int(OperatorKind.CONV)), OperatorKind.CONV)


def test_parts_fit_the_scratchpad_and_cover_the_batch():
    graph = graph_of("resnet-50", 256, image_size=224)
    machine, rows = machine_for(graph), convolutions(graph)
    parts, shape = batch_parts(rows, machine), contraction(rows)
    activations = rows.column("read_bytes") + rows.column("write_bytes")
    assert parts.max() > 1
    assert np.all(activations / parts <= machine.resident_bytes)
    part = in_parts(rows, shape, parts)
    assert np.all(part.m * parts >= shape.m)
    assert np.all((part.m - 1) * parts < shape.m)


def test_each_core_holds_whole_samples():
    cores = Sourced(value=8, kind="estimate", source="cores of the test")
    chip = CHIP.model_copy(update={"core_count": cores})
    for batch, parts in ((4, 1), (8, 1), (32, 4), (33, 4)):
        assert machine_for(graph_of("resnet-18", batch, image_size=224), chip).part_limit == parts


def test_one_sample_is_not_cut():
    graph = graph_of("resnet-50", 1, image_size=4096)
    machine, rows = machine_for(graph), convolutions(graph)
    assert machine.part_limit == 1
    assert np.isinf(batch_parts(rows, machine)).any()


@pytest.mark.parametrize(
    "device", ["tpu-v1", "tpu-v4", "tpu-v5e", "cloud-ai-100-pro", "gaudi2", "inferentia2"]
)
@pytest.mark.parametrize("model", ["resnet-50", "bert-base", "mobilenet-v2"])
def test_inference_throughput_does_not_fall_when_the_batch_doubles(device, model):
    rates = [accelsim.estimate(model, device, batch=2**e).throughput_per_s for e in range(10)]
    assert np.all(np.diff(rates) >= -0.03 * np.array(rates[:-1]))


def test_a_larger_scratchpad_never_slows():
    graph = graph_of("resnet-50", 64, image_size=224)
    sizes = [
        Sourced(value=size, kind="estimate", source="a scratchpad of the test")
        for size in np.logspace(6.5, 9.5, 16)
    ]
    times = [
        cost_systolic(graph, CHIP.model_copy(update={"sram_bytes": size})).total_time_s
        for size in sizes
    ]
    assert np.all(np.diff(times) <= 0.02 * np.array(times[:-1]))  # a part less may round worse
    assert times[-1] < times[0]


def test_activations_of_training_go_to_main_memory():
    forward = graph_of("resnet-18", 1, image_size=224)
    step = training_graph(forward, 11_700_000, 62, precision("bf16"), OPTIMIZERS["sgd"])
    rows = convolutions(step)
    assert np.isinf(batch_parts(rows, machine_for(step))).all()
    assert (batch_parts(convolutions(forward), machine_for(forward)) == 1).all()
    assert (cost_systolic(step, CHIP).bytes >= step.read_bytes + step.write_bytes).all()


def test_resnet_50_trains_no_slower_than_published():
    """Ying et al., arXiv:1811.06992, 2018: 1,025 images/s on each of 1,024 TPU v3, 32 at a time."""
    run = accelsim.estimate("resnet-50", "tpu-v3", mode="training", batch=32)
    assert 1025 < run.throughput_per_s < 2 * 1025


def test_cores_fetch_weights_or_activations_again():
    builder = GraphBuilder(precision("bf16"))
    builder.linear(builder.input(4096, 1024), 1024, bias=False)
    many = builder.build()
    builder = GraphBuilder(precision("bf16"))
    builder.linear(builder.input(4, 1024), 1024, bias=False)
    few = builder.build()  # a sample for each core
    cores = catalog.device("inferentia1")
    whole = cores.model_copy(update={"core_count": None})
    weights, vectors = 1024 * 1024 * 2, 4 * 1024 * 2
    assert (
        cost_systolic(many, cores).bytes.sum() - cost_systolic(many, whole).bytes.sum()
        == 3 * weights
    )
    assert (
        cost_systolic(few, cores).bytes.sum() - cost_systolic(few, whole).bytes.sum() == 4 * vectors
    )


def test_inferentia_is_near_its_published_rates():
    # AWS Neuron documentation, Inf1 inference performance, data parallel on four cores: batch of
    # each core, sequences/s.
    published = {4: 1056, 6: 1182, 8: 1121}
    error = [
        accelsim.estimate("bert-base", "inferentia1", batch=4 * batch, seq_len=128).throughput_per_s
        / rate
        - 1
        for batch, rate in published.items()
    ]
    assert np.mean(np.abs(error)) < 0.30


def test_a_copy_takes_a_lane_per_element():
    builder = GraphBuilder(precision("int8"))
    builder.concat([builder.input(1, 64, 64, 64), builder.input(1, 64, 64, 64)])
    graph, chip = builder.build(), catalog.device("edge-tpu")
    machine, table = machine_for(graph, chip), cost_systolic(graph, chip)
    rate = machine.vector_flop_per_s[graph.dtype]
    assert table.compute_s == pytest.approx(graph.write_bytes / rate)
    assert np.all(table.flop == graph.flop)


def fused_gelu(dtype="bf16"):
    builder = GraphBuilder(precision(dtype))
    builder.activation(builder.linear(builder.input(512, 1024), 4096, bias=False), "gelu")
    return fuse_elementwise(builder.build())


def test_what_is_fused_behind_a_product_keeps_the_pace_of_the_slower_unit():
    graph = fused_gelu()
    assert graph.epilogue_flop.tolist() == [8 * 512 * 4096]
    bare = replace(graph, epilogue_flop=None)
    rate = CHIP.vector_flop_per_s[Dtype.FP32]
    slow = CHIP.model_copy(
        update={
            "vector_flop_per_s": {Dtype.FP32: rate.model_copy(update={"value": rate.value / 100})}
        }
    )
    assert cost_systolic(graph, CHIP).compute_s == pytest.approx(
        cost_systolic(bare, CHIP).compute_s
    )
    on_vector = (
        8 * 512 * 4096 / (rate.value / 100 * systolic_parameters().vector_efficiency_fraction)
    )
    assert cost_systolic(graph, slow).compute_s == pytest.approx([on_vector])
