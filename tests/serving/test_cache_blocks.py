"""Cache blocks of windowed and hybrid models, as engines share them out."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import accelsim
from accelsim import Arrivals
from accelsim.catalog.checkpoints.huggingface import workload_from_config
from accelsim.catalog.engines import SourcedFigure, engine
from accelsim.serving.cache_blocks import block_plan
from accelsim.serving.loads.requests import RequestColumns
from accelsim.serving.schedulers.continuous import ContinuousBatching
from accelsim.serving.schedulers.limits import BatchLimits, SequenceBlocks
from accelsim.workloads.cache import STATE, CacheLayer, SequenceCache

from .scenarios import cases, run_fleet, table_steps

STEPS = table_steps(1)
ENGINES = ("vllm", "vllm@0.6", "sglang", "tensorrt-llm")
GEMMA3_27B = SequenceCache((CacheLayer(1024, 52 * 8192.0), CacheLayer(math.inf, 10 * 8192.0)))

sequences = st.builds(
    lambda beyond, more, window, state: SequenceBlocks(beyond + more, beyond, window, state),
    st.integers(0, 6),
    st.integers(1, 6),
    st.integers(0, 40),
    st.integers(0, 5),
).filter(lambda one: one.full_layers or one.window)
layers = st.lists(
    st.builds(
        CacheLayer,
        st.sampled_from([STATE, 128, 1024, 4096, math.inf]),
        st.sampled_from([64.0, 1024.0, 8192.0]),
    ),
    min_size=1,
    max_size=12,
)


@pytest.mark.law
@cases(200)
@given(sequences, st.integers(0, 200))
def test_a_longer_sequence_never_takes_fewer_blocks(sequence, filled):
    assert sequence.of(filled) <= sequence.of(filled + 1)


@pytest.mark.law
@cases(200)
@given(sequences, st.integers(0, 200))
def test_a_window_never_takes_more_than_all_tokens(sequence, filled):
    assert sequence.of(filled) <= sequence.state + sequence.all_layers * filled


@pytest.mark.law
@cases(200)
@given(sequences, st.integers(0, 500))
def test_the_longest_sequence_is_the_last_that_fits(sequence, blocks):
    longest = sequence.most_filled(blocks)
    assert longest == 0 or sequence.of(longest) <= blocks
    assert longest > 1000 or sequence.of(longest + 1) > blocks


@pytest.mark.law
@cases(100)
@given(layers, st.sampled_from(ENGINES), st.integers(1, 100_000))
def test_blocks_hold_what_the_engine_keeps(kept, name, tokens):
    cache, one = SequenceCache.of(kept), engine(name)
    plan = block_plan(cache, one, "gpt_oss")
    taken = plan.bytes * plan.sequence.of(-(-tokens // one.block_tokens))
    assert taken >= 0.999 * float(plan.sequence_cache.bytes_of(tokens))
    assert plan.sequence_cache.bytes_of(tokens) >= cache.bytes_of(tokens)


@pytest.mark.law
@cases(100)
@given(layers, st.integers(0, 10_000), st.integers(0, 10_000))
def test_cache_bytes_grow_with_the_length_and_stop_at_windows(kept, tokens, more):
    cache = SequenceCache.of(kept)
    assert cache.bytes_of(tokens) <= cache.bytes_of(tokens + more)
    assert cache.bytes_of(tokens) <= cache.keeping_all().bytes_of(tokens)
    both = cache.beside(cache)
    assert float(both.bytes_of(tokens)) == pytest.approx(2 * float(cache.bytes_of(tokens)))


def test_gemma_3_in_vllm_by_hand():
    """Groups of ten layers: one full, six windowed (the last is padded); 64 blocks a window."""
    plan = block_plan(GEMMA3_27B, engine("vllm"), "gemma2")
    assert plan.sequence == SequenceBlocks(7, 1, 64)
    assert plan.bytes == 16 * 10 * 8192
    assert plan.sequence.of(2048) == 2048 + 6 * 65
    held = plan.bytes * plan.sequence.of(2048)
    assert float(GEMMA3_27B.bytes_of(32_768)) == pytest.approx(3.12e9, rel=0.01)
    assert held == pytest.approx(3.2e9, rel=0.01)


@pytest.mark.parametrize("name", ["vllm@0.6", "tensorrt-llm", "sglang"])
def test_engines_without_windows_for_it_keep_all_of_gemma_3(name):
    plan = block_plan(GEMMA3_27B, engine(name), "gemma2")
    assert plan.sequence == SequenceBlocks()
    assert plan.bytes == engine(name).block_tokens * 62 * 8192


def test_two_pools_of_sglang_by_hand():
    """Four tokens of windows for five of full layers: the window's pool binds short sequences."""
    cache = SequenceCache((CacheLayer(128, 1000.0), CacheLayer(math.inf, 1000.0)))
    plan = block_plan(cache, engine("sglang"), "gpt_oss")
    assert plan.sequence == SequenceBlocks(5, 4, 128)
    full_tokens = 1.8e9 / plan.bytes / plan.sequence.full_layers
    assert full_tokens == pytest.approx(1e6)  # 1,000 and 0.8 x 1,000 bytes a token


def test_states_alone_are_one_block_a_sequence():
    plan = block_plan(SequenceCache((CacheLayer(STATE, 5e6),)), engine("vllm"), "")
    assert plan.bytes == 5e6
    assert plan.sequence.of(10) == plan.sequence.of(10_000) == 1


def served(limits, columns):
    log, fleet = run_fleet(columns, lambda log: ContinuousBatching(log, STEPS, limits))
    return log, fleet.replicas[0]


def test_a_request_whose_window_fits_is_served_though_all_of_it_would_not():
    columns = RequestColumns(np.zeros(1), np.array([1000]), np.array([50]))
    windowed = BatchLimits(blocks=200, sequence=SequenceBlocks(6, 1, 8))
    log, replica = served(windowed, columns)
    assert np.isfinite(log.column("finish_s")).all()
    assert replica.tally.peak_blocks == windowed.sequence.of(66)  # 1,049 tokens
    log, _ = served(replace(windowed, sequence=SequenceBlocks(6, 6)), columns)
    assert "cache blocks" in log.rejected[0]


@pytest.mark.law
@cases(20)
@given(st.integers(0, 1000), st.integers(1, 5))
def test_a_window_never_makes_a_load_slower(seed, more):
    rng = np.random.default_rng(seed)
    count = 30
    lengths = rng.integers(1, 600, count), rng.integers(1, 60, count)
    columns = RequestColumns(np.zeros(count), *lengths)
    whole = BatchLimits(blocks=60 * (1 + more), reserve="sequence")
    ends = []
    for sequence in (SequenceBlocks(1 + more, 1, 4), SequenceBlocks(1 + more, 1 + more)):
        log, _ = served(replace(whole, sequence=sequence), columns)
        ends.append(np.nanmax(log.column("finish_s")))
    assert ends[0] <= ends[1] * (1 + 1e-9)


def test_what_an_engine_may_leave_for_the_cache_is_its_interval():
    load = Arrivals(rate_per_s=8.0, requests=60, prompt="800", output="200")
    result = accelsim.serve("llama-3.1-70b", "h100-sxm-80gb", load, tp=2)
    tokens, (few, many) = result.metrics["kv_cache_tokens"], result.plan["blocks_range"]
    assert (tokens.low, tokens.high) == (16 * few, 16 * many)
    assert few < result.plan["blocks"] < many
    # 2.2 and 0.5 GB are kept back of each rank, half of whose 327,680 bytes a token it holds
    assert 16 * (many - few) == pytest.approx(1.7e9 / 163_840, rel=0.01)
    stated = accelsim.serve("llama-3.1-70b", "h100-sxm-80gb", load, tp=2, kv_blocks=1000)
    assert stated.metrics["kv_cache_tokens"].low is None
    assert stated.plan["blocks_range"] == (1000, 1000)


def test_ends_out_of_order_are_refused():
    with pytest.raises(ValueError, match="out of order"):
        SourcedFigure(value=1.0, low=2.0, kind="estimate", source="a test of order")


def test_windows_speed_a_served_model_up_as_measured():
    """Gemma 2 27B on an H100, 50 prompts of 6,144 tokens and 1,024 each: 0.17 requests per second
    with windows and 0.15 without, rounded (vllm-project/vllm, pull request 12655).
    """
    sizes = {"hidden_size": 4608, "intermediate_size": 36_864, "num_hidden_layers": 46}
    heads = {"num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128}
    rest = {"model_type": "gemma2", "vocab_size": 256_000, "sliding_window": 4096}
    model = workload_from_config({**rest, **sizes, **heads})
    load = Arrivals(rate_per_s=1e5, requests=50, prompt="6144", output="1024")
    windows, without = (
        accelsim.serve(model, "h100-sxm-80gb", load, engine=name, max_seqs=256, intervals=False)
        for name in ("vllm@0.9", "vllm@0.8")
    )
    assert 0.165 / 0.155 < without.duration_s / windows.duration_s < 0.175 / 0.145


def test_a_model_that_keeps_states_alone_is_served():
    model = workload_from_config({"model_type": "mamba2"})
    load = Arrivals(rate_per_s=50.0, requests=30, prompt="2000", output="50")
    result = accelsim.serve(model, "h100-sxm-80gb", load, kv_blocks=4)
    assert result.completed == 30
    assert result.kv_cache_tokens is None
    assert not result.plan["prefix_cache"]
    assert result.kv_occupancy_fraction["peak"] == 1.0  # four sequences at once


def test_requests_share_prefixes_of_windowed_models_but_not_of_states():
    load = Arrivals(rate_per_s=5.0, requests=30, turns=3)
    for name, shares in (("gemma-3-12b", True), ("qwen3-next-80b-a3b", False)):
        result = accelsim.serve(name, "h200-sxm-141gb", load, tp=2, intervals=False)
        assert result.plan["prefix_cache"] is shares
        assert result.completed == 30
