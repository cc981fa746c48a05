"""How a measured case becomes an operator row: a registry of rules by operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from accelsim.workloads.operator import OperatorKind

__all__ = ["RULES", "Row", "Rule", "Shape", "rule"]

Shape = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Row:
    """One row; elements are counted at the case's format, `fixed` bytes are not."""

    kind: OperatorKind
    dims: tuple[int, ...]
    flop: float
    read: float
    write: float
    weight: float = 0.0
    backward: bool = False
    name: str | None = None
    fixed_read_bytes: float = 0.0
    fixed_write_bytes: float = 0.0


Rule = Callable[[Shape, str], Row]
#: Rules by operator.
RULES: dict[str, Rule] = {}


def rule(*operators: str) -> Callable[[Rule], Rule]:
    """Register a rule under operators of the suite."""

    def add(function: Rule) -> Rule:
        for operator in operators:
            RULES[operator] = function
        return function

    return add
