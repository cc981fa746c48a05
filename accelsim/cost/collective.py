"""Collectives over alpha-beta links: how long n ranks take to exchange a payload.

A message of s bytes takes alpha + s beta, with alpha the link's latency and beta the inverse of its
bandwidth in one direction. Algorithms and their costs follow Thakur, Rabenseifner and Gropp,
"Optimization of collective communication operations in MPICH", IJHPCA 19(1), 2005; the reduction
arithmetic (gamma) is left out: devices reduce faster than links deliver. The hierarchical
all-reduce is the reduce-scatter, all-reduce, all-gather of two-level fabrics (Cho et al.,
BlueConnect, MLSys 2019). A payload is the full vector of one rank; for all-gather it is the
gathered result, for reduce-scatter the vector before scattering, for all-to-all what one rank holds
before sending.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from accelsim.errors import InvalidValueError
from accelsim.hardware.interconnect import Link
from accelsim.workloads.graph import FloatArray
from accelsim.workloads.operator import OperatorKind

__all__ = [
    "COLLECTIVES",
    "all_gather_time_s",
    "all_to_all_time_s",
    "best_all_reduce_time_s",
    "broadcast_time_s",
    "collective_time_s",
    "halving_doubling_all_reduce_time_s",
    "hierarchical_all_reduce_time_s",
    "recursive_doubling_all_reduce_time_s",
    "reduce_scatter_time_s",
    "ring_all_reduce_time_s",
    "send_recv_time_s",
    "tree_all_reduce_time_s",
]


def _inputs(size_bytes: ArrayLike, rank_count: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Payload and ranks as float64 of one shape.

    Raises:
        InvalidValueError: If a payload is negative or a rank count below 1.
    """
    size, ranks = np.broadcast_arrays(
        np.asarray(size_bytes, dtype=np.float64), np.asarray(rank_count, dtype=np.float64)
    )
    if size.size and not (size >= 0).all():
        raise InvalidValueError("size_bytes", float(size.min()), "bytes >= 0")
    if ranks.size and not (ranks >= 1).all():
        raise InvalidValueError("rank_count", float(ranks.min()), "ranks >= 1")
    return size, ranks


def _alpha_beta(link: Link) -> tuple[float, float]:
    """Latency in s (0 where the link does not know it) and seconds per byte in one direction."""
    alpha = 0.0 if link.latency_s is None else link.latency_s.value
    return alpha, 1.0 / link.bandwidth_bytes_per_s.value


def _time(steps: FloatArray, moved_bytes: FloatArray, link: Link) -> FloatArray:
    alpha, beta = _alpha_beta(link)
    time: FloatArray = steps * alpha + moved_bytes * beta
    return time


def _share(ranks: FloatArray) -> FloatArray:
    """(n - 1)/n: the part of a payload that is not a rank's own."""
    share: FloatArray = (ranks - 1.0) / ranks
    return share


def _log2_up(ranks: FloatArray) -> FloatArray:
    steps: FloatArray = np.ceil(np.log2(ranks))
    return steps


def send_recv_time_s(size_bytes: ArrayLike, link: Link) -> FloatArray:
    """One message: alpha + s beta (Hockney 1994).

    Args:
        size_bytes: Payload, bytes, >= 0.
        link: Link between the two ranks.
    """
    size, ranks = _inputs(size_bytes, 2)
    return _time(ranks - 1.0, size, link)


def ring_all_reduce_time_s(size_bytes: ArrayLike, rank_count: ArrayLike, link: Link) -> FloatArray:
    """Bandwidth-optimal ring: 2(n-1) steps that each move s/n. Thakur et al. 2005, section 4.5
    (reduce-scatter, all-gather).

    Args:
        size_bytes: Payload per rank, shape (k,), bytes, >= 0.
        rank_count: Ranks n >= 1; 1 takes no time.
        link: Alpha-beta link of each rank, one direction.

    Returns:
        Seconds, broadcast shape.

    Raises:
        InvalidValueError: If an input is out of range.
    """
    size, ranks = _inputs(size_bytes, rank_count)
    return _time(2.0 * (ranks - 1.0), 2.0 * _share(ranks) * size, link)


def tree_all_reduce_time_s(size_bytes: ArrayLike, rank_count: ArrayLike, link: Link) -> FloatArray:
    """Two complementary binary trees, pipelined: 2 log2(n) steps of latency, 2 s moved. Sanders et
    al. 2009; NCCL 2.4.

    Every rank is inner node of one tree and leaf of the other, so each sends and receives its
    payload about once per direction and phase.

    Args:
        size_bytes: As in `ring_all_reduce_time_s`, like the other arguments.
        rank_count: Ranks.
        link: Link of each rank.
    """
    size, ranks = _inputs(size_bytes, rank_count)
    return _time(2.0 * _log2_up(ranks), np.where(ranks > 1, 2.0 * size, 0.0), link)


def recursive_doubling_all_reduce_time_s(
    size_bytes: ArrayLike, rank_count: ArrayLike, link: Link
) -> FloatArray:
    """log2(n) exchanges of the whole payload; two more where n is no power of two. Thakur et al.
    2005, section 4.5.

    Args:
        size_bytes: As in `ring_all_reduce_time_s`, like the other arguments.
        rank_count: Ranks.
        link: Link of each rank.
    """
    size, ranks = _inputs(size_bytes, rank_count)
    steps = _doubling_steps(ranks)
    return _time(steps, steps * size, link)


def _doubling_steps(ranks: FloatArray) -> FloatArray:
    """Exchanges among the largest power of two, plus a fold before and after where ranks are left
    over.
    """
    whole = np.floor(np.log2(ranks))
    steps: FloatArray = whole + np.where(ranks > 2.0**whole, 2.0, 0.0)
    return steps


def halving_doubling_all_reduce_time_s(
    size_bytes: ArrayLike, rank_count: ArrayLike, link: Link
) -> FloatArray:
    """Rabenseifner's recursive halving and doubling: 2 log2(n) steps, 2 (n-1)/n s moved. Thakur et
    al. 2005, section 4.5.

    Ranks beyond the largest power of two first hand their payload to a partner and get the result
    back.

    Args:
        size_bytes: As in `ring_all_reduce_time_s`, like the other arguments.
        rank_count: Ranks.
        link: Link of each rank.
    """
    size, ranks = _inputs(size_bytes, rank_count)
    whole = 2.0 ** np.floor(np.log2(ranks))
    extra = np.where(ranks > whole, 2.0, 0.0)
    return _time(2.0 * np.log2(whole) + extra, (2.0 * _share(whole) + extra) * size, link)


def best_all_reduce_time_s(size_bytes: ArrayLike, rank_count: ArrayLike, link: Link) -> FloatArray:
    """The fastest of ring, tree, recursive doubling and halving-doubling, as libraries choose by
    size.

    Args:
        size_bytes: As in `ring_all_reduce_time_s`, like the other arguments.
        rank_count: Ranks.
        link: Link of each rank.
    """
    candidates = (
        ring_all_reduce_time_s,
        tree_all_reduce_time_s,
        recursive_doubling_all_reduce_time_s,
        halving_doubling_all_reduce_time_s,
    )
    best: FloatArray = np.min([form(size_bytes, rank_count, link) for form in candidates], axis=0)
    return best


def hierarchical_all_reduce_time_s(
    size_bytes: ArrayLike,
    local_count: ArrayLike,
    node_count: ArrayLike,
    local_link: Link,
    network_link: Link,
) -> FloatArray:
    """Reduce-scatter inside nodes, all-reduce of each shard across nodes, all-gather inside. Cho et
    al., MLSys 2019.

    Args:
        size_bytes: Payload per rank, bytes, >= 0.
        local_count: Ranks per node, >= 1.
        node_count: Nodes, >= 1.
        local_link: Link of a rank inside its node.
        network_link: Network share of one rank: its own card, or a card's bandwidth over the ranks
            that share it.
    """
    size, local = _inputs(size_bytes, local_count)
    inside = reduce_scatter_time_s(size, local, local_link) + all_gather_time_s(
        size, local, local_link
    )
    return inside + ring_all_reduce_time_s(size / local, node_count, network_link)


def all_gather_time_s(size_bytes: ArrayLike, rank_count: ArrayLike, link: Link) -> FloatArray:
    """Ring all-gather: n-1 steps of s/n, with s the gathered result. Thakur et al. 2005, section
    4.1.

    Args:
        size_bytes: Gathered bytes, >= 0.
        rank_count: Ranks n >= 1.
        link: Link of each rank.
    """
    size, ranks = _inputs(size_bytes, rank_count)
    return _time(ranks - 1.0, _share(ranks) * size, link)


def reduce_scatter_time_s(size_bytes: ArrayLike, rank_count: ArrayLike, link: Link) -> FloatArray:
    """Ring reduce-scatter: n-1 steps of s/n, with s the vector before scattering. Thakur et al.
    2005, section 4.3.

    Args:
        size_bytes: Bytes of the vector, >= 0.
        rank_count: Ranks n >= 1.
        link: Link of each rank.
    """
    return all_gather_time_s(size_bytes, rank_count, link)


def all_to_all_time_s(size_bytes: ArrayLike, rank_count: ArrayLike, link: Link) -> FloatArray:
    """Pairwise exchange: n-1 steps of s/n, with s what one rank holds. Thakur et al. 2005, section
    4.4.

    Args:
        size_bytes: Bytes one rank holds, >= 0.
        rank_count: Ranks n >= 1.
        link: Link of each rank.
    """
    return all_gather_time_s(size_bytes, rank_count, link)


def broadcast_time_s(size_bytes: ArrayLike, rank_count: ArrayLike, link: Link) -> FloatArray:
    """The better of a binomial tree (short) and scatter with ring all-gather (long). Thakur et al.
    2005, section 4.2.

    Args:
        size_bytes: Payload, bytes, >= 0.
        rank_count: Ranks n >= 1.
        link: Link of each rank.
    """
    size, ranks = _inputs(size_bytes, rank_count)
    steps = _log2_up(ranks)
    binomial = _time(steps, steps * size, link)
    scattered = _time(steps + ranks - 1.0, 2.0 * _share(ranks) * size, link)
    return np.minimum(binomial, scattered)


def _point_to_point(size_bytes: ArrayLike, rank_count: ArrayLike, link: Link) -> FloatArray:
    size, ranks = _inputs(size_bytes, rank_count)
    return np.where(ranks > 1, send_recv_time_s(size, link), 0.0)


#: Time of each collective kind: (size_bytes, rank_count, link) -> seconds.
COLLECTIVES: Final[dict[OperatorKind, Callable[[ArrayLike, ArrayLike, Link], FloatArray]]] = {
    OperatorKind.ALL_REDUCE: best_all_reduce_time_s,
    OperatorKind.ALL_GATHER: all_gather_time_s,
    OperatorKind.REDUCE_SCATTER: reduce_scatter_time_s,
    OperatorKind.ALL_TO_ALL: all_to_all_time_s,
    OperatorKind.BROADCAST: broadcast_time_s,
    OperatorKind.SEND_RECV: _point_to_point,
}


def collective_time_s(
    kind: OperatorKind, size_bytes: ArrayLike, rank_count: ArrayLike, link: Link
) -> FloatArray:
    """Time of a collective row over one level of links.

    Args:
        kind: A collective kind.
        size_bytes: Payload in that collective's sense, bytes, >= 0.
        rank_count: Ranks n >= 1; 1 takes no time.
        link: Link of each rank.

    Raises:
        InvalidValueError: If the kind is no collective or an input is out of range.
    """
    form = COLLECTIVES.get(kind)
    if form is None:
        raise InvalidValueError(
            "kind", kind.label, "one of " + ", ".join(known.label for known in COLLECTIVES)
        )
    return form(size_bytes, rank_count, link)
