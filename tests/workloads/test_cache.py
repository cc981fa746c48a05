"""What models keep of a sequence: laws over models, formats and lengths, and cases by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelsim.catalog.workloads import workload
from accelsim.dtype import precision
from accelsim.estimation.options import ModelOptions
from accelsim.workloads.model import PassShape
from accelsim.workloads.operator import Phase
from accelsim.workloads.sharding import Shard

MODELS = (
    *("gemma-2-9b", "gemma-3-27b", "gpt-oss-20b", "mistral-7b", "llama-4-scout"),
    *("qwen3-next-80b-a3b", "llama-3.1-8b", "deepseek-v3", "minimax-m2.5"),
)
LENGTHS = st.integers(0, 200_000)


def kept(name, kv="bf16", tp=1):
    policy = ModelOptions(precision="bf16", kv_format=kv).policy(precision("bf16"))
    return workload(name).lower(PassShape(1, 16), policy, Phase.PREFILL, shard=Shard(tp=tp)).cache


@pytest.mark.law
@given(st.sampled_from(MODELS), LENGTHS, st.integers(0, 10_000))
def test_a_cache_grows_with_its_sequence_and_never_beyond_one_without_windows(name, tokens, more):
    cache = kept(name)
    assert cache.bytes_of(tokens) <= cache.bytes_of(tokens + more)
    assert cache.bytes_of(tokens) <= cache.keeping_all().bytes_of(tokens)
    assert cache.bytes_of(tokens) <= cache.state_bytes + cache.token_bytes * tokens


@pytest.mark.law
@given(st.sampled_from(MODELS), LENGTHS)
def test_more_bits_are_never_fewer_bytes(name, tokens):
    narrow, wide = (float(kept(name, kv).bytes_of(tokens)) for kv in ("fp8", "bf16"))
    assert narrow <= wide
    assert narrow < wide or tokens == 0


@pytest.mark.parametrize("name", ["gemma-3-27b", "qwen3-next-80b-a3b", "gpt-oss-20b"])
def test_ranks_share_a_cache(name):
    whole, part = (float(kept(name, tp=tp).bytes_of(5_000)) for tp in (1, 2))
    assert part == pytest.approx(whole / 2, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "tokens", "size_bytes"),
    [
        # 10 full layers, and 52 of 1,024 tokens, of 2 x 16 heads x 128 x 2 bytes
        ("gemma-3-27b", 32_768, 8192 * (10 * 32_768 + 52 * 1024)),
        # 12 full layers, and 12 of 128 tokens, of 2 x 8 heads x 64 x 2 bytes
        ("gpt-oss-20b", 10_000, 2048 * 12 * (10_000 + 128)),
        # 12 full layers, and 36 of a chunk, of 2 x 8 heads x 128 x 2 bytes
        ("llama-4-scout", 100_000, 4096 * (12 * 100_000 + 36 * 8192)),
        # 12 layers of 2 x 2 heads x 256 x 2 bytes; 36 of 32 states of 128 x 128 in FP32, and three
        # tokens of 2 x 16 keys and 32 values of 128 in 16 bits before the convolution
        ("qwen3-next-80b-a3b", 1000, 12 * 2048 * 1000 + 36 * (32 * 128**2 * 4 + 3 * 8192 * 2)),
    ],
)
def test_caches_by_hand(name, tokens, size_bytes):
    assert float(kept(name).bytes_of(tokens)) == pytest.approx(size_bytes, rel=1e-12)


@pytest.mark.parametrize("fused", [True, False])
def test_a_token_reads_the_window_alone(fused):
    """Mistral 7B reads 4,096 keys of however long a sequence."""
    policy = precision("bf16")

    def read(context):
        shape = PassShape(1, 1, context_len=context)
        run = workload("mistral-7b").lower(shape, policy, Phase.DECODE, fused_attention=fused)
        return run.graph.total_bytes

    assert read(4095) == read(8000) == read(30_000)
    assert read(2000) < read(4095)
