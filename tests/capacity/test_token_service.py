"""Services of tokens: what a replica carries is simulated, and follows the laws of a queue."""

from dataclasses import replace

import numpy as np
import pytest

import accelsim
from accelsim.capacity.scenario import load_scenario
from accelsim.capacity.token_service import TokenAnswer, service_answer

CHAT = {
    "name": "chat",
    "services": [
        {
            "name": "chat",
            "model": "gpt2",
            "requests_per_s": 60.0,
            "prompt": "200",
            "output": "lognormal:60:0.5",
            "ttft_p99_ms": 300,
            "tpot_p99_ms": 25,
        }
    ],
    "candidates": {"devices": ["t4", "l4"], "providers": ["aws"], "regions": ["us-east-1"]},
    "draws": 4,
}


def generator():
    return np.random.default_rng(1)


@pytest.fixture(scope="module")
def answer():
    return service_answer(load_scenario(CHAT).services[0], "l4")


def test_what_is_carried_is_below_the_bound_and_falls_with_slower_steps(answer):
    assert isinstance(answer, TokenAnswer)
    rates = [answer.carried_per_s(factor, generator()) for factor in (1.0, 1.5, 50.0)]
    assert 0 < rates[0] <= answer.bound_per_s(1.0)
    assert rates[0] >= rates[1] >= rates[2] == 0.0
    late = [answer.late_share(rates[0] * x, 1.0, 1.0, generator()) for x in (0.5, 1.0, 2.0)]
    assert late == sorted(late)
    assert late[1] <= 0.01 < late[2]


def test_late_requests_are_those_that_serve_finds(answer):
    seed = int(generator().integers(2**31))
    load = replace(answer.load, rate_per_s=30.0, requests=1000)
    slo = accelsim.SloTargets(0.3, 0.025, None, 0.99)
    found = accelsim.serve("gpt2", "l4", load, slo=slo, seed=seed, intervals=False)
    late = answer.late_share(30.0, 1.0, 1.0, generator())
    assert late == pytest.approx(1 - found.slo_attainment_fraction, abs=1e-12)


def test_the_finalist_holds_its_limits_in_the_draws():
    plan = accelsim.plan(CHAT)
    best = plan.recommended
    assert best.slo_probability >= 0.9
    assert "with first tokens within 300 ms and with a token every 25 ms" in plan.reason
    tight = {**CHAT, "services": [{**CHAT["services"][0], "tpot_p99_ms": 0.01}]}
    assert accelsim.plan(tight).conflicts[0] == "services.chat.ttft_p99_s"
