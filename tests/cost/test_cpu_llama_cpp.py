"""llama.cpp's products on CPUs: rates by the instructions of its kernels, not those of tiles."""

from __future__ import annotations

import pytest
from operator_cases import gemm

import accelsim
from accelsim import catalog
from accelsim.cost.cpu.machine import cpu_machine
from accelsim.cost.cpu.parameters import cpu_parameters
from accelsim.cost.table import Execution
from accelsim.dtype import Dtype

GRAPH = gemm(64, 64, 64)


def machine(name, values):
    return cpu_machine(GRAPH, catalog.device(name), Execution.GRAPH, values)


@pytest.mark.parametrize(
    "name", ["xeon-platinum-8480+", "epyc-9654", "graviton3", "core-i9-13900k"]
)
def test_a_block_of_32_takes_its_instructions(name):
    values = cpu_parameters()
    rates = machine(name, values.of_llama_cpp()).gemm_rate
    device = catalog.device(name)
    issued = device.vector_flop_per_s[Dtype.FP32].value / 2 / (device.simd_width_bits.value / 32)
    at_all = rates[Dtype.INT8] / 64 * values.block_instruction_count / issued
    assert at_all == pytest.approx(values.gemm_efficiency_fraction)
    assert rates[Dtype.FP16] == rates[Dtype.FP32]


def test_prompts_of_llama_cpp_use_no_tiles_and_decoding_still_reads_at_the_memorys_rate():
    ask = {"stack": "llama-cpp", "seq_len": 512, "output_len": 32}
    four, sixteen = (
        accelsim.estimate("llama-2-7b", "xeon-platinum-8480+", precision=precision, **ask)
        for precision in ("q4_0", "fp16")
    )
    served = accelsim.estimate(
        "llama-2-7b", "xeon-platinum-8480+", precision="bf16", seq_len=512, output_len=32
    )
    assert four.time_to_first_token_s > 4 * served.time_to_first_token_s
    ratio = sixteen.time_per_output_token_s / four.time_per_output_token_s
    assert ratio == pytest.approx(16 / 4.5, rel=0.15)
