"""How far measured operators lie from the model, by operator family: the source of every interval.

A family is an operator kind in a format ("gemm fp32"), of convolutions with one window ("conv fp32
w9"): a pointwise one is a product, a 3 x 3 one has algorithms of its own. Boards whose products
depart from the model in a way of their own have families of their own ("gemm fp32 slot-powered").
The residuals ln(measured / predicted) of a family have a part that all its rows on one device share
(a bias: it does not average out over a model) and a part of each row's own (it does). What no
measured family describes has the spread of its group on its execution path ("convolution
matrix-cores"), pooled over families. Outside the range of sizes the residuals were taken from,
nobody has measured the model's error: the spread grows with the distance, in decades of arithmetic
or traffic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accelsim.dtype import Dtype
from accelsim.errors import ProfileError
from accelsim.frozen import frozen
from accelsim.plain import Document, Values
from accelsim.workloads.graph import BoolArray, FloatArray, IntArray, OperatorGraph, is_kind
from accelsim.workloads.operator import (
    ATTENTION_KINDS,
    CONV_KINDS,
    DIMENSIONS,
    RECURRENT_KINDS,
    OperatorKind,
)

#: Added standard deviation of ln(time) per decade outside the measured range. Estimate: an error of
#: 15 % per factor of ten.
SIGMA_PER_DECADE = 0.15
_TINY = 1.0
#: Least part that rows of a kind share inside a model: a kernel alone and the same kernel inside a
#: model differ by 5 % in the median, and nothing says that this averages out over a model
#: (NeuSight's operators and models).
IN_MODEL_LOG_SIGMA = 0.05
#: Correlation of what two kinds of operators share on one device. Biases of six kinds on six
#: boards, each predicted with its chip left out: products of biases over the products of their root
#: mean squares, 0.17 on average over the 15 pairs of kinds (-0.3 to 0.8).
KIND_CORRELATION = 0.2
#: Spread of a product in a format no measured family or surface describes, and its shared part.
#: GEMMs with 4- and 8-bit weights and of 8-bit integers on the A100 and of 4-bit floats on the RTX
#: PRO 6000, predicted without any table of their format: 90th percentiles over 1.645 of 0.42 to
#: 0.83, median 0.43; medians of 0.21 to 0.29 in 8-bit formats. Since calls are timed apart from
#: their gaps, and over nine boards without the surfaces of their formats: 0.09 to 0.24 in plain
#: 8-bit formats (medians of long rows 0.01 to 0.18), 0.3 to 0.95 in blockwise and 4-bit ones (0.01
#: to 0.93).
_OTHER_FORMAT_LOG_SIGMA, _OTHER_FORMAT_SHARED = 0.43, 0.25
#: Plain and batched products: the kinds with families of their own for some boards.
PRODUCT_KINDS = frozenset({OperatorKind.GEMM, OperatorKind.BATCHED_GEMM})
#: Execution path of contractions that run on matrix cores: other kernels than those of vector
#: lanes, in any format.
MATRIX_CORES = "matrix-cores"
_PATH_KINDS = frozenset({*PRODUCT_KINDS, OperatorKind.GROUPED_GEMM, *CONV_KINDS})


@frozen
class FamilyResidual:
    """Residuals of one operator family.

    Attributes:
        rows: Measured rows behind them.
        log_sigma: Spread of ln(measured / predicted) of one row: its 90th percentile over the
            normal's.
        long_log_sigma: The same of rows longer than `LONG_S`, which say more of the kernel than of
            the time to issue it.
        shared_log_sigma: What all rows of the family on one device share inside a model; a family
            measured row by row to a few per mille may still be off by more than that inside a
            model.
        median_ape_fraction: Median error of the rows.
        p90_ape_fraction: 90th percentile of their errors.
        flop: Least and most FLOP of a row, 1st and 99th percentile.
        bytes: Least and most bytes of a row, likewise.
        is_own: Whether the rows are of the device that is predicted.
    """

    rows: int
    log_sigma: float
    long_log_sigma: float
    shared_log_sigma: float
    median_ape_fraction: float
    p90_ape_fraction: float
    flop: tuple[float, float]
    bytes: tuple[float, float]
    is_own: bool = False

    @classmethod
    def from_mapping(cls, data: Values) -> FamilyResidual:
        """Read an entry of a parameter file.

        Raises:
            KeyError: If a field is missing.
            TypeError: If a field is no number.
            ValueError: If a number is negative or a range is not two numbers.
        """
        filled = {"long_log_sigma": data["log_sigma"], **data}
        numbers = [float(filled[name]) for name in _NUMBERS]
        ranges = [tuple(float(edge) for edge in data[name]) for name in ("flop", "bytes")]
        if min(numbers) < 0 or any(len(r) != 2 or not 0 <= r[0] <= r[1] for r in ranges):
            raise ValueError("numbers must be >= 0 and ranges rise")
        return cls(int(numbers[0]), *numbers[1:], *ranges)  # type: ignore[arg-type]

    def to_mapping(self) -> Document:
        """The entry of a parameter file; `from_mapping` reads it back."""
        values = asdict(self) | {"flop": list(self.flop), "bytes": list(self.bytes)}
        del values["is_own"]
        return values


def size_range(sizes: FloatArray) -> tuple[float, float]:
    """Least and most of the sizes of measured rows: 1st and 99th percentile."""
    low, high = np.quantile(sizes, (0.01, 0.99)).tolist()
    return low, high


_NUMBERS = (
    "rows",
    "log_sigma",
    "long_log_sigma",
    "shared_log_sigma",
    "median_ape_fraction",
    "p90_ape_fraction",
)
#: Length of a row from which on its family's spread of long rows holds.
LONG_S = 5e-4


@frozen(eq=False)
class RowSpread:
    """Spread of each row of a graph; every column has shape (n,).

    Attributes:
        log_sigma: Standard deviation of ln(true / predicted).
        shared_log_sigma: Part that rows of one family share.
        extrapolation_decades: Distance from the measured range; 0 inside, and where no range is
            known.
    """

    log_sigma: FloatArray
    shared_log_sigma: FloatArray
    extrapolation_decades: FloatArray


def read_families(path: Path, entries: Mapping[str, Values] | None) -> dict[str, FamilyResidual]:
    """The section ``families`` of a parameter file, which may be missing.

    Raises:
        ProfileError: If an entry is damaged.
    """
    try:
        return {name: FamilyResidual.from_mapping(entry) for name, entry in (entries or {}).items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ProfileError(str(path), [f"families: {error}"]) from None


#: Spreads groups over 64 bits (Knuth, TAOCP 3, 6.4).
_ODD = np.int64(0x1E3779B97F4A7C15)


def run_log_sigma(
    kind: NDArray[np.integer[Any]],
    time_s: FloatArray,
    log_sigma: FloatArray,
    shared_log_sigma: FloatArray | None,
) -> float:
    """Standard deviation of ln(true / predicted) of the sum of rows; see `run_log_sigmas`.

    Args:
        kind: Operator kinds, shape (n,).
        time_s: Times of all repeats of each row, shape (n,).
        log_sigma: Spread of each row.
        shared_log_sigma: Part that rows of one kind share; all of it where None.
    """
    if not time_s.any():
        return 0.0
    shared = log_sigma if shared_log_sigma is None else shared_log_sigma
    single_run, once = np.zeros(len(kind), dtype=np.int64), np.ones(len(kind))
    return float(run_log_sigmas(single_run, kind, time_s, once, log_sigma, shared)[0])


def run_log_sigmas(
    run: IntArray,
    kind: NDArray[np.integer[Any]],
    time_s: FloatArray,
    launches: FloatArray,
    log_sigma: FloatArray,
    shared_log_sigma: FloatArray,
) -> FloatArray:
    """Standard deviation of ln(true / predicted) of the sum of the rows of each of r runs.

    What a kind's rows share adds linearly; what two kinds share has the correlation
    `KIND_CORRELATION`. What each shape has of its own adds in quadrature over the distinct shapes
    (rows of one kind that take the same time are one shape).

    Propagation of correlated errors to a sum (JCGM 100:2008, "Guide to the expression of
    uncertainty in measurement", section 5.2). Estimate: `KIND_CORRELATION`.

    Args:
        run: The run of each row, from 0, shape (n,).
        kind: Operator kinds, shape (n,).
        time_s: Time of each row, shape (n,).
        launches: How often it runs, shape (n,).
        log_sigma: Spread of each row.
        shared_log_sigma: Part that rows of one kind share.

    Returns:
        Shape (r,).
    """
    count, kinds = int(run.max()) + 1, int(kind.max()) + 1
    weight = time_s * launches / np.bincount(run, time_s * launches, count)[run]
    group = run * kinds + kind
    shared = np.bincount(group, weight * shared_log_sigma, count * kinds)
    by_kind = shared.reshape(count, kinds)
    variance = (1.0 - KIND_CORRELATION) * (by_kind**2).sum(axis=1)
    variance += KIND_CORRELATION * by_kind.sum(axis=1) ** 2
    independent = np.sqrt(np.maximum(log_sigma**2 - shared_log_sigma**2, 0.0))
    # one number that brings equal rows together sorts four times as fast as two keys
    order = np.argsort(np.asarray(time_s, dtype=np.float64).view(np.int64) ^ (group * _ODD))
    changes = (np.diff(group[order]) != 0) | (np.diff(time_s[order]) != 0)
    starts = np.concatenate([[0], np.flatnonzero(changes) + 1])
    by_shape = np.add.reduceat((weight * independent)[order], starts)
    variance += np.bincount(run[order][starts], by_shape**2, count)
    return np.asarray(np.sqrt(variance))


def group_of(kind: int) -> str:
    """Group of an operator kind: "product", "convolution", "gradient" (of one), "attention",
    "recurrent" or "memory".
    """
    return _GROUPS.get(OperatorKind(kind), "memory")


_GROUPS = {
    **dict.fromkeys((*PRODUCT_KINDS, OperatorKind.GROUPED_GEMM), "product"),
    **dict.fromkeys(CONV_KINDS, "gradient"),
    **dict.fromkeys((OperatorKind.CONV, OperatorKind.CONV_TRANSPOSE), "convolution"),
    **dict.fromkeys(ATTENTION_KINDS, "attention"),
    **dict.fromkeys(RECURRENT_KINDS, "recurrent"),
}


def path_of(kind: int, dtype: int, on_matrix_cores: BoolArray | None) -> str:
    """Execution path of a kind in a format: `MATRIX_CORES`, or "" on vector lanes and for what
    multiplies no matrices.

    Args:
        kind: Operator kind.
        dtype: Format code.
        on_matrix_cores: Whether the board multiplies a format on matrix cores, by format code; not
            where None.
    """
    is_matrix = (
        on_matrix_cores is not None
        and OperatorKind(kind) in _PATH_KINDS
        and bool(on_matrix_cores[dtype])
    )
    return MATRIX_CORES if is_matrix else ""


_WINDOW = [
    DIMENSIONS[OperatorKind.CONV].index(name) for name in ("kernel_d", "kernel_h", "kernel_w")
]
_MOST_WINDOW = 127


def family_name(kind: int, dtype: int, window: int = 0) -> str:
    """Family of an operator kind in a format, and of convolutions with a window: "batched_gemm
    fp16", "conv fp32 w9".
    """
    name = f"{OperatorKind(kind).label} {Dtype(dtype).label}"
    return f"{name} w{window}" if window else name


def family_rows(graph: OperatorGraph) -> dict[str, IntArray]:
    """Row indices of each family of a graph."""
    window = np.zeros(len(graph), dtype=np.int64)
    convolutions = is_kind(graph.kind, CONV_KINDS)
    if convolutions.any():
        taps = graph.dims[convolutions][:, _WINDOW].prod(axis=1)
        window[convolutions] = np.minimum(taps, _MOST_WINDOW)
    code = (graph.kind.astype(np.int64) * 256 + graph.dtype) * 128 + window
    return {
        family_name(c // 32768, c // 128 % 256, c % 128): np.flatnonzero(code == c)
        for c in sorted(set(code.tolist()))  # np.unique imports numpy.ma: 20 ms
    }


def row_spread(
    graph: OperatorGraph,
    families: Mapping[str, FamilyResidual],
    formula: RowSpread,
    time_s: FloatArray,
    conditions: tuple[str, str] = ("", ""),
    on_matrix_cores: BoolArray | None = None,
) -> RowSpread:
    """Spread of every row of a graph.

    A family of the device's own rows describes them best; then what the formula knows of the row
    (its shared part is a number: its surface); then the family of other boards.

    Estimate: spreads are 90th percentiles of measured residuals over the normal's; see
    `accelsim.calibration.fit.residuals`.

    Args:
        graph: n operators.
        families: Residuals by family, and by group and execution path for rows no family describes.
        formula: What the formula says of the rows; the shared part is NaN where it knows none.
        time_s: Predicted times, shape (n,).
        conditions: Of the board's products and of its other operators: families of boards like it
            come first. See `accelsim.cost.gpu.condition`.
        on_matrix_cores: Formats the board multiplies on matrix cores, by format code.
    """
    sigma = np.array(formula.log_sigma, dtype=np.float64)
    shared, beyond = np.array(formula.shared_log_sigma), np.array(formula.extrapolation_decades)
    for name, rows in family_rows(graph).items() if families else ():
        kind = int(graph.kind[rows[0]])
        condition = conditions[kind not in PRODUCT_KINDS]
        family = _family(families, name, condition)
        if family is None:
            unknown = rows[np.isnan(shared[rows])]
            path = path_of(kind, int(graph.dtype[rows[0]]), on_matrix_cores)
            pooled = _pooled(families, group_of(kind), path, condition)
            if pooled is not None:
                sigma[unknown], shared[unknown] = _unmeasured(
                    pooled, kind, sigma[unknown], time_s[unknown]
                )
            continue
        used = rows if family.is_own else rows[np.isnan(shared[rows])]
        decades = np.maximum(
            _decades_outside(graph.flop[used], family.flop),
            _decades_outside(graph.bytes[used], family.bytes),
        )
        extra = SIGMA_PER_DECADE * decades
        beyond[used] = decades
        sigma[used] = np.hypot(
            np.where(time_s[used] > LONG_S, family.long_log_sigma, family.log_sigma), extra
        )
        shared[used] = np.hypot(family.shared_log_sigma, extra)
    return RowSpread(sigma, np.where(np.isnan(shared), sigma, shared), beyond)


def _family(
    families: Mapping[str, FamilyResidual], name: str, condition: str
) -> FamilyResidual | None:
    """The family of rows: the device's own, else of boards with its condition, else of all; FP16
    stands for BF16.
    """
    family = families.get(name)
    if family is not None and family.is_own:
        return family
    twin = name.replace(" bf16", " fp16")
    names = [f"{n} {condition}" for n in (name, twin)] if condition else []
    return next((families[n] for n in (*names, name, twin) if n in families), None)


def _pooled(
    families: Mapping[str, FamilyResidual], group: str, path: str, condition: str
) -> FamilyResidual | None:
    """Residuals of the group of rows that no family describes; None where nothing is known."""
    names = ((group, path, condition), (group, path), (group, condition), (group,))
    return next(
        (families[n] for n in (" ".join(filter(None, parts)) for parts in names) if n in families),
        None,
    )


def _unmeasured(
    pooled: FamilyResidual, kind: int, log_sigma: FloatArray, time_s: FloatArray
) -> tuple[FloatArray, float]:
    """Spread of rows of a group in a format or with a window that no family describes, and its
    shared part.
    """
    if group_of(kind) == "product":
        return np.maximum(log_sigma, _OTHER_FORMAT_LOG_SIGMA), max(
            _OTHER_FORMAT_SHARED, pooled.shared_log_sigma
        )
    return np.where(
        time_s > LONG_S, pooled.long_log_sigma, pooled.log_sigma
    ), pooled.shared_log_sigma


def _decades_outside(size: FloatArray, edges: tuple[float, float]) -> FloatArray:
    low, high = (np.log10(max(edge, _TINY)) for edge in edges)
    exponent = np.log10(np.maximum(size, _TINY))
    outside: FloatArray = np.maximum(np.maximum(low - exponent, exponent - high), 0.0)
    return outside
