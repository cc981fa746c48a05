"""Tier `fitted` for GPUs without an overlay of their own: fitted, for one validation, to a data
folder's operator rows.

The fit is the one that shipped overlays come from and sees the same share of shapes; the shapes it
is kept from are scored. Whole models of the folder are only ever predicted. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np

from accelsim.calibration.fit.cells import OperatorRows
from accelsim.cost.gpu import GpuParameters
from accelsim.errors import AccelsimError
from accelsim.hardware.profile import DeviceProfile
from accelsim.scoreboard.data_folder import DataFolder, published
from accelsim.scoreboard.split import held_out_mask
from accelsim.scoreboard.suite import reason_of
from accelsim.scoreboard.tiers import Choice
from tools.refit.device_fit import fit_device
from tools.scoreboard.gpu_operators import KernelPrediction
from tools.scoreboard.gpu_operators import load as load_operators

#: Rows that a fit needs: below, priors decide.
_FEWEST_ROWS = 200


class FolderFits:
    """Fits of one folder, each made once and when it is asked for.

    Args:
        folder: Tables of single operators.
    """

    def __init__(self, folder: DataFolder) -> None:
        self._folder = folder
        self._choices: dict[str, Choice | None] = {}

    @cached_property
    def _cells(self) -> list[OperatorRows]:
        return list(gpu_cells(self._folder))

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
        rows = sum(len(cell) for cell in self._cells if cell.device.name == device.name)
        if rows < _FEWEST_ROWS:
            return None
        try:
            fit = fit_device(device.name, self._cells, progress=progress)
        except AccelsimError as error:
            return _refused(f"no fit to the folder's rows: {reason_of(error)}")
        if fit.unconverged:
            return _refused(f"fit to the folder's rows did not converge: {fit.unconverged[0]}")
        note = f"fitted to {rows:,} operator rows of this folder: {fit.overlay.data}"
        parameters = GpuParameters.class_wide().with_overlay(fit.overlay)
        return Choice("fitted", parameters, note, saw_operators=True)


def _refused(reason: str) -> Choice:
    return Choice("fitted", None, refusal=reason)


def gpu_cells(folder: DataFolder) -> Iterator[OperatorRows]:
    """Operator rows of a data folder that fits may use, by device, operator and table.

    Shapes that validation keeps for scoring never enter. Rows of whole models never enter either:
    they are only ever predicted.
    """
    for batch in load_operators(folder):
        if not isinstance(batch.predict, KernelPrediction):
            continue
        use = ~held_out_mask(batch.label.tolist(), batch.held_out_share)
        words = published("tables")[batch.fit_source]["source"]
        for operator in np.unique(batch.group).tolist():
            rows = np.flatnonzero(use & (batch.group == operator))
            if rows.size:
                yield OperatorRows(operator, words, batch.predict, batch.measured_s).take(rows)
