"""Recommenders: embedding tables, dense layers, and the interaction of their outputs.

Naumov et al., arXiv:1906.00091 (DLRM, pairwise dot products); Wang et al., WWW 2021 (cross layers
of low rank); He et al., WWW 2017 (neural collaborative filtering). One sample is one pair of user
and item.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, model_validator

from accelsim.workloads.builder import GraphBuilder, Tensor
from accelsim.workloads.family_parameters import Count, Counts, FamilyParameters, Rows
from accelsim.workloads.model import PassShape, family


class DlrmParameters(FamilyParameters):
    """A deep learning recommendation model.

    Attributes:
        dense_features: Numbers per sample.
        table_rows: Rows of each embedding table.
        embedding: Width of an embedding.
        lookups_per_table: Rows summed per sample: one entry for all tables, or one for each.
        bottom_mlp: Layers from the dense features to an embedding's width.
        top_mlp: Layers from the interactions to the prediction.
        cross_layers: Cross layers over all vectors joined, instead of pairwise products; 0 has
            none.
        cross_rank: Rank of their matrices.
    """

    dense_features: Count
    table_rows: Annotated[tuple[Rows, ...], Field(strict=False, min_length=1, max_length=4096)]
    embedding: Count
    lookups_per_table: Counts = (1,)
    bottom_mlp: Counts
    top_mlp: Counts
    cross_layers: Annotated[int, Field(ge=0, le=64)] = 0
    cross_rank: Count = 512

    @model_validator(mode="after")
    def _one_count_or_one_each(self) -> DlrmParameters:
        if len(self.lookups_per_table) not in {1, len(self.table_rows)}:
            raise ValueError("lookups_per_table needs one entry, or one per table")
        return self


@family("dlrm", DlrmParameters)
def write_dlrm(b: GraphBuilder, p: DlrmParameters, shape: PassShape) -> None:
    """Bottom layers, embeddings, pairwise dot products, top layers."""
    batch = shape.batch
    dense = _mlp(b, b.input(batch, p.dense_features), p.bottom_mlp, "bot_l", last="relu")
    vectors = [dense]
    lookups = p.lookups_per_table * (len(p.table_rows) // len(p.lookups_per_table))
    for table, (rows, pooling) in enumerate(zip(p.table_rows, lookups, strict=True)):
        with b.scope(f"emb_l.{table}"):
            vectors.append(b.embedding_bag(batch, pooling, rows, p.embedding))
    with b.scope("interact"):
        x = (
            _crossed(b, vectors, p)
            if p.cross_layers
            else b.concat([dense, _pairwise_products(b, vectors)])
        )
    _mlp(b, x, p.top_mlp, "top_l", last="sigmoid")


def _pairwise_products(b: GraphBuilder, vectors: Sequence[Tensor]) -> Tensor:
    """Dot product of every pair: a batched product of the stacked vectors with themselves, its
    lower triangle kept.

    Naumov et al., arXiv:1906.00091.
    """
    batch, width = vectors[0].shape
    count = len(vectors)
    stacked = b.copy(*vectors, shape=(batch, count, width), name="stack")
    products = b.matmul(stacked, b.view(stacked, batch, width, count), name="pairwise")
    pairs = count * (count - 1) // 2
    return b.copy(b.part(products, batch, pairs), shape=(batch, pairs), name="lower_triangle")


def _crossed(b: GraphBuilder, vectors: Sequence[Tensor], p: DlrmParameters) -> Tensor:
    """x0 * (W V x + bias) + x, layer by layer, over all vectors joined."""
    start = b.concat(vectors)
    x = start
    for layer in range(p.cross_layers):
        with b.scope(f"cross.{layer}"):
            y = b.linear(x, p.cross_rank, bias=False, name="V")
            y = b.linear(y, start.shape[1], name="W")
            x = b.add(b.multiply(start, y), x)
    return x


def _mlp(
    b: GraphBuilder, x: Tensor, widths: Sequence[int], name: str, *, last: str | None
) -> Tensor:
    """Linear layers with ReLU between; `last` follows the final one.

    Naumov et al., arXiv:1906.00091.
    """
    for index, width in enumerate(widths):
        x = b.linear(x, width, at=f"{name}.{2 * index}")
        activation = "relu" if index + 1 < len(widths) else last
        if activation:
            x = b.activation(x, activation, at=f"{name}.{2 * index + 1}")
    return x


class CollaborativeFilteringParameters(FamilyParameters):
    """Neural collaborative filtering (NeuMF).

    Attributes:
        users: Rows of the user tables.
        items: Rows of the item tables.
        factors: Width of the matrix-factorisation embeddings.
        mlp: Widths of the dense part, its input (two embeddings joined) first.
    """

    users: Rows
    items: Rows
    factors: Count
    mlp: Counts


@family("collaborative-filtering", CollaborativeFilteringParameters)
def write_collaborative_filtering(
    b: GraphBuilder, p: CollaborativeFilteringParameters, shape: PassShape
) -> None:
    """Two pairs of embeddings: one multiplied, one through dense layers; both decide."""
    user = b.input(shape.batch)
    item = b.input(shape.batch)
    factors = b.multiply(
        b.embedding(user, p.users, p.factors, at="mf_user_embed"),
        b.embedding(item, p.items, p.factors, at="mf_item_embed"),
    )
    half = p.mlp[0] // 2
    x = b.concat(
        [
            b.embedding(user, p.users, half, at="mlp_user_embed"),
            b.embedding(item, p.items, half, at="mlp_item_embed"),
        ]
    )
    x = _mlp(b, x, p.mlp[1:], "mlp", last="relu")
    with b.scope("final"):
        b.linear(b.concat([factors, x]), 1)
