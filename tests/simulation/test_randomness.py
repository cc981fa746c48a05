"""Streams depend on the seed and their name, and on nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelsim.errors import InvalidValueError
from accelsim.simulation.randomness import RandomStreams

names = st.text(max_size=8)


@given(st.integers(0, 2**63), names, names, st.integers(0, 50))
def test_a_stream_is_the_same_whatever_others_draw(seed, name, other, drawn):
    streams = RandomStreams(seed)
    streams.stream(other).random(drawn)
    first = streams.stream(name).random(4)
    assert (first == RandomStreams(seed).stream(name).random(4)).all()
    if other != name:
        assert (first != streams.stream(other).random(4)).any()


def test_streams_and_replications_are_uncorrelated():
    streams = RandomStreams(7)
    keys = [("arrivals",), ("lengths",), ("arrivals", 0), ("arrivals", 1), ("arrivals1",)]
    draws = np.array([streams.stream(*key).random(20_000) for key in keys])
    apart = np.corrcoef(draws)[~np.eye(len(keys), dtype=bool)]
    assert np.abs(apart).max() < 0.03  # four standard errors of 20,000 pairs


@pytest.mark.parametrize("seed", [-1, 0.5, True, None])
def test_a_bad_seed_is_refused(seed):
    with pytest.raises(InvalidValueError, match="seed"):
        RandomStreams(seed)
