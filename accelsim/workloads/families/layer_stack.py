"""Chains of layers written out in the workload file: perceptrons, LeNet, AlexNet, VGG.

A file lists sections ("features", "classifier"), each a list of layers; an entry expands into
convolution or linear, normalisation and activation, numbered as in a torch ``nn.Sequential``, so
that module paths equal torchvision's.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Annotated, Literal

from pydantic import Field, model_validator

from accelsim.errors import InvalidValueError
from accelsim.workloads.builder import GraphBuilder, Tensor
from accelsim.workloads.family_parameters import Count, Counts, Depth, FamilyParameters
from accelsim.workloads.model import PassShape, family
from accelsim.workloads.operator import OperatorKind

Activation = Literal["relu", "relu6", "leaky_relu", "sigmoid", "tanh", "silu", "gelu", "hardswish"]


class Layer(FamilyParameters):
    """One entry: exactly one of conv, linear, pool, adaptive_pool, dropout, or flatten.

    Attributes:
        conv: Output channels of a convolution.
        linear: Output features of a fully connected layer.
        pool: "max" or "avg" pooling.
        adaptive_pool: Side of the output of adaptive average pooling.
        dropout: A layer that does nothing at inference but has a number.
        flatten: Join all but the first axis.
        kernel: Window of conv or pool.
        stride: Step; the window of a pool, 1 of a conv if left out.
        padding: Zeros on each side; "same" for a conv if left out, none for a pool.
        channels_in: Input maps each output map is connected to, where not all (LeCun 1989).
        bias: Whether there is one bias per output channel; "unit" gives every output element its
            own (LeCun 1989).
        norm: "batch" adds batch normalisation.
        activation: Activation after it.
        repeat: Times the entry is repeated.
    """

    conv: Count | None = None
    linear: Count | None = None
    pool: Literal["max", "avg"] | None = None
    adaptive_pool: Count | None = None
    dropout: bool = False
    flatten: bool = False
    kernel: Count = 1
    stride: Count | None = None
    padding: Annotated[int, Field(ge=0, le=1024)] | None = None
    channels_in: Count | None = None
    bias: bool | Literal["unit"] = True
    norm: Literal["batch"] | None = None
    activation: Activation | None = None
    repeat: Depth = 1

    @model_validator(mode="after")
    def _one_kind(self) -> Layer:
        kinds = [
            self.conv,
            self.linear,
            self.pool,
            self.adaptive_pool,
            self.dropout or None,
            self.flatten or None,
        ]
        if sum(kind is not None for kind in kinds) != 1:
            raise ValueError(
                "a layer is exactly one of conv, linear, pool, adaptive_pool, dropout, flatten"
            )
        return self


class LayersParameters(FamilyParameters):
    """A chain of layers.

    Attributes:
        input: Shape of one sample: [features] or [channels, height, width].
        sections: Layers by section, in order; the section's name starts the module path ("" for
            none).
    """

    input: Counts
    sections: Annotated[dict[str, list[Layer]], Field(min_length=1)]


@family("layers", LayersParameters, image=True)
def write_layers(b: GraphBuilder, p: LayersParameters, shape: PassShape) -> None:
    """Write the sections one after the other."""
    sample = p.input
    if shape.image_size and len(sample) == 3:
        sample = (sample[0], shape.image_size, shape.image_size)
    x = b.input(shape.batch, *sample)
    for section, layers in p.sections.items():
        index = iter(range(2**30))
        for layer in layers:
            for _ in range(layer.repeat):
                x = _layer(b, x, layer, section, index)


def _layer(b: GraphBuilder, x: Tensor, layer: Layer, section: str, index: Iterator[int]) -> Tensor:
    if layer.flatten:
        return b.view(x, x.shape[0], prod(x.shape[1:]))  # not a module of its own in torchvision
    prefix = f"{section}." if section else ""
    with b.scope(f"{prefix}{next(index)}"):
        x = _body(b, x, layer)
    if layer.norm:
        x = b.batch_norm(x, at=f"{prefix}{next(index)}")
    if layer.activation:
        x = b.activation(x, layer.activation, at=f"{prefix}{next(index)}")
    return x


def _body(b: GraphBuilder, x: Tensor, layer: Layer) -> Tensor:
    if (layer.conv or layer.pool or layer.adaptive_pool) and len(x.shape) < 3:
        allowed = "a batch of channels and positions before conv and pool"
        raise InvalidValueError("layer input", x.shape, allowed)
    if layer.conv:
        return _conv(b, x, layer, layer.conv)
    if layer.linear:
        return b.linear(x, layer.linear, bias=layer.bias is True)
    if layer.pool:
        return b.pool(
            x, layer.kernel, stride=layer.stride, padding=layer.padding or 0, mode=layer.pool
        )
    return b.global_pool(x, layer.adaptive_pool) if layer.adaptive_pool else x


def _conv(b: GraphBuilder, x: Tensor, layer: Layer, channels: int) -> Tensor:
    if layer.channels_in is not None:
        x = b.part(x, x.shape[0], layer.channels_in, *x.shape[2:])
    stride, bias = layer.stride or 1, layer.bias is True
    x = b.conv(x, channels, layer.kernel, stride=stride, padding=layer.padding, bias=bias)
    if layer.bias != "unit":
        return x
    weights = prod(x.shape[1:])
    b.parameters(weights)
    dims = (x.elements, 2, 1)
    return b.operator(OperatorKind.ELEMENTWISE, dims, [x], x.shape, name="bias", weights=weights)
