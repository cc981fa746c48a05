"""Whole models that check a calibration: small torch definitions of the families people run, none of them used in a fit.

Each factory returns a module and example inputs for a batch. Sizes are such that one pass takes a few milliseconds to half a
second on one core. Shapes follow the published networks where they are named after one (layer counts may be fewer); the set
includes families that the operator suite has no shapes of (recommenders, mixtures of experts, recurrent classifiers, U-Net).
"""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, unused-ignore"

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["CHECK_MODELS", "Encoder", "Factory", "Inputs", "Llama", "MoeTransformer", "VisionTransformer", "build"]

Inputs = tuple[Tensor, ...]
Factory = Callable[[int], tuple[nn.Module, Inputs]]
CHECK_MODELS: Final[dict[str, Factory]] = {}


def _model(name: str) -> Callable[[Factory], Factory]:
    def add(factory: Factory) -> Factory:
        CHECK_MODELS[name] = factory
        return factory

    return add


def build(name: str, batch: int, dtype: torch.dtype = torch.float32) -> tuple[nn.Module, Inputs]:
    """A module and its inputs, floating-point parts in `dtype`.

    Args:
        name: A key of `CHECK_MODELS`.
        batch: Samples.
        dtype: Format of weights and activations.
    """
    torch.manual_seed(0)
    module, inputs = CHECK_MODELS[name](batch)
    cast = tuple(x.to(dtype) if x.is_floating_point() else x for x in inputs)
    return module.to(dtype), cast


def _ids(batch: int, length: int, vocabulary: int) -> Tensor:
    return torch.randint(vocabulary, (batch, length))


class _ConvNorm(nn.Sequential):
    def __init__(
        self, i: int, o: int, k: int = 3, s: int = 1, g: int = 1, act: type[nn.Module] | None = nn.ReLU
    ) -> None:
        parts: list[nn.Module] = [nn.Conv2d(i, o, k, s, k // 2, groups=g, bias=False), nn.BatchNorm2d(o)]
        super().__init__(*parts, *([act()] if act else []))


# -- vision ----------------------------------------------------------------------------------------------------------


class _Residual(nn.Module):
    def __init__(self, path: nn.Module, skip: nn.Module | None, act: Callable[[Tensor], Tensor] | None) -> None:
        super().__init__()
        self.path, self.skip, self.act = path, skip or nn.Identity(), act

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.path(x) + self.skip(x)
        return self.act(y) if self.act else y


def _basic(i: int, o: int, s: int) -> nn.Module:
    skip = None if i == o and s == 1 else _ConvNorm(i, o, 1, s, act=None)
    return _Residual(nn.Sequential(_ConvNorm(i, o, 3, s), _ConvNorm(o, o, act=None)), skip, functional.relu)


def _bottleneck(i: int, w: int, s: int) -> nn.Module:
    o = 4 * w
    skip = None if i == o and s == 1 else _ConvNorm(i, o, 1, s, act=None)
    path = nn.Sequential(_ConvNorm(i, w, 1), _ConvNorm(w, w, 3, s), _ConvNorm(w, o, 1, act=None))
    return _Residual(path, skip, functional.relu)


def _resnet(counts: tuple[int, ...], block: Callable[[int, int, int], nn.Module], growth: int) -> nn.Module:
    layers: list[nn.Module] = [_ConvNorm(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for stage, count in enumerate(counts):
        width = 64 * 2**stage
        for position in range(count):
            layers.append(block(channels, width, 2 if stage and not position else 1))
            channels = growth * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


@_model("resnet-18")
def _resnet18(batch: int) -> tuple[nn.Module, Inputs]:
    return _resnet((2, 2, 2, 2), _basic, 1), (torch.randn(batch, 3, 224, 224),)


@_model("resnet-50")
def _resnet50(batch: int) -> tuple[nn.Module, Inputs]:
    return _resnet((3, 4, 6, 3), _bottleneck, 4), (torch.randn(batch, 3, 224, 224),)


@_model("mobilenet-v2")
def _mobilenet(batch: int) -> tuple[nn.Module, Inputs]:
    layers: list[nn.Module] = [_ConvNorm(3, 32, 3, 2, act=nn.ReLU6)]
    channels = 32
    for t, c, n, s in (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):
        for position in range(n):
            stride, wide = s if position == 0 else 1, channels * t
            parts = [_ConvNorm(channels, wide, 1, act=nn.ReLU6)] if t > 1 else []
            path = nn.Sequential(
                *parts, _ConvNorm(wide, wide, 3, stride, wide, nn.ReLU6), _ConvNorm(wide, c, 1, act=None)
            )
            layers.append(_Residual(path, None, None) if stride == 1 and channels == c else path)
            channels = c
    head = [_ConvNorm(320, 1280, 1, act=nn.ReLU6), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 1000)]
    return nn.Sequential(*layers, *head), (torch.randn(batch, 3, 224, 224),)


class _SqueezeExcite(nn.Module):
    def __init__(self, channels: int, inner: int) -> None:
        super().__init__()
        self.pool, self.down, self.up = (
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, inner, 1),
            nn.Conv2d(inner, channels, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.up(functional.silu(self.down(self.pool(x)))))
        return x * gate


@_model("efficientnet-like")
def _efficientnet(batch: int) -> tuple[nn.Module, Inputs]:
    layers: list[nn.Module] = [_ConvNorm(3, 32, 3, 2, act=nn.SiLU)]
    channels = 32
    for t, c, n, s, k in (
        (1, 16, 1, 1, 3),
        (6, 24, 2, 2, 3),
        (6, 40, 2, 2, 5),
        (6, 80, 3, 2, 3),
        (6, 112, 3, 1, 5),
        (6, 192, 2, 2, 5),
    ):
        for position in range(n):
            stride, wide = s if position == 0 else 1, channels * t
            parts: list[nn.Module] = [_ConvNorm(channels, wide, 1, act=nn.SiLU)] if t > 1 else []
            parts += [_ConvNorm(wide, wide, k, stride, wide, nn.SiLU), _SqueezeExcite(wide, max(4, channels // 4))]
            path = nn.Sequential(*parts, _ConvNorm(wide, c, 1, act=None))
            layers.append(_Residual(path, None, None) if stride == 1 and channels == c else path)
            channels = c
    head = [_ConvNorm(192, 1280, 1, act=nn.SiLU), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 1000)]
    return nn.Sequential(*layers, *head), (torch.randn(batch, 3, 192, 192),)


@_model("vgg-11")
def _vgg(batch: int) -> tuple[nn.Module, Inputs]:
    layers: list[nn.Module] = []
    channels = 3
    for width in (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0):
        layers += [nn.MaxPool2d(2)] if not width else [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
        channels = width or channels
    head = [nn.Flatten(), nn.Linear(25088, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 1000)]
    return nn.Sequential(*layers, *head), (torch.randn(batch, 3, 224, 224),)


class _Dense(nn.Module):
    def __init__(self, i: int, growth: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            nn.BatchNorm2d(i), nn.ReLU(), nn.Conv2d(i, 4 * growth, 1, bias=False), _ConvNorm(4 * growth, growth)
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.path(x)], 1)


@_model("densenet-like")
def _densenet(batch: int) -> tuple[nn.Module, Inputs]:
    layers: list[nn.Module] = [_ConvNorm(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for stage, count in enumerate((4, 8, 12)):
        for _ in range(count):
            layers.append(_Dense(channels, 32))
            channels += 32
        if stage < 2:
            layers += [_ConvNorm(channels, channels // 2, 1), nn.AvgPool2d(2)]
            channels //= 2
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000)), (
        torch.randn(batch, 3, 160, 160),
    )


class _UNet(nn.Module):
    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        sizes = [width * 2**level for level in range(depth)]
        pair = lambda i, o: nn.Sequential(_ConvNorm(i, o), _ConvNorm(o, o))  # noqa: E731
        self.down = nn.ModuleList(pair(i, o) for i, o in zip([3, *sizes], sizes, strict=False))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * s, s, 2, 2) for s in reversed(sizes[:-1]))
        self.join = nn.ModuleList(pair(2 * s, s) for s in reversed(sizes[:-1]))
        self.last = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept: list[Tensor] = []
        for level, block in enumerate(self.down):
            x = block(functional.max_pool2d(x, 2) if level else x)
            kept.append(x)
        for up, join, other in zip(self.up, self.join, reversed(kept[:-1]), strict=True):
            x = join(torch.cat([up(x), other], 1))
        result: Tensor = self.last(x)
        return result


@_model("u-net")
def _unet(batch: int) -> tuple[nn.Module, Inputs]:
    return _UNet(24, 4), (torch.randn(batch, 3, 192, 192),)


@_model("autoencoder")
def _autoencoder(batch: int) -> tuple[nn.Module, Inputs]:
    encode = [nn.Conv2d(i, o, 4, 2, 1) for i, o in ((3, 32), (32, 64), (64, 128))]
    decode = [nn.ConvTranspose2d(i, o, 2, 2) for i, o in ((128, 64), (64, 32), (32, 3))]
    layers = [part for layer in (*encode, *decode) for part in (layer, nn.ReLU())]
    return nn.Sequential(*layers[:-1], nn.Sigmoid()), (torch.randn(batch, 3, 64, 64),)


@_model("cifar-cnn")
def _cifar(batch: int) -> tuple[nn.Module, Inputs]:
    layers = [
        _ConvNorm(3, 48),
        _ConvNorm(48, 48),
        nn.MaxPool2d(2),
        _ConvNorm(48, 96),
        _ConvNorm(96, 96),
        nn.MaxPool2d(2),
    ]
    head = [nn.Flatten(), nn.Linear(96 * 64, 256), nn.ReLU(), nn.Linear(256, 10)]
    return nn.Sequential(*layers, *head), (torch.randn(batch, 3, 32, 32),)


# -- transformers ----------------------------------------------------------------------------------------------------


class _Attention(nn.Module):
    def __init__(
        self, width: int, heads: int, kv_heads: int | None = None, causal: bool = False, bias: bool = True
    ) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.causal, self.size = heads, kv_heads or heads, causal, width // heads
        self.query = nn.Linear(width, width, bias=bias)
        self.key = nn.Linear(width, self.kv_heads * self.size, bias=bias)
        self.value = nn.Linear(width, self.kv_heads * self.size, bias=bias)
        self.output = nn.Linear(width, width, bias=bias)

    def forward(self, x: Tensor, source: Tensor | None = None, past: tuple[Tensor, Tensor] | None = None) -> Tensor:
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
        self, width: int, heads: int, inner: int, causal: bool = False, cross: bool = False, pre: bool = True
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
        self, vocabulary: int, width: int, heads: int, layers: int, causal: bool, head: int, pre: bool
    ) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(vocabulary, width), nn.Embedding(1024, width)
        self.blocks = nn.ModuleList(_Block(width, heads, 4 * width, causal, pre=pre) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, head)

    def forward(self, ids: Tensor) -> Tensor:
        """Head outputs of every token."""
        x = self.token(ids) + self.place(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        result: Tensor = self.head(self.norm(x))
        return result


@_model("bert-base")
def _bert_base(batch: int) -> tuple[nn.Module, Inputs]:
    return Encoder(30522, 768, 12, 12, causal=False, head=2, pre=False), (_ids(batch, 128, 30522),)


@_model("bert-large-6-layers")
def _bert_large(batch: int) -> tuple[nn.Module, Inputs]:
    return Encoder(30522, 1024, 16, 6, causal=False, head=2, pre=False), (_ids(batch, 256, 30522),)


@_model("gpt2-6-layers")
def _gpt2(batch: int) -> tuple[nn.Module, Inputs]:
    return Encoder(50257, 768, 12, 6, causal=True, head=1000, pre=True), (_ids(batch, 192, 50257),)


@_model("tiny-transformer")
def _tiny(batch: int) -> tuple[nn.Module, Inputs]:
    return Encoder(1000, 128, 4, 4, causal=True, head=1000, pre=True), (_ids(batch, 64, 1000),)


class Llama(nn.Module):
    """A decoder with grouped keys and gated feed-forward layers."""

    def __init__(self, width: int, heads: int, kv_heads: int, inner: int, layers: int, vocabulary: int) -> None:
        super().__init__()
        self.token, self.head = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary, bias=False)
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


@_model("llama-shaped-prefill")
def _llama_prefill(batch: int) -> tuple[nn.Module, Inputs]:
    return Llama(1024, 16, 4, 2816, 6, 8192), (_ids(batch, 128, 8192),)


@_model("llama-shaped-decode")
def _llama_decode(batch: int) -> tuple[nn.Module, Inputs]:
    past = [torch.randn(batch, 4, 384, 64) for _ in range(12)]
    return Llama(1024, 16, 4, 2816, 6, 8192), (_ids(batch, 1, 8192), *past)


class _EncoderDecoder(nn.Module):
    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.token = nn.Embedding(8192, width)
        self.encoder = nn.ModuleList(_Block(width, heads, 4 * width) for _ in range(layers))
        self.decoder = nn.ModuleList(_Block(width, heads, 4 * width, causal=True, cross=True) for _ in range(layers))
        self.head = nn.Linear(width, 8192)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        x, y = self.token(source), self.token(target)
        for block in self.encoder:
            x = block(x)
        for block in self.decoder:
            y = block(y, x)
        result: Tensor = self.head(y)
        return result


@_model("t5-like")
def _t5(batch: int) -> tuple[nn.Module, Inputs]:
    return _EncoderDecoder(512, 8, 4), (_ids(batch, 96, 8192), _ids(batch, 48, 8192))


class VisionTransformer(nn.Module):
    """A transformer over the 196 patches of a 224-pixel image."""

    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.patch, self.place = nn.Conv2d(3, width, 16, 16), nn.Parameter(torch.randn(1, 196, width))
        self.blocks = nn.ModuleList(_Block(width, heads, 4 * width) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of 1000 classes."""
        y = self.patch(x).flatten(2).transpose(1, 2) + self.place
        for block in self.blocks:
            y = block(y)
        result: Tensor = self.head(self.norm(y).mean(1))
        return result


@_model("vit-small-8-layers")
def _vit(batch: int) -> tuple[nn.Module, Inputs]:
    return VisionTransformer(384, 6, 8), (torch.randn(batch, 3, 224, 224),)


class _Moe(nn.Module):
    """Feed-forward experts that choose their tokens (expert-choice routing; Zhou et al., NeurIPS 2022)."""

    def __init__(self, width: int, inner: int, experts: int) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width)) for _ in range(experts)
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


@_model("moe-transformer")
def _moe(batch: int) -> tuple[nn.Module, Inputs]:
    return MoeTransformer(384, 6, 4, 8), (_ids(batch, 128, 8192),)


# -- recurrent, recommenders, text, audio, perceptrons ---------------------------------------------------------------


class _Recurrent(nn.Module):
    def __init__(self, kind: type[nn.Module], hidden: int, layers: int) -> None:
        super().__init__()
        self.token = nn.Embedding(5000, hidden)
        self.layers = nn.ModuleList(kind(hidden, hidden, batch_first=True) for _ in range(layers))
        self.head = nn.Linear(hidden, 5)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.token(ids)
        for layer in self.layers:
            x, _ = layer(x)
        result: Tensor = self.head(x[:, -1])
        return result


@_model("lstm-classifier")
def _lstm(batch: int) -> tuple[nn.Module, Inputs]:
    return _Recurrent(nn.LSTM, 256, 2), (_ids(batch, 64, 5000),)


@_model("gru-tagger")
def _gru(batch: int) -> tuple[nn.Module, Inputs]:
    return _Recurrent(nn.GRU, 384, 1), (_ids(batch, 80, 5000),)


class _Dlrm(nn.Module):
    def __init__(self, tables: int, rows: int, width: int) -> None:
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        self.bottom = nn.Sequential(
            nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, width), nn.ReLU()
        )
        pairs = (tables + 1) ** 2 + width
        self.top = nn.Sequential(nn.Linear(pairs, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1))

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        x = self.bottom(dense)
        parts = torch.stack([x, *(bag(sparse[:, i]) for i, bag in enumerate(self.bags))], 1)
        crossed = torch.bmm(parts, parts.transpose(1, 2)).flatten(1)
        return torch.sigmoid(self.top(torch.cat([x, crossed], 1)))


@_model("dlrm")
def _dlrm(batch: int) -> tuple[nn.Module, Inputs]:
    return _Dlrm(16, 50_000, 64), (torch.randn(batch, 13), torch.randint(50_000, (batch, 16, 8)))


class _TextCnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Embedding(20_000, 128)
        self.convs = nn.ModuleList(nn.Conv1d(128, 100, k, padding=k // 2) for k in (3, 5, 7))
        self.head = nn.Linear(300, 4)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.token(ids).transpose(1, 2)
        parts = [functional.relu(conv(x)).amax(-1) for conv in self.convs]
        result: Tensor = self.head(torch.cat(parts, 1))
        return result


@_model("text-cnn")
def _text_cnn(batch: int) -> tuple[nn.Module, Inputs]:
    return _TextCnn(), (_ids(batch, 128, 20_000),)


@_model("audio-cnn")
def _audio(batch: int) -> tuple[nn.Module, Inputs]:
    layers: list[nn.Module] = []
    for i, o in ((64, 128), (128, 128), (128, 256), (256, 256)):
        layers += [nn.Conv1d(i, o, 3, 1, 1), nn.BatchNorm1d(o), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(256, 35)), (
        torch.randn(batch, 64, 400),
    )


@_model("mlp")
def _mlp(batch: int) -> tuple[nn.Module, Inputs]:
    layers = [part for i, o in ((784, 1024), (1024, 1024), (1024, 512)) for part in (nn.Linear(i, o), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(512, 10)), (torch.randn(batch, 784),)


class _Mixer(nn.Module):
    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.across = nn.Sequential(nn.Linear(tokens, 256), nn.GELU(), nn.Linear(256, tokens))
        self.within = nn.Sequential(nn.Linear(width, 1024), nn.GELU(), nn.Linear(1024, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.across(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.within(self.norm2(x))  # type: ignore[no-any-return]


@_model("mlp-mixer")
def _mixer(batch: int) -> tuple[nn.Module, Inputs]:
    blocks = [_Mixer(196, 256) for _ in range(6)]
    return nn.Sequential(*blocks, nn.LayerNorm(256), nn.Linear(256, 100)), (torch.randn(batch, 196, 256),)
