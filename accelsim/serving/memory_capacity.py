"""What a replica can serve at most, from its step times alone: an upper bound on any load.

A full batch of n sequences takes a step per token of each; prompts fill what the token budget
leaves. So a request costs

    output / n x decode step + prompt / P x (step with P prompt tokens - decode step)

seconds of a replica that never waits, and a replica serves no more requests per second than one
over that.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from accelsim.frozen import frozen
from accelsim.serving.loads.requests import RequestColumns

if TYPE_CHECKING:
    from accelsim.serving.plan import ReplicaPlan

_PART_ROWS = 1_000_000


@frozen
class LoadShape:
    """Means of a load's requests.

    Attributes:
        prompt_tokens: Mean prompt, without what an endless cache of shared prefixes has.
        output_tokens: Mean output.
        prompt_context: Mean keys of a prompt's token.
        decode_context: Mean cached tokens of a sequence while it generates.
    """

    prompt_tokens: float
    output_tokens: float
    prompt_context: float
    decode_context: float

    @classmethod
    def of(cls, columns: RequestColumns) -> LoadShape:
        """Means of requests, which are summed up a part at a time: there may be ten millions. A
        token of a prompt attends to itself and to all before it (Vaswani et al., NeurIPS 2017).
        """
        count, sums, hits = len(columns), np.zeros(5), columns.hit_tokens()
        for begin in range(0, count, _PART_ROWS):
            rows = slice(begin, begin + _PART_ROWS)
            prompt = columns.prompt_tokens[rows].astype(np.float64)
            output = columns.output_tokens[rows].astype(np.float64)
            steps = np.maximum(output - 1, 0.0)
            hit = hits[rows].astype(np.float64)
            context_sum, keys = steps * (prompt + 0.5 * steps), 0.5 * prompt * (prompt + 1)
            keys -= 0.5 * hit * (hit + 1)
            sums += [column.sum() for column in (prompt - hit, output, steps, context_sum, keys)]
        prompts, outputs, further, held_sum, key_sum = sums.tolist()
        contexts = key_sum / prompts, held_sum / max(further, 1.0)
        return cls(prompts / count, outputs / count, *contexts)


@frozen
class FullBatch:
    """A replica that never waits.

    Attributes:
        per_prompt_token_s: Seconds per token of a prompt.
        per_output_token_s: Seconds per token after the first.
        per_request_s: Seconds per request of the load.
        sequences: Requests in the batch.
    """

    per_prompt_token_s: float
    per_output_token_s: float
    per_request_s: float
    sequences: int

    def inside(self, rate_per_s: float) -> float:
        """Requests in service at a time at a rate, at most: their number in a full batch by the
        share of its rate (Little, Operations Research 9(3), 1961).
        """
        return rate_per_s * self.per_request_s * self.sequences

    def of_starts(self, columns: RequestColumns) -> FullBatch:
        """The same of a load's sessions, each as one request of all its work."""
        return replace(self, per_request_s=self.per_request_s * columns.per_start)

    @property
    def requests_per_s(self) -> float:
        """Most requests per second; infinite where a request is no work."""
        return 1.0 / self.per_request_s if self.per_request_s else math.inf

    def work_s(self, prompt_tokens: float, further_tokens: float) -> float:
        """Least time of prompts and of tokens after the first, in batches as `full_batch` has them
        (Agrawal et al., OSDI 2024, section 4).
        """
        return prompt_tokens * self.per_prompt_token_s + further_tokens * self.per_output_token_s


def full_batch(plan: ReplicaPlan, load: LoadShape) -> FullBatch:
    """The fullest batch of a load on a replica.

    Paged cache: Kwon et al., SOSP 2023; prompts beside tokens: Agrawal et al., OSDI 2024.

    Args:
        plan: The replica.
        load: Means of the load.
    """
    if not plan.is_continuous:
        return _whole_batch(plan, load)
    further, sequences, decode_s = max(load.output_tokens - 1, 0.0), plan.max_seqs, 0.0
    tokens, beside, beside_s = plan.max_batch_tokens * plan.options.pp, (0, 0.0), 0.0
    if further:
        if plan.cache is not None:
            blocks = plan.cache.mean_blocks(max(load.decode_context, 1.0))
            sequences = max(1, min(int(plan.blocks / blocks), sequences)) if blocks else sequences
        context = sequences * load.decode_context
        decode_s = plan.steps.decode_run(sequences, context, 1)[0]
        if plan.engine.mixed:
            tokens, beside, beside_s = max(1, tokens - sequences), (sequences, context), decode_s
    step_s = plan.steps.step(tokens, tokens * load.prompt_context, *beside)[0]
    added_s = step_s - beside_s
    steps, prompts = further / sequences, load.prompt_tokens / tokens
    per_request, in_every_step = steps * decode_s + prompts * added_s, prompts * step_s
    if in_every_step > per_request:
        return FullBatch(step_s / tokens, 0.0, in_every_step, sequences)
    return FullBatch(added_s / tokens, decode_s / sequences, per_request, sequences)


def _whole_batch(plan: ReplicaPlan, load: LoadShape) -> FullBatch:
    """A full batch that runs as a whole.

    Static batching, which waits for the whole batch: Yu et al., Orca, OSDI 2022, section 3.
    """
    count, steps = plan.max_seqs, plan.steps
    prompt = round(count * load.prompt_tokens)
    seconds = steps.step(prompt, prompt * load.prompt_context, 0, 0)[0]
    further = max(round(load.output_tokens) - 1, 0)
    decode_s = steps.decode_run(count, count * load.decode_context, 1)[0] if further else 0.0
    total = seconds + further * decode_s
    per_prompt = total / max(prompt, 1)
    return FullBatch(per_prompt, 0.0, total / count, count)
