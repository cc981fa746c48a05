"""Design-space exploration of matrix arrays: a model on a grid of designs, and the designs nothing
beats.

A design is better only if it is no worse in latency, energy and area (or other objectives), and
better in one: the others form the Pareto front. Area is unknown where nobody has published that of
the format or node; multiply-adders then stand for it. Designs whose scratchpads cannot hold a tile
of some layer stay in the list with their reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, fields, replace
from itertools import product
from math import prod
from typing import Any, TypedDict, Unpack

import numpy as np

from accelsim.catalog import workloads as workload_catalog
from accelsim.cost.systolic.area import DesignParts, area_coefficients
from accelsim.cost.systolic.counts import PARTIAL_SUM_BITS
from accelsim.cost.systolic.designs import (
    ArrayDesign,
    DesignCosts,
    design_costs,
    refuse_small_scratchpads,
)
from accelsim.cost.systolic.energy import energy_coefficients
from accelsim.cost.systolic.products import Products, lower_to_products
from accelsim.dtype import Dtype
from accelsim.dtype import precision as find_precision
from accelsim.errors import (
    DoesNotFitError,
    InvalidValueError,
    MissingCoefficientError,
    UnknownNameError,
)
from accelsim.estimation.pareto import pareto_mask
from accelsim.exploration.array_question import ArrayQuestion
from accelsim.frozen import frozen
from accelsim.hardware.profile import Dataflow
from accelsim.hardware.scalesim import DATAFLOWS, ScaleSimConfig
from accelsim.plain import Document
from accelsim.workloads.graph import FloatArray, OperatorGraph
from accelsim.workloads.model import Workload
from accelsim.workloads.operator import Phase

__all__ = [
    "DATAFLOWS",
    "OBJECTIVES",
    "ArchitectureSweep",
    "DesignPoint",
    "dataflow_named",
    "design_grid",
    "design_of_config",
    "sweep_architectures",
]

#: What a Pareto front may weigh: fields of a point.
OBJECTIVES = {
    "latency": "latency_s",
    "energy": "energy_j",
    "area": "area_mm2",
    "elements": "elements",
    "dram": "dram_bytes",
}
_MOST_DESIGNS = 100_000
_LARGEST_BATCH = 1_048_576


@frozen
class DesignPoint:
    """One design and what the model costs on it.

    Attributes:
        design: The design.
        latency_s: One pass; None where it does not fit.
        energy_j: Dynamic energy of one pass.
        utilisation_fraction: Multiply-adds over elements x array cycles.
        dram_bytes: Moved to and from main memory.
        stall_fraction: Share of the array's time that waits for memory.
        area_mm2: Arrays, scratchpads and vector lanes; None where their area is unknown.
        is_pareto: Whether no other design beats it.
        refusal: Why the model cannot run on it; empty where it can.
        energy_parts_j: Energy by part.
        area_parts_mm2: Area by part.
    """

    design: ArrayDesign
    latency_s: float | None = None
    energy_j: float | None = None
    utilisation_fraction: float | None = None
    dram_bytes: float | None = None
    stall_fraction: float | None = None
    area_mm2: float | None = None
    is_pareto: bool = False
    refusal: str = ""
    energy_parts_j: dict[str, float] = field(default_factory=dict)
    area_parts_mm2: dict[str, float] = field(default_factory=dict)

    def to_dict(self) -> Document:
        """Flat, with the dataflow's short name."""
        design = self.design
        short = next(name for name, dataflow in DATAFLOWS.items() if dataflow is design.dataflow)
        own = {f.name: getattr(self, f.name) for f in fields(self)[1:]}
        parts: dict[str, float] = own.pop("energy_parts_j") | own.pop("area_parts_mm2")
        shape: Document = {
            "array": f"{design.rows}x{design.columns}",
            "count": design.count,
            "dataflow": short,
            "elements": design.element_count,
            "sram_bytes": design.sram_bytes,
            "bandwidth_bytes_per_s": design.bandwidth_bytes_per_s,
            "clock_hz": design.clock_hz,
        }
        return shape | own | parts


@frozen
class ArchitectureSweep:
    """A model on every design.

    Attributes:
        workload: Name of the model.
        batch: Samples per pass.
        precision: Format of the operands.
        process_nm: Node energies are for.
        memory: Main-memory technology.
        product_count: Matrix products of one pass.
        objectives: What the Pareto front weighs.
        area_note: Why the area is unknown; empty where it is known.
        points: In the order of the designs.
    """

    workload: str
    batch: int
    precision: str
    process_nm: float
    memory: str
    product_count: int
    objectives: tuple[str, ...]
    area_note: str
    points: tuple[DesignPoint, ...]

    @property
    def pareto(self) -> tuple[DesignPoint, ...]:
        """Designs nothing beats, fastest first."""
        return tuple(
            sorted((p for p in self.points if p.is_pareto), key=lambda p: p.latency_s or 0.0)
        )

    def to_dict(self) -> Document:
        """All points."""
        found = {f.name: getattr(self, f.name) for f in fields(self)}
        return found | {"points": [point.to_dict() for point in self.points]}


class SharedFields(TypedDict, total=False):
    """Fields of `ArrayDesign` that a grid does not vary."""

    clock_hz: float
    pipelined: bool
    weight_density_fraction: float


def design_grid(
    arrays: Iterable[tuple[int, int]],
    dataflows: Iterable[Dataflow],
    srams_bytes: Iterable[tuple[float, float, float]],
    bandwidths_bytes_per_s: Iterable[float],
    *,
    counts: Iterable[int] = (1,),
    **shared: Unpack[SharedFields],
) -> tuple[ArrayDesign, ...]:
    """Every combination, in the order given.

    Args:
        arrays: (rows, columns) pairs.
        dataflows: Stationary operands.
        srams_bytes: (inputs, weights, outputs) scratchpads of one array.
        bandwidths_bytes_per_s: Of main memory.
        counts: Arrays per design.
        shared: Fields that all designs have alike.

    Raises:
        InvalidValueError: If a design is not possible, or there are more than 100,000.
    """
    asked: tuple[Iterable[Any], ...] = (
        arrays,
        dataflows,
        srams_bytes,
        bandwidths_bytes_per_s,
        counts,
    )
    axes = [list(axis) for axis in asked]
    size = prod(len(axis) for axis in axes)
    if not 1 <= size <= _MOST_DESIGNS:
        allowed = f"1 to {_MOST_DESIGNS} combinations"
        raise InvalidValueError("designs", size, allowed, "Name fewer values.")
    return tuple(
        ArrayDesign(rows, columns, flow, inputs, weights, outputs, bandwidth, count, **shared)
        for (rows, columns), flow, (inputs, weights, outputs), bandwidth, count in product(*axes)
    )


def design_of_config(
    config: ScaleSimConfig,
    dtype: Dtype,
    *,
    clock_hz: float = 1e9,
    bandwidth_bytes_per_s: float | None = None,
) -> ArrayDesign:
    """The design a SCALE-Sim configuration describes; its scratchpads hold 1,024 words per unit.

    Args:
        config: Array, dataflow, scratchpads and, in USER mode, words per cycle.
        dtype: Format of the words.
        clock_hz: Array clock.
        bandwidth_bytes_per_s: Of main memory; the configuration's words per cycle where None.

    Raises:
        InvalidValueError: If the bandwidth is in neither place, or a number is out of range.
    """
    rate = config.rate_bytes_per_s(dtype, clock_hz, bandwidth_bytes_per_s)
    words = (config.input_sram_kib, config.weight_sram_kib, config.output_sram_kib)
    inputs, weights, outputs = (1024.0 * dtype.bytes * kib for kib in words)
    array = (config.rows, config.columns, config.dataflow)
    return ArrayDesign(*array, inputs, weights, outputs, rate, clock_hz=clock_hz)


def sweep_architectures(
    model: str | Workload | OperatorGraph,
    designs: Sequence[ArrayDesign],
    question: ArrayQuestion | None = None,
) -> ArchitectureSweep:
    """Latency, energy and area of one forward pass on every design.

    Args:
        model: Name, workload or forward graph (whose sizes then stand).
        designs: Designs.
        question: What each is asked. The front weighs latency, energy and area unless it says, with
            elements in place of an area that is unknown.

    Raises:
        DoesNotFitError: If no design's scratchpads hold a tile of every layer.
        InvalidValueError: If there is no design, or a size is out of range or does not apply to the
            model.
        MissingCoefficientError: If nobody has published the energy of the format, memory or node,
            or the area, where the front is to weigh it.
        UnknownNameError: If the model, precision or an objective does not exist.
    """
    if not designs:
        raise InvalidValueError("designs", 0, "at least one design")
    asked = question or ArrayQuestion()
    objectives, process_nm = asked.objectives, asked.process_nm
    _check_objectives(objectives)
    name, products = _products(model, asked.batch, asked.precision, asked.seq_len)
    dtype = find_precision(asked.precision).compute
    refusals = [_refusal(products, design, dtype) for design in designs]
    runs = [design for design, refusal in zip(designs, refusals, strict=True) if not refusal]
    if not runs:
        refuse_small_scratchpads(products, designs[0], dtype)
    energies, memory = energy_coefficients(), asked.memory
    costs = design_costs(products, runs, dtype, energies, process_nm=process_nm, memory=memory)
    area, area_note = _areas(runs, dtype, process_nm, asked="area" in (objectives or ()))
    weighed = tuple(objectives or ("latency", "energy", "area" if area else "elements"))
    found = iter(_points(runs, costs, area, weighed))
    points = tuple(
        DesignPoint(design, refusal=refusal) if refusal else next(found)
        for design, refusal in zip(designs, refusals, strict=True)
    )
    about = (name, asked.batch, asked.precision, process_nm, memory, len(products))
    return ArchitectureSweep(*about, weighed, area_note, points)


def _check_objectives(objectives: Sequence[str] | None) -> None:
    names = ", ".join(OBJECTIVES)
    if objectives is not None and not objectives:
        raise InvalidValueError("objectives", 0, "at least one", f"Name some of {names}.")
    for name in objectives or ():
        if name not in OBJECTIVES:
            raise UnknownNameError("objective", name, OBJECTIVES, f"Use {names}.")


def _areas(
    designs: Sequence[ArrayDesign], dtype: Dtype, process_nm: float, *, asked: bool
) -> tuple[dict[str, FloatArray], str]:
    """Area of each design by part, or why it is unknown; unknown is refused where it was asked
    for.
    """

    def column(name: str) -> FloatArray:
        return np.array([getattr(design, name) for design in designs], dtype=np.float64).T

    # A stationary operand is loaded behind another.
    stays = np.array([design.dataflow is Dataflow.OUTPUT_STATIONARY for design in designs])
    bits = np.where(stays, 2.0, 3.0) * 8.0 * dtype.bytes + PARTIAL_SUM_BITS
    lanes = column("columns") * column("count")
    pads = tuple(column("pads_bytes"))
    parts = DesignParts(column("element_count"), bits, column("count"), lanes, pads)
    try:
        return area_coefficients().design_parts(parts, dtype, process_nm), ""
    except MissingCoefficientError as error:
        if asked:
            raise
        return {}, f"area unknown: {error}"


def _products(
    model: str | Workload | OperatorGraph, batch: int, precision: str, seq_len: int | None
) -> tuple[str, Products]:
    if isinstance(model, OperatorGraph):
        if batch != 1 or seq_len is not None:
            field, value = ("batch", batch) if batch != 1 else ("seq_len", seq_len)
            allowed = "no value: a graph or topology has its sizes"
            raise InvalidValueError(field, value, allowed, f"Leave {field} out.")
        return "graph", lower_to_products(model)
    found = workload_catalog.workload(model) if isinstance(model, str) else model
    if not 1 <= batch <= _LARGEST_BATCH:
        raise InvalidValueError("batch", batch, f"1 to {_LARGEST_BATCH:,}")
    if seq_len is not None and found.family is not None and not found.family.sequence:
        allowed = f"no value: {found.name} has no sequence"
        raise InvalidValueError("seq_len", seq_len, allowed, "Leave seq_len out.")
    sizes = {"batch": batch} | ({} if seq_len is None else {"seq_len": seq_len})
    phase = Phase.PREFILL if found.autoregressive else Phase.FORWARD
    lowered = found.lower(replace(found.default, **sizes), find_precision(precision), phase)
    return found.name, lower_to_products(lowered.graph)


def _refusal(products: Products, design: ArrayDesign, dtype: Dtype) -> str:
    try:
        refuse_small_scratchpads(products, design, dtype)
    except DoesNotFitError as error:
        return str(error)
    return ""


def _points(
    designs: Sequence[ArrayDesign],
    costs: DesignCosts,
    area: dict[str, FloatArray],
    objectives: Sequence[str],
) -> list[DesignPoint]:
    """Points of designs that run the model; without area where it is unknown."""
    busy = np.divide(
        costs.compute_s,
        costs.latency_s - costs.vector_s,
        where=costs.compute_s > 0,
        out=np.ones(len(designs)),
    )
    columns = {
        "latency_s": costs.latency_s,
        "energy_j": np.sum(list(costs.energy_parts_j.values()), axis=0),
        "utilisation_fraction": costs.utilisation_fraction,
        "dram_bytes": costs.dram_bytes,
        "stall_fraction": 1.0 - busy,
    }
    if area:
        columns["area_mm2"] = np.sum(list(area.values()), axis=0)
    elements = np.array([design.element_count for design in designs], dtype=np.float64)
    weighed = columns | {"elements": elements}
    front = pareto_mask(np.stack([weighed[OBJECTIVES[name]] for name in objectives], axis=1))
    tables = columns, costs.energy_parts_j, area
    cells = zip(*(_rows(table, len(designs)) for table in tables), strict=True)
    return [
        DesignPoint(design, **own, energy_parts_j=energy, area_parts_mm2=places, is_pareto=best)
        for design, best, (own, energy, places) in zip(designs, front.tolist(), cells, strict=True)
    ]


def _rows(columns: Mapping[str, FloatArray], count: int) -> list[dict[str, float]]:
    """Columns as one mapping per row."""
    lists = {name: column.tolist() for name, column in columns.items()}
    return [{name: values[i] for name, values in lists.items()} for i in range(count)]


def dataflow_named(name: str) -> Dataflow:
    """A dataflow by its short name.

    Raises:
        UnknownNameError: If there is none.
    """
    found = DATAFLOWS.get(name.strip().lower())
    if found is None:
        raise UnknownNameError("dataflow", name, DATAFLOWS, "Use os, ws or is.")
    return found
