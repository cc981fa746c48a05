"""Reads results of ``llama-bench -o json`` (or ``jsonl``).

Each object is a test of one sequence: a prompt (``n_prompt``), or tokens that are generated
(``n_gen``) after a context that is not timed (``n_depth``). Fields: llama.cpp,
``tools/llama-bench/README.md``. The name of a model and its format are those of its file; files
that are not named after a model need ``--model`` and ``--precision``. Builds are not told apart:
``--engine llama-cpp@b6451`` says a version that accelsim knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import Field

from accelsim.errors import InvalidValueError
from accelsim.learning.readings import FileEntry, Positive, Reading, Told, filled
from accelsim.plain import Document

_NS_PER_S = 1e9
_Count = Annotated[int, Field(ge=0, le=100_000_000)]
#: A model's file: its name, and the format of its weights.
_FILE = re.compile(r"(.+)[-.]((?:i?q\d\w*|bf16|f16|f32|mxfp4))", re.IGNORECASE)
#: Layers of any model, for a number that means all.
_ALL_LAYERS = 99


class LlamaBench(FileEntry):
    """One test."""

    cpu_info: str = ""
    gpu_info: str = ""
    backends: str = ""
    model_filename: str
    n_gpu_layers: int = -1
    n_prompt: _Count
    n_gen: _Count
    n_depth: _Count = 0
    test_time: str = ""
    avg_ns: Positive

    @property
    def model_and_precision(self) -> tuple[str, str]:
        """Model and format of the file."""
        stem = Path(self.model_filename.replace("\\", "/")).name.removesuffix(".gguf")
        split = _FILE.fullmatch(stem)
        name, precision = split.groups() if split else (stem, "")
        plain = {"f16": "fp16", "f32": "fp32"}
        return name, plain.get(precision.lower(), precision.lower())

    @property
    def device(self) -> str:
        """The device that computes."""
        on_gpu = bool(self.gpu_info) and self.n_gpu_layers != 0
        return self.gpu_info if on_gpu else self.cpu_info


def read_llama_bench(source: str, data: Document, told: Told) -> Iterator[Reading]:
    """The run of a test.

    Args:
        source: File and place.
        data: The test.
        told: What it does not say, or says in words that are not known.

    Raises:
        ProfileError: If it is no such test; names the field.
        InvalidValueError: If some layers run on the CPU, if it is on several devices, or if a
            prompt is timed after a context or with tokens.
    """
    test = LlamaBench.read(source, data)
    if 0 < test.n_gpu_layers < _ALL_LAYERS and test.gpu_info and told.device is None:
        remedy = "Say --device where all layers are on it."
        raise InvalidValueError("n_gpu_layers", test.n_gpu_layers, "0, -1 or 99: all", remedy)
    if bool(test.n_prompt) == bool(test.n_gen) or (test.n_prompt and test.n_depth):
        tested = (test.n_prompt, test.n_gen, test.n_depth)
        raise InvalidValueError("n_prompt, n_gen, n_depth", tested, f"one phase alone: {source}")
    model, precision = test.model_and_precision
    from_file = {"model": model, "precision": precision, "device": test.device}
    run = filled(source, from_file | {"engine": "llama-cpp"}, told, ("model", "device"))
    length = test.n_prompt or max(test.n_depth, 1)
    shape = {"batch": 1, "seq_len": length, "output_len": test.n_gen + 1}
    phase = "prompt" if test.n_prompt else "decode"
    measured_s = {phase: test.avg_ns / _NS_PER_S / max(test.n_gen, 1)}
    yield Reading(source, run, measured_s, shape=shape, date=test.test_time[:10])
