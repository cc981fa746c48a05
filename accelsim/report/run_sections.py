"""What the page of one run shows beside the run itself: the knee of its batch, what a change of an
option or of the device would do, its cost and carbon at every offer, and how far predictions of
this device were from measurements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from accelsim.frozen import frozen
from accelsim.plain import Document
from accelsim.report.changes import Figure, against, changes_section, signed
from accelsim.report.formats import grouped
from accelsim.report.page import Cell, DataTable, Section, axis, cell, figure, label
from accelsim.report.parts import COLOURS, bars, cut, joules
from accelsim.report.quantity import amount, duration, number, percent, usd, whole

if TYPE_CHECKING:
    from accelsim.estimation.estimate import Estimate
    from accelsim.exploration.sensitivity.change import Change

_SECONDS_PER_HOUR = 3600.0


def knee_section(curve: Sequence[Mapping[str, Any]], knee: int | None) -> Section:
    """Throughput over latency along the batch, with the knee.

    Args:
        curve: Estimates as plain values, by ascending batch.
        knee: The batch that is large enough; None where none fits.
    """
    writers: dict[str, Callable[[float | None], str]] = {
        "batch": whole,
        "latency_s": duration,
        "throughput_per_s": number,
        "energy_per_sample_j": joules,
        "cost_usd_per_1000": usd,
        "memory_bytes": lambda size: amount(size, "B", small=False),
    }
    rows = [tuple(cell(one[name], write) for name, write in writers.items()) for one in curve]
    line: Document = {
        "type": "scatter",
        "mode": "lines+markers+text",
        "name": "batch",
        "x": [one["latency_s"] for one in curve],
        "y": [one["throughput_per_s"] for one in curve],
        "text": [f"{one['batch']:,}" for one in curve],
        "textposition": "top left",
    }
    traces = [line]
    text = "No batch fits."
    for one in (one for one in curve if one["batch"] == knee):
        mark = {"symbol": "diamond", "size": 14, "color": COLOURS[1]}
        point = {"type": "scatter", "mode": "markers", "name": "knee", "marker": mark}
        traces.append(point | {"x": [one["latency_s"]], "y": [one["throughput_per_s"]]})
        text = (
            f"From batch {knee:,} on the throughput is within 90 % of its highest "
            f"({number(one['throughput_per_s'])} per second in {duration(one['latency_s'])})."
        )
    drawn = figure(
        traces,
        xaxis=axis("time of a batch", type="log", ticksuffix="s", exponentformat="SI"),
        yaxis=axis("samples per second", type="log"),
    )
    titles = (">batch", ">time", ">per s", ">energy per sample", ">$/1,000", ">memory")
    return Section("knee", "Knee of the batch", DataTable(titles, rows), text, drawn)


def run_changes_section(base: Estimate, changes: Sequence[Change[Estimate]]) -> Section:
    """What a change does to throughput, time, energy and cost; bars of the throughput.

    Args:
        base: The run.
        changes: The run with one thing changed.
    """
    rate = against(base, attrgetter("throughput_per_s"))
    figures = (
        Figure("throughput", rate, signed),
        Figure("time", attrgetter("latency_s"), duration),
        Figure("energy per sample", attrgetter("energy_per_sample_j"), joules),
        Figure("$/1,000", attrgetter("cost_usd_per_1000"), usd),
    )
    text = "One thing changed at a time, predicted again; throughput against this run's."
    return changes_section(changes, figures, {"throughput": rate}, text)


def offers_section(
    rates: Sequence[tuple[str, float | None, float | None]],
    unit: str = "samples",
    name: str = "offers",
) -> Section | None:
    """Cost and carbon of results at every offer of devices; None where there is none.

    Args:
        rates: A device's name, results per second of one, and the energy of one result; None where
            unknown.
        unit: What the results are.
        name: Id of the table.
    """
    rows = [row for device, rate, energy_j in rates for row in _offered(device, rate, energy_j)]
    if not rows:
        return None
    rows.sort(key=lambda row: row.cost_usd)
    devices = list(dict.fromkeys(row.device for row in rows))
    drawn = [row for row in rows if row.carbon_kg is not None]
    marks = [
        _offer_points(device, own, place)
        for place, (device, own) in enumerate(grouped(drawn, attrgetter("device")).items())
    ]
    picture = figure(
        marks,
        xaxis=axis(f"USD per 1,000 {unit}", type="log", exponentformat="none", tickangle=0),
        yaxis=axis(f"g CO2e per 1,000 {unit}", type="log", exponentformat="none"),
    )
    titles = ("device", "offer", ">USD per hour", ">$/1,000", ">CO2e per 1,000", "as of")
    text = (
        f"{len(rows):,} prices of one {', '.join(devices)}, cheapest first; grid average of the "
        f"place and the site's overhead; {len(rows) - len(drawn):,} whose region's grid or the "
        "device's energy is unknown are not drawn."
    )
    table = DataTable(titles, cut([row.cells() for row in rows]))
    title = "Cost and carbon by offer"
    return Section(name, title, table, text, picture if drawn else None)


@frozen
class _Offered:
    """Results of a device at a price."""

    device: str
    offer: str
    usd_per_hour: float
    cost_usd: float
    carbon_kg: float | None
    as_of: str

    def cells(self) -> tuple[str | Cell, ...]:
        hourly, cost = cell(self.usd_per_hour, usd), cell(self.cost_usd, usd)
        return self.device, self.offer, hourly, cost, _kg(self.carbon_kg), self.as_of


def _offered(device: str, rate_per_s: float | None, energy_j: float | None) -> Iterator[_Offered]:
    """A thousand results of a device at each of its prices; a part of a device has none."""
    from accelsim.economics.carbon import carbon_kgco2e, grid_kgco2e_per_kwh, pue_ratio
    from accelsim.economics.offer import PRICE_KINDS
    from accelsim.economics.price import PriceBook

    if not rate_per_s or "@" in device:
        return
    for offer in PriceBook.load().offers(device):
        for kind in PRICE_KINDS:
            hourly = offer.usd_per_unit_hour(kind)
            if hourly is None or offer.is_cpu:
                continue
            grid = grid_kgco2e_per_kwh(offer.provider, offer.region)
            carbon = None
            if grid is not None and energy_j is not None:
                site = pue_ratio(offer.provider, offer.region)
                carbon = carbon_kgco2e(1e3 * energy_j, grid, site)
            name = f"{offer.offer_id}, {kind.replace('_', ' ')}"
            cost = 1e3 * hourly / (rate_per_s * _SECONDS_PER_HOUR)
            yield _Offered(device, name, hourly, cost, carbon, str(offer.as_of))


def _offer_points(device: str, rows: Sequence[_Offered], place: int) -> Document:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": label(device),
        "x": [row.cost_usd for row in rows],
        "y": [1e3 * (row.carbon_kg or 0.0) for row in rows],
        "text": [label(row.offer) for row in rows],
        "hovertemplate": "%{text}<br>$%{x:.3g}, %{y:.3g} g<extra></extra>",
        "marker": {"size": 10, "color": COLOURS[place % len(COLOURS)]},
        "showlegend": True,
    }


def _kg(value: float | None) -> Cell:
    return cell(value, lambda kg: amount(None if kg is None else 1e3 * kg, "g"))


def accuracy_section(devices: Iterable[str]) -> Section | None:
    """How far predictions of devices were from measurements, from the shipped report; None where
    none of their runs was measured.

    Args:
        devices: Their names.
    """
    found = _scores(devices)
    if not found:
        return None
    rows = [
        (
            row["device"],
            f"{row['suite']} ({row['table']}), {row['group']}".rstrip(", "),
            cell(float(row["rows_answered"]), whole),
            cell(row["median_ape_fraction"], percent),
            cell(row["p90_ape_fraction"], percent),
            cell(row["interval_coverage_fraction"], percent),
        )
        for row in found
    ]
    wholes = [row for row in found if row["group"] == "all"] or found
    series = {
        name: [None if row[field] is None else 100 * row[field] for row in wholes]
        for name, field in (("median error", "median_ape_fraction"), ("p90", "p90_ape_fraction"))
    }
    names = [f"{row['device']}, {row['suite']} ({row['table']})" for row in wholes]
    drawn = bars(names, series, "error, %")
    titles = ("device", "rows", ">count", ">median error", ">p90", ">in the 90 % interval")
    text = (
        "Predicted against measured, as scored for this version; devices without rows left out. "
        "The figure has the suites, the table their models and operators, too."
    )
    title = "How far predictions were from measurements"
    return Section("accuracy", title, DataTable(titles, cut(rows)), text, drawn)


def _scores(devices: Iterable[str]) -> list[Document]:
    """Rows of the shipped report that have an error, of each device."""
    from accelsim.files.datafile import data_root
    from accelsim.report.accuracy import score_rows
    from accelsim.report.accuracy_file import read_accuracy

    report = read_accuracy(data_root() / "calibration" / "ACCURACY.json")
    return [
        {**row, "device": name, "table": row["device"]}
        for name in dict.fromkeys(device.partition("@")[0] for device in devices)
        for row in score_rows(report, name)
        if row["mape_fraction"] is not None
    ]
