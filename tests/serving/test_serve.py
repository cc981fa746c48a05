"""Serving a catalogued model: agrees with `estimate`, keeps laws, refuses what cannot be."""

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import example, given, reject, settings
from hypothesis import strategies as st

import accelsim
from accelsim import Arrivals, ServingOptions, SloTargets, catalog
from accelsim.catalog.engines import engine as find_engine
from accelsim.catalog.engines import front_end
from accelsim.cost.background import background_power_w
from accelsim.errors import (
    DoesNotFitError,
    InvalidValueError,
    UnknownNameError,
    UnsupportedOperatorError,
)
from accelsim.estimation.options import RunOptions
from accelsim.serving.loads.requests import RequestColumns
from accelsim.serving.loads.sessions import SessionOptions
from accelsim.serving.options import PoolOptions, PrefillOptions
from accelsim.serving.plan import replica_plan

CONTRACT = (
    *("workload", "device", "replicas", "devices", "instances", "engine", "plan"),
    *("requests", "completed", "duration_s"),
    *("steady_from_s", "steady_s"),
    *("throughput_requests_per_s", "output_tokens_per_s", "goodput_requests_per_s"),
    *("slo_attainment_fraction", "ttft_s", "tpot_s", "itl_s", "e2e_s", "queue_s"),
    *("kv_occupancy_fraction", "utilisation_fraction", "preemptions", "energy_j"),
    *("energy_j_per_token", "average_power_w", "peak_power_w", "cost_usd_per_million_tokens"),
    *("cost_usd_per_1000_requests", "offer", "cost_usd_per_month"),
    *("energy_kwh_per_month", "carbon_kgco2e_per_month", "saturated", "seed"),
    *("kv_cache_tokens", "prefix_hit_fraction", "sessions", "session_s", "cost_usd_per_session"),
    *("pools", "classes"),
)


def one(prompt, output):
    return RequestColumns(np.zeros(1), np.array([prompt]), np.array([output]))


MODELS = ("llama-3.1-8b", "gpt2", "llama-3.2-1b", "qwen2.5-0.5b", "t5-small", "mixtral-8x7b")
DEVICES = ("h100-sxm-80gb", "a100-sxm-80gb", "l4", "t4", "epyc-7763", "tpu-v5e", "mi300x")
ENGINES = ("vllm", "sglang", "tensorrt-llm", "vllm@0.6")


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from(MODELS),
    st.sampled_from(DEVICES),
    st.sampled_from(ENGINES),
    st.integers(1, 900),
    st.integers(1, 100),
)
@example("gpt2", "a100-sxm-80gb", "vllm", 300, 65)
@example("gpt2", "l4", "vllm", 512, 128)
@example("gpt2", "l4", "vllm@0.6", 512, 128)
@example("llama-3.1-8b", "h100-sxm-80gb", "sglang", 8192, 2)
@example("mixtral-8x7b", "mi300x", "sglang", 100, 10)
def test_one_request_alone_takes_what_estimate_says(model, device, engine, prompt, output):
    """The host's time per step and the way of the request are part of both, where the stack is the
    engine's; elsewhere of the engine alone.
    """
    load, limits = one(prompt, output), {"max_batch_tokens": 8192, "intervals": False}
    try:
        served = accelsim.serve(model, device, load, engine=engine, **limits)
    except (DoesNotFitError, UnsupportedOperatorError):  # of the memory; of the engine
        reject()
    stack = served.plan["stack"]
    if stack == engine.partition("@")[0]:
        stack = engine
    how = {"stack": stack}
    if stack == "pytorch":  # it has several ways
        how["execution"] = served.plan["execution"]
    alone = accelsim.estimate(model, device, batch=1, seq_len=prompt, output_len=output, **how)
    host_s = before_s = 0.0
    if stack != engine:
        host_s = find_engine(engine).step_overhead_s.value
        before_s = front_end().time_s(prompt)
    first_s = alone.time_to_first_token_s + before_s + host_s
    assert served.ttft_s["mean"] == pytest.approx(first_s, rel=1e-6)
    assert served.e2e_s["mean"] == pytest.approx(
        alone.latency_s + before_s + output * host_s, rel=1e-6
    )
    if output > 1:
        step_s = alone.time_per_output_token_s + host_s
        assert served.tpot_s["mean"] == pytest.approx(step_s, rel=1e-6)


@pytest.mark.parametrize(
    ("model", "device", "engine"),
    [("gpt2", "l4", None), ("llama-3.1-8b", "h100-sxm-80gb", "tensorrt-llm")],
)
def test_the_energy_of_one_request_alone_is_that_of_estimate(model, device, engine):
    load = one(300, 40)
    served = accelsim.serve(model, device, load, engine=engine, intervals=False)
    stack = served.plan["stack"]
    alone = accelsim.estimate(model, device, batch=1, seq_len=300, output_len=40, stack=stack)
    # passes back to back overlap the copy of one with the end of another: idle power less
    apart_s = alone.latency_s - 1.0 / alone.throughput_per_s
    idle_j = background_power_w(catalog.device(device)) * apart_s
    assert served.energy_j == pytest.approx(alone.energy_j + idle_j, rel=1e-6)


def test_a_sequence_longer_than_the_models_positions_is_refused_by_name():
    columns = RequestColumns(np.zeros(2), np.array([1000, 1000]), np.array([25, 26]))
    result = accelsim.serve("gpt2", "a100-sxm-80gb", columns, intervals=False)
    assert result.completed == 1
    assert "request 1, needs 1,025 positions, the model has 1,024" in result.warnings[0]


def test_figures_are_those_of_the_contract():
    slo = SloTargets(ttft_s=0.5, tpot_s=0.05)
    load = Arrivals(rate_per_s=8, requests=200)
    result = accelsim.serve("llama-3.1-8b", "h100-sxm-80gb", load, slo=slo)
    assert tuple(result.figures()) == CONTRACT
    document = result.to_dict()
    assert document["kind"] == "serving"
    assert list(document["ttft_s"]) == ["mean", "p50", "p90", "p95", "p99", "p99.9"]
    assert document["completed"] == 200
    assert document["slo_attainment_fraction"] > 0.9
    assert document["steady_from_s"] + document["steady_s"] < document["duration_s"]
    joules = document["energy_j_per_token"] * document["output_tokens_per_s"]
    assert joules == pytest.approx(document["average_power_w"])
    assert document["average_power_w"] < document["peak_power_w"] < 701
    assert len(result.to_requests()) == 200
    assert not any(math.isclose(low, high) for low, high in result.intervals.values())


def test_times_rise_with_the_rate_until_it_is_too_much():
    means = []
    for rate in (2.0, 8.0, 20.0, 120.0):
        load = Arrivals(rate_per_s=rate, requests=400, prompt="1000", output="64")
        result = accelsim.serve("llama-3.1-8b", "h100-sxm-80gb", load)
        means.append(result.e2e_s["mean"])
    assert means == sorted(means)
    assert result.saturated
    assert "per s end meanwhile" in result.warnings[-1]


def test_littles_law():
    load = Arrivals(rate_per_s=10, requests=300)
    result = accelsim.serve("llama-3.1-8b", "h100-sxm-80gb", load)
    frame = result.to_requests()
    events = np.concatenate([frame["arrival_s"], frame["finish_s"]])
    change = np.concatenate([np.ones(300), -np.ones(300)])
    order = np.argsort(events)
    inside = np.cumsum(change[order])[:-1]
    mean_inside = (inside * np.diff(events[order])).sum() / result.duration_s
    waited = 300 / result.duration_s * result.e2e_s["mean"]
    assert mean_inside == pytest.approx(waited, rel=1e-6)


def test_rates_are_those_of_the_arrivals_and_not_of_the_ramps():
    load = Arrivals(rate_per_s=20, requests=400, process="uniform", prompt="256", output="384")
    result = accelsim.serve("llama-3.1-8b", "h100-sxm-80gb", load)
    assert 400 / result.duration_s < 18
    assert result.throughput_requests_per_s == pytest.approx(20, rel=0.02)
    assert result.output_tokens_per_s == pytest.approx(20 * 384, rel=0.02)
    assert result.energy_j / result.duration_s < result.average_power_w


def test_a_closed_loop_keeps_its_users_busy_in_the_steady_part():
    load = Arrivals(users=16, requests=96, prompt="128", output="256")
    result = accelsim.serve("llama-3.1-8b", "h100-sxm-80gb", load)
    assert result.throughput_requests_per_s * result.e2e_s["mean"] == pytest.approx(16, rel=0.03)


def test_a_run_without_a_steady_part_is_told_whole():
    load = Arrivals(rate_per_s=5.0, requests=40, process="burst", prompt="128", output="32")
    result = accelsim.serve("llama-3.1-8b", "h100-sxm-80gb", load)
    assert (result.steady_from_s, result.steady_s) == (0.0, result.duration_s)
    assert result.throughput_requests_per_s * result.duration_s == pytest.approx(40)
    assert result.average_power_w * result.duration_s == pytest.approx(result.energy_j)


def test_a_load_without_a_number_of_requests_has_as_many_as_a_steady_state_needs():
    slow, fast = (Arrivals(rate_per_s=rate, prompt="512", output="1024") for rate in (0.2, 8.0))
    few, many = (serve_llama(load) for load in (slow, fast))
    assert few.requests == 1000
    assert many.requests > 20 * 8.0 * many.e2e_s["p50"]
    again = serve_llama(Arrivals(**many.inputs["load"]))
    assert again == many


@pytest.mark.parametrize("device", ["t4", "xeon-platinum-8380", "tpu-v5e", "alveo-u280"])
def test_vision_models_are_served_in_batches(device):
    load = Arrivals(rate_per_s=50, requests=100, prompt="1", output="0")
    result = accelsim.serve("resnet-50", device, load, max_seqs=8, batch_window_s=0.01)
    frame = result.to_requests()
    runs_s = (frame["finish_s"] - frame["scheduled_s"]).max()
    assert result.completed == 100
    assert result.tpot_s["mean"] is None
    # none waits longer than the window and the batch before its own
    full_s = accelsim.estimate("resnet-50", device, batch=8).latency_s
    assert result.queue_s["p50"] == pytest.approx(0.01)
    assert result.queue_s["p99.9"] <= 0.01 + full_s
    assert (frame["scheduled_s"] - frame["arrival_s"]).max() <= 1.0001 * max(0.01, runs_s)


@pytest.mark.parametrize(
    ("model", "device", "host"),
    [
        ("ncf-ml-20m", "xeon-platinum-8380", None),
        ("ncf-ml-20m", "tpu-v5e", None),
        ("ncf-ml-20m", "alveo-u280", "xeon-platinum-8380"),
        ("dlrm-criteo-kaggle", "t4", None),
    ],
)
def test_recommenders_are_served_in_batches(model, device, host):
    load = Arrivals(rate_per_s=3000, requests=300, prompt="1", output="0")
    options = {"max_seqs": 32, "batch_window_s": 0.004, "intervals": False, "host": host}
    result = accelsim.serve(model, device, load, **options)
    assert result.completed == 300
    assert result.queue_s["p50"] <= 0.005
    batches = result.to_requests().groupby("scheduled_s").size()
    assert 5 < batches.mean() <= 32


@pytest.mark.parametrize(
    ("model", "device", "error", "words"),
    [
        ("ncf-ml-20m", "alveo-u280", UnsupportedOperatorError, "no such operator"),
        ("dlrm-mlperf", "t4", DoesNotFitError, "short of memory"),
    ],
)
def test_recommenders_that_cannot_run_are_refused(model, device, error, words):
    with pytest.raises(error, match=words):
        accelsim.serve(model, device, Arrivals(rate_per_s=10, requests=10))


def test_engines_share_memory_out_by_their_own_rules():
    found = {
        engine: accelsim.serve(
            "llama-3.1-8b", "h100-sxm-80gb", one(64, 8), ServingOptions(engine=engine)
        ).plan
        for engine in (
            *("vllm", "vllm@0.6", "sglang", "sglang@0.3"),
            *("tensorrt-llm", "tensorrt-llm@0.11"),
        )
    }
    capacity = accelsim.catalog.device("h100-sxm-80gb").memory.capacity_bytes.value
    for plan in found.values():
        held = plan["weight_bytes"] + plan["kv_cache_bytes"]
        assert 0.82 * capacity < held < 0.93 * capacity
    assert found["tensorrt-llm@0.11"]["block_tokens"] == 64
    # 0.5 GiB, 1.5 MiB for each of 8,192 tokens, 2 MiB for each of 256 sequences, 1/8 GiB for a rank
    kept = (512 + 1.5 * 8192 + 2 * 256 + 128) * 2**20
    started = capacity - 1e9  # what context and communicators leave
    for name, share in (("sglang", 1 - kept / capacity), ("sglang@0.3", 0.88)):
        held = found[name]["weight_bytes"] + found[name]["kv_cache_bytes"]
        assert held == pytest.approx(share * started, rel=1e-5)


def test_a_step_takes_what_it_takes_whatever_the_longest_request():
    columns = RequestColumns(np.zeros(2), np.array([4000, 4000]), np.array([2, 2]))
    more = RequestColumns(
        np.array([0.0, 0.0, 60.0]), np.array([4000, 4000, 30_000]), np.array([2, 2, 2])
    )
    pair = ("llama-3.1-8b", "h100-sxm-80gb")
    first, other = (accelsim.serve(*pair, load, intervals=False) for load in (columns, more))
    expected = other.to_requests()["first_token_s"][:2].max()
    assert first.to_requests()["first_token_s"].max() == pytest.approx(expected, rel=0.03)


def test_twice_the_prompts_of_a_whole_batch_take_twice_as_long():
    columns = RequestColumns(np.zeros(32), np.full(32, 1000), np.full(32, 1))
    times = [
        accelsim.serve(
            "llama-3.1-8b", "h100-sxm-80gb", columns, engine="static", max_seqs=size
        ).duration_s
        for size in (16, 32)
    ]
    assert times[1] == pytest.approx(times[0], rel=0.05)


@pytest.mark.parametrize("split", [{"tp": 4}, {"tp": 4, "ep": 4}, {"tp": 2, "pp": 2}])
def test_ranks_share_the_weights_and_the_work(split):
    load = Arrivals(rate_per_s=2, requests=40)
    alone = accelsim.serve("mixtral-8x7b", "h100-sxm-80gb", load, intervals=False, tp=2)
    result = accelsim.serve("mixtral-8x7b", "h100-sxm-80gb", load, intervals=False, **split)
    assert result.completed == 40
    assert result.plan["devices_per_replica"] == 4
    ratio = result.plan["weight_bytes"] / alone.plan["weight_bytes"]
    assert ratio == pytest.approx(0.5, rel=0.05)


def test_a_replicas_memory_is_that_of_the_stage_that_holds_most():
    options = ServingOptions(pp=3)
    plan = replica_plan("llama-3.1-8b", "h100-sxm-80gb", RunOptions(), options, max_context=1024)
    layer_bytes = 2 * 8 * 128 * 2  # keys and values of 8 heads of 128 numbers
    assert plan.memory.cache.bytes_of(1) == 11 * layer_bytes  # 32 layers: 11, 11 and 10


def test_what_never_ended_has_no_energy_per_token():
    result = accelsim.serve("llama-3.1-8b", "h100-sxm-80gb", one(5_000_000, 8))
    assert result.completed == 0
    assert result.energy_j_per_token is None
    assert "refused" in result.warnings[0]


@pytest.mark.parametrize(
    ("error", "change"),
    [
        (DoesNotFitError, {"workload": "llama-3.1-70b"}),
        (InvalidValueError, {"tp": 0}),
        (InvalidValueError, {"router": "nearest"}),
        (UnknownNameError, {"engine": "vlm"}),
        (UnknownNameError, {"engine": "vllm@99"}),
        (InvalidValueError, {"workload": "resnet-50", "engine": "vllm"}),
        (InvalidValueError, {"memory_fraction": 1.5}),
    ],
)
def test_what_cannot_be_served_is_refused(error, change):
    workload = change.pop("workload", "llama-3.1-8b")
    with pytest.raises(error):
        accelsim.serve(workload, "h100-sxm-80gb", one(64, 8), **change)


@pytest.mark.parametrize(
    "change",
    [
        {"rate_per_s": 0.0},
        {"rate_per_s": None},
        {"users": 3},
        {"requests": 0},
        {"process": "pareto"},
        {"swing_fraction": 2.0},
        {"prefixes": -1},
        {"session": SessionOptions(3), "turns": 3},
        {"session": SessionOptions(3), "users": 2, "rate_per_s": None},
        {"users": 3, "rate_per_s": None, "turns": 2},
    ],
)
def test_loads_that_are_none_are_refused(change):
    with pytest.raises(InvalidValueError):
        Arrivals(**({"rate_per_s": 1.0} | change))


@pytest.mark.parametrize(
    "text", ["0", "-5", "x", "uniform:9", "lognormal:1", "normal:5:1", "geometric:0"]
)
def test_lengths_that_are_none_are_refused(text):
    load = Arrivals(rate_per_s=1.0, requests=10, prompt=text)
    with pytest.raises(InvalidValueError, match="prompt"):
        accelsim.serve("llama-3.1-8b", "h100-sxm-80gb", load)


def serve_llama(load, device="h100-sxm-80gb", **options):
    return accelsim.serve("llama-3.1-8b", device, load, ServingOptions(**options))


def test_a_burst_has_no_rate_to_be_saturated_by():
    result = serve_llama(Arrivals(rate_per_s=5.0, requests=200, process="burst"))
    assert result.completed == 200
    assert not result.saturated
    assert any("all requests come at once" in warning for warning in result.warnings)


def test_prompts_without_output_leave_the_further_pool_idle():
    load = Arrivals(rate_per_s=5.0, requests=20, output="0")
    result = serve_llama(load, prefill=PrefillOptions("a100-sxm-80gb"))
    assert result.completed == 20
    assert [pool["utilisation_fraction"] > 0 for pool in result.pools] == [False, True]


def test_cache_use_is_that_of_the_replicas_with_blocks():
    pool = PoolOptions("a100-sxm-80gb", engine="static")
    use = serve_llama(Arrivals(rate_per_s=5.0, requests=3), pools=(pool,)).kv_occupancy_fraction
    assert 0 < use["mean"] <= use["peak"] < 1


def test_counts_are_of_devices_replicas_and_instances_and_a_month_is_of_its_rates():
    load = Arrivals(rate_per_s=20, requests=200, prompt="256", output="64")
    ask = partial(accelsim.serve, "llama-3.1-8b", "h100-sxm-80gb", load, tp=4, replicas=4)
    rented = ask(offer="aws/ap-northeast-1/p5.48xlarge")
    assert rented.deployed == "4 x tp 4 = 16 h100-sxm-80gb in 2 instances"
    assert rented.carbon_kgco2e_per_month > 0.4 * rented.energy_kwh_per_month
    assert not any("spans instances" in warning for warning in rented.warnings)
    small = accelsim.serve("llama-3.1-8b", "h200-sxm-141gb", load, tp=4)
    assert small.instances == 4
    assert any("spans instances of 1" in warning for warning in small.warnings)
    result = ask(usd_per_hour=2.0)
    assert (result.devices, result.instances) == (16, None)
    assert result.carbon_kgco2e_per_month is None
    assert result.cost_usd_per_month == pytest.approx(16 * 2.0 * 730.5)
    kwh = result.average_power_w * 730.5 / 1e3
    assert result.energy_kwh_per_month == pytest.approx(kwh)
    made = result.output_tokens_per_s * 730.5 * 3600 / 1e6
    assert result.cost_usd_per_million_tokens * made == pytest.approx(result.cost_usd_per_month)


def test_a_narrow_format_that_a_board_multiplies_decodes_no_slower():
    """Four bits, eight and sixteen of a B200, each with weights and activations."""
    load = Arrivals(users=8, requests=16, prompt="1024", output="128")
    taken = [
        accelsim.serve(
            "llama-3.1-70b", "b200-sxm", load, tp=8, precision=name, intervals=False
        ).tpot_s["mean"]
        for name in ("nvfp4", "fp8", "bf16")
    ]
    assert taken[0] < taken[1] < taken[2]
