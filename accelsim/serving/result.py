"""What serving a load takes: times of requests, rates, energy and cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from accelsim.frozen import frozen
from accelsim.plain import Values
from accelsim.result import Metric, Provenance, Result

if TYPE_CHECKING:
    import pandas as pd

    from accelsim.estimation.run import ResolvedRun
    from accelsim.serving.loads.requests import RequestLog
    from accelsim.simulation.timeline import StepFunction, Timeline
    from accelsim.workloads.graph import FloatArray, IntArray

#: Percentiles of a result's distributions.
PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9)
_ABOUT = frozenset({"inputs", "provenance", "warnings", "log", "intervals", "curves", "runs"})
_NESTED = frozenset({"plan", "ttft_s", "tpot_s", "itl_s", "e2e_s", "queue_s", "session_s"})
_LEVEL = 0.9
_RANKS = ("tp", "pp", "ep", "dp")
_REQUEST_COLUMNS = (
    *("arrival_s", "prompt_tokens", "output_tokens"),
    *("scheduled_s", "first_token_s", "finish_s"),
)
_MOMENTS = ("arrival_s", "scheduled_s", "first_token_s", "finish_s")
_STAGES = ("waiting", "prompt", "further tokens")
Distribution = Mapping[str, float | None]


@frozen(repr=False)
class ServingResult(Result):
    """Requests served by replicas; unknown figures are None.

    Attributes:
        workload: Workload name.
        device: Device name.
        replicas: Copies of the model.
        devices: Devices of all pools at the start.
        instances: Instances of the offers that have them.
        engine: Engine and version.
        plan: Ranks, limits and memory of a replica.
        requests: Requests that came.
        completed: Requests that ended.
        sessions: Sessions whose requests have all ended; None without sessions.
        duration_s: From the first arrival to the last end.
        steady_from_s: From the first arrival to the part of the run that rates, mean power,
            utilisation, energy and cost per token or request are of: batches are full by then.
        steady_s: Length of that part, which ends with the last arrival; it is the whole run where
            the arrivals are over before batches are full.
        throughput_requests_per_s: Requests served per second.
        output_tokens_per_s: Tokens generated per second.
        goodput_requests_per_s: Requests per second that met all targets; None without targets.
        slo_attainment_fraction: Share of the requests that came which met them.
        ttft_s: Time to the first token (of a batch model: to the result), mean and percentiles.
        tpot_s: Mean time per further token of a request, of those with at least two.
        itl_s: Gaps between two tokens.
        e2e_s: Arrival to the last token.
        queue_s: Arrival to the first batch.
        kv_occupancy_fraction: Share of the cache blocks in use, mean over the busy time and peak.
        prefix_hit_fraction: Share of the prompts' tokens that were in the cache already; None where
            requests share no prefixes.
        session_s: First arrival to the last end of a session, of those that ended.
        utilisation_fraction: Work done over what the replicas do in full batches in that time; a
            replica with few requests is in a step most of the time and yet little used.
        preemptions: Requests put back into the queue.
        energy_j: Energy of all devices in the whole run, idle time included.
        energy_j_per_token: Per generated token (per request where none are); None where no request
            ended.
        average_power_w: Mean power of all devices.
        peak_power_w: Largest mean power of a step times the replicas.
        cost_usd_per_million_tokens: Per million generated tokens, all hours paid.
        cost_usd_per_1000_requests: Per 1,000 requests.
        cost_usd_per_session: Of a session's requests in the mean; None without sessions.
        offer: Offer the price comes from.
        cost_usd_per_month: Of the steady part, all hours of a month.
        energy_kwh_per_month: Of all devices in such a month.
        carbon_kgco2e_per_month: Of that energy in the offers' regions, sites' overhead included.
        saturated: Whether the load is more than the replicas serve.
        seed: Of the random numbers.
        kv_cache_tokens: Tokens that the cache of a replica holds, of sequences that no window cuts;
            its interval is what the engine may leave for the cache.
        pools: Each pool of the fleet: its device, part, replicas, utilisation, energy and cost.
        classes: Each class of service: its name, priority, requests, those that ended, share that
            met its targets, those per second (both None without targets), and times; empty without
            classes.
        intervals: Ends of the interval of a figure that the error of step times and cache leaves,
            by name.
        log: The requests and what became of them.
        curves: Power in W and the share of the cache in use over time, where known.
        runs: The model on one rank of the first model's replicas, by their part of a request:
            "prompts" and "further".
        inputs: What was asked, resolved.
        provenance: Version of accelsim and content of what it was made with.
        warnings: What to know before trusting the figures.
    """

    kind: ClassVar[str] = "serving"
    nested: ClassVar[frozenset[str]] = _NESTED | {"kv_occupancy_fraction"}

    workload: str
    device: str
    replicas: int
    devices: int
    instances: int | None
    engine: str
    plan: Values
    requests: int
    completed: int
    duration_s: float
    steady_from_s: float
    steady_s: float
    throughput_requests_per_s: float
    output_tokens_per_s: float
    goodput_requests_per_s: float | None
    slo_attainment_fraction: float | None
    ttft_s: Distribution
    tpot_s: Distribution
    itl_s: Distribution
    e2e_s: Distribution
    queue_s: Distribution
    kv_occupancy_fraction: Mapping[str, float | None]
    utilisation_fraction: float
    preemptions: int
    energy_j: float | None
    energy_j_per_token: float | None
    average_power_w: float | None
    peak_power_w: float | None
    cost_usd_per_million_tokens: float | None
    cost_usd_per_1000_requests: float | None
    offer: str | None
    cost_usd_per_month: float | None
    energy_kwh_per_month: float | None
    carbon_kgco2e_per_month: float | None
    saturated: bool
    seed: int
    kv_cache_tokens: int | None = None
    prefix_hit_fraction: float | None = None
    sessions: int | None = None
    session_s: Distribution = field(default_factory=dict)
    cost_usd_per_session: float | None = None
    pools: tuple[Values, ...] = ()
    classes: tuple[Values, ...] = ()
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict, compare=False)
    log: RequestLog | None = field(default=None, compare=False)
    curves: Mapping[str, StepFunction] = field(default_factory=dict, compare=False, repr=False)
    runs: Mapping[str, ResolvedRun] = field(default_factory=dict, compare=False, repr=False)
    inputs: Values = field(default_factory=dict, compare=False)
    provenance: Provenance = field(default_factory=lambda: Provenance(""), compare=False)
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return (
            f"<ServingResult: {self.workload} on {self.deployed}, "
            f"{self.completed} of {self.requests} requests, "
            f"{self.throughput_requests_per_s:.4g} per s>"
        )

    @property
    def deployed(self) -> str:
        """Replicas, devices and instances in words: "4 x tp 4 = 16 h100 in 2 instances"."""
        first_pool, has_several = self.pools[0] if self.pools else None, len(self.pools) > 1
        devices = self.devices if first_pool is None else int(first_pool["devices"])
        instances = None if has_several else self.instances
        return deployment_words(self.device, self.replicas, devices, self.plan, instances)

    @property
    def metrics(self) -> dict[str, Metric]:
        """Scalar figures, and means and percentiles of the distributions as ``ttft_s.p99``."""
        flat: dict[str, float | None] = {}
        for name, value in self.figures().items():
            if name in self.nested - {"plan"}:
                flat |= {f"{name}.{statistic}": figure for statistic, figure in value.items()}
            elif isinstance(value, int | float) and not isinstance(value, bool):
                flat[name] = value
        return {name: self._metric(name, value) for name, value in flat.items() if name != "seed"}

    def _metric(self, name: str, value: float | None) -> Metric:
        if name not in self.intervals:
            return Metric(value)
        return Metric(value, *self.intervals[name], _LEVEL)

    def figures(self) -> dict[str, Any]:
        """Flat figures and distributions, ready for JSON."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _ABOUT}
        return {
            name: dict(value) if isinstance(value, Mapping) else value
            for name, value in values.items()
        }

    def to_requests(self) -> pd.DataFrame:
        """One row per request: arrival, lengths, times and what became of it.

        Raises:
            ValueError: If the result was made without its requests.
        """
        import pandas as pd

        if self.log is None:
            raise ValueError("this result was made without its requests")
        frame = pd.DataFrame({name: self.log.column(name) for name in _REQUEST_COLUMNS})
        if self.classes:
            names = np.array([row["name"] for row in self.classes])
            frame["service_class"] = names[self.log.service_class]
        if self.log.requests.session is not None:
            frame["session"] = self.log.requests.session
        frame["rejected"] = [self.log.rejected.get(request, "") for request in range(len(frame))]
        return frame

    def to_timeline(self) -> Timeline:
        """Requests as rows of their replicas: waiting, prompt and further tokens; how many are
        inside, the power and the cache in use.

        Raises:
            ValueError: If the result was made without its requests.
        """
        from accelsim.simulation.timeline import Timeline

        if self.log is None:
            raise ValueError("this result was made without its requests")
        times = np.stack([self.log.column(name) for name in _MOMENTS])
        ended = np.flatnonzero(np.isfinite(times).all(axis=0))
        times, count = times[:, ended], len(ended)
        stage = np.repeat(np.arange(len(_STAGES)), count)
        replica = _replicas(self.log)[:, ended]
        resource = stage + len(_STAGES) * replica.ravel()
        names = [
            f"replica {n}: {stage_name}"
            for n in range(replica.max(initial=0) + 1)
            for stage_name in _STAGES
        ]
        return Timeline(
            resource=resource.astype(np.int32),
            name=np.tile(np.arange(count), len(_STAGES)).astype(np.int32),
            category=stage.astype(np.int32),
            start_s=times[:-1].ravel(),
            end_s=times[1:].ravel(),
            energy_j=np.zeros(len(resource)),
            resources=tuple(names),
            capacities=(count,) * len(names),
            names=tuple(f"request {request}" for request in ended.tolist()),
            categories=_STAGES,
            counters={"requests_inside": _counts(times[0], times[-1]), **self.curves},
        )

    def stage_counts(self) -> dict[str, StepFunction]:
        """Requests that wait, are in their prompt, and generate, over time; of those that ended.

        Raises:
            ValueError: If the result was made without its requests.
        """
        lines = self.to_timeline()
        stages = {name: lines.select(category=name) for name in lines.categories}
        return {name: _counts(rows.start_s, rows.end_s) for name, rows in stages.items()}


def _replicas(log: RequestLog) -> IntArray:
    """Index of the replica of each stage of the requests, shape (stages, n)."""
    last = log.column("replica").astype(np.int64)
    prompt = last.copy()
    if log.prompt_replica:
        prompt[list(log.prompt_replica)] = list(log.prompt_replica.values())
    return np.stack([prompt, prompt, last])


def deployment_words(
    device: str, replicas: int, devices: int, ranks: Values, instances: int | None = None
) -> str:
    """Replicas, devices and instances in words: "4 x tp 4 = 16 h100-sxm-80gb in 2 instances".

    Args:
        device: Name of every rank's device.
        replicas: Copies of the model.
        devices: Devices of all of them.
        ranks: "tp", "pp", "ep" and "dp" of a copy, those that are told.
        instances: Instances that have the devices; None where unknown.
    """
    split = [f"{name} {ranks[name]}" for name in _RANKS if ranks.get(name, 1) != 1]
    total = f"{' '.join(split)} = {devices:,} {device}" if split else device
    unit = "instance" if instances == 1 else "instances"
    in_instances = f" in {instances:,} {unit}" if instances else ""
    return f"{replicas:,} x {total}{in_instances}"


def _counts(start_s: FloatArray, end_s: FloatArray) -> StepFunction:
    """How many of some spans of time there are at a time."""
    from accelsim.simulation.timeline import accumulate

    change = np.repeat([1.0, -1.0], len(start_s))
    return accumulate(np.concatenate([start_s, end_s]), change)
