"""The page of a comparison: who wins, time against cost and energy with the Pareto front and the
lines of a latency target and a budget, break-even between devices, cost and carbon by offer, what
cannot run, and where the numbers come from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

from accelsim.economics.load_cost import LoadOption
from accelsim.economics.result import HOURS_PER_YEAR, electricity_usd_per_hour
from accelsim.estimation.compare import GOALS, known_best
from accelsim.files.formats import uniform_rows
from accelsim.plain import Document, Values, grouped
from accelsim.quantity import joules, usd, written
from accelsim.report.calculator import calculator_section
from accelsim.report.operators import OperatorRun, energy_section, roofline_section
from accelsim.report.page import Page, Section, figure, label, limit_line, trace
from accelsim.report.parts import left_out, provenance_sections
from accelsim.report.result_page import known_devices
from accelsim.report.run_sections import accuracy_section, offers_section

if TYPE_CHECKING:
    from accelsim.hardware.profile import DeviceProfile

#: Word of the decision -> column of an estimate whose least, or of a rate the most, is best.
_WINS = {
    "fastest": "latency_s",
    "most per second": "throughput_per_s",
    "least energy": "energy_per_sample_j",
    "cheapest": "cost_usd_per_1000",
}
_TITLES = dict(zip(_WINS.values(), ("time", "per s", "energy", "$/1,000"), strict=True))
#: Columns a row is shown with; None where it has none.
_COLUMNS = (
    "batch",
    "throughput_per_s",
    "usd_per_hour",
    "average_power_w",
    "offer",
    "bound",
    *GOALS,
)
#: Points of a trace at most, and of a page's traces of one kind.
_MOST_POINTS = 5_000
_MOST_DRAWN = 10_000
#: From this many points on names are shown by the pointer alone.
_MANY = 20
_MOST_NAMES = 20
_MOST_TIED = 3
_LIFE_YEARS = 3.0
_USD_PER_KWH = 0.10


def comparison_page(
    rows: Sequence[Values],
    command: str,
    *,
    devices: Sequence[DeviceProfile] | None = None,
    slo_s: float | None = None,
    budget_usd: float | None = None,
    operators: Mapping[tuple[str, str], Sequence[OperatorRun]] | None = None,
) -> Page:
    """The report of a comparison.

    Args:
        rows: A row per model, device and mode, as the command's JSON has them.
        command: Command that makes the page again.
        devices: Profiles it was made for; those of the catalogue with these names where None.
        slo_s: Longest time of a batch that is wanted, drawn as a line.
        budget_usd: Most USD per 1,000 samples, drawn as a line.
        operators: Operators of each model and mode on the devices of its front; none if None.
    """
    rows = _named(uniform_rows(rows, _COLUMNS))
    groups = grouped(rows, itemgetter("workload", "mode"))
    names, models = (
        list(dict.fromkeys(map(itemgetter(name), rows))) for name in ("device", "workload")
    )
    profiles = known_devices(names) if devices is None else devices
    limits = (slo_s, budget_usd)
    done = _timed(rows)
    sections = [
        *_fronts(groups, limits),
        *_front_sections(operators or {}),
        *_costs(groups, profiles),
        *_offers(groups),
        accuracy_section(profile.name for profile in profiles),
        *provenance_sections(done, profiles),
    ]
    decision = (_decision(key, part, limits) for key, part in groups.items())
    warnings = (text for row in done for text in row.get("warnings") or ())
    title = f"{', '.join(models)} on {len(names):,} devices"
    return Page.of(title, decision, sections, command, warnings)


def _timed(rows: Iterable[Values]) -> list[Values]:
    """Rows with a time."""
    return [row for row in rows if row["reason"] is None and row["latency_s"] is not None]


def _fronts(
    groups: Mapping[tuple[str, str], Sequence[Values]], limits: tuple[float | None, float | None]
) -> Iterator[Section]:
    """Time, cost and energy of each model and mode."""
    most = min(_MOST_POINTS, _MOST_DRAWN // max(len(groups), 1))
    for index, (key, rows) in enumerate(groups.items()):
        yield _pareto(key, rows, index, limits, most)


def _front_sections(
    operators: Mapping[tuple[str, str], Sequence[OperatorRun]],
) -> Iterator[Section]:
    """Roofline and energy of the operators on each front."""
    for index, ((model, mode), runs) in enumerate(operators.items()):
        title = f"{model}, {mode}: roofline of the front"
        yield roofline_section(runs, name=f"roofline-{index}", title=title)
        for column in ("kind", "layer"):
            title = f"{model}, {mode}: energy by {column} on the front"
            yield energy_section(runs, column, name=f"energy-{column}-{index}", title=title)


def _costs(
    groups: Mapping[tuple[str, str], Sequence[Values]], profiles: Sequence[DeviceProfile]
) -> Iterator[Section | None]:
    """Cost of a load of each model and mode."""
    for index, ((_, mode), rows) in enumerate(groups.items()):
        if mode == "inference":
            yield break_even_section(rows, profiles, f"break-even-{index}")


def _named(rows: Sequence[Values]) -> list[Values]:
    """Rows with the name they are shown by: the device, and its batch where it has several."""
    pairs = {(row["workload"], row["mode"], row["device"]) for row in rows}
    if len(pairs) == len(rows):
        return [{**row, "name": row["device"]} for row in rows]
    return [{**row, "name": f"{row['device']}, batch {row['batch']}"} for row in rows]


def _decision(
    key: tuple[str, str], rows: Sequence[Values], limits: tuple[float | None, float | None]
) -> str:
    """Who wins a model and mode, in a sentence."""
    done = [row for row in rows if row["reason"] is None]
    failed = len(rows) - len(done)
    refused = f"; {failed} of {len(rows)} cannot run it" if failed else ""
    kept = [row["name"] for row in done if _keeps(row, limits)]
    within = (
        ""
        if limits == (None, None)
        else f"; within the limits: {', '.join(kept[:_MOST_NAMES]) or 'none'}"
    )
    return f"{key[0]}, {key[1]}: {', '.join(_wins(done)) or 'nothing runs it'}{within}{refused}."


def _wins(done: Sequence[Values]) -> Iterator[str]:
    """The best of each figure, and who may be the best, too."""
    for what, column in _WINS.items():
        known = [row for row in done if row[column] is not None]
        if known:
            best = max if column == "throughput_per_s" else min
            winner = best(known, key=itemgetter(column))
            tied = [r["name"] for r in known if r is not winner and column in (r.get("tied") or ())]
            yield f"{what} {winner['name']} ({written(column, winner[column])}{_tie_words(tied)})"


def _tie_words(names: Sequence[str]) -> str:
    """Who may be the best, too."""
    more = f" and {len(names) - _MOST_TIED:,} more" if len(names) > _MOST_TIED else ""
    return f"; tied with it: {', '.join(names[:_MOST_TIED])}{more}" if names else ""


def _keeps(row: Values, limits: tuple[float | None, float | None]) -> bool:
    """Whether a row is within the limits; what is unknown is within none."""
    values = (row["latency_s"], row["cost_usd_per_1000"])
    return all(
        most is None or (value is not None and value <= most)
        for value, most in zip(values, limits, strict=True)
    )


def _pareto(
    key: tuple[str, str],
    rows: Sequence[Values],
    place: int,
    limits: tuple[float | None, float | None],
    most_points: int,
) -> Section:
    done = _timed(rows)
    front = {id(row) for row in known_best(done)}
    ordered = sorted(rows, key=lambda row: id(row) not in front)
    priced = [row for row in done if row["cost_usd_per_1000"] is not None]
    most = max((row["energy_per_sample_j"] or 0.0 for row in priced), default=0.0) or 1.0
    beaten = [row for row in priced if id(row) not in front]
    kept = [row for row in priced if id(row) in front]
    shown = beaten[:: len(beaten) // most_points + 1]
    shown_front = kept[:: len(kept) // most_points + 1]
    traces = [
        _points("beaten", shown, most, "#7f8a94"),
        _points("on the front", shown_front, most, "#e08a1e"),
        *limit_lines(priced, limits),
    ]
    ranged = (
        f">{title}={{{name}}}[ ({{{name}_low}} to {{{name}_high}})]"
        for name, title in _TITLES.items()
    )
    columns = f"device=name | {' | '.join(ranged)} | on the front=is_on | limited by=limit"
    text = (
        "On the front: no other device is at least as good in time, energy and cost. Larger marks "
        "need more energy per sample; open ones have an unknown energy."
    )
    text += left_out(len(done) - len(priced), "without a price not drawn")
    text += left_out(len(beaten) - len(shown), f"of {len(beaten):,} that are beaten not drawn")
    text += left_out(len(kept) - len(shown_front), f"of {len(kept):,} on the front not drawn")
    title = f"{key[0]}, {key[1]}: time, cost and energy"
    cells = [_cells(row, id(row) in front) for row in ordered]
    drawn = figure(traces, "time of one batch", "USD per 1,000", "xy")
    return Section.of(f"pareto-{place}", title, columns, cells, text, drawn)


def _cells(row: Values, is_on_front: bool) -> Document:
    """A row with its limit; one that cannot run has its reason in place of figures."""
    if row["reason"] is not None:
        return {**row, **dict.fromkeys((*_TITLES, "is_on"), ""), "limit": row["reason"]}
    limit = (row["bound"] or "").replace("_", " ")
    return {**row, "is_on": "yes" if is_on_front else "no", "limit": limit}


def _points(name: str, rows: Sequence[Values], most: float, colour: str) -> Document:
    """Marks whose area grows with the energy, up to the largest of the figure; with their names
    where they are few.
    """
    is_named = len(rows) <= _MANY
    times, energies, costs = ([row[goal] for row in rows] for goal in GOALS)
    return trace(
        name,
        times,
        costs,
        "markers+text" if is_named else "markers",
        cliponaxis=not is_named,
        text=[row["name"] for row in rows],
        textposition=_sides(rows),
        customdata=[label(joules(energy)) for energy in energies],
        hovertemplate="%{text}<br>%{x:.3s}s, $%{y:.3g}, %{customdata}<extra></extra>",
        marker={
            "color": colour,
            "symbol": ["circle-open" if energy is None else "circle" for energy in energies],
            "size": [10 + 16 * ((energy or 0.0) / most) ** 0.5 for energy in energies],
        },
    )


def _sides(rows: Sequence[Values]) -> list[str]:
    """Above and below by turns along the time, so that names of neighbours keep apart."""
    order = np.argsort([row["latency_s"] for row in rows], kind="stable")
    turns = np.empty(len(rows), dtype=np.int64)
    turns[order] = np.arange(len(rows)) % 2
    return [("top center", "bottom center")[turn] for turn in turns.tolist()]


def limit_lines(
    rows: Sequence[Values], limits: tuple[float | None, float | None]
) -> list[Document]:
    """A line for the latency target and one for the budget, across what is drawn.

    Args:
        rows: What is drawn.
        limits: Seconds of a batch, and USD per 1,000; None for none.
    """
    if not rows:
        return []
    slo_s, budget = limits
    times, costs = ([row[name] for row in rows] for name in ("latency_s", "cost_usd_per_1000"))
    lines = []
    if slo_s is not None:
        lines.append(limit_line("latency target", [slo_s, slo_s], [min(costs), max(costs)]))
    if budget is not None:
        lines.append(limit_line("budget", [min(times), max(times)], [budget, budget]))
    return lines


def break_even_section(
    rows: Sequence[Values], devices: Sequence[DeviceProfile], name: str
) -> Section | None:
    """Cost of a load on each device, rented where it has a price, else bought; None where no
    device has a rate and a price.

    Args:
        rows: Estimates of one model's inference.
        devices: Their profiles.
        name: Id of the table.
    """
    by_name = {device.label: device for device in devices}
    load_options = [_load_option(row, by_name.get(row["device"])) for row in rows]
    options = [option for option in load_options if option is not None]
    if not options:
        return None
    unpriced = [row["name"] for row, one in zip(rows, load_options, strict=True) if one is None]
    text = (
        f"Rented at the offer's price; devices without an offer bought at their list price over "
        f"{_LIFE_YEARS:g} years with electricity at ${_USD_PER_KWH:g} per kWh, without host and "
        "people. Whole devices; the page starts with the rate of the fastest as its load."
    )
    named = ", ".join([*unpriced[:_MOST_NAMES], *["others"] * (len(unpriced) > _MOST_NAMES)])
    text += f" No rate or price: {named}." if unpriced else ""
    return calculator_section(
        options, max(one.rate_per_s for one in options), "samples", text, name=name
    )


def _load_option(row: Values, device: DeviceProfile | None) -> LoadOption | None:
    rate = row["throughput_per_s"]
    if row["reason"] is not None or rate is None:
        return None
    kind = f"{row['name']}, {device.device_class}" if device else row["name"]
    if row["usd_per_hour"] is not None:
        return LoadOption(f"{kind}, {row['offer'] or 'own price'}", rate, row["usd_per_hour"])
    price = None if device is None else device.launch_price_usd
    power = row["average_power_w"]
    if device is None or price is None or power is None:
        return None
    bought = price.value * device.joined_count
    hourly = bought / (_LIFE_YEARS * HOURS_PER_YEAR)
    electricity = electricity_usd_per_hour(power, _USD_PER_KWH, 1.0)
    return LoadOption(f"{kind}, bought at {usd(bought)}", rate, hourly + electricity)


def _offers(groups: Mapping[tuple[str, str], Sequence[Values]]) -> list[Section]:
    """Cost and carbon of each model and mode at every offer of the devices that run it."""
    offers = []
    for index, ((model, mode), rows) in enumerate(groups.items()):
        rates = {
            row["device"]: (row["device"], row["throughput_per_s"], row["energy_per_sample_j"])
            for row in sorted(rows, key=lambda row: row["throughput_per_s"] or 0.0)
            if row["reason"] is None
        }
        section = offers_section(list(rates.values()), name=f"offers-{index}")
        if section is not None:
            title = f"{model}, {mode}: cost and carbon by offer"
            offers.append(replace(section, title=title))
    return offers
