"""Surfaces of measured relatives for a GPU without measurements of its own.

Boards run kin libraries: how measured times of their kernels depart from the model over shape carries over, while the model
itself scales with each board's data sheet. A board takes the surfaces of the measured boards nearest in architecture, memory
technology, matrix rate and bandwidth, averaged with weights that fall with the distance; the spread grows by what the
transfer costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import exp, hypot, log

import numpy as np

from accelsim.cost.fitted import FittedParameters, calibration_folders, fitted_parameters
from accelsim.cost.gpu.parameters import GpuParameters
from accelsim.cost.residual import IN_MODEL_LOG_SIGMA
from accelsim.cost.shape_surface import ShapeSurface
from accelsim.hardware.profile import GpuProfile
from accelsim.workloads.dtype import Dtype

__all__ = ["Relative", "measured_relatives", "with_relative_surfaces"]

#: Spread of ln(time) that a transfer adds, within an architecture and beyond it: 90th percentiles of the errors of nine
#: boards' GEMM, attention and expert kernels predicted with their relatives' surfaces, over 1.645.
_NEAR_SIGMA, _FAR_SIGMA = 0.08, 0.30
#: Distance of another architecture, and of another memory technology, in natural logarithms of rates.
_OTHER_ARCHITECTURE, _OTHER_MEMORY = 10.0, 1.0
#: Distance over which a weight falls to 1/e, and the least weight that counts: ten boards predicted from the others.
_DECAY, _LEAST_WEIGHT = 0.8, 0.05


@dataclass(frozen=True, slots=True)
class Relative:
    """A measured board and its share in a blend.

    Attributes:
        profile: The board.
        overlay: Its overlay.
        weight: Share, above 0; the shares of a board's relatives add up to 1.
    """

    profile: GpuProfile
    overlay: FittedParameters
    weight: float


def with_relative_surfaces(
    parameters: GpuParameters, device: GpuProfile, *, as_fitted: bool = True
) -> tuple[GpuParameters, str | None]:
    """Parameters with the surfaces of the nearest relatives, and their names; as they are where there are none.

    Args:
        parameters: Class-wide parameters.
        device: The board; its own overlay is never used.
        as_fitted: Whether the values the surfaces were fitted on top of replace those of `parameters`; not where these were
            fitted without the board's chip, and those may have seen it.
    """
    relatives = measured_relatives(device)
    if not relatives:
        return parameters, None
    nearest = relatives[0]
    added = _NEAR_SIGMA if _is_near(nearest.profile, device) else _FAR_SIGMA
    names = {name: None for relative in relatives for name in relative.overlay.surfaces}
    surfaces = {name: _blend(name, relatives, added) for name in names}
    known = {name: value for name, value in nearest.overlay.pinned.items() if as_fitted and hasattr(parameters, name)}
    whole = replace(parameters, **known, surfaces={**parameters.surfaces, **surfaces})  # type: ignore[arg-type]
    return whole, ", ".join(relative.profile.name for relative in relatives)


def _blend(name: str, relatives: Sequence[Relative], added: float) -> ShapeSurface:
    """Weighted mean of a surface over the boards that have it, on the grid of the nearest of them."""
    found = [(r.overlay.surfaces[name], r.weight) for r in relatives if name in r.overlay.surfaces]
    first = found[0][0]
    place = [column.ravel() for column in np.meshgrid(*first.knots, indexing="ij")]
    total = sum(weight for _, weight in found)
    values = sum(weight / total * surface(place) for surface, weight in found)
    sigma = sum(weight / total * surface.log_sigma for surface, weight in found)
    shared = hypot(added, IN_MODEL_LOG_SIGMA)
    return replace(
        first,
        values=np.reshape(values, first.values.shape),
        log_sigma=hypot(sigma, added),
        shared_log_sigma=shared,
    )


def measured_relatives(device: GpuProfile) -> list[Relative]:
    """The other boards with overlays fitted to kernel tables that count for a board, nearest first.

    Empty where there are none, where the device is another vendor's, or has no BF16 matrix cores: tables begin there.
    """
    if Dtype.BF16 not in device.matrix_flop_per_s:
        return []
    own = device.name.partition("@")[0]
    boards = _measured_boards(calibration_folders())
    others = [pair for pair in boards if pair[0].name != own and pair[0].vendor == device.vendor]
    if not others:
        return []
    distances = [_distance(device, profile) for profile, _ in others]
    shares = [exp((min(distances) - distance) / _DECAY) for distance in distances]
    total = sum(share for share in shares if share >= _LEAST_WEIGHT)
    kept = [
        Relative(*pair, share / total) for pair, share in zip(others, shares, strict=True) if share >= _LEAST_WEIGHT
    ]
    return sorted(kept, key=lambda relative: -relative.weight)


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
