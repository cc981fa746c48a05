"""The spread of a whole run from the spreads of its rows: closed forms, and errors drawn as the
model says they are.
"""

from __future__ import annotations

import numpy as np
import pytest
from operator_cases import conv, gemm, row

from accelsim.confidence.residual import (
    KIND_CORRELATION,
    LONG_S,
    SIGMA_PER_DECADE,
    FamilyResidual,
    RowSpread,
    family_rows,
    row_spread,
    run_log_sigma,
)
from accelsim.workloads.graph import concatenate
from accelsim.workloads.operator import OperatorKind as K


def sigma_of(kinds, times, sigmas, shared=None) -> float:
    columns = [
        None if values is None else np.array(values, dtype=float)
        for values in (times, sigmas, shared)
    ]
    return run_log_sigma(np.array(kinds, dtype=np.int16), *columns)


def test_one_row_has_its_own_spread():
    assert sigma_of([0], [2.0], [0.3]) == pytest.approx(0.3)
    assert sigma_of([0], [2.0], [0.3], [0.1]) == pytest.approx(0.3)


def test_what_two_kinds_share_is_correlated_by_a_fifth():
    assert KIND_CORRELATION == 0.2
    both = np.sqrt((0.75 * 0.4) ** 2 + (0.25 * 0.8) ** 2 + 2 * 0.2 * 0.3 * 0.2)
    assert sigma_of([0, 1], [3.0, 1.0], [0.4, 0.8]) == pytest.approx(both)


def test_rows_of_one_kind_share_their_error_whatever_their_shape():
    assert sigma_of([0, 0], [3.0, 1.0], [0.4, 0.8]) == pytest.approx(0.75 * 0.4 + 0.25 * 0.8)


def test_rows_of_one_kind_and_time_are_one_shape_and_other_shapes_are_independent():
    own = np.sqrt(0.5**2 - 0.3**2)
    same = sigma_of([0, 0], [1.0, 1.0], [0.5, 0.5], [0.3, 0.3])
    assert same == pytest.approx(0.5)
    other = sigma_of([0, 0], [1.0, 1.0 + 1e-9], [0.5, 0.5], [0.3, 0.3])
    assert other == pytest.approx(np.sqrt(0.3**2 + own**2 / 2))
    kinds = sigma_of([0, 1], [1.0, 1.0], [0.5, 0.5], [0.0, 0.0])
    assert kinds == pytest.approx(0.5 / np.sqrt(2))
    apart = sigma_of(
        [0, 0, 0], [1.0, 2.0, 1.0], [0.5, 0.5, 0.5], [0.0, 0.0, 0.0]
    )  # rows 0 and 2 are one shape
    assert apart == pytest.approx(0.5 * np.sqrt((2 / 4) ** 2 + (2 / 4) ** 2))


def test_no_time_has_no_spread():
    assert sigma_of([0, 1], [0.0, 0.0], [0.5, 0.5]) == 0.0


@pytest.mark.parametrize("unit", [1e-6, 1e3])
def test_the_unit_of_time_does_not_matter(unit):
    kinds, times, sigmas, shared = (
        [0, 0, 1, 2],
        [1.0, 2.0, 3.0, 0.5],
        [0.3, 0.4, 0.2, 0.6],
        [0.1, 0.2, 0.2, 0.0],
    )
    scaled = [unit * value for value in times]
    assert sigma_of(kinds, scaled, sigmas, shared) == pytest.approx(
        sigma_of(kinds, times, sigmas, shared)
    )


def test_errors_drawn_as_the_model_says_spread_as_it_says():
    """Small log-normal errors: a part common to all kinds, one of each kind, one of each shape."""
    generator = np.random.default_rng(0)
    kinds, times = np.array([0, 0, 0, 1, 1, 2]), np.array([1.0, 1.0, 2.0, 3.0, 0.5, 2.5])
    sigmas, shared = (
        np.array([0.05, 0.05, 0.06, 0.04, 0.05, 0.03]),
        np.array([0.03, 0.03, 0.03, 0.02, 0.02, 0.03]),
    )
    shape = np.array([0, 0, 1, 2, 3, 4])  # equal times of one kind are one shape
    count = 40_000
    common = generator.normal(size=(count, 1)) * np.sqrt(KIND_CORRELATION)
    of_kind = generator.normal(size=(count, 3))[:, kinds] * np.sqrt(1 - KIND_CORRELATION)
    of_shape = generator.normal(size=(count, 5))[:, shape]
    logs = shared * (common + of_kind) + np.sqrt(sigmas**2 - shared**2) * of_shape
    total = (times * np.exp(logs)).sum(axis=1)
    predicted = run_log_sigma(kinds.astype(np.int16), times, sigmas, shared)
    assert np.log(total).std() == pytest.approx(predicted, rel=0.02)


# -- families


def family(**changes) -> FamilyResidual:
    values = {
        "rows": 100,
        "log_sigma": 0.2,
        "long_log_sigma": 0.1,
        "shared_log_sigma": 0.05,
        "median_ape_fraction": 0.05,
        "p90_ape_fraction": 0.2,
        "flop": (1e6, 1e9),
        "bytes": (1e3, 1e9),
    }
    return FamilyResidual(**(values | changes))


def spread_of(flop, seconds=1e-4, *, families=None, sigma=0.5, moved=1e6):
    graph = row(K.GEMM, (1, 1, 1, 1), flop=flop, read=moved)
    known = {"gemm fp32": family()} if families is None else families
    formula = RowSpread(np.array([sigma]), np.array([np.nan]), np.zeros(1))
    return row_spread(graph, known, formula, np.array([seconds]))


def test_long_rows_have_a_spread_of_their_own():
    assert LONG_S == 5e-4
    assert spread_of(1e8, 5e-4).log_sigma[0] == pytest.approx(0.2)
    assert spread_of(1e8, 5.01e-4).log_sigma[0] == pytest.approx(0.1)
    assert spread_of(1e8).shared_log_sigma[0] == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("flop", "moved", "decades"),
    [(1e6, 1e6, 0), (1e9, 1e6, 0), (1e11, 1e6, 2), (1e5, 1e6, 1), (1e8, 1e12, 3), (1e10, 1e12, 3)],
)
def test_spreads_grow_by_decades_outside_the_measured_sizes(flop, moved, decades):
    """In quadrature, with the dimension that is farther out."""
    found = spread_of(flop, moved=moved)
    assert found.extrapolation_decades[0] == pytest.approx(decades)
    assert found.log_sigma[0] == pytest.approx(np.hypot(0.2, SIGMA_PER_DECADE * decades))
    assert found.shared_log_sigma[0] == pytest.approx(np.hypot(0.05, SIGMA_PER_DECADE * decades))


def test_rows_without_a_family_keep_their_formulas_spread():
    found = spread_of(1e8, families={})
    assert found.log_sigma[0] == found.shared_log_sigma[0] == 0.5
    assert found.extrapolation_decades[0] == 0


def test_families_are_kinds_formats_and_windows():
    graph = concatenate(
        [
            gemm(8, 8, 8),
            gemm(8, 8, 8, "fp16"),
            conv(1, 4, 4, 8),
            conv(1, 4, 4, 8, kernel=1),
            gemm(4, 4, 4),
        ]
    )
    rows = {name: index.tolist() for name, index in family_rows(graph).items()}
    assert rows == {"gemm fp32": [0, 4], "gemm fp16": [1], "conv fp32 w9": [2], "conv fp32 w1": [3]}


def test_a_family_is_written_and_read_back_and_a_damaged_one_refused():
    known = family()
    assert FamilyResidual.from_mapping(known.to_mapping()) == known
    entry = known.to_mapping()
    assert (
        FamilyResidual.from_mapping(
            {k: v for k, v in entry.items() if k != "long_log_sigma"}
        ).long_log_sigma
        == 0.2
    )
    for change in (
        {"flop": [1e9, 1e6]},
        {"bytes": [-1.0, 1e3]},
        {"flop": [1.0]},
        {"log_sigma": -0.1},
    ):
        with pytest.raises(ValueError, match="numbers must be"):
            FamilyResidual.from_mapping(entry | change)
