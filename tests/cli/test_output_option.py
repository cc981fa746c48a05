"""``--out``, ``--force`` and ``--quiet``: files appear whole or not at all, and notes are kept from
results.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

RUN = ("estimate", "resnet-50", "--device", "t4")


def names_in(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


@pytest.mark.parametrize("output_format", ["table", "json", "csv"])
def test_the_file_holds_what_would_have_been_printed(run, tmp_path, output_format):
    path = tmp_path / "result"
    printed = run(*RUN, "--format", output_format).out
    ran = run(*RUN, "--format", output_format, "--out", path)
    assert (ran.code, ran.out) == (0, "")
    assert f"wrote {path}" in ran.err
    assert path.read_text(encoding="utf-8") == printed
    assert "\x1b" not in printed


def test_quiet_prints_nothing_beside_the_result(run, tmp_path):
    assert run(*RUN, "--out", tmp_path / "a", "--quiet").err == ""
    assert run("compare", "resnet-50", "--devices", "t4,v100-sxm2-16gb", "--quiet").err == ""
    assert run("compare", "resnet-50", "--devices", "t4,v100-sxm2-16gb").err != ""


def test_an_existing_file_is_kept(refused, tmp_path):
    path = tmp_path / "kept.json"
    path.write_text("mine", encoding="utf-8")
    assert "--force" in refused(*RUN, "--out", path)
    assert path.read_text(encoding="utf-8") == "mine"
    assert names_in(tmp_path) == ["kept.json"]


def test_force_replaces_it(run, tmp_path):
    path = tmp_path / "old.json"
    path.write_text("old", encoding="utf-8")
    assert run(*RUN, "--format", "json", "--out", path, "--force").code == 0
    assert json.loads(path.read_text(encoding="utf-8"))["device"] == "t4"
    assert names_in(tmp_path) == ["old.json"]


def test_bad_places_are_refused_before_any_work(refused, tmp_path, monkeypatch):
    import accelsim.estimation.estimate as module

    monkeypatch.setattr(module, "estimate", lambda *_, **__: pytest.fail("the estimate ran"))
    assert "no folder" in refused(*RUN, "--out", tmp_path / "missing" / "a.json")
    assert "not a regular file" in refused(*RUN, "--out", tmp_path)
    assert "not a regular file" in refused(*RUN, "--out", os.devnull, "--force")
    file = tmp_path / "file"
    file.touch()
    assert "no folder" in refused(*RUN, "--out", file / "a.json")


def test_a_folder_that_cannot_be_written_is_refused(refused, tmp_path, monkeypatch):
    real = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode, **k: False if mode & os.W_OK else real(path, mode, **k)
    )
    assert "not writable" in refused(*RUN, "--out", tmp_path / "a.json")
    assert names_in(tmp_path) == []


def test_nothing_is_left_when_writing_fails(refused, tmp_path, monkeypatch):
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    assert "No space left" in refused(*RUN, "--out", tmp_path / "a.json")
    assert names_in(tmp_path) == []


def test_a_name_that_is_too_long_is_refused(refused, tmp_path):
    assert "cannot be written" in refused(*RUN, "--out", tmp_path / ("x" * 300))
    assert names_in(tmp_path) == []


@pytest.mark.parametrize(
    ("redirection", "words"),
    [(">&-", "standard output is closed"), (">/dev/full", "No space left")],
)
def test_a_standard_output_that_takes_nothing_is_refused(redirection, words):
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full on this system")
    program = "from accelsim.cli import main; main()"
    command = f'"{sys.executable}" -c "{program}" {" ".join(RUN)} {redirection}'
    ran = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert words in ran.stderr
    assert ran.stderr.count("\n") == 1


def test_the_name_of_the_file_chooses_the_format(run, tmp_path):
    assert run(*RUN, "--out", tmp_path / "r.json").code == 0
    assert json.loads((tmp_path / "r.json").read_text())["device"] == "t4"
    assert run(*RUN, "--out", tmp_path / "r.csv").code == 0
    assert (tmp_path / "r.csv").read_text().count("\n") == 2
    assert run(*RUN, "--format", "csv", "--out", tmp_path / "asked.json").code == 0
    assert (tmp_path / "asked.json").read_text() == (tmp_path / "r.csv").read_text()


@pytest.mark.parametrize("name", ["r.pdf", "r.XLSX", "r.yaml"])
def test_names_of_formats_that_no_result_has_are_refused(refused, tmp_path, name):
    said = refused("estimate", "lenet-5", "-d", "t4", "--out", tmp_path / name)
    assert ".json, .csv, .md, .html, .png or .txt" in said
    assert list(tmp_path.iterdir()) == []
