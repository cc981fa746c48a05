"""Runs the command line in process, as the installed command does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def _own_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test runner's idea of the terminal does not reach the tables."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Commands keep unfinished work in a folder of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def refused(run: Callable[..., Any]) -> Callable[..., str]:
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
