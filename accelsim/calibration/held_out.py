"""What a page of a calibration shows: operators that took no part in the fit, and what was made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from accelsim.calibration.run_file import CalibrationRun
from accelsim.cost.fitted import HeldOutError
from accelsim.frozen import frozen
from accelsim.plain import Document, Values
from accelsim.workloads.graph import FloatArray


@frozen(eq=False)
class HeldOut:
    """Rows that a fit has not seen; n rows.

    Attributes:
        names: What was run, with its format and condition.
        families: Family of each.
        measured_s: Best time of each, shape (n,).
        errors: ln(measured / predicted), shape (n,); NaN where nothing predicts the row.
    """

    names: Sequence[str]
    families: Sequence[str]
    measured_s: FloatArray
    errors: FloatArray

    @property
    def predicted_s(self) -> FloatArray:
        """Predicted times, shape (n,)."""
        return self.measured_s * np.exp(-self.errors)

    def error(self) -> HeldOutError:
        """How far they lie from their predictions."""
        off = np.abs(np.expm1(-self.errors[np.isfinite(self.errors)]))
        return HeldOutError(len(off), *np.quantile(off, (0.5, 0.9)).tolist())

    def band(self) -> tuple[float, float]:
        """Factors of the predicted time between which nine of ten rows were measured."""
        known = self.errors[np.isfinite(self.errors)]
        low, high = np.exp(np.quantile(known, (0.05, 0.95))).tolist()
        return low, high


@frozen(eq=False)
class Fitted:
    """What a calibration made.

    Attributes:
        device: Device its files are for.
        run: The run they come from.
        errors: Of held-out operators, as `calibrate.operator_errors` has them.
        held_out: Those operators.
        figures: What the fit says of the machine, by name.
        files: Written files.
    """

    device: str
    run: CalibrationRun
    errors: list[Document]
    held_out: HeldOut
    figures: Values
    files: Sequence[Path]

    def with_files(self, *files: Path) -> Fitted:
        """The same with further files that were written."""
        return replace(self, files=(*self.files, *files))


def measured_families(run: CalibrationRun) -> list[Document]:
    """What a run measured and skipped, a row per family.

    Args:
        run: The run.
    """
    families: dict[str, Document] = {}
    for row in run.rows:
        names = ("measured", "skipped")
        own = families.setdefault(
            row.case.family, {"family": row.case.family} | dict.fromkeys(names, 0)
        )
        own["measured" if row.time_s else "skipped"] += 1
        own["why"] = own.get("why") or row.skipped or ""
    return [families[name] for name in sorted(families)]
