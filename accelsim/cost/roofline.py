"""The roofline: an operator takes at least its arithmetic at peak rate and its bytes at full
bandwidth.

Williams, Waterman, Patterson, "Roofline", CACM 52(4), 2009. It is the baseline that the device
models must beat on measured data, and the bound that they may not undercut for the FLOP and bytes
they say they move.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from accelsim.dtype import DTYPE_BYTES, Dtype
from accelsim.errors import InvalidValueError, UnsupportedOperatorError
from accelsim.frozen import frozen
from accelsim.hardware.profile import DeviceProfile
from accelsim.workloads.graph import FloatArray

#: Formats a unit without the row's own format computes in instead: wider, of the same sort where
#: there is one.
_SUBSTITUTES = {
    Dtype[name]: tuple(Dtype[other] for other in others.split())
    for name, others in (
        ("TF32", "FP32"),
        ("FP16", "FP32"),
        ("BF16", "FP32"),
        ("FP8", "BF16 FP16 FP32"),
        ("FP6", "FP8 BF16 FP16 FP32"),
        ("FP4", "FP8 BF16 FP16 FP32"),
        ("INT8", "INT16 INT32 FP32"),
        ("INT4", "INT8 FP16 FP32"),
        ("INT1", "INT8 FP32"),
        ("BOOL", "INT8 INT32 FP32"),
        ("INT16", "INT32 FP32"),
        ("INT32", "FP32"),
        ("INT64", "FP64 FP32"),
    )
}


def rate_table(rates: Mapping[Dtype, float], *, substitute: bool = True) -> FloatArray:
    """Rate of every format, indexed by `Dtype` code; NaN where the unit cannot compute it.

    Args:
        rates: Rates of the formats a unit has, FLOP/s.
        substitute: Whether formats without a rate take that of the first of `_SUBSTITUTES` that has
            one.
    """
    table = np.full(len(DTYPE_BYTES), np.nan)
    for dtype in Dtype:
        candidates = (dtype, *(_SUBSTITUTES.get(dtype, ()) if substitute else ()))
        table[dtype] = next(
            (rates[candidate] for candidate in candidates if candidate in rates), np.nan
        )
    return table


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


@frozen(eq=False)
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
        return np.maximum(self.compute_s(flop, dtype), moved_bytes / self.bandwidth_bytes_per_s)
