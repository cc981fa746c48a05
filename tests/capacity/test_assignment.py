"""What a recommendation runs where."""

from __future__ import annotations

import pytest

from accelsim.capacity.assignment import Assignment, of_serving, of_training
from accelsim.serving.loads.arrivals import Arrivals
from accelsim.serving.options import ServingOptions
from accelsim.serving.serve import serve
from accelsim.training.estimate import train
from accelsim.training.length import RunLength


def test_a_served_load_says_its_layout_limits_and_instances():
    load = Arrivals(rate_per_s=2, requests=50, prompt="300", output="20")
    result = serve("llama-3.2-1b", "h100-sxm-80gb", load, ServingOptions(replicas=3, tp=2))
    found = of_serving(result, "chat")
    assert (found.task, found.name, found.software) == ("serve", "chat", result.engine)
    assert {n: found.settings[n] for n in ("replicas", "tp", "pp", "max_context")} == {
        "replicas": 3,
        "tp": 2,
        "pp": 1,
        "max_context": 320,
    }
    assert found.devices == 6
    assert (found.offer, found.cost_usd) == (result.offer, result.cost_usd_per_month)
    assert found.instance_devices * found.instances >= found.devices


def test_what_the_caller_said_of_memory_stands_beside_it():
    load = Arrivals(rate_per_s=2, requests=20, prompt="100", output="10")
    options = ServingOptions(memory_fraction=0.7, prefix_cache=False)
    found = of_serving(serve("llama-3.2-1b", "l4", load, options))
    assert found.settings["memory_fraction"] == 0.7
    assert found.settings["prefix_cache"] is False


def test_a_training_run_has_as_many_steps_as_its_tokens_take():
    length = RunLength(tokens=1e8)
    result = train(
        "llama-3.2-1b",
        device="h100-sxm-80gb",
        gpus=8,
        plan="zero=3",
        global_batch=64,
        seq_len=2048,
        length=length,
    )
    found = of_training(result)
    assert found.settings["steps"] == pytest.approx(1e8 / (64 * 2048), rel=0.01)
    assert (found.settings["dp"], found.settings["zero"], found.devices) == (8, 3, 8)
    assert found.cost_usd == result.total_cost_usd


def test_an_assignment_without_an_offer_has_an_even_share_of_devices():
    one = Assignment("a", "batch", "resnet-50", "t4", 4, "", "fp16", {}, instances=2)
    assert (one.place, one.instance_devices) == (None, 2)
