"""What the page of one run shows beside the run itself: the knee of its batch, its cost and carbon
at every offer, and how far predictions of this device were from measurements.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter

from accelsim.plain import Document, Rows, grouped
from accelsim.quantity import say
from accelsim.report.page import Section, figure, points
from accelsim.report.parts import COLOURS, bars


def knee_section(curve: Rows, knee: int | None) -> Section:
    """Throughput over latency along the batch, with the knee.

    Args:
        curve: Estimates as plain values, by ascending batch.
        knee: The batch that is large enough; None where none fits.
    """
    columns = (
        ">batch | >time=latency_s | >per s=throughput_per_s | >energy per "
        "sample=energy_per_sample_j | >$/1,000=cost_usd_per_1000 | >memory=memory_bytes"
    )
    figures = ("latency_s", "throughput_per_s")
    traces = [
        points(
            "batch",
            curve,
            *figures,
            "lines+markers+text",
            "{batch:whole}",
            textposition="top left",
        )
    ]
    text = "No batch fits."
    for estimate in (estimate for estimate in curve if estimate["batch"] == knee):
        marker = {"symbol": "diamond", "size": 14, "color": COLOURS[1]}
        traces.append(points("knee", [estimate], *figures, marker=marker))
        text = say(
            "From batch {batch} on the throughput is within 90 % of its highest "
            "({throughput_per_s} per second in {latency_s}).",
            estimate,
        )
    picture = figure(traces, "time of a batch", "samples per second", "xy")
    return Section.of("knee", "Knee of the batch", columns, curve, text, picture)


def offers_section(
    rates: Sequence[tuple[str, float | None, float | None]],
    unit: str = "samples",
    name: str = "offers",
    title: str = "Cost and carbon by offer",
) -> Section | None:
    """Cost and carbon of results at every offer of devices; None where there is none.

    Args:
        rates: A device's name, results per second of one, and the energy of one result; None where
            unknown.
        unit: What the results are.
        name: Id of the table.
        title: Heading.
    """
    rows = [row for device, rate, energy_j in rates for row in _offered(device, rate, energy_j)]
    if not rows:
        return None
    rows.sort(key=itemgetter("cost_usd"))
    devices = list(dict.fromkeys(row["device"] for row in rows))
    drawn = [
        {**row, "carbon_g": 1e3 * row["carbon_kgco2e"]}
        for row in rows
        if row["carbon_kgco2e"] is not None
    ]
    traces = [
        points(
            device,
            offers,
            "cost_usd",
            "carbon_g",
            text="{offer}",
            hovertemplate="%{text}<br>$%{x:.3g}, %{y:.3g} g<extra></extra>",
            marker={"size": 10, "color": COLOURS[index % len(COLOURS)]},
            showlegend=True,
        )
        for index, (device, offers) in enumerate(grouped(drawn, itemgetter("device")).items())
    ]
    picture = figure(traces, f"USD per 1,000 {unit}", f"g CO2e per 1,000 {unit}", "xy")
    columns = (
        "device | offer | >USD per hour=usd_per_hour | >$/1,000=cost_usd | >CO2e per 1,000="
        "carbon_kgco2e | as of"
    )
    text = (
        f"{len(rows):,} prices of one {', '.join(devices)}, cheapest first; grid average of the "
        f"place and the site's overhead; {len(rows) - len(drawn):,} whose region's grid or the "
        "device's energy is unknown are not drawn."
    )
    return Section.of(name, title, columns, rows, text, picture if drawn else None)


def _offered(device: str, rate_per_s: float | None, energy_j: float | None) -> Iterator[Document]:
    """A thousand results of a device at each of its prices; a part of a device has none."""
    from accelsim.economics.carbon import carbon_kgco2e, grid_kgco2e_per_kwh, pue_ratio
    from accelsim.economics.offer import PRICE_KINDS
    from accelsim.economics.price import PriceBook
    from accelsim.economics.result import usd_per_1000_inferences

    if not rate_per_s or "@" in device:
        return
    for offer in PriceBook.load().offers(device):
        for kind in PRICE_KINDS:
            hourly_usd = offer.usd_per_unit_hour(kind)
            if hourly_usd is None or offer.is_cpu:
                continue
            grid = grid_kgco2e_per_kwh(offer.provider, offer.region)
            carbon = None
            if grid is not None and energy_j is not None:
                site = pue_ratio(offer.provider, offer.region)
                carbon = carbon_kgco2e(1e3 * energy_j, grid, site)
            yield {
                "device": device,
                "offer": f"{offer.offer_id}, {kind.replace('_', ' ')}",
                "usd_per_hour": hourly_usd,
                "cost_usd": usd_per_1000_inferences(hourly_usd, rate_per_s),
                "carbon_kgco2e": carbon,
                "as_of": str(offer.as_of),
            }


def accuracy_section(devices: Iterable[str]) -> Section | None:
    """How far predictions of devices were from measurements, from the shipped report; None where
    none of their runs was measured.

    Args:
        devices: Their names.
    """
    scores = _scores(devices)
    if not scores:
        return None
    wholes = [row for row in scores if row["group"] == "all"] or scores
    series = {
        name: [None if row[field] is None else 100 * row[field] for row in wholes]
        for name, field in (("median error", "median_ape_fraction"), ("p90", "p90_ape_fraction"))
    }
    names = [say("{device}, {suite} ({table})", row) for row in wholes]
    columns = (
        "device | rows={suite} ({table})[, {group}] | >count=rows_answered | >median error="
        "median_ape_fraction | >p90=p90_ape_fraction | >in the 90 % interval="
        "interval_coverage_fraction"
    )
    text = (
        "Predicted against measured, as scored for this version; devices without rows left out. "
        "The figure has the suites, the table their models and operators, too."
    )
    title = "How far predictions were from measurements"
    return Section.of("accuracy", title, columns, scores, text, bars(names, series, "error, %"))


def _scores(devices: Iterable[str]) -> list[Document]:
    """Rows of the shipped report that have an error, of each device."""
    from accelsim.files.datafile import data_root
    from accelsim.scoreboard.accuracy_file import read_accuracy
    from accelsim.scoreboard.score_rows import score_rows

    report = read_accuracy(data_root() / "calibration" / "ACCURACY.json")
    return [
        {**row, "device": name, "table": row["device"]}
        for name in dict.fromkeys(device.partition("@")[0] for device in devices)
        for row in score_rows(report, name)
        if row["mape_fraction"] is not None
    ]
