"""The user's own runs as a scoreboard: each predicted, and corrected by all the others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median

from accelsim.arguments import checked
from accelsim.confidence.quantiles import Z90
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
            whether its 90 % interval holds it, and its width over the prediction, each also as
            "learned_" from the runs of all other files and lines.
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
    others = tuple(one for one in profile.runs if one.source != run.source)
    shift, log_sigma = 0.0, run.log_sigma
    if others:
        known = profile.of_runs(others).correction(run.system, run.log_sigma)
        shift, log_sigma = known.shift, known.log_sigma
    found: Document = {name: getattr(run, name) for name in ("source", "phase", "model", "device")}
    found |= {"measured_s": run.measured, "predicted_s": run.predicted}
    for start, log_ratio, sigma in (
        ("", math.log(run.ratio), run.log_sigma),
        ("learned_", math.log(run.ratio) - shift, log_sigma),
    ):
        found[f"{start}off_fraction"] = math.expm1(log_ratio)
        found[f"{start}is_inside"] = abs(log_ratio) <= Z90 * sigma
        found[f"{start}width_fraction"] = 2 * math.sinh(Z90 * sigma)
    return found


def _summary(rows: Sequence[Document]) -> Document:
    found: Document = {"phase": rows[0]["phase"], "runs": len(rows)}
    for start in ("", "learned_"):
        errors = [abs(1 / (1 + row[f"{start}off_fraction"]) - 1) for row in rows]
        found[f"{start}error_fraction"] = median(errors)
        found[f"{start}coverage_fraction"] = fmean(row[f"{start}is_inside"] for row in rows)
        found[f"{start}width_fraction"] = median(row[f"{start}width_fraction"] for row in rows)
    return found
