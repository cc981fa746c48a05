"""Suite `gpu-operators`: single operators measured on GPUs, and DeepBench's GEMMs, convolutions and
recurrent layers.

Two sets. The first times one eager PyTorch call between CUDA events (FP32, TF32 off), so a row is
the call's launch and dispatch time plus what of its kernels the host's way back does not hide
(NeuSight, ASPLOS 2025, doi 10.1145/3669940.3707265). The second is DeepBench (Baidu Research), a
C++ loop of asynchronous calls: the prediction is the kernel and the gap between kernels of a
replayed graph. In the first set's GEMMs the contraction is column `n`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accelsim.calibration.fit.cells import TimedKernels
from accelsim.cost.gpu import GpuParameters, cost_gpu
from accelsim.cost.gpu.gpu_parameters import LoopConditions
from accelsim.cost.table import CostTable, Execution
from accelsim.errors import UnknownNameError
from accelsim.validation.columns import (
    ELEMENTWISE,
    conv_graph,
    gemm_graph,
    recurrent_graph,
    roofline_s,
    vector_graph,
)
from accelsim.validation.data_folder import (
    Column,
    DataFolder,
    Schema,
    Table,
    count_column,
    name_column,
    number,
    text,
    time_column,
)
from accelsim.validation.names import device_refusal, gpu_of, note_unknown_devices
from accelsim.validation.split import HELD_OUT_SHARE
from accelsim.validation.suite import Batch, Prediction, TextArray, refused_batch, register_suite
from accelsim.workloads.dtype import Dtype
from accelsim.workloads.graph import FloatArray, OperatorGraph
from accelsim.workloads.operator import OperatorKind

__all__ = [
    "CONV_SCHEMA",
    "DEEPBENCH_SCHEMA",
    "GEMM_SCHEMA",
    "VECTOR_SCHEMA",
    "KernelPrediction",
    "operator_batches",
]


def _names(*operators: str) -> tuple[Column, ...]:
    """Text columns of the eager set, with the operators a table may hold."""
    return (*name_column("op", allowed=operators), *name_column("device"), *text("split"))


#: Two runs of one configuration differ by up to 8 % in this set. DeepBench lists layers, some of
#: them twice: no key.
_REPEAT = 0.10
GEMM_SCHEMA = Schema(
    "gpu_kernels/ops_gemm.csv.gz",
    (*_names("bmm", "linear"), *count_column("b", "m", "n", "k"), *time_column("latency_ms")),
    ("op", "device", "split", "b", "m", "n", "k"),
    _REPEAT,
)
VECTOR_SCHEMA = Schema(
    "gpu_kernels/ops_vec.csv.gz",
    (*_names(*ELEMENTWISE, "softmax", "ln"), *count_column("b", "h"), *time_column("latency_ms")),
    ("op", "device", "split", "b", "h"),
    _REPEAT,
)
_CONV_SIZES = ("b", "c_in", "c_out", "ksize", "in_hw", "stride", "pad")
CONV_SCHEMA = Schema(
    "gpu_kernels/ops_conv.csv.gz",
    (*_names("conv"), *count_column(*_CONV_SIZES[:-1]), *number("pad"), *time_column("latency_ms")),
    ("op", "device", "split", *_CONV_SIZES),
    _REPEAT,
)
_BENCH_SIZES = (
    *("m", "n", "k"),
    *("w", "h_", "c", "r", "s", "pad_h", "pad_w", "stride_h", "stride_w"),
    *("hidden", "batch", "steps", "floats", "ranks"),
)
DEEPBENCH_SCHEMA = Schema(
    "gpu_kernels/deepbench_train.csv.gz",
    (
        *name_column(
            "op", allowed=("gemm", "conv", "rnn_vanilla", "rnn_lstm", "rnn_gru", "allreduce")
        ),
        *name_column("device"),
        *text("precision", "ta", "tb"),
        *number(*_BENCH_SIZES, optional=True),
        *time_column("fwd_ms", "bwd_in_ms", "bwd_w_ms", optional=True),
    ),
)
_BENCH_DTYPES = {"fp32": Dtype.FP32, "fp16_mixed": Dtype.FP16}
_BENCH_RNN = {
    "rnn_vanilla": OperatorKind.RNN,
    "rnn_lstm": OperatorKind.LSTM,
    "rnn_gru": OperatorKind.GRU,
}
#: DeepBench has few shapes: half of them are kept from fits.
_BENCH_HELD_OUT = 0.5
#: Rows shorter than this measure the launch more than the kernel.
_LONG_S = 1e-4


def labels(*columns: Any) -> TextArray:
    """One text per row: the columns joined with blanks, whole numbers without a point."""
    parts = [
        c.astype(np.int64).astype(str) if c.dtype.kind == "f" else c.astype(str) for c in columns
    ]
    joined = parts[0]
    for part in parts[1:]:
        joined = np.char.add(np.char.add(joined, " "), part)
    result: TextArray = joined
    return result


def operator_batches(
    table: Table,
    build: Callable[[Table], OperatorGraph],
    label: Callable[[Table], TextArray],
    group: Callable[[Table], TextArray],
    time_column_name: str,
    *,
    execution: Execution,
    fit_source: str,
    layout: Callable[[Table], NDArray[np.bool_]] | None = None,
) -> Iterator[Batch]:
    """One batch per device of a table of operators.

    Args:
        table: The rows.
        build: Makes a graph with one row per table row.
        label: Names each row's shape.
        group: Names each row's operator.
        time_column_name: Measured column, ms.
        execution: How the measurement issued its calls.
        fit_source: Data set the rows belong to.
        layout: Says of GEMMs whether their left operand has m contiguous; not known where None.
    """
    for device in np.unique(table["device"]).tolist():
        rows = table.take(table["device"] == device)
        measured = rows[time_column_name] * 1e-3
        names, shapes = group(rows), label(rows)
        try:
            profile = gpu_of(device)
        except UnknownNameError as error:
            yield refused_batch(device, names, shapes, measured, device_refusal(error))
            continue
        graph = build(rows)
        yield Batch(
            device=device,
            profile=profile,
            group=names,
            label=shapes,
            measured_s=measured,
            roofline_s=roofline_s(graph, profile),
            predict=KernelPrediction(graph, profile, execution, layout(rows) if layout else None),
            views=_views(names, measured),
            fit_source=fit_source,
            held_out_share=_BENCH_HELD_OUT
            if fit_source == DEEPBENCH_SCHEMA.file
            else HELD_OUT_SHARE,
        )


def _views(group: TextArray, measured_s: FloatArray) -> tuple[tuple[str, NDArray[np.bool_]], ...]:
    """Elementwise operators together, where the kernel and not the launch is measured."""
    long = np.isin(group, ELEMENTWISE) & (measured_s > _LONG_S)
    return (("elementwise > 0.1 ms", long),) if long.any() else ()


@dataclass(frozen=True, slots=True, eq=False)
class KernelPrediction(TimedKernels):
    """What the timers of a table read, predicted row by row.

    Eager calls come one by one, amid thousands of other shapes; replayed ones (DeepBench, 2016 to
    2018) run in long loops, with the libraries of their day.
    """

    def __call__(self, parameters: Any | None) -> Prediction:
        """Predict every row."""
        used = GpuParameters.class_wide() if parameters is None else parameters
        costs = self.costs(used)
        return Prediction(self.call_s(costs, used), costs.log_sigma)

    def costs(self, parameters: GpuParameters) -> CostTable:
        """Cost every row under the conditions of the measurement."""
        is_eager = self.execution is Execution.EAGER
        dispatch = parameters.dispatch
        issued_s = dispatch.convolution_s + dispatch.plan_lookup_s * is_eager
        as_measured = replace(
            parameters,
            is_isolated=is_eager,
            is_early_library=not is_eager,
            dispatch=replace(dispatch, convolution_s=issued_s),
        )
        if self.is_m_contiguous is not None:
            once = np.full(len(self.graph), np.inf)  # nothing of it stays in the cache
            conditions = LoopConditions(
                once, np.zeros_like(once), is_m_contiguous=self.is_m_contiguous
            )
            as_measured = replace(as_measured, conditions=conditions)
        return cost_gpu(self.graph, self.profile, self.execution, as_measured)


def _gemm(table: Table) -> OperatorGraph:
    m, n, k = table["m"], table["k"], table["n"]  # column n of the file is the contraction
    return gemm_graph(table["b"], m, n, k, Dtype.FP32, batched=table["op"] == "bmm")


def _conv(table: Table) -> OperatorGraph:
    return conv_graph(
        OperatorKind.CONV,
        table["b"],
        (table["c_in"], table["c_out"]),
        (table["in_hw"], table["in_hw"]),
        (table["ksize"], table["ksize"]),
        (table["pad"], table["pad"]),
        table["stride"],
        Dtype.FP32,
    )


_SETS: Sequence[tuple[Schema, Callable[[Table], OperatorGraph], tuple[str, ...]]] = (
    (GEMM_SCHEMA, _gemm, ("op", "b", "m", "n", "k")),
    (VECTOR_SCHEMA, lambda rows: vector_graph(rows["op"], rows["b"], rows["h"]), ("op", "b", "h")),
    (CONV_SCHEMA, _conv, ("op", *_CONV_SIZES)),
)


@register_suite(
    "gpu-operators",
    "single operators on GPUs: eager FP32 calls, and DeepBench",
    (),
    "operator",
    optional_files=(GEMM_SCHEMA, VECTOR_SCHEMA, CONV_SCHEMA, DEEPBENCH_SCHEMA),
    fits_folder=True,
)
def load(folder: DataFolder) -> list[Batch]:
    """Batches of every table that is there."""
    batches: list[Batch] = []
    for schema, build, shape in _SETS:
        if (table := folder.table(schema)) is not None:
            note_unknown_devices(folder, table, find=gpu_of)
            batches += operator_batches(
                table,
                build,
                lambda rows, shape=shape: labels(*(rows[name] for name in shape)),  # type: ignore[misc]
                lambda rows: rows["op"],
                "latency_ms",
                execution=Execution.EAGER,
                fit_source=schema.file,
            )
    if (bench := folder.table(DEEPBENCH_SCHEMA)) is not None:
        note_unknown_devices(folder, bench, find=gpu_of)
        batches += _deepbench(bench)
    return batches


def _deepbench(table: Table) -> Iterator[Batch]:
    """DeepBench: refusals first, then every operator, format and pass."""
    collective = table["op"] == "allreduce"
    pseudo = ~np.isin(table["precision"], list(_BENCH_DTYPES)) & ~collective
    yield from _refused(
        table.take(collective), "all-reduce needs several devices: no row of this suite"
    )
    yield from _refused(
        table.take(pseudo), "FP16 storage with FP32 arithmetic is no format of the model"
    )
    for precision, dtype in _BENCH_DTYPES.items():
        rows = table.take((table["precision"] == precision) & ~collective)
        for op in np.unique(rows["op"]).tolist():
            yield from _bench_operator(rows.take(rows["op"] == op), str(op), dtype)


def _refused(table: Table, reason: str) -> Iterator[Batch]:
    for device in np.unique(table["device"]).tolist():
        rows = table.take(table["device"] == device)
        yield refused_batch(
            device, labels(rows["op"]), labels(rows["op"]), rows["fwd_ms"] * 1e-3, reason
        )


def _bench_operator(table: Table, op: str, dtype: Dtype) -> Iterator[Batch]:
    """Batches of one operator: one per device and pass."""
    name = f"{op.replace('_', '-')}-{dtype.label}"
    if op == "gemm":
        shape = ("m", "n", "k", "ta", "tb")
        yield from _bench_pass(
            table,
            "fwd_ms",
            name,
            lambda rows: _bench_gemm(rows, dtype),
            shape,
            lambda rows: rows["ta"] == "N",
        )
    elif op == "conv":
        for column, suffix, kind in _CONV_PASSES:
            yield from _bench_pass(
                table,
                column,
                name + suffix,
                partial(_bench_conv, kind=kind, dtype=dtype),
                _BENCH_CONV,
            )
    elif op in _BENCH_RNN:
        build = partial(_bench_rnn, kind=_BENCH_RNN[op], dtype=dtype)
        yield from _bench_pass(table, "fwd_ms", name, build, ("hidden", "batch", "steps"))
    else:
        yield from _refused(table, f"unknown operator {op}")


_BENCH_CONV = ("n", "c", "k", "h_", "w", "r", "s", "pad_h", "pad_w", "stride_h")
_CONV_PASSES = (
    ("fwd_ms", "", OperatorKind.CONV),
    ("bwd_in_ms", "-data", OperatorKind.CONV_BACKWARD_DATA),
    ("bwd_w_ms", "-weight", OperatorKind.CONV_BACKWARD_WEIGHT),
)


def _bench_pass(
    table: Table,
    column: str,
    name: str,
    build: Callable[[Table], OperatorGraph],
    shape: tuple[str, ...],
    layout: Callable[[Table], NDArray[np.bool_]] | None = None,
) -> Iterator[Batch]:
    rows = table.take(np.isfinite(table[column]))
    sizes = [size for size in shape if rows[size].dtype.kind == "f"]
    known = np.ones(len(rows), dtype=np.bool_)
    for size in sizes:
        known &= rows[size] >= (0 if size.startswith("pad") else 1)  # False where it is empty, too
    yield from _refused(rows.take(~known), "a size of the operator is missing or 0")
    rows = rows.take(known)
    if len(rows):
        yield from operator_batches(
            rows,
            build,
            lambda part: labels(np.full(len(part), name), *(part[size] for size in shape)),
            lambda part: np.full(len(part), name),
            column,
            execution=Execution.GRAPH,
            fit_source=DEEPBENCH_SCHEMA.file,
            layout=layout,
        )


def _bench_gemm(table: Table, dtype: Dtype) -> OperatorGraph:
    ones = np.ones(len(table))
    return gemm_graph(
        ones,
        table["m"],
        table["n"],
        table["k"],
        dtype,
        batched=np.zeros(len(table), dtype=np.bool_),
    )


def _bench_rnn(table: Table, kind: OperatorKind, dtype: Dtype) -> OperatorGraph:
    return recurrent_graph(kind, table["batch"], table["steps"], table["hidden"], dtype)


def _bench_conv(table: Table, kind: OperatorKind, dtype: Dtype) -> OperatorGraph:
    return conv_graph(
        kind,
        table["n"],
        (table["c"], table["k"]),
        (table["h_"], table["w"]),
        (table["r"], table["s"]),
        (table["pad_h"], table["pad_w"]),
        table["stride_h"],
        dtype,
    )
