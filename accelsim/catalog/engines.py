"""Inference engines by version: what their schedulers do and how they share memory out, and what a
request waits for before them.

What changed between versions is data: ``calibration/engines/<name>.yaml``. An entry covers a range
of versions; one that names another with ``like`` states only what differs from it. Engines share
the way from a user to the scheduler in kind: a web server in Python that parses a request, a
tokeniser on a thread of its own, a message to the process of the scheduler, and one back per token
(vLLM, v1/engine/async_llm.py; SGLang, managers/tokenizer_manager.py; TensorRT-LLM,
serve/openai_server.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Literal, TypeVar

from pydantic import Field, model_validator

from accelsim.catalog.versions import Span, covers, is_before, span_below
from accelsim.errors import UnknownNameError
from accelsim.files.datafile import data_root, name_key, read_yaml, validated
from accelsim.hardware.profile import DeviceProfile
from accelsim.hardware.sourced import FrozenModel
from accelsim.plain import Document
from accelsim.workloads.graph import FloatArray

#: A number of tokens, or an array of them.
Tokens = TypeVar("Tokens", float, FloatArray)


class SourcedFigure(FrozenModel):
    """A figure and where it is from.

    Attributes:
        value: The figure.
        low: Low end of what the source shows; the figure itself where it shows one value.
        high: High end.
        kind: What kind of figure it is.
        source: Where it is from.
    """

    value: float = Field(ge=0)
    low: float | None = Field(default=None, ge=0)
    high: float | None = Field(default=None, ge=0)
    kind: Literal["datasheet", "measured", "derived", "estimate"]
    source: str = Field(min_length=8)

    @model_validator(mode="after")
    def _ordered(self) -> SourcedFigure:
        low, high = self.ends
        if not low <= self.value <= high:
            raise ValueError(f"low = {low}, value = {self.value}, high = {high} are out of order")
        return self

    @property
    def ends(self) -> tuple[float, float]:
        """Low and high end."""
        low = self.value if self.low is None else self.low
        return low, self.value if self.high is None else self.high


class FrontEnd(FrozenModel):
    """Times of a request outside the steps of its replica.

    Attributes:
        request_s: Of any request.
        prompt_token_s: Of each token of its prompt.
    """

    kind: Literal["front_end"]
    request_s: SourcedFigure
    prompt_token_s: SourcedFigure

    def time_s(self, prompt_tokens: Tokens) -> Tokens:
        """Seconds from a user to the scheduler and back, without the steps between."""
        return self.request_s.value + prompt_tokens * self.prompt_token_s.value


@lru_cache(maxsize=1)
def front_end() -> FrontEnd:
    """The front end of servers of language models."""
    path = data_root() / "calibration" / "class" / "front_end.yaml"
    return validated(path, lambda: FrontEnd.model_validate(read_yaml(path)))


class _Limit(FrozenModel):
    """A limit on devices with so much memory, and replicas of so many ranks.

    Attributes:
        from_gb: Least memory of the device, in 1e9 bytes.
        from_ranks: Fewest ranks that share the model's heads.
        not_on: Parts of the names of boards that the engine leaves out.
        value: The limit.
    """

    from_gb: float = Field(ge=0)
    from_ranks: int = Field(default=1, ge=1)
    not_on: tuple[str, ...] = Field(default=(), strict=False)
    value: int = Field(ge=1)

    def holds(self, device: DeviceProfile, ranks: int) -> bool:
        """Whether it is a limit of such a replica."""
        is_left_out = any(name in device.name for name in self.not_on)
        is_large = self.from_gb * 1e9 <= device.memory_bytes
        return is_large and self.from_ranks <= ranks and not is_left_out


_Limits = Annotated[tuple[_Limit, ...], Field(min_length=1, strict=False)]


def _limit(limits: tuple[_Limit, ...], device: DeviceProfile, ranks: int) -> int:
    """The last of the limits that holds."""
    return [limit.value for limit in limits if limit.holds(device, ranks)][-1]


class StaticReserve(FrozenModel):
    """Memory that an engine keeps beside weights and cache, by its own rule, in MiB.

    Attributes:
        base_mib: Whatever is served.
        token_mib: Per token of a full step.
        graph_mib: Per sequence of the largest captured batch.
        graph_seqs: Sequences of that batch.
        rank_mib: Per rank of the replica.
        least_mib: No less than this on a device with so much memory.
        source: Where the rule was read.
    """

    base_mib: float = Field(ge=0)
    token_mib: float = Field(ge=0)
    graph_mib: float = Field(ge=0)
    graph_seqs: _Limits
    rank_mib: float = Field(ge=0)
    least_mib: _Limits
    source: str = Field(min_length=8)

    def fraction(self, device: DeviceProfile, tokens: int, tp: int, ranks: int) -> float:
        """Share of the memory that is left for weights and cache.

        Args:
            device: A rank's device.
            tokens: Tokens of a full step.
            tp: Ranks that share the heads.
            ranks: Ranks of the replica.
        """
        graphs = self.graph_mib * _limit(self.graph_seqs, device, tp)
        reserved_mib = self.base_mib + self.token_mib * tokens + graphs + self.rank_mib * ranks
        reserved_mib = max(reserved_mib, _limit(self.least_mib, device, tp))
        return 1.0 - reserved_mib * 2**20 / device.memory_bytes


class PromptIssue(FrozenModel):
    """How a host issues a step with prompts that no captured graph covers: operator by operator.

    Attributes:
        dense_ratio: Time to issue the operators, over the device class's in an eager framework.
        expert_ratio: The same of models with experts, whose layers are many calls each.
        source: Where that was seen.
    """

    dense_ratio: float = Field(ge=0, le=20)
    expert_ratio: float = Field(ge=0, le=20)
    source: str = Field(min_length=8)


class WindowRule(FrozenModel):
    """How an engine keeps the windows of layers that see no more.

    Attributes:
        ratio: Tokens of the windowed layers' pool to those of the full layers'; None where both
            take blocks from one pool.
        layouts: Layouts of the models it does so for; all where empty.
        without: Layouts of those it does not.
        source: Where that was read.
    """

    ratio: float | None = Field(default=None, gt=0, le=1)
    layouts: tuple[str, ...] = Field(default=(), strict=False)
    without: tuple[str, ...] = Field(default=(), strict=False)
    source: str = Field(min_length=8)


class ServingEngine(FrozenModel):
    """One version of an engine.

    Attributes:
        version: The first version that is so.
        through: The last version whose source was read.
        asked: The version asked for; empty where none was.
        source: Where its behaviour was read.
        scheduler: "continuous", or "window" for batches that run as a whole.
        stack: Software that runs the model, where it runs on the device; the device's usual one
            where None.
        runs_on: Vendors by class of devices, all where empty; None for every device.
        mixed: Whether prompts and further tokens share steps.
        chunked: Whether prompts are computed in parts.
        reserve: What must find cache blocks before a prompt starts: its first part, all of the
            prompt, or the whole sequence.
        prefix_cache: Whether requests share cached prefixes.
        block_tokens: Tokens of a cache block.
        keeps_windows: How windowed layers keep their window alone; None where they keep all tokens.
        watermark_fraction: Share of the blocks that starting a prompt leaves free.
        max_batch_tokens: Tokens of a step, by the device's memory.
        max_seqs: Sequences (or items of a batch) at once, by the device's memory.
        batch_window_s: Longest that the first request of a batch waits for others.
        schedules_ahead: Whether the host chooses a batch while the one before it runs.
        poll_steps: Steps of further tokens from one look for new requests to the next.
        hold_steps: Steps that prompts wait for others while sequences run.
        hold_tokens_fraction: Share of the tokens of a step that ends that wait; 0 for no such end.
        memory_rule: "total": the cache gets the fraction of the memory less weights, activations
            and what is reserved; "static": the fraction of what the reserve leaves holds weights
            and cache; "free": the cache gets the fraction of what weights, activations and the
            reserve leave.
        memory_fraction: That fraction; None where `static_reserve` gives it.
        static_reserve: What is kept beside the static share, where a rule says so.
        issues_prompts: How steps with prompts are issued; None where graphs or compiled code make
            that no matter.
        step_overhead_s: Host time per step that nothing overlaps.
        reserved_bytes: Memory for the driver, captured graphs and communication.
        logit_bytes: Memory that sampling takes per logit of a full batch while the engine measures
            its activations; None where it is not measured so.
        start_s: From loaded weights to the first request: profiling, compilation, captured graphs.
    """

    version: str
    through: str | None = None
    asked: str = ""
    source: str
    scheduler: Literal["continuous", "window"] = "continuous"
    stack: str | None = None
    runs_on: Mapping[str, Annotated[tuple[str, ...], Field(strict=False)]] | None = None
    mixed: bool = True
    chunked: bool = True
    reserve: Literal["part", "prompt", "sequence"] = "part"
    prefix_cache: bool = False
    block_tokens: int = Field(default=16, ge=1)
    keeps_windows: WindowRule | None = None
    watermark_fraction: float = Field(default=0.0, ge=0, lt=1)
    max_batch_tokens: _Limits
    max_seqs: _Limits
    batch_window_s: float = Field(default=0.0, ge=0)
    schedules_ahead: bool = False
    poll_steps: int = Field(default=1, ge=1)
    hold_steps: int = Field(default=0, ge=0)
    hold_tokens_fraction: float = Field(default=0.0, ge=0, le=1)
    memory_rule: Literal["total", "static", "free"]
    memory_fraction: float | None = Field(default=None, gt=0, le=1)
    static_reserve: StaticReserve | None = None
    issues_prompts: PromptIssue | None = None
    step_overhead_s: SourcedFigure
    reserved_bytes: SourcedFigure
    logit_bytes: SourcedFigure | None = None
    start_s: SourcedFigure

    @property
    def span(self) -> Span:
        """Versions that are so."""
        return Span(self.version, self.through or self.version)

    @property
    def label(self) -> str:
        """The version asked for, else the newest that is so."""
        return self.asked or self.span.last

    @property
    def note(self) -> str:
        """That another version answers for the one asked for; empty where none does."""
        if not self.asked or covers(self.span, self.asked):
            return ""
        return f"Engine version {self.asked} has no data of its own: as version {self.span.text}."

    def runs(self, device: DeviceProfile) -> bool:
        """Whether it runs on a device."""
        if self.runs_on is None:
            return True
        vendors = self.runs_on.get(device.device_class)
        return vendors is not None and (not vendors or device.vendor in vendors)

    def limit(
        self, name: Literal["max_batch_tokens", "max_seqs"], device: DeviceProfile, ranks: int = 1
    ) -> int:
        """A limit of its batches.

        Args:
            name: Which.
            device: A rank's device.
            ranks: Ranks that share the heads.
        """
        limits = self.max_seqs if name == "max_seqs" else self.max_batch_tokens
        return _limit(limits, device, ranks)

    def share(self, device: DeviceProfile, tokens: int, tp: int, ranks: int) -> float:
        """Its share of a device's memory, as its rule has it; as of `StaticReserve.fraction`."""
        if self.static_reserve is not None:
            return self.static_reserve.fraction(device, tokens, tp, ranks)
        return 1.0 if self.memory_fraction is None else self.memory_fraction


class _EngineFile(FrozenModel):
    kind: Literal["engine"]
    name: str
    versions: tuple[ServingEngine, ...] = Field(min_length=1, strict=False)


def engine_names() -> tuple[str, ...]:
    """Engines there are data of, sorted."""
    folder = data_root() / "calibration" / "engines"
    return tuple(sorted(path.stem for path in folder.glob("*.yaml")))


def engine_versions(name: str) -> tuple[ServingEngine, ...]:
    """All that is known of an engine, the newest first; as of `engine`."""
    if name not in engine_names():
        raise UnknownNameError("engine", name, engine_names())
    return _file(name).versions


def engine(name: str) -> ServingEngine:
    """An engine, in its newest version unless another is named.

    A version between two that there are data of takes the older one, and says so in its note.

    Args:
        name: Its name, or ``name@version``.

    Raises:
        UnknownNameError: If there is no engine or version of that name.
        ProfileError: If its file does not validate.
    """
    wanted, _, version = name_key(name).partition("@")
    versions = engine_versions(wanted)
    if not version:
        return versions[0]
    spans = [entry.span for entry in versions]
    nearest_span = span_below(version, spans)
    if nearest_span is None:  # it lies outside, or has no number
        nearest = spans[-1].first if is_before(version, spans[-1]) else spans[0].last
        ranges = ", ".join(span.text for span in spans)
        remedy = f"Nearest: {wanted}@{nearest}. There are {wanted} {ranges}."
        raise UnknownNameError("engine version", name, (), remedy)
    return versions[spans.index(nearest_span)].model_copy(update={"asked": version})


@lru_cache(maxsize=64)
def engine_of(stack: str) -> ServingEngine | None:
    """The engine that a stack is the kernels of; None where it is no engine's.

    Args:
        stack: Its name, with ``@version`` where that is not the default.
    """
    name = stack.partition("@")[0]
    if name not in engine_names():
        return None
    try:
        return engine(stack)
    except UnknownNameError:  # of a version that there is no engine of
        return engine(name)


@lru_cache(maxsize=16)
def _file(name: str) -> _EngineFile:
    path = data_root() / "calibration" / "engines" / f"{name}.yaml"
    return validated(path, lambda: _EngineFile.model_validate(_completed(read_yaml(path))))


def _completed(entries: Document) -> Document:
    """A file's versions with all that they take from the one they are like."""
    completed: dict[str, Document] = {}
    for stated in entries["versions"]:
        entry = (completed[stated["like"]] if "like" in stated else {}) | {"through": None} | stated
        entry.pop("like", None)
        completed[stated["version"]] = entry
    return {**entries, "versions": list(completed.values())}
