"""JSON Schemas of the files people write, from the models that read them, for editors and checks.

A schema says of a file's form what pydantic says: fields, types, ranges. Rules between fields, and
names in the catalogue, are checked when the file is read. A field whose SI name ends in a unit may
stand with a spec-sheet unit too (`units.SUFFIXES`); its range then holds for the SI value, and the
schema does not repeat it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, TypeAdapter

from accelsim.dtype import Dtype
from accelsim.errors import UnknownNameError
from accelsim.option import described
from accelsim.plain import Document
from accelsim.units import SUFFIXES

#: Files with a schema.
SCHEMAS = ("device", "workload", "scenario", "sweep")
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
#: A field of a docstring's ``Attributes`` and its words, which may go on on further lines.
_ATTRIBUTE = re.compile(r"^ +(\w+): (.*(?:\n {12,}\S.*)*)", re.MULTILINE)
_RANGES = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
#: Files whose fields may have spec-sheet units.
_WITH_UNITS = frozenset(("device", "scenario"))


def json_schema(name: str) -> Document:
    """The JSON Schema (draft 2020-12) of a kind of file.

    Args:
        name: One of `SCHEMAS`.

    Raises:
        UnknownNameError: If there is none of that name.
    """
    if name not in SCHEMAS:
        raise UnknownNameError("schema", name, SCHEMAS, f"One of {', '.join(SCHEMAS)}.")
    model = _model(name)
    found = TypeAdapter(model).json_schema()
    described = {one.__name__: _words_of(one) for one in _models()}
    schema = _written(found, described, with_units=name in _WITH_UNITS)
    return {"$schema": _DIALECT, **_as_file(name, schema), "title": f"accelsim {name}"}


def _model(name: str) -> Any:
    if name == "device":
        from accelsim.hardware.profile import AsicProfile, CpuProfile, FpgaProfile, GpuProfile

        return CpuProfile | GpuProfile | FpgaProfile | AsicProfile
    if name == "workload":
        from accelsim.catalog.workload_spec import WorkloadSpec

        return WorkloadSpec
    if name == "scenario":
        from accelsim.capacity.scenario import Scenario

        return Scenario
    from accelsim.exploration.sweeps.spec import SweepSpec

    return SweepSpec


def _models() -> Iterator[type[BaseModel]]:
    """All boundary models that are loaded."""
    waiting = list(BaseModel.__subclasses__())
    while waiting:
        one = waiting.pop()
        waiting += one.__subclasses__()
        if one.__module__.startswith("accelsim."):
            yield one


def _words_of(model: type[BaseModel]) -> dict[str, str]:
    """What the docstrings of a model and of its bases say of each field."""
    found: dict[str, str] = {}
    for one in reversed(model.__mro__):
        _, _, listed = (one.__doc__ or "").partition("Attributes:")
        found |= {name: " ".join(words.split()) for name, words in _ATTRIBUTE.findall(listed)}
    return found


def _written(part: Any, described: Mapping[str, dict[str, str]], *, with_units: bool) -> Any:
    """A schema with the words of its fields, and with other units beside SI ones."""
    if isinstance(part, list):
        return [_written(item, described, with_units=with_units) for item in part]
    if not isinstance(part, Mapping):
        return part
    if part.get("title") == Dtype.__name__:  # written by its label
        return {"type": "string", "enum": [one.label for one in Dtype]}
    made = {
        key: _written(item, described, with_units=with_units)
        for key, item in part.items()
        if not (key == "description" and "properties" in part)
    }
    properties = made.get("properties")
    if isinstance(properties, dict):
        words = described.get(str(made.get("title")), {})
        for name, field in properties.items():
            field.pop("title", None)
            if name in words:
                field["description"] = words[name]
        if with_units:
            _add_units(made)
    return made


def _add_units(part: Document) -> None:
    """Fields under their spec-sheet names; of a required one any of them."""
    required, chosen = [], []
    for name, field in list(part["properties"].items()):
        names = {name} | {
            name[: -len(target)] + suffix
            for suffix, (target, _) in SUFFIXES.items()
            if name.endswith(target) and not name.endswith(f"_per{target}")
        }
        for other in names - {name}:
            said = (
                f"{field.get('description', '')} Here in the unit that this name ends in.".strip()
            )
            kept = {key: value for key, value in field.items() if key not in _RANGES}
            part["properties"][other] = kept | {"description": said}
        if name not in part.get("required", ()):
            continue
        if len(names) == 1:
            required.append(name)
        else:
            chosen.append({"anyOf": [{"required": [one]} for one in sorted(names)]})
    if required:
        part["required"] = required
    else:
        part.pop("required", None)
    if chosen:
        part["allOf"] = chosen


def _as_file(name: str, schema: Document) -> Document:
    """The form of the file where it differs from the model's: the class of a device, slices, and
    what options say of the fields of a sweep.
    """
    if name == "sweep":
        schema["properties"]["fixed"]["properties"] = _option_fields()
    if name != "device":
        return schema
    defined = schema["$defs"]
    for part in defined.values():
        properties = part.get("properties", {})
        if "device_class" in properties:
            properties["class"] = properties.pop("device_class")
            part["required"] = [
                "class",
                *(one for one in part.get("required", ()) if one != "device_class"),
            ]
    defined["Slice"] = {
        "type": "object",
        "description": "A share of a device under a name of its own.",
        "required": ["slice"],
        "properties": {"slice": {"type": "object"}},
    }
    return {**schema, "anyOf": [*schema["anyOf"], {"$ref": "#/$defs/Slice"}]}


def _option_fields() -> Document:
    """What options say of themselves, by name."""
    from accelsim.exploration.sweeps.functions import OPTIONS

    found: Document = {}
    for _, entry in described(OPTIONS):
        said = entry.metadata
        ends = dict(zip(("minimum", "maximum"), said["within"] or (), strict=False))
        found[entry.name] = {"description": said["help"], **ends}
    return found
