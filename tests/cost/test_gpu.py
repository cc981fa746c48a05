"""Laws of the GPU cost model, over every operator kind."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from gpu_rows import (
    K,
    attention,
    conv,
    every_kind,
    gemm,
    gpu,
    graph,
    times,
    with_bandwidth,
    with_clock,
    with_sms,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim.cost.gpu import GPU, GpuMachine, GpuParameters, cost_gpu
from accelsim.cost.gpu.gpu_parameters import read_parameters
from accelsim.cost.table import Bound, Execution, ParameterTier
from accelsim.dtype import Dtype, precision
from accelsim.errors import InvalidValueError, ProfileError, UnsupportedOperatorError
from accelsim.workloads.builder import GraphBuilder
from accelsim.workloads.graph import OperatorGraph, concatenate
from accelsim.workloads.operator import COLLECTIVE_KINDS, OperatorKind, Phase

BOARDS = ("t4", "p4", "v100-pcie-32gb", "a100-pcie-40gb", "h100-sxm-80gb", "mi100", "gtx-1080")
board_names = st.sampled_from(BOARDS)
sizes = st.integers(1, 5000)
ROUNDING = 1 + 1e-9


def assert_within_roofline(rows: OperatorGraph, name: str) -> None:
    board = gpu(name)
    costs = cost_gpu(rows, board)
    machine = GpuMachine.of(board, GpuParameters.class_wide())
    device_rows = ~np.isin(rows.kind, [K.HOST_TO_DEVICE, K.DEVICE_TO_HOST])
    peak = np.fmax(machine.contraction_flop_per_s[rows.dtype], machine.vector_flop_per_s)
    assert (costs.time_s * ROUNDING >= costs.flop / peak).all()
    moved_s = costs.bytes / machine.bandwidth_bytes_per_s
    assert (costs.time_s * ROUNDING >= moved_s)[device_rows].all()
    assert (costs.bytes * ROUNDING >= rows.bytes)[device_rows].all()


@given(board_names, st.integers(1, 64))
@settings(max_examples=30, deadline=None)
def test_every_kind_respects_the_roofline_of_what_it_executes(name: str, batch: int) -> None:
    assert_within_roofline(graph(every_kind(batch)), name)


@given(board_names, sizes, sizes, sizes, st.sampled_from([Dtype.FP32, Dtype.FP16]))
@settings(max_examples=60, deadline=None)
def test_gemm_respects_the_roofline(name: str, m: int, n: int, k: int, dtype: Dtype) -> None:
    if dtype is Dtype.FP16 and dtype not in gpu(name).peak_flop_per_s:
        dtype = Dtype.FP32
    assert_within_roofline(graph([gemm(m, n, k, dtype=dtype)], dtype), name)


@given(
    board_names, st.integers(1, 64), st.integers(1, 512), st.integers(1, 512), st.integers(3, 112)
)
@settings(max_examples=60, deadline=None)
def test_convolution_respects_the_roofline_of_its_algorithm(
    name: str, batch: int, c: int, k: int, side: int
) -> None:
    kinds = (K.CONV, K.CONV_BACKWARD_DATA, K.CONV_BACKWARD_WEIGHT)
    assert_within_roofline(graph([conv(batch, c, k, side, kind=kind) for kind in kinds]), name)


@given(
    st.integers(1, 8),
    st.integers(1, 3000),
    st.integers(0, 3000),
    st.booleans(),
    st.integers(0, 700),
)
@settings(max_examples=60, deadline=None)
def test_attention_respects_the_roofline(
    batch: int, q_len: int, past: int, causal: bool, window: int
) -> None:
    row = attention(batch, 32, q_len, q_len + past, kv_heads=8, causal=causal, window=window)
    assert_within_roofline(graph([row], Dtype.FP16), "a100-pcie-40gb")


@given(board_names, st.integers(1, 48), st.floats(1.01, 4))
@settings(max_examples=40, deadline=None)
def test_more_bandwidth_clock_or_sms_never_slow_a_row(name: str, batch: int, factor: float) -> None:
    rows, board = graph(every_kind(batch)), gpu(name)
    base = cost_gpu(rows, board).time_s
    unlimited = board.model_copy(update={"power": board.power.model_copy(update={"limit_w": None})})
    assert (cost_gpu(rows, with_bandwidth(board, factor)).time_s <= base * ROUNDING).all()
    assert (cost_gpu(rows, with_clock(board, factor)).time_s <= base * ROUNDING).all()
    assert (cost_gpu(rows, with_sms(board, 2)).time_s <= base * ROUNDING).all()
    assert (cost_gpu(rows, unlimited).time_s <= base * ROUNDING).all()


@given(sizes, sizes, sizes, st.integers(2, 3))
@settings(max_examples=60, deadline=None)
def test_more_sms_never_slow_a_gemm(m: int, n: int, k: int, factor: int) -> None:
    rows, board = graph([gemm(m, n, k)]), gpu("v100-pcie-32gb")
    assert cost_gpu(rows, with_sms(board, factor)).time_s <= cost_gpu(rows, board).time_s * ROUNDING


@given(board_names, st.integers(1, 64), st.integers(1, 16))
@settings(max_examples=40, deadline=None)
def test_larger_batches_take_longer(name: str, batch: int, more: int) -> None:
    small, large = (cost_gpu(graph(every_kind(size)), gpu(name)) for size in (batch, batch + more))
    assert (large.time_s * ROUNDING >= small.time_s).all()


@given(sizes, sizes, sizes, st.integers(1, 500), st.sampled_from([Dtype.FP32, Dtype.FP16]))
@settings(max_examples=60, deadline=None)
def test_gemm_time_grows_with_m_and_k(m: int, n: int, k: int, more: int, dtype: Dtype) -> None:
    shapes = [
        gemm(m, n, k, dtype=dtype),
        gemm(m + more, n, k, dtype=dtype),
        gemm(m, n, k + more, dtype=dtype),
    ]
    base, wider, deeper = cost_gpu(graph(shapes, dtype), gpu("t4")).time_s
    assert wider * ROUNDING >= base
    assert deeper * ROUNDING >= base


@given(st.integers(1, 600), st.integers(1, 300), st.integers(1, 300))
@settings(max_examples=60, deadline=None)
def test_attention_time_grows_with_keys(q_len: int, past: int, more: int) -> None:
    rows = [attention(4, 32, q_len, q_len + past + extra, kv_heads=8) for extra in (0, more)]
    base, longer = cost_gpu(graph(rows, Dtype.FP16), gpu("a100-pcie-40gb")).time_s
    assert longer * ROUNDING >= base


@given(st.integers(17, 600), st.integers(1, 300), st.integers(0, 300))
@settings(max_examples=60, deadline=None)
def test_attention_time_grows_with_queries(q_len: int, more: int, past: int) -> None:
    """From 17 queries on; up to 16 another kernel (split-KV) is used."""
    rows = [attention(4, 32, q_len + extra, q_len + more + past, kv_heads=8) for extra in (0, more)]
    base, longer = cost_gpu(graph(rows, Dtype.FP16), gpu("a100-pcie-40gb")).time_s
    assert longer * ROUNDING >= base


def test_costs_are_additive_and_independent_of_neighbours() -> None:
    parts = [graph(every_kind(batch)) for batch in (2, 7)]
    whole = cost_gpu(concatenate(parts), gpu("t4"))
    alone = [cost_gpu(part, gpu("t4")) for part in parts]
    np.testing.assert_allclose(whole.time_s, np.concatenate([costs.time_s for costs in alone]))
    np.testing.assert_allclose(whole.energy_j, np.concatenate([costs.energy_j for costs in alone]))


@pytest.mark.parametrize("name", BOARDS)
def test_narrower_formats_are_not_slower(name: str) -> None:
    def time_of(dtype: Dtype) -> np.ndarray:
        rows = [
            gemm(4096, 4096, 1024, dtype=dtype),
            gemm(32, 2048, 2048, dtype=dtype),
            conv(32, 256, 256, 14, dtype=dtype),
            conv(32, 256, 64, 56, 1, dtype=dtype),
            attention(8, 16, 512, 512, dtype=dtype),
        ]
        return cost_gpu(graph(rows, dtype), gpu(name)).time_s

    formats = [d for d in (Dtype.FP32, Dtype.FP16) if d is Dtype.FP32 or name != "p4"]
    spans = [time_of(dtype) for dtype in formats]
    for wide, narrow in pairwise(spans):
        assert (narrow <= wide * ROUNDING).all()


@pytest.mark.parametrize("name", BOARDS)
def test_empty_operators_cost_only_latency(name: str) -> None:
    rows = [(kind, tuple(0 for _ in dims), 0.0, 0.0) for kind, dims, _, _ in every_kind()]
    costs = cost_gpu(graph(rows), gpu(name))
    assert np.isfinite(costs.time_s).all()
    assert (costs.compute_s == 0).all()
    assert (costs.memory_s == 0).all()
    assert ((costs.time_s > 0) & (costs.time_s < 50e-6)).all()
    assert costs.energy_j.sum() == 0


@given(board_names, st.integers(1, 64))
@settings(max_examples=25, deadline=None)
def test_power_stays_within_the_limit(name: str, batch: int) -> None:
    board = gpu(name)
    costs = cost_gpu(graph([*every_kind(batch), gemm(4096, 4096, 4096)]), board)
    machine = GpuMachine.of(board, GpuParameters.class_wide())
    assert machine.limit_w is not None
    assert (costs.energy_j >= 0).all()
    assert (costs.energy_j / costs.time_s + machine.static_w <= machine.limit_w * ROUNDING).all()


def test_a_power_limited_board_slows_and_an_unlimited_one_does_not() -> None:
    board = gpu("t4")
    rows = graph([gemm(8192, 8192, 8192)])
    higher = board.power.limit_w
    assert higher is not None
    doubled = board.model_copy(
        update={"power": board.power.model_copy(update={"limit_w": times(higher, 4.0)})}
    )
    limited, free = cost_gpu(rows, board), cost_gpu(rows, doubled)
    assert limited.time_s[0] > 1.5 * free.time_s[0]
    assert limited.energy_j[0] < free.energy_j[0]  # a lower voltage does the same work with less


def test_unsupported_formats_and_kinds_are_named() -> None:
    with pytest.raises(
        UnsupportedOperatorError, match=r"v100-pcie-32gb cannot run gemm 'gemm0': it has no bf16"
    ):
        cost_gpu(graph([gemm(8, 8, 8, dtype=Dtype.BF16)], Dtype.BF16), gpu("v100-pcie-32gb"))
    with pytest.raises(UnsupportedOperatorError, match="all_reduce"):
        cost_gpu(graph([(K.ALL_REDUCE, (1000, 2, 1), 0.0, 1000.0)]), gpu("t4"))


def test_every_kind_but_collectives_has_a_formula() -> None:
    assert GPU.kinds == frozenset(OperatorKind) - COLLECTIVE_KINDS


def test_half_precision_without_matrix_cores_runs_at_the_faster_of_both_rates() -> None:
    """GTX 1080: FP16 lanes at 1/64 of FP32 (GP104 whitepaper); libraries multiply in FP32."""
    shape = (4096, 4096, 4096)
    half = cost_gpu(graph([gemm(*shape, dtype=Dtype.FP16)], Dtype.FP16), gpu("gtx-1080")).compute_s[
        0
    ]
    single = cost_gpu(graph([gemm(*shape)]), gpu("gtx-1080")).compute_s[0]
    assert half == pytest.approx(single, rel=0.3)


def test_bounds_name_what_limits_a_row() -> None:
    rows = graph(
        [
            gemm(8192, 8192, 8192),
            (K.ELEMENTWISE, (10**8, 2, 1), 1e8, 1.2e9),
            (K.ELEMENTWISE, (10, 2, 1), 10.0, 120.0),
            (K.HOST_TO_DEVICE, (10**6, 1), 0.0, 1e6),
        ]
    )
    bounds = [Bound(code) for code in cost_gpu(rows, gpu("a100-pcie-40gb")).bound]
    assert bounds == [Bound.COMPUTE, Bound.MEMORY, Bound.OVERHEAD, Bound.LINK]


def test_eager_dispatch_is_slower_than_a_replayed_graph() -> None:
    rows = graph(every_kind())
    eager, replayed = (
        cost_gpu(rows, gpu("t4"), mode) for mode in (Execution.EAGER, Execution.GRAPH)
    )
    assert (eager.dispatch_s > 5 * replayed.dispatch_s).all()
    np.testing.assert_array_equal(eager.time_s, replayed.time_s)
    np.testing.assert_array_equal(
        cost_gpu(rows, gpu("t4"), Execution.COMPILED).dispatch_s, replayed.dispatch_s
    )


def test_functions_of_tensors_alone_are_quicker_to_issue_than_scalars_and_modules() -> None:
    binary, scalar, tanh, gelu, power = (
        cost_gpu(graph([(K.ELEMENTWISE, (4096, inputs, flop), 1.0, 1e4)]), gpu("t4")).dispatch_s[0]
        for inputs, flop in ((2, 1), (1, 1), (1, 6), (1, 8), (1, 20))
    )
    assert binary == tanh < min(scalar, gelu)
    assert scalar == power


@pytest.mark.parametrize(
    ("row", "shortest_s"),
    [
        ((K.ELEMENTWISE, (4096, 1, 6), 0.0, 1e4), 13.9e-6),
        ((K.ELEMENTWISE, (4096, 2, 1), 0.0, 1e4), 15.6e-6),
        ((K.ELEMENTWISE, (4096, 1, 8), 0.0, 1e4), 16.4e-6),
        ((K.ELEMENTWISE, (4096, 1, 1), 0.0, 1e4), 17.6e-6),
        ((K.SOFTMAX, (8, 8), 0.0, 64.0), 20.1e-6),
        ((K.LAYER_NORM, (8, 8), 0.0, 64.0), 26.1e-6),
    ],
)
def test_boards_of_amd_are_issued_at_a_pace_of_their_own(row, shortest_s) -> None:
    """NeuSight's shortest calls on an MI100: tanh, sum, GELU, product with a number, softmax and
    layer norm.
    """
    issued_s, others_s = (
        cost_gpu(graph([row]), gpu(name)).dispatch_s[0] for name in ("mi100", "v100-pcie-32gb")
    )
    assert 0.85 * shortest_s <= issued_s <= shortest_s
    assert others_s > 1.7 * issued_s


@pytest.mark.parametrize(
    ("row", "measured_s"),
    [
        ((K.ELEMENTWISE, (1, 20), 20.0, 8.0), 0.985e-3),
        ((K.SOFTMAX, (3843,), 5.0, 8.0), 0.939e-3),
        ((K.ELEMENTWISE, (2, 1), 1.0, 12.0), 0.758e-3),
    ],
)
def test_powers_and_softmax_of_amd_take_longer_than_their_traffic(row, measured_s) -> None:
    """NeuSight's largest power, softmax and sum on an MI100: 16,101 x 3,843 numbers."""
    kind, dims, flop, moved = row
    count = 16_101 * 3_843
    first = 16_101 if kind is K.SOFTMAX else count
    rows = graph([(kind, (first, *dims), flop * count, moved * count)])
    assert cost_gpu(rows, gpu("mi100")).time_s[0] == pytest.approx(measured_s, rel=0.2)


def test_tier_says_where_parameters_come_from() -> None:
    rows, own = graph([gemm(64, 64, 64)]), GpuParameters.class_wide()
    assert cost_gpu(rows, gpu("t4")).tier is ParameterTier.SPEC
    assert (
        cost_gpu(rows, gpu("t4"), parameters=replace(own, tier=ParameterTier.FITTED)).tier
        is ParameterTier.FITTED
    )


def test_batch_norm_streams_in_inference_and_reduces_in_training() -> None:
    row = [(K.BATCH_NORM, (10**6, 64), 2.56e8, 5.12e8)]
    inference = cost_gpu(graph(row), gpu("t4"))
    training = cost_gpu(concatenate([graph(row), graph(row, phase=Phase.BACKWARD)]), gpu("t4"))
    assert training.time_s[0] > inference.time_s[0]


@pytest.mark.parametrize(
    ("field", "value"),
    [("gemm.vector_efficiency", 1.2), ("memory.hbm_efficiency", 0.0), ("gemm.prologue_k", -1.0)],
)
def test_parameters_out_of_range_are_refused(field: str, value: float) -> None:
    with pytest.raises(InvalidValueError, match=field):
        GpuParameters.class_wide().with_values({field: value})


def test_values_are_replaced_by_group_and_name() -> None:
    base = GpuParameters.class_wide()
    changed = base.with_values({"gemm.prologue_k": 3.0, "dispatch.norm_s": 1e-6})
    assert (changed.gemm.prologue_k, changed.dispatch.norm_s) == (3.0, 1e-6)
    assert changed.with_values(base.numbers()) == base
    assert (
        changed.numbers()
        | {name: base.value(name) for name in ("gemm.prologue_k", "dispatch.norm_s")}
        == base.numbers()
    )
    with pytest.raises(InvalidValueError, match="prologue_k"):
        base.with_values({"prologue_k": 3.0})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gemm.warp_speed": {"value": 1.0, "source": "x"}}, "warp_speed"),
        ({"gemm.prologue_k": {"value": 3.0}}, "source"),
        ({}, "missing"),
    ],
)
def test_parameter_files_are_checked(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    path = tmp_path / "gpu.json"
    path.write_text(json.dumps({"parameters": change}))
    with pytest.raises(ProfileError, match=message):
        read_parameters(path)


@pytest.mark.parametrize(("batch", "bound"), [(4, Bound.OVERHEAD), (65536, Bound.COMPUTE)])
def test_a_recurrent_layer_is_bound_by_its_steps_until_the_batch_is_large(batch, bound):
    b = GraphBuilder(precision("fp16"))
    b.recurrent(b.input(batch, 50, 256), 256, cell="gru")
    table = cost_gpu(b.build(), gpu("a100-sxm-80gb"))
    assert table.bound.tolist() == [bound]
