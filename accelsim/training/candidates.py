"""Plans as columns: what a search scores, one row a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accelsim.frozen import frozen
from accelsim.training.plan import RECOMPUTE, SCHEDULES, ParallelismPlan

_WORDS = {"schedule": SCHEDULES, "recompute": RECOMPUTE}
_NONE = 0
#: Fields that may be None, which 0 stands for.
_OPTIONAL = ("etp", "shard_group", "lora_rank")
_COLUMNS = tuple(f.name for f in fields(ParallelismPlan) if f.name != "stage_layers")


@frozen(eq=False)
class CandidatePlans:
    """k plans.

    Attributes:
        columns: Fields of `ParallelismPlan` as numbers, shape (k,) each: schedules and
            recomputation as places in their lists, 0 for None.
        stage_layers: Layers of each stage that all plans share; None where they are even.
    """

    columns: dict[str, NDArray[Any]]
    stage_layers: tuple[int, ...] | None = None

    def __len__(self) -> int:
        return len(self.columns["dp"])

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.columns[name]

    @classmethod
    def of(cls, plans: Sequence[ParallelismPlan]) -> CandidatePlans:
        """Plans as columns; all have the stages of the first one."""
        columns = {
            name: np.array([_code(name, getattr(plan, name)) for plan in plans])
            for name in _COLUMNS
        }
        return cls(columns, plans[0].stage_layers)

    @classmethod
    def grid(cls, base: ParallelismPlan, **choices: Sequence[Any]) -> CandidatePlans:
        """All combinations of some fields' values; the others are those of a plan.

        Args:
            base: The plan.
            choices: Values by field, as `ParallelismPlan` has them.
        """
        codes = {
            name: [_code(name, value) for value in choices.get(name, [getattr(base, name)])]
            for name in _COLUMNS
        }
        axes = np.meshgrid(*map(np.array, codes.values()), indexing="ij")
        columns = {name: axis.ravel() for name, axis in zip(codes, axes, strict=True)}
        return cls(columns, base.stage_layers)

    @classmethod
    def joined(cls, groups: Sequence[CandidatePlans]) -> CandidatePlans:
        """All plans of some, which share their stages' layers."""
        columns = {name: np.concatenate([plans[name] for plans in groups]) for name in _COLUMNS}
        return cls(columns, groups[0].stage_layers)

    def take(self, rows: NDArray[Any]) -> CandidatePlans:
        """Some of the plans, by place or mask."""
        columns = {name: column[rows] for name, column in self.columns.items()}
        return CandidatePlans(columns, self.stage_layers)

    def plan(self, row: int) -> ParallelismPlan:
        """One of the plans.

        Raises:
            InvalidValueError: If its values contradict each other.
        """
        values = {name: _value(name, self.columns[name][row].item()) for name in _COLUMNS}
        return ParallelismPlan(**values, stage_layers=self.stage_layers)


def _code(name: str, value: Any) -> Any:
    if name in _WORDS:
        return _WORDS[name].index(value)
    return _NONE if value is None else value


def _value(name: str, code: Any) -> Any:
    if name in _WORDS:
        return _WORDS[name][code]
    return None if name in _OPTIONAL and code == _NONE else code
