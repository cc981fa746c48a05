"""Image classifiers: shapes, module paths and counts of single layers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim.catalog.workloads import workload
from accelsim.dtype import PRECISIONS
from accelsim.workloads.builder import GraphBuilder
from accelsim.workloads.families.layer_stack import Layer, LayersParameters, write_layers
from accelsim.workloads.families.mobile import round_channels
from accelsim.workloads.families.vision import ResNetParameters, write_resnet
from accelsim.workloads.model import PassShape
from accelsim.workloads.operator import OperatorKind

FP32 = PRECISIONS["fp32"]


def graph_of(name, **sizes):
    return workload(name).lower(PassShape(**sizes), FP32).graph


def rows(graph, kind):
    return [graph.dimensions_of(row) for row in np.flatnonzero(graph.kind == kind)]


def test_resnet_50_has_53_convolutions_named_as_in_torchvision():
    graph = graph_of("resnet-50")
    paths = [p for p, k in zip(graph.path, graph.kind, strict=True) if k == OperatorKind.CONV]
    assert len(paths) == 53
    assert paths[0] == "conv1"
    assert {"layer1.0.conv1", "layer1.0.downsample.0", "layer4.2.conv3"} <= set(paths)
    assert graph.path[-1] == "fc"


def test_resnet_50_strides_in_the_3x3_convolution():
    """Version 1.5, as torchvision has it: 4.09 G multiply-adds, against 3.8 with the stride in the
    first 1x1.
    """
    graph = graph_of("resnet-50")
    strided = {
        p
        for p, k, d in zip(graph.path, graph.kind, graph.dims, strict=True)
        if k == OperatorKind.CONV and d[13] == 2
    }
    assert strided == {
        "conv1",
        *(f"layer{i}.0.{part}" for i in (2, 3, 4) for part in ("conv2", "downsample.0")),
    }


@pytest.mark.parametrize(
    ("name", "size", "last_side"),
    [("resnet-18", 224, 7), ("resnet-18", 256, 8), ("inception-v3", 299, 8), ("googlenet", 224, 7)],
)
def test_last_feature_map(name, size, last_side):
    graph = graph_of(name, image_size=size)
    pools = rows(graph, OperatorKind.POOLING)
    assert pools[-1]["in_pixels"] == last_side**2
    assert pools[-1]["out_pixels"] == 1


def test_densenet_concatenates_every_layer():
    graph = graph_of("densenet-121")
    classifier = rows(graph, OperatorKind.GEMM)[-1]
    assert classifier["k"] == 1024
    norms = [row["columns"] for row in rows(graph, OperatorKind.BATCH_NORM)]
    assert {64, 96, 128, 256} <= set(norms)


def test_depthwise_convolutions_have_one_group_per_channel():
    convolutions = rows(graph_of("mobilenet-v1"), OperatorKind.CONV)
    depthwise = [row for row in convolutions if row["groups"] > 1]
    assert len(depthwise) == 13
    assert all(row["groups"] == row["channels_in"] == row["channels_out"] for row in depthwise)


def test_squeeze_and_excite_sees_one_pixel():
    graph = graph_of("efficientnet-b0")
    squeeze = [
        graph.dimensions_of(i)
        for i, path in enumerate(graph.path)
        if path.endswith("fc1") and graph.name[i] == "conv"
    ]
    assert len(squeeze) == 16
    assert all(row["in_h"] == row["in_w"] == 1 for row in squeeze)


@given(st.floats(min_value=8, max_value=4096))
def test_rounded_channels_are_multiples_of_eight_and_never_far_below(channels):
    rounded = round_channels(channels)
    assert rounded % 8 == 0
    assert rounded >= 0.9 * channels
    assert rounded <= max(8, 1.1 * channels + 8)


@settings(max_examples=15, deadline=None)
@given(
    depths=st.lists(st.integers(1, 3), min_size=4, max_size=4), size=st.sampled_from([64, 96, 128])
)
def test_resnet_flop_grow_with_depth(depths, size):
    def flop(d):
        b = GraphBuilder(FP32)
        write_resnet(
            b, ResNetParameters(block="bottleneck", depths=tuple(d), image_size=size), PassShape()
        )
        return b.build().model_flop

    deeper = [depths[0] + 1, *depths[1:]]
    quarter = size // 4
    block = 2.0 * quarter**2 * (256 * 64 + 64 * 64 * 9 + 64 * 256)
    assert flop(deeper) - flop(depths) == pytest.approx(block, rel=1e-12)


def test_fully_convolutional_flop_scale_with_pixels():
    """YOLOv3 has no dense layer: 608 against 416 pixels is the square of their ratio."""
    small, large = (
        graph_of("yolo-v3", image_size=416).model_flop,
        graph_of("yolo-v3", image_size=608).model_flop,
    )
    assert large / small == pytest.approx((608 / 416) ** 2, rel=1e-12)


def test_layers_number_like_a_sequential():
    graph = graph_of("alexnet")
    paths = [
        p
        for p, k in zip(graph.path, graph.kind, strict=True)
        if k in (OperatorKind.CONV, OperatorKind.GEMM)
    ]
    assert paths == [f"features.{i}" for i in (0, 3, 6, 8, 10)] + [
        f"classifier.{i}" for i in (1, 4, 6)
    ]


@pytest.mark.parametrize("entry", [{}, {"conv": 3, "linear": 2}, {"pool": "max", "flatten": True}])
def test_a_layer_is_exactly_one_thing(entry):
    with pytest.raises(ValueError, match="exactly one"):
        Layer.model_validate(entry)


@settings(max_examples=25, deadline=None)
@given(
    widths=st.lists(st.integers(1, 64), min_size=1, max_size=5),
    features=st.integers(1, 64),
    batch=st.integers(1, 8),
)
def test_mlp_counts_equal_the_closed_form(widths, features, batch):
    p = LayersParameters.model_validate(
        {"input": [features], "sections": {"": [{"linear": w} for w in widths]}}
    )
    b = GraphBuilder(FP32)
    write_layers(b, p, PassShape(batch=batch))
    sizes = [features, *widths]
    products = sum(a * c for a, c in zip(sizes, widths, strict=False))
    assert b.parameter_totals.parameters == products + sum(widths)
    assert b.build().model_flop == 2.0 * batch * products


def test_pool_before_an_image_is_refused():
    p = LayersParameters.model_validate(
        {"input": [4], "sections": {"": [{"pool": "max", "kernel": 2}]}}
    )
    with pytest.raises(ValueError, match="channels and positions"):
        write_layers(GraphBuilder(FP32), p, PassShape())
