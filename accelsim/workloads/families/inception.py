"""GoogLeNet and Inception-v3, layer for layer as torchvision builds them, without the auxiliary
classifiers.

Szegedy et al., CVPR 2015 and CVPR 2016. As in torchvision, GoogLeNet's third branch uses 3x3
windows where the paper has 5x5. The auxiliary classifiers only exist while training from scratch
and are left out.
"""

from __future__ import annotations

from collections.abc import Sequence

from accelsim.workloads.builder import GraphBuilder, Tensor
from accelsim.workloads.families.vision import classify, conv_norm, image_input
from accelsim.workloads.model import RunShape, family
from accelsim.workloads.parameters import ImageParameters

__all__ = ["InceptionParameters"]

_NAMES = ("conv", "bn", "")
#: A chain of convolutions: name, channels, kernel, stride, padding of each.
_Chain = Sequence[tuple[str, int, "int | tuple[int, int]", int, "int | tuple[int, int]"]]


class InceptionParameters(ImageParameters):
    """GoogLeNet or Inception-v3: image size and classes."""


def _chain(b: GraphBuilder, x: Tensor, steps: _Chain) -> Tensor:
    for name, channels, kernel, stride, padding in steps:
        with b.scope(name):
            x = conv_norm(b, x, channels, kernel, stride=stride, padding=padding, names=_NAMES)
    return x


#: 1x1, 3x3 reduce, 3x3, second 3x3 reduce, second 3x3, pool projection: table 1 of Szegedy et al.
#: 2015.
_GOOGLENET = {
    "inception3a": (64, 96, 128, 16, 32, 32),
    "inception3b": (128, 128, 192, 32, 96, 64),
    "maxpool3": (3,),
    "inception4a": (192, 96, 208, 16, 48, 64),
    "inception4b": (160, 112, 224, 24, 64, 64),
    "inception4c": (128, 128, 256, 24, 64, 64),
    "inception4d": (112, 144, 288, 32, 64, 64),
    "inception4e": (256, 160, 320, 32, 128, 128),
    "maxpool4": (2,),
    "inception5a": (256, 160, 320, 32, 128, 128),
    "inception5b": (384, 192, 384, 48, 128, 128),
}


@family("googlenet", InceptionParameters)
def write_googlenet(b: GraphBuilder, p: InceptionParameters, shape: RunShape) -> None:
    """Stem, nine inception modules, classifier."""
    x = _chain(b, image_input(b, p, shape), [("conv1", 64, 7, 2, 3)])
    x = _max_pool(b, x, "maxpool1", 3)
    x = _chain(b, x, [("conv2", 64, 1, 1, 0), ("conv3", 192, 3, 1, 1)])
    x = _max_pool(b, x, "maxpool2", 3)
    for name, widths in _GOOGLENET.items():
        x = (
            _googlenet_module(b, x, name, widths)
            if len(widths) > 1
            else _max_pool(b, x, name, widths[0])
        )
    classify(b, x, p.classes)


def _max_pool(b: GraphBuilder, x: Tensor, name: str, kernel: int) -> Tensor:
    with b.scope(name):
        return b.pool(x, kernel, stride=2, ceil=True)


def _googlenet_module(b: GraphBuilder, x: Tensor, name: str, widths: Sequence[int]) -> Tensor:
    one, reduce_three, three, reduce_five, five, projected = widths
    with b.scope(name):
        branches = [
            _chain(b, x, [("branch1", one, 1, 1, 0)]),
            _chain(b, x, [("branch2.0", reduce_three, 1, 1, 0), ("branch2.1", three, 3, 1, 1)]),
            _chain(b, x, [("branch3.0", reduce_five, 1, 1, 0), ("branch3.1", five, 3, 1, 1)]),
        ]
        with b.scope("branch4.0"):
            pooled = b.pool(x, 3, stride=1, padding=1)
        branches.append(_chain(b, pooled, [("branch4.1", projected, 1, 1, 0)]))
        return b.concat(branches)


@family("inception-v3", InceptionParameters)
def write_inception_v3(b: GraphBuilder, p: InceptionParameters, shape: RunShape) -> None:
    """Stem, modules A to E, classifier."""
    x = image_input(b, p, shape)
    stem: _Chain = [
        ("Conv2d_1a_3x3", 32, 3, 2, 0),
        ("Conv2d_2a_3x3", 32, 3, 1, 0),
        ("Conv2d_2b_3x3", 64, 3, 1, 1),
    ]
    x = _plain_pool(b, _chain(b, x, stem), "maxpool1")
    x = _chain(b, x, [("Conv2d_3b_1x1", 80, 1, 1, 0), ("Conv2d_4a_3x3", 192, 3, 1, 0)])
    x = _plain_pool(b, x, "maxpool2")
    for name, pool_features in (("Mixed_5b", 32), ("Mixed_5c", 64), ("Mixed_5d", 64)):
        x = _module(b, x, name, _module_a(), pool_features)
    x = _reduction(b, x, "Mixed_6a", _reduction_b())
    for name, width in (("Mixed_6b", 128), ("Mixed_6c", 160), ("Mixed_6d", 160), ("Mixed_6e", 192)):
        x = _module(b, x, name, _module_c(width), 192)
    x = _reduction(b, x, "Mixed_7a", _reduction_d())
    for name in ("Mixed_7b", "Mixed_7c"):
        x = _module_e(b, x, name)
    classify(b, x, p.classes)


def _plain_pool(b: GraphBuilder, x: Tensor, name: str) -> Tensor:
    with b.scope(name):
        return b.pool(x, 3, stride=2)


def _module(
    b: GraphBuilder, x: Tensor, name: str, chains: Sequence[_Chain], pool_features: int
) -> Tensor:
    """Parallel chains and a pooled 1x1 branch, concatenated."""
    with b.scope(name):
        branches = [_chain(b, x, steps) for steps in chains]
        return b.concat([*branches, _pool_branch(b, x, pool_features)])


def _pool_branch(b: GraphBuilder, x: Tensor, features: int) -> Tensor:
    with b.scope("branch_pool"):
        pooled = b.pool(x, 3, stride=1, padding=1, mode="avg")
    return _chain(b, pooled, [("branch_pool", features, 1, 1, 0)])


def _reduction(b: GraphBuilder, x: Tensor, name: str, chains: Sequence[_Chain]) -> Tensor:
    """Parallel striding chains and a max pool, concatenated."""
    with b.scope(name):
        branches = [_chain(b, x, steps) for steps in chains]
        return b.concat([*branches, _plain_pool(b, x, "branch_pool")])


def _module_a() -> list[_Chain]:
    return [
        [("branch1x1", 64, 1, 1, 0)],
        [("branch5x5_1", 48, 1, 1, 0), ("branch5x5_2", 64, 5, 1, 2)],
        [
            ("branch3x3dbl_1", 64, 1, 1, 0),
            ("branch3x3dbl_2", 96, 3, 1, 1),
            ("branch3x3dbl_3", 96, 3, 1, 1),
        ],
    ]


def _reduction_b() -> list[_Chain]:
    return [
        [("branch3x3", 384, 3, 2, 0)],
        [
            ("branch3x3dbl_1", 64, 1, 1, 0),
            ("branch3x3dbl_2", 96, 3, 1, 1),
            ("branch3x3dbl_3", 96, 3, 2, 0),
        ],
    ]


def _module_c(width: int) -> list[_Chain]:
    row, column = (1, 7), (7, 1)
    row_pad, column_pad = (0, 3), (3, 0)
    return [
        [("branch1x1", 192, 1, 1, 0)],
        [
            ("branch7x7_1", width, 1, 1, 0),
            ("branch7x7_2", width, row, 1, row_pad),
            ("branch7x7_3", 192, column, 1, column_pad),
        ],
        [
            ("branch7x7dbl_1", width, 1, 1, 0),
            ("branch7x7dbl_2", width, column, 1, column_pad),
            ("branch7x7dbl_3", width, row, 1, row_pad),
            ("branch7x7dbl_4", width, column, 1, column_pad),
            ("branch7x7dbl_5", 192, row, 1, row_pad),
        ],
    ]


def _reduction_d() -> list[_Chain]:
    return [
        [("branch3x3_1", 192, 1, 1, 0), ("branch3x3_2", 320, 3, 2, 0)],
        [
            ("branch7x7x3_1", 192, 1, 1, 0),
            ("branch7x7x3_2", 192, (1, 7), 1, (0, 3)),
            ("branch7x7x3_3", 192, (7, 1), 1, (3, 0)),
            ("branch7x7x3_4", 192, 3, 2, 0),
        ],
    ]


def _module_e(b: GraphBuilder, x: Tensor, name: str) -> Tensor:
    """The widest module: its 3x3 windows are split into a row and a column side by side."""
    with b.scope(name):
        branches = [_chain(b, x, [("branch1x1", 320, 1, 1, 0)])]
        single = _chain(b, x, [("branch3x3_1", 384, 1, 1, 0)])
        branches.append(_split(b, single, "branch3x3_2"))
        double = _chain(b, x, [("branch3x3dbl_1", 448, 1, 1, 0), ("branch3x3dbl_2", 384, 3, 1, 1)])
        branches.append(_split(b, double, "branch3x3dbl_3"))
        return b.concat([*branches, _pool_branch(b, x, 192)])


def _split(b: GraphBuilder, x: Tensor, name: str) -> Tensor:
    row = _chain(b, x, [(f"{name}a", 384, (1, 3), 1, (0, 1))])
    column = _chain(b, x, [(f"{name}b", 384, (3, 1), 1, (1, 0))])
    return b.concat([row, column])
