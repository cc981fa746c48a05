"""What steps of recurrent layers do on a CPU, and weights that a loop uses again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from accelsim.calibration.check import CheckCase, model_graph
from accelsim.calibration.measurement.captured_rows import case_graph
from accelsim.calibration.measurement.case import Case
from accelsim.cost.cpu.calibrated import _step_before
from accelsim.cost.cpu.kind_rows import rows_of_kind
from accelsim.cost.cpu.recurrent_steps import StepWork, further_bytes, gate_rests, step_work
from accelsim.workloads.operator import OperatorKind

torch = pytest.importorskip("torch")

L3 = 32.0 * 2**20


def work(operator: str, dtype: str = "fp32", **shape: int) -> tuple[StepWork, float]:
    sizes = {"batch": 2, "steps": 10, "input": 96, "hidden": 64, **shape}
    graph = case_graph([Case("recurrent", operator, sizes, dtype)])
    kind = OperatorKind.GRU if operator.startswith("gru") else OperatorKind.LSTM
    return step_work(rows_of_kind(graph, kind), is_training=False), float(graph.flop[0])


@pytest.mark.parametrize(
    ("operator", "dtype", "batch", "matrices"),
    [
        ("lstm", "fp32", 2, 64 + 96),  # fused: inputs and states each step
        ("lstm", "fp32", 1, 64),  # a single row's inputs are one product
        ("lstm_train", "bf16", 1, 64),
        ("lstm_train", "bf16", 2, 64 + 96),
        ("lstm_train", "fp32", 2, 64),  # not fused
        ("lstm_backward", "fp32", 1, 64),
        ("lstm_backward", "bf16", 1, 5 * (64 + 96)),  # its sums in 32 bits, read and written
    ],
)
def test_weights_that_an_lstm_moves_each_step(operator, dtype, batch, matrices):
    found, _ = work(operator, dtype, batch=batch)
    width = 4 if dtype == "fp32" else 2
    assert found.moved_bytes[0] == 4 * 64 * matrices * width


def test_weights_that_a_gru_moves_each_step():
    states = 3 * 64 * 64 * 4
    for operator, batch, times in (
        ("gru", 1, 1),
        ("gru", 3, 3),
        ("gru", 4, 1),
        ("gru_backward", 1, 5),
        ("gru_backward", 3, 16),
    ):
        assert work(operator, batch=batch)[0].moved_bytes[0] == times * states, (operator, batch)


def test_few_rows_of_a_fused_step_take_as_long_as_four():
    for batch, times in ((1, None), (2, 2.0), (4, 1.0), (9, 1.0)):
        found, flop = work("lstm", batch=batch)
        inputs = 96 / (96 + 64)
        assert found.flop[0] == pytest.approx(flop * (times or inputs + 4 * (1 - inputs)))
    for operator in ("lstm_train", "lstm_backward", "gru"):
        found, flop = work(operator, batch=1)
        assert found.flop[0] == flop


def test_steps_go_to_memory_once_their_round_exceeds_the_cache():
    assert work("lstm", hidden=512)[0].far_bytes(L3)[0] == 0
    wide, _ = work("lstm", hidden=2048)
    assert wide.far_bytes(L3)[0] == 9 * wide.moved_bytes[0]


def test_a_step_leaves_the_cache_by_what_moves_and_not_by_how_slowly():
    assert (
        work("lstm", hidden=1100)[0].far_bytes(L3)[0]
        == 0
        < work("lstm_backward", hidden=1100, input=640)[0].far_bytes(L3)[0]
    )
    found, _ = work("gru_backward", batch=3, hidden=1600)
    assert found.far_moved_bytes[0] == 5 * 3 * 1600**2 * 4 < found.moved_bytes[0]
    assert found.far_bytes(L3)[0] == 9 * found.far_moved_bytes[0]


def test_gates_that_fill_no_pair_of_vectors_leave_elements_over():
    hidden = np.array([32.0, 50.0, 64.0, 100.0])
    assert gate_rests(hidden, np.array(4.0)).tolist() == [0, 18, 0, 4]
    assert gate_rests(hidden, np.array(2.0)).tolist() == [32, 50, 0, 36]


def test_a_second_direction_reads_the_input_again():
    graph = case_graph(
        [Case("recurrent", "gru", {"batch": 2, "steps": 10, "input": 96, "hidden": 64})]
    )
    assert further_bytes(graph)[0] == 0
    dims = graph.dims.copy()
    dims[0, 4] = 2
    assert further_bytes(replace(graph, dims=dims))[0] == 2 * 10 * 96 * 4


class _Cell(torch.nn.Module):
    def __init__(self, inputs: int = 24):
        super().__init__()
        self.cell = torch.nn.LSTMCell(inputs, 32)
        self.out = torch.nn.Linear(32, 5)

    def forward(self, x):
        h, c = x.new_zeros(x.shape[1], 32), x.new_zeros(x.shape[1], 32)
        for step in x:
            h, c = self.cell(step, (h, c))
        return self.out(h)


class _Experts(torch.nn.Module):
    """The same product with other weights, side by side."""

    def __init__(self):
        super().__init__()
        self.weights = torch.nn.Parameter(torch.empty(4, 24, 24))

    def forward(self, x):
        return sum(torch.nn.functional.linear(x, weight) for weight in self.weights)


def graph_of(module, *shape: int):
    case = CheckCase("model", 1, "fp32", 1)
    return model_graph(case, {"model": lambda _batch: (module(), (torch.empty(*shape),))})


def test_a_cell_stepped_in_a_loop_uses_its_weights_again():
    graph = graph_of(_Cell, 6, 3, 24)
    before = _step_before(graph)
    products = [
        row
        for row in range(len(graph))
        if graph.kind[row] == OperatorKind.GEMM and graph.path[row] == "cell"
    ]
    assert len(products) == 12
    assert (before[products[:2]] == -1).all()
    assert before[products[2:]].tolist() == products[:-2]
    assert before[-1] == -1


def test_a_cell_whose_two_products_are_alike_steps_too():
    graph = graph_of(lambda: _Cell(32), 6, 3, 32)
    assert np.count_nonzero(_step_before(graph) >= 0) > 5 * 10


def test_products_side_by_side_are_no_loop():
    assert (_step_before(graph_of(_Experts, 8, 24)) == -1).all()
