"""What caches make of operators whose bytes alone do not tell: how much a working set exceeds them,
and lines of lookups.
"""

from __future__ import annotations

import numpy as np

from accelsim.workloads.graph import FloatArray
from accelsim.workloads.operator import OperatorKind

_LINE_BYTES = 64.0
#: Kinds that take rows of tables.
LOOKUP_KINDS = frozenset({OperatorKind.EMBEDDING, OperatorKind.EMBEDDING_BAG})
#: Memory whose pages a core knows the places of: entries of its second-level table times 4 KiB.
_TRANSLATED_BYTES = 16.0 * 2**20
#: Shares of the last-level cache from which on a round loses lines, and at which it has lost all.
_ROUND_FITS, _ROUND_FILLS = 0.4, 0.85


def share_beyond(size_bytes: FloatArray | float, capacity_bytes: float) -> FloatArray:
    """Share of a working set that a cache does not serve: 0 at half its capacity, 1 at twice,
    linear in the log; the width of the rise is an estimate.
    """
    position = np.log2(np.maximum(size_bytes, 1.0) / capacity_bytes)
    return np.clip((position + 1.0) / 2.0, 0.0, 1.0)


def round_share(size_bytes: FloatArray | float, capacity_bytes: float) -> FloatArray:
    """Share of what is gone through again and again in the same order that a last-level cache does
    not serve.

    What comes first has been pushed out before it comes again, so the rise is steep: 3.1 MB of
    weights take 42 us of one row in a round of up to 13 MB, 50, 77, 137 and 170 of 15, 18, 24 and
    30 MB or more; of 4 and 16 rows, and in bf16, it rises from 12 to 30 MB or a little more (32 MB
    of a shared cache, EPYC 9005). An estimate for other caches.
    """
    fill = np.minimum(size_bytes, 1e18) / capacity_bytes
    return np.clip((fill - _ROUND_FITS) / (_ROUND_FILLS - _ROUND_FITS), 0.0, 1.0)


def occupied_bytes(count: FloatArray, stride_bytes: FloatArray, sets: int) -> FloatArray:
    """Cache that `count` elements at a distance take: of lines that share sets, as much as lies
    between (set-associative placement: Hennessy and Patterson, 6th edition, 2017, appendix B).
    """
    lines = np.maximum(stride_bytes // _LINE_BYTES, 1.0).astype(np.int64)
    whole = (stride_bytes % _LINE_BYTES == 0) & (stride_bytes > 0)
    shared = np.where(whole, np.gcd(lines, sets), 1)
    return count * np.minimum(np.maximum(stride_bytes, 1.0), _LINE_BYTES * shared)


def lookup_lines(
    lookups: FloatArray,
    table_rows: FloatArray,
    row_bytes: FloatArray,
    reuse_bytes: FloatArray,
    evicted: FloatArray,
    caches: tuple[float, float],
) -> tuple[FloatArray, FloatArray]:
    """Lines of tables that the second-level cache does not hold, and those that the last-level
    cache does not; shape (k,).

    A row that comes again in the same call is still there, and the same indices called again and
    again find their rows where the call before left them, whatever the table's size. Pages of a
    table too large for a core to know their places are looked up first, once for each row, which
    counts as a line does: 5,120 rows of 128 bytes take 13 us of a table of 128 kB and 28 of one of
    128 MB, both read again and again, and 40 us where seven other tables come between (EPYC 9005).

    Args:
        lookups: Rows taken, shape (k,).
        table_rows: Rows of the table.
        row_bytes: Bytes of one.
        reuse_bytes: Bytes touched between two calls.
        evicted: How far other operators overwrite the inner caches between calls, 0 to 1.
        caches: Bytes of the second-level and the last-level cache.
    """
    rows = np.maximum(table_rows, 1.0)
    named = rows * -np.expm1(-lookups / rows)
    lines, table = named * np.ceil(row_bytes / _LINE_BYTES), table_rows * row_bytes
    reach = np.minimum(table, lines * _LINE_BYTES + reuse_bytes)
    beyond_l2 = lines * np.maximum(share_beyond(reach, caches[0]), evicted) + named * share_beyond(
        table, _TRANSLATED_BYTES
    )
    beyond_l3: FloatArray = lines * share_beyond(reach, caches[1])
    return beyond_l2, beyond_l3
