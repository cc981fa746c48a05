"""Fits to kernel tables, on small synthetic ones: recovery of a known surface, sums of stages,
expert loads, specs.
"""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim.calibration.overlay import write_overlay
from accelsim.cost.fitted import read_fitted
from accelsim.cost.gpu import GpuParameters, cost_gpu
from accelsim.cost.shape_surface import Surface
from accelsim.cost.table import Execution, ParameterTier
from accelsim.dtype import Dtype
from accelsim.errors import InvalidValueError, UnknownNameError
from accelsim.scoreboard.split import held_out_rows
from accelsim.workloads.operator import OperatorKind
from tools.refit import aiconfigurator_fit
from tools.refit.aiconfigurator_fit import (
    fit_surface,
    kernel_overlay,
    kernel_surfaces,
    parsed_request,
    parsed_requests,
)
from tools.refit.surface_fit import fit_surface_to_sums, knots_within
from tools.scoreboard.aiconfigurator_graphs import kernel_graphs
from tools.scoreboard.aiconfigurator_rows import KernelRows
from tools.scoreboard.expert_load import busiest_device_load, routing_exponent
from tools.scoreboard.operator_columns import gemm_graph


def truth(m, n, k):
    """How the synthetic library departs from the model: slowly with the logarithm of each size."""
    return 0.3 + 0.05 * np.log2(m) - 0.03 * np.log2(n) + 0.2 * np.sin(np.log2(k) / 4.0)


@pytest.fixture(autouse=True)
def no_own_tables(monkeypatch):
    """Stacks have no tables of their own but where a test says so."""
    monkeypatch.setattr(aiconfigurator_fit, "own_rows", lambda *_: iter(()))


@pytest.fixture
def table(monkeypatch):
    """A small GEMM table of an H200 made by the model and a known departure from it, with 2 % of
    scatter.
    """
    sizes = [2.0**p for p in range(5, 14)]
    m, n, k = (column.ravel() for column in np.meshgrid([1.0, 4.0, 16.0, *sizes], sizes, sizes))
    device = aiconfigurator_fit.gpu_of("h200_sxm")
    graph = gemm_graph(np.ones(len(m)), m, n, k, Dtype.BF16, batched=np.zeros(len(m), bool))
    costs = cost_gpu(graph, device, Execution.GRAPH)
    scatter = np.random.default_rng(3).normal(0.0, 0.02, len(m))
    rows = KernelRows(
        system="h200_sxm",
        backend="trtllm",
        version="0",
        kind="gemm",
        sizes={"m": m, "n": n, "k": k},
        formats={"gemm_dtype": np.full(len(m), "bfloat16")},
        words={},
        time_s=costs.time_s * np.exp(truth(m, n, k) + scatter) + costs.dispatch_s,
        held_out=held_out_rows([m, n, k]),
    )
    monkeypatch.setattr(aiconfigurator_fit, "_tables", lambda *_: iter([rows]))
    return SimpleNamespace(rows=rows, graph=graph, device=device)


def test_held_out_rows_of_a_known_library_are_recovered(table) -> None:
    surfaces = kernel_surfaces("h200_sxm")
    parameters = replace(GpuParameters.class_wide(), surfaces=surfaces)
    costs = cost_gpu(table.graph, table.device, Execution.GRAPH, parameters)
    error = np.abs((costs.time_s + costs.dispatch_s) / table.rows.time_s - 1.0)[table.rows.held_out]
    assert np.median(error) < 0.025
    assert 0.85 <= (np.log1p(error) <= 1.645 * costs.log_sigma[table.rows.held_out]).mean() <= 0.97


def test_a_fit_does_not_see_held_out_rows(table) -> None:
    before = kernel_surfaces("h200_sxm")["gemm bf16 w16"].flat
    table.rows.time_s[table.rows.held_out] *= 50.0
    assert kernel_surfaces("h200_sxm")["gemm bf16 w16"].flat == pytest.approx(before)


def test_an_overlay_survives_the_file_and_pins_what_it_corrects(table, tmp_path) -> None:
    overlay = kernel_overlay("h200_sxm")
    assert overlay.rows == (~table.rows.held_out).sum()
    read = read_fitted(write_overlay(overlay, tmp_path))
    assert read.device == "h200-sxm-141gb"
    pinned = read.pinned["gemm.matrix_efficiency"]
    assert pinned == pytest.approx(GpuParameters.class_wide().gemm.matrix_efficiency, rel=1e-3)
    drifted = GpuParameters.class_wide().with_values({"gemm.matrix_efficiency": 0.5})
    assert drifted.with_overlay(read).gemm.matrix_efficiency == pinned


def test_a_stacks_own_table_is_a_surface_under_its_name(table, monkeypatch) -> None:
    own = replace(table.rows, backend="sglang", time_s=2.0 * table.rows.time_s)
    found = {"trtllm": [], "vllm": [], "sglang": [own]}
    monkeypatch.setattr(aiconfigurator_fit, "own_rows", lambda _, backend: iter(found[backend]))
    surfaces = kernel_overlay("h200_sxm").surfaces
    assert set(surfaces) == {"gemm bf16 w16", "gemm bf16 w16 @sglang"}
    doubled = surfaces["gemm bf16 w16 @sglang"].flat - surfaces["gemm bf16 w16"].flat
    assert np.median(doubled) == pytest.approx(np.log(2.0), abs=0.05)


def test_a_table_whose_cells_scatter_is_no_surface_of_a_stack(table, monkeypatch) -> None:
    factor = np.exp(np.random.default_rng(5).normal(0.0, 0.5, len(table.rows)))
    own = replace(table.rows, backend="vllm", time_s=table.rows.time_s * factor)
    monkeypatch.setattr(
        aiconfigurator_fit, "own_rows", lambda _, backend: iter([own] * (backend == "vllm"))
    )
    assert set(kernel_overlay("h200_sxm").surfaces) == {"gemm bf16 w16"}


def test_the_measured_tier_says_so(table, tmp_path) -> None:
    read = read_fitted(write_overlay(kernel_overlay("h200_sxm"), tmp_path))
    assert read.tier is ParameterTier.MEASURED
    parameters = GpuParameters.class_wide().with_overlay(read)
    costs = cost_gpu(table.graph, table.device, Execution.GRAPH, parameters)
    assert costs.tier is ParameterTier.MEASURED


def test_outliers_do_not_bend_a_surface() -> None:
    rng = np.random.default_rng(1)
    place = [rng.uniform(0, 10, 600)]
    residual = 0.1 * place[0] + rng.normal(0, 0.01, 600)
    residual[::20] += 3.0
    surface = fit_surface(
        [knots_within(place[0], [2.0**p for p in range(0, 11, 2)])], place, residual
    )
    assert surface(place) == pytest.approx(0.1 * place[0], abs=0.05)


def test_stages_of_a_sum_are_corrected_together() -> None:
    rng = np.random.default_rng(2)
    places = [[rng.uniform(4, 12, 800)] for _ in range(2)]
    times = [rng.uniform(1e-5, 1e-3, 800) for _ in range(2)]
    fixed = np.full(800, 2e-6)
    measured = fixed + sum(
        t * np.exp(0.05 * p[0] - 0.1) for t, p in zip(times, places, strict=True)
    )
    knots = [
        knots_within(np.concatenate([p[0] for p in places]), [2.0**p for p in range(4, 13, 2)])
    ]
    surface = fit_surface_to_sums(
        Surface.empty(knots), list(zip(places, times, strict=True)), fixed, measured
    )
    total = fixed + sum(t * np.exp(surface(p)) for t, p in zip(times, places, strict=True))
    assert total == pytest.approx(measured, rel=0.02)


def test_a_sum_of_small_grids_recovers_what_is_additive_and_stops_where_rows_end() -> None:
    rng = np.random.default_rng(4)
    place = [rng.uniform(0, 8, 3000) for _ in range(4)]
    truth = 0.1 * place[0] + 0.02 * place[1] * place[2] - 0.3 * np.sin(place[3])
    measured = 1e-4 * np.exp(truth + rng.normal(0, 0.01, 3000))
    knots = [knots_within(column, 2.0 ** np.arange(9)) for column in place]
    empty = Surface.empty(knots, ((0, 3), (1, 2)))
    surface = fit_surface_to_sums(empty, [(place, np.full(3000, 1e-4))], np.zeros(3000), measured)
    assert surface.flat.size == 2 * 81
    assert surface(place) == pytest.approx(truth, abs=0.06)
    beyond = [np.array([column.max() + 3.0]) for column in place]
    edge = [np.array([column.max()]) for column in place]
    assert surface(beyond) == pytest.approx(surface(edge))


def test_outlying_rows_do_not_pull_a_sum_away() -> None:
    rng = np.random.default_rng(5)
    place = [rng.uniform(0, 8, 2000)]
    measured = 1e-4 * np.exp(0.2 * place[0] + rng.normal(0, 0.01, 2000))
    measured[::15] *= 20.0
    empty = Surface.empty([knots_within(place[0], 2.0 ** np.arange(9))], ((0,),))
    surface = fit_surface_to_sums(empty, [(place, np.full(2000, 1e-4))], np.zeros(2000), measured)
    assert surface(place) == pytest.approx(0.2 * place[0], abs=0.05)


@given(
    st.sampled_from([1, 2, 16, 100, 4096]),
    st.sampled_from([(8, 2), (128, 8), (256, 8), (512, 10)]),
    st.sampled_from([1, 2, 8]),
    st.sampled_from([0.0, 1.01, 1.2]),
)
@settings(max_examples=60, deadline=None)
def test_the_busiest_device_has_its_share_and_no_more_than_all(
    tokens, layer, devices, exponent
) -> None:
    experts, top_k = layer
    columns = [np.array([float(value)]) for value in (tokens, top_k, experts, devices, exponent)]
    rows, active = busiest_device_load(*columns)
    total = tokens * top_k
    assert max(total / devices, 1.0) - 1e-9 <= rows[0] <= max(total, 1.0) + 1e-9
    assert 1.0 <= active[0] <= min(experts / devices, max(rows[0], 1.0)) + 1e-9


def test_a_distribution_is_named_or_refused() -> None:
    assert routing_exponent("balanced") == 0.0
    assert routing_exponent("power_law_1.01") == 1.01
    with pytest.raises(InvalidValueError, match="distribution"):
        routing_exponent("lopsided")


def test_a_spec_names_system_backend_and_version() -> None:
    assert parsed_request("aiconfigurator:h200_sxm") == ("h200_sxm", None, None)
    assert parsed_request("aiconfigurator:h200_sxm:vllm") == ("h200_sxm", "vllm", None)
    assert parsed_request("aiconfigurator:h200_sxm:vllm:0.24.0") == ("h200_sxm", "vllm", "0.24.0")
    assert "aiconfigurator:b60" in parsed_requests("aiconfigurator:all")
    assert parsed_requests("aiconfigurator:b60") == ["aiconfigurator:b60"]


@pytest.mark.parametrize(
    "spec",
    ["h200_sxm", "aiconfigurator", "aiconfigurator:", "other:h200_sxm", "aiconfigurator:a:b:c:d"],
)
def test_a_malformed_spec_is_refused(spec) -> None:
    with pytest.raises((InvalidValueError, UnknownNameError)):
        parsed_request(spec)


@pytest.mark.parametrize("spec", ["aiconfigurator:h2000", "aiconfigurator:h200_sxm:vlm"])
def test_an_unknown_part_of_a_spec_is_named(spec) -> None:
    with pytest.raises(UnknownNameError):
        parsed_request(spec)


def times_of(rows: KernelRows, departure):
    """Rows timed as the model says, with a departure of their corrected operators."""
    (kernels,) = kernel_graphs(rows)
    device = aiconfigurator_fit.gpu_of(rows.system)
    parameters = kernels.measured(GpuParameters.class_wide(), device)
    costs = cost_gpu(kernels.graph, device, Execution.GRAPH, parameters)
    stages = costs.time_s.reshape(kernels.stages, len(rows))
    corrected = np.isin(
        kernels.graph.kind.reshape(kernels.stages, -1)[:, 0],
        [OperatorKind.GROUPED_GEMM, OperatorKind.ATTENTION],
    )
    beside = stages[~corrected].sum(axis=0) + kernels.sum_stages(costs.dispatch_s)
    return replace(rows, time_s=stages[corrected].sum(axis=0) * np.exp(departure) + beside)


@pytest.fixture
def layers(monkeypatch):
    """A table of expert layers whose departures jump from one number of tokens to the next, by
    model and routing.
    """
    rng = np.random.default_rng(11)
    models = [
        (2048, 768, 8, 128),
        (4096, 1536, 8, 128),
        (7168, 2048, 8, 256),
        (2880, 2880, 4, 32),
        (5120, 8192, 1, 16),
    ]
    parallel = [(1, 1), (2, 1), (4, 1), (1, 4), (1, 8)]
    routings, tokens = ["balanced", "power_law_1.01", "power_law_1.2"], 2.0 ** np.arange(0, 14)
    grid = np.array(
        [(a, b, c, d) for a in range(5) for b in range(5) for c in range(3) for d in range(14)]
    )
    names = ("hidden_size", "inter_size", "topk", "num_experts")
    sizes = {
        name: np.array(models, dtype=float)[grid[:, 0], place] for place, name in enumerate(names)
    }
    sizes |= {
        "moe_tp_size": np.array(parallel, float)[grid[:, 1], 0],
        "moe_ep_size": np.array(parallel, float)[grid[:, 1], 1],
    }
    sizes["num_tokens"] = tokens[grid[:, 3]]
    steps = (
        rng.normal(0, 0.3, 14)[grid[:, 3]]
        + (rng.normal(0, 0.2, (5, 2)) @ rng.normal(0, 1, (2, 14)))[grid[:, 0], grid[:, 3]]
    )
    departure = steps + rng.normal(0, 0.1, 3)[grid[:, 2]] + rng.normal(0, 0.01, len(grid))
    words = {
        "distribution": np.array(routings)[grid[:, 2]],
        "kernel_source": np.full(len(grid), "fused_moe"),
    }
    held_out = held_out_rows([grid.T[place] for place in range(4)])
    formats = {"moe_dtype": np.full(len(grid), "bfloat16")}
    rows = KernelRows(
        "h200_sxm", "vllm", "0", "moe", sizes, formats, words, np.ones(len(grid)), held_out
    )
    rows = times_of(rows, departure)
    monkeypatch.setattr(aiconfigurator_fit, "_tables", lambda *_: iter([rows]))
    return rows


def held_out_error(rows: KernelRows, surfaces):
    """|predicted / measured - 1| of the rows no fit has seen."""
    (kernels,) = kernel_graphs(rows.take(rows.held_out))
    device = aiconfigurator_fit.gpu_of(rows.system)
    parameters = kernels.measured(replace(GpuParameters.class_wide(), surfaces=surfaces), device)
    costs = cost_gpu(kernels.graph, device, Execution.GRAPH, parameters)
    error = np.abs(kernels.sum_stages(costs.time_s + costs.dispatch_s) / kernels.rows.time_s - 1.0)
    return error, np.abs(np.log1p(error)) <= 1.645 * kernels.log_sigma(costs)


def test_a_sum_of_grids_brings_layers_of_experts_closer_and_knows_how_close(layers) -> None:
    error, covered = held_out_error(layers, kernel_surfaces(layers.system))
    plain, _ = held_out_error(layers, {})
    assert np.median(error) < 0.7 * np.median(plain)
    assert 0.8 < covered.mean() < 0.98


@pytest.fixture
def decoding(monkeypatch):
    """A small whole table of latent decoding whose departures jump between sizes."""
    rng = np.random.default_rng(12)
    batch, keys, heads = (
        column.ravel()
        for column in np.meshgrid(
            2.0 ** np.arange(8), 2.0 ** np.arange(1, 15), 2.0 ** np.arange(3, 8)
        )
    )
    jumps = sum(
        rng.normal(0, 0.2, 20)[np.log2(column).astype(int)] for column in (batch, keys, heads)
    )
    sizes = {"batch_size": batch, "isl": np.ones(len(batch)), "num_heads": heads, "step": keys - 1}
    formats = {
        "mla_dtype": np.full(len(batch), "bfloat16"),
        "kv_cache_dtype": np.full(len(batch), "bfloat16"),
    }
    held_out = held_out_rows([batch, keys, heads])
    rows = KernelRows(
        "l40s", "trtllm", "0", "generation_mla", sizes, formats, {}, np.ones(len(batch)), held_out
    )
    rows = times_of(rows, jumps)
    monkeypatch.setattr(aiconfigurator_fit, "_tables", lambda *_: iter([rows]))
    return rows


def test_a_small_whole_table_is_kept_on_its_own_sizes_in_an_overlay(decoding, tmp_path) -> None:
    error, _ = held_out_error(decoding, kernel_surfaces(decoding.system))
    assert np.median(error) < 0.03
    overlay = kernel_overlay("l40s")
    (surface,) = overlay.surfaces.values()
    assert [len(knots) for knots in surface.knots] == [8, 14, 5, 1]
    (read,) = read_fitted(write_overlay(overlay, tmp_path)).surfaces.values()
    assert read.flat == pytest.approx(surface.flat, abs=6e-4)
