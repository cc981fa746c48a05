"""Search for the cheapest way to serve: what is scored agrees with what is simulated."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import accelsim
from accelsim.errors import InvalidValueError, UnknownNameError
from accelsim.serving import find as finding
from accelsim.serving.find import find
from accelsim.serving.loads.arrivals import Arrivals
from accelsim.serving.options import ServingOptions, SloTargets
from accelsim.serving.search import SearchSpace, search
from accelsim.simulation.randomness import RandomStreams

#: Requests of one length would march together: all prompts in one step, none beside decoding.
LOAD = Arrivals(users=1, requests=200, prompt="uniform:300-500", output="uniform:75-125")
SPACE = SearchSpace(
    devices=("h100-sxm-80gb", "l4", "t4"), tp=(1, 16), max_seqs=(8, 32), max_batch_tokens=(2048,)
)


@pytest.fixture(scope="module")
def found():
    return search("llama-3.2-3b", LOAD, ServingOptions(slo=SloTargets(tpot_s=0.5)), SPACE)


def test_every_configuration_is_scored_or_counted(found):
    frame = found.to_frame()
    assert found.considered_count == 3 * 2 * 2
    assert len(frame) + sum(found.rejected.values()) == found.considered_count
    assert found.rejected


def test_full_batches_are_what_the_simulator_gives(found):
    for row in found.simulated:
        assert row["tpot_s"] == pytest.approx(row["simulated_tpot_s"], rel=0.15)
        assert row["meets_targets"]


def test_nothing_beats_the_front(found):
    frame = found.to_frame()
    goals = ["cost_usd_per_million_tokens", "tpot_s"]
    for row in found.pareto:
        own = np.array([row[goal] for goal in goals])
        beaten = (frame[goals].to_numpy() < own * (1 - 1e-5)).all(axis=1)
        assert not beaten.any()
    cost = [row[goals[0]] for row in found.pareto]
    assert cost == sorted(cost)


def test_the_best_is_the_cheapest_simulated(found):
    least = min(row["simulated_usd_per_million_tokens"] for row in found.simulated)
    assert found.best["simulated_usd_per_million_tokens"] == least
    assert found.to_dict()["best"]["device"] in SPACE.devices


def test_a_rate_takes_as_many_replicas_as_it_needs():
    load = Arrivals(rate_per_s=40, requests=400, prompt="400", output="100")
    space = SearchSpace(devices=("l4",), tp=(1,), max_seqs=(32,), max_batch_tokens=(2048,))
    found = search("llama-3.2-3b", load, space=space, simulate=1)
    assert found.best["replicas"] >= found.pareto[0]["replicas"] > 1


def test_a_trace_is_searched_at_its_own_rate():
    trace = Arrivals(rate_per_s=40, requests=400, prompt="400", output="100")
    trace = trace.columns(RandomStreams(0))
    space = SearchSpace(devices=("l4",), tp=(1,), max_seqs=(32,), max_batch_tokens=(2048,))
    found = search("llama-3.2-3b", trace, space=space, simulate=1)
    assert found.best["replicas"] == found.best["devices"] > 1
    assert found.best["tokens_per_s"] == pytest.approx(100 * trace.rate_per_s)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"space": SearchSpace(devices=("nothing",))}, UnknownNameError),
        ({"space": SearchSpace(devices=("t4",), precisions=("fp3",))}, UnknownNameError),
        (
            {"options": ServingOptions(slo=SloTargets(tpot_s=1e-9)), "space": SPACE},
            InvalidValueError,
        ),
        ({"simulate": 0}, InvalidValueError),
    ],
)
def test_what_cannot_be_searched(changes, error):
    with pytest.raises(error):
        search("llama-3.2-3b", LOAD, **changes)


RATE = Arrivals(rate_per_s=6, requests=300, prompt="lognormal:300:0.7", output="lognormal:80:0.6")
SLO = SloTargets(ttft_s=0.5, tpot_s=0.02)


def test_the_cheapest_is_that_of_every_layout_tried(monkeypatch):
    """Within 5 % of exhaustive search, and not below its own bound."""
    ranks, price = (1, 2), 3.0
    monkeypatch.setattr(finding, "_RANKS", ranks)
    asked = ("llama-3.1-8b", "h100-sxm-80gb")
    found = find("cheapest", *asked, RATE, ServingOptions(slo=SLO), usd_per_hour=price)
    costs = []
    for tp, replicas in product(ranks, (1, 2)):
        options = ServingOptions(slo=SLO, tp=tp, replicas=replicas)
        result = accelsim.serve(*asked, RATE, options, intervals=False, usd_per_hour=price)
        if result.slo_attainment_fraction >= SLO.attainment_fraction:
            costs.append(price * tp * replicas)
    assert found.value <= 1.05 * min(costs)
    assert found.bound <= found.value


def test_the_limits_are_as_good_as_any_tried(monkeypatch):
    """Within 5 % of exhaustive search, with no more memory than asked."""
    seqs, tokens = (8, 24, 64, 128), (2048, 8192)
    monkeypatch.setattr(finding, "_SEQS", seqs)
    monkeypatch.setattr(finding, "_TOKENS", tokens)
    slo = SloTargets(ttft_s=0.4, tpot_s=0.03)
    load = Arrivals(rate_per_s=9, requests=300, prompt=RATE.prompt, output=RATE.output)
    asked = ("llama-3.1-8b", "l40s")
    found = find("limits", *asked, load, ServingOptions(slo=slo))
    shares = []
    for most, step in product(seqs, tokens):
        options = ServingOptions(slo=slo, max_seqs=most, max_batch_tokens=step)
        result = accelsim.serve(*asked, load, options, intervals=False)
        shares.append(result.slo_attainment_fraction)
    assert found.value >= 0.95 * max(shares)
    assert max(shares) > min(shares)
    assert found.result.inputs["options"]["memory_fraction"] <= 0.9
    assert "sequences" in found.sentence
