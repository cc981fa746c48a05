"""Plans keep their constraints, say what contradicts, and refuse what is wrong by name."""

import math
from copy import deepcopy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import accelsim
from accelsim.capacity.scenario import load_scenario
from accelsim.capacity.scenario_template import TEMPLATE
from accelsim.errors import InputError, ProfileError

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
        *("scenario", "objective", "recommended", "alternatives", "pareto", "certainty"),
        *("candidates", "sensitivity", "conflicts", "near_misses", "reason"),
    } <= answer.keys()
    best = answer["recommended"]
    assert best.keys() == {
        *("offers", "device_count", "instance_count", "cost_usd_per_month", "energy_j_per_month"),
        *("carbon_kgco2e_per_month", "embodied_kgco2e_per_month", "slo_probability"),
        *("deadline_probability", "probability_half_width", "headroom_fraction", "log_sigma"),
    }
    low, high = best["embodied_kgco2e_per_month"]
    assert 0 < low < high  # making each instance and its accelerators, a month of four years
    assert best["offers"][0].keys() == {"offer", "device", "count", "cost_usd_per_month"}
    costs = [best["cost_usd_per_month"]]
    costs += [fleet["cost_usd_per_month"] for fleet in answer["alternatives"]]
    assert costs == sorted(costs)
    assert best["slo_probability"] >= 0.5  # at the median of the model's error
    assert best["probability_half_width"] <= 0.05
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
        ("services", "latency_p99_ms", None, "latency_p99_s"),
        ("services", "run", {"batch": 4}, "batch"),
        ("services", "run", {"bacth": 4}, "bacth"),
        ("candidates", "regions", ["moon-*"], "moon-"),
        ("candidates", "providers", ["nobody"], "nobody"),
        ("candidates", "devices", ["t5000"], "t5000"),
        ("candidates", "devices", ["zcu102"], "zcu102"),
        ("candidates", "kinds", ["stolen"], "stolen"),
        ("constraints", "quota", {"nobody": 1}, "nobody"),
        ("candidates", "max_usd_per_hour", 1e-6, "at least one offer with a price"),
        (None, "objective", "time", "time needs"),
        (None, "services", [], "at least one"),
        (
            None,
            "training_jobs",
            [{"name": "t", "model": "bert-base", "deadline_s": 1.0}],
            "samples",
        ),
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


JOBS = {
    "name": "jobs",
    "training_jobs": [
        {
            "name": "bert",
            "model": "bert-base",
            "samples": 1e7,
            "global_batch": 512,
            "deadline_hours": 24,
            "run": {"precision": "bf16"},
        }
    ],
    "batch_jobs": [{"name": "archive", "model": "resnet-18", "samples": 1e9, "deadline_hours": 12}],
    "candidates": {
        "devices": ["a100-sxm-80gb", "l4"],
        "providers": ["aws", "gcp"],
        "regions": ["us-east-1", "us-central1"],
        "kinds": ["on_demand", "spot"],
        "spot_age_days": 10_000.0,
        "counts": [1, 4],
    },
    "reliability": {"spot_mtbf_hours": 8},
}


@pytest.fixture(scope="module")
def done():
    return accelsim.plan(JOBS)


def test_jobs_are_done_by_their_deadlines_at_the_least_cost(done):
    best = done.recommended
    assert best.deadline_probability >= 0.5
    assert best.headroom_fraction >= 0
    cost = 0.0
    for placed in best.placement:
        hours = {"bert": 24, "archive": 12}[placed["job"]]
        assert placed["time_s"] <= hours * 3600
        price = accelsim.PriceBook.load().find(placed["offer"]).instance_usd_per_hour
        paid = placed["count"] * price * math.ceil(placed["time_s"]) / 3600
        assert placed["cost_usd"] == pytest.approx(paid, rel=1e-9)
        cost += paid
    assert best.cost_usd_per_month == pytest.approx(cost, rel=1e-9)
    for other in done.alternatives:
        assert other.cost_usd_per_month >= best.cost_usd_per_month * (1 - 2e-4)


def test_the_time_of_a_training_job_is_that_of_train(done):
    scenario = {**JOBS, "reliability": {}, "batch_jobs": []}
    scenario["candidates"] = {**JOBS["candidates"], "devices": ["a100-sxm-80gb"], "counts": [1]}
    placed = accelsim.plan(scenario).recommended.placement[0]
    count = int(accelsim.PriceBook.load().find(placed["offer"]).offer.device_count)
    alone = accelsim.train(
        "bert-base",
        device="a100-sxm-80gb",
        gpus=count,
        global_batch=512,
        precision="bf16",
        length=accelsim.RunLength(samples=1e7),
        search=True,
    )
    assert placed["time_s"] == pytest.approx(alone.time_to_train_s)


def test_preemptions_make_spot_slower_and_less_sure(done):
    never = accelsim.plan({**JOBS, "reliability": {}}).recommended
    often = accelsim.plan({**JOBS, "reliability": {"spot_mtbf_hours": 0.2}}).recommended
    times = [
        {p["job"]: p["time_s"] for p in fleet.placement} for fleet in (never, done.recommended)
    ]
    assert never.cost_usd_per_month <= done.recommended.cost_usd_per_month
    assert done.recommended.cost_usd_per_month <= often.cost_usd_per_month
    assert times[0]["bert"] != times[1]["bert"]


def test_a_commitment_and_hardware_of_ones_own_are_paid_as_they_are(done):
    """A run on demand by the second, a month of a commitment whole, one's own by the hour used."""
    scenario = {**JOBS, "reliability": {}, "batch_jobs": []}
    node = {"name": "node", "device": "a100-sxm-40gb", "device_count": 8, "price_usd": 1000.0}
    node |= {"life_years": 4, "busy_power_w": 1000.0, "electricity_usd_per_kwh": 0.1}
    scenario["candidates"] = {
        **JOBS["candidates"],
        "devices": ["a100-sxm-40gb"],
        "providers": ["gcp"],
        "counts": [1],
        "kinds": ["on_demand", "committed_1y"],
        "owned": [{**node, "used_fraction": 0.5}],
    }
    plan = accelsim.plan(scenario)
    best = plan.recommended.placement[0]
    assert best["offer"] == "owned/site/node"
    usd_per_hour = (1000 / 4 / 8766 + 0.1 * 0.5) / 0.5
    assert best["cost_usd"] == pytest.approx(
        best["count"] * usd_per_hour * best["time_s"] / 3600, rel=1e-3
    )
    rows = {row["device"]: row for row in plan.candidates}
    assert rows["owned/site/node"]["status"] == "recommended"
    rented = rows["a100-sxm-40gb"]["cost_usd_per_month"]
    assert rented > plan.recommended.cost_usd_per_month
    committed = {**scenario["candidates"], "kinds": ["committed_1y"], "owned": []}
    bound = accelsim.plan({**scenario, "candidates": committed}).recommended
    price = accelsim.PriceBook.load().find(bound.offers[0].offer).instance_usd_per_hour
    assert bound.cost_usd_per_month == pytest.approx(bound.offers[0].count * price * 730.5)


@pytest.mark.parametrize(("providers", "words"), [(["gcp", "azure"], 1), (["azure"], 0)])
def test_prices_of_two_dates_are_flagged(providers, words):
    candidates = {"devices": ["t4"], "providers": providers}
    warnings = accelsim.plan({**SMALL, "candidates": candidates}).warnings
    assert sum("prices of 2024 and 2026" in warning for warning in warnings) == words


def test_less_time_costs_no_less_and_contradictions_are_named(done):
    fast = accelsim.plan({**JOBS, "objective": "time"}).recommended
    assert sum(p["time_s"] for p in fast.placement) <= sum(
        p["time_s"] for p in done.recommended.placement
    )
    assert fast.cost_usd_per_month >= done.recommended.cost_usd_per_month
    away = accelsim.plan({**JOBS, "constraints": {"residency": ["eu-*"]}})
    assert away.conflicts[0] == "constraints.residency"
    hasty = deepcopy(JOBS)
    hasty["batch_jobs"][0]["deadline_hours"] = 0.01
    assert accelsim.plan(hasty).conflicts == ("jobs.archive.deadline_s", "candidates.devices")


def test_instances_that_fail_need_others_beside_them():
    busy = {**SMALL, "services": [{**SMALL["services"][0], "requests_per_s": 1000.0}]}
    often = {**busy, "reliability": {"instance_mtbf_hours": 3, "repair_hours": 1}}
    found = accelsim.plan(often).recommended
    assert found.cost_usd_per_month > accelsim.plan(busy).recommended.cost_usd_per_month
    assert found.slo_probability >= 0.45  # the median, and enough up for 99 % of the time


def test_the_fastest_to_answer_costs_no_less(answered):
    fast = accelsim.plan({**SMALL, "objective": "latency"}).recommended
    assert fast.cost_usd_per_month >= answered.recommended.cost_usd_per_month


@settings(max_examples=12, deadline=None)
@given(
    model=st.sampled_from(["resnet-18", "mobilenet-v2"]),
    rate=st.floats(1, 1e5),
    limit_s=st.floats(1e-4, 10),
    devices=st.lists(st.sampled_from(["t4", "l4", "a10g", "graviton3"]), min_size=1, max_size=3),
    redundancy=st.integers(0, 2),
    budget=st.none() | st.floats(1, 1e6),
    discount=st.floats(0, 0.9),
    goal=st.sampled_from(["cost", "energy", "carbon", "latency"]),
)
def test_random_scenarios_are_answered_and_rise_with_load_and_price(
    model, rate, limit_s, devices, redundancy, budget, discount, goal
):
    """No crash, no negative figure; twice the load or a discount taken back is never cheaper."""
    service = {"name": "s", "model": model, "requests_per_s": rate, "latency_p99_s": limit_s}
    scenario = {
        "name": "random",
        "objective": goal,
        "services": [service],
        "candidates": {"devices": devices, "providers": ["aws"], "regions": ["us-east-1"]},
        "constraints": {"redundancy": redundancy, "budget_usd_per_month": budget},
    }
    best = accelsim.plan(scenario).recommended
    if best is None:
        return
    figures = [best.cost_usd_per_month, best.energy_j_per_month, best.carbon_kgco2e_per_month]
    assert all(figure is None or figure >= 0 for figure in figures)
    assert 0 <= best.slo_probability <= 1
    assert best.headroom_fraction >= -1e-6
    if goal != "cost" or budget is not None:
        return
    more = {**scenario, "services": [{**service, "requests_per_s": 2 * rate}]}
    cheaper = {**scenario["candidates"], "discounts": {"aws": discount}}
    less = {**scenario, "candidates": cheaper}
    planned = [best_cost(one) for one in (less, scenario, more)]
    assert planned[0] <= planned[1] * (1 + 2e-4)
    assert planned[1] <= planned[2] * (1 + 2e-4)


def best_cost(scenario):
    return accelsim.plan(scenario).recommended.cost_usd_per_month


def test_sensitivity_is_of_price_and_load_and_certainty_costs_no_less(answered):
    named = {row["parameter"] for row in answered.sensitivity}
    assert named == {"load_ratio", "price_ratio"}
    costs = [answered.recommended.cost_usd_per_month]
    costs += [row["cost_usd_per_month"] for row in answered.certainty]
    assert len(costs) == 3
    assert costs == sorted(costs)


def test_a_probability_that_is_asked_for_is_that_row_of_certainty(answered):
    """A scenario that asks for 90 % gets what the row for 90 % says."""
    asked = accelsim.plan(changed(slo_probability=0.9))
    row = answered.certainty[1]
    assert row["probability"] == 0.9
    assert asked.recommended.cost_usd_per_month == row["cost_usd_per_month"]
    assert asked.certainty == ()
    assert asked.recommended.slo_probability >= 0.9


def test_every_device_has_a_row_and_the_recommended_one_is_the_cheapest(answered):
    rows = {row["device"]: row for row in answered.candidates}
    assert rows.keys() == {"t4", "l4", "a10g"}
    cheapest = min(rows.values(), key=lambda row: row["cost_usd_per_month"])
    assert cheapest["status"] == "recommended"
    none = deepcopy(SMALL)
    none["candidates"]["devices"] = ["t4", "a10g"]
    none["services"][0]["latency_p99_ms"] = 0.3
    told = {row["device"]: row["status"] for row in accelsim.plan(none).candidates}
    assert all("for a request alone" in status for status in told.values())


def test_the_fastest_service_beside_a_job_has_the_cheapest_way_of_the_job():
    jobs = {**JOBS, "training_jobs": []}
    cheap = accelsim.plan(jobs).recommended.placement
    both = {**jobs, "services": SMALL["services"], "objective": "latency"}
    placement = accelsim.plan(both).recommended.placement
    assert [row["offer"] for row in placement if "job" in row] == [row["offer"] for row in cheap]
