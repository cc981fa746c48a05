"""Estimates: sizes, memory, price, intervals, and laws over the whole path."""

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import accelsim
from accelsim.errors import InvalidValueError, UnknownNameError, UnsupportedOperatorError
from accelsim.estimation.estimate import estimate
from accelsim.estimation.passes import run_passes
from accelsim.estimation.resolution import resolve

KEYS = [
    "workload",
    "device",
    "batch",
    "precision",
    "mode",
    "execution",
    "latency_s",
    "throughput_per_s",
    "latency_low_s",
    "latency_high_s",
    "interval_level",
    "tier",
    "bound",
    "energy_j",
    "average_power_w",
    "memory_bytes",
    "fits",
    "flop",
    "bytes",
    "cost_usd_per_1000",
    "offer",
    "operators",
]


def test_json_has_the_documented_keys():
    values = json.loads(estimate("resnet-50", "t4", batch=8).to_json())
    assert set(KEYS) <= set(values)
    assert set(values["operators"][0]) == {"name", "kind", "time_s", "bound", "share_fraction"}
    assert values["flop"] == pytest.approx(8 * 8.178e9, rel=1e-3)


def test_the_interval_holds_the_estimate():
    run = estimate("bert-large", "a100-sxm-80gb", batch=4)
    assert run.latency_low_s < run.latency_s < run.latency_high_s
    assert run.interval_level == 0.9


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["resnet-50", "bert-base", "dlrm-mlperf", "lstm-lm-medium"]),
    st.sampled_from(["t4", "a100-sxm-80gb", "epyc-7763", "tpu-v4"]),
    st.sampled_from(["inference", "training"]),
    st.integers(0, 5),
)
def test_a_larger_batch_takes_longer_and_serves_no_slower(model, device, mode, exponent):
    small = estimate(model, device, batch=2**exponent, mode=mode)
    large = estimate(model, device, batch=2 ** (exponent + 1), mode=mode)
    if large.fits:
        assert large.latency_s >= small.latency_s * 0.999
        # Tile quantisation may cost some; eager CPUs begin to fault in fresh buffers.
        least = {"gpu": 0.85, "cpu": 0.6, "asic": 0.85}[accelsim.device(device).device_class]
        assert large.throughput_per_s >= small.throughput_per_s * least
        assert large.memory_bytes > small.memory_bytes


CPUS = (
    "xeon-platinum-8480+",
    "xeon-platinum-8380",
    "epyc-9654",
    "epyc-7763",
    "graviton3",
    "xeon-e5-2630-v3",
)


@pytest.mark.parametrize("device", CPUS)
@pytest.mark.parametrize(
    ("model", "mode"),
    [
        ("mobilenet-v2", "training"),
        ("mobilenet-v2", "inference"),
        ("resnet-50", "inference"),
        ("bert-base", "inference"),
        ("dlrm-mlperf", "inference"),
        ("lstm-lm-medium", "inference"),
    ],
)
def test_cpus_lose_little_where_activations_outgrow_caches_and_graphs_are_no_slower(
    device, model, mode
):
    before = None
    for batch in (1, 2, 4, 8, 16, 32, 64):
        run = {
            e: estimate(model, device, batch=batch, mode=mode, execution=e)
            for e in ("eager", "graph", "compiled")
        }
        if not run["eager"].fits:
            break
        assert run["compiled"].latency_s <= run["graph"].latency_s * 1.002
        assert run["graph"].latency_s <= run["eager"].latency_s
        if before is not None:
            assert run["graph"].latency_s >= before.latency_s
            # from the last-level cache to memory at most; without it a row would be three to five
            # times slower at once
            assert run["graph"].throughput_per_s >= 0.8 * before.throughput_per_s
        before = run["graph"]


@pytest.mark.parametrize("device", ["t4", "h100-sxm-80gb", "epyc-9654", "tpu-v4", "zcu102"])
def test_never_faster_than_the_peak_rate_allows(device):
    run = estimate("vgg-16", device, batch=4, execution="compiled")
    profile = accelsim.device(device)
    winograd = 2.25  # executed multiplies of 3x3 convolutions may be this many times fewer
    assert run.latency_s >= run.flop / winograd / max(profile.peak_flop_per_s.values())


def test_energy_is_power_times_time_and_within_the_board_limit():
    run = estimate("bert-large", "v100-sxm2-16gb", batch=16)
    limit = accelsim.device("v100-sxm2-16gb").power.limit_w.value
    assert run.energy_j == pytest.approx(run.average_power_w * run.batch / run.throughput_per_s)
    assert run.average_power_w <= limit * 1.001


def test_generation_adds_prefill_and_decode_steps():
    run = estimate("llama-3.2-1b", "a100-sxm-80gb", seq_len=256, output_len=101)
    decode = 100 * run.time_per_output_token_s
    assert run.latency_s == pytest.approx(run.time_to_first_token_s + decode, rel=1e-6)
    assert run.tokens_per_s == pytest.approx(101 * run.throughput_per_s)


def test_simpson_contexts_equal_the_sum_over_every_step():
    """Three costed contexts stand for all decode steps within 0.5 %."""
    common = {"precision": "bf16", "execution": "graph", "seq_len": 512}
    short = estimate("llama-3.2-1b", "t4", output_len=33, **{**common, "precision": "fp16"})
    steps = [
        estimate(
            "llama-3.2-1b",
            "t4",
            output_len=2,
            **{**common, "precision": "fp16", "seq_len": 512 + i},
        )
        for i in range(32)
    ]
    total = sum(step.time_per_output_token_s for step in steps)
    assert 32 * short.time_per_output_token_s == pytest.approx(total, rel=5e-3)


def test_a_model_that_does_not_fit_has_no_times():
    run = estimate("llama-3.1-70b", "t4", output_len=0, seq_len=128)
    assert not run.fits
    assert (run.latency_s, run.throughput_per_s, run.energy_j, run.cost_usd_per_1000) == (None,) * 4
    assert run.memory_short_bytes > 100e9
    assert run.bound == "memory_capacity"


def test_compiled_is_never_slower_than_graph_nor_graph_than_eager():
    times = [
        estimate("resnet-50", "a100-sxm-80gb", batch=1, execution=e).latency_s
        for e in ("compiled", "graph", "eager")
    ]
    assert times == sorted(times)


def test_own_price_scales_the_cost():
    one = estimate("resnet-50", "t4", usd_per_hour=1.0)
    two = estimate("resnet-50", "t4", usd_per_hour=2.0)
    assert two.cost_usd_per_1000 == pytest.approx(2 * one.cost_usd_per_1000)
    assert one.offer is None
    assert one.cost_usd_per_1000 == pytest.approx(1000 / 3600 / one.throughput_per_s)


def test_an_epoch_costs_its_samples():
    run = estimate("resnet-50", "t4", batch=32, mode="training")
    assert run.cost_of_samples_usd(1_281_167) == pytest.approx(1281.167 * run.cost_usd_per_1000)
    assert estimate("resnet-50", "tpu-v1").cost_of_samples_usd(1000) is None
    assert estimate("llama-3.1-70b", "t4").cost_of_samples_usd(1000) is None
    with pytest.raises(InvalidValueError, match="count"):
        run.cost_of_samples_usd(0)


def test_the_same_again_is_the_same_and_a_changed_device_is_not():
    first, again = estimate("gpt2", "t4"), estimate("gpt2", "t4")
    assert again == first
    device = accelsim.device("t4")
    slower = device.model_copy(
        update={"memory": device.memory.model_copy(update={"bandwidth_bytes_per_s": half(device)})}
    )
    assert (
        estimate("gpt2", slower, execution="graph").latency_s
        > estimate("gpt2", "t4", execution="graph").latency_s
    )


def half(device):
    bandwidth = device.memory.bandwidth_bytes_per_s
    return bandwidth.model_copy(update={"value": bandwidth.value / 2})


def test_slices_cost_their_share():
    whole = estimate("resnet-50", "graviton3", batch=8)
    eight = estimate("resnet-50", "graviton3@8vcpu", batch=8)
    assert eight.usd_per_hour == pytest.approx(whole.usd_per_hour * 8 / 64, rel=0.05)
    board = estimate("resnet-50", "a100-sxm-40gb").usd_per_hour
    assert estimate("resnet-50", "a100-sxm-40gb@54sm").usd_per_hour == pytest.approx(board / 2)


def test_devices_without_an_offer_have_no_cost():
    run = estimate("resnet-50", "zcu102")
    assert (run.cost_usd_per_1000, run.offer, run.usd_per_hour) == (None, None, None)


def test_training_needs_more_memory_than_inference():
    training = estimate("resnet-50", "a100-sxm-80gb", batch=32, mode="training", precision="fp32")
    inference = estimate("resnet-50", "a100-sxm-80gb", batch=32, precision="fp32")
    assert training.memory_bytes > 5 * inference.memory_bytes
    assert training.memory["optimizer_bytes"] == 8 * training.parameter_count
    assert training.flop == pytest.approx(3 * inference.flop, rel=0.02)


def test_host_fallback_runs_what_the_device_cannot():
    with pytest.raises(UnsupportedOperatorError, match="host"):
        estimate("bert-base", "zcu102", batch=1)
    run = estimate("bert-base", "zcu102", batch=1, host="epyc-7763")
    assert run.host == "epyc-7763"
    assert run.latency_s > 0


@pytest.mark.parametrize(
    ("settings_", "error", "words"),
    [
        ({"batch": 0}, InvalidValueError, "batch = 0"),
        ({"batch": -3}, InvalidValueError, "batch"),
        ({"batch": True}, InvalidValueError, "batch"),
        ({"batch": 2**40}, InvalidValueError, "1,073,741,824"),
        ({"batch": 1.5}, InvalidValueError, "integer"),
        ({"image_size": 10**6}, InvalidValueError, "image_size"),
        ({"seq_len": 128}, InvalidValueError, "no sequence"),
        ({"output_len": 5}, InvalidValueError, "does not generate"),
        ({"mode": "serving"}, InvalidValueError, "inference, training"),
        ({"execution": "jit"}, InvalidValueError, "eager, graph, compiled"),
        ({"precision": "fp61"}, UnknownNameError, "fp16"),
        ({"precision": "int8", "mode": "training"}, InvalidValueError, "training"),
        ({"optimizer": "adamx", "mode": "training"}, UnknownNameError, "adam"),
        ({"precision": "bf16"}, UnsupportedOperatorError, "bf16"),
        ({"offer": "aws/us-east-1/g4dn.xlarg"}, UnknownNameError, "g4dn.xlarge"),
        ({"offer": "aws/us-east-1/p4d.24xlarge"}, InvalidValueError, "offer of t4"),
        ({"usd_per_hour": -1.0}, InvalidValueError, "usd_per_hour"),
        ({"host": "tpu-v4"}, InvalidValueError, "CPU or GPU"),
        ({"host": 5}, InvalidValueError, "host = 5"),
        ({"precision": 16}, InvalidValueError, "precision = 16"),
        ({"optimizer": 3, "mode": "training"}, InvalidValueError, "optimizer = 3"),
        ({"usd_per_hour": "2"}, InvalidValueError, "usd_per_hour = '2'"),
    ],
)
def test_bad_settings_are_named(settings_, error, words):
    with pytest.raises(error, match=words):
        estimate("resnet-50", "t4", **settings_)


@pytest.mark.parametrize(
    ("model", "device", "field"),
    [
        (None, "t4", "workload"),
        (5, "t4", "workload"),
        ("resnet-50", None, "device"),
        ("resnet-50", ["t4"], "device"),
    ],
)
def test_what_is_neither_name_nor_model_nor_device_is_refused(model, device, field):
    with pytest.raises(InvalidValueError, match=f"{field} (= |is missing)"):
        estimate(model, device)


@pytest.mark.parametrize(("model", "device"), [("resnet-5o", "t4"), ("resnet-50", "t44")])
def test_unknown_names_offer_near_matches(model, device):
    with pytest.raises(UnknownNameError, match="Did you mean"):
        estimate(model, device)


def test_passes_of_a_scenario():
    scenario = resolve("llama-3.2-1b", "t4", seq_len=64, output_len=20)
    plan = run_passes(scenario)
    assert [p.name for p in plan.passes] == ["prefill", "decode", "decode", "decode"]
    assert sum(p.repeats for p in plan.passes) == pytest.approx(20)
    assert plan.memory.kv_cache_bytes == pytest.approx(
        84 * 32 * 1024
    )  # 16 layers x 8 heads x 64 x 2 x 2 bytes per token
    single = run_passes(dataclasses.replace(scenario, output_len=1))
    assert [p.name for p in single.passes] == ["prefill"]


def test_an_array_without_a_published_rate_says_so():
    without = accelsim.device("tpu-v4").model_copy(update={"matrix_flop_per_s": {}})
    with pytest.raises(
        UnsupportedOperatorError,
        match=r"no rate of its arrays was published\. Choose another device",
    ):
        estimate("resnet-50", without, precision="bf16")


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_the_interval_is_finite_on_an_absurdly_slow_memory():
    device = accelsim.device("t4")
    slow = device.memory.bandwidth_bytes_per_s.model_copy(update={"value": 1e-291})
    memory = device.memory.model_copy(update={"bandwidth_bytes_per_s": slow})
    run = estimate("resnet-50", device.model_copy(update={"memory": memory}))
    assert 0 < run.latency_low_s < run.latency_s < run.latency_high_s < float("inf")


def test_numbers_and_paths_of_other_libraries_are_taken(tmp_path):
    plain = estimate("resnet-18", "t4", batch=4, image_size=160, usd_per_hour=2.0)
    same = estimate(
        "resnet-18",
        "t4",
        batch=np.int64(4),
        image_size=np.uint16(160),
        usd_per_hour=np.float32(2.0),
    )
    assert plain == same
    assert plain.to_json() == same.to_json()
    path = tmp_path / "mine.yaml"
    path.write_text(
        "name: mine\ntitle: Mine\ntask: none\nfamily: layers\n"
        "parameters: {input: [8], sections: {'': [{linear: 4}]}}\n"
    )
    assert estimate(path, "t4").workload == "mine"
    with pytest.raises(InvalidValueError, match="batch"):
        estimate("resnet-18", "t4", batch=np.float64(4))


@pytest.mark.parametrize(
    ("name", "same"), [("bfloat16", "bf16"), ("torch.float16", "fp16"), ("float32", "fp32")]
)
def test_torch_names_of_formats_are_known(name, same):
    assert estimate("resnet-18", "a100", precision=name) == estimate(
        "resnet-18", "a100", precision=same
    )


def test_tables_of_a_recommender_are_updated_where_they_were_looked_up():
    small, large = (
        estimate("dlrm-mlperf", "epyc-9654", batch=batch, mode="training") for batch in (256, 2048)
    )
    parameters = small.parameter_count
    assert small.memory["gradient_bytes"] < large.memory["gradient_bytes"] < 0.01 * 2 * parameters
    assert (
        small.memory["optimizer_bytes"]
        == large.memory["optimizer_bytes"]
        == pytest.approx(12 * parameters)
    )
    assert large.bytes < 0.1 * large.memory["optimizer_bytes"]
