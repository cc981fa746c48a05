"""Fits a CPU's kernels to a calibration run: analytic terms first, then the correction between measured shapes.

Each kernel, format and thread count is fitted on its own rows, drawn towards the fit of its whole family (both formats),
which in turn is drawn towards that of all rows: a kernel whose rows show no page fault or no working set beyond the last
cache has what its family shows. Several threads are fitted relative to the same shape on one thread. The spread of each
kernel is that of rows left out in a five-fold cross-validation over shapes: all conditions of one shape go together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import md5

import numpy as np
from numpy.typing import NDArray

from accelsim.calibration.case_rows import case_graph, has_row
from accelsim.calibration.least_squares import fit_nonnegative
from accelsim.calibration.measured_table import fit_correction
from accelsim.calibration.measurement.case import Case
from accelsim.calibration.run_file import CalibrationRun
from accelsim.cost.cpu.fitted_kernels import FittedKernels, KernelFit, thread_terms
from accelsim.cost.cpu.kernel_terms import TERMS, Context, kernel_coordinates, kernel_terms
from accelsim.cost.cpu.kernels import kernel_names
from accelsim.cost.table import Tier
from accelsim.workloads.dtype import Dtype
from accelsim.workloads.graph import FloatArray, OperatorGraph

__all__ = ["FOLDS", "KernelRows", "cross_validate", "fit_kernels", "kernel_rows"]

FOLDS = 5
_PAGE_FAULT_BYTES = 32.0 * 2**20
_PAGE_BYTES = 4096.0
_FEW_FAULTS = 16.0
#: Spread of a kernel with too few rows to leave any out.
_DEFAULT_LOG_SIGMA = 0.3
#: Where no row says otherwise: serial work takes its one-thread time, parallel work 0.6 of it.
_THREAD_PRIOR = np.array([0.0, 0.0, 0.0, 1.0, 0.6])
_SHARED = np.array([term.startswith(("fresh", "bytes_beyond")) for term in TERMS])


@dataclass(frozen=True, slots=True, eq=False)
class KernelRows:
    """Measured cases with what the fit needs of them; n rows.

    Attributes:
        cases: The cases.
        times_s: Best time of each, shape (n,).
        names: Kernel of each, shape (n,).
        terms: Their quantities, shape (n, len(TERMS)).
        places: Their coordinates.
        folds: Part of the cross-validation each shape belongs to, shape (n,).
        caches: Bytes of the second-level and the last-level cache.
    """

    cases: Sequence[Case]
    times_s: FloatArray
    names: NDArray[np.str_]
    terms: FloatArray
    places: Sequence[FloatArray]
    folds: NDArray[np.int64]
    caches: tuple[float, float]

    def keys(self) -> list[tuple[str, str, int]]:
        """Kernel, format and threads of each row."""
        return [(str(name), case.dtype, case.threads) for name, case in zip(self.names, self.cases, strict=True)]


def kernel_rows(run: CalibrationRun, caches: tuple[float, float]) -> KernelRows:
    """Rows of a run that the CPU model knows and that were measured without interference.

    Args:
        run: A run on a CPU.
        caches: Bytes of the second-level and the last-level cache.
    """
    best = [row for row in run.best().values() if has_row(row.case) and row.details.get("undisturbed", True)]
    cases = [row.case for row in best]
    times = np.array([row.time_s for row in best], dtype=np.float64)
    graph = case_graph(cases)
    cold = np.array([float(case.cold) for case in cases])
    context = Context(*caches, cold, is_training=False, page_fault_bytes=_PAGE_FAULT_BYTES)
    folds = np.array([int(md5(c.label.encode(), usedforsecurity=False).hexdigest()[:8], 16) % FOLDS for c in cases])
    names = _names(graph, cases)
    terms = kernel_terms(graph, context)
    # whether a large buffer is fresh depends on the heap's state: the counted faults say what really happened
    faults = np.array([float(row.details.get("minor_faults") or 0.0) for row in best])
    terms[:, TERMS.index("fresh_bytes")] = np.where(faults > _FEW_FAULTS, faults * _PAGE_BYTES, 0.0)
    return KernelRows(cases, times, names, terms, kernel_coordinates(graph, context), folds, caches)


def _names(graph: OperatorGraph, cases: Sequence[Case]) -> NDArray[np.str_]:
    names = np.zeros(len(cases), dtype="<U40")
    training = np.array([case.operator.endswith("_train") for case in cases])
    threads = np.array([case.threads for case in cases])
    for count in np.unique(threads).tolist():
        for is_training in (False, True):
            chosen = kernel_names(graph, is_training=is_training, threads=int(count))
            names = np.where((threads == count) & (training == is_training), chosen, names)
    return names


def fit_kernels(
    rows: KernelRows, keep: NDArray[np.bool_] | None = None, errors: FloatArray | None = None
) -> FittedKernels:
    """Fit every kernel.

    Args:
        rows: Measured rows.
        keep: Rows to fit to; all where None.
        errors: ln(measured / predicted) of every row left out, which gives each kernel its spread; a default where None.

    Returns:
        Kernels with terms and corrections (tier `measured`; `dataclasses.replace` the tier for the terms alone).
    """
    chosen = np.ones(len(rows.cases), dtype=bool) if keep is None else keep
    fits: dict[tuple[str, str, int], KernelFit] = {}
    fitted = FittedKernels(fits, *rows.caches)
    for threads in sorted({case.threads for case in rows.cases}):
        one = _one_thread_s(rows, fitted) if threads > 1 and fits else np.zeros(len(rows.cases))
        quantities = rows.terms if threads == 1 else thread_terms(rows.terms, one)
        fits.update(_fit_threads(rows, chosen, threads, quantities))
    if errors is None:
        return fitted
    places = _grouped(rows.keys())
    spread = {key: replace(fit, log_sigma=_spread(errors[places[key]])) for key, fit in fits.items()}
    return FittedKernels(spread, *rows.caches)


def _spread(errors: FloatArray) -> float:
    known = errors[~np.isnan(errors)]
    if len(known) < 4:
        return _DEFAULT_LOG_SIGMA
    return float(max(0.02, np.quantile(np.abs(known), 0.9) / 1.645))


def _grouped(keys: Sequence[tuple[str, str, int]]) -> dict[tuple[str, str, int], NDArray[np.int64]]:
    found: dict[tuple[str, str, int], list[int]] = {}
    for place, key in enumerate(keys):
        found.setdefault(key, []).append(place)
    return {key: np.array(places) for key, places in found.items()}


def _one_thread_s(rows: KernelRows, fitted: FittedKernels) -> FloatArray:
    """Predicted one-thread time of every row, NaN where its kernel has none."""
    dtypes = np.array([int(Dtype[case.dtype.upper()]) for case in rows.cases], dtype=np.int8)
    alone = [replace(case, threads=1) for case in rows.cases]
    names = _names(case_graph(alone), alone)
    zeros = np.zeros(len(rows.cases))
    return fitted.kernel_times(names, dtypes, rows.terms, list(rows.places), zeros, 1).time_s


def _fit_threads(
    rows: KernelRows, keep: NDArray[np.bool_], threads: int, quantities: FloatArray
) -> dict[tuple[str, str, int], KernelFit]:
    """Fits of one thread count, family by family."""
    own = np.array([case.threads == threads for case in rows.cases]) & keep & np.isfinite(quantities).all(axis=1)
    families = np.array([case.family for case in rows.cases])
    prior = _shared_prior(quantities[own], rows.times_s[own]) if threads == 1 else _THREAD_PRIOR
    bases = {
        family: fit_nonnegative(
            quantities[own & (families == family)], rows.times_s[own & (families == family)], prior, ridge=1e-3
        )
        for family in np.unique(families[own]).tolist()
    }
    places, keys = np.flatnonzero(own), rows.keys()
    groups = _grouped([keys[i] for i in places.tolist()])
    return {
        key: _fit_one(rows, places[index], quantities, bases[str(families[places[index[0]]])])
        for key, index in groups.items()
    }


def _shared_prior(quantities: FloatArray, times_s: FloatArray) -> FloatArray:
    """Cost of page faults and of traffic beyond each cache, over all kernels; nothing for the other terms."""
    pooled = fit_nonnegative(quantities, times_s, ridge=1e-4)
    prior: FloatArray = np.where(_SHARED, pooled, 0.0)
    return prior


def _fit_one(rows: KernelRows, index: NDArray[np.int64], quantities: FloatArray, base: FloatArray) -> KernelFit:
    terms, times = quantities[index], rows.times_s[index]
    if rows.cases[index[0]].threads > 1:
        return KernelFit(fit_nonnegative(terms, times, base, ridge=2e-2), _DEFAULT_LOG_SIGMA, len(index))
    coefficients = fit_nonnegative(terms, times, base, ridge=3e-3)
    predicted = np.maximum(terms @ coefficients, 1e-9)
    places = np.array([rows.places[i] for i in index.tolist()])
    correction = fit_correction(places, np.log(times / predicted))
    return KernelFit(coefficients, _DEFAULT_LOG_SIGMA, len(index), correction)


def cross_validate(rows: KernelRows) -> dict[Tier, FloatArray]:
    """ln(measured / predicted) of every row by a fit that has not seen its shape; NaN where its kernel had no other rows."""
    errors = {tier: np.full(len(rows.cases), np.nan) for tier in (Tier.FITTED, Tier.MEASURED)}
    dtypes = np.array([int(Dtype[case.dtype.upper()]) for case in rows.cases], dtype=np.int8)
    threads = np.array([case.threads for case in rows.cases])
    for fold in range(FOLDS):
        fitted = fit_kernels(rows, rows.folds != fold)
        one = _one_thread_s(rows, fitted)
        for count in np.unique(threads).tolist():
            out = np.flatnonzero((rows.folds == fold) & (threads == count))
            single = one[out] if count > 1 else np.zeros(len(out))
            places = [rows.places[i] for i in out.tolist()]
            for tier, column in errors.items():
                view = FittedKernels(fitted.fits, *rows.caches, tier=tier)
                times = view.kernel_times(rows.names[out], dtypes[out], rows.terms[out], places, single, int(count))
                column[out] = np.log(rows.times_s[out] / times.time_s)
    return errors
