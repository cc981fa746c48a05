"""Plans keep their constraints, say what contradicts, and refuse what is wrong by name."""

from copy import deepcopy

import pytest

import accelsim
from accelsim.errors import InputError, ProfileError
from accelsim.planning.capacity.scenario import TEMPLATE, load_scenario

SMALL = {
    "name": "small",
    "services": [
        {
            "name": "vision",
            "model": "resnet-50",
            "requests_per_s": 2000.0,
            "latency_p99_ms": 100,
            "max_batch": 64,
            "run": {"execution": "compiled"},
        }
    ],
    "candidates": {
        "devices": ["t4", "l4", "a10g"],
        "providers": ["aws", "gcp"],
        "regions": ["us-*"],
    },
    "draws": 20,
}


def changed(**constraints):
    scenario = deepcopy(SMALL)
    scenario["constraints"] = constraints
    return scenario


@pytest.fixture(scope="module")
def answered():
    return accelsim.plan(SMALL)


def test_the_answer_has_the_promised_keys(answered):
    answer = answered.to_dict()
    assert {
        *("scenario", "objective", "recommended", "alternatives", "pareto"),
        *("sensitivity", "conflicts", "reason"),
    } <= answer.keys()
    best = answer["recommended"]
    assert best.keys() == {
        *("offers", "cost_usd_per_month", "energy_j_per_month", "carbon_kgco2e_per_month"),
        *("slo_probability", "deadline_probability", "headroom_fraction"),
    }
    assert best["offers"][0].keys() == {"offer", "device", "count", "cost_usd_per_month"}
    costs = [best["cost_usd_per_month"]]
    costs += [fleet["cost_usd_per_month"] for fleet in answer["alternatives"]]
    assert costs == sorted(costs)
    assert best["slo_probability"] >= 0.9  # what was asked for, in the draws
    assert best["headroom_fraction"] >= 0
    price = accelsim.PriceBook.load().find(best["offers"][0]["offer"]).instance_usd_per_hour
    expected = best["offers"][0]["count"] * price * 730.5
    assert best["offers"][0]["cost_usd_per_month"] == pytest.approx(expected)


def test_constraints_are_kept_and_what_contradicts_is_named(answered):
    free = answered.recommended
    spare = accelsim.plan(changed(redundancy=1)).recommended
    assert sum(o.count for o in spare.offers) > sum(o.count for o in free.offers)
    poor = accelsim.plan(changed(budget_usd_per_month=1.0, carbon_kgco2e_per_month=1e9))
    assert poor.recommended is None
    assert poor.conflicts == (
        "constraints.budget_usd_per_month",
        "services.vision.requests_per_s",
    )
    assert "budget" in poor.to_dict()["reason"]


def test_a_latency_nothing_keeps_is_a_conflict():
    scenario = deepcopy(SMALL)
    scenario["services"][0]["latency_p99_ms"] = 0.01
    assert accelsim.plan(scenario).conflicts[0] == "services.vision.latency_p99_s"


def test_less_energy_costs_no_less(answered):
    cheap = answered.recommended
    frugal = accelsim.plan({**SMALL, "objective": "energy"}).recommended
    assert frugal.energy_j_per_month <= cheap.energy_j_per_month
    assert frugal.cost_usd_per_month >= cheap.cost_usd_per_month


@pytest.mark.parametrize(
    ("part", "field", "value", "named"),
    [
        (None, "currency", "EUR", "currency"),
        (None, "objective", "beauty", "objective"),
        ("services", "latency_p99_fortnights", 1, "latency_p99_fortnights"),
        ("services", "model", "resnet-5000", "resnet-5000"),
        ("services", "requests_per_s", -1.0, "requests_per_s"),
        ("services", "run", {"batch": 4}, "batch"),
        ("services", "run", {"bacth": 4}, "bacth"),
        ("candidates", "regions", ["moon-*"], "moon-"),
        ("candidates", "providers", ["nobody"], "nobody"),
        ("candidates", "devices", ["t5000"], "t5000"),
        ("candidates", "devices", ["zcu102"], "zcu102"),
        ("candidates", "kinds", ["stolen"], "stolen"),
        ("constraints", "quota", {"nobody": 1}, "nobody"),
    ],
)
def test_what_is_wrong_is_named(part, field, value, named):
    scenario = {"constraints": {}, **deepcopy(SMALL)}
    target = scenario if part is None else scenario[part]
    (target[0] if part == "services" else target)[field] = value
    with pytest.raises(InputError, match=named):
        accelsim.plan(scenario)


def test_the_template_is_a_scenario(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(TEMPLATE, encoding="utf-8")
    assert load_scenario(path).services[0].latency_p99_s == pytest.approx(0.1)
    path.write_text(TEMPLATE.replace("objective: cost", "objective: fun"), encoding="utf-8")
    with pytest.raises(ProfileError, match="line 3, objective"):
        load_scenario(path)


def test_cost_follows_the_growth_of_the_load():
    scenario = {**deepcopy(SMALL), "months": 3}
    scenario["candidates"]["devices"] = ["t4"]
    scenario["services"][0]["growth_fraction_per_month"] = 1.0
    costs = accelsim.plan(scenario).cost_by_month
    assert len(costs) == 3
    assert costs[0] < costs[1] < costs[2]
