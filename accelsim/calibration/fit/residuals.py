"""Residuals of measured rows under a parameter set, split into a part each device shares and a part
of each row.

For one device: the 90 % interval of a row comes from the 90th percentile of its family's
|ln(measured / predicted)|, and the shared part is what remains when many rows add up: the bias of
long rows, of which models are made. Sets of measurements of one device disagree, most on a board at
its power limit: each is a sample of that bias.

For the class, where a device nobody measured is to be predicted, chips are the sample, not rows:
every chip is predicted by parameters that have not seen it, and weighs the same. Matrix cores and
vector lanes run other kernels, with errors of their own: the families of a group are pooled by
execution path. The mean square over the chips of a family is drawn toward that of its path, and
this toward that of the whole group, since few chips tell little: as if either were `_PRIOR_CHIPS`
chips more. Both spreads are then scaled until nine of ten residuals of chips left out, each judged
by the spread of the others, lie inside: normal theory is not asked how heavy the tails are, nor by
how much a handful of chips understates them (Vovk, cross-conformal predictors, 2015; Barber et al.,
predictive inference with the jackknife+, 2021).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accelsim.calibration.fit.cells import Cell, chip_of
from accelsim.cost.gpu import GpuMachine, GpuParameters
from accelsim.cost.gpu.condition import SLOT_POWERED, board_conditions
from accelsim.cost.residual import (
    IN_MODEL_LOG_SIGMA,
    LONG_S,
    PRODUCT_KINDS,
    FamilyResidual,
    family_rows,
    group_of,
    path_of,
)
from accelsim.workloads.graph import FloatArray

__all__ = ["CellResidual", "family_residuals"]

#: The 90th percentile of a normal distribution's absolute value, in standard deviations.
_P90 = 1.645
#: The median of a normal distribution's absolute value, in standard deviations.
_MEDIAN = 0.6745
#: Variance of the median of a normal sample, in its variance over the number of rows: pi / 2.
_MEDIAN_VARIANCE = np.pi / 2.0
_FEWEST_ROWS = 20
#: Long rows from which on their median is a bias.
_FEWEST_LONG = 10
#: Two runs on a board fed by its slot: NeuSight's and DeepBench's FP32 products and convolutions on
#: the T4 differ by 0.24 and 0.17 in their medians under one fit, which is 0.15 of each.
_RUN_LOG_SIGMA = 0.15
_LIMITED_GROUPS = frozenset({"product", "convolution", "gradient"})
#: Biases below this are of the timer: 1 %.
_LEAST_BIAS = 0.01
#: Chips of a group from which on leaving them out says anything of its tails.
_FEWEST_CHIPS = 3
#: Chips that a family's group counts for.
_PRIOR_CHIPS = 4.0


@dataclass(frozen=True, slots=True, eq=False)
class CellResidual:
    """Residuals of one cell.

    Attributes:
        device: Name.
        operator: Name in the data.
        conditions: Of the board's products and other operators, see `accelsim.cost.gpu.condition`.
        log_residual: ln(measured / predicted), shape (n,).
        measured_s: Times, shape (n,).
        flop: FLOP of the rows.
        bytes: Bytes of the rows.
        rows: Rows of each family.
        groups: Group of each family.
        paths: Execution path of each family: `MATRIX_CORES` or "" (vector lanes), see `path_of`.
        products: Families that are products.
    """

    device: str
    operator: str
    conditions: tuple[str, str]
    log_residual: FloatArray
    measured_s: FloatArray
    flop: FloatArray
    bytes: FloatArray
    rows: Mapping[str, NDArray[np.int64]]
    groups: Mapping[str, str]
    paths: Mapping[str, str]
    products: frozenset[str]

    @classmethod
    def of(cls, cell: Cell, parameters: GpuParameters) -> CellResidual:
        """Residuals of a cell under a parameter set."""
        costs = cell.kernels.costs(parameters)
        graph, rows = cell.graph, family_rows(cell.graph)
        kinds = {family: int(graph.kind[own[0]]) for family, own in rows.items()}
        on_matrix = GpuMachine.of(cell.device, parameters).uses_matrix_cores
        return cls(
            device=cell.device.name,
            operator=cell.operator,
            conditions=board_conditions(cell.device),
            log_residual=np.log(cell.measured_s / cell.kernels.call_s(costs, parameters)),
            measured_s=cell.measured_s,
            flop=graph.flop,
            bytes=graph.bytes,
            rows=rows,
            groups={family: group_of(kind) for family, kind in kinds.items()},
            paths={
                family: path_of(kind, int(graph.dtype[rows[family][0]]), on_matrix)
                for family, kind in kinds.items()
            },
            products=frozenset(family for family, kind in kinds.items() if kind in PRODUCT_KINDS),
        )


def family_residuals(cells: Iterable[CellResidual]) -> dict[str, FamilyResidual]:
    """Residuals by family; of several chips also by condition of the board, and by group.

    Args:
        cells: Of one device for an overlay, of many for a class-wide set.
    """
    parts: dict[tuple[str, str], list[_Part]] = {}
    groups: dict[str, str] = {}
    paths: dict[tuple[str, str], str] = {}
    is_slot_powered = False
    for cell in cells:
        is_slot_powered |= cell.conditions[0] == SLOT_POWERED
        for family, rows in cell.rows.items():
            condition = cell.conditions[family not in cell.products]
            parts.setdefault((family, condition), []).append(_Part.of(cell, rows))
            groups[family], paths[family, condition] = cell.groups[family], cell.paths[family]
    chips = {part.chip for own in parts.values() for part in own}
    if len(chips) > 1:
        return _of_class(parts, groups, paths)
    merged: dict[str, list[_Part]] = {}
    for (family, _), own in parts.items():
        merged.setdefault(family, []).extend(own)
    pooled: dict[str, list[float]] = {}
    for family, own in merged.items():
        pooled.setdefault(groups[family], []).extend(_biases(own))
    return _kept(
        {
            family: _of_device(
                own,
                pooled[groups[family]],
                _in_model(groups[family], is_slot_powered=is_slot_powered),
            )
            for family, own in merged.items()
        }
    )


def _in_model(group: str, *, is_slot_powered: bool) -> float:
    """What a kernel inside a model may be off from the same kernel in a measurement, beyond what
    measurements share.
    """
    return _RUN_LOG_SIGMA if is_slot_powered and group in _LIMITED_GROUPS else IN_MODEL_LOG_SIGMA


def _kept(found: Mapping[str, FamilyResidual]) -> dict[str, FamilyResidual]:
    return {family: entry for family, entry in found.items() if entry.rows >= _FEWEST_ROWS}


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """Rows of one family in one cell."""

    chip: str
    log_residual: FloatArray
    is_long: NDArray[np.bool_]
    flop: FloatArray
    bytes: FloatArray

    def __len__(self) -> int:
        return len(self.log_residual)

    @classmethod
    def of(cls, cell: CellResidual, rows: NDArray[np.int64]) -> _Part:
        long = cell.measured_s[rows] > LONG_S
        return cls(
            chip_of(cell.device), cell.log_residual[rows], long, cell.flop[rows], cell.bytes[rows]
        )

    @property
    def bias(self) -> float:
        """Size of the median residual of the long rows (of all where few are long), less what
        chance gives it.
        """
        long = self.log_residual[self.is_long]
        rows = long if len(long) >= _FEWEST_LONG else self.log_residual
        median = float(np.median(rows))
        own = float(np.median(np.abs(rows - median))) / _MEDIAN
        return float(np.sqrt(max(median**2 - _MEDIAN_VARIANCE * own**2 / len(rows), 0.0)))


def _of_device(parts: Sequence[_Part], pooled: Sequence[float], in_model: float) -> FamilyResidual:
    """Every cell weighs the same in the spread; biases of cells are drawn toward those of the
    group's.
    """
    sigma, long_sigma = _row_sigmas(parts)
    mean = float(np.mean(np.square(pooled))) if len(pooled) else 0.0
    shared = np.sqrt(_drawn([bias**2 for bias in _biases(parts)], mean)) if len(pooled) else sigma
    return _entry(parts, sigma, long_sigma, float(np.hypot(shared, in_model)))


def _biases(parts: Iterable[_Part]) -> list[float]:
    """Biases of the cells with rows enough to have one."""
    return [part.bias for part in parts if len(part) >= _FEWEST_LONG]


def _entry(
    parts: Sequence[_Part], sigma: float, long_sigma: float, shared: float
) -> FamilyResidual:
    residual = [part.log_residual for part in parts]
    errors, weight = np.abs(np.expm1(-np.concatenate(residual))), _cell_weight(residual)
    return FamilyResidual(
        rows=sum(map(len, residual)),
        log_sigma=sigma,
        long_log_sigma=long_sigma,
        shared_log_sigma=shared,
        median_ape_fraction=_quantile(errors, weight, 0.5),
        p90_ape_fraction=_quantile(errors, weight, 0.9),
        flop=_range(np.concatenate([part.flop for part in parts])),
        bytes=_range(np.concatenate([part.bytes for part in parts])),
    )


def _row_sigmas(parts: Sequence[_Part]) -> tuple[float, float]:
    """Spread of a row, and of a long row: 90th percentiles over the normal's, every cell weighing
    the same.
    """
    missed = np.abs(np.concatenate([part.log_residual for part in parts]))
    weight = _cell_weight([part.log_residual for part in parts])
    long = np.concatenate([part.is_long for part in parts])
    sigma = _quantile(missed, weight, 0.9) / _P90
    return sigma, _quantile(
        missed[long], weight[long], 0.9
    ) / _P90 if long.sum() >= _FEWEST_ROWS else sigma


def _cell_weight(cells: Sequence[FloatArray]) -> FloatArray:
    return np.concatenate([np.full(len(cell), 1.0 / len(cell)) for cell in cells])


@dataclass(frozen=True, slots=True, eq=False)
class _Family:
    """A family on the boards of one condition, chip by chip."""

    name: str
    condition: str
    group: str
    path: str
    parts: Mapping[str, Sequence[_Part]]

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
            {c: own for c, own in f.parts.items() if sum(map(len, own)) >= _FEWEST_LONG}
            for f in families
        ]
        self.biases = [
            {chip: float(np.mean([p.bias for p in own])) for chip, own in chips.items()}
            for chips in counted
        ]
        sigmas = [{chip: _row_sigmas(own) for chip, own in chips.items()} for chips in counted]
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
            mean = _drawn(self._squares(values, plain, left_out), mean)
        return float(np.sqrt(_drawn(squares, mean)))

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
        mean = _drawn(self._squares(values, same, left_out), mean)
        if condition:
            like = [i for i in members if self.families[i].condition == condition]
            mean = _drawn(self._squares(values, like, left_out), mean)
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
        weight = np.concatenate([_cell_weight(own) / len(own) for own in by_chip.values()])
        return (
            _quantile(
                np.concatenate([score for own in by_chip.values() for score in own]), weight, 0.9
            )
            / _P90
        )


def _drawn(squares: Sequence[float], mean: float) -> float:
    """Mean square of a few chips, drawn toward what is expected of more."""
    return (sum(squares) + _PRIOR_CHIPS * mean) / (len(squares) + _PRIOR_CHIPS)


def _of_class(
    parts: Mapping[tuple[str, str], Sequence[_Part]],
    groups: Mapping[str, str],
    paths: Mapping[tuple[str, str], str],
) -> dict[str, FamilyResidual]:
    families = []
    for (name, condition), own in parts.items():
        by_chip: dict[str, list[_Part]] = {}
        for part in own:
            by_chip.setdefault(part.chip, []).append(part)
        families.append(_Family(name, condition, groups[name], paths[name, condition], by_chip))
    chips = _Chips(families)
    scales = {
        group: (chips.row_scale(group), chips.bias_scale(group))
        for group in sorted(set(groups.values()))
    }
    found = {}
    for index, family in enumerate(families):
        members = [part for own in family.parts.values() for part in own]
        rows, biases = scales[family.group]
        found[family.label] = _entry(
            members,
            rows * chips.spread(chips.sigmas, index),
            rows * chips.spread(chips.long_sigmas, index),
            float(np.hypot(biases * chips.spread(chips.biases, index), IN_MODEL_LOG_SIGMA)),
        )
    for name in sorted(
        {family.name for family in families} - set(found)
    ):  # measured on boards with a condition alone
        found[name] = next(found[family.label] for family in families if family.name == name)
    pooled = {
        (family.group, family.path, condition)
        for family in families
        for condition in ("", family.condition)
    }
    return _kept(found) | {
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
    return _entry(parts, sigma, long_sigma, float(np.hypot(shared, IN_MODEL_LOG_SIGMA)))


def _quantile(values: FloatArray, weight: FloatArray, share: float) -> float:
    order = np.argsort(values)
    total = np.cumsum(weight[order])
    return float(
        values[order][min(int(np.searchsorted(total, share * total[-1])), len(values) - 1)]
    )


def _range(sizes: FloatArray) -> tuple[float, float]:
    low, high = np.quantile(sizes, [0.01, 0.99]).tolist()
    return float(low), float(high)
