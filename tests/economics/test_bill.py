"""Bills equal cases worked out by hand, to the cent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelsim.economics.bill import Bill
from accelsim.economics.carbon import embodied_kgco2e
from accelsim.errors import InvalidValueError

CASES = {
    # 4 nodes of 32.77 USD for 90 min, by the second: 4 x 32.77 x 1.5
    "multi-node": (Bill(usd_per_hour=32.77, instance_count=4), 5400.0, None, 196.62),
    # by the hour: 2 h of each
    "hourly": (
        Bill(usd_per_hour=32.77, instance_count=4, granularity_s=3600),
        5400.0,
        None,
        262.16,
    ),
    # 10 s at a minimum of 60 s: 3.6 / 60
    "minimum": (Bill(usd_per_hour=3.6, minimum_s=60), 10.0, None, 0.06),
    # 500 GB for half a month at 0.08, 100 GB out at 0.09, 1 h of 1.00: 20 + 9 + 1
    "disk and egress": (
        Bill(
            usd_per_hour=1.0,
            storage_gb=500,
            storage_usd_per_gb_month=0.08,
            egress_gb=100,
            egress_usd_per_gb=0.09,
        ),
        3600.0,
        365.25 * 3600,
        30.0,
    ),
    # 40 h on spot at 10 USD, preempted every 4 h, 15 min lost each: 400 + 10 x 0.25 x 10
    "spot": (
        Bill(usd_per_hour=10.0, preemption_mtbf_s=4 * 3600, lost_s=900),
        40 * 3600.0,
        None,
        425.0,
    ),
    # 3 committed at 2 USD for 100 h whether used or not, 2 more on demand at 5 USD for 40 h
    "commitment": (
        Bill(usd_per_hour=5.0, instance_count=5, committed_count=3, committed_usd_per_hour=2.0),
        40 * 3600.0,
        100 * 3600.0,
        1000.0,
    ),
    # 61 s at a minimum of 60 s, by the minute: 2 min of 3.60
    "steps beyond the minimum": (
        Bill(usd_per_hour=3.6, minimum_s=60, granularity_s=60),
        61.0,
        None,
        0.12,
    ),
    # 8 h at 98.32 USD by the second, not a cent more: 786.56
    "whole hours": (Bill(usd_per_hour=98.32, granularity_s=3600), 8 * 3600.0, None, 786.56),
    # 2 TB out at 0.09, and 1 TB of disk for a day at 0.10: 180 + 1000 x 0.1 x 24 / 730.5
    "egress of a result": (
        Bill(
            usd_per_hour=0.0,
            egress_gb=2000,
            egress_usd_per_gb=0.09,
            storage_gb=1000,
            storage_usd_per_gb_month=0.10,
        ),
        3600.0,
        86_400.0,
        183.29,
    ),
    # 16 spot nodes at 3.50 for 10 h, one preempted every 5 h, 30 min lost: 16 x 3.5 x 11
    "spot of many nodes": (
        Bill(usd_per_hour=3.5, instance_count=16, preemption_mtbf_s=18_000, lost_s=1800),
        36_000.0,
        None,
        616.0,
    ),
    # spot by the hour: 10 h and two preemptions of 15 min are 11 h
    "spot by the hour": (
        Bill(usd_per_hour=4.0, granularity_s=3600, preemption_mtbf_s=18_000, lost_s=900),
        36_000.0,
        None,
        44.0,
    ),
    # 2 of 2 nodes committed at 1.20 for a month of 730.5 h, used for 100 h: 2 x 1.2 x 730.5
    "a commitment that is hardly used": (
        Bill(usd_per_hour=2.0, instance_count=2, committed_count=2, committed_usd_per_hour=1.2),
        360_000.0,
        730.5 * 3600,
        1753.2,
    ),
    "nothing used": (Bill(usd_per_hour=5.0, minimum_s=60), 0.0, None, 0.0),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_the_case_worked_out_by_hand(name):
    bill, used_s, period_s, expected = CASES[name]
    assert round(bill.cost(used_s, period_s).total_usd, 2) == expected


@given(
    price=st.floats(0, 100),
    used=st.floats(0, 1e7),
    more=st.floats(0, 1e6),
    count=st.integers(0, 20),
    committed=st.integers(0, 20),
)
def test_a_longer_use_never_costs_less_and_no_part_is_negative(price, used, more, count, committed):
    bill = Bill(
        usd_per_hour=price,
        instance_count=count,
        granularity_s=60,
        preemption_mtbf_s=3600,
        lost_s=60,
        committed_count=committed,
        committed_usd_per_hour=1.0,
    )
    short, long = bill.cost(used), bill.cost(used + more)
    assert long.total_usd >= short.total_usd * (1 - 1e-12)
    assert min(short.compute_usd, short.overhead_usd, short.committed_usd) >= 0


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"usd_per_hour": -1.0}, "usd_per_hour"),
        ({"usd_per_hour": float("nan")}, "usd_per_hour"),
        ({"preemption_mtbf_s": 0.0}, "preemption_mtbf_s"),
        ({"granularity_s": 0.0}, "granularity_s"),
    ],
)
def test_what_is_wrong_is_named(change, named):
    with pytest.raises(InvalidValueError, match=named):
        Bill(**{"usd_per_hour": 1.0, **change}).cost(10.0)
    with pytest.raises(InvalidValueError, match="period_s"):
        Bill(usd_per_hour=1.0).cost(10.0, 5.0)


def test_embodied_carbon_is_a_range_and_a_share_of_the_life():
    low, high = embodied_kgco2e(1, 8, 4 * 8766 * 3600)
    assert (low, high) == (465 + 8 * 24, 2503 + 8 * 532)
    assert embodied_kgco2e(1, 8, 8766 * 3600)[1] == pytest.approx(high / 4)
    with pytest.raises(InvalidValueError, match="life_years"):
        embodied_kgco2e(1, 0, 1.0, 0.0)
