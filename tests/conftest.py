"""No test reads the folders or variables of whoever runs it, nor does a process that a test starts.
Each worker has a temporary folder of its own: two calibrations, in tests or by a user, do not
lock each other out. Properties are checked on 100 cases, or 10,000 (`make laws`), where a test does
not say otherwise; `make quick` takes 20, and leaves out what needs torch, starts a process or goes
through the whole catalogue (mark `long`).
"""

from __future__ import annotations

import csv
import io
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

#: An empty home, there before any test module is imported: some ask the catalogue for devices.
_HOME = tempfile.TemporaryDirectory(prefix="accelsim-home-")
_XDG = {
    "XDG_CACHE_HOME": ".cache",
    "XDG_CONFIG_HOME": ".config",
    "XDG_DATA_HOME": ".local/share",
}
for _name in [name for name in os.environ if name.startswith("ACCELSIM_")]:
    del os.environ[_name]
os.environ["HOME"] = _HOME.name
os.environ |= {name: str(Path(_HOME.name, place)) for name, place in _XDG.items()}


def _skip_processes(event: str, _: object) -> None:
    started = event in {"subprocess.Popen", "os.fork", "os.posix_spawn"}
    if started and "PYTEST_CURRENT_TEST" in os.environ:
        pytest.skip("starts a process")


class _SkipTorch:
    """Finds no module; what imports torch is left out."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        if name == "torch":
            pytest.skip("imports torch", allow_module_level=True)


if os.environ.get("QUICK"):
    sys.addaudithook(_skip_processes)
    sys.meta_path.insert(0, _SkipTorch)  # type: ignore[arg-type]

for _profile, _count in {"ci": 100, "laws": 10_000, "quick": 20}.items():
    # a machine that does other things is slow to draw examples, too
    settings.register_profile(
        _profile,
        max_examples=_count,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
_PROFILE = "quick" if os.environ.get("QUICK") else "ci"
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", _PROFILE))


@pytest.fixture(scope="session", autouse=True)
def _own_temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("temporary")))
        patch.setattr(tempfile, "tempdir", None)
        # processes that tests start need not compile the package each time
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        yield


@pytest.fixture
def folder(tmp_path):
    """Writes a data folder of small tables."""

    def write(files: dict[str, str]) -> Path:
        for name, content in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        return tmp_path

    return write


@dataclass(frozen=True)
class Ran:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def rows(self) -> list[dict[str, str]]:
        return list(csv.DictReader(io.StringIO(self.out)))


@pytest.fixture
def calls_in() -> Callable[[Callable[[], object]], int]:
    """Counts calls of functions, Python's and built-in ones: how much work something is, however
    busy the machine.
    """

    def count(work: Callable[[], object]) -> int:
        events: Counter[str] = Counter()
        sys.setprofile(lambda _frame, event, _: events.update([event]))
        try:
            work()
        finally:
            sys.setprofile(None)
        return events["call"] + events["c_call"]

    return count


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Runs the command line in process, as the installed command does."""

    def invoke(*arguments: object) -> Ran:
        capsys.readouterr()
        from accelsim.cli import main

        with pytest.raises(SystemExit) as stopped:
            main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        code = stopped.value.code
        return Ran(0 if code is None else int(code), printed.out, printed.err)

    return invoke


@pytest.fixture
def refused(run: Callable[..., Ran]) -> Callable[..., str]:
    """Run a command that must fail on its input: exit code 2, one line, no traceback, nothing on
    standard output.
    """

    def invoke(*arguments: object) -> str:
        ran = run(*arguments)
        assert ran.code == 2
        assert ran.out == ""
        assert ran.err.startswith("error: ")
        assert ran.err.count("\n") == 1
        assert "Traceback" not in ran.err
        return ran.err

    return invoke
