"""The page of a comparison: who wins, time against cost and energy with the Pareto front and the
lines of a latency target and a budget, break-even between devices, cost and carbon by offer, what
cannot run, and where the numbers come from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, TypeAlias

from accelsim.economics.load_cost import LoadOption
from accelsim.economics.result import HOURS_PER_YEAR, electricity_usd_per_hour
from accelsim.estimation.compare import GOALS, known_best
from accelsim.files.formats import uniform_rows
from accelsim.plain import Document, Rows, Values, grouped
from accelsim.quantity import joules, usd, written
from accelsim.report.calculator import calculator_section
from accelsim.report.operators import OperatorRun, energy_section, roofline_section
from accelsim.report.page import Page, Section, figure, label, limit_line, points
from accelsim.report.parts import left_out, provenance_sections
from accelsim.report.result_page import known_devices
from accelsim.report.run_sections import accuracy_section, offers_section

if TYPE_CHECKING:
    from accelsim.hardware.profile import DeviceProfile

#: Superlative of the decision -> column of an estimate whose least, or of a rate the most, is best.
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
#: Rows by model and mode.
Runs: TypeAlias = Mapping[tuple[str, str], Rows]
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
    rows: Rows,
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
    names, models = (
        list(dict.fromkeys(map(itemgetter(key), rows))) for key in ("device", "workload")
    )
    profiles = known_devices(names) if devices is None else devices
    bounds = {"latency_s": slo_s, "cost_usd_per_1000": budget_usd}
    limits = {figure: most for figure, most in bounds.items() if most is not None}
    by_run = grouped(rows, itemgetter("workload", "mode"))
    answered = _answered(rows)
    sections = [
        *_fronts(by_run, limits),
        *_front_sections(operators or {}),
        *_costs(by_run, profiles),
        accuracy_section(profile.name for profile in profiles),
        *provenance_sections(answered, profiles),
    ]
    decision = (_decision(f"{run[0]}, {run[1]}", group, limits) for run, group in by_run.items())
    warnings = (text for row in answered for text in row.get("warnings") or ())
    title = f"{', '.join(models)} on {len(names):,} devices"
    return Page.of(title, decision, sections, command, warnings)


def _answered(rows: Iterable[Values]) -> list[Values]:
    """Rows with a time."""
    return [row for row in rows if row["reason"] is None and row["latency_s"] is not None]


def _fronts(by_run: Runs, limits: Mapping[str, float]) -> Iterator[Section]:
    """Time, cost and energy of each model and mode."""
    most_points = min(_MOST_POINTS, _MOST_DRAWN // max(len(by_run), 1))
    for index, ((model, mode), rows) in enumerate(by_run.items()):
        title = f"{model}, {mode}: time, cost and energy"
        yield _pareto(f"pareto-{index}", title, rows, limits, most_points)


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


def _costs(by_run: Runs, profiles: Sequence[DeviceProfile]) -> Iterator[Section | None]:
    """Cost of a load of each model's inference, then cost and carbon of each at every offer."""
    for index, ((_, mode), rows) in enumerate(by_run.items()):
        if mode == "inference":
            yield break_even_section(rows, profiles, f"break-even-{index}")
    for index, ((model, mode), rows) in enumerate(by_run.items()):
        title = f"{model}, {mode}: cost and carbon by offer"
        rates = {
            row["device"]: (row["device"], row["throughput_per_s"], row["energy_per_sample_j"])
            for row in sorted(rows, key=lambda row: row["throughput_per_s"] or 0.0)
            if row["reason"] is None
        }
        yield offers_section(list(rates.values()), name=f"offers-{index}", title=title)


def _named(rows: Rows) -> list[Values]:
    """Rows with the name they are shown by: the device, and its batch where it has several."""
    pairs = {(row["workload"], row["mode"], row["device"]) for row in rows}
    if len(pairs) == len(rows):
        return [{**row, "name": row["device"]} for row in rows]
    return [{**row, "name": f"{row['device']}, batch {row['batch']}"} for row in rows]


def _decision(title: str, rows: Rows, limits: Mapping[str, float]) -> str:
    """Who wins a model and mode, in a sentence."""
    runs = [row for row in rows if row["reason"] is None]
    within = ""
    if limits:
        names = [row["name"] for row in runs if _keeps(row, limits)]
        within = f"; within the limits: {', '.join(names[:_MOST_NAMES]) or 'none'}"
    failed = len(rows) - len(runs)
    refused = f"; {failed} of {len(rows)} cannot run it" if failed else ""
    return f"{title}: {', '.join(_wins(runs)) or 'nothing runs it'}{within}{refused}."


def _wins(rows: Rows) -> Iterator[str]:
    """The best of each figure, and who may be the best, too."""
    for superlative, figure_name in _WINS.items():
        known = [row for row in rows if row[figure_name] is not None]
        if known:
            best = max if figure_name == "throughput_per_s" else min
            winner = best(known, key=itemgetter(figure_name))
            tied = [
                row["name"]
                for row in known
                if row is not winner and figure_name in (row.get("tied") or ())
            ]
            value = written(figure_name, winner[figure_name])
            yield f"{superlative} {winner['name']} ({value}{_tied_text(tied)})"


def _tied_text(names: Sequence[str]) -> str:
    """Who may be the best, too."""
    more = f" and {len(names) - _MOST_TIED:,} more" if len(names) > _MOST_TIED else ""
    return f"; tied with it: {', '.join(names[:_MOST_TIED])}{more}" if names else ""


def _keeps(row: Values, limits: Mapping[str, float]) -> bool:
    """Whether a row is within the limits; what is unknown is within none."""
    return all(row[name] is not None and row[name] <= most for name, most in limits.items())


def _pareto(
    name: str, title: str, rows: Rows, limits: Mapping[str, float], most_points: int
) -> Section:
    answered = _answered(rows)
    front = {id(row) for row in known_best(answered)}
    priced = [row for row in answered if row["cost_usd_per_1000"] is not None]
    beaten = [row for row in priced if id(row) not in front]
    best = [row for row in priced if id(row) in front]
    drawn_beaten, drawn_best = _thinned(beaten, most_points), _thinned(best, most_points)
    most_energy_j = max((row["energy_per_sample_j"] or 0.0 for row in priced), default=0.0) or 1.0
    traces = [
        _points("beaten", drawn_beaten, most_energy_j, "#7f8a94"),
        _points("on the front", drawn_best, most_energy_j, "#e08a1e"),
        *limit_lines(priced, limits),
    ]
    ranged = (
        f">{column}={{{figure_name}}}[ ({{{figure_name}_low}} to {{{figure_name}_high}})]"
        for figure_name, column in _TITLES.items()
    )
    columns = f"device=name | {' | '.join(ranged)} | on the front=is_on | limited by=limit"
    text = (
        "On the front: no other device is at least as good in time, energy and cost. Larger marks "
        "need more energy per sample; open ones have an unknown energy."
    )
    text += left_out(len(answered) - len(priced), "without a price not drawn")
    text += left_out(
        len(beaten) - len(drawn_beaten), f"of {len(beaten):,} that are beaten not drawn"
    )
    text += left_out(len(best) - len(drawn_best), f"of {len(best):,} on the front not drawn")
    ordered = sorted(rows, key=lambda row: id(row) not in front)
    cells = [_cells(row, id(row) in front) for row in ordered]
    picture = figure(traces, "time of one batch", "USD per 1,000", "xy")
    return Section.of(name, title, columns, cells, text, picture)


def _thinned(rows: Rows, most: int) -> Rows:
    """Every so many of the rows, so that they are no more than a figure holds."""
    return rows[:: len(rows) // most + 1]


def _cells(row: Values, is_on_front: bool) -> Document:
    """A row with its limit; one that cannot run has its reason in place of figures."""
    if row["reason"] is not None:
        return {**row, **dict.fromkeys((*_TITLES, "is_on"), ""), "limit": row["reason"]}
    limit = (row["bound"] or "").replace("_", " ")
    return {**row, "is_on": "yes" if is_on_front else "no", "limit": limit}


def _points(name: str, rows: Rows, most_energy_j: float, colour: str) -> Document:
    """Marks whose area grows with the energy, up to the largest of the figure; with their names
    where they are few.
    """
    is_named = len(rows) <= _MANY
    energies = [row["energy_per_sample_j"] for row in rows]
    return points(
        name,
        rows,
        "latency_s",
        "cost_usd_per_1000",
        "markers+text" if is_named else "markers",
        "{name}",
        cliponaxis=not is_named,
        textposition=_sides(rows),
        customdata=[label(joules(energy)) for energy in energies],
        hovertemplate="%{text}<br>%{x:.3s}s, $%{y:.3g}, %{customdata}<extra></extra>",
        marker={
            "color": colour,
            "symbol": ["circle-open" if energy is None else "circle" for energy in energies],
            "size": [10 + 16 * ((energy or 0.0) / most_energy_j) ** 0.5 for energy in energies],
        },
    )


def _sides(rows: Rows) -> list[str]:
    """Above and below by turns along the time, so that names of neighbours keep apart."""
    sides = [""] * len(rows)
    order = sorted(range(len(rows)), key=lambda index: float(rows[index]["latency_s"]))
    for turn, index in enumerate(order):
        sides[index] = "bottom center" if turn % 2 else "top center"
    return sides


def limit_lines(rows: Rows, limits: Mapping[str, float]) -> Iterator[Document]:
    """A line for the latency target and one for the budget, across what is drawn.

    Args:
        rows: What is drawn.
        limits: Most of a figure: seconds of a batch, USD per 1,000.
    """
    for name, most in limits.items() if rows else ():
        other = "cost_usd_per_1000" if name == "latency_s" else "latency_s"
        ends = [end(row[other] for row in rows) for end in (min, max)]
        if name == "latency_s":
            yield limit_line("latency target", [most, most], ends)
        else:
            yield limit_line("budget", ends, [most, most])


def break_even_section(rows: Rows, devices: Sequence[DeviceProfile], name: str) -> Section | None:
    """Cost of a load on each device, rented where it has a price, else bought; None where no
    device has a rate and a price.

    Args:
        rows: Estimates of one model's inference.
        devices: Their profiles.
        name: Id of the table.
    """
    by_name = {device.label: device for device in devices}
    options: list[LoadOption] = []
    unpriced: list[str] = []
    for row in rows:
        option = _load_option(row, by_name.get(row["device"]))
        if option is None:
            unpriced.append(row["name"])
        else:
            options.append(option)
    if not options:
        return None
    text = (
        f"Rented at the offer's price; devices without an offer bought at their list price over "
        f"{_LIFE_YEARS:g} years with electricity at ${_USD_PER_KWH:g} per kWh, without host and "
        "people. Whole devices; the page starts with the rate of the fastest as its load."
    )
    if unpriced:
        names = [*unpriced[:_MOST_NAMES], *["others"] * (len(unpriced) > _MOST_NAMES)]
        text += f" No rate or price: {', '.join(names)}."
    most_per_s = max(option.rate_per_s for option in options)
    return calculator_section(options, most_per_s, "samples", text, name=name)


def _load_option(row: Values, device: DeviceProfile | None) -> LoadOption | None:
    """A device as a way to carry a load; None where it has no rate or no price.

    Estimate: without an offer its list price is spread evenly over its life, and it draws the
    run's mean power all the time.
    """
    rate_per_s = row["throughput_per_s"]
    if row["reason"] is not None or rate_per_s is None:
        return None
    name = f"{row['name']}, {device.device_class}" if device else row["name"]
    if row["usd_per_hour"] is not None:
        return LoadOption(f"{name}, {row['offer'] or 'own price'}", rate_per_s, row["usd_per_hour"])
    power_w = row["average_power_w"]
    if device is None or device.launch_price_usd is None or power_w is None:
        return None
    price_usd = device.launch_price_usd.value * device.joined_count
    hourly_usd = price_usd / (_LIFE_YEARS * HOURS_PER_YEAR)
    electricity_usd = electricity_usd_per_hour(power_w, _USD_PER_KWH, 1.0)
    return LoadOption(
        f"{name}, bought at {usd(price_usd)}", rate_per_s, hourly_usd + electricity_usd
    )
