"""Batched products smaller than a library's usual tiles, and energy of narrow formats on matrix
cores.
"""

import numpy as np
import pytest

from accelsim import catalog
from accelsim.cost.gpu import GpuParameters
from accelsim.cost.gpu.machine import GpuMachine
from accelsim.cost.gpu.model import cost_gpu
from accelsim.cost.registry import tier_parameters
from accelsim.cost.table import Execution
from accelsim.dtype import Dtype
from accelsim.workloads.operator import OperatorKind
from tools.scoreboard.operator_columns import Window, conv_graph, gemm_graph


def compute_s(m, n, k=128, *, batch=2**16, batched=True, dtype=Dtype.FP16):
    column = (
        np.array([batch], dtype=float),
        np.array([m], dtype=float),
        np.array([n], dtype=float),
        np.array([float(k)]),
    )
    graph = gemm_graph(*column, dtype, batched=np.array([batched]))
    return float(
        cost_gpu(
            graph, catalog.device("a100-sxm-80gb"), parameters=GpuParameters.class_wide()
        ).compute_s[0]
    )


def test_small_products_do_not_fill_a_tile_of_64():
    assert compute_s(32, 32) < 0.6 * compute_s(64, 64)
    assert compute_s(27, 27) == pytest.approx(compute_s(32, 32), rel=0.01)


def test_products_that_fill_large_tiles_do_not_take_small_ones():
    """Tiles of 32 move four times the operands of tiles of 128 per product."""
    large = 2.0 * 64 * 2048.0**3 / compute_s(2048, 2048, 2048, batch=64)
    small = 2.0 * 2**16 * 32.0**2 * 128 / compute_s(32, 32)
    assert small < 0.9 * large


@pytest.mark.parametrize(
    ("n", "k", "measured_us"), [(14336, 12288, 44.2), (12288, 12288, 38.0), (73728, 12288, 172.4)]
)
def test_weights_of_4_bits_are_read_near_the_memorys_rate_by_few_rows(n, k, measured_us):
    """Machete on an H100 (vllm-project/vllm pull request 23198, products of one row)."""
    parts = ("1", n, k, Dtype.BF16, Dtype.INT4), ("64", n, k, Dtype.BF16, Dtype.INT4)
    few, many = (1e6 * product_s(float(m), *rest) for m, *rest in parts)
    assert few == pytest.approx(measured_us, rel=0.2)
    assert many > 1.3 * few


def product_s(m, n, k, dtype, weight):
    column = (np.array([float(size)]) for size in (1, m, n, k))
    graph = gemm_graph(*column, dtype, batched=np.array([False]), weight=weight, output=dtype)
    board = catalog.device("h100-sxm-80gb")
    return float(cost_gpu(graph, board, Execution.COMPILED, tier_parameters(board)).time_s[0])


def test_narrow_formats_take_less_energy_but_more_than_their_multipliers():
    machine = GpuMachine.of(catalog.device("a100-sxm-80gb"), GpuParameters.class_wide())
    half, byte = machine.flop_energy_j[Dtype.FP16], machine.flop_energy_j[Dtype.INT8]
    assert (
        0.3 * half < byte < 0.6 * half
    )  # operands are half as wide; a multiplier alone takes a sixth


def depthwise_s(device, dtype):
    size, window, one = (np.array([150.0]),) * 2, (np.array([3.0]),) * 2, np.array([1.0])
    graph = conv_graph(
        OperatorKind.CONV,
        np.array([64.0]),
        (one * 64, one * 64),
        size,
        Window(window, (one, one), one),
        dtype,
    )
    graph.dims[:, 3] = 64  # one channel per group
    return float(
        cost_gpu(graph, catalog.device(device), parameters=GpuParameters.class_wide()).compute_s[0]
    )


@pytest.mark.parametrize(
    ("device", "ratio"), [("a100-sxm-80gb", 4), ("t4", 4), ("a10", 2), ("l4", 2)]
)
def test_depthwise_convolutions_of_bytes_take_dot_products_of_four(device, ratio):
    """64 dp4a per SM and clock against 64 or 128 multiply-adds."""
    assert depthwise_s(device, Dtype.FP16) / depthwise_s(device, Dtype.INT8) == pytest.approx(
        ratio, rel=0.05
    )
