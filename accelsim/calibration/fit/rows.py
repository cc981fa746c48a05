"""Measured operator rows a fit may use: cells of one device, operator and data set.

Rows come from the tables of the suite `gpu-operators` and from kernel times of Vidur (Agrawal et
al., MLSys 2024). Shapes that validation keeps for scoring never enter. Rows of whole models never
enter either: they are only ever predicted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from accelsim.calibration.split import held_out_mask
from accelsim.catalog import device as find_device
from accelsim.cost.table import Execution
from accelsim.hardware.profile import GpuProfile
from accelsim.validation.columns import gemm_graph
from accelsim.validation.gpu_operators import KernelPrediction
from accelsim.validation.gpu_operators import load as load_operators
from accelsim.validation.suite import Batch
from accelsim.validation.tables import DataFolder, Schema, Table, number, time_column
from accelsim.workloads.dtype import Dtype
from accelsim.workloads.graph import FloatArray, OperatorGraph

__all__ = ["VIDUR_SCHEMAS", "Cell", "chip_of", "gpu_cells", "limited"]

_VIDUR_COLUMNS = ("attn_pre_proj_ms", "attn_post_proj_ms", "mlp_up_proj_ms", "mlp_down_proj_ms")
VIDUR_SCHEMAS = tuple(
    Schema(
        f"serving/vidur_mlp_{name}.csv",
        (
            *number(
                "num_tokens",
                "num_tensor_parallel_workers",
                "n_embd",
                "n_head",
                "n_kv_head",
                "n_expanded_embd",
            ),
            *time_column(*_VIDUR_COLUMNS, optional=True),
        ),
    )
    for name in ("a100", "a40")
)
_VIDUR_DEVICES = ("a100-sxm-80gb", "a40")


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """Rows of one operator on one device in one data set; n rows.

    Attributes:
        operator: Name in the data: "bmm", "conv-fp32-data".
        source: Table.
        kernels: Operators, one per row, and how they were measured.
        measured_s: Times, shape (n,).
    """

    operator: str
    source: str
    kernels: KernelPrediction
    measured_s: FloatArray

    @property
    def device(self) -> GpuProfile:
        """Profile."""
        return self.kernels.profile

    @property
    def graph(self) -> OperatorGraph:
        """One operator per row."""
        return self.kernels.graph

    @property
    def is_eager(self) -> bool:
        """Whether the times contain the framework's time to issue a call."""
        return self.kernels.execution is Execution.EAGER

    def __len__(self) -> int:
        return len(self.measured_s)

    def take(self, rows: Any) -> Cell:
        """Some of the rows."""
        return replace(self, kernels=self.kernels.take(rows), measured_s=self.measured_s[rows])


def chip_of(device: str) -> str:
    """The chip a board carries, as its catalogue name begins: leaving it out of a fit leaves all
    its boards out.
    """
    for chip in ("a100", "h100", "h200", "v100", "p100"):
        if device.startswith(f"{chip}-"):
            return chip
    return device.partition("@")[0]


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
            yield Cell(operator, batch.fit_source, source, batch.measured_s).take(rows)


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
            f"{column} {a:.0f} {b:.0f} {c:.0f}"
            for a, b, c in zip(table["num_tokens"], n, k, strict=True)
        ]
        rows = rows[~held_out_mask(labels)[rows]]
        ones = np.ones(len(rows))
        graph = gemm_graph(
            ones, table["num_tokens"][rows], n[rows], k[rows], Dtype.FP16, batched=ones < 0
        )
        kernels = KernelPrediction(graph, profile, Execution.GRAPH)
        yield Cell(column.removesuffix("_ms"), source, kernels, table[column][rows] * 1e-3)


def limited(cells: Iterable[Cell], rows: int, generator: np.random.Generator) -> list[Cell]:
    """At most `rows` rows of each cell, drawn without replacement."""
    return [
        cell
        if len(cell) <= rows
        else cell.take(np.sort(generator.choice(len(cell), rows, replace=False)))
        for cell in cells
    ]


def without(cells: Sequence[Cell], chip: str) -> list[Cell]:
    """Cells of other chips."""
    return [cell for cell in cells if chip_of(cell.device.name) != chip]
