"""Idle power of a device: its own figure, or its class's share of the power limit.

The shares are medians of measured idle over maximum power: GPUs and the Alveo U250 from Cloud
Carbon Footprint's table (11 GPUs: 0.11 to 0.12), CPUs from the same table's watts per vCPU (Sandy
Bridge to EPYC 3: 0.16 to 0.37, median 0.24), ASICs from the TPU v1 (28 of 75 W; Jouppi et al., ISCA
2017, table 2).
"""

from __future__ import annotations

from accelsim.hardware.profile import DeviceProfile

#: Idle power over the power limit, by device class.
IDLE_FRACTION = {"gpu": 0.12, "fpga": 0.12, "cpu": 0.24, "asic": 0.37}


def idle_power_w(device: DeviceProfile) -> float | None:
    """Idle power in W: the profile's, else `IDLE_FRACTION` of its limit, else None (unknown).

    Estimate: a fraction of the power limit where the idle power is not published.
    """
    if device.power.idle_w is not None:
        return device.power.idle_w.value
    if device.power.limit_w is None:
        return None
    return IDLE_FRACTION[device.device_class] * device.power.limit_w.value
