"""Power that a device draws beside the energy of its work, while it works.

A GPU with work holds its clocks up, which takes several times its idle power; the power limit
leaves the work what is left beside it. Of other classes it is the idle power.
"""

from __future__ import annotations

from accelsim.cost.gpu import GpuParameters
from accelsim.cost.gpu.machine import static_power_w
from accelsim.cost.idle import idle_power_w
from accelsim.hardware.profile import DeviceProfile, GpuProfile


def background_power_w(device: DeviceProfile) -> float | None:
    """Power in W beside that of operators; None (unknown) where the power limit is.

    Estimate: `accelsim.cost.gpu.machine.static_power_w` of GPUs, `accelsim.cost.idle` of others.

    Args:
        device: Any.
    """
    if isinstance(device, GpuProfile) and device.power.limit_w is not None:
        return static_power_w(device, GpuParameters.class_wide())
    return idle_power_w(device)
