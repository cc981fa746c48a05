"""Streaming designs against the published cost model, written out once more, and against every
folding tried.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim import catalog
from accelsim.cost.fpga.dataflow import (
    StreamingNode,
    bram18_estimate,
    design_of_folding,
    dsp_estimate,
    fold_network,
    lut_estimate,
    node_cycles,
    pipeline_latency_s,
    weight_lut_estimate,
)
from accelsim.cost.fpga.fpga_parameters import fpga_parameters
from accelsim.cost.fpga.overlay import overlay_cycles, overlay_machine
from accelsim.dtype import Dtype
from accelsim.errors import DoesNotFitError
from accelsim.hardware.sourced import Sourced

ZCU102 = catalog.device("zcu102")
VALUES = replace(fpga_parameters(), lut_base=300.0, lut_ratio=1.1)  # c0 and c1 of FINN-R


def board(lut=1e5, bram_36k=100, dsp=1000, clock_hz=100e6):
    """A device with these resources, all usable, and no UltraRAM."""
    counts = {
        "lut_count": lut,
        "bram_36k_count": bram_36k,
        "dsp_count": dsp,
        "fabric_clock_hz": clock_hz,
    }
    parts = {name: Sourced(value=value, source="test") for name, value in counts.items()}
    return ZCU102.model_copy(update=parts | {"uram_count": None, "usable_fraction": None})


def finn_bram18(mw, mh, pe, simd, weight_bits):
    """FINN's bram_estimation of a matrix-vector unit: depth omega, the shapes of a RAMB18 (UG573,
    table 1-10).
    """
    omega, width = mw * mh / (pe * simd), pe * simd * weight_bits
    if omega <= 128:
        return 0
    if width == 1:
        return math.ceil(omega / 16384)
    if width == 2:
        return math.ceil(omega / 8192)
    if width <= 4:
        return math.ceil(omega / 4096) * math.ceil(width / 4)
    if width <= 9:
        return math.ceil(omega / 2048) * math.ceil(width / 9)
    if width <= 18 or omega > 512:
        return math.ceil(omega / 1024) * math.ceil(width / 18)
    return math.ceil(omega / 512) * math.ceil(width / 36)


powers = st.integers(0, 9).map(lambda power: 2**power)


@settings(max_examples=200, deadline=None)
@given(
    rows=powers,
    columns=powers,
    more_rows=powers,
    more_columns=st.integers(1, 300),
    bits=st.integers(1, 16),
)
def test_block_rams_are_those_of_finns_estimate(rows, columns, more_rows, more_columns, bits):
    mh, mw = rows * more_rows, columns * more_columns
    assert bram18_estimate(mw, mh, rows, columns, bits) == finn_bram18(mw, mh, rows, columns, bits)


@pytest.mark.parametrize(
    ("depth", "width", "blocks"),
    [
        (128, 1, 0),
        (129, 1, 1),
        (16384, 1, 1),
        (16385, 1, 2),
        (8192, 2, 1),
        (8193, 2, 2),
        (4096, 3, 1),
        (4097, 4, 2),
        (2048, 5, 1),
        (2048, 9, 1),
        (2049, 9, 2),
        (1024, 10, 1),
        (1024, 18, 1),
        (1025, 18, 2),
        (512, 19, 1),
        (512, 36, 1),
        (512, 37, 2),
        (513, 36, 2),
        (513, 37, 3),
    ],
)
def test_block_rams_at_the_edges_of_their_shapes(depth, width, blocks):
    assert bram18_estimate(depth, 1, 1, 1, width) == blocks
    luts = weight_lut_estimate(depth, 1, 1, 1, width)
    assert luts == (0 if blocks else width * math.ceil(depth / 64))  # never in both


@pytest.mark.parametrize(
    ("weight_bits", "activation_bits", "in_dsps"),
    [
        (1, 1, False),
        (4, 4, False),
        (1, 4, False),
        (4, 5, True),
        (5, 4, True),
        (1, 8, True),
        (8, 8, True),
        (16, 16, True),
    ],
)
def test_operands_of_more_than_four_bits_are_multiplied_in_dsp_blocks(
    weight_bits, activation_bits, in_dsps
):
    pe, simd, mw = 3, 8, 200
    bits = 1 if weight_bits == activation_bits == 1 else weight_bits + activation_bits
    assert dsp_estimate(pe, simd, weight_bits, activation_bits) == (24 if in_dsps else 0)
    multipliers = 0 if in_dsps else 8 * (2 * math.ceil(bits / 6) - 1) * bits
    expected = 300 + 1.1 * pe * (
        multipliers + bits * (2 * simd - 1) + bits + 8
    )  # 2^8 is the first power above 200
    assert lut_estimate(mw, pe, simd, weight_bits, activation_bits, VALUES) == pytest.approx(
        expected
    )


def test_wide_operands_take_two_dsp_blocks_each():
    assert dsp_estimate(2, 4, 24, 24) == 8
    assert dsp_estimate(2, 4, 25, 24) == 16


@pytest.mark.parametrize(
    ("cycles", "shares", "first_image"),
    [
        ([10, 20, 30], [1, 1, 1], 60),  # fully connected: one after the other
        ([10, 20, 30], [0.1, 0.1, 0.1], 1 + 2 + 30),  # the slowest passes the whole image
        ([10, 30, 20], [0.5, 0.5, 1.0], 5 + 30 + 20),
        ([7], [0.2], 7),
    ],
)
def test_the_first_image_waits_for_each_nodes_share(cycles, shares, first_image):
    assert pipeline_latency_s(np.array(cycles, dtype=float), shares, 100.0) == pytest.approx(
        first_image / 100
    )


def divisors(number):
    return [d for d in range(1, number + 1) if number % d == 0]


def every_design(nodes, device, clock_hz):
    """Frames per second of each folding that fits, by trying all."""
    foldings = [list(product(divisors(node.mh), divisors(node.mw))) for node in nodes]
    found = []
    for chosen in product(*foldings):
        pe, simd = (np.array(column, dtype=float) for column in zip(*chosen, strict=True))
        try:
            design = design_of_folding(nodes, pe, simd, device, VALUES)
        except DoesNotFitError:
            continue
        cycles = max(
            n.mh // p * (n.mw // s) * n.vectors for n, (p, s) in zip(nodes, chosen, strict=True)
        )
        assert design.fps == pytest.approx(clock_hz / cycles)
        found.append((design.fps, design.lut_count))
    return found


NODES = [StreamingNode("conv", 18, 8, 64.0, 2, 2, 0.1), StreamingNode("fc", 32, 10, 1.0, 2, 2)]


@pytest.mark.parametrize("lut", [1_200, 2_000, 4_000, 10_000, 1e6])
def test_the_search_finds_the_fastest_design_there_is(lut):
    device = board(lut=lut)
    tried = every_design(NODES, device, 100e6)
    best = max(fps for fps, _ in tried)
    design = fold_network(NODES, device, VALUES)
    assert design.fps == pytest.approx(best)
    assert design.lut_count <= lut


@pytest.mark.parametrize("target", [1e4, 1e5, 5e5])
def test_a_target_takes_the_design_with_the_fewest_tables(target):
    device = board(bram_36k=1e9, dsp=1e9)  # lookup tables alone are scarce
    smallest = min(lut for fps, lut in every_design(NODES, device, 100e6) if fps >= target)
    design = fold_network(NODES, device, VALUES, target_fps=target)
    assert design.lut_count == pytest.approx(smallest)


def test_a_board_lends_its_usable_share_and_a_chosen_folding_the_whole():
    node = [StreamingNode("fc", 64, 64, 1.0, 8, 8)]
    whole = board(dsp=64)
    half = whole.model_copy(update={"usable_fraction": Sourced(value=0.5, source="test")})
    assert fold_network(node, whole, VALUES).dsp_count == 64
    assert fold_network(node, half, VALUES).dsp_count == 32
    one = np.ones(1)
    assert design_of_folding(node, one, 64 * one, half, VALUES).dsp_count == 64
    with pytest.raises(DoesNotFitError, match="dsp count"):
        design_of_folding(node, 2 * one, 64 * one, half, VALUES)


def test_an_ultraram_holds_as_much_as_sixteen_block_rams():
    # 288 kbit over 18 kbit. 1,024 x 72 bits of weights: four 18 kbit blocks.
    node = [StreamingNode("fc", 9 * 1024, 1, 1.0, 8, 8)]
    fold = (np.ones(1), np.full(1, 9.0))
    none = board(bram_36k=1)
    with pytest.raises(DoesNotFitError, match="bram 18k count"):
        design_of_folding(node, *fold, none, VALUES)
    with_ultraram = none.model_copy(update={"uram_count": Sourced(value=1, source="test")})
    assert design_of_folding(node, *fold, with_ultraram, VALUES).bram_18k_count == 4


def test_uneven_foldings_take_whole_steps():
    assert node_cycles(10, 7, 3, 2, 4) == 4 * 3 * 3
    assert overlay_cycles(65, 17, 16, 9, (8, 16, 16)) == 9 * 2 * 1 * 9
    assert overlay_cycles(64, 16, 17, 1, (8, 16, 16)) == 8 * 1 * 2


@pytest.mark.parametrize("name", ["zcu102", "zcu104", "kv260", "ultra96-v2"])
def test_a_published_core_multiplies_its_whole_grid_every_cycle(name):
    """AMD PG338: 2 PP ICP OCP operations a cycle of each core, whatever the share of cycles that
    are sustained.
    """
    device = catalog.device(name)
    core = device.overlay
    machine = overlay_machine(device, replace(fpga_parameters(), compute_efficiency_fraction=0.5))
    grid = (core.pixel_parallelism, core.input_channel_parallelism, core.output_channel_parallelism)
    assert machine.grids == (tuple(side.value for side in grid),)  # no layout but the published
    assert machine.cores == core.core_count.value
    native = 2 * math.prod(machine.grids[0]) * machine.cores * core.clock_hz.value
    assert native == pytest.approx(
        device.matrix_flop_per_s[Dtype.INT8].value, rel=0.11
    )  # KV260 is quoted at a higher clock
    assert machine.seconds_per_cycle[Dtype.INT8] == pytest.approx(
        1 / (0.5 * core.clock_hz.value), rel=0.01
    )


@pytest.mark.parametrize("name", ["aws-f1-vu9p", "arria-10-gx1150", "vcu118", "stratix-10-nx2100"])
def test_a_generic_grid_has_the_stated_rate(name):
    device = catalog.device(name)
    assert device.overlay is None
    machine = overlay_machine(device, replace(fpga_parameters(), generic_efficiency_fraction=0.5))
    best = max(device.peak_flop_per_s, key=lambda dtype: device.peak_flop_per_s[dtype])
    best_rate = 0.5 * device.peak_flop_per_s[best]
    assert len(set(machine.grids)) == len(machine.grids) > 1
    for pixels, inputs, outputs in machine.grids:
        multipliers = pixels * inputs * outputs
        assert inputs <= outputs
        assert pixels >= 8  # as published cores have
        assert 2 * multipliers * device.fabric_clock_hz.value <= best_rate * (1 + 1e-9)
        for dtype, rate in device.peak_flop_per_s.items():
            reached = 2 * multipliers / machine.seconds_per_cycle[dtype]
            assert reached <= 0.5 * rate * (1 + 1e-9)
        reached = 2 * multipliers / machine.seconds_per_cycle[best]
        assert reached == pytest.approx(best_rate, rel=0.13)  # whole pixels


def test_a_layer_takes_the_fastest_layout_of_a_generic_board():
    """Few channels take the layout of most pixels, many channels and few pixels that of least."""
    machine = overlay_machine(catalog.device("vcu118"), fpga_parameters())
    few, many = (
        min(machine.grids, key=lambda sides, layer=layer: overlay_cycles(*layer, sides))
        for layer in ((50_000, 8, 8, 9), (8, 2048, 2048, 1))
    )
    assert few == max(machine.grids)
    assert many[0] == min(machine.grids)[0] == 8
    assert machine.array_cycles(50_000, 8, 8, 9) == overlay_cycles(50_000, 8, 8, 9, few)


@pytest.mark.parametrize("name", ["aws-f1-vu9p", "stratix-v-d5", "pynq-z1", "stratix-10-mx2100"])
def test_a_batch_that_outgrows_a_layout_finds_another(name):
    machine = overlay_machine(catalog.device(name), fpga_parameters())
    rows = np.arange(1, 600)
    cycles = machine.array_cycles(rows, 2048, 2048, 1)
    rate = rows / cycles
    assert (np.diff(cycles) >= 0).all()
    assert (rate >= 0.8 * np.maximum.accumulate(rate)).all()


def test_engines_of_a_batch_share_their_memory_in_two_buffers():
    device = next(
        d
        for d in map(catalog.device, catalog.device_names())
        if getattr(d, "overlay", None)
        and d.overlay.name.startswith(("DPUCVDX8", "DPUCADF8"))
        and d.on_chip
    )
    machine = overlay_machine(device, fpga_parameters())
    assert machine.shares_weights
    on_chip = sum(level.capacity_bytes.value for level in device.on_chip)
    assert machine.resident_bytes == pytest.approx(on_chip / machine.cores / 2)
    assert overlay_machine(catalog.device("zcu102"), fpga_parameters()).resident_bytes == 0
