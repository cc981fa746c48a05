"""Laws of continuous batching over random loads: nothing is lost or leaks, jumps are steps."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelsim.errors import InvalidValueError
from accelsim.serving.loads.requests import RequestColumns
from accelsim.serving.replicas.prefix_cache import PrefixCache, PrefixTree
from accelsim.serving.schedulers.continuous import ContinuousBatching
from accelsim.serving.schedulers.limits import BatchLimits, JoinRule, SequenceBlocks

from .scenarios import cases, random_columns, run_fleet, table_steps

STEPS = table_steps(1)
JOINS = (
    JoinRule(),
    JoinRule(ahead=True),
    JoinRule(ahead=True, poll_steps=7),
    JoinRule(hold_steps=5, hold_tokens=100),
    JoinRule(ahead=True, hold_steps=3),
)
#: Plain caches; windows from one pool, of two pools, beside states; a window alone has no prefix to
#: share.
SEQUENCES = (
    SequenceBlocks(),
    SequenceBlocks(3, 1, 2),
    SequenceBlocks(5, 4, 1),
    SequenceBlocks(2, 1, 3, state=2),
)


class OneStepAtATime(ContinuousBatching):
    """Never jumps."""

    def _start_run(self, most):
        super()._start_run(1)

    def _like_steps(self, prompt, part):
        return 1


@st.composite
def scenarios(draw):
    """A load, limits, and whether blocks are shared."""
    block = draw(st.sampled_from([1, 4, 16]))
    max_seqs = draw(st.sampled_from([1, 3, 64]))
    sequence = draw(st.sampled_from(SEQUENCES))
    limits = BatchLimits(
        max_tokens=draw(st.sampled_from([max(max_seqs, 7), 64, 300, 2048])),
        max_seqs=max_seqs,
        block_tokens=block,
        blocks=sequence.of(draw(st.integers(170, 1500)) // block + 1),  # one sequence fits
        chunked=draw(st.booleans()),
        mixed=draw(st.booleans()),
        reserve=draw(st.sampled_from(["part", "prompt", "sequence"])),
        join=draw(st.sampled_from(JOINS)),
        sequence=sequence,
    )
    count = draw(st.integers(1, 25))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    more = {}
    if shares := draw(st.booleans()):
        more["prefix_group"] = rng.integers(-1, 4, count)
        more["prefix_tokens"] = rng.integers(0, 120, count)
        more["forks"] = draw(st.sampled_from([None, {2: (0, 33), 3: (2, 70)}]))
    rate = draw(st.sampled_from([1.0, 30.0, 1000.0]))
    seed = int(rng.integers(1 << 30))
    columns = random_columns(seed, count, rate=rate, longest=80, **more)
    host = draw(st.sampled_from([0, 9, 1000]))
    return columns, replace(limits, swap_block_s=1e-4), shares, host


def serve(scenario, kind=ContinuousBatching):
    columns, limits, shares, host = scenario
    forks, size = columns.forks, limits.block_tokens

    def cache():
        return PrefixTree(forks, size, host) if forks else PrefixCache(host)

    return run_fleet(columns, lambda log: kind(log, STEPS, limits, cache() if shares else None))


@pytest.mark.law
@cases(40)
@given(scenarios())
def test_nothing_is_lost_and_no_block_leaks(scenario):
    log, fleet = serve(scenario)
    done = np.isfinite(log.column("finish_s"))
    assert done.sum() + len(log.rejected) == len(log)
    arrival, start, first, finish = (
        log.column(name)[done] for name in ("arrival_s", "scheduled_s", "first_token_s", "finish_s")
    )
    assert (arrival <= start).all()
    assert (start < first).all()
    assert (first <= finish).all()
    replica = fleet.replicas[0]
    assert replica.outstanding == 0
    assert replica.used_blocks == 0
    assert replica._context == 0
    assert replica._growth == 0
    assert replica._promised == 0
    assert not any(replica._due)
    if replica.cache is not None:
        assert not replica.cache.held_count
        assert replica.cache.idle_count == sum(replica.cache.length.values())
        assert replica._room() == replica.limits.blocks
    assert 0 < replica.tally.peak_blocks <= replica.limits.blocks or not done.any()


@pytest.mark.law
@cases(40)
@given(scenarios())
def test_tokens_are_conserved(scenario):
    log, fleet = serve(scenario)
    done = np.isfinite(log.column("finish_s"))
    tally = fleet.replicas[0].tally
    gap_s, weight = tally.gaps()
    further = (log.column("output_tokens")[done] - 1).sum()
    if not tally.preemption_count:
        assert weight.sum() == further
        if fleet.replicas[0].cache is None:
            assert tally.prompt_tokens == log.column("prompt_tokens")[done].sum()
    assert (gap_s > 0).all()


@pytest.mark.law
@cases(30)
@given(scenarios())
def test_jumps_give_what_single_steps_give(scenario):
    fast, _ = serve(scenario)
    slow, _ = serve(scenario, OneStepAtATime)
    for name in ("first_token_s", "finish_s", "scheduled_s"):
        np.testing.assert_allclose(fast.column(name), slow.column(name), rtol=1e-9)


@given(scenarios())
@cases(20)
def test_the_same_load_gives_the_same_bits(scenario):
    first, again = serve(scenario)[0], serve(scenario)[0]
    assert first.finish_s.tobytes() == again.finish_s.tobytes()


@pytest.mark.law
@cases(8)
@given(scenarios(), st.integers(0, 1000))
def test_requests_that_come_faster_wait_longer(scenario, seed):
    """The same requests at ten times the rate. A law of means: one that comes just after a step has
    begun waits for the rest of it, so that of a few requests the faster may wait less.
    """
    limits = scenario[1]
    columns = random_columns(seed, 150, rate=3.0, longest=80)
    means = []
    for pace in (1.0, 0.1, 0.01):
        faster = replace(columns, arrival_s=columns.arrival_s * pace)
        log, _ = serve((faster, limits, False, 0))
        means.append(np.nanmean(log.column("first_token_s") - log.column("arrival_s")))
    assert means == sorted(means)


def test_a_request_alone_takes_its_steps():
    columns = random_columns(5, 1)
    prompt, output = int(columns.prompt_tokens[0]), int(columns.output_tokens[0])
    log, _ = run_fleet(columns, lambda log: ContinuousBatching(log, STEPS, BatchLimits()))
    first = STEPS.step(prompt, prompt * (prompt + 1) / 2, 0, 0)[0]
    ttft = log.first_token_s[0] - log.arrival_s[0]
    assert ttft == pytest.approx(first, rel=1e-12)
    further = STEPS.decode_run(1, prompt, output - 1)[0]
    assert log.finish_s[0] - log.first_token_s[0] == pytest.approx(further, rel=1e-9)


def test_a_request_larger_than_the_cache_is_refused_by_name():
    columns = replace(random_columns(5, 3), prompt_tokens=np.array([10, 5000, 10]))
    limits = BatchLimits(blocks=50)
    log, _ = run_fleet(columns, lambda log: ContinuousBatching(log, STEPS, limits))
    assert list(log.rejected) == [1]
    assert "cache blocks" in log.rejected[1]
    assert np.isfinite(log.column("finish_s")).tolist() == [True, False, True]


def test_shared_prefixes_save_work():
    group = {"prefix_group": np.zeros(40, dtype=int), "prefix_tokens": np.full(40, 160)}
    columns = random_columns(3, 40, **group)
    columns = replace(columns, prompt_tokens=columns.prompt_tokens + 160)
    limits = BatchLimits()
    _, plain = run_fleet(columns, lambda log: ContinuousBatching(log, STEPS, limits))
    _, cached = run_fleet(
        columns, lambda log: ContinuousBatching(log, STEPS, limits, PrefixCache())
    )
    saved = plain.replicas[0].tally.prompt_tokens - cached.replicas[0].tally.prompt_tokens
    assert saved == cached.replicas[0].cache.hit_count * limits.block_tokens
    assert saved > 0.7 * 39 * 160


def test_prefixes_kept_on_the_host_save_work_where_the_device_is_small():
    group = {"prefix_group": np.arange(60) % 6, "prefix_tokens": np.full(60, 160)}
    columns = random_columns(3, 60, rate=5.0, longest=100, **group)
    columns = replace(columns, prompt_tokens=columns.prompt_tokens + 160)
    limits = BatchLimits(blocks=40, swap_block_s=1e-6)
    computed = []
    for host in (0, 30, 1000):
        _, fleet = run_fleet(
            columns,
            lambda log, host=host: ContinuousBatching(log, STEPS, limits, PrefixCache(host)),
        )
        computed.append(fleet.replicas[0].tally.prompt_tokens)
    assert computed[0] > computed[1] > computed[2]


class EvenSteps:
    """Every step takes a second."""

    idle_w, log_sigma, common_fraction = 0.0, 0.0, 1.0

    def step(self, *_):
        return 1.0, 0.0

    def decode_run(self, _count, _context, n):
        return float(n), 0.0


@pytest.mark.parametrize(
    ("join", "joins_s"),
    [  # the first request runs from 0 s, its prompt in the first second; the second comes at 3.5 s
        (JoinRule(), 4.0),
        (JoinRule(ahead=True), 5.0),  # the step from 4 s on was chosen at 3 s
        (JoinRule(poll_steps=5), 6.0),  # looked at 1 s, after the prompt, and five steps later
        (JoinRule(ahead=True, poll_steps=5), 7.0),
        (JoinRule(hold_steps=3), 7.0),  # three steps after the one that ends at 4 s
        (JoinRule(hold_steps=3, hold_tokens=8), 4.0),  # its prompt alone is enough
        (JoinRule(ahead=True, hold_steps=3), 8.0),
    ],
)
@pytest.mark.parametrize("kind", [ContinuousBatching, OneStepAtATime])
def test_a_request_joins_as_late_as_the_rule_says(join, joins_s, kind):
    lengths = np.array([4, 8]), np.array([40, 3])
    columns = RequestColumns(np.array([0.0, 3.5]), *lengths)
    log, _ = run_fleet(columns, lambda log: kind(log, EvenSteps(), BatchLimits(join=join)))
    assert log.scheduled_s[0] == 0.0
    assert log.scheduled_s[1] == joins_s
    assert log.first_token_s[1] == joins_s + 1.0


def test_an_idle_replica_takes_a_request_at_once():
    columns = RequestColumns(np.array([0.0, 9.5]), np.array([4, 8]), np.array([2, 3]))
    rule = JoinRule(ahead=True, poll_steps=30, hold_steps=20)
    limits = BatchLimits(join=rule)
    log, _ = run_fleet(columns, lambda log: ContinuousBatching(log, EvenSteps(), limits))
    assert log.scheduled_s.tolist() == [0.0, 9.5]


def test_requests_held_for_others_join_together():
    arrival = np.array([0.0, 3.5, 5.5])
    columns = RequestColumns(arrival, np.array([4, 8, 8]), np.array([40, 3, 3]))
    limits = BatchLimits(join=JoinRule(hold_steps=20, hold_tokens=16))
    log, _ = run_fleet(columns, lambda log: ContinuousBatching(log, EvenSteps(), limits))
    assert log.scheduled_s.tolist() == [0.0, 6.0, 6.0]


@pytest.mark.parametrize(
    "wrong", [{"poll_steps": 0}, {"hold_steps": -1}, {"hold_tokens": -1}], ids=str
)
def test_rules_of_joining_out_of_range_are_refused(wrong):
    with pytest.raises(InvalidValueError, match=next(iter(wrong))):
        JoinRule(**wrong)


@pytest.mark.parametrize("field", ["max_tokens", "max_seqs", "block_tokens", "blocks"])
def test_limits_out_of_range_are_refused(field):
    with pytest.raises(InvalidValueError, match=field):
        BatchLimits(**{field: 0})


@pytest.mark.parametrize("parts", [(30,), (10, 20), (1,) * 30])
def test_a_chain_longer_than_the_host_keeps_its_head_however_it_is_given_up(parts):
    cache = PrefixCache(9)
    cache.extend(0, 30)
    cache.hold(0, 30)
    cache.release(0, 30)
    for part in parts:
        cache.give_up(part)
    assert cache.length == {}
    assert cache.reach(0) == 9


@pytest.mark.law
@cases(25)
@given(scenarios())
def test_requests_inside_are_their_rate_times_their_time(scenario):
    """Little (Operations Research 9(3), 1961), at every replica and every stage: the area under the
    number of requests is the sum of their times.
    """
    log, _ = serve(scenario)
    done = np.isfinite(log.column("finish_s"))
    stages = ("arrival_s", "scheduled_s", "first_token_s", "finish_s")
    for begins, ends in pairwise(stages):
        begin_s, end_s = log.column(begins)[done], log.column(ends)[done]
        edges = np.sort(np.concatenate([begin_s, end_s]))
        inside = np.searchsorted(np.sort(begin_s), edges[:-1], "right")
        inside = inside - np.searchsorted(np.sort(end_s), edges[:-1], "right")
        assert (inside >= 0).all()
        area = (inside * np.diff(edges)).sum()
        assert area == pytest.approx((end_s - begin_s).sum(), rel=1e-9, abs=1e-9)


@pytest.mark.law
@cases(10)
@given(scenarios(), st.integers(0, 1000))
def test_more_replicas_serve_the_same_load_no_later(scenario, seed):
    """The means of a load that keeps one replica busy, on one, two and four in turn."""
    limits = scenario[1]
    columns = random_columns(seed, 120, rate=60.0, longest=80)
    means = []
    for replicas in (1, 2, 4):
        log, fleet = run_fleet(
            columns, lambda log: ContinuousBatching(log, STEPS, limits), replicas=replicas
        )
        means.append(np.nanmean(log.column("finish_s") - log.column("arrival_s")))
        tokens = sum(one.tally.gap_count.sum() for one in fleet.replicas)
        if not any(one.tally.preemption_count for one in fleet.replicas):
            done = np.isfinite(log.column("finish_s"))
            assert tokens == (log.column("output_tokens")[done] - 1).sum()
    assert means[0] >= means[1] * 0.98
    assert means[1] >= means[2] * 0.98
