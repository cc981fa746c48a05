"""Which rows of a network in INT8 stay in wider formats on a CPU, and the bytes they then move."""

import pytest

from accelsim import catalog
from accelsim.cost.cpu import cost_cpu
from accelsim.cost.cpu.machine import cpu_machine
from accelsim.cost.cpu.parameters import cpu_parameters
from accelsim.cost.cpu.quantised import quantised
from accelsim.cost.table import Execution
from accelsim.dtype import Dtype, precision
from accelsim.workloads.builder import GraphBuilder
from accelsim.workloads.fusion import fuse_elementwise

TENSOR = 4 * 8.0  # elements


def in_floats(graph, name="xeon-platinum-8280"):
    device = catalog.device(name)
    return quantised(graph, cpu_machine(graph, device, Execution.GRAPH, cpu_parameters()))


def block(name="int8"):
    """norm -> product + activation -> product -> sum with the norm -> norm"""
    b = GraphBuilder(precision(name))
    x = b.layer_norm(b.input(4, 8))
    b.layer_norm(b.add(b.linear(b.activation(b.linear(x, 8)), 8), x))
    return fuse_elementwise(b.build(), "activations")


@pytest.mark.parametrize(
    ("name", "wide"),
    [("xeon-platinum-8280", Dtype.FP32), ("xeon-platinum-8480+", Dtype.BF16)],
)
def test_sums_and_norms_are_of_floats_and_products_of_bytes(name, wide):
    graph = in_floats(block(), name)
    assert graph.dtype.tolist() == [wide, Dtype.INT8, Dtype.INT8, wide, wide]


def test_a_product_yields_floats_unless_an_activation_is_joined_to_it():
    graph = in_floats(block())
    assert graph.write_bytes[1:3].tolist() == [TENSOR, 4 * TENSOR]
    assert graph.read_bytes[1:3].tolist() == [TENSOR, TENSOR]


def test_a_joined_sum_reads_floats_and_yields_floats():
    b = GraphBuilder(precision("int8"))
    x = b.input(4, 8)
    b.add(b.linear(x, 8), x)
    graph = in_floats(fuse_elementwise(b.build()))
    assert (graph.read_bytes[0], graph.write_bytes[0]) == (TENSOR + 4 * TENSOR, 4 * TENSOR)


def test_a_norm_is_quantised_by_a_pass_of_its_own():
    graph = in_floats(block())
    assert (graph.read_bytes[4], graph.write_bytes[4]) == (8 * TENSOR, 5 * TENSOR)


def test_networks_in_floats_stay_as_they_are():
    graph = block("fp32")
    assert in_floats(graph) is graph


def test_convolutions_and_their_sums_stay_in_bytes():
    b = GraphBuilder(precision("int8"))
    x = b.conv(b.input(1, 8, 4, 4), 8, 1)
    b.activation(b.add(b.conv(x, 8, 1), x))
    graph = fuse_elementwise(b.build(), "activations")
    assert in_floats(graph).bytes.tolist() == graph.bytes.tolist()


def test_floats_of_a_quantised_network_are_as_uncertain_as_the_rest_of_it():
    device = catalog.device("xeon-platinum-8280")
    of_bytes, of_floats = (cost_cpu(block(name), device).log_sigma for name in ("int8", "fp32"))
    assert (of_bytes == of_bytes[0]).all()
    assert (of_floats < of_bytes[0]).all()
