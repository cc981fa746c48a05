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
    sizes = c.counts(
        "vocab_size hidden_size layers=num_hidden_layers heads=num_attention_heads "
        "intermediate_size max_positions=max_position_embeddings:512 type_vocab_size:2"
    )
    return sizes | {"activation": c.activation("hidden_act", "gelu")} | _head(c, "pooler")


def read_roberta(c: CheckpointConfig) -> Parameters:
    """RoBERTa."""
    return read_bert(c) | {
        "max_positions": c.integer("max_position_embeddings", 514, least=3) - 2,
        "position_offset": 2,
    }


def read_distilbert(c: CheckpointConfig) -> Parameters:
    """DistilBERT."""
    sizes = c.counts(
        "vocab_size hidden_size=dim:768 layers=n_layers:6 heads=n_heads:12 "
        "intermediate_size=hidden_dim:3072 max_positions=max_position_embeddings:512"
    )
    own = {
        "layout": "distilbert",
        "activation": c.activation("activation", "gelu"),
        "type_vocab_size": 0,
    }
    return sizes | own | _head(c, "none")


#: Sizes of vision transformer and wav2vec 2.0, with the defaults of their base models.
_BASE_SIZES = (
    "hidden_size:768 layers=num_hidden_layers:12 heads=num_attention_heads:12 "
    "intermediate_size:3072 "
)


def read_vit(c: CheckpointConfig) -> Parameters:
    """Vision transformer."""
    image = "image_size:224 patch_size:16 image_channels=num_channels:3"
    own = {"activation": c.activation("hidden_act", "gelu"), "classes": c.labels()}
    return c.counts(_BASE_SIZES + image) | own


def read_t5(c: CheckpointConfig) -> Parameters:
    """T5 1.0 and 1.1."""
    layers = c.integer("num_layers")
    projection = c.text("feed_forward_proj", "relu")
    gated = projection.startswith("gated-")
    activation = "gelu_new" if projection == "gated-gelu" else projection.removeprefix("gated-")
    named = CheckpointConfig({"feed_forward_proj": activation})
    sizes = c.counts(
        f"vocab_size:32128 hidden_size=d_model encoder_layers=num_layers "
        f"decoder_layers=num_decoder_layers:{layers} heads=num_heads head_dim=d_kv "
        f"intermediate_size=d_ff relative_buckets=relative_attention_num_buckets:32"
    )
    return sizes | {
        "layout": "t5",
        "activation": named.activation("feed_forward_proj", "relu"),
        "gated": gated,
        "norm": "rms_norm",
        "tied_logits": c.flag("tie_word_embeddings", default=True),
    }


def _stacks(c: CheckpointConfig) -> Parameters:
    """Encoder and decoder of BART and Whisper, whose widths must agree."""
    heads, inner = c.integer("encoder_attention_heads"), c.integer("encoder_ffn_dim")
    c.require("decoder_attention_heads", heads, heads)
    c.require("decoder_ffn_dim", inner, inner)
    return c.counts(
        "vocab_size hidden_size=d_model encoder_layers decoder_layers "
        "heads=encoder_attention_heads intermediate_size=encoder_ffn_dim"
    )


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
    return _stacks(c) | c.counts(
        "mel_bins=num_mel_bins:80 source_positions=max_source_positions:1500 "
        "target_positions=max_target_positions:448"
    )


def read_wav2vec2(c: CheckpointConfig) -> Parameters:
    """Wav2vec 2.0."""
    positions = (
        "position_kernel=num_conv_pos_embeddings:128 "
        "position_groups=num_conv_pos_embedding_groups:16"
    )
    return c.counts(_BASE_SIZES + positions) | {
        "activation": c.activation("hidden_act", "gelu"),
        "conv_channels": c.integers("conv_dim", (512,) * 7),
        "conv_kernels": c.integers("conv_kernel", (10, 3, 3, 3, 3, 2, 2)),
        "conv_strides": c.integers("conv_stride", (5, 2, 2, 2, 2, 2, 2)),
        "conv_bias": c.flag("conv_bias"),
        "conv_norm": c.text("feat_extract_norm", "group"),
        "norm_first": c.flag("do_stable_layer_norm"),
        "vocab_size": c.integer("vocab_size", 32) if c.architecture().endswith("ForCTC") else 0,
    }
