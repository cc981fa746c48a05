"""What a system's own measured runs are worth: scored rows given back, the rest corrected.

``python -m tools.scoreboard.learning --data DIR`` scores the suites of each family, takes a system
(a model on a board, by its engine) at a time, gives k of its rows to a `Hierarchy` as a profile
would hold them, and scores its other rows with and without the correction. Rows are drawn at random
with a fixed seed. No other system's row is given: nothing is known of a system but its k runs.
The correction is that of the predicted times; no run is simulated again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from accelsim.confidence.hierarchy import Hierarchy
from accelsim.confidence.quantiles import Z90
from accelsim.estimation.learned import SHARES, System
from accelsim.frozen import frozen
from accelsim.scoreboard.score import validate
from accelsim.scoreboard.scored_rows import ScoredRows
from accelsim.workloads.graph import FloatArray

#: Suites of each family; together they hold the whole-model rows that measured systems repeat.
FAMILIES = {
    "serving": ("serving-tpot",),
    "training": (
        "training-fsdp",
        "training-maxtext",
        "training-megatron-bridge",
        "training-published",
        "training-vtrain-single",
    ),
    "single device": ("cnn-gpus", "gpu-models", "mlperf-inference", "published"),
}
GIVEN = (1, 3, 5, 10)
_DRAWS = 5
_SEED = 0
#: A setting's mode and format, where a row has none.
_UNSAID = ("unknown", "unknown")


@frozen(eq=False)
class SystemRows:
    """Scored rows of one system; n rows.

    Attributes:
        effects: What each row shares with others, length n.
        log_ratio: ln(measured / predicted), shape (n,).
        log_sigma: Its spread before anything was measured, shape (n,).
    """

    effects: tuple[tuple[str, ...], ...]
    log_ratio: FloatArray
    log_sigma: FloatArray


@frozen
class Learnt:
    """The rest of all systems of a family, without and with k rows of their own.

    Attributes:
        given: Rows given back, k.
        systems: Systems with more rows than k.
        worse: Those whose median error grows by more than the half width of their interval.
        error: Median absolute error without and with, fractions of the measured time.
        coverage: Share of rows inside their 90 % interval, the same.
        width: Median of (high - low) / predicted, the same.
    """

    given: int
    systems: int
    worse: int
    error: tuple[float, float]
    coverage: tuple[float, float]
    width: tuple[float, float]


def systems_of(parts: Iterable[ScoredRows], suite: str) -> Iterator[SystemRows]:
    """Answered rows of a suite that have an interval, by board and model."""
    found: dict[tuple[str, str], list[tuple[tuple[str, ...], float, float]]] = {}
    for part in parts:
        known = (part.low_s < part.high_s) & np.isfinite(part.predicted_s)
        for row in np.flatnonzero(known):
            mode, precision = (*str(part.setting[row]).split(), *_UNSAID)[:2]
            model = str(part.group[row])
            system = System(mode, part.profile, suite, "", precision, model, "")
            ratio = float(np.log(part.measured_s[row] / part.predicted_s[row]))
            sigma = float(np.log(part.high_s[row] / part.low_s[row]) / (2 * Z90))
            found.setdefault((part.profile, model), []).append((system.effects, ratio, sigma))
    for rows in found.values():
        effects, ratios, sigmas = zip(*rows, strict=True)
        yield SystemRows(tuple(effects), np.array(ratios), np.array(sigmas))


def learnt(systems: Iterable[SystemRows], given: int) -> Learnt | None:
    """Give k rows of each system back and score its others; None where no system has more rows.

    Args:
        systems: The systems.
        given: Rows given back, k >= 1.
    """
    generator = np.random.default_rng(_SEED)
    asked = [system for system in systems if len(system.log_ratio) > given]
    if not asked:
        return None
    rest = [_rest(system, given, generator) for system in asked]
    ratio, *sigmas, shift = np.concatenate(rest, axis=1)
    scored = [_figures(ratio - by, sigma) for by, sigma in zip((0.0, shift), sigmas, strict=True)]
    error, coverage, width = zip(*scored, strict=True)
    return Learnt(given, len(asked), sum(map(is_worse, rest)), error, coverage, width)


def _rest(system: SystemRows, given: int, generator: np.random.Generator) -> FloatArray:
    """Rows that were not given, of all draws: ln(measured / predicted), its spread before and then,
    and the correction, shape (4, n).
    """
    found = []
    for _ in range(_DRAWS):
        order = generator.permutation(len(system.log_ratio))
        kept, others = order[:given], order[given:]
        effects = [system.effects[row] for row in kept]
        values = (system.log_ratio[kept], system.log_sigma[kept])
        hierarchy = Hierarchy.of(effects, *values, SHARES)
        for row in others:
            sigma = float(system.log_sigma[row])
            known = hierarchy.correction(system.effects[row], sigma)
            found.append((system.log_ratio[row], sigma, known.log_sigma, known.shift))
    return np.array(found).T


def _figures(log_ratio: FloatArray, log_sigma: FloatArray) -> tuple[float, float, float]:
    """Median error, coverage and median width of rows."""
    error = np.abs(np.expm1(-log_ratio))
    inside = np.abs(log_ratio) <= Z90 * log_sigma
    width = 2 * np.sinh(Z90 * log_sigma)
    return float(np.median(error)), float(inside.mean()), float(np.median(width))


def is_worse(rest: FloatArray) -> bool:
    """Whether a system's median error grows by more than the half width of its interval."""
    ratio, before, then, shift = rest
    growth = _figures(ratio - shift, then)[0] - _figures(ratio, before)[0]
    return growth > _figures(ratio, then)[2] / 2


def table(found: Mapping[str, Iterable[Learnt]]) -> str:
    """A line a family and number of rows given back, as Markdown."""
    lines = [
        "| family | rows given | systems | median error | coverage | width | systems worse |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for family, rows in found.items():
        for row in rows:
            pairs = (row.error, row.coverage, row.width)
            shown = " | ".join(f"{100 * a:.1f} → {100 * b:.1f} %" for a, b in pairs)
            lines.append(f"| {family} | {row.given} | {row.systems} | {shown} | {row.worse} |")
    return "\n".join(lines)


def main() -> None:
    """Score the suites of all families and print what rows given back make of them."""
    parser = argparse.ArgumentParser(prog="python -m tools.scoreboard.learning")
    parser.add_argument("--data", type=Path, required=True, help="Folder of measured tables.")
    data = parser.parse_args().data
    found = {}
    for family, names in FAMILIES.items():
        board = validate(names, data)
        systems = [s for one in board.suites for s in systems_of(one.rows, one.suite.name)]
        found[family] = [row for k in GIVEN if (row := learnt(systems, k)) is not None]
    sys.stdout.write(table(found) + "\n")


if __name__ == "__main__":
    main()
