"""How long a new replica takes before it serves: a device, its weights, and the engine's start."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Literal

from accelsim.catalog.engines import ServingEngine, SourcedFigure
from accelsim.errors import UnknownNameError
from accelsim.files.datafile import data_root, read_yaml, validated
from accelsim.hardware.profile import DeviceProfile
from accelsim.hardware.sourced import FrozenModel


class _ColdStartFile(FrozenModel):
    kind: Literal["cold_start"]
    provisioning_s: SourcedFigure
    storage_gb_per_s: Mapping[str, SourcedFigure]


def cold_start_s(
    weight_bytes: float,
    ranks: int,
    device: DeviceProfile,
    engine: ServingEngine,
    storage: str,
    provisioning_s: float | None = None,
) -> float:
    """Seconds from the decision to have a replica to its first request.

    provisioning + max(all weights / storage, one rank's weights / host link) + engine start:
    loaders read and copy at the same time (Fu et al., ServerlessLLM, OSDI 2024).

    Args:
        weight_bytes: Weights of one rank.
        ranks: Ranks of the replica, which read from one storage and have a host link each.
        device: Their device.
        engine: What they run.
        storage: Where the weights are.
        provisioning_s: Time to get the device; the usual one where None.

    Raises:
        UnknownNameError: If there is no such storage.
    """
    figures = _figures()
    if storage not in figures.storage_gb_per_s:
        raise UnknownNameError("storage", storage, tuple(figures.storage_gb_per_s))
    loading_s = ranks * weight_bytes / (1e9 * figures.storage_gb_per_s[storage].value)
    host = host_bandwidth_bytes_per_s(device)
    if host is not None:
        loading_s = max(loading_s, weight_bytes / host)
    wait_s = figures.provisioning_s.value if provisioning_s is None else provisioning_s
    return wait_s + loading_s + engine.start_s.value


def host_bandwidth_bytes_per_s(device: DeviceProfile) -> float | None:
    """Bandwidth between a device and its host; None where unknown."""
    return None if device.host_link is None else device.host_link.bandwidth_bytes_per_s.value


@cache
def _figures() -> _ColdStartFile:
    path = data_root() / "calibration/class/cold_start.yaml"
    return validated(path, lambda: _ColdStartFile.model_validate(read_yaml(path)))
