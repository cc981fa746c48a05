"""Peaks of matrix ASICs: what their makers quote beside what rows x columns x count x 2 x clock
gives.

The two differ where a quoted peak belongs to another clock, counts sparse operations, or an array
is not systolic and its shape in the profile was chosen to match. A format's multiple of the derived
peak is how many operations an element does per cycle in that format: 1, 2 for half-width operands,
1/4 for operands taken apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from math import log

from accelsim import catalog
from accelsim.errors import InvalidValueError
from accelsim.frozen import frozen
from accelsim.hardware.profile import AsicProfile
from accelsim.plain import Document

#: Quoted figures are rounded to three digits or to whole TFLOP/s.
_ROUNDING_FRACTION = 0.012
_RATES = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0, 2.0, 4.0)


@frozen
class AsicPeak:
    """One format of one chip.

    Attributes:
        device: Name.
        dtype: Format.
        quoted_flop_per_s: In the profile.
        derived_flop_per_s: Of the arrays at the profile's clock, times the nearest rate below.
        rate: Operations per element and cycle over one multiply-add: a power of two.
        difference_fraction: Quoted over derived, less 1.
        differs: Whether that is more than rounding.
        is_equivalent: Whether the array's shape was chosen to match, so that the derived peak is no
            check.
        reason: Recorded conflicts of the rate or the derived peak; empty where there is none.
    """

    device: str
    dtype: str
    quoted_flop_per_s: float
    derived_flop_per_s: float
    rate: float
    difference_fraction: float
    differs: bool
    is_equivalent: bool
    reason: str

    def to_dict(self) -> Document:
        """Field by field."""
        return asdict(self)


def asic_peaks(names: Sequence[str] | None = None) -> tuple[AsicPeak, ...]:
    """Quoted and derived peaks.

    Args:
        names: ASICs; all of the catalogue if none.

    Raises:
        UnknownNameError: If a device does not exist.
        InvalidValueError: If it is not an ASIC.
    """
    profiles = [catalog.device(name) for name in (names or catalog.device_names())]
    asic_peaks: list[AsicPeak] = []
    for profile in profiles:
        if isinstance(profile, AsicProfile):
            asic_peaks += _peaks(profile)
        elif names:
            remedy = "List them with: accelsim devices list --class asic"
            raise InvalidValueError("device", profile.name, "an ASIC", remedy)
    return tuple(asic_peaks)


def _peaks(profile: AsicProfile) -> list[AsicPeak]:
    """Peaks of all formats: 2 FLOP for each element and cycle, as of TPU v1, whose 65,536 elements
    have 92 TOPS at 700 MHz (Jouppi et al. 2017, arXiv:1704.04760, section 2).
    """
    arrays = profile.arrays
    elements = arrays.rows.value * arrays.columns.value * arrays.count.value
    base = 2.0 * elements * profile.clock_hz.value
    peaks: list[AsicPeak] = []
    for dtype, quoted in profile.matrix_flop_per_s.items():
        ratio = quoted.value / base
        rate = min(_RATES, key=lambda power: abs(log(ratio / power)))
        difference = quoted.value / (base * rate) - 1.0
        conflict_fields = (f"rate_tflop_per_s.{dtype.label}", "derived.matrix_peak")
        reasons = [
            conflict.reason for conflict in profile.conflicts if conflict.field in conflict_fields
        ]
        peaks.append(
            AsicPeak(
                device=profile.name,
                dtype=dtype.label,
                quoted_flop_per_s=quoted.value,
                derived_flop_per_s=base * rate,
                rate=rate,
                difference_fraction=difference,
                differs=abs(difference) > _ROUNDING_FRACTION,
                is_equivalent=arrays.equivalent,
                reason="; ".join(reasons),
            )
        )
    return peaks
