"""Operands of a measured call, and the register of what builds calls.

Data are normal random numbers, never zeros: power, and on some devices time, depend on the bits
that toggle.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from accelsim.calibration.measurement.case import Case
from accelsim.calibration.measurement.plan import pairs, product_of
from accelsim.calibration.measurement.timing import Call

_DTYPES = {
    "fp32": torch.float32,
    "tf32": torch.float32,  # the products of FP32 operands, see `cuda.tf32_products`
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp64": torch.float64,
}
#: Bytes of weights that cold calls cycle through: three times the largest last-level cache of one
#: core complex in use.
COLD_BYTES = 96 * 2**20
_TABLE = Path(__file__).with_name("calls.csv")
#: Dimensions that a case may leave out.
_DEFAULTS = {"stride": 2, "dilation": 1, "taps": 2, "k": 2}
#: Most copies of the weights; smaller weights are not worth more.
MOST_COPIES = 1024


def torch_dtype(label: str) -> torch.dtype:
    """The torch format of a label such as "bf16"."""
    return _DTYPES[label]


class OperandPool:
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
        self._values: dict[torch.dtype, Tensor] = {}
        self._position = 0

    def take(self, dtype: torch.dtype, *sizes: int) -> Tensor:
        """The next part of the pool, as a view; longer tensors than the pool repeat it, in memory
        of their own.
        """
        count = math.prod(sizes)
        values = self._values_of(dtype)
        if count > self.COUNT:
            return _repeated(values, count).view(sizes)
        if self._position + count > self.COUNT:
            self._position = 0
        start = self._position
        self._position += -(-count // self._ALIGNMENT) * self._ALIGNMENT
        return values[start : start + count].view(sizes)

    def copy(self, dtype: torch.dtype, *sizes: int) -> Tensor:
        """The next part of the pool, copied."""
        values = self.take(dtype, *sizes)
        return values if values.numel() > self.COUNT else values.clone()

    def indices(self, below: int, *sizes: int) -> Tensor:
        """Uniform random integers from 0 to `below` - 1."""
        return torch.randint(below, sizes, generator=self.generator, device=self.device)

    def _values_of(self, dtype: torch.dtype) -> Tensor:
        if dtype not in self._values:
            drawn = torch.randn(self._DRAWN, generator=self.generator, device=self.device)
            self._values[dtype] = _repeated(drawn.to(dtype), self.COUNT)
        return self._values[dtype]


def _repeated(values: Tensor, count: int) -> Tensor:
    copies, remainder = divmod(count, len(values))
    return torch.cat([values] * copies + [values[:remainder]])


class Operands:
    """Makes operands of one case.

    Args:
        case: The case.
        numbers: Where they come from.

    Attributes:
        written: Tensors that the operator before would have written.
        weights: Tensors that belong to the model.
    """

    def __init__(self, case: Case, numbers: OperandPool) -> None:
        self.operator = case.operator
        self.shape = {**_DEFAULTS, **case.shape}
        self.device = numbers.device
        self.dtype = torch_dtype(case.dtype)
        self.written: list[Tensor] = []
        self.weights: list[Tensor] = []
        self._numbers = numbers
        self._inputs: dict[tuple[int, ...], Tensor] = {}

    def sizes(self, names: str) -> list[int]:
        """Dimensions of the case, literal sizes and products of both, by names apart."""
        return [int(product_of(name, self.shape)) for name in names.split()]

    def option(self, text: str) -> object:
        """An argument that is no tensor: a literal, sizes, a list with commas, "dtype", a word."""
        if text == "dtype":
            return self.dtype
        if "," in text:
            return [self.option(item) for item in text.split(",") if item]
        with suppress(ValueError):
            return json.loads(text)
        with suppress(ValueError):
            return int(product_of(text, self.shape))
        return text

    def values(self, *sizes: int, dtype: torch.dtype | None = None) -> Tensor:
        """Numbers that the operator before has just written."""
        result = self.stored(*sizes, dtype=dtype)
        self.written.append(result.data)  # not the tensor: autograd would count the writes
        return result

    def single(self, *sizes: int) -> Tensor:
        """New values in 32 bits, for what a library has in no fewer."""
        return self.values(*sizes, dtype=torch.float32)

    def stored(self, *sizes: int, dtype: torch.dtype | None = None) -> Tensor:
        """Numbers that were written long ago: saved activations."""
        return self._numbers.copy(dtype or self.dtype, *sizes)

    def weight(self, *sizes: int) -> torch.nn.Parameter:
        """Weights: another part of the pool each time."""
        values = self._numbers.take(self.dtype, *sizes)
        result = torch.nn.Parameter(values, requires_grad=False)
        self.weights.append(result)
        return result

    def table(self, *sizes: int) -> Tensor:
        """Weights in memory of their own, as lookups find them."""
        result = self.stored(*sizes)
        self.weights.append(result)
        return result

    def learned(self, *sizes: int) -> Tensor:
        """A table that wants gradients, as a model's does: without, the framework skips the sizes
        of bags.
        """
        return self.table(*sizes).requires_grad_()

    def input(self, *sizes: int) -> Tensor:
        """Activations: the same tensor for all calls of the case."""
        if sizes not in self._inputs:
            self._inputs[sizes] = self.values(*sizes)
        return self._inputs[sizes]

    def indices(self, below: int, *sizes: int) -> Tensor:
        """Uniform random integers from 0 to `below` - 1."""
        return self._numbers.indices(below, *sizes)

    def mask(self, *sizes: int) -> Tensor:
        """What is kept of saved activations: half of them."""
        return self.stored(*sizes) > 0

    def layer(self, kind: Callable[..., torch.nn.Module], *sizes: int) -> torch.nn.Module:
        """A module with weights of its own, in the case's format."""
        result = kind(*sizes, device=self.device, dtype=self.dtype)
        self.weights += [*result.parameters(), *result.buffers()]
        return result

    def operand(self, text: str) -> Tensor:
        """An operand by its role and dimensions, as "weight: n k"; without role, new values.

        What follows an arrow is the order in which its axes are seen.
        """
        role, _, axes = text.rpartition(": ")
        names, _, order = axes.partition(" -> ")
        make = getattr(self, role or "values")
        result: Tensor = make(*self.sizes(names))
        return result.permute(*map(names.split().index, order.split())) if order else result


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


def read_calls() -> None:
    """Register every call of the table ``calls.csv`` beside this module.

    A line names an operator, a function, its operands as `Operands.operand` reads them, apart by
    semicolons (those after ``name=`` by name), and further arguments as `Operands.option` does.
    """
    with _TABLE.open(newline="", encoding="utf-8") as lines:
        for line in csv.DictReader(lines):
            builds(line["operator"])(_tabled(**line))


def _tabled(operator: str, call: str, operands: str, options: str) -> Builder:
    """The builder of one line."""
    del operator
    function = attrgetter(call.removeprefix("torch."))(torch)
    operand_texts = [text.rpartition("=") for text in operands.split("; ")]
    option_texts = pairs(options)

    def build(source: Operands) -> Call:
        tensors = [(name, source.operand(operand)) for name, _, operand in operand_texts]
        keywords = {name: x for name, x in tensors if name}
        keywords |= {name: source.option(operand) for name, operand in option_texts.items()}
        return partial(function, *(x for name, x in tensors if not name), **keywords)

    return build
