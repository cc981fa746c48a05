"""Several threads: what of a kernel's one-thread time they share, and what a parallel region adds.

What starts a call, a step or a tensor is done by one thread. From which time on the rest is split
(``at::parallel_for``, ATen/TensorIterator.h) a kernel's own rows tell.
"""

from __future__ import annotations

import numpy as np

from accelsim.cost.cpu.kernel_terms import TERMS
from accelsim.frozen import frozen
from accelsim.workloads.graph import BoolArray, FloatArray, IntArray, TextArray

#: Parallel regions shorter than this on one thread stay on one where a kernel's own rows do not say
#: otherwise.
SERIAL_S = 8e-6
#: Terms on several threads: fork and join, traffic beyond the last cache, page faults, serial and
#: parallel work, start with evicted caches.
THREAD_TERMS = (
    "start",
    "bytes_beyond_l3",
    "fresh_bytes",
    "serial_s",
    "parallel_s",
    "evicted",
)
#: Kernels that enter one parallel region for each step or tensor, their first count.
_STEPWISE = ("lstm", "gru", "adamw", "sgd")
_FIXED = np.isin(TERMS, ["start", "evicted"])
_FIRST = np.array([term == "loop_count" for term in TERMS])


@frozen(eq=False)
class OneThread:
    """Rows on one thread, and how several split them; columns of shape (n,).

    Attributes:
        time_s: Predicted time less page faults; NaN where the kernel was not measured.
        fixed_s: What of it starts the call, its steps or its tensors.
        regions: Parallel regions that it enters.
    """

    time_s: FloatArray
    fixed_s: FloatArray
    regions: FloatArray

    def __getitem__(self, index: IntArray) -> OneThread:
        """Some of the rows."""
        return OneThread(self.time_s[index], self.fixed_s[index], self.regions[index])


def fixed_terms(kernel: str) -> BoolArray:
    """Terms of a kernel's one-thread time that no thread shares, shape (len(TERMS),)."""
    return _FIXED | _FIRST if kernel.startswith(_STEPWISE) else _FIXED


def region_counts(names: TextArray, terms: FloatArray) -> FloatArray:
    """Parallel regions that each row enters, shape (n,): one for each step or tensor of some.

    Args:
        names: Kernels, shape (n,).
        terms: Their quantities, shape (n, len(TERMS)).
    """
    stepwise = np.array([name.startswith(_STEPWISE) for name in names.tolist()], dtype=bool)
    return np.where(stepwise, np.maximum(terms[:, TERMS.index("loop_count")], 1.0), 1.0)


def thread_terms(
    terms: FloatArray, one_thread: OneThread, serial_s: FloatArray | float = SERIAL_S
) -> FloatArray:
    """Quantities of rows on several threads, relative to their time on one, shape (n,
    len(THREAD_TERMS)).

    Estimate: shared and serial parts add up, as in Amdahl, AFIPS 1967.

    Args:
        terms: Quantities of the rows, shape (n, len(TERMS)).
        one_thread: The rows on one thread.
        serial_s: Regions up to this time on one thread stay on one.
    """
    time_s, regions = one_thread.time_s, one_thread.regions
    parallel = time_s > serial_s * regions
    split_s = parallel * np.maximum(time_s - one_thread.fixed_s, 0.0)
    memory = terms[:, TERMS.index("bytes_beyond_l3")] + terms[:, TERMS.index("cold_weight_bytes")]
    columns = [
        parallel * regions,
        parallel * memory,
        terms[:, TERMS.index("fresh_bytes")],
        time_s - split_s,
        split_s,
        parallel * terms[:, TERMS.index("evicted")],
    ]
    return np.column_stack(columns)
