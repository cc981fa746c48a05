"""The rows of one operator kind, with their dimensions by name."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from accelsim.dtype import DTYPE_BYTES, Dtype
from accelsim.frozen import frozen
from accelsim.workloads.graph import BoolArray, FloatArray, IntArray, OperatorGraph
from accelsim.workloads.operator import DIMENSIONS, OperatorKind, Phase
from accelsim.workloads.variant import Trait


@frozen(eq=False)
class KindRows:
    """Rows of one kind; `rows["m"]` is a dimension, shape (k,).

    Attributes:
        graph: Operators.
        kind: Kind of the rows.
        index: Which rows, shape (k,).
        sizes: Dimensions of the rows, shape (MAX_DIMENSIONS, k).
    """

    graph: OperatorGraph
    kind: OperatorKind
    index: IntArray
    sizes: FloatArray

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, name: str) -> FloatArray:
        size: FloatArray = self.sizes[DIMENSIONS[self.kind].index(name)]
        return size

    @property
    def width(self) -> FloatArray:
        """Bytes of one element, shape (k,)."""
        return DTYPE_BYTES[self.graph.dtype[self.index]]

    @property
    def is_fp32(self) -> BoolArray:
        """Which rows compute in fp32, shape (k,)."""
        single: BoolArray = self.graph.dtype[self.index] == Dtype.FP32
        return single

    @property
    def is_backward(self) -> BoolArray:
        """Which rows are gradients, shape (k,)."""
        backward: BoolArray = self.graph.phase[self.index] == Phase.BACKWARD
        return backward

    @property
    def read_bytes(self) -> FloatArray:
        """Activation bytes read, shape (k,)."""
        return self.graph.read_bytes[self.index]

    @property
    def weight_bytes(self) -> FloatArray:
        """Parameter bytes read, shape (k,)."""
        return self.graph.weight_bytes[self.index]

    def has_trait(self, trait: Trait) -> BoolArray:
        """Which rows have a trait, shape (k,)."""
        return self.graph.has_trait(trait)[self.index]

    def is_operation(self, operations: frozenset[str]) -> BoolArray:
        """Which rows run one of some operators, shape (k,)."""
        return self.graph.is_operation(operations)[self.index]


@lru_cache(maxsize=64)
def rows_of_kind(graph: OperatorGraph, kind: OperatorKind) -> KindRows:
    """All rows of a kind; kept, as a cost model asks often."""
    index = np.flatnonzero(graph.kind == kind)
    return KindRows(graph, kind, index, graph.dims[index].T.astype(np.float64))
