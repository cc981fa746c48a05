"""Pages of matrix arrays: an exploration of designs with its Pareto front, and peaks of ASICs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Final

from accelsim.plain import Document
from accelsim.report.formats import grouped
from accelsim.report.page import Cell, DataTable, Page, Section, axis, cell, figure, label
from accelsim.report.parts import COLOURS, bars, cut, joules, left_out, mapping_section
from accelsim.report.quantity import UNKNOWN, amount, decimal, duration, percent

Row = Mapping[str, Any]

_MOST_POINTS = 5_000
_MOST_BARS = 40
_rate: Final = partial(amount, unit="FLOP/s", small=False)


def _area(value: float | None) -> str:
    return UNKNOWN if value is None else f"{decimal(value)} mm2"


#: Word of the decision -> figure that is small, and how it is written.
_BEST: dict[str, tuple[str, Callable[[float | None], str]]] = {
    "fastest": ("latency_s", duration),
    "least energy": ("energy_j", joules),
    "smallest": ("area_mm2", _area),
}


def exploration_page(document: Row, command: str) -> Page:
    """The report of an exploration of designs.

    Args:
        document: `ArchitectureSweep.to_dict`, or the same read back.
        command: Command that makes the page again.
    """
    points = document["points"]
    done = [point for point in points if not point["refusal"]]
    front = sorted((p for p in done if p["is_pareto"]), key=lambda p: float(p["latency_s"]))
    has_area = any(point.get("area_mm2") is not None for point in front)
    refused = cut([(_name(p), str(p["refusal"])) for p in points if p["refusal"]])
    asked = {name: value for name, value in document.items() if name not in {"points", "area_note"}}
    sections = [
        _pareto(done, front) if done else None,
        _parts(front, "_j", "energy", "Energy of one pass by component", "J") if front else None,
        _parts(front, "_mm2", "area", "Area by component", "mm2") if has_area else None,
        Section("refused", "Designs that cannot run it", DataTable(("design", "why"), refused)),
        mapping_section("asked", "What was asked", asked),
    ]
    goals = ", ".join(document["objectives"])
    first = (
        f"{len(front):,} of {len(points):,} designs for {document['workload']} are beaten by no "
        f"other in {goals}."
    )
    best = tuple(_best(done, words) for words in _BEST if done)
    title = f"Designs of matrix arrays for {document['workload']}"
    note = filter(None, [document.get("area_note")])
    return Page.of(title, (first, *filter(None, best)), sections, command, note)


def _name(point: Row) -> str:
    count = f"{point['count']} x " if point["count"] > 1 else ""
    sram, rate = point["sram_bytes"] / 1024, point["bandwidth_bytes_per_s"] / 1e9
    return f"{count}{point['array']} {point['dataflow']}, {sram:g} KiB, {rate:g} GB/s"


def _best(points: Sequence[Row], words: str) -> str:
    column, write = _BEST[words]
    known = [point for point in points if point[column] is not None]
    if not known:
        return ""
    least = min(known, key=lambda point: float(point[column]))
    return f"{words.capitalize()}: {_name(least)} ({write(least[column])})."


def _pareto(points: Sequence[Row], front: Sequence[Row]) -> Section:
    """Latency against energy; a colour for each dataflow, the front in full marks."""
    beaten = [point for point in points if not point["is_pareto"]]
    shown = [*beaten[:: len(beaten) // _MOST_POINTS + 1], *front]
    flows = dict.fromkeys(point["dataflow"] for point in points)
    drawn = grouped(shown, itemgetter("dataflow"))
    traces = [
        _marks(str(flow), drawn.get(flow, ()), COLOURS[place % len(COLOURS)])
        for place, flow in enumerate(flows)
    ]
    layout = {
        "xaxis": axis("latency of one pass, s", type="log", exponentformat="SI"),
        "yaxis": axis("energy of one pass, J", type="log", exponentformat="SI"),
    }
    rows: list[tuple[str | Cell, ...]] = [
        (
            _name(point),
            cell(point["latency_s"], duration),
            cell(point["energy_j"], joules),
            cell(point["area_mm2"], _area),
            cell(point["utilisation_fraction"], percent),
            cell(point["stall_fraction"], percent),
            "yes" if point["is_pareto"] else "no",
        )
        for point in [*front, *beaten]
    ]
    names = ("design", ">latency", ">energy", ">area", ">used", ">stalls", "on the front")
    text = "Full marks: no other design is better in all objectives."
    text += left_out(len(beaten) + len(front) - len(shown), "that are beaten not drawn")
    table = DataTable(names, cut(rows))
    return Section("pareto", "Latency against energy", table, text, figure(traces, **layout))


def _marks(name: str, points: Sequence[Row], colour: str) -> Document:
    """Designs of one dataflow; full marks on the front."""
    symbols = ["circle" if point["is_pareto"] else "circle-open" for point in points]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": label(name),
        "x": [point["latency_s"] for point in points],
        "y": [point["energy_j"] for point in points],
        "text": [label(_name(point)) for point in points],
        "hovertemplate": "%{text}<br>%{x:.3s}s, %{y:.3s}J<extra></extra>",
        "marker": {"size": 10, "color": colour, "symbol": symbols},
    }


def _parts(front: Sequence[Row], ending: str, name: str, title: str, unit: str) -> Section:
    """Stacked bars of the front's designs, a colour for each component."""
    total = {"_j": "energy_j", "_mm2": "area_mm2"}[ending]
    shown = front[:_MOST_BARS]
    parts = [key for key in front[0] if key.endswith(ending) and key != total]
    stacks = [
        {
            "type": "bar",
            "name": label(part.removesuffix(ending).replace("_", " ")),
            "x": [label(_name(point)) for point in shown],
            "y": [point.get(part) for point in shown],
            "marker": {"color": COLOURS[place % len(COLOURS)]},
        }
        for place, part in enumerate(parts)
    ]
    write = joules if unit == "J" else _area
    rows = [(_name(point), *(cell(point.get(part), write) for part in parts)) for point in front]
    titles = ("design", *(">" + part.removesuffix(ending).replace("_", " ") for part in parts))
    drawn = figure(stacks, barmode="stack", xaxis=axis(""), yaxis=axis(unit, exponentformat="SI"))
    text = f"The front, fastest first; {len(shown):,} of {len(front):,} drawn."
    return Section(name, title, DataTable(titles, cut(rows)), text, drawn)


def peaks_page(rows: Sequence[Row], command: str) -> Page:
    """The report of quoted and derived peaks.

    Args:
        rows: `AsicPeak.to_dict`, or the same read back.
        command: Command that makes the page again.
    """
    names = [f"{row['device']} {row['dtype']}" for row in rows]
    series = {
        "quoted": [row["quoted_flop_per_s"] for row in rows],
        "array, count and clock": [row["derived_flop_per_s"] for row in rows],
    }
    drawn = bars(names, series, "FLOP/s", type="log", exponentformat="SI")
    cells: list[tuple[str | Cell, ...]] = [
        (
            name,
            cell(row["quoted_flop_per_s"], _rate),
            cell(row["derived_flop_per_s"], _rate),
            cell(row["difference_fraction"], percent),
            str(row["reason"]),
        )
        for name, row in zip(names, rows, strict=True)
    ]
    titles = ("device", ">quoted", ">derived", ">differs", "why")
    table = DataTable(titles, cut(cells))
    section = Section("peaks", "Quoted and derived peaks", table, "The first are drawn.", drawn)
    differing = sum(bool(row["differs"]) for row in rows)
    decision = f"{differing} of {len(rows)} quoted peaks differ from array, count and clock."
    return Page("Peaks of ASICs", (decision,), (section,), command)
