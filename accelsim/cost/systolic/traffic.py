"""Main-memory traffic of operators on a matrix chip: weights, activations that leave the
scratchpad, batches in parts.

Activations of an inference that exceed their share of the scratchpad need not leave it: the
compiler may run a batch in parts that fit, each to the end of the layers that are too large
(depth-first or fused tiling: Alwani et al., MICRO 2016; Goetschalckx et al., ISSCC 2021). Weights
that do not stay beside them are then fetched once per part. The faster of whole and parts is taken.
A training step's activations all go to main memory, where its backward pass finds them: estimate;
1,025 images/s of ResNet-50 per TPU v3 (Ying et al., arXiv:1811.06992, 2018) are far from what
keeping them on chip would give.
"""

from __future__ import annotations

import numpy as np

from accelsim.cost.contraction import Contraction
from accelsim.cost.systolic.cycles import memory_traffic_bytes
from accelsim.cost.systolic.machine import AsicMachine
from accelsim.cost.table import Rows
from accelsim.workloads.graph import FloatArray
from accelsim.workloads.operator import OperatorKind

_PLACE_BITS = 2.0
_BATCHED = (OperatorKind.BATCHED_GEMM, OperatorKind.GROUPED_GEMM)


def weight_density(rows: Rows, machine: AsicMachine) -> FloatArray:
    """Share of a product's multiply-adds that is executed: its weights' that are not zero; all
    where it has none.

    Structured sparsity of two in four: Mishra et al., arXiv:2104.08378, 2021.
    """
    density: FloatArray = machine.weight_density_fraction[rows.column("dtype")]
    return np.where(rows.column("weight_bytes") > 0, density, 1.0)


def stored_weight_bytes(rows: Rows, machine: AsicMachine) -> FloatArray:
    """Weight bytes that come from main memory; a sparse weight brings its place among four, 2
    bits.

    Structured sparsity of two in four with 2-bit places: Mishra et al., arXiv:2104.08378, 2021.
    """
    weights: FloatArray = rows.column("weight_bytes") * machine.streamed_weight_fraction
    density = weight_density(rows, machine)
    index_ratio = _PLACE_BITS / (8.0 * rows.element_bytes)
    return weights * np.where(density < 1.0, np.minimum(density * (1.0 + index_ratio), 1.0), 1.0)


def contraction_bytes(rows: Rows, shape: Contraction, machine: AsicMachine) -> FloatArray:
    """Main-memory bytes of a product run whole: weights alone where its activations stay on chip,
    shape (r,).

    Estimate: the best order of two loops, or everything once where maps are coded; compilers may do
    better or worse.
    """
    width = rows.element_bytes
    read_bytes, write_bytes = rows.column("read_bytes"), rows.column("write_bytes")
    weights = stored_weight_bytes(rows, machine)
    if machine.serial_map_ratio:
        coded: FloatArray = weights + machine.serial_map_ratio * (read_bytes + write_bytes)
        return coded
    groups = np.maximum(shape.groups, 1.0)
    left = np.where(
        weights > 0, read_bytes, np.minimum(read_bytes, groups * shape.m * shape.k * width)
    )
    right = np.where(weights > 0, weights, read_bytes - left)
    streamed = groups * memory_traffic_bytes(
        left / groups, right / groups, write_bytes / groups, machine.sram_bytes
    )
    moved: FloatArray = np.where(batch_parts(rows, machine) == 1, weights, streamed)
    return moved + _copies_bytes(rows, machine, weights)


def _copies_bytes(rows: Rows, machine: AsicMachine, weights: FloatArray) -> FloatArray:
    """What cores with scratchpads of their own fetch again: the weights, where they split the
    batch, or the activations.

    Estimate: the lesser of the two; compilers do not say how they cut a product.
    """
    again = (machine.core_count - 1.0) * weights
    least: FloatArray = np.minimum(again, machine.core_count * rows.column("read_bytes"))
    return least


def batch_parts(rows: Rows, machine: AsicMachine) -> FloatArray:
    """Least parts of the batch whose activations stay on chip, shape (r,); infinite where not even
    one sample's do.

    Estimate: compilers do not say how they cut a batch.
    """
    activations = rows.column("read_bytes") + rows.column("write_bytes")
    parts = np.maximum(np.ceil(activations / machine.resident_bytes), 1.0)
    limit = machine.part_limit
    most = limit[rows.index] if limit.size > 1 else limit
    return np.where(parts <= most, parts, np.inf)


def in_parts(rows: Rows, shape: Contraction, parts: FloatArray) -> Contraction:
    """One part of each product: fewer rows, or fewer of independent products."""
    if rows.kind in _BATCHED:
        return Contraction(np.ceil(shape.groups / parts), shape.m, shape.n, shape.k)
    return Contraction(shape.groups, np.ceil(shape.m / parts), shape.n, shape.k)


def parts_bytes(rows: Rows, machine: AsicMachine, parts: FloatArray) -> FloatArray:
    """Main-memory bytes of a product run in parts: weights, once per part unless they fit beside
    the activations.

    Estimate: compilers do not say how they cut a batch.
    """
    share = (machine.sram_bytes - machine.resident_bytes) / machine.core_count
    stays = rows.column("weight_bytes") <= share
    weights = stored_weight_bytes(rows, machine) * np.where(stays, 1.0, parts)
    return weights + _copies_bytes(rows, machine, weights)
