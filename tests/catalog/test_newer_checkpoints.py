"""Configurations of newer checkpoints, against published counts of their parameters."""

import json
from pathlib import Path

import pytest

import accelsim
from accelsim.catalog.checkpoints.huggingface import MODEL_TYPES, workload_from_config
from accelsim.dtype import precision
from accelsim.errors import AccelsimError, InvalidValueError
from accelsim.workloads.model import PassShape
from accelsim.workloads.operator import Phase

BF16 = precision("bf16")
NEXT = {
    "model_type": "qwen3_next",
    "vocab_size": 151936,
    "hidden_size": 2048,
    "intermediate_size": 5120,
    "num_hidden_layers": 48,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
}
MAMBA = {
    "model_type": "mamba2",
    "hidden_size": 768,
    "num_hidden_layers": 24,
    "num_heads": 24,
    "n_groups": 1,
    "vocab_size": 50288,
    "tie_word_embeddings": True,
}
MINIMAX = {
    "model_type": "minimax_text_01",
    "vocab_size": 200064,
    "hidden_size": 6144,
    "intermediate_size": 9216,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "rotary_dim": 64,
    "num_local_experts": 32,
    "num_experts_per_tok": 2,
    "attn_type_list": [0, 0, 0, 0, 0, 0, 0, 1] * 10,
}


def text(model_type, hidden, inner, layers, heads, kv_heads, vocab, **more):
    """A configuration of a language model."""
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    sizes = dict(zip(names, (hidden, inner, layers, heads), strict=True))
    sizes |= {"num_key_value_heads": kv_heads, "vocab_size": vocab, "head_dim": 128}
    return {"model_type": model_type, **sizes, **more}


LLAMA_4 = text("llama4_text", 5120, 8192, 48, 40, 8, 202048, intermediate_size_mlp=16384)
EXPERTS = {"num_experts_per_tok": 8, "n_shared_experts": 1}
#: Configuration, parameters, where they are published, and how far they are rounded.
PUBLISHED = [
    # torchvision, convnext_tiny
    ({"model_type": "convnext", "num_labels": 1000}, 28_589_128, 0),
    # Hugging Face, openai/clip-vit-base-patch32
    ({"model_type": "clip"}, 151_277_313, 0),
    # Hugging Face, google/siglip-base-patch16-224
    ({"model_type": "siglip"}, 203_155_970, 0),
    # Hugging Face, AntonV/mamba2-130m-hf
    (MAMBA, 128_989_632, 0),
    # Hugging Face, mistralai/Mamba-Codestral-7B-v0.1
    ({"model_type": "mamba2"}, 7_285_403_648, 0),
    # Warner et al. 2024, table 1: 149 and 395 million
    ({"model_type": "modernbert", "architectures": ["ModernBertForMaskedLM"]}, 149e6, 0.005),
    # MiniMax-01 (arXiv:2501.08313), 456 billion, and MiniMax-M1 on the same network
    (MINIMAX, 456e9, 0.005),
    (MINIMAX | {"model_type": "minimax_m1"}, 456e9, 0.005),
    # Hugging Face, THUDM/glm-4-9b-chat-hf
    (text("glm", 4096, 13696, 40, 32, 2, 151552), 9_399_951_360, 0),
    # GLM-4-32B-0414, model card
    (text("glm4", 6144, 23040, 61, 48, 2, 151552), 32.6e9, 0.01),
    # GLM-4.5 (arXiv:2508.06471), 355 billion
    (
        text(
            *("glm4_moe", 5120, 12288, 92, 96, 8, 151552),
            **EXPERTS | {"moe_intermediate_size": 1536, "n_routed_experts": 160},
            first_k_dense_replace=3,
            use_qk_norm=True,
            attention_bias=True,
        ),
        355e9,
        0.01,
    ),
    # Llama 4 model card: 109 billion with 0.87 of its eyes, and 400 billion
    (
        LLAMA_4 | {"num_local_experts": 16, "interleave_moe_layer_step": 1},
        109e9 - 0.87e9,
        0.01,
    ),
    (LLAMA_4 | {"num_local_experts": 128, "interleave_moe_layer_step": 2}, 400e9, 0.01),
    # Gemma 3 (arXiv:2503.19786), table 1: embeddings and the rest, in millions
    (
        text("gemma3_text", 1152, 6912, 26, 4, 1, 262144, head_dim=256, sliding_window=512),
        (302 + 698) * 1e6,
        0.01,
    ),
    (
        text("gemma3_text", 5376, 21504, 62, 32, 16, 262208, sliding_window=1024),
        (1416 + 25600) * 1e6,
        0.01,
    ),
    # GPT-NeoX-20B (arXiv:2204.06745)
    ({"model_type": "gpt_neox"}, 20_554_567_680, 0),
    # Kimi-K2-Instruct on Hugging Face, 1,026 billion
    (
        text(
            *("kimi_k2", 7168, 18432, 61, 64, 64, 163840),
            **EXPERTS | {"moe_intermediate_size": 2048, "n_routed_experts": 384},
            first_k_dense_replace=1,
            q_lora_rank=1536,
            kv_lora_rank=512,
            qk_nope_head_dim=128,
            qk_rope_head_dim=64,
            v_head_dim=128,
        ),
        1026e9,
        0.01,
    ),
    # Qwen3-Next-80B-A3B, model card
    (NEXT, 80e9, 0.01),
]


def lowered(config, phase=Phase.FORWARD, **sizes):
    workload = workload_from_config(config)
    shape = PassShape(**({"batch": 1, "seq_len": workload.default.seq_len} | sizes))
    return workload.lower(shape, BF16, phase)


@pytest.mark.parametrize(("config", "parameters", "rounded"), PUBLISHED)
def test_parameters_are_those_published(config, parameters, rounded):
    assert lowered(config).parameter_count == pytest.approx(parameters, rel=rounded or 1e-12)


def test_states_do_not_grow_with_the_context():
    near, far = (
        lowered(MAMBA, Phase.DECODE, seq_len=1, context_len=length) for length in (10, 10_000)
    )
    assert near.cache.token_bytes == 0
    assert near.graph.total_bytes == far.graph.total_bytes
    short, long = (lowered(MAMBA, Phase.PREFILL, seq_len=n).graph.model_flop for n in (512, 4096))
    assert long / short == pytest.approx(8, rel=0.25)  # not quadratic: 64


def test_three_layers_in_four_of_a_hybrid_keep_no_keys():
    whole = lowered(NEXT, Phase.PREFILL, seq_len=64)
    assert whole.cache.token_bytes == 12 * 2 * 2 * 256 * 2  # layers, k and v, heads, width, bytes
    kinds = {**NEXT, "layer_types": ["linear_attention"] * 48}
    with pytest.raises(InvalidValueError):
        lowered({**kinds, "layer_types": ["full_attention", *kinds["layer_types"][1:]]})


def test_lightning_layers_keep_no_keys_and_split_over_ranks():
    whole = lowered(MINIMAX, Phase.PREFILL, seq_len=64)
    assert whole.cache.token_bytes == 10 * 2 * 8 * 128 * 2  # layers, k and v, heads, width, bytes
    near, far = (
        lowered(MINIMAX, Phase.DECODE, seq_len=1, context_len=length).graph for length in (64, 128)
    )
    read = 10 * 2 * 8 * 128 * 2 * 64
    assert far.total_bytes - near.total_bytes == pytest.approx(read, rel=0.2)
    with pytest.raises(InvalidValueError, match="attn_type_list"):
        lowered(MINIMAX | {"attn_type_list": [1, *MINIMAX["attn_type_list"][1:]]})


def test_the_newer_models_run_and_train():
    shallow = {"num_hidden_layers": 8, "num_local_experts": 2, "attn_type_list": [0] * 7 + [1]}
    small = MINIMAX | shallow | {"hidden_size": 512, "intermediate_size": 512}
    for config in (MAMBA, small, {"model_type": "convnext"}, {"model_type": "clip"}):
        workload = workload_from_config(config)
        for mode in ("inference", "training"):
            assert accelsim.estimate(workload, "a100-sxm-80gb", mode=mode, batch=2).latency_s > 0


def test_published_configurations_are_read_or_refused_by_their_type():
    """Those of the measured kernels' package, as their publishers wrote them."""
    found = pytest.importorskip("aiconfigurator_core")
    folder = Path(found.__file__).parent / "model_configs"
    done, refused = set(), []
    for path in sorted(folder.glob("*_config.json")):
        config = json.loads(path.read_text())
        try:
            workload = workload_from_config(config, path.stem)
        except AccelsimError as refusal:
            refused.append(str(refusal))
            continue
        done.add(config["model_type"])
        assert workload.parameters.hidden_size > 0
    assert all("model_type" in said or "quant" in said for said in refused)
    wanted = {"kimi_k2", "kimi_k25", "llama4", "minimax_m2", "qwen3_5", "qwen3_5_moe", "qwen3_vl"}
    assert wanted | {"glm_moe_dsa", "gpt_oss"} <= done


def test_every_asked_for_type_is_known():
    asked = ("llama4_text", "gemma3_text", "mamba2", "gpt_neox", "modernbert", "clip", "siglip")
    more = (
        "convnext",
        "minimax_text_01",
        "minimax_m1",
        "minimax_m2",
        "glm",
        "glm4",
        "kimi_k2",
        "glm4_moe",
        "glm_moe_dsa",
        "qwen3_next",
    )
    assert {*asked, *more, "qwen3_5_text", "qwen3_5_moe_text"} <= MODEL_TYPES.keys()
