"""Sentence classifiers without recurrence: parallel windows over word embeddings, or their plain
mean.

Kim, EMNLP 2014 (windows, the maximum of each map over time); Joulin et al., EACL 2017 (fastText,
the mean).
"""

from __future__ import annotations

from accelsim.workloads.builder import GraphBuilder, Tensor
from accelsim.workloads.family_parameters import Count, Counts, FamilyParameters
from accelsim.workloads.model import PassShape, family


class MeanEmbeddingParameters(FamilyParameters):
    """A linear classifier of the mean embedding.

    Attributes:
        vocabulary: Rows of the embedding table (words and n-grams).
        embedding: Width of an embedded token.
        classes: Outputs.
        words: Tokens of a text where the run names none.
    """

    vocabulary: Count
    embedding: Count
    classes: Count
    words: Count


class TextCnnParameters(MeanEmbeddingParameters):
    """A convolutional sentence classifier.

    Attributes:
        windows: Words each kind of filter sees.
        maps: Filters of each window.
    """

    windows: Counts
    maps: Count


def _embedded(b: GraphBuilder, p: MeanEmbeddingParameters, shape: PassShape) -> Tensor:
    ids = b.input(shape.batch, shape.seq_len or p.words)
    return b.embedding(ids, p.vocabulary, p.embedding, at="embedding")


@family("text-cnn", TextCnnParameters, sequence=True)
def write_text_cnn(b: GraphBuilder, p: TextCnnParameters, shape: PassShape) -> None:
    """Embedding, windows side by side, maximum over time, classifier."""
    x = _embedded(b, p, shape)
    batch, length, width = x.shape
    x = b.copy(x, shape=(batch, width, length), name="channels_first")
    pooled = []
    for window in p.windows:
        with b.scope(f"convs.{window}"):
            y = b.activation(b.conv(x, p.maps, window, padding=window - 1, bias=True))
            pooled.append(b.view(b.pool(y, y.shape[2]), batch, p.maps))
    with b.scope("classifier"):
        b.linear(b.concat(pooled), p.classes)


@family("mean-embedding", MeanEmbeddingParameters, sequence=True)
def write_mean_embedding(b: GraphBuilder, p: MeanEmbeddingParameters, shape: PassShape) -> None:
    """Embedding, mean, classifier."""
    x = _embedded(b, p, shape)
    with b.scope("mean"):
        x = b.reduce(x, shape.batch, p.embedding)
    b.linear(x, p.classes, at="classifier")
