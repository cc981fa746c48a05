"""Rows filled up: each takes what a search of its own over all larger sizes finds."""

from dataclasses import replace

import numpy as np
import pytest

from accelsim.cost.gpu.filled import FilledRows, least_filled_s
from accelsim.cost.table import Rows
from tests.cost.gpu_rows import K, conv, gemm, graph

SIZES = np.unique([2 * 2**octave * part // 8 for octave in range(10) for part in range(8, 17)])


def ragged_s(side, n, k):
    """A time that rises with a side and falls back now and then."""
    return side * n + k + 300.0 * n * np.sin(0.37 * side) ** 2


def searched_s(side, n, k, reach):
    """The least over the sizes to fill up to, one after the other."""
    below = int(np.searchsorted(SIZES, side, side="right")) - 1
    if below + 1 >= len(SIZES):
        return ragged_s(side, n, k)
    low = SIZES[max(below, 0)]
    upper = SIZES[max(below, 0) + 1]
    own = ragged_s(side, n, k)
    if side > low:
        step = max((upper - low) / 8, 1.0)
        parts = np.arange(np.ceil(side / step), np.ceil(upper / step)) * step
        own = min([np.inf, *(ragged_s(part, n, k) for part in parts if part < upper)])
    above = SIZES[max(below, 0) + 1 : max(below, 0) + 1 + reach]
    larger = min(ragged_s(size, n, k) for size in above)
    from_below = min(ragged_s(low, n, k), larger)
    return max(min(own, larger), from_below) if side >= low else min(own, from_below)


@pytest.mark.parametrize("kind", ["gemm", "conv"])
def test_families_share_what_each_row_would_search(kind):
    random = np.random.default_rng(3)
    sides = [*range(1, 40), *random.integers(40, 4000, 200).tolist()]
    widths = random.integers(1, 4, (len(sides), 2)).tolist()
    if kind == "gemm":
        rows = graph([gemm(m, n, k) for m, (n, k) in zip(sides, widths, strict=True)])
        names, reach = ("m", "n", "k"), len(SIZES)
        code = K.GEMM
    else:
        rows = graph([conv(m, n, k, 7) for m, (n, k) in zip(sides, widths, strict=True)])
        names, reach = ("batch", "channels_in", "channels_out"), 4
        code = K.CONV
    rows = replace(rows, read_bytes=np.array(sides) * 8.0)
    asked = 0

    def filled_s(filled: FilledRows):
        nonlocal asked
        asked += len(filled)
        return ragged_s(*(filled[name] for name in names))

    own = Rows(rows, np.arange(len(sides)), code)
    found = least_filled_s(own, ragged_s(*(own[name] for name in names)), filled_s)
    wanted = [searched_s(m, n, k, reach) for m, (n, k) in zip(sides, widths, strict=True)]
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    assert asked < 12 * len(sides)  # each row alone asks for 45 products on average


def test_equal_times_and_bytes_do_not_make_products_equal():
    rows = graph([gemm(100, 256, 1024), gemm(100, 1024, 256)])
    own = Rows(rows, np.arange(2), K.GEMM)
    found = least_filled_s(own, np.full(2, 1e4), lambda filled: filled["k"])
    assert found.tolist() == [256.0 if k == 256 else 1024.0 for k in (1024, 256)]
