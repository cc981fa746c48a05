"""Module paths inside a transformer layer, by the layout of the implementation it follows.

Paths are those of the Hugging Face implementation of each model, so that a modelled row can be
matched with a captured or profiled one. Every path is relative to its layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace

from accelsim.frozen import frozen


@frozen
class LayerNames:
    """Paths of one layer's parts."""

    attention: str = "self_attn"
    query: str = "self_attn.q_proj"
    key: str = "self_attn.k_proj"
    value: str = "self_attn.v_proj"
    output: str = "self_attn.o_proj"
    fused_qkv: str = "self_attn.qkv_proj"
    query_norm: str = "self_attn.q_norm"
    key_norm: str = "self_attn.k_norm"
    query_down: str = "self_attn.q_a_proj"
    query_down_norm: str = "self_attn.q_a_layernorm"
    query_up: str = "self_attn.q_b_proj"
    latent_down: str = "self_attn.kv_a_proj_with_mqa"
    fused_down: str = "self_attn.fused_qkv_a_proj_with_mqa"
    latent_norm: str = "self_attn.kv_a_layernorm"
    latent_up: str = "self_attn.kv_b_proj"
    attention_norm: str = "input_layernorm"
    attention_post_norm: str = "post_attention_layernorm"
    feed_forward: str = "mlp"
    gate: str = "mlp.gate_proj"
    up: str = "mlp.up_proj"
    fused_gate_up: str = "mlp.gate_up_proj"
    down: str = "mlp.down_proj"
    feed_forward_norm: str = "post_attention_layernorm"
    feed_forward_post_norm: str = "post_feedforward_layernorm"
    router: str = "mlp.gate"
    experts: str = "mlp.experts"
    shared_expert: str = "mlp.shared_experts"
    cross_attention: str = "encoder_attn"
    cross_query: str = "encoder_attn.q_proj"
    cross_key: str = "encoder_attn.k_proj"
    cross_value: str = "encoder_attn.v_proj"
    cross_output: str = "encoder_attn.out_proj"
    cross_norm: str = "encoder_attn_layer_norm"


@frozen
class ModulePaths:
    """Paths of a decoder-only model around its layers."""

    layer: LayerNames
    layers: str = "model.layers"
    embedding: str = "model.embed_tokens"
    positions: str = "model.embed_positions"
    final_norm: str = "model.norm"
    head: str = "lm_head"


#: Layers of encoders and encoder-decoders: the layout that each follows, and the paths that differ.
_LAYERS = {
    "fairseq": """
        llama output=self_attn.out_proj attention_norm=self_attn_layer_norm
        feed_forward=activation_fn up=fc1 down=fc2 feed_forward_norm=final_layer_norm""",
    "fairseq_mlp": """
        fairseq attention_norm=layer_norm1 feed_forward=mlp up=mlp.fc1 down=mlp.fc2
        feed_forward_norm=layer_norm2""",
    "wav2vec2": """
        fairseq attention=attention query=attention.q_proj key=attention.k_proj
        value=attention.v_proj output=attention.out_proj attention_norm=layer_norm
        feed_forward=feed_forward up=feed_forward.intermediate_dense
        down=feed_forward.output_dense""",
    "bert": """
        llama attention=attention.self query=attention.self.query key=attention.self.key
        value=attention.self.value output=attention.output.dense
        attention_norm=attention.output.LayerNorm feed_forward=intermediate up=intermediate.dense
        down=output.dense feed_forward_norm=output.LayerNorm""",
    "vit": """
        bert attention=attention.attention query=attention.attention.query
        key=attention.attention.key value=attention.attention.value
        attention_norm=layernorm_before feed_forward_norm=layernorm_after""",
    "distilbert": """
        llama attention=attention query=attention.q_lin key=attention.k_lin value=attention.v_lin
        output=attention.out_lin attention_norm=sa_layer_norm feed_forward=ffn up=ffn.lin1
        down=ffn.lin2 feed_forward_norm=output_layer_norm""",
    "modernbert": """
        llama attention=attn fused_qkv=attn.Wqkv output=attn.Wo attention_norm=attn_norm
        fused_gate_up=mlp.Wi down=mlp.Wo feed_forward_norm=mlp_norm""",
    "t5_encoder": """
        llama attention=layer.0.SelfAttention query=layer.0.SelfAttention.q
        key=layer.0.SelfAttention.k value=layer.0.SelfAttention.v output=layer.0.SelfAttention.o
        attention_norm=layer.0.layer_norm feed_forward=layer.1.DenseReluDense
        gate=layer.1.DenseReluDense.wi_0 up=layer.1.DenseReluDense.wi
        down=layer.1.DenseReluDense.wo feed_forward_norm=layer.1.layer_norm""",
    "t5_decoder": """
        t5_encoder cross_attention=layer.1.EncDecAttention cross_query=layer.1.EncDecAttention.q
        cross_key=layer.1.EncDecAttention.k cross_value=layer.1.EncDecAttention.v
        cross_output=layer.1.EncDecAttention.o cross_norm=layer.1.layer_norm
        feed_forward=layer.2.DenseReluDense gate=layer.2.DenseReluDense.wi_0
        up=layer.2.DenseReluDense.wi down=layer.2.DenseReluDense.wo
        feed_forward_norm=layer.2.layer_norm""",
}
#: Decoder-only models: the same, with the paths around the layers that differ.
_DECODERS = {
    "llama": "llama",
    "mixtral": """
        llama router=block_sparse_moe.gate experts=block_sparse_moe.experts
        feed_forward=block_sparse_moe""",
    "gpt_oss": "llama router=mlp.router",
    "qwen2_moe": "llama shared_expert=mlp.shared_expert",
    "gemma2": "llama feed_forward_norm=pre_feedforward_layernorm",
    "glm4": """
        llama attention_post_norm=post_self_attn_layernorm
        feed_forward_post_norm=post_mlp_layernorm""",
    "llama4": """
        llama feed_forward=feed_forward gate=feed_forward.gate_proj up=feed_forward.up_proj
        down=feed_forward.down_proj router=feed_forward.router experts=feed_forward.experts
        shared_expert=feed_forward.shared_expert""",
    "gpt_neox": """
        llama attention=attention fused_qkv=attention.query_key_value output=attention.dense
        up=mlp.dense_h_to_4h down=mlp.dense_4h_to_h layers=gpt_neox.layers
        embedding=gpt_neox.embed_in final_norm=gpt_neox.final_layer_norm head=embed_out""",
    "phi": "llama output=self_attn.dense up=mlp.fc1 down=mlp.fc2 final_norm=model.final_layernorm",
    "falcon": """
        llama attention=self_attention fused_qkv=self_attention.query_key_value
        output=self_attention.dense up=mlp.dense_h_to_4h down=mlp.dense_4h_to_h
        layers=transformer.h embedding=transformer.word_embeddings final_norm=transformer.ln_f""",
    "gpt2": """
        llama attention=attn fused_qkv=attn.c_attn output=attn.c_proj attention_norm=ln_1
        up=mlp.c_fc down=mlp.c_proj feed_forward_norm=ln_2 layers=transformer.h
        embedding=transformer.wte positions=transformer.wpe final_norm=transformer.ln_f""",
    "opt": """
        fairseq layers=model.decoder.layers embedding=model.decoder.embed_tokens
        positions=model.decoder.embed_positions final_norm=model.decoder.final_layer_norm""",
}
_AROUND = {around.name for around in fields(ModulePaths)}


def _layout(text: str, layers: Mapping[str, LayerNames]) -> ModulePaths:
    """Paths of a layout from those of the one it follows and its own, each as part=path."""
    followed, *changes = text.split()
    paths = dict(change.split("=") for change in changes)
    within = {part: path for part, path in paths.items() if part not in _AROUND}
    around = {part: path for part, path in paths.items() if part in _AROUND}
    return ModulePaths(replace(layers[followed], **within), **around)


#: Layer paths of encoders and encoder-decoders, and those of Llama.
LAYER_NAMES: dict[str, LayerNames] = {"llama": LayerNames()}
for _name, _text in _LAYERS.items():
    LAYER_NAMES[_name] = _layout(_text, LAYER_NAMES).layer

#: Decoder-only layouts.
LAYOUTS: Mapping[str, ModulePaths] = {
    name: _layout(text, LAYER_NAMES) for name, text in _DECODERS.items()
}
