"""Measured kernels as a fit takes them: cells of one operator on one device from one source.

A cell knows how its kernels were timed, so that what a timer read is predicted, not the kernel
alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Self, TypeAlias

import numpy as np

from accelsim.cost.gpu import GpuParameters, cost_gpu
from accelsim.cost.gpu.generation import generation_of
from accelsim.cost.table import CostTable, Execution
from accelsim.files.datafile import data_root, read_mapping
from accelsim.frozen import frozen
from accelsim.hardware.profile import GpuProfile
from accelsim.workloads.graph import BoolArray, FloatArray, IntArray, OperatorGraph
from accelsim.workloads.operator import OperatorKind

#: Some rows of a cell: a slice, indices or a mask.
Rows: TypeAlias = slice | IntArray | BoolArray


def unchained(graph: OperatorGraph, rows: Rows) -> OperatorGraph:
    """Some rows of a graph, without dependencies: measurements apart from each other."""
    chosen = graph.take(np.arange(len(graph))[rows])
    return replace(
        chosen,
        dependency_offset=np.zeros(len(chosen) + 1, dtype=np.int64),
        dependency=np.zeros(0, dtype=np.int64),
    )


@frozen(eq=False)
class TimedKernels:
    """Kernels, each on its own: the time to issue it and the time it runs.

    Attributes:
        graph: One operator per row.
        profile: The device.
        execution: How the measurement issued its calls: eager ones are timed alone, replayed ones
            in long loops.
    """

    graph: OperatorGraph
    profile: GpuProfile
    execution: Execution

    def take(self, rows: Rows) -> Self:
        """Some of the rows."""
        return replace(self, graph=unchained(self.graph, rows))

    def call_s(
        self, costs: CostTable, parameters: GpuParameters, issue_s: float | None = None
    ) -> FloatArray:
        """What a timer around each call reads, shape (n,).

        Of an eager call the host's time and as much of the kernel as is left when the host, back
        from the call, records the closing event.

        Args:
            costs: Of the rows.
            parameters: Used for them.
            issue_s: Time to issue a row; that of `costs` where None.
        """
        issued = costs.dispatch_s if issue_s is None else np.full(len(costs.time_s), issue_s)
        hidden = np.minimum(self.trailing_s(parameters), issued)
        return issued + np.maximum(costs.time_s - hidden, 0.0)

    def trailing_s(self, parameters: GpuParameters) -> float:
        """Time from a kernel's launch to the closing event that the timer reads: none where HIP
        records the events.
        """
        is_timed = self.execution is Execution.EAGER and generation_of(self.profile).is_reference
        return parameters.dispatch.trailing_s if is_timed else 0.0

    def costs(self, parameters: GpuParameters) -> CostTable:
        """Cost every row as sustained work."""
        return cost_gpu(self.graph, self.profile, self.execution, parameters)


@frozen(eq=False)
class OperatorRows:
    """Rows of one operator on one device in one data set; n rows.

    Attributes:
        operator: Name in the data: "bmm", "conv-fp32-data".
        source: What was measured, in words.
        kernels: Operators, one per row, and how they were measured.
        measured_s: Times, shape (n,).
    """

    operator: str
    source: str
    kernels: TimedKernels
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
    def kind(self) -> OperatorKind:
        """Kind of its rows, which is that of the first."""
        return OperatorKind(int(self.graph.kind[0]))

    @property
    def is_eager(self) -> bool:
        """Whether the times contain the framework's time to issue a call."""
        return self.kernels.execution is Execution.EAGER

    def __len__(self) -> int:
        return len(self.measured_s)

    def take(self, rows: Rows) -> OperatorRows:
        """Some of the rows."""
        return replace(self, kernels=self.kernels.take(rows), measured_s=self.measured_s[rows])


def chip_of(device: str) -> str:
    """The chip a board carries: leaving it out of a fit leaves all its boards out.

    ``calibration/class/gpu-boards.yaml`` has the chips that several boards carry; the names of
    these boards begin with the chip's.

    Args:
        device: Catalogue name, with or without a slice.
    """
    base = device.partition("@")[0]
    return next((chip for chip in _shared_chips() if base.startswith(f"{chip}-")), base)


@cache
def _shared_chips() -> tuple[str, ...]:
    path = data_root() / "calibration" / "class" / "gpu-boards.yaml"
    return tuple(read_mapping(path)["shared_chips"])


def limited(
    cells: Iterable[OperatorRows], rows: int, generator: np.random.Generator
) -> list[OperatorRows]:
    """At most `rows` rows of each cell, drawn without replacement."""
    return [
        cell
        if len(cell) <= rows
        else cell.take(np.sort(generator.choice(len(cell), rows, replace=False)))
        for cell in cells
    ]
