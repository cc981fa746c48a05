"""Every profile against independent figures and against its own derived peaks.

A figure that differs by more than the tolerance is only accepted where the profile records the
conflict and says why it keeps its value; a recorded conflict that no longer disagrees fails too.
"""

import csv
import math
import re
from pathlib import Path

import pytest

from accelsim.catalog import device, device_names
from accelsim.dtype import Dtype

TOLERANCE = 0.03
CROSSCHECK = Path(__file__).with_name("crosscheck.csv")
GB, GIB, MIB = 1e9, 2.0**30, 2.0**20


def read_crosscheck():
    with CROSSCHECK.open(newline="") as stream:
        return [
            (row["device"], row["field"], float(row["reference"]), row["source"])
            for row in csv.DictReader(stream)
        ]


def value(sourced, scale=1.0):
    return None if sourced is None else sourced.value / scale


def on_chip_mib(profile):
    if profile.device_class == "asic":
        return value(profile.sram_bytes, MIB)
    unit_count = {"cpu": "core_count", "gpu": "sm_count"}.get(profile.device_class)
    count = getattr(profile, unit_count).value if unit_count else 1
    return profile.on_chip[-1].total_bytes(count) / MIB


OBSERVED = {
    "core_count": lambda p: value(p.core_count),
    "sm_count": lambda p: value(p.sm_count),
    "dsp_count": lambda p: value(p.dsp_count),
    "array_count": lambda p: value(p.arrays.count),
    "mac_count": lambda p: p.arrays.rows.value * p.arrays.columns.value * p.arrays.count.value,
    "clock_mhz": lambda p: value(p.clock_hz, 1e6),
    "base_clock_mhz": lambda p: value(p.base_clock_hz, 1e6),
    "boost_clock_mhz": lambda p: value(p.boost_clock_hz, 1e6),
    "fabric_clock_mhz": lambda p: value(p.fabric_clock_hz, 1e6),
    "overlay_clock_mhz": lambda p: value(p.overlay.clock_hz, 1e6),
    "memory_gib": lambda p: value(p.memory.capacity_bytes, GIB),
    "memory_bandwidth_gb_per_s": lambda p: value(p.memory.bandwidth_bytes_per_s, GB),
    "power_limit_w": lambda p: value(p.power.limit_w),
    "process_nm": lambda p: value(p.process_nm),
    "launch_price_usd": lambda p: value(p.launch_price_usd),
    "peer_link_gb_per_s": lambda p: value(p.peer_link.bandwidth_bytes_per_s, GB),
    "peer_link_both_directions_gb_per_s": lambda p: (
        value(p.peer_link.bandwidth_bytes_per_s, GB) * 2
    ),
    "on_chip_mib": on_chip_mib,
}


def observed(profile, field):
    """The profile's value of a cross-checked field, in the unit of its name."""
    if field in OBSERVED:
        return OBSERVED[field](profile)
    table, _, dtype = field.partition(".")
    dtype = Dtype[dtype.upper()]
    if table == "rate_tflop_per_s":
        rate = profile.peak_flop_per_s.get(dtype)
        return None if rate is None else rate / 1e12
    rates = {
        "vector_tflop_per_s": profile.vector_flop_per_s,
        "sparse_tflop_per_s": profile.matrix_sparse_flop_per_s,
    }
    return value(rates[table].get(dtype), 1e12)


def derived_peaks(profile):
    """Peaks that follow from the profile's structure: (field, derived, stated, tolerance)."""
    if profile.device_class == "gpu":
        units = profile.sm_count.value * profile.lanes_per_sm.value
        stated = profile.vector_flop_per_s[Dtype.FP32].value
        yield "derived.vector_fp32", units * 2 * profile.boost_clock_hz.value, stated, 0.02
    elif profile.device_class == "cpu":
        lanes = (
            profile.core_count.value * profile.simd_width_bits.value / 32 * profile.fma_ports.value
        )
        clock = (profile.vector_clock_hz or profile.base_clock_hz).value
        yield (
            "derived.vector_fp32",
            lanes * 2 * clock,
            profile.vector_flop_per_s[Dtype.FP32].value,
            0.05,
        )
    elif profile.device_class == "asic" and profile.matrix_flop_per_s:
        arrays = profile.arrays
        derived = (
            2
            * arrays.rows.value
            * arrays.columns.value
            * arrays.count.value
            * profile.clock_hz.value
        )
        order = (Dtype.BF16, Dtype.FP16, Dtype.INT8, Dtype.INT16)
        native = next(dtype for dtype in order if dtype in profile.matrix_flop_per_s)
        if profile.name == "groq-lpu-v1":  # its array multiplies int8; fp16 takes four passes
            native = Dtype.INT8
        yield "derived.matrix_peak", derived, profile.matrix_flop_per_s[native].value, 0.05


@pytest.mark.parametrize(
    "name", [name for name in device_names() if device(name).device_class == "fpga"]
)
def test_an_overlay_fits_inside_the_devices_peak_and_matches_its_name(name):
    """PG338 names a core by its peak operations per cycle: 2 x pixel x input channel x output
    channel parallelism.
    """
    profile = device(name)
    core = profile.overlay
    assert (core is not None) == ("overlay" in profile.flows)
    if core is None:
        return
    shape = (
        core.pixel_parallelism,
        core.input_channel_parallelism,
        core.output_channel_parallelism,
    )
    operations = 2 * math.prod(side.value for side in shape)
    if named := re.search(r"_B(\d+)$", core.name):
        assert operations == int(named[1])
    peak = profile.matrix_flop_per_s[Dtype.INT8].value
    assert operations * core.core_count.value * core.clock_hz.value <= peak * 1.001


def recorded(profile, field, reference):
    return [
        conflict
        for conflict in profile.conflicts
        if conflict.field == field
        and math.isclose(float(conflict.reference_value), reference, rel_tol=1e-3)
    ]


def rejected(profile, field, reference):
    ours = observed(profile, field)
    return ours is None or abs(ours / reference - 1) > TOLERANCE


def test_the_crosscheck_covers_most_devices_with_many_figures():
    rows = read_crosscheck()
    assert len(rows) > 850
    assert len({name for name, *_ in rows}) > 100


@pytest.mark.parametrize("name", sorted({row[0] for row in read_crosscheck()}))
def test_figures_agree_with_independent_sources_or_say_why_not(name):
    profile = device(name)
    unexplained = [
        f"{field}: {observed(profile, field)} vs {reference:g} [{source}]"
        for device_name, field, reference, source in read_crosscheck()
        if device_name == name
        and rejected(profile, field, reference)
        and not recorded(profile, field, reference)
    ]
    assert not unexplained


@pytest.mark.parametrize("name", device_names())
def test_derived_peaks_agree_with_stated_peaks_or_say_why_not(name):
    profile = device(name)
    unexplained = [
        f"{field}: derived {derived:.4g}, stated {stated:.4g}"
        for field, derived, stated, tolerance in derived_peaks(profile)
        if abs(derived / stated - 1) > tolerance
        and not any(c.field == field for c in profile.conflicts)
    ]
    assert not unexplained


def test_every_recorded_conflict_is_a_live_disagreement():
    rows = read_crosscheck()
    stale = []
    for name in device_names():
        profile = device(name)
        derived = {field: abs(d / s - 1) > tol for field, d, s, tol in derived_peaks(profile)}
        for conflict in profile.conflicts:
            if conflict.field.startswith("derived."):
                live = derived.get(conflict.field, False)
            else:
                live = any(
                    device_name == name
                    and field == conflict.field
                    and rejected(profile, field, reference)
                    for device_name, field, reference, _ in rows
                )
            if not live:
                stale.append(f"{name}: {conflict.field}")
    assert not stale


@pytest.mark.parametrize("name", device_names())
def test_rates_are_ordered_by_format(name):
    """Within one kind of unit a narrower format is never slower than a wider one (conflicts name
    the exceptions).
    """
    profile = device(name)
    exempt = {conflict.field for conflict in profile.conflicts}
    for table in (profile.vector_flop_per_s, profile.matrix_flop_per_s):
        chain = [
            d for d in (Dtype.FP64, Dtype.FP32, Dtype.TF32, Dtype.BF16, Dtype.FP8) if d in table
        ]
        rates = [table[d].value for d in chain]
        assert rates == sorted(rates) or "rate_order" in exempt


@pytest.mark.parametrize("name", device_names())
def test_every_profile_knows_what_the_cost_models_need(name):
    profile = device(name)
    assert profile.memory.bandwidth_bytes_per_s is not None
    assert profile.vector_flop_per_s or profile.matrix_flop_per_s
    link = profile.host_link
    most = 500e9 if link is not None and "C2C" in link.name else 200e9
    assert link is None or link.bandwidth_bytes_per_s.value < most
