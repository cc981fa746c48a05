"""Times of a bench CPU with round numbers, worked out by hand for every operator class of the CPU
model.

Four cores at 1 GHz; 100 GFLOP/s in products, 50 in windows, 100 in vectors; one cache of 1 MB at 40
GB/s over main memory at 10 GB/s, of which one core draws 5. Starts take 1, 2 and 3 us, regions fork
at once: what is left is the formula.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from operator_cases import row

from accelsim import catalog
from accelsim.cost.contraction import Contraction
from accelsim.cost.cpu import cpu_parameters
from accelsim.cost.cpu.fitted_kernels import FittedKernels
from accelsim.cost.cpu.machine import CpuMachine, cpu_machine
from accelsim.cost.cpu.model import FORMULAS, blocking_efficiency
from accelsim.cost.cpu.parameters import CpuParameters
from accelsim.cost.table import Execution, RowCosts
from accelsim.dtype import Dtype
from accelsim.workloads.operator import OperatorKind as K

FORMATS = len(Dtype)
IDEAL = {
    "cache_sharpness": 1e9,
    "m_half_count": 0.0,
    "n_half_count": 0.0,
    "k_half_count": 0.0,
    "gemv_efficiency_fraction": 0.5,
    "depthwise_efficiency_fraction": 0.2,
    "unit_efficiency_fraction": 0.8,
    "vector_efficiency_fraction": 0.5,
    "softmax_efficiency_fraction": 0.25,
    "requantise_operation_count": 6.0,
    "block_instruction_count": 8.0,
    "block_dot_instruction_count": 16.0,
    "block_chunk_count": 64.0,
    "pooling_cycles_per_tap": 8.0,
    "fused_pooling_cycles_per_tap": 2.0,
    "fork_join_s": 0.0,
    "fork_join_per_thread_s": 0.0,
    "parallel_grain_count": 1000.0,
    "gemm_block_count": 100.0,
    "page_fault_s_per_byte": 1e-9,
    "page_fault_bytes": 1e6,
    "page_fault_parallel_count": 2.0,
    "memory_latency_s": 1e-7,
    "outstanding_line_count": 10.0,
    "recurrent_step_s": 5e-6,
    "optimizer_pass_ratio": 3.0,
    "tree_cycles_per_node": 20.0,
    "histogram_cycles_per_update": 5.0,
}


def moving_s(machine, working_set, moved, threads) -> float:
    level_bytes = machine.level_bytes(np.array([working_set]), np.array([moved]))
    return float(machine.level_s(level_bytes, threads)[0])


def parameters(**changes) -> CpuParameters:
    return replace(cpu_parameters(), **(IDEAL | changes))


def bench(used: CpuParameters | None = None, **changes) -> CpuMachine:
    usual = {
        "name": "bench",
        "execution": Execution.GRAPH,
        "threads": 4.0,
        "clock_hz": 1e9,
        "gemm_rate": np.full(FORMATS, 100e9),
        "unit_rate": np.full(FORMATS, 50e9),
        "lane_rates": np.full(FORMATS, 100e9),
        "lane_rate": 10e9,
        "emulated": np.zeros(FORMATS, dtype=bool),
        "level_capacity_bytes": np.array([1e6]),
        "level_bytes_per_s": np.array([40e9, 10e9]),
        "core_memory_bytes_per_s": 5e9,
        "last_level_bytes": 1e6,
        "weights_cold": False,
        "splits_batches": False,
        "streams": 1.0,
        "dispatch_s": 1e-6,
        "contraction_s": 2e-6,
        "conv_s": 3e-6,
        "values": used or parameters(),
    }
    return CpuMachine(**(usual | changes))


def costs(kind, dims, *, machine=None, used=None, **columns) -> RowCosts:
    machine = machine or bench()
    if used is not None:
        machine = replace(machine, values=used)
    return FORMULAS.evaluate(row(kind, dims, **columns), machine, "bench")


ALL = np.array([4.0])
ONE = np.array([1.0])


# -- what follows a product


def test_joined_arithmetic_and_sums_of_8_bits_take_vector_time() -> None:
    """64 x 64 sums, 8 FLOP behind each at half of 100 GFLOP/s, 6 operations of a lane in INT8."""
    plain = costs(K.GEMM, (1, 64, 64, 64), flop=2 * 64**3)
    graph = row(K.GEMM, (1, 64, 64, 64), flop=2 * 64**3, dtype=Dtype.INT8)
    graph = replace(graph, epilogue_flop=np.array([8.0 * 64**2]))
    joined = FORMULAS.evaluate(graph, bench(), "bench")
    more = 64**2 * (8 / 50e9 + 6 * 2 / 100e9)
    assert joined.time_s - plain.time_s == pytest.approx(more)


# -- memory


def test_caches_hold_less_of_a_set_the_nearer_it_comes_to_their_size() -> None:
    machine = bench(parameters(cache_sharpness=2.0))
    shares = machine.resident_shares(np.array([0.0, 0.75e6, 1e6, 1e8]))
    assert shares[0] == pytest.approx([1.0, 0.8, 0.5**0.5, 0.01], rel=1e-4)
    hard = bench().resident_shares(np.array([0.75e6, 1e8]))
    assert hard[0] == pytest.approx([1.0, 0.01])


@pytest.mark.parametrize(
    ("working_set", "expected_s"),
    [
        (0.5e6, 1e6 / 40e9),
        (1e6, 1e6 / 40e9),
        (2e6, 0.5e6 / 40e9 + 0.5e6 / 10e9),  # the cache keeps its own capacity's worth
        (8e6, 0.125e6 / 40e9 + 0.875e6 / 10e9),
        (np.inf, 1e6 / 10e9),
    ],
)
def test_each_part_of_a_working_set_comes_from_where_it_lies(working_set, expected_s) -> None:
    assert moving_s(bench(), working_set, 1e6, ALL) == pytest.approx(expected_s)


def test_a_part_of_a_batch_takes_its_share_of_the_cache() -> None:
    """Of 1 MB an eighth: 2 MB run in 16 parts, whose 1 kB of weights is read 16 times."""
    machine = bench(parameters(part_cache_fraction=0.125), splits_batches=True)
    found = costs(K.COPY, (1,), machine=machine, read=1e6, write=1e6, weights=1e3)
    assert found.memory_s == pytest.approx((2e6 + 16e3) / 40e9)
    assert found.bytes == pytest.approx(0.0)
    assert found.time_s == pytest.approx(found.memory_s + 16e-6)  # each part starts anew


def test_streams_share_the_caches_but_not_the_weights() -> None:
    """Four batches of 0.5 MB fill the cache twice: half of each comes from memory."""
    found = costs(K.COPY, (1,), machine=bench(streams=4.0), read=0.25e6, write=0.25e6)
    assert found.memory_s == pytest.approx(0.25e6 / 40e9 + 0.25e6 / 10e9)
    weights = costs(K.COPY, (1,), machine=bench(streams=4.0), read=1.0, write=1.0, weights=0.5e6)
    assert weights.memory_s == pytest.approx(0.5e6 / 40e9, rel=1e-4)


def test_one_core_draws_less_from_memory_and_has_its_share_of_the_cache() -> None:
    machine = bench()
    assert moving_s(machine, np.inf, 1e6, ONE) == pytest.approx(1e6 / 5e9)
    assert moving_s(machine, 1.0, 1e6, ONE) == pytest.approx(1e6 / (40e9 / 4))
    slow = bench(
        level_bytes_per_s=np.array([12e9, 10e9])
    )  # a quarter of the cache is slower than memory
    assert moving_s(slow, 1.0, 1e6, ONE) == pytest.approx(1e6 / 5e9)


def test_two_caches_hold_what_the_inner_one_does_not() -> None:
    machine = bench(
        level_capacity_bytes=np.array([1e6, 4e6]), level_bytes_per_s=np.array([80e9, 40e9, 10e9])
    )
    found = moving_s(machine, 8e6, 8e6, ALL)
    assert found == pytest.approx(1e6 / 80e9 + 3e6 / 40e9 + 4e6 / 10e9)


def test_without_caches_everything_comes_from_memory() -> None:
    machine = bench(level_capacity_bytes=np.zeros(0), level_bytes_per_s=np.array([10e9]))
    found = costs(K.ELEMENTWISE, (10**6, 2, 1), read=8e6, write=4e6, machine=machine)
    assert found.memory_s[0] == pytest.approx(12e6 / 10e9)
    assert found.bytes[0] == 12e6


def test_warm_weights_share_the_caches_and_cold_ones_come_from_memory() -> None:
    row_of = {"read": 0.5e6, "write": 0.5e6, "weights": 1e6}
    dims = (1, 1000, 1000, 1)
    warm = costs(K.GEMM, dims, **row_of)
    assert warm.memory_s[0] == pytest.approx(
        2e6 * (0.5 / 40e9 + 0.5 / 10e9)
    )  # 2 MB in a cache of 1 MB
    assert warm.bytes[0] == pytest.approx(1e6)
    cold = costs(K.GEMM, dims, **row_of, machine=bench(weights_cold=True))
    assert cold.memory_s[0] == pytest.approx(1e6 / 40e9 + 1e6 / 10e9)
    assert cold.bytes[0] == pytest.approx(1e6)


@pytest.mark.parametrize(
    ("written", "execution", "fault_s"),
    [
        (1e6, Execution.EAGER, 0.0),
        (1e6 + 4, Execution.EAGER, (1e6 + 4) * 1e-9 / 2),  # two threads fault side by side
        (4e6, Execution.GRAPH, 0.0),
        (4e6, Execution.COMPILED, 0.0),
    ],
)
def test_fresh_outputs_above_the_threshold_fault_in(written, execution, fault_s) -> None:
    calibrated = FittedKernels({}, 0.0, 0.0, 0.0)
    machine = bench(parameters(kernels=calibrated), execution=execution)
    found = costs(K.ELEMENTWISE, (10**6, 1, 0), write=written, machine=machine)
    assert found.memory_s[0] == pytest.approx(moving_s(machine, written, written, ALL) + fault_s)


def test_parallel_regions_fork_and_join() -> None:
    used = parameters(fork_join_s=1e-5, fork_join_per_thread_s=1e-6)
    assert bench(used).fork_join_s(np.array([1.0, 2.0, 4.0])) == pytest.approx(
        [0.0, 1.2e-5, 1.4e-5]
    )
    small, large = (costs(K.COPY, (count,), read=8.0 * count, used=used) for count in (1000, 4000))
    assert small.time_s[0] - small.memory_s[0] == pytest.approx(1e-6)  # one grain, one thread
    # four grains on one thread: a region would take longer than it saves
    assert large.time_s[0] - large.memory_s[0] == pytest.approx(1e-6)
    huge = costs(K.COPY, (10**7,), read=8e7, used=used)
    assert huge.time_s[0] - huge.memory_s[0] == pytest.approx(1e-6 + 1.4e-5)


# -- products


def shape(m, n, k) -> Contraction:
    return Contraction(*(np.array([float(value)]) for value in (1, m, n, k)))


@pytest.mark.parametrize(
    ("sizes", "efficiency"),
    [
        ((30, 100, 900), 30 / 40 * 100 / 150 * 900 / 1000),
        ((10, 50, 100), 0.5 * 0.5 * 0.5),
        ((2, 50, 100), 0.3 * 0.5 * 0.5),  # few rows: as many vectors
        ((1, 100, 900), 0.3),
        ((30, 1, 900), 0.3),
        ((30, 2, 900), 30 / 40 * 2 / 52 * 900 / 1000),
        ((2, 100, 900), 0.3 * 100 / 150 * 900 / 1000),
    ],
)
def test_blocked_products_lose_their_edges_and_vectors_have_a_kernel(sizes, efficiency) -> None:
    used = parameters(
        m_half_count=10.0, n_half_count=50.0, k_half_count=100.0, gemv_efficiency_fraction=0.3
    )
    assert blocking_efficiency(shape(*sizes), used)[0] == pytest.approx(efficiency)


@pytest.mark.parametrize(
    ("m", "n", "threads"),
    [(5, 10, 1.0), (10, 10, 1.0), (10, 20, 2.0), (15, 10, 1.5), (90, 90, 4.0)],
)
def test_products_run_on_the_threads_their_outputs_feed(m, n, threads) -> None:
    found = costs(K.GEMM, (1, m, n, 1000))
    assert found.compute_s[0] == pytest.approx(2 * m * n * 1000 / (100e9 * threads / 4))
    assert found.flop[0] == 2 * m * n * 1000
    assert found.time_s[0] == pytest.approx(found.compute_s[0] + 2e-6)


def test_part_filled_edges_count_as_outputs() -> None:
    used = parameters(m_half_count=10.0, n_half_count=5.0, gemv_efficiency_fraction=0.01)
    found = costs(K.GEMM, (1, 10, 5, 1000), used=used)
    threads = (10 + 10) * (5 + 5) / 100
    assert found.compute_s[0] == pytest.approx(2 * 10 * 5 * 1000 / (100e9 * threads / 4 * 0.25))


def test_experts_and_batches_are_products_of_their_own() -> None:
    batched = costs(K.BATCHED_GEMM, (4, 10, 10, 1000))
    grouped = costs(K.GROUPED_GEMM, (4, 40, 10, 1000))
    assert (
        batched.compute_s[0]
        == grouped.compute_s[0]
        == pytest.approx(4 * 2 * 10 * 10 * 1000 / 100e9)
    )


def test_formats_without_units_are_converted_lane_by_lane() -> None:
    emulated = np.zeros(FORMATS, dtype=bool)
    emulated[Dtype.BF16] = True
    plain, widened = (
        costs(
            K.GEMM,
            (1, 90, 90, 1000),
            dtype=Dtype.BF16,
            read=2e5,
            write=2e4,
            machine=bench(emulated=mask),
        )
        for mask in (np.zeros(FORMATS, dtype=bool), emulated)
    )
    assert widened.compute_s[0] - plain.compute_s[0] == pytest.approx(2.2e5 / 2 / 10e9)


def conv_dims(window, groups=1, channels=32):
    return (1, channels, channels, groups, 1, 16, 16, 1, 16, 16, 1, window, window, 1, 1)


def test_windows_run_in_their_own_kernels_and_pointwise_ones_in_the_slower_of_both() -> None:
    flop = 2.0 * 256 * 32 * 32
    assert costs(K.CONV, conv_dims(1)).compute_s[0] == pytest.approx(flop / 50e9)
    assert costs(K.CONV, conv_dims(3)).compute_s[0] == pytest.approx(9 * flop / 50e9)
    slow = bench(gemm_rate=np.full(FORMATS, 20e9))
    assert costs(K.CONV, conv_dims(1), machine=slow).compute_s[0] == pytest.approx(flop / 20e9)
    assert costs(K.CONV, conv_dims(3), machine=slow).compute_s[0] == pytest.approx(9 * flop / 50e9)
    assert costs(K.CONV, conv_dims(3)).time_s[0] == pytest.approx(9 * flop / 50e9 + 3e-6)


def test_depthwise_windows_reach_a_share_of_the_vector_peak() -> None:
    # The unit's rate holds 0.8 of the peak, depthwise kernels 0.2 of it: a quarter of the unit's
    # rate.
    flop = 2.0 * 256 * 32 * 9
    assert costs(K.CONV, conv_dims(3, groups=32)).compute_s[0] == pytest.approx(flop / (50e9 / 4))
    grouped = costs(K.CONV, conv_dims(3, groups=16)).compute_s[0]
    assert grouped == pytest.approx(2 * flop / 50e9)  # two channels a group: a small product
    tiny = costs(K.CONV, (1, 2, 2, 2, 1, 5, 5, 1, 5, 5, 1, 3, 3, 1, 1)).compute_s[0]
    assert tiny == pytest.approx(
        2.0 * 25 * 2 * 9 / (50e9 / 4) * 4
    )  # 50 outputs feed one thread of four


def test_a_depthwise_multiplier_feeds_more_threads() -> None:
    # Two channels to eight over 50 pixels: 400 outputs feed four threads.
    found = costs(K.CONV, (1, 2, 8, 2, 1, 5, 10, 1, 5, 10, 1, 3, 3, 1, 1)).compute_s[0]
    assert found == pytest.approx(2.0 * 50 * 8 * 9 / (50e9 / 4))


def test_attention_is_two_products_and_a_softmax() -> None:
    # 2 x 4 heads, 50 queries, 60 keys, heads 64 wide: 6 vector FLOP a score at a quarter of the
    # peak.
    pairs = 2 * 4 * 50 * 60
    flop = 4.0 * pairs * 64
    found = costs(K.ATTENTION, (2, 4, 4, 50, 60, 64, 64, 0, 0, 0), flop=flop)
    assert found.compute_s[0] == pytest.approx(flop / 100e9 + 6 * pairs / 25e9)
    assert found.time_s[0] == pytest.approx(found.compute_s[0] + 2e-6)
    backward = costs(K.ATTENTION_BACKWARD, (2, 4, 4, 50, 60, 64, 64, 0, 0, 0), flop=2.5 * flop)
    assert backward.compute_s[0] == pytest.approx(2.5 * flop / 100e9 + 6 * pairs / 25e9)


def test_few_scores_run_on_few_threads() -> None:
    # One head, 10 queries, 20 keys, heads 10 wide: 200 scores feed two threads, 100 results one.
    pairs = 200
    flop = 4.0 * pairs * 10
    found = costs(K.ATTENTION, (1, 1, 1, 10, 20, 10, 10, 0, 0, 0), flop=flop)
    assert found.compute_s[0] == pytest.approx(
        flop / 2 / 50e9 + flop / 2 / 25e9 + 6 * pairs / 12.5e9
    )


@pytest.mark.parametrize(("kind", "gates"), [(K.RNN, 1), (K.GRU, 3), (K.LSTM, 4)])
def test_recurrent_layers_wait_for_each_step(kind, gates) -> None:
    # Batch 20, 10 steps, 30 to 40, both directions: every step starts, and reads its weights unless
    # it computes longer.
    once, each = 2.0 * 2 * 200 * gates * 40 * 30, 2.0 * 20 * gates * 40 * 40
    flop = once + 20 * each
    found = costs(kind, (20, 10, 30, 40, 2), flop=flop)
    assert found.compute_s[0] == pytest.approx(flop / 50e9)
    assert found.time_s[0] == pytest.approx(flop / 50e9 + 20 * 5e-6 + 2e-6)
    training = costs(kind, (20, 10, 30, 40, 2), flop=2 * flop)
    assert training.time_s[0] == pytest.approx(2 * (flop / 50e9 + 20 * 5e-6) + 2e-6)


def test_steps_of_a_single_sequence_are_bound_by_their_weights() -> None:
    # 4 x 512 x 512 weights of 4 bytes, a quarter of them in the cache; the product itself takes
    # less.
    used = parameters(gemv_efficiency_fraction=1.0)
    weights = 4 * 512 * 512 * 4.0
    machine = bench(used)
    step_s = moving_s(machine, weights, weights, ALL)
    flop = 10 * 2.0 * 4 * 512 * (512 + 512)
    found = costs(K.LSTM, (1, 10, 512, 512, 1), flop=flop, used=used, machine=machine)
    inputs_s = 10 * 2.0 * 4 * 512 * 512 / 50e9
    assert step_s > inputs_s / 10
    assert found.time_s[0] == pytest.approx(inputs_s + 10 * (step_s + 5e-6) + 2e-6)


# -- vectors


def test_elementwise_rows_take_lanes_or_traffic() -> None:
    lanes = costs(K.ELEMENTWISE, (10**5, 1, 100), flop=1e7, read=4e5, write=4e5)
    assert lanes.compute_s[0] == pytest.approx(1e7 / 50e9)
    assert lanes.time_s[0] == pytest.approx(1e7 / 50e9 + 1e-6)
    traffic = costs(K.ELEMENTWISE, (10**5, 1, 1), flop=1e5, read=4e5, write=4e5)
    assert traffic.time_s[0] == pytest.approx(8e5 / 40e9 + 1e-6)
    # 2,000 elements feed two threads of four.
    short = costs(K.ELEMENTWISE, (2000, 1, 100), flop=2e5, read=8e3, write=4e3)
    assert short.compute_s[0] == pytest.approx(2e5 / 25e9)


@pytest.mark.parametrize(
    ("kind", "rate"),
    [(K.SOFTMAX, 25e9), (K.LAYER_NORM, 50e9), (K.RMS_NORM, 50e9), (K.GROUP_NORM, 50e9)],
)
def test_row_kernels_run_at_the_vector_units_rate(kind, rate) -> None:
    found = costs(kind, (100, 1000), flop=1e6)
    assert found.compute_s[0] == pytest.approx(1e6 / rate)


@pytest.mark.parametrize(
    ("execution", "pixels", "cycles"),
    [
        (Execution.EAGER, 49, 8),
        (Execution.GRAPH, 49, 2),
        (Execution.COMPILED, 49, 2),
        (Execution.EAGER, 1, 2),
    ],
)
def test_pooling_walks_its_taps(execution, pixels, cycles) -> None:
    # Two images of 16 channels; a global mean is a vector reduction whatever the execution.
    taps = 2 * 16 * pixels * 900
    found = costs(
        K.POOLING, (2, 16, 900, pixels, 900), flop=taps, machine=bench(execution=execution)
    )
    assert found.compute_s[0] == pytest.approx(taps * cycles / 4e9)


def test_pooling_is_no_faster_than_its_arithmetic() -> None:
    found = costs(K.POOLING, (2, 16, 900, 49, 9), flop=1e9)
    assert found.compute_s[0] == pytest.approx(1e9 / 100e9)


@pytest.mark.parametrize(
    ("execution", "passes", "starts"), [(Execution.EAGER, 3.0, 7), (Execution.GRAPH, 1.0, 1)]
)
def test_eager_optimizers_pass_over_their_states_several_times_and_start_per_tensor(
    execution, passes, starts
) -> None:
    found = costs(
        K.OPTIMIZER,
        (10**5, 2, 7),
        flop=1e6,
        read=4e5,
        write=4e5,
        machine=bench(execution=execution),
    )
    assert found.memory_s[0] == pytest.approx(passes * 8e5 / 40e9)
    assert found.time_s[0] == pytest.approx(passes * 8e5 / 40e9 + starts * 1e-6)
    assert found.compute_s[0] == pytest.approx(1e6 / 50e9)


@pytest.mark.parametrize(
    ("kind", "lines"), [(K.EMBEDDING, 2), (K.EMBEDDING_BAG, 2), (K.SCATTER, 4)]
)
def test_lookups_in_a_large_table_wait_for_memory(kind, lines) -> None:
    # 20 floats are 80 bytes: two lines a lookup, ten of them on the way at a time on each of four
    # cores.
    extra = (100,) if kind is K.EMBEDDING_BAG else ()
    waiting = 4000 * lines * 1e-7 / 10 / 4
    small, large = (costs(kind, (4000, 20, rows, *extra), read=1e3) for rows in (12500, 12501))
    assert large.memory_s[0] - small.memory_s[0] == pytest.approx(
        waiting
    )  # 80 bytes x 12,500 rows fill the cache
    assert small.memory_s[0] == pytest.approx(1e3 / 40e9)


def test_bags_sum_on_the_lanes_their_elements_feed() -> None:
    few, many = (
        costs(K.EMBEDDING_BAG, (lookups, 20, 100, 10), flop=1e6) for lookups in (100, 1000)
    )
    assert few.compute_s[0] == pytest.approx(1e6 / 50e9 * 4 / 2)  # 2,000 elements: two threads
    assert many.compute_s[0] == pytest.approx(1e6 / 50e9)


def test_trees_walk_their_depth_and_histograms_every_feature() -> None:
    walk = costs(K.TREE_ENSEMBLE, (100, 20, 50, 6))
    assert walk.compute_s[0] == pytest.approx(100 * 50 * 6 * 20 / 4e9)
    assert walk.flop[0] == 0
    counts = costs(K.TREE_HISTOGRAM, (100, 20, 50, 6, 256))
    assert counts.compute_s[0] == pytest.approx(100 * 20 * 50 * 6 * 5 / 4e9)
    assert costs(K.TREE_HISTOGRAM, (100, 20, 50, 0, 256)).compute_s[0] == pytest.approx(
        100 * 20 * 50 * 5 / 4e9
    )


def test_copies_only_move() -> None:
    found = costs(K.COPY, (10**5,), read=4e5, write=4e5)
    assert found.compute_s[0] == 0
    assert found.time_s[0] == pytest.approx(8e5 / 40e9 + 1e-6)


# -- a profile's numbers


def machine_of(name, execution=Execution.EAGER, graph=None, **changes) -> CpuMachine:
    used = replace(cpu_parameters(), **changes)
    return cpu_machine(graph or row(K.COPY, (1,)), catalog.device(name), execution, used)


def test_threads_bring_their_share_of_the_units() -> None:
    device = catalog.device("xeon-e5-2630-v3")  # eight cores of 0.6144 TFLOP/s together
    peak = device.vector_flop_per_s[Dtype.FP32].value
    for threads, cores in ((1, 1), (4, 4), (8, 8), (99, 8), (None, 8)):
        machine = machine_of(
            device.name,
            thread_count=threads,
            gemm_efficiency_fraction=0.5,
            unit_efficiency_fraction=0.8,
        )
        assert machine.threads == cores
        assert machine.gemm_rate[Dtype.FP32] == pytest.approx(0.5 * peak * cores / 8)
        assert machine.unit_rate[Dtype.FP32] == pytest.approx(0.8 * peak * cores / 8)
        assert machine.lane_rates[Dtype.FP32] == pytest.approx(peak * cores / 8)
        assert machine.lane_rate == pytest.approx(peak * cores / 8 / 2 / device.fma_ports.value)


def test_libraries_use_part_of_wide_amd_vectors_and_tiles_have_their_own_efficiency() -> None:
    wide, intel = catalog.device("epyc-9755"), catalog.device("xeon-platinum-8480+")
    assert wide.simd_width_bits.value == 512
    settings = {
        "gemm_efficiency_fraction": 0.8,
        "amd_gemm_simd_width_bits": 256.0,
        "unit_efficiency_fraction": 0.9,
        "tile_unit_efficiency_fraction": 0.5,
    }
    amd, tiles = (machine_of(device.name, **settings) for device in (wide, intel))
    assert amd.gemm_rate[Dtype.FP32] == pytest.approx(
        0.4 * wide.vector_flop_per_s[Dtype.FP32].value
    )
    assert amd.unit_rate[Dtype.FP32] == pytest.approx(
        0.9 * wide.vector_flop_per_s[Dtype.FP32].value
    )
    assert tiles.gemm_rate[Dtype.FP32] == pytest.approx(
        0.8 * intel.vector_flop_per_s[Dtype.FP32].value
    )
    assert tiles.gemm_rate[Dtype.BF16] == pytest.approx(
        0.5 * intel.matrix_flop_per_s[Dtype.BF16].value
    )
    assert tiles.emulated[Dtype.FP8]
    assert not tiles.emulated[Dtype.BF16]


def test_caches_are_those_the_threads_reach() -> None:
    device = catalog.device(
        "xeon-e5-2630-v3"
    )  # 32 KiB and 256 KiB a core, 20 MiB for all eight (Intel ARK)
    stated = [level.bandwidth_bytes_per_s for level in device.on_chip]
    assert [known is not None for known in stated] == [True, True, False]
    for threads in (1, 8):
        machine = machine_of(
            device.name,
            thread_count=threads,
            cache_efficiency_fraction=0.7,
            l3_bytes_per_cycle=10.0,
            main_memory_efficiency_fraction=0.5,
        )
        assert machine.level_capacity_bytes == pytest.approx(
            [threads * 2**15, threads * 2**18, 20 * 2**20]
        )
        inner = [0.7 * known.value * threads / 8 for known in stated if known is not None]
        assert machine.level_bytes_per_s[:-1] == pytest.approx(
            [*inner, 10.0 * machine.clock_hz * threads]
        )
        assert machine.level_bytes_per_s[-1] == pytest.approx(
            0.5 * device.memory_bandwidth_bytes_per_s
        )
        assert machine.last_level_bytes == 20 * 2**20


def test_weights_are_cold_beyond_the_last_cache_unless_the_caller_knows() -> None:
    last = 20 * 2**20
    for weights, stated, cold in (
        (last, None, False),
        (last + 1, None, True),
        (1, True, True),
        (2 * last, False, False),
    ):
        graph = row(K.GEMM, (1, 1, 1, 1), weights=float(weights))
        assert machine_of("xeon-e5-2630-v3", graph=graph, weights_cold=stated).weights_cold is cold


@pytest.mark.parametrize(
    ("execution", "starts"),
    [(Execution.EAGER, (1e-6, 2e-6, 3e-6)), (Execution.GRAPH, (4e-6, 4e-6, 4e-6))],
)
def test_operators_start_by_how_they_are_issued(execution, starts) -> None:
    machine = machine_of(
        "xeon-e5-2630-v3",
        execution,
        eager_dispatch_s=1e-6,
        eager_contraction_s=2e-6,
        eager_conv_s=3e-6,
        graph_dispatch_s=4e-6,
    )
    assert (machine.dispatch_s, machine.contraction_s, machine.conv_s) == starts
