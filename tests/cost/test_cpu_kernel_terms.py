"""Terms of a CPU kernel's time, counted by hand, and which kernel runs a row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from operator_cases import row

from accelsim.cost.cpu.cache_counts import share_beyond
from accelsim.cost.cpu.fitted_kernels import FittedKernels, KernelFit
from accelsim.cost.cpu.kernel_terms import MEMORY_TERMS, TERMS, WORK_TERMS, Context, kernel_terms
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
COUNTS = ("loop_count", "inner_count", "rest_count")


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
        "evicted_bytes",
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
        "evicted_bytes",
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


def test_weights_used_again_after_other_work_come_from_where_that_left_them():
    """1 MB between uses: half of the weights has left a second cache of 1 MB, none the last one."""
    found = terms_of(
        K.GEMM, (1, 1, 1, 1), replace(HOT, reuse_bytes=1e6), read=1e3, write=1e3, weights=1e5
    )
    assert found["bytes_beyond_l2"] == pytest.approx(0.5e5)
    half_cold = terms_of(
        K.GEMM, (1, 1, 1, 1), replace(HOT, reuse_bytes=6.25e7), read=1e3, write=1e3, weights=1e5
    )
    assert half_cold["cold_weight_bytes"] == pytest.approx(0.5e5)


@pytest.mark.parametrize(
    ("kind", "dims", "written", "fresh"),
    [(K.COPY, (1,), 1e7, 0.0), (K.COPY, (1,), 1.1e7, 1.1e7), (K.OPTIMIZER, (1, 1, 1), 1.1e7, 0.0)],
)
def test_large_outputs_are_fresh_memory_but_for_updates_in_place(kind, dims, written, fresh):
    assert terms_of(kind, dims, write=written)["fresh_bytes"] == fresh
    known = replace(HOT, fresh_bytes=np.array([123.0]))
    assert terms_of(kind, dims, known, write=written)["fresh_bytes"] == 123.0


def test_rows_with_evicted_caches_move_weights_and_results():
    found = terms_of(
        K.GEMM, (1, 1, 1, 1), replace(HOT, evicted=0.5), read=100.0, write=200.0, weights=400.0
    )
    assert (found["evicted"], found["evicted_bytes"]) == (0.5, 0.5 * 600)
    cold = replace(HOT, evicted=1.0, reuse_bytes=np.inf, memory_bytes=50.0)
    found = terms_of(K.GEMM, (1, 1, 1, 1), cold, read=100.0, write=200.0, weights=400.0)
    assert (found["evicted_bytes"], found["cold_weight_bytes"]) == (200, 450)
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
        (K.GEMM, (1, 13, 17, 10), (96 * 3 * 2 * 10, 16 * 32 * 10, 6)),
        (K.BATCHED_GEMM, (5, 6, 16, 10), (5 * 96 * 10, 5 * 16 * 16 * 10, 5)),
        # Channels filled to 32 and 48; 2 x 7 lines, three blocks of 16 filters, six taps. As a
        # product: two images, 35 pixels in two blocks of 24, 40 filters in ten of 4, six taps of 20
        # channels.
        (K.CONV, CONV, (2 * 7 * 5 * 6 * 32 * 48, 2 * 7 * 3 * 6, 2 * 2 * 10 * 96 * 6 * 20)),
        (
            K.CONV_BACKWARD_DATA,
            CONV,
            (2 * 7 * 5 * 6 * 32 * 48, 2 * 7 * 3 * 6, 2 * 2 * 10 * 96 * 6 * 20),
        ),
        (K.CONV, (*CONV[:3], 4, *CONV[4:]), (4 * 2 * 7 * 5 * 6 * 16 * 16, 2 * 7 * 3 * 6, 8)),
        # Groups of 8 and 12 channels come four at a time.
        (K.CONV, (2, 32, 48, 4, *CONV[4:]), (4 * 2 * 7 * 5 * 6 * 8 * 3 * 16, 2 * 7 * 3 * 6, 8)),
        # The three channels of an image are not filled to 16.
        (
            K.CONV,
            (2, 3, *CONV[2:]),
            (2 * 7 * 5 * 6 * 3 * 48, 2 * 7 * 3 * 6, 2 * 2 * 10 * 96 * 6 * 3),
        ),
        (
            K.LAYER_NORM,
            (10, 100),
            (10, 10 * 7, 10 * 4),
        ),  # lines of 16 floats: seven, and four elements left over
        (K.SOFTMAX, (10, 16), (10, 10, 0)),
        (K.SOFTMAX, (10, 20), (10, 20, 10)),  # a part vector in each row, whatever it holds
        (K.REDUCTION, (10, 100, 0), (10, 70, 10 * 4)),  # three blocks of 32, four left over
        (K.BATCH_NORM, (50, 8), (8, 400, 0)),
        (K.POOLING, (2, 3, 64, 16, 9), (96, 864, 0)),  # few enough for the branch predictor
        (
            K.POOLING,
            (20, 100, 64, 10, 4),
            (20_000, 80_000, 10_000 * 13 / 12),
        ),  # new maxima: 1/2 + 1/3 + 1/4 of outputs
        (K.POOLING, (20, 300, 64, 10, 4), (60_000, 240_000, 60_000 * 13 / 12)),
        (K.OPTIMIZER, (1000, 2, 7), (7, 1000, 0)),
        (K.MOE_ROUTING, (12, 8, 2), (12, 96, 0)),
        (K.ELEMENTWISE, (77, 2, 1), (77, 0, 0)),
        (K.COPY, (77,), (77, 0, 0)),
        (
            K.LSTM,
            (3, 5, 7, 11, 2),
            (10, 10 * 3 * 11, 10 * 4 * 11 * 18 * 4),
        ),  # inputs' and states' weights each step
        (
            K.GRU,
            (3, 5, 7, 11, 1),
            (5, 5 * 33, 3 * 5 * 3 * 121 * 4),
        ),  # the states', once for each of three rows
        (K.TREE_ENSEMBLE, (1, 1, 1, 1), (0, 0, 0)),
    ],
)
def test_loops_are_counted(kind, dims, counts):
    found = terms_of(kind, dims)
    assert tuple(found[name] for name in COUNTS) == pytest.approx(counts, rel=0.01)


@pytest.mark.parametrize(("k", "pages"), [(512, 0.5), (1024, 1.0), (20_108, 1.0)])
def test_single_rows_wait_for_the_first_page_of_each_row_of_cold_weights(k, pages):
    graph = replace(
        row(K.GEMM, (1, 1, 600, k), dtype=Dtype.FP32), weight_bytes=np.array([2400.0 * k])
    )
    third = TERMS.index("rest_count")
    assert kernel_terms(graph, replace(HOT, reuse_bytes=np.inf))[0, third] == 600 * pages
    assert kernel_terms(graph, HOT)[0, third] == 0


def test_vectors_of_half_width_hold_twice_as_many():
    found = terms_of(K.LAYER_NORM, (10, 100), dtype=Dtype.BF16)
    assert tuple(found[name] for name in COUNTS) == (10, 10 * 4, 10 * 4)
    part = terms_of(K.SOFTMAX, (10, 50), dtype=Dtype.BF16)
    assert part["rest_count"] == 10 * 19  # sixteen, and two one by one
    assert terms_of(K.REDUCTION, (10, 100, 0), dtype=Dtype.BF16)["rest_count"] == 10 * 36


@pytest.mark.parametrize(
    ("name", "columns", "dtype", "phase", "part"),
    [
        (
            "_log_softmax",
            10,
            Dtype.FP32,
            Phase.FORWARD,
            10,
        ),  # shorter than a vector: element by element
        ("_log_softmax", 20, Dtype.FP32, Phase.FORWARD, 1),  # one part vector
        ("_log_softmax", 32, Dtype.FP32, Phase.FORWARD, 0),
        ("_log_softmax", 10, Dtype.BF16, Phase.FORWARD, 10),
        ("_log_softmax", 31, Dtype.BF16, Phase.FORWARD, 16),
        ("_log_softmax", 33, Dtype.BF16, Phase.FORWARD, 1),
        ("_softmax", 10, Dtype.BF16, Phase.FORWARD, 20),
        ("_softmax", 20, Dtype.BF16, Phase.FORWARD, 22),
        ("_softmax", 42, Dtype.BF16, Phase.FORWARD, 20),
        ("_masked_softmax", 42, Dtype.BF16, Phase.FORWARD, 42),
        ("_softmax", 15, Dtype.FP32, Phase.FORWARD, 15),
        ("_softmax_backward_data", 31, Dtype.BF16, Phase.BACKWARD, 16),
        ("_softmax_backward_data", 50, Dtype.BF16, Phase.BACKWARD, 1),
    ],
)
def test_rows_of_a_softmax_shorter_than_a_vector_are_taken_one_by_one(
    name, columns, dtype, phase, part
):
    graph = replace(
        row(K.SOFTMAX, (7, columns), dtype=dtype, phase=phase), name=(name,), variant=None
    )
    assert kernel_terms(graph, HOT)[0, TERMS.index("rest_count")] == 7 * part


@pytest.mark.parametrize(
    ("channels", "side", "apart", "back"),
    [
        (8, 14, 0.0, 0.0),  # all of it stays in the first-level cache
        (64, 35, 0.0, 1.0),  # a line for every pixel does not, one for every channel does
        (64, 32, 1.0, 1.0),  # planes of 4 KiB: all channels in one set
        (128, 64, 2.0, 1.0),  # planes of 16 KiB: in four sets of the second level, too
    ],
)
def test_small_images_are_resampled_by_way_of_copies_that_put_channels_together(
    channels, side, apart, back
):
    elements = channels * side * side
    found = terms_of(K.COPY, (elements, channels, side, side), read=elements, write=4.0 * elements)
    assert tuple(found[name] for name in COUNTS) == (elements, elements * apart, elements * back)


@pytest.mark.parametrize(("factor", "waits"), [(2, 0), (3, 9 * 640)])
def test_the_gradient_of_the_nearest_element_waits_where_more_than_pairs_add_up(factor, waits):
    fine = 640 * factor**2
    found = terms_of(
        K.COPY,
        (fine, 10, 8 * factor, 8 * factor),
        read=4.0 * fine,
        write=4.0 * 640,
        phase=Phase.BACKWARD,
    )
    assert tuple(found[name] for name in COUNTS) == (fine, waits, 0)


@pytest.mark.parametrize(
    ("table_rows", "reuse_bytes", "beyond_l2", "beyond_l3", "untranslated"),
    [
        (2_000, 1e9, 0.0, 0.0, 0.0),  # the table fits
        (12_500, 1e9, 0.5, 0.0, 0.0),
        (1_250_000, 0.0, 0.0, 0.0, 1.0),  # the rows stay, but not the places of the table's pages
        (1_250_000, 1e9, 1.0, 0.5, 1.0),
        (10_000_000, 1e9, 1.0, 1.0, 1.0),
    ],
)
def test_lookups_touch_lines_that_the_caches_do_not_hold(
    table_rows, reuse_bytes, beyond_l2, beyond_l3, untranslated
):
    context = replace(HOT, reuse_bytes=reuse_bytes)
    found = terms_of(
        K.EMBEDDING, (100, 20, table_rows), context=context
    )  # rows of 80 bytes: two lines
    expected = (100, 200 * beyond_l2 + 100 * untranslated, 200 * beyond_l3)
    assert tuple(found[name] for name in COUNTS) == pytest.approx(expected, rel=0.03)


def test_with_evicted_caches_lookups_start_from_the_last_level_and_twice_named_rows_count_once():
    found = terms_of(K.EMBEDDING_BAG, (10_000, 16, 100, 10), context=replace(HOT, evicted=1.0))
    assert tuple(found[name] for name in COUNTS) == pytest.approx((10_000, 100, 0))


@pytest.mark.parametrize(
    ("name", "dtype", "first", "left"),
    [
        ("sum.outer", Dtype.FP32, 6, 2),  # vectors of 8 floats
        ("sum.outer", Dtype.BF16, 3, 2),
        ("mean.outer", Dtype.BF16, 6, 2),  # of the copy in 32 bits
        ("amax.outer", Dtype.FP32, 1, 18),  # four vectors side by side
        ("amax.outer", Dtype.BF16, 0, 50),
    ],
)
def test_reductions_whose_innermost_axis_stays_go_stretch_by_stretch(name, dtype, first, left):
    graph = replace(row(K.REDUCTION, (3 * 50, 7, 50), dtype=dtype), name=(name,), variant=None)
    found = dict(zip(TERMS, kernel_terms(graph, HOT)[0].tolist(), strict=True))
    assert tuple(found[count] for count in COUNTS) == (21 * first, 21, 21 * left)
    kernel = {"sum.outer": "sum_rows", "mean.outer": "mean_outer", "amax.outer": "amax_outer"}[name]
    assert kernel_names(graph, is_training=False)[0] == kernel


@pytest.mark.parametrize("name", ["mean", "mse_loss", "amax"])
def test_a_reduction_of_single_elements_is_an_elementwise_loop(name):
    graph = replace(
        row(K.ELEMENTWISE, (1000, 1, 1), read=4000.0, write=4000.0), name=(name,), variant=None
    )
    assert kernel_names(graph, is_training=False)[0] == "mul_scalar"


def test_a_mean_in_16_bits_goes_through_a_copy_in_32():
    elements = 10_000_000.0
    wide, narrow = (
        replace(
            row(K.REDUCTION, (100_000, 100), dtype=dtype, read=elements * size),
            name=("mean",),
            variant=None,
        )
        for dtype, size in ((Dtype.FP32, 4), (Dtype.BF16, 2))
    )
    moved = [
        kernel_terms(graph, HOT)[0, TERMS.index("bytes_beyond_l2")] for graph in (wide, narrow)
    ]
    assert moved == [4 * elements, 10 * elements]


@pytest.mark.parametrize(
    ("q_len", "causal", "share", "block"),
    [
        (100, 0, 1.0, 32),
        (100, 1, 0.5 + 16 / 100, 32),
        (192, 1, 0.5 + 32 / 192, 64),
        (768, 1, 0.5 + 128 / 768, 256),
        (1, 1, 1.0, 32),
        (20, 1, 1.0, 32),
    ],
)
def test_blocked_attention_computes_half_and_its_diagonal_blocks(q_len, causal, share, block):
    found = terms_of(K.ATTENTION, (2, 4, 4, q_len, 600, 64, 64, causal, 0, 0), flop=1e6)
    assert found["flop"] == pytest.approx(1e6 * share)
    assert found["loop_count"] == pytest.approx(8 * q_len * 600 * share)
    assert found["inner_count"] == 8
    assert found["rest_count"] == 8 * np.ceil(q_len / block) * 2  # 600 keys: two blocks of 512


# -- kernels


def kernel(kind, dims, *, training=False, threads=1, **columns) -> str:
    return str(kernel_names(row(kind, dims, **columns), is_training=training, threads=threads)[0])


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


@pytest.mark.parametrize(
    ("dims", "options", "name"),
    [
        (conv(window=(1, 1)), {}, "conv_1x1_native"),
        (conv(window=(1, 1), batch=16), {}, "conv_1x1"),  # sixteen images go to the library
        (conv(window=(1, 1), batch=15), {}, "conv_1x1_native"),
        (conv(), {}, "conv_native"),  # 8 x 64 elements
        (conv(channels=320), {}, "conv_native"),  # 20,480 elements
        (conv(channels=321), {}, "conv"),
        (conv(batch=2), {}, "conv"),
        (conv(window=(5, 5)), {}, "conv"),
        (conv(window=(5, 3)), {}, "conv_native"),
        (conv(window=(1, 1), channels=321), {}, "conv_1x1_native"),
        (conv(window=(1, 1), channels=321), {"threads": 2}, "conv_1x1"),
        (conv(window=(1, 1), channels=321, stride=2), {}, "conv_1x1"),
        (conv(), {"dtype": Dtype.BF16}, "conv"),
        (conv(groups=8), {}, "conv_depthwise"),
        (conv(groups=4), {}, "conv_grouped_plain"),  # two channels a group
        (conv(channels=32, groups=4), {}, "conv_grouped"),
        (depthwise_row(13), {}, "conv_depthwise_1d"),
    ],
)
def test_convolutions_by_the_library_that_runs_them(dims, options, name):
    assert kernel(K.CONV, dims, **options) == name


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
    ("dims", "options", "name"),
    [
        (volume(channels=128), {}, "conv_volume_native"),  # 128 x 4 x 28: the width does not count
        (volume(channels=183), {}, "conv"),
        (volume(channels=128, batch=2), {}, "conv"),
        (volume(channels=512, depth=1, size=7), {}, "conv_volume_native"),
        (volume(channels=128), {"dtype": Dtype.BF16}, "conv"),
    ],
)
def test_small_volumes_are_the_frameworks_own(dims, options, name):
    assert kernel(K.CONV, dims, **options) == name


@pytest.mark.parametrize(
    ("channels", "batch", "dtype", "name"),
    [
        (320, 1, Dtype.FP32, "conv_transpose_native"),  # 20,480 elements
        (321, 1, Dtype.FP32, "conv_transpose"),
        (8, 2, Dtype.FP32, "conv_transpose"),
        (8, 1, Dtype.BF16, "conv_transpose"),
    ],
)
def test_small_transposed_convolutions_are_the_frameworks_own(channels, batch, dtype, name):
    assert kernel(K.CONV_TRANSPOSE, conv(channels, batch=batch), dtype=dtype) == name


@pytest.mark.parametrize("kind", [K.CONV, K.CONV_BACKWARD_DATA, K.CONV_BACKWARD_WEIGHT])
@pytest.mark.parametrize(
    ("dims", "share"),
    [
        (volume(depth=1, batch=2), 1 / 3),
        (volume(depth=2, batch=2), 4 / 6),
        (volume(depth=8, batch=2), 22 / 24),
        (
            volume(depth=8, batch=2, stride=2),
            11 / 12,
        ),  # four positions, of which the first sees a plane of padding
        (volume(depth=8, batch=2, window=1), 1.0),
        (volume(depth=2), 1.0),  # the framework unfolds the padding too
        (conv(16, batch=2), 1.0),
    ],
)
def test_the_library_skips_planes_of_padding(kind, dims, share):
    found, whole = (
        terms_of(kind, dims, flop=1200.0),
        dims[0] * np.prod(dims[7:10]) * np.prod(dims[10:13]),
    )
    assert found["flop"] == pytest.approx(1200.0 * share)
    channels = np.ceil(dims[1] / 16) * 16
    assert found["loop_count"] == pytest.approx(whole * channels**2 * share)


@pytest.mark.parametrize(
    ("kind", "dims", "name"),
    [
        (K.CONV_BACKWARD_DATA, conv(), "conv_grad_input_native"),
        (K.CONV_BACKWARD_DATA, conv(batch=2), "conv_grad_input"),
        (K.CONV_BACKWARD_WEIGHT, conv(batch=2), "conv_grad_weight"),
        (K.CONV_BACKWARD_WEIGHT, conv(groups=8), "conv_grad_weight_depthwise"),
    ],
)
def test_gradients_of_convolutions_have_kernels_of_their_own(kind, dims, name):
    assert kernel(kind, dims, phase=Phase.BACKWARD) == name


@pytest.mark.parametrize(
    ("kind", "dims", "dtype", "is_plain"),
    [
        (K.CONV_BACKWARD_DATA, conv(groups=8, stride=2), Dtype.BF16, True),
        (K.CONV_BACKWARD_DATA, conv(groups=8, window=(5, 5)), Dtype.BF16, False),
        (K.CONV_BACKWARD_DATA, conv(groups=8, stride=2), Dtype.FP32, False),
        (K.CONV_BACKWARD_WEIGHT, conv(groups=8, window=(5, 5)), Dtype.BF16, True),
        (K.CONV_BACKWARD_WEIGHT, conv(groups=8, window=(5, 5)), Dtype.FP32, True),
        (K.CONV_BACKWARD_WEIGHT, conv(groups=8, stride=2), Dtype.BF16, False),
    ],
)
def test_depthwise_gradients_without_generated_code(kind, dims, dtype, is_plain):
    assert kernel(kind, dims, phase=Phase.BACKWARD, dtype=dtype).endswith("_plain") == is_plain


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
    ("name", "height", "width", "expected"),
    [
        ("upsample_bilinear2d", 64, 64, "upsample_bilinear2d"),
        ("upsample_bilinear2d", 64, 65, "upsample_bilinear2d_wide"),
        ("_upsample_nearest_exact2d", 100, 100, "upsample_nearest2d_wide"),
        ("upsample_nearest2d_backward", 100, 100, "upsample_nearest2d_backward"),
        (
            "upsample_bilinear2d.strided",
            64,
            64,
            "upsample_bilinear2d",
        ),  # whatever the layout of what it reads
        ("clone", 0, 0, "clone"),
        ("pixel_unshuffle", 0, 0, "pixel_shuffle"),
    ],
)
def test_wide_images_are_resampled_line_by_line(name, height, width, expected):
    graph = replace(row(K.COPY, (8 * height * width, 8, height, width)), name=(name,), variant=None)
    assert str(kernel_names(graph, is_training=False)[0]) == expected


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
        (K.COPY, (8,), "native_layer_norm.clone.strided", "clone_strided"),
        (K.COPY, (8,), "convolution.clone", "clone"),
        (K.COPY, (8,), "col2im", "col2im"),
        (K.COPY, (8,), "_softmax.clone", "clone"),
        (K.COPY, (8,), "_softmax.clone.strided", "clone_strided"),
        (K.COPY, (8,), "_softmax_backward_data.clone.strided", "clone_strided"),
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


def test_new_maxima_grow_with_the_logarithm_of_a_window():
    taps = 2**22
    unknown = [
        terms_of(K.POOLING, (1, 1, taps, taps // k, k))["rest_count"] / (taps // k)
        for k in (2, 8, 64)
    ]
    assert unknown == pytest.approx(
        [sum(1 / n for n in range(2, k + 1)) for k in (2, 8, 64)], rel=0.05
    )


@pytest.mark.parametrize(
    ("n", "dtype", "columns"), [(1, "fp32", 1), (3, "fp32", 8), (5, "fp32", 16), (3, "bf16", 16)]
)
def test_columns_that_a_product_is_filled_to(n, dtype, columns):
    graph = replace(
        row(K.GEMM, (1, 96, n, 10)), dtype=np.array([int(Dtype[dtype.upper()])], dtype=np.int8)
    )
    assert kernel_terms(graph, HOT)[0, TERMS.index("loop_count")] == 96 * columns * 10


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
    ("m", "dtype", "passes"),
    [(1, Dtype.FP32, 1), (3, Dtype.FP32, 3), (4, Dtype.FP32, 1), (3, Dtype.BF16, 1)],
)
def test_few_rows_go_through_all_weights_one_by_one(m, dtype, passes):
    """The first pass finds the weights where they are, others in the cache that holds them."""
    small, large = (row(K.GEMM, (1, m, 64, 64), dtype=dtype, weights=size) for size in (1e4, 1e10))
    for graph, far in ((small, 0), (large, passes - 1)):
        found = dict(zip(TERMS, kernel_terms(graph, HOT)[0], strict=True))
        size = float(graph.weight_bytes[0])
        assert found["weight_bytes"] == passes * size
        assert found["cold_weight_bytes"] == far * size


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
    ("kind", "channels", "dtype", "filled"),
    [
        (K.CONV, 4, Dtype.FP32, 4),
        (K.CONV, 15, Dtype.FP32, 15),
        (K.CONV, 17, Dtype.FP32, 32),
        (K.CONV_BACKWARD_DATA, 15, Dtype.FP32, 16),
        (K.CONV_BACKWARD_WEIGHT, 3, Dtype.FP32, 3),
        (K.CONV_BACKWARD_WEIGHT, 4, Dtype.FP32, 16),
        (K.CONV_BACKWARD_WEIGHT, 4, Dtype.BF16, 4),
    ],
)
def test_few_channels_are_filled_in_gradients_alone(kind, channels, dtype, filled):
    graph = row(kind, conv(channels, batch=2, window=(8, 8), outputs=32), dtype=dtype)
    assert kernel_terms(graph, HOT)[0, TERMS.index("loop_count")] == 2 * 8 * 8 * 8 * 8 * 32 * filled
