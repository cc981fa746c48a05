"""Decisions tried on measured alternatives."""

import numpy as np
import pytest

from accelsim.scoreboard.scored_rows import ScoredRows
from tools.scoreboard.decisions import (
    Decision,
    decisions_of,
    own_share,
    reliability,
    replayed,
    report,
    stated,
)


def rows(labels, measured, predicted, profile="a100-sxm-80gb", group="net"):
    count, texts = len(labels), np.array(labels)
    same = np.array([group] * count)
    times = [np.array(values, dtype=float) for values in (measured, predicted)]
    low, high = times[1] / 1.3, times[1] * 1.3
    nothing = np.full(count, np.nan)
    return ScoredRows(
        profile, profile, "spec", "", same, texts, same, same, *times, low, high, nothing, "", 0, ()
    )


def test_rows_of_a_plan_make_one_decision():
    part = rows(["run: dp=2", "run: tp=2", "other: dp=2"], [1.0, 2.0, 5.0], [1.1, 1.0, 5.0])
    (decision,) = decisions_of([part], "training-fsdp")
    assert decision.kind == "plan"
    assert decision.regret == pytest.approx(0.0 if decision.predicted[0] < 1.0 else 1.0)
    assert decision.ordered_pairs() == (1, 0)


def test_a_served_load_asks_for_device_engine_format_and_layout():
    load = "m | 1+1 | 4 users | together"
    labels = [f"{load} | fp8 | vllm | 8-1-8-1", f"{load} | fp8 | sglang | 8-1-8-1"]
    labels += [f"{load} | bf16 | vllm | 8-1-8-1", f"{load} | fp8 | vllm | 4-2-8-1"]
    parts = [rows(labels, [1, 2, 3, 4], [1, 2, 3, 4])]
    parts += [rows(labels[:1], [0.5], [0.5], profile="b200-sxm")]
    kinds = sorted(decision.kind for decision in decisions_of(parts, "serving-tpot"))
    assert kinds == ["device", "engine", "format", "layout"]


def test_batches_compare_the_time_of_a_sample():
    part = rows(["net batch 1", "net batch 8"], [1.0, 4.0], [1.0, 8.8])
    kinds = {decision.kind: decision for decision in decisions_of([part], "cnn-gpus")}
    assert kinds["batch"].measured.tolist() == [1.0, 0.5]
    assert kinds["batch"].regret == pytest.approx(1.0)


@pytest.fixture
def drawn():
    """Decisions whose errors are as they are taken to be: a tenth of the variance is own."""
    generator = np.random.default_rng(1)

    def decision(number):
        predicted = np.exp(generator.normal(0, 0.2, 3))
        common, own = generator.normal(), generator.normal(size=3)
        error = 0.2 * (np.sqrt(0.9) * common + np.sqrt(0.1) * own)
        measured = predicted * np.exp(error)
        return Decision("plan", f"m{number % 40}", measured, predicted, np.full(3, 0.2))

    return [decision(number) for number in range(400)]


def test_the_own_share_and_the_probabilities_come_true(drawn):
    assert own_share([one.own_ratios() for one in drawn]) == pytest.approx(0.1, abs=0.03)
    bins = reliability(drawn, stated(drawn))
    assert len(bins) == 4
    assert sum(row.holds for row in bins) >= 3, bins
    assert "Brier score" in report(drawn, stated(drawn))


def test_probabilities_that_say_too_much_do_not_hold(drawn):
    bins = reliability(drawn, np.ones(len(drawn)))
    assert not all(row.holds for row in bins)


def test_proposed_runs_lose_no_more_than_random_ones():
    """Of questions whose errors are as they are taken to be, and wide enough to matter."""
    generator = np.random.default_rng(2)

    def wide(number):
        predicted = np.exp(generator.normal(0, 0.1, 8))
        error = 0.4 * generator.normal(size=8)
        return Decision("plan", f"m{number}", predicted * np.exp(error), predicted, np.full(8, 0.4))

    rows = replayed([wide(number) for number in range(40)])
    proposed, near, unmeasured = (
        np.mean([getattr(row, name) for row in rows]) for name in ("proposed", "near", "unmeasured")
    )
    assert proposed < unmeasured
    assert proposed <= near
