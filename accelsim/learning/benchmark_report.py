"""Reads Benchmark Reports v0.2 of llm-d (YAML or JSON).

Fields: llm-d-benchmark, ``llmdbenchmark/analysis/benchmark_report/schema_v0_2.py``. Loads whose
requests share prefixes or go on for turns, and systems with prompts on replicas of their own, are
refused: their steps are not told apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from accelsim.errors import InvalidValueError
from accelsim.files.datafile import validated
from accelsim.learning.readings import Reading, Told, filled
from accelsim.plain import Document

_Count = Annotated[int, Field(ge=1, le=100_000_000)]
_SECONDS = {"s": 1.0, "ms": 1e-3, "s/token": 1.0, "ms/token": 1e-3}
_LINE = re.compile(r"0\.2(\.\d+)?")


class _Data(BaseModel):
    """Part of a report; what is not used is passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class Time(_Data):
    """A time of requests."""

    units: Literal["s", "ms", "s/token", "ms/token"]
    mean: Annotated[float, Field(gt=0, allow_inf_nan=False)]

    @property
    def seconds(self) -> float:
        """The mean."""
        return self.mean * _SECONDS[self.units]


class Amount(_Data):
    """A length of requests."""

    mean: Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Latency(_Data):
    """Times of requests."""

    time_to_first_token: Time | None = None
    time_per_output_token: Time


class Requests(_Data):
    """Requests that were sent."""

    total: _Count
    failures: int = 0
    input_length: Amount
    output_length: Amount


class Aggregate(_Data):
    """What was measured of all requests."""

    requests: Requests
    latency: Latency


class Performance(_Data):
    """What was measured."""

    aggregate: Aggregate


class Results(_Data):
    """What was measured, of requests."""

    request_performance: Performance


class Standardized(_Data):
    """A component, or the load, in the report's own terms."""

    kind: str = ""
    tool: str = ""
    tool_version: str = ""
    role: str = ""
    replicas: _Count = 1
    model: Mapping[str, Any] = Field(default_factory=dict)
    accelerator: Mapping[str, Any] = Field(default_factory=dict)
    prefix: Mapping[str, Any] | None = None
    multi_turn: Mapping[str, Any] | None = None
    rate_qps: Annotated[float, Field(gt=0)] | None = None
    concurrency: Annotated[float, Field(ge=1)] | None = None


class Described(_Data):
    """A component, or the load."""

    standardized: Standardized


class Scenario(_Data):
    """The system and its load."""

    stack: list[Described] = Field(min_length=1)
    load: Described


class BenchmarkReport(_Data):
    """One run."""

    version: str
    run: Mapping[str, Any] = Field(default_factory=dict)
    scenario: Scenario
    results: Results

    @field_validator("version", mode="before")
    @classmethod
    def _is_known(cls, version: object) -> str:
        if not _LINE.fullmatch(str(version)):
            raise ValueError("expected 0.2, or 0.2 with a further number")
        return str(version)

    @property
    def date(self) -> str:
        """Day of the run; empty where unknown."""
        time = self.run.get("time")
        return str(time.get("start", ""))[:10] if isinstance(time, dict) else ""


def read_report(path: Path, source: str, data: Document, told: Told) -> Iterator[Reading]:
    """The run of a report.

    Args:
        path: Its file.
        source: File and place.
        data: The report.
        told: What it does not say.

    Raises:
        ProfileError: If it is no such report; names the field.
        InvalidValueError: If the device, model or engine is said nowhere, or the load or the system
            is of a kind that is not learned from.
    """
    report = validated(path.with_name(source), partial(BenchmarkReport.model_validate, data), data)
    load, aggregate = (
        report.scenario.load.standardized,
        report.results.request_performance.aggregate,
    )
    engine = _engine(report, source)
    parallelism = engine.accelerator.get("parallelism") or {}
    tool = {"llm-d": "vllm"}.get(engine.tool, engine.tool)
    plain = re.fullmatch(r"v?(\d+\.\d+)(\.\d+)?", engine.tool_version)
    known = {
        "model": engine.model.get("name"),
        "device": engine.accelerator.get("model"),
        "engine": f"{tool}@{plain[1]}" if plain else tool,
        "tp": parallelism.get("tp"),
    }
    said = filled(source, known, told, ("model", "device", "engine"))
    if load.prefix is not None or (load.multi_turn or {}).get("enabled"):
        raise InvalidValueError("load", "prefix, multi_turn", f"requests of their own: {source}")
    latency, requests = aggregate.latency, aggregate.requests
    arrivals: Document = {
        "prompt": str(round(requests.input_length.mean)),
        "output": str(max(round(requests.output_length.mean), 1)),
        "requests": max(requests.total - requests.failures, 1),
    }
    if load.rate_qps is not None:
        arrivals["rate_per_s"] = load.rate_qps / engine.replicas
    elif load.concurrency is not None and load.concurrency < requests.total:
        arrivals["users"] = max(round(load.concurrency / engine.replicas), 1)
    else:
        allowed = f"a rate or a number of users, said by {source}"
        raise InvalidValueError("rate_qps", load.rate_qps, allowed)
    times = {"decode": latency.time_per_output_token.seconds}
    if latency.time_to_first_token is not None:
        times["prompt"] = latency.time_to_first_token.seconds
    yield Reading(source, said, times, arrivals, date=report.date)


def _engine(report: BenchmarkReport, source: str) -> Standardized:
    """The one engine of a report."""
    parts = [each.standardized for each in report.scenario.stack]
    engines = [each for each in parts if each.kind == "inference_engine"]
    roles = sorted({engine.role for engine in engines})
    if len(engines) != 1 or "prefill" in roles:
        allowed = f"one kind of replica that runs prompts and tokens: {source}"
        raise InvalidValueError("stack", ", ".join(roles) or "no engine", allowed)
    return engines[0]
