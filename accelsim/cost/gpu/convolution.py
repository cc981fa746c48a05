"""Convolution on a GPU: the fastest of implicit GEMM, Winograd and direct kernels, forward and gradients.

Implicit GEMM (Chetlur et al., cuDNN, 2014): M = batch x output pixels, N = output channels, K = input channels x window, one
product per group; a 1x1 window at stride 1 is a plain GEMM. Winograd (Lavin and Gray, CVPR 2016) takes fewer multiplies on
stride-1 3x3 windows in vector arithmetic: F(2x2, 3x3), fused in one kernel, 2.25 times fewer; F(4x4, 3x3), with its
transformed tiles written to and read from memory, 4 times fewer. What they execute is what they are charged for and what
their roofline counts. Direct kernels serve depthwise and thinly grouped layers, where the tiles of an implicit GEMM would be
almost empty.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from accelsim.cost.gpu.gemm import GemmShape, contraction_costs, gemm_compute_s
from accelsim.cost.gpu.machine import GpuMachine
from accelsim.cost.gpu.parameters import GpuParameters
from accelsim.cost.table import RowCosts, Rows
from accelsim.workloads.dtype import DTYPE_BYTES, Dtype
from accelsim.workloads.graph import FloatArray
from accelsim.workloads.operator import OperatorKind

__all__ = ["convolution_costs"]

_K = OperatorKind
#: 64 dp4a instructions of four multiply-adds (CUDA C++ Programming Guide, arithmetic throughput, 7.x to 9.0).
_DOT_OPERATIONS_PER_SM_CLOCK = 512.0
_BACKWARD_KINDS = frozenset({_K.CONV_BACKWARD_DATA, _K.CONV_BACKWARD_WEIGHT})


@dataclass(frozen=True, slots=True)
class _Winograd:
    """F(output x output, 3x3): `products` multiplies per output tile and channel pair."""

    output: int
    fused: bool

    @property
    def products(self) -> float:
        return float((self.output + 2) ** 2)

    @property
    def saving(self) -> float:
        """Multiplies of the direct algorithm over its own."""
        return 9.0 * self.output**2 / self.products


_FUSED, _UNFUSED = _Winograd(2, fused=True), _Winograd(4, fused=False)
_WINOGRAD_KINDS = {
    _FUSED: frozenset({_K.CONV, _K.CONV_BACKWARD_DATA}),
    _UNFUSED: frozenset({_K.CONV, _K.CONV_BACKWARD_DATA, _K.CONV_BACKWARD_WEIGHT}),
}


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    """Dimensions and arithmetic of convolution rows; every column has shape (r,)."""

    kind: OperatorKind
    batch: FloatArray
    channels_in: FloatArray
    channels_out: FloatArray
    groups: FloatArray
    pixels_in: FloatArray
    pixels_out: FloatArray
    window: FloatArray
    plain: NDArray[np.bool_]  # stride 1, no dilation
    width_bytes: FloatArray
    peak_flop_per_s: FloatArray  # of the units, times the loss of gradient kernels
    matrix: NDArray[np.bool_]

    @classmethod
    def of(cls, rows: Rows, machine: GpuMachine, parameters: GpuParameters) -> _Layer:
        def volume(prefix: str) -> FloatArray:
            product: FloatArray = rows[f"{prefix}_d"] * rows[f"{prefix}_h"] * rows[f"{prefix}_w"]
            return product

        codes = rows.column("dtype")
        loss = parameters.backward_efficiency if rows.kind in _BACKWARD_KINDS else 1.0
        return cls(
            kind=rows.kind,
            batch=rows["batch"],
            channels_in=rows["channels_in"],
            channels_out=rows["channels_out"],
            groups=np.maximum(rows["groups"], 1.0),
            pixels_in=volume("in"),
            pixels_out=volume("out"),
            window=volume("kernel"),
            plain=(rows["stride"] == 1) & (rows["dilation"] == 1),
            width_bytes=DTYPE_BYTES[codes],
            peak_flop_per_s=machine.contraction_rate(rows) * loss,
            matrix=machine.uses_matrix_cores[codes],
        )

    @property
    def flop(self) -> FloatArray:
        """FLOP of the direct algorithm; gradients do as many as the forward pass."""
        pixels = self.pixels_in if self.kind == _K.CONV_TRANSPOSE else self.pixels_out
        pairs = self.channels_out * self.channels_in / self.groups
        total: FloatArray = 2.0 * self.batch * pixels * pairs * self.window
        return total

    @property
    def gemm(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(m, n, k) of one group's implicit GEMM; m n k keeps the FLOP of `flop` at any stride."""
        c, k = self.channels_in / self.groups, self.channels_out / self.groups
        if self.kind == _K.CONV_TRANSPOSE:
            return self.batch * self.pixels_in, k * self.window, c
        positions = self.batch * self.pixels_out
        if self.kind == _K.CONV_BACKWARD_WEIGHT:
            return k, c * self.window, positions
        if self.kind == _K.CONV_BACKWARD_DATA:
            pixels = np.maximum(self.batch * self.pixels_in, 1.0)
            return pixels, c, positions * k * self.window / pixels
        return positions, k, c * self.window


def convolution_costs(rows: Rows, machine: GpuMachine, parameters: GpuParameters) -> RowCosts:
    """Convolution, its transpose and its two gradients: the algorithm that finishes first."""
    layer = _Layer.of(rows, machine, parameters)
    compute_s = np.minimum(_implicit_s(layer, machine, parameters), _direct_s(rows, layer, machine, parameters))
    sigma = parameters.sigma_convolution
    best = contraction_costs(rows, compute_s, layer.flop, rows.bytes, machine, parameters, sigma=sigma)
    use = np.flatnonzero(_is_winograd(rows, layer))
    for algorithm, kinds in _WINOGRAD_KINDS.items():
        if rows.kind in kinds and use.size:
            best = _faster(best, _winograd_costs(rows, layer, algorithm, use, machine, parameters))
    return best


def _faster(one: RowCosts, other: RowCosts) -> RowCosts:
    take = other.time_s < one.time_s

    def pick(name: str) -> FloatArray:
        chosen: FloatArray = np.where(take, getattr(other, name), getattr(one, name))
        return chosen

    columns = {name: pick(name) for name in ("time_s", "compute_s", "memory_s", "flop", "bytes")}
    return RowCosts(**columns, log_sigma=one.log_sigma)


def _direct_s(rows: Rows, layer: _Layer, machine: GpuMachine, parameters: GpuParameters) -> FloatArray:
    """Direct kernels on the vector lanes; 8-bit integers take dot products of four."""
    lanes = np.full(len(rows), machine.vector_flop_per_s)
    if machine.profile.vendor == "NVIDIA":
        dots = machine.sm_count * machine.clock_hz * _DOT_OPERATIONS_PER_SM_CLOCK
        lanes[rows.column("dtype") == Dtype.INT8] = max(dots, machine.vector_flop_per_s)
    rate = np.minimum(layer.peak_flop_per_s, lanes) * parameters.direct_efficiency
    time_s: FloatArray = layer.flop / rate
    return time_s


def _implicit_s(layer: _Layer, machine: GpuMachine, parameters: GpuParameters) -> FloatArray:
    m, n, k = layer.gemm
    best = np.where(layer.matrix, machine.matrix_efficiency, parameters.vector_efficiency)
    gathered = np.where(layer.matrix, parameters.matrix_convolution_efficiency, parameters.convolution_efficiency)
    pointwise = layer.plain & (layer.window == 1)
    rate = layer.peak_flop_per_s * best * np.where(pointwise & ~layer.matrix, 1.0, gathered)
    shape = GemmShape(layer.groups, m, n, k, layer.width_bytes, rate, layer.matrix)
    return gemm_compute_s(shape, machine, parameters, tiles=machine.convolution_tiles)


def _is_winograd(rows: Rows, layer: _Layer) -> NDArray[np.bool_]:
    square = (rows["kernel_h"] == 3) & (rows["kernel_w"] == 3) & (rows["kernel_d"] == 1)
    applies: NDArray[np.bool_] = square & layer.plain & (layer.groups == 1) & ~layer.matrix
    return applies


def _winograd_costs(
    rows: Rows,
    layer: _Layer,
    algorithm: _Winograd,
    use: NDArray[np.int64],
    machine: GpuMachine,
    parameters: GpuParameters,
) -> RowCosts:
    """Costs of the rows `use` by one algorithm; the other rows take infinitely long.

    One GEMM of (tiles x C) by (C x K) per product position; the weight gradient contracts over the tiles instead. An unfused
    algorithm first writes and reads back its transformed tiles.
    """
    side = float(algorithm.output)
    tiles = layer.batch * np.ceil(rows["out_h"] / side) * np.ceil(rows["out_w"] / side)
    c, k = layer.channels_in, layer.channels_out
    m, n, depth = (k, c, tiles) if rows.kind == _K.CONV_BACKWARD_WEIGHT else (tiles, k, c)
    # In a fused kernel the lanes that do not multiply transform: both draw power and count as executed.
    busy = parameters.winograd_efficiency if algorithm.fused else 1.0
    rate = layer.peak_flop_per_s * parameters.vector_efficiency * busy
    shape = GemmShape(np.full(len(rows), algorithm.products), m, n, depth, layer.width_bytes, rate, layer.matrix)
    compute_s = np.full(len(rows), np.inf)
    compute_s[use] = gemm_compute_s(shape.part(use), machine, parameters, split=False, tiles=machine.convolution_tiles)
    elements = 0.0 if algorithm.fused else tiles * (c + k) + c * k
    workspace_bytes = 2.0 * algorithm.products * elements * layer.width_bytes
    compute_s = compute_s + workspace_bytes / machine.stream_bytes_per_s
    flop = layer.flop / algorithm.saving / busy
    sigma = parameters.sigma_convolution
    costs = contraction_costs(rows, compute_s, flop, rows.bytes, machine, parameters, sigma=sigma)
    return replace(costs, bytes=costs.bytes + workspace_bytes)
