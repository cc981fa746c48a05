"""Figures of a simulated run: distributions of times, rates, and whether they can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import pairwise

import numpy as np

from accelsim.frozen import frozen
from accelsim.quantity import percent
from accelsim.serving.loads.requests import RequestLog
from accelsim.serving.options import SloTargets
from accelsim.serving.result import PERCENTILES
from accelsim.serving.schedulers.base import Scheduler
from accelsim.workloads.graph import BoolArray, FloatArray, IntArray

#: Utilisation from which on waiting times depend on the last per cent of the load.
_NEAR_CAPACITY = 0.95
_PARTS = 4
#: Times in service that the arrivals of a steady load span at least.
_SPANS = 5
#: Percentile of the times in service after which batches are as full as they get.
_FILLED_PERCENTILE = 90.0


@frozen(eq=False)
class RequestTimes:
    """Times of the requests that ended, by arrival; n requests. Differences are made when they are
    asked for: of ten million requests each is a column of 80 MB.

    Attributes:
        arrival_s: Arrivals, shape (n,).
        scheduled_s: Starts of their first batches.
        first_token_s: Ends of their prompts.
        finish_s: Ends.
        output_tokens: Tokens generated.
        prompt_tokens: Tokens of the prompts.
        service_class: Class of service of each, by place.
    """

    arrival_s: FloatArray
    scheduled_s: FloatArray
    first_token_s: FloatArray
    finish_s: FloatArray
    output_tokens: IntArray
    prompt_tokens: IntArray
    service_class: IntArray

    @classmethod
    def of(cls, log: RequestLog) -> RequestTimes:
        """Times of a log."""
        arrival_s, finish_s = log.column("arrival_s"), log.column("finish_s")
        order: IntArray | slice = slice(None)  # all, in their order: no copy
        if not np.isfinite(finish_s).all() or (np.diff(arrival_s) < 0).any():
            ended = np.flatnonzero(np.isfinite(finish_s))
            order = ended[np.argsort(arrival_s[ended], kind="stable")]
        return cls(*(log.column(field.name)[order] for field in fields(cls)))

    def of_class(self, class_index: int) -> RequestTimes:
        """Those of a class of service."""
        rows = self.service_class == class_index
        return replace(self, **{f.name: getattr(self, f.name)[rows] for f in fields(self)})

    @property
    def ttft_s(self) -> FloatArray:
        """Arrival to the first token."""
        return self.first_token_s - self.arrival_s

    @property
    def e2e_s(self) -> FloatArray:
        """Arrival to the last token."""
        return self.finish_s - self.arrival_s

    @property
    def queue_s(self) -> FloatArray:
        """Arrival to the first batch."""
        return self.scheduled_s - self.arrival_s

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def tpot_s(self) -> FloatArray:
        """Mean time per further token, of the requests with at least two.

        As MLPerf Inference has it since round 4.0 (2024): time after the first token over the
        tokens after it.
        """
        many = self.output_tokens > 1
        times: FloatArray = (self.finish_s - self.first_token_s)[many]
        gaps: FloatArray = times / (self.output_tokens[many] - 1)
        return gaps

    def met(self, targets: Sequence[SloTargets]) -> BoolArray:
        """Whether each request met all targets, shape (n,); see `tpot_s` (MLPerf Inference, 2024).

        Args:
            targets: Of all requests, or of each class of service.
        """
        good = np.ones(len(self), dtype=bool)
        if len(targets) > 1:
            for class_index, class_targets in enumerate(targets):
                good[self.service_class == class_index] = self.of_class(class_index).met(
                    [class_targets]
                )
            return good
        (slo,) = targets
        if slo.ttft_s is not None:
            good &= self.ttft_s <= slo.ttft_s
        if slo.e2e_s is not None:
            good &= self.e2e_s <= slo.e2e_s
        if slo.tpot_s is not None:
            further = np.maximum(self.output_tokens - 1, 0)
            good &= self.finish_s - self.first_token_s <= slo.tpot_s * further
        return good

    def steady_part(self, start_s: float, last_s: float, end_s: float) -> tuple[float, float]:
        """Begin and end of the part of a run that its rates are of.

        Batches fill while the first requests are in service and empty after the last arrival: both
        are left out (initial transient; Law, Simulation Modeling and Analysis, 2015, section
        9.5.1). They have filled after a time in which nine of ten requests are served. The part is
        the whole run where no more than that time is left of it.

        Args:
            start_s: First arrival.
            last_s: Last arrival.
            end_s: Last end.
        """
        if not len(self):
            return start_s, end_s
        fill_s = float(np.percentile(self.finish_s - self.scheduled_s, _FILLED_PERCENTILE))
        is_long = last_s - start_s > 2 * fill_s
        return (start_s + fill_s, last_s) if is_long else (start_s, end_s)

    def within(self, begin_s: float, end_s: float) -> ServedPart:
        """What is served in a part of the run.

        Estimate: work is even over time. A request counts by the share of its service that lies in
        the part, its prompt by that of the time to its first token and its further tokens by that
        of the rest.

        Args:
            begin_s: Where it begins.
            end_s: Where it ends.
        """
        span_s = begin_s, end_s
        prompt = _share_within(self.scheduled_s, self.first_token_s, span_s)
        further = _share_within(self.first_token_s, self.finish_s, span_s)
        generated = np.minimum(self.output_tokens, 1), np.maximum(self.output_tokens - 1, 0)
        return ServedPart(
            seconds=end_s - begin_s,
            requests=_share_within(self.scheduled_s, self.finish_s, span_s),
            tokens=float(prompt @ generated[0] + further @ generated[1]),
            prompt_fraction=_weighted(prompt, self.prompt_tokens),
            further_fraction=_weighted(further, generated[1]),
        )


@frozen(eq=False)
class ServedPart:
    """What is served in a part of a run.

    Attributes:
        seconds: Its length.
        requests: Share of each request that lies in it, shape (n,).
        tokens: Tokens generated in it.
        prompt_fraction: Share of all prompts' tokens that are computed in it.
        further_fraction: Share of all tokens after the first that are generated in it.
    """

    seconds: float
    requests: FloatArray
    tokens: float
    prompt_fraction: float
    further_fraction: float


def _share_within(
    begin_s: FloatArray, end_s: FloatArray, span_s: tuple[float, float]
) -> FloatArray:
    """Share of spans of time inside a part; of those without length, whether they end in it."""
    length = end_s - begin_s
    inside = np.minimum(end_s, span_s[1]) - np.maximum(begin_s, span_s[0])
    share: FloatArray = ((end_s > span_s[0]) & (end_s <= span_s[1])).astype(np.float64)
    np.divide(np.maximum(inside, 0.0), length, out=share, where=length > 0)
    return share


def _weighted(share: FloatArray, weight: IntArray) -> float:
    total = float(weight.sum())
    return float(share @ weight) / total if total else 0.0


def distribution(values: FloatArray) -> dict[str, float | None]:
    """Mean and percentiles; None of nothing."""
    names = ["mean", *(f"p{percentile:g}" for percentile in PERCENTILES)]
    if not len(values):
        return dict.fromkeys(names)
    figures = [values.mean(), *np.percentile(values, PERCENTILES)]
    return dict(zip(names, map(float, figures), strict=True))


def gap_distribution(replicas: Sequence[Scheduler]) -> dict[str, float | None]:
    """Mean and percentiles of the gaps between tokens. Estimate: all gaps of a bin of the tally are
    its mean.
    """
    tally, *others = (replica.tally for replica in replicas)
    gap_s, weight = tally.gaps(*others)
    if not len(gap_s):
        return distribution(gap_s)
    share = np.cumsum(weight) / weight.sum()
    figures: dict[str, float | None] = {"mean": float((gap_s * weight).sum() / weight.sum())}
    for percentile in PERCENTILES:
        index = min(int(np.searchsorted(share, percentile / 100)), len(gap_s) - 1)
        figures[f"p{percentile:g}"] = float(gap_s[index])
    return figures


def session_times(log: RequestLog) -> RequestTimes:
    """Sessions whose requests have all ended, as if each were a request: its first arrival and its
    last end. Estimate: it waits for the share of its time that its requests wait.
    """
    session, think_s = log.requests.session, log.requests.think_s
    if session is None:
        session = np.arange(len(log))
    order = np.argsort(session, kind="stable")
    begins = np.flatnonzero(np.diff(session[order], prepend=-1))
    arrival_s, finish_s = log.column("arrival_s")[order], log.column("finish_s")[order]
    come_s = np.minimum.reduceat(arrival_s, begins)
    end_s = np.maximum.reduceat(finish_s, begins)
    waits_s = np.add.reduceat(log.column("scheduled_s")[order] - arrival_s, begins)
    spans_s = finish_s - arrival_s + (0.0 if think_s is None else think_s[order])
    start_s = come_s + (end_s - come_s) * waits_s / np.add.reduceat(spans_s, begins)
    ended = np.flatnonzero(np.isfinite(end_s))
    ended = ended[np.argsort(come_s[ended], kind="stable")]
    none = np.zeros(len(ended), dtype=np.int64)
    return RequestTimes(
        come_s[ended], start_s[ended], start_s[ended], end_s[ended], none, none, none
    )


def prefix_hits(replicas: Sequence[Scheduler]) -> float | None:
    """Share of the prompts' tokens that requests had in the cache; None without shared prefixes."""
    hits = [replica.hit_tokens for replica in replicas]
    hit_tokens = sum(tokens for tokens in hits if tokens is not None)
    total = hit_tokens + sum(replica.tally.prompt_tokens for replica in replicas)
    return None if all(tokens is None for tokens in hits) or not total else hit_tokens / total


def occupancy(replicas: Sequence[Scheduler]) -> dict[str, float | None]:
    """Share of the cache blocks in use, of the replicas that have such blocks. Estimate: all of
    them have as many as the first.
    """
    replicas = [replica for replica in replicas if replica.capacity_blocks]
    busy_s = sum(replica.tally.busy_s for replica in replicas)
    if not busy_s:
        return {"mean": None, "peak": None}
    mean_blocks = sum(replica.tally.block_s for replica in replicas) / busy_s
    peak = max(replica.tally.peak_blocks / replica.capacity_blocks for replica in replicas)
    return {"mean": mean_blocks / replicas[0].capacity_blocks, "peak": peak}


def _falls_behind(times: RequestTimes, ended: float, span_s: float) -> bool:
    """Whether waits grow from quarter to quarter, or fewer than half have ended; see `trust`
    (Loynes, 1962).

    Args:
        times: Times of the requests, by arrival.
        ended: Requests that had ended by the last arrival.
        span_s: From the first arrival to the last.
    """
    waits_s = [float(quarter.mean()) for quarter in np.array_split(times.queue_s, _PARTS)]
    service_s = float(np.median(times.finish_s - times.scheduled_s))
    is_rising = all(later > earlier for earlier, later in pairwise(waits_s))
    is_growing = is_rising and waits_s[-1] - waits_s[0] > 0.5 * service_s
    return is_growing or (2 * ended < len(times) and span_s > _SPANS * service_s)


def trust(
    times: RequestTimes, offered_fraction: float, *, is_closed: bool, unit: str = "requests"
) -> tuple[bool, list[str]]:
    """Whether the load is more than is served, and what to know about the figures.

    Estimate: the four quarters stand for a trend; Loynes, 1962, has waits without bound where more
    work comes than is done.

    Waiting grows with every arrival where the load is too high: the mean waits of the four quarters
    of the arrivals rise one after the other, the last by more than a request alone takes; or fewer
    than half have ended by the last arrival, though the arrivals span many times a request's own.

    Args:
        times: Times of the requests, by arrival.
        offered_fraction: Work that comes between the first and the last arrival over what the
            replicas do in that time.
        is_closed: Whether users wait for their answers, so that nothing can grow.
        unit: What the times are of.
    """
    notes: list[str] = []
    if is_closed or len(times) < 8 * _PARTS:
        if not is_closed:
            notes.append(f"{len(times)} {unit}: too few to tell whether the load is served")
        return False, notes
    span_s = float(times.arrival_s[-1] - times.arrival_s[0])
    if not span_s:
        return False, [f"all {unit} come at once: there is no steady state"]
    ended = float((times.finish_s <= times.arrival_s[-1]).sum())
    saturated = offered_fraction > _NEAR_CAPACITY and _falls_behind(times, ended, span_s)
    if saturated:
        notes.append(
            f"saturated: {len(times) / span_s:.3g} {unit} arrive per s, and {ended / span_s:.3g} "
            "per s end meanwhile. Waiting times grow as long as the load lasts"
        )
    elif offered_fraction > _NEAR_CAPACITY:
        notes.append(
            f"utilisation {percent(offered_fraction)}: above 95 %, one per cent more load or "
            "longer steps changes waiting times a lot"
        )
    elif span_s < _SPANS * float(times.e2e_s.mean()):
        notes.append(
            f"before steady state: the arrivals span less than five {unit}' time; add requests"
        )
    return saturated, notes
