"""Decisions tried on measured alternatives: whether the predicted best was the best, what it lost,
and whether the stated probability came true.

``python -m tools.scoreboard.decisions --data DIR`` takes the scored rows of suites apart into
questions whose alternatives were all measured (which device, engine, format, layout of ranks, plan
or batch), each with the same of everything else. A question's probability is stated with the share
of the error that decisions of *other* systems (models) show.

Questions of more alternatives than are measured are then answered anew after three runs: those that
`accelsim.confidence.next_run` proposes, each after the one before was seen, and random ones.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import NormalDist

import numpy as np

from accelsim.confidence.best import NEAR, near_best_probability
from accelsim.confidence.next_run import Alternatives
from accelsim.confidence.quantiles import Z90
from accelsim.frozen import frozen
from accelsim.scoreboard.score import validate
from accelsim.scoreboard.scored_rows import ScoredRows
from accelsim.workloads.graph import FloatArray

#: Least decisions of a bin of the reliability table.
_BIN = 100
_RESAMPLED = 1000
#: Runs that are measured before a question is answered anew.
_RUNS = 3
#: Alternatives nearest to the predicted best among which a run is proposed, and drawn.
_NEAREST = 12
#: Random choices of runs, whose regrets are averaged.
_RANDOM = 10
#: Two alternatives this far apart, as measured, have an order worth predicting.
_APART = 0.10
#: Median of the square of a standard normal number.
_MEDIAN_SQUARE = NormalDist().inv_cdf(0.75) ** 2


@frozen
class Asked:
    """A row as an alternative of a question.

    Attributes:
        kind: What the question is about: "device", "engine", "format", "layout", "plan" or "batch".
        question: What all its alternatives have in common.
        answer: What the alternative is.
        per: Samples that its time is of: questions about batches compare times of a sample.
    """

    kind: str
    question: tuple[str, ...]
    answer: str
    per: float = 1.0


def _of_server(part: ScoredRows, row: int) -> Iterator[Asked]:
    """Questions of a served load: its device, engine, format and layout of as many ranks."""
    names = ("model", "load", "users", "split", "format", "engine", "layout")
    cells = dict(
        zip(names, (cell.strip() for cell in str(part.label[row]).split("|")), strict=True)
    )
    cells["device"] = part.profile
    for kind in ("device", "engine", "format", "layout"):
        rest = tuple(value for name, value in cells.items() if name != kind)
        ranks = cells["layout"].split("-")[:2] if kind == "layout" else []
        count = str(np.prod([int(digits) for digits in ranks if digits.isdigit()]))
        yield Asked(kind, (*rest, count), cells[kind])


def _of_plan(part: ScoredRows, row: int) -> Iterator[Asked]:
    """The question of a training run: its plan."""
    run, _, plan = str(part.label[row]).partition(": ")
    yield Asked("plan", (part.profile, run), plan)


def _of_board(part: ScoredRows, row: int) -> Iterator[Asked]:
    """Questions of a run on one device: the device, and its batch where the label says it."""
    label = re.sub(r" (on|cuDNN) .*", "", str(part.label[row]))
    same = (str(part.group[row]), str(part.setting[row]))
    yield Asked("device", (*same, label), part.profile)
    if batch := re.search(r"batch (\d+)|-\d+-(\d+)$", label):
        rest = label.replace(batch.group(0), "")
        size = batch.group(1) or batch.group(2)
        yield Asked("batch", (*same, part.device, rest), size, float(size))


#: How rows of a suite are alternatives.
SUITES: dict[str, Callable[[ScoredRows, int], Iterator[Asked]]] = {
    "serving-tpot": _of_server,
    "training-fsdp": _of_plan,
    "training-published": _of_plan,
    "training-vtrain-multi": _of_plan,
    "training-vtrain-single": _of_plan,
    "cnn-gpus": _of_board,
    "dpu": _of_board,
    "gpu-models": _of_board,
    "llama-cpp": _of_board,
    "mlperf-inference": _of_board,
    "published": _of_board,
}


@frozen(eq=False)
class Decision:
    """A question with n measured alternatives, n >= 2.

    Attributes:
        kind: As in `Asked`.
        system: The model, whose decisions are resampled and left out together.
        measured: Times, shape (n,).
        predicted: The same as predicted.
        log_sigma: Spread of each.
    """

    kind: str
    system: str
    measured: FloatArray
    predicted: FloatArray
    log_sigma: FloatArray

    @property
    def regret(self) -> float:
        """What the predicted best loses to the best, a fraction."""
        return float(self.measured[self.predicted.argmin()] / self.measured.min() - 1.0)

    def own_ratios(self) -> FloatArray:
        """Squared difference of two errors over the sum of their variances, a pair each."""
        error = np.log(self.measured / self.predicted)
        one, other = np.triu_indices(len(error), 1)
        spread = self.log_sigma[one] ** 2 + self.log_sigma[other] ** 2
        return np.asarray((error[one] - error[other]) ** 2 / spread, dtype=np.float64)

    def ordered_pairs(self) -> tuple[int, int]:
        """Pairs more than a tenth apart, and how many of them are in order."""
        one, other = np.triu_indices(len(self.measured), 1)
        truth = np.log(self.measured[one] / self.measured[other])
        said = np.log(self.predicted[one] / self.predicted[other])
        apart = np.abs(truth) > _APART
        return int(apart.sum()), int((truth * said > 0)[apart].sum())


def decisions_of(parts: Iterable[ScoredRows], suite: str) -> list[Decision]:
    """Decisions of a suite's answered rows; of two rows of one alternative the first counts."""
    asked: dict[tuple[str, ...], dict[str, tuple[float, ...]]] = defaultdict(dict)
    systems: dict[tuple[str, ...], str] = {}
    for part in parts:
        known = (part.low_s < part.high_s) & np.isfinite(part.predicted_s)
        sigma = np.log(part.high_s / part.low_s) / (2 * Z90)
        for row in np.flatnonzero(known).tolist():
            for one in SUITES[suite](part, row):
                key = (one.kind, *one.question)
                times = (part.measured_s[row] / one.per, part.predicted_s[row] / one.per)
                asked[key].setdefault(one.answer, (*times, sigma[row]))
                systems.setdefault(key, str(part.group[row]).partition(" (")[0])
    return [
        Decision(key[0], systems[key], *np.array(list(answers.values())).T)
        for key, answers in asked.items()
        if len(answers) > 1
    ]


def own_share(ratios: Sequence[FloatArray]) -> float:
    """Share of the variance of an error that is an alternative's own: the median of pairs, each
    decision counting once.

    Args:
        ratios: `Decision.own_ratios` of each decision.
    """
    ratio = np.concatenate(ratios)
    weight = np.concatenate([np.full(len(part), 1 / len(part)) for part in ratios])
    order = np.argsort(ratio, kind="stable")
    place = np.searchsorted(weight[order].cumsum(), weight.sum() / 2)
    return float(min(ratio[order][place] / _MEDIAN_SQUARE, 1.0))


def stated(decisions: Sequence[Decision]) -> FloatArray:
    """Probability that the predicted best is within 5 % of the best, by decision; shape (n,)."""
    shares = own_shares(decisions)
    return np.array(
        [
            near_best_probability(d.predicted, d.log_sigma, own_share=shares[d.system])[
                d.predicted.argmin()
            ]
            for d in decisions
        ]
    )


def own_shares(decisions: Sequence[Decision]) -> dict[str, float]:
    """By system, the own share of the error that decisions of the others show."""
    pairs = [(decision.system, decision.own_ratios()) for decision in decisions]
    return {
        system: own_share([ratios for other, ratios in pairs if other != system])
        for system in dict(pairs)
    }


@frozen
class Replayed:
    """Regrets of a question with more than three alternatives.

    Attributes:
        kind: As in `Asked`.
        unmeasured: Of the predicted best.
        proposed: After three runs that were proposed.
        near: After three random ones of the twelve nearest to the predicted best, in the mean.
        random: After three random ones of all.
    """

    kind: str
    unmeasured: float
    proposed: float
    near: float
    random: float


def replayed(decisions: Sequence[Decision]) -> list[Replayed]:
    """Questions with more than three alternatives, answered anew after three runs."""
    shares = own_shares(decisions)
    generator = np.random.default_rng(0)
    found = []
    for one in decisions:
        if (count := len(one.measured)) <= _RUNS:
            continue
        alike = [""] * count
        known = Alternatives.of(one.predicted, one.log_sigma, alike, shares[one.system])
        near = np.argsort(one.predicted, kind="stable")[:_NEAREST]
        regrets = [
            np.mean(
                [_regret(one, known, generator.permutation(among)[:_RUNS]) for _ in range(_RANDOM)]
            )
            for among in (near, np.arange(count))
        ]
        found.append(Replayed(one.kind, one.regret, _proposed(one, known), *map(float, regrets)))
    return found


def _proposed(decision: Decision, known: Alternatives) -> float:
    """Regret after runs that are proposed, each after the one before."""
    seen: list[int] = []
    for _ in range(_RUNS):
        near = [p for p in np.argsort(known.mean)[:_NEAREST].tolist() if p not in seen]
        seen.append(max(near, key=lambda place: known.saving([place])))
        known = known.after(seen[-1], decision.measured[seen[-1]])
    return float(decision.measured[known.choice] / decision.measured.min() - 1.0)


def _regret(decision: Decision, known: Alternatives, places: Iterable[int]) -> float:
    """Regret after runs of some alternatives."""
    for place in places:
        known = known.after(place, decision.measured[place])
    return float(decision.measured[known.choice] / decision.measured.min() - 1.0)


@frozen
class Reliability:
    """A bin of decisions of like probability.

    Attributes:
        count: Decisions.
        said: Mean stated probability.
        seen: Share that came true.
        low: Low end of the 95 % band of `seen`, resampled by system, no narrower than Wilson's.
        high: High end.
    """

    count: int
    said: float
    seen: float
    low: float
    high: float

    @property
    def holds(self) -> bool:
        """Whether what was said lies in the band."""
        return self.low <= self.said <= self.high


def reliability(decisions: Sequence[Decision], said: FloatArray) -> list[Reliability]:
    """Bins of at least 100 decisions by rising probability.

    Args:
        decisions: n decisions.
        said: Their stated probabilities, shape (n,).
    """
    came = np.array([decision.regret <= NEAR for decision in decisions])
    system = np.array([decision.system for decision in decisions])
    order = np.argsort(said, kind="stable")
    bins = np.array_split(order, max(len(order) // _BIN, 1))
    return [
        Reliability(len(rows), float(said[rows].mean()), *_seen(came[rows], system[rows]))
        for rows in bins
    ]


def _seen(came: FloatArray, system: FloatArray) -> tuple[float, float, float]:
    """Share that came true with its band: quantiles of samples of systems, drawn with replacement,
    together with the interval of Wilson (Journal of the American Statistical Association 22, 1927).
    """
    names, member = np.unique(system, return_inverse=True)
    totals = np.bincount(member, came)
    sizes = np.bincount(member)
    drawn = np.random.default_rng(0).integers(len(names), size=(_RESAMPLED, len(names)))
    shares = totals[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)
    low, high = np.quantile(shares, [0.025, 0.975])
    n, share, z = len(came), float(came.mean()), NormalDist().inv_cdf(0.975)
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return share, float(min(low, middle - half)), float(max(high, middle + half))


def report(decisions: Sequence[Decision], said: FloatArray) -> str:
    """Decisions by kind, the reliability table and the Brier score, as Markdown."""
    lines = [
        "| which | decisions | right | regret | p90 | pairs > 10 % apart | in order | said | was |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    kinds = [decision.kind for decision in decisions]
    for kind in (*sorted(set(kinds)), "all"):
        rows = [place for place, name in enumerate(kinds) if kind in (name, "all")]
        part = [decisions[place] for place in rows]
        regret = np.array([decision.regret for decision in part])
        pairs, ordered = np.sum([decision.ordered_pairs() for decision in part], axis=0)
        shares = (
            (regret == 0.0).mean(),
            regret.mean(),
            np.quantile(regret, 0.9),
            ordered / max(pairs, 1),
            said[rows].mean(),
            (regret <= NEAR).mean(),
        )
        right, mean, p90, order, told, was = (f"{100 * share:.1f} %" for share in shares)
        lines.append(
            f"| {kind} | {len(part)} | {right} | {mean} | {p90} | {pairs:,} | {order} | {told} "
            f"| {was} |"
        )
    lines += ["", "| decisions | said | came true | 95 % band | holds |", "|--:|--:|--:|--:|---|"]
    for row in reliability(decisions, said):
        ends = f"{100 * row.low:.1f}-{100 * row.high:.1f} %"
        shown = f"{100 * row.said:.1f} % | {100 * row.seen:.1f} % | {ends}"
        lines.append(f"| {row.count} | {shown} | {'yes' if row.holds else 'no'} |")
    came = np.array([decision.regret <= NEAR for decision in decisions], dtype=np.float64)
    brier, base = float(((said - came) ** 2).mean()), float(came.mean() * (1 - came.mean()))
    lines += ["", f"Brier score {brier:.4f}; of the base rate {base:.4f}; own share of the error "]
    lines[-1] += f"{own_share([d.own_ratios() for d in decisions]):.3f}."
    return "\n".join([*lines, "", *_replay_lines(decisions)])


def _replay_lines(decisions: Sequence[Decision]) -> Iterator[str]:
    """Mean regrets before and after three runs, by kind, as Markdown."""
    rows = replayed(decisions)
    yield "| which | questions | regret | 3 proposed runs | 3 random, nearest 12 | 3 random |"
    yield "|---|--:|--:|--:|--:|--:|"
    for kind in (*sorted({row.kind for row in rows}), *["all"] * bool(rows)):
        regrets = [
            (row.unmeasured, row.proposed, row.near, row.random)
            for row in rows
            if kind in (row.kind, "all")
        ]
        means = " | ".join(f"{100 * mean:.2f} %" for mean in np.mean(regrets, axis=0))
        yield f"| {kind} | {len(regrets)} | {means} |"


def main() -> None:
    """Score the suites and print how decisions would have gone."""
    parser = argparse.ArgumentParser(prog="python -m tools.scoreboard.decisions")
    parser.add_argument("--data", type=Path, required=True, help="Folder of measured tables.")
    data = parser.parse_args().data
    decisions: list[Decision] = []
    for name in SUITES:
        board = validate((name,), data)
        decisions += [d for suite in board.suites for d in decisions_of(suite.rows, name)]
    sys.stdout.write(report(decisions, stated(decisions)) + "\n")


if __name__ == "__main__":
    main()
