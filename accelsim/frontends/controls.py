"""Controls of the live pages: one for each flag of a command, made of what its option says of
itself; values from a link and into one, and the command line that has them.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from inspect import Parameter, cleandoc
from pathlib import Path
from typing import Any, get_args
from urllib.parse import urlencode

from typer.models import ArgumentInfo

from accelsim.cli.options import COMPLETIONS
from accelsim.errors import InvalidValueError, UnknownNameError
from accelsim.frontends.tools import flags
from accelsim.frozen import frozen
from accelsim.plain import Document

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
    default: Any
    choices: Sequence[str]
    within: tuple[float, float] | None

    def value(self, text: str) -> Any:
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

    def text(self, value: Any) -> str:
        """A value as a link has it."""
        return "|".join(value) if isinstance(value, list) else str(value)


def controls(question: str, learned: Sequence[str] = ()) -> dict[str, Control]:
    """Controls of a question's page by name, those that stand first at the front.

    Args:
        question: One of `QUESTIONS`.
        learned: Files of learned runs that may be chosen; the only paths that are.
    """
    made = (_control(flag, learned) for flag in flags(QUESTIONS[question][0]).values())
    shown = [control for control in made if control is not None]
    shown.sort(key=lambda c: _FIRST.index(c.name) if c.name in _FIRST else len(_FIRST))
    return {control.name: control for control in shown}


def hidden(question: str) -> set[str]:
    """Flags of a question's command that are given at the start or not at all."""
    return set(flags(QUESTIONS[question][0])) - set(controls(question))


def _control(flag: Parameter, learned: Sequence[str]) -> Control | None:
    """The control of a flag; None where it takes a path."""
    about, entry, of = flag.annotation.__metadata__
    kinds = (get_args(flag.annotation.__origin__) or (flag.annotation.__origin__,))[:1]
    kind = next((plain for plain in (int, float, bool, str) if plain in kinds), list)
    is_file = Path in kinds or "FILE" in str(about.metavar)
    is_open = flag.name == "learned" and learned
    if is_file and not is_open and flag.name not in _FIRST:
        return None
    offered = COMPLETIONS[flag.name]("") if flag.name in COMPLETIONS else ()
    return Control(
        flag.name,
        _flag_of(flag.name, about),
        about.help,
        MAIN if flag.name in _FIRST else _group(of),
        str if Path in kinds else kind,
        None if flag.default is Parameter.empty else flag.default,
        learned if is_open else offered,
        entry.metadata["within"],
    )


def _flag_of(name: str, about: Any) -> str:
    """An option's flag as a command line has it; empty of a positional argument."""
    if isinstance(about, ArgumentInfo):
        return ""
    told = (str(about.default), *(about.param_decls or ()))
    return next((text for text in told if text.startswith("--")), f"--{name.replace('_', '-')}")


def _group(of: type | None) -> str:
    """What a class of options is of, in a few words."""
    said = cleandoc((of and of.__doc__) or "Others").split("\n")[0]
    return said.partition(";")[0].rstrip(".")


def linked(scenarios: Sequence[Mapping[str, Any]], known: Mapping[str, Control]) -> str:
    """The query of a link that restores one or two scenarios."""
    pairs = [
        (prefix + name, known[name].text(value))
        for prefix, values in zip(("", _SECOND), scenarios, strict=False)
        for name, value in values.items()
    ]
    return urlencode(pairs)


def restored(
    pairs: Iterable[tuple[str, str]], known: Mapping[str, Control]
) -> tuple[Document, Document, list[str]]:
    """Both scenarios of a link, and what of it was refused, in sentences.

    Args:
        pairs: Names and texts of its query.
        known: Controls of the page.
    """
    scenarios: tuple[Document, Document] = ({}, {})
    refused = []
    for name, text in pairs:
        option = name.removeprefix(_SECOND)
        if option not in known:
            refused.append(str(UnknownNameError("option of the link", option, known)))
            continue
        try:
            scenarios[name != option][option] = known[option].value(text)
        except InvalidValueError as error:
            refused.append(str(error))
    return *scenarios, refused


def command_line(question: str, values: Mapping[str, Any], known: Mapping[str, Control]) -> str:
    """The command that gives the same answer."""
    words = ["accelsim", QUESTIONS[question][0]]
    for name, value in values.items():
        control = known[name]
        if not control.flag:
            words.append("scenario.yaml" if name == "scenario" else str(value))
        elif control.kind is bool:
            words += [control.flag] if value else []
        else:
            for text in value if isinstance(value, list) else [value]:
                words += [control.flag, str(text)]
    return shlex.join(words)
