"""Inception networks: GoogLeNet (v1), v2, v3, v4 and Inception-ResNet-v2.

Szegedy et al., CVPR 2015 (v1, 5x5 windows; torchvision and TensorFlow-Slim have 3x3); Ioffe and
Szegedy, ICML 2015 (v2, batch normalisation; TensorFlow-Slim replaces its first convolution by a
separable one); Szegedy et al., CVPR 2016 (v3); Szegedy et al., AAAI 2017 (v4 and
Inception-ResNet-v2). "googlenet" and "inception-v3" are layer for layer torchvision's. Auxiliary
classifiers only exist while training from scratch and are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from accelsim.workloads.builder import GraphBuilder, Tensor
from accelsim.workloads.families.image_network import (
    RectangleParameters,
    chain,
    layer,
    rectangle_input,
)
from accelsim.workloads.families.vision import classify, image_input
from accelsim.workloads.family_parameters import ImageParameters
from accelsim.workloads.model import RunShape, family

__all__ = ["InceptionParameters", "InceptionVariantParameters", "inception_v2_maps"]

_NAMES = ("conv", "bn", "")
#: Convolutions of parallel branches by name, in the notation of `image_network`.
Branches = Mapping[str, str]
Pool = Callable[[GraphBuilder, Tensor, str], Tensor]


class InceptionParameters(ImageParameters):
    """GoogLeNet or Inception-v3: image size and classes."""


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


# -- building blocks


def _chain(b: GraphBuilder, x: Tensor, name: str, notation: str, first: int = 1) -> Tensor:
    return chain(b, x, name, notation, first=first, names=_NAMES)


def _branches(b: GraphBuilder, x: Tensor, branches: Branches, first: int = 1) -> list[Tensor]:
    return [_chain(b, x, name, steps, first) for name, steps in branches.items()]


def _mixed(
    b: GraphBuilder, x: Tensor, name: str, branches: Branches, pooled: int, mode: str = "avg"
) -> Tensor:
    """Branches side by side and a pooled 1x1 branch."""
    with b.scope(name):
        return b.concat([*_branches(b, x, branches), _pooled_branch(b, x, pooled, mode)])


def _pooled_branch(b: GraphBuilder, x: Tensor, channels: int, mode: str = "avg") -> Tensor:
    with b.scope("branch_pool"):
        smooth = b.pool(x, 3, stride=1, padding=1, mode=mode)
    return _chain(b, smooth, "branch_pool", str(channels))


def _reduction(
    b: GraphBuilder, x: Tensor, name: str, branches: Branches, *, padding: int = 0
) -> Tensor:
    """Branches whose last convolution strides, and a maximum pool."""
    with b.scope(name):
        return b.concat([*_branches(b, x, branches), _pool(b, x, "branch_pool", padding=padding)])


def _pool(b: GraphBuilder, x: Tensor, name: str, *, padding: int = 0) -> Tensor:
    with b.scope(name):
        return b.pool(x, 3, stride=2, padding=padding)


def _padded_pool(b: GraphBuilder, x: Tensor, name: str) -> Tensor:
    return _pool(b, x, name, padding=1)


# -- version 1

#: 1x1; 3x3 reduce, 3x3; 5x5 reduce, 5x5; projection: table 1 of Szegedy et al. 2015.
_GOOGLENET = {
    "inception3a": (64, 96, 128, 16, 32, 32),
    "inception3b": (128, 128, 192, 32, 96, 64),
    "maxpool3": (),
    "inception4a": (192, 96, 208, 16, 48, 64),
    "inception4b": (160, 112, 224, 24, 64, 64),
    "inception4c": (128, 128, 256, 24, 64, 64),
    "inception4d": (112, 144, 288, 32, 64, 64),
    "inception4e": (256, 160, 320, 32, 128, 128),
    "maxpool4": (),
    "inception5a": (256, 160, 320, 32, 128, 128),
    "inception5b": (384, 192, 384, 48, 128, 128),
}


@family("googlenet", InceptionParameters)
def write_googlenet(b: GraphBuilder, p: InceptionParameters, shape: RunShape) -> None:
    """Stem, nine inception modules, classifier."""
    _write_version_1(b, image_input(b, p, shape), p.classes, _rounded_up_pool, window=3)


@family("inception-v1", InceptionVariantParameters)
def write_inception_v1(b: GraphBuilder, p: InceptionVariantParameters, shape: RunShape) -> None:
    """GoogLeNet with its published windows."""
    x = rectangle_input(b, p, shape)
    _write_version_1(b, x, p.classes, _padded_pool, window=p.double_window)


def _rounded_up_pool(b: GraphBuilder, x: Tensor, name: str) -> Tensor:
    with b.scope(name):
        return b.pool(x, 2 if name == "maxpool4" else 3, stride=2, ceil=True)


def _write_version_1(b: GraphBuilder, x: Tensor, classes: int, pool: Pool, *, window: int) -> None:
    x = _early_stem(b, x, pool)
    for name, widths in _GOOGLENET.items():
        if not widths:
            x = pool(b, x, name)
            continue
        plain, reduced, middle, narrowed, wide, projected = widths
        branches = {
            "branch1": f"{plain}",
            "branch2": f"{reduced} {middle}/3",
            "branch3": f"{narrowed} {wide}/{window}",
        }
        with b.scope(name):
            results = _branches(b, x, branches, 0)
            with b.scope("branch4.0"):
                pooled = b.pool(x, 3, stride=1, padding=1)
            x = b.concat([*results, _chain(b, pooled, "branch4.1", f"{projected}")])
    classify(b, x, classes)


def _early_stem(b: GraphBuilder, x: Tensor, pool: Pool, *, separable: bool = False) -> Tensor:
    """The first three convolutions of versions 1 and 2."""
    if separable:
        x = layer(b, x, "conv1.depthwise", 24, 7, stride=2, groups=3, activation="")
        x = layer(b, x, "conv1.pointwise", 64, 1)
    else:
        x = _chain(b, x, "conv1", "64/7s2")
    x = _chain(b, pool(b, x, "maxpool1"), "conv2", "64")
    return pool(b, _chain(b, x, "conv3", "192/3"), "maxpool2")


# -- version 2

#: Branches and projection of each module, a pool of the maximum last (Ioffe and Szegedy 2015,
#: figure 5); modules without a projection are reductions.
_V2: tuple[tuple[tuple[str, ...], int], ...] = (
    (("64", "64 64/3", "64 96/3 96/3"), 32),
    (("64", "64 96/3", "64 96/3 96/3"), 64),
    (("128 160/3s2", "64 96/3 96/3s2"), 0),
    (("224", "64 96/3", "96 128/3 128/3"), 128),
    (("192", "96 128/3", "96 128/3 128/3"), 128),
    (("160", "128 160/3", "128 160/3 160/3"), 96),
    (("96", "128 192/3", "160 192/3 192/3"), 96),
    (("128 192/3s2", "192 256/3 256/3s2"), 0),
    (("352", "192 320/3", "160 224/3 224/3"), 128),
    (("352", "192 320/3", "192 224/3 224/3"), 128),
)


def inception_v2_maps(b: GraphBuilder, x: Tensor, p: InceptionVariantParameters) -> list[Tensor]:
    """The network without its classifier: the map before the second reduction and the last."""
    x = _early_stem(b, x, _padded_pool, separable=p.stem == "separable")
    before = x
    for index, (chains, projected) in enumerate(_V2):
        name = f"mixed{index}"
        branches = _numbered(*chains)
        if projected:
            mode = "max" if index == len(_V2) - 1 else "avg"
            x = _mixed(b, x, name, branches, projected, mode)
        else:
            before = x
            x = _reduction(b, x, name, branches, padding=1)
    return [before, x]


def _numbered(*chains: str) -> Branches:
    return {f"branch{index}": steps for index, steps in enumerate(chains)}


@family("inception-v2", InceptionVariantParameters)
def write_inception_v2(b: GraphBuilder, p: InceptionVariantParameters, shape: RunShape) -> None:
    """Stem, ten modules, classifier."""
    classify(b, inception_v2_maps(b, rectangle_input(b, p, shape), p)[-1], p.classes)


# -- version 3


@family("inception-v3", InceptionParameters)
def write_inception_v3(b: GraphBuilder, p: InceptionParameters, shape: RunShape) -> None:
    """Stem, modules A to E, classifier."""
    x = image_input(b, p, shape)
    x = _chain(b, x, "Conv2d_1a_3x3", "32/3s2v")
    x = _chain(b, x, "Conv2d_2a_3x3", "32/3v")
    x = _pool(b, _chain(b, x, "Conv2d_2b_3x3", "64/3"), "maxpool1")
    x = _chain(b, x, "Conv2d_3b_1x1", "80")
    x = _pool(b, _chain(b, x, "Conv2d_4a_3x3", "192/3v"), "maxpool2")
    for name, pooled in (("Mixed_5b", 32), ("Mixed_5c", 64), ("Mixed_5d", 64)):
        x = _mixed(b, x, name, _V3_A, pooled)
    x = _reduction(b, x, "Mixed_6a", _V3_REDUCE_B)
    for name, width in (("Mixed_6b", 128), ("Mixed_6c", 160), ("Mixed_6d", 160), ("Mixed_6e", 192)):
        x = _mixed(b, x, name, _v3_c(width), 192)
    x = _reduction(b, x, "Mixed_7a", _V3_REDUCE_D)
    for name in ("Mixed_7b", "Mixed_7c"):
        x = _v3_e(b, x, name)
    classify(b, x, p.classes)


_V3_A = {"branch1x1": "64", "branch5x5": "48 64/5", "branch3x3dbl": "64 96/3 96/3"}
_V3_REDUCE_B = {"branch3x3": "384/3s2v", "branch3x3dbl": "64 96/3 96/3s2v"}
_V3_REDUCE_D = {"branch3x3": "192 320/3s2v", "branch7x7x3": "192 192/1x7 192/7x1 192/3s2v"}


def _v3_c(width: int) -> Branches:
    row, column = f"{width}/1x7", f"{width}/7x1"
    return {
        "branch1x1": "192",
        "branch7x7": f"{width} {row} 192/7x1",
        "branch7x7dbl": f"{width} {column} {row} {column} 192/1x7",
    }


def _v3_e(b: GraphBuilder, x: Tensor, name: str) -> Tensor:
    """The widest module: its 3x3 windows are split into a row and a column side by side."""
    with b.scope(name):
        branches = [_chain(b, x, "branch1x1", "320")]
        single = _chain(b, x, "branch3x3_1", "384")
        branches.append(_row_and_column(b, single, "branch3x3_2"))
        double = _chain(b, x, "branch3x3dbl", "448 384/3")
        branches.append(_row_and_column(b, double, "branch3x3dbl_3"))
        return b.concat([*branches, _pooled_branch(b, x, 192)])


def _row_and_column(b: GraphBuilder, x: Tensor, name: str) -> Tensor:
    return b.concat(_branches(b, x, {f"{name}a": "384/1x3", f"{name}b": "384/3x1"}))


# -- version 4

_V4_A = _numbered("96", "64 96/3", "64 96/3 96/3")
_V4_REDUCE_A = _numbered("384/3s2v", "192 224/3 256/3s2v")
_V4_B = _numbered("384", "192 224/1x7 256/7x1", "192 192/1x7 224/7x1 224/1x7 256/7x1")
_V4_REDUCE_B = _numbered("192 192/3s2v", "256 256/1x7 320/7x1 320/3s2v")


@family("inception-v4", InceptionVariantParameters)
def write_inception_v4(b: GraphBuilder, p: InceptionVariantParameters, shape: RunShape) -> None:
    """Stem, 4 A, 7 B and 3 C modules with two reductions, classifier."""
    x = _v4_stem(b, rectangle_input(b, p, shape))
    for index in range(4):
        x = _mixed(b, x, f"a{index}", _V4_A, 96)
    x = _reduction(b, x, "reduce_a", _V4_REDUCE_A)
    for index in range(7):
        x = _mixed(b, x, f"b{index}", _V4_B, 128)
    x = _reduction(b, x, "reduce_b", _V4_REDUCE_B)
    for index in range(3):
        x = _v4_c(b, x, f"c{index}")
    classify(b, x, p.classes)


def _v4_stem(b: GraphBuilder, x: Tensor) -> Tensor:
    """Szegedy et al. 2017, figure 3."""
    x = _chain(b, x, "stem.0", "32/3s2v 32/3v 64/3")
    x = b.concat([_pool(b, x, "stem.1.pool"), _chain(b, x, "stem.1.conv", "96/3s2v")])
    branches = {"stem.2": "64 96/3v", "stem.3": "64 64/7x1 64/1x7 96/3v"}
    x = b.concat(_branches(b, x, branches))
    return b.concat([_chain(b, x, "stem.4.conv", "192/3s2v"), _pool(b, x, "stem.4.pool")])


def _v4_c(b: GraphBuilder, x: Tensor, name: str) -> Tensor:
    with b.scope(name):
        branches = [_pooled_branch(b, x, 256), _chain(b, x, "branch1", "256")]
        for index, steps in enumerate(("384", "384 448/1x3 512/3x1"), start=2):
            y = _chain(b, x, f"branch{index}", steps)
            branches += [
                _chain(b, y, f"branch{index}_row", "256/1x3"),
                _chain(b, y, f"branch{index}_column", "256/3x1"),
            ]
        return b.concat(branches)


# -- Inception-ResNet, version 2

_R2_FIRST = _numbered("96", "48 64/5", "64 96/3 96/3")
_R2_A = _numbered("32", "32 32/3", "32 48/3 64/3")
_R2_REDUCE_A = _numbered("384/3s2v", "256 256/3 384/3s2v")
_R2_B = _numbered("192", "128 160/1x7 192/7x1")
_R2_REDUCE_B = _numbered("256 384/3s2v", "256 288/3s2v", "256 288/3 320/3s2v")
_R2_C = _numbered("192", "192 224/1x3 256/3x1")


@family("inception-resnet-v2", InceptionVariantParameters)
def write_inception_resnet_v2(
    b: GraphBuilder, p: InceptionVariantParameters, shape: RunShape
) -> None:
    """Stem, 10 + 20 + 10 residual modules, classifier, as TensorFlow-Slim builds it."""
    x = rectangle_input(b, p, shape)
    x = _chain(b, x, "stem", "32/3s2v 32/3v 64/3 pool/3s2v 80 192/3v pool/3s2v")
    x = _mixed(b, x, "mixed_5b", _R2_FIRST, 64)
    for index in range(10):
        x = _residual(b, x, f"a{index}", _R2_A)
    x = _reduction(b, x, "reduce_a", _R2_REDUCE_A)
    for index in range(20):
        x = _residual(b, x, f"b{index}", _R2_B)
    x = _reduction(b, x, "reduce_b", _R2_REDUCE_B)
    for index in range(10):
        x = _residual(b, x, f"c{index}", _R2_C)
    classify(b, _chain(b, x, "conv_7b", "1536"), p.classes)


def _residual(b: GraphBuilder, x: Tensor, name: str, branches: Branches) -> Tensor:
    """Branches side by side, a 1x1 convolution back to the input's channels, the input added."""
    with b.scope(name):
        mixed = b.concat(_branches(b, x, branches))
        with b.scope("up"):
            mixed = b.conv(mixed, x.shape[1], 1, bias=True)
        return b.activation(b.add(mixed, x))
