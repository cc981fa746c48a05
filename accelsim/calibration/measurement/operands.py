"""Operands of a measured call, and the register of what builds calls.

Data are normal random numbers, never zeros: power, and on some devices time, depend on the bits
that toggle.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, Protocol

import torch

from accelsim.calibration.measurement.case import Case

__all__ = [
    "BUILDERS",
    "COLD_BYTES",
    "DTYPES",
    "MOST_COPIES",
    "Builder",
    "Call",
    "Numbers",
    "Operands",
    "Pool",
    "builds",
    "of",
    "torch_dtype",
]

Call = Callable[[], Any]

#: Formats by label.
DTYPES: Final = {
    "fp32": torch.float32,
    "tf32": torch.float32,  # the products of FP32 operands, see `cuda.tf32_products`
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp64": torch.float64,
}
#: Bytes of weights that cold calls cycle through: three times the largest last-level cache of one
#: core complex in use.
COLD_BYTES: Final = 96 * 2**20
#: Most copies of the weights; smaller weights are not worth more.
MOST_COPIES: Final = 1024


def torch_dtype(label: str) -> torch.dtype:
    """The torch format of a label such as "bf16"."""
    return DTYPES[label]


class Numbers(Protocol):
    """Where operands come from."""

    @property
    def device(self) -> str:
        """Device they lie on."""
        ...

    def take(self, dtype: torch.dtype, *sizes: int) -> torch.Tensor:
        """A tensor of these sizes, as a view where that is possible."""
        ...

    def own(self, dtype: torch.dtype, *sizes: int) -> torch.Tensor:
        """A tensor of these sizes in memory of its own."""
        ...

    def indices(self, below: int, *sizes: int) -> torch.Tensor:
        """Integers from 0 to `below` - 1."""
        ...


class Pool:
    """Random numbers, made once per format and device, that operands are cut from.

    Making them anew for each case would take longer than measuring it.
    """

    #: Elements of the pool; as bf16 they exceed `COLD_BYTES`.
    COUNT: Final = COLD_BYTES // 2 + 2**20
    _DRAWN: Final = 2**21
    _ALIGNMENT: Final = 64

    def __init__(self, device: str, seed: int = 0) -> None:
        self.device = device
        self.generator = torch.Generator(device=device).manual_seed(seed)
        self._values: dict[torch.dtype, torch.Tensor] = {}
        self._place = 0

    def take(self, dtype: torch.dtype, *sizes: int) -> torch.Tensor:
        """The next part of the pool, as a view; longer tensors than the pool repeat it, in memory
        of their own.
        """
        count = math.prod(sizes)
        values = self._of(dtype)
        if count > self.COUNT:
            return _repeated(values, count).view(sizes)
        if self._place + count > self.COUNT:
            self._place = 0
        start = self._place
        self._place += -(-count // self._ALIGNMENT) * self._ALIGNMENT
        return values[start : start + count].view(sizes)

    def own(self, dtype: torch.dtype, *sizes: int) -> torch.Tensor:
        """The next part of the pool, copied."""
        taken = self.take(dtype, *sizes)
        return taken if taken.numel() > self.COUNT else taken.clone()

    def indices(self, below: int, *sizes: int) -> torch.Tensor:
        """Uniform random integers from 0 to `below` - 1."""
        return torch.randint(below, sizes, generator=self.generator, device=self.device)

    def _of(self, dtype: torch.dtype) -> torch.Tensor:
        if dtype not in self._values:
            drawn = torch.randn(self._DRAWN, generator=self.generator, device=self.device)
            self._values[dtype] = _repeated(drawn.to(dtype), self.COUNT)
        return self._values[dtype]


def _repeated(values: torch.Tensor, count: int) -> torch.Tensor:
    whole, rest = divmod(count, len(values))
    return torch.cat([values] * whole + [values[:rest]])


class Operands:
    """Makes operands of one case.

    Args:
        case: The case.
        numbers: Where they come from.

    Attributes:
        written: Tensors that the operator before would have written.
        weights: Tensors that belong to the model.
    """

    def __init__(self, case: Case, numbers: Numbers) -> None:
        self.operator = case.operator
        self.shape = case.shape
        self.device = numbers.device
        self.dtype = torch_dtype(case.dtype)
        self.written: list[torch.Tensor] = []
        self.weights: list[torch.Tensor] = []
        self._numbers = numbers
        self._inputs: dict[tuple[int, ...], torch.Tensor] = {}

    def sizes(self, names: str) -> list[int]:
        """Dimensions of the case, and literal sizes, by names apart."""
        return [self.shape[name] if name in self.shape else int(name) for name in names.split()]

    def values(self, *sizes: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Numbers that the operator before has just written."""
        result = self.stored(*sizes, dtype=dtype)
        self.written.append(result.data)  # not the tensor: autograd would count the writes
        return result

    def stored(self, *sizes: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Numbers that were written long ago: saved activations."""
        return self._numbers.own(dtype or self.dtype, *sizes)

    def weight(self, *sizes: int) -> torch.nn.Parameter:
        """Weights: another part of the pool each time."""
        taken = self._numbers.take(self.dtype, *sizes)
        result = torch.nn.Parameter(taken, requires_grad=False)
        self.weights.append(result)
        return result

    def table(self, *sizes: int) -> torch.Tensor:
        """Weights in memory of their own, as lookups find them."""
        result = self.stored(*sizes)
        self.weights.append(result)
        return result

    def input(self, *sizes: int) -> torch.Tensor:
        """Activations: the same tensor for all calls of the case."""
        if sizes not in self._inputs:
            self._inputs[sizes] = self.values(*sizes)
        return self._inputs[sizes]

    def indices(self, below: int, *sizes: int) -> torch.Tensor:
        """Uniform random integers from 0 to `below` - 1."""
        return self._numbers.indices(below, *sizes)

    def layer(self, kind: Callable[..., torch.nn.Module], *sizes: Any) -> torch.nn.Module:
        """A module with weights of its own, in the case's format."""
        result = kind(*sizes, device=self.device, dtype=self.dtype)
        self.weights += [*result.parameters(), *result.buffers()]
        return result

    def operand(self, text: str) -> torch.Tensor:
        """An operand by its role and dimensions, as "weight: n k"; without role, new values."""
        role, _, names = text.rpartition(":")
        make = getattr(self, role) if role else self.values
        result: torch.Tensor = make(*self.sizes(names))
        return result


Builder = Callable[[Operands], Call]
#: Builders by operator.
BUILDERS: dict[str, Builder] = {}


def builds(*operators: str) -> Callable[[Builder], Builder]:
    """Register a builder of operators by name; a name has one builder."""

    def add(builder: Builder) -> Builder:
        for operator in operators:
            if operator in BUILDERS:
                raise ValueError(f"{operator} has a builder already")
            BUILDERS[operator] = builder
        return builder

    return add


def of(function: Callable[..., Any], *operands: str) -> Builder:
    """A builder of calls of `function` on operands as `Operands.operand` reads them."""

    def build(source: Operands) -> Call:
        tensors = [source.operand(text) for text in operands]
        return lambda: function(*tensors)

    return build
