"""Surfaces of a measured relative for a GPU without measurements of its own.

Boards of one architecture run the same library kernels: how their measured times depart from the model over shape carries
over, while the model itself scales with each board's data sheet. The relative is the board with kernel tables that is
nearest in architecture, memory technology, matrix rate and bandwidth; the spread grows by what the transfer costs.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import hypot, log

from accelsim.cost.fitted import FittedParameters, calibration_folders, fitted_parameters
from accelsim.cost.gpu.parameters import GpuParameters
from accelsim.hardware.profile import GpuProfile
from accelsim.workloads.dtype import Dtype

__all__ = ["nearest_relative", "with_relative_surfaces"]

#: Spread of ln(time) that a transfer adds, within an architecture and beyond it: 90th percentiles of the errors of nine
#: boards' GEMM, attention and expert kernels predicted with a relative's surfaces, over 1.645.
_NEAR_SIGMA, _FAR_SIGMA = 0.08, 0.30
#: Distance of another architecture, and of another memory technology, in natural logarithms of rates.
_OTHER_ARCHITECTURE, _OTHER_MEMORY = 10.0, 1.0


def with_relative_surfaces(
    parameters: GpuParameters, device: GpuProfile, *, as_fitted: bool = True
) -> tuple[GpuParameters, str | None]:
    """Parameters with the surfaces of the nearest relative, and its name; as they are where there is none.

    Args:
        parameters: Class-wide parameters.
        device: The board; its own overlay is never used.
        as_fitted: Whether the values the surfaces were fitted on top of replace those of `parameters`; not where these were
            fitted without the board's chip, and those may have seen it.
    """
    relative = nearest_relative(device)
    if relative is None:
        return parameters, None
    profile, overlay = relative
    added = _NEAR_SIGMA if _is_near(profile, device) else _FAR_SIGMA
    surfaces = {
        name: replace(surface, log_sigma=hypot(surface.log_sigma, added)) for name, surface in overlay.surfaces.items()
    }
    known = {name: value for name, value in overlay.pinned.items() if as_fitted and hasattr(parameters, name)}
    return replace(parameters, **known, surfaces={**parameters.surfaces, **surfaces}), overlay.device  # type: ignore[arg-type]


def nearest_relative(device: GpuProfile) -> tuple[GpuProfile, FittedParameters] | None:
    """The nearest other board whose overlay was fitted to kernel tables, with that overlay.

    None where there is none, where the device is another vendor's, or has no BF16 matrix cores: the tables begin with them.
    """
    if Dtype.BF16 not in device.matrix_flop_per_s:
        return None
    own = device.name.partition("@")[0]
    boards = _measured_boards(calibration_folders())
    others = [pair for pair in boards if pair[0].name != own and pair[0].vendor == device.vendor]
    return min(others, key=lambda pair: _distance(device, pair[0]), default=None)


@lru_cache(maxsize=4)
def _measured_boards(folders: tuple[object, ...]) -> tuple[tuple[GpuProfile, FittedParameters], ...]:
    """Boards with an overlay whose surfaces came with the class values they correct."""
    from accelsim import catalog

    names = sorted({path.stem for folder in folders for path in (folder / "fitted").glob("*.yaml")})  # type: ignore[operator]
    found = []
    for name in names:
        overlay = fitted_parameters(name)
        if overlay is None or not overlay.pinned or overlay.device_class != "gpu":
            continue
        profile = catalog.device(overlay.device)
        if isinstance(profile, GpuProfile) and Dtype.BF16 in profile.matrix_flop_per_s:
            found.append((profile, overlay))
    return tuple(found)


def _is_near(one: GpuProfile, other: GpuProfile) -> bool:
    """Same architecture and class of memory: a workstation Blackwell has other matrix cores than the data centre's."""
    return one.architecture == other.architecture and _stacked(one) == _stacked(other)


def _stacked(board: GpuProfile) -> bool:
    return "hbm" in (board.memory.technology or "").lower()


def _distance(one: GpuProfile, other: GpuProfile) -> float:
    """How far apart two boards are, in natural logarithms of rates."""
    apart = sum(abs(log(a / b)) for a, b in zip(_rates(one), _rates(other), strict=True))
    if not _is_near(one, other):
        apart += _OTHER_ARCHITECTURE
    return apart + (_OTHER_MEMORY if _stacked(one) != _stacked(other) else 0.0)


def _rates(board: GpuProfile) -> tuple[float, float]:
    return (float(board.matrix_flop_per_s[Dtype.BF16].value), board.memory_bandwidth_bytes_per_s or 1.0)
