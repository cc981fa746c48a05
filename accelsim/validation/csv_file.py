"""Header and rows of a CSV file, plain or gzip, or the reason why it is none.

Nothing is read beyond a fixed size, a damaged gzip stream tells the row up to which it can be read,
and what is not text, not CSV, not a plain file, or another kind of archive is named as what it is.
"""

from __future__ import annotations

import csv
import io
import zlib
from collections import Counter
from pathlib import Path

__all__ = ["FileRefusedError", "read_records"]

#: Largest table read, bytes after decompression; a gzip bomb ends here.
MAX_TABLE_BYTES = 512_000_000
_GZIP_MAGIC = b"\x1f\x8b"
#: Beginnings of other archives, which users rename.
_ARCHIVES = {
    b"\xfd7zXZ\0": "xz",
    b"PK\x03\x04": "zip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bzip2",
    b"PAR1": "Parquet",
}
#: Tells zlib that a gzip header comes first.
_GZIP_FORMAT = 16


class FileRefusedError(Exception):
    """The whole file cannot be used; never leaves the reader of tables."""

    def __init__(
        self, reason: str, detail: str, row: int | None = None, column: str | None = None
    ) -> None:
        super().__init__(detail)
        self.reason, self.detail, self.row, self.column = reason, detail, row, column


def read_records(path: Path) -> tuple[list[str], list[list[str]], list[int]]:
    """Header, rows and the line each row ends on, of a CSV file.

    Raises:
        FileRefusedError: If it cannot be read to its end.
    """
    if path.exists() and not path.is_file():
        raise FileRefusedError("no file", "is a folder or a device, not a file")
    try:
        raw = _bytes(path)
        reader = csv.reader(io.StringIO(raw.decode("utf-8-sig"), newline=""), strict=True)
        found = [(row, reader.line_num) for row in reader if row]
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise FileRefusedError("not text", "is not UTF-8 text", row=line) from None
    except csv.Error as error:
        raise FileRefusedError(
            "not CSV", f"is not well-formed CSV: {error}", row=reader.line_num
        ) from None
    except OSError as error:
        raise FileRefusedError("unreadable", f"cannot be read: {error.strerror or error}") from None
    if not found:
        raise FileRefusedError("empty", "is empty; expected a header line", row=1)
    return (
        _checked_header(found[0][0]),
        [row for row, _ in found[1:]],
        [line for _, line in found[1:]],
    )


def _checked_header(cells: list[str]) -> list[str]:
    header = [name.strip() for name in cells]
    if twice := [name for name, count in Counter(header).items() if count > 1]:
        raise FileRefusedError(
            "duplicate column", "appears twice in the header", row=1, column=twice[0]
        )
    if len(header) == 1 and (mark := next((mark for mark in ";\t|" if mark in header[0]), None)):
        raise FileRefusedError(
            "wrong separator", f"has columns separated by {mark!r}; expected commas", row=1
        )
    return header


def _bytes(path: Path) -> bytes:
    with path.open("rb") as stream:
        raw = stream.read(MAX_TABLE_BYTES + 1)
    archive = next((name for magic, name in _ARCHIVES.items() if raw.startswith(magic)), None)
    if archive is not None:
        raise FileRefusedError(
            "wrong format",
            f"is in {archive} format; expected CSV text, plain or compressed with gzip",
        )
    found = _inflated(raw) if raw.startswith(_GZIP_MAGIC) else raw
    if len(found) > MAX_TABLE_BYTES:
        raise FileRefusedError(
            "too large", f"is larger than {MAX_TABLE_BYTES:,} bytes, the most that is read"
        )
    return found


def _inflated(raw: bytes) -> bytes:
    """Contents of a gzip file of one or more members.

    Raises:
        FileRefusedError: If it is damaged or ends too early; names the row up to which it can be
            read.
    """
    parts: list[bytes] = []
    size = 0
    while raw and size <= MAX_TABLE_BYTES:
        member = zlib.decompressobj(wbits=zlib.MAX_WBITS | _GZIP_FORMAT)
        try:
            parts.append(member.decompress(raw, MAX_TABLE_BYTES + 1 - size))
            reason = "ends before the end of the stream"
        except zlib.error as error:
            reason = str(error)
        size += len(parts[-1]) if parts else 0
        if not member.eof and size <= MAX_TABLE_BYTES:
            row = b"".join(parts).count(b"\n") + 1
            detail = (
                f"the gzip stream is truncated or damaged after this row ({reason}); "
                "copy the file again"
            )
            raise FileRefusedError("truncated gzip", detail, row=row)
        raw = member.unused_data
    return b"".join(parts)
