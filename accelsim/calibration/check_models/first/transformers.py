"""Transformers: encoders, decoders with and without a cache, encoder-decoders, vision, mixtures of
experts.
"""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, unused-ignore"

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from accelsim.calibration.check_models.register import Inputs, registered, token_ids

__all__ = ["Encoder", "Llama", "MoeTransformer", "VisionTransformer"]


class _Attention(nn.Module):
    def __init__(
        self,
        width: int,
        heads: int,
        kv_heads: int | None = None,
        causal: bool = False,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.causal, self.size = (
            heads,
            kv_heads or heads,
            causal,
            width // heads,
        )
        self.query = nn.Linear(width, width, bias=bias)
        self.key = nn.Linear(width, self.kv_heads * self.size, bias=bias)
        self.value = nn.Linear(width, self.kv_heads * self.size, bias=bias)
        self.output = nn.Linear(width, width, bias=bias)

    def forward(
        self, x: Tensor, source: Tensor | None = None, past: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        b, n, _ = x.shape
        source = x if source is None else source
        q = self.query(x).view(b, n, self.heads, self.size).transpose(1, 2)
        k = self.key(source).view(b, -1, self.kv_heads, self.size).transpose(1, 2)
        v = self.value(source).view(b, -1, self.kv_heads, self.size).transpose(1, 2)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        if self.kv_heads < self.heads:
            k, v = (t.repeat_interleave(self.heads // self.kv_heads, 1) for t in (k, v))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal and past is None)
        result: Tensor = self.output(y.transpose(1, 2).reshape(b, n, -1))
        return result


class _Block(nn.Module):
    def __init__(
        self,
        width: int,
        heads: int,
        inner: int,
        causal: bool = False,
        cross: bool = False,
        pre: bool = True,
    ) -> None:
        super().__init__()
        self.pre = pre
        self.attention, self.norm1, self.norm2 = (
            _Attention(width, heads, causal=causal),
            nn.LayerNorm(width),
            nn.LayerNorm(width),
        )
        self.cross = _Attention(width, heads) if cross else None
        self.norm3 = nn.LayerNorm(width) if cross else None
        self.mlp = nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))

    def forward(self, x: Tensor, source: Tensor | None = None) -> Tensor:
        if not self.pre:
            x = self.norm1(x + self.attention(x))
            return self.norm2(x + self.mlp(x))  # type: ignore[no-any-return]
        x = x + self.attention(self.norm1(x))
        if self.cross is not None and self.norm3 is not None:
            x = x + self.cross(self.norm3(x), source)
        return x + self.mlp(self.norm2(x))  # type: ignore[no-any-return]


class Encoder(nn.Module):
    """A transformer over token ids; causal where it is a decoder."""

    def __init__(
        self,
        vocabulary: int,
        width: int,
        heads: int,
        layers: int,
        causal: bool,
        head: int,
        pre: bool,
    ) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(vocabulary, width), nn.Embedding(1024, width)
        self.blocks = nn.ModuleList(
            _Block(width, heads, 4 * width, causal, pre=pre) for _ in range(layers)
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, head)

    def forward(self, ids: Tensor) -> Tensor:
        """Head outputs of every token."""
        x = self.token(ids) + self.place(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        result: Tensor = self.head(self.norm(x))
        return result


@registered("bert-base")
def _bert_base(batch: int) -> tuple[nn.Module, Inputs]:
    return Encoder(30522, 768, 12, 12, causal=False, head=2, pre=False), (
        token_ids(batch, 128, 30522),
    )


@registered("bert-large-6-layers")
def _bert_large(batch: int) -> tuple[nn.Module, Inputs]:
    return Encoder(30522, 1024, 16, 6, causal=False, head=2, pre=False), (
        token_ids(batch, 256, 30522),
    )


@registered("gpt2-6-layers")
def _gpt2(batch: int) -> tuple[nn.Module, Inputs]:
    return Encoder(50257, 768, 12, 6, causal=True, head=1000, pre=True), (
        token_ids(batch, 192, 50257),
    )


@registered("tiny-transformer")
def _tiny(batch: int) -> tuple[nn.Module, Inputs]:
    return Encoder(1000, 128, 4, 4, causal=True, head=1000, pre=True), (token_ids(batch, 64, 1000),)


class Llama(nn.Module):
    """A decoder with grouped keys and gated feed-forward layers."""

    def __init__(
        self, width: int, heads: int, kv_heads: int, inner: int, layers: int, vocabulary: int
    ) -> None:
        super().__init__()
        self.token, self.head = (
            nn.Embedding(vocabulary, width),
            nn.Linear(width, vocabulary, bias=False),
        )
        self.attention = nn.ModuleList(
            _Attention(width, heads, kv_heads, causal=True, bias=False) for _ in range(layers)
        )
        self.gate = nn.ModuleList(nn.Linear(width, inner, bias=False) for _ in range(layers))
        self.up = nn.ModuleList(nn.Linear(width, inner, bias=False) for _ in range(layers))
        self.down = nn.ModuleList(nn.Linear(inner, width, bias=False) for _ in range(layers))
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2 * layers + 1))

    def forward(self, ids: Tensor, *past: Tensor) -> Tensor:
        """Logits of the last token; with keys and values of the past, one step of decoding."""
        x = self.token(ids)
        for i, (attention, gate, up, down) in enumerate(
            zip(self.attention, self.gate, self.up, self.down, strict=True)
        ):
            kept = (past[2 * i], past[2 * i + 1]) if past else None
            x = x + attention(self.norms[2 * i](x), None, kept)
            y = self.norms[2 * i + 1](x)
            x = x + down(functional.silu(gate(y)) * up(y))
        result: Tensor = self.head(self.norms[-1](x)[:, -1])
        return result


@registered("llama-shaped-prefill")
def _llama_prefill(batch: int) -> tuple[nn.Module, Inputs]:
    return Llama(1024, 16, 4, 2816, 6, 8192), (token_ids(batch, 128, 8192),)


@registered("llama-shaped-decode")
def _llama_decode(batch: int) -> tuple[nn.Module, Inputs]:
    past = [torch.randn(batch, 4, 384, 64) for _ in range(12)]
    return Llama(1024, 16, 4, 2816, 6, 8192), (token_ids(batch, 1, 8192), *past)


class _EncoderDecoder(nn.Module):
    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.token = nn.Embedding(8192, width)
        self.encoder = nn.ModuleList(_Block(width, heads, 4 * width) for _ in range(layers))
        self.decoder = nn.ModuleList(
            _Block(width, heads, 4 * width, causal=True, cross=True) for _ in range(layers)
        )
        self.head = nn.Linear(width, 8192)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        x, y = self.token(source), self.token(target)
        for block in self.encoder:
            x = block(x)
        for block in self.decoder:
            y = block(y, x)
        result: Tensor = self.head(y)
        return result


@registered("t5-like")
def _t5(batch: int) -> tuple[nn.Module, Inputs]:
    return _EncoderDecoder(512, 8, 4), (token_ids(batch, 96, 8192), token_ids(batch, 48, 8192))


class VisionTransformer(nn.Module):
    """A transformer over the 196 patches of a 224-pixel image."""

    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.patch, self.place = (
            nn.Conv2d(3, width, 16, 16),
            nn.Parameter(torch.randn(1, 196, width)),
        )
        self.blocks = nn.ModuleList(_Block(width, heads, 4 * width) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of 1000 classes."""
        y = self.patch(x).flatten(2).transpose(1, 2) + self.place
        for block in self.blocks:
            y = block(y)
        result: Tensor = self.head(self.norm(y).mean(1))
        return result


@registered("vit-small-8-layers")
def _vit(batch: int) -> tuple[nn.Module, Inputs]:
    return VisionTransformer(384, 6, 8), (torch.randn(batch, 3, 224, 224),)


class _Moe(nn.Module):
    """Feed-forward experts that choose their tokens (expert-choice routing; Zhou et al., NeurIPS
    2022).
    """

    def __init__(self, width: int, inner: int, experts: int) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))
            for _ in range(experts)
        )

    def forward(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        scores = self.router(flat).softmax(-1)
        weights, chosen = scores.t().topk(2 * flat.shape[0] // len(self.experts), -1)
        result = torch.zeros_like(flat)
        for i, expert in enumerate(self.experts):
            y = expert(flat[chosen[i]]) * weights[i].unsqueeze(-1)
            result = result.index_add(0, chosen[i], y)
        return result.view_as(x)


class MoeTransformer(nn.Module):
    """A transformer whose feed-forward layers are mixtures of experts."""

    def __init__(self, width: int, heads: int, layers: int, experts: int) -> None:
        super().__init__()
        self.token = nn.Embedding(8192, width)
        self.attention = nn.ModuleList(_Attention(width, heads, causal=True) for _ in range(layers))
        self.moe = nn.ModuleList(_Moe(width, 2 * width, experts) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers))

    def forward(self, ids: Tensor) -> Tensor:
        """Features of every token."""
        x = self.token(ids)
        for i, (attention, moe) in enumerate(zip(self.attention, self.moe, strict=True)):
            x = x + attention(self.norms[2 * i](x))
            x = x + moe(self.norms[2 * i + 1](x))
        return x  # type: ignore[no-any-return]


@registered("moe-transformer")
def _moe(batch: int) -> tuple[nn.Module, Inputs]:
    return MoeTransformer(384, 6, 4, 8), (token_ids(batch, 128, 8192),)
