"""Recurrent layers on a GPU: one large input product, then one small product per step, in order.

The input products of all steps are one GEMM. The recurrent products wait for each other: each step
pays a serial latency (launch or grid barrier), its arithmetic, and reading the recurrent weights
from L2 where they fit, else from memory (Appleyard et al., "Optimizing Performance of Recurrent
Neural Networks on GPUs", 2016). Directions run side by side.
"""

from __future__ import annotations

import numpy as np

from accelsim.cost.gpu.gemm import GemmShape, KernelWork, contraction_costs, gemm_compute_s
from accelsim.cost.gpu.machine import GpuMachine
from accelsim.cost.table import RowCosts, Rows
from accelsim.dtype import DTYPE_BYTES
from accelsim.workloads.graph import FloatArray
from accelsim.workloads.operator import RECURRENT_GATES


def recurrent_costs(rows: Rows, machine: GpuMachine) -> RowCosts:
    """RNN, LSTM and GRU layers; a backward row (twice the FLOP) runs twice the products and steps.

    Appleyard et al., arXiv:1604.01946 (2016). Estimate: the serial time of a step is fitted to
    DeepBench's layers.
    """
    gates = float(RECURRENT_GATES[rows.kind])
    batch, steps, hidden = rows["batch"], rows["steps"], rows["hidden_size"]
    width, directions = rows["input_size"], np.maximum(rows["directions"], 1.0)
    codes = rows.column("dtype")
    rate, matrix = machine.product_rate(rows), machine.uses_matrix_cores[codes]
    bytes_each: FloatArray = DTYPE_BYTES[codes]
    ones = np.ones(len(rows))
    inputs = GemmShape(
        ones, batch * steps, gates * hidden * directions, width, bytes_each, rate, matrix
    )
    step = GemmShape(directions, batch, gates * hidden, hidden, bytes_each, rate, matrix)
    forward_flop = 2.0 * directions * batch * steps * gates * hidden * (width + hidden)
    passes = np.maximum(rows.column("flop") / np.maximum(forward_flop, 1.0), 1.0)
    step_s = gemm_compute_s(step, machine)
    compute_s = passes * (gemm_compute_s(inputs, machine) + steps * step_s)
    weights = directions * gates * hidden * hidden * bytes_each
    reread_bytes = np.where(
        weights > machine.l2_bytes, np.maximum(steps - 1.0, 0.0) * weights * passes, 0.0
    )
    work = KernelWork(
        compute_s,
        forward_flop * passes,
        rows.bytes + reread_bytes,
        extra_latency_s=passes * steps * machine.parameters.recurrent.step_s,
    )
    return contraction_costs(rows, work, machine, machine.parameters.spread.recurrent)
