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
from functools import cache

from accelsim.estimation.passes import run_passes
from accelsim.estimation.prompt_issue import prompt_issue_s
from accelsim.estimation.simulate import simulated
from accelsim.frozen import frozen
from accelsim.serving.deployment import Deployment, PoolPlan
from accelsim.serving.plan import ReplicaPlan
from accelsim.serving.steps.combined_steps import StepsAround
from accelsim.serving.steps.step_times import StepBatch, StepCost

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

    prompt: Callable[[int], StepCost]
    further: Callable[[int, int], StepCost]

    def step(self, *batch: *StepBatch) -> StepCost:
        """One step; see `StepTimes`. The keys of one prompt with nothing cached are those of causal
        attention (Vaswani et al., NeurIPS 2017).
        """
        tokens, keys, sequences, _ = batch
        if tokens and not sequences and 2 * keys == tokens * (tokens + 1):
            return self.prompt(tokens)
        return self.inner.step(*batch)

    def decode_run(self, count: int, context: float, n: int) -> StepCost:
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
    return plan.changed(_alone)


def _alone(pool: PoolPlan) -> ReplicaPlan:
    plan, options = pool.plan, pool.plan.options
    beside = options.guessed is not None or options.adapters is not None
    if not plan.is_continuous or beside or options.devices_per_replica > 1:
        return plan
    prompt = cache(lambda tokens: _price(plan, slice(0, 1), tokens, 1))
    further = cache(lambda cached, steps: _price(plan, slice(1, None), cached, steps + 1))
    return replace(plan, steps=AloneSteps(plan.steps, prompt, further))


def _price(plan: ReplicaPlan, which: slice, prompt: int, output: int) -> StepCost:
    """Seconds and joules of some passes of a request alone, the host's time per step included.
    Estimate: the device takes its idle power on top of the passes' energy.
    """
    run = replace(plan.run, batch=1, seq_len=prompt, output_len=output)
    passes = run_passes(run)
    priced = simulated(run, replace(passes, passes=passes.passes[which])).passes
    beside_s = plan.step_overhead_s - run.step_host_s
    seconds = sum(p.repeats * (p.result.latency_s + beside_s) for p in priced)
    if not which.start:  # its prompt
        seconds = max(seconds, prompt_issue_s(run, priced[0].graph))
    joules = sum(p.repeats * p.result.dynamic_energy_j for p in priced)
    return seconds, joules + (plan.steps.idle_w or 0.0) * seconds
