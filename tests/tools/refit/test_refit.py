"""Refits are functions of the measured tables: whatever set was there before, the same tables give
the same files.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from accelsim.calibration.fit.solve import Prior, solve
from accelsim.calibration.overlay import write_overlay
from accelsim.cost.fitted import read_fitted
from accelsim.cost.gpu import GpuParameters
from accelsim.cost.gpu.gpu_parameters import read_parameters
from accelsim.cost.table import Execution
from accelsim.dtype import Dtype
from accelsim.files.datafile import data_root
from accelsim.scoreboard.names import device_of
from tools.refit import __main__ as command
from tools.refit import refit
from tools.refit.class_fit import ClassFit
from tools.refit.priors import CENTRES, class_prior
from tools.refit.refit import ClassSample, refit_class, refit_left_out
from tools.scoreboard.gpu_operators import KernelPrediction
from tools.scoreboard.operator_columns import gemm_graph, vector_graph

CLASS = GpuParameters.class_wide()
#: Boards and how long their kernels take, relative to the class-wide model.
BOARDS = {"V100": 1.1, "T4": 0.9, "A100-40": 0.95}
COUNT = 60


def tables(folder: Path) -> Path:
    """Products and sums of three boards as the class-wide model times them, slower or faster and
    with noise.
    """
    random = np.random.default_rng(5)
    sizes = np.unique(np.round(2.0 ** random.uniform(7, 12, (COUNT, 3))), axis=0)
    products, sums = ["op,device,split,b,m,n,k,latency_ms"], ["op,device,split,b,h,latency_ms"]
    for board, slower in BOARDS.items():
        m, n, k = sizes.T
        ones = np.ones(len(m))
        for t, (a, b, c) in zip(
            called(gemm_graph(ones, m, k, n, Dtype.FP32, batched=ones < 0), board, slower),
            sizes.astype(int),
            strict=True,
        ):
            products.append(f"linear,{board},train,1,{a},{b},{c},{t * 1e3:.5g}")
        rows = np.round(m * 16)
        for t, a, b in zip(
            called(vector_graph(np.full(len(m), "add"), rows, n), board, slower),
            rows.astype(int),
            n.astype(int),
            strict=True,
        ):
            sums.append(f"add,{board},train,{a},{b},{t * 1e3:.5g}")
    (folder / "gpu_kernels").mkdir(parents=True)
    (folder / "gpu_kernels" / "ops_gemm.csv").write_text("\n".join(products) + "\n")
    (folder / "gpu_kernels" / "ops_vec.csv").write_text("\n".join(sums) + "\n")
    return folder


def called(graph, board: str, slower: float):
    kernels = KernelPrediction(graph, device_of(board), Execution.EAGER)
    costs = kernels.costs(CLASS)
    noise = np.exp(0.03 * np.random.default_rng(6).normal(size=len(graph)))
    return kernels.call_s(replace(costs, time_s=slower * costs.time_s), CLASS) * noise


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*.yaml"))
    }


def run(data: Path, out: Path, *options: str) -> int:
    return command.main(["--data", str(data), "--out", str(out), *options])


@pytest.fixture
def few(monkeypatch):
    boards = {"left_out_chips": ["a100", "t4", "v100"], "fitted_boards": ["v100-pcie-32gb"]}
    monkeypatch.setattr(command, "_boards", boards.__getitem__)


@pytest.mark.usefixtures("few")
def test_the_same_tables_give_the_same_files_from_any_shipped_set(tmp_path, monkeypatch, capsys):
    data, first = tables(tmp_path / "data"), tmp_path / "first"
    assert run(data, first) == 0, capsys.readouterr().err
    once = contents(first)
    assert len(once) == 5
    fitted = read_parameters(first / "class" / "gpu.yaml")
    assert (
        fitted.memory.hbm_efficiency != CLASS.memory.hbm_efficiency
    )  # the fit says something of its own
    assert read_parameters(first / "class" / "gpu-without-t4.yaml") != fitted

    other = CLASS.with_values({name: 0.8 * CLASS.value(name) for name in CENTRES})
    monkeypatch.setattr(GpuParameters, "class_wide", classmethod(lambda cls: other))
    assert run(data, first) == 0  # starts from its own output
    assert contents(first) == once
    assert run(data, first, "--spreads") == 0  # spreads of the same values are the same
    assert (
        run(data, first, "--device", "v100-pcie-32gb") == 0
    )  # one overlay alone is that of the whole fit
    assert contents(first) == once


def test_every_fitted_value_has_a_fixed_prior():
    from accelsim.calibration.fit.dispatch import FIT
    from accelsim.calibration.fit.gpu import STAGES

    stages = [stage for stage in STAGES if not stage.is_of_throttled_boards]
    fitted = {name for stage in stages for name in stage.priors} | set(FIT["issue_times"])
    found_beside = {"gemm.page_walk_loss", "dispatch.plan_lookup_s"}
    assert set(CENTRES) == fitted | found_beside
    for stage in stages:
        assert all(prior.low <= CENTRES[name] <= prior.high for name, prior in stage.priors.items())
    assert class_prior().families == {}


def test_of_several_starts_the_cheapest_solution_counts():
    def valleys(values):
        x = np.log(values["x"])
        return [np.full(50, 0.3 * (1.0 - np.cos(3.0 * (x - 1.0))) + 0.05 * abs(x - 1.0))]

    priors = {"x": Prior(0.05, 20.0, 10.0)}
    alone = solve(valleys, {"x": float(np.exp(-1.0))}, priors)
    several = solve(valleys, {"x": float(np.exp(-1.0))}, priors, ({}, {"x": 2.5}))
    assert alone.values["x"] < 1.0  # the nearer valley
    assert several.values["x"] == pytest.approx(np.e, rel=0.02)
    assert several.cost < alone.cost


def test_class_sets_that_do_not_converge_stay_as_they_were(tmp_path, monkeypatch):
    monkeypatch.setattr(
        refit, "fit_class", lambda *_args, **_named: ClassFit(class_prior(), ("gemm",))
    )
    sample = ClassSample([], tmp_path)
    before, kept = refit_class(sample, lambda _line: None)
    assert kept == ["gpu.yaml, gemm"]
    assert before == replace(CLASS, families={})
    assert list(tmp_path.iterdir()) == []
    assert refit_left_out("t4", sample, lambda _line: None) == ["gpu-without-t4.yaml, gemm"]
    shipped = sample.before("gpu-without-t4")
    assert replace(read_parameters(tmp_path / "gpu-without-t4.yaml"), families={}) == shipped


def test_an_overlay_that_says_the_same_keeps_its_date(tmp_path):
    overlay = replace(
        read_fitted(data_root() / "calibration" / "fitted" / "p4.yaml"), date="2020-01-01"
    )
    path = write_overlay(overlay, tmp_path)
    write_overlay(replace(overlay, date="2021-01-01"), tmp_path)
    assert read_fitted(path).date == "2020-01-01"
    write_overlay(replace(overlay, date="2021-01-01", rows=overlay.rows + 1), tmp_path)
    assert read_fitted(path).date == "2021-01-01"


@pytest.mark.parametrize("source", ["aiconfigurator:b9000", "tables:h200_sxm", "aiconfigurator:"])
def test_an_import_of_something_unknown_is_refused(source, tmp_path, capsys):
    assert command.main(["--import", source, "--out", str(tmp_path)]) == 1
    assert "error:" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_import_is_fitted_and_listed(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        command, "import_kernels", lambda request, *_rest: asked.append(request) or tmp_path
    )
    (tmp_path / "fitted").mkdir()
    assert command.main(["--import", "aiconfigurator:h200_sxm", "--out", str(tmp_path)]) == 0
    assert asked == ["aiconfigurator:h200_sxm"]
    assert (tmp_path / "fitted" / "measured_boards.json").is_file()


def test_the_command_explains_itself(capsys):
    with pytest.raises(SystemExit, match="0"):
        command.main(["--help"])
    assert "--import" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        command.main([])
