"""Dynamic energy of arithmetic and memory, and the clock a power limit allows.

Arithmetic energies are Horowitz's circuit figures at 45 nm (ISSCC 2014, figure 1.1.9) and their 7
nm counterparts (Jouppi et al., ISCA 2021, table 2), joined by a power law in the node. They count
the adder and multiplier alone; fetching, decoding and moving operands multiplies them by a
class-wide overhead that each cost model brings (Dally, Hot Chips 2023: from 1.2 times for a matrix
instruction to 20 times for a scalar one). DRAM energies are vendors' and O'Connor et al.'s (MICRO
2017) pJ per bit.

Dynamic power is C f V^2. Between the highest clock and the voltage floor V falls linearly with f,
so power falls with f^3; below, V stays and power falls with f. The floor is measured: the V100
power-limit sweep of Zeus (You et al., NSDI 2023) loses 16 % speed at 59 % of the dynamic power, 30
% at 47 %, 47 % at 35 %, which is V_min = 0.81 V_max.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import ArrayLike

from accelsim.dtype import DTYPE_BYTES, Dtype
from accelsim.errors import InvalidValueError
from accelsim.files.datafile import data_root, read_mapping
from accelsim.plain import Document
from accelsim.workloads.graph import FloatArray

_PJ = 1e-12
#: Node assumed where a profile does not know its own; the middle of the catalogue (2012-2024
#: devices are 28 to 4 nm).
DEFAULT_PROCESS_NM = 12.0
#: Lowest voltage over the voltage of the highest clock (Zeus V100 sweep, see above).
VOLTAGE_FLOOR_FRACTION = 0.81
#: Boards do not slow below this; a tenth of boost is the idle clock of the boards measured.
MINIMUM_CLOCK_FRACTION = 0.1

_UNKNOWN_DRAM_PJ_PER_BIT = 10.0


@cache
def _tables() -> Document:
    return read_mapping(data_root() / "calibration" / "class" / "energy.yaml")


def arithmetic_energy_per_flop_j(dtype: Dtype, process_nm: float | None = None) -> float:
    """Energy of half a multiply-add (one FLOP) in the arithmetic unit alone.

    Horowitz, ISSCC 2014, figure 1.1.9, at 45 nm; Jouppi et al., ISCA 2021, at 7 nm.

    E(node) = E_7 (node / 7)^a with a from the 45 nm and 7 nm figures of the format.

    Args:
        dtype: Number format of the operands.
        process_nm: Node, 1 to 500 nm; None takes `DEFAULT_PROCESS_NM`.

    Returns:
        Joules per FLOP (or integer operation), at the voltage of the highest clock.

    Raises:
        InvalidValueError: If the node is out of range.
    """
    node = DEFAULT_PROCESS_NM if process_nm is None else process_nm
    if not 1 <= node <= 500:
        raise InvalidValueError("process_nm", node, "1 to 500 nm")
    tables, label = _tables(), dtype.label
    derived = tables["derived"].get(label, {"of": label, "ratio": 1.0})
    at_45, at_7 = map(sum, tables["arithmetic_pj"][derived["of"]])
    exponent = np.log(at_45 / at_7) / np.log(45 / 7)
    return float(0.5 * derived["ratio"] * at_7 * (node / 7) ** exponent * _PJ)


def arithmetic_energy_table_j(process_nm: float | None = None) -> FloatArray:
    """`arithmetic_energy_per_flop_j` of every format, indexed by `Dtype` code, shape (formats,).

    Horowitz, ISSCC 2014, figure 1.1.9, at 45 nm; Jouppi et al., ISCA 2021, at 7 nm.
    """
    return np.array(
        [arithmetic_energy_per_flop_j(Dtype(code), process_nm) for code in range(len(DTYPE_BYTES))]
    )


def dram_energy_per_byte_j(technology: str | None) -> float:
    """Energy of moving one byte to or from main memory.

    Estimate: typical energies of each technology, sources beside the table in
    ``calibration/class/energy.yaml``.

    Args:
        technology: Name such as "HBM2e" or "GDDR6"; the longest known name it contains counts. None
            or unknown: the median of the table, 10 pJ per bit.

    Returns:
        Joules per byte.
    """
    name = (technology or "").lower().replace("-", "").replace(" ", "")
    energies_pj = (value for key, value in _tables()["dram_pj_per_bit"].items() if key in name)
    return 8 * _PJ * next(energies_pj, _UNKNOWN_DRAM_PJ_PER_BIT)


def sram_energy_per_byte_j(
    capacity_bytes: ArrayLike, process_nm: float | None = None
) -> FloatArray:
    """Energy of one byte read from or written to an on-chip array.

    Horowitz, ISSCC 2014, figure 1.1.9, at 45 nm; Jouppi et al., ISCA 2021, at 7 nm.

    Log-log through the 8 KB, 32 KB and 1 MB arrays of Horowitz (10, 20, 100 pJ per 64 bits at 45
    nm) and Jouppi (7.5, 8.5, 14 pJ at 7 nm); between nodes a power law.

    Args:
        capacity_bytes: Size of one array (bank), bytes, > 0.
        process_nm: Node; None takes `DEFAULT_PROCESS_NM`.

    Returns:
        Joules per byte, in the shape of `capacity_bytes`.
    """
    node = DEFAULT_PROCESS_NM if process_nm is None else process_nm
    size = np.log(np.asarray(capacity_bytes, dtype=np.float64))
    anchors = np.log(np.array([8e3, 32e3, 1e6]))
    at_45 = np.interp(size, anchors, np.log([10.0, 20.0, 100.0]))
    at_7 = np.interp(size, anchors, np.log([7.5, 8.5, 14.0]))
    share = (np.log(node) - np.log(7)) / (np.log(45) - np.log(7))
    per_word: FloatArray = np.exp(at_7 + share * (at_45 - at_7)) / 8 * _PJ
    return per_word


def power_limited_clock_fraction(
    dynamic_w: ArrayLike,
    static_w: ArrayLike,
    limit_w: ArrayLike,
    floor: float = VOLTAGE_FLOOR_FRACTION,
) -> FloatArray:
    """Clock, over the highest clock, at which static + dynamic power meets the limit, with a
    dynamic power of f V(f)^2.

    Chandrakasan et al., JSSC 27(4), 1992: switching energy goes with the square of the voltage.

    Args:
        dynamic_w: Dynamic power the work would draw at the highest clock, W, >= 0.
        static_w: Power that does not depend on the work, W, >= 0.
        limit_w: Board or package limit, W.
        floor: Lowest voltage over that of the highest clock.

    Returns:
        Fraction in [MINIMUM_CLOCK_FRACTION, 1], broadcast shape; 1 where the limit does not bind.
    """
    dynamic, static = np.broadcast_arrays(
        np.asarray(dynamic_w, dtype=np.float64), np.asarray(static_w, dtype=np.float64)
    )
    room = np.maximum(limit_w - static, 0.0) / np.maximum(dynamic, 1e-30)
    room = np.minimum(room, 1.0)
    clock = np.where(room >= floor**3, np.cbrt(room), room / floor**2)
    limited: FloatArray = np.clip(clock, MINIMUM_CLOCK_FRACTION, 1.0)
    return limited
