"""Statistics against scipy and against what they promise."""

import numpy as np
import pytest
from scipy import stats

from accelsim.errors import InvalidValueError
from tests.queues.intervals import (
    ConfidenceInterval,
    batch_means_interval,
    control_variate_interval,
    replication_interval,
)


def test_defaults_are_forty_batches_at_95_percent():
    values = np.random.default_rng(4).normal(size=1_000)
    interval = batch_means_interval(values)
    means = values.reshape(40, 25).mean(axis=1)
    assert (interval.sample_count, interval.level) == (40, 0.95)
    assert interval.half_width == pytest.approx(stats.t.ppf(0.975, 39) * stats.sem(means), rel=1e-9)
    controlled = control_variate_interval(values, [values], [0.0])
    assert (controlled.sample_count, controlled.level) == (40, 0.95)


def test_two_values_in_each_batch_are_enough():
    assert batch_means_interval(np.arange(4.0), batch_count=2).mean == 1.5
    with pytest.raises(InvalidValueError, match="values"):
        batch_means_interval(np.arange(3.0), batch_count=2)
    with pytest.raises(InvalidValueError, match="values"):
        batch_means_interval(np.ones((4, 4)), batch_count=2)


def test_control_variate_interval_is_that_of_linear_regression():
    """The intercept of ordinary least squares on centred controls, with its standard error
    (scipy.stats.linregress).
    """
    generator = np.random.default_rng(5)
    control = generator.normal(2.0, 1.0, 30)
    output = 4.0 + 3.0 * control + generator.normal(0.0, 0.5, 30)
    interval = control_variate_interval(
        np.repeat(output, 2), [np.repeat(control, 2)], [2.0], batch_count=30
    )
    line = stats.linregress(control - 2.0, output)
    assert interval.mean == pytest.approx(line.intercept)
    assert interval.half_width == pytest.approx(
        stats.t.ppf(0.975, 28) * line.intercept_stderr, rel=1e-9
    )


def test_replication_interval_matches_scipy():
    values = np.random.default_rng(0).normal(5.0, 2.0, 30)
    interval = replication_interval(values, level=0.9)
    low, high = stats.t.interval(0.9, 29, values.mean(), stats.sem(values))
    assert (interval.low, interval.high) == pytest.approx((low, high), rel=1e-9)
    assert interval.sample_count == 30


def test_batch_means_are_wider_than_naive_where_output_is_correlated():
    noise = np.random.default_rng(1).normal(size=40_000)
    correlated = np.convolve(noise, np.ones(100) / 100, mode="valid")
    assert (
        batch_means_interval(correlated).half_width
        > 3 * replication_interval(correlated).half_width
    )


def test_batches_use_the_end_of_the_run_where_it_does_not_divide():
    values = np.concatenate([[1e9], np.zeros(10), np.ones(10)])
    assert batch_means_interval(values, batch_count=2).mean == 0.5


def test_control_variates_narrow_and_keep_the_mean():
    generator = np.random.default_rng(2)
    control = generator.exponential(1.0, 20_000)
    output = 3 * control + generator.normal(0.0, 0.1, 20_000)
    plain = batch_means_interval(output)
    narrowed = control_variate_interval(output, [control], [1.0])
    assert narrowed.contains(3.0)
    assert narrowed.half_width < 0.1 * plain.half_width


def test_perfect_control_leaves_no_doubt():
    control = np.random.default_rng(3).normal(4.0, 1.0, 4_000)
    interval = control_variate_interval(2 * control, [control], [4.0])
    assert interval.mean == pytest.approx(8.0)
    assert interval.half_width == pytest.approx(0.0, abs=1e-9)


def test_interval_contains_its_ends_only_inside():
    interval = ConfidenceInterval(10.0, 1.0, 0.95, 5)
    assert interval.contains(9.0)
    assert interval.contains(11.0)
    assert not interval.contains(11.1)


@pytest.mark.parametrize(
    "call",
    [
        lambda: replication_interval([1.0]),
        lambda: replication_interval([1.0, 2.0], level=1.0),
        lambda: batch_means_interval(np.ones(10), batch_count=8),
        lambda: batch_means_interval(np.ones(10), batch_count=1),
        lambda: control_variate_interval(np.ones(100), [np.ones(100)], []),
    ],
)
def test_too_little_or_bad_input_is_refused(call):
    with pytest.raises(InvalidValueError):
        call()
