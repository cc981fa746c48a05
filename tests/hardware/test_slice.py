"""Slices: shares of a device add up to the device, and what cannot be taken is refused."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import accelsim
from accelsim.catalog import device
from accelsim.cost.gpu.condition import board_conditions
from accelsim.dtype import Dtype
from accelsim.errors import InvalidValueError
from accelsim.hardware.slice import SliceSpec, slice_device
from accelsim.hardware.sourced import SourceKind

GIB = 2.0**30


def test_a_vcpu_slice_takes_its_share_of_cores_rate_memory_and_power():
    whole, part = device("epyc-7763"), device("epyc-7763@8vcpu")
    share = 8 / 128
    assert part.core_count.value == 4
    assert part.vector_flop_per_s[Dtype.FP32].value == pytest.approx(
        whole.vector_flop_per_s[Dtype.FP32].value * share
    )
    assert part.memory.capacity_bytes.value == pytest.approx(
        whole.memory.capacity_bytes.value * share
    )
    assert part.memory_bandwidth_bytes_per_s == pytest.approx(
        whole.memory_bandwidth_bytes_per_s * share
    )
    assert part.power.limit_w.value == pytest.approx(whole.power.limit_w.value * share)
    assert part.slice_of == "epyc-7763"
    assert part.vector_flop_per_s[Dtype.FP32].kind is SourceKind.DERIVED


def test_a_vcpu_slice_keeps_the_size_of_private_caches():
    whole, part = device("xeon-platinum-8380"), device("xeon-platinum-8380@20vcpu")
    assert part.on_chip[0].capacity_bytes == whole.on_chip[0].capacity_bytes
    assert part.on_chip[-1].capacity_bytes.value == pytest.approx(
        whole.on_chip[-1].capacity_bytes.value / 4
    )


@pytest.mark.parametrize(
    ("name", "sm_count", "memory_gib", "memory_share"),
    [  # NVIDIA MIG User Guide, supported profiles
        ("a100-sxm-40gb@1g.5gb", 14, 5, 1 / 8),
        ("a100-sxm-80gb@2g.20gb", 28, 20, 1 / 4),
        ("a100-sxm-80gb@3g.40gb", 42, 40, 1 / 2),
        ("a100-sxm-80gb@7g.80gb", 98, 80, 1),
        ("h100-sxm-80gb@1g.10gb", 16, 10, 1 / 8),
        ("h100-sxm-80gb@3g.40gb", 60, 40, 1 / 2),
        ("h100-sxm-80gb@7g.80gb", 132, 80, 1),
        ("a30@2g.12gb", 28, 12, 1 / 2),
    ],
)
def test_mig_slices_have_the_published_sms_and_memory(name, sm_count, memory_gib, memory_share):
    part, whole = device(name), device(name.split("@")[0])
    assert part.sm_count.value == sm_count
    assert part.memory.capacity_bytes.value == pytest.approx(memory_gib * GIB)
    assert part.memory_bandwidth_bytes_per_s == pytest.approx(
        whole.memory_bandwidth_bytes_per_s * memory_share
    )
    assert part.l2_bytes.value == pytest.approx(whole.l2_bytes.value * memory_share)
    assert part.peer_link is None
    assert part.host_link == whole.host_link


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(["t4", "h100", "epyc-9654", "graviton3"]), st.floats(0.01, 0.99))
def test_two_complementary_slices_make_the_whole(name, share):
    whole = device(name)
    parts = [
        slice_device(whole, SliceSpec(of=name, fraction=part), "part")
        for part in (share, 1 - share)
    ]
    for dtype, rate in whole.peak_flop_per_s.items():
        assert sum(part.peak_flop_per_s[dtype] for part in parts) == pytest.approx(rate)
    assert sum(part.memory.capacity_bytes.value for part in parts) == pytest.approx(
        whole.memory.capacity_bytes.value
    )
    assert sum(
        part.power.limit_w.value if part.power.limit_w else 0.0 for part in parts
    ) == pytest.approx(whole.power.limit_w.value if whole.power.limit_w else 0.0)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 132), st.integers(1, 132))
def test_more_sms_are_never_less_device(first, second):
    low, high = sorted((first, second))
    small, large = device(f"h100@{low}sm"), device(f"h100@{high}sm")
    assert small.peak_flop_per_s[Dtype.BF16] <= large.peak_flop_per_s[Dtype.BF16]
    assert small.memory_bandwidth_bytes_per_s <= large.memory_bandwidth_bytes_per_s
    assert small.power.limit_w.value <= large.power.limit_w.value


def test_a_slice_of_one_thread_still_has_a_core():
    assert device("epyc-7763@1vcpu").core_count.value == 1


@pytest.mark.parametrize(
    "name",
    [
        "epyc-7763@129vcpu",
        "epyc-7763@0vcpu",
        "epyc-7763@2g.20gb",
        "epyc-7763@4sm",
        "h100@8vcpu",
        "h100@133sm",
        "h100@5g.40gb",
        "h100@1g.0gb",
        "h100@1g.160gb",
        "a30@7g.24gb",
        "t4@1g.2gb",
        "a10@1g.2gb",
        "tpu-v4@fraction=0.5",
        "zcu104@fraction=0.5",
        "h100@fraction=0",
        "h100@fraction=1.5",
        "h100@fraction=nan",
        "h100@",
        "h100@half",
    ],
)
def test_an_impossible_slice_is_refused(name):
    with pytest.raises(InvalidValueError) as caught:
        device(name)
    assert "expected" in str(caught.value)


def test_a_slice_needs_exactly_one_share():
    with pytest.raises(InvalidValueError, match="exactly one"):
        slice_device(device("t4"), SliceSpec(of="t4"), "part")
    with pytest.raises(InvalidValueError, match="exactly one"):
        slice_device(device("t4"), SliceSpec(of="t4", fraction=0.5, sm_count=20), "part")


def test_a_slice_cannot_have_more_memory_or_bandwidth_than_the_whole():
    whole = device("t4")
    with pytest.raises(InvalidValueError, match="memory_bytes"):
        slice_device(whole, SliceSpec(of="t4", fraction=0.5, memory_bytes=17 * GIB), "part")
    with pytest.raises(InvalidValueError, match="memory_bandwidth"):
        slice_device(
            whole, SliceSpec(of="t4", fraction=0.5, memory_bandwidth_bytes_per_s=1e12), "part"
        )


def test_a_slice_of_a_slice_is_priced_and_fed_as_its_share_of_the_whole():
    half = slice_device(device("t4"), SliceSpec(of="t4", fraction=0.5), "half")
    quarter = slice_device(half, SliceSpec(of="half", fraction=0.5), "quarter")
    assert (quarter.slice_of, quarter.slice_fraction) == ("t4", 0.25)
    assert device("t4").slice_fraction == 1.0


@pytest.mark.parametrize(
    ("name", "shares"), [("t4", (0.25, 0.5, 0.75)), ("h100", (0.25, 0.5)), ("epyc-9654", (0.25,))]
)
def test_a_share_takes_about_the_inverse_of_its_size_as_long(name, shares):
    whole = accelsim.estimate("bert-large", name, batch=8, execution="graph")
    for share in shares:
        part = accelsim.estimate(
            "bert-large", f"{name}@fraction={share}", batch=8, execution="graph"
        )
        assert 0.8 / share < part.latency_s / whole.latency_s < 1.4 / share
        assert part.average_power_w == pytest.approx(whole.average_power_w * share, rel=0.25)


def test_a_share_of_a_large_board_is_not_one_fed_by_its_slot():
    whole, part = device("a100-sxm-80gb"), device("a100-sxm-80gb@1g.10gb")
    assert part.power.limit_w.value < 75
    assert board_conditions(part) == board_conditions(whole) != board_conditions(device("t4"))


def test_a_share_under_a_name_of_its_own_is_the_share():
    written = slice_device(device("t4"), SliceSpec(of="t4", fraction=0.5), "mine")
    named, own = (
        accelsim.estimate("resnet-50", "t4@fraction=0.5", batch=8),
        accelsim.estimate("resnet-50", written, batch=8),
    )
    assert (own.tier, own.latency_s, own.energy_j) == (named.tier, named.latency_s, named.energy_j)
