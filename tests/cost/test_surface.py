"""Surfaces over the shape: interpolation, names of rows, what a corrected time keeps to, relatives,
loops on one operand.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim import catalog
from accelsim.cost.gpu import GpuMachine, GpuParameters, cost_gpu
from accelsim.cost.gpu.gpu_parameters import LoopConditions
from accelsim.cost.gpu.measured_boards import Board, measured_boards
from accelsim.cost.gpu.relatives import measured_relatives, with_relative_surfaces
from accelsim.cost.gpu.repeated import cached_share
from accelsim.cost.gpu.surface import AXES, coordinates, surface_rows
from accelsim.cost.shape_surface import Surface, surface_from_differences
from accelsim.cost.stack import KernelMaker
from accelsim.cost.surface_file import SurfaceFile, surface_file_name, write_surfaces
from accelsim.cost.table import Execution, ParameterTier, Rows
from accelsim.dtype import Dtype
from accelsim.errors import ProfileError
from accelsim.workloads.operator import DIMENSIONS, OperatorKind
from tools.scoreboard.operator_columns import attention_graph, gemm_graph, vector_graph

KNOTS = (np.array([0.0, 4.0, 10.0]), np.array([5.0, 12.0]), np.array([6.0]))
SURFACE = Surface.of_values(
    KNOTS, np.array([[[0.1], [0.3]], [[-0.2], [0.0]], [[0.4], [1.0]]]), 0.05, 30
)


def gemms(m, n, k, dtype=Dtype.BF16, weight=None):
    m, n, k = (np.atleast_1d(np.asarray(size, dtype=np.float64)) for size in (m, n, k))
    return gemm_graph(
        np.ones(len(m)), m, n, k, dtype, batched=np.zeros(len(m), bool), weight=weight
    )


def h200():
    return catalog.device("h200-sxm-141gb")


def test_a_surface_passes_through_its_knots_and_is_straight_between() -> None:
    at = [np.array([0.0, 4.0, 10.0, 2.0, 7.0]), np.array([5.0, 12.0, 12.0, 5.0, 8.5]), np.zeros(5)]
    expected = [0.1, 0.0, 1.0, (0.1 - 0.2) / 2, (-0.2 + 0.0 + 0.4 + 1.0) / 4]
    assert SURFACE(at) == pytest.approx(expected)


@given(
    st.lists(
        st.tuples(st.floats(-20, 40), st.floats(-20, 40), st.floats(-20, 40)),
        min_size=1,
        max_size=20,
    )
)
@settings(max_examples=50, deadline=None)
def test_a_surface_stays_between_its_values_everywhere(points) -> None:
    columns = [np.array(column) for column in zip(*points, strict=True)]
    values = SURFACE(columns)
    assert values.min() >= SURFACE.flat.min() - 1e-12
    assert values.max() <= SURFACE.flat.max() + 1e-12


def test_the_spread_grows_outside_the_grid_only() -> None:
    spread, shared, decades = SURFACE.spread(
        [np.array([3.0, 12.0, 14.0]), np.full(3, 6.0), np.full(3, 6.0)]
    )
    inside, far, farther = spread
    assert decades.tolist() == pytest.approx([0, 2 * 0.301, 4 * 0.301], abs=0.01)
    assert shared[0] < shared[1] < shared[2]
    assert inside == pytest.approx(0.05)
    assert inside < far < farther


SUM = Surface(
    KNOTS, (((0, 2), np.array([[0.1], [0.2], [0.5]])), ((1,), np.array([0.01, 0.03]))), 0.07, 12
)


def test_a_sum_of_grids_adds_its_terms() -> None:
    at = [np.array([2.0, 10.0]), np.array([5.0, 8.5]), np.zeros(2)]
    assert SUM(at) == pytest.approx([0.15 + 0.01, 0.5 + 0.02])
    assert SUM.with_flat(2 * SUM.flat)(at) == pytest.approx(2 * SUM(at))


@pytest.mark.parametrize("surface", [SUM, SURFACE])
def test_a_surface_of_either_kind_is_put_together_again(surface) -> None:
    read = surface_from_differences(surface.header(), np.append(surface.differences, 7))
    assert type(read) is type(surface)
    assert read.flat == pytest.approx(surface.flat, abs=5e-4)
    assert (read.log_sigma, read.rows) == (surface.log_sigma, surface.rows)


@pytest.mark.parametrize("axes", [[], [[3]], [[]]])
def test_a_damaged_sum_is_refused(axes) -> None:
    with pytest.raises(ValueError, match="axes"):
        surface_from_differences(SUM.header() | {"axes": axes}, SUM.differences)


def test_too_few_values_are_refused() -> None:
    with pytest.raises(ValueError, match="values must be 6"):
        surface_from_differences(SURFACE.header(), SURFACE.differences[:5])


@pytest.mark.parametrize(
    "change",
    [
        {"knots": [[1, 1], [2], [3]]},
        {"log_sigma": -1.0},
        {"rows": -1},
        {"knots": [[0, 1]]},
    ],
)
def test_a_damaged_surface_is_refused(change) -> None:
    with pytest.raises((ValueError, TypeError)):
        surface_from_differences(SURFACE.header() | change, SURFACE.differences)


def test_surfaces_are_written_and_read_back_name_by_name(tmp_path) -> None:
    path = tmp_path / surface_file_name("a-board")
    write_surfaces({"sum": SUM, "grid": SURFACE}, path)
    read = SurfaceFile(path)
    assert list(read) == ["grid", "sum"]
    for name, surface in (("sum", SUM), ("grid", SURFACE)):
        assert np.array_equal(read[name].thousandths, surface.thousandths)
    assert "other" not in read
    assert read.get("other") is None


def test_the_same_surfaces_give_the_same_bytes(tmp_path) -> None:
    paths = [tmp_path / name for name in ("a.npz", "b.npz")]
    for path in paths:
        write_surfaces({"sum": SUM, "grid": SURFACE}, path)
    assert paths[0].read_bytes() == paths[1].read_bytes()


@given(st.lists(st.integers(-100_000, 100_000), min_size=6, max_size=6))
@settings(max_examples=30, deadline=None)
def test_values_of_any_size_survive_the_file(tmp_path_factory, thousandths) -> None:
    path = tmp_path_factory.mktemp("surfaces") / "a.npz"
    write_surfaces({"grid": SURFACE.with_flat(1e-3 * np.array(thousandths))}, path)
    assert SurfaceFile(path)["grid"].thousandths.tolist() == thousandths


@pytest.mark.parametrize("size", [0, 100, 400])
def test_a_damaged_file_of_surfaces_is_named(tmp_path, size) -> None:
    path = tmp_path / "a.npz"
    write_surfaces({"sum": SUM, "grid": SURFACE}, path)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ProfileError, match=r"a\.npz"):
        SurfaceFile(path)["sum"]


@pytest.mark.parametrize(
    ("dtype", "weight", "scale", "name"),
    [
        (Dtype.BF16, None, 0.0, "gemm bf16 w16"),
        (Dtype.FP8, None, 0.0, "gemm fp8 w8"),
        (Dtype.FP8, None, 4 / 128**2, "gemm fp8 w8 scaled"),
        (Dtype.FP4, None, 1 / 16, "gemm fp4 w4 scaled"),
        (Dtype.BF16, Dtype.INT4, 0.0, "gemm bf16 w4"),
    ],
)
def test_a_row_finds_the_surface_of_its_format(dtype, weight, scale, name) -> None:
    graph = gemms(16, 4096, 1024, dtype, weight)
    graph = replace(graph, weight_bytes=graph.weight_bytes + scale * 4096 * 1024)
    assert list(surface_rows(Rows(graph, np.array([0]), OperatorKind.GEMM))) == [name]


def test_prefill_and_decode_have_surfaces_of_their_own() -> None:
    one = np.ones(3)
    graph = attention_graph(
        4 * one,
        (32 * one, 8 * one),
        (np.array([512.0, 1.0, 1.0]), np.array([512.0, 600.0, 600.0])),
        128 * one,
        np.array([0.0, 0.0, 128.0]),
        Dtype.BF16,
        Dtype.FP8,
    )
    rows = Rows(graph, np.arange(3), OperatorKind.ATTENTION)
    found = surface_rows(rows)
    assert {name: part.tolist() for name, (_, part) in found.items()} == {
        "prefill bf16 cache8": [0],
        "decode bf16 cache8": [1],
        "decode bf16 cache8 window": [2],
    }
    assert all(
        len(coordinates(rows, operator)) == len(AXES[operator]) for operator, _ in found.values()
    )
    causal = DIMENSIONS[OperatorKind.ATTENTION].index("causal")
    graph.dims[:, causal] = 0  # an encoder's kernel fills no cache
    assert list(surface_rows(Rows(graph, np.arange(1), OperatorKind.ATTENTION))) == [
        "prefill bf16 cache8 full"
    ]


def test_a_surface_scales_its_rows_and_no_others() -> None:
    graph = gemms([64, 512], [4096, 4096], [4096, 4096])
    flat = Surface.of_values((np.zeros(1),) * 3, np.full((1, 1, 1), np.log(2.0)), 0.03, 10)
    base = GpuParameters.class_wide()
    plain = cost_gpu(graph, h200(), Execution.GRAPH, base)
    twice = cost_gpu(
        graph, h200(), Execution.GRAPH, replace(base, surfaces={"gemm bf16 w16": flat})
    )
    other = cost_gpu(graph, h200(), Execution.GRAPH, replace(base, surfaces={"gemm fp8 w8": flat}))
    assert twice.time_s == pytest.approx(2 * plain.time_s)
    assert other.time_s == pytest.approx(plain.time_s)
    assert twice.energy_j.min() > 0


@pytest.mark.parametrize(
    ("dtype", "name"), [(Dtype.FP16, "gemm bf16 w16"), (Dtype.INT8, "gemm fp8 w8")]
)
def test_a_format_takes_the_surface_of_one_as_wide_where_it_has_none(dtype, name) -> None:
    flat = Surface.of_values((np.zeros(1),) * 3, np.full((1, 1, 1), np.log(3.0)), 0.03, 10)
    base = GpuParameters.class_wide()
    graph = gemms(64, 4096, 4096, dtype)
    plain = cost_gpu(graph, h200(), Execution.GRAPH, base)
    assert cost_gpu(
        graph, h200(), Execution.GRAPH, replace(base, surfaces={name: flat})
    ).time_s == pytest.approx(3 * plain.time_s)


@pytest.mark.parametrize("dtype", [Dtype.BF16, Dtype.FP16])
def test_a_stacks_own_surface_counts_before_those_of_others(dtype) -> None:
    flat = [
        Surface.of_values((np.zeros(1),) * 3, np.full((1, 1, 1), np.log(ratio)), 0.03, 10)
        for ratio in (2.0, 3.0)
    ]
    surfaces = dict(zip(("gemm bf16 w16", "gemm bf16 w16 @vllm"), flat, strict=True))
    base, graph = GpuParameters.class_wide(), gemms(64, 4096, 4096, dtype)
    plain = cost_gpu(graph, h200(), Execution.GRAPH, base).time_s
    for maker, ratio in ((None, 2.0), (KernelMaker("sglang"), 2.0), (KernelMaker("vllm"), 3.0)):
        under = replace(base, surfaces=surfaces, maker=maker)
        assert cost_gpu(graph, h200(), Execution.GRAPH, under).time_s == pytest.approx(
            ratio * plain
        )


@given(st.integers(1, 8192), st.integers(32, 16384), st.integers(32, 16384), st.floats(-8, 3))
@settings(max_examples=40, deadline=None)
def test_no_correction_beats_the_peak(m, n, k, value) -> None:
    flat = Surface.of_values((np.zeros(1),) * 3, np.full((1, 1, 1), value), 0.03, 10)
    parameters = replace(GpuParameters.class_wide(), surfaces={"gemm bf16 w16": flat})
    costs = cost_gpu(gemms(m, n, k), h200(), Execution.GRAPH, parameters)
    peak = GpuMachine.of(h200(), parameters).contraction_flop_per_s[Dtype.BF16]
    assert costs.time_s[0] >= 2.0 * m * n * k / peak * (1 - 1e-9)
    assert costs.time_s[0] >= max(costs.compute_s[0], costs.memory_s[0]) * (1 - 1e-9)


def test_the_cache_serves_what_fits_and_less_the_more_there_is() -> None:
    share = cached_share(np.array([1e5, 1e7, 3e7, 1e8, 1e10]), 50e6)
    assert share[0] == pytest.approx(1.0, abs=1e-6)
    assert share[-1] < 1e-6
    assert (np.diff(share) <= 0).all()
    assert cached_share(np.array([1.0]), 0.0)[0] == 0.0


def loop(cycle_bytes) -> LoopConditions:
    return LoopConditions(cycle_bytes, np.zeros(len(cycle_bytes)))


def test_a_loop_on_one_operand_is_never_slower() -> None:
    graph = gemms([1, 16, 256, 1], [1024, 4096, 8192, 65536], [1024, 4096, 8192, 16384])
    base = GpuParameters.class_wide()
    board = catalog.device("l40s")
    cold = cost_gpu(graph, board, Execution.GRAPH, base).time_s
    hot = cost_gpu(
        graph, board, Execution.GRAPH, replace(base, conditions=loop(graph.bytes))
    ).time_s
    assert (hot <= cold * (1 + 1e-12)).all()
    assert hot[0] < cold[0]
    assert hot[3] == pytest.approx(cold[3])


def test_operands_come_from_memory_where_a_turn_of_the_loop_is_longer_than_the_cache() -> None:
    graph, board = gemms([1, 1], [4096, 4096], [4096, 4096]), catalog.device("l40s")
    base, cache = GpuParameters.class_wide(), board.l2_bytes.value
    cold = cost_gpu(graph, board, Execution.GRAPH, base).time_s
    turned = cost_gpu(
        graph, board, Execution.GRAPH, replace(base, conditions=loop(np.array([0.9, 1.2]) * cache))
    ).time_s
    assert turned[0] < 0.6 * cold[0]
    assert turned[1] == pytest.approx(cold[1], rel=0.01)


def board(name: str) -> Board:
    return Board.of(catalog.device(name))


def test_relatives_are_of_the_same_architecture_and_never_the_board_itself() -> None:
    for name in ("h100-sxm-80gb", "h200-sxm-141gb", "b200-sxm", "gb200", "h100-pcie-80gb"):
        relatives = measured_relatives(board(name))
        assert relatives
        assert sum(relative.weight for relative in relatives) == pytest.approx(1.0)
        assert name not in [relative.board.board.name for relative in relatives]
        assert {relative.board.board.architecture for relative in relatives} == {
            board(name).architecture
        }
    for name in ("t4", "mi300x"):
        assert measured_relatives(board(name)) == ()
        assert (
            with_relative_surfaces(GpuParameters.class_wide(), board(name))
            == GpuParameters.class_wide()
        )


def test_the_nearest_relative_weighs_most() -> None:
    relatives = measured_relatives(board("l40s"))
    assert relatives[0].board.board.name == "rtx-pro-6000-blackwell"
    assert [r.weight for r in relatives] == sorted((r.weight for r in relatives), reverse=True)


def test_a_relatives_surfaces_are_wider_and_the_tier_stays_spec() -> None:
    whole = with_relative_surfaces(GpuParameters.class_wide(), Board.of(h200()))
    nearest = measured_relatives(Board.of(h200()))[0].board
    assert whole.relatives[0] == nearest.board.name
    assert set(nearest.names) <= set(whole.surfaces)
    assert all(
        whole.surfaces[name].log_sigma > nearest.surfaces[name].log_sigma for name in nearest.names
    )
    assert all(
        surface.shared_log_sigma > nearest.surfaces[name].shared_log_sigma
        for name, surface in whole.surfaces.items()
        if name in nearest.names
    )
    assert (
        cost_gpu(gemms(64, 4096, 4096), h200(), Execution.GRAPH, whole).tier is ParameterTier.SPEC
    )


def test_kernels_carry_over_from_relatives_and_power_does_not() -> None:
    own = GpuParameters.class_wide().with_values({"power.matrix_energy_overhead": 9.0})
    whole = with_relative_surfaces(own, board("l40s"))
    assert whole.relatives
    assert whole.power == own.power


def test_a_blend_lies_between_the_surfaces_it_is_made_of() -> None:
    relatives = measured_relatives(board("b200-sxm"))
    assert len(relatives) > 1
    place = [np.log2(np.array([16.0, 512.0, 4096.0])), np.full(3, 12.0), np.full(3, 12.0)]
    whole = with_relative_surfaces(GpuParameters.class_wide(), board("b200-sxm"))
    single = np.array([r.board.surfaces["gemm bf16 w16"](place) for r in relatives])
    mixed = whole.surfaces["gemm bf16 w16"](place)
    assert (single.min(axis=0) - 0.02 <= mixed).all()
    assert (mixed <= single.max(axis=0) + 0.02).all()


def test_a_loop_may_be_faster_than_memory_where_the_cache_serves_it() -> None:
    graph, device = (
        vector_graph(np.array(["mul"]), np.array([1024.0]), np.array([4096.0]), Dtype.BF16),
        catalog.device("l40s"),
    )
    flat = Surface.of_values((np.zeros(1),) * 3, np.zeros((1, 1, 1)), 0.03, 10)
    base = replace(GpuParameters.class_wide(), surfaces={"gemm bf16 w16": flat})
    cold = cost_gpu(graph, device, Execution.GRAPH, base).time_s
    hot = cost_gpu(
        graph, device, Execution.GRAPH, replace(base, conditions=loop(graph.bytes))
    ).time_s
    assert hot[0] < graph.bytes[0] / device.memory_bandwidth_bytes_per_s < cold[0]


def test_a_kernel_that_the_nearest_boards_lack_comes_from_the_nearest_that_have_it() -> None:
    own = board("rtx-pro-6000-blackwell")
    name = "gemm fp4 w4 scaled"
    assert not any(name in relative.board.names for relative in measured_relatives(own))
    having = [
        other for other in measured_boards() if name in other.names and other.board.name != own.name
    ]
    place = [np.log2(np.array([16.0, 512.0, 4096.0])), np.full(3, 12.0), np.full(3, 12.0)]
    single = np.array([other.surfaces[name](place) for other in having])
    mixed = with_relative_surfaces(GpuParameters.class_wide(), own).surfaces[name]
    carried = mixed(place) / 0.5  # each architecture has kernels of its own for block scales
    assert (single.min(axis=0) - 0.02 <= carried).all()
    assert (carried <= single.max(axis=0) + 0.02).all()
    assert mixed.log_sigma > 0.3


@pytest.mark.parametrize(
    ("name", "surface", "part"),
    [
        ("l40s", "gemm bf16 w16", 0.75),
        ("l40s", "prefill bf16 cache16", 1.0),
        ("h200-sxm-141gb", "gemm bf16 w16", 1.0),
    ],
)
def test_gemms_carry_over_beyond_an_architecture_in_part_and_attention_whole(
    name, surface, part
) -> None:
    nearest = measured_relatives(board(name))[0].board.surfaces[surface]
    blended = with_relative_surfaces(GpuParameters.class_wide(), board(name)).surfaces[surface]
    place = [
        column.ravel()
        for column in np.meshgrid(*(axis[::3] for axis in nearest.knots), indexing="ij")
    ]
    relatives = measured_relatives(board(name))
    single = [relative.board.surfaces[surface](place) for relative in relatives]
    whole = np.average(single, axis=0, weights=[relative.weight for relative in relatives])
    assert blended(place) @ whole / (whole @ whole) == pytest.approx(part, abs=0.03)
