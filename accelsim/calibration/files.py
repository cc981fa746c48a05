"""Files that are written whole or not at all."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from accelsim.errors import OutputError
from accelsim.plain import Values


def write_json(path: Path, document: Values) -> None:
    """Write a document, whole or not at all.

    Raises:
        OutputError: If it cannot be written.
    """
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    write_text(path, text.replace('],["', '],\n["').replace('{"model":', '\n{"model":') + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a file, whole or not at all.

    Raises:
        OutputError: If it cannot be written.
    """
    unfinished = path.with_name(path.name + ".tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_text(text, encoding="utf-8")
        os.replace(unfinished, path)  # noqa: PTH105  (atomic)
    except OSError as error:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise OutputError(f"{path} cannot be written: {error.strerror}.") from None
