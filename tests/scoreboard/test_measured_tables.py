"""Bad data: every defect is named with file, row and column, and what can be used is used."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim.errors import InputError
from accelsim.scoreboard import csv_file
from accelsim.scoreboard.data_folder import (
    DataFolder,
    data_folder,
    schema,
    schema_of,
)

SCHEMA = schema_of(
    "ops/vec.csv.gz",
    {
        "text": ["op", "device"],
        "number": ["b"],
        "time": ["latency_ms"],
        "key": ["op", "device", "b"],
        "repeat_tolerance_fraction": 0.1,
    },
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
    [
        ("-1", "time not above 0"),
        ("0", "time not above 0"),
        ("nan", "time not above 0"),
        ("fast", "time not above 0"),
        ("", "time not above 0"),
        ("1e999", "time not above 0"),
        ("1_0", "time not above 0"),
    ],
)
def test_a_bad_time_refuses_its_row_by_file_row_and_column(read, cell, reason):
    table, (problem,) = read(GOOD.replace("0.7", cell))
    assert (problem.file, problem.row, problem.column, problem.reason) == (
        "ops/vec.csv",
        3,
        "latency_ms",
        reason,
    )
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
    whole = gzip.compress(
        ("op,device,b,latency_ms\n" + "".join(f"add,T4,{i},1\n" for i in range(5000))).encode()
    )
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


STRICT = schema_of(
    "ops/gemm.csv.gz",
    {
        "name": ["op", "device"],
        "count": ["m"],
        "time": ["t_ms"],
        "allowed": {"op": ["bmm", "linear"]},
    },
)
STRICT_GOOD = "op,device,m,t_ms\nbmm,T4,8,0.5\nlinear,T4,16,0.7\n"


@pytest.fixture
def strict(tmp_path):
    (tmp_path / "ops").mkdir()

    def read(content, schema=STRICT):
        (tmp_path / schema.file.removesuffix(".gz")).write_text(content)
        folder = DataFolder(tmp_path)
        return folder.table(schema), folder.problems

    return read


@pytest.mark.parametrize("cell", ["0", "-1", "1.5", "nan", "inf", "1e16", "", "eight", "1_6"])
def test_a_count_is_a_whole_number_from_one(strict, cell):
    table, (problem,) = strict(STRICT_GOOD.replace("linear,T4,16", f"linear,T4,{cell}"))
    assert (problem.row, problem.column, problem.reason) == (3, "m", "not a count")
    assert table["m"].tolist() == [8.0]


@pytest.mark.parametrize(
    ("column", "cell", "said"),
    [
        ("op", "frobnicate", "'frobnicate' is not one of bmm, linear"),
        ("op", "", "is empty"),
        ("device", "  ", "is empty"),
        ("device", "T4\x1b[31m", "control characters"),
        ("device", "x" * 201, "201 characters"),
    ],
)
def test_a_name_is_known_and_plain(strict, column, cell, said):
    row = {"op": "linear", "device": "T4"} | {column: cell}
    table, (problem,) = strict(STRICT_GOOD.replace("linear,T4", f"{row['op']},{row['device']}"))
    assert (problem.row, problem.column) == (3, column)
    assert said in problem.detail
    assert "\x1b" not in str(problem)
    assert len(table) == 1


@pytest.mark.parametrize("cell", ["1e300", "1e-320", "2e15"])
def test_times_beyond_reason_are_refused(strict, cell):
    _, (problem,) = strict(STRICT_GOOD.replace("0.7", cell))
    assert (problem.row, problem.column, problem.reason) == (3, "t_ms", "time not above 0")


def test_lines_are_counted_as_an_editor_counts_them(strict):
    text = 'op,device,m,t_ms\n\nbmm,T4,8,0.5\n"bmm","T\n4",8,0.5\nlinear,T4,16,-1\n'
    _, problems = strict(text)
    assert [(problem.row, problem.column) for problem in problems] == [(5, "device"), (6, "t_ms")]


WHOLE = schema_of(
    "ops/lists.csv.gz",
    {"name": ["desc", "op"], "count": ["repeat"], "time": ["t_ms"], "whole": "desc"},
)


def test_rows_that_belong_together_go_together(strict):
    text = "desc,op,repeat,t_ms\na,x,1,1\na,y,0,1\nb,x,1,1\n"
    table, (problem,) = strict(text, WHOLE)
    assert table["desc"].tolist() == ["b"]
    assert problem.row == 3
    table, (problem,) = strict(text + "c,x\n", WHOLE)  # a short row could belong to any
    assert table is None
    assert (problem.row, problem.reason) == (5, "wrong number of cells")


@pytest.mark.parametrize("mark", [";", "\t", "|"])
def test_another_separator_is_named(read, mark):
    table, (problem,) = read(GOOD.replace(",", mark))
    assert table is None
    assert problem.reason == "wrong separator"
    assert repr(mark) in problem.detail


@pytest.mark.parametrize(("pack", "name"), [(lzma.compress, "xz"), (bz2.compress, "bzip2")])
@pytest.mark.parametrize("suffix", ["", ".gz", "own"])
def test_other_archives_are_named_under_any_name(read, pack, name, suffix):
    ending = {"xz": ".xz", "bzip2": ".bz2"}[name] if suffix == "own" else suffix
    table, (problem,) = read(pack(GOOD.encode()), f"vec.csv{ending}")
    assert table is None
    assert problem.reason == "wrong format"
    assert name in problem.detail
    assert problem.file == f"ops/vec.csv{ending}"


def test_what_is_no_file_is_named_and_never_waited_for(tmp_path):
    (tmp_path / "ops").mkdir()
    place = tmp_path / "ops" / "vec.csv"
    for make in (
        place.mkdir,
        lambda: os.mkfifo(place),
        lambda: place.symlink_to(tmp_path / "nowhere"),
    ):
        make()
        folder = DataFolder(tmp_path)
        assert folder.has(SCHEMA)
        assert folder.table(SCHEMA) is None
        assert folder.problems[0].file == "ops/vec.csv"
        place.rmdir() if place.is_dir() else place.unlink()


def test_a_usable_file_is_preferred_to_one_that_is_none(tmp_path):
    (tmp_path / "ops" / "vec.csv.gz").mkdir(parents=True)
    (tmp_path / "ops" / "vec.csv").write_text(GOOD)
    assert len(DataFolder(tmp_path).table(SCHEMA)) == 3


def test_near_columns_are_offered(read):
    _, (problem,) = read(GOOD.replace("device", "devices"))
    assert "'devices' is there" in problem.detail


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


def test_a_table_that_expands_beyond_measure_is_refused_while_it_is_read(read, monkeypatch):
    monkeypatch.setattr(csv_file, "MOST_CELLS", 1_000)
    taken = []
    lines = csv_file._text_lines
    monkeypatch.setattr(
        csv_file, "_text_lines", lambda stream: (taken.append(0) or line for line in lines(stream))
    )
    rows = "add,T4,1,0.5,x\n" * 100_000  # a gzip of a few hundred bytes
    table, problems = read(gzip.compress((GOOD + rows).encode()), "vec.csv.gz")
    assert table is None
    assert "more than 1,000 cells" in problems[0].detail
    assert len(taken) <= 201


def test_rows_beyond_measure_are_refused(read, monkeypatch):
    monkeypatch.setattr(csv_file, "MOST_ROWS", 100)
    table, problems = read(GOOD + "add,T4,1,0.5,x\n" * 200)
    assert table is None
    assert "more than 100 rows" in problems[0].detail


def test_long_cells_of_many_rows_are_refused(read, monkeypatch):
    monkeypatch.setattr("accelsim.scoreboard.data_folder._MOST_CHARACTERS", 1_000)
    _, problems = read(GOOD + "".join(f"{'x' * 150},T4,{i},0.5,x\n" for i in range(1, 100)))
    assert any("150 characters, more than 100" in problem.detail for problem in problems)


def test_one_endless_line_is_refused(read, monkeypatch):
    monkeypatch.setattr(csv_file, "MAX_LINE_BYTES", 10_000)
    table, problems = read(GOOD + "x" * 20_000)
    assert table is None
    assert problems[0].row == 5
    assert "10,000 bytes" in problems[0].detail


@pytest.mark.parametrize(
    ("file", "column", "cell"),
    [
        ("systolic/scalesim_v2.csv", "cols", "9999999"),
        ("asic/eyeriss.csv", "zero_ifmap_pct", "1e9"),
        ("fpga/vitis_ai_dpu.csv.gz", "in_h", "1e15"),
        ("gpu_kernels/e2e_labels.csv", "batch", "1000000000"),
        ("gpu_kernels/ops_conv.csv.gz", "ksize", "9999999"),
    ],
)
def test_one_row_beyond_reason_is_refused_alone(tmp_path, file, column, cell):
    described = schema(file)
    good = {
        c.name: "1" if c.kind in {"number", "count", "time"} else "x" for c in described.columns
    }
    for c in described.columns:
        good |= {c.name: min(c.allowed)} if c.allowed else {}
    rows = [good, good | {column: cell}]
    path = tmp_path / file.removesuffix(".gz")
    path.parent.mkdir()
    lines = [",".join(good), *(",".join(row.values()) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    folder = DataFolder(tmp_path)
    table = folder.table(described)
    assert table is not None
    assert table.line.tolist() == [2]
    assert [problem.column for problem in folder.problems] == [column]
