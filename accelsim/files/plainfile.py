"""Plain files within bounds, so that no input takes more memory than its use does.

A pipe would hold its reader up for ever and a device never ends, a line may be the whole file, and
a byte of JSON may become a hundred of objects: files are opened only where they are plain, read up
to a size, line by line up to a length, and parsed up to a number of values.
"""

from __future__ import annotations

import csv
import json
import os
import stat
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any, BinaryIO

from accelsim.errors import ProfileError

#: Most values of a document: half a gigabyte at most, as mappings of one entry.
MOST_VALUES = 4_000_000
#: Longest line of a table.
_LONGEST_LINE = 1_000_000
#: Folders outside of which no file is read; None where any is.
READ_BELOW: ContextVar[tuple[Path, ...] | None] = ContextVar("READ_BELOW", default=None)


def user_folder() -> Path:
    """Folder of the user's own ``devices/`` and ``calibration/``, whether or not it is there (XDG
    Base Directory Specification).
    """
    configured = os.environ.get("XDG_CONFIG_HOME")
    config = Path(configured) if configured else Path(os.path.expanduser("~")) / ".config"  # noqa: PTH111
    return config / "accelsim"


def open_plain(path: Path) -> BinaryIO:
    """A plain file, open for reading.

    Raises:
        ProfileError: If it cannot be opened, is a pipe, a device or a folder, or lies outside of
            `READ_BELOW`.
    """
    try:
        below = READ_BELOW.get()
        where = path if below is None else path.resolve()
        is_inside = below is None or any(where.is_relative_to(folder) for folder in below)
        if is_inside:
            descriptor = os.open(where, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ProfileError(str(path), [f"cannot be read: {reason}"]) from None
    if not is_inside:
        raise ProfileError(str(path), ["cannot be read: outside of the folder that may be read"])
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ProfileError(str(path), ["cannot be read: a folder, a pipe or a device, not a file"])
    return os.fdopen(descriptor, "rb")


def read_plain(path: Path, max_bytes: int) -> bytes:
    """The contents of a file.

    Raises:
        ProfileError: If it cannot be read, or is larger.
    """
    with open_plain(path) as stream:
        try:
            raw = stream.read(max_bytes + 1)
        except OSError as error:
            raise ProfileError(str(path), [f"cannot be read: {error.strerror}"]) from None
    if len(raw) > max_bytes:
        raise ProfileError(str(path), [f"larger than {max_bytes:,} bytes, the most that is read"])
    return raw


def text_lines(path: Path, max_bytes: int) -> Iterator[str]:
    """Lines of a text file, one at a time, each with its end.

    Raises:
        ProfileError: If it cannot be read, is larger, has too long a line, or is not UTF-8.
    """
    size = 0
    with open_plain(path) as stream:
        while line := stream.readline(_LONGEST_LINE + 1):
            size += len(line)
            if len(line) > _LONGEST_LINE or size > max_bytes:
                most = f"{max_bytes:,} bytes of a file and {_LONGEST_LINE:,} of a line"
                raise ProfileError(str(path), [f"larger than what is read, {most}"])
            try:
                yield line.decode("utf-8-sig" if size == len(line) else "utf-8")
            except UnicodeDecodeError:
                raise ProfileError(str(path), ["cannot be read: not UTF-8 text"]) from None


def table_rows(path: Path, max_bytes: int) -> Iterator[list[str]]:
    """Rows of a CSV file, one at a time.

    Raises:
        ProfileError: If it cannot be read, see `text_lines`, or is no CSV.
    """
    rows = csv.reader(text_lines(path, max_bytes))
    try:
        yield from rows
    except csv.Error as error:
        raise ProfileError(str(path), [f"line {rows.line_num}: is no CSV: {error}"]) from None


def check_density(text: str | bytes, label: str, most: int = MOST_VALUES) -> None:
    """Refuse a document of too many values; marks inside texts count, too.

    Raises:
        ProfileError: If it has more than `most`.
    """
    if isinstance(text, bytes):
        count = sum(map(text.count, (b",", b"[", b"{")))
    else:
        count = sum(map(text.count, (",", "[", "{")))
    if count > most:
        raise ProfileError(label, [f"more than {most:,} values, the most that are read"])


def parse_values(raw: bytes, label: str) -> Any:
    """The values of a JSON document.

    Raises:
        ProfileError: If it has too many, or is no JSON.
    """
    check_density(raw, label)
    try:
        return json.loads(raw)
    except RecursionError:
        raise ProfileError(label, ["nested too deeply"]) from None
    except ValueError as error:
        raise ProfileError(label, [f"is no JSON: {error}"]) from None
