"""Listings: a narrow terminal shows all columns, names stay whole, brackets are no markup."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from accelsim.report.listing import Listing

MADE = Listing(
    ("name", "kind", "note", "size"),
    [
        ("a-rather-long-name", "gpu", "some words that may wrap", "12.3 GB"),
        ("b[red]", "cpu", "[/bold]", "1 B"),
    ],
    right=frozenset({"size"}),
    fold=frozenset({"note"}),
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


def test_text_wraps_where_the_columns_are_wide():
    assert drawn(MADE, 45)[:4] == [
        "name               kind note",
        "a-rather-long-name gpu  some words that may",
        "                        wrap",
        "b[red]             cpu  [/bold]",
    ]


def test_brackets_are_data():
    text = "\n".join(drawn(MADE, 100))
    assert "b[red]" in text
    assert "[/bold]" in text


@given(
    st.lists(st.text("abc [/]", min_size=1, max_size=12), min_size=1, max_size=5),
    st.integers(30, 200),
)
def test_no_line_is_wider_than_the_terminal(names, width):
    listing = Listing(
        ("name", "note"), [(name, "x y " * 20) for name in names], fold=frozenset({"note"})
    )
    assert max(map(len, drawn(listing, width))) <= width


FIGURES = Listing(
    ("device", "type", "time", "energy", "cost"),
    [
        ("xeon-platinum-8480+", "bf16", "1.66 ms*", "421 mJ", "$0.00230"),
        ("t4", "-", "12.9 ms", "159 mJ*", "$0.00188*"),
    ],
    right=frozenset({"time", "energy", "cost"}),
)


def test_columns_without_room_stand_below_beside_the_first():
    assert drawn(FIGURES, 40) == [
        "device              type     time",
        "xeon-platinum-8480+ bf16 1.66 ms*",
        "t4                  -     12.9 ms",
        "",
        "device               energy      cost",
        "xeon-platinum-8480+  421 mJ  $0.00230",
        "t4                  159 mJ* $0.00188*",
    ]


def test_words_break_at_blanks_and_long_names_after_a_mark():
    listing = Listing(
        ("of", "cost"),
        [("at $1,990,000 gcp/us-central1/a3-highgpu-1g, committed", "12.5")],
        fold=frozenset({"of"}),
    )
    assert drawn(listing, 28) == [
        "of                      cost",
        "at $1,990,000 gcp/us-   12.5",
        "central1/a3-highgpu-1g,",
        "committed",
    ]


CELLS = st.text("abc0123456789.$", min_size=1, max_size=9)


@given(
    st.lists(st.tuples(CELLS, CELLS, CELLS, CELLS), min_size=1, max_size=4), st.integers(22, 120)
)
def test_no_figure_is_ever_cut(rows, width):
    listing = Listing(
        ("name", "one", "two", "three"),
        rows,
        right=frozenset({"one", "two"}),
    )
    lines = drawn(listing, width)
    text = "\n".join(lines)
    assert "…" not in text
    for row in rows:
        for cell in row:
            assert any(cell in line for line in lines)


@pytest.mark.parametrize("styled", [True, False])
def test_rows_may_be_styled(styled):
    listing = Listing(("name",), [(Text("x"),)], styles=["bold"] if styled else ())
    console = Console(width=20, force_terminal=True, color_system="standard")
    with console.capture() as captured:
        console.print(listing)
    assert ("\x1b[1mx" in captured.get()) == styled
