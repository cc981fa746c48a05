"""A format whose rate a GPU has in hardware is no slower than a wider one: the law of
`benchmarks/format_laws.py`, on boards whose measured kernels keep it.
"""

from __future__ import annotations

import numpy as np
import pytest

from accelsim import catalog
from benchmarks.format_laws import FORMATS, MOST, is_of_weights, pairs, products, steps

BOARDS = ("a100-sxm-80gb", "l40s", "h100-sxm-80gb", "h200-sxm-141gb", "mi300x")


def test_the_law_is_asked_where_the_narrower_format_has_the_higher_rate():
    asked = {name: set(pairs(catalog.device(name), FORMATS)) for name in ("b200-sxm", "b300-sxm")}
    assert ("nvfp4", "fp8") in asked["b200-sxm"] & asked["b300-sxm"]
    assert ("w8a8", "bf16") in asked["b200-sxm"]
    assert ("w8a8", "bf16") not in asked["b300-sxm"]  # its INT8 rate is below that of BF16
    weights_alone = {pair for pair in asked["b200-sxm"] if is_of_weights(pair[0])}
    assert weights_alone == {("w8a16", "bf16"), ("w4a16", "bf16")}


@pytest.mark.law
@pytest.mark.parametrize("name", BOARDS)
def test_products_in_a_narrower_format_are_no_slower(name):
    for asked in products(catalog.device(name)):
        assert np.max(asked.ratio, initial=0.0) <= MOST, (asked.what, asked.sizes)


@pytest.mark.law
@pytest.mark.parametrize("name", [*BOARDS, "b200-sxm", "gb300"])
def test_decode_steps_in_a_narrower_format_are_no_slower(name):
    found = list(steps(catalog.device(name), ["llama-3.1-8b"]))
    assert found
    for asked in found:
        assert np.max(asked.ratio, initial=0.0) <= MOST, (asked.what, asked.sizes)
