"""What of the GPU model is fitted to which rows, in which order, and how firmly each parameter
stays at its prior.

Stages go from what depends on nothing else to what depends on it: memory-bound kernels give the
bandwidth that GEMMs use, GEMMs the rates that convolutions and recurrent layers use. Eager rows
contain the time to issue them; that is a nuisance parameter of each cell while the kernels are
fitted, and becomes the device's dispatch time afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from accelsim.calibration.fit.cells import Cell
from accelsim.calibration.fit.solve import Prior, Solution, solve
from accelsim.cost.gpu import GpuMachine, GpuParameters
from accelsim.cost.gpu.machine import memory_efficiency_name
from accelsim.cost.table import CostTable
from accelsim.workloads.graph import FloatArray
from accelsim.workloads.operator import CONTRACTION_KINDS, CONV_KINDS, RECURRENT_KINDS, OperatorKind

__all__ = [
    "STAGES",
    "Stage",
    "StageFit",
    "determined",
    "energy_starts",
    "fit_stage",
    "is_odd",
    "log_residual",
    "page_walk_loss",
    "stage_cells",
]

_K = OperatorKind
_GEMMS = frozenset({_K.GEMM, _K.BATCHED_GEMM})
_ROW_WISE = frozenset({_K.SOFTMAX, _K.LAYER_NORM, _K.RMS_NORM, _K.ELEMENTWISE})
#: Shares of the shortest rows' time that the start value of the time to issue a row lies between.
_ISSUE_SHARES = (0.3, 1.0)
#: Contraction lengths below and above which plain GEMMs of early boards do not and do walk pages.
_SHORT_ROWS, _LONG_ROWS = (2000, 6000), 28_000
_MEMORIES = frozenset(
    {
        "memory.hbm_efficiency",
        "memory.gddr_efficiency",
        "memory.early_efficiency",
        "memory.other_efficiency",
    }
)
#: Time to issue a call. Calls of convolutions wait different times for their plan: their shortest
#: say little of the mean.
_ISSUE_PRIOR, _WAIT_PRIOR = Prior(1e-7, 1e-3, 0.3), Prior(1e-7, 1e-3, 5.0)
_ENERGIES = ("power.vector_energy_overhead", "power.matrix_energy_overhead")


@dataclass(frozen=True, slots=True)
class Stage:
    """Parameters fitted together.

    Attributes:
        name: Of the family.
        kinds: Operators whose rows are used.
        priors: Parameters with range and firmness.
    """

    name: str
    kinds: frozenset[OperatorKind]
    priors: Mapping[str, Prior]


STAGES = (
    Stage(
        "memory",
        _ROW_WISE,
        {
            "memory.kernel_latency_s": Prior(1e-6, 6e-6, 0.1),
            "memory.gddr_efficiency": Prior(0.5, 1.0, 0.3),
            "memory.hbm_efficiency": Prior(0.5, 1.0, 0.3),
            "memory.early_efficiency": Prior(0.5, 1.0, 0.3),
            "memory.other_efficiency": Prior(0.5, 1.0, 0.3),
            "dispatch.trailing_s": Prior(1e-6, 5e-5, 0.5),
            "memory.softmax_efficiency": Prior(0.2, 1.0, 0.5),
            "memory.norm_efficiency": Prior(0.2, 1.0, 0.5),
            "memory.reduction_columns": Prior(1.0, 512.0, 1.0),
            "memory.special_efficiency": Prior(0.02, 1.0, 0.5),
        },
    ),
    Stage(
        "gemm",
        _GEMMS,
        {
            "gemm.vector_efficiency": Prior(0.5, 1.0, 0.1),
            "gemm.matrix_efficiency": Prior(0.4, 1.0, 0.2),
            "gemm.other_matrix_efficiency": Prior(0.3, 1.0, 0.2),
            "gemm.batched_ratio": Prior(0.5, 1.5, 0.2),
            "gemm.operand_bytes_per_lane_clock": Prior(0.1, 8.0, 0.5),
            "gemm.matrix_operand_bytes_per_clock": Prior(32.0, 1000.0, 0.5),
            "gemm.operand_exposed_fraction": Prior(0.01, 0.95, 0.5),
            "gemm.prologue_k": Prior(1.0, 200.0, 0.7),
            "gemm.lone_tile_loss": Prior(0.02, 1.0, 0.5),
            "power.window_s": Prior(1e-4, 1e-1, 0.7),
            "power.burst_ratio": Prior(1.0, 3.0, 0.3),
            "gemm.latency_s": Prior(1e-6, 1.5e-5, 0.5),
            "gemm.overlap_exponent": Prior(1.3, 8.0, 0.5),
            "power.vector_energy_overhead": Prior(3.0, 40.0, 0.3),
            "power.matrix_energy_overhead": Prior(4.0, 30.0, 0.3),
        },
    ),
    Stage(
        "convolution",
        CONV_KINDS,
        {
            "convolution.vector_efficiency": Prior(0.3, 1.0, 0.5),
            "convolution.matrix_efficiency": Prior(0.1, 1.0, 0.5),
            "convolution.winograd_efficiency": Prior(0.2, 1.0, 0.5),
            "convolution.transformed_efficiency": Prior(0.3, 1.0, 0.5),
            "convolution.direct_efficiency": Prior(0.01, 0.6, 0.7),
            "convolution.backward_efficiency": Prior(0.3, 1.0, 0.5),
        },
    ),
    Stage("recurrent", RECURRENT_KINDS, {"recurrent.step_s": Prior(1e-6, 4e-5, 1.0)}),
    Stage("attention", frozenset({_K.ATTENTION}), {"attention.efficiency": Prior(0.05, 1.0, 0.5)}),
    Stage(
        "gather",
        frozenset({_K.EMBEDDING, _K.EMBEDDING_BAG}),
        {"memory.gather_overhead_bytes": Prior(8.0, 256.0, 0.5)},
    ),
)


def stage_cells(stage: Stage, cells: Iterable[Cell], *, class_wide: bool) -> list[Cell]:
    """Cells whose operators the stage fits.

    Args:
        stage: Which.
        cells: Any.
        class_wide: Leave out plain GEMMs of Pascal boards under cuBLAS 12 (two regimes of one
            library: 64x64 tiles at a fifth of the peak for some shapes, 128x128 at three quarters
            for others), GEMMs and convolutions of Maxwell boards (the same kernels reach 0.63 of
            the peak there, 0.73 to 0.94 on seven later boards).
    """
    own = [
        cell for cell in cells if len(cell) and OperatorKind(int(cell.graph.kind[0])) in stage.kinds
    ]
    return [cell for cell in own if not (class_wide and is_odd(cell))]


def is_odd(cell: Cell) -> bool:
    """Whether class-wide fits leave a cell out: another library than the others', see
    `stage_cells`.
    """
    convolutions = ("conv-fp32", "conv-fp32-data", "conv-fp32-weight")
    old = {"Pascal": ("linear",), "Maxwell": ("linear", "gemm-fp32", *convolutions)}
    return cell.operator in old.get(cell.device.architecture, ())


def page_walk_loss(cells: Iterable[Cell], parameters: GpuParameters) -> float | None:
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


def log_residual(cell: Cell, parameters: GpuParameters, issue_s: float | None = None) -> FloatArray:
    """ln(measured / predicted) of each row, shape (n,).

    Args:
        cell: Measured rows.
        parameters: Parameters to predict with.
        issue_s: Time to issue a row; the parameters' where None.
    """
    return _log_ratio(cell, cell.kernels.costs(parameters), parameters, issue_s)


def _log_ratio(
    cell: Cell, costs: CostTable, parameters: GpuParameters, issue_s: float | None
) -> FloatArray:
    residual: FloatArray = np.log(cell.measured_s / cell.kernels.call_s(costs, parameters, issue_s))
    return residual


@dataclass(frozen=True, slots=True)
class StageFit:
    """Result of one stage.

    Attributes:
        parameters: With the stage's values, or as they were where the fit did not converge.
        solution: What the solver found.
        issue_s: Time to issue a row of each eager cell, by position among the stage's cells; of its
            shortest calls where calls wait.
        wait_s: Mean wait of a call beyond that, of the cells of convolutions.
    """

    parameters: GpuParameters
    solution: Solution
    issue_s: Mapping[int, float]
    wait_s: Mapping[int, float]


def fit_stage(
    stage: Stage,
    cells: Sequence[Cell],
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
    for index, cell in enumerate(cells):
        if cell.is_eager:
            centre[f"issue {index}"] = _issue_start_s(cell, prior)
            priors[f"issue {index}"] = _WAIT_PRIOR if _waits(cell) else _ISSUE_PRIOR

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

    found = solve(residuals, centre, priors, _distinct(starts, centre))
    fitted = (
        prior.with_values({name: found.values[name] for name in names})
        if found.has_converged
        else prior
    )
    issue = {
        index: found.values[f"issue {index}"]
        for index in range(len(cells))
        if f"issue {index}" in centre
    }
    wait = {
        index: max(value - _issue_start_s(cells[index], fitted), 0.0)
        for index, value in issue.items()
        if _waits(cells[index])
    }
    return StageFit(
        fitted, found, {index: value - wait.get(index, 0.0) for index, value in issue.items()}, wait
    )


def _waits(cell: Cell) -> bool:
    return OperatorKind(int(cell.graph.kind[0])) in CONV_KINDS


def _distinct(
    starts: Sequence[Mapping[str, float]], centre: Mapping[str, float]
) -> list[dict[str, float]]:
    """Starts without the parameters that are not fitted, each once."""
    used = [{name: value for name, value in start.items() if name in centre} for start in starts]
    return [start for index, start in enumerate(used) if start not in used[:index]]


def energy_starts(prior: GpuParameters, factors: Sequence[float]) -> list[dict[str, float]]:
    """Starts of a fit that differ in the energies of arithmetic alone, as multiples of a set's."""
    return [{name: prior.value(name) * factor for name in _ENERGIES} for factor in factors]


def _issue_start_s(cell: Cell, prior: GpuParameters) -> float:
    """What the shortest calls take beyond their kernels."""
    shortest = float(np.quantile(cell.measured_s, 0.01))
    short = cell.take(cell.measured_s <= float(np.quantile(cell.measured_s, 0.03)))
    visible = short.measured_s - short.kernels.costs(prior).time_s + cell.kernels.trailing_s(prior)
    issued = float(np.median(np.minimum(visible, short.measured_s)))
    return float(np.clip(issued, _ISSUE_SHARES[0] * shortest, _ISSUE_SHARES[1] * shortest))


def determined(stage: Stage, cells: Sequence[Cell]) -> list[str]:
    """Parameters of a stage that the cells' devices and operators use at all."""
    vendors = {cell.device.vendor for cell in cells}
    matrix = {_is_matrix(cell) for cell in cells}
    kinds = {int(kind) for cell in cells for kind in np.unique(cell.graph.kind)}
    unused = set(_MEMORIES - {memory_efficiency_name(cell.device) for cell in cells})
    if not any(cell.is_eager and cell.device.vendor == "NVIDIA" for cell in cells):
        unused |= {"dispatch.trailing_s"}
    unused |= {"gemm.other_matrix_efficiency"} if vendors <= {"NVIDIA"} else set()
    if True not in matrix or "NVIDIA" not in vendors:
        unused |= {"gemm.matrix_efficiency"}
    if True not in matrix:
        unused |= {
            "gemm.matrix_operand_bytes_per_clock",
            "power.matrix_energy_overhead",
            "convolution.matrix_efficiency",
        }
    if False not in matrix:
        unused |= {
            "gemm.vector_efficiency",
            "gemm.operand_bytes_per_lane_clock",
            "power.vector_energy_overhead",
        }
        unused |= {"convolution.winograd_efficiency", "convolution.transformed_efficiency"}
    if not any(_is_matrix(cell) and cell.kernels.is_m_contiguous is not None for cell in cells):
        unused |= {"gemm.m_contiguous_ratio", "gemm.k_contiguous_ratio"}
    if int(_K.BATCHED_GEMM) not in kinds:
        unused |= {"gemm.batched_ratio"}
    if not kinds & {int(_K.CONV_BACKWARD_DATA), int(_K.CONV_BACKWARD_WEIGHT)}:
        unused |= {"convolution.backward_efficiency"}
    return [name for name in stage.priors if name not in unused]


def _is_matrix(cell: Cell) -> bool:
    if OperatorKind(int(cell.graph.kind[0])) not in CONTRACTION_KINDS:
        return False
    machine = GpuMachine.of(cell.device, GpuParameters.class_wide())
    return bool(machine.uses_matrix_cores[cell.graph.dtype[0]])
