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
from inspect import Parameter, Signature, signature
from keyword import iskeyword
from typing import Annotated, Any

import typer

from accelsim.option import REQUIRED, TYPES, described
from accelsim.plain import Document


def _devices(incomplete: str) -> list[str]:
    """Devices that a word may become; the last of a list."""
    from accelsim.catalog import device_names

    listed, comma, last = incomplete.rpartition(",")
    return [f"{listed}{comma}{name}" for name in device_names() if name.startswith(last)]


def _models(incomplete: str) -> list[str]:
    """Workloads that a word may become."""
    from accelsim.catalog.workloads import workload_names

    return [name for name in workload_names() if name.startswith(incomplete)]


def _clusters(incomplete: str) -> list[str]:
    """Clusters that a word may become."""
    from accelsim.catalog.clusters import cluster_names

    return [name for name in cluster_names() if name.startswith(incomplete)]


def _stacks(incomplete: str) -> list[str]:
    """Software stacks that a word may become."""
    from accelsim.catalog.stacks import stack_names

    return [name for name in stack_names() if name.startswith(incomplete)]


def _formats(incomplete: str) -> list[str]:
    """Number formats that a word may become."""
    from accelsim.dtype import PRECISIONS

    return [name for name in PRECISIONS if name.startswith(incomplete)]


#: Parameter -> what is offered for it.
COMPLETIONS: Mapping[str, Callable[[str], list[str]]] = {
    **dict.fromkeys(("device", "devices", "reference", "fpga", "asic", "host"), _devices),
    **dict.fromkeys(("model", "models"), _models),
    "cluster": _clusters,
    "stack": _stacks,
    "precision": _formats,
}


def with_help(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take flags, of which the options that it asks for are made."""
    asked = list(signature(command, eval_str=True).parameters.values())
    own = {one.name for one in asked if not _classes(one.annotation)}
    flags: dict[str, Parameter] = {}
    for flag in sorted(_flags(asked, own), key=lambda flag: flag.name not in own):
        flags.setdefault(flag.name, flag)

    @wraps(command)
    def run(**values: Any) -> None:
        shared = {name: value for name, value in values.items() if name not in own}
        command(**{one.name: _taken(one, values, shared) for one in asked})

    run.__annotations__ = {name: one.annotation for name, one in flags.items()}
    run.__signature__ = Signature(list(flags.values()))  # type: ignore[attr-defined]
    return run


def _flags(asked: Iterable[Parameter], own: set[str]) -> Iterator[Parameter]:
    """Flags of a command's parameters; a name of its own stands for that of a class."""
    for one in asked:
        if isinstance(one.default, Field):
            yield _flag(one.name, one.annotation, one.default)
        elif one.name in own:  # the parser's context
            yield one
        left_out = {*own, *getattr(one.annotation, "__metadata__", ())}
        for kind, entry in described(_classes(one.annotation)):
            if _name(entry) not in left_out:
                yield _flag(_name(entry), _type(kind, entry), entry, kind)


def _taken(one: Parameter, values: Document, shared: Document) -> Any:
    """What a command's parameter is, made of the flags' values; classes take theirs away."""
    kinds = _classes(one.annotation)
    if kinds:
        is_one = isinstance(one.annotation, type)
        return _made(kinds[0], shared) if is_one else _given(kinds, shared)
    value = values[one.name]
    return _read(one.name, one.default, value) if isinstance(one.default, Field) else value


def _classes(annotation: Any) -> tuple[type, ...]:
    """Classes of options that a parameter is made of."""
    if isinstance(annotation, type) and is_dataclass(annotation):
        return (annotation,)
    return tuple(one for one in getattr(annotation, "__metadata__", ()) if isinstance(one, type))


def _name(entry: Field[Any]) -> str:
    """Name of the parameter that a field is; its own where the flag is a word of Python."""
    flags = entry.metadata["flags"] or entry.name
    name = str(flags.split()[0].removeprefix("--").replace("-", "_"))
    return entry.name if iskeyword(name) else name


def _type(kind: type, entry: Field[Any]) -> Any:
    """Type of a flag's value; the first that the field may have."""
    text = str(entry.type)
    if entry.metadata["parse"]:
        return str | None
    first = text.partition(" ")[0]
    named = TYPES.get(first) or vars(sys.modules[kind.__module__])[first]
    return named | None if "None" in text else named


def _flag(name: str, kind: Any, entry: Field[Any], of: type | None = None) -> Parameter:
    """A parameter that the parser makes a flag or an argument of.

    Its annotation holds the field and the class of options that it is of, too.
    """
    said = entry.metadata
    flags = f"--{name.replace('_', '-')}" if said["flags"] is None else said["flags"]
    about = (typer.Option if flags else typer.Argument)(
        *flags.split(),
        metavar=said["metavar"],
        help=said["help"],
        autocompletion=COMPLETIONS.get(name),
    )
    default, form = entry.default, kind
    if default is REQUIRED:
        default = Parameter.empty
    elif said["parse"]:
        form = (list[str] if said["repeated"] else str) | None
        default = ",".join(map(str, default)) or None if isinstance(default, tuple) else None
    elif kind is bool and "/" not in flags:
        default = False
    elif said["scale"] and default is not None:
        default /= said["scale"]
    return Parameter(
        name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[form, about, entry, of]
    )


def _read(name: str, entry: Field[Any], value: Any) -> Any:
    """What a flag's value stands for."""
    parse, scale = entry.metadata["parse"], entry.metadata["scale"]
    if value is None:
        return None
    if isinstance(value, list) and parse:
        return tuple(parse(name, one) for one in value)
    return parse(name, value) if parse else value * scale if scale else value


def _value(entry: Field[Any], values: Document) -> Any:
    """What was given of a field; None for its default, and where an earlier parameter took it."""
    name = _name(entry)
    value = values.pop(name, None)
    if isinstance(value, bool):
        return not entry.default if value else None
    return _read(name, entry, value)


def _made(kind: type, values: Document) -> Any:
    """Options of a class."""
    given: Document = {}
    for entry in fields(kind):
        if is_dataclass(entry.default_factory):
            given[entry.name] = _made(entry.default_factory, values)
        elif "help" in entry.metadata and (value := _value(entry, values)) is not None:
            given[entry.name] = value
    return kind(**given)


def _given(kinds: Iterable[type], values: Document) -> Document:
    """What was given of the fields of classes, where it is not their default."""
    values_of = {entry: _value(entry, values) for _, entry in described(kinds)}
    return {
        entry.name: value
        for entry, value in values_of.items()
        if value is not None and value != entry.default
    }
