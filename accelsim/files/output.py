"""Writes result files: all or nothing, and never over a file without being told to.

The text goes to a temporary file in the same folder, which then takes the name in one step (POSIX
rename is atomic), so that a reader or a crash never sees half a file.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from accelsim.errors import InputError, InvalidValueError, MissingDependencyError, OutputError

if TYPE_CHECKING:
    import pandas as pd


def check_output(path: Path, *, force: bool = False) -> None:
    """Refuse an output path that exists or cannot be written, before any work is done.

    Args:
        path: File to write.
        force: Whether an existing file may be replaced.

    Raises:
        OutputError: If the path exists (without `force`), is not a regular file, or its folder is
            missing or not writable.
    """
    try:
        exists = os.path.lexists(path)
        if exists and path.exists() and not path.is_file():
            raise OutputError(
                f"out = {str(path)!r} is not a regular file. Give the path of a file."
            )
        if exists and not force:
            raise OutputError(
                f"out = {str(path)!r} exists already. Choose another path, or add --force to "
                "replace it."
            )
        _check_folder(path)
        _temporary(path).is_file()  # fails where the name is too long
    except (OSError, ValueError) as error:
        raise _refused(path, error) from None


def write_text(path: Path, text: str | Iterable[str], *, force: bool = False) -> None:
    """Write a text file in UTF-8.

    Args:
        path: File to write.
        text: Its contents, whole or in parts that are made while the file is written.
        force: Whether an existing file may be replaced.

    Raises:
        OutputError: As `check_output`, or if writing fails; nothing is left behind then.
    """
    write_file(path, lambda temporary: _write_new(temporary, text), force=force)


def write_file(path: Path, write: Callable[[Path], object], *, force: bool = False) -> None:
    """Let `write` fill a temporary file, then give it its name.

    Args:
        path: File to write.
        write: Writes the file it is given; the name ends as that of `path`.
        force: Whether an existing file may be replaced.

    Raises:
        OutputError: As `check_output`, or if writing fails; nothing is left behind then.
    """
    check_output(path, force=force)
    target = Path(os.path.realpath(path))
    temporary = _temporary(target)
    try:
        write(temporary)
        os.replace(temporary, target)  # noqa: PTH105  (the atomic rename this module is about)
    except (OSError, ValueError) as error:
        raise _refused(path, error) from None
    finally:
        with contextlib.suppress(OSError, ValueError):
            temporary.unlink(missing_ok=True)


def check_folder(path: Path, *, force: bool = False) -> None:
    """Refuse a folder to write that has something in it, or cannot be made.

    Args:
        path: The folder.
        force: Whether files of a folder that exists may be replaced.

    Raises:
        OutputError: If it is a file, is not empty (without `force`), or the folder above is missing
            or not writable.
    """
    try:
        if os.path.lexists(path) and not path.is_dir():
            raise OutputError(f"out = {str(path)!r} is a file. Give the path of a folder.")
        if path.is_dir() and any(path.iterdir()) and not force:
            raise OutputError(
                f"out = {str(path)!r} is a folder with files in it. Choose another path, or add "
                "--force to replace those of the same names."
            )
        _check_folder(path)
    except (OSError, ValueError) as error:
        raise _refused(path, error) from None


def write_folder(path: Path, texts: Mapping[str, str], *, force: bool = False) -> None:
    """Write a folder of text files: whole, or not at all.

    They are written into a new folder, with what the old one has besides, which then takes the
    name.

    Args:
        path: The folder.
        texts: Contents by file name, which may have folders.
        force: As of `check_folder`.

    Raises:
        OutputError: As `check_folder`, or if writing fails; the folder is as before then.
    """
    check_folder(path, force=force)
    target = Path(os.path.realpath(path))
    new, old = _temporary(target), _temporary(target)
    try:
        if target.is_dir():
            shutil.copytree(target, new, symlinks=True)
        for name, text in texts.items():
            file = new / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8", newline="")
        if target.is_dir():
            target.rename(old)
        new.rename(target)
    except (OSError, ValueError) as error:
        if old.is_dir() and not target.exists():
            old.rename(target)
        raise _refused(path, error) from None
    finally:
        for left in (new, old):
            shutil.rmtree(left, ignore_errors=True)


def _temporary(path: Path) -> Path:
    return path.with_name(f".{secrets.token_hex(4)}-{path.name}")


def _write_new(path: Path, text: str | Iterable[str]) -> None:
    with path.open("x", encoding="utf-8", newline="") as file:
        file.writelines([text] if isinstance(text, str) else text)


def _check_folder(path: Path) -> None:
    folder = Path(os.path.realpath(path)).parent
    if not folder.is_dir():
        raise OutputError(
            f"out = {str(path)!r}: there is no folder {str(folder)!r}. Create it first."
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OutputError(
            f"out = {str(path)!r}: the folder {str(folder)!r} is not writable. Choose another."
        )


def _refused(path: Path, error: Exception) -> InputError:
    if isinstance(error, InputError):
        return error
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return OutputError(f"out = {str(path)!r} cannot be written: {reason}. Choose another path.")


def write_frame(path: Path, frame: pd.DataFrame, *, force: bool = False) -> None:
    """Write a table as CSV or Parquet, by the ending of its name.

    Args:
        path: File to write.
        frame: The table.
        force: Whether an existing file may be replaced.

    Raises:
        OutputError: As `check_output`, or if writing fails.
        InvalidValueError: If the name ends otherwise.
        MissingDependencyError: If Parquet is asked for without pyarrow.
    """
    if path.suffix == ".csv":
        write_file(path, lambda temporary: frame.to_csv(temporary, index=False), force=force)
        return
    if path.suffix != ".parquet":
        raise InvalidValueError("requests_out", str(path), "a name ending in .csv or .parquet")
    try:
        write_file(path, lambda temporary: frame.to_parquet(temporary, index=False), force=force)
    except ImportError:
        raise MissingDependencyError("pyarrow", "silicon") from None
