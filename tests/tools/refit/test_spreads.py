"""Spreads of families over chips: known truths are found again, and intervals cover what they
claim.
"""

from collections.abc import Iterable

import numpy as np
import pytest

from accelsim import catalog
from accelsim.calibration.fit.residuals import FamilyPart, family_residuals
from accelsim.confidence.residual import (
    IN_MODEL_LOG_SIGMA,
    KIND_CORRELATION,
    MATRIX_CORES,
    FamilyResidual,
    RowSpread,
    family_rows,
    path_of,
    row_spread,
    run_log_sigma,
)
from accelsim.cost.gpu import GpuMachine, GpuParameters, cost_gpu
from accelsim.cost.gpu.condition import EARLY, OTHER_VENDOR, SLOT_POWERED, board_conditions
from accelsim.dtype import Dtype
from accelsim.workloads.graph import OperatorGraph
from accelsim.workloads.operator import OperatorKind
from tools.refit.class_residuals import class_residuals
from tools.scoreboard.operator_columns import Window, conv_graph, gemm_graph

Z90 = 1.645
GEMM = "gemm fp32"


def cell(
    chip: str,
    residual: np.ndarray,
    *,
    family: str = GEMM,
    condition: str = "",
    group: str = "product",
    path: str = "",
) -> FamilyPart:
    count = len(residual)
    size = np.geomspace(1e6, 1e12, count)
    return FamilyPart(
        chip=chip,
        board=condition,
        family=family,
        group=group,
        path=path,
        condition=condition if group == "product" else "",
        log_residual=residual,
        is_long=np.ones(count, dtype=np.bool_),
        flop=size,
        bytes=size,
    )


def chips(
    random: np.random.Generator, count: int, bias: float, own: float, rows: int = 60
) -> list[FamilyPart]:
    """Chips with a shared normal bias and rows scattered around it."""
    return [
        cell(f"chip{i}", bias * random.normal() + own * random.normal(size=rows))
        for i in range(count)
    ]


def mean_shared(random: np.random.Generator, count: int, bias: float, own: float = 0.1) -> float:
    found = [
        class_residuals(chips(random, count, bias, own))[GEMM].shared_log_sigma for _ in range(40)
    ]
    return float(np.mean(found))


def test_a_bias_of_chips_is_found_and_rows_scatter_is_no_bias() -> None:
    random = np.random.default_rng(1)
    assert mean_shared(random, 12, 0.0) == pytest.approx(IN_MODEL_LOG_SIGMA, abs=0.02)
    assert mean_shared(random, 12, 0.2) == pytest.approx(
        np.hypot(0.2, IN_MODEL_LOG_SIGMA), rel=0.25
    )


def test_intervals_of_a_chip_left_out_cover_nine_of_ten() -> None:
    """Rows, and sums of many rows, of a chip no spread has seen."""
    random = np.random.default_rng(2)
    rows, sums = [], []
    for _ in range(150):
        *seen, new = chips(random, 8, 0.15, 0.1)
        family = class_residuals(seen)[GEMM]
        rows.append(np.mean(np.abs(new.log_residual) <= Z90 * family.log_sigma))
        time_s = np.exp(new.log_residual)
        sigma = run_log_sigma(
            np.zeros(60, dtype=np.int64),
            np.linspace(1.0, 1.01, 60),
            np.full(60, family.log_sigma),
            np.full(60, family.shared_log_sigma),
        )
        sums.append(abs(np.log(time_s.mean())) <= Z90 * sigma)
    assert 0.85 <= np.mean(rows) <= 0.95
    assert 0.85 <= np.mean(sums) <= 0.97


def test_a_shared_bias_does_not_average_out_over_a_model() -> None:
    """Were the rows of a chip taken as independent, sums of 60 of them would lie far outside their
    interval.
    """
    random = np.random.default_rng(3)
    family = class_residuals(chips(random, 30, 0.15, 0.05))[GEMM]
    sigma = np.full(60, family.log_sigma)
    kind, time_s = np.zeros(60, dtype=np.int64), np.linspace(1.0, 1.01, 60)
    honest = run_log_sigma(kind, time_s, sigma, np.full(60, family.shared_log_sigma))
    naive = run_log_sigma(kind, time_s, sigma, np.zeros(60))
    biases = 0.15 * random.normal(size=4000)
    assert np.mean(np.abs(biases) <= Z90 * honest) == pytest.approx(0.9, abs=0.07)
    assert np.mean(np.abs(biases) <= Z90 * naive) < 0.3


def test_widths_shrink_with_more_chips_in_the_tails_of_chance() -> None:
    """With few chips the width of a left-out chip's interval varies more, and its upper tail is
    wider.
    """
    random = np.random.default_rng(4)

    def upper(count: int) -> float:
        found = [
            class_residuals(chips(random, count, 0.2, 0.1))[GEMM].shared_log_sigma
            for _ in range(60)
        ]
        return float(np.quantile(found, 0.9))

    few, many = upper(3), upper(20)
    assert many < few


def test_heavy_tails_widen_the_interval_beyond_the_root_mean_square() -> None:
    random = np.random.default_rng(5)

    def scaled(heavy: bool) -> float:
        """90 % half width over the root mean square of the biases."""
        ratios = []
        for _ in range(40):
            drawn = random.standard_t(2, size=12) if heavy else random.normal(size=12)
            own = [
                cell(f"chip{i}", 0.1 * b + 0.01 * random.normal(size=60))
                for i, b in enumerate(drawn)
            ]
            ratios.append(
                class_residuals(own)[GEMM].shared_log_sigma / np.sqrt(np.median((0.1 * drawn) ** 2))
            )
        return float(np.median(ratios))

    assert scaled(heavy=True) > 1.2 * scaled(heavy=False)


def test_boards_with_a_condition_keep_their_spread_to_themselves() -> None:
    random = np.random.default_rng(6)
    plain = chips(random, 6, 0.05, 0.05)
    odd = [
        cell(f"slot{i}", 0.5 + 0.2 * random.normal(size=60), condition=SLOT_POWERED)
        for i in range(2)
    ]
    found = class_residuals([*plain, *odd])
    alone = class_residuals(plain)[GEMM]
    assert found[GEMM].shared_log_sigma == pytest.approx(alone.shared_log_sigma, rel=1e-6)
    assert found[f"{GEMM} {SLOT_POWERED}"].shared_log_sigma > 2 * found[GEMM].shared_log_sigma
    assert found[f"product {SLOT_POWERED}"].shared_log_sigma > 2 * found["product"].shared_log_sigma


def test_data_sets_of_one_device_that_disagree_widen_all_its_products() -> None:
    random = np.random.default_rng(7)

    def shared(biases: Iterable[float]) -> float:
        own = [cell("t4", bias + 0.05 * random.normal(size=60)) for bias in biases]
        return family_residuals(
            [*own, cell("t4", 0.05 * random.normal(size=60), family="batched_gemm fp32")]
        )["batched_gemm fp32"].shared_log_sigma

    assert shared([0.0, 0.0]) == pytest.approx(IN_MODEL_LOG_SIGMA, abs=0.01)
    assert shared([0.2, -0.2]) > IN_MODEL_LOG_SIGMA + 0.02


def test_one_run_on_a_board_fed_by_its_slot_is_one_sample() -> None:
    random = np.random.default_rng(8)
    exact = 0.02 * random.normal(size=200)
    held = family_residuals([cell("v100", exact)])[GEMM].shared_log_sigma
    limited = family_residuals([cell("t4", exact, condition=SLOT_POWERED)])[GEMM].shared_log_sigma
    assert held == pytest.approx(IN_MODEL_LOG_SIGMA, abs=0.01)
    assert limited == pytest.approx(0.15, abs=0.01)


def test_conditions_of_known_boards() -> None:
    def found(name: str) -> tuple[str, str]:
        return board_conditions(catalog.device(name))

    assert found("t4") == found("p4") == found("l4") == (SLOT_POWERED, "")
    assert found("p100-pcie-16gb") == found("m40-24gb") == (EARLY, "")
    assert found("mi100") == (OTHER_VENDOR, OTHER_VENDOR)
    assert found("h100-sxm-80gb") == ("", "")


def entry(sigma: float, shared: float) -> FamilyResidual:
    return FamilyResidual(100, sigma, sigma, shared, 0.05, 0.15, (0.0, 1e18), (0.0, 1e18))


def columns(count: int = 3) -> np.ndarray:
    return np.full(count, 1024.0)


def test_own_rows_come_first_then_surfaces_then_boards_alike_then_the_group() -> None:
    size = columns()
    graph = gemm_graph(
        np.ones(3), size, size, size, Dtype.FP32, batched=np.zeros(3, dtype=np.bool_)
    )
    alike = {GEMM: entry(0.2, 0.1), f"{GEMM} {EARLY}": entry(0.4, 0.3), "product": entry(0.5, 0.25)}
    surface = np.array([np.nan, 0.06, np.nan])

    def shared(families: dict[str, FamilyResidual], condition: str = "") -> list[float]:
        formula = RowSpread(np.full(3, 0.35), surface, np.zeros(3))
        found = row_spread(graph, families, formula, np.ones(3), (condition, ""))
        return found.shared_log_sigma.tolist()

    assert shared(alike) == pytest.approx([0.1, 0.06, 0.1])
    assert shared(alike, EARLY) == pytest.approx([0.3, 0.06, 0.3])
    own = {
        **alike,
        GEMM: FamilyResidual(
            100, 0.2, 0.2, 0.07, 0.05, 0.15, (0.0, 1e18), (0.0, 1e18), is_own=True
        ),
    }
    assert shared(own, EARLY) == pytest.approx([0.07, 0.07, 0.07])
    assert shared({"product": entry(0.5, 0.1)}) == pytest.approx(
        [0.25, 0.06, 0.25]
    )  # of another format
    assert shared({"product": entry(0.5, 0.4)}) == pytest.approx([0.4, 0.06, 0.4])
    assert shared({}) == pytest.approx([0.35, 0.06, 0.35])


def convolution(dtype: Dtype) -> OperatorGraph:
    size, three, one = columns(1), np.full(1, 3.0), np.ones(1)
    return conv_graph(
        OperatorKind.CONV,
        one,
        (size, size),
        (size, size),
        Window((three, three), (one, one), one),
        dtype,
    )


def test_rows_of_matrix_cores_take_the_spread_of_their_path() -> None:
    """In a format nobody measured; of the group where no board measured the path, and nothing of it
    where no rows tell.
    """
    group = {"convolution": entry(0.3, 0.2), f"convolution {MATRIX_CORES}": entry(0.4, 0.1)}
    cores = np.zeros(len(Dtype), dtype=np.bool_)
    cores[Dtype.INT8] = True

    def spread(dtype: Dtype, families: dict[str, FamilyResidual]) -> tuple[float, float]:
        formula = RowSpread(np.array([0.5]), np.array([np.nan]), np.zeros(1))
        found = row_spread(convolution(dtype), families, formula, np.ones(1), on_matrix_cores=cores)
        return float(found.log_sigma[0]), float(found.shared_log_sigma[0])

    assert spread(Dtype.INT8, group) == (0.4, 0.1)
    assert spread(Dtype.FP32, group) == (0.3, 0.2)
    assert spread(Dtype.INT8, {"convolution": entry(0.3, 0.2)}) == (0.3, 0.2)
    assert spread(Dtype.INT8, {}) == (0.5, 0.5)


def test_contractions_alone_have_a_path_and_boards_differ_in_it() -> None:
    def path(board: str, kind: OperatorKind, dtype: Dtype) -> str:
        machine = GpuMachine.of(catalog.device(board), GpuParameters.class_wide())
        return path_of(int(kind), int(dtype), machine.uses_matrix_cores)

    assert (
        path("t4", OperatorKind.CONV, Dtype.FP16)
        == path("t4", OperatorKind.GEMM, Dtype.INT8)
        == MATRIX_CORES
    )
    assert (
        path("t4", OperatorKind.CONV_BACKWARD_DATA, Dtype.FP32)
        == path("p100-pcie-16gb", OperatorKind.CONV, Dtype.FP16)
        == ""
    )
    assert path("t4", OperatorKind.SOFTMAX, Dtype.FP16) == ""
    assert path_of(int(OperatorKind.GEMM), int(Dtype.FP16), None) == ""


def test_a_path_of_few_chips_is_drawn_toward_its_group_and_a_measured_one_stands_alone() -> None:
    random = np.random.default_rng(6)

    def shared(matrix_chips: int) -> tuple[float, float]:
        lanes = [
            cell(
                f"chip{i}",
                0.3 + 0.05 * random.normal(size=60),
                group="convolution",
                family="conv fp32 w9",
            )
            for i in range(8)
        ]
        matrix = [
            cell(
                f"new{i}",
                0.05 * random.normal(size=60),
                group="convolution",
                family="conv fp16 w9",
                path=MATRIX_CORES,
            )
            for i in range(matrix_chips)
        ]
        found = class_residuals([*lanes, *matrix])
        return found["convolution"].shared_log_sigma, found[
            f"convolution {MATRIX_CORES}"
        ].shared_log_sigma

    few, many = shared(2), shared(30)
    assert few[0] > 0.27
    assert 0.15 < few[1] < few[0]
    assert many[1] < 0.5 * few[1]


def test_convolutions_have_a_family_per_window() -> None:
    size = columns(4)
    kernel = np.array([1.0, 3.0, 3.0, 7.0])
    graph = conv_graph(
        OperatorKind.CONV,
        size,
        (size, size),
        (size, size),
        Window((kernel, kernel), (size * 0, size * 0), size / size),
        Dtype.FP16,
    )
    rows = family_rows(graph)
    assert {name: index.tolist() for name, index in rows.items()} == {
        "conv fp16 w1": [0],
        "conv fp16 w9": [1, 2],
        "conv fp16 w49": [3],
    }


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.9, 0.1)])
def test_kinds_share_part_of_their_bias(shares: Iterable[float]) -> None:
    time_s = np.array(list(shares))
    sigma = run_log_sigma(np.array([0, 1]), time_s, np.full(2, 0.1), None)
    independent = 0.1 * np.linalg.norm(time_s)
    assert sigma**2 == pytest.approx(
        (1 - KIND_CORRELATION) * independent**2 + KIND_CORRELATION * 0.01
    )


def test_a_shape_far_outside_what_was_measured_widens_and_says_so() -> None:
    sizes = np.array([2048.0, 2048.0, 200_000.0])
    graph = gemm_graph(
        np.ones(3), sizes, sizes, sizes, Dtype.FP32, batched=np.zeros(3, dtype=np.bool_)
    )
    table = cost_gpu(graph, catalog.device("v100-pcie-32gb"), parameters=GpuParameters.class_wide())
    assert table.extrapolation_decades is not None
    assert table.extrapolation_decades[2] > 1 > table.extrapolation_decades[0] == 0
    assert table.log_sigma[2] > table.log_sigma[0]
