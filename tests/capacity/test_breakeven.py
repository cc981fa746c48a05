"""Break-even volumes: the crossing of two cost lines, and what shifts it."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from accelsim.capacity.breakeven import DeploymentOption, break_even_volume, breakeven
from accelsim.errors import InvalidValueError

GPU = DeploymentOption("gpu", 0.0, 2000.0, 1000.0, 70.0)
FPGA = DeploymentOption("fpga", 1e5, 800.0, 500.0, 20.0)
ASIC = DeploymentOption("asic", 1e7, 100.0, 2000.0, 30.0)
money = st.floats(1, 1e7)


def test_the_closed_form():
    # 100,000 + 600 v = 1,000 v at v = 250.
    assert break_even_volume(1e5, 600, 0, 1000) == 250
    assert break_even_volume(0, 600, 0, 1000) == 0
    assert break_even_volume(1e5, 1000, 0, 1000) == math.inf
    assert break_even_volume(0, 1200, 1e5, 1000) == math.inf


@pytest.mark.parametrize(
    ("settings_of", "hours", "usd_per_kwh"),
    [
        ({}, 3 * 8766, 0.10),  # three years of 365.25 days at 0.10 USD and no overhead of the site
        ({"life_years": 5.0, "electricity_usd_per_kwh": 0.2, "pue": 1.5}, 5 * 8766, 0.2 * 1.5),
    ],
)
def test_a_demand_costs_its_hardware_and_the_electricity_of_its_life(
    settings_of, hours, usd_per_kwh
):
    """1,000 inferences a second: one GPU of 70 W, or two FPGAs of 20 W."""
    gpu_usd = 2000 + 0.070 * hours * usd_per_kwh
    fpga_usd = 2 * (800 + 0.020 * hours * usd_per_kwh)
    (point,) = breakeven(GPU, [FPGA], **settings_of)
    assert point.reference_usd_per_demand == pytest.approx(gpu_usd)
    assert point.usd_per_demand == pytest.approx(fpga_usd)
    assert point.volume == pytest.approx(1e5 / (gpu_usd - fpga_usd))
    assert point.units == pytest.approx(2 * point.volume)
    (tenth,) = breakeven(GPU, [FPGA], demand_per_s=100.0, **settings_of)
    assert tenth.volume == pytest.approx(10 * point.volume)
    assert tenth.units == pytest.approx(point.units)


def test_options_that_cost_the_same_break_even_at_once():
    assert break_even_volume(0, 1000, 0, 1000) == 0
    assert break_even_volume(1e5, 1000, 1e5, 1000) == 0


def test_a_unit_may_take_seconds_per_inference_and_cost_nothing():
    slow = DeploymentOption("slow", 0.0, 0.0, 0.1, 0.0)
    assert breakeven(GPU, [slow])[0].volume == 0
    with pytest.raises(InvalidValueError, match="options = 'none'"):
        breakeven(slow, [])


@settings(max_examples=100, deadline=None)
@given(nre=money, unit=money, reference=money)
def test_costs_are_equal_at_the_volume(nre, unit, reference):
    volume = break_even_volume(nre, unit, 0.0, reference)
    if math.isinf(volume):
        assert unit >= reference
    else:
        assert nre + volume * unit == pytest.approx(volume * reference, rel=1e-6)


@settings(max_examples=50, deadline=None)
@given(factor=st.floats(1.01, 10))
def test_dearer_energy_favours_the_frugal(factor):
    def volume(price):
        return breakeven(GPU, [ASIC], electricity_usd_per_kwh=price)[0].volume

    assert volume(0.1 * factor) <= volume(0.1)


@settings(max_examples=50, deadline=None)
@given(factor=st.floats(1.01, 10))
def test_more_development_needs_more_volume(factor):
    dearer = DeploymentOption("asic", 1e7 * factor, 100.0, 2000.0, 30.0)
    cheap, dear = breakeven(GPU, [ASIC, dearer])
    assert dear.volume == pytest.approx(factor * cheap.volume)
    assert cheap.units == pytest.approx(cheap.volume * 1000 / 2000)


def test_an_option_that_never_pays_says_why():
    slow = DeploymentOption("slow", 1e5, 2000.0, 100.0, 70.0)
    point = breakeven(GPU, [slow])[0]
    assert point.volume is None
    assert "more per demand" in point.reason
    assert breakeven(GPU, [FPGA])[0].volume is not None


@pytest.mark.parametrize(
    "changes",
    [{"demand_per_s": 0}, {"life_years": -1}, {"pue": 0.5}, {"electricity_usd_per_kwh": -1}],
)
def test_bad_settings_are_refused(changes):
    with pytest.raises(InvalidValueError):
        breakeven(GPU, [ASIC], **changes)


def test_bad_options_are_refused():
    with pytest.raises(InvalidValueError, match="options"):
        breakeven(GPU, [])
    with pytest.raises(InvalidValueError, match="asic: rate_per_s"):
        DeploymentOption("asic", 0, 1, 0, 1)
    with pytest.raises(InvalidValueError, match="asic: nre_usd"):
        DeploymentOption("asic", float("nan"), 1, 1, 1)


def run(*arguments):
    from accelsim.cli.app import command_tree

    return CliRunner().invoke(command_tree(), ["breakeven", "resnet-50", *arguments])


def test_the_command():
    result = run(
        "--reference",
        "t4",
        "--reference-usd",
        "2000",
        "--asic",
        "tpu-v4",
        "--asic-usd",
        "600",
        "--asic-nre-usd",
        "30000000",
        "--format",
        "json",
    )
    assert result.exit_code == 0, result.output
    (point,) = json.loads(result.stdout)
    assert point["option"] == "tpu-v4"
    assert point["volume"] * (
        point["reference_usd_per_demand"] - point["usd_per_demand"]
    ) == pytest.approx(30e6)


def test_the_command_runs_with_its_defaults_and_refuses_other_classes():
    from accelsim.cli.app import command_tree

    run = CliRunner().invoke(
        command_tree(),
        ["breakeven", "resnet-50", "--asic", "tpu-v4i", "--asic-usd", "300", "--format", "json"],
    )
    assert run.exit_code == 0
    (point,) = json.loads(run.stdout)
    assert point["reference"] == "a10"
    for option, device, wanted in (("--fpga", "t4", "fpga"), ("--asic", "zcu104", "asic")):
        refused = CliRunner().invoke(
            command_tree(), ["breakeven", "resnet-50", option, device, f"{option}-usd", "10"]
        )
        assert isinstance(refused.exception, InvalidValueError)
        assert f"class {wanted}" in str(refused.exception)


def test_less_development_and_dearer_units_pay_below_a_volume():
    """An FPGA against a chip: 1e7 - 1e5 of development over what a demand costs more."""
    (point,) = breakeven(ASIC, [FPGA], electricity_usd_per_kwh=0.0)
    assert point.volume is None
    most = (1e7 - 1e5) / (2 * 800 - 0.5 * 100)
    assert f"cheaper below {most:,.1f} demands" in point.reason
    (gpu,) = breakeven(GPU, [DeploymentOption("dear", 1e5, 9000.0, 1000.0, 70.0)])
    assert "cheaper below" not in gpu.reason
