"""Fleets that change: parts on pools of their own, scaling, outages, admission; nothing is lost."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelsim.errors import InvalidValueError
from accelsim.serving.curves import paid_s
from accelsim.serving.loads.requests import RequestColumns, RequestLog
from accelsim.serving.replicas.autoscaling import Autoscaler, ScalingPolicy
from accelsim.serving.replicas.fleet import ArrivalQueue, ReplicaFleet
from accelsim.serving.replicas.outages import OutagePolicy, Outages
from accelsim.serving.replicas.pools import PoolRouter, ReplicaPool, Route
from accelsim.serving.replicas.routers import router
from accelsim.serving.replicas.tally import Tally
from accelsim.serving.replicas.transfers import CacheLink, Transfers
from accelsim.serving.schedulers.continuous import ContinuousBatching
from accelsim.serving.schedulers.limits import BatchLimits
from accelsim.serving.steps.combined_steps import PipelinedSteps, SpeculativeSteps
from accelsim.workloads.cache import CacheLayer, SequenceCache

from .scenarios import cases, random_columns, table_steps

STEPS = table_steps(1)
TOKEN_S = 1e-5
LINK = CacheLink(1e-3, 1e9, SequenceCache((CacheLayer(math.inf, 1e9 * TOKEN_S),)))
KINDS_OF_STEPS = (STEPS, SpeculativeSteps(STEPS, 2.5, 4), PipelinedSteps(STEPS, 2, 256))


def build(columns, *, parts=1, replicas=2, limits=None, most=None, start_s=0.0, blocks=4000):
    """A fleet of one pool, or of one for prompts and one for further tokens."""
    limits = limits or BatchLimits(blocks=blocks, max_tokens=512, max_seqs=32)
    log = RequestLog(columns)

    def maker(own, **more):
        return lambda: ContinuousBatching(own, STEPS, limits, **more)

    if parts == 1:
        pools = [ReplicaPool(maker(log), start_s)]
    else:
        pools = [
            ReplicaPool(maker(log.of_prompts())),
            ReplicaPool(maker(log, comes_cached=True), start_s),
        ]
    made = []
    for pool in pools:
        for _ in range(replicas):
            pool.members.append(len(made))
            pool.live.append(len(made))
            made.append(pool.make())
    routes = [Route([pool], router("least-outstanding", log, None), most) for pool in pools]
    choice = PoolRouter(log, routes[:1], [routes[1] if parts == 2 else None])
    fleet = ReplicaFleet(log, made, choice, ArrivalQueue(log))
    if parts == 2:
        moves = Transfers(log, choice, [(pools[0], LINK)])
        fleet.controls.append(moves)
        fleet.handover = moves.take
    choice.refresh(fleet)
    return log, fleet, pools, choice


def paid_time_s(fleet, index):
    """Seconds that a replica is paid in the whole run."""
    return float(paid_s(fleet, index, np.array([0.0, fleet.now_s]))[0])


def check(log, fleet):
    """All requests ended in order, and no replica holds anything."""
    done = np.isfinite(log.column("finish_s"))
    assert done.sum() + len(log.rejected) == len(log)
    start, first, finish = (
        log.column(name)[done] for name in ("scheduled_s", "first_token_s", "finish_s")
    )
    assert (log.column("arrival_s")[done] <= start).all()
    assert (start < first).all()
    assert (first <= finish).all()
    assert not fleet.held_count
    assert not fleet.parked_count
    for replica in fleet.replicas:
        assert replica.outstanding == replica.used_blocks == 0


@pytest.mark.law
@cases(20)
@given(st.integers(0, 1000), st.sampled_from([5.0, 200.0]), st.sampled_from([30, 4000]))
def test_prompts_and_further_tokens_on_pools_of_their_own(seed, rate, blocks):
    columns = random_columns(seed, 40, rate=rate, longest=100)
    log, fleet, pools, _ = build(columns, parts=2, blocks=blocks)
    fleet.run()
    check(log, fleet)
    many = log.column("output_tokens") > 1
    waits = (log.column("finish_s") - log.column("first_token_s"))[many]
    moved = LINK.latency_s + TOKEN_S * log.column("prompt_tokens")[many]
    assert (waits > moved).all()
    prompts, further = ([fleet.replicas[p] for p in pool.members] for pool in pools)
    preempted = sum(one.tally.preemption_count for one in fleet.replicas)
    if not preempted:
        assert not sum(one.tally.prompt_tokens for one in further)
        computed = sum(one.tally.prompt_tokens for one in prompts)
        assert computed == log.column("prompt_tokens").sum()
        gaps = sum(one.tally.gap_count.sum() for one in fleet.replicas)
        assert gaps == pytest.approx((log.column("output_tokens") - 1).sum())


def test_the_first_token_leaves_with_the_cache_that_has_moved():
    columns = RequestColumns(np.zeros(1), np.array([1000]), np.array([3]))
    log, fleet, pools, _ = build(columns, parts=2)
    fleet.run()
    gap_s, weight = fleet.replicas[pools[1].members[0]].tally.gaps()
    total = (gap_s * weight).sum()
    assert total == pytest.approx(log.finish_s[0] - log.first_token_s[0], rel=1e-9)
    alone, apart, _, _ = build(columns)
    apart.run()
    moved_s = log.first_token_s[0] - alone.first_token_s[0]
    assert moved_s == pytest.approx(LINK.time_s(1000), rel=1e-9)


@pytest.mark.law
@cases(15)
@given(st.integers(0, 1000), st.booleans(), st.sampled_from([1, 2]))
def test_losses_lose_no_request(seed, is_spot, parts):
    columns = random_columns(seed, 60, rate=20.0, longest=100)
    log, fleet, pools, choice = build(columns, parts=parts, start_s=0.5)
    policy = OutagePolicy(0.4, 0.05 * is_spot, is_spot=is_spot)
    losses = Outages(policy, pools[-1], choice, np.random.default_rng(seed))
    fleet.controls.append(losses)
    fleet.run()
    check(log, fleet)
    assert pools[-1].lost or log.finish_s[0] < 5
    paid = [paid_time_s(fleet, index) for index in pools[-1].members]
    assert all(time_s <= fleet.now_s * (1 + 1e-12) for time_s in paid)
    if not is_spot:
        assert paid == pytest.approx([fleet.now_s] * len(paid))


def test_a_lost_batch_keeps_its_time_and_energy():
    tally = Tally()
    tally.rows = [(50.0, 100.0, 1, 1, 2, 0.0, 50.0), (1.0, 7.0, 1, 1, 0, 0.0, 3.0)]  # lost at 2 s
    tally.close()
    assert tally.busy_s == pytest.approx(51.0)
    assert tally.energy_j == pytest.approx(107.0)
    assert tally.block_s == pytest.approx(100.0)


@pytest.mark.parametrize(
    ("metric", "target"), [("queue", 4.0), ("utilisation", 0.5), ("ttft", 0.01), ("itl", 0.007)]
)
def test_replicas_come_with_the_load_after_their_start_and_go_with_it(metric, target):
    rng = np.random.default_rng(3)
    times = np.sort(np.concatenate([rng.uniform(100, 200, 3000), rng.uniform(0, 1000, 300)]))
    lengths = rng.integers(1, 60, (2, len(times)))
    log, fleet, pools, choice = build(RequestColumns(times, *lengths), replicas=1, start_s=20.0)
    policy = ScalingPolicy(metric, target, 1, 8, interval_s=5.0, hold_s=30.0)
    scaler = Autoscaler(policy, pools[0], choice, 0.05)
    fleet.controls.append(scaler)
    fleet.run()
    check(log, fleet)
    assert 0 < pools[0].removed <= pools[0].started
    first = scaler.changes[0][0]
    assert 100 <= first <= 130
    begun = [log.scheduled_s[r] for r in range(len(log))]
    used = [one for one in fleet.replicas[1:] if one.tally.step_count]
    assert used
    assert min(spans[0][0] for spans in fleet.paid_s[1:]) == first
    assert min(begun) >= times[0]
    assert len(pools[0].live) <= 2
    assert sum(paid_time_s(fleet, index) for index in pools[0].members) < 6 * fleet.now_s


def test_requests_beyond_what_is_admitted_are_refused_by_name():
    columns = random_columns(1, 100, rate=10_000.0)
    log, fleet, _, _ = build(columns, most=3)
    fleet.run()
    check(log, fleet)
    assert len(log.rejected) > 50
    assert "not admitted: 3 requests" in next(iter(log.rejected.values()))


def test_users_go_on_after_a_refusal():
    columns = random_columns(1, 50)
    log, fleet, _, _ = build(columns, most=1, replicas=1)
    fleet.arrivals = ArrivalQueue(log, 4)
    fleet.run()
    assert np.isfinite(log.column("finish_s")).sum() + len(log.rejected) == 50


@pytest.mark.law
@cases(20)
@given(st.integers(0, 1000), st.booleans(), st.sampled_from([0, 5, 1000]))
def test_swapped_caches_come_back(seed, mixed, host):
    columns = random_columns(seed, 25, rate=500.0, longest=80)
    limits = BatchLimits(
        max_tokens=256, max_seqs=16, blocks=30, block_tokens=8, mixed=mixed, swap_blocks=host,
        swap_block_s=1e-4,
    )  # fmt: skip
    log, fleet, _, _ = build(columns, limits=limits, replicas=1)
    fleet.run()
    check(log, fleet)
    replica = fleet.replicas[0]
    assert replica._free == limits.blocks
    assert not replica._swapped
    assert not replica._outside
    if host == 1000:  # nothing that was generated is computed again
        whole = log.column("prompt_tokens").sum()
        assert replica.tally.prompt_tokens <= whole * (1 + replica.tally.preemption_count)


@st.composite
def fleets(draw):
    """Two models on pools of plain, guessing or staged steps that scale and are lost."""
    seed = draw(st.integers(0, 10_000))
    steps = [draw(st.sampled_from(KINDS_OF_STEPS)) for _ in range(2)]
    limits = BatchLimits(
        max_tokens=256,
        max_seqs=16,
        blocks=draw(st.sampled_from([30, 4000])),
        mixed=draw(st.booleans()),
        reserve=draw(st.sampled_from(["part", "prompt", "sequence"])),
    )
    loss_s = draw(st.sampled_from([None, 0.3, 2.0]))
    most = draw(st.sampled_from([None, 6]))
    return seed, steps, limits, loss_s, draw(st.booleans()), most


def serve_fleet(seed, steps, limits, loss_s, scales, most):
    """Runs a drawn fleet."""
    rng = np.random.default_rng(seed)
    columns = random_columns(seed, 60, rate=40.0, longest=100, model=rng.integers(0, 2, 60))
    log = RequestLog(columns)
    pools, made = [], []
    for own in steps:
        pools.append(ReplicaPool(lambda own=own: ContinuousBatching(log, own, limits), 0.2))
        pools[-1].members.append(len(made))
        pools[-1].live.append(len(made))
        made.append(pools[-1].make())
    routes = [Route([pool], router("least-kv", log, None), most) for pool in pools]
    choice = PoolRouter(log, routes, [None, None])
    fleet = ReplicaFleet(log, made, choice, ArrivalQueue(log))
    for place, pool in enumerate(pools):
        if scales:
            policy = ScalingPolicy("queue", 3.0, 1, 4, interval_s=0.3, hold_s=0.6)
            fleet.controls.append(Autoscaler(policy, pool, choice, 0.05))
        if loss_s is not None:
            losses = OutagePolicy(loss_s, 0.05, is_spot=bool(place))
            drawn = np.random.default_rng([seed, place])
            fleet.controls.append(Outages(losses, pool, choice, drawn))
    choice.refresh(fleet)
    fleet.run()
    return log, fleet


@pytest.mark.law
@cases(20)
@given(fleets())
def test_no_fleet_loses_a_request_and_each_is_the_same_again(drawn):
    log, fleet = serve_fleet(*drawn)
    check(log, fleet)
    again, _ = serve_fleet(*drawn)
    assert again.finish_s.tobytes() == log.finish_s.tobytes()
    assert again.replica == log.replica
    done = np.isfinite(log.column("finish_s"))
    assert (log.column("replica")[done] >= 0).all()
    arrival, finish = log.column("arrival_s")[done], log.column("finish_s")[done]
    moments = np.sort(np.concatenate([arrival, finish]))  # Little's law, from empty to empty
    inside = [((arrival <= t) & (t < finish)).sum() for t in moments[:-1]]
    assert (inside * np.diff(moments)).sum() == pytest.approx((finish - arrival).sum())


@pytest.mark.parametrize(
    "make",
    [
        lambda: ScalingPolicy("load", 1.0),
        lambda: ScalingPolicy("utilisation", 1.5),
        lambda: ScalingPolicy("queue", math.inf),
        lambda: ScalingPolicy("queue", 1.0, 3, 2),
        lambda: ScalingPolicy("queue", 1.0, interval_s=0.0),
        lambda: OutagePolicy(0.0),
        lambda: OutagePolicy(1.0, -1.0),
    ],
)
def test_policies_that_are_none_are_refused(make):
    with pytest.raises(InvalidValueError):
        make()


def test_the_least_waiting_replica_is_chosen_before_the_least_loaded():
    log = RequestLog(random_columns(0, 9))
    limits = BatchLimits(blocks=4000, max_tokens=512, max_seqs=2)
    few, many = (ContinuousBatching(log, STEPS, limits) for _ in range(2))
    many._max_seqs = 8
    for request in range(4):
        few.submit(request, 0.0)
        many.submit(request + 4, 0.0)
    many.submit(8, 0.0)
    few.advance(), many.advance()
    assert len(many.waiting) < len(few.waiting)
    assert few.outstanding < many.outstanding
    assert router("least-waiting", log, None)(0, [few, many]) == 1
    assert router("least-outstanding", log, None)(0, [few, many]) == 0


CHANGES = st.lists(
    st.tuples(st.integers(0, 6), st.integers(0, 4), st.sampled_from([0.5, 1.0, 3.0])), max_size=30
)


@given(CHANGES, st.sampled_from(["least-outstanding", "prefix-aware"]))
def test_the_first_of_the_least_loaded_is_chosen_as_loads_speeds_and_replicas_change(changes, name):
    log = RequestLog(random_columns(0, 9))
    limits = BatchLimits(blocks=4000, max_tokens=512, max_seqs=2)
    every = [ContinuousBatching(log, STEPS, limits) for _ in range(7)]
    choose, live = router(name, log, None), every
    for place, count, speed in changes:
        every[place].outstanding = count
        every[place].speed = speed
        if count == 4:  # one leaves, or comes back
            live = [one for one in every if one in live and one is not every[place]] or every
        assert all(one.load == (one.outstanding + 1) / one.speed for one in every)
        loads = [one.load for one in live]
        assert choose(0, live) == loads.index(min(loads))
