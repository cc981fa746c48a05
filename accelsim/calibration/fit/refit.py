"""Refits parameter files from cells of measured rows: class-wide set, sets with a chip left out, overlays.

Spreads of the tier `spec` are those of chips the parameters have not seen: every chip is predicted by the set fitted without
it. A set that leaves a chip out has the spreads of the others, so that its intervals have not seen the chip either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from accelsim.calibration.fit.class_fit import ClassFit, fit_class
from accelsim.calibration.fit.device_fit import fit_device
from accelsim.calibration.fit.files import write_class, write_left_out
from accelsim.calibration.fit.gpu import is_odd
from accelsim.calibration.fit.residuals import CellResidual, family_residuals
from accelsim.calibration.fit.rows import Cell, chip_of, limited, without
from accelsim.calibration.overlay import write_overlay
from accelsim.cost.fitted import fitted_parameters
from accelsim.cost.gpu import GpuParameters
from accelsim.cost.residual import FamilyResidual

__all__ = ["ClassSample", "refit_class", "refit_device", "refit_left_out"]

Say = Callable[[str], None]
#: Rows of a cell that class-wide parameters are fitted to.
_CLASS_ROWS = 300
_RESIDUAL_ROWS = 1500


class ClassSample:
    """Cells cut to the rows that class-wide fits and spreads use; fits of one sample are made once.

    Args:
        cells: Measured rows of several boards.
    """

    def __init__(self, cells: Sequence[Cell]) -> None:
        self.fitted = limited(cells, _CLASS_ROWS, np.random.default_rng(0))
        self.scored = limited(cells, _RESIDUAL_ROWS, np.random.default_rng(1))
        self.start = replace(GpuParameters.class_wide(), families={})


@lru_cache(maxsize=64)
def _left_out(sample: ClassSample, chip: str) -> ClassFit:
    return fit_class(without(sample.fitted, chip), sample.start)


@lru_cache(maxsize=64)
def _residuals(sample: ClassSample, chip: str) -> tuple[CellResidual, ...]:
    """Rows of a chip under the set fitted without it; those that class-wide fits leave out, too, are left out here."""
    parameters = _left_out(sample, chip).parameters
    own = [cell for cell in sample.scored if chip_of(cell.device.name) == chip and not is_odd(cell)]
    return tuple(CellResidual.of(cell, parameters) for cell in own)


def _families(sample: ClassSample, chip: str | None) -> dict[str, FamilyResidual]:
    """Spreads of all chips but one."""
    chips = sorted({chip_of(cell.device.name) for cell in sample.scored} - {chip})
    return family_residuals([residual for other in chips for residual in _residuals(sample, other)])


def refit_class(sample: ClassSample, folder: Path, say: Say) -> tuple[GpuParameters, list[str]]:
    """Fit and write the class-wide set.

    Args:
        sample: Rows of several boards.
        folder: Of class-wide sets.
        say: Called with a line of text before each step.

    Returns:
        The set, and the stages that did not converge and keep their values.
    """
    fit = fit_class(sample.fitted, sample.start, say)
    say("spreads of chips left out")
    write_class(fit.changed, _families(sample, None), folder)
    return fit.parameters, [f"gpu.yaml, {stage}" for stage in fit.unconverged]


def refit_left_out(chip: str, sample: ClassSample, folder: Path, say: Say) -> list[str]:
    """Fit and write the set without a chip."""
    say(f"without {chip}")
    fit = _left_out(sample, chip)
    write_left_out(chip, fit.parameters, _families(sample, chip), folder)
    return [f"gpu-without-{chip}.yaml, {stage}" for stage in fit.unconverged]


def refit_device(
    device: str, cells: Sequence[Cell], folder: Path, say: Say, prior: GpuParameters | None = None
) -> list[str]:
    """Fit and write a device's overlay; the previous one is kept where a stage did not converge."""
    fit = fit_device(device, cells, prior, progress=say)
    if fit.unconverged and fitted_parameters(device) is not None:
        return [f"{device}.yaml, {stage}" for stage in fit.unconverged]
    write_overlay(fit.overlay, folder)
    return []
