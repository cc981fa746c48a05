"""Precisions of published checkpoints: sizes of their files, formats by method, modules that stay
in 16 bits, and bad configurations.
"""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import accelsim
from accelsim.catalog.checkpoints.huggingface import workload_from_config
from accelsim.catalog.checkpoints.quantization import published_precision
from accelsim.catalog.workloads import workload
from accelsim.dtype import Dtype, precision
from accelsim.errors import InputError, InvalidValueError
from accelsim.workloads.model import PassShape, Workload

LLAMA = {
    "model_type": "llama",
    "vocab_size": 1000,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
}
GROUPS_OF_32 = {
    "quant_method": "compressed-tensors",
    "config_groups": {
        "group_0": {
            "input_activations": None,
            "weights": {"num_bits": 4, "type": "int", "group_size": 32, "symmetric": True},
        }
    },
    "ignore": [
        "lm_head",
        "re:.*self_attn.*",
        "re:.*shared_experts.*",
        "re:.*mlp\\.(gate|up|gate_up|down)_proj.*",
    ],
}
INT4 = {"num_bits": 4, "type": "int", "group_size": 128, "symmetric": True}
SPARSE = {"format": "sparse-24-bitmask", "sparsity_structure": "2:4"}
#: moonshotai/Kimi-K2.5, the language model's part of its config.json.
KIMI = {
    "model_type": "kimi_k25",
    "text_config": {
        "model_type": "kimi_k2",
        "vocab_size": 163840,
        "hidden_size": 7168,
        "intermediate_size": 18432,
        "moe_intermediate_size": 2048,
        "num_hidden_layers": 61,
        "num_attention_heads": 64,
        "n_routed_experts": 384,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "first_k_dense_replace": 1,
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "quantization_config": GROUPS_OF_32,
    },
}
FLOAT_4 = {"num_bits": 4, "type": "float", "group_size": 16}
METHODS = [
    ({"quant_method": "fp8"}, "fp8", 8, Dtype.FP8),
    ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8", 8 + 2**-9, Dtype.FP8),
    ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "w4a16", 4.15625, Dtype.BF16),
    ({"quant_method": "gptq", "bits": 8, "group_size": -1}, "w8a16", 8, Dtype.BF16),
    ({"quant_method": "gptq", "bits": 3, "group_size": 64}, "w3a16", 3 + 19 / 64, Dtype.BF16),
    ({"quant_method": "awq", "w_bit": 4, "q_group_size": 64}, "w4a16", 4.3125, Dtype.BF16),
    (GROUPS_OF_32, "w4a16", 4.5, Dtype.BF16),
    (
        {
            "quant_method": "compressed-tensors",
            "config_groups": {"a": {"weights": FLOAT_4, "input_activations": FLOAT_4}},
        },
        "nvfp4",
        4.5,
        Dtype.FP4,
    ),
    ({"quant_method": "mxfp4"}, "mxfp4", 4.25, Dtype.FP4),
    ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "w8a8", 8, Dtype.INT8),
    ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "nf4", 4.5, Dtype.BF16),
    (
        {"quant_method": "bitsandbytes", "bnb_4bit_use_double_quant": True},
        "nf4",
        4.126953125,
        Dtype.BF16,
    ),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4", 4.5, Dtype.FP4),
]


def published(model: Workload) -> float:
    return model.lower(PassShape(1, 1), model.quantised).parameter_bytes


@pytest.mark.parametrize(
    ("name", "size_bytes"),
    [("deepseek-v3", 671e9), ("gpt-oss-120b", 60.8 * 2**30), ("gpt-oss-20b", 12.8 * 2**30)],
)
def test_catalogued_checkpoints_have_their_published_size(name, size_bytes):
    """DeepSeek-V3: 671 billion parameters of a byte; gpt-oss model card, arXiv:2508.10925, table 1:
    checkpoint size.
    """
    assert published(workload(name)) == pytest.approx(size_bytes, rel=0.005)


def test_kimi_k2_has_a_trillion_parameters_mostly_in_four_bits():
    """A trillion parameters (model card); the files of Kimi-K2.5 take about 600 GB (guide of
    ktransformers).
    """
    model = workload_from_config(KIMI)
    assert model.lower(PassShape(1, 1), precision("bf16")).parameter_count == pytest.approx(
        1e12, rel=0.03
    )
    assert published(model) == pytest.approx(600e9, rel=0.02)


@pytest.mark.parametrize(("config", "name", "bits", "compute"), METHODS)
def test_methods_name_their_format(config, name, bits, compute):
    found = published_precision({"quantization_config": config})
    assert (found.name, 8 * found.weight.bytes, found.compute) == (name, bits, compute)
    assert found.activation is Dtype.BF16


def test_the_published_precision_is_the_default_and_another_may_be_asked_for():
    run = {"seq_len": 16, "output_len": 4}
    config = {"quantization_config": {"quant_method": "gptq", "bits": 4}, "torch_dtype": "float16"}
    model = workload_from_config(LLAMA | config)
    own, half = (accelsim.estimate(model, "t4", precision=p, **run) for p in (None, "fp16"))
    assert (own.precision, half.precision) == ("w4a16", "fp16")
    assert own.memory["weight_bytes"] < 0.6 * half.memory["weight_bytes"]
    assert accelsim.estimate(model, "t4", mode="training", batch=1, seq_len=16).precision == "fp16"


@pytest.mark.parametrize("name", ["model.layers.3", "model.layers.3*", r"re:model\.layers\.3\..*"])
def test_one_layer_of_many_alike_may_stay_in_16_bits(name):
    plain = {"quant_method": "fp8"}
    whole = workload_from_config(LLAMA | {"quantization_config": plain})
    part = workload_from_config(
        LLAMA | {"quantization_config": plain | {"modules_to_not_convert": [name]}}
    )
    products = 4 * 256 * 256 + 3 * 256 * 512
    assert published(part) - published(whole) == products
    graph = part.lower(PassShape(1, 8), part.quantised).graph
    wide = {path for path, code in zip(graph.path, graph.dtype, strict=True) if code == Dtype.BF16}
    assert "model.layers.3.mlp.up_proj" in wide
    assert "model.layers.2.mlp.up_proj" not in wide


def test_names_within_the_whole_model_are_those_of_its_language_model():
    names = ["language_model.model.layers.0*", "model.language_model.layers.1.mlp*"]
    config = {"quant_method": "fp8", "modules_to_not_convert": names}
    found = published_precision({"quantization_config": config})
    assert found.keeps("model.layers.0.self_attn.q_proj")
    assert found.keeps("model.layers.1.mlp.up_proj")
    assert not found.keeps("model.layers.2.mlp.up_proj")


def test_caches_have_the_format_that_is_named():
    config = {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}
    assert published_precision({"quantization_config": config}).kv_cache is Dtype.FP8
    scheme = {"num_bits": 8, "type": "float"}
    named = {"quant_method": "fp8", "kv_cache_scheme": scheme}
    assert published_precision({"quantization_config": named}).kv_cache is Dtype.FP8


def test_weights_of_4_bits_may_multiply_activations_of_8():
    group = {"targets": ["Linear"], "weights": INT4, "input_activations": {"num_bits": 8}}
    config = {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}}
    found = published_precision({"compression_config": config})
    assert (found.name, found.compute, found.weight.bits) == ("w4a8", Dtype.INT8, 4.125)


def test_fields_that_change_no_format_are_taken():
    modules = [["self_attn.q_proj", "self_attn.o_proj"], ["mlp.up_proj", "mlp.down_proj"]]
    gptq = {
        "quant_method": "gptq",
        "bits": 4,
        "dynamic": {},
        "modules_in_block_to_quantize": modules,
    }
    dense = GROUPS_OF_32 | {"sparsity_config": {"format": "dense", "global_sparsity": 0.1}}
    for config in (gptq, dense):
        assert published_precision({"quantization_config": config}).name == "w4a16"


def test_a_checkpoint_may_name_its_formats_in_a_file_of_their_own(tmp_path):
    """ModelOpt's export: config.json names no quantisation, hf_quant_config.json does."""
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    own = {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps({"quantization": own}))
    found = workload(str(tmp_path)).quantised
    assert (found.name, found.kv_cache) == ("fp8", Dtype.FP8)


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"quant_method": "aqlm"}, "quantization_config.quant_method"),
        ({"quant_method": ""}, "quantization_config.quant_method"),
        ("fp8", "quantization_config"),
        ({"quant_method": "gptq", "bits": 5}, "quantization_config.bits"),
        (
            {"quant_method": "fp8", "weight_block_size": [1, 2, 3]},
            "quantization_config.weight_block_size",
        ),
        (
            {"quant_method": "fp8", "modules_to_not_convert": "lm_head"},
            "quantization_config.modules_to_not_convert",
        ),
        ({"quant_method": "fp8", "ignore": ["re:(a+)+$"]}, "quantization_config.ignore"),
        ({"quant_method": "fp8", "ignore": ["re:("]}, "quantization_config.ignore"),
        (
            {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"},
            "quantization_config.quant_algo",
        ),
        ({"quant_method": "compressed-tensors"}, "quantization_config.config_groups"),
        (
            {"quant_method": "gptq", "bits": 4, "dynamic": {"+:.*down_proj": {"bits": 8}}},
            "quantization_config.dynamic",
        ),
        (
            {"quant_method": "gptq", "bits": 4, "modules_in_block_to_quantize": [["mlp.up_proj"]]},
            "quantization_config.modules_in_block_to_quantize",
        ),
        (GROUPS_OF_32 | {"sparsity_config": SPARSE}, "quantization_config.sparsity_config"),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"targets": ["re:.*mlp.*"], "weights": INT4}},
            },
            "quantization_config.config_groups.targets",
        ),
        ({"quant_method": "fp8", "kv_cache_scheme": "int3"}, "quantization_config.kv_cache_scheme"),
        (
            {"quant_method": "bitsandbytes", "load_in_4bit": False},
            "quantization_config.load_in_4bit",
        ),
        (
            {"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": True},
            "quantization_config.load_in_4bit",
        ),
    ],
)
def test_what_is_not_read_is_refused_by_name(config, field):
    with pytest.raises(InvalidValueError) as caught:
        workload_from_config(LLAMA | {"quantization_config": config})
    assert caught.value.field == field


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=6,
)


@given(st.sampled_from([config for config, *_ in METHODS]), st.data())
@settings(max_examples=100, deadline=None)
def test_any_field_may_be_anything_and_only_input_errors_come_out(config, data):
    field = data.draw(st.sampled_from([*config, "ignore", "kv_cache_scheme", "lm_head"]))
    with contextlib.suppress(InputError):
        published_precision({"quantization_config": config | {field: data.draw(ANY)}})
