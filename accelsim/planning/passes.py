"""The passes of a scenario: which graphs run, how often, and what memory they need.

Inference of an autoregressive model is one prefill and a decode step per further token; the steps'
costs change slowly and almost linearly with the context, so they are costed at three contexts and
summed with Simpson's weights instead of one by one. Everything else is one pass: a forward pass, or
a training step.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from accelsim.cost.memory import MemoryFootprint, inference_footprint, training_footprint
from accelsim.cost.table import Execution
from accelsim.planning.scenario import Scenario
from accelsim.workloads.capture.captured import captured_training
from accelsim.workloads.fusion import fuse_elementwise
from accelsim.workloads.graph import OperatorGraph
from accelsim.workloads.model import Lowered, RunShape
from accelsim.workloads.operator import OperatorKind, Phase
from accelsim.workloads.training import training_graph

__all__ = ["Pass", "Plan", "plan_passes"]

# Graphs are immutable and lowered once: what is derived from one is kept beside it.
_step = lru_cache(maxsize=64)(training_graph)
_fused = lru_cache(maxsize=64)(fuse_elementwise)


@dataclass(frozen=True, slots=True, eq=False)
class Pass:
    """One graph and how many times it runs.

    Attributes:
        name: "forward", "training step", "prefill" or "decode".
        graph: The operators, fused where execution is compiled.
        repeats: Times it runs (decode steps this graph stands for); need not be whole.
    """

    name: str
    graph: OperatorGraph
    repeats: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Passes of one iteration with its memory and model FLOP."""

    passes: tuple[Pass, ...]
    memory: MemoryFootprint
    parameter_count: int
    model_flop: float
    total_bytes: float
    input_bytes: float


def plan_passes(scenario: Scenario) -> Plan:
    """Lower a scenario to passes.

    Raises:
        InvalidValueError: If the workload cannot be lowered at these sizes.
    """
    if scenario.mode == "training":
        return _training(scenario)
    if scenario.output_len > 0:
        return _generation(scenario)
    lowered = _lower(scenario, Phase.FORWARD)
    memory = inference_footprint(lowered.graph, lowered.parameter_count, scenario.precision)
    return _plan(scenario, [("forward", lowered.graph, 1.0)], memory, lowered)


def _shape(scenario: Scenario, **changes: int) -> RunShape:
    default = scenario.workload.default
    sizes = {
        "batch": scenario.batch,
        "seq_len": scenario.seq_len,
        "image_size": scenario.image_size,
        "target_len": default.target_len,
    }
    return RunShape(**(sizes | changes))


def _lower(scenario: Scenario, phase: Phase, **changes: int) -> Lowered:
    shape = _shape(scenario, **changes)
    return scenario.workload.lower(
        shape, scenario.precision, phase, fused_attention=scenario.fused_attention
    )


def _training(scenario: Scenario) -> Plan:
    forward = _lower(scenario, Phase.FORWARD)
    graph, counts = forward.graph, (forward.parameter_count, forward.parameter_tensor_count)
    if scenario.workload.captured is None:
        step = _step(graph, *counts, scenario.precision, scenario.optimizer)
    else:
        rule = scenario.optimizer.name
        step = captured_training(
            scenario.workload, _shape(scenario), scenario.precision, optimizer_name=rule
        )
        graph = step.take(
            step.phase == int(Phase.FORWARD)
        )  # with what training keeps, unlike the inference pass
    memory = training_footprint(graph, step, counts[0], scenario.precision, scenario.optimizer)
    return _plan(scenario, [("training step", step, 1.0)], memory, forward)


def _generation(scenario: Scenario) -> Plan:
    prompt, tokens = scenario.seq_len, scenario.output_len
    prefill = _lower(scenario, Phase.PREFILL)
    graphs = [("prefill", prefill.graph, 1.0)]
    # an encoder-decoder attends to its prompt as the source: its own cache starts with the start
    # token
    cached = 1 if scenario.workload.default.target_len else prompt
    for context, repeats in _decode_contexts(cached, tokens - 1):
        step = _lower(scenario, Phase.DECODE, seq_len=1, context_len=context, source_len=prompt)
        graphs.append(("decode", step.graph, repeats))
    cache = prefill.kv_bytes_per_token * scenario.batch * (prompt + tokens)
    memory = inference_footprint(prefill.graph, prefill.parameter_count, scenario.precision, cache)
    return _plan(scenario, graphs, memory, prefill)


def _decode_contexts(prompt: int, steps: int) -> list[tuple[int, float]]:
    """Contexts to cost and how many steps each stands for: Simpson's rule over the first, middle
    and last step.
    """
    if steps <= 0:
        return []
    first, last = prompt, prompt + steps - 1
    if steps <= 2:
        return [(context, 1.0) for context in range(first, last + 1)]
    return [(first, steps / 6), ((first + last) // 2, 4 * steps / 6), (last, steps / 6)]


def _plan(
    scenario: Scenario,
    graphs: list[tuple[str, OperatorGraph, float]],
    memory: MemoryFootprint,
    lowered: Lowered,
) -> Plan:
    # What an FPGA's compiler joins is part of its cost model.
    compiled = scenario.execution == Execution.COMPILED and scenario.device.device_class != "fpga"
    passes = tuple(Pass(name, _fused(g) if compiled else g, repeats) for name, g, repeats in graphs)
    return Plan(
        passes,
        memory,
        lowered.parameter_count,
        sum(g.model_flop * repeats for _, g, repeats in graphs),
        sum(p.graph.total_bytes * p.repeats for p in passes),
        _input_bytes(graphs[0][1]),
    )


def _input_bytes(graph: OperatorGraph) -> float:
    """Bytes of one batch as it comes from the host: operands no row wrote; 8-byte ids for lookups."""
    roots = graph.dependency_offset[1:] == graph.dependency_offset[:-1]
    forward = (graph.phase != int(Phase.BACKWARD)) & (graph.phase != int(Phase.OPTIMIZER))
    lookup = (graph.kind == int(OperatorKind.EMBEDDING)) | (
        graph.kind == int(OperatorKind.EMBEDDING_BAG)
    )
    tensors = graph.read_bytes[roots & forward & ~lookup].sum()
    return float(tensors + 8.0 * graph.dims[roots & forward & lookup, 0].sum())
