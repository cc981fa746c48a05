"""How a model is served, as the caller says it."""

from __future__ import annotations

from dataclasses import dataclass

from accelsim.errors import InvalidValueError

__all__ = ["ServingOptions", "SloTargets"]

_MOST_REPLICAS = 100_000


@dataclass(frozen=True, slots=True)
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

    @property
    def is_empty(self) -> bool:
        """Whether nothing is asked."""
        return self.ttft_s is None and self.tpot_s is None and self.e2e_s is None


@dataclass(frozen=True, slots=True)
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

    def __post_init__(self) -> None:
        """Refuse numbers out of range.

        Raises:
            InvalidValueError: Naming the field.
        """
        for name in ("replicas", "tp", "pp", "ep", "max_batch_tokens", "max_seqs"):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= _MOST_REPLICAS:
                raise InvalidValueError(name, value, f"a whole number from 1 to {_MOST_REPLICAS:,}")
        if self.memory_fraction is not None and not 0 < self.memory_fraction <= 1:
            raise InvalidValueError("memory_fraction", self.memory_fraction, "above 0 to 1")
        for name in ("step_overhead_s", "batch_window_s"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < float("inf"):
                raise InvalidValueError(name, value, "a finite number >= 0")

    @property
    def devices_per_replica(self) -> int:
        """Devices of one copy."""
        return self.tp * self.pp
