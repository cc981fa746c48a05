"""Convolution on a GPU: the fastest of implicit GEMM, Winograd and direct kernels, forward and
gradients.

Implicit GEMM (Chetlur et al., cuDNN, 2014): M = batch x output pixels, N = output channels, K =
input channels x window, one product per group. Winograd (Lavin and Gray, CVPR 2016) takes fewer
multiplies on stride-1 3x3 windows in vector arithmetic: F(2x2, 3x3), fused in one kernel, 2.25
times fewer; F(4x4, 3x3), with its transformed tiles written to and read from memory, 4 times fewer.
What they execute is what they are charged for and what their roofline counts. Direct kernels serve
depthwise and thinly grouped layers, where the tiles of an implicit GEMM would be almost empty.
Tiles and blocks on vector lanes are those of cuDNN 8.9's kernels in NeuSight's traces (Lee et al.,
ASPLOS 2025), by their names and the steps of their times.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from accelsim.cost.contraction import contraction, window_volume
from accelsim.cost.gpu.gemm import (
    MOST_QUANTISED,
    GemmShape,
    KernelWork,
    contraction_costs,
    gemm_compute_s,
)
from accelsim.cost.gpu.generation import tiles_of
from accelsim.cost.gpu.machine import GpuMachine, reached_flop_per_s
from accelsim.cost.table import RowCosts, Rows
from accelsim.dtype import DTYPE_BYTES, Dtype
from accelsim.frozen import frozen
from accelsim.workloads.graph import BoolArray, FloatArray, IntArray
from accelsim.workloads.operator import OperatorKind

_K = OperatorKind
#: 64 dp4a instructions of four multiply-adds (CUDA C++ Programming Guide, arithmetic throughput,
#: 7.x to 9.0).
_DOT_OPERATIONS_PER_SM_CLOCK = 512.0
#: Output tiles (rows, columns) of implicit GEMM whose operands need no gathering, and of weight
#: gradients.
_PRODUCT_TILES = tiles_of("128x128 128x64 64x128 64x64 128x32 32x128 32x32")
#: Output tiles (positions, channels) of implicit GEMM with gathered operands: names of cuDNN's
#: kernels on vector lanes ("scudnn_128x64_relu"); none splits the contraction.
_GATHERED_TILES = tiles_of("128x128 128x64 128x32")
#: Rows and columns that the edges of such a tile cost: 4.5 to 8.7 on the V100, T4, P100 and P4
#: (NeuSight's rows by kernel).
_EDGE_ROWS = 6.0
#: Steps of the contraction, output channels and outputs of a block of the fused Winograd kernel.
_STEP, _FUSED_CHANNELS, _FUSED_OUTPUTS = 8.0, 32.0, 128.0
#: Part of the zeros between the inputs that the data gradient of a strided 1x1 window multiplies on
#: vector lanes (DeepBench, seven boards).
_ZEROS_MULTIPLIED = 0.5
_BACKWARD_KINDS = frozenset({_K.CONV_BACKWARD_DATA, _K.CONV_BACKWARD_WEIGHT})


@frozen
class _Winograd:
    """F(output x output, 3x3): `products` multiplies per output tile and channel pair."""

    output: int
    kinds: frozenset[OperatorKind]
    fused: bool = False

    @property
    def products(self) -> float:
        return float((self.output + 2) ** 2)

    @property
    def saving(self) -> float:
        """Multiplies of the direct algorithm over its own.

        Winograd's minimal filtering (Lavin and Gray, CVPR 2016).
        """
        return 9.0 * self.output**2 / self.products


_GATHERING = frozenset({_K.CONV, _K.CONV_BACKWARD_DATA})
_FUSED = _Winograd(2, _GATHERING, fused=True)
_UNFUSED = _Winograd(4, _GATHERING | {_K.CONV_BACKWARD_WEIGHT})


@frozen(eq=False)
class _Layer:
    """Dimensions and arithmetic of convolution rows; every column has shape (r,)."""

    kind: OperatorKind
    batch: FloatArray
    channels_in: FloatArray
    channels_out: FloatArray
    groups: FloatArray
    window: FloatArray
    plain: BoolArray  # stride 1, no dilation
    width_bytes: FloatArray
    peak_flop_per_s: FloatArray  # of the units
    fed_flop_per_s: FloatArray  # at which they take operands
    efficiency: FloatArray  # best of their plain products
    matrix: BoolArray
    flop: FloatArray  # of the direct algorithm; gradients do as many as the forward pass
    m: FloatArray  # of one group's implicit GEMM
    n: FloatArray
    k: FloatArray

    @classmethod
    def of(cls, rows: Rows, machine: GpuMachine) -> _Layer:
        """Columns of rows.

        m n k keeps the FLOP, but for zeros that are multiplied in data gradients.

        Implicit GEMM (Chetlur et al., cuDNN, 2014).
        """
        codes, product = rows.column("dtype"), contraction(rows)
        matrix, window = machine.uses_matrix_cores[codes], window_volume(rows)
        m, n, k = product.m, product.n, product.k
        if rows.kind == _K.CONV_BACKWARD_DATA:
            positions, channels = m, k
            m = rows["batch"] * rows["in_d"] * rows["in_h"] * rows["in_w"]
            m, n = np.maximum(m, 1.0), rows["channels_in"] / product.groups
            zeros = np.where((window == 1) & ~matrix, np.maximum(m - positions, 0.0), 0.0)
            k = (positions * window + _ZEROS_MULTIPLIED * zeros) * channels / m
        return cls(
            kind=rows.kind,
            batch=rows["batch"],
            channels_in=rows["channels_in"],
            channels_out=rows["channels_out"],
            groups=product.groups,
            window=window,
            plain=(rows["stride"] == 1) & (rows["dilation"] == 1),
            width_bytes=DTYPE_BYTES[codes],
            peak_flop_per_s=machine.contraction_rate(rows),
            fed_flop_per_s=machine.fed_flop_per_s[codes],
            efficiency=machine.product_efficiency[codes],
            matrix=matrix,
            flop=product.flop,
            m=m,
            n=n,
            k=k,
        )

    def part(self, rows: IntArray) -> _Layer:
        """Some of the rows."""
        columns = {
            name: getattr(self, name)[rows] for name in self.__dataclass_fields__ if name != "kind"
        }
        return _Layer(kind=self.kind, **columns)

    @property
    def contracted(self) -> tuple[FloatArray, FloatArray]:
        """Channels that a product sums over, and those it yields."""
        if self.kind == _K.CONV_BACKWARD_DATA:
            return self.channels_out, self.channels_in
        return self.channels_in, self.channels_out


def convolution_costs(rows: Rows, machine: GpuMachine) -> RowCosts:
    """Convolution, its transpose and its two gradients: the algorithm that finishes first.

    Implicit GEMM: Chetlur et al., arXiv:1410.0759 (2014); Winograd: Lavin and Gray, CVPR 2016.
    Estimate: libraries take the fastest; rates are fitted to NeuSight's and DeepBench's rows.
    """
    layer = _Layer.of(rows, machine)
    compute_s = np.minimum(_implicit_s(layer, machine), _direct_s(rows, layer, machine))
    work = KernelWork(compute_s, layer.flop, rows.bytes)
    best = contraction_costs(rows, work, machine, machine.parameters.spread.convolution)
    use = np.flatnonzero(_is_winograd(rows, layer))
    for algorithm in (_FUSED, _UNFUSED):
        if rows.kind in algorithm.kinds and use.size:
            best = best.or_faster(_winograd_costs(rows, layer, algorithm, use, machine))
    return best


def _direct_s(rows: Rows, layer: _Layer, machine: GpuMachine) -> FloatArray:
    """Direct kernels on the vector lanes; 8-bit integers take dot products of four.

    Roofline (Williams et al., CACM 52(4), 2009), at a fitted share of the lanes' peak.
    """
    lanes = np.full(len(rows), machine.vector_flop_per_s)
    if machine.generation.is_reference:
        dots = machine.sm_count * machine.clock_hz * _DOT_OPERATIONS_PER_SM_CLOCK
        lanes[rows.column("dtype") == Dtype.INT8] = max(dots, machine.vector_flop_per_s)
    rate = (
        np.minimum(layer.peak_flop_per_s, lanes)
        * machine.parameters.convolution.direct_efficiency
        * _gradient_loss(layer, machine)
    )
    time_s: FloatArray = layer.flop / rate
    return time_s


def _gradient_loss(layer: _Layer, machine: GpuMachine) -> float:
    is_gradient = layer.kind in _BACKWARD_KINDS
    return machine.parameters.convolution.backward_efficiency if is_gradient else 1.0


def _implicit_s(layer: _Layer, machine: GpuMachine) -> FloatArray:
    """Implicit GEMM.

    Kernels that gather their operands for vector lanes have tiles of their own. Those of weight
    gradients and of matrix cores are as a GEMM's.
    """
    gathers = ~layer.matrix & (layer.kind in _GATHERING)
    compute_s = np.empty(len(gathers))
    for is_gathering in (True, False):
        rows = np.flatnonzero(gathers == is_gathering)
        if rows.size:
            formula = _gathered_s if is_gathering else _product_s
            compute_s[rows] = formula(layer.part(rows), machine)
    return compute_s


def _product_s(layer: _Layer, machine: GpuMachine) -> FloatArray:
    gathered = np.where(
        layer.matrix,
        machine.parameters.convolution.matrix_efficiency,
        machine.parameters.convolution.vector_efficiency,
    )
    efficiency = layer.efficiency * gathered * _gradient_loss(layer, machine)
    rate = reached_flop_per_s(layer.peak_flop_per_s, layer.fed_flop_per_s, efficiency)
    shape = GemmShape(
        layer.groups, layer.m, layer.n, layer.k, layer.width_bytes, rate, layer.matrix
    )
    return gemm_compute_s(shape, machine, tiles=_PRODUCT_TILES)


def _gathered_s(layer: _Layer, machine: GpuMachine) -> FloatArray:
    """Waves of tiles of positions x channels, one per SM; the edges of a tile cost as much as a few
    rows of it.

    Implicit GEMM (Chetlur et al., cuDNN, 2014).
    """
    best = np.full(len(layer.m), np.inf)
    for tall, wide in _GATHERED_TILES:
        across = layer.groups * np.ceil(layer.n / wide)
        waves = np.ceil(across * np.ceil(layer.m / tall) / machine.sm_count)
        in_part = np.maximum(across * layer.m / tall, across) / machine.sm_count
        in_part = np.maximum(in_part, np.ceil(across / machine.sm_count))
        work = tall * wide + _EDGE_ROWS * (tall + wide)
        np.minimum(best, np.minimum(waves, MOST_QUANTISED * in_part) * work, out=best)
    rate = layer.peak_flop_per_s * machine.parameters.convolution.vector_efficiency
    depth = _stepped(layer.k) + machine.parameters.gemm.prologue_k
    return 2.0 * machine.sm_count * best * depth / rate


def _stepped(depth: FloatArray) -> FloatArray:
    """Contraction in whole steps of the kernels on vector lanes."""
    return np.ceil(depth / _STEP) * _STEP


def _is_winograd(rows: Rows, layer: _Layer) -> BoolArray:
    """Layers that Winograd's kernels serve (Lavin and Gray, CVPR 2016)."""
    square = (rows["kernel_h"] == 3) & (rows["kernel_w"] == 3) & (rows["kernel_d"] == 1)
    applies: BoolArray = square & layer.plain & (layer.groups == 1) & ~layer.matrix
    return applies


def _winograd_costs(
    rows: Rows,
    layer: _Layer,
    algorithm: _Winograd,
    use: IntArray,
    machine: GpuMachine,
) -> RowCosts:
    """Costs of the rows `use` by one algorithm; the other rows take infinitely long.

    Transforms are kernels of their own, bound by memory: of the weights, and of an unfused
    algorithm's inputs and outputs.

    Winograd's minimal filtering (Lavin and Gray, CVPR 2016).
    """
    busy = (
        machine.parameters.convolution.winograd_efficiency
        if algorithm.fused
        else machine.parameters.convolution.transformed_efficiency
    )
    formula = _fused_s if algorithm.fused else _transformed_s
    compute_s = np.full(len(rows), np.inf)
    compute_s[use] = formula(rows, layer, machine)[use]
    pairs = layer.channels_in * layer.channels_out
    weight_bytes = (2.0 * algorithm.products + layer.window) * pairs * layer.width_bytes
    # The lanes that do not multiply transform: both draw power and count as executed.
    flop = layer.flop / algorithm.saving / busy
    if algorithm.fused:
        joined_bytes, apart_bytes = rows.bytes, weight_bytes
    else:
        channels = layer.channels_in + layer.channels_out
        tile_bytes = (
            2.0 * algorithm.products * _tiles(rows, layer, algorithm) * channels * layer.width_bytes
        )
        joined_bytes, apart_bytes = np.zeros(len(rows)), weight_bytes + tile_bytes + rows.bytes
    work = KernelWork(compute_s, flop, joined_bytes)
    costs = contraction_costs(rows, work, machine, machine.parameters.spread.convolution)
    apart_s = apart_bytes / machine.stream_bytes_per_s
    return replace(
        costs,
        time_s=costs.time_s + apart_s,
        memory_s=costs.memory_s + apart_s,
        bytes=joined_bytes + apart_bytes,
    )


def _tiles(rows: Rows, layer: _Layer, algorithm: _Winograd) -> FloatArray:
    """Tiles of outputs of Winograd's kernels (Lavin and Gray, CVPR 2016)."""
    side = float(algorithm.output)
    return layer.batch * np.ceil(rows["out_h"] / side) * np.ceil(rows["out_w"] / side)


def _transformed_s(rows: Rows, layer: _Layer, machine: GpuMachine) -> FloatArray:
    """One product of (tiles x C) by (C x K) per multiply of a tile; the weight gradient contracts
    over the tiles instead.
    """
    tiles, (c, k) = _tiles(rows, layer, _UNFUSED), layer.contracted
    m, n, depth = (k, c, tiles) if rows.kind == _K.CONV_BACKWARD_WEIGHT else (tiles, k, c)
    rate = (
        layer.peak_flop_per_s
        * machine.parameters.gemm.vector_efficiency
        * machine.parameters.convolution.transformed_efficiency
    )
    shape = GemmShape(
        np.full(len(rows), _UNFUSED.products), m, n, depth, layer.width_bytes, rate, layer.matrix
    )
    return gemm_compute_s(shape, machine, split=False, tiles=machine.generation.winograd_tiles)


def _fused_s(rows: Rows, layer: _Layer, machine: GpuMachine) -> FloatArray:
    """Waves of blocks of some channels x 128 outputs, one block per SM, each walking the input
    channels in steps.

    Winograd's minimal filtering (Lavin and Gray, CVPR 2016).
    """
    c, k = layer.contracted
    covers = [
        np.ceil(layer.batch / images)
        * np.ceil(rows["out_h"] / height)
        * np.ceil(rows["out_w"] / width)
        for images, height, width in machine.generation.winograd_covers
    ]
    blocks = np.ceil(k / _FUSED_CHANNELS) * np.minimum.reduce(covers)
    waves = np.ceil(blocks / machine.sm_count) * machine.sm_count
    flop = 2.0 * _FUSED.products / _FUSED.output**2 * _FUSED_OUTPUTS * _FUSED_CHANNELS
    rate = layer.peak_flop_per_s * machine.parameters.convolution.winograd_efficiency
    time_s: FloatArray = waves * (_stepped(c) + machine.parameters.gemm.prologue_k) * flop / rate
    return time_s
