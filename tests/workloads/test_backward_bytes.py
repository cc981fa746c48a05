"""Bytes, sizes and FLOP of gradient rows, each tensor counted once by hand."""

from __future__ import annotations

import numpy as np
import pytest

from accelsim.dtype import precision
from accelsim.workloads.backward import backward_graph
from accelsim.workloads.builder import GraphBuilder
from accelsim.workloads.operator import DIMENSIONS, OperatorKind

K = OperatorKind


def builder(policy="fp32"):
    return GraphBuilder(precision(policy))


def gradients(b) -> dict[str, dict[str, object]]:
    """Kind, dimensions, FLOP and bytes of each backward row, by name."""
    graph = backward_graph(b.build())
    rows = {}
    for index, name in enumerate(graph.name):
        kind = K(int(graph.kind[index]))
        assert name not in rows
        rows[name] = {
            "kind": kind,
            "dims": tuple(
                graph.dims[
                    index,
                    : len([n for n in DIMENSIONS[kind] if n not in {"runs", "even", "inner"}]),
                ].tolist()
            ),
            "flop": graph.flop[index],
            "read": graph.read_bytes[index],
            "write": graph.write_bytes[index],
            "weight": graph.weight_bytes[index],
        }
    return rows


def assert_row(row, **expected):
    assert {name: row[name] for name in expected} == expected


def behind_a_layer(b, *shape):
    """A tensor that another row wrote, so that its gradient is wanted."""
    return b.activation(b.input(*shape))


def test_linear_layer():
    b = builder()
    b.linear(behind_a_layer(b, 10, 20), 30, name="fc")
    rows = gradients(b)
    weights = 4 * (20 * 30 + 30)
    flop = 2 * 10 * 20 * 30
    # dX = dY W; dW = X'dY; db sums dY.
    assert_row(
        rows["fc.grad_input"],
        kind=K.GEMM,
        dims=(1, 10, 20, 30),
        flop=flop,
        read=1200,
        write=800,
        weight=weights,
    )
    assert_row(
        rows["fc.grad_weight"],
        dims=(1, 30, 20, 10),
        flop=flop,
        read=800 + 1200,
        write=weights,
        weight=0,
    )
    assert_row(
        rows["fc.grad_bias"], kind=K.REDUCTION, dims=(30, 10), flop=300, read=1200, write=120
    )


def test_first_layer_has_no_input_gradient():
    b = builder()
    b.linear(b.input(10, 20), 30, bias=False, name="fc")
    assert list(gradients(b)) == ["fc.grad_weight"]


def test_narrow_weights_have_gradients_of_two_bytes():
    b = builder("fp8")
    b.linear(b.input(10, 20), 30, bias=False, name="fc")
    assert gradients(b)["fc.grad_weight"]["write"] == 2 * 20 * 30


def test_experts_share_their_rows():
    b = builder()
    b.grouped_linear(behind_a_layer(b, 64, 20), 30, groups=4, active=4, name="experts")
    rows = gradients(b)
    assert_row(
        rows["experts.grad_input"], kind=K.GROUPED_GEMM, dims=(4, 64, 20, 30), flop=2 * 64 * 20 * 30
    )
    assert_row(rows["experts.grad_weight"], dims=(4, 4 * 30, 20, 16), flop=2 * 64 * 20 * 30)
    assert "experts.grad_bias" not in rows


def test_product_of_two_activations():
    b = builder()
    b.matmul(behind_a_layer(b, 5, 10, 20), behind_a_layer(b, 5, 20, 30), name="bmm")
    rows = gradients(b)
    flop = 5 * 2 * 10 * 20 * 30
    a, other, output = 4 * 5 * 200, 4 * 5 * 600, 4 * 5 * 300
    assert_row(rows["bmm.grad_a"], dims=(5, 10, 20, 30), flop=flop, read=output + other, write=a)
    assert_row(rows["bmm.grad_b"], dims=(5, 20, 30, 10), flop=flop, read=output + a, write=other)


def test_convolution():
    b = builder()
    b.conv(
        behind_a_layer(b, 2, 6, 9, 7), 10, 3, stride=2, padding=1, groups=2, bias=True, name="conv"
    )
    rows = gradients(b)
    flop = 2 * 2 * 10 * (5 * 4) * 3 * 9
    image, output, weights = 4 * 2 * 6 * 63, 4 * 2 * 10 * 20, 4 * (10 * 3 * 9 + 10)
    dims = (2, 6, 10, 2, 1, 9, 7, 1, 5, 4, 1, 3, 3, 2, 1)
    assert_row(
        rows["conv.grad_input"],
        kind=K.CONV_BACKWARD_DATA,
        dims=dims,
        flop=flop,
        read=output,
        write=image,
        weight=weights,
    )
    assert_row(
        rows["conv.grad_weight"],
        kind=K.CONV_BACKWARD_WEIGHT,
        dims=dims,
        flop=flop,
        read=image + output,
        write=weights,
    )
    assert_row(rows["conv.grad_bias"], dims=(10, 40), flop=400, read=output, write=40)


def test_transposed_convolution():
    b = builder()
    b.conv(behind_a_layer(b, 2, 6, 5, 4), 10, 2, stride=2, padding=0, transposed=True, name="up")
    row = gradients(b)["up.grad_input"]
    assert_row(
        row,
        kind=K.CONV,
        dims=(2, 10, 6, 1, 1, 10, 8, 1, 5, 4, 1, 2, 2, 2, 1),
        flop=2 * 2 * 20 * 10 * 6 * 4,
    )


def test_attention():
    b = builder()
    q, k = behind_a_layer(b, 2, 4, 10, 8), behind_a_layer(b, 2, 4, 10, 8)
    b.attention(q, k, k)
    row = gradients(b)["attention.grad"]
    one = 4 * 2 * 4 * 10 * 8
    # Query, key, value, output and its gradient read; three gradients written.
    assert_row(
        row, kind=K.ATTENTION_BACKWARD, flop=2.5 * 4 * 2 * 4 * 100 * 8, read=5 * one, write=3 * one
    )


@pytest.mark.parametrize(
    ("layer", "flop", "weights"),
    [
        (lambda b, x: b.layer_norm(x), 16, 2 * 16),
        (lambda b, x: b.rms_norm(x), 8, 16),
        (lambda b, x: b.softmax(x), 4.2, 0),
    ],
)
def test_norms_read_operand_and_gradient(layer, flop, weights):
    b = builder()
    layer(b, behind_a_layer(b, 10, 16))
    (row,) = [row for name, row in gradients(b).items() if "relu" not in name]
    assert row["flop"] == pytest.approx(flop * 160)
    assert_row(row, read=2 * 640, write=640 + 4 * weights, weight=4 * weights)


def test_activations_and_pools():
    b = builder()
    x = b.activation(behind_a_layer(b, 2, 3, 8, 8), "gelu")
    b.pool(x, 2)
    rows = gradients(b)
    image, small = 4 * 2 * 3 * 64, 4 * 2 * 3 * 16
    assert_row(rows["gelu.grad"], dims=(384, 2, 8), read=2 * image, write=image)
    assert_row(rows["max_pool.grad"], kind=K.POOLING, read=2 * small, write=image)


def test_means_spread_their_gradient_and_copies_return_it():
    b = builder()
    b.reduce(b.copy(behind_a_layer(b, 10, 16), shape=(10, 32), name="pad"), 10, name="mean")
    rows = gradients(b)
    assert_row(rows["mean.grad"], kind=K.ELEMENTWISE, dims=(320, 1, 1), read=40, write=1280)
    assert_row(rows["pad.grad"], kind=K.COPY, read=1280, write=640)


def test_sums_pass_their_gradient_on_and_fan_out_adds():
    b = builder()
    x = behind_a_layer(b, 10, 16)
    b.add(b.activation(x, "tanh"), x)
    rows = gradients(b)
    assert "add.grad" not in rows
    assert_row(
        rows["relu.grad_add"],
        kind=K.ELEMENTWISE,
        dims=(160, 2, 1),
        flop=160,
        read=2 * 640,
        write=640,
    )


def test_embeddings_zero_their_table_and_bags_do_not():
    b = builder()
    b.embedding(b.input(5, 7), 1000, 16, name="words")
    b.embedding_bag(6, 20, 1000, 16, name="bag")
    rows = gradients(b)
    looked_up, table = 4 * 35 * 16, 4 * 1000 * 16
    assert_row(
        rows["words.grad"],
        kind=K.SCATTER,
        dims=(35, 16, 1000),
        flop=35 * 16,
        read=2 * looked_up,
        write=looked_up + table,
    )
    summed, gathered = 4 * 6 * 16, 4 * 120 * 16
    assert_row(
        rows["bag.grad"],
        kind=K.SCATTER,
        dims=(120, 16, 1000),
        flop=120 * 16,
        read=summed + gathered,
        write=gathered,
    )


def test_backward_rows_run_last_layer_first():
    b = builder()
    b.linear(b.linear(b.input(2, 3), 4, name="first"), 5, name="last")
    names = list(gradients(b))
    assert names == [
        "last.grad_input",
        "last.grad_weight",
        "last.grad_bias",
        "first.grad_weight",
        "first.grad_bias",
    ]
    graph = backward_graph(b.build())
    assert graph.dependency.tolist() == [0, 1, 2, 3]
    assert np.diff(graph.dependency_offset).tolist() == [0, 1, 1, 1, 1]
