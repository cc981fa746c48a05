"""Every page shows what its commands and blocks print today, or says why a block is not run."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tools.documented import todays_page, unmarked_blocks

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = sorted(page for page in DOCS.rglob("*.md") if "\n```" in page.read_text("utf-8"))
#: Page -> package it needs.
NEEDED = {
    "capture_model.md": "torch",
    "library.md": "torch",
    "sweep_cluster.md": "pyarrow",
    "sweeps.md": "pyarrow",
}


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
    assert unmarked_blocks(text) == []


def test_blocks_that_are_not_run_say_why():
    marked = '```text title="Not run in the tests: it needs a GPU"\naccelsim calibrate\n```\n'
    assert unmarked_blocks(marked + "```text\na tree of folders\n```\n") == []
    assert unmarked_blocks("```\naccelsim doctor\n```\n") == ["accelsim doctor"]
    assert unmarked_blocks("```text\naccelsim doctor\n```\n") == ["accelsim doctor"]


def test_what_changed_is_written_and_failures_are_told(tmp_path):
    page = '```python\nprint(1 + 1)\n# 3\n```\n\n```yaml title="a.yaml"\nx: 1\n```\n'
    assert todays_page(page, tmp_path) == page.replace("# 3", "# 2")
    assert (tmp_path / "a.yaml").read_text(encoding="utf-8") == "x: 1\n"
    with pytest.raises(RuntimeError, match="no-such-device"):
        todays_page("```\n$ accelsim estimate resnet-50 --device no-such-device\n```\n", tmp_path)
