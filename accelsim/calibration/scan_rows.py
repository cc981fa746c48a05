"""Rows of measured scans, sorts, spectra, comparisons, random numbers, and of what runs across the
last axis.
"""

from __future__ import annotations

import math

from accelsim.calibration.row_rules import Row, Shape, rule
from accelsim.workloads.operator import OperatorKind

__all__: list[str] = []

_K = OperatorKind


@rule(
    "_softmax_across",
    "_log_softmax_across",
    "_softmax_backward_data_across",
    "_log_softmax_backward_data_across",
)
def _softmax_across(s: Shape, operator: str) -> Row:
    backward, rows = "backward" in operator, s["outer"] * s["inner"]
    elements, name = rows * s["columns"], f"{operator.removesuffix('_across')}.across"
    flop, reads = (4, 2) if backward else (6, 1)
    dims = (rows, s["columns"])
    return Row(
        _K.SOFTMAX, dims, flop * elements, reads * elements, elements, backward=backward, name=name
    )


@rule("cumsum", "cumsum_across", "sort")
def _scan(s: Shape, operator: str) -> Row:
    rows = s["outer"] * s["inner"] if operator.endswith("across") else s["rows"]
    elements, places = rows * s["columns"], 8.0 if operator == "sort" else 0.0
    name = operator.replace("_", ".")
    dims = (rows, s["columns"])
    return Row(
        _K.REDUCTION,
        dims,
        elements,
        elements,
        elements,
        name=name,
        fixed_write_bytes=places * elements,
    )


@rule("norm_outer")
def _norm_outer(s: Shape, operator: str) -> Row:
    del operator
    rows = s["outer"] * s["inner"]
    elements, name = rows * s["columns"], "linalg_vector_norm.outer"
    return Row(_K.REDUCTION, (rows, s["columns"], s["inner"]), elements, elements, rows, name=name)


@rule("randn")
def _random(s: Shape, operator: str) -> Row:
    return Row(_K.ELEMENTWISE, (s["elements"], 0, 0, 1), 0.0, 0.0, s["elements"], name=operator)


@rule("gt")
def _comparison(s: Shape, operator: str) -> Row:
    elements = s["elements"]
    dims, written = (elements, 1, 1, 1), float(elements)
    return Row(
        _K.ELEMENTWISE, dims, elements, elements, 0.0, name=operator, fixed_write_bytes=written
    )


@rule("fft", "fft_across")
def _spectrum(s: Shape, operator: str) -> Row:
    across = operator.endswith("across")
    rows, columns = s["outer"] * s["inner"] if across else s["rows"], s["columns"]
    elements, written = rows * columns, 8.0 * rows * (columns // 2 + 1)
    each = round(2.5 * math.log2(max(columns, 2)))
    dims = (elements, 1, each, elements if across else 1)
    name = "_fft_r2c"
    return Row(
        _K.ELEMENTWISE, dims, each * elements, elements, 0.0, name=name, fixed_write_bytes=written
    )


@rule("upsample_bicubic2d")
def _bicubic(s: Shape, operator: str) -> Row:
    coarse = s["batch"] * s["channels"] * s["side"] ** 2
    fine = coarse * s["factor"] ** 2
    return Row(_K.COPY, (fine,), 0.0, coarse, fine, name=operator)


@rule("reflection_pad2d", "reflection_pad2d_backward")
def _reflected_image(s: Shape, operator: str) -> Row:
    lines = s["batch"] * s["channels"]
    image, padded = lines * s["side"] ** 2, lines * (s["side"] + 2 * s["pad"]) ** 2
    if operator.endswith("backward"):
        return Row(_K.COPY, (image,), 0.0, padded, image, backward=True, name=operator)
    return Row(_K.COPY, (padded,), 0.0, image, padded, name=operator)
