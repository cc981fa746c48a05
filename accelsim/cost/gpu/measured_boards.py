"""Boards whose kernel tables were measured, with what tells how near two boards are.

Reading ten overlays and profiles to find the relatives of a board would take longer than an
estimate. ``calibration/fitted/measured_boards.json`` holds what the overlays and profiles that ship
with accelsim say: figures of each board, the class-wide values that its surfaces correct, and the
surfaces' names; the surfaces themselves stay in the overlays' own files. Overlays in the user's own
folder are read as they are and come before those that ship. ``python -m tools.refit --relatives``
writes the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from accelsim.cost.fitted import calibration_folders, read_fitted
from accelsim.cost.shape_surface import Surface
from accelsim.cost.surface_file import SurfaceFile, surface_file_name
from accelsim.cost.table import ParameterTier
from accelsim.dtype import Dtype
from accelsim.errors import InputError, ProfileError
from accelsim.files.datafile import read_json
from accelsim.frozen import frozen
from accelsim.hardware.profile import GpuProfile

FILE = "measured_boards.json"
_MOST_BYTES = 1_000_000


@frozen
class Board:
    """What tells how near two boards are.

    Attributes:
        name: Catalogue name, without a slice.
        vendor: As in the profile.
        architecture: As in the profile.
        is_stacked: Whether the main memory is HBM.
        matrix_flop_per_s: Dense BF16 rate of the matrix cores; 0 without such cores.
        bandwidth_bytes_per_s: Of the main memory.
        sm_count: SMs or compute units.
    """

    name: str
    vendor: str
    architecture: str
    is_stacked: bool
    matrix_flop_per_s: float
    bandwidth_bytes_per_s: float
    sm_count: float

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
            float(device.sm_count.value),
        )


@frozen(eq=False)
class MeasuredBoard:
    """A board with the surfaces of its overlay.

    Attributes:
        board: Which.
        pinned: Class-wide values that the surfaces correct.
        names: Names of the surfaces.
        surfaces: The surfaces, each read when it is asked for.
    """

    board: Board
    pinned: Mapping[str, float]
    names: tuple[str, ...]
    surfaces: Mapping[str, Surface]


def measured_boards() -> tuple[MeasuredBoard, ...]:
    """Boards with overlays of tier `measured`, by name; the user's own overlays come before those
    that ship.

    Raises:
        ProfileError: If a file is damaged.
    """
    user_folder, shipped_folder = calibration_folders()
    return _measured_boards(user_folder, shipped_folder / "fitted" / FILE)


@lru_cache(maxsize=4)
def _measured_boards(user_folder: Path, shipped_file: Path) -> tuple[MeasuredBoard, ...]:
    boards = _shipped_boards(shipped_file) if shipped_file.is_file() else []
    by_name = {
        board.board.name: board for board in (*boards, *overlay_boards(user_folder / "fitted"))
    }
    return tuple(by_name[name] for name in sorted(by_name))


def overlay_boards(folder: Path) -> list[MeasuredBoard]:
    """Boards of the overlays of tier `measured` in a folder, by name.

    Args:
        folder: Of overlays.
    """
    from accelsim import catalog

    overlay_boards = []
    for path in sorted(folder.glob("*.yaml")):
        overlay = read_fitted(path)
        if overlay.device_class != "gpu" or overlay.tier is not ParameterTier.MEASURED:
            continue
        profile = catalog.device(overlay.device)
        if isinstance(profile, GpuProfile) and Dtype.BF16 in profile.matrix_flop_per_s:
            pinned = dict(sorted(overlay.pinned.items()))
            names = tuple(sorted(overlay.surfaces))
            overlay_boards.append(MeasuredBoard(Board.of(profile), pinned, names, overlay.surfaces))
    return overlay_boards


def _shipped_boards(path: Path) -> list[MeasuredBoard]:
    try:
        entries = read_json(path, max_bytes=_MOST_BYTES)
        return [_board(entry, path.parent) for entry in entries.values()]
    except (AttributeError, InputError, KeyError, TypeError, ValueError) as error:
        remedy = "write it anew with tools.refit --relatives"
        raise ProfileError(str(path), [f"damaged: {error}; {remedy}"]) from None


def _board(entry: Mapping[str, object], folder: Path) -> MeasuredBoard:
    facts = dict(entry)
    pinned, names = facts.pop("pinned"), facts.pop("surfaces")
    if not isinstance(pinned, dict) or not isinstance(names, list):
        raise TypeError("expected a mapping `pinned` and a list `surfaces`")
    board = Board(**facts)  # type: ignore[arg-type]
    surfaces = SurfaceFile(folder / surface_file_name(board.name))
    return MeasuredBoard(board, pinned, tuple(names), surfaces)
