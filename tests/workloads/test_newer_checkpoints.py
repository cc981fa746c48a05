"""Configurations of newer checkpoints, against published counts of their parameters."""

import json
from pathlib import Path

import pytest

import accelsim
from accelsim.errors import AccelsimError, InvalidValueError
from accelsim.workloads.checkpoints.huggingface import MODEL_TYPES, workload_from_config
from accelsim.workloads.dtype import precision
from accelsim.workloads.model import PassShape
from accelsim.workloads.operator import Phase

BF16 = precision("bf16")
NEXT = {
    "model_type": "qwen3_next",
    "vocab_size": 151936,
    "hidden_size": 2048,
    "intermediate_size": 5120,
    "num_hidden_layers": 48,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
}
MAMBA = {
    "model_type": "mamba2",
    "hidden_size": 768,
    "num_hidden_layers": 24,
    "num_heads": 24,
    "n_groups": 1,
    "vocab_size": 50288,
    "tie_word_embeddings": True,
}
#: Configuration, parameters, where they are published, and how far they are rounded.
PUBLISHED = [
    # torchvision, convnext_tiny
    ({"model_type": "convnext", "num_labels": 1000}, 28_589_128, 0),
    # Hugging Face, openai/clip-vit-base-patch32
    ({"model_type": "clip"}, 151_277_313, 0),
    # Hugging Face, google/siglip-base-patch16-224
    ({"model_type": "siglip"}, 203_155_970, 0),
    # Hugging Face, AntonV/mamba2-130m-hf
    (MAMBA, 128_989_632, 0),
    # Hugging Face, mistralai/Mamba-Codestral-7B-v0.1
    ({"model_type": "mamba2"}, 7_285_403_648, 0),
    # Warner et al. 2024, table 1: 149 and 395 million
    ({"model_type": "modernbert", "architectures": ["ModernBertForMaskedLM"]}, 149e6, 0.005),
    # Qwen3-Next-80B-A3B, model card
    (NEXT, 80e9, 0.01),
]


def lowered(config, phase=Phase.FORWARD, **sizes):
    workload = workload_from_config(config)
    shape = PassShape(**({"batch": 1, "seq_len": workload.default.seq_len} | sizes))
    return workload.lower(shape, BF16, phase)


@pytest.mark.parametrize(("config", "parameters", "rounded"), PUBLISHED)
def test_parameters_are_those_published(config, parameters, rounded):
    assert lowered(config).parameter_count == pytest.approx(parameters, rel=rounded or 1e-12)


def test_states_do_not_grow_with_the_context():
    near, far = (
        lowered(MAMBA, Phase.DECODE, seq_len=1, context_len=length) for length in (10, 10_000)
    )
    assert near.kv_bytes_per_token == 0
    assert near.graph.total_bytes == far.graph.total_bytes
    short, long = (lowered(MAMBA, Phase.PREFILL, seq_len=n).graph.model_flop for n in (512, 4096))
    assert long / short == pytest.approx(8, rel=0.25)  # not quadratic: 64


def test_three_layers_in_four_of_a_hybrid_keep_no_keys():
    whole = lowered(NEXT, Phase.PREFILL, seq_len=64)
    assert whole.kv_bytes_per_token == 12 * 2 * 2 * 256 * 2  # layers, k and v, heads, width, bytes
    kinds = {**NEXT, "layer_types": ["linear_attention"] * 48}
    with pytest.raises(InvalidValueError):
        lowered({**kinds, "layer_types": ["full_attention", *kinds["layer_types"][1:]]})


def test_the_newer_models_run_and_train():
    for config in (MAMBA, {"model_type": "convnext"}, {"model_type": "clip"}):
        workload = workload_from_config(config)
        for mode in ("inference", "training"):
            assert accelsim.estimate(workload, "a100-sxm-80gb", mode=mode, batch=2).latency_s > 0


def test_published_configurations_are_read_or_refused_by_their_type():
    """Those of the measured kernels' package, as their publishers wrote them."""
    found = pytest.importorskip("aiconfigurator_core")
    folder = Path(found.__file__).parent / "model_configs"
    done, refused = set(), []
    for path in sorted(folder.glob("*_config.json")):
        config = json.loads(path.read_text())
        try:
            workload = workload_from_config(config, path.stem)
        except AccelsimError as refusal:
            refused.append(str(refusal))
            continue
        done.add(config["model_type"])
        assert workload.parameters.hidden_size > 0
    assert all("model_type" in said or "quant" in said for said in refused)
    wanted = {"kimi_k2", "kimi_k25", "llama4", "minimax_m2", "qwen3_5", "qwen3_5_moe", "qwen3_vl"}
    assert wanted | {"glm_moe_dsa", "gpt_oss"} <= done


def test_every_asked_for_type_is_known():
    asked = ("llama4_text", "gemma3_text", "mamba2", "gpt_neox", "modernbert", "clip", "siglip")
    more = ("convnext", "minimax_m2", "kimi_k2", "glm4_moe", "glm_moe_dsa", "qwen3_next")
    assert {*asked, *more, "qwen3_5_text", "qwen3_5_moe_text"} <= MODEL_TYPES.keys()
