"""Run files: nothing is lost, nothing damaged is believed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim.calibration import run_file as module
from accelsim.calibration.measurement.case import Case
from accelsim.calibration.run_file import Measurement, RunFile, calibration_lock, read_run
from accelsim.errors import InvalidValueError, OutputError, ProfileError

HERE = {"device": "cpu", "cpu_model": "test", "torch_version": "2"}
SETTINGS = {"device": "cpu"}


def row(number=1, time_s=1e-3, round_number=0):
    case = Case("gemm", "addmm", {"m": number, "n": 8, "k": 8})
    return Measurement(case, time_s, 0.01, round_number, {"undisturbed": True})


def write(path, count=3, **options):
    with RunFile(path, HERE, SETTINGS, **options) as file:
        for number in range(1, count + 1):
            file.append(row(number))
    return path


def test_reads_back_what_was_written(tmp_path):
    run = read_run(write(tmp_path / "run.jsonl"))
    assert [m.case.shape["m"] for m in run.rows] == [1, 2, 3]
    assert run.environment == HERE
    assert run.rows[0] == row(1)


@settings(max_examples=40, deadline=None)
@given(cut=st.integers(1, 2000))
def test_a_kill_at_any_byte_loses_the_last_line_only(tmp_path_factory, cut):
    path = write(tmp_path_factory.mktemp("run") / "run.jsonl", 6)
    data = path.read_bytes()
    kept = data[: max(len(data) - cut, data.index(b"\n") + 1)]
    path.write_bytes(kept)
    whole = kept.count(b"\n") - 1
    assert len(read_run(path).rows) == whole
    with RunFile(path, HERE, SETTINGS, resume=True) as file:
        file.append(row(99))
    assert [m.case.shape["m"] for m in read_run(path).rows] == [*range(1, whole + 1), 99]


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_changed_byte_is_noticed(tmp_path_factory, data):
    path = write(tmp_path_factory.mktemp("run") / "run.jsonl")
    text = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(text) - 2))
    other = data.draw(st.integers(32, 126))
    if text[place] in (other, ord("\n")):
        return
    text[place] = other
    path.write_bytes(bytes(text))
    with pytest.raises(ProfileError, match="line"):
        read_run(path)


def test_removed_line_is_noticed(tmp_path):
    path = write(tmp_path / "run.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:1] + lines[2:]))
    with pytest.raises(ProfileError, match="line 2: its hash"):
        read_run(path)


def test_a_full_disk_keeps_everything_before(tmp_path, monkeypatch):
    path = tmp_path / "run.jsonl"
    with RunFile(path, HERE, SETTINGS) as file:
        file.append(row(1))
        real = os.write
        monkeypatch.setattr(module.os, "write", lambda fd, line: real(fd, line[:20]))
        with pytest.raises(OutputError, match="make room"):
            file.append(row(2))
        monkeypatch.undo()
        file.append(row(3))
    assert [m.case.shape["m"] for m in read_run(path).rows] == [1, 3]


def test_another_machine_is_refused_with_the_difference(tmp_path):
    path = write(tmp_path / "run.jsonl")
    with pytest.raises(InvalidValueError, match=r"cpu_model: 'test' there, 'other' now"):
        RunFile(path, {**HERE, "cpu_model": "other"}, SETTINGS, resume=True)
    with pytest.raises(InvalidValueError, match="torch_version"):
        RunFile(path, {**HERE, "torch_version": "3"}, SETTINGS, resume=True)
    assert len(read_run(path).rows) == 3


def test_an_existing_file_is_not_overwritten(tmp_path):
    path = write(tmp_path / "run.jsonl")
    with pytest.raises(OutputError, match="--resume"):
        RunFile(path, HERE, SETTINGS)


def test_another_version_is_refused(tmp_path):
    path = tmp_path / "run.jsonl"
    line, _ = module._line(
        {"schema": module.SCHEMA, "version": 99, "environment": {}, "settings": {}}, ""
    )
    path.write_bytes(line)
    with pytest.raises(ProfileError, match="version: 99"):
        read_run(path)


@pytest.mark.parametrize(
    "content",
    [b"", b"hello", b"{}\n", b"[1]\n", b'{"hash": 3}\n', b"\xff\xfe\n", b"[" * 5000 + b"\n"],
)
def test_other_files_are_refused(tmp_path, content):
    path = tmp_path / "run.jsonl"
    path.write_bytes(content)
    with pytest.raises(ProfileError):
        read_run(path)


def test_the_best_of_the_rounds_counts(tmp_path):
    path = tmp_path / "run.jsonl"
    with RunFile(path, HERE, SETTINGS) as file:
        file.append(row(1, 2e-3, 0))
        file.append(row(1, 1e-3, 1))
        file.append(Measurement(row(2).case, None, 0.0, 0, {}, "RuntimeError: no kernel"))
    run = read_run(path)
    assert [m.time_s for m in run.best().values()] == [1e-3]


def test_not_finite_times_are_refused(tmp_path):
    with (
        RunFile(tmp_path / "run.jsonl", HERE, SETTINGS) as file,
        pytest.raises(ValueError, match="JSON"),
    ):
        file.append({"note": float("nan")})


def test_two_calibrations_at_once_are_refused(tmp_path, monkeypatch):
    """By a lock in the user's own folder: in one for all, anybody could put a link in its place."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "own"))
    with calibration_lock() as place:
        assert place.parent == tmp_path / "own" / "accelsim"
        with pytest.raises(OutputError, match="Another calibration is running"), calibration_lock():
            pass
    with calibration_lock():
        pass


def test_a_lock_that_cannot_be_made_says_what_to_do(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    with pytest.raises(OutputError, match="XDG_CONFIG_HOME"), calibration_lock():
        pass


def test_rows_are_plain_json(tmp_path):
    lines = write(tmp_path / "run.jsonl", 1).read_text().splitlines()
    document = json.loads(lines[1])
    assert document["case"]["shape"] == {"m": 1, "n": 8, "k": 8}
    assert Path(tmp_path / "run.jsonl").stat().st_mode & 0o777 == 0o644


def test_what_has_no_lines_is_refused_after_the_longest_line(tmp_path):
    with pytest.raises(ProfileError, match="a device, not a file"):
        read_run("/dev/zero")
    path = tmp_path / "long.jsonl"
    path.write_bytes(b" " * 1_100_000)
    with pytest.raises(ProfileError, match="not a run file"):
        read_run(path)


def test_a_file_without_end_is_refused_at_the_limit(tmp_path, monkeypatch):
    path = write(tmp_path / "run.jsonl")
    monkeypatch.setattr(module, "_MOST_BYTES", path.stat().st_size - 1)
    with pytest.raises(ProfileError, match="larger than"):
        read_run(path)
