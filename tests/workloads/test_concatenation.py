"""Copies and gathers of compiled graphs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim.catalog.workloads import workload
from accelsim.dtype import precision
from accelsim.workloads.builder import GraphBuilder
from accelsim.workloads.concatenation import elide_copies
from accelsim.workloads.fusion import fuse_elementwise
from accelsim.workloads.model import PassShape
from accelsim.workloads.operator import OperatorKind
from accelsim.workloads.training import OPTIMIZERS, training_graph


def labels(graph):
    return [OperatorKind(code).label for code in graph.kind]


def two_branches(*, second_reader=False):
    b = GraphBuilder(precision("fp32"))
    x = b.input(4, 8)
    left, right = b.linear(x, 8), b.linear(x, 8)
    b.linear(b.concat([left, right]), 2)
    if second_reader:
        b.linear(left, 2)
    return b


def test_producers_write_into_the_concatenation():
    graph = elide_copies(two_branches().build())
    assert labels(graph) == ["gemm"] * 3
    assert list(graph.dependencies_of(2)) == [0, 1]
    assert graph.read_bytes[2] == 4 * 16 * 4.0


def test_an_operand_that_others_read_is_still_copied():
    graph = elide_copies(two_branches(second_reader=True).build())
    copy = labels(graph).index("copy")
    assert (graph.read_bytes[copy], graph.write_bytes[copy]) == (4 * 8 * 4.0, 4 * 8 * 4.0)


def test_a_selection_is_written_by_its_producer():
    b = GraphBuilder(precision("fp32"))
    x = b.linear(b.input(4, 8), 8)
    b.linear(b.copy(b.part(x, 4, 2), shape=(4, 2)), 2)
    graph = elide_copies(b.build())
    assert labels(graph) == ["gemm", "gemm"]
    assert graph.write_bytes[0] == 4 * 2 * 4.0


def test_repetition_stays():
    b = GraphBuilder(precision("fp32"))
    b.upsample(b.conv(b.input(1, 3, 8, 8), 4, 3))
    assert labels(elide_copies(b.build())) == ["conv", "copy"]


def test_embeddings_go_straight_into_the_interaction():
    pairs, width, tables = 64, 128, 26
    lowered = workload("dlrm-mlperf").lower(PassShape(batch=pairs), precision("int8"))
    graph = elide_copies(fuse_elementwise(lowered.graph))
    bags = graph.kind == int(OperatorKind.EMBEDDING_BAG)
    product = labels(graph).index(OperatorKind.BATCHED_GEMM.label)
    assert graph.write_bytes[bags].sum() == 0
    assert graph.read_bytes[bags].sum() == pytest.approx(tables * pairs * (width + 8))
    assert (
        graph.read_bytes[product] == pairs * width
    )  # the dense vector, which the top layers read as well


def test_training_steps_keep_their_copies():
    b = two_branches()
    step = training_graph(
        b.build(),
        b.parameter_totals.parameters,
        b.parameter_totals.tensors,
        b.precision,
        OPTIMIZERS["sgd"],
    )
    assert elide_copies(step) is step


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from(["resnet-50", "densenet-121", "unet-padded", "dlrm-mlperf", "googlenet"]),
    st.integers(1, 3),
)
def test_never_more_bytes_and_the_same_flop(name, batch):
    graph = fuse_elementwise(workload(name).lower(PassShape(batch=batch), precision("fp16")).graph)
    fewer = elide_copies(graph)
    assert fewer.total_bytes <= graph.total_bytes
    assert fewer.model_flop == pytest.approx(graph.model_flop)
    assert np.all(fewer.read_bytes >= 0)
    assert np.all(fewer.write_bytes >= 0)
    for row in range(len(fewer)):
        assert all(earlier < row for earlier in fewer.dependencies_of(row))
