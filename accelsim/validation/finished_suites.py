"""Finished suites of a validation on disk, so that one that was interrupted can continue.

A file per suite lies in the user's cache folder (``$XDG_CACHE_HOME/accelsim/validate``) until the
run ends. Its name is a hash of everything its rows depend on: the suite's tables, the tier, the
code and the parameters and profiles of this installation and of the user, and the versions of what
computes with them. A run that finds anything else changed therefore finds no file and scores the
suite anew. Files are written under another name and then renamed: there is never half a file.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import platform
import time
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import lru_cache
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import numpy as np

from accelsim.catalog import device_search_path
from accelsim.cost.fitted import calibration_folders
from accelsim.datafile import data_root
from accelsim.validation.data_folder import DataFolder, DataProblem, Schema
from accelsim.validation.scored_rows import TIMES, ScoredRows, SuiteRows
from accelsim.validation.suite import Suite, suites

__all__ = ["FinishedSuites", "cache_folder"]

#: Days after which files of runs that were never continued are removed.
_MOST_DAYS: Final = 7
_COLUMNS: Final = dict.fromkeys(("group", "label", "setting"), str) | dict.fromkeys(
    TIMES, np.float64
)
_FIELDS: Final = tuple(field.name for field in fields(ScoredRows))
_COMPRESSION: Final = 3
_LIBRARIES: Final = ("numpy", "scipy", "aiconfigurator-core")
_SUFFIXES: Final = frozenset({".py", ".yaml", ".json", ".csv", ".npz"})


def cache_folder() -> Path:
    """Where unfinished validations of this user lie."""
    configured = os.environ.get("XDG_CACHE_HOME")
    cache = Path(configured) if configured else Path(os.path.expanduser("~")) / ".cache"  # noqa: PTH111
    return cache / "accelsim" / "validate"


@dataclass(slots=True)
class FinishedSuites:
    """The finished suites of one run.

    Attributes:
        resume: Whether suites of an earlier, unfinished run are taken over.
        folder: Where they lie.
        stored: Suites that lie there now, in order.
        taken: Suites that were taken over from the earlier run.
        notes: What a user should know: files that were damaged.
        problem: Why nothing can be kept; empty where it can.
    """

    resume: bool = False
    folder: Path = field(default_factory=cache_folder)
    stored: list[str] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problem: str = ""
    _files: list[Path] = field(default_factory=list)

    def read(self, suite: Suite, data: DataFolder, tier: str) -> SuiteRows | None:
        """Rows of a suite that an earlier run finished; None where there are none that still hold.

        Args:
            suite: The suite.
            data: Folder of its tables.
            tier: Tier of the run.
        """
        path = self._path(suite, data, tier)
        if not self.resume or not path.is_file():
            return None
        try:
            found = _read(path)
        except (OSError, ValueError, KeyError, TypeError, EOFError, zlib.error) as error:
            self.notes.append(
                f"{path} is damaged and ignored ({type(error).__name__}); {suite.name} is "
                "scored anew"
            )
            return None
        self._mark(suite, path)
        self.taken.append(suite.name)
        return found

    def write(self, suite: Suite, data: DataFolder, tier: str, rows: SuiteRows) -> None:
        """Keep a suite that is finished; a folder that cannot be written is no error, but noted in
        `problem`.
        """
        path = self._path(suite, data, tier)
        unfinished = path.with_name(f".{os.getpid()}-{path.name}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(unfinished, rows)
            os.replace(unfinished, path)  # noqa: PTH105  (atomic)
        except OSError as error:
            self.problem = f"{self.folder} cannot be written: {error.strerror or error}"
        else:
            self._mark(suite, path)
        finally:
            with contextlib.suppress(OSError):
                unfinished.unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove this run's files, which is finished, and those of runs that nobody continued."""
        oldest = time.time() - _MOST_DAYS * 86_400
        with contextlib.suppress(OSError):
            stale = [path for path in self.folder.iterdir() if path.stat().st_mtime < oldest]
            for path in (*self._files, *stale):
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)

    def _mark(self, suite: Suite, path: Path) -> None:
        self.stored.append(suite.name)
        self._files.append(path)

    def _path(self, suite: Suite, data: DataFolder, tier: str) -> Path:
        tables = [data.path(schema) for schema in _schemas(suite)]
        own = _digest(path for path in tables if path is not None and path.is_file())
        text = json.dumps(
            [suite.name, tier, own, _installation(device_search_path(), calibration_folders())]
        )
        return self.folder / f"{suite.name}-{sha256(text.encode()).hexdigest()[:16]}.json.gz"


def _schemas(suite: Suite) -> list[Schema]:
    """Tables that a suite's rows depend on: its own, and those that fits to the folder use."""
    read = [other for other in suites() if other.fits_folder] if suite.fits_folder else [suite]
    return [schema for other in read for schema in other.tables]


def _digest(paths: Iterable[Path]) -> str:
    """Hash of names and contents; a file that cannot be read counts as empty."""
    total = sha256()
    for path in paths:
        with contextlib.suppress(OSError):
            total.update(str(path).encode() + b"\0" + sha256(path.read_bytes()).digest())
    return total.hexdigest()


@lru_cache(maxsize=4)
def _installation(devices: Sequence[Path], calibrations: Sequence[Path]) -> str:
    """Hash of the code, of every profile and parameter that a prediction may read, and of the
    libraries' versions.
    """
    code, data = Path(__file__).resolve().parents[2], data_root()
    folders = (
        code,
        *(data / name for name in ("device_profiles", "workloads", "calibration")),
        *devices,
        *calibrations,
    )
    files = {
        path
        for folder in folders
        for path in folder.rglob("*")
        if path.suffix in _SUFFIXES and path.is_file()
    }
    installed = {found.name: found.version for found in metadata.distributions()}
    versions = [platform.python_version(), *(installed.get(name) for name in _LIBRARIES)]
    return sha256(json.dumps([_digest(sorted(files)), versions]).encode()).hexdigest()


def _write(path: Path, suite: SuiteRows) -> None:
    words = {
        "rows": [{name: _plain(getattr(part, name)) for name in _FIELDS} for part in suite.rows],
        "bad": dict(suite.bad),
        "problems": [asdict(problem) for problem in suite.problems],
    }
    path.write_bytes(gzip.compress(json.dumps(words).encode(), _COMPRESSION))


def _plain(value: Any) -> Any:
    """Columns as lists; views as pairs of a name and a list."""
    if isinstance(value, tuple):
        return [(name, mask.tolist()) for name, mask in value]
    return value.tolist() if isinstance(value, np.ndarray) else value


def _read(path: Path) -> SuiteRows:
    """The opposite of `_write`.

    Raises:
        OSError, ValueError, KeyError, TypeError, EOFError: If the file is not what `_write` wrote.
    """
    words = json.loads(gzip.decompress(path.read_bytes()))
    rows = tuple(_scored_rows(part) for part in words["rows"])
    problems = tuple(DataProblem(**problem) for problem in words["problems"])
    return SuiteRows(rows, words["bad"], problems)


def _scored_rows(values: dict[str, Any]) -> ScoredRows:
    columns = {name: np.array(values[name], dtype=kind) for name, kind in _COLUMNS.items()}
    views = tuple((name, np.array(mask, dtype=np.bool_)) for name, mask in values["views"])
    if len({len(column) for column in columns.values()}) > 1:
        raise ValueError("lengths differ")
    return ScoredRows(**values | columns | {"views": views})
