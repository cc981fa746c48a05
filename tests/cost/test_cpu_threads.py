"""How several threads split measured CPU kernels, by the rules of the libraries that run them."""

from __future__ import annotations

import numpy as np
import pytest

from accelsim.cost.cpu.kernel_terms import TERMS
from accelsim.cost.cpu.threads import (
    THREAD_TERMS,
    OneThread,
    fixed_terms,
    region_counts,
    thread_terms,
)


def test_layers_with_steps_fork_at_every_step_and_start_each_on_one_thread():
    terms = np.zeros((3, len(TERMS)))
    terms[:, TERMS.index("loop_count")] = [7.0, 7.0, 0.0]
    names = np.array(["lstm", "copy", "gru"])
    assert region_counts(names, terms).tolist() == [7, 1, 1]
    names_of = [
        [name for name, is_fixed in zip(TERMS, fixed_terms(kernel), strict=True) if is_fixed]
        for kernel in ("lstm_train", "copy")
    ]
    assert names_of == [["start", "loop_count", "evicted"], ["start", "evicted"]]


def test_regions_are_split_by_their_time():
    terms = np.zeros((3, len(TERMS)))
    for name, value in (
        ("bytes_beyond_l3", 800.0),
        ("cold_weight_bytes", 200.0),
        ("fresh_bytes", 500.0),
        ("evicted", 0.5),
    ):
        terms[:, TERMS.index(name)] = value
    one = OneThread(np.array([1e-5, 3e-5, 3e-5]), np.full(3, 2e-6), np.array([1.0, 1.0, 4.0]))
    found = {
        name: column.tolist()
        for name, column in zip(THREAD_TERMS, thread_terms(terms, one, 1e-5).T, strict=True)
    }
    serial, parallel = found.pop("serial_s"), found.pop("parallel_s")
    assert found == {
        "start": [0, 1, 0],  # 10 us and four regions of 7.5 us each stay
        "bytes_beyond_l3": [0, 1000, 0],  # weights from main memory too
        "fresh_bytes": [500] * 3,
        "evicted": [0, 0.5, 0],
    }
    assert serial == pytest.approx([1e-5, 2e-6, 3e-5])
    assert parallel == pytest.approx([0, 2.8e-5, 0])
