"""RetinaNet: a residual network, a feature pyramid, and two small heads shared by all its levels.

Lin et al., CVPR 2017 and ICCV 2017, layer for layer as torchvision builds it, up to class scores
and box offsets of all anchors. Choosing boxes is not modelled: its cost depends on the picture.
"""

from __future__ import annotations

from collections.abc import Sequence

from accelsim.workloads.builder import GraphBuilder, Tensor
from accelsim.workloads.families.vision import ResNetParameters, image_input, residual_stages
from accelsim.workloads.family_parameters import Count
from accelsim.workloads.model import PassShape, family


class RetinaNetParameters(ResNetParameters):
    """RetinaNet; `classes` counts the background where the training did.

    Attributes:
        pyramid_channels: Channels of every pyramid level.
        anchors: Boxes per position.
        head_depth: 3x3 convolutions of each head before its output.
    """

    pyramid_channels: Count = 256
    anchors: Count = 9
    head_depth: Count = 4


@family("retinanet", RetinaNetParameters)
def write_retinanet(b: GraphBuilder, p: RetinaNetParameters, shape: PassShape) -> None:
    """Backbone, pyramid levels 3 to 7, heads."""
    x = image_input(b, p, shape)
    with b.scope("backbone"):
        with b.scope("body"):
            stages = residual_stages(b, x, p)[1:]
        with b.scope("fpn"):
            levels = _pyramid(b, stages, p.pyramid_channels)
    for head, width in (("classification_head", p.classes), ("regression_head", 4)):
        output = "cls_logits" if head.startswith("class") else "bbox_reg"
        for index, level in enumerate(levels):
            _head(b, level, p, f"head.{head}", output, width, shared=index > 0)


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


def _head(
    b: GraphBuilder,
    x: Tensor,
    p: RetinaNetParameters,
    scope: str,
    output: str,
    width: int,
    *,
    shared: bool,
) -> None:
    """One head on one level; its weights are counted on the first level only."""
    before = (b.parameter_count, b.parameter_tensor_count, b.parameter_bytes)
    for index in range(p.head_depth):
        x = b.conv(x, p.pyramid_channels, 3, bias=True, at=f"{scope}.conv.{index}.0")
        x = b.activation(x, at=f"{scope}.conv.{index}.1")
    b.conv(x, p.anchors * width, 3, bias=True, at=f"{scope}.{output}")
    if shared:
        b.parameter_count, b.parameter_tensor_count, b.parameter_bytes = before
