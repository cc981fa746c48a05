"""Meta twins of modules and inputs: the same shapes without memory.

A module is copied with every parameter, buffer and stray tensor replaced by a meta tensor, so that
the caller's module is never touched and nothing is allocated; a factory is called under the meta
device. Small real tensors keep their values beside the twins.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map_only

from accelsim.errors import CaptureError
from accelsim.plain import Document, Values

T = TypeVar("T")
#: Positional and keyword arguments of one call.
Inputs = tuple[tuple[Any, ...], Document]
#: Meta tensors with the real tensors they stand for.
Known = list[tuple[Tensor, Tensor]]
#: Devices that the machine of the capture may not have.
_ACCELERATOR = re.compile(r"(cuda|hpu|mps|xpu)(:\d+)?")
#: Largest real tensor whose value is kept and followed.
KNOWN_ELEMENTS = 16384


class AcceleratorOnMeta(TorchFunctionMode):  # type: ignore[misc]
    """Sends tensors that code makes on, or moves to, an accelerator to the meta device."""

    def __torch_function__(
        self, func: Any, types: object, args: Any = (), kwargs: Any = None
    ) -> Any:
        """The call with its accelerator replaced."""
        if func is Tensor.cuda:
            return args[0].to("meta")
        if func is torch.device:
            return func(*args, **(kwargs or {}))
        keywords = {name: _instead_of_accelerator(value) for name, value in (kwargs or {}).items()}
        return func(*map(_instead_of_accelerator, args), **keywords)


def _instead_of_accelerator(value: object) -> object:
    is_accelerator = isinstance(value, str | torch.device) and _ACCELERATOR.fullmatch(str(value))
    return torch.device("meta") if is_accelerator else value


def meta_like(x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """An empty tensor on the meta device that lies as another, of its data type unless given."""
    return torch.empty_strided(tuple(x.shape), x.stride(), dtype=dtype or x.dtype, device="meta")


def made(factory: Callable[[], T]) -> T:
    """What a factory makes on the meta device."""
    with torch.device("meta"), AcceleratorOnMeta():
        return factory()


#: Tokens and side of an image of inputs that nobody gave.
_USUAL_TOKENS = 128
_USUAL_SIDE = 224


def resolve(module: Any, example_inputs: Any) -> tuple[torch.nn.Module, Inputs]:
    """The module, and its inputs as positional and keyword arguments."""
    result = module
    if not isinstance(module, torch.nn.Module):
        if not callable(module):
            raise CaptureError(
                f"module = {type(module).__name__} is not allowed: expected a torch.nn.Module or "
                f"a factory."
            )
        result = _call_factory(module)
    keywords: Values = {}
    has_inputs = isinstance(result, tuple) and 2 <= len(result) <= 3
    if has_inputs and isinstance(result[0], torch.nn.Module):
        result, factory_inputs, *factory_keywords = result
        if example_inputs is None:
            example_inputs, keywords = factory_inputs, dict(*factory_keywords)
    if not isinstance(result, torch.nn.Module):
        raise CaptureError(
            f"The factory returned {type(result).__name__}: expected a torch.nn.Module."
        )
    if example_inputs is None:
        example_inputs = _usual_inputs(result)
    arguments, named_inputs = _arguments(example_inputs)
    return result, (arguments, {**named_inputs, **keywords})


def _usual_inputs(module: torch.nn.Module) -> object:
    """Inputs that a module names itself (Lightning's ``example_input_array``, transformers'
    ``dummy_inputs``), or one sample as its first layer takes it.

    Raises:
        CaptureError: If neither is known.
    """
    for name in ("example_input_array", "dummy_inputs"):
        inputs = getattr(module, name, None)
        if inputs is not None:
            return inputs
    layer = next((inner for inner in module.modules() if not list(inner.children())), None)
    if isinstance(layer, torch.nn.Linear):
        return torch.empty(1, layer.in_features, device="meta")
    if isinstance(layer, torch.nn.Embedding):
        return torch.empty(1, _USUAL_TOKENS, dtype=torch.int64, device="meta")
    if isinstance(layer, torch.nn.Conv2d):
        return torch.empty(1, layer.in_channels, _USUAL_SIDE, _USUAL_SIDE, device="meta")
    raise CaptureError(
        "example_inputs are missing: give a tensor, a tuple of arguments or a mapping of keywords."
    )


def _call_factory(factory: Callable[[], T]) -> T:
    """Call a factory on the meta device; if it cannot work there, for real."""
    try:
        return made(factory)
    except (Exception, SystemExit) as meta_error:  # noqa: BLE001 - any user code may run here
        try:
            return factory()
        except (Exception, SystemExit) as error:
            label = getattr(factory, "__name__", type(factory).__name__)
            raise CaptureError(
                f"The factory {label} failed: {brief(error)} (on the meta device: "
                f"{brief(meta_error)}). It is called without arguments and returns a "
                "torch.nn.Module."
            ) from error


def _arguments(example_inputs: object) -> Inputs:
    if isinstance(example_inputs, Mapping):
        return (), dict(example_inputs)
    if isinstance(example_inputs, Tensor):
        return (example_inputs,), {}
    if isinstance(example_inputs, (tuple, list)):
        return tuple(example_inputs), {}
    kind = type(example_inputs).__name__
    raise CaptureError(
        f"example_inputs = {kind} is not allowed: expected a tensor, a tuple of arguments or a "
        "mapping."
    )


class _MetaTwins:
    """Meta twins of tensors, one per tensor, views of one storage apart."""

    def __init__(self) -> None:
        self.memo: dict[int, Tensor] = {}
        self.known: Known = []

    def twin(self, x: Tensor) -> Tensor:
        """The meta twin of a tensor; the same one each time."""
        if id(x) in self.memo:
            return self.memo[id(x)]
        data = meta_like(x)
        if isinstance(x, torch.nn.Parameter):
            twin = torch.nn.Parameter(data, requires_grad=x.requires_grad)
        else:
            twin = data.requires_grad_(x.requires_grad)
            if not x.is_meta and x.numel() <= KNOWN_ELEMENTS:
                self.known.append((twin, x))
        self.memo[id(x)] = twin
        self.memo.setdefault(-id(x), x)  # keeps the original alive while its id is a key
        return twin


def meta_copy(module: torch.nn.Module) -> tuple[torch.nn.Module, Known]:
    """A copy of the module whose tensors are all on the meta device, and the values of its small
    buffers.
    """
    twins = _MetaTwins()

    class OnMeta(TorchFunctionMode):  # type: ignore[misc]
        """Tensors met while copying that no module has registered become meta tensors too."""

        def __torch_function__(
            self, func: Any, types: object, args: Any = (), kwargs: Any = None
        ) -> Any:
            if func is Tensor.__deepcopy__:
                return twins.twin(args[0])
            return func(*args, **(kwargs or {}))

    for x in (*module.parameters(), *module.buffers()):
        if type(x).__name__ in {"UninitializedParameter", "UninitializedBuffer"}:
            raise CaptureError(
                "The module has lazy parameters without a shape. Run it once before capturing it."
            )
        twins.twin(x)
    try:
        with OnMeta():
            return copy.deepcopy(module, twins.memo), twins.known
    except Exception as error:
        raise CaptureError(
            f"{type(module).__name__} cannot be copied to the meta device ({brief(error)}). Pass "
            f"a function that makes it."
        ) from error


def meta_inputs(inputs: Inputs) -> tuple[Inputs, Known]:
    """Inputs on the meta device, and the values of the small real ones."""
    twins = _MetaTwins()
    twin: Inputs = tree_map_only(Tensor, twins.twin, inputs)
    return twin, twins.known


def batch_size(inputs: Inputs, dimension: int | None) -> int | None:
    """Size of the batch axis of the first input tensor that has one."""
    if dimension is None:
        return None
    sizes = (int(x.shape[dimension]) for x in tensors_in(inputs) if x.dim() > dimension)
    return next(sizes, None)


def tensors_in(values: object) -> list[Tensor]:
    """Every tensor in nested containers."""
    return [x for x in tree_flatten(values)[0] if isinstance(x, Tensor)]


def scaled_inputs(inputs: Inputs, batch: int, dimension: int, factor: int) -> Inputs:
    """Inputs with every batch axis `factor` times as long."""
    if factor == 1:
        return inputs

    @cache  # an input given twice stays one tensor
    def grow(x: Tensor) -> Tensor:
        if x.dim() <= dimension or x.shape[dimension] != batch:
            return x
        repeats = [factor if axis == dimension else 1 for axis in range(x.dim())]
        if x.is_meta or x.numel() > KNOWN_ELEMENTS:
            shape = [size * times for size, times in zip(x.shape, repeats, strict=True)]
            return torch.empty(shape, dtype=x.dtype, device="meta", requires_grad=x.requires_grad)
        return x.detach().repeat(repeats).requires_grad_(x.requires_grad)

    grown: Inputs = tree_map_only(Tensor, grow, inputs)
    return grown


def brief(error: BaseException) -> str:
    """First line of an error, with its type."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:200]}" if text else type(error).__name__
