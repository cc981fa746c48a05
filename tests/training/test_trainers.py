"""Trainers as stacks: what selective recomputation keeps by operator, and host time."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import accelsim
from accelsim.catalog.clusters import cluster
from accelsim.catalog.stacks import stack, stack_names
from accelsim.cost.attention_kernels import kernel_names
from accelsim.dtype import Dtype
from accelsim.errors import InvalidValueError, UnknownNameError, UnsupportedOperatorError
from accelsim.estimation.passes import training_step
from accelsim.estimation.resolution import resolve
from accelsim.estimation.sharded_costs import run_costs
from accelsim.report.training import _raced
from accelsim.training.plan import ParallelismPlan, parse_plan
from accelsim.training.setup import TrainingSetup
from accelsim.training.simulated_iteration import simulate_iteration
from accelsim.training.trust import are_tied, trainer_evidence
from accelsim.workloads.operator import OperatorKind
from accelsim.workloads.recomputation import selectively
from benchmarks.training_mfu import MOST, shares
from tools.scoreboard.training_plans import decoder

#: Boards of every maker that trains language models.
BOARDS = (
    "h100-sxm-80gb a100-sxm-80gb b200-sxm gb300 l4 mi300x tpu-v4 tpu-v5e tpu-v5p tpu-v6e gaudi2"
)
RUN = {"mode": "training", "batch": 1, "seq_len": 256, "precision": "bf16"}


def test_torchtitan_keeps_inputs_attention_and_every_other_product():
    forward = training_step(resolve("llama-3.2-1b", "h100-sxm-80gb", **RUN)).forward
    kept, again = selectively(forward, "products")
    hidden, inner, key_width, layers = 2048, 8192, 512, 16
    # a layer's input, query, value, attention, gate and down; key, output and up run again
    per_token = 2 * (4 * hidden + key_width + inner)
    in_layer = np.array([any(part.isdigit() for part in path.split(".")) for path in forward.path])
    assert kept[in_layer].sum() == pytest.approx(256 * layers * per_token, rel=0.001)
    assert kept[~in_layer].tolist() == forward.saved_bytes[~in_layer].tolist()
    assert again[in_layer & (forward.kind == int(OperatorKind.GEMM))].sum() == 3 * layers
    assert not again[~in_layer].any()


def test_maxtext_keeps_products_and_runs_attention_again():
    forward = training_step(resolve("llama-3.2-1b", "h100-sxm-80gb", **RUN)).forward
    kept, again = selectively(forward, "projections")
    in_layer = np.array([any(part.isdigit() for part in path.split(".")) for path in forward.path])
    assert not again[forward.kind == int(OperatorKind.GEMM)].any()
    assert again[forward.kind == int(OperatorKind.ATTENTION)].all()
    hidden, inner, key_width, layers = 2048, 8192, 512, 16
    # input, query, key, value, output, gate and up; no backward row reads what down gives
    per_token = 2 * (hidden + hidden + 2 * key_width + hidden + 2 * inner)
    assert kept[in_layer].sum() == pytest.approx(256 * layers * per_token, rel=0.001)


def _train(recompute, stack="torchtitan"):
    return accelsim.train(
        "llama-3.1-8b",
        device="h100-sxm-80gb",
        gpus=8,
        stack=stack,
        precision="fp8",
        execution="compiled",
        seq_len=8192,
        global_batch=16,
        plan=f"zero=3,microbatch=2,recompute={recompute}",
        check_memory=False,
    )


def test_recomputation_by_operator_stands_between_none_and_full():
    none, some, full = (_train(word) for word in ("none", "selective", "full"))
    assert full.memory_bytes < some.memory_bytes < none.memory_bytes
    assert none.iteration_s < some.iteration_s < full.iteration_s
    assert none.energy_j < some.energy_j < full.energy_j
    held = some.metrics["memory_bytes"]
    # it ran, in 76.8 GiB: torchtitan, benchmarks/llama3_h100_202412_torchtitan.md
    assert some.fits
    assert held.low < 76.8 * 2**30 < held.high
    assert _train("selective", "pytorch").memory_bytes == pytest.approx(some.memory_bytes, rel=0.01)


def test_a_loss_that_is_not_compiled_holds_scores_in_32_bits():
    """torchtitan of 2024: scores of 16,384 tokens and 128,256 words, three times in FP32."""
    now, then = (_train("selective", name) for name in ("torchtitan", "torchtitan@2024"))
    more = then.memory["working_bytes"] - now.memory["working_bytes"]
    scores = 16_384 * 128_256
    assert 1.4 * 4.0 * scores < more <= 2.0 * 4.0 * scores
    # in reserved memory: benchmarks/llama3_h100_202412_torchtitan.md, 8 GPUs
    assert then.memory_bytes == pytest.approx(76.8 * 2**30, rel=0.06)
    assert then.iteration_s > now.iteration_s


def test_a_trainer_whose_host_is_slower_takes_longer_where_the_host_is_the_limit():
    small = {"gpus": 2, "seq_len": 128, "global_batch": 8, "plan": "dp=2"}
    asked = {"cluster": "dgx-a100", "precision": "fp16", "execution": "eager", **small}
    usual, slower = (
        accelsim.train("gpt2", **asked, stack=name).iteration_s
        for name in ("pytorch", "megatron-deepspeed")
    )
    assert slower > 1.1 * usual


def _rates(stack, device="h100-sxm-80gb", seq_len=4096, heads=16):
    """FLOP/s of attention forward and backward, 16,384 tokens and heads of 128, causal."""
    sizes = {"hidden_size": 128 * heads, "heads": heads, "layers": 1, "intermediate_size": 128}
    other = {"layout": "llama", "vocab_size": 32_000, "max_positions": seq_len, "gated": True}
    model = decoder("one-layer", sizes | other, seq_len)
    run = resolve(
        model,
        device,
        mode="training",
        batch=16_384 // seq_len,
        seq_len=seq_len,
        precision="bf16",
        stack=stack,
    )
    rows = training_step(run).rows
    table = run_costs(rows, run, is_decode=False)
    found = []
    for kind, products in ((OperatorKind.ATTENTION, 1.0), (OperatorKind.ATTENTION_BACKWARD, 2.5)):
        time_s = table.time_s[rows.kind == int(kind)].sum()
        found.append(2.0 * 16_384 * seq_len * 128 * heads * products / time_s)
    return found


@pytest.mark.parametrize(
    ("stack", "forward", "backward"),
    [("torchtitan", 319e12, 310e12 * 319 / 368), ("megatron", 518e12, 499e12 * 518 / 609)],
)
def test_attention_runs_at_the_rates_its_authors_measured(stack, forward, backward):
    # FlashAttention-3, arXiv:2407.08608, figures 5 and 6, at 4,096 tokens on an H100
    assert _rates(stack) == pytest.approx([forward, backward], rel=0.04)


def test_attention_of_an_older_kernel_is_slower_and_another_board_keeps_its_own():
    new, old = (sum(1 / rate for rate in _rates(name)) for name in ("torchtitan", "composer"))
    assert 1.5 < old / new < 2.0
    assert _rates("torchtitan", "b200-sxm") == _rates("composer", "b200-sxm")


@given(
    st.sampled_from(["torchtitan", "megatron", "composer"]),
    st.sampled_from(["a100-sxm-80gb", "h100-sxm-80gb"]),
    st.integers(9, 13),
)
@settings(max_examples=15, deadline=None)
def test_longer_sequences_take_longer_and_no_kernel_passes_the_peak(stack, device, power):
    tokens = 2**power
    times = [
        [length / rate for rate in _rates(stack, device, length)] for length in (tokens, 2 * tokens)
    ]
    assert all(longer >= shorter for shorter, longer in zip(*times, strict=True))
    peak = accelsim.device(device).peak_flop_per_s[Dtype.BF16]
    assert max(_rates(stack, device, tokens)) < peak


def test_casts_to_8_bits_take_time_where_the_trainer_casts():
    gains = {}
    for name in ("pytorch", "megatron"):
        asked = {"device": "h100-sxm-80gb", "seq_len": 2048, "plan": "microbatch=4", "stack": name}
        wide, narrow = (
            accelsim.train("llama-3.1-8b", precision=form, check_memory=False, **asked).iteration_s
            for form in ("bf16", "fp8")
        )
        gains[name] = wide / narrow
    assert 1.1 < gains["megatron"] < gains["pytorch"]


def test_a_plan_that_does_not_say_recomputes_as_the_trainer_does():
    asked = {"device": "h100-sxm-80gb", "seq_len": 2048, "check_memory": False}
    usual, named = (
        accelsim.train("llama-3.2-1b", stack="torchtitan", plan=plan, **asked)
        for plan in ("microbatch=2", "microbatch=2,recompute=none")
    )
    assert (usual.plan["recompute"], named.plan["recompute"]) == ("selective", "none")
    assert usual.iteration_s > named.iteration_s


def _sharded(stack, gpus=64):
    return accelsim.train(
        "llama-3.1-8b",
        cluster="dgx-superpod-h100",
        gpus=gpus,
        stack=stack,
        plan="zero=3,microbatch=1,recompute=none",
        seq_len=2048,
        check_memory=False,
    )


def test_weights_gathered_a_tensor_at_a_time_take_longer_the_more_ranks_there_are():
    few, many = (
        [_sharded(name, gpus).time_s["data"] for name in ("torchtitan", "deepspeed")]
        for gpus in (16, 512)
    )
    assert few[1] > few[0]
    assert many[1] - many[0] > few[1] - few[0]


@pytest.mark.parametrize("name", ["pytorch", "torchtitan", "megatron", "composer", "deepspeed"])
def test_collectives_beside_computation_slow_it(name):
    setup = _iteration(name, "dp=8,zero=3").setup
    free = replace(setup.run, stack=setup.run.stack.model_copy(update={"communication_sms": 0}))
    plan = ParallelismPlan(dp=8, zero=3)
    slow, fast = (
        simulate_iteration(TrainingSetup(run, setup.cluster, 8), plan, 16).time_s["data"]
        for run in (setup.run, free)
    )
    assert slow > fast


@pytest.mark.parametrize("zero", [2, 3])
def test_gradients_and_weights_are_sharded_beside_a_pipeline(zero):
    asked = {"cluster": "dgx-superpod-h100", "gpus": 16, "seq_len": 2048, "global_batch": 32}
    usual, sharded = (
        accelsim.train("llama-3.1-8b", plan=f"pp=2,zero={stage}", check_memory=False, **asked)
        for stage in (1, zero)
    )
    assert sharded.memory_bytes < usual.memory_bytes
    assert sharded.iteration_s >= usual.iteration_s


def test_experts_that_ranks_do_not_divide_are_held_twice_and_no_rank_holds_none():
    asked = {"cluster": "dgx-superpod-h100", "seq_len": 512, "check_memory": False}
    even, odd = (
        accelsim.train("deepseek-v3", gpus=gpus, plan=f"ep={gpus},zero=1", **asked)
        for gpus in (64, 72)
    )
    assert odd.memory["weight_bytes"] == pytest.approx(even.memory["weight_bytes"], rel=0.01)
    with pytest.raises(InvalidValueError, match=r"ep = 512.*1 to 256"):
        accelsim.train("deepseek-v3", gpus=512, plan="ep=512,zero=1", **asked)


@pytest.mark.parametrize("name", ["vllm", "torchtitan@9.9"])
def test_what_does_not_train_is_refused(name):
    with pytest.raises((UnsupportedOperatorError, UnknownNameError), match=r"pytorch|torchtitan@0"):
        accelsim.train("llama-3.2-1b", device="h100-sxm-80gb", stack=name)


def test_no_device_uses_more_than_85_percent_of_its_peak():
    """A sample of the catalogue; `benchmarks/training_mfu.py` asks all of it."""
    names = sorted(accelsim.device_names())
    sample = np.random.default_rng(32).choice(names, 30, replace=False).tolist()
    found = sorted(shares(["llama-3.1-8b"], [*sample, "ipu-gc2", "tpu-v5p", "xeon-x5670"]))
    assert len(found) > 80
    assert found[-1][0] < MOST, found[-1]
    assert found[-1][0] > 0.8  # the law is no clamp far above what runs reach


def test_chips_nobody_measured_sustain_what_their_class_does():
    for mode, ratio in (("inference", None), ("training", 1.17)):
        found = [stack(name).ratios("asic", mode) for name in ("xla", "maxtext", "vendor-compiler")]
        assert [one.get("product") for one in found] == [ratio] * 3
    assert stack("neuron").ratios("asic", "training")["product"] == 1.713
    assert stack("megatron").ratios("gpu", "training") == stack("pytorch").ratios("gpu", "training")


def test_every_trainer_calls_kernels_that_have_figures():
    named = {kernel for name in stack_names() for kernel in stack(name).attention.values()}
    assert named <= set(kernel_names())
    assert len(named) > 1


def _experts(words, batch=512):
    return accelsim.train(
        "deepseek-v3",
        cluster="dgx-superpod-h100",
        gpus=256,
        plan=f"pp=4,ep=64,zero=1,{words}",
        global_batch=batch,
        seq_len=4096,
        check_memory=False,
    )


def test_exchanges_of_experts_hide_behind_another_microbatch():
    shown, hidden = _experts(""), _experts("expert_overlap=1")
    assert hidden.time_s["expert"] < 0.5 * shown.time_s["expert"]
    assert hidden.iteration_s < shown.iteration_s
    alone = [_experts(words, batch=64).time_s["expert"] for words in ("", "expert_overlap=1")]
    assert alone[0] == alone[1]  # one microbatch a rank: there is no other
    assert _experts("schedule=dualpipe").time_s["expert"] < 0.5 * shown.time_s["expert"]
    with pytest.raises(InvalidValueError, match="ep"):
        accelsim.train("deepseek-v3", device="h100-sxm-80gb", plan="expert_overlap=1")


def test_a_host_that_waits_for_the_counts_of_tokens_holds_the_device_up():
    asked = {"cluster": "dgx-superpod-h100", "gpus": 8, "seq_len": 1024, "check_memory": False}
    plan = "ep=8,zero=1,microbatch=1"
    new, old = (
        accelsim.train("qwen3-30b-a3b", stack=name, plan=plan, **asked).iteration_s
        for name in ("nemo", "nemo@24.12")
    )
    assert old > 1.1 * new
    dense = [
        accelsim.train("llama-3.2-1b", stack=name, plan="zero=1", **asked).iteration_s
        for name in ("nemo", "nemo@24.12")
    ]
    assert dense[0] == dense[1]


def test_a_search_goes_over_trainers_where_none_is_named():
    asked = {"cluster": "dgx-h100", "seq_len": 512, "global_batch": 16, "search": True}
    found = accelsim.train("llama-3.2-1b", **asked)
    times = [row["iteration_s"] for row in found.trainers]
    assert times == sorted(times)
    names = [row["trainer"] for row in found.trainers]
    assert {"pytorch", "torchtitan", "megatron"} <= set(names)
    (chosen,) = (row for row in found.trainers if row["is_chosen"])
    assert found.inputs["stack"] == chosen["trainer"]
    assert found.iteration_s == pytest.approx(chosen["iteration_s"])
    assert found.pareto[0]["plan"] == found.inputs["plan"]
    alone = accelsim.train("llama-3.2-1b", stack=chosen["trainer"], **asked)
    assert alone.iteration_s == pytest.approx(found.iteration_s)
    assert alone.trainers == ()
    before = names.index(chosen["trainer"])
    assert chosen["is_tied"]
    assert chosen["measured_rows"] >= 5
    assert all(row["measured_rows"] < 5 for row in found.trainers[:before])
    (line,) = (text for text in [_raced(found)] if text)
    assert f"taken: {chosen['trainer']}, {chosen['measured_rows']} runs" in line


def _iteration(stack="pytorch", plan="dp=8,zero=1", device="h100-sxm-80gb"):
    asked = {"mode": "training", "batch": 16, "seq_len": 2048, "precision": "bf16"}
    run = resolve("llama-3.2-1b", device, stack=stack, **asked)
    setup = TrainingSetup(run, cluster("dgx-h100"), 8)
    return simulate_iteration(setup, ParallelismPlan(**parse_plan(plan)), 16)


def test_a_trainer_of_few_measured_runs_is_no_surer_than_one_of_none():
    evidence = {
        name: trainer_evidence(_iteration(name)) for name in ("nemo", "maxtext", "megatron")
    }
    assert evidence["megatron"] == (0, 0.2)
    assert evidence["maxtext"][0] == 3
    assert evidence["maxtext"][1] >= 0.2
    assert evidence["nemo"][0] >= 20
    assert trainer_evidence(_iteration("megatron-deepspeed"))[0] == 0  # its rows are of A100


def test_what_two_runs_share_is_no_tie_between_them():
    one, same, split = _iteration(), _iteration(), _iteration(plan="dp=4,tp=2,sp=1,zero=1")
    assert are_tied(one, same)
    slower = replace(one, time_s={**one.time_s, "compute": 1.02 * one.time_s["compute"]})
    # 2 % more compute and nothing else: the devices' error is in both
    assert not are_tied(slower, one)
    assert are_tied(replace(one, setup=_iteration("nemo").setup), slower)
    assert are_tied(one, split) == are_tied(split, one)
    far = replace(one, time_s={**one.time_s, "compute": 3.0 * one.time_s["compute"]})
    assert not are_tied(replace(far, setup=_iteration("nemo").setup), one)


def test_models_that_trainers_do_not_train_have_the_usual_software():
    asked = {"cluster": "dgx-h100", "global_batch": 16, "search": True}
    found = accelsim.train("resnet-50", **asked)
    assert found.trainers == ()
    assert found.inputs["stack"] == "pytorch"


@pytest.mark.parametrize("device", ["titan-x-pascal", "p40", "gtx-1080"])
def test_a_slow_half_rate_is_no_peak(device):
    asked = {"seq_len": 512, "plan": "microbatch=1", "check_memory": False, "precision": "fp16"}
    assert 0.2 < accelsim.train("llama-3.1-8b", device=device, **asked).mfu_fraction < 0.85


def test_each_microbatch_on_a_stage_takes_the_host_time_of_its_trainer():
    asked = {"mode": "training", "batch": 32, "seq_len": 128, "precision": "fp16"}
    usual = resolve("gpt2", "a100-sxm-80gb", stack="megatron-deepspeed", **asked)

    def seconds(plan, stage_us):
        version = usual.stack.version.model_copy(update={"stage_us": stage_us})
        run = replace(usual, stack=usual.stack.model_copy(update={"versions": (version,)}))
        setup = TrainingSetup(run, cluster("dgx-a100").with_devices(4), 4)
        return simulate_iteration(setup, plan, 32).iteration_s

    staged, whole = ParallelismPlan(pp=4), ParallelismPlan(dp=4)
    assert seconds(whole, 0.0) == seconds(whole, 2000.0)
    # 32 microbatches on the busiest stage, and three more in the bubble
    gained = seconds(staged, 2000.0) - seconds(staged, 0.0)
    assert gained == pytest.approx(35 * 2e-3, rel=0.1)
