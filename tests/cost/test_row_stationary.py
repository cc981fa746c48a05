"""Row-stationary convolutions: the published chip on AlexNet, and laws of any mapping."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim.cost.systolic.row_stationary import ConvLayer, row_stationary_chip, row_stationary_run
from accelsim.errors import DoesNotFitError, InvalidValueError

CHIP = row_stationary_chip()
EYERISS = (CHIP, 12, 14, 200e6, 480e6)
# Chen et al., JSSC 52(1), 2017, table V: AlexNet, batch 4, 1.0 V, 200 MHz. Layer; its input's zeros
# and its output's (the next layer's input); latency ms, processing ms, active elements, buffer MB,
# DRAM MB, power mW.
ALEXNET = [
    (
        ConvLayer(4, 3, 96, 1, 227, 227, 11, 11, 55, 55, 4, 0.0001, 0.387),
        (20.9, 16.5, 154, 18.5, 5.0, 332),
    ),
    (
        ConvLayer(4, 96, 256, 2, 27, 27, 5, 5, 27, 27, 1, 0.387, 0.725),
        (41.9, 39.2, 135, 77.6, 4.0, 288),
    ),
    (
        ConvLayer(4, 256, 384, 1, 13, 13, 3, 3, 13, 13, 1, 0.725, 0.793),
        (23.6, 21.8, 156, 50.2, 3.0, 266),
    ),
    (
        ConvLayer(4, 384, 384, 2, 13, 13, 3, 3, 13, 13, 1, 0.793, 0.776),
        (18.4, 16.0, 156, 37.4, 2.1, 235),
    ),
    (
        ConvLayer(4, 384, 256, 2, 13, 13, 3, 3, 13, 13, 1, 0.776, 0.776),
        (10.5, 10.0, 156, 24.9, 1.3, 236),
    ),
]


@pytest.mark.parametrize(("layer", "measured"), ALEXNET)
def test_alexnet_on_eyeriss(layer, measured):
    run = row_stationary_run(layer, *EYERISS)
    latency, processing, active, buffer, dram, power = measured
    assert run.active_elements == active
    assert run.buffer_bytes / 1e6 == pytest.approx(buffer, rel=0.003)  # the table's rounding
    assert run.latency_s * 1e3 == pytest.approx(latency, rel=0.10)
    assert run.processing_s * 1e3 == pytest.approx(processing, rel=0.10)
    assert run.dram_bytes / 1e6 == pytest.approx(dram, rel=0.15)
    assert run.power_w * 1e3 == pytest.approx(power, rel=0.10)


@pytest.mark.parametrize(
    ("kernel", "side", "channels", "filters"),
    [(3, 6, 16, 1), (5, 34, 128, 256), (7, 15, 256, 256), (1, 24, 256, 1)],
)
def test_channel_sets_stand_one_above_the_other(kernel, side, channels, filters):
    # Partial sums pass on within a column: 12 rows hold 12 // kernel sets.
    run = row_stationary_run(
        ConvLayer(1, channels, filters, 1, side, side, kernel, kernel, side, side), *EYERISS
    )
    assert run.channel_sets <= 12 // kernel


def test_alexnets_total_energy():
    energy = sum(row_stationary_run(layer, *EYERISS).energy_j for layer, _ in ALEXNET)
    assert energy == pytest.approx(sum(m[0] * m[5] for _, m in ALEXNET) * 1e-6, rel=0.08)


def layers():
    sides = st.integers(1, 40)
    return st.builds(
        lambda batch, c, m, kernel, out, stride: ConvLayer(
            batch,
            c,
            m,
            1,
            (out - 1) * stride + kernel,
            (out - 1) * stride + kernel,
            kernel,
            kernel,
            out,
            out,
            stride,
        ),
        st.integers(1, 4),
        st.integers(1, 64),
        st.integers(1, 64),
        st.sampled_from([1, 3, 5, 7, 11]),
        sides,
        st.integers(1, 2),
    )


@settings(max_examples=60, deadline=None)
@given(layer=layers())
def test_laws(layer):
    run = row_stationary_run(layer, *EYERISS)
    assert 1 <= run.active_elements <= 12 * 14
    assert run.processing_s >= layer.mac_count / (12 * 14 * 200e6)
    assert run.latency_s > run.processing_s
    assert run.energy_j == pytest.approx(run.static_j + run.array_j + run.buffer_j, rel=1e-9)
    assert row_stationary_run(layer, CHIP, 12, 14, 400e6, 480e6).latency_s <= run.latency_s
    assert row_stationary_run(layer, CHIP, 12, 14, 200e6, 960e6).latency_s <= run.latency_s * (
        1 + 1e-12
    )
    larger = replace(CHIP, map_buffer_bytes=4 * CHIP.map_buffer_bytes)
    assert row_stationary_run(layer, larger, 12, 14, 200e6, 480e6).processing_s <= run.processing_s


@settings(max_examples=30, deadline=None)
@given(layer=layers(), zeros=st.floats(0, 1))
def test_zeros_save_energy_and_traffic_but_no_processing(layer, zeros):
    dense = row_stationary_run(
        replace(layer, input_zero_fraction=0.0, output_zero_fraction=0.0), *EYERISS
    )
    sparse = row_stationary_run(
        replace(layer, input_zero_fraction=zeros, output_zero_fraction=zeros), *EYERISS
    )
    assert sparse.processing_s == dense.processing_s
    assert sparse.array_j <= dense.array_j
    assert sparse.dram_bytes <= dense.dram_bytes


def test_a_strip_larger_than_the_buffer_names_the_layer():
    wide = ConvLayer(1, 3, 8, 1, 100, 100_000, 3, 3, 98, 99_998, name="panorama")
    with pytest.raises(DoesNotFitError, match="panorama"):
        row_stationary_run(wide, *EYERISS)


def test_bad_sizes_are_refused():
    layer = ALEXNET[0][0]
    with pytest.raises(InvalidValueError, match="rows"):
        row_stationary_run(layer, CHIP, 0, 14, 200e6, 480e6)
    with pytest.raises(InvalidValueError, match="layer"):
        row_stationary_run(replace(layer, batch=0), *EYERISS)


def test_every_parameter_is_above_zero():
    assert all(getattr(CHIP, field.name) > 0 for field in fields(CHIP))
