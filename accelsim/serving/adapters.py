"""Low-rank adapters beside a model's products with weights: y = W x + B (A x), rank r (Hu et al.,
ICLR 2022).

All adapters are in device memory; requests ask for them evenly, so that of n adapters a batch of c
sequences needs n (1 - (1 - 1/n)^c). Each product gets two thin ones beside it, each one kernel that
reads the adapters of the batch once (Chen et al., Punica, MLSys 2024, section 4). A merged product
has an A for each of its parts, all read by one kernel, and each part its rows of B (vLLM,
MergedColumnParallelLinearWithLoRA).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from accelsim.serving.options import Adapters
from accelsim.workloads.builder import MERGED
from accelsim.workloads.graph import BoolArray, FloatArray, OperatorGraph, concatenate
from accelsim.workloads.operator import OperatorKind

_BYTES = 2.0  # bf16


def adapter_rows(
    graph: OperatorGraph, is_layer: BoolArray, adapters: Adapters, sequences: int
) -> OperatorGraph:
    """Rows that adapters add to a pass.

    Hu et al., ICLR 2022; adapters that a batch needs: expected distinct values of even draws
    (Feller, An Introduction to Probability Theory, volume 1, 1968).

    Args:
        graph: Rows of the pass.
        is_layer: Rows of layers, shape (n,).
        adapters: The adapters.
        sequences: Sequences of the batch.
    """
    base = _products(graph, is_layer)
    count = adapters.count
    active = max(1, round(count * (1 - (1 - 1 / count) ** sequences)))
    _, m, n, k = base.dims[:, :4].T.astype(np.float64)
    rank = np.full_like(m, adapters.rank)
    down = _product(base, active, m, rank * _parts(base), k)
    return concatenate([down, _product(base, active, m, n, rank)])


def adapter_bytes(graph: OperatorGraph, is_layer: BoolArray, adapters: Adapters) -> float:
    """Memory of all adapters beside the products of a pass.

    A and B of rank r beside each product: Hu et al., ICLR 2022.
    """
    products = _products(graph, is_layer)
    n, k = products.dims[:, 2:4].T
    elements = (n + k * _parts(products)).sum()
    return float(adapters.count * adapters.rank * elements * _BYTES)


def _products(graph: OperatorGraph, is_layer: BoolArray) -> OperatorGraph:
    """Products with weights that all tokens pass: experts have no adapters."""
    is_product = (graph.kind == int(OperatorKind.GEMM)) & (graph.weight_bytes > 0)
    return graph.take(np.flatnonzero(is_product & is_layer))


def _parts(products: OperatorGraph) -> FloatArray:
    """Products that each row joins, shape (n,)."""
    return np.array([1.0 + name.count(MERGED) for name in products.name])


def _product(
    base: OperatorGraph, groups: int, m: FloatArray, n: FloatArray, k: FloatArray
) -> OperatorGraph:
    """Thin products of so many adapters beside those of a model: 2 m n k FLOP, weights of all of
    them (Chen et al., Punica, MLSys 2024).
    """
    dims = np.zeros_like(base.dims)
    dims[:, :4] = np.stack([np.ones_like(m), m, n, k], axis=1).astype(np.int64)
    return replace(
        base,
        dims=dims,
        flop=2.0 * m * n * k,
        read_bytes=m * k * _BYTES,
        write_bytes=m * n * _BYTES,
        weight_bytes=groups * n * k * _BYTES,
        epilogue_flop=None,
        name=("adapter",) * len(base),
        variant=np.zeros_like(base.variant),
    )
