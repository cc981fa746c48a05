"""Design-space exploration: energies that sum, laws over designs, Pareto fronts, bad designs."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from accelsim.catalog.workloads import workload
from accelsim.cost.systolic.cycles import systolic_cycles
from accelsim.cost.systolic.designs import ArrayDesign, design_costs
from accelsim.cost.systolic.energy import energy_coefficients
from accelsim.cost.systolic.products import lower_to_products
from accelsim.dtype import Dtype, precision
from accelsim.errors import (
    DoesNotFitError,
    InvalidValueError,
    MissingCoefficientError,
    UnknownNameError,
)
from accelsim.exploration.architecture import (
    DATAFLOWS,
    dataflow_named,
    design_grid,
    pareto_mask,
    sweep_architectures,
)
from accelsim.exploration.array_question import ArrayQuestion
from accelsim.hardware.profile import Dataflow
from accelsim.workloads.builder import GraphBuilder

KIB = 1024
BASE = ArrayDesign(32, 32, Dataflow.WEIGHT_STATIONARY, 512 * KIB, 512 * KIB, 256 * KIB, 50e9)
GRID = design_grid(
    [(16, 16), (32, 64), (128, 128)],
    DATAFLOWS.values(),
    [(256 * KIB, 256 * KIB, 128 * KIB)],
    [20e9, 200e9],
    counts=(1, 4),
)


def run(design, model="resnet-18", **options):
    (point,) = sweep_architectures(model, [design], ArrayQuestion(**options)).points
    return point


def test_parts_sum_to_the_total():
    for point in sweep_architectures("resnet-18", GRID).points:
        assert sum(point.energy_parts_j.values()) == pytest.approx(point.energy_j, rel=1e-9)
        assert all(part >= 0 for part in point.energy_parts_j.values())


def test_without_stalls_the_cycles_are_the_closed_form():
    builder = GraphBuilder(precision("int8"))
    builder.linear(builder.input(196, 480), 64, bias=False)
    graph = builder.build()
    for dataflow in DATAFLOWS.values():
        design = replace(BASE, dataflow=dataflow, bandwidth_bytes_per_s=1e30)
        (point,) = sweep_architectures(graph, [design]).points
        assert point.latency_s * 1e9 == pytest.approx(
            float(systolic_cycles(196, 64, 480, 32, 32, dataflow))
        )


@pytest.mark.parametrize("model", ["resnet-18", "mobilenet-v2", "bert-base"])
def test_laws_over_designs(model):
    for dataflow in DATAFLOWS.values():
        design = replace(BASE, dataflow=dataflow)
        base = run(design, model)
        assert run(replace(design, bandwidth_bytes_per_s=500e9), model).latency_s <= base.latency_s
        assert run(replace(design, clock_hz=2e9), model).latency_s < base.latency_s
        assert run(replace(design, count=4), model).latency_s <= base.latency_s * (1 + 1e-12)
        assert run(replace(design, pipelined=True), model).latency_s <= base.latency_s
        assert run(design, model, batch=4).latency_s > base.latency_s
        assert run(design, model, process_nm=28).energy_j > base.energy_j
        assert run(design, model, memory="DDR4").energy_j > base.energy_j
        sparse = run(replace(design, weight_density_fraction=0.5), model)
        assert sparse.latency_s < base.latency_s
        assert sparse.energy_j < base.energy_j


def test_never_faster_than_its_multiply_adders_or_its_memory():
    flop = lower_to_products(
        workload("resnet-18").lower(workload("resnet-18").default, precision("int8")).graph
    ).shape
    macs = float((flop.groups * flop.m * flop.n * flop.k).sum())
    for point in sweep_architectures("resnet-18", GRID).points:
        design = point.design
        assert point.latency_s >= macs / (design.element_count * design.clock_hz)
        assert 0 < point.utilisation_fraction <= 1
        assert 0 <= point.stall_fraction < 1
        assert point.latency_s * (1 + 1e-9) >= point.dram_bytes / design.bandwidth_bytes_per_s


def test_depthwise_layers_share_a_weight_stationary_array():
    ws, os = (
        run(replace(BASE, dataflow=flow), "mobilenet-v2")
        for flow in (BASE.dataflow, Dataflow.OUTPUT_STATIONARY)
    )
    assert ws.utilisation_fraction > 0
    packed = replace(BASE, rows=128, columns=128)
    assert (
        run(packed, "mobilenet-v2").latency_s
        < run(replace(packed, dataflow=Dataflow.INPUT_STATIONARY), "mobilenet-v2").latency_s
    )
    assert os.dram_bytes >= 3.4e6  # weights once, one byte each


def test_pareto_front_is_what_no_other_design_beats():
    points = sweep_architectures("resnet-18", GRID).points
    values = np.array([(p.latency_s, p.energy_j, p.area_mm2) for p in points])
    for index, point in enumerate(points):
        others = np.delete(values, index, axis=0)
        beaten = np.any(
            np.all(others <= values[index], axis=1) & np.any(others < values[index], axis=1)
        )
        assert point.is_pareto == (not beaten)


def test_area_parts_sum_and_objectives_choose_the_front():
    found = sweep_architectures("resnet-18", GRID)
    assert found.objectives == ("latency", "energy", "area")
    for point in found.points:
        assert sum(point.area_parts_mm2.values()) == pytest.approx(point.area_mm2, rel=1e-9)
    (fastest,) = {
        p.latency_s
        for p in sweep_architectures(
            "resnet-18", GRID, ArrayQuestion(objectives=["latency"])
        ).pareto
    }
    assert fastest == min(p.latency_s for p in found.points)
    smallest = sweep_architectures("resnet-18", GRID, ArrayQuestion(objectives=["area"])).pareto
    assert {p.area_mm2 for p in smallest} == {min(p.area_mm2 for p in found.points)}
    larger = replace(BASE, weight_sram_bytes=4096 * KIB)
    assert run(larger).area_mm2 > run(BASE).area_mm2 > run(BASE, process_nm=5).area_mm2
    assert (
        run(replace(BASE, dataflow=Dataflow.OUTPUT_STATIONARY)).area_mm2 < run(BASE).area_mm2
    )  # one operand fewer


def test_an_unknown_area_is_none_and_multiply_adders_stand_for_it():
    found = sweep_architectures("resnet-18", [BASE], ArrayQuestion(process_nm=180))
    assert found.points[0].area_mm2 is None
    assert found.objectives[-1] == "elements"
    assert "3 to 130 nm" in found.area_note
    with pytest.raises(MissingCoefficientError, match="130 nm"):
        sweep_architectures(
            "resnet-18", [BASE], ArrayQuestion(process_nm=180, objectives=["latency", "area"])
        )
    with pytest.raises(UnknownNameError, match="Use latency"):
        sweep_architectures("resnet-18", [BASE], ArrayQuestion(objectives=["price"]))
    with pytest.raises(InvalidValueError, match="at least one"):
        sweep_architectures("resnet-18", [BASE], ArrayQuestion(objectives=[]))


def test_equal_designs_all_stay_on_the_front():
    assert pareto_mask(np.array([[1.0, 2.0], [1.0, 2.0], [2.0, 1.0], [2.0, 2.0]])).tolist() == [
        True,
        True,
        True,
        False,
    ]


def test_small_scratchpads_name_the_layer_and_the_remedy():
    tiny = replace(BASE, rows=128, columns=128, weight_sram_bytes=KIB)
    with pytest.raises(DoesNotFitError, match=r"layer .* scratchpad bytes.*[Ee]nlarge"):
        sweep_architectures("resnet-18", [tiny])
    both = sweep_architectures("resnet-18", [tiny, BASE]).points
    assert both[0].latency_s is None
    assert "Enlarge" in both[0].refusal
    assert both[1].refusal == ""


@pytest.mark.parametrize(
    "change",
    [
        {"rows": 0},
        {"columns": 10**6},
        {"count": -1},
        {"clock_hz": 0.0},
        {"bandwidth_bytes_per_s": np.inf},
        {"input_sram_bytes": -1.0},
        {"weight_density_fraction": 0.0},
        {"dataflow": Dataflow.ROW_STATIONARY},
    ],
)
def test_impossible_designs_are_refused(change):
    with pytest.raises(InvalidValueError, match="expected"):
        replace(BASE, **change)


def test_bad_questions_are_refused():
    with pytest.raises(InvalidValueError, match="designs"):
        sweep_architectures("resnet-18", [])
    with pytest.raises(InvalidValueError, match="designs"):
        design_grid([(r, r) for r in range(1, 1000)], DATAFLOWS.values(), [(1, 1, 1)] * 100, [1e9])
    with pytest.raises(InvalidValueError, match="mac-fp8"):
        sweep_architectures("resnet-18", [BASE], ArrayQuestion(precision="fp8"))
    with pytest.raises(InvalidValueError, match="batch"):
        sweep_architectures("resnet-18", [BASE], ArrayQuestion(batch=0))
    with pytest.raises(UnknownNameError, match="dataflow"):
        dataflow_named("rs")


def test_a_large_sweep_costs_a_few_designs():
    sizes = [
        (r, c)
        for r in (8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
        for c in (8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
    ]
    designs = design_grid(sizes, DATAFLOWS.values(), [(KIB**2, KIB**2, KIB**2 // 2)], [50e9])
    found = sweep_architectures("resnet-50", designs)
    assert min(_sweep_time_in_designs(designs) for _ in range(3)) < 60  # about 20 for the 300
    assert len(found.points) == 300
    assert found.pareto[0].latency_s == min(p.latency_s for p in found.points)


def _sweep_time_in_designs(designs):
    start = time.process_time()
    sweep_architectures("resnet-50", designs[:1])
    single = time.process_time()
    sweep_architectures("resnet-50", designs)
    return (time.process_time() - single) / (single - start)


def test_costs_of_many_designs_equal_each_alone():
    products = lower_to_products(
        workload("resnet-18").lower(workload("resnet-18").default, precision("int8")).graph
    )
    options = {"process_nm": 7.0, "memory": "HBM2"}
    together = design_costs(products, GRID, Dtype.INT8, energy_coefficients(), **options)
    for index in (0, 7, len(GRID) - 1):
        alone = design_costs(products, [GRID[index]], Dtype.INT8, energy_coefficients(), **options)
        assert together.latency_s[index] == alone.latency_s[0]
        for part, energy_j in together.energy_parts_j.items():
            assert energy_j[index] == pytest.approx(alone.energy_parts_j[part][0], rel=1e-12)
