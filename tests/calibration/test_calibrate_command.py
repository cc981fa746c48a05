"""``accelsim calibrate`` and ``calibrate check``: from a run file to a device that other commands
use, and exit codes.
"""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch")

from accelsim.calibration import calibrate, check, check_run
from accelsim.calibration.check import CheckCase, freeze
from accelsim.calibration.environment import describe
from accelsim.calibration.measurement.captured_rows import captured_row
from accelsim.calibration.measurement.case import Case
from accelsim.calibration.measurement.suite import operator_suite
from accelsim.calibration.run_file import Measurement, RunFile
from accelsim.cli import main
from accelsim.estimation.evidence import evidence

pytestmark = pytest.mark.torch
ENVIRONMENT = describe("cpu") | {"cpu_caches": {"L2": "1024K", "L3": "32768K"}}
FEW = [
    CheckCase("text-cnn", 1, "fp32", 1),
    CheckCase("text-cnn", 64, "fp32", 1),
    CheckCase("text-cnn", 128, "fp32", 1, is_training=True),
]


def accelsim(*arguments):
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    return stop.value.code


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A run in which every operator takes 2 us plus 10 ps per FLOP and 50 ps per byte."""
    monkeypatch.setattr(check_run, "check_list", lambda *_: FEW)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    with RunFile(tmp_path / "run.jsonl", ENVIRONMENT, {"device": "cpu"}) as file:
        for case in operator_suite("cpu", ("fp32",), (1,))[:900]:
            row, details = captured_row(case), {"minor_faults": 0.0, "undisturbed": True}
            moved = row.read_bytes + row.write_bytes + row.weight_bytes if row else 0.0
            time_s = 2e-6 + 1e-11 * (row.flop if row else 0.0) + 5e-11 * moved
            file.append(Measurement(case, time_s, 0.01, 0, details, row=row))
        file.append({"note": "noise", "spread_fraction": 0.03, "reference_s": [4e-3, 4e-3, 4e-3]})
        file.append({"note": "compiled", "skipped": "RuntimeError: no C++ compiler"})
    return tmp_path


def fit(folder):
    return accelsim("calibrate", "--from", str(folder / "run.jsonl"), "--out", str(folder))


def test_fit_writes_overlay_table_predictions_and_report(folder, capsys):
    page = ("--report", str(folder / "fit.html"))
    run = str(folder / "run.jsonl")
    assert accelsim("calibrate", "--from", run, "--out", str(folder), *page) == 0
    shown = (folder / "fit.html").read_text("utf-8")
    assert "operators held out: median error" in shown
    assert "on average, threads: 1." in shown
    assert 'id="figure-held-out"' in shown
    assert "nine of ten took" in shown
    printed = capsys.readouterr()
    assert "held out: MAPE" in printed.out
    assert "compiled operators were not measured: RuntimeError: no C++ compiler" in printed.err
    for name in (
        "fitted/local/cpu.yaml",
        "fitted/local/cpu.kernels.json",
        "frozen.json",
        "report.md",
    ):
        assert (folder / name).is_file()


def test_other_commands_use_the_calibration(folder, monkeypatch, capsys):
    home = folder / "config" / "accelsim" / "calibration"
    home.mkdir(parents=True)
    assert accelsim("calibrate", "--from", str(folder / "run.jsonl")) == 0
    capsys.readouterr()
    arguments = (
        "estimate",
        "lenet-5",
        "--device",
        "local/cpu",
        "--precision",
        "fp32",
        "--format",
        "json",
    )
    assert accelsim(*arguments) == 0
    assert json.loads(capsys.readouterr().out)["tier"] == "fitted"


def test_check_compares_and_notices_drift(folder, monkeypatch, capsys):
    assert fit(folder) == 0
    speed = {"factor": 1.0}
    frozen = json.loads((folder / "frozen.json").read_text())
    assert frozen["predictions"] == []  # the fit predicts nothing

    def measured(case, _budget_s, device):
        assert device == "cpu"
        frozen = json.loads((folder / "frozen.json").read_text())
        predicted = {(p["batch"], p["is_training"]): p["time_s"] for p in frozen["predictions"]}
        assert len(predicted) == len(FEW)  # all are kept before the first is measured
        return 1.1 * speed["factor"] * predicted[case.batch, case.is_training], 0.0, None, 4.4e-3

    monkeypatch.setattr(check, "measure_model", measured)
    page = folder / "check.html"
    assert accelsim("calibrate", "check", "--out", str(folder), "--report", str(page)) == 0
    printed = capsys.readouterr().out
    assert "3 of 3 whole models measured: median error 9.09 %" in page.read_text("utf-8")
    again = ("report", str(folder / "results.json"), "--out", str(folder / "again.html"))
    assert accelsim(*again) == 0
    assert "inference: 2 runs, MAPE 9.09 %" in printed
    assert (
        "at the calibration's speed: 2 runs, MAPE 0 %" in printed
    )  # the reference took 1.1 times as long too
    assert "took 1.100 times as long" in (folder / "report.md").read_text()
    assert "text-cnn b64" in (folder / "report.md").read_text()
    speed["factor"] = 1.4
    assert accelsim("calibrate", "check", "--out", str(folder)) == 1
    assert "drifted" in capsys.readouterr().err


def test_a_new_calibration_starts_new_checks_and_its_check_is_what_estimates_rest_on(
    folder, monkeypatch, capsys
):
    monkeypatch.setattr(check, "measure_model", lambda *_, **__: (1e-3, 0.0, None, None))
    home = folder / "config" / "accelsim" / "calibration"
    home.mkdir(parents=True)
    (home / "run.jsonl").write_bytes((folder / "run.jsonl").read_bytes())
    assert accelsim("calibrate", "--from", str(home / "run.jsonl")) == 0
    sentence = "fitted on"
    evidence.cache_clear()
    assert "operators left out of the fit lay within" in shown(capsys, sentence)
    assert accelsim("calibrate", "check") == 0
    found = json.loads((home / "results.json").read_text())
    assert len(found["results"]) == 3
    evidence.cache_clear()
    assert "3 whole-model runs on it were within" in shown(capsys, sentence)
    found["frozen_hash"] = "of an earlier calibration"
    found["results"][0]["measured_s"] = 1.0
    (home / "results.json").write_text(json.dumps(found))
    evidence.cache_clear()
    assert "operators left out of the fit lay within" in shown(capsys, sentence)
    assert accelsim("calibrate", "check") == 0  # no drift against another calibration's check
    assert "against the first check" not in capsys.readouterr().out
    assert json.loads((home / "results.json").read_text())["results"][0]["measured_s"] == 1e-3


def shown(capsys, beginning):
    """What an estimate of this machine says that it rests on."""
    capsys.readouterr()
    assert (
        accelsim(
            "estimate", "lenet-5", "-d", "local/cpu", "--precision", "fp32", "--format", "json"
        )
        == 0
    )
    sentence = json.loads(capsys.readouterr().out)["evidence"]["sentence"]
    assert sentence.startswith(beginning)
    return sentence


def test_changed_predictions_are_refused(folder, capsys):
    assert fit(folder) == 0
    document = json.loads((folder / "frozen.json").read_text())
    document["origin"]["device"] = "xeon-platinum-8480+"
    (folder / "frozen.json").write_text(json.dumps(document))
    assert accelsim("calibrate", "check", "--out", str(folder)) == 2
    assert "changed after they were frozen" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changed", "message"),
    [({"run_hash": "f00d"}, "the predictions are of another run"), (None, "another version")],
)
def test_predictions_of_another_run_or_version_are_refused(folder, capsys, changed, message):
    assert fit(folder) == 0
    origin = json.loads((folder / "frozen.json").read_text())["origin"]
    frozen = freeze((), origin | changed if changed else {"machine": origin["machine"]})
    (folder / "frozen.json").write_text(json.dumps(frozen))
    assert accelsim("calibrate", "check", "--out", str(folder)) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--device", "cuda:99"), "cuda:99"),
        (("--device", "abacus"), "abacus"),
        (("--budget", "soon"), "budget"),
        (("--threads", "x"), "threads"),
        (("--threads", "100000"), "threads"),
        (("--dtypes", "fp13"), "fp13"),
        (("--from", "nowhere.jsonl"), "nowhere.jsonl"),
    ],
)
def test_wrong_input_ends_with_2_and_one_line(tmp_path, capsys, arguments, message):
    assert accelsim("calibrate", "--out", str(tmp_path), *arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_damaged_run_is_refused(folder, capsys):
    text = (folder / "run.jsonl").read_bytes().replace(b'"relu"', b'"tanh"', 1)
    (folder / "run.jsonl").write_bytes(text)
    assert fit(folder) == 2
    assert "hash does not match" in capsys.readouterr().err


def test_a_short_run_says_what_to_do(tmp_path, capsys):
    with RunFile(tmp_path / "run.jsonl", ENVIRONMENT, {"device": "cpu"}) as file:
        file.append(Measurement(Case("gemm", "addmm", {"m": 2, "n": 2, "k": 2}), 1e-6, 0.0, 0, {}))
    assert fit(tmp_path) == 2
    assert "--budget" in capsys.readouterr().err


def test_a_run_of_another_machine_needs_the_name_of_its_device(folder, tmp_path, capsys):
    lines = (folder / "run.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    other = tmp_path / "other.jsonl"
    with RunFile(other, ENVIRONMENT | {"cpu_model": "Abacus 9000"}, {"device": "cpu"}) as file:
        for row in rows[1:]:
            file.append({name: value for name, value in row.items() if name != "hash"})
    assert accelsim("calibrate", "--from", str(other), "--out", str(tmp_path)) == 2
    error = capsys.readouterr().err
    assert "Abacus 9000" in error
    assert "--name" in error
    assert accelsim("calibrate", "--from", str(other), "--out", str(tmp_path), "--name", "t4") == 2
    assert "a CPU" in capsys.readouterr().err
    assert (
        accelsim("calibrate", "--from", str(other), "--out", str(tmp_path), "--name", "xeon-8480+")
        == 0
    )
    assert (tmp_path / "fitted" / "xeon-platinum-8480+.yaml").is_file()


def test_an_interrupted_check_reports_what_it_measured(folder, monkeypatch, capsys):
    assert fit(folder) == 0

    def measured(case, _budget_s, device):
        assert device == "cpu"
        if case.is_training:
            raise KeyboardInterrupt
        return 1e-3, 0.0, None, None

    monkeypatch.setattr(check, "measure_model", measured)
    assert accelsim("calibrate", "check", "--out", str(folder)) == 130
    assert "interrupted" in capsys.readouterr().err
    assert "not measured: interrupted" in (folder / "report.md").read_text()
    assert not (folder / "results.json").exists()  # later checks compare with a whole one only


def test_a_check_says_which_file_is_damaged_or_missing(folder, capsys):
    assert fit(folder) == 0
    for content in (
        "",
        "{",
        "[]",
        "{}",
        '{"results": 3}',
        '{"results": [{"model": "text-cnn"}]}',
    ):
        (folder / "results.json").write_text(content)
        assert accelsim("calibrate", "check", "--out", str(folder)) == 2
        assert "results.json" in capsys.readouterr().err
    for name in ("frozen.json", "run.jsonl"):
        (folder / name).unlink()
        assert accelsim("calibrate", "check", "--out", str(folder)) == 2
        assert name in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_ends_with_2(folder, capsys):
    (folder / "report.md").mkdir()
    assert fit(folder) == 2
    assert "report.md cannot be written" in capsys.readouterr().err
    assert not (folder / "report.md.tmp").exists()


def test_a_fit_that_is_interrupted_says_what_is_kept(folder, monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(calibrate, "fit_run", interrupted)
    assert fit(folder) == 130
    assert (
        f"run.jsonl keeps what was measured; fit it with --from {folder}" in capsys.readouterr().err
    )
    assert not (folder / "fitted").exists()


def test_an_interrupt_before_the_first_row_promises_nothing(tmp_path, monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("accelsim.calibration.run_measurement.measure", interrupted)
    assert accelsim("calibrate", "--out", str(tmp_path)) == 130
    assert "nothing was measured" in capsys.readouterr().err


def run_of(folder, calm_every, spread):
    """A run whose session was killed, so that it has no note; of its rows on two threads one in
    `calm_every` was calm.
    """
    with RunFile(folder / "run.jsonl", ENVIRONMENT, {"device": "cpu"}) as file:
        for index in range(40):
            details = {
                "undisturbed": index % calm_every == 0,
                "reference_s": 4e-3 * (1 + spread * (index % 20) / 19),
            }
            file.append(
                Measurement(
                    Case("gemm", "addmm", {"m": index + 1}, threads=2), 1e-6, 0.0, 0, details
                )
            )


@pytest.mark.parametrize(
    ("calm_every", "spread", "said"), [(1, 0.8, "machine noise"), (3, 0.1, "on 2 threads")]
)
def test_a_busy_machine_is_noticed_without_the_sessions_note(
    tmp_path, capsys, calm_every, spread, said
):
    run_of(tmp_path, calm_every, spread)
    assert fit(tmp_path) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "--despite-noise" in error
    assert ("were disturbed by other programs" in error) == (calm_every > 1)


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "1e9"])
def test_a_check_takes_some_time(folder, capsys, seconds):
    assert accelsim("calibrate", "check", "--out", str(folder), "--seconds", seconds) == 2
    assert "seconds" in capsys.readouterr().err


def test_predictions_of_another_run_are_refused(folder, capsys):
    assert fit(folder) == 0
    with RunFile(folder / "run.jsonl", ENVIRONMENT, {"device": "cpu"}, resume=True) as file:
        file.append({"note": "measured after the fit"})
    assert accelsim("calibrate", "check", "--out", str(folder)) == 2
    error = capsys.readouterr().err
    assert "run_hash" in error
    assert "calibrate --from" in error


def test_a_fit_far_from_what_was_left_out_is_refused(folder, monkeypatch, capsys):
    errors = calibrate.operator_errors
    monkeypatch.setattr(
        calibrate,
        "operator_errors",
        lambda fitted: [{**row, "mape_fraction": 0.6} for row in errors(fitted)],
    )
    assert fit(folder) == 2
    error = capsys.readouterr().err
    assert "held-out error = '60.0 %'" in error
    assert "--despite-noise" in error
    assert not (folder / "fitted").exists()
    run = str(folder / "run.jsonl")
    forced = ("--from", run, "--out", str(folder), "--despite-noise")
    assert accelsim("calibrate", *forced) == 0
    assert "warning: operators left out of the fit" in capsys.readouterr().err
