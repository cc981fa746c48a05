"""Fresh memory of a pass: which buffers the C library's heap has to take from the system anew.

An eager framework allocates every output and frees it after its last reader. glibc serves blocks
from one heap: the best fit among freed ones, else the top. A block that nothing holds and that
exceeds the mmap threshold is mapped on its own, and its pages fault at each use. Freeing such a
block raises the threshold to its size; when the free top reaches twice the threshold it is given
back, and what grows there again faults (mallopt(3), M_MMAP_THRESHOLD and M_TRIM_THRESHOLD; glibc
malloc.c, sysmalloc and systrim).

Blocks are taken row by row: an output each, what convolutions copy into layouts of their own
(operand, filter and result, as large as these), and the temporaries of an optimizer's update. What
else kernels take, how blocks are aligned and what lies in the heap before was left out: with it
whole models were predicted no better. No two processes fault alike; `fitted_kernels` gives the time
of faults a spread for that.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

import numpy as np

from accelsim.dtype import DTYPE_BYTES
from accelsim.frozen import frozen
from accelsim.workloads.graph import FloatArray, OperatorGraph, is_kind
from accelsim.workloads.operator import CONV_KINDS, DIMENSIONS, OperatorKind, Phase
from accelsim.workloads.variant import Trait

#: Defaults of glibc (mallopt(3)): the largest mmap threshold on 64-bit systems, and what growing
#: takes and trimming leaves at the top.
_LARGEST_THRESHOLD = 32 * 2**20
_TOP_PAD = 128 * 1024
#: Blocks below this come from holes and hardly move the top.
_SMALL = 1024
#: A block's first byte and the one behind it.
Block = tuple[int, int]
_MAPPED = -1
_STATES = DIMENSIONS[OperatorKind.OPTIMIZER].index("states")


class Heap:
    """glibc's main heap; sizes and addresses in bytes.

    Args:
        threshold: mmap threshold at the start.

    Attributes:
        threshold: mmap threshold; the trim threshold is twice that.
        fresh: Bytes that were touched for the first time so far.
        extent: Highest address ever touched.
    """

    __slots__ = (
        "_end",
        "_fits",
        "_hole_ends",
        "_holes",
        "_opened_count",
        "_top",
        "_touched",
        "extent",
        "fresh",
        "threshold",
    )

    def __init__(self, threshold: int) -> None:
        self.threshold = threshold
        self.fresh = 0
        self.extent = 0
        self._top = 0
        self._touched = 0
        self._end = _TOP_PAD
        self._holes: dict[int, tuple[int, int, int]] = {}  # by start: their entries in `_fits`
        self._hole_ends: dict[int, int] = {}
        self._fits: list[tuple[int, int, int]] = []  # size, number and start, the best fit first
        self._opened_count = 0

    def allocate(self, size: int) -> Block:
        """A block's first byte and the one behind it; of one that is mapped on its own -1 and its
        size.
        """
        index = bisect_left(self._fits, (size,))
        if index < len(self._fits):
            length, _, start = self._fits.pop(index)
            del self._holes[start], self._hole_ends[start + length]
            end = start + size
            if length > size:
                self._open(end, start + length)
        elif size <= self.threshold or self._end - self._top >= size:
            start, end = self._top, self._top + size
            self._top = end
            if end > self._end:
                self._end = end + _TOP_PAD
        else:
            self.fresh += size
            return _MAPPED, size
        if end > self._touched:
            self.fresh += end - max(start, self._touched)
            self._touched = end
            self.extent = max(self.extent, end)
        return start, end

    def free(self, block: Block) -> None:
        """Give a block back."""
        start, end = block
        if start == _MAPPED:
            if self.threshold < end <= _LARGEST_THRESHOLD:
                self.threshold = end
            return
        if end in self._holes:
            end = self._close(end)
        if start in self._hole_ends:
            start = self._hole_ends[start]
            self._close(start)
        if end < self._top:
            self._open(start, end)
        else:
            self._top = start
        if self._end - self._top >= 2 * self.threshold:
            self._end = self._top + _TOP_PAD
            self._touched = min(self._touched, self._end)

    def state(self) -> tuple[object, ...]:
        """All that what follows depends on where no block of a pass is held; where it comes again,
        so does what followed.
        """
        holes = [(size, start) for size, _, start in self._fits]
        return self.threshold, self._top, self._touched, self._end, holes

    def _open(self, start: int, end: int) -> None:
        self._opened_count += 1
        hole = (end - start, self._opened_count, start)
        self._holes[start] = hole
        self._hole_ends[end] = start
        insort(self._fits, hole)

    def _close(self, start: int) -> int:
        """The end of a hole that is one no more."""
        hole = self._holes.pop(start)
        end = start + hole[0]
        del self._hole_ends[end]
        del self._fits[bisect_left(self._fits, hole)]
        return end


@frozen(eq=False)
class PassMemory:
    """What a pass of a running program takes from the heap.

    Attributes:
        fresh_bytes: Bytes of each row's output and temporaries that page-fault, shape (n,).
        taken_bytes: Bytes of each row's output and temporaries, shape (n,).
        extent_bytes: Bytes of the heap that passes touch.
    """

    fresh_bytes: FloatArray
    taken_bytes: FloatArray
    extent_bytes: float


@frozen(eq=False)
class _Blocks:
    """What each row takes, in bytes.

    Attributes:
        copies: Blocks that each row frees before it returns.
        outputs: Each row's output; 0 where it has none that counts.
        frees: Rows whose outputs are freed behind each.
        gradients: Of each parameter.
        update: The optimizer's row; -1 where there is none.
        state_count: States that it keeps of each parameter.
    """

    copies: Sequence[Sequence[int]]
    outputs: Sequence[int]
    frees: Sequence[Sequence[int]]
    gradients: Sequence[int]
    update: int
    state_count: int


def pass_memory(graph: OperatorGraph, threshold_bytes: float) -> PassMemory:
    """What each row takes from the heap, and what of it page-faults.

    Args:
        graph: A forward pass or a training step, n rows.
        threshold_bytes: mmap threshold of a process that has imported the framework.
    """
    outputs = _output_bytes(graph)
    blocks = _blocks(graph, outputs)
    heap = _heap_of_model(graph, Heap(int(threshold_bytes)))
    _run_pass(heap, blocks, is_first=True)
    before = heap.state()
    fresh = _run_pass(heap, blocks)
    if heap.state() != before:
        fresh = _run_pass(heap, blocks)
    taken_bytes = outputs + [float(sum(copied)) for copied in blocks.copies]
    return PassMemory(np.array(fresh, dtype=np.float64), taken_bytes, float(heap.extent))


def _output_bytes(graph: OperatorGraph) -> FloatArray:
    """Bytes that each row's output takes, shape (n,): none where it overwrites what it reads."""
    in_place = graph.has_trait(Trait.IN_PLACE) | (graph.kind == OperatorKind.OPTIMIZER)
    return np.where(in_place, 0.0, graph.write_bytes)


def _blocks(graph: OperatorGraph, outputs: FloatArray) -> _Blocks:
    count = len(graph)
    last_reader = graph.last_reader
    copies: list[Sequence[int]] = [()] * count
    for row in np.flatnonzero(is_kind(graph.kind, CONV_KINDS)).tolist():
        operands = (graph.read_bytes[row], graph.weight_bytes[row], graph.write_bytes[row])
        copies[row] = [int(size) for size in operands if size >= _SMALL]
    counts = outputs >= _SMALL
    sizes = np.where(counts, outputs, 0.0).astype(np.int64)
    frees: list[list[int]] = [[] for _ in range(count)]
    counted = np.flatnonzero(counts)[::-1]
    for row, reader in zip(counted.tolist(), last_reader[counted].tolist(), strict=True):
        frees[reader].append(row)
    updates = np.flatnonzero(graph.kind == OperatorKind.OPTIMIZER).tolist()
    update = updates[-1] if updates else -1
    # what backward rows write and nothing but the update reads is the gradient of a parameter
    backward = graph.phase == Phase.BACKWARD
    gradients = sizes[backward & counts & (last_reader >= min(updates, default=count))]
    states = int(graph.dims[update, _STATES]) if updates else 0
    return _Blocks(copies, sizes.tolist(), frees, gradients[::-1].tolist(), update, states)


def _heap_of_model(graph: OperatorGraph, heap: Heap) -> Heap:
    """The heap of a process that has made a model in 32 bits and converted it: each parameter that
    is converted frees its original, which raises the threshold or leaves room.
    """
    is_forward = graph.phase < Phase.BACKWARD
    rows = np.flatnonzero(is_forward & (graph.weight_bytes >= _SMALL))
    sizes = graph.weight_bytes[rows].astype(np.int64).tolist()
    widths = DTYPE_BYTES[graph.dtype[rows]].tolist()
    originals = [
        heap.allocate(int(size * 4.0 / width)) for size, width in zip(sizes, widths, strict=True)
    ]
    for original, size, width in zip(originals, sizes, widths, strict=True):
        if width != 4.0:
            heap.allocate(size)
            heap.free(original)
    return heap


def _run_pass(heap: Heap, blocks: _Blocks, *, is_first: bool = False) -> list[int]:
    """Fresh bytes of each row of one pass; the first update makes the optimizer's states for good,
    above what the step holds then.
    """
    live_blocks: dict[int, Block] = {}
    fresh = []
    rows = zip(blocks.copies, blocks.outputs, blocks.frees, strict=True)
    for row, (copies, output, frees) in enumerate(rows):
        before = heap.fresh
        if row == blocks.update:
            _update(heap, blocks, is_first=is_first)
        copy_blocks = [heap.allocate(size) for size in copies]
        if output:
            live_blocks[row] = heap.allocate(output)
        for block in reversed(copy_blocks):
            heap.free(block)
        fresh.append(heap.fresh - before)
        for freed_row in frees:
            heap.free(live_blocks.pop(freed_row))
    return fresh


def _update(heap: Heap, blocks: _Blocks, *, is_first: bool) -> None:
    """With a second moment each parameter's update takes its root, and the root corrected, which
    stays until the next parameter's is made.
    """
    if is_first:
        for size in blocks.gradients:
            for _ in range(blocks.state_count):
                heap.allocate(size)
    if blocks.state_count < 2:
        return
    corrected = None
    for size in blocks.gradients:
        root = heap.allocate(size)
        following = heap.allocate(size)
        heap.free(root)
        if corrected is not None:
            heap.free(corrected)
        corrected = following
    if corrected is not None:
        heap.free(corrected)
