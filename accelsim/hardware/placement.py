"""Where the ranks of a group stand in a cluster, and what each gets of the links there.

A group crosses a tier where its ranks stand in several of the units that the tier joins: devices,
nodes, racks. What a rank gets follows from the topology. A switch gives it all of its own links. In
an all-to-all mesh only the links to the group's members count. A torus gives the axes that the
group spans, half of an axis that does not close to a ring. Groups of one shape communicate at the
same time (as tensor- or data-parallel groups do), so that a rank uses its own share of a node's
network cards and no other's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from accelsim.arguments import checked
from accelsim.errors import InvalidValueError
from accelsim.frozen import frozen
from accelsim.hardware.cluster import MOST_DEVICES, Cluster, Tier
from accelsim.hardware.fabric import Fabric

Ranks = NDArray[np.int64]


@checked
@frozen
class RankGroup:
    """The devices that take part in a collective.

    A size and stride stand for the group that starts at the first device; name the devices of one
    that straddles units.

    Attributes:
        size: Ranks, >= 1.
        stride: Devices from one rank to the next.
        explicit: Device numbers where they do not follow a stride; empty otherwise.
    """

    size: int
    stride: int = 1
    explicit: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Refuse groups without ranks or with a rank twice.

        Raises:
            InvalidValueError: Naming the field.
        """
        if self.size < 1:
            raise InvalidValueError("size", self.size, "at least one rank")
        if self.stride < 1:
            raise InvalidValueError("stride", self.stride, "at least one device")
        if (self.size - 1) * self.stride >= MOST_DEVICES:
            allowed = f"ranks within {MOST_DEVICES:,} devices"
            raise InvalidValueError("size", self.size, allowed, "Take fewer ranks.")
        if self.explicit and len(set(self.explicit)) != self.size:
            raise InvalidValueError("explicit", self.explicit, f"{self.size} different devices")
        if self.explicit and min(self.explicit) < 0:
            raise InvalidValueError("explicit", min(self.explicit), "device numbers from 0")

    @classmethod
    def of(cls, ranks: Sequence[int]) -> RankGroup:
        """The group of these devices."""
        return cls(len(ranks), explicit=tuple(ranks))

    @property
    def ranks(self) -> Ranks:
        """Device numbers, ascending."""
        if self.explicit:
            return np.sort(np.asarray(self.explicit, dtype=np.int64))
        return np.arange(self.size, dtype=np.int64) * self.stride


@frozen
class Level:
    """What a rank of a group gets at one tier that the group crosses.

    Attributes:
        tier_name: Tier.
        link_name: Link of the tier.
        fanout: Units that the group joins here, in the fullest of the tier's groups.
        lane_count: Ranks of the group in each unit, at least; they carry the unit's traffic.
        hop_count: Hops at this tier of a ring through all ranks, less the one that closes it.
        step_count: Steps of a ring through the units, all axes of a torus one after the other.
        latency_s: Of one hop.
        bandwidth_bytes_per_s: What a rank sends to its neighbours, all its links together.
        pair_bandwidth_bytes_per_s: What it sends to one other rank.
        exchange_bandwidth_bytes_per_s: What it sends when all send to all.
        reduction_bandwidth_bytes_per_s: What it sends into reductions inside the switch.
        fabric: How a library drives the link.
        copy_s_per_byte: What a device's own copies of a payload take.
        is_any_to_any: Whether any two units are one hop apart.
    """

    tier_name: str
    link_name: str
    fanout: int
    lane_count: int
    hop_count: int
    step_count: int
    latency_s: float
    bandwidth_bytes_per_s: float
    pair_bandwidth_bytes_per_s: float
    exchange_bandwidth_bytes_per_s: float
    reduction_bandwidth_bytes_per_s: float
    fabric: Fabric
    copy_s_per_byte: float
    is_any_to_any: bool = True


@frozen
class Placement:
    """A group in a cluster.

    Attributes:
        size: Ranks.
        levels: Tiers that the group crosses, nearest first; none for one rank.
        warnings: Where the group needs more devices than the installation has.
    """

    size: int
    levels: tuple[Level, ...]
    warnings: tuple[str, ...] = ()


@lru_cache(maxsize=4096)
def place(group: RankGroup, cluster: Cluster) -> Placement:
    """Find the tiers that a group crosses and what a rank gets at each.

    Args:
        group: Ranks; those beyond the cluster's devices extend its last tier.
        cluster: Pattern.

    Returns:
        Levels from the nearest tier to the last one crossed.
    """
    ranks = group.ranks
    needed = int(ranks[-1]) + 1
    if needed > cluster.device_count:
        cluster = cluster.with_devices(needed)
    unit_sizes = [1, *(tier.device_count for tier in cluster.tiers)]
    levels = (_level(t, ranks, size) for t, size in zip(cluster.tiers, unit_sizes, strict=False))
    return Placement(group.size, tuple(filter(None, levels)), cluster.warnings)


@frozen
class _Reach:
    """Shares of a device's bandwidth that its rank gets, and the steps of a ring."""

    neighbours: float
    pair: float
    exchange: float
    step_count: int
    hop_length: int = 1
    is_any_to_any: bool = True


def _level(tier: Tier, ranks: Ranks, unit_size: int) -> Level | None:
    """What the group gets at a tier; None where it does not cross it.

    Its terms are those of Thakur et al., IJHPCA 19(1), 2005.
    """
    units, lanes = np.unique(ranks // unit_size, return_counts=True)
    groups, unit_counts = np.unique(units * unit_size // tier.device_count, return_counts=True)
    fanout = int(unit_counts.max())
    if fanout == 1:
        return None
    fullest = groups[unit_counts.argmax()]
    units_per_group = math.ceil(tier.device_count / unit_size)
    members = units[units // units_per_group == fullest] % units_per_group
    reach = _reach(tier, members, units_per_group)
    achieved, fabric = tier.achieved_bytes_per_s, tier.fabric
    copied = (fabric.copy_ratio or math.inf) * tier.bandwidth_bytes_per_s
    return Level(
        tier_name=tier.name,
        link_name=tier.link_name,
        fanout=fanout,
        lane_count=int(lanes.min()),
        hop_count=len(units) - len(groups),
        step_count=reach.step_count,
        latency_s=tier.latency_s * reach.hop_length,
        bandwidth_bytes_per_s=achieved * reach.neighbours,
        pair_bandwidth_bytes_per_s=achieved * reach.pair,
        exchange_bandwidth_bytes_per_s=achieved * reach.exchange,
        reduction_bandwidth_bytes_per_s=achieved * (fabric.in_switch_fraction or 1.0),
        fabric=fabric,
        copy_s_per_byte=1.0 / copied,
        is_any_to_any=reach.is_any_to_any,
    )


def _reach(tier: Tier, members: Ranks, unit_count: int) -> _Reach:
    """What a topology leaves a rank of its links.

    Of a torus: Dally and Towles, Interconnection Networks, 2004.
    """
    steps = len(members) - 1
    if tier.topology == "all_to_all":
        # A device has as many direct links as it has peers, and those to members are used.
        pair = 1.0 / (unit_count - 1)
        return _Reach(steps * pair, pair, steps * pair, steps)
    if tier.topology == "hybrid_cube_mesh":
        counts = np.asarray(tier.lane_counts)
        lane = 1.0 / counts.sum(axis=1).max()
        share = _ring_count(counts[np.ix_(members, members)]) * lane
        return _Reach(share, lane, share, steps, is_any_to_any=False)
    if tier.topology in {"ring", "torus"}:
        dimensions = tier.dimensions or (unit_count,)
        return _torus_reach(members, dimensions, tier.closed_multiple)
    return _Reach(neighbours=1.0, pair=1.0, exchange=1.0, step_count=steps)


def _ring_count(lanes: Ranks) -> int:
    """Rings through all members of a mesh: what the member with least lanes to others allows.

    A ring enters a member from one neighbour and leaves to another, so that lanes to one neighbour
    beyond those to all others together are of no use. One where a member has no lane and is reached
    through a device that is none.
    """
    total, most = lanes.sum(axis=1), lanes.max(axis=1)
    usable = total if len(lanes) == 2 else np.minimum(total, 2 * (total - most))
    return max(int(usable.min()), 1)


def _torus_reach(members: Ranks, dimensions: tuple[int, ...], closed_multiple: int) -> _Reach:
    """Axes that the members span, each with two of a device's links.

    A ring along an axis keeps both links of each device busy, a line one of them in each direction
    at its ends; members that stand apart share the links with those between. For all-to-all the
    middle of the longest axis binds: of s bytes a device, s e / 8 cross each link of a ring of e
    and s e / 4 the middle of a line (Dally and Towles, Principles and Practices of Interconnection
    Networks, 2004, section 3.3).
    """
    axis_share = 1.0 / len(dimensions)
    spans = [np.unique(x) for x in np.unravel_index(members, dimensions, order="F")]
    extents = [len(span) for span in spans]
    count = len(members)
    if math.prod(extents) != count:  # members that fill no box: a line of them
        use = axis_share / 2.0
        exchange = (count - 1) / count * use * 4.0 / count
        return _Reach(use, use, exchange, step_count=count - 1, is_any_to_any=False)
    neighbours, seconds_per_byte, longest = 0.0, 0.0, 1
    for span, extent, dimension in zip(spans, extents, dimensions, strict=True):
        if extent == 1:
            continue
        spacing = int(span[1] - span[0])
        is_closed = spacing * extent == dimension and dimension % closed_multiple == 0
        use = axis_share / spacing * (1.0 if is_closed else 0.5)
        neighbours += use
        seconds_per_byte = max(seconds_per_byte, extent / 4.0 / use)
        longest = max(longest, spacing)
    return _Reach(
        neighbours,
        pair=axis_share / 2.0,
        exchange=(count - 1) / count / seconds_per_byte,
        step_count=sum(extents) - len(extents),
        hop_length=longest,
        is_any_to_any=False,
    )
