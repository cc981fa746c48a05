"""Controls of the live pages: one for each flag of a command, made of what its option says of
itself; values from a link and into one, and the command line that has them.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from inspect import Parameter, cleandoc
from pathlib import Path
from typing import get_args
from urllib.parse import urlencode

from typer.models import ArgumentInfo, OptionInfo

from accelsim.cli.options import COMPLETIONS
from accelsim.errors import InvalidValueError, UnknownNameError
from accelsim.frontends.tools import flags
from accelsim.frozen import frozen
from accelsim.plain import Document, Rows, Values

#: Question -> the command that answers it, and what its page starts with.
QUESTIONS: Mapping[str, tuple[str, Document]] = {
    "device": ("estimate", {"model": "llama-3.1-8b", "device": "h100-sxm-80gb", "batch": 8}),
    "train": (
        "train",
        {"model": "llama-3.1-8b", "cluster": "dgx-h100", "gpus": 8, "plan": "zero=3"},
    ),
    "serve": (
        "serve",
        {"model": "llama-3.1-8b", "device": "h100-sxm-80gb", "rate": 2.0, "requests": 200},
    ),
    "plan": ("plan", {}),
}
#: Controls that stand first, where a command has them.
_FIRST = (
    *("model", "device", "cluster", "gpus", "rate", "requests", "batch", "precision", "stack"),
    *("seq_len", "output_len", "prompt", "output", "scenario"),
)
MAIN = "Asked first"
_MOST_WORDS = 300
#: Second of two scenarios: its options in a link.
_SECOND = "b."
_TRUE = ("1", "true", "yes")


@frozen
class Control:
    """An option as a control.

    Attributes:
        name: Of the option.
        flag: As a command line has it; empty of a positional argument.
        about: Its help.
        group: Options that it is of.
        kind: int, float, bool, str or list.
        default: Value where it is not given.
        choices: What may be chosen; other texts may be given, too.
        within: Least and largest value; None where there is no bound.
    """

    name: str
    flag: str
    about: str
    group: str
    kind: type
    default: object
    choices: Sequence[str]
    within: tuple[float, float] | None

    def value(self, text: str) -> object:
        """The value that a text of a link stands for.

        Raises:
            InvalidValueError: If it stands for none.
        """
        if len(text) > _MOST_WORDS and self.name != "scenario":
            raise InvalidValueError(self.name, f"{text[:20]}...", f"{_MOST_WORDS} characters")
        if self.kind is bool:
            return text.lower() in _TRUE
        if self.kind is list:
            return text.split("|")
        try:
            return self.kind(text)
        except ValueError:
            raise InvalidValueError(self.name, text, f"a number ({self.kind.__name__})") from None

    def text(self, value: object) -> str:
        """A value as a link has it."""
        return "|".join(value) if isinstance(value, list) else str(value)


def controls(question: str, learned: Sequence[str] = ()) -> dict[str, Control]:
    """Controls of a question's page by name, those that stand first at the front.

    Args:
        question: One of `QUESTIONS`.
        learned: Files of learned runs that may be chosen; the only paths that are.
    """
    of_flags = (_control(flag, learned) for flag in flags(QUESTIONS[question][0]).values())
    shown = [control for control in of_flags if control is not None]
    shown.sort(key=lambda c: _FIRST.index(c.name) if c.name in _FIRST else len(_FIRST))
    return {control.name: control for control in shown}


def hidden(question: str) -> set[str]:
    """Flags of a question's command that are given at the start or not at all."""
    return set(flags(QUESTIONS[question][0])) - set(controls(question))


def _control(flag: Parameter, learned: Sequence[str]) -> Control | None:
    """The control of a flag; None where it takes a path."""
    info, entry, options = flag.annotation.__metadata__
    kind = _kind(flag.annotation.__origin__)
    is_first = flag.name in _FIRST
    choices = learned if flag.name == "learned" else ()
    if (kind is Path or "FILE" in str(info.metavar)) and not (is_first or choices):
        return None
    if flag.name in COMPLETIONS:
        choices = COMPLETIONS[flag.name]("")
    return Control(
        flag.name,
        _flag_of(flag.name, info),
        info.help,
        MAIN if is_first else _group(options),
        str if kind is Path else kind,
        None if flag.default is Parameter.empty else flag.default,
        choices,
        entry.metadata["within"],
    )


def _kind(annotation: object) -> type:
    """What a flag's value is first of all; a list of several."""
    kind = (get_args(annotation) or (annotation,))[0]
    return kind if kind in (int, float, bool, str, Path) else list


def _flag_of(name: str, info: ArgumentInfo | OptionInfo) -> str:
    """An option's flag as a command line has it; empty of a positional argument."""
    if isinstance(info, ArgumentInfo):
        return ""
    texts = (str(info.default), *(info.param_decls or ()))
    return next((text for text in texts if text.startswith("--")), f"--{name.replace('_', '-')}")


def _group(options: type | None) -> str:
    """What a class of options is of, in a few words."""
    summary = cleandoc((options and options.__doc__) or "Others").split("\n")[0]
    return summary.partition(";")[0].rstrip(".")


def linked(scenarios: Rows, known_controls: Mapping[str, Control]) -> str:
    """The query of a link that restores one or two scenarios."""
    pairs = [
        (prefix + name, known_controls[name].text(value))
        for prefix, values in zip(("", _SECOND), scenarios, strict=False)
        for name, value in values.items()
    ]
    return urlencode(pairs)


def restored(
    pairs: Iterable[tuple[str, str]], known_controls: Mapping[str, Control]
) -> tuple[Document, Document, list[str]]:
    """Both scenarios of a link, and what of it was refused, in sentences.

    Args:
        pairs: Names and texts of its query.
        known_controls: Controls of the page.
    """
    scenarios: tuple[Document, Document] = ({}, {})
    refused = []
    for name, text in pairs:
        option = name.removeprefix(_SECOND)
        if option not in known_controls:
            refused.append(str(UnknownNameError("option of the link", option, known_controls)))
            continue
        try:
            scenarios[name != option][option] = known_controls[option].value(text)
        except InvalidValueError as error:
            refused.append(str(error))
    return *scenarios, refused


def command_line(question: str, values: Values, known_controls: Mapping[str, Control]) -> str:
    """The command that gives the same answer."""
    command = ["accelsim", QUESTIONS[question][0]]
    for name, value in values.items():
        control = known_controls[name]
        if not control.flag:
            command.append("scenario.yaml" if name == "scenario" else str(value))
        elif control.kind is bool:
            command += [control.flag] if value else []
        else:
            for text in value if isinstance(value, list) else [value]:
                command += [control.flag, str(text)]
    return shlex.join(command)
