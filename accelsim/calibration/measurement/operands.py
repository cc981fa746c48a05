"""Operands of a case, cut from a pool of random numbers, and the register of what builds its calls.

Data are normal random numbers, never zeros: power, and on some devices time, depend on the bits
that toggle.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import torch

from accelsim.calibration.measurement.case import Case

__all__ = [
    "ATEN",
    "BUILDERS",
    "COLD_BYTES",
    "DTYPES",
    "MOST_COPIES",
    "Builder",
    "Call",
    "Pool",
    "Source",
    "builds",
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
ATEN: Final = torch.ops.aten


def torch_dtype(label: str) -> torch.dtype:
    """The torch format of a label such as "bf16"."""
    return DTYPES[label]


class Pool:
    """Random numbers, made once per format and device, that operands are cut from.

    Making them anew for each case would take longer than measuring it.
    """

    #: Elements of the pool; as bf16 they exceed `COLD_BYTES`.
    COUNT: Final = COLD_BYTES // 2 + 2**20

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
            return torch.cat(
                [values] * (count // self.COUNT) + [values[: count % self.COUNT]]
            ).view(sizes)
        if self._place + count > self.COUNT:
            self._place = 0
        start, self._place = self._place, self._place + -(-count // 64) * 64
        return values[start : start + count].view(sizes)

    def _of(self, dtype: torch.dtype) -> torch.Tensor:
        if dtype not in self._values:
            made = torch.randn(2**21, generator=self.generator, device=self.device).to(dtype)
            self._values[dtype] = torch.cat(
                [made] * (self.COUNT // 2**21) + [made[: self.COUNT % 2**21]]
            )
        return self._values[dtype]


class Source:
    """Makes operands of one case.

    Args:
        case: The case.
        pool: Random numbers.
    """

    def __init__(self, case: Case, pool: Pool) -> None:
        self.operator, self.shape, self.pool, self.device = (
            case.operator,
            case.shape,
            pool,
            pool.device,
        )
        self.dtype = torch_dtype(case.dtype)
        self._inputs: dict[tuple[int, ...], torch.Tensor] = {}
        self.written: list[torch.Tensor] = []

    def values(self, *sizes: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Normal random numbers of their own, as the operator before writes them."""
        made = self.stored(*sizes, dtype=dtype)
        self.written.append(made.data)  # not the tensor: autograd would count the writes
        return made

    def stored(self, *sizes: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Normal random numbers of their own that were written long ago: weights, tables, saved
        activations.
        """
        taken = self.pool.take(dtype or self.dtype, *sizes)
        return taken if taken.numel() > self.pool.COUNT else taken.clone()

    def weight(self, *sizes: int) -> torch.nn.Parameter:
        """Weights: another part of the pool each time."""
        return torch.nn.Parameter(self.pool.take(self.dtype, *sizes), requires_grad=False)

    def input(self, *sizes: int) -> torch.Tensor:
        """Activations: the same tensor for all calls of the case."""
        if sizes not in self._inputs:
            self._inputs[sizes] = self.values(*sizes)
        return self._inputs[sizes]

    def indices(self, below: int, *sizes: int) -> torch.Tensor:
        """Uniform random integers from 0 to `below` - 1."""
        return torch.randint(below, sizes, generator=self.pool.generator, device=self.device)

    def image(self) -> torch.Tensor:
        """A batch of images."""
        s = self.shape
        return self.input(s["batch"], s["channels_in"], s["side"], s["side"])


Builder = Callable[[Source], Call]
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
