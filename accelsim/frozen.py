"""Frozen dataclasses with slots: the decorator of the package's classes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, dataclass_transform, overload

_T = TypeVar("_T")


@overload
def frozen(cls: type[_T], /) -> type[_T]: ...
@overload
def frozen(
    *, slots: bool = ..., eq: bool = ..., repr: bool = ..., kw_only: bool = ...
) -> Callable[[type[_T]], type[_T]]: ...
@dataclass_transform(frozen_default=True)
def frozen(cls: Any = None, /, *, slots: bool = True, **options: Any) -> Any:
    """``dataclasses.dataclass(frozen=True, slots=True)``; options are those of `dataclass`."""
    return dataclass(cls, frozen=True, slots=slots, **options)
