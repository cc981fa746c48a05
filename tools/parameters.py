"""Writes the page of the docs that counts free numbers and what they rest on.

``python -m tools.parameters`` writes ``docs/parameters.md``; a test holds the page to the data.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "parameters.md"
_DATA: Final = ROOT / "calibration"
#: Fields of a software whose numbers are dates, or stand in a column of their own.
_NO_NUMBERS: Final = frozenset(("measured", "spreads"))
#: Kind of a number, by how its source begins where the file does not say the kind.
_KINDS: Final = {"estimate": "estimate", "fit": "measured", "data sheets": "datasheet"}
_HEAD: Final = """\
# Free numbers and what they rest on

Written by `python -m tools.parameters`; do not edit. A free number is one that the code does not
derive: it was fitted to measured rows, read from a document, derived from such numbers by hand,
or estimated. A table with many estimates, or few rows and systems behind it, is thin. Each
number's own source stands beside it in its file; one whose source names no kind counts as
measured or fitted.

## By file

| file | free numbers | measured or fitted | documents | derived | estimates |
|---|---:|---:|---:|---:|---:|
"""
_STACKS: Final = """
## By software

Numbers say how a software issues, fuses and communicates; ratios among them correct its times. A
spread says how far its runs lay from
predictions, and on how many rows that rests.

| software | numbers | ratios of times | spreads | rows behind the spreads |
|---|---:|---:|---:|---:|
"""
_OVERLAYS: Final = """
## By device with an overlay of its own

A surface has one correction per measured shape of a kernel; `rows` are the measurements behind
all of them.

| device | rows | parameters of its own | families with residuals |
|---|---:|---:|---:|
"""
_TESTED: Final = """
## Whole-model runs that test them

Runs of the scoreboard and the systems (boards, models or engines) they are of. Intervals rest on
these; fewer than five systems give way
to the next larger group ([intervals](intervals.md)).

| class | runs of | runs | systems |
|---|---|---:|---:|
"""


def _numbers(data: Any, sources: dict[str, str]) -> Iterator[str]:
    """Kind of each number of a file that names its source."""
    if isinstance(data, list):
        for part in data:
            yield from _numbers(part, sources)
    elif isinstance(data, dict):
        if "value" in data and "source" in data:
            value = data["value"]
            said = sources.get(data["source"], str(data["source"]))
            kind = data.get("kind") or _kind(said)
            yield from [kind] * (len(value) if isinstance(value, list) else 1)
            return
        for name, part in data.items():
            if name != "sources":
                yield from _numbers(part, sources)


def _kind(source: str) -> str:
    """Kind of a number by its source: measured where it says nothing else."""
    start = source.lower()
    return next((kind for word, kind in _KINDS.items() if start.startswith(word)), "measured")


def _files() -> Iterator[str]:
    for folder in ("class", "engines", "stacks"):
        for path in sorted((_DATA / folder).glob("*.yaml")):
            data = yaml.safe_load(path.read_text(encoding="utf-8"))
            counts = Counter(_numbers(data, data.get("sources") or {}))
            if counts:
                kinds = (counts[k] for k in ("measured", "datasheet", "derived", "estimate"))
                cells = " | ".join(map(str, (counts.total(), *kinds)))
                yield f"| `{folder}/{path.name}` | {cells} |"


def _stacks() -> Iterator[str]:
    for path in sorted((_DATA / "stacks").glob("*.yaml")):
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
        ratios, spreads = (data.get(name) or [] for name in ("achieved", "spreads"))
        rows = sum(entry.get("rows", 0) for entry in spreads)
        numbers = _count({name: data[name] for name in data if name not in _NO_NUMBERS})
        yield f"| {data['name']} | {numbers} | {len(ratios)} | {len(spreads)} | {rows:,} |"


def _count(data: Any) -> int:
    """Numbers of a tree."""
    if isinstance(data, dict):
        return sum(map(_count, data.values()))
    if isinstance(data, list):
        return sum(map(_count, data))
    return int(isinstance(data, int | float) and not isinstance(data, bool))


def _overlays() -> Iterator[str]:
    for path in sorted((_DATA / "fitted").glob("*.yaml")):
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
        own, families = len(data.get("parameters") or {}), len(data.get("families") or {})
        yield f"| {data['device']} | {data['data']['rows']:,} | {own} | {families} |"


def _tested() -> Iterator[str]:
    evidence = json.loads((_DATA / "EVIDENCE.json").read_text(encoding="utf-8"))
    for place, group in sorted(evidence["spreads"].items()):
        device_class, mode, precision, model = place.split()
        if precision == "*" and model == "*":
            of = "all" if mode == "*" else mode.replace("-", " ")
            yield f"| {device_class} | {of} | {group['rows']:,} | {group['origins']} |"


def page() -> str:
    """The page, from today's data."""
    heads = (_HEAD, _STACKS, _OVERLAYS, _TESTED)
    tables = (_files(), _stacks(), _overlays(), _tested())
    parts = zip(heads, tables, strict=True)
    return "".join(head + "\n".join(rows) + "\n" for head, rows in parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
