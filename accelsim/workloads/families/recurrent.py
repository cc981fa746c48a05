"""Recurrent models: stacked RNN, LSTM or GRU layers over tokens, a translator with attention, a
speech transducer.

Zaremba et al., arXiv:1409.2329 (language models); Wu et al., arXiv:1609.08144 in NVIDIA's and
MLPerf's form (GNMT: first encoder layer bidirectional, normalised additive attention from the first
decoder layer, its context fed to all others); Graves, arXiv:1211.3711 in MLPerf's form (RNN-T). A
pass is teacher-forced: target lengths are known.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from accelsim.workloads.builder import GraphBuilder, Saved, Tensor
from accelsim.workloads.family_parameters import Count, Depth, FamilyParameters
from accelsim.workloads.model import PassShape, family
from accelsim.workloads.operator import OperatorKind


class RecurrentLayer(FamilyParameters):
    """One layer.

    Attributes:
        cell: "rnn", "lstm" or "gru".
        hidden: State width of each direction.
        bidirectional: Whether a second direction runs backward.
    """

    cell: Literal["rnn", "lstm", "gru"] = "lstm"
    hidden: Count
    bidirectional: bool = False


class RecurrentParameters(FamilyParameters):
    """A stack of recurrent layers over tokens.

    Attributes:
        vocabulary: Rows of the embedding table.
        embedding: Width of an embedded token; left out, tokens enter as one-hot vectors.
        layers: The layers.
        outputs: Width of the linear output layer.
        output_at: "every" step (language model) or the "last" (classifier).
        bias_sets: Bias vectors per gate: 2 as in cuDNN and Keras' GRU, 1 as in Keras' LSTM.
        steps: Sequence length where the run names none.
    """

    vocabulary: Count
    embedding: Count | None = None
    layers: Annotated[tuple[RecurrentLayer, ...], Field(strict=False, min_length=1, max_length=64)]
    outputs: Count
    output_at: Literal["every", "last"]
    bias_sets: Literal[1, 2] = 2
    steps: Count


@family("recurrent", RecurrentParameters, sequence=True)
def write_recurrent(b: GraphBuilder, p: RecurrentParameters, shape: PassShape) -> None:
    """Embedding, layers, linear output."""
    steps = shape.seq_len or p.steps
    if p.embedding is None:
        x = b.input(shape.batch, steps, p.vocabulary)
    else:
        x = b.embedding(b.input(shape.batch, steps), p.vocabulary, p.embedding, at="embedding")
    for index, layer in enumerate(p.layers):
        x = b.recurrent(
            x,
            layer.hidden,
            cell=layer.cell,
            bidirectional=layer.bidirectional,
            bias_sets=p.bias_sets,
            at=f"layers.{index}",
        )
    if p.output_at == "last":
        x = b.part(x, shape.batch, x.shape[-1])
    b.linear(x, p.outputs, at="output")


class TranslatorParameters(FamilyParameters):
    """A recurrent translator with attention; source and target share one embedding table.

    Attributes:
        vocabulary: Tokens.
        hidden: Width of states and embeddings.
        encoder_layers: Encoder layers, the first bidirectional.
        decoder_layers: Decoder layers.
        steps: Source and target length where the run names none.
    """

    vocabulary: Count
    hidden: Count
    encoder_layers: Depth
    decoder_layers: Depth
    steps: Count


@family("recurrent-translator", TranslatorParameters, sequence=True)
def write_translator(b: GraphBuilder, p: TranslatorParameters, shape: PassShape) -> None:
    """Encode the source, decode the target with attention, classify each step."""
    source = shape.seq_len or p.steps
    target = shape.target_len or source
    x = b.embedding(b.input(shape.batch, source), p.vocabulary, p.hidden, at="encoder.embedder")
    with b.scope("encoder.rnn_layers"):
        x = b.recurrent(x, p.hidden, bidirectional=True, at="0")
        for index in range(1, p.encoder_layers):
            y = b.recurrent(x, p.hidden, at=str(index))
            x = b.add(y, x) if index > 1 else y  # residual where the widths agree
    memory = x
    x = b.embedding(
        b.input(shape.batch, target), p.vocabulary, p.hidden, tied=True, at="decoder.embedder"
    )
    with b.scope("decoder"):
        x = b.recurrent(x, p.hidden, at="att_rnn.rnn")
        with b.scope("att_rnn.attn"):
            context = _additive_attention(b, x, memory)
        for index in range(p.decoder_layers - 1):
            with b.scope(f"rnn_layers.{index}"):
                y = b.recurrent(b.concat([x, context], axis=2), p.hidden)
            x = b.add(y, x) if index else y
        b.linear(x, p.vocabulary, at="classifier")


def _additive_attention(b: GraphBuilder, query: Tensor, memory: Tensor) -> Tensor:
    """Scores v . tanh(Wq q + Wk k + bias), normalised v (Bahdanau et al. 2015, Wu et al. 2016)."""
    batch, q_len, width = query.shape
    k_len = memory.shape[1]
    q = b.linear(query, width, bias=False, at="linear_q")
    k = b.linear(memory, width, bias=False, at="linear_k")
    b.parameters(2 * width + 1, 3)  # v, its scale and the bias
    pairs = b.elementwise(
        q,
        k,
        name="tanh",
        flop_per_element=8,
        saves=Saved(output=True),
        shape=(batch, q_len, k_len, width),
    )
    scores = b.operator(
        OperatorKind.GEMM,
        (1, batch * q_len * k_len, 1, width),
        [pairs],
        (batch, q_len, k_len),
        name="scores",
        weights=width,
    )
    return b.matmul(b.softmax(scores), memory, name="context")


class SpeechTransducerParameters(FamilyParameters):
    """A recurrent neural network transducer.

    Attributes:
        features: Width of an acoustic frame.
        encoder_hidden: Width of encoder states.
        layers_before_stacking: Encoder layers on all frames.
        layers_after_stacking: Encoder layers on frames joined in groups.
        stacking: Frames in a group.
        vocabulary: Output symbols, the blank included.
        prediction_hidden: Width of the prediction network.
        prediction_layers: Layers of the prediction network.
        joint_hidden: Width of the joint network.
        frames: Frames where the run names none.
        symbols: Output symbols where the run names none.
    """

    features: Count
    encoder_hidden: Count
    layers_before_stacking: Depth
    layers_after_stacking: Depth
    stacking: Annotated[int, Field(ge=1, le=16)]
    vocabulary: Count
    prediction_hidden: Count
    prediction_layers: Depth
    joint_hidden: Count
    frames: Count
    symbols: Count


@family("speech-transducer", SpeechTransducerParameters, sequence=True)
def write_speech_transducer(
    b: GraphBuilder, p: SpeechTransducerParameters, shape: PassShape
) -> None:
    """Encode frames, predict symbols, join every pair of frame and symbol.

    Graves, arXiv:1211.3711, in MLPerf's form.
    """
    frames = shape.seq_len or p.frames
    symbols = shape.target_len or p.symbols
    x = b.input(shape.batch, frames, p.features)
    x = _stack(b, x, p.encoder_hidden, p.layers_before_stacking, "encoder.pre_rnn")
    groups = frames // p.stacking
    x = b.copy(x, shape=(shape.batch, groups, p.stacking * p.encoder_hidden), name="stack_time")
    x = _stack(b, x, p.encoder_hidden, p.layers_after_stacking, "encoder.post_rnn")
    y = b.embedding(
        b.input(shape.batch, symbols), p.vocabulary - 1, p.prediction_hidden, at="prediction.embed"
    )
    y = _stack(b, y, p.prediction_hidden, p.prediction_layers, "prediction.dec_rnn")
    width = p.encoder_hidden + p.prediction_hidden
    joined = b.copy(x, y, shape=(shape.batch, groups, symbols, width), name="join")
    joined = b.linear(joined, p.joint_hidden, at="joint_net.0")
    joined = b.activation(joined, at="joint_net.1")
    b.linear(joined, p.vocabulary, at="joint_net.3")


def _stack(b: GraphBuilder, x: Tensor, hidden: int, layers: int, name: str) -> Tensor:
    for index in range(layers):
        x = b.recurrent(x, hidden, at=f"{name}.{index}")
    return x
