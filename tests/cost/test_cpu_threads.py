"""How several threads split measured CPU kernels, by the rules of the libraries that run them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from operator_cases import row

from accelsim.cost.cpu.kernel_terms import TERMS, Context, kernel_terms
from accelsim.cost.cpu.kernels import kernel_names
from accelsim.cost.cpu.threads import (
    THREAD_TERMS,
    OneThread,
    SharedWork,
    fixed_terms,
    shared_work,
    thread_terms,
)
from accelsim.dtype import Dtype
from accelsim.workloads.operator import OperatorKind as K
from accelsim.workloads.operator import Phase

HOT = Context(
    l1_bytes=48 * 1024,
    l2_bytes=1e6,
    l3_bytes=1e8,
    reuse_bytes=0.0,
    is_training=False,
    page_fault_bytes=1e9,
)


def work_of(graph) -> SharedWork:
    names = kernel_names(graph, is_training=False, threads=2)
    return shared_work(graph, names, kernel_terms(graph, HOT))


@pytest.mark.parametrize(
    ("graph", "share"),
    [
        (row(K.ELEMENTWISE, (32767, 1, 1)), 0.0),
        (row(K.ELEMENTWISE, (32768, 1, 1)), 1.0),
        (row(K.COPY, (32767,)), 0.0),
        (row(K.COPY, (32768,)), 1.0),
        (
            replace(row(K.COPY, (32768,)), name=("cat",), variant=None),
            np.nan,
        ),  # pieces of sizes that the row does not tell
        (row(K.REDUCTION, (8, 4095, 0)), 0.0),
        (row(K.REDUCTION, (8, 4096, 0)), 1.0),
        (row(K.RMS_NORM, (8, 4095)), 0.0),
        (row(K.EMBEDDING, (64, 512, 1000)), 1.0),
        (row(K.SOFTMAX, (1, 100_000)), 0.0),
        (row(K.SOFTMAX, (2, 10)), 1.0),
        (row(K.LAYER_NORM, (1, 100_000)), 0.0),
        (row(K.LAYER_NORM, (2, 10)), 1.0),
        (row(K.GEMM, (1, 4, 4096, 4096)), 0.0),
        (row(K.GEMM, (1, 5, 4096, 4096)), np.nan),
        (row(K.GEMM, (1, 4, 4096, 4096), dtype=Dtype.BF16), np.nan),  # another library
        (row(K.ATTENTION, (1, 1, 1, 64, 64, 32, 32, 0, 0, 0)), 0.0),
        (row(K.ATTENTION, (1, 2, 2, 64, 64, 32, 32, 0, 0, 0)), 1.0),
        (row(K.POOLING, (1, 8, 100, 25, 4)), np.nan),
    ],
)
def test_libraries_split_by_rules(graph, share):
    assert work_of(graph).share.tolist() == pytest.approx([share], nan_ok=True)


def test_what_every_thread_does_again():
    """Weights are packed by each, blocks of attention start in each, partial gradients share cache
    lines.
    """
    assert work_of(row(K.GEMM, (1, 64, 128, 256), weights=131072.0)).repeated.tolist() == [131072.0]
    assert work_of(row(K.EMBEDDING, (64, 512, 1000), weights=131072.0)).repeated.tolist() == [0.0]
    attention = row(K.ATTENTION, (2, 3, 3, 192, 192, 32, 32, 0, 0, 0))
    assert work_of(attention).repeated.tolist() == [2 * 3 * 3]  # 192 queries in blocks of 64
    aligned, shared = (
        row(K.LAYER_NORM, (100, columns), phase=Phase.BACKWARD) for columns in (48, 50)
    )
    assert [work_of(graph).repeated.tolist() for graph in (aligned, shared)] == [[0.0], [100.0]]


def test_layers_with_steps_fork_at_every_step_and_start_each_on_one_thread():
    terms = np.zeros((3, len(TERMS)))
    terms[:, TERMS.index("loop_count")] = [7.0, 7.0, 0.0]
    graph = row(K.COPY, (1,)).take(np.zeros(3, dtype=np.int64))
    names = np.array(["lstm", "copy", "gru"])
    assert shared_work(graph, names, terms).region_count.tolist() == [7, 1, 1]
    names_of = [
        [name for name, is_fixed in zip(TERMS, fixed_terms(kernel), strict=True) if is_fixed]
        for kernel in ("lstm_train", "copy")
    ]
    assert names_of == [["start", "loop_count", "evicted"], ["start", "evicted"]]


def test_regions_are_split_by_rule_or_by_their_time():
    terms = np.zeros((5, len(TERMS)))
    for name, value in (
        ("bytes_beyond_l3", 800.0),
        ("cold_weight_bytes", 200.0),
        ("fresh_bytes", 500.0),
        ("evicted", 0.5),
    ):
        terms[:, TERMS.index(name)] = value
    share = np.array([np.nan, np.nan, np.nan, 1.0, 0.0])
    work = SharedWork(np.array([1.0, 1.0, 4.0, 1.0, 1.0]), share, np.full(5, 64.0))
    one = OneThread(np.array([1e-5, 3e-5, 3e-5, 5e-6, 3e-5]), np.full(5, 2e-6), work)
    found = {
        name: column.tolist()
        for name, column in zip(THREAD_TERMS, thread_terms(terms, one, 1e-5).T, strict=True)
    }
    serial, parallel = found.pop("serial_s"), found.pop("parallel_s")
    assert found == {
        "start": [0, 1, 0, 1, 0],  # 10 us and four regions of 7.5 us each stay
        "bytes_beyond_l3": [0, 1000, 0, 1000, 0],  # weights from main memory too
        "fresh_bytes": [500] * 5,
        "evicted": [0, 0.5, 0, 0.5, 0],
        "repeated": [0, 64, 0, 64, 0],
    }
    assert serial == pytest.approx([1e-5, 2e-6, 3e-5, 2e-6, 3e-5])
    assert parallel == pytest.approx([0, 2.8e-5, 0, 3e-6, 0])


@pytest.mark.parametrize(
    ("lookups", "dtype", "share", "atomic"),
    [(4096, "fp32", 1.0, 65536.0), (1024, "fp32", 0.0, 0.0), (4096, "bf16", 0.0, 0.0)],
)
def test_several_threads_add_rows_atomically_in_single_precision_alone(
    lookups, dtype, share, atomic
):
    graph = replace(
        row(K.SCATTER, (lookups, 16, 100), read=4.0, write=4.0), name=("index_put",), variant=None
    )
    work = work_of(replace(graph, dtype=np.array([int(Dtype[dtype.upper()])], dtype=np.int8)))
    assert (work.share[0], work.repeated[0]) == (share, atomic)
