"""Predicted against measured: every answered row, or a stated sample with the worst in it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tools.scoreboard  # noqa: F401  (its suites, too)
from accelsim.report.page import page_html
from accelsim.report.parity import limits, parity_figure, title
from accelsim.report.score_page import score_page
from accelsim.scoreboard import scoreboard_dict
from accelsim.scoreboard.device_rows import rows_by_device, sampling_note
from accelsim.scoreboard.score import _suite_score
from accelsim.scoreboard.scored_rows import ScoredRows
from accelsim.scoreboard.scores import Scoreboard
from accelsim.scoreboard.suite import suite


def part(device="T4", count=4, refusal="", seed=0, group="bert"):
    random = np.random.default_rng(seed)
    measured = 10.0 ** random.uniform(-5, 0, count)
    predicted = measured * np.exp(0.1 * random.normal(size=count))
    labels = np.array([f"run {index}" for index in range(count)], dtype=str)
    return ScoredRows(
        device=device,
        profile="t4",
        tier="" if refusal else "spec",
        note="",
        group=np.full(count, group),
        label=labels,
        setting=np.full(count, ""),
        measured_s=measured,
        predicted_s=predicted,
        low_s=predicted / 1.2,
        high_s=predicted * 1.2,
        roofline_s=np.full(count, np.nan),
        refusal=refusal,
        used_in_fit=0,
        views=(),
        origin=np.full(count, device),
    )


def board(*parts, name="gpu-models"):
    return Scoreboard((_suite_score(suite(name), parts, {}),), {}, ())


def series(count, seed=0):
    (one,) = rows_by_device(board(part(count=count, seed=seed)).suites[0])
    return one


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 300), st.integers(1, 80), st.integers(0, 5))
def test_samples_are_of_the_size_asked_for_and_have_the_worst_rows(count, most, seed):
    one = series(count, seed)
    rows = one.sample(most)
    assert len(rows) == len(set(rows.tolist())) == min(count, most)
    assert np.all(np.diff(rows) > 0)
    off = np.abs(np.log(one.predicted / one.measured))
    worst = set(np.argsort(-off)[: min(20, most)].tolist())
    assert worst <= set(rows.tolist())
    assert np.array_equal(rows, one.sample(most))


def test_the_page_has_its_rows_beside_the_figure_farthest_off_first():
    found = board(part("T4", 150), part("V100", 80, seed=1))
    page = score_page(scoreboard_dict(found), "accelsim validate", found)
    section = next(one for one in page.sections if one.name == "parity-gpu-models")
    *rows, last = section.table.rows
    assert len(rows) == 200
    assert last[0] == "30 more"
    errors = [abs(np.log(row[2].value / row[1].value)) for row in rows]
    assert errors == sorted(errors, reverse=True)
    by_row = {
        f"{one.device}, bert, {label}": i
        for one in rows_by_device(found.suites[0])
        for i, label in enumerate(one.label)
    }
    assert {row[0] for row in rows} <= set(by_row)
    for row in rows:
        assert row[3].value == pytest.approx(row[2].value / 1.2)
        assert row[4].value == pytest.approx(row[2].value * 1.2)
        assert row[5].value == pytest.approx(row[2].value / row[1].value - 1)
    assert section.figure["data"][0]["name"] == "90 % interval (median)"
    assert page.decision[0] == "1 suite, 230 of 230 rows answered."


def test_devices_are_series_and_refused_rows_are_none():
    score = board(
        part("T4"), part("V100"), part("T4", seed=3), part("L4", refusal="unknown")
    ).suites[0]
    assert [(one.device, len(one)) for one in rows_by_device(score)] == [("T4", 8), ("V100", 4)]


def test_rows_without_a_place_on_a_logarithmic_axis_are_left_out():
    found = board(part(count=3)).suites[0]
    found.rows[0].predicted_s[1] = 0.0
    (one,) = rows_by_device(found)
    assert one.label.tolist() == ["run 0", "run 2"]
    low, high = limits([one])
    assert low < min(one.measured.min(), one.predicted.min())
    assert high > max(one.measured.max(), one.predicted.max())


def test_a_plot_says_what_it_leaves_out():
    many, few = series(500), series(3)
    assert sampling_note([few], 100) == ""
    assert sampling_note([many, few], 100).startswith("103 of 503 rows drawn")


def test_the_title_has_suite_tier_rows_and_error():
    score = board(part()).suites[0]
    mape = 100 * score.figures.mape_fraction
    assert title(score) == f"gpu-models (tier spec): 4 rows, MAPE {mape:.1f} %"


def page_of(*parts, name="gpu-models"):
    found = board(*parts, name=name)
    return score_page(scoreboard_dict(found), "accelsim validate", found)


def test_large_suites_are_thinned_and_say_so():
    page = page_of(part(count=7_000), name="gpu-operators")
    section = next(one for one in page.sections if one.name == "parity-gpu-operators")
    assert section.text.startswith("6,000 of 7,000 rows drawn")
    assert len(section.figure["data"][1]["x"]) == 6_000


def test_names_of_data_files_are_text_on_a_page():
    evil = "</script><img src=x onerror=alert(1)>"
    assert "<img" not in page_html(page_of(part(evil, group=evil)))


def test_what_the_pointer_shows_is_of_the_row():
    score = board(part(count=1)).suites[0]
    one = rows_by_device(score)[0]
    points = parity_figure([one], score.suite.quantity, 10)["data"][1]
    assert points["x"] == [pytest.approx(one.measured[0], rel=1e-3)]
    assert points["y"] == [pytest.approx(one.predicted[0], rel=1e-3)]
    (text,) = points["text"]
    assert text.startswith("T4, bert, run 0 (")
    assert text.endswith("tier spec)")


def test_a_figure_is_plain_json_with_equal_logarithmic_axes():
    score = board(part(), part("V100")).suites[0]
    drawn = parity_figure(rows_by_device(score), score.suite.quantity, 100)
    figure = json.loads(json.dumps(drawn, allow_nan=False))
    assert figure["layout"]["xaxis"]["type"] == figure["layout"]["yaxis"]["type"] == "log"
    assert figure["layout"]["xaxis"]["range"] == figure["layout"]["yaxis"]["range"]
    assert [trace["name"].split(" (")[0] for trace in figure["data"]] == [
        "90 % interval",
        "T4",
        "V100",
        "perfect",
    ]


def test_suites_of_several_quantities_have_no_unit_of_time():
    score = board(part(), name="systolic").suites[0]
    figure = parity_figure(rows_by_device(score), score.suite.quantity, 100)
    assert figure["layout"]["xaxis"]["title"]["text"] == "measured value, each quantity in its unit"
    assert "%{x:.4s}," in figure["data"][1]["hovertemplate"]


def test_a_suite_without_answered_rows_has_no_plot():
    page = page_of(part(refusal="unknown device"))
    assert not [one for one in page.sections if one.name.startswith("parity")]
