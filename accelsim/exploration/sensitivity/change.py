"""An answer with one thing changed, and devices with one of their rates changed.

A change is small enough that what is fitted to a device stands as it is: its parameters are shares
of the datasheet's rates, which the changed profile has more or less of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from accelsim.errors import InputError
from accelsim.frozen import frozen
from accelsim.hardware.profile import DeviceProfile, FpgaProfile

_T = TypeVar("_T")
#: Changes of what is not known well, or may be had better: estimate, a rule of reading.
RATIOS = (0.8, 1.2)
#: Fields of a profile that hold peak rates by format.
_PEAKS = (
    "matrix_flop_per_s",
    "matrix_sparse_flop_per_s",
    "matrix_fp32_accumulate_flop_per_s",
    "vector_flop_per_s",
)


@frozen
class Change(Generic[_T]):
    """An answer with one thing changed.

    Attributes:
        words: What was changed.
        result: The answer; None where there is none.
        reason: Why there is none, or what stands against it; empty where nothing does.
    """

    words: str
    result: _T | None
    reason: str = ""


def answered(
    words: str, answer: Callable[[], _T], against: Callable[[_T], str] = lambda _: ""
) -> Change[_T]:
    """A change with its answer, or with the reason that there is none.

    Args:
        words: What was changed.
        answer: Asks again.
        against: What stands against an answer, in words; empty for nothing.
    """
    try:
        found = answer()
    except InputError as error:
        return Change(words, None, str(error))
    return Change(words, found, against(found))


def more_or_less(ratio: float) -> str:
    """A ratio in words: "20 % more"."""
    return f"{abs(ratio - 1):.0%} {'more' if ratio > 1 else 'less'}".replace("%", " %")


def changed_devices(device: DeviceProfile) -> Iterator[tuple[str, DeviceProfile]]:
    """The device with more and less of its memory bandwidth, of its peak, and of both, as a better
    or worse efficiency would act; each with what was changed.

    Args:
        device: The device as it is.
    """
    changes: dict[str, Callable[[DeviceProfile, float], DeviceProfile]] = {
        "memory bandwidth": _with_memory,
        "peak": _with_peak,
        "efficiency": _with_both,
    }
    for name, change in changes.items():
        for ratio in RATIOS:
            yield f"{name} {more_or_less(ratio)}", change(device, ratio)


def _with_both(device: DeviceProfile, ratio: float) -> DeviceProfile:
    return _with_peak(_with_memory(device, ratio), ratio)


def _with_memory(device: DeviceProfile, ratio: float) -> DeviceProfile:
    rate = _times(device.memory.bandwidth_bytes_per_s, ratio)
    memory = device.memory.model_copy(update={"bandwidth_bytes_per_s": rate})
    return device.model_copy(update={"memory": memory})


def _with_peak(device: DeviceProfile, ratio: float) -> DeviceProfile:
    changed: dict[str, Any] = {
        name: {dtype: _times(rate, ratio) for dtype, rate in getattr(device, name).items()}
        for name in _PEAKS
        if hasattr(device, name)
    }
    if isinstance(device, FpgaProfile):  # whose rates are its clocks times what is built
        changed["fabric_clock_hz"] = _times(device.fabric_clock_hz, ratio)
        if device.overlay is not None:
            clock = _times(device.overlay.clock_hz, ratio)
            changed["overlay"] = device.overlay.model_copy(update={"clock_hz": clock})
    return device.model_copy(update=changed)


def _times(sourced: Any, ratio: float) -> Any:
    """A value with its source, changed; None stays."""
    return sourced and sourced.model_copy(update={"value": sourced.value * ratio})
