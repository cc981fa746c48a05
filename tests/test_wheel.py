"""Each job of the README runs from a bare wheel, outside of the checkout, and prints what is shown.

`make wheel-check` installs the wheel, names its programs' folder in WHEEL_BIN, and runs this.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path
from shutil import copytree

import pytest

from tools.documented import differences

pytestmark = pytest.mark.wheel
BIN = os.environ.get("WHEEL_BIN", "")
ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
#: What the README shows of its commands, by command.
SHOWN = dict(re.findall(r"^```\n\$ (accelsim [^\n]+)\n(.*?)^```", README, re.MULTILINE | re.DOTALL))
#: Commands that the table of jobs names, but for one that measures the machine for minutes.
JOBS = set(re.findall(r"^\| .*\[`(\w+)", README, re.MULTILINE)) - {"calibrate"}
#: Ages of prices are those of this day, as in `test_documentation`.
_SETTINGS = {"COLUMNS": "100", "SOURCE_DATE_EPOCH": "1795305600", "PATH": "/usr/bin:/bin"}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A user's folder: the README's example of a benchmark, and the scenario that `init` writes."""
    if not BIN:
        pytest.skip("WHEEL_BIN names no installed wheel: make wheel-check")
    folder = tmp_path_factory.mktemp("home")
    copytree(ROOT / "examples" / "learn", folder / "examples" / "learn")
    ran(folder, "accelsim", "init", "fleet.yaml")
    return folder


def ran(folder, program, *arguments):
    """What a program of the wheel prints where the checkout cannot be imported."""
    done = subprocess.run(
        [Path(BIN).resolve() / program, *arguments],
        cwd=folder,
        env=_SETTINGS | {"HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_is_not_the_checkout(home):
    where = ran(home, "python", "-c", "import accelsim; print(accelsim.__file__)")
    assert "site-packages" in where
    assert ROOT / "accelsim" not in Path(where).parents


def test_every_job_is_shown():
    assert JOBS
    assert {line.split()[1] for line in SHOWN} >= JOBS


@pytest.mark.parametrize("line", SHOWN, ids=lambda line: line.split()[1])
def test_a_job_prints_what_is_shown(home, line):
    shown = [text.rstrip() for text in SHOWN[line].splitlines() if text != "…"]
    printed = ran(home, *shlex.split(line)).splitlines()[: len(shown)]
    assert differences("\n".join(shown), "\n".join(printed)) == []


def test_the_library_runs(home):
    block = re.search(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert "images/s" in ran(home, "python", "-c", block[1])
