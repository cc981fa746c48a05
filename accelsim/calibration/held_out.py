"""What a page of a calibration shows: operators that took no part in the fit, and what was made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from accelsim.calibration.measurement.case import Case
from accelsim.calibration.run_file import CalibrationRun
from accelsim.cost.fitted import HeldOutError
from accelsim.frozen import frozen
from accelsim.plain import Document, Values, grouped
from accelsim.workloads.graph import FloatArray

#: Threads, family and format.
ErrorGroup = tuple[int, str, str]


@frozen(eq=False)
class HeldOut:
    """Rows that a fit has not seen; n rows.

    Attributes:
        cases: What was run, with its format and condition.
        measured_s: Best time of each, shape (n,).
        errors: ln(measured / predicted), shape (n,); NaN where nothing predicts the row.
    """

    cases: Sequence[Case]
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
        finite = self.errors[np.isfinite(self.errors)]
        low, high = np.exp(np.quantile(finite, (0.05, 0.95))).tolist()
        return low, high

    def error_rows(self, groups_of: Callable[[Case], Iterable[ErrorGroup]]) -> list[Document]:
        """Errors by group, in the groups' order; those that nothing predicts are left out.

        Args:
            groups_of: Threads, family and format that a case counts for, "all" for all of them.

        Returns:
            Rows with family, threads, dtype, rows, mape_fraction, median_fraction, p90_fraction.
        """
        ape = np.abs(np.expm1(-self.errors))
        groups: dict[ErrorGroup, list[float]] = {}
        for case, error in zip(self.cases, ape.tolist(), strict=True):
            for group in groups_of(case) if np.isfinite(error) else ():
                groups.setdefault(group, []).append(error)
        return [
            {
                "family": family,
                "threads": threads,
                "dtype": dtype,
                "rows": len(errors),
                "mape_fraction": float(np.mean(errors)),
                "median_fraction": float(np.median(errors)),
                "p90_fraction": float(np.quantile(errors, 0.9)),
            }
            for (threads, family, dtype), errors in sorted(groups.items())
        ]


@frozen(eq=False)
class Fitted:
    """What a calibration made.

    Attributes:
        device: Device its files are for.
        run: The run they come from.
        errors: Of held-out operators, as `HeldOut.error_rows` has them.
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


def measured_families(run: CalibrationRun) -> list[Document]:
    """What a run measured and skipped, a row per family.

    Args:
        run: The run.
    """
    families = grouped(run.rows, lambda row: row.case.family)
    return [
        {
            "family": family,
            "measured": sum(1 for row in rows if row.time_s),
            "skipped": sum(1 for row in rows if not row.time_s),
            "why": next((row.skipped for row in rows if row.skipped), ""),
        }
        for family, rows in sorted(families.items())
    ]
