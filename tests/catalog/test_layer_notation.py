"""The short notation of convolutions, and sizes read by notation from a checkpoint's fields."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim.catalog.checkpoints.config import CheckpointConfig
from accelsim.dtype import PRECISIONS
from accelsim.errors import InvalidValueError
from accelsim.files.datafile import data_root, read_mapping
from accelsim.workloads.builder import GraphBuilder
from accelsim.workloads.families.image_network import (
    LayerStep,
    Writer,
    chain,
    layer_steps,
)
from accelsim.workloads.operator import OperatorKind

INT8 = PRECISIONS["int8"]


@pytest.mark.parametrize(
    ("notation", "step"),
    [
        ("64", LayerStep("conv", ("64",), (1, 1), 1, (0, 0))),
        ("64/7s2", LayerStep("conv", ("64",), (7, 7), 2, (3, 3))),
        ("192/1x7", LayerStep("conv", ("192",), (1, 7), 1, (0, 3))),
        ("96/3v", LayerStep("conv", ("96",), (3, 3), 1, (0, 0), marks="v")),
        ("384/3s2v", LayerStep("conv", ("384",), (3, 3), 2, (0, 0), marks="v")),
        ("6*in/3d2", LayerStep("conv", ("6", "in"), (3, 3), 1, (2, 2), dilation=2)),
        ("pool/3s2", LayerStep("pool", ("in",), (3, 3), 2, (1, 1))),
        ("pool/2s2c", LayerStep("pool", ("in",), (2, 2), 2, (0, 0), marks="c")),
        ("raise:16", LayerStep("raise", ("16",))),
    ],
)
def test_a_word_is_a_layer(notation, step):
    assert layer_steps(notation) == [step]


@pytest.mark.parametrize("word", ["", "x", "/3", "64/", "64s", "64/3s2w", "-1", "64 / 3"])
def test_what_is_no_layer_is_refused_or_nothing(word):
    if not word:
        assert layer_steps(word) == []
        return
    with pytest.raises(ValueError, match="is no layer"):
        layer_steps(word)


steps = st.tuples(
    st.integers(1, 512),
    st.sampled_from([1, 3, 5]),
    st.integers(1, 3),
)


@settings(max_examples=30, deadline=None)
@given(sizes=st.lists(steps, min_size=1, max_size=5))
def test_a_chain_is_its_layers(sizes):
    words = [f"{channels}/{window}s{stride}" for channels, window, stride in sizes]
    by_text, by_hand = GraphBuilder(INT8), GraphBuilder(INT8)
    chain(by_text, by_text.input(2, 3, 64, 64), "a", " ".join(words))
    x = by_hand.input(2, 3, 64, 64)
    for index, (channels, window, stride) in enumerate(sizes):
        name = f"a.{index}" if len(sizes) > 1 else "a"
        with by_hand.scope(name):
            x = by_hand.conv(x, channels, window, stride=stride, at="0")
            x = by_hand.activation(by_hand.batch_norm(x, at="1"), at="2")
    text, hand = by_text.build(), by_hand.build()
    assert text.path == hand.path
    assert np.array_equal(text.dims, hand.dims)
    assert by_text.parameter_totals == by_hand.parameter_totals


def test_numbers_start_where_they_are_told():
    builder = GraphBuilder(INT8)
    chain(builder, builder.input(1, 3, 8, 8), "branch", "4 8/3", first=1)
    assert builder.build().path[0].startswith("branch_1.")


def test_without_normalisation_there_is_a_bias():
    builder = GraphBuilder(INT8)
    chain(builder, builder.input(1, 3, 8, 8), "plain", "4/3", norm=False)
    assert builder.parameter_totals.parameters == 4 * 3 * 9 + 4
    assert builder.build().name == ("conv", "relu")


STEP_KEYS = {
    *("name", "scope", "of", "layers", "branches", "steps", "use", "backbone", "options", "crop"),
    *("stretch", "broadcast", "add", "same", "scale", "then", "keep", "style", "times"),
    "each",
}
NETWORKS = sorted((data_root() / "workloads" / "networks").glob("*.yaml"))


def words(step):
    """All texts of layers in a network's file."""
    texts = [step.get("layers", []), *step.get("branches", {}).values()]
    for text in texts:
        yield from map(str, text if isinstance(text, list) else [text])
    for inner in step.get("steps", []):
        yield from words(inner)


@pytest.mark.parametrize("path", NETWORKS, ids=lambda path: path.stem)
def test_files_hold_layers_and_known_keys(path):
    def keys(step):
        return set(step).union(*map(keys, step.get("steps", [])))

    network = read_mapping(path)
    assert keys(network) <= STEP_KEYS
    for text in words(network):
        layer_steps(
            re.sub(r"\{\w*(pool|words)\w*\}", "", re.sub(r"\{(?!\w*(pool|words))\w+\}", "8", text))
        )


def written(*steps, **values):
    builder = GraphBuilder(INT8)
    writer = Writer(builder, values, {})
    return writer.write(steps, builder.input(1, 4, 8, 8)), builder.build()


def test_steps_keep_join_and_add_maps():
    out, graph = written(
        {"name": "a", "layers": "8/3", "keep": "a"},
        {"scope": "b", "branches": {"wide": "8", "pooled": "pool/3"}, "keep": "b"},
        {"of": ["a", "b"], "name": "c", "layers": "8l", "add": "a", "then": "relu"},
    )
    assert out.shape == (1, 8, 8, 8)
    joined = graph.name.index("concat", graph.path.index("b.pooled") + 2)
    assert graph.dependencies_of(joined).tolist() == [2, 7]
    assert graph.name[-2:] == ("add", "relu")


def test_a_step_scales_the_channels_of_a_map():
    out, graph = written(
        {"name": "a", "layers": "8/3", "keep": "a"},
        {"name": "pool", "layers": "gap"},
        {"name": "gate", "layers": "8o", "scale": "a", "then": "{gate}"},
        gate="sigmoid",
    )
    assert out.shape == (1, 8, 8, 8)
    assert graph.name[-2:] == ("scale", "sigmoid")
    product = graph.dimensions_of(len(graph) - 2)
    assert (product["elements"], product["inputs"]) == (8 * 64, 2)


def test_steps_are_repeated_with_their_values():
    _, graph = written(
        {"times": "{count}", "name": "a{index}", "layers": "{width}"},
        {"each": {"place": ["x", "y"], "n": [2, "{width}"]}, "name": "{place}", "layers": "{n}/3o"},
        count=2,
        width=6,
    )
    assert [path for path in graph.path if "." not in path] == ["x", "y"]
    assert graph.dims[graph.kind == int(OperatorKind.CONV), 2].tolist() == [6, 6, 2, 6]


FIELDS = {"hidden_size": 768, "n_layer": 12, "wide": None}


@pytest.mark.parametrize(
    ("notation", "found"),
    [
        ("hidden_size", {"hidden_size": 768}),
        ("layers=n_layer", {"layers": 12}),
        ("heads=n_head:8", {"heads": 8}),
        ("layers=n_layer:3", {"layers": 12}),
        ("wide:5", {"wide": 5}),
        ("wide?", {}),
        ("layers=n_layer? hidden_size", {"layers": 12, "hidden_size": 768}),
    ],
)
def test_sizes_by_notation(notation, found):
    assert CheckpointConfig(FIELDS).counts(notation) == found


@pytest.mark.parametrize("notation", ["missing", "a=missing", "wide"])
def test_a_size_that_is_missing_is_named(notation):
    field = notation.partition("=")[2] or notation
    with pytest.raises(InvalidValueError, match=field):
        CheckpointConfig(FIELDS).counts(notation)


@given(value=st.one_of(st.integers(max_value=0), st.booleans(), st.text(), st.floats()))
def test_a_size_that_is_no_count_is_refused(value):
    with pytest.raises(InvalidValueError, match="size"):
        CheckpointConfig({"size": value}).counts("size")
