"""GEMM on a GPU: tiles, waves, split contraction, operand traffic.

A library kernel cuts the output into tiles; each tile is one thread block that walks the whole
contraction. The grid runs in waves over the SMs, so the time is that of the SM with most tiles
(wave quantisation), edge tiles cost as much as full ones (tile quantisation), and a tile's operands
come through L2 and shared memory at a limited rate, which is what makes small tiles slow. The
library picks the tile, and splits the contraction over more blocks when there are fewer tiles than
SMs; the model takes the fastest of the same choices. Structure after NVIDIA's "Matrix
Multiplication Background" guide and CUTLASS's documentation; the parameters are fitted to measured
single operators.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from accelsim.cost.gpu.generation import Tiles, tiles_of
from accelsim.cost.gpu.machine import GpuMachine, cache_bytes_per_s, join_times
from accelsim.cost.table import RowCosts, Rows
from accelsim.dtype import DTYPE_BYTES, Dtype
from accelsim.frozen import frozen
from accelsim.workloads.graph import BoolArray, FloatArray, IntArray
from accelsim.workloads.operator import OperatorKind

#: Output tiles (rows, columns) of matrix-core kernels (CUTLASS's and cuBLAS's usual set), both
#: orientations.
_MATRIX_TILES = tiles_of("256x128 128x256 128x128 128x64 64x128 64x64")
#: Those of batched kernels: small products also run on 32x32 tiles of the wmma instructions, as
#: profiles of PyTorch show (cutlass_80_wmma_tensorop_f16_s161616gemm_f16_32x32_128x2).
_BATCHED_MATRIX_TILES = _MATRIX_TILES + tiles_of("32x32")
#: Those of kernels that widen weights of 4 bits: where rows are few, tiles have those of one
#: instruction (Marlin: Frantar et al., arXiv:2408.11743, 2024). Kernels for 8 bits gain less: 39
#: and 27 us for 8192 x 8192 weights on an H100 (inclusionAI/humming, pull request 2).
_WIDENING_TILES = _MATRIX_TILES + tiles_of("16x64 16x128 16x256 32x128 32x256")
#: Tile of the batched kernel with blocks of 64 threads, and how many of them fill an SM.
_NARROW_TILE = (64, 64)
_GROUP = 4.0
#: Bytes the last-level cache of an RTX 4090 gives each of 128 SMs per clock. Estimate: 1,622 to
#: 1,708 over all, as Luo et al. are said to measure ("Benchmarking and Dissecting the Nvidia Hopper
#: GPU Architecture", arXiv:2402.13499, 2024); the figure was not checked against the paper.
_ADA_CACHE_BYTES_PER_SM_CLOCK = 13.0
_PAGE_WALK_K = 16384.0
#: Lanes of the SMs whose share of L2 is that of their operands (fitted boards but for the P4).
_LANES_OF_A_SHARE = 64.0
_SPLITS = (2.0, 4.0, 8.0, 16.0, 32.0)
#: Rows worked on at once: the columns of a block stay in a core's cache.
_BLOCK = 4096
#: Time over that of tiles and waves in part, at most, but on NVIDIA's matrix cores: estimate.
#: Libraries choose among more kernels than are modelled, AMD's some that share the last wave
#: (stream-K: Osama et al., PPoPP 2023), and no measured network loses more to a larger batch.
MOST_QUANTISED = 1.25


@frozen(eq=False)
class GemmShape:
    """`batch` products of m x k by k x n; every column has shape (r,).

    Attributes:
        batch: Independent products, >= 0.
        m: Rows of the output.
        n: Columns of the output.
        k: Contraction.
        element_bytes: Bytes of one operand element.
        flop_per_s: Peak rate of the arithmetic, after every efficiency but the tile's.
        matrix: Whether matrix cores do it.
    """

    batch: FloatArray
    m: FloatArray
    n: FloatArray
    k: FloatArray
    element_bytes: FloatArray
    flop_per_s: FloatArray
    matrix: BoolArray

    def __len__(self) -> int:
        return len(self.m)

    def part(self, rows: slice | IntArray) -> GemmShape:
        """Some of the rows."""
        return GemmShape(**{name: getattr(self, name)[rows] for name in self.__dataclass_fields__})


@frozen(eq=False)
class KernelWork:
    """What a matrix kernel does; every column has shape (r,).

    Attributes:
        compute_s: Arithmetic at the boost clock.
        flop: FLOP executed.
        moved_bytes: Main-memory traffic.
        extra_latency_s: Latency beyond the kernel's own.
    """

    compute_s: FloatArray
    flop: FloatArray
    moved_bytes: FloatArray
    extra_latency_s: FloatArray | float = 0.0


@frozen(eq=False)
class _Grid:
    """Output tiles of one size.

    Attributes:
        count: Tiles, shape (r,).
        step_s: One step of k of one tile if it had the whole device, shape (r,).
        tile_elements: Outputs of a tile.
        shares: Whether the SMs share the last wave.
    """

    count: FloatArray
    step_s: FloatArray
    tile_elements: int
    shares: bool = False


def gemm_compute_s(
    shape: GemmShape,
    machine: GpuMachine,
    *,
    split: bool = True,
    tiles: Tiles | None = None,
    matrix_tiles: Tiles = _MATRIX_TILES,
) -> FloatArray:
    """Time of a GEMM's arithmetic and operand traffic, the fastest over tiles and splits.

    Tile and wave quantisation: NVIDIA, "Matrix Multiplication Background User's Guide"; split
    contraction: CUTLASS documentation, "Efficient GEMM in CUDA". Estimate: exposed operand loading
    and prologue, fitted to single operators.

    Args:
        shape: The products, r rows.
        machine: GPU.
        split: Whether the contraction may be split (batched kernels do not).
        tiles: Tiles the library offers on vector lanes; those of plain GEMMs where None.
        matrix_tiles: Tiles it offers on matrix cores.

    Returns:
        Seconds, shape (r,); at least 2 batch m n k / flop_per_s.
    """
    best = np.empty(len(shape))
    for start in range(0, len(shape), _BLOCK):
        block = slice(start, start + _BLOCK)
        block_shape = shape.part(block)
        for matrix in (True, False):
            rows = np.flatnonzero(block_shape.matrix == matrix)
            if rows.size:
                offered = matrix_tiles if matrix else tiles or machine.plain_tiles
                same = block_shape if rows.size == len(block_shape) else block_shape.part(rows)
                best[start + rows] = _fastest(same, machine, offered, matrix=matrix, split=split)
    return best


def _fastest(
    shape: GemmShape,
    machine: GpuMachine,
    tiles: Tiles,
    *,
    matrix: bool,
    split: bool,
) -> FloatArray:
    """Least time of the tiles and splits that a library has: Osama et al., Stream-K, PPoPP 2023."""
    best, in_part = np.full((2, len(shape)), np.inf)
    traffic = machine.matrix_operand_bytes_per_s if matrix else machine.vector_operand_bytes_per_s
    operand_s = shape.element_bytes / traffic
    flop_s = 2.0 / shape.flop_per_s
    edges = {
        edge: (np.ceil(shape.m / edge), np.ceil(shape.n / edge)) for tile in tiles for edge in tile
    }
    for tall, wide in tiles:
        count = shape.batch * edges[tall][0] * edges[wide][1]
        # Time of one step of k of one tile if it had the whole device; an SM alone takes sm_count
        # times that.
        arithmetic, operands = flop_s * (tall * wide), operand_s * (tall + wide)
        step = np.maximum(
            arithmetic + machine.parameters.gemm.operand_exposed_fraction * operands, operands
        )
        depth = shape.k + machine.parameters.gemm.prologue_k
        is_narrow = (tall, wide) == _NARROW_TILE and not (matrix or split)
        narrow = machine.parameters.gemm.lone_tile_loss * is_narrow
        np.minimum(best, _waves(count, machine, narrow) * step * depth, out=best)
        if not split:
            continue
        grid = _Grid(count, step, tall * wide)
        _try_splits(best, shape, grid, machine)
        shares = not machine.generation.is_reference
        if shares or not matrix:
            filled = shape.batch * np.maximum(shape.m / tall, 1.0) * edges[wide][1]
            shared = np.maximum(filled, _waves(shape.batch * edges[wide][1], machine))
            np.minimum(in_part, shared * step * depth, out=in_part)
            grid = replace(grid, count=filled, shares=shares)
            _try_splits(in_part, shape, grid, machine)
    np.minimum(best, MOST_QUANTISED * in_part, out=best)
    return best


def _waves(count: FloatArray, machine: GpuMachine, lone_loss: float = 0.0) -> FloatArray:
    """Work of the busiest SM in tiles, times the SM count.

    A block of 64 threads is two of the eight warps that fill an SM: the tiles of a part-filled last
    group of four take longer than their share, j^(1-a) 4^a for j of them.

    Wave quantisation: Osama et al., Stream-K, PPoPP 2023.

    Args:
        count: Tiles, shape (r,).
        machine: GPU.
        lone_loss: a, 0 (no loss) to 1 (a lone tile takes as long as four).
    """
    tiles_per_sm = np.ceil(count / machine.sm_count)
    if lone_loss:
        last = tiles_per_sm % _GROUP
        tiles_per_sm = (
            tiles_per_sm - last + last ** (1.0 - lone_loss) * _GROUP**lone_loss * (last > 0)
        )
    return tiles_per_sm * machine.sm_count


def _page_walks(shape: GemmShape, machine: GpuMachine) -> FloatArray | float:
    """Slow-down of long rows on boards whose kernels have small tiles alone: each row of a tile
    lies on a page of its own.

    1 + loss k^4 / (k^4 + k0^4), k0 = 16384 (64 KiB rows); shape (r,). Shape of the curve: P100 and
    P4 rows of NeuSight (Lee et al., ASPLOS 2025).
    """
    if not machine.has_page_walks:
        return 1.0
    length = (shape.k / _PAGE_WALK_K) ** 4
    return 1.0 + machine.parameters.gemm.page_walk_loss * length / (1.0 + length)


def _try_splits(
    best: FloatArray,
    shape: GemmShape,
    grid: _Grid,
    machine: GpuMachine,
) -> None:
    """Improve `best` where the tiles fill less than half of the SMs, by slicing k; slices are
    summed through L2. Where the last wave is shared, less than all of them is enough, and slices
    need not fill whole waves.

    Slices, and tiles that share the last wave: Osama et al., Stream-K, PPoPP 2023.
    """
    few = np.flatnonzero((1 if grid.shares else 2) * grid.count <= machine.sm_count)
    if not few.size:
        return
    k, step_s, count, fastest = shape.k[few], grid.step_s[few], grid.count[few], best[few]
    # One 32-bit tile goes out and comes in through L2, whose rate goes with the lanes, not the SMs.
    lanes = machine.profile.lanes_per_sm.value / _LANES_OF_A_SHARE
    partial_s = 2 * 4.0 * grid.tile_elements * machine.sm_count
    partial_s /= machine.vector_operand_bytes_per_s * lanes
    for slices in _SPLITS:
        depth = np.ceil(k / slices) + machine.parameters.gemm.prologue_k
        sliced = count * slices
        waves = np.maximum(sliced, machine.sm_count) if grid.shares else _waves(sliced, machine)
        total = waves * step_s * depth + partial_s * np.log2(2 * slices)
        np.minimum(fastest, total, out=fastest)
    best[few] = fastest


def gemm_traffic_bytes(
    shape: GemmShape, compulsory_bytes: FloatArray, machine: GpuMachine
) -> FloatArray:
    """Main-memory traffic of a GEMM, with re-reads where neither operand stays in L2.

    The tiles of one wave form a near square of side 128 sqrt(SMs); operands are read once per such
    square unless the smaller one fits in half of L2.

    Estimate: the rule of half the cache is not fitted; blocking of the re-reads as in Hong and
    Kung, "I/O complexity: the red-blue pebble game" (STOC 1981).

    Args:
        shape: The products, r rows.
        compulsory_bytes: Each operand and the result once, shape (r,).
        machine: GPU.

    Returns:
        Bytes, shape (r,), at least `compulsory_bytes`.
    """
    side = 128.0 * np.sqrt(machine.sm_count)
    a_bytes, b_bytes = (
        shape.m * shape.k * shape.element_bytes,
        shape.k * shape.n * shape.element_bytes,
    )
    repeats_a = np.maximum(shape.n / side - 1.0, 0.0)
    repeats_b = np.maximum(shape.m / side - 1.0, 0.0)
    spilled = np.minimum(a_bytes, b_bytes) > 0.5 * machine.l2_bytes
    reread_bytes = shape.batch * (a_bytes * repeats_a + b_bytes * repeats_b)
    return compulsory_bytes + np.where(spilled, reread_bytes, 0.0)


def contraction_costs(rows: Rows, work: KernelWork, machine: GpuMachine, sigma: float) -> RowCosts:
    """Join arithmetic and traffic, slow both to the clock the power limit allows, and add latency.

    Slowing both keeps the draw at the limit (energy over time) and the time monotone in bandwidth.

    Estimate: the p-norm and its exponent are fitted to single operators; dynamic power proportional
    to the work per time as in `accelsim.cost.power`.

    Args:
        rows: Rows of a matrix-arithmetic kind, r of them.
        work: What their kernels do.
        machine: GPU.
        sigma: Standard deviation of ln(time).
    """
    moved_bytes = work.moved_bytes
    memory_s = moved_bytes / machine.stream_bytes_per_s
    joined_s = join_times(work.compute_s, memory_s, machine.parameters.gemm.overlap_exponent)
    energy_j = machine.contraction_energy_j(rows, work.flop, moved_bytes)
    clock = machine.clock_fraction(energy_j, joined_s)
    time_s = joined_s / clock + machine.parameters.gemm.latency_s + work.extra_latency_s
    return RowCosts(time_s, work.compute_s / clock, memory_s, work.flop, moved_bytes, sigma)


def gemm_shape(rows: Rows, machine: GpuMachine, batch: str = "batch") -> GemmShape:
    """Rows of a GEMM kind as a shape, with the efficiency of their units.

    Estimate: efficiencies are fitted to single operators.

    Raises:
        UnsupportedOperatorError: If the board lacks a row's dtype.
    """
    codes = rows.column("dtype")
    matrix = machine.uses_matrix_cores[codes]
    rate = machine.product_rate(rows)
    return GemmShape(rows[batch], rows["m"], rows["n"], rows["k"], DTYPE_BYTES[codes], rate, matrix)


def gemm_costs(rows: Rows, machine: GpuMachine) -> RowCosts:
    """Plain and batched GEMM.

    Estimate: the rate of batched kernels over plain ones is fitted to NeuSight's rows; see
    `gemm_compute_s`.
    """
    shape = gemm_shape(rows, machine)
    flop = 2.0 * shape.batch * shape.m * shape.n * shape.k
    batched = rows.kind == OperatorKind.BATCHED_GEMM
    if batched:
        offered = {"tiles": machine.generation.batched_tiles, "matrix_tiles": _BATCHED_MATRIX_TILES}
        compute_s = gemm_compute_s(shape, machine, split=False, **offered)
        compute_s = np.maximum(
            compute_s / machine.parameters.gemm.batched_ratio, flop / machine.contraction_rate(rows)
        )
    else:
        compute_s = _plain_compute_s(rows, shape, machine) * _page_walks(shape, machine)
    moved = gemm_traffic_bytes(shape, rows.bytes, machine)
    quantised_s = 0.0 if batched else _quantisation_s(rows, shape, machine)
    work = KernelWork(compute_s, flop, moved, quantised_s)
    return contraction_costs(rows, work, machine, machine.parameters.spread.gemm)


def _plain_compute_s(rows: Rows, shape: GemmShape, machine: GpuMachine) -> FloatArray:
    """As `gemm_compute_s`; kernels that widen weights of 4 bits have tiles of fewer rows, those for
    weights with a scale per block never split k, and those in FP8 have tiles of their own.

    Estimate: FP4 kernels' times of few tiles and k >= 51,200 in aiconfigurator-core 0.12.0 lie a
    factor of 2 to 6 above a split one's, and at those of CUTLASS's that do not split.
    """
    compute_s = gemm_compute_s(shape, machine)
    if (widened := np.flatnonzero(_is_widened(rows, shape))).size:
        compute_s[widened] = gemm_compute_s(
            shape.part(widened), machine, matrix_tiles=_WIDENING_TILES
        )
    scaled, is_fp8 = _has_block_scales(rows, shape), rows.column("dtype") == Dtype.FP8
    if (eights := np.flatnonzero(scaled & is_fp8)).size:
        compute_s[eights] = _scaled_compute_s(shape.part(eights), machine)
    if (fours := np.flatnonzero(scaled & ~is_fp8)).size:
        compute_s[fours] = gemm_compute_s(shape.part(fours), machine, split=False)
    return compute_s


def _scaled_compute_s(shape: GemmShape, machine: GpuMachine) -> FloatArray:
    """Arithmetic of FP8 products with block scales; tiles of few rows wait for the cache, which
    serves every tile anew.

    Estimate: the cache's rate, see `_ADA_CACHE_BYTES_PER_SM_CLOCK`.
    """
    if not machine.scaled_tiles:
        return gemm_compute_s(shape, machine, split=False)
    arithmetic_s = gemm_compute_s(shape, machine, split=False, matrix_tiles=machine.scaled_tiles)
    operand_bytes = np.min([_tile_bytes(shape, *tile) for tile in machine.scaled_tiles], axis=0)
    waited: FloatArray = np.maximum(
        arithmetic_s,
        operand_bytes / (machine.sm_count * machine.clock_hz * _ADA_CACHE_BYTES_PER_SM_CLOCK),
    )
    return waited


def _tile_bytes(shape: GemmShape, tall: int, wide: int) -> FloatArray:
    """Operands that all output tiles of a size read, each for itself, shape (r,)."""
    tiles: FloatArray = np.ceil(shape.m / tall) * np.ceil(shape.n / wide)
    return tiles * (tall + wide) * shape.k * shape.element_bytes


def _is_widened(rows: Rows, shape: GemmShape) -> BoolArray:
    """Products in 16 bits whose weights are stored in about 4, scales included."""
    stored_bytes = rows.column("weight_bytes") / np.maximum(shape.n * shape.k, 1.0)
    widened: BoolArray = (stored_bytes > 0) & (stored_bytes < 1.0)
    widened &= shape.element_bytes == DTYPE_BYTES[Dtype.BF16]
    return widened


def _has_block_scales(rows: Rows, shape: GemmShape) -> BoolArray:
    """Products in FP8 or FP4 whose weights take more bytes than their format has: they come with a
    scale per block.
    """
    dtype = rows.column("dtype")
    is_narrow = (dtype == Dtype.FP8) | (dtype == Dtype.FP4)
    scaled: BoolArray = is_narrow & (
        rows.column("weight_bytes") > shape.element_bytes * shape.n * shape.k
    )
    return scaled


def _quantisation_s(rows: Rows, shape: GemmShape, machine: GpuMachine) -> FloatArray | float:
    """Time of the kernel before a product with block scales, which takes its BF16 input to the
    narrow format; shape (r,).

    Scales of activations are found per token and block at run time, so the kernel is part of every
    such layer, but where a stack's kernels of norms, activations or attention do it. Under such
    stacks, products in FP8 with a scale per tensor pay for those that do not, too. It reads what
    the operator before it wrote: from the cache, where that fits into half of it. Estimate: half of
    the cache is left to it, and products of either scaling mix as shares.
    """
    scaled, maker = _has_block_scales(rows, shape), machine.parameters.maker
    is_fp8 = rows.column("dtype") == Dtype.FP8
    charged = scaled if maker is None else scaled | is_fp8
    if not charged.any():
        return 0.0
    moved = shape.m * shape.k * (Dtype.BF16.bytes + shape.element_bytes)
    cache_rate = max(cache_bytes_per_s(machine), machine.stream_bytes_per_s)
    rate = np.where(moved <= 0.5 * machine.l2_bytes, cache_rate, machine.stream_bytes_per_s)
    alone_s = np.where(charged, machine.parameters.memory.kernel_latency_s + moved / rate, 0.0)
    if maker is not None:
        of_block = np.where(is_fp8, maker.fused("fp8-block"), maker.fused("fp4"))
        alone_s *= 1.0 - np.where(scaled, of_block, maker.fused("fp8"))
    return alone_s


def grouped_gemm_costs(rows: Rows, machine: GpuMachine) -> RowCosts:
    """One GEMM per expert in one launch: `m` rows shared evenly by `groups` products.

    Products of unequal experts in one launch: Gale et al., MegaBlocks, arXiv:2211.15841 (2022).
    Estimate: an even share of the rows; popularity is the workload's or the surface's.
    """
    all_rows = gemm_shape(rows, machine, batch="groups")
    shape = replace(all_rows, m=all_rows.m / np.maximum(all_rows.batch, 1.0))
    compute_s = gemm_compute_s(shape, machine, split=False)
    work = KernelWork(compute_s, 2.0 * all_rows.m * all_rows.n * all_rows.k, rows.bytes)
    return contraction_costs(rows, work, machine, machine.parameters.spread.gemm)
