"""SSD over ResNet-34 at 1200 pixels, the large detector of MLPerf Inference up to round 1.1, up to
scores and box offsets.

Layer for layer as the reference (mlcommons/inference, ssd_r34.py): the third stage keeps its
resolution, the fourth is left out, five further stages follow, and the heads step by three
positions. Choosing boxes is not modelled.
"""

from __future__ import annotations

from accelsim.workloads.builder import GraphBuilder, Tensor
from accelsim.workloads.families.detection import SsdParameters
from accelsim.workloads.families.vision import conv_norm, image_input
from accelsim.workloads.model import RunShape, family

__all__ = ["write_ssd_resnet34"]

#: Channels, blocks and stride of the residual stages.
_STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 1))
#: Squeeze and output channels, stride and padding of the further stages.
_EXTRA = ((256, 512, 2, 1), (256, 512, 2, 1), (128, 256, 2, 1), (128, 256, 2, 0), (128, 256, 1, 0))
_HEAD_STRIDE = 3


@family("ssd-resnet34", SsdParameters)
def write_ssd_resnet34(b: GraphBuilder, p: SsdParameters, shape: RunShape) -> None:
    """Residual stages, further stages, heads on six maps."""
    x = _backbone(b, image_input(b, p, shape))
    maps = [x]
    for index, (squeeze, channels, stride, padding) in enumerate(_EXTRA):
        with b.scope(f"additional_blocks.{index}"):
            x = _conv_relu(b, x, squeeze, 1, "0")
            x = _conv_relu(b, x, channels, 3, "2", stride=stride, padding=padding)
        maps.append(x)
    for name, width in (("loc", 4), ("conf", p.classes)):
        for index, (feature, anchors) in enumerate(zip(maps, p.anchors, strict=True)):
            with b.scope(f"{name}.{index}"):
                b.conv(feature, anchors * width, 3, stride=_HEAD_STRIDE, padding=1, bias=True)


def _conv_relu(
    b: GraphBuilder,
    x: Tensor,
    channels: int,
    kernel: int,
    name: str,
    *,
    stride: int = 1,
    padding: int = 0,
) -> Tensor:
    with b.scope(name):
        return b.activation(b.conv(x, channels, kernel, stride=stride, padding=padding, bias=True))


def _backbone(b: GraphBuilder, x: Tensor) -> Tensor:
    with b.scope("model"):
        x = conv_norm(b, x, 64, 7, stride=2, names=("conv1", "bn1", "relu"))
        x = b.pool(x, 3, stride=2, padding=1)
        for stage, (channels, depth, stride) in enumerate(_STAGES, start=1):
            for block in range(depth):
                with b.scope(f"layer{stage}.{block}"):
                    x = _basic_block(b, x, channels, stride if block == 0 else 1)
    return x


def _basic_block(b: GraphBuilder, x: Tensor, channels: int, stride: int) -> Tensor:
    y = conv_norm(b, x, channels, 3, stride=stride, names=("conv1", "bn1", "relu"))
    y = conv_norm(b, y, channels, 3, activation=None, names=("conv2", "bn2", "relu"))
    if stride != 1 or x.shape[1] != channels:
        with b.scope("downsample"):
            x = conv_norm(b, x, channels, 1, stride=stride, activation=None)
    return b.activation(b.add(y, x))
