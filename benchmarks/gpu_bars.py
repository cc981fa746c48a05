"""Accuracy of the GPU cost model at tier `spec` against measured end-to-end times.

    python benchmarks/gpu_bars.py --data DIR

DIR holds the reference tables. Three bars: 41 transformer runs (operator lists given), ResNet-50 inference over batch
sizes on V100 and T4, and convolutional networks on a GTX 1080. No parameter of the model was fitted to any of these rows.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from accelsim import catalog
from accelsim.cost.gpu import GpuParameters, cost_gpu
from accelsim.hardware.profile import GpuProfile
from accelsim.workload_catalog import workload
from accelsim.workloads.dtype import Dtype, precision
from accelsim.workloads.graph import FloatArray, OperatorGraph
from accelsim.workloads.model import RunShape
from accelsim.workloads.operator import MAX_DIMENSIONS, OperatorKind, Phase
from accelsim.workloads.training import OPTIMIZERS, training_graph

DEVICES = {
    "A100-40": "a100-pcie-40gb",
    "V100": "v100-pcie-32gb",
    "P100": "p100-pcie-16gb",
    "T4": "t4",
    "P4": "p4",
    "MI100": "mi100",
    "V100-16GB": "v100-sxm2-16gb",
    "GTX 1080": "gtx-1080",
}
CNN_NAMES = {"AlexNet": "alexnet", "Inception-V1": "googlenet"}
_K = OperatorKind
_TWO_INPUTS = ("add", "mul", "div", "pow")
_FLOP_PER_ELEMENT = {"pow": 20, "powu": 20, "gelu": 8, "tanh": 6, "softmax": 6, "ln": 8}


def gpu(name: str) -> GpuProfile:
    profile = catalog.device(DEVICES[name])
    assert isinstance(profile, GpuProfile)
    return profile


def lowered_operators(table: pd.DataFrame) -> OperatorGraph:
    """The operator list of one run as a graph of FP32 rows; every row stands for `repeat` executions."""
    count = len(table)
    op = table["op"].to_numpy(dtype=str)
    b, m, n, k, h = (table[c].to_numpy(dtype=np.float64) for c in ("b", "m", "n", "k", "h"))
    moved = table["bytes"].to_numpy(dtype=np.float64)
    product, copy = np.isin(op, ["linear", "bmm"]), op == "mem"
    row_wise = np.isin(op, ["softmax", "ln"])
    elements = b * h
    per_element = np.array([_FLOP_PER_ELEMENT.get(o, 1) for o in op])
    inputs = np.where(np.isin(op, _TWO_INPUTS), 2, 1)
    kinds = {"linear": _K.GEMM, "bmm": _K.BATCHED_GEMM, "mem": _K.COPY, "softmax": _K.SOFTMAX, "ln": _K.LAYER_NORM}
    dims = np.zeros((count, MAX_DIMENSIONS), dtype=np.int64)
    dims[:, 0] = np.where(product | row_wise, b, np.where(copy, moved / 8, elements))
    dims[:, 1] = np.where(product, m, np.where(row_wise, h, np.where(copy, 0, inputs)))
    dims[:, 2] = np.where(
        product, k, np.where(row_wise | copy, 0, per_element)
    )  # k is the output width, n the contraction
    dims[:, 3] = np.where(product, n, 0)
    read = np.where(product, 4 * b * (m * n + n * k), np.where(copy, moved / 2, 4 * elements * inputs))
    write = np.where(product, 4 * b * m * k, np.where(copy, moved / 2, 4 * elements))
    flop = np.where(product, 2 * b * m * n * k, np.where(copy, 0, per_element * elements))
    offset = np.zeros(count + 1, dtype=np.int64)
    names = tuple(table["name"].astype(str))
    return OperatorGraph(
        kind=np.array([kinds.get(o, _K.ELEMENTWISE) for o in op], dtype=np.int16),
        dims=dims,
        dtype=np.full(count, int(Dtype.FP32), dtype=np.int8),
        phase=np.zeros(count, dtype=np.int8),
        flop=flop,
        read_bytes=read,
        write_bytes=write,
        weight_bytes=np.zeros(count),
        saved_bytes=np.zeros(count),
        name=names,
        path=names,
        dependency_offset=offset,
        dependency=np.zeros(0, dtype=np.int64),
    )


def roofline_s(graph: OperatorGraph, device: GpuProfile) -> FloatArray:
    """max(FLOP / peak, bytes / bandwidth) of each row, with the board's best FP32 rate."""
    bandwidth = device.memory_bandwidth_bytes_per_s or np.nan
    bound: FloatArray = np.maximum(graph.flop / device.peak_flop_per_s[Dtype.FP32], graph.bytes / bandwidth)
    return bound


def issued_time_s(time_s: FloatArray, dispatch_s: FloatArray) -> float:
    """End of the last row when the host issues rows one after the other and the device runs them in order."""
    issued = np.cumsum(dispatch_s)
    after = np.cumsum(time_s[::-1])[::-1]  # from the start of each row to the end of the last
    return float((issued + after).max())


def transformer_runs(data: Path, parameters: GpuParameters | None = None) -> pd.DataFrame:
    """Predicted and measured time of each labelled run, s."""
    labels = pd.read_csv(data / "gpu_kernels" / "e2e_labels.csv")
    lists = pd.read_csv(data / "gpu_kernels" / "e2e_opgraphs.csv.gz")
    columns = labels[["model", "mode", "seq", "batch"]].astype(str)
    labels["desc"] = columns.agg("-".join, axis=1)
    rows = []
    for desc, table in lists[lists.desc.isin(set(labels.desc))].groupby("desc"):
        graph, repeat = lowered_operators(table), table["repeat"].to_numpy(dtype=np.float64)
        for label in labels[labels.desc == desc].itertuples():
            device = gpu(label.device)
            costs = cost_gpu(graph, device, parameters=parameters)
            predicted = issued_time_s(costs.time_s * repeat, costs.dispatch_s * repeat)
            roofline = float((roofline_s(graph, device) * repeat).sum())
            rows.append((label.device, desc, label.e2e_ms * 1e-3, predicted, roofline))
    return pd.DataFrame(rows, columns=["device", "run", "measured_s", "predicted_s", "roofline_s"])


def resnet_runs(data: Path, parameters: GpuParameters | None = None) -> pd.DataFrame:
    """ResNet-50 inference latency over batch sizes, eager PyTorch, FP32 and FP16 (mixed precision)."""
    table = pd.read_csv(data / "claims" / "reference_measurements.csv")
    use = (
        table.workload.str.startswith("ResNet-50 v1.5")
        & (table.phase == "inference")
        & table.device.isin(["V100-16GB", "T4"])
        & (table.metric == "latency_avg")
    )
    rows = []
    for row in table[use].itertuples():
        graph = workload("resnet-50").lower(RunShape(batch=int(row.batch)), precision(row.precision)).graph
        costs = cost_gpu(graph, gpu(row.device), parameters=parameters)
        predicted = issued_time_s(costs.time_s, costs.dispatch_s)
        roofline = float(
            np.maximum(graph.flop / _peak(row.device, row.precision), graph.bytes / _bandwidth(row.device)).sum()
        )
        rows.append((f"{row.device} {row.precision}", f"batch {row.batch}", row.value * 1e-3, predicted, roofline))
    return pd.DataFrame(rows, columns=["device", "run", "measured_s", "predicted_s", "roofline_s"])


def _peak(device: str, name: str) -> float:
    return gpu(device).peak_flop_per_s[precision(name).compute]


def _bandwidth(device: str) -> float:
    return gpu(device).memory_bandwidth_bytes_per_s or np.nan


def cnn_runs(data: Path, parameters: GpuParameters | None = None) -> pd.DataFrame:
    """Forward, backward and both of convolutional networks on a GTX 1080 (Torch7, cuDNN 5.0 and 5.1, batch 16).

    Rows without cuDNN are of another library (explicit im2col) and are left out.
    """
    table = pd.read_csv(data / "claims" / "reference_measurements.csv")
    source = table.source.str.startswith("jcjohnson/cnn-benchmarks")
    use = (table.device == "GTX 1080") & source & (table.metric == "latency") & table.note.str.contains("cuDNN 5")
    rows = []
    for row in table[use].itertuples():
        time_s, dispatch_s, graph = _cnn_costs(row.workload, int(row.batch), row.phase, parameters)
        predicted = issued_time_s(time_s, dispatch_s)
        device = gpu("GTX 1080")
        run = f"{row.workload} {row.phase} {row.note.split(',')[1].strip()}"
        rows.append(("GTX 1080", run, row.value * 1e-3, predicted, float(roofline_s(graph, device).sum())))
    return pd.DataFrame(rows, columns=["device", "run", "measured_s", "predicted_s", "roofline_s"])


def _cnn_costs(model: str, batch: int, phase: str, parameters: GpuParameters | None):
    name = CNN_NAMES.get(model, model.lower())
    lowered = workload(name).lower(RunShape(batch=batch, image_size=224), precision("fp32"))
    step = training_graph(
        lowered.graph, lowered.parameter_count, lowered.parameter_tensor_count, precision("fp32"), OPTIMIZERS["sgd"]
    )
    wanted = {
        "forward": [Phase.FORWARD],
        "backward": [Phase.BACKWARD, Phase.GRADIENT],
        "train_step": [Phase.FORWARD, Phase.BACKWARD, Phase.GRADIENT],
    }[phase]
    rows = np.isin(step.phase, [int(p) for p in wanted])
    costs = cost_gpu(step, gpu("GTX 1080"), parameters=parameters)
    return costs.time_s[rows], costs.dispatch_s[rows], step.take(rows)


def summarise(runs: pd.DataFrame) -> pd.DataFrame:
    """MAPE, median, 90th percentile and largest error per device, and the roofline's MAPE."""
    runs = runs.assign(
        error=(runs.predicted_s / runs.measured_s - 1).abs(), roofline=(runs.roofline_s / runs.measured_s - 1).abs()
    )
    grouped = runs.groupby("device")
    return pd.DataFrame(
        {
            "n": grouped.size(),
            "mape": grouped.error.mean(),
            "median": grouped.error.median(),
            "p90": grouped.error.quantile(0.9),
            "max": grouped.error.max(),
            "roofline_mape": grouped.roofline.mean(),
        }
    )


def report(title: str, runs: pd.DataFrame, *, rows: bool) -> None:
    print(f"\n== {title}")
    error = runs.predicted_s / runs.measured_s - 1
    if rows:
        print(runs.assign(error=error).round(4).to_string(index=False))
    print(summarise(runs).round(3).to_string())
    print(f"all {len(runs)} rows: MAPE {error.abs().mean():.3f}, median {error.abs().median():.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the reference tables; without it nothing is scored")
    parser.add_argument("--rows", action="store_true", help="print every run")
    options = parser.parse_args()
    if options.data is None:
        print("left out: needs --data DIR, the folder of the reference tables")
        return
    transformers = transformer_runs(options.data)
    report(
        "transformers, FP32 eager (bar: MAPE <= 0.20 without P4; below roofline on every device)",
        transformers,
        rows=options.rows,
    )
    others = transformers[transformers.device != "P4"]
    print(f"without P4: MAPE {(others.predicted_s / others.measured_s - 1).abs().mean():.3f}")
    report("ResNet-50 inference (bar: median <= 0.20)", resnet_runs(options.data), rows=options.rows)
    report("CNNs on GTX 1080 (bar: median <= 0.20)", cnn_runs(options.data), rows=options.rows)


if __name__ == "__main__":
    main()
