"""Replicas that come and go with the load.

Every interval the replicas wanted are the live ones times what each has over its target (the rule
of Kubernetes' HorizontalPodAutoscaler: ceil(current x metric / target), with a tolerance of 0.1 and
the largest wish of the last five minutes before any replica goes; no more than twice as many at
once, or four more: HPAScalingRules of autoscaling/v2). A new one takes requests after a
cold start; one that goes takes no more and leaves when its last request has ended.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Sequence

import numpy as np

from accelsim.errors import InvalidValueError
from accelsim.frozen import frozen
from accelsim.option import of_parts, seconds
from accelsim.serving.replicas.fleet import ReplicaFleet
from accelsim.serving.replicas.pools import PoolRouter, ReplicaPool
from accelsim.serving.replicas.tally import GAP_EDGES_S
from accelsim.serving.schedulers.base import Scheduler
from accelsim.workloads.graph import FloatArray

#: Metrics that are times.
_TIMES = ("ttft", "itl")
SCALING_METRICS = ("utilisation", "queue", *_TIMES)
_TOLERANCE = 0.1
#: Most replicas after a decision: so many times those there are, or so many more.
_TIMES_MORE, _MORE = 2, 4
#: Share of first tokens, or of gaps between tokens, that keep a target.
_KEPT_FRACTION = 0.9


@frozen
class ScalingPolicy:
    """When replicas come and go.

    Attributes:
        metric: "utilisation": work of the requests that came in the last interval over what the
            live replicas do in full batches; "queue": requests that wait or run per live replica;
            "ttft": time to the first token that nine of ten keep, of those of the last interval and
            of requests that have waited longer than the target by now; "itl": time that nine of ten
            gaps between tokens keep, of the last interval.
        target: What it should be; of times in seconds.
        least: Fewest replicas.
        most: Most replicas.
        interval_s: Time between decisions (15 s in Kubernetes).
        hold_s: Time over which the largest wish counts before replicas go (300 s in Kubernetes).
    """

    metric: str
    target: float
    least: int = 1
    most: int = 64
    interval_s: float = 15.0
    hold_s: float = 300.0

    def __post_init__(self) -> None:
        """Refuse policies that are none.

        Raises:
            InvalidValueError: Naming the field.
        """
        if self.metric not in SCALING_METRICS:
            allowed = "one of " + ", ".join(SCALING_METRICS)
            raise InvalidValueError("autoscale", self.metric, allowed)
        highest = 1.0 if self.metric == "utilisation" else math.inf
        if not 0 < self.target <= highest or math.isinf(self.target):
            allowed = "above 0, and at most 1 for utilisation"
            raise InvalidValueError("autoscale target", self.target, allowed)
        if not 1 <= self.least <= self.most:
            allowed = "1 <= fewest <= most"
            raise InvalidValueError("autoscale replicas", f"{self.least}-{self.most}", allowed)
        for name, time_s in (("interval_s", self.interval_s), ("hold_s", self.hold_s)):
            if not 0 < time_s < math.inf:
                raise InvalidValueError(f"autoscale {name}", time_s, "seconds above 0")


def scaling_policy(name: str, text: str) -> ScalingPolicy:
    """A policy as ``utilisation:0.7``, ``queue:8:1-16`` or ``ttft:500ms``."""
    metric, _, parameters = text.partition(":")
    if metric in _TIMES:
        target, *limits = parameters.split(":")
        text = ":".join([metric, str(seconds(name, target)), *limits])
    pattern = "(?P<metric>[^:]+):(?P<target>[^:]+)(:(?P<least>[0-9]+)-(?P<most>[0-9]+))?"
    form = "METRIC:TARGET or METRIC:TARGET:FEWEST-MOST, such as queue:8:1-16"
    return of_parts(ScalingPolicy, pattern, form)(name, text)


class Autoscaler:
    """Scales one pool; a `Control` of the fleet.

    Args:
        policy: When replicas come and go.
        pool: The pool.
        router: Told what is live.
        request_s: Seconds of a full batch that a request of this pool's load takes.

    Attributes:
        changes: Times of decisions, and the replicas wanted from then on.
    """

    def __init__(
        self, policy: ScalingPolicy, pool: ReplicaPool, router: PoolRouter, request_s: float
    ) -> None:
        self._policy, self._pool, self._router = policy, pool, router
        self._request_s = request_s
        self._tick_s = policy.interval_s
        self._starting: list[tuple[float, int]] = []
        self._wishes: deque[tuple[float, int]] = deque()
        self._served, self._seen_s = 0, 0.0
        self._gaps: FloatArray = np.zeros(1)
        self.changes: list[tuple[float, int]] = []

    @property
    def next_s(self) -> float:
        """The next decision, or the end of a start."""
        return min(self._tick_s, self._starting[0][0]) if self._starting else self._tick_s

    def act(self, fleet: ReplicaFleet) -> None:
        """Take a started replica up, or decide.

        Decisions are an interval apart (Kubernetes, HorizontalPodAutoscaler, v1.33, 2025); those
        that would be the last one again are passed over.
        """
        if self._starting and self._starting[0][0] <= self._tick_s:
            index = heapq.heappop(self._starting)[1]
            self._pool.coming -= 1
            self._pool.join(index, fleet.now_s)
            self._router.refresh(fleet)
            return
        self._decide(fleet)
        quiet_s = min(self._quiet_until_s(fleet), fleet.until_s) - fleet.now_s
        steps = quiet_s // self._policy.interval_s if math.isfinite(quiet_s) else 1.0
        later_s = self._tick_s + max(steps, 1.0) * self._policy.interval_s
        self._tick_s = max(later_s, math.nextafter(self._tick_s, math.inf))

    def _quiet_until_s(self, fleet: ReplicaFleet) -> float:
        """Time to which all decisions would be this one if nothing else happens."""
        have, wish = len(self._pool.live) + self._pool.coming, self._wanted(fleet)
        if self._starting or wish > have:
            return fleet.now_s
        held_s = [time_s for time_s, wanted in self._wishes if wanted >= have]
        if wish == have:
            return math.inf
        return held_s[-1] + self._policy.hold_s if held_s else fleet.now_s

    def _decide(self, fleet: ReplicaFleet) -> None:
        """Start or let go replicas.

        Kubernetes documentation, HorizontalPodAutoscaler, stabilization window and scaling policies
        (v1.33, 2025).
        """
        policy, pool = self._policy, self._pool
        wanted = self._wanted(fleet)
        self._wishes.append((fleet.now_s, wanted))
        while self._wishes[0][0] < fleet.now_s - policy.hold_s:
            self._wishes.popleft()
        have = len(pool.live) + pool.coming
        if wanted < have:
            wanted = min(have, max(wish for _, wish in self._wishes))
        wanted = min(wanted, max(_TIMES_MORE * have, have + _MORE))
        if wanted != have:
            self.changes.append((fleet.now_s, wanted))
        for _ in range(wanted - have):
            self._start(fleet)
        surplus = min(have - wanted, len(pool.live) - policy.least)
        if surplus > 0:
            self._let_go(fleet, surplus)

    def _wanted(self, fleet: ReplicaFleet) -> int:
        return min(max(self._wish(fleet), self._policy.least), self._policy.most)

    def _wish(self, fleet: ReplicaFleet) -> int:
        """Replicas that would meet the target.

        Kubernetes documentation, HorizontalPodAutoscaler, algorithm details (v1.33, 2025):
        ceil(current x metric / target), none within the tolerance.
        """
        policy, pool = self._policy, self._pool
        live = max(len(pool.live), 1)
        members = [fleet.replicas[index] for index in pool.members]
        inside = sum(replica.outstanding for replica in members)
        if policy.metric == "queue":
            load = float(inside + fleet.parked_count)
        elif policy.metric == "ttft":
            load = live * self._first_token_s(fleet)
        elif policy.metric == "itl":
            load = live * self._gap_s(members)
        else:
            came = inside + sum(replica.ended_count for replica in members)
            load = (came - self._served) * self._request_s / policy.interval_s
            self._served = came
        ratio = load / live / policy.target
        return live if abs(ratio - 1) <= _TOLERANCE else math.ceil(live * ratio)

    def _first_token_s(self, fleet: ReplicaFleet) -> float:
        """Time to the first token that most have kept since the last decision; 0 of none.

        Estimate: a request that has waited longer than the target counts with its wait so far.
        """
        log, begin_s, now_s = fleet.log, self._seen_s, fleet.now_s
        self._seen_s = now_s
        first_s, arrival_s = log.column("first_token_s"), log.column("arrival_s")
        replica = log.column("replica")
        of_pool = np.isin(replica, self._pool.members) | (replica < 0)
        of_pool |= fleet.handover is not None  # a request has replicas of two pools
        waits = of_pool & np.isnan(first_s) & (now_s - arrival_s > self._policy.target)
        waits[list(log.rejected)] = False
        answered = of_pool & (first_s > begin_s) & (first_s <= now_s)
        times = np.concatenate([(first_s - arrival_s)[answered], now_s - arrival_s[waits]])
        return float(np.quantile(times, _KEPT_FRACTION)) if len(times) else 0.0

    def _gap_s(self, members: Sequence[Scheduler]) -> float:
        """Gap between tokens that most have kept since the last decision; 0 of none."""
        for replica in members:
            replica.tally.close()
        gaps = np.sum([replica.tally.gap_count for replica in members], axis=0)
        cumulative_count = np.cumsum(gaps - self._gaps)
        self._gaps = gaps
        bin_index = int(np.searchsorted(cumulative_count, _KEPT_FRACTION * cumulative_count[-1]))
        return float(GAP_EDGES_S[bin_index]) if cumulative_count[-1] > 0 else 0.0

    def _start(self, fleet: ReplicaFleet) -> None:
        index = fleet.add(self._pool.make())
        self._pool.members.append(index)
        self._pool.coming += 1
        self._pool.started += 1
        heapq.heappush(self._starting, (fleet.now_s + self._pool.start_s, index))

    def _let_go(self, fleet: ReplicaFleet, count: int) -> None:
        """Take the replicas with least to do out of the pool."""

        def load(index: int) -> tuple[int, int]:
            return fleet.replicas[index].outstanding, -index

        going = sorted(self._pool.live, key=load)[:count]
        for index in going:
            self._pool.live.remove(index)
        self._pool.removed += len(going)
        self._router.refresh(fleet)
        for index in going:
            fleet.drain(index)
