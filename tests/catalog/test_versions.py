"""Versions of software in ranges."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelsim.catalog.versions import Span, covers, is_before, release, span_below

SPANS = [Span("0.14", "0.19"), Span("0.10", "0.12"), Span("0.9", "0.9"), Span("0.6", "0.6")]


@pytest.mark.parametrize(
    ("version", "numbers"),
    [
        ("0.18.0", (0, 18, 0)),
        ("v0.5.6.post2", (0, 5, 6)),
        ("1.1.0rc2.post2", (1, 1, 0)),
        ("2", (2,)),
        ("nightly-5b8c", None),
        ("gpt-oss-dev", None),
        ("", None),
        ("1.x", None),
    ],
)
def test_a_version_is_the_release_it_belongs_to(version, numbers):
    assert release(version) == numbers


@pytest.mark.parametrize(
    ("version", "first"),
    [
        ("0.19.3", "0.14"),
        ("0.14", "0.14"),
        ("0.13.0", "0.10"),  # between two: the older
        ("0.12.1", "0.10"),
        ("0.9.2", "0.9"),
        ("0.7", "0.6"),
        ("0.20", None),
        ("0.5", None),
        ("main", None),
    ],
)
def test_a_version_is_in_its_range_or_in_the_one_below(version, first):
    found = span_below(version, SPANS)
    assert (found and found.first) == first


def test_a_range_covers_patches_of_its_ends_and_no_version_after_them():
    assert covers(SPANS[1], "0.12.9")
    assert not covers(SPANS[1], "0.13")
    assert not covers(SPANS[1], "0.9.9")
    assert SPANS[1].text == "0.10 to 0.12"
    assert SPANS[2].text == "0.9"


@given(minor=st.integers(0, 40), patch=st.integers(0, 9))
def test_ranges_answer_each_version_once(minor, patch):
    version = f"0.{minor}.{patch}"
    found = span_below(version, SPANS)
    assert sum(covers(span, version) for span in SPANS) <= 1
    if found is None:
        assert is_before(version, SPANS[-1]) or minor > 19
    else:
        assert not is_before(version, found)
        newer = SPANS[: SPANS.index(found)]
        assert all(is_before(version, span) for span in newer)
