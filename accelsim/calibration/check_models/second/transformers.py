"""Transformers: encoders, decoders with rotary positions, windows, speech, linear attention, soft
mixtures of experts.
"""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, unused-ignore"

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from accelsim.calibration.check_models.register import Inputs, registered, token_ids

__all__: list[str] = []


class _FusedAttention(nn.Module):
    """Queries, keys and values from one product; a mask or causal."""

    def __init__(self, width: int, heads: int, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.parts, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        b, n, width = x.shape
        q, k, v = (
            self.parts(x).view(b, n, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        )
        y = functional.scaled_dot_product_attention(q, k, v, mask, is_causal=self.causal)
        return self.output(y.transpose(1, 2).reshape(b, n, width))


def _feed_forward(width: int, inner: int, act: type[nn.Module] = nn.GELU) -> nn.Module:
    return nn.Sequential(nn.Linear(width, inner), act(), nn.Linear(inner, width))


class _PostNorm(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention, self.mlp = _FusedAttention(width, heads), _feed_forward(width, 4 * width)
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-12), nn.LayerNorm(width, eps=1e-12)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = self.norm1(x + self.attention(x, mask))
        return self.norm2(x + self.mlp(x))


class _MaskedEncoder(nn.Module):
    def __init__(self, width: int, heads: int, layers: int, embedding: int, classes: int) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(30522, embedding), nn.Embedding(512, embedding)
        self.norm = nn.LayerNorm(embedding, eps=1e-12)
        self.widen = nn.Linear(embedding, width) if embedding != width else nn.Identity()
        self.blocks = nn.ModuleList(_PostNorm(width, heads) for _ in range(layers))
        self.head = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, classes))

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        x = self.token(ids) + self.place(torch.arange(ids.shape[1], device=ids.device))
        x = self.widen(self.norm(x))
        for block in self.blocks:
            x = block(x, mask)
        return self.head(x[:, 0])


def _masked(batch: int, length: int) -> Inputs:
    return token_ids(batch, length, 30522), torch.zeros(batch, 1, 1, length)


@registered("distilbert")
def _distilbert(batch: int) -> tuple[nn.Module, Inputs]:
    return _MaskedEncoder(768, 12, 6, 768, 2), _masked(batch, 64)


@registered("electra-small")
def _electra(batch: int) -> tuple[nn.Module, Inputs]:
    return _MaskedEncoder(256, 4, 12, 128, 2), _masked(batch, 128)


@registered("torch-encoder")
def _torch_encoder(batch: int) -> tuple[nn.Module, Inputs]:
    layer = nn.TransformerEncoderLayer(320, 5, 1280, 0.1, "gelu", batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, 6, enable_nested_tensor=False), (
        torch.randn(batch, 160, 320),
    )


class _DecoderBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.mlp = (
            _FusedAttention(width, heads, causal=True),
            _feed_forward(width, 4 * width),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class _NanoGpt(nn.Module):
    """A decoder that trains on every token: logits of the whole vocabulary."""

    def __init__(self, vocabulary: int, width: int, heads: int, layers: int, length: int) -> None:
        super().__init__()
        self.token, self.place = (
            nn.Embedding(vocabulary, width),
            nn.Parameter(torch.zeros(1, length, width)),
        )
        self.blocks = nn.Sequential(*(_DecoderBlock(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.token(ids) + self.place)))


@registered("nano-gpt")
def _nano_gpt(batch: int) -> tuple[nn.Module, Inputs]:
    return _NanoGpt(4096, 384, 6, 6, 256), (token_ids(batch, 256, 4096),)


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


class _RotaryAttention(nn.Module):
    def __init__(self, width: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.size, self.shares = width // heads, heads // kv_heads
        self.query = nn.Linear(width, width)
        self.key, self.value = (nn.Linear(width, kv_heads * self.size) for _ in range(2))
        self.output = nn.Linear(width, width, bias=False)

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, past: tuple[Tensor, Tensor] | None
    ) -> Tensor:
        b, n, _ = x.shape
        q, k, v = (
            t.view(b, n, -1, self.size).transpose(1, 2)
            for t in (self.query(x), self.key(x), self.value(x))
        )
        q, k = _rotated(q, cos, sin), _rotated(k, cos, sin)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        k, v = k.repeat_interleave(self.shares, 1), v.repeat_interleave(self.shares, 1)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=past is None)
        return self.output(y.transpose(1, 2).reshape(b, n, -1))


class _RotaryDecoder(nn.Module):
    """Grouped keys, rotary positions, gated feed-forward layers."""

    def __init__(
        self, width: int, heads: int, kv_heads: int, inner: int, layers: int, vocabulary: int
    ) -> None:
        super().__init__()
        self.token, self.head = (
            nn.Embedding(vocabulary, width),
            nn.Linear(width, vocabulary, bias=False),
        )
        self.attention = nn.ModuleList(
            _RotaryAttention(width, heads, kv_heads) for _ in range(layers)
        )
        self.wide = nn.ModuleList(nn.Linear(width, 2 * inner, bias=False) for _ in range(layers))
        self.narrow = nn.ModuleList(nn.Linear(inner, width, bias=False) for _ in range(layers))
        self.norms = nn.ModuleList(nn.RMSNorm(width, eps=1e-6) for _ in range(2 * layers + 1))

    def forward(self, ids: Tensor, cos: Tensor, sin: Tensor, *past: Tensor) -> Tensor:
        x = self.token(ids)
        for i, (attention, wide, narrow) in enumerate(
            zip(self.attention, self.wide, self.narrow, strict=True)
        ):
            kept = (past[2 * i], past[2 * i + 1]) if past else None
            x = x + attention(self.norms[2 * i](x), cos, sin, kept)
            gate, up = wide(self.norms[2 * i + 1](x)).chunk(2, -1)
            x = x + narrow(functional.silu(gate) * up)
        return self.head(self.norms[-1](x[:, -1]))


def _rotary(length: int, size: int) -> Inputs:
    return torch.randn(length, size), torch.randn(length, size)


@registered("qwen-shaped-prefill")
def _qwen_prefill(batch: int) -> tuple[nn.Module, Inputs]:
    return _RotaryDecoder(896, 14, 2, 4864, 4, 16384), (
        token_ids(batch, 96, 16384),
        *_rotary(96, 64),
    )


@registered("qwen-shaped-decode")
def _qwen_decode(batch: int) -> tuple[nn.Module, Inputs]:
    past = [torch.randn(batch, 2, 512, 64) for _ in range(8)]
    return _RotaryDecoder(896, 14, 2, 4864, 4, 16384), (
        token_ids(batch, 1, 16384),
        *_rotary(1, 64),
        *past,
    )


class _Speech(nn.Module):
    """A convolutional stem and an encoder over a thousand frames (Radford et al., 2022)."""

    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.first, self.second = (
            nn.Conv1d(80, width, 3, padding=1),
            nn.Conv1d(width, width, 3, 2, 1),
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers + 1))
        self.attention = nn.ModuleList(_FusedAttention(width, heads) for _ in range(layers))
        self.mlp = nn.ModuleList(_feed_forward(width, 4 * width) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        x = functional.gelu(self.second(functional.gelu(self.first(x)))).transpose(1, 2)
        for i, (attention, mlp) in enumerate(zip(self.attention, self.mlp, strict=True)):
            x = x + attention(self.norms[2 * i](x))
            x = x + mlp(self.norms[2 * i + 1](x))
        return self.norms[-1](x)


@registered("whisper-like-encoder")
def _whisper(batch: int) -> tuple[nn.Module, Inputs]:
    return _Speech(384, 6, 4), (torch.randn(batch, 80, 1000),)


class _WindowBlock(nn.Module):
    """Attention within shifted windows of 7 x 7 patches (Liu et al., ICCV 2021)."""

    def __init__(self, width: int, heads: int, shift: int) -> None:
        super().__init__()
        self.heads, self.shift = heads, shift
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.parts, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.bias = nn.Parameter(torch.zeros(1, heads, 49, 49))
        self.mlp = _feed_forward(width, 4 * width)

    def forward(self, x: Tensor) -> Tensor:
        b, h, w, c = x.shape
        y = self.norm1(x)
        if self.shift:
            y = torch.roll(y, (-self.shift, -self.shift), (1, 2))
        y = y.view(b, h // 7, 7, w // 7, 7, c).transpose(2, 3).reshape(-1, 49, c)
        q, k, v = self.parts(y).view(-1, 49, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        scores = (q * (c // self.heads) ** -0.5) @ k.transpose(-2, -1) + self.bias
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(-1, 49, c)
        y = self.output(y).view(b, h // 7, w // 7, 7, 7, c).transpose(2, 3).reshape(b, h, w, c)
        if self.shift:
            y = torch.roll(y, (self.shift, self.shift), (1, 2))
        x = x + y
        return x + self.mlp(self.norm2(x))


class _Swin(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch, self.norm = nn.Conv2d(3, 96, 4, 4), nn.LayerNorm(96)
        self.first = nn.Sequential(_WindowBlock(96, 3, 0), _WindowBlock(96, 3, 3))
        self.merge = nn.Linear(384, 192, bias=False)
        self.second = nn.Sequential(_WindowBlock(192, 6, 0), _WindowBlock(192, 6, 3))
        self.head = nn.Linear(192, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(self.norm(self.patch(x).permute(0, 2, 3, 1)))
        x = torch.cat([x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]], -1)
        return self.head(self.second(self.merge(x)).mean((1, 2)))


@registered("swin-4-blocks")
def _swin(batch: int) -> tuple[nn.Module, Inputs]:
    return _Swin(), (torch.randn(batch, 3, 224, 224),)


class _LinearAttention(nn.Module):
    """Attention as two products, linear in the length (Katharopoulos et al., ICML 2020)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))
        self.mlp = _feed_forward(width, 2 * width, nn.ReLU)

    def forward(self, x: Tensor) -> Tensor:
        b, n, width = x.shape
        y = self.norm1(x)
        q, k, v = (
            f(y).view(b, n, self.heads, -1).transpose(1, 2)
            for f in (self.query, self.key, self.value)
        )
        q, k = functional.elu(q) + 1.0, functional.elu(k) + 1.0
        total = 1.0 / (q @ k.sum(2).unsqueeze(-1) + 1e-6)
        y = (q @ (k.transpose(-2, -1) @ v)) * total
        x = x + self.output(y.transpose(1, 2).reshape(b, n, width))
        return x + self.mlp(self.norm2(x))


@registered("linear-transformer")
def _linear(batch: int) -> tuple[nn.Module, Inputs]:
    blocks = [_LinearAttention(256, 8) for _ in range(6)]
    return nn.Sequential(*blocks, nn.LayerNorm(256), nn.Linear(256, 64)), (
        torch.randn(batch, 512, 256),
    )


class _SoftExperts(nn.Module):
    """Experts that each take weighted means of all tokens (Puigcerver et al., ICLR 2024)."""

    def __init__(self, width: int, inner: int, experts: int, slots: int) -> None:
        super().__init__()
        self.experts, self.slots = experts, slots
        self.route = nn.Linear(width, experts * slots, bias=False)
        self.first = nn.Parameter(torch.randn(experts, width, inner) * 0.02)
        self.second = nn.Parameter(torch.randn(experts, inner, width) * 0.02)

    def forward(self, x: Tensor) -> Tensor:
        b, _, width = x.shape
        scores = self.route(x)
        taken = scores.softmax(1).transpose(1, 2) @ x
        taken = (
            taken.view(b, self.experts, self.slots, width)
            .transpose(0, 1)
            .reshape(self.experts, -1, width)
        )
        y = torch.bmm(functional.gelu(torch.bmm(taken, self.first)), self.second)
        y = y.view(self.experts, b, self.slots, width).transpose(0, 1).reshape(b, -1, width)
        return scores.softmax(-1) @ y


class _SoftMoeBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.moe = (
            _FusedAttention(width, heads),
            _SoftExperts(width, 4 * width, 8, 16),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.moe(self.norm2(x))


@registered("soft-moe")
def _soft_moe(batch: int) -> tuple[nn.Module, Inputs]:
    blocks = [_SoftMoeBlock(320, 5) for _ in range(4)]
    return nn.Sequential(*blocks, nn.LayerNorm(320), nn.Linear(320, 100)), (
        torch.randn(batch, 144, 320),
    )


class _Conformer(nn.Module):
    """Half-step feed-forward layers around attention and a depthwise convolution (Gulati et al.,
    2020).
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.before, self.after = (
            _feed_forward(width, 4 * width, nn.SiLU),
            _feed_forward(width, 4 * width, nn.SiLU),
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(5))
        self.attention = _FusedAttention(width, heads)
        self.gate, self.across = (
            nn.Conv1d(width, 2 * width, 1),
            nn.Conv1d(width, width, 15, padding=7, groups=width),
        )
        self.batch_norm, self.mix = nn.BatchNorm1d(width), nn.Conv1d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = x + 0.5 * self.before(self.norms[0](x))
        x = x + self.attention(self.norms[1](x))
        y = functional.glu(self.gate(self.norms[2](x).transpose(1, 2)), 1)
        y = self.mix(functional.silu(self.batch_norm(self.across(y))))
        x = x + y.transpose(1, 2)
        return self.norms[4](x + 0.5 * self.after(self.norms[3](x)))


@registered("conformer-like")
def _conformer(batch: int) -> tuple[nn.Module, Inputs]:
    blocks = [_Conformer(192, 4) for _ in range(5)]
    return nn.Sequential(*blocks, nn.Linear(192, 128)), (torch.randn(batch, 200, 192),)
