"""Parameters that the rows they are scored on had no part in.

Fits leave a board, a chip, or a served model out and are made anew. What they give lies in a folder
that does not ship: ``python -m tools.scoreboard`` hands it in. Without it, as where a wheel is
installed, rows are predicted with the parameters that ship, which rows like them may have shaped.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from accelsim.catalog.stacks import Achieved, Spread, Stack
from accelsim.cost.gpu import GpuParameters
from accelsim.cost.gpu.gpu_parameters import read_parameters
from accelsim.estimation.evidence import shipped_evidence
from accelsim.files.datafile import read_json, read_mapping
from accelsim.plain import Document, Values

#: Spreads of `accelsim.scoreboard.evidence.left_out_spreads`, in the folder.
SPREADS_NAME = "spreads.json"
_MAX_BYTES = 1_000_000
_folders: list[Path] = []


def hand_in(folder: Path) -> None:
    """Predict rows with the parameters of a folder from now on."""
    _folders[:] = [folder]


def folder() -> Path | None:
    """The folder that was handed in."""
    return _folders[0] if _folders else None


def class_set(chip: str) -> GpuParameters | None:
    """GPU parameters fitted without a chip's rows; None where there are none."""
    return _class_set(folder(), chip)


def stack_without(stack: Stack, board: str) -> Stack:
    """A stack whose ratios and spreads a board's rows had no part in.

    Args:
        stack: As it ships.
        board: Catalogue name.
    """
    entry = _document(folder(), "stacks.yaml").get(stack.name, {}).get(board)
    if entry is None:
        return stack
    update: Document = {
        name: tuple(kind.model_validate(values) for values in entry.get(name, ()))
        for name, kind in (("achieved", Achieved), ("spreads", Spread))
    }
    if "core_bytes" in entry and stack.own_kernels is not None:
        core_bytes = {"core_bytes": entry["core_bytes"]}
        update["own_kernels"] = stack.own_kernels.model_copy(update=core_bytes)
    return stack.model_copy(update=update)


def older_stack_ratio(stack: str, card: str) -> float:
    """Measured over modelled time of a software stack of another time, from other cards than this;
    1 where nothing is known.

    Args:
        stack: "torch7 cudnn 5.1"; empty for today's.
        card: Catalogue name.
    """
    entry = _document(folder(), "older-stacks.yaml").get("stacks", {}).get(stack, {})
    return float(entry.get("without", {}).get(card, entry.get("value", 1.0)))


def spreads_without(origin: str) -> Values:
    """The spreads that ship, as they are without the rows of one origin; groups of one are left
    out.

    Args:
        origin: Board, trained model, or served model and engine.
    """
    left_out = _document(folder(), SPREADS_NAME)
    found = {}
    for place, entry in shipped_evidence()["spreads"].items():
        others = left_out.get(place, {})
        if entry["origins"] > 1:
            sigma = others.get(origin, entry["log_sigma"])
            origins = entry["origins"] - (origin in others)
            found[place] = {**entry, "log_sigma": sigma, "origins": origins}
    return found


@lru_cache(maxsize=128)
def _class_set(place: Path | None, chip: str) -> GpuParameters | None:
    path = None if place is None else place / f"gpu-without-{chip}.yaml"
    return read_parameters(path) if path is not None and path.is_file() else None


@lru_cache(maxsize=8)
def _document(place: Path | None, name: str) -> dict[str, Any]:
    path = None if place is None else place / name
    if path is None or not path.is_file():
        return {}
    read = read_json if path.suffix == ".json" else read_mapping
    return read(path, max_bytes=_MAX_BYTES)
