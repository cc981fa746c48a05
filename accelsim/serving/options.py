"""How a model is served, as the caller says it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from accelsim.arguments import checked
from accelsim.errors import InvalidValueError
from accelsim.frozen import frozen
from accelsim.serving.replicas.autoscaling import ScalingPolicy
from accelsim.serving.replicas.outages import OutagePolicy

_MOST_REPLICAS = 100_000
_RANKS = ("replicas", "tp", "pp", "ep", "dp")


def _check_counts(options: Any, names: tuple[str, ...]) -> None:
    for name in names:
        value = getattr(options, name)
        if value is not None and not 1 <= value <= _MOST_REPLICAS:
            raise InvalidValueError(name, value, f"a whole number from 1 to {_MOST_REPLICAS:,}")


@checked
@frozen
class SloTargets:
    """What counts as served well; None asks for nothing.

    Attributes:
        ttft_s: Longest time to the first token.
        tpot_s: Longest mean time per further token.
        e2e_s: Longest time from arrival to the last token.
        attainment_fraction: Share of the requests that must meet all of them.
    """

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None
    attainment_fraction: float = 0.9

    def __post_init__(self) -> None:
        """Refuse targets nothing meets.

        Raises:
            InvalidValueError: Naming the target.
        """
        for name in ("ttft_s", "tpot_s", "e2e_s"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InvalidValueError(f"slo_{name}", value, "a time above 0")
        if not 0 < self.attainment_fraction <= 1:
            raise InvalidValueError("attainment_fraction", self.attainment_fraction, "0 to 1")

    def __str__(self) -> str:
        times = {"TTFT": self.ttft_s, "TPOT": self.tpot_s, "e2e": self.e2e_s}
        parts = [f"{name} {time_s:.3g} s" for name, time_s in times.items() if time_s is not None]
        return f"{', '.join(parts)} for {self.attainment_fraction:.0%} of the requests"

    @property
    def is_empty(self) -> bool:
        """Whether nothing is asked."""
        return self.ttft_s is None and self.tpot_s is None and self.e2e_s is None


@frozen
class PrefillOptions:
    """Replicas that compute prompts alone and send the caches to those that generate.

    Attributes:
        device: Their device; that of the others where None.
        replicas: How many.
        tp: Ranks of each that share heads and columns.
        link: Link of the catalogue that each rank's part of a cache leaves by.
    """

    device: str | None = None
    replicas: int = 1
    tp: int = 1
    link: str = "infiniband-ndr"

    def __post_init__(self) -> None:
        """Refuse counts out of range.

        Raises:
            InvalidValueError: Naming the field.
        """
        _check_counts(self, ("replicas", "tp"))


@frozen
class PoolOptions:
    """Further replicas of a fleet: another device, another model, or both.

    Attributes:
        device: Their device.
        replicas: How many.
        model: Their model; the fleet's first where None.
        share_fraction: Share of the requests that ask for the model, where it is another.
        tp: Ranks that share heads and columns.
        engine: Their engine; the fleet's where None.
    """

    device: str
    replicas: int = 1
    model: str | None = None
    share_fraction: float | None = None
    tp: int = 1
    engine: str | None = None

    def __post_init__(self) -> None:
        """Refuse pools that are none.

        Raises:
            InvalidValueError: Naming the field.
        """
        _check_counts(self, ("replicas", "tp"))
        share = self.share_fraction
        if share is not None and (self.model is None or not 0 < share < 1):
            allowed = "above 0 and below 1, with a model of the pool's own"
            raise InvalidValueError("pool share", share, allowed)


@frozen
class Speculation:
    """Tokens guessed ahead and checked in one step.

    Attributes:
        tokens: Tokens guessed per step.
        acceptance_fraction: Chance that a guess is right, each given those before it.
        draft: Model that guesses; None for guesses that take no model (look-up of n-grams).
    """

    tokens: int
    acceptance_fraction: float
    draft: str | None = None

    def __post_init__(self) -> None:
        """Refuse what is no speculation.

        Raises:
            InvalidValueError: Naming the field.
        """
        if not 1 <= self.tokens <= 64:
            raise InvalidValueError("speculative tokens", self.tokens, "1 to 64")
        if not 0 <= self.acceptance_fraction <= 1:
            raise InvalidValueError("acceptance", self.acceptance_fraction, "0 to 1")

    @property
    def tokens_per_step(self) -> float:
        """Mean tokens that a step adds: (1 - a^(k+1)) / (1 - a) (Leviathan et al., ICML 2023,
        equation 1).
        """
        a, k = self.acceptance_fraction, self.tokens
        return k + 1.0 if a == 1 else (1 - a ** (k + 1)) / (1 - a)


@frozen
class Adapters:
    """Low-rank adapters of one model that requests ask for evenly; all are in device memory.

    Attributes:
        count: How many.
        rank: Their rank.
    """

    count: int
    rank: int = 16

    def __post_init__(self) -> None:
        """Refuse counts out of range.

        Raises:
            InvalidValueError: Naming the field.
        """
        _check_counts(self, ("count", "rank"))


@checked
@frozen
class ServingOptions:
    """How a model is served; the engine's own way where None.

    Attributes:
        engine: vllm, sglang, tensorrt-llm or static; ``name@version`` for one that is not the
            newest. vllm for language models, static for others where None.
        replicas: Copies of the model.
        tp: Ranks that share heads and columns.
        pp: Pipeline stages.
        ep: Ranks that share the experts.
        cluster: What joins the ranks; one of the device's nodes where None.
        max_batch_tokens: Tokens of a step.
        max_seqs: Sequences, or items of a batch, at once.
        memory_fraction: The engine's share of the memory (vLLM's gpu_memory_utilization).
        prefix_cache: Whether requests share cached prefixes.
        step_overhead_s: Host time per step.
        batch_window_s: Of static batches: longest that the first request waits for others.
        router: Which replica takes a request (`routers.ROUTERS`).
        slo: What counts as served well.
        dp: Copies of the attention in one replica, each with requests of its own; experts are
            shared among all of its devices.
        host_cache_bytes: Host memory of a replica for caches that leave the device: of sequences
            put back where they are swapped, else of prefixes.
        preemption: What becomes of the cache of a sequence that is put back: "recompute" or "swap"
            to the host.
        speculation: Tokens guessed ahead; None for none.
        adapters: Low-rank adapters; None for none.
        prefill: Replicas that compute prompts alone; None where all do all.
        pools: Further replicas.
        max_outstanding: Requests at every replica from which on more are refused.
        autoscale: When replicas come and go; None for a fixed number.
        provisioning_s: Time to get a device; the usual one where None.
        storage: Where weights are loaded from, in ``calibration/class/cold_start.yaml``.
        outages: How replicas fail or are taken back; None for never.
    """

    engine: str | None = None
    replicas: int = 1
    tp: int = 1
    pp: int = 1
    ep: int = 1
    cluster: str | None = None
    max_batch_tokens: int | None = None
    max_seqs: int | None = None
    memory_fraction: float | None = None
    prefix_cache: bool | None = None
    step_overhead_s: float | None = None
    batch_window_s: float | None = None
    router: str = "least-outstanding"
    slo: SloTargets = SloTargets()
    dp: int = 1
    host_cache_bytes: float = 0.0
    preemption: str = "recompute"
    speculation: Speculation | None = None
    adapters: Adapters | None = None
    prefill: PrefillOptions | None = None
    pools: tuple[PoolOptions, ...] = ()
    max_outstanding: int | None = None
    autoscale: ScalingPolicy | None = None
    provisioning_s: float | None = None
    storage: str = "network"
    outages: OutagePolicy | None = None

    def __post_init__(self) -> None:
        """Refuse numbers out of range.

        Raises:
            InvalidValueError: Naming the field.
        """
        _check_counts(self, (*_RANKS, "max_batch_tokens", "max_seqs", "max_outstanding"))
        if self.preemption not in {"recompute", "swap"}:
            raise InvalidValueError("preemption", self.preemption, "recompute or swap")
        if self.preemption == "swap" and not self.host_cache_bytes:
            remedy = "Give --host-cache, the host memory for caches."
            raise InvalidValueError("preemption", "swap", "with host memory", remedy)
        if self.memory_fraction is not None and not 0 < self.memory_fraction <= 1:
            raise InvalidValueError("memory_fraction", self.memory_fraction, "above 0 to 1")
        for name in ("step_overhead_s", "batch_window_s", "host_cache_bytes", "provisioning_s"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < float("inf"):
                raise InvalidValueError(name, value, "a finite number >= 0")

    @property
    def devices_per_replica(self) -> int:
        """Devices of one copy."""
        return self.tp * self.pp * self.dp

    def of_prompts(self) -> ServingOptions:
        """Those of the replicas that compute prompts alone."""
        if self.prefill is None:
            return self
        own = self.prefill
        return replace(self._alone(own.tp), replicas=own.replicas)

    def of_pool(self, pool: PoolOptions) -> ServingOptions:
        """Those of a further pool."""
        engine = pool.engine or self.engine
        return replace(self._alone(pool.tp), replicas=pool.replicas, engine=engine)

    def _alone(self, tp: int) -> ServingOptions:
        """Those of replicas with ranks of their own."""
        return replace(self, tp=tp, pp=1, ep=1, dp=1, cluster=None)
