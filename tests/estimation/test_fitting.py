"""What would make a run fit that does not."""

import json

import pytest

from accelsim import estimate
from accelsim.errors import InvalidValueError
from accelsim.estimation.resolution import resolve
from accelsim.estimation.simulate import simulate
from accelsim.workloads.sharding import Shard


def test_llama_8b_in_16_bit_does_not_fit_a_t4_and_says_what_would():
    """15,317 MiB of weights; nvidia-smi reports 15,360 MiB, of which a process's context takes
    some.
    """
    run = estimate("llama-3.1-8b", "t4", precision="fp16", batch=1)
    assert not run.fits
    assert run.latency_s is None
    assert run.tier == "fitted"
    assert run.evidence is not None
    named = [change.what for change in run.would_fit]
    assert named == ["precision", "device", "device_count", "offload"]
    named = json.loads(run.to_json())["would_fit"][0]["value"]
    assert estimate("llama-3.1-8b", "t4", precision=named, batch=1).fits


CASES = [
    ("llama-3.1-8b", "t4", {"precision": "fp16", "batch": 8}),
    ("llama-3.1-70b", "h100", {"batch": 4}),
    ("llama-3.1-8b", "h100", {"batch": 512}),
    ("resnet-50", "t4", {"precision": "fp16", "batch": 512, "mode": "training"}),
]


@pytest.mark.parametrize(("model", "device", "options"), CASES)
def test_each_change_makes_it_fit(model, device, options):
    run = estimate(model, device, **options)
    assert not run.fits
    assert run.would_fit
    for change in run.would_fit:
        if change.what == "device_count" and options.get("mode") != "training":
            joined = estimate(model, f"{change.value} x {device}", **options)
            assert joined.fits
            continue
        if change.what == "device_count":
            simulate(model, device, **options, shard=Shard(tp=change.value), cluster="dgx-h100")
            continue
        asked = {"device": device, **options, change.what: change.value}
        changed = estimate(model, asked.pop("device"), **asked)
        assert changed.fits
        assert changed.memory_bytes <= resolve(model, changed.device).available_bytes


@pytest.mark.parametrize(
    ("stack", "named"), [("vllm", "w8a16"), ("llama-cpp", "q8_0"), (None, "w8a16")]
)
def test_the_precision_that_is_named_runs_on_the_stack(stack, named):
    run = estimate("llama-3.1-70b", "h100", stack=stack)
    assert [c.value for c in run.would_fit if c.what == "precision"] == [named]
    assert estimate("llama-3.1-70b", "h100", stack=stack, precision=named).fits


def test_one_device_of_another_maker_is_named_where_one_is_enough():
    (change,) = estimate("llama-3.1-8b", "groq-lpu-v1").would_fit
    assert change.what == "device"
    assert estimate("llama-3.1-8b", change.value, precision="fp16").fits


def test_a_batch_one_larger_than_named_does_not_fit():
    run = estimate("llama-3.1-8b", "h100", batch=512)
    (batch,) = [change.value for change in run.would_fit if change.what == "batch"]
    assert not estimate("llama-3.1-8b", "h100", batch=batch + 1).fits


def test_a_run_that_fits_needs_no_change():
    assert estimate("resnet-50", "t4").would_fit == ()


def test_a_run_too_large_for_any_device_of_its_maker_names_several_of_another():
    run = estimate("llama-3.1-405b", "apple-m1", batch=1)
    (change,) = run.would_fit
    count, _, name = change.value.partition(" x ")
    assert change.what == "devices"
    options = {"batch": 1, "precision": run.precision}
    assert estimate("llama-3.1-405b", change.value, **options).fits
    assert not estimate("llama-3.1-405b", name, **options).fits
    assert int(count) > 1


def test_several_of_a_device_that_nothing_joins_are_not_named():
    with pytest.raises(InvalidValueError, match="fits a slot"):
        estimate("llama-3.1-405b", "8 x apple-m3-ultra-60c")
    named = {change.what for change in estimate("llama-3.1-405b", "apple-m3-ultra-60c").would_fit}
    assert named == {"precision"}
