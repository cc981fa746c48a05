"""Numbers of a device that lie far from those of the shipped devices of its class.

Most are units that slipped: GB read as bytes, TFLOP/s as GFLOP/s. Classes such as ASICs span eight
decades from a research chip to a wafer, so that rates, memories and power are also compared for
each FLOP/s of the device's peak, which spans far less.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from accelsim.dtype import Dtype
from accelsim.hardware.sourced import FrozenModel, Sourced

if TYPE_CHECKING:
    from accelsim.hardware.profile import DeviceProfile

#: How far beyond the least and the largest of its class a number may lie: an estimate, more than a
#: generation of devices moves any of them.
_MARGIN = 10.0
_PER_PEAK = "for each FLOP/s of the peak"
_OF_SIZE = ("memory.", "on_chip", "power.", "sram_", "matrix_flop", "vector_flop", "matrix_sparse")


def field_ranges(peers: Iterable[DeviceProfile]) -> dict[str, tuple[float, float]]:
    """Least and largest number of each field, over devices of one class."""
    ranges: dict[str, tuple[float, float]] = {}
    for peer in peers:
        for name, value in _numbers(peer):
            least, most = ranges.get(name, (value, value))
            ranges[name] = min(least, value), max(most, value)
    return ranges


def far_numbers(profile: DeviceProfile, ranges: Mapping[str, tuple[float, float]]) -> list[str]:
    """Fields of a device beyond ten times the range of its class, with that range, in words.

    Args:
        profile: The device.
        ranges: Of the devices of its class that ship with accelsim, as `field_ranges` finds them.
    """
    return [
        f"{name} = {value:.4g} is far from the {profile.device_class} devices known, "
        f"{ranges[name][0]:.4g} to {ranges[name][1]:.4g}: is its unit right?"
        for name, value in _numbers(profile)
        if name in ranges and not ranges[name][0] / _MARGIN <= value <= ranges[name][1] * _MARGIN
    ]


def _numbers(profile: DeviceProfile) -> Iterator[tuple[str, float]]:
    peak = max(profile.peak_flop_per_s.values(), default=0.0)
    for name, value in _fields(profile, ""):
        yield name, value
        if peak and name.startswith(_OF_SIZE):
            yield f"{name} {_PER_PEAK}", value / peak


def _fields(value: object, name: str) -> Iterator[tuple[str, float]]:
    """Numbers with a source, by dotted field; levels of memory by their place."""
    if isinstance(value, Sourced):
        yield name, value.value
        return
    items: Iterable[tuple[object, object]] = ()
    if isinstance(value, FrozenModel | Mapping):
        items = value.items() if isinstance(value, Mapping) else value
    elif isinstance(value, tuple):
        items = enumerate(value)
    for key, inner in items:
        label = key.label if isinstance(key, Dtype) else str(key)
        yield from _fields(inner, f"{name}.{label}" if name else label)
