"""Networks over sound, speech, pictures in a row and words, at their published sizes."""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, unused-ignore"

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from accelsim.calibration.check_models.register import Inputs, registered, token_ids

__all__ = ["MemoryFlowCell", "RecurrentConvolution", "stretched"]


# -- pitch
# -----------------------------------------------------------------------------------------------------------


@registered("crepe")
def _crepe(batch: int) -> tuple[nn.Module, Inputs]:
    """Which of 360 pitches each 1,024 samples at 16 kHz have (Kim et al., ICASSP 2018); the full
    size.
    """
    layers: list[nn.Module] = []
    channels = 1
    for o, k, s, pad in (
        (1024, 512, 4, (254, 254)),
        *((o, 64, 1, (31, 32)) for o in (128, 128, 128, 256, 512)),
    ):
        layers += [nn.ZeroPad2d((0, 0, *pad)), nn.Conv2d(channels, o, (k, 1), (s, 1)), nn.ReLU()]
        layers += [
            nn.BatchNorm2d(o, eps=1e-3),
            nn.MaxPool2d((2, 1), (2, 1)),
            nn.Dropout(0.25, inplace=True),
        ]
        channels = o
    head = [nn.Flatten(), nn.Linear(2048, 360), nn.Sigmoid()]
    return nn.Sequential(*layers, *head), (torch.randn(batch, 1, 1024, 1),)


# -- noise
# -----------------------------------------------------------------------------------------------------------


class _Denoiser(nn.Module):
    """How much of each of 32 bands is speech, and whether any is (Valin, MMSP 2018; its second
    network).
    """

    def __init__(self, numbers: int, width: int, hidden: int, bands: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv1d(numbers, width, 3), nn.Conv1d(width, hidden, 3)
        self.layers = nn.ModuleList(nn.GRU(hidden, hidden, batch_first=True) for _ in range(3))
        self.gains, self.voice = nn.Linear(4 * hidden, bands), nn.Linear(4 * hidden, 1)

    def forward(self, frames: Tensor) -> Tensor:
        x = torch.tanh(self.conv2(torch.tanh(self.conv1(frames.permute(0, 2, 1))))).permute(0, 2, 1)
        found = [x]
        for layer in self.layers:
            found.append(layer(found[-1], x.new_zeros(1, x.shape[0], x.shape[2]))[0])
        seen = torch.cat(found, -1)
        return torch.cat([torch.sigmoid(self.gains(seen)), torch.sigmoid(self.voice(seen))], -1)


@registered("rnnoise")
def _rnnoise(batch: int) -> tuple[nn.Module, Inputs]:
    """A second of sound as 100 frames of 65 numbers."""
    return _Denoiser(65, 128, 384, 32), (torch.randn(batch, 104, 65),)


# -- speech
# ----------------------------------------------------------------------------------------------------------

_SYMBOLS: Final = 361
_BINS: Final = 256
#: Frames of each letter: what untrained weights foretell would be any number.
_FRAMES: Final = 6


def stretched(x: Tensor, counts: tuple[int, ...]) -> Tensor:
    """Each letter as often as it has frames.

    Args:
        x: Shape (batch, letters, width).
        counts: Frames of each letter.

    Returns:
        Shape (batch, sum of counts, width).
    """
    return torch.stack(
        [
            torch.cat([row[n].expand(count, -1) for n, count in enumerate(counts)])
            for row in x.unbind()
        ]
    )


class _SpeechAttention(nn.Module):
    """Heads before samples; products and softmax written out, a norm behind."""

    def __init__(self, width: int, heads: int, drop: float) -> None:
        super().__init__()
        self.heads, self.drop, self.norm = heads, nn.Dropout(drop), nn.LayerNorm(width)
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor, outside: Tensor) -> Tensor:
        b, n, width = x.shape
        size = width // self.heads
        parts = (
            f(x).view(b, n, self.heads, size).permute(2, 0, 1, 3)
            for f in (self.query, self.key, self.value)
        )
        q, k, v = (part.contiguous().view(-1, n, size) for part in parts)
        scores = torch.bmm(q, k.transpose(1, 2)) / size**0.5
        scores = scores.masked_fill(outside.repeat(self.heads, 1, 1), float("-inf"))
        y = (
            torch.bmm(scores.softmax(2), v)
            .view(self.heads, b, n, size)
            .permute(1, 2, 0, 3)
            .contiguous()
        )
        return self.norm(self.drop(self.output(y.view(b, n, width))) + x)


class _SpeechLayer(nn.Module):
    """Attention, and convolutions over letters or frames in place of a perceptron."""

    def __init__(self, width: int, heads: int, inner: int, k: int, drop: float) -> None:
        super().__init__()
        self.attention, self.drop, self.norm = (
            _SpeechAttention(width, heads, drop),
            nn.Dropout(drop),
            nn.LayerNorm(width),
        )
        self.wide, self.narrow = (
            nn.Conv1d(width, inner, k, padding=k // 2),
            nn.Conv1d(inner, width, 1),
        )

    def forward(self, x: Tensor, outside: Tensor) -> Tensor:
        pairs = outside.unsqueeze(1).expand(-1, x.shape[1], -1)
        x = self.attention(x, pairs).masked_fill(outside.unsqueeze(-1), 0)
        y = self.narrow(functional.relu(self.wide(x.transpose(1, 2)))).transpose(1, 2)
        return self.norm(self.drop(y) + x).masked_fill(outside.unsqueeze(-1), 0)


class _Foretold(nn.Module):
    """One number for each letter: its length, its pitch or its loudness."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv1d(width, width, 3, padding=1) for _ in range(2))
        self.norms, self.drop = (
            nn.ModuleList(nn.LayerNorm(width) for _ in range(2)),
            nn.Dropout(0.5),
        )
        self.head = nn.Linear(width, 1)

    def forward(self, x: Tensor, outside: Tensor) -> Tensor:
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = conv(x.contiguous().transpose(1, 2)).contiguous().transpose(1, 2)
            x = self.drop(norm(functional.relu(x)))
        return self.head(x).squeeze(-1).masked_fill(outside, 0.0)


class _FastSpeech(nn.Module):
    """Frames of speech, all at once, from letters (Ren et al., ICLR 2021).

    Args:
        width: Features of a letter and of a frame.
        heads: Of attention.
        inner: Channels between, of the convolutions.
        layers: Over letters, and over frames.
        bands: Frequencies of a frame.
        counts: Frames of each letter.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        inner: int,
        layers: tuple[int, int],
        bands: int,
        counts: tuple[int, ...],
    ) -> None:
        super().__init__()
        self.counts, self.letter = counts, nn.Embedding(_SYMBOLS, width, 0)
        self.encoder, self.decoder = (
            nn.ModuleList(_SpeechLayer(width, heads, inner, 9, 0.2) for _ in range(count))
            for count in layers
        )
        self.length, self.pitch, self.energy = (_Foretold(width) for _ in range(3))
        self.pitches, self.energies = nn.Embedding(_BINS, width), nn.Embedding(_BINS, width)
        fixed = partial(nn.Parameter, requires_grad=False)
        self.pitch_steps, self.energy_steps = (
            fixed(torch.linspace(-3.0, 10.0, _BINS - 1)) for _ in range(2)
        )
        self.letter_places, self.frame_places = (
            fixed(torch.zeros(1, 1001, width)) for _ in range(2)
        )
        self.head, sizes = nn.Linear(width, bands), (bands, *(512,) * 4, bands)
        self.last = nn.ModuleList(
            nn.Sequential(nn.Conv1d(i, o, 5, padding=2), nn.BatchNorm1d(o))
            for i, o in pairwise(sizes)
        )

    def _spoken(self, x: Tensor, outside: Tensor) -> tuple[Tensor, ...]:
        """Letters with their pitch and loudness, and what was foretold of them."""
        length, pitch = self.length(x, outside), self.pitch(x, outside)
        x = x + self.pitches(torch.bucketize(pitch, self.pitch_steps))
        energy = self.energy(x, outside)
        return x + self.energies(torch.bucketize(energy, self.energy_steps)), length, pitch, energy

    def _finished(self, x: Tensor) -> Tensor:
        x = x.contiguous().transpose(1, 2)
        for n, layer in enumerate(self.last):
            x = layer(x) if n == len(self.last) - 1 else torch.tanh(layer(x))
            x = functional.dropout(x, 0.5, self.training)
        return x.contiguous().transpose(1, 2)

    def forward(self, ids: Tensor) -> tuple[Tensor, ...]:
        outside = ids.eq(0)
        x = self.letter(ids) + self.letter_places[:, : ids.shape[1]].expand(ids.shape[0], -1, -1)
        for layer in self.encoder:
            x = layer(x, outside)
        x, *foretold = self._spoken(x, outside)
        y = stretched(x, self.counts)
        outside = torch.zeros(y.shape[:2], dtype=torch.bool, device=y.device)
        y = y + self.frame_places[:, : y.shape[1]].expand(y.shape[0], -1, -1)
        for layer in self.decoder:
            y = layer(y, outside)
        frames = self.head(y)
        return frames, self._finished(frames) + frames, *foretold


@registered("fastspeech-2")
def _fastspeech(batch: int) -> tuple[nn.Module, Inputs]:
    """3.3 seconds of speech from 48 letters, with the PyTorch version's sizes."""
    module = _FastSpeech(256, 2, 1024, (4, 6), 80, (_FRAMES,) * 48)
    return module, (torch.randint(1, _SYMBOLS, (batch, 48)),)


# -- pictures in a row
# -----------------------------------------------------------------------------------------------


class MemoryFlowCell(nn.Module):
    """A recurrent step with two memories, its own and one that the layer below hands on (Wang et
    al., NIPS 2017).

    Args:
        i: Channels in.
        hidden: Channels of the state and of both memories.
    """

    def __init__(self, i: int, hidden: int) -> None:
        super().__init__()
        conv = partial(nn.Conv2d, kernel_size=5, padding=2, bias=False)
        self.hidden = hidden
        self.read, self.own, self.flow = (
            conv(i, 7 * hidden),
            conv(hidden, 4 * hidden),
            conv(hidden, 3 * hidden),
        )
        self.look, self.join = (
            conv(2 * hidden, hidden),
            nn.Conv2d(2 * hidden, hidden, 1, bias=False),
        )

    def forward(self, x: Tensor, h: Tensor, c: Tensor, m: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """State, own memory and the one handed on."""
        read, own, flow = self.read(x), self.own(h), self.flow(m)
        xi, xf, xg, mi_x, mf_x, mg_x, xo = read.split(self.hidden, 1)
        hi, hf, hg, ho = own.split(self.hidden, 1)
        mi, mf, mg = flow.split(self.hidden, 1)
        c = torch.sigmoid(xf + hf + 1.0) * c + torch.sigmoid(xi + hi) * torch.tanh(xg + hg)
        m = torch.sigmoid(mf_x + mf + 1.0) * m + torch.sigmoid(mi_x + mi) * torch.tanh(mg_x + mg)
        both = torch.cat([c, m], 1)
        return torch.sigmoid(xo + ho + self.look(both)) * torch.tanh(self.join(both)), c, m


class _PredRnn(nn.Module):
    """Pictures one by one, each from the one before, seen or foretold."""

    def __init__(self, channels: int, hidden: int, layers: int, ahead: int) -> None:
        super().__init__()
        self.hidden, self.ahead = hidden, ahead
        self.cells = nn.ModuleList(
            MemoryFlowCell(hidden if n else channels, hidden) for n in range(layers)
        )
        self.head = nn.Conv2d(hidden, channels, 1, bias=False)

    def forward(self, frames: Tensor) -> Tensor:
        b, seen, _, h, w = frames.shape
        states = [frames.new_zeros(b, self.hidden, h, w) for _ in self.cells]
        memories, flow = list(states), torch.zeros_like(states[0])
        found: list[Tensor] = []
        for step in range(seen + self.ahead - 1):
            x = frames[:, step] if step < seen else found[-1]
            for n, cell in enumerate(self.cells):
                states[n], memories[n], flow = cell(x, states[n], memories[n], flow)
                x = states[n]
            found.append(self.head(x))
        return torch.stack(found, 1)


@registered("predrnn")
def _predrnn(batch: int) -> tuple[nn.Module, Inputs]:
    """Moving digits of 64 x 64 pixels in squares of 4 x 4: two pictures seen, two foretold; the
    paper has ten of each.
    """
    return _PredRnn(16, 128, 4, 2), (torch.rand(batch, 2, 16, 16, 16),)


# -- words
# -----------------------------------------------------------------------------------------------------------


class RecurrentConvolution(nn.Module):
    """One of some classes of a text: each word with all before and all behind it (Lai et al., AAAI
    2015).

    Args:
        words: Rows of the word table.
        width: Features of a word.
        context: Features of what is before, and of what is behind.
        hidden: Features of both and the word together.
        classes: Of texts.
    """

    def __init__(self, words: int, width: int, context: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.word, self.layer = (
            nn.Embedding(words, width),
            nn.RNN(width, context, batch_first=True, bidirectional=True),
        )
        self.join, self.head, self.context = (
            nn.Linear(2 * context + width, hidden),
            nn.Linear(hidden, classes),
            context,
        )

    def forward(self, ids: Tensor) -> Tensor:
        """Logits, shape (batch, classes)."""
        x = self.word(ids)
        before, behind = self.layer(x)[0].split(self.context, 2)
        before = functional.pad(before[:, :-1], (0, 0, 1, 0))
        behind = functional.pad(behind[:, 1:], (0, 0, 0, 1))
        y = torch.tanh(self.join(torch.cat([before, x, behind], 2)))
        return self.head(y.max(1)[0])


@registered("text-rcnn")
def _text_rcnn(batch: int) -> tuple[nn.Module, Inputs]:
    """Four groups of news by 300 of 200,000 words of 50 features each; the paper's sizes."""
    return RecurrentConvolution(200_000, 50, 50, 100, 4), (token_ids(batch, 300, 200_000),)
