"""How a model is served, as the caller says it."""

from __future__ import annotations

from dataclasses import field, replace

from accelsim.arguments import checked
from accelsim.errors import InvalidValueError
from accelsim.frozen import frozen
from accelsim.option import (
    REQUIRED,
    check_ranges,
    gigabytes,
    of_parts,
    of_words,
    option,
    ranged,
    seconds,
)
from accelsim.quantity import duration
from accelsim.serving.replicas.autoscaling import ScalingPolicy, scaling_policy
from accelsim.serving.replicas.outages import OutagePolicy
from accelsim.serving.speculation import Speculation, speculation

_COUNT = (1, 100_000)
_BLOCKS = (1, 1_000_000_000)
_PRIORITY = 1_000_000
#: Shares whose sum is so close to all leave no rest.
_ROUNDING = 1e-9
#: Share of the requests that must meet all targets where none is said: of `serve`, its questions
#: and searches.
ATTAINMENT_FRACTION = 0.9
#: What the times of targets are called, by the name of their field.
TARGET_TIMES = {"ttft_s": "TTFT", "tpot_s": "TPOT", "e2e_s": "e2e"}


def _share_of_requests(name: str, text: str) -> float:
    """A share, or the percentile at which targets are kept: p99."""
    allowed = "a percentile above p0 and below p100, or a share, such as p99 or 0.97"
    try:
        value = float(text.removeprefix("p"))
    except ValueError:
        raise InvalidValueError(name, text, allowed) from None
    if not text.startswith("p"):
        return value
    if not 0 < value < 100:
        raise InvalidValueError(name, text, allowed)
    return value / 100.0


@checked
@frozen
class SloTargets:
    """What counts as served well; None asks for nothing."""

    ttft_s: float | None = option(
        "Longest time to the first token: 500ms, 2s.",
        metavar="TIME",
        flags="--slo-ttft",
        parse=seconds,
    )
    tpot_s: float | None = option(
        "Longest mean time per further token.", metavar="TIME", flags="--slo-tpot", parse=seconds
    )
    e2e_s: float | None = option(
        "Longest time to the last token.", metavar="TIME", flags="--slo-e2e", parse=seconds
    )
    attainment_fraction: float = option(
        "Share of the requests that must meet all targets: p50, p90, p95, p99 or 0.97.",
        ATTAINMENT_FRACTION,
        "SHARE",
        "--slo-attainment",
        _share_of_requests,
    )

    def __post_init__(self) -> None:
        """Refuse targets nothing meets.

        Raises:
            InvalidValueError: Naming the target.
        """
        for name, time_s in longest_times(self).items():
            if not time_s > 0:
                raise InvalidValueError(f"slo_{name}", time_s, "a time above 0")
        if not 0 < self.attainment_fraction <= 1:
            share = self.attainment_fraction
            raise InvalidValueError("attainment_fraction", share, "above 0, and up to 1")

    def __str__(self) -> str:
        times = longest_times(self).items()
        texts = ", ".join(f"{TARGET_TIMES[name]} {duration(time_s)}" for name, time_s in times)
        return f"{texts} for {100 * self.attainment_fraction:g} % of the requests"

    @property
    def is_empty(self) -> bool:
        """Whether nothing is asked."""
        return not longest_times(self)


@checked
@frozen
class ServiceClass:
    """Requests with targets and a priority of their own.

    Attributes:
        name: What they are called.
        share_fraction: Share of all requests.
        priority: Lower is served first.
        ttft_s: Longest time to the first token; as all targets, the fleet's where None.
        tpot_s: Longest mean time per further token.
        e2e_s: Longest time to the last token.
    """

    name: str
    share_fraction: float = ranged(1.0, (0, 1))
    priority: int = ranged(0, (-_PRIORITY, _PRIORITY))
    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None

    def __post_init__(self) -> None:
        """Refuse classes that are none.

        Raises:
            InvalidValueError: Naming the field.
        """
        check_ranges(self)
        self.targets(SloTargets())

    def targets(self, fleet: SloTargets) -> SloTargets:
        """What counts as served well.

        Args:
            fleet: Targets of the fleet, where the class has none.
        """
        return replace(fleet, **longest_times(self))


def longest_times(targets: SloTargets | ServiceClass) -> dict[str, float]:
    """Longest times that are asked for, by the name of their field."""
    times_s = zip(TARGET_TIMES, (targets.ttft_s, targets.tpot_s, targets.e2e_s), strict=True)
    return {name: time_s for name, time_s in times_s if time_s is not None}


@frozen
class PrefillOptions:
    """Replicas that compute prompts alone and send the caches to those that generate."""

    device: str | None = option(
        "Compute prompts on replicas of their own, on this device; their caches "
        "move to the other replicas.",
        metavar="NAME",
        flags="--prefill-device",
    )
    replicas: int = option(
        "Number of replicas for prompts.", 1, flags="--prefill-replicas", within=_COUNT
    )
    tp: int = option("Ranks of each replica for prompts.", 1, flags="--prefill-tp", within=_COUNT)
    link: str = option(
        "Link of the catalogue over which caches move.",
        "infiniband-ndr",
        "NAME",
        "--kv-link",
    )

    def __post_init__(self) -> None:
        """Refuse counts out of range.

        Raises:
            InvalidValueError: Naming the field.
        """
        check_ranges(self)


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
    replicas: int = ranged(1, _COUNT)
    model: str | None = None
    share_fraction: float | None = None
    tp: int = ranged(1, _COUNT)
    engine: str | None = None

    def __post_init__(self) -> None:
        """Refuse pools that are none.

        Raises:
            InvalidValueError: Naming the field.
        """
        check_ranges(self)
        share = self.share_fraction
        if share is not None and (self.model is None or not 0 < share < 1):
            allowed = "above 0 and below 1, with a model of the pool's own"
            raise InvalidValueError("pool share", share, allowed)


@frozen
class Adapters:
    """Low-rank adapters of one model that requests ask for evenly; all are in device memory.

    Attributes:
        count: How many.
        rank: Their rank.
    """

    count: int = ranged(REQUIRED, _COUNT)
    rank: int = ranged(16, _COUNT)

    def __post_init__(self) -> None:
        """Refuse counts out of range.

        Raises:
            InvalidValueError: Naming the field.
        """
        check_ranges(self)


def _pool(name: str, text: str) -> PoolOptions:
    """A pool as ``device=l4,replicas=4,model=llama-3.2-1b,share=0.3``."""
    form = "key=value pairs with device, and any of replicas, model, share, tp, engine"
    return of_words(PoolOptions, _pairs(text), name, text, form)


def _service_class(name: str, text: str) -> ServiceClass:
    """A class as ``name=interactive,ttft=300ms,share=0.3,priority=1``."""
    form = "key=value pairs with name, and any of share, priority, ttft, tpot, e2e"
    values = _pairs(text)
    for time in {"ttft", "tpot", "e2e"} & values.keys():
        values[f"{time}_s"] = str(seconds(name, values.pop(time)))
    return of_words(ServiceClass, values, name, text, form)


def _pairs(text: str) -> dict[str, str]:
    """Words by key."""
    parts = (pair.partition("=") for pair in text.split(","))
    return {"share_fraction" if key == "share" else key: word for key, _, word in parts}


@checked
@frozen
class ServingOptions:
    """How a model is served; the engine's own way where None.

    Attributes:
        prefix_cache: Whether requests share cached prefixes.
        step_overhead_s: Host time per step.
        slo: What counts as served well.
        prefill: Replicas that compute prompts alone; None where all do all.
        outages: How replicas fail or are taken back; None for never.
    """

    engine: str | None = option(
        "Engine: vllm, sglang, tensorrt-llm or static. NAME@VERSION takes an older version.",
        metavar="NAME",
    )
    replicas: int = option(
        "Replicas: copies of the model, each on its own devices.", 1, within=_COUNT
    )
    tp: int = option("Tensor parallelism: ranks that share heads and columns.", 1, within=_COUNT)
    pp: int = option("Pipeline stages.", 1, within=_COUNT)
    ep: int = option("Expert parallelism: ranks that share the experts.", 1, within=_COUNT)
    expert_skew: float = option(
        "Exponent of Zipf's law by which experts of --ep differ in popularity; 0 for even shares.",
        0.0,
        within=(0, 10),
    )
    cluster: str | None = option(
        "Cluster or node that joins the ranks. Default: a node of the device.", metavar="NAME"
    )
    max_batch_tokens: int | None = option(
        "Limit of tokens per step. Default: the engine's.", within=_COUNT
    )
    max_seqs: int | None = option(
        "Limit of sequences (or items of a batch) at once. Default: the engine's.", within=_COUNT
    )
    memory_fraction: float | None = option(
        "Share of the memory that the engine takes.", flags="--gpu-memory-utilization"
    )
    kv_blocks: int | None = option(
        "Cache blocks of a replica, as the engine counts them (vLLM: "
        "num_gpu_blocks). Default: as many as memory holds.",
        within=_BLOCKS,
    )
    prefix_cache: bool | None = None
    step_overhead_s: float | None = None
    batch_window_s: float | None = option(
        "Static batches: longest wait for other requests (5ms).",
        metavar="TIME",
        flags="--batch-window",
        parse=seconds,
    )
    router: str = option(
        "Router: round-robin, random, least-outstanding, least-waiting, least-kv or prefix-aware.",
        "least-outstanding",
        "NAME",
    )
    slo: SloTargets = field(default_factory=SloTargets)
    dp: int = option(
        "Copies of the attention in one replica, each with its own requests; experts are shared "
        "by all its devices.",
        1,
        within=_COUNT,
    )
    host_cache_bytes: float = option(
        "Host memory of a replica for caches that leave the device, such as 64GB.",
        0.0,
        "SIZE",
        "--host-cache",
        parse=gigabytes,
    )
    preemption: str = option(
        "What happens to the cache of a sequence that is put back: recompute, or "
        "swap to --host-cache.",
        "recompute",
        "NAME",
    )
    speculation: Speculation | None = option(
        "Speculation: tokens guessed ahead, chance that a guess is right, and the"
        " model that guesses, as 4:0.8:llama-3.2-1b (mtp: the model's own "
        "layers), or none. Default for models with such layers: a range over none"
        " and mtp.",
        metavar="PARTS",
        flags="--speculate",
        parse=speculation,
    )
    adapters: Adapters | None = option(
        "Number of low-rank adapters in device memory, and their rank: 8:32.",
        metavar="PARTS",
        parse=of_parts(
            Adapters, "(?P<count>[^:]+):?(?P<rank>.*)", "NUMBER or NUMBER:RANK, such as 8:32"
        ),
    )
    prefill: PrefillOptions | None = None
    pools: tuple[PoolOptions, ...] = option(
        "Further replicas, repeatable: device=l4,replicas=4. Another model takes a share of the "
        "requests: device=l4,model=NAME,share=0.3. Also tp and engine.",
        (),
        "KEY=VALUE",
        "--pool",
        parse=_pool,
        repeated=True,
    )
    classes: tuple[ServiceClass, ...] = option(
        "Classes of service, repeatable: name=interactive,share=0.3,priority=1,ttft=300ms; tpot "
        "and e2e too. Lower priorities come first; the rest of the requests come last.",
        (),
        "KEY=VALUE",
        "--class",
        parse=_service_class,
        repeated=True,
    )
    max_outstanding: int | None = option(
        "Refuse requests while every replica has this many.", within=_COUNT
    )
    autoscale: ScalingPolicy | None = option(
        "Add and remove replicas with the load: utilisation:0.7, queue:8:1-16 (requests per "
        "replica, fewest-most), ttft:500ms or itl:50ms (p90).",
        metavar="POLICY",
        parse=scaling_policy,
    )
    provisioning_s: float | None = option(
        "Time to get a device for a new replica.",
        metavar="TIME",
        flags="--provisioning",
        parse=seconds,
    )
    storage: str = option(
        "Where new replicas load weights from: nvme, network, object or memory.", "network", "NAME"
    )
    outages: OutagePolicy | None = None

    def __post_init__(self) -> None:
        """Refuse numbers out of range.

        Raises:
            InvalidValueError: Naming the field.
        """
        check_ranges(self)
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
        self._check_classes()

    def _check_classes(self) -> None:
        total = sum(service_class.share_fraction for service_class in self.classes)
        if total > 1 + _ROUNDING:
            raise InvalidValueError("class share", total, "up to 1 in all")
        names = [service_class.name for service_class in self.service_classes]
        if len(set(names)) < len(names):
            raise InvalidValueError("class name", names, "names that differ; the rest is other")

    @property
    def service_classes(self) -> tuple[ServiceClass, ...]:
        """Classes of all requests: those asked for, then that of the rest; empty for none."""
        rest_fraction = 1.0 - sum(service_class.share_fraction for service_class in self.classes)
        if not self.classes or rest_fraction < _ROUNDING:
            return self.classes
        last = max(service_class.priority for service_class in self.classes)
        return (*self.classes, ServiceClass("other", rest_fraction, min(last + 1, _PRIORITY)))

    @property
    def targets(self) -> tuple[SloTargets, ...]:
        """What counts as served well: of each class, or of all requests where there are none."""
        targets = tuple(service.targets(self.slo) for service in self.service_classes)
        return targets or (self.slo,)

    @property
    def guessed(self) -> Speculation | None:
        """Speculation where there is any."""
        return self.speculation if self.speculation and self.speculation.tokens else None

    @property
    def devices_per_replica(self) -> int:
        """Devices of one copy."""
        return self.tp * self.pp * self.dp

    def of_others(self, replicas: int, tp: int, engine: str | None = None) -> ServingOptions:
        """Those of further replicas, which have ranks and memory of their own.

        Args:
            replicas: How many.
            tp: Ranks that share heads and columns.
            engine: Their engine; the fleet's where None.
        """
        return replace(
            self,
            engine=engine or self.engine,
            replicas=replicas,
            tp=tp,
            pp=1,
            ep=1,
            dp=1,
            cluster=None,
            kv_blocks=None,
        )
