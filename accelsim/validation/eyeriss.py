"""Suite `eyeriss`: latency, traffic and power of a row-stationary chip, layer by layer.

The rows are measurements of the chip (Chen et al., IEEE JSSC 52(1), 2017). AlexNet's calibrate: its
two power parameters are fitted to them, so its power is a fit and its mapping, latency and traffic
are not. VGG-16 is predicted; where the table has no row of it the findings hold what is predicted.
The share of zeros in a layer's input is a property of the network that the chip does not change: it
is taken from the table, and from AlexNet's mean where the table has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

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
from accelsim.validation.data_folder import DataFolder, Schema, Table, number, text
from accelsim.validation.quantity_batches import QUANTITY, quantity_batch
from accelsim.validation.suite import Batch, refused_batch, register_suite
from accelsim.workloads.graph import FloatArray

__all__ = ["NETWORKS", "SCHEMA", "network_runs", "vgg_prediction"]

SCHEMA: Final = Schema(
    "asic/eyeriss.csv",
    (
        *text("net", "layer"),
        *number("batch", "power_mw", "total_latency_ms", "processing_latency_ms"),
        *number("active_pes", "zero_ifmap_pct", "glb_access_mb", "dram_access_mb", optional=True),
    ),
)
#: The spread of all figures on AlexNet is 6 %.
_SIGMA: Final = 0.08
_TOTAL: Final = "TOTAL"


def _vgg() -> dict[str, ConvLayer]:
    """Convolutions of VGG-16 (Simonyan and Zisserman, ICLR 2015, table 1, D)."""
    plan = ((3, 64, 224), (64, 64, 224)), ((64, 128, 112), (128, 128, 112))
    deeper = [
        ((a, b, side), (b, b, side), (b, b, side))
        for a, b, side in ((128, 256, 56), (256, 512, 28), (512, 512, 14))
    ]
    layers = [
        (f"CONV{i}-{j}", *sizes)
        for i, block in enumerate((*plan, *deeper), 1)
        for j, sizes in enumerate(block, 1)
    ]
    return {name: ConvLayer(1, c, m, 1, s, s, 3, 3, s, s, name=name) for name, c, m, s in layers}


#: Convolutions by network, with a batch of 1 (AlexNet: Krizhevsky et al., NIPS 2012, two groups).
NETWORKS: Final[Mapping[str, Mapping[str, ConvLayer]]] = {
    "AlexNet": {
        "CONV1": ConvLayer(1, 3, 96, 1, 227, 227, 11, 11, 55, 55, 4, name="CONV1"),
        "CONV2": ConvLayer(1, 96, 256, 2, 27, 27, 5, 5, 27, 27, name="CONV2"),
        "CONV3": ConvLayer(1, 256, 384, 1, 13, 13, 3, 3, 13, 13, name="CONV3"),
        "CONV4": ConvLayer(1, 384, 384, 2, 13, 13, 3, 3, 13, 13, name="CONV4"),
        "CONV5": ConvLayer(1, 384, 256, 2, 13, 13, 3, 3, 13, 13, name="CONV5"),
    },
    "VGG-16": _vgg(),
}
#: Batch of the published runs: AlexNet 4, VGG-16 3.
_BATCHES: Final = {"AlexNet": 4, "VGG-16": 3}


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
    rows, columns = int(device.arrays.rows.value), int(device.arrays.columns.value)
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
    runs = network_runs("VGG-16", _BATCHES["VGG-16"])
    layers = {name: _figures(run) for name, run in runs.items()}
    return {"predicted": {"VGG-16": layers | {_TOTAL: _figures(_total(runs.values()))}}}


@dataclass(frozen=True, slots=True)
class _Sum:
    """Layers together."""

    latency_s: float
    processing_s: float
    buffer_bytes: float
    dram_bytes: float
    energy_j: float

    @property
    def power_w(self) -> float:
        return self.energy_j / self.latency_s


def _total(runs: Any) -> _Sum:
    names = ("latency_s", "processing_s", "buffer_bytes", "dram_bytes", "energy_j")
    listed = list(runs)
    return _Sum(*(sum(getattr(run, name) for run in listed) for name in names))


def _figures(run: RowStationaryRun | _Sum) -> dict[str, float]:
    return {
        "latency_ms": round(run.latency_s * 1e3, 2),
        "processing_ms": round(run.processing_s * 1e3, 2),
        "dram_mb": round(run.dram_bytes / 1e6, 2),
        "buffer_mb": round(run.buffer_bytes / 1e6, 1),
        "power_mw": round(run.power_w * 1e3, 1),
        "energy_mj": round(run.energy_j * 1e3, 3),
    }


@register_suite(
    "eyeriss",
    "row-stationary chip: latency, traffic, power per layer",
    (SCHEMA,),
    "operator",
    findings=vgg_prediction,
    quantity=QUANTITY,
)
def load(folder: DataFolder) -> list[Batch]:
    """One batch per network."""
    table = folder.table(SCHEMA)
    if table is None or not len(table):
        return []
    return [
        _batch(network, table.take(table["net"] == network))
        for network in dict.fromkeys(table["net"].tolist())
    ]


def _batch(network: str, table: Table) -> Batch:
    names = [_layer_name(name) for name in table["layer"].tolist()]
    label = np.array([f"{network} {name}" for name in names])
    known = {*NETWORKS.get(network, {}), _TOTAL}
    unknown = sorted(set(names) - known)
    if unknown:
        reason = f"{network} has no layer {', '.join(unknown)[:60]}"
        return refused_batch(
            "Eyeriss",
            np.full(len(table), "latency"),
            label,
            table["total_latency_ms"] * 1e-3,
            reason,
        )
    zeros = table["zero_ifmap_pct"] / 100.0
    given = {
        name: float(zero)
        for name, zero in zip(names, zeros, strict=True)
        if np.isfinite(zero) and name != _TOTAL
    }
    runs = network_runs(network, int(table["batch"][0]), given)
    asked = [_total(runs.values()) if name == _TOTAL else runs[name] for name in names]
    predicted = _columns(asked)
    return quantity_batch(_device(), "Eyeriss", label, _measured(table), predicted, _SIGMA)


def _layer_name(name: str) -> str:
    return name.strip().upper().replace("_", "-").replace("CONV-", "CONV")


def _measured(table: Table) -> dict[str, FloatArray]:
    latency = table["total_latency_ms"] * 1e-3
    return {
        "latency": latency,
        "processing latency": table["processing_latency_ms"] * 1e-3,
        "DRAM bytes": table["dram_access_mb"] * 1e6,
        "buffer bytes": table["glb_access_mb"] * 1e6,
        "power": table["power_mw"] * 1e-3,
        "energy": table["power_mw"] * 1e-3 * latency,
        "active elements": np.where(table["layer"] == _TOTAL, np.nan, table["active_pes"]),
    }


def _columns(runs: Sequence[RowStationaryRun | _Sum]) -> dict[str, FloatArray]:
    def column(name: str) -> FloatArray:
        return np.array([getattr(run, name, np.nan) for run in runs], dtype=np.float64)

    return {
        "latency": column("latency_s"),
        "processing latency": column("processing_s"),
        "DRAM bytes": column("dram_bytes"),
        "buffer bytes": column("buffer_bytes"),
        "power": column("power_w"),
        "energy": column("energy_j"),
        "active elements": column("active_elements"),
    }
