"""Cost of a load: whole devices, their price, headroom; the page computes the same again."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelsim.report.calculator import LoadOption, calculator_section, cheapest_range, load_cost
from accelsim.report.page import Page, page_html

OPTIONS = (
    LoadOption("small", rate_per_s=10.0, usd_per_hour=1.0),
    LoadOption("large", rate_per_s=100.0, usd_per_hour=5.0),
    LoadOption("own chip", rate_per_s=1000.0, usd_per_hour=0.5, fixed_usd_per_month=1e5),
)


def test_costs_of_a_load_by_hand():
    found = load_cost(OPTIONS[1], 150.0, 0.5)
    assert found.unit_count == 3
    assert found.usd_per_month == 3 * 5 * 730.5
    assert found.headroom_fraction == 0.0
    made = 150 * 3600 * 730.5
    assert found.usd_per_1000 == pytest.approx(1000 * found.usd_per_month / made)
    assert load_cost(OPTIONS[2], 1.0, 1.0).usd_per_month == 1e5 + 0.5 * 730.5


@given(st.floats(0.01, 1e6), st.floats(0.01, 1e6), st.floats(0.05, 1.0))
def test_more_load_never_costs_less_and_is_carried(first, second, used):
    less, more = sorted((first, second))
    for option in OPTIONS:
        costs = [load_cost(option, load, used) for load in (less, more)]
        assert costs[0].usd_per_month <= costs[1].usd_per_month
        for load, cost in zip((less, more), costs, strict=True):
            assert cost.headroom_fraction >= -1e-9
            assert cost.unit_count - 1 < math.ceil(load / (option.rate_per_s * used))


def test_the_cheapest_changes_where_lines_cross():
    loads = [1.0, 10.0, 60.0, 100.0, 1e5]
    found = cheapest_range(OPTIONS, loads, 1.0)
    assert found == {"small": (1.0, 10.0), "large": (60.0, 100.0), "own chip": (1e5, 1e5)}


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no browser to run the page in")
def test_the_page_computes_the_same_again(tmp_path):
    """The script fills the table when the page opens: with the same numbers."""
    section = calculator_section(OPTIONS, 42.0, "</script>", "", utilisation_fraction=0.7)
    path = tmp_path / "p.html"
    path.write_text(page_html(Page("a", ("b",), (section,), "c")), encoding="utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=9000"]
    shown = subprocess.run(
        ["chromium", *flags, "--dump-dom", f"file://{path}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stdout
    assert shown.count('type="range"') == 4
    pattern = re.compile(r'data-value="([^"]+)"')
    table = r'id="break-even">.*?</table>'
    before, after = (
        [float(x) for x in pattern.findall(re.search(table, text, re.DOTALL)[0])]
        for text in (path.read_text(encoding="utf-8"), shown)
    )
    assert after == pytest.approx(before)
    assert len(after) == 12
    data = re.search(r'id="break-even-data">(.*?)</script>', path.read_text("utf-8"))[1]
    assert json.loads(data)["unit"] == "</script>"
