"""Kernel times fitted to one CPU's own measurements: each a sum of physical terms times
non-negative coefficients (`kernel_terms.TERMS`), with the spread of shapes that the fit had not
seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from accelsim.cost.cpu.grouped_products import as_products, product_counts
from accelsim.cost.cpu.kernel_terms import (
    MEMORY_TERMS,
    TERMS,
    WORK_TERMS,
    Context,
    kernel_terms,
)
from accelsim.cost.cpu.kernels import compiled_names, kernel_names, substitute
from accelsim.cost.cpu.threads import (
    SERIAL_S,
    THREAD_TERMS,
    OneThread,
    fixed_terms,
    region_counts,
    thread_terms,
)
from accelsim.dtype import Dtype
from accelsim.frozen import frozen
from accelsim.plain import grouped
from accelsim.workloads.graph import FloatArray, IntArray, OperatorGraph, TextArray


@frozen(eq=False)
class KernelFit:
    """One kernel in one format on one thread count.

    Attributes:
        coefficients: Of `TERMS` on one thread, of `thread_terms` on several.
        log_sigma: Spread of ln(measured / predicted) of rows kept from the fit.
        rows: Measured rows.
        serial_s: On several threads: regions up to this time on one thread stay on one.
    """

    coefficients: FloatArray
    log_sigma: float
    rows: int
    serial_s: float = SERIAL_S


@frozen(eq=False)
class KernelTimes:
    """Predicted times; columns of shape (n,), NaN where the kernel was not measured."""

    time_s: FloatArray
    compute_s: FloatArray
    memory_s: FloatArray
    fresh_s: FloatArray
    fixed_s: FloatArray
    log_sigma: FloatArray

    def repeated(self, counts: FloatArray) -> KernelTimes:
        """Each row run `counts` times, shape (n,), with the same relative spread.

        Estimate: runs of one kernel err alike.
        """
        return KernelTimes(
            self.time_s * counts,
            self.compute_s * counts,
            self.memory_s * counts,
            self.fresh_s * counts,
            self.fixed_s * counts,
            self.log_sigma,
        )


#: Kernel, format label and threads.
Key = tuple[str, str, int]
_THREAD_WORK = np.array([term.endswith("_s") for term in THREAD_TERMS])
_THREAD_MEMORY = np.array([term.endswith(("bytes", "_l3")) for term in THREAD_TERMS])


@frozen(eq=False)
class FittedKernels:
    """All kernels of one CPU.

    Attributes:
        fits: By kernel, format label and threads.
        l1_bytes: First-level data cache of one core.
        l2_bytes: Second-level cache of one core.
        l3_bytes: Last-level cache.
        compiled_call_s: What it takes to enter compiled code.
    """

    fits: Mapping[Key, KernelFit]
    l1_bytes: float
    l2_bytes: float
    l3_bytes: float
    compiled_call_s: float = 0.0

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
        products = product_counts(graph)
        graph, context = as_products(graph, context, products)
        compiled = {kernel for kernel, _, known in self.fits if is_compiled and known == count}
        kernels = compiled_names(
            graph, kernel_names(graph, is_training=context.is_training), compiled
        )
        terms = kernel_terms(graph, context)
        if count == 1:
            return self.kernel_times(kernels, graph.dtype, terms).repeated(products)
        one_thread = self.one_thread(kernels, graph.dtype, terms)
        times = self.kernel_times(kernels, graph.dtype, terms, one_thread, count)
        return times.repeated(products)

    def one_thread(
        self, kernels: TextArray, dtypes: NDArray[np.int8], terms: FloatArray
    ) -> OneThread:
        """Times on one thread of kernels that run on several.

        Args:
            kernels: Kernels, shape (n,).
            dtypes: `Dtype` codes, shape (n,).
            terms: Quantities, shape (n, len(TERMS)).
        """
        times = self.kernel_times(kernels, dtypes, terms)
        return OneThread(times.time_s - times.fresh_s, times.fixed_s, region_counts(kernels, terms))

    def kernel_times(
        self,
        kernels: TextArray,
        dtypes: NDArray[np.int8],
        terms: FloatArray,
        one_thread: OneThread | None = None,
        threads: int = 1,
    ) -> KernelTimes:
        """Times of rows whose kernels and quantities are known.

        Args:
            kernels: Kernels, shape (n,).
            dtypes: `Dtype` codes, shape (n,).
            terms: Quantities, shape (n, len(TERMS)).
            one_thread: The rows on one thread; needed where `threads` is more.
            threads: A measured thread count.
        """
        names = TERMS if one_thread is None else THREAD_TERMS
        coefficients = np.full((len(kernels), len(names)), np.nan)
        sigma, serial_s = np.full((2, len(kernels)), np.nan)
        fixed = np.zeros(coefficients.shape, dtype=bool)
        fresh = np.array([name == "fresh_bytes" for name in names])
        for kernel, dtype, rows in _alike(kernels, dtypes):
            fit = self._fit(kernel, dtype, threads)
            if fit is not None:
                coefficients[rows] = fit.coefficients
                sigma[rows] = fit.log_sigma
                serial_s[rows] = fit.serial_s
                fixed[rows] = fixed_terms(kernel) if one_thread is None else fresh
        quantities = terms
        working, moving = WORK_TERMS, MEMORY_TERMS
        if one_thread is not None:
            quantities = thread_terms(terms, one_thread, serial_s)
            working, moving = _THREAD_WORK, _THREAD_MEMORY
        parts = quantities * coefficients
        return KernelTimes(
            parts.sum(axis=1),
            parts[:, working].sum(axis=1),
            parts[:, moving].sum(axis=1),
            parts[:, fresh].sum(axis=1),
            np.where(fixed, parts, 0.0).sum(axis=1),
            sigma,
        )

    def _fit(self, kernel: str, dtype: str, threads: int) -> KernelFit | None:
        """The kernel's own fit; where it was not measured that of fp32, or of what stands
        for it.
        """
        for name in (kernel, substitute(kernel)):
            for key in ((name, dtype, threads), (name, "fp32", threads)):
                if key in self.fits:
                    return self.fits[key]
        return None


def _alike(kernels: TextArray, dtypes: NDArray[np.int8]) -> Iterator[tuple[str, str, IntArray]]:
    """Rows that run one kernel in one format: kernel, format and row numbers."""
    keys = list(zip(kernels.tolist(), dtypes.tolist(), strict=True))
    for (kernel, dtype), rows in grouped(range(len(keys)), keys.__getitem__).items():
        yield kernel, Dtype(dtype).label, np.array(rows, dtype=np.int64)
