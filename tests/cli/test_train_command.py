"""``accelsim train``: tables, JSON, a trace and a page; wrong options end with a line."""

import csv
import json

import pytest
from typer.testing import CliRunner

from accelsim.cli.app import command_tree
from accelsim.errors import InvalidValueError, UnknownNameError

RUN = ["train", "llama-3.2-1b", "--cluster", "dgx-h100", "--global-batch", "32", "--seq-len", "512"]


def invoke(*arguments):
    return CliRunner().invoke(command_tree("train"), [*RUN, *arguments], catch_exceptions=False)


def test_a_plan_as_a_table_names_what_matters():
    shown = invoke("--plan", "tp=2,sp=1")
    for word in (
        "32 samples of 512 tokens",
        "MFU",
        "tokens/s",
        "rank 0",
        "an iteration",
        "dp=4,tp=2,sp=1",
    ):
        assert word in shown.stdout


def test_json_trace_and_page_of_a_search(tmp_path):
    trace, page = tmp_path / "t.json", tmp_path / "p.html"
    files = ["--trace", str(trace), "--report", str(page)]
    asked = ["--plan", "pp=2,cp=1", "--microbatch", "2", "--search", "--format", "json", "--quiet"]
    found = json.loads(invoke(*asked, *files).stdout)
    assert found["plan"]["pp"] == found["plan"]["microbatch"] == 2
    assert found["plans"][0]["why"] == "best"
    assert found["considered"] > sum(found["rejected"].values())
    assert sum(found["time_s"].values()) == pytest.approx(found["iteration_s"])
    assert {event["ph"] for event in json.loads(trace.read_text())["traceEvents"]} >= {"X"}
    assert "Plans that no other beats" in page.read_text()


def test_csv_has_the_names_of_json():
    (row,) = csv.DictReader(invoke("--plan", "tp=2", "--format", "csv").stdout.splitlines())
    found = json.loads(invoke("--plan", "tp=2", "--format", "json").stdout)
    about = {"kind", "schema_version", "inputs", "metrics", "provenance", "warnings"}
    assert set(row) == set(found) - about
    assert json.loads(row["time_s"]) == found["time_s"]


def test_a_search_looks_at_schedules_of_a_closed_form_where_they_are_named():
    asked = ("--search", "--plan", "schedule=dualpipe", "--format", "json")
    found = json.loads(invoke(*asked).stdout)
    assert found["plan"]["schedule"] == "dualpipe"
    assert found["plan"]["microbatch_count"] >= 2 * found["plan"]["pp"]


def test_a_length_gives_a_whole_run():
    shown = invoke("--tokens", "1e9", "--mtbf", "1000", "--format", "json")
    found = json.loads(shown.stdout)
    assert found["expected_failures"] > 0
    assert 0 < found["goodput_fraction"] < 1


def test_conditions_are_words():
    words = "pue=1.5,evaluation_s=100,checkpoint_is_asynchronous=1"
    shown = invoke("--conditions", words, "--tokens", "1e9", "--format", "json")
    found, plain = (
        json.loads(text.stdout) for text in (shown, invoke("--tokens", "1e9", "--format", "json"))
    )
    assert found["energy_j"] == pytest.approx(1.5 * plain["energy_j"])
    assert found["time_to_train_s"] == pytest.approx(plain["time_to_train_s"] + 100)
    with pytest.raises(UnknownNameError, match="Conditions: straggler_fraction"):
        invoke("--conditions", "weather=1")
    with pytest.raises(InvalidValueError, match="without --tokens"):
        invoke("--conditions", "evaluation_s=5")


def test_options_that_contradict_each_other_are_refused():
    with pytest.raises(InvalidValueError, match="microbatch"):
        invoke("--plan", "microbatch=2", "--microbatch", "4")
    with pytest.raises(InvalidValueError, match="without --tokens"):
        invoke("--mtbf", "1000")
    with pytest.raises(InvalidValueError, match="simulated"):
        invoke("--plan", "pp=2", "--schedule", "zb-v", "--trace", "never.json")
