"""The operator graph: columns, dependencies, JSON."""

import contextlib
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim.dtype import Dtype, precision
from accelsim.errors import InputError, InvalidValueError
from accelsim.workloads.builder import GraphBuilder
from accelsim.workloads.cache import CacheLayer
from accelsim.workloads.graph import OperatorGraph, concatenate
from accelsim.workloads.operator import DIMENSIONS, MAX_DIMENSIONS, OperatorKind, Phase


def small_graph():
    b = GraphBuilder(precision("bf16"))
    x = b.input(4, 3, 32, 32)
    with b.scope("stem"):
        x = b.activation(b.batch_norm(b.conv(x, 8, 3)))
    skip = x
    with b.scope("block"):
        x = b.add(b.conv(x, 8, 3), skip)
    return b.linear(b.view(b.global_pool(x), 4, 8), 10) and b.build()


def test_every_kind_has_dimensions_that_fit():
    assert set(DIMENSIONS) == set(OperatorKind)
    assert max(map(len, DIMENSIONS.values())) == MAX_DIMENSIONS


def test_dependencies_point_to_earlier_rows():
    graph = small_graph()
    for row in range(len(graph)):
        assert all(earlier < row for earlier in graph.dependencies_of(row))
    add = graph.name.index("add")
    assert graph.dependencies_of(add).tolist() == [2, 3]


def test_json_round_trip_is_exact():
    graph = small_graph()
    again = OperatorGraph.from_dict(json.loads(json.dumps(graph.to_dict())))
    for column in (
        "kind",
        "dims",
        "dtype",
        "phase",
        "flop",
        "read_bytes",
        "write_bytes",
        "weight_bytes",
        "saved_bytes",
    ):
        np.testing.assert_array_equal(getattr(graph, column), getattr(again, column))
    assert (graph.name, graph.path) == (again.name, again.path)
    np.testing.assert_array_equal(graph.dependency, again.dependency)


def test_concatenation_adds_columns_and_joins_ends():
    graph = small_graph()
    both = concatenate([graph, graph])
    assert both.total_flop == 2 * graph.total_flop
    assert both.dependencies_of(len(graph)).tolist() == [len(graph) - 1]
    with pytest.raises(InvalidValueError):
        concatenate([])


def test_taking_rows_chains_them():
    graph = small_graph()
    picked = graph.take(graph.kind == int(OperatorKind.CONV))
    assert len(picked) == 2
    assert picked.dependencies_of(1).tolist() == [0]
    assert picked.with_phase(Phase.BACKWARD).phase.tolist() == [1, 1]


BREAKS = [
    ("kind", lambda c: [*c[:-1], "warp"]),
    ("kind", lambda c: "conv"),
    ("dtype", lambda c: [3, *c[1:]]),
    ("flop", lambda c: [float("nan"), *c[1:]]),
    ("flop", lambda c: [-1.0, *c[1:]]),
    ("read_bytes", lambda c: c[:-1]),
    ("dims", lambda c: [[1, 2], *c[1:]]),
    ("dims", lambda c: [[1.5] * len(c[0]), *c[1:]]),
    ("dependencies", lambda c: [[0], *c[1:]]),
    ("dependencies", lambda c: [*c[:-1], [10**6]]),
    ("name", lambda c: [None, *c[1:]]),
]


@pytest.mark.parametrize(("column", "damage"), BREAKS)
def test_a_damaged_column_is_named(column, damage):
    data = small_graph().to_dict()
    data[column] = damage(data[column])
    with pytest.raises(InvalidValueError, match=f"graph.{column}"):
        OperatorGraph.from_dict(data)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=10,
)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(small_graph().to_dict())), json_values)
def test_arbitrary_json_raises_only_input_errors(column, value):
    data = small_graph().to_dict()
    data[column] = value
    with contextlib.suppress(InputError):
        OperatorGraph.from_dict(data)


def stacked(count, *, is_copied):
    """A model of equal layers that share one tensor, keep two and end on what they began with."""
    b = GraphBuilder(precision("bf16"))
    shared = b.embedding(b.input(2, 5, dtype=Dtype.INT64), 100, 8)

    def layer(x):
        with b.scope("mlp"):
            inner = b.linear(b.layer_norm(x), 16)
        b.cached.append(CacheLayer(math.inf, 32.0))
        return b.add(b.linear(b.activation(inner, "gelu"), 8), b.add(x, shared))

    x = b.linear(shared, 8)
    places = [f"layers.{index}" for index in range(count)]
    with b.scope("model"):
        if is_copied:
            x = b.repeated(x, places, layer)
        else:
            for place in places:
                with b.scope(place):
                    x = layer(x)
    b.linear(b.layer_norm(x), 4)
    return b


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7])
def test_copied_layers_are_the_layers_written_out(count):
    copied, written = stacked(count, is_copied=True), stacked(count, is_copied=False)
    one, other = copied.build(), written.build()
    assert one.to_dict() == other.to_dict()
    assert copied.parameter_totals == written.parameter_totals
    assert copied.cached == written.cached
