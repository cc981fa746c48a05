"""Reads Benchmark Reports v0.2 of llm-d (YAML or JSON).

Fields: llm-d-benchmark, ``llmdbenchmark/analysis/benchmark_report/schema_v0_2.py``. Loads whose
requests share prefixes or go on for turns, and systems with prompts on replicas of their own, are
refused: their steps are not told apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AliasPath, Field

from accelsim.errors import InvalidValueError
from accelsim.learning.readings import Count, FileEntry, Positive, Reading, Told, filled
from accelsim.plain import Document

_SECONDS = {"s": 1.0, "ms": 1e-3, "s/token": 1.0, "ms/token": 1e-3}
_Unit = Literal["s", "ms", "s/token", "ms/token"]
_OF = "results.request_performance.aggregate"


def _at(path: str, default: object = ...) -> Any:
    """A field that lies deeper in the report; required without a default."""
    return Field(default, validation_alias=AliasPath(*path.split(".")))


class Engine(FileEntry):
    """A component that runs a model; others have another kind."""

    kind: str = _at("standardized.kind", "")
    tool: str = _at("standardized.tool", "")
    tool_version: str = _at("standardized.tool_version", "")
    role: str = _at("standardized.role", "")
    replicas: Count = _at("standardized.replicas", 1)
    model: str = _at("standardized.model.name", "")
    device: str = _at("standardized.accelerator.model", "")
    tp: Count | None = _at("standardized.accelerator.parallelism.tp", None)

    @property
    def engine(self) -> str:
        """Engine and version, where that is no name of an image; llm-d runs vLLM."""
        tool = {"llm-d": "vllm"}.get(self.tool, self.tool)
        plain = re.fullmatch(r"v?(\d+\.\d+)(\.\d+)?", self.tool_version)
        return f"{tool}@{plain[1]}" if plain else tool


class BenchmarkReport(FileEntry):
    """One run: what ran, under which load, and means of what was measured."""

    version: Annotated[str, Field(pattern=r"^0\.2(\.\d+)?$", coerce_numbers_to_str=True)]
    start: str = _at("run.time.start", "")
    stack: list[Engine] = _at("scenario.stack")
    prefix: Document | None = _at("scenario.load.standardized.prefix", None)
    has_turns: bool = _at("scenario.load.standardized.multi_turn.enabled", default=False)
    rate_qps: Positive | None = _at("scenario.load.standardized.rate_qps", None)
    concurrency: float | None = _at("scenario.load.standardized.concurrency", None)
    total: Count = _at(f"{_OF}.requests.total")
    failures: int = _at(f"{_OF}.requests.failures", 0)
    prompt: Positive = _at(f"{_OF}.requests.input_length.mean")
    output: Positive = _at(f"{_OF}.requests.output_length.mean")
    first_token: Positive | None = _at(f"{_OF}.latency.time_to_first_token.mean", None)
    first_token_units: _Unit = _at(f"{_OF}.latency.time_to_first_token.units", "s")
    further_token: Positive = _at(f"{_OF}.latency.time_per_output_token.mean")
    further_token_units: _Unit = _at(f"{_OF}.latency.time_per_output_token.units")

    def arrivals(self, replicas: int, source: str) -> Document:
        """The share of the load that one of the replicas has, as `accelsim.Arrivals` takes it.

        Raises:
            InvalidValueError: If it is of a kind that is not learned from, or says no rate.
        """
        if self.prefix is not None or self.has_turns:
            raise InvalidValueError(
                "load", "prefix, multi_turn", f"requests of their own: {source}"
            )
        arrivals: Document = {
            "prompt": str(round(self.prompt)),
            "output": str(max(round(self.output), 1)),
            "requests": max((self.total - self.failures) // replicas, 1),
        }
        if self.rate_qps is not None:
            return arrivals | {"rate_per_s": self.rate_qps / replicas}
        if self.concurrency is not None and 1 <= self.concurrency < self.total:
            return arrivals | {"users": max(round(self.concurrency / replicas), 1)}
        allowed = f"a rate or a number of users, said by {source}"
        raise InvalidValueError("rate_qps", self.rate_qps, allowed)


def read_report(source: str, data: Document, told: Told) -> Iterator[Reading]:
    """The run of a report.

    Args:
        source: File and place.
        data: The report.
        told: What it does not say.

    Raises:
        ProfileError: If it is no such report; names the field.
        InvalidValueError: If the device, model or engine is said nowhere, or the load or the system
            is of a kind that is not learned from.
    """
    report = BenchmarkReport.read(source, data)
    engines = [component for component in report.stack if component.kind == "inference_engine"]
    roles = ", ".join(sorted({engine.role for engine in engines}))
    if len(engines) != 1 or "prefill" in roles:
        allowed = f"one kind of replica that runs prompts and tokens: {source}"
        raise InvalidValueError("stack", roles or "no engine", allowed)
    (engine,) = engines
    from_file = engine.model_dump(include={"model", "device", "tp"}) | {"engine": engine.engine}
    run = filled(source, from_file, told, ("model", "device", "engine"))
    times = {"decode": report.further_token * _SECONDS[report.further_token_units]}
    if report.first_token is not None:
        times["prompt"] = report.first_token * _SECONDS[report.first_token_units]
    arrivals = report.arrivals(engine.replicas, source)
    yield Reading(source, run, times, arrivals, date=report.start[:10])
