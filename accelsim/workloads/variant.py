"""Which version of an operator a row runs: the operator's own name and what is special about it.

Two rows of one kind and shape can be different code: a hyperbolic tangent or a rectifier, a sum
along the last axis or across it, in place or into memory of its own. A graph has a code for that in
its column `variant`; display names may say anything. Codes are numbered as they come: files hold
the text they stand for.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import IntFlag
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from accelsim.frozen import frozen
from accelsim.workloads.operator import IN_PLACE, OWN_STATISTICS


class Trait(IntFlag):
    """What is special about a row."""

    NONE = 0
    IN_PLACE = 1  # overwrites what it reads
    OWN_STATISTICS = 2  # a norm of its own images' statistics


_SUFFIXES = {
    "in_place": Trait.IN_PLACE,
    OWN_STATISTICS: Trait.OWN_STATISTICS,
}
_SOFTMAX = tuple(
    f"{name}{way}" for name in ("_softmax", "_log_softmax") for way in ("", "_backward_data")
)
#: Operators that run several kernels, whose names follow theirs.
_COMPOSED = (
    "logsumexp.",
    "_euclidean_dist.",
    "_safe_softmax.",
    *(f"{name}." for name in _SOFTMAX),
    *(
        f"{name}{way}."
        for name in ("native_layer_norm", "convolution")
        for way in ("", "_backward")
    ),
)
#: What `_softmax.across` is: a softmax across, not a kernel of one.
_WHOLE = frozenset(f"{name}.across" for name in _SOFTMAX)


@frozen
class Variant:
    """A version of an operator.

    Attributes:
        text: What files hold.
        label: The operator with what selects its kernel ("max.place"), without what does not.
        operation: The operator alone ("max"); of one that runs several kernels, the kernel's.
        traits: What is special about it.
    """

    text: str
    label: str
    operation: str
    traits: Trait


_VARIANTS: list[Variant] = []
_CODES: dict[str, int] = {}


def _parsed(text: str) -> Variant:
    name = text
    if name not in _WHOLE:
        for operator in _COMPOSED:
            name = name.removeprefix(operator)
    operation, *suffixes = name.split(".")
    traits = Trait.NONE
    for suffix in suffixes:
        traits |= _SUFFIXES.get(suffix, Trait.NONE)
    label = name
    for ending in (".layer0", ".strided"):
        label = label.removesuffix(ending)
    label = label.removesuffix(IN_PLACE).rstrip("_")
    return Variant(text, label, operation.rstrip("_"), traits)


def variant_codes(texts: Collection[str]) -> NDArray[np.int32]:
    """Codes of operators' texts, shape (n,)."""
    for text in texts:
        if text not in _CODES:
            _VARIANTS.append(_parsed(text))
            _CODES[text] = len(_VARIANTS) - 1
    return np.array([_CODES[text] for text in texts], dtype=np.int32)


def variant(code: int) -> Variant:
    """What a code stands for."""
    return _VARIANTS[code]


def variant_texts(codes: NDArray[np.int32]) -> list[str]:
    """Texts that stand for codes, as files hold them."""
    return [_VARIANTS[code].text for code in codes.tolist()]


@lru_cache(maxsize=256)
def _trait_table(trait: Trait, count: int) -> NDArray[np.bool_]:
    return np.array([bool(version.traits & trait) for version in _VARIANTS[:count]], dtype=bool)


@lru_cache(maxsize=256)
def _operation_table(operations: frozenset[str], count: int) -> NDArray[np.bool_]:
    return np.array([version.operation in operations for version in _VARIANTS[:count]], dtype=bool)


def codes_with_trait(codes: NDArray[np.int32], trait: Trait) -> NDArray[np.bool_]:
    """Which codes have a trait, or one of several, shape (n,)."""
    having: NDArray[np.bool_] = _trait_table(trait, len(_VARIANTS))[codes]
    return having


def codes_with_operation(codes: NDArray[np.int32], operations: frozenset[str]) -> NDArray[np.bool_]:
    """Which codes are of some operators, shape (n,)."""
    having: NDArray[np.bool_] = _operation_table(operations, len(_VARIANTS))[codes]
    return having
