"""Listings: narrow terminals lose dispensable columns, names stay whole, brackets in data are no
markup.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from accelsim.cli import main
from accelsim.report.listing import Listing

MADE = Listing(
    ("name", "kind", "note", "size"),
    [
        ("a-rather-long-name", "gpu", "some words that may wrap", "12.3 GB"),
        ("b[red]", "cpu", "[/bold]", "1 B"),
    ],
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
    assert lines[3:] == ["left out, too narrow: kind"]
    narrow = drawn(MADE, 45)
    assert len(narrow) > 3
    assert "a-rather-long-name" in narrow[1]


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
    dispensable=("type",),
)


def test_rows_become_records_where_the_needed_columns_do_not_fit():
    assert drawn(FIGURES, 40) == [
        "xeon-platinum-8480+",
        "  type bf16, time 1.66 ms*",
        "  energy 421 mJ, cost $0.00230",
        "t4",
        "  time 12.9 ms, energy 159 mJ*",
        "  cost $0.00188*",
    ]


def test_records_of_numbered_rows_say_what_the_number_is():
    numbered = Listing(
        ("batch", "fastest"), [("8", "a-device-with-a-long-name")], right=frozenset({"batch"})
    )
    assert drawn(numbered, 20)[0] == "batch 8"


def test_wide_tables_say_nothing_of_columns_left_out():
    listing = Listing(("name", "extra"), [("x" * 60, "y" * 60)], dispensable=("extra",))
    assert drawn(listing, 100) == ["name", "x" * 60]


CELLS = st.text("abc0123456789.$", min_size=1, max_size=9)


@given(
    st.lists(st.tuples(CELLS, CELLS, CELLS, CELLS), min_size=1, max_size=4), st.integers(22, 120)
)
def test_no_figure_is_ever_cut(rows, width):
    listing = Listing(
        ("name", "one", "two", "three"),
        rows,
        right=frozenset({"one", "two"}),
        dispensable=("three",),
    )
    lines = drawn(listing, width)
    text = "\n".join(lines)
    assert "…" not in text
    for name, one, two, _ in rows:
        for cell in (name, one, two):
            assert any(cell in line for line in lines)


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize(
    "command",
    [("accuracy",), ("accuracy", "--device", "t4"), ("devices", "list", "--class", "asic")],
)
def test_commands_fit_the_terminal(run_wide, command, width):
    lines = run_wide(width, *command)
    assert max(map(len, lines)) <= width
    assert not any("…" in line for line in lines)


@pytest.fixture
def run_wide(monkeypatch, capsys):
    def run(width, *command):
        monkeypatch.setenv("COLUMNS", str(width))
        with pytest.raises(SystemExit):
            main(list(command))
        return capsys.readouterr().out.splitlines()

    return run


@pytest.mark.parametrize("styled", [True, False])
def test_rows_may_be_styled(styled):
    listing = Listing(("name",), [(Text("x"),)], styles=["bold"] if styled else ())
    console = Console(width=20, force_terminal=True, color_system="standard")
    with console.capture() as captured:
        console.print(listing)
    assert ("\x1b[1mx" in captured.get()) == styled
