"""Layers in host memory: laws, by hand, the same as `fits`, bad input."""

from itertools import pairwise
from statistics import median

import pytest

from accelsim import estimate, serve, simulate, train
from accelsim.catalog import device
from accelsim.errors import DoesNotFitError, InputError, InvalidValueError
from accelsim.estimation.options import RunOptions
from accelsim.estimation.passes import run_passes
from accelsim.estimation.resolution import resolve
from accelsim.handover.fits import fits
from accelsim.serving.loads.arrivals import Arrivals

#: Model, device and format: weights over the link, and llama.cpp's on the CPU.
PAIRS = [
    ("llama-3.1-8b", "rtx-4090", {"precision": "bf16"}),
    ("qwen3-30b-a3b", "rtx-3090", {"precision": "w4a16"}),
    ("llama-3.1-8b", "rtx-3060", {"precision": "q4_k_m"}),
    ("qwen3-30b-a3b", "rx-7900-xtx", {"precision": "q4_k_m"}),
]
TIMES = ("latency_s", "time_to_first_token_s", "time_per_output_token_s")


@pytest.mark.parametrize(("model", "board", "options"), PAIRS)
def test_no_layers_are_no_offload(model, board, options):
    whole = estimate(model, board, **options)
    none = estimate(model, board, offload=0, **options)
    for name in (*TIMES, "throughput_per_s", "energy_j", "memory_bytes"):
        assert getattr(none, name) == pytest.approx(getattr(whole, name), rel=1e-9)
    assert estimate(model, board, offload="auto", **options).latency_s == whole.latency_s
    assert none.warnings == whole.warnings


@pytest.mark.parametrize(("model", "board", "options"), PAIRS)
def test_more_layers_on_the_device_are_never_slower(model, board, options):
    answers = [estimate(model, board, offload=n, **options) for n in (0, 1, 5, 16, 31, 32)]
    for more, fewer in pairwise(answers):
        assert all(getattr(more, name) <= getattr(fewer, name) for name in TIMES)
        assert more.throughput_per_s >= fewer.throughput_per_s
        assert more.memory_bytes > fewer.memory_bytes
        assert more.energy_j < fewer.energy_j


def test_weights_over_the_link_by_hand():
    """A step reads all weights but the table of words once: 7/32 of them at the link's rate."""
    run = resolve("llama-3.1-8b", "rtx-4090", precision="bf16")
    link = run.device.host_link.bandwidth_bytes_per_s.value
    whole, part = (
        estimate("llama-3.1-8b", "rtx-4090", precision="bf16", offload=n) for n in (0, 7)
    )
    read = 2 * (whole.parameter_count - 128_256 * 4096)
    wait = part.time_per_output_token_s - whole.time_per_output_token_s
    assert wait == pytest.approx(7 / 32 * read / link, rel=1e-3)
    freed = whole.memory["weight_bytes"] - part.memory["weight_bytes"]
    assert freed == part.host_memory_bytes == pytest.approx(7 / 32 * 2 * whole.parameter_count)
    assert part.memory["kv_cache_bytes"] == whole.memory["kv_cache_bytes"]
    assert (part.bound, part.host_layer_count, part.host) == ("link", 7, None)


def test_of_routed_experts_only_those_that_are_read_come_over_the_link():
    whole, part = (
        estimate("qwen3-30b-a3b", "h100", precision="bf16", offload=n, seq_len=64, output_len=9)
        for n in (0, 48)
    )
    link = device("h100").host_link.bandwidth_bytes_per_s.value
    wait = part.time_per_output_token_s - whole.time_per_output_token_s
    assert 2 * 3.0e9 / link < wait < 2 * 3.4e9 / link  # 3.3 of 30.5 billion are active


def test_layers_on_the_cpu_take_their_share_of_its_time():
    options = {"precision": "q4_k_m", "stack": "llama-cpp", "host": "epyc-9654"}
    here = estimate("llama-3.1-8b", "rtx-4090", **options)
    there = estimate("llama-3.1-8b", "epyc-9654", precision="q4_k_m", stack="llama-cpp")
    part = estimate("llama-3.1-8b", "rtx-4090", offload=8, **options)
    mean = 0.75 * here.time_per_output_token_s + 0.25 * there.time_per_output_token_s
    assert part.time_per_output_token_s == pytest.approx(mean)
    assert part.host == "epyc-9654"
    cache = part.memory["kv_cache_bytes"]
    assert cache == pytest.approx(0.75 * here.memory["kv_cache_bytes"])


def test_a_long_prompt_runs_on_the_device_and_a_short_one_on_the_cpu():
    def first(prompt, layers):
        options = {"precision": "q4_k_m", "seq_len": prompt, "output_len": 2}
        answer = estimate("llama-3.1-8b", "rtx-4090", offload=layers, **options)
        return answer.time_to_first_token_s

    each = resolve("llama-3.1-8b", "rtx-4090", precision="q4_k_m").precision.weight.bytes
    link = device("rtx-4090").host_link.bandwidth_bytes_per_s.value
    wait = 7.5e9 * each / link
    assert first(512, 32) - first(512, 0) == pytest.approx(wait, rel=0.05)
    assert first(1024, 32) - first(1024, 0) == pytest.approx(2 * wait, rel=0.05)
    assert first(31, 32) > 2 * (first(31, 0) + wait)


def test_auto_is_the_fewest_layers_that_fit():
    for model, board, options in (
        ("llama-3.1-70b", "rtx-4090", {"precision": "q4_k_m"}),
        ("llama-3.1-8b", "t4", {"precision": "fp16", "stack": "vllm"}),
    ):
        chosen = estimate(model, board, offload="auto", **options)
        assert chosen.fits
        fewer = estimate(model, board, offload=chosen.host_layer_count - 1, **options)
        assert not fewer.fits
        (named,) = (c for c in fewer.would_fit if c.what == "device_count")
        assert named.value >= 2
        named = [c for c in estimate(model, board, **options).would_fit if c.what == "offload"]
        assert [c.value for c in named] == [chosen.host_layer_count]


def test_fits_prices_the_same_layers():
    way = next(w for w in fits("llama-3.1-70b", "rtx-4090").ways if w.precision == "q4_k_m")
    options = {"precision": "q4_k_m", "stack": "llama-cpp", "seq_len": 512, "output_len": 2}
    answer = estimate("llama-3.1-70b", "rtx-4090", offload=way.host_layers, **options)
    assert answer.time_per_output_token_s == pytest.approx(1 / way.tokens_per_s)
    assert answer.time_to_first_token_s == pytest.approx(way.time_to_first_token_s)


#: Model, board, layers on the host, stack and format, tokens a second that were measured: Q4_K_M on
#: an RTX 2080 and a Core i9-10900X (AlexsJones/llmfit, pull requests 774 and 778), for which an RTX
#: 2070 with the same memory stands; vLLM 0.5.1 on a GH200 (vllm-project/vllm, pull request 6317).
MEASURED = [
    ("gemma-3-12b", "rtx-2070", 4, "llama-cpp", "q4_k_m", 26.1),
    ("qwen3-14b", "rtx-2070", 8, "llama-cpp", "q4_k_m", 16.9),
    ("gemma-2-9b", "rtx-2070", 6, "llama-cpp", "q4_k_m", 23.7),
    ("llama-3-70b", "gh200-96gb", 29, "vllm", "bf16", 4.6),
]


def test_measured_runs_lie_within_their_intervals():
    ratios = []
    for model, board, layers, stack, form, measured in MEASURED:
        options = {"stack": stack, "precision": form, "seq_len": 64, "offload": layers}
        answer = estimate(model, board, **options)
        low, high, _ = answer.interval("decode_tokens_per_s")
        assert low < measured < high
        ratios.append(answer.decode_tokens_per_s / measured)
    assert median(ratios) == pytest.approx(1.0, abs=0.25)


def test_the_longest_prompt_that_fits_is_said():
    options = {"precision": "bf16", "output_len": 8}
    run = estimate("llama-3.1-8b", "rtx-4090", seq_len=100_000, **options)
    (named,) = (c for c in run.would_fit if c.what == "seq_len")
    assert estimate("llama-3.1-8b", "rtx-4090", seq_len=named.value, **options).fits
    longer = int(named.value * 1.05)
    assert not estimate("llama-3.1-8b", "rtx-4090", seq_len=longer, **options).fits


def test_a_simulation_says_the_same():
    options = {"precision": "q4_k_m", "offload": 40}
    made = simulate("llama-3.1-70b", "rtx-4090", **options)
    answer = estimate("llama-3.1-70b", "rtx-4090", **options)
    assert made.latency_s == answer.latency_s
    assert made.energy_j == answer.energy_j
    assert "40 of 80 layers" in answer.warnings[0]


def test_bad_input_is_named():
    for value in ("81", "-1", "x", "1.5", "", -1, 81):
        with pytest.raises(InvalidValueError, match=r"offload.*0 to 80"):
            estimate("llama-3.1-70b", "rtx-4090", offload=value)
    for model, board, words in (
        ("llama-3.1-8b", "m4 max", "memory of its own"),
        ("llama-3.1-8b", "epyc-9654", "memory of its own"),
        ("llama-3.1-8b", "2 x rtx-3090", "on one device"),
        ("resnet-50", "t4", "no stack of equal layers"),
    ):
        with pytest.raises(InputError, match=words):
            estimate(model, board, offload="auto")
    with pytest.raises(InvalidValueError, match="host"):
        estimate("llama-3.1-70b", "rtx-4090", precision="q4_k_m", offload="auto", host="t4")
    with pytest.raises(DoesNotFitError, match="core-i9"):
        estimate("llama-3.1-405b", "rtx-4090", precision="q8_0", offload="auto")
    with pytest.raises(InvalidValueError, match=r"offload.*when serving"):
        serve("llama-3.1-8b", "t4", Arrivals(users=1, requests=1), run=RunOptions(offload="auto"))
    with pytest.raises(InvalidValueError, match=r"offload.*all layers are trained"):
        train("gpt2", device="t4", offload=2)


def test_passes_keep_what_lies_where():
    options = ("llama-3.1-70b", "rtx-4090")
    whole = run_passes(resolve(*options, precision="q4_k_m"))
    passes = run_passes(resolve(*options, precision="q4_k_m", offload=40))
    assert passes.host_layers == 40
    assert passes.host_bytes + passes.memory.total_bytes == pytest.approx(whole.memory.total_bytes)
