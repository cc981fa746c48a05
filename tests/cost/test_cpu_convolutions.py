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
    ("dims", "is_unfolded"),
    [
        (image(64, 32, 42, 3, gap=10), False),
        (image(64, 32, 42, 3, gap=12), True),
        (image(64, 80, 42, 3, gap=4), False),  # five blocks together leave few registers
        (image(64, 80, 42, 3, gap=6), True),
        (image(64, 208, 42, 3, gap=15), False),
        (image(64, 208, 42, 3, gap=16), True),
        (image(64, 80, 42, 3, batch=1, gap=28), False),  # a single image has them to itself
        (image(64, 80, 42, 3, batch=1, gap=30), True),
        (image(64, 112, 42, 3, batch=1, gap=16), True),
    ],
)
def test_windows_with_gaps_are_unfolded_where_the_padding_exceeds_the_registers(dims, is_unfolded):
    assert kernel(K.CONV, dims) == ("conv_unfolded" if is_unfolded else "conv")


@pytest.mark.parametrize(
    ("dims", "dtype", "is_unfolded"),
    [
        (sequence(16, 32, 400, 14), Dtype.FP32, False),
        (sequence(16, 32, 400, 15), Dtype.FP32, True),
        (sequence(1, 32, 400, 15, stride=4), Dtype.FP32, True),
        (sequence(1, 32, 400, 21), Dtype.BF16, False),
        (sequence(1, 32, 400, 25), Dtype.BF16, True),
        (sequence(16, 32, 400, 15), Dtype.BF16, True),
        (sequence(64, 64, 400, 3, gap=16), Dtype.FP32, False),
        (sequence(64, 64, 400, 3, gap=32), Dtype.FP32, True),
        (sequence(64, 64, 400, 3, gap=32), Dtype.BF16, False),
        (causal(784, 7, 4), Dtype.FP32, False),
        (causal(784, 7, 8), Dtype.FP32, True),
        (causal(784, 7, 64), Dtype.BF16, False),
        (image(64, 64, 24, 3, gap=8), Dtype.FP32, False),
        (image(64, 64, 24, 3, gap=16), Dtype.FP32, True),
        (image(64, 64, 24, 3, gap=16), Dtype.BF16, True),
        (image(10, 32, 20, 3), Dtype.BF16, False),
        (image(10, 18, 20, 3), Dtype.BF16, True),
        (image(10, 18, 20, 3), Dtype.FP32, False),
        (image(24, 18, 20, 3), Dtype.BF16, False),
    ],
)
def test_gradients_of_weights_without_generated_code_are_unfolded(dims, dtype, is_unfolded):
    expected = "conv_grad_weight_unfolded" if is_unfolded else "conv_grad_weight"
    assert kernel(K.CONV_BACKWARD_WEIGHT, dims, dtype) == expected


@pytest.mark.parametrize(
    ("dims", "dtype", "is_unfolded"),
    [
        (sequence(16, 32, 400, 17), Dtype.FP32, False),
        (sequence(16, 32, 400, 20), Dtype.FP32, True),
        (sequence(16, 32, 400, 20, stride=2), Dtype.FP32, False),
        (sequence(64, 64, 400, 3, gap=4), Dtype.FP32, False),
        (sequence(64, 64, 400, 3, gap=8), Dtype.FP32, True),
        (sequence(64, 64, 400, 5, gap=4), Dtype.BF16, False),
        (sequence(64, 64, 400, 5, gap=8), Dtype.BF16, True),
        (image(16, 32, 40, 3, gap=16), Dtype.FP32, False),
        (image(16, 32, 40, 5, gap=16), Dtype.FP32, True),
        (image(16, 32, 12, 3, gap=16), Dtype.FP32, True),
        (causal(784, 7, 64), Dtype.FP32, False),
        (causal(784, 7, 64), Dtype.BF16, False),
    ],
)
def test_gradients_of_images_padded_beyond_the_registers_are_unfolded(dims, dtype, is_unfolded):
    expected = "conv_grad_input_unfolded" if is_unfolded else "conv_grad_input"
    assert kernel(K.CONV_BACKWARD_DATA, dims, dtype) == expected


def test_unfolded_images_are_copied_for_every_tap_and_multiply_the_weights_again():
    dims = image(960, 256, 20, 3, batch=3, gap=24)
    assert term("partial_bytes", K.CONV, dims) == 3 * 960 * 9 * 400 * 4
    assert term("weight_bytes", K.CONV, dims, weights=1e6) == 3e6
    assert term("weight_bytes", K.CONV, image(960, 256, 20, 3, batch=3), weights=1e6) == 1e6
    wide = sequence(1, 128, 32000, 80, batch=8, stride=4)
    columns = 8 * 80 * 8000 * 2
    assert (
        term("partial_bytes", K.CONV_BACKWARD_WEIGHT, wide, dtype=Dtype.BF16, phase=Phase.BACKWARD)
        == columns
    )


@pytest.mark.parametrize(
    ("inputs", "outputs", "laid"), [(512, 256, 512 * 256 * 16), (517, 256, 0), (512, 218, 0)]
)
def test_transposed_convolutions_lay_out_filters_of_whole_blocks(inputs, outputs, laid):
    """EPYC 9005, 16 bits: 1.15 ns a weight of 576 to 256 channels, 0.5 of 982 to 346."""
    dims = (3, inputs, outputs, 1, 1, 2, 2, 1, 4, 4, 1, 4, 4, 2, 1)
    assert term("third_count", K.CONV_TRANSPOSE, dims, dtype=Dtype.BF16) == laid


def test_the_frameworks_own_transposed_convolution_adds_up_columns():
    dims = (1, 32, 48, 1, 1, 3, 3, 1, 6, 6, 1, 2, 2, 2, 1)
    assert kernel(K.CONV_TRANSPOSE, dims) == "conv_transpose_native"
    assert term("second_count", K.CONV_TRANSPOSE, dims) == 9 * 4 * 48
    assert term("third_count", K.CONV_TRANSPOSE, dims) == 32 * 48 * 4
    assert (
        term("third_count", K.CONV_TRANSPOSE, (*dims[:5], 1, 1, 1, 2, 2, *dims[10:])) == 0
    )  # a single pixel


def test_generated_code_skips_the_taps_of_windows_with_gaps_that_lie_in_the_padding():
    def terms(gap, kernel=3):
        dims = (2, 32, 48, 1, 1, 20, 20, 1, 20, 20, 1, kernel, kernel, 1, gap)
        graph = row(K.CONV, dims, flop=1e6, read=1e3, write=1e3)
        return kernel_terms(graph, HOT)[0, [TERMS.index("flop"), TERMS.index("first_count")]]

    left = (
        (20 + 2 * 8) / (20 + 2 * 19)
    ) ** 2  # pixels under the taps of each axis with gaps of 12, and without
    assert terms(12) / terms(1) == pytest.approx(left)
    assert terms(12, kernel=1) == pytest.approx(terms(1, kernel=1))
    assert terms(24)[0] == 1e6  # unfolded, and multiplied whole


def test_lines_shorter_than_their_padding_are_unfolded():
    """As dispatched by oneDNN 3.12, in both formats."""

    def kernel(side, gap):
        graph = row(K.CONV, (2, 64, 64, 1, 1, side, side, 1, side, side, 1, 3, 3, 1, gap))
        return str(kernel_names(graph, is_training=False)[0])

    assert [kernel(14, 14), kernel(14, 15), kernel(20, 20), kernel(20, 21)] == [
        "conv",
        "conv_unfolded",
    ] * 2


def test_steps_that_differ_between_axes_pad_no_axis_by_more_than_its_window():
    spectrogram = (
        4,
        1,
        276,
        1,
        1,
        58,
        13,
        1,
        25,
        10,
        1,
        10,
        4,
        2,
        1,
    )  # steps of two in time, of one in frequency
    assert kernel(K.CONV, spectrogram) == "conv"


@pytest.mark.parametrize("dtype", [Dtype.FP32, Dtype.BF16])
def test_gradients_of_depthwise_volumes_are_unfolded(dtype):
    """As dispatched by oneDNN 3.12, in both formats; forward they have generated code."""
    volume, plane = (
        (1, 108, 108, 108, d, 20, 20, d, 20, 20, taps, 3, 3, 1, 1) for d, taps in ((13, 3), (1, 1))
    )
    gradients = {
        K.CONV_BACKWARD_DATA: "conv_grad_input",
        K.CONV_BACKWARD_WEIGHT: "conv_grad_weight",
    }
    for kind, name in gradients.items():
        assert kernel(kind, volume, dtype) == f"{name}_unfolded"
        assert kernel(kind, plane, dtype) == f"{name}_depthwise"
    assert kernel(K.CONV, volume, dtype) == "conv_depthwise_volume"


@pytest.mark.parametrize(("height", "share"), [(4, 4 / 11), (2, 2 / 11), (12, 1.0)])
def test_taps_of_a_window_larger_than_the_image_are_skipped(height, share):
    dims = (8, 32, 32, 1, 1, height, 48, 1, height, 48, 1, 11, 11, 1, 1)
    assert term("flop", K.CONV, dims, flop=1.0) == pytest.approx(share)


@pytest.mark.parametrize("dtype", [Dtype.FP32, Dtype.BF16])
def test_gradients_of_depthwise_windows_with_gaps_are_unfolded(dtype):
    """As dispatched by oneDNN 3.12, in both formats; forward they have generated code."""
    gaps = (1, 64, 64, 64, 1, 28, 28, 1, 28, 28, 1, 3, 3, 1, 2)
    assert kernel(K.CONV_BACKWARD_DATA, gaps, dtype) == "conv_grad_input_unfolded"
    assert kernel(K.CONV_BACKWARD_WEIGHT, gaps, dtype) == "conv_grad_weight_unfolded"
    assert kernel(K.CONV, gaps, dtype) == "conv_depthwise"


@pytest.mark.parametrize("dtype", [Dtype.FP32, Dtype.BF16])
def test_several_filters_for_each_channel_are_groups_without_generated_code(dtype):
    """As dispatched by oneDNN 3.12: 2, 4 and 8 filters a channel, in both formats and all
    passes.
    """
    for filters in (2, 4, 8):
        dims = (2, 32, 32 * filters, 32, 1, 28, 28, 1, 28, 28, 1, 3, 3, 1, 1)
        assert kernel(K.CONV, dims, dtype) == "conv_grouped_plain"
        assert kernel(K.CONV_BACKWARD_DATA, dims, dtype) == "conv_grad_input_unfolded"
        assert kernel(K.CONV_BACKWARD_WEIGHT, dims, dtype) == "conv_grad_weight_unfolded"


@pytest.mark.parametrize(
    ("width", "single", "half"),
    [(4, True, True), (8, False, True), (12, True, True), (16, False, False), (24, False, True)],
)
def test_gradients_of_weights_take_groups_of_whole_blocks(width, single, half):
    """As dispatched by oneDNN 3.12: blocks of eight channels have code in 32 bits, of sixteen in 16
    bits.
    """
    dims = (2, 8 * width, 8 * width, 8, 1, 14, 14, 1, 14, 14, 1, 3, 3, 1, 1)
    for dtype, is_unfolded in ((Dtype.FP32, single), (Dtype.BF16, half)):
        found = kernel(K.CONV_BACKWARD_WEIGHT, dims, dtype)
        assert found == ("conv_grad_weight_unfolded" if is_unfolded else "conv_grad_weight")


def test_depthwise_transposed_convolutions_multiply_single_channels_in_fp32():
    dims = (1, 64, 64, 64, 1, 32, 32, 1, 64, 64, 1, 4, 4, 2, 1)
    assert term("first_count", K.CONV_TRANSPOSE, dims) == 64 * 32**2 * 16 * 16
    assert term("first_count", K.CONV_TRANSPOSE, dims, dtype=Dtype.BF16) == 64 * 32**2 * 16 * 16**2


@pytest.mark.parametrize("filters", [16, 1024])
def test_a_small_convolution_copies_a_line_for_each_tap_of_each_channel_whatever_its_filters(
    filters,
):
    dims = (1, 3, filters, 1, 1, 1532, 1, 1, 256, 1, 1, 512, 1, 4, 1)
    assert kernel(K.CONV, dims) == "conv_native"
    assert term("second_count", K.CONV, dims) == 256 * 3 * 512
