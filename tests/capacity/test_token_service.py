"""Services of tokens: what a fleet needs is what `serve` finds, and follows the laws of a queue."""

import pytest

import accelsim
from accelsim.capacity.replica_answers import ReplicaLoad
from accelsim.capacity.scenario import load_scenario
from accelsim.capacity.token_service import TokenAnswer, service_answers
from accelsim.errors import ProfileError
from accelsim.serving.find import find

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
            "tp": 1,
        }
    ],
    "candidates": {"devices": ["t4", "l4"], "providers": ["aws"], "regions": ["us-east-1"]},
}


@pytest.fixture(scope="module")
def answer():
    (found,) = service_answers(load_scenario(CHAT).services[0], "l4", 0)
    return found


def test_more_replicas_are_needed_of_slower_steps_and_of_more_load(answer):
    assert isinstance(answer, TokenAnswer)
    counts = [answer.needed(ReplicaLoad(60.0, z)) for z in (0.0, 0.5, 1.5)]
    assert counts == sorted(counts)
    assert answer.fewest(ReplicaLoad(60.0)) <= counts[0]
    loads = [answer.needed(ReplicaLoad(rate)) for rate in (20.0, 60.0, 240.0)]
    assert loads == sorted(loads)
    assert answer.needed(ReplicaLoad(60.0, 20.0)) is None


def test_the_replicas_are_those_that_serve_finds_and_no_fewer_hold(answer):
    slo = accelsim.SloTargets(0.3, 0.025, None, 0.99)
    load = accelsim.Arrivals(rate_per_s=60.0, prompt="200", output="lognormal:60:0.5")
    options = accelsim.ServingOptions(slo=slo)
    found = find("min-replicas", "gpt2", "l4", load, options)
    asked = ReplicaLoad(60.0)
    assert answer.needed(asked) == found.value
    assert answer.holds(int(found.value), asked, asked)
    if found.value > 1:
        assert not answer.holds(int(found.value) - 1, asked, asked)


def test_a_service_of_agents_needs_what_its_steps_need(answer):
    """Sessions of one step are requests; those of four need more, and four times the tokens."""

    def of_sessions(**more):
        service = CHAT["services"][0] | more
        (found,) = service_answers(
            load_scenario(CHAT | {"services": [service]}).services[0], "l4", 0
        )
        return found

    asked = ReplicaLoad(60.0)
    alone, steps = of_sessions(session="steps=1"), of_sessions(session="steps=4,tool=50")
    assert alone.needed(asked) == answer.needed(asked)
    assert alone.mean_tokens == answer.mean_tokens
    assert alone.dynamic_j(asked) == pytest.approx(answer.dynamic_j(asked))
    assert steps.needed(asked) >= steps.fewest(asked) > answer.fewest(asked)
    assert steps.mean_tokens[1] == pytest.approx(4 * answer.mean_tokens[1], rel=0.1)
    of_trace = {"trace": "t.csv", "prompt": None, "output": None, "session": "steps=2"}
    scenario = CHAT | {"services": [CHAT["services"][0] | of_trace]}
    with pytest.raises(ProfileError, match="leave session out"):
        load_scenario(scenario)


def test_the_finalist_holds_its_limits():
    plan = accelsim.plan(CHAT)
    best = plan.recommended
    assert best.slo_probability >= 0.5
    assert "with first tokens within 300 ms and with a token every 25 ms" in plan.reason
    assert "99 %" in plan.reason
    tight = {**CHAT, "services": [{**CHAT["services"][0], "tpot_p99_ms": 0.01}]}
    none = accelsim.plan(tight)
    assert none.conflicts[0] == "services.chat.tpot_p99_s"
    assert none.near_misses[0]["needed"] > 1e-5
