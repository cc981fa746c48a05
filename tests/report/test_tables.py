"""Tables of estimates and comparisons, from results made by hand."""

from __future__ import annotations

import dataclasses

import pytest
from rich.console import Console

from accelsim.catalog import device
from accelsim.estimation.compare import Comparison, ComparisonRow
from accelsim.estimation.estimate import Estimate, OperatorShare
from accelsim.hardware.sourced import device_numbers
from accelsim.report.devices import quantity_of
from accelsim.report.tables import comparison_view, estimate_view, tier_words

MADE = Estimate(
    workload="net",
    device="t4",
    batch=4,
    precision="fp16",
    mode="inference",
    stack="pytorch",
    execution="eager",
    layout="nchw",
    latency_s=0.01,
    throughput_per_s=400.0,
    latency_low_s=0.008,
    latency_high_s=0.0125,
    interval_level=0.9,
    tier="spec",
    bound="dispatch",
    energy_j=0.5,
    average_power_w=50.0,
    memory_bytes=3e9,
    fits=True,
    memory_short_bytes=0.0,
    device_memory_bytes=15.9e9,
    memory_available_bytes=15.3e9,
    flop=2e9,
    bytes=1e8,
    cost_usd_per_1000=0.001,
    offer="a/b/c",
    usd_per_hour=1.44,
    cost_usd_per_million_tokens=None,
    time_to_first_token_s=None,
    time_per_output_token_s=None,
    tokens_per_s=None,
    energy_per_sample_j=0.125,
    parameter_count=1_000_000,
    memory={"weight_bytes": 2e9, "activation_bytes": 1e9, "kv_cache_bytes": 0.0},
    seq_len=0,
    output_len=0,
    operators=(OperatorShare("layer." * 8 + "end", "gemm", 0.004, "compute", 0.4),),
)


def drawn(view, width: int = 100, *, color: bool = False) -> str:
    system = "standard" if color else None
    console = Console(
        width=width,
        no_color=not color,
        force_terminal=color,
        highlight=False,
        markup=False,
        color_system=system,
    )
    with console.capture() as captured:
        console.print(view)
    return captured.get()


def row(name: str, **changes) -> ComparisonRow:
    made = dataclasses.replace(MADE, device=name, **changes)
    return ComparisonRow(
        "net", name, "inference", made, None if made.fits else "does not fit: 1.0 GB short"
    )


@pytest.mark.parametrize("width", [80, 100, 200])
def test_an_estimate_shows_its_figures(width):
    text = " ".join(drawn(estimate_view(MADE, device("t4")), width).replace("│", " ").split())
    for figure in (
        "10.0 ms",
        "8.00 ms to 12.5 ms",
        "90 % interval",
        "400 samples/s",
        "500 mJ per batch",
        "125 mJ per sample",
    ):
        assert figure in text
    for figure in (
        "50.0 W on average, limit 70.0 W",
        "3.00 GB of 15.9 GB: fits",
        "weights 2.00 GB",
        "$0.00100 per 1,000",
    ):
        assert figure in text
    assert tier_words("spec") in text
    assert "KV cache" not in text
    assert "gemm 4.00 ms 40 % compute" in text


def test_what_does_not_fit_shows_no_time():
    unfit = dataclasses.replace(
        MADE,
        fits=False,
        latency_s=None,
        memory_short_bytes=1e9,
        operators=(),
        bound="memory_capacity",
    )
    text = drawn(estimate_view(unfit, device("t4")))
    assert "DOES NOT FIT, 1.00 GB short" in text
    assert "throughput" not in text


def test_unknown_energy_and_price_are_said_to_be_unknown():
    made = dataclasses.replace(
        MADE, energy_j=None, energy_per_sample_j=None, average_power_w=None, usd_per_hour=None
    )
    text = drawn(estimate_view(made, device("t4")))
    assert "unknown: no power limit" in text
    assert "unknown: no price" in text


def test_the_best_are_starred_also_without_colour():
    comparison = Comparison(
        (
            row("fast", latency_s=0.001, latency_high_s=0.0011, throughput_per_s=9e3),
            row("thrifty", energy_per_sample_j=0.01),
        )
    )
    plain, colored = (drawn(comparison_view(comparison), color=color) for color in (False, True))
    lines = {line.split()[0]: line for line in plain.splitlines() if line.strip()}
    assert "1.00 ms*" in lines["fast"]
    assert "9.00 k*" in lines["fast"]
    assert "10.0 mJ*" in lines["thrifty"]
    assert "ms*" not in lines["thrifty"]
    assert "\x1b" not in plain
    assert "\x1b[1;32m1.00 ms*" in colored


def test_devices_whose_intervals_meet_are_tied():
    near = row("near", latency_s=0.011, latency_high_s=0.013)
    plain = drawn(comparison_view(Comparison((row("first", latency_s=0.010), near))))
    lines = {line.split()[0]: line for line in plain.splitlines() if line.strip()}
    assert "10.0 ms~" in lines["first"]
    assert "11.0 ms~" in lines["near"]
    assert "run by pytorch eager" in plain


def test_rows_that_fail_come_last_with_their_reason():
    failed = ComparisonRow(
        "net", "old", "inference", None, "old cannot run attention in fp8: no such unit."
    )
    comparison = Comparison((failed, row("small", fits=False, latency_s=None), row("t4")))
    lines = [line.rstrip() for line in drawn(comparison_view(comparison)).splitlines()]
    assert lines[-4:-2] == [
        "old    cannot run attention in fp8: no such unit.",
        "small  does not fit: 1.0 GB short",
    ]
    assert lines[2].startswith("t4")


def test_a_comparison_where_nothing_runs_has_no_empty_table():
    failed = ComparisonRow("net", "old", "training", None, "cannot")
    assert drawn(comparison_view(Comparison((failed,)))).split() == [
        "net",
        "·",
        "training",
        "old",
        "cannot",
    ]


def test_narrow_terminals_show_all_columns():
    comparison = Comparison((row("a-device-with-a-rather-long-name"),))
    text = drawn(comparison_view(comparison), 70)
    assert "…" not in text
    below = next(line for line in text.splitlines() if "memory limit" in line)
    assert below.split() == ["device", "memory", "limit"]
    assert "10.0 ms" in text
    assert "$0.00100" in text


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("memory.bandwidth_bytes_per_s", 320e9, "320 GB/s"),
        ("matrix_flop_per_s.fp16", 65e12, "65.0 TFLOP/s"),
        ("matrix_flop_per_s.int8", 130e12, "130 TOP/s"),
        ("on_chip[L2].capacity_bytes", 4.19e6, "4.19 MB"),
        ("power.limit_w", 70.0, "70.0 W"),
        ("boost_clock_hz", 1.59e9, "1.59 GHz"),
        ("process_nm", 12.0, "12.0 nm"),
        ("sm_count", 40, "40"),
        ("launch_price_usd", 2500.0, "$2,500"),
        ("usable_fraction", 0.7, "70 %"),
    ],
)
def test_numbers_of_a_profile_carry_their_unit(field, value, expected):
    assert quantity_of(field, value) == expected


@pytest.mark.parametrize("name", ["t4", "epyc-9654", "tpu-v4", "zcu102"])
def test_every_number_of_a_profile_is_listed_once_with_a_source(name):
    numbers = device_numbers(device(name))
    fields = [number["field"] for number in numbers]
    assert len(fields) == len(set(fields))
    assert "memory.capacity_bytes" in fields
    assert all(number["source"] and number["value"] for number in numbers)


def test_a_run_says_how_it_was_run():
    made = dataclasses.replace(
        MADE, sparse_weights=True, host="epyc-7763", seq_len=2048, output_len=128
    )
    text = " ".join(drawn(estimate_view(made, device("t4")), width=200).split())
    assert (
        "inference, batch 4, fp16, pytorch eager nchw, 2,048 tokens in, 128 out, sparse "
        "weights, host epyc-7763" in text
    )
    formats = {"compute_format": "bf16", "kv_format": "int8"}
    made = dataclasses.replace(MADE, precision="fp8", output_len=8, inputs=formats)
    text = " ".join(drawn(estimate_view(made, device("t4")), width=200).split())
    assert "fp8, computed in bf16, KV cache int8, pytorch" in text
    plain = " ".join(drawn(estimate_view(MADE, device("t4"))).split())
    assert "sparse" not in plain
    assert "tokens" not in plain
    assert "host epyc" not in plain


@pytest.mark.parametrize(("share", "shown"), [(0.4, True), (0.0, False), (None, False)])
def test_times_outside_what_was_measured_are_cautioned(share, shown):
    text = drawn(
        estimate_view(dataclasses.replace(MADE, extrapolated_fraction=share), device("t4"))
    )
    assert ("40 % of the time in operators outside" in " ".join(text.split())) is shown


@pytest.mark.parametrize(
    ("output_len", "trained", "is_said"),
    [(100, 1000, False), (101, 1000, True), (101, None, False)],
)
def test_more_tokens_than_a_model_was_trained_on_are_a_caution(output_len, trained, is_said):
    made = dataclasses.replace(MADE, seq_len=900, output_len=output_len, trained_positions=trained)
    assert ("trained on 1,000" in drawn(estimate_view(made, device("t4")))) == is_said
