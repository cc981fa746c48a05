"""Traffic that a GPU's last-level cache takes off the main memory in compiled execution.

A tensor that the next operators read is still in the cache with the probability that nothing has
evicted it. Under random replacement each of the n lines inserted into a cache of N evicts a given
line with probability 1/N, which therefore survives with (1 - 1/N)^n = exp(-d / C), d bytes into C.
d is what is moved between writing and reading: the tensor itself and the traffic of the operators
between. A tensor whose readers all hit, in a buffer that is used again, is never written back
either. The rows of an embedding table that fits are read from the cache likewise. Hits move at the
cache's bandwidth: 20 bytes per SM and clock, as micro-benchmarks measure (Jia et al.,
arXiv:1804.06826 and 1903.07486: 2,155 GB/s on V100, 1,270 GB/s on T4).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from accelsim.hardware.profile import GpuProfile
from accelsim.workloads.graph import FloatArray, OperatorGraph
from accelsim.workloads.operator import OperatorKind

_BYTES_PER_SM_CLOCK = 20.0
_GATHERS = (OperatorKind.EMBEDDING, OperatorKind.EMBEDDING_BAG)


def hit_fraction(distance_bytes: FloatArray, cache_bytes: float) -> FloatArray:
    """Share of a tensor still cached after other traffic: exp(-distance / cache).

    Survival of a line under random replacement, (1 - 1/N)^n for large N. Estimate: that caches of
    GPUs replace at random is assumed, not measured.

    Args:
        distance_bytes: Bytes moved between two uses, >= 0, shape (n,).
        cache_bytes: Capacity, >= 0.

    Returns:
        Fractions from 0 to 1, shape (n,).
    """
    if cache_bytes <= 0:
        return np.zeros_like(distance_bytes)
    return np.exp(-distance_bytes / cache_bytes)


def cached_traffic(graph: OperatorGraph, device: GpuProfile) -> OperatorGraph:
    """The graph with bytes that count as main-memory traffic: hits at the ratio of the bandwidths.

    Estimate: reuse distances of tensors with the hits of `hit_fraction`; bandwidth of the cache
    after Jia et al., arXiv:1804.06826 (2018) and 1903.07486 (2019).

    Args:
        graph: Rows in launch order, with dependencies.
        device: GPU; one whose cache or bandwidth is unknown changes nothing.
    """
    bandwidth = device.memory_bandwidth_bytes_per_s
    if device.l2_bytes is None or bandwidth is None or not len(graph):
        return graph
    cache = float(device.l2_bytes.value)
    cache_bandwidth = (
        _BYTES_PER_SM_CLOCK * float(device.sm_count.value) * float(device.boost_clock_hz.value)
    )
    saved = max(1.0 - bandwidth / cache_bandwidth, 0.0)
    read_hits, write_hits = _tensor_hits(graph, cache)
    read_hits += _table_hits(graph, cache)
    return replace(
        graph,
        read_bytes=np.maximum(
            graph.read_bytes - saved * np.minimum(read_hits, graph.read_bytes), 0.0
        ),
        write_bytes=graph.write_bytes - saved * write_hits,
    )


def _tensor_hits(graph: OperatorGraph, cache_bytes: float) -> tuple[FloatArray, FloatArray]:
    """Bytes each row reads from the cache, and bytes it writes that never reach memory, shape (n,)
    each.

    Estimate: random replacement over the bytes in between, as the module derives it.
    """
    count = len(graph)
    reader = graph.reader
    source = graph.dependency
    before = np.concatenate([[0.0], np.cumsum(graph.bytes)])
    size = graph.write_bytes[source]
    between = before[reader] - before[source + 1]
    hit = hit_fraction(between + size, cache_bytes)
    reads = np.bincount(reader, weights=size * hit, minlength=count).astype(np.float64)
    least = np.ones(count)
    np.minimum.at(least, source, hit)
    is_read = np.bincount(source, minlength=count) > 0
    writes: FloatArray = np.where(is_read, graph.write_bytes * least, 0.0)
    return reads, writes


def _table_hits(graph: OperatorGraph, cache_bytes: float) -> FloatArray:
    """Bytes gathered from tables in the cache: every row is drawn alike, so the table itself is the
    distance.
    """
    gathers = np.isin(graph.kind, [int(kind) for kind in _GATHERS])
    lookups, width, rows = (graph.dims[:, index].astype(np.float64) for index in range(3))
    row_bytes = np.where(gathers, graph.read_bytes / np.maximum(lookups, 1.0), 0.0)
    hits: FloatArray = np.where(
        gathers, graph.read_bytes * hit_fraction(rows * row_bytes, cache_bytes), 0.0
    )
    return np.where(width > 0, hits, 0.0)
