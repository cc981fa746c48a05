"""The heap that decides which buffers are fresh memory, against glibc's rules by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from operator_cases import row

from accelsim.cost.cpu.heap import Heap, pass_memory
from accelsim.dtype import precision
from accelsim.workloads.builder import GraphBuilder
from accelsim.workloads.graph import concatenate
from accelsim.workloads.operator import OperatorKind as K
from accelsim.workloads.operator import Phase

KIB = 1024
MIB = 1024 * KIB
THRESHOLD = MIB


def test_a_block_above_the_threshold_is_mapped_once_and_raises_it():
    heap = Heap(THRESHOLD)
    first = heap.allocate(4 * MIB)
    assert (first[0] < 0, heap.fresh) == (True, 4 * MIB)
    heap.free(first)
    assert heap.threshold == 4 * MIB
    assert heap.allocate(4 * MIB)[0] >= 0


def test_the_threshold_is_never_raised_beyond_32_mib():
    heap = Heap(THRESHOLD)
    for _ in range(3):
        block = heap.allocate(64 * MIB)
        assert block[0] < 0
        heap.free(block)
    assert (heap.threshold, heap.fresh) == (THRESHOLD, 3 * 64 * MIB)


def test_what_was_freed_is_served_again_without_faults():
    heap = Heap(THRESHOLD)
    block, above = heap.allocate(512 * KIB), heap.allocate(512 * KIB)
    heap.free(block)
    fresh = heap.fresh
    assert heap.allocate(256 * KIB)[0] == block[0]
    assert heap.fresh == fresh
    heap.free(above)


def test_a_free_top_of_twice_the_threshold_is_given_back():
    heap = Heap(THRESHOLD)
    blocks = [heap.allocate(MIB) for _ in range(3)]
    for block in reversed(blocks):
        heap.free(block)
    before = heap.fresh
    heap.allocate(MIB)
    heap.allocate(MIB)
    assert heap.fresh - before == 2 * MIB - (MIB + 128 * KIB)


def test_a_block_above_keeps_the_top_from_being_given_back():
    heap = Heap(THRESHOLD)
    blocks = [heap.allocate(MIB) for _ in range(3)]
    heap.allocate(KIB)
    for block in reversed(blocks):
        heap.free(block)
    before = heap.fresh
    heap.allocate(3 * MIB)
    assert heap.fresh == before


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1024, 3 * MIB), st.booleans()), max_size=60))
def test_blocks_in_use_never_overlap(steps):
    heap = Heap(THRESHOLD)
    used: list[tuple[int, int]] = []
    for size, frees in steps:
        first, behind = heap.allocate(size)
        if first >= 0:
            assert behind - first >= size
            assert all(behind <= start or end <= first for start, end in used)
            used.append((first, behind))
        if frees and used:
            heap.free(used.pop(0))


def chain(*sizes: float, **changes):
    return concatenate([row(K.COPY, (1,), read=size, write=size, **changes) for size in sizes])


def test_small_passes_do_not_fault_once_they_are_warm():
    assert pass_memory(chain(*[64.0 * KIB] * 20), THRESHOLD).fresh_bytes.sum() == 0


def test_blocks_beyond_the_largest_threshold_fault_in_every_pass():
    memory = pass_memory(chain(1024.0, 40.0 * MIB, 1024.0), THRESHOLD)
    assert memory.fresh_bytes.tolist() == [0, 40 * MIB, 0]


def test_what_is_overwritten_in_place_takes_no_memory():
    graph = replace(chain(40.0 * MIB), name=("relu_.in_place",), variant=None)
    assert pass_memory(graph, THRESHOLD).taken_bytes.sum() == 0


def test_convolutions_copy_operand_filter_and_result():
    b = GraphBuilder(precision("fp32"))
    b.conv(b.input(1, 16, 64, 64), 16, 3)
    graph = b.build()
    expected = graph.read_bytes + graph.weight_bytes + 2 * graph.write_bytes
    assert pass_memory(graph, THRESHOLD).taken_bytes.tolist() == pytest.approx(expected.tolist())


def test_an_update_makes_its_states_once_above_the_step():
    """States lie above the first step's buffers, which are then no longer given back."""
    forward = chain(*[2.0 * MIB] * 4)
    backward = chain(*[2.0 * MIB] * 4, phase=Phase.BACKWARD)
    steps = concatenate([forward, backward])
    update = row(K.OPTIMIZER, (MIB // 2, 2, 1, 0), phase=Phase.OPTIMIZER)
    whole = concatenate([steps, update])
    assert pass_memory(whole, THRESHOLD).extent_bytes > pass_memory(steps, THRESHOLD).extent_bytes


@given(st.floats(1e3, 1e8), st.integers(1, 12))
@settings(max_examples=30, deadline=None)
def test_no_row_faults_more_than_it_takes(size, count):
    memory = pass_memory(chain(*[size] * count), THRESHOLD)
    assert (memory.fresh_bytes <= memory.taken_bytes + 1).all()
    assert np.isfinite(memory.extent_bytes)
