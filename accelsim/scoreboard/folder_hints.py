"""What a folder of tables may have meant: tables one folder up or down, and files whose names are
nearly right.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path, PurePosixPath

from accelsim.scoreboard.data_folder import DataFolder, Schema

#: How alike two file names are that are taken for one misspelt.
_ALIKE = 0.75


def misplaced_hint(folder: DataFolder, schemas: Sequence[Schema]) -> str:
    """Where tables that a folder lacks are instead, as a sentence; empty where they are nowhere
    near.

    Args:
        folder: The folder.
        schemas: Tables it lacks.
    """
    for schema in schemas:
        path = PurePosixPath(schema.file)
        here = DataFolder(folder.root).path(Schema(path.name, ()))
        if here is not None and len(path.parts) > 1:
            if folder.root.resolve().name == path.parts[0]:
                return (
                    f"{here.name} lies in it directly: give the folder above, "
                    f"{str(folder.root.resolve().parent)!r}."
                )
            return (
                f"{here.name} lies in it directly: tables are looked for in "
                f"{path.parts[0]}/ below it."
            )
        below = next(
            (DataFolder(sub) for sub in _folders(folder.root) if DataFolder(sub).has(schema)), None
        )
        if below is not None:
            return f"{schema.file} lies one folder deeper: give {str(below.root)!r}."
    notes = unread_notes(folder, schemas)
    return f"{notes[0]}." if notes else ""


def unread_notes(folder: DataFolder, schemas: Iterable[Schema]) -> list[str]:
    """Files of the folder that no suite reads although their names are nearly those of tables that
    are missing.

    Args:
        folder: The folder.
        schemas: All tables that suites read.
    """
    known = list(schemas)
    present = {path for schema in known if (path := folder.path(schema)) is not None}
    missing: dict[Path, list[str]] = {}
    for schema in known:
        if not folder.has(schema):
            file = PurePosixPath(schema.file)
            missing.setdefault(folder.root / file.parent, []).append(file.name.removesuffix(".gz"))
    notes = []
    for place, wanted in missing.items():
        for path in _files(place):
            near = get_close_matches(path.name.lower(), wanted, n=1, cutoff=_ALIKE)
            if near and path not in present:
                below = place.relative_to(folder.root)
                notes.append(
                    f"{(below / path.name).as_posix()} is not read; did you mean {near[0]}?"
                )
    return notes


def _folders(root: Path) -> list[Path]:
    return [path for path in _entries(root) if path.is_dir()]


def _files(root: Path) -> list[Path]:
    return [path for path in _entries(root) if path.is_file()]


def _entries(root: Path) -> list[Path]:
    try:
        return sorted(root.iterdir())
    except OSError:
        return []
