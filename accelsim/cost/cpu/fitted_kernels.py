"""Kernel times fitted to one CPU's own measurements: a sum of physical terms, and its interpolated
error.

Tier `fitted`: each kernel's time is its terms (`kernels.TERMS`) times non-negative coefficients.
Tier `measured`: the same times the exponential of a correction interpolated between the measured
shapes, in the logarithm of the dimensions, by a Gaussian process with a Matern 3/2 kernel
(Rasmussen and Williams, 2006, section 4.2). Far from every measured shape the correction fades and
the analytic terms remain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accelsim.cost.cpu.grouped_products import as_products, product_counts
from accelsim.cost.cpu.kernel_terms import (
    MEMORY_TERMS,
    TERMS,
    WORK_TERMS,
    Context,
    kernel_coordinates,
    kernel_terms,
)
from accelsim.cost.cpu.kernels import compiled_names, kernel_names, substitute
from accelsim.cost.cpu.threads import (
    SERIAL_S,
    THREAD_TERMS,
    OneThread,
    SharedWork,
    fixed_terms,
    shared_work,
    thread_terms,
)
from accelsim.cost.table import Tier
from accelsim.workloads.dtype import Dtype
from accelsim.workloads.graph import FloatArray, OperatorGraph

__all__ = ["Correction", "FittedKernels", "KernelFit", "KernelTimes", "matern"]

#: Corrections stay within this factor: an interpolation never overrules the physics by more.
_LARGEST_LOG = 1.2


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
    fixed_s: FloatArray
    log_sigma: FloatArray

    def repeated(self, counts: FloatArray) -> KernelTimes:
        """Each row run `counts` times, shape (n,), with the same relative spread."""
        return KernelTimes(
            self.time_s * counts,
            self.compute_s * counts,
            self.memory_s * counts,
            self.fresh_s * counts,
            self.fixed_s * counts,
            self.log_sigma,
        )


Key = tuple[str, str, int]
_THREAD_WORK = np.array([term.endswith("_s") for term in THREAD_TERMS])
_THREAD_MEMORY = np.array([term.endswith(("bytes", "_l3")) for term in THREAD_TERMS])


@dataclass(frozen=True, slots=True, eq=False)
class FittedKernels:
    """All kernels of one CPU.

    Attributes:
        fits: By kernel, format label and threads.
        l2_bytes: Second-level cache of one core.
        l3_bytes: Last-level cache.
        call_s: What a module's call and the framework's bookkeeping add to an operator.
        gradient_s: What recording and running the backward graph adds to an operator of a training
            step.
        compiled_call_s: What it takes to enter compiled code.
        recurrent_call_s: What a recurrent module does before its first layer.
        tier: FITTED uses the terms alone, MEASURED the corrections too.
    """

    fits: Mapping[Key, KernelFit]
    l2_bytes: float
    l3_bytes: float
    call_s: float = 0.0
    gradient_s: float = 0.0
    compiled_call_s: float = 0.0
    recurrent_call_s: float = 0.0
    tier: Tier = Tier.MEASURED

    @property
    def thread_counts(self) -> tuple[int, ...]:
        """Thread counts that were measured."""
        return tuple(sorted({threads for _, _, threads in self.fits}))

    def times(
        self, graph: OperatorGraph, context: Context, threads: int, *, is_compiled: bool = False
    ) -> KernelTimes:
        """Times of every row whose kernel was measured.

        Args:
            graph: Operators, n rows.
            context: Where weights and buffers are.
            threads: Threads of the framework; the nearest measured count stands for others.
            is_compiled: Whether a compiler made the graph's loops.
        """
        count = min(self.thread_counts, key=lambda known: abs(np.log(known / threads)))
        products = product_counts(graph, count)
        graph, context = as_products(graph, context, products)
        names, alone = (
            kernel_names(graph, is_training=context.is_training, threads=threads)
            for threads in (count, 1)
        )
        if is_compiled:
            known = {kernel for kernel, _, measured in self.fits if measured == count}
            names, alone = compiled_names(graph, names, known), compiled_names(graph, alone, known)
        terms, places = kernel_terms(graph, context), kernel_coordinates(graph, context)
        one = None
        if count != 1:
            one = self.one_thread(
                names, alone, graph.dtype, terms, places, shared_work(graph, names, terms)
            )
        return self.kernel_times(names, graph.dtype, terms, places, one, count).repeated(products)

    def one_thread(
        self,
        names: NDArray[np.str_],
        alone: NDArray[np.str_],
        dtypes: NDArray[np.int8],
        terms: FloatArray,
        places: list[FloatArray],
        work: SharedWork,
    ) -> OneThread:
        """Times on one thread of the kernels that run on several.

        Args:
            names: Kernels on several threads, shape (n,).
            alone: Kernels that one thread would run, shape (n,), for those that were not measured
                on one.
            dtypes: `Dtype` codes, shape (n,).
            terms: Quantities, shape (n, len(TERMS)).
            places: Coordinates of each row.
            work: How several threads split the rows.
        """
        known = {kernel for kernel, _, threads in self.fits if threads == 1}
        single = np.where(np.isin(names, list(known)), names, alone)
        times = self.kernel_times(single, dtypes, terms, places, None, 1)
        return OneThread(times.time_s - times.fresh_s, times.fixed_s, work)

    def kernel_times(
        self,
        names: NDArray[np.str_],
        dtypes: NDArray[np.int8],
        terms: FloatArray,
        places: list[FloatArray],
        one: OneThread | None,
        threads: int,
    ) -> KernelTimes:
        """Times of rows whose kernels, quantities and places are known.

        Args:
            names: Kernels, shape (n,).
            dtypes: `Dtype` codes, shape (n,).
            terms: Quantities, shape (n, len(TERMS)).
            places: Coordinates of each row.
            one: The rows on one thread; needed where `threads` is more.
            threads: A measured thread count.
        """
        rows = len(names)
        time, compute, memory, faults, fixed, sigma = (np.full(rows, np.nan) for _ in range(6))
        fresh = np.array(
            [term == "fresh_bytes" for term in (TERMS if threads == 1 else THREAD_TERMS)]
        )
        working, moving = (
            (WORK_TERMS, MEMORY_TERMS) if threads == 1 else (_THREAD_WORK, _THREAD_MEMORY)
        )
        pairs = np.char.add(np.char.add(names, " "), dtypes.astype("<U4"))
        for pair in np.unique(pairs):
            index = np.flatnonzero(pairs == pair)
            kernel = str(names[index[0]])
            fit = self._fit(kernel, Dtype(int(dtypes[index[0]])).label, threads)
            if fit is None:
                continue
            quantities = terms[index]
            if one is not None:
                quantities = thread_terms(quantities, one[index], fit.serial_s)
            parts = quantities * fit.coefficients
            factor = np.ones(len(index))
            if fit.correction is not None and self.tier is Tier.MEASURED:
                factor = np.exp(
                    fit.correction.at(np.array([places[row] for row in index.tolist()]))
                )
            scaled = parts * np.where(fresh, 1.0, factor[:, None])
            time[index] = scaled.sum(axis=1)
            compute[index] = scaled[:, working].sum(axis=1)
            memory[index] = scaled[:, moving].sum(axis=1)
            faults[index] = scaled[:, fresh].sum(axis=1)
            constant = fixed_terms(kernel) if threads == 1 else fresh
            fixed[index] = scaled[:, constant].sum(axis=1)
            sigma[index] = fit.log_sigma
        return KernelTimes(time, compute, memory, faults, fixed, sigma)

    def _fit(self, kernel: str, dtype: str, threads: int) -> KernelFit | None:
        """The kernel's own fit; where it was not measured that of fp32, or of what stands for it."""
        for name in (kernel, substitute(kernel)):
            for key in ((name, dtype, threads), (name, "fp32", threads)):
                if key in self.fits:
                    return self.fits[key]
        return None
