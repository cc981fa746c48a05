"""Flags of the commands, made from what their options say of themselves.

A command's parameter is one flag, a class of options (a flag for each field that is an
`accelsim.option.option`), or ``Annotated[Document, A, "x"]``: what was given of the fields of such
a class, by name, without x.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import Field, fields, is_dataclass
from functools import wraps
from importlib import import_module
from inspect import Parameter, Signature, signature
from keyword import iskeyword
from typing import Annotated, Any, TypeAlias

import typer

from accelsim.option import REQUIRED, TYPES, described
from accelsim.plain import Document

#: A field of a class of options, or the default of a command's parameter.
OptionField: TypeAlias = "Field[Any]"


def _completion(module: str, names: str) -> Callable[[str], list[str]]:
    """What lists the names that a word, the last of a list, may become.

    Args:
        module: Module of the package, imported when a shell asks.
        names: Its function of the names, or what holds them.
    """

    def complete(incomplete: str) -> list[str]:
        known = vars(import_module(f"accelsim.{module}"))[names]
        listed, comma, word = incomplete.rpartition(",")
        return [
            f"{listed}{comma}{name}"
            for name in (known() if callable(known) else known)
            if name.startswith(word)
        ]

    return complete


#: Parameter -> what is offered for it.
COMPLETIONS: Mapping[str, Callable[[str], list[str]]] = {
    **dict.fromkeys(
        ("device", "devices", "reference", "fpga", "asic", "host"),
        _completion("catalog", "device_names"),
    ),
    **dict.fromkeys(("model", "models"), _completion("catalog.workloads", "workload_names")),
    "cluster": _completion("catalog.clusters", "cluster_names"),
    "stack": _completion("catalog.stacks", "stack_names"),
    "precision": _completion("dtype", "PRECISIONS"),
}


def with_help(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take flags, of which the options that it asks for are made."""
    parameters = list(signature(command, eval_str=True).parameters.values())
    own_names = {parameter.name for parameter in parameters if not _classes(parameter.annotation)}
    flags: dict[str, Parameter] = {}
    for flag in sorted(_flags(parameters, own_names), key=lambda flag: flag.name not in own_names):
        flags.setdefault(flag.name, flag)

    @wraps(command)
    def run(**values: Any) -> None:
        shared = {name: value for name, value in values.items() if name not in own_names}
        command(
            **{parameter.name: _argument(parameter, values, shared) for parameter in parameters}
        )

    run.__annotations__ = {name: flag.annotation for name, flag in flags.items()}
    run.__signature__ = Signature(list(flags.values()))  # type: ignore[attr-defined]
    return run


def _flags(parameters: Iterable[Parameter], own_names: set[str]) -> Iterator[Parameter]:
    """Flags of a command's parameters; a name of its own stands for that of a class."""
    for parameter in parameters:
        if isinstance(parameter.default, Field):
            yield _flag(parameter.name, parameter.annotation, parameter.default)
        elif parameter.name in own_names:  # the parser's context
            yield parameter
        left_out = {*own_names, *getattr(parameter.annotation, "__metadata__", ())}
        for kind, entry in described(_classes(parameter.annotation)):
            if _name(entry) not in left_out:
                yield _flag(_name(entry), _type(kind, entry), entry, kind)


def _argument(parameter: Parameter, values: Document, shared: Document) -> object:
    """What a command's parameter is, made of the flags' values; classes take theirs away."""
    kinds = _classes(parameter.annotation)
    if kinds:
        is_class = isinstance(parameter.annotation, type)
        return _made(kinds[0], shared) if is_class else _given(kinds, shared)
    value, entry = values[parameter.name], parameter.default
    return _read(parameter.name, entry, value) if isinstance(entry, Field) else value


def _classes(annotation: object) -> tuple[type, ...]:
    """Classes of options that a parameter is made of."""
    if isinstance(annotation, type) and is_dataclass(annotation):
        return (annotation,)
    metadata = getattr(annotation, "__metadata__", ())
    return tuple(kind for kind in metadata if isinstance(kind, type))


def _name(entry: OptionField) -> str:
    """Name of the parameter that a field is; its own where the flag is a word of Python."""
    flags = entry.metadata["flags"] or entry.name
    name = str(flags.split()[0].removeprefix("--").replace("-", "_"))
    return entry.name if iskeyword(name) else name


def _type(kind: type, entry: OptionField) -> Any:
    """Type of a flag's value; the first that the field may have."""
    if entry.metadata["parse"]:
        return str | None
    text = str(entry.type)
    name = text.partition(" ")[0]
    named = TYPES.get(name) or vars(sys.modules[kind.__module__])[name]
    return named | None if "None" in text else named


def _flag(name: str, kind: Any, entry: OptionField, of: type | None = None) -> Parameter:
    """A parameter that the parser makes a flag or an argument of.

    Its annotation holds the field and the class of options that it is of, too.
    """
    metadata = entry.metadata
    flags = f"--{name.replace('_', '-')}" if metadata["flags"] is None else metadata["flags"]
    described_flag = (typer.Option if flags else typer.Argument)(
        *flags.split(),
        metavar=metadata["metavar"],
        help=metadata["help"],
        autocompletion=COMPLETIONS.get(name),
    )
    if metadata["parse"]:
        kind = (list[str] if metadata["repeated"] else str) | None
    default = Parameter.empty if entry.default is REQUIRED else _shown_default(kind, flags, entry)
    annotation = Annotated[kind, described_flag, entry, of]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _shown_default(kind: object, flags: str, entry: OptionField) -> object:
    """A field's default as the flag's text or value is."""
    default, scale = entry.default, entry.metadata["scale"]
    if entry.metadata["parse"]:
        return ",".join(map(str, default)) or None if isinstance(default, tuple) else None
    if kind is bool and "/" not in flags:
        return False
    return default / scale if scale and default is not None else default


def _read(name: str, entry: OptionField, value: Any) -> object:
    """What a flag's value stands for."""
    parse, scale = entry.metadata["parse"], entry.metadata["scale"]
    if value is None:
        return None
    if isinstance(value, list) and parse:
        return tuple(parse(name, text) for text in value)
    return parse(name, value) if parse else value * scale if scale else value


def _value(entry: OptionField, values: Document) -> object:
    """What was given of a field; None for its default, and where an earlier parameter took it."""
    name = _name(entry)
    value = values.pop(name, None)
    if isinstance(value, bool):
        return not entry.default if value else None
    return _read(name, entry, value)


def _made(kind: type, values: Document) -> object:
    """Options of a class."""
    fields_given: Document = {}
    for entry in fields(kind):
        if is_dataclass(entry.default_factory):
            fields_given[entry.name] = _made(entry.default_factory, values)
        elif "help" in entry.metadata and (value := _value(entry, values)) is not None:
            fields_given[entry.name] = value
    return kind(**fields_given)


def _given(kinds: Iterable[type], values: Document) -> Document:
    """What was given of the fields of classes, where it is not their default."""
    values_of = {entry: _value(entry, values) for _, entry in described(kinds)}
    return {
        entry.name: value
        for entry, value in values_of.items()
        if value is not None and value != entry.default
    }
