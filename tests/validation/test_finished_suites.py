"""Finished suites on disk: what is read back is what was written, and only while nothing it depends
on has changed.
"""

from __future__ import annotations

import gzip
import os
import time
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim.validation import FinishedSuites, finished_suites, scoreboard_dict, suite, validate
from accelsim.validation.data_folder import DataFolder, DataProblem
from accelsim.validation.scored_rows import ScoredRows, SuiteRows

GEMM = (
    "op,device,split,b,m,n,k,latency_ms\nbmm,T4,test,8,256,64,512,0.4\n"
    "bmm,T4,test,8,256,64,128,-0.4\n"
)
VEC = "op,device,split,b,h,latency_ms\nadd,T4,test,64,64,0.03\nadd,B9000,test,64,64,0.03\n"


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    (folder / "gpu_kernels").mkdir(parents=True)
    (folder / "gpu_kernels" / "ops_gemm.csv").write_text(GEMM)
    (folder / "gpu_kernels" / "ops_vec.csv").write_text(VEC)
    return folder


@pytest.fixture
def store(tmp_path):
    return lambda resume=True: FinishedSuites(resume=resume, folder=tmp_path / "cache")


TEXT = st.text(st.characters(blacklist_characters="\0", blacklist_categories=("Cs",)), max_size=8)
COUNTS = st.lists(st.integers(0, 4), max_size=4)


@st.composite
def suite_rows(draw):
    def part(count):
        numbers = [
            np.array(draw(st.lists(st.floats(), min_size=count, max_size=count))) for _ in range(5)
        ]
        texts = [
            np.array(draw(st.lists(TEXT, min_size=count, max_size=count)), dtype=str)
            for _ in range(3)
        ]
        masks = [
            np.array(draw(st.lists(st.booleans(), min_size=count, max_size=count)), dtype=bool)
            for _ in range(2)
        ]
        views = tuple((f"view {index}", mask) for index, mask in enumerate(masks))
        return ScoredRows(
            draw(TEXT), "t4", "spec", draw(TEXT), *texts, *numbers, draw(TEXT), 3, views
        )

    problems = (DataProblem("file.csv", 3, "latency_ms", "time not above 0", draw(TEXT)),)
    return SuiteRows(tuple(part(count) for count in draw(COUNTS)), {"bad": 2}, problems)


def same(one: ScoredRows, other: ScoredRows) -> bool:
    for field in fields(ScoredRows):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if field.name == "views":
            assert [name for name, _ in a] == [name for name, _ in b]
            assert all(np.array_equal(x, y) for (_, x), (_, y) in zip(a, b, strict=True))
        elif isinstance(a, np.ndarray):
            assert np.array_equal(a, b, equal_nan=a.dtype.kind == "f"), field.name
        else:
            assert a == b, field.name
    return True


@settings(max_examples=60, deadline=None)
@given(suite_rows())
def test_what_is_read_is_what_was_written(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("kept") / "suite.json.gz"
    finished_suites._write(path, rows)
    found = finished_suites._read(path)
    assert (dict(found.bad), found.problems) == (dict(rows.bad), rows.problems)
    assert len(found.rows) == len(rows.rows)
    assert all(same(a, b) for a, b in zip(found.rows, rows.rows, strict=True))


def test_a_continued_run_finds_the_same_figures_and_the_same_bad_data(data, store):
    first = validate(["gpu-operators"], data, "spec", finished=store())
    again = store()
    second = validate(["gpu-operators"], data, "spec", finished=again)
    assert again.taken == ["gpu-operators"]
    assert scoreboard_dict(second) == scoreboard_dict(first)
    assert {p.reason for p in second.problems} == {"time not above 0", "unknown device"}


def test_without_resume_nothing_is_taken_over(data, store):
    validate(["gpu-operators"], data, "spec", finished=store())
    fresh = store(resume=False)
    validate(["gpu-operators"], data, "spec", finished=fresh)
    assert (fresh.taken, fresh.stored) == ([], ["gpu-operators"])


@pytest.mark.parametrize("change", ["table", "tier", "code", "overlay"])
def test_what_depends_on_something_changed_is_scored_anew(
    data, store, monkeypatch, tmp_path, change
):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    validate(["gpu-operators"], data, "spec", finished=store())
    tier = "spec"
    if change == "table":
        with (data / "gpu_kernels" / "ops_vec.csv").open("a") as table:
            table.write("add,T4,test,64,128,0.04\n")
    elif change == "tier":
        tier = "best"
    elif change == "code":
        monkeypatch.setattr(finished_suites, "_installation", lambda *_: "another version")
    else:
        finished_suites._installation.cache_clear()
        own = tmp_path / "config" / "accelsim" / "calibration" / "fitted"
        own.mkdir(parents=True)
        (own / "p4.yaml").write_text("changed")
    again = store()
    validate(["gpu-operators"], data, tier, finished=again)
    assert again.taken == []


@pytest.mark.parametrize("damage", ["cut", "empty", "noise", "missing column"])
def test_a_damaged_file_is_ignored_with_a_note(data, store, damage):
    first = validate(["gpu-operators"], data, "spec", finished=store())
    (path,) = store().folder.iterdir()
    raw = path.read_bytes()
    if damage == "missing column":
        path.write_bytes(gzip.compress(b'{"rows": [{}], "bad": {}, "problems": []}'))
    else:
        path.write_bytes(
            {"cut": raw[: len(raw) // 2], "empty": b"", "noise": bytes(reversed(raw))}[damage]
        )
    again = store()
    second = validate(["gpu-operators"], data, "spec", finished=again)
    assert again.taken == []
    assert "damaged" in again.notes[0]
    assert str(path) in again.notes[0]
    assert scoreboard_dict(second) == scoreboard_dict(first)


def test_a_folder_that_cannot_be_made_stops_nothing(data, tmp_path):
    (tmp_path / "file").write_text("")
    nowhere = FinishedSuites(folder=tmp_path / "file" / "cache")
    board = validate(["gpu-operators"], data, "spec", finished=nowhere)
    assert board.suites
    assert "cannot be written" in nowhere.problem
    nowhere.clear()


def test_a_write_that_fails_leaves_nothing(data, store, monkeypatch):
    def full(path, _rows):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(finished_suites, "_write", full)
    own = store()
    validate(["gpu-operators"], data, "spec", finished=own)
    assert "No space left" in own.problem
    assert list(own.folder.iterdir()) == []


def test_clearing_removes_this_run_and_what_nobody_continued(data, store):
    own = store()
    validate(["gpu-operators"], data, "spec", finished=own)
    stale, recent = own.folder / "dpu-0.npz", own.folder / "dpu-1.npz"
    stale.touch()
    recent.touch()
    week_ago = time.time() - 8 * 86_400
    os.utime(stale, (week_ago, week_ago))
    own.clear()
    assert list(own.folder.iterdir()) == [recent]


def test_the_user_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert finished_suites.cache_folder() == tmp_path / "accelsim" / "validate"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert finished_suites.cache_folder() == tmp_path / ".cache" / "accelsim" / "validate"


def test_a_file_name_tells_its_suite(data, store):
    name = store()._path(suite("gpu-operators"), DataFolder(data), "spec").name
    assert name.startswith("gpu-operators-")
    assert name.endswith(".json.gz")
