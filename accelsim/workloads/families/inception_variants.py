"""Inception networks beside torchvision's: the original GoogLeNet, Inception-v2, Inception-v4 and
Inception-ResNet-v2.

Szegedy et al., CVPR 2015 (v1, 5x5 windows); Ioffe and Szegedy, ICML 2015 (v2, batch normalisation;
TensorFlow-Slim replaces its first convolution by a separable one); Szegedy et al., AAAI 2017 (v4
and Inception-ResNet-v2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from accelsim.workloads.builder import GraphBuilder, Tensor
from accelsim.workloads.families.image_network import RectangleParameters, layer, rectangle_input
from accelsim.workloads.families.vision import classify
from accelsim.workloads.model import RunShape, family

__all__ = ["InceptionVariantParameters", "inception_v2_maps"]

#: Channels, window and stride of one convolution of a chain.
_Step = tuple[int, "int | tuple[int, int]", int]
_Chain = Sequence[_Step]


class InceptionVariantParameters(RectangleParameters):
    """An Inception network.

    Attributes:
        stem: "plain" starts with a 7x7 convolution, "separable" with TensorFlow-Slim's separable
            one (v2 only).
        double_window: Window of GoogLeNet's third branch: 5 in the paper, 3 in TensorFlow-Slim (v1
            only).
    """

    stem: Literal["plain", "separable"] = "plain"
    double_window: Literal[3, 5] = 5


def _chain(
    b: GraphBuilder, x: Tensor, name: str, steps: _Chain, *, padding: int | None = None
) -> Tensor:
    for index, (channels, kernel, stride) in enumerate(steps):
        x = layer(b, x, f"{name}.{index}", channels, kernel, stride=stride, padding=padding)
    return x


def _pool(b: GraphBuilder, x: Tensor, *, padding: int = 1) -> Tensor:
    with b.scope("pool"):
        return b.pool(x, 3, stride=2, padding=padding)


def _module(
    b: GraphBuilder, x: Tensor, name: str, chains: Sequence[_Chain], pooled: int, mode: str = "avg"
) -> Tensor:
    """Chains side by side and a pooled 1x1 branch."""
    with b.scope(name):
        branches = [_chain(b, x, str(i), steps) for i, steps in enumerate(chains)]
        with b.scope("pooled"):
            y = b.pool(x, 3, stride=1, padding=1, mode=mode)
        return b.concat([*branches, _chain(b, y, "projected", [(pooled, 1, 1)])])


def _reduction(
    b: GraphBuilder, x: Tensor, name: str, chains: Sequence[_Chain], *, padding: int
) -> Tensor:
    """Chains whose last convolution strides, and a max pool."""
    with b.scope(name):
        branches = []
        for i, steps in enumerate(chains):
            y = _chain(b, x, f"{i}.0", steps[:-1])
            branches.append(_chain(b, y, f"{i}.1", steps[-1:], padding=padding))
        return b.concat([*branches, _pool(b, x, padding=padding)])


def _early_stem(b: GraphBuilder, x: Tensor, p: InceptionVariantParameters) -> Tensor:
    """The first three convolutions of v1 and v2."""
    if p.stem == "separable":
        x = layer(b, x, "conv1.depthwise", 24, 7, stride=2, groups=3, activation=None)
        x = layer(b, x, "conv1.pointwise", 64, 1)
    else:
        x = layer(b, x, "conv1", 64, 7, stride=2)
    x = layer(b, _pool(b, x), "conv2", 64, 1)
    return _pool(b, layer(b, x, "conv3", 192, 3))


# 1x1; 3x3 reduce, 3x3; 5x5 reduce, 5x5; projection (Szegedy et al. 2015, table 1); () stands for a
# pool.
_V1: tuple[tuple[int, ...], ...] = (
    (64, 96, 128, 16, 32, 32),
    (128, 128, 192, 32, 96, 64),
    (),
    (192, 96, 208, 16, 48, 64),
    (160, 112, 224, 24, 64, 64),
    (128, 128, 256, 24, 64, 64),
    (112, 144, 288, 32, 64, 64),
    (256, 160, 320, 32, 128, 128),
    (),
    (256, 160, 320, 32, 128, 128),
    (384, 192, 384, 48, 128, 128),
)


@family("inception-v1", InceptionVariantParameters)
def write_inception_v1(b: GraphBuilder, p: InceptionVariantParameters, shape: RunShape) -> None:
    """GoogLeNet with its published windows."""
    x = _early_stem(b, rectangle_input(b, p, shape), p)
    for index, widths in enumerate(_V1):
        if not widths:
            x = _pool(b, x)
            continue
        one, reduce_three, three, reduce_five, five, projected = widths
        window = p.double_window
        chains: list[_Chain] = [
            [(one, 1, 1)],
            [(reduce_three, 1, 1), (three, 3, 1)],
            [(reduce_five, 1, 1), (five, window, 1)],
        ]
        x = _module(b, x, f"mixed{index}", chains, projected, "max")
    classify(b, x, p.classes)


# 1x1; 3x3 reduce, 3x3; double 3x3 reduce, double 3x3; projection (Ioffe and Szegedy 2015, figure
# 5); four are a reduction.
_V2: tuple[tuple[int, ...], ...] = (
    (64, 64, 64, 64, 96, 32),
    (64, 64, 96, 64, 96, 64),
    (128, 160, 64, 96),
    (224, 64, 96, 96, 128, 128),
    (192, 96, 128, 96, 128, 128),
    (160, 128, 160, 128, 160, 96),
    (96, 128, 192, 160, 192, 96),
    (128, 192, 192, 256),
    (352, 192, 320, 160, 224, 128),
    (352, 192, 320, 192, 224, 128),
)


def inception_v2_maps(b: GraphBuilder, x: Tensor, p: InceptionVariantParameters) -> list[Tensor]:
    """The network without its classifier; returns the map before the second reduction and the last."""
    x = _early_stem(b, x, p)
    before = x
    for index, widths in enumerate(_V2):
        chains: list[_Chain]
        if len(widths) == 4:
            before = x
            reduce_three, three, reduce_double, double = widths
            chains = [
                [(reduce_three, 1, 1), (three, 3, 2)],
                [(reduce_double, 1, 1), (double, 3, 1), (double, 3, 2)],
            ]
            x = _reduction(b, x, f"mixed{index}", chains, padding=1)
            continue
        one, reduce_three, three, reduce_double, double, projected = widths
        chains = [
            [(one, 1, 1)],
            [(reduce_three, 1, 1), (three, 3, 1)],
            [(reduce_double, 1, 1), (double, 3, 1), (double, 3, 1)],
        ]
        x = _module(
            b, x, f"mixed{index}", chains, projected, "max" if index == len(_V2) - 1 else "avg"
        )
    return [before, x]


@family("inception-v2", InceptionVariantParameters)
def write_inception_v2(b: GraphBuilder, p: InceptionVariantParameters, shape: RunShape) -> None:
    """Stem, ten modules, classifier."""
    classify(b, inception_v2_maps(b, rectangle_input(b, p, shape), p)[-1], p.classes)


_ROW, _COLUMN = (1, 7), (7, 1)


def _stem_v4(b: GraphBuilder, x: Tensor) -> Tensor:
    """Szegedy et al. 2017, figure 3."""
    x = _chain(b, x, "stem.0", [(32, 3, 2), (32, 3, 1)], padding=0)
    x = _chain(b, x, "stem.1", [(64, 3, 1)])
    with b.scope("stem.2"):
        x = b.concat([_pool(b, x, padding=0), _chain(b, x, "conv", [(96, 3, 2)], padding=0)])
    one = _chain(b, _chain(b, x, "stem.3.0", [(64, 1, 1)]), "stem.3.1", [(96, 3, 1)], padding=0)
    other = _chain(b, x, "stem.3.2", [(64, 1, 1), (64, _COLUMN, 1), (64, _ROW, 1)])
    x = b.concat([one, _chain(b, other, "stem.3.3", [(96, 3, 1)], padding=0)])
    with b.scope("stem.4"):
        return b.concat([_chain(b, x, "conv", [(192, 3, 2)], padding=0), _pool(b, x, padding=0)])


def _v4_c(b: GraphBuilder, x: Tensor, name: str) -> Tensor:
    with b.scope(name):
        with b.scope("pooled"):
            pooled = b.pool(x, 3, stride=1, padding=1, mode="avg")
        branches = [_chain(b, pooled, "0", [(256, 1, 1)]), _chain(b, x, "1", [(256, 1, 1)])]
        chains: list[_Chain] = [[(384, 1, 1)], [(384, 1, 1), (448, (1, 3), 1), (512, (3, 1), 1)]]
        for index, steps in enumerate(chains, start=2):
            y = _chain(b, x, str(index), steps)
            branches += [
                _chain(b, y, f"{index}.{i}", [(256, k, 1)]) for i, k in enumerate(((1, 3), (3, 1)))
            ]
        return b.concat(branches)


_V4_A: list[_Chain] = [[(96, 1, 1)], [(64, 1, 1), (96, 3, 1)], [(64, 1, 1), (96, 3, 1), (96, 3, 1)]]
_V4_REDUCE_A: list[_Chain] = [[(384, 3, 2)], [(192, 1, 1), (224, 3, 1), (256, 3, 2)]]
_V4_B: list[_Chain] = [
    [(384, 1, 1)],
    [(192, 1, 1), (224, _ROW, 1), (256, _COLUMN, 1)],
    [(192, 1, 1), (192, _ROW, 1), (224, _COLUMN, 1), (224, _ROW, 1), (256, _COLUMN, 1)],
]
_V4_REDUCE_B: list[_Chain] = [
    [(192, 1, 1), (192, 3, 2)],
    [(256, 1, 1), (256, _ROW, 1), (320, _COLUMN, 1), (320, 3, 2)],
]


@family("inception-v4", InceptionVariantParameters)
def write_inception_v4(b: GraphBuilder, p: InceptionVariantParameters, shape: RunShape) -> None:
    """Stem, 4 A, 7 B and 3 C modules with two reductions, classifier."""
    x = _stem_v4(b, rectangle_input(b, p, shape))
    for index in range(4):
        x = _module(b, x, f"a{index}", _V4_A, 96)
    x = _reduction(b, x, "reduce_a", _V4_REDUCE_A, padding=0)
    for index in range(7):
        x = _module(b, x, f"b{index}", _V4_B, 128)
    x = _reduction(b, x, "reduce_b", _V4_REDUCE_B, padding=0)
    for index in range(3):
        x = _v4_c(b, x, f"c{index}")
    classify(b, x, p.classes)


def _residual(b: GraphBuilder, x: Tensor, name: str, chains: Sequence[_Chain]) -> Tensor:
    """Chains side by side, a 1x1 convolution back to the input's channels, added to the input."""
    with b.scope(name):
        mixed = b.concat([_chain(b, x, str(i), steps) for i, steps in enumerate(chains)])
        with b.scope("up"):
            mixed = b.conv(mixed, x.shape[1], 1, bias=True)
        return b.activation(b.add(mixed, x))


_R2_FIRST: list[_Chain] = [
    [(96, 1, 1)],
    [(48, 1, 1), (64, 5, 1)],
    [(64, 1, 1), (96, 3, 1), (96, 3, 1)],
]
_R2_A: list[_Chain] = [[(32, 1, 1)], [(32, 1, 1), (32, 3, 1)], [(32, 1, 1), (48, 3, 1), (64, 3, 1)]]
_R2_REDUCE_A: list[_Chain] = [[(384, 3, 2)], [(256, 1, 1), (256, 3, 1), (384, 3, 2)]]
_R2_B: list[_Chain] = [[(192, 1, 1)], [(128, 1, 1), (160, _ROW, 1), (192, _COLUMN, 1)]]
_R2_REDUCE_B: list[_Chain] = [
    [(256, 1, 1), (384, 3, 2)],
    [(256, 1, 1), (288, 3, 2)],
    [(256, 1, 1), (288, 3, 1), (320, 3, 2)],
]
_R2_C: list[_Chain] = [[(192, 1, 1)], [(192, 1, 1), (224, (1, 3), 1), (256, (3, 1), 1)]]


@family("inception-resnet-v2", InceptionVariantParameters)
def write_inception_resnet_v2(
    b: GraphBuilder, p: InceptionVariantParameters, shape: RunShape
) -> None:
    """Stem, 10 + 20 + 10 residual modules, classifier, as TensorFlow-Slim builds it."""
    x = _chain(b, rectangle_input(b, p, shape), "stem.0", [(32, 3, 2), (32, 3, 1)], padding=0)
    x = _pool(b, _chain(b, x, "stem.1", [(64, 3, 1)]), padding=0)
    x = _chain(b, x, "stem.2", [(80, 1, 1), (192, 3, 1)], padding=0)
    x = _module(b, _pool(b, x, padding=0), "mixed_5b", _R2_FIRST, 64)
    for index in range(10):
        x = _residual(b, x, f"a{index}", _R2_A)
    x = _reduction(b, x, "reduce_a", _R2_REDUCE_A, padding=0)
    for index in range(20):
        x = _residual(b, x, f"b{index}", _R2_B)
    x = _reduction(b, x, "reduce_b", _R2_REDUCE_B, padding=0)
    for index in range(10):
        x = _residual(b, x, f"c{index}", _R2_C)
    classify(b, layer(b, x, "conv_7b", 1536, 1), p.classes)
