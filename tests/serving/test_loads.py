"""Loads of every kind run to their end, and figures carry the error of their step times."""

import math

import numpy as np
import pytest

import accelsim
from accelsim import Arrivals
from accelsim.confidence.quantiles import Z90
from accelsim.serving.loads.requests import RequestColumns, RequestLog
from accelsim.serving.replicas.fleet import ArrivalQueue, ReplicaFleet
from accelsim.serving.replicas.routers import ROUTERS
from accelsim.serving.trust import ServedRun
from accelsim.simulation.randomness import RandomStreams

PAIR = ("llama-3.1-8b", "h100-sxm-80gb")
SHORT = {"prompt": "lognormal:200:0.5", "output": "20"}


def serve(load, **more):
    return accelsim.serve(*PAIR, load, intervals=False, **more)


def test_users_have_one_request_each():
    result = serve(Arrivals(users=5, requests=60, think_s=0.1, **SHORT))
    assert result.completed == 60
    frame = result.to_requests().sort_values("arrival_s")
    inside = [
        ((frame.arrival_s <= moment) & (frame.finish_s > moment)).sum()
        for moment in frame.arrival_s
    ]
    assert max(inside) <= 5


def test_turns_of_a_session_follow_each_other_and_share_their_past():
    load = Arrivals(rate_per_s=4, requests=60, turns=3, **SHORT)
    result, plain = serve(load), serve(load, prefix_cache=False)
    assert result.completed == plain.completed == 60
    frame = result.to_requests()
    first, second = frame[:20].reset_index(), frame[20:40].reset_index()
    assert (second.arrival_s >= first.finish_s).all()
    assert (second.prompt_tokens > first.prompt_tokens + first.output_tokens).all()
    assert result.ttft_s["mean"] < plain.ttft_s["mean"]


@pytest.mark.parametrize("router", ROUTERS)
def test_routers_serve_all(router):
    load = Arrivals(rate_per_s=40, requests=200, prefixes=8, prefix_tokens=256, **SHORT)
    result = serve(load, replicas=3, router=router)
    assert result.completed == 200
    assert result.to_json() == serve(load, replicas=3, router=router).to_json()


@pytest.mark.parametrize("process", ["poisson", "gamma", "uniform", "diurnal"])
def test_processes_have_their_rate(process):
    load = Arrivals(rate_per_s=10, requests=20_000, process=process, period_s=100)
    times = load.columns(RandomStreams(1)).arrival_s
    assert len(times) / times[-1] == pytest.approx(10, rel=0.05)
    gaps = np.diff(times)
    expected = {"poisson": 1.0, "gamma": 2.0, "uniform": 0.0}
    if process in expected:
        assert gaps.std() / gaps.mean() == pytest.approx(expected[process], abs=0.1)


def test_figures_carry_the_error_of_their_step_times():
    result = accelsim.serve(*PAIR, Arrivals(rate_per_s=8, requests=100, **SHORT))
    for name in ("ttft_s.mean", "tpot_s.p50", "e2e_s.p99", "energy_j"):
        metric = result.metrics[name]
        assert metric.low < metric.value < metric.high
        assert metric.level == 0.9


@pytest.mark.parametrize("rate_per_s", [1, 3, 8])
def test_rounding_is_no_interval(rate_per_s):
    result = accelsim.serve(*PAIR, Arrivals(rate_per_s=rate_per_s, requests=30, **SHORT))
    price = result.metrics["cost_usd_per_month"]  # the same however long a step takes
    assert price.value > 0
    assert price.low is None


def test_an_interrupted_run_keeps_what_has_ended(monkeypatch):
    def stop(came, now_s):
        raise KeyboardInterrupt

    monkeypatch.setattr("accelsim.serving.replicas.fleet._PROGRESS_EVERY", 50)
    result = serve(Arrivals(rate_per_s=50, requests=200, **SHORT), progress=stop)
    assert 0 < result.completed < 50
    assert result.requests == 50
    assert "interrupted" in result.warnings[0]
    assert result.to_json()


def test_an_interrupted_probe_of_a_search_is_no_answer(monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("accelsim.serving.replicas.fleet.ReplicaFleet._run", stop)
    with pytest.raises(KeyboardInterrupt):
        serve(Arrivals(rate_per_s=50, requests=200, **SHORT))


def test_an_arrival_queue_is_in_order():
    log = RequestLog(RequestColumns(np.array([0.0, 1.0, 2.0]), np.ones(3, int), np.ones(3, int)))
    queue = ArrivalQueue(log)
    assert [(queue.next_s, queue.pop()) for _ in range(3)] == [(0.0, 0), (1.0, 1), (2.0, 2)]
    assert queue.next_s == float("inf")
    assert isinstance(ReplicaFleet(log, [], None, queue), ReplicaFleet)


def test_waiting_is_sure_where_there_is_little_to_do_and_open_near_what_is_served_at_most(
    monkeypatch,
):
    """Both ends of the steps' spread go through the queue: a light load's first tokens are as sure
    as its steps, and so are the rate and the price of a load that is served at both ends.
    """
    spreads = {"ttft": 0.3, "tpot": 0.25}
    monkeypatch.setattr(ServedRun, "log_sigma", lambda _, figure: spreads.get(figure, 0.0))
    widths = []
    for rate in (2.0, 10.0, 18.0, 22.0):
        load = Arrivals(rate_per_s=rate, requests=1500, prompt="600", output="160")
        metrics = accelsim.serve(*PAIR, load, max_seqs=32).metrics
        first = metrics["ttft_s.p90"]
        widths.append(first.high / first.low)
        assert first.low < first.value < first.high
        if rate == 2.0:
            for name in ("throughput_requests_per_s", "cost_usd_per_1000_requests"):
                through = metrics[name]
                assert through.high is None or through.high / through.low < 1.02
    assert widths[0] < math.exp(2 * Z90 * spreads["ttft"]) * 1.05
    assert widths == sorted(widths)
    assert widths[-1] > 3 * widths[0]


@pytest.mark.parametrize("users", [0, 2])
def test_requests_reach_the_scheduler_late_and_in_the_order_they_came(users):
    lengths = np.array([300, 100, 100, 200]), np.ones(4, dtype=int)
    log = RequestLog(RequestColumns(np.array([0.0, 1.0, 2.5, 9.0]), *lengths))
    queue = ArrivalQueue(log, users, lambda tokens: tokens / 100.0)
    came = [(queue.next_s, queue.pop()) for _ in range(2)]
    if not users:  # the second is done with its prompt first and waits for the one before it
        assert came == [(3.0, 0), (3.0, 1)]
        assert [(queue.next_s, queue.pop()), (queue.next_s, queue.pop())] == [(3.5, 2), (11.0, 3)]
        return
    assert came == [(1.0, 1), (3.0, 0)]
    queue.note_end(1, 5.0)
    assert queue.next_s == 6.0
    assert log.arrival_s[2] == 5.0  # the user's own
