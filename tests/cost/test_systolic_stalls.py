"""Memory stalls: laws over 10,000 random layers, arrays, scratchpads and bandwidths per
dataflow.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from accelsim.cost.systolic.cycles import pipelined_cycles, systolic_cycles
from accelsim.cost.systolic.stalls import MemoryPorts, Scratchpads, stalled_run, tile_words
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
    pads = Scratchpads(*(2 * tile * 10 ** random.uniform(0, 4, CASES) for tile in tiles))
    ports = MemoryPorts(*(10 ** random.uniform(-2, 3, CASES) for _ in range(4)))
    return (*sides, *array, dataflow), pads, ports, random


@pytest.mark.parametrize("dataflow", FLOWS)
def test_time_is_at_least_compute_and_every_ports_words(dataflow):
    layer, pads, ports, _ = random_cases(dataflow)
    run = stalled_run(*layer, pads, ports, partial_sum_words=4.0)
    words = (run.input_words, run.weight_words, run.output_words)
    rates = (
        ports.input_words_per_cycle,
        ports.weight_words_per_cycle,
        ports.output_words_per_cycle,
    )
    for moved, rate in zip(words, rates, strict=True):
        assert np.all(run.cycles * ROUNDING >= moved / rate)
    assert np.all(run.cycles * ROUNDING >= sum(words) / ports.shared_words_per_cycle)
    assert np.array_equal(run.compute_cycles, systolic_cycles(*layer))


@pytest.mark.parametrize("dataflow", FLOWS)
def test_first_fill_and_last_drain_are_charged_on_top_of_compute(dataflow):
    layer, pads, ports, _ = random_cases(dataflow)
    run = stalled_run(*layer, pads, ports)
    assert np.all(run.fill_cycles > 0)
    assert np.all(run.drain_cycles > 0)
    assert np.all(run.cycles * ROUNDING >= run.compute_cycles + run.fill_cycles + run.drain_cycles)


@pytest.mark.parametrize("dataflow", FLOWS)
@pytest.mark.parametrize("port", ["input", "weight", "output", "shared"])
def test_more_bandwidth_never_slows(dataflow, port):
    layer, pads, ports, random = random_cases(dataflow)
    name = f"{port}_words_per_cycle"
    faster = replace(ports, **{name: getattr(ports, name) * random.uniform(1, 10, CASES)})
    assert np.all(
        stalled_run(*layer, pads, faster).cycles
        <= stalled_run(*layer, pads, ports).cycles * ROUNDING
    )


@pytest.mark.parametrize("dataflow", FLOWS)
@pytest.mark.parametrize("operand", ["input", "weight", "output"])
def test_more_scratchpad_never_slows(dataflow, operand):
    layer, pads, ports, random = random_cases(dataflow)
    name = f"{operand}_words"
    larger = replace(pads, **{name: getattr(pads, name) * random.uniform(1, 10, CASES)})
    assert np.all(
        stalled_run(*layer, larger, ports).cycles
        <= stalled_run(*layer, pads, ports).cycles * ROUNDING
    )


@pytest.mark.parametrize("dataflow", FLOWS)
@pytest.mark.parametrize(
    ("pipelined", "form"), [(False, systolic_cycles), (True, pipelined_cycles)]
)
def test_converges_to_the_closed_form(dataflow, pipelined, form):
    layer, pads, ports, _ = random_cases(dataflow)
    free = stalled_run(*layer, pads, MemoryPorts(), pipelined=pipelined)
    assert np.array_equal(free.cycles, form(*layer))
    assert np.all(free.stall_cycles == 0)
    scaled = replace(
        ports, **{name: getattr(ports, name) * 1e12 for name in ports.__dataclass_fields__}
    )
    assert stalled_run(*layer, pads, scaled, pipelined=pipelined).cycles == pytest.approx(
        form(*layer), rel=1e-6
    )


@pytest.mark.parametrize("dataflow", FLOWS)
def test_every_operand_moves_at_least_once_and_once_where_it_fits(dataflow):
    layer, pads, ports, _ = random_cases(dataflow)
    m, n, k = layer[:3]
    run = stalled_run(*layer, pads, ports)
    once = (m * k, n * k, m * n)
    for moved, least in zip(
        (run.input_words, run.weight_words, run.output_words), once, strict=True
    ):
        assert np.all(moved * ROUNDING >= least)
    free = stalled_run(*layer, Scratchpads(1e18, 1e18, 1e18), ports)
    for moved, least in zip(
        (free.input_words, free.weight_words, free.output_words), once, strict=True
    ):
        assert moved == pytest.approx(least)


@pytest.mark.parametrize("kept", ["input", "weight"])
def test_the_fold_order_that_moves_less_is_taken(kept):
    # 8 x 8 folds of 8 x 1000 strips: the operand whose strip fits its half is fetched once, the
    # other in every pass.
    pads = Scratchpads(
        **{
            f"{name}_words": 16_000 if name == kept else 32
            for name in ("input", "weight", "output")
        }
    )
    run = stalled_run(64, 64, 1000, 8, 8, FLOWS[0], pads, MemoryPorts(shared_words_per_cycle=0.1))
    once, often = (
        (run.input_words, run.weight_words)
        if kept == "input"
        else (run.weight_words, run.input_words)
    )
    assert once == 64_000
    assert often == pytest.approx(8 * 64_000, rel=1e-2)


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan])
def test_ports_and_scratchpads_must_be_above_zero(value):
    layer, pads = (8, 8, 8, 4, 4, FLOWS[0]), Scratchpads(100, 100, 100)
    with pytest.raises(InvalidValueError, match="bandwidth"):
        stalled_run(*layer, pads, MemoryPorts(shared_words_per_cycle=value))
    with pytest.raises(InvalidValueError, match="scratchpad"):
        stalled_run(*layer, replace(pads, weight_words=value), MemoryPorts())
