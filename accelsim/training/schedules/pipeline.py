"""One iteration of a pipeline on the engine: passes of all stages, sends, reductions, updates.

Each pass of a microbatch through a chunk of layers is one task of its stage's stream, each send one
of the link to the neighbour. Gradients of data parallelism are reduced in buckets on a stream of
their own while the last microbatch's backward pass still runs (Li et al. 2020, PyTorch
Distributed, arXiv:2006.15704, section 3.2.3).
"""

from __future__ import annotations

import numpy as np

from accelsim.errors import InvalidValueError
from accelsim.frozen import frozen
from accelsim.simulation.engine import Engine, TaskColumns
from accelsim.simulation.timeline import Timeline
from accelsim.training.schedules.schedule import PipelineOrder, StagePass
from accelsim.workloads.graph import BoolArray, FloatArray, IntArray

_WORDS = ("forward", "backward", "weight gradient", "send", "reduce gradients", "update")
_SEND, _REDUCE, _UPDATE = 3, 4, 5


@frozen(eq=False)
class PipelineWork:
    """What the tasks of an iteration take.

    Attributes:
        forward_s: One microbatch through each chunk, shape (stages, chunks).
        backward_s: The same of the backward pass; with weight passes that of the inputs' gradients.
        weight_s: Gradients of weights, shape (stages, chunks); 0 where they are no passes of their
            own.
        send_s: One send to the next or the previous stage.
        reduce_s: Reduction of each stage's gradients, shape (stages,).
        bucket_count: Buckets they are reduced in, one after the other, >= 1.
        update_s: Optimizer's step of each stage with what it gathers, shape (stages,).
    """

    forward_s: FloatArray
    backward_s: FloatArray
    weight_s: FloatArray
    send_s: float
    reduce_s: FloatArray
    bucket_count: int
    update_s: FloatArray


@frozen(eq=False)
class PipelineRun:
    """What an iteration did.

    Attributes:
        compute_end_s: End of each stage's last pass, shape (stages,).
        reduce_end_s: End of each stage's last reduction.
        makespan_s: End of the last update.
        engine: The engine that ran it.
    """

    compute_end_s: FloatArray
    reduce_end_s: FloatArray
    makespan_s: float
    engine: Engine

    @property
    def timeline(self) -> Timeline:
        """Every task on its resource.

        Raises:
            InvalidValueError: If it was not recorded.
        """
        return self.engine.timeline()


@frozen(eq=False)
class _Steps:
    """Steps of all stages in an order in which each follows what it waits for, shape (steps,)."""

    stage: IntArray
    kind: IntArray
    chunk: IntArray
    microbatch: IntArray
    virtual: IntArray  # place of the chunk among those of all stages


@frozen(eq=False)
class _Rows:
    """Some tasks: stream, time and name code of each, and where they stand among all."""

    resource: IntArray
    duration_s: FloatArray
    name: IntArray
    key: IntArray


def simulate_pipeline(
    order: PipelineOrder, work: PipelineWork, *, record: bool = False
) -> PipelineRun:
    """Run one iteration.

    Args:
        order: Steps of every stage.
        work: What they take.
        record: Whether to keep every task for the timeline.

    Raises:
        InvalidValueError: If the order waits for itself.
    """
    stages = order.stage_count
    rows, edges = _tasks(order, work, _ordered_steps(order))
    resource, duration, name = rows.resource, rows.duration_s, rows.name
    used, resource_code = np.unique(resource, return_inverse=True)
    resource_names = _resource_names(stages)
    names = tuple(resource_names[code] for code in used.tolist())
    engine = Engine(record=record)
    for code, word in zip(used.tolist(), names, strict=True):
        engine.add_server(word, discipline="in_order" if code < stages else "fifo")
    source, target = edges
    counts = np.bincount(target, minlength=len(duration))
    tasks = TaskColumns(
        resource=resource_code.astype(np.int32),
        duration_s=duration,
        resources=names,
        dependency_offset=np.concatenate([[0], np.cumsum(counts)]),
        dependency=source[np.argsort(target, kind="stable")],
        name=name.astype(np.int32),
        names=_task_names(order.microbatch_count),
        category=(name // order.microbatch_count).astype(np.int32),
        categories=_WORDS,
    )
    jobs = engine.submit_many(tasks)
    engine.run()
    return _run(engine, jobs.end_s, rows, order)


def _run(engine: Engine, end_s: FloatArray, rows: _Rows, order: PipelineOrder) -> PipelineRun:
    stages = order.stage_count
    compute_end, reduce_end = np.zeros(stages), np.zeros(stages)
    passes = rows.name < _SEND * order.microbatch_count
    np.maximum.at(compute_end, rows.resource[passes], end_s[passes])
    reduces = rows.resource >= 3 * stages
    np.maximum.at(reduce_end, rows.resource[reduces] - 3 * stages, end_s[reduces])
    reduce_end = np.maximum(reduce_end, compute_end)
    return PipelineRun(compute_end, reduce_end, float(end_s.max()), engine)


def _resource_names(stages: int) -> list[str]:
    """Streams of the stages, links to the next and the previous stage, and networks."""
    every = range(stages)
    ways = (("activations", 1), ("gradients", -1))
    links = [f"{word} {s} to {(s + step) % stages}" for word, step in ways for s in every]
    return [f"stage {s}" for s in every] + links + [f"network {s}" for s in every]


def _task_names(microbatch_count: int) -> tuple[str, ...]:
    return tuple(f"{word} {i}" for word in _WORDS for i in range(microbatch_count))


def _ordered_steps(order: PipelineOrder) -> _Steps:
    """All stages go on by one step at a time; those whose operands are not there yet wait.

    Raises:
        InvalidValueError: If none can go on.
    """
    stages, count = order.kind.shape
    virtual = order.chunk * stages + np.arange(stages)[:, None]
    last = stages * order.chunk_count - 1
    needed_kind, needed = _needs(order.kind, virtual, last)
    is_done = np.zeros((3, last + 2, order.microbatch_count), dtype=bool)
    is_done[StagePass.FORWARD, -1] = True  # what the first stage reads
    next_step, open_stages = np.zeros(stages, dtype=np.int64), np.arange(stages)
    waves = []
    while len(open_stages):
        at = next_step[open_stages]
        waits = (needed_kind[open_stages, at], needed[open_stages, at])
        going = open_stages[is_done[(*waits, order.microbatch[open_stages, at])]]
        if not len(going):
            raise InvalidValueError("order", order, "an order in which no stage waits for itself")
        at = next_step[going]
        is_done[order.kind[going, at], virtual[going, at], order.microbatch[going, at]] = True
        waves.append(np.stack([going, at]))
        next_step[going] += 1
        open_stages = open_stages[next_step[open_stages] < count]
    stage, at = np.concatenate(waves, axis=1)
    columns = (order.kind, order.chunk, order.microbatch, virtual)
    return _Steps(stage, *(column[stage, at] for column in columns))


def _needs(kind: IntArray, virtual: IntArray, last: int) -> tuple[IntArray, IntArray]:
    """Which pass of which chunk each step reads; chunk -1 where it reads the iteration's input."""
    is_forward = kind == StagePass.FORWARD
    is_turn = (kind == StagePass.BACKWARD) & (virtual == last)
    needed_kind = np.where(is_forward | is_turn, int(StagePass.FORWARD), int(StagePass.BACKWARD))
    ahead = np.select([is_forward, is_turn | (kind == StagePass.WEIGHT)], [-1, 0], 1)
    return needed_kind, virtual + ahead


def _tasks(
    order: PipelineOrder, work: PipelineWork, steps: _Steps
) -> tuple[_Rows, tuple[IntArray, IntArray]]:
    """All tasks in an order in which dependencies come first, and who waits for whom."""
    parts = _part_counts(order, work, steps)
    passes = _pass_rows(order, work, steps, parts)
    last_part = np.cumsum(parts) - 1
    groups, edges = [passes], []
    producer, consumer = _handed_on(order, steps)
    first_part = last_part - parts + 1
    if work.send_s > 0:
        groups.append(_send_rows(order, work, steps, producer))
        sends = len(passes.key) + np.arange(len(producer))
        edges += [(last_part[producer], sends), (sends, first_part[consumer])]
    else:
        edges.append((last_part[producer], first_part[consumer]))
    if work.reduce_s.any():
        reduced = np.flatnonzero(np.repeat(_is_last_of_chunk(order, steps), parts))
        start = sum(len(group.key) for group in groups)
        groups.append(_reduce_rows(order, work, passes, reduced))
        edges.append((reduced, start + np.arange(len(reduced))))
    if work.update_s.any():
        edges.append(_update_edges(order, groups))
        groups.append(_update_rows(order, work))
    rows = _Rows(
        *(np.concatenate([getattr(g, name) for g in groups]) for name in _Rows.__dataclass_fields__)
    )
    sorting = np.argsort(rows.key, kind="stable")
    position = np.empty_like(sorting)
    position[sorting] = np.arange(len(sorting))
    source, target = (position[np.concatenate(ends)] for ends in zip(*edges, strict=True))
    sorted_rows = _Rows(*(getattr(rows, name)[sorting] for name in _Rows.__dataclass_fields__))
    return sorted_rows, (source, target)


def _is_last_of_chunk(order: PipelineOrder, steps: _Steps) -> BoolArray:
    """Whether a step completes the gradients of its chunk."""
    final = StagePass.WEIGHT if order.has_weight_passes else StagePass.BACKWARD
    latest = np.zeros((order.stage_count, order.chunk_count), dtype=np.int64)
    completes = np.flatnonzero(steps.kind == final)
    latest[steps.stage[completes], steps.chunk[completes]] = completes  # the last one stays
    is_last = np.zeros(len(steps.kind), dtype=bool)
    is_last[latest.ravel()] = True
    return is_last


def _part_counts(order: PipelineOrder, work: PipelineWork, steps: _Steps) -> IntArray:
    """Tasks that each step is split into: buckets of those that complete gradients."""
    buckets = work.bucket_count if work.reduce_s.any() else 1
    return np.where(_is_last_of_chunk(order, steps), buckets, 1)


def _pass_rows(order: PipelineOrder, work: PipelineWork, steps: _Steps, parts: IntArray) -> _Rows:
    tables = np.stack([work.forward_s, work.backward_s, work.weight_s])
    duration = tables[steps.kind, steps.stage, steps.chunk] / parts
    name = steps.kind * order.microbatch_count + steps.microbatch
    key = 3 * np.arange(len(parts))
    return _Rows(*(np.repeat(column, parts) for column in (steps.stage, duration, name, key)))


def _handed_on(order: PipelineOrder, steps: _Steps) -> tuple[IntArray, IntArray]:
    """Steps whose result another stage reads, and the steps that read it."""
    last = order.stage_count * order.chunk_count - 1
    step_of_pass = np.full((3, last + 2, order.microbatch_count), -1, dtype=np.int64)
    step_of_pass[steps.kind, steps.virtual, steps.microbatch] = np.arange(len(steps.kind))
    kind, virtual = _needs(steps.kind, steps.virtual, last)
    producer = step_of_pass[kind, virtual, steps.microbatch]
    consumer = np.flatnonzero((producer >= 0) & (virtual != steps.virtual))
    return producer[consumer], consumer


def _send_rows(
    order: PipelineOrder, work: PipelineWork, steps: _Steps, producer: IntArray
) -> _Rows:
    stages = order.stage_count
    stage = steps.stage[producer]
    is_back = steps.kind[producer] == StagePass.BACKWARD
    resource = stages + stages * is_back + stage
    name = _SEND * order.microbatch_count + steps.microbatch[producer]
    return _Rows(resource, np.full(len(producer), work.send_s), name, 3 * producer + 1)


def _reduce_rows(
    order: PipelineOrder, work: PipelineWork, passes: _Rows, reduced: IntArray
) -> _Rows:
    stage = passes.resource[reduced]
    bucket_counts = np.bincount(stage, minlength=order.stage_count)
    duration = (work.reduce_s / np.maximum(bucket_counts, 1))[stage]
    name = np.full(len(reduced), _REDUCE * order.microbatch_count)
    return _Rows(3 * order.stage_count + stage, duration, name, passes.key[reduced] + 2)


def _update_edges(order: PipelineOrder, groups: list[_Rows]) -> tuple[IntArray, IntArray]:
    """The norm of all gradients is known once the last one is there: every update waits."""
    waited = groups[-1] if groups[-1].name[0] >= _REDUCE * order.microbatch_count else groups[0]
    before = sum(len(group.key) for group in groups)
    start = before - len(waited.key) if waited is groups[-1] else 0
    latest = np.full(4 * order.stage_count, -1, dtype=np.int64)
    np.maximum.at(latest, waited.resource, np.arange(len(waited.key)))
    latest = start + latest[latest >= 0]
    stages = before + np.arange(order.stage_count)
    return np.repeat(latest, order.stage_count), np.tile(stages, len(latest))


def _update_rows(order: PipelineOrder, work: PipelineWork) -> _Rows:
    stages = np.arange(order.stage_count)
    name = np.full(order.stage_count, _UPDATE * order.microbatch_count)
    key = np.full(order.stage_count, np.iinfo(np.int64).max)
    return _Rows(stages, work.update_s, name, key)
