"""Runs the command line in process, as the installed command does."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _own_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test runner's idea of the terminal does not reach the tables."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Commands keep unfinished work in a folder of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
