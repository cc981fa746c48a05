"""The roofline: an operator takes at least its arithmetic at peak rate and its bytes at full
bandwidth.

Williams, Waterman, Patterson, "Roofline", CACM 52(4), 2009. It is the baseline that the device
models must beat on measured data, and the bound that they may not undercut for the FLOP and bytes
they say they move.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accelsim.cost.power import arithmetic_energy_table_j, dram_energy_per_byte_j
from accelsim.cost.table import CostTable, Execution, bound_of
from accelsim.errors import InvalidValueError, UnsupportedOperatorError
from accelsim.hardware.profile import DeviceProfile
from accelsim.workloads.dtype import DTYPE_BYTES, Dtype
from accelsim.workloads.graph import FloatArray, OperatorGraph
from accelsim.workloads.operator import OperatorKind

__all__ = [
    "SUBSTITUTES",
    "Roofline",
    "arithmetic_intensity",
    "cost_roofline",
    "main_memory_bandwidth_bytes_per_s",
    "rate_table",
    "ridge_point",
]

_D = Dtype
#: Formats a unit without the row's own format computes in instead: wider, of the same sort where
#: there is one.
SUBSTITUTES: Mapping[Dtype, tuple[Dtype, ...]] = {
    _D.TF32: (_D.FP32,),
    _D.FP16: (_D.FP32,),
    _D.BF16: (_D.FP32,),
    _D.FP8: (_D.BF16, _D.FP16, _D.FP32),
    _D.FP6: (_D.FP8, _D.BF16, _D.FP16, _D.FP32),
    _D.FP4: (_D.FP8, _D.BF16, _D.FP16, _D.FP32),
    _D.INT8: (_D.INT16, _D.INT32, _D.FP32),
    _D.INT4: (_D.INT8, _D.FP16, _D.FP32),
    _D.INT1: (_D.INT8, _D.FP32),
    _D.BOOL: (_D.INT8, _D.INT32, _D.FP32),
    _D.INT16: (_D.INT32, _D.FP32),
    _D.INT32: (_D.FP32,),
    _D.INT64: (_D.FP64, _D.FP32),
    _D.FP32: (),
    _D.FP64: (),
}


def rate_table(rates: Mapping[Dtype, float], *, substitute: bool = True) -> FloatArray:
    """Rate of every format, indexed by `Dtype` code; NaN where the unit cannot compute it.

    Args:
        rates: Rates of the formats a unit has, FLOP/s.
        substitute: Whether formats without a rate take that of the first of `SUBSTITUTES` that has
            one.
    """
    table = np.full(len(DTYPE_BYTES), np.nan)
    for dtype in Dtype:
        candidates = (dtype, *SUBSTITUTES[dtype]) if substitute else (dtype,)
        table[dtype] = next((rates[c] for c in candidates if c in rates), np.nan)
    return table


def arithmetic_intensity(flop: ArrayLike, moved_bytes: ArrayLike) -> FloatArray:
    """FLOP per byte moved; infinite where nothing moves, 0 where nothing is computed.

    Williams, Waterman and Patterson, "Roofline", CACM 52(4), 2009.
    """
    work, moved = np.broadcast_arrays(
        np.asarray(flop, dtype=np.float64), np.asarray(moved_bytes, dtype=np.float64)
    )
    intensity: FloatArray = np.where(work > 0, np.inf, 0.0)
    np.divide(work, moved, out=intensity, where=moved > 0)
    return intensity


def ridge_point(peak_flop_per_s: float, bandwidth_bytes_per_s: float) -> float:
    """Arithmetic intensity at which compute and memory take equal time, FLOP per byte.

    Williams, Waterman and Patterson, "Roofline", CACM 52(4), 2009.

    Raises:
        InvalidValueError: If a rate is not above 0.
    """
    for field, value in (
        ("peak_flop_per_s", peak_flop_per_s),
        ("bandwidth_bytes_per_s", bandwidth_bytes_per_s),
    ):
        if not value > 0:
            raise InvalidValueError(field, value, "a rate above 0")
    return peak_flop_per_s / bandwidth_bytes_per_s


def main_memory_bandwidth_bytes_per_s(device: DeviceProfile) -> float:
    """Bandwidth of the main memory.

    Raises:
        InvalidValueError: If the profile does not know it.
    """
    bandwidth = device.memory_bandwidth_bytes_per_s
    if bandwidth is None:
        raise InvalidValueError(
            f"{device.name}: memory.bandwidth_bytes_per_s",
            None,
            "a known bandwidth",
            "Add it to the device profile.",
        )
    return bandwidth


@dataclass(frozen=True, slots=True, eq=False)
class Roofline:
    """Peak rate per format and main-memory bandwidth.

    Attributes:
        device_name: For messages.
        peak_flop_per_s: Indexed by `Dtype` code; NaN where there is none.
        bandwidth_bytes_per_s: Of the main memory.
    """

    device_name: str
    peak_flop_per_s: FloatArray
    bandwidth_bytes_per_s: float

    @classmethod
    def of(cls, device: DeviceProfile) -> Roofline:
        """The roofline of a profile: best dense unit per format, substitutes where it has none."""
        peak = rate_table(device.peak_flop_per_s)
        return cls(device.name, peak, main_memory_bandwidth_bytes_per_s(device))

    def compute_s(self, flop: FloatArray, dtype: NDArray[np.int8]) -> FloatArray:
        """Time of the arithmetic at peak, shape of `flop`; rows without FLOP need no unit.

        Williams et al., CACM 52(4), 2009.

        Raises:
            UnsupportedOperatorError: If a row with FLOP has a format without a rate.
        """
        peak = self.peak_flop_per_s[dtype]
        missing = np.flatnonzero(np.isnan(peak) & (flop > 0))
        if missing.size:
            label = Dtype(int(dtype[missing[0]])).label
            raise UnsupportedOperatorError(
                self.device_name, f"row {missing[0]}", f"it has no {label} arithmetic"
            )
        time: FloatArray = np.zeros(len(flop))
        np.divide(flop, peak, out=time, where=flop > 0)
        return time

    def time_s(
        self, flop: FloatArray, moved_bytes: FloatArray, dtype: NDArray[np.int8]
    ) -> FloatArray:
        """max(FLOP / peak, bytes / bandwidth), shape of `flop`.

        Williams, Waterman and Patterson, "Roofline", CACM 52(4), 2009.
        """
        bound: FloatArray = np.maximum(
            self.compute_s(flop, dtype), moved_bytes / self.bandwidth_bytes_per_s
        )
        return bound


def cost_roofline(
    graph: OperatorGraph,
    device: DeviceProfile,
    execution: Execution = Execution.EAGER,
    parameters: None = None,
) -> CostTable:
    """The plain roofline as a cost model: no overhead, no caches, no launch cost.

    Williams, Waterman and Patterson, "Roofline", CACM 52(4), 2009.

    Args:
        graph: Operators.
        device: Any profile.
        execution: Ignored: the roofline knows no framework.
        parameters: Ignored: it has none.
    """
    del execution, parameters
    line = Roofline.of(device)
    integer = np.isin(
        graph.kind, [int(OperatorKind.TREE_ENSEMBLE), int(OperatorKind.TREE_HISTOGRAM)]
    )
    flop = np.where(integer, 0.0, graph.flop)  # tree nodes are lookups, not arithmetic
    compute = line.compute_s(flop, graph.dtype)
    memory = graph.bytes / line.bandwidth_bytes_per_s
    node = None if device.process_nm is None else device.process_nm.value
    per_flop = arithmetic_energy_table_j(node)[graph.dtype]
    zero = np.zeros(len(graph))
    return CostTable(
        time_s=np.maximum(compute, memory),
        compute_s=compute,
        memory_s=memory,
        dispatch_s=zero,
        energy_j=per_flop * flop + dram_energy_per_byte_j(device.memory.technology) * graph.bytes,
        flop=flop,
        bytes=graph.bytes,
        bound=bound_of(compute, memory, 0.0),
        log_sigma=np.full(len(graph), 1.0),
    )
