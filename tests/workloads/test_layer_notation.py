"""The short notation of convolutions, and sizes read by notation from a checkpoint's fields."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim.errors import InvalidValueError
from accelsim.workloads.builder import GraphBuilder
from accelsim.workloads.checkpoints.config import CheckpointConfig
from accelsim.workloads.dtype import PRECISIONS
from accelsim.workloads.families.image_network import (
    LayerStep,
    chain,
    layer,
    layer_steps,
    pyramid_levels,
)

INT8 = PRECISIONS["int8"]


@pytest.mark.parametrize(
    ("notation", "step"),
    [
        ("64", LayerStep(64, (1, 1), 1, (0, 0))),
        ("64/7s2", LayerStep(64, (7, 7), 2, (3, 3))),
        ("192/1x7", LayerStep(192, (1, 7), 1, (0, 3))),
        ("96/3v", LayerStep(96, (3, 3), 1, (0, 0))),
        ("384/3s2v", LayerStep(384, (3, 3), 2, (0, 0))),
        ("pool/3s2", LayerStep(0, (3, 3), 2, (1, 1))),
        ("pool/2s2", LayerStep(0, (2, 2), 2, (0, 0))),
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
        x = layer(by_hand, x, name, channels, window, stride=stride)
    text, hand = by_text.build(), by_hand.build()
    assert text.path == hand.path
    assert np.array_equal(text.dims, hand.dims)
    assert by_text.parameter_count == by_hand.parameter_count


def test_numbers_start_where_they_are_told():
    builder = GraphBuilder(INT8)
    chain(builder, builder.input(1, 3, 8, 8), "branch", "4 8/3", first=1)
    assert builder.build().path[0].startswith("branch_1.")


def test_without_normalisation_there_is_a_bias():
    builder = GraphBuilder(INT8)
    layer(builder, builder.input(1, 3, 8, 8), "plain", 4, 3, norm=False)
    assert builder.parameter_count == 4 * 3 * 9 + 4
    assert builder.build().name == ("conv", "relu")


def test_a_pyramid_keeps_the_sizes_of_its_maps():
    builder = GraphBuilder(INT8)
    maps = [builder.input(1, 8 << level, 32 >> level, 32 >> level) for level in range(3)]
    levels = pyramid_levels(builder, maps, 16)
    assert [level.shape for level in levels] == [(1, 16, side, side) for side in (8, 16, 32)]


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
