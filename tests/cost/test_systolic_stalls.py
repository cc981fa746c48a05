"""Memory stalls: laws over 10,000 random layers, arrays, scratchpads and bandwidths per
dataflow.
"""

from __future__ import annotations

import numpy as np
import pytest

from accelsim.cost.systolic.cycles import pipelined_cycles, systolic_cycles
from accelsim.cost.systolic.stalls import ArrayProduct, stalled_run, tile_words
from accelsim.errors import InvalidValueError
from accelsim.hardware.profile import Dataflow

FLOWS = [Dataflow.OUTPUT_STATIONARY, Dataflow.WEIGHT_STATIONARY, Dataflow.INPUT_STATIONARY]
CASES = 10_000
ROUNDING = 1 + 1e-12


def random_cases(dataflow):
    """Layers from one element to 10,000 a side, arrays to 256 a side, scratchpads from one tile
    up.
    """
    random = np.random.default_rng(2024)
    sides = [np.ceil(10 ** random.uniform(0, 4, CASES)) for _ in range(3)]
    array = [2.0 ** random.integers(0, 9, CASES) for _ in range(2)]
    tiles = tile_words(*sides, *array, dataflow)
    pads = 2 * tiles * 10 ** random.uniform(0, 4, (3, CASES))
    rate = 10 ** random.uniform(-2, 3, CASES)
    return ArrayProduct(*sides, *array, dataflow), pads, rate, random


@pytest.mark.parametrize("dataflow", FLOWS)
def test_time_is_at_least_compute_and_all_words(dataflow):
    layer, pads, rate, _ = random_cases(dataflow)
    run = stalled_run(layer, pads, rate, partial_sum_words=4.0)
    assert np.all(run.cycles * ROUNDING >= run.words.sum(axis=0) / rate)
    assert np.array_equal(run.compute_cycles, systolic_cycles(*layer))


@pytest.mark.parametrize("dataflow", FLOWS)
def test_first_fill_and_last_drain_are_charged_on_top_of_compute(dataflow):
    layer, pads, rate, _ = random_cases(dataflow)
    run = stalled_run(layer, pads, rate)
    first = tile_words(*layer)[:2].sum(axis=0)
    assert np.all(run.cycles * ROUNDING > run.compute_cycles + first / rate)


@pytest.mark.parametrize("dataflow", FLOWS)
def test_more_bandwidth_never_slows(dataflow):
    layer, pads, rate, random = random_cases(dataflow)
    faster = rate * random.uniform(1, 10, CASES)
    assert np.all(
        stalled_run(layer, pads, faster).cycles <= stalled_run(layer, pads, rate).cycles * ROUNDING
    )


@pytest.mark.parametrize("dataflow", FLOWS)
@pytest.mark.parametrize("operand", [0, 1, 2])
def test_more_scratchpad_never_slows(dataflow, operand):
    layer, pads, rate, random = random_cases(dataflow)
    larger = pads.copy()
    larger[operand] *= random.uniform(1, 10, CASES)
    assert np.all(
        stalled_run(layer, larger, rate).cycles <= stalled_run(layer, pads, rate).cycles * ROUNDING
    )


@pytest.mark.parametrize("dataflow", FLOWS)
@pytest.mark.parametrize(
    ("pipelined", "form"), [(False, systolic_cycles), (True, pipelined_cycles)]
)
def test_converges_to_the_closed_form(dataflow, pipelined, form):
    layer, pads, rate, _ = random_cases(dataflow)
    free = stalled_run(layer, pads, pipelined=pipelined)
    assert np.array_equal(free.cycles, form(*layer))
    assert np.array_equal(free.cycles, free.compute_cycles)
    assert stalled_run(layer, pads, 1e12 * rate, pipelined=pipelined).cycles == pytest.approx(
        form(*layer), rel=1e-6
    )


@pytest.mark.parametrize("dataflow", FLOWS)
def test_every_operand_moves_at_least_once_and_once_where_it_fits(dataflow):
    layer, pads, rate, _ = random_cases(dataflow)
    m, n, k = layer[:3]
    run = stalled_run(layer, pads, rate)
    once = np.stack([m * k, n * k, m * n])
    assert np.all(run.words * ROUNDING >= once)
    free = stalled_run(layer, (1e18, 1e18, 1e18), rate)
    assert free.words == pytest.approx(once)


@pytest.mark.parametrize("kept", [0, 1])
def test_the_fold_order_that_moves_less_is_taken(kept):
    # 8 x 8 folds of 8 x 1000 strips: the operand whose strip fits its half is fetched once, the
    # other in every pass.
    pads = [32, 32, 32]
    pads[kept] = 16_000
    run = stalled_run(ArrayProduct(64, 64, 1000, 8, 8, FLOWS[0]), pads, 0.1)
    assert run.words[kept] == 64_000
    assert run.words[1 - kept] == pytest.approx(8 * 64_000, rel=1e-2)


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan])
def test_ports_and_scratchpads_must_be_above_zero(value):
    layer = ArrayProduct(8, 8, 8, 4, 4, FLOWS[0])
    with pytest.raises(InvalidValueError, match="bandwidth"):
        stalled_run(layer, (100, 100, 100), value)
    with pytest.raises(InvalidValueError, match="scratchpad"):
        stalled_run(layer, (100, value, 100))
