"""Fitted parameter overlays: what measurements of one device change of its class's parameters.

An overlay is ``fitted/<device>.yaml``, looked up in the user's configuration folder
(``$XDG_CONFIG_HOME/accelsim/calibration``), then in the ``calibration`` folder that ships with
accelsim. It replaces fields of the class's parameter set and never touches a data-sheet value. It
says what it was fitted to and how far its own rows lie from it. Its surfaces, where it has any, are
a packed file beside it. A share of a device has the device's overlay.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from accelsim.confidence.residual import FamilyResidual
from accelsim.cost.class_parameters import entry_problems
from accelsim.cost.shape_surface import Surface
from accelsim.cost.surface_file import SurfaceFile
from accelsim.cost.table import ParameterTier
from accelsim.errors import ProfileError
from accelsim.files.datafile import FileStamp, data_root, file_stamp, read_mapping
from accelsim.files.plainfile import user_folder
from accelsim.frozen import frozen
from accelsim.plain import Values

E = TypeVar("E")
#: Where a run of a machine's own is fitted again.
_REMEDY = "fit its run again: accelsim calibrate --from run.jsonl"
_TEXTS = ("device", "device_class", "date")
#: Parameters that overlays of version 0.2 have and that no formula takes any more: ignored.
_RETIRED = frozenset(
    {
        "gemm.k_contiguous_ratio",
        "gemm.m_contiguous_ratio",
        "memory.gather_overhead_bytes",
        "memory.reduction_columns",
    }
)


@frozen
class HeldOutError:
    """How far operators that a fit has not seen lie from it.

    Attributes:
        rows: Operators.
        median_fraction: Median of |predicted / measured - 1|.
        p90_fraction: Its 90th percentile.
    """

    rows: int
    median_fraction: float
    p90_fraction: float

    @classmethod
    def from_mapping(cls, data: Any) -> HeldOutError:
        """Read a mapping of the attributes.

        Raises:
            ValueError: If one is missing, no number or below 0.
        """
        names = cls.__dataclass_fields__
        if not isinstance(data, Mapping) or set(data) != set(names):
            raise ValueError(f"expected {', '.join(names)}")
        values = [float(data[name]) for name in names]
        if not all(0 <= value < math.inf for value in values):
            raise ValueError("expected numbers of 0 or more")
        return cls(int(values[0]), *values[1:])

    @property
    def log_sigma(self) -> float:
        """Least spread of ln(true / predicted) of a whole model.

        Estimate: half of its operators are as far off as the median or more; errors of operators
        far apart average out over a model, those of a fit as a whole do not.
        """
        return math.log1p(self.median_fraction)


@frozen(eq=False)
class FittedParameters:
    """An overlay of one device; equal to itself alone, so that what is made of it can be kept.

    Attributes:
        device: Catalogue name.
        device_class: "cpu", "gpu", "fpga" or "asic".
        date: Day of the fit, ISO 8601.
        data: What it was fitted to, in words.
        rows: Measured rows it was fitted to.
        parameters: Values by field name of the class's parameter set.
        families: Residuals by operator family.
        note: What a reader should know; may be empty.
        surfaces: Corrections of kernels over their shape, by name.
        pinned: Class-wide values on the day of the fit: the surfaces correct a model with these.
        tier: `FITTED`, or `MEASURED` where the surfaces interpolate the device's own kernel tables
            and nothing else is changed.
        held_out: Error of the operators left out of the fit; None where the rows are a table of
            others.
    """

    device: str
    device_class: str
    date: str
    data: str
    rows: int
    parameters: Mapping[str, float]
    families: Mapping[str, FamilyResidual]
    note: str = ""
    surfaces: Mapping[str, Surface] = field(default_factory=dict)
    pinned: Mapping[str, float] = field(default_factory=dict)
    tier: ParameterTier = ParameterTier.FITTED
    held_out: HeldOutError | None = None


def calibration_folders() -> tuple[Path, ...]:
    """Folders that may hold ``fitted/``, the user's first."""
    return (user_folder() / "calibration", data_root() / "calibration")


def fitted_parameters(device: str) -> FittedParameters | None:
    """The overlay of a device; None where it has none.

    Args:
        device: Catalogue name, with or without a slice ("mi250@fraction=0.5").

    Raises:
        ProfileError: If its file does not validate, or the user's own does not say how far off its
            fit is.
    """
    name = device.partition("@")[0]
    for folder in calibration_folders():
        path = folder / "fitted" / f"{name}.yaml"
        stamp = file_stamp(path)
        if stamp is None:
            continue
        overlay = _cached_overlay(path, stamp)
        if overlay.held_out is None and folder == calibration_folders()[0]:
            raise ProfileError(str(path), [f"held_out: missing; {_REMEDY}"])
        return overlay
    return None


@lru_cache(maxsize=256)
def _cached_overlay(path: Path, _stamp: FileStamp) -> FittedParameters:
    return read_fitted(path)


def read_fitted(path: Path) -> FittedParameters:
    """Read an overlay file.

    Raises:
        ProfileError: If an entry is missing, no number, or without a source, or the file of its
            surfaces is missing.
    """
    data = read_mapping(path)
    problems = [f"{name}: expected text" for name in _TEXTS if not isinstance(data.get(name), str)]
    source, rows = _origin(data.get("data"), problems)
    entries = data.get("parameters")
    if not isinstance(entries, Mapping) or not (entries or data.get("surfaces")):
        problems.append("parameters: expected a mapping of name: {value, kind, source}")
        entries = {}
    problems += entry_problems(entries)
    families = _entries("families", data, FamilyResidual.from_mapping, problems)
    surfaces = _surfaces(path, data, problems)
    tier = data.get("tier", ParameterTier.FITTED)
    if tier not in (ParameterTier.FITTED, ParameterTier.MEASURED):
        problems.append(
            f"tier: expected {ParameterTier.FITTED} or {ParameterTier.MEASURED}, not {tier!r:.60}"
        )
    pinned = _entries("pinned", data, float, problems)
    held_out = _held_out(data, problems)
    if problems:
        raise ProfileError(str(path), problems)
    return FittedParameters(
        **{name: data[name] for name in _TEXTS},
        data=source,
        rows=rows,
        parameters={
            name: float(entry["value"]) for name, entry in entries.items() if name not in _RETIRED
        },
        families=families,
        note=str(data.get("note") or ""),
        surfaces=surfaces,
        pinned={name: value for name, value in pinned.items() if name not in _RETIRED},
        tier=ParameterTier(tier),
        held_out=held_out,
    )


def _held_out(data: Values, problems: list[str]) -> HeldOutError | None:
    """Errors of what the fit had not seen; None where the file has none, or wrong ones."""
    try:
        return HeldOutError.from_mapping(data["held_out"]) if "held_out" in data else None
    except (TypeError, ValueError) as error:
        problems.append(f"held_out: {error}")
        return None


def _origin(origin: object, problems: list[str]) -> tuple[str, int]:
    """What the overlay was fitted to, and how many rows of it."""
    if not isinstance(origin, Mapping) or not isinstance(origin.get("source"), str):
        problems.append("data: expected {source: text, rows: number}")
        return "", 0
    return origin["source"], int(origin.get("rows") or 0)


def _surfaces(path: Path, data: Values, problems: list[str]) -> Mapping[str, Surface]:
    """The surfaces of the file that an overlay names; nothing of it is read yet."""
    name = data.get("surfaces")
    if name is None:
        return {}
    beside = path.parent / str(name)
    if not isinstance(name, str) or beside.parent != path.parent or not beside.is_file():
        problems.append(f"surfaces: expected the name of a file beside this one, not {name!r:.60}")
        return {}
    return SurfaceFile(beside)


def _entries(
    section: str, data: Values, parse: Callable[[Any], E], problems: list[str]
) -> dict[str, E]:
    """The named entries of a section that may be missing; what is wrong is added to `problems`."""
    entries = data.get(section) or {}
    if not isinstance(entries, Mapping):
        problems.append(f"{section}: expected a mapping")
        return {}
    values: dict[str, E] = {}
    for name, entry in entries.items():
        try:
            values[name] = parse(entry)
        except (KeyError, TypeError, ValueError) as error:
            problems.append(f"{section}.{name}: {error}")
    return values
