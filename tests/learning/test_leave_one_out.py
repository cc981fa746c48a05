"""Runs of the user's own as a scoreboard."""

from __future__ import annotations

import json

import pytest

from accelsim.cli.entry import main
from accelsim.errors import InputError
from accelsim.estimation.estimate import estimate
from accelsim.learning.learn import learn
from accelsim.learning.leave_one_out import score_runs
from accelsim.report.learning import scored_page

BATCHES = (1, 2, 4, 8, 16)


def table(folder, rows):
    path = folder / "runs.csv"
    path.write_text("\n".join(["model,device,batch,latency_s", *rows]) + "\n")
    return path


@pytest.fixture
def slow(tmp_path):
    times = {batch: estimate("resnet-50", "t4", batch=batch).latency_s for batch in BATCHES}
    return table(tmp_path, [f"resnet-50,t4,{b},{1.3 * t!r}" for b, t in times.items()])


def test_what_runs_have_in_common_is_learned_from_the_others(slow, tmp_path):
    found = score_runs(slow)
    (summary,) = found.summary()
    assert summary["runs"] == 5
    assert summary["error_fraction"] == pytest.approx(0.3 / 1.3)
    assert summary["learned_error_fraction"] < 0.4 * summary["error_fraction"]
    assert summary["learned_width_fraction"] < summary["width_fraction"]
    profile = tmp_path / "mine.json"
    profile.write_text(learn([slow]).profile.model_dump_json())
    assert score_runs(profile).rows == found.rows


def test_a_run_has_no_part_in_its_own_correction(slow, tmp_path):
    rows = slow.read_text().splitlines()[1:]
    wrong = table(tmp_path, [*rows[:4], "resnet-50,t4,16,0.9"])
    found = {row["source"]: row for row in score_runs(wrong).rows}
    last = found["runs.csv, line 6"]
    assert last["learned_off_fraction"] > 5
    assert last["learned_off_fraction"] < last["off_fraction"]
    assert last["learned_off_fraction"] > last["learned_spread_fraction"]


def test_a_run_alone_stays_as_predicted(tmp_path):
    (row,) = score_runs(table(tmp_path, ["resnet-50,t4,8,0.01"])).rows
    assert row["learned_off_fraction"] == row["off_fraction"]
    assert row["learned_spread_fraction"] == row["spread_fraction"]


def test_the_command_writes_both_and_refuses_suites_beside(slow, capsys):
    with pytest.raises(SystemExit) as done:
        main(("validate", "--runs", str(slow), "--format", "json"))
    assert not done.value.code
    data = json.loads(capsys.readouterr().out)
    assert len(data["runs"]) == data["summary"][0]["runs"] == 5
    with pytest.raises(SystemExit) as refused:
        main(("validate", "published", "--runs", str(slow)))
    assert refused.value.code == 2


def test_the_page_draws_runs_before_and_after(slow):
    found = score_runs(slow)
    page = scored_page(found.summary(), found.rows, "accelsim validate")
    line, before, after = page.sections[0].figure["data"]
    assert before["x"] == after["x"]
    for x, y, learned in zip(before["x"], before["y"], after["y"], strict=True):
        assert y == pytest.approx(x / 1.3)
        assert abs(learned / x - 1) < abs(y / x - 1)
    assert "5 runs" in page.decision[0]
    assert line["x"] == line["y"]


def test_no_file_is_refused(tmp_path):
    with pytest.raises(InputError):
        score_runs(tmp_path / "none.csv")
