"""Memory footprints."""

import pytest

from accelsim.catalog import device
from accelsim.cost.memory import (
    available_bytes,
    inference_footprint,
    live_bytes,
    training_footprint,
    transient_bytes,
)
from accelsim.dtype import precision
from accelsim.workloads.builder import GraphBuilder
from accelsim.workloads.training import OPTIMIZERS, training_graph


def chain(policy="fp32", depth=4, batch=8):
    b = GraphBuilder(precision(policy))
    x = b.input(batch, 64)
    for _ in range(depth):
        x = b.linear(x, 64, bias=False)
    return b


def test_a_chain_holds_two_tensors():
    graph = chain().build()
    assert live_bytes(graph).max() == 2 * 8 * 64 * 4


def test_a_skip_connection_holds_its_tensor():
    b = GraphBuilder(precision("fp32"))
    x = b.linear(b.input(8, 64), 64)
    b.add(b.linear(b.linear(x, 64), 64), x)
    assert live_bytes(b.build()).max() == 3 * 8 * 64 * 4


def test_mixed_precision_adam_keeps_sixteen_bytes_per_parameter():
    """Rajbhandari et al., ZeRO, SC 2020, section 3.1: 2 + 2 + 12 bytes."""
    b = chain("fp16")
    forward, rule = b.build(), OPTIMIZERS["adam"]
    step = training_graph(
        forward, b.parameter_totals.parameters, b.parameter_totals.tensors, b.precision, rule
    )
    memory = training_footprint(forward, step, b.parameter_totals.parameters, b.precision, rule)
    states = memory.weight_bytes + memory.gradient_bytes + memory.optimizer_bytes
    assert states == 16 * b.parameter_totals.parameters


def test_inference_weights_follow_the_precision():
    for policy, width in (("fp32", 4), ("bf16", 2), ("int8", 1), ("q8_0", 8.5008 / 8)):
        b = chain(policy)
        memory = inference_footprint(b.build(), b.parameter_totals.bytes)
        assert memory.weight_bytes == width * b.parameter_totals.parameters


def test_cache_counts_and_shortage_is_the_difference():
    b = chain()
    memory = inference_footprint(b.build(), b.parameter_totals.bytes, kv_cache_bytes=1e6)
    assert memory.total_bytes > 1e6
    assert memory.short_bytes(1e6) == memory.total_bytes - 1e6
    assert memory.short_bytes(1e12) == 0


def test_saved_activations_grow_with_batch():
    small, large = chain(batch=8), chain(batch=16)
    assert large.build().saved_bytes.sum() == 2 * small.build().saved_bytes.sum()


def test_inference_holds_its_input_and_the_two_tensors_of_a_row():
    b = chain()
    memory = inference_footprint(b.build(), b.parameter_totals.bytes)
    assert memory.activation_bytes == 3 * 8 * 64 * 4
    assert memory.total_bytes == memory.weight_bytes + memory.activation_bytes
    assert (memory.gradient_bytes, memory.optimizer_bytes, memory.kv_cache_bytes) == (0, 0, 0)


def test_tables_stay_at_the_width_of_activations():
    b = GraphBuilder(precision("int4"))
    b.linear(b.embedding(b.input(8), 1000, 64), 32, bias=False)
    memory = inference_footprint(b.build(), b.parameter_totals.bytes)
    policy = precision("w4a16")
    assert policy.weight.bytes == (4 + 20 / 128) / 8
    assert memory.weight_bytes == 1000 * 64 * 2 + 64 * 32 * policy.weight.bytes


@pytest.mark.parametrize(
    ("name", "policy", "states"),
    [
        ("sgd", "fp32", 0),
        ("momentum", "fp32", 4),
        ("adamw", "fp32", 8),
        ("sgd", "fp16", 4),
        ("adamw", "bf16", 12),
    ],
)
def test_states_are_fp32_and_half_precision_keeps_a_master_copy(name, policy, states):
    b, rule = chain(policy), OPTIMIZERS[name]
    forward = b.build()
    step = training_graph(
        forward, b.parameter_totals.parameters, b.parameter_totals.tensors, b.precision, rule
    )
    memory = training_footprint(forward, step, b.parameter_totals.parameters, b.precision, rule)
    width = 4 if policy == "fp32" else 2
    assert memory.optimizer_bytes == states * b.parameter_totals.parameters
    assert memory.weight_bytes == memory.gradient_bytes == width * b.parameter_totals.parameters


def test_training_holds_what_is_saved_and_the_largest_gradient_row():
    """Four layers save their inputs; a weight gradient reads two tensors of 8 x 64 and writes 64 x
    64.
    """
    b, rule = chain(), OPTIMIZERS["sgd"]
    forward = b.build()
    step = training_graph(
        forward, b.parameter_totals.parameters, b.parameter_totals.tensors, b.precision, rule
    )
    memory = training_footprint(forward, step, b.parameter_totals.parameters, b.precision, rule)
    tensor, weights = 8 * 64 * 4, 64 * 64 * 4
    assert memory.activation_bytes == 4 * tensor + (2 * tensor + weights)


@pytest.mark.parametrize(("name", "total_mib"), [("t4", 15_360), ("l40s", 46_068), ("a40", 46_068)])
def test_inline_error_correction_takes_capacity(name, total_mib):
    """What nvidia-smi reports as total of boards whose codes lie beside the data."""
    profile = device(name)
    assert profile.memory.usable_bytes.value == total_mib * 2**20
    assert available_bytes(profile) < total_mib * 2**20 - 256e6  # a process has its context


def test_an_engine_takes_its_share():
    """vLLM's `gpu_memory_utilization` is of the memory the driver reports, context included."""
    board = device("a10g")
    whole, share = available_bytes(board), available_bytes(board, 0.9)
    assert whole - share == pytest.approx(0.1 * board.memory.usable_bytes.value, rel=0.03)


def test_a_slice_has_its_share_of_what_is_usable():
    whole, half = device("t4"), device("t4@fraction=0.5")
    assert half.memory.usable_bytes.value == whole.memory.usable_bytes.value / 2


def test_what_later_layers_kept_is_freed_when_wide_early_layers_run_backward():
    """The first product's gradient runs when what the second one kept, 8 x 1024, is gone."""
    b, rule = GraphBuilder(precision("fp32")), OPTIMIZERS["sgd"]
    x = b.input(8, 64)
    with b.scope("a"):
        x = b.linear(x, 1024, bias=False)
    with b.scope("b"):
        b.linear(x, 64, bias=False)
    forward = b.build()
    step = training_graph(
        forward, b.parameter_totals.parameters, b.parameter_totals.tensors, b.precision, rule
    )
    held = transient_bytes(forward, step)
    narrow, wide, weights = 8 * 64 * 4, 8 * 1024 * 4, 64 * 1024 * 4
    both = narrow + wide + weights
    # of the second product's input, of its weights, of the first one's weights; the optimizer's
    assert held.tolist() == [0, 0, narrow + wide, both, both - wide, 0]
    memory = training_footprint(forward, step, b.parameter_totals.parameters, b.precision, rule)
    assert memory.activation_bytes == narrow + wide + both
