"""How configurations of encoders, encoder-decoders and speech models map to family parameters, one
reader per type.
"""

from __future__ import annotations

from accelsim.workloads.checkpoints.config import CheckpointConfig, Parameters

__all__ = [
    "read_bart",
    "read_bert",
    "read_distilbert",
    "read_roberta",
    "read_t5",
    "read_vit",
    "read_wav2vec2",
    "read_whisper",
]

#: End of an architecture's class name, and the head it puts on the encoder.
_HEADS = {
    "ForMaskedLM": "masked_lm",
    "ForPreTraining": "pretraining",
    "ForSequenceClassification": "classification",
    "ForTokenClassification": "token_classification",
    "ForQuestionAnswering": "token_classification",
}


def _head(c: CheckpointConfig, otherwise: str) -> Parameters:
    architecture = c.architecture()
    head = next(
        (head for suffix, head in _HEADS.items() if architecture.endswith(suffix)), otherwise
    )
    return {"head": head, "labels": c.labels()}


def read_bert(c: CheckpointConfig) -> Parameters:
    """BERT."""
    return {
        "vocab_size": c.integer("vocab_size"),
        "hidden_size": c.integer("hidden_size"),
        "layers": c.integer("num_hidden_layers"),
        "heads": c.integer("num_attention_heads"),
        "intermediate_size": c.integer("intermediate_size"),
        "activation": c.activation("hidden_act", "gelu"),
        "max_positions": c.integer("max_position_embeddings", 512),
        "type_vocab_size": c.integer("type_vocab_size", 2),
    } | _head(c, "pooler")


def read_roberta(c: CheckpointConfig) -> Parameters:
    """RoBERTa."""
    return read_bert(c) | {
        "max_positions": c.integer("max_position_embeddings", 514, least=3) - 2,
        "position_offset": 2,
    }


def read_distilbert(c: CheckpointConfig) -> Parameters:
    """DistilBERT."""
    return {
        "layout": "distilbert",
        "vocab_size": c.integer("vocab_size"),
        "hidden_size": c.integer("dim", 768),
        "layers": c.integer("n_layers", 6),
        "heads": c.integer("n_heads", 12),
        "intermediate_size": c.integer("hidden_dim", 3072),
        "activation": c.activation("activation", "gelu"),
        "max_positions": c.integer("max_position_embeddings", 512),
        "type_vocab_size": 0,
    } | _head(c, "none")


def read_vit(c: CheckpointConfig) -> Parameters:
    """Vision transformer."""
    return {
        "hidden_size": c.integer("hidden_size", 768),
        "layers": c.integer("num_hidden_layers", 12),
        "heads": c.integer("num_attention_heads", 12),
        "intermediate_size": c.integer("intermediate_size", 3072),
        "activation": c.activation("hidden_act", "gelu"),
        "image_size": c.integer("image_size", 224),
        "patch_size": c.integer("patch_size", 16),
        "image_channels": c.integer("num_channels", 3),
        "classes": c.labels(),
    }


def read_t5(c: CheckpointConfig) -> Parameters:
    """T5 1.0 and 1.1."""
    layers = c.integer("num_layers")
    projection = c.text("feed_forward_proj", "relu")
    gated = projection.startswith("gated-")
    activation = "gelu_new" if projection == "gated-gelu" else projection.removeprefix("gated-")
    return {
        "layout": "t5",
        "vocab_size": c.integer("vocab_size", 32128),
        "hidden_size": c.integer("d_model"),
        "encoder_layers": layers,
        "decoder_layers": c.integer("num_decoder_layers", layers),
        "heads": c.integer("num_heads"),
        "head_dim": c.integer("d_kv"),
        "intermediate_size": c.integer("d_ff"),
        "activation": CheckpointConfig({"feed_forward_proj": activation}).activation(
            "feed_forward_proj", "relu"
        ),
        "gated": gated,
        "norm": "rms_norm",
        "relative_buckets": c.integer("relative_attention_num_buckets", 32),
        "tied_logits": c.flag("tie_word_embeddings", default=True),
    }


def _stacks(c: CheckpointConfig) -> Parameters:
    """Encoder and decoder of BART and Whisper, whose widths must agree."""
    heads, inner = c.integer("encoder_attention_heads"), c.integer("encoder_ffn_dim")
    c.require("decoder_attention_heads", heads, heads)
    c.require("decoder_ffn_dim", inner, inner)
    return {
        "vocab_size": c.integer("vocab_size"),
        "hidden_size": c.integer("d_model"),
        "encoder_layers": c.integer("encoder_layers"),
        "decoder_layers": c.integer("decoder_layers"),
        "heads": heads,
        "intermediate_size": inner,
    }


def read_bart(c: CheckpointConfig) -> Parameters:
    """BART."""
    c.require("normalize_before", expected=False, default=False)
    return _stacks(c) | {
        "layout": "fairseq",
        "activation": c.activation("activation_function", "gelu"),
        "norm_first": False,
        "attention_bias": True,
        "feed_forward_bias": True,
        "positions": "learned",
        "max_positions": c.integer("max_position_embeddings", 1024),
        "position_offset": 2,
        "embedding_norm": True,
        "tied_logits": c.flag("tie_word_embeddings", default=True),
    }


def read_whisper(c: CheckpointConfig) -> Parameters:
    """Whisper."""
    c.require("activation_function", "gelu", "gelu")
    return _stacks(c) | {
        "mel_bins": c.integer("num_mel_bins", 80),
        "source_positions": c.integer("max_source_positions", 1500),
        "target_positions": c.integer("max_target_positions", 448),
    }


def read_wav2vec2(c: CheckpointConfig) -> Parameters:
    """Wav2vec 2.0."""
    return {
        "hidden_size": c.integer("hidden_size", 768),
        "layers": c.integer("num_hidden_layers", 12),
        "heads": c.integer("num_attention_heads", 12),
        "intermediate_size": c.integer("intermediate_size", 3072),
        "activation": c.activation("hidden_act", "gelu"),
        "conv_channels": c.integers("conv_dim", (512,) * 7),
        "conv_kernels": c.integers("conv_kernel", (10, 3, 3, 3, 3, 2, 2)),
        "conv_strides": c.integers("conv_stride", (5, 2, 2, 2, 2, 2, 2)),
        "conv_bias": c.flag("conv_bias", default=False),
        "conv_norm": c.text("feat_extract_norm", "group"),
        "norm_first": c.flag("do_stable_layer_norm", default=False),
        "position_kernel": c.integer("num_conv_pos_embeddings", 128),
        "position_groups": c.integer("num_conv_pos_embedding_groups", 16),
        "vocab_size": c.integer("vocab_size", 32) if c.architecture().endswith("ForCTC") else 0,
    }
