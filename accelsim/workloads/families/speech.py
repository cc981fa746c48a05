"""Speech transformers: Whisper and wav2vec 2.0.

Whisper is Radford et al. 2022 (arXiv:2212.04356), wav2vec 2.0 Baevski et al. 2020
(arXiv:2006.11477). Whisper's encoder positions are 20 ms of log-mel spectrogram, 1,500 for its 30 s
window: `seq_len` and `source_len` count them. Wav2vec 2.0 reads raw audio: its `seq_len` counts
samples, 16,000 per second; its convolutions keep one frame in 320.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import model_validator

from accelsim.errors import InvalidValueError
from accelsim.workloads.builder import GraphBuilder, Tensor
from accelsim.workloads.families.attention_layers import MultiHeadAttention
from accelsim.workloads.families.encoder import StackParameters, encoder_layer
from accelsim.workloads.families.encoder_decoder import encoder_states, target_lengths
from accelsim.workloads.families.feed_forward import FeedForward
from accelsim.workloads.families.module_names import LAYER_NAMES
from accelsim.workloads.families.transformer import (
    LayerStates,
    TransformerLayer,
    new_token_count,
    token_ids,
    transformer_layers,
    with_position_table,
    with_positions,
)
from accelsim.workloads.family_parameters import Count, Counts, Depth, FamilyParameters, Natural
from accelsim.workloads.model import PassShape, family
from accelsim.workloads.operator import Phase


class WhisperParameters(FamilyParameters):
    """Parameters of a Whisper model.

    Attributes:
        mel_bins: Channels of the spectrogram.
        hidden_size: Model width.
        encoder_layers: Layers of the encoder.
        decoder_layers: Layers of the decoder.
        heads: Attention heads.
        intermediate_size: Inner width of the feed-forward.
        vocab_size: Rows of the embedding table, which is the logits matrix too.
        source_positions: Encoder positions of one window.
        target_positions: Rows of the decoder's position table.
    """

    mel_bins: Count = 80
    hidden_size: Count
    encoder_layers: Depth
    decoder_layers: Depth
    heads: Count
    intermediate_size: Count
    vocab_size: Count
    source_positions: Count = 1500
    target_positions: Count = 448


@family("whisper", WhisperParameters, autoregressive=True, sequence=True)
def write_whisper(b: GraphBuilder, p: WhisperParameters, shape: PassShape) -> None:
    """Write a Whisper model; lengths left out are those of one full window."""
    source_len = (
        shape.source_len if b.phase is Phase.DECODE else shape.seq_len
    ) or p.source_positions
    if source_len > p.source_positions:
        raise InvalidValueError(
            "seq_len", source_len, f"1 to {p.source_positions} encoder positions"
        )
    new, cached = target_lengths(b, shape, p.target_positions)
    memory = encoder_states(
        b,
        shape.batch,
        source_len,
        p.hidden_size,
        lambda into, length: _encode_audio(into, p, shape.batch, length),
    )
    with b.scope("model.decoder"):
        ids = token_ids(b, shape.batch, new)
        x = b.embedding(ids, p.vocab_size, p.hidden_size, at="embed_tokens")
        x = with_positions(b, x, p.target_positions, "embed_positions")
        layers = [_whisper_layer(p, decoder=True)] * p.decoder_layers
        x = transformer_layers(b, x, layers, "layers", LayerStates(cached, memory))
        x = b.layer_norm(x, at="layer_norm")
    b.linear(x, p.vocab_size, bias=False, tied=True, at="proj_out")


def _encode_audio(b: GraphBuilder, p: WhisperParameters, batch: int, length: int) -> Tensor:
    """Two convolutions, the second of which halves the frames, then the encoder.

    Radford et al. 2022, arXiv:2212.04356.
    """
    with b.scope("model.encoder"):
        x = b.input(batch, p.mel_bins, 2 * length)
        for name, stride in (("conv1", 1), ("conv2", 2)):
            with b.scope(name):
                x = b.activation(
                    b.conv(x, p.hidden_size, 3, stride=stride, padding=1, bias=True), "gelu"
                )
        x = b.view(x, batch, length, p.hidden_size)
        # A fixed sinusoid, kept as a table.
        x = with_position_table(b, x, p.source_positions, "embed_positions")
        layers = [_whisper_layer(p, decoder=False)] * p.encoder_layers
        x = transformer_layers(b, x, layers, "layers")
        return b.layer_norm(x, at="layer_norm")


def _whisper_layer(p: WhisperParameters, *, decoder: bool) -> TransformerLayer:
    head_dim = p.hidden_size // p.heads
    across = MultiHeadAttention(
        p.heads, p.heads, head_dim, bias=True, output_bias=True, scaled="query"
    )
    return TransformerLayer(
        attention=replace(across, causal=decoder),
        feed_forward=FeedForward(p.intermediate_size, "gelu", bias=True),
        names=LAYER_NAMES["fairseq"],
        cross=across if decoder else None,
    )


class Wav2Vec2Parameters(StackParameters):
    """Parameters of a wav2vec 2.0 model.

    Attributes:
        conv_channels: Channels of each layer of the feature extractor.
        conv_kernels: Their kernels.
        conv_strides: Their strides.
        conv_bias: Whether they have biases.
        conv_norm: "group" after the first alone (base), "layer" after each (large).
        norm_first: Pre-norm transformer layers (large).
        position_kernel: Kernel of the convolution that stands for positions.
        position_groups: Its groups.
        vocab_size: Characters of the CTC head; 0 for none.
    """

    conv_channels: Counts = (512, 512, 512, 512, 512, 512, 512)
    conv_kernels: Counts = (10, 3, 3, 3, 3, 2, 2)
    conv_strides: Counts = (5, 2, 2, 2, 2, 2, 2)
    conv_bias: bool = False
    conv_norm: Literal["group", "layer"] = "group"
    norm_first: bool = False
    position_kernel: Count = 128
    position_groups: Count = 16
    vocab_size: Natural = 0

    @model_validator(mode="after")
    def _one_size_per_layer(self) -> Wav2Vec2Parameters:
        if not len(self.conv_channels) == len(self.conv_kernels) == len(self.conv_strides):
            raise ValueError(
                "conv_channels, conv_kernels and conv_strides need one entry per layer"
            )
        return self


@family("wav2vec2", Wav2Vec2Parameters, sequence=True)
def write_wav2vec2(b: GraphBuilder, p: Wav2Vec2Parameters, shape: PassShape) -> None:
    """Write a wav2vec 2.0 model over (batch, seq_len) audio samples."""
    samples = new_token_count(b, shape)
    with b.scope("wav2vec2"):
        x = _extract_features(b, p, b.input(shape.batch, 1, samples))
        with b.scope("feature_projection"):
            x = b.layer_norm(x, at="layer_norm")
            x = b.linear(x, p.hidden_size, at="projection")
        b.parameters(p.hidden_size)  # embedding of masked frames
        with b.scope("encoder"):
            x = _contextualise(b, p, x)
    if p.vocab_size:
        b.linear(x, p.vocab_size, at="lm_head")


def _extract_features(b: GraphBuilder, p: Wav2Vec2Parameters, x: Tensor) -> Tensor:
    """Raw audio (batch, 1, samples) to frames (batch, frames, channels)."""
    sizes = zip(p.conv_channels, p.conv_kernels, p.conv_strides, strict=True)
    for index, (channels, kernel, stride) in enumerate(sizes):
        with b.scope(f"feature_extractor.conv_layers.{index}"):
            x = b.conv(x, channels, kernel, stride=stride, padding=0, bias=p.conv_bias, at="conv")
            if p.conv_norm == "layer":
                frames = b.view(x, x.shape[0], x.shape[2], channels)
                x = b.view(b.layer_norm(frames, at="layer_norm"), *x.shape)
            elif index == 0:
                x = b.group_norm(x, channels, at="layer_norm")
            x = b.activation(x, "gelu")
    return b.view(x, x.shape[0], x.shape[2], x.shape[1])


def _contextualise(b: GraphBuilder, p: Wav2Vec2Parameters, x: Tensor) -> Tensor:
    batch, frames, width = x.shape
    with b.scope("pos_conv_embed.conv"):
        b.parameters(p.position_kernel)  # magnitudes of the weight norm
        positions = b.conv(
            b.view(x, batch, width, frames),
            width,
            p.position_kernel,
            padding=p.position_kernel // 2,
            groups=p.position_groups,
            bias=True,
        )
        positions = b.activation(b.part(positions, batch, width, frames), "gelu")
    x = b.add(x, b.view(positions, batch, frames, width))
    x = x if p.norm_first else b.layer_norm(x, at="layer_norm")
    attention = replace(p.attention, scaled="query")
    layer = encoder_layer(p, attention, "wav2vec2", norm_first=p.norm_first)
    x = transformer_layers(b, x, [layer] * p.layers, "layers")
    return b.layer_norm(x, at="layer_norm") if p.norm_first else x
