"""Networks of convolutions that classify images: residual ones with refinements, a pyramid, a
mobile one of one branch.
"""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, unused-ignore"

from __future__ import annotations

from itertools import accumulate, pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from accelsim.calibration.check_models.fifth.classifiers import Bottleneck, residual_layers
from accelsim.calibration.check_models.fourth.convolutional import images, pooled_head, relu_conv
from accelsim.calibration.check_models.register import Inputs, registered

__all__: list[str] = []


# -- residual networks
# -----------------------------------------------------------------------------------------------


class _ChannelGate(nn.Module):
    """Channels scaled by what the means of their neighbours say (Wang et al., CVPR 2020)."""

    def __init__(self, k: int) -> None:
        super().__init__()
        self.pool, self.conv = (
            nn.AdaptiveAvgPool2d(1),
            nn.Conv1d(1, 1, k, padding=k // 2, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(self.pool(x).squeeze(-1).transpose(-1, -2))
        return x * torch.sigmoid(y.transpose(-1, -2).unsqueeze(-1)).expand_as(x)


@registered("eca-resnet-50")
def _gated(batch: int) -> tuple[nn.Module, Inputs]:
    """Three neighbours at every stage, as the authors' program has it."""
    stages = residual_layers(64, 1)
    for stage in stages[1:]:
        for block in stage:
            block.path.append(_ChannelGate(3))
    return nn.Sequential(*stages, *pooled_head(2048)), images(batch)


@registered("resnet-50-d")
def _refined(batch: int) -> tuple[nn.Module, Inputs]:
    """Three 3x3 convolutions at first, and means before the 1x1 beside a stride (He et al., CVPR
    2019).
    """
    stem, *stages = residual_layers(64, 1)
    first = [relu_conv(3, 32, 3, 2), relu_conv(32, 32), relu_conv(32, 64), stem[1]]
    for n, stage in enumerate(stages[1:]):
        block, i = stage[0], 256 * 2**n
        assert isinstance(block, Bottleneck)
        pool = nn.AvgPool2d(2, 2, ceil_mode=True, count_include_pad=False)
        block.skip = nn.Sequential(pool, relu_conv(i, 2 * i, 1, act=None))
    return nn.Sequential(*first, *stages, *pooled_head(2048)), images(batch)


# -- PyramidNet
# ------------------------------------------------------------------------------------------------------


class _PyramidBlock(nn.Module):
    """Norms around two 3x3 convolutions, one activation; the input beside it is widened by zeros."""

    def __init__(self, i: int, o: int, s: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            *(
                nn.BatchNorm2d(i),
                nn.Conv2d(i, o, 3, s, 1, bias=False),
                nn.BatchNorm2d(o),
                nn.ReLU(inplace=True),
            ),
            *(nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)),
        )
        self.pool, self.more = nn.AvgPool2d(2) if s > 1 else nn.Identity(), o - i

    def forward(self, x: Tensor) -> Tensor:
        y, kept = self.path(x), self.pool(x)
        if self.more:
            b, _, h, w = kept.shape
            kept = torch.cat(
                [kept, torch.zeros(b, self.more, h, w, dtype=x.dtype, device=x.device)], 1
            )
        y += kept
        return y


@registered("pyramidnet-110")
def _pyramid(batch: int) -> tuple[nn.Module, Inputs]:
    """Channels that grow by 48 in 54 blocks (Han et al., CVPR 2017); CIFAR-10."""
    widths = [round(width) for width in accumulate([48 / 54] * 54, initial=16.0)]
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)]
    for n, (i, o) in enumerate(pairwise(widths)):
        layers.append(_PyramidBlock(i, o, 2 if n in {18, 36} else 1))
    head = [
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.AvgPool2d(8),
        nn.Flatten(),
        nn.Linear(64, 10),
    ]
    return nn.Sequential(*layers, *head), images(batch, 32)


# -- MobileOne
# -------------------------------------------------------------------------------------------------------


class _OneConv(nn.Module):
    """A convolution into which its branches and norms have been folded, and an activation."""

    def __init__(self, i: int, o: int, k: int, s: int = 1, g: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(i, o, k, s, k // 2, groups=g)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.conv(x))


@registered("mobileone-s0")
def _mobile(batch: int) -> tuple[nn.Module, Inputs]:
    """As it is deployed, every block one convolution (Vasu et al., CVPR 2023)."""
    layers: list[nn.Module] = [_OneConv(3, 48, 3, 2)]
    channels = 48
    for o, count in ((48, 2), (128, 8), (256, 10), (1024, 1)):
        for position in range(count):
            layers += [
                _OneConv(channels, channels, 3, 1 if position else 2, channels),
                _OneConv(channels, o, 1),
            ]
            channels = o
    return nn.Sequential(*layers, *pooled_head(1024)), images(batch)
