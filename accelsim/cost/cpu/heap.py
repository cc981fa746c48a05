"""Fresh memory of a forward pass: the C library's heap followed allocation by allocation.

An eager framework allocates every output and temporary and frees it when its last holder returns.
glibc serves them from one heap: best fit among freed chunks, else the top, which grows in pages; a
block that no chunk holds and that reaches the mmap threshold is mapped on its own. Freeing a mapped
block raises the threshold to its size (at most 32 MiB); when the free top reaches twice the
threshold it is given back, and what grows there again page-faults (mallopt(3), M_MMAP_THRESHOLD and
M_TRIM_THRESHOLD; glibc malloc.c, sysmalloc and systrim).

Tensors are aligned to 64 bytes: glibc takes 96 bytes more than asked and frees the slivers before
and behind. Those before, which are freed first, end in its cache of small blocks, seven of a size,
until others take their places (malloc.c, _int_memalign, tcache_put): they keep the top from being
joined and given back, and leave a hole too short for the block it held. In inference they stay
until one of oneDNN's primitives runs, whose many small blocks go through all of that cache.

No two processes fault alike. Making a model uses up what holes the imports leave; kernels leave
small blocks behind when they first run, and these and the slivers decide what can be joined and
given back. Where they fit is drawn anew for each process, with Python's hash seed and the
addresses: the mean of several counts.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

import numpy as np
from numpy.typing import NDArray

from accelsim.cost.cpu.kernels import kernel_names
from accelsim.cost.cpu.lifetimes import rows_freed
from accelsim.cost.cpu.operator_memory import operator_scripts, parameter_bytes
from accelsim.cost.cpu.recurrent_memory import HELD, SAVED, Script
from accelsim.cost.cpu.standing_blocks import (
    CONV_CODES,
    NOTHING_LEFT,
    SMALL,
    TENSOR_BYTES,
    Left,
    blocks_left,
    input_blocks,
    weight_blocks,
)
from accelsim.workloads.graph import FloatArray, OperatorGraph
from accelsim.workloads.operator import OperatorKind, Phase

__all__ = ["Heap", "PassMemory", "pass_memory"]

_K = OperatorKind
_PAGE: Final = 4096
#: What sbrk takes beyond a request and trimming leaves (M_TOP_PAD's default).
_TOP_PAD: Final = 128 * 1024
#: Alignment of tensors, what glibc takes beyond a request to place it, and its smallest block.
_ALIGNMENT: Final = 64
_PLACING: Final = 96
_SMALLEST: Final = 32
_MOST_THRESHOLD: Final = 32 * 2**20
#: mmap threshold of a process that has imported the framework (read in twenty-six fresh processes,
#: all alike; glibc 2.36).
_IMPORTED_THRESHOLD: Final = 962_560
#: Slots of a row's script.
_SLOTS: Final = 12
#: Passes averaged after the first two: faults come in cycles of up to four.
_COUNTED_PASSES: Final = 4
#: Share of slivers before blocks that the cache of small blocks takes, by their bytes. In inference
#: measured: how often it has room when a tensor is made, ten models (0.6 to 0.9, 0.1 to 0.7, 0 to
#: 0.1); in training, where the backward graph's small blocks come and go, all, from counted faults.
_KEPT_IN_INFERENCE: Final = {32: 0.7, 48: 0.5, 80: 0.05}
_KEPT_IN_TRAINING: Final = {32: 1.0, 48: 1.0, 80: 1.0}
#: Blocks of a size that the cache holds (malloc.c, TCACHE_FILL_COUNT), and those that change places
#: in inference: it holds five or six when a tensor is made, and what went in last comes out first.
_CACHE_PLACES, _PLACES_IN_INFERENCE = 7, 3
#: Passes of inference that go before those that are counted: a program is timed once it has warmed
#: up.
_WARM_UP_PASSES: Final = 3
#: Processes drawn, how far (in logarithms) the blocks differ that products and recurrent layers
#: leave, and the free blocks that the imports leave below (the heap of fresh processes, walked
#: through block by block).
_PROCESSES, _KEPT_SPREAD = 12, 0.7
_LEFT_FREE: Final = (
    *(
        162_480,
        110_528,
        58_976,
        49_440,
        49_264,
        41_200,
        37_168,
        36_208,
        32_960,
        32_960,
        25_104,
        *(24_720,) * 4,
        18_432,
    ),
    *(
        16_656,
        *(16_480,) * 3,
        13_680,
        11_408,
        11_328,
        9_376,
        8_896,
        8_896,
        8_672,
        8_624,
        8_512,
        *(8_240,) * 12,
    ),
)


class Heap:
    """glibc's main heap, sizes in bytes.

    Args:
        threshold: Its mmap threshold; the trim threshold is twice that.
        free_sizes: Free blocks that lie in it from the start, each behind one in use.
        rng: Draws where the heap starts and which slivers stay in use; none do where None.

    Attributes:
        fresh: Bytes of pages that were touched for the first time so far.
        extent: Bytes from the heap's base to the highest address ever touched.
        kept_shares: Share of the slivers before blocks that the cache of small blocks takes, by
            their bytes.
        places: Blocks of a size that change places in it.
    """

    def __init__(
        self, threshold: int, free_sizes: Iterable[int] = (), rng: Random | None = None
    ) -> None:
        self.threshold = threshold
        self.fresh = self.extent = 0
        self.kept_shares: Mapping[int, float] = {}
        self.places = _CACHE_PLACES
        self._cache: dict[int, list[tuple[int, int] | None]] = {}
        self._rng = rng
        self._holes: dict[int, tuple[int, int]] = {}  # start: end and number
        self._ends: dict[int, int] = {}
        self._fits: list[tuple[int, int, int]] = []  # size, number and start, the best fit first
        self._opened = 0
        self._used: dict[int, int] = {}
        self._mapped = 0
        self._top = 16 * rng.randrange(4) if rng else 0
        for size in free_sizes:
            self._open(self._top, self._top + size)
            self._top += size + 112
        self._base = self._touched = self._top
        self._end = (self._top // _PAGE + 1) * _PAGE + _TOP_PAD

    def allocate(self, size: float, *, aligned: bool = True) -> int:
        """A block's handle; negative where it is mapped, 0 where it is too small to count.

        Args:
            size: Bytes.
            aligned: Whether it is a tensor, placed at a multiple of 64 bytes.
        """
        if size < SMALL:
            return 0
        length = (int(size) + 23) & ~15
        needed = length + _PLACING if aligned else length
        place = bisect_left(self._fits, (needed,))
        if place < len(self._fits):
            start = self._fits[place][2]
            end = self._take(start, needed)
        elif self._end - self._top >= needed + _SMALLEST or needed < self.threshold:
            if self._end - self._top < needed + _SMALLEST:
                self._end = -(-(self._top + needed + _TOP_PAD + _SMALLEST) // _PAGE) * _PAGE
            start, end = self._top, self._top + needed
            self._top = end
        else:
            return self._map(needed)
        if aligned:
            start, end = self._place(start, end, length)
        if end > self._touched:
            self.fresh += end - max(start, self._touched)
            self._touched = end
            self.extent = max(self.extent, end - self._base)
        self._used[start + 1] = end
        return start + 1

    def free(self, handle: int) -> None:
        """Give a block back."""
        if handle == 0:
            return
        end = self._used.pop(handle)
        if handle < 0:
            if self.threshold < end <= _MOST_THRESHOLD:
                self.threshold = end
            return
        self._give(handle - 1, end)
        if self._end - self._top >= 2 * self.threshold:
            self._end -= (self._end - self._top - _TOP_PAD - _SMALLEST - 1) // _PAGE * _PAGE
            self._touched = min(self._touched, self._end)

    def _map(self, needed: int) -> int:
        """A block mapped on its own, whole pages."""
        self._mapped -= 1
        pages = -(-(needed + 8) // _PAGE) * _PAGE
        self._used[self._mapped] = pages - _ALIGNMENT + 16
        self.fresh += pages
        return self._mapped

    def _take(self, start: int, needed: int) -> int:
        """The end of a block taken out of a hole; a rest too small for a block stays with it."""
        end = self._close(start)
        if end - start - needed < _SMALLEST:
            return end
        self._open(start + needed, end)
        return start + needed

    def _open(self, start: int, end: int) -> None:
        self._opened += 1
        self._holes[start], self._ends[end] = (end, self._opened), start
        insort(self._fits, (end - start, self._opened, start))

    def _close(self, start: int) -> int:
        """The end of a hole that is one no more."""
        end, number = self._holes.pop(start)
        del self._ends[end]
        del self._fits[bisect_left(self._fits, (end - start, number))]
        return end

    def _place(self, start: int, end: int, length: int) -> tuple[int, int]:
        """Start and end of the aligned block; the slivers around it are freed, or stay in use."""
        lead = -(start + 16) % _ALIGNMENT
        if 0 < lead < _SMALLEST:
            lead += _ALIGNMENT
        if lead:
            self._drop(start, start + lead)
            start += lead
        if end - start - length > _SMALLEST:
            self._give(start + length, end)
            end = start + length
        return start, end

    def _drop(self, start: int, end: int) -> None:
        """Free the sliver before a block, or keep it in the cache in another's place."""
        if self._rng is None or self._rng.random() >= self.kept_shares.get(end - start, 0.0):
            self._give(start, end)
            return
        places = self._cache.setdefault(end - start, [None] * self.places)
        place = self._rng.randrange(self.places)
        earlier, places[place] = places[place], (start, end)
        if earlier:
            self._give(*earlier)

    def flush(self) -> None:
        """Free all slivers in the cache: many small blocks have passed through it."""
        for places in self._cache.values():
            for sliver in filter(None, places):
                self._give(*sliver)
        self._cache.clear()

    def _give(self, start: int, end: int) -> None:
        """Join a free block with what is free around it."""
        if end in self._holes:
            end = self._close(end)
        if start in self._ends:
            start = self._ends[start]
            self._close(start)
        if end < self._top:
            self._open(start, end)
        else:
            self._top = start


@dataclass(frozen=True, slots=True, eq=False)
class PassMemory:
    """What a pass of a running program takes from the heap: means over fresh processes.

    Attributes:
        fresh_bytes: Bytes of each row's output and temporaries that page-fault, shape (n,).
        taken_bytes: Bytes of each row's output and temporaries, shape (n,): what it goes through
            the caches with.
        extent_bytes: Bytes of the heap that passes touch.
        fresh_spread: Standard deviation between processes of what a pass page-faults, over its
            mean.
    """

    fresh_bytes: FloatArray
    taken_bytes: FloatArray
    extent_bytes: float
    fresh_spread: float


def pass_memory(graph: OperatorGraph, names: NDArray[np.str_], threads: int = 1) -> PassMemory:
    """What each row takes from the heap, and what of it page-faults.

    Args:
        graph: A forward pass or a training step, n rows.
        names: Kernel of each row, shape (n,).
        threads: Threads of the framework.
    """
    plan, extent = _plan(graph, names, threads), 0.0
    fresh = np.zeros((_PROCESSES, len(graph)))
    weights, inputs = weight_blocks(graph), input_blocks(graph)
    for process in range(_PROCESSES):
        rng = Random(process)  # noqa: S311  (no cryptography; the same draws every time)
        heap = _heap_of_model(weights, rng, inputs, graph.discarded)
        _first_passes(heap, plan, rng)
        fresh[process] = _steady(heap, plan)
        extent += heap.extent
    taken = np.array([sum(size for _, size in script) for script in plan.scripts])
    each = fresh.sum(axis=1)
    spread = float(each.std() / max(each.mean(), 1.0))
    return PassMemory(fresh.mean(axis=0), taken, extent / _PROCESSES, spread)


def _steady(heap: Heap, plan: _Plan) -> FloatArray:
    """Mean fresh bytes of each row in the passes after the first; one that repeats the last stands
    for all that follow.
    """
    for _ in range(_WARM_UP_PASSES if heap.kept_shares is _KEPT_IN_INFERENCE else 0):
        _one_pass(heap, plan)
    before, counted = _one_pass(heap, plan), np.zeros(len(plan.scripts))
    for number in range(_COUNTED_PASSES):
        fresh = _one_pass(heap, plan)
        if (fresh == before).all():
            return (counted + (_COUNTED_PASSES - number) * fresh) / _COUNTED_PASSES
        before, counted = fresh, counted + fresh
    return counted / _COUNTED_PASSES


@dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    """What passes allocate.

    Attributes:
        scripts: Steps of each row.
        frees: Rows whose outputs are freed after each.
        kept: Blocks that each row's first run leaves behind.
        forward: What a forward pass alone takes, without gradients, before the first step; none in
            inference.
        states: Blocks that the first update makes before its own, by row.
        floods: Whether small blocks of a row's kernel, oneDNN's, go through all of the cache; none
            in training.
    """

    scripts: Sequence[Script]
    frees: Sequence[Sequence[int]]
    kept: Sequence[Left]
    forward: _Plan | None = None
    states: Mapping[int, Sequence[float]] = field(default_factory=dict)
    floods: Sequence[bool] = ()


def _plan(graph: OperatorGraph, names: NDArray[np.str_], threads: int) -> _Plan:
    scripts = operator_scripts(graph, names, threads)
    frees, kept = rows_freed(graph, len(graph)), blocks_left(graph, names, threads)
    backward = np.flatnonzero(graph.phase == int(Phase.BACKWARD))
    if not len(backward):
        library = np.isin(graph.kind, [*CONV_CODES, int(_K.LSTM)]) & ~np.char.endswith(
            names, "_native"
        )
        return _Plan(scripts, frees, kept, floods=library.tolist())
    first = graph.take(np.arange(backward[0]))
    alone = operator_scripts(
        first, kernel_names(first, is_training=False, threads=threads), threads
    )
    forward = _Plan(alone, rows_freed(graph, len(first)), kept[: len(first)])
    return _Plan(scripts, frees, kept, forward, _states(graph, scripts))


def _heap_of_model(
    weights: Sequence[tuple[float, float]],
    rng: Random,
    inputs: Sequence[tuple[float, float]] = (),
    discarded: Sequence[float] = (),
) -> Heap:
    """The heap of a process that has imported the framework, made a model and its inputs in 32 bits
    and converted both.

    What making them took and gave back raises the threshold. What is converted frees its original,
    which raises it too or leaves room below: weights one by one, inputs together.
    """
    heap = Heap(_IMPORTED_THRESHOLD, rng.sample(_LEFT_FREE, len(_LEFT_FREE)), rng)
    for size in discarded:
        heap.free(heap.allocate(size))
    originals, small = [], 0.0
    for original, _ in weights:
        originals.append(heap.allocate(original))
        small += TENSOR_BYTES + (original if original < SMALL else 0.0)
        while small >= SMALL:  # small blocks fill what holes there are
            heap.allocate(SMALL, aligned=False)
            small -= SMALL
    wide = [heap.allocate(original) for original, _ in inputs]
    for original, (before, after) in zip(originals, weights, strict=True):
        if after != before:
            heap.allocate(after)
            heap.free(original)
    converted = [
        original for original, (before, after) in zip(wide, inputs, strict=True) if after != before
    ]
    for before, after in inputs:
        if after != before:
            heap.allocate(after)
    for original in converted:
        heap.free(original)
    return heap


def _states(graph: OperatorGraph, scripts: Sequence[Script]) -> dict[int, list[float]]:
    """What the first update allocates for good, above the step's activations: the optimizer's
    state, by row.
    """
    optimizer = np.flatnonzero(graph.kind == int(_K.OPTIMIZER))
    if not len(optimizer):
        return {}
    states = float(graph.dimension("states", optimizer[-1:], _K.OPTIMIZER)[0])
    return {
        int(optimizer[-1]): [
            size for size in parameter_bytes(graph, scripts) for _ in range(int(states))
        ]
    }


def _first_passes(heap: Heap, plan: _Plan, rng: Random) -> None:
    """Kernels leave blocks and slivers behind when they first run, amid the rows' own; training
    starts with a forward.
    """
    if plan.forward is None:
        heap.kept_shares, heap.places = _KEPT_IN_INFERENCE, _PLACES_IN_INFERENCE
        _one_pass(heap, plan, rng)
        return
    heap.kept_shares = _KEPT_IN_TRAINING
    _one_pass(heap, plan.forward, rng)
    forward = len(plan.forward.scripts)
    heap.allocate(sum(size for _, size in plan.scripts[forward - 1]))  # the gradient of the result
    kept = [NOTHING_LEFT if row < forward else blocks for row, blocks in enumerate(plan.kept)]
    _one_pass(heap, replace(plan, kept=kept), rng)


def _one_pass(heap: Heap, plan: _Plan, first: Random | None = None) -> NDArray[np.int64]:
    """Fresh bytes of each row of one pass; in the `first` blocks stay behind."""
    outputs: list[list[int]] = [[] for _ in plan.scripts]
    held: list[int] = []
    fresh = np.zeros(len(plan.scripts), dtype=np.int64)
    for row, script in enumerate(plan.scripts):
        before = heap.fresh
        left = NOTHING_LEFT if first is None else plan.kept[row]
        for size in left.before:
            heap.allocate(size, aligned=False)
        amid = [] if first is None else first.sample(left.amid, len(left.amid))
        if first and len(amid) > 1:
            amid = [
                size * first.lognormvariate(-(_KEPT_SPREAD**2) / 2.0, _KEPT_SPREAD) for size in amid
            ]
        for size in plan.states.get(row, ()) if first is not None else ():
            heap.allocate(size)
        outputs[row] = _run(heap, script, held, left.after, amid, first)
        for size in amid:
            heap.allocate(size, aligned=False)
        fresh[row] = heap.fresh - before
        if plan.floods and plan.floods[row]:
            heap.flush()
        for done in plan.frees[row]:
            for block in outputs[done]:
                heap.free(block)
    for block in held:
        heap.free(block)
    return fresh


def _run(
    heap: Heap,
    script: Script,
    held: list[int],
    after: Mapping[int, Sequence[float]],
    amid: list[float],
    first: Random | None,
) -> list[int]:
    """The blocks of a row's output; in a first pass blocks that stay are taken `after` its own or
    `amid` them.
    """
    slots, saved = [0] * _SLOTS, []
    for slot, size in script:
        while amid and first is not None and first.random() < 0.5:
            heap.allocate(amid.pop(), aligned=False)
        if slot == HELD:
            held.append(heap.allocate(size))
        elif slot == SAVED:
            saved.append(heap.allocate(size))
        elif size:
            slots[slot] = heap.allocate(size)
            for small in after.get(slot, ()) if slots[slot] else ():
                heap.allocate(small, aligned=False)
        else:
            heap.free(slots[slot])
            slots[slot] = 0
    return [slots[0], *saved]
