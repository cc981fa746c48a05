"""Sessions of agents: steps wait for each other, nothing is lost, and what was said is cached."""

from itertools import pairwise

import numpy as np
import pytest

import accelsim
from accelsim import Arrivals
from accelsim.errors import InvalidValueError
from accelsim.serving.loads.requests import RequestColumns
from accelsim.serving.loads.sessions import SessionOptions, session_options
from accelsim.serving.replicas.prefix_cache import PrefixTree
from accelsim.serving.schedulers.continuous import ContinuousBatching
from accelsim.serving.schedulers.limits import BatchLimits
from accelsim.simulation.randomness import RandomStreams

from .scenarios import run_fleet, table_steps

SHORT = {"prompt": "lognormal:200:0.5", "output": "20"}
AGENT = SessionOptions(4, gap_s=0.5, agents=3, agent_steps=2, tool="uniform:50-150")
_OF_SESSIONS = ("sessions", "session_s", "cost_usd_per_session", "prefix_hit_fraction")


def serve(load, **more):
    return accelsim.serve("llama-3.1-8b", "h100-sxm-80gb", load, intervals=False, **more)


def test_a_session_of_one_step_is_a_request():
    load = {"rate_per_s": 20, "requests": 200, **SHORT}
    plain = serve(Arrivals(**load)).figures()
    session = serve(Arrivals(**load, session=SessionOptions(1))).figures()
    assert {**session, **{name: plain[name] for name in _OF_SESSIONS}} == plain
    assert session["sessions"] == 200
    assert session["prefix_hit_fraction"] == 0
    assert session["session_s"] == session["e2e_s"]
    assert session["cost_usd_per_session"] == pytest.approx(
        session["cost_usd_per_1000_requests"] / 1000
    )


def test_steps_without_gap_and_reuse_are_a_chain():
    session = SessionOptions(5, tool="100")
    load = Arrivals(rate_per_s=2, requests=50, session=session, prompt="300", output="20")
    result = serve(load, prefix_cache=False)
    frame = result.to_requests()
    steps = [frame[10 * step : 10 * step + 10].reset_index() for step in range(5)]
    for before, after in pairwise(steps):
        assert (after.arrival_s == before.finish_s).all()
        assert (after.prompt_tokens == before.prompt_tokens + 20 + 100).all()
    took_s = (frame.finish_s - frame.arrival_s).groupby(frame.session).sum()
    assert result.session_s["mean"] == pytest.approx(took_s.mean())
    assert result.prefix_hit_fraction is None


def test_the_step_after_sub_agents_waits_for_all_of_them():
    frame = serve(Arrivals(rate_per_s=2, requests=100, session=AGENT, **SHORT)).to_requests()
    assert len(frame) == 100
    calls = [frame[10 * slot : 10 * slot + 10].reset_index() for slot in range(10)]
    first, ends, joined = calls[0], calls[4:7], calls[7]
    for start in calls[1:4]:
        assert (start.arrival_s >= first.finish_s).all()
    last_s = np.max([one.finish_s for one in ends], axis=0)
    assert (joined.arrival_s >= last_s).all()
    assert (joined.arrival_s - last_s).mean() == pytest.approx(0.5, rel=0.8)
    added = joined.prompt_tokens - first.prompt_tokens - first.output_tokens - 3 * 20
    assert added.between(50, 150).all()


def test_a_growing_context_is_computed_once():
    """With a cache for all, a step computes what is new, but for the tokens of its last block."""
    load = Arrivals(rate_per_s=1, requests=200, session=AGENT, prefix_tokens=1600, **SHORT)
    result = serve(load)
    columns = load.columns(RandomStreams(0))
    new = columns.prompt_tokens.astype(float)
    new -= np.where(columns.after < 0, 1600, 0)
    parent = columns.after[columns.after >= 0]
    is_same = columns.prefix_group[parent] == columns.prefix_group[columns.after >= 0]
    held = columns.prompt_tokens[parent] + columns.output_tokens[parent]
    new[columns.after >= 0] -= np.where(is_same, held, 1600)
    hits = 1 - new.sum() / columns.prompt_tokens.sum()
    assert result.prefix_hit_fraction == pytest.approx(hits, abs=0.02)
    assert columns.hit_tokens().sum() / columns.prompt_tokens.sum() == pytest.approx(hits)
    assert serve(load, prefix_cache=False).session_s["p50"] > result.session_s["p50"]


@pytest.mark.parametrize("blocks", [400, 40])
def test_tokens_and_blocks_are_conserved_over_sub_agents(blocks):
    load = Arrivals(rate_per_s=5, requests=400, session=AGENT, prompt="30", output="8")
    columns = load.columns(RandomStreams(1))
    limits = BatchLimits(blocks=blocks)
    forks = dict.fromkeys(range(0, 160, 2), (10_000, 16))
    log, fleet = run_fleet(
        columns,
        lambda log: ContinuousBatching(log, table_steps(), limits, PrefixTree(forks, 16)),
    )
    (replica,) = fleet.replicas
    assert np.isfinite(log.column("finish_s")).sum() + len(log.rejected) == 400
    assert replica.used_blocks == replica.cache.held_count == 0
    assert replica._free + replica.cache.idle_count == blocks
    if not replica.tally.preemption_count:
        hits = replica.cache.hit_count * 16
        done = np.isfinite(log.column("finish_s"))
        assert replica.tally.prompt_tokens + hits == columns.prompt_tokens[done].sum()


def test_a_chain_holds_what_it_forks_from():
    """Two chains fork from one after two blocks, and one of them forks once more."""
    tree = PrefixTree({1: (0, 32), 2: (0, 40), 3: (1, 80)}, 16)
    assert tree.extend(1, 6) == 6
    tree.hold(1, 6)
    assert [tree.reach(group) for group in range(4)] == [2, 6, 2, 5]
    assert tree.extend(2, 3) == 1
    tree.hold(2, 3)
    tree.release(1, 6)
    assert (tree.held(2), tree.held_count, tree.idle_count) == (3, 3, 4)
    tree.give_up(3)
    assert [tree.reach(group) for group in range(4)] == [2, 3, 3, 3]
    tree.release(2, 3)
    tree.give_up(4)  # leaves before what they fork from
    assert [tree.reach(group) for group in range(4)] == [0, 0, 0, 0]


def test_arrivals_join_when_the_last_has_ended():
    columns = RequestColumns(
        np.array([0.0, np.nan, np.nan, np.nan]),
        np.full(4, 10),
        np.array([5, 80, 5, 5]),
        after=np.array([-1, 0, 0, 0]),
        joins=np.array([-1, 3, 3, -1]),
        session=np.zeros(4, dtype=int),
    )
    log, _ = run_fleet(columns, lambda log: ContinuousBatching(log, table_steps(), BatchLimits()))
    assert log.arrival_s[1] == log.arrival_s[2] == log.finish_s[0]
    assert log.finish_s[2] < log.finish_s[1] == log.arrival_s[3]


@pytest.mark.parametrize(
    "text",
    [
        *("", "steps", "steps=0", "steps=2,gap=-1s", "steps=2,gap=1", "steps=1,agents=2"),
        *("agents=2", "steps=2,depth=3", "steps=2.5", "steps=2,agents=-1", "steps=2,tool=x"),
        *("steps=2,agents=1000,agent_steps=10000", "steps=2,steps=3"),
    ],
)
def test_sessions_that_are_none_are_refused(text):
    with pytest.raises(InvalidValueError):
        Arrivals(rate_per_s=1, session=session_options("session", text)).columns(RandomStreams(0))


def test_a_context_that_outgrows_all_models_is_refused_with_a_plain_number():
    load = Arrivals(rate_per_s=1, prompt="2000", session=SessionOptions(10_000))
    with pytest.raises(InvalidValueError, match=r"prompt_tokens = 1\d{7} is not allowed"):
        load.columns(RandomStreams(0))


def test_a_session_as_text():
    text = "steps=4,gap=500ms,agents=3,agent_steps=2,tool=uniform:50-150"
    assert session_options("session", text) == AGENT
    assert AGENT.requests == len(AGENT.slots()) == 10
