"""One device is an estimate, parts add up, laws hold, plans that cannot be say why."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import accelsim
from accelsim.catalog import clear_cache
from accelsim.catalog.stacks import stack
from accelsim.errors import DoesNotFitError, InputError, InvalidValueError, UnknownNameError
from accelsim.estimation.passes import run_passes
from accelsim.estimation.resolution import resolve
from accelsim.estimation.simulate import simulated
from accelsim.training.plan import ParallelismPlan, layers_of_chunks, parse_plan, plan_on
from accelsim.training.score import TIME_PARTS
from accelsim.training.setup import Conditions

SMALL = {"cluster": "dgx-h100", "global_batch": 32, "seq_len": 512}


@pytest.mark.parametrize(
    ("model", "device", "keywords"),
    [
        ("resnet-50", "t4", {"precision": "fp16"}),
        ("bert-base", "a100-sxm-80gb", {}),
        ("llama-3.2-1b", "h100-sxm-80gb", {"seq_len": 512}),
    ],
)
def test_one_device_is_an_estimate(model, device, keywords):
    result = accelsim.train(model, device=device, global_batch=8, plan="microbatch=8", **keywords)
    alone = accelsim.estimate(model, device, mode="training", batch=8, **keywords)
    assert result.samples_per_s == pytest.approx(alone.throughput_per_s, rel=1e-9)
    assert result.energy_j == pytest.approx(alone.energy_j, rel=0.02)
    assert result.usd_per_sample() == pytest.approx(alone.cost_usd_per_1000 / 1000, rel=1e-9)


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["gpt2", "resnet-50", "t5-small", "dlrm", "gbdt-higgs", "bert-base"]),
    st.sampled_from(["t4", "h100-sxm-80gb", "epyc-7763", "tpu-v4"]),
    st.sampled_from([1, 2, 8]),
    st.sampled_from([1, 4]),
)
def test_microbatches_of_one_device_are_parts_of_a_batch(model, device, microbatch, count):
    batch, plan = microbatch * count, f"microbatch={microbatch}"
    asked = {"device": device, "global_batch": batch, "plan": plan, "check_memory": False}
    try:
        result = accelsim.train(model, **asked)
    except InputError:
        return
    run = resolve(model, device, mode="training", batch=batch, accumulation=count)
    alone = simulated(run, run_passes(run))
    assert result.iteration_s == pytest.approx(alone.period_s, rel=1e-9)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["gpt2", "llama-3.2-1b", "qwen3-30b-a3b"]),
    st.sampled_from(["dgx-h100", "dgx-superpod-a100"]),
    st.sampled_from(
        (
            *("", "tp=2", "tp=4,sp=1", "pp=4", "pp=8,schedule=gpipe", "pp=2,schedule=zb-v"),
            *("pp=2,schedule=interleaved,chunks=2", "pp=2,tp=2,schedule=zb-h1"),
        )
    ),
    st.sampled_from([0, 1, 2, 3]),
    st.sampled_from(["none", "full"]),
    st.sampled_from([16, 64]),
)
def test_figures_are_the_same_with_and_without_the_tasks(
    model, cluster, plan, zero, recompute, batch
):
    words = f"{plan},zero={zero},recompute={recompute}".lstrip(",")
    asked = {"cluster": cluster, "gpus": 8, "global_batch": batch, "seq_len": 2048, "plan": words}
    try:
        plain = accelsim.train(model, check_memory=False, **asked)
    except InputError:
        return
    kept = accelsim.train(model, check_memory=False, record=True, **asked)
    assert kept.figures() == plain.figures()


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["gpt2", "llama-3.2-1b", "qwen3-0.6b", "mixtral-8x7b"]),
    st.sampled_from([2, 4, 8]),
    st.sampled_from(["1f1b", "gpipe", "zb-h1", "interleaved,chunks=2"]),
    st.sampled_from([1, 2]),
    st.sampled_from(["none", "full"]),
    st.sampled_from([48, 96]),
)
def test_a_long_pipeline_takes_what_all_its_microbatches_take(
    model, stages, schedule, tp, recompute, count
):
    plan = f"pp={stages},tp={tp},schedule={schedule},recompute={recompute}"
    asked = {"cluster": "dgx-superpod-a100", "gpus": stages * tp, "seq_len": 1024, "plan": plan}
    try:
        found = accelsim.train(model, global_batch=count, check_memory=False, record=True, **asked)
    except InputError:
        return
    taken_s = sum(
        found.time_s[name]
        for name in ("compute", "tensor", "context", "expert", "other", "pipeline_bubble")
    )
    whole_s = found.iteration.run.compute_end_s.max()  # every task is one of the timeline
    assert taken_s == pytest.approx(whole_s, rel=0.015)


@pytest.mark.parametrize(
    ("model", "device", "keywords"),
    [
        ("resnet-50", "t4", {"precision": "fp16"}),
        ("llama-3.2-1b", "h100-sxm-80gb", {"seq_len": 512}),
        ("gpt2", "xeon-platinum-8380", {"precision": "fp32", "seq_len": 256}),
    ],
)
def test_a_busy_device_leaves_nothing_unexplained(model, device, keywords):
    result = accelsim.train(model, device=device, global_batch=8, plan="microbatch=8", **keywords)
    assert result.time_s["other"] < 2e-4 * result.iteration_s
    assert result.time_s["compute"] > 0.8 * result.iteration_s


def test_what_is_left_is_the_wait_for_operators_to_be_issued():
    asked = {"device": "a100-sxm-80gb", "global_batch": 8, "plan": "microbatch=8"}
    eager, captured = (
        accelsim.train("bert-base", execution=way, **asked) for way in ("eager", "graph")
    )
    assert captured.time_s["other"] < 1e-3 * captured.iteration_s
    assert eager.time_s["other"] > 0.05 * eager.iteration_s


def test_memory_is_that_of_the_stack_as_in_an_estimate():
    asked = {"device": "h100-sxm-80gb", "stack": "pytorch", "seq_len": 512}
    whole = accelsim.train("llama-3.2-1b", global_batch=1, **asked)
    alone = accelsim.estimate("llama-3.2-1b", mode="training", batch=1, **asked)
    assert whole.iteration.setup.capacity_bytes == alone.memory_available_bytes
    run = replace(whole.iteration.setup.run, stack=stack("vllm"))
    setup = replace(whole.iteration.setup, run=run)
    assert setup.capacity_bytes == run.available_bytes < 0.92 * alone.memory_available_bytes


@pytest.mark.parametrize(
    "plan",
    [
        "zero=1",
        "zero=3",
        "tp=2,sp=1,recompute=full",
        "tp=2,pp=2",
        "pp=4,chunks=2,schedule=interleaved",
        "pp=2,schedule=zb-h1",
        "pp=2,schedule=dualpipe",
        "cp=2,zero=1,shard_group=2",
        "local_steps=4",
        "tp=2,lora_rank=8,zero=1",
    ],
)
def test_parts_of_an_iteration_add_up(plan):
    result = accelsim.train("llama-3.2-1b", plan=plan, **SMALL)
    assert tuple(result.time_s) == TIME_PARTS
    assert sum(result.time_s.values()) == pytest.approx(result.iteration_s, rel=1e-12)
    assert min(result.time_s.values()) >= 0
    assert sum(result.memory.values()) == pytest.approx(result.memory_bytes)
    assert result.iteration_low_s < result.iteration_s < result.iteration_high_s
    assert result.worst_rank < result.device_count == 8


def test_json_has_the_named_keys():
    length = accelsim.RunLength(tokens=1e9, mtbf_s=1e8)
    result = accelsim.train("llama-3.2-1b", length=length, **SMALL).to_dict()
    named = """workload cluster device device_count plan precision iteration_s iteration_low_s
    iteration_high_s interval_level samples_per_s tokens_per_s mfu_fraction
    model_flop_per_s_per_device memory_bytes worst_rank fits time_s energy_j average_power_w
    cost_usd offer tier time_to_train_s total_energy_j total_cost_usd expected_failures
    goodput_fraction"""
    assert set(named.split()) <= result.keys()
    assert "considered" not in result
    assert result["time_to_train_s"] > 1e9 / result["tokens_per_s"]


PLANS = st.fixed_dictionaries(
    {
        "tp": st.sampled_from((1, 2, 4)),
        "pp": st.sampled_from((1, 2)),
        "microbatch": st.sampled_from((1, 2, 4)),
        "recompute": st.sampled_from(("none", "full")),
    }
)


def _words(plan):
    return ",".join(f"{name}={value}" for name, value in plan.items())


@settings(max_examples=10)
@given(PLANS)
def test_memory_falls_with_the_zero_stage(plan):
    stages = range(4) if plan["pp"] == 1 else range(2)
    states = []
    for stage in stages:
        held = accelsim.train("llama-3.2-1b", plan=f"{_words(plan)},zero={stage}", **SMALL).memory
        states.append(sum(held[f"{name}_bytes"] for name in ("weight", "gradient", "optimizer")))
    assert states == sorted(states, reverse=True)
    assert len(set(states)) == (len(stages) if plan["tp"] * plan["pp"] < 8 else 1)


@settings(max_examples=10)
@given(PLANS, st.floats(0.05, 1.0), st.floats(1.0, 20.0))
def test_time_falls_with_bandwidth(plan, slower, faster):
    cluster = accelsim.cluster("dgx-h100")
    times = []
    for ratio in (slower, 1.0, faster):
        tiers = tuple(
            replace(tier, bandwidth_bytes_per_s=tier.bandwidth_bytes_per_s * ratio)
            for tier in cluster.tiers
        )
        asked = SMALL | {"cluster": replace(cluster, tiers=tiers)}
        times.append(accelsim.train("llama-3.2-1b", plan=_words(plan), **asked).iteration_s)
    assert all(later <= first * (1 + 1e-9) for first, later in pairwise(times))


def _changed_device(device, what, ratio):
    """The device with a fifth more or less of its memory bandwidth or of its peaks."""

    def times(sourced):
        return sourced.model_copy(update={"value": sourced.value * ratio})

    if what == "memory bandwidth":
        rate = times(device.memory.bandwidth_bytes_per_s)
        return device.model_copy(
            update={"memory": device.memory.model_copy(update={"bandwidth_bytes_per_s": rate})}
        )
    peaks = {
        name: {dtype: times(rate) for dtype, rate in getattr(device, name).items()}
        for name in ("matrix_flop_per_s", "vector_flop_per_s")
    }
    return device.model_copy(update=peaks)


@pytest.mark.parametrize("execution", ["eager", "compiled"])
@pytest.mark.parametrize("zero", range(4))
def test_no_device_of_less_bandwidth_or_peak_is_faster(zero, execution):
    asked = SMALL | {"global_batch": 8, "plan": f"zero={zero}", "execution": execution}
    base = accelsim.train("llama-3.2-1b", **asked)
    for what in ("memory bandwidth", "peak"):
        for ratio in (0.8, 1.2):
            device = _changed_device(base.iteration.setup.run.device, what, ratio)
            changed = accelsim.train("llama-3.2-1b", device=device, **asked)
            more, less = (changed, base) if ratio > 1 else (base, changed)
            assert more.iteration_s <= less.iteration_s * (1 + 1e-9), what


@pytest.mark.parametrize("model", ["llama-3.2-1b", "resnet-50"])
def test_data_parallel_scaling_is_no_better_than_linear(model):
    rates = [
        accelsim.train(
            model,
            cluster="dgx-superpod-h100",
            gpus=count,
            global_batch=4 * count,
            plan="microbatch=4",
        ).samples_per_s
        / count
        for count in (1, 2, 8, 16)
    ]
    assert all(later <= first * (1 + 1e-9) for first, later in pairwise(rates))


@pytest.mark.parametrize(
    ("plan", "match"),
    [
        ("tp=3", "8 devices"),
        ("tp=8,dp=2", "not 16"),
        ("ep=2", "no experts"),
        ("pp=2,stage_layers=4:4", "add up to 16 layers"),
        ("zero=5", "0, 1, 2, 3"),
        ("pp=2,schedule=zb-h1,recompute=full", "zero-bubble"),
        ("pp=1,schedule=interleaved,chunks=2", "1f1b where pp is 1"),
        ("shard_group=2", "zero=0"),
        ("microbatch=3", "global_batch"),
        ("pp=4,chunks=5", "at most 16 stages x chunks"),
        ("tp=2,tp=4", "one value"),
        ("pp=2,microbatch=8,schedule=dualpipe", "2 pp = 4 microbatches"),
    ],
)
def test_plans_that_cannot_be_are_refused(plan, match):
    with pytest.raises(InvalidValueError, match=match):
        accelsim.train("llama-3.2-1b", plan=plan, **SMALL)


def test_other_bad_input_is_refused():
    with pytest.raises(UnknownNameError, match="tensor"):
        accelsim.train("llama-3.2-1b", plan="tensor=2", **SMALL)
    with pytest.raises(InvalidValueError, match="trained data-parallel"):
        accelsim.train("resnet-50", cluster="dgx-h100", plan="tp=2")
    with pytest.raises(InvalidValueError, match="cluster or a device"):
        accelsim.train("resnet-50")
    with pytest.raises(InvalidValueError, match="the device of dgx-h100"):
        accelsim.train("resnet-50", cluster="dgx-h100", device="t4")
    with pytest.raises(InvalidValueError, match="global_batch"):
        accelsim.train("resnet-50", cluster="dgx-h100", global_batch=0)
    with pytest.raises(InvalidValueError, match="gpus"):
        accelsim.train("resnet-50", cluster="dgx-h100", gpus=0)
    with pytest.raises(InvalidValueError, match="exactly one"):
        accelsim.RunLength(tokens=1, samples=1)


def test_a_plan_that_does_not_fit_names_the_rank_and_one_that_does():
    words = r"short of memory.*Rank 0.*nearest plan that fits: dp="
    with pytest.raises(DoesNotFitError, match=words):
        accelsim.train(
            "llama-3.1-8b", cluster="dgx-h100", plan="dp=8", global_batch=8, seq_len=1024
        )


def test_adapters_alone_are_trained():
    asked = {"cluster": "dgx-h100", "global_batch": 8, "seq_len": 2048, "check_memory": False}
    whole, thin = (
        accelsim.train("llama-3.1-8b", plan=plan, **asked) for plan in ("dp=8", "lora_rank=16")
    )
    sizes = 32 * 16 * (2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14_336))
    assert thin.memory["gradient_bytes"] == 2 * sizes  # 41.9 M parameters
    assert thin.memory["optimizer_bytes"] == 12 * sizes
    assert thin.memory["weight_bytes"] == pytest.approx(whole.memory["weight_bytes"] + 2 * sizes)
    assert thin.iteration_s < 0.85 * whole.iteration_s
    assert thin.time_s["optimizer"] < 0.1 * whole.time_s["optimizer"]
    with pytest.raises(InvalidValueError, match="no linear layers"):
        accelsim.train("resnet-50", cluster="dgx-h100", plan="lora_rank=8")


def test_chunks_share_layers_with_embedding_and_logits_where_those_alone_do_not_divide():
    assert layers_of_chunks(16, 4) == [4, 4, 4, 4]
    assert layers_of_chunks(126, 64) == [1, *[2] * 62, 1]
    assert layers_of_chunks(126, 128)[::127] == [0, 0]
    assert sorted(layers_of_chunks(61, 16)) == [3] * 3 + [4] * 13


def test_plans_read_back_what_they_write():
    plan = ParallelismPlan(
        dp=2, tp=4, pp=2, sp=True, zero=1, stage_layers=(9, 7), recompute="full", bucket_bytes=1e6
    )
    assert plan_on(16, parse_plan(str(plan))) == plan


def test_a_search_finds_a_plan_that_fits_and_says_why_others_lose():
    result = accelsim.train("llama-3.2-1b", search=True, **SMALL)
    assert result.fits
    assert result.plans[0]["iteration_s"] <= result.plans[-1]["iteration_s"]
    assert result.plans[0]["why"] == "best"
    assert all(plan["why"] for plan in result.plans)
    assert result.considered > sum(result.rejected.values())
    assert result.iteration_s == pytest.approx(result.plans[0]["iteration_s"])


def test_of_plans_that_are_as_fast_the_one_with_the_least_memory_comes_first():
    """One microbatch runs the same passes under any schedule."""
    result = accelsim.train("gpt2-xl", device="h100-sxm", gpus=8, global_batch=7, search=True)
    best, *others = result.plans
    as_fast = [p for p in others if p["iteration_s"] == pytest.approx(best["iteration_s"], 1e-12)]
    assert "gpipe" in " ".join(p["plan"] for p in as_fast)
    assert best["memory_bytes"] <= min(p["memory_bytes"] for p in as_fast) * (1 + 1e-9)


def test_a_search_keeps_what_is_named_and_what_it_has_found_when_interrupted():
    calls = []

    def report(done, total, label):
        calls.append((done, total, label))
        if done == 3:
            raise KeyboardInterrupt

    result = accelsim.train("llama-3.2-1b", search=True, plan="tp=2", report=report, **SMALL)
    assert result.plan["tp"] == 2
    assert len(calls) == 4
    assert result.warnings[-1] == (
        f"the search was interrupted: the best of the first {result.considered:,} plans"
    )


@pytest.mark.parametrize("named", ["dp=2,pp=2", "local_steps=4", "zero=3,shard_group=2", "pp=2"])
def test_every_plan_of_a_search_has_what_is_named(named):
    result = accelsim.train("llama-3.2-1b", search=True, plan=named, **SMALL)
    wanted = parse_plan(named).items()
    for row in (*result.plans, *result.pareto):
        assert wanted <= plan_on(8, parse_plan(row["plan"])).to_dict().items()
    assert all(warning.startswith("measured runs like") for warning in result.warnings)


@pytest.mark.parametrize(
    ("named", "wrong"),
    [
        ("recompute=most", "recompute = 'most'"),
        ("schedule=2f2b", "schedule = '2f2b'"),
        ("microbatch=0", "microbatch = 0"),
        ("bucket_bytes=0", "bucket_bytes = 0.0"),
        ("tp=3", "plan = '8 devices, batch 32'"),
    ],
)
def test_a_search_refuses_by_name_what_no_plan_has(named, wrong):
    with pytest.raises(InvalidValueError, match=wrong):
        accelsim.train("llama-3.2-1b", search=True, plan=named, **SMALL)


def test_a_search_keeps_layers_of_stages_that_are_named_and_cuts_them_into_no_chunks():
    result = accelsim.train("llama-3.2-1b", search=True, plan="stage_layers=9:7", **SMALL)
    assert (result.plan["pp"], result.plan["chunks"]) == (2, 1)
    assert result.plan["stage_layers"] == (9, 7)


#: Options of one model on one device that price its rows another way.
ASKED = [
    {},
    {"plan": "lora_rank=8"},
    {"plan": "recompute=full"},
    {"fused_attention": False},
    {"tier": "spec"},
    {"execution": "compiled"},
    {"precision": "fp32"},
    {"document_len": 64},
    {"stack": "deepspeed"},
    {"power_limit_w": 50},
    {"conditions": Conditions(straggler_fraction=0.1)},
    {"optimizer": "sgd"},
]


def test_answers_do_not_depend_on_what_was_asked_before():
    def answers(asked):
        clear_cache()
        place = {"device": "t4", "global_batch": 4}
        return [accelsim.train("bert-base", **place, **options).iteration_s for options in asked]

    assert answers(ASKED) == answers(ASKED[::-1])[::-1]


PARTED = ["epyc-7763", "core-i7-3820", "graviton3", "t4", "h100-sxm-80gb", "tpu-v4", "ipu-gc200"]


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["dlrm", "mlp", "resnet-50", "bert-base", "gpt-2"]),
    st.sampled_from(PARTED),
    st.sampled_from(
        ["", "optimizer_offload=1", "zero=3", "pp=2", "pp=2,schedule=zb-h1", "tp=2,dp=2", "dp=4"]
    ),
    st.sampled_from([None, 8, 64]),
)
def test_each_part_of_the_time_is_at_least_zero_and_they_sum_to_it(model, device, plan, batch):
    counts = parse_plan(plan)
    gpus = counts.get("tp", 1) * counts.get("dp", 1) * counts.get("pp", 1)
    asked = {"plan": plan, "gpus": gpus, "global_batch": batch, "check_memory": False}
    try:
        found = accelsim.train(model, device=device, **asked)
    except InputError:
        return
    assert min(found.time_s.values()) >= 0
    assert sum(found.time_s.values()) == pytest.approx(found.iteration_s, rel=1e-12)


def test_a_small_update_takes_what_its_rows_take_in_the_caches():
    found = accelsim.train("dlrm", device="epyc-7763", global_batch=1)
    assert found.time_s["compute"] > found.time_s["optimizer"] > 0
