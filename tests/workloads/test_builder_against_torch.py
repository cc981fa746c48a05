"""Sizes, parameters and FLOP of the builder's layers against the framework's own modules, on shapes
drawn at random.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from accelsim.dtype import precision  # noqa: E402
from accelsim.workloads.builder import GraphBuilder  # noqa: E402

pytestmark = pytest.mark.torch
CONVS = {
    1: (nn.Conv1d, nn.ConvTranspose1d),
    2: (nn.Conv2d, nn.ConvTranspose2d),
    3: (nn.Conv3d, nn.ConvTranspose3d),
}
MAX_POOLS = {1: nn.MaxPool1d, 2: nn.MaxPool2d, 3: nn.MaxPool3d}


def builder():
    return GraphBuilder(precision("fp32"))


def counted(module):
    return sum(parameter.numel() for parameter in module.parameters())


def flop_of(module, x):
    with FlopCounterMode(display=False) as counter:
        y = module(x)
    return y, counter.get_total_flops()


@settings(max_examples=60, deadline=None)
@given(
    rank=st.integers(1, 3),
    size=st.integers(1, 12),
    kernel=st.integers(1, 5),
    stride=st.integers(1, 3),
    padding=st.integers(0, 3),
    dilation=st.integers(1, 2),
    groups=st.sampled_from([1, 2, 4]),
    bias=st.booleans(),
)
def test_convolutions(rank, size, kernel, stride, padding, dilation, groups, bias):
    assume(size + 2 * padding > dilation * (kernel - 1))
    module = CONVS[rank][0](4, 8, kernel, stride, padding, dilation, groups, bias, device="meta")
    y, flop = flop_of(module, torch.empty(2, 4, *[size] * rank, device="meta"))
    b = builder()
    x = b.input(2, 4, *[size] * rank)
    found = b.conv(
        x, 8, kernel, stride=stride, padding=padding, dilation=dilation, groups=groups, bias=bias
    )
    graph = b.build()
    assert tuple(found.shape) == tuple(y.shape)
    assert b.parameter_totals.parameters == counted(module)
    assert graph.model_flop == flop
    assert graph.read_bytes[0] == 4 * x.elements
    assert graph.write_bytes[0] == 4 * y.numel()
    assert graph.weight_bytes[0] == 4 * counted(module)


@settings(max_examples=40, deadline=None)
@given(
    rank=st.integers(1, 3),
    size=st.integers(1, 8),
    kernel=st.integers(1, 5),
    stride=st.integers(1, 3),
    padding=st.integers(0, 2),
    groups=st.sampled_from([1, 2]),
)
def test_transposed_convolutions(rank, size, kernel, stride, padding, groups):
    assume((size - 1) * stride - 2 * padding + kernel > 0)
    module = CONVS[rank][1](4, 8, kernel, stride, padding, groups=groups, bias=False, device="meta")
    y, flop = flop_of(module, torch.empty(2, 4, *[size] * rank, device="meta"))
    b = builder()
    found = b.conv(
        b.input(2, 4, *[size] * rank),
        8,
        kernel,
        stride=stride,
        padding=padding,
        groups=groups,
        transposed=True,
    )
    assert tuple(found.shape) == tuple(y.shape)
    assert b.parameter_totals.parameters == counted(module)
    assert b.build().model_flop == flop


@settings(max_examples=80, deadline=None)
@given(
    rank=st.integers(1, 3),
    size=st.integers(1, 14),
    kernel=st.integers(1, 5),
    stride=st.integers(1, 4),
    padding=st.integers(0, 2),
    ceil=st.booleans(),
)
def test_pools(rank, size, kernel, stride, padding, ceil):
    assume(2 * padding <= kernel <= size + 2 * padding)
    y = MAX_POOLS[rank](kernel, stride, padding, ceil_mode=ceil)(
        torch.empty(2, 3, *[size] * rank, device="meta")
    )
    b = builder()
    found = b.pool(b.input(2, 3, *[size] * rank), kernel, stride=stride, padding=padding, ceil=ceil)
    assert tuple(found.shape) == tuple(y.shape)
    assert b.build().flop[0] == y.numel() * kernel**rank


@pytest.mark.parametrize(("cell", "module"), [("rnn", nn.RNN), ("lstm", nn.LSTM), ("gru", nn.GRU)])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_recurrent_layers(cell, module, bidirectional):
    reference = module(20, 32, batch_first=True, bidirectional=bidirectional, device="meta")
    b = builder()
    found = b.recurrent(b.input(3, 7, 20), 32, cell=cell, bidirectional=bidirectional)
    y = reference(torch.empty(3, 7, 20, device="meta"))[0]
    assert tuple(found.shape) == tuple(y.shape)
    assert b.parameter_totals.parameters == counted(reference)
    matrices = sum(
        p.numel() for name, p in reference.named_parameters() if name.startswith("weight")
    )
    assert b.build().model_flop == 2 * 3 * 7 * matrices


@pytest.mark.parametrize(
    ("write", "module", "shape"),
    [
        (lambda b, x: b.layer_norm(x), nn.LayerNorm(12), (2, 5, 12)),
        (lambda b, x: b.layer_norm(x, bias=False), nn.LayerNorm(12, bias=False), (2, 5, 12)),
        (lambda b, x: b.group_norm(x, 3), nn.GroupNorm(3, 12), (2, 12, 5)),
    ],
)
def test_norms(write, module, shape):
    b = builder()
    x = b.input(*shape)
    assert tuple(write(b, x).shape) == shape
    assert b.parameter_totals.parameters == counted(module)
    assert b.build().flop[0] == 8 * np.prod(shape)


def test_batch_norm_reads_its_statistics_but_trains_half_of_them():
    module = nn.BatchNorm2d(12)
    b = builder()
    b.batch_norm(b.input(2, 12, 5, 5))
    assert b.parameter_totals.parameters == counted(module)
    buffers = sum(x.numel() for name, x in module.named_buffers() if x.dim())
    assert b.build().weight_bytes[0] == 4 * (counted(module) + buffers)


def test_batch_norm_has_a_row_per_pixel_and_a_column_per_channel():
    b = builder()
    b.batch_norm(b.input(2, 12, 5, 7))
    assert b.build().dims[0, :2].tolist() == [70, 12]


@pytest.mark.parametrize(
    ("size", "out", "window"), [((6, 8), 1, 48), ((8, 8), 2, 16), ((3, 3), 3, 1), ((2, 2), 4, 1)]
)
def test_adaptive_pools_average_what_falls_to_each_output(size, out, window):
    b = builder()
    found = b.global_pool(b.input(2, 3, *size), out)
    assert tuple(found.shape) == tuple(nn.AdaptiveAvgPool2d(out)(torch.empty(2, 3, *size)).shape)
    graph = b.build()
    assert graph.dims[0, :5].tolist() == [2, 3, size[0] * size[1], out * out, window]
    assert graph.flop[0] == 2 * 3 * out * out * window


@pytest.mark.parametrize("has_bias", [False, True])
def test_attention_reads_queries_keys_values_and_its_bias(has_bias):
    b = builder()
    q, k = b.input(2, 8, 10, 16), b.input(2, 4, 10, 16)
    bias = b.input(8, 10, 10) if has_bias else None
    b.attention(q, k, k, bias=bias)
    operands = 2 * 8 * 10 * 16 + 2 * 2 * 4 * 10 * 16 + (800 if has_bias else 0)
    assert b.build().read_bytes[0] == 4 * operands


def test_embeddings_read_the_rows_they_look_up():
    module = nn.Embedding(1000, 64)
    b = builder()
    ids = b.input(3, 7)
    found = b.embedding(ids, 1000, 64)
    assert tuple(found.shape) == tuple(module(torch.zeros(3, 7, dtype=torch.long)).shape)
    assert b.parameter_totals.parameters == counted(module)
    assert b.build().read_bytes[0] == ids.bytes + 21 * 64 * 4


def test_embedding_bags_sum_what_they_read():
    b = builder()
    found = b.embedding_bag(5, 20, 1000, 64)
    assert tuple(found.shape) == (5, 64)
    graph = b.build()
    assert graph.flop[0] == 100 * 64
    assert graph.read_bytes[0] == 100 * (8 + 64 * 4)
