"""Networks over sound, lines of text, sentences, radar images and series, at their published sizes."""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, unused-ignore"

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from accelsim.calibration.check_models.register import Inputs, registered, token_ids

__all__ = ["ConvLstm", "PeepholeCell", "Tagger"]


# -- sound
# -----------------------------------------------------------------------------------------------------------


@registered("m5-audio")
def _m5(batch: int) -> tuple[nn.Module, Inputs]:
    """Four seconds of raw sound at 8 kHz (Dai et al., ICASSP 2017)."""
    layers: list[nn.Module] = []
    for i, o, k, s in ((1, 128, 80, 4), (128, 128, 3, 1), (128, 256, 3, 1), (256, 512, 3, 1)):
        layers += [nn.Conv1d(i, o, k, s, k // 2), nn.BatchNorm1d(o), nn.ReLU(), nn.MaxPool1d(4)]
    head = [nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(512, 10)]
    return nn.Sequential(*layers, *head), (torch.randn(batch, 1, 32_000),)


class _Separable(nn.Sequential):
    """A depthwise convolution over time, a 1x1 over channels, a norm; the activation is left to
    others.
    """

    def __init__(self, i: int, o: int, k: int, s: int = 1, gap: int = 1) -> None:
        across = nn.Conv1d(i, i, k, s, gap * (k // 2), gap, i, bias=False)
        super().__init__(across, nn.Conv1d(i, o, 1, bias=False), nn.BatchNorm1d(o, eps=1e-3))


class _SpeechBlock(nn.Module):
    """Five separable convolutions beside a 1x1."""

    def __init__(self, i: int, o: int, k: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for n in range(4):
            layers += [_Separable(o if n else i, o, k), nn.ReLU()]
        self.path = nn.Sequential(*layers, _Separable(o, o, k))
        self.skip = nn.Sequential(nn.Conv1d(i, o, 1, bias=False), nn.BatchNorm1d(o, eps=1e-3))

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.path(x) + self.skip(x))


@registered("quartznet-5x5")
def _quartznet(batch: int) -> tuple[nn.Module, Inputs]:
    """Eight seconds of speech as frames of 64 frequencies (Kriman et al., ICASSP 2020)."""
    layers: list[nn.Module] = [_Separable(64, 256, 33, 2), nn.ReLU()]
    channels = 256
    for o, k in ((256, 33), (256, 39), (512, 51), (512, 63), (512, 75)):
        layers.append(_SpeechBlock(channels, o, k))
        channels = o
    last = [nn.Conv1d(512, 1024, 1, bias=False), nn.BatchNorm1d(1024, eps=1e-3), nn.ReLU()]
    head = [nn.Conv1d(1024, 29, 1), nn.LogSoftmax(1)]
    return nn.Sequential(*layers, _Separable(512, 512, 87, gap=2), nn.ReLU(), *last, *head), (
        torch.randn(batch, 64, 800),
    )


# -- lines of text
# ---------------------------------------------------------------------------------------------------


class _TwoWays(nn.Module):
    """A recurrent layer in both directions and a linear one."""

    def __init__(self, i: int, hidden: int, o: int) -> None:
        super().__init__()
        self.layer, self.head = nn.LSTM(i, hidden, bidirectional=True), nn.Linear(2 * hidden, o)

    def forward(self, x: Tensor) -> Tensor:
        y, _ = self.layer(x)
        return self.head(y.flatten(0, 1)).view(x.shape[0], x.shape[1], -1)


class _Reader(nn.Module):
    """Convolutions over an image of a word, then two recurrent layers (Shi et al., TPAMI 2017)."""

    def __init__(self, letters: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        narrow = ((2, 2), (2, 1), (0, 1))
        for i, o, k, norm, pool in (
            (1, 64, 3, False, (2, 2, 0)),
            (64, 128, 3, False, (2, 2, 0)),
            (128, 256, 3, True, None),
            (256, 256, 3, False, narrow),
            (256, 512, 3, True, None),
            (512, 512, 3, False, narrow),
            (512, 512, 2, True, None),
        ):
            layers += [nn.Conv2d(i, o, k, padding=k // 2 if k == 3 else 0)]
            layers += [nn.BatchNorm2d(o)] if norm else []
            layers += [nn.ReLU(inplace=True), *([nn.MaxPool2d(*pool)] if pool else [])]
        self.body = nn.Sequential(*layers)
        self.layers = nn.Sequential(_TwoWays(512, 256, 256), _TwoWays(256, 256, letters))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(self.body(x).squeeze(2).permute(2, 0, 1)).log_softmax(2)


@registered("crnn-text-reader")
def _reader(batch: int) -> tuple[nn.Module, Inputs]:
    """Ten digits, 26 letters and a blank."""
    return _Reader(37), (torch.randn(batch, 1, 32, 100),)


# -- sentences
# -------------------------------------------------------------------------------------------------------


class Tagger(nn.Module):
    """How improbable the tags of a sentence are: letters, words and their neighbours (Ma and Hovy,
    ACL 2016).

    Args:
        words: Rows of the word table.
        letters: Rows of the letter table.
        tags: Kinds of tags, less the two that begin and end a sentence.
        hidden: Features of a direction.
    """

    def __init__(self, words: int, letters: int, tags: int, hidden: int) -> None:
        super().__init__()
        self.word, self.letter = nn.Embedding(words, 100), nn.Embedding(letters, 30)
        self.conv, self.drop = nn.Conv1d(30, 30, 3, padding=1), nn.Dropout(0.5)
        self.layer = nn.LSTM(130, hidden, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * hidden, tags + 2)
        self.steps = nn.Parameter(torch.zeros(tags + 2, tags + 2))
        self.tags = tags

    def _emissions(self, words: Tensor, letters: Tensor) -> Tensor:
        x = self.letter(letters).flatten(0, 1).transpose(1, 2)
        spelt = self.conv(x).amax(-1).view(*words.shape, -1)
        y, _ = self.layer(self.drop(torch.cat([self.word(words), spelt], -1)))
        return self.head(self.drop(y))

    def _all(self, emissions: Tensor) -> Tensor:
        """Logarithm of the sum over all ways through a sentence."""
        alpha = self.steps[self.tags] + emissions[:, 0]
        for n in range(1, emissions.shape[1]):
            alpha = torch.logsumexp(
                alpha.unsqueeze(2) + self.steps + emissions[:, n].unsqueeze(1), 1
            )
        return torch.logsumexp(alpha + self.steps[:, self.tags + 1], 1)

    def _one(self, emissions: Tensor, tags: Tensor) -> Tensor:
        """The logarithm of one way."""
        own = emissions.gather(2, tags.unsqueeze(2)).squeeze(2).sum(1)
        between = self.steps[tags[:, :-1], tags[:, 1:]].sum(1)
        return (
            own
            + between
            + self.steps[self.tags, tags[:, 0]]
            + self.steps[tags[:, -1], self.tags + 1]
        )

    def forward(self, words: Tensor, letters: Tensor, tags: Tensor) -> Tensor:
        """Negative logarithm of a probability.

        Args:
            words: Shape (batch, length).
            letters: Shape (batch, length, letters of a word).
            tags: Shape (batch, length).

        Returns:
            Shape (batch,).
        """
        emissions = self._emissions(words, letters)
        return self._all(emissions) - self._one(emissions, tags)


@registered("bilstm-crf-tagger")
def _tagger(batch: int) -> tuple[nn.Module, Inputs]:
    """GloVe's words and the 17 tags of CoNLL 2003."""
    ids = (
        token_ids(batch, 25, 400_000),
        torch.randint(100, (batch, 25, 16)),
        token_ids(batch, 25, 17),
    )
    return Tagger(400_000, 100, 17, 200), ids


# -- images in a row
# -------------------------------------------------------------------------------------------------


class PeepholeCell(nn.Module):
    """A recurrent step whose gates see its memory too (Graves, arXiv 1308.0850).

    Args:
        read: Of the input, to four gates; None where there is no input.
        own: Of the state, to four gates.
        peeps: Shape of what a gate sees the memory by.
    """

    def __init__(self, read: nn.Module | None, own: nn.Module, peeps: tuple[int, ...]) -> None:
        super().__init__()
        self.input, self.own, self.peeps = read, own, nn.Parameter(torch.zeros(3, *peeps))

    def forward(self, x: Tensor | None, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """State and memory of the next step."""
        y = self.own(h)
        y = y if x is None or self.input is None else self.input(x) + y
        i, f, g, o = y.chunk(4, 1)
        c = torch.sigmoid(f + self.peeps[1] * c) * c + torch.sigmoid(
            i + self.peeps[0] * c
        ) * torch.tanh(g)
        return torch.sigmoid(o + self.peeps[2] * c) * torch.tanh(c), c


def _conv_cell(i: int, hidden: int) -> PeepholeCell:
    """A recurrent step whose products are 5x5 convolutions, with peepholes of each channel."""
    read = nn.Conv2d(i, 4 * hidden, 5, padding=2, bias=False) if i else None
    return PeepholeCell(read, nn.Conv2d(hidden, 4 * hidden, 5, padding=2), (hidden, 1, 1))


class ConvLstm(nn.Module):
    """Pictures read one by one, then foretold one by one from the states alone (Shi et al., NIPS
    2015).

    Args:
        channels: Of a picture, whose squares of 4 x 4 pixels are one pixel.
        sizes: Hidden channels of each layer.
        steps: Pictures foretold.
    """

    def __init__(self, channels: int, sizes: tuple[int, ...], steps: int) -> None:
        super().__init__()
        self.sizes, self.steps, below = sizes, steps, sizes[:-1]
        self.encoder = nn.ModuleList(
            _conv_cell(i, o) for i, o in zip((channels, *below), sizes, strict=True)
        )
        self.forecaster = nn.ModuleList(
            _conv_cell(i, o) for i, o in zip((0, *below), sizes, strict=True)
        )
        self.head = nn.Conv2d(sum(sizes), channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Pictures to come, shape (batch, steps, channels, height, width), of those seen, shape
        (batch, seen, ...).
        """
        b, seen, _, height, width = x.shape
        states = [
            (x.new_zeros(b, o, height, width), x.new_zeros(b, o, height, width)) for o in self.sizes
        ]
        found: list[Tensor] = []
        for step in range(seen + self.steps):
            cells = self.encoder if step < seen else self.forecaster
            y = x[:, step] if step < seen else None
            for n, cell in enumerate(cells):
                states[n] = cell(y, *states[n])
                y = states[n][0]
            if step >= seen:
                found.append(torch.sigmoid(self.head(torch.cat([h for h, _ in states], 1))))
        return torch.stack(found, 1)


@registered("convlstm")
def _convlstm(batch: int) -> tuple[nn.Module, Inputs]:
    """Moving digits of 64 x 64 pixels, three pictures seen and three foretold; the paper has ten of
    each.
    """
    return ConvLstm(16, (128, 64, 64), 3), (torch.rand(batch, 3, 16, 16, 16),)


# -- series
# ----------------------------------------------------------------------------------------------------------


class _DeepAr(nn.Module):
    """Series foretold by drawing from what a recurrent network says of the next value (Salinas et
    al., 2020).

    In training the negative logarithm of each value's density; else samples of the hours to come.
    """

    def __init__(self, series: int, covariates: int, hidden: int, samples: int, ahead: int) -> None:
        super().__init__()
        self.which, self.samples, self.ahead = nn.Embedding(series, 20), samples, ahead
        self.layers = nn.LSTM(1 + covariates + 20, hidden, 3, batch_first=True, dropout=0.1)
        self.mean, self.spread = nn.Linear(hidden, 1), nn.Linear(hidden, 1)

    def _next(self, y: Tensor) -> tuple[Tensor, Tensor]:
        return self.mean(y).squeeze(-1), functional.softplus(self.spread(y)).squeeze(-1)

    def _foretold(self, x: Tensor, known: Tensor) -> Tensor:
        y, state = self.layers(x[:, : -self.ahead])
        h, c = (part.repeat_interleave(self.samples, 1) for part in state)
        mean, spread = self._next(y[:, -1])
        value = torch.normal(
            mean.repeat_interleave(self.samples), spread.repeat_interleave(self.samples)
        )
        found = [value]
        for n in range(1, self.ahead):
            step = known[:, n - self.ahead].repeat_interleave(self.samples, 0)
            y, (h, c) = self.layers(torch.cat([value.unsqueeze(1), step], 1).unsqueeze(1), (h, c))
            mean, spread = self._next(y[:, 0])
            value = torch.normal(mean, spread)
            found.append(value)
        return torch.stack(found, 1)

    def forward(self, values: Tensor, covariates: Tensor, series: Tensor) -> Tensor:
        own = self.which(series).unsqueeze(1).expand(-1, values.shape[1], -1)
        known = torch.cat([covariates, own], -1)
        before = functional.pad(values, (1, 0))[:, :-1]
        x = torch.cat([before.unsqueeze(-1), known], -1)
        if not self.training:
            return self._foretold(x, known)
        y, _ = self.layers(x)
        mean, spread = self._next(y)
        return torch.log(spread) + 0.5 * ((values - mean) / spread) ** 2


@registered("deepar")
def _deepar(batch: int) -> tuple[nn.Module, Inputs]:
    """Hourly electricity of 370 customers: a week, and the day after it by a hundred samples."""
    return _DeepAr(370, 4, 40, 100, 24), (
        torch.randn(batch, 192),
        torch.randn(batch, 192, 4),
        torch.randint(370, (batch,)),
    )
