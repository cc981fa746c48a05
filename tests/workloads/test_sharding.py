"""What the ranks do together is what one does alone, and the collectives between them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelsim.catalog.workloads import workload
from accelsim.errors import InvalidValueError
from accelsim.workloads.lowering import ShapeColumns, lower
from accelsim.workloads.operator import COLLECTIVE_KINDS, OperatorKind, Phase
from accelsim.workloads.options import ModelOptions
from accelsim.workloads.sharding import WHOLE, Shard, Stage, split_evenly, stage_layers

MODEL = ModelOptions(precision="bf16")
BYTES = 2  # of a bf16 element
BATCH, LENGTH = 4, 256
WIDTH, LAYERS, KV_WIDTH = 4096, 32, 2 * 8 * 128  # of Llama 3.1 8B and Mixtral 8x7B


def lowered(name, shard=WHOLE, phase=Phase.FORWARD):
    shapes = ShapeColumns.of(batch=BATCH, seq_len=LENGTH)
    (batch,) = lower(workload(name), MODEL, shapes, shard, phase=phase)
    return batch


def matrix_flop(batch):
    kinds = (OperatorKind.GEMM, OperatorKind.GROUPED_GEMM, OperatorKind.ATTENTION)
    is_matrix = np.isin(batch.kind, [int(kind) for kind in kinds])
    return float(batch.flop[0] @ (batch.repeat_count * is_matrix))


def collectives(batch):
    """(group and kind) -> (how often, payload in bytes)."""
    found = {}
    for row, kind in enumerate(batch.kind.tolist()):
        if kind in COLLECTIVE_KINDS:
            counted = int(batch.repeat_count[row])
            found.setdefault(batch.name[row], []).append((counted, int(batch.dims[0, row, 0])))
    return found


def test_one_rank_is_the_whole_model():
    whole = lowered("llama-3.1-8b")
    again = lowered("llama-3.1-8b", Shard(tp=1, cp=1, ep=1, stage=Stage(0, 1)))
    assert again is whole
    assert not collectives(whole)


@pytest.mark.parametrize("tp", [2, 4, 8])
@pytest.mark.parametrize("sp", [False, True])
def test_tensor_ranks_share_matrix_work_and_parameters(tp, sp):
    whole, part = lowered("llama-3.1-8b"), lowered("llama-3.1-8b", Shard(tp=tp, sp=sp))
    assert matrix_flop(part) * tp == pytest.approx(matrix_flop(whole), rel=1e-12)
    norms = (2 * LAYERS + 1) * WIDTH  # every rank keeps its own
    assert (part.parameter_count - norms) * tp == whole.parameter_count - norms


def test_two_all_reduces_a_layer_and_one_of_the_embedding():
    """Shoeybi et al. 2019, section 3: two all-reduces in the forward pass of each layer."""
    payload = BATCH * LENGTH * WIDTH * BYTES
    assert collectives(lowered("llama-3.1-8b", Shard(tp=2))) == {
        "tensor.all_reduce": [(2 * LAYERS + 1, payload)]
    }


def test_sequence_ranks_gather_and_scatter_instead():
    """Korthikanti et al. 2022, section 4.2.2: an all-reduce becomes an all-gather and a
    reduce-scatter of the same payload.
    """
    payload = BATCH * LENGTH * WIDTH * BYTES
    found = collectives(lowered("llama-3.1-8b", Shard(tp=2, sp=True)))
    assert found["tensor.all_gather"] == [(2 * LAYERS + 1, payload)]
    assert found["tensor.reduce_scatter"] == [(2 * LAYERS + 1, payload)]


def test_generated_logits_come_together():
    found = collectives(lowered("llama-3.1-8b", Shard(tp=2), Phase.PREFILL))
    assert found["tensor.all_gather"] == [(1, BATCH * 128_256 * BYTES)]
    apart = collectives(lowered("llama-3.1-8b", Shard(tp=2, vocabulary=False), Phase.PREFILL))
    assert "tensor.all_gather" not in apart


def test_context_ranks_share_tokens_and_exchange_keys():
    whole, part = lowered("llama-3.1-8b"), lowered("llama-3.1-8b", Shard(cp=4))
    products = int(OperatorKind.GEMM)
    flop = [float(b.flop[0] @ (b.repeat_count * (b.kind == products))) for b in (whole, part)]
    assert flop[1] * 4 == pytest.approx(flop[0])
    payload = BATCH * LENGTH * KV_WIDTH * BYTES
    assert collectives(part) == {"context.all_gather": [(LAYERS, payload)]}
    attention = part.kind.tolist().index(int(OperatorKind.ATTENTION))
    q_len, kv_len = part.dims[0, attention, 3], part.dims[0, attention, 4]
    causal = q_len * (kv_len - q_len / 2)
    assert causal * 4 == LENGTH * LENGTH / 2  # the same triangle, evenly shared


def test_expert_ranks_exchange_tokens_twice_a_layer():
    part = lowered("mixtral-8x7b", Shard(ep=4))
    payload = BATCH * LENGTH * 2 * WIDTH * BYTES  # two experts a token
    assert collectives(part) == {"expert.all_to_all": [(2 * LAYERS, payload)]}
    assert matrix_flop(part) == pytest.approx(matrix_flop(lowered("mixtral-8x7b")))
    whole = lowered("mixtral-8x7b").parameter_count
    experts = LAYERS * 8 * 3 * WIDTH * 14_336
    assert part.parameter_count == whole - experts + experts // 4


def test_columns_of_experts_are_shared_by_ranks_that_gather_tokens():
    alone, shared = (lowered("mixtral-8x7b", Shard(ep=4, etp=etp)) for etp in (1, 2))
    assert matrix_flop(shared) == pytest.approx(
        matrix_flop(alone)
    )  # half the columns, twice the rows
    found = collectives(shared)
    payload = 2 * BATCH * LENGTH * 2 * WIDTH * BYTES
    assert found["expert_tensor.all_gather"] == [(LAYERS, payload)]
    assert found["expert_tensor.reduce_scatter"] == [(LAYERS, payload)]


@pytest.mark.parametrize("count", [1, 3, 4, 32])
def test_stages_together_are_the_model(count):
    whole = lowered("llama-3.1-8b")
    parts = [lowered("llama-3.1-8b", Shard(stage=Stage(i, count))) for i in range(count)]
    assert sum(map(matrix_flop, parts)) == pytest.approx(matrix_flop(whole), rel=1e-12)
    assert sum(part.parameter_count for part in parts) == whole.parameter_count
    sent = [collectives(part).get("pipeline.send_recv") for part in parts]
    payload = BATCH * LENGTH * WIDTH * BYTES
    assert sent == [[(1, payload)]] * (count - 1) + [None]


@given(st.integers(1, 200), st.integers(1, 200))
def test_every_layer_is_in_one_stage(layers, stages):
    if stages > layers:
        with pytest.raises(InvalidValueError, match="stage"):
            stage_layers(layers, Stage(0, stages))
        return
    parts = [stage_layers(layers, Stage(index, stages)) for index in range(stages)]
    assert [layer for part in parts for layer in part] == list(range(layers))
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1


def test_fewer_key_value_heads_than_ranks_are_held_by_several():
    whole, part = (lowered("llama-3.1-8b", shard, Phase.PREFILL) for shard in (WHOLE, Shard(tp=16)))
    assert part.cache.token_bytes == whole.cache.token_bytes / 8


@pytest.mark.parametrize(
    ("shard", "field"),
    [
        ({"tp": 3}, "tp"),
        ({"tp": 0}, "tp"),
        ({"cp": 7}, "cp"),
        ({"ep": 9}, "ep"),
        ({"etp": 2}, "etp"),
        ({"stage": Stage(0, 33)}, "stage"),
        ({"stage": Stage(2, 2)}, "stage"),
    ],
)
def test_ranks_that_do_not_divide_are_refused_by_name(shard, field):
    with pytest.raises(InvalidValueError, match=field):
        lowered("mixtral-8x7b", Shard(**shard))


def test_a_family_that_cannot_be_split_says_so():
    with pytest.raises(InvalidValueError, match="resnet"):
        lower(workload("resnet-50"), MODEL, ShapeColumns.of(batch=1), Shard(tp=2))


def test_an_amount_is_split_by_its_divisors():
    assert split_evenly("tp", 4, 12, "heads") == 3
    with pytest.raises(InvalidValueError, match="12 heads"):
        split_evenly("tp", 5, 12, "heads")
