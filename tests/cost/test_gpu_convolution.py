"""Convolution algorithms: tiles and blocks counted by hand, and what decides between the
algorithms.
"""

import numpy as np
import pytest
from gpu_rows import K, conv, gpu, graph

from accelsim.cost.gpu import GpuMachine, GpuParameters
from accelsim.cost.gpu.model import cost_gpu
from accelsim.dtype import Dtype

#: No limit on the clock, latency or direct kernel beside the arithmetic.
BARE = GpuParameters.class_wide().with_values(
    {
        "convolution.winograd_efficiency": 0.5,
        "convolution.vector_efficiency": 0.5,
        "convolution.direct_efficiency": 1e-3,
        "gemm.prologue_k": 8.0,
        "gemm.latency_s": 0.0,
        "gemm.overlap_exponent": 100.0,
        "power.vector_energy_overhead": 1.0,
    }
)


def compute_s(device, *rows, parameters=BARE):
    return cost_gpu(graph(list(rows)), gpu(device), parameters=parameters).compute_s


def peak(device):
    return GpuMachine.of(gpu(device), BARE).vector_flop_per_s


def test_implicit_gemm_takes_waves_of_tiles():
    """200 tiles of 128 positions x 128 channels are three on the busiest of 80 SMs, 400 of 128 x 64
    are five, 800 ten.

    A tile costs its elements and six rows or columns for each of its edges.
    """
    seconds = compute_s("v100-sxm2-16gb", conv(16, 64, 128, 80, window=5, stride=2))[0]
    wide, narrow = 3 * (128 * 128 + 6 * 256), 5 * (128 * 64 + 6 * 192)
    depth = 64 * 25 + 8
    assert seconds == pytest.approx(
        2 * 80 * min(wide, narrow) * depth / (0.5 * peak("v100-sxm2-16gb")), rel=1e-6
    )


def test_no_convolution_splits_its_contraction():
    """One image of 7 x 7 is one row of tiles however long the contraction: each of 16 SMs walks all
    of it.
    """
    short, long = compute_s(
        "v100-sxm2-16gb", conv(1, 1024, 512, 7, window=1), conv(1, 2048, 512, 7, window=1)
    )
    assert long / short == pytest.approx((2048 + 8) / (1024 + 8), rel=1e-6)


def test_fused_winograd_takes_blocks_of_32_channels_and_8_x_16_outputs():
    """64 images of 16 x 16, 40 channels: 2 x 64 x 2 blocks, four on the busiest SM; 17 channels are
    three steps of eight.
    """
    costs = cost_gpu(
        graph([conv(64, 17, 40, 16)]),
        gpu("v100-sxm2-16gb"),
        parameters=BARE.with_values({"convolution.transformed_efficiency": 0.01}),
    )
    flop = 2 * 16 / 4 * 128 * 32 * (24 + 8)
    assert costs.compute_s[0] == pytest.approx(
        4 * 80 * flop / (0.5 * peak("v100-sxm2-16gb")), rel=1e-6
    )
    assert costs.flop[0] == pytest.approx(2.0 * 64 * 256 * 17 * 40 * 9 / 2.25 / 0.5)


def test_early_boards_cover_small_maps_of_several_images_at_once():
    """A map of 4 x 8 fills a quarter of a block of one image."""
    machines = [GpuMachine.of(gpu(name), BARE) for name in ("p100-pcie-16gb", "v100-sxm2-16gb")]
    early, later = (set(machine.generation.winograd_covers) for machine in machines)
    assert later < early
    assert all(images * height * width == 128 for images, height, width in early)


def test_wide_layers_take_the_unfused_transform_and_pay_its_tiles_in_memory():
    costs = cost_gpu(graph([conv(32, 512, 512, 28), conv(32, 8, 8, 28)]), gpu("v100-sxm2-16gb"))
    layer = 2.0 * 32 * 28 * 28 * 9 * np.array([512.0**2, 8.0**2])
    executed = layer / costs.flop
    assert executed[0] > 2.25 > executed[1]
    assert costs.bytes[0] > 2 * 36 * 4.0 * 32 * 49 * 1024


def test_a_strided_1x1_gradient_multiplies_half_of_the_zeros():
    kinds = (K.CONV, K.CONV_BACKWARD_DATA)
    forward, gradient = compute_s(
        "v100-sxm2-16gb", *(conv(64, 512, 512, 56, window=1, stride=2, kind=kind) for kind in kinds)
    )
    assert gradient / forward == pytest.approx(2.5, rel=0.1)


@pytest.mark.parametrize("kind", [K.CONV, K.CONV_BACKWARD_DATA, K.CONV_BACKWARD_WEIGHT])
def test_only_gradients_that_are_implicit_gemms_are_slower_than_the_forward_pass(kind):
    slow = BARE.with_values({"convolution.backward_efficiency": 0.3})
    row = conv(32, 256, 256, 14, kind=kind)
    assert (
        compute_s("v100-sxm2-16gb", row)[0] == compute_s("v100-sxm2-16gb", row, parameters=slow)[0]
    )


def test_a_few_tiles_more_are_no_second_wave_of_matrix_cores():
    """16 images are 196 tiles of 64 x 64 for 208 compute units, 17 are 212."""
    rows = [conv(batch, 256, 256, 14, dtype=Dtype.FP16) for batch in (16, 17)]
    few, more = cost_gpu(graph(rows, Dtype.FP16), gpu("mi250")).time_s
    assert few <= more < 1.25 * 17 / 16 * few
