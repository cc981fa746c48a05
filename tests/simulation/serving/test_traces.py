"""Traces: public forms are read, what is no request is skipped and named."""

import json

import pytest

from accelsim.errors import InvalidValueError, ProfileError
from accelsim.simulation.serving.traces import read_trace

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
        {"timestamp": -5, "input_length": 1, "output_length": 1},
        {"timestamp": 5, "input_length": 0, "output_length": 1},
        {"input_length": 1, "output_length": 1},
        {"timestamp": 5, "input_length": "x", "output_length": 1},
    ]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n{cut off")
    trace = read_trace(path)
    assert trace.requests.arrival_s.tolist() == [0.0, 2.0]
    assert trace.requests.output_tokens.tolist() == [490, 500]
    assert sum(trace.skips.values()) == 5


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
