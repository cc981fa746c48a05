"""Systolic arrays: SCALE-Sim's cycles, published chips, and laws."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from operator_cases import (
    add,
    attention,
    conv,
    emptied,
    gemm,
    inference_zoo,
    lstm,
    row,
    training_rows,
)

from accelsim import catalog
from accelsim.cost.roofline import Roofline
from accelsim.cost.systolic import (
    cost_systolic,
    memory_traffic_bytes,
    pipelined_cycles,
    row_stationary_active_pes,
    systolic_cycles,
    systolic_parameters,
)
from accelsim.cost.systolic.cycles import row_stationary_product_pes
from accelsim.cost.table import Execution
from accelsim.dtype import Dtype, precision
from accelsim.errors import DoesNotFitError, InvalidValueError, UnsupportedOperatorError
from accelsim.hardware.profile import Dataflow
from accelsim.hardware.sourced import Sourced
from accelsim.workloads.builder import GraphBuilder
from accelsim.workloads.graph import concatenate
from accelsim.workloads.operator import OperatorKind, Phase

OS, WS, IS = Dataflow.OUTPUT_STATIONARY, Dataflow.WEIGHT_STATIONARY, Dataflow.INPUT_STATIONARY
SIDES = st.integers(1, 5000)
ARRAY = st.sampled_from([1, 8, 16, 32, 128, 256])
NAMES = [name for name in catalog.device_names() if catalog.device(name).device_class == "asic"]
POLICIES = {precision(label).compute: label for label in ("int8", "bf16", "fp16", "fp8", "fp32")}
TPU1, TPU4 = catalog.device("tpu-v1"), catalog.device("tpu-v4")

# SCALE-Sim v2 (22f88b17) and v3 (1d62b68a), CALC mode: simulated demand rows of one layer.
SCALE_SIM = [
    (128, 64, 128, 128, 128, OS, 382),
    (128, 64, 128, 128, 128, IS, 446),
    (128, 64, 128, 128, 128, WS, 510),
    (49, 128, 832, 128, 128, OS, 1086),
]


@pytest.mark.parametrize(("m", "n", "k", "rows", "columns", "dataflow", "cycles"), SCALE_SIM)
def test_equals_scale_sim(m, n, k, rows, columns, dataflow, cycles):
    assert systolic_cycles(m, n, k, rows, columns, dataflow) == cycles


@settings(max_examples=100, deadline=None)
@given(m=SIDES, n=SIDES, k=SIDES, rows=ARRAY, columns=ARRAY, dataflow=st.sampled_from([OS, WS, IS]))
def test_cycles_bound_the_multiply_adds_from_both_sides(m, n, k, rows, columns, dataflow):
    scale_sim = systolic_cycles(m, n, k, rows, columns, dataflow)
    pipelined = pipelined_cycles(m, n, k, rows, columns, dataflow)
    assert m * n * k / (rows * columns) <= pipelined <= scale_sim


@settings(max_examples=60, deadline=None)
@given(
    m=SIDES,
    n=SIDES,
    k=SIDES,
    rows=ARRAY,
    dataflow=st.sampled_from([OS, WS, IS]),
    more=st.integers(1, 2000),
)
def test_cycles_grow_with_every_side(m, n, k, rows, dataflow, more):
    for form in (systolic_cycles, pipelined_cycles):
        base = form(m, n, k, rows, rows, dataflow)
        for larger in ((m + more, n, k), (m, n + more, k), (m, n, k + more)):
            assert form(*larger, rows, rows, dataflow) >= base


def test_one_fold_is_the_same_pipelined_or_not():
    assert pipelined_cycles(300, 64, 64, 128, 128, WS) == systolic_cycles(300, 64, 64, 128, 128, WS)


def test_empty_products_take_no_cycles_and_empty_arrays_are_refused():
    assert systolic_cycles([0, 1], [1, 0], [1, 1], 8, 8, OS).tolist() == [0, 0]
    with pytest.raises(InvalidValueError, match="rows x columns"):
        systolic_cycles(1, 1, 1, 0, 8, OS)
    with pytest.raises(InvalidValueError, match="dataflow"):
        systolic_cycles(1, 1, 1, 8, 8, Dataflow.ROW_STATIONARY)


@pytest.mark.parametrize(
    ("kernel", "output", "active"), [(11, 55, 154), (5, 27, 135), (3, 13, 156)]
)
def test_row_stationary_mapping_reproduces_eyeriss_on_alexnet(kernel, output, active):
    # Chen et al., JSSC 52(1) 2017, table V: active processing elements of CONV1, CONV2 and CONV3 to
    # CONV5.
    assert row_stationary_active_pes(kernel, output, 12, 14) == pytest.approx(active, rel=0.03)


@settings(max_examples=60, deadline=None)
@given(
    kernel=st.integers(1, 40),
    output=st.integers(1, 500),
    rows=st.integers(1, 32),
    columns=st.integers(1, 32),
)
def test_row_stationary_never_uses_more_than_the_array(kernel, output, rows, columns):
    assert 1 <= row_stationary_active_pes(kernel, output, rows, columns) <= rows * columns


@settings(max_examples=60, deadline=None)
@given(
    left=st.floats(0, 1e10),
    right=st.floats(0, 1e10),
    out=st.floats(0, 1e10),
    sram=st.floats(1, 1e9),
)
def test_traffic_is_at_least_each_operand_once_and_falls_with_capacity(left, right, out, sram):
    moved = memory_traffic_bytes(left, right, out, sram)
    assert moved >= (left + right + out) * (1 - 1e-12)
    assert memory_traffic_bytes(left, right, out, 4 * sram) <= moved * (1 + 1e-12)
    assert memory_traffic_bytes(left, right, out, np.inf) == pytest.approx(left + right + out)


@pytest.mark.parametrize(("rows", "columns"), [(12, 14), (16, 16), (32, 8)])
def test_a_product_keeps_a_row_stationary_array_busy(rows, columns):
    """Folded, rows beyond the array's width cost at most a fifth of what they bring."""
    heights = np.arange(2 * columns, 40 * columns)
    active = row_stationary_product_pes(heights, rows, columns)
    assert (active >= row_stationary_active_pes(1, heights, rows, columns)).all()
    assert (active >= 0.8 * rows * columns).all()
    assert (active <= rows * columns).all()


@settings(max_examples=60, deadline=None)
@given(m=SIDES, n=SIDES, k=SIDES, sram=st.floats(1e3, 1e8))
def test_traffic_grows_steadily_with_the_rows(m, n, k, sram):
    """What stays of an operand stays: a little more of it streams no other anew as a whole."""
    before, after = (
        memory_traffic_bytes(rows * k, n * k, rows * n, sram) for rows in (m, m * (1 + 1e-9))
    )
    assert before * (1 - 1e-12) <= after <= before * (1 + 1e-4)


def test_traffic_of_a_row_of_results_does_not_grow_with_their_count():
    k, n, sram = 768.0, 768.0, 1e5
    each = [memory_traffic_bytes(m * k, n * k, m * n, sram) / m for m in (1e3, 8e3, 64e3, 1e6)]
    assert each == sorted(each, reverse=True)


def with_rates(device, factor):
    rates = {
        d: Sourced(value=r.value * factor, source="law test")
        for d, r in device.matrix_flop_per_s.items()
    }
    return device.model_copy(update={"matrix_flop_per_s": rates})


def with_memory(device, factor):
    bandwidth = Sourced(value=device.memory.bandwidth_bytes_per_s.value * factor, source="law test")
    return device.model_copy(
        update={"memory": device.memory.model_copy(update={"bandwidth_bytes_per_s": bandwidth})}
    )


def with_arrays(device, count):
    scale = count / device.arrays.count.value
    arrays = device.arrays.model_copy(update={"count": Sourced(value=count, source="law test")})
    return with_rates(device, scale).model_copy(update={"arrays": arrays})


@pytest.mark.parametrize("name", NAMES)
def test_never_faster_than_the_roofline_of_what_it_executes(name):
    device = catalog.device(name)
    for dtype in device.matrix_flop_per_s:
        if dtype not in POLICIES or device.memory_bandwidth_bytes_per_s is None:
            continue
        policy = POLICIES[dtype]
        graph = concatenate(
            [
                gemm(37, 129, 300, policy),
                gemm(500, 64, 4096, policy),
                conv(2, 16, 32, 14, dtype=policy),
            ]
        )
        table = cost_systolic(graph, device)
        bound = Roofline.of(device).time_s(table.flop, table.bytes, graph.dtype)
        assert (table.time_s >= bound * (1 - 1e-9)).all()
        assert (table.energy_j >= 0).all()


def test_the_whole_zoo_runs_on_a_tpu_and_nothing_is_faster_than_its_parts():
    graph = inference_zoo("bf16")
    graph = graph.take(graph.kind != int(OperatorKind.TREE_ENSEMBLE))
    table = cost_systolic(graph, TPU4)
    assert (table.time_s >= np.maximum(table.compute_s, table.memory_s)).all()
    training = training_rows(Dtype.BF16)
    training = training.take(training.kind != int(OperatorKind.TREE_HISTOGRAM))
    assert (cost_systolic(training, TPU4).time_s > 0).all()


@settings(max_examples=40, deadline=None)
@given(m=SIDES, n=SIDES, k=SIDES, factor=st.floats(1.01, 8), count=st.integers(1, 30))
def test_monotone_in_bandwidth_rate_and_array_count(m, n, k, factor, count):
    graph = concatenate(
        [gemm(m, n, k, "bf16"), add(m * n, "bf16"), attention(2, 4, min(m, 500), 500, dtype="bf16")]
    )
    base = cost_systolic(graph, TPU4).time_s
    assert (cost_systolic(graph, with_memory(TPU4, factor)).time_s <= base * (1 + 1e-12)).all()
    assert (cost_systolic(graph, with_rates(TPU4, factor)).time_s <= base * (1 + 1e-12)).all()
    few, more = (cost_systolic(graph, with_arrays(TPU4, c)).time_s for c in (count, 2 * count))
    assert (more <= few * (1 + 1e-12)).all()


@settings(max_examples=30, deadline=None)
@given(batch=st.integers(1, 64), more=st.integers(1, 64), size=st.integers(4, 40))
def test_batch_monotone(batch, more, size):
    def graph(count):
        layers = [
            conv(count, 16, 32, size, dtype="bf16"),
            conv(count, 32, 32, size, groups=32, dtype="bf16"),
        ]
        layers += [gemm(count, 300, 500, "bf16"), attention(count, 4, size, size, dtype="bf16")]
        return concatenate([*layers, lstm(count, 5, size, "bf16")])

    small, large = (cost_systolic(graph(b), TPU4).time_s for b in (batch, batch + more))
    assert (large >= small * (1 - 1e-12)).all()


def test_additive_and_the_same_in_every_execution_mode():
    parts = [gemm(64, 256, 512, "bf16"), conv(2, 16, 32, 14, dtype="bf16"), add(100_000, "bf16")]
    together = [cost_systolic(concatenate(parts), TPU4, mode).total_time_s for mode in Execution]
    apart = sum(cost_systolic(part, TPU4).total_time_s for part in parts)
    assert together == pytest.approx([apart] * len(Execution))


def test_int8_is_faster_than_bf16_where_the_chip_has_both():
    v5e = catalog.device("tpu-v5e")
    times = [cost_systolic(gemm(4096, 4096, 4096, d), v5e).total_time_s for d in ("bf16", "int8")]
    assert times[1] < 0.6 * times[0]


def test_empty_operators_cost_only_their_start():
    graph = inference_zoo("bf16")
    table = cost_systolic(emptied(graph.take(graph.kind != int(OperatorKind.TREE_ENSEMBLE))), TPU4)
    assert (table.time_s == systolic_parameters().layer_overhead_s).all()


def test_depthwise_uses_a_small_part_of_the_array():
    full = cost_systolic(conv(8, 128, 128, 28, dtype="bf16"), TPU4)
    depthwise = cost_systolic(conv(8, 128, 128, 28, groups=128, dtype="bf16"), TPU4)
    rate = full.flop / full.compute_s, depthwise.flop / depthwise.compute_s
    assert rate[1][0] < 0.05 * rate[0][0]


def test_first_fill_and_last_drain_are_charged():
    values = replace(systolic_parameters(), layer_overhead_s=0.0)
    table = cost_systolic(gemm(2048, 2048, 2048, "int8"), TPU1, parameters=values)
    assert table.time_s[0] > max(table.compute_s[0], table.memory_s[0])


def test_scale_sim_form_is_the_slower_compatible_path():
    graph = gemm(64, 1024, 1024, "int8")
    values = replace(systolic_parameters(), pipelined=0)
    compatible = cost_systolic(graph, TPU1, parameters=values).compute_s[0]
    cycles = systolic_cycles(64, 1024, 1024, 256, 256, WS)
    peak = TPU1.peak_flop_per_s[Dtype.INT8]
    assert compatible == pytest.approx(cycles * 2 * 256 * 256 / peak)
    assert cost_systolic(graph, TPU1).compute_s[0] < compatible


@pytest.mark.parametrize(
    ("graph", "device", "words"),
    [
        (gemm(8, 8, 8, "fp32"), "tpu-v1", ("tpu-v1", "projection", "fp32", "int8")),
        (training_rows(Dtype.INT8), "tpu-v1", ("tpu-v1", "inference only")),
        (lstm(1, 4, 8, "int8"), "edge-tpu", ("edge-tpu", "lstm", "no such operator")),
        (
            row(OperatorKind.TREE_ENSEMBLE, (1, 1, 1, 1), dtype=Dtype.BF16),
            "tpu-v4",
            ("tree_ensemble",),
        ),
        (row(OperatorKind.ALL_REDUCE, (8, 2), dtype=Dtype.BF16), "tpu-v4", ("all_reduce",)),
        (
            row(OperatorKind.GEMM, (1, 8, 8, 8), dtype=Dtype.INT8, phase=Phase.OPTIMIZER),
            "tpu-v1",
            ("inference",),
        ),
    ],
)
def test_refusals_name_the_operator(graph, device, words):
    with pytest.raises(UnsupportedOperatorError) as refusal:
        cost_systolic(graph, catalog.device(device))
    for word in words:
        assert word in str(refusal.value)


def test_tpu_v1_mlp0_reaches_the_measured_rate():
    # Jouppi et al., ISCA 2017, tables 1 and 3: MLP0, 5 fully connected layers, 20 M weights, batch
    # 200: 12.3 TOPS.
    builder = GraphBuilder(precision("int8"))
    x = builder.input(200, 2000)
    for _ in range(5):
        x = builder.activation(builder.linear(x, 2000, bias=False))
    graph = builder.build()
    table = cost_systolic(graph, TPU1)
    assert graph.model_flop / table.total_time_s == pytest.approx(12.3e12, rel=0.15)
    assert table.bound[0] == 1  # waiting for weights, as the paper finds


def test_eyeriss_alexnet_layers_take_their_measured_time():
    # Chen et al., JSSC 52(1) 2017, table V: processing and total latency in ms of CONV1 to CONV4 at
    # batch 4, 200 MHz.
    builder = GraphBuilder(precision("int16"))
    for channels_in, channels_out, size, kernel, stride, padding, groups in (
        (3, 96, 227, 11, 4, 0, 1),
        (96, 256, 27, 5, 1, 2, 2),
        (256, 384, 13, 3, 1, 1, 1),
        (384, 384, 13, 3, 1, 1, 2),
    ):
        x = builder.input(4, channels_in, size, size)
        builder.conv(x, channels_out, kernel, stride=stride, padding=padding, groups=groups)
    table = cost_systolic(builder.build(), catalog.device("eyeriss"))
    assert table.compute_s * 1e3 == pytest.approx([16.5, 39.2, 21.8, 16.0], rel=0.06)
    assert table.time_s * 1e3 == pytest.approx([20.9, 41.9, 23.6, 18.4], rel=0.02)


def test_a_scratchpad_too_small_for_a_vector_names_the_layer():
    small = TPU1.model_copy(update={"sram_bytes": Sourced(value=512.0, source="law test")})
    builder = GraphBuilder(precision("int8"))
    with builder.scope("head"):
        builder.linear(builder.input(8, 1000), 1000, bias=False)
    with pytest.raises(DoesNotFitError, match=r"layer 'head'.*scratchpad.*Enlarge"):
        cost_systolic(builder.build(), small)


def test_a_format_the_array_lacks_names_the_layer_and_the_formats():
    builder = GraphBuilder(precision("bf16"))
    with builder.scope("head"):
        builder.linear(builder.input(8, 1000), 1000, bias=False)
    with pytest.raises(UnsupportedOperatorError, match=r"'head' in bf16.*int8.*[Cc]hoose"):
        cost_systolic(builder.build(), TPU1)


def test_text_takes_a_step_and_one_array_for_each_sequence_and_head_of_keys():
    values, chip = systolic_parameters(), catalog.device("tpu-v6e")
    text = attention(32, 8, 1, 2048, causal=True, dtype="bf16")
    found_s = float(cost_systolic(text, chip).compute_s[0])
    scores_s = (
        values.causal_score_operations * 2048 / (7.168e12 * values.vector_efficiency_fraction)
    )  # of one of the 256
    cycle_s = 2 * 4 * 256 * 256 / 918e12  # the stated peak is 0.05 % above arrays times clock
    step_s = 2 * 2048 * cycle_s + values.attention_step_s
    assert found_s == pytest.approx(256 * step_s + scores_s)
    pictures = attention(32, 8, 1, 2048, dtype="bf16")
    assert float(cost_systolic(pictures, chip).compute_s[0]) < 0.8 * found_s


def test_a_heads_softmax_waits_for_its_scores_and_others_fill_the_wait():
    one, many = (
        float(cost_systolic(attention(1, h, 512, 512, dtype="int8"), TPU1).compute_s[0])
        for h in (1, 64)
    )
    softmax_s = 6 * 512 * 512 / (256 * 2 * 700e6 * systolic_parameters().vector_efficiency_fraction)
    products_s = one - softmax_s
    assert products_s > 0
    assert many == pytest.approx(64 * max(products_s, softmax_s) + min(products_s, softmax_s))


def on_taps(convolves, channels, kernel):
    """Arithmetic of a convolution on an Inferentia2 whose arrays take windows whole, or by taps."""
    b = GraphBuilder(precision("bf16"))
    b.conv(b.input(16, channels, 112, 112), 64, kernel)
    chip = catalog.device("inferentia2")
    arrays = chip.arrays.model_copy(update={"convolves": convolves})
    table = cost_systolic(b.build(), chip.model_copy(update={"arrays": arrays}))
    return float(table.compute_s.sum())


def test_few_channels_leave_arrays_idle_that_convolve_tap_by_tap():
    """nki.isa.nc_matmul contracts over at most 128 partitions, which hold the input channels."""
    assert catalog.device("trainium1").arrays.convolves == "taps"
    assert on_taps("taps", 3, 7) > 20 * on_taps("windows", 3, 7)
    assert on_taps("taps", 3, 7) == pytest.approx(49 * on_taps("taps", 3, 1), rel=0.1)
    assert on_taps("taps", 128, 3) == pytest.approx(on_taps("windows", 128, 3), rel=0.05)
    assert on_taps("taps", 64, 1) == on_taps("windows", 64, 1)


@pytest.mark.parametrize("chip", ["inferentia2", "tpu-v3"])
def test_a_sample_runs_on_one_core_and_cores_run_side_by_side(chip):
    """Cores with scratchpads of their own are devices of their own; text is generated on all."""
    device = catalog.device(chip)
    one, two, four = (cost_systolic(layer(batch), device).compute_s.sum() for batch in (1, 2, 4))
    assert one == pytest.approx(two, rel=0.01)
    assert four == pytest.approx(2 * two, rel=0.15)
    generated = layer(1, Phase.PREFILL)
    assert cost_systolic(generated, device).compute_s.sum() < 0.6 * one


def layer(batch, phase=Phase.FORWARD):
    b = GraphBuilder(precision("bf16"), phase=phase)
    b.conv(b.input(batch, 128, 56, 56), 128, 3)
    return b.build()
