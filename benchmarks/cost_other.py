"""Rows per second of the CPU, systolic, FPGA and roofline cost models, one core.

Run: python benchmarks/cost_other.py [rows]. Prints GEMM rows and elementwise rows costed per second
on one device of each class; the project asks for 1 million and 5 million.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from accelsim import catalog
from accelsim.cost.registry import operator_costs
from accelsim.dtype import Dtype
from accelsim.workloads.graph import OperatorGraph
from accelsim.workloads.operator import MAX_DIMENSIONS, OperatorKind

DEVICES = (
    ("xeon-platinum-8480+", Dtype.BF16),
    ("epyc-7763", Dtype.FP32),
    ("tpu-v1", Dtype.INT8),
    ("tpu-v4", Dtype.BF16),
    ("zcu102", Dtype.INT8),
)


def gemms(count: int, dtype: Dtype) -> OperatorGraph:
    """Random GEMM rows, sides 1 to 4096."""
    random = np.random.default_rng(0)
    sides = random.integers(1, 4096, (count, 3))
    dims = np.zeros((count, MAX_DIMENSIONS), dtype=np.int64)
    dims[:, 0], dims[:, 1:4] = 1, sides
    m, n, k = sides.T.astype(np.float64)
    width = dtype.bytes
    return _graph(
        OperatorKind.GEMM, dims, dtype, 2 * m * n * k, (m * k * width, m * n * width, n * k * width)
    )


def additions(count: int, dtype: Dtype) -> OperatorGraph:
    """Random two-input elementwise rows, up to a million elements."""
    elements = np.random.default_rng(0).integers(1, 1_000_000, count)
    dims = np.zeros((count, MAX_DIMENSIONS), dtype=np.int64)
    dims[:, 0], dims[:, 1], dims[:, 2] = elements, 2, 1
    size = elements * dtype.bytes
    return _graph(
        OperatorKind.ELEMENTWISE, dims, dtype, elements.astype(float), (2 * size, size, 0 * size)
    )


def _graph(kind, dims, dtype, flop, moved) -> OperatorGraph:
    count = len(dims)
    names = ("",) * count
    offset = np.maximum(np.arange(count + 1) - 1, 0)
    return OperatorGraph(
        kind=np.full(count, int(kind), dtype=np.int16),
        dims=dims,
        dtype=np.full(count, int(dtype), dtype=np.int8),
        phase=np.zeros(count, dtype=np.int8),
        flop=flop,
        read_bytes=moved[0],
        write_bytes=moved[1],
        weight_bytes=moved[2],
        saved_bytes=np.zeros(count),
        name=names,
        path=names,
        dependency_offset=offset,
        dependency=np.arange(count - 1),
    )


def rate(model, graph, device) -> float:
    """Best rows per second of three."""
    best = np.inf
    for _ in range(3):
        start = time.perf_counter()
        model(graph, device)
        best = min(best, time.perf_counter() - start)
    return len(graph) / best


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    for name, dtype in DEVICES:
        device = catalog.device(name)
        products, sums = gemms(count, dtype), additions(count, dtype)
        matrix = rate(operator_costs, products, device) / 1e6
        vector = rate(operator_costs, sums, device) / 1e6
        print(f"{name:22s} {matrix:6.2f} M GEMM rows/s {vector:6.2f} M elementwise rows/s")


if __name__ == "__main__":
    main()
