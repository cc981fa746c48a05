"""Graphs at another precision."""

import numpy as np
import pytest

from accelsim.dtype import PRECISIONS, Dtype, precision
from accelsim.errors import InvalidValueError
from accelsim.workloads.builder import GraphBuilder
from accelsim.workloads.retype import precision_of, retype


def graph_in(name):
    b = GraphBuilder(precision(name))
    x = b.input(4, 16, 8, 8)
    x = b.activation(b.batch_norm(b.conv(x, 32, 3)))
    b.linear(b.view(b.global_pool(x), 4, 32), 10)
    return b.build()


@pytest.mark.parametrize("target", sorted(PRECISIONS))
@pytest.mark.parametrize("source", ["fp32", "bf16", "fp8"])
def test_equals_the_graph_written_in_that_precision(source, target):
    changed, written = retype(graph_in(source), precision(target)), graph_in(target)
    for column in ("dtype", "read_bytes", "write_bytes", "weight_bytes", "flop"):
        np.testing.assert_allclose(getattr(changed, column), getattr(written, column))


def test_the_policy_is_read_off():
    assert precision_of(graph_in("bf16")).name == "bf16"


def test_mixed_dtypes_follow_no_policy():
    graph = graph_in("fp32")
    graph.dtype[0] = int(Dtype.FP64)
    with pytest.raises(InvalidValueError, match="fp64"):
        retype(graph, precision("bf16"))
