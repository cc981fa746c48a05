"""Finished points on disk: parts of a Parquet dataset, and an index of which point is in which.

A part is written under another name and moved into place, then indexed in one transaction of
SQLite: after a kill a part is either indexed with all of its points, or no part of the dataset, and
removed when the sweep goes on. A part that is missing, or whose content is not the one that was
written, is computed again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Self

import accelsim
from accelsim.errors import MissingDependencyError, OutputError
from accelsim.sweeps.points import KEY_BYTES

#: Folder of the dataset in that of the sweep.
PARTS = "parts"
_SHOWN = 3
_SCHEMA = """
create table if not exists about (name text primary key, value text);
create table if not exists part (name text primary key, hash blob, points blob);
"""
#: Form of the folder: one of another form is refused by its version.
_FORM = f"{accelsim.__version__}, form 3"


def arrow() -> None:
    """Refuse to go on without pyarrow.

    Raises:
        MissingDependencyError: If it is not installed.
    """
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise MissingDependencyError("pyarrow", "sweep") from None


class SweepStore:
    """The folder of a sweep, open for one process at a time.

    Args:
        folder: Made where it does not exist.

    Raises:
        OutputError: If it cannot be written, another sweep is at work in it, or it was made by
            another version of accelsim.
    """

    def __init__(self, folder: Path) -> None:
        from filelock import FileLock, Timeout

        self.folder = folder
        try:
            (folder / PARTS).mkdir(parents=True, exist_ok=True)
            self._lock = FileLock(folder / "lock", timeout=0)
            self._lock.acquire()
            self._index = sqlite3.connect(folder / "index.sqlite")
            self._check_version()
        except Timeout:
            raise OutputError(f"{folder}: another sweep is at work in it.") from None
        except (OSError, sqlite3.Error) as error:
            raise OutputError(f"{folder}: cannot be used for a sweep: {error}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._index.close()
        self._lock.release()

    def _check_version(self) -> None:
        """Refuse a folder of another version before anything in it is touched."""
        is_new = not self._index.execute("select 1 from sqlite_master").fetchone()
        if not is_new:
            row = self._index.execute("select value from about where name = 'version'").fetchone()
            found = "an interrupted start" if row is None else f"accelsim {row[0]}"
            if row != (_FORM,):
                raise OutputError(
                    f"{self.folder}: made by {found}, this is accelsim {_FORM}. "
                    "Sweep into another folder."
                )
        self._index.execute("pragma journal_mode = wal")
        self._index.execute("pragma synchronous = normal")
        with self._index:
            for statement in filter(str.strip, _SCHEMA.split(";")):
                self._index.execute(statement)
            self._index.execute("insert or ignore into about values ('version', ?)", (_FORM,))

    def check_content(self, hashes: Mapping[str, str]) -> None:
        """Note the content of what is run, or hold it against the one the folder was made with.

        Args:
            hashes: Of devices and models, by name.

        Raises:
            OutputError: If one was changed since.
        """
        known = dict(self._index.execute("select name, value from about"))
        changed = [name for name, found in hashes.items() if known.get(name, found) != found]
        if changed:
            raise OutputError(
                f"{self.folder}: made before {', '.join(changed[:_SHOWN])} changed. "
                "Sweep into another folder."
            )
        with self._index:
            self._index.executemany("insert or ignore into about values (?, ?)", hashes.items())

    def finished(self) -> set[bytes]:
        """Keys of the points whose part is whole; all other parts are taken out."""
        kept = set()
        keys = set[bytes]()
        for name, written, points in self._index.execute("select * from part").fetchall():
            if _hash_of(self.folder / PARTS / name) == written:
                kept.add(name)
                keys.update(points[at : at + KEY_BYTES] for at in range(0, len(points), KEY_BYTES))
            else:
                self._forget(name)
        for path in (self.folder / PARTS).iterdir():
            if path.name not in kept:
                path.unlink()
        return keys

    def _forget(self, name: str) -> None:
        with self._index:
            self._index.execute("delete from part where name = ?", (name,))

    def add(self, name: str, content: bytes, keys: Sequence[bytes]) -> None:
        """Write a part, move it into place and index it.

        Args:
            name: Of the part.
            content: Parquet file.
            keys: Its points.

        Raises:
            OutputError: If it cannot be written: what is there stays whole.
        """
        place = self.folder / PARTS / name
        temporary = place.with_suffix(".new")
        try:
            temporary.write_bytes(content)
            temporary.replace(place)
            with self._index:
                row = (name, _hash(content), b"".join(keys))
                self._index.execute("insert into part values (?, ?, ?)", row)
        except (OSError, sqlite3.Error) as error:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise OutputError(
                f"{place}: cannot be written: {error}. Make room, and run again to go on."
            ) from None


def _hash(content: bytes) -> bytes:
    return blake2b(content, digest_size=16).digest()


def _hash_of(path: Path) -> bytes | None:
    """Hash of a file's content; None where it cannot be read."""
    try:
        return _hash(path.read_bytes())
    except OSError:
        return None
