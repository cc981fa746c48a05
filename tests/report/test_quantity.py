"""Quantities for people: SI prefixes (BIPM brochure, table 7), three digits, unknown never zero."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelsim.report.quantity import UNKNOWN, amount, decimal, duration, number, percent, usd, whole

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
