"""What a power limit does to a run whose power without it is known: time, power and energy.

A run is busy for a share of its time and waits for the rest, for its host or its data. While it is
busy the board slows its clock until the limit is kept (`power_limited_clock_fraction`: dynamic
power goes with f V(f)^2); of the busy time a share goes with the clock, the rest (memory) does not.
Waiting takes no longer and draws static power. Mean powers of a run without a limit tell how busy
it is, so that one metered run predicts all limits.
"""

from __future__ import annotations

import numpy as np

from accelsim.cost.power import power_limited_clock_fraction
from accelsim.errors import InvalidValueError
from accelsim.frozen import frozen
from accelsim.workloads.graph import FloatArray


@frozen
class CapResponse:
    """How a board answers a limit.

    Attributes:
        reached_fraction: Power that it settles at, of the limit.
        static_w: Power that does not go with the clock.
        clock_bound_fraction: Share of the busy time that goes with the clock.
        busy_w: Power while it is busy, of a run that keeps it busy.
        burst_fraction: How far the busy power of a run lies from its mean power to `busy_w`.
        voltage_floor_fraction: Lowest voltage over that of the highest clock.
    """

    reached_fraction: float
    static_w: float
    clock_bound_fraction: float
    busy_w: float
    burst_fraction: float
    voltage_floor_fraction: float


def capped_run(
    power_w: FloatArray, limit_w: FloatArray, response: CapResponse
) -> tuple[FloatArray, FloatArray]:
    """Time over that without the limit, and mean power.

    An estimate: the clock of Chandrakasan et al. (JSSC 27(4), 1992) during a duty cycle.

    Args:
        power_w: Mean power without the limit, W, > 0, shape (n,).
        limit_w: Limit, W, > 0, shape (n,).
        response: Of the board.

    Returns:
        Ratio of times, >= 1, and mean power, W, of no more than without; shape (n,) each.

    Raises:
        InvalidValueError: If a power is not > 0.
    """
    for name, values in (("power_w", power_w), ("limit_w", limit_w)):
        if not (np.asarray(values) > 0).all():
            raise InvalidValueError(name, float(np.min(values)), "more than 0")
    static = response.static_w
    busy_w = power_w + response.burst_fraction * np.maximum(response.busy_w - power_w, 0.0)
    dynamic_w = np.maximum(busy_w - static, 1.0)
    duty = np.clip((power_w - static) / dynamic_w, 0.0, 1.0)
    kept_w = response.reached_fraction * limit_w
    floor = response.voltage_floor_fraction
    clock = np.asarray(power_limited_clock_fraction(dynamic_w, static, kept_w, floor))
    bound = response.clock_bound_fraction
    slower = bound / clock + 1 - bound
    ratio = duty * slower + 1 - duty
    capped_w = np.minimum(busy_w, np.maximum(kept_w, static))
    mean_w = (duty * slower * capped_w + (1 - duty) * np.minimum(static, power_w)) / ratio
    return ratio, np.minimum(mean_w, power_w)
