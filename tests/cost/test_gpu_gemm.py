"""Products on a GPU, worked out by hand on a machine of round numbers: tiles, waves, splits,
traffic, batches, layouts of operands and scales per block.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gpu_bench import ONE_TILE, TILE_S, bench, costs, parameters
from gpu_rows import K, gemm, gpu

from accelsim.cost.gpu import GpuParameters
from accelsim.cost.gpu.gemm import GemmShape, gemm_compute_s, gemm_traffic_bytes
from accelsim.cost.gpu.machine import GpuMachine, join_times
from accelsim.cost.gpu.model import GPU, cost_gpu
from accelsim.cost.stack import KernelMaker
from accelsim.cost.table import Execution
from accelsim.dtype import Dtype
from tools.scoreboard.operator_columns import gemm_graph


def shape(m, n, k, batch=1.0, width=4.0, rate=1e12) -> GemmShape:
    columns = [np.array([float(value)]) for value in (batch, m, n, k, width, rate)]
    return GemmShape(*columns, matrix=np.zeros(1, dtype=bool))


def product_s(*sizes, machine=None, used=None, split=False, tiles=ONE_TILE, **options) -> float:
    found = gemm_compute_s(
        shape(*sizes, **options),
        replace(machine or bench(), parameters=used or parameters()),
        split=split,
        tiles=tiles,
    )
    return float(found[0])


@pytest.mark.parametrize(
    ("m", "n", "batch", "waves"),
    [
        (128, 128, 1, 1),
        (128, 1280, 1, 1),
        (129, 640, 1, 1),
        (128, 1281, 1, 2),
        (129, 641, 1, 2),
        (1, 1, 21, 3),
        (2560, 128, 1, 2),
    ],
)
def test_tiles_run_in_waves_and_edges_cost_whole_tiles(m, n, batch, waves) -> None:
    assert product_s(m, n, 256, batch) == pytest.approx(waves * TILE_S)


def test_the_pipeline_of_a_tile_fills_and_drains() -> None:
    assert product_s(128, 128, 256, used=parameters({"gemm.prologue_k": 64.0})) == pytest.approx(
        TILE_S * (256 + 64) / 256
    )


def test_the_library_takes_the_fastest_tile() -> None:
    # 64 x 64: four tiles, one wave of a quarter of the work; 32 x 32: sixteen tiles, two waves of a
    # sixteenth.
    assert product_s(128, 128, 256, tiles=((128, 128), (64, 64), (32, 32))) == pytest.approx(
        TILE_S / 8
    )
    assert product_s(128, 128, 256, tiles=((128, 128), (64, 64))) == pytest.approx(TILE_S / 4)
    assert product_s(128, 256, 256, tiles=((128, 64),)) == pytest.approx(TILE_S / 2)


@pytest.mark.parametrize(("exposed", "factor"), [(0.0, 1.0), (0.5, 1.25), (1.0, 1.5)])
def test_operands_that_arithmetic_does_not_hide_add_up(exposed, factor) -> None:
    # 256 elements of 4 bytes a step against 2 x 128 x 128 FLOP: at this rate, half the time of the
    # arithmetic.
    machine = bench(vector_operand_bytes_per_s=256 * 4 / (0.5 * 2 * 128 * 128 / 1e12))
    used = parameters({"gemm.operand_exposed_fraction": exposed})
    assert product_s(128, 128, 256, machine=machine, used=used) == pytest.approx(factor * TILE_S)


def test_a_tile_is_never_faster_than_its_operands_arrive() -> None:
    machine = bench(vector_operand_bytes_per_s=256 * 4 / (3 * 2 * 128 * 128 / 1e12))
    assert product_s(128, 128, 256, machine=machine) == pytest.approx(3 * TILE_S)
    assert product_s(128, 128, 256, machine=machine, width=2.0) == pytest.approx(1.5 * TILE_S)


def test_a_long_contraction_is_split_over_idle_sms() -> None:
    """One tile on ten SMs: eight slices of 1024 fit one wave; each partial tile goes out and in at
    an SM's share.
    """
    traffic = 1e12
    machine = bench(vector_operand_bytes_per_s=traffic)
    whole_s = product_s(128, 128, 8192, machine=machine)
    partial_s = 2 * 4 * 128 * 128 / (traffic / 10)
    split_s = product_s(128, 128, 8192, machine=machine, split=True)
    assert split_s == pytest.approx(whole_s / 8 + partial_s * 4)  # log2(2 x 8) sums
    assert whole_s == pytest.approx(32 * TILE_S)


def test_products_that_fill_half_of_the_sms_are_not_split() -> None:
    for tiles, is_split in ((5, True), (6, False)):
        whole, split = (product_s(128, 128 * tiles, 8192, split=flag) for flag in (False, True))
        assert (split < 0.9 * whole) is is_split


def test_rounded_slices_take_the_longest() -> None:
    # 1001 steps in eight slices: the longest has 126.
    split_s = product_s(128, 128, 1001, split=True)
    assert split_s == pytest.approx(TILE_S / 256 * 126)


def test_blocks_of_rows_are_priced_as_each_row_alone() -> None:
    """Ten thousand products; the columns of some thousands are worked on at once."""
    tiles = np.arange(1.0, 10_001.0)
    one = np.ones(len(tiles))
    many = GemmShape(tiles, 128 * one, 128 * one, 256 * one, 4 * one, 1e12 * one, matrix=one == 0)
    found = gemm_compute_s(many, bench(), split=False, tiles=ONE_TILE)
    assert found == pytest.approx(np.ceil(tiles / 10) * TILE_S)


def test_matrix_cores_and_vector_lanes_take_tiles_of_their_own() -> None:
    both = shape(128, 128, 256, batch=10.0)
    both = GemmShape(
        *(np.repeat(getattr(both, name), 2) for name in ("batch", "m", "n", "k")),
        np.array([4.0, 2.0]),
        np.array([1e12, 4e12]),
        matrix=np.array([False, True]),
    )
    machine = bench(matrix_operand_bytes_per_s=256 * 2 / (3 * 2 * 128 * 128 / 4e12))
    found = gemm_compute_s(both, machine, split=False, tiles=ONE_TILE, matrix_tiles=ONE_TILE)
    # Operands of the matrix cores take three times as long as their arithmetic.
    assert found == pytest.approx(np.array([TILE_S, 3 * TILE_S / 4]))


def test_batched_kernels_of_matrix_cores_have_small_tiles() -> None:
    """Ten products of 32 x 32: a sixteenth of a tile of 128 each; of 256 x 128, two tiles."""
    machine = bench(uses_matrix_cores=np.ones(len(Dtype), dtype=bool))

    def batched_s(m, n):
        rows = gemm(m, n, 256, 10, kind=K.BATCHED_GEMM)
        return costs(*rows, machine=machine).compute_s[0]

    assert batched_s(32, 32) == pytest.approx(TILE_S / 16)
    assert batched_s(256, 128) == pytest.approx(2 * TILE_S)


@pytest.mark.parametrize(
    ("m", "n", "batch", "waves"),
    [
        (128 * 11, 128, 1, 1.25 * 1.1),  # eleven tiles in part, a quarter more, not two waves
        (128 * 10.5, 128, 1, 1.25 * 1.05),
        (64, 128, 11, 1.25 * 2),  # products share no wave: two of them either way
        (128, 128 * 11, 1, 2),  # nor do columns
        (128 * 16, 128, 1, 2),
        (128 * 10, 128, 1, 1),
    ],
)
def test_rows_beyond_a_wave_cost_at_most_a_quarter_more_than_their_share(
    m, n, batch, waves
) -> None:
    found = product_s(m, n, 256, batch, split=True)
    assert found == pytest.approx(min(waves, 2.0) * TILE_S)


@pytest.mark.parametrize(("board", "factor"), [("mi100", 1.25 * 7), ("v100-pcie-32gb", 10.0)])
def test_kernels_that_share_the_last_wave_use_sms_that_tiles_leave_idle(board, factor) -> None:
    """Seven tiles of 2560 on ten SMs (stream-K: Osama et al., PPoPP 2023): seven tenths of a wave,
    a quarter more. Others wait for one whole tile, since more than half of the SMs have one.
    """
    machine = bench(profile=gpu(board))
    assert product_s(128 * 7, 128, 2560, machine=machine, split=True) == pytest.approx(
        factor * TILE_S
    )


@pytest.mark.parametrize("batch", [1.0, 2.0])
def test_a_shared_wave_is_of_all_products(batch) -> None:
    machine = bench(profile=gpu("mi100"))
    found = product_s(128 * 1.5, 128, 256 * 1024, batch, machine=machine, split=True)
    assert found == pytest.approx(1.25 * batch * 1.5 / 10 * 1024 * TILE_S, rel=0.01)


@pytest.mark.parametrize(("board", "share"), [("v100-pcie-32gb", 1.0), ("p4", 0.5)])
def test_slices_are_summed_at_the_rate_of_the_lanes(board, share) -> None:
    """Boards of 128 lanes an SM bring the sums through L2 at twice the rate of those of 64."""
    traffic = 1e12
    machine = bench(profile=gpu(board), vector_operand_bytes_per_s=traffic)
    lanes = machine.profile.lanes_per_sm.value
    assert lanes == 64 / share
    sums_s = 4 * share * 2 * 4 * 128 * 128 / (traffic / 10)
    split_s = product_s(128, 128, 8192, machine=machine, split=True)
    assert split_s == pytest.approx(32 * TILE_S / 8 + sums_s)


def test_each_slice_fills_and_drains_its_pipeline() -> None:
    used = parameters({"gemm.prologue_k": 64.0})
    split_s = product_s(128, 128, 2048, used=used, split=True)  # eight slices of 256
    assert split_s == pytest.approx(TILE_S * (256 + 64) / 256)


@pytest.mark.parametrize(
    ("tiles", "own"), [(1, 2.0), (2, 8**0.5), (3, 12**0.5), (4, 4.0), (5, 6.0), (8, 8.0)]
)
def test_lone_tiles_of_64_threads_take_longer_than_their_share(tiles, own) -> None:
    """Loss 1/2: j tiles of a group of four take sqrt(4 j) tiles' time."""
    used = parameters({"gemm.lone_tile_loss": 0.5})
    found = product_s(64, 64, 256, 10 * tiles, used=used, tiles=((64, 64),))
    assert found == pytest.approx(own * TILE_S / 4)
    assert product_s(128, 128, 256, 10 * tiles, used=used) == pytest.approx(
        tiles * TILE_S
    )  # other tiles do not


@pytest.mark.parametrize(
    ("k", "factor"), [(16384, 1 + 0.5 / 2), (32768, 1 + 0.5 * 16 / 17), (1024, 1.0)]
)
def test_long_rows_walk_pages_on_early_boards(k, factor) -> None:
    used = parameters({"gemm.page_walk_loss": 0.5})
    plain, walking = (
        costs(*gemm(1280, 128, k), machine=bench(has_page_walks=flag), used=used).compute_s[0]
        for flag in (False, True)
    )
    assert walking / plain == pytest.approx(factor, rel=2e-5)


def test_a_product_adds_latency_to_arithmetic_and_traffic() -> None:
    kind, dims, flop, moved = gemm(1280, 128, 256)
    found = costs(kind, dims, flop, moved)
    assert found.flop[0] == flop == 2 * 1280 * 128 * 256
    assert found.compute_s[0] == pytest.approx(TILE_S)
    assert found.memory_s[0] == pytest.approx(moved / 1e11)
    assert found.time_s[0] == pytest.approx(
        TILE_S + moved / 1e11 + 2e-6
    )  # exponent 1: nothing overlaps


def test_batched_products_have_their_own_ratio_and_never_beat_the_peak() -> None:
    kind, dims, flop, moved = gemm(128, 128, 256, 10, kind=K.BATCHED_GEMM)
    slower, faster = (
        costs(kind, dims, flop, moved, used=parameters({"gemm.batched_ratio": ratio})).compute_s[0]
        for ratio in (0.5, 1.5)
    )
    assert slower == pytest.approx(2 * TILE_S)
    assert faster == pytest.approx(flop / 1e12)
    assert costs(kind, dims, flop, moved).time_s[0] == pytest.approx(
        TILE_S + moved / 1e11 + 2e-6  # and nothing else
    )


def test_experts_share_the_rows_evenly() -> None:
    # 8 experts, 2,048 rows: 256 rows each, two tiles by one; 16 tiles on ten SMs are two waves.
    found = costs(K.GROUPED_GEMM, (8, 2048, 128, 256), 0.0, 1e6)
    assert found.compute_s[0] == pytest.approx(2 * TILE_S)
    assert found.flop[0] == 2 * 2048 * 128 * 256
    assert found.bytes[0] == 1e6
    alone = costs(K.GROUPED_GEMM, (1, 2048, 128, 256), 0.0, 1e6)
    assert alone.compute_s[0] == pytest.approx(2 * TILE_S)


def test_operands_are_read_once_per_square_of_tiles_unless_one_stays_in_the_cache() -> None:
    # Four SMs: the tiles of a wave make a square of side 256.
    sizes = shape(1024, 512, 4096)
    a, b = 4.0 * 1024 * 4096, 4.0 * 4096 * 512
    once = np.array([a + b])
    spilled = gemm_traffic_bytes(sizes, once, bench(sm_count=4.0, l2_bytes=1e6))
    assert spilled[0] == a * (512 / 256) + b * (1024 / 256)
    for l2_bytes, again in (
        (2 * b, False),
        (2 * b - 1, True),
    ):  # the smaller operand in half of the cache
        found = gemm_traffic_bytes(sizes, once, bench(sm_count=4.0, l2_bytes=l2_bytes))
        assert bool(found[0] > once[0]) is again
    batched = gemm_traffic_bytes(
        shape(1024, 512, 4096, 3.0), 3 * once, bench(sm_count=4.0, l2_bytes=1e6)
    )
    assert batched[0] == 3 * spilled[0]
    small = gemm_traffic_bytes(shape(64, 64, 10**6), once, bench(sm_count=4.0, l2_bytes=1e6))
    assert small[0] == once[0]  # one square holds it all


@pytest.mark.parametrize(("exponent", "joined"), [(1.0, 7.0), (2.0, 5.0), (1e3, 4.0)])
def test_arithmetic_and_traffic_join_in_a_p_norm(exponent, joined) -> None:
    assert join_times(np.array([3.0]), np.array([4.0]), exponent)[0] == pytest.approx(joined)
    assert join_times(np.array([4.0]), np.array([3.0]), exponent)[0] == pytest.approx(joined)
    assert join_times(np.array([0.0]), np.array([0.0]), exponent)[0] == 0


# -- scales per block

CLASS = GpuParameters.class_wide()
BF16_BYTES = 2


def scaled_cost(m, n, k, board, *, scaled=True, dtype=Dtype.FP8):
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
    assert scaled_cost(4096, 4096, 4096, "l40s").compute_s[0] == pytest.approx(read / rate)
    assert scaled_cost(4096, 4096, 4096, "l40s", scaled=False).compute_s[0] < 0.7 * read / rate


@pytest.mark.parametrize("board", ["l40s", "rtx-pro-6000-blackwell", "h100-sxm-80gb"])
def test_a_few_tiles_walk_the_whole_contraction(board):
    """Kernels for block scales never split k: twice the length takes twice the time of a lone row
    of tiles.
    """
    short, long = (scaled_cost(16, 128, k, board).compute_s[0] for k in (8192, 16384))
    assert long == pytest.approx(2 * short, rel=0.01)
    assert scaled_cost(16, 128, 16384, board, scaled=False).compute_s[0] < 0.5 * long


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
    found = scaled_cost(m, 512, k, board, dtype=dtype)
    product_s = (
        join_times(found.compute_s, found.memory_s, CLASS.gemm.overlap_exponent)
        + CLASS.gemm.latency_s
    )
    rate = max(8.0 * machine.sm_count * machine.clock_hz, machine.stream_bytes_per_s)
    assert found.time_s - product_s == pytest.approx(
        CLASS.memory.kernel_latency_s + moved / rate, rel=0.01
    )


@pytest.mark.parametrize(("form", "scale"), [("fp8-block", 4), ("fp8", 0)])
def test_a_stack_that_fuses_three_quantisations_of_four_pays_a_quarter(form, scale):
    column = [np.array([float(size)]) for size in (1, 64, 512, 1024)]
    options = {"batched": np.array([False]), "weight": Dtype.FP8, "output": Dtype.BF16}
    plain = gemm_graph(*column, Dtype.FP8, **options)
    graph = replace(plain, weight_bytes=plain.weight_bytes + scale)

    def time_s(*fused):
        under = replace(CLASS, maker=KernelMaker("any", fused))
        return cost_gpu(graph, gpu("b200-sxm"), Execution.GRAPH, under).time_s[0]

    whole, none, other = time_s(), time_s((form, 1.0)), time_s(("fp4", 1.0))
    assert other == whole > none
    assert time_s((form, 0.75)) - none == pytest.approx(0.25 * (whole - none))


def test_inputs_beyond_the_cache_are_quantised_at_the_rate_of_memory():
    machine = GpuMachine.of(gpu("b200-sxm"), CLASS)
    costs = [scaled_cost(m, 128, 16384, "b200-sxm").time_s[0] for m in (2**18, 2**19)]
    grown = 2**18 * 16384 * (BF16_BYTES + 1) / machine.stream_bytes_per_s
    assert costs[1] - costs[0] > grown


@pytest.mark.parametrize(("k", "rate"), [(1000, 8.0 * 10 * 1e9), (2000, 5e10)])
def test_half_of_the_cache_holds_the_input_that_is_quantised(k, rate) -> None:
    """Three bytes an element, 1 MB of cache that gives each of ten SMs 8 bytes a clock."""
    machine = bench(stream_bytes_per_s=5e10)
    column = [np.array([float(size)]) for size in (1, 128, 128, k)]
    options = {"batched": np.array([False]), "weight": Dtype.FP8, "output": Dtype.BF16}
    plain = gemm_graph(*column, Dtype.FP8, **options)
    scaled = replace(plain, weight_bytes=plain.weight_bytes + 4)
    without, found = (
        GPU.evaluate(rows, replace(machine, parameters=parameters()), "bench").time_s[0]
        for rows in (plain, scaled)
    )
    unsplit_s = k / 256 * TILE_S - _split_s(k)
    assert found - without - unsplit_s == pytest.approx(1e-6 + 128 * k * 3 / rate, rel=1e-4)


def _split_s(k) -> float:
    """One tile's time where its contraction may be split; scales per block rule that out."""
    return product_s(128, 128, k, split=True)


def test_products_without_scales_are_left_alone():
    """Bytes of weights that are exactly the format's mean one scale for all."""
    assert (
        scaled_cost(64, 512, 512, "l40s", scaled=False).time_s[0]
        < scaled_cost(64, 512, 512, "l40s").time_s[0]
    )
