"""Bad data: every defect is named with file, row and column, and what can be used is used."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim.calibration.validation.tables import DataFolder, Schema, data_folder, number, text, time_column
from accelsim.errors import InputError

SCHEMA = Schema(
    "ops/vec.csv.gz", (*text("op", "device"), *number("b"), *time_column("latency_ms")), ("op", "device", "b"), 0.1
)
GOOD = "op,device,b,latency_ms,note\nadd,T4,1,0.5,x\nadd,T4,2,0.7,y\nmul,T4,1,0.4,z\n"


@pytest.fixture
def read(tmp_path):
    (tmp_path / "ops").mkdir()

    def write_and_read(content: str | bytes, name: str = "vec.csv"):
        raw = content.encode() if isinstance(content, str) else content
        (tmp_path / "ops" / name).write_bytes(raw)
        folder = DataFolder(tmp_path)
        return folder.table(SCHEMA), folder.problems

    return write_and_read


def test_good_tables_are_read_plain_or_compressed(read):
    for name, content in (("vec.csv", GOOD), ("vec.csv.gz", gzip.compress(GOOD.encode()))):
        table, problems = read(content, name)
        assert problems == []
        assert table["op"].tolist() == ["add", "add", "mul"]
        assert table["latency_ms"].tolist() == [0.5, 0.7, 0.4]
        assert table.line.tolist() == [2, 3, 4]


@pytest.mark.parametrize(
    ("cell", "reason"),
    [("-1", "time not above 0"), ("0", "time not above 0"), ("nan", "time not above 0"), ("fast", "time not above 0"),
     ("", "time not above 0"), ("1e999", "time not above 0"), ("1_0", "time not above 0")],
)  # fmt: skip
def test_a_bad_time_refuses_its_row_by_file_row_and_column(read, cell, reason):
    table, (problem,) = read(GOOD.replace("0.7", cell))
    assert (problem.file, problem.row, problem.column, problem.reason) == ("ops/vec.csv", 3, "latency_ms", reason)
    assert len(table) == 2
    assert table.bad == {f"bad data: {reason}": 1}
    assert "ops/vec.csv, row 3, column latency_ms" in str(problem)


def test_a_bad_dimension_refuses_its_row(read):
    table, (problem,) = read(GOOD.replace("T4,2,", "T4,two,"))
    assert (problem.row, problem.column) == (3, "b")
    assert len(table) == 2


def test_a_missing_column_refuses_the_file(read):
    table, (problem,) = read(GOOD.replace("device", "gadget"))
    assert table is None
    assert (problem.reason, problem.column) == ("missing column", "device")


@pytest.mark.parametrize("wrong", ["latency", "latency_us", "latency_s"])
def test_another_unit_is_named(read, wrong):
    table, (problem,) = read(GOOD.replace("latency_ms", wrong))
    assert table is None
    assert problem.reason == "wrong unit"
    assert wrong in problem.detail
    assert "latency_ms" in problem.detail


def test_repeats_within_noise_stay_and_others_are_refused(read):
    table, problems = read(GOOD + "add,T4,1,0.52,again\n")
    assert problems == []
    assert len(table) == 4
    table, problems = read(GOOD + "add,T4,1,0.9,again\n")
    assert [problem.row for problem in problems] == [2, 5]
    assert all(problem.column == "latency_ms" for problem in problems)
    assert len(table) == 2


def test_a_truncated_gzip_names_the_row_it_ends_at(read):
    whole = gzip.compress(("op,device,b,latency_ms\n" + "".join(f"add,T4,{i},1\n" for i in range(5000))).encode())
    table, (problem,) = read(whole[: len(whole) // 2], "vec.csv.gz")
    assert table is None
    assert problem.reason == "truncated gzip"
    assert problem.row > 1


def test_text_that_is_no_gzip_is_still_read_or_refused_by_name(read):
    table, problems = read(b"\x1f\x8bnot really", "vec.csv.gz")
    assert table is None
    assert problems[0].reason == "truncated gzip"


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe\x00", b'op,device,b,latency_ms\n"open,1\n', b"op,op,b,latency_ms\n"]
)
def test_what_is_no_table_is_refused_as_a_whole(read, content):
    table, problems = read(content)
    assert table is None
    assert len(problems) == 1


def test_a_row_with_missing_cells_is_refused(read):
    table, (problem,) = read(GOOD + "add,T4\n")
    assert problem.row == 5
    assert len(table) == 3


def test_a_file_that_is_missing_is_no_bad_data(tmp_path):
    folder = DataFolder(tmp_path)
    assert not folder.has(SCHEMA)
    assert folder.table(SCHEMA) is None
    assert folder.problems == []


def test_the_folder_must_be_one(tmp_path):
    with pytest.raises(InputError, match="not a folder"):
        data_folder(tmp_path / "nowhere")


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(tmp_path_factory, raw):
    root = tmp_path_factory.mktemp("data")
    (root / "ops").mkdir()
    (root / "ops" / "vec.csv").write_bytes(b"op,device,b,latency_ms\n" + raw)
    folder = DataFolder(root)
    table = folder.table(SCHEMA)
    if table is not None:
        assert bool(np.all(table["latency_ms"] > 0))
        assert bool(np.all(np.isfinite(table["latency_ms"])))
