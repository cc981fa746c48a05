"""A GPU's power from rows whose energy was read: static power, bytes, vector and matrix arithmetic.

A row draws the static power and its dynamic energy over its time, or the power limit where that is
less: rows at the limit say only that their energy is no smaller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from accelsim.calibration.fit.solve import Prior, solve
from accelsim.calibration.run_file import Measurement, measured_graph
from accelsim.cost.gpu import GpuMachine, GpuParameters, cost_gpu
from accelsim.cost.table import Execution
from accelsim.hardware.profile import GpuProfile
from accelsim.workloads.graph import FloatArray
from accelsim.workloads.operator import CONTRACTION_KINDS

#: Ranges and firmness (in ln) of what the rows determine.
_PRIORS = {
    "power.active_static_fraction": Prior(0.005, 0.5, 1.0),
    "power.vector_energy_overhead": Prior(1.0, 400.0, 1.0),
    "power.matrix_energy_overhead": Prior(1.0, 100.0, 1.0),
    "power.on_chip_energy_per_byte_j": Prior(20e-12, 400e-12, 1.0),
}


def fit_power(
    rows: Sequence[Measurement], profile: GpuProfile, prior: GpuParameters
) -> dict[str, float]:
    """Parameters of power by name; none without rows that have energy.

    Args:
        rows: Of a run.
        profile: The board.
        prior: Parameters to start from.
    """
    measured = [row for row in rows if row.time_s and row.row and "energy_j" in row.details]
    if not measured:
        return {}
    time_s = np.array([row.time_s for row in measured], dtype=np.float64)
    drawn_w = np.array([row.details["energy_j"] for row in measured], dtype=np.float64) / time_s
    limit = profile.power.limit_w
    ceiling_w = drawn_w.max() if limit is None else float(limit.value)
    measured_w = np.minimum(drawn_w, ceiling_w)

    def residuals(values: Mapping[str, float]) -> list[FloatArray]:
        expected = power_w(measured, time_s, profile, prior.with_values(dict(values)))
        return [np.log(measured_w / np.minimum(expected, ceiling_w))]

    solution = solve(residuals, {name: prior.value(name) for name in _PRIORS}, _PRIORS, [{}])
    return dict(solution.values) if solution.has_converged else {}


def power_w(
    rows: Sequence[Measurement], time_s: FloatArray, profile: GpuProfile, parameters: GpuParameters
) -> FloatArray:
    """Power of rows run back to back at the boost clock, W, shape (n,).

    Estimate: dynamic energy adds up over bytes and arithmetic, by `GpuMachine`'s coefficients.

    Args:
        rows: With their operator rows.
        time_s: Measured times, shape (n,).
        profile: The board.
        parameters: To predict with.
    """
    graph = measured_graph(rows)
    machine = GpuMachine.of(profile, parameters)
    costs = cost_gpu(graph, profile, Execution.GRAPH, parameters)
    is_product = np.isin(graph.kind, [int(kind) for kind in CONTRACTION_KINDS])
    per_flop = np.where(is_product, machine.flop_energy_j[graph.dtype], machine.vector_energy_j)
    dynamic_j = costs.flop * per_flop + costs.bytes * machine.byte_energy_j
    expected: FloatArray = machine.static_w + dynamic_j / time_s
    return expected
