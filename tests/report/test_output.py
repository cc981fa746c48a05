"""The writer: all or nothing, and never over a file without being told to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from accelsim.errors import CaptureError, OutputError
from accelsim.files.output import check_output, write_file, write_text


def names_in(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_text_is_written_as_it_is(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "µ\r\nline\n")
    assert path.read_bytes() == "µ\r\nline\n".encode()
    assert names_in(tmp_path) == ["a.txt"]


def test_the_file_has_the_permissions_of_any_new_file(tmp_path):
    (tmp_path / "other").touch()
    write_text(tmp_path / "ours", "")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_an_existing_file_needs_force(tmp_path):
    path = tmp_path / "a"
    path.write_text("old", encoding="utf-8")
    with pytest.raises(OutputError, match="--force"):
        write_text(path, "new")
    assert path.read_text(encoding="utf-8") == "old"
    write_text(path, "new", force=True)
    assert path.read_text(encoding="utf-8") == "new"


@pytest.mark.parametrize("force", [False, True])
def test_what_is_no_regular_file_is_never_replaced(tmp_path, force):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in (fifo, tmp_path):
        with pytest.raises(OutputError, match="regular file"):
            write_text(path, "x", force=force)
    assert not fifo.is_file()


def test_links_keep_pointing_where_they_did(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old", encoding="utf-8")
    link.symlink_to(target)
    with pytest.raises(OutputError, match="exists"):
        write_text(link, "new")
    write_text(link, "new", force=True)
    assert link.is_symlink()
    assert target.read_text(encoding="utf-8") == "new"
    dangling = tmp_path / "dangling"
    dangling.symlink_to(tmp_path / "nowhere")
    with pytest.raises(OutputError, match="exists"):
        write_text(dangling, "x")


@pytest.mark.parametrize("name", ["absent/a", "a\x00b", "x" * 300])
def test_impossible_places_are_refused(tmp_path, name):
    with pytest.raises(OutputError):
        write_text(tmp_path / name, "x")
    assert names_in(tmp_path) == []


def test_a_failing_writer_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a"
    path.write_text("old", encoding="utf-8")

    def half(temporary) -> None:
        temporary.write_text("ha", encoding="utf-8")
        raise OSError(28, "No space left on device")

    with pytest.raises(OutputError, match="No space left"):
        write_file(path, half, force=True)
    assert names_in(tmp_path) == ["a"]
    assert path.read_text(encoding="utf-8") == "old"


def test_other_errors_of_the_writer_pass_through(tmp_path):
    def refuse(_: object) -> None:
        raise CaptureError("not this one")

    with pytest.raises(CaptureError, match="not this one"):
        write_file(tmp_path / "a", refuse)
    assert names_in(tmp_path) == []


def test_checking_creates_nothing(tmp_path):
    check_output(tmp_path / "a")
    assert names_in(tmp_path) == []
