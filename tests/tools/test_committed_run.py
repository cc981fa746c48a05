"""The committed run can be fitted again, and its measured networks are those of the check list."""

from __future__ import annotations

import json

import pytest

from accelsim.calibration.check import check_list
from accelsim.calibration.measurement.case import Case
from accelsim.calibration.run_file import CalibrationRun, Measurement

pytest.importorskip("pyarrow")

from tools.committed_run import (
    COMMITTED_RUN,
    read_committed_run,
    write_committed_run,
)

MOST_BYTES = 400 * 1024


def measurement(time_s, **details):
    case = Case("gemm", "addmm", {"m": 8, "n": 16, "k": 32}, "bf16", 2, cold=True)
    return Measurement(case, time_s, 0.01, 1, details, None if time_s else "no kernel")


def test_a_run_is_read_as_it_was_written(tmp_path):
    kept = [measurement(1e-3), measurement(2e-3, reference_s=5e-3)]
    left_out = [measurement(None), measurement(3e-3, undisturbed=False)]
    notes = [{"note": "noise", "spread_fraction": 0.02}]
    run = CalibrationRun({"device": "cpu"}, {"threads": [1, 2]}, kept + left_out, notes, "abc", 0)
    write_committed_run(run, tmp_path)
    found = read_committed_run(tmp_path)
    assert list(found.rows) == kept
    assert (found.environment, found.settings) == (run.environment, run.settings)
    assert (list(found.notes), found.digest) == (notes, "abc")


def test_the_committed_run_is_whole_and_small():
    run = read_committed_run()
    assert {row.case.threads for row in run.rows} == set(run.settings["threads"])
    assert {row.case.dtype for row in run.rows} == set(run.settings["dtypes"])
    assert len({row.case.key for row in run.rows}) == len(run.rows) > 10_000
    assert sum(path.stat().st_size for path in COMMITTED_RUN.iterdir()) < MOST_BYTES


def test_most_networks_of_the_check_list_are_measured_in_the_committed_run():
    text = (COMMITTED_RUN / "results.json").read_text(encoding="utf-8")
    measured = {row["model"] for row in json.loads(text)["results"] if row["measured_s"]}
    listed = {case.model for case in check_list((1, 2), ("fp32", "bf16"))}
    assert len(measured & listed) >= 16
