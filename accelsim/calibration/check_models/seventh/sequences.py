"""Networks over sound, pictures in a row, pen strokes and what an agent saw, at their published
sizes.
"""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, unused-ignore"

from __future__ import annotations

import math
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from accelsim.calibration.check_models.fifth.sequences import PeepholeCell
from accelsim.calibration.check_models.register import Inputs, registered, token_ids

__all__ = ["StateSpaceModel", "demucs_length", "stroke_density"]


# -- voices
# ----------------------------------------------------------------------------------------------------------

_CHUNK: Final = 512
_CONTEXT: Final = 64


class _VoiceDetector(nn.Module):
    """How likely each thirtieth of a second is speech: a spectrum, four convolutions, a recurrent
    cell (Silero, 2024).

    Args:
        width: Features of the cell.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.spectrum = nn.Conv1d(1, 258, 256, 128, bias=False).requires_grad_(requires_grad=False)
        layers: list[nn.Module] = []
        for i, o, s in ((129, 128, 1), (128, 64, 2), (64, 64, 2), (64, width, 1)):
            layers += [nn.Conv1d(i, o, 3, s, 1), nn.ReLU()]
        self.encoder, self.cell = nn.Sequential(*layers), nn.LSTMCell(width, width)
        self.head = nn.Sequential(nn.Dropout(0.1), nn.ReLU(), nn.Conv1d(width, 1, 1), nn.Sigmoid())

    def forward(self, sound: Tensor) -> Tensor:
        b, state = sound.shape[0], None
        context, found = sound.new_zeros(b, _CONTEXT), []
        for chunk in sound.split(_CHUNK, 1):
            x = torch.cat([context, chunk], 1)
            context = x[:, -_CONTEXT:]
            waves = self.spectrum(functional.pad(x, (0, 64), "reflect").unsqueeze(1))
            real, imaginary = waves[:, :129], waves[:, 129:]
            state = self.cell(self.encoder(torch.sqrt(real**2 + imaginary**2)).squeeze(-1), state)
            found.append(self.head(state[0].unsqueeze(-1)).squeeze(1).mean(1, keepdim=True))
        return torch.cat(found, 1)


@registered("silero-vad")
def _voices(batch: int) -> tuple[nn.Module, Inputs]:
    """The fifth version: a second at 16 kHz, chunk by chunk."""
    return _VoiceDetector(128), (torch.randn(batch, 32 * _CHUNK),)


# -- ContextNet
# ------------------------------------------------------------------------------------------------------


def _separable(i: int, o: int, s: int = 1) -> list[nn.Module]:
    across = nn.Conv1d(i, i, 5, s, 2, groups=i, bias=False)
    return [across, nn.Conv1d(i, o, 1), nn.BatchNorm1d(o)]


class _ContextBlock(nn.Module):
    """Separable convolutions whose channels are scaled by what all frames say, beside a 1x1."""

    def __init__(self, i: int, o: int, s: int, count: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for n in range(count):
            layers += [*_separable(o if n else i, o, s if n == count - 1 else 1), nn.SiLU()]
        self.path = nn.Sequential(*layers)
        self.gate = nn.Sequential(
            nn.Linear(o, o // 8), nn.SiLU(), nn.Linear(o // 8, o), nn.Sigmoid()
        )
        skip = nn.Sequential(nn.Conv1d(i, o, 1, s), nn.BatchNorm1d(o))
        self.skip = skip if count > 1 else None

    def forward(self, x: Tensor) -> Tensor:
        y = self.path(x)
        y = y * self.gate(y.mean(-1)).unsqueeze(-1)
        return functional.silu(y if self.skip is None else y + self.skip(x))


class _ContextNet(nn.Module):
    """Scores of each piece of a word at each frame, behind those so far (Han et al., Interspeech
    2020).

    Args:
        width: Channels of the first eleven blocks; then twice as many, in the last two and a half
            times.
        pieces: Of words, with one for none.
        hidden: Of the recurrent network over pieces, and of the layer where both meet.
    """

    def __init__(self, width: int, pieces: int, hidden: int) -> None:
        super().__init__()
        layers, channels = [_ContextBlock(80, width, 1, 1)], width
        for n in range(1, 22):
            o = width if n < 11 else 2 * width
            layers.append(_ContextBlock(channels, o, 2 if n in {3, 7, 14} else 1, 5))
            channels = o
        last = 5 * width // 2
        self.encoder = nn.Sequential(*layers, _ContextBlock(channels, last, 1, 1))
        self.piece, self.layer = (
            nn.Embedding(pieces, hidden),
            nn.LSTM(hidden, hidden, batch_first=True),
        )
        self.heard, self.written = nn.Linear(last, hidden), nn.Linear(hidden, hidden)
        self.head = nn.Linear(hidden, pieces)

    def forward(self, frames: Tensor, ids: Tensor) -> Tensor:
        x = self.heard(self.encoder(frames).transpose(1, 2))
        y = self.written(self.layer(self.piece(ids))[0])
        return self.head(torch.tanh(x.unsqueeze(2) + y.unsqueeze(1)))


@registered("contextnet-s")
def _contextnet(batch: int) -> tuple[nn.Module, Inputs]:
    """Half of the widths, as published: eight seconds of speech as frames of 80 frequencies, and 20
    pieces.
    """
    return _ContextNet(128, 1024, 640), (torch.randn(batch, 80, 800), token_ids(batch, 20, 1024))


# -- Demucs
# ----------------------------------------------------------------------------------------------------------

_DEPTH: Final = 6


def demucs_length(samples: int) -> int:
    """The length to which sound is padded, so that all strides divide and as much comes out
    (Défossez et al., 2019).
    """
    for _ in range(_DEPTH):
        samples = max(1, math.ceil((samples - 8) / 4) + 1) + 2
    for _ in range(_DEPTH):
        samples = (samples - 1) * 4 + 8
    return samples


class _Demucs(nn.Module):
    """Four instruments from a stereo track: a U-Net over raw sound with a recurrent middle (arXiv
    1911.13254).
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        down, up, i = [], [], 2
        for level in range(_DEPTH):
            o = width * 2**level
            down.append(
                nn.Sequential(nn.Conv1d(i, o, 8, 4), nn.ReLU(), nn.Conv1d(o, 2 * o, 1), nn.GLU(1))
            )
            grow = nn.ConvTranspose1d(o, i if level else 8, 8, 4)
            up.append(
                nn.Sequential(
                    nn.Conv1d(o, 2 * o, 3), nn.GLU(1), grow, *([nn.ReLU()] if level else [])
                )
            )
            i = o
        self.down, self.up = nn.ModuleList(down), nn.ModuleList(up[::-1])
        self.layers, self.join = nn.LSTM(i, i, 2, bidirectional=True), nn.Linear(2 * i, i)

    def forward(self, sound: Tensor) -> Tensor:
        x, kept = sound, []
        for layer in self.down:
            x = layer(x)
            kept.append(x)
        x = self.join(self.layers(x.permute(2, 0, 1))[0]).permute(1, 2, 0)
        for layer in self.up:
            skip = kept.pop()
            spare = skip.shape[-1] - x.shape[-1]
            x = layer(x + skip[..., spare // 2 : skip.shape[-1] - (spare - spare // 2)])
        return x.view(x.shape[0], 4, 2, -1)


@registered("demucs")
def _demucs(batch: int) -> tuple[nn.Module, Inputs]:
    """64 channels at first; a second of music at 44.1 kHz, padded to 1.33."""
    return _Demucs(64), (torch.randn(batch, 2, demucs_length(44_100)),)


# -- pictures in a row
# -----------------------------------------------------------------------------------------------


def _peephole_cell(i: int, hidden: int) -> PeepholeCell:
    read = nn.Linear(i, 4 * hidden, bias=False) if i else None
    return PeepholeCell(read, nn.Linear(hidden, 4 * hidden), (hidden,))


class _VideoAutoencoder(nn.Module):
    """What was seen, last picture first, and what comes next, from one state (Srivastava et al.,
    ICML 2015).

    Args:
        pixels: Of a picture.
        hidden: Of all three recurrent layers.
        ahead: Pictures foretold.
    """

    def __init__(self, pixels: int, hidden: int, ahead: int) -> None:
        super().__init__()
        self.hidden, self.ahead = hidden, ahead
        self.encoder, self.past = _peephole_cell(pixels, hidden), _peephole_cell(0, hidden)
        self.future = _peephole_cell(pixels, hidden)
        self.past_head, self.future_head = nn.Linear(hidden, pixels), nn.Linear(hidden, pixels)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        b, seen, _ = x.shape
        h, c = x.new_zeros(b, self.hidden), x.new_zeros(b, self.hidden)
        for step in range(seen):
            h, c = self.encoder(x[:, step], h, c)
        (past_h, past_c), past, future = (h, c), [], []
        for _ in range(seen):
            past_h, past_c = self.past(None, past_h, past_c)
            past.append(torch.sigmoid(self.past_head(past_h)))
        y = None
        for _ in range(self.ahead):
            h, c = self.future(y, h, c)
            y = torch.sigmoid(self.future_head(h))
            future.append(y)
        return torch.stack(past, 1), torch.stack(future, 1)


@registered("lstm-autoencoder")
def _video(batch: int) -> tuple[nn.Module, Inputs]:
    """Moving digits of 64 x 64 pixels: ten pictures seen, as many foretold, each from the last."""
    return _VideoAutoencoder(4096, 2048, 10), (torch.rand(batch, 10, 4096),)


# -- strokes
# ---------------------------------------------------------------------------------------------------------


def stroke_density(x: Tensor, y: Tensor, parts: tuple[Tensor, ...]) -> Tensor:
    """Density of a mixture of normal distributions in the plane (Graves, arXiv 1308.0850, equations
    23 to 25).

    Args:
        x: Steps to the right, shape (points, 1).
        y: Steps down, likewise.
        parts: Weights, two means, two deviations and a correlation, each of shape (points,
            mixtures).

    Returns:
        Shape (points,).
    """
    weight, mean_x, mean_y, spread_x, spread_y, together = parts
    right, down, both = x - mean_x, y - mean_y, spread_x * spread_y
    z = (right / spread_x) ** 2 + (down / spread_y) ** 2 - 2 * (together * (right * down)) / both
    left = 1 - together**2
    return (weight * (torch.exp(-z / (2 * left)) / (2 * math.pi * (both * torch.sqrt(left))))).sum(
        1
    )


class _SketchRnn(nn.Module):
    """A drawing as one vector, and the strokes that it becomes (Ha and Eck, ICLR 2018).

    In training how improbable each point is, with what the vector costs; else the distribution of
    every point.
    """

    def __init__(self, encoder: int, vector: int, decoder: int, mixtures: int) -> None:
        super().__init__()
        self.encoder = nn.LSTM(5, encoder, batch_first=True, bidirectional=True)
        self.mean, self.spread = nn.Linear(2 * encoder, vector), nn.Linear(2 * encoder, vector)
        self.start, self.decoder = (
            nn.Linear(vector, 2 * decoder),
            nn.LSTM(5 + vector, decoder, batch_first=True),
        )
        self.head = nn.Linear(decoder, 3 + 6 * mixtures)

    def forward(self, strokes: Tensor) -> Tensor | tuple[Tensor, ...]:
        before, after = strokes[:, :-1], strokes[:, 1:]
        _, (last, _) = self.encoder(after)
        last = torch.cat([last[0], last[1]], 1)
        mean, spread = self.mean(last), self.spread(last)
        z = mean + torch.exp(spread / 2) * torch.randn_like(mean)
        h, c = (part.contiguous().unsqueeze(0) for part in torch.tanh(self.start(z)).chunk(2, 1))
        x = torch.cat([before, z.unsqueeze(1).expand(-1, before.shape[1], -1)], 2)
        y = self.head(self.decoder(x, (h, c))[0].flatten(0, 1))
        pen, (weight, mean_x, mean_y, spread_x, spread_y, together) = y[:, :3], y[:, 3:].chunk(6, 1)
        parts = (
            weight.softmax(1),
            mean_x,
            mean_y,
            spread_x.exp(),
            spread_y.exp(),
            torch.tanh(together),
        )
        if not self.training:
            return pen.softmax(1), *parts
        wanted = after.flatten(0, 1)
        drawn = -torch.log(stroke_density(wanted[:, :1], wanted[:, 1:2], parts) + 1e-6) * (
            1 - wanted[:, 4]
        )
        lifted = -(wanted[:, 2:] * pen.log_softmax(1)).sum(1)
        cost = -0.5 * (1 + spread - mean**2 - spread.exp()).mean()
        return drawn + lifted + 0.5 * torch.clamp(cost, min=0.2)


@registered("sketch-rnn")
def _sketch(batch: int) -> tuple[nn.Module, Inputs]:
    """The program's default sizes; a hundred points."""
    pens = functional.one_hot(torch.randint(3, (batch, 101)), 3).float()
    return _SketchRnn(256, 128, 512, 20), (torch.cat([torch.randn(batch, 101, 2), pens], 2),)


# -- Dreamer
# ---------------------------------------------------------------------------------------------------------


class StateSpaceModel(nn.Module):
    """States drawn from what was seen, and those foretold without seeing (Hafner et al., ICLR
    2020).

    Args:
        seen: Features of a picture.
        moves: Numbers of an action.
        drawn: Numbers of the random part of the state.
        hidden: Of the rest of the state, and of all layers between.
    """

    def __init__(self, seen: int, moves: int, drawn: int, hidden: int) -> None:
        super().__init__()
        self.drawn, self.hidden = drawn, hidden
        self.join, self.cell = nn.Linear(drawn + moves, hidden), nn.GRUCell(hidden, hidden)
        self.foretell = nn.Sequential(
            nn.Linear(hidden, hidden), nn.ELU(), nn.Linear(hidden, 2 * drawn)
        )
        self.look = nn.Sequential(
            nn.Linear(hidden + seen, hidden), nn.ELU(), nn.Linear(hidden, 2 * drawn)
        )

    @staticmethod
    def _sampled(y: Tensor) -> list[Tensor]:
        mean, spread = y.chunk(2, 1)
        spread = functional.softplus(spread) + 0.1
        return [mean, spread, mean + spread * torch.randn_like(mean)]

    def forward(self, pictures: Tensor, actions: Tensor) -> Tensor:
        """Both distributions with their samples, and the rest of the state, shape (batch, steps, 6
        drawn + hidden).
        """
        b, steps, _ = pictures.shape
        state, rest, found = (
            pictures.new_zeros(b, self.drawn),
            pictures.new_zeros(b, self.hidden),
            [],
        )
        for step in range(steps):
            x = functional.elu(self.join(torch.cat([state, actions[:, step]], 1)))
            rest = self.cell(x, rest)
            before = self._sampled(self.foretell(rest))
            after = self._sampled(self.look(torch.cat([rest, pictures[:, step]], 1)))
            state = after[2]
            found.append(torch.cat([*after, *before, rest], 1))
        return torch.stack(found, 1)


@registered("dreamer-rssm")
def _dreamer(batch: int) -> tuple[nn.Module, Inputs]:
    """Fifty steps of a walker, which has six joints."""
    return StateSpaceModel(1024, 6, 30, 200), (
        torch.randn(batch, 50, 1024),
        torch.randn(batch, 50, 6),
    )
