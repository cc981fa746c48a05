"""Tier `fitted` for GPUs without an overlay of their own: fitted, for one validation, to a data
folder's operator rows.

The fit is the one that shipped overlays come from and sees the same share of shapes; the shapes it
is kept from are scored. Whole models of the folder are only ever predicted. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable

from accelsim.calibration.fit.cells import Cell
from accelsim.cost.gpu import GpuParameters
from accelsim.errors import AccelsimError
from accelsim.hardware.profile import DeviceProfile
from accelsim.validation.data_folder import DataFolder
from accelsim.validation.device_fit import fit_device
from accelsim.validation.fit_rows import gpu_cells
from accelsim.validation.tiers import Choice

__all__ = ["FolderFits"]

#: Rows that a fit needs: below, priors decide.
_FEWEST_ROWS = 200


class FolderFits:
    """Fits of one folder, each made once and when it is asked for.

    Args:
        folder: Tables of single operators.
    """

    def __init__(self, folder: DataFolder) -> None:
        self._folder = folder
        self._cells: list[Cell] | None = None
        self._choices: dict[str, Choice | None] = {}

    def choice(self, device: DeviceProfile, progress: Callable[[str], None]) -> Choice | None:
        """Parameters fitted to a device's rows in the folder; None where it has too few.

        Args:
            device: Its profile.
            progress: Called with a line of text before each stage.
        """
        if device.name not in self._choices:
            self._choices[device.name] = self._fitted(device, progress)
        return self._choices[device.name]

    def _fitted(self, device: DeviceProfile, progress: Callable[[str], None]) -> Choice | None:
        if self._cells is None:
            self._cells = gpu_cells(self._folder)
        rows = sum(len(cell) for cell in self._cells if cell.device.name == device.name)
        if rows < _FEWEST_ROWS:
            return None
        try:
            fit = fit_device(device.name, self._cells, progress=progress)
        except AccelsimError as error:
            return Choice(
                "fitted", None, refusal=f"no fit to the folder's rows: {str(error).split('. ')[0]}"
            )
        if fit.unconverged:
            return Choice(
                "fitted",
                None,
                refusal=f"fit to the folder's rows did not converge: {fit.unconverged[0]}",
            )
        note = f"fitted to {rows:,} operator rows of this folder: {fit.overlay.data}"
        parameters = GpuParameters.class_wide().with_overlay(fit.overlay)
        return Choice("fitted", parameters, note, saw_operators=True)
