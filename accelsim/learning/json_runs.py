"""Reads results of benchmarks in JSON or YAML, by what each object says.

- ``vllm bench serve`` and SGLang's ``bench_serving`` (`server_benchmarks`);
- Benchmark Report v0.2 of llm-d (`benchmark_report`);
- ``llama-bench -o json`` or ``jsonl`` (`llama_bench`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from functools import partial
from pathlib import Path

from accelsim.errors import ProfileError
from accelsim.files.datafile import parse_json, read_text, read_yaml
from accelsim.files.plainfile import check_density, parse_values
from accelsim.learning.benchmark_report import read_report
from accelsim.learning.llama_bench import read_llama_bench
from accelsim.learning.readings import Entry, Reading, Told
from accelsim.learning.server_benchmarks import read_benchmark
from accelsim.plain import Document

_MAX_BYTES = 128_000_000
Reader = Callable[[str, Document, Told], Iterator[Reading]]
#: Readers by a field that only their objects have.
_READERS: dict[str, Reader] = {"scenario": read_report, "avg_ns": read_llama_bench}


def object_entries(path: Path, told: Told) -> Iterator[Entry]:
    """Entries of a file: one object, a list of them, or one a line.

    Args:
        path: The file.
        told: What the file does not say.

    Raises:
        ProfileError: If it cannot be read. An entry is, if it is no result that is known: names the
            field; its InvalidValueError, if a device, model or engine is said nowhere.
    """
    for where, parse in _objects(path):
        source = f"{path.name}{where}"
        yield Entry(source, partial(_readings, source, parse, told))


def _readings(source: str, parse: Callable[[], object], told: Told) -> Iterator[Reading]:
    data = parse()
    if not isinstance(data, dict):
        raise ProfileError(source, ["expected an object: the result of a benchmark"])
    readers = (reader for field, reader in _READERS.items() if field in data)
    return next(readers, read_benchmark)(source, data, told)


def _objects(path: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """Objects of a file, each with its place."""
    if path.suffix in {".yaml", ".yml"}:
        yield "", partial(read_yaml, path, _MAX_BYTES)
        return
    text = read_text(path, _MAX_BYTES)
    check_density(text, str(path))
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) > 1 and all(line.lstrip().startswith("{") for line in lines):
        for number, line in enumerate(lines, 1):
            where = f", line {number}"
            yield where, partial(parse_json, line, f"{path}{where}")
        return
    data = parse_values(text.encode(), str(path))
    if not isinstance(data, list):
        yield "", partial(copy, data)
        return
    for number, item in enumerate(data, 1):
        yield f", result {number}", partial(copy, item)
