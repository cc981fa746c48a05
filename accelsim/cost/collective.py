"""Collectives over the tiers of a cluster: the time that a group takes to exchange a payload.

A message of s bytes takes alpha + s beta, with alpha the latency and beta the inverse of the
bandwidth in one direction. Every algorithm here is that per tier: hops of latency, and bytes that a
device sends for each byte of payload. Costs follow Thakur, Rabenseifner and Gropp, "Optimization of
collective communication operations in MPICH", IJHPCA 19(1), 2005, and, over tiers, Cho et al.,
"BlueConnect", MLSys 2019. Left out are the reduction arithmetic (gamma), as devices reduce faster
than links deliver, the launch of a kernel, which belongs to the device's stack, and reduction
inside switches (SHARP).

A payload is the full vector of one rank; for all-gather it is the gathered result, for
reduce-scatter the vector before scattering, for all-to-all what one rank holds before sending.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accelsim.errors import InvalidValueError
from accelsim.hardware.cluster import Cluster
from accelsim.hardware.placement import Placement, RankGroup, place
from accelsim.workloads.graph import FloatArray
from accelsim.workloads.operator import OperatorKind

__all__ = ["ALGORITHMS", "AlphaBeta", "CollectiveCosts", "Tiers", "collective_costs"]


@dataclass(frozen=True, slots=True)
class Tiers:
    """The levels of a placement as columns, nearest first; see `Level` for each.

    Attributes:
        size: Ranks of the group.
        fanout: Units joined at each level.
        lanes: Ranks in a unit that carry its traffic.
        hops: Hops of a ring through all ranks.
        steps: Steps of a ring through the units.
        latency_s: Of a hop.
        bandwidth: To neighbours, bytes/s.
        pair_bandwidth: To one rank, bytes/s.
        exchange_bandwidth: When all send to all, bytes/s.
        is_any_to_any: Whether each unit reaches each other in one hop, at all levels.
    """

    size: int
    fanout: FloatArray
    lanes: FloatArray
    hops: FloatArray
    steps: FloatArray
    latency_s: FloatArray
    bandwidth: FloatArray
    pair_bandwidth: FloatArray
    exchange_bandwidth: FloatArray
    is_any_to_any: bool

    @classmethod
    def of(cls, placement: Placement) -> Tiers:
        """The columns of a placement."""
        levels = placement.levels

        def column(field: str) -> FloatArray:
            return np.array([getattr(level, field) for level in levels], dtype=np.float64)

        return cls(
            size=placement.size,
            fanout=column("fanout"),
            lanes=column("lane_count"),
            hops=column("hop_count"),
            steps=column("step_count"),
            latency_s=column("latency_s"),
            bandwidth=column("bandwidth_bytes_per_s"),
            pair_bandwidth=column("pair_bandwidth_bytes_per_s"),
            exchange_bandwidth=column("exchange_bandwidth_bytes_per_s"),
            is_any_to_any=all(level.is_any_to_any for level in levels),
        )

    @property
    def share(self) -> float:
        """(n - 1)/n: the part of a payload that is not a rank's own."""
        return (self.size - 1.0) / self.size

    @property
    def level_share(self) -> FloatArray:
        """(m - 1)/m of each level's fanout m."""
        share: FloatArray = (self.fanout - 1.0) / self.fanout
        return share

    @property
    def rounds(self) -> FloatArray:
        """log2 of each level's fanout, rounded up."""
        rounds: FloatArray = np.ceil(np.log2(self.fanout))
        return rounds


@dataclass(frozen=True, slots=True)
class AlphaBeta:
    """An algorithm on a placement: its cost is linear in the payload.

    Attributes:
        latency_s: Hops times latency, per level.
        sent_share: Bytes a device sends over its links for each byte of payload, per level.
        bandwidth: At which it sends them, bytes/s per level.
        is_pipelined: Whether levels move different parts of the payload at the same time.
    """

    latency_s: FloatArray
    sent_share: FloatArray
    bandwidth: FloatArray
    is_pipelined: bool = False

    def time_s(self, payload_bytes: FloatArray) -> FloatArray:
        """Seconds for each payload."""
        seconds_per_byte = self.sent_share / self.bandwidth
        combined = seconds_per_byte.max() if self.is_pipelined else seconds_per_byte.sum()
        time: FloatArray = self.latency_s.sum() + payload_bytes * combined
        return time

    def level_time_s(self, payload_bytes: FloatArray) -> FloatArray:
        """Seconds at each level alone, shape (payloads, levels)."""
        seconds_per_byte = self.sent_share / self.bandwidth
        time: FloatArray = self.latency_s + np.multiply.outer(payload_bytes, seconds_per_byte)
        return time


@dataclass(frozen=True, slots=True)
class CollectiveCosts:
    """One collective at many payloads.

    Attributes:
        payload_bytes: Shape (k,).
        time_s: Seconds, shape (k,).
        link_names: Links crossed, nearest first; length L.
        bytes_on_link: Bytes that one device sends over its links of each tier, shape (k, L).
        binding_link: Link that takes the most of the time, shape (k,); empty text where none.
        algorithm: Which was quickest, shape (k,); empty text for one rank.
        warnings: What a result should say.
    """

    payload_bytes: FloatArray
    time_s: FloatArray
    link_names: tuple[str, ...]
    bytes_on_link: FloatArray
    binding_link: NDArray[np.str_]
    algorithm: NDArray[np.str_]
    warnings: tuple[str, ...] = ()


def ring_all_reduce(tiers: Tiers) -> AlphaBeta:
    """Rings through all ranks: 2(n-1) steps of s/n; a unit's ranks share its traffic.

    Thakur et al. 2005, section 4.5 (reduce-scatter, all-gather); Patarasuk and Yuan, JPDC 69, 2009.
    """
    sent = 2.0 * tiers.share / tiers.lanes
    return AlphaBeta(2.0 * tiers.hops * tiers.latency_s, sent, tiers.bandwidth, is_pipelined=True)


def tree_all_reduce(tiers: Tiers) -> AlphaBeta:
    """Two complementary binary trees, pipelined: 2 log2(n) hops of latency, 2 s moved.

    Every rank is inner node of one tree and leaf of the other, so each sends and receives its
    payload about once per direction and phase. Sanders, Speck and Träff, Parallel Computing 35,
    2009; NCCL since 2.4.
    """
    latency = 2.0 * tiers.rounds * tiers.latency_s
    return AlphaBeta(latency, 2.0 / tiers.lanes, tiers.pair_bandwidth, is_pipelined=True)


def recursive_doubling_all_reduce(tiers: Tiers) -> AlphaBeta:
    """log2(n) exchanges of the whole payload; two more where n is no power of two.

    Thakur et al. 2005, section 4.5.
    """
    rounds = np.floor(np.log2(tiers.fanout)) + _folds(tiers.fanout)
    return AlphaBeta(rounds * tiers.latency_s, rounds, tiers.pair_bandwidth)


def halving_doubling_all_reduce(tiers: Tiers) -> AlphaBeta:
    """Rabenseifner's recursive halving and doubling: 2 log2(n) steps, 2 (n-1)/n s moved.

    Near partners first, so that a shard of the payload crosses the outer tiers. Ranks beyond the
    largest power of two first hand their payload to a partner and get the result back. Thakur et
    al. 2005, section 4.5.
    """
    whole = 2.0 ** np.floor(np.log2(tiers.fanout))
    folds = _folds(tiers.fanout)
    rounds = 2.0 * np.log2(whole) + folds
    sent = (2.0 * (whole - 1.0) / whole + folds) / tiers.lanes
    return AlphaBeta(rounds * tiers.latency_s, sent, tiers.pair_bandwidth)


def hierarchical_all_reduce(tiers: Tiers) -> AlphaBeta:
    """Reduce-scatter inward tier by tier, all-reduce of each shard at the last, all-gather back.

    Rings at every tier; on a torus, axis by axis. Cho et al., MLSys 2019.
    """
    latency = 2.0 * tiers.steps * tiers.latency_s
    sent = 2.0 * tiers.level_share / tiers.lanes
    return AlphaBeta(latency, sent, tiers.bandwidth)


def ring_gather(tiers: Tiers) -> AlphaBeta:
    """All-gather or reduce-scatter by rings through all ranks: n-1 steps of s/n.

    Thakur et al. 2005, sections 4.1 and 4.3.
    """
    sent = tiers.share / tiers.lanes
    return AlphaBeta(tiers.hops * tiers.latency_s, sent, tiers.bandwidth, is_pipelined=True)


def hierarchical_gather(tiers: Tiers) -> AlphaBeta:
    """All-gather or reduce-scatter tier by tier, rings at each. Cho et al., MLSys 2019."""
    sent = tiers.level_share / tiers.lanes
    return AlphaBeta(tiers.steps * tiers.latency_s, sent, tiers.bandwidth)


def doubling_gather(tiers: Tiers) -> AlphaBeta:
    """All-gather by Bruck's algorithm, reduce-scatter by recursive halving: log2(n) steps.

    Thakur et al. 2005, sections 4.1 and 4.3.
    """
    sent = tiers.level_share / tiers.lanes
    return AlphaBeta(tiers.rounds * tiers.latency_s, sent, tiers.pair_bandwidth)


def pairwise_all_to_all(tiers: Tiers) -> AlphaBeta:
    """n-1 exchanges of s/n, one with each other rank. Thakur et al. 2005, section 4.4.

    What leaves a unit also crosses the tiers below it.
    """
    peers = tiers.lanes * (tiers.fanout - 1.0)
    sent = (tiers.size - tiers.lanes) / tiers.size
    return AlphaBeta(peers * tiers.latency_s, sent, tiers.exchange_bandwidth, is_pipelined=True)


def binomial_broadcast(tiers: Tiers) -> AlphaBeta:
    """log2(n) sends of the whole payload. Thakur et al. 2005, section 4.2."""
    return AlphaBeta(tiers.rounds * tiers.latency_s, tiers.rounds, tiers.pair_bandwidth)


def scatter_gather_broadcast(tiers: Tiers) -> AlphaBeta:
    """Scatter by a binomial tree, then a ring all-gather. Thakur et al. 2005, section 4.2."""
    latency = (tiers.rounds + tiers.hops) * tiers.latency_s
    sent = 2.0 * tiers.share / tiers.lanes
    return AlphaBeta(latency, sent, tiers.bandwidth, is_pipelined=True)


def chain_broadcast(tiers: Tiers) -> AlphaBeta:
    """A pipelined chain through all ranks, as NCCL sends: each passes the payload on once.

    Bus bandwidth factor 1 of nccl-tests, doc/PERFORMANCE.md; chunks are taken as small.
    """
    latency = tiers.hops * tiers.latency_s
    return AlphaBeta(latency, 1.0 / tiers.lanes, tiers.bandwidth, is_pipelined=True)


def neighbour_send(tiers: Tiers) -> AlphaBeta:
    """One message to the next rank, over the last tier crossed: alpha + s beta (Hockney 1994)."""
    is_last = np.zeros_like(tiers.latency_s)
    is_last[-1] = 1.0
    return AlphaBeta(is_last * tiers.latency_s, is_last, tiers.pair_bandwidth)


def _folds(fanout: FloatArray) -> FloatArray:
    """Two exchanges more where ranks are left over from the largest power of two."""
    whole = 2.0 ** np.floor(np.log2(fanout))
    folds: FloatArray = np.where(fanout > whole, 2.0, 0.0)
    return folds


Algorithm = Callable[[Tiers], AlphaBeta]
_GATHERS: Final[dict[str, Algorithm]] = {
    "ring": ring_gather,
    "hierarchical": hierarchical_gather,
    "doubling": doubling_gather,
}
#: Algorithms of each collective kind by name.
ALGORITHMS: Final[Mapping[OperatorKind, Mapping[str, Algorithm]]] = {
    OperatorKind.ALL_REDUCE: {
        "ring": ring_all_reduce,
        "hierarchical": hierarchical_all_reduce,
        "tree": tree_all_reduce,
        "recursive_doubling": recursive_doubling_all_reduce,
        "halving_doubling": halving_doubling_all_reduce,
    },
    OperatorKind.ALL_GATHER: _GATHERS,
    OperatorKind.REDUCE_SCATTER: _GATHERS,
    OperatorKind.ALL_TO_ALL: {"pairwise": pairwise_all_to_all},
    OperatorKind.BROADCAST: {
        "chain": chain_broadcast,
        "scatter_gather": scatter_gather_broadcast,
        "binomial": binomial_broadcast,
    },
    OperatorKind.SEND_RECV: {"send": neighbour_send},
}
#: Algorithms whose partners stand far apart: for networks where any two units are one hop apart.
_FAR_PARTNERS: Final = frozenset(
    {"tree", "recursive_doubling", "halving_doubling", "doubling", "binomial"}
)


def collective_costs(
    kind: OperatorKind | str,
    payload_bytes: ArrayLike,
    group: RankGroup,
    cluster: Cluster,
    *,
    algorithm: str | None = None,
) -> CollectiveCosts:
    """Time and traffic of a collective, at each payload by the quickest algorithm.

    Args:
        kind: A collective kind or its name, such as "all_reduce".
        payload_bytes: Payloads in that collective's sense, shape (k,) or one, bytes, >= 0.
        group: Ranks; one takes no time.
        cluster: Where they stand.
        algorithm: Name in `ALGORITHMS` of the only one to take; the quickest unless given.

    Returns:
        Columns of length k.

    Raises:
        InvalidValueError: If the kind is no collective, the algorithm is not one of it, or a
            payload is negative.
    """
    payload = np.atleast_1d(np.asarray(payload_bytes, dtype=np.float64))
    if payload.size and not (payload >= 0).all():
        raise InvalidValueError("payload_bytes", float(payload.min()), "bytes >= 0")
    choices = _algorithms(kind, algorithm)
    placement = place(group, cluster)
    if not placement.levels:
        return _nothing(payload, placement)
    tiers = Tiers.of(placement)
    if algorithm is None:
        choices = {name: form for name, form in choices.items() if _is_suited(name, tiers)}
    costs = [form(tiers) for form in choices.values()]
    times = np.stack([cost.time_s(payload) for cost in costs])
    quickest = times.argmin(axis=0)
    links = np.array([level.link_name for level in placement.levels])
    level_times = np.stack([cost.level_time_s(payload) for cost in costs])
    sent = np.stack([cost.sent_share for cost in costs])
    places = np.arange(payload.size)
    return CollectiveCosts(
        payload_bytes=payload,
        time_s=times[quickest, places],
        link_names=tuple(links.tolist()),
        bytes_on_link=sent[quickest] * payload[:, np.newaxis],
        binding_link=links[level_times[quickest, places].argmax(axis=1)],
        algorithm=np.array(list(choices))[quickest],
        warnings=placement.warnings,
    )


def _algorithms(kind: OperatorKind | str, algorithm: str | None) -> Mapping[str, Algorithm]:
    by_label = {collective.label: forms for collective, forms in ALGORITHMS.items()}
    label = kind.label if isinstance(kind, OperatorKind) else kind
    known = by_label.get(label)
    if known is None:
        raise InvalidValueError("kind", label, f"one of {', '.join(by_label)}")
    if algorithm is None:
        return known
    if algorithm not in known:
        raise InvalidValueError("algorithm", algorithm, f"one of {', '.join(known)}")
    return {algorithm: known[algorithm]}


def _is_suited(name: str, tiers: Tiers) -> bool:
    return tiers.is_any_to_any or name not in _FAR_PARTNERS


def _nothing(payload: FloatArray, placement: Placement) -> CollectiveCosts:
    """One rank: no time, no bytes."""
    empty: NDArray[Any] = np.full(payload.size, "")
    return CollectiveCosts(
        payload_bytes=payload,
        time_s=np.zeros_like(payload),
        link_names=(),
        bytes_on_link=np.zeros((payload.size, 0)),
        binding_link=empty,
        algorithm=empty,
        warnings=placement.warnings,
    )
