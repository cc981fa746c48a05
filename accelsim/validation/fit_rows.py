"""Operator rows of the reference tables that fits may use: cells of one device, operator and table.

Rows come from the tables of the suite `gpu-operators` and from kernel times of Vidur (Agrawal et
al., MLSys 2024). Shapes that validation keeps for scoring never enter. Rows of whole models never
enter either: they are only ever predicted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from accelsim.calibration.fit.cells import Cell
from accelsim.catalog import device as find_device
from accelsim.cost.table import Execution
from accelsim.hardware.profile import GpuProfile
from accelsim.validation.columns import gemm_graph
from accelsim.validation.data_folder import DataFolder, Table, schema
from accelsim.validation.gpu_operators import KernelPrediction
from accelsim.validation.gpu_operators import load as load_operators
from accelsim.validation.split import held_out_mask
from accelsim.validation.suite import Batch
from accelsim.workloads.dtype import Dtype

__all__ = ["VIDUR_SCHEMAS", "gpu_cells"]

_VIDUR_COLUMNS = ("attn_pre_proj_ms", "attn_post_proj_ms", "mlp_up_proj_ms", "mlp_down_proj_ms")
_A100_SCHEMA = schema("serving/vidur_mlp_a100.csv")
VIDUR_SCHEMAS = (_A100_SCHEMA, replace(_A100_SCHEMA, file="serving/vidur_mlp_a40.csv"))
_NEUSIGHT = (
    "NeuSight operators (Lee et al., ASPLOS 2025, doi 10.1145/3669940.3707265), four fifths of the"
    " shapes"
)
_VIDUR = "Vidur (Agrawal et al., MLSys 2024), four fifths of the shapes"
#: What the tables hold, in words.
_SOURCES: Final[Mapping[str, str]] = {
    "gpu_kernels/ops_gemm.csv.gz": _NEUSIGHT,
    "gpu_kernels/ops_vec.csv.gz": _NEUSIGHT,
    "gpu_kernels/ops_conv.csv.gz": _NEUSIGHT,
    "gpu_kernels/deepbench_train.csv.gz": "DeepBench (Baidu Research, 2016-2018), half of the"
    " shapes",
    "serving/vidur_mlp_a100.csv": _VIDUR,
    "serving/vidur_mlp_a40.csv": _VIDUR,
}
_VIDUR_DEVICES = ("a100-sxm-80gb", "a40")


def gpu_cells(folder: DataFolder, progress: Callable[[str], None] | None = None) -> list[Cell]:
    """All rows of a data folder that fits may use.

    Args:
        folder: Tables with the schemas of validation.
        progress: Called with a line of text before each table.
    """
    say = progress or (lambda _line: None)
    say("reading operator tables")
    cells = [cell for batch in load_operators(folder) for cell in _cells(batch)]
    for schema, name in zip(VIDUR_SCHEMAS, _VIDUR_DEVICES, strict=True):
        if folder.has(schema) and (table := folder.table(schema)) is not None:
            cells += _vidur_cells(table, schema.file, name)
    return cells


def _cells(batch: Batch) -> Iterator[Cell]:
    if not isinstance(batch.predict, KernelPrediction):
        return
    use = ~held_out_mask(batch.label.tolist(), batch.held_out_share)
    source = batch.predict
    for operator in np.unique(batch.group).tolist():
        rows = np.flatnonzero(use & (batch.group == operator))
        if rows.size:
            words = _SOURCES.get(batch.fit_source, batch.fit_source)
            yield Cell(operator, words, source, batch.measured_s).take(rows)


def _vidur_cells(table: Table, source: str, device: str) -> Iterator[Cell]:
    """The four products of a decoder layer in FP16, sharded by tensor-parallel workers."""
    profile = find_device(device)
    if not isinstance(profile, GpuProfile):
        return
    workers, width = table["num_tensor_parallel_workers"], table["n_embd"]
    head = width // np.maximum(table["n_head"], 1)
    query, keys = width // workers, np.maximum(table["n_kv_head"] // workers, 1) * head
    inner = table["n_expanded_embd"] // workers
    shapes = ((query + 2 * keys, width), (width, query), (inner, width), (width, inner))
    for column, (n, k) in zip(_VIDUR_COLUMNS, shapes, strict=True):
        if column == "mlp_up_proj_ms":
            continue  # gated or not is not stated row by row in every file
        rows = np.flatnonzero(np.isfinite(table[column]))
        labels = [
            f"{column} {tokens:.0f} {columns:.0f} {contraction:.0f}"
            for tokens, columns, contraction in zip(table["num_tokens"], n, k, strict=True)
        ]
        rows = rows[~held_out_mask(labels)[rows]]
        ones = np.ones(len(rows))
        graph = gemm_graph(
            ones, table["num_tokens"][rows], n[rows], k[rows], Dtype.FP16, batched=ones < 0
        )
        kernels = KernelPrediction(graph, profile, Execution.GRAPH)
        measured_s = table[column][rows] * 1e-3
        words = _SOURCES.get(source, source)
        yield Cell(column.removesuffix("_ms"), words, kernels, measured_s)
