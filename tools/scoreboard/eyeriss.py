"""Suite `eyeriss`: latency, traffic and power of a row-stationary chip, layer by layer.

The rows are measurements of the chip (Chen et al., IEEE JSSC 52(1), 2017). AlexNet's calibrate: its
two power parameters are fitted to them, so its power is a fit and its mapping, latency and traffic
are not. VGG-16 is predicted; where the table has no row of it the findings hold what is predicted.
The share of zeros in a layer's input is a property of the network that the chip does not change: it
is taken from the table, and from AlexNet's mean where the table has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from accelsim import catalog
from accelsim.cost.systolic.row_stationary import (
    ConvLayer,
    RowStationaryRun,
    row_stationary_chip,
    row_stationary_run,
)
from accelsim.errors import InvalidValueError
from accelsim.hardware.profile import AsicProfile
from accelsim.scoreboard.data_folder import DataFolder, Table, published, schema
from accelsim.scoreboard.suite import MeasuredBatch, refused_batch, register_suite
from accelsim.workloads.graph import FloatArray
from tools.scoreboard.quantity_batches import QUANTITY, quantity_batch

SCHEMA = schema("asic/eyeriss.csv")
#: The spread of all figures on AlexNet is 6 %.
_SIGMA = 0.08
_TOTAL = "TOTAL"


_PUBLISHED = published("eyeriss_networks")


def _layer(name: str, sizes: Sequence[int]) -> ConvLayer:
    c_in, c_out, groups, side, kernel, out, stride = sizes
    shape = (side, side, kernel, kernel, out, out, stride)
    return ConvLayer(1, c_in, c_out, groups, *shape, name=name)


#: Convolutions by network, with a batch of 1.
NETWORKS: Mapping[str, Mapping[str, ConvLayer]] = {
    network: {name: _layer(name, sizes) for name, sizes in entry["layers"].items()}
    for network, entry in _PUBLISHED.items()
}
#: Quantity, attribute of the runs' figures, and where it is measured: column and its unit.
_QUANTITIES = (
    ("latency", "latency_s", "total_latency_ms", 1e-3),
    ("processing latency", "processing_s", "processing_latency_ms", 1e-3),
    ("DRAM bytes", "dram_bytes", "dram_access_mb", 1e6),
    ("buffer bytes", "buffer_bytes", "glb_access_mb", 1e6),
    ("power", "power_w", "power_mw", 1e-3),
    ("energy", "energy_j", "", 1.0),
    ("active elements", "active_elements", "active_pes", 1.0),
)
_SUMMED = ("latency_s", "processing_s", "buffer_bytes", "dram_bytes", "energy_j")
#: Names, attributes, factors and digits of the figures that findings print.
_PRINTED = (
    ("latency_ms", "latency_s", 1e3, 2),
    ("processing_ms", "processing_s", 1e3, 2),
    ("dram_mb", "dram_bytes", 1e-6, 2),
    ("buffer_mb", "buffer_bytes", 1e-6, 1),
    ("power_mw", "power_w", 1e3, 1),
    ("energy_mj", "energy_j", 1e3, 3),
)


def network_runs(
    network: str, batch: int, zero_fractions: Mapping[str, float] | None = None
) -> dict[str, RowStationaryRun]:
    """Every convolution of a network on Eyeriss, by layer.

    Args:
        network: "AlexNet" or "VGG-16".
        batch: Images processed together.
        zero_fractions: Zeros of each layer's input; unknown where missing. A layer's output has the
            next one's.

    Raises:
        InvalidValueError: If the network is neither.
    """
    if network not in NETWORKS:
        raise InvalidValueError("network", network, " or ".join(NETWORKS))
    zeros = dict(zero_fractions or {})
    layers = list(NETWORKS[network].values())
    followers = [*(layer.name for layer in layers[1:]), layers[-1].name]
    return {
        layer.name: _run(
            replace(
                layer,
                batch=batch,
                input_zero_fraction=zeros.get(layer.name, 0.0 if layer is layers[0] else None),
                output_zero_fraction=zeros.get(follower),
            )
        )
        for layer, follower in zip(layers, followers, strict=True)
    }


def _device() -> AsicProfile:
    profile = catalog.device("eyeriss")
    assert isinstance(profile, AsicProfile)
    return profile


def _run(layer: ConvLayer) -> RowStationaryRun:
    device = _device()
    rows = int(device.arrays.rows.value)
    columns = int(device.arrays.columns.value)
    bandwidth = device.memory_bandwidth_bytes_per_s or 0.0
    return row_stationary_run(
        layer, row_stationary_chip(), rows, columns, device.clock_hz.value, bandwidth
    )


def vgg_prediction(rows: Sequence[Any]) -> dict[str, Any]:
    """What is predicted for VGG-16 with nothing but its layers, where no measured row was
    scored.
    """
    if any(label.startswith("VGG-16") for part in rows for label in part.label.tolist()):
        return {}
    runs = network_runs("VGG-16", _PUBLISHED["VGG-16"]["batch"])
    parts = {name: [run] for name, run in runs.items()} | {_TOTAL: list(runs.values())}
    return {"predicted": {"VGG-16": {name: _printed(part) for name, part in parts.items()}}}


def _printed(runs: Sequence[RowStationaryRun]) -> dict[str, float]:
    found = _figures(runs)
    return {name: round(found[key] * factor, digits) for name, key, factor, digits in _PRINTED}


def _figures(runs: Sequence[RowStationaryRun]) -> dict[str, float]:
    """Figures of layers together."""
    found = {name: sum(getattr(run, name) for run in runs) for name in _SUMMED}
    active = runs[0].active_elements if len(runs) == 1 else np.nan
    return found | {"power_w": found["energy_j"] / found["latency_s"], "active_elements": active}


@register_suite(
    "eyeriss",
    "row-stationary chip: latency, traffic, power per layer",
    (SCHEMA,),
    "operator",
    findings=vgg_prediction,
    quantity=QUANTITY,
)
def load(folder: DataFolder) -> list[MeasuredBatch]:
    """One batch per network."""
    table = folder.filled(SCHEMA)
    if table is None:
        return []
    networks = dict.fromkeys(table["net"].tolist())
    return [_batch(network, table.take(table["net"] == network)) for network in networks]


def _batch(network: str, table: Table) -> MeasuredBatch:
    names = [_layer_name(name) for name in table["layer"].tolist()]
    label = np.array([f"{network} {name}" for name in names])
    measured = _measured(table)
    unknown = sorted({*names} - {*NETWORKS.get(network, ()), _TOTAL})
    if unknown:
        reason = f"{network} has no layer {', '.join(unknown)[:60]}"
        group = np.full(len(table), "latency")
        return refused_batch("Eyeriss", group, label, measured["latency"], reason)
    zeros = zip(names, (table["zero_ifmap_pct"] / 100.0).tolist(), strict=True)
    given = {name: zero for name, zero in zeros if np.isfinite(zero) and name != _TOTAL}
    runs = network_runs(network, int(table["batch"][0]), given)
    asked = [_figures([*runs.values()] if name == _TOTAL else [runs[name]]) for name in names]
    predicted = {
        quantity: np.array([found[key] for found in asked]) for quantity, key, *_ in _QUANTITIES
    }
    return quantity_batch(_device(), "Eyeriss", label, measured, predicted, _SIGMA)


def _layer_name(name: str) -> str:
    return name.strip().upper().replace("_", "-").replace("CONV-", "CONV")


def _measured(table: Table) -> dict[str, FloatArray]:
    found = {name: table[column] * unit for name, _, column, unit in _QUANTITIES if column}
    active = np.where(table["layer"] == _TOTAL, np.nan, found.pop("active elements"))
    energy = found["power"] * found["latency"]
    return found | {"energy": energy} | {"active elements": active}
