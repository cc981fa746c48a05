"""A power limit that the owner of a GPU sets on it: who may have one, and within which bounds."""

from __future__ import annotations

from functools import lru_cache

from accelsim.cost.background import background_power_w
from accelsim.cost.limit import PowerLimit
from accelsim.errors import PowerLimitError
from accelsim.hardware.profile import DeviceProfile, GpuProfile, Identity


def limited(device: DeviceProfile, limit_w: float | None) -> DeviceProfile:
    """A device under a power limit of its owner's.

    Args:
        device: Any.
        limit_w: The limit, W; None sets none.

    Raises:
        PowerLimitError: If it is no GPU, or the limit is not between what it draws without work
            and its own limit.
    """
    if limit_w is None:
        return device
    board_limit_w = device.power.limit_w
    if not isinstance(device, GpuProfile) or board_limit_w is None:
        allowed = f"no limit of {device.name}: a GPU whose own power limit is known"
        raise PowerLimitError("power_limit_w", limit_w, allowed, "Leave --power-limit out.")
    least = background_power_w(device) or 0.0
    if not least < limit_w <= board_limit_w.value:
        range_w = f"{least:.0f}, which {device.name} draws without work, to {board_limit_w.value:g}"
        allowed = f"watts above {range_w}"
        raise PowerLimitError("power_limit_w", limit_w, allowed)
    return _under_limit(limit_w, Identity(device))


@lru_cache(maxsize=64)
def _under_limit(limit_w: float, board: Identity[GpuProfile]) -> DeviceProfile:
    """The same profile each time: what was priced on it is found again."""
    device = board.value
    power = device.power.model_copy(update={"set_limit_w": limit_w})
    return device.model_copy(update={"power": power})


def limit_of(device: DeviceProfile) -> PowerLimit | None:
    """The limit set on a device; None where its own holds.

    Args:
        device: Any.
    """
    power = device.power
    if power.set_limit_w is None or power.limit_w is None:
        return None
    return PowerLimit(power.set_limit_w, power.limit_w.value, background_power_w(device) or 0.0)
