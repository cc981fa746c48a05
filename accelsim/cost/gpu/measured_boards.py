"""Boards whose kernel tables were fitted, with their surfaces: one compact file for all of them.

Reading ten overlays to find the relatives of a board would take longer than an estimate.
``calibration/fitted/relatives.npz`` holds what the overlays that ship with accelsim say: an index
(JSON) of boards and surfaces, and the surfaces' values as the overlays round them, in thousandths,
one array per board that is read when it is needed. Overlays in the user's own folder are read as
they are and come before those that ship. ``python -m tools.refit --relatives`` writes the file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from accelsim.cost.fitted import FittedParameters, calibration_folders, read_fitted
from accelsim.cost.shape_surface import Surface, surface_from_thousandths
from accelsim.errors import ProfileError
from accelsim.hardware.profile import GpuProfile
from accelsim.workloads.dtype import Dtype
from accelsim.workloads.graph import IntArray

__all__ = [
    "FILE",
    "Board",
    "MeasuredBoard",
    "measured_boards",
    "overlay_boards",
    "write_measured_boards",
]

FILE = "relatives.npz"
_INDEX = "index"
_BOARD_FIELDS = (
    "name",
    "vendor",
    "architecture",
    "is_stacked",
    "matrix_flop_per_s",
    "bandwidth_bytes_per_s",
)


@dataclass(frozen=True, slots=True)
class Board:
    """What tells how near two boards are.

    Attributes:
        name: Catalogue name, without a slice.
        vendor: As in the profile.
        architecture: As in the profile.
        is_stacked: Whether the main memory is HBM.
        matrix_flop_per_s: Dense BF16 rate of the matrix cores; 0 without such cores.
        bandwidth_bytes_per_s: Of the main memory.
    """

    name: str
    vendor: str
    architecture: str
    is_stacked: bool
    matrix_flop_per_s: float
    bandwidth_bytes_per_s: float

    @classmethod
    def of(cls, device: GpuProfile) -> Board:
        """The board of a profile."""
        rate = device.matrix_flop_per_s.get(Dtype.BF16)
        return cls(
            device.whole_name,
            device.vendor,
            device.architecture,
            "hbm" in (device.memory.technology or "").lower(),
            0.0 if rate is None else float(rate.value),
            float(device.memory_bandwidth_bytes_per_s or 1.0),
        )


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredBoard:
    """A board with the surfaces of its overlay.

    Attributes:
        board: Which.
        pinned: Class-wide values that the surfaces correct.
        entries: Surfaces by name as the index has them: rows, log_sigma, knots in sizes, place of
            their values.
        read_values: Reads the values of all surfaces, in thousandths.
    """

    board: Board
    pinned: Mapping[str, float]
    entries: Mapping[str, Mapping[str, Any]]
    read_values: Callable[[], IntArray]

    @property
    def names(self) -> Mapping[str, Mapping[str, Any]]:
        """Names of the surfaces."""
        return self.entries

    def surface(self, name: str) -> Surface:
        """One surface.

        Raises:
            KeyError: If the board has none of this name.
        """
        entry = self.entries[name]
        return surface_from_thousandths(entry, self.read_values()[entry["first"] :])

    @classmethod
    def of(cls, overlay: FittedParameters, device: GpuProfile) -> MeasuredBoard:
        """A board from its overlay."""
        entries: dict[str, Mapping[str, Any]] = {}
        values: list[IntArray] = []
        first = 0
        for name, surface in sorted(overlay.surfaces.items()):
            values.append(surface.thousandths)
            entries[name] = {**surface.header(), "first": first}
            first += len(values[-1])
        joined = np.concatenate(values)
        return cls(Board.of(device), dict(sorted(overlay.pinned.items())), entries, lambda: joined)


def measured_boards() -> tuple[MeasuredBoard, ...]:
    """Boards with overlays fitted to kernel tables, by name; the user's own overlays come before
    those that ship.

    Raises:
        ProfileError: If a file is damaged.
    """
    own, shipped = calibration_folders()
    return _measured_boards(own, shipped / "fitted" / FILE)


@lru_cache(maxsize=4)
def _measured_boards(own: Path, shipped: Path) -> tuple[MeasuredBoard, ...]:
    found = {} if not shipped.is_file() else {board.board.name: board for board in _read(shipped)}
    found |= {board.board.name: board for board in overlay_boards(own / "fitted")}
    return tuple(found[name] for name in sorted(found))


def overlay_boards(folder: Path) -> list[MeasuredBoard]:
    """Boards of the overlays in a folder whose surfaces came with the class-wide values they
    correct, by name.
    """
    from accelsim import catalog

    found = []
    for path in sorted(folder.glob("*.yaml")):
        overlay = read_fitted(path)
        if overlay.device_class != "gpu" or not (overlay.pinned and overlay.surfaces):
            continue
        profile = catalog.device(overlay.device)
        if isinstance(profile, GpuProfile) and Dtype.BF16 in profile.matrix_flop_per_s:
            found.append(MeasuredBoard.of(overlay, profile))
    return found


def write_measured_boards(boards: list[MeasuredBoard], path: Path) -> None:
    """Write the compact file, whole or not at all.

    Args:
        boards: What it holds.
        path: Where.
    """
    index = {
        board.board.name: {
            **{name: getattr(board.board, name) for name in _BOARD_FIELDS},
            "pinned": dict(board.pinned),
            "surfaces": {name: dict(entry) for name, entry in board.entries.items()},
        }
        for board in boards
    }
    text = np.frombuffer(json.dumps(index, separators=(",", ":")).encode(), dtype=np.uint8)
    arrays = {board.board.name: board.read_values().astype(np.int16) for board in boards}
    unfinished = path.with_suffix(".tmp.npz")
    members: dict[str, Any] = {_INDEX: text, **arrays}
    np.savez_compressed(unfinished, **members)
    unfinished.replace(path)


def _read(path: Path) -> list[MeasuredBoard]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            index = json.loads(archive[_INDEX].tobytes())
        return [
            MeasuredBoard(
                Board(*(entry[name] for name in _BOARD_FIELDS)),
                entry["pinned"],
                entry["surfaces"],
                _reader(path, name),
            )
            for name, entry in index.items()
        ]
    except (BadZipFile, KeyError, OSError, TypeError, ValueError) as error:
        raise ProfileError(
            str(path), [f"damaged: {error}; write it anew with tools.refit --relatives"]
        ) from None


def _reader(path: Path, name: str) -> Callable[[], IntArray]:
    @lru_cache(maxsize=1)
    def read() -> IntArray:
        with np.load(path, allow_pickle=False) as archive:
            values: IntArray = archive[name].astype(np.int64)
        return values

    return read
