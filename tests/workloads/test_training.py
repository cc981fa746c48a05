"""Backward, gradient and optimizer rows of a forward graph."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim.dtype import precision
from accelsim.errors import UnknownNameError
from accelsim.estimation.passes import training_step
from accelsim.estimation.resolution import resolve
from accelsim.workloads.backward import backward_graph
from accelsim.workloads.builder import GraphBuilder
from accelsim.workloads.operator import OperatorKind, Phase
from accelsim.workloads.training import OPTIMIZERS, optimizer, optimizer_graph, training_graph

K = OperatorKind


def rows(graph, kind, phase=None):
    mask = graph.kind == int(kind)
    return np.flatnonzero(mask if phase is None else mask & (graph.phase == int(phase)))


def mlp(batch, widths, policy="fp32"):
    b = GraphBuilder(precision(policy))
    x = b.input(batch, widths[0])
    for width in widths[1:]:
        x = b.activation(b.linear(x, width))
    return b


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 64), st.lists(st.integers(1, 300), min_size=2, max_size=5))
def test_mlp_backward_is_twice_forward_less_the_first_input_gradient(batch, widths):
    graph = mlp(batch, widths).build()
    backward = backward_graph(graph)
    first = 2.0 * batch * widths[0] * widths[1]
    assert backward.model_flop == 2 * graph.model_flop - first


def test_conv_gets_both_gradients_but_the_first_only_its_weight():
    b = GraphBuilder(precision("fp32"))
    x = b.conv(b.input(2, 3, 16, 16), 8, 3, stride=2)
    b.conv(x, 8, 3)
    backward = backward_graph(b.build())
    assert len(rows(backward, K.CONV_BACKWARD_DATA)) == 1
    assert len(rows(backward, K.CONV_BACKWARD_WEIGHT)) == 2
    assert backward.name[0].endswith("grad_input")


def test_nothing_runs_backward_through_modules_that_stay_as_they_are():
    b = GraphBuilder(precision("fp32"))
    x = b.activation(b.conv(b.input(2, 3, 16, 16), 8, 3, at="stem"), at="stem.relu")
    y = b.conv(x, 8, 3, at="body.0")
    b.conv(b.add(y, x), 8, 3, at="stem2")
    whole, part = backward_graph(b.build()), backward_graph(b.build(), ("stem",))
    kept = [path for path in whole.path if path.split(".")[0] != "stem"]
    left = list(part.path)
    # the first layer that is trained has no gradient of its input to give
    assert left == [
        path for n, path in enumerate(kept) if (n, path) != (kept.index("body.0"), path)
    ]
    assert part.name.count("conv.grad_weight") == 2
    assert part.name.count("conv.grad_input") == 1
    none = backward_graph(b.build(), ("nothing",))
    assert (none.name, none.flop.tolist()) == (whole.name, whole.flop.tolist())


def test_a_detector_trains_neither_norms_nor_first_stages():
    run = resolve("retinanet-resnext-50", "a100-sxm-80gb", mode="training", batch=2)
    step = training_step(run)
    backward = step.rows.take(step.rows.phase == int(Phase.BACKWARD))
    assert not any(
        "layer1" in path or path.startswith("backbone.body.conv1") for path in backward.path
    )
    assert not len(rows(step.rows, K.BATCH_NORM))
    still = [path.startswith("backbone.body.layer1") for path in step.forward.path]
    assert step.forward.saved_bytes[still].sum() == 0.0
    assert step.forward.saved_bytes.sum() > 0.0


@pytest.mark.parametrize("policy", ["fp32", "bf16"])
def test_a_bias_gradient_sums_the_outputs_gradient(policy):
    b = GraphBuilder(precision(policy))
    x = b.conv(b.input(2, 3, 8, 8), 4, 3, bias=True)
    x = b.linear(b.view(x, 2, 4 * 64), 10)
    b.linear(x, 10, bias=False)
    backward = backward_graph(b.build())
    sums = [backward.dimensions_of(row) for row in rows(backward, K.REDUCTION)]
    assert sums == [
        {"rows": 10, "columns": 2, "inner": 0},
        {"rows": 4, "columns": 2 * 64, "inner": 0},
    ]


def test_transposed_conv_input_gradient_is_a_conv():
    b = GraphBuilder(precision("fp32"))
    x = b.conv(b.input(1, 4, 8, 8), 6, 3)
    b.conv(x, 5, 2, stride=2, padding=0, transposed=True)
    backward = backward_graph(b.build())
    index = rows(backward, K.CONV)[0]
    dims = backward.dimensions_of(index)
    assert (dims["channels_in"], dims["channels_out"], dims["in_h"], dims["out_h"]) == (5, 6, 16, 8)


def test_residual_sum_needs_no_kernel_but_its_fan_out_an_addition():
    b = GraphBuilder(precision("fp32"))
    x = b.activation(b.linear(b.input(4, 8), 8))
    b.add(b.linear(x, 8), x)
    names = backward_graph(b.build()).name
    assert "add.grad" not in names
    assert names.count("relu.grad_add") == 1


def test_attention_backward_is_five_products_for_two():
    b = GraphBuilder(precision("bf16"))
    q = b.linear(b.input(2, 128, 64), 64)
    heads = b.view(q, 2, 4, 128, 16)
    b.attention(heads, heads, heads, causal=True)
    graph = b.build()
    backward = backward_graph(graph)
    forward_flop = graph.flop[rows(graph, K.ATTENTION)].sum()
    assert backward.flop[rows(backward, K.ATTENTION_BACKWARD)].sum() == 2.5 * forward_flop


@pytest.mark.parametrize(
    ("name", "policy", "bytes_per_parameter"),
    [
        ("sgd", "fp32", 12),  # read w, g; write w
        ("momentum", "fp32", 20),  # + read and write one state
        ("adam", "fp32", 28),  # + read and write two states
        ("lamb", "fp32", 44),  # reads everything twice, for its trust ratio
        (
            "adamw",
            "bf16",
            28,
        ),  # master, m, v read (12) and written (12), gradient read (2), weight written (2)
    ],
)
def test_optimizer_traffic(name, policy, bytes_per_parameter):
    graph = optimizer_graph(1000, 3, precision(policy), optimizer(name))
    assert graph.total_bytes == 1000 * bytes_per_parameter


def test_states_are_as_narrow_as_a_weight_without_a_master_copy():
    policy = replace(precision("bf16"), master_weight=None)
    graph = optimizer_graph(1000, 3, policy, optimizer("adamw"))
    assert (graph.read_bytes[0], graph.write_bytes[0]) == (
        8000,
        6000,
    )  # w, m, v, g read; w, m, v written, 2 bytes each


def test_unknown_optimizer_is_named():
    with pytest.raises(UnknownNameError, match="adam"):
        optimizer("adamm")


def test_a_step_has_its_phases_in_order():
    b = mlp(8, [32, 64, 10])
    step = training_graph(
        b.build(),
        b.parameter_totals.parameters,
        b.parameter_totals.tensors,
        b.precision,
        OPTIMIZERS["lamb"],
    )
    assert np.all(np.diff(step.phase) >= 0)
    assert set(step.phase) == {int(Phase.FORWARD), int(Phase.BACKWARD), int(Phase.OPTIMIZER)}
    assert all(len(step.dependencies_of(row)) for row in range(1, len(step)))


def test_trees_train_by_histograms():
    b = GraphBuilder(precision("fp32"))
    b.trees(b.input(1000, 28), 100, 6)
    step = training_graph(b.build(), 0, 0, b.precision, OPTIMIZERS["sgd"])
    assert [K(code) for code in step.kind] == [K.TREE_HISTOGRAM]
