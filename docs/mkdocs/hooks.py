"""Fills the page of schemas from the models that read the files, and that of the API with what
options say of themselves.
"""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any

from accelsim.exploration.sweeps.schema import SCHEMAS, json_schema
from accelsim.units import SUFFIXES


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Append a table per kind of file and per part of it; below a class of options one of them."""
    if page.file.src_uri == "api.md":
        return re.sub(r"^::: accelsim\.(\S+)\.(\w+)$", _with_options, markdown, flags=re.MULTILINE)
    if page.file.src_uri != "schemas.md":
        return markdown
    return "\n\n".join([markdown, *(_section(name) for name in SCHEMAS)])


def _with_options(found: re.Match[str]) -> str:
    """A reference to a class, and its fields that say what they are."""
    made = getattr(import_module(f"accelsim.{found[1]}"), found[2])
    described = (
        [one for one in fields(made) if "help" in one.metadata] if is_dataclass(made) else []
    )
    if not described:
        return found[0]
    rows = [
        f"| `{one.name}` | {_kind(str(one.type))} | {_words(_said(one.metadata, one.default))} |"
        for one in described
    ]
    return "\n".join([found[0], "", "| option | type | means |", "|---|---|---|", *rows])


def _kind(text: str) -> str:
    return text.replace(" | None", ", optional").replace(" | ", " or ")


def _said(about: Any, default: Any) -> dict[str, Any]:
    """An option as a field of a schema."""
    ends = dict(zip(("minimum", "maximum"), about["within"] or (), strict=False))
    return {"description": about["help"], "default": default if default != () else None, **ends}


def _section(name: str) -> str:
    schema = json_schema(name)
    parts = dict(schema.get("$defs", {}))
    if "properties" in schema:
        parts = {name.capitalize(): schema, **parts}
    tables = [_table(title, part) for title, part in parts.items() if part.get("properties")]
    return "\n\n".join([f"## {name.capitalize()}", *tables])


def _table(title: str, part: dict[str, Any]) -> str:
    needed = {*part.get("required", ())}
    for choice in part.get("allOf", ()):
        needed |= {one["required"][0] for one in choice["anyOf"]}
    rows = [
        f"| `{name}` | {_type(field)} | {'yes' if name in needed else ''} | {_words(field)} |"
        for name, field in part["properties"].items()
        if not _is_other_unit(name, part["properties"])
    ]
    head = "| field | type | needed | means |\n|---|---|---|---|"
    return "\n".join([f"### {title}\n", head, *rows])


def _is_other_unit(name: str, fields: dict[str, Any]) -> bool:
    """Whether a field is one in a spec-sheet unit beside its SI form."""
    return any(
        name.endswith(suffix) and name[: -len(suffix)] + target in fields
        for suffix, (target, _) in SUFFIXES.items()
        if suffix != target
    )


def _type(field: dict[str, Any]) -> str:
    if "$ref" in field:
        return str(field["$ref"]).rpartition("/")[2].split("_")[0]
    if "anyOf" in field:
        return " or ".join(dict.fromkeys(_type(one) for one in field["anyOf"]))
    if "enum" in field:
        return ", ".join(f"`{one}`" for one in field["enum"])
    if "const" in field:
        return f"`{field['const']}`"
    if field.get("type") == "array":
        return f"list of {_type(field.get('items', {}))}"
    return str(field.get("type", "any"))


def _words(field: dict[str, Any]) -> str:
    said = str(field.get("description", "")).replace("|", "\\|")
    limits = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    bounds = [f"{sign} {field[key]:g}" for key, sign in limits.items() if key in field]
    default = field.get("default")
    shown = [f"default {default}"] if default not in (None, [], {}) else []
    return " ".join(
        filter(None, [said, f"({', '.join([*bounds, *shown])})" if bounds or shown else ""])
    )
