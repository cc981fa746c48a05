"""The same training with more and less of one thing: bandwidth of links and memory, peak,
efficiency, price, and time between failures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from accelsim.economics.result import SECONDS_PER_HOUR
from accelsim.exploration.sensitivity.change import (
    RATIOS,
    Change,
    answered,
    changed_devices,
    more_or_less,
)

if TYPE_CHECKING:
    from accelsim.hardware.cluster import Cluster
    from accelsim.training.estimate import TrainingEstimate
    from accelsim.training.length import RunLength


def training_changes(
    ask: Callable[..., TrainingEstimate],
    base: TrainingEstimate,
    cluster: Cluster | None,
    length: RunLength | None,
) -> list[Change[TrainingEstimate]]:
    """The run as it is, and with one thing changed at a time, at the same plan.

    Args:
        ask: `train` with the arguments of the run; those that change are given as keywords.
        base: Its answer, with its iteration.
        cluster: What joins the devices, as the catalogue has it; None for one device.
        length: How long the run is; None for one iteration.
    """
    found = [Change("as it is", base)]
    for words, changed in _changes(base, cluster, length):
        found.append(answered(words, partial(ask, plan=base.inputs["plan"], **changed)))
    return found


def _changes(
    base: TrainingEstimate, cluster: Cluster | None, length: RunLength | None
) -> Iterator[tuple[str, dict[str, Any]]]:
    if cluster is not None:
        for ratio in RATIOS:
            faster = _faster(cluster, ratio)
            yield f"bandwidth of links {more_or_less(ratio)}", {"cluster": faster}
    if base.iteration is not None:
        for words, device in changed_devices(base.iteration.setup.run.device):
            yield words, {"device": device}
    if base.cost_usd is not None:
        hourly = base.cost_usd / (base.iteration_s * base.device_count) * SECONDS_PER_HOUR
        for ratio in RATIOS:
            price = {"usd_per_hour": ratio * hourly, "offer": None}
            yield f"price {more_or_less(ratio)}", price
    if length is not None and length.mtbf_s is not None:
        for ratio in RATIOS:
            rarer = replace(length, mtbf_s=length.mtbf_s / ratio)
            yield f"failures {more_or_less(ratio)}", {"length": rarer}


def _faster(cluster: Cluster, ratio: float) -> Cluster:
    """A cluster whose tiers all have more or less bandwidth; latencies stay."""
    tiers = [
        replace(tier, bandwidth_bytes_per_s=tier.bandwidth_bytes_per_s * ratio)
        for tier in cluster.tiers
    ]
    return replace(cluster, tiers=tuple(tiers))
