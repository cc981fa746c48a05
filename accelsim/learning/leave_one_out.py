"""The user's own runs as a scoreboard: each predicted, and corrected by all the others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from accelsim.arguments import checked
from accelsim.confidence.hierarchy import Correction
from accelsim.confidence.quantiles import Z90, residual_figures
from accelsim.estimation.learned import Learned, LearnedRun, read_learned
from accelsim.frozen import frozen
from accelsim.learning.learn import learn
from accelsim.plain import Document

_FORMAT = b'"accelsim-learned"'
_HEAD_BYTES = 1_000


@frozen(eq=False)
class ScoredRuns:
    """Runs with and without what the others say.

    Attributes:
        rows: One mapping a run: what it is of, `off_fraction` (measured over predicted, less one),
            and the half of its 90 % interval over the prediction (`spread_fraction`), each also as
            "learned_" from the runs of all other lines and results.
    """

    rows: Sequence[Document]

    def summary(self) -> list[Document]:
        """One mapping a phase: runs, median error, share inside the interval, median width."""
        phases = dict.fromkeys(row["phase"] for row in self.rows)
        return [_summary([r for r in self.rows if r["phase"] == phase]) for phase in phases]


@checked
def score_runs(runs: str | Path) -> ScoredRuns:
    """Score a user's own runs, each corrected by the others (leave one out).

    Phases of one run of a server are left out together.

    Args:
        runs: A file that `learn` reads, or a profile that it made.

    Raises:
        InputError: If the file cannot be read, or says too little; its subclasses say which.
    """
    path = Path(runs)
    profile = read_learned(path) if _is_profile(path) else learn([path]).profile
    return ScoredRuns([_row(profile, run) for run in profile.ordered])


def _is_profile(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return _FORMAT in file.read(_HEAD_BYTES)


def _row(profile: Learned, run: LearnedRun) -> Document:
    others = tuple(candidate for candidate in profile.runs if candidate.source != run.source)
    correction = Correction(0.0, run.log_sigma)
    if others:
        correction = profile.of_runs(others).correction(run.system, run.log_sigma)
    return {
        **{name: getattr(run, name) for name in ("source", "phase", "model", "device")},
        "measured_s": run.measured,
        "predicted_s": run.predicted,
        "off_fraction": run.ratio - 1.0,
        "spread_fraction": math.expm1(Z90 * run.log_sigma),
        "learned_off_fraction": run.ratio / math.exp(correction.shift) - 1.0,
        "learned_spread_fraction": math.expm1(Z90 * correction.log_sigma),
    }


def _summary(rows: Sequence[Document]) -> Document:
    summary: Document = {"phase": rows[0]["phase"], "runs": len(rows)}
    for start in ("", "learned_"):
        off, spread = (
            np.log1p([row[f"{start}{name}_fraction"] for row in rows]) for name in ("off", "spread")
        )
        figures = zip(
            ("error", "coverage", "width"), residual_figures(off, spread / Z90), strict=True
        )
        summary |= {f"{start}{name}_fraction": figure for name, figure in figures}
    return summary
