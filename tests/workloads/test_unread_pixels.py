"""Pixels that strided convolutions skip."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim.catalog.workloads import workload
from accelsim.dtype import precision
from accelsim.workloads.builder import GraphBuilder
from accelsim.workloads.fusion import fuse_elementwise
from accelsim.workloads.model import PassShape
from accelsim.workloads.unread_pixels import skip_unread_pixels


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
@given(st.sampled_from(["resnet-18", "resnet-50", "mobilenet-v1", "bert-base", "dlrm-mlperf"]))
def test_never_more_bytes(name):
    graph = fuse_elementwise(
        workload(name).lower(PassShape(batch=2, seq_len=64), precision("fp16")).graph
    )
    fused = skip_unread_pixels(graph)
    for column in ("read_bytes", "write_bytes"):
        assert np.all(getattr(fused, column) <= getattr(graph, column))
        assert np.all(getattr(fused, column) >= 0)
    assert fused.model_flop == graph.model_flop
