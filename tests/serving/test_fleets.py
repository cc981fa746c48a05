"""Fleets of catalogued devices: parts apart, further pools, cold starts, speculation, adapters."""

import numpy as np
import pytest

import accelsim
from accelsim import Arrivals
from accelsim.catalog.workloads import workload
from accelsim.dtype import PRECISIONS
from accelsim.errors import InvalidValueError, UnknownNameError
from accelsim.serving.adapters import adapter_bytes, adapter_rows
from accelsim.serving.options import (
    Adapters,
    PoolOptions,
    PrefillOptions,
    ServingOptions,
)
from accelsim.serving.replicas.autoscaling import Autoscaler, ScalingPolicy
from accelsim.serving.replicas.outages import OutagePolicy
from accelsim.serving.speculation import USUAL_GUESSES, Speculation
from accelsim.workloads.model import PassShape
from accelsim.workloads.operator import Phase

PAIR = ("llama-3.1-8b", "h100-sxm-80gb")
LOAD = Arrivals(rate_per_s=8, requests=120)


def serve(load=LOAD, pair=PAIR, **options):
    return accelsim.serve(*pair, load, intervals=False, **options)


def test_a_slower_link_delays_the_first_token_alone():
    fast, slow = (
        serve(prefill=PrefillOptions("a100-sxm-80gb", link=link))
        for link in ("infiniband-ndr", "ethernet-10g")
    )
    assert fast.completed == slow.completed == 120
    moves = [result.pools[1]["mean_transfer_s"] for result in (fast, slow)]
    later_s = slow.ttft_s["mean"] - fast.ttft_s["mean"]
    assert later_s == pytest.approx(moves[1] - moves[0], rel=0.1)
    assert fast.tpot_s["mean"] == pytest.approx(slow.tpot_s["mean"], rel=0.02)
    assert moves[1] / moves[0] > 10
    assert {pool["part"] for pool in fast.pools} == {"prompts", "further"}
    per_s = sum(pool["cost_usd"] for pool in fast.pools) / fast.duration_s
    assert per_s == pytest.approx(
        1e-3 * fast.cost_usd_per_1000_requests * fast.throughput_requests_per_s
    )


def test_faster_devices_of_a_mixed_pool_get_more():
    pools = (PoolOptions("l4", 2), PoolOptions("l4", 1, model="llama-3.2-1b", share_fraction=0.25))
    result = serve(Arrivals(rate_per_s=20, requests=200), pools=pools)
    assert result.completed == 200
    h100, l4, other = result.pools
    assert other["workload"] == "llama-3.2-1b"
    assert h100["energy_j"] > l4["energy_j"]
    ratio = h100["utilisation_fraction"] / l4["utilisation_fraction"]
    assert 0.2 < ratio < 5
    assert sum(pool["energy_j"] for pool in result.pools) == pytest.approx(result.energy_j)


@pytest.mark.parametrize("device", ["t4", "xeon-platinum-8380", "tpu-v5e", "alveo-u280"])
def test_vision_fleets_scale_and_fail_on_every_class_of_device(device):
    load = Arrivals(rate_per_s=50, requests=400, prompt="1", output="0")
    result = serve(
        load, ("resnet-50", device), max_seqs=8, provisioning_s=0.5, storage="memory",
        autoscale=ScalingPolicy("queue", 1.0, 1, 3, interval_s=1.0),
        outages=OutagePolicy(3.0),
    )  # fmt: skip
    assert result.completed == 400
    assert result.pools[0]["cold_start_s"] > 0.5


def test_larger_models_and_slower_storage_start_later():
    options = {"autoscale": ScalingPolicy("queue", 8.0), "provisioning_s": 0.0}
    times = {
        (model, storage): serve(LOAD, (model, PAIR[1]), storage=storage, **options).pools[0][
            "cold_start_s"
        ]
        for model in ("llama-3.1-8b", "llama-3.2-1b")
        for storage in ("nvme", "object")
    }
    started_s = 34.1
    assert times["llama-3.1-8b", "object"] == pytest.approx(started_s + 16.06 / 0.5, rel=0.01)
    assert times["llama-3.1-8b", "nvme"] == pytest.approx(started_s + 16.06 / 6.8, rel=0.01)
    assert times["llama-3.2-1b", "object"] < times["llama-3.1-8b", "object"]
    with pytest.raises(UnknownNameError, match="storage"):
        serve(storage="tape", **options)


def test_guesses_that_are_right_save_steps_and_wrong_ones_cost():
    plain = serve().tpot_s["mean"]
    times = [serve(speculation=Speculation(4, share)).tpot_s["mean"] for share in (0.0, 0.5, 0.9)]
    assert times == sorted(times, reverse=True)
    assert times[0] > plain > times[2]
    assert Speculation(4, 1.0).tokens_per_step == 5
    assert Speculation(4, 0.5).tokens_per_step == pytest.approx(1 + 0.5 + 0.25 + 0.125 + 0.0625)
    draft = serve(speculation=Speculation(4, 0.9, "llama-3.2-1b"))
    assert times[2] < draft.tpot_s["mean"]
    assert draft.plan["weight_bytes"] > 1.1 * serve().plan["weight_bytes"]


def test_speculation_unsaid_is_a_range_that_holds_both():
    pair = ("qwen3-next-80b-a3b", "h200-sxm-141gb")
    load = Arrivals(users=4, requests=20, prompt="500", output="100")
    unsaid = accelsim.serve(*pair, load, tp=2)
    said = [
        serve(load, pair, tp=2, speculation=one) for one in (Speculation(0, 0.0), USUAL_GUESSES)
    ]
    assert any("speculation is not said" in warning for warning in unsaid.warnings)
    assert said[1].tpot_s["mean"] < said[0].tpot_s["mean"] == unsaid.tpot_s["mean"]
    for one in said:
        assert not any("speculation" in warning for warning in one.warnings)
        for name in ("tpot_s.mean", "e2e_s.mean", "output_tokens_per_s"):
            metric = unsaid.metrics[name]
            assert metric.low <= one.metrics[name].value <= metric.high


def test_a_model_without_layers_of_its_own_that_guess_is_refused_them():
    assert not any("speculation" in warning for warning in serve().warnings)
    with pytest.raises(InvalidValueError, match="no layers of multi-token prediction"):
        serve(speculation=USUAL_GUESSES)


def test_adapters_take_memory_and_time():
    plain, few, many = serve(), serve(adapters=Adapters(4, 16)), serve(adapters=Adapters(64, 64))
    assert plain.tpot_s["mean"] < few.tpot_s["mean"] < many.tpot_s["mean"]
    # rank x (in + out) of seven products: q 8192, k and v 5120 each, o 8192, three of 18432
    each = 32 * (2 * 8192 + 2 * 5120 + 3 * 18432) * 64 * 2
    added = many.plan["weight_bytes"] - plain.plan["weight_bytes"]
    assert added == pytest.approx(64 * each, rel=0.01)


def test_copies_of_the_attention_share_the_experts():
    pair = ("mixtral-8x7b", PAIR[1])
    shared, copied = serve(LOAD, pair, tp=8, ep=8), serve(LOAD, pair, dp=8, ep=8)
    assert copied.plan["devices_per_replica"] == shared.plan["devices_per_replica"] == 8
    assert copied.plan["weight_bytes"] > shared.plan["weight_bytes"]
    assert copied.completed == 120


@pytest.mark.parametrize(
    "change",
    [
        {"dp": 2},
        {"dp": 0},
        {"preemption": "drop"},
        {"preemption": "swap"},
        {"max_outstanding": 0},
        {"pools": (PoolOptions("l4", model="llama-3.2-1b"),)},
        {"pools": (PoolOptions("l4"),), "prefill": PrefillOptions()},
        {"speculation": Speculation(2, 0.5, "resnet-50")},
    ],
)
def test_fleets_that_are_none_are_refused(change):
    with pytest.raises(InvalidValueError):
        serve(**change)


@pytest.mark.parametrize(
    "make",
    [
        lambda: PoolOptions("l4", share_fraction=0.5),
        lambda: PoolOptions("l4", 0),
        lambda: PrefillOptions(tp=0),
        lambda: Speculation(0, 0.5),
        lambda: Speculation(2, 1.5),
        lambda: Adapters(0),
        lambda: ServingOptions(host_cache_bytes=-1.0),
    ],
)
def test_options_out_of_range_are_refused(make):
    with pytest.raises(InvalidValueError):
        make()


@pytest.mark.parametrize("metric", ["queue", "utilisation", "ttft", "itl"])
def test_scaling_costs_no_decisions_while_steps_last_for_ages(metric, monkeypatch):
    calls = []
    decide = Autoscaler._decide
    monkeypatch.setattr(
        Autoscaler, "_decide", lambda self, fleet: (calls.append(1), decide(self, fleet))
    )
    result = serve(
        Arrivals(rate_per_s=5.0, requests=3, output="4"),
        autoscale=ScalingPolicy(metric, 1.0, 1, 3),
        step_overhead_s=1e7,
    )
    assert result.completed == 3
    assert result.duration_s > 1e7
    assert len(calls) < 200


@pytest.mark.parametrize("bound", ["_MOST_LOSSES", "_MOST_RESTARTS"])
def test_replicas_lost_before_a_request_can_end_are_refused(bound, monkeypatch):
    for name in ("_MOST_LOSSES", "_MOST_RESTARTS"):
        most = 5 if name == bound else 10**9
        monkeypatch.setattr(f"accelsim.serving.replicas.outages.{name}", most)
    with pytest.raises(InvalidValueError, match=r"mean_time_s = 0.001 .*at most 5 "):
        serve(Arrivals(rate_per_s=5, requests=20), outages=OutagePolicy(0.001))


def test_a_merged_product_holds_the_adapters_of_its_parts():
    step = PassShape(batch=8, seq_len=1, context_len=100)
    apart, merged = (
        workload("llama-3.1-70b").lower(step, PRECISIONS["bf16"], Phase.DECODE, merges=m).graph
        for m in (False, True)
    )
    one = Adapters(count=4, rank=16)
    held = [adapter_bytes(graph, np.ones(len(graph), bool), one) for graph in (apart, merged)]
    assert held[0] == held[1]
    rows = [adapter_rows(graph, np.ones(len(graph), bool), one, 8) for graph in (apart, merged)]
    assert len(rows[1]) < len(rows[0])
    assert rows[0].weight_bytes.sum() == pytest.approx(rows[1].weight_bytes.sum())
