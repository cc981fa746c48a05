"""Residuals of one device's measured rows under a parameter set, split into a part that all rows
share and a part of each row.

The 90 % interval of a row comes from the 90th percentile of its family's |ln(measured /
predicted)|, and the shared part is what remains when many rows add up: the bias of long rows, of
which models are made. Sets of measurements of one device disagree, most on a board at its power
limit: each is a sample of that bias.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from accelsim.calibration.fit.cells import OperatorRows, chip_of
from accelsim.confidence.residual import (
    IN_MODEL_LOG_SIGMA,
    LONG_S,
    PRODUCT_KINDS,
    FamilyResidual,
    family_rows,
    group_of,
    path_of,
    size_range,
)
from accelsim.cost.gpu import GpuMachine, GpuParameters
from accelsim.cost.gpu.condition import SLOT_POWERED, board_conditions
from accelsim.frozen import frozen
from accelsim.plain import grouped
from accelsim.workloads.graph import BoolArray, FloatArray

#: The 90th percentile of a normal distribution's absolute value, in standard deviations.
P90 = 1.645
#: The median of a normal distribution's absolute value, in standard deviations.
_MEDIAN = 0.6745
#: Variance of the median of a normal sample, in its variance over the number of rows: pi / 2.
_MEDIAN_VARIANCE = np.pi / 2.0
_FEWEST_ROWS = 20
#: Long rows from which on their median is a bias.
FEWEST_LONG = 10
#: Two runs on a board fed by its slot: NeuSight's and DeepBench's FP32 products and convolutions on
#: the T4 differ by 0.24 and 0.17 in their medians under one fit, which is 0.15 of each.
_RUN_LOG_SIGMA = 0.15
_LIMITED_GROUPS = frozenset({"product", "convolution", "gradient"})
#: Chips that a family's group counts for.
_PRIOR_CHIPS = 4.0


@frozen(eq=False)
class FamilyPart:
    """Residuals of the rows of one family in one cell.

    Attributes:
        chip: The chip the board carries.
        board: Condition of the board's products, see `accelsim.cost.gpu.condition`.
        family: Name.
        group: Its group.
        path: Its execution path: `MATRIX_CORES` or "" (vector lanes), see `path_of`.
        condition: Of the board for this family.
        log_residual: ln(measured / predicted), shape (n,).
        is_long: Rows longer than `LONG_S`.
        flop: FLOP of the rows.
        bytes: Bytes of the rows.
    """

    chip: str
    board: str
    family: str
    group: str
    path: str
    condition: str
    log_residual: FloatArray
    is_long: BoolArray
    flop: FloatArray
    bytes: FloatArray

    def __len__(self) -> int:
        return len(self.log_residual)

    @property
    def bias(self) -> float:
        """Size of the median residual of the long rows (of all where few are long), less what
        chance gives it.

        The variance of a median is Cramer, Mathematical Methods of Statistics, 1946.
        """
        long = self.log_residual[self.is_long]
        rows = long if len(long) >= FEWEST_LONG else self.log_residual
        median = float(np.median(rows))
        spread = float(np.median(np.abs(rows - median))) / _MEDIAN
        return float(np.sqrt(max(median**2 - _MEDIAN_VARIANCE * spread**2 / len(rows), 0.0)))


def family_parts(cell: OperatorRows, parameters: GpuParameters) -> list[FamilyPart]:
    """Residuals of a cell under a parameter set, family by family."""
    graph = cell.graph
    called_s = cell.kernels.call_s(cell.kernels.costs(parameters), parameters)
    residual = np.log(cell.measured_s / called_s)
    on_matrix = GpuMachine.of(cell.device, parameters).uses_matrix_cores
    conditions = board_conditions(cell.device)
    parts = []
    for family, rows in family_rows(graph).items():
        kind, dtype = int(graph.kind[rows[0]]), int(graph.dtype[rows[0]])
        part = FamilyPart(
            chip_of(cell.device.name),
            conditions[0],
            family,
            group_of(kind),
            path_of(kind, dtype, on_matrix),
            conditions[kind not in PRODUCT_KINDS],
            residual[rows],
            cell.measured_s[rows] > LONG_S,
            graph.flop[rows],
            graph.bytes[rows],
        )
        parts.append(part)
    return parts


def family_residuals(parts: Iterable[FamilyPart]) -> dict[str, FamilyResidual]:
    """Residuals of one device by family.

    Every part weighs the same in the spread; biases of parts are drawn toward those of the group's.
    """
    parts = list(parts)
    by_group = grouped(parts, lambda part: part.group)
    pooled = {group: _squared_biases(members) for group, members in by_group.items()}
    residuals = {}
    for family, members in grouped(parts, lambda part: part.family).items():
        group = pooled[members[0].group]
        sigma, long_sigma = row_sigmas(members)
        shared = sigma
        if group:
            shared = np.sqrt(drawn(_squared_biases(members), float(np.mean(group))))
        shared = float(np.hypot(shared, _in_model(members[0])))
        residuals[family] = pooled_residual(members, sigma, long_sigma, shared)
    return of_enough_rows(residuals)


def _in_model(part: FamilyPart) -> float:
    """What a kernel inside a model may be off from the same kernel in a measurement, beyond what
    measurements share.
    """
    is_limited = part.board == SLOT_POWERED and part.group in _LIMITED_GROUPS
    return _RUN_LOG_SIGMA if is_limited else IN_MODEL_LOG_SIGMA


def of_enough_rows(residuals: Mapping[str, FamilyResidual]) -> dict[str, FamilyResidual]:
    """Families with rows enough to say anything."""
    return {family: entry for family, entry in residuals.items() if entry.rows >= _FEWEST_ROWS}


def _squared_biases(parts: Iterable[FamilyPart]) -> list[float]:
    """Of the parts with rows enough to have one."""
    return [part.bias**2 for part in parts if len(part) >= FEWEST_LONG]


def pooled_residual(
    parts: Sequence[FamilyPart], sigma: float, long_sigma: float, shared: float
) -> FamilyResidual:
    """Residuals of a family, of parts of it that weigh the same."""
    residual = [part.log_residual for part in parts]
    errors, weight = np.abs(np.expm1(-np.concatenate(residual))), cell_weight(residual)
    return FamilyResidual(
        rows=sum(map(len, residual)),
        log_sigma=sigma,
        long_log_sigma=long_sigma,
        shared_log_sigma=shared,
        median_ape_fraction=quantile(errors, weight, 0.5),
        p90_ape_fraction=quantile(errors, weight, 0.9),
        flop=size_range(np.concatenate([part.flop for part in parts])),
        bytes=size_range(np.concatenate([part.bytes for part in parts])),
    )


def row_sigmas(parts: Sequence[FamilyPart]) -> tuple[float, float]:
    """Spread of a row, and of a long row: 90th percentiles over the normal's, every cell weighing
    the same.
    """
    missed = np.abs(np.concatenate([part.log_residual for part in parts]))
    weight = cell_weight([part.log_residual for part in parts])
    long = np.concatenate([part.is_long for part in parts])
    sigma = quantile(missed, weight, 0.9) / P90
    return sigma, quantile(
        missed[long], weight[long], 0.9
    ) / P90 if long.sum() >= _FEWEST_ROWS else sigma


def cell_weight(cells: Sequence[FloatArray]) -> FloatArray:
    """Weight of each row where cells weigh the same."""
    return np.concatenate([np.full(len(cell), 1.0 / len(cell)) for cell in cells])


def drawn(squares: Sequence[float], mean: float) -> float:
    """Mean square of a few chips, drawn toward what is expected of more.

    Estimate: the expected mean counts as `_PRIOR_CHIPS` chips.
    """
    return (sum(squares) + _PRIOR_CHIPS * mean) / (len(squares) + _PRIOR_CHIPS)


def quantile(values: FloatArray, weight: FloatArray, share: float) -> float:
    """Weighted quantile."""
    order = np.argsort(values)
    total = np.cumsum(weight[order])
    return float(
        values[order][min(int(np.searchsorted(total, share * total[-1])), len(values) - 1)]
    )
