"""Laws of every layer that a builder writes: linear in the batch, bytes by the width of the format,
gradients of matrix layers twice the forward's work.
"""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim.dtype import PRECISIONS
from accelsim.workloads.backward import backward_graph
from accelsim.workloads.builder import GraphBuilder
from accelsim.workloads.graph import concatenate
from accelsim.workloads.operator import OperatorKind, Phase
from accelsim.workloads.training import OPTIMIZERS, optimizer_graph, training_graph

FP32 = PRECISIONS["fp32"]
FP16 = PRECISIONS["fp16"]


def image(b, batch):
    return b.input(batch, 16, 12, 12)


def tokens(b, batch):
    return b.input(batch, 10, 32)


LAYERS = {
    "linear": lambda b, n: b.linear(tokens(b, n), 24),
    "conv": lambda b, n: b.conv(image(b, n), 8, 3, bias=True),
    "grouped conv": lambda b, n: b.conv(image(b, n), 16, 3, groups=4),
    "transposed conv": lambda b, n: b.conv(image(b, n), 8, 2, stride=2, padding=0, transposed=True),
    "layer norm": lambda b, n: b.layer_norm(tokens(b, n)),
    "RMS norm": lambda b, n: b.rms_norm(tokens(b, n)),
    "batch norm": lambda b, n: b.batch_norm(image(b, n)),
    "group norm": lambda b, n: b.group_norm(image(b, n), 4),
    "softmax": lambda b, n: b.softmax(tokens(b, n)),
    "gelu": lambda b, n: b.activation(tokens(b, n), "gelu"),
    "add": lambda b, n: b.add(tokens(b, n), tokens(b, n)),
    "max pool": lambda b, n: b.pool(image(b, n), 2),
    "global pool": lambda b, n: b.global_pool(image(b, n)),
    "mean": lambda b, n: b.reduce(tokens(b, n), n, 32),
    "concat": lambda b, n: b.concat([image(b, n), image(b, n)]),
    "upsample": lambda b, n: b.upsample(image(b, n)),
    "lstm": lambda b, n: b.recurrent(tokens(b, n), 20),
    "gru": lambda b, n: b.recurrent(tokens(b, n), 20, cell="gru", bidirectional=True),
    "bag": lambda b, n: b.embedding_bag(n, 5, 1000, 16),
    "trees": lambda b, n: b.trees(b.input(n, 8), 10, 4),
}
#: Kinds whose gradients are two products as large as the forward's.
MATRIX_LAYERS = ["linear", "conv", "grouped conv", "transposed conv"]


def written(name, batch, precision=FP32):
    builder = GraphBuilder(precision)
    LAYERS[name](builder, batch)
    return builder


@pytest.mark.parametrize("name", sorted(LAYERS))
@settings(max_examples=10, deadline=None)
@given(batch=st.integers(1, 16), factor=st.integers(2, 8))
def test_work_and_traffic_grow_with_the_batch(name, batch, factor):
    few, many = written(name, batch), written(name, factor * batch)
    small, large = few.build(), many.build()
    assert np.allclose(large.flop, factor * small.flop, rtol=1e-12)
    assert np.allclose(large.write_bytes, factor * small.write_bytes, rtol=1e-12)
    assert (large.read_bytes <= factor * small.read_bytes * (1 + 1e-12)).all()
    assert (large.read_bytes >= small.read_bytes).all()


@pytest.mark.parametrize("name", sorted(LAYERS))
@settings(max_examples=5, deadline=None)
@given(batch=st.integers(1, 64))
def test_parameters_do_not_depend_on_the_batch(name, batch):
    single, many = written(name, 1), written(name, batch)
    assert many.parameter_totals[:2] == single.parameter_totals[:2]
    assert np.array_equal(many.build().weight_bytes, single.build().weight_bytes)


@pytest.mark.parametrize("name", sorted(set(LAYERS) - {"bag", "trees"}))
def test_half_the_width_is_half_the_bytes(name):
    wide = written(name, 4, FP32).build()
    narrow = written(name, 4, FP16).build()
    assert np.array_equal(narrow.flop, wide.flop)
    for column in ("read_bytes", "write_bytes", "weight_bytes"):
        assert np.allclose(2 * getattr(narrow, column), getattr(wide, column), rtol=1e-12)


@pytest.mark.parametrize("name", MATRIX_LAYERS)
@settings(max_examples=10, deadline=None)
@given(batch=st.integers(1, 8))
def test_gradients_of_matrix_layers_are_twice_the_forward(name, batch):
    builder = GraphBuilder(FP32)
    source = builder.input(batch, 16, 12, 12)
    x = builder.activation(source)  # so that the layer's input has a gradient
    if name == "linear":
        builder.linear(x, 24, bias=False)
    elif name == "transposed conv":
        builder.conv(x, 8, 2, stride=2, padding=0, transposed=True)
    else:
        builder.conv(x, 16, 3, groups=4 if name == "grouped conv" else 1)
    forward = builder.build()
    backward = backward_graph(forward)
    assert backward.model_flop == pytest.approx(2 * forward.model_flop, rel=1e-12)


@pytest.mark.parametrize("name", sorted(set(LAYERS) - {"trees"}))
def test_a_gradient_never_moves_less_than_nothing(name):
    backward = backward_graph(written(name, 3).build())
    for column in ("flop", "read_bytes", "write_bytes", "weight_bytes"):
        values = getattr(backward, column)
        assert np.isfinite(values).all()
        assert (values >= 0).all()


@settings(max_examples=20, deadline=None)
@given(counts=st.lists(st.integers(1, 10**6), min_size=2, max_size=5))
@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_an_update_is_additive_in_its_parameters(name, counts):
    rule = OPTIMIZERS[name]
    parts = [optimizer_graph(count, 1, FP32, rule) for count in counts]
    whole = optimizer_graph(sum(counts), len(counts), FP32, rule)
    assert whole.flop.sum() == pytest.approx(sum(part.flop.sum() for part in parts))
    assert whole.total_bytes == pytest.approx(sum(part.total_bytes for part in parts))


def test_more_optimizer_state_moves_more_bytes():
    rules = sorted(OPTIMIZERS.values(), key=lambda rule: (rule.state_count, rule.passes))
    moved = [optimizer_graph(1000, 1, FP32, rule).total_bytes for rule in rules]
    assert all(lighter <= heavier for lighter, heavier in pairwise(moved))


@settings(max_examples=20, deadline=None)
@given(names=st.lists(st.sampled_from(sorted(LAYERS)), min_size=1, max_size=6))
def test_joining_graphs_keeps_their_work(names):
    graphs = [written(name, 2).build() for name in names]
    joined = concatenate(graphs)
    assert len(joined) == sum(len(graph) for graph in graphs)
    assert joined.flop.sum() == pytest.approx(sum(graph.flop.sum() for graph in graphs))
    assert joined.total_bytes == pytest.approx(sum(graph.total_bytes for graph in graphs))
    assert (joined.dependency >= 0).all()


@settings(max_examples=20, deadline=None)
@given(widths=st.lists(st.integers(1, 64), min_size=2, max_size=5), batch=st.integers(1, 32))
def test_a_step_holds_its_forward_pass_first(widths, batch):
    builder = GraphBuilder(FP32)
    x = builder.input(batch, widths[0])
    for width in widths[1:]:
        x = builder.activation(builder.linear(x, width))
    forward = builder.build()
    counts = (builder.parameter_totals.parameters, builder.parameter_totals.tensors)
    step = training_graph(forward, *counts, FP32, OPTIMIZERS["adamw"])
    assert np.array_equal(step.kind[: len(forward)], forward.kind)
    assert (np.diff(step.phase) >= 0).all()
    update = step.kind == int(OperatorKind.OPTIMIZER)
    assert update.sum() == 1
    assert step.dims[update, 0] == builder.parameter_totals.parameters
    assert (step.phase == int(Phase.BACKWARD)).sum() >= len(widths) - 1
