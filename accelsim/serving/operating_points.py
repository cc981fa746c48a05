"""Operating points of one layout of ranks, all batch limits at once, from two lowered passes.

A replica that never waits runs B sequences; each step gives every one a token, and while a request
gets its tokens each of the others has its prompt computed once, in parts of up to P tokens:

    time per token = decode step + B / output x prompt x added time of a prompt's token,

the decode step at the load's mean context, a prompt's token as part of a step that has the weights
at hand already (Agrawal et al., OSDI 2024, section 4). Steps are lowered for a few B and P and read
linearly between them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from accelsim.estimation.options import RunOptions
from accelsim.estimation.run import ResolvedRun
from accelsim.frozen import frozen
from accelsim.serving.engines import Engine
from accelsim.serving.memory_capacity import LoadShape
from accelsim.serving.options import ServingOptions
from accelsim.serving.plan import deployed_run, memory_of
from accelsim.serving.steps.step_tables import pass_costs
from accelsim.workloads.graph import FloatArray, IntArray
from accelsim.workloads.lowering import ShapeColumns
from accelsim.workloads.operator import Phase

_SEQUENCES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
_PROMPTS = (1, 2, 4, 8)


@frozen
class Layout:
    """One way to serve a model but for the limits of its batches.

    Attributes:
        run: The model as resolved on one device.
        run_options: What it was resolved from.
        engine: What the engine does.
        options: Ranks and memory share.
    """

    run: ResolvedRun
    run_options: RunOptions
    engine: Engine
    options: ServingOptions


@frozen(eq=False)
class OperatingPoints:
    """A replica at full batches under n pairs of limits.

    Attributes:
        max_seqs: Most sequences, shape (n,).
        max_batch_tokens: Most tokens of a step, shape (n,).
        sequences: Sequences that run: no more than the cache holds, shape (n,).
        tpot_s: Mean time per further token.
        ttft_s: Time to the first token of a request that finds room: what is left of a step, and
            its prompt beside the others.
        stall_s: Longest gap between two tokens: a step with as much of prompts as the limit allows.
        requests_per_s: Requests served by the replica.
        energy_j_per_token: Per generated token; NaN where power is unknown.
    """

    max_seqs: IntArray
    max_batch_tokens: IntArray
    sequences: FloatArray
    tpot_s: FloatArray
    ttft_s: FloatArray
    stall_s: FloatArray
    requests_per_s: FloatArray
    energy_j_per_token: FloatArray


def operating_points(
    layout: Layout, load: LoadShape, max_seqs: IntArray, max_batch_tokens: IntArray
) -> OperatingPoints:
    """All limits of one layout.

    Args:
        layout: How the model is served.
        load: Means of the load.
        max_seqs: Most sequences, shape (n,).
        max_batch_tokens: Most tokens of a step, shape (n,).

    Raises:
        DoesNotFitError: If weights leave no room for a cache.
        InputError: If the ranks do not divide the model or no node joins them.
    """
    run = deployed_run(layout.run, layout.run_options, layout.options, layout.engine)
    held = max(load.decode_context, 1.0)
    parts = memory_of(run, layout.engine, layout.options, int(max_batch_tokens.max()))
    room = max(parts["blocks"] * layout.engine.block_tokens / held, 1.0)
    sequences = np.minimum(max_seqs, np.floor(room))
    return _points(layout, run, load, sequences, max_seqs, max_batch_tokens)


def _points(
    layout: Layout,
    run: ResolvedRun,
    load: LoadShape,
    sequences: FloatArray,
    max_seqs: IntArray,
    max_batch_tokens: IntArray,
) -> OperatingPoints:
    stages, prompt = layout.options.pp, max(round(load.prompt_tokens), 1)
    per_batch = np.maximum(np.ceil(sequences / stages), 1.0)
    counts, decode = _decode(run, stages, load, int(per_batch.max()))
    tokens, prefill = _prefill(run, stages, prompt)
    overhead_s = layout.engine.step_overhead_s.value
    step_s, step_j = (np.interp(per_batch, counts, column) for column in decode.T)
    step_s = step_s + overhead_s
    budget = max_batch_tokens - (per_batch if layout.engine.mixed else 0.0)
    output = max(load.output_tokens, 1.0)
    arriving = np.maximum(per_batch / output, 1.0) * prompt  # tokens of prompts at a time
    part = np.clip(np.minimum(arriving, budget), 1.0, None)
    prompt_s, prompt_j = (_at(part, tokens, column) for column in prefill.T)
    beside_s, beside_j = decode[0] if layout.engine.mixed else (-overhead_s, 0.0)
    token_s = np.maximum(prompt_s - beside_s, 0.0) / part
    token_j = np.maximum(prompt_j - beside_j, 0.0) / part
    per_request_s = output / sequences * step_s + prompt * token_s / stages
    per_request_j = output / per_batch * step_j + prompt * token_j
    full_s = _at(np.maximum(budget, 1.0), tokens, prefill[:, 0])
    return OperatingPoints(
        max_seqs=max_seqs,
        max_batch_tokens=max_batch_tokens,
        sequences=sequences,
        tpot_s=per_request_s * sequences / output,
        ttft_s=0.5 * step_s + step_s + prompt * token_s,
        stall_s=step_s + np.maximum(full_s - beside_s, 0.0),
        requests_per_s=1.0 / per_request_s,
        energy_j_per_token=per_request_j / output,
    )


def _at(wanted: FloatArray, at: FloatArray, values: FloatArray) -> FloatArray:
    """Linear between points; beyond them along the line through the last two."""
    beyond = values[-1] + (wanted - at[-1]) * (values[-1] - values[-2]) / (at[-1] - at[-2])
    inside = np.interp(wanted, at, values)
    return np.where(wanted > at[-1], beyond, inside)


def _decode(
    run: ResolvedRun, stages: int, load: LoadShape, most: int
) -> tuple[FloatArray, FloatArray]:
    """Sequences, and seconds and joules of a step of so many, shape (n, 2)."""
    few = [count for count in _SEQUENCES if count < most]
    batch = np.array([*few, most] if most > 1 else [1, 2])
    context = max(round(load.decode_context), 1)
    shapes = ShapeColumns.of(batch=batch, seq_len=1, context_len=context, source_len=context)
    return batch.astype(np.float64), pass_costs(run, shapes, Phase.DECODE, stages)


def _prefill(run: ResolvedRun, stages: int, prompt: int) -> tuple[FloatArray, FloatArray]:
    """Tokens, and seconds and joules of a step of so many of prompts, shape (n, 2)."""
    shorter = max(prompt // 2, 1)
    lengths = [shorter, *(prompt for _ in _PROMPTS)] if shorter < prompt else [1, 2, 4, 8]
    batch = [1, *_PROMPTS] if shorter < prompt else [1] * 4
    sizes = np.array(batch), np.array(lengths)
    shapes = ShapeColumns.of(batch=sizes[0], seq_len=sizes[1], context_len=0, source_len=sizes[1])
    tokens: Any = sizes[0] * sizes[1]
    return tokens.astype(np.float64), pass_costs(run, shapes, Phase.PREFILL, stages)
