"""The passes of a run: which graphs run, how often, and what memory they need.

Inference of an autoregressive model is one prefill and a decode step per further token; the steps'
costs change slowly and almost linearly with the context, so they are costed at three contexts and
summed with Simpson's weights instead of one by one. A training step whose batch is accumulated is
its parts and one update. A diffusion model runs one pass per denoising step. Everything else is one
pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from accelsim.cost.memory import (
    MemoryFootprint,
    inference_footprint,
    memory_short,
    training_footprint,
)
from accelsim.errors import InvalidValueError
from accelsim.estimation.run import Offload, ResolvedRun
from accelsim.frozen import frozen
from accelsim.workloads.adapters import adapter_step
from accelsim.workloads.backward import rows_within
from accelsim.workloads.cache import SequenceCache
from accelsim.workloads.fusion import fuse_elementwise
from accelsim.workloads.graph import OperatorGraph, concatenate, is_kind
from accelsim.workloads.lowering import lower_each
from accelsim.workloads.model import Lowered, PassShape
from accelsim.workloads.operator import CONV_KINDS, OperatorKind, Phase
from accelsim.workloads.options import ModelOptions
from accelsim.workloads.recomputation import recomputed
from accelsim.workloads.row_writer import PassForm
from accelsim.workloads.sharding import WHOLE
from accelsim.workloads.training import WordLoss, training_graph, training_graphs

# Graphs are immutable and lowered once: what is derived from one is kept beside it.
_step = lru_cache(maxsize=64)(training_graph)
_fused = lru_cache(maxsize=64)(fuse_elementwise)
_joined = lru_cache(maxsize=64)(concatenate)

_LOOKUPS = frozenset({OperatorKind.EMBEDDING, OperatorKind.EMBEDDING_BAG})


@frozen(eq=False)
class RepeatedPass:
    """One graph and how many times it runs.

    Attributes:
        name: "forward", "training step", "prefill" or "decode".
        graph: The operators, as the stack fuses them.
        repeats: Times it runs (decode steps this graph stands for); need not be whole.
    """

    name: str
    graph: OperatorGraph
    repeats: float = 1.0


@frozen(eq=False)
class RunPasses:
    """Passes of one iteration with its memory and model FLOP.

    Attributes:
        passes: What runs, and how often.
        memory: What it holds at its peak.
        parameter_count: Trainable parameters.
        model_flop: FLOP of matrix arithmetic.
        total_bytes: Bytes that the operators read and write.
        input_bytes: Bytes of one batch as it comes from the host.
        cache: What the layers keep of one sequence while it generates.
        host_layers: Layers that lie in host memory, not in `memory`.
        host_bytes: What they take there.
    """

    passes: tuple[RepeatedPass, ...]
    memory: MemoryFootprint
    parameter_count: int
    model_flop: float
    total_bytes: float
    input_bytes: float
    cache: SequenceCache = SequenceCache()
    host_layers: int = 0
    host_bytes: float = 0.0

    def has(self, kinds: frozenset[OperatorKind]) -> bool:
        """Whether any operator is of these kinds."""
        return any(is_kind(p.graph.kind, kinds).any() for p in self.passes)


def check_effect(options: ModelOptions, run: ResolvedRun) -> None:
    """Refuse options of operators that the model has none of, by name.

    Raises:
        InvalidValueError: Naming the first.
    """
    if options.layout is not None and not run_passes(run).has(CONV_KINDS):
        allowed = f"no value: {run.workload.name} has no convolutions"
        raise InvalidValueError("layout", options.layout, allowed, "Leave layout out.")
    if not options.fused_attention:
        fused_passes = run_passes(replace(run, fused_attention=True, recompute="none"))
        if not fused_passes.has(frozenset({OperatorKind.ATTENTION})):
            allowed = f"true: {run.workload.name} has no attention"
            raise InvalidValueError("fused_attention", False, allowed, "Leave it out.")


def run_passes(run: ResolvedRun) -> RunPasses:
    """Lower a run to passes.

    Raises:
        InvalidValueError: If the workload cannot be lowered at these sizes.
        DoesNotFitError: If layers are left to a host whose memory is too small.
    """
    passes = _whole_passes(run)
    return passes if run.offload is None else _placed(passes, run, run.offload)


def _placed(passes: RunPasses, run: ResolvedRun, offload: Offload) -> RunPasses:
    """The passes with what the device holds of the run's memory, where layers lie in the host's.

    Estimate: all layers are equal.

    Raises:
        DoesNotFitError: If the CPU's memory is too small for its layers.
    """
    memory, host = passes.memory, offload.host
    layers = _fewest(memory, run, offload) if offload.layers is None else offload.layers
    device_fraction = 1.0 - layers / offload.of
    on_device = replace(
        memory,
        weight_bytes=memory.weight_bytes * device_fraction,
        kv_cache_bytes=memory.kv_cache_bytes * (1.0 if host is None else device_fraction),
    )
    host_bytes = memory.total_bytes - on_device.total_bytes
    if host is not None and host_bytes > host.available_bytes:
        remedy = "Offload fewer layers."
        raise memory_short(host.device, host_bytes, host.available_bytes, remedy)
    return replace(passes, memory=on_device, host_layers=layers, host_bytes=host_bytes)


def _fewest(memory: MemoryFootprint, run: ResolvedRun, offload: Offload) -> int:
    """The fewest layers in host memory with which the run fits. Estimate: all are equal."""
    room_bytes = run.available_bytes
    if offload.host is not None:
        return offload.of - held_layers(memory, room_bytes, offload.of)
    layer_bytes = memory.weight_bytes / offload.of
    fewest = math.ceil(memory.short_bytes(room_bytes) / layer_bytes * (1 - 1e-12))
    return min(offload.of, fewest)


def held_layers(memory: MemoryFootprint, room_bytes: float, layers: int) -> int:
    """Layers whose weights and cache fit beside the activations. Estimate: all are equal.

    Args:
        memory: What the whole model needs.
        room_bytes: What the board has.
        layers: Layers of the model.
    """
    layer_bytes = (memory.weight_bytes + memory.kv_cache_bytes) / layers
    most = math.floor((room_bytes - memory.activation_bytes) / layer_bytes * (1 + 1e-12))
    return min(layers, max(0, most))


def _whole_passes(run: ResolvedRun) -> RunPasses:
    if run.mode == "training":
        return _training(run)
    if run.output_len > 0:
        return _generation(run)
    lowered = _with_pictures(run, _lower(run, Phase.FORWARD))
    memory = inference_footprint(lowered.graph, lowered.parameter_bytes)
    forward = [("forward", fused(run, lowered.graph), float(run.steps))]
    return _passes(forward, memory, lowered, input_bytes(lowered.graph))


def _shape(run: ResolvedRun, **changes: int) -> PassShape:
    default = run.workload.default
    sizes = {
        "batch": run.batch // run.accumulation,
        "seq_len": run.seq_len,
        "image_size": run.image_size,
        "target_len": default.target_len,
    }
    return PassShape(**(sizes | changes))


def _lower(run: ResolvedRun, phase: Phase, *, folds: bool = False, **changes: int) -> Lowered:
    return run.workload.lower(
        _shape(run, **changes),
        run.precision,
        phase,
        fused_attention=run.fused_attention,
        shard=run.shard,
        is_training=run.mode == "training",
        merges=run.stack_path.merges,
        folds=folds,
        document_len=run.document_len or 0,
    )


@frozen(eq=False)
class TrainingStep:
    """Rows of one training step of a part of the batch.

    Attributes:
        forward: Forward rows, with what each keeps for the backward pass.
        rows: All rows of the step.
        lowered: The counts of the model.
    """

    forward: OperatorGraph
    rows: OperatorGraph
    lowered: Lowered


def training_steps(runs: Sequence[ResolvedRun], *, folds: bool = False) -> list[TrainingStep]:
    """Training steps of runs that differ in batch, shard and adapters alone; see `training_step`.

    Args:
        runs: Training runs.
        folds: As of `training_step`.
    """
    run = runs[0]
    has_adapters = any(run.lora_rank is not None for run in runs)
    if len(runs) == 1 or run.workload.captured or has_adapters:
        return [training_step(run, folds=folds) for run in runs]
    tokens, merges = run.document_len or 0, run.stack_path.merges
    form = PassForm(run.fused_attention, WHOLE, True, merges, folds, tokens)
    shards = [run.shard for run in runs]
    forwards = lower_each(run.workload, run.precision, form, list(map(_shape, runs)), shards)
    graphs, counts = [forward.graph for forward in forwards], list(map(_counts, forwards))
    formats = (run.precision, run.optimizer)
    untrained = run.workload.parameters.untrained
    steps = training_graphs(graphs, counts, *formats, loss=_loss(run), untrained=untrained)
    return list(map(_of_family, runs, forwards, steps))


def _counts(lowered: Lowered) -> tuple[int, int]:
    return lowered.parameter_count, lowered.parameter_tensor_count


def training_step(run: ResolvedRun, *, folds: bool = False) -> TrainingStep:
    """Forward, backward and optimizer rows of a training run's part of the batch.

    Args:
        run: A training run.
        folds: Whether the rows have only three of many equal layers; see `Lowered.folded`.

    Raises:
        InvalidValueError: If the workload cannot be lowered at these sizes.
    """
    forward = _lower(run, Phase.FORWARD, folds=folds)
    graph, formats = forward.graph, (run.precision, run.optimizer)
    if run.lora_rank is not None:
        step = adapter_step(graph, run.lora_rank, *formats, loss=_loss(run))
        return _checkpointed(run, TrainingStep(graph, step, forward))
    if run.workload.captured is None:
        untrained = run.workload.parameters.untrained
        step = _step(graph, *_counts(forward), *formats, loss=_loss(run), untrained=untrained)
        return _of_family(run, forward, step)
    from accelsim.workloads.capture.workload import captured_training

    rule = run.optimizer.name
    step = captured_training(run.workload, _shape(run), run.precision, optimizer_name=rule)
    # with what training keeps, unlike the inference pass
    return TrainingStep(step.take(step.phase == int(Phase.FORWARD)), step, forward)


def _of_family(run: ResolvedRun, lowered: Lowered, rows: OperatorGraph) -> TrainingStep:
    """The step of a catalogued model; of untrained modules nothing is kept."""
    forward, untrained = lowered.graph, run.workload.parameters.untrained
    if untrained:
        saved_bytes = np.where(rows_within(forward, untrained), 0.0, forward.saved_bytes)
        forward = replace(forward, saved_bytes=saved_bytes)
    return _checkpointed(run, TrainingStep(forward, rows, lowered))


def _checkpointed(run: ResolvedRun, step: TrainingStep) -> TrainingStep:
    """The step with what activation checkpointing drops and makes again."""
    if run.recompute == "none":
        return step
    forward, again = recomputed(step.forward, run.recompute, run.selective)
    is_forward = step.rows.phase == int(Phase.FORWARD)
    graphs = (step.rows.take(is_forward), again, step.rows.take(~is_forward))
    return replace(step, forward=forward, rows=concatenate(list(filter(len, graphs))))


def _loss(run: ResolvedRun) -> WordLoss | None:
    """The loss where the last product scores the words of a vocabulary at every position: decoders
    of all sorts, encoders with a head for masked words, and recurrent models of language. A
    compiler makes two kernels of it.
    """
    head = getattr(run.workload.parameters, "head", None)
    is_recurrent = run.workload.task in {"language-modelling", "translation"}
    if run.workload.autoregressive or is_recurrent or head in {"masked_lm", "pretraining"}:
        is_plain = run.stack_path.fuses == "nothing" or run.stack.version.plain_loss
        return "plain" if is_plain else "fused"
    return None


def _training(run: ResolvedRun) -> RunPasses:
    step = training_step(run)
    trained_count, frozen_bytes = step.lowered.parameter_count, 0.0
    if run.lora_rank is not None:
        is_update = step.rows.phase == int(Phase.OPTIMIZER)
        trained_count = int(step.rows.dims[is_update, 0].sum())
        frozen_bytes = step.lowered.parameter_bytes
    formats = (run.precision, run.optimizer)
    memory = training_footprint(step.forward, step.rows, trained_count, *formats, frozen_bytes)
    rows = fused(run, step.rows)
    graphs = [("training step", rows, 1.0)]
    if run.accumulation > 1:
        is_update = rows.phase == int(Phase.OPTIMIZER)
        batch_part, update = rows.take(~is_update), rows.take(is_update)
        graphs = [("part of the batch", batch_part, float(run.accumulation))]
        graphs += [("optimizer", update, 1.0)] if len(update) else []
    return _passes(graphs, memory, step.lowered, input_bytes(step.rows))


def _generation(run: ResolvedRun) -> RunPasses:
    prompt, tokens = run.seq_len, run.output_len
    prefill = _with_pictures(run, _lower(run, Phase.PREFILL))
    graphs = [("prefill", fused(run, prefill.graph), 1.0)]
    # an encoder-decoder attends to its prompt as the source: its own cache starts with the start
    # token
    cached = 1 if run.workload.default.target_len else prompt
    for context, repeats in decode_contexts(cached, tokens - 1):
        step = _lower(run, Phase.DECODE, seq_len=1, context_len=context, source_len=prompt)
        graphs.append(("decode", fused(run, step.graph), repeats))
    cache_bytes = run.batch * float(prefill.cache.bytes_of(prompt + tokens))
    memory = inference_footprint(prefill.graph, prefill.parameter_bytes, cache_bytes)
    return _passes(graphs, memory, prefill, input_bytes(prefill.graph))


def _with_pictures(run: ResolvedRun, prompt: Lowered) -> Lowered:
    """The pass over the prompts, with that of the encoder of their pictures before it. Every rank
    encodes them all.
    """
    if run.picture_encoder is None:
        return prompt
    encoded = run.picture_encoder.lower(
        PassShape(batch=run.batch * run.images, image_size=run.image_size),
        run.precision,
        fused_attention=run.fused_attention,
        merges=run.stack_path.merges,
    )
    return replace(
        prompt,
        graph=_joined((encoded.graph, prompt.graph)),
        parameter_count=prompt.parameter_count + encoded.parameter_count,
        parameter_bytes=prompt.parameter_bytes + encoded.parameter_bytes,
    )


def decode_contexts(prompt: int, steps: int) -> list[tuple[int, float]]:
    """Contexts to cost and how many steps each stands for: Simpson's rule over the first, middle
    and last step (Press et al., Numerical Recipes, 3rd edition, 2007, section 4.1).
    """
    last = prompt + steps - 1
    if steps <= 2:
        return [(context, 1.0) for context in range(prompt, last + 1)]
    return [(prompt, steps / 6), ((prompt + last) // 2, 4 * steps / 6), (last, steps / 6)]


def _passes(
    graphs: list[tuple[str, OperatorGraph, float]],
    memory: MemoryFootprint,
    lowered: Lowered,
    moved_bytes: float,
) -> RunPasses:
    passes = tuple(RepeatedPass(*graph) for graph in graphs)
    return RunPasses(
        passes,
        memory,
        lowered.parameter_count,
        sum(p.graph.model_flop * p.repeats for p in passes),
        sum(p.graph.total_bytes * p.repeats for p in passes),
        moved_bytes,
        lowered.cache,
    )


def fused(run: ResolvedRun, graph: OperatorGraph) -> OperatorGraph:
    """The operators as the run's stack fuses them."""
    fuses = run.stack_path.fuses
    return graph if fuses == "nothing" else _fused(graph, fuses)


def input_bytes(graph: OperatorGraph) -> float:
    """Bytes of one batch as it comes from the host: operands no row wrote; 8-byte ids for
    lookups.
    """
    roots = graph.dependency_offset[1:] == graph.dependency_offset[:-1]
    forward = (graph.phase != int(Phase.BACKWARD)) & (graph.phase != int(Phase.OPTIMIZER))
    lookup = is_kind(graph.kind, _LOOKUPS)
    tensors = graph.read_bytes[roots & forward & ~lookup].sum()
    return float(tensors + 8.0 * graph.dims[roots & forward & lookup, 0].sum())
