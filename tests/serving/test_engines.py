"""Engines by version: their rules worked by hand, and names that there are none of."""

import pytest

import accelsim
from accelsim.catalog import device
from accelsim.catalog.engines import engine, engine_names
from accelsim.errors import UnknownNameError, UnsupportedOperatorError
from accelsim.serving.loads.arrivals import Arrivals

GIB = 2**30


@pytest.mark.parametrize(
    ("name", "label", "note"),
    [
        ("vllm", "0.19", ""),
        ("vllm@0.18.0", "0.18.0", ""),
        ("vllm@0.7.3", "0.7.3", "Engine version 0.7.3 has no data of its own: as version 0.6."),
        ("sglang@0.5.6.post2", "0.5.6.post2", ""),
        ("tensorrt-llm@1.2.0rc6.post2", "1.2.0rc6.post2", ""),
    ],
)
def test_a_version_is_named_as_asked_for(name, label, note):
    found = engine(name)
    assert (found.label, found.note) == (label, note)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("vllm@99", r"Nearest: vllm@0\.19"),
        ("vllm@0.2", r"Nearest: vllm@0\.6"),
        ("sglang@main", r"Nearest: sglang@0\.5\.9"),
        ("tensorrt-lm", "tensorrt-llm"),
    ],
)
def test_an_unknown_engine_or_version_is_refused_with_the_nearest(name, words):
    with pytest.raises(UnknownNameError, match=words):
        engine(name)


@pytest.mark.parametrize("name", engine_names())
def test_each_version_says_where_it_was_read(name):
    newest = engine(name)
    for version in {newest.version, newest.span.last}:
        found = engine(f"{name}@{version}")
        assert found.limit("max_seqs", device("l4")) <= found.limit("max_seqs", device("h200-sxm"))
        assert found.source


def test_vllm_leaves_one_board_out_of_its_larger_limits():
    found = engine("vllm@0.19")
    assert found.limit("max_batch_tokens", device("a100-sxm-80gb")) == 2048
    assert found.limit("max_batch_tokens", device("h100-sxm-80gb")) == 8192


def test_sglang_keeps_memory_for_a_full_step_and_its_graphs():
    # 0.5 GiB, 1.5 MiB a token, 2 MiB a sequence of the largest graph, 1/8 GiB a rank
    board = device("h200-sxm")
    kept_mib = 512 + 1.5 * 8192 + 2 * 512 + 8 * 128
    share = engine("sglang@0.5.9").share(board, 8192, 8, 8)
    assert share == pytest.approx(1 - kept_mib * 2**20 / board.memory.capacity_bytes.value)
    # no less than 10 GiB on a large board
    least = engine("sglang@0.5.9").share(board, 2048, 1, 1)
    assert least == pytest.approx(1 - 10 * GIB / board.memory.capacity_bytes.value)


def test_a_served_answer_says_that_another_version_stands_in():
    load = Arrivals(users=2, requests=4, prompt="64", output="8")
    found = accelsim.serve("llama-3.1-8b", "l4", load, engine="vllm@0.7", intervals=False)
    assert found.engine == "vllm 0.7"
    assert "as version 0.6" in found.warnings[0]


@pytest.mark.parametrize(
    ("name", "board"),
    [("tensorrt-llm", "mi300x"), ("sglang", "cerebras-wse-3"), ("vllm@0.6", "cerebras-wse-3")],
)
def test_an_engine_that_does_not_run_on_a_device_is_refused(name, board):
    load = Arrivals(users=1, requests=1, prompt="8", output="2")
    with pytest.raises(UnsupportedOperatorError, match=r"does not run on it.*static"):
        accelsim.serve("llama-3.2-1b", board, load, engine=name, intervals=False)
    assert engine("static").runs(device(board))


def test_asynchronous_scheduling_makes_no_step_slower():
    load = Arrivals(users=4, requests=8, prompt="64", output="32")
    new, old = (
        accelsim.serve("llama-3.1-8b", "h100-sxm-80gb", load, engine=name, intervals=False)
        for name in ("vllm@0.19", "vllm@0.12")
    )
    assert new.tpot_s["p50"] < old.tpot_s["p50"]
