"""Residuals of measured rows under a parameter set, split into a part each device shares and a part of each row.

The 90 % interval of a row comes from the 90th percentile of its family's |ln(measured / predicted)|. The shared part is what
remains of it when many rows add up: the bias of long rows of one operator on one device, of which models are made.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accelsim.calibration.fit.rows import Cell
from accelsim.cost.gpu import GpuParameters
from accelsim.cost.residual import LONG_S, FamilyResidual, family_rows
from accelsim.workloads.graph import FloatArray

__all__ = ["CellResidual", "family_residuals"]

#: The 90th percentile of a normal distribution's absolute value, in standard deviations.
_P90 = 1.645
#: The median of a normal distribution's absolute value, in standard deviations.
_MEDIAN = 0.6745
_FEWEST_ROWS = 20
#: Least shared part: a single kernel and the same kernel inside a model differ by 5 % in the median (NeuSight's own rows).
_LEAST_SHARED = 0.05


@dataclass(frozen=True, slots=True, eq=False)
class CellResidual:
    """Residuals of one cell.

    Attributes:
        device: Name.
        operator: Name in the data.
        log_residual: ln(measured / predicted), shape (n,).
        measured_s: Times, shape (n,).
        flop: FLOP of the rows.
        bytes: Bytes of the rows.
        rows: Rows of each family.
    """

    device: str
    operator: str
    log_residual: FloatArray
    measured_s: FloatArray
    flop: FloatArray
    bytes: FloatArray
    rows: dict[str, NDArray[np.int64]]

    @classmethod
    def of(cls, cell: Cell, parameters: GpuParameters) -> CellResidual:
        """Residuals of a cell under a parameter set."""
        costs = cell.kernels.costs(parameters)
        residual = np.log(cell.measured_s / (costs.dispatch_s + costs.time_s))
        graph = cell.graph
        return cls(
            cell.device.name, cell.operator, residual, cell.measured_s, graph.flop, graph.bytes, family_rows(graph)
        )


def family_residuals(cells: Iterable[CellResidual]) -> dict[str, FamilyResidual]:
    """Residuals by family.

    Args:
        cells: Of one device for an overlay, of many for a class-wide set.
    """
    parts: dict[str, list[tuple[CellResidual, NDArray[np.int64]]]] = {}
    for cell in cells:
        for family, rows in cell.rows.items():
            parts.setdefault(family, []).append((cell, rows))
    found = {family: _family(own) for family, own in parts.items()}
    return {family: entry for family, entry in found.items() if entry.rows >= _FEWEST_ROWS}


def _family(parts: list[tuple[CellResidual, NDArray[np.int64]]]) -> FamilyResidual:
    """Every cell weighs the same in the spread."""
    residual = [cell.log_residual[rows] for cell, rows in parts]
    weight = np.concatenate([np.full(len(r), 1.0 / len(r)) for r in residual])
    missed = np.abs(np.concatenate(residual))
    errors = np.abs(np.expm1(-np.concatenate(residual)))
    sigma = _quantile(missed, weight, 0.9) / _P90
    long = np.concatenate([cell.measured_s[rows] for cell, rows in parts]) > LONG_S
    spread = _quantile(missed[long], weight[long], 0.9) / _P90 if long.sum() >= _FEWEST_ROWS else sigma
    flop, moved = (np.concatenate([getattr(cell, name)[rows] for cell, rows in parts]) for name in ("flop", "bytes"))
    return FamilyResidual(
        rows=len(missed),
        log_sigma=sigma,
        long_log_sigma=spread,
        shared_log_sigma=min(sigma, spread, max(_shared(parts), _LEAST_SHARED)),
        median_ape_fraction=_quantile(errors, weight, 0.5),
        p90_ape_fraction=_quantile(errors, weight, 0.9),
        flop=_range(flop),
        bytes=_range(moved),
    )


def _shared(parts: list[tuple[CellResidual, NDArray[np.int64]]]) -> float:
    """Spread over cells of the median residual of their long rows: the median of its size, over the normal's."""
    biases = []
    for cell, rows in parts:
        long = cell.log_residual[rows][cell.measured_s[rows] > LONG_S]
        if len(long) >= _FEWEST_ROWS:
            biases.append(float(np.median(long)))
    return float(np.median(np.abs(biases))) / _MEDIAN if biases else np.inf


def _quantile(values: FloatArray, weight: FloatArray, share: float) -> float:
    order = np.argsort(values)
    total = np.cumsum(weight[order])
    return float(values[order][np.searchsorted(total, share * total[-1])])


def _range(sizes: FloatArray) -> tuple[float, float]:
    low, high = np.quantile(sizes, [0.01, 0.99]).tolist()
    return float(low), float(high)
