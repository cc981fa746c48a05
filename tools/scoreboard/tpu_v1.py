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
power and the class's energy of operations and bytes, neither fitted. The table does not say under
which load it was measured.

Table 3's counters and its TOPS come from different runs (its caption). The findings hold what the
counters alone would say: useful multiply-adds times peak, halved for the LSTMs, whose 16-bit
activations run at half rate (section 2). For CNN0 that is 72 TOPS where 86 were measured: 78.2 %
active cycles and 86 of 92 TOPS cannot be of one run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from accelsim import catalog
from accelsim.cost.idle import idle_power_w
from accelsim.cost.systolic import cost_systolic
from accelsim.cost.table import CostTable
from accelsim.dtype import precision
from accelsim.estimation.evidence import residual_log_sigma
from accelsim.estimation.likeness import Setting
from accelsim.frozen import frozen
from accelsim.hardware.profile import AsicProfile
from accelsim.scoreboard.data_folder import DataFolder, Table, published, schema
from accelsim.scoreboard.suite import MeasuredBatch, refused_batch, register_suite
from accelsim.workloads.builder import GraphBuilder
from accelsim.workloads.graph import FloatArray, OperatorGraph, TextArray
from tools.scoreboard.quantity_batches import QUANTITY, quantity_batch

APPS = schema("asic/tpuv1_apps.csv")
PLATFORMS = schema("asic/tpuv1_platforms.csv")
PER_WATT = schema("asic/tpuv1_perf_per_watt.csv")
#: What the applications are like.
_LIKE = Setting("inference", "int8", "other")
_PEAK_TOPS = 92.0
_PUBLISHED = published("tpuv1_applications")
_FLEET_SHARE = _PUBLISHED["fleet_share"]
_APPLICATION_COUNT = 6
_SIDE = 256


@frozen
class Application:
    """One row of table 1.

    Attributes:
        matrices: Layers with weights.
        vectors: Elementwise layers.
        weights: Parameters.
        batch: Inferences together.
        operations_per_weight_byte: Multiply-adds per weight of convolutions; 0 of square matrices.
        activation_bytes: 2 where activations have 16 bits.
    """

    matrices: int
    vectors: int
    weights: float
    batch: int
    operations_per_weight_byte: float = 0.0
    activation_bytes: int = 1


#: Table 1, but for CNN1.
APPLICATIONS: Mapping[str, Application] = {
    name: Application(**entry) for name, entry in _PUBLISHED["applications"].items()
}


def application_graph(app: Application) -> OperatorGraph:
    """Layers with the published number, weights, batch and intensity."""
    builder = GraphBuilder(precision("int8"))
    if app.operations_per_weight_byte:
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
    tops = {name: round(application_tops(app), 2) for name, app in APPLICATIONS.items()}
    power = {name: round(application_power_w(app), 1) for name, app in APPLICATIONS.items()}
    return {"predicted_tops": tops, "predicted_power_w": power}


@register_suite(
    "tpu-v1",
    "TPU v1: applications and performance per watt",
    (APPS,),
    "operator",
    optional_files=(PLATFORMS, PER_WATT),
    findings=findings,
    quantity=QUANTITY,
)
def load(folder: DataFolder) -> list[MeasuredBatch]:
    """Applications, what their counters say, and performance per watt."""
    apps = folder.filled(APPS)
    if apps is None:
        return []
    batches = _applications(apps)
    if (platforms := folder.filled(PLATFORMS)) is not None:
        if (per_watt := folder.filled(PER_WATT)) is not None:
            batches.append(_per_watt(per_watt, platforms, apps))
        batches.append(_busy_power(platforms))
    return batches


def _batch(
    label: TextArray, measured: Mapping[str, FloatArray], predicted: Mapping[str, FloatArray]
) -> MeasuredBatch:
    sigma = residual_log_sigma("asic", _LIKE)  # one chip says little: the spread of its class
    return quantity_batch(_device(), "TPU v1", label, measured, predicted, sigma)


def _busy_power(platforms: Table) -> MeasuredBatch:
    """Power of a busy die, the applications weighted by their share of the fleet."""
    own = np.char.find(np.char.lower(platforms["device"]), "tpu") >= 0
    measured = platforms["busy_w_per_die"][own]
    share = np.array(list(_FLEET_SHARE.values()))
    power = np.array([application_power_w(APPLICATIONS[name]) for name in _FLEET_SHARE])
    predicted = np.full(len(measured), (share * power).sum() / share.sum())
    name = "power of a busy die"
    label = np.full(len(measured), "fleet mix")
    return _batch(label, {name: measured}, {name: predicted})


def _applications(apps: Table) -> list[MeasuredBatch]:
    names = apps["app"].tolist()
    useful = apps["useful_macs_pct"]
    tops = np.array(
        [application_tops(APPLICATIONS[name]) if name in APPLICATIONS else np.nan for name in names]
    )
    counted = [from_counters(share, name) for share, name in zip(useful / 100, names, strict=True)]
    fill = useful / apps["array_active_pct"]
    predicted = {
        "TOPS": tops,
        "TOPS with array fill": tops * fill,
        "TOPS from counters": np.array(counted),
    }
    measured = dict.fromkeys(predicted, apps["tops_achieved"])
    batches = [_batch(apps["app"], measured, predicted)]
    lost = apps.take(np.isnan(tops))
    if len(lost):
        columns = (np.full(len(lost), "TOPS"), lost["app"], lost["tops_achieved"])
        reason = "its layers' sizes are not published"
        batches.append(refused_batch("TPU v1", *columns, reason, _device()))
    return batches


def _per_watt(table: Table, platforms: Table, apps: Table) -> MeasuredBatch:
    """Performance per watt over the CPU server's, per die and at the servers' thermal
    design power.
    """
    rows = list(zip(table["metric"].tolist(), table["mean"].tolist(), strict=True))
    label = np.array([" ".join(row) for row in rows])
    measured: dict[str, FloatArray] = {}
    predicted: dict[str, FloatArray] = {}
    for chip in ("tpu", "gpu"):
        quantity = f"{chip.upper()} performance per watt over CPU"
        measured[quantity] = table[f"{chip}_vs_cpu"]
        ratios = [
            _relative_performance(apps, chip, mean) * _power_ratio(platforms, chip, metric)
            for metric, mean in rows
        ]
        predicted[quantity] = np.array(ratios)
    return _batch(label, measured, predicted)


def _power_ratio(platforms: Table, chip: str, metric: str) -> float:
    """Dies per watt of a server over those of the CPU's; incremental leaves out the host server."""
    servers = {
        key: index
        for index, name in enumerate(platforms["device"].tolist())
        for key in ("tpu", "k80", "haswell")
        if key in name.lower()
    }
    cpu = servers.get("haswell")
    own = servers.get("k80" if chip == "gpu" else "tpu")
    if cpu is None or own is None:
        return float("nan")
    power = platforms["server_tdp_w"]
    dies = platforms["dies_per_server"]
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
        measured = zip(names, apps["tops_achieved"], strict=True)
        scale = np.array(
            [
                application_tops(APPLICATIONS[name]) / tops if name in APPLICATIONS else 1.0
                for name, tops in measured
            ]
        )
    usable = np.isfinite(ratios) & (ratios > 0)
    if mean == "geo":
        whole = int(usable.sum()) == _APPLICATION_COUNT
        mean_ratio = (
            np.exp(np.log(ratios[usable]).mean()) if whole else _PUBLISHED["mean_over_cpu"][chip]
        )
        return float(mean_ratio * np.exp(np.log(scale[usable]).mean()))
    share = np.array([_FLEET_SHARE.get(name, 0.0) for name in names]) * usable
    return float((share * np.where(usable, ratios, 0.0) * scale).sum() / share.sum())
