"""How long a captured pass holds what its operators write: as the module's own references do."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from accelsim.cost.cpu.lifetimes import rows_freed
from accelsim.errors import InvalidValueError
from accelsim.workloads.graph import OperatorGraph, concatenate

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def _captured(function, *inputs, training=False):
    from accelsim.workloads.capture.module import capture

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(8, 8)

        def forward(self, *x):
            return function(self, *x)

    model = capture(Model().train(training), inputs, training, batch_dimension=None).captured
    return (model.training if training else model.forward).graph.graph


def _freed(graph):
    return dict(zip(graph.name, graph.freed_after.tolist(), strict=True))


def test_a_name_holds_a_tensor_until_it_is_bound_anew():
    def forward(_, x):
        held = torch.exp(x)
        y = torch.tanh(torch.sin(held))
        y = torch.cos(y)
        held = torch.relu(y)
        return held + 1

    graph = _captured(forward, torch.randn(4, 8))
    assert graph.name == ("exp", "sin", "tanh", "cos", "relu", "add")
    # sin's result is nobody's once tanh has read it, exp's stays until `held` is another
    assert graph.freed_after.tolist() == [4, 2, 3, 5, 5, 6]


def test_a_view_holds_the_memory_behind_it():
    def forward(_, x):
        part = torch.exp(x)[:2]
        y = torch.sin(torch.cos(x))
        return part + y[:2]

    graph = _captured(forward, torch.randn(4, 8))
    assert _freed(graph) == {"exp": 3, "cos": 2, "sin": 3, "add": 4}


def test_an_operator_in_place_makes_no_memory():
    def forward(_, x):
        return torch.sin(torch.exp(x).mul_(2.0))

    graph = _captured(forward, torch.randn(4, 8))
    assert graph.freed_after.tolist() == [2, -1, 3]


def test_a_copy_into_what_is_there_makes_no_memory():
    def forward(_, x):
        held = torch.exp(x)
        held[1:] = torch.sin(x[1:])
        return held * 2

    graph = _captured(forward, torch.randn(4, 8))
    assert graph.name == ("exp", "sin", "copy.in_place", "mul")
    assert graph.freed_after.tolist() == [3, 2, -1, 4]


def test_what_a_factory_makes_and_discards_is_known():
    from accelsim.workloads.capture.module import capture

    def factory():
        module = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 16))
        module[0] = torch.nn.Linear(64, 64, bias=False)
        module.register_buffer("mask", torch.ones(10, 10).tril())
        return module, (torch.randn(4, 64),)

    workload = capture(factory, training=True, batch_dimension=None)
    for captured in (workload.captured.forward, workload.captured.training):
        graph = captured.graph.graph
        assert sorted(graph.discarded) == [
            256.0,
            400.0,
            16384.0,
        ]  # the layer that was replaced, and ones below a mask
        assert (
            OperatorGraph.from_dict(json.loads(json.dumps(graph.to_dict()))).discarded
            == graph.discarded
        )
    assert (
        capture(
            factory()[0], factory()[1], batch_dimension=None
        ).captured.forward.graph.graph.discarded
        == ()
    )


def test_the_backward_pass_frees_what_was_saved_for_it():
    def forward(model, x):
        return torch.tanh(torch.sin(model.linear(x)))

    graph = _captured(forward, torch.randn(4, 8), training=True)
    place, freed = {name: row for row, name in enumerate(graph.name)}, _freed(graph)
    assert freed["addmm"] > place["tanh"]  # the sine's gradient needs it
    assert freed["sin"] == place["tanh"]  # the tangent's needs its result
    assert freed["tanh"] == len(graph)  # the caller holds it


def test_layers_of_a_recurrent_stack_are_freed_one_by_one_in_inference():
    from accelsim.workloads.capture.module import capture

    lstm = torch.nn.LSTM(8, 8, 4, batch_first=True)
    graph = capture(
        lstm.eval(), (torch.randn(2, 3, 8),), batch_dimension=None
    ).captured.forward.graph.graph
    layers = [row for row, name in enumerate(graph.name) if name.startswith("lstm")]
    assert graph.freed_after[layers[:-1]].tolist() == layers[1:]


def test_the_heap_frees_by_what_was_captured():
    def forward(_, x):
        held = torch.exp(x)
        y = torch.tanh(torch.cos(torch.sin(held)))
        del held
        return y * 2

    graph = _captured(forward, torch.randn(4, 8))
    freed = {row: after for after, rows in enumerate(rows_freed(graph, len(graph))) for row in rows}
    assert [freed[row] for row in range(len(graph))] == [3, 2, 3, 4, 4]
    guessed = {
        row: after
        for after, rows in enumerate(rows_freed(replace(graph, freed_after=None), len(graph)))
        for row in rows
    }
    assert guessed[0] == 1


def test_they_are_saved_joined_and_checked():
    def forward(_, x):
        return torch.sin(torch.exp(x))

    graph = _captured(forward, torch.randn(4, 8))
    data = json.loads(json.dumps(graph.to_dict()))
    assert OperatorGraph.from_dict(data).freed_after.tolist() == [1, 2]
    joined = concatenate([graph, replace(graph, freed_after=None), graph])
    assert joined.freed_after.tolist() == [1, 6, -1, -1, 5, 6]
    assert graph.take(np.array([0])).freed_after is None
    for wrong in ([1, 3], [1, 0], [1.5, 2], [1]):
        with pytest.raises(InvalidValueError, match="freed_after"):
            OperatorGraph.from_dict(data | {"freed_after": wrong})
