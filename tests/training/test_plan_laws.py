"""Laws of memory and of the best plan, over random plans of models on several clusters."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import accelsim
from accelsim.errors import InputError

MODELS = ("gpt2", "llama-3.2-1b", "llama-2-13b", "mixtral-8x7b", "bert-large")
CLUSTERS = ("dgx-superpod-h100", "hgx-a100-infiniband", "rtx-4090-server", "a40-server")
SAME = 1.0 + 1e-9


@st.composite
def runs(draw):
    """A run of a model, and fields of a plan without its ZeRO stage and microbatch."""
    model, devices = draw(st.sampled_from(MODELS)), draw(st.sampled_from((2, 4, 8, 16)))
    tp = 1 if model == "bert-large" else draw(st.sampled_from((1, 1, 2)))
    asked = {
        "workload": model,
        "cluster": draw(st.sampled_from(CLUSTERS)),
        "gpus": devices,
        "global_batch": 8 * devices // tp,
        "seq_len": draw(st.sampled_from((256, 512))),
        "execution": draw(st.sampled_from(("eager", "compiled"))),
        "check_memory": False,
    }
    recompute = draw(st.sampled_from(("none", "selective", "full")))
    return asked, f"tp={tp},recompute={recompute}"


def memory(asked, plan):
    return accelsim.train(plan=plan, **asked).memory_bytes


LAW = settings(max_examples=12, deadline=None)


@pytest.mark.law
@LAW
@given(runs(), st.sampled_from((1, 4)))
def test_memory_never_rises_with_the_zero_stage(run, microbatch):
    asked, plan = run
    held = [memory(asked, f"{plan},microbatch={microbatch},zero={zero}") for zero in range(4)]
    assert all(after <= before * SAME for before, after in pairwise(held)), held


@pytest.mark.law
@LAW
@given(runs(), st.integers(0, 3))
def test_memory_never_falls_with_the_microbatch(run, zero):
    asked, plan = run
    held = [memory(asked, f"{plan},zero={zero},microbatch={batch}") for batch in (1, 2, 4, 8)]
    assert all(before <= after * SAME for before, after in pairwise(held)), held


@pytest.mark.law
@LAW
@given(runs(), st.integers(0, 3), st.sampled_from((4, 16)))
def test_adapters_never_need_more_memory_than_all_weights(run, zero, rank):
    asked, plan = run
    whole, thin = (memory(asked, f"{plan},zero={zero}{end}") for end in ("", f",lora_rank={rank}"))
    assert thin <= whole * SAME


@pytest.mark.law
@LAW
@given(runs(), st.sampled_from((2.0, 1.2)))
def test_more_bandwidth_is_never_slower(run, ratio):
    asked, plan = run
    cluster = accelsim.cluster(asked["cluster"])
    tiers = tuple(
        replace(tier, bandwidth_bytes_per_s=ratio * tier.bandwidth_bytes_per_s)
        for tier in cluster.tiers
    )
    faster = replace(cluster, tiers=tiers)
    slow = accelsim.train(plan=plan, **asked)
    fast = accelsim.train(plan=plan, **asked | {"cluster": faster})
    assert fast.iteration_s <= slow.iteration_s * SAME


@st.composite
def searches(draw):
    return {
        "workload": draw(st.sampled_from(("gpt2", "llama-3.2-1b", "bert-large", "resnet-50"))),
        "cluster": draw(st.sampled_from(CLUSTERS)),
        "global_batch": draw(st.sampled_from((8, 16, 32))),
        "stack": "pytorch",
    }


def searched(asked, gpus):
    try:
        return accelsim.train(search=True, gpus=gpus, **asked)
    except InputError:
        return None


@pytest.mark.law
@settings(max_examples=6, deadline=None)
@given(searches(), st.sampled_from((1, 2, 4, 8)))
def test_twice_the_devices_are_never_slower_in_the_best_plan(asked, gpus):
    one, two = searched(asked, gpus), searched(asked, 2 * gpus)
    if one is None:
        return
    assert two.iteration_s <= one.iteration_s * SAME
    assert two.device_count <= 2 * gpus
    is_told = any("no plan on all of them is faster" in words for words in two.warnings)
    assert is_told == (two.device_count < 2 * gpus)


@pytest.mark.law
@settings(max_examples=6, deadline=None)
@given(searches(), st.sampled_from((2, 8)))
def test_a_plan_has_one_time(asked, gpus):
    """The best plan is the first of its front, and each plan of the front takes what is said."""
    found = searched(asked, gpus)
    if found is None:
        return
    best = found.pareto[0]
    assert best["plan"] == found.inputs["plan"]
    assert best["iteration_s"] == pytest.approx(found.iteration_s, rel=1e-9)
    for row in (found.pareto[-1], found.plans[-1]):
        again = accelsim.train(plan=row["plan"], gpus=found.device_count, **asked)
        assert again.iteration_s == pytest.approx(row["iteration_s"], rel=1e-9)
        assert again.memory_bytes == pytest.approx(row["memory_bytes"], rel=1e-9)
