"""Sessions of traces: what waits for what, what is refused, and how much of a trace is reused."""

import json

import numpy as np
import pytest

import accelsim
from accelsim.errors import InvalidValueError
from accelsim.serving.loads.traces import read_trace

HEADER = "arrival_s,prompt_tokens,output_tokens,session,parent,gap_s,kind\n"
#: An agent with two sub-agents of two and one steps, and a request of its own.
ROWS = (
    "0,100,10,a,,,\n"
    ",50,10,a,0,0.5,agent\n"
    "1,30,5,b,,,\n"
    ",70,10,a,1,,step\n"
    ",60,10,a,0,0,agent\n"
    ",200,10,a,0,2,join\n"
)


def trace(tmp_path, rows, header=HEADER, name="t.csv"):
    path = tmp_path / name
    path.write_text(header + rows)
    return read_trace(path)


def serve(load, **more):
    return accelsim.serve("llama-3.1-8b", "h100-sxm-80gb", load, intervals=False, **more)


def test_rows_wait_for_their_parents_and_joins_for_agents(tmp_path):
    requests = trace(tmp_path, ROWS).requests  # those with a parent come last
    assert requests.prompt_tokens.tolist() == [100, 30, 50, 70, 60, 200]
    assert requests.after.tolist() == [-1, -1, 0, 2, 0, 0]
    assert requests.joins.tolist() == [-1, -1, -1, 5, 5, -1]
    assert requests.think_s.tolist() == [0, 0, 0.5, 0, 0, 2]
    assert requests.session.tolist() == [0, 1, 0, 0, 0, 0]
    assert requests.prefix_group.tolist() == [0, 1, 2, 2, 4, 0]
    frame = serve(requests).to_requests()
    assert frame.arrival_s[5] == pytest.approx(frame.finish_s[[3, 4]].max() + 2)
    assert serve(requests).sessions == 2


def test_json_lines_say_the_same(tmp_path):
    keys = HEADER.strip().split(",")
    lines = []
    for row in ROWS.splitlines():
        cells = dict(zip(keys, row.split(","), strict=True))
        lines.append({key: cell for key, cell in cells.items() if cell})
    rows = "\n".join(map(json.dumps, lines))
    same, other = trace(tmp_path, rows, "", "t.jsonl").requests, trace(tmp_path, ROWS).requests
    for name in ("after", "joins", "session", "prefix_group", "prefix_tokens", "think_s"):
        assert getattr(same, name).tolist() == getattr(other, name).tolist()


def test_rows_of_a_session_share_a_context_until_it_is_cut(tmp_path):
    rows = "0,100,10,a\n5,150,10,a\n9,40,10,a\n9,100,10,\n"
    requests = trace(tmp_path, rows, "arrival_s,prompt_tokens,output_tokens,session\n").requests
    assert requests.arrival_s.tolist() == [0, 5, 9, 9]
    assert requests.prefix_group.tolist() == [0, 0, 2, 3]
    assert requests.session.tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize(
    ("row", "field"),
    [
        (",10,1,a,7,0,step", "parent"),
        (",10,1,a,x,0,step", "parent"),
        (",10,1,a,1,0,step", "parent"),  # itself
        (",10,1,a,2,0,step\n,10,1,a,1,0,step", "parent"),  # each other
        ("0,0,1,a,,,\n,10,1,a,1,0,step", "parent"),  # a row that is no request
        (",10,1,a,0,-1,step", "gap_s"),
        (",10,1,a,0,inf,step", "gap_s"),
        (",10,1,a,0,soon,step", "gap_s"),
        (",10,1,a,0,0,leap", "kind"),
        ("1,10,1,a,,,join", "kind"),
        (",10,1,a,0,0,join\n,10,1,a,0,0,join", "kind.*in row 2"),
        (",10,1,b,0,0,step", "session"),
    ],
)
def test_sessions_that_are_none_are_refused_by_name(tmp_path, row, field):
    with pytest.raises(InvalidValueError, match=field):
        trace(tmp_path, f"0,10,1,a,,,\n{row}\n")


def test_a_trace_of_sessions_at_another_rate(tmp_path):
    read = trace(tmp_path, ROWS)
    times = read.at(np.array([3.0, 4.0])).arrival_s
    assert times[:2].tolist() == [3, 4]
    assert np.isnan(times[2:]).all()


@pytest.mark.parametrize("seed", range(3))
def test_the_hit_rate_of_a_trace_of_known_reuse(tmp_path, seed):
    """Sessions that grow from a common prompt, and some that branch: with room for all, what an
    endless cache of blocks would hit, to two points.
    """
    rng = np.random.default_rng(seed)
    names, lines, seen, hits, total = iter(range(10**6)), [], set(), 0, 0
    system = [next(names) for _ in range(6)]
    contexts = [list(system) for _ in range(20)]
    for moment in range(150):
        place = int(rng.integers(len(contexts)))
        context = contexts[place][: len(system) + int(rng.integers(10, 12))]
        context = context + [next(names) for _ in range(int(rng.integers(1, 3)))]
        contexts[place] = context
        hits += next((n for n, one in enumerate(context) if one not in seen), len(context))
        total += len(context)
        seen.update(context)
        sizes = {"input_length": 512 * len(context), "output_length": 4, "hash_ids": context}
        lines.append({"timestamp": 2000 * moment, **sizes})
    rows = "\n".join(map(json.dumps, lines))
    result = serve(trace(tmp_path, rows, "", "t.jsonl").requests)
    assert 0.3 < hits / total < 0.95
    assert result.prefix_hit_fraction == pytest.approx(hits / total, abs=0.02)
