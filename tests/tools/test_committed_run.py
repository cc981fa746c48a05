"""The committed run can be fitted again, and its measured networks are those of the check list."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from accelsim import catalog
from accelsim.calibration.fit.power import fit_power, power_w
from accelsim.calibration.gpu_fit import shipped_parameters
from accelsim.calibration.measurement.case import Case
from accelsim.calibration.run_file import CalibrationRun, Measurement

pytest.importorskip("pyarrow")
pytest.importorskip("torch")

from tools.committed_run import (
    COMMITTED_GPU_RUN,
    COMMITTED_RUN,
    read_committed_networks,
    read_committed_run,
    write_committed_run,
)

MOST_BYTES = 600_000


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


def test_operators_of_most_networks_lie_beside_the_committed_run():
    text = (COMMITTED_RUN / "results.json").read_text(encoding="utf-8")
    measured = {row["model"] for row in json.loads(text)["results"] if row["measured_s"]}
    networks = read_committed_networks()
    assert len(measured & {name.partition(" ")[0] for name in networks}) == 17
    assert all(len(graph) and (graph.flop >= 0).all() for graph in networks.values())


@pytest.fixture(scope="module")
def gpu_rows():
    """Rows with energy of the run on a GPU."""
    return [row for row in read_committed_run(COMMITTED_GPU_RUN).rows if "energy_j" in row.details]


def test_the_run_on_a_gpu_is_whole_and_small(gpu_rows):
    run = read_committed_run(COMMITTED_GPU_RUN)
    assert {row.case.dtype for row in run.rows} == {"fp32", "tf32", "bf16"}
    assert len(run.rows) > 7_000
    assert len(gpu_rows) == 23
    assert sum(path.stat().st_size for path in COMMITTED_GPU_RUN.iterdir()) < MOST_BYTES


def test_the_power_of_a_board_comes_back_from_the_energy_of_its_rows(gpu_rows):
    profile = catalog.device("h100-sxm-80gb")
    prior = shipped_parameters(profile)
    true = {"power.active_static_fraction": 0.15, "power.vector_energy_overhead": 40.0}
    slow = np.array([8.0 * row.time_s for row in gpu_rows])  # all below the board's limit
    drawn = power_w(gpu_rows, slow, profile, prior.with_values(true))
    made = [
        replace(row, time_s=time_s, details={"energy_j": time_s * watt})
        for row, time_s, watt in zip(gpu_rows, slow.tolist(), drawn.tolist(), strict=True)
    ]
    found = fit_power(made, profile, prior)
    assert {name: found[name] for name in true} == pytest.approx(true, rel=0.03)
    assert fit_power([replace(row, details={}) for row in gpu_rows], profile, prior) == {}


def test_measured_power_is_within_a_tenth_of_the_fit_below_the_limit(gpu_rows):
    profile = catalog.device("h100-sxm-80gb")
    time_s = np.array([row.time_s for row in gpu_rows])
    drawn = np.array([row.details["energy_j"] for row in gpu_rows]) / time_s
    prior = shipped_parameters(profile)
    fitted = prior.with_values(fit_power(gpu_rows, profile, prior))
    expected = power_w(gpu_rows, time_s, profile, fitted)
    below = drawn < 0.93 * profile.power.limit_w.value
    assert below.sum() >= 10
    assert np.abs(expected[below] / drawn[below] - 1.0).max() < 0.1
    assert (expected[~below] > 0.9 * drawn[~below]).all()
