"""Language models as benchmarks serve them: closed loops of users on simulated replicas.

A replica is planned once for all loads of a model, format, engine and layout of ranks; loads differ
in lengths and users. A system with prefill and decoding on different devices is a fleet of two
pools, whose caches go from one to the other over a link.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from accelsim import catalog
from accelsim.catalog.engines import front_end
from accelsim.dtype import Precision
from accelsim.economics.device_price import device_price
from accelsim.estimation.options import RunOptions
from accelsim.frozen import frozen
from accelsim.plain import Values
from accelsim.scoreboard.data_folder import published
from accelsim.scoreboard.measured_runs import MeasuredRun
from accelsim.scoreboard.parameters import parameters
from accelsim.serving.deployment import Deployment, PoolPlan, cache_link, simulate
from accelsim.serving.loads.arrivals import Arrivals
from accelsim.serving.loads.requests import RequestColumns, RequestLog
from accelsim.serving.measures import RequestTimes
from accelsim.serving.options import PrefillOptions, ServingOptions
from accelsim.serving.plan import ReplicaPlan, replica_plan
from accelsim.serving.replicas.fleet import ArrivalQueue, ReplicaFleet
from accelsim.serving.replicas.routers import router
from accelsim.serving.schedulers.continuous import ContinuousBatching
from accelsim.serving.schedulers.limits import BatchLimits
from accelsim.serving.steps.step_times import StepTimes
from accelsim.serving.trust import ServedRun
from accelsim.simulation.randomness import RandomStreams
from accelsim.workloads.cache import SequenceCache
from accelsim.workloads.graph import FloatArray
from accelsim.workloads.model import Workload
from accelsim.workloads.options import ModelOptions

_BATCH_TOKENS = 8192
_MOST_SEQS = 1024
#: Sequences of the benchmarks are shorter.
_LONGEST = 16_384
#: Requests per user, as the harnesses send them.
REQUESTS_PER_USER = 10
_FACTS: Values = published("serving_systems")


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
        engine: Name of the engine, and its version where that is not the newest.
        device: Catalogue name of the device.
        ranks: How the devices share it.
        kv_format: Format of the cache; the precision's where None.
        memory_fraction: The engine's share of the memory; its usual one where None.
    """

    workload: Workload
    precision: Precision
    engine: str
    device: str
    ranks: Ranks = Ranks()
    kv_format: str | None = None
    memory_fraction: float | None = None

    @property
    def origin(self) -> str:
        """Model and engine, whose systems are left out together."""
        return f"{self.workload.name} {self.engine.partition('@')[0]}"


def as_published(own: Precision | None, asked: Precision) -> Precision:
    """The precision of a row: as the checkpoint is published, where it is so in that format.

    Args:
        own: Formats of the published checkpoint; None where it is not quantised.
        asked: The format that the row states.
    """
    is_own = own is not None and round(own.weight.bytes, 1) == round(asked.weight.bytes, 1)
    return own if own is not None and is_own else asked


@frozen
class Load:
    """A closed loop.

    Attributes:
        users: Requests in flight.
        prompt: Lengths of prompts, as `Arrivals` takes them.
        output: Lengths of outputs.
        batch_tokens: Tokens of a step.
        per_user: Requests per user; the first of each come all at once, which weighs in means.
        settings: Settings of the engine in place of its own, by name.
    """

    users: int
    prompt: str
    output: str
    batch_tokens: int = _BATCH_TOKENS
    per_user: int = REQUESTS_PER_USER
    settings: tuple[tuple[str, object], ...] = ()

    @property
    def columns(self) -> RequestColumns:
        """Its requests."""
        count = self.per_user * self.users
        asked = Arrivals(users=self.users, requests=count, prompt=self.prompt, output=self.output)
        return asked.columns(RandomStreams(0))


@frozen
class TokenTimes:
    """Times of a closed loop.

    Attributes:
        ttft_s: Median time to the first token.
        ttft_mean_s: Its mean.
        tpot_s: Median time per further token.
        log_sigma: Standard deviation of ln(true / predicted) of what all steps have in common;
            steps that all take longer make all times of a closed loop as much longer.
        filled: Cache that the users' sequences hold on average, over what there is.
    """

    ttft_s: float
    ttft_mean_s: float
    tpot_s: float
    log_sigma: float
    filled: float


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
        memory_fraction=served.memory_fraction,
        prefix_cache=False,
    )
    model = ModelOptions(precision=served.precision, kv_format=served.kv_format)
    run = RunOptions(model=model)
    device = catalog.device(served.device)
    return replica_plan(served.workload, device, run, options, max_context=_LONGEST)


def replayed(
    columns: RequestColumns,
    steps: StepTimes,
    limits: BatchLimits,
    users: int = 0,
    delay_s: Callable[[int], float] | None = None,
) -> RequestLog:
    """The log of requests on one replica.

    Args:
        columns: The requests.
        steps: What steps take.
        limits: What batches may hold.
        users: Users of a closed loop; 0 where requests come by themselves.
        delay_s: Time from a user to the scheduler, as `ArrivalQueue` takes it.
    """
    log = RequestLog(columns)
    one = router("round-robin", log, np.random.default_rng(0))
    arrivals = ArrivalQueue(log, users, delay_s)
    ReplicaFleet(log, [ContinuousBatching(log, steps, limits)], one, arrivals).run()
    return log


def time_figures(times: Mapping[str, FloatArray], percentiles: Sequence[int]) -> dict[str, float]:
    """Mean and percentiles of each time of requests, as ``ttft p50``."""
    time_figures = {}
    for name, values in times.items():
        marks = np.percentile(values, percentiles)
        time_figures[f"{name} mean"] = float(values.mean())
        time_figures |= {f"{name} p{p}": float(m) for p, m in zip(percentiles, marks, strict=True)}
    return time_figures


@lru_cache(maxsize=4096)
def closed_loop(served: Served, load: Load) -> TokenTimes:
    """Times of a closed loop on one replica, each group of ranks with its share of the users.

    Raises:
        InputError: If the model does not fit or does not run; its subclasses say which.
    """
    users = max(1, round(load.users / served.ranks.dp))
    plan = _limited(served, users, load)
    columns = replace(load, users=users).columns
    log = replayed(columns, plan.steps, plan.limits, users, front_end().time_s)
    sigma = like(served).common_log_sigma(plan.steps)
    return _token_times(RequestTimes.of(log), sigma, _filled(plan, columns, users))


@lru_cache(maxsize=4096)
def split(
    prefill: Served, prefill_count: int, decode: Served, decode_count: int, load: Load
) -> TokenTimes:
    """Times of a closed loop whose prompts and further tokens run on different replicas; each
    group of ranks with requests of its own is a replica.

    Args:
        prefill: A prefill replica.
        prefill_count: Prefill replicas.
        decode: A decode replica.
        decode_count: Decode replicas.
        load: The loop.

    Raises:
        InputError: If a model does not fit or does not run; its subclasses say which.
    """
    first = _limited(prefill, load.users, load)
    second = _limited(decode, load.users, load)
    price, link = device_price(second.run.device), str(_FACTS["cache_link"])
    kept = SequenceCache() if first.cache is None else first.cache.sequence_cache
    options = replace(second.options, prefill=PrefillOptions(link=link))
    pools = (
        PoolPlan(second, price, decode_count * decode.ranks.dp, part="further"),
        PoolPlan(
            first,
            price,
            prefill_count * prefill.ranks.dp,
            part="prompts",
            link=cache_link(kept, link),
        ),
    )
    fleet = Deployment(pools, options, (second.run.workload.name,))
    done = simulate(fleet, load.columns, users=load.users, streams=RandomStreams(0))
    sigma = max(
        like(served, is_split=True).common_log_sigma(plan_of(served).steps)
        for served in (prefill, decode)
    )
    users = load.users / (decode_count * decode.ranks.dp)
    filled = _filled(second, load.columns, users)
    return _token_times(RequestTimes.of(done.fleet.log), sigma, filled)


def _limited(served: Served, users: int, load: Load) -> ReplicaPlan:
    """A replica with room for so many users at once, set as a load's harness asks."""
    plan, tokens = plan_of(served), max(load.batch_tokens, users)
    engine = plan.engine.model_copy(update=dict(load.settings))
    return replace(plan, max_seqs=users, max_batch_tokens=tokens, engine=engine)


def _filled(plan: ReplicaPlan, columns: RequestColumns, users: float) -> float:
    """Cache that so many users' sequences hold, over what there is: of whole sequences where the
    engine reserves them.
    """
    share = 1.0 if plan.engine.reserve == "sequence" else 0.5
    tokens = float(columns.prompt_tokens.mean() + share * columns.output_tokens.mean())
    return 0.0 if plan.cache is None else users * plan.cache.mean_blocks(tokens) / plan.blocks


def _token_times(times: RequestTimes, sigma: float, filled: float) -> TokenTimes:
    ttft_s, tpot_s = times.ttft_s, times.tpot_s
    medians = float(np.median(ttft_s)), float(ttft_s.mean()), float(np.median(tpot_s))
    return TokenTimes(*medians, sigma, filled)


def like(served: Served, *, is_split: bool = False) -> ServedRun:
    """What a system's figures are like, those of its model on its engine left out."""
    run = replace(plan_of(served).run, spreads=parameters().spreads(served.origin))
    return ServedRun(run, is_split)


def like_figure(
    row: MeasuredRun, served: Served, figure: str, *, is_split: bool = False
) -> MeasuredRun:
    """An answered row with the measured figures it is like, and no less than their spread.

    Args:
        row: The row.
        served: What was served.
        figure: As `ServedRun.setting` takes it.
        is_split: Whether prompts and further tokens run on replicas of their own.
    """
    alike = like(served, is_split=is_split)
    sigma = max(row.log_sigma, alike.log_sigma(figure))
    setting = str(alike.setting(figure))
    return replace(row, log_sigma=sigma, setting=setting, origin=served.origin)
