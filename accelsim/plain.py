"""Types of plain values by name, as JSON and YAML have them, and rows by key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
K = TypeVar("K")

#: What is read.
Values: TypeAlias = Mapping[str, Any]
#: Rows of a table.
Rows: TypeAlias = Sequence[Values]
#: What is made.
Document: TypeAlias = dict[str, Any]


def grouped(rows: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Rows by key, both in the order they come.

    Args:
        rows: Any.
        key: What a row is told by.
    """
    groups: dict[K, list[T]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups
