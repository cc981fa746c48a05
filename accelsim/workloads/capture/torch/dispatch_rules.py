"""An operator as torch dispatches it, and what the capture asks of it: is it a view, composite,
pointwise, sized by data, small enough to follow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._prims_common import suggest_memory_format

from accelsim.frozen import frozen
from accelsim.plain import Document, Values
from accelsim.workloads.capture.torch.aten import names
from accelsim.workloads.capture.torch.meta_module import KNOWN_ELEMENTS, meta_like, tensors_in
from accelsim.workloads.pointwise import POINTWISE_FLOP

_ATEN = torch.ops.aten
#: Operators whose real result is never worth computing.
UNKNOWABLE = names("mm addmm bmm convolution empty empty_like new_empty empty_strided")
#: Operators refused by name, with what to do instead.
REFUSED = {
    "_pack_padded_sequence": "packs sequences into a layout that is data. Pass padded sequences "
    "to the recurrent layer.",
    "_pad_packed_sequence": "unpacks sequences whose layout is data. Pass padded sequences to the "
    "recurrent layer.",
    "_nested_tensor_from_mask_left_aligned": "leaves out padded tokens, so that sizes are data. "
    "Make nn.TransformerEncoder "
    "with enable_nested_tensor=False, or pass no src_key_padding_mask.",
}


@frozen(eq=False)
class Dispatch:
    """One dispatched operator.

    Attributes:
        name: ATen name without overload ("addmm").
        overload: The operator.
        args: Positional arguments.
        keywords: Keyword arguments.
        inputs: Tensors among the arguments.
    """

    name: str
    overload: OpOverload
    args: tuple[Any, ...]
    keywords: Document
    inputs: Sequence[Tensor]

    @property
    def schema(self) -> torch.FunctionSchema:
        """What the operator takes and returns."""
        return self.overload._schema  # noqa: SLF001

    @property
    def arguments(self) -> Values:
        """Arguments by their names in the schema, in the order given, and defaults behind them."""
        parameters = self.schema.arguments
        names = (parameter.name for parameter in parameters)
        arguments = dict(zip(names, self.args, strict=False)) | self.keywords
        missing = (x for x in parameters if x.name not in arguments and x.has_default_value())
        return arguments | {x.name: x.default_value for x in missing}

    @property
    def mutated(self) -> list[Tensor]:
        """Tensors among the arguments that the operator writes."""
        if not self.schema.is_mutable:
            return []
        arguments = self.arguments
        aliases = ((x.name, x.alias_info) for x in self.schema.arguments)
        return tensor_parts(
            [arguments[name] for name, alias in aliases if alias and alias.is_write]
        )

    @property
    def is_sized_by_data(self) -> bool:
        """Whether its result's size may be data: indexing is so by boolean masks alone."""
        return self.overload is not _ATEN.index.Tensor or any(map(is_mask, self.args[1]))

    @property
    def is_large(self) -> bool:
        """Whether computing its value for real could take notable time or memory."""
        sizes = self.args if self.inputs else (*self.args, *self.keywords.values())
        read_elements: int = sum(x.numel() for x in self.inputs)
        return max(_requested_elements(sizes), read_elements) > KNOWN_ELEMENTS


def _requested_elements(arguments: Iterable[object]) -> int:
    """Upper bound of the elements that sizes and ranges among the arguments can ask for."""
    largest = 1
    for value in arguments:
        if isinstance(value, (list, tuple)) and value and all(isinstance(x, int) for x in value):
            largest = max(largest, prod(abs(x) for x in value))
        elif isinstance(value, (int, float)) and abs(value) < 1e15:
            largest = max(largest, int(abs(value)))
    return largest


def tensor_parts(values: object) -> list[Tensor]:
    """Every tensor in nested containers; of a sparse one, the values it stores."""
    tensors = tensors_in(values)
    return [x if x.layout is torch.strided else x._values() for x in tensors]  # noqa: SLF001


def is_mask(index: Tensor | None) -> bool:
    """Whether an index picks elements by true and false."""
    return index is not None and index.dtype in {torch.bool, torch.uint8}


def main_dtype(module: torch.nn.Module) -> torch.dtype:
    """The dtype most of a module's parameters have; float32 for a module without any."""
    sizes = Counter[torch.dtype]()
    for x in module.parameters():
        if x.dtype.is_floating_point:
            sizes[x.dtype] += x.numel()
    return max(sizes, key=lambda dtype: sizes[dtype], default=torch.float32)


def as_laid_out(call: Dispatch, result: Any) -> Any:
    """A result on the meta device as libraries lay it out.

    A convolved image has its channels together where the image or the weights have (ATen
    ConvUtils.h); the meta device knows that of gradients alone.
    """
    if call.overload is not _ATEN.convolution.default or result.dim() != 4:
        return result
    is_together = any(suggest_memory_format(x) is torch.channels_last for x in call.args[:2])
    return result.contiguous(memory_format=torch.channels_last) if is_together else result


@cache
def is_composite(overload: OpOverload) -> bool:
    """Whether torch would have split the operator had autograd been on (it is not under inference
    mode).

    What devices have a kernel for (the gradients of SiLU and Mish) is split on the meta device
    alone.
    """
    keys, has = torch._C.DispatchKey, torch._C._dispatch_has_kernel_for_dispatch_key  # noqa: SLF001
    composite = has(overload.name(), keys.CompositeImplicitAutograd)
    return bool(composite and not has(overload.name(), keys.CPU))


def scalar_draw(name: str, size: Sequence[int]) -> Tensor | None:
    """A single random number at its median, so that code that branches on it takes the likelier
    way.
    """
    if prod(size) != 1:
        return None
    return torch.full(tuple(size), {"rand": 0.5, "randn": 0.0}[name])


def wide_grouped_product(call: Dispatch) -> Tensor:
    """Result of ``_grouped_mm`` in a dtype that its shape function, unlike its kernels, refuses."""
    a, b = (meta_like(x, torch.bfloat16) for x in call.args[:2])
    result: Tensor = call.overload(a, b, *call.args[2:], **call.keywords)
    return meta_like(result, call.args[0].dtype)


_POINTWISE_NAMES = names(
    """
    fill zero zeros ones full arange linspace scalar_tensor rand randn randint randperm normal
    uniform random bernoulli exponential dropout where masked_fill tril triu eye one_hot
    floor_divide polar complex binary_cross_entropy_with_logits remainder fmod
    """
)


def is_pointwise_name(name: str) -> bool:
    """Whether an operator torch does not tag pointwise is so all the same."""
    plain = name.rstrip("_").removeprefix("new_").removesuffix("_like")
    forward = plain.removesuffix("_backward")
    is_named = plain in _POINTWISE_NAMES or forward in POINTWISE_FLOP
    return is_named or forward.endswith(("dropout", "loss", "loss2d"))
