"""Compare models over devices: one estimate per pair, with the best of each column and the reasons
of those that failed.

A pair that cannot run (an operator or dtype the device lacks, a model that does not fit) stays in
the comparison with its reason; it is never dropped.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from itertools import chain, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from accelsim.arguments import checked
from accelsim.catalog import group_devices
from accelsim.confidence.best import is_tie, near_best_probability
from accelsim.confidence.quantiles import Z90
from accelsim.cost.memory import MemoryFootprint
from accelsim.errors import (
    DoesNotFitError,
    OverBudgetError,
    PowerLimitError,
    UnknownNameError,
    UnsupportedOperatorError,
)
from accelsim.estimation.estimate import FIGURES, NESTED, Estimate, estimate
from accelsim.estimation.evidence import Evidence
from accelsim.estimation.options import (
    EstimateKeywords,
    PriceChoice,
    RunOptions,
    of_mode,
    options_and_price,
)
from accelsim.estimation.pareto import known_front
from accelsim.estimation.resolution import profile_of, resolve
from accelsim.frozen import frozen
from accelsim.hardware.profile import DeviceProfile
from accelsim.plain import Document, Values
from accelsim.result import json_text
from accelsim.workloads.model import Workload

if TYPE_CHECKING:
    import pandas as pd
    from torch.nn import Module

#: Columns where less is better, and where more is.
BEST_LOW = (
    "latency_s",
    "energy_per_sample_j",
    "cost_usd_per_1000",
    "time_to_first_token_s",
    "time_per_output_token_s",
    "cost_usd_per_million_tokens",
    "energy_j",
    "average_power_w",
    "memory_bytes",
    "usd_per_hour",
)
BEST_HIGH = ("throughput_per_s", "tokens_per_s")
#: Columns whose errors no measured decision shows: those of energy count as each device's own.
_APART = frozenset({"energy_per_sample_j", "energy_j", "average_power_w"})
#: Columns that a notebook shows, with their units.
_SHOWN = {
    "latency_s": "time, s",
    "throughput_per_s": "per s",
    "energy_per_sample_j": "energy, J",
    "cost_usd_per_1000": "USD per 1,000",
}
_MOST_ROWS = 200
#: What a front is of; less is better.
GOALS = ("latency_s", "energy_per_sample_j", "cost_usd_per_1000")
_NOT_FLAT = frozenset((*NESTED, "best", "tied"))


#: Figures with intervals, of which a row may be the best, and those of a run compiled beside the
#: same run issued eagerly.
BEST_FIELDS = (
    "latency_s",
    "throughput_per_s",
    "energy_per_sample_j",
    "cost_usd_per_1000",
)


@frozen
class ComparisonRow:
    """One pair: its estimate, or why there is none.

    Attributes:
        workload: Model.
        device: Device.
        mode: Mode.
        estimate: The estimate; None where it cannot run.
        reason: Why it cannot run, or does not fit.
        compiled: The same run compiled, where eager ones wait for their operators to be issued.
        device_class: Class of the device.
    """

    workload: str
    device: str
    mode: str
    estimate: Estimate | None
    reason: str | None = None
    compiled: Estimate | None = None
    device_class: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Model and mode, in which devices are compared."""
        return self.workload, self.mode

    @property
    def is_eager(self) -> bool:
        """Whether PyTorch runs it operator by operator."""
        e = self.estimate
        return e is not None and e.fits and (e.stack, e.execution) == ("pytorch", "eager")

    def beside(self, mixed: str = "") -> Document:
        """What stands beside the estimate's figures: warnings, ends of intervals, and figures of
        the run compiled.

        Args:
            mixed: That devices beside it issue operators another way; empty where none does.
        """
        e = self.estimate
        warnings = [*e.warnings, *([mixed] if mixed else ())] if e else []
        beside: Document = {"warnings": warnings}
        for name in BEST_FIELDS:
            ends = (None, None, None) if e is None else e.interval(name)
            beside[f"{name}_low"], beside[f"{name}_high"], _ = ends
            beside[f"compiled_{name}"] = getattr(self.compiled, name, None)
        return beside


@frozen
class Comparison:
    """Estimates of several models on several devices."""

    rows: tuple[ComparisonRow, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[ComparisonRow]:
        return iter(self.rows)

    def __getitem__(self, index: int) -> ComparisonRow:
        return self.rows[index]

    @property
    def warnings(self) -> tuple[str, ...]:
        """Models whose devices issue operators in two ways, one by one and compiled: named, since
        their figures are not like each other.
        """
        return tuple(self._mixed.values())

    @property
    def _mixed(self) -> dict[tuple[str, str], str]:
        """`warnings` by model and mode."""
        ways: dict[tuple[str, str], set[bool]] = {}
        for row in self.rows:
            if row.estimate is not None:
                is_eager = row.estimate.execution == "eager"
                ways.setdefault(row.key, set()).add(is_eager)
        return {
            key: f"{', '.join(key)}: some devices run it operator by operator (eager), others "
            "compiled; --execution compiled compares like with like"
            for key, eager in ways.items()
            if len(eager) > 1
        }

    def __repr__(self) -> str:
        estimated = sum(row.estimate is not None for row in self.rows)
        return f"<Comparison: {len(self)} pairs, {estimated} estimated>"

    def _repr_html_(self) -> str:
        """A row per pair with the figures people compare, as notebooks show it."""
        head = "".join(f"<th>{name}</th>" for name in ("model", "device", "mode", *_SHOWN.values()))
        rows = "".join(f"<tr>{_html_cells(row)}</tr>" for row in self.rows[:_MOST_ROWS])
        hidden = len(self) - _MOST_ROWS
        note = f"<p>{hidden:,} more rows</p>" if hidden > 0 else ""
        return f"<table><tr>{head}</tr>{rows}</table>{note}"

    def best(self, column: str) -> dict[tuple[str, str], str]:
        """Device with the best predicted value of a column, per (workload, mode); `leaders` says
        whether it wins.

        Args:
            column: A name in `BEST_LOW` or `BEST_HIGH`.

        Raises:
            UnknownNameError: If the column is in neither.
        """
        if column not in {*BEST_LOW, *BEST_HIGH}:
            columns = sorted({*BEST_LOW, *BEST_HIGH})
            raise UnknownNameError("column", column, columns, f"Columns: {', '.join(columns)}.")
        sign = -1.0 if column in BEST_HIGH else 1.0
        best: dict[tuple[str, str], tuple[float, str]] = {}
        for row in self.rows:
            value = None if row.estimate is None else getattr(row.estimate, column)
            if value is not None:
                candidate = (sign * value, row.device)
                best[row.key] = min(best.get(row.key, candidate), candidate)
        return {key: device for key, (_, device) in best.items()}

    def leaders(self, column: str) -> dict[tuple[str, str], tuple[str, ...]]:
        """Devices that may be the best of a column, per (workload, mode): the predicted best, and
        those whose difference to it has an interval that holds zero. Only where there is one does
        it win.

        Args:
            column: A name in `BEST_LOW` or `BEST_HIGH`.

        Raises:
            UnknownNameError: If the column is in neither.
        """
        leaders = {}
        for key, device in self.best(column).items():
            figures = self._alternatives(key, column)
            best = figures.pop(device)
            leaders[key] = (
                device,
                *(name for name, figure in figures.items() if figure.ties(best)),
            )
        return leaders

    def near_best(self, column: str) -> dict[tuple[str, str], dict[str, float]]:
        """Probability of each device that it is within 5 % of the best of a column, per (workload,
        mode); errors that devices of a class share cancel.

        Args:
            column: A name in `BEST_LOW` or `BEST_HIGH`.

        Raises:
            UnknownNameError: If the column is in neither.
        """
        near = {}
        for key in self.best(column):
            figures = self._alternatives(key, column)
            values, spreads = np.array([(f.figure, f.log_sigma) for f in figures.values()]).T
            groups = [figure.group for figure in figures.values()]
            chances = near_best_probability(values, spreads, groups).tolist()
            near[key] = dict(zip(figures, chances, strict=True))
        return near

    def _alternatives(self, key: tuple[str, str], column: str) -> dict[str, _Alternative]:
        """Devices with a figure of a column, of a model and mode."""
        rows = [row for row in self.rows if row.key == key]
        return {
            row.device: _Alternative.of(row, row.estimate, column)
            for row in rows
            if row.estimate is not None and getattr(row.estimate, column) is not None
        }

    def to_dict(self) -> list[Document]:
        """One mapping per pair: the estimate's figures, or the reason there is none, and of which
        columns it is the best, or may be.
        """
        mixed = self._mixed
        return [
            {"workload": r.workload, "device": r.device, "mode": r.mode, "reason": r.reason}
            | ({} if r.estimate is None else r.estimate.figures())
            | r.beside(mixed.get(r.key, ""))
            | standing
            for r, standing in zip(self.rows, self._standings(), strict=True)
        ]

    def _standings(self) -> Iterator[Document]:
        """Of each row the columns it wins among its model and mode, those whose best it may be, and
        the probability of a time within 5 % of the best.
        """
        best = {column: self.leaders(column) for column in BEST_FIELDS}
        near = self.near_best("latency_s")
        for row in self.rows:
            leads = {column: best[column].get(row.key, ()) for column in BEST_FIELDS}
            won = [column for column, devices in leads.items() if devices == (row.device,)]
            tied = [c for c, devices in leads.items() if row.device in devices and c not in won]
            chance = near.get(row.key, {}).get(row.device)
            yield {"best": won, "tied": tied, "near_best_probability": chance}

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the rows where each figure is one, as in CSV."""
        classes = {"memory": MemoryFootprint, "evidence": Evidence}
        return (
            *("workload", "device", "mode", "reason"),
            *(name for name in FIGURES if name not in {*classes, "operators"}),
            *(self.rows[0].beside() if self.rows else ()),
            *(f"{name}.{field.name}" for name, kind in classes.items() for field in fields(kind)),
            *("best", "tied", "near_best_probability"),
        )

    def to_json(self) -> str:
        """`to_dict` as JSON text."""
        return json_text(self.to_dict())

    def to_frame(self) -> pd.DataFrame:
        """One row per pair with every scalar figure."""
        import pandas as pd

        return pd.DataFrame(
            [{k: v for k, v in row.items() if k not in _NOT_FLAT} for row in self.to_dict()]
        )


@frozen
class _Alternative:
    """A device's figure, of which less is better, its spread, and the group that shares errors.

    Estimate: devices of a class share their errors, but for those of energy.
    """

    figure: float
    log_sigma: float
    group: str

    @classmethod
    def of(cls, row: ComparisonRow, estimate: Estimate, column: str) -> _Alternative:
        value = float(getattr(estimate, column))
        high = estimate.interval(column)[1]
        sigma = math.log(high / value) / Z90 if high and value else 0.0
        group = row.device if column in _APART else row.device_class
        return cls(1 / value if column in BEST_HIGH else value, sigma, group)

    def ties(self, other: _Alternative) -> bool:
        """Whether the interval of the difference holds zero."""
        pair = (self.figure, self.log_sigma), (other.figure, other.log_sigma)
        return is_tie(*pair, is_alike=self.group == other.group)


def known_best(rows: Iterable[Values]) -> list[Values]:
    """Rows that no other beats in latency, energy and cost together; what is unknown is no reason
    to beat or be beaten.

    Args:
        rows: Candidates with the columns of `GOALS`; those without a latency are left out.
    """
    timed = [row for row in rows if row["latency_s"] is not None]
    goals = np.array([[row[goal] for goal in GOALS] for row in timed], dtype=float)
    front = known_front(goals.reshape(-1, len(GOALS)))
    return [timed[index] for index in np.flatnonzero(front)]


@checked
def compare(
    workloads: str | Path | Workload | Module | Sequence[str | Path | Workload | Module],
    devices: str | DeviceProfile | Iterable[str | DeviceProfile],
    options: RunOptions | None = None,
    price: PriceChoice | None = None,
    *,
    modes: str | Sequence[str] = ("inference",),
    **keywords: Unpack[EstimateKeywords],
) -> Comparison:
    """Estimate every model on every device in every mode.

    Args:
        workloads: Names or workloads.
        devices: Names, words of a group (`accelsim.catalog.DEVICE_GROUPS`) or profiles.
        modes: "inference", "training" or both.
        options: What runs, the same for all pairs; defaults where None.
        price: Which price; the cheapest on-demand offer where None.
        keywords: Fields of either, in place of theirs. One that does not apply to a model at all
            (``output_len`` of an image classifier) is refused.

    Raises:
        InputError: If a name or setting is wrong. Pairs a device cannot run are rows with a reason
            instead.
    """
    profiles = [
        profile
        for device in _several(devices)
        for profile in (group_devices(device) if isinstance(device, str) else (device,))
    ]
    chosen, paid = options_and_price(options, price, keywords)
    by_mode = [replace(chosen, mode=mode) for mode in _several(modes)]
    if len(by_mode) > 1:
        by_mode = [of_mode(options, options.mode) for options in by_mode]
    pairs = product(_several(workloads), by_mode)
    groups = (_group(model, profiles, options, paid) for model, options in pairs)
    return Comparison(tuple(chain.from_iterable(groups)))


def _several(values: Any) -> list[Any]:
    """One value or several, as a list."""
    is_single = isinstance(values, str | DeviceProfile) or not isinstance(values, Iterable)
    return [values] if is_single else list(values)


def _group(
    workload: str | Path | Workload,
    devices: Sequence[str | DeviceProfile],
    options: RunOptions,
    price: PriceChoice,
) -> list[ComparisonRow]:
    """Rows of one model in one mode; where an eager one waits for its operators to be issued, and
    the caller asked for no way of issuing them, eager ones stand beside the same run compiled.
    """
    rows = [_row(workload, device, options, price) for device in devices]
    is_chosen = options.model.execution is not None or options.model.stack is not None
    bounds = {row.estimate.bound for row in rows if row.is_eager and row.estimate is not None}
    if is_chosen or "dispatch" not in bounds:
        return rows
    compiled = replace(options, model=replace(options.model, execution="compiled"))
    return [
        replace(row, compiled=_row(workload, device, compiled, price).estimate)
        if row.is_eager
        else row
        for row, device in zip(rows, devices, strict=True)
    ]


def _row(
    workload: str | Path | Workload,
    device: str | DeviceProfile,
    options: RunOptions,
    price: PriceChoice,
) -> ComparisonRow:
    profile = profile_of(device)
    try:
        result = estimate(workload, profile, options, price)
    except (UnsupportedOperatorError, DoesNotFitError, OverBudgetError, PowerLimitError) as error:
        name = resolve(workload, profile.model_copy(update={"joined_count": 1})).workload.name
        return ComparisonRow(name, profile.label, options.mode, None, str(error))
    short_gb = result.memory_short_bytes / 1e9
    missing = None if result.fits else f"does not fit: {short_gb:,.1f} GB short"
    names = (result.workload, result.device, options.mode)
    return ComparisonRow(*names, result, missing, device_class=str(profile.device_class))


def _html_cells(row: ComparisonRow) -> str:
    names = "".join(f"<th>{html.escape(x)}</th>" for x in (row.workload, row.device, row.mode))
    if row.estimate is None or row.reason is not None:
        return f'{names}<td colspan="{len(_SHOWN)}">{html.escape(row.reason or "")}</td>'
    values = (getattr(row.estimate, column) for column in _SHOWN)
    return names + "".join(f"<td>{'unknown' if x is None else f'{x:.4g}'}</td>" for x in values)
