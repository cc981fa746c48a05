"""What fits on a board: laws, cases by hand, the line that runs it, bad input."""

from itertools import pairwise

import pytest

import accelsim
from accelsim.catalog import device
from accelsim.cost.memory import MemoryFootprint
from accelsim.errors import InvalidValueError, UnknownNameError
from accelsim.estimation.passes import held_layers
from accelsim.handover.check import LineQuestion, check_line
from accelsim.handover.fits import FORMATS, fits
from accelsim.serving.loads.arrivals import Arrivals

GB = 1e9


@pytest.mark.parametrize(
    ("room", "held"), [(43 * GB, 4), (41 * GB, 4), (40.9 * GB, 3), (11 * GB, 1), (0.5 * GB, 0)]
)
def test_layers_on_the_board_by_hand(room, held):
    """36 GB of weights and 4 GB of cache are 10 GB a layer of four, beside 1 GB."""
    memory = MemoryFootprint(36 * GB, 1 * GB, kv_cache_bytes=4 * GB)
    assert held_layers(memory, room, 4) == held


def test_a_format_that_fits_is_as_fast_as_its_estimate():
    way = next(one for one in fits("qwen3-8b", "rtx-4090").ways if one.precision == "q4_k_m")
    alone = accelsim.estimate(
        "qwen3-8b", "rtx-4090", precision="q4_k_m", stack="llama-cpp", seq_len=512, output_len=2
    )
    assert way.tokens_per_s == pytest.approx(1 / alone.time_per_output_token_s)
    assert way.time_to_first_token_s == pytest.approx(alone.time_to_first_token_s)
    assert way.weight_bytes == alone.memory["weight_bytes"]
    assert (way.host_layers, way.device_layers) == (0, 36)


def test_the_longest_context_fits_and_one_more_does_not():
    asked = fits("llama-3.1-8b", "rtx-3060").ways[1]
    assert asked.precision == "q8_0"
    assert 4096 < asked.longest_context < 131_072
    for more, whole in ((0, True), (1, False)):
        again = fits("llama-3.1-8b", "rtx-3060", context=asked.longest_context + more).ways[1]
        assert again.fits is whole


def test_narrower_formats_hold_more_and_never_slow_down():
    ways = [one for one in fits("llama-3.1-70b", "rtx-4090").ways if one.stack == "llama-cpp"]
    assert [one.precision for one in ways] == list(FORMATS["llama-cpp@b6451"])
    for wide, narrow in pairwise(ways):
        assert wide.weight_bytes > narrow.weight_bytes
        assert wide.host_layers >= narrow.host_layers
        assert wide.longest_context <= narrow.longest_context
        assert wide.tokens_per_s <= narrow.tokens_per_s
    assert all(one.host_layers + one.device_layers == 80 for one in ways)


def test_more_memory_never_leaves_more_to_the_cpu():
    small, large = (fits("qwen3-30b-a3b", f"rtx-4060-ti-{gib}gb").ways for gib in (8, 16))
    for less, more in zip(small, large, strict=True):
        assert less.host_layers >= more.host_layers or less.reason
        assert less.longest_context <= more.longest_context


def test_more_layers_on_the_board_are_never_slower():
    rates = []
    for gib in (4, 8, 12, 18, 24):
        asked = fits("llama-3.1-70b", "rtx-4090", memory_gib=gib)
        way = next(one for one in asked.ways if one.precision == "q3_k_m")
        rates.append((way.device_layers, way.tokens_per_s))
    assert rates == sorted(rates)
    assert len({layers for layers, _ in rates}) == 5


def test_the_layers_on_the_cpu_take_their_share_of_its_time():
    asked = fits("llama-3.1-70b", "rtx-4090", host="epyc-9654")
    way = next(one for one in asked.ways if one.precision == "q4_k_m")
    fast = fits("llama-3.1-70b", "rtx-pro-6000-blackwell").ways
    slow = fits("llama-3.1-70b", "epyc-9654").ways
    whole = {one.precision: one for one in slow}["q4_k_m"]
    assert whole.tokens_per_s < way.tokens_per_s
    assert way.tokens_per_s < {one.precision: one for one in fast}["q4_k_m"].tokens_per_s
    share = way.host_layers / 80
    assert 1 / way.tokens_per_s > share / whole.tokens_per_s


def test_one_memory_has_no_layers_to_leave_and_may_be_sold_smaller():
    whole, sold = (fits("llama-3.1-70b", "m4 max", memory_gib=gib) for gib in (None, 36))
    assert whole.host is None
    assert whole.best.precision == "q8_0"
    assert sold.device_memory_bytes == pytest.approx(24 * 2**30, rel=1e-6)
    assert sold.best is None
    assert all("short" in one.reason for one in sold.ways)


def test_a_model_published_in_a_narrow_format_is_not_widened():
    forms = {one.precision for one in fits("gpt-oss-20b", "rtx-4090").ways}
    assert "mxfp4" in forms
    assert not forms & {"fp16", "bf16", "q8_0"}


@pytest.mark.parametrize("board", ["rtx-4090", "h100-sxm-80gb"])
def test_a_line_that_is_handed_over_passes_the_check(board):
    load = Arrivals(users=1, requests=4, prompt="64", output="8")
    for way in fits("llama-3.1-8b", board).ways:
        if way.stack == "vllm" and way.fits:
            assert check_line(way.line, LineQuestion(device=board, load=load)).fits, way.line


def test_the_line_says_the_layers():
    lines = {one.precision: one.line for one in fits("qwen3-30b-a3b", "4060 ti 16gb").ways}
    assert lines["q3_k_m"] == "llama-server -m qwen3-30b-a3b-Q3_K_M.gguf -c 4096 -ngl 99"
    assert lines["q4_k_m"].endswith(f"-ngl {48 - 8}")


def test_other_chips_run_their_own_format():
    (way,) = fits("llama-3.1-8b", "trainium3").ways
    assert (way.stack, way.precision, way.line) == ("neuron", "bf16", "")
    assert way.tokens_low_per_s < way.tokens_per_s < way.tokens_high_per_s


def test_this_machine_is_asked_where_none_is_named(monkeypatch):
    monkeypatch.setattr("accelsim.catalog.detect_local_devices", lambda: [device("rtx-3090")])
    assert fits("llama-3.2-1b").device == "rtx-3090"
    monkeypatch.setattr("accelsim.catalog.detect_local_devices", list)
    with pytest.raises(InvalidValueError, match="--device"):
        fits("llama-3.2-1b")


def test_bad_input_is_named():
    with pytest.raises(InvalidValueError, match="generates text"):
        fits("resnet-50", "t4")
    with pytest.raises(InvalidValueError, match="3 to 40,960"):
        fits("qwen3-8b", "t4", context=50_000)
    with pytest.raises(InvalidValueError, match="one memory"):
        fits("qwen3-8b", "m4 max", host="epyc-9654")
    with pytest.raises(InvalidValueError, match="at most"):
        fits("qwen3-8b", "m4 max", memory_gib=256)
    for nothing, words in ((0.0, "more than 0"), (-1.0, "more than 0"), (float("nan"), "finite")):
        with pytest.raises(InvalidValueError, match=f"memory.*{words}"):
            fits("qwen3-8b", "m4 max", memory_gib=nothing)
    with pytest.raises(InvalidValueError, match="a CPU"):
        fits("qwen3-8b", "rtx-3060", host="rtx-4090")
    with pytest.raises(UnknownNameError, match="rtx-4090"):
        fits("qwen3-8b", "rtx-4099")
