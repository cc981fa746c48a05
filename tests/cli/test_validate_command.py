"""``accelsim validate`` and ``accelsim accuracy``: output, files, and exit codes."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import tools.scoreboard  # noqa: F401  (its suites, too)
from accelsim.cli import validate as module
from accelsim.cli.result_writer import ResultWriter
from accelsim.files.datafile import data_root
from accelsim.files.formats import OutputFormat
from accelsim.scoreboard.accuracy_file import accuracy_text, read_accuracy
from accelsim.scoreboard.suite import _SUITES, suite

GEMM = (
    "op,device,split,b,m,n,k,latency_ms\n"
    "bmm,T4,test,8,256,64,512,0.4\nlinear,T4,test,1,512,512,512,0.2\n"
)
LABELS = (
    "device,model,mode,seq,batch,e2e_ms\nT4,bert_large,inf,512,8,694.46\n"
    "B9000,bert_large,inf,512,8,600\n"
)


@pytest.fixture
def data(tmp_path):
    (tmp_path / "gpu_kernels").mkdir()
    (tmp_path / "gpu_kernels" / "ops_gemm.csv").write_text(GEMM)
    return tmp_path


def test_json_has_one_entry_per_suite(run):
    found = run("validate", "gpu-models", "--format", "json").json
    assert set(found["suites"]) == {"gpu-models"}
    assert found["suites"]["gpu-models"]["rows_answered"] == 41
    assert found["bad_data"] == []


def test_rows_go_to_a_file(run, data):
    run("validate", "gpu-operators", "--data", data, "--rows", data / "rows.csv", "--tier", "spec")
    rows = list(csv.DictReader((data / "rows.csv").open()))
    assert [row["operator"] for row in rows] == ["bmm", "linear"]
    assert all(
        float(row["low_s"]) < float(row["predicted_s"]) < float(row["high_s"]) for row in rows
    )


def test_a_report_is_written_and_not_over_another(run, data):
    run("validate", "gpu-operators", "--data", data, "--tier", "spec", "--publish", data)
    report = read_accuracy(data / "ACCURACY.json")["suites"]["gpu-operators"]
    assert report["rows_asked"] == 2
    assert "gpu-operators" in (data / "ACCURACY.md").read_text()
    # Evidence is of whole models alone: rows of operators are none.
    assert json.loads((data / "EVIDENCE.json").read_text()) == {"runs": [], "spreads": {}}
    again = run("validate", "gpu-operators", "--data", data, "--tier", "spec", "--publish", data)
    assert again.code == 2
    assert "exists already" in again.err


def test_evidence_beside_a_report_counts_the_answered_rows_of_whole_models(run, tmp_path):
    run("validate", "gpu-models", "--tier", "spec", "--publish", tmp_path)
    report = read_accuracy(tmp_path / "ACCURACY.json")["suites"]["gpu-models"]
    runs = json.loads((tmp_path / "EVIDENCE.json").read_text())["runs"]
    assert {found["suite"] for found in runs} == {"gpu-models"}
    assert sum(found["rows"] for found in runs) == report["rows_answered"] > 0


def test_bad_data_exits_with_one_and_names_file_row_and_column(run, data):
    (data / "gpu_kernels" / "ops_gemm.csv").write_text(GEMM.replace("0.2\n", "-0.2\n"))
    result = run("validate", "gpu-operators", "--data", data)
    assert result.code == 1
    assert "gpu_kernels/ops_gemm.csv, row 3, column latency_ms" in result.err
    assert "gpu-operators" in result.out


def test_wrong_names_are_usage_errors(refused, data):
    new = data / "new"
    said = refused("validate", "gpu-modles", "--publish", new)
    assert "Did you mean gpu-models" in said
    assert not new.exists()
    assert "tier" in refused("validate", "gpu-models", "--tier", "psychic")
    assert "not a folder" in refused("validate", "--data", data / "nowhere")


def test_no_folder_is_made_for_a_report_where_rows_are_in_the_way(refused, data):
    rows, new = data / "rows.csv", data / "new"
    rows.touch()
    assert "exists" in refused("validate", "gpu-models", "--rows", rows, "--publish", new)
    assert not new.exists()


def test_a_suite_whose_tables_do_not_ship_names_its_command(refused, monkeypatch):
    monkeypatch.delitem(_SUITES, "serving-tpot")
    said = refused("validate", "serving-tpot")
    assert "run: python -m tools.scoreboard serving-tpot --data DIR" in said


def test_accuracy_prints_the_scoreboard_and_one_device(run, refused):
    assert "gpu-models" in run("accuracy").out
    rows = run("accuracy", "--device", "t4", "--format", "json").json
    assert rows
    assert {row["profile"] for row in rows} == {"t4"}
    assert "Measured devices: " in refused("accuracy", "--device", "groq-lpu-v1")


def test_shipped_figures_are_reproduced_by_the_shipped_tables():
    """In a process of its own, where nothing hands in other parameters than those that ship."""
    command = [sys.executable, "-m", "accelsim.cli", "validate", "--check", "--quiet"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_check_fails_on_a_worse_figure_and_says_which(run, monkeypatch, tmp_path):
    shipped = run("validate", "gpu-models", "--format", "json").json
    suite_before = shipped["suites"]["gpu-models"]
    suite_before["mape_fraction"] -= 1.5 * suite_before["mape_noise_fraction"]
    (group,) = [g for g in suite_before["groups"] if (g["device"], g["model"]) == ("T4", "all")]
    group["rows_answered"] += 1
    path = tmp_path / "ACCURACY.json"
    path.write_text(accuracy_text(shipped))
    monkeypatch.setattr("accelsim.cli.validate._report_path", lambda **_: path)
    worse = run("validate", "gpu-models", "--check")
    assert worse.code == 1
    assert "worse: gpu-models: MAPE" in worse.err
    assert "(noise" in worse.err
    assert "worse: gpu-models, T4 all: 5 rows answered, were 6" in worse.err
    assert run("validate", "gpu-models").code == 0
    other = run("validate", "gpu-models", "--check", "--tier", "spec")
    assert other.code == 0
    assert "not compared: gpu-models: at tier spec" in other.err


def test_suites_of_installed_packages_are_checked_without_a_folder(capsys):
    report = read_accuracy(data_root() / "calibration" / "ACCURACY.json")
    found = {
        "suites": {"silicon-kernels": dict(report["suites"]["silicon-kernels"], mape_fraction=0.9)}
    }
    sink = ResultWriter(OutputFormat.TABLE, None, force=False, quiet=False)
    (line,) = [
        x
        for x in module._worse(found, sink, is_shipped_data=True)
        if x.startswith("silicon-kernels:")
    ]
    assert "MAPE 90.0%" in line
    assert "not compared" not in capsys.readouterr().err


# -- interrupted runs


def stopped(found):
    """A suite that raises what Ctrl-C raises when its tables are read."""
    return replace(found, load=lambda _folder: (_ for _ in ()).throw(KeyboardInterrupt))


@pytest.fixture
def stopped_at(monkeypatch):
    return lambda name: monkeypatch.setitem(_SUITES, name, stopped(suite(name)))


def test_an_interrupted_run_writes_nothing(run, stopped_at, tmp_path):
    stopped_at("cnn-gpus")
    stopped = run("validate", "gpu-models", "cnn-gpus", "--rows", tmp_path / "rows.csv")
    assert (stopped.code, stopped.out) == (130, "")
    assert "interrupted" in stopped.err
    assert "Traceback" not in stopped.err
    assert list(tmp_path.iterdir()) == []


def test_rows_of_operators_and_models_share_one_header(run, data):
    (data / "gpu_kernels" / "e2e_labels.csv").write_text(LABELS)
    out = data / "rows.csv"
    run("validate", "gpu-operators", "gpu-models", "--data", data, "--rows", out, "--tier", "spec")
    rows = list(csv.DictReader(out.open()))
    assert [(row["operator"], row["model"]) for row in rows] == [
        ("bmm", ""), ("linear", ""), ("", "bert_large"), ("", "bert_large")
    ]  # fmt: skip
    (refused,) = [row for row in rows if row["refusal"]]
    assert refused["refusal"] == "unknown device B9000"
    assert refused["predicted_s"] == refused["error_fraction"] == ""
    assert float(refused["measured_s"]) == 0.6


# -- other people's folders


def test_standard_output_is_the_json_alone_from_any_folder_and_a_home_that_cannot_be_written(
    data, tmp_path
):
    (data / "gpu_kernels" / "ops_vec.csv").write_text(
        "op,device,split,b,h,latency\nadd,T4,test,64,64,0.03\n"
    )
    home = tmp_path / "home"
    home.write_text("a file: no folder can be made below it, not even by root")
    for place in (data / "gpu_kernels", data):
        place.chmod(0o555)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    command = [
        sys.executable,
        "-m",
        "tools.scoreboard",
        *("gpu-operators", "--data", str(data), "--tier", "spec", "--format", "json"),
    ]
    root = Path(__file__).parents[2]
    try:
        ran = subprocess.run(
            command,
            cwd="/",
            env=environment | {"HOME": str(home), "PYTHONPATH": str(root)},
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        for place in (data / "gpu_kernels", data):
            place.chmod(0o755)
    found = json.loads(ran.stdout, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert ran.returncode == 1
    assert found["suites"]["gpu-operators"]["rows_answered"] >= 1
    assert found["bad_data"][0]["reason"] == "wrong unit"
    assert "ops_vec.csv" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("present", ["ops_gemm.csv", "e2e_labels.csv"])
def test_folders_with_one_table_are_scored(run, data, present):
    labels = "device,model,mode,seq,batch,e2e_ms\nT4,bert_large,inf,512,8,694.46\n"
    (data / "gpu_kernels" / "e2e_labels.csv").write_text(labels)
    for path in (data / "gpu_kernels").iterdir():
        if path.name != present:
            path.unlink()
    name = {"ops_gemm.csv": "gpu-operators", "e2e_labels.csv": "gpu-models"}[present]
    found = run("validate", name, "--data", data, "--format", "json").json
    assert list(found["suites"]) == [name]
    assert found["bad_data"] == []


def test_csv_json_and_table_say_the_same(run):
    command = ("validate", "gpu-models", "cnn-gpus", "--tier", "spec")
    report = run(*command, "--format", "json").json["suites"]
    rows = run(*command, "--format", "csv").rows
    table = run(*command).out
    assert len(rows) == sum(1 + len(found["groups"]) for found in report.values())
    totals = {row["suite"]: row for row in rows if not row["group"]}
    for name, found in report.items():
        groups = [row for row in rows if row["suite"] == name and row["group"]]
        for row, entry in [(totals[name], found), *zip(groups, found["groups"], strict=True)]:
            for field in (
                "rows_answered",
                "mape_fraction",
                "p90_ape_fraction",
                "kendall_tau",
                "interval_coverage_fraction",
            ):
                assert row[field] == ("" if entry[field] is None else str(entry[field]))
        (line,) = [line for line in table.splitlines() if line.startswith(f"{name} ")]
        assert f"{100 * found['mape_fraction']:.1f}" in line.split()
        assert f"{100 * found['median_ape_fraction']:.1f}" in line.split()


def test_groups_name_every_device_and_operator_that_was_answered(run):
    report = run("validate", "gpu-models", "--format", "json").json["suites"]["gpu-models"]
    lines = run("validate", "gpu-models", "--groups").out.splitlines()
    for group in report["groups"]:
        assert any(line.startswith(group["device"]) and group["model"] in line for line in lines)
