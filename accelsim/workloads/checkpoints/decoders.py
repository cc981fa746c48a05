"""How configurations of decoder-only checkpoints map to the parameters of `decoder`, one reader per
model type.
"""

from __future__ import annotations

from accelsim.errors import InvalidValueError
from accelsim.workloads.checkpoints.config import CheckpointConfig, Parameters

__all__ = [
    "read_deepseek",
    "read_falcon",
    "read_gemma",
    "read_gemma2",
    "read_gemma3",
    "read_gpt2",
    "read_gpt_oss",
    "read_llama",
    "read_mistral",
    "read_mixtral",
    "read_opt",
    "read_phi",
    "read_phi3",
    "read_qwen2",
    "read_qwen2_moe",
    "read_qwen3",
    "read_qwen3_moe",
]


def _decoder(c: CheckpointConfig) -> Parameters:
    """What Llama and its relatives share."""
    heads = c.integer("num_attention_heads")
    parameters = {
        "vocab_size": c.integer("vocab_size"),
        "hidden_size": c.integer("hidden_size"),
        "layers": c.integer("num_hidden_layers"),
        "heads": heads,
        "kv_heads": c.integer("num_key_value_heads", heads),
        "intermediate_size": c.integer("intermediate_size"),
        "activation": c.activation("hidden_act", "silu"),
        "tied_embeddings": c.flag("tie_word_embeddings", default=False),
    }
    known = {"head_dim": "head_dim", "max_positions": "max_position_embeddings"}
    return parameters | {name: c.integer(field) for name, field in known.items() if c.has(field)}


def read_llama(c: CheckpointConfig) -> Parameters:
    """Llama 1 to 3."""
    bias = c.flag("attention_bias", default=False)
    return _decoder(c) | {
        "attention_bias": bias,
        "output_bias": bias,
        "feed_forward_bias": c.flag("mlp_bias", default=False),
    }


def read_mistral(c: CheckpointConfig) -> Parameters:
    """Mistral, whose window may be null."""
    return _decoder(c) | {"window": c.integer("sliding_window") if c.has("sliding_window") else 0}


def read_mixtral(c: CheckpointConfig) -> Parameters:
    """Mixtral."""
    mixture = {
        "experts": c.integer("num_local_experts", 8),
        "top_k": c.integer("num_experts_per_tok", 2),
        "intermediate_size": c.integer("intermediate_size"),
    }
    return read_mistral(c) | {"layout": "mixtral", "mixture": mixture}


def read_qwen2(c: CheckpointConfig) -> Parameters:
    """Qwen 1.5 to 2.5."""
    c.require("use_sliding_window", expected=False, default=False)
    return _decoder(c) | {"attention_bias": True}


def _qwen_mixture(c: CheckpointConfig, experts: int, top_k: int) -> Parameters:
    c.require("decoder_sparse_step", 1, 1)
    c.require("mlp_only_layers", [], [])
    field = (
        "num_experts" if c.has("num_experts") else "num_local_experts"
    )  # the name in newer releases
    return {
        "experts": c.integer(field, experts),
        "top_k": c.integer("num_experts_per_tok", top_k),
        "intermediate_size": c.integer("moe_intermediate_size"),
    }


def read_qwen2_moe(c: CheckpointConfig) -> Parameters:
    """Qwen 1.5 and 2 mixtures, with a gated shared expert."""
    shared = {
        "shared_intermediate_size": c.integer("shared_expert_intermediate_size"),
        "shared_gate": True,
    }
    return read_qwen2(c) | {"layout": "qwen2_moe", "mixture": _qwen_mixture(c, 60, 4) | shared}


def read_qwen3(c: CheckpointConfig) -> Parameters:
    """Qwen 3."""
    c.require("use_sliding_window", expected=False, default=False)
    bias = c.flag("attention_bias", default=False)
    own = {
        "head_dim": c.integer("head_dim", 128),
        "query_key_norm": True,
        "attention_bias": bias,
        "output_bias": bias,
    }
    return _decoder(c) | own


def read_qwen3_moe(c: CheckpointConfig) -> Parameters:
    """Qwen 3 mixtures."""
    return read_qwen3(c) | {"mixture": _qwen_mixture(c, 128, 8)}


def read_gpt_oss(c: CheckpointConfig) -> Parameters:
    """gpt-oss."""
    top_k = "num_experts_per_tok" if c.has("num_experts_per_tok") else "experts_per_token"
    mixture = {
        "experts": c.integer("num_local_experts", 128),
        "top_k": c.integer(top_k, 4),
        "intermediate_size": c.integer("intermediate_size"),
        "bias": True,
    }
    bias = c.flag("attention_bias", default=True)
    return (
        _decoder(c)
        | _windows(c, every=2)
        | {
            "layout": "gpt_oss",
            "attention_bias": bias,
            "output_bias": bias,
            "sinks": True,
            "mixture": mixture,
        }
    )


def _windows(c: CheckpointConfig, every: int) -> Parameters:
    """Windowed layers with a full one every `every`, unless ``layer_types`` says otherwise."""
    kinds = c.fields.get("layer_types")
    if kinds is not None:
        if not isinstance(kinds, (list, tuple)) or len(kinds) != c.integer("num_hidden_layers"):
            raise InvalidValueError("layer_types", kinds, "one entry per layer")
        full = [index + 1 for index, kind in enumerate(kinds) if kind == "full_attention"]
        every = full[0] if full else 0
        if full != (list(range(every, len(kinds) + 1, every)) if every else []):
            raise InvalidValueError("layer_types", kinds, "full_attention at every n-th layer")
    return {"window": c.integer("sliding_window", 4096), "full_attention_every": every}


def read_deepseek(c: CheckpointConfig) -> Parameters:
    """DeepSeek-V2 and V3."""
    size = c.integer("moe_intermediate_size")
    c.require("moe_layer_freq", 1, 1)
    latent = {
        "query_rank": c.integer("q_lora_rank") if c.has("q_lora_rank") else 0,
        "latent_rank": c.integer("kv_lora_rank"),
        "nope_dim": c.integer("qk_nope_head_dim"),
        "rope_dim": c.integer("qk_rope_head_dim"),
        "value_dim": c.integer("v_head_dim"),
    }
    mixture = {
        "experts": c.integer("n_routed_experts"),
        "top_k": c.integer("num_experts_per_tok"),
        "intermediate_size": size,
        "shared_intermediate_size": size * c.integer("n_shared_experts", 0, least=0),
        "dense_layers": c.integer("first_k_dense_replace", 0, least=0),
        "correction_bias": c.text("model_type", "") == "deepseek_v3",
    }
    parameters = _decoder(c) | {"latent": latent, "mixture": mixture}
    parameters.pop("head_dim", None)  # configurations carry the rotary width under this name
    return parameters | {"kv_heads": None}


def read_gemma(c: CheckpointConfig) -> Parameters:
    """Gemma 1."""
    activation = "hidden_activation" if c.has("hidden_activation") else "hidden_act"
    return _decoder(c) | {
        "head_dim": c.integer("head_dim", 256),
        "activation": c.activation(activation, "gelu_pytorch_tanh"),
        "tied_embeddings": c.flag("tie_word_embeddings", default=True),
    }


def read_gemma2(c: CheckpointConfig) -> Parameters:
    """Gemma 2: every other layer windowed."""
    return read_gemma(c) | _windows(c, every=2) | {"layout": "gemma2", "post_norms": True}


def read_gemma3(c: CheckpointConfig) -> Parameters:
    """Gemma 3, text only: five windowed layers to a full one."""
    return (
        read_gemma(c)
        | _windows(c, every=6)
        | {"layout": "gemma2", "post_norms": True, "query_key_norm": True}
    )


def read_phi3(c: CheckpointConfig) -> Parameters:
    """Phi-3 and 4."""
    return read_mistral(c) | {
        "fused_qkv": True,
        "fused_gate_up": True,
        "rotary_fraction": c.fraction("partial_rotary_factor", 1.0),
    }


def read_gpt2(c: CheckpointConfig) -> Parameters:
    """GPT-2."""
    width = c.integer("n_embd", 768)
    return {
        "layout": "gpt2",
        "vocab_size": c.integer("vocab_size", 50257),
        "hidden_size": width,
        "layers": c.integer("n_layer", 12),
        "heads": c.integer("n_head", 12),
        "intermediate_size": c.integer("n_inner", 4 * width),
        "activation": c.activation("activation_function", "gelu_new"),
        "max_positions": c.integer("n_positions", 1024),
        "tied_embeddings": c.flag("tie_word_embeddings", default=True),
        "fused_qkv": True,
    } | _LEARNED


#: Layer norm, learned positions and biases everywhere: GPT-2 and OPT.
_LEARNED: Parameters = {
    "gated": False,
    "norm": "layer_norm",
    "positions": "learned",
    "attention_bias": True,
    "output_bias": True,
    "feed_forward_bias": True,
}


def read_opt(c: CheckpointConfig) -> Parameters:
    """OPT, except the post-norm 350M."""
    width = c.integer("hidden_size")
    c.require("do_layer_norm_before", expected=True, default=True)
    c.require("word_embed_proj_dim", width, width)
    c.require("enable_bias", expected=True, default=True)
    return {
        "layout": "opt",
        "vocab_size": c.integer("vocab_size", 50272),
        "hidden_size": width,
        "layers": c.integer("num_hidden_layers"),
        "heads": c.integer("num_attention_heads"),
        "intermediate_size": c.integer("ffn_dim"),
        "activation": c.activation("activation_function", "relu"),
        "max_positions": c.integer("max_position_embeddings", 2048),
        "position_offset": 2,
        "tied_embeddings": c.flag("tie_word_embeddings", default=True),
    } | _LEARNED


def read_phi(c: CheckpointConfig) -> Parameters:
    """Phi-1 and 2: attention and feed-forward side by side, biases everywhere."""
    c.require("qk_layernorm", expected=False, default=False)
    return _decoder(c) | {
        "layout": "phi",
        "activation": c.activation("hidden_act", "gelu_new"),
        "gated": False,
        "norm": "layer_norm",
        "parallel": True,
        "rotary_fraction": c.fraction("partial_rotary_factor", 0.5),
        "attention_bias": True,
        "output_bias": True,
        "feed_forward_bias": True,
        "head_bias": True,
    }


def read_falcon(c: CheckpointConfig) -> Parameters:
    """Falcon-7B: one key-value head, attention and feed-forward side by side."""
    c.require("new_decoder_architecture", expected=False, default=False)
    c.require("parallel_attn", expected=True, default=True)
    c.require("bias", expected=False, default=False)
    c.require("alibi", expected=False, default=False)
    width, heads = c.integer("hidden_size"), c.integer("num_attention_heads")
    return {
        "layout": "falcon",
        "vocab_size": c.integer("vocab_size"),
        "hidden_size": width,
        "layers": c.integer("num_hidden_layers"),
        "heads": heads,
        "kv_heads": 1 if c.flag("multi_query", default=True) else heads,
        "intermediate_size": c.integer("ffn_hidden_size", 4 * width),
        "activation": c.activation("activation", "gelu"),
        "gated": False,
        "norm": "layer_norm",
        "parallel": True,
        "fused_qkv": True,
        "tied_embeddings": c.flag("tie_word_embeddings", default=True),
    }
