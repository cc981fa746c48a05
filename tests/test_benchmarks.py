"""Benchmarks, which nothing else runs, import what there is."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted((ROOT / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_what_a_benchmark_imports_of_the_repository_is_there(script):
    for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] in {"accelsim", "tools"}:
            if ".torch" in node.module or ".onnx" in node.module:
                pytest.importorskip("torch")
            module = import_module(node.module)
            assert [x.name for x in node.names if not hasattr(module, x.name)] == []
