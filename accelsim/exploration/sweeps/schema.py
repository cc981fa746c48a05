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
from accelsim.plain import Document, Values
from accelsim.units import SUFFIXES

Texts = dict[str, str]
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
    raw_schema = TypeAdapter(_model(name)).json_schema()
    texts = {model.__name__: _descriptions(model) for model in _models()}
    schema = _written_schema(raw_schema, texts, with_units=name in _WITH_UNITS)
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
        model = waiting.pop()
        waiting += model.__subclasses__()
        if model.__module__.startswith("accelsim."):
            yield model


def _descriptions(model: type[BaseModel]) -> Texts:
    """What the docstrings of a model and of its bases say of each field."""
    descriptions: Texts = {}
    for base in reversed(model.__mro__):
        _, _, listed = (base.__doc__ or "").partition("Attributes:")
        descriptions |= {name: " ".join(text.split()) for name, text in _ATTRIBUTE.findall(listed)}
    return descriptions


def _written(value: object, texts: Mapping[str, Texts], *, with_units: bool) -> object:
    """A part of a schema; see `_written_schema`."""
    if isinstance(value, list):
        return [_written(item, texts, with_units=with_units) for item in value]
    if isinstance(value, Mapping):
        return _written_schema(value, texts, with_units=with_units)
    return value


def _written_schema(schema: Values, texts: Mapping[str, Texts], *, with_units: bool) -> Document:
    """A schema with the words of its fields, and with other units beside SI ones."""
    if schema.get("title") == Dtype.__name__:  # written by its label
        return {"type": "string", "enum": [dtype.label for dtype in Dtype]}
    written: Document = {
        key: _written(item, texts, with_units=with_units) for key, item in schema.items()
    }
    if isinstance(written.get("properties"), dict):
        written.pop("description", None)
        _describe(written["properties"], texts.get(str(written.get("title")), {}))
        if with_units:
            _add_units(written)
    return written


def _describe(properties: Document, descriptions: Texts) -> None:
    for name, field in properties.items():
        field.pop("title", None)
        if name in descriptions:
            field["description"] = descriptions[name]


def _add_units(schema: Document) -> None:
    """Fields under their spec-sheet names; of a required one any of them."""
    properties, required = schema["properties"], schema.pop("required", [])
    spellings = {name: sorted({name, *_other_spellings(name)}) for name in properties}
    _add_spellings(properties, spellings)
    one_name = [name for name in required if len(spellings[name]) == 1]
    if one_name:
        schema["required"] = one_name
    any_name = [name for name in required if len(spellings[name]) > 1]
    if any_name:
        schema["allOf"] = [
            {"anyOf": [{"required": [spelling]} for spelling in spellings[name]]}
            for name in any_name
        ]


def _add_spellings(properties: Document, spellings: Mapping[str, list[str]]) -> None:
    for name, field in list(properties.items()):
        text = f"{field.get('description', '')} Here in the unit that this name ends in."
        without_range = {key: field[key] for key in field if key not in _RANGES}
        other = without_range | {"description": text.strip()}
        properties |= {spelling: other for spelling in spellings[name] if spelling != name}


def _other_spellings(name: str) -> Iterator[str]:
    for suffix, (target, _) in SUFFIXES.items():
        if name.endswith(target) and not name.endswith(f"_per{target}"):
            yield name[: -len(target)] + suffix


def _as_file(name: str, schema: Document) -> Document:
    """The form of the file where it differs from the model's: the class of a device, slices, and
    what options say of the fields of a sweep.
    """
    if name == "sweep":
        schema["properties"]["fixed"]["properties"] = _option_fields()
    if name != "device":
        return schema
    defined = schema["$defs"]
    for definition in defined.values():
        properties = definition.get("properties", {})
        if "device_class" in properties:
            properties["class"] = properties.pop("device_class")
            required = (n for n in definition.get("required", ()) if n != "device_class")
            definition["required"] = ["class", *required]
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

    option_fields: Document = {}
    for _, entry in described(OPTIONS):
        metadata = entry.metadata
        ends = dict(zip(("minimum", "maximum"), metadata["within"] or (), strict=False))
        option_fields[entry.name] = {"description": metadata["help"], **ends}
    return option_fields
