"""JSON and CSV: what is written can be read back, and what is unknown stays unknown."""

from __future__ import annotations

import csv
import io
import json
import math

from hypothesis import given
from hypothesis import strategies as st

from accelsim.report.formats import csv_text, json_text, uniform_rows

scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text())
trees = st.recursive(
    scalars, lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)), max_leaves=20
)
# RFC 4180 text; csv readers join line ends, and NUL cannot be in a CSV file
cells = st.text(st.characters(exclude_characters="\r\n\x00", exclude_categories=["Cs"]))


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
    row = {"a": {"b": 1.5, "c": None}, "names": ["x", "y"], "table": [{"k": 1}], "ok": True, "bad": math.nan}
    assert csv_text([row]) == "a.b,a.c,names,ok,bad\n1.5,,x;y,true,\n"


def test_csv_without_rows_still_has_its_header():
    assert csv_text([], ("a", "b")) == "a,b\n"


def test_uniform_rows_have_the_same_keys_in_the_same_order():
    rows = uniform_rows([{"a": 1}, {"b": 2, "a": 3}], ("c", "a"))
    assert [list(row) for row in rows] == [["a", "b", "c"]] * 2
    assert rows[0] == {"a": 1, "b": None, "c": None}


def test_key_order_is_kept():
    assert list(json.loads(json_text({"z": 1, "a": 2}))) == ["z", "a"]
