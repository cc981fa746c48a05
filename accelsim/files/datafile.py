"""Hardened reader of the YAML and JSON data files, and the way back from a validation error to its
line.

Data files come from users as well as from the catalogue, so the reader accepts a small, unambiguous
subset: one document whose top level is a mapping with text keys, scalars of the YAML 1.2 core
schema (``null``, ``true``, ``false``, decimal integers, finite decimals; dates and ``yes`` stay
text), sequences and mappings. Duplicate keys, anchors, aliases, tags, NaN, infinities, numbers
beyond 64 bits, nesting deeper than `MAX_DEPTH` and files larger than the caller's limit are
refused. It walks libyaml's event stream once, no deeper than that, so that a hostile file costs no
more than its length.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import yaml

from accelsim.errors import ProfileError
from accelsim.files.plainfile import check_density, read_plain
from accelsim.plain import Document, Values
from accelsim.units import si_key

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

#: Largest file read unless the caller allows more.
MAX_BYTES = 1_000_000
#: Most entries of a YAML document, each of which is kept with its line.
_MOST_ENTRIES = 1_000_000
#: Deepest nesting of mappings and sequences.
MAX_DEPTH = 32
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INTEGER = re.compile(r"[-+]?[0-9]+\Z")
_DECIMAL = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)\Z|\.(?:nan|NaN|NAN)\Z")
_WORDS: Mapping[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_LARGEST_INTEGER = 2**63
#: Events of a parser of YAML.
_Event: TypeAlias = Any
_SHOWN_PROBLEMS = 20

T = TypeVar("T")
Location = tuple[str | int, ...]
#: What tells one content of a file from another.
FileStamp = tuple[int, int, int]


@cache
def data_root() -> Path:
    """Folder that holds ``device_profiles/``, ``workloads/`` and ``calibration/``.

    An installed wheel carries them in ``accelsim/_data``; a checkout and an editable install have
    them beside the package.

    Raises:
        ProfileError: If neither place has them.
    """
    package = Path(__file__).resolve().parents[1]
    for root in (package / "_data", package.parent):
        if (root / "device_profiles").is_dir():
            return root
    raise ProfileError(str(package), ["the data folders are missing; install accelsim again"])


def file_stamp(path: Path) -> FileStamp | None:
    """Modification time in ns, size and inode, part of the key of whatever is kept of a file, so
    that a file that was changed or replaced is read anew; None where there is no such file.
    """
    try:
        status = os.stat(path)  # noqa: PTH116 - Path.stat takes twice as long
    except (OSError, ValueError):
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def name_key(name: str) -> str:
    """A name as files spell it: small letters, words joined by hyphens."""
    return re.sub(r"[\s_]+", "-", name.strip().lower())


def read_mapping(path: Path, *, max_bytes: int = MAX_BYTES) -> Document:
    """Read a data file: JSON where the name ends in ``.json``, else YAML.

    Args:
        path: The file.
        max_bytes: Largest size accepted.

    Returns:
        Its top-level mapping.

    Raises:
        ProfileError: If it cannot be read, or is not well formed; names the line and field.
    """
    reader = read_json if path.suffix.lower() == ".json" else read_yaml
    return reader(path, max_bytes=max_bytes)


def read_text(path: Path, max_bytes: int = MAX_BYTES) -> str:
    """The text of one file.

    Args:
        path: The file, UTF-8 with or without a byte order mark.
        max_bytes: Largest size accepted.

    Raises:
        ProfileError: If it cannot be read, is larger, or is not UTF-8.
    """
    raw = read_plain(path, max_bytes)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise ProfileError(str(path), [f"line {line}: not UTF-8 text"]) from None


def read_yaml(path: Path, max_bytes: int = MAX_BYTES) -> Document:
    """Read one YAML file.

    Raises:
        ProfileError: As `read_mapping`.
    """
    return parse_yaml(read_text(path, max_bytes), str(path))


def read_json(path: Path, max_bytes: int = MAX_BYTES) -> Document:
    """Read one JSON file.

    Raises:
        ProfileError: As `read_mapping`.
    """
    return parse_json(read_text(path, max_bytes), str(path))


def parse_yaml(text: str, label: str = "<text>") -> Document:
    """Parse the text of one YAML document.

    Args:
        text: The document.
        label: Name for messages, usually the path.

    Returns:
        Its top-level mapping; keys are text, dates too.

    Raises:
        ProfileError: If it is not well formed, or uses what the reader refuses.
    """
    check_density(text.replace("\n", ","), label, _MOST_ENTRIES)
    return _mapping(_yaml_tree(text, label)[0], label)


def parse_json(text: str, label: str = "<text>") -> Document:
    """Parse the text of one JSON object.

    Args:
        text: The document.
        label: Name for messages, usually the path.

    Returns:
        Its top-level mapping.

    Raises:
        ProfileError: If it is not well formed, or uses what the reader refuses.
    """
    check_density(text, label)
    try:
        data = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_constant=_finite,
            parse_float=_finite,
            parse_int=_integer,
        )
    except json.JSONDecodeError as error:
        raise ProfileError(label, [f"line {error.lineno}: not valid JSON: {error.msg}"]) from None
    except _RefusedError as refusal:
        raise ProfileError(label, [str(refusal)]) from None
    except RecursionError:
        raise ProfileError(label, [_TOO_DEEP]) from None
    mapping = _mapping(data, label)
    if _is_too_deep(mapping):
        raise ProfileError(label, [_TOO_DEEP])
    return mapping


def validated(path: Path, parse: Callable[[], T], data: Document | None = None) -> T:
    """What `parse` makes of a file's contents.

    Args:
        path: The file.
        parse: Makes something of it.
        data: The contents, where they are an entry of the file and not all of it.

    Raises:
        ProfileError: If it refuses them; names the line and field of each problem.
    """
    from pydantic import ValidationError

    try:
        return parse()
    except ValidationError as error:
        raise ProfileError(str(path), validation_problems(path, error, data)) from None
    except ProfileError:
        raise
    except ValueError as error:
        raise ProfileError(str(path), [str(error)]) from error


def validation_problems(
    path: Path, error: ValidationError, entry: Document | None = None
) -> list[str]:
    """Say where in the file each problem of a pydantic validation lies.

    The file is read again to find the lines, so that reading costs nothing extra when nothing is
    wrong.

    Args:
        path: The file that was validated.
        error: What pydantic raised for its contents.
        entry: The contents, where they are an entry of the file: it is not read again.

    Returns:
        One text per problem, like ``line 12, power.limit_w: input should be greater than 0 (got
        -3)``.
    """
    data: object = entry
    lines: Mapping[Location, int] = {}
    with suppress(ProfileError):
        if entry is None and path.suffix.lower() == ".json":
            data = read_json(path)
        elif entry is None:
            data, lines = _yaml_tree(read_text(path), str(path))
    faults = error.errors(include_url=False)
    missing = [details["loc"] for details in faults if details["type"] == "missing"]
    return first_problems(
        [_problem(details, data, lines) + _near(details, missing) for details in faults]
    )


def first_problems(problems: Sequence[str]) -> list[str]:
    """As many problems of a file as are shown, and how many more there are."""
    more_count = len(problems) - _SHOWN_PROBLEMS
    return [*problems[:_SHOWN_PROBLEMS], *([f"and {more_count} more"] if more_count > 0 else [])]


_TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels"
#: How PyYAML from 6.0.4 on says that its own, larger limit is passed.
_TOO_DEEP_TO_PARSE = "nesting depth"


class _RefusedError(Exception):
    """Well-formed text that the reader does not accept; never leaves this module."""


def _yaml_tree(text: str, label: str) -> tuple[object, Mapping[Location, int]]:
    """Plain Python values of a document, and the line of every entry."""
    reader = _Reader(text)
    try:
        return reader.document(), reader.lines
    except _RefusedError as refusal:
        raise ProfileError(label, [str(refusal)]) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark is not None else 1
        detail = getattr(error, "problem", None) or getattr(error, "reason", None) or "malformed"
        problem = _TOO_DEEP if _TOO_DEEP_TO_PARSE in detail else f"not valid YAML: {detail}"
        raise ProfileError(label, [f"line {line}: {problem}"]) from None


class _Reader:
    """Builds plain Python values from parser events, keeping the line of every entry."""

    def __init__(self, text: str) -> None:
        self.lines: dict[Location, int] = {}
        self._events: Iterator[_Event] = yaml.parse(text, Loader=_LOADER)

    def document(self) -> object:
        """The one document."""
        root, documents = None, 0
        for event in self._events:
            documents += isinstance(event, yaml.DocumentStartEvent)
            if documents > 1:
                raise _refused(event, (), "a second document is not allowed")
            if isinstance(event, yaml.NodeEvent):
                root = self._value(event, ())
        return root

    def _value(self, event: _Event, location: Location) -> object:
        """The value that starts with an event."""
        self.lines.setdefault(location, event.start_mark.line + 1)
        _check(event, location)
        if isinstance(event, yaml.ScalarEvent):
            try:
                return event.value if event.style else _scalar(event.value)
            except _RefusedError as refusal:
                raise _refused(event, location, str(refusal)) from None
        if len(location) >= MAX_DEPTH:
            raise _refused(event, location, _TOO_DEEP)
        if isinstance(event, yaml.SequenceStartEvent):
            items = enumerate(self._entries())
            return [self._value(item, (*location, number)) for number, item in items]
        result: Document = {}
        for key in self._entries():
            name = _key(key, location, result)
            self.lines[*location, name] = key.start_mark.line + 1
            result[name] = self._value(next(self._events), (*location, name))
        return result

    def _entries(self) -> Iterator[_Event]:
        """First events of the entries up to the end of a mapping or sequence."""
        return takewhile(lambda event: not isinstance(event, yaml.CollectionEndEvent), self._events)


def _check(event: _Event, location: Location) -> None:
    """Refuse an alias, a tag or an anchor."""
    if isinstance(event, yaml.AliasEvent):
        raise _refused(event, location, "aliases are not allowed; write the value out")
    if event.tag is not None:
        raise _refused(event, location, f"tag {event.tag!r} is not allowed")
    if event.anchor is not None:
        raise _refused(event, location, "anchors are not allowed; write the value out")


def _key(event: _Event, location: Location, entries: Values) -> str:
    """A key of a mapping beside those found before it."""
    _check(event, location)
    if not isinstance(event, yaml.ScalarEvent):
        raise _refused(event, location, "a key must be text")
    if event.value in entries:
        raise _refused(event, location, f"duplicate key {_short(event.value)}")
    if event.value == "<<":
        raise _refused(event, location, "merge keys are not allowed; write the values out")
    return str(event.value)


def _refused(event: _Event, location: Location, reason: str) -> _RefusedError:
    return _RefusedError(f"{_place(event.start_mark.line + 1, location)}: {reason}")


def _mapping(data: object, label: str) -> Document:
    if isinstance(data, dict):
        return data
    kind = "nothing" if data is None else f"a {type(data).__name__}"
    raise ProfileError(
        label, [f"line 1: expected 'key: value' entries at the top level, found {kind}"]
    )


def _scalar(text: str) -> bool | float | str | None:
    if text in _WORDS:
        return _WORDS[text]
    if text[0].isalpha():
        return text
    if _INTEGER.match(text):
        return _integer(text)
    if _DECIMAL.match(text) or _NOT_FINITE.match(text):
        return _finite(text)
    return text


def _integer(digits: str) -> int:
    if len(digits) > 20 or abs(int(digits)) >= _LARGEST_INTEGER:
        raise _RefusedError(f"integer {_short(digits)} does not fit in 64 bits")
    return int(digits)


def _finite(digits: str) -> float:
    value = float(digits.replace(".inf", "inf").replace(".nan", "nan"))
    if not math.isfinite(value):
        raise _RefusedError(f"{_short(digits)} is not a finite number")
    return value


def _unique(pairs: list[tuple[str, object]]) -> Document:
    result = dict(pairs)
    if len(result) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _RefusedError(f"duplicate key {_short(twice)}")
    return result


def _is_too_deep(root: Document) -> bool:
    level: list[Document | list[object]] = [root]
    for _ in range(MAX_DEPTH):
        children = (item.values() if isinstance(item, dict) else item for item in level)
        level = [item for items in children for item in items if isinstance(item, dict | list)]
    return bool(level)


def _problem(details: ErrorDetails, data: object, lines: Mapping[Location, int]) -> str:
    location = _in_file(details["loc"], data)
    line = next(
        (lines[location[:n]] for n in range(len(location), -1, -1) if location[:n] in lines), None
    )
    message = _message(details)
    value = details.get("input")
    obvious = details["type"] == "missing" or isinstance(value, (Mapping, list))
    return f"{_place(line, location)}: {message}" + ("" if obvious else f" (got {_short(value)})")


def _near(details: ErrorDetails, missing: Sequence[Location]) -> str:
    """A missing field that a key which is none may stand for."""
    *parents, key = details["loc"] or ("",)
    if details["type"] != "extra_forbidden":
        return ""
    siblings = [str(loc[-1]) for loc in missing if list(loc[:-1]) == parents]
    close = get_close_matches(str(key), siblings, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _message(details: ErrorDetails) -> str:
    """pydantic's message, in this project's words where its own speak of types."""
    message = details["msg"].removeprefix("Value error, ")
    if details["type"].startswith("model_") and "Sourced[" in message:
        return "a figure needs its source: write {value: ..., kind: datasheet, source: ...}"
    return message[:1].lower() + message[1:]


def _in_file(loc: Location, data: object) -> Location:
    """Location as the file spells it: unit suffixes restored, and without the names of choices
    among types.
    """
    located: list[str | int] = []
    names = [name for name in loc if not (isinstance(name, str) and name.endswith("]"))]
    for depth, name in enumerate(names):
        if isinstance(data, Mapping):
            spelled = next((key for key in data if name in {key, si_key(key)[0]}), None)
            if spelled is None:
                return (*located, *names[depth:])
            name = spelled  # noqa: PLW2901
        elif not isinstance(data, list) or not isinstance(name, int) or name >= len(data):
            break
        located.append(name)
        data = data[name]
    return tuple(located)


def _place(line: int | None, location: Location) -> str:
    field = ".".join(str(name) for name in location)
    parts = [f"line {line}"] if line is not None else []
    return ", ".join(parts + ([field] if field else [])) or "file"


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."
