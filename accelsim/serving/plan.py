"""One replica as it would be deployed: engine, ranks, memory, limits of its batches, step times."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from accelsim.catalog import engines as engine_catalog
from accelsim.catalog.devices import refuse_several
from accelsim.catalog.engines import ServingEngine
from accelsim.catalog.stacks import stack
from accelsim.errors import InvalidValueError, UnsupportedOperatorError
from accelsim.estimation.options import RunOptions
from accelsim.estimation.resolution import resolve
from accelsim.estimation.run import ResolvedRun
from accelsim.frozen import frozen
from accelsim.plain import Document
from accelsim.serving.cache_blocks import BlockPlan
from accelsim.serving.options import ServingOptions
from accelsim.serving.replica_memory import ReplicaMemory, memory_of
from accelsim.serving.replicas.cold_start import host_bandwidth_bytes_per_s
from accelsim.serving.schedulers.limits import BatchLimits, JoinRule, SequenceBlocks
from accelsim.serving.speculation import OWN_LAYERS
from accelsim.serving.steps.combined_steps import SpeculativeSteps
from accelsim.serving.steps.step_tables import (
    StepLimits,
    family_parameter,
    most_positions,
    step_tables,
)
from accelsim.serving.steps.step_times import StepTimes
from accelsim.serving.trust import ServedRun
from accelsim.workloads.model import Workload
from accelsim.workloads.sharding import Shard

if TYPE_CHECKING:
    from torch.nn import Module

    from accelsim.hardware.cluster import Cluster
    from accelsim.hardware.profile import DeviceProfile


@frozen(eq=False)
class ReplicaPlan:
    """One replica.

    Attributes:
        run: The model on one rank.
        engine_name: Engine and version.
        engine: What the engine does.
        options: How the model is served, as asked.
        max_seqs: Sequences, or items of a batch, at once.
        max_batch_tokens: Tokens of a step.
        steps: Step times.
        prefix_cache: Whether requests share cached prefixes.
        memory: Memory of a rank; None for models without a cache.
        cache: Size of its cache blocks, and how many a sequence takes; None without a cache.
        blocks: Cache blocks of a replica; 0 without a cache.
        blocks_range: Fewest and most that the engine may leave.
    """

    run: ResolvedRun
    engine_name: str
    engine: ServingEngine
    options: ServingOptions
    max_seqs: int
    max_batch_tokens: int
    steps: StepTimes
    prefix_cache: bool
    memory: ReplicaMemory | None = None
    cache: BlockPlan | None = None
    blocks: int = 0
    blocks_range: tuple[int, int] = (0, 0)

    @property
    def is_continuous(self) -> bool:
        """Whether requests join and leave running batches."""
        return self.engine.scheduler == "continuous"

    @property
    def is_guessing_unsaid(self) -> bool:
        """Whether the model has layers that guess tokens, and nobody says if they do."""
        is_unsaid = self.options.speculation is None and self.is_continuous
        return is_unsaid and predicted_tokens(self.run.workload) > 0

    @property
    def step_overhead_s(self) -> float:
        """Host time per step."""
        return _overhead_s(self.engine, self.options)

    def cache_tokens(self, blocks: int) -> int | None:
        """Tokens that so many blocks hold of sequences that no window cuts; None where layers keep
        states alone.
        """
        if self.cache is None or not self.cache.sequence.all_layers:
            return None
        return blocks // self.cache.sequence.all_layers * self.cache.tokens

    @property
    def limits(self) -> BatchLimits:
        """What a batch may hold. Where tokens are guessed, a step of the scheduler is one token of
        each sequence: its budget is that of an engine's step over the tokens that such a step adds
        (Leviathan et al., ICML 2023).
        """
        engine, copies, guessed = self.engine, self.options.dp, self.options.guessed
        tokens = self.max_batch_tokens * self.options.pp * copies
        if guessed is not None:
            tokens = max(int(tokens / guessed.tokens_per_step), self.max_seqs * copies)
        return BatchLimits(
            max_tokens=tokens,
            max_seqs=self.max_seqs * copies,
            block_tokens=engine.block_tokens,
            blocks=self.blocks,
            sequence=SequenceBlocks() if self.cache is None else self.cache.sequence,
            chunked=engine.chunked,
            mixed=engine.mixed,
            reserve=engine.reserve,
            watermark_fraction=engine.watermark_fraction,
            most_positions=self._most_positions,
            join=self._join,
            swap_blocks=self.host_blocks if self.options.preemption == "swap" else 0,
            swap_block_s=self.host_block_s if self.options.host_cache_bytes else 0.0,
        )

    @property
    def _join(self) -> JoinRule:
        """When requests that come to a busy replica may join."""
        engine = self.engine
        return JoinRule(
            ahead=engine.schedules_ahead,
            poll_steps=engine.poll_steps,
            hold_steps=engine.hold_steps,
            hold_tokens=round(engine.hold_tokens_fraction * self.max_batch_tokens),
        )

    @property
    def _most_positions(self) -> int:
        """Tokens of the longest sequence; what an encoder takes in is not part of one."""
        return 0 if self.run.workload.default.target_len else most_positions(self.run)

    @property
    def host_blocks(self) -> int:
        """Cache blocks of a replica that its host memory holds."""
        ranks = self.options.devices_per_replica
        return int(self.options.host_cache_bytes // (ranks * self._block_bytes))

    @property
    def host_block_s(self) -> float:
        """Time to move a block between device and host, every rank its own part.

        Raises:
            InvalidValueError: If the device's host link is unknown.
        """
        bandwidth = host_bandwidth_bytes_per_s(self.run.device)
        if bandwidth is None:
            allowed = f"0: the host link of {self.run.device.name} is unknown"
            raise InvalidValueError("host_cache_bytes", self.options.host_cache_bytes, allowed)
        return self._block_bytes / bandwidth

    @property
    def _block_bytes(self) -> float:
        """Memory of one block on a rank."""
        return 0.0 if self.cache is None else self.cache.bytes

    def to_dict(self) -> Document:
        """Figures of the plan, ready for JSON."""
        memory, apart = self.memory, self.run.precision.experts
        experts = {} if apart is None else {"expert_precision": apart.name}
        return experts | {
            "tp": self.options.tp,
            "pp": self.options.pp,
            "ep": self.options.ep,
            "dp": self.options.dp,
            "devices_per_replica": self.options.devices_per_replica,
            "precision": self.run.precision.name,
            "kv_format": self.run.precision.kv_cache.label,
            "stack": self.run.stack.label,
            "execution": self.run.execution.value,
            "max_batch_tokens": self.max_batch_tokens,
            "max_seqs": self.max_seqs,
            "block_tokens": self.engine.block_tokens,
            "blocks": self.blocks or None,
            "blocks_range": self.blocks_range if self.blocks else None,
            "device_memory_bytes": self.run.device.memory_bytes,
            "weight_bytes": None if memory is None else memory.weight_bytes,
            "activation_bytes": None if memory is None else memory.activation_bytes,
            "kv_cache_bytes": self.blocks // self.options.dp * self._block_bytes or None,
            "kv_bytes_per_token": None if memory is None else memory.cache.token_bytes,
            "prefix_cache": self.prefix_cache,
        }


def _check_served(options: RunOptions) -> None:
    """Refuse what one batch alone may ask."""
    for name, value in (("offload", options.offload), ("images", options.shape.images)):
        if value is not None:
            remedy = "accelsim estimate answers one batch at a time."
            raise InvalidValueError(name, value, "no value when serving", remedy)


def replica_plan(
    workload: str | Path | Workload | Module,
    device: str | DeviceProfile,
    run_options: RunOptions,
    options: ServingOptions,
    *,
    max_context: int,
    steps: StepTimes | None = None,
) -> ReplicaPlan:
    """Plan one replica: what its memory holds by the engine's rule, and what its steps take.

    Args:
        workload: The model.
        device: Every rank's device.
        run_options: Precision and formats.
        options: How it is served.
        max_context: Longest sequence of the load.
        steps: Step times to use in place of predicted ones.

    Raises:
        DoesNotFitError: If weights and activations leave no room for a cache block.
        InputError: If a name or choice is wrong; its subclasses say which.
    """
    _check_served(run_options)
    first_run = resolve(workload, device, run_options)
    generates = first_run.workload.autoregressive
    name = options.engine or ("vllm" if generates else "static")
    engine = _engine(name, first_run)
    run = deployed_run(first_run, run_options, options, engine)
    max_seqs = options.max_seqs or engine.limit("max_seqs", run.device, options.tp)
    max_tokens = options.max_batch_tokens or engine.limit(
        "max_batch_tokens", run.device, options.tp
    )
    draft, parts = None, Document()
    if generates:
        max_tokens = max(max_tokens, max_seqs) if engine.mixed else max_tokens
        draft = _draft(run, run_options, options, engine)
        parts = memory_of(run, engine, options, max_tokens, draft)
    label = f"{name.partition('@')[0]} {engine.label}"
    if steps is None:
        limits = StepLimits(max_tokens, max_seqs, max_context)
        overhead_s = _overhead_s(engine, options)
        steps = _steps(run, draft, run_options, options, limits, overhead_s)
        steps = ServedRun(run, engine_name=label).correct(steps)
    return ReplicaPlan(
        run,
        label,
        engine,
        options,
        max_seqs,
        max_tokens,
        steps,
        prefix_cache=_shares_prefixes(engine, options, parts.get("cache")),
        **parts,
    )


def _shares_prefixes(
    engine: ServingEngine, options: ServingOptions, cache: BlockPlan | None
) -> bool:
    """Whether requests share cached prefixes: not where a layer keeps no token of a prefix, or a
    state that another request cannot go on from.
    """
    if cache is None or not cache.sequence.full_layers:
        return False
    if options.prefix_cache is None:
        return engine.prefix_cache and not cache.sequence.state
    return options.prefix_cache


def _engine(name: str, run: ResolvedRun) -> ServingEngine:
    """The engine, if it runs the model."""
    engine = engine_catalog.engine(name)
    if engine.scheduler == "continuous" and not run.workload.autoregressive:
        remedy = "Leave engine out, or choose static."
        allowed = f"an engine that runs whole batches: {run.workload.name} generates no tokens"
        raise InvalidValueError("engine", name, allowed, remedy)
    return engine


def _overhead_s(engine: ServingEngine, options: ServingOptions) -> float:
    stated_s = options.step_overhead_s
    return engine.step_overhead_s.value if stated_s is None else stated_s


def _steps(
    run: ResolvedRun,
    draft: ResolvedRun | None,
    run_options: RunOptions,
    options: ServingOptions,
    limits: StepLimits,
    overhead_s: float,
) -> StepTimes:
    """Predicted step times: of batches, or of a model that generates, with what it guesses."""
    if not run.workload.autoregressive:
        from accelsim.serving.steps.batch_tables import batch_tables

        return batch_tables(run, run_options, max_batch=limits.max_seqs, overhead_s=overhead_s)
    steps = step_tables(run, options, limits, overhead_s)
    guessed = options.guessed
    if guessed is None:
        return steps
    guesses = None
    if draft is not None:
        plain = replace(options, speculation=None, adapters=None)
        guesses = step_tables(draft, plain, limits, 0.0)
    return SpeculativeSteps(steps, guessed.tokens_per_step, guessed.tokens, guesses)


def _own_layers(run: ResolvedRun) -> Workload:
    """A model's layer of multi-token prediction, between its embeddings and its logits.

    Raises:
        InvalidValueError: If it was published with none.
    """
    model = run.workload
    if not predicted_tokens(model):
        allowed = f"a model's name: {model.name} has no layers of multi-token prediction"
        raise InvalidValueError("speculate", OWN_LAYERS, allowed)
    return replace(model, name=f"{model.name}-mtp", parameters=model.parameters.one_guess)


def predicted_tokens(model: Workload) -> int:
    """Layers of multi-token prediction that a model was published with."""
    return family_parameter(model, "mtp_layers", 0)


def _draft(
    run: ResolvedRun, run_options: RunOptions, options: ServingOptions, engine: ServingEngine
) -> ResolvedRun | None:
    """The model that guesses tokens, on the same ranks.

    Raises:
        InvalidValueError: If it generates nothing.
    """
    guessed = options.guessed
    if guessed is None or guessed.draft is None:
        return None
    model = _own_layers(run) if guessed.draft == OWN_LAYERS else guessed.draft
    first_run = resolve(model, run.device, run_options)
    if not first_run.workload.autoregressive:
        allowed = "a model that generates tokens"
        raise InvalidValueError("speculate", guessed.draft, allowed)
    return deployed_run(first_run, run_options, options, engine)


def _check_runs(device: DeviceProfile, options: ServingOptions, engine: ServingEngine) -> None:
    """Refuse an engine that is named for a device it does not run on; where none is named, vLLM's
    scheduler stands in for that of whatever serves there.
    """
    if options.engine is None or engine.runs(device):
        return
    names = engine_catalog.engine_names()
    able = ", ".join(name for name in names if engine_catalog.engine(name).runs(device))
    remedy = f"Leave engine out, or choose one of this device: {able}."
    operator = f"engine {options.engine}"
    raise UnsupportedOperatorError(device.name, operator, "it does not run on it", remedy)


def deployed_run(
    first_run: ResolvedRun, run_options: RunOptions, options: ServingOptions, engine: ServingEngine
) -> ResolvedRun:
    """The run on one rank, issued as the engine does.

    Args:
        first_run: The model as resolved on one device.
        run_options: What it was resolved from.
        options: Ranks and cluster.
        engine: The engine.

    Raises:
        UnsupportedOperatorError: If the engine that is named does not run on the device, or the
            model's family is not split over ranks.
        InvalidValueError: If no node joins the ranks.
    """
    refuse_several(first_run.device, "give tp")
    _check_runs(first_run.device, options, engine)
    model, run = run_options.model, first_run
    is_stated = model.execution is not None or model.stack is not None
    if not is_stated and engine.stack is not None and stack(engine.stack).runs(run.device):
        issued = replace(run_options, model=replace(model, stack=engine.stack))
        run = resolve(run.workload, run.device, issued)
    if options.dp > 1 and options.ep == 1:
        remedy = "Use replicas, or share the experts: ep."
        raise InvalidValueError("dp", options.dp, "1 where no experts are shared", remedy)
    if options.tp == options.pp == options.ep == 1:
        return run
    family = run.workload.family
    if family is None or not family.shards:
        reason = "its family is not split over ranks"
        raise UnsupportedOperatorError(run.device.name, run.workload.name, reason, "Use tp = 1.")
    shard = Shard(tp=options.tp, ep=options.ep, expert_skew=options.expert_skew)
    return replace(run, shard=shard, cluster=_cluster(run, options))


def _cluster(run: ResolvedRun, options: ServingOptions) -> Cluster:
    """The cluster named, or the first node of the device that holds the ranks; servers of the
    device's form factor where there is none.

    Raises:
        InvalidValueError: If the device fits no slot.
    """
    from accelsim.catalog import clusters as cluster_catalog

    if options.cluster is not None:
        return cluster_catalog.cluster(options.cluster)
    return cluster_catalog.smallest_joining(run.device, options.devices_per_replica)
