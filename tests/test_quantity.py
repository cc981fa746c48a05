"""Quantities for people: SI prefixes (BIPM brochure, table 7), three digits, unknown never zero."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelsim.quantity import (
    UNKNOWN,
    amount,
    decimal,
    duration,
    number,
    percent,
    say,
    usd,
    whole,
    written,
)

PREFIXES = {
    "E": 1e18,
    "P": 1e15,
    "T": 1e12,
    "G": 1e9,
    "M": 1e6,
    "k": 1e3,
    "": 1,
    "m": 1e-3,
    "µ": 1e-6,
    "n": 1e-9,
    "p": 1e-12,
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (amount(0.0123, "J"), "12.3 mJ"),
        (amount(999.6e-6, "s"), "1.00 ms"),
        (amount(70, "W"), "70.0 W"),
        (amount(25.6e-6, "s"), "25.6 µs"),
        (amount(0, "B"), "0 B"),
        (amount(-1500, "W"), "-1.50 kW"),
        (amount(0.5, "B", small=False), "0.500 B"),
        (duration(0.00321), "3.21 ms"),
        (duration(59), "59.0 s"),
        (duration(999.6), "16.7 min"),
        (duration(7_200), "2.00 h"),
        (duration(3 * 86_400), "3.00 d"),
        (number(25_557_032), "25.6 M"),
        (number(12), "12.0"),
        (decimal(2_250), "2,250"),
        (decimal(0.132), "0.132"),
        (whole(274_080), "274,080"),
        (percent(0.9), "90 %"),
        (percent(-0.00123), "-0.123 %"),
        (usd(32.77), "$32.8"),
        (usd(0.00123), "$0.00123"),
        (usd(1.234e-6), "$1.23e-06"),
        (usd(0), "$0"),
        (usd(12_345), "$12,300"),
    ],
)
def test_examples(text, expected):
    assert text == expected


@pytest.mark.parametrize(
    "show", [lambda x: amount(x, "J"), duration, number, decimal, whole, percent, usd]
)
@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_what_is_not_known_reads_unknown(show, value):
    assert show(value) == UNKNOWN


@given(st.floats(1e-11, 9e20))
def test_the_text_is_within_half_a_unit_of_its_third_digit(value):
    found = re.fullmatch(r"([\d.,]+) ?([EPTGMkmµnp]?)J", amount(value, "J"))
    assert found is not None
    shown = float(found[1].replace(",", "")) * PREFIXES[found[2]]
    assert shown == pytest.approx(value, rel=5.001e-3)


@given(st.floats(1e-12, 1e15), st.floats(1, 1000))
def test_larger_amounts_never_read_smaller(value, factor):
    def read(text: str) -> float:
        figure, _, unit = text.partition(" ")
        return float(figure.replace(",", "")) * PREFIXES[unit.removesuffix("J")]

    assert read(amount(value * factor, "J")) >= read(amount(value, "J")) * (1 - 1e-9)


FIGURES = {"time_s": 0.01, "rate_per_s": None, "preemptions": 0, "cost_usd_per_1000": 1.5}
FIGURES |= {"ttft_s": {"p99.9": 0.5}, "name": "a {time_s} [b]", "share": 0.25}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{time_s} at {cost_usd_per_1000}", "10.0 ms at $1.50"),
        ("{ttft_s.p99.9}", "500 ms"),
        ("x[, {rate_per_s} per s]", "x"),
        ("x[, {preemptions} preemptions][, {missing}]", "x"),
        ("{rate_per_s}, {rate_per_s?}.", "unknown, ."),
        ("{share} is {share:fraction}", "0.250 is 25 %"),
        ("{name}", "a {time_s} [b]"),
    ],
)
def test_a_text_writes_its_figures_as_their_names_say(text, expected):
    assert say(text, FIGURES) == expected


def test_a_figure_that_is_not_there_is_no_text():
    with pytest.raises(LookupError):
        say("{missing}", FIGURES)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("model_flop_per_s_per_device", 2e12, "2.00 TFLOP/s"),
        ("memory_bandwidth_bytes_per_s", 5e11, "500 GB/s"),
        ("shared_bytes_per_sm", 1e5, "100 kB"),
        ("carbon_kgco2e_per_month", 5.56, "5.56 kg"),
        ("energy_kwh_per_month", 12.6, "13 kWh"),
        ("interval_level", 0.9, "90 %"),
        ("latency_s_low", 0.015, "15.0 ms"),
        ("digits", 9763.0, "9763"),
        ("year", 2024, "2024"),
        ("batch", 2024, "2,024"),
        ("fits", True, "yes"),
        ("precisions", ("fp32", "int8"), "fp32, int8"),
        ("versions", [], "none"),
        ("memory_bytes", {"weight_bytes": 1e9, "cache": 2e9}, "weight 1.00 GB, cache 2.00 GB"),
    ],
)
def test_the_name_of_a_figure_says_how_its_value_is_written(name, value, expected):
    assert written(name, value) == expected
