"""Times of a GPU with round numbers, worked out by hand for every class of operators."""

from __future__ import annotations

import pytest
from gpu_bench import TILE_S, bench, costs, parameters, time_s
from gpu_rows import K, gpu, graph

from accelsim.cost.gpu.model import GPU, cost_gpu
from accelsim.dtype import Dtype
from accelsim.workloads.graph import concatenate
from accelsim.workloads.operator import Phase

# -- streaming


@pytest.mark.parametrize("kind", [K.ELEMENTWISE, K.COPY, K.POOLING])
def test_streaming_kernels_take_bytes_over_bandwidth_and_one_latency(kind) -> None:
    dims = {K.ELEMENTWISE: (10**6, 2, 1), K.COPY: (10**6,), K.POOLING: (1, 1, 10**6, 10**6, 1)}[
        kind
    ]
    assert time_s(kind, dims, 1e6, 12e6) == pytest.approx(12e6 / 1e11 + 1e-6)
    assert time_s(kind, dims, 1e9, 12e6) == pytest.approx(
        1e9 / 0.5e12 + 1e-6
    )  # half of the lanes' peak


@pytest.mark.parametrize(
    ("kind", "best"),
    [
        (K.SOFTMAX, 0.8),
        (K.LAYER_NORM, 0.5),
        (K.RMS_NORM, 0.5),
        (K.GROUP_NORM, 0.5),
        (K.REDUCTION, 1.0),
    ],
)
def test_row_wise_kernels_stream_in_two_dependent_passes(kind, best) -> None:
    assert time_s(kind, (1000, 64), 0.0, 8e6) == pytest.approx(8e6 / (1e11 * best) + 2 * 1e-6)


def test_a_softmax_of_more_than_1024_columns_reads_its_rows_again() -> None:
    kept, longer = (time_s(K.SOFTMAX, (1000, columns), 0.0, 8e6) for columns in (1024, 1025))
    assert kept == pytest.approx(8e6 / (1e11 * 0.8) + 2e-6)
    assert longer == pytest.approx(8e6 / (1e11 * 0.8 * 0.5) + 2e-6)


def test_folded_batch_norms_stream() -> None:
    inference = graph([(K.BATCH_NORM, (192, 4), 0.0, 8e6)])
    training = concatenate([inference, graph([(K.COPY, (1,), 0.0, 0.0)], phase=Phase.BACKWARD)])
    folded, whole = (
        GPU.evaluate(rows, bench(), "bench").time_s[0] for rows in (inference, training)
    )  # stored statistics stream; statistics of the batch are a normalisation
    assert folded == pytest.approx(8e6 / 1e11 + 2e-6)
    assert whole == pytest.approx(8e6 / (1e11 * 0.5) + 2e-6)


@pytest.mark.parametrize("kind", [K.EMBEDDING, K.EMBEDDING_BAG, K.SCATTER])
@pytest.mark.parametrize(
    ("width", "row_bytes", "sector_bytes"),
    [(24, 96, 96), (10, 40, 64), (8, 32, 32), (9, 36, 64), (1, 4, 32)],
)
def test_gathered_rows_are_whole_sectors_of_32_bytes(kind, width, row_bytes, sector_bytes) -> None:
    lookups = 1000
    moved = 2.0 * lookups * row_bytes
    dims = (lookups, width, 10**6) + ((1000,) if kind is K.EMBEDDING_BAG else ())
    traffic = moved + (
        lookups * row_bytes if kind is K.SCATTER else 0.0
    )  # a scatter-add reads before it writes
    found = costs(kind, dims, 0.0, moved)
    assert found.bytes[0] == traffic
    assert found.time_s[0] == pytest.approx(traffic / 1e11 * sector_bytes / row_bytes + 1e-6)


def test_routing_is_six_dependent_kernels() -> None:
    assert time_s(K.MOE_ROUTING, (64, 8, 2), 0.0, 1e6) == pytest.approx(1e6 / 1e11 + 6e-6)


@pytest.mark.parametrize(("tensors", "launches"), [(0, 1), (1, 1), (36, 1), (37, 2), (108, 3)])
def test_one_launch_updates_36_tensors(tensors, launches) -> None:
    assert time_s(K.OPTIMIZER, (10**6, 2, tensors), 0.0, 2e7) == pytest.approx(
        2e7 / 1e11 + launches * 1e-6
    )


def test_trees_touch_one_sector_per_node_and_feature() -> None:
    machine = bench(vector_operand_bytes_per_s=1e9)
    walk = 1000 * 50 * (6 + 1) * 32 / 1e9
    assert time_s(K.TREE_ENSEMBLE, (1000, 20, 50, 6), 0.0, 1e4, machine=machine) == pytest.approx(
        walk + 1e-6
    )
    histogram = time_s(K.TREE_HISTOGRAM, (1000, 20, 50, 6, 256), 0.0, 1e4, machine=machine)
    assert histogram == pytest.approx(20 * walk + 1e-6)
    assert time_s(K.TREE_ENSEMBLE, (1, 20, 50, 6), 0.0, 1e8, machine=machine) == pytest.approx(
        1e-3 + 1e-6
    )
    assert time_s(K.TREE_ENSEMBLE, (1, 20, 50, 6), 1e9, 1e4, machine=machine) == pytest.approx(
        2e-3 + 1e-6
    )


def test_copies_take_the_host_link() -> None:
    machine = bench()
    link = machine.profile.host_link
    assert link is not None
    expected = 1e9 / (0.5 * link.bandwidth_bytes_per_s.value) + 1e-5
    assert time_s(K.HOST_TO_DEVICE, (10**9, 1), machine=machine) == pytest.approx(expected)


# -- attention


def attention_dims(batch, heads, q_len, kv_len, *, kv_heads=None, causal=0, window=0):
    return (batch, heads, kv_heads or heads, q_len, kv_len, 64, 64, causal, window, 0)


def test_attention_runs_blocks_of_64_queries_in_waves() -> None:
    # 2 x 5 heads x 2 blocks of 64 queries = 20 blocks: two waves; 4 x 64 FLOP a pair at half the
    # rate.
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
    used = parameters({"memory.special_efficiency": 0.01})  # slower than the products
    found = costs(K.ATTENTION, attention_dims(2, 5, 128, 256), 0.0, 1e6, used=used)
    assert found.compute_s[0] == pytest.approx(2 * 5 * 128 * 256 * 8 / 0.01e12)


@pytest.mark.parametrize(
    ("tokens", "head_dim", "batch_heads", "time_ms"),
    [(1024, 32, 1024, 5.75), (1024, 64, 1024, 7.42), (4096, 40, 16, 2.34), (4096, 128, 160, 38.6)],
)
def test_a_board_without_flash_attention_runs_the_kernel_of_xformers(
    tokens, head_dim, batch_heads, time_ms
) -> None:
    # Times on a V100 SXM2: facebookresearch/xformers, pull requests 587 and 434.
    dims = (batch_heads, 1, 1, tokens, tokens, head_dim, head_dim, 0, 0, 0)
    moved = 8.0 * batch_heads * tokens * head_dim
    rows = graph([(K.ATTENTION, dims, 0.0, moved)], dtype=Dtype.FP16)
    found = cost_gpu(rows, gpu("v100-sxm2-16gb"))
    assert found.time_s[0] * 1e3 == pytest.approx(time_ms, rel=0.4)


def test_scores_wait_for_the_products_without_flash_attention() -> None:
    dims = attention_dims(2, 5, 128, 256)
    one, other = (
        costs(K.ATTENTION, dims, 0.0, 1e6, machine=bench(has_flash_attention=has))
        for has in (True, False)
    )
    exposed_s = 2 * 5 * 128 * 256 * 29 * 2 / 1e12
    assert other.compute_s[0] == pytest.approx(one.compute_s[0] + exposed_s)


def test_heads_are_padded_to_those_that_kernels_are_compiled_for() -> None:
    def compute_s(head_dim):
        dims = (2, 5, 5, 128, 256, head_dim, head_dim, 0, 0, 0)
        return costs(K.ATTENTION, dims, 0.0, 1e6).compute_s[0]

    assert compute_s(40) == compute_s(64) > compute_s(32)
    assert compute_s(160) == compute_s(192) > compute_s(128)


def test_the_backward_pass_does_five_products_for_two_and_sums_in_a_second_kernel() -> None:
    found = costs(K.ATTENTION_BACKWARD, attention_dims(2, 5, 128, 256), 0.0, 1e6)
    flop = 2.5 * 2 * 5 * 128 * 256 * 4 * 64
    assert found.flop[0] == flop
    assert found.compute_s[0] == pytest.approx(flop / (0.5 * 0.8 * 1e12))
    assert found.time_s[0] == pytest.approx(found.compute_s[0] + 1e6 / 1e11 + 2e-6 + 1e-6)


def test_causal_attention_executes_the_visible_blocks() -> None:
    # 256 queries over 256 keys: 256 x 257 / 2 pairs, plus half a block of 128 keys for every query
    # along the edge.
    found = costs(K.ATTENTION, attention_dims(10, 1, 256, 256, causal=1), 0.0, 1e6)
    assert found.flop[0] == 10 * 256 * 257 / 2 * 4 * 64
    assert found.compute_s[0] == pytest.approx(10 * (256 * 257 / 2 + 256 * 64) * 4 * 64 / 0.5e12)


@pytest.mark.parametrize(
    ("heads", "kv_heads", "padded"),
    [(8, 8, 16), (8, 2, 4), (32, 1, 1)],
    ids=["own keys", "four share", "all share"],
)
def test_decoding_works_on_slices_of_256_keys_and_pads_to_the_instruction(
    heads, kv_heads, padded
) -> None:
    # 1,000 keys are four slices; a query is padded to 16 rows, which the heads that share keys fill
    # together.
    dims = attention_dims(5, heads, 1, 1000, kv_heads=kv_heads)
    found = costs(K.ATTENTION, dims, 0.0, 1e6)
    blocks = 5 * heads * 4
    assert blocks % 10 == 0
    assert found.compute_s[0] == pytest.approx(blocks * padded * 256 * 4 * 64 / 0.5e12)
    assert found.time_s[0] == pytest.approx(
        found.compute_s[0] + 1e6 / 1e11 + 2e-6 + 1e-6
    )  # slices are summed


def test_one_slice_needs_no_sum_and_17_queries_no_padding() -> None:
    lone = costs(K.ATTENTION, attention_dims(5, 8, 1, 256), 0.0, 0.0)
    assert lone.time_s[0] == pytest.approx(lone.compute_s[0] + 2e-6)
    sixteen, seventeen = (
        costs(K.ATTENTION, attention_dims(5, 8, q, 512), 0.0, 0.0) for q in (16, 17)
    )
    assert sixteen.compute_s[0] == pytest.approx(5 * 8 * 2 * 16 * 256 * 256 / 0.5e12)
    assert seventeen.compute_s[0] == pytest.approx(5 * 8 * 64 * 512 * 256 / 0.5e12)


# -- recurrent layers


@pytest.mark.parametrize(("kind", "gates"), [(K.RNN, 1), (K.GRU, 3), (K.LSTM, 4)])
def test_recurrent_layers_are_one_input_product_and_a_product_per_step(kind, gates) -> None:
    """Batch 128, 10 steps, 256 to 128: the input product has gates x 10 tiles, a step as many tiles
    as gates.
    """
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
