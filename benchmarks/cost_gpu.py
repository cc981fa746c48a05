"""Rows per second of the GPU cost model on one core, by thread CPU time.

    OMP_NUM_THREADS=1 python benchmarks/cost_gpu.py

Targets: at least 1 million GEMM rows and 5 million memory-bound rows per second. Shapes are random;
GEMMs of 16 to 8192 a side, so that many rows try split contractions and some boards reach their
power limit.
"""

from __future__ import annotations

import time

import numpy as np

from accelsim import catalog
from accelsim.cost.gpu import cost_gpu
from accelsim.cost.table import Execution
from accelsim.dtype import DTYPE_BYTES, Dtype
from accelsim.hardware.profile import GpuProfile
from accelsim.workloads.graph import OperatorGraph
from accelsim.workloads.operator import DIMENSIONS, MAX_DIMENSIONS, OperatorKind

ROWS = 200_000
TARGETS = {"gemm": 1e6, "elementwise": 5e6, "layer_norm": 5e6}


def graph(kind: OperatorKind, dtype: Dtype, rng: np.random.Generator) -> OperatorGraph:
    width = len(DIMENSIONS[kind])
    dims = np.zeros((ROWS, MAX_DIMENSIONS), dtype=np.int64)
    dims[:, :width] = np.exp(rng.uniform(np.log(16), np.log(8192), (ROWS, width))).astype(np.int64)
    if kind is OperatorKind.GEMM:
        dims[:, 0] = 1
    _, m, n, k = (dims[:, i].astype(np.float64) for i in range(4))
    gemm = kind is OperatorKind.GEMM
    moved = m * k + k * n + m * n if gemm else 2.0 * dims[:, 0] * np.maximum(dims[:, 1], 1)
    zeros = np.zeros(ROWS)
    names = ("",) * ROWS
    return OperatorGraph(
        kind=np.full(ROWS, int(kind), dtype=np.int16),
        dims=dims,
        dtype=np.full(ROWS, int(dtype), dtype=np.int8),
        phase=np.zeros(ROWS, dtype=np.int8),
        flop=2 * m * n * k if gemm else 4.0 * dims[:, 0],
        read_bytes=moved * float(DTYPE_BYTES[dtype]),
        write_bytes=zeros,
        weight_bytes=zeros,
        saved_bytes=zeros,
        name=names,
        path=names,
        dependency_offset=np.zeros(ROWS + 1, dtype=np.int64),
        dependency=np.zeros(0, dtype=np.int64),
    )


def rows_per_second(rows: OperatorGraph, device: GpuProfile) -> float:
    """Best of five, after one warm-up."""
    best = np.inf
    for attempt in range(6):
        start = time.thread_time()
        cost_gpu(rows, device, Execution.EAGER)
        if attempt:
            best = min(best, time.thread_time() - start)
    return len(rows) / best


def main() -> None:
    rng = np.random.default_rng(0)
    for kind in (OperatorKind.GEMM, OperatorKind.ELEMENTWISE, OperatorKind.LAYER_NORM):
        for dtype in (Dtype.FP32, Dtype.FP16):
            rows = graph(kind, dtype, rng)
            for name in ("t4", "h100-sxm-80gb"):
                device = catalog.device(name)
                assert isinstance(device, GpuProfile)
                rate = rows_per_second(rows, device)
                verdict = "ok" if rate >= TARGETS[kind.label] else "BELOW TARGET"
                print(
                    f"{kind.label:12s} {dtype.label} {name:15s} "
                    f"{rate / 1e6:7.2f} million rows/s  {verdict}"
                )


if __name__ == "__main__":
    main()
