"""Kernel times fitted to one CPU's own measurements: a sum of physical terms, and its interpolated error.

Tier `fitted`: each kernel's time is its terms (`kernels.TERMS`) times non-negative coefficients. Tier `measured`: the same
times the exponential of a correction interpolated between the measured shapes, in the logarithm of the dimensions, by a
Gaussian process with a Matern 3/2 kernel (Rasmussen and Williams, 2006, section 4.2). Far from every measured shape the
correction fades and the analytic terms remain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accelsim.cost.cpu.kernel_terms import MEMORY_TERMS, TERMS, WORK_TERMS, Context, kernel_coordinates, kernel_terms
from accelsim.cost.cpu.kernels import kernel_names, substitute
from accelsim.cost.table import Tier
from accelsim.workloads.dtype import Dtype
from accelsim.workloads.graph import FloatArray, OperatorGraph

__all__ = ["Correction", "FittedKernels", "KernelFit", "KernelTimes", "matern"]

#: Corrections stay within this factor: an interpolation never overrules the physics by more.
_LARGEST_LOG = 1.2
#: Parallel regions shorter than this on one thread stay on one (the framework's grain of 32,768 elements takes about as
#: long) where a kernel's own rows do not say otherwise.
SERIAL_S = 8e-6
#: Kernels that enter one parallel region for each step or tensor, their first count.
_STEPWISE = ("lstm", "gru", "adamw", "sgd")


def matern(a: FloatArray, b: FloatArray, length_scales: FloatArray) -> FloatArray:
    """Matern 3/2 covariance of unit amplitude between points, shape (len(a), len(b))."""
    gap = (a[:, None, :] - b[None, :, :]) / length_scales
    distance = np.sqrt(3.0 * (gap**2).sum(axis=-1))
    covariance: FloatArray = (1.0 + distance) * np.exp(-distance)
    return covariance


@dataclass(frozen=True, slots=True, eq=False)
class Correction:
    """Interpolated ln(measured / terms) of one kernel.

    Attributes:
        points: Measured places, shape (n, d).
        weights: Coefficient of each place's covariance, shape (n,).
        length_scales: Distance over which the correction fades, per coordinate, shape (d,).
    """

    points: FloatArray
    weights: FloatArray
    length_scales: FloatArray

    def at(self, places: FloatArray) -> FloatArray:
        """Correction at places of shape (k, d), shape (k,)."""
        value = matern(places, self.points, self.length_scales) @ self.weights
        bounded: FloatArray = np.clip(value, -_LARGEST_LOG, _LARGEST_LOG)
        return bounded


@dataclass(frozen=True, slots=True, eq=False)
class KernelFit:
    """One kernel in one format on one thread count.

    Attributes:
        coefficients: Of `TERMS` on one thread, of `thread_terms` on several.
        log_sigma: Spread of ln(measured / predicted) of rows kept from the fit.
        rows: Measured rows.
        correction: Tier `measured`; None where the terms do as well.
        serial_s: On several threads: regions up to this time on one thread stay on one.
    """

    coefficients: FloatArray
    log_sigma: float
    rows: int
    correction: Correction | None = None
    serial_s: float = SERIAL_S


@dataclass(frozen=True, slots=True, eq=False)
class KernelTimes:
    """Predicted times; columns of shape (n,), NaN where the kernel was not measured."""

    time_s: FloatArray
    compute_s: FloatArray
    memory_s: FloatArray
    fresh_s: FloatArray
    log_sigma: FloatArray


Key = tuple[str, str, int]
#: Terms on several threads: fork and join, traffic beyond the last cache, page faults, serial and parallel work, start amid
#: others.
THREAD_TERMS = ("start", "bytes_beyond_l3", "fresh_bytes", "serial_s", "parallel_s", "amid")


_THREAD_WORK = np.array([False, False, False, True, True, False])
_THREAD_MEMORY = np.array([False, True, True, False, False, False])


def region_counts(names: NDArray[np.str_], terms: FloatArray) -> FloatArray:
    """Parallel regions of each row, shape (n,)."""
    stepwise = np.logical_or.reduce([np.char.startswith(names, kernel) for kernel in _STEPWISE])
    regions: FloatArray = np.where(stepwise, np.maximum(terms[:, TERMS.index("first_count")], 1.0), 1.0)
    return regions


def thread_terms(
    terms: FloatArray, one_thread_s: FloatArray, regions: FloatArray, serial_s: float = SERIAL_S
) -> FloatArray:
    """Quantities of rows on several threads, relative to their time on one, shape (n, len(THREAD_TERMS)).

    Args:
        terms: Quantities of the rows, shape (n, len(TERMS)).
        one_thread_s: Predicted times on one thread less their page faults, shape (n,).
        regions: Parallel regions of each row, shape (n,).
        serial_s: Regions up to this time on one thread stay on one.
    """
    parallel = one_thread_s > serial_s * regions
    far, fresh = terms[:, TERMS.index("bytes_beyond_l3")], terms[:, TERMS.index("fresh_bytes")]
    amid = terms[:, TERMS.index("amid")]
    columns = [parallel * regions, far * parallel, fresh, one_thread_s * ~parallel, one_thread_s * parallel]
    columns.append(amid * parallel)
    stacked: FloatArray = np.column_stack(columns)
    return stacked


@dataclass(frozen=True, slots=True, eq=False)
class FittedKernels:
    """All kernels of one CPU.

    Attributes:
        fits: By kernel, format label and threads.
        l2_bytes: Second-level cache of one core.
        l3_bytes: Last-level cache.
        call_s: What a module's call and the framework's bookkeeping add to an operator.
        gradient_s: What recording and running the backward graph adds to an operator of a training step.
        tier: FITTED uses the terms alone, MEASURED the corrections too.
    """

    fits: Mapping[Key, KernelFit]
    l2_bytes: float
    l3_bytes: float
    call_s: float = 0.0
    gradient_s: float = 0.0
    tier: Tier = Tier.MEASURED

    @property
    def thread_counts(self) -> tuple[int, ...]:
        """Thread counts that were measured."""
        return tuple(sorted({threads for _, _, threads in self.fits}))

    def times(self, graph: OperatorGraph, context: Context, threads: int) -> KernelTimes:
        """Times of every row whose kernel was measured.

        Args:
            graph: Operators, n rows.
            context: Where weights and buffers are.
            threads: Threads of the framework; the nearest measured count stands for others.
        """
        count = min(self.thread_counts, key=lambda known: abs(np.log(known / threads)))
        names = kernel_names(graph, is_training=context.is_training, threads=count)
        terms, places = kernel_terms(graph, context), kernel_coordinates(graph, context)
        one = np.zeros(len(graph))
        if count != 1:
            one = self.one_thread_s(
                names, kernel_names(graph, is_training=context.is_training), graph.dtype, terms, places
            )
        return self.kernel_times(names, graph.dtype, terms, places, one, count)

    def one_thread_s(
        self,
        names: NDArray[np.str_],
        alone: NDArray[np.str_],
        dtypes: NDArray[np.int8],
        terms: FloatArray,
        places: list[FloatArray],
    ) -> FloatArray:
        """Time on one thread, less page faults, of the kernel that runs on several; shape (n,), NaN where none is known.

        Args:
            names: Kernels on several threads, shape (n,).
            alone: Kernels that one thread would run, shape (n,), for those that were not measured on one.
            dtypes: `Dtype` codes, shape (n,).
            terms: Quantities, shape (n, len(TERMS)).
            places: Coordinates of each row.
        """
        known = {kernel for kernel, _, threads in self.fits if threads == 1}
        single = np.where(np.isin(names, list(known)), names, alone)
        times = self.kernel_times(single, dtypes, terms, places, np.zeros(len(names)), 1)
        rest: FloatArray = times.time_s - times.fresh_s
        return rest

    def kernel_times(
        self,
        names: NDArray[np.str_],
        dtypes: NDArray[np.int8],
        terms: FloatArray,
        places: list[FloatArray],
        one_thread_s: FloatArray,
        threads: int,
    ) -> KernelTimes:
        """Times of rows whose kernels, quantities and places are known.

        Args:
            names: Kernels, shape (n,).
            dtypes: `Dtype` codes, shape (n,).
            terms: Quantities, shape (n, len(TERMS)).
            places: Coordinates of each row.
            one_thread_s: Times on one thread, shape (n,); used where `threads` is more.
            threads: A measured thread count.
        """
        rows = len(names)
        time, compute, memory, faults, sigma = (np.full(rows, np.nan) for _ in range(5))
        regions = region_counts(names, terms)
        fresh = np.array([term == "fresh_bytes" for term in (TERMS if threads == 1 else THREAD_TERMS)])
        working, moving = (WORK_TERMS, MEMORY_TERMS) if threads == 1 else (_THREAD_WORK, _THREAD_MEMORY)
        pairs = np.char.add(np.char.add(names, " "), dtypes.astype("<U4"))
        for pair in np.unique(pairs):
            index = np.flatnonzero(pairs == pair)
            fit = self._fit(str(names[index[0]]), Dtype(int(dtypes[index[0]])).label, threads)
            if fit is None:
                continue
            quantities = terms[index]
            if threads > 1:
                quantities = thread_terms(quantities, one_thread_s[index], regions[index], fit.serial_s)
            parts = quantities * fit.coefficients
            factor = np.ones(len(index))
            if fit.correction is not None and self.tier is Tier.MEASURED:
                factor = np.exp(fit.correction.at(np.array([places[row] for row in index.tolist()])))
            scaled = parts * np.where(fresh, 1.0, factor[:, None])
            time[index] = scaled.sum(axis=1)
            compute[index] = scaled[:, working].sum(axis=1)
            memory[index] = scaled[:, moving].sum(axis=1)
            faults[index] = scaled[:, fresh].sum(axis=1)
            sigma[index] = fit.log_sigma
        return KernelTimes(time, compute, memory, faults, sigma)

    def _fit(self, kernel: str, dtype: str, threads: int) -> KernelFit | None:
        """The kernel's own fit; where it was not measured that of fp32, or of what stands for it."""
        for name in (kernel, substitute(kernel)):
            for key in ((name, dtype, threads), (name, "fp32", threads)):
                if key in self.fits:
                    return self.fits[key]
        return None
