"""Fits recover machines whose kernel times are known in closed form; kernel files are faithful."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch")

from accelsim import catalog
from accelsim.calibration import check as check_module
from accelsim.calibration.calibrate import (
    caches,
    fit_run,
    operator_errors,
    write_calibration,
)
from accelsim.calibration.check import (
    CheckCase,
)
from accelsim.calibration.cpu_fit import (
    at_one_speed,
    fit_kernels,
    kernel_rows,
)
from accelsim.calibration.least_squares import fit_nonnegative
from accelsim.calibration.measurement.captured_rows import (
    captured_row,
    case_graph,
    has_row,
)
from accelsim.calibration.measurement.case import Case
from accelsim.calibration.measurement.suite import operator_suite
from accelsim.calibration.run_file import CalibrationRun, Measurement
from accelsim.cost.cpu import cost_cpu, cpu_parameters
from accelsim.cost.cpu.calibrated import _memory_bytes, parameters_for, read_kernels
from accelsim.cost.cpu.heap import pass_memory
from accelsim.cost.cpu.kernel_terms import TERMS, Context, kernel_terms
from accelsim.cost.cpu.kernels import kernel_names
from accelsim.cost.cpu.threads import THREAD_TERMS
from accelsim.cost.table import ParameterTier
from accelsim.errors import InvalidValueError, ProfileError

ENVIRONMENT = {
    "device": "cpu",
    "cpu_caches": {"L2": "1024K", "L3": "32M"},
    "measured_at": "2026-01-01T00:00:00Z",
}
SMALL_CONVOLUTION = {
    "batch": 5,
    "channels_in": 31,
    "channels_out": 11,
    "groups": 1,
    "kernel": 1,
    "side": 72,
    "stride": 1,
}
FLOP_S, BYTE_S, START_S = 1e-11, 5e-11, 2e-6


def true_time_s(cases):
    """A machine with one rate of arithmetic, one of memory and one start for every operator."""
    graph = case_graph(cases)
    return START_S + FLOP_S * graph.flop + BYTE_S * graph.bytes


def synthetic_run(noise=0.0, spread=0.02, count=2500):
    cases = [c for c in operator_suite("cpu", ("fp32", "bf16"), (1, 2)) if has_row(c)][:count]
    times = true_time_s(cases) * np.where([c.threads == 2 for c in cases], 0.6, 1.0)
    times *= np.exp(noise * np.random.default_rng(1).standard_normal(len(cases)))
    rows = [
        Measurement(
            c, float(t), 0.0, 0, {"minor_faults": 0.0, "undisturbed": True}, row=captured_row(c)
        )
        for c, t in zip(cases, times, strict=True)
    ]
    notes = [{"note": "noise", "spread_fraction": spread}]
    return CalibrationRun(ENVIRONMENT, {"device": "cpu"}, rows, notes, "abc", 0)


@pytest.fixture(scope="module")
def fitted():
    return fit_run(synthetic_run())


def test_fit_recovers_a_linear_machine(fitted):
    figures = {(r["family"], r["threads"], r["dtype"]): r for r in operator_errors(fitted)}
    assert figures["all", 1, "all"]["median_fraction"] < 0.02
    assert figures["all", 1, "all"]["mape_fraction"] < 0.05
    assert figures["all", 2, "all"]["median_fraction"] < 0.10


def test_fitted_machine_predicts_unseen_shapes(fitted):
    cases = [
        Case("gemm", "addmm", {"m": 200, "n": 300, "k": 500}),
        Case("elementwise", "relu", {"elements": 123_456}),
    ]
    device = catalog.device("epyc-9755")
    parameters = replace(
        cpu_parameters(), kernels=fitted.kernels, thread_count=1, weights_cold=False
    )
    table = cost_cpu(case_graph(cases), device, parameters=parameters)
    assert table.tier is ParameterTier.FITTED
    assert table.time_s == pytest.approx(true_time_s(cases), rel=0.05)
    assert (table.time_s >= np.maximum(table.compute_s, table.memory_s)).all()


def test_noise_shows_in_the_spread():
    quiet, noisy = (fit_run(synthetic_run(noise)).kernels for noise in (0.0, 0.2))
    key = ("linear", "fp32", 1)
    assert quiet.fits[key].log_sigma < noisy.fits[key].log_sigma
    assert 0.1 < noisy.fits[key].log_sigma < 0.4


def test_same_rows_same_fit(fitted):
    again = fit_run(synthetic_run()).kernels
    for key, fit in fitted.kernels.fits.items():
        assert (again.fits[key].coefficients == fit.coefficients).all()


def test_a_busy_machine_is_refused_unless_told():
    with pytest.raises(InvalidValueError, match="machine noise"):
        fit_run(synthetic_run(spread=0.9))
    assert fit_run(synthetic_run(spread=0.9), despite_noise=True).kernels.fits


def test_too_few_rows_and_gpu_runs_are_refused():
    run = synthetic_run()
    with pytest.raises(InvalidValueError, match="100 measured rows"):
        fit_run(replace(run, rows=run.rows[:20]))
    with pytest.raises(InvalidValueError, match="CPU"):
        fit_run(replace(run, settings={"device": "cuda:0"}))


def test_files_read_back_and_are_found(fitted, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert parameters_for("local/cpu") is None
    overlay, table = write_calibration(fitted, tmp_path / "accelsim" / "calibration" / "fitted")
    assert overlay.is_file()
    found = parameters_for("local/cpu").kernels
    graph = case_graph(fitted.rows.cases[:200])
    context = Context(*fitted.rows.caches, 0.0, is_training=False, page_fault_bytes=2.0**25)
    expected, read = (k.times(graph, context, 1).time_s for k in (fitted.kernels, found))
    assert read == pytest.approx(expected, rel=5e-3, nan_ok=True)
    assert read_kernels(table).l1_bytes == fitted.kernels.l1_bytes


@pytest.mark.parametrize(
    "change",
    [
        {"version": 9},
        {"kernels": [{}]},
        {"kernels": 3},
        {"l2_bytes": "x"},
    ],
)
def test_a_wrong_kernel_file_is_refused(fitted, tmp_path, change):
    _, table = write_calibration(fitted, tmp_path)
    table.write_text(json.dumps(json.loads(table.read_text()) | change))
    with pytest.raises(ProfileError, match="kernels"):
        read_kernels(table)


def test_caches_of_the_environment():
    assert caches(ENVIRONMENT) == (32.0 * 2**10, 2.0**20, 2.0**25)
    assert caches({}) == (32.0 * 2**10, 2.0**20, 2.0**25)
    assert caches({"cpu_caches": {"L1": "48K"}})[0] == 48.0 * 2**10


def test_a_drifting_clock_is_taken_out():
    """Rows measured while the reference took half as long again count two thirds."""
    case = Case("elementwise", "relu", {"elements": 1000})
    references = [4e-3] * 40 + [6e-3] * 20
    jitter = 1.0 + 1e-3 * np.random.default_rng(0).standard_normal(60)  # no two readings are equal
    rows = [
        Measurement(
            case, 1e-6 * r / 4e-3, 0.0, 0, {"reference_s": float(r * j)}, row=captured_row(case)
        )
        for r, j in zip(references, jitter, strict=True)
    ]
    run = CalibrationRun(ENVIRONMENT, {"device": "cpu"}, rows, [], "abc", 0)
    assert [row.time_s for row in at_one_speed(run)] == pytest.approx([1e-6] * 60, rel=0.01)
    plain = replace(run, rows=[replace(row, details={}) for row in rows])
    assert [row.time_s for row in at_one_speed(plain)] == [row.time_s for row in rows]


@pytest.mark.parametrize(
    ("rounds", "amid", "expected"),
    [
        ([(1.0, 0.02)], False, 1.02),  # the middle block of an undisturbed round
        ([(1.0, 0.02)], True, 1.0),  # a median already
        ([(1.0, 0.0), (1.04, 0.0)], False, 1.02),
        ([(1.0, 0.5), (1.0, 0.0)], False, 1.025),  # a disturbed block adds at most a twentieth
        ([(1.0, 0.0), (9.0, 0.0)], False, 1.05),  # so does a disturbed round
    ],
)
def test_a_call_is_expected_to_take_what_its_rounds_take_in_the_middle(rounds, amid, expected):
    case = Case("elementwise", "relu", {"elements": 1000}, amid=amid)
    rows = [
        Measurement(case, time_s, noise, number, {}, row=captured_row(case))
        for number, (time_s, noise) in enumerate(rounds)
    ]
    run = CalibrationRun(ENVIRONMENT, {"device": "cpu"}, rows, [], "abc", 0)
    assert kernel_rows(run, (48.0 * 2**10, 2.0**20, 2.0**25)).times_s.tolist() == pytest.approx(
        [expected]
    )


def test_amid_others_an_operator_takes_longer():
    """Rows amid others take 3 us more: predicted for a pass that exceeds the inner caches, not for
    one alone.
    """
    run = synthetic_run()
    amid = [
        replace(row, case=replace(row.case, amid=True), time_s=row.time_s + 3e-6)
        for row in run.rows
        if row.time_s
    ]
    fitted = fit_run(replace(run, rows=[*run.rows, *amid]))
    graph = case_graph([Case("gemm", "addmm", {"m": 64, "n": 1024, "k": 512})])
    context = Context(*fitted.rows.caches, 0.0, is_training=False, page_fault_bytes=2.0**25)
    alone, among = (
        fitted.kernels.times(graph, replace(context, evicted=x), 1).time_s[0] for x in (0.0, 1.0)
    )
    assert among - alone == pytest.approx(3e-6, rel=0.35)


def test_a_page_fault_has_one_price_on_several_threads():
    """Elementwise kernels pay what rows on two threads show; others, shown or not, its mean with
    one thread's price.
    """
    run, page_s = synthetic_run(), 4e-10
    rows = []
    for row in run.rows:
        fresh = 8000 if row.case.family in {"elementwise", "gemm"} and row.case.amid is False else 0
        price = page_s * (0.5 if row.case.threads == 2 else 1.0)
        details = dict(row.details, minor_faults=float(fresh))
        rows.append(
            replace(row, details=details, time_s=row.time_s and row.time_s + price * 4096.0 * fresh)
        )
    fits = fit_run(replace(run, rows=rows)).kernels.fits
    one = {
        float(fit.coefficients[TERMS.index("fresh_bytes")])
        for (_, _, threads), fit in fits.items()
        if threads == 1
    }
    assert len(one) == 1
    assert one.pop() == pytest.approx(page_s, rel=0.1)
    column = THREAD_TERMS.index("fresh_bytes")
    two = {key[0]: float(fit.coefficients[column]) for key, fit in fits.items() if key[2] == 2}
    assert two["relu"] == two["add"] == pytest.approx(page_s / 2, rel=0.15)
    assert two["linear"] == two["conv"] == pytest.approx(np.sqrt(page_s * two["relu"]), rel=0.1)


def test_what_no_row_wrote_is_read_from_main_memory():
    graph = case_graph([Case("copy", "clone", {"rows": 512, "middle": 8, "columns": 64})])
    context = Context(
        48.0 * 2**10, 2.0**20, 2.0**25, np.inf, is_training=False, page_fault_bytes=2.0**25
    )
    column = TERMS.index("bytes_beyond_l3")
    assert kernel_terms(graph, context)[0, column] == 0
    assert kernel_terms(graph, replace(context, memory_bytes=1e6))[0, column] == 1e6
    moved = float((graph.read_bytes + graph.write_bytes)[0])
    assert (
        kernel_terms(graph, replace(context, memory_bytes=10 * moved))[0, column] == moved
    )  # each byte comes from there once


def _kernel(dtype: str, **shape: int) -> str:
    sizes = {
        "batch": 4,
        "channels_in": 64,
        "channels_out": 64,
        "side": 28,
        "kernel": 3,
        "groups": 1,
        "stride": 1,
    }
    graph = case_graph([Case("convolution_other", "convolution_1d", sizes | shape, dtype)])
    return str(kernel_names(graph, is_training=False)[0])


def test_operands_leave_the_last_level_cache_with_what_lies_between():
    chain = [
        Case("elementwise", "relu", {"elements": n})
        for n in (100_000, 4_000_000, 4_000_000, 100_000)
    ]
    graph = case_graph(chain)
    graph = replace(
        graph, dependency=np.array([0, 1, 0])
    )  # the last row reads what the first wrote
    memory = pass_memory(graph, 1e6)
    near, far = (
        _memory_bytes(graph, memory, 0.0, cache, can_fault=False)
        for cache in (2.0**30, 4.0 * 2**20)
    )
    assert near == pytest.approx(np.zeros(4))
    assert far[3] == pytest.approx(400_000)
    assert far[1] == 0  # it follows its operand at once
    buffers = _memory_bytes(graph, memory, np.inf, 2.0**30, can_fault=False)
    given = np.array([0.0, graph.write_bytes[0], graph.write_bytes[1], graph.write_bytes[0]])
    assert buffers == pytest.approx(
        graph.write_bytes + np.maximum(graph.read_bytes - given, 0.0), abs=1.0
    )


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's tunables")
def test_a_kept_heap_does_not_fault_where_the_default_one_does():
    # Buffers above 32 MiB always come from the system: with smaller ones glibc learns a threshold.
    case = CheckCase("mobilenet-v2", 32, "fp32", 1)
    faults = {}
    for heap in ("default", "kept"):
        timed = check_module._timed(replace(case, heap=heap), 0.05, "cpu")
        faults[heap] = timed["minor_faults"]
    assert faults["default"] > 200
    assert faults["kept"] < 20


def test_a_kept_heap_is_predicted_without_page_faults():
    cases = [CheckCase("mobilenet-v2", 2, "fp32", 1, heap=heap) for heap in ("default", "kept")]
    default, kept = check_module.predict(cases, catalog.device("local/cpu"), cpu_parameters())
    assert kept.time_s <= default.time_s
    assert kept.case.key == default.case.key + ", heap kept"


# -- numerics


def test_a_term_that_is_hardly_shown_keeps_its_prior():
    """One row in a hundred shows a millionth of what the bytes are, and its residual must not price
    that.
    """
    generator = np.random.default_rng(0)
    moved = np.exp(generator.uniform(10, 16, 100))
    terms = np.column_stack([moved, np.where(moved == moved.max(), 1e-6 * moved, 0.0)])
    times = 1e-10 * moved * np.where(moved == moved.max(), 1.5, 1.0)
    prior, least = np.array([0.0, 2e-10]), np.array([0.0, 0.1 / 1e-10])
    loose, held = (
        fit_nonnegative(terms, times, prior, ridge=1e-6, least_scale=scale)[1]
        for scale in (0.0, least)
    )
    assert loose > 1e-6
    assert held == pytest.approx(2e-10, rel=0.5)


def test_bounded_coefficients_stay_inside():
    generator = np.random.default_rng(0)
    terms = np.exp(generator.uniform(-2, 2, (50, 2)))
    times = terms @ np.array([0.1, 5.0])
    most = np.array([2.0, 3.0])
    found = fit_nonnegative(terms, times, ridge=1e-6, most=most)
    assert (found >= 0).all()
    assert (found <= most + 1e-9).all()
    wide = np.full(2, np.inf)
    assert fit_nonnegative(terms, times, ridge=1e-9, most=wide) == pytest.approx(
        [0.1, 5.0], rel=1e-3
    )


@settings(max_examples=30, deadline=None)
@given(truth=st.lists(st.floats(0.1, 10), min_size=3, max_size=3), seed=st.integers(0, 99))
def test_nonnegative_fit_recovers_exact_sums(truth, seed):
    terms = np.exp(np.random.default_rng(seed).uniform(-3, 3, (60, 3)))
    found = fit_nonnegative(terms, terms @ np.array(truth), ridge=1e-9)
    assert found == pytest.approx(truth, rel=1e-2)


def test_terms_the_rows_do_not_show_keep_their_prior():
    terms = np.column_stack([np.ones(20), np.zeros(20)])
    found = fit_nonnegative(terms, np.full(20, 3.0), np.array([0.0, 7.0]))
    assert found == pytest.approx([3.0, 7.0], rel=1e-2)


# -- laws of the kernel terms
# ----------------------------------------------------------------------------------------

GROWING = {
    "addmm": "m",
    "relu": "elements",
    "native_layer_norm": "rows",
    "lstm": "steps",
    "embedding": "lookups",
}
BASE = {
    "addmm": {"m": 64, "n": 256, "k": 256},
    "relu": {"elements": 1000},
    "native_layer_norm": {"rows": 64, "columns": 512},
    "lstm": {"hidden": 64, "steps": 8, "batch": 4, "input": 64},
    "embedding": {"table": 1000, "width": 64, "lookups": 100},
}


@settings(max_examples=40, deadline=None)
@given(operator=st.sampled_from(sorted(GROWING)), factor=st.integers(2, 5000))
def test_more_work_never_lowers_a_term(operator, factor):
    name = GROWING[operator]
    small = Case("x", operator, BASE[operator])
    large = Case("x", operator, {**BASE[operator], name: BASE[operator][name] * factor})
    context = Context(
        48.0 * 2**10, 2.0**20, 2.0**25, 0.0, is_training=False, page_fault_bytes=2.0**25
    )
    few, many = kernel_terms(case_graph([small, large]), context)
    assert (many >= few).all()


def test_every_measured_operator_has_a_kernel():
    cases = operator_suite("cpu", ("fp32",), (1,))
    assert all(has_row(case) for case in cases)
    assert (kernel_names(case_graph(cases), is_training=False) != "").all()


def _fit_of_comparisons(sizes, time_s):
    """A fit of sums of many sizes, and of comparisons of a few."""
    cases = [Case("elementwise", "mul_scalar", {"elements": 4**n}) for n in range(4, 11)]
    times = [*true_time_s(cases), *map(time_s, sizes)]
    cases += [Case("elementwise", "gt", {"elements": size}) for size in sizes]
    rows = [
        Measurement(case, float(time), 0.0, 0, {}, row=captured_row(case))
        for case, time in zip(cases, times, strict=True)
    ]
    return fit_kernels(
        kernel_rows(
            CalibrationRun({}, {"device": "cpu"}, rows, [], "abc", 0),
            (48.0 * 2**10, 2.0**20, 2.0**25),
        )
    ).fits


@pytest.mark.parametrize(("count", "is_fitted"), [(2, False), (3, True)])
def test_a_kernel_of_fewer_than_three_shapes_has_what_stands_for_it(count, is_fitted):
    fits = _fit_of_comparisons([4**n for n in range(6, 6 + count)], lambda size: 3e-6 + 1e-9 * size)
    assert ("mul_scalar", "fp32", 1) in fits
    assert (("gt", "fp32", 1) in fits) == is_fitted


def test_a_few_large_rows_say_nothing_of_how_a_call_starts():
    """Times that grow less than the work would else be explained by a start of half a
    millisecond.
    """
    fits = _fit_of_comparisons(
        [4**n for n in range(10, 13)], lambda size: 1e-3 * (size / 4**10) ** 0.8
    )
    start = TERMS.index("start")
    assert (
        fits["gt", "fp32", 1].coefficients[start]
        < 20 * fits["mul_scalar", "fp32", 1].coefficients[start]
    )
