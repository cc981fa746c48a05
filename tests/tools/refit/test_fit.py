"""Fits: parameters that made the times are found again, priors hold what rows do not tell, spreads
cover their rows.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim import catalog
from accelsim.calibration.fit.cells import OperatorRows, chip_of, limited
from accelsim.calibration.fit.gpu import STAGES, fit_stage
from accelsim.calibration.fit.residuals import family_parts, family_residuals
from accelsim.calibration.fit.solve import Prior, robust, solve
from accelsim.calibration.overlay import write_overlay
from accelsim.confidence.residual import (
    IN_MODEL_LOG_SIGMA,
    FamilyResidual,
    RowSpread,
    row_spread,
    run_log_sigma,
)
from accelsim.cost.fitted import read_fitted
from accelsim.cost.gpu import GpuParameters
from accelsim.cost.gpu.gpu_parameters import read_parameters
from accelsim.cost.table import Execution, ParameterTier
from accelsim.dtype import Dtype
from accelsim.errors import InputError
from accelsim.files.datafile import read_mapping
from accelsim.scoreboard.parameters import parameters
from accelsim.workloads.operator import OperatorKind
from tools.refit import refit
from tools.refit.__main__ import main
from tools.refit.class_fit import fit_class
from tools.refit.device_fit import DeviceFit, fit_device
from tools.refit.files import class_text, write_left_out
from tools.scoreboard.gpu_operators import KernelPrediction
from tools.scoreboard.left_out import DATA
from tools.scoreboard.operator_columns import Window, conv_graph, gemm_graph, vector_graph

CLASS = GpuParameters.class_wide()
GEMM = next(stage for stage in STAGES if stage.name == "gemm")
CONVOLUTION = next(stage for stage in STAGES if stage.name == "convolution")
MEMORY = next(stage for stage in STAGES if stage.name == "memory")


def gemm_cell(
    truth: GpuParameters,
    device: str = "v100-pcie-32gb",
    count: int = 250,
    noise: float = 0.0,
    octaves: tuple[float, float] = (5, 12),
) -> OperatorRows:
    random = np.random.default_rng(7)
    sizes = [np.round(2.0 ** random.uniform(*octaves, count)) for _ in range(3)]
    graph = gemm_graph(np.ones(count), *sizes, Dtype.FP32, batched=np.zeros(count, dtype=np.bool_))
    return timed(
        "linear", KernelPrediction(graph, catalog.device(device), Execution.EAGER), truth, noise
    )


def vector_cell(
    truth: GpuParameters, device: str = "v100-pcie-32gb", count: int = 250
) -> OperatorRows:
    random = np.random.default_rng(8)
    rows, columns = (np.round(2.0 ** random.uniform(9, 13, count)) for _ in range(2))
    op = random.choice(["add", "tanh"], count)
    graph = vector_graph(op, rows, columns)
    return timed(
        "add", KernelPrediction(graph, catalog.device(device), Execution.EAGER), truth, 0.0
    )


def timed(
    operator: str, kernels: KernelPrediction, truth: GpuParameters, noise: float
) -> OperatorRows:
    exact = kernels.call_s(kernels.costs(truth), truth)
    return OperatorRows(
        operator,
        "made up",
        kernels,
        exact * np.exp(noise * np.random.default_rng(3).normal(size=len(exact))),
    )


def test_a_gemm_fit_finds_the_rate_that_made_the_times() -> None:
    truth = CLASS.with_values({"gemm.vector_efficiency": 0.8, "dispatch.contraction_s": 6e-5})
    fit = fit_stage(GEMM, [gemm_cell(truth, noise=0.03)], CLASS)
    assert fit.solution.has_converged
    assert fit.parameters.gemm.vector_efficiency / fit.parameters.gemm.operand_exposed_fraction > 0
    errors = np.abs(np.log(gemm_cell(truth).measured_s / predicted(gemm_cell(truth), fit)))
    assert np.median(errors) < 0.03
    assert fit.issued[0].issue_s == pytest.approx(6e-5, rel=0.15)


def predicted(cell: OperatorRows, fit: object) -> np.ndarray:
    costs = cell.kernels.costs(fit.parameters)
    return cell.kernels.call_s(costs, fit.parameters, fit.issued[0].issue_s)


def test_a_bandwidth_fit_finds_the_bandwidth() -> None:
    truth = CLASS.with_values({"memory.hbm_efficiency": 0.7})
    fit = fit_stage(MEMORY, [vector_cell(truth)], CLASS)
    assert fit.parameters.memory.hbm_efficiency == pytest.approx(0.7, rel=0.05)
    assert (
        fit.parameters.memory.gddr_efficiency == CLASS.memory.gddr_efficiency
    )  # a board with HBM says nothing of GDDR


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("p100-pcie-16gb", "memory.early_efficiency"),
        ("p4", "memory.early_efficiency"),
        ("a100-pcie-40gb", "memory.hbm_efficiency"),
        ("t4", "memory.gddr_efficiency"),
        ("mi100", "memory.other_efficiency"),
    ],
)
def test_each_memory_has_an_efficiency_of_its_own(device: str, name: str) -> None:
    truth = CLASS.with_values({name: 0.6})
    fit = fit_stage(MEMORY, [vector_cell(truth, device)], CLASS)
    assert fit.parameters.value(name) == pytest.approx(0.6, rel=0.05)
    others = {
        n
        for n in ("memory.early_efficiency", "memory.hbm_efficiency", "memory.gddr_efficiency")
        if n != name
    }
    assert all(fit.parameters.value(other) == CLASS.value(other) for other in others)


def test_short_kernels_hide_behind_the_way_back_from_the_call() -> None:
    truth = CLASS.with_values({"dispatch.trailing_s": 2.5e-5})
    fit = fit_stage(MEMORY, [vector_cell(truth, count=600)], CLASS)
    assert fit.parameters.dispatch.trailing_s == pytest.approx(2.5e-5, rel=0.15)


def test_a_call_takes_as_long_as_its_issue_until_its_kernel_shows() -> None:
    elements = np.array([1e3, 1e4, 1e7, 4e7])
    kernels = KernelPrediction(
        vector_graph(np.full(4, "add"), elements, np.ones(4)),
        catalog.device("v100-pcie-32gb"),
        Execution.EAGER,
    )
    costs = kernels.costs(CLASS)
    called = kernels.call_s(costs, CLASS)
    assert called[:2].tolist() == costs.dispatch_s[:2].tolist()
    shown = costs.dispatch_s + costs.time_s - CLASS.dispatch.trailing_s
    assert called[2:] == pytest.approx(shown[2:])
    replayed = replace(kernels, execution=Execution.GRAPH)
    assert replayed.trailing_s(CLASS) == 0.0
    assert replace(kernels, profile=catalog.device("mi100")).trailing_s(CLASS) == 0.0


def conv_cell(truth: GpuParameters, execution: Execution, count: int = 1500) -> OperatorRows:
    """3x3 convolutions whose calls wait anything between none and twice the mean, as drawn."""
    random = np.random.default_rng(9)
    batch, inputs, outputs, side = (
        np.round(2.0 ** random.uniform(*r, count)) for r in ((0, 6), (4, 10), (4, 10), (2, 6))
    )
    three, one = np.full(count, 3.0), np.ones(count)
    graph = conv_graph(
        OperatorKind.CONV,
        batch,
        (inputs, outputs),
        (side, side),
        Window((three, three), (one, one), one),
        Dtype.FP32,
    )
    kernels = KernelPrediction(graph, catalog.device("v100-pcie-32gb"), execution)
    at_once = timed("conv", kernels, truth.with_values({"dispatch.plan_lookup_s": 0.0}), 0.05)
    return replace(
        at_once,
        measured_s=at_once.measured_s + random.uniform(0, 2 * truth.dispatch.plan_lookup_s, count),
    )


def test_a_wait_that_no_shape_tells_is_found_apart_from_the_time_to_issue() -> None:
    truth = CLASS.with_values(
        {
            "dispatch.convolution_s": 8e-5,
            "dispatch.plan_lookup_s": 2e-4,
            "convolution.winograd_efficiency": 0.85,
        }
    )
    fit = fit_stage(CONVOLUTION, [conv_cell(truth, Execution.EAGER)], CLASS)
    assert fit.issued[0].issue_s + fit.issued[0].wait_s == pytest.approx(2.8e-4, rel=0.1)
    assert fit.issued[0].issue_s == pytest.approx(8e-5, rel=0.4)
    assert fit.parameters.convolution.winograd_efficiency == pytest.approx(0.85, rel=0.1)


def test_calls_wait_amid_thousands_of_shapes_alone() -> None:
    waiting, prompt = (
        CLASS.with_values({"dispatch.plan_lookup_s": 1e-3}),
        CLASS.with_values({"dispatch.plan_lookup_s": 0.0}),
    )
    for execution, waited in ((Execution.EAGER, 1e-3), (Execution.GRAPH, 0.0)):
        kernels = conv_cell(CLASS, execution, 20).kernels
        longer = kernels.call_s(kernels.costs(waiting), waiting) - kernels.call_s(
            kernels.costs(prompt), prompt
        )
        assert longer == pytest.approx(np.full(20, waited), abs=1e-9)


def test_a_class_fit_to_its_own_model_changes_little() -> None:
    cells = [gemm_cell(CLASS), vector_cell(CLASS), gemm_cell(CLASS, "t4"), vector_cell(CLASS, "t4")]
    fit = fit_class(cells, CLASS)
    assert fit.unconverged == ()
    assert fit.parameters.gemm.vector_efficiency == pytest.approx(
        CLASS.gemm.vector_efficiency, rel=0.03
    )
    assert fit.parameters.memory.hbm_efficiency == pytest.approx(
        CLASS.memory.hbm_efficiency, rel=0.03
    )
    ours, others = fit.parameters.dispatch, fit.parameters.other_dispatch
    launched_s = ours.contraction_s - ours.trailing_s  # no rows of another vendor
    assert others.contraction_s == pytest.approx(launched_s, rel=1e-3)


def test_a_device_fit_is_an_overlay_that_predicts_its_rows(tmp_path: Path) -> None:
    truth = CLASS.with_values(
        {
            "gemm.vector_efficiency": 0.75,
            "memory.hbm_efficiency": 0.8,
            "dispatch.contraction_s": 7e-5,
        }
    )
    cells = [gemm_cell(truth, count=1500, noise=0.02), vector_cell(truth), gemm_cell(CLASS, "t4")]
    fit = fit_device("v100-pcie-32gb", cells, CLASS)
    overlay = read_fitted(write_overlay(fit.overlay, tmp_path))
    assert overlay.rows == 1750
    own = CLASS.with_overlay(overlay)
    costs = cells[0].kernels.costs(own)
    errors = np.abs(np.log(cells[0].measured_s / cells[0].kernels.call_s(costs, own)))
    assert np.median(errors) < 0.03
    spread = overlay.families["gemm fp32"].log_sigma
    assert 0.75 < (errors < 1.645 * spread).mean() <= 1.0
    assert own.tier is ParameterTier.FITTED


@pytest.mark.parametrize(("device", "keeps"), [("t4", True), ("v100-pcie-32gb", False)])
def test_boards_far_over_their_limit_keep_the_energy_of_the_class(
    device: str, *, keeps: bool
) -> None:
    truth = CLASS.with_values(
        {"power.vector_energy_overhead": 1.5 * CLASS.power.vector_energy_overhead}
    )
    fit = fit_device(device, [gemm_cell(truth, device, count=400, octaves=(11, 13))], CLASS)
    fitted = fit.overlay.parameters["power.vector_energy_overhead"]
    assert (fitted == CLASS.power.vector_energy_overhead) is keeps


def test_the_clock_of_repeats_is_told_apart_from_the_board() -> None:
    truth = CLASS.with_values({"power.isolated_ratio": 0.85})
    cells = [gemm_cell(truth, "t4", count=400, octaves=(9, 13))]
    fitted = fit_device("t4", cells, CLASS).overlay.parameters
    assert fitted["power.isolated_ratio"] == pytest.approx(0.85, abs=0.06)
    assert fitted["power.vector_energy_overhead"] == CLASS.power.vector_energy_overhead
    unthrottled = fit_device("v100-pcie-32gb", [gemm_cell(CLASS)], CLASS).overlay.parameters
    assert unthrottled["power.isolated_ratio"] == CLASS.power.isolated_ratio


@pytest.mark.parametrize(("device", "is_slower"), [("t4", True), ("a100-pcie-40gb", False)])
def test_the_clock_of_repeats_is_that_of_long_kernels_timed_alone(
    device: str, *, is_slower: bool
) -> None:
    hot = CLASS.with_values({"power.isolated_ratio": 0.85})
    alone = gemm_cell(CLASS, device, octaves=(6, 13)).kernels
    before, after = (alone.costs(parameters).time_s for parameters in (CLASS, hot))
    assert (after >= before).all()
    assert (after[before > 5e-3] > 1.05 * before[before > 5e-3]).any() is np.bool_(is_slower)
    assert after[before < 2e-5] == pytest.approx(before[before < 2e-5], rel=0.02)
    models = replace(
        alone, execution=Execution.GRAPH
    )  # in a model or a loop without pauses it says nothing
    assert models.costs(hot).time_s.tolist() == models.costs(CLASS).time_s.tolist()


def test_rows_of_no_device_are_refused() -> None:
    with pytest.raises(InputError, match="a100-pcie-40gb"):
        fit_device("a100-pcie-40gb", [gemm_cell(CLASS)], CLASS)


def test_a_solver_cut_short_says_so() -> None:
    target = {"x": 5.0}
    found = solve(
        lambda v: [np.log(np.full(50, target["x"]) / v["x"]) ** 3],
        {"x": 1.0},
        {"x": Prior(0.1, 10)},
        max_evaluations=1,
    )
    assert not found.has_converged


@given(st.floats(0.2, 5.0))
@settings(max_examples=20, deadline=None)
def test_a_solver_finds_a_ratio_within_its_range(ratio: float) -> None:
    found = solve(
        lambda v: [np.full(400, np.log(ratio / v["x"]))], {"x": 1.0}, {"x": Prior(0.5, 2.0, 3.0)}
    )
    assert found.values["x"] == pytest.approx(np.clip(ratio, 0.5, 2.0), rel=0.05)


@given(st.floats(-5, 5), st.floats(0.01, 1))
def test_robust_residuals_keep_their_sign_and_never_grow(residual: float, scale: float) -> None:
    found = float(robust(np.array([residual]), scale)[0])
    assert abs(found) <= abs(residual) + 1e-7  # the square root of a small difference
    assert found * residual >= 0


def test_a_chip_leaves_with_all_its_boards() -> None:
    names = ("v100-pcie-32gb", "v100-sxm2-16gb", "t4", "p100-sxm2-16gb")
    cells = [gemm_cell(CLASS, name, 5) for name in names[:3]]
    assert [chip_of(name) for name in names] == ["v100", "v100", "t4", "p100"]
    assert [len(cell) for cell in limited(cells, 3, np.random.default_rng(0))] == [3, 3, 3]


def test_spreads_cover_nine_of_ten_rows() -> None:
    cell = gemm_cell(CLASS, count=800, noise=0.1)
    family = family_residuals(family_parts(cell, CLASS))["gemm fp32"]
    assert family.log_sigma == pytest.approx(0.1, rel=0.15)
    assert family.shared_log_sigma == pytest.approx(IN_MODEL_LOG_SIGMA, abs=0.02)
    assert family.rows == 800


FAMILY = FamilyResidual(100, 0.1, 0.1, 0.04, 0.05, 0.15, (1e8, 1e12), (1e5, 1e9))


def test_spreads_widen_outside_the_measured_sizes() -> None:
    graph = gemm_cell(CLASS, count=200).graph
    count = len(graph)
    formula = RowSpread(np.full(count, 0.5), np.full(count, np.nan), np.zeros(count))
    spread = row_spread(graph, {"gemm fp32": FAMILY}, formula, np.ones(count))
    inside = (
        (graph.flop >= 1e8) & (graph.flop <= 1e12) & (graph.bytes >= 1e5) & (graph.bytes <= 1e9)
    )
    assert np.allclose(spread.log_sigma[inside], 0.1)
    assert (spread.log_sigma[~inside] > 0.1).all()
    assert ((spread.extrapolation_decades > 0) == ~inside).all()
    assert np.allclose(row_spread(graph, {}, formula, np.ones(count)).log_sigma, 0.5)


@given(st.integers(1, 40), st.floats(0.01, 0.5), st.floats(0, 1))
def test_shared_errors_do_not_average_out_and_own_errors_do(
    count: int, sigma: float, part: float
) -> None:
    kind, time_s = np.zeros(count, dtype=np.int16), np.linspace(1.0, 1.001, count)
    sigmas, shared = np.full(count, sigma), np.full(count, sigma * part)
    whole = run_log_sigma(kind, time_s, sigmas, shared)
    expected = np.sqrt((sigma * part) ** 2 + (sigma**2 - (sigma * part) ** 2) / count)
    assert whole == pytest.approx(expected, rel=1e-2)
    assert run_log_sigma(kind, time_s, sigmas, None) == pytest.approx(sigma)


def test_class_files_keep_their_comments_and_sources() -> None:
    text = "# why\nparameters:\n  a: {value: 1.0, source: fit}\n  b: {value: 2, source: data}\n"
    assert class_text(text, {"a": 3e-6}) == text.replace("1.0", "3.0e-06")


def test_a_left_out_set_is_a_whole_set(tmp_path: Path) -> None:
    changed = CLASS.with_values({"gemm.vector_efficiency": 0.7})
    path = write_left_out("t4", changed, {"gemm fp32": FAMILY}, tmp_path)
    read = read_parameters(path)
    assert read.gemm.vector_efficiency == 0.7
    assert read.families == {"gemm fp32": FAMILY}


def test_no_card_has_a_part_in_its_own_stack_ratio() -> None:
    entry = read_mapping(DATA / "older-stacks.yaml")["stacks"]["torch7 cudnn 5.1"]
    cards = entry["without"]
    logs = {
        card: np.log(entry["value"]) * len(cards) - np.log(ratio) * (len(cards) - 1)
        for card, ratio in cards.items()
    }
    for card, ratio in cards.items():
        others = [value for other, value in logs.items() if other != card]
        assert ratio == pytest.approx(np.exp(np.mean(others)), rel=5e-3)
        assert parameters().older_stack_ratio("torch7 cudnn 5.1", card) == ratio
    assert parameters().older_stack_ratio("torch7 cudnn 5.1", "h100-sxm-80gb") == entry["value"]
    assert parameters().older_stack_ratio("", "gtx-1080") == 1.0
    assert parameters().older_stack_ratio("another", "gtx-1080") == 1.0


@pytest.mark.parametrize("converged", [True, False])
def test_a_fit_that_does_not_converge_keeps_the_previous_overlay_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, converged: bool
) -> None:
    fit = DeviceFit(
        fit_device("t4", [gemm_cell(CLASS, "t4", 60)], CLASS).overlay,
        () if converged else ("gemm",),
    )
    monkeypatch.setattr(refit, "fit_device", lambda *_args, **_named: fit)
    kept = refit.refit_device("t4", [], tmp_path, lambda _line: None)
    assert kept == ([] if converged else ["t4.yaml, gemm"])
    assert (tmp_path / "t4.yaml").is_file() is converged


def test_the_command_names_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--data", str(tmp_path / "nowhere")]) == 1
    assert "nowhere" in capsys.readouterr().err
