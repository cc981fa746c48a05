"""Steps of a request that runs alone, priced as `estimate` prices it.

Tables of steps are linear between points while the tiles of matrix products make steps, which moves
a prompt by up to some per cent. A load of few requests asks for few steps, so that those of one
request alone can be priced one by one: its prompt is the prefill pass of `estimate`, its further
tokens the decode passes (`accelsim.estimation.passes`), and a request alone takes what `estimate`
says, to rounding. Batches of several requests stay with the tables.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Literal

from accelsim.estimation.passes import run_passes
from accelsim.estimation.run import ResolvedRun
from accelsim.estimation.simulate import simulated
from accelsim.frozen import frozen
from accelsim.serving.deployment import Deployment
from accelsim.serving.plan import ReplicaPlan
from accelsim.serving.steps.combined_steps import StepsAround

#: Requests of a load whose steps are priced one by one: each asks for a few passes, and a pass
#: takes about 20 ms to price. Estimate: ten requests then take less than a second.
_FEW_REQUESTS = 10


@frozen(eq=False)
class AloneSteps(StepsAround):
    """Steps of others, but for those in which one request is alone.

    Attributes:
        prompt: Seconds and joules of a prompt of so many tokens, with nothing cached before it.
        further: The same of the steps after a number of cached tokens, and how many steps.
    """

    prompt: Callable[[int], tuple[float, float]]
    further: Callable[[int, int], tuple[float, float]]

    def step(
        self,
        prefill_tokens: int,
        prefill_context_sum: float,
        decode_count: int,
        decode_context_sum: float,
    ) -> tuple[float, float]:
        """One step; see `StepTimes`."""
        is_whole = 2 * prefill_context_sum == prefill_tokens * (prefill_tokens + 1)
        if prefill_tokens and not decode_count and is_whole:
            return self.prompt(prefill_tokens)
        batch = prefill_tokens, prefill_context_sum, decode_count, decode_context_sum
        return self.inner.step(*batch)

    def decode_run(self, count: int, context: float, n: int) -> tuple[float, float]:
        """Steps of the same sequences; see `StepTimes`."""
        if count == 1:
            return self.further(round(context), n)
        return self.inner.decode_run(count, context, n)


def priced_alone(plan: Deployment, request_count: int) -> Deployment:
    """A fleet whose steps of one request alone are those of `estimate`, where its load is small.

    Ranks, guessed tokens and adapters are no part of an estimate: such replicas stay as they are.

    Args:
        plan: The fleet.
        request_count: Requests of the load.
    """
    if request_count > _FEW_REQUESTS:
        return plan
    pools = [replace(pool, plan=_alone(pool.plan)) for pool in plan.pools]
    return replace(plan, pools=tuple(pools))


def _alone(plan: ReplicaPlan) -> ReplicaPlan:
    options = plan.options
    beside = options.speculation is not None or options.adapters is not None
    if not plan.is_continuous or beside or options.devices_per_replica > 1:
        return plan
    price = partial(_price, plan.run, plan.step_overhead_s, plan.steps.idle_w or 0.0)
    prompt = cache(lambda tokens: price("prompt", tokens, 1))
    further = cache(lambda cached, steps: price("further", cached, steps + 1))
    return replace(plan, steps=AloneSteps(plan.steps, prompt, further))


def _price(
    run: ResolvedRun,
    overhead_s: float,
    idle_w: float,
    part: Literal["prompt", "further"],
    prompt: int,
    output: int,
) -> tuple[float, float]:
    """Seconds and joules of one part of a request alone, the host's time per step included."""
    asked = replace(run, batch=1, seq_len=prompt, output_len=output)
    passes = run_passes(asked)
    wanted = slice(0, 1) if part == "prompt" else slice(1, None)
    done = simulated(asked, replace(passes, passes=passes.passes[wanted])).passes
    steps = sum(one.repeats for one in done)
    seconds = sum(one.repeats * one.result.latency_s for one in done) + steps * overhead_s
    joules = sum(one.repeats * one.result.dynamic_energy_j for one in done)
    return seconds, joules + idle_w * seconds
