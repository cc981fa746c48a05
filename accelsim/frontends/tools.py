"""Commands as tools of programs: arguments by name in, the JSON of the answer out, no file written.

A tool's JSON Schema is made of its command's flags, which are made of the option classes.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from importlib import import_module
from inspect import Parameter, cleandoc, signature
from pathlib import Path
from typing import IO, Annotated, Any

import typer
from pydantic import Field, TypeAdapter, ValidationError

import accelsim
from accelsim.errors import InvalidValueError, UnknownNameError
from accelsim.files.datafile import data_root
from accelsim.files.formats import OutputFormat
from accelsim.files.plainfile import READ_BELOW, user_folder
from accelsim.plain import Document, Values

#: Tools behind their functions in `accelsim.cli`.
TOOLS: Mapping[str, str] = {
    **{name: f"{name}.{name}" for name in ("estimate", "compare", "fits", "serve", "train")},
    **{name: f"{name}.{name}" for name in ("plan", "learn", "schema")},
    "claims": "claims.run_claims",
    "claims_list": "claims.list_claims",
    "devices": "devices.list_devices",
    "workloads": "workloads.list_workloads",
}
#: Flags that write or ask a network, and what stands for them.
_OUTPUT: Document = {
    "format": OutputFormat.JSON,
    **dict.fromkeys(("out", "report", "trace", "requests_out")),
    **dict.fromkeys(("force", "quiet", "hub"), False),
}
#: Variables that name the user's own folders.
_SETTINGS = ("ACCELSIM_DEVICE_PATH", "ACCELSIM_WORKLOAD_PATH", "ACCELSIM_PRICE_PATH")
#: Where a field of a command may stand in the call itself.
_INLINE = {"scenario": " Or its content as an object: see the tool schema, name scenario."}


def about(name: str) -> str:
    """What a tool does.

    Raises:
        UnknownNameError: If there is no such tool.
    """
    return " ".join(cleandoc(_command(name).__doc__ or "").split("\n\n", maxsplit=1)[0].split())


def input_schema(name: str) -> Document:
    """The JSON Schema of a tool's arguments.

    Raises:
        UnknownNameError: If there is no such tool.
    """
    known_flags = flags(name).values()
    return {
        "type": "object",
        "properties": {flag.name: _type(flag).json_schema() for flag in known_flags},
        "required": [flag.name for flag in known_flags if flag.default is Parameter.empty],
        "additionalProperties": False,
    }


def answer(
    name: str,
    arguments: Values,
    notes: IO[str] | None = None,
    report: Path | None = None,
) -> str:
    """Run a tool; one at a time in a process, as it takes the standard streams.

    Args:
        name: One of `TOOLS`.
        arguments: Its arguments, as `input_schema` says.
        notes: Takes what the command tells its user beside the answer.
        report: File that the page is written to; none where None.

    Returns:
        The answer, JSON.

    Raises:
        AccelsimError: If the tool, an argument or its value is refused.
    """
    command, known_flags = _command(name), flags(name)
    for argument in arguments:
        if argument not in known_flags:
            raise UnknownNameError(f"argument of {name}", argument, known_flags)
    values = {flag: _value(entry, arguments.get(flag)) for flag, entry in known_flags.items()}
    fixed = {**_OUTPUT, "report": report}
    output = {flag: fixed[flag] for flag in signature(command).parameters if flag in fixed}
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(notes or io.StringIO()), suppress(typer.Exit):
        command(**values, **output)
    return out.getvalue()


@contextmanager
def reading_below(*folders: Path) -> Iterator[None]:
    """Refuse to read files other than those of folders, of the package and of the user's settings.

    Args:
        folders: The folders, or single files.
    """
    listed = os.pathsep.join(os.environ.get(name, "") for name in _SETTINGS).split(os.pathsep)
    shipped = (Path(accelsim.__file__).parent, data_root(), user_folder())
    roots = (*shipped, *map(Path, filter(None, listed)), *folders)
    token = READ_BELOW.set(tuple(root.resolve() for root in roots))
    try:
        yield
    finally:
        READ_BELOW.reset(token)


def _command(name: str) -> Callable[..., None]:
    if name not in TOOLS:
        raise UnknownNameError("tool", name, TOOLS)
    module, _, function = TOOLS[name].partition(".")
    command: Callable[..., None] = vars(import_module(f"accelsim.cli.{module}"))[function]
    return command


def flags(name: str) -> dict[str, Parameter]:
    """Parameters of a tool's command, but those that write or ask a network."""
    parameters = signature(_command(name)).parameters.items()
    return {flag: parameter for flag, parameter in parameters if flag not in _OUTPUT}


def _type(flag: Parameter) -> TypeAdapter[Any]:
    """Type of an argument, with its help."""
    kind, text = flag.annotation.__origin__, flag.annotation.__metadata__[0].help
    if flag.name in _INLINE:
        kind, text = kind | Document, text + _INLINE[flag.name]
    described: Any = Annotated[kind, Field(description=text)]
    return TypeAdapter(described)


def _value(flag: Parameter, value: object) -> object:
    """What a command takes for an argument.

    Raises:
        InvalidValueError: If it is missing, or of another type.
    """
    kind = _type(flag)
    if value is None:
        if flag.default is Parameter.empty:
            raise InvalidValueError(flag.name, None, "a value", kind.json_schema()["description"])
        return flag.default
    try:
        return kind.validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        faults = (fault["msg"].removeprefix("Input should be ") for fault in error.errors())
        raise InvalidValueError(flag.name, value, " or ".join(faults)) from None
