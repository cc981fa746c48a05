"""Rows of a system given back correct its others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from accelsim.scoreboard.scored_rows import ScoredRows
from accelsim.workloads.graph import FloatArray
from tools.scoreboard.learning import is_worse, learnt, systems_of, table


def _rows(measured_s: FloatArray) -> ScoredRows:
    """Rows of one board predicted as 1 s, with intervals of a factor of 1.5."""
    count = len(measured_s)
    ones, texts = np.ones(count), np.full(count, "one")
    return ScoredRows(
        device="board",
        profile="board",
        tier="spec",
        note="",
        group=texts,
        label=np.arange(count).astype(str),
        setting=np.full(count, "inference 16-bit transformer"),
        origin=texts,
        measured_s=measured_s,
        predicted_s=ones,
        low_s=ones / 1.5,
        high_s=ones * 1.5,
        roofline_s=ones,
        refusal="",
        used_in_fit=0,
        views=(),
    )


def test_a_shared_error_shrinks_with_the_rows_given() -> None:
    systems = list(systems_of([_rows(np.full(20, 1.3))], "suite"))
    found = [learnt(systems, given) for given in (1, 3, 10)]
    errors = [row.error for row in found if row is not None]
    assert len(errors) == 3
    assert all(before == pytest.approx(0.3 / 1.3) for before, _ in errors)
    assert errors[0][0] > errors[0][1] > errors[1][1] > errors[2][1]


def test_rows_equal_to_the_prediction_change_no_mean_and_narrow() -> None:
    found = learnt(list(systems_of([_rows(np.ones(10))], "suite")), 5)
    assert found is not None
    assert found.error == (0.0, 0.0)
    assert found.width[0] == pytest.approx(1.5 - 1 / 1.5)
    assert found.width[1] < found.width[0]
    assert found.worse == 0


def test_a_system_with_no_row_left_is_not_scored() -> None:
    systems = list(systems_of([_rows(np.full(3, 1.2))], "suite"))
    assert learnt(systems, 3) is None
    assert learnt(systems, 2) is not None


def test_rows_without_prediction_or_interval_are_left_out() -> None:
    rows = _rows(np.full(4, 1.2))
    low, high = rows.low_s.copy(), rows.high_s.copy()
    low[0] = high[0] = np.nan
    (system,) = systems_of([replace(rows, low_s=low, high_s=high)], "suite")
    assert len(system.log_ratio) == 3


def test_a_system_is_worse_if_its_error_grows_beyond_its_interval() -> None:
    """Exact predictions of spread 0.1: half of a 90 % interval is sinh(0.164) = 0.165."""
    ratio, sigma = np.zeros(2), np.full(2, 0.1)
    assert not is_worse(np.array([ratio, sigma, sigma, np.full(2, 0.15)]))
    assert is_worse(np.array([ratio, sigma, sigma, np.full(2, 0.20)]))


def test_the_same_rows_give_the_same_line_again() -> None:
    systems = list(systems_of([_rows(np.linspace(0.8, 1.4, 12))], "suite"))
    rows = [row for row in (learnt(systems, 3), learnt(systems, 3)) if row is not None]
    first, second = table({"family": rows}).splitlines()[2:]
    assert first == second
