"""An ASIC as its cost model sees it: arrays, rates per format, scratchpad, vector unit, memory
ports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from accelsim.cost.class_parameters import class_parameters
from accelsim.cost.roofline import rate_table
from accelsim.dtype import Dtype
from accelsim.errors import InvalidValueError
from accelsim.frozen import frozen
from accelsim.hardware.profile import AsicProfile, Dataflow
from accelsim.hardware.sourced import Sourced, value_of
from accelsim.workloads.graph import FloatArray, IntArray, OperatorGraph
from accelsim.workloads.operator import (
    ATTENTION_KINDS,
    CONV_KINDS,
    RECURRENT_KINDS,
    OperatorKind,
    Phase,
)

#: Kinds that know the samples of a batch, and the column of `DIMENSIONS` that has them: "batch", or
#: "m" of products alone.
_SAMPLES = (
    ([*CONV_KINDS, *ATTENTION_KINDS, *RECURRENT_KINDS], 0),
    ([OperatorKind.GEMM], 1),
)
#: Phases of a training step beside its forward pass.
TRAINING_PHASES = (Phase.BACKWARD, Phase.GRADIENT, Phase.OPTIMIZER)


@frozen
class SystolicParameters:
    """What the class adds to an ASIC's datasheet; values and sources in
    ``calibration/class/asic.yaml``.

    Attributes:
        pipelined: 1 if folds overlap their fills (`pipelined_cycles`), 0 for SCALE-Sim's stall-free
            form.
        memory_efficiency_fraction: Sustained over theoretical bandwidth, 0 to 1.
        layer_overhead_s: Time to start one operator of the compiled program.
        vector_efficiency_fraction: Share of vector peak of elementwise and norm code, 0 to 1.
        vector_operations_per_column: Operations per array column and cycle where the profile states
            no vector rate.
        resident_fraction: Share of the scratchpad that activations may take between operators; 0
            sends all to memory.
        row_stationary_efficiency_fraction: Share of cycles a row-stationary array computes (the
            rest loads and drains).
        row_stationary_map_ratio: Bytes of a map that a row-stationary chip coded, over its values'.
        causal_score_operations: Vector operations that a score of text's attention takes the time
            of, in inference.
        attention_step_s: Time to start one step of its kernel.
        energy_overhead_ratio: Energy of an executed operation over its adder and multiplier's.
        sparse_weights: Whether weights have the structured sparsity of the profile's sparse rates.
        samples: Samples of the batch that each row of a graph of many scenarios is of, shape (n,);
            those of the graph where None.
    """

    pipelined: float
    memory_efficiency_fraction: float
    layer_overhead_s: float
    vector_efficiency_fraction: float
    vector_operations_per_column: float
    resident_fraction: float
    row_stationary_efficiency_fraction: float
    row_stationary_map_ratio: float
    causal_score_operations: float
    attention_step_s: float
    energy_overhead_ratio: float
    sparse_weights: bool = False
    samples: FloatArray | None = None


def systolic_parameters() -> SystolicParameters:
    """The class-wide parameters.

    Raises:
        ProfileError: If their file is missing or malformed.
    """
    parameters: SystolicParameters = class_parameters("asic", SystolicParameters)
    return parameters


@cache
def sparse_parameters() -> SystolicParameters:
    """The class-wide parameters, for weights with the structured sparsity a chip's sparse rates
    stand for.
    """
    return replace(systolic_parameters(), sparse_weights=True)


@frozen(eq=False)
class AsicMachine:
    """Sustained rates of one ASIC.

    Attributes:
        name: Device name, for messages.
        values: Parameters of the class.
        rows: Array height.
        columns: Array width.
        count: Arrays.
        dataflow: Stationary operand.
        convolves_taps: Whether each tap of a convolution's window is a product of its own.
        clock_hz: Array clock.
        seconds_per_cycle: Of the arrays by `Dtype` code (a format at twice the native rate takes
            half); NaN where none.
        weight_density_fraction: Share of the weights that is multiplied, by `Dtype` code: dense
            over sparse rate where weights are sparse, else 1.
        vector_flop_per_s: Sustained vector rate by `Dtype` code.
        sram_bytes: Scratchpad capacity.
        resident_bytes: Most activation bytes kept on chip between operators.
        memory_bytes_per_s: Sustained bandwidth of main memory.
        host_bytes_per_s: Bandwidth of the host link; of main memory where there is none.
        operator_start_s: Time to start one operator: the class's and what the profile adds.
        serial_map_ratio: Bytes of maps that move while the arrays wait, over those of their values;
            0 where loads overlap.
        core_count: Cores that fetch weights into scratchpads of their own.
        idle_ratio: Cores over those that have a sample: arrays take as long as if all had one.
        streamed_weight_fraction: Share of a model's weights that comes from main memory in every
            run.
        part_limit: Most parts a batch may be run in, of the whole graph or of each row: the samples
            of a core in an inference; 0 in training, whose activations do not stay on chip.
    """

    name: str
    values: SystolicParameters
    rows: float
    columns: float
    count: int
    dataflow: Dataflow
    convolves_taps: bool
    clock_hz: float
    seconds_per_cycle: FloatArray
    weight_density_fraction: FloatArray
    vector_flop_per_s: FloatArray
    sram_bytes: float
    resident_bytes: float
    memory_bytes_per_s: float
    host_bytes_per_s: float
    operator_start_s: float
    serial_map_ratio: float = 0.0
    core_count: float = 1.0
    idle_ratio: float = 1.0
    streamed_weight_fraction: float = 1.0
    part_limit: FloatArray = field(default_factory=lambda: np.ones(()))

    def in_row_blocks(self, count: int) -> AsicMachine:
        """The machine whose arrays work as so many blocks of rows; itself where they cannot."""
        if count == 1 or self.rows % count:
            return self
        return replace(self, rows=self.rows / count, count=self.count * count)

    def running(
        self, graph: OperatorGraph, device: AsicProfile, samples: FloatArray | None = None
    ) -> AsicMachine:
        """The machine as a graph finds it: weights in its cache, the batch's parts, and of cores
        with scratchpads of their own those that have a sample.

        A core is a device of its own, which runs a sample alone (AWS Neuron documentation, Data
        parallel inference; Cloud TPU documentation, TPU v2 and v3); text is generated on all.
        Cached weights have what one sample's largest activations leave of the on-chip memory, and
        activations what cached weights leave; updated weights are not kept. Estimate: that
        compilers share the memory so.

        Args:
            graph: Operators.
            device: The chip.
            samples: Samples that each row is of, shape (n,), as many busy cores for all of them;
                those of the graph where None.
        """
        if np.isin(graph.phase, TRAINING_PHASES).any():
            return replace(self, part_limit=np.zeros(()))
        counts = sample_counts(graph.kind, graph.dims[None]) if samples is None else samples
        fewest = float(counts[0])
        if fewest < self.core_count and np.all(graph.phase == Phase.FORWARD):
            idle = self.core_count / fewest
            vector = self.vector_flop_per_s / idle
            busy = replace(self, idle_ratio=idle, core_count=fewest, vector_flop_per_s=vector)
            return busy.running(graph, device, samples)
        parts = np.maximum(counts // self.core_count, 1.0)
        weights = float(graph.weight_bytes.sum())
        if device.weight_cache_bytes is None or weights <= 0:
            return replace(self, part_limit=parts)
        largest = float((graph.read_bytes + graph.write_bytes).max()) / fewest
        cached = min(device.weight_cache_bytes.value, weights, max(self.sram_bytes - largest, 0.0))
        return replace(
            self,
            part_limit=parts,
            resident_bytes=self.sram_bytes - cached,
            streamed_weight_fraction=1.0 - cached / weights,
        )


def sample_counts(kind: NDArray[np.int16], dims: IntArray) -> FloatArray:
    """Samples of the batch of each scenario: the fewest of its convolutions, attention and
    recurrent layers; rows of its products if none.

    Args:
        kind: `OperatorKind` codes of the rows that scenarios share, shape (d,).
        dims: Dimensions, shape (s, d, dimensions).
    """
    for kinds, column in _SAMPLES:
        rows = np.isin(kind, kinds)
        if rows.any():
            fewest: FloatArray = np.maximum(dims[:, rows, column].min(axis=1), 1).astype(np.float64)
            return fewest
    return np.ones(len(dims))


def asic_machine(device: AsicProfile, values: SystolicParameters) -> AsicMachine:
    """Sustained rates of a profile.

    A format's rate above rows x columns x count x 2 x clock shortens its cycles, one below
    lengthens them; a chip whose stated peak is lower than its arrays could do is thus held to the
    stated peak. Where main memory has no bandwidth (all memory on chip), weights come over the host
    link.

    Raises:
        InvalidValueError: If the profile knows neither a memory bandwidth nor a host link.
    """
    arrays = device.arrays
    native = 2.0 * arrays.rows.value * arrays.columns.value * arrays.count.value
    rates = _rates(device.matrix_flop_per_s)
    vector = _vector_rates(device, values)
    sram = _sram_bytes(device)
    memory = _memory_bandwidth(device)
    return AsicMachine(
        name=device.name,
        values=values,
        rows=float(arrays.rows.value),
        columns=float(arrays.columns.value),
        count=arrays.count.value,
        dataflow=arrays.dataflow,
        convolves_taps=arrays.convolves == "taps",
        clock_hz=device.clock_hz.value,
        seconds_per_cycle=native / rates,
        weight_density_fraction=_weight_density(device, rates, values),
        vector_flop_per_s=vector * values.vector_efficiency_fraction,
        sram_bytes=sram,
        resident_bytes=sram * values.resident_fraction,
        memory_bytes_per_s=memory * values.memory_efficiency_fraction,
        operator_start_s=values.layer_overhead_s + value_of(device.operator_overhead_s, 0.0),
        serial_map_ratio=values.row_stationary_map_ratio
        if arrays.dataflow is Dataflow.ROW_STATIONARY
        else 0.0,
        core_count=float(value_of(device.core_count, 1)),
        host_bytes_per_s=memory
        if device.host_link is None
        else device.host_link.bandwidth_bytes_per_s.value,
    )


def _weight_density(
    device: AsicProfile, rates: FloatArray, values: SystolicParameters
) -> FloatArray:
    """Dense over sparse rate by format; 1 where the chip has no sparse rate, or weights are
    dense.
    """
    if not values.sparse_weights:
        return np.ones_like(rates)
    sparse = _rates(device.matrix_sparse_flop_per_s)
    return np.where(np.isnan(sparse), 1.0, rates / sparse)


def _rates(stated: Mapping[Dtype, Sourced[float]]) -> FloatArray:
    return rate_table({d: rate.value for d, rate in stated.items()}, substitute=False)


def _sram_bytes(device: AsicProfile) -> float:
    if device.sram_bytes is not None:
        return device.sram_bytes.value
    return max((level.capacity_bytes.value for level in device.on_chip), default=np.inf)


def _memory_bandwidth(device: AsicProfile) -> float:
    if device.memory_bandwidth_bytes_per_s is not None:
        return device.memory_bandwidth_bytes_per_s
    if device.host_link is not None:
        return device.host_link.bandwidth_bytes_per_s.value
    field = f"{device.name}: memory.bandwidth_bytes_per_s"
    raise InvalidValueError(
        field, None, "a known bandwidth or host link", "Add it to the device profile."
    )


def _vector_rates(device: AsicProfile, values: SystolicParameters) -> FloatArray:
    """Vector peak by format: the profile's, or one lane per array column."""
    stated = {d: rate.value for d, rate in device.vector_flop_per_s.items()}
    derived = device.arrays.columns.value * device.arrays.count.value * device.clock_hz.value
    derived *= values.vector_operations_per_column
    table = rate_table(stated)
    best = stated.get(Dtype.FP32, max(stated.values(), default=derived))
    return np.where(np.isnan(table), best, table)
