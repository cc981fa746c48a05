"""Parameters of one GPU from its own operator rows, stage by stage, held by priors at the
class-wide values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from accelsim.calibration.fit.cells import OperatorRows
from accelsim.calibration.fit.dispatch import IssuedCell, dispatch_times
from accelsim.calibration.fit.gpu import (
    STAGES,
    FitStage,
    energy_starts,
    fit_stage,
    page_walk_loss,
)
from accelsim.calibration.overlay import as_written
from accelsim.cost.gpu import GpuMachine, GpuParameters

#: Draw of FP32 arithmetic at its peak, over the power limit, from which on a board is taken as
#: throttled.
_THROTTLED = 1.5
#: Starts of the energies over the class's: below the limit a fit sees no slope.
_ENERGY_FACTORS = (1.0, 0.6, 1.8, 3.0, 5.0)


def fit_parameters(
    cells: Sequence[OperatorRows],
    prior: GpuParameters,
    progress: Callable[[str], None] | None = None,
) -> tuple[GpuParameters, list[str]]:
    """Parameters fitted stage by stage.

    Args:
        cells: Rows of one device.
        prior: Centre of the priors.
        progress: Called with a line of text before each stage.

    Returns:
        The parameters, to the digits that files have, and the stages that did not converge and keep
        their values.
    """
    parameters, unconverged, issued = prior, list[str](), list[IssuedCell]()
    loss = page_walk_loss(cells, parameters)
    if loss is not None:
        parameters = parameters.with_values({"gemm.page_walk_loss": loss})
    for stage in STAGES:
        stage_cells = stage.cells(cells)
        if stage.is_of_throttled_boards:
            stage_cells = [
                cell for cell in stage_cells if cell.is_eager and is_throttled(cell, parameters)
            ]
        if not stage_cells:
            continue
        if progress:
            progress(
                f"{stage_cells[0].device.name}: {stage.name}, {sum(map(len, stage_cells)):,} rows"
            )
        fit = fit_stage(
            _of_board(stage, stage_cells, parameters),
            stage_cells,
            parameters,
            energy_starts(prior, _ENERGY_FACTORS),
        )
        parameters = fit.parameters
        unconverged += [] if fit.solution.has_converged else [stage.name]
        if not stage.is_of_throttled_boards:
            issued += fit.issued
    return as_written(parameters.with_values(dispatch_times(issued))), unconverged


def _of_board(stage: FitStage, cells: Sequence[OperatorRows], prior: GpuParameters) -> FitStage:
    """A stage with the priors of one board.

    A board far over its limit keeps the class's energy of vector arithmetic: the clock of one run
    says little of the next.
    """
    priors = dict(stage.priors)
    if any(is_throttled(cell, prior) for cell in cells):
        priors.pop("power.vector_energy_overhead", None)
    return replace(stage, priors=priors)


def is_throttled(cell: OperatorRows, parameters: GpuParameters) -> bool:
    """Whether sustained GEMMs run far below the boost clock: shapes timed alone then say little of
    them.

    Repeats of one shape differ by 20 to 70 % on 70 W and 75 W boards. Estimate: the edge is a peak
    draw of `_THROTTLED` times the limit.
    """
    machine = GpuMachine.of(cell.device, parameters)
    code = int(cell.graph.dtype[0])
    peak_w = machine.static_w + machine.flop_energy_j[code] * machine.contraction_flop_per_s[code]
    return machine.limit_w is not None and bool(peak_w > _THROTTLED * machine.limit_w)
