"""Terms of a CPU kernel's time, counted by hand, and which kernel runs a row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from operator_cases import row

from accelsim.cost.cpu.fitted_kernels import FittedKernels, KernelFit
from accelsim.cost.cpu.kernel_terms import (
    MEMORY_TERMS,
    TERMS,
    WORK_TERMS,
    Context,
    kernel_terms,
    share_beyond,
)
from accelsim.cost.cpu.kernels import kernel_names, substitute
from accelsim.dtype import Dtype
from accelsim.workloads.operator import OperatorKind as K
from accelsim.workloads.operator import Phase

HOT = Context(
    l1_bytes=48 * 1024,
    l2_bytes=1e6,
    l3_bytes=1e8,
    reuse_bytes=0.0,
    is_training=False,
    page_fault_bytes=1e7,
)
COUNTS = ("loop_count", "inner_count")


def terms_of(kind, dims, context=HOT, **columns) -> dict[str, float]:
    return dict(
        zip(TERMS, kernel_terms(row(kind, dims, **columns), context)[0].tolist(), strict=True)
    )


@pytest.mark.parametrize(
    ("size", "share"),
    [
        (0.0, 0.0),
        (50.0, 0.0),
        (100.0, 0.5),
        (100 * 2**0.5, 0.75),
        (200.0, 1.0),
        (1e9, 1.0),
        (np.inf, 1.0),
    ],
)
def test_a_cache_gives_way_from_half_its_size_to_twice(size, share):
    assert share_beyond(size, 100.0) == pytest.approx(share)


def test_terms_are_work_or_bytes_or_neither():
    names = np.array(TERMS)
    assert names[WORK_TERMS].tolist() == ["flop", *COUNTS]
    assert names[MEMORY_TERMS].tolist() == [
        "read_bytes",
        "write_bytes",
        "weight_bytes",
        "cold_weight_bytes",
        "bytes_beyond_l2",
        "bytes_beyond_l3",
        "fresh_bytes",
        "partial_bytes",
    ]


def test_bytes_of_a_hot_row_are_its_own():
    found = terms_of(K.GEMM, (1, 1, 1, 1), flop=5.0, read=1000.0, write=500.0, weights=2000.0)
    assert found["start"] == 1
    assert (found["flop"], found["read_bytes"], found["write_bytes"], found["weight_bytes"]) == (
        5,
        1000,
        500,
        2000,
    )
    for name in (
        "cold_weight_bytes",
        "bytes_beyond_l2",
        "bytes_beyond_l3",
        "fresh_bytes",
        "evicted",
    ):
        assert found[name] == 0


def test_cold_weights_come_from_memory_and_are_no_part_of_the_working_set():
    columns = {"read": 3e5, "write": 3e5, "weights": 8e8}
    cold = terms_of(K.GEMM, (1, 1, 1, 1), replace(HOT, reuse_bytes=np.inf), **columns)
    assert cold["cold_weight_bytes"] == 8e8
    share = share_beyond(6e5, 1e6)
    assert cold["bytes_beyond_l2"] == pytest.approx(6e5 * share)
    assert cold["bytes_beyond_l3"] == 0
    hot = terms_of(K.GEMM, (1, 1, 1, 1), **columns)
    assert hot["cold_weight_bytes"] == 0
    assert hot["bytes_beyond_l2"] == pytest.approx(6e5 + 8e8)  # all of it leaves the second cache
    assert hot["bytes_beyond_l3"] == pytest.approx(6e5 + 8e8)


@pytest.mark.parametrize(
    ("kind", "dims", "written", "fresh"),
    [(K.COPY, (1,), 1e7, 0.0), (K.COPY, (1,), 1.1e7, 1.1e7), (K.OPTIMIZER, (1, 1, 1), 1.1e7, 0.0)],
)
def test_large_outputs_are_fresh_memory_but_for_updates_in_place(kind, dims, written, fresh):
    assert terms_of(kind, dims, write=written)["fresh_bytes"] == fresh
    known = replace(HOT, fresh_bytes=np.array([123.0]))
    assert terms_of(kind, dims, known, write=written)["fresh_bytes"] == 123.0


def test_rows_with_evicted_caches_read_cold_weights():
    found = terms_of(
        K.GEMM, (1, 1, 1, 1), replace(HOT, evicted=0.5), read=100.0, write=200.0, weights=400.0
    )
    assert found["evicted"] == 0.5
    cold = replace(HOT, evicted=1.0, reuse_bytes=np.inf, memory_bytes=50.0)
    found = terms_of(K.GEMM, (1, 1, 1, 1), cold, read=100.0, write=200.0, weights=400.0)
    assert found["cold_weight_bytes"] == 450
    hot = terms_of(
        K.GEMM,
        (1, 1, 1, 1),
        replace(HOT, memory_bytes=50.0),
        read=100.0,
        write=200.0,
        weights=400.0,
    )
    assert hot["cold_weight_bytes"] == 50


CONV = (2, 20, 40, 1, 1, 9, 9, 1, 7, 5, 1, 3, 2, 1, 1)


@pytest.mark.parametrize(
    ("kind", "dims", "counts"),
    [
        # Edges filled to 6 x 16: three by two blocks; to 16 x 16: 16 x 32.
        (K.GEMM, (1, 13, 17, 10), (96 * 3 * 2 * 10, 16 * 32 * 10)),
        (K.BATCHED_GEMM, (5, 6, 16, 10), (5 * 96 * 10, 5 * 16 * 16 * 10)),
        # Channels filled to 32 and 48; 2 x 7 lines, three blocks of 16 filters, six taps.
        (K.CONV, CONV, (2 * 7 * 5 * 6 * 32 * 48, 2 * 7 * 3 * 6)),
        (K.CONV_BACKWARD_DATA, CONV, (2 * 7 * 5 * 6 * 32 * 48, 2 * 7 * 3 * 6)),
        (K.CONV, (*CONV[:3], 4, *CONV[4:]), (4 * 2 * 7 * 5 * 6 * 16 * 16, 2 * 7 * 3 * 6)),
        # The three channels of an image are not filled to 16.
        (K.CONV, (2, 3, *CONV[2:]), (2 * 7 * 5 * 6 * 3 * 48, 2 * 7 * 3 * 6)),
        (K.LAYER_NORM, (10, 100), (10, 1000)),
        (K.SOFTMAX, (10, 16), (10, 160)),
        (K.REDUCTION, (10, 100, 0), (10, 1000)),
        (K.BATCH_NORM, (50, 8), (8, 400)),
        (K.POOLING, (2, 3, 64, 16, 9), (96, 864)),
        (K.OPTIMIZER, (1000, 2, 7), (7, 1000)),
        (K.MOE_ROUTING, (12, 8, 2), (12, 96)),
        (K.ELEMENTWISE, (77, 2, 1), (77, 0)),
        (K.COPY, (77,), (77, 0)),
        (K.LSTM, (3, 5, 7, 11, 2), (10, 10 * 3 * 11)),
        (K.EMBEDDING, (64, 20, 1000), (64, 64 * 2)),
        (K.TREE_ENSEMBLE, (1, 1, 1, 1), (0, 0)),
    ],
)
def test_loops_are_counted(kind, dims, counts):
    found = terms_of(kind, dims)
    assert tuple(found[name] for name in COUNTS) == pytest.approx(counts, rel=0.01)


@pytest.mark.parametrize("name", ["mean", "mse_loss", "amax"])
def test_a_reduction_of_single_elements_is_an_elementwise_loop(name):
    graph = replace(
        row(K.ELEMENTWISE, (1000, 1, 1), read=4000.0, write=4000.0), name=(name,), variant=None
    )
    assert kernel_names(graph, is_training=False)[0] == "mul_scalar"


@pytest.mark.parametrize(
    ("q_len", "causal", "share"), [(100, 0, 1.0), (100, 1, 0.5), (1, 1, 1.0), (20, 1, 0.5)]
)
def test_causal_attention_computes_half(q_len, causal, share):
    found = terms_of(K.ATTENTION, (2, 4, 4, q_len, 600, 64, 64, causal, 0, 0), flop=1e6)
    assert found["flop"] == pytest.approx(1e6 * share)
    assert found["loop_count"] == pytest.approx(8 * q_len * 600 * share)
    assert found["inner_count"] == 8


# -- kernels


def kernel(kind, dims, *, training=False, **columns) -> str:
    return str(kernel_names(row(kind, dims, **columns), is_training=training)[0])


@pytest.mark.parametrize(
    ("m", "weights", "phase", "name"),
    [
        (16, 8.0, Phase.FORWARD, "linear_thin"),
        (17, 8.0, Phase.FORWARD, "linear"),
        (17, 0.0, Phase.FORWARD, "mm_nn"),
        (17, 8.0, Phase.BACKWARD, "mm_nn"),
        (17, 0.0, Phase.BACKWARD, "mm_tn"),
    ],
)
def test_products_by_rows_weights_and_pass(m, weights, phase, name):
    assert kernel(K.GEMM, (1, m, 8, 8), weights=weights, phase=phase) == name


def conv(
    channels=8, groups=1, batch=1, size=8, window=(3, 3), stride=1, outputs=None
) -> tuple[int, ...]:
    return (
        batch,
        channels,
        outputs or channels,
        groups,
        1,
        size,
        size,
        1,
        size,
        size,
        1,
        *window,
        stride,
        1,
    )


def depthwise_row(kernel, length=40, out=40) -> tuple[int, ...]:
    return (2, 8, 8, 8, 1, 1, length, 1, 1, out, 1, 1, kernel, 1, 1)


def volume(channels=64, depth=4, size=28, batch=1, window=3, stride=1) -> tuple[int, ...]:
    small = [-(-length // stride) for length in (depth, size, size)]
    return (
        batch,
        channels,
        channels,
        1,
        depth,
        size,
        size,
        *small,
        window,
        window,
        window,
        stride,
        1,
    )


@pytest.mark.parametrize(
    ("kind", "dims", "names"),
    [
        (K.LAYER_NORM, (4, 8), ("layer_norm", "layer_norm", "layer_norm_backward")),
        (K.BATCH_NORM, (4, 8), ("batch_norm", "batch_norm_train", "batch_norm_backward")),
        (K.LSTM, (1, 2, 3, 4, 1), ("lstm", "lstm_train", "lstm_backward")),
        (K.GRU, (1, 2, 3, 4, 1), ("gru", "gru_train", "gru_backward")),
    ],
)
def test_kernels_that_keep_what_training_needs(kind, dims, names):
    found = (
        kernel(kind, dims),
        kernel(kind, dims, training=True),
        kernel(kind, dims, training=True, phase=Phase.BACKWARD),
    )
    assert found == names


@pytest.mark.parametrize(
    ("kernel", "instead"),
    [
        ("gru_backward", "gru"),
        ("upsample_nearest2d_wide", "clone"),
        ("conv_grad_weight_depthwise_plain", "conv_grad_weight_depthwise"),
        ("conv_transpose_native", "conv_transpose"),
        ("conv_grad_input_volume_native", "conv_grad_input_native"),
        ("conv_depthwise_volume", "conv_depthwise"),
        ("add", "add"),
    ],
)
def test_what_stands_for_a_kernel_that_was_not_measured(kernel, instead):
    assert substitute(kernel) == instead
    known = FittedKernels(
        {(instead, "fp32", 1): KernelFit(np.zeros(len(TERMS)), 0.1, 5)},
        48.0 * 2**10,
        2.0**20,
        2.0**25,
    )
    names, dtypes = np.array([kernel]), np.array([int(Dtype.FP32)], dtype=np.int8)
    times = known.kernel_times(names, dtypes, np.ones((1, len(TERMS))))
    assert times.time_s.tolist() == [0.0]


@pytest.mark.parametrize(
    ("kind", "dims", "name", "expected"),
    [
        (K.ELEMENTWISE, (8, 1, 8), "gelu", "gelu"),
        (K.ELEMENTWISE, (8, 1, 8), "gelu.tanh", "gelu_tanh"),
        (K.ELEMENTWISE, (8, 1, 8), "gelu.tanh.in_place", "gelu_tanh"),
        (K.ELEMENTWISE, (8, 2, 8), "gelu_backward.tanh", "gelu_tanh_backward"),
        (K.ELEMENTWISE, (8, 2, 1), "masked_fill", "where"),
        (K.ELEMENTWISE, (8, 1, 6), "erf", "sin"),
        (K.REDUCTION, (2, 4, 0), "std", "var"),
        (K.REDUCTION, (2, 4, 0), "logsumexp.sum", "sum"),
        (K.REDUCTION, (2, 4, 0), "logsumexp.amax", "amax"),
        (K.ELEMENTWISE, (8, 1, 4), "logsumexp.exp", "exp"),
        (K.REDUCTION, (2, 4), "argmin.place", "arg_place"),
        (K.REDUCTION, (2, 4), "_safe_softmax.all", "max_place"),
        (K.POOLING, (1, 8, 4, 1, 4), "_adaptive_avg_pool2d.last", "avg_pool2d_last"),
        (K.COPY, (8,), "native_layer_norm.clone.strided", "clone"),
        (K.COPY, (8,), "convolution.clone", "clone"),
        (K.COPY, (8,), "col2im", "col2im"),
        (K.COPY, (8,), "_softmax.clone", "clone"),
        (K.COPY, (8,), "_softmax.clone.strided", "clone"),
        (K.COPY, (8,), "_softmax_backward_data.clone.strided", "clone"),
        (K.EMBEDDING, (8, 1, 16), "grid_sampler_2d", "grid_sampler_2d"),
        (K.COPY, (8,), "replication_pad1d", "reflection_pad1d"),
        (K.ELEMENTWISE, (8, 3, 0, 1), "_prelu_kernel_backward.strided", "_prelu_kernel_backward"),
    ],
)
def test_operators_that_take_longer_than_their_bytes_have_kernels_of_their_own(
    kind, dims, name, expected
):
    graph = replace(row(kind, dims, read=32.0, write=32.0), name=(name,), variant=None)
    assert str(kernel_names(graph, is_training=False)[0]) == expected


@pytest.mark.parametrize(
    ("is_training", "expected"), [(False, "max_pool1d"), (True, "max_pool2d_with_indices")]
)
def test_the_maximum_of_a_sequence_keeps_its_places_in_training_alone(is_training, expected):
    graph = replace(
        row(K.POOLING, (2, 8, 16, 8, 2)), name=("max_pool2d_with_indices.1d",), variant=None
    )
    assert str(kernel_names(graph, is_training=is_training)[0]) == expected


@pytest.mark.parametrize(
    ("q_len", "name"), [(1, "attention_decode"), (4, "attention_decode"), (5, "attention")]
)
def test_few_queries_are_decoding(q_len, name):
    assert kernel(K.ATTENTION, (1, 1, 1, q_len, 8, 8, 8, 0, 0, 0)) == name


@pytest.mark.parametrize(
    ("read", "inputs", "name"),
    [(800.0, 2, "add"), (404.0, 2, "add_bias"), (400.0, 1, "mul_scalar"), (0.0, 0, "zeros")],
)
def test_unnamed_elementwise_rows_by_what_they_read(read, inputs, name):
    assert kernel(K.ELEMENTWISE, (100, inputs, 1), read=read, write=400.0) == name


@pytest.mark.parametrize(
    ("kind", "channels", "groups", "window", "partial"),
    [
        (K.CONV, (32, 48), 1, 3, 0),
        (K.CONV, (31, 48), 1, 3, 31 * 64),
        (K.CONV, (32, 47), 1, 3, 47 * 36),
        (K.CONV, (3, 64), 1, 3, 0),  # a first image is read as it is
        (K.CONV_BACKWARD_DATA, (31, 47), 1, 3, 31 * 64 + 47 * 36),
        (K.CONV_BACKWARD_WEIGHT, (31, 47), 1, 3, 0),
        (K.CONV_BACKWARD_WEIGHT, (31, 31), 31, 3, 31 * (64 + 36)),
        (K.CONV_BACKWARD_WEIGHT, (31, 31), 31, 5, 0),  # no generated code, no blocks
    ],
)
def test_channels_that_fill_no_vectors_are_copied_one_by_one(
    kind, channels, groups, window, partial
):
    graph = row(kind, (2, *channels, groups, 1, 8, 8, 1, 6, 6, 1, window, window, 1, 1))
    assert kernel_terms(graph, HOT)[0, TERMS.index("partial_bytes")] == 2 * 4 * partial


@pytest.mark.parametrize(
    ("kind", "channels", "groups", "window", "name"),
    [
        (K.CONV, 8, 1, 1, "conv_1x1"),
        (K.CONV, 8, 1, 3, "conv"),
        (K.CONV, 8, 2, 3, "conv_grouped"),
        (K.CONV, 8, 8, 3, "conv_depthwise"),
        (K.CONV_TRANSPOSE, 8, 1, 3, "conv_transpose"),
        (K.CONV_BACKWARD_DATA, 8, 1, 3, "conv_grad_input"),
        (K.CONV_BACKWARD_WEIGHT, 8, 8, 3, "conv_grad_weight_depthwise"),
    ],
)
def test_convolutions_by_their_groups_and_taps(kind, channels, groups, window, name):
    dims = (2, channels, channels, groups, 1, 8, 8, 1, 6, 6, 1, window, window, 1, 1)
    assert kernel(kind, dims) == name
