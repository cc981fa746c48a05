"""Sentence classifiers without recurrence: parallel windows over word embeddings, or their plain
mean.

Kim, EMNLP 2014 (windows, the maximum of each map over time); Joulin et al., EACL 2017 (fastText,
the mean).
"""

from __future__ import annotations

from accelsim.workloads.builder import GraphBuilder
from accelsim.workloads.family_parameters import Count, Counts, FamilyParameters
from accelsim.workloads.model import PassShape, family


class TextCnnParameters(FamilyParameters):
    """A convolutional sentence classifier.

    Attributes:
        vocabulary: Rows of the embedding table.
        embedding: Width of an embedded word.
        windows: Words each kind of filter sees.
        maps: Filters of each window.
        classes: Outputs.
        words: Sentence length where the run names none.
    """

    vocabulary: Count
    embedding: Count
    windows: Counts
    maps: Count
    classes: Count
    words: Count


@family("text-cnn", TextCnnParameters, sequence=True)
def write_text_cnn(b: GraphBuilder, p: TextCnnParameters, shape: PassShape) -> None:
    """Embedding, windows side by side, maximum over time, classifier."""
    words = shape.seq_len or p.words
    x = b.embedding(b.input(shape.batch, words), p.vocabulary, p.embedding, at="embedding")
    x = b.copy(x, shape=(shape.batch, p.embedding, words), name="channels_first")
    pooled = []
    for window in p.windows:
        with b.scope(f"convs.{window}"):
            y = b.activation(b.conv(x, p.maps, window, padding=window - 1, bias=True))
            pooled.append(b.view(b.pool(y, y.shape[2]), shape.batch, p.maps))
    with b.scope("classifier"):
        b.linear(b.concat(pooled), p.classes)


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


@family("mean-embedding", MeanEmbeddingParameters, sequence=True)
def write_mean_embedding(b: GraphBuilder, p: MeanEmbeddingParameters, shape: PassShape) -> None:
    """Embedding, mean, classifier."""
    words = shape.seq_len or p.words
    x = b.embedding(b.input(shape.batch, words), p.vocabulary, p.embedding, at="embedding")
    with b.scope("mean"):
        x = b.reduce(x, shape.batch, p.embedding)
    b.linear(x, p.classes, at="classifier")
