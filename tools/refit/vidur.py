"""Rows that fits may use of Vidur's kernel times (Agrawal et al., MLSys 2024): products of decoder
layers on two devices.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from accelsim.calibration.fit.cells import OperatorRows
from accelsim.cost.table import Execution
from accelsim.dtype import Dtype
from accelsim.scoreboard.data_folder import DataFolder, Table, schema_of
from accelsim.scoreboard.names import gpu_of
from accelsim.scoreboard.split import held_out_mask
from tools.scoreboard.gpu_operators import KernelPrediction
from tools.scoreboard.operator_columns import gemm_graph

_WORDS = "Vidur (Agrawal et al., MLSys 2024), four fifths of the shapes"
_COLUMNS = ("attn_pre_proj_ms", "attn_post_proj_ms", "mlp_up_proj_ms", "mlp_down_proj_ms")
_SIZES = (
    *("num_tokens", "num_tensor_parallel_workers", "n_embd"),
    *("n_head", "n_kv_head", "n_expanded_embd"),
)
_FILES = {"serving/vidur_mlp_a100.csv": "a100-sxm-80gb", "serving/vidur_mlp_a40.csv": "a40"}


def vidur_cells(folder: DataFolder) -> list[OperatorRows]:
    """Rows of the tables that a folder has."""
    cells: list[OperatorRows] = []
    for file, device in _FILES.items():
        table = folder.table(schema_of(file, {"number": _SIZES, "time or empty": _COLUMNS}))
        if table is not None:
            cells += _cells(table, device)
    return cells


def _cells(table: Table, device: str) -> Iterator[OperatorRows]:
    """The four products of a decoder layer in FP16, sharded by tensor-parallel workers."""
    workers, width = table["num_tensor_parallel_workers"], table["n_embd"]
    head = width // np.maximum(table["n_head"], 1)
    query, keys = width // workers, np.maximum(table["n_kv_head"] // workers, 1) * head
    inner = table["n_expanded_embd"] // workers
    shapes = ((query + 2 * keys, width), (width, query), (inner, width), (width, inner))
    for column, (n, k) in zip(_COLUMNS, shapes, strict=True):
        if column == "mlp_up_proj_ms":
            continue  # gated or not is not stated row by row in every file
        labels = [
            f"{column} {tokens:.0f} {columns:.0f} {contraction:.0f}"
            for tokens, columns, contraction in zip(table["num_tokens"], n, k, strict=True)
        ]
        rows = np.flatnonzero(np.isfinite(table[column]) & ~held_out_mask(labels))
        ones, tokens = np.ones(len(rows)), table["num_tokens"][rows]
        graph = gemm_graph(ones, tokens, n[rows], k[rows], Dtype.FP16, batched=ones < 0)
        kernels = KernelPrediction(graph, gpu_of(device), Execution.GRAPH)
        yield OperatorRows(column.removesuffix("_ms"), _WORDS, kernels, table[column][rows] * 1e-3)
