"""Times of a bench board with round numbers, worked out by hand for every operator class of the GPU model.

Ten SMs at 1 GHz, 1 TFLOP/s in every format, 100 GB/s, 1 MB of L2, operands delivered at once: what is left is the formula.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gpu_rows import K, attention, conv, gemm, gpu, graph

from accelsim.cost.gpu.gemm import GemmShape, gemm_compute_s, gemm_traffic_bytes
from accelsim.cost.gpu.machine import GpuMachine, join_times
from accelsim.cost.gpu.model import GPU, cost_gpu
from accelsim.cost.gpu.parameters import GpuParameters
from accelsim.cost.gpu.repeated import with_cached_operands
from accelsim.cost.table import Execution, RowCosts
from accelsim.workloads.dtype import Dtype
from accelsim.workloads.graph import concatenate
from accelsim.workloads.operator import Phase

IDEAL = {
    "vector_efficiency": 1.0,
    "batched_ratio": 1.0,
    "operand_exposed_fraction": 0.0,
    "prologue_k": 0.0,
    "lone_tile_loss": 0.0,
    "kernel_latency_s": 1e-6,
    "contraction_latency_s": 2e-6,
    "softmax_efficiency": 0.8,
    "norm_efficiency": 0.5,
    "reduction_columns": 64.0,
    "gather_overhead_bytes": 32.0,
    "special_efficiency": 0.5,
    "attention_efficiency": 0.5,
    "attention_backward_efficiency": 0.8,
    "recurrent_step_s": 5e-6,
    "overlap_exponent": 1.0,
    "host_link_efficiency": 0.5,
    "host_copy_latency_s": 1e-5,
}
BENCH = {
    "sm_count": 10.0,
    "clock_hz": 1e9,
    "contraction_flop_per_s": np.full(len(Dtype), 1e12),
    "uses_matrix_cores": np.zeros(len(Dtype), dtype=bool),
    "vector_flop_per_s": 1e12,
    "bandwidth_bytes_per_s": 1e11,
    "stream_bytes_per_s": 1e11,
    "l2_bytes": 1e6,
    "vector_operand_bytes_per_s": 1e30,
    "matrix_operand_bytes_per_s": 1e30,
    "matrix_efficiency": 1.0,
    "limit_w": None,
    "has_page_walks": False,
    "plain_tiles": ((128, 128),),
    "batched_tiles": ((128, 128),),
}
ONE_TILE = ((128, 128),)


def parameters(**changes) -> GpuParameters:
    return replace(GpuParameters.class_wide(), **(IDEAL | changes))


def bench(**changes) -> GpuMachine:
    machine = GpuMachine.of(gpu("v100-pcie-32gb"), GpuParameters.class_wide())
    return replace(machine, **(BENCH | changes))


def costs(kind, dims, flop, moved, *, machine=None, used=None, phase=Phase.FORWARD) -> RowCosts:
    rows = graph([(kind, dims, flop, moved)], phase=phase)
    return GPU.evaluate(rows, machine or bench(), used or parameters(), "bench")


def time_s(kind, dims, flop=0.0, moved=0.0, **options) -> float:
    return float(costs(kind, dims, flop, moved, **options).time_s[0])


# -- streaming -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [K.ELEMENTWISE, K.COPY, K.POOLING])
def test_streaming_kernels_take_bytes_over_bandwidth_and_one_latency(kind) -> None:
    dims = {K.ELEMENTWISE: (10**6, 2, 1), K.COPY: (10**6,), K.POOLING: (1, 1, 10**6, 10**6, 1)}[kind]
    assert time_s(kind, dims, 1e6, 12e6) == pytest.approx(12e6 / 1e11 + 1e-6)
    assert time_s(kind, dims, 1e9, 12e6) == pytest.approx(1e9 / 0.5e12 + 1e-6)  # half of the lanes' peak


@pytest.mark.parametrize(
    ("kind", "best"),
    [(K.SOFTMAX, 0.8), (K.LAYER_NORM, 0.5), (K.RMS_NORM, 0.5), (K.GROUP_NORM, 0.5), (K.REDUCTION, 1.0)],
)
@pytest.mark.parametrize(("columns", "filled"), [(64, 1 / 2), (192, 3 / 4), (1, 1 / 65)])
def test_row_wise_kernels_fill_their_lanes_by_row_length(kind, best, columns, filled) -> None:
    expected = 8e6 / (1e11 * best * filled) + 2 * 1e-6  # two dependent passes
    assert time_s(kind, (1000, columns), 0.0, 8e6) == pytest.approx(expected)


def test_batch_norms_reduce_over_the_pixels_of_a_channel() -> None:
    inference = graph([(K.BATCH_NORM, (192, 4), 0.0, 8e6)])
    training = concatenate([inference, graph([(K.COPY, (1,), 0.0, 0.0)], phase=Phase.BACKWARD)])
    folded, whole = (
        GPU.evaluate(rows, bench(), parameters(), "bench").time_s[0] for rows in (inference, training)
    )  # stored statistics stream; statistics of the batch are a normalisation
    assert folded == pytest.approx(8e6 / (1e11 * 0.75) + 2e-6)
    assert whole == pytest.approx(8e6 / (1e11 * 0.75 * 0.5) + 2e-6)


@pytest.mark.parametrize("kind", [K.EMBEDDING, K.EMBEDDING_BAG, K.SCATTER])
@pytest.mark.parametrize(
    ("width", "row_bytes", "sector_bytes"), [(24, 96, 96), (10, 40, 64), (8, 32, 32), (9, 36, 64), (1, 4, 32)]
)
def test_gathered_rows_are_whole_sectors_of_32_bytes(kind, width, row_bytes, sector_bytes) -> None:
    lookups = 1000
    moved = 2.0 * lookups * row_bytes
    dims = (lookups, width, 10**6) + ((1000,) if kind is K.EMBEDDING_BAG else ())
    traffic = moved + (lookups * row_bytes if kind is K.SCATTER else 0.0)  # a scatter-add reads before it writes
    found = costs(kind, dims, 0.0, moved)
    assert found.bytes[0] == traffic
    assert found.time_s[0] == pytest.approx(traffic / 1e11 * (sector_bytes + 32) / row_bytes + 1e-6)


def test_routing_is_six_dependent_kernels() -> None:
    assert time_s(K.MOE_ROUTING, (64, 8, 2), 0.0, 1e6) == pytest.approx(1e6 / 1e11 + 6e-6)


@pytest.mark.parametrize(("tensors", "launches"), [(0, 1), (1, 1), (36, 1), (37, 2), (108, 3)])
def test_one_launch_updates_36_tensors(tensors, launches) -> None:
    assert time_s(K.OPTIMIZER, (10**6, 2, tensors), 0.0, 2e7) == pytest.approx(2e7 / 1e11 + launches * 1e-6)


def test_trees_touch_one_sector_per_node_and_feature() -> None:
    machine = bench(vector_operand_bytes_per_s=1e9)
    walk = 1000 * 50 * (6 + 1) * 32 / 1e9
    assert time_s(K.TREE_ENSEMBLE, (1000, 20, 50, 6), 0.0, 1e4, machine=machine) == pytest.approx(walk + 1e-6)
    histogram = time_s(K.TREE_HISTOGRAM, (1000, 20, 50, 6, 256), 0.0, 1e4, machine=machine)
    assert histogram == pytest.approx(20 * walk + 1e-6)
    assert time_s(K.TREE_ENSEMBLE, (1, 20, 50, 6), 0.0, 1e8, machine=machine) == pytest.approx(1e-3 + 1e-6)
    assert time_s(K.TREE_ENSEMBLE, (1, 20, 50, 6), 1e9, 1e4, machine=machine) == pytest.approx(2e-3 + 1e-6)


def test_copies_take_the_host_link() -> None:
    machine = bench()
    link = machine.profile.host_link
    assert link is not None
    expected = 1e9 / (0.5 * link.bandwidth_bytes_per_s.value) + 1e-5
    assert time_s(K.HOST_TO_DEVICE, (10**9, 1), machine=machine) == pytest.approx(expected)


# -- products --------------------------------------------------------------------------------------------------------


def shape(m, n, k, batch=1.0, width=4.0, rate=1e12) -> GemmShape:
    columns = [np.array([float(value)]) for value in (batch, m, n, k, width, rate)]
    return GemmShape(*columns, matrix=np.zeros(1, dtype=bool))


def product_s(*sizes, machine=None, used=None, split=False, tiles=ONE_TILE, **options) -> float:
    found = gemm_compute_s(shape(*sizes, **options), machine or bench(), used or parameters(), split=split, tiles=tiles)
    return float(found[0])


TILE_S = 2 * 128 * 128 * 256 / (1e12 / 10)  # one tile of 128 x 128 x 256 on one of ten SMs


@pytest.mark.parametrize(
    ("m", "n", "batch", "waves"),
    [(128, 128, 1, 1), (128, 1280, 1, 1), (129, 640, 1, 1), (128, 1281, 1, 2), (129, 641, 1, 2), (1, 1, 21, 3),
     (2560, 128, 1, 2)],
)  # fmt: skip
def test_tiles_run_in_waves_and_edges_cost_whole_tiles(m, n, batch, waves) -> None:
    assert product_s(m, n, 256, batch) == pytest.approx(waves * TILE_S)


def test_the_pipeline_of_a_tile_fills_and_drains() -> None:
    assert product_s(128, 128, 256, used=parameters(prologue_k=64.0)) == pytest.approx(TILE_S * (256 + 64) / 256)


def test_the_library_takes_the_fastest_tile() -> None:
    # 64 x 64: four tiles, one wave of a quarter of the work; 32 x 32: sixteen tiles, two waves of a sixteenth.
    assert product_s(128, 128, 256, tiles=((128, 128), (64, 64), (32, 32))) == pytest.approx(TILE_S / 8)
    assert product_s(128, 128, 256, tiles=((128, 128), (64, 64))) == pytest.approx(TILE_S / 4)
    assert product_s(128, 256, 256, tiles=((128, 64),)) == pytest.approx(TILE_S / 2)


@pytest.mark.parametrize(("exposed", "factor"), [(0.0, 1.0), (0.5, 1.25), (1.0, 1.5)])
def test_operands_that_arithmetic_does_not_hide_add_up(exposed, factor) -> None:
    # 256 elements of 4 bytes a step against 2 x 128 x 128 FLOP: at this rate, half the time of the arithmetic.
    machine = bench(vector_operand_bytes_per_s=256 * 4 / (0.5 * 2 * 128 * 128 / 1e12))
    used = parameters(operand_exposed_fraction=exposed)
    assert product_s(128, 128, 256, machine=machine, used=used) == pytest.approx(factor * TILE_S)


def test_a_tile_is_never_faster_than_its_operands_arrive() -> None:
    machine = bench(vector_operand_bytes_per_s=256 * 4 / (3 * 2 * 128 * 128 / 1e12))
    assert product_s(128, 128, 256, machine=machine) == pytest.approx(3 * TILE_S)
    assert product_s(128, 128, 256, machine=machine, width=2.0) == pytest.approx(1.5 * TILE_S)


def test_a_long_contraction_is_split_over_idle_sms() -> None:
    """One tile on ten SMs: eight slices of 1024 fit one wave; each partial tile goes out and in at an SM's share."""
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


@pytest.mark.parametrize(("tiles", "own"), [(1, 2.0), (2, 8**0.5), (3, 12**0.5), (4, 4.0), (5, 6.0), (8, 8.0)])
def test_lone_tiles_of_64_threads_take_longer_than_their_share(tiles, own) -> None:
    """Loss 1/2: j tiles of a group of four take sqrt(4 j) tiles' time."""
    used = parameters(lone_tile_loss=0.5)
    found = product_s(64, 64, 256, 10 * tiles, used=used, tiles=((64, 64),))
    assert found == pytest.approx(own * TILE_S / 4)
    assert product_s(128, 128, 256, 10 * tiles, used=used) == pytest.approx(tiles * TILE_S)  # other tiles do not


@pytest.mark.parametrize(("k", "factor"), [(16384, 1.5), (32768, 1 + 16 / 17), (1024, 1.0)])
def test_long_rows_walk_pages_on_early_boards(k, factor) -> None:
    used = parameters(page_walk_loss=1.0)
    plain, walking = (
        costs(*gemm(1280, 128, k), machine=bench(has_page_walks=flag), used=used).compute_s[0] for flag in (False, True)
    )
    assert walking / plain == pytest.approx(factor, rel=2e-5)


def test_a_product_adds_latency_to_arithmetic_and_traffic() -> None:
    kind, dims, flop, moved = gemm(1280, 128, 256)
    found = costs(kind, dims, flop, moved)
    assert found.flop[0] == flop == 2 * 1280 * 128 * 256
    assert found.compute_s[0] == pytest.approx(TILE_S)
    assert found.memory_s[0] == pytest.approx(moved / 1e11)
    assert found.time_s[0] == pytest.approx(TILE_S + moved / 1e11 + 2e-6)  # exponent 1: nothing overlaps


def test_batched_products_have_their_own_ratio_and_never_beat_the_peak() -> None:
    kind, dims, flop, moved = gemm(128, 128, 256, 10, kind=K.BATCHED_GEMM)
    slower, faster = (
        costs(kind, dims, flop, moved, used=parameters(batched_ratio=ratio)).compute_s[0] for ratio in (0.5, 1.5)
    )
    assert slower == pytest.approx(2 * TILE_S)
    assert faster == pytest.approx(flop / 1e12)


def test_experts_share_the_rows_evenly() -> None:
    # 8 experts, 2,048 rows: 256 rows each, two tiles by one; 16 tiles on ten SMs are two waves.
    found = costs(K.GROUPED_GEMM, (8, 2048, 128, 256), 0.0, 1e6)
    assert found.compute_s[0] == pytest.approx(2 * TILE_S)
    assert found.flop[0] == 2 * 2048 * 128 * 256
    assert found.bytes[0] == 1e6


def test_operands_are_read_once_per_square_of_tiles_unless_one_stays_in_the_cache() -> None:
    # Four SMs: the tiles of a wave make a square of side 256.
    sizes = shape(1024, 512, 4096)
    a, b = 4.0 * 1024 * 4096, 4.0 * 4096 * 512
    once = np.array([a + b])
    spilled = gemm_traffic_bytes(sizes, once, bench(sm_count=4.0, l2_bytes=1e6))
    assert spilled[0] == a * (512 / 256) + b * (1024 / 256)
    for l2_bytes, again in ((2 * b, False), (2 * b - 1, True)):  # the smaller operand in half of the cache
        found = gemm_traffic_bytes(sizes, once, bench(sm_count=4.0, l2_bytes=l2_bytes))
        assert bool(found[0] > once[0]) is again
    batched = gemm_traffic_bytes(shape(1024, 512, 4096, 3.0), 3 * once, bench(sm_count=4.0, l2_bytes=1e6))
    assert batched[0] == 3 * spilled[0]
    small = gemm_traffic_bytes(shape(64, 64, 10**6), once, bench(sm_count=4.0, l2_bytes=1e6))
    assert small[0] == once[0]  # one square holds it all


@pytest.mark.parametrize(("exponent", "joined"), [(1.0, 7.0), (2.0, 5.0), (1e3, 4.0)])
def test_arithmetic_and_traffic_join_in_a_p_norm(exponent, joined) -> None:
    assert join_times(np.array([3.0]), np.array([4.0]), exponent)[0] == pytest.approx(joined)
    assert join_times(np.array([4.0]), np.array([3.0]), exponent)[0] == pytest.approx(joined)
    assert join_times(np.array([0.0]), np.array([0.0]), exponent)[0] == 0


# -- attention -------------------------------------------------------------------------------------------------------


def attention_dims(batch, heads, q_len, kv_len, *, kv_heads=None, causal=0, window=0):
    return (batch, heads, kv_heads or heads, q_len, kv_len, 64, 64, causal, window, 0)


def test_attention_runs_blocks_of_64_queries_in_waves() -> None:
    # 2 x 5 heads x 2 blocks of 64 queries = 20 blocks: two waves; 4 x 64 FLOP a pair at half the rate.
    found = costs(K.ATTENTION, attention_dims(2, 5, 128, 256), 0.0, 1e6)
    flop = 2 * 5 * 128 * 256 * 4 * 64
    assert found.flop[0] == flop
    assert found.compute_s[0] == pytest.approx(flop / 0.5e12)
    assert found.time_s[0] == pytest.approx(flop / 0.5e12 + 1e6 / 1e11 + 2e-6)
    # 22 blocks take three waves, 65 queries as long as 128.
    three = costs(K.ATTENTION, attention_dims(2, 11, 64, 256), 0.0, 1e6)
    assert three.compute_s[0] == pytest.approx(30 * 64 * 256 * 256 / 0.5e12)
    ragged = costs(K.ATTENTION, attention_dims(2, 5, 65, 256), 0.0, 1e6)
    assert ragged.compute_s[0] == pytest.approx(found.compute_s[0])


def test_scores_cost_eight_lane_flop_each() -> None:
    used = parameters(special_efficiency=0.01)  # slower than the products
    found = costs(K.ATTENTION, attention_dims(2, 5, 128, 256), 0.0, 1e6, used=used)
    assert found.compute_s[0] == pytest.approx(2 * 5 * 128 * 256 * 8 / 0.01e12)


def test_the_backward_pass_does_five_products_for_two_and_sums_in_a_second_kernel() -> None:
    found = costs(K.ATTENTION_BACKWARD, attention_dims(2, 5, 128, 256), 0.0, 1e6)
    flop = 2.5 * 2 * 5 * 128 * 256 * 4 * 64
    assert found.flop[0] == flop
    assert found.compute_s[0] == pytest.approx(flop / (0.5 * 0.8 * 1e12))
    assert found.time_s[0] == pytest.approx(found.compute_s[0] + 1e6 / 1e11 + 2e-6 + 1e-6)


def test_causal_attention_executes_the_visible_blocks() -> None:
    # 256 queries over 256 keys: 256 x 257 / 2 pairs, plus half a block of 128 keys for every query along the edge.
    found = costs(K.ATTENTION, attention_dims(10, 1, 256, 256, causal=1), 0.0, 1e6)
    assert found.flop[0] == 10 * 256 * 257 / 2 * 4 * 64
    assert found.compute_s[0] == pytest.approx(10 * (256 * 257 / 2 + 256 * 64) * 4 * 64 / 0.5e12)


@pytest.mark.parametrize(
    ("heads", "kv_heads", "padded"), [(8, 8, 16), (8, 2, 4), (32, 1, 1)], ids=["own keys", "four share", "all share"]
)
def test_decoding_works_on_slices_of_256_keys_and_pads_to_the_instruction(heads, kv_heads, padded) -> None:
    # 1,000 keys are four slices; a query is padded to 16 rows, which the heads that share keys fill together.
    dims = attention_dims(5, heads, 1, 1000, kv_heads=kv_heads)
    found = costs(K.ATTENTION, dims, 0.0, 1e6)
    blocks = 5 * heads * 4
    assert blocks % 10 == 0
    assert found.compute_s[0] == pytest.approx(blocks * padded * 256 * 4 * 64 / 0.5e12)
    assert found.time_s[0] == pytest.approx(found.compute_s[0] + 1e6 / 1e11 + 2e-6 + 1e-6)  # slices are summed


def test_one_slice_needs_no_sum_and_17_queries_no_padding() -> None:
    lone = costs(K.ATTENTION, attention_dims(5, 8, 1, 256), 0.0, 0.0)
    assert lone.time_s[0] == pytest.approx(lone.compute_s[0] + 2e-6)
    sixteen, seventeen = (costs(K.ATTENTION, attention_dims(5, 8, q, 512), 0.0, 0.0) for q in (16, 17))
    assert sixteen.compute_s[0] == pytest.approx(5 * 8 * 2 * 16 * 256 * 256 / 0.5e12)
    assert seventeen.compute_s[0] == pytest.approx(5 * 8 * 64 * 512 * 256 / 0.5e12)


# -- recurrent layers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "gates"), [(K.RNN, 1), (K.GRU, 3), (K.LSTM, 4)])
def test_recurrent_layers_are_one_input_product_and_a_product_per_step(kind, gates) -> None:
    """Batch 128, 10 steps, 256 to 128: the input product has gates x 10 tiles, a step as many tiles as gates."""
    dims = (128, 10, 256, 128, 1)
    flop = 2.0 * 128 * 10 * gates * 128 * (256 + 128)
    found = costs(kind, dims, flop, 1e6)
    inputs_s = gates * TILE_S  # ten tiles a gate, one wave each, 256 deep
    waves = min(-(-gates * slices // 10) / slices for slices in (1, 2, 4, 8, 16, 32))
    step_s = TILE_S / 2 * waves  # 128 deep, split as fits best
    assert found.flop[0] == flop
    assert found.compute_s[0] == pytest.approx(inputs_s + 10 * step_s)
    assert found.time_s[0] == pytest.approx(inputs_s + 10 * step_s + 1e6 / 1e11 + 2e-6 + 10 * 5e-6)


def test_recurrent_weights_beyond_the_cache_are_read_at_every_step() -> None:
    dims, weights = (1, 10, 128, 512, 2), 2 * 4 * 512 * 512 * 4
    flop = 2.0 * 2 * 10 * 4 * 512 * (128 + 512)
    for l2_bytes, again in ((weights, 0), (weights - 1, 9)):
        found = costs(K.LSTM, dims, flop, 1e6, machine=bench(l2_bytes=float(l2_bytes)))
        assert found.bytes[0] == 1e6 + again * weights


def test_a_backward_row_runs_its_products_and_steps_twice() -> None:
    dims = (128, 10, 256, 128, 1)
    flop = 2.0 * 128 * 10 * 4 * 128 * (256 + 128)
    forward, backward = (costs(K.LSTM, dims, factor * flop, 0.0) for factor in (1, 2))
    assert backward.compute_s[0] == pytest.approx(2 * forward.compute_s[0])
    assert backward.flop[0] == 2 * flop
    assert backward.time_s[0] - backward.compute_s[0] == pytest.approx(2e-6 + 20 * 5e-6)


# -- operands that stay in the cache of a measuring loop --------------------------------------------------------------


def looped(cycle_bytes, compute_s=1e-6, memory_s=8e-6, latency_s=2e-6):
    """Exponent 1; a cache of 8 bytes a clock for each of 25 SMs has twice the memory's bandwidth."""
    columns = [np.array([value]) for value in (compute_s + memory_s + latency_s, compute_s, memory_s, 0.0, 0.0)]
    machine = bench(sm_count=25.0, stream_bytes_per_s=1e11)
    return with_cached_operands(RowCosts(*columns), np.array([cycle_bytes]), machine, parameters())


@pytest.mark.parametrize(("cycle_bytes", "memory_s"), [(0.0, 4e-6), (1.02e6, 6e-6), (1e9, 8e-6), (np.inf, 8e-6)])
def test_operands_in_the_cache_come_at_its_bandwidth(cycle_bytes, memory_s) -> None:
    found = looped(cycle_bytes)
    assert found.memory_s[0] == pytest.approx(memory_s)
    assert found.time_s[0] == pytest.approx(1e-6 + memory_s + 2e-6)


def test_a_cache_slower_than_memory_or_none_gains_nothing() -> None:
    columns = [np.array([value]) for value in (11e-6, 1e-6, 8e-6, 0.0, 0.0)]
    for machine in (bench(sm_count=1.0), bench(l2_bytes=0.0, sm_count=1000.0)):
        assert with_cached_operands(RowCosts(*columns), np.array([0.0]), machine, parameters()).time_s[0] == 11e-6


# -- power -----------------------------------------------------------------------------------------------------------


def test_a_board_over_its_limit_slows_to_the_cube_root_of_its_room() -> None:
    # 100 W of dynamic power in 64 W of room: the clock that draws f^3 of it is 0.862.
    machine = bench(limit_w=74.0, static_w=10.0, power_window_s=0.0)
    assert machine.clock_fraction(np.array([100.0]), np.array([1.0]))[0] == pytest.approx(0.64 ** (1 / 3))
    assert machine.clock_fraction(np.array([64.0]), np.array([1.0]))[0] == 1.0


@pytest.mark.parametrize(("length_s", "weight"), [(1e-9, 1.0), (1.0, np.exp(-1.0)), (50.0, 0.0)])
def test_short_isolated_kernels_may_burst(length_s, weight) -> None:
    machine = bench(limit_w=74.0, static_w=10.0, power_window_s=1.0, burst_power_ratio=2.0)
    sustained = 0.64 ** (1 / 3)
    found = machine.clock_fraction(np.array([100.0 * length_s]), np.array([length_s]))
    assert found[0] == pytest.approx(sustained + (1.0 - sustained) * weight)


def test_a_limited_product_takes_longer_in_arithmetic_and_traffic_alike() -> None:
    kind, dims, flop, moved = gemm(1280, 128, 256)
    free = costs(kind, dims, flop, moved)
    busy_s = float(free.time_s[0]) - 2e-6
    machine = bench(limit_w=74.0, static_w=10.0, power_window_s=0.0, byte_energy_j=0.0,
                    flop_energy_j=np.full(len(Dtype), 100.0 * busy_s / flop))  # fmt: skip
    limited = costs(kind, dims, flop, moved, machine=machine)
    clock = 0.64 ** (1 / 3)
    assert limited.time_s[0] == pytest.approx(busy_s / clock + 2e-6)
    assert limited.compute_s[0] == pytest.approx(free.compute_s[0] / clock)


# -- a profile's numbers ---------------------------------------------------------------------------------------------


def test_a_machine_is_its_profile_times_the_parameters() -> None:
    """T4 (NVIDIA data sheet): 40 SMs at 1590 MHz, 8.1 TFLOP/s, 320 GB/s GDDR6, 70 W."""
    used = parameters(
        gddr_efficiency=0.5, operand_bytes_per_lane_clock=0.25, matrix_operand_bytes_per_clock=128.0,
        active_static_w=5.0, active_static_fraction=0.1, power_window_s=1e-3,
    )  # fmt: skip
    board = gpu("t4")
    machine = GpuMachine.of(board, used)
    assert machine.stream_bytes_per_s == pytest.approx(0.5 * 320e9)
    assert machine.static_w == pytest.approx(5.0 + 0.1 * 70)
    assert machine.vector_operand_bytes_per_s == pytest.approx(0.25 * board.vector_flop_per_s[Dtype.FP32].value / 2)
    assert machine.matrix_operand_bytes_per_s == pytest.approx(128.0 * 40 * board.boost_clock_hz.value)
    assert machine.power_window_s == 0.0  # sustained work
    assert GpuMachine.of(board, replace(used, is_isolated=True)).power_window_s == 1e-3


@pytest.mark.parametrize(
    ("name", "field"),
    [("t4", "gddr"), ("a100-pcie-40gb", "hbm"), ("p100-pcie-16gb", "early_memory"), ("gtx-1080", "early_memory"),
     ("mi100", "other_memory")],
)  # fmt: skip
def test_memory_efficiency_is_that_of_generation_vendor_and_kind(name, field) -> None:
    own = f"{field}_efficiency" if field != "other_memory" else "other_memory_efficiency"
    values = dict.fromkeys(
        ("gddr_efficiency", "hbm_efficiency", "early_memory_efficiency", "other_memory_efficiency"), 0.9
    ) | {own: 0.3}
    machine = GpuMachine.of(gpu(name), parameters(**values))
    assert machine.stream_bytes_per_s == pytest.approx(0.3 * machine.bandwidth_bytes_per_s)


def test_matrix_cores_move_operands_in_proportion_to_their_width() -> None:
    """An FP16 operation takes overhead x its multiplier; INT8 its own multiplier and half of the movement."""
    overhead = 4.0
    board = gpu("a100-pcie-40gb")
    machine = GpuMachine.of(board, parameters(matrix_energy_overhead=overhead))
    plain = GpuMachine.of(board, parameters(matrix_energy_overhead=1.0)).flop_energy_j
    half = plain[Dtype.FP16]
    assert machine.flop_energy_j[Dtype.FP16] == pytest.approx(overhead * half)
    assert machine.flop_energy_j[Dtype.INT8] == pytest.approx(plain[Dtype.INT8] + (overhead - 1) * half / 2)


# -- the whole model -------------------------------------------------------------------------------------------------

DISPATCH = {
    "dispatch_contraction_s": 1e-6, "dispatch_batched_s": 2e-6, "dispatch_convolution_s": 3e-6, "dispatch_norm_s": 4e-6,
    "dispatch_softmax_s": 5e-6, "dispatch_scalar_s": 6e-6, "dispatch_activation_s": 7e-6,
    "dispatch_elementwise_s": 8e-6, "graph_gap_s": 9e-6,
}  # fmt: skip


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
    used = parameters(**DISPATCH)
    assert cost_gpu(graph([row]), gpu("t4"), Execution.EAGER, used).dispatch_s[0] == issued_s
    assert cost_gpu(graph([row]), gpu("t4"), Execution.GRAPH, used).dispatch_s[0] == 9e-6


def test_energy_is_arithmetic_and_traffic_below_the_limit() -> None:
    board = gpu("a100-pcie-40gb")
    free = board.model_copy(update={"power": board.power.model_copy(update={"limit_w": None})})
    used = parameters()
    machine = GpuMachine.of(free, used)
    rows = [(K.ELEMENTWISE, (10**6, 2, 1), 1e6, 12e6), gemm(512, 512, 512)]
    table = cost_gpu(graph(rows), free, parameters=used)
    vector, product = (table.flop[0] * machine.vector_energy_j, table.flop[1] * machine.flop_energy_j[Dtype.FP32])
    assert table.energy_j == pytest.approx([vector, product] + table.bytes * machine.byte_energy_j)


def test_a_row_at_the_limit_draws_the_room_above_static_power() -> None:
    board = gpu("t4")  # 70 W
    used = parameters(active_static_w=10.0, active_static_fraction=0.1, vector_energy_overhead=500.0)
    table = cost_gpu(graph([gemm(4096, 4096, 4096)]), board, parameters=used)
    assert table.energy_j[0] == pytest.approx((70 - 10 - 7) * table.time_s[0])
