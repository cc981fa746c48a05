"""Inference engines by version: what their schedulers do and how they share memory out.

What changed between versions is data: ``calibration/engines/<name>.yaml``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from pydantic import Field

from accelsim.errors import UnknownNameError
from accelsim.files.datafile import data_root, name_key, read_yaml, validated
from accelsim.hardware.sourced import FrozenModel


class SourcedFigure(FrozenModel):
    """A figure and where it is from."""

    value: float = Field(ge=0)
    kind: Literal["datasheet", "measured", "derived", "estimate"]
    source: str = Field(min_length=8)


class _FromMemory(FrozenModel):
    from_gb: float = Field(ge=0)
    value: int = Field(ge=1)


class ServingEngine(FrozenModel):
    """One version of an engine.

    Attributes:
        version: Its version.
        source: Where its behaviour was read.
        scheduler: "continuous", or "window" for batches that run as a whole.
        stack: Software that runs the model, where it runs on the device; the device's usual one
            where None.
        mixed: Whether prompts and further tokens share steps.
        chunked: Whether prompts are computed in parts.
        reserve: What must find cache blocks before a prompt starts: its first part, all of the
            prompt, or the whole sequence.
        prefix_cache: Whether requests share cached prefixes.
        block_tokens: Tokens of a cache block.
        watermark_fraction: Share of the blocks that starting a prompt leaves free.
        max_batch_tokens: Tokens of a step, by the device's memory.
        max_seqs: Sequences (or items of a batch) at once, by the device's memory.
        batch_window_s: Longest that the first request of a batch waits for others.
        schedules_ahead: Whether the host chooses a batch while the one before it runs.
        poll_steps: Steps of further tokens from one look for new requests to the next.
        hold_steps: Steps that prompts wait for others while sequences run.
        hold_tokens_fraction: Share of the tokens of a step that ends that wait; 0 for no such end.
        memory_rule: "total": the cache gets the fraction of the memory less weights, activations
            and what is reserved; "static": the fraction holds weights and cache; "free": the cache
            gets the fraction of what weights, activations and the reserve leave.
        memory_fraction: That fraction.
        step_overhead_s: Host time per step that nothing overlaps.
        reserved_bytes: Memory for the driver, captured graphs and communication.
        start_s: From loaded weights to the first request: profiling, compilation, captured graphs.
    """

    version: str
    source: str
    scheduler: Literal["continuous", "window"] = "continuous"
    stack: str | None = None
    mixed: bool = True
    chunked: bool = True
    reserve: Literal["part", "prompt", "sequence"] = "part"
    prefix_cache: bool = False
    block_tokens: int = Field(default=16, ge=1)
    watermark_fraction: float = Field(default=0.0, ge=0, lt=1)
    max_batch_tokens: tuple[_FromMemory, ...] = Field(min_length=1, strict=False)
    max_seqs: tuple[_FromMemory, ...] = Field(min_length=1, strict=False)
    batch_window_s: float = Field(default=0.0, ge=0)
    schedules_ahead: bool = False
    poll_steps: int = Field(default=1, ge=1)
    hold_steps: int = Field(default=0, ge=0)
    hold_tokens_fraction: float = Field(default=0.0, ge=0, le=1)
    memory_rule: Literal["total", "static", "free"]
    memory_fraction: float = Field(gt=0, le=1)
    step_overhead_s: SourcedFigure
    reserved_bytes: SourcedFigure
    start_s: SourcedFigure

    def limit(self, name: Literal["max_batch_tokens", "max_seqs"], memory_bytes: float) -> int:
        """A limit on a device with so much memory."""
        values = [row.value for row in getattr(self, name) if row.from_gb * 1e9 <= memory_bytes]
        return int(values[-1])


class _EngineFile(FrozenModel):
    kind: Literal["engine"]
    name: str
    versions: tuple[ServingEngine, ...] = Field(min_length=1, strict=False)


def engine_names() -> tuple[str, ...]:
    """Engines there are data of, sorted."""
    folder = data_root() / "calibration" / "engines"
    return tuple(sorted(path.stem for path in folder.glob("*.yaml")))


def engine(name: str) -> ServingEngine:
    """An engine, in its newest version unless another is named.

    Args:
        name: Its name, or ``name@version``.

    Raises:
        UnknownNameError: If there is no engine or version of that name.
        ProfileError: If its file does not validate.
    """
    wanted, _, version = name_key(name).partition("@")
    if wanted not in engine_names():
        raise UnknownNameError("engine", name, engine_names())
    versions = _file(wanted).versions
    found = {one.version: one for one in versions}
    if version and version not in found:
        known = [f"{wanted}@{one}" for one in found]
        raise UnknownNameError("engine version", name, known, f"There are {', '.join(known)}.")
    return found[version] if version else versions[0]


@lru_cache(maxsize=16)
def _file(name: str) -> _EngineFile:
    path = data_root() / "calibration" / "engines" / f"{name}.yaml"
    return validated(path, lambda: _EngineFile.model_validate(read_yaml(path)))
