"""What a measured run is worth."""

import numpy as np
import pytest

from accelsim.confidence.next_run import Alternatives


def pair(costs=(100.0, 104.0), sigma=0.2, groups=("gpu", "gpu")):
    return Alternatives.of(np.array(costs), np.full(len(costs), sigma), groups)


def test_a_run_that_cannot_change_the_choice_is_worth_nothing():
    assert pair((100.0, 1000.0)).saving([0]) == pytest.approx(0.0, abs=1e-6)
    assert pair(sigma=1e-9).saving([0]) == pytest.approx(0.0, abs=1e-6)


def test_nearer_alternatives_and_wider_errors_make_it_worth_more():
    assert pair((100.0, 101.0)).saving([0]) > pair((100.0, 120.0)).saving([0]) > 0
    assert pair(sigma=0.3).saving([0]) > pair(sigma=0.1).saving([0])


def test_errors_that_are_shared_need_no_run():
    assert pair(groups=("gpu", "asic")).saving([0]) > pair().saving([0])


def test_more_runs_save_more_and_never_more_than_to_know_all():
    known = Alternatives.of(np.array([100.0, 102.0, 105.0]), np.full(3, 0.2), ["a", "b", "c"])
    savings = [known.saving(range(count)) for count in (1, 2, 3)]
    assert savings == sorted(savings)
    assert savings[-1] <= known.regret * 1.02


def test_runs_are_proposed_together_and_only_where_they_are_worth_their_price():
    known = pair((100.0, 110.0), sigma=0.5)
    assert 3 * known.saving([0]) < known.saving([0, 1])
    assert known.best_runs(2, np.array([0.3, 0.3])) == (0, 1)
    assert known.best_runs(2, np.array([50.0, 50.0])) == ()
    assert pair((100.0, 1000.0)).best_runs(2, np.array([0.01, 0.01])) == ()


def test_a_measured_cost_is_the_cost_and_moves_those_that_share_its_error():
    then = pair().after(0, 130.0)
    assert np.exp(then.mean[0]) == pytest.approx(130.0, rel=0.01)
    assert 104.0 * 1.1 < np.exp(then.mean[1]) < 104.0 * 1.3
    assert then.covariance[0, 0] < 0.03**2
    apart = pair(groups=("gpu", "asic")).after(0, 130.0)
    assert np.exp(apart.mean[1]) == pytest.approx(104.0)
    assert apart.choice == 1


def test_a_run_as_predicted_moves_no_mean_and_narrows():
    before, then = pair(), pair().after(0, 100.0)
    assert then.mean == pytest.approx(before.mean)
    assert (np.diag(then.covariance) < np.diag(before.covariance)).all()


def test_no_choice_loses_less_than_nothing():
    """But for rounding, which a sentence would show."""
    costs = np.array([23.4, 46.2])
    assert Alternatives.of(costs, np.full(2, 0.2), ["gpu", "gpu"]).regret == 0.0
