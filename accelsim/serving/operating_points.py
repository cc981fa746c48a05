"""Operating points of one layout of ranks, all batch limits at once, from two lowered passes.

A replica that never waits runs B sequences; each step gives every one a token, and while a request
gets its tokens each of the others has its prompt computed once, in parts of up to P tokens:

    time per token = decode step + B / output x prompt x added time of a prompt's token,

the decode step at the load's mean context, a prompt's token as part of a step that has the weights
at hand already (Agrawal et al., OSDI 2024, section 4). Steps are lowered for a few B and P and read
linearly between them. Where prompts run on replicas of their own (Zhong et al., DistServe, OSDI
2024), further tokens take plain decode steps, and a request moves its cache once.
"""

from __future__ import annotations

import numpy as np

from accelsim.catalog.engines import ServingEngine, front_end
from accelsim.estimation.run import ResolvedRun
from accelsim.frozen import frozen
from accelsim.serving.memory_capacity import LoadShape
from accelsim.serving.options import ServingOptions
from accelsim.serving.replica_memory import memory_of
from accelsim.serving.replicas.transfers import CacheLink
from accelsim.serving.steps.step_tables import pass_costs
from accelsim.workloads.cache import SequenceCache
from accelsim.workloads.graph import FloatArray, IntArray
from accelsim.workloads.lowering import ShapeColumns
from accelsim.workloads.operator import Phase

_SEQUENCES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
_PROMPTS = (1, 2, 4, 8)


@frozen(eq=False)
class PricedRanks:
    """One layout of ranks with its steps priced for a load, under n pairs of limits.

    Attributes:
        run: The model on one rank.
        engine: What the engine does.
        options: Ranks and memory share.
        load: Means of the load.
        max_batch_tokens: Most tokens of a step, shape (n,).
        sequences: Sequences that run: no more than the cache holds, shape (n,).
        sequence_cache: Cache that a rank keeps of a sequence.
        decode: Sequences, and seconds and joules of a step of so many.
        prefill: Tokens of prompts, and seconds and joules of a step of so many.
    """

    run: ResolvedRun
    engine: ServingEngine
    options: ServingOptions
    load: LoadShape
    max_batch_tokens: IntArray
    sequences: FloatArray
    sequence_cache: SequenceCache
    decode: tuple[FloatArray, FloatArray]
    prefill: tuple[FloatArray, FloatArray]

    @property
    def prompt(self) -> int:
        """Tokens of a prompt."""
        return max(round(self.load.prompt_tokens), 1)

    @property
    def output(self) -> float:
        """Tokens of an answer."""
        return max(self.load.output_tokens, 1.0)

    @property
    def per_batch(self) -> FloatArray:
        """Sequences of one stage's batch."""
        return np.maximum(np.ceil(self.sequences / self.options.pp), 1.0)

    def decode_steps(self) -> tuple[FloatArray, FloatArray]:
        """Seconds and joules of a step of all sequences, shape (n,) each."""
        counts, costs = self.decode
        step_s, step_j = (np.interp(self.per_batch, counts, column) for column in costs.T)
        return step_s + self.engine.step_overhead_s.value, step_j

    def prompt_steps(self, tokens: FloatArray | IntArray | int) -> tuple[FloatArray, FloatArray]:
        """Seconds, without the host's, and joules of a step with so many tokens of prompts."""
        at, costs = self.prefill
        wanted = np.asarray(tokens, dtype=np.float64)
        return _at(wanted, at, costs[:, 0]), _at(wanted, at, costs[:, 1])


def priced_ranks(
    run: ResolvedRun,
    engine: ServingEngine,
    options: ServingOptions,
    load: LoadShape,
    limits: tuple[IntArray, IntArray],
) -> PricedRanks:
    """Price the steps of one layout of ranks.

    Args:
        run: The model on one rank.
        engine: What the engine does.
        options: Ranks and memory share.
        load: Means of the load.
        limits: Most sequences, and most tokens of a step, shape (n,) each.

    Raises:
        DoesNotFitError: If weights leave no room for a cache.
        InputError: If the ranks do not divide the model or no node joins them.
    """
    max_seqs, max_batch_tokens = limits
    parts = memory_of(run, engine, options, int(max_batch_tokens.max()))
    sequence_blocks = parts["cache"].mean_blocks(max(load.decode_context, 1.0))
    most = np.floor(max(parts["blocks"] / sequence_blocks, 1.0))
    sequences = np.minimum(max_seqs, most).astype(np.float64)
    per_batch = np.maximum(np.ceil(sequences / options.pp), 1.0)
    return PricedRanks(
        run=run,
        engine=engine,
        options=options,
        load=load,
        max_batch_tokens=max_batch_tokens,
        sequences=sequences,
        sequence_cache=parts["cache"].sequence_cache,
        decode=_decode(run, options, load, int(per_batch.max())),
        prefill=_prefill(run, options, max(round(load.prompt_tokens), 1)),
    )


def operating_points(ranks: PricedRanks) -> dict[str, FloatArray]:
    """Replicas that do all of a request, at full batches.

    Steps of tokens and parts of prompts: Agrawal et al., OSDI 2024; requests served by Little,
    Operations Research 9(3), 1961.

    Args:
        ranks: One of them.

    Returns:
        Columns, shape (n,) each. "sequences" that run; "tpot_s", mean time per further token;
        "ttft_s", time to the first token of a request that finds room: what is left of a step, and
        its prompt beside the others; "stall_s", longest gap between two tokens: a step with as much
        of prompts as the limit allows; "requests_per_s" that the replica serves;
        "energy_j_per_token", per generated token, NaN where power is unknown.
    """
    sequences, output, prompt = ranks.sequences, ranks.output, ranks.prompt
    is_mixed, stages = ranks.engine.mixed, ranks.options.pp
    overhead_s = ranks.engine.step_overhead_s.value
    step_s, step_j = ranks.decode_steps()
    budget = ranks.max_batch_tokens - (ranks.per_batch if is_mixed else 0.0)
    arriving = np.maximum(ranks.per_batch / output, 1.0) * prompt  # tokens of prompts at a time
    chunk = np.clip(np.minimum(arriving, budget), 1.0, None)
    prompt_s, prompt_j = ranks.prompt_steps(chunk)
    beside_s, beside_j = ranks.decode[1][0] if is_mixed else (-overhead_s, 0.0)
    token_s = np.maximum(prompt_s - beside_s, 0.0) / chunk
    token_j = np.maximum(prompt_j - beside_j, 0.0) / chunk
    per_request_s = output / sequences * step_s + prompt * token_s / stages
    per_request_j = output / ranks.per_batch * step_j + prompt * token_j
    full_s = ranks.prompt_steps(np.maximum(budget, 1.0))[0]
    before_s, wait_s = front_end().time_s(prompt), (0.5 + ranks.engine.schedules_ahead) * step_s
    return {
        "sequences": sequences,
        "tpot_s": per_request_s * sequences / output,
        "ttft_s": before_s + wait_s + step_s + prompt * token_s,
        "stall_s": step_s + np.maximum(full_s - beside_s, 0.0),
        "requests_per_s": 1.0 / per_request_s,
        "energy_j_per_token": per_request_j / output,
    }


def split_points(
    prompts: PricedRanks, further: PricedRanks, link: CacheLink
) -> dict[str, FloatArray]:
    """Replicas of prompts, and replicas of the tokens after the first, at full batches.

    Prompts and tokens on devices of their own: Zhong et al., DistServe, OSDI 2024.

    Args:
        prompts: One that computes prompts alone.
        further: One that generates alone.
        link: What the caches of a prompt's replica leave by.

    Returns:
        As of `operating_points`, but for rates: "prompts_per_s" and "requests_per_s" that one
        replica of each serves. The first token leaves once its cache is there and joins.
    """
    prompt, steps = prompts.prompt, max(further.output - 1.0, 1.0)
    overhead_s = prompts.engine.step_overhead_s.value
    step_s, step_j = further.decode_steps()
    full_s, full_j = prompts.prompt_steps(prompts.max_batch_tokens)
    first_s = prompts.prompt_steps(prompt)[0] + overhead_s
    parts = prompt / prompts.max_batch_tokens
    move_s, joins_s = link.time_s(prompt), (0.5 + further.engine.schedules_ahead) * step_s
    per_request_j = parts * full_j + steps / further.per_batch * step_j
    return {
        "sequences": further.sequences,
        "tpot_s": step_s,
        "ttft_s": front_end().time_s(prompt) + 1.5 * first_s + move_s + joins_s,
        "stall_s": step_s,
        "requests_per_s": further.sequences / (steps * step_s),
        "prompts_per_s": np.minimum(1.0 / (parts * (full_s + overhead_s)), 1.0 / move_s),
        "energy_j_per_token": per_request_j / further.output,
    }


def _at(wanted: FloatArray, at: FloatArray, values: FloatArray) -> FloatArray:
    """Linear between points. Estimate: beyond them along the line through the last two."""
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
    """Tokens, and seconds and joules of a step of so many of prompts, shape (n, 2). Estimate: all
    prompts of a step are of one length.
    """
    shorter = max(prompt // 2, 1)
    lengths = [shorter, *(prompt for _ in _PROMPTS)] if shorter < prompt else [1, 2, 4, 8]
    batch = [1, *_PROMPTS] if shorter < prompt else [1] * 4
    count, length = np.array(batch), np.array(lengths)
    shapes = ShapeColumns.of(batch=count, seq_len=length, context_len=0, source_len=length)
    return (count * length).astype(np.float64), pass_costs(run, options, shapes, Phase.PREFILL)
