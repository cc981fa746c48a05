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
        words: The words that it begins with.
        environment: Assignments before them.
        arguments: What is no option.
        options: Text by option, "true" and "false" of flags.
        problems: What its options lack.
        script: What torchrun starts; None of a program without such.
    """

    launcher: Launcher
    version: str
    words: tuple[str, ...]
    environment: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    script: LaunchLine | None = None

    def __str__(self) -> str:
        """The line, as a shell reads it."""
        given = (word for name, text in self.options.items() for word in self._written(name, text))
        script = [] if self.script is None else shlex.split(str(self.script))
        parts = (self.arguments, tuple(given))
        first, last = parts[::-1] if self.launcher.runs == "processes" else parts
        words = (*self.words, *first, *last, *script)
        return " ".join([*self.environment, shlex.join(words)])

    def _written(self, name: str, text: str) -> Iterator[str]:
        option = self.launcher.options[name]
        if self.launcher.assigns:
            yield f"{name}={text}"
        elif option.kind != "flag":
            yield name
            yield from text.split("\0") if option.kind == "list" else [text]
        elif text == _ON:
            yield name
        else:
            yield f"--no-{name[2:]}"

    @property
    def settings(self) -> dict[str, str | float | bool]:
        """What its options say, by the names of our settings."""
        found: dict[str, str | float | bool] = {}
        for name, meaning in self.launcher.means.items():
            text = self.options.get(meaning.option)
            if text is not None:
                value = _value(self.launcher, self.launcher.options[meaning.option], text)
                value = meaning.values.get(text) if meaning.values else value
                if value is not None:
                    found[name] = value
        return found

    @property
    def unread(self) -> tuple[str, ...]:
        """Options that say nothing of ours."""
        means = self.launcher.means
        read = {one.option for name, one in means.items() if name in self.settings}
        return tuple(name for name in self.options if name not in {*read, self.launcher.model})


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
    count = next((n for n, word in enumerate(words) if not _ASSIGNMENT.match(word)), len(words))
    environment, words = tuple(words[:count]), words[count:]
    found = _program(words)
    if found is None or len(text) > _LONGEST:
        starts = [one.begins[0] for one in launchers().values() if one.runs in _STARTS]
        raise InvalidValueError("line", text, f"a line that begins with {', '.join(starts)}")
    program, begun = found
    if program.runs == "processes":
        return _with_script(program, begun, words[len(begun) :], environment, version)
    line = _options_of(program, begun, words[len(begun) :], version)
    return replace(line, environment=environment)


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
        one = program.options[meaning.option]
        text = _text(program, one, meaning, settings.get(name))
        if text is not None and not (one.versions and listed.version not in one.versions):
            options[one.name] = text
    arguments = (model,) if program.takes_model and model else ()
    words = tuple(program.begins[0].split())
    return LaunchLine(program, listed.version, words, arguments=arguments, options=options)


def _text(program: Launcher, one: LineOption, meaning: Meaning, value: object) -> str | None:
    """The text of an option for a value; None where it is not written."""
    if one.kind == "flag":
        is_told = value is not None and (bool(value) or program.lenient)
        return (_ON if value else _OFF) if is_told else None
    return meaning.text(value) if isinstance(value, str | int | float) else None


def _program(words: list[str]) -> tuple[Launcher, tuple[str, ...]] | None:
    """The program that words start, and those of them that say so: the most."""
    found = [
        (one, tuple(begins.split()))
        for one in launchers().values()
        for begins in one.begins
        if one.runs in _STARTS and words[: len(begins.split())] == begins.split()
    ]
    return max(found, key=lambda pair: len(pair[1]), default=None)


def _with_script(
    program: Launcher,
    begun: tuple[str, ...],
    words: list[str],
    environment: tuple[str, ...],
    version: str | None,
) -> LaunchLine:
    """A line of torchrun: its own options, then a script or module with those of the trainer."""
    at = 0
    while at < len(words) and words[at].startswith("-"):
        one, _ = program.find(words[at].partition("=")[0])
        takes = one is not None and one.kind != "flag" and "=" not in words[at]
        at += 2 if takes else 1
    line = replace(_options_of(program, begun, words[:at], None), environment=environment)
    if at >= len(words):
        lacking = Problem("script", "torchrun starts nothing", "Name a script, or -m and a module.")
        return replace(line, problems=(*line.problems, lacking))
    script = words[at]
    trainers = (one for one in launchers().values() if one.runs == "trainer")
    trainer = next((one for one in trainers if script.endswith(one.begins)), None)
    if trainer is None:
        return replace(line, arguments=tuple(words[at:]))
    inner = _options_of(trainer, (script,), words[at + 1 :], version)
    return replace(line, script=inner)


def _options_of(
    program: Launcher, begun: tuple[str, ...], words: Sequence[str], version: str | None
) -> LaunchLine:
    """A line's options, each beside what is wrong with it."""
    read = _Reader(program, program.listed(version).version, deque(words))
    while read.words:
        read.take(read.words.popleft())
    found = tuple(read.arguments), read.options, tuple(read.problems)
    return LaunchLine(program, read.version, begun, (), *found)


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
        one, is_on, key = self._found(name)
        if one is None:
            self.problems += _unknown(self.program, name)
            self._skip_value(text)
            return
        if one.kind == "flag":
            text = _ON if is_on and text not in _OFFS else _OFF
        text = self._value_of(one) if text is None else text
        if text is None:
            self.problems.append(Problem(one.name, "has no value", "Give one."))
            return
        if key:
            text = _with_key(self.options.get(one.name, "{}"), key, text)
        self.options[one.name] = text
        self.problems += _judged(self.program, one, text, self.version)

    def _skip_value(self, text: str | None) -> None:
        if text is None and self.words and not self.words[0].startswith("-"):
            self.words.popleft()

    def _found(self, name: str) -> tuple[LineOption | None, bool, str]:
        """The option of a name, whether it is on, and a key of its JSON that follows a dot."""
        one, is_on = self.program.find(name)
        base, _, key = name.partition(".")
        if one is not None or not key or not self.program.lenient:
            return one, is_on, ""
        whole, is_on = self.program.find(base)
        return (whole if whole is not None and whole.kind == "json" else None), is_on, key

    def _value_of(self, one: LineOption) -> str | None:
        """The next word, of a list all up to the next option; None where there is none."""
        taken: list[str] = []
        while self.words and (_is_number(self.words[0]) or self.words[0][:2] != "--"):
            taken.append(self.words.popleft())
            if one.kind != "list":
                break
        return "\0".join(taken) if taken else None


def _with_key(whole: str, key: str, text: str) -> str:
    """JSON with a value under a key, which may have dots; the value is JSON, or a text."""
    with suppress(ValueError):
        document = json.loads(whole)
        *sections, last = key.split(".")
        table = document
        for section in sections:
            table = table.setdefault(section, {})
        table[last] = text
        with suppress(ValueError):
            table[last] = json.loads(text)
        return json.dumps(document)
    return whole


def _unknown(program: Launcher, name: str) -> list[Problem]:
    near = get_close_matches(name.replace("_", "-"), program.options, n=1, cutoff=0.75)
    near = near or get_close_matches(name, program.options, n=1, cutoff=0.75)
    if program.is_excerpt and not near:
        return []
    hint = f"Did you mean {near[0]}?" if near else "Leave it out."
    return [Problem(name, f"{program.name} has no such option", hint)]


def _judged(program: Launcher, one: LineOption, text: str, version: str) -> Iterator[Problem]:
    """What is wrong with an option's version or value."""
    if one.versions and version not in one.versions:
        has = ", ".join(one.versions)
        yield Problem(one.name, f"{program.name} {version} does not have it", f"Known to {has}.")
        return
    if one.choices and version == program.versions[-1].version and text not in one.choices:
        near = get_close_matches(text, one.choices, n=1)
        hint = f"Did you mean {near[0]}?" if near else f"One of {', '.join(one.choices)}."
        yield Problem(one.name, f"{text!r} is none of its values", hint)
        return
    wanted = {"int": "a whole number", "float": "a number", "json": "JSON"}
    if one.kind in wanted and _value(program, one, text) is None:
        yield Problem(one.name, f"{text!r} is not {wanted[one.kind]}", f"Give {wanted[one.kind]}.")


def _value(program: Launcher, one: LineOption, text: str) -> str | float | bool | None:
    """What a text is as a value of an option; None where it is none."""
    if one.kind == "flag":
        return text == _ON
    with suppress(ValueError):
        if one.kind == "int":
            scaled = _SCALED.match(text) if program.scaled else None
            if scaled is not None:
                return int(float(scaled[1]) * _POWERS[scaled[2]])
            return -1 if program.scaled and text == "auto" else int(text)
        if one.kind == "float":
            return float(text)
        if one.kind == "json":
            json.loads(text)
        return text
    return None


def _is_number(word: str) -> bool:
    with suppress(ValueError):
        float(word)
        return True
    return False
