"""Measured kernels sorted by the surface that corrects them.

A row of a kernel table is one operator, or several whose times add up; those of a kind that has a
surface are corrected, what lies beside them is not. Rows kept from every fit come along without
their times: a table is completed at the sizes it has, measured or not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from accelsim.cost.gpu import cost_gpu
from accelsim.cost.gpu.gpu_parameters import GpuParameters, LoopConditions
from accelsim.cost.gpu.surface import coordinates, surface_rows
from accelsim.cost.shape_surface import Surface
from accelsim.cost.table import CostTable, Execution, Rows
from accelsim.errors import UnsupportedOperatorError
from accelsim.hardware.profile import GpuProfile
from accelsim.workloads.graph import FloatArray
from accelsim.workloads.operator import OperatorKind
from tools.scoreboard.aiconfigurator_graphs import KernelGraph, kernel_graphs
from tools.scoreboard.aiconfigurator_rows import KernelRows

#: Part of a row's time that a fixed gap between kernels may take at most, so that a residual stays
#: finite.
_MOST_GAP = 0.9


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Rows of one surface, r of them.

    Attributes:
        operator: A key of `accelsim.cost.gpu.surface.AXES`.
        stages: Coordinates and modelled times of each corrected operator of the rows, shape (r,)
            each.
        fixed: Time of what is not corrected, shape (r,), s; below the measured time.
        measured: Measured times, shape (r,), s; NaN where a row is kept from fits.
        shapes: Dimensions by which rows are told apart, shape (r,) each.
    """

    operator: str
    stages: list[tuple[list[FloatArray], FloatArray]]
    fixed: FloatArray
    measured: FloatArray
    shapes: list[FloatArray]

    def take(self, rows: NDArray[np.bool_]) -> Self:
        """Some of the rows."""
        stages = [([column[rows] for column in place], time[rows]) for place, time in self.stages]
        shapes = [column[rows] for column in self.shapes]
        return type(self)(self.operator, stages, self.fixed[rows], self.measured[rows], shapes)

    def seen(self) -> Self:
        """The rows that fits may see."""
        return self.take(np.isfinite(self.measured))

    def join(self, other: Self) -> Self:
        """These rows and the other ones."""
        stages = [
            (
                [np.concatenate(pair) for pair in zip(own[0], added[0], strict=True)],
                np.concatenate([own[1], added[1]]),
            )
            for own, added in zip(self.stages, other.stages, strict=True)
        ]
        shapes = [np.concatenate(pair) for pair in zip(self.shapes, other.shapes, strict=True)]
        fixed = np.concatenate([self.fixed, other.fixed])
        measured = np.concatenate([self.measured, other.measured])
        return type(self)(self.operator, stages, fixed, measured, shapes)

    def modelled(self) -> FloatArray:
        """Time of the corrected operators before any correction, shape (r,)."""
        total: FloatArray = np.sum([time for _, time in self.stages], axis=0)
        return total

    def predict(self, surface: Surface) -> FloatArray:
        """Times with a surface, shape (r,)."""
        corrected = [time * np.exp(surface(place)) for place, time in self.stages]
        total: FloatArray = self.fixed + np.sum(corrected, axis=0)
        return total


def samples_by_surface(
    tables: Iterable[KernelRows], profile: GpuProfile, parameters: GpuParameters
) -> dict[str, Sample]:
    """All rows of kernel tables by the name of their surface; rows of formats the device lacks are
    left out.

    Args:
        tables: The tables.
        profile: Device they were measured on.
        parameters: What the surfaces correct.
    """
    samples: dict[str, Sample] = {}
    for rows in tables:
        blind = replace(rows, time_s=np.where(rows.held_out, np.nan, rows.time_s))
        for kernels in kernel_graphs(blind):
            for name, sample in _samples(kernels, profile, parameters):
                samples[name] = samples[name].join(sample) if name in samples else sample
    return samples


def _samples(
    kernels: KernelGraph, profile: GpuProfile, base: GpuParameters
) -> Iterable[tuple[str, Sample]]:
    """Samples of a graph's rows by surface; none where the device lacks the format."""
    parameters = kernels.measured(replace(base, surfaces={}), profile)
    try:
        costs = cost_gpu(kernels.graph, profile, Execution.GRAPH, parameters)
    except UnsupportedOperatorError:
        return
    if kernels.stages > 1:
        yield _layer_sample(kernels, costs, parameters.conditions)
        return
    rows = Rows(
        kernels.graph, np.arange(len(kernels.rows)), OperatorKind(int(kernels.graph.kind[0]))
    )
    measured, shapes = kernels.rows.time_s, list(kernels.rows.sizes.values())
    for name, (operator, index) in surface_rows(rows).items():
        place = [column[index] for column in coordinates(rows, operator)]
        fixed = np.fmin(
            costs.dispatch_s + kernels.beside_s(parameters, profile), _MOST_GAP * measured
        )[index]
        stage, own = (place, costs.time_s[index]), [size[index] for size in shapes]
        yield name, Sample(operator, [stage], fixed, measured[index], own)


def _layer_sample(
    kernels: KernelGraph, costs: CostTable, conditions: LoopConditions | None
) -> tuple[str, Sample]:
    """A row of several operators: its GEMMs are corrected, what lies beside them is not."""
    count = len(kernels.rows)
    kinds = kernels.graph.kind.reshape(kernels.stages, count)[:, 0]
    times = costs.time_s.reshape(kernels.stages, count)
    corrected = np.isin(
        kinds, [int(kind) for kind in (OperatorKind.GEMM, OperatorKind.GROUPED_GEMM)]
    )
    stages, name, operator = [], "", ""
    for stage in np.flatnonzero(corrected).tolist():
        rows = Rows(
            kernels.graph,
            np.arange(stage * count, (stage + 1) * count),
            OperatorKind(int(kinds[stage])),
        )
        name, (operator, _) = next(iter(surface_rows(rows).items()))
        stages.append((coordinates(rows, operator, conditions), times[stage]))
    beside = times[~corrected].sum(axis=0) + kernels.sum_stages(costs.dispatch_s)
    measured = kernels.rows.time_s
    fixed = np.fmin(beside, _MOST_GAP * measured)
    return name, Sample(operator, stages, fixed, measured, list(kernels.rows.sizes.values()))
