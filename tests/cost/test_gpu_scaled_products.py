"""FP8 and FP4 products whose weights come with a scale per block, worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest
from gpu_rows import gpu

from accelsim.cost.gpu import GpuParameters
from accelsim.cost.gpu.machine import GpuMachine, join_times
from accelsim.cost.gpu.model import cost_gpu
from accelsim.dtype import Dtype
from accelsim.scoreboard.columns import gemm_graph

CLASS = GpuParameters.class_wide()
BF16_BYTES = 2


def cost(m, n, k, board, *, scaled=True, dtype=Dtype.FP8):
    column = [np.array([float(size)]) for size in (1, m, n, k)]
    graph = gemm_graph(*column, dtype, batched=np.array([False]), weight=dtype, output=Dtype.BF16)
    scales = n * k / 128**2 * 4 if scaled else 0.0
    return cost_gpu(
        replace(graph, weight_bytes=graph.weight_bytes + scales), gpu(board), parameters=CLASS
    )


def test_one_tile_of_32_rows_on_ada_waits_for_the_cache():
    """4096 x 4096 x 4096 on an L40S: 128 x 32 tiles, each of which reads 32 + 128 lines of 4096
    bytes.
    """
    board = gpu("l40s")
    read = 128 * 32 * (32 + 128) * 4096
    rate = 13.0 * board.sm_count.value * board.boost_clock_hz.value
    assert cost(4096, 4096, 4096, "l40s").compute_s[0] == pytest.approx(read / rate)
    assert cost(4096, 4096, 4096, "l40s", scaled=False).compute_s[0] < 0.7 * read / rate


@pytest.mark.parametrize("board", ["l40s", "rtx-pro-6000-blackwell", "h100-sxm-80gb"])
def test_a_few_tiles_walk_the_whole_contraction(board):
    """Kernels for block scales never split k: twice the length takes twice the time of a lone row
    of tiles.
    """
    short, long = (cost(16, 128, k, board).compute_s[0] for k in (8192, 16384))
    assert long == pytest.approx(2 * short, rel=0.01)
    assert cost(16, 128, 16384, board, scaled=False).compute_s[0] < 0.5 * long


@pytest.mark.parametrize(
    ("board", "dtype"), [("l40s", Dtype.FP8), ("b200-sxm", Dtype.FP8), ("b200-sxm", Dtype.FP4)]
)
def test_the_input_is_quantised_before_the_product(board, dtype):
    """A kernel more, which reads BF16 and writes the narrow format: from the cache, or from memory
    where that is faster.
    """
    machine = GpuMachine.of(gpu(board), CLASS)
    m, k = 1024, 1024
    moved = m * k * (BF16_BYTES + dtype.bytes)
    assert moved < 0.5 * machine.l2_bytes
    found = cost(m, 512, k, board, dtype=dtype)
    product_s = (
        join_times(found.compute_s, found.memory_s, CLASS.gemm.overlap_exponent)
        + CLASS.gemm.latency_s
    )
    rate = max(8.0 * machine.sm_count * machine.clock_hz, machine.stream_bytes_per_s)
    assert found.time_s - product_s == pytest.approx(
        CLASS.memory.kernel_latency_s + moved / rate, rel=0.01
    )


def test_inputs_beyond_the_cache_are_quantised_at_the_rate_of_memory():
    machine = GpuMachine.of(gpu("b200-sxm"), CLASS)
    costs = [cost(m, 128, 16384, "b200-sxm").time_s[0] for m in (2**18, 2**19)]
    grown = 2**18 * 16384 * (BF16_BYTES + 1) / machine.stream_bytes_per_s
    assert costs[1] - costs[0] > grown


def test_products_without_scales_are_left_alone():
    """Bytes of weights that are exactly the format's mean one scale for all."""
    assert cost(64, 512, 512, "l40s", scaled=False).time_s[0] < cost(64, 512, 512, "l40s").time_s[0]
