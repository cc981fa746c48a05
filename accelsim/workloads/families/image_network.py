"""Image networks read from a short notation: layers by word, networks by file.

Networks compiled for edge accelerators are published at sizes such as 288 x 512 pixels. A run that
names an image size makes the input square, as everywhere.

The notation writes one convolution as its channels, then the window, the stride and marks, each
where it is not 1 x 1, 1, or "same": "64/7s2" is 64 channels of 7 x 7 that step by 2, "192/1x7" a
row of seven, "96/3v" unpadded ("valid"), "512/3d6" dilated by 6, "6*in" six times the input's
channels. "64/3l" has no activation behind its normalisation, "64/3o" is an output: a bias and
neither. Words without channels are "dw/3" (depthwise), "pool/3s2" and "avg/3" (pools; "c" rounds
sizes up), "gap" (global average), "up/2" (nearest neighbours), "half" (half the channels), "fold/2"
and "spread" (space to depth and back), "flat" (all but the batch joined), "l2" (a scaled L2 norm
over channels), "attend/64" (queries, keys and values, keys of half the width, to heads of 64
channels that attend over positions), "bn" and "relu"; "raise:64" is a transposed convolution to
twice the size, "linear:10" a linear layer.

A network is a file of `workloads/networks`: steps, one after the other, each on what the step
before it wrote. The keys of a step:

* name: module path of its layers; scope: that of its inner steps and branches.
* of: maps it works on instead, by the names `keep` gave them; several are concatenated.
* layers: words; a list of texts is as many chains of one name. branches: chains by name, side by
  side and concatenated. steps: inner steps. use: steps of another file. backbone: a network
  written by a function, whose maps are kept as map0, map1, ...
* crop, stretch, broadcast: the result is cut or copied to the size of that map; add: map added to
  the result ("input" is the step's own); same: added where the shapes are the same; scale: map
  whose channels the result scales; then: activation of the sum; keep: name of the result.
* style: options of `chain` for it and its inner steps.
* times: how often it is written, `index` counting; each: values for names in braces, lists one
  entry a time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

from accelsim.files.datafile import data_root, read_yaml
from accelsim.frozen import frozen
from accelsim.plain import Document, Values
from accelsim.workloads.builder import GraphBuilder, Saved, Tensor
from accelsim.workloads.operator import OperatorKind

_WORD = re.compile(
    r"(?:(pool|avg|gap|up|half|fold|spread|flat|l2|bn|relu|dw|attend)"
    r"|(?:(linear|raise):)?((?:\d+|in)(?:\*(?:\d+|in))*))"
    r"(?:/(\d+)(?:x(\d+))?)?(?:s(\d))?([vclo]*)(?:d(\d+))?"
)


class LayerStep(NamedTuple):
    """One layer of a chain.

    Attributes:
        kind: "conv", or the word it is written as.
        factors: Output channels as a product; "in" is the input's channels.
        window: Height and width of the window.
        stride: Step.
        padding: Zeros before and behind each axis.
        dilation: Spacing of the window's taps.
        marks: "v", "c", "l" and "o" of the notation.
    """

    kind: str
    factors: tuple[str, ...]
    window: tuple[int, int] = (1, 1)
    stride: int = 1
    padding: tuple[int, int] = (0, 0)
    dilation: int = 1
    marks: str = ""

    def channels(self, x: Tensor) -> int:
        """Output channels on an input."""
        return prod(x.shape[1] if factor == "in" else int(factor) for factor in self.factors)


def layer_steps(notation: str) -> list[LayerStep]:
    """The layers that a text in the notation of this module names.

    Raises:
        ValueError: If a word of it is no layer.
    """
    steps = []
    for word in notation.split():
        match = _WORD.fullmatch(word)
        if match is None:
            raise ValueError(f"{word!r} is no layer such as 64/3s2")
        plain, kind, channels, height, width, stride, marks, dilation = match.groups()
        numbers = (height, width or height, stride, dilation)
        rows, columns, step, spacing = (int(number or 1) for number in numbers)
        is_padded = "v" not in marks
        reach = [is_padded * spacing * (side - 1) // 2 for side in (rows, columns)]
        factors = tuple((channels or "in").split("*"))
        sizes = ((rows, columns), step, (reach[0], reach[1]), spacing)
        steps.append(LayerStep(plain or kind or "conv", factors, *sizes, marks))
    return steps


def chain(
    b: GraphBuilder,
    x: Tensor,
    name: str,
    notation: str,
    *,
    first: int = 0,
    sequence: bool = False,
    **options: Any,
) -> Tensor:
    """Layers one after the other.

    Args:
        b: Builder.
        x: Input (n, c, h, w).
        name: Module name, followed by the number of each layer; a single one goes by it alone.
        notation: The layers in the notation of this module.
        first: Number of the first layer; 0 numbers ".0", ".1", 1 numbers "_1", "_2".
        sequence: Whether activations have numbers of their own, as in a ``nn.Sequential``; single
            layers too are then numbered, and convolutions have a bias and no normalisation.
        **options: Whether there are normalisations (`norm`), the activation after each, if any
            (`activation`), the module names of convolution, normalisation and activation
            (`names`), and the convolution's groups (`groups`).
    """
    steps = layer_steps(notation)
    joint = "_" if first else "."
    index = first
    for step in steps:
        is_convolution = step.kind in {"conv", "dw"}
        is_numbered = len(steps) > 1 or sequence
        with b.scope(f"{name}{joint}{index}" if is_numbered else name):
            if is_convolution:
                style = {"norm": False, "activation": ""} if sequence else options
                x = _convolution(b, x, step, **style)
            else:
                x = _OTHERS[step.kind](b, x, step)
        index += 1
        if sequence and is_convolution:
            x = b.activation(x, at=f"{name}{joint}{index}")
            index += 1
    return x


def _convolution(
    b: GraphBuilder,
    x: Tensor,
    step: LayerStep,
    *,
    norm: bool = True,
    activation: str = "relu",
    names: Sequence[str] = ("0", "1", "2"),
    groups: int = 1,
) -> Tensor:
    """Convolution, batch normalisation and activation.

    Args:
        b: Builder.
        x: Input (n, c, h, w).
        step: Sizes and marks.
        norm: False has a bias instead of the normalisation, as VGG.
        activation: Activation; "" for none.
        names: Module names of the three, where there is a normalisation.
        groups: Groups of channels that do not mix.
    """
    if "l" in step.marks:
        activation = ""
    if step.kind == "dw":
        groups = x.shape[1]
    if "o" in step.marks:
        norm, activation, groups = False, "", 1
    conv_name, norm_name, activation_name = names if norm else ("", "", "")
    x = b.conv(
        x,
        step.channels(x),
        step.window,
        stride=step.stride,
        padding=step.padding,
        groups=groups,
        dilation=step.dilation,
        bias=not norm,
        at=conv_name,
    )
    x = b.batch_norm(x, at=norm_name) if norm else x
    return b.activation(x, activation, at=activation_name) if activation else x


def _pool(b: GraphBuilder, x: Tensor, step: LayerStep) -> Tensor:
    mode = "max" if step.kind == "pool" else "avg"
    ceil = "c" in step.marks
    return b.pool(x, step.window, stride=step.stride, padding=step.padding, mode=mode, ceil=ceil)


def raised(b: GraphBuilder, x: Tensor, channels: int, at: str = "") -> Tensor:
    """Maps of twice the size by a transposed convolution."""
    return b.conv(x, channels, 2, stride=2, padding=0, bias=True, transposed=True, at=at)


def _half(b: GraphBuilder, x: Tensor, _: LayerStep) -> Tensor:
    batch, channels, *sides = x.shape
    return b.part(x, batch, channels // 2, *sides)


def _fold(b: GraphBuilder, x: Tensor, _: LayerStep) -> Tensor:
    """Squares of four pixels as channels: the pass-through layer of YOLOv2.

    Redmon and Farhadi, CVPR 2017, arXiv:1612.08242.
    """
    batch, channels, height, width = x.shape
    return b.copy(x, shape=(batch, 4 * channels, height // 2, width // 2), name="reorganise")


def _spread(b: GraphBuilder, x: Tensor, _: LayerStep) -> Tensor:
    """Four channels as a square of pixels (Shi et al., CVPR 2016, arXiv:1609.05158)."""
    batch, channels, height, width = x.shape
    return b.copy(x, shape=(batch, channels // 4, 2 * height, 2 * width), name="depth_to_space")


def _attend(b: GraphBuilder, x: Tensor, step: LayerStep) -> Tensor:
    """Attention of queries, keys and values (n, 2 c, h, w) to (n, c, h, w), keys of half the width.

    Jocher and Qiu, Ultralytics YOLO11, 2024.
    """
    batch, channels, *sides = x.shape
    width = channels // 2
    heads = max(width // step.window[0], 1)
    rows = (batch, heads, prod(sides))
    value_dim = width // heads
    q, k = (b.part(x, *rows, value_dim // 2) for _ in range(2))
    return b.view(b.attention(q, k, b.part(x, *rows, value_dim)), batch, width, *sides)


def _scaled_norm(b: GraphBuilder, x: Tensor, _: LayerStep) -> Tensor:
    """L2 normalisation over channels with a learned scale."""
    channels = x.shape[1]
    rows = x.elements // x.shape[1]
    b.parameters(channels)
    return b.operator(
        OperatorKind.RMS_NORM,
        (rows, channels),
        [x],
        x.shape,
        name="l2_norm",
        weights=channels,
        saves=Saved([x]),
    )


#: Layers that are no plain convolution, by their word.
_OTHERS: Mapping[str, Callable[[GraphBuilder, Tensor, LayerStep], Tensor]] = {
    "pool": _pool,
    "avg": _pool,
    "gap": lambda b, x, _: b.global_pool(x),
    "up": lambda b, x, step: b.upsample(x, step.window[0]),
    "half": _half,
    "attend": _attend,
    "fold": _fold,
    "spread": _spread,
    "flat": lambda b, x, _: b.view(x, x.shape[0], prod(x.shape[1:])),
    "linear": lambda b, x, step: b.linear(x, step.channels(x)),
    "raise": lambda b, x, step: raised(b, x, step.channels(x)),
    "bn": lambda b, x, _: b.batch_norm(x),
    "l2": _scaled_norm,
    "relu": lambda b, x, _: b.activation(x),
}

Step = Values
#: Functions that `backbone` steps name, each from builder, input and options to maps.
BACKBONES: dict[str, Callable[..., Sequence[Tensor]]] = {}


@lru_cache
def _file(network: str) -> Step:
    """A network's file, which is a step itself."""
    return read_yaml(data_root() / "workloads" / "networks" / f"{network}.yaml")


def write_network(
    b: GraphBuilder,
    x: Tensor,
    network: str,
    *,
    maps: dict[str, Tensor] | None = None,
    **values: Any,
) -> Tensor:
    """Write a network of `workloads/networks`.

    Args:
        b: Builder.
        x: Input.
        network: Stem of its file.
        maps: Filled with what its steps keep, by name.
        **values: Values of the names in braces.

    Returns:
        What the last step wrote.
    """
    return Writer(b, values, maps={} if maps is None else maps).write([_file(network)], x)


@frozen
class Writer:
    """Writes steps.

    Attributes:
        b: Builder.
        values: Values of the names in braces.
        style: Options of `chain`.
        maps: What steps kept, by name.
    """

    b: GraphBuilder
    values: Values
    style: Values = field(default_factory=dict)
    maps: dict[str, Tensor] = field(default_factory=dict)

    def write(self, steps: Sequence[Step], x: Tensor) -> Tensor:
        """Write steps one after the other."""
        for step in steps:
            step_style = {
                name: self._filled(value) for name, value in step.get("style", {}).items()
            }
            style = {**self.style, **step_style}
            for values in self._rounds(step):
                inner = replace(self, values={**self.values, **values}, style=style)
                x = inner.step(step, x)
        return x

    def _rounds(self, step: Step) -> Iterator[Document]:
        """Values of the names that a step binds, each time it is written."""
        bindings = {name: self._filled(value) for name, value in step.get("each", {}).items()}
        lists = {
            name: [self._filled(entry) for entry in value]
            for name, value in bindings.items()
            if isinstance(value, list)
        }
        if "times" in step:
            lists["index"] = list(range(int(self._filled(step["times"]))))
        if not lists:
            yield bindings
        for entries in zip(*lists.values(), strict=True):
            yield {**bindings, **dict(zip(lists, entries, strict=True))}

    def _filled(self, value: Any) -> Any:
        """A text with the names in braces replaced; a name alone keeps its value."""
        if not isinstance(value, str):
            return value
        alone = value[1:-1] if value.startswith("{") else ""
        return self.values[alone] if alone in self.values else value.format(**self.values)

    def _map(self, name: str, x: Tensor) -> Tensor:
        return x if name == "input" else self.maps[self._filled(name)]

    def step(self, step: Step, x: Tensor) -> Tensor:
        """Write one step."""
        b = self.b
        if "of" in step:
            names = self._filled(step["of"])
            many = isinstance(names, list)
            x = b.concat([self._map(name, x) for name in names]) if many else self._map(names, x)
        before = x
        with b.scope(self._filled(step.get("scope", ""))):
            x = self._inner(step, x)
        if "layers" in step:
            x = self._chains(self._filled(step.get("name", "")), step["layers"], x)
        x = self._ended(step, x, before)
        if "keep" in step:
            self.maps[self._filled(step["keep"])] = x
        return x

    def _inner(self, step: Step, x: Tensor) -> Tensor:
        """Inner steps, branches or a backbone."""
        if "backbone" in step:
            maps = BACKBONES[step["backbone"]](self.b, x, **step.get("options", {}))
            self.maps.update((f"map{index}", feature_map) for index, feature_map in enumerate(maps))
            return maps[-1]
        if "branches" in step:
            branches = step["branches"].items()
            return self.b.concat([self._chains(self._filled(n), texts, x) for n, texts in branches])
        used = [_file(self._filled(step["use"]))] if "use" in step else []
        return self.write(step.get("steps", used), x)

    def _chains(self, name: str, texts: Any, x: Tensor) -> Tensor:
        for text in texts if isinstance(texts, list) else [texts]:
            x = chain(self.b, x, name, str(self._filled(text)), **self.style)
        return x

    def _ended(self, step: Step, x: Tensor, before: Tensor) -> Tensor:
        """Sum, size and activation after the layers of a step."""
        b = self.b
        if "crop" in step:
            x = b.part(x, *self._map(step["crop"], before).shape)
        for way, name in (("stretch", "upsample"), ("broadcast", "broadcast")):
            if way in step:
                x = b.copy(x, shape=self._map(step[way], before).shape, name=name)
        if "add" in step:
            x = b.add(x, self._map(step["add"], before))
        if "same" in step:
            beside = self._map(step["same"], before)
            x = b.add(x, beside) if x.shape == beside.shape else x
        if "scale" in step:
            x = b.multiply(self._map(step["scale"], before), x, name="scale")
        if "then" in step:
            x = b.activation(x, self._filled(step["then"]))
        return x
