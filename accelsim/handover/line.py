"""A line that starts a program: read into options, judged against the program's list, written."""

from __future__ import annotations

import json
import re
import shlex
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import takewhile

from accelsim.errors import InvalidValueError
from accelsim.frozen import frozen
from accelsim.handover.launchers import Launcher, LineOption, Meaning, launchers
from accelsim.plain import Values

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_SCALED = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])\Z")
_POWERS = {letter: 10.0 ** (3 * n) for n, letter in enumerate("kmgt", 1)}
_POWERS |= {letter: 2.0 ** (10 * n) for n, letter in enumerate("KMGT", 1)}
_LONGEST = 20_000
#: What lines start by themselves.
_STARTS = frozenset(("engine", "job", "processes"))
_ON, _OFF = "true", "false"
_OFFS = frozenset(("false", "False", "0"))


@frozen
class Problem:
    """What does not fit in a line.

    Attributes:
        option: The option, or what of the line.
        problem: What is wrong.
        remedy: What to do.
    """

    option: str
    problem: str
    remedy: str = ""


@frozen
class LaunchLine:
    """A line.

    Attributes:
        launcher: The program.
        version: The version whose list answers for it.
        command: The words that it begins with.
        environment: Assignments before them.
        arguments: What is no option.
        options: Text by option, "true" and "false" of flags.
        problems: What its options lack.
        script: What torchrun starts; None of a program without such.
    """

    launcher: Launcher
    version: str
    command: tuple[str, ...]
    environment: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    script: LaunchLine | None = None

    def __str__(self) -> str:
        """The line, as a shell reads it."""
        words = list(self.command)
        if self.launcher.runs != "processes":
            words += self.arguments
        for name, text in self.options.items():
            words += self._option_words(name, text)
        if self.launcher.runs == "processes":
            words += self.arguments
        if self.script is not None:
            words += shlex.split(str(self.script))
        return " ".join([*self.environment, shlex.join(words)])

    def _option_words(self, name: str, text: str) -> list[str]:
        kind = self.launcher.options[name].kind
        if self.launcher.assigns:
            return [f"{name}={text}"]
        if kind == "flag":
            return [name if text == _ON else f"--no-{name[2:]}"]
        return [name, *text.split("\0")] if kind == "list" else [name, text]

    @property
    def settings(self) -> dict[str, str | float | bool]:
        """What its options say, by the names of our settings."""
        settings: dict[str, str | float | bool] = {}
        for name, meaning in self.launcher.means.items():
            text = self.options.get(meaning.option)
            if text is None:
                continue
            option = self.launcher.options[meaning.option]
            value = _value(self.launcher, option, text)
            value = meaning.values.get(text) if meaning.values else value
            if value is not None:
                settings[name] = value
        return settings

    @property
    def unread(self) -> tuple[str, ...]:
        """Options that say nothing of ours."""
        means = self.launcher.means
        read_options = {meaning.option for name, meaning in means.items() if name in self.settings}
        return tuple(
            name for name in self.options if name not in {*read_options, self.launcher.model}
        )


def read_line(text: str, version: str | None = None) -> LaunchLine:
    """Read a line.

    Args:
        text: The line; lines may be continued with a backslash.
        version: Version of the engine or trainer; the newest that is listed where None.

    Raises:
        InvalidValueError: If it is no line of a program that is known.
        UnknownNameError: If the version has no numbers.
    """
    try:
        words = shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError as error:
        allowed = f"a line that a shell can read ({error})"
        raise InvalidValueError("line", text, allowed, "Close its quotes.") from None
    environment = tuple(takewhile(_ASSIGNMENT.match, words))
    words = words[len(environment) :]
    match = _program(words)
    if match is None or len(text) > _LONGEST:
        starts = [entry.begins[0] for entry in launchers().values() if entry.runs in _STARTS]
        raise InvalidValueError("line", text, f"a line that begins with {', '.join(starts)}")
    program, command = match
    words = words[len(command) :]
    read = _with_script if program.runs == "processes" else _options_of
    return replace(read(program, command, words, version), environment=environment)


def write_line(
    program: Launcher, settings: Values, model: str = "", version: str | None = None
) -> LaunchLine:
    """The line of settings; what the program has no option for is left out.

    Args:
        program: The program.
        settings: Our settings by name; None and False are not written.
        model: Model's name or folder.
        version: Version of the program.
    """
    listed = program.listed(version)
    options: dict[str, str] = {}
    if model and program.model is not None and not program.takes_model:
        options[program.model] = model
    for name, meaning in program.means.items():
        option = program.options[meaning.option]
        text = _text(program, option, meaning, settings.get(name))
        if text is not None and option.is_in(listed.version):
            options[option.name] = text
    arguments = (model,) if program.takes_model and model else ()
    command = tuple(program.begins[0].split())
    return LaunchLine(program, listed.version, command, arguments=arguments, options=options)


def _text(program: Launcher, option: LineOption, meaning: Meaning, value: object) -> str | None:
    """The text of an option for a value; None where it is not written."""
    if option.kind == "flag":
        is_told = value is not None and (bool(value) or program.lenient)
        return (_ON if value else _OFF) if is_told else None
    return meaning.text(value) if isinstance(value, str | int | float) else None


def _program(words: list[str]) -> tuple[Launcher, tuple[str, ...]] | None:
    """The program that words start, and those of them that say so: the most."""
    candidates = [
        (program, tuple(begins.split()))
        for program in launchers().values()
        for begins in program.begins
        if program.runs in _STARTS and words[: len(begins.split())] == begins.split()
    ]
    return max(candidates, key=lambda pair: len(pair[1]), default=None)


def _with_script(
    program: Launcher, command: tuple[str, ...], words: Sequence[str], version: str | None
) -> LaunchLine:
    """A line of torchrun: its own options, then a script or module with those of the trainer."""
    start = 0
    while start < len(words) and words[start].startswith("-"):
        option, _ = program.find(words[start].partition("=")[0])
        has_value_word = option is not None and option.kind != "flag" and "=" not in words[start]
        start += 2 if has_value_word else 1
    line = _options_of(program, command, words[:start], None)
    if start >= len(words):
        lacking = Problem("script", "torchrun starts nothing", "Name a script, or -m and a module.")
        return replace(line, problems=(*line.problems, lacking))
    script = words[start]
    for trainer in launchers().values():
        if trainer.runs == "trainer" and script.endswith(trainer.begins):
            inner = _options_of(trainer, (script,), words[start + 1 :], version)
            return replace(line, script=inner)
    return replace(line, arguments=tuple(words[start:]))


def _options_of(
    program: Launcher, command: tuple[str, ...], words: Sequence[str], version: str | None
) -> LaunchLine:
    """A line's options, each beside what is wrong with it."""
    reader = _Reader(program, program.listed(version).version, deque(words))
    while reader.words:
        reader.take(reader.words.popleft())
    return LaunchLine(
        program,
        reader.version,
        command,
        arguments=tuple(reader.arguments),
        options=reader.options,
        problems=tuple(reader.problems),
    )


@dataclass(slots=True)
class _Reader:
    """Words of a line that are left, and what those before say."""

    program: Launcher
    version: str
    words: deque[str]
    arguments: list[str] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def take(self, word: str) -> None:
        name, has_value, text = word.partition("=")
        is_option = bool(has_value) if self.program.assigns else name.startswith("-")
        if is_option and not _is_number(name):
            self._take_option(name, text if has_value else None)
        else:
            self.arguments.append(word)

    def _take_option(self, name: str, text: str | None) -> None:
        option, is_on, key = self._option(name)
        if option is None:
            self.problems += _unknown(self.program, name)
            if text is None and self.words and not self.words[0].startswith("-"):
                self.words.popleft()
            return
        if option.kind == "flag":
            text = _ON if is_on and text not in _OFFS else _OFF
        text = self._next_value(option.kind) if text is None else text
        if text is None:
            self.problems.append(Problem(option.name, "has no value", "Give one."))
            return
        if key:
            text = _with_key(self.options.get(option.name, "{}"), key, text)
        self.options[option.name] = text
        self.problems += _judged(self.program, option, text, self.version)

    def _option(self, name: str) -> tuple[LineOption | None, bool, str]:
        """The option of a name, whether it is on, and a key of its JSON that follows a dot."""
        option, is_on = self.program.find(name)
        base, _, key = name.partition(".")
        if option is not None or not key or not self.program.lenient:
            return option, is_on, ""
        option, is_on = self.program.find(base)
        is_json = option is not None and option.kind == "json"
        return option if is_json else None, is_on, key

    def _next_value(self, kind: str) -> str | None:
        """The next word, of a list all up to the next option; None where there is none."""
        values: list[str] = []
        while self.words and (_is_number(self.words[0]) or self.words[0][:2] != "--"):
            values.append(self.words.popleft())
            if kind != "list":
                break
        return "\0".join(values) if values else None


def _with_key(json_text: str, key: str, text: str) -> str:
    """JSON with a value under a key, which may have dots; the value is JSON, or a text."""
    with suppress(ValueError):
        document = json.loads(json_text)
        *sections, last = key.split(".")
        table = document
        for section in sections:
            table = table.setdefault(section, {})
        table[last] = text
        with suppress(ValueError):
            table[last] = json.loads(text)
        return json.dumps(document)
    return json_text


def _unknown(program: Launcher, name: str) -> list[Problem]:
    near = get_close_matches(name.replace("_", "-"), program.options, n=1, cutoff=0.75)
    near = near or get_close_matches(name, program.options, n=1, cutoff=0.75)
    if program.is_excerpt and not near:
        return []
    hint = f"Did you mean {near[0]}?" if near else "Leave it out."
    return [Problem(name, f"{program.name} has no such option", hint)]


def _judged(program: Launcher, option: LineOption, text: str, version: str) -> Iterator[Problem]:
    """What is wrong with an option's version or value."""
    if not option.is_in(version):
        has = ", ".join(option.versions)
        yield Problem(option.name, f"{program.name} {version} does not have it", f"Known to {has}.")
        return
    if option.choices and version == program.versions[-1].version and text not in option.choices:
        near = get_close_matches(text, option.choices, n=1)
        hint = f"Did you mean {near[0]}?" if near else f"One of {', '.join(option.choices)}."
        yield Problem(option.name, f"{text!r} is none of its values", hint)
        return
    kind_text = {"int": "a whole number", "float": "a number", "json": "JSON"}.get(option.kind)
    if kind_text is not None and _value(program, option, text) is None:
        yield Problem(option.name, f"{text!r} is not {kind_text}", f"Give {kind_text}.")


def _value(program: Launcher, option: LineOption, text: str) -> str | float | bool | None:
    """What a text is as a value of an option; None where it is none."""
    if option.kind == "flag":
        return text == _ON
    with suppress(ValueError):
        if option.kind == "int":
            return _scaled_count(text) if program.scaled else int(text)
        if option.kind == "float":
            return float(text)
        if option.kind == "json":
            json.loads(text)
        return text
    return None


def _scaled_count(text: str) -> int:
    """A count that may end in k, K, m, M ...; -1 for "auto"."""
    scaled = _SCALED.match(text)
    if scaled is not None:
        return int(float(scaled[1]) * _POWERS[scaled[2]])
    return -1 if text == "auto" else int(text)


def _is_number(word: str) -> bool:
    with suppress(ValueError):
        float(word)
        return True
    return False
