"""Memory of a replica: weights, activations, and what the engine's rule leaves for cache blocks."""

from __future__ import annotations

from dataclasses import replace

from accelsim.catalog.engines import ServingEngine
from accelsim.cost.memory import inference_footprint, memory_short
from accelsim.errors import DoesNotFitError
from accelsim.estimation.run import ResolvedRun
from accelsim.frozen import frozen
from accelsim.plain import Document
from accelsim.serving.adapters import adapter_bytes
from accelsim.serving.cache_blocks import block_plan
from accelsim.serving.options import Adapters, ServingOptions
from accelsim.serving.steps.step_tables import (
    family_parameter,
    layer_and_head_rows,
    lowered_pass,
    most_positions,
    stages_of,
)
from accelsim.workloads.cache import SequenceCache
from accelsim.workloads.model import PassShape
from accelsim.workloads.operator import Phase

#: Most tokens of the step whose activations are counted.
_BATCHED_TOKENS = 8192


@frozen
class ReplicaMemory:
    """Memory of one rank, bytes.

    Attributes:
        weight_bytes: Weights it holds.
        activation_bytes: Largest set of live activations of a full step.
        cache: What its layers keep of one sequence.
    """

    weight_bytes: float
    activation_bytes: float
    cache: SequenceCache

    def beside(self, other: ReplicaMemory) -> ReplicaMemory:
        """With another model on the same rank, which runs before or after it."""
        return ReplicaMemory(
            self.weight_bytes + other.weight_bytes,
            max(self.activation_bytes, other.activation_bytes),
            self.cache.beside(other.cache),
        )


def replica_memory(
    run: ResolvedRun, max_tokens: int, stages: int, adapters: Adapters | None = None
) -> ReplicaMemory:
    """Memory of the rank that holds most.

    Args:
        run: The model on one rank of a replica.
        max_tokens: Tokens of a full step.
        stages: Pipeline stages.
        adapters: Adapters beside the weights.
    """
    length = min(max_tokens, most_positions(run) or max_tokens)
    shape = PassShape(batch=max(1, max_tokens // length), seq_len=length)
    stage_memories = []
    for shard in stages_of(run, stages):
        lowered = lowered_pass(run, shape, Phase.PREFILL, shard)
        parts = inference_footprint(lowered.graph, lowered.parameter_bytes)
        weights = parts.weight_bytes
        if adapters is not None:
            is_layer, _ = layer_and_head_rows(lowered.graph, shard)
            weights += adapter_bytes(lowered.graph, is_layer, adapters)
        stage_memories.append(ReplicaMemory(weights, parts.activation_bytes, lowered.cache))
    return max(stage_memories, key=lambda memory: memory.weight_bytes + memory.activation_bytes)


def memory_fraction(
    run: ResolvedRun, engine: ServingEngine, options: ServingOptions, max_tokens: int
) -> float:
    """The engine's share of a rank's memory: what is asked for, else its own; as of `memory_of`."""
    ranks = options.devices_per_replica
    return options.memory_fraction or engine.share(run.device, max_tokens, options.tp, ranks)


def memory_of(
    run: ResolvedRun,
    engine: ServingEngine,
    options: ServingOptions,
    max_tokens: int,
    draft: ResolvedRun | None = None,
) -> Document:
    """Memory for the cache by the engine's rule: fields `memory`, `cache` and `blocks`.

    vLLM 0.9, 2025, v1/worker/gpu_worker.py, determine_available_memory, and the rules of
    `_cache_bytes`.

    Args:
        run: The model on one rank.
        engine: The engine.
        options: Ranks and the engine's share of the memory.
        max_tokens: Tokens of a full step.
        draft: The model that guesses tokens on the same rank; None for none.

    Raises:
        DoesNotFitError: If weights and activations leave no room for a block, or the blocks that
            are stated are more than the memory holds.
    """
    tokens = min(max_tokens, _BATCHED_TOKENS)
    memory = replica_memory(run, tokens, options.pp, options.adapters)
    if draft is not None:
        memory = memory.beside(replica_memory(draft, tokens, options.pp))
    memory = _with_sampling(memory, run, engine, options)
    capacity = run.device.memory_bytes
    fraction = memory_fraction(run, engine, options, max_tokens)
    cache = block_plan(memory.cache, engine, family_parameter(run.workload, "layout", ""))
    low, high = engine.reserved_bytes.ends
    rooms = [
        _cache_bytes(engine, memory, fraction * capacity, fraction, reserved)
        for reserved in (high, engine.reserved_bytes.value, low)
    ]
    counts = [int(room // cache.bytes) for room in rooms]
    if counts[1] < 1:
        remedy = "Choose more ranks, a smaller format, or a device with more memory."
        needed = memory.weight_bytes + memory.activation_bytes
        raise memory_short(run.device, needed + cache.bytes, needed + rooms[1], remedy)
    if options.kv_blocks is None:
        few, blocks, many = (max(count, 1) * options.dp for count in counts)
    else:
        most = int((capacity - memory.weight_bytes) // cache.bytes) * options.dp
        if options.kv_blocks > most:  # as a server's log has them, whatever it keeps back
            remedy = "Give fewer, choose more ranks or a smaller format, or leave --kv-blocks out."
            raise DoesNotFitError(run.device.name, "kv_blocks", options.kv_blocks, most, remedy)
        few = blocks = many = options.kv_blocks
    return {"memory": memory, "cache": cache, "blocks": blocks, "blocks_range": (few, many)}


def _cache_bytes(
    engine: ServingEngine,
    memory: ReplicaMemory,
    share_bytes: float,
    fraction: float,
    reserved_bytes: float,
) -> float:
    """Bytes of a rank's cache by the engine's rule.

    "static": a share of what the device has free holds weights and cache (SGLang 0.4, 2025,
    model_executor/model_runner.py, profile_max_num_token). "free": a share of what weights and
    activations leave (TensorRT-LLM, KvCacheConfig.free_gpu_memory_fraction). Else a share of the
    device holds all (vLLM 0.9, 2025, v1/worker/gpu_worker.py, determine_available_memory).

    Args:
        engine: The engine.
        memory: What the rank holds besides.
        share_bytes: The engine's share of the memory.
        fraction: That share.
        reserved_bytes: What context, graphs and communicators take.
    """
    if engine.memory_rule == "static":
        return share_bytes - fraction * reserved_bytes - memory.weight_bytes
    beside = memory.weight_bytes + memory.activation_bytes + reserved_bytes
    return share_bytes - beside * (fraction if engine.memory_rule == "free" else 1.0)


def _with_sampling(
    memory: ReplicaMemory, run: ResolvedRun, engine: ServingEngine, options: ServingOptions
) -> ReplicaMemory:
    """The same where sampling a full batch takes more than the layers' activations."""
    if engine.logit_bytes is None:
        return memory
    sequences = options.max_seqs or engine.limit("max_seqs", run.device, options.tp)
    vocabulary = family_parameter(run.workload, "vocab_size", 0)
    sampling_bytes = engine.logit_bytes.value * sequences * vocabulary
    return replace(memory, activation_bytes=max(memory.activation_bytes, sampling_bytes))
