"""Expert layers of models on GPUs: laws of their decode steps, on boards with measured kernels."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

from accelsim import catalog
from accelsim.estimation.options import RunOptions
from accelsim.estimation.resolution import resolve
from accelsim.estimation.sharded_costs import sharded_costs
from accelsim.workloads.graph import FloatArray
from accelsim.workloads.model import PassShape
from accelsim.workloads.operator import OperatorKind, Phase
from accelsim.workloads.options import ModelOptions

_BOARDS = ("h100-sxm-80gb", "h200-sxm-141gb", "b200-sxm", "rtx-pro-6000-blackwell", "l40s")
_MODELS = ("mixtral-8x7b", "qwen3-30b-a3b", "qwen3-235b-a22b", "gpt-oss-120b", "deepseek-v3")
#: Tokens of decode steps.
_TOKENS = (1, 4, 16, 64, 256)


@lru_cache
def _experts(board: str, model: str, form: str, tokens: int) -> tuple[FloatArray, FloatArray]:
    """Seconds and bytes of weights of the grouped products of a decode step, row by row."""
    run = resolve(model, board, RunOptions(model=ModelOptions(precision=form)))
    shape = PassShape(batch=tokens, seq_len=1, context_len=1024)
    graph = run.workload.lower(shape, run.precision, Phase.DECODE).graph
    rows = graph.take(np.flatnonzero(graph.kind == OperatorKind.GROUPED_GEMM)[:2])
    return sharded_costs(rows, run).time_s, rows.weight_bytes


@pytest.mark.parametrize("board", _BOARDS)
@pytest.mark.parametrize("model", _MODELS)
def test_fp8_experts_take_no_longer_than_bf16(board: str, model: str) -> None:
    for tokens in _TOKENS:
        wide_s, _ = _experts(board, model, "bf16", tokens)
        narrow_s, weights = _experts(board, model, "fp8", tokens)
        if weights.min() >= 16e6:
            assert narrow_s.sum() <= 1.02 * wide_s.sum(), tokens


@pytest.mark.parametrize("form", ["bf16", "fp8", "w4a16", "mxfp4"])
@pytest.mark.parametrize("board", _BOARDS)
@pytest.mark.parametrize("model", _MODELS)
def test_experts_hit_are_read_at_the_bandwidth_at_most(board: str, model: str, form: str) -> None:
    """Weights of the experts that a step reaches come from memory in each layer of each step."""
    bandwidth = catalog.device(board).memory_bandwidth_bytes_per_s
    for tokens in _TOKENS:
        time_s, weights = _experts(board, model, form, tokens)
        assert (time_s * bandwidth >= 0.999 * weights).all(), tokens


@pytest.mark.parametrize("form", ["bf16", "fp8"])
@pytest.mark.parametrize("board", _BOARDS)
@pytest.mark.parametrize("model", _MODELS)
def test_more_tokens_are_never_cheaper(board: str, model: str, form: str) -> None:
    times = [_experts(board, model, form, tokens)[0].sum() for tokens in _TOKENS]
    assert (np.diff(times) >= -0.02 * np.array(times[:-1])).all()


@pytest.mark.parametrize("board", ["h100-sxm-80gb", "h200-sxm-141gb"])
def test_large_fp8_experts_stream_on_hopper(board: str) -> None:
    """All eight experts of Mixtral, 1.4 GB a layer: SGLang, TensorRT-LLM and vLLM 0.19 reach 3.8
    TB/s on an H200 (aiconfigurator-core 0.12.0, 16 tokens: 0.35 to 0.38 ms).
    """
    time_s, weights = _experts(board, "mixtral-8x7b", "fp8", 16)
    bandwidth = catalog.device(board).memory_bandwidth_bytes_per_s
    assert weights.sum() / time_s.sum() > 0.6 * bandwidth
