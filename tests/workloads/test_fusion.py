"""Elementwise fusion of compiled graphs."""

from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim.catalog.workloads import workload
from accelsim.dtype import precision
from accelsim.workloads.builder import GraphBuilder
from accelsim.workloads.fusion import Fuses, _groups, fuse_elementwise
from accelsim.workloads.graph import OperatorGraph, concatenate
from accelsim.workloads.operator import CONTRACTION_KINDS, OperatorKind
from accelsim.workloads.training import OPTIMIZERS, training_graph


def residual_net(blocks, channels=8):
    b = GraphBuilder(precision("fp32"))
    x = b.activation(b.batch_norm(b.conv(b.input(2, 3, 16, 16), channels, 3)))
    for _ in range(blocks):
        y = b.batch_norm(b.conv(x, channels, 3))
        x = b.activation(b.add(y, x))
    b.linear(b.view(b.global_pool(x), 2, channels), 10)
    return b


def test_conv_takes_its_norm_sum_and_activation():
    graph = fuse_elementwise(residual_net(1).build())
    assert [OperatorKind(code).label for code in graph.kind] == ["conv", "conv", "pooling", "gemm"]


def test_what_is_fused_behind_matrix_rows_is_counted_apart():
    plain = residual_net(1).build()
    graph = fuse_elementwise(plain)
    pixels = 2 * 8 * 16 * 16
    assert plain.epilogue_flop is None
    assert graph.epilogue_flop.tolist() == [
        pixels,
        2 * pixels,
        0,
        0,
    ]  # activation; sum and activation; folded norms none
    assert graph.flop[0] == plain.flop[0]
    kept = OperatorGraph.from_dict(graph.to_dict())
    assert kept.epilogue_flop.tolist() == graph.epilogue_flop.tolist()
    assert graph.take(np.array([1])).epilogue_flop.tolist() == [2 * pixels]
    assert (
        concatenate([plain, graph]).epilogue_flop.tolist()
        == [0] * len(plain) + graph.epilogue_flop.tolist()
    )
    assert concatenate([plain, plain]).epilogue_flop is None


def test_fused_conv_moves_its_operands_once():
    b = GraphBuilder(precision("fp32"))
    b.activation(b.conv(b.input(1, 4, 8, 8), 4, 3))
    fused = fuse_elementwise(b.build())
    tensor = 4 * 8 * 8 * 4.0
    assert (fused.read_bytes[0], fused.write_bytes[0]) == (tensor, tensor)


def test_a_tensor_two_rows_read_is_still_written():
    b = GraphBuilder(precision("fp32"))
    x = b.linear(b.input(4, 8), 8)
    b.add(b.activation(x), b.linear(x, 8))
    assert len(fuse_elementwise(b.build())) == 3  # relu cannot join: x is read twice


def test_a_product_that_takes_activations_alone_leaves_sums_to_a_kernel_of_their_own():
    b = GraphBuilder(precision("fp32"))
    x = b.layer_norm(b.input(4, 8))
    b.add(b.activation(b.linear(x, 8)), x)
    apart, whole = (fuse_elementwise(b.build(), f) for f in ("activations", "epilogues"))
    assert [len(apart), len(whole)] == [3, 2]
    tensor = 4 * 8 * 4.0
    assert (apart.read_bytes[2], apart.write_bytes[2]) == (2 * tensor, tensor)
    assert len(fuse_elementwise(residual_net(1).build(), "activations")) == len(
        fuse_elementwise(residual_net(1).build())
    )  # a convolution takes both


def test_generated_kernels_take_the_norm_behind_a_sum_that_others_read_too():
    b = GraphBuilder(precision("fp32"))
    x = b.linear(b.input(4, 8), 8)
    summed = b.add(x, b.linear(x, 8))
    b.add(b.linear(b.layer_norm(summed), 8), summed)
    graph = fuse_elementwise(b.build(), "pointwise")
    kinds = [OperatorKind(code).label for code in graph.kind]
    assert kinds == ["gemm", "gemm", "elementwise", "gemm", "elementwise"]
    tensor = 4 * 8 * 4.0
    assert (graph.read_bytes[2], graph.write_bytes[2]) == (2 * tensor, 2 * tensor)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 4), st.booleans())
def test_fusion_keeps_matrix_flop_and_never_adds_bytes(blocks, training):
    b = residual_net(blocks)
    graph = b.build()
    if training:
        graph = training_graph(
            graph,
            b.parameter_totals.parameters,
            b.parameter_totals.tensors,
            b.precision,
            OPTIMIZERS["sgd"],
        )
    for fuses in get_args(Fuses):
        fused = fuse_elementwise(graph, fuses)
        assert fused.model_flop == graph.model_flop
        assert fused.total_bytes <= graph.total_bytes
    assert len(fused) <= len(graph)
    assert np.all(fused.read_bytes >= 0)
    for row in range(len(fused)):
        assert all(earlier < row for earlier in fused.dependencies_of(row))


def test_training_keeps_batch_norms():
    b = residual_net(1)
    step = training_graph(
        b.build(),
        b.parameter_totals.parameters,
        b.parameter_totals.tensors,
        b.precision,
        OPTIMIZERS["sgd"],
    )
    assert (fuse_elementwise(step).kind == int(OperatorKind.BATCH_NORM)).sum() == 4


def edges(graph):
    """Names of rows that wait, and of what they wait for."""
    reader = np.repeat(np.arange(len(graph)), np.diff(graph.dependency_offset))
    return {
        (graph.name[r], graph.name[d])
        for r, d in zip(reader.tolist(), graph.dependency.tolist(), strict=True)
    }


def test_a_gated_layer_waits_for_both_of_its_products():
    """The gate's product takes the activation and the product with `up`, which is launched after
    it.
    """
    b = GraphBuilder(precision("fp32"))
    x = b.layer_norm(b.input(4, 8))
    gate = b.linear(x, 16, name="gate")
    up = b.linear(x, 16, name="up")
    b.linear(b.multiply(b.activation(gate, "silu"), up), 8, name="down")
    fused = fuse_elementwise(b.build())
    assert fused.name == ("layer_norm", "up", "gate", "down")
    assert edges(fused) == {
        ("up", "layer_norm"),
        ("gate", "layer_norm"),
        ("gate", "up"),
        ("down", "gate"),
    }


@pytest.mark.parametrize(
    "name",
    [
        "llama-3.2-1b",
        "mobilenet-v3-large",
        "densenet-121",
        "dlrm-mlperf",
        "gpt2",
        "yolo-v3",
        "unet",
        "t5-small",
    ],
)
def test_no_operator_forgets_what_it_waits_for(name):
    model = workload(name)
    graph = model.lower(model.default, precision("fp16")).graph
    fused = fuse_elementwise(graph)
    group = _groups(graph, "epilogues")
    reader = group[np.repeat(np.arange(len(graph)), np.diff(graph.dependency_offset))]
    source = group[graph.dependency]
    apart = {(r, s) for r, s in zip(reader.tolist(), source.tolist(), strict=True) if r != s}
    assert len(fused) == len(np.unique(group))
    assert len(fused.dependency) == len(apart)
    waits = np.repeat(np.arange(len(fused)), np.diff(fused.dependency_offset))
    assert (fused.dependency < waits).all()
    assert fused.flop.sum() <= graph.flop.sum()
    again = fuse_elementwise(fused)
    assert again.model_flop == fused.model_flop == graph.model_flop


@pytest.mark.parametrize("name", ["mobilenet-v3-large", "llama-3.2-1b"])
def test_library_kernels_may_be_left_alone(name):
    """Their rows keep what they write; the others still fuse among themselves."""
    found = workload(name)
    plain = found.lower(found.default, precision("fp16")).graph
    apart, whole = (fuse_elementwise(plain, fuses) for fuses in ("pointwise", "epilogues"))
    assert len(whole) < len(apart) < len(plain)
    library = [int(kind) for kind in CONTRACTION_KINDS]
    before, after = (g.write_bytes[np.isin(g.kind, library)].tolist() for g in (plain, apart))
    assert after == before
    assert whole.total_bytes < apart.total_bytes < plain.total_bytes
