"""The progress bar: what it shows on a terminal, and that pipes and quiet runs see nothing."""

from __future__ import annotations

import io
import sys

import pytest

from accelsim.cli.progress import progress_bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def open_terminal(monkeypatch: pytest.MonkeyPatch, width: int = 120) -> Terminal:
    """Called in the test itself: the runner sets its own standard error after fixtures."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    return stream


def test_a_terminal_sees_suite_rows_and_what_is_being_done(monkeypatch):
    terminal = open_terminal(monkeypatch)
    with progress_bar("validating", unit="rows") as report:
        report(0, None, "reading", "gpu-operators (1/11)")
        report(1_200, 5_000, "T4", "gpu-operators (1/11)")
    shown = terminal.getvalue()
    assert "gpu-operators (1/11)" in shown
    assert "1,200/5,000 rows" in shown
    assert "left" in shown
    assert "T4" in shown


def test_a_narrow_terminal_keeps_title_count_and_time(monkeypatch):
    terminal = open_terminal(monkeypatch, 44)
    with progress_bar("validating", unit="rows") as report:
        report(1_200, 5_000, "T4", "gpu-operators (1/11)")
    shown = terminal.getvalue()
    assert "gpu-operators (1/11) 1,200/5,000 " in shown
    assert "…" not in shown


def test_names_with_brackets_are_shown_as_they_are(monkeypatch):
    terminal = open_terminal(monkeypatch)
    with progress_bar("x") as report:
        report(1, 2, "[bold]resnet[/bold]")
    assert "[bold]resnet[/bold]" in terminal.getvalue()


@pytest.mark.parametrize("quiet", [True, False])
def test_pipes_and_quiet_runs_see_nothing(monkeypatch, quiet):
    stream = Terminal() if quiet else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with progress_bar("validating", quiet=quiet) as report:
        report(1, 2, "T4")
    assert stream.getvalue() == ""


def test_a_closed_standard_error_is_no_terminal(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    with progress_bar("validating") as report:
        report(1, 2, "T4")


LONG = {
    "arch": (("arch", "sweep", "lenet-5"), "15 designs"),
    "report": (("estimate", "lenet-5", "-d", "t4", "--report", "r.html"), "writing the page"),
}


@pytest.mark.parametrize(("command", "words"), LONG.values(), ids=LONG)
def test_long_work_shows_a_bar_on_a_terminal_and_nothing_in_a_pipe(
    run, monkeypatch, tmp_path, command, words
):
    monkeypatch.chdir(tmp_path)
    assert words not in run(*command).err
    terminal = open_terminal(monkeypatch)
    assert run(*command, "--force").code == 0
    assert words in terminal.getvalue()


def test_ctrl_c_ends_long_work_with_its_code_and_no_traceback(run, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("accelsim.planning.architecture.sweep_architectures", interrupted)
    ran = run("arch", "sweep", "lenet-5")
    assert (ran.code, ran.out, ran.err) == (130, "", "")
