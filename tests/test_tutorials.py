"""Every page shows what its commands and blocks print today, or says why a block is not run: words
and units exactly, numbers of its first run to about two digits.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tools.documented import differences, page_differences, todays_page, unmarked_blocks

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
    assert page_differences(text, todays_page(text, folder)) == []
    assert unmarked_blocks(text) == []


def test_the_first_run_of_a_page_is_held_to_its_numbers_others_to_units():
    page = (
        "```\n$ accelsim a\ntime 10.0 ms\n```\ntext\n```\n$ accelsim b\ntime 1.00 ms, h100\n```\n"
    )
    assert page_differences(page, page.replace("1.00 ms", "25.0 min")) == []
    assert len(page_differences(page, page.replace("10.0 ms", "12.0 ms"))) == 1
    assert len(page_differences(page, page.replace("1.00 ms", "1.00 J"))) == 1
    assert len(page_differences(page, page.replace("h100", "h200"))) == 1
    assert len(page_differences(page, page.replace("1.00 ms, ", ""))) == 1


def test_what_a_sweep_took_is_not_compared():
    page = "```\n$ accelsim sweep a\n24 points in b, 24 of them new, in 814 ms\n```\n"
    assert page_differences(page, page.replace("814 ms", "1.2 s")) == []
    assert len(page_differences(page, page.replace("24 of", "12 of"))) == 1


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


CARD = """\
╭─ llama-3.1-8b on 1 x h100 ─╮
│ energy  407 mJ, 7 % of 1,280 W │
│ cost    $0.520, as of 2026-07-20 │
╰────────────────╯
"""


@pytest.mark.parametrize(
    ("old", "new", "count"),
    [
        ("407", "380", 0),  # within 10 %
        ("407", "360", 1),
        ("1,280", "1,300", 0),
        ("│ energy  407 mJ,", "│ energy\n│         407 mJ,", 0),  # where lines break
        ("7 %", "8 %", 0),  # one in the last digit
        ("7 %", "9 %", 1),
        ("0.520", "0.5197", 0),
        ("1 x", "2 x", 1),  # a count
        ("mJ", "J", 1),
        ("h100", "h200", 1),
        ("-8b", "-9b", 1),
        ("2026-07-20", "2026-07-21", 1),
        ("cost    $0.520, as of 2026-07-20", "", 1),
    ],
)
def test_words_and_units_agree_exactly_and_numbers_nearly(old, new, count):
    assert old in CARD
    assert len(differences(CARD, CARD.replace(old, new))) == count


def test_a_script_is_stored_anew_only_where_it_says_something_else(tmp_path, monkeypatch):
    from tools.documented import main

    script, stored = tmp_path / "a.py", tmp_path / "a.txt"
    script.write_text("print('100 W')\n")
    monkeypatch.setattr("sys.argv", ["documented", str(script)])
    for kept, then in (("102 W\n", "102 W\n"), ("120 W\n", "100 W\n")):
        stored.write_text(kept)
        main()
        assert stored.read_text() == then
