"""Surfaces of measured relatives for a GPU without measurements of its own.

Boards run kin libraries: how measured times of their kernels depart from the model over shape carries over, while the model
itself scales with each board's data sheet. A board takes the surfaces of the measured boards nearest in architecture, memory
technology, matrix rate and bandwidth, averaged with weights that fall with the distance; the spread grows by what the
transfer costs. A surface is averaged when it is first asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import exp, hypot, log

import numpy as np

from accelsim.cost.gpu.measured_boards import Board, MeasuredBoard, measured_boards
from accelsim.cost.gpu.parameters import GpuParameters
from accelsim.cost.residual import IN_MODEL_LOG_SIGMA
from accelsim.cost.shape_surface import ShapeSurface, Surface
from accelsim.workloads.graph import FloatArray

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
        board: The board with its surfaces.
        weight: Share, above 0; the shares of a board's relatives add up to 1.
    """

    board: MeasuredBoard
    weight: float


def with_relative_surfaces(parameters: GpuParameters, board: Board, *, as_fitted: bool = True) -> GpuParameters:
    """Parameters with the surfaces of the nearest relatives; as they are where there are none.

    Args:
        parameters: Class-wide parameters.
        board: The board; its own overlay is never used.
        as_fitted: Whether the values the surfaces were fitted on top of replace those of `parameters`; not where these were
            fitted without the board's chip, and those may have seen it.
    """
    relatives = measured_relatives(board)
    if not relatives:
        return parameters
    pinned = relatives[0].board.pinned
    known = {name: value for name, value in pinned.items() if as_fitted and hasattr(parameters, name)}
    names = tuple(relative.board.board.name for relative in relatives)
    return replace(parameters, **known, surfaces=_blended(board), relatives=names)  # type: ignore[arg-type]


class _BlendedSurfaces(Mapping[str, Surface]):
    """Surfaces of relatives, each averaged when it is first asked for.

    Args:
        relatives: Nearest first.
        added: Spread that the transfer adds.
    """

    def __init__(self, relatives: Sequence[Relative], added: float) -> None:
        self._relatives, self._added = relatives, added
        self._names = tuple(dict.fromkeys(name for relative in relatives for name in relative.board.names))
        self._known: dict[str, Surface] = {}

    def __getitem__(self, name: str) -> Surface:
        if name not in self._known:
            if name not in self._names:
                raise KeyError(name)
            self._known[name] = _blend(name, self._relatives, self._added)
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@lru_cache(maxsize=64)
def _blended(board: Board) -> _BlendedSurfaces:
    relatives = measured_relatives(board)
    return _BlendedSurfaces(relatives, _NEAR_SIGMA if _is_near(relatives[0].board.board, board) else _FAR_SIGMA)


def _blend(name: str, relatives: Sequence[Relative], added: float) -> Surface:
    """Weighted mean of a surface over the boards that have it, on the grids of the nearest of them."""
    found = [(r.board.surface(name), r.weight) for r in relatives if name in r.board.names]
    first = found[0][0]
    total = sum(weight for _, weight in found)
    mean = sum(weight / total * _resampled(surface, first) for surface, weight in found)
    sigma = hypot(sum(weight / total * surface.log_sigma for surface, weight in found), added)
    shared = hypot(added, IN_MODEL_LOG_SIGMA)
    return first.with_flat(np.asarray(mean)).with_evidence(sigma, first.rows, shared)


def _resampled(surface: Surface, like: Surface) -> FloatArray:
    """Values of a surface at the knots of another of the same terms, in one column."""
    columns = []
    for (axes, values), (_, wanted) in zip(surface.terms(), like.terms(), strict=True):
        grid = ShapeSurface(tuple(surface.knots[axis] for axis in axes), values)
        place = np.meshgrid(*(like.knots[axis] for axis in axes), indexing="ij")
        columns.append(grid([column.ravel() for column in place]).reshape(wanted.size))
    return np.concatenate(columns)


def measured_relatives(board: Board) -> tuple[Relative, ...]:
    """The other boards with overlays fitted to kernel tables that count for a board, nearest first.

    Empty where there are none, where the device is another vendor's, or has no BF16 matrix cores: tables begin there.
    """
    others = [other for other in measured_boards() if other.board.name != board.name]
    kin = [other for other in others if other.board.vendor == board.vendor]
    if not kin or not board.matrix_flop_per_s:
        return ()
    distances = [_distance(board, other.board) for other in kin]
    shares = [exp((min(distances) - distance) / _DECAY) for distance in distances]
    total = sum(share for share in shares if share >= _LEAST_WEIGHT)
    kept = [Relative(other, share / total) for other, share in zip(kin, shares, strict=True) if share >= _LEAST_WEIGHT]
    return tuple(sorted(kept, key=lambda relative: -relative.weight))


def _is_near(one: Board, other: Board) -> bool:
    """Same architecture and class of memory: a workstation Blackwell has other matrix cores than the data centre's."""
    return one.architecture == other.architecture and one.is_stacked == other.is_stacked


def _distance(one: Board, other: Board) -> float:
    """How far apart two boards are, in natural logarithms of rates."""
    rates = (
        (one.matrix_flop_per_s, other.matrix_flop_per_s),
        (one.bandwidth_bytes_per_s, other.bandwidth_bytes_per_s),
    )
    apart = sum(abs(log(a / b)) for a, b in rates)
    if not _is_near(one, other):
        apart += _OTHER_ARCHITECTURE
    return apart + (_OTHER_MEMORY if one.is_stacked != other.is_stacked else 0.0)
