"""Reads results of ``vllm bench serve`` and of SGLang's ``bench_serving``.

Both write the mean times to the first token and per further token, the load, and the tokens in all
(vLLM: ``vllm/benchmarks/serve.py``, ``--save-result``; SGLang: ``sglang/bench_serving.py``, an
object a line). Where the requests of a benchmark come all at once, first tokens wait in a queue and
say little of prompts: they are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from accelsim.files.datafile import validated
from accelsim.learning.readings import Reading, Told, filled
from accelsim.plain import Document

_Count = Annotated[int, Field(ge=1, le=100_000_000)]
_Milliseconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_MS_PER_S = 1e3


class ServerBenchmark(BaseModel):
    """Result of one benchmark of a server, as both tools write it; device, engine, tp,
    precision and driver are what vLLM's ``--metadata`` adds.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    model_id: str = ""
    backend: str = ""
    device: str = ""
    engine: str = ""
    tp: _Count | None = None
    precision: str = ""
    driver: str = ""
    date: str = ""
    request_rate: float = Field(gt=0)
    max_concurrency: _Count | None = None
    completed: _Count
    total_input_tokens: _Count
    total_output_tokens: _Count
    mean_ttft_ms: _Milliseconds
    mean_tpot_ms: _Milliseconds

    @property
    def is_burst(self) -> bool:
        """Whether all requests come at once."""
        return self.request_rate == float("inf") and self.max_concurrency is None

    def load(self) -> Document:
        """The load, as `accelsim.Arrivals` takes it."""
        lengths: Document = {
            "prompt": str(round(self.total_input_tokens / self.completed)),
            "output": str(max(round(self.total_output_tokens / self.completed), 1)),
            "requests": self.completed,
        }
        if self.max_concurrency is not None:
            return lengths | {"users": min(self.max_concurrency, self.completed)}
        if self.is_burst:
            return lengths | {"rate_per_s": 1.0, "process": "burst"}
        return lengths | {"rate_per_s": self.request_rate}


def read_benchmark(source: str, data: Document, told: Told) -> Iterator[Reading]:
    """The run of a result.

    Args:
        source: File and place.
        data: The result.
        told: What it does not say: device, and what it lacks of model and engine.

    Raises:
        ProfileError: If it is no such result; names the field.
        InvalidValueError: If the device, model or engine is said nowhere.
    """
    result = validated(Path(source), partial(ServerBenchmark.model_validate, data), data)
    backend = result.backend.partition("-")[0]
    known = {
        "model": result.model_id,
        "engine": result.engine or {"openai": "vllm"}.get(backend, backend),
        **{name: getattr(result, name) for name in ("device", "tp", "precision", "driver")},
    }
    said = filled(source, known, told, ("model", "device", "engine"))
    times = {"decode": result.mean_tpot_ms / _MS_PER_S}
    if not result.is_burst:
        times["prompt"] = result.mean_ttft_ms / _MS_PER_S
    yield Reading(source, said, times, result.load(), date=result.date[:10])
