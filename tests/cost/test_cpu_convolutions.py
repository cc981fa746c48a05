"""Code that runs convolutions and their gradients, as dispatched by oneDNN 3.12 on an EPYC 9005,
and its work.
"""

from __future__ import annotations

import pytest
from operator_cases import row

from accelsim.cost.cpu.kernel_terms import TERMS, Context, kernel_terms
from accelsim.cost.cpu.kernels import kernel_names
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


def image(channels, outputs, side, kernel, *, batch=2, stride=1, gap=1) -> tuple[int, ...]:
    out = -(-side // stride)
    return (batch, channels, outputs, 1, 1, side, side, 1, out, out, 1, kernel, kernel, stride, gap)


def sequence(channels, outputs, length, kernel, *, batch=2, stride=1, gap=1) -> tuple[int, ...]:
    return (
        batch,
        channels,
        outputs,
        1,
        1,
        1,
        length,
        1,
        1,
        -(-length // stride),
        1,
        1,
        kernel,
        stride,
        gap,
    )


def causal(length, kernel, gap) -> tuple[int, ...]:
    """Padded on both sides by the whole window; what looks ahead is cut off later."""
    return (2, 64, 64, 1, 1, 1, length, 1, 1, length + (kernel - 1) * gap, 1, 1, kernel, 1, gap)


def kernel(kind, dims, dtype=Dtype.FP32) -> str:
    phase = Phase.FORWARD if kind == K.CONV else Phase.BACKWARD
    return str(kernel_names(row(kind, dims, dtype=dtype, phase=phase), is_training=False)[0])


def term(name, kind, dims, **columns) -> float:
    return float(kernel_terms(row(kind, dims, **columns), HOT)[0, TERMS.index(name)])


@pytest.mark.parametrize(
    ("inputs", "outputs", "laid"), [(512, 256, 512 * 256 * 16), (517, 256, 0), (512, 218, 0)]
)
def test_transposed_convolutions_lay_out_filters_of_whole_blocks(inputs, outputs, laid):
    """EPYC 9005, 16 bits: 1.15 ns a weight of 576 to 256 channels, 0.5 of 982 to 346."""
    dims = (3, inputs, outputs, 1, 1, 2, 2, 1, 4, 4, 1, 4, 4, 2, 1)
    assert term("rest_count", K.CONV_TRANSPOSE, dims, dtype=Dtype.BF16) == laid


def test_the_frameworks_own_transposed_convolution_adds_up_columns():
    dims = (1, 32, 48, 1, 1, 3, 3, 1, 6, 6, 1, 2, 2, 2, 1)
    assert kernel(K.CONV_TRANSPOSE, dims) == "conv_transpose_native"
    assert term("inner_count", K.CONV_TRANSPOSE, dims) == 9 * 4 * 48
    assert term("rest_count", K.CONV_TRANSPOSE, dims) == 32 * 48 * 4
    assert (
        term("rest_count", K.CONV_TRANSPOSE, (*dims[:5], 1, 1, 1, 2, 2, *dims[10:])) == 0
    )  # a single pixel


def test_generated_code_skips_the_taps_of_windows_with_gaps_that_lie_in_the_padding():
    def terms(gap, kernel=3):
        dims = (2, 32, 48, 1, 1, 20, 20, 1, 20, 20, 1, kernel, kernel, 1, gap)
        graph = row(K.CONV, dims, flop=1e6, read=1e3, write=1e3)
        return kernel_terms(graph, HOT)[0, [TERMS.index("flop"), TERMS.index("loop_count")]]

    left = (
        (20 + 2 * 8) / (20 + 2 * 19)
    ) ** 2  # pixels under the taps of each axis with gaps of 12, and without
    assert terms(12) / terms(1) == pytest.approx(left)
    assert terms(12, kernel=1) == pytest.approx(terms(1, kernel=1))


@pytest.mark.parametrize(("height", "share"), [(4, 4 / 11), (2, 2 / 11), (12, 1.0)])
def test_taps_of_a_window_larger_than_the_image_are_skipped(height, share):
    dims = (8, 32, 32, 1, 1, height, 48, 1, height, 48, 1, 11, 11, 1, 1)
    assert term("flop", K.CONV, dims, flop=1.0) == pytest.approx(share)


@pytest.mark.parametrize("dtype", [Dtype.FP32, Dtype.BF16])
def test_several_filters_for_each_channel_are_groups_without_generated_code(dtype):
    """As dispatched by oneDNN 3.12: 2, 4 and 8 filters a channel, in both formats."""
    for filters in (2, 4, 8):
        dims = (2, 32, 32 * filters, 32, 1, 28, 28, 1, 28, 28, 1, 3, 3, 1, 1)
        assert kernel(K.CONV, dims, dtype) == "conv_grouped_plain"


def test_depthwise_transposed_convolutions_multiply_single_channels_in_fp32():
    dims = (1, 64, 64, 64, 1, 32, 32, 1, 64, 64, 1, 4, 4, 2, 1)
    assert term("loop_count", K.CONV_TRANSPOSE, dims) == 64 * 32**2 * 16 * 16
    assert term("loop_count", K.CONV_TRANSPOSE, dims, dtype=Dtype.BF16) == 64 * 32**2 * 16 * 16**2


@pytest.mark.parametrize("filters", [16, 1024])
def test_a_small_convolution_copies_a_line_for_each_tap_of_each_channel_whatever_its_filters(
    filters,
):
    dims = (1, 3, filters, 1, 1, 1532, 1, 1, 256, 1, 1, 512, 1, 4, 1)
    assert kernel(K.CONV, dims) == "conv_native"
    assert term("inner_count", K.CONV, dims) == 256 * 3 * 512
