"""Networks over sound, letters and telemetry, at their published sizes."""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, unused-ignore"

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from accelsim.calibration.check_models.register import Inputs, registered, token_ids

__all__ = ["SimpleUnit"]


# -- separation of speakers
# ------------------------------------------------------------------------------------------


class _GlobalNorm(nn.Module):
    """Over channels and time of each sample, operator by operator (Luo and Mesgarani, 2019)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        axes = list(range(1, x.dim()))
        mean = x.mean(axes, keepdim=True)
        variance = torch.pow(x - mean, 2).mean(axes, keepdim=True)
        x = (x - mean) / (variance + 1e-8).sqrt()
        return (self.weight * x.transpose(1, -1) + self.bias).transpose(1, -1)


class _TwoPaths(nn.Module):
    """Recurrent layers along each chunk, then across all chunks (Luo et al., ICASSP 2020)."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.LSTM(width, hidden, batch_first=True, bidirectional=True) for _ in range(2)
        )
        self.heads = nn.ModuleList(nn.Linear(2 * hidden, width) for _ in range(2))
        self.norms = nn.ModuleList(_GlobalNorm(width) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        b, width, size, count = x.shape
        y = x.transpose(1, -1).reshape(b * count, size, width)
        y = self.heads[0](self.layers[0](y)[0]).reshape(b, count, size, width).transpose(1, -1)
        x = x + self.norms[0](y)
        y = x.transpose(1, 2).transpose(2, -1).reshape(b * size, count, width)
        y = self.heads[1](self.layers[1](y)[0]).reshape(b, size, count, width)
        return x + self.norms[1](y.transpose(1, -1).transpose(2, -1).contiguous())


class _Separator(nn.Module):
    """A mask for each speaker over learned frames, from chunks that overlap by half.

    Args:
        filters: Learned, of 16 samples, eight apart.
        width: Features of a frame between.
        hidden: Of each direction.
        blocks: Pairs of recurrent layers.
        size: Frames of a chunk.
        speakers: Voices.
    """

    def __init__(
        self, filters: int, width: int, hidden: int, blocks: int, size: int, speakers: int
    ) -> None:
        super().__init__()
        self.size, self.speakers = size, speakers
        self.encoder = nn.Conv1d(1, filters, 16, 8, bias=False)
        self.decoder = nn.ConvTranspose1d(filters, 1, 16, 8, bias=False)
        self.narrow = nn.Sequential(_GlobalNorm(filters), nn.Conv1d(filters, width, 1))
        self.blocks = nn.Sequential(*(_TwoPaths(width, hidden) for _ in range(blocks)))
        self.split = nn.Sequential(nn.PReLU(), nn.Conv2d(width, speakers * width, 1))
        self.value = nn.Sequential(nn.Conv1d(width, width, 1), nn.Tanh())
        self.gate = nn.Sequential(nn.Conv1d(width, width, 1), nn.Sigmoid())
        self.mask = nn.Sequential(nn.Conv1d(width, filters, 1, bias=False), nn.Sigmoid())

    def forward(self, sound: Tensor) -> Tensor:
        """Voices, shape (batch, speakers, samples), of sound, shape (batch, 1, samples)."""
        frames = self.encoder(sound)
        x = self.narrow(frames)
        (b, width, n), size = x.shape, self.size
        options = {"kernel_size": (size, 1), "padding": (size, 0), "stride": (size // 2, 1)}
        x = functional.unfold(x.unsqueeze(-1), **options).reshape(b, width, size, -1)
        x = self.split(self.blocks(x)).reshape(b * self.speakers, width * size, -1)
        x = functional.fold(x, (n, 1), **options).reshape(b * self.speakers, width, n) / 2
        masks = self.mask(self.value(x) * self.gate(x)).view(b, self.speakers, -1, n)
        y = self.decoder((masks * frames.unsqueeze(1)).flatten(0, 1)).view(b, self.speakers, -1)
        return functional.pad(y, (0, sound.shape[-1] - y.shape[-1]))


@registered("dprnn-tasnet")
def _dprnn(batch: int) -> tuple[nn.Module, Inputs]:
    """A second of two voices at 8 kHz; frames of 16 samples in chunks of 100."""
    return _Separator(64, 64, 128, 6, 100, 2), (torch.randn(batch, 1, 8000),)


# -- words of command
# ------------------------------------------------------------------------------------------------


@registered("ds-cnn-keywords")
def _keywords(batch: int) -> tuple[nn.Module, Inputs]:
    """The large network for 12 words (Zhang et al., arXiv 1711.07128): a second as 49 frames of ten
    coefficients.
    """
    norm = lambda: [nn.BatchNorm2d(276), nn.ReLU()]  # noqa: E731
    layers: list[nn.Module] = [
        nn.ZeroPad2d((1, 2, 4, 5)),
        nn.Conv2d(1, 276, (10, 4), (2, 1)),
        *norm(),
    ]
    for n in range(5):
        layers += [
            nn.Conv2d(276, 276, 3, 1 if n else 2, 1, groups=276),
            *norm(),
            nn.Conv2d(276, 276, 1),
            *norm(),
        ]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(276, 12)]
    return nn.Sequential(*layers, *head), (torch.randn(batch, 1, 49, 10),)


# -- speech
# ----------------------------------------------------------------------------------------------------------


class _Speaker(nn.Module):
    """Frames of speech one after the other, each from the last and from where in the text it is
    (Shen et al., 2018).

    Args:
        frame: Frequencies.
        memory: Features of a letter.
        hidden: Of both recurrent cells.
        steps: Frames spoken.
    """

    def __init__(self, frame: int, memory: int, hidden: int, steps: int) -> None:
        super().__init__()
        self.hidden, self.steps = hidden, steps
        self.before = nn.ModuleList(nn.Linear(i, 256, bias=False) for i in (frame, 256))
        self.listen, self.speak = (
            nn.LSTMCell(256 + memory, hidden),
            nn.LSTMCell(hidden + memory, hidden),
        )
        self.query, self.key = (
            nn.Linear(hidden, 128, bias=False),
            nn.Linear(memory, 128, bias=False),
        )
        self.where, self.place = (
            nn.Conv1d(2, 32, 31, padding=15, bias=False),
            nn.Linear(32, 128, bias=False),
        )
        self.energy = nn.Linear(128, 1, bias=False)
        self.frame, self.stop = nn.Linear(hidden + memory, frame), nn.Linear(hidden + memory, 1)

    def _attended(self, h: Tensor, keys: Tensor, seen: Tensor, total: Tensor) -> Tensor:
        places = self.place(
            self.where(torch.cat([seen.unsqueeze(1), total.unsqueeze(1)], 1)).transpose(1, 2)
        )
        energies = self.energy(torch.tanh(self.query(h.unsqueeze(1)) + places + keys))
        return energies.squeeze(-1).softmax(1)

    def forward(self, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Frames, shape (batch, frame, steps), whether to stop, and weights of letters; dropout
        stays on before cells.
        """
        b, n, width = memory.shape
        x = memory.new_zeros(b, self.frame.out_features)
        h1, c1, h2, c2 = (memory.new_zeros(b, self.hidden) for _ in range(4))
        seen, total = memory.new_zeros(b, n), memory.new_zeros(b, n)
        context, keys = memory.new_zeros(b, width), self.key(memory)
        frames, stops, weights = [], [], []
        for _ in range(self.steps):
            for layer in self.before:
                x = functional.dropout(functional.relu(layer(x)), 0.5, training=True)
            h1, c1 = self.listen(torch.cat([x, context], -1), (h1, c1))
            seen = self._attended(h1, keys, seen, total)
            context = torch.bmm(seen.unsqueeze(1), memory).squeeze(1)
            total = total + seen
            h2, c2 = self.speak(torch.cat([h1, context], -1), (h2, c2))
            both = torch.cat([h2, context], 1)
            x = self.frame(both)
            frames.append(x)
            stops.append(self.stop(both).squeeze(1))
            weights.append(seen)
        return torch.stack(frames, 2), torch.stack(stops, 1), torch.stack(weights, 1)


@registered("tacotron-2-decoder")
def _tacotron(batch: int) -> tuple[nn.Module, Inputs]:
    """Half a second of speech from 64 letters."""
    return _Speaker(80, 512, 1024, 40), (torch.randn(batch, 64, 512),)


# -- letters
# ---------------------------------------------------------------------------------------------------------


class SimpleUnit(nn.Module):
    """A recurrent layer whose products do not wait for the last step (Lei et al., EMNLP 2018), step
    by step on a CPU.

    Args:
        i: Features in.
        hidden: Features out; where they differ from those in, a fourth product is the highway.
        drop: Share of features dropped at every step.
    """

    def __init__(self, i: int, hidden: int, drop: float) -> None:
        super().__init__()
        self.hidden, self.drop, self.products = hidden, drop, 3 if i == hidden else 4
        self.weight = nn.Parameter(
            torch.empty(i, self.products * hidden).uniform_(-((3 / i) ** 0.5), (3 / i) ** 0.5)
        )
        self.state, self.bias = (
            nn.Parameter(torch.zeros(2 * hidden)),
            nn.Parameter(torch.zeros(2 * hidden)),
        )
        self.register_buffer("scale", torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        """Features, shape (length, batch, hidden)."""
        n, b, i = x.shape
        u = torch.mm(x.view(-1, i), self.weight).view(n, b, self.hidden, self.products)
        way = x * self.scale if self.products == 3 else u[..., 3]
        keep, out = (part.expand(b, self.hidden) for part in self.state.chunk(2))
        keep_bias, out_bias = self.bias.chunk(2)
        new, kept, let = (
            u[..., 0].unbind(0),
            (u[..., 1] + keep_bias).unbind(0),
            (u[..., 2] + out_bias).unbind(0),
        )
        ways, c, h = way.unbind(0), x.new_zeros(b, self.hidden), x.new_zeros(n, b, self.hidden)
        mask = functional.dropout(torch.ones_like(c), self.drop) if self.training else 1
        for t in range(n):
            forget, reset = (kept[t] + c * keep).sigmoid(), (let[t] + c * out).sigmoid()
            c = new[t] + (c - new[t]) * forget
            h[t] = ways[t] + (c - ways[t]) * mask * reset
        return h


class _LetterModel(nn.Module):
    """Logits of the next letter."""

    def __init__(self, letters: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.token, self.drop = nn.Embedding(letters, letters), nn.Dropout(0.2)
        self.layers = nn.Sequential(
            *(SimpleUnit(hidden if n else letters, hidden, 0.2) for n in range(layers))
        )
        self.head = nn.Linear(hidden, letters)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.drop(self.layers(self.drop(self.token(ids)))).flatten(0, 1))


@registered("sru")
def _sru(batch: int) -> tuple[nn.Module, Inputs]:
    """The 205 letters of enwik8, a hundred at a time through six layers, as its authors' program
    has them.
    """
    return _LetterModel(205, 1024, 6), (token_ids(100, batch, 205),)


# -- telemetry
# -------------------------------------------------------------------------------------------------------


class _Telemetry(nn.Module):
    """The next ten values of a spacecraft's channel; what departs from them is odd (Hundman et al.,
    KDD 2018).
    """

    def __init__(self, inputs: int, hidden: int, ahead: int) -> None:
        super().__init__()
        self.layers = nn.LSTM(inputs, hidden, 2, batch_first=True, dropout=0.3)
        self.drop, self.head = nn.Dropout(0.3), nn.Linear(hidden, ahead)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.drop(self.layers(x)[0][:, -1]))


@registered("lstm-anomaly-detector")
def _telemetry(batch: int) -> tuple[nn.Module, Inputs]:
    """One channel and its 24 commands over 250 steps."""
    return _Telemetry(25, 80, 10), (torch.randn(batch, 250, 25),)
