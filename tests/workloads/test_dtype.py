"""Formats of weights and precision policies: bits per weight, what a chip makes of them, modules
that stay in 16 bits.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import accelsim
from accelsim.catalog.workloads import workload
from accelsim.dtype import PRECISIONS, BlockFormat, Dtype, precision, weight_format
from accelsim.errors import InvalidValueError, UnknownNameError
from accelsim.estimation.resolution import resolve
from accelsim.workloads.model import PassShape

SHORT = {"seq_len": 16, "output_len": 4}


@pytest.mark.parametrize(
    ("name", "size_gib"), [("q4_k_m", 4.58), ("q6_k", 6.14), ("q8_0", 7.95), ("iq2_xs", 2.42)]
)
def test_llama_cpp_files_have_their_published_size(name, size_gib):
    """tools/quantize/README.md of ggml-org/llama.cpp, Llama-3.1-8B."""
    lowered = workload("llama-3.1-8b").lower(PassShape(1, 1), precision(name))
    assert lowered.parameter_bytes / 2**30 == pytest.approx(size_gib, rel=0.01)


@pytest.mark.parametrize(
    ("name", "bits"), [("mxfp4", 4.25), ("nvfp4", 4.5), ("w4a16", 4.15625), ("nf4", 4.5)]
)
def test_scales_are_part_of_a_weight(name, bits):
    """OCP MX v1.0: 32 values and an 8-bit scale; NVFP4: 16 and an FP8; groups of 128; QLoRA: 64."""
    stored = precision(name).weight
    assert isinstance(stored, BlockFormat)
    assert 8 * stored.bytes == bits


@pytest.mark.parametrize(
    ("name", "device", "compute"),
    [
        ("fp8", "h100-sxm-80gb", Dtype.FP8),
        ("fp8", "a100-sxm-80gb", Dtype.BF16),
        ("fp8", "t4", Dtype.FP16),
        ("w8a8", "a100-sxm-80gb", Dtype.INT8),
        ("w8a16", "h100-sxm-80gb", Dtype.BF16),
        ("w4a16", "v100-sxm2-16gb", Dtype.FP16),
        ("mxfp4", "h100-sxm-80gb", Dtype.BF16),
        ("nvfp4", "b200-sxm", Dtype.FP4),
        ("q4_k_m", "rtx-3090", Dtype.FP16),
        ("q4_k_m", "xeon-platinum-8280", Dtype.INT8),
    ],
)
def test_chips_multiply_what_they_have_arithmetic_for(name, device, compute):
    run = resolve("llama-3.1-8b", device, precision=name)
    assert run.precision.compute == compute
    assert run.precision.weight == precision(name).weight
    assert run.precision.activation in accelsim.device(device).peak_flop_per_s


@pytest.mark.parametrize("name", ["fp8", "w8a8", "mxfp4", "iq1_s", "q4_k_m"])
def test_every_format_runs_on_gpus_and_cpus_and_needs_less_than_16_bits(name):
    for device in ("l40s", "epyc-7763"):
        whole = accelsim.estimate("llama-3.2-1b", device, precision="bf16", **SHORT)
        light = accelsim.estimate("llama-3.2-1b", device, precision=name, **SHORT)
        assert light.memory["weight_bytes"] < 0.8 * whole.memory["weight_bytes"]
        assert light.flop == whole.flop
    with pytest.raises(InvalidValueError, match="precision"):
        resolve("llama-3.2-1b", "t4", precision="q4_k_m", mode="training")


@pytest.mark.parametrize("name", ["w8a16", "w4a16", "q6_k", "iq2_xs"])
def test_fewer_bits_decode_faster(name):
    stack = "llama-cpp" if precision(name).is_file else "vllm"
    wide, narrow = (
        accelsim.estimate("llama-3.1-8b", "rtx-4090", precision=p, stack=stack, **SHORT)
        for p in ("bf16", name)
    )
    assert narrow.time_per_output_token_s < 0.8 * wide.time_per_output_token_s


def test_a_cache_is_stored_in_its_own_format():
    half, eighth = (
        accelsim.estimate("llama-3.1-8b", "l40s", precision="w4a16", kv_format=form, **SHORT)
        for form in (None, "fp8")
    )
    assert half.memory["kv_cache_bytes"] == 2 * eighth.memory["kv_cache_bytes"]


def test_short_names_and_unknown_ones():
    assert precision("INT4") is precision("w4a16")
    assert precision("fp4") is precision("nvfp4")
    assert precision("Q4_K_M").name == "q4_k_m"
    with pytest.raises(UnknownNameError, match="q4_k_m"):
        precision("q4_k_mm")
    assert weight_format("weight_format", "mxfp4") is PRECISIONS["mxfp4"].weight
    with pytest.raises(InvalidValueError, match="kv_format"):
        weight_format("kv_format", "int128")


@given(layer=st.integers(0, 99))
def test_named_modules_are_kept_whole_or_in_part(layer):
    base = precision("fp8")
    path = f"model.layers.{layer}.mlp.gate"
    assert base.keeps(path)
    assert not base.keeps(f"{path}_proj")
    by_name = replace(base, kept=("model.layers.*.self_attn", rf"re:.*\.{layer}\.mlp\.up"))
    assert by_name.keeps(f"model.layers.{layer}.self_attn.q_proj")
    assert by_name.keeps(f"model.layers.{layer}.mlp.up_proj")
    assert not by_name.keeps(f"model.layers.{layer + 1}.mlp.up_proj")
    assert not by_name.keeps(f"model.layers.{layer}.mlp.down_proj")
