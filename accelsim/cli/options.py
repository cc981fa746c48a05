"""Flags and help of the commands' options: a table, whose rows commands take by parameter name.

``options.csv`` has a row per parameter of a command's function. Those of ``run`` are the options of
a run and of its price, the fields of `RunOptions` and `PriceChoice` as `accelsim.estimate` takes
them; several commands share them, so that their types and defaults stand in the table, too.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated

import typer

_RUN = "run"
_TYPES = {kind.__name__: kind for kind in (int, float, str, bool)}


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


#: Parameter -> what the shell offers for it.
_COMPLETIONS: Mapping[str, Callable[[str], list[str]]] = {
    **dict.fromkeys(("device", "devices", "reference", "fpga", "asic", "host"), _devices),
    **dict.fromkeys(("model", "models"), _models),
    "cluster": _clusters,
}


@cache
def _table() -> Mapping[tuple[str, str], Mapping[str, str]]:
    path = Path(__file__).with_name("options.csv")
    with path.open(encoding="utf-8", newline="") as file:
        return {(row["command"], row["parameter"]): row for row in csv.DictReader(file)}


def described(command: str, parameter: Parameter) -> Parameter:
    """A parameter with what the command line says of it.

    Args:
        command: Name of the command's function.
        parameter: Its parameter, with a row of its own or with that of ``run``; as it is where it
            has neither.
    """
    keyword, table = parameter.replace(kind=Parameter.KEYWORD_ONLY), _table()
    row = table.get((command, parameter.name)) or table.get((_RUN, parameter.name))
    if row is None:
        return keyword
    make = typer.Option if row["flags"] else typer.Argument
    about = make(
        *row["flags"].split(),
        metavar=row["metavar"] or None,
        help=row["help"],
        autocompletion=_COMPLETIONS.get(parameter.name),
    )
    return keyword.replace(annotation=Annotated[parameter.annotation, about])


def with_help(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command its options' help."""
    own = signature(command, eval_str=True).parameters.values()
    return with_options(command, [described(command.__name__, option) for option in own])


def with_options(command: Callable[..., None], options: Sequence[Parameter]) -> Callable[..., None]:
    """Let a command take these options."""
    command.__annotations__ = {option.name: option.annotation for option in options}
    command.__signature__ = Signature(options)  # type: ignore[attr-defined]
    return command


def run_parameters() -> list[Parameter]:
    """Parameters of the options of a run."""
    return [
        _run_parameter(name, _TYPES[row["type"]], row["default"])
        for (command, name), row in _table().items()
        if command == _RUN
    ]


def _run_parameter(name: str, kind: type, text: str) -> Parameter:
    """One whose default the text is; None where it is empty."""
    if kind is bool:
        return Parameter(name, Parameter.KEYWORD_ONLY, default=False, annotation=bool)
    default = kind(text) if text else None
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind | None)
