"""JSON and CSV: what is written can be read back, and what is unknown stays unknown."""

from __future__ import annotations

import csv
import io
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelsim.errors import OutputError
from accelsim.files.formats import csv_blocks, csv_text, json_text, uniform_rows, visible
from accelsim.files.output import write_text

scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text())
trees = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)),
    max_leaves=20,
)
# What is written as it is: no control characters, and nothing a spreadsheet would run
cells = st.text(st.characters(exclude_categories=["Cs", "Cc", "Cf", "Zl", "Zp"])).filter(
    lambda text: not text.startswith(("=", "+", "-", "@"))
)


def finite(value):
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@given(trees)
def test_json_reads_back_and_is_strict(data):
    def refuse(name: str) -> None:
        raise AssertionError(name)

    assert json.loads(json_text(data), parse_constant=refuse) == finite(data)


@given(st.lists(st.dictionaries(st.sampled_from("abcdef"), cells, min_size=1), min_size=1))
def test_csv_reads_back(rows):
    text = csv_text(rows)
    read = list(csv.DictReader(io.StringIO(text)))
    assert len(read) == len(rows)
    for row, found in zip(rows, read, strict=True):
        assert {key: value for key, value in found.items() if value} == {
            key: value for key, value in row.items() if value
        }


def test_csv_flattens_mappings_joins_lists_and_leaves_tables_out():
    row = {
        "a": {"b": 1.5, "c": None},
        "names": ["x", "y"],
        "table": [{"k": 1}],
        "ok": True,
        "bad": math.nan,
    }
    assert csv_text([row]) == "a.b,a.c,names,ok,bad\n1.5,,x;y,true,\n"


def test_csv_without_rows_still_has_its_header():
    assert csv_text([], ("a", "b")) == "a,b\n"


def test_uniform_rows_have_the_same_keys_in_the_same_order():
    rows = uniform_rows([{"a": 1}, {"b": 2, "a": 3}], ("c", "a"))
    assert [list(row) for row in rows] == [["a", "b", "c"]] * 2
    assert rows[0] == {"a": 1, "b": None, "c": None}


def test_key_order_is_kept():
    assert list(json.loads(json_text({"z": 1, "a": 2}))) == ["z", "a"]


NUMBERS = st.one_of(
    st.none(), st.integers(-(10**12), 10**12), st.floats(allow_nan=False, allow_infinity=False)
)


@st.composite
def blocks(draw):
    """Blocks of columns over one set of names; a block may lack some."""
    names = draw(st.lists(st.sampled_from("abcdef"), min_size=1, unique=True))
    made = []
    for _ in range(draw(st.integers(0, 4))):
        own = draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
        count = draw(st.integers(0, 5))
        column = st.lists(st.one_of(NUMBERS, cells), min_size=count, max_size=count)
        made.append({name: draw(column) for name in own})
    return names, made


@given(blocks())
def test_blocks_of_columns_read_back_row_by_row(made):
    names, columns = made
    found = list(csv.reader(io.StringIO("".join(csv_blocks(names, iter(columns))))))
    assert found[0] == names
    expected = [
        ["" if value is None else str(value) for value in row]
        for block in columns
        for row in zip(
            *(block.get(name, [None] * len(next(iter(block.values())))) for name in names),
            strict=True,
        )
    ]
    assert [row or [""] for row in found[1:]] == expected


@given(st.lists(st.fixed_dictionaries({"a": NUMBERS, "b": cells}), min_size=1))
def test_blocks_and_rows_are_the_same_text(rows):
    block = {name: [row[name] for row in rows] for name in ("a", "b")}
    assert "".join(csv_blocks(("a", "b"), [block])) == csv_text(rows, ("a", "b"))


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_numbers_lose_no_digit_in_any_format(values):
    rows = [{"x": value} for value in values]
    assert [float(row["x"]) for row in csv.DictReader(io.StringIO(csv_text(rows)))] == values
    assert [row["x"] for row in json.loads(json_text(rows))] == values


def test_parts_are_written_one_after_the_other_or_not_at_all(tmp_path):
    path = tmp_path / "rows.csv"
    write_text(path, csv_blocks(("a",), [{"a": [1]}, {"a": [2, 3]}]))
    assert path.read_text() == "a\n1\n2\n3\n"

    def broken():
        yield {"a": [1]}
        raise OSError(28, "No space left on device")

    with pytest.raises(OutputError, match="No space left"):
        write_text(tmp_path / "other.csv", csv_blocks(("a",), broken()))
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["rows.csv"]


def test_names_cannot_be_formulas_or_reach_the_terminal():
    row = {"a": "=1+1", "b": "\x1b[31mred\u202e", "c": ["@x", 2], "d": -1.5, "e": [-1, 2]}
    expected = {"a": "'=1+1", "b": "\\x1b[31mred\\u202e", "c": "'@x;2", "d": "-1.5", "e": "-1;2"}
    (line,) = csv.DictReader(io.StringIO(csv_text([row])))
    assert line == expected
    (block,) = csv.DictReader(io.StringIO("".join(csv_blocks("ab", [{"a": ["+1"], "b": ["\r"]}]))))
    assert block == {"a": "'+1", "b": "\\r"}


def test_ordinary_text_is_left_alone():
    text = "ResNet-50 – Übung\u00a0µs 模型\n±8 %"
    assert visible(text) == text
