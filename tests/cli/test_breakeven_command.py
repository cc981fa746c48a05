"""``accelsim breakeven``: what it prints, where prices come from, and what it refuses."""

from __future__ import annotations

import pytest

REFERENCE = ("breakeven", "resnet-50", "--reference", "t4", "--reference-usd", "2000")


def test_a_table_names_the_volume_or_why_there_is_none(run):
    chip = ("--asic", "tpu-v4i", "--asic-usd", "300", "--asic-nre-usd", "1e6")
    board = ("--fpga", "zcu104", "--fpga-usd", "90000", "--fpga-nre-usd", "5000")
    ran = run(*REFERENCE, *chip, *board)
    assert ran.code == 0
    text = " ".join(ran.out.split())
    assert "tpu-v4i t4 $1,000,000" in text
    assert "never" in text
    assert "cost more per demand" in text
    assert "a demand is a sustained rate" in ran.err
    assert run(*REFERENCE, "--asic", "tpu-v4i", "--asic-usd", "300", "--quiet").err == ""


def test_rows_of_csv_are_those_of_json(run):
    arguments = (*REFERENCE, "--asic", "tpu-v4i", "--asic-usd", "300", "--asic-nre-usd", "1e6")
    (csv_row,), (json_row,) = (
        run(*arguments, "--format", "csv").rows,
        run(*arguments, "--format", "json").json,
    )
    assert {name: float(csv_row[name]) for name in ("nre_usd", "volume", "units")} == pytest.approx(
        {name: json_row[name] for name in ("nre_usd", "volume", "units")}
    )
    saved = json_row["reference_usd_per_demand"] - json_row["usd_per_demand"]
    assert json_row["volume"] * saved == pytest.approx(1e6)


def test_settings_reach_the_sum(run):
    """Twice the demand is half as many demands for the same units; life and energy price scale the
    electricity.
    """
    arguments = (
        *REFERENCE,
        "--asic",
        "tpu-v4i",
        "--asic-usd",
        "300",
        "--asic-nre-usd",
        "1e6",
        "--format",
        "json",
    )
    (one,) = run(*arguments).json
    (two,) = run(*arguments, "--demand-per-s", "2000").json
    assert two["volume"] == pytest.approx(one["volume"] / 2)
    assert two["units"] == pytest.approx(one["units"])
    costs = [
        run(*arguments, "--life-years", years, "--usd-per-kwh", price, "--pue", pue).json[0][
            "usd_per_demand"
        ]
        for years, price, pue in ((3, 0, 1), (3, 0.1, 1), (6, 0.1, 1), (3, 0.2, 1), (3, 0.1, 2))
    ]
    hardware, energy = costs[0], costs[1] - costs[0]
    assert energy > 0
    assert [cost - hardware for cost in costs[2:]] == pytest.approx([2 * energy] * 3)


def test_a_price_that_no_profile_has_is_asked_for_by_its_option(refused):
    assert "give --asic-usd" in refused(*REFERENCE, "--asic", "tpu-v4i")


def test_nothing_to_compare_is_refused(refused):
    assert "--fpga or --asic" in refused(*REFERENCE)


@pytest.mark.parametrize(
    ("option", "value"), [("--life-years", "0"), ("--demand-per-s", "-1"), ("--pue", "0.9")]
)
def test_settings_out_of_range_are_named(refused, option, value):
    message = refused(*REFERENCE, "--asic", "tpu-v4i", "--asic-usd", "300", option, value)
    assert f"= {float(value)}" in message
