"""What of a scoreboard is worse than an earlier one by more than its noise.

The noise of a figure is half its 95 % confidence interval over the rows of its group: of the mean
from its standard error, of quantiles from order statistics, of the coverage from the binomial
distribution, of Kendall's tau from its largest possible variance (Kendall, Rank Correlation
Methods, 1948). The largest error of a group is one row and is not compared; coverage is compared
for whole suites alone, since the rows of one device share an error and leave their intervals
together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import sqrt
from typing import Any

from accelsim.confidence.quantiles import Z95
from accelsim.plain import Values
from accelsim.scoreboard.metrics import INTERVAL_LEVEL

#: A figure that differs by less than this is not worse: rounding and other versions of numpy.
_FLOOR = 0.002
#: Label, field, its noise, and how bad a value is.
_Figure = tuple[str, str, Callable[[Values], float | None], Callable[[float], float]]


def worse_figures(new: Values, old: Values) -> list[str]:
    """What got worse than an earlier report by more than its noise.

    Fewer rows answered of as many asked are worse, too. A suite of the earlier report that was not
    run, or was run at another tier, is not compared; nor is a figure that the earlier report lacks.

    Args:
        new: Result of `scoreboard_dict`.
        old: The same, earlier.

    Returns:
        One text per finding.
    """
    worse_figures: list[str] = []
    for name, before in old.get("suites", {}).items():
        after = new.get("suites", {}).get(name)
        if after is None or after["tier"] != before["tier"]:
            continue
        worse_figures += _worse(name, before, after, _COMPARED)
        groups = {_key(group): group for group in after["groups"]}
        for group in before["groups"]:
            now = groups.get(_key(group))
            if now is not None:
                worse_figures += _worse(
                    f"{name}, {group['device']} {_group(group)}", group, now, _OF_GROUPS
                )
    return worse_figures


def uncompared_suites(new: Values, old: Values) -> list[str]:
    """Why suites of a new report have nothing to be compared with, one text each."""
    uncompared_suites = []
    for name, after in new.get("suites", {}).items():
        before = old.get("suites", {}).get(name)
        if before is None:
            uncompared_suites.append(f"{name}: not in the report")
        elif before["tier"] != after["tier"]:
            uncompared_suites.append(
                f"{name}: at tier {after['tier']}, in the report at {before['tier']}"
            )
    return uncompared_suites


def _group(group: Values) -> Any:
    return group["operator"] if "operator" in group else group["model"]


def _key(group: Values) -> tuple[Any, ...]:
    return group["device"], _group(group), group["tier"], group.get("is_view", False)


def _worse(
    where: str, before: Values, after: Values, compared: tuple[_Figure, ...]
) -> Iterator[str]:
    for label, field, noise_of, distance in compared:
        was = before.get(field)
        now = after.get(field)
        if was is None or now is None:
            continue
        noise = noise_of(before)
        if noise is not None and distance(now) > distance(was) + max(noise, _FLOOR):
            shown = (
                f"{value:.2f}" if field == "kendall_tau" else f"{value:.1%}"
                for value in (now, was, noise)
            )
            yield "{}: {} {}, was {} (noise {})".format(where, label, *shown)
    if (
        after["rows_asked"] == before["rows_asked"]
        and after["rows_answered"] < before["rows_answered"]
    ):
        yield f"{where}: {after['rows_answered']:,} rows answered, were {before['rows_answered']:,}"


def _stored(field: str) -> Callable[[Values], float | None]:
    return lambda values: values.get(field)


def _coverage_noise(values: Values) -> float:
    share = values["interval_coverage_fraction"]
    count = max(values["rows_answered"], 1)
    return Z95 * sqrt(max(share * (1.0 - share), 1.0 / count) / count)


def _tau_noise(values: Values) -> float:
    tau = values["kendall_tau"]
    count = max(values["rows_answered"], 2)
    return Z95 * sqrt(max(2.0 * (1.0 - tau**2), 1.0 / count) / count)


_COMPARED: tuple[_Figure, ...] = (
    ("MAPE", "mape_fraction", _stored("mape_noise_fraction"), float),
    ("median", "median_ape_fraction", _stored("median_noise_fraction"), float),
    ("p90", "p90_ape_fraction", _stored("p90_noise_fraction"), float),
    ("bias", "bias_fraction", _stored("mape_noise_fraction"), abs),
    (
        "coverage",
        "interval_coverage_fraction",
        _coverage_noise,
        lambda value: abs(value - INTERVAL_LEVEL),
    ),
    ("Kendall tau", "kendall_tau", _tau_noise, lambda value: -value),
)
_OF_GROUPS = tuple(figure for figure in _COMPARED if figure[1] != "interval_coverage_fraction")
