"""The page of free numbers is that of today's data."""

from __future__ import annotations

from tools.parameters import PAGE, page


def test_the_page_counts_todays_numbers():
    remedy = "write it anew: python -m tools.parameters"
    assert PAGE.read_text(encoding="utf-8") == page(), remedy
