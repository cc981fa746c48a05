"""What every pass over a graph must leave as it was: who waits for whom."""

from __future__ import annotations

import numpy as np
import pytest

from accelsim.catalog.workloads import workload
from accelsim.dtype import precision
from accelsim.workloads.concatenation import elide_copies
from accelsim.workloads.fusion import fuse_elementwise

MODELS = ["llama-3.2-1b", "densenet-121", "inception-v3", "dlrm-mlperf", "yolo-v3", "unet"]


def lowered(name):
    model = workload(name)
    return model.lower(model.default, precision("fp16")).graph


def ancestors(graph):
    """Rows that each row waits for, directly or not, as bits of a number."""
    found = []
    for row in range(len(graph)):
        bits = 0
        for source in graph.dependencies_of(row).tolist():
            bits |= found[source] | 1 << source
        found.append(bits)
    return found


@pytest.mark.parametrize("name", MODELS)
def test_removing_copies_keeps_who_waits_for_whom(name):
    graph = lowered(name)
    less = elide_copies(graph)
    rows = iter(range(len(graph)))
    kept = [
        next(
            row
            for row in rows
            if (graph.name[row], graph.path[row]) == key and np.array_equal(graph.dims[row], dims)
        )
        for key, dims in zip(zip(less.name, less.path, strict=True), less.dims, strict=True)
    ]
    assert len(kept) == len(less) <= len(graph)
    before, after = ancestors(graph), ancestors(less)
    for place, row in enumerate(kept):
        wanted = sum(1 << other for other, source in enumerate(kept) if before[row] >> source & 1)
        assert after[place] == wanted


@pytest.mark.parametrize("name", MODELS)
def test_passes_do_not_depend_on_being_run_again(name):
    graph = lowered(name)
    fused, elided = fuse_elementwise(graph), elide_copies(graph)
    for change, once in ((fuse_elementwise, fused), (elide_copies, elided)):
        assert change(once).model_flop == once.model_flop == graph.model_flop
        assert change(once).total_bytes <= once.total_bytes <= graph.total_bytes
