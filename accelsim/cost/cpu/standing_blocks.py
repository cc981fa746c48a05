"""What lies in the heap before a pass: weights, inputs, and the blocks that kernels leave behind
when they first run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from accelsim.workloads.dtype import DTYPE_BYTES
from accelsim.workloads.graph import FloatArray, OperatorGraph
from accelsim.workloads.operator import CONV_KINDS, OperatorKind, Phase

__all__ = [
    "CONV_CODES",
    "NOTHING_LEFT",
    "SMALL",
    "TENSOR_BYTES",
    "Left",
    "blocks_left",
    "buffer_bytes",
    "input_blocks",
    "weight_blocks",
]

_K = OperatorKind
CONV_CODES: Final = frozenset(int(kind) for kind in CONV_KINDS)
#: Blocks below this come from holes and hardly move the top.
SMALL: Final = 1024
#: Rows that the math library multiplies one by one, and on one thread; a thread's part is a
#: multiple of the latter.
_SINGLE_ROWS, _SERIAL_ROWS = 3.0, 4.0
#: Small blocks that come with each tensor of a model, traced: itself, as a parameter, its storage
#: and who holds that.
TENSOR_BYTES: Final = 500.0


@dataclass(frozen=True, slots=True)
class Left:
    """Blocks that a row's kernel leaves behind when it first runs, in bytes.

    Attributes:
        before: Taken before the row's own, in this order.
        after: Taken once the block of a slot is, by slot.
        amid: Taken anywhere among the row's own; how many and how large differs.
    """

    before: tuple[float, ...] = ()
    after: Mapping[int, tuple[float, ...]] = field(default_factory=dict)
    amid: tuple[float, ...] = ()


NOTHING_LEFT: Final = Left()
#: In oneDNN's cache, traced: a convolution, then its reorders as it comes to them; a 16-bit
#: product; a recurrent layer.
_REORDER: Final = (5496.0, 3664.0)
_LEFT_BY_CONV: Final = Left(
    (2216.0, 6560.0, 13552.0, 13552.0, 4664.0), {0: _REORDER, 1: _REORDER, 2: (6352.0, 4824.0)}
)
_LEFT_BY_PRODUCT: Final = Left(amid=(258_376.0, 258_376.0, *(3088.0,) * 12))
_LEFT_BY_RECURRENT: Final = Left(amid=(50_368.0, 30_904.0, *(6032.0,) * 12))


def weight_blocks(graph: OperatorGraph) -> list[tuple[float, float]]:
    """Bytes of each parameter and statistic of a model as made, in 32 bits, and as used; a bias has
    a block of its own.
    """
    size = np.where(graph.phase == int(Phase.BACKWARD), 0.0, graph.weight_bytes)
    width = DTYPE_BYTES[graph.dtype]
    part = size.copy()
    for kind, rows in graph.rows_by_kind():
        if kind in {_K.EMBEDDING, _K.EMBEDDING_BAG}:
            cells = graph.dimension("width", rows, kind) * graph.dimension("table_rows", rows, kind)
            size[rows] = part[rows] = cells * width[rows]
        elif kind in _PARTS:
            part[rows] = _PARTS[kind](graph, rows) * width[rows]
    blocks: list[tuple[float, float]] = []
    for row in np.flatnonzero((size > 0) & (graph.phase != int(Phase.OPTIMIZER))).tolist():
        whole, first, wider = float(size[row]), float(part[row]), 4.0 / float(width[row])
        if not 0.0 < first < whole:
            parts = [whole]
        elif graph.kind[row] in _NORM_CODES:
            parts = [first] * round(whole / first)
        else:
            parts = [first, whole - first]
        blocks += [(wider * size, size) for size in parts]
    return blocks


def _product_cells(graph: OperatorGraph, rows: NDArray[np.int64]) -> FloatArray:
    return graph.dimension("n", rows, _K.GEMM) * graph.dimension("k", rows, _K.GEMM)


def _filter_cells(graph: OperatorGraph, rows: NDArray[np.int64]) -> FloatArray:
    cells = 1.0 / np.maximum(graph.dimension("groups", rows, _K.CONV), 1.0)
    for name in ("channels_in", "channels_out", "kernel_d", "kernel_h", "kernel_w"):
        cells = cells * graph.dimension(name, rows, _K.CONV)
    return cells


def _columns(graph: OperatorGraph, rows: NDArray[np.int64]) -> FloatArray:
    return graph.dimension("columns", rows, _K.LAYER_NORM)


#: Elements of the first of a kind's parameters; norms' are all alike.
_NORM_CODES: Final = frozenset(int(kind) for kind in (_K.LAYER_NORM, _K.RMS_NORM, _K.BATCH_NORM))
_PARTS: Final[Mapping[OperatorKind, Callable[[OperatorGraph, NDArray[np.int64]], FloatArray]]] = {
    _K.GEMM: _product_cells,
    **dict.fromkeys((_K.CONV, _K.CONV_TRANSPOSE), _filter_cells),
    **dict.fromkeys((_K.LAYER_NORM, _K.RMS_NORM, _K.BATCH_NORM), _columns),
}


def input_blocks(graph: OperatorGraph) -> list[tuple[float, float]]:
    """Bytes of each input as made, in 32 bits, and as used: what rows without sources read, and
    copies beyond theirs.

    Rows that read as much as one before read the same; copies join each what was kept with what is
    new.
    """
    rows = np.repeat(np.arange(len(graph)), np.diff(graph.dependency_offset))
    given = np.bincount(rows, weights=graph.write_bytes[graph.dependency], minlength=len(graph))
    has_sources, joins = np.diff(graph.dependency_offset) > 0, graph.kind == int(_K.COPY)
    lookups = np.isin(
        graph.kind, [int(kind) for kind in (_K.EMBEDDING, _K.EMBEDDING_BAG, _K.OPTIMIZER)]
    )
    counted = (joins | ~has_sources) & ~lookups & (graph.phase != int(Phase.BACKWARD))
    size = np.where(counted, graph.read_bytes - given, 0.0)
    first = {
        float(size[row]): int(row) for row in np.flatnonzero((size >= SMALL) & ~has_sources)[::-1]
    }
    found = sorted({*first.values(), *np.flatnonzero((size >= SMALL) & has_sources).tolist()})
    return [
        (4.0 / float(DTYPE_BYTES[graph.dtype[row]]) * float(size[row]), float(size[row]))
        for row in found
    ]


def blocks_left(graph: OperatorGraph, names: NDArray[np.str_], threads: int) -> list[Left]:
    """Blocks that each row leaves behind when it first runs: caches of kernels by shape, and the
    products' buffer.
    """
    left = [NOTHING_LEFT] * len(graph)
    wide = DTYPE_BYTES[graph.dtype] == 4
    native = np.char.endswith(names, "_native")
    seen: set[tuple[int, int, bytes]] = set()
    buffers = buffer_bytes(graph, native & wide, threads)
    largest = 0.0
    for row, kind in enumerate(graph.kind.tolist()):
        key = (kind, int(graph.dtype[row]), graph.dims[row].tobytes())
        if buffers[row] > largest:
            largest = buffers[row]
            left[row] = Left(amid=(largest,))
        elif key not in seen:
            if kind in CONV_CODES and not native[row]:
                left[row] = _LEFT_BY_CONV
            elif kind == int(_K.LSTM):
                left[row] = _LEFT_BY_RECURRENT
            elif kind == int(_K.GEMM) and not wide[row]:
                left[row] = _LEFT_BY_PRODUCT
        seen.add(key)
    return left


def buffer_bytes(graph: OperatorGraph, native: NDArray[np.bool_], threads: int = 1) -> list[float]:
    """Bytes of the packing buffer that the math library takes for each fp32 product and keeps, 0
    where it takes none.

    Panels of up to 384 rows of one operand and 6,400 of the other, `k` split evenly into at most
    192 (MKL 2024, traced on forty shapes); of up to three rows nothing is packed. Threads share the
    rows in fours, each with a buffer of its own; those beyond the first have heaps of their own
    (eleven shapes on two threads).
    """
    rows, columns, inner = np.zeros((3, len(graph)))
    for kind, sizes in (
        (_K.GEMM, ("m", "n", "k")),
        (_K.GRU, ("steps", "hidden_size", "input_size")),
    ):
        index = np.flatnonzero((graph.kind == int(kind)) & (DTYPE_BYTES[graph.dtype] == 4))
        rows[index], columns[index], inner[index] = (
            graph.dimension(name, index, kind) for name in sizes
        )
        if kind == _K.GRU:  # all steps' inputs times the weights of three gates
            rows[index] *= graph.dimension("batch", index, kind)
            columns[index] *= 3
    for kind in CONV_KINDS:
        index = np.flatnonzero((graph.kind == int(kind)) & native)
        if len(index):
            size = {
                name: graph.dimension(name, index, kind)
                for name in (
                    "channels_out",
                    "channels_in",
                    "out_h",
                    "out_w",
                    "kernel_h",
                    "kernel_w",
                )
            }
            rows[index], columns[index] = size["channels_out"], size["out_h"] * size["out_w"]
            inner[index] = size["channels_in"] * size["kernel_h"] * size["kernel_w"]
    if threads > 1:
        rows = np.where(
            rows > _SERIAL_ROWS, np.ceil(rows / threads / _SERIAL_ROWS) * _SERIAL_ROWS, rows
        )
    depth = np.maximum(
        128.0, np.ceil(inner / np.maximum(np.ceil(inner / 192.0), 1.0) / 32.0) * 32.0
    )
    packed = 8.0 * np.minimum(rows, 384.0) + 4.0 * np.minimum(
        np.ceil(columns / 16.0) * 16.0, 6400.0
    )
    found: list[float] = np.where(rows > _SINGLE_ROWS, 17056.0 + depth * packed, 0.0).tolist()
    return found
