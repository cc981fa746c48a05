"""Fits a CPU's kernels to a calibration run.

Each kernel, format and thread count is fitted on its own rows, drawn towards the fit of its whole
family (both formats), which in turn is drawn towards that of all rows: a kernel whose rows show no
page fault or no working set beyond the last cache has what its family shows. Several threads are
fitted relative to the same shape on one thread. The spread of each kernel is that of rows left out
in a five-fold cross-validation over shapes: all conditions of one shape go together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import md5
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from accelsim.calibration.least_squares import fit_nonnegative
from accelsim.calibration.measurement.case import Case
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
from accelsim.dtype import Dtype
from accelsim.frozen import frozen
from accelsim.plain import grouped
from accelsim.workloads.graph import BoolArray, FloatArray, IntArray, OperatorGraph, TextArray

FOLDS = 5
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
        folds: Part of the cross-validation each shape belongs to, shape (n,).
        dtypes: `Dtype` codes, shape (n,).
        threads: Threads of each, shape (n,).
        families: Family of each, shape (n,).
        caches: Bytes of the first-level, the second-level and the last-level cache.
    """

    cases: Sequence[Case]
    graph: OperatorGraph
    times_s: FloatArray
    names: TextArray
    terms: FloatArray
    folds: IntArray
    dtypes: NDArray[np.int8]
    threads: IntArray
    families: TextArray
    caches: tuple[float, float, float]

    def keys(self, index: IntArray) -> list[Key]:
        """Kernel, format and threads of some rows."""
        names = self.names[index].tolist()
        cases = [self.cases[row] for row in index.tolist()]
        return [(name, case.dtype, case.threads) for name, case in zip(names, cases, strict=True)]


def kernel_rows(run: CalibrationRun, caches: tuple[float, float, float]) -> MeasuredKernels:
    """Rows of a run that the CPU model knows and that were measured without interference.

    Args:
        run: A run on a CPU.
        caches: Bytes of the first-level, the second-level and the last-level cache.
    """
    known = [
        row
        for row in at_one_speed(run)
        if row.row is not None and row.details.get("undisturbed", True)
    ]
    best = list(replace(run, rows=known).best().values())
    cases = [row.case for row in best]
    times = _expected_s(known, best)
    times = np.maximum(times - _entry_s(run, cases), _LEAST_KERNEL * times)
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
        np.array([_fold(case) for case in cases]),
        np.array([int(Dtype[case.dtype.upper()]) for case in cases], dtype=np.int8),
        threads,
        families,
        caches,
    )


def _entry_s(run: CalibrationRun, cases: Sequence[Case]) -> FloatArray:
    """Time of each case to enter compiled code, shape (n,)."""
    return compiled_call_s(run) * np.array([case.execution == "compiled" for case in cases])


def _fold(case: Case) -> int:
    """Part of the cross-validation that a shape belongs to, the same in every run."""
    digest = md5(case.label.encode(), usedforsecurity=False).hexdigest()
    return int(digest[:8], 16) % FOLDS


def _fresh_bytes(rows: Sequence[Measurement], mapped: FloatArray) -> FloatArray:
    """Bytes that page-faulted in each call, as counted; what is always mapped where nobody counted.

    Whether a large buffer is fresh depends on the heap's state: counts say what really happened.
    """
    counts = [row.details.get("minor_faults") for row in rows]
    fresh = [
        known if count is None else count * _PAGE_BYTES * (count > _FEW_FAULTS)
        for count, known in zip(counts, mapped.tolist(), strict=True)
    ]
    return np.array(fresh, dtype=np.float64)


def compiled_call_s(run: CalibrationRun) -> float:
    """Time to enter compiled code; 0 where it was not measured."""
    times = [
        row.time_s
        for row in run.best().values()
        if row.case.operator == "compiled_call" and row.time_s
    ]
    return min(times, default=0.0)


def _expected_s(rows: Sequence[Measurement], best: Sequence[Measurement]) -> FloatArray:
    """Time to expect of a call of each case: the mean over rounds of their middle blocks, as a
    model's time is a mean.

    The least block of the better round is 2 to 5 % below that.
    """
    times_of: dict[str, list[float]] = {}
    for row in rows:
        if row.time_s is not None:
            middle = (
                row.time_s
                if row.case.amid
                else row.time_s * (1.0 + min(row.noise_fraction, _MOST_NOISE))
            )
            times_of.setdefault(row.case.key, []).append(middle)
    times = [times_of[row.case.key] for row in best]
    return np.array([min(float(np.mean(each)), (1.0 + _MOST_NOISE) * min(each)) for each in times])


def at_one_speed(run: CalibrationRun) -> list[Measurement]:
    """The rows as if the machine had run at its median speed throughout: a shared host's clock
    drifts by tenths.

    The reference operator, timed again and again, says how fast it was; the median of a few
    neighbouring readings counts. Estimate: all rows slow down as the reference does.
    """
    read = np.array([float(row.details.get("reference_s") or 0.0) for row in run.rows])
    changes = np.flatnonzero((read > 0) & (np.diff(read, prepend=0.0) != 0))
    if not len(changes):
        return list(run.rows)
    series, reach = read[changes], _NEIGHBOURS // 2
    smooth = [np.median(series[max(0, i - reach) : i + reach + 1]) for i in range(len(series))]
    last = np.searchsorted(changes, np.arange(len(read)), side="right") - 1
    scales = np.median(series) / np.array(smooth)[np.maximum(last, 0)]
    return [
        row if row.time_s is None else replace(row, time_s=row.time_s * scale)
        for row, scale in zip(run.rows, scales.tolist(), strict=True)
    ]


def _names(graph: OperatorGraph, cases: Sequence[Case]) -> TextArray:
    names = np.zeros(len(cases), dtype="<U40")
    training = np.array([case.operator.endswith("_train") for case in cases])
    for is_training in (False, True):
        chosen = kernel_names(graph, is_training=is_training)
        names = np.where(training == is_training, chosen, names)
    compiled = np.array([case.execution == "compiled" for case in cases])
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
        own = np.flatnonzero(chosen & (rows.threads == threads))
        if threads == 1 or not fits:
            fits.update(_fit_one_thread(rows, own))
        else:
            fits.update(_fit_threads(rows, own, threads, fitted))
    if errors is None:
        return fitted
    places = _grouped(rows.keys(np.arange(len(rows.cases))))
    spread = {
        key: replace(fit, log_sigma=_spread(errors[places[key]])) for key, fit in fits.items()
    }
    return FittedKernels(spread, *rows.caches)


def _too_few(rows: MeasuredKernels) -> BoolArray:
    """Rows of kernels that were measured in too few shapes to tell their terms, where another
    stands for them, (n,).
    """
    shapes: dict[str, set[tuple[str, str]]] = {}
    for name, case in zip(rows.names.tolist(), rows.cases, strict=True):
        shapes.setdefault(name, set()).add((case.operator, str(case.shape)))
    few = [
        name
        for name, own in shapes.items()
        if len(own) < _FEWEST_SHAPES and shapes.keys() - {name} >= {substitute(name)}
    ]
    return np.isin(rows.names, few)


def _spread(errors: FloatArray) -> float:
    known = errors[~np.isnan(errors)]
    if len(known) < 4:
        return _DEFAULT_LOG_SIGMA
    return float(max(0.02, np.quantile(np.abs(known), 0.9) / 1.645))


def _grouped(keys: Sequence[Key]) -> dict[Key, IntArray]:
    rows_of = grouped(range(len(keys)), keys.__getitem__)
    return {key: np.array(rows) for key, rows in rows_of.items()}


def _one_thread(rows: MeasuredKernels, fitted: FittedKernels) -> OneThread:
    """Every row on one thread as predicted."""
    return fitted.one_thread(rows.names, rows.dtypes, rows.terms)


def _page_fault_s(
    rows: MeasuredKernels, quantities: FloatArray, own: IntArray, fresh: int
) -> float:
    """Time of a fresh byte: what elementwise rows take beyond those of their kernel that have none,
    else what all rows together show; the class's where none does.

    Estimate: a fresh byte costs the same in every kernel, so the median over rows counts.
    """
    prices: list[float] = []
    streaming = own[rows.families[own] == "elementwise"]
    for _, places in _by_kernel(rows, streaming):
        faults = quantities[places, fresh] > 0
        calm, faulting = places[~faults], places[faults]
        if len(faulting) and len(calm) >= _FEWEST_ROWS:
            coefficients = fit_nonnegative(quantities[calm], rows.times_s[calm])
            rest = rows.times_s[faulting] - quantities[faulting] @ coefficients
            prices += (rest / quantities[faulting, fresh]).tolist()
    if prices:
        return max(float(np.median(prices)), 0.0)
    if quantities[own, fresh].any():
        return float(fit_nonnegative(quantities[own], rows.times_s[own], ridge=1e-4)[fresh])
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


def _fit_one_thread(rows: MeasuredKernels, own: IntArray) -> dict[Key, KernelFit]:
    """Fits of one thread, family by family."""
    page_s = _page_fault_s(rows, rows.terms, own, _FRESH)
    times, terms = _without_faults(rows.times_s, rows.terms, _FRESH, page_s)
    prior = np.where(_SHARED, fit_nonnegative(terms[own], times[own], ridge=1e-4), 0.0)
    prior[_FRESH] = page_s
    bases = {
        family: _fit_terms(terms[members], times[members], prior, 1e-3)
        for family, members in _by_family(rows, own)
    }
    fits = {}
    for key, places in _by_kernel(rows, own):
        family = str(rows.families[places[0]])
        coefficients = _fit_terms(terms[places], times[places], bases[family], 3e-3)
        fits[key] = KernelFit(coefficients, _DEFAULT_LOG_SIGMA, len(places))
    return fits


def _fit_threads(
    rows: MeasuredKernels, own: IntArray, threads: int, fitted: FittedKernels
) -> dict[Key, KernelFit]:
    """Fits of several threads, family by family.

    A fresh byte costs what it costs the median kernel on one thread where no row tells, and a byte
    beyond the last-level cache no more than it: several threads fetch a byte no slower than one
    does, whose time for it they share.
    """
    fresh = THREAD_TERMS.index("fresh_bytes")
    one_thread = _one_thread(rows, fitted)
    quantities = thread_terms(rows.terms, one_thread)
    own = own[np.isfinite(quantities[own]).all(axis=1)]
    single = np.median(
        [fit.coefficients for key, fit in fitted.fits.items() if key[2] == 1], axis=0
    )
    page_s = _page_fault_s(rows, quantities, own, fresh)
    # Elementwise kernels touch fresh pages side by side; in a model one thread often touches those
    # of other kernels by itself: between that and one thread's price.
    alike = np.isin(rows.families, list(_ELEMENTWISE))
    prices = np.where(alike, page_s, np.sqrt(page_s * single[_FRESH]))
    times, quantities = _without_faults(rows.times_s, quantities, fresh, prices)
    prior = _thread_prior(quantities[own], times[own])
    far_s = single[_COLD] * (1.0 - 1.0 / threads)
    most = np.where(np.isin(THREAD_TERMS, "bytes_beyond_l3"), far_s, np.inf)
    bases = {}
    for family, members in _by_family(rows, own):
        start = prior.copy()
        start[fresh] = prices[members[0]]
        bases[family] = fit_nonnegative(
            quantities[members], times[members], start, ridge=1e-3, most=most
        )
    terms = _without_faults(times, rows.terms, _FRESH, 0.0)[1]
    fits = {}
    for key, places in _by_kernel(rows, own):
        family = str(rows.families[places[0]])
        fits[key] = _fit_parallel(
            terms[places], one_thread[places], times[places], bases[family], most
        )
    return fits


def _by_family(rows: MeasuredKernels, own: IntArray) -> Iterator[tuple[str, IntArray]]:
    """Rows of each family."""
    for family in np.unique(rows.families[own]).tolist():
        yield family, own[rows.families[own] == family]


def _by_kernel(rows: MeasuredKernels, own: IntArray) -> Iterator[tuple[Key, IntArray]]:
    """Rows of each kernel and format on one count of threads."""
    for key, index in _grouped(rows.keys(own)).items():
        yield key, own[index]


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
    fits: list[tuple[float, KernelFit]] = []
    for serial_s in _SERIAL_S if len(times) >= _FEWEST_ROWS else (SERIAL_S,):
        quantities = thread_terms(terms, one_thread, serial_s)
        coefficients = fit_nonnegative(quantities, times, base, ridge=2e-2, most=most)
        error = float(
            np.abs(np.log(np.maximum(quantities @ coefficients, _LEAST_S) / times)).mean()
        )
        fit = KernelFit(coefficients, _DEFAULT_LOG_SIGMA, len(times), serial_s)
        fits.append((error, fit))
    return min(fits, key=lambda entry: entry[0])[1]


def cross_validate(rows: MeasuredKernels) -> FloatArray:
    """ln(measured / predicted) of every row by a fit that has not seen its shape, shape (n,); NaN
    where its kernel had no other rows.
    """
    errors = np.full(len(rows.cases), np.nan)
    for fold in range(FOLDS):
        fitted = fit_kernels(rows, rows.folds != fold)
        one_thread = _one_thread(rows, fitted)
        for threads in np.unique(rows.threads).tolist():
            out = np.flatnonzero((rows.folds == fold) & (rows.threads == threads))
            times = fitted.kernel_times(
                rows.names[out],
                rows.dtypes[out],
                rows.terms[out],
                one_thread[out] if threads > 1 else None,
                threads,
            )
            errors[out] = np.log(rows.times_s[out] / np.maximum(times.time_s, _LEAST_S))
    return errors
