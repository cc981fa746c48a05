"""One replica as it would be deployed: engine, ranks, memory, limits of its batches, step times."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from accelsim.catalog.devices import refuse_several
from accelsim.catalog.engines import ServingEngine, engine, engine_names
from accelsim.catalog.stacks import stack
from accelsim.cost.memory import memory_short
from accelsim.errors import DoesNotFitError, InvalidValueError, UnsupportedOperatorError
from accelsim.estimation.options import RunOptions
from accelsim.estimation.resolution import resolve
from accelsim.estimation.run import ResolvedRun
from accelsim.frozen import frozen
from accelsim.plain import Document
from accelsim.serving.cache_blocks import BlockPlan, block_plan
from accelsim.serving.options import OWN_LAYERS, ServingOptions
from accelsim.serving.replicas.cold_start import host_bandwidth_bytes_per_s
from accelsim.serving.schedulers.limits import BatchLimits, JoinRule, SequenceBlocks
from accelsim.serving.steps.combined_steps import SpeculativeSteps
from accelsim.serving.steps.step_tables import (
    ReplicaMemory,
    StepLimits,
    most_positions,
    replica_memory,
    step_tables,
)
from accelsim.serving.steps.step_times import StepTimes
from accelsim.serving.trust import ServedRun
from accelsim.workloads.model import Workload
from accelsim.workloads.sharding import Shard

if TYPE_CHECKING:
    from accelsim.hardware.cluster import Cluster
    from accelsim.hardware.profile import DeviceProfile

_BATCHED_TOKENS = 8192


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
        memory: Memory of a rank; None for models without a cache.
        cache: Size of its cache blocks, and how many a sequence takes; None without a cache.
        blocks: Cache blocks of a replica; 0 without a cache.
        blocks_range: Fewest and most that the engine may leave.
        steps: Step times.
        prefix_cache: Whether requests share cached prefixes.
    """

    run: ResolvedRun
    engine_name: str
    engine: ServingEngine
    options: ServingOptions
    max_seqs: int
    max_batch_tokens: int
    memory: ReplicaMemory | None
    cache: BlockPlan | None
    blocks: int
    blocks_range: tuple[int, int]
    steps: StepTimes
    prefix_cache: bool

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
        """What a batch may hold."""
        one, copies, guessed = self.engine, self.options.dp, self.options.guessed
        tokens = self.max_batch_tokens * self.options.pp * copies
        if guessed is not None:
            tokens = max(int(tokens / guessed.tokens_per_step), self.max_seqs * copies)
        return BatchLimits(
            max_tokens=tokens,
            max_seqs=self.max_seqs * copies,
            block_tokens=one.block_tokens,
            blocks=self.blocks,
            sequence=SequenceBlocks() if self.cache is None else self.cache.sequence,
            chunked=one.chunked,
            mixed=one.mixed,
            reserve=one.reserve,
            watermark_fraction=one.watermark_fraction,
            most_positions=self._most_positions,
            join=self._join,
            **self._swap,
        )

    @property
    def _join(self) -> JoinRule:
        """When requests that come to a busy replica may join."""
        one = self.engine
        return JoinRule(
            ahead=one.schedules_ahead,
            poll_steps=one.poll_steps,
            hold_steps=one.hold_steps,
            hold_tokens=round(one.hold_tokens_fraction * self.max_batch_tokens),
        )

    @property
    def _most_positions(self) -> int:
        """Tokens of the longest sequence; what an encoder takes in is not part of one."""
        return 0 if self.run.workload.default.target_len else most_positions(self.run)

    @property
    def _swap(self) -> Document:
        """Host memory for the caches of sequences that are put back."""
        if not self.options.host_cache_bytes:
            return {}
        is_swapped = self.options.preemption == "swap"
        return {
            "swap_blocks": self.host_blocks if is_swapped else 0,
            "swap_block_s": self.host_block_s,
        }

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
    workload: Any,
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
    first = resolve(workload, device, run_options)
    generates = first.workload.autoregressive
    name = options.engine or ("vllm" if generates else "static")
    one = _engine(name, first)
    run = deployed_run(first, run_options, options, one)
    board, tp = run.device, options.tp
    max_seqs = options.max_seqs or one.limit("max_seqs", board, tp)
    max_tokens = options.max_batch_tokens or one.limit("max_batch_tokens", board, tp)
    overhead_s = _overhead_s(one, options)
    parts: Document = {"memory": None, "cache": None, "blocks": 0, "blocks_range": (0, 0)}
    is_given = steps is not None
    if generates:
        max_tokens = max(max_tokens, max_seqs) if one.mixed else max_tokens
        draft = _draft(run, run_options, options, one)
        parts = memory_of(run, one, options, max_tokens, draft)
        if steps is None:
            limits = StepLimits(max_tokens, max_seqs, max_context)
            steps = _steps(run, draft, options, limits, overhead_s)
    elif steps is None:
        from accelsim.serving.steps.batch_tables import batch_tables

        steps = batch_tables(run, run_options, max_batch=max_seqs, overhead_s=overhead_s)
    label = f"{name.partition('@')[0]} {one.label}"
    if run.learned is not None and not is_given:
        steps = ServedRun(run, engine_name=label).correct(steps)
    return ReplicaPlan(
        run,
        label,
        one,
        options,
        max_seqs,
        max_tokens,
        steps=steps,
        prefix_cache=_shares_prefixes(one, options, parts["cache"]),
        **parts,
    )


def _shares_prefixes(one: ServingEngine, options: ServingOptions, cache: BlockPlan | None) -> bool:
    """Whether requests share cached prefixes: not where a layer keeps no token of a prefix, or a
    state that another request cannot go on from.
    """
    if cache is None or not cache.sequence.full_layers:
        return False
    if options.prefix_cache is None:
        return one.prefix_cache and not cache.sequence.state
    return options.prefix_cache


def _engine(name: str, run: ResolvedRun) -> ServingEngine:
    """The engine, if it runs the model."""
    found = engine(name)
    if found.scheduler == "continuous" and not run.workload.autoregressive:
        remedy = "Leave engine out, or choose static."
        allowed = f"an engine that runs whole batches: {run.workload.name} generates no tokens"
        raise InvalidValueError("engine", name, allowed, remedy)
    return found


def _overhead_s(one: ServingEngine, options: ServingOptions) -> float:
    given = options.step_overhead_s
    return one.step_overhead_s.value if given is None else given


def _steps(
    run: ResolvedRun,
    draft: ResolvedRun | None,
    options: ServingOptions,
    limits: StepLimits,
    overhead_s: float,
) -> StepTimes:
    """Step times of a model that generates."""
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
    return int(getattr(model.parameters, "mtp_layers", 0))


def _draft(
    run: ResolvedRun, run_options: RunOptions, options: ServingOptions, one: ServingEngine
) -> ResolvedRun | None:
    """The model that guesses tokens, on the same ranks.

    Raises:
        InvalidValueError: If it generates nothing.
    """
    guessed = options.guessed
    if guessed is None or guessed.draft is None:
        return None
    model = _own_layers(run) if guessed.draft == OWN_LAYERS else guessed.draft
    first = resolve(model, run.device, run_options)
    if not first.workload.autoregressive:
        allowed = "a model that generates tokens"
        raise InvalidValueError("speculate", guessed.draft, allowed)
    return deployed_run(first, run_options, options, one)


def _check_runs(device: DeviceProfile, options: ServingOptions, one: ServingEngine) -> None:
    """Refuse an engine that is named for a device it does not run on; where none is named, vLLM's
    scheduler stands in for that of whatever serves there.
    """
    if options.engine is None or one.runs(device):
        return
    names = [name for name in engine_names() if engine(name).runs(device)]
    remedy = f"Leave engine out, or choose one of this device: {', '.join(names)}."
    operator = f"engine {options.engine}"
    raise UnsupportedOperatorError(device.name, operator, "it does not run on it", remedy)


def deployed_run(
    first: ResolvedRun, run_options: RunOptions, options: ServingOptions, one: ServingEngine
) -> ResolvedRun:
    """The run on one rank, issued as the engine does.

    Args:
        first: The model as resolved on one device.
        run_options: What it was resolved from.
        options: Ranks and cluster.
        one: The engine.

    Raises:
        UnsupportedOperatorError: If the engine that is named does not run on the device, or the
            model's family is not split over ranks.
        InvalidValueError: If no node joins the ranks.
    """
    refuse_several(first.device, "give tp")
    _check_runs(first.device, options, one)
    model, run = run_options.model, first
    own = model.execution is not None or model.stack is not None
    if not own and one.stack is not None and stack(one.stack).runs(run.device):
        issued = replace(run_options, model=replace(model, stack=one.stack))
        run = resolve(first.workload, first.device, issued)
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


def memory_fraction(
    run: ResolvedRun, one: ServingEngine, options: ServingOptions, max_tokens: int
) -> float:
    """The engine's share of a rank's memory: what is asked for, else its own; as of `memory_of`."""
    ranks = options.devices_per_replica
    return options.memory_fraction or one.share(run.device, max_tokens, options.tp, ranks)


def memory_of(
    run: ResolvedRun,
    one: ServingEngine,
    options: ServingOptions,
    max_tokens: int,
    draft: ResolvedRun | None = None,
) -> Document:
    """Memory for the cache by the engine's rule: fields `memory`, `cache` and `blocks`.

    Args:
        run: The model on one rank.
        one: The engine.
        options: Ranks and the engine's share of the memory.
        max_tokens: Tokens of a full step.
        draft: The model that guesses tokens on the same rank; None for none.

    Raises:
        DoesNotFitError: If weights and activations leave no room for a block, or the blocks that
            are stated are more than the memory holds.
    """
    tokens = min(max_tokens, _BATCHED_TOKENS)
    memory = replica_memory(run, tokens, options.pp, options.adapters)
    if draft is not None:
        memory = memory.beside(replica_memory(draft, tokens, options.pp))
    memory = _with_sampling(memory, run, one, options)
    capacity = run.device.memory_bytes
    fraction = memory_fraction(run, one, options, max_tokens)
    cache = block_plan(memory.cache, one, _layout(run))
    few, many = (
        int(_room(one, memory, fraction * capacity, fraction, reserved) // cache.bytes)
        for reserved in reversed(one.reserved_bytes.ends)
    )
    room = _room(one, memory, fraction * capacity, fraction, one.reserved_bytes.value)
    blocks = int(room // cache.bytes)
    if blocks < 1:
        remedy = "Choose more ranks, a smaller format, or a device with more memory."
        held = memory.weight_bytes + memory.activation_bytes
        raise memory_short(run.device, held + cache.bytes, held + room, remedy)
    if options.kv_blocks is not None:
        most = int((capacity - memory.weight_bytes) // cache.bytes) * options.dp
        if options.kv_blocks > most:  # as a server's log has them, whatever it keeps back
            remedy = "Give fewer, choose more ranks or a smaller format, or leave --kv-blocks out."
            raise DoesNotFitError(run.device.name, "kv_blocks", options.kv_blocks, most, remedy)
        blocks = few = many = options.kv_blocks
    else:
        few, blocks, many = (max(count, 1) * options.dp for count in (few, blocks, many))
    return {"memory": memory, "cache": cache, "blocks": blocks, "blocks_range": (few, many)}


def _room(
    one: ServingEngine,
    memory: ReplicaMemory,
    share_bytes: float,
    fraction: float,
    reserved_bytes: float,
) -> float:
    """Bytes of a rank's cache by the engine's rule.

    Args:
        one: The engine.
        memory: What the rank holds besides.
        share_bytes: The engine's share of the memory.
        fraction: That share.
        reserved_bytes: What context, graphs and communicators take.
    """
    if one.memory_rule == "static":
        return share_bytes - fraction * reserved_bytes - memory.weight_bytes
    beside = memory.weight_bytes + memory.activation_bytes + reserved_bytes
    return share_bytes - beside * (fraction if one.memory_rule == "free" else 1.0)


def _with_sampling(
    memory: ReplicaMemory, run: ResolvedRun, one: ServingEngine, options: ServingOptions
) -> ReplicaMemory:
    """The same where sampling a full batch takes more than the layers' activations."""
    words = int(getattr(run.workload.parameters, "vocab_size", 0))
    if one.logit_bytes is None or not words:
        return memory
    sequences = options.max_seqs or one.limit("max_seqs", run.device, options.tp)
    sampling_bytes = one.logit_bytes.value * sequences * words
    return replace(memory, activation_bytes=max(memory.activation_bytes, sampling_bytes))


def _layout(run: ResolvedRun) -> str:
    """Layout of the model's modules; empty where its family has one alone."""
    return str(getattr(run.workload.parameters, "layout", ""))
