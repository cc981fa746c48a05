"""Transformer families against published counts, closed forms and laws."""

from __future__ import annotations

import sys
from collections import Counter
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from accelsim.catalog.workloads import workload, workload_names
from accelsim.dtype import precision
from accelsim.errors import InvalidValueError
from accelsim.workloads.builder import GraphBuilder
from accelsim.workloads.families import load_family
from accelsim.workloads.families.attention_layers import LatentAttention
from accelsim.workloads.families.decoder import DecoderParameters
from accelsim.workloads.families.feed_forward import active_experts
from accelsim.workloads.model import Lowered, PassShape, Workload
from accelsim.workloads.operator import OperatorKind, Phase

BF16 = precision("bf16")
FAMILIES = {"decoder", "encoder", "encoder-decoder", "vision-transformer", "wav2vec2", "whisper"}
OWN = [name for name in workload_names() if workload(name).same_as is None]
MODELS = [name for name in OWN if workload(name).family.name in FAMILIES]
GENERATORS = [name for name in MODELS if workload(name).family.name == "decoder"]
K = OperatorKind


def lowered(name: str, shape: PassShape, phase: Phase = Phase.FORWARD, **options) -> Lowered:
    return workload(name).lower(shape, BF16, phase, **options)


def decoder(**parameters) -> Workload:
    family = load_family("decoder")
    return Workload(
        "d", "d", "text-generation", family, DecoderParameters(**parameters), PassShape(seq_len=8)
    )


def rows(run: Lowered, kind: OperatorKind) -> np.ndarray:
    return np.flatnonzero(run.graph.kind == int(kind))


def dimension(run: Lowered, kind: OperatorKind, name: str) -> np.ndarray:
    return run.graph.dimension(name, rows(run, kind), kind)


# -- published figures


@pytest.mark.parametrize("name", MODELS)
def test_agrees_with_published_figures(name):
    model = workload(name)
    assert {figure.quantity for figure in model.published} == {"parameters", "flop"}
    check_figures(model)


@pytest.mark.parametrize("name", sorted({*workload_names()} - {*OWN}))
def test_a_model_of_anothers_architecture_agrees_with_its_own_count(name):
    model = workload(name)
    assert {figure.quantity for figure in model.published} == {"parameters"}
    check_figures(model)


def check_figures(model: Workload) -> None:
    for figure in model.published:
        run = model.lower(figure.shape, BF16)
        value = run.parameter_count if figure.quantity == "parameters" else run.graph.model_flop
        assert value == pytest.approx(figure.value, rel=figure.tolerance_fraction), figure.source


def test_catalogue_holds_the_families():
    assert len(MODELS) >= 60
    assert {workload(name).family.name for name in MODELS} == FAMILIES


# Counts of the checkpoints on Hugging Face, to the last parameter.
EXACT = {
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "llama-2-7b": 6_738_415_616,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "qwen2.5-7b": 7_615_616_512,
    "qwen3-8b": 8_190_735_360,
    "qwen3-30b-a3b": 30_532_122_624,
    "deepseek-v3": 671_026_419_200,
    "gemma-2-9b": 9_241_705_984,
    "phi-3-mini": 3_821_079_552,
    "falcon-7b": 6_921_720_704,
    "gpt2": 124_439_808,
    "gpt2-xl": 1_557_611_200,
    "opt-1.3b": 1_315_758_080,
    "bert-base": 109_482_240,
    "bert-large": 335_141_888,
    "roberta-base": 124_645_632,
    "distilbert-base": 66_362_880,
    "t5-base": 222_903_552,
    "t5-large": 737_668_096,
    "vit-b-16": 86_567_656,
    "vit-l-16": 304_326_632,
    "whisper-small": 241_734_912,
    "whisper-large-v3": 1_543_490_560,
}


@pytest.mark.parametrize(("name", "count"), EXACT.items())
def test_parameter_count_is_exact(name, count):
    model = workload(name)
    assert model.lower(model.default, BF16).parameter_count == count


@pytest.mark.parametrize(
    ("name", "width"), [("llama-3.1-8b", 4096), ("llama-3.1-70b", 8192), ("llama-3.1-405b", 16384)]
)
@pytest.mark.parametrize("tokens", [128, 4096])
def test_llama_flop_is_2pt_plus_4ttdl(name, width, tokens):
    parameters = workload(name).parameters
    matrices = EXACT[name] - parameters.vocab_size * width
    closed_form = 2 * matrices * tokens + 4 * tokens**2 * width * parameters.layers
    assert lowered(name, PassShape(1, tokens)).graph.model_flop == pytest.approx(
        closed_form, rel=1e-3
    )


def test_bert_large_at_512_tokens_is_335_gflop():
    assert lowered("bert-large", PassShape(1, 512)).graph.model_flop == pytest.approx(
        335.0e9, rel=1e-3
    )


@pytest.mark.parametrize(
    ("name", "active"), [("gpt-oss-120b", 5.13e9), ("gpt-oss-20b", 3.61e9), ("deepseek-v3", 36.6e9)]
)
def test_one_token_costs_two_flop_per_active_parameter(name, active):
    """Active parameters as the model cards count them: with the logits, without the embedding
    table.
    """
    assert lowered(name, PassShape(1, 1)).graph.model_flop == pytest.approx(2 * active, rel=2e-3)


# -- closed forms over random sizes

SIZES = st.fixed_dictionaries(
    {
        "vocab_size": st.integers(1, 5000),
        "head_dim": st.integers(1, 16).map(lambda half: 2 * half),
        "kv_heads": st.integers(1, 4),
        "layers": st.integers(1, 4),
        "intermediate_size": st.integers(1, 300),
        "hidden_size": st.integers(1, 200),
    }
)


@given(
    SIZES, st.integers(1, 4), st.booleans(), st.booleans(), st.integers(1, 3), st.integers(1, 40)
)
@settings(max_examples=40, deadline=None)
def test_dense_decoder_closed_forms(sizes, group, gated, tied, batch, tokens):
    heads = group * sizes["kv_heads"]
    model = decoder(**sizes, heads=heads, gated=gated, tied_embeddings=tied)
    run = model.lower(PassShape(batch, tokens), BF16)
    h, d, inner = sizes["hidden_size"], sizes["head_dim"], sizes["intermediate_size"]
    projections = 2 * h * heads * d + 2 * h * sizes["kv_heads"] * d
    layer = projections + (3 if gated else 2) * h * inner
    table = sizes["vocab_size"] * h
    norms = (2 * sizes["layers"] + 1) * h
    assert run.parameter_count == sizes["layers"] * layer + norms + table * (1 if tied else 2)
    matrices = 2.0 * batch * tokens * (sizes["layers"] * layer + table)
    scores = 4.0 * batch * tokens**2 * heads * d * sizes["layers"]
    assert run.graph.model_flop == pytest.approx(matrices + scores, rel=1e-12)


@given(st.integers(1, 512), st.data())
@settings(max_examples=60, deadline=None)
def test_active_experts_law(experts, data):
    top_k = data.draw(st.integers(1, experts))
    tokens = data.draw(st.integers(1, 4096))
    popularity = data.draw(st.floats(1.0, 1e3))
    active = active_experts(experts, top_k, tokens, popularity)
    assert top_k <= active <= min(experts, top_k * tokens)
    assert active <= active_experts(experts, top_k, tokens + 1, popularity)
    assert active_experts(experts, top_k, 1, popularity) == top_k
    assert active <= active_experts(experts, top_k, tokens)


@pytest.mark.parametrize(("experts", "top_k", "tokens"), [(256, 8, 32), (128, 4, 64), (8, 2, 4)])
def test_experts_of_uneven_popularity_as_drawn_one_after_the_other(experts, top_k, tokens):
    """Draws without replacement by weight are the largest of log(weight) + Gumbel noise."""
    rng = np.random.default_rng(1)
    log_weight = np.log(50.0) * (np.arange(experts) + 0.5) / experts
    noise = rng.gumbel(size=(300, tokens, experts))
    chosen = np.argpartition(-(log_weight + noise), top_k - 1, axis=-1)[..., :top_k]
    distinct = np.mean([len(np.unique(each)) for each in chosen])
    found = active_experts(experts, top_k, tokens, 50.0)
    assert found == pytest.approx(distinct, rel=0.03, abs=1.0)
    assert found <= active_experts(experts, top_k, tokens)


@given(st.integers(1, 64), st.integers(1, 64))
@settings(max_examples=20, deadline=None)
def test_batch_and_tokens_share_the_matrix_work(batch, tokens):
    """Matrix FLOP depends on batch x tokens alone; attention grows with the square of the
    tokens.
    """
    run = lowered("qwen3-0.6b", PassShape(batch, tokens))
    gemm = run.graph.flop[rows(run, K.GEMM)].sum()
    attention = run.graph.flop[rows(run, K.ATTENTION)].sum()
    one = lowered("qwen3-0.6b", PassShape(1, 1))
    assert gemm == pytest.approx(
        batch * tokens * one.graph.flop[rows(one, K.GEMM)].sum(), rel=1e-12
    )
    assert attention == pytest.approx(
        batch * tokens**2 * one.graph.flop[rows(one, K.ATTENTION)].sum(), rel=1e-12
    )


# -- phases


@pytest.mark.parametrize("name", ["llama-3.2-1b", "gpt2", "qwen3-30b-a3b", "mixtral-8x7b"])
def test_decoding_every_token_adds_up_to_the_forward_pass(name):
    """Same matrix work; attention sees t + 1 keys at step t instead of all T: T(T+1)/2 pairs
    instead of T^2.
    """
    tokens = 12
    forward = lowered(name, PassShape(2, tokens))
    steps = [lowered(name, PassShape(2, 1, context_len=t), Phase.DECODE) for t in range(tokens)]
    attention = forward.graph.flop[rows(forward, K.ATTENTION)].sum()
    missing = attention * (tokens - 1) / (2 * tokens)
    assert sum(s.graph.model_flop for s in steps) == pytest.approx(
        forward.graph.model_flop - missing, rel=1e-12
    )


@pytest.mark.parametrize("name", GENERATORS)
def test_phases_agree_on_the_model(name):
    runs = [
        lowered(name, PassShape(1, 32)),
        lowered(name, PassShape(1, 32), Phase.PREFILL),
        lowered(name, PassShape(1, 1, context_len=31), Phase.DECODE),
    ]
    assert len({run.parameter_count for run in runs}) == 1
    forward, prefill, decode = runs
    assert forward.cache.token_bytes == 0
    assert prefill.cache.token_bytes == decode.cache.token_bytes > 0
    for run, phase in zip(runs, (Phase.FORWARD, Phase.PREFILL, Phase.DECODE), strict=True):
        assert set(run.graph.phase.tolist()) == {int(phase)}


def test_prefill_computes_logits_of_the_last_token_alone():
    forward = lowered("llama-3.1-8b", PassShape(3, 64))
    prefill = lowered("llama-3.1-8b", PassShape(3, 64), Phase.PREFILL)
    saved = 2.0 * 3 * 63 * 4096 * 128256
    assert forward.graph.model_flop - prefill.graph.model_flop == pytest.approx(saved, rel=1e-12)


def test_chunked_prefill_adds_up_to_one_prefill():
    """Two chunks do the matrix work of one prompt plus one more logits row, and see the earlier
    chunk's keys.
    """
    whole = lowered("llama-3.2-1b", PassShape(1, 64), Phase.PREFILL)
    first = lowered("llama-3.2-1b", PassShape(1, 32), Phase.PREFILL)
    second = lowered("llama-3.2-1b", PassShape(1, 32, context_len=32), Phase.PREFILL)
    gemm = [run.graph.flop[rows(run, K.GEMM)].sum() for run in (whole, first, second)]
    assert gemm[1] + gemm[2] == pytest.approx(gemm[0] + 2.0 * 2048 * 128256, rel=1e-12)
    scores = [run.graph.flop[rows(run, K.ATTENTION)].sum() for run in (whole, first, second)]
    assert scores[1] + scores[2] == pytest.approx(
        0.75 * scores[0], rel=1e-12
    )  # the upper right quarter is masked


@pytest.mark.parametrize(
    ("name", "bytes_per_token"),
    [
        ("llama-3.1-8b", 128 * 1024),  # 2 x 8 heads x 128 x 32 layers x 2 bytes
        ("llama-2-7b", 512 * 1024),
        ("mistral-7b", 128 * 1024),
        ("deepseek-v3", 576 * 2 * 61),  # DeepSeek-V3's latent and rotary key
        ("gpt2", 2 * 768 * 12 * 2),
        ("t5-base", 2 * 768 * 12 * 2),
    ],
)
def test_cache_bytes_per_token(name, bytes_per_token):
    assert lowered(name, PassShape(1, 16), Phase.PREFILL).cache.token_bytes == bytes_per_token


@pytest.mark.parametrize("name", ["llama-3.1-8b", "deepseek-v3", "gpt2"])
def test_decode_appends_one_token_and_reads_the_cache(name):
    context = 1000
    run = lowered(name, PassShape(4, 1, context_len=context), Phase.DECODE)
    appended = [row for row in rows(run, K.COPY) if run.graph.name[row] == "kv_cache.append"]
    assert run.graph.write_bytes[appended].sum() == 4 * run.cache.token_bytes
    attention = rows(run, K.ATTENTION)
    queries = prod_bytes(run, ("batch", "heads", "q_len", "head_dim"))
    read = run.graph.read_bytes[attention].sum() - queries
    assert read == pytest.approx(4 * run.cache.token_bytes * (context + 1), rel=1e-12)


def prod_bytes(run: Lowered, names: tuple[str, ...]) -> float:
    return float(np.prod([dimension(run, K.ATTENTION, name) for name in names], axis=0).sum() * 2)


# -- attention variants


@given(st.sampled_from([1, 2, 4, 8]), st.integers(1, 200))
@settings(max_examples=20, deadline=None)
def test_grouped_heads_save_bytes_not_flop(kv_heads, context):
    sizes = {
        "vocab_size": 100,
        "hidden_size": 64,
        "layers": 2,
        "heads": 8,
        "head_dim": 8,
        "intermediate_size": 64,
    }
    shape = PassShape(2, 1, context_len=context)
    full = decoder(**sizes).lower(shape, BF16, Phase.DECODE)
    grouped = decoder(**sizes, kv_heads=kv_heads).lower(shape, BF16, Phase.DECODE)
    attention = rows(full, K.ATTENTION), rows(grouped, K.ATTENTION)
    assert full.graph.flop[attention[0]].sum() == grouped.graph.flop[attention[1]].sum()
    assert grouped.cache.token_bytes * 8 == full.cache.token_bytes * kv_heads
    assert grouped.graph.total_bytes <= full.graph.total_bytes


def test_windows_alternate_and_limit_what_decode_reads():
    near, far = (
        lowered("gpt-oss-20b", PassShape(1, 1, context_len=n), Phase.DECODE) for n in (2000, 20_000)
    )
    windows = dimension(near, K.ATTENTION, "window")
    assert windows.tolist() == [128, 0] * 12
    before, after = (run.graph.read_bytes[rows(run, K.ATTENTION)] for run in (near, far))
    assert (before[::2] == after[::2]).all()
    assert (after[1::2] > 9 * before[1::2]).all()


@given(st.integers(1, 300), st.integers(1, 300))
@settings(max_examples=20, deadline=None)
def test_a_window_never_adds_work(tokens, window):
    sizes = {"vocab_size": 50, "hidden_size": 32, "layers": 1, "heads": 2, "intermediate_size": 32}
    full = decoder(**sizes).lower(PassShape(1, tokens), BF16)
    limited = decoder(**sizes, window=window).lower(PassShape(1, tokens), BF16)
    pairs = limited.graph.flop[rows(limited, K.ATTENTION)].sum() / (4 * 32)
    assert pairs == tokens * min(tokens, window)
    assert limited.graph.total_bytes <= full.graph.total_bytes


def test_latent_attention_expands_in_prefill_and_absorbs_in_decode():
    prefill = lowered("deepseek-v3", PassShape(1, 64), Phase.PREFILL)
    decode = lowered("deepseek-v3", PassShape(1, 1, context_len=63), Phase.DECODE)
    names = ("heads", "kv_heads", "head_dim", "value_dim", "latent")
    assert [set(dimension(prefill, K.ATTENTION, name)) for name in names] == [
        {128},
        {128},
        {192},
        {128},
        {0},
    ]
    assert [set(dimension(decode, K.ATTENTION, name)) for name in names] == [
        {128},
        {1},
        {576},
        {512},
        {576},
    ]
    scores = decode.graph.flop[rows(decode, K.ATTENTION)].sum()
    assert scores == 61 * 2.0 * 128 * 64 * (576 + 512)


def test_absorbed_and_expanded_projections_cost_the_same_for_one_token():
    """W_UK and W_UV act once per new token in either form: 2 rank heads (nope + value) FLOP and the
    same weights.
    """
    attention = LatentAttention(
        heads=128, query_rank=1536, latent_rank=512, nope_dim=128, rope_dim=64, value_dim=128
    )
    assert attention.cache_width == 576
    expanded, absorbed = (
        lowered("deepseek-v3", PassShape(1, 1), phase) for phase in (Phase.PREFILL, Phase.DECODE)
    )
    for column in ("flop", "weight_bytes"):
        assert _up_projection(expanded, column) == pytest.approx(
            _up_projection(absorbed, column), rel=1e-12
        )


def _up_projection(run: Lowered, column: str) -> float:
    picked = [row for row, path in enumerate(run.graph.path) if path.endswith("kv_b_proj")]
    assert picked
    return float(getattr(run.graph, column)[picked].sum())


@pytest.mark.parametrize(
    "name", ["bert-base", "gpt2", "llama-3.2-1b", "t5-small", "whisper-small", "deepseek-v3"]
)
def test_decomposed_attention_has_the_same_flop_and_more_bytes(name):
    shape = PassShape(1, 128, target_len=64)
    fused, split = lowered(name, shape), lowered(name, shape, fused_attention=False)
    assert split.graph.model_flop == pytest.approx(fused.graph.model_flop, rel=1e-12)
    assert split.graph.total_bytes > fused.graph.total_bytes
    assert split.parameter_count == fused.parameter_count


@pytest.mark.parametrize(
    ("name", "expected"),
    [  # as the eager implementations of Hugging Face launch them
        ("bert-base", "scores scale mask softmax context merge_heads"),
        ("gpt2", "scores scale mask softmax context merge_heads"),
        ("vit-b-16", "scores scale softmax context merge_heads"),
        ("opt-125m", "scale scores mask softmax context merge_heads"),
        ("t5-small", "scores mask softmax context merge_heads"),
        ("wav2vec2-base", "scale scores softmax context merge_heads"),
        ("llama-3.1-8b", "repeat_heads repeat_heads scores scale mask softmax context merge_heads"),
        ("falcon-7b", "scores scale mask softmax context merge_heads"),
    ],
)
def test_decomposed_attention_follows_the_eager_implementation(name, expected):
    seq_len = 1600 if name.startswith("wav2vec2") else 16
    run = lowered(name, PassShape(1, seq_len, target_len=4), fused_attention=False)
    written = [
        word.removeprefix("attention.") for word in run.graph.name if word.startswith("attention.")
    ]
    assert written[: len(expected.split())] == expected.split()


def test_decomposed_latent_decode_reads_the_cache_once_per_product():
    """The 128 heads are rows of one product with the shared latent, not 128 copies of it."""
    run = lowered(
        "deepseek-v3", PassShape(1, 1, context_len=999), Phase.DECODE, fused_attention=False
    )
    fused = lowered("deepseek-v3", PassShape(1, 1, context_len=999), Phase.DECODE)
    assert run.graph.model_flop == pytest.approx(fused.graph.model_flop, rel=1e-12)
    scores = [row for row, word in enumerate(run.graph.name) if word == "attention.scores"]
    assert run.graph.read_bytes[scores].tolist() == [2.0 * 576 * (128 + 1000)] * 61


# -- mixtures of experts


def test_decode_reads_the_experts_it_uses_and_a_large_batch_all():
    few = lowered("mixtral-8x7b", PassShape(1, 1, context_len=8), Phase.DECODE)
    many = lowered("mixtral-8x7b", PassShape(256, 1, context_len=8), Phase.DECODE)
    expert = 3 * 4096 * 14336 * 2.0
    assert few.graph.weight_bytes[rows(few, K.GROUPED_GEMM)].sum() == 32 * 2 * expert
    assert many.graph.weight_bytes[rows(many, K.GROUPED_GEMM)].sum() == 32 * 8 * expert


def test_first_layers_of_deepseek_are_dense():
    run = lowered("deepseek-v3", PassShape(1, 4))
    routed = {path.split(".")[2] for path in run.graph.path if path.endswith("mlp.experts")}
    assert routed == {str(index) for index in range(3, 61)}


def test_grouped_rows_carry_top_k_rows_per_token():
    run = lowered("qwen3-30b-a3b", PassShape(2, 16))
    assert set(dimension(run, K.GROUPED_GEMM, "m")) == {2 * 16 * 8}
    assert set(dimension(run, K.GROUPED_GEMM, "groups")) == {active_experts(128, 8, 32)}


# -- encoder-decoders, vision, speech


@pytest.mark.parametrize("name", ["t5-base", "transformer-big", "whisper-small"])
def test_decoding_skips_the_encoder_but_counts_its_parameters(name):
    forward = lowered(name, PassShape(1, 64, target_len=32))
    decode = lowered(name, PassShape(1, 1, context_len=5, source_len=64), Phase.DECODE)
    assert decode.parameter_count == forward.parameter_count
    assert decode.parameter_tensor_count == forward.parameter_tensor_count
    assert not any(
        "encoder.layers" in path or "encoder.block" in path for path in decode.graph.path
    )
    assert decode.graph.total_flop < forward.graph.total_flop / 10


@pytest.mark.parametrize("name", ["t5-base", "transformer-base", "whisper-small"])
def test_encoder_decoder_steps_add_up(name):
    """Start token in prefill and T - 1 decode steps do the forward pass's work; self-attention sees
    T(T+1)/2 pairs.
    """
    source, target = 48, 6
    forward = lowered(name, PassShape(1, source, target_len=target))
    prefill = lowered(name, PassShape(1, source), Phase.PREFILL)
    steps = [
        lowered(name, PassShape(1, 1, context_len=t, source_len=source), Phase.DECODE)
        for t in range(1, target)
    ]
    own = [
        row
        for row in rows(forward, K.ATTENTION)
        if forward.graph.dims[row, 3] == target and forward.graph.dims[row, 4] == target
    ]
    missing = forward.graph.flop[own].sum() * (target - 1) / (2 * target)
    total = prefill.graph.model_flop + sum(step.graph.model_flop for step in steps)
    assert total == pytest.approx(forward.graph.model_flop - missing, rel=1e-12)


def test_cross_attention_grows_with_the_source():
    near, far = (
        lowered("t5-base", PassShape(1, 1, context_len=4, source_len=n), Phase.DECODE)
        for n in (128, 1280)
    )
    assert far.graph.model_flop - near.graph.model_flop == 12 * 4.0 * 768 * (1280 - 128)


def test_larger_images_keep_the_parameters():
    small, large = (
        lowered("vit-b-16", PassShape(1)),
        lowered("vit-b-16", PassShape(1, image_size=384)),
    )
    assert small.parameter_count == large.parameter_count
    assert set(dimension(large, K.ATTENTION, "q_len")) == {24 * 24 + 1}


def test_wav2vec2_keeps_one_frame_in_320():
    run = lowered("wav2vec2-base", PassShape(1, 16_000))
    assert set(dimension(run, K.ATTENTION, "q_len")) == {49}  # Baevski et al. 2020: 49 Hz


# -- bad sizes


@pytest.mark.parametrize(
    ("name", "shape", "phase", "field"),
    [
        ("gpt2", PassShape(1, 1025), Phase.FORWARD, "seq_len"),
        ("gpt2", PassShape(1, 1, context_len=1024), Phase.DECODE, "seq_len"),
        ("bert-base", PassShape(1, 513), Phase.FORWARD, "seq_len"),
        ("llama-3.1-8b", PassShape(1, 0), Phase.FORWARD, "seq_len"),
        ("t5-base", PassShape(1, 64), Phase.FORWARD, "target_len"),
        ("t5-base", PassShape(1, 1, context_len=3), Phase.DECODE, "source_len"),
        ("whisper-small", PassShape(1, 1501, target_len=1), Phase.FORWARD, "seq_len"),
        ("whisper-small", PassShape(1, 1500, target_len=449), Phase.FORWARD, "target_len"),
        ("vit-b-16", PassShape(1, image_size=8), Phase.FORWARD, "image_size"),
        ("wav2vec2-base", PassShape(1, 100), Phase.FORWARD, "input size"),
    ],
)
def test_sizes_a_model_cannot_run_are_named(name, shape, phase, field):
    with pytest.raises(InvalidValueError) as caught:
        lowered(name, shape, phase)
    assert caught.value.field == field


@pytest.mark.parametrize(
    "wrong",
    [
        {"heads": 3},
        {"kv_heads": 3},
        {"layout": "none"},
        {"positions": "learned"},
        {"hidden_size": 0},
        {"layers": True},
        {"mixture": {"experts": 4, "top_k": 5, "intermediate_size": 8}},
        {"unknown": 1},
    ],
)
def test_inconsistent_parameters_are_refused(wrong):
    sizes = {"vocab_size": 10, "hidden_size": 64, "layers": 1, "heads": 4, "intermediate_size": 8}
    with pytest.raises(ValidationError):
        DecoderParameters(**(sizes | wrong))


def test_split_must_cover_the_axis():
    b = GraphBuilder(BF16)
    with pytest.raises(InvalidValueError, match="widths"):
        b.split(b.input(2, 10), (4, 5))


def test_split_parts_are_kept_apart():
    """GPT-2's fused projection keeps query, key and value, as three separate projections would."""
    sizes = {
        "vocab_size": 10,
        "hidden_size": 64,
        "layers": 1,
        "heads": 4,
        "intermediate_size": 8,
        "positions": "none",
    }
    apart, fused = (
        decoder(**sizes, fused_qkv=flag).lower(PassShape(1, 8), BF16) for flag in (False, True)
    )
    assert apart.graph.saved_bytes.sum() == fused.graph.saved_bytes.sum()
    assert apart.parameter_count == fused.parameter_count
    assert apart.graph.model_flop == fused.graph.model_flop


# -- paths, precision, speed


@pytest.mark.parametrize(
    ("name", "paths"),
    [
        (
            "llama-3.1-8b",
            {"model.layers.0.self_attn.q_proj", "model.layers.31.mlp.down_proj", "lm_head"},
        ),
        ("gpt2", {"transformer.h.0.attn.c_attn", "transformer.h.11.mlp.c_fc", "transformer.ln_f"}),
        ("opt-125m", {"model.decoder.layers.0.self_attn.out_proj", "model.decoder.layers.0.fc1"}),
        ("bert-base", {"bert.encoder.layer.0.attention.self.query", "bert.pooler.dense"}),
        (
            "deepseek-v3",
            {
                "model.layers.0.self_attn.kv_a_proj_with_mqa",
                "model.layers.3.mlp.shared_experts.up_proj",
            },
        ),
        (
            "t5-base",
            {
                "encoder.block.0.layer.0.SelfAttention.q",
                "decoder.block.11.layer.2.DenseReluDense.wo",
            },
        ),
        ("whisper-small", {"model.encoder.conv1", "model.decoder.layers.0.encoder_attn.k_proj"}),
        ("wav2vec2-base", {"wav2vec2.feature_extractor.conv_layers.0.conv", "lm_head"}),
        ("vit-b-16", {"vit.embeddings.patch_embeddings.projection", "classifier"}),
    ],
)
def test_module_paths_are_hugging_faces(name, paths):
    run = lowered(name, PassShape(1, 1600 if name.startswith("wav2vec2") else 16, target_len=4))
    assert paths <= set(run.graph.path)


@pytest.mark.parametrize("name", MODELS)
def test_rows_are_well_formed(name):
    model = workload(name)
    graph = model.lower(model.default, BF16).graph
    assert (graph.dependency >= 0).all()
    for column in ("flop", "read_bytes", "write_bytes", "weight_bytes", "saved_bytes"):
        assert np.isfinite(getattr(graph, column)).all()
        assert (getattr(graph, column) >= 0).all()
    gemm = graph.kind == int(K.GEMM)
    sizes = [prod(row) for row in graph.dims[gemm, :4].tolist()]
    assert graph.flop[gemm].tolist() == [2.0 * size for size in sizes]
    assert all(graph.path)


def test_weights_halve_from_bf16_to_fp8_and_cache_stays():
    bf16, fp8 = (
        workload("llama-3.1-8b").lower(
            PassShape(1, 1, context_len=64), precision(name), Phase.DECODE
        )
        for name in ("bf16", "fp8")
    )
    gemm, head = rows(bf16, K.GEMM), 4096 * 128256
    wide, narrow = (x.graph.weight_bytes[gemm].sum() for x in (bf16, fp8))
    assert wide - 2 * head == 2 * (narrow - 2 * head)  # the logits stay in 16 bits
    assert bf16.cache.token_bytes == fp8.cache.token_bytes


@pytest.mark.parametrize(("name", "most"), [("llama-3.1-8b", 4), ("llama-3.1-405b", 2)])
def test_lowering_calls_few_functions_for_each_operator(name, most):
    """Equal layers are written once; the rest is columns."""
    model, calls = workload(name), Counter()
    model.lower(PassShape(1, 99), BF16)
    sys.setprofile(lambda _frame, event, _argument: calls.update([event]))
    try:
        lowered = model.lower(PassShape(1, 100), BF16)
    finally:
        sys.setprofile(None)
    assert 0 < calls["call"] < most * len(lowered.graph)
