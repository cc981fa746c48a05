"""Traces: public forms are read, what is no request is skipped and named."""

import json

import numpy as np
import pytest

from accelsim.errors import InvalidValueError, ProfileError
from accelsim.serving.loads.traces import read_trace

HEADER = "arrival_s,prompt_tokens,output_tokens\n"


def test_an_azure_trace(tmp_path):
    path = tmp_path / "azure.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:17:03.9799600,4808,10\n"
        "2023-11-16 18:17:04.0319600,3180,8\n"
    )
    requests = read_trace(path).requests
    assert requests.arrival_s.tolist() == pytest.approx([0.0, 0.052])
    assert requests.prompt_tokens.tolist() == [4808, 3180]
    assert requests.output_tokens.tolist() == [10, 8]


def test_a_mooncake_trace_out_of_order(tmp_path):
    path = tmp_path / "mooncake.jsonl"
    rows = [
        {"timestamp": 3000, "input_length": 6755, "output_length": 500, "hash_ids": [0, 1]},
        {"timestamp": 1000, "input_length": 7319, "output_length": 490, "hash_ids": [0, 2]},
        {"timestamp": 5, "input_length": 0, "output_length": 1},
        {"input_length": 1, "output_length": 1},
        {"timestamp": 5, "input_length": "x", "output_length": 1},
    ]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n{cut off")
    trace = read_trace(path)
    assert trace.requests.arrival_s.tolist() == [0.0, 2.0]
    assert trace.requests.output_tokens.tolist() == [490, 500]
    assert sum(trace.skips.values()) == 4


def test_blocks_of_one_hash_are_shared(tmp_path):
    path = tmp_path / "mooncake.jsonl"
    blocks = [[1, 2], [1, 2, 3], [1, 2, 4, 5], [1, 2, 4, 6], [9], [1, 2, 3]]
    lines = [
        {"timestamp": place, "input_length": 512 * len(ids), "output_length": 1, "hash_ids": ids}
        for place, ids in enumerate(blocks)
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    requests = read_trace(path).requests
    # the third leaves the chain of the first two, and the fourth that of the third
    assert requests.prefix_group.tolist() == [0, 0, 1, 2, 3, 0]
    assert (requests.prefix_tokens // 512).tolist() == [2, 3, 4, 4, 1, 3]
    assert requests.forks == {1: (0, 1024), 2: (1, 1536)}


def test_a_benchmarks_result(tmp_path):
    path = tmp_path / "bench.json"
    document = {"input_lens": [100, 200, 0], "output_lens": [10, 20, 5], "ttfts": []}
    path.write_text(json.dumps(document))
    trace = read_trace(path)
    assert not trace.has_times
    assert trace.requests.prompt_tokens.tolist() == [100, 200]
    assert trace.skips == {"no tokens in or out": 1}
    assert trace.at(np.array([1.0, 3.0])).arrival_s.tolist() == [1.0, 3.0]
    path.write_text(json.dumps(document | {"start_times": [5.0, 4.0, 6.0]}))
    timed = read_trace(path)
    assert timed.has_times
    assert timed.requests.arrival_s.tolist() == [0.0, 1.0]
    assert timed.requests.prompt_tokens.tolist() == [200, 100]


def test_conversations(tmp_path):
    path = tmp_path / "sharegpt.json"
    talk = {"conversations": [{"from": "human", "value": "x" * 41}, {"from": "gpt", "value": "y"}]}
    path.write_text(json.dumps([talk, {"conversations": []}, {"conversations": [{"value": 1}]}]))
    trace = read_trace(path)
    assert trace.requests.prompt_tokens.tolist() == [11]
    assert trace.requests.output_tokens.tolist() == [1]
    assert trace.skips == {"no length, or one below 0": 2}
    assert not trace.has_times


def test_times_before_the_first_request_are_refused(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n-1.5,10,5\n2,10,5\n")
    with pytest.raises(InvalidValueError, match="arrival_s"):
        read_trace(path)


def test_rows_that_end_early_are_skipped(tmp_path):
    path = tmp_path / "cut.csv"
    path.write_text(HEADER + "3,10,5\n1,20,6\n2,30\n\nx,1,1\n4,7,")
    trace = read_trace(path)
    assert trace.requests.arrival_s.tolist() == [0.0, 2.0]
    assert trace.requests.prompt_tokens.tolist() == [20, 10]
    assert trace.skips == {
        "cut short, or not of the file's form": 1,
        "no time": 1,
        "no length, or one below 0": 1,
    }
    assert trace.unsorted_count == 1


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("a.csv", "when,in,out\n1,2,3\n", ProfileError),
        ("a.csv", HEADER, ProfileError),
        (
            "a.csv",
            "arrival_s,prompt_tokens,output_tokens\n0,99999999999999999999,2\n",
            ProfileError,
        ),
        (
            "a.jsonl",
            '{"arrival_s": 0, "prompt_tokens": Infinity, "output_tokens": 1}',
            ProfileError,
        ),
        ("a.jsonl", "", ProfileError),
        ("a.json", "{", ProfileError),
        ("a.json", "{}", ProfileError),
        ("a.json", "[1]", ProfileError),
        ("a.json", '[{"conversations": 7}]', ProfileError),
        ("a.json", '{"input_lens": 2, "output_lens": [1]}', ProfileError),
        ("a.json", '{"input_lens": [1], "output_lens": [1], "start_times": 1}', ProfileError),
        ("a.csv", HEADER + "0,1\r2,3,4\n", ProfileError),
        ("a.txt", "", InvalidValueError),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path, name, text, error):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(error):
        read_trace(path)
    with pytest.raises(ProfileError):
        read_trace(tmp_path / "missing.csv")
    with pytest.raises(InvalidValueError, match="requests"):
        read_trace(path.with_suffix(".csv"), limit=-1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"hash_ids": [[]]},
        {"hash_ids": {"a": 1}},
        {"timestamp": "\ud800"},
        {"input_length": "\ud800"},
        {"timestamp": 10**400},
        {"output_length": 10**400},
    ],
)
def test_rows_of_other_values_are_skipped(tmp_path, wrong):
    path = tmp_path / "mooncake.jsonl"
    row = {"timestamp": 5, "input_length": 3, "output_length": 2, "hash_ids": [1]}
    path.write_text("\n".join(map(json.dumps, [row, row | wrong])))
    trace = read_trace(path)
    assert len(trace.requests) == 1
    assert sum(trace.skips.values()) == 1
