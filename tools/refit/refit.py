"""Refits parameter files from cells of measured rows: class-wide set, sets with a chip left out,
overlays, or spreads alone.

Spreads of the tier `spec` are those of chips the parameters have not seen: every chip is predicted
by the set fitted without it. A set that leaves a chip out has the spreads of the others, so that
its intervals have not seen the chip either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from accelsim.calibration.fit.cells import OperatorRows, chip_of, limited
from accelsim.calibration.fit.residuals import FamilyPart, family_parts
from accelsim.calibration.overlay import write_overlay
from accelsim.confidence.residual import FamilyResidual
from accelsim.cost.fitted import read_fitted
from accelsim.cost.gpu import GpuParameters
from accelsim.cost.gpu.gpu_parameters import read_parameters
from accelsim.files.datafile import data_root
from tools.refit.class_fit import ClassFit, fit_class
from tools.refit.class_residuals import class_residuals
from tools.refit.device_fit import fit_device, unseen_residuals
from tools.refit.files import class_file, left_out_name, write_class, write_left_out

Say = Callable[[str], None]
#: Rows of a cell that class-wide parameters are fitted to.
_CLASS_ROWS = 300
_RESIDUAL_ROWS = 1500


class ClassSample:
    """Cells cut to the rows that class-wide fits and spreads use; fits of one sample are made once.

    Args:
        cells: Measured rows of several boards.
        folder: Of class-wide sets; what it lacks is that of the shipped folder.
        keep_values: Take the sets on file instead of fitting, where there are any.
    """

    def __init__(
        self, cells: Sequence[OperatorRows], folder: Path, *, keep_values: bool = False
    ) -> None:
        self.folder, self.keep_values = folder, keep_values
        self.fitted = limited(cells, _CLASS_ROWS, np.random.default_rng(0))
        self.scored = limited(cells, _RESIDUAL_ROWS, np.random.default_rng(1))

    def before(self, name: str = "gpu") -> GpuParameters | None:
        """The set on file."""
        path = class_file(self.folder, name)
        return None if path is None else replace(read_parameters(path), families={})


@lru_cache(maxsize=64)
def _left_out(sample: ClassSample, chip: str) -> ClassFit:
    """The set fitted without a chip; the one on file where values are kept, or the fit does not
    converge.
    """
    before = sample.before(left_out_name(chip))
    if sample.keep_values and before is not None:
        return ClassFit(before)
    fit = fit_class([cell for cell in sample.fitted if chip_of(cell.device.name) != chip])
    return replace(fit, parameters=before) if fit.unconverged and before is not None else fit


@lru_cache(maxsize=64)
def _residuals(sample: ClassSample, chip: str) -> tuple[FamilyPart, ...]:
    """Rows of a chip under the set fitted without it, also those that class-wide fits leave out:
    they are predicted, too.
    """
    parameters = _left_out(sample, chip).parameters
    return tuple(
        part
        for cell in sample.scored
        if chip_of(cell.device.name) == chip
        for part in family_parts(cell, parameters)
    )


def _families(sample: ClassSample, chip: str | None) -> dict[str, FamilyResidual]:
    """Spreads of all chips but one."""
    chips = sorted({chip_of(cell.device.name) for cell in sample.scored} - {chip})
    return class_residuals(part for other in chips for part in _residuals(sample, other))


def refit_class(sample: ClassSample, say: Say) -> tuple[GpuParameters, list[str]]:
    """Fit and write the class-wide set; the previous one stays where a stage does not converge.

    Args:
        sample: Rows of several boards, with the folder of the sets.
        say: Called with a line of text before each step.

    Returns:
        The set, and the stages that did not converge.
    """
    fit, before = fit_class(sample.fitted, progress=say), sample.before()
    if fit.unconverged and before is not None:
        return before, [f"gpu.yaml, {stage}" for stage in fit.unconverged]
    say("spreads of chips left out")
    write_class(fit.values, _families(sample, None), sample.folder)
    return fit.parameters, []


def refit_left_out(chip: str, sample: ClassSample, say: Say) -> list[str]:
    """Fit and write the set without a chip; the previous values stay where a stage does not
    converge.
    """
    say(f"without {chip}")
    fit = _left_out(sample, chip)
    write_left_out(chip, fit.parameters, _families(sample, chip), sample.folder)
    return [f"{left_out_name(chip)}.yaml, {stage}" for stage in fit.unconverged]


def respread_class(sample: ClassSample, chips: Sequence[str], say: Say) -> None:
    """Write the spreads of the class-wide set and of the sets with a chip left out anew; their
    values stay.

    Args:
        sample: Rows of several boards, with the folder of the sets.
        chips: Chips that have a set without them.
        say: Called with a line of text before each step.
    """
    say("spreads of chips left out")
    write_class({}, _families(sample, None), sample.folder)
    for chip in chips:
        write_left_out(
            chip, _left_out(sample, chip).parameters, _families(sample, chip), sample.folder
        )


def respread_device(device: str, cells: Sequence[OperatorRows], folder: Path, say: Say) -> None:
    """Write the spreads of a device's overlay anew: rows its surfaces have not seen; its values
    stay.

    Args:
        device: Catalogue name.
        cells: Measured rows; those of other devices are left out.
        folder: Of overlays; the shipped overlay is taken where it has none of the device.
        say: Called with a line of text.
    """
    path = _overlay_file(device, folder)
    own = [cell for cell in cells if cell.device.name == device]
    if path is None or not own:
        return
    say(f"spreads of {device}")
    overlay = read_fitted(path)
    whole = GpuParameters.class_wide().with_overlay(overlay)
    families, _ = unseen_residuals(own, replace(whole, families={}, surfaces={}))
    write_overlay(replace(overlay, families=families), folder)


def refit_device(
    device: str,
    cells: Sequence[OperatorRows],
    folder: Path,
    say: Say,
    prior: GpuParameters | None = None,
) -> list[str]:
    """Fit and write a device's overlay; the previous one is kept where a stage did not converge."""
    fit = fit_device(device, cells, prior, progress=say)
    if fit.unconverged and _overlay_file(device, folder) is not None:
        return [f"{device}.yaml, {stage}" for stage in fit.unconverged]
    write_overlay(fit.overlay, folder)
    return []


def _overlay_file(device: str, folder: Path) -> Path | None:
    places = (folder, data_root() / "calibration" / "fitted")
    return next((path for place in places if (path := place / f"{device}.yaml").is_file()), None)
