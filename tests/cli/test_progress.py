"""The progress bar: what it shows on a terminal, and that pipes and quiet runs see nothing."""

from __future__ import annotations

import io
import sys
from contextlib import nullcontext
from threading import enumerate as threads_alive

import pytest

from accelsim.cli import progress
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


@pytest.mark.parametrize("ticks", [True, False])
def test_a_terminal_sees_suite_rows_and_what_is_being_done(monkeypatch, ticks):
    terminal, before = open_terminal(monkeypatch), set(threads_alive())
    with progress_bar("validating", unit="rows", ticks=ticks) as report:
        assert len(set(threads_alive()) - before) == ticks
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
def test_short_work_in_pipes_and_quiet_runs_see_nothing(monkeypatch, quiet):
    stream = Terminal() if quiet else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with progress_bar("validating", quiet=quiet) as report:
        report(1, 2, "T4")
    assert stream.getvalue() == ""


def test_work_in_a_pipe_writes_a_line_after_2_s_and_then_each_10(monkeypatch):
    clock = iter([0.0, 1.0, 4.0, 12.0, 15.0])
    monkeypatch.setattr(progress, "monotonic", lambda: next(clock))
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with progress_bar("search", unit="groups") as report:
        for done in (10, 120, 130, 400):
            report(done, 400, "tp=2")
    assert stream.getvalue().splitlines() == [
        "search: 120 of 400 groups, 4 s",
        "search: 400 of 400 groups, 15 s",
    ]


def test_a_closed_standard_error_is_no_terminal(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    with progress_bar("validating") as report:
        report(1, 2, "T4")


LONG = {
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


SWEEP = "fixed: {precision: fp16}\nvary: {model: [lenet-5], device: [t4], batch: [1]}\nname: s\n"
AGAIN = "nothing was written; the same command starts again"
#: Command, what is interrupted in it, and what is said then.
INTERRUPTED = {
    "compare": (("compare", "lenet-5", "-d", "t4"), "estimation.compare.compare", AGAIN),
    "plan": (("plan", "s.yaml"), "capacity.plan.plan", AGAIN),
    "claims": (("claims", "run", "S11"), "claims.run.run_claim", AGAIN),
    "capture": (("capture", "a:b"), "workloads.capture.torch.module.capture_target", AGAIN),
    "sweep": (
        ("sweep", "s.yaml", "--out", "r"),
        "exploration.sweeps.run.compute",
        "r keeps the points that",
    ),
    "page": (
        ("estimate", "lenet-5", "-d", "t4", "--report", "p.html", "--out", "o.json"),
        "files.formats.json_text",
        "p.html was written; the same command starts again",
    ),
}


def _interrupt(*_, **__):
    raise KeyboardInterrupt


@pytest.mark.parametrize(("command", "work", "kept"), INTERRUPTED.values(), ids=INTERRUPTED)
def test_ctrl_c_ends_long_work_with_a_line_that_says_what_is_kept(
    run, monkeypatch, tmp_path, command, work, kept
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text(SWEEP, encoding="utf-8")
    monkeypatch.setattr(f"accelsim.{work}", _interrupt)
    ran = run(*command, "-q", *(["--workers", 1] if command[0] == "sweep" else []))
    assert (ran.code, ran.out, ran.err.count("\n")) == (130, "", 1)
    assert ran.err.startswith(f"interrupted: {kept}")


def test_a_result_that_ctrl_c_cut_short_is_told_as_partial(run, monkeypatch):
    monkeypatch.setattr("accelsim.serving.replicas.fleet._PROGRESS_EVERY", 5)
    load = ("--rate", 9, "--requests", 20)
    terminal = open_terminal(monkeypatch)
    monkeypatch.setattr(
        "accelsim.cli.result_writer.progress_bar", lambda *_, **__: nullcontext(_interrupt)
    )
    assert run("serve", "lenet-5", "-d", "t4", *load).code == 130
    assert "interrupted: the result is partial" in terminal.getvalue()
