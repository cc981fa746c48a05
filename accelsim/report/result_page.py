"""Pages from results as plain values, as ``--format json`` writes them: one way for the command
that makes a result and for ``accelsim report``, which reads it back.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from itertools import takewhile
from typing import TYPE_CHECKING, TypeAlias

from accelsim.errors import InputError, InvalidValueError
from accelsim.plain import Rows, Values
from accelsim.quantity import words, written
from accelsim.report.page import Page, Section
from accelsim.report.parts import (
    mapping_section,
    metrics_section,
    provenance_sections,
    rows_section,
)

if TYPE_CHECKING:
    from accelsim.hardware.profile import DeviceProfile

#: Version of the form of results that this package writes and reads.
_SCHEMA_VERSION = 1
#: Parts of a result that have a section of their own.
_ABOUT = frozenset(
    ("kind", "schema_version", "inputs", "metrics", "provenance", "warnings", "evidence")
)
_SAID = 3
#: Makes the page of plain values and a command.
Builder: TypeAlias = Callable[..., Page]


def result_page(document: object, command: str, limits: Mapping[str, float] | None = None) -> Page:
    """The page of a result.

    Args:
        document: What a command writes as JSON: a mapping, or a list of them.
        command: Command that makes the page again.
        limits: Of a comparison of estimates: "slo_s" and "budget_usd", drawn as lines.

    Raises:
        InputError: If it is no result, one of another version, or none that has limits.
    """
    if isinstance(document, Mapping):
        version = document.get("schema_version", _SCHEMA_VERSION)
        if version != _SCHEMA_VERSION:
            made_by = (document.get("provenance") or {}).get("version", "another version")
            raise InputError(
                f"schema_version = {version!r} is not allowed: expected {_SCHEMA_VERSION}. The "
                f"result is of accelsim {made_by}; run its command again with this version."
            )
    build = _builder(document)
    if limits and build.__name__ != "comparison_page":
        allowed = "no value: only a comparison of estimates has such lines"
        raise InvalidValueError(*next(iter(limits.items())), allowed)
    try:
        page = build(document, command, **(limits or {}))
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        raise InputError(
            f"the result is not as this version writes it ({type(error).__name__}: {error}). "
            "Run its command again."
        ) from error
    return page if page.sections else replace(page, decision=("The result is empty.",))


def _builder(document: object) -> Builder:
    """What makes the page of a sort of result."""
    if isinstance(document, Mapping):
        return _of_kind(str(document.get("kind", "")), document)
    if not isinstance(document, list) or not all(isinstance(row, Mapping) for row in document):
        raise InputError("no result: expected a mapping or a list of mappings, as --format json")
    for columns, path in _ROWS.items():
        if document and all(columns <= set(row) for row in document):
            return _function(path)
    return _rows_page


#: Columns of rows -> where the function of their page is.
_ROWS = {
    frozenset(("workload", "device", "latency_s", "reason")): "comparison_page.comparison_page",
    frozenset(
        ("option", "reference", "usd_per_demand", "rate_per_s")
    ): "breakeven_page.breakeven_page",
}
#: A kind of result, or a key it is known by -> where the function of its page is.
_KINDS = {
    "estimate": "estimate_page.estimate_page",
    "serving": "serving_page.serving_page",
    "serving-search": "serving_search.search_page",
    "training": "training_page.training_page",
    "capacity plan": "capacity.capacity_page",
}
_KEYS = {
    "claims": "claims.claims_page",
    "suites": "score_page.score_page",
    "batches": "estimate_page.batches_page",
    "frozen_hash": "calibration_page.check_page",
}


def _of_kind(kind: str, document: Values) -> Builder:
    of_keys = (path for key, path in _KEYS.items() if key in document)
    path = _KINDS.get(kind) or next(of_keys, None)
    return _mapping_page if path is None else _function(path)


def _function(path: str) -> Builder:
    module, _, name = path.partition(".")
    build: Builder = vars(import_module(f"accelsim.report.{module}"))[name]
    return build


def merged_page(pages: Sequence[tuple[str, Page]], command: str) -> Page:
    """Several pages as one.

    Args:
        pages: Name of each, as its file's, and the page.
        command: Command that makes it again.
    """
    if len(pages) == 1:
        return replace(pages[0][1], command=command)
    sections = [
        replace(section, name=f"{section.name}-{number}", title=f"{page.title}: {section.title}")
        for number, (_, page) in enumerate(pages, 1)
        for section in page.sections
    ]
    decision = (f"{name}: {page.decision[0]}" for name, page in pages)
    warnings = (text for _, page in pages for text in page.warnings)
    return Page.of(f"{len(pages)} results", decision, sections, command, warnings)


def known_devices(names: Sequence[str]) -> list[DeviceProfile]:
    """Profiles of the names that the catalogue has, shares of a device among them."""
    from accelsim import catalog

    known = set(catalog.device_names())
    return [
        catalog.device(name) for name in dict.fromkeys(names) if name.partition("@")[0] in known
    ]


def _mapping_page(document: Values, command: str) -> Page:
    """Any result: its metrics, its parts and rows, and where they come from."""
    metrics = document.get("metrics") or {}
    fields = {name: value for name, value in document.items() if name not in _ABOUT}
    nested = {name: value for name, value in fields.items() if isinstance(value, Mapping | list)}
    flat = {name: value for name, value in fields.items() if name not in {*nested, *metrics}}
    devices = known_devices([str(document["device"])]) if "device" in document else []
    sections = [
        metrics_section(metrics),
        mapping_section("about", "About", flat),
        *(_nested_section(name, value) for name, value in nested.items()),
        *provenance_sections([document], devices),
    ]
    title = _title(document, command)
    figures = {name: metric.get("value") for name, metric in metrics.items()} or flat
    decision = f"{': '.join(filter(None, (title, _first_figures(figures))))}."
    return Page.of(title, [decision], sections, command, document.get("warnings") or ())


def _first_figures(figures: Values) -> str:
    known = [name for name in figures if figures[name] is not None and name != "name"]
    return ", ".join(f"{words(name)} {written(name, figures[name])}" for name in known[:_SAID])


def _title(document: Values, command: str) -> str:
    model, device = document.get("workload"), document.get("device")
    if model and device:
        return f"{model} on {device}"
    return str(document.get("name") or document.get("kind") or _command_words(command))


def _command_words(command: str) -> str:
    """The words of a command without its options."""
    named = takewhile(lambda word: not word.startswith("-"), shlex.split(command))
    return " ".join(named) or "Result"


def _nested_section(name: str, value: Values | Sequence[object]) -> Section:
    title = words(name).capitalize()
    if isinstance(value, Mapping):
        return mapping_section(name, title, value)
    rows = [row if isinstance(row, Mapping) else {"value": row} for row in value]
    return rows_section(name, title, rows)


def _rows_page(rows: Rows, command: str) -> Page:
    """A list of rows as a table."""
    decision, section = (f"{len(rows):,} rows.",), rows_section("rows", "Rows", rows)
    return Page.of(_command_words(command), decision, [section], command)
