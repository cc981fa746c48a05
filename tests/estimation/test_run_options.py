"""Options of a run: those that do nothing are refused by name, those of training do what they say,
and curves over batches.
"""

import pytest

import accelsim
from accelsim.errors import AccelsimError, InvalidValueError
from accelsim.estimation.batches import estimate_batches, largest_batch
from accelsim.estimation.operators import operator_costs
from accelsim.estimation.passes import run_passes, training_step
from accelsim.estimation.resolution import resolve
from accelsim.workloads.operator import Phase

GPU = "h100-sxm-80gb"
BERT = {"mode": "training", "batch": 8, "seq_len": 128}


def trained(model="bert-base", **options):
    return accelsim.estimate(model, GPU, **{**BERT, **options})


@pytest.mark.parametrize(
    ("model", "options", "field"),
    [
        ("resnet-50", {"optimizer": "sgd"}, "optimizer"),
        ("resnet-50", {"optimizer": "adamw"}, "optimizer"),
        ("resnet-50", {"accumulation": 1}, "accumulation"),
        ("resnet-50", {"recompute": "full"}, "recompute"),
        ("resnet-50", {"lora_rank": 8}, "lora_rank"),
        ("resnet-50", {"kv_format": "fp8"}, "kv_format"),
        ("resnet-50", {"steps": 20}, "steps"),
        ("bert-base", {"image_size": 224}, "image_size"),
        ("bert-base", {"layout": "nchw"}, "layout"),
        ("resnet-50", {"fused_attention": False}, "fused_attention"),
        ("llama-3.2-1b", {"mode": "training", "output_len": 8}, "output_len"),
        ("llama-3.2-1b", {"mode": "training", "kv_format": "fp8"}, "kv_format"),
        ("resnet-50", {"mode": "training", "lora_rank": 8}, "lora_rank"),
    ],
)
def test_an_option_that_does_nothing_is_refused_by_name(model, options, field):
    with pytest.raises(InvalidValueError, match=field) as refused:
        accelsim.estimate(model, GPU, **options)
    assert refused.value.field == field


def test_a_comparison_of_both_modes_gives_each_its_own_options():
    found = accelsim.compare(
        "llama-3.2-1b", [GPU], modes=("inference", "training"), optimizer="sgd", output_len=4
    )
    first, second = (row.estimate for row in found.rows)
    assert (first.output_len, second.output_len) == (4, 0)
    assert second.inputs["optimizer"] == "sgd"
    with pytest.raises(InvalidValueError, match="optimizer"):
        accelsim.compare("llama-3.2-1b", [GPU], optimizer="sgd")


def test_full_recomputation_runs_the_layers_again_for_less_memory():
    plain, again = trained(), trained(recompute="full")
    run = resolve("bert-base", GPU, **BERT)
    forward = run_passes(resolve("bert-base", GPU, batch=8, seq_len=128)).model_flop
    assert again.memory["activation_bytes"] < 0.5 * plain.memory["activation_bytes"]
    assert plain.flop < again.flop <= plain.flop + forward
    assert again.flop - plain.flop > 0.8 * forward  # all but what stands around the layers
    assert plain.latency_s < again.latency_s < 1.5 * plain.latency_s
    kept = training_step(resolve("bert-base", GPU, **BERT, recompute="full")).forward
    assert kept.saved_bytes.sum() < training_step(run).forward.saved_bytes.sum()


def test_selective_recomputation_drops_what_attention_keeps():
    plain = trained(fused_attention=False)
    again = trained(fused_attention=False, recompute="selective")
    assert again.memory["activation_bytes"] < plain.memory["activation_bytes"]
    full = trained(fused_attention=False, recompute="full")
    assert plain.latency_s < again.latency_s < full.latency_s


def test_adapters_train_few_parameters_and_no_weight():
    model, rank = "llama-3.2-1b", 16
    run = resolve(model, GPU, mode="training", batch=2, seq_len=64, lora_rank=rank)
    step = training_step(run)
    p = run.workload.parameters
    kv = p.kv_heads * p.head_width
    wide, inner = p.hidden_size, p.intermediate_size
    # query and output, key and value, gate and up and down
    sizes = 2 * (wide + wide) + 2 * (wide + kv) + 3 * (wide + inner)
    update = step.rows.take(step.rows.phase == int(Phase.OPTIMIZER))
    assert update.dims[0, 0] == p.layers * rank * sizes
    of_weights = [name for name in step.rows.name if name.endswith("grad_weight")]
    assert of_weights
    assert all("lora" in name for name in of_weights)
    sizes = {"mode": "training", "batch": 16, "seq_len": 512}
    plain = accelsim.estimate(model, GPU, **sizes)
    thin = accelsim.estimate(model, GPU, **sizes, lora_rank=rank)
    assert thin.memory["optimizer_bytes"] < 0.05 * plain.memory["optimizer_bytes"]
    assert thin.latency_s < plain.latency_s
    assert thin.flop < plain.flop


def test_a_larger_rank_costs_more():
    first, second = (trained(lora_rank=rank) for rank in (4, 64))
    assert first.flop < second.flop
    assert first.memory_bytes < second.memory_bytes


def test_images_of_diffusion_take_their_steps():
    step = accelsim.estimate("stable-diffusion-1.5", GPU, batch=1)
    image = accelsim.estimate("stable-diffusion-1.5", GPU, batch=1, steps=20)
    assert (step.steps, image.steps) == (1, 20)
    assert image.latency_s == pytest.approx(20 * step.latency_s)
    assert image.throughput_per_s == pytest.approx(step.throughput_per_s / 20)
    assert image.memory_bytes == step.memory_bytes
    many = accelsim.estimate_many("stable-diffusion-1.5", GPU, steps=20, shapes={"batch": [1]})
    assert many["latency_s"][0] == pytest.approx(image.latency_s)


@pytest.mark.parametrize(
    ("size", "time_ms"), [("n", 1.5), ("s", 2.5), ("m", 4.7), ("l", 6.2), ("x", 11.3)]
)
def test_yolo11_takes_the_published_milliseconds(size, time_ms):
    """docs.ultralytics.com/models/yolo11: T4, TensorRT 10, FP16, 640 pixels, one picture."""
    e = accelsim.estimate(f"yolo11{size}", "t4", stack="tensorrt", precision="fp16", batch=1)
    assert e.latency_s == pytest.approx(time_ms * 1e-3, rel=0.15)


def test_a_picture_of_flux_takes_the_published_seconds():
    """xdit-project/xDiT, docs/performance/flux.md: FLUX.1 [dev], 28 steps, one H100, torch.compile:
    4.30 s, text encoders and decoder of the picture included.
    """
    e = accelsim.estimate("flux.1-dev", "h100-sxm-80gb", steps=28, precision="bf16")
    assert e.latency_s == pytest.approx(4.30, rel=0.15)


def test_decoding_has_a_rate_of_its_own():
    run = accelsim.estimate(
        "llama-3.2-1b", GPU, batch=4, seq_len=2048, output_len=8, execution="graph"
    )
    assert run.decode_tokens_per_s == pytest.approx(4 / run.time_per_output_token_s)
    assert run.decode_tokens_per_s > run.tokens_per_s
    assert accelsim.estimate("resnet-50", GPU).decode_tokens_per_s is None


@pytest.mark.parametrize(
    ("model", "device", "options"),
    [("resnet-50", "t4", {}), ("bert-base", "t4", {"mode": "training", "accumulation": 4})],
)
def test_the_largest_batch_fits_and_the_next_does_not(model, device, options):
    batch = largest_batch(model, device, **options)
    step = options.get("accumulation", 1)
    assert accelsim.estimate(model, device, batch=batch, **options).fits
    assert not accelsim.estimate(model, device, batch=batch + step, **options).fits


def test_the_knee_is_the_smallest_batch_with_most_of_the_rate():
    curve = estimate_batches("resnet-50", "t4", (1, 8, 64, 100_000))
    rates = {e.batch: e.throughput_per_s for e in curve.estimates if e.fits}
    enough = [batch for batch, rate in rates.items() if rate >= 0.9 * max(rates.values())]
    assert curve.knee == min(enough)
    assert not curve.estimates[-1].fits
    with pytest.raises(AccelsimError, match="batches"):
        estimate_batches("resnet-50", "t4", ())


def test_eager_and_compiled_stand_side_by_side_where_the_host_holds_all_up():
    run = {"modes": "training", "batch": 1}
    rows = accelsim.compare("resnet-50", ["t4", "h100-sxm-80gb", "tpu-v4"], **run).rows
    assert [row.estimate.bound for row in rows[:2]] == ["dispatch", "dispatch"]
    assert all(row.compiled.latency_s < row.estimate.latency_s for row in rows[:2])
    assert rows[2].compiled is None
    asked = accelsim.compare("resnet-50", ["t4", "l4"], execution="eager", **run).rows
    assert all(row.compiled is None for row in asked)
    large = accelsim.compare("resnet-50", ["t4", "l4"], modes="training", batch=64).rows
    assert all(row.compiled is None for row in large)


def test_bounds_have_the_names_of_the_nomenclature():
    from pathlib import Path

    page = Path(__file__).parents[2] / "docs" / "nomenclature.md"
    named = next(line for line in page.read_text().splitlines() if line.startswith("| bound"))
    runs = [("resnet-50", "t4", 1), ("resnet-50", "t4", 256), ("llama-3.1-8b", "t4", 1)]
    found = {accelsim.estimate(m, d, batch=b).bound for m, d, b in runs}
    graph = run_passes(resolve("resnet-50", "tpu-v4")).passes[0].graph
    costs = operator_costs(graph, "tpu-v4").to_frame()
    assert all(word in named for word in found | set(costs["bound"]))


#: Values of options that are no run's usual ones; host and tier say what is allowed alone.
CHANGES = {
    "precision": "int8",
    "weight_format": "int4",
    "kv_format": "fp8",
    "stack": "tensorrt",
    "execution": "graph",
    "layout": "nchw",
    "fused_attention": False,
    "sparse_weights": True,
    "batch": 3,
    "seq_len": 77,
    "output_len": 9,
    "image_size": 160,
    "steps": 7,
    "optimizer": "sgd",
    "accumulation": 2,
    "recompute": "full",
    "lora_rank": 8,
    "heap": "kept",
    "threads": 3,
}
SMALL_LOAD = accelsim.Arrivals(rate_per_s=300.0, requests=20, prompt="20", output="5")
#: Ways to ask.
ASKED = {
    "network": lambda **o: accelsim.estimate("resnet-18", "a100-sxm-80gb", **{"batch": 64} | o),
    "on a CPU": lambda **o: accelsim.estimate("bert-base", "epyc-7763", **{"batch": 2} | o),
    "language": lambda **o: accelsim.estimate("gpt2", "t4", **{"batch": 2, "output_len": 4} | o),
    "its training": lambda **o: accelsim.estimate("gpt2", "t4", **{"mode": "training"} | o),
    "on a cluster": lambda **o: accelsim.train("gpt2", cluster="dgx-h100", **{"batch": 64} | o),
    "served": lambda **o: accelsim.serve("gpt2", "t4", SMALL_LOAD, intervals=False, **o),
}


def figures(run):
    return {name: metric.value for name, metric in run.metrics.items()}


def idle_options(ask, changes):
    """Options that change no figure and are not refused by name."""
    usual, idle = figures(ask()), []
    for name, value in changes.items():
        try:
            changed = figures(ask(**{name: value}))
        except AccelsimError as refused:
            said = any(word in str(refused) for word in (name.partition("_")[0], str(value)))
        else:
            said = changed != usual
        if not said:
            idle.append(name)
    return idle


@pytest.mark.parametrize("how", ASKED)
def test_an_option_changes_figures_or_is_refused_by_name(how):
    assert not idle_options(ASKED[how], CHANGES)


SERVED = {
    "max_seqs": 1,
    "max_batch_tokens": 16,
    "memory_fraction": 0.01,
    "kv_blocks": 2,
    "step_overhead_s": 0.1,
    "batch_window_s": 0.5,
    "tp": 2,
    "ep": 2,
    "replicas": 2,
    "engine": "static",
    "storage": "local",
    "provisioning_s": 3.0,
    "max_outstanding": 1,
}


def test_an_option_of_serving_changes_figures_or_is_refused_by_name():
    assert not idle_options(ASKED["served"], SERVED)
    of_tokens = {
        "max_batch_tokens": 8,
        "memory_fraction": 0.5,
        "kv_blocks": 9,
        "prefix_cache": True,
    }
    for name, value in of_tokens.items():
        with pytest.raises(InvalidValueError, match=f"{name}.*generates no tokens"):
            accelsim.serve("lenet-5", "t4", SMALL_LOAD, **{name: value})
