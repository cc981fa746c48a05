"""Finished suites of a validation: kept in the folder of its report until that is written, so that
one that was interrupted goes on where it stopped.

Beside them stands a hash of all that their rows depend on: tables, tier, profiles, parameters and
code of this installation and of the user.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, fields
from hashlib import sha256
from pathlib import Path

import numpy as np

from accelsim.catalog import device_search_path
from accelsim.cost.fitted import calibration_folders
from accelsim.errors import OutputError
from accelsim.files.datafile import data_root
from accelsim.files.output import write_file, write_text
from accelsim.plain import Document, Values
from accelsim.scoreboard.data_folder import DataProblem, data_folder
from accelsim.scoreboard.scored_rows import ScoredRows, SuiteRows
from accelsim.scoreboard.suite import suites
from accelsim.scoreboard.tiers import TierName

_FOLDER = "finished"
_HASH = "made_with"
_SUFFIX = ".json.gz"
_READ = frozenset({".py", ".yaml", ".json", ".csv", ".npz", ".gz"})


class FinishedSuites:
    """The finished suites of one run.

    Args:
        publish: Folder of the report.
        made_with: Hash of what rows depend on.
        resume: Whether suites of an earlier run are taken over; else they are removed.

    Attributes:
        folder: Where they lie.
        taken: Suites that were taken over.

    Raises:
        OutputError: If the earlier run had other data, another tier or another accelsim, or the
            folder cannot be written.
    """

    def __init__(self, publish: Path, made_with: str, *, resume: bool) -> None:
        self.folder = publish / _FOLDER
        self.taken: list[str] = []
        known = self.folder / _HASH
        if not resume:
            self.clear()
        elif known.is_file() and known.read_text(encoding="utf-8") != made_with:
            reason = "was made with other data, another tier or another accelsim"
            remedy = "Leave --resume out to score all suites anew"
            raise OutputError(f"{self.folder} {reason}. {remedy}, or publish to another folder.")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"{self.folder} cannot be made: {error.strerror}.") from None
        write_text(known, made_with, force=True)

    def kept(self) -> str:
        """What is left if the run is interrupted."""
        names = sorted(path.name.removesuffix(_SUFFIX) for path in self._files())
        kept = f"{self.folder} keeps {', '.join(names) or 'no suite'}"
        return f"{kept}; the same command with --resume goes on"

    def _files(self) -> Iterable[Path]:
        return self.folder.glob(f"*{_SUFFIX}")

    def read(self, suite: str) -> SuiteRows | None:
        """A suite's rows; None where it is not finished.

        Raises:
            OutputError: If its file is damaged.
        """
        path = self.folder / f"{suite}{_SUFFIX}"
        if not path.is_file():
            return None
        try:
            found = json.loads(gzip.decompress(path.read_bytes()))
        except (OSError, ValueError, EOFError) as error:
            raise OutputError(f"{path} is damaged ({error}). Remove it and resume.") from None
        self.taken.append(suite)
        rows = tuple(_scored_rows(part) for part in found["rows"])
        return SuiteRows(rows, found["bad"], tuple(DataProblem(**x) for x in found["problems"]))

    def write(self, suite: str, rows: SuiteRows) -> None:
        """Keep a suite that is finished.

        Raises:
            OutputError: If it cannot be written.
        """
        found = {
            "rows": [_plain(part) for part in rows.rows],
            "bad": dict(rows.bad),
            "problems": [asdict(problem) for problem in rows.problems],
        }
        text = gzip.compress(json.dumps(found).encode(), compresslevel=1)
        write_file(
            self.folder / f"{suite}{_SUFFIX}", lambda path: path.write_bytes(text), force=True
        )

    def clear(self) -> None:
        """Remove what is kept."""
        if self.folder.is_dir():
            for path in (*self._files(), self.folder / _HASH):
                path.unlink(missing_ok=True)
            self.folder.rmdir()


def made_with(data: Path | None, tier: TierName) -> str:
    """Hash of all that scored rows depend on.

    Args:
        data: Folder of the tables; those that ship with accelsim where None.
        tier: Parameters to predict with.
    """
    total = sha256(tier.encode())
    for path in sorted(path for path in {*_files(data)} if path.parent.name != _FOLDER):
        total.update(f"{path.name}\0".encode() + sha256(path.read_bytes()).digest())
    return total.hexdigest()


def _files(data: Path | None) -> Iterator[Path]:
    """Tables, code, and the profiles and parameters that a prediction may read."""
    if data is not None:
        tables = data_folder(data)
        paths = (tables.path(schema) for suite in suites() for schema in suite.tables)
        yield from (path for path in paths if path is not None and path.is_file())
    named = (data_root() / name for name in ("device_profiles", "workloads"))
    code = Path(__file__).resolve().parents[1]
    for folder in (code, *named, *device_search_path(), *calibration_folders()):
        yield from (x for x in folder.rglob("*") if x.suffix in _READ and x.is_file())


def _plain(rows: ScoredRows) -> Document:
    found = {field.name: getattr(rows, field.name) for field in fields(rows)}
    columns = {name: x.tolist() for name, x in found.items() if isinstance(x, np.ndarray)}
    return {**found, **columns, "views": [(name, mask.tolist()) for name, mask in rows.views]}


def _scored_rows(values: Values) -> ScoredRows:
    columns = {
        name: np.array(value, dtype=float if name.endswith("_s") else str)
        for name, value in values.items()
        if isinstance(value, list) and name != "views"
    }
    views = tuple((name, np.array(mask, dtype=bool)) for name, mask in values["views"])
    return ScoredRows(**{**values, **columns, "views": views})
