"""Hardened reader of the YAML and JSON data files, and the way back from a validation error to its
line.

Data files come from users as well as from the catalogue, so the reader accepts a small, unambiguous
subset: one document whose top level is a mapping with text keys, scalars of the YAML 1.2 core
schema (``null``, ``true``, ``false``, decimal integers, finite decimals; dates and ``yes`` stay
text), sequences and mappings. Duplicate keys, anchors, aliases, tags, NaN, infinities, numbers
beyond 64 bits, nesting deeper than `MAX_DEPTH` and files larger than the caller's limit are
refused. It walks libyaml's event stream once, without recursion, so that a hostile file costs no
more than its length.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from accelsim.errors import ProfileError
from accelsim.units import si_key

if TYPE_CHECKING:
    from pydantic import ValidationError

__all__ = [
    "MAX_BYTES",
    "MAX_DEPTH",
    "data_root",
    "parse_json",
    "parse_yaml",
    "read_json",
    "read_mapping",
    "read_yaml",
    "validation_problems",
]

#: Largest file read unless the caller allows more.
MAX_BYTES = 1_000_000
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
_SHOWN_PROBLEMS = 20

Location = tuple[str | int, ...]


def data_root() -> Path:
    """Folder that holds ``device_profiles/``, ``workloads/`` and ``calibration/``.

    An installed wheel carries them in ``accelsim/_data``; a checkout and an editable install have
    them beside the package.

    Raises:
        ProfileError: If neither place has them.
    """
    package = Path(__file__).resolve().parent
    for root in (package / "_data", package.parent):
        if (root / "device_profiles").is_dir():
            return root
    raise ProfileError(str(package), ["the data folders are missing; install accelsim again"])


def read_mapping(path: Path, *, max_bytes: int = MAX_BYTES) -> dict[str, Any]:
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
    try:
        with path.open("rb") as stream:
            raw = stream.read(max_bytes + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ProfileError(str(path), [f"cannot be read: {reason}"]) from None
    if len(raw) > max_bytes:
        raise ProfileError(str(path), [f"larger than {max_bytes:,} bytes, the most that is read"])
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise ProfileError(str(path), [f"line {line}: not UTF-8 text"]) from None


def read_yaml(path: Path, max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    """Read one YAML file.

    Raises:
        ProfileError: As `read_mapping`.
    """
    return parse_yaml(read_text(path, max_bytes), str(path))


def read_json(path: Path, max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    """Read one JSON file.

    Raises:
        ProfileError: As `read_mapping`.
    """
    return parse_json(read_text(path, max_bytes), str(path))


def parse_yaml(text: str, label: str = "<text>") -> dict[str, Any]:
    """Parse the text of one YAML document.

    Args:
        text: The document.
        label: Name for messages, usually the path.

    Returns:
        Its top-level mapping; keys are text, dates too.

    Raises:
        ProfileError: If it is not well formed, or uses what the reader refuses.
    """
    builder = _Builder()
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.take(event)
    except _RefusedError as refusal:
        raise ProfileError(label, [str(refusal)]) from None
    except yaml.YAMLError as error:
        raise ProfileError(label, [_yaml_problem(error)]) from None
    return _mapping(builder.root, label)


def parse_json(text: str, label: str = "<text>") -> dict[str, Any]:
    """Parse the text of one JSON object.

    Args:
        text: The document.
        label: Name for messages, usually the path.

    Returns:
        Its top-level mapping.

    Raises:
        ProfileError: If it is not well formed, or uses what the reader refuses.
    """
    try:
        data = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_constant=_refuse_constant,
            parse_float=lambda digits: _finite(digits, _nowhere),
            parse_int=lambda digits: _integer(digits, _nowhere),
        )
    except json.JSONDecodeError as error:
        raise ProfileError(label, [f"line {error.lineno}: not valid JSON: {error.msg}"]) from None
    except _RefusedError as refusal:
        raise ProfileError(label, [str(refusal)]) from None
    except RecursionError:
        raise ProfileError(label, [_TOO_DEEP]) from None
    if _depth_exceeds(data, MAX_DEPTH):
        raise ProfileError(label, [_TOO_DEEP])
    return _mapping(data, label)


def validation_problems(path: Path, error: ValidationError) -> list[str]:
    """Say where in the file each problem of a pydantic validation lies.

    The file is read again to find the lines, so that reading costs nothing extra when nothing is
    wrong.

    Args:
        path: The file that was validated.
        error: What pydantic raised for its contents.

    Returns:
        One text per problem, like ``line 12, power.limit_w: input should be greater than 0 (got
        -3)``.
    """
    try:
        text = path.read_text(encoding="utf-8")
        data = parse_json(text) if path.suffix.lower() == ".json" else parse_yaml(text)
        lines = {} if path.suffix.lower() == ".json" else _line_numbers(text)
    except (OSError, UnicodeError, ProfileError):
        data, lines = {}, {}
    problems = [_problem(details, data, lines) for details in error.errors(include_url=False)]
    more = len(problems) - _SHOWN_PROBLEMS
    return problems[:_SHOWN_PROBLEMS] + ([f"and {more} more"] if more > 0 else [])


_TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels"


class _RefusedError(Exception):
    """Well-formed text that the reader does not accept; never leaves this module."""


class _Builder:
    """Builds plain Python values from parser events, keeping the line of every entry."""

    def __init__(self) -> None:
        self.root: Any = None
        self.lines: dict[Location, int] = {}
        self._containers: list[dict[str, Any] | list[Any]] = []
        self._keys: list[str | None] = []
        self._documents = 0

    def take(self, event: Any) -> None:
        """Apply one event."""
        if isinstance(event, yaml.ScalarEvent):
            self._check(event)
            self._scalar(event)
        elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            self._check(event)
            self._open({} if isinstance(event, yaml.MappingStartEvent) else [], event)
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            self._close()
        elif isinstance(event, yaml.AliasEvent):
            raise _RefusedError(
                f"{self.where(event)}: aliases are not allowed; write the value out"
            )
        elif isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise _RefusedError(f"{self.where(event)}: a second document is not allowed")

    def _check(self, event: Any) -> None:
        if event.tag is not None:
            raise _RefusedError(f"{self.where(event)}: tag {event.tag!r} is not allowed")
        if event.anchor is not None:
            raise _RefusedError(
                f"{self.where(event)}: anchors are not allowed; write the value out"
            )

    def _open(self, container: dict[str, Any] | list[Any], event: Any) -> None:
        if len(self._containers) >= MAX_DEPTH:
            raise _RefusedError(f"{self.where(event)}: {_TOO_DEEP}")
        self._put(container, event)
        self._containers.append(container)
        self._keys.append(None)

    def _close(self) -> None:
        self._containers.pop()
        self._keys.pop()
        if self._keys:
            self._keys[-1] = None

    def _scalar(self, event: Any) -> None:
        top = self._containers[-1] if self._containers else None
        if isinstance(top, dict) and self._keys[-1] is None:
            if event.value in top:
                raise _RefusedError(f"{self.where(event)}: duplicate key {_short(event.value)}")
            if event.value == "<<":
                raise _RefusedError(
                    f"{self.where(event)}: merge keys are not allowed; write the values out"
                )
            self._keys[-1] = event.value
        else:
            plain = not event.style
            self._put(_resolve(event.value, self, event) if plain else event.value, event)
            if self._keys:
                self._keys[-1] = None

    def _put(self, value: Any, event: Any) -> None:
        if not self._containers:
            self.root = value
            return
        top, key = self._containers[-1], self._keys[-1]
        if isinstance(top, list):
            top.append(value)
        elif key is None:
            raise _RefusedError(f"{self.where(event)}: a key must be text")
        else:
            top[key] = value

    def location(self) -> Location:
        """Keys and indices of the entry being read."""
        parts: list[str | int] = []
        top = len(self._containers) - 1
        for depth, (container, key) in enumerate(zip(self._containers, self._keys, strict=True)):
            if isinstance(container, list):
                parts.append(len(container) if depth == top else len(container) - 1)
            elif key is not None:
                parts.append(key)
        return tuple(parts)

    def where(self, event: Any) -> str:
        """Line and field of an event, for messages."""
        return _place(event.start_mark.line + 1, self.location())


def _line_numbers(text: str) -> dict[Location, int]:
    builder = _Builder()
    lines: dict[Location, int] = {}
    for event in yaml.parse(text, Loader=_LOADER):
        builder.take(event)
        if event.start_mark is not None:
            lines.setdefault(builder.location(), event.start_mark.line + 1)
    return lines


def _mapping(data: Any, label: str) -> dict[str, Any]:
    if isinstance(data, dict):
        return data
    found = "nothing" if data is None else f"a {type(data).__name__}"
    raise ProfileError(
        label, [f"line 1: expected 'key: value' entries at the top level, found {found}"]
    )


def _resolve(text: str, builder: _Builder, event: Any) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if text[0].isalpha():
        return text
    if _INTEGER.match(text):
        return _integer(text, lambda: builder.where(event))
    if _DECIMAL.match(text):
        return _finite(text, lambda: builder.where(event))
    if _NOT_FINITE.match(text):
        raise _RefusedError(f"{builder.where(event)}: {text} is not a finite number")
    return text


def _integer(digits: str, where: Callable[[], str]) -> int:
    if len(digits) > 20 or abs(int(digits)) >= _LARGEST_INTEGER:
        raise _RefusedError(f"{where()}: integer {_short(digits)} does not fit in 64 bits")
    return int(digits)


def _finite(digits: str, where: Callable[[], str]) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise _RefusedError(f"{where()}: {_short(digits)} is not a finite number")
    return value


def _nowhere() -> str:
    return "value"


def _refuse_constant(word: str) -> Any:
    raise _RefusedError(f"value: {word} is not a finite number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _RefusedError(f"duplicate key {_short(twice)}")
    return result


def _depth_exceeds(data: Any, limit: int) -> bool:
    level = [data]
    for _ in range(limit + 1):
        level = [child for item in level for child in _children(item)]
        if not level:
            return False
    return True


def _children(item: Any) -> Iterator[Any]:
    if isinstance(item, dict):
        yield from (child for child in item.values() if isinstance(child, (dict, list)))
    elif isinstance(item, list):
        yield from (child for child in item if isinstance(child, (dict, list)))


def _yaml_problem(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    line = mark.line + 1 if mark is not None else 1
    detail = getattr(error, "problem", None) or getattr(error, "reason", None) or "malformed"
    return f"line {line}: not valid YAML: {detail}"


def _problem(details: Any, data: Any, lines: Mapping[Location, int]) -> str:
    location = _in_file(details["loc"], data)
    line = next(
        (lines[location[:n]] for n in range(len(location), -1, -1) if location[:n] in lines), None
    )
    message = _message(details)
    given = details.get("input")
    obvious = details["type"] == "missing" or isinstance(given, (Mapping, list))
    return f"{_place(line, location)}: {message}" + ("" if obvious else f" (got {_short(given)})")


def _message(details: Any) -> str:
    """pydantic's message, in this project's words where its own speak of types."""
    kind, message = details["type"], str(details["msg"]).removeprefix("Value error, ")
    if kind == "union_tag_not_found":
        return "class is missing: expected cpu, gpu, fpga or asic"
    if kind == "union_tag_invalid":
        context = details["ctx"]
        return (
            f"class {context['tag']!r} is not one of "
            f"{context['expected_tags'].replace(chr(39), '')}"
        )
    if kind.startswith("model_") and "Sourced[" in message:
        return "a figure needs its source: write {value: ..., kind: datasheet, source: ...}"
    return message[:1].lower() + message[1:]


def _in_file(loc: Location, data: Any) -> Location:
    """Location as the file spells it: unit suffixes restored, discriminator tags left out."""
    found: list[str | int] = []
    for depth, part in enumerate(loc):
        if isinstance(data, Mapping):
            spelled = (
                part if part in data else next((k for k in data if si_key(k)[0] == part), None)
            )
            if spelled is None:
                rest = [p for p in loc[depth:] if p != "[key]"]
                if depth == 0 and len(loc) > 1:
                    continue  # the union's tag, not a field
                return (*found, *rest)
            found.append(spelled)
            data = data[spelled]
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            found.append(part)
            data = data[part]
        else:
            return tuple(found)
    return tuple(found)


def _place(line: int | None, location: Location) -> str:
    field = ".".join(str(part) for part in location)
    parts = [f"line {line}"] if line is not None else []
    return ", ".join(parts + ([field] if field else [])) or "file"


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."
