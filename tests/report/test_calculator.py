"""Cost of a load: whole devices, their price, headroom; the page computes the same again."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from base64 import b64encode
from dataclasses import asdict, replace
from hashlib import sha256

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelsim.economics.load_cost import LoadOption, cheapest_range, load_cost
from accelsim.report.calculator import calculator_section
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


#: What a reader's hands do, one slider after the other.
MOVES = {
    "load_ratio": 1.0,
    "utilisation_fraction": 0.5,
    "efficiency_ratio": 0.8,
    "price_ratio": 2.5,
}
#: Notes the table as it opened and after each slider, and a line of the figure.
HANDS = """<pre id="seen"></pre><script>
document.addEventListener("drawn", () => {
const seen = [], table = document.getElementById("break-even");
const cells = () => [...table.querySelectorAll("[data-value]")];
const read = () => seen.push(cells().map((cell) => +cell.dataset.value));
read();
for (const [name, value] of Object.entries(MOVES)) {
  const slider = document.querySelector(`input[name=${name}]`);
  slider.value = value;
  slider.dispatchEvent(new Event("input"));
  read();
}
seen.push(document.getElementById("figure-break-even").data[1].y);
document.getElementById("seen").textContent = JSON.stringify(seen);
});
</script></body>"""


def as_moved(option, moved):
    """An option as the sliders for rate and price leave it."""
    rate = option.rate_per_s * moved["efficiency_ratio"]
    return replace(option, rate_per_s=rate, usd_per_hour=option.usd_per_hour * moved["price_ratio"])


def table_of(options, load, used):
    found = [load_cost(one, load, used) for one in options]
    return [value for one in found for value in asdict(one).values()]


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no browser to run the page in")
def test_sliders_move_costs_break_even_and_headroom_to_what_python_computes(tmp_path):
    """The page opens with the table it was written with, and follows each slider from there."""
    load, used = 42.0, 0.7
    section = calculator_section(OPTIONS, load, "</script>", "", utilisation_fraction=used)
    written = page_html(Page("a", ("b",), (section,), "c"))
    path = tmp_path / "p.html"
    hands = HANDS.replace("MOVES", json.dumps(MOVES))
    script = hands.partition("<script>")[2].partition("</script>")[0]
    digest = b64encode(sha256(script.encode()).digest()).decode()
    admitted = written.replace("script-src ", f"script-src 'sha256-{digest}' ", 1)
    path.write_text(admitted.replace("</body>", hands), encoding="utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=9000"]
    shown = subprocess.run(
        ["chromium", *flags, "--dump-dom", f"file://{path}"],
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    ).stdout
    assert shown.count('type="range"') == 4
    first, *states, line = json.loads(re.search(r'id="seen">(.*?)</pre>', shown)[1])
    ordered = sorted(OPTIONS, key=lambda one: load_cost(one, load, used).usd_per_month)
    assert first == pytest.approx(table_of(ordered, load, used))
    moved = {"load_ratio": 0.0, "utilisation_fraction": used}
    moved |= {"efficiency_ratio": 1.0, "price_ratio": 1.0}
    for name, state in zip(MOVES, states, strict=True):
        moved[name] = MOVES[name]
        asked = (load * 10 ** moved["load_ratio"], moved["utilisation_fraction"])
        options = [as_moved(one, moved) for one in ordered]
        assert state == pytest.approx(table_of(options, *asked))
    loads = asked[0] * np.logspace(-2, 2, 121)
    costs = [load_cost(options[1], one, asked[1]).usd_per_month for one in loads.tolist()]
    assert line == pytest.approx(costs)
    winner = min(options, key=lambda one: load_cost(one, *asked).usd_per_month).name
    assert f"{winner} (cheapest)" in shown
    data = re.search(r'id="break-even-data">(.*?)</script>', written)[1]
    assert json.loads(data)["unit"] == "</script>"
