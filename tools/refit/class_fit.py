"""Class-wide parameters of GPUs from the rows of many boards, and the sets fitted with one chip
left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from accelsim.calibration.fit.cells import OperatorRows
from accelsim.calibration.fit.dispatch import FIT, IssuedCell, dispatch_times
from accelsim.calibration.fit.gpu import (
    STAGES,
    energy_starts,
    fit_stage,
    page_walk_loss,
)
from accelsim.calibration.overlay import as_written
from accelsim.cost.gpu import GpuParameters
from tools.refit.priors import CENTRES, class_prior

#: Starts of the energies over their priors: below the power limit a fit sees no slope.
_ENERGY_FACTORS = (1.0, 0.6, 1.6)


@dataclass(frozen=True, slots=True)
class ClassFit:
    """A fitted class set.

    Attributes:
        parameters: All of them, to the digits that files have.
        unconverged: Stages that kept the prior.
    """

    parameters: GpuParameters
    unconverged: tuple[str, ...] = ()

    @property
    def values(self) -> dict[str, float]:
        """What a class-wide fit gives, by name."""
        launched = [f"other_{name}" for name in FIT["issue_times"]]
        return {name: self.parameters.value(name) for name in (*CENTRES, *launched)}


def fit_class(
    cells: Sequence[OperatorRows],
    prior: GpuParameters | None = None,
    progress: Callable[[str], None] | None = None,
) -> ClassFit:
    """Fit the class-wide parameters of GPUs.

    Args:
        cells: Measured rows of several boards.
        prior: Centre of the priors; `class_prior` where None.
        progress: Called with a line of text before each stage.
    """
    parameters = class_prior() if prior is None else prior
    unconverged, issued = list[str](), list[IssuedCell]()
    for stage in STAGES:
        own = [cell for cell in stage.cells(cells) if not _is_odd(cell)]
        if stage.is_of_throttled_boards or not own:
            continue
        if progress:
            progress(f"fitting {stage.name}: {sum(map(len, own)):,} rows of {len(own)} cells")
        fit = fit_stage(stage, own, parameters, energy_starts(parameters, _ENERGY_FACTORS))
        parameters = fit.parameters
        unconverged += [] if fit.solution.has_converged else [stage.name]
        issued += fit.issued
    parameters = parameters.with_values(_dispatch(parameters, dispatch_times(issued)))
    if (loss := page_walk_loss(cells, parameters)) is not None:
        parameters = parameters.with_values({"gemm.page_walk_loss": loss})
    return ClassFit(as_written(parameters), tuple(unconverged))


def _dispatch(parameters: GpuParameters, found: Mapping[str, float]) -> dict[str, float]:
    """Times to issue an operator; other vendors' without rows are NVIDIA's up to the launch.

    What follows the launch shows in CUDA's events, not in HIP's: see `TimedKernels.trailing_s`.
    """
    trailing_s = parameters.dispatch.trailing_s
    names = FIT["issue_times"].keys() & found
    launched = {f"other_{name}": found[name] - trailing_s for name in names}
    return {**launched, **found}


def _is_odd(cell: OperatorRows) -> bool:
    """Whether class-wide fits leave a cell out: another library than the others'.

    Plain GEMMs of Pascal boards under cuBLAS 12 (two regimes of one library: 64x64 tiles at a fifth
    of the peak for some shapes, 128x128 at three quarters for others), GEMMs and convolutions of
    Maxwell boards (the same kernels reach 0.63 of the peak there, 0.73 to 0.94 on seven later
    boards).
    """
    convolutions = ("conv-fp32", "conv-fp32-data", "conv-fp32-weight")
    old = {"Pascal": ("linear",), "Maxwell": ("linear", "gemm-fp32", *convolutions)}
    return cell.operator in old.get(cell.device.architecture, ())
