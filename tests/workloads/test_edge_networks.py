"""Networks of edge devices against counts that others published: operations, parameters, and boxes
a detector proposes.
"""

import numpy as np
import pytest

from accelsim.dtype import PRECISIONS
from accelsim.workloads.builder import GraphBuilder
from accelsim.workloads.families import load_family
from accelsim.workloads.model import PassShape
from accelsim.workloads.operator import DIMENSIONS, OperatorKind


def network(family, size, **parameters):
    """A traced network on an image of (height, width)."""
    entry = load_family(family)
    builder = GraphBuilder(PRECISIONS["int8"])
    image = {"image_height": size[0], "image_width": size[1]}
    entry.write(builder, entry.parameters.model_validate(parameters | image), PassShape())
    return builder


# Operations in the names of the Vitis AI model zoo (README of releases 1.2 to 3.0), as
# tf_ssd_voc_300_300_64.81G.
OPERATIONS = [
    ("edge-detector", {"network": "refinedet", "classes": 21}, (320, 320), 81.9, 0.08),
    ("edge-detector", {"network": "ssd-mobilenet-v2", "classes": 91}, (300, 300), 3.75, 0.03),
    ("edge-detector", {"network": "ssdlite-mobilenet-v2", "classes": 91}, (300, 300), 1.5, 0.03),
    ("edge-detector", {"network": "ssd-vgg", "classes": 21}, (300, 300), 64.81, 0.04),
    ("edge-detector", {"network": "ssd-resnet-34", "classes": 81}, (1200, 1200), 433.0, 0.001),
    ("edge-detector", {"network": "ssd-resnet-50-fpn", "classes": 91}, (640, 640), 178.4, 0.03),
    # multiply-adds
    ("edge-detector", {"network": "ultrafast-lane", "classes": 14472}, (288, 800), 2 * 8.4, 0.01),
    ("edge-segmenter", {"network": "semantic-fpn", "classes": 19}, (256, 512), 10.56, 0.08),
    (
        "edge-segmenter",
        {"network": "deeplab-mobilenet-v2", "classes": 19},
        (1024, 2048),
        132.74,
        0.04,
    ),
    (
        "edge-segmenter",
        {"network": "unet", "classes": 4, "base_channels": 16},
        (512, 512),
        23.3,
        0.05,
    ),
    (
        "edge-classifier",
        {"network": "mobilenet-v1", "width_multiplier": 0.25, "classes": 1001},
        (128, 128),
        0.02715,
        0.001,
    ),
    ("edge-classifier", {"network": "mobilenet-v1", "classes": 1001}, (224, 224), 1.14, 0.003),
    (
        "edge-classifier",
        {"network": "mobilenet-v2", "width_multiplier": 1.4, "classes": 1001},
        (224, 224),
        1.16,
        0.005,
    ),
    (
        "edge-classifier",
        {"network": "mobilenet-edge", "width_multiplier": 0.75},
        (224, 224),
        2 * 0.624,
        0.002,
    ),
    (
        "edge-classifier",
        {"network": "efficientnet-edge", "depth_multiplier": 1.1},
        (240, 240),
        7.34,
        0.03,
    ),
    (
        "edge-classifier",
        {"network": "efficientnet-edge", "width_multiplier": 1.2, "depth_multiplier": 1.4},
        (300, 300),
        19.36,
        0.04,
    ),
    # Ultralytics' table of YOLOv5 (release 6.0), and the zoo's OFA-yolo, which is as large as its
    # middle one; YOLOX's table.
    (
        "edge-detector",
        {"network": "yolo-v5", "classes": 80, "width_multiplier": 0.25, "depth_multiplier": 0.33},
        (640, 640),
        4.5,
        0.01,
    ),
    (
        "edge-detector",
        {"network": "yolo-v5", "classes": 80, "width_multiplier": 0.75, "depth_multiplier": 0.67},
        (640, 640),
        48.88,
        0.001,
    ),
    ("edge-detector", {"network": "yolo-v5", "classes": 80}, (640, 640), 109.1, 0.002),
    (
        "edge-detector",
        {"network": "yolo-v5-p6", "classes": 80, "width_multiplier": 0.5, "depth_multiplier": 0.33},
        (640, 640),
        16.8,
        0.02,
    ),
    (
        "edge-detector",
        {"network": "yolo-x", "classes": 80, "width_multiplier": 0.75, "depth_multiplier": 0.67},
        (640, 640),
        73.8,
        0.005,
    ),
    # the zoo's names, and Scaled-YOLOv4's and YOLOv6's tables
    ("edge-detector", {"network": "densebox", "classes": 4}, (320, 320), 0.49, 0.01),
    ("edge-detector", {"network": "densebox", "classes": 4}, (360, 640), 1.11, 0.01),
    ("edge-detector", {"network": "densebox", "classes": 8}, (320, 320), 0.49, 0.01),
    ("edge-detector", {"network": "retinaface"}, (360, 640), 1.11, 0.01),
    ("edge-detector", {"network": "yolo-v4-csp", "classes": 80}, (640, 640), 121.0, 0.01),
    ("edge-detector", {"network": "yolo-v6", "classes": 80}, (640, 640), 82.4, 0.03),
    # pruned by 0.3 to 189.7
    ("edge-detector", {"network": "openpose"}, (368, 368), 189.7 / 0.7, 0.02),
    # Redmon's table of YOLOv3 at 416 pixels: 65.86 and 5.56 Bn.
    ("darknet", {"version": "3", "classes": 80}, (416, 416), 65.86, 0.0002),
    ("darknet", {"version": "3-tiny", "classes": 80}, (416, 416), 5.56, 0.002),
]


@pytest.mark.parametrize(("family", "parameters", "size", "gflop", "tolerance"), OPERATIONS)
def test_operations_are_those_of_the_published_name(family, parameters, size, gflop, tolerance):
    flop = network(family, size, **parameters).build().model_flop
    assert flop / 1e9 == pytest.approx(gflop, rel=tolerance)


# Parameters: Ultralytics' yolov3 and yolov3-tiny; YOLOv6's table; TF-Slim's and torchvision's
# MobileNets; SSD300 of VOC in PyTorch, whose biases are normalisations here.
@pytest.mark.parametrize(
    ("family", "parameters", "size", "count", "tolerance"),
    [
        ("darknet", {"version": "3", "classes": 80}, (416, 416), 61_949_149, 0),
        ("darknet", {"version": "3-tiny", "classes": 80}, (416, 416), 8_852_366, 0),
        ("edge-detector", {"network": "ssd-vgg", "classes": 21}, (300, 300), 26_285_486, 1e-4),
        ("edge-detector", {"network": "yolo-v6", "classes": 80}, (640, 640), 34.3e6, 0.01),
        ("edge-classifier", {"network": "mobilenet-v2"}, (224, 224), 3_504_872, 0),
        (
            "edge-classifier",
            {"network": "mobilenet-v1", "width_multiplier": 0.25, "classes": 1001},
            (128, 128),
            470e3,
            0.01,
        ),
        (
            "edge-classifier",
            {"network": "mobilenet-v1", "width_multiplier": 0.5, "classes": 1001},
            (160, 160),
            1.34e6,
            0.01,
        ),
        ("edge-classifier", {"network": "mobilenet-v1", "classes": 1001}, (224, 224), 4.24e6, 0.01),
        (
            "edge-classifier",
            {"network": "mobilenet-v2", "width_multiplier": 1.4, "classes": 1001},
            (224, 224),
            6.06e6,
            0.01,
        ),
    ],
)
def test_parameters_are_the_published_ones(family, parameters, size, count, tolerance):
    assert network(family, size, **parameters).parameter_totals.parameters == pytest.approx(
        count, rel=tolerance
    )


def convolution_outputs(builder, suffix):
    """Output elements of the convolutions whose path ends so, largest map first."""
    graph = builder.build()
    names = DIMENSIONS[OperatorKind.CONV]
    columns = [names.index(name) for name in ("channels_out", "out_h", "out_w")]
    wanted = [
        path.endswith(suffix) and kind == OperatorKind.CONV
        for path, kind in zip(graph.path, graph.kind, strict=True)
    ]
    return sorted(np.prod(graph.dims[np.array(wanted)][:, columns], axis=1).tolist(), reverse=True)


# Anchors: TensorFlow's SSD (19x19x3 + 6 x (100 + 25 + 9 + 4 + 1)); Zhang et al. 2018, table 1
# (RefineDet320: 6375); TensorFlow's RetinaNet at 640 pixels: 6 x (80^2 + 40^2 + 20^2 + 10^2 + 5^2).
@pytest.mark.parametrize(
    ("name", "classes", "size", "suffix", "boxes"),
    [
        ("ssd-mobilenet-v1", 91, 300, ".boxes", 1917),
        ("ssd-mobilenet-v2", 91, 300, ".boxes", 1917),
        ("ssdlite-mobilenet-v2", 91, 300, ".boxes", 1917),
        ("ssd-inception-v2", 91, 300, ".boxes", 1917),
        ("refinedet", 21, 320, ".boxes", 2 * 6375),  # proposed, then refined
        ("ssd-resnet-50-fpn", 91, 640, ".out", 51150 * (4 + 91) / 4),
    ],
)
def test_detectors_propose_the_published_number_of_boxes(name, classes, size, suffix, boxes):
    built = network("edge-detector", (size, size), network=name, classes=classes)
    assert sum(convolution_outputs(built, suffix)) / 4 == boxes


def test_mlperf_detector_scores_15130_boxes():
    """MLPerf Inference v0.5, SSD-ResNet-34 at 1200 pixels: maps of 50, 25, 13, 7, 3 and 3 with 4 or
    6 boxes a place.
    """
    built = network("edge-detector", (1200, 1200), network="ssd-resnet-34", classes=81)
    heads = [convolution_outputs(built, f"head.{index}") for index in range(6)]
    places = [(50, 4), (25, 6), (13, 6), (7, 6), (3, 4), (3, 4)]
    assert heads == [[side * side * anchors * 85] for side, anchors in places]
    assert sum(head[0] for head in heads) == 85 * 15130


def test_ssd_on_vgg_has_the_maps_of_the_paper():
    """Liu et al., ECCV 2016, figure 2: 38, 19, 10, 5, 3 and 1 places a side."""
    built = network("edge-detector", (300, 300), network="ssd-vgg", classes=21)
    sides = [38, 19, 10, 5, 3, 1]
    anchors = [4, 6, 6, 6, 4, 4]
    assert sum(a * s * s for s, a in zip(sides, anchors, strict=True)) == 8732
    assert convolution_outputs(built, ".boxes") == [
        4 * a * s * s for s, a in zip(sides, anchors, strict=True)
    ]


@pytest.mark.parametrize(
    ("parameters", "size", "suffix", "elements"),
    [
        (
            {"network": "semantic-fpn", "classes": 19},
            (256, 512),
            "classify",
            19 * 64 * 128,
        ),  # a quarter a side
        (
            {"network": "deeplab-mobilenet-v2", "classes": 19},
            (1024, 2048),
            "classify",
            19 * 128 * 256,
        ),  # an eighth
        (
            {"network": "unet", "classes": 4, "base_channels": 16},
            (512, 512),
            "classify",
            4 * 512 * 512,
        ),
        (
            {"network": "sesr"},
            (360, 640),
            "last",
            12 * 360 * 640,
        ),  # twice a side in three colours, depth to space
    ],
)
def test_segmenters_write_a_map_of_their_resolution(parameters, size, suffix, elements):
    built = network("edge-segmenter", size, **parameters)
    assert convolution_outputs(built, suffix) == [elements]
