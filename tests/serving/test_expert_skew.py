"""Experts that differ in popularity: the busiest of the ranks that share them sets the time."""

import numpy as np
import pytest

import accelsim
from accelsim import ServingOptions
from accelsim.errors import InvalidValueError
from accelsim.serving.loads.requests import RequestColumns
from accelsim.workloads.families.feed_forward import busiest_rank

SKEWS = (0.0, 0.01, 0.3, 1.0, 2.0, 4.0)


@pytest.mark.parametrize(("experts", "top_k", "ranks"), [(8, 2, 8), (128, 8, 8), (256, 8, 32)])
def test_the_busiest_rank_is_even_without_skew_and_bounded(experts, top_k, ranks):
    loads = [busiest_rank(experts, top_k, ranks, skew) for skew in SKEWS]
    assert loads[0] == 1
    assert (np.diff(loads) > 0).all()
    assert loads[-1] <= ranks * min(top_k, experts // ranks) / top_k
    assert busiest_rank(experts, top_k, 1, 2.0) == busiest_rank(experts, experts, ranks, 2.0) == 1


def test_two_experts_on_two_ranks_by_hand():
    """One of two is drawn, with weights 1 and 1/4: 1 - exp(-c) + 1 - exp(-c/4) = 1."""
    # x = exp(-c / 4): x^4 + x = 1
    x = next(r.real for r in np.roots([1, 0, 0, 1, -1]) if abs(r.imag) < 1e-9 and r.real > 0)
    assert busiest_rank(2, 1, 2, 2.0) == pytest.approx(2 * (1 - x**4))


@pytest.mark.parametrize("layout", [{"tp": 4, "ep": 4}, {"dp": 4, "ep": 4}])
@pytest.mark.parametrize(("count", "prompt"), [(1, 300), (32, 100)])
def test_more_skew_is_never_faster(layout, count, prompt):
    columns = RequestColumns(np.zeros(count), np.full(count, prompt), np.full(count, 8))
    runs = [
        accelsim.serve(
            *("qwen3-30b-a3b", "h100-sxm-80gb", columns),
            ServingOptions(**layout, expert_skew=skew),
            intervals=False,
        )
        for skew in (0.0, 0.3, 2.0)
    ]
    for name in ("ttft_s", "e2e_s"):
        times = [getattr(run, name)["mean"] for run in runs]
        assert (np.diff(times) >= 0).all()
        assert times[-1] > 1.01 * times[0]


def test_skew_is_refused_where_it_says_nothing():
    columns = RequestColumns(np.zeros(1), np.full(1, 10), np.full(1, 2))
    for skew in (1.0, -1.0, 11.0):
        with pytest.raises(InvalidValueError, match="expert_skew"):
            accelsim.serve("qwen3-30b-a3b", "h100-sxm-80gb", columns, expert_skew=skew)
