"""What the capture asks of a torch operator: is it a view, composite, pointwise, sized by data,
small enough to follow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from math import prod
from typing import Any

import torch
from torch._prims_common import suggest_memory_format

from accelsim.plain import Values
from accelsim.workloads.capture.torch.aten import names
from accelsim.workloads.capture.torch.meta_module import KNOWN_ELEMENTS, tensors_in
from accelsim.workloads.pointwise import POINTWISE_FLOP

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


def main_dtype(module: torch.nn.Module) -> torch.dtype:
    """The dtype most of a module's parameters have; float32 for a module without any."""
    sizes = Counter[torch.dtype]()
    for x in module.parameters():
        if x.dtype.is_floating_point:
            sizes[x.dtype] += x.numel()
    return max(sizes, key=lambda dtype: sizes[dtype], default=torch.float32)


def as_laid_out(func: Any, args: tuple[Any, ...], result: Any) -> Any:
    """A result on the meta device as libraries lay it out.

    A convolved image has its channels together where the image or the weights have (ATen
    ConvUtils.h); the meta device knows that of gradients alone.
    """
    if func is not torch.ops.aten.convolution.default or result.dim() != 4:
        return result
    together = any(suggest_memory_format(x) is torch.channels_last for x in args[:2])
    return result.contiguous(memory_format=torch.channels_last) if together else result


@cache
def is_composite(func: Any) -> bool:
    """Whether torch would have split the operator had autograd been on (it is not under inference
    mode).

    What devices have a kernel for (the gradients of SiLU and Mish) is split on the meta device
    alone.
    """
    keys, has = torch._C.DispatchKey, torch._C._dispatch_has_kernel_for_dispatch_key  # noqa: SLF001
    composite = has(func.name(), keys.CompositeImplicitAutograd)
    return bool(composite and not has(func.name(), keys.CPU))


#: Operators whose real result is never worth computing.
UNKNOWABLE = names("mm addmm bmm convolution empty empty_like new_empty empty_strided")


def too_large(args: tuple[Any, ...], keywords: Values, inputs: Sequence[torch.Tensor]) -> bool:
    """Whether computing the value for real could take notable time or memory."""
    asked = _asked_elements(args if inputs else (*args, *keywords.values()))
    return bool(max(asked, sum(x.numel() for x in inputs)) > KNOWN_ELEMENTS)


def _asked_elements(arguments: Iterable[Any]) -> int:
    """Upper bound of the elements that sizes and ranges among the arguments can ask for."""
    largest = 1
    for value in arguments:
        if isinstance(value, (list, tuple)) and value and all(isinstance(x, int) for x in value):
            largest = max(largest, prod(abs(x) for x in value))
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e15:
            largest = max(largest, int(abs(value)))
    return largest


def scalar_draw(name: str, size: Any) -> torch.Tensor | None:
    """A single random number at its median, so that code that branches on it takes the likelier
    way.
    """
    if not isinstance(size, (list, tuple)) or prod(size) != 1:
        return None
    return torch.full(tuple(size), {"rand": 0.5, "randn": 0.0}[name])


def wide_grouped_product(func: Any, args: tuple[Any, ...], keywords: Values) -> torch.Tensor:
    """Result of ``_grouped_mm`` in a dtype that its shape function, unlike its kernels, refuses."""
    a, b = (
        torch.empty_strided(x.shape, x.stride(), dtype=torch.bfloat16, device="meta")
        for x in args[:2]
    )
    result: torch.Tensor = func(a, b, *args[2:], **keywords)
    return torch.empty_strided(result.shape, result.stride(), dtype=args[0].dtype, device="meta")


def tensor_parts(values: Any) -> list[torch.Tensor]:
    """Every tensor in nested containers; of a sparse one, the values it stores."""
    tensors = tensors_in(values)
    return [x if x.layout is torch.strided else x._values() for x in tensors]  # noqa: SLF001


def data_sized(func: Any, args: tuple[Any, ...]) -> bool:
    """Whether this call's result size is data: indexing is only by boolean masks."""
    if func is not torch.ops.aten.index.Tensor:
        return True
    return any(x is not None and x.dtype in {torch.bool, torch.uint8} for x in args[1])


def tensor_arguments(func: Any) -> list[Any]:
    """Schema entries of an operator's tensors."""
    return [argument for argument in func._schema.arguments if "Tensor" in str(argument.type)]  # noqa: SLF001


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
