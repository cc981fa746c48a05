"""A calibration that goes wrong, as a user meets it: what is kept, what is said, and the
exit code.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from accelsim.calibration import run_measurement as entry  # noqa: E402
from accelsim.calibration.environment import describe  # noqa: E402
from accelsim.calibration.measurement.case import Case  # noqa: E402
from accelsim.calibration.measurement.memory import available_bytes, memory_limit  # noqa: E402
from accelsim.calibration.measurement.operators import BUILDERS  # noqa: E402
from accelsim.calibration.measurement.session import Session  # noqa: E402
from accelsim.calibration.measurement.timing import Timing  # noqa: E402
from accelsim.calibration.run_file import RunFile, read_run  # noqa: E402
from accelsim.cli import main as accelsim_main  # noqa: E402
from accelsim.errors import OutputError  # noqa: E402

pytestmark = pytest.mark.torch
REPOSITORY = Path(__file__).parents[2]

#: The program on a suite of 24 cases; its timer pauses after eight of them, FATAL names a case that
#: ends the process.
PROGRAM = """
import os, resource, signal, sys, time
# ignored in what a shell starts in the background
signal.signal(signal.SIGINT, signal.default_int_handler)
if "DISK_BYTES" in os.environ:  # as full as that: further writes fail
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(os.environ["DISK_BYTES"]),) * 2)
blocked = set(os.environ.get("BLOCKED", "").split())
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Finder())
from accelsim.calibration import run_measurement as measure
if "torch" not in blocked:
    from accelsim.calibration.measurement import operators, session, suite
    from accelsim.calibration.measurement.case import Case
    from accelsim.calibration.measurement.timing import Timing
    class Timer:
        calls = 0
        def __init__(self, threads): pass
        def measure(self, calls, budget_s):
            calls[0]()
            Timer.calls += 1
            time.sleep(float(os.environ.get("PAUSE", 0)) if Timer.calls > 8 else 0.0)
            return Timing(1e-3, 1e-3, 0.0, 3, 0.0, True)
    session.CpuTimer = Timer
    names = ("relu", "tanh", "sigmoid")
    suite.operator_suite = lambda *_: [
        Case("elementwise", n, {"elements": 64 * i}) for i in range(1, 9) for n in names
    ]
    fatal = os.environ.get("FATAL")
    def build(source):
        if source.shape["elements"] == 192:
            os.kill(os.getpid(), signal.SIGKILL)
        return lambda: None
    if fatal:
        operators.BUILDERS[fatal] = build
sys.exit(measure.main(sys.argv[1:]))
"""
CASES = 24
#: What a bare GPU box does not have.
NOT_NEEDED = (
    "pydantic pydantic_core yaml scipy pandas simpy rich typer click plotly networkx jinja2"
)


#: Forks the program from a process that has torch already: importing it takes longer than the run.
FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(["torch._dynamo", "accelsim.calibration.run_measurement"])
ARGUMENTS = ["--budget", "200s", "--threads", "1", "--out", "run.jsonl"]


def run_program(folder, arguments, variables):
    """The program as a process of its own: its folder, streams, environment and command line."""
    os.chdir(folder)
    with Path("printed.txt").open("ab") as printed:
        os.dup2(printed.fileno(), 1)
        os.dup2(printed.fileno(), 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
    os.environ.update(variables, TMPDIR=str(folder))
    tempfile.tempdir = None
    sys.argv = ["-c", *ARGUMENTS, *arguments]
    exec(PROGRAM, {})


@pytest.fixture
def start(tmp_path):
    """Starts the program in an empty folder with a lock of its own."""
    started = []

    def run(*arguments, **variables):
        process = FORKED.Process(target=run_program, args=(tmp_path, arguments, variables))
        process.printed = tmp_path / "printed.txt"
        process.printed.unlink(missing_ok=True)
        process.start()
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.join()


def end(process):
    process.join(600)
    return process.exitcode, process.printed.read_text()


def run_without(modules, folder):
    """The program in an interpreter that lacks modules; its exit code and errors."""
    variables = {"PYTHONPATH": str(REPOSITORY), "TMPDIR": str(folder), "BLOCKED": modules}
    line = [sys.executable, "-c", PROGRAM, *ARGUMENTS]
    environment = {**os.environ, **variables}
    ran = subprocess.run(
        line, capture_output=True, text=True, cwd=folder, env=environment, check=False
    )
    return ran.returncode, ran.stderr


def wait_for_rows(path, count):
    limit = time.monotonic() + 600
    while not path.is_file() or path.read_bytes().count(b"\n") <= count:
        assert time.monotonic() < limit
        time.sleep(0.01)


def rounds_of(path):
    rows = {}
    for row in read_run(path).rows:
        rows.setdefault(row.case.key, []).append(row)
    return rows


def test_torch_and_numpy_are_enough(tmp_path):
    code, error = run_without(NOT_NEEDED, tmp_path)
    assert (code, "Traceback" in error) == (0, False), error
    assert {len(rows) for rows in rounds_of(tmp_path / "run.jsonl").values()} == {2}
    assert not (tmp_path / "run.jsonl.case").exists()


def test_without_torch_the_extra_is_named(tmp_path):
    code, error = run_without("torch", tmp_path)
    assert code == 2
    assert "pip install 'accelsim[torch]'" in error
    assert not (tmp_path / "run.jsonl").exists()


@pytest.mark.parametrize("arguments", [(), ("--from", "run.jsonl"), ("check",)])
def test_every_command_names_the_extra(monkeypatch, capsys, tmp_path, arguments):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with pytest.raises(SystemExit) as stop:
        accelsim_main(["calibrate", *arguments])
    assert stop.value.code == 2
    assert "accelsim[torch]" in capsys.readouterr().err


def test_a_killed_run_is_continued_while_a_second_one_is_refused(start, tmp_path):
    path = tmp_path / "run.jsonl"
    first = start(PAUSE="3000")
    wait_for_rows(path, 7)
    code, error = end(start("--out", "other.jsonl"))
    assert code == 2
    assert "Another calibration is running" in error
    assert "calibration-" in error  # the lock that names it
    first.kill()
    end(first)
    kept = read_run(path).rows
    assert len(kept) >= 5
    assert (tmp_path / "run.jsonl.case").is_file()

    code, error = end(start("--resume"))
    assert code == 0, error
    assert read_run(path).rows[: len(kept)] == kept
    rows = rounds_of(path)
    assert len(rows) == CASES
    left_out = [row.skipped for of_case in rows.values() for row in of_case if row.skipped]
    assert left_out == ["the process ended while this case ran"]  # in one of its two rounds


def test_a_kernel_that_ends_the_process_does_not_end_every_resumed_run(start, tmp_path):
    path = tmp_path / "run.jsonl"
    assert end(start("--rounds", "1", FATAL="tanh"))[0] == -signal.SIGKILL
    assert end(start("--rounds", "1", "--resume", FATAL="tanh"))[0] == 0
    rows = read_run(path).rows
    assert len(rows) == CASES
    assert [row.case.shape["elements"] for row in rows if row.skipped] == [192]


def test_an_interrupt_ends_with_130_and_keeps_everything(start, tmp_path):
    path = tmp_path / "run.jsonl"
    process = start(PAUSE="3000")
    wait_for_rows(path, 7)  # then it pauses
    os.kill(process.pid, signal.SIGINT)
    code, error = end(process)
    assert code == 130
    assert "continue with --resume" in error
    assert "Traceback" not in error
    run = read_run(path)
    assert len(run.rows) >= 4
    assert run.dropped_bytes == 0
    assert not (tmp_path / "run.jsonl.case").exists()


def test_a_full_disk_ends_with_2_and_the_run_goes_on_later(start, tmp_path):
    code, error = end(start(DISK_BYTES="6000"))
    assert code == 2
    assert "make room and continue with --resume" in error
    assert "Traceback" not in error
    kept = len(read_run(tmp_path / "run.jsonl").rows)
    assert 0 < kept < 2 * CASES
    assert end(start("--resume"))[0] == 0
    assert len(read_run(tmp_path / "run.jsonl").rows) == 2 * CASES


def test_memory_that_runs_out_halves_the_case(tmp_path):
    with RunFile(tmp_path / "run.jsonl", {}, {"device": "cpu"}) as file, memory_limit(900 * 2**20):
        running = Session("cpu", file, rounds=1)
        running.measure(
            [
                Case("elementwise", "relu", {"elements": 2**30}),
                Case("elementwise", "tanh", {"elements": 64}),
            ],
            600.0,
        )
    shrunk, _, small, _ = read_run(tmp_path / "run.jsonl").rows  # each alone and amid others
    assert shrunk.time_s is not None, shrunk.skipped
    assert shrunk.details["shrunk_from"] == {"elements": 2**30}
    assert shrunk.case.shape["elements"] < 2**28
    assert small.time_s is not None
    torch.empty(2**29, dtype=torch.uint8)  # the limit is gone


def test_available_memory_is_the_least_of_machine_and_container(tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal: 100 kB\nMemAvailable: 80 kB\n")
    assert available_bytes(tmp_path, tmp_path) == 80 * 1024
    (tmp_path / "memory.max").write_text("50000\n")
    (tmp_path / "memory.current").write_text("30000\n")
    (tmp_path / "memory.stat").write_text("inactive_file 5000\n")
    assert available_bytes(tmp_path, tmp_path) == 25_000
    (tmp_path / "memory.max").write_text("max\n")
    assert available_bytes(tmp_path, tmp_path) == 80 * 1024
    assert available_bytes(tmp_path / "no", tmp_path / "no") is None


def test_a_device_that_stops_answering_ends_the_run_and_keeps_it(tmp_path, monkeypatch):
    def build(_source):
        monkeypatch.setattr(torch, "ones", lambda *_args, **_options: _raise())
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def _raise():
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    class Timer:
        def measure(self, calls, _budget_s):
            calls[0]()
            return Timing(1e-3, 1e-3, 0.0, 3, 0.0, True)

    monkeypatch.setitem(BUILDERS, "relu", build)
    with RunFile(tmp_path / "run.jsonl", {}, {"device": "cpu"}) as file:
        running = Session("cpu", file, rounds=1, timer=lambda _threads: Timer())
        cases = [Case("elementwise", name, {"elements": 64}) for name in ("tanh", "relu", "exp")]
        with pytest.raises(OutputError, match="does not answer any more"):
            running.measure(cases, 600.0)
    assert [row.skipped is None for row in read_run(tmp_path / "run.jsonl").rows] == [True, False]


def measured(tmp_path, environment):
    path = tmp_path / "run.jsonl"
    with RunFile(path, environment, {"device": "cpu"}):
        pass
    return path


def test_a_run_of_another_machine_is_not_continued_nor_fitted(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    path = measured(
        tmp_path, describe("cpu") | {"cpu_model": "Abacus 9000", "torch_version": "0.4"}
    )
    before = path.read_bytes()
    assert entry.main(["--out", str(path), "--resume", "--budget", "10s"]) == 2
    error = capsys.readouterr().err
    assert "cpu_model: 'Abacus 9000' there" in error
    assert "torch_version: '0.4' there" in error
    with pytest.raises(SystemExit) as stop:
        accelsim_main(["calibrate", "--from", str(path), "--out", str(tmp_path)])
    assert stop.value.code == 2
    assert "Abacus 9000" in capsys.readouterr().err
    assert path.read_bytes() == before


def test_a_damaged_run_is_not_continued(tmp_path, capsys):
    path = measured(tmp_path, describe("cpu"))
    damaged = path.read_bytes().replace(b"Linux", b"Linox", 1)
    path.write_bytes(damaged)
    assert entry.main(["--out", str(path), "--resume", "--budget", "10s"]) == 2
    assert "line 1: its hash does not match" in capsys.readouterr().err
    assert path.read_bytes() == damaged


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--device", "cuda:\u00b2"), "device"),
        (("--threads", "\u00b2"), "threads"),
        (("--out", "/dev/full"), "/dev/full"),
        (("--out", "/"), "/ is a folder"),
        (("--out", "/proc/nowhere/run.jsonl"), "cannot be written"),
    ],
)
def test_odd_input_ends_with_2_and_one_line(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert entry.main(["--budget", "10s", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_lock_that_cannot_be_made_is_refused(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    assert entry.main(["--out", str(tmp_path / "run.jsonl"), "--budget", "10s"]) == 2
    assert "XDG_CONFIG_HOME" in capsys.readouterr().err


def test_a_case_marker_never_stops_a_run(tmp_path):
    (tmp_path / "run.jsonl.case").mkdir()
    with RunFile(tmp_path / "run.jsonl", {}, {}) as file:
        file.begin("anything")
        assert json.loads((tmp_path / "run.jsonl").read_text())["version"] == 2
    assert file.fatal_case is None
