"""Lowering many sizes at once writes what lowering one by one writes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelsim.catalog.workloads import workload, workload_names
from accelsim.cost.memory import inference_footprint
from accelsim.dtype import precision
from accelsim.errors import InvalidValueError
from accelsim.estimation.passes import input_bytes
from accelsim.workloads.lowering import ShapeColumns, lower, lower_each
from accelsim.workloads.model import PassShape
from accelsim.workloads.operator import Phase
from accelsim.workloads.options import ModelOptions
from accelsim.workloads.row_writer import PassForm
from accelsim.workloads.sharding import Shard
from accelsim.workloads.sizes import ScenariosPart, Sizes

BF16 = precision("bf16")
MODEL = ModelOptions(precision="bf16")
BATCHES = np.array([1, 2, 5, 64])
LENGTHS = np.array([16, 97, 300, 17])
WITH_LIMITS = {"wav2vec2-base", "wav2vec2-large"}  # a clip has at least one frame


def assert_same(batch, place, graph):
    order = batch.order
    assert (batch.kind[order] == graph.kind).all()
    assert (batch.dtype[order] == graph.dtype).all()
    assert (batch.dims[place][order] == graph.dims).all()
    for column in ("flop", "read_bytes", "write_bytes", "weight_bytes"):
        expected = getattr(graph, column)
        np.testing.assert_allclose(getattr(batch, column)[place][order], expected, rtol=1e-12)
    assert (batch.dependency == graph.dependency).all()
    assert (batch.dependency_offset == graph.dependency_offset).all()


@pytest.mark.parametrize("name", sorted(set(workload_names()) - WITH_LIMITS))
def test_every_workload_lowers_to_the_same_rows(name):
    model = workload(name)
    lengths = LENGTHS if model.family.sequence else np.zeros_like(LENGTHS)
    fixed = {"target_len": model.default.target_len}
    phase = Phase.PREFILL if model.autoregressive else Phase.FORWARD
    shapes = ShapeColumns.of(batch=BATCHES, seq_len=lengths, **fixed)
    seen = []
    for batch in lower(model, MODEL, shapes, phase=phase):
        memory, inputs = batch.peak_live_bytes(), batch.input_bytes()
        for place, scenario in enumerate(batch.scenario.tolist()):
            sizes = {"batch": int(BATCHES[scenario]), "seq_len": int(lengths[scenario])}
            lowered = model.lower(PassShape(**sizes, **fixed), BF16, phase)
            assert_same(batch, place, lowered.graph)
            footprint = inference_footprint(lowered.graph, lowered.parameter_bytes)
            assert memory[place] == pytest.approx(footprint.activation_bytes, rel=1e-12)
            assert inputs[place] == pytest.approx(input_bytes(lowered.graph), rel=1e-12)
            seen.append(scenario)
    assert sorted(seen) == [0, 1, 2, 3]


def test_equal_layers_are_kept_once():
    shapes = ShapeColumns.of(batch=BATCHES, seq_len=512)
    (batch,) = lower(workload("llama-3.1-8b"), MODEL, shapes, phase=Phase.PREFILL)
    assert (len(batch.kind), len(batch.order)) == (14, 547)
    assert batch.repeat_count.sum() == 547


def test_scenarios_that_a_family_treats_differently_part():
    shapes = ShapeColumns.of(batch=np.array([1, 200]), seq_len=1, context_len=10)
    few, many = sorted(
        lower(workload("mixtral-8x7b"), MODEL, shapes, phase=Phase.DECODE),
        key=lambda b: b.scenario[0],
    )
    groups = [int(batch.dims[0, batch.name.index("gate_up"), 0]) for batch in (few, many)]
    assert groups == [2, 8]  # one token reaches its two experts, 200 reach all


def test_a_captured_module_is_refused():
    captured = replace(workload("resnet-50"), family=None)
    with pytest.raises(InvalidValueError, match="family"):
        lower(captured, MODEL, ShapeColumns.of(batch=1))


@given(st.lists(st.integers(1, 2**20), min_size=1, max_size=6), st.integers(1, 2**10))
def test_sizes_calculate_as_each_number_does(values, other):
    sizes = Sizes(np.array(values))
    for name, function in {
        "+": lambda x: 3 + x + other,
        "-": lambda x: other - x - 1,
        "*": lambda x: 2.0 * x * other,
        "//": lambda x: x // other + other // x,
        "/": lambda x: x / other + other / x,
        "%": lambda x: x % other,
        "-x": lambda x: -x,
    }.items():
        assert function(sizes).values.tolist() == [function(x) for x in values], name


def test_a_question_answered_alike_is_a_plain_answer():
    sizes = Sizes(np.array([2, 3]))
    assert sizes < 4
    assert not sizes > 3
    assert max(sizes, 1) is sizes
    with pytest.raises(ScenariosPart) as parting:
        bool(sizes < 3)
    assert parting.value.answer.tolist() == [1, 0]


def test_a_number_is_had_only_where_all_have_it():
    assert int(Sizes(np.array([7, 7]))) == 7
    with pytest.raises(ScenariosPart) as parting:
        range(Sizes(np.array([5, 3, 5])))
    assert parting.value.answer.tolist() == [1, 0, 1]


@pytest.mark.parametrize("model", ["gpt2", "llama-3.2-1b", "mixtral-8x7b", "deepseek-v3"])
def test_shapes_and_shards_lowered_at_once_have_the_rows_each_has_alone(model):
    known = workload(model)
    shards = [Shard(tp=tp, sp=sp and tp > 1) for tp in (1, 2, 4) for sp in (False, True)]
    shards += [Shard(cp=2), Shard(tp=4, cp=4, vocabulary=False)]
    if known.has_experts:
        shards += [Shard(ep=ep, etp=etp) for ep in (2, 8) for etp in (None, 2, 4)]
    ways = [(shard, batch) for shard in shards for batch in (1, 3)]
    shapes = [PassShape(batch=batch, seq_len=64) for _, batch in ways]
    form = PassForm(is_training=True, folds=True)
    each = lower_each(known, BF16, form, shapes, [shard for shard, _ in ways])
    for (shard, _), shape, together in zip(ways, shapes, each, strict=True):
        alone = known.lower(shape, BF16, shard=shard, is_training=True, folds=True)
        assert together.graph.to_dict() == alone.graph.to_dict()
        for name in ("parameter_count", "parameter_tensor_count", "parameter_bytes", "folded"):
            assert getattr(together, name) == getattr(alone, name)
