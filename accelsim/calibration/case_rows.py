"""Measured cases as operator rows: the same kind, dimensions and bytes that capturing a module with
that operator gives.

A fit is only as good as this correspondence, so a test captures one module per operator and
compares the rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from accelsim.calibration import scan_rows  # noqa: F401  (registers its rules)
from accelsim.calibration.measurement.case import Case
from accelsim.calibration.row_rules import RULES, Row, Shape, rule
from accelsim.workloads.dtype import Dtype
from accelsim.workloads.graph import OperatorGraph
from accelsim.workloads.operator import MAX_DIMENSIONS, SORTED_WIDTH, OperatorKind, Phase
from accelsim.workloads.training import OPTIMIZERS

__all__ = ["case_graph", "has_row"]

_K = OperatorKind


def has_row(case: Case) -> bool:
    """Whether the cost model has rows for the case's operator."""
    return case.operator in RULES


def case_graph(cases: Sequence[Case]) -> OperatorGraph:
    """One row per case, chained.

    Args:
        cases: Cases for which `has_row` holds.
    """
    rows = [RULES[case.operator](case.shape, case.operator) for case in cases]
    widths = np.array([Dtype[case.dtype.upper()].bytes for case in cases])
    count = len(rows)
    dims = np.zeros((count, MAX_DIMENSIONS), dtype=np.int64)
    for place, row in enumerate(rows):
        dims[place, : len(row.dims)] = row.dims
    fixed_read = np.array([row.fixed_read_bytes for row in rows])
    fixed_write = np.array([row.fixed_write_bytes for row in rows])
    return OperatorGraph(
        kind=np.array([int(row.kind) for row in rows], dtype=np.int16),
        dims=dims,
        dtype=np.array([int(Dtype[case.dtype.upper()]) for case in cases], dtype=np.int8),
        phase=np.array(
            [int(Phase.BACKWARD if row.backward else Phase.FORWARD) for row in rows], dtype=np.int8
        ),
        flop=np.array([row.flop for row in rows], dtype=np.float64),
        read_bytes=np.array([row.read for row in rows]) * widths + fixed_read,
        write_bytes=np.array([row.write for row in rows]) * widths + fixed_write,
        weight_bytes=np.array([row.weight for row in rows]) * widths,
        saved_bytes=np.zeros(count),
        name=tuple(row.name or case.operator for row, case in zip(rows, cases, strict=True)),
        path=("",) * count,
        dependency_offset=np.maximum(np.arange(count + 1, dtype=np.int64) - 1, 0),
        dependency=np.arange(max(count - 1, 0), dtype=np.int64),
    )


@rule("addmm", "mm_nn", "mm_tn", "bmm")
def _gemm(s: Shape, operator: str) -> Row:
    batch, m, n, k = s.get("batch", 1), s["m"], s["n"], s["k"]
    flop = 2.0 * batch * m * n * k
    if operator == "bmm":
        return Row(_K.BATCHED_GEMM, (batch, m, n, k), flop, batch * (m * k + k * n), batch * m * n)
    if operator == "mm_tn":
        return Row(_K.GEMM, (1, m, n, k), flop, m * k + k * n, m * n, backward=True, name="mm")
    bias = n if operator == "addmm" else 0
    is_gradient = operator == "mm_nn"
    return Row(
        _K.GEMM, (1, m, n, k), flop, m * k, m * n, n * k + bias, backward=is_gradient, name="addmm"
    )


@rule("scaled_dot_product_attention", "scaled_dot_product_attention_backward")
def _attention(s: Shape, operator: str) -> Row:
    batch, heads, q, kv, width = s["batch"], s["heads"], s["q_len"], s["kv_len"], s["head_dim"]
    dims = (batch, heads, heads, q, kv, width, width, s["causal"], 0, 0)
    products, rows = 2.0 * batch * heads * q * kv * width, batch * heads * width
    if operator.endswith("backward"):
        read = rows * (3 * q + 2 * kv)
        return Row(
            _K.ATTENTION_BACKWARD, dims, 5.0 * products, read, rows * (q + 2 * kv), backward=True
        )
    return Row(_K.ATTENTION, dims, 2.0 * products, rows * (q + 2 * kv), rows * q)


def _conv_dims(s: Shape, kernel: int, groups: int) -> tuple[tuple[int, ...], int]:
    side = s["side"]
    out = (side + 2 * (kernel // 2) - kernel) // s["stride"] + 1
    channels = (s["channels_in"], s["channels_out"])
    window = (
        1,
        kernel,
        kernel,
        s["stride"],
        s.get("dilation", 1),
    )  # padded by half, whatever the gaps
    return (s["batch"], *channels, groups, 1, side, side, 1, out, out, *window), out


@rule("convolution", "convolution_backward.grad_input", "convolution_backward.grad_weight")
def _convolution(s: Shape, operator: str) -> Row:
    kernel, groups = s["kernel"], s["groups"]
    dims, out = _conv_dims(s, kernel, groups)
    weights = s["channels_out"] * s["channels_in"] // groups * kernel**2
    flop = 2.0 * s["batch"] * out**2 * weights
    image = s["batch"] * s["channels_in"] * s["side"] ** 2
    result = s["batch"] * s["channels_out"] * out**2
    return _conv_row(operator, dims, flop, (image, result, weights))


def _conv_row(
    operator: str, dims: tuple[int, ...], flop: float, sizes: tuple[int, int, int]
) -> Row:
    """A convolution or one of its gradients; sizes of image, result and weights."""
    image, result, weights = sizes
    if operator.endswith("input"):
        return Row(_K.CONV_BACKWARD_DATA, dims, flop, result, image, weights, backward=True)
    if operator.endswith("weight"):
        return Row(_K.CONV_BACKWARD_WEIGHT, dims, flop, image + result, weights, backward=True)
    return Row(_K.CONV, dims, flop, image, result, weights)


@rule("convolution_3d", "convolution_3d_backward.grad_input", "convolution_3d_backward.grad_weight")
def _convolution_3d(s: Shape, operator: str) -> Row:
    plane, out = _conv_dims(s, s["kernel"], s["groups"])
    depth, taps = s["depth"], s["taps"]
    dims = (*plane[:4], depth, *plane[5:7], depth, *plane[8:10], taps, *plane[11:])
    weights = s["channels_out"] * s["channels_in"] // s["groups"] * s["kernel"] ** 2 * taps
    volume = s["batch"] * depth
    flop, image = 2.0 * volume * out**2 * weights, volume * s["channels_in"] * s["side"] ** 2
    return _conv_row(operator, dims, flop, (image, volume * s["channels_out"] * out**2, weights))


@rule("convolution_1d", "convolution_1d_backward.grad_input", "convolution_1d_backward.grad_weight")
def _convolution_1d(s: Shape, operator: str) -> Row:
    length, kernel = s["side"] ** 2, s["kernel"]
    out = (length + 2 * (kernel // 2) - kernel) // s["stride"] + 1
    window = (1, 1, kernel, s["stride"], s.get("dilation", 1))
    dims = (s["batch"], s["channels_in"], s["channels_out"], 1, 1, 1, length, 1, 1, out, *window)
    weights = s["channels_in"] * s["channels_out"] * kernel
    flop, image = 2.0 * s["batch"] * out * weights, s["batch"] * s["channels_in"] * length
    result = s["batch"] * s["channels_out"] * out
    return _conv_row(operator, dims, flop, (image, result, weights))


@rule("convolution_1d_depthwise")
def _convolution_1d_depthwise(s: Shape, operator: str) -> Row:
    del operator
    channels, length, kernel = s["channels"], s["length"], s["kernel"]
    out = length + 2 * (kernel // 2) - kernel + 1
    dims = (s["batch"], channels, channels, channels, 1, 1, length, 1, 1, out, 1, 1, kernel, 1, 1)
    moved = s["batch"] * channels
    return Row(
        _K.CONV, dims, 2.0 * moved * out * kernel, moved * length, moved * out, channels * kernel
    )


@rule("convolution_transpose")
def _convolution_transpose(s: Shape, operator: str) -> Row:
    del operator
    side, taps = s["side"], s.get("taps", 2)
    channels = (s["channels_in"], s["channels_out"])
    dims = (s["batch"], *channels, 1, 1, side, side, 1, 2 * side, 2 * side, 1, taps, taps, 2, 1)
    weights, pixels = taps**2 * s["channels_in"] * s["channels_out"], s["batch"] * side**2
    read, write = pixels * s["channels_in"], 4 * pixels * s["channels_out"]
    return Row(_K.CONV_TRANSPOSE, dims, 2.0 * pixels * weights, read, write, weights)


_ROW_KINDS = {
    "_softmax": (_K.SOFTMAX, 6, 1),
    "_masked_softmax": (_K.SOFTMAX, 6, 1),
    "_log_softmax": (_K.SOFTMAX, 6, 1),
    "_softmax_backward_data": (_K.SOFTMAX, 4, 2),
    "_log_softmax_backward_data": (_K.SOFTMAX, 4, 2),
    "native_layer_norm": (_K.LAYER_NORM, 8, 1),
    "native_layer_norm_backward": (_K.LAYER_NORM, 16, 2),
    "_fused_rms_norm": (_K.RMS_NORM, 4, 1),
}


@rule(*_ROW_KINDS)
def _rows(s: Shape, operator: str) -> Row:
    kind, flop, inputs = _ROW_KINDS[operator]
    elements = s["rows"] * s["columns"]
    norm = kind is not _K.SOFTMAX
    weight = 2 * s["columns"] if kind is _K.LAYER_NORM else s["columns"] if norm else 0
    backward = operator.endswith(("backward", "backward_data"))
    return Row(
        kind,
        (s["rows"], s["columns"]),
        flop * elements,
        inputs * elements,
        elements,
        weight,
        backward,
    )


@rule("compiled_elementwise")
def _compiled_elementwise(s: Shape, operator: str) -> Row:
    del operator
    return Row(
        _K.ELEMENTWISE, (s["elements"], 2, 1), 4.0 * s["elements"], 2 * s["elements"], s["elements"]
    )


@rule("compiled_layer_norm", "compiled_softmax")
def _compiled_rows(s: Shape, operator: str) -> Row:
    """A norm behind a sum of two operands; a softmax behind a scale."""
    row = _rows(s, "native_layer_norm" if operator == "compiled_layer_norm" else "_softmax")
    elements = s["rows"] * s["columns"]
    return replace(
        row, flop=row.flop + elements, read=row.read + elements * (row.kind is _K.LAYER_NORM)
    )


@rule("max_place", "arg_place")
def _max_place(s: Shape, operator: str) -> Row:
    rows, elements = s["rows"], s["rows"] * s["columns"]
    dims, places = (rows, s["columns"]), 8.0 * rows
    name, written = ("max.place", rows) if operator == "max_place" else ("argmax.place", 0)
    return Row(_K.REDUCTION, dims, elements, elements, written, name=name, fixed_write_bytes=places)


@rule("index_add", "index_put", "scatter")
def _scatter(s: Shape, operator: str) -> Row:
    table, values, ids = s["table"] * s["width"], s["lookups"] * s["width"], 8.0 * s["lookups"]
    dims = (s["lookups"], s["width"], s["table"])
    if operator == "scatter":
        dims, ids = (values, 1, table), 8.0 * values
    name = "scatter_add.across" if operator == "scatter" else operator
    is_sorted = operator == "index_add" and s["width"] >= SORTED_WIDTH
    moved = (
        min(values, table) if is_sorted else values
    )  # rows that are sorted first are read and written once
    read, write = table + values + moved, table + moved
    return Row(_K.SCATTER, dims, float(values), read, write, name=name, fixed_read_bytes=ids)


@rule("sum", "mean", "amax", "var", "sum_rows", "mean_spatial")
def _reduction(s: Shape, operator: str) -> Row:
    rows, columns = s["rows"], s["columns"]
    if operator == "sum_rows":
        rows, columns = columns, rows
    if operator == "mean_spatial":
        side = max(1, round(columns**0.5))
        columns = side * max(1, columns // side)
    name = (
        "mean"
        if operator.startswith("mean")
        else operator
        if operator in {"amax", "var"}
        else "sum"
    )
    elements = rows * columns
    return Row(
        _K.REDUCTION, (rows, columns), elements, elements, rows, 0, operator == "sum_rows", name
    )


@rule("sum_outer", "mean_outer", "amax_outer")
def _outer_reduction(s: Shape, operator: str) -> Row:
    rows, name = s["outer"] * s["inner"], f"{operator.removesuffix('_outer')}.outer"
    elements = rows * s["columns"]
    return Row(_K.REDUCTION, (rows, s["columns"], s["inner"]), elements, elements, rows, name=name)


@rule(
    "native_batch_norm",
    "native_batch_norm_train",
    "native_batch_norm_backward",
    "native_group_norm",
)
def _channel_norm(s: Shape, operator: str) -> Row:
    side = round(s["pixels"] ** 0.5) ** 2
    elements, channels = s["batch"] * s["channels"] * side, s["channels"]
    if operator == "native_group_norm":
        rows = s["batch"] * 32
        return Row(
            _K.GROUP_NORM,
            (rows, elements // rows),
            8.0 * elements,
            elements,
            elements,
            2 * channels,
        )
    backward = operator.endswith("backward")
    flop, reads = (8.0, 2) if backward else (4.0, 1)
    return Row(
        _K.BATCH_NORM,
        (elements // channels, channels),
        flop * elements,
        reads * elements,
        elements,
        4 * channels,
        backward,
    )


_FLOP = {
    "gelu": 8,
    "gelu_tanh": 8,
    "mish": 10,
    "sin": 4,
    "log": 4,
    "silu": 5,
    "sigmoid": 4,
    "tanh": 6,
    "hardswish": 4,
    "hardsigmoid": 3,
    "hardtanh": 2,
    "leaky_relu": 2,
    "elu": 6,
}
_FLOP |= {"exp": 4, "pow": 4, "rsqrt": 2, "native_dropout": 2, "zeros": 0}
#: Names of rows where they are not the operator's.
_ROW_NAMES = {
    "mul_scalar": "mul",
    "add_bias": "add",
    "gelu_tanh": "gelu.tanh",
    "gelu_tanh_backward": "gelu_backward.tanh",
}
_TWO = (
    "gelu_tanh_backward",
    "add",
    "sub",
    "mul",
    "div",
    "threshold_backward",
    "gelu_backward",
    "silu_backward",
    "sigmoid_backward",
)
_UNARY = (
    "relu",
    "gelu",
    "silu",
    "sigmoid",
    "tanh",
    "hardswish",
    "hardsigmoid",
    "hardtanh",
    "leaky_relu",
    "elu",
    "neg",
    "rsqrt",
    "gelu_tanh",
    "mish",
    "sin",
    "log",
)
_ELEMENTWISE = (
    *_TWO,
    "tanh_backward",
    *_UNARY,
    "pow",
    "exp",
    "zeros",
    "native_dropout",
    "native_dropout_backward",
)


@rule(*_ELEMENTWISE, "where", "mul_scalar", "add_bias", "to_bf16")
def _elementwise(s: Shape, operator: str) -> Row:
    elements = s["elements"]
    flop = _FLOP.get(operator.removesuffix("_backward"), 1)
    inputs = (
        0 if operator == "zeros" else 2 if operator in {*_TWO, "tanh_backward", "add_bias"} else 1
    )
    read, weight, read_bytes, write_bytes = float(inputs * elements), 0, 0.0, 0.0
    if operator == "add_bias":
        width = s.get("columns") or max(1, min(1024, elements // 16))
        elements -= elements % width
        read, weight = float(elements), width
    if operator == "native_dropout":
        write_bytes = float(elements)
    if operator in {"native_dropout_backward", "where"}:
        read_bytes, inputs = float(elements), 2
    name = _ROW_NAMES.get(operator, operator)
    runs = elements // weight if weight else 1
    dims = (elements, inputs, flop, runs, int(runs > 1))
    backward = operator.endswith("_backward")
    if operator == "to_bf16":
        return Row(_K.COPY, (elements, 0, 0, 0, 1), 0.0, elements, elements, name="_to_copy")
    row = Row(_K.ELEMENTWISE, dims, float(flop * elements), read, elements, weight, backward, name)
    return replace(row, fixed_read_bytes=read_bytes, fixed_write_bytes=write_bytes)


@rule("_prelu_kernel_backward")
def _prelu_backward(s: Shape, operator: str) -> Row:
    elements = s["elements"]
    return Row(
        _K.ELEMENTWISE,
        (elements, 3, 0, 1),
        0.0,
        2 * elements,
        2 * elements,
        backward=True,
        name=operator,
    )


@rule("max_pool2d_last", "avg_pool2d_last")
def _pooling_last(s: Shape, operator: str) -> Row:
    name = "max_pool2d_with_indices" if operator.startswith("max") else "avg_pool2d"
    return replace(_pooling(s, name), name=f"{name}.last")


@rule(
    "max_pool2d_with_indices",
    "avg_pool2d",
    "_adaptive_avg_pool2d",
    "max_pool2d_with_indices_backward",
)
def _pooling(s: Shape, operator: str) -> Row:
    side, kernel = s["side"], s["kernel"]
    images = s["batch"] * s["channels"]
    out = (side + 2 * ((kernel - 1) // 2) - kernel) // s.get("stride", 2) + 1
    if operator == "_adaptive_avg_pool2d":
        out = max(2, side // (2 * kernel))
        kernel = -(-side // out)
    dims = (s["batch"], s["channels"], side**2, out**2, kernel**2)
    read, write = images * side**2, images * out**2
    flop, index_bytes = float(write * kernel**2), 8.0 * write if operator.startswith("max") else 0.0
    if operator.endswith("backward"):
        return Row(_K.POOLING, dims, flop, write, read, backward=True, fixed_read_bytes=index_bytes)
    return Row(_K.POOLING, dims, flop, read, write, fixed_write_bytes=index_bytes)


@rule("max_pool1d")
def _pooling_1d(s: Shape, operator: str) -> Row:
    del operator
    out, lines = s["length"] // s["kernel"], s["batch"] * s["channels"]
    dims = (s["batch"], s["channels"], s["length"], out, s["kernel"])
    write = lines * out
    name = "max_pool2d_with_indices.1d"
    flop, index_bytes = float(write * s["kernel"]), 8.0 * write
    return Row(
        _K.POOLING, dims, flop, lines * s["length"], write, name=name, fixed_write_bytes=index_bytes
    )


@rule("embedding", "embedding_dense_backward", "_embedding_bag")
def _gather(s: Shape, operator: str) -> Row:
    lookups, width, table = s["lookups"], s["width"], s["table"]
    read, ids = lookups * width, 8.0 * lookups
    if operator == "embedding":
        return Row(_K.EMBEDDING, (lookups, width, table), 0.0, read, read, fixed_read_bytes=ids)
    if operator == "_embedding_bag":
        dims = (lookups, width, table, s["bags"])
        return Row(
            _K.EMBEDDING_BAG, dims, float(read), read, s["bags"] * width, fixed_read_bytes=ids
        )
    dims3 = (lookups, width, table)
    return Row(
        _K.SCATTER, dims3, float(read), 2 * read, table * width, backward=True, fixed_read_bytes=ids
    )


@rule("lstm", "gru", "lstm_train", "lstm_backward", "gru_train", "gru_backward")
def _recurrent(s: Shape, operator: str) -> Row:
    batch, steps, inner, hidden = s["batch"], s["steps"], s["input"], s["hidden"]
    kind, gates = (_K.GRU, 3) if operator.startswith("gru") else (_K.LSTM, 4)
    weights = gates * hidden * (inner + hidden + 2)
    flop = 2.0 * batch * steps * gates * hidden * (inner + hidden)
    dims, read, write = (
        (batch, steps, inner, hidden, 1),
        batch * steps * inner,
        batch * steps * hidden,
    )
    states = (2 if kind is _K.LSTM else 1) * batch * hidden
    if operator.endswith("backward"):
        return Row(kind, dims, 2 * flop, read + 2 * write, read + weights, weights, backward=True)
    return Row(kind, dims, flop, read + states, write, weights)


@rule("adamw", "sgd", "adamw_idle")
def _optimizer(s: Shape, operator: str) -> Row:
    count = s["parameters"] // s["tensors"] * s["tensors"]
    rule, idle = (
        OPTIMIZERS[operator.removesuffix("_idle")],
        count if operator.endswith("_idle") else 0,
    )
    states, flop = rule.state_count, float(rule.flop_per_parameter * count)
    dims = (count, states, s["tensors"], idle)
    return Row(_K.OPTIMIZER, dims, flop, (2 + states) * count, (1 + states) * count, name=rule.name)


@rule("add_strided", "clone_strided")
def _strided(s: Shape, operator: str) -> Row:
    elements = math.prod(s.values())
    if operator == "add_strided":
        dims = (elements, 2, 1, elements // s["columns"])
        return Row(
            _K.ELEMENTWISE, dims, float(elements), 2 * elements, elements, name="add.strided"
        )
    return Row(
        _K.COPY,
        (elements, 0, 0, 0, elements // s["rows"]),
        0.0,
        elements,
        elements,
        name="clone.strided",
    )


@rule("mul_rows")
def _mul_rows(s: Shape, operator: str) -> Row:
    del operator
    rows, elements = s["rows"], s["rows"] * s["columns"]
    return Row(
        _K.ELEMENTWISE,
        (elements, 2, 1, rows),
        float(elements),
        elements + rows,
        elements,
        name="mul",
    )


@rule("clone", "cat", "stack", "copy")
def _copy(s: Shape, operator: str) -> Row:
    elements, runs = math.prod(s.values()), 1
    if operator == "cat":
        elements, runs = 2 * s["rows"] * (s["columns"] * s["middle"] // 2), 2 * s["rows"]
    elif operator != "copy":
        runs = elements // s["columns"]
    return Row(_K.COPY, (elements, 0, 0, 0, runs), 0.0, elements, elements, name=operator)


@rule(
    "upsample_nearest2d",
    "upsample_bilinear2d",
    "upsample_nearest2d_backward",
    "upsample_bilinear2d_backward",
)
def _upsample(s: Shape, operator: str) -> Row:
    coarse, side = s["batch"] * s["channels"] * s["side"] ** 2, s["side"] * s["factor"]
    fine = coarse * s["factor"] ** 2
    dims = (fine, s["channels"], side, side)
    if operator.endswith("backward"):
        return Row(_K.COPY, dims, 0.0, fine, coarse, backward=True)
    return Row(_K.COPY, dims, 0.0, coarse, fine)


@rule("im2col", "col2im")
def _unfold(s: Shape, operator: str) -> Row:
    kernel, lines = s["kernel"], s["batch"] * s["channels"]
    out = (s["side"] + 2 * (kernel // 2) - kernel) // s["stride"] + 1
    image, columns = lines * s["side"] ** 2, lines * (kernel * out) ** 2
    read, write = (image, columns) if operator == "im2col" else (columns, image)
    return Row(_K.COPY, (columns,), 0.0, read, write)


@rule("pixel_shuffle", "constant_pad_nd")
def _image_copy(s: Shape, operator: str) -> Row:
    pad = 2 * s.get("pad", 0)
    lines, factor = s["batch"] * s["channels"], s.get("factor", 1)
    read, write = lines * (s["side"] * factor) ** 2, lines * (s["side"] * factor + pad) ** 2
    return Row(_K.COPY, (write,), 0.0, read, write, name=operator)


@rule("reflection_pad1d")
def _reflected(s: Shape, operator: str) -> Row:
    read, write = s["channels"] * s["length"], s["channels"] * (s["length"] + 6)
    return Row(_K.COPY, (write,), 0.0, read, write, name=operator)


@rule("grid_sampler_2d")
def _grid_sample(s: Shape, operator: str) -> Row:
    places, table = s["batch"] * s["places"] ** 2, s["batch"] * s["channels"] * s["side"] ** 2
    read = places * s["channels"]
    dims = (4 * read, 1, table)
    return Row(_K.EMBEDDING, dims, 7.0 * read, 4 * read + 2 * places, read, name=operator)


@rule("topk", "index", "gather")
def _routing(s: Shape, operator: str) -> Row:
    rows, columns = s["rows"], s["columns"]
    if operator == "topk":
        chosen = s.get("k", 2)
        dims, read, places = (rows, columns, chosen), rows * columns, 8.0 * chosen * rows
        return Row(_K.MOE_ROUTING, dims, 2.0 * read, read, chosen * rows, fixed_write_bytes=places)
    elements = rows * columns
    if operator == "index":
        return Row(
            _K.EMBEDDING,
            (rows, columns, rows),
            0.0,
            elements,
            elements,
            fixed_read_bytes=8.0 * rows,
            name="index",
        )
    return Row(
        _K.EMBEDDING,
        (elements, 1, rows),
        0.0,
        elements,
        elements,
        fixed_read_bytes=8.0 * elements,
        name="gather",
    )
