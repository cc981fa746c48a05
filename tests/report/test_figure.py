"""Fragments hold their data and bring the script only when asked to."""

import json
import re

import numpy as np
import pytest

from accelsim.errors import InvalidValueError
from accelsim.report.figure import html_fragment, timeline_figure
from accelsim.simulation.engine import Engine, Task


def timeline_of(count):
    engine = Engine()
    engine.add_server("stream")
    engine.add_server("link")
    names = tuple(f"layer{row}" for row in range(count))
    engine.submit(Task("rows", "stream", np.ones(count), category="kernel", row_names=names))
    engine.submit(Task("copy", "link", 2.5, category="copy"))
    engine.run()
    return engine.timeline()


def test_a_bar_a_row_and_a_colour_a_category():
    figure = timeline_figure(timeline_of(3), title="a run")
    bars = {bar["name"]: bar for bar in figure["data"]}
    assert bars["kernel"]["text"] == ["layer0", "layer1", "layer2"]
    assert bars["kernel"]["base"] == [0.0, 1.0, 2.0]
    assert bars["copy"]["x"] == [2.5]
    assert figure["layout"]["yaxis"]["categoryarray"] == ("link", "stream")
    assert figure["layout"]["title"]["text"] == "a run"


def test_fragments_hold_the_data_and_only_the_first_the_script():
    figure = timeline_figure(timeline_of(2))
    with_script, without = html_fragment(figure), html_fragment(figure, with_script=False)
    assert len(with_script) > 1_000_000 > len(without)
    assert "<html" not in without
    assert "http" not in re.sub(r"https://plot\.ly", "", without)
    assert json.dumps(["layer0", "layer1"], separators=(",", ":")) in without.replace(", ", ",")


def test_too_many_rows_are_refused_with_what_to_do():
    with pytest.raises(InvalidValueError, match="between"):
        timeline_figure(timeline_of(20_001))
