"""Unit suffixes of data files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelsim.units import SUFFIXES, si_key, to_si


@pytest.mark.parametrize(
    ("key", "name", "factor"),
    [
        ("bandwidth_gb_per_s", "bandwidth_bytes_per_s", 1e9),
        ("capacity_gib", "capacity_bytes", 2**30),
        ("capacity_gb", "capacity_bytes", 1e9),
        ("clock_mhz", "clock_hz", 1e6),
        ("latency_us", "latency_s", 1e-6),
        ("matrix_tflop_per_s", "matrix_flop_per_s", 1e12),
        ("link_gbit_per_s", "link_bytes_per_s", 1.25e8),
        ("core_count", "core_count", 1.0),
    ],
)
def test_suffix_names_the_si_field(key, name, factor):
    assert si_key(key) == (name, factor)


def test_scales_sourced_values_and_rates_by_dtype():
    data = {
        "memory": {"bandwidth_gb_per_s": {"value": 320, "source": "x"}},
        "matrix_tflop_per_s": {"fp16": {"value": 65}},
    }
    assert to_si(data) == {
        "memory": {"bandwidth_bytes_per_s": {"value": 320e9, "source": "x"}},
        "matrix_flop_per_s": {"fp16": {"value": 65e12}},
    }


def test_one_field_in_two_units_is_refused():
    with pytest.raises(ValueError, match="repeats power_w"):
        to_si({"power_w": 1, "power_kw": 2})


def test_booleans_and_text_are_left_alone():
    assert to_si({"limit_kw": True, "size_gb": "big"}) == {"limit_w": True, "size_bytes": "big"}


@given(st.sampled_from(sorted(SUFFIXES)), st.floats(1e-3, 1e6))
def test_every_suffix_scales_by_its_factor(suffix, value):
    target, factor = SUFFIXES[suffix]
    assert to_si({f"x{suffix}": value}) == {f"x{target}": value * factor}


def test_a_rate_per_another_time_is_no_time():
    assert to_si({"requests_per_ms": 2.0, "latency_ms": 2.0}) == {
        "requests_per_ms": 2.0,
        "latency_s": 0.002,
    }
