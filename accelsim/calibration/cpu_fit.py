"""Fits a CPU's kernels to a calibration run.

Each kernel, format and thread count is fitted on its own rows, drawn towards the fit of its whole
family (both formats), which in turn is drawn towards that of all rows: a kernel whose rows show no
page fault or no working set beyond the last cache has what its family shows. Several threads are
fitted relative to the same shape on one thread. The spread of each kernel is that of rows left out
in a five-fold cross-validation over shapes: all conditions of one shape go together.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TypeVar

import numpy as np

from accelsim.calibration.least_squares import fit_nonnegative
from accelsim.calibration.measurement.case import FOLDS, Case
from accelsim.calibration.run_file import CalibrationRun, Measurement, measured_graph
from accelsim.cost.cpu.fitted_kernels import FittedKernels, KernelFit, Key
from accelsim.cost.cpu.kernel_terms import TERMS, Context, kernel_terms
from accelsim.cost.cpu.kernels import kernel_names, substitute
from accelsim.cost.cpu.parameters import cpu_parameters
from accelsim.cost.cpu.threads import (
    SERIAL_S,
    THREAD_TERMS,
    OneThread,
    thread_terms,
)
from accelsim.frozen import frozen
from accelsim.plain import grouped
from accelsim.workloads.graph import BoolArray, FloatArray, IntArray, OperatorGraph, TextArray

K = TypeVar("K", bound=Hashable)
_PAGE_FAULT_BYTES = 32.0 * 2**20
_PAGE_BYTES = 4096.0
_FEW_FAULTS = 16.0
#: Spread of a kernel with too few rows to leave any out.
_DEFAULT_LOG_SIGMA = 0.3
#: Where no row says otherwise: serial work takes its one-thread time, parallel work 0.6 of it.
_THREAD_PRIOR = np.array([0.0, 0.0, 0.0, 1.0, 0.6, 0.0])
_SHARED = np.array([term.startswith(("fresh", "bytes_beyond", "cold")) for term in TERMS])
_START, _FRESH, _COLD = (
    TERMS.index("start"),
    TERMS.index("fresh_bytes"),
    TERMS.index("cold_weight_bytes"),
)
#: Terms of what it takes to start threads.
_STARTS = ("start", "evicted")
#: Families that run elementwise kernels, whose threads each touch their part of a result for the
#: first time.
_ELEMENTWISE = frozenset({"elementwise", "optimizer", "embedding"})
#: Times from which a kernel may split its work, and rows it takes to tell them apart.
_SERIAL_S = (2e-6, SERIAL_S, 32e-6)
_FEWEST_ROWS = 8
#: Shapes below which a kernel has what stands for it rather than a fit of its own.
_FEWEST_SHAPES = 3
#: Rows below which what a call takes to start must be a share of their times to be told from its
#: family's.
_FEW_ROWS, _LEAST_START = 16, 0.3
#: Readings of the reference operator that are taken together.
_NEIGHBOURS = 5
#: Compiled kernels take at least this of a call, whatever it takes to enter compiled code.
_LEAST_KERNEL = 0.1
#: Noise beyond which a block or a round was disturbed, and counts no more.
_MOST_NOISE = 0.05
#: Predictions of less count as this: terms that a few rows show may all be zero in another.
_LEAST_S = 1e-9
#: Page faults never take more than this of a row's time.
_MOST_FAULTS = 0.9


@frozen(eq=False)
class MeasuredKernels:
    """Measured cases with what the fit needs of them; n rows.

    Attributes:
        cases: The cases.
        graph: Their operator rows.
        times_s: Best time of each, shape (n,).
        names: Kernel of each, shape (n,).
        terms: Their quantities, shape (n, len(TERMS)).
        threads: Threads of each, shape (n,).
        families: Family of each, shape (n,).
        caches: Bytes of the first-level, the second-level and the last-level cache.
    """

    cases: Sequence[Case]
    graph: OperatorGraph
    times_s: FloatArray
    names: TextArray
    terms: FloatArray
    threads: IntArray
    families: TextArray
    caches: tuple[float, float, float]

    def by_kernel(self, indices: IntArray) -> dict[Key, IntArray]:
        """Some rows by kernel, format and threads."""

        def key_of(row: int) -> Key:
            case = self.cases[row]
            return str(self.names[row]), case.dtype, case.threads

        return _rows_by(indices, key_of)


def _rows_by(indices: IntArray, key_of: Callable[[int], K]) -> dict[K, IntArray]:
    rows_of = grouped(indices.tolist(), key_of)
    return {key: np.array(rows) for key, rows in rows_of.items()}


def kernel_rows(run: CalibrationRun, caches: tuple[float, float, float]) -> MeasuredKernels:
    """Rows of a run that the CPU model knows and that were measured without interference.

    Args:
        run: A run on a CPU.
        caches: Bytes of the first-level, the second-level and the last-level cache.
    """
    usable = [
        row
        for row in at_one_speed(run)
        if row.row is not None and row.time_s is not None and row.is_undisturbed
    ]
    best = list(replace(run, rows=usable).best().values())
    cases = [row.case for row in best]
    times = _expected_s(usable, best)
    entry_s = compiled_call_s(run) * np.array([case.execution == "compiled" for case in cases])
    times = np.maximum(times - entry_s, _LEAST_KERNEL * times)
    graph = measured_graph(best)
    threads, families, cold, amid = (
        np.array(list(map(attrgetter(name), cases)))
        for name in ("threads", "family", "cold", "amid")
    )
    context = Context(
        *caches,
        np.where(cold, np.inf, 0.0),
        is_training=False,
        page_fault_bytes=_PAGE_FAULT_BYTES,
        evicted=amid.astype(np.float64),
    )
    terms = kernel_terms(graph, context)
    terms[:, _FRESH] = _fresh_bytes(best, terms[:, _FRESH])
    names = _names(graph, cases)
    return MeasuredKernels(
        cases,
        graph,
        times,
        names,
        terms,
        threads,
        families,
        caches,
    )


def _fresh_bytes(rows: Sequence[Measurement], mapped: FloatArray) -> FloatArray:
    """Bytes that page-faulted in each call, as counted; what is always mapped where nobody counted.

    Whether a large buffer is fresh depends on the heap's state: counts say what really happened.
    """
    counts = np.array([row.details.get("minor_faults") for row in rows], dtype=np.float64)
    counted_bytes = counts * _PAGE_BYTES * (counts > _FEW_FAULTS)
    return np.where(np.isnan(counts), mapped, counted_bytes)


def compiled_call_s(run: CalibrationRun) -> float:
    """Time to enter compiled code; 0 where it was not measured."""
    rows = [row for row in run.best().values() if row.case.operator == "compiled_call"]
    return min((row.time_s or 0.0 for row in rows), default=0.0)


def _expected_s(rows: Sequence[Measurement], best: Sequence[Measurement]) -> FloatArray:
    """Time to expect of a call of each case: the mean over rounds of their middle blocks, as a
    model's time is a mean.

    The least block of the better round is 2 to 5 % below that. Estimate: noise beyond `_MOST_NOISE`
    is a disturbance.
    """
    times_of = grouped(rows, lambda row: row.case.key)
    times = []
    for best_row in best:
        middles = [_middle_s(row) for row in times_of[best_row.case.key]]
        times.append(min(float(np.mean(middles)), (1.0 + _MOST_NOISE) * min(middles)))
    return np.array(times)


def _middle_s(row: Measurement) -> float:
    """Time of a row's middle block; calls amid others are timed by their median already."""
    noise = 0.0 if row.case.amid else min(row.noise_fraction, _MOST_NOISE)
    return (row.time_s or 0.0) * (1.0 + noise)


def at_one_speed(run: CalibrationRun) -> list[Measurement]:
    """The rows as if the machine had run at its median speed throughout: a shared host's clock
    drifts by tenths.

    The reference operator, timed again and again, says how fast it was; the median of a few
    neighbouring readings counts. Estimate: all rows slow down as the reference does.
    """
    reference_s = np.array([float(row.details.get("reference_s") or 0.0) for row in run.rows])
    changes = np.flatnonzero((reference_s > 0) & (np.diff(reference_s, prepend=0.0) != 0))
    if not len(changes):
        return list(run.rows)
    series, reach = reference_s[changes], _NEIGHBOURS // 2
    smooth = [np.median(series[max(0, i - reach) : i + reach + 1]) for i in range(len(series))]
    last = np.searchsorted(changes, np.arange(len(reference_s)), side="right") - 1
    scales = np.median(series) / np.array(smooth)[np.maximum(last, 0)]
    return [
        row if row.time_s is None else replace(row, time_s=row.time_s * scale)
        for row, scale in zip(run.rows, scales.tolist(), strict=True)
    ]


def _names(graph: OperatorGraph, cases: Sequence[Case]) -> TextArray:
    training = np.array([case.operator.endswith("_train") for case in cases])
    compiled = np.array([case.execution == "compiled" for case in cases])
    inference_names, training_names = (
        kernel_names(graph, is_training=is_training) for is_training in (False, True)
    )
    names = np.where(training, training_names, inference_names)
    return np.where(compiled, [case.operator for case in cases], names)


def fit_kernels(
    rows: MeasuredKernels, keep: BoolArray | None = None, errors: FloatArray | None = None
) -> FittedKernels:
    """Fit every kernel.

    Args:
        rows: Measured rows.
        keep: Rows to fit to; all where None.
        errors: ln(measured / predicted) of every row left out, which gives each kernel its spread;
            a default where None.
    """
    chosen = ~_too_few(rows) if keep is None else keep & ~_too_few(rows)
    fits: dict[Key, KernelFit] = {}
    fitted = FittedKernels(fits, *rows.caches)
    for threads in np.unique(rows.threads).tolist():
        indices = np.flatnonzero(chosen & (rows.threads == threads))
        if threads == 1 or not fits:
            fits.update(_fit_one_thread(rows, indices))
        else:
            fits.update(_fit_threads(rows, indices, threads, fitted))
    if errors is None:
        return fitted
    indices_of = rows.by_kernel(np.arange(len(rows.cases)))
    spread = {
        key: replace(fit, log_sigma=_spread(errors[indices_of[key]])) for key, fit in fits.items()
    }
    return FittedKernels(spread, *rows.caches)


def _too_few(rows: MeasuredKernels) -> BoolArray:
    """Rows of kernels that were measured in too few shapes to tell their terms, where another
    stands for them, (n,).
    """
    shapes: dict[str, set[str]] = {}
    for name, case in zip(rows.names.tolist(), rows.cases, strict=True):
        shapes.setdefault(name, set()).add(case.label)
    few = [
        name
        for name, labels in shapes.items()
        if len(labels) < _FEWEST_SHAPES and substitute(name) in shapes.keys() - {name}
    ]
    return np.isin(rows.names, few)


def _spread(errors: FloatArray) -> float:
    finite = errors[~np.isnan(errors)]
    if len(finite) < 4:
        return _DEFAULT_LOG_SIGMA
    return float(max(0.02, np.quantile(np.abs(finite), 0.9) / 1.645))


def _one_thread(rows: MeasuredKernels, fitted: FittedKernels) -> OneThread:
    """Every row on one thread as predicted."""
    return fitted.one_thread(rows.names, rows.graph.dtype, rows.terms)


def _page_fault_s(
    rows: MeasuredKernels, quantities: FloatArray, indices: IntArray, fresh: int
) -> float:
    """Time of a fresh byte: what elementwise rows take beyond those of their kernel that have none,
    else what all rows together show; the class's where none does.

    Estimate: a fresh byte costs the same in every kernel, so the median over rows counts.
    """
    prices: list[float] = []
    streaming = indices[rows.families[indices] == "elementwise"]
    for kernel_indices in rows.by_kernel(streaming).values():
        faults = quantities[kernel_indices, fresh] > 0
        calm, faulting = kernel_indices[~faults], kernel_indices[faults]
        if len(faulting) and len(calm) >= _FEWEST_ROWS:
            coefficients = fit_nonnegative(quantities[calm], rows.times_s[calm])
            fault_s = rows.times_s[faulting] - quantities[faulting] @ coefficients
            prices += (fault_s / quantities[faulting, fresh]).tolist()
    if prices:
        return max(float(np.median(prices)), 0.0)
    if quantities[indices, fresh].any():
        return float(fit_nonnegative(quantities[indices], rows.times_s[indices], ridge=1e-4)[fresh])
    return cpu_parameters().page_fault_s_per_byte


def _without_faults(
    times_s: FloatArray, quantities: FloatArray, fresh: int, price: FloatArray | float
) -> tuple[FloatArray, FloatArray]:
    """Times and quantities less page faults: a fresh page costs the same, whichever kernel touches
    it.

    Estimate: faults take `_MOST_FAULTS` of a row's time at most.
    """
    faults_s = np.minimum(price * quantities[:, fresh], _MOST_FAULTS * times_s)
    left = quantities.copy()
    left[:, fresh] = 0.0
    return times_s - faults_s, left


def _fit_one_thread(rows: MeasuredKernels, indices: IntArray) -> dict[Key, KernelFit]:
    """Fits of one thread, family by family."""
    page_s = _page_fault_s(rows, rows.terms, indices, _FRESH)
    times, terms = _without_faults(rows.times_s, rows.terms, _FRESH, page_s)
    prior = np.where(_SHARED, fit_nonnegative(terms[indices], times[indices], ridge=1e-4), 0.0)
    prior[_FRESH] = page_s

    def fit_kernel(members: IntArray, base: FloatArray) -> KernelFit:
        coefficients = _fit_terms(terms[members], times[members], base, 3e-3)
        return KernelFit(coefficients, _DEFAULT_LOG_SIGMA, len(members))

    return _fit_families(
        rows,
        indices,
        lambda members: _fit_terms(terms[members], times[members], prior, 1e-3),
        fit_kernel,
    )


def _fit_families(
    rows: MeasuredKernels,
    indices: IntArray,
    fit_family: Callable[[IntArray], FloatArray],
    fit_kernel: Callable[[IntArray, FloatArray], KernelFit],
) -> dict[Key, KernelFit]:
    """Fits of kernels to some rows, each drawn towards the coefficients of its family."""
    families = rows.families.tolist()
    by_family = _rows_by(indices, families.__getitem__)
    bases = {family: fit_family(members) for family, members in by_family.items()}
    return {
        key: fit_kernel(members, bases[families[members[0]]])
        for key, members in rows.by_kernel(indices).items()
    }


def _fit_threads(
    rows: MeasuredKernels, indices: IntArray, threads: int, fitted: FittedKernels
) -> dict[Key, KernelFit]:
    """Fits of several threads, family by family.

    A fresh byte costs what it costs the median kernel on one thread where no row tells, and a byte
    beyond the last-level cache no more than it: several threads fetch a byte no slower than one
    does, whose time for it they share. Estimate: that time is one thread's, less its share of it.
    """
    fresh = THREAD_TERMS.index("fresh_bytes")
    one_thread = _one_thread(rows, fitted)
    quantities = thread_terms(rows.terms, one_thread)
    indices = indices[np.isfinite(quantities[indices]).all(axis=1)]
    single = np.median(
        [fit.coefficients for key, fit in fitted.fits.items() if key[2] == 1], axis=0
    )
    page_s = _page_fault_s(rows, quantities, indices, fresh)
    # Elementwise kernels touch fresh pages side by side; in a model one thread often touches those
    # of other kernels by itself: between that and one thread's price.
    alike = np.isin(rows.families, list(_ELEMENTWISE))
    prices = np.where(alike, page_s, np.sqrt(page_s * single[_FRESH]))
    times, quantities = _without_faults(rows.times_s, quantities, fresh, prices)
    prior = _thread_prior(quantities[indices], times[indices])
    far_s = single[_COLD] * (1.0 - 1.0 / threads)
    most = np.where(np.isin(THREAD_TERMS, "bytes_beyond_l3"), far_s, np.inf)
    terms = rows.terms.copy()
    terms[:, _FRESH] = 0.0

    def fit_family(members: IntArray) -> FloatArray:
        start = prior.copy()
        start[fresh] = prices[members[0]]
        return fit_nonnegative(quantities[members], times[members], start, ridge=1e-3, most=most)

    def fit_kernel(members: IntArray, base: FloatArray) -> KernelFit:
        return _fit_parallel(terms[members], one_thread[members], times[members], base, most)

    return _fit_families(rows, indices, fit_family, fit_kernel)


def _thread_prior(quantities: FloatArray, times_s: FloatArray) -> FloatArray:
    """Where a kernel's rows do not say otherwise: threads start as in all kernels."""
    pooled = fit_nonnegative(quantities, times_s, _THREAD_PRIOR, ridge=1e-4)
    return np.where(np.isin(THREAD_TERMS, _STARTS), pooled, _THREAD_PRIOR)


def _fit_terms(
    quantities: FloatArray,
    times_s: FloatArray,
    prior: FloatArray,
    ridge: float,
) -> FloatArray:
    """Coefficients of terms on one thread; where rows are few, the start of a call must be a good
    part of their times to be told from its family's: all of them large, they would say anything of
    a small one.
    """
    least = np.zeros(len(TERMS))
    if len(times_s) < _FEW_ROWS and prior[_START] > 0:
        least[_START] = _LEAST_START / prior[_START]
    return fit_nonnegative(quantities, times_s, prior, ridge=ridge, least_scale=least)


def _fit_parallel(
    terms: FloatArray,
    one_thread: OneThread,
    times: FloatArray,
    base: FloatArray,
    most: FloatArray,
) -> KernelFit:
    """On several threads: the time from which work is split is the one that explains the kernel's
    rows best.
    """
    errors: dict[float, KernelFit] = {}
    for serial_s in _SERIAL_S if len(times) >= _FEWEST_ROWS else (SERIAL_S,):
        quantities = thread_terms(terms, one_thread, serial_s)
        coefficients = fit_nonnegative(quantities, times, base, ridge=2e-2, most=most)
        predicted = np.maximum(quantities @ coefficients, _LEAST_S)
        error = float(np.abs(np.log(predicted / times)).mean())
        errors.setdefault(error, KernelFit(coefficients, _DEFAULT_LOG_SIGMA, len(times), serial_s))
    return errors[min(errors)]


def cross_validate(rows: MeasuredKernels) -> FloatArray:
    """ln(measured / predicted) of every row by a fit that has not seen its shape, shape (n,); NaN
    where its kernel had no other rows.
    """
    errors = np.full(len(rows.cases), np.nan)
    folds = np.array([case.fold for case in rows.cases])
    for fold in range(FOLDS):
        fitted = fit_kernels(rows, folds != fold)
        one_thread = _one_thread(rows, fitted)
        for threads in np.unique(rows.threads).tolist():
            out = np.flatnonzero((folds == fold) & (rows.threads == threads))
            single = one_thread[out] if threads > 1 else None
            times = fitted.kernel_times(
                rows.names[out], rows.graph.dtype[out], rows.terms[out], single, threads
            )
            errors[out] = np.log(rows.times_s[out] / np.maximum(times.time_s, _LEAST_S))
    return errors
