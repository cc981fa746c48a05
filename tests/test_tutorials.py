"""The quick start and the tutorials show what their commands and blocks print today."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tools.documented import todays_page

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = [DOCS / "quick_start.md", *sorted((DOCS / "tutorials").glob("*.md"))]
#: Page -> package it needs.
NEEDED = {"capture_model.md": "torch", "sweep_cluster.md": "pyarrow"}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_the_page_shows_what_is_printed(page, tmp_path, monkeypatch):
    needed = NEEDED.get(page.name)
    if needed is not None and importlib.util.find_spec(needed) is None:
        pytest.skip(f"needs {needed}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = tmp_path / "page"
    folder.mkdir()
    text = page.read_text(encoding="utf-8")
    assert todays_page(text, folder) == text


def test_what_changed_is_written_and_failures_are_told(tmp_path):
    page = '```python\nprint(1 + 1)\n# 3\n```\n\n```yaml title="a.yaml"\nx: 1\n```\n'
    assert todays_page(page, tmp_path) == page.replace("# 3", "# 2")
    assert (tmp_path / "a.yaml").read_text(encoding="utf-8") == "x: 1\n"
    with pytest.raises(RuntimeError, match="no-such-device"):
        todays_page("```\n$ accelsim estimate resnet-50 --device no-such-device\n```\n", tmp_path)
