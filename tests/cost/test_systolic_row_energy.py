"""Energy of a graph's rows on matrix chips: the parts, their sum, the power limit, and chips with a
coefficient missing.
"""

from __future__ import annotations

import numpy as np
import pytest

import accelsim
from accelsim import catalog
from accelsim.catalog.workloads import workload
from accelsim.cost.registry import operator_costs
from accelsim.cost.systolic import cost_systolic
from accelsim.cost.systolic.energy import energy_coefficients
from accelsim.cost.systolic.row_energy import ENERGY_PARTS
from accelsim.dtype import Dtype, precision
from accelsim.workloads.backward import backward_graph
from accelsim.workloads.builder import GraphBuilder

CHIPS = [
    name
    for name in catalog.device_names()
    if (d := catalog.device(name)).device_class == "asic"
    and d.matrix_flop_per_s
    and name != "eyeriss"  # a row-stationary array
]


def resnet(name="int8", batch=8):
    model = workload("resnet-50")
    return model.lower(model.default.__class__(batch=batch, image_size=224), precision(name)).graph


def usual(device):
    formats = catalog.device(device).matrix_flop_per_s
    return next(d.label for d in (Dtype.BF16, Dtype.FP16, Dtype.INT8, Dtype.INT16) if d in formats)


def gemm(m, n, k, name="int8"):
    builder = GraphBuilder(precision(name))
    builder.linear(builder.input(m, k), n, bias=False, name="fc")
    return builder.build()


@pytest.mark.parametrize("device", CHIPS)
def test_parts_sum_to_the_energy_of_every_row_and_stay_under_the_limit(device):
    profile = catalog.device(device)
    table = cost_systolic(resnet(usual(device)), profile)
    if table.energy_parts_j is None:
        assert table.energy_note
        return
    assert tuple(table.energy_parts_j) == ENERGY_PARTS
    assert sum(table.energy_parts_j.values()) == pytest.approx(table.energy_j, rel=1e-9)
    assert all(np.all(column >= 0) for column in table.energy_parts_j.values())
    if profile.power.limit_w is not None:
        idle = 0.0 if profile.power.idle_w is None else profile.power.idle_w.value
        assert np.all(
            table.energy_j <= (profile.power.limit_w.value - idle) * table.time_s * (1 + 1e-12)
        )


def test_a_product_has_the_energy_its_accesses_have():
    # 512 x 512 weights in int8 on one 256 x 256 array: two row folds and two column folds.
    m = n = k = 512
    parts = cost_systolic(gemm(m, n, k), catalog.device("tpu-v1")).energy_parts_j
    known, node = energy_coefficients(), 28
    buffer, accumulators = (float(known.per_sram_bit_j(size * 2**20, node)) for size in (24, 4))
    moved = 8 * n * k  # maps fit the buffer, weights do not stay
    assert parts["mac"].sum() == pytest.approx(m * n * k * known.per_mac_j(Dtype.INT8, node))
    assert parts["register"].sum() == pytest.approx(m * n * k * 80 * known.per_register_bit_j(node))
    assert parts["wire"].sum() == pytest.approx(m * n * k * 40 * known.per_hop_bit_j(node, 8))
    assert parts["dram"].sum() == pytest.approx(moved * known.per_dram_bit_j("DDR3"))
    operands = (2 * m * k + n * k) * 8 * buffer
    assert parts["sram"].sum() == pytest.approx(
        operands + 3 * m * n * 32 * accumulators + moved * buffer
    )
    assert parts["vector"].sum() == 0


@pytest.mark.parametrize("name", ["bert-base", "lstm-lm-medium"])
def test_every_multiply_add_counts_once(name):
    # Attention is bidirectional here, so that the model's FLOP are those executed.
    model = workload(name)
    graph = model.lower(model.default, precision("bf16")).graph
    parts = cost_systolic(graph, catalog.device("tpu-v4")).energy_parts_j
    per_mac = energy_coefficients().per_mac_j(Dtype.BF16, 7)
    assert parts["mac"].sum() == pytest.approx(graph.model_flop / 2 * per_mac, rel=1e-6)


def test_each_array_reads_its_share_of_the_scratchpad():
    # TPU v4: 32 MiB for 8 arrays of 128 x 128.
    m = n = k = 512
    parts = cost_systolic(gemm(m, n, k, "bf16"), catalog.device("tpu-v4")).energy_parts_j
    share = float(energy_coefficients().per_sram_bit_j(4 * 2**20, 7))
    words = (
        4 * m * k + n * k + n * k
    )  # inputs once per column fold, weights once, and on their way in
    assert parts["sram"].sum() == pytest.approx((words * 16 + (2 * 4 - 1) * m * n * 32) * share)


def test_the_vector_unit_computes_what_has_no_product():
    builder = GraphBuilder(precision("bf16"))
    builder.elementwise(builder.input(64, 1024), name="add")
    graph = builder.build()
    parts = cost_systolic(graph, catalog.device("tpu-v4")).energy_parts_j
    per_mac = energy_coefficients().per_mac_j(Dtype.BF16, 7)
    assert graph.flop.sum() > 0
    assert parts["vector"].sum() == pytest.approx(graph.flop.sum() / 2 * per_mac)
    assert parts["mac"].sum() == parts["wire"].sum() == 0


def test_a_row_stationary_chip_has_no_energy_by_part():
    table = cost_systolic(gemm(1, 100, 200, "int16"), catalog.device("eyeriss"))
    assert table.energy_parts_j is None
    assert table.total_energy_j > 0


def test_repeated_rows_repeat_their_parts():
    table = cost_systolic(resnet("bf16"), catalog.device("tpu-v4"))
    thrice = table.scaled(3.0)
    assert thrice.energy_parts_j["mac"] == pytest.approx(3 * table.energy_parts_j["mac"])
    assert table.to_frame()["sram_j"].to_numpy() == pytest.approx(table.energy_parts_j["sram"])


@pytest.mark.parametrize(("device", "mode"), [("tpu-v4", "inference"), ("tpu-v4", "training")])
def test_an_estimates_parts_sum_to_its_energy(device, mode):
    run = accelsim.estimate("resnet-50", device, batch=4, mode=mode)
    assert run.energy_tier == "parts"
    assert sum(run.energy_parts_j.values()) == pytest.approx(run.energy_j, rel=1e-9)
    assert run.energy_parts_j["static"] > 0
    assert run.to_dict()["energy_parts_j"] == dict(run.energy_parts_j)


@pytest.mark.parametrize("device", CHIPS)
def test_no_chip_draws_more_than_its_limit_at_any_batch(device):
    limit = catalog.device(device).power.limit_w
    for batch in (1, 64):
        run = accelsim.estimate("resnet-50", device, batch=batch)
        if limit is None or not run.fits:
            assert run.average_power_w is None
        else:
            assert 0 < run.average_power_w <= limit.value * (1 + 1e-9)
        if run.energy_parts_j is not None:
            assert sum(run.energy_parts_j.values()) == pytest.approx(run.energy_j, rel=1e-9)


def test_generated_tokens_and_host_rows_have_parts_too():
    run = accelsim.estimate("gpt2", "tpu-v4", batch=2, seq_len=32, output_len=8)
    assert sum(run.energy_parts_j.values()) == pytest.approx(run.energy_j, rel=1e-9)
    chip = catalog.device("tpu-v4")
    refusing = chip.model_copy(update={"unsupported_operators": ("pooling",)})
    table = operator_costs(resnet("bf16"), refusing, host=catalog.device("epyc-7763"))
    assert table.energy_parts_j["host"].sum() > 0
    assert sum(table.energy_parts_j.values()) == pytest.approx(table.energy_j, rel=1e-9)


@pytest.mark.parametrize("name", ["bert-base", "lstm-lm-medium"])
def test_backward_passes_repeat_their_products(name):
    # Two products of the same size for each product of the forward pass, less those of the first
    # inputs.
    model = workload(name)
    forward = model.lower(model.default, precision("bf16")).graph
    chip = catalog.device("tpu-v4")
    once = cost_systolic(forward, chip).energy_parts_j["mac"].sum()
    assert cost_systolic(backward_graph(forward), chip).energy_parts_j[
        "mac"
    ].sum() == pytest.approx(2 * once, rel=0.25)


def test_a_chip_whose_coefficient_is_missing_has_the_class_rates_and_says_which():
    run = accelsim.estimate("resnet-50", "gaudi2", precision="fp8")
    assert (run.energy_tier, run.energy_parts_j) == ("class", None)
    assert "mac-fp8" in run.energy_note
    assert run.energy_j > 0
    no_node = catalog.device("tpu-v4").model_copy(update={"process_nm": None})
    assert "process_nm" in cost_systolic(resnet("bf16"), no_node).energy_note
    no_memory = catalog.device("tpu-v4").model_copy(update={"on_chip": ()})
    assert "on_chip" in cost_systolic(resnet("bf16"), no_memory).energy_note
    assert accelsim.estimate("resnet-50", "a100-40gb").energy_tier == "class"


def test_tpu_v4_draws_what_was_measured():
    # Jouppi et al., ISCA 2023, table 4: 90 W lowest, 170 W mean, 192 W highest of a TPU v4 in
    # production.
    for model, batch in (("bert-large", 32), ("resnet-50", 256)):
        run = accelsim.estimate(model, "tpu-v4", batch=batch, mode="training")
        assert run.average_power_w == pytest.approx(170, rel=0.2)
        assert 90 < run.average_power_w <= 192
