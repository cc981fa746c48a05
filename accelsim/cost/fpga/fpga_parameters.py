"""Parameters of the FPGA cost models; class-wide values and their sources stand in
``calibration/class/fpga.yaml``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Literal

from accelsim.cost.class_parameters import class_parameters
from accelsim.cost.fpga.network_rates import BoardRates, board_rates
from accelsim.frozen import frozen

Flow = Literal["overlay", "dataflow"]


@frozen
class FpgaParameters:
    """What the class adds to an FPGA's datasheet.

    Attributes:
        layer_overhead_s: Time to start one layer on an overlay.
        port_bytes_per_cycle: Memory-port width of one overlay core.
        memory_efficiency_fraction: Sustained over theoretical board bandwidth, 0 to 1.
        compute_efficiency_fraction: Share of an overlay's cycles that multiply, 0 to 1.
        generic_efficiency_fraction: Share of the stated peak that an overlay reaches on boards
            without a published one.
        energy_overhead_ratio: Energy of an executed operation over its adder and multiplier's.
        active_power_fraction: Share of limit less idle power that clocks draw while layers run, 0
            to 1.
        lut_base: Lookup tables of one streaming node's control.
        lut_ratio: Lookup tables over those of its multipliers and adders.
        flow: "overlay" (layer after layer on one processor) or "dataflow" (one streaming design for
            the whole network).
        target_fps: Frames per second a dataflow design must reach; None takes the most that fits.
        board: Rates fitted to the board's overlay, with the layer model of whole networks; None for
            class-wide ones.
    """

    layer_overhead_s: float
    port_bytes_per_cycle: float
    memory_efficiency_fraction: float
    compute_efficiency_fraction: float
    generic_efficiency_fraction: float
    energy_overhead_ratio: float
    active_power_fraction: float
    lut_base: float
    lut_ratio: float
    flow: Flow = "overlay"
    target_fps: float | None = None
    board: BoardRates | None = None


def fpga_parameters() -> FpgaParameters:
    """The class-wide parameters.

    Raises:
        ProfileError: If their file is missing or malformed.
    """
    parameters: FpgaParameters = class_parameters("fpga", FpgaParameters)
    return parameters


@lru_cache(maxsize=64)
def board_parameters(name: str) -> FpgaParameters | None:
    """Class-wide parameters with the rates fitted to a board's overlay; None where it has none.

    Args:
        name: Catalogue name.
    """
    board = board_rates(name)
    return None if board is None else replace(fpga_parameters(), board=board)
