"""What a system's own measured runs are worth: scored rows given back, the rest corrected.

``python -m tools.scoreboard.learning --data DIR`` scores the suites of each family, takes a system
(a model on a board, by its engine) at a time, gives k of its rows to a `Hierarchy` as a profile
would hold them, and scores its other rows with and without the correction. Rows are drawn at random
with a fixed seed. No other system's row is given: nothing is known of a system but its k runs. How
variance is shared was estimated without the system: from four fifths of all systems, five times.
The correction is that of the predicted times; no run is simulated again. ``--write FILE`` writes
the shares estimated from all systems, which ship.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import yaml

from accelsim.confidence.hierarchy import Components, Correction, Hierarchy, Runs
from accelsim.confidence.quantiles import Z90, residual_figures
from accelsim.estimation.learned import LEVELS, System
from accelsim.frozen import frozen
from accelsim.scoreboard.score import validate
from accelsim.scoreboard.scored_rows import ScoredRows
from accelsim.workloads.graph import FloatArray
from tools.scoreboard.learning_fit import fitted_components

#: Suites of each family; together they hold the whole-model rows that measured systems repeat.
FAMILIES = {
    "serving": ("serving-tpot",),
    "first tokens": ("serving-ttft-mean",),
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
#: Phases of modes, by their end.
_PHASES = {"training": "training", "tpot": "decode", "ttft": "prompt"}
#: Sizes of a plan that a rank's passes depend on, and the version of a library.
_RANK_SIZES = frozenset({"microbatch", "tp", "cp", "ep", "tokens"})
_VERSION = re.compile(r"cuDNN (\S+)")
_ABOUT = """\
# How runs share the variance of ln(measured / predicted), by phase, for the levels of
# accelsim.estimation.learned.System.effects; near: of runs of a system, the nearer their sizes;
# length: the distance in ln(size) over which that falls to 1/e; the rest is a run's own.
# Written by python -m tools.scoreboard.learning --write.
"""
#: Parts of the systems, each of which is left out of an estimate of how variance is shared.
_PARTS = 5


@frozen(eq=False)
class SystemRows:
    """Scored rows of one system; n rows.

    Attributes:
        phases: Phase of each, as `System` has it, length n.
        runs: The rows.
    """

    phases: tuple[str, ...]
    runs: Runs


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
    found: dict[tuple[str, str], list[tuple[System, float, float]]] = {}
    for part in parts:
        known = (part.low_s < part.high_s) & np.isfinite(part.predicted_s)
        for row in np.flatnonzero(known):
            mode, precision = (*str(part.setting[row]).split(), *_UNSAID)[:2]
            model, label = str(part.group[row]), str(part.label[row])
            phase = next((p for end, p in _PHASES.items() if mode.endswith(end)), "inference")
            version, sizes = _VERSION.search(label), label_sizes(label)
            names = (part.profile, f"{mode} of {suite}", version[1] if version else "")
            system = System(phase, *names, precision, model, "", sizes)
            ratio = float(np.log(part.measured_s[row] / part.predicted_s[row]))
            sigma = float(np.log(part.high_s[row] / part.low_s[row]) / (2 * Z90))
            found.setdefault((part.profile, model), []).append((system, ratio, sigma))
    for rows in found.values():
        systems, ratios, sigmas = zip(*rows, strict=True)
        places, known_sizes = [s.effects for s in systems], [s.sizes for s in systems]
        runs = Runs(places, known_sizes, np.array(ratios), np.array(sigmas))
        yield SystemRows(tuple(system.phase for system in systems), runs)


def label_sizes(label: str) -> dict[str, float]:
    """Sizes of a rank's passes, as far as a row's label says them; of loads of servers none, as
    their steps are corrected whatever the load.
    """
    if "users" in label:
        return {}
    named = {name.lower(): size for name, size in re.findall(r"(\w+)=(\d+)\b", label)}
    named |= {name: size for size, name in re.findall(r"(\d+) (tokens)", label)}
    batch = re.search(r"batch (\d+)", label)
    if "=" in label:
        kept = {name: size for name, size in named.items() if name in _RANK_SIZES}
    elif batch:
        kept = {"batch": batch[1]}
    else:
        kept = dict(enumerate(re.findall(r"(?<=[ -])\d+(?=[ -]|$)", label)))
    return {str(name): float(size) for name, size in kept.items() if float(size) > 0}


def learnt(
    systems: Sequence[SystemRows], given: int, components: Sequence[Mapping[str, Components]]
) -> Learnt | None:
    """Give k rows of each system back and score its others; None where no system has more rows.

    Args:
        systems: The systems.
        given: Rows given back, k >= 1.
        components: Of each system by phase, estimated without it.
    """
    generator = np.random.default_rng(_SEED)
    asked = [
        (system, own)
        for system, own in zip(systems, components, strict=True)
        if len(system.phases) > given
    ]
    if not asked:
        return None
    rest = [_rest(system, given, own, generator) for system, own in asked]
    ratio, *sigmas, shift = np.concatenate(rest, axis=1)
    scored = [
        residual_figures(ratio - by, sigma) for by, sigma in zip((0.0, shift), sigmas, strict=True)
    ]
    error, coverage, width = zip(*scored, strict=True)
    return Learnt(given, len(asked), sum(map(is_worse, rest)), error, coverage, width)


def _rest(
    system: SystemRows,
    given: int,
    components: Mapping[str, Components],
    generator: np.random.Generator,
) -> FloatArray:
    """Rows that were not given, of all draws: ln(measured / predicted), its spread before and then,
    and the correction, shape (4, n).
    """
    found, phases, runs = [], np.array(system.phases), system.runs
    for _ in range(_DRAWS):
        order = generator.permutation(len(phases))
        for phase in sorted(set(system.phases)):
            kept, others = (
                [row for row in rows if phases[row] == phase]
                for rows in (order[:given], order[given:])
            )
            told = Hierarchy.of(rows_of(runs, kept), components[phase]) if kept else None
            for row in others:
                ratio, sigma = runs.log_ratio[row], float(runs.log_sigma[row])
                known = Correction(0.0, sigma)
                if told is not None:
                    known = told.correction(runs.effects[row], runs.sizes[row], sigma)
                found.append((ratio, sigma, known.log_sigma, known.shift))
    return np.array(found).T


def rows_of(runs: Runs, rows: Sequence[int]) -> Runs:
    """Some of the rows."""
    effects, sizes = [runs.effects[row] for row in rows], [runs.sizes[row] for row in rows]
    return Runs(effects, sizes, runs.log_ratio[rows], runs.log_sigma[rows])


def is_worse(rest: FloatArray) -> bool:
    """Whether a system's median error grows by more than the half width of its interval."""
    ratio, before, then, shift = rest
    growth = residual_figures(ratio - shift, then)[0] - residual_figures(ratio, before)[0]
    return growth > residual_figures(ratio, then)[2] / 2


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


def components_of(systems: Iterable[SystemRows]) -> dict[str, Components]:
    """Components of each phase, from rows of systems."""
    by_phase: dict[str, list[Runs]] = {}
    for system in systems:
        for phase in sorted(set(system.phases)):
            rows = [row for row, own in enumerate(system.phases) if own == phase]
            by_phase.setdefault(phase, []).append(rows_of(system.runs, rows))
    return {phase: fitted_components(_joined(runs)) for phase, runs in by_phase.items()}


def _joined(runs: Sequence[Runs]) -> Runs:
    return Runs(
        [effects for one in runs for effects in one.effects],
        [sizes for one in runs for sizes in one.sizes],
        np.concatenate([one.log_ratio for one in runs]),
        np.concatenate([one.log_sigma for one in runs]),
    )


def left_out(systems: Sequence[SystemRows]) -> list[dict[str, Components]]:
    """Components for each system, from the systems of other parts than its own."""
    part = np.random.default_rng(_SEED).permutation(len(systems)) % _PARTS
    own = [
        components_of(s for s, other in zip(systems, part, strict=True) if other != one)
        for one in range(_PARTS)
    ]
    return [own[one] for one in part]


def shares_text(components: Mapping[str, Components], systems: Sequence[SystemRows]) -> str:
    """The file of components that ships."""
    phases = {}
    for phase, own in sorted(components.items()):
        rows = [sum(one == phase for one in system.phases) for system in systems]
        phases[phase] = {
            "shares": {n: round(s, 3) for n, s in zip(LEVELS, own.shares, strict=True)},
            "near": round(own.near, 3),
            "length": round(own.length, 2),
            "rows": sum(rows),
            "systems": sum(map(bool, rows)),
        }
    names = ", ".join(name for names in FAMILIES.values() for name in names)
    source = f"maximum likelihood over residuals of the suites {names}"
    data = {"kind": "learned_errors", "source": source, "phases": phases}
    return _ABOUT + yaml.safe_dump(data, sort_keys=False, width=130)


def main() -> None:
    """Score the suites of all families and print what rows given back make of them."""
    parser = argparse.ArgumentParser(prog="python -m tools.scoreboard.learning")
    parser.add_argument("--data", type=Path, required=True, help="Folder of measured tables.")
    parser.add_argument("--write", type=Path, help="Write the shares of all systems there.")
    said = parser.parse_args()
    families = {}
    for family, names in FAMILIES.items():
        board = validate(names, said.data)
        families[family] = [s for one in board.suites for s in systems_of(one.rows, one.suite.name)]
    systems = [system for rows in families.values() for system in rows]
    components = iter(left_out(systems))
    found = {}
    for family, rows in families.items():
        own = [next(components) for _ in rows]
        tried = (learnt(rows, given, own) for given in GIVEN)
        found[family] = [row for row in tried if row is not None]
    sys.stdout.write(table(found) + "\n")
    if said.write is not None:
        said.write.write_text(shares_text(components_of(systems), systems), encoding="utf-8")


if __name__ == "__main__":
    main()
