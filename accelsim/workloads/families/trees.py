"""Gradient-boosted decision trees over histograms.

Chen and Guestrin, KDD 2016; Ke et al., NeurIPS 2017. One pass predicts `batch` rows with the whole
ensemble. Trees are complete binary trees of the given depth; the trainable values are their leaves.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from accelsim.workloads.builder import GraphBuilder
from accelsim.workloads.family_parameters import Count, FamilyParameters
from accelsim.workloads.model import PassShape, family


class BoostedTreesParameters(FamilyParameters):
    """An ensemble of boosted trees.

    Attributes:
        features: Columns of a sample.
        trees: Trees in the ensemble.
        depth: Decisions from root to leaf.
    """

    features: Count
    trees: Count
    depth: Annotated[int, Field(ge=1, le=30)]


@family("boosted-trees", BoostedTreesParameters)
def write_boosted_trees(b: GraphBuilder, p: BoostedTreesParameters, shape: PassShape) -> None:
    """Predict with the ensemble."""
    b.parameters(p.trees * 2**p.depth, p.trees)
    b.trees(b.input(shape.batch, p.features), p.trees, p.depth)
