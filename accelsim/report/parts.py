"""Parts that pages share: tables of metrics, of mappings and of rows, shares of a whole, and where
prices and numbers come from. All are made from the plain values that a result's JSON holds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from accelsim.report.devices import device_numbers, quantity_of
from accelsim.report.offers import quote_of
from accelsim.report.page import Cell, DataTable, Section, axis, cell, figure, label
from accelsim.report.quantity import amount, decimal, duration, percent, usd, whole

if TYPE_CHECKING:
    import pandas as pd

    from accelsim.hardware.profile import DeviceProfile

#: Rows of a table, and bars of a figure, at most.
MAX_ROWS = 200
_MAX_BARS = 40
#: Share of a whole below which a part is the rounding of a difference.
_ROUNDING = 1e-12
COLOURS = (
    *("#2f7fd6", "#e08a1e", "#2fa36b", "#c5539b", "#8a6fd1", "#7f8a94", "#d65f5f"),
    *("#a3873a", "#3fb4c4"),
)

_UNIT = re.compile(r"_(bytes|flop)_per_s$|(?<!_per)_(s|j|w|bytes|usd|fraction)$")
_UNIT_OF_RATE = re.compile(r"(?<=[a-z])_(usd|j)_per_")
#: Numbers that name something and have no thousands.
_NAMES = frozenset(("year", "seed"))

joules = partial(amount, unit="J")
#: Ending of a name -> how its value is written; the first that fits.
_WRITERS: tuple[tuple[str, Callable[[float | None], str]], ...] = (
    ("_fraction", percent),
    ("usd_per_hour", usd),
    ("usd_per_1000", usd),
    ("usd_per_1000_requests", usd),
    ("usd_per_million_tokens", usd),
    ("_usd_per_month", usd),
    ("_usd", usd),
    ("_bytes_per_s", partial(amount, unit="B/s", small=False)),
    ("_flop_per_s", partial(amount, unit="FLOP/s", small=False)),
    ("_per_s", decimal),
    ("_per_s_per_device", partial(amount, unit="FLOP/s", small=False)),
    ("_bytes", partial(amount, unit="B", small=False)),
    ("energy_j_per_month", joules),
    ("energy_j_per_token", joules),
    ("_j", joules),
    ("_w", partial(amount, unit="W")),
    ("_s", duration),
    ("_count", whole),
)


def words(name: str) -> str:
    """A name of a field as people read it, without the unit that its values have."""
    field, dot, part = name.partition(".")
    field = _UNIT_OF_RATE.sub("_per_", field)
    return f"{_UNIT.sub('', field)}{dot and ', '}{part}".replace("_", " ")


def value_cell(name: str, value: Any) -> str | Cell:
    """A value as its field's name says; texts as they are, None as unknown."""
    if value is None:
        return Cell("unknown", None)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _text(name, value)
    write = _writer(name) or (whole if isinstance(value, int) else decimal)
    return Cell(str(value), float(value)) if name in _NAMES else cell(float(value), write)


def _writer(name: str) -> Callable[[float | None], str] | None:
    """What writes the values of a field; None where its name has no unit."""
    stem, _, part = name.partition(".")
    for ending, write in _WRITERS:
        if part.endswith(ending) or stem.endswith(ending):
            return write
    return None


def value_text(name: str, value: Any) -> str:
    """A value in words, as its field's name says."""
    found = value_cell(name, value)
    return found if isinstance(found, str) else found.text


def _text(name: str, value: Any) -> str:
    if isinstance(value, Mapping):
        units = {key: str(key) if _writer(str(key)) else name for key in value}
        return ", ".join(
            f"{words(str(key))} {value_text(units[key], one)}"
            for key, one in value.items()
            if one is not None
        )
    if value in ([], (), {}):
        return "none"
    if isinstance(value, list | tuple):
        return ", ".join(value_text(name, one) for one in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def metrics_section(metrics: Mapping[str, Mapping[str, Any]]) -> Section:
    """Figures with their intervals; unknown ones too."""
    rows = [
        (
            words(name),
            value_cell(name, one.get("value")),
            *(
                "" if one.get(end) is None else value_cell(name, one[end])
                for end in ("low", "high")
            ),
        )
        for name, one in metrics.items()
    ]
    level = next((one["level"] for one in metrics.values() if one.get("level")), None)
    text = "" if level is None else f"low and high: the {percent(level)} interval."
    table = DataTable(("figure", ">value", ">low", ">high"), cut(rows))
    return Section("figures", "Figures", table, text)


def mapping_section(name: str, title: str, found: Mapping[str, Any], text: str = "") -> Section:
    """Names and values; those without a unit have that of the mapping's own name."""
    rows = [
        (words(key), value_cell(key if _writer(key) or key in _NAMES else name, value))
        for key, value in found.items()
    ]
    return Section(name, title, DataTable(("what", "value"), cut(rows)), text)


def rows_section(
    name: str, title: str, rows: Sequence[Mapping[str, Any]], text: str = ""
) -> Section:
    """A table with a column for each name that a row has."""
    shown = rows[:MAX_ROWS]
    names = list(dict.fromkeys(key for row in shown for key in row))
    is_number = {key: any(type(row.get(key)) in {int, float} for row in shown) for key in names}
    titles = tuple((">" if is_number[key] else "") + words(key) for key in names)
    cells = [tuple(_row_cell(key, row) for key in names) for row in shown]
    left = len(rows) - len(shown)
    more = f" The first {len(shown):,} of {len(rows):,} rows." if left else ""
    return Section(name, title, DataTable(titles, cells), text + more)


def _row_cell(key: str, row: Mapping[str, Any]) -> str | Cell:
    """A value as its column says, or as the field says whose value the row holds."""
    name = str(row.get("field", key)) if key == "value" else key
    return value_cell(name, row[key]) if key in row else ""


def cut(rows: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
    """The first rows, and one that says how many more there are."""
    if len(rows) <= MAX_ROWS:
        return list(rows)
    width = len(rows[0])
    return [*rows[:MAX_ROWS], (f"{len(rows) - MAX_ROWS:,} more", *[""] * (width - 1))]


def left_out(count: int, what: str) -> str:
    """A sentence to append on what is not shown; empty where that is nothing."""
    return f" {count:,} {what}." if count else ""


def rest_row(
    rows: Sequence[Sequence[str | Cell]],
    summed: int,
    write: Callable[[float | None], str],
) -> list[Sequence[str | Cell]]:
    """The first rows, and one that says how many more there are and what they sum up to.

    Args:
        rows: All rows.
        summed: Column that is summed up.
        write: How the sum is written.
    """
    found = cut(rows)
    if len(rows) > MAX_ROWS:
        total = sum(
            one.value or 0.0 for row in rows[MAX_ROWS:] if isinstance(one := row[summed], Cell)
        )
        last = list(found[-1])
        last[summed] = cell(total, write)
        found[-1] = last
    return found


def full_names(frame: pd.DataFrame) -> list[str]:
    """Names of operators with the paths of their layers.

    Args:
        frame: Operators with path and name.
    """
    pairs = zip(frame["path"].tolist(), frame["name"].tolist(), strict=True)
    return [f"{path}.{name}" if path else str(name) for path, name in pairs]


def short(values: Any) -> list[float]:
    """Five digits: what a figure can show."""
    return [float(f"{value:.4e}") for value in np.asarray(values, dtype=np.float64).tolist()]


def bars(
    names: Sequence[str], series: Mapping[str, Sequence[float | None]], title: str, **of_axis: Any
) -> dict[str, Any]:
    """A figure of bars that lie, so that long names can be read: the first of them.

    Args:
        names: What each bar is of.
        series: Values by what they are; a colour for each.
        title: What the values are, with their unit.
        of_axis: What differs from the page's own axis.
    """
    shown = [label(name) for name in names[:_MAX_BARS]]
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": words,
            "y": shown,
            "x": list(values[:_MAX_BARS]),
            "marker": {"color": colour},
        }
        for (words, values), colour in zip(series.items(), COLOURS, strict=False)
    ]
    return figure(
        traces,
        barmode="group",
        height=160 + (12 + 12 * len(series)) * len(shown),
        xaxis=axis(title, **of_axis),
        yaxis=axis("", autorange="reversed"),
    )


def shares_section(
    name: str, title: str, parts: Mapping[str, float | None], write: Any, text: str = ""
) -> Section:
    """Parts of a whole as bars, largest first; those that are 0 are left out.

    Args:
        name: Id of the table.
        title: Heading.
        parts: Part -> amount.
        write: How an amount is written.
        text: What it says.
    """
    total = sum(value or 0.0 for value in parts.values()) or 1.0
    known = [
        (_part_words(key), value)
        for key, value in parts.items()
        if value and abs(value / total) > _ROUNDING
    ]
    known.sort(key=lambda item: -abs(item[1]))
    rows = [(part, cell(value, write), cell(value / total, percent)) for part, value in known]
    shares = [100 * value / total for _, value in known]
    drawn = bars([part for part, _ in known], {"share": shares}, "share, %")
    table = DataTable(("part", ">amount", ">share"), cut(rows))
    return Section(name, title, table, text, drawn if known else None)


def _part_words(name: str) -> str:
    """A part's name; that of an operator is a path and stays."""
    return name if "." in name else words(name)


def provenance_sections(
    answers: Sequence[Mapping[str, Any]], devices: Iterable[DeviceProfile]
) -> list[Section]:
    """Where the prices and the numbers come from, and what was asked.

    Args:
        answers: Results as plain values.
        devices: Profiles they were made for.
    """
    asked = [
        (str(one.get("device", "")), words(name), value_text(name, value))
        for one in answers
        for name, value in {**one.get("inputs", {}), **_made_with(one)}.items()
        if value is not None
    ]
    numbers = [
        (
            device.name,
            row["field"],
            Cell(quantity_of(row["field"], row["value"]), row["value"]),
            row["kind"],
            row["source"],
        )
        for device in {device.name: device for device in devices}.values()
        for row in device_numbers(device)
    ]
    paid_for = {
        (one.get("device"), one["offer"], one.get("usd_per_hour")): one
        for one in answers
        if "offer" in one
    }
    prices = cut([_price_row(one) for one in paid_for.values()])
    about = ("device", "field", ">value", "kind", "source")
    paid = ("device", ">USD per hour", "offer", "as of", "source")
    found = [
        ("prices", "Where the prices come from", DataTable(paid, prices)),
        ("numbers", "Where the numbers come from", DataTable(about, numbers)),
        ("inputs", "What was asked", DataTable(("device", "input", "value"), cut(asked))),
    ]
    return [Section(*one) for one in found if one[2].rows]


def _made_with(one: Mapping[str, Any]) -> dict[str, Any]:
    about = one.get("provenance") or {}
    hashes = {f"content of {role}": found for role, found in about.get("data_hashes", {}).items()}
    evidence = one.get("evidence") or {}
    sentence = {"evidence": evidence["sentence"]} if "sentence" in evidence else {}
    return {"accelsim": about.get("version"), "seed": about.get("seed"), **hashes, **sentence}


def _price_row(one: Mapping[str, Any]) -> tuple[str | Cell, ...]:
    device, offer = str(one.get("device", "")), one.get("offer")
    quote = quote_of(offer)
    hourly = one.get("usd_per_hour")
    if hourly is None and quote is not None and not quote.offer.is_cpu:
        hourly = quote.offer.usd_per_unit_hour(quote.kind)
    if quote is None:
        said = offer or ("own price" if hourly else "none known")
        return device, cell(hourly, usd), said, "", ""
    dated = quote.offer.dated(quote.kind)
    return device, cell(hourly, usd), quote.quote_id, dated, quote.offer.source
