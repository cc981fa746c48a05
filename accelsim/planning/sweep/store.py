"""Finished points on disk: parts of a Parquet dataset, and an index of which point is in which.

A part is written under another name and moved into place, then indexed in one transaction of
SQLite: after a kill a part is either indexed with all of its points, or no part of the dataset, and
removed when the sweep goes on. A part that is missing or was changed is computed again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import accelsim
from accelsim.errors import MissingDependencyError, OutputError

__all__ = ["PARTS", "SweepStore", "arrow"]

#: Folder of the dataset in that of the sweep.
PARTS: Final = "parts"
_SHOWN: Final = 3
_SCHEMA: Final = """
create table if not exists about (name text primary key, value text);
create table if not exists part (id integer primary key, name text unique, bytes integer);
create table if not exists point (key blob primary key, part integer references part) without rowid;
create index if not exists point_of_part on point (part);
"""


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
            self._index.executescript(_SCHEMA)
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
        row = self._index.execute("select value from about where name = 'version'").fetchone()
        if row is None:
            with self._index:
                self._index.execute(
                    "insert into about values ('version', ?)", (accelsim.__version__,)
                )
        elif row[0] != accelsim.__version__:
            raise OutputError(
                f"{self.folder}: made by accelsim {row[0]}, this is {accelsim.__version__}. "
                "Sweep into another folder."
            )

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
        kept = {}
        for number, name, size in self._index.execute("select id, name, bytes from part"):
            path = self.folder / PARTS / name
            if path.is_file() and path.stat().st_size == size and _is_whole(path):
                kept[name] = number
            else:
                self._forget(number)
        for path in (self.folder / PARTS).iterdir():
            if path.name not in kept:
                path.unlink()
        return {key for (key,) in self._index.execute("select key from point")}

    def _forget(self, number: int) -> None:
        with self._index:
            self._index.execute("delete from point where part = ?", (number,))
            self._index.execute("delete from part where id = ?", (number,))

    def add(self, name: str, keys: Iterable[bytes]) -> None:
        """Index a part that is in place.

        Raises:
            OutputError: If the index cannot be written.
        """
        size = (self.folder / PARTS / name).stat().st_size
        try:
            with self._index:
                made = self._index.execute(
                    "insert into part (name, bytes) values (?, ?)", (name, size)
                )
                rows = ((key, made.lastrowid) for key in keys)
                self._index.executemany("insert into point values (?, ?)", rows)
        except sqlite3.Error as error:
            raise OutputError(f"{self.folder}: the index cannot be written: {error}") from None


def _is_whole(path: Path) -> bool:
    """Whether a part can be read to its end."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        pq.read_table(path, columns=["point"])
    except (OSError, pa.ArrowException):
        return False
    return True
