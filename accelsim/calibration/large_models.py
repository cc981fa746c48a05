"""Whole models that check a GPU's calibration: published sizes, of the same parts as the smaller
ones of the CPU's check.

Sizes: ViT (Dosovitskiy et al., 2021), BERT (Devlin et al., 2019), GPT-2 (Radford et al., 2019),
Llama 3.1 8B (Meta, 2024). A pass takes between a tenth of a millisecond and a second on a
data-centre board.
"""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, unused-ignore"

from __future__ import annotations

from typing import Final

import torch
from torch import nn

from accelsim.calibration.check_models import (
    CHECK_MODELS,
    Encoder,
    Factory,
    Inputs,
    Llama,
    MoeTransformer,
    VisionTransformer,
)

__all__ = ["ALL_MODELS", "LARGE_MODELS"]

_LLAMA_LAYERS: Final = 32
_CONTEXT: Final = 1024


def _ids(batch: int, length: int, vocabulary: int) -> torch.Tensor:
    return torch.randint(vocabulary, (batch, length))


def _vit(batch: int) -> tuple[nn.Module, Inputs]:
    return VisionTransformer(1024, 16, 24), (torch.randn(batch, 3, 224, 224),)


def _bert(batch: int) -> tuple[nn.Module, Inputs]:
    return Encoder(30522, 1024, 16, 24, causal=False, head=2, pre=False), (_ids(batch, 384, 30522),)


def _gpt2(batch: int) -> tuple[nn.Module, Inputs]:
    return Encoder(50257, 1280, 20, 36, causal=True, head=50257, pre=True), (
        _ids(batch, 512, 50257),
    )


def _llama() -> nn.Module:
    return Llama(4096, 32, 8, 14336, _LLAMA_LAYERS, 128256)


def _llama_prefill(batch: int) -> tuple[nn.Module, Inputs]:
    return _llama(), (_ids(batch, _CONTEXT, 128256),)


def _llama_decode(batch: int) -> tuple[nn.Module, Inputs]:
    past = [torch.randn(batch, 8, _CONTEXT, 128) for _ in range(2 * _LLAMA_LAYERS)]
    return _llama(), (_ids(batch, 1, 128256), *past)


def _moe(batch: int) -> tuple[nn.Module, Inputs]:
    return MoeTransformer(1024, 16, 12, 16), (_ids(batch, 512, 8192),)


LARGE_MODELS: Final[dict[str, Factory]] = {
    "vit-large": _vit,
    "bert-large": _bert,
    "gpt2-large": _gpt2,
    "llama-3.1-8b-prefill": _llama_prefill,
    "llama-3.1-8b-decode": _llama_decode,
    "moe-transformer-large": _moe,
}
ALL_MODELS: Final[dict[str, Factory]] = {**CHECK_MODELS, **LARGE_MODELS}
