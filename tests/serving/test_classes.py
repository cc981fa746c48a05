"""Classes of service: targets, priorities and figures of their own."""

import numpy as np
import pytest

import accelsim
from accelsim import Arrivals, ServingOptions, SloTargets
from accelsim.errors import InvalidValueError
from accelsim.serving.loads.requests import RequestColumns
from accelsim.serving.options import ServiceClass
from accelsim.serving.schedulers.base import PriorityQueue
from accelsim.serving.schedulers.continuous import ContinuousBatching
from accelsim.serving.schedulers.limits import BatchLimits, JoinRule

from .scenarios import random_columns, run_fleet, table_steps

SHORT = {"prompt": "lognormal:200:0.5", "output": "20"}
URGENT, PATIENT = ServiceClass("urgent", 0.3, 0, ttft_s=0.1), ServiceClass("patient", 0.7, 1)


def serve(load, **more):
    return accelsim.serve("llama-3.1-8b", "h100-sxm-80gb", load, intervals=False, **more)


def test_one_class_alone_is_no_classes():
    load, slo = Arrivals(rate_per_s=60, requests=200, **SHORT), SloTargets(ttft_s=0.05)
    plain = serve(load, slo=slo, max_seqs=8)
    alone = serve(load, slo=slo, max_seqs=8, classes=(ServiceClass("all", priority=7),))
    (row,) = alone.classes
    assert alone.figures() == plain.figures() | {"classes": (row,)}
    for name in ("requests", "completed", "goodput_requests_per_s", "ttft_s", "e2e_s"):
        assert row[name] == plain.figures()[name]
    assert 0 < row["slo_attainment_fraction"] == plain.slo_attainment_fraction < 1


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm", "static"])
@pytest.mark.parametrize(
    "more", [{"max_seqs": 8}, {"kv_blocks": 200}, {"max_seqs": 8, "replicas": 2}]
)
def test_the_first_class_waits_no_longer_than_without_classes(engine, more):
    load = Arrivals(rate_per_s=80, requests=300, prompt="lognormal:200:0.5", output="100")
    if engine == "static":
        more = {name: value for name, value in more.items() if name != "kv_blocks"}
    plain = serve(load, engine=engine, **more).to_requests()
    result = serve(load, engine=engine, classes=(URGENT, PATIENT), **more)
    first = result.to_requests().service_class == "urgent"
    before_s = (plain.first_token_s - plain.arrival_s)[first].mean()
    assert result.classes[0]["ttft_s"]["mean"] <= 1.02 * before_s
    waits = [row["ttft_s"]["mean"] for row in result.classes]
    assert waits[0] < waits[1]


def test_classes_add_up():
    load = Arrivals(rate_per_s=60, requests=400, **SHORT)
    result = serve(load, max_seqs=8, classes=(URGENT,), slo=SloTargets(e2e_s=2.0))
    urgent, other = result.classes
    assert (other["name"], other["priority"]) == ("other", 1)
    assert urgent["requests"] + other["requests"] == result.requests == 400
    assert urgent["requests"] / 400 == pytest.approx(0.3, abs=0.07)
    met = [row["slo_attainment_fraction"] * row["requests"] for row in result.classes]
    assert sum(met) == pytest.approx(400 * result.slo_attainment_fraction)
    good = sum(row["goodput_requests_per_s"] for row in result.classes)
    assert good == pytest.approx(result.goodput_requests_per_s)
    frame = result.to_requests()
    own = frame[frame.service_class == "urgent"]
    in_time = (own.first_token_s - own.arrival_s <= 0.1) & (own.finish_s - own.arrival_s <= 2.0)
    assert urgent["slo_attainment_fraction"] == pytest.approx(in_time.mean())


def test_a_class_without_targets_has_no_goodput():
    result = serve(Arrivals(rate_per_s=20, requests=60, **SHORT), classes=(URGENT, PATIENT))
    assert result.classes[0]["goodput_requests_per_s"] > 0
    assert result.classes[1]["goodput_requests_per_s"] is None
    assert result.classes[1]["slo_attainment_fraction"] is None


def test_all_turns_of_a_session_are_of_one_class():
    load = Arrivals(rate_per_s=4, requests=60, turns=3, **SHORT)
    classes = serve(load, classes=(URGENT, PATIENT)).to_requests().service_class
    turns = classes.to_numpy().reshape(3, 20)
    assert (turns == turns[0]).all()
    assert len(set(turns[0])) == 2


def test_the_last_class_is_put_back_first():
    def finish_s(priority):
        both = np.array([0.0, 1e-4]), np.array([100, 100]), np.array([60, 60])
        columns = RequestColumns(*both, priority=None if priority is None else np.array(priority))
        limits = BatchLimits(blocks=16)
        log, fleet = run_fleet(columns, lambda log: ContinuousBatching(log, table_steps(), limits))
        assert fleet.replicas[0].tally.preemption_count
        assert fleet.replicas[0].used_blocks == 0
        return log.column("finish_s")

    for first_comes_first in (None, [3, 3], [0, 1]):
        first, second = finish_s(first_comes_first)
        assert first < second
    first, second = finish_s([1, 0])
    assert second < first


@pytest.mark.parametrize("join", [JoinRule(), JoinRule(ahead=True)])
@pytest.mark.parametrize("blocks", [30, 1 << 20])
def test_equal_priorities_are_first_come_first_served(join, blocks):
    limits = BatchLimits(blocks=blocks, max_seqs=16, join=join)

    def times(**more):
        queue = PriorityQueue([0] * 150) if more else None
        columns = random_columns(3, 150, **more)
        log, fleet = run_fleet(
            columns, lambda log: ContinuousBatching(log, table_steps(), limits, queue=queue)
        )
        return log.column("finish_s"), fleet.replicas[0].tally.preemption_count

    plain, ranked = times(), times(priority=np.zeros(150, dtype=int))
    np.testing.assert_allclose(ranked[0], plain[0], rtol=1e-9)
    assert ranked[1] == plain[1]
    assert bool(plain[1]) == (blocks == 30)


def test_what_has_not_been_seen_is_not_sorted():
    queue = PriorityQueue([2, 1, 0])
    for request in range(3):
        queue.hold(request)
    queue.see(1)
    assert (len(queue), queue.popleft(), queue.popleft()) == (3, 1, 0)
    queue.see(0)
    assert queue.popleft() == 2


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ((ServiceClass("a", 0.6), ServiceClass("b", 0.6)), r"class share = 1\.2"),
        ((ServiceClass("a", 0.2), ServiceClass("a", 0.6)), "class name"),
        ((ServiceClass("other", 0.2),), "class name"),
    ],
)
def test_classes_that_are_none_are_refused(classes, message):
    with pytest.raises(InvalidValueError, match=message):
        ServingOptions(classes=classes)


def test_a_class_has_no_target_of_nothing():
    with pytest.raises(InvalidValueError, match=r"ttft_s = 0\.0"):
        ServiceClass("a", ttft_s=0.0)
