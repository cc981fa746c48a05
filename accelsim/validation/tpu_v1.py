"""Suite `tpu-v1`: six production applications on TPU v1, and performance per watt against its CPU
and GPU.

Figures of Jouppi et al., ISCA 2017. The applications' layers are not published; their number,
weights, batch and operations per weight byte are (table 1), and the layers built here have them:
equal square matrices, and for CNN0 3 x 3 convolutions on 19 x 19 maps, for 2,888 operations per
weight byte at a batch of 8 are 361 positions. Its array is full on every active cycle (table 3), so
its channels are a multiple of the array's side. Everything else is the catalogue's TPU v1 and the
class-wide parameters; nothing is fitted. CNN1 mixes layers of unknown sizes: only its counters are
asked.

"TOPS with array fill" takes one counter: the share of useful weights in the tiles the array was
busy with. Weights are stored and fetched as whole 64 KiB tiles, so that both the array's and the
memory's time grow by what the tiles waste.

The power of a busy die (table 2) is that of the applications by their share of the fleet: idle
power and the energy of the chip's parts, neither fitted. The table does not say under which load it
was measured.

Table 3's counters and its TOPS come from different runs (its caption). The findings hold what the
counters alone would say: useful multiply-adds times peak, halved for the LSTMs, whose 16-bit
activations run at half rate (section 2). For CNN0 that is 72 TOPS where 86 were measured: 78.2 %
active cycles and 86 of 92 TOPS cannot be of one run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from accelsim import catalog
from accelsim.cost.idle import idle_power_w
from accelsim.cost.systolic import cost_systolic
from accelsim.cost.table import CostTable
from accelsim.hardware.profile import AsicProfile
from accelsim.validation.data_folder import DataFolder, Schema, Table, number, text
from accelsim.validation.quantity_batches import QUANTITY, quantity_batch
from accelsim.validation.suite import Batch, refused_batch, register_suite
from accelsim.workloads.builder import GraphBuilder
from accelsim.workloads.dtype import precision
from accelsim.workloads.graph import FloatArray, OperatorGraph

__all__ = [
    "APPLICATIONS",
    "Application",
    "application_graph",
    "application_power_w",
    "application_tops",
    "from_counters",
]

APPS: Final = Schema(
    "asic/tpuv1_apps.csv",
    (
        *text("app"),
        *number("layers", "weights_M", "ops_per_weight_byte", "batch", "tops_achieved"),
        *number("array_active_pct", "useful_macs_pct", "gpu_rel_cpu", "tpu_rel_cpu", optional=True),
    ),
)
PLATFORMS: Final = Schema(
    "asic/tpuv1_platforms.csv",
    (
        *text("device"),
        *number("dies_per_server", "server_tdp_w"),
        *number("busy_w_per_die", optional=True),
    ),
)
PER_WATT: Final = Schema(
    "asic/tpuv1_perf_per_watt.csv", (*text("metric", "mean"), *number("gpu_vs_cpu", "tpu_vs_cpu"))
)
_SIGMA: Final = 0.1
_PEAK_TOPS: Final = 92.0
#: Means of table 6 over its six applications, and the applications' shares of the fleet in July
#: 2016 (table 1).
_PUBLISHED_MEAN: Final = {"tpu": 14.5, "gpu": 1.1}
_FLEET_SHARE: Final = {"MLP0": 0.61, "LSTM0": 0.29, "CNN0": 0.05}
_APPLICATION_COUNT: Final = 6
_SIDE: Final = 256


@dataclass(frozen=True, slots=True)
class Application:
    """One row of table 1.

    Attributes:
        matrices: Layers with weights.
        vectors: Elementwise layers.
        weights: Parameters.
        batch: Inferences together.
        is_convolutional: Convolutions instead of square matrices.
        operations_per_weight_byte: Multiply-adds per weight.
        activation_bytes: 2 where activations have 16 bits.
    """

    matrices: int
    vectors: int
    weights: float
    batch: int
    is_convolutional: bool = False
    operations_per_weight_byte: float = 0.0
    activation_bytes: int = 1


#: Table 1; CNN1's 72 convolutions and 4 matrices have no published sizes.
APPLICATIONS: Final[Mapping[str, Application]] = {
    "MLP0": Application(5, 0, 20e6, 200),
    "MLP1": Application(4, 0, 5e6, 168),
    "LSTM0": Application(24, 34, 52e6, 64, activation_bytes=2),
    "LSTM1": Application(37, 19, 34e6, 96, activation_bytes=2),
    "CNN0": Application(16, 0, 8e6, 8, is_convolutional=True, operations_per_weight_byte=2888),
}


def application_graph(app: Application) -> OperatorGraph:
    """Layers with the published number, weights, batch and intensity."""
    builder = GraphBuilder(precision("int8"))
    if app.is_convolutional:
        side = round((app.operations_per_weight_byte / app.batch) ** 0.5)
        channels = _SIDE * max(round((app.weights / app.matrices / 9) ** 0.5 / _SIDE), 1)
        x = builder.input(app.batch, channels, side, side)
        for layer in range(app.matrices):
            x = builder.conv(x, channels, 3, name=f"conv{layer}")
        return builder.build()
    width = round((app.weights / app.matrices) ** 0.5)
    x = builder.input(app.batch, width)
    for layer in range(app.matrices):
        x = builder.linear(x, width, bias=False, name=f"fc{layer}")
        if layer < app.vectors:
            x = builder.elementwise(x, name=f"vector{layer}")
    for layer in range(app.matrices, app.vectors):
        x = builder.elementwise(x, name=f"vector{layer}")
    return builder.build()


def application_tops(app: Application) -> float:
    """Predicted operations per second, 1e12/s; a multiply-add is two."""
    graph = application_graph(app)
    return float(graph.model_flop / _time_s(app, cost_systolic(graph, _device())) / 1e12)


def application_power_w(app: Application) -> float:
    """Predicted power of the die: idle, and the energy of its parts over the application's time."""
    device = _device()
    costs = cost_systolic(application_graph(app), device)
    return (idle_power_w(device) or 0.0) + costs.total_energy_j / _time_s(app, costs)


def _time_s(app: Application, costs: CostTable) -> float:
    """Time of one batch; 16-bit activations halve the array's rate."""
    rate = np.where(costs.compute_s > costs.memory_s, app.activation_bytes, 1.0)
    return float((costs.time_s * rate).sum())


def _device() -> AsicProfile:
    profile = catalog.device("tpu-v1")
    assert isinstance(profile, AsicProfile)
    return profile


def from_counters(useful_fraction: float, name: str) -> float:
    """TOPS that table 3's counters of useful multiply-adds stand for."""
    app = APPLICATIONS.get(name)
    return useful_fraction * _PEAK_TOPS / (1 if app is None else app.activation_bytes)


def findings(rows: Sequence[Any]) -> dict[str, Any]:
    """Predictions of all applications with published layers, measured here or not."""
    del rows
    return {
        "predicted_tops": {
            name: round(application_tops(app), 2) for name, app in APPLICATIONS.items()
        },
        "predicted_power_w": {
            name: round(application_power_w(app), 1) for name, app in APPLICATIONS.items()
        },
    }


@register_suite(
    "tpu-v1",
    "TPU v1: applications and performance per watt",
    (APPS,),
    "operator",
    optional_files=(PLATFORMS, PER_WATT),
    findings=findings,
    quantity=QUANTITY,
)
def load(folder: DataFolder) -> list[Batch]:
    """Applications, what their counters say, and performance per watt."""
    apps = folder.table(APPS)
    if apps is None or not len(apps):
        return []
    batches = _applications(apps)
    platforms = folder.table(PLATFORMS) if folder.has(PLATFORMS) else None
    per_watt = folder.table(PER_WATT) if folder.has(PER_WATT) else None
    if platforms is not None and per_watt is not None and len(platforms) and len(per_watt):
        batches.append(_per_watt(per_watt, platforms, apps))
    if platforms is not None and len(platforms):
        batches += _busy_power(platforms)
    return batches


def _busy_power(platforms: Table) -> list[Batch]:
    """Power of a busy die, the applications weighted by their share of the fleet."""
    own = np.array(["tpu" in name.lower() for name in platforms["device"].tolist()])
    measured = platforms.take(own)["busy_w_per_die"]
    if not np.isfinite(measured).any():
        return []
    share = np.array(list(_FLEET_SHARE.values()))
    power = np.array([application_power_w(APPLICATIONS[name]) for name in _FLEET_SHARE])
    predicted = np.full(len(measured), float((share * power).sum() / share.sum()))
    quantity = "power of a busy die"
    label = np.full(len(measured), "fleet mix")
    return [
        quantity_batch(
            _device(), "TPU v1", label, {quantity: measured}, {quantity: predicted}, _SIGMA
        )
    ]


def _applications(apps: Table) -> list[Batch]:
    known = np.isin(apps["app"], list(APPLICATIONS))
    lost = apps.take(~known)
    names, measured = apps["app"].tolist(), apps["tops_achieved"]
    tops = np.array(
        [application_tops(APPLICATIONS[name]) if name in APPLICATIONS else np.nan for name in names]
    )
    counted = np.array(
        [from_counters(u / 100, n) for u, n in zip(apps["useful_macs_pct"], names, strict=True)]
    )
    fill = apps["useful_macs_pct"] / apps["array_active_pct"]
    predicted = {"TOPS": tops, "TOPS with array fill": tops * fill, "TOPS from counters": counted}
    quantities = dict.fromkeys(predicted, measured)
    batches = [quantity_batch(_device(), "TPU v1", apps["app"], quantities, predicted, _SIGMA)]
    if len(lost):
        group = np.full(len(lost), "TOPS")
        reason = "its layers' sizes are not published"
        batches.append(
            refused_batch("TPU v1", group, lost["app"], lost["tops_achieved"], reason, _device())
        )
    return batches


def _per_watt(table: Table, platforms: Table, apps: Table) -> Batch:
    """Performance per watt over the CPU server's, per die and at the servers' thermal
    design power.
    """
    label = np.array(
        [f"{metric} {mean}" for metric, mean in zip(table["metric"], table["mean"], strict=True)]
    )
    quantities: dict[str, FloatArray] = {}
    predicted: dict[str, FloatArray] = {}
    for chip, column in (("tpu", "tpu_vs_cpu"), ("gpu", "gpu_vs_cpu")):
        quantity = f"{chip.upper()} performance per watt over CPU"
        quantities[quantity] = table[column]
        predicted[quantity] = np.array(
            [
                _relative_performance(apps, chip, mean) * _power_ratio(platforms, chip, metric)
                for metric, mean in zip(
                    table["metric"].tolist(), table["mean"].tolist(), strict=True
                )
            ]
        )
    return quantity_batch(_device(), "TPU v1", label, quantities, predicted, _SIGMA)


def _power_ratio(platforms: Table, chip: str, metric: str) -> float:
    """Dies per watt of a server over those of the CPU's; incremental leaves out the host server."""
    servers = {
        key: index
        for index, name in enumerate(platforms["device"].tolist())
        for key in ("tpu", "k80", "haswell")
        if key in name.lower()
    }
    cpu, own = servers.get("haswell"), servers.get("k80" if chip == "gpu" else "tpu")
    if cpu is None or own is None:
        return float("nan")
    power, dies = platforms["server_tdp_w"], platforms["dies_per_server"]
    host = float(power[cpu]) if metric == "incremental" else 0.0
    return float(dies[own] / (power[own] - host) * power[cpu] / dies[cpu])


def _relative_performance(apps: Table, chip: str, mean: str) -> float:
    """Performance per die over the CPU's: the measured ratio, with the predicted TOPS in place of
    the measured for TPU v1.

    The geometric mean is over all six applications: where the table lacks some, table 6's mean is
    scaled by what is predicted over what is measured on the others. The weighted mean is over the
    applications whose share is published.
    """
    ratios = apps[f"{chip}_rel_cpu"]
    names = apps["app"].tolist()
    scale = np.ones(len(apps))
    if chip == "tpu":
        pairs = zip(names, apps["tops_achieved"], strict=True)
        scale = np.array(
            [application_tops(APPLICATIONS[n]) / t if n in APPLICATIONS else 1.0 for n, t in pairs]
        )
    usable = np.isfinite(ratios) & (ratios > 0)
    if mean == "geo":
        whole = int(usable.sum()) == _APPLICATION_COUNT
        measured = np.exp(np.log(ratios[usable]).mean()) if whole else _PUBLISHED_MEAN[chip]
        return float(measured * np.exp(np.log(scale[usable]).mean()))
    share = np.array([_FLEET_SHARE.get(name, 0.0) for name in names]) * usable
    return (
        float((share * np.where(usable, ratios, 0.0) * scale).sum() / share.sum())
        if share.sum()
        else float("nan")
    )
