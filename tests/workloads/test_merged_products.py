"""Serving engines run q/k/v, and gate and up, as one product: same weights, same arithmetic, fewer
rows.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from accelsim.catalog.stacks import stack, stack_names
from accelsim.catalog.workloads import workload
from accelsim.dtype import PRECISIONS
from accelsim.workloads.lowering import ShapeColumns, lower
from accelsim.workloads.model import PassShape
from accelsim.workloads.operator import OperatorKind, Phase
from accelsim.workloads.options import ModelOptions
from accelsim.workloads.sharding import WHOLE, Shard

STEP = PassShape(batch=8, seq_len=1, context_len=100)


def both(name, precision=PRECISIONS["bf16"], shard=WHOLE, step=STEP):
    """A decode step apart and merged."""
    lowered = workload(name).lower
    return [lowered(step, precision, Phase.DECODE, shard=shard, merges=m) for m in (False, True)]


def products(graph):
    return graph.take(np.flatnonzero(graph.kind == int(OperatorKind.GEMM)))


@pytest.mark.parametrize(
    ("name", "tp", "fewer"),
    [
        ("llama-3.1-70b", 1, 3),
        ("llama-3.1-70b", 8, 3),
        ("qwen2.5-7b", 4, 3),
        ("gemma-2-9b", 1, 3),
        ("gpt2", 1, 0),
        ("phi-3-mini", 1, 0),
    ],
)
def test_weights_and_arithmetic_stay_and_rows_go(name, tp, fewer):
    shard = Shard(tp=tp)
    apart, merged = both(name, shard=shard)
    for count in ("parameter_count", "parameter_tensor_count", "parameter_bytes"):
        assert getattr(apart, count) == getattr(merged, count)
    assert apart.graph.model_flop == merged.graph.model_flop
    assert apart.graph.weight_bytes.sum() == pytest.approx(merged.graph.weight_bytes.sum())
    layers = workload(name).parameters.layers
    assert len(products(apart.graph)) - len(products(merged.graph)) == fewer * layers
    read = [products(each.graph).read_bytes.sum() for each in (apart, merged)]
    assert read[1] < read[0] if fewer else read[1] == read[0]


@pytest.mark.parametrize("tp", [1, 8])
def test_latents_and_shared_experts_are_merged_with_the_same_weights(tp):
    """DeepSeek-V3: queries' and keys' latents are one product; a token's ninth expert is the shared
    one.
    """
    every = replace(STEP, batch=4096)  # so many that they reach every expert
    apart, merged = both("deepseek-v3", shard=Shard(tp=tp), step=every)
    for count in ("parameter_count", "parameter_tensor_count", "parameter_bytes"):
        assert getattr(apart, count) == getattr(merged, count)
    assert apart.graph.model_flop == merged.graph.model_flop
    assert apart.graph.weight_bytes.sum() == pytest.approx(merged.graph.weight_bytes.sum())
    dense, sparse = 3, 58
    # Latents, gates of dense layers; and of the shared experts gate, up and down.
    fewer = (dense + sparse) + dense + 3 * sparse
    assert len(products(apart.graph)) - len(products(merged.graph)) == fewer
    grouped = merged.graph.take(np.flatnonzero(merged.graph.kind == OperatorKind.GROUPED_GEMM))
    assert set(grouped.dims[:, 1]) == {every.batch * 9}


def test_shared_experts_run_by_themselves_where_ranks_share_out_the_others():
    _, merged = both("deepseek-v3", shard=Shard(ep=8))
    assert any("shared_expert" in path for path in merged.graph.path)


@pytest.mark.parametrize(("tp", "joined"), [(1, 0), (4, 1)])
def test_ranks_join_the_squares_of_norms_over_all_heads(tp, joined):
    """MiniMax-M2.5: one all-reduce more a layer, of two sums for each token."""
    lowered = workload("minimax-m2.5").lower(
        STEP, PRECISIONS["bf16"], Phase.DECODE, shard=Shard(tp=tp)
    )
    rows = np.flatnonzero(lowered.graph.kind == OperatorKind.ALL_REDUCE)
    two_sums = lowered.graph.dims[rows, 0] == STEP.batch * 2 * 2
    assert two_sums.sum() == joined * 62


def test_products_of_two_formats_stay_apart():
    kept = replace(PRECISIONS["nvfp4"], kept=(*PRECISIONS["nvfp4"].kept, "k_proj"))
    apart, merged = both("llama-3.1-8b", kept)
    ends = {path.rpartition(".")[2] for path in products(merged.graph).path}
    assert {"q_proj", "k_proj", "v_proj", "gate_up_proj"} <= ends
    assert apart.parameter_bytes == merged.parameter_bytes


def test_columns_of_scenarios_are_merged_as_one_pass_is():
    shapes = ShapeColumns.of(batch=np.array([1, 8]), seq_len=1, context_len=100)
    (batch,) = lower(
        workload("llama-3.1-8b"), ModelOptions(), shapes, phase=Phase.DECODE, merges=True
    )
    _, merged = both("llama-3.1-8b")
    assert batch.flop[1] @ batch.repeat_count == merged.graph.flop.sum()


def test_engines_merge_and_frameworks_do_not():
    merging = {n for n in stack_names() if any(p.merges for p in stack(n).paths.values())}
    assert merging == {"vllm", "sglang", "tensorrt-llm"}
