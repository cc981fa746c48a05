"""What an estimate adds up: passes, operators, input, intervals and costs, each from figures found
another way.
"""

from __future__ import annotations

import math
from dataclasses import asdict

import numpy as np
import pytest

import accelsim
from accelsim.confidence.residual import run_log_sigma
from accelsim.cost.registry import operator_costs, tier_parameters
from accelsim.cost.stack import on_stack
from accelsim.cost.table import Execution
from accelsim.estimation.estimate import estimate
from accelsim.estimation.passes import decode_contexts, run_passes
from accelsim.estimation.resolution import resolve
from accelsim.estimation.simulate import simulate

Z90 = 1.6448536269514722


def replayed(device):
    """Chips with one way to run take no mode."""
    return {} if device.startswith("tpu") else {"execution": "graph"}


def on_its_stack(run, run_pass, table):
    """Costs of a pass as the run's stack has them."""
    is_decode = run_pass.name == "decode"
    return on_stack(table, run_pass.graph, run.stack_effect, is_decode=is_decode)


def generated(prompt, tokens, device="t4", **settings):
    return estimate(
        "llama-3.2-1b", device, seq_len=prompt, output_len=tokens, **replayed(device), **settings
    )


@pytest.mark.parametrize("device", ["t4", "tpu-v4"])
@pytest.mark.parametrize("column", ["latency_s", "energy_j", "flop", "bytes"])
def test_a_further_token_adds_one_step_at_its_context(device, column):
    """Two steps are the first, and the one a prompt longer by a token begins with."""

    def value(prompt, tokens):
        return getattr(generated(prompt, tokens, device), column)

    step = value(101, 2) - value(101, 1)
    assert step > 0
    assert value(100, 3) == pytest.approx(value(100, 2) + step, rel=1e-9)


def test_flop_of_generation_by_hand():
    """Llama 3.2 1B: 16 layers of 2048, 32 query and 8 key heads of 64, 8192 inside, 128,256
    words.
    """
    layer = 2 * 2048 * 2048 + 2 * 2048 * 512 + 3 * 2048 * 8192
    head = 2048 * 128_256

    def attention(queries, keys):
        return 16 * 4 * 32 * 64 * queries * keys

    prefill, first, second = generated(100, 1).flop, generated(100, 2).flop, generated(100, 3).flop
    assert (
        prefill == 2 * 16 * layer * 100 + attention(100, 100) + 2 * head
    )  # words of the last position alone
    assert first - prefill == 2 * (16 * layer + head) + attention(1, 101)
    assert second - first == 2 * (16 * layer + head) + attention(1, 102)


@pytest.mark.parametrize(
    ("model", "precision", "batch", "input_bytes"),
    [
        ("resnet-50", "fp16", 2, 2 * 3 * 224 * 224 * 2),
        ("resnet-50", "int8", 3, 3 * 3 * 224 * 224),
        ("dlrm-mlperf", "fp32", 4, 4 * (13 * 4 + 26 * 8)),
    ],
)
def test_a_batch_comes_from_the_host_once(model, precision, batch, input_bytes):
    plan = run_passes(resolve(model, "a100-sxm-80gb", batch=batch, precision=precision))
    assert plan.input_bytes == input_bytes


def test_training_and_inference_copy_the_same_images():
    plans = [
        run_passes(resolve("resnet-50", "t4", batch=8, mode=mode))
        for mode in ("inference", "training")
    ]
    assert plans[0].input_bytes == plans[1].input_bytes


def test_copies_take_the_host_link():
    """Without a link of its own a device takes PCIe 3.0 x16; a batch alone waits for its copy."""
    device = accelsim.device("t4")
    batch_bytes = 64 * 3 * 224 * 224 * 2
    named = estimate("alexnet", device, batch=64, precision="fp16", execution="graph")
    link = device.host_link
    unnamed = estimate(
        "alexnet",
        device.model_copy(update={"host_link": None}),
        batch=64,
        precision="fp16",
        execution="graph",
    )
    expected = batch_bytes / link.bandwidth_bytes_per_s.value - batch_bytes / 15.75e9
    assert named.latency_s - unnamed.latency_s == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("model", "device", "settings"),
    [
        ("resnet-50", "t4", {"batch": 4}),
        ("bert-base", "epyc-7763", {}),
        ("llama-3.2-1b", "t4", {"seq_len": 64, "output_len": 40}),
    ],
)
def test_operators_are_the_largest_and_share_the_time_of_the_run(model, device, settings):
    run = estimate(model, device, **settings)
    times = [operator.time_s for operator in run.operators]
    shares = [operator.share_fraction for operator in run.operators]
    assert len(times) <= 10
    assert times == sorted(times, reverse=True)
    plan = run_passes(resolve(model, device, **settings))
    profile = accelsim.device(device)
    parameters = tier_parameters(profile)
    run_on = resolve(model, device, **settings)
    total = sum(
        on_its_stack(
            run_on, p, operator_costs(p.graph, profile, parameters=parameters)
        ).total_time_s
        * p.repeats
        for p in plan.passes
    )
    assert [time / run.latency_s for time in times] == pytest.approx(shares)
    assert 0.3 * total < sum(times) <= total * (1 + 1e-12)


def test_repeated_layers_are_one_operator():
    run = estimate("bert-base", "t4")
    names = [(operator.name, operator.bound) for operator in run.operators]
    assert len(set(names)) == len(names)
    assert any("*" in name for name, _ in names)
    assert not any(part.isdigit() for name, _ in names for part in name.split("."))


def test_all_operators_of_a_run_that_waits_for_nothing_share_everything():
    run = estimate("perceptron", "tpu-v4", batch=4096)
    simulation = accelsim.simulate("perceptron", "tpu-v4", batch=4096)
    busy = sum(p.table.total_time_s * p.repeats for p in simulation.passes)
    assert len(run.operators) < 10
    shares = sum(operator.share_fraction for operator in run.operators)
    assert shares == pytest.approx(busy / run.latency_s)
    assert shares <= 1


@pytest.mark.parametrize(
    ("model", "device"), [("resnet-50", "t4"), ("bert-base", "epyc-7763"), ("alexnet", "tpu-v4")]
)
def test_the_interval_is_symmetric_in_logarithms_and_no_wider_than_its_widest_row(model, device):
    run = estimate(model, device, **replayed(device))
    assert run.latency_low_s * run.latency_high_s == pytest.approx(run.latency_s**2)
    found = simulate(model, device, **replayed(device))
    sigma = found.operator_log_sigma
    assert math.log(run.latency_high_s / run.latency_s) / Z90 == pytest.approx(found.log_sigma)
    assert found.log_sigma >= sigma
    (one,) = run_passes(resolve(model, device, **replayed(device))).passes
    profile = accelsim.device(device)
    table = operator_costs(one.graph, profile, Execution.GRAPH, tier_parameters(profile))
    weight = table.time_s / table.time_s.sum()
    shared = table.log_sigma if table.shared_log_sigma is None else table.shared_log_sigma
    of_stack = max(asdict(found.run.stack_effect.spread).values())
    assert sigma <= math.hypot(table.log_sigma.max(), of_stack)
    assert sigma >= np.sqrt(((weight * shared) ** 2).sum())  # if no two rows shared anything


def test_the_share_outside_measured_sizes_is_that_of_the_time():
    run = estimate("resnet-50", "t4", batch=512, execution="graph")
    resolved = resolve("resnet-50", "t4", batch=512, execution="graph")
    (one,) = run_passes(resolved).passes
    profile = accelsim.device("t4")
    costs = operator_costs(one.graph, profile, Execution.GRAPH, tier_parameters(profile))
    table = on_its_stack(resolved, one, costs)
    outside = table.time_s[table.extrapolation_decades > 0].sum() / table.time_s.sum()
    assert run.extrapolated_fraction == pytest.approx(outside)
    assert estimate("resnet-50", "tpu-v4").extrapolated_fraction is None


def test_costs_follow_from_rate_and_price():
    run = generated(64, 33, usd_per_hour=3.6)
    assert run.cost_usd_per_1000 == pytest.approx(1.0 / run.throughput_per_s)
    assert run.cost_usd_per_million_tokens == pytest.approx(1000.0 / run.tokens_per_s)
    assert run.tokens_per_s == pytest.approx(33 * run.throughput_per_s)
    assert run.energy_per_sample_j == pytest.approx(run.energy_j / run.batch)
    free = generated(64, 33, usd_per_hour=0.0)
    assert free.cost_usd_per_1000 == free.cost_usd_per_million_tokens == 0.0
    image = estimate("resnet-50", "t4", usd_per_hour=3.6)
    assert image.cost_usd_per_million_tokens is None
    assert (
        image.tokens_per_s is image.time_to_first_token_s is image.time_per_output_token_s is None
    )


def test_a_frame_has_one_row_of_plain_figures():
    run = estimate("resnet-50", "t4", batch=8)
    frame = run.to_frame()
    assert len(frame) == 1
    assert frame["latency_s"].item() == run.latency_s
    assert frame["device"].item() == "t4"
    assert not {"memory", "operators", "evidence", "relatives"} & set(frame.columns)


def test_the_bound_is_that_of_the_longest_pass():
    """A long prompt with one further token is bound by arithmetic, a short one with many by reading
    the weights.
    """
    assert generated(2048, 2, "a100-sxm-80gb", batch=8).bound == "compute"
    assert generated(8, 500, "a100-sxm-80gb").bound == "memory"


def test_the_interval_of_generation_weighs_each_step_by_how_often_it_runs():
    settings = {"seq_len": 16, "output_len": 400, "execution": "graph"}
    run = resolve("llama-3.2-1b", "t4", **settings)
    passes = run_passes(run).passes
    parameters = tier_parameters(run.device)
    tables = [
        on_its_stack(run, p, operator_costs(p.graph, run.device, Execution.GRAPH, parameters))
        for p in passes
    ]
    columns = [
        np.concatenate([p.graph.kind for p in passes]),
        np.concatenate([t.time_s * p.repeats for p, t in zip(passes, tables, strict=True)]),
        np.concatenate([t.log_sigma for t in tables]),
        np.concatenate([t.shared_log_sigma for t in tables]),
    ]
    found = simulate("llama-3.2-1b", "t4", **settings).operator_log_sigma
    times = [t.time_s * p.repeats for p, t in zip(passes, tables, strict=True)]
    context = sum(map(np.dot, times, (t.context_log_sigma for t in tables)))
    context /= sum(map(np.sum, times))
    assert found == pytest.approx(math.hypot(run_log_sigma(*columns), context))


def test_a_transformer_with_a_convolution_at_its_door_is_no_convolutional_network():
    """A vision transformer's patches are a convolution, of one in a hundred of its FLOP."""
    vision, language, images = (
        estimate(name, "t4").evidence for name in ("vit-base", "bert-base", "resnet-50")
    )
    assert vision.suite == language.suite
    assert vision.suite != images.suite


@pytest.mark.parametrize(
    ("prompt", "steps", "expected"),
    [
        (100, 0, []),
        (100, 1, [(100, 1)]),
        (100, 2, [(100, 1), (101, 1)]),
        (100, 3, [(100, 0.5), (101, 2), (102, 0.5)]),
        (100, 9, [(100, 1.5), (104, 6), (108, 1.5)]),
    ],
)
def test_decode_steps_are_summed_by_simpsons_rule(prompt, steps, expected):
    assert decode_contexts(prompt, steps) == expected


@pytest.mark.parametrize("batch", [1, 4])
def test_each_sequence_of_a_batch_has_its_cache(batch):
    """Llama 3.2 1B: 16 layers of keys and values of 8 heads of 64, two bytes each, for 64 tokens in
    and 20 out.
    """
    plan = run_passes(resolve("llama-3.2-1b", "t4", seq_len=64, output_len=20, batch=batch))
    assert plan.memory.kv_cache_bytes == batch * 84 * 16 * 2 * 8 * 64 * 2
