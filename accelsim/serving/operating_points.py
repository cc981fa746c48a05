"""Operating points of one layout of ranks, all batch limits at once, from two lowered passes.

A replica that never waits runs B sequences; each step gives every one a token, and while a request
gets its tokens each of the others has its prompt computed once, in parts of up to P tokens:

    time per token = decode step + B / output x prompt x added time of a prompt's token,

the decode step at the load's mean context, a prompt's token as part of a step that has the weights
at hand already (Agrawal et al., OSDI 2024, section 4). Steps are lowered for a few B and P and read
linearly between them.
"""

from __future__ import annotations

import numpy as np

from accelsim.catalog.engines import ServingEngine
from accelsim.estimation.run import ResolvedRun
from accelsim.serving.memory_capacity import LoadShape
from accelsim.serving.options import ServingOptions
from accelsim.serving.plan import memory_of
from accelsim.serving.steps.step_tables import pass_costs
from accelsim.workloads.graph import FloatArray, IntArray
from accelsim.workloads.lowering import ShapeColumns
from accelsim.workloads.operator import Phase

_SEQUENCES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
_PROMPTS = (1, 2, 4, 8)


def operating_points(
    run: ResolvedRun,
    engine: ServingEngine,
    options: ServingOptions,
    load: LoadShape,
    limits: tuple[IntArray, IntArray],
) -> dict[str, FloatArray]:
    """A replica at full batches under n pairs of limits of one layout of ranks.

    Args:
        run: The model on one rank.
        engine: What the engine does.
        options: Ranks and memory share.
        load: Means of the load.
        limits: Most sequences, and most tokens of a step, shape (n,) each.

    Returns:
        Columns, shape (n,) each. "sequences" that run: no more than the cache holds; "tpot_s", mean
        time per further token; "ttft_s", time to the first token of a request that finds room: what
        is left of a step, and its prompt beside the others; "stall_s", longest gap between two
        tokens: a step with as much of prompts as the limit allows; "requests_per_s" that the
        replica serves; "energy_j_per_token", per generated token, NaN where power is unknown.

    Raises:
        DoesNotFitError: If weights leave no room for a cache.
        InputError: If the ranks do not divide the model or no node joins them.
    """
    max_seqs, max_batch_tokens = limits
    parts = memory_of(run, engine, options, int(max_batch_tokens.max()))
    held = parts["cache"].held(max(load.decode_context, 1.0))
    sequences = np.minimum(max_seqs, np.floor(max(parts["blocks"] / held, 1.0)))
    stages, prompt = options.pp, max(round(load.prompt_tokens), 1)
    per_batch = np.maximum(np.ceil(sequences / stages), 1.0)
    counts, decode = _decode(run, options, load, int(per_batch.max()))
    tokens, prefill = _prefill(run, options, prompt)
    overhead_s = engine.step_overhead_s.value
    step_s, step_j = (np.interp(per_batch, counts, column) for column in decode.T)
    step_s = step_s + overhead_s
    budget = max_batch_tokens - (per_batch if engine.mixed else 0.0)
    output = max(load.output_tokens, 1.0)
    arriving = np.maximum(per_batch / output, 1.0) * prompt  # tokens of prompts at a time
    chunk = np.clip(np.minimum(arriving, budget), 1.0, None)
    prompt_s, prompt_j = (_at(chunk, tokens, column) for column in prefill.T)
    beside_s, beside_j = decode[0] if engine.mixed else (-overhead_s, 0.0)
    token_s = np.maximum(prompt_s - beside_s, 0.0) / chunk
    token_j = np.maximum(prompt_j - beside_j, 0.0) / chunk
    per_request_s = output / sequences * step_s + prompt * token_s / stages
    per_request_j = output / per_batch * step_j + prompt * token_j
    full_s = _at(np.maximum(budget, 1.0), tokens, prefill[:, 0])
    return {
        "sequences": sequences,
        "tpot_s": per_request_s * sequences / output,
        "ttft_s": 0.5 * step_s + step_s + prompt * token_s,
        "stall_s": step_s + np.maximum(full_s - beside_s, 0.0),
        "requests_per_s": 1.0 / per_request_s,
        "energy_j_per_token": per_request_j / output,
    }


def _at(wanted: FloatArray, at: FloatArray, values: FloatArray) -> FloatArray:
    """Linear between points; beyond them along the line through the last two."""
    beyond = values[-1] + (wanted - at[-1]) * (values[-1] - values[-2]) / (at[-1] - at[-2])
    inside = np.interp(wanted, at, values)
    return np.where(wanted > at[-1], beyond, inside)


def _decode(
    run: ResolvedRun, options: ServingOptions, load: LoadShape, most: int
) -> tuple[FloatArray, FloatArray]:
    """Sequences, and seconds and joules of a step of so many, shape (n, 2)."""
    few = [count for count in _SEQUENCES if count < most]
    batch = np.array([*few, most] if most > 1 else [1, 2])
    context = max(round(load.decode_context), 1)
    shapes = ShapeColumns.of(batch=batch, seq_len=1, context_len=context, source_len=context)
    return batch.astype(np.float64), pass_costs(run, options, shapes, Phase.DECODE)


def _prefill(
    run: ResolvedRun, options: ServingOptions, prompt: int
) -> tuple[FloatArray, FloatArray]:
    """Tokens, and seconds and joules of a step of so many of prompts, shape (n, 2)."""
    shorter = max(prompt // 2, 1)
    lengths = [shorter, *(prompt for _ in _PROMPTS)] if shorter < prompt else [1, 2, 4, 8]
    batch = [1, *_PROMPTS] if shorter < prompt else [1] * 4
    count, length = np.array(batch), np.array(lengths)
    shapes = ShapeColumns.of(batch=count, seq_len=length, context_len=0, source_len=length)
    return (count * length).astype(np.float64), pass_costs(run, options, shapes, Phase.PREFILL)
