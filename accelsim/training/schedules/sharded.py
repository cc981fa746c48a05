"""One iteration of fully sharded data parallelism on the engine: blocks of weights are gathered one
ahead of the computation, and gradients scattered behind it (Zhao et al. 2023, arXiv:2304.11277,
sections 4.2 and 4.3).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from accelsim.frozen import frozen
from accelsim.simulation.engine import Engine, TaskColumns
from accelsim.simulation.timeline import Timeline
from accelsim.workloads.graph import FloatArray

_COMPUTE, _NETWORK = 0, 1
_WORDS = ("gather weights", "forward", "backward", "reduce gradients", "update")
_GATHER, _FORWARD, _BACKWARD, _REDUCE, _UPDATE = range(5)


@frozen(eq=False)
class ShardedWork:
    """What the tasks of one rank take.

    Attributes:
        forward_s: One microbatch through each block, shape (blocks,).
        backward_s: The same of the backward pass.
        gather_s: Weights of each block.
        reduce_s: Gradients of each block.
        update_s: The optimizer's step.
        overlap: Whether the next block is gathered while one computes.
    """

    forward_s: FloatArray
    backward_s: FloatArray
    gather_s: FloatArray
    reduce_s: FloatArray
    update_s: float
    overlap: bool = True


@frozen(eq=False)
class ShardedRun:
    """What an iteration did.

    Attributes:
        microbatch_end_s: End of each microbatch, gradients included, shape (microbatches,).
        makespan_s: End of the update.
        engine: The engine that ran it.
    """

    microbatch_end_s: FloatArray
    makespan_s: float
    engine: Engine

    @property
    def timeline(self) -> Timeline:
        """Every task on its resource."""
        return self.engine.timeline()


@dataclass(slots=True)
class _Tasks:
    """Rows under way to `TaskColumns`."""

    kind: list[int] = field(default_factory=list)
    duration_s: list[float] = field(default_factory=list)
    waits: list[list[int]] = field(default_factory=list)

    def add(self, kind: int, duration_s: float, *waits: int) -> int:
        """Append a task; negative rows are none."""
        self.kind.append(kind)
        self.duration_s.append(duration_s)
        self.waits.append(sorted({row for row in waits if row >= 0}))
        return len(self.kind) - 1


def simulate_sharded(
    work: ShardedWork, microbatch_count: int, *, record: bool = False
) -> ShardedRun:
    """Run one iteration of one rank.

    Args:
        work: What its tasks take.
        microbatch_count: Microbatches, >= 1.
        record: Whether to keep every task for the timeline.
    """
    tasks, ends, last = _Tasks(), [], -1
    for _ in range(microbatch_count):
        last = _microbatch(tasks, work, last)
        ends.append(last)
    tasks.add(_UPDATE, work.update_s, last)
    offset = np.concatenate([[0], np.cumsum([len(waits) for waits in tasks.waits])])
    kind = np.array(tasks.kind, dtype=np.int32)
    on_network = (kind == _GATHER) | (kind == _REDUCE)
    engine = Engine(record=record)
    for name in ("compute", "network"):
        engine.add_server(name, discipline="in_order")
    columns = TaskColumns(
        resource=np.where(on_network, _NETWORK, _COMPUTE).astype(np.int32),
        duration_s=np.array(tasks.duration_s),
        resources=("compute", "network"),
        dependency_offset=offset,
        dependency=np.array([row for waits in tasks.waits for row in waits], dtype=np.int64),
        name=kind,
        names=_WORDS,
        category=kind,
        categories=_WORDS,
    )
    jobs = engine.submit_many(columns)
    engine.run()
    end_s = jobs.end_s
    return ShardedRun(end_s[ends], float(end_s.max()), engine)


def _microbatch(tasks: _Tasks, work: ShardedWork, before: int) -> int:
    """Tasks of one microbatch; the row that ends it."""
    blocks = range(len(work.forward_s))
    previous = earlier = before
    for block in blocks:
        gathered = tasks.add(_GATHER, work.gather_s[block], earlier if work.overlap else previous)
        computed = tasks.add(_FORWARD, work.forward_s[block], gathered, previous)
        earlier, previous = previous, computed
    earlier, pending = previous, -1
    for block in reversed(blocks):
        gathered = tasks.add(_GATHER, work.gather_s[block], earlier if work.overlap else previous)
        if pending >= 0:
            tasks.add(_REDUCE, work.reduce_s[pending], previous)
        waits = previous if work.overlap or pending < 0 else len(tasks.kind) - 1
        computed = tasks.add(_BACKWARD, work.backward_s[block], gathered, waits)
        earlier, previous, pending = previous, computed, block
    return tasks.add(_REDUCE, work.reduce_s[pending], previous)
