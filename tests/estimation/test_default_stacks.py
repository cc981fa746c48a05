"""Devices run as they are deployed: what is compared is compared like with like."""

from itertools import product

import pytest

from accelsim import catalog, compare, estimate
from accelsim.errors import AccelsimError, InvalidValueError
from accelsim.estimation.resolution import resolve

MODELS = ("resnet-50", "bert-large", "llama-3.1-8b", "ncf-ml-20m", "lstm-lm-medium")
H100 = "h100-sxm-80gb"


@pytest.mark.parametrize("model", MODELS)
def test_no_device_is_asked_to_infer_operator_by_operator_by_itself(model):
    ran = 0
    for name in catalog.device_names():
        try:
            run = resolve(model, name)
        except AccelsimError:
            continue
        ran += 1
        assert run.execution != "eager", (name, run.stack.name)
    assert ran > 100


def test_language_models_are_served_where_an_engine_runs():
    for name in catalog.device_names():
        device = catalog.device(name)
        run = resolve("llama-3.1-8b", name)
        is_served = run.stack.name == "vllm"
        is_gpu = device.device_class == "gpu" and device.vendor in {"NVIDIA", "AMD"}
        assert is_served == (is_gpu and bool(device.matrix_flop_per_s)), name


@pytest.mark.parametrize(
    ("model", "asked", "stack", "execution"),
    [
        ("llama-3.1-8b", {}, "vllm", "graph"),
        ("llama-3.1-8b", {"execution": "eager"}, "pytorch", "eager"),
        ("llama-3.1-8b", {"stack": "pytorch"}, "pytorch", "eager"),
        ("llama-3.1-8b", {"mode": "training"}, "pytorch", "eager"),
        ("llama-3.1-8b", {"precision": "q4_k_m"}, "llama-cpp", "graph"),
        ("t5-base", {}, "pytorch", "compiled"),
        ("resnet-50", {}, "pytorch", "compiled"),
        ("resnet-50", {"layout": "nchw"}, "pytorch", "eager"),
        ("resnet-50", {"stack": "tensorrt"}, "tensorrt", "compiled"),
    ],
)
def test_what_is_asked_for_is_what_runs(model, asked, stack, execution):
    run = resolve(model, H100, **asked)
    assert (run.stack.name, run.execution) == (stack, execution)


def test_two_ways_of_issuing_operators_share_no_ranking_in_silence():
    devices = [H100, "tpu-v5e", "xeon-platinum-8480+"]
    for model, mode in product(("resnet-50", "gpt2"), ("inference", "training")):
        found = compare(model, devices, modes=mode)
        kinds = {row.estimate.execution == "eager" for row in found if row.estimate}
        assert bool(found.warnings) == (len(kinds) > 1)
        assert found.warnings or mode == "inference"
        assert all(f"{model}, {mode}" in words for words in found.warnings)
        rows = [row for row in found.to_dict() if row["reason"] is None]
        assert all(set(found.warnings) <= set(row["warnings"]) for row in rows)
    alike = compare("resnet-50", devices, modes="training", execution="compiled")
    assert not alike.warnings


def test_experts_have_a_format_of_their_own():
    """Mixtral's experts are 45 of its 47 billion weights; a half of a byte less each."""
    run = {"model": "mixtral-8x7b", "device": "b200-sxm", "precision": "fp8"}
    whole, apart, same = (
        estimate(run["model"], run["device"], precision="fp8", expert_precision=name)
        for name in (None, "nvfp4", "fp8")
    )
    saved = whole.memory["weight_bytes"] - apart.memory["weight_bytes"]
    assert saved == pytest.approx(45.1e9 * (1 - 4.5 / 8), rel=0.01)
    assert apart.latency_s < whole.latency_s
    assert same.latency_s == whole.latency_s
    assert apart.inputs["expert_precision"] == "nvfp4"


@pytest.mark.parametrize(
    ("model", "asked"),
    [
        ("llama-3.1-8b", {"expert_precision": "fp8"}),
        ("mixtral-8x7b", {"expert_precision": "q4_k_m"}),
        ("mixtral-8x7b", {"expert_precision": "fp8", "mode": "training"}),
    ],
)
def test_experts_formats_that_say_nothing_are_refused(model, asked):
    with pytest.raises(InvalidValueError, match="expert_precision"):
        resolve(model, "b200-sxm", **asked)
