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
    known = c.counts(
        f"vocab_size hidden_size layers=num_hidden_layers heads=num_attention_heads "
        f"kv_heads=num_key_value_heads:{heads} intermediate_size head_dim? "
        f"max_positions=max_position_embeddings?"
    )
    return known | {
        "activation": c.activation("hidden_act", "silu"),
        "tied_embeddings": c.flag("tie_word_embeddings"),
    }


def _attention_bias(c: CheckpointConfig, *, default: bool = False) -> Parameters:
    bias = c.flag("attention_bias", default=default)
    return {"attention_bias": bias, "output_bias": bias}


def read_llama(c: CheckpointConfig) -> Parameters:
    """Llama 1 to 3."""
    feed_forward = {"feed_forward_bias": c.flag("mlp_bias")}
    return _decoder(c) | _attention_bias(c) | feed_forward


def read_mistral(c: CheckpointConfig) -> Parameters:
    """Mistral, whose window may be null."""
    return _decoder(c) | {"window": c.integer("sliding_window") if c.has("sliding_window") else 0}


def read_mixtral(c: CheckpointConfig) -> Parameters:
    """Mixtral."""
    mixture = c.counts("experts=num_local_experts:8 top_k=num_experts_per_tok:2 intermediate_size")
    return read_mistral(c) | {"layout": "mixtral", "mixture": mixture}


def read_qwen2(c: CheckpointConfig) -> Parameters:
    """Qwen 1.5 to 2.5."""
    c.require("use_sliding_window", expected=False, default=False)
    return _decoder(c) | {"attention_bias": True}


def _qwen_mixture(c: CheckpointConfig, experts: int, top_k: int) -> Parameters:
    c.require("decoder_sparse_step", 1, 1)
    c.require("mlp_only_layers", [], [])
    # Newer releases have another name for it.
    field = "num_experts" if c.has("num_experts") else "num_local_experts"
    return c.counts(
        f"experts={field}:{experts} top_k=num_experts_per_tok:{top_k} "
        f"intermediate_size=moe_intermediate_size"
    )


def read_qwen2_moe(c: CheckpointConfig) -> Parameters:
    """Qwen 1.5 and 2 mixtures, with a gated shared expert."""
    shared = c.counts("shared_intermediate_size=shared_expert_intermediate_size")
    mixture = _qwen_mixture(c, 60, 4) | shared | {"shared_gate": True}
    return read_qwen2(c) | {"layout": "qwen2_moe", "mixture": mixture}


def read_qwen3(c: CheckpointConfig) -> Parameters:
    """Qwen 3."""
    c.require("use_sliding_window", expected=False, default=False)
    own = c.counts("head_dim:128") | {"query_key_norm": True}
    return _decoder(c) | _attention_bias(c) | own


def read_qwen3_moe(c: CheckpointConfig) -> Parameters:
    """Qwen 3 mixtures."""
    return read_qwen3(c) | {"mixture": _qwen_mixture(c, 128, 8)}


def read_gpt_oss(c: CheckpointConfig) -> Parameters:
    """gpt-oss."""
    top_k = "num_experts_per_tok" if c.has("num_experts_per_tok") else "experts_per_token"
    mixture = c.counts(f"experts=num_local_experts:128 top_k={top_k}:4 intermediate_size")
    own = {"layout": "gpt_oss", "sinks": True, "mixture": mixture | {"bias": True}}
    return _decoder(c) | _windows(c, every=2) | _attention_bias(c, default=True) | own


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
    latent = c.counts(
        "query_rank=q_lora_rank? latent_rank=kv_lora_rank nope_dim=qk_nope_head_dim "
        "rope_dim=qk_rope_head_dim value_dim=v_head_dim"
    )
    routed = c.counts("experts=n_routed_experts top_k=num_experts_per_tok")
    mixture = routed | {
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
    own = {
        "activation": c.activation(activation, "gelu_pytorch_tanh"),
        "tied_embeddings": c.flag("tie_word_embeddings", default=True),
    }
    return _decoder(c) | c.counts("head_dim:256") | own


def read_gemma2(c: CheckpointConfig) -> Parameters:
    """Gemma 2: every other layer windowed."""
    return read_gemma(c) | _windows(c, every=2) | {"layout": "gemma2", "post_norms": True}


def read_gemma3(c: CheckpointConfig) -> Parameters:
    """Gemma 3, text only: five windowed layers to a full one."""
    own = {"layout": "gemma2", "post_norms": True, "query_key_norm": True}
    return read_gemma(c) | _windows(c, every=6) | own


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
    sizes = c.counts(
        f"vocab_size:50257 hidden_size=n_embd:768 layers=n_layer:12 heads=n_head:12 "
        f"intermediate_size=n_inner:{4 * width} max_positions=n_positions:1024"
    )
    own = {
        "layout": "gpt2",
        "activation": c.activation("activation_function", "gelu_new"),
        "tied_embeddings": c.flag("tie_word_embeddings", default=True),
        "fused_qkv": True,
    }
    return sizes | own | _LEARNED


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
    sizes = c.counts(
        "vocab_size:50272 hidden_size layers=num_hidden_layers heads=num_attention_heads "
        "intermediate_size=ffn_dim max_positions=max_position_embeddings:2048"
    )
    own = {
        "layout": "opt",
        "activation": c.activation("activation_function", "relu"),
        "position_offset": 2,
        "tied_embeddings": c.flag("tie_word_embeddings", default=True),
    }
    return sizes | own | _LEARNED


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
    width = c.integer("hidden_size")
    sizes = c.counts(
        f"vocab_size hidden_size layers=num_hidden_layers heads=num_attention_heads "
        f"intermediate_size=ffn_hidden_size:{4 * width}"
    )
    return sizes | {
        "layout": "falcon",
        "kv_heads": 1 if c.flag("multi_query", default=True) else sizes["heads"],
        "activation": c.activation("activation", "gelu"),
        "gated": False,
        "norm": "layer_norm",
        "parallel": True,
        "fused_qkv": True,
        "tied_embeddings": c.flag("tie_word_embeddings", default=True),
    }
