"""Reads results of ``vllm bench serve`` and of SGLang's ``bench_serving``.

Both write the mean times to the first token and per further token, the load, and the tokens in all
(vLLM: ``vllm/benchmarks/serve.py``, ``--save-result``; SGLang: ``sglang/bench_serving.py``, an
object a line). Where the requests of a benchmark come all at once, first tokens wait in a queue and
say little of prompts: they are left out.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from accelsim.learning.readings import Count, FileEntry, Positive, Reading, Told, filled
from accelsim.plain import Document

_MS_PER_S = 1e3


class ServerBenchmark(FileEntry):
    """Result of one benchmark of a server, as both tools write it; device, engine, tp,
    precision and driver are what vLLM's ``--metadata`` adds.
    """

    model_id: str = ""
    backend: str = ""
    device: str = ""
    engine: str = ""
    tp: Count | None = None
    precision: str = ""
    driver: str = ""
    date: str = ""
    request_rate: float = Field(gt=0)
    max_concurrency: Count | None = None
    completed: Count
    total_input_tokens: Count
    total_output_tokens: Count
    mean_ttft_ms: Positive
    mean_tpot_ms: Positive

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
    result = ServerBenchmark.read(source, data)
    backend = result.backend.partition("-")[0]
    from_file = result.model_dump(include={"device", "tp", "precision", "driver"}) | {
        "model": result.model_id,
        "engine": result.engine or {"openai": "vllm"}.get(backend, backend),
    }
    run = filled(source, from_file, told, ("model", "device", "engine"))
    times = {"decode": result.mean_tpot_ms / _MS_PER_S}
    if not result.is_burst:
        times["prompt"] = result.mean_ttft_ms / _MS_PER_S
    yield Reading(source, run, times, result.load(), date=result.date[:10])
