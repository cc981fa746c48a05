"""Networks over sound and words: convolutions and recurrent layers."""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, unused-ignore"

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from accelsim.calibration.check_models.parts import Made, registered, token_ids


@registered("crepe")
def _crepe(batch: int) -> Made:
    """Which of 360 pitches 1,024 samples at 16 kHz have (Kim et al., ICASSP 2018); full size."""
    layers: list[nn.Module] = []
    channels = 1
    further = ((width, 64, 1, (31, 32)) for width in (128, 128, 128, 256, 512))
    for width, kernel, stride, padding in ((1024, 512, 4, (254, 254)), *further):
        layers.append(nn.ZeroPad2d((0, 0, *padding)))
        layers += [nn.Conv2d(channels, width, (kernel, 1), (stride, 1)), nn.ReLU()]
        layers += [nn.BatchNorm2d(width, eps=1e-3), nn.MaxPool2d((2, 1), (2, 1))]
        layers.append(nn.Dropout(0.25, inplace=True))
        channels = width
    head = [nn.Flatten(), nn.Linear(2048, 360), nn.Sigmoid()]
    return nn.Sequential(*layers, *head), (torch.randn(batch, 1, 1024, 1),)


class _Denoiser(nn.Module):
    """How much of each band is speech, and whether any is (Valin, MMSP 2018; second network)."""

    def __init__(self, numbers: int, width: int, hidden: int, bands: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(numbers, width, 3)
        self.conv2 = nn.Conv1d(width, hidden, 3)
        self.layers = nn.ModuleList(nn.GRU(hidden, hidden, batch_first=True) for _ in range(3))
        self.gains = nn.Linear(4 * hidden, bands)
        self.voice = nn.Linear(4 * hidden, 1)

    def forward(self, frames: Tensor) -> Tensor:
        x = torch.tanh(self.conv2(torch.tanh(self.conv1(frames.permute(0, 2, 1))))).permute(0, 2, 1)
        found = [x]
        for layer in self.layers:
            found.append(layer(found[-1], x.new_zeros(1, x.shape[0], x.shape[2]))[0])
        seen = torch.cat(found, -1)
        return torch.cat([torch.sigmoid(self.gains(seen)), torch.sigmoid(self.voice(seen))], -1)


@registered("rnnoise")
def _rnnoise(batch: int) -> Made:
    """A second of sound as 100 frames of 65 numbers."""
    return _Denoiser(65, 128, 384, 32), (torch.randn(batch, 104, 65),)


class _RecurrentConvolution(nn.Module):
    """A text's class: each word with all before and all behind it (Lai et al., AAAI 2015)."""

    def __init__(self, words: int, width: int, context: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.word = nn.Embedding(words, width)
        self.context = context
        self.layer = nn.RNN(width, context, batch_first=True, bidirectional=True)
        self.join = nn.Linear(2 * context + width, hidden)
        self.head = nn.Linear(hidden, classes)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.word(ids)
        before, behind = self.layer(x)[0].split(self.context, 2)
        before = functional.pad(before[:, :-1], (0, 0, 1, 0))
        behind = functional.pad(behind[:, 1:], (0, 0, 0, 1))
        y = torch.tanh(self.join(torch.cat([before, x, behind], 2)))
        return self.head(y.max(1)[0])


@registered("text-rcnn")
def _text_rcnn(batch: int) -> Made:
    """Four groups of news by 300 of 200,000 words of 50 features each; the paper's sizes."""
    return _RecurrentConvolution(200_000, 50, 50, 100, 4), (token_ids(batch, 300, 200_000),)


class _TextCnn(nn.Module):
    """A text's class by the strongest of its words' neighbourhoods (Kim, EMNLP 2014)."""

    def __init__(self, words: int, width: int, filters: int) -> None:
        super().__init__()
        self.word = nn.Embedding(words, width)
        self.convs = nn.ModuleList(nn.Conv1d(width, filters, kernel) for kernel in (3, 4, 5))
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(3 * filters, 2)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.word(ids).transpose(1, 2)
        found = [functional.relu(conv(x)).amax(-1) for conv in self.convs]
        return self.head(self.drop(torch.cat(found, 1)))


@registered("text-cnn")
def _text_cnn(batch: int) -> Made:
    """The 18,765 words of film reviews, 300 features each."""
    return _TextCnn(18_765, 300, 100), (token_ids(batch, 64, 18_765),)


class _LstmClassifier(nn.Module):
    """A text's class by the last state of stacked layers."""

    def __init__(self, words: int, width: int, layers: int, classes: int) -> None:
        super().__init__()
        self.word = nn.Embedding(words, width)
        self.layers = nn.LSTM(width, width, layers, batch_first=True)
        self.head = nn.Linear(width, classes)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.layers(self.word(ids))[0][:, -1])


@registered("lstm-classifier")
def _lstm(batch: int) -> Made:
    return _LstmClassifier(5000, 256, 2, 5), (token_ids(batch, 64, 5000),)
