"""Surfaces of measured relatives for a GPU without measurements of its own.

Boards run kin libraries: how measured times of their kernels depart from the model over shape
carries over, while the model itself scales with each board's data sheet. A board takes the surfaces
of the measured boards nearest in architecture, memory technology, matrix rate and bandwidth,
averaged with weights that fall with the distance; a kernel that the nearest do not have comes from
the nearest that do. The spread grows by what the transfer costs. A surface is averaged when it is
first asked for.
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

#: Spread of ln(time) that a transfer adds, within an architecture and beyond it: 90th percentiles
#: of the errors of nine boards' GEMM, attention and expert kernels predicted with their relatives'
#: surfaces, over 1.645.
_NEAR_SIGMA, _FAR_SIGMA = 0.08, 0.30
#: Part of a GEMM's departure from the model that carries over beyond an architecture, whose tiles
#: differ: the quarter with the least mean error over three lone boards (A100, L40S, RTX PRO 6000);
#: two of them alone give the same for the A100 and the RTX PRO, and 1 for the L40S. Departures of
#: attention are much the same everywhere and carry over whole.
_FAR_CARRIED, _CARRIED_IN_PART = 0.75, frozenset({"gemm", "grouped_gemm"})
#: The same of GEMMs with block scales, whose kernels each architecture has of its own: best of
#: quarters on the L40S and on the RTX PRO 6000, each alone.
_FAR_CARRIED_SCALED = 0.5
#: Distance of another architecture, and of another memory technology, in natural logarithms of
#: rates.
_OTHER_ARCHITECTURE, _OTHER_MEMORY = 10.0, 1.0
#: Distance over which a weight falls to 1/e, and the least weight that counts: ten boards predicted
#: from the others.
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


def with_relative_surfaces(
    parameters: GpuParameters, board: Board, *, as_fitted: bool = True
) -> GpuParameters:
    """Parameters with the surfaces of the nearest relatives; as they are where there are none.

    Args:
        parameters: Class-wide parameters.
        board: The board; its own overlay is never used.
        as_fitted: Whether the values the surfaces were fitted on top of replace those of
            `parameters`; not where these were fitted without the board's chip, and those may have
            seen it.
    """
    relatives = measured_relatives(board)
    if not relatives:
        return parameters
    pinned = relatives[0].board.pinned
    known = {
        name: value for name, value in pinned.items() if as_fitted and hasattr(parameters, name)
    }
    names = tuple(relative.board.board.name for relative in relatives)
    return replace(parameters, **known, surfaces=_blended(board), relatives=names)  # type: ignore[arg-type]


class _BlendedSurfaces(Mapping[str, Surface]):
    """Surfaces of measured kin, each averaged when it is first asked for.

    Args:
        board: The board that takes them.
    """

    def __init__(self, board: Board) -> None:
        self._board, self._kin = board, _kin(board)
        self._names = tuple(dict.fromkeys(name for _, other in self._kin for name in other.names))
        self._known: dict[str, Surface] = {}

    def __getitem__(self, name: str) -> Surface:
        if name not in self._known:
            if name not in self._names:
                raise KeyError(name)
            found = _nearest([(apart, other) for apart, other in self._kin if name in other.names])
            self._known[name] = _blend(
                name, found, is_near=_is_near(found[0].board.board, self._board)
            )
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@lru_cache(maxsize=64)
def _blended(board: Board) -> _BlendedSurfaces:
    return _BlendedSurfaces(board)


def _blend(name: str, relatives: Sequence[Relative], *, is_near: bool) -> Surface:
    """Weighted mean of a surface over boards that have it, on the grids of the nearest, as far as
    it carries over.
    """
    added = _NEAR_SIGMA if is_near else _FAR_SIGMA
    carried = 1.0 if is_near else _far_carried(name)
    found = [(relative.board.surface(name), relative.weight) for relative in relatives]
    first = found[0][0]
    mean = sum(carried * weight * _resampled(surface, first) for surface, weight in found)
    sigma = hypot(sum(weight * surface.log_sigma for surface, weight in found), added)
    shared = hypot(added, IN_MODEL_LOG_SIGMA)
    return first.with_flat(np.asarray(mean)).with_evidence(sigma, first.rows, shared)


def _far_carried(name: str) -> float:
    """Part of a surface that carries over beyond an architecture."""
    if name.split(maxsplit=1)[0] not in _CARRIED_IN_PART:
        return 1.0
    is_scaled = name.startswith("gemm ") and name.endswith(" scaled")
    return _FAR_CARRIED_SCALED if is_scaled else _FAR_CARRIED


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

    Empty where there are none, where the device is another vendor's, or has no BF16 matrix cores:
    tables begin there.
    """
    return _nearest(_kin(board))


def _kin(board: Board) -> list[tuple[float, MeasuredBoard]]:
    """Distances and boards of the vendor's other measured boards, nearest first; none for boards
    without matrix cores.
    """
    others = [other for other in measured_boards() if other.board.name != board.name]
    kin = [
        other for other in others if other.board.vendor == board.vendor and board.matrix_flop_per_s
    ]
    return sorted(
        ((_distance(board, other.board), other) for other in kin), key=lambda pair: pair[0]
    )


def _nearest(kin: Sequence[tuple[float, MeasuredBoard]]) -> tuple[Relative, ...]:
    """Those of some boards that count, nearest first, with weights that add up to 1."""
    if not kin:
        return ()
    shares = [exp((kin[0][0] - apart) / _DECAY) for apart, _ in kin]
    total = sum(share for share in shares if share >= _LEAST_WEIGHT)
    return tuple(
        Relative(other, share / total)
        for (_, other), share in zip(kin, shares, strict=True)
        if share >= _LEAST_WEIGHT
    )


def _is_near(one: Board, other: Board) -> bool:
    """Same architecture and class of memory: a workstation Blackwell has other matrix cores than
    the data centre's.
    """
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
