"""How the rows of the serving tables share a model over devices.

A row gives ranks of the attention (`tp_size`, `attention_dp_size`) and of the experts
(`moe_tp_size`, `moe_ep_size`). Sources count them in two ways:

- apart: the attention has tp x dp ranks, the experts as many;
- the same: each of n devices counts as a rank of two kinds at once, so that n² ranks are stated for
  n devices (64 = 8 x 8 on a node of 8).

A row is read in the way that its id (``_tp2_ep2``) and the devices of a node allow. Where both are
allowed, it is read as the rows of its source and engine that allow one alone.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import lru_cache
from math import isqrt

import numpy as np

from accelsim.catalog.clusters import node, node_names
from accelsim.errors import InvalidValueError, UnknownNameError
from accelsim.plain import Values
from accelsim.scoreboard.names import device_of
from tools.scoreboard.served_systems import Ranks

_NAMED = re.compile(r"_tp(\d+)(?:_0)?_ep(\d+|none)")
COUNTS = ("tp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size")
#: Readings by name.
Readings = Mapping[str, Ranks]
#: The one reading of a source and engine, where all its rows that allow one alone agree.
Usual = Mapping[tuple[str, str], str]


def stated_readings(tp: int, dp: int, expert_tp: int, expert_ranks: int) -> Readings:
    """How a replica's devices may share a model.

    Args:
        tp: Ranks that share heads, as stated.
        dp: Groups of ranks with requests of their own; 0 where it is not stated.
        expert_tp: Ranks that share the columns of an expert.
        expert_ranks: Ranks that share the experts.
    """
    stated_readings: dict[str, Ranks] = {}
    experts = expert_tp * expert_ranks
    groups = dp or max(1, experts // tp)
    if experts in {1, tp * groups} or expert_ranks in {1, tp * groups}:
        ep = tp * groups if groups > 1 else expert_ranks
        stated_readings["apart"] = Ranks(tp, groups, ep)
    n = isqrt(experts)
    is_twice = expert_tp == expert_ranks or (tp == dp and expert_tp == 1)
    if n > 1 and n * n == experts == tp * groups and is_twice:
        stated_readings["the same"] = Ranks(1, n, n) if groups > 1 else Ranks(n, 1, n)
    return stated_readings


def usual_reading(records: Iterable[Values]) -> Usual:
    """What the rows of each source and engine that allow one reading alone have."""
    seen: dict[tuple[str, str], set[str]] = defaultdict(set)
    for cells in records:
        with contextlib.suppress(UnknownNameError):
            if _is_doubtful(cells) and len(readings := allowed_readings(cells, "")) == 1:
                seen[_origin(cells)].update(readings)
    return {origin: names.pop() for origin, names in seen.items() if len(names) == 1}


def ranks_of(cells: Values, part: str, usual: Usual) -> Ranks:
    """The ranks of a row's replica.

    Args:
        cells: The row.
        part: "prefill_" or "decode_"; empty where both are one.
        usual: Result of `usual_reading`.

    Raises:
        InvalidValueError: If no reading is allowed, or several.
    """
    readings = allowed_readings(cells, part)
    own = usual.get(_origin(cells), "")
    if len(readings) == 1:
        return next(iter(readings.values()))
    if own in readings:
        return readings[own]
    stated = " x ".join(f"{cells[part + name]:g}" for name in COUNTS)
    said = " or ".join(f"{one.devices} devices (ranks {name})" for name, one in readings.items())
    allowed = f"one reading, not {said}" if said else "ranks that a node has"
    raise InvalidValueError("ranks", stated, allowed)


def allowed_readings(cells: Values, part: str) -> Readings:
    """Readings of a row that its id and the devices of a node allow.

    Raises:
        UnknownNameError: If its device is unknown.
    """
    counts = [cells[part + name] for name in COUNTS]
    tp, dp, expert_tp, ep = (int(count) if np.isfinite(count) else 0 for count in counts)
    named = None if part else _NAMED.search(cells["id"])
    most = node_devices(cells["system"])
    stated = stated_readings(max(tp, 1), dp, max(expert_tp, 1), max(ep, 1))
    return {
        name: ranks
        for name, ranks in stated.items()
        if (part or ranks.devices <= most) and (named is None or _is_named(ranks, *named.groups()))
    }


def _is_named(ranks: Ranks, tp: str, ep: str) -> bool:
    """Whether the ranks that an id names are these: of one copy of the attention, or all."""
    is_shared = ep == "none" or int(ep) in {1, ranks.ep}
    return int(tp) in {ranks.tp, ranks.devices} and is_shared


def _origin(cells: Values) -> tuple[str, str]:
    """Source and engine."""
    return cells["silicon_data_source"].partition(";")[0], cells["backend"]


def _is_doubtful(cells: Values) -> bool:
    """Whether a row's counts could be read in both ways on a node of any size."""
    counts = (cells[name] for name in COUNTS)
    tp, dp, expert_tp, ep = (int(count) if np.isfinite(count) else 0 for count in counts)
    return len(stated_readings(max(tp, 1), dp, max(expert_tp, 1), max(ep, 1))) > 1


@lru_cache(maxsize=64)
def node_devices(system: str) -> int:
    """Most devices of a node of the catalogue with a board; no limit where it has none.

    Raises:
        UnknownNameError: If the board is unknown.
    """
    device = device_of(system).name
    nodes = [found for name in node_names() if (found := node(name)).device == device]
    return max((int(found.device_count.value) for found in nodes), default=sys.maxsize)
