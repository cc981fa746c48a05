"""Devices as rows and tables: a list with the figures people compare, and one profile number by
number with its sources.
"""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.text import Text

from accelsim.hardware.profile import DeviceProfile
from accelsim.hardware.sourced import device_numbers
from accelsim.plain import Document, Rows
from accelsim.quantity import words, written
from accelsim.report.listing import Listing, heading, pairs

#: Columns every device row has, whatever the devices.
DEVICE_COLUMNS = (
    "name",
    "class",
    "vendor",
    "year",
    "title",
    "local",
    "memory_bytes",
    "memory_bandwidth_bytes_per_s",
    "limit_w",
    "idle_w",
)
#: Fields that are in every row, or shown elsewhere.
_NO_FACTS = frozenset(
    {
        *("name", "title", "aliases", "vendor", "year", "scope", "device_class", "note"),
        *("sources", "conflicts"),
    }
)
_SHOWN_DTYPES = ("fp32", "fp16", "bf16", "int8")


def device_row(profile: DeviceProfile, *, local: bool = False) -> Document:
    """The figures of one device, SI units; unknown ones are None.

    Args:
        profile: The device.
        local: Whether it is this machine's own.
    """
    limit, idle = profile.power.limit_w, profile.power.idle_w
    return {
        "name": profile.name,
        "class": profile.device_class,
        "vendor": profile.vendor,
        "year": profile.year,
        "title": profile.title,
        "local": local,
        "memory_bytes": profile.memory_bytes,
        "memory_bandwidth_bytes_per_s": profile.memory_bandwidth_bytes_per_s,
        "limit_w": None if limit is None else limit.value,
        "idle_w": None if idle is None else idle.value,
        "peak_flop_per_s": {
            dtype.label: rate for dtype, rate in sorted(profile.peak_flop_per_s.items())
        },
    }


def devices_table(rows: Rows) -> RenderableType:
    """Rows of `device_row`, one line each; peaks in tera-operations per second."""
    rates = " | ".join(f">{name}=tera.{name}:decimal" for name in _SHOWN_DTYPES)
    columns = (
        "name | class | vendor | year | >memory=memory_bytes | >bandwidth="
        f"memory_bandwidth_bytes_per_s | {rates} | >limit=limit_w"
    )
    shown = [{**row, "tera": _tera(row["peak_flop_per_s"])} for row in rows]
    styles = ["bold" if row["local"] else "" for row in rows]
    return Listing.of(columns, shown, styles=styles)


def _tera(rates: Mapping[str, float]) -> Document:
    return {name: rates[name] / 1e12 if name in rates else "-" for name in _SHOWN_DTYPES}


def device_document(profile: DeviceProfile) -> Document:
    """A profile for JSON: its description, numbers with sources, and recorded conflicts."""
    return {
        **device_row(profile, local=profile.name.startswith("local/")),
        "aliases": list(profile.aliases),
        "scope": profile.scope,
        "facts": _facts(profile),
        "note": profile.note,
        "numbers": device_numbers(profile),
        "conflicts": [conflict.model_dump(mode="json") for conflict in profile.conflicts],
    }


def _facts(profile: DeviceProfile) -> Document:
    """What is neither a number with a source nor in every row: architecture, part, flows,
    dataflow.
    """
    facts: Document = {}
    for name in type(profile).model_fields:
        value = None if name in _NO_FACTS else getattr(profile, name)
        if isinstance(value, (str, bool)):
            facts[name] = value
        elif isinstance(value, tuple) and value and all(isinstance(item, str) for item in value):
            facts[name] = list(value)
    return facts


def device_view(profile: DeviceProfile) -> RenderableType:
    """A profile, number by number, each with its kind and a numbered source."""
    about = (
        f"{profile.vendor} {profile.device_class}, {profile.year}; power and memory of "
        f"the {profile.scope}"
    )
    aliases = [f"also called {', '.join(profile.aliases)}"] if profile.aliases else []
    facts = (f"{words(name)}: {written(name, fact)}" for name, fact in _facts(profile).items())
    note = [Text(profile.note, style="italic")] if profile.note else []
    conflicts = [
        Text(
            f"{conflict.field}: {conflict.reference_source} says {conflict.reference_value}; "
            f"{conflict.reason}"
        )
        for conflict in profile.conflicts
    ]
    if conflicts:
        conflicts.insert(0, Text("\nother sources disagree", style="bold"))
    return Group(
        heading({"title": profile.title, "name": profile.name}),
        *map(Text, (about, *aliases, *facts)),
        *note,
        "",
        numbers_view(device_numbers(profile)),
        *conflicts,
    )


def numbers_view(numbers: Rows) -> RenderableType:
    """Rows of `device_numbers` as a table, and the sources that it cites by number."""
    sources = dict.fromkeys(row["source"] for row in numbers)
    marks = {source: f"[{index}]" for index, source in enumerate(sources, 1)}
    rows = [
        {**row, "value": quantity_of(row["field"], row["value"]), "source": marks[row["source"]]}
        for row in numbers
    ]
    table = Listing.of("~field | >value | kind | source", rows, gap=2)
    cited = ((mark, source) for source, mark in marks.items())
    return Group(
        table,
        Text("\nsources", style="bold"),
        pairs(cited, gap=1, style="", justify="right"),
    )


def quantity_of(field: str, value: object) -> str:
    """A value with the unit its field's name ends in; integer rates are of operations."""
    text = written(field, value)
    return text.replace("FLOP", "OP") if field.rpartition(".")[2].startswith("int") else text
