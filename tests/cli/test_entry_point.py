"""The installed command as a process: exit codes, streams and start-up."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys

import pytest

import accelsim
from accelsim.cli import entry
from accelsim.cli.command_list import COMMANDS, help_page


def command(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "accelsim.cli", *arguments]
    return subprocess.run(line, capture_output=True, text=True, timeout=600, check=False, **options)


def test_the_package_runs_as_a_module(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["accelsim", "--version"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("accelsim", run_name="__main__")
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"accelsim {accelsim.__version__}\n"


def test_version_and_help(run):
    assert run("--version").out == f"accelsim {accelsim.__version__}\n"
    text = run("--help").out
    for name in ("estimate", "compare", "devices", "workloads", "capture", "offers", "demo"):
        assert name in text
    for group in (
        ("estimate",),
        ("compare",),
        ("devices", "list"),
        ("workloads", "show"),
        ("capture",),
        ("demo",),
    ):
        ran = run(*group, "--help")
        assert ran.code == 0
        assert "--format" in ran.out
        assert "--quiet" in ran.out


def test_a_process_answers_in_pure_json_and_fails_with_one_line():
    good = command("estimate", "resnet-50", "-d", "t4", "--format", "json")
    assert good.returncode == 0
    assert good.stdout.startswith("{")
    assert good.stdout.endswith("}\n")
    assert good.stderr == ""
    bad = command("estimate", "resnet-5O", "-d", "t4")
    assert (bad.returncode, bad.stdout, bad.stderr.count("\n")) == (2, "", 1)


def test_a_reader_that_goes_away_causes_no_noise():
    line = f"set -o pipefail; {sys.executable} -m accelsim.cli offers list --format json | head -1"
    ran = subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, timeout=600, check=False
    )
    assert (ran.returncode, ran.stdout) == (0, "[\n")
    assert "Traceback" not in ran.stderr
    assert "BrokenPipe" not in ran.stderr


def test_light_commands_import_no_heavy_modules():
    code = (
        "import sys\nfrom accelsim.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "print([m for m in ('numpy', 'pydantic', 'simpy', 'pandas', 'torch') if m in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True
    )
    assert ran.stdout.endswith("[]\n")


def test_an_estimate_imports_neither_pandas_nor_torch_nor_scipy():
    code = (
        "import sys\nfrom accelsim.cli import main\n"
        "try: main(['estimate', 'resnet-50', '-d', 't4'])\nexcept SystemExit: pass\n"
        "print([m for m in ('pandas', 'torch', 'scipy', 'plotly') if m in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True
    )
    assert ran.stdout.endswith("[]\n")


def test_a_fault_of_our_own_says_how_to_see_it(run, monkeypatch):
    import accelsim.estimation.estimate as module

    monkeypatch.setattr(module, "estimate", lambda *_, **__: 1 / 0)
    ran = run("estimate", "resnet-50", "-d", "t4")
    assert ran.code == 1
    assert ran.err.count("\n") == 1
    assert entry.TRACEBACK_VARIABLE in ran.err


def test_the_traceback_is_there_on_request(monkeypatch):
    env = os.environ | {entry.TRACEBACK_VARIABLE: "1"}
    ran = command("estimate", "resnet-5O", "-d", "t4", env=env)
    assert ran.returncode == 1
    assert "UnknownNameError" in ran.stderr
    assert "Traceback" in ran.stderr


def test_an_interrupt_exits_with_130(run, monkeypatch):
    import accelsim.estimation.estimate as module

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "estimate", interrupt)
    ran = run("estimate", "resnet-50", "-d", "t4")
    assert ran.code == 130
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("variable", ["NO_COLOR", "FORCE_COLOR"])
def test_json_has_no_colour_codes(variable):
    env = os.environ | {variable: "1"}
    assert (
        "\x1b"
        not in command("estimate", "resnet-50", "-d", "t4", "--format", "json", env=env).stdout
    )


def test_a_command_is_found_alone_and_among_all():
    from typer.main import get_command

    from accelsim.cli.app import command_tree

    assert set(get_command(command_tree()).commands) == set(COMMANDS)
    for name in COMMANDS:
        assert list(get_command(command_tree(name)).commands) == [name]


def test_the_list_of_commands_says_what_their_help_texts_say():
    from typer.main import get_command

    from accelsim.cli.app import command_list, command_tree

    listed, whole = (get_command(app()).commands for app in (command_list, command_tree))
    assert set(listed) == set(whole)
    for name, command in whole.items():
        assert listed[name].get_short_help_str(200) == command.get_short_help_str(200)


def test_the_list_of_commands_imports_none_of_them():
    code = (
        "import sys\nfrom accelsim.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print(sorted(m for m in sys.modules if m.startswith('accelsim.cli.')), "
        "bool({'pydantic', 'typer'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.endswith("['accelsim.cli.command_list', 'accelsim.cli.entry'] False\n")


def test_the_page_that_needs_no_parser_is_the_parsers_own(monkeypatch, capsys):
    from accelsim.cli.app import command_list

    for columns in range(40, 121, 5):
        monkeypatch.setenv("COLUMNS", str(columns))
        with pytest.raises(SystemExit):
            command_list()(args=["--help"], prog_name="accelsim")
        assert capsys.readouterr().out == f"{help_page()}\n"


@pytest.mark.parametrize(
    ("encoding", "arguments"),
    [
        ("ascii", ("devices", "list")),
        ("latin-1", ("estimate", "resnet-50", "-d", "t4")),
        ("cp1252", ("estimate", "resnet-50", "-d", "t4")),
    ],
)
def test_characters_a_terminal_lacks_are_replaced(encoding, arguments):
    ran = command(*arguments, encoding=encoding, env=os.environ | {"PYTHONIOENCODING": encoding})
    assert (ran.returncode, bool(ran.stdout)) == (0, True)


def test_a_schema_is_no_table(refused):
    for form in ("csv", "md"):
        assert "json" in refused("schema", "device", "--format", form)
