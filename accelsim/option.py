"""What an option says of itself: its help, its flags and the form of its text.

A field of a class of options, or a parameter of a command, has an `option` as its default. The
command line makes its flags from that; the library takes the same fields as keywords.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, field, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

from accelsim.errors import InvalidValueError

T = TypeVar("T")
#: Default of an option that must be given.
REQUIRED: Any = MISSING
#: Types of values that a text is read as.
TYPES = {kind.__name__: kind for kind in (int, float, str, bool, Path)}
_POWERS = {"K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}
_UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}


def option(
    about: str,
    default: T = None,  # type: ignore[assignment]
    metavar: str | None = None,
    flags: str | None = None,
    parse: Callable[[str, str], Any] | None = None,
    scale: float | None = None,
    *,
    repeated: bool = False,
    within: tuple[float, float] | None = None,
) -> T:
    """A field, or a parameter of a command, that is a flag of the command line.

    Args:
        about: Its help.
        default: Value where it is not given; a flag without a value turns True into False.
        metavar: What stands for the value in the help; its type where None.
        flags: Flags between blanks; made of the name where None, a positional argument where empty.
        parse: Makes a value of the flag's name and text; the type does where None.
        scale: The field's value where the flag's is 1, as 3600 of a time that is given in hours.
        repeated: Whether the flag may stand several times; the field is a tuple then.
        within: Least and largest value; see `check_ranges`.
    """
    entries = {"help": about, "metavar": metavar, "flags": flags, "parse": parse, "scale": scale}
    entry: Any = field(
        default=default, metadata={**entries, "repeated": repeated, "within": within}
    )
    return entry  # type: ignore[no-any-return]


def argument(about: str, metavar: str | None = None, default: T = REQUIRED) -> T:
    """A parameter of a command that is a positional argument; see `option`."""
    return option(about, default, metavar, "")


def ranged(default: T, within: tuple[float, float]) -> T:
    """A field that is no flag, with its least and largest value; see `check_ranges`."""
    entry: Any = field(default=default, metadata={"within": within})
    return entry  # type: ignore[no-any-return]


def check_ranges(options: Any) -> None:
    """Refuse a value out of its field's range.

    Raises:
        InvalidValueError: Naming the field.
    """
    for entry in fields(options):
        value, within = getattr(options, entry.name), entry.metadata.get("within")
        if within is None or value is None or within[0] <= value <= within[1]:
            continue
        low, high = within
        is_count = str(entry.type).startswith("int")
        allowed = f"a whole number from {low} to {high:,}" if is_count else f"{low:g} to {high:g}"
        raise InvalidValueError(entry.name, value, allowed)


def described(kinds: Iterable[Any]) -> Iterator[tuple[Any, Field[Any]]]:
    """Fields that say what they are, of classes of options and of those that they hold.

    Args:
        kinds: The classes.

    Yields:
        A class, and its field.
    """
    for kind in kinds:
        for entry in fields(kind):
            if is_dataclass(entry.default_factory):
                yield from described([entry.default_factory])
            elif "help" in entry.metadata:
                yield kind, entry


def read_texts(kind: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords of a class of options, of which texts with parts are read as its flags' are.

    Args:
        kind: The class.
        values: Its fields, in values or texts.

    Raises:
        InvalidValueError: If a text is of another form.
    """
    keywords = dict(values)
    for entry in fields(kind):
        text, parse = values.get(entry.name), entry.metadata.get("parse")
        if parse and isinstance(text, str):
            value = parse(entry.name, text)
            keywords[entry.name] = (value,) if entry.metadata["repeated"] else value
    return keywords


def seconds(name: str, text: str) -> float:
    """A time with its unit: 500ms, 2s.

    Raises:
        InvalidValueError: If it is none.
    """
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    try:
        return float(digits) * _UNITS_S[text[len(digits) :]]
    except (ValueError, KeyError):
        allowed = "a time with its unit, such as 500ms or 2s"
        raise InvalidValueError(name, text, allowed) from None


def amount(name: str, text: str) -> float:
    """A number above 0, in thousands, millions, billions or trillions where it ends so: 100M, 1.5T.

    Raises:
        InvalidValueError: If it is none.
    """
    power = _POWERS.get(text[-1:].upper())
    try:
        value = float(text if power is None else text[:-1]) * (power or 1.0)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        allowed = "a number above 0, with k, M, B or T for thousands, millions, billions, trillions"
        raise InvalidValueError(name, text, allowed, "Such as 100M or 1.5T.")
    return value


def words(_: str, text: str) -> tuple[str, ...]:
    """Words between commas."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def items(name: str, text: str) -> list[str]:
    """Words between commas, each once.

    Raises:
        InvalidValueError: If there is none.
    """
    names = list(dict.fromkeys(words(name, text)))
    if not names:
        raise InvalidValueError(name, text, "one value or more, separated by commas")
    return names


def integers(name: str, text: str) -> tuple[int, ...]:
    """Whole numbers between commas.

    Raises:
        InvalidValueError: If one is none.
    """
    try:
        return tuple(int(word) for word in words(name, text))
    except ValueError:
        raise InvalidValueError(name, text, "whole numbers between commas: 1,2,4") from None


def gigabytes(name: str, text: str) -> float:
    """Bytes of a size in gigabytes: 64GB.

    Raises:
        InvalidValueError: If it is no size.
    """
    try:
        return 1e9 * float(text.upper().removesuffix("GB"))
    except ValueError:
        raise InvalidValueError(name, text, "a size in gigabytes, such as 64GB") from None


def of_parts(kind: type[T], pattern: str, form: str) -> Callable[[str, str], T]:
    """What reads options of a class from a text.

    Args:
        kind: Class of options.
        pattern: Regular expression with a group for each field.
        form: What the text should be like, in words.
    """

    def read(name: str, text: str) -> T:
        match = re.fullmatch(pattern, text)
        return of_words(kind, match.groupdict() if match else {}, name, text, form)

    return read


def of_words(kind: type[T], parts: Mapping[str, str], name: str, text: str, form: str) -> T:
    """Options of a class from words; empty ones are left out.

    Args:
        kind: Class of options.
        parts: Words by field.
        name: Flag that the text is of.
        text: The text that the words are of.
        form: What it should be like.

    Raises:
        InvalidValueError: If a word is no value of its field, or a field is missing or none.
    """
    types = {entry.name: str(entry.type).partition(" ")[0] for entry in fields(kind)}  # type: ignore[arg-type]
    try:
        return kind(**{key: TYPES[types[key]](word) for key, word in parts.items() if word})
    except InvalidValueError:
        raise
    except (KeyError, TypeError, ValueError):
        raise InvalidValueError(name, text, form) from None
