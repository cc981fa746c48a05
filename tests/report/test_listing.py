"""Listings: narrow terminals lose dispensable columns, names stay whole, brackets in data are no markup."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from accelsim.report.listing import Listing

MADE = Listing(
    ("name", "kind", "note", "size"),
    [("a-rather-long-name", "gpu", "some words that may wrap", "12.3 GB"), ("b[red]", "cpu", "[/bold]", "1 B")],
    right=frozenset({"size"}),
    fold=frozenset({"note"}),
    dispensable=("kind",),
)


def drawn(listing: Listing, width: int) -> list[str]:
    console = Console(width=width, color_system=None, highlight=False)
    with console.capture() as captured:
        console.print(listing)
    return [line.rstrip() for line in captured.get().splitlines()]


def test_all_columns_are_shown_where_there_is_room():
    lines = drawn(MADE, 100)
    assert lines[0].split() == ["name", "kind", "note", "size"]
    assert lines[1].endswith("12.3 GB")
    assert lines[2].endswith("    1 B")


def test_dispensable_columns_go_first_then_text_wraps():
    lines = drawn(MADE, 55)
    assert lines[0].split() == ["name", "note", "size"]
    assert len(lines) == 3
    narrow = drawn(MADE, 40)
    assert len(narrow) > 3
    assert "a-rather-long-name" in narrow[1]


def test_brackets_are_data():
    text = "\n".join(drawn(MADE, 100))
    assert "b[red]" in text
    assert "[/bold]" in text


@given(st.lists(st.text("abc [/]", min_size=1, max_size=12), min_size=1, max_size=5), st.integers(30, 200))
def test_no_line_is_wider_than_the_terminal(names, width):
    listing = Listing(("name", "note"), [(name, "x y " * 20) for name in names], fold=frozenset({"note"}))
    assert max(map(len, drawn(listing, width))) <= width


@pytest.mark.parametrize("styled", [True, False])
def test_rows_may_be_styled(styled):
    listing = Listing(("name",), [(Text("x"),)], styles=["bold"] if styled else ())
    console = Console(width=20, force_terminal=True, color_system="standard")
    with console.capture() as captured:
        console.print(listing)
    assert ("\x1b[1mx" in captured.get()) == styled
