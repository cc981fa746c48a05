"""The page of a comparison: who wins, time against cost and energy with the Pareto front, winners
by batch, what cannot run, and where the numbers come from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from accelsim.report.page import Cell, DataTable, Page, Section, axis, cell, figure, label
from accelsim.report.quantity import amount, duration, number, usd, whole
from accelsim.report.run_page import provenance_sections

if TYPE_CHECKING:
    from accelsim.economics.offer import Quote
    from accelsim.hardware.profile import DeviceProfile
    from accelsim.planning.batch_winners import BatchWinners
    from accelsim.planning.compare import Comparison, ComparisonRow
    from accelsim.planning.estimate import Estimate

__all__ = ["comparison_page", "pareto_front"]

_joules = partial(amount, unit="J")
#: Word of the decision -> column of an estimate, and how its value is written.
_WINS: Final[dict[str, tuple[str, Callable[[float | None], str]]]] = {
    "fastest": ("latency_s", duration),
    "most per second": ("throughput_per_s", number),
    "least energy": ("energy_per_sample_j", _joules),
    "cheapest": ("cost_usd_per_1000", usd),
}
_GOALS: Final = ("latency_s", "energy_per_sample_j", "cost_usd_per_1000")


def comparison_page(
    comparison: Comparison,
    winners: Sequence[Sequence[BatchWinners]],
    devices: Sequence[DeviceProfile],
    quotes: Callable[[Estimate], Quote | None],
    command: str,
) -> Page:
    """The report of a comparison.

    Args:
        comparison: The result.
        winners: Winners of each model by batch; none if empty.
        devices: Profiles it was made for.
        quotes: Finds the offer behind an estimate's cost.
        command: Command that makes the page again.
    """
    groups: dict[tuple[str, str], list[ComparisonRow]] = {}
    for row in comparison.rows:
        groups.setdefault((row.workload, row.mode), []).append(row)
    sections = [_pareto(key, rows, place) for place, (key, rows) in enumerate(groups.items())]
    sections += [_by_batch(found, place) for place, found in enumerate(winners)]
    estimates = [row.estimate for row in comparison.rows if row.estimate is not None]
    sections += provenance_sections(estimates, devices, [quotes(e) for e in estimates])
    decision = tuple(_decision(key, rows, comparison) for key, rows in groups.items())
    warnings = tuple(dict.fromkeys(text for e in estimates for text in e.warnings))
    names = ", ".join(dict.fromkeys(row.workload for row in comparison.rows))
    return Page(f"{names} on {len(devices)} devices", decision, tuple(sections), command, warnings)


def _decision(key: tuple[str, str], rows: Sequence[ComparisonRow], comparison: Comparison) -> str:
    """Who wins a model and mode, in a sentence."""
    by_device = {row.device: row.estimate for row in rows}
    said = []
    for words, (column, write) in _WINS.items():
        winner = comparison.best(column).get(key)
        if winner is not None:
            said.append(f"{words} {winner} ({write(getattr(by_device[winner], column))})")
    failed = sum(row.reason is not None for row in rows)
    refused = f"; {failed} of {len(rows)} cannot run it" if failed else ""
    return f"{key[0]}, {key[1]}: {', '.join(said) or 'nothing runs it'}{refused}."


def pareto_front(estimates: Iterable[Estimate]) -> list[Estimate]:
    """Estimates that no other beats in latency, energy and cost together; what is unknown is no
    reason to beat or be beaten.

    Args:
        estimates: Candidates; those without a latency are left out.
    """
    found = [e for e in estimates if e.latency_s is not None]
    return [e for e in found if not any(_dominates(other, e) for other in found)]


def _dominates(one: Estimate, other: Estimate) -> bool:
    mine, theirs = ([getattr(e, goal) for goal in _GOALS] for e in (one, other))
    known = [(a, b) for a, b in zip(mine, theirs, strict=True) if b is not None]
    if any(a is None for a, _ in known):
        return False
    return all(a <= b for a, b in known) and any(a < b for a, b in known)


def _pareto(key: tuple[str, str], rows: Sequence[ComparisonRow], place: int) -> Section:
    estimates = [row.estimate for row in rows if row.estimate is not None]
    front = {id(e) for e in pareto_front(estimates)}
    cells = [_pair_cells(row, id(row.estimate) in front) for row in rows]
    priced = [e for e in estimates if e.latency_s is not None and e.cost_usd_per_1000 is not None]
    most = max((e.energy_per_sample_j or 0.0 for e in priced), default=0.0) or 1.0
    traces = [
        _points("on the front", [e for e in priced if id(e) in front], most, "#e08a1e"),
        _points("beaten", [e for e in priced if id(e) not in front], most, "#7f8a94"),
    ]
    layout = {
        "xaxis": axis("time of one batch, s", type="log", exponentformat="SI"),
        "yaxis": axis("USD per 1,000", type="log"),
    }
    titles = ("device", ">time", ">per s", ">energy", ">$/1,000", "on the front", "limited by")
    unpriced = len([e for e in estimates if e.latency_s is not None]) - len(priced)
    text = (
        "On the front: no other device is at least as good in time, energy and cost. Larger marks "
        "need more energy per sample; open ones have an unknown energy."
        + (f" {unpriced} without a price not drawn." * bool(unpriced))
    )
    title = f"{key[0]}, {key[1]}: time, cost and energy"
    return Section(
        f"pareto-{place}", title, DataTable(titles, cells), text, figure(traces, **layout)
    )


def _pair_cells(row: ComparisonRow, is_on_front: bool) -> tuple[str | Cell, ...]:
    e = row.estimate
    if e is None or row.reason is not None:
        return row.device, "", "", "", "", "", row.reason or ""
    return (
        row.device,
        cell(e.latency_s, duration),
        cell(e.throughput_per_s, number),
        cell(e.energy_per_sample_j, _joules),
        cell(e.cost_usd_per_1000, usd),
        "yes" if is_on_front else "no",
        (e.bound or "").replace("_", " "),
    )


def _points(name: str, estimates: Sequence[Estimate], most: float, colour: str) -> dict[str, Any]:
    """Marks whose area grows with the energy, up to the largest of the figure."""
    return {
        "type": "scatter",
        "mode": "markers+text",
        "name": name,
        "x": [e.latency_s for e in estimates],
        "y": [e.cost_usd_per_1000 for e in estimates],
        "text": [label(e.device) for e in estimates],
        "textposition": "top center",
        "cliponaxis": False,
        "customdata": [label(_joules(e.energy_per_sample_j)) for e in estimates],
        "hovertemplate": "%{text}<br>%{x:.3s}s, $%{y:.3g}, %{customdata}<extra></extra>",
        "marker": {
            "color": colour,
            "symbol": [
                "circle-open" if e.energy_per_sample_j is None else "circle" for e in estimates
            ],
            "size": [10 + 16 * ((e.energy_per_sample_j or 0.0) / most) ** 0.5 for e in estimates],
        },
    }


def _by_batch(winners: Sequence[BatchWinners], place: int) -> Section:
    rows = [
        (
            cell(float(w.batch), whole),
            *_win_cells(w.throughput, number),
            *_win_cells(w.energy, _joules),
            *_win_cells(w.cost, usd),
        )
        for w in winners
    ]
    titles = (">batch", "most per s", ">", "least energy", ">", "cheapest per 1,000", ">")
    name = winners[0].workload if winners else ""
    return Section(f"winners-{place}", f"{name}: who wins at which batch", DataTable(titles, rows))


def _win_cells(win: Any | None, words: Callable[[float | None], str]) -> tuple[str, Cell]:
    return ("unknown", Cell("", None)) if win is None else (win.device, cell(win.value, words))
