"""Workloads from checkpoint configurations: counts of the transformers package, the catalogue, and
bad configurations.
"""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim import estimate
from accelsim.catalog.checkpoints.huggingface import MODEL_TYPES, workload_from_config
from accelsim.catalog.workloads import load_workload_file, workload
from accelsim.dtype import precision
from accelsim.errors import InputError, InvalidValueError, ProfileError, UnknownNameError
from accelsim.workloads.model import PassShape

BF16 = precision("bf16")
SMALL = {
    "vocab_size": 1000,
    "hidden_size": 128,
    "intermediate_size": 320,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
}
GROUPED = SMALL | {"num_key_value_heads": 2}
LATENT = {
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "n_shared_experts": 2,
}
STACKS = {
    "vocab_size": 1000,
    "d_model": 128,
    "encoder_layers": 3,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 300,
    "decoder_ffn_dim": 300,
}
WAV = {
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 300,
    "vocab_size": 32,
}
LARGE_WAV = WAV | {"conv_bias": True, "feat_extract_norm": "layer", "do_stable_layer_norm": True}
DISTIL = {"dim": 128, "n_layers": 2, "n_heads": 4, "hidden_dim": 300, "vocab_size": 1000}
T5 = {"vocab_size": 1000, "d_model": 128, "d_kv": 16, "d_ff": 300, "num_layers": 3, "num_heads": 6}
FIVE = {"id2label": {str(index): str(index) for index in range(5)}}

# (model_type, configuration, architecture, parameters, FLOP or None). Parameters: numel() over
# model.parameters() of that class built from the same configuration with transformers 5.23
# (MiniMax and dense GLM: 4.57.1). FLOP: torch.utils.flop_counter over its forward pass with
# eager attention, torch 2.13, batch 2, 64 tokens (32 target tokens; 16,000 samples; 1,500 mel
# positions); None where its grouped products go uncounted. The counts of DeepSeek-V3, Kimi-K2
# and GLM-4.5 add the 3 x 8 routing biases that are buffers there.
COUNTED = [
    (
        "llama",
        GROUPED | {"attention_bias": True, "mlp_bias": True},
        "LlamaForCausalLM",
        916_864,
        None,
    ),
    (
        "llama",
        GROUPED | {"tie_word_embeddings": True, "head_dim": 32},
        "LlamaForCausalLM",
        948_352,
        276_037_632,
    ),
    (
        "minimax",
        GROUPED
        | {
            "head_dim": 32,
            "num_local_experts": 8,
            "layer_types": [*["linear_attention"] * 3, "full_attention"],
        },
        "MiniMaxForCausalLM",
        4_767_616,
        None,
    ),
    ("glm", GROUPED | {"head_dim": 32}, "GlmForCausalLM", 1_077_888, None),
    (
        "glm4",
        GROUPED | {"head_dim": 32, "attention_bias": True},
        "Glm4ForCausalLM",
        1_078_912,
        None,
    ),
    ("mistral", GROUPED, "MistralForCausalLM", 912_512, None),
    ("mixtral", GROUPED | {"num_local_experts": 8}, "MixtralForCausalLM", 4_357_248, None),
    ("qwen2", GROUPED, "Qwen2ForCausalLM", 913_280, None),
    (
        "qwen2_moe",
        GROUPED
        | {"num_experts": 8, "moe_intermediate_size": 64, "shared_expert_intermediate_size": 96},
        "Qwen2MoeForCausalLM",
        1_360_256,
        None,
    ),
    ("qwen3", GROUPED | {"head_dim": 32}, "Qwen3ForCausalLM", 1_076_608, 276_037_632),
    (
        "qwen3_moe",
        GROUPED | {"head_dim": 32, "num_experts": 8, "moe_intermediate_size": 64},
        "Qwen3MoeForCausalLM",
        1_375_616,
        None,
    ),
    (
        "gpt_oss",
        GROUPED | {"head_dim": 32, "num_local_experts": 8},
        "GptOssForCausalLM",
        4_547_776,
        None,
    ),
    (
        "deepseek_v3",
        SMALL | LATENT | {"num_hidden_layers": 5, "q_lora_rank": 48, "first_k_dense_replace": 2},
        "DeepseekV3ForCausalLM",
        1_469_200 + 24,
        None,
    ),
    (
        "deepseek_v2",
        SMALL | LATENT | {"num_hidden_layers": 5, "q_lora_rank": None, "first_k_dense_replace": 1},
        "DeepseekV2ForCausalLM",
        1_638_944,
        None,
    ),
    (
        "deepseek_v3",
        SMALL | LATENT | {"num_hidden_layers": 3, "q_lora_rank": 48, "first_k_dense_replace": 3},
        "DeepseekV3ForCausalLM",
        None,
        177_471_488,
    ),
    (
        "kimi_k2",
        SMALL | LATENT | {"num_hidden_layers": 5, "q_lora_rank": 48, "first_k_dense_replace": 2},
        "DeepseekV3ForCausalLM",
        1_469_200 + 24,
        None,
    ),
    (
        "glm4_moe",
        GROUPED
        | {"head_dim": 32, "n_routed_experts": 8, "num_experts_per_tok": 2}
        | {"moe_intermediate_size": 64, "use_qk_norm": True, "attention_bias": True},
        "Glm4MoeForCausalLM",
        1_376_128 + 24,
        None,
    ),
    (
        "minimax_m2",
        GROUPED
        | {"head_dim": 32, "rotary_dim": 16, "num_local_experts": 8, "num_experts_per_tok": 2},
        "MiniMaxM2ForCausalLM",
        4_522_368,
        None,
    ),
    (
        "llama4_text",
        GROUPED
        | {"head_dim": 32, "intermediate_size_mlp": 512, "num_local_experts": 4}
        | {"interleave_moe_layer_step": 2},
        "Llama4ForCausalLM",
        2_207_872,
        None,
    ),
    ("gpt_neox", SMALL, "GPTNeoXForCausalLM", 851_968, None),
    ("gemma", GROUPED | {"head_dim": 32}, "GemmaForCausalLM", 948_352, None),
    ("gemma2", GROUPED | {"head_dim": 32}, "Gemma2ForCausalLM", 949_376, 276_037_632),
    (
        "gemma3_text",
        GROUPED | {"head_dim": 32, "num_hidden_layers": 12},
        "Gemma3ForCausalLM",
        2_592_640,
        None,
    ),
    ("phi3", GROUPED, "Phi3ForCausalLM", 912_512, 217_317_376),
    ("phi", SMALL, "PhiForCausalLM", 851_944, 200_540_160),
    (
        "falcon",
        {"vocab_size": 1000, "hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4},
        "FalconForCausalLM",
        645_120,
        177_471_488,
    ),
    (
        "gpt2",
        {"n_embd": 128, "n_layer": 3, "n_head": 4, "vocab_size": 1000},
        "GPT2LMHeadModel",
        854_144,
        196_345_856,
    ),
    (
        "opt",
        {
            "hidden_size": 128,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "ffn_dim": 300,
            "vocab_size": 1000,
        },
        "OPTForCausalLM",
        822_020,
        154_664_960,
    ),
    ("bert", SMALL, "BertModel", 806_272, None),
    ("bert", SMALL, "BertForMaskedLM", 807_528, None),
    ("bert", SMALL, "BertForPreTraining", 824_298, 204_801_024),
    ("bert", SMALL | FIVE, "BertForSequenceClassification", 806_917, None),
    ("bert", SMALL | FIVE, "BertForTokenClassification", 790_405, None),
    ("bert", SMALL | FIVE, "BertForQuestionAnswering", 790_405, None),
    (
        "roberta",
        SMALL | {"max_position_embeddings": 514, "type_vocab_size": 1},
        "RobertaModel",
        806_400,
        None,
    ),
    ("distilbert", DISTIL, "DistilBertModel", 481_368, 81_264_640),
    ("distilbert", DISTIL, "DistilBertForMaskedLM", 499_136, None),
    (
        "vit",
        {
            "hidden_size": 128,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "intermediate_size": 300,
            "num_labels": 10,
        },
        "ViTForImageClassification",
        556_686,
        532_779_008,
    ),
    ("t5", T5 | {"num_decoder_layers": 2}, "T5ForConditionalGeneration", 858_240, 178_388_992),
    (
        "t5",
        T5 | {"feed_forward_proj": "gated-gelu"},
        "T5ForConditionalGeneration",
        1_264_128,
        250_544_128,
    ),
    ("bart", STACKS, "BartForConditionalGeneration", 1_242_716, 206_176_256),
    ("whisper", STACKS, "WhisperForConditionalGeneration", 1_308_636, 10_692_427_776),
    ("wav2vec2", WAV, "Wav2Vec2Model", 4_686_424, None),
    ("wav2vec2", WAV, "Wav2Vec2ForCTC", 4_690_552, 9_901_070_336),
    ("wav2vec2", LARGE_WAV, "Wav2Vec2ForCTC", 4_700_280, 9_901_070_336),
]
TOKENS = {"wav2vec2": 16_000, "whisper": 1500, "vit": 0}


@pytest.mark.parametrize(("model_type", "fields", "architecture", "parameters", "flop"), COUNTED)
def test_counts_equal_those_of_transformers(model_type, fields, architecture, parameters, flop):
    model = workload_from_config(
        fields | {"model_type": model_type, "architectures": [architecture]}
    )
    run = model.lower(PassShape(2, TOKENS.get(model_type, 64), target_len=32), BF16)
    if parameters is not None:
        assert run.parameter_count == parameters
    if flop is not None:
        assert run.graph.model_flop == flop


def test_every_model_type_is_counted():
    newer = {
        *("clip", "convnext", "glm_moe_dsa", "mamba2", "mimo", "modernbert", "qwen3_5"),
        *("qwen3_5_moe", "qwen3_5_moe_text", "qwen3_5_text", "qwen3_next", "qwen3_vl", "siglip"),
        *("minimax_text_01", "minimax_m1", "qwen3_vl_text", "qwen3_vl_moe_text"),
    }  # in test_newer_checkpoints
    assert set(MODEL_TYPES) - newer <= {case[0] for case in COUNTED} <= set(MODEL_TYPES)


# Fields of published configurations; the catalogue's entry must be the same model.
CHECKPOINTS = {
    "llama-3.1-8b": {
        "model_type": "llama",
        "vocab_size": 128256,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "hidden_act": "silu",
        "rope_scaling": {"factor": 8.0, "rope_type": "llama3"},
    },
    "qwen3-30b-a3b": {
        "model_type": "qwen3_moe",
        "vocab_size": 151936,
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "num_hidden_layers": 48,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 768,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    },
    "gpt-oss-120b": {
        "model_type": "gpt_oss",
        "vocab_size": 201088,
        "hidden_size": 2880,
        "intermediate_size": 2880,
        "num_hidden_layers": 36,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "num_local_experts": 128,
        "experts_per_token": 4,
        "sliding_window": 128,
        "layer_types": ["sliding_attention", "full_attention"] * 18,
        "attention_bias": True,
    },
    "deepseek-v3": {
        "model_type": "deepseek_v3",
        "vocab_size": 129280,
        "hidden_size": 7168,
        "intermediate_size": 18432,
        "moe_intermediate_size": 2048,
        "num_hidden_layers": 61,
        "num_attention_heads": 128,
        "num_key_value_heads": 128,
        "n_routed_experts": 256,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "first_k_dense_replace": 3,
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
    },
    "gpt2": {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024},
    "t5-small": {
        "model_type": "t5",
        "d_model": 512,
        "d_kv": 64,
        "d_ff": 2048,
        "num_layers": 6,
        "num_heads": 8,
        "vocab_size": 32128,
    },
}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_published_configuration_is_the_catalogued_model(name):
    ours, theirs = workload(name), workload_from_config(CHECKPOINTS[name])
    assert ours.family is theirs.family
    shape = PassShape(2, 48, target_len=8)
    mine, given_ = ours.lower(shape, BF16), theirs.lower(shape, BF16)
    assert mine.parameter_count == given_.parameter_count
    assert mine.graph.path == given_.graph.path
    assert (mine.graph.flop == given_.graph.flop).all()
    assert (mine.graph.bytes == given_.graph.bytes).all()


def test_the_trained_context_is_read_and_does_not_limit_rotary_models():
    config = GROUPED | {"model_type": "llama", "max_position_embeddings": 256}
    model = workload_from_config(config)
    assert model.parameters.max_positions == 256
    assert estimate(model, "t4", seq_len=512, output_len=0).trained_positions == 256
    assert estimate("llama-2-7b", "t4", seq_len=64).trained_positions == 4096
    assert estimate("resnet-18", "t4").trained_positions is None


def test_models_that_see_are_read_as_their_language_model():
    """Llama-4 Scout, 17 billion active of 109 billion parameters with its vision model."""
    text = {
        "model_type": "llama4_text",
        "vocab_size": 202048,
        "hidden_size": 5120,
        "intermediate_size": 8192,
        "intermediate_size_mlp": 16384,
        "num_hidden_layers": 48,
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "num_local_experts": 16,
        "attention_chunk_size": 8192,
    }
    model = workload_from_config({"model_type": "llama4", "text_config": text})
    count = model.lower(PassShape(1, 8), BF16).parameter_count
    assert count == pytest.approx(109e9, rel=0.015)
    assert model.name == "llama4-text"


def test_untied_logits_count_apart():
    """Flan-T5 base, 247,577,856 parameters in its safetensors index."""
    base = {
        "model_type": "t5",
        "d_model": 768,
        "d_kv": 64,
        "d_ff": 2048,
        "num_layers": 12,
        "num_heads": 12,
    }
    gated = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "vocab_size": 32128}
    run = workload_from_config(base | gated).lower(PassShape(1, 8, target_len=8), BF16)
    assert run.parameter_count == 247_577_856


def test_name_comes_from_the_argument_the_path_or_the_type():
    config = CHECKPOINTS["gpt2"]
    assert workload_from_config(config).name == "gpt2"
    assert (
        workload_from_config(config | {"_name_or_path": "openai-community/GPT2_Tiny"}).name
        == "gpt2-tiny"
    )
    assert workload_from_config(config, name="mine").name == "mine"


def test_generators_generate_and_encoders_do_not():
    assert workload_from_config(CHECKPOINTS["gpt2"]).output_len > 0
    assert workload_from_config(SMALL | {"model_type": "bert"}).output_len == 0


def test_a_configuration_file_is_a_workload(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CHECKPOINTS["llama-3.1-8b"]))
    assert load_workload_file(path).lower(PassShape(1, 8), BF16).parameter_count == 8_030_261_248


def test_a_bad_configuration_file_names_itself_and_the_field(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CHECKPOINTS["llama-3.1-8b"] | {"hidden_size": "wide"}))
    with pytest.raises(ProfileError, match=r"config\.json.*hidden_size"):
        load_workload_file(path)


@pytest.mark.parametrize("model_type", ["mamba", "", "LLAMA"])
def test_unsupported_types_list_the_supported(model_type):
    with pytest.raises(UnknownNameError, match="Supported: bart, bert"):
        workload_from_config({"model_type": model_type})


@pytest.mark.parametrize(
    ("model_type", "fields", "field"),
    [
        ("llama", {"hidden_size": None}, "hidden_size"),
        ("llama", {"hidden_size": "4096"}, "hidden_size"),
        ("llama", {"hidden_size": 4096.0}, "hidden_size"),
        ("llama", {"num_hidden_layers": 0}, "num_hidden_layers"),
        ("llama", {"num_hidden_layers": 10**9}, "num_hidden_layers"),
        ("llama", {"vocab_size": True}, "vocab_size"),
        ("llama", {"hidden_act": "sine"}, "hidden_act"),
        ("llama", {"hidden_act": 3}, "hidden_act"),
        ("llama", {"tie_word_embeddings": "no"}, "tie_word_embeddings"),
        ("llama", {"architectures": "LlamaForCausalLM", "model_type": "bert"}, "architectures"),
        ("qwen2", {"use_sliding_window": True}, "use_sliding_window"),
        ("qwen3_moe", {"moe_intermediate_size": 8, "mlp_only_layers": [1]}, "mlp_only_layers"),
        ("qwen3_moe", {"num_experts": 4}, "moe_intermediate_size"),
        ("gemma2", {"layer_types": ["full_attention"]}, "layer_types"),
        ("gemma2", {"layer_types": ["full_attention", "full_attention", "x", "x"]}, "layer_types"),
        ("opt", {"ffn_dim": 8, "do_layer_norm_before": False}, "do_layer_norm_before"),
        ("opt", {"ffn_dim": 8, "word_embed_proj_dim": 64}, "word_embed_proj_dim"),
        ("falcon", {"new_decoder_architecture": True}, "new_decoder_architecture"),
        ("whisper", {**STACKS, "decoder_ffn_dim": 8}, "decoder_ffn_dim"),
        ("wav2vec2", {"conv_dim": [512, 0]}, "conv_dim"),
        ("wav2vec2", {"feat_extract_norm": "none"}, "conv_norm"),
        ("phi", {"partial_rotary_factor": float("nan")}, "partial_rotary_factor"),
    ],
)
def test_bad_fields_are_named(model_type, fields, field):
    with pytest.raises(InvalidValueError) as caught:
        workload_from_config(SMALL | {"model_type": model_type} | fields)
    assert caught.value.field == field


JSON = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.integers(), max_size=3),
)


@given(st.sampled_from(COUNTED), st.data())
@settings(max_examples=150, deadline=None)
def test_any_field_may_be_anything_and_only_input_errors_come_out(case, data):
    model_type, fields, architecture, _, _ = case
    config = fields | {"model_type": model_type, "architectures": [architecture]}
    for field in data.draw(st.lists(st.sampled_from(sorted(config)), min_size=1, max_size=3)):
        config[field] = data.draw(JSON)
    with contextlib.suppress(InputError):
        workload_from_config(config)
