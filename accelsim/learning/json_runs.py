"""Reads results of benchmarks in JSON or YAML, by what each object says.

- ``vllm bench serve`` and SGLang's ``bench_serving`` (`server_benchmarks`);
- Benchmark Report v0.2 of llm-d (`benchmark_report`);
- ``llama-bench -o json`` or ``jsonl`` (`llama_bench`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

from accelsim.errors import ProfileError
from accelsim.files.datafile import parse_json, read_text, read_yaml
from accelsim.learning.benchmark_report import read_report
from accelsim.learning.llama_bench import read_llama_bench
from accelsim.learning.readings import Reading, Told
from accelsim.learning.server_benchmarks import read_benchmark
from accelsim.plain import Document

MAX_BYTES = 128_000_000
Reader = Callable[[Path, str, Document, Told], Iterator[Reading]]
#: Readers by a field that only their objects have.
_READERS: dict[str, Reader] = {"scenario": read_report, "avg_ns": read_llama_bench}


def read_objects(path: Path, told: Told) -> Iterator[Reading]:
    """Runs of a file: one object, a list of them, or one a line.

    Args:
        path: The file.
        told: What the file does not say.

    Raises:
        ProfileError: If an object is no result that is known; names the field.
        InvalidValueError: If a device, model or engine is said nowhere.
    """
    for place, data in _objects(path):
        named = (reader for field, reader in _READERS.items() if field in data)
        yield from next(named, read_benchmark)(path, f"{path.name}{place}", data, told)


def _objects(path: Path) -> Iterator[tuple[str, Document]]:
    """Objects of a file, each with its place."""
    if path.suffix in {".yaml", ".yml"}:
        yield "", read_yaml(path, MAX_BYTES)
        return
    text = read_text(path, MAX_BYTES)
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) > 1 and all(line.lstrip().startswith("{") for line in lines):
        for number, line in enumerate(lines, 1):
            yield f", line {number}", parse_json(line, f"{path}, line {number}")
        return
    try:
        data = json.loads(text)
    except ValueError:
        data = parse_json(text, str(path))  # says where
    if isinstance(data, list):
        places = [(f", result {number}", each) for number, each in enumerate(data, 1)]
    else:
        places = [("", data)]
    for place, each in places:
        if not isinstance(each, dict):
            raise ProfileError(f"{path}{place}", ["expected an object: the result of a benchmark"])
        yield place, each
