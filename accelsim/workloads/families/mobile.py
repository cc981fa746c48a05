"""Image classifiers built of depthwise convolutions: MobileNet v1 to v3 and EfficientNet.

Howard et al., arXiv:1704.04861 (v1); Sandler et al., CVPR 2018 (v2); Howard et al., ICCV 2019 (v3);
Tan and Le, ICML 2019 (EfficientNet). Versions 2, 3 and EfficientNet are files of
`workloads/networks` with the names of torchvision's modules; v1 follows the Keras application.
"""

from __future__ import annotations

from math import ceil
from typing import Literal

from accelsim.plain import Document
from accelsim.workloads.builder import GraphBuilder, Tensor
from accelsim.workloads.families.image_network import BACKBONES, chain
from accelsim.workloads.families.vision import classify, image_input, network_family
from accelsim.workloads.family_parameters import ImageParameters, Multiplier
from accelsim.workloads.model import PassShape, family


def round_channels(channels: float) -> int:
    """Nearest multiple of 8, but never more than 10 % below `channels` (Sandler et al. 2018)."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


class MobileNetParameters(ImageParameters):
    """MobileNet v1 or v2.

    Attributes:
        width_multiplier: Scale of all channel counts.
    """

    width_multiplier: Multiplier = 1.0


#: Output channels and stride of the separable convolutions of MobileNet v1, table 1.
_V1_LAYERS = [
    (64, 1),
    (128, 2),
    (128, 1),
    (256, 2),
    (256, 1),
    (512, 2),
    *[(512, 1)] * 5,
    (1024, 2),
    (1024, 1),
]


#: Module names of stem, depthwise and pointwise convolutions, the first number and activation.
_V1_LAYOUTS = {
    "keras": ("conv1", "conv_dw_{}", "conv_pw_{}", 1, "relu6"),
    "zoo": ("stem", "{}.depthwise", "{}.pointwise", 0, "relu"),
}


@family("mobilenet-v1", MobileNetParameters)
def write_mobilenet_v1(b: GraphBuilder, p: MobileNetParameters, shape: PassShape) -> None:
    """Stem, thirteen depthwise separable convolutions, classifier."""
    x = image_input(b, p, shape)
    x = mobilenet_v1_maps(b, x, p.width_multiplier, layout="keras")[-1]
    classify(b, x, p.classes, name="classifier.0")


def mobilenet_v1_maps(
    b: GraphBuilder, x: Tensor, width: float = 1.0, *, layout: str = "zoo"
) -> list[Tensor]:
    """MobileNet v1 without its classifier; one map per separable convolution.

    Args:
        b: Builder.
        x: Image.
        width: Scale of all channel counts.
        layout: Names and activation of the Keras application ("keras") or of accelerators' model
            zoos, which rectify without a limit ("zoo").
    """
    stem, depthwise, pointwise, first_index, activation = _V1_LAYOUTS[layout]
    x = chain(b, x, stem, f"{int(32 * width)}/3s2", activation=activation)
    maps = []
    for index, (channels, stride) in enumerate(_V1_LAYERS, start=first_index):
        x = chain(b, x, depthwise.format(index), f"dw/3s{stride}", activation=activation)
        x = chain(b, x, pointwise.format(index), f"{int(channels * width)}", activation=activation)
        maps.append(x)
    return maps


BACKBONES["mobilenet-v1"] = mobilenet_v1_maps


def scaled_sizes(width: float = 1.0, depth: float = 1.0) -> Document:
    """Scaled channels s8, s16, ... and their quarters q8, q16, ..., and numbers of the blocks
    after1, after2, ... a stage's first.

    Compound scaling: Tan and Le, ICML 2019.
    """
    channels = {count: round_channels(count * width) for count in range(8, 328, 8)}
    sizes: Document = {f"s{count}": scaled for count, scaled in channels.items()}
    sizes |= {f"q{count}": scaled // 4 for count, scaled in channels.items()}
    return sizes | {f"after{count}": list(range(1, ceil(count * depth))) for count in range(1, 6)}


network_family(
    "mobilenet-v2",
    MobileNetParameters,
    "mobilenet-v2-torchvision",
    lambda p: {
        **scaled_sizes(p.width_multiplier),
        "head": round_channels(1280 * max(1.0, p.width_multiplier)),
    },
)


class MobileNetV3Parameters(ImageParameters):
    """MobileNet v3.

    Attributes:
        size: "large" or "small".
    """

    size: Literal["large", "small"]


network_family("mobilenet-v3", MobileNetV3Parameters, "mobilenet-v3-{p.size}")


class EfficientNetParameters(ImageParameters):
    """EfficientNet, by compound scaling.

    Attributes:
        width_multiplier: Scale of channel counts.
        depth_multiplier: Scale of block repeats.
    """

    width_multiplier: Multiplier
    depth_multiplier: Multiplier


network_family(
    "efficientnet",
    EfficientNetParameters,
    "efficientnet",
    lambda p: scaled_sizes(p.width_multiplier, p.depth_multiplier),
)
