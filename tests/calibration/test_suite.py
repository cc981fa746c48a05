"""The operator suite: enough shapes, in range, unique, and spread over the logarithm of each
dimension.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelsim.calibration.measurement.plan import Plan, halton, read_plans
from accelsim.calibration.measurement.suite import compiled_suite, operator_suite

COMPILED = compiled_suite("cpu", ("fp32", "bf16"), (1, 2))
CPU = operator_suite("cpu", ("fp32", "bf16"), (1, 2)) + COMPILED
REPORTED = [*sorted({plan.family for plan in read_plans()} - {"framework", "transfer"})]


@pytest.mark.parametrize("family", REPORTED)
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_at_least_thirty_shapes_per_family(family, dtype):
    labels = {c.label for c in CPU if c.family == family and c.dtype == dtype and c.threads == 1}
    assert len(labels) >= 30


def test_keys_are_unique_and_sizes_positive():
    assert len({case.key for case in CPU}) == len(CPU)
    for case in CPU:
        assert all(value >= (0 if name == "causal" else 1) for name, value in case.shape.items()), (
            case.key
        )


def test_no_case_needs_more_than_a_gibibyte():
    for case in (c for c in CPU if c.family in {"gemm", "gemv"}):
        m, n, k = (case.shape[x] for x in "mnk")
        assert 4 * (m * n + n * k + m * k) < 2**30


def test_the_first_tenth_spans_every_family():
    eager = CPU[: -len(COMPILED)]
    assert {case.family for case in eager[: len(eager) // 10]} == {case.family for case in eager}


def test_weights_are_measured_hot_and_cold():
    for family in ("gemm", "gemv", "convolution"):
        assert {case.cold for case in CPU if case.family == family} == {False, True}


def test_several_threads_see_small_and_large_shapes():
    sizes = [c.shape["elements"] for c in CPU if c.operator == "relu" and c.threads == 2]
    assert min(sizes) < 10_000
    assert max(sizes) > 3_000_000


def test_outputs_below_and_above_the_page_fault_threshold():
    sizes = [
        4 * c.shape.get("elements", 0)
        for c in CPU
        if c.family == "elementwise" and c.dtype == "fp32"
    ]
    assert any(size > 2**25 for size in sizes)
    assert any(size < 2**20 for size in sizes)


def test_transfers_are_measured_on_gpus_only():
    gpu = operator_suite("cuda", ("fp32",), (0,), ("eager", "graph"))
    assert {c.operator for c in gpu if c.family == "transfer"} == {
        "host_to_device",
        "device_to_host",
    }
    assert {c.execution for c in gpu} == {"eager", "graph"}
    assert not any(c.family == "transfer" for c in CPU)


def test_compiled_operators_are_compiled_on_every_device():
    assert {case.execution for case in COMPILED} == {"compiled"}
    on_gpu = compiled_suite("cuda", ("fp32", "tf32"), (0,))
    assert {case.operator for case in on_gpu} == {
        "compiled_elementwise",
        "compiled_layer_norm",
        "compiled_softmax",
    }
    assert {case.dtype for case in on_gpu} == {"fp32"}  # loops have no products


def test_dimensions_fill_their_logarithmic_range():
    sides = [
        math.log(c.shape["k"])
        for c in CPU
        if c.operator == "mm_nn" and c.dtype == "fp32" and c.threads == 1
    ]
    quarter = (max(sides) - min(sides)) / 4
    counts = [
        sum(min(sides) + i * quarter <= s <= min(sides) + (i + 1) * quarter for s in sides)
        for i in range(4)
    ]
    assert min(counts) >= 3


@given(index=st.integers(1, 10**6), base=st.sampled_from([2, 3, 5, 7]))
def test_halton_points_lie_inside_the_unit_interval(index, base):
    assert 0 < halton(index, base) < 1


def test_halton_known_values():
    # Halton (1960): the first points in base 2 are 1/2, 1/4, 3/4, 1/8; in base 3 1/3, 2/3, 1/9
    assert [halton(i, 2) for i in (1, 2, 3, 4)] == [0.5, 0.25, 0.75, 0.125]
    assert [halton(i, 3) for i in (1, 2, 3)] == pytest.approx([1 / 3, 2 / 3, 1 / 9])


def drawn(dimensions, *limits, device="cpu", **options):
    plan = Plan("x", ("relu",), 40, dimensions, limits, **options)
    return list(plan.shapes("relu", device))


def test_dimensions_are_drawn_chosen_or_follow():
    shapes = drawn({"_width": "2..64/4", "groups": "1|2|8", "channels": "groups*_width"})
    assert len(shapes) == 40
    assert {shape["groups"] for shape in shapes} == {1, 2, 8}
    assert all(shape.keys() == {"groups", "channels"} for shape in shapes)
    assert all(2 <= shape["channels"] / shape["groups"] <= 64 for shape in shapes)


def test_a_quotient_follows_too():
    assert drawn({"fine": "64", "factor": "2|4", "side": "fine/factor"})[0]["side"] in {16, 32}


def test_most_sizes_are_multiples_and_some_are_not():
    sizes = [shape["m"] for shape in drawn({"m": "64..4096/16"})]
    assert 0.5 < sum(size % 16 == 0 for size in sizes) / len(sizes) < 1.0


def test_limits_bound_from_both_sides():
    shapes = drawn({"m": "1..1000", "n": "1..1000"}, "1e2<=m*n<=1e4", "m/n<=1")
    assert all(1e2 <= shape["m"] * shape["n"] <= 1e4 for shape in shapes)
    assert all(shape["m"] <= shape["n"] for shape in shapes)


def test_a_gpu_reaches_further():
    growth = {"m": 10}
    small = drawn({"m": "1..1000"}, "m<=500", growth=growth)
    large = drawn({"m": "1..1000"}, "m<=500", growth=growth, device="cuda")
    assert max(shape["m"] for shape in small) <= 500
    assert 500 < max(shape["m"] for shape in large) < 5010


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_plan_finds_the_shapes_that_it_names(device):
    for plan in read_plans():
        if device not in plan.devices:
            continue
        for operator in plan.operators:
            is_fixed = all(text.isdecimal() for text in plan.dimensions.values())
            found = list(plan.shapes(operator, device))
            assert len(found) == (1 if is_fixed else plan.count), (operator, plan.dimensions)
            assert all(min(shape.values()) >= 0 for shape in found)


def test_growth_is_of_a_plans_own_dimensions():
    for plan in read_plans():
        assert plan.growth.keys() <= plan.dimensions.keys(), plan.operators
