"""Suite `gpu-operators`: single operators measured on GPUs, and DeepBench's GEMMs, convolutions and
recurrent layers.

Two sets. The first times one eager PyTorch call between CUDA events (FP32, TF32 off), so a row is
the call's launch and dispatch time plus what of its kernels the host's way back does not hide
(NeuSight, ASPLOS 2025, doi 10.1145/3669940.3707265). The second is DeepBench (Baidu Research), a
C++ loop of asynchronous calls: the prediction is the kernel and the gap between kernels of a
replayed graph. In the first set's GEMMs the contraction is column `n`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from accelsim.calibration.fit.cells import TimedKernels
from accelsim.cost.gpu import GpuParameters, cost_gpu
from accelsim.cost.table import CostTable, Execution
from accelsim.dtype import Dtype
from accelsim.errors import UnknownNameError
from accelsim.frozen import frozen
from accelsim.scoreboard.columns import ELEMENTWISE, roofline_s
from accelsim.scoreboard.data_folder import DataFolder, Table, schema
from accelsim.scoreboard.names import device_refusal, gpu_of, note_unknown_devices
from accelsim.scoreboard.split import HELD_OUT_SHARE
from accelsim.scoreboard.suite import MeasuredBatch, Prediction, refused_batch, register_suite
from accelsim.workloads.graph import BoolArray, FloatArray, OperatorGraph, TextArray
from accelsim.workloads.operator import OperatorKind
from tools.scoreboard.operator_columns import (
    Window,
    conv_graph,
    gemm_graph,
    recurrent_graph,
    vector_graph,
)

GEMM_SCHEMA = schema("gpu_kernels/ops_gemm.csv.gz")
VECTOR_SCHEMA = schema("gpu_kernels/ops_vec.csv.gz")
CONV_SCHEMA = schema("gpu_kernels/ops_conv.csv.gz")
DEEPBENCH_SCHEMA = schema("gpu_kernels/deepbench_train.csv.gz")
_CONV_SIZES = ("b", "c_in", "c_out", "ksize", "in_hw", "stride", "pad")
_BENCH_DTYPES = {"fp32": Dtype.FP32, "fp16_mixed": Dtype.FP16}
_BENCH_RNN = {
    "rnn_vanilla": OperatorKind.RNN,
    "rnn_lstm": OperatorKind.LSTM,
    "rnn_gru": OperatorKind.GRU,
}
#: DeepBench has few shapes: half of them are kept from fits.
_BENCH_HELD_OUT = 0.5
#: Energy of matrix arithmetic on zeros over that on numbers, of which no wire flips. DeepBench's
#: operands in 16 bits are zeros: uniform numbers below 1, copied to whole ones (tensor.h, `rand`).
#: Estimate: what operands are changes a board's draw by almost 40 % (Gregersen et al., "Input-
#: Dependent Power Usage in GPUs", arXiv:2409.18324, 2024), a fifth of which does no work.
_ZEROS_ENERGY = 0.5
#: Rows shorter than this measure the launch more than the kernel.
_LONG_S = 1e-4


def labels(*columns: Any) -> TextArray:
    """One text per row: the columns joined with blanks, whole numbers without a point."""
    joined, *others = (
        column.astype(np.int64).astype(str) if column.dtype.kind == "f" else column.astype(str)
        for column in columns
    )
    for part in others:
        joined = np.char.add(np.char.add(joined, " "), part)
    result: TextArray = joined
    return result


@frozen
class _Operators:
    """How rows of a table are predicted.

    Attributes:
        file: Table.
        build: Makes a graph with one row per table row.
        shape: Columns that name a row's shape.
        column: Measured column, ms.
        name: Operator; that of the row where empty.
        is_bench: Whether calls came in a loop, as in DeepBench.
    """

    file: str
    build: Callable[[Table], OperatorGraph]
    shape: tuple[str, ...]
    column: str = "latency_ms"
    name: str = ""
    is_bench: bool = False

    def batches(self, table: Table) -> Iterator[MeasuredBatch]:
        """One batch per device."""
        for device, rows in _by_device(table):
            measured = rows[self.column] * 1e-3
            names = np.full(len(rows), self.name) if self.name else rows["op"]
            shapes = labels(names, *(rows[size] for size in self.shape))
            try:
                profile = gpu_of(device)
            except UnknownNameError as error:
                yield refused_batch(device, names, shapes, measured, device_refusal(error))
                continue
            graph = self.build(rows)
            execution = Execution.GRAPH if self.is_bench else Execution.EAGER
            yield MeasuredBatch(
                device=device,
                profile=profile,
                group=names,
                label=shapes,
                measured_s=measured,
                roofline_s=roofline_s(graph, profile),
                predict=KernelPrediction(graph, profile, execution),
                views=_views(names, measured),
                fit_source=self.file,
                held_out_share=_BENCH_HELD_OUT if self.is_bench else HELD_OUT_SHARE,
            )


def _by_device(table: Table) -> Iterator[tuple[str, Table]]:
    for device in np.unique(table["device"]).tolist():
        yield device, table.take(table["device"] == device)


def _views(group: TextArray, measured_s: FloatArray) -> tuple[tuple[str, BoolArray], ...]:
    """Elementwise operators together, where the kernel and not the launch is measured."""
    long = np.isin(group, ELEMENTWISE) & (measured_s > _LONG_S)
    return (("elementwise > 0.1 ms", long),) if long.any() else ()


@frozen(eq=False)
class KernelPrediction(TimedKernels):
    """What the timers of a table read, predicted row by row.

    Eager calls come one by one, amid thousands of other shapes; replayed ones (DeepBench, 2016 to
    2018) run in long loops, with the libraries of their day, on zeros where their operands have
    16 bits.
    """

    def __call__(self, parameters: Any | None) -> Prediction:
        """Predict every row."""
        used = GpuParameters.class_wide() if parameters is None else parameters
        costs = self.costs(used)
        return Prediction(self.call_s(costs, used), costs.log_sigma)

    def costs(self, parameters: GpuParameters) -> CostTable:
        """Cost every row under the conditions of the measurement."""
        is_eager = self.execution is Execution.EAGER
        parameters = parameters.of_vendor(self.profile.vendor)
        dispatch = parameters.dispatch
        issued_s = dispatch.convolution_s + dispatch.plan_lookup_s * is_eager
        power = parameters.power
        if not is_eager:
            overhead = power.matrix_energy_overhead * _ZEROS_ENERGY
            power = replace(power, matrix_energy_overhead=overhead)
        as_measured = replace(
            parameters,
            power=power,
            is_isolated=is_eager,
            is_early_library=not is_eager,
            dispatch=replace(dispatch, convolution_s=issued_s),
        )
        return cost_gpu(self.graph, self.profile, self.execution, as_measured)


def _gemm(table: Table) -> OperatorGraph:
    m, n, k = table["m"], table["k"], table["n"]  # column n of the file is the contraction
    return gemm_graph(table["b"], m, n, k, Dtype.FP32, batched=table["op"] == "bmm")


def _conv(
    table: Table,
    sizes: tuple[str, ...],
    kind: OperatorKind = OperatorKind.CONV,
    dtype: Dtype = Dtype.FP32,
) -> OperatorGraph:
    batch, c_in, c_out, *sides, stride = (table[size] for size in sizes)
    image, kernel, padding = zip(sides[::2], sides[1::2], strict=True)
    return conv_graph(kind, batch, (c_in, c_out), image, Window(kernel, padding, stride), dtype)


#: Columns of a convolution: batch, channels, and height and width of input, window and padding.
_CONV = ("b", "c_in", "c_out", "in_hw", "in_hw", "ksize", "ksize", "pad", "pad", "stride")
_BENCH_CONV = ("n", "c", "k", "h_", "w", "r", "s", "pad_h", "pad_w", "stride_h")
_SETS = (
    (GEMM_SCHEMA, _gemm, ("b", "m", "n", "k")),
    (VECTOR_SCHEMA, lambda rows: vector_graph(rows["op"], rows["b"], rows["h"]), ("b", "h")),
    (CONV_SCHEMA, partial(_conv, sizes=_CONV), _CONV_SIZES),
)


@register_suite(
    "gpu-operators",
    "single operators on GPUs: eager FP32 calls, and DeepBench",
    (),
    "operator",
    optional_files=(GEMM_SCHEMA, VECTOR_SCHEMA, CONV_SCHEMA, DEEPBENCH_SCHEMA),
    is_of_operators=True,
)
def load(folder: DataFolder) -> list[MeasuredBatch]:
    """Batches of every table that is there."""
    batches: list[MeasuredBatch] = []
    for expected, build, shape in _SETS:
        if (table := folder.table(expected)) is not None:
            note_unknown_devices(folder, table, find=gpu_of)
            batches += _Operators(expected.file, build, shape).batches(table)
    if (bench := folder.table(DEEPBENCH_SCHEMA)) is not None:
        note_unknown_devices(folder, bench, find=gpu_of)
        batches += _deepbench(bench)
    return batches


def _deepbench(table: Table) -> Iterator[MeasuredBatch]:
    """DeepBench: refusals first, then every operator, format and pass."""
    collective = table["op"] == "allreduce"
    pseudo = ~np.isin(table["precision"], list(_BENCH_DTYPES)) & ~collective
    for lost, reason in (
        (collective, "all-reduce needs several devices: no row of this suite"),
        (pseudo, "FP16 storage with FP32 arithmetic is no format of the model"),
    ):
        yield from _refused(table.take(lost), reason)
    for precision, dtype in _BENCH_DTYPES.items():
        rows = table.take((table["precision"] == precision) & ~collective)
        for op in np.unique(rows["op"]).tolist():
            for operators in _bench_operators(op, dtype):
                yield from _bench_pass(rows.take(rows["op"] == op), operators)


def _refused(table: Table, reason: str) -> Iterator[MeasuredBatch]:
    for device, rows in _by_device(table):
        names = labels(rows["op"])
        yield refused_batch(device, names, names, rows["fwd_ms"] * 1e-3, reason)


_CONV_PASSES = (
    ("fwd_ms", "", OperatorKind.CONV),
    ("bwd_in_ms", "-data", OperatorKind.CONV_BACKWARD_DATA),
    ("bwd_w_ms", "-weight", OperatorKind.CONV_BACKWARD_WEIGHT),
)


def _bench_operators(op: str, dtype: Dtype) -> Iterator[_Operators]:
    """The passes of one operator in one format."""
    build: Callable[[Table], OperatorGraph]
    file = DEEPBENCH_SCHEMA.file
    name = f"{op.replace('_', '-')}-{dtype.label}"
    if op == "conv":
        for column, suffix, kind in _CONV_PASSES:
            build = partial(_conv, sizes=_BENCH_CONV, kind=kind, dtype=dtype)
            yield _Operators(file, build, _BENCH_CONV, column, name + suffix, is_bench=True)
    elif op == "gemm":
        build = partial(_bench_gemm, dtype=dtype)
        shape = ("m", "n", "k", "ta", "tb")
        yield _Operators(file, build, shape, "fwd_ms", name, is_bench=True)
    else:
        build = partial(_bench_rnn, kind=_BENCH_RNN[op], dtype=dtype)
        yield _Operators(file, build, ("hidden", "batch", "steps"), "fwd_ms", name, is_bench=True)


def _bench_pass(table: Table, operators: _Operators) -> Iterator[MeasuredBatch]:
    rows = table.take(np.isfinite(table[operators.column]))
    known = np.ones(len(rows), dtype=bool)
    for size in operators.shape:
        if rows[size].dtype.kind == "f":  # False where it is empty, too
            known &= rows[size] >= (0 if size.startswith("pad") else 1)
    yield from _refused(rows.take(~known), "a size of the operator is missing or 0")
    yield from operators.batches(rows.take(known))


def _bench_gemm(table: Table, dtype: Dtype) -> OperatorGraph:
    ones = np.ones(len(table))
    return gemm_graph(ones, table["m"], table["n"], table["k"], dtype, batched=ones < 0)


def _bench_rnn(table: Table, kind: OperatorKind, dtype: Dtype) -> OperatorGraph:
    return recurrent_graph(kind, table["batch"], table["steps"], table["hidden"], dtype)
