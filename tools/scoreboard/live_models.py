"""Small networks whose training memory is measured: a GPT, and a residual network of 50 layers."""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, unused-ignore"

from __future__ import annotations

import torch
from torch import nn

from accelsim.calibration.check_models import CHECK_MODELS
from accelsim.calibration.check_models.language_models import Gpt
from accelsim.calibration.check_models.parts import token_ids
from tools.scoreboard.live_tensors import Checkpointed, peak_live_bytes

_CLASSES = 1000


def peak_of_gpt(
    *,
    layers: int,
    width: int,
    heads: int,
    vocabulary: int,
    length: int,
    batch: int,
    recomputes: bool,
) -> int:
    """Peak of live bytes of a training step of a GPT.

    Args:
        layers: Layers.
        width: Hidden size.
        heads: Attention heads.
        vocabulary: Words.
        length: Tokens of a sequence.
        batch: Sequences.
        recomputes: Whether layers are checkpointed.
    """
    torch.manual_seed(0)
    model = Gpt(width, heads, layers, vocabulary, length)
    if recomputes:
        model.blocks = _checkpointed(model.blocks)
    return peak_live_bytes(model, *(token_ids(batch, length, vocabulary) for _ in range(2)))


def peak_of_resnet(*, side: int, batch: int, recomputes: bool) -> int:
    """Peak of live bytes of a training step of ResNet-50.

    Args:
        side: Of an image, in pixels.
        batch: Images.
        recomputes: Whether residual blocks are checkpointed.
    """
    torch.manual_seed(0)
    model, _ = CHECK_MODELS["resnet-50"](batch)
    if recomputes:
        stem, *parts = model.children()
        held = [_checkpointed(part) if isinstance(part, nn.Sequential) else part for part in parts]
        model = nn.Sequential(stem, *held)
    return peak_live_bytes(
        model, torch.randn(batch, 3, side, side), torch.randint(_CLASSES, (batch,))
    )


def _checkpointed(stage: nn.Sequential) -> nn.Sequential:
    return nn.Sequential(*(Checkpointed(block) for block in stage.children()))
