"""Residual and densely connected image classifiers and RetinaNet, layer for layer as torchvision
builds them.

He et al., CVPR 2016 (ResNet, stride in the 3x3 convolution of a bottleneck: the "v1.5" of most
measurements); Xie et al., CVPR 2017 (ResNeXt); Zagoruyko and Komodakis, BMVC 2016 (wide ResNet);
Huang et al., CVPR 2017 (DenseNet). RetinaNet is a residual network, a feature pyramid, and two
small heads shared by all its levels (Lin et al., CVPR 2017 and ICCV 2017), up to class scores and
box offsets of all anchors: choosing boxes is not modelled, its cost depends on the picture.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from accelsim.plain import Document
from accelsim.workloads.builder import GraphBuilder, Tensor
from accelsim.workloads.families.image_network import write_network
from accelsim.workloads.family_parameters import Count, Depth, ImageParameters, RectangleParameters
from accelsim.workloads.model import PassShape, family

#: Blocks of each stage.
Depths = Annotated[tuple[Depth, ...], Field(strict=False, min_length=1, max_length=8)]


def image_input(
    b: GraphBuilder, p: ImageParameters | RectangleParameters, shape: PassShape
) -> Tensor:
    """A batch of images: square where the run names a size, else of the model's own."""
    sides = (shape.image_size or side for side in p.sides)
    return b.input(shape.batch, p.image_channels, *sides)


def classify(
    b: GraphBuilder, x: Tensor, classes: int, *, pool: str = "avgpool", name: str = "fc"
) -> Tensor:
    """Global average pooling and a linear classifier."""
    x = b.global_pool(x, at=pool)
    x = b.view(x, x.shape[0], x.shape[1])
    return b.linear(x, classes, at=name)


def network_family(
    name: str,
    parameters: type[ImageParameters | RectangleParameters],
    file: str,
    values: Callable[[Any], Document] = lambda _: {},
    *,
    is_classifier: bool = False,
) -> None:
    """Register a family that a file of `workloads/networks` holds.

    Args:
        name: Name of the family.
        parameters: Its parameters.
        file: Stem of the file; "{p.version}" stands for a parameter.
        values: Values of the names in braces besides `classes`, by the parameters.
        is_classifier: Whether a pool and a linear layer follow.
    """

    @family(name, parameters)
    def write(b: GraphBuilder, p: Any, shape: PassShape) -> None:
        x = image_input(b, p, shape)
        x = write_network(b, x, file.format(p=p), **({"classes": p.classes} | values(p)))
        if is_classifier:
            classify(b, x, p.classes)


class ResNetParameters(ImageParameters):
    """A residual network.

    Attributes:
        block: "basic" (two 3x3) or "bottleneck" (1x1, 3x3, 1x1).
        depths: Blocks per stage.
        groups: Groups of the 3x3 convolution (ResNeXt).
        width_per_group: Bottleneck channels per group in the first stage, of 64 output channels.
    """

    block: Literal["basic", "bottleneck"]
    depths: Depths
    groups: Depth = 1
    width_per_group: Depth = 64


@family("resnet", ResNetParameters)
def write_resnet(b: GraphBuilder, p: ResNetParameters, shape: PassShape) -> None:
    """Stem, stages, classifier."""
    stages = residual_stages(b, image_input(b, p, shape), p)
    classify(b, stages[-1], p.classes)


def residual_stages(b: GraphBuilder, x: Tensor, p: ResNetParameters) -> list[Tensor]:
    """The stem and the stages of a residual network; returns each stage's output.

    He et al., CVPR 2016; groups and widths of Xie et al., CVPR 2017.
    """
    inner = [64 * 2**stage * p.width_per_group // 64 * p.groups for stage in range(len(p.depths))]
    inners = [width for width, depth in zip(inner, p.depths, strict=True) for _ in range(depth)]
    return residual_maps(b, x, "resnet", p.depths, block=p.block, groups=p.groups, inners=inners)


def residual_maps(
    b: GraphBuilder,
    x: Tensor,
    network: str,
    depths: Sequence[int],
    *,
    stride_last_block: bool = False,
    **values: Any,
) -> list[Tensor]:
    """Stem and stages of a residual network; returns each stage's output.

    He et al., CVPR 2016.

    Args:
        b: Builder.
        x: Images.
        network: Stem of its file in `workloads/networks`.
        depths: Blocks of each stage.
        stride_last_block: Whether a stage strides in its last block rather than its first.
        **values: Further values of the names in braces; `block` begins with "basic" or
            "bottleneck".
    """
    numbers = [(stage, index) for stage, depth in enumerate(depths) for index in range(depth)]
    stages = [stage for stage, _ in numbers]
    widths = [64 << stage for stage in stages]
    expansion = 1 if values["block"] == "basic" else 4
    outs = [expansion * width for width in widths]
    strides = [1 + after - before for before, after in pairwise([0, *stages])]
    if stride_last_block:
        strides = [*strides[1:], 1]
    maps: dict[str, Tensor] = {}
    values |= {
        "places": [f"layer{stage + 1}.{index}" for stage, index in numbers],
        "stages": stages,
        "widths": widths,
        "outs": outs,
        "strides": strides,
        "shortcuts": _shortcuts(outs, strides),
    }
    write_network(b, x, network, maps=maps, **values)
    return [maps[f"map{stage}"] for stage in range(len(depths))]


def _shortcuts(outs: Sequence[int], strides: Sequence[int]) -> list[list[str]]:
    """The layer, if any, that brings each block's input to the size of its output."""
    shortcuts = []
    for (before, out), stride in zip(pairwise([64, *outs]), strides, strict=True):
        word = f"{out}s{stride}l" if out != before else "pool/1s2"
        shortcuts.append([word] if out != before or stride > 1 else [])
    return shortcuts


class DenseNetParameters(ImageParameters):
    """A densely connected network.

    Attributes:
        growth_rate: Channels each layer adds.
        depths: Layers per dense block.
        initial_channels: Channels of the stem.
        bottleneck_ratio: Channels of the 1x1 convolution, in growth rates.
    """

    growth_rate: Depth
    depths: Depths
    initial_channels: Depth = 64
    bottleneck_ratio: Annotated[int, Field(ge=1, le=64)] = 4


@family("densenet", DenseNetParameters)
def write_densenet(b: GraphBuilder, p: DenseNetParameters, shape: PassShape) -> None:
    """Stem, dense blocks with transitions, classifier."""
    x = image_input(b, p, shape)
    with b.scope("features"):
        x = b.conv(x, p.initial_channels, 7, stride=2, at="conv0")
        x = b.activation(b.batch_norm(x, at="norm0"), at="relu0")
        x = b.pool(x, 3, stride=2, padding=1, at="pool0")
        for block, depth in enumerate(p.depths, start=1):
            with b.scope(f"denseblock{block}"):
                x = _dense_block(b, x, p, depth)
            if block < len(p.depths):
                with b.scope(f"transition{block}"):
                    x = _norm_conv(b, x, x.shape[1] // 2, 1, "")
                    x = b.pool(x, 2, mode="avg", at="pool")
        x = b.batch_norm(x, at="norm5")
    classify(b, b.activation(x), p.classes, pool="", name="classifier")


def _norm_conv(b: GraphBuilder, x: Tensor, channels: int, kernel: int, suffix: str) -> Tensor:
    """Batch normalisation, ReLU, convolution: the order of a pre-activation network."""
    x = b.batch_norm(x, at=f"norm{suffix}")
    x = b.activation(x, at=f"relu{suffix}")
    return b.conv(x, channels, kernel, at=f"conv{suffix}")


def _dense_block(b: GraphBuilder, x: Tensor, p: DenseNetParameters, depth: int) -> Tensor:
    features = [x]
    for layer in range(1, depth + 1):
        with b.scope(f"denselayer{layer}"):
            y = b.concat(features) if layer > 1 else x
            y = _norm_conv(b, y, p.bottleneck_ratio * p.growth_rate, 1, "1")
            features.append(_norm_conv(b, y, p.growth_rate, 3, "2"))
    return b.concat(features)


class RetinaNetParameters(ResNetParameters):
    """RetinaNet; `classes` counts the background where the training did.

    Training starts from a classifier, whose norms stay as they are, as do its stem and first stage
    (torchvision 0.28, retinanet_resnet50_fpn: FrozenBatchNorm2d, trainable_backbone_layers 3;
    MLPerf's train.py has the same default).

    Attributes:
        pyramid_channels: Channels of every pyramid level.
        anchors: Boxes per position.
        head_depth: 3x3 convolutions of each head before its output.
    """

    untrained: ClassVar = tuple(
        f"backbone.body.{name}" for name in ("conv1", "bn1", "relu", "maxpool", "layer1")
    )
    pyramid_channels: Count = 256
    anchors: Count = 9
    head_depth: Count = 4


@family("retinanet", RetinaNetParameters)
def write_retinanet(b: GraphBuilder, p: RetinaNetParameters, shape: PassShape) -> None:
    """Backbone, pyramid levels 3 to 7, heads."""
    x = image_input(b, p, shape)
    with b.scope("backbone"):
        b.norms_are_frozen = True
        with b.scope("body"):
            stages = residual_stages(b, x, p)[1:]
        with b.scope("fpn"):
            levels = _pyramid(b, stages, p.pyramid_channels)
    for head, output, width in (
        ("classification_head", "cls_logits", p.classes),
        ("regression_head", "bbox_reg", 4),
    ):
        with b.scope(f"head.{head}"):
            before = b.parameter_totals
            for level in levels:
                _head(b, level, p, output, p.anchors * width)
            b.count_once(before, len(levels))


def _pyramid(b: GraphBuilder, stages: Sequence[Tensor], channels: int) -> list[Tensor]:
    """Levels from fine to coarse: lateral 1x1, coarser level upsampled and added, 3x3; two more by
    striding.
    """
    levels: list[Tensor] = []
    above: Tensor | None = None
    for index in reversed(range(len(stages))):
        lateral = b.conv(stages[index], channels, 1, bias=True, at=f"inner_blocks.{index}.0")
        if above is not None:
            lateral = b.add(lateral, b.copy(above, shape=lateral.shape, name="upsample"))
        above = lateral
        with b.scope(f"layer_blocks.{index}.0"):
            levels.insert(0, b.conv(lateral, channels, 3, bias=True))
    with b.scope("extra_blocks.p6"):
        levels.append(b.conv(levels[-1], channels, 3, stride=2, padding=1, bias=True))
    with b.scope("extra_blocks.p7"):
        levels.append(b.conv(b.activation(levels[-1]), channels, 3, stride=2, padding=1, bias=True))
    return levels


def _head(b: GraphBuilder, x: Tensor, p: RetinaNetParameters, output: str, width: int) -> None:
    """One head on one level."""
    for index in range(p.head_depth):
        x = b.conv(x, p.pyramid_channels, 3, bias=True, at=f"conv.{index}.0")
        x = b.activation(x, at=f"conv.{index}.1")
    b.conv(x, width, 3, bias=True, at=output)
