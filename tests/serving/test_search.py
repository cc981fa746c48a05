"""Search for the cheapest way to serve: what is scored agrees with what is simulated."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import accelsim
from accelsim.errors import InvalidValueError, UnknownNameError
from accelsim.serving import find as finding
from accelsim.serving import layouts
from accelsim.serving.find import find
from accelsim.serving.loads.arrivals import Arrivals
from accelsim.serving.options import PrefillOptions, ServingOptions, SloTargets
from accelsim.serving.search import search
from accelsim.serving.search_space import SearchSpace
from accelsim.simulation.randomness import RandomStreams

#: Requests of one length would march together: all prompts in one step, none beside decoding.
LOAD = Arrivals(users=1, requests=200, prompt="uniform:300-500", output="uniform:75-125")
SPACE = SearchSpace(
    devices=("h100-sxm-80gb", "l4", "t4"),
    tp=(1, 16),
    max_seqs=(8, 32),
    max_batch_tokens=(2048,),
    together=True,
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
    monkeypatch.setattr(layouts, "RANKS", ranks)
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


SPLIT = SearchSpace(
    devices=("h100-sxm-80gb",), tp=(1, 2), max_seqs=(32, 128), max_batch_tokens=(2048, 8192)
)


@pytest.fixture(scope="module")
def split():
    return search("llama-3.1-8b", LOAD, ServingOptions(), SPLIT, simulate=3).to_frame()


def test_prompts_apart_are_ranked_beside_replicas_that_do_all(split):
    apart = split[split["prefill_replicas"] > 0]
    assert len(apart) == 2 * 2 * 3 * 4  # ranks of prompts, of further tokens, replicas, limits
    assert len(split) - len(apart) == 2 * 4
    devices = apart["replicas"] * apart["tp"] + apart["prefill_replicas"] * apart["prefill_tp"]
    assert (devices == apart["devices"]).all()
    whole = split[(split["prefill_replicas"] == 0) & (split["tp"] == 1)]
    same = apart[(apart["tp"] == 1) & (apart["prefill_tp"] == 1)]
    for limits, rows in same.groupby(["max_seqs", "max_batch_tokens"]):
        beside = whole[(whole["max_seqs"] == limits[0]) & (whole["max_batch_tokens"] == limits[1])]
        assert (rows["stall_s"] < beside["stall_s"].iloc[0]).all()  # no prompt between two tokens


def test_split_layouts_serve_what_the_simulator_serves(split):
    apart = split[(split["prefill_replicas"] > 0) & (split["max_seqs"] == 32)]
    row = apart.sort_values("cost_usd_per_million_tokens").iloc[0]
    prompts = PrefillOptions(replicas=int(row["prefill_replicas"]), tp=int(row["prefill_tp"]))
    users = int(row["sequences"] * row["replicas"] + row["prefill_replicas"])
    done = accelsim.serve(
        "llama-3.1-8b",
        "h100-sxm-80gb",
        Arrivals(users=users, prompt="400", output="100"),
        ServingOptions(
            replicas=int(row["replicas"]), tp=int(row["tp"]), max_seqs=32, prefill=prompts
        ),
        intervals=False,
    )
    assert row["tpot_s"] == pytest.approx(done.tpot_s["p50"], rel=0.15)
    assert row["tokens_per_s"] == pytest.approx(done.output_tokens_per_s, rel=0.2)
    assert done.devices == row["devices"]


def test_a_rate_takes_as_many_replicas_of_both_kinds_as_it_needs():
    load = Arrivals(rate_per_s=30, requests=300, prompt="2000", output="50")
    space = SearchSpace(
        devices=("h100-sxm-80gb",), tp=(1,), max_seqs=(64,), max_batch_tokens=(8192,)
    )
    found = search("llama-3.1-8b", load, space=space, simulate=2)
    frame = found.to_frame()
    apart = frame[frame["prefill_replicas"] > 0]
    assert (apart["prefill_replicas"] > 1).all()
    assert {row["prefill_tp"] for row in found.simulated} == {0, 1}
    fewer = search(
        "llama-3.1-8b", load, space=replace(space, most_devices=int(frame["devices"].min()))
    )
    assert fewer.rejected["more devices than there may be"] > 0


def test_no_split_is_asked_for_where_it_is_not_wanted():
    space = replace(SPLIT, together=True)
    found = search("llama-3.1-8b", LOAD, space=space, simulate=1)
    assert found.considered_count == 2 * 4
    assert not found.to_frame()["prefill_replicas"].any()
    with pytest.raises(UnknownNameError):
        search("llama-3.1-8b", LOAD, space=replace(SPLIT, kv_link="string"), simulate=1)
    with pytest.raises(InvalidValueError, match="most_devices"):
        SearchSpace(most_devices=0)
