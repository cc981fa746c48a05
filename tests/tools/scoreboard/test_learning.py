"""Rows of a system given back correct its others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from accelsim.confidence.hierarchy import Components, Runs
from accelsim.scoreboard.scored_rows import ScoredRows
from accelsim.workloads.graph import FloatArray
from tools.scoreboard.learning import (
    is_worse,
    label_sizes,
    learnt,
    left_out,
    shares_text,
    systems_of,
    table,
)
from tools.scoreboard.learning_fit import fitted_components

#: Half of the variance is a system's.
HALF = {"inference": Components((0.1, 0.1, 0.1, 0.1, 0.1), 0.0, 1.0)}


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
    found = [learnt(systems, given, [HALF]) for given in (1, 3, 10)]
    errors = [row.error for row in found if row is not None]
    assert len(errors) == 3
    assert all(before == pytest.approx(0.3 / 1.3) for before, _ in errors)
    assert errors[0][0] > errors[0][1] > errors[1][1] > errors[2][1]


def test_rows_equal_to_the_prediction_change_no_mean_and_narrow() -> None:
    found = learnt(list(systems_of([_rows(np.ones(10))], "suite")), 5, [HALF])
    assert found is not None
    assert found.error == (0.0, 0.0)
    assert found.width[0] == pytest.approx(1.5 - 1 / 1.5)
    assert found.width[1] < found.width[0]
    assert found.worse == 0


def test_a_system_with_no_row_left_is_not_scored() -> None:
    systems = list(systems_of([_rows(np.full(3, 1.2))], "suite"))
    assert learnt(systems, 3, [HALF]) is None
    assert learnt(systems, 2, [HALF]) is not None


def test_rows_without_prediction_or_interval_are_left_out() -> None:
    rows = _rows(np.full(4, 1.2))
    low, high = rows.low_s.copy(), rows.high_s.copy()
    low[0] = high[0] = np.nan
    (system,) = systems_of([replace(rows, low_s=low, high_s=high)], "suite")
    assert len(system.phases) == 3


def test_a_system_is_worse_if_its_error_grows_beyond_its_interval() -> None:
    """Exact predictions of spread 0.1: half of a 90 % interval is sinh(0.164) = 0.165."""
    ratio, sigma = np.zeros(2), np.full(2, 0.1)
    assert not is_worse(np.array([ratio, sigma, sigma, np.full(2, 0.15)]))
    assert is_worse(np.array([ratio, sigma, sigma, np.full(2, 0.20)]))


def test_the_same_rows_give_the_same_line_again() -> None:
    systems = list(systems_of([_rows(np.linspace(0.8, 1.4, 12))], "suite"))
    rows = [
        row for row in (learnt(systems, 3, [HALF]), learnt(systems, 3, [HALF])) if row is not None
    ]
    first, second = table({"family": rows}).splitlines()[2:]
    assert first == second


def test_labels_say_sizes_of_a_ranks_passes() -> None:
    plan = "mpt, 2048 tokens, 512 GPUs, batch 4096: dp=512,tp=2,zero=3,microbatch=8"
    assert label_sizes(plan) == {"tokens": 2048, "tp": 2, "microbatch": 8}
    assert label_sizes("AlexNet forward batch 16 cuDNN 5.1") == {"batch": 16}
    assert label_sizes("bert_large-inf-512-16") == {"0": 512, "1": 16}
    assert label_sizes("llama | 1024+1024 | 4 users") == {}


def test_shares_of_a_variance_are_estimated() -> None:
    """Rows drawn from 60 systems with half of the variance in common."""
    generator = np.random.default_rng(0)
    names = [f"system {place}" for place in range(60) for _ in range(8)]
    common = np.repeat(generator.standard_normal(60), 8)
    ratio = 0.2 * (common + generator.standard_normal(480)) / np.sqrt(2)
    runs = Runs([(name,) for name in names], [{}] * 480, ratio, np.full(480, 0.5))
    found = fitted_components(runs)
    assert found.shares[0] == pytest.approx(0.5, abs=0.15)
    assert found.near == 0.0


def test_shares_depend_on_sizes_where_residuals_do() -> None:
    generator = np.random.default_rng(1)
    names = [f"system {place}" for place in range(60) for _ in range(8)]
    sizes = [{"batch": float(4**place)} for _ in range(60) for place in (0, 0, 1, 1, 2, 2, 3, 3)]
    ratio = 0.2 * (
        np.repeat(generator.standard_normal(240), 2) + 0.1 * generator.standard_normal(480)
    )
    found = fitted_components(Runs([(name,) for name in names], sizes, ratio, np.full(480, 0.5)))
    assert found.near > 0.7
    assert found.length < 1.0


def test_a_systems_rows_have_no_part_in_its_shares() -> None:
    """Five systems, each alone in its part: what four share is not known of the fifth."""
    batches = [
        replace(_rows(np.linspace(0.9, 1.3, 6) * (1 + 0.1 * n)), profile=f"board-{n}")
        for n in range(5)
    ]
    systems = list(systems_of(batches, "suite"))
    far = list(systems_of([*batches[:4], replace(batches[4], measured_s=np.ones(6) * 9)], "suite"))
    before, after = left_out(systems), left_out(far)
    assert before[4] == after[4]
    assert before[0] != after[0]
    text = shares_text(before[0], systems)
    assert "rows: 30" in text
    assert "systems: 5" in text
