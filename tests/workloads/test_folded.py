"""A folded pass has three of many equal layers, and says how many each stands for."""

import numpy as np
import pytest

import accelsim
from accelsim.dtype import PRECISIONS
from accelsim.estimation.passes import training_step
from accelsim.estimation.resolution import resolve
from accelsim.workloads.graph import FLOAT_COLUMNS
from accelsim.workloads.recomputation import layer_of
from accelsim.workloads.sharding import Shard


@pytest.mark.parametrize(
    ("name", "tp"),
    [("llama-3.1-8b", 2), ("gemma-2-9b", 1), ("deepseek-v3", 4), ("bert-large", 1)],
)
def test_rows_times_what_they_stand_for_are_all_rows(name, tp):
    model = accelsim.workload(name)
    how = {"shard": Shard(tp=tp), "is_training": True}
    whole = model.lower(model.default, PRECISIONS["bf16"], **how)
    folded = model.lower(model.default, PRECISIONS["bf16"], folds=True, **how)
    layers = [layer_of(path)[0] for path in folded.graph.path]
    times = np.array([1 + folded.folded.get(layer, 0) for layer in layers])
    assert times.sum() == len(whole.graph)
    for column in FLOAT_COLUMNS:
        own, every = getattr(folded.graph, column), getattr(whole.graph, column)
        assert (own * times).sum() == pytest.approx(every.sum(), rel=1e-12)
    counts = ("parameter_count", "parameter_tensor_count", "parameter_bytes", "cache")
    assert all(getattr(folded, name) == getattr(whole, name) for name in counts)
    assert whole.folded == {}


@pytest.mark.parametrize("name", ["t5-small", "transformer-base", "llama-3.2-1b"])
def test_gradients_of_what_all_layers_read_are_summed_as_often(name):
    """An encoder's output and a table of positions are read by layers that are not written."""
    run = resolve(name, "h100-sxm-80gb", mode="training", batch=2)
    folded, whole = (training_step(run, folds=folds) for folds in (True, False))
    layers = [layer_of(path)[0] for path in folded.rows.path]
    times = np.array([1 + folded.lowered.folded.get(layer, 0) for layer in layers])
    assert times.sum() == len(whole.rows)
    assert (folded.rows.bytes * times).sum() == pytest.approx(whole.rows.total_bytes, rel=1e-12)


def test_models_of_many_equal_layers_are_short():
    model = accelsim.workload("gpt3-175b")
    folded = model.lower(model.default, PRECISIONS["bf16"], folds=True)
    assert {layer_of(path)[0] for path in folded.graph.path if layer_of(path)[1]} == {
        "transformer.h.0",
        "transformer.h.1",
        "transformer.h.95",
    }
    assert folded.folded == {"transformer.h.1": 93}
