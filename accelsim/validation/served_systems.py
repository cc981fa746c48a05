"""Language models as benchmarks serve them: closed loops of users on simulated replicas.

A replica is planned once for all loads of a model, format, engine and layout of ranks; loads differ
in lengths and users. A system with prefill and decoding on different devices is taken in the steady
state of a closed queue of two stations: users wait for the first free prefill replica, which
computes one prompt after the other, then generate among the others of their decode replica (the
asymptotic bounds of Denning and Buzen, Computing Surveys 10(3), 1978).
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np

from accelsim import catalog
from accelsim.frozen import frozen
from accelsim.planning.options import RunOptions
from accelsim.planning.serving.measures import RequestTimes
from accelsim.planning.serving.options import ServingOptions
from accelsim.planning.serving.plan import ReplicaPlan, replica_plan
from accelsim.simulation.randomness import RandomStreams
from accelsim.simulation.serving.arrivals import Arrivals
from accelsim.simulation.serving.fleet import ArrivalQueue, Fleet
from accelsim.simulation.serving.requests import RequestColumns, RequestLog
from accelsim.simulation.serving.routers import router
from accelsim.simulation.serving.schedulers.continuous import ContinuousBatching
from accelsim.workloads.dtype import Precision
from accelsim.workloads.model import Workload
from accelsim.workloads.options import ModelOptions

_BATCH_TOKENS = 8192
_MOST_SEQS = 1024
#: Sequences of the benchmarks are shorter.
_LONGEST = 16_384
#: Requests per user, as the harnesses send them: the first of each come all at once, which weighs
#: in means.
_PER_USER = 10
_ROUNDS = 60


@frozen
class Ranks:
    """How one replica's devices share a model.

    Attributes:
        tp: Ranks that share heads and columns.
        dp: Groups of ranks with requests of their own, that share the experts.
        ep: Ranks that share the experts.
    """

    tp: int = 1
    dp: int = 1
    ep: int = 1

    @property
    def devices(self) -> int:
        """Devices of a replica."""
        return self.tp * self.dp


@frozen
class Served:
    """A model on one replica.

    Attributes:
        workload: The model.
        precision: Formats of its checkpoint.
        engine: Name of the engine.
        device: Catalogue name of the device.
        ranks: How the devices share it.
    """

    workload: Workload
    precision: Precision
    engine: str
    device: str
    ranks: Ranks = Ranks()


@frozen
class Load:
    """A closed loop.

    Attributes:
        users: Requests in flight.
        prompt: Lengths of prompts, as `Arrivals` takes them.
        output: Lengths of outputs.
    """

    users: int
    prompt: str
    output: str


@frozen
class TokenTimes:
    """Times of a closed loop.

    Attributes:
        ttft_s: Median time to the first token.
        ttft_mean_s: Its mean.
        tpot_s: Median time per further token.
        log_sigma: Standard deviation of ln(true / predicted) of what all steps have in common;
            steps that all take longer make all times of a closed loop as much longer.
    """

    ttft_s: float
    ttft_mean_s: float
    tpot_s: float
    log_sigma: float


@lru_cache(maxsize=64)
def plan_of(served: Served) -> ReplicaPlan:
    """A replica with room for any benchmark's load.

    Raises:
        InputError: If the model does not fit or does not run; its subclasses say which.
    """
    options = ServingOptions(
        engine=served.engine,
        tp=served.ranks.tp,
        ep=served.ranks.ep,
        max_seqs=_MOST_SEQS,
        max_batch_tokens=_BATCH_TOKENS,
        prefix_cache=False,
    )
    run = RunOptions(model=ModelOptions(precision=served.precision))
    device = catalog.device(served.device)
    return replica_plan(served.workload, device, run, options, max_context=_LONGEST)


def simulated(plan: ReplicaPlan, columns: RequestColumns, users: int = 0) -> RequestTimes:
    """Times of requests on one replica.

    Args:
        plan: The replica.
        columns: The requests.
        users: Users of a closed loop; 0 where requests come by themselves.
    """
    log = RequestLog(columns)
    one = router("round-robin", log, np.random.default_rng(0))
    replicas = [ContinuousBatching(log, plan.steps, plan.limits)]
    Fleet(log, replicas, one, ArrivalQueue(log, users)).run()
    return RequestTimes.of(log)


@lru_cache(maxsize=4096)
def closed_loop(served: Served, load: Load) -> TokenTimes:
    """Times of a closed loop on one replica, each group of ranks with its share of the users.

    Raises:
        InputError: If the model does not fit or does not run; its subclasses say which.
    """
    users = max(1, round(load.users / served.ranks.dp))
    plan = replace(plan_of(served), max_seqs=users)
    count = _PER_USER * users
    asked = Arrivals(users=users, requests=count, prompt=load.prompt, output=load.output)
    times = simulated(plan, asked.columns(RandomStreams(0)), users)
    return TokenTimes(
        float(np.median(times.ttft_s)),
        float(times.ttft_s.mean()),
        float(np.median(times.tpot_s)),
        _common_sigma(plan),
    )


@lru_cache(maxsize=4096)
def split(
    prefill: Served, prefill_count: int, decode: Served, decode_count: int, load: Load
) -> TokenTimes:
    """Times of a closed loop whose prompts and further tokens run on different replicas.

    Args:
        prefill: A prefill replica.
        prefill_count: Prefill replicas.
        decode: A decode replica.
        decode_count: Decode replicas.
        load: The loop; lengths are taken at their means.

    Raises:
        InputError: If a model does not fit or does not run; its subclasses say which.
    """
    first, second = plan_of(prefill), plan_of(decode)
    asked = Arrivals(users=1, requests=256, prompt=load.prompt, output=load.output)
    columns = asked.columns(RandomStreams(0))
    prompt, output = float(columns.prompt_tokens.mean()), float(columns.output_tokens.mean())
    keys = 0.5 * prompt * (prompt + 1)
    prompt_s = first.steps.step(round(prompt), keys, 0, 0.0)[0]
    servers, groups = prefill_count * prefill.ranks.dp, decode_count * decode.ranks.dp
    token_s, waits_s = 0.0, 0.0
    generating = float(load.users)
    for _ in range(_ROUNDS):
        count = max(1, math.ceil(generating / groups))
        context = count * (prompt + 0.5 * output)
        token_s = second.steps.decode_run(count, context, 1)[0]
        cycle_s = max(load.users * prompt_s / servers, prompt_s + output * token_s)
        waits_s = cycle_s - output * token_s
        generating = 0.5 * (generating + load.users * output * token_s / cycle_s)
    sigma = max(_common_sigma(first), _common_sigma(second))
    first_s = max(0.5 * (load.users / servers + 1) * prompt_s, waits_s)
    mean_s = waits_s + (first_s - waits_s) / _PER_USER
    return TokenTimes(waits_s, mean_s, token_s, sigma)


def _common_sigma(plan: ReplicaPlan) -> float:
    return plan.steps.log_sigma * math.sqrt(plan.steps.common_fraction)
