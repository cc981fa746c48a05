"""Protocols of communication fabrics, from measured all-reduces inside one node.

Six values a fabric: the start and hop of `ll128` and `simple`, the share of `ll`, the share of the
wire, and what a device copies. Sizes of an odd count of MiB and groups of six GPUs are left out of
the fit; `python -m tools.scoreboard training-collectives` scores them apart.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import least_squares

from accelsim.catalog.clusters import cluster
from accelsim.cost.collective import collective_costs
from accelsim.hardware.cluster import Cluster
from accelsim.hardware.fabric import Fabric, Protocol
from accelsim.hardware.placement import RankGroup
from accelsim.scoreboard.data_folder import DataFolder
from accelsim.workloads.graph import FloatArray
from tools.scoreboard.training_collectives import SCHEMA, is_held_out, measured_all_reduces

#: Values in the order of the fit: their starting point, least and most.
_START = {
    "simple_start_us": (40.0, 0.0, 200.0),
    "simple_hop_us": (3.0, 0.0, 20.0),
    "ll128_start_us": (30.0, 0.0, 100.0),
    "ll128_hop_us": (1.3, 0.0, 10.0),
    "ll_fraction": (0.1, 0.02, 0.5),
    "achieved_fraction": (0.95, 0.7, 0.99),
    "copy_ratio": (2.0, 0.5, 10.0),
}


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of one node by count of ranks."""

    node: Cluster
    ranks: tuple[int, ...]
    payload_bytes: tuple[FloatArray, ...]
    measured_s: tuple[FloatArray, ...]

    def residuals(self, values: FloatArray) -> FloatArray:
        """ln(predicted / measured), all rows of one count of ranks as one."""
        pattern = _with(self.node, dict(zip(_START, values.tolist(), strict=True)))
        errors = [
            np.log(collective_costs("all_reduce", size, RankGroup(ranks), pattern).time_s / time_s)
            * size**-0.25
            / np.linalg.norm(size**-0.25)
            for ranks, size, time_s in zip(
                self.ranks, self.payload_bytes, self.measured_s, strict=True
            )
        ]
        return np.concatenate(errors)


def refit_fabrics(folder: DataFolder) -> dict[str, dict[str, float]]:
    """Values of `calibration/class/fabrics.yaml` and of links' achieved shares by fabric."""
    table = folder.table(SCHEMA)
    if table is None:
        return {}
    refit_fabrics = {}
    for group in measured_all_reduces(table):
        node = cluster(group.node_name)
        sizes, times = [], []
        for ranks in (2, 4, 7):
            rows = (group.ranks == ranks) & ~is_held_out(group.ranks, group.payload_bytes)
            sizes.append(group.payload_bytes[rows])
            times.append(group.measured_s[rows])
        rows_of = _Rows(node, (2, 4, 7), tuple(sizes), tuple(times))
        start, low, high = np.array(list(_START.values())).T
        fit = least_squares(
            rows_of.residuals,
            start,
            bounds=(low, high),
            x_scale=start,
            loss="soft_l1",
            f_scale=0.003,
        )
        values = dict(zip(_START, np.round(fit.x, 3).tolist(), strict=True))
        refit_fabrics[node.tiers[0].fabric.name] = values
    return refit_fabrics


def _with(node: Cluster, values: dict[str, float]) -> Cluster:
    """A node whose nearest fabric has these values."""
    nearest, *above = node.tiers
    known = nearest.fabric.protocol("ll")
    protocols = (
        replace(known, bandwidth_fraction=values["ll_fraction"]),
        Protocol("ll128", values["ll128_start_us"] * 1e-6, values["ll128_hop_us"] * 1e-6, 0.92),
        Protocol("simple", values["simple_start_us"] * 1e-6, values["simple_hop_us"] * 1e-6),
    )
    fabric: Fabric = replace(nearest.fabric, protocols=protocols, copy_ratio=values["copy_ratio"])
    achieved = values["achieved_fraction"]
    return replace(
        node, tiers=(replace(nearest, fabric=fabric, achieved_fraction=achieved), *above)
    )
