"""Several devices that share one model: ``2 x rtx-3090``."""

import pytest

import accelsim
from accelsim.catalog.selection import chosen_devices
from accelsim.cli.entry import main
from accelsim.errors import InputError, InvalidValueError, UnsupportedOperatorError
from accelsim.estimation.simulate import simulate, system_of
from accelsim.serving.loads.arrivals import Arrivals

MODEL = "llama-3.1-8b"
ONE_USER = Arrivals(rate_per_s=0.01, prompt="512", output="128", requests=20)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_they_answer_as_a_server_of_one_user_does(count):
    run = accelsim.estimate(MODEL, f"{count} x h100-sxm-80gb")
    served = accelsim.serve(MODEL, "h100-sxm-80gb", ONE_USER, tp=count)
    assert run.time_per_output_token_s == pytest.approx(served.tpot_s["mean"], rel=0.01)
    assert run.time_to_first_token_s == pytest.approx(served.ttft_s["mean"], rel=0.01)


def test_amounts_are_of_all_devices_and_memory_of_each():
    one, two = (accelsim.estimate(MODEL, name) for name in ("a100-sxm-80gb", "2 x a100-sxm-80gb"))
    assert two.device == "2 x a100-sxm-80gb"
    assert (two.parameter_count, two.flop) == (one.parameter_count, one.flop)
    assert two.usd_per_hour == pytest.approx(2 * one.usd_per_hour)
    assert 0.5 * one.memory_bytes < two.memory_bytes < 0.6 * one.memory_bytes
    assert one.latency_s / 2 < two.latency_s < one.latency_s
    assert two.average_power_w > one.average_power_w


def test_a_simulation_is_that_of_one_of_them():
    name = "2 x a100-sxm-80gb"
    assert simulate(MODEL, name).latency_s == accelsim.estimate(MODEL, name).latency_s


def test_a_model_that_one_cannot_hold_fits_on_more():
    assert not accelsim.estimate("llama-3.1-70b", "h100-sxm-80gb").fits
    assert accelsim.estimate("llama-3.1-70b", "4 x h100-sxm-80gb").fits


def test_they_are_compared_with_one_of_another_kind():
    found = accelsim.compare(MODEL, ["2 x rtx-3090", "rtx-4090"])
    assert [row.device for row in found] == ["2 x rtx-3090", "rtx-4090"]
    assert all(row.estimate is not None for row in found)


@pytest.mark.parametrize(
    ("model", "device", "mode", "error"),
    [
        (MODEL, "0 x h100-sxm-80gb", "inference", InvalidValueError),
        (MODEL, "5000 x h100-sxm-80gb", "inference", InvalidValueError),
        (MODEL, "2 x nothing", "inference", InputError),
        (MODEL, "2 x epyc-7763", "inference", InputError),
        (MODEL, "2 x h100-sxm-80gb", "training", UnsupportedOperatorError),
        ("resnet-50", "2 x h100-sxm-80gb", "inference", UnsupportedOperatorError),
    ],
)
def test_what_cannot_be_joined_is_refused(model, device, mode, error):
    with pytest.raises(error):
        accelsim.estimate(model, device, mode=mode)


def test_a_server_asks_for_one_device_and_its_ranks():
    with pytest.raises(InvalidValueError, match="tp = 2"):
        accelsim.serve(MODEL, "2 x h100-sxm-80gb", ONE_USER)


def test_many_runs_at_once_are_those_one_by_one():
    many = accelsim.estimate_many(MODEL, "2 x h100-sxm-80gb", shapes={"batch": [1, 8]})
    each = [accelsim.estimate(MODEL, "2 x h100-sxm-80gb", batch=batch) for batch in (1, 8)]
    assert many["latency_s"].tolist() == pytest.approx([run.latency_s for run in each])


def test_runs_that_were_learned_are_told_apart_by_their_devices():
    several, alone = (
        system_of(simulate(MODEL, f"{count} x h100-sxm-80gb"), "decode") for count in (2, 1)
    )
    assert several.sizes["tp"] == 2
    assert "tp" not in alone.sizes


def test_a_comparison_has_each_count_and_what_cannot_be_joined_as_a_row():
    named = [profile.label for profile in chosen_devices(["2 x t4,t4"])]
    assert named == ["2 x t4", "t4"]
    several, alone = accelsim.compare("resnet-50", named)
    assert "not split" in several.reason
    assert several.device == "2 x t4"
    assert alone.reason is None


def test_the_page_of_a_comparison_has_each_count(tmp_path):
    page = tmp_path / "page.html"
    words = ["compare", MODEL, "-d", "2 x h100-sxm,h100-sxm", "-q", "--report", str(page)]
    with pytest.raises(SystemExit, match="0"):
        main(words)
    assert "2 x h100-sxm-80gb" in page.read_text()


@pytest.mark.parametrize(
    "words",
    [
        ["estimate", MODEL, "-d", "2 x h100-sxm", "--gpus", "4"],
        ["train", MODEL, "-d", "2 x h100-sxm"],
        ["train", MODEL, "--cluster", "aws-p5-48xlarge", "-d", "2 x h100-sxm"],
        ["fits", MODEL, "-d", "2 x h100-sxm"],
        ["serve", "search", MODEL, "--devices", "2 x h100-sxm", "--rate", "1"],
    ],
)
def test_who_asks_for_one_device_names_the_count_it_takes(words, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert "expected one device" in capsys.readouterr().err
