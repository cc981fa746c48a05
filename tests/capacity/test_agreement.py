"""One question, one answer: what `plan` recommends is what `serve` and `train` find."""

import math
from pathlib import Path

import pytest

import accelsim
from accelsim.capacity.fleet_answer import fleet_answer
from accelsim.capacity.fleet_ways import Question
from accelsim.capacity.plan import _Planner
from accelsim.capacity.scenario import load_scenario
from accelsim.estimation.options import PriceChoice
from accelsim.serving.find import find
from accelsim.training.length import RunLength

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
#: How far apart the two may be.
NEAR = 0.01
JOULE_PER_KWH = 3.6e6


def recommended(scenario):
    """The fleet alone, without runner-ups, certainty and sensitivity."""
    planner = _Planner(load_scenario(scenario), lambda *_: None)
    ways, _ = planner.best(Question())
    return fleet_answer(planner.maker, ways)


def serving(model, device, rate, ttft_ms, tpot_ms):
    """A service on one device, as a scenario and as a question to `serve`."""
    lengths = {"prompt": "lognormal:300:0.5", "output": "lognormal:60:0.5"}
    limits = {"ttft_ms": ttft_ms, "tpot_ms": tpot_ms}
    service = {"name": "s", "model": model, "requests_per_s": rate, **lengths, **limits}
    scenario = {"name": "one", "services": [service], "candidates": {"devices": [device]}}
    slo = accelsim.SloTargets(ttft_ms / 1e3, tpot_ms / 1e3)
    load = accelsim.Arrivals(rate_per_s=rate, **lengths)
    return scenario, (model, device, load, accelsim.ServingOptions(slo=slo))


@pytest.mark.parametrize(
    ("model", "device", "rate", "ttft_ms", "tpot_ms"),
    [
        ("gpt2", "t4", 40.0, 300, 30),
        ("gpt2", "l4", 200.0, 200, 20),
        ("llama-3.2-1b", "l4", 10.0, 500, 30),
        ("llama-3.2-1b", "a10g", 30.0, 300, 20),
        ("llama-3.1-8b", "h100-sxm-80gb", 40.0, 300, 20),
        ("llama-3.1-8b", "a100-sxm-80gb", 10.0, 500, 15),
    ],
)
def test_a_service_costs_what_serve_finds(model, device, rate, ttft_ms, tpot_ms):
    scenario, question = serving(model, device, rate, ttft_ms, tpot_ms)
    best, found = recommended(scenario), find("cheapest", *question).result
    assert best.device_count == found.devices
    assert best.instance_count == found.instances
    assert best.cost_usd_per_month == pytest.approx(found.cost_usd_per_month, rel=NEAR)
    kwh = best.energy_j_per_month / JOULE_PER_KWH
    assert kwh == pytest.approx(found.energy_kwh_per_month, rel=NEAR)


@pytest.mark.parametrize(
    ("model", "device", "size", "batch"),
    [
        ("gpt2", "l4", {"samples": 1e6}, 64),
        ("gpt2", "a100-sxm-80gb", {"tokens": 1e9}, 64),
        ("bert-base", "t4", {"samples": 1e6}, 64),
        ("bert-base", "h100-sxm-80gb", {"samples": 1e7}, 256),
        ("llama-3.2-1b", "h100-sxm-80gb", {"tokens": 1e8}, 32),
        ("resnet-50", "a10g", {"samples": 1e7}, 256),
    ],
)
def test_a_job_costs_what_train_finds(model, device, size, batch):
    """Of all offers and counts, the one that costs the least by the search on its devices."""
    job = {"name": "j", "model": model, **size, "global_batch": batch, "deadline_hours": 1e4}
    candidates = {"devices": [device], "counts": [1]}
    scenario = {"name": "one", "training_jobs": [job], "candidates": candidates}
    best = recommended(scenario)
    (placed,) = best.placement
    count = placed["offers"][0]["device_count"] * placed["count"]
    found = trained(model, device, count, size, batch)
    assert placed["time_s"] == pytest.approx(found.time_to_train_s, rel=NEAR)
    usd = found.time_to_train_s / 3600 * placed["offers"][0]["usd_per_hour"]
    assert best.cost_usd_per_month == pytest.approx(usd, rel=NEAR)
    assert best.energy_j_per_month == pytest.approx(found.total_energy_j, rel=NEAR)
    book, least = accelsim.PriceBook.load(), math.inf
    for offer in book.eligible(device).offers:
        other = int(offer.device_count)
        if other == offer.device_count and other <= 2:
            run = trained(model, device, other, size, batch)
            least = min(least, run.time_to_train_s / 3600 * offer.on_demand_usd_per_hour)
    assert best.cost_usd_per_month <= least * (1 + NEAR)


SEEN = {}


def trained(model, device, count, size, batch):
    """What `train` finds, each once."""
    key = model, device, count
    if key not in SEEN:
        SEEN[key] = accelsim.train(
            model,
            device=device,
            gpus=count,
            global_batch=batch,
            length=RunLength(**size),
            search=True,
        )
    return SEEN[key]


def test_the_chat_of_the_examples_is_what_serve_finds():
    """The issue of two answers: the device that the plan recommends, asked of `serve`."""
    best = recommended(EXAMPLES / "chat.yaml")
    load = accelsim.Arrivals(rate_per_s=20, prompt="lognormal:1000:0.8", output="lognormal:300:0.6")
    options = accelsim.ServingOptions(slo=accelsim.SloTargets(0.5, 0.05))
    costs = {}
    for device in ("h100-sxm-80gb", best.offers[0].device):
        costs[device] = find("cheapest", "llama-3.3-70b", device, load, options, None, None).result
    mine = costs[best.offers[0].device]
    assert best.device_count == mine.devices
    assert best.instance_count == mine.instances
    assert best.cost_usd_per_month == pytest.approx(mine.cost_usd_per_month, rel=NEAR)
    kwh = best.energy_j_per_month / JOULE_PER_KWH
    assert kwh == pytest.approx(mine.energy_kwh_per_month, rel=NEAR)
    assert all(best.cost_usd_per_month <= r.cost_usd_per_month * (1 + NEAR) for r in costs.values())


def test_the_fine_tune_of_the_examples_is_what_train_finds():
    best = recommended(EXAMPLES / "fine_tune.yaml")
    (placed,) = best.placement
    found = accelsim.train(
        "llama-3.1-8b",
        device=placed["device"],
        gpus=placed["offers"][0]["device_count"] * placed["count"],
        seq_len=2048,
        global_batch=64,
        length=RunLength(tokens=1e8),
        search=True,
        price=PriceChoice(offer=placed["offer"]),
    )
    assert best.device_count == found.device_count
    assert best.cost_usd_per_month == pytest.approx(found.total_cost_usd, rel=NEAR)
    assert best.energy_j_per_month == pytest.approx(found.total_energy_j, rel=NEAR)
