"""Finished points on disk: parts of a Parquet dataset, and an index of which point is in which.

A part is indexed first, with the hash of its content and points, then written under a hidden name
and moved into place: after a kill an indexed part is there with all of its points, or it is
computed again. What the index does not name is no part: it is neither read nor touched.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from hashlib import blake2b, file_digest
from pathlib import Path
from types import TracebackType
from typing import Self

import accelsim
from accelsim.errors import MissingDependencyError, OutputError

#: Folder of the dataset in that of the sweep.
PARTS = "parts"
_INDEX = "_index.sqlite"
#: What a sweep leaves that was killed before its index was made.
_STARTED = {"_lock", _INDEX, f"{_INDEX}-journal"}
#: Names that parts have.
_PART = re.compile(r"[0-9a-f]{32}\.parquet")
_SHOWN = 3
#: Form of the folder: one of another form is refused by its version.
_FORM = f"{accelsim.__version__}, form 6"
_SCHEMA = """
begin immediate;
create table if not exists about (name text primary key, value text);
create table if not exists part (name text primary key, hash blob, points blob);
"""


def arrow() -> None:
    """Refuse to go on without pyarrow.

    Raises:
        MissingDependencyError: If it is not installed.
    """
    try:
        import pyarrow.parquet
    except ImportError:
        raise MissingDependencyError("pyarrow", "sweep") from None
    pyarrow.array([])  # imports pandas: before copies of this process do, each for itself


class SweepStore:
    """The folder of a sweep, open for one process at a time.

    Args:
        folder: Made where it does not exist.

    Raises:
        OutputError: If it cannot be written, holds other files and no sweep, another sweep is at
            work in it, or it was made by another version of accelsim.
    """

    def __init__(self, folder: Path) -> None:
        from filelock import FileLock, Timeout

        self.folder = folder
        with _usable(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self._check_others()
            self._index = sqlite3.connect(folder / _INDEX)
            is_new = self._is_new()
            self._lock = FileLock(folder / "_lock", timeout=0)
            try:
                self._lock.acquire()
            except Timeout:
                raise OutputError(f"{folder}: another sweep is at work in it.") from None
            if is_new:
                with self._index:
                    self._index.executescript(_SCHEMA)
                    row = ("version", _FORM)
                    self._index.execute("insert or ignore into about values (?, ?)", row)
            (folder / PARTS).mkdir(exist_ok=True)

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

    def _check_others(self) -> None:
        """Refuse a folder of other files before anything in it is touched."""
        names = {path.name for path in self.folder.iterdir()}
        lock = self.folder / "_lock"
        is_own = not lock.exists() or not lock.stat().st_size
        is_begun = _INDEX in names and (self.folder / _INDEX).stat().st_size
        if not is_begun and not (names <= _STARTED and is_own):
            raise OutputError(
                f"{self.folder}: holds other files and no sweep. Name a new or an empty folder."
            )

    def _is_new(self) -> bool:
        """Whether the index is empty; one of another version is refused before it is touched."""
        if not self._index.execute("select 1 from sqlite_master").fetchone():
            return True
        row = self._index.execute("select value from about where name = 'version'").fetchone()
        if row != (_FORM,):
            maker = "another program" if row is None else f"accelsim {row[0]}"
            raise OutputError(
                f"{self.folder}: made by {maker}, this is accelsim {_FORM}. "
                "Sweep into another folder."
            )
        return False

    def check_content(self, hashes: Mapping[str, str]) -> None:
        """Note the content of what is run, or hold it against the one the folder was made with.

        Args:
            hashes: Of devices and models, by name.

        Raises:
            OutputError: If one was changed since, or the index is damaged.
        """
        with _usable(self.folder):
            stored = dict(self._index.execute("select name, value from about"))
        changed = [
            name
            for name, content_hash in hashes.items()
            if stored.get(name, content_hash) != content_hash
        ]
        if changed:
            raise OutputError(
                f"{self.folder}: made before {', '.join(changed[:_SHOWN])} changed. "
                "Sweep into another folder."
            )
        with _usable(self.folder), self._index:
            self._index.executemany("insert or ignore into about values (?, ?)", hashes.items())

    def finished(self) -> list[bytes]:
        """Keys of the points whose part is whole, those of a part in one; what is left of other
        parts is taken out.

        Raises:
            OutputError: If the index is damaged, or a part cannot be taken out.
        """
        keys, broken = list[bytes](), []
        with _usable(self.folder):
            for path, written, points in _indexed(self._index, self.folder):
                if _hash_of(path, points) == written:
                    keys.append(points)
                else:
                    broken.append(path)
            for path in broken:
                self._forget(path)
        return keys

    def _forget(self, path: Path) -> None:
        _unfinished(path).unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        with self._index:
            self._index.execute("delete from part where name = ?", (path.name,))

    def add(self, name: str, content: bytes, keys: Sequence[bytes]) -> None:
        """Index a part, write it and move it into place.

        Args:
            name: Of the part.
            content: Parquet file.
            keys: Its points.

        Raises:
            OutputError: If it cannot be written: what is there stays whole.
        """
        path = self.folder / PARTS / name
        temporary = _unfinished(path)
        try:
            with self._index:
                points = b"".join(keys)
                row = (name, blake2b(content + points).digest(), points)
                self._index.execute("insert into part values (?, ?, ?)", row)
            temporary.write_bytes(content)
            temporary.replace(path)
        except (OSError, sqlite3.Error) as error:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise OutputError(
                f"{path}: cannot be written: {error}. Make room, and run again to go on."
            ) from None


def part_paths(folder: Path) -> list[Path]:
    """The finished parts of a sweep: what its index names, and nothing else.

    Args:
        folder: Of the sweep; one that is under way is read as far as it is.

    Raises:
        OutputError: If it is no folder of a sweep, or its index or a part is damaged.
    """
    paths = []
    with _usable(folder):
        for path, written, keys in _listed(folder / _INDEX):
            if _hash_of(path, keys) == written:
                paths.append(path)
            elif path.exists():
                remedy = "Run its sweep again: it answers damaged parts anew."
                raise OutputError(f"{path}: not the part that was written. {remedy}")
    if not paths:
        found_none = "no finished points: it is no folder of a sweep, or one that just began"
        raise OutputError(f"{folder}: {found_none}. Make some: accelsim sweep")
    return sorted(paths)


def _listed(index: Path) -> Iterator[tuple[Path, bytes, bytes]]:
    """What an index says of each part; one that is not there is not made, and one without a table
    is of a sweep that was killed before it made them.
    """
    if index.is_file():
        address = f"{index.resolve().as_uri()}?mode=rw"
        with closing(sqlite3.connect(address, uri=True)) as opened:
            if opened.execute("select 1 from sqlite_master").fetchone():
                yield from _indexed(opened, index.parent)


def _indexed(index: sqlite3.Connection, folder: Path) -> Iterator[tuple[Path, bytes, bytes]]:
    """Place, hash and points of each part.

    Raises:
        DatabaseError: If a row is none that a sweep wrote.
    """
    names = set[object]()
    for name, *content in index.execute("select name, hash, points from part"):
        is_part = isinstance(name, str) and _PART.fullmatch(name) and name not in names
        if not is_part or {*map(type, content)} != {bytes}:
            raise sqlite3.DatabaseError("its index is damaged")
        names.add(name)
        yield folder / PARTS / name, content[0], content[1]


@contextmanager
def _usable(folder: Path) -> Iterator[None]:
    """Errors of files and of the index as those of a folder.

    Raises:
        OutputError: For any of them.
    """
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        raise OutputError(
            f"{folder}: cannot be used for a sweep: {error}. Sweep into another folder."
        ) from None


def _unfinished(path: Path) -> Path:
    """Where a part is written before it is moved into place; readers of Parquet skip such names."""
    return path.with_name(f".{path.name}.new")


def _hash_of(path: Path, points: bytes) -> bytes | None:
    """Hash of a part's content and of its points; None where it cannot be read."""
    try:
        with path.open("rb") as file:
            digest = file_digest(file, blake2b)
            digest.update(points)
            return digest.digest()
    except OSError:
        return None
