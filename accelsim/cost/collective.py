"""Collectives over the tiers of a cluster: the time that a group takes to exchange a payload.

A message of s bytes takes alpha + s beta, with alpha the latency and beta the inverse of the
bandwidth in one direction. Every algorithm here is that per tier: hops of latency, and bytes that a
device sends for each byte of payload. Costs follow Thakur, Rabenseifner and Gropp, "Optimization of
collective communication operations in MPICH", IJHPCA 19(1), 2005, and, over tiers, Cho et al.,
"BlueConnect", MLSys 2019. A library's protocols change the latency of a hop and the bandwidth, and
a device's own copies and reductions (gamma) add to the wire; both come with the fabric of a link.
Where no fabric is known neither counts. The launch of a kernel belongs to the device's stack.

A payload is the full vector of one rank; for all-gather it is the gathered result, for
reduce-scatter the vector before scattering, for all-to-all what one rank holds before sending.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import lru_cache, partial

import numpy as np
from numpy.typing import ArrayLike

from accelsim.arguments import checked
from accelsim.errors import InvalidValueError
from accelsim.frozen import frozen
from accelsim.hardware.cluster import Cluster
from accelsim.hardware.fabric import Protocol
from accelsim.hardware.placement import Level, Placement, RankGroup, place
from accelsim.workloads.graph import FloatArray, IntArray, TextArray
from accelsim.workloads.operator import OperatorKind


@frozen
class Tiers:
    """The levels of a placement as columns, nearest first.

    Attributes:
        size: Ranks of the group.
        is_any_to_any: Whether each unit reaches each other in one hop, at all levels.
        tree_hop_count: Hops from the leaves to the root of a tree over each level's units.

    The others are the fields of `Level`.
    """

    size: int
    is_any_to_any: bool
    tree_hop_count: FloatArray
    fanout: FloatArray
    lane_count: FloatArray
    hop_count: FloatArray
    step_count: FloatArray
    latency_s: FloatArray
    bandwidth_bytes_per_s: FloatArray
    pair_bandwidth_bytes_per_s: FloatArray
    exchange_bandwidth_bytes_per_s: FloatArray
    reduction_bandwidth_bytes_per_s: FloatArray

    @classmethod
    def of(cls, placement: Placement) -> Tiers:
        """The columns of a placement."""
        levels = placement.levels
        names = [field.name for field in fields(cls)[3:]]
        columns = {name: [getattr(level, name) for level in levels] for name in names}
        arrays = {name: np.array(column, dtype=np.float64) for name, column in columns.items()}
        is_chained = [level.fabric.is_tree_chained for level in levels]
        fanout = arrays["fanout"]
        tree_hops = np.where(is_chained, fanout - 1.0, np.ceil(np.log2(fanout)))
        is_any_to_any = all(level.is_any_to_any for level in levels)
        return cls(placement.size, is_any_to_any, tree_hops, **arrays)

    def under(self, protocols: Sequence[Protocol]) -> Tiers:
        """The levels as messages of a protocol see them.

        Latency and rate of Thakur et al., IJHPCA 19(1), 2005, changed by a protocol's own.
        """
        rate = np.array([protocol.bandwidth_fraction for protocol in protocols])
        return replace(
            self,
            latency_s=self.latency_s + np.array([protocol.hop_s for protocol in protocols]),
            bandwidth_bytes_per_s=self.bandwidth_bytes_per_s * rate,
            pair_bandwidth_bytes_per_s=self.pair_bandwidth_bytes_per_s * rate,
            exchange_bandwidth_bytes_per_s=self.exchange_bandwidth_bytes_per_s * rate,
            reduction_bandwidth_bytes_per_s=self.reduction_bandwidth_bytes_per_s * rate,
        )

    @property
    def share(self) -> float:
        """(n - 1)/n: the part of a payload that is not a rank's own."""
        return (self.size - 1.0) / self.size

    @property
    def level_share(self) -> FloatArray:
        """(m - 1)/m of each level's fanout m."""
        return (self.fanout - 1.0) / self.fanout

    @property
    def rounds(self) -> FloatArray:
        """log2 of each level's fanout, rounded up."""
        return np.ceil(np.log2(self.fanout))


@frozen
class AlphaBeta:
    """An algorithm on a placement: its cost is linear in the payload.

    Attributes:
        latency_s: Hops times latency, per level.
        sent_share: Bytes a device sends over its links for each byte of payload, per level.
        bandwidth_bytes_per_s: At which it sends them, per level.
        is_pipelined: Whether levels move different parts of the payload at the same time.
    """

    latency_s: FloatArray
    sent_share: FloatArray
    bandwidth_bytes_per_s: FloatArray
    is_pipelined: bool = False

    @property
    def seconds_per_byte(self) -> float:
        """Seconds for each byte of payload: of the slowest level where pipelined, else of all."""
        levels = self.level_seconds_per_byte
        return float(levels.max() if self.is_pipelined else levels.sum())

    @property
    def level_seconds_per_byte(self) -> FloatArray:
        """Seconds at each level for each byte of payload."""
        return self.sent_share / self.bandwidth_bytes_per_s


@frozen
class CollectiveCosts:
    """One collective at many payloads.

    Attributes:
        payload_bytes: Shape (k,).
        time_s: Seconds, shape (k,).
        link_names: Links crossed, nearest first; length L. One rank crosses one without a name.
        bytes_on_link: Bytes that one device sends over its links of each tier, shape (k, L).
        binding_link: Link that takes the most of the time, shape (k,); empty text where none.
        algorithm: Which was quickest, shape (k,); empty text for one rank.
        protocol: By which protocol, shape (k,); empty text where the fabric has none.
        log_sigma: Standard deviation of ln(true / predicted time); that of the least known fabric.
        warnings: What a result should say.
    """

    payload_bytes: FloatArray
    time_s: FloatArray
    link_names: tuple[str, ...]
    bytes_on_link: FloatArray
    binding_link: TextArray
    algorithm: TextArray
    protocol: TextArray
    log_sigma: float
    warnings: tuple[str, ...] = ()


def ring_all_reduce(tiers: Tiers) -> AlphaBeta:
    """Rings through all ranks: 2(n-1) steps of s/n; a unit's ranks share its traffic.

    Thakur et al. 2005, section 4.5 (reduce-scatter, all-gather); Patarasuk and Yuan, JPDC 69, 2009.
    """
    sent = 2.0 * tiers.share / tiers.lane_count
    latency = 2.0 * tiers.hop_count * tiers.latency_s
    return AlphaBeta(latency, sent, tiers.bandwidth_bytes_per_s, is_pipelined=True)


def tree_all_reduce(tiers: Tiers) -> AlphaBeta:
    """Two complementary binary trees, pipelined: 2 log2(n) hops of latency, 2 s moved.

    Every rank is inner node of one tree and leaf of the other, so each sends and receives its
    payload about once per direction and phase. Sanders, Speck and Träff, Parallel Computing 35,
    2009; NCCL since 2.4, whose trees are chains inside a node.
    """
    latency = 2.0 * tiers.tree_hop_count * tiers.latency_s
    sent = 2.0 / tiers.lane_count
    return AlphaBeta(latency, sent, tiers.pair_bandwidth_bytes_per_s, is_pipelined=True)


def recursive_doubling_all_reduce(tiers: Tiers) -> AlphaBeta:
    """log2(n) exchanges of the whole payload; two more where n is no power of two.

    Thakur et al. 2005, section 4.5.
    """
    rounds = np.floor(np.log2(tiers.fanout)) + _folds(tiers.fanout)
    return AlphaBeta(rounds * tiers.latency_s, rounds, tiers.pair_bandwidth_bytes_per_s)


def halving_doubling_all_reduce(tiers: Tiers) -> AlphaBeta:
    """Rabenseifner's recursive halving and doubling: 2 log2(n) steps, 2 (n-1)/n s moved.

    Near partners first, so that a shard of the payload crosses the outer tiers. Ranks beyond the
    largest power of two first hand their payload to a partner and get the result back. Thakur et
    al. 2005, section 4.5.
    """
    power_of_two = 2.0 ** np.floor(np.log2(tiers.fanout))
    folds = _folds(tiers.fanout)
    rounds = 2.0 * np.log2(power_of_two) + folds
    sent = (2.0 * (power_of_two - 1.0) / power_of_two + folds) / tiers.lane_count
    return AlphaBeta(rounds * tiers.latency_s, sent, tiers.pair_bandwidth_bytes_per_s)


def hierarchical_all_reduce(tiers: Tiers) -> AlphaBeta:
    """Reduce-scatter inward tier by tier, all-reduce of each shard at the last, all-gather back.

    Rings at every tier; on a torus, axis by axis. Cho et al., MLSys 2019.
    """
    latency = 2.0 * tiers.step_count * tiers.latency_s
    sent = 2.0 * tiers.level_share / tiers.lane_count
    return AlphaBeta(latency, sent, tiers.bandwidth_bytes_per_s)


def in_switch_all_reduce(tiers: Tiers) -> AlphaBeta:
    """Reduction and multicast inside the switch of the nearest level, trees of shards above (NVLS).

    A rank sends its payload once and the part that it leads once more: s (1 + 1/m). NCCL since
    2.17; Klenk et al., "An In-Network Architecture for Accelerating Shared-Memory Multiprocessor
    Collectives", ISCA 2020.
    """
    sent = 2.0 / tiers.lane_count
    hops = 2.0 * tiers.tree_hop_count
    bandwidth = tiers.pair_bandwidth_bytes_per_s.copy()
    sent[0], hops[0] = 1.0 + 1.0 / tiers.fanout[0], 2.0
    bandwidth[0] = tiers.reduction_bandwidth_bytes_per_s[0]
    return AlphaBeta(hops * tiers.latency_s, sent, bandwidth, is_pipelined=True)


def ring_gather(tiers: Tiers) -> AlphaBeta:
    """All-gather or reduce-scatter by rings through all ranks: n-1 steps of s/n.

    Thakur et al. 2005, sections 4.1 and 4.3.
    """
    sent = tiers.share / tiers.lane_count
    latency = tiers.hop_count * tiers.latency_s
    return AlphaBeta(latency, sent, tiers.bandwidth_bytes_per_s, is_pipelined=True)


def hierarchical_gather(tiers: Tiers) -> AlphaBeta:
    """All-gather or reduce-scatter tier by tier, rings at each. Cho et al., MLSys 2019."""
    sent = tiers.level_share / tiers.lane_count
    return AlphaBeta(tiers.step_count * tiers.latency_s, sent, tiers.bandwidth_bytes_per_s)


def doubling_gather(tiers: Tiers) -> AlphaBeta:
    """All-gather by Bruck's algorithm, reduce-scatter by recursive halving: log2(n) steps.

    Thakur et al. 2005, sections 4.1 and 4.3.
    """
    sent = tiers.level_share / tiers.lane_count
    return AlphaBeta(tiers.rounds * tiers.latency_s, sent, tiers.pair_bandwidth_bytes_per_s)


def pairwise_all_to_all(tiers: Tiers) -> AlphaBeta:
    """n-1 exchanges of s/n, one with each other rank. Thakur et al. 2005, section 4.4.

    What leaves a unit also crosses the tiers below it.
    """
    peers = tiers.lane_count * (tiers.fanout - 1.0)
    sent = (tiers.size - tiers.lane_count) / tiers.size
    latency = peers * tiers.latency_s
    return AlphaBeta(latency, sent, tiers.exchange_bandwidth_bytes_per_s, is_pipelined=True)


def fan_out_all_to_all(tiers: Tiers, copies: int) -> AlphaBeta:
    """What goes to several ranks is sent once to each unit, and fanned out inside it.

    A payload is `copies` of each token, one for each of its experts on evenly chosen ranks. They
    reach u (1 - (1 - 1/u)^copies) of u units on average; the part of a rank's own unit stays. Each
    unit's ranks talk to their peers of the same place. Back, a unit's results are summed up before
    they leave. DeepEP (github.com/deepseek-ai/DeepEP, 2025); DeepSeek-V3, arXiv:2412.19437, section
    3.2.2.
    """
    units = tiers.size / tiers.lane_count
    reached = units * (1.0 - (1.0 - 1.0 / units) ** copies)
    sent = tiers.level_share * reached / copies
    latency = (tiers.fanout - 1.0) * tiers.latency_s
    return AlphaBeta(latency, sent, tiers.exchange_bandwidth_bytes_per_s, is_pipelined=True)


def gathering_all_to_all(tiers: Tiers, copies: int) -> AlphaBeta:
    """Every rank gets the tokens of all, runs its own experts on them, and sums what it made of
    each into the results: an all-gather there, a reduce-scatter back, of n s / copies.

    A payload is `copies` of each token, as of `fan_out_all_to_all`. vLLM 0.11 (2025),
    distributed/device_communicators/all2all.py (AgRsAll2AllManager); TensorRT-LLM 1.0,
    _torch/modules/fused_moe/fused_moe_cutlass.py; SGLang 0.5, layers/dp_attention.py.
    """
    gathered = ring_gather(tiers)
    return replace(gathered, sent_share=gathered.sent_share * tiers.size / copies)


def binomial_broadcast(tiers: Tiers) -> AlphaBeta:
    """log2(n) sends of the whole payload. Thakur et al. 2005, section 4.2."""
    return AlphaBeta(tiers.rounds * tiers.latency_s, tiers.rounds, tiers.pair_bandwidth_bytes_per_s)


def scatter_gather_broadcast(tiers: Tiers) -> AlphaBeta:
    """Scatter by a binomial tree, then a ring all-gather. Thakur et al. 2005, section 4.2."""
    latency = (tiers.rounds + tiers.hop_count) * tiers.latency_s
    sent = 2.0 * tiers.share / tiers.lane_count
    return AlphaBeta(latency, sent, tiers.bandwidth_bytes_per_s, is_pipelined=True)


def chain_broadcast(tiers: Tiers) -> AlphaBeta:
    """A pipelined chain through all ranks, as NCCL sends: each passes the payload on once.

    Bus bandwidth factor 1 of nccl-tests, doc/PERFORMANCE.md; chunks are taken as small. The
    sequential pipeline of Sanders and Sibeyn, Information Processing Letters 86, 2003.
    """
    latency = tiers.hop_count * tiers.latency_s
    sent = 1.0 / tiers.lane_count
    return AlphaBeta(latency, sent, tiers.bandwidth_bytes_per_s, is_pipelined=True)


def neighbour_send(tiers: Tiers) -> AlphaBeta:
    """One message to the next rank, over the last tier crossed: alpha + s beta (Hockney 1994)."""
    is_last = np.zeros_like(tiers.latency_s)
    is_last[-1] = 1.0
    return AlphaBeta(is_last * tiers.latency_s, is_last, tiers.pair_bandwidth_bytes_per_s)


def _folds(fanout: FloatArray) -> FloatArray:
    """Two exchanges more where ranks are left over from the largest power of two."""
    power_of_two = 2.0 ** np.floor(np.log2(fanout))
    return np.where(fanout > power_of_two, 2.0, 0.0)


#: Share of a link's bandwidth at which the kernels of `direct_all_reduce_s` read from their peers:
#: 16 KiB to 8 MiB on 2, 4 and 8 H200 (aiconfigurator-core 0.12.0, custom_allreduce of vLLM 0.24.0,
#: SGLang 0.5.14 and TensorRT-LLM 1.3.0rc20, replayed graphs) give 0.27 to 0.44.
_DIRECT_FRACTION = 0.35
#: Start of two phases over that of one, of the same tables.
_TWO_PHASES = 1.7


def direct_all_reduce_s(
    payload_bytes: ArrayLike, ranks: int, start_s: float, bandwidth_bytes_per_s: float
) -> FloatArray:
    """An inference engine's own all-reduce, whose ranks read each other's memory: all of it at
    once, (n-1) s, or a shard and then the sums, 2 (n-1)/n s, whichever is sooner.

    vLLM 0.9 (2025), csrc/custom_all_reduce.cuh: cross_device_reduce_1stage and _2stage.

    Args:
        payload_bytes: Payload per rank, shape (k,), >= 0.
        ranks: Ranks n >= 1, any to any over one tier of links.
        start_s: Start of a kernel and its barriers.
        bandwidth_bytes_per_s: Of a device's links, in one direction.

    Returns:
        Seconds, shape (k,).
    """
    payload = np.asarray(payload_bytes, dtype=np.float64)
    rate = _DIRECT_FRACTION * bandwidth_bytes_per_s
    once = start_s + (ranks - 1) * payload / rate
    twice = _TWO_PHASES * start_s + 2.0 * (ranks - 1) / ranks * payload / rate
    return np.minimum(once, twice)


Algorithm = Callable[[Tiers], AlphaBeta]
_GATHERS: dict[str, Algorithm] = {
    "ring": ring_gather,
    "hierarchical": hierarchical_gather,
    "doubling": doubling_gather,
}
#: Algorithms of each collective kind by name.
ALGORITHMS: Mapping[OperatorKind, Mapping[str, Algorithm]] = {
    OperatorKind.ALL_REDUCE: {
        "ring": ring_all_reduce,
        "hierarchical": hierarchical_all_reduce,
        "tree": tree_all_reduce,
        "recursive_doubling": recursive_doubling_all_reduce,
        "halving_doubling": halving_doubling_all_reduce,
        "nvls": in_switch_all_reduce,
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
_FAR_PARTNERS = frozenset(
    {"tree", "recursive_doubling", "halving_doubling", "doubling", "binomial"}
)
#: Part of a payload that passes through a device's own memory beside the wire: all of it where it
#: is reduced and gathered, half (estimate) in collectives of one phase, none in a message.
_COPIED_SHARE = {
    "all_reduce": 1.0,
    "all_gather": 0.5,
    "reduce_scatter": 0.5,
    "all_to_all": 0.5,
    "broadcast": 0.5,
    "send_recv": 0.0,
}


#: Above any stride of ranks, for codes of groups.
_LARGEST_STRIDE = 2**32


@checked
def collective_costs(
    kind: OperatorKind | str,
    payload_bytes: ArrayLike,
    group: RankGroup,
    cluster: Cluster,
    *,
    algorithm: str | None = None,
    copies: int = 1,
    gathers: bool = False,
) -> CollectiveCosts:
    """Time and traffic of a collective, at each payload by the quickest algorithm.

    Thakur et al., IJHPCA 19(1), 2005; Cho et al., BlueConnect, MLSys 2019.

    Args:
        kind: A collective kind or its name, such as "all_reduce".
        payload_bytes: Payloads in that collective's sense, shape (k,) or one, bytes, >= 0.
        group: Ranks; one takes no time.
        cluster: Where they stand.
        algorithm: Name in `ALGORITHMS` of the only one to take; the quickest unless given.
        copies: Of an all-to-all: ranks, possibly the same, that each part of a payload goes to
            alike (the experts of a token); its copies are part of the payload.
        gathers: Whether every rank gets all of it, where one level of links joins the ranks: beyond
            that, copies are sent once to each unit and fan out there.

    Returns:
        Columns of length k.

    Raises:
        InvalidValueError: If the kind is no collective, the algorithm is not one of it, or a
            payload is negative, or no switch of the group can reduce for "nvls", or there are no
            copies.
    """
    if copies < 1:
        raise InvalidValueError("copies", copies, "1 or more")
    payload = np.atleast_1d(np.asarray(payload_bytes, dtype=np.float64))
    if payload.size and not (payload >= 0).all():
        raise InvalidValueError("payload_bytes", float(payload.min()), "bytes >= 0")
    label = kind.label if isinstance(kind, OperatorKind) else kind
    choices = _choices(label, group, cluster, algorithm, copies, gathers)
    times = choices.latency_s + np.multiply.outer(payload, choices.seconds_per_byte)
    quickest = times.argmin(axis=1)
    column = payload[:, np.newaxis]
    level_times = choices.level_latency_s[quickest]
    level_times = level_times + choices.level_seconds_per_byte[quickest] * column
    return CollectiveCosts(
        payload_bytes=payload,
        time_s=times.min(axis=1),
        link_names=tuple(choices.link_names.tolist()),
        bytes_on_link=choices.sent_share[quickest] * column,
        binding_link=choices.link_names[level_times.argmax(axis=1)],
        algorithm=choices.names[quickest],
        protocol=choices.protocols[quickest],
        log_sigma=choices.log_sigma,
        warnings=choices.warnings,
    )


def collectives_s(
    kind: OperatorKind,
    payload_bytes: FloatArray,
    size: IntArray,
    stride: IntArray,
    cluster: Cluster,
    *,
    copies: int = 1,
    gathers: bool = False,
) -> tuple[FloatArray, FloatArray]:
    """Times of collectives of many groups and the spreads of their logarithms, shape (k,) each; 0
    for groups of one.

    Args:
        kind: A collective kind.
        payload_bytes: Payload of each, shape (k,).
        size: Ranks of each group, shape (k,).
        stride: Devices from one rank to the next, shape (k,).
        cluster: Where they stand.
        copies: As of `collective_costs`.
        gathers: As of `collective_costs`.
    """
    times, sigmas = np.zeros(len(payload_bytes)), np.zeros(len(payload_bytes))
    codes = size.astype(np.int64) * _LARGEST_STRIDE + stride
    for code in np.unique(codes[size > 1]).tolist():
        group = RankGroup(*divmod(code, _LARGEST_STRIDE))
        choices = _choices(kind.label, group, cluster, None, copies, gathers)
        rows = np.flatnonzero(codes == code)
        ways = choices.latency_s + np.multiply.outer(payload_bytes[rows], choices.seconds_per_byte)
        times[rows], sigmas[rows] = ways.min(axis=1), choices.log_sigma
    return times, sigmas


@frozen
class _Choices:
    """The algorithms and protocols open to a group, as rows: totals, and per level."""

    names: TextArray
    protocols: TextArray
    link_names: TextArray
    latency_s: FloatArray
    seconds_per_byte: FloatArray
    level_latency_s: FloatArray
    level_seconds_per_byte: FloatArray
    sent_share: FloatArray
    log_sigma: float
    warnings: tuple[str, ...]


#: One rank: no time, and no bytes over a link without a name.
_NOTHING = AlphaBeta(np.zeros(1), np.zeros(1), np.ones(1))


@lru_cache(maxsize=4096)
def _choices(
    label: str,
    group: RankGroup,
    cluster: Cluster,
    algorithm: str | None,
    copies: int,
    gathers: bool,
) -> _Choices:
    placement = place(group, cluster)
    levels = placement.levels
    forms = _open_algorithms(label, algorithm, levels)
    if label == OperatorKind.ALL_TO_ALL.label and copies > 1 and algorithm is None:
        forms = _exchanges_of_experts(forms, levels, copies, gathers)
    rows = list(_rows(forms, placement)) or [("", "", 0.0, _NOTHING)]
    names, protocols, starts, costs = zip(*rows, strict=True)
    copied = _COPIED_SHARE[label] * sum(level.copy_s_per_byte for level in levels[:1])
    latencies = np.stack([cost.latency_s for cost in costs])
    return _Choices(
        names=np.array(names),
        protocols=np.array(protocols),
        link_names=np.array([level.link_name for level in levels] or [""]),
        latency_s=np.array(starts) + latencies.sum(axis=1),
        seconds_per_byte=np.array([cost.seconds_per_byte for cost in costs]) + copied,
        level_latency_s=latencies,
        level_seconds_per_byte=np.stack([cost.level_seconds_per_byte for cost in costs]),
        sent_share=np.stack([cost.sent_share for cost in costs]),
        log_sigma=max((level.fabric.log_sigma for level in levels), default=0.0),
        warnings=placement.warnings,
    )


def _exchanges_of_experts(
    forms: Mapping[str, Algorithm], levels: Sequence[Level], copies: int, gathers: bool
) -> Mapping[str, Algorithm]:
    """The algorithms of an all-to-all that takes each part of a payload to several ranks."""
    if gathers and len(levels) == 1:
        return {"gather": partial(gathering_all_to_all, copies=copies)}
    return {**forms, "fan_out": partial(fan_out_all_to_all, copies=copies)}


def _rows(
    forms: Mapping[str, Algorithm], placement: Placement
) -> Iterator[tuple[str, str, float, AlphaBeta]]:
    """Each algorithm under each protocol: both names, seconds at the start, and the cost."""
    levels = placement.levels
    if not levels:
        return
    tiers = Tiers.of(placement)
    for name in dict.fromkeys(p.name for level in levels for p in level.fabric.protocols):
        protocols = [level.fabric.protocol(name) for level in levels]
        under = tiers.under(protocols)
        start_s = max(protocol.start_s for protocol in protocols)
        for form_name, form in forms.items():
            yield form_name, name, start_s, form(under)


def _open_algorithms(
    label: str, algorithm: str | None, levels: Sequence[Level]
) -> Mapping[str, Algorithm]:
    """The algorithm asked for, else those that suit the levels."""
    forms = _algorithms(label, algorithm)
    if algorithm is None:
        return _suited(forms, levels)
    if algorithm == "nvls" and levels and not _reduces_in_switch(levels):
        links = ", ".join(level.link_name for level in levels)
        raise InvalidValueError(
            "algorithm", algorithm, f"another one: no switch of {links} reduces"
        )
    return forms


def _algorithms(label: str, algorithm: str | None) -> Mapping[str, Algorithm]:
    by_label = {collective.label: forms for collective, forms in ALGORITHMS.items()}
    known = by_label.get(label)
    if known is None:
        raise InvalidValueError("kind", label, f"one of {', '.join(by_label)}")
    if algorithm is None:
        return known
    if algorithm not in known:
        raise InvalidValueError("algorithm", algorithm, f"one of {', '.join(known)}")
    return {algorithm: known[algorithm]}


def _suited(forms: Mapping[str, Algorithm], levels: Sequence[Level]) -> Mapping[str, Algorithm]:
    """The algorithms that the libraries of all levels have and their links allow."""
    barred = set() if all(level.is_any_to_any for level in levels) else set(_FAR_PARTNERS)
    if not _reduces_in_switch(levels):
        barred.add("nvls")
    if len(forms) > 1:
        for level in levels:
            supported = level.fabric.algorithms
            barred |= set(forms).difference(supported) if supported else set()
    return {name: form for name, form in forms.items() if name not in barred}


def _reduces_in_switch(levels: Sequence[Level]) -> bool:
    """Whether the nearest level has a switch that reduces, and more than two units."""
    return any(
        level.fabric.in_switch_fraction is not None and level.fanout > 2 for level in levels[:1]
    )
