"""Surfaces of measured relatives for a GPU without measurements of its own.

A board's relatives are other measured boards of its vendor: they run the same libraries. How
measured times of their kernels depart from the model over shape carries over, while the model
itself scales with each board's data sheet. A board takes the surfaces of the relatives nearest in
architecture, memory technology, matrix rate and bandwidth, averaged with weights that fall with the
distance; a kernel that the nearest do not have comes from the nearest that do. The spread grows by
what the transfer costs. A surface is averaged when it is first asked for. Estimate: the form of
distance and weights is this project's own, its numbers are fitted to boards left out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import lru_cache
from math import exp, hypot, log, log2

import numpy as np

from accelsim.confidence.residual import IN_MODEL_LOG_SIGMA
from accelsim.cost.gpu.gpu_parameters import GpuParameters
from accelsim.cost.gpu.measured_boards import Board, MeasuredBoard, measured_boards
from accelsim.cost.shape_surface import LazySurfaces, Surface
from accelsim.frozen import frozen
from accelsim.workloads.graph import FloatArray

#: Spread of ln(time) that a transfer adds, within an architecture and beyond it: 90th percentiles
#: of the errors of nine boards' GEMM, attention and expert kernels predicted with their relatives'
#: surfaces, over 1.645.
_SAME_ARCHITECTURE_SIGMA, _OTHER_ARCHITECTURE_SIGMA = 0.08, 0.30
#: Part of a GEMM's departure from the model that carries over beyond an architecture, whose tiles
#: differ: the quarter with the least mean error over three lone boards (A100, L40S, RTX PRO 6000);
#: two of them alone give the same for the A100 and the RTX PRO, and 1 for the L40S. Departures of
#: attention are much the same everywhere and carry over whole.
_CARRIED_FRACTION, _CARRIED_IN_PART = 0.75, frozenset({"gemm", "grouped_gemm"})
#: The same of GEMMs with block scales, whose kernels each architecture has of its own: best of
#: quarters on the L40S and on the RTX PRO 6000, each alone.
_CARRIED_FRACTION_SCALED = 0.5
#: Kernels whose first axis is blocks of work that cores share (`accelsim.cost.gpu.surface.AXES`).
_SHARED_AMONG_CORES = frozenset({"decode"})
#: Distance of another architecture, and of another memory technology, in natural logarithms of
#: rates.
_OTHER_ARCHITECTURE, _OTHER_MEMORY = 10.0, 1.0
#: Distance over which a weight falls to 1/e, and the least weight that counts: ten boards predicted
#: from the others.
_DECAY, _LEAST_WEIGHT = 0.8, 0.05


@frozen
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

    Estimate: weights and carried parts are those that predict boards left out best.

    Args:
        parameters: Class-wide parameters.
        board: The board; its own overlay is never used.
        as_fitted: Whether the values the surfaces were fitted on top of replace those of
            `parameters`, but for power, which is the board's own matter; not where these were
            fitted without the board's chip, and those may have seen it.
    """
    relatives = measured_relatives(board)
    if not relatives:
        return parameters
    names = tuple(relative.board.board.name for relative in relatives)
    pinned = relatives[0].board.pinned if as_fitted else {}
    on_top = parameters.with_values(pinned)
    return replace(on_top, power=parameters.power, surfaces=_blended(board), relatives=names)


class _BlendedSurfaces(LazySurfaces):
    """Surfaces of a board's relatives, each averaged when it is first asked for.

    Args:
        board: The board that takes them.
    """

    def __init__(self, board: Board) -> None:
        super().__init__()
        self._board = board
        self._candidates = _candidates(board)
        self._names = dict.fromkeys(
            name for _, measured in self._candidates for name in measured.names
        )

    def names(self) -> Collection[str]:
        """Names of all relatives' surfaces."""
        return self._names

    def make(self, name: str) -> Surface:
        """The average of the nearest that have it."""
        having = [
            (apart, measured) for apart, measured in self._candidates if name in measured.names
        ]
        relatives = _nearest(having)
        return _blend(name, relatives, self._board)


@lru_cache(maxsize=64)
def _blended(board: Board) -> _BlendedSurfaces:
    return _BlendedSurfaces(board)


def _blend(name: str, relatives: Sequence[Relative], board: Board) -> Surface:
    """Weighted mean of a surface over boards that have it, on the grids of the nearest, as far as
    it carries over to a board.

    Estimate: the form is this project's own, its numbers are fitted to boards left out.
    """
    is_same = _is_same_architecture(relatives[0].board.board, board)
    added = _SAME_ARCHITECTURE_SIGMA if is_same else _OTHER_ARCHITECTURE_SIGMA
    carried = 1.0 if is_same else _carried_fraction(name)
    weighted = [(_per_core(name, relative.board, board), relative.weight) for relative in relatives]
    nearest = weighted[0][0]
    mean = sum(carried * weight * _resampled(surface, nearest) for surface, weight in weighted)
    sigma = hypot(sum(weight * surface.log_sigma for surface, weight in weighted), added)
    shared = hypot(added, IN_MODEL_LOG_SIGMA)
    return replace(nearest.with_flat(np.asarray(mean)), log_sigma=sigma, shared_log_sigma=shared)


def _per_core(name: str, measured: MeasuredBoard, board: Board) -> Surface:
    """A surface of another board, its axis of blocks that cores share scaled to the board's cores:
    as many per core are as many waves.
    """
    surface = measured.surfaces[name]
    if name.split(maxsplit=1)[0] not in _SHARED_AMONG_CORES:
        return surface
    shift = log2(board.sm_count / measured.board.sm_count)
    return replace(surface, knots=(surface.knots[0] + shift, *surface.knots[1:]))


def _carried_fraction(name: str) -> float:
    """Part of a surface that carries over beyond an architecture."""
    if name.split(maxsplit=1)[0] not in _CARRIED_IN_PART:
        return 1.0
    is_scaled = name.startswith("gemm ") and " scaled" in name
    return _CARRIED_FRACTION_SCALED if is_scaled else _CARRIED_FRACTION


def _resampled(surface: Surface, like: Surface) -> FloatArray:
    """Values of a surface at the knots of another of the same terms, in one column."""
    columns = []
    for (axes, values), (_, like_values) in zip(surface.grids, like.grids, strict=True):
        grid = Surface.of_values([surface.knots[axis] for axis in axes], values)
        points = np.meshgrid(*(like.knots[axis] for axis in axes), indexing="ij")
        columns.append(grid([column.ravel() for column in points]).reshape(like_values.size))
    return np.concatenate(columns)


def measured_relatives(board: Board) -> tuple[Relative, ...]:
    """The other boards with measured kernel tables that count for a board, nearest first.

    Empty where there are none, where the device is another vendor's, or has no BF16 matrix cores:
    tables begin there.
    """
    return _nearest(_candidates(board))


def _candidates(board: Board) -> list[tuple[float, MeasuredBoard]]:
    """Distances and boards of the vendor's other measured boards, nearest first; none for boards
    without matrix cores.
    """
    if not board.matrix_flop_per_s:
        return []
    candidates = [
        (_distance(board, measured.board), measured)
        for measured in measured_boards()
        if measured.board.name != board.name and measured.board.vendor == board.vendor
    ]
    return sorted(candidates, key=lambda pair: pair[0])


def _nearest(candidates: Sequence[tuple[float, MeasuredBoard]]) -> tuple[Relative, ...]:
    """Those of some boards that count, nearest first, with weights that add up to 1.

    Estimate: the form is this project's own, its numbers are fitted to boards left out.
    """
    if not candidates:
        return ()
    least = candidates[0][0]
    shares = [exp((least - apart) / _DECAY) for apart, _ in candidates]
    total = sum(share for share in shares if share >= _LEAST_WEIGHT)
    return tuple(
        Relative(measured, share / total)
        for (_, measured), share in zip(candidates, shares, strict=True)
        if share >= _LEAST_WEIGHT
    )


def _is_same_architecture(board: Board, other: Board) -> bool:
    """Same architecture and class of memory: a workstation Blackwell has other matrix cores than
    the data centre's.
    """
    return board.architecture == other.architecture and board.is_stacked == other.is_stacked


def _distance(board: Board, other: Board) -> float:
    """How far apart two boards are, in natural logarithms of rates.

    Estimate: the form is this project's own, its numbers are fitted to boards left out.
    """
    matrix = abs(log(board.matrix_flop_per_s / other.matrix_flop_per_s))
    bandwidth = abs(log(board.bandwidth_bytes_per_s / other.bandwidth_bytes_per_s))
    apart = matrix + bandwidth
    if not _is_same_architecture(board, other):
        apart += _OTHER_ARCHITECTURE
    return apart + (_OTHER_MEMORY if board.is_stacked != other.is_stacked else 0.0)
