"""Fragments hold their data and bring the script only when asked to."""

import re

from accelsim.report.figure import html_fragment


def test_fragments_hold_the_data_and_only_the_first_the_script():
    figure = {"data": [{"type": "bar", "x": [1, 2], "text": ["layer0", "layer1"]}]}
    with_script, without = html_fragment(figure), html_fragment(figure, with_script=False)
    assert len(with_script) > 1_000_000 > len(without)
    assert "<html" not in without
    assert "http" not in re.sub(r"https://plot\.ly", "", without)
    assert '"layer0","layer1"' in without.replace(", ", ",")


def test_fragments_that_share_a_script_and_a_name_are_the_same_each_time():
    figure = {"data": [{"type": "bar", "x": [1, 2]}]}
    first, second = (html_fragment(figure, with_script="directory", name="it") for _ in range(2))
    assert first == second
    assert 'src="plotly.min.js"' in first
