"""Dispatch over device classes and the split between a device and its host."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from operator_cases import attention, conv, gemm, inference_zoo, row, training_rows

from accelsim import catalog
from accelsim.cost.class_parameters import class_parameters
from accelsim.cost.cpu import cost_cpu
from accelsim.cost.fpga import cost_fpga
from accelsim.cost.gpu import cost_gpu
from accelsim.cost.registry import cost_model, operator_costs, supported_rows
from accelsim.cost.systolic import SystolicParameters, cost_systolic
from accelsim.cost.table import Bound, Execution
from accelsim.dtype import Dtype, precision
from accelsim.errors import UnsupportedOperatorError
from accelsim.workloads.builder import GraphBuilder
from accelsim.workloads.graph import concatenate
from accelsim.workloads.operator import OperatorKind

XEON, ZCU102, U250, TPU1 = (
    catalog.device(n) for n in ("xeon-platinum-8480+", "zcu102", "alveo-u250", "tpu-v1")
)
T4 = catalog.device("t4")


def mixed():
    """conv, softmax, conv in int8: the middle row is the host's on a DPU."""
    builder = GraphBuilder(precision("int8"))
    x = builder.conv(builder.input(1, 16, 28, 28), 16, 3)
    builder.conv(builder.softmax(x), 16, 3)
    return builder.build()


@pytest.mark.parametrize(
    ("device", "model"),
    [(XEON, cost_cpu), (T4, cost_gpu), (ZCU102, cost_fpga), (TPU1, cost_systolic)],
)
def test_the_class_selects_the_model(device, model):
    assert cost_model(device) is model
    graph = gemm(64, 64, 64, "int8")
    table = operator_costs(graph, device, Execution.GRAPH)
    assert table.time_s.tolist() == model(graph, device, Execution.GRAPH).time_s.tolist()


def test_no_model_is_imported_before_it_is_needed():
    code = (
        "import sys, accelsim.cost.registry as r\n"
        "print([m for m in sys.modules if m.startswith(('accelsim.cost.cpu', 'accelsim.cost.gpu', "
        "'accelsim.cost.systolic', 'accelsim.cost.fpga'))])"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert printed.strip() == "[]"


def test_a_host_takes_what_the_device_cannot_run_and_pays_both_transfers():
    graph = mixed()
    assert supported_rows(graph, U250).tolist() == [True, False, True]
    table = operator_costs(graph, U250, host=XEON)
    alone = cost_cpu(graph.take(np.array([1])), XEON)
    link = U250.host_link.bandwidth_bytes_per_s.value
    crossing = (graph.read_bytes[1] + graph.write_bytes[1]) / link
    latency = 0.0 if U250.host_link.latency_s is None else 2 * U250.host_link.latency_s.value
    assert table.time_s[1] == pytest.approx(alone.time_s[0] + crossing + latency)
    device = cost_fpga(graph.take(np.array([0, 2])), U250)
    assert table.time_s[[0, 2]].tolist() == device.time_s.tolist()
    assert table.energy_j[1] > alone.energy_j[0]


def test_neighbouring_host_rows_keep_their_tensors_on_the_host():
    builder = GraphBuilder(precision("int8"))
    x = builder.conv(builder.input(1, 16, 28, 28), 16, 3)
    builder.conv(builder.softmax(builder.softmax(x)), 16, 3)
    graph = builder.build()
    table = operator_costs(graph, U250, host=XEON)
    crossing = np.array([graph.read_bytes[1], graph.write_bytes[2]])  # once each way
    alone = cost_cpu(graph.take(np.array([1, 2])), XEON)
    assert table.bytes[1:3] == pytest.approx(crossing + alone.bytes, rel=1e-12)
    assert (alone.bytes < 1e-4 * crossing).all()  # the tensor between them stays in its caches


def test_an_embedded_host_shares_the_memory():
    assert ZCU102.host_link is None
    table = operator_costs(mixed(), ZCU102, host=catalog.device("core-i7-3820"))
    assert (table.time_s > 0).all()


def test_slow_links_are_named_as_the_bound():
    graph = row(OperatorKind.SOFTMAX, (1000, 20_000), dtype=Dtype.INT8, read=2e7, write=2e7)
    graph = concatenate([conv(1, 4, 4, 4, dtype="int8"), graph, conv(1, 4, 4, 4, dtype="int8")])
    table = operator_costs(graph, U250, host=XEON)
    assert table.bound[1] == Bound.LINK
    assert operator_costs(mixed(), U250, host=XEON).bound[0] != Bound.LINK


def test_without_a_host_the_operator_is_named():
    with pytest.raises(UnsupportedOperatorError, match="softmax"):
        operator_costs(mixed(), U250)


def test_a_host_cannot_run_collectives_either():
    graph = row(OperatorKind.ALL_REDUCE, (1000, 4), dtype=Dtype.INT8)
    with pytest.raises(UnsupportedOperatorError, match="all_reduce"):
        operator_costs(graph, U250, host=XEON)


def test_a_host_makes_no_difference_where_nothing_falls_back():
    graph = gemm(64, 64, 64, "int8")
    assert (
        operator_costs(graph, TPU1, host=XEON).time_s.tolist()
        == operator_costs(graph, TPU1).time_s.tolist()
    )


@pytest.mark.parametrize(
    "device", [XEON, T4, ZCU102, TPU1, catalog.device("tpu-v4")], ids=lambda d: d.name
)
@pytest.mark.parametrize("dtype", ["fp32", "bf16", "int8"])
def test_supported_rows_are_exactly_those_that_cost_something(device, dtype):
    graph = concatenate([inference_zoo(dtype), training_rows(precision(dtype).compute)])
    mask = supported_rows(graph, device)
    model = cost_model(device)
    if mask.any():
        assert (model(graph.take(mask), device, Execution.EAGER).time_s >= 0).all()
    for index in np.flatnonzero(~mask):
        with pytest.raises(UnsupportedOperatorError):
            model(graph.take(np.array([index])), device, Execution.EAGER)


def test_a_transformer_block_on_a_dpu_leaves_attention_to_the_host():
    graph = concatenate(
        [gemm(16, 64, 64, "int8"), attention(1, 4, 16, 16, dtype="int8"), gemm(16, 64, 64, "int8")]
    )
    assert supported_rows(graph, ZCU102).tolist() == [True, False, True]
    assert len(operator_costs(graph, ZCU102, host=XEON)) == 3


def test_class_parameters_are_read_once():
    assert class_parameters("asic", SystolicParameters) is class_parameters(
        "asic", SystolicParameters
    )


def test_empty_graph():
    graph = gemm(2, 2, 2, "int8").take(np.zeros(0, dtype=np.int64))
    for device in (XEON, ZCU102, TPU1, T4):
        assert len(operator_costs(graph, device, host=XEON)) == 0
