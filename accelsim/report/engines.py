"""Engines of ``accelsim serve`` by version, as rows and a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from accelsim.catalog.engines import engine_names, engine_versions
from accelsim.hardware.profile import DeviceProfile
from accelsim.plain import Document, Values
from accelsim.report.listing import Listing

#: Columns of every row.
ENGINE_COLUMNS = (
    "name",
    "versions",
    "max_batch_tokens",
    "max_seqs",
    "memory_rule",
    "memory_fraction",
    "prefix_cache",
    "chunked",
    "schedules_ahead",
    "step_overhead_s",
    "source",
)


def engine_rows(device: DeviceProfile) -> list[Document]:
    """What each version of each engine does by itself on one device."""
    rows = []
    for name in engine_names():
        for version in engine_versions(name):
            tokens = version.limit("max_batch_tokens", device)
            stated = version.model_dump(mode="json", include=set(ENGINE_COLUMNS))
            found = {
                "name": name,
                "versions": version.span.text,
                "max_batch_tokens": tokens,
                "max_seqs": version.limit("max_seqs", device),
                "memory_fraction": version.share(device, tokens, 1, 1),
                "step_overhead_s": version.step_overhead_s.value,
            }
            rows.append({column: (stated | found)[column] for column in ENGINE_COLUMNS})
    return rows


def engines_table(rows: Sequence[Values]) -> RenderableType:
    """Rows of `engine_rows`, one line each, and their sources."""
    shown = [
        {
            **row,
            "prefixes": "yes" if row["prefix_cache"] else "no",
            "ahead": "yes" if row["schedules_ahead"] else "no",
        }
        for row in rows
    ]
    titles = (
        "engine=name | versions | >tokens=max_batch_tokens | >sequences=max_seqs | "
        ">memory=memory_fraction | prefixes | ahead | >host=step_overhead_s"
    )
    sources = [Text(row["source"]) for row in rows]
    return Group(Listing.of(titles, shown), Text(""), *sources)
