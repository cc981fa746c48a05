"""Runs with checkpoints and failures: limits, Young's interval, and conditions that slow them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import accelsim
from accelsim.errors import InvalidValueError
from accelsim.estimation.passes import training_step
from accelsim.training.length import (
    best_checkpoint_interval_s,
    checkpoint_bytes,
    expected_run_s,
)

SECONDS = st.floats(1.0, 1e5)


@given(SECONDS, st.floats(0.1, 100.0), SECONDS)
def test_without_failures_a_run_is_its_work_and_checkpoints(work, write, interval):
    expected = expected_run_s(work, write, interval, 1e15, 0.0)
    assert expected == pytest.approx(work * (1 + write / interval), rel=1e-6)


@given(st.floats(1.0, 100.0), st.floats(1e4, 1e7))
def test_no_interval_beats_youngs_by_much(write, mtbf):
    best = best_checkpoint_interval_s(write, mtbf)
    least = min(
        expected_run_s(1.0, write, best * ratio, mtbf, 60.0) for ratio in (0.5, 0.8, 1.25, 2.0)
    )
    assert expected_run_s(1.0, write, best, mtbf, 60.0) <= least * 1.005


def test_failures_without_end_are_refused():
    assert math.isinf(expected_run_s(1.0, 1.0, 1e6, 1.0, 0.0))
    length = accelsim.RunLength(iterations=10, mtbf_s=1e-3)
    with pytest.raises(InvalidValueError, match="mtbf_s"):
        accelsim.train("gpt2", cluster="dgx-h100", length=length, seq_len=128)


def test_lengths_and_conditions_out_of_range_are_refused():
    with pytest.raises(InvalidValueError, match="epoch_samples"):
        accelsim.RunLength(epochs=1)
    with pytest.raises(InvalidValueError, match="tokens"):
        accelsim.train("resnet-50", device="t4", length=accelsim.RunLength(tokens=1e6))
    for changes in (
        {"straggler_fraction": 2.0},
        {"network_share": 0.0},
        {"pue": 0.5},
        {"reserve_bytes": -1.0},
        {"fragmentation_fraction": 1.0},
        {"loader_samples_per_s": 0.0},
    ):
        with pytest.raises(InvalidValueError, match=next(iter(changes))):
            accelsim.Conditions(**changes)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"straggler_fraction": 0.05}, "compute"),
        ({"loader_samples_per_s": 10.0}, "input"),
        ({"network_share": 0.01}, "data"),
    ],
)
def test_conditions_slow_their_part(changes, part):
    asked = {"cluster": "dgx-superpod-h100", "gpus": 16, "seq_len": 1024, "plan": "microbatch=16"}
    plain = accelsim.train("gpt2", **asked)
    slowed = accelsim.train("gpt2", conditions=accelsim.Conditions(**changes), **asked)
    assert slowed.iteration_s > plain.iteration_s
    assert slowed.time_s[part] > plain.time_s[part]


@pytest.mark.parametrize("model", ["gpt2", "llama-3.2-1b", "mixtral-8x7b"])
def test_a_checkpoint_has_every_parameter_once(model):
    asked = {"cluster": "dgx-h100", "seq_len": 128, "check_memory": False}
    iteration = accelsim.train(model, **asked).iteration
    setup = iteration.setup
    width = setup.run.precision.weight.bytes + setup.state_bytes
    count = training_step(setup.run).lowered.parameter_count
    assert checkpoint_bytes(iteration) == pytest.approx(count * width, rel=1e-9)


def test_a_site_and_its_hosts_use_more_energy():
    asked = {"cluster": "dgx-h100", "global_batch": 8, "seq_len": 256}
    plain = accelsim.train("gpt2", **asked)
    site = accelsim.train("gpt2", conditions=accelsim.Conditions(pue=1.5), **asked)
    assert site.energy_j == pytest.approx(1.5 * plain.energy_j)
