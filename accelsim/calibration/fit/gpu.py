"""What of the GPU model is fitted to which rows, in which order, and how firmly each parameter
stays at its prior.

Stages go from what depends on nothing else to what depends on it: memory-bound kernels give the
bandwidth that GEMMs use, GEMMs the rates that convolutions and recurrent layers use. Eager rows
contain the time to issue them; that is a nuisance parameter of each cell while the kernels are
fitted, and becomes the device's dispatch time afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import numpy as np

from accelsim.calibration.fit.cells import OperatorRows
from accelsim.calibration.fit.dispatch import FIT, IssuedCell
from accelsim.calibration.fit.solve import Prior, Solution, solve
from accelsim.cost.gpu import GpuMachine, GpuParameters
from accelsim.cost.gpu.generation import generation_of
from accelsim.cost.gpu.machine import memory_efficiency_name
from accelsim.cost.table import CostTable
from accelsim.frozen import frozen
from accelsim.plain import Values
from accelsim.workloads.graph import FloatArray
from accelsim.workloads.operator import CONTRACTION_KINDS, CONV_KINDS, OperatorKind

#: Shares of the shortest rows' time that the start value of the time to issue a row lies between.
_ISSUE_SHARES = (0.3, 1.0)
#: Contraction lengths below and above which plain GEMMs of early boards do not and do walk pages.
_SHORT_ROWS, _LONG_ROWS = (2000, 6000), 28_000
#: Time to issue a call, and a call of a convolution. Those wait different times for their plan: the
#: shortest say little of the mean.
_ISSUE_PRIORS = (Prior(1e-7, 1e-3, 0.3), Prior(1e-7, 1e-3, 5.0))
_GRADIENTS = {OperatorKind.CONV_BACKWARD_DATA, OperatorKind.CONV_BACKWARD_WEIGHT}


@frozen
class FitStage:
    """Parameters fitted together.

    Attributes:
        name: Of the family.
        kinds: Operators whose rows are used.
        priors: Parameters with range and firmness.
        is_of_throttled_boards: Whether rows timed one by one on throttled boards alone are used.
    """

    name: str
    kinds: frozenset[OperatorKind]
    priors: Mapping[str, Prior]
    is_of_throttled_boards: bool = False

    def cells(self, cells: Iterable[OperatorRows]) -> list[OperatorRows]:
        """Cells whose operators the stage fits."""
        return [cell for cell in cells if len(cell) and cell.kind in self.kinds]


def _read_stage(name: str, entry: Values) -> FitStage:
    kinds = frozenset(OperatorKind[kind.upper()] for kind in entry["kinds"])
    priors = {parameter: Prior(**prior) for parameter, prior in entry["priors"].items()}
    return FitStage(name, kinds, priors, entry.get("is_of_throttled_boards", False))


#: Stages in order, from ``calibration/class/gpu-fit.yaml``.
STAGES = tuple(_read_stage(name, entry) for name, entry in FIT["stages"].items())


def page_walk_loss(cells: Iterable[OperatorRows], parameters: GpuParameters) -> float | None:
    """Slow-down of plain GEMMs with long rows over those with short ones, less 1; None without such
    rows.

    The geometric mean over boards of the ratio of their median residuals.

    Args:
        cells: Any; plain GEMMs of Pascal boards timed one by one are used.
        parameters: To predict with.
    """
    flat = parameters.with_values({"gemm.page_walk_loss": 0.0})
    ratios = []
    for cell in cells:
        if cell.operator != "linear" or cell.device.architecture != "Pascal":
            continue
        residual, length = log_residual(cell, flat), cell.graph.dims[:, 3]
        short = residual[(length >= _SHORT_ROWS[0]) & (length < _SHORT_ROWS[1])]
        long = residual[length >= _LONG_ROWS]
        if len(short) and len(long):
            ratios.append(float(np.median(long) - np.median(short)))
    return max(float(np.expm1(np.mean(ratios))), 0.0) if ratios else None


def log_residual(cell: OperatorRows, parameters: GpuParameters) -> FloatArray:
    """ln(measured / predicted) of each row, shape (n,).

    Args:
        cell: Measured rows.
        parameters: Parameters to predict with.
    """
    return _log_ratio(cell, cell.kernels.costs(parameters), parameters, None)


def _log_ratio(
    cell: OperatorRows, costs: CostTable, parameters: GpuParameters, issue_s: float | None
) -> FloatArray:
    return np.log(cell.measured_s / cell.kernels.call_s(costs, parameters, issue_s))


@frozen
class StageFit:
    """Result of one stage.

    Attributes:
        parameters: With the stage's values, or as they were where the fit did not converge.
        solution: What the solver found.
        issued: Eager cells with the times to issue their rows.
    """

    parameters: GpuParameters
    solution: Solution
    issued: Sequence[IssuedCell]


def fit_stage(
    stage: FitStage,
    cells: Sequence[OperatorRows],
    prior: GpuParameters,
    starts: Sequence[Mapping[str, float]] = ({},),
) -> StageFit:
    """Fit one stage's parameters.

    Args:
        stage: Which.
        cells: Its cells.
        prior: Centre of the priors.
        starts: Where to start from, the cheapest solution counts; what a start does not name starts
            at the prior's value.
    """
    names = determined(stage, cells)
    centre = {name: prior.value(name) for name in names}
    priors = {name: stage.priors[name] for name in names}
    eager = [(f"issue {index}", cell) for index, cell in enumerate(cells) if cell.is_eager]
    for issue, cell in eager:
        centre[issue] = _issue_start_s(cell, prior)
        priors[issue] = _ISSUE_PRIORS[cell.kind in CONV_KINDS]

    @lru_cache(
        maxsize=len(names) + 2
    )  # derivatives by the time to issue leave the kernels as they are
    def costed(values: tuple[float, ...]) -> tuple[GpuParameters, list[CostTable]]:
        trial = prior.with_values(dict(zip(names, values, strict=True)))
        return trial, [cell.kernels.costs(trial) for cell in cells]

    def residuals(values: Mapping[str, float]) -> list[FloatArray]:
        trial, costs = costed(tuple(values[name] for name in names))
        return [
            _log_ratio(cell, cost, trial, values.get(f"issue {index}"))
            for index, (cell, cost) in enumerate(zip(cells, costs, strict=True))
        ]

    solution = solve(residuals, centre, priors, _distinct(starts, centre))
    fitted = prior
    if solution.has_converged:
        fitted = prior.with_values({name: solution.values[name] for name in names})
    issued = [_issued(cell, solution.values[issue], fitted) for issue, cell in eager]
    return StageFit(fitted, solution, issued)


def _issued(cell: OperatorRows, issue_s: float, fitted: GpuParameters) -> IssuedCell:
    """Time to issue a row of a cell; of convolutions apart from what their calls wait."""
    if cell.kind not in CONV_KINDS:
        return IssuedCell(cell, issue_s)
    wait_s = max(issue_s - _issue_start_s(cell, fitted), 0.0)
    return IssuedCell(cell, issue_s - wait_s, wait_s)


def _distinct(
    starts: Sequence[Mapping[str, float]], centre: Mapping[str, float]
) -> list[dict[str, float]]:
    """Starts without the parameters that are not fitted, each once."""
    used = [{name: value for name, value in start.items() if name in centre} for start in starts]
    return [start for index, start in enumerate(used) if start not in used[:index]]


def energy_starts(prior: GpuParameters, factors: Sequence[float]) -> list[dict[str, float]]:
    """Starts of a fit that differ in the energy of vector arithmetic alone, as multiples of a
    set's.
    """
    name = "power.vector_energy_overhead"
    return [{name: prior.value(name) * factor} for factor in factors]


def _issue_start_s(cell: OperatorRows, prior: GpuParameters) -> float:
    """What the shortest calls take beyond their kernels.

    Estimate: a start for the fit, from the shortest three percent of the rows.
    """
    shortest = float(np.quantile(cell.measured_s, 0.01))
    short = cell.take(cell.measured_s <= float(np.quantile(cell.measured_s, 0.03)))
    visible = short.measured_s - short.kernels.costs(prior).time_s + cell.kernels.trailing_s(prior)
    issued = float(np.median(np.minimum(visible, short.measured_s)))
    return float(np.clip(issued, _ISSUE_SHARES[0] * shortest, _ISSUE_SHARES[1] * shortest))


def determined(stage: FitStage, cells: Sequence[OperatorRows]) -> list[str]:
    """Parameters of a stage that the cells' devices and operators use at all."""
    shown = set[str]().union(*map(_shown, cells))
    return [name for name, prior in stage.priors.items() if shown.issuperset(prior.needs)]


def _shown(cell: OperatorRows) -> set[str]:
    """What the rows of a cell show: the words of `Prior.needs`."""
    is_reference = generation_of(cell.device).is_reference
    machine = GpuMachine.of(cell.device, GpuParameters.class_wide())
    is_matrix = cell.kind in CONTRACTION_KINDS and machine.uses_matrix_cores[cell.graph.dtype[0]]
    kinds = {OperatorKind(code) for code in cell.graph.kind.tolist()}
    tests = {
        "nvidia": is_reference,
        "other vendor": not is_reference,
        "matrix": is_matrix,
        "vector": not is_matrix,
        "eager": cell.is_eager and is_reference,
        "gradient": _GRADIENTS & kinds,
    }
    labels = {memory_efficiency_name(cell.device)} | {kind.label for kind in kinds}
    return labels | {word for word, holds in tests.items() if holds}
