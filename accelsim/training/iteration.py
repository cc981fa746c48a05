"""One iteration of a plan: its times, its memory and what they rest on."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from accelsim.frozen import frozen
from accelsim.simulation.timeline import Timeline
from accelsim.training.layers import BlockCosts, operator_frame
from accelsim.training.plan import ParallelismPlan
from accelsim.training.schedules.pipeline import PipelineRun
from accelsim.training.schedules.sharded import ShardedRun
from accelsim.training.score import Scores
from accelsim.training.setup import TrainingSetup

if TYPE_CHECKING:
    import pandas as pd


@frozen(slots=False, eq=False)
class Iteration:
    """One iteration of a plan.

    Attributes:
        setup: Model and devices.
        plan: The plan.
        microbatch_count: Microbatches.
        scores: The plan's closed form, memory and energy.
        time_s: Exposed seconds by name in `score.TIME_PARTS`, as simulated.
        run: The simulation, where tasks are kept or one rank's blocks decide.
        costs: Blocks of the model.
        unit: How the plan's ranks run a microbatch, among them.
    """

    setup: TrainingSetup
    plan: ParallelismPlan
    microbatch_count: int
    scores: Scores
    time_s: dict[str, float]
    run: PipelineRun | ShardedRun | None
    costs: BlockCosts
    unit: int

    @property
    def forward_flop(self) -> float:
        """Model FLOP of one microbatch's forward pass on all ranks that share it."""
        return self._flop("flop")

    @property
    def again_flop(self) -> float:
        """What recomputation does again of them."""
        names = {"none": None, "selective": "selective_flop", "full": "again_flop"}
        name = names[self.plan.recompute]
        return 0.0 if name is None else self._flop(name)

    def _flop(self, name: str) -> float:
        rank_flop = float(self.costs[name][self.unit].sum())
        return rank_flop * self.plan.tp * self.plan.cp

    @property
    def iteration_s(self) -> float:
        """Sum of all parts."""
        return sum(self.time_s.values())

    @cached_property
    def memory_bytes(self) -> float:
        """Memory of the worst rank."""
        return float(self.scores.memory_bytes[0])

    @property
    def worst_rank(self) -> int:
        """The first rank of the stage that needs the most memory."""
        return int(self.scores.worst_stage[0]) * self.plan.pipeline_stride

    def to_frame(self) -> pd.DataFrame:
        """Operators of one microbatch on one rank, forward and backward, with what each costs."""
        return operator_frame(self.setup.run_of(self.unit))

    @property
    def timeline(self) -> Timeline | None:
        """Tasks of the iteration, if they were recorded; None for a closed form."""
        return None if self.run is None else self.run.timeline
