"""Writes class-wide parameter sets: the class file with new values in place, and sets with one chip
left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from accelsim.calibration.overlay import family_line, number
from accelsim.confidence.residual import FamilyResidual
from accelsim.cost.gpu import GpuParameters
from accelsim.cost.gpu.measured_boards import MeasuredBoard
from accelsim.files.datafile import data_root
from tools.scoreboard.left_out import DATA

_FAMILIES = "families:"
_ENTRY = re.compile(r"^(  )([\w.]+)(: \{value: )([^,}]+)(.*)$")


def class_text(text: str, values: Mapping[str, float]) -> str:
    """A class file with other values; comments and sources stay.

    Args:
        text: The file.
        values: New values by name.
    """

    def line(old: str) -> str:
        match = _ENTRY.match(old)
        if match is None or match[2] not in values:
            return old
        return f"{match[1]}{match[2]}{match[3]}{number(values[match[2]])}{match[5]}"

    return "\n".join(line(old) for old in text.splitlines()).rstrip() + "\n"


def class_file(folder: Path, name: str = "gpu") -> Path | None:
    """A file of class-wide parameters: the folder's, else the one that ships, or the
    scoreboard's; None where there is none.
    """
    places = (folder, data_root() / "calibration" / "class", DATA)
    return next((path for place in places if (path := place / f"{name}.yaml").is_file()), None)


def left_out_folder(out: Path) -> Path:
    """Where what is fitted without a chip or a board goes: to the scoreboard, from data that ship;
    else beside the rest.
    """
    return DATA if out.is_relative_to(data_root()) else out


def left_out_name(chip: str) -> str:
    """Name of the set fitted without a chip."""
    return f"gpu-without-{chip}"


def write_class(
    values: Mapping[str, float], families: Mapping[str, FamilyResidual], folder: Path
) -> Path:
    """Write ``gpu.yaml`` with new values and spreads; text and sources are those of the folder's
    file, else of the shipped.

    Args:
        values: By name.
        families: Residuals of chips left out, by family.
        folder: Where.
    """
    before = class_file(folder)
    text = before.read_text(encoding="utf-8") if before else ""
    kept = class_text(text.partition(_FAMILIES)[0], values)
    return write_whole(
        folder / "gpu.yaml", kept + "\n".join([_FAMILIES, *family_lines(families)]) + "\n"
    )


def write_left_out(
    chip: str, parameters: GpuParameters, families: Mapping[str, FamilyResidual], folder: Path
) -> Path:
    """Write ``gpu-without-<chip>.yaml``: the whole set, fitted to the rows of other chips.

    Args:
        chip: The chip left out.
        parameters: The set.
        families: Residuals of other chips' rows by family.
        folder: Where.
    """
    lines = [
        f"# GPU parameters without any row of {chip} boards: they score tier `spec` there.",
        f'source: "As in gpu.yaml, without the rows of {chip} boards"',
        "parameters:",
        *(
            f"  {name}: {{value: {number(value)}, source: source}}"
            for name, value in parameters.numbers().items()
        ),
    ]
    if families:
        lines += [_FAMILIES, *family_lines(families)]
    path = left_out_folder(folder) / f"{left_out_name(chip)}.yaml"
    return write_whole(path, "\n".join(lines) + "\n")


def family_lines(families: Mapping[str, FamilyResidual]) -> list[str]:
    """Residuals by family as lines of a parameter file."""
    return [f"  {name}: {family_line(entry)}" for name, entry in sorted(families.items())]


def write_whole(path: Path, text: str) -> Path:
    """Write a file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".yaml.tmp")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)
    return path


def write_measured_boards(boards: Sequence[MeasuredBoard], path: Path) -> None:
    """Write the list of measured boards, whole or not at all.

    Args:
        boards: What it holds; their surfaces' files must lie beside it.
        path: Where.
    """
    entries = {
        board.board.name: {
            **asdict(board.board),
            "pinned": dict(board.pinned),
            "surfaces": list(board.names),
        }
        for board in boards
    }
    write_whole(path, json.dumps(entries, indent=1) + "\n")
