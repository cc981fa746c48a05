"""Memory footprints."""

from accelsim.cost.memory import inference_footprint, live_bytes, training_footprint
from accelsim.workloads.builder import GraphBuilder
from accelsim.workloads.dtype import precision
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
    step = training_graph(forward, b.parameter_count, b.parameter_tensor_count, b.precision, rule)
    memory = training_footprint(forward, step, b.parameter_count, b.precision, rule)
    states = memory.weight_bytes + memory.gradient_bytes + memory.optimizer_bytes
    assert states == 16 * b.parameter_count


def test_inference_weights_follow_the_precision():
    for policy, width in (("fp32", 4), ("bf16", 2), ("int8", 1), ("int4", 0.5)):
        b = chain(policy)
        memory = inference_footprint(b.build(), b.parameter_count, b.precision)
        assert memory.weight_bytes == width * b.parameter_count


def test_cache_counts_and_shortage_is_the_difference():
    b = chain()
    memory = inference_footprint(b.build(), b.parameter_count, b.precision, kv_cache_bytes=1e6)
    assert memory.total_bytes > 1e6
    assert memory.short_bytes(1e6) == memory.total_bytes - 1e6
    assert memory.short_bytes(1e12) == 0


def test_saved_activations_grow_with_batch():
    small, large = chain(batch=8), chain(batch=16)
    assert large.build().saved_bytes.sum() == 2 * small.build().saved_bytes.sum()
