"""Residual blocks that run as one kernel, and pixels that strided convolutions skip."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim.catalog.workloads import workload
from accelsim.dtype import precision
from accelsim.workloads.bottleneck import fuse_bottlenecks, skip_unread_pixels
from accelsim.workloads.builder import GraphBuilder
from accelsim.workloads.fusion import fuse_elementwise
from accelsim.workloads.model import PassShape

SHARED_BYTES = 100 * 1024.0


def block(middle=64, channels=256, size=16):
    b = GraphBuilder(precision("int8"))
    x = b.conv(b.input(1, 3, size, size), channels, 1)
    y = b.conv(b.conv(b.conv(x, middle, 1), middle, 3), channels, 1)
    b.global_pool(b.add(y, x))
    return fuse_elementwise(b.build())


def test_a_small_block_reads_its_input_and_writes_its_output_only():
    graph = block()
    fused = fuse_bottlenecks(graph, SHARED_BYTES)
    tensor = 16 * 16 * 256.0
    assert fused.read_bytes[1:4].sum() == tensor
    assert fused.write_bytes[1:4].sum() == tensor
    assert np.array_equal(fused.weight_bytes, graph.weight_bytes)
    assert np.array_equal(fused.flop, graph.flop)


def test_a_block_whose_weights_do_not_fit_is_left_alone():
    graph = block(middle=128, channels=512)
    assert graph.weight_bytes[1:4].sum() > SHARED_BYTES
    assert np.array_equal(fuse_bottlenecks(graph, SHARED_BYTES).bytes, graph.bytes)


def test_only_the_first_stage_of_resnet_50_fits():
    graph = fuse_elementwise(
        workload("resnet-50").lower(PassShape(batch=1), precision("int8")).graph
    )
    changed = fuse_bottlenecks(graph, SHARED_BYTES).bytes != graph.bytes
    stages = {
        path.partition(".")[0] for path, differs in zip(graph.path, changed, strict=True) if differs
    }
    assert stages == {"layer1"}


def test_a_strided_pointwise_convolution_reads_every_fourth_pixel():
    b = GraphBuilder(precision("fp16"))
    b.conv(b.conv(b.input(2, 8, 16, 16), 32, 1), 64, 1, stride=2)
    b.conv(b.input(2, 8, 16, 16), 64, 3, stride=2)
    graph = b.build()
    skipped = skip_unread_pixels(graph)
    assert skipped.read_bytes[1] == pytest.approx(graph.read_bytes[1] / 4)
    assert skipped.read_bytes[0] == graph.read_bytes[0]
    assert skipped.read_bytes[2] == graph.read_bytes[2]


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from(["resnet-18", "resnet-50", "mobilenet-v1", "bert-base", "dlrm-mlperf"]),
    st.floats(0, 1e7),
)
def test_never_more_bytes(name, shared_bytes):
    graph = fuse_elementwise(
        workload(name).lower(PassShape(batch=2, seq_len=64), precision("fp16")).graph
    )
    fused = skip_unread_pixels(fuse_bottlenecks(graph, shared_bytes))
    for column in ("read_bytes", "write_bytes"):
        assert np.all(getattr(fused, column) <= getattr(graph, column))
        assert np.all(getattr(fused, column) >= 0)
    assert fused.model_flop == graph.model_flop
