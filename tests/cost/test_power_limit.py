"""A power limit set on a board: never faster, never above it, refused out of its bounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import accelsim
from accelsim import catalog
from accelsim.cost.limit import PowerLimit, under_limit
from accelsim.cost.table import CostTable
from accelsim.errors import InvalidValueError

BOARDS = ["t4", "v100-sxm2-16gb", "a100-sxm-80gb", "h100-sxm-80gb", "mi300x", "rtx-4090"]


def table(compute_s, memory_s, energy_j, latency_s=0.0):
    rows = [np.atleast_1d(np.asarray(x, dtype=float)) for x in (compute_s, memory_s, energy_j)]
    zeros = np.zeros_like(rows[0])
    return CostTable(
        time_s=np.maximum(rows[0], rows[1]) + latency_s,
        compute_s=rows[0],
        memory_s=rows[1],
        dispatch_s=zeros,
        energy_j=rows[2],
        flop=zeros,
        bytes=zeros,
        bound=zeros.astype(np.int8),
        log_sigma=zeros,
    )


def test_by_hand():
    """100 W static, 200 W dynamic, a limit of 200 W: half the dynamic power, whose clock is below
    the voltage's floor: 0.5 / 0.81^2.
    """
    clock = 0.5 / 0.81**2
    bound = under_limit(table(1.0, 0.2, 200.0), PowerLimit(200.0, 500.0, 100.0))
    assert bound.time_s == pytest.approx(1 / clock)
    assert bound.energy_j == pytest.approx(100 / clock)
    fed = under_limit(table(0.2, 1.0, 200.0), PowerLimit(200.0, 500.0, 100.0))
    assert fed.time_s == pytest.approx(1.0)  # memory keeps its clock
    assert fed.energy_j == pytest.approx(100.0)
    waiting = under_limit(table(0.0, 0.5, 200.0, latency_s=0.5), PowerLimit(200.0, 500.0, 100.0))
    assert waiting.time_s == pytest.approx(0.5 + 0.5 / clock)
    free = under_limit(table(1.0, 0.2, 50.0), PowerLimit(200.0, 500.0, 100.0))
    assert (free.time_s, free.energy_j) == (1.0, 50.0)


TIMES = st.lists(st.floats(1e-6, 1.0), min_size=3, max_size=3)


@given(TIMES, TIMES, TIMES, st.floats(0.0, 100.0), st.floats(1.0, 400.0), st.floats(1.0, 400.0))
def test_a_lower_limit_is_never_faster_and_none_is_exceeded(c, m, e, static, one, other):
    rows = table(c, m, np.asarray(e) * 500.0)
    low, high = sorted((static + one, static + other))
    lower, higher = (
        under_limit(rows, PowerLimit(limit, static + 500.0, static)) for limit in (low, high)
    )
    assert (lower.time_s >= higher.time_s * (1 - 1e-12)).all()
    assert (higher.time_s >= rows.time_s * (1 - 1e-12)).all()
    assert (lower.energy_j <= (low - static) * lower.time_s * (1 + 1e-12)).all()
    assert (lower.energy_j <= rows.energy_j).all()


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(BOARDS),
    st.sampled_from(["resnet-50", "bert-base"]),
    st.sampled_from([1, 32]),
    st.sampled_from(["inference", "training"]),
    st.lists(st.floats(0.45, 1.0), min_size=2, max_size=2),
)
def test_a_run_under_a_lower_limit_is_never_faster(board, model, batch, mode, shares):
    own = catalog.device(board).power.limit_w.value
    free = accelsim.estimate(model, board, batch=batch, mode=mode)
    runs = [
        accelsim.estimate(model, board, batch=batch, mode=mode, power_limit_w=own * share)
        for share in sorted(shares)
    ]
    times = [one.latency_s for one in (*runs, free)]
    assert times == sorted(times, reverse=True)
    for one, share in zip(runs, sorted(shares), strict=True):
        assert one.average_power_w <= 1.02 * own * share
        assert one.inputs["power_limit_w"] == own * share


def test_the_board_s_own_limit_changes_hardly_anything():
    own = catalog.device("h100-sxm-80gb").power.limit_w.value
    free = accelsim.estimate("resnet-50", "h100-sxm-80gb", batch=64)
    same = accelsim.estimate("resnet-50", "h100-sxm-80gb", batch=64, power_limit_w=own)
    assert same.latency_s == pytest.approx(free.latency_s, rel=0.02)


def test_a_limit_is_one_of_the_run_s_content_and_not_of_the_board_s():
    free, low = (
        accelsim.estimate("resnet-50", "a100-sxm-80gb", power_limit_w=limit)
        for limit in (None, 200.0)
    )
    assert "power_limit_w" not in free.inputs
    hashes = [one.provenance.data_hashes["device"] for one in (free, low)]
    assert hashes[0] == hashes[1]


def test_serving_and_training_and_comparing_know_it():
    fast, slow = (
        accelsim.train(
            "bert-base", device="a100-sxm-80gb", gpus=2, global_batch=64, power_limit_w=limit
        ).iteration_s
        for limit in (None, 150.0)
    )
    assert slow > fast
    load = accelsim.Arrivals(rate_per_s=2.0, requests=30)
    served = [
        accelsim.serve("llama-3.1-8b", "a100-sxm-80gb", load, power_limit_w=limit)
        for limit in (None, 150.0)
    ]
    assert served[1].tpot_s["mean"] > served[0].tpot_s["mean"]
    assert served[1].average_power_w < served[0].average_power_w
    rows = accelsim.compare("resnet-50", ["t4", "a100-sxm-80gb", "tpu-v4"], power_limit_w=50.0).rows
    reasons = [row.reason or "" for row in rows]
    assert sum("power_limit_w" in text for text in reasons) == 2  # too low for one, no GPU


@pytest.mark.parametrize("limit", [-1.0, 0.0, 40.0, 701.0, float("nan"), float("inf")])
def test_a_limit_out_of_the_board_s_bounds_is_refused(limit):
    with pytest.raises(InvalidValueError, match="power_limit_w"):
        accelsim.estimate("resnet-50", "h100-sxm-80gb", power_limit_w=limit)


@pytest.mark.parametrize("device", ["xeon-platinum-8380", "tpu-v4", "zcu102"])
def test_a_limit_of_what_is_no_gpu_is_refused(device):
    with pytest.raises(InvalidValueError, match="--power-limit"):
        accelsim.estimate("resnet-50", device, power_limit_w=50.0)
