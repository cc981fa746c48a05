"""Spreads of a device nobody measured, from residuals of many chips.

Chips are the sample, not rows: every chip is predicted by parameters that have not seen it, and
weighs the same. Matrix cores and vector lanes run other kernels, with errors of their own: the
families of a group are pooled by execution path. The mean square over the chips of a family is
drawn toward that of its path, and this toward that of the whole group, since few chips tell little:
as if either were a few chips more. Both spreads are then scaled until nine of ten residuals of
chips left out, each judged by the spread of the others, lie inside: normal theory is not asked how
heavy the tails are, nor by how much a handful of chips understates them (Vovk, cross-conformal
predictors, 2015; Barber et al., predictive inference with the jackknife+, 2021).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from accelsim.calibration.fit.residuals import (
    FEWEST_LONG,
    P90,
    FamilyPart,
    cell_weight,
    drawn,
    of_enough_rows,
    pooled_residual,
    quantile,
    row_sigmas,
)
from accelsim.confidence.residual import IN_MODEL_LOG_SIGMA, FamilyResidual
from accelsim.plain import grouped
from accelsim.workloads.graph import FloatArray

#: Biases below this are of the timer: 1 %.
_LEAST_BIAS = 0.01
#: Chips of a group from which on leaving them out says anything of its tails.
_FEWEST_CHIPS = 3


def class_residuals(parts: Iterable[FamilyPart]) -> dict[str, FamilyResidual]:
    """Residuals by family, by family and condition of the board, and by group.

    Args:
        parts: Rows of several chips.
    """
    families = []
    for (name, condition), own in grouped(parts, attrgetter("family", "condition")).items():
        by_chip = grouped(own, attrgetter("chip"))
        families.append(_Family(name, condition, own[-1].group, own[-1].path, by_chip))
    return _of_families(families)


@dataclass(frozen=True, slots=True, eq=False)
class _Family:
    """A family on the boards of one condition, chip by chip."""

    name: str
    condition: str
    group: str
    path: str
    parts: Mapping[str, Sequence[FamilyPart]]

    @property
    def label(self) -> str:
        return f"{self.name} {self.condition}".rstrip()


class _Chips:
    """Spreads of families over chips, each of which can be left out.

    Args:
        families: All families of all conditions.
    """

    def __init__(self, families: Sequence[_Family]) -> None:
        self.families = families
        counted = [
            {c: own for c, own in f.parts.items() if sum(map(len, own)) >= FEWEST_LONG}
            for f in families
        ]
        self.biases = [
            {chip: float(np.mean([p.bias for p in own])) for chip, own in chips.items()}
            for chips in counted
        ]
        sigmas = [{chip: row_sigmas(own) for chip, own in chips.items()} for chips in counted]
        self.sigmas = [{chip: both[0] for chip, both in own.items()} for own in sigmas]
        self.long_sigmas = [{chip: both[1] for chip, both in own.items()} for own in sigmas]

    def spread(
        self, values: Sequence[Mapping[str, float]], index: int, left_out: str = ""
    ) -> float:
        """Root mean square over chips of a family's values, drawn toward the group's."""
        family = self.families[index]
        squares = self._squares(values, [index], left_out)
        mean = self.group(values, family.group, family.path, left_out) ** 2
        if family.condition:
            plain = [
                i for i, f in enumerate(self.families) if f.name == family.name and not f.condition
            ]
            mean = drawn(self._squares(values, plain, left_out), mean)
        return float(np.sqrt(drawn(squares, mean)))

    def group(
        self,
        values: Sequence[Mapping[str, float]],
        group: str,
        path: str,
        left_out: str = "",
        condition: str = "",
    ) -> float:
        """Root mean square over the chips of a group's families.

        That of an execution path is drawn toward that of all paths, and of boards with a condition
        toward the others'.
        """
        members = [i for i, f in enumerate(self.families) if f.group == group]
        plain = [i for i in members if not self.families[i].condition]
        squares = self._squares(values, plain, left_out) or self._squares(values, members, left_out)
        mean = float(np.mean(squares or self._squares(values, range(len(values)), left_out)))
        same = [i for i in plain if self.families[i].path == path]
        mean = drawn(self._squares(values, same, left_out), mean)
        if condition:
            like = [i for i in members if self.families[i].condition == condition]
            mean = drawn(self._squares(values, like, left_out), mean)
        return float(np.sqrt(mean))

    def _squares(
        self, values: Sequence[Mapping[str, float]], members: Iterable[int], left_out: str
    ) -> list[float]:
        return [value**2 for i in members for chip, value in values[i].items() if chip != left_out]

    def bias_scale(self, group: str) -> float:
        """What makes 90 % of the biases of a group's chips left out lie inside; chips weigh the
        same.

        At least 1: a handful of chips is no evidence of tails lighter than normal. Boards with a
        condition that few share are left out of this: without them nothing is known of their like.
        """
        return max(self._scale(group, self._bias_score), 1.0)

    def row_scale(self, group: str) -> float:
        """The same of their rows."""
        return self._scale(group, self._row_scores)

    def _bias_score(self, index: int, chip: str) -> list[float]:
        return [self.biases[index][chip] / max(self.spread(self.biases, index, chip), _LEAST_BIAS)]

    def _row_scores(self, index: int, chip: str) -> FloatArray:
        sigma, long_sigma = (
            self.spread(values, index, chip) for values in (self.sigmas, self.long_sigmas)
        )
        parts = self.families[index].parts[chip]
        return np.concatenate(
            [np.abs(p.log_residual) / np.where(p.is_long, long_sigma, sigma) for p in parts]
        )

    def _scale(
        self, group: str, scores: Callable[[int, str], Sequence[float] | FloatArray]
    ) -> float:
        by_chip: dict[str, list[FloatArray]] = {}
        for index, counted in enumerate(self.biases):
            family = self.families[index]
            if family.group != group or (family.condition and len(counted) < _FEWEST_CHIPS):
                continue
            for chip in counted:
                by_chip.setdefault(chip, []).append(np.asarray(scores(index, chip)))
        if len(by_chip) < _FEWEST_CHIPS:
            return 1.0
        weight = np.concatenate([cell_weight(own) / len(own) for own in by_chip.values()])
        return (
            quantile(
                np.concatenate([score for own in by_chip.values() for score in own]), weight, 0.9
            )
            / P90
        )


def _of_families(families: Sequence[_Family]) -> dict[str, FamilyResidual]:
    chips = _Chips(families)
    scales = {
        group: (chips.row_scale(group), chips.bias_scale(group))
        for group in sorted({family.group for family in families})
    }
    of_family = {}
    for index, family in enumerate(families):
        members = [part for own in family.parts.values() for part in own]
        rows, biases = scales[family.group]
        of_family[family.label] = pooled_residual(
            members,
            rows * chips.spread(chips.sigmas, index),
            rows * chips.spread(chips.long_sigmas, index),
            float(np.hypot(biases * chips.spread(chips.biases, index), IN_MODEL_LOG_SIGMA)),
        )
    for name in sorted(
        {family.name for family in families} - set(of_family)
    ):  # measured on boards with a condition alone
        of_family[name] = next(
            of_family[family.label] for family in families if family.name == name
        )
    pooled = {
        (family.group, family.path, condition)
        for family in families
        for condition in ("", family.condition)
    }
    return of_enough_rows(of_family) | {
        " ".join(filter(None, label)): _of_group(*label, chips, *scales[label[0]])
        for label in sorted(pooled)
    }


def _of_group(
    group: str, path: str, condition: str, chips: _Chips, row_scale: float, bias_scale: float
) -> FamilyResidual:
    members = [
        f
        for f in chips.families
        if (f.group, f.path) == (group, path) and condition in ("", f.condition)
    ]
    parts = [part for family in members for own in family.parts.values() for part in own]
    sigma, long_sigma, shared = (
        scale * chips.group(values, group, path, condition=condition)
        for scale, values in (
            (row_scale, chips.sigmas),
            (row_scale, chips.long_sigmas),
            (bias_scale, chips.biases),
        )
    )
    return pooled_residual(parts, sigma, long_sigma, float(np.hypot(shared, IN_MODEL_LOG_SIGMA)))
