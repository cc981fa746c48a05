"""Parts that pages share: tables of metrics, of mappings and of rows, shares of a whole, and where
prices and numbers come from. All are made from the plain values that a result's JSON holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from accelsim.hardware.sourced import device_numbers
from accelsim.plain import Document, Rows, Values
from accelsim.quantity import form_of, percent, words, written
from accelsim.report.columns import Cell, with_value
from accelsim.report.devices import quantity_of
from accelsim.report.offers import quote_of
from accelsim.report.page import MAX_ROWS, DataTable, Section, axis, figure, label

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike

    from accelsim.hardware.profile import DeviceProfile

_MAX_BARS = 40
#: Number of a layer in the path of an operator.
_LAYER = re.compile(r"(?<=\.)\d+(?=\.|$)")
#: Share of a whole below which a part is the rounding of a difference.
_ROUNDING = 1e-12
_ENDS = ("low", "high")
COLOURS = (
    *("#2f7fd6", "#e08a1e", "#2fa36b", "#c5539b", "#8a6fd1", "#7f8a94", "#d65f5f"),
    *("#a3873a", "#3fb4c4"),
)


def _cell(name: str, value: object) -> str | Cell:
    return with_value(written(name, value), value)


def metrics_section(metrics: Mapping[str, Values]) -> Section:
    """Figures with their intervals; unknown ones too."""
    rows = [
        (
            words(name),
            _cell(name, metric.get("value")),
            *("" if metric.get(end) is None else _cell(name, metric[end]) for end in _ENDS),
        )
        for name, metric in metrics.items()
    ]
    level = next((metric["level"] for metric in metrics.values() if metric.get("level")), None)
    text = "" if level is None else f"low and high: the {percent(level)} interval."
    table = DataTable(("figure", ">value", ">low", ">high"), rows)
    return Section("figures", "Figures", table, text)


def mapping_section(name: str, title: str, values: Values, text: str = "") -> Section:
    """Names and values; those without a unit have that of the mapping's own name."""
    rows = [
        (words(key), _cell(key if form_of(key) else name, value)) for key, value in values.items()
    ]
    return Section(name, title, DataTable(("what", "value"), rows), text)


def rows_section(name: str, title: str, rows: Rows, text: str = "") -> Section:
    """A table with a column for each name that a row has."""
    shown = rows[:MAX_ROWS]
    names = list(dict.fromkeys(key for row in shown for key in row))
    is_number = {key: any(type(row.get(key)) in {int, float} for row in shown) for key in names}
    titles = tuple((">" if is_number[key] else "") + words(key) for key in names)
    cells = [[_row_cell(key, row) for key in names] for row in shown]
    if len(shown) < len(rows):
        text += f" The first {len(shown):,} of {len(rows):,} rows."
    return Section(name, title, DataTable(titles, cells), text)


def _row_cell(key: str, row: Values) -> str | Cell:
    """A value as its column says, or as the field says whose value the row holds."""
    name = str(row.get("field", key)) if key == "value" else key
    return _cell(name, row[key]) if key in row else ""


def left_out(count: int, reason: str) -> str:
    """A sentence to append on what is not shown; empty where that is nothing."""
    return f" {count:,} {reason}." if count else ""


def full_names(frame: pd.DataFrame) -> list[str]:
    """Names of operators with the paths of their layers.

    Args:
        frame: Operators with path and name.
    """
    pairs = zip(frame["path"].tolist(), frame["name"].tolist(), strict=True)
    return [f"{path}.{name}" if path else str(name) for path, name in pairs]


def folded(
    rows: Rows, name: str, summed: Sequence[str], figures: Sequence[str] = ()
) -> list[Document]:
    """Rows of numbered layers that read the same as one row, which says how many they are.

    Args:
        rows: With a name that has the layer's number between dots or at its end.
        name: Field of the name.
        summed: Fields that read the same, and are added up.
        figures: Other fields that read the same.
    """
    groups: dict[object, list[Values]] = {}
    for index, row in enumerate(rows):
        stem, is_layer = _LAYER.subn("*", str(row[name]), 1)
        texts = tuple(written(figure, row[figure]) for figure in (*summed, *figures))
        groups.setdefault((stem, texts) if is_layer else index, []).append(row)
    return [
        {
            **alike[0],
            name: _of_layers([str(row[name]) for row in alike]),
            **{figure: alike[0][figure] and sum(row[figure] for row in alike) for figure in summed},
        }
        for alike in groups.values()
    ]


def _of_layers(names: Sequence[str]) -> str:
    """Names that differ in the number of their layer, as one."""
    if len(names) == 1:
        return names[0]
    layers = sorted({int(_LAYER.findall(text)[0]) for text in names})
    ends = f"{layers[0]} to {layers[-1]}" if len(layers) > 1 else str(layers[0])
    return f"{_LAYER.sub(ends, names[0], 1)} ({len(names)} ×)"


def short(values: ArrayLike) -> list[float]:
    """Five digits: what a figure can show."""
    return [float(f"{value:.4e}") for value in np.asarray(values, dtype=np.float64).tolist()]


def bars(
    names: Sequence[str],
    series: Mapping[str, Sequence[float | None]],
    title: str,
    **of_axis: object,
) -> Document:
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
            "name": quantity,
            "y": shown,
            "x": list(values[:_MAX_BARS]),
            "marker": {"color": colour},
        }
        for (quantity, values), colour in zip(series.items(), COLOURS, strict=False)
    ]
    return figure(
        traces,
        barmode="group",
        height=160 + (12 + 12 * len(series)) * len(shown),
        xaxis=axis(title, **of_axis),
        yaxis=axis("", autorange="reversed"),
    )


def shares_section(name: str, title: str, parts: Mapping[str, float | None], unit: str) -> Section:
    """Parts of a whole as bars, largest first; those that are 0 are left out.

    Args:
        name: Id of the table.
        title: Heading.
        parts: Part -> amount.
        unit: How an amount is written, as a figure's name ends.
    """
    total = sum(value or 0.0 for value in parts.values()) or 1.0
    rows: list[Document] = [
        {"part": key if "." in key else words(key), "amount": value, "share": value / total}
        for key, value in parts.items()  # a name with a dot is an operator's path
        if value and abs(value / total) > _ROUNDING
    ]
    rows.sort(key=lambda row: -abs(row["share"]))
    shares = {"share": [100 * row["share"] for row in rows]}
    drawn = bars([row["part"] for row in rows], shares, "share, %")
    columns = f"part | >amount=amount:{unit} | >share=share:fraction"
    return Section.of(name, title, columns, rows, "", drawn if rows else None)


def provenance_sections(answers: Rows, devices: Iterable[DeviceProfile]) -> list[Section]:
    """Where the prices and the numbers come from, and what was asked.

    Args:
        answers: Results as plain values.
        devices: Profiles they were made for.
    """
    inputs = [
        {
            "device": str(answer.get("device", "")),
            "input": words(name),
            "value": written(name, value),
        }
        for answer in answers
        for name, value in {**answer.get("inputs", {}), **_made_with(answer)}.items()
        if value is not None
    ]
    numbers = [
        {"device": device.name, **row}
        | {"value": with_value(quantity_of(row["field"], row["value"]), row["value"])}
        for device in {device.name: device for device in devices}.values()
        for row in device_numbers(device)
    ]
    paid_for = {
        (answer.get("device"), answer["offer"], answer.get("usd_per_hour")): answer
        for answer in answers
        if "offer" in answer
    }
    prices = [_price_row(answer) for answer in paid_for.values()]
    price_columns = "device | >USD per hour=usd_per_hour | offer | as of | source"
    number_columns = "device | field | >value | kind | source"
    return [
        Section.of("prices", "Where the prices come from", price_columns, prices),
        Section.of("numbers", "Where the numbers come from", number_columns, numbers),
        Section.of("inputs", "What was asked", "device | input | value", inputs),
    ]


def _made_with(answer: Values) -> Document:
    provenance, evidence = (answer.get(name) or {} for name in ("provenance", "evidence"))
    hashes = provenance.get("data_hashes", {})
    return {
        "accelsim": provenance.get("version"),
        "seed": provenance.get("seed"),
        **{f"content of {role}": digest for role, digest in hashes.items()},
        "evidence": evidence.get("sentence"),
    }


def _price_row(answer: Values) -> Document:
    offer, hourly = answer.get("offer"), answer.get("usd_per_hour")
    quote = quote_of(offer)
    row = {"device": str(answer.get("device", "")), "usd_per_hour": hourly}
    if quote is None:
        offer = offer or ("own price" if hourly else "none known")
        return row | {"offer": offer, "as_of": "", "source": ""}
    if hourly is None and not quote.offer.is_cpu:
        row["usd_per_hour"] = quote.offer.usd_per_unit_hour(quote.kind)
    dated = quote.offer.dated(quote.kind)
    return row | {"offer": quote.quote_id, "as_of": dated, "source": quote.offer.source}
