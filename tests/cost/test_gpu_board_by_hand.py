"""What a board adds to its operators, worked out by hand: caches, power, a profile's numbers, issue
and energy.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gpu_bench import bench, costs, parameters
from gpu_rows import K, attention, conv, gemm, gpu, graph

from accelsim.cost.gpu.gpu_parameters import GpuParameters
from accelsim.cost.gpu.machine import GpuMachine, reached_flop_per_s, static_power_w
from accelsim.cost.gpu.model import cost_gpu
from accelsim.cost.gpu.repeated import with_cached_operands
from accelsim.cost.table import Execution, RowCosts
from accelsim.dtype import Dtype
from accelsim.scoreboard.tiers import choose

# -- operands that stay in the cache of a measuring loop


def looped(cycle_bytes, compute_s=1e-6, memory_s=8e-6, latency_s=2e-6):
    """Exponent 1; a cache of 8 bytes a clock for each of 25 SMs is twice as fast as memory."""
    columns = [
        np.array([value])
        for value in (compute_s + memory_s + latency_s, compute_s, memory_s, 0.0, 0.0)
    ]
    machine = bench(sm_count=25.0, stream_bytes_per_s=1e11)
    return with_cached_operands(RowCosts(*columns), np.array([cycle_bytes]), machine)


@pytest.mark.parametrize(
    ("cycle_bytes", "memory_s"), [(0.0, 4e-6), (1.02e6, 6e-6), (1e9, 8e-6), (np.inf, 8e-6)]
)
def test_operands_in_the_cache_come_at_its_bandwidth(cycle_bytes, memory_s) -> None:
    found = looped(cycle_bytes)
    assert found.memory_s[0] == pytest.approx(memory_s)
    assert found.time_s[0] == pytest.approx(1e-6 + memory_s + 2e-6)


def test_a_cache_slower_than_memory_or_none_gains_nothing() -> None:
    columns = [np.array([value]) for value in (11e-6, 1e-6, 8e-6, 0.0, 0.0)]
    for machine in (bench(sm_count=1.0), bench(l2_bytes=0.0, sm_count=1000.0)):
        assert with_cached_operands(RowCosts(*columns), np.array([0.0]), machine).time_s[0] == 11e-6


# -- power


def test_a_board_over_its_limit_slows_to_the_cube_root_of_its_room() -> None:
    # 100 W of dynamic power in 64 W of room: the clock that draws f^3 of it is 0.862.
    machine = bench(limit_w=74.0, static_w=10.0, power_window_s=0.0)
    assert machine.clock_fraction(np.array([100.0]), np.array([1.0]))[0] == pytest.approx(
        0.64 ** (1 / 3)
    )
    assert machine.clock_fraction(np.array([64.0]), np.array([1.0]))[0] == 1.0


@pytest.mark.parametrize(("length_s", "weight"), [(1e-9, 1.0), (1.0, np.exp(-1.0)), (50.0, 0.0)])
def test_short_isolated_kernels_may_burst(length_s, weight) -> None:
    used = parameters({"power.burst_ratio": 2.0})
    machine = bench(limit_w=74.0, static_w=10.0, power_window_s=1.0, parameters=used)
    sustained = 0.64 ** (1 / 3)
    found = machine.clock_fraction(np.array([100.0 * length_s]), np.array([length_s]))
    assert found[0] == pytest.approx(sustained + (1.0 - sustained) * weight)


def test_a_limited_product_takes_longer_in_arithmetic_and_traffic_alike() -> None:
    kind, dims, flop, moved = gemm(1280, 128, 256)
    free = costs(kind, dims, flop, moved)
    busy_s = float(free.time_s[0]) - 2e-6
    machine = bench(
        limit_w=74.0,
        static_w=10.0,
        power_window_s=0.0,
        clocked_byte_energy_j=0.0,
        flop_energy_j=np.full(len(Dtype), 100.0 * busy_s / flop),
    )
    limited = costs(kind, dims, flop, moved, machine=machine)
    clock = 0.64 ** (1 / 3)
    assert limited.time_s[0] == pytest.approx(busy_s / clock + 2e-6)
    assert limited.compute_s[0] == pytest.approx(free.compute_s[0] / clock)


# -- a profile's numbers


def test_a_machine_is_its_profile_times_the_parameters() -> None:
    """T4 (NVIDIA data sheet): 40 SMs at 1590 MHz, 8.1 TFLOP/s, 320 GB/s GDDR6, 70 W."""
    used = parameters(
        {
            "memory.gddr_efficiency": 0.5,
            "gemm.operand_bytes_per_clock": 16.0,
            "gemm.matrix_operand_bytes_per_clock": 128.0,
            "power.active_static_w": 5.0,
            "power.active_static_fraction": 0.1,
            "power.window_s": 1e-3,
        }
    )
    board = gpu("t4")
    machine = GpuMachine.of(board, used)
    assert machine.stream_bytes_per_s == pytest.approx(0.5 * 320e9)
    assert machine.static_w == pytest.approx(5.0 + 0.1 * 70 + 0.5 * board.memory_bytes / 1e9)
    assert machine.vector_operand_bytes_per_s == pytest.approx(
        16.0 * 40 * board.boost_clock_hz.value
    )
    assert machine.matrix_operand_bytes_per_s == pytest.approx(
        128.0 * 40 * board.boost_clock_hz.value
    )
    assert machine.power_window_s == 0.0  # sustained work
    assert GpuMachine.of(board, replace(used, is_isolated=True)).power_window_s == 1e-3


@pytest.mark.parametrize(("few", "many"), [("p100-pcie-16gb", "p4"), ("v100-pcie-32gb", "a40")])
def test_operands_come_per_sm_whatever_its_lanes(few, many) -> None:
    """32 banks of 4 bytes per SM serve 64 lanes on the GP100, GV100 and TU102, and 128 on the GP104
    and GA102 (CUDA C++ Programming Guide, "Compute Capabilities").
    """
    rates = []
    for board in (gpu(few), gpu(many)):
        machine = GpuMachine.of(board, GpuParameters.class_wide())
        lanes = board.sm_count.value * board.lanes_per_sm.value
        rates.append(machine.vector_operand_bytes_per_s / (lanes * machine.clock_hz))
    assert rates[0] == pytest.approx(2 * rates[1])


@pytest.mark.parametrize(
    ("name", "watts", "tolerance"),
    [
        # "P0" and "P2" with a process and no work: lyulyul/shine-cluster#54 has 48 to 51 W of an
        # RTX 3070 (220 W), text-generation-inference#946 38 W of an RTX A4000 (140 W, 16 GB); Zeus
        # (NSDI 2023) 80 W of an A40 and 55 W of a Quadro RTX 6000 in the run that does least.
        ({"like": "rtx-3070", "limit_w": 220.0}, 49.0, 0.2),
        ({"like": "rtx-4080", "limit_w": 140.0}, 38.0, 0.2),
        ({"like": "a40", "limit_w": 300.0}, 80.0, 0.2),
        ({"like": "quadro-rtx-6000", "limit_w": 260.0}, 55.0, 0.2),
        # A share of the limit on modules and chips: most of it is left to work.
        ({"like": "apple-m1", "limit_w": 20.0}, 7.6, 1e-6),
        ({"like": "jetson-agx-xavier", "limit_w": 30.0}, 11.4, 1e-6),
    ],
)
def test_static_power_scales_with_the_board(name, watts, tolerance) -> None:
    board = gpu(name["like"])
    limit = board.power.limit_w.model_copy(update={"value": name["limit_w"]})
    power = board.power.model_copy(update={"limit_w": limit})
    board = board.model_copy(update={"power": power})
    found = static_power_w(board, GpuParameters.class_wide())
    assert found == pytest.approx(watts, rel=tolerance)


@pytest.mark.parametrize(
    ("name", "dtype", "tflop_per_s"),
    [
        # NVIDIA Turing, GA102, Ada and RTX Blackwell whitepapers, "with FP32 accumulate"
        ("rtx-2080-ti", Dtype.FP16, 53.8),
        ("rtx-3090", Dtype.FP16, 71.0),
        ("rtx-4090", Dtype.FP16, 165.2),
        ("rtx-4090", Dtype.FP8, 330.3),
        ("rtx-4090", Dtype.INT8, 660.6),  # sums of integers are whole on every board
        ("rtx-5090", Dtype.FP8, 419.0),
        ("titan-rtx", Dtype.FP16, 130.5),  # boards beside GeForce have one rate
        ("rtx-6000-ada", Dtype.FP16, 364.2),
        # compute capability 8.7 has the formats of 8.0
        ("jetson-agx-orin-64gb", Dtype.BF16, 42.6),
        ("jetson-agx-orin-64gb", Dtype.TF32, 21.3),
    ],
)
def test_matrix_cores_sum_in_fp32(name, dtype, tflop_per_s) -> None:
    machine = GpuMachine.of(gpu(name), GpuParameters.class_wide())
    assert machine.uses_matrix_cores[dtype]
    assert machine.contraction_flop_per_s[dtype] == pytest.approx(tflop_per_s * 1e12, rel=1e-3)


@pytest.mark.parametrize(("name", "dtype"), [("rtx-3090", Dtype.FP16), ("rtx-4090", Dtype.FP8)])
def test_a_slice_keeps_both_rates(name, dtype) -> None:
    half = gpu(f"{name}@fraction=0.5")
    assert half.matrix_fp32_accumulate_flop_per_s[dtype].value == pytest.approx(
        half.matrix_flop_per_s[dtype].value / 2, rel=1e-3
    )


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("t4", "gddr"),
        ("a100-pcie-40gb", "hbm"),
        ("p100-pcie-16gb", "early"),
        ("gtx-1080", "early"),
        ("mi100", "other"),
        ("rtx-4090", "plain_gddr"),
        ("l40s", "gddr"),
        ("arc-pro-b60", "plain_gddr"),
    ],
)
def test_memory_efficiency_is_that_of_generation_vendor_and_kind(name, field) -> None:
    fields = ("gddr", "plain_gddr", "hbm", "early", "other")
    values = {f"memory.{other}_efficiency": 0.3 if other == field else 0.9 for other in fields}
    machine = GpuMachine.of(gpu(name), parameters(values))
    assert machine.stream_bytes_per_s == pytest.approx(0.3 * machine.bandwidth_bytes_per_s)


def test_matrix_cores_move_operands_in_proportion_to_their_width() -> None:
    """An FP16 operation takes overhead x its multiplier; INT8 its own multiplier and half of the
    movement.
    """
    overhead = 4.0
    board = gpu("a100-pcie-40gb")
    machine = GpuMachine.of(board, parameters({"power.matrix_energy_overhead": overhead}))
    plain = GpuMachine.of(board, parameters({"power.matrix_energy_overhead": 1.0})).flop_energy_j
    half = plain[Dtype.FP16]
    assert machine.flop_energy_j[Dtype.FP16] == pytest.approx(overhead * half)
    assert machine.flop_energy_j[Dtype.INT8] == pytest.approx(
        plain[Dtype.INT8] + (overhead - 1) * half / 2
    )


@pytest.mark.parametrize(
    ("board", "side", "tflop_per_s"),
    [  # sources beside the parameter in calibration/class/gpu.yaml
        ("t4", 4096, 24.0),
        ("h100-sxm-80gb", 4096, 656.9),
        ("a100-sxm-80gb", 8192, 257.0),
        ("l40s", 8192, 222.6),
        ("v100-sxm2-16gb", 8192, 93.3),
        ("a100-pcie-40gb", 8192, 207.4),
        ("a40", 8192, 115.0),
        ("rtx-pro-6000-blackwell", 8192, 396.0),
    ],
)
def test_products_of_random_numbers_run_at_the_clock_the_limit_leaves(
    board, side, tflop_per_s
) -> None:
    """16-bit products in loops on boards of 70 to 700 W, 12 to 4 nm."""
    product = graph([gemm(side, side, side, dtype=Dtype.FP16)], Dtype.FP16)
    used = choose(gpu(board), "best").parameters
    found = cost_gpu(product, gpu(board), Execution.COMPILED, used)
    assert 2.0 * side**3 / found.time_s[0] == pytest.approx(tflop_per_s * 1e12, rel=0.14)


# -- the whole model

DISPATCH = {
    "dispatch.contraction_s": 1e-6,
    "dispatch.batched_s": 2e-6,
    "dispatch.convolution_s": 3e-6,
    "dispatch.plan_lookup_s": 1.0,  # not paid for a model's own few shapes
    "dispatch.norm_s": 4e-6,
    "dispatch.softmax_s": 5e-6,
    "dispatch.scalar_s": 6e-6,
    "dispatch.activation_s": 7e-6,
    "dispatch.elementwise_s": 8e-6,
    "dispatch.graph_gap_s": 9e-6,
}


@pytest.mark.parametrize(
    ("row", "issued_s"),
    [
        (gemm(8, 8, 8), 1e-6),
        (attention(1, 1, 8, 8), 1e-6),
        (gemm(8, 8, 8, 2, kind=K.BATCHED_GEMM), 2e-6),
        (conv(1, 8, 8, 8), 3e-6),
        ((K.LAYER_NORM, (8, 8), 0.0, 64.0), 4e-6),
        ((K.REDUCTION, (8, 8), 0.0, 64.0), 4e-6),
        ((K.SOFTMAX, (8, 8), 0.0, 64.0), 5e-6),
        ((K.ELEMENTWISE, (8, 1, 1), 0.0, 64.0), 6e-6),
        ((K.ELEMENTWISE, (8, 1, 5), 0.0, 64.0), 6e-6),
        ((K.ELEMENTWISE, (8, 1, 6), 0.0, 64.0), 8e-6),  # tanh: a function of tensors alone
        ((K.ELEMENTWISE, (8, 1, 7), 0.0, 64.0), 7e-6),
        ((K.ELEMENTWISE, (8, 1, 19), 0.0, 64.0), 7e-6),
        ((K.ELEMENTWISE, (8, 1, 20), 0.0, 64.0), 6e-6),  # a power by a number
        ((K.ELEMENTWISE, (8, 2, 8), 0.0, 64.0), 8e-6),
        ((K.COPY, (8,), 0.0, 64.0), 8e-6),
        ((K.EMBEDDING, (8, 8, 8), 0.0, 64.0), 8e-6),
    ],
)
def test_the_framework_issues_each_class_of_operators_at_its_own_pace(row, issued_s) -> None:
    used = parameters(DISPATCH)
    assert cost_gpu(graph([row]), gpu("t4"), Execution.EAGER, used).dispatch_s[0] == issued_s
    assert cost_gpu(graph([row]), gpu("t4"), Execution.GRAPH, used).dispatch_s[0] == 9e-6


def test_energy_is_arithmetic_and_traffic_below_the_limit() -> None:
    board = gpu("a100-pcie-40gb")
    free = board.model_copy(update={"power": board.power.model_copy(update={"limit_w": None})})
    used = parameters()
    machine = GpuMachine.of(free, used)
    rows = [(K.ELEMENTWISE, (10**6, 2, 1), 1e6, 12e6), gemm(512, 512, 512)]
    table = cost_gpu(graph(rows), free, parameters=used)
    vector, product = (
        table.flop[0] * machine.vector_energy_j,
        table.flop[1] * machine.flop_energy_j[Dtype.FP32],
    )
    assert table.energy_j == pytest.approx([vector, product] + table.bytes * machine.byte_energy_j)


def test_a_row_at_the_limit_draws_the_room_above_static_power() -> None:
    board = gpu("t4")  # 70 W
    used = parameters(
        {
            "power.active_static_w": 10.0,
            "power.active_static_fraction": 0.1,
            "power.vector_energy_overhead": 500.0,
        }
    )
    table = cost_gpu(graph([gemm(4096, 4096, 4096)]), board, parameters=used)
    static_w = 10 + 7 + 0.5 * board.memory_bytes / 1e9  # 16 GB of GDDR6
    assert table.energy_j[0] == pytest.approx((70 - static_w) * table.time_s[0])


def test_sums_at_half_the_rate_leave_the_other_half_to_operands():
    """A kernel at 0.6 of the multipliers' rate reaches 0.95 of sums at half of it; one at 0.4 is
    held up by its operands.
    """
    peak, fed = np.full(3, 71e12), np.array([142e12, 142e12, 71e12])
    reached = reached_flop_per_s(peak, fed, np.array([0.6, 0.4, 0.6]))
    assert reached == pytest.approx([0.95 * 71e12, 0.4 * 142e12, 0.6 * 71e12])


@pytest.mark.parametrize("board", ["rtx-3090", "rtx-4090", "rtx-5090"])
def test_bf16_and_tf32_of_geforce_boards_lose_no_more_to_operands_than_fp16(board) -> None:
    """All three are summed in FP32, at half of the multipliers' rate (GA102 whitepaper)."""
    machine = GpuMachine.of(gpu(board), GpuParameters.class_wide())
    rates, fed = machine.contraction_flop_per_s, machine.fed_flop_per_s
    for dtype in (Dtype.FP16, Dtype.BF16, Dtype.TF32):
        assert fed[dtype] / rates[dtype] == pytest.approx(2.0, rel=0.01)
    half, brain = (
        cost_gpu(graph([gemm(4096, 4096, 4096, dtype=dtype)], dtype), gpu(board)).time_s[0]
        for dtype in (Dtype.FP16, Dtype.BF16)
    )
    assert brain == pytest.approx(half, rel=0.01)


def test_products_reach_the_share_of_their_vendor_units_and_format() -> None:
    used = parameters(
        {
            "gemm.vector_efficiency": 0.9,
            "gemm.matrix_efficiency": 0.8,
            "gemm.other_matrix_efficiency": 0.6,
            "gemm.fp32_matrix_efficiency": 0.7,
        }
    )
    shares = {"a100-pcie-40gb": (0.9, 0.8), "mi100": (0.7, 0.6), "p100-pcie-16gb": (0.9, 0.9)}
    for name, expected in shares.items():
        board = gpu(name)
        machine = GpuMachine.of(board, used.of_vendor(board.vendor))
        assert machine.product_efficiency[[Dtype.FP32, Dtype.FP16]] == pytest.approx(expected)


def test_batched_products_of_another_vendor_have_a_rate_of_their_own() -> None:
    row = (K.BATCHED_GEMM, (64, 512, 512, 4096), 2.0 * 64 * 512 * 512 * 4096, 0.0)
    halved = {"gemm.other_batched_ratio": 0.5}
    for name, ratio in (("mi100", 2.0), ("v100-pcie-32gb", 1.0)):
        whole, half = (
            cost_gpu(graph([row]), gpu(name), parameters=parameters(changes)).compute_s[0]
            for changes in ({"gemm.other_batched_ratio": 1.0}, halved)
        )
        assert half == pytest.approx(ratio * whole, rel=0.05)


def test_plain_kernels_of_boards_from_ampere_on_have_no_square_tile_of_128() -> None:
    tiles = {
        name: GpuMachine.of(gpu(name), parameters()).plain_tiles
        for name in ("v100-pcie-32gb", "t4", "a100-pcie-40gb", "l40s")
    }
    assert [(128, 128) in offered for offered in tiles.values()] == [True, True, False, False]
    assert all((64, 128) in offered for offered in tiles.values())
