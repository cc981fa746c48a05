"""Trainers as stacks: what selective recomputation keeps by operator, and host time."""

import numpy as np
import pytest

import accelsim
from accelsim.estimation.passes import training_step
from accelsim.estimation.run import resolve
from accelsim.workloads.operator import OperatorKind
from accelsim.workloads.recomputation import selectively

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
    per_token = 2 * (hidden + hidden + 2 * key_width + hidden + 2 * inner + hidden)
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


def test_a_trainer_whose_host_is_slower_takes_longer_where_the_host_is_the_limit():
    small = {"gpus": 2, "seq_len": 128, "global_batch": 8, "plan": "dp=2"}
    asked = {"cluster": "dgx-a100", "precision": "fp16", "execution": "eager", **small}
    usual, slower = (
        accelsim.train("gpt2", **asked, stack=name).iteration_s
        for name in ("pytorch", "megatron-deepspeed")
    )
    assert slower > 1.1 * usual
