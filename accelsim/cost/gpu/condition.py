"""Boards that depart from the model in ways of their own: residuals of them are kept apart.

The class-wide parameters are those of NVIDIA's libraries; another vendor's kernels are of another
make throughout. A board fed by its slot alone (75 W; PCI Express Card Electromechanical
Specification) cannot hold its clock on a long product, and what a short measurement shows depends
on the pause before it: runs of one shape differ by 20 to 70 %. Boards before Volta run the
libraries' older tiles, some of which leave most of the board idle.
"""

from __future__ import annotations

from accelsim.cost.gpu.generation import generation_of
from accelsim.hardware.profile import GpuProfile

OTHER_VENDOR = "other-vendor"
SLOT_POWERED = "slot-powered"
EARLY = "early"
_SLOT_W = 75.0


def board_conditions(device: GpuProfile) -> tuple[str, str]:
    """Condition of a board's products (`OTHER_VENDOR`, `SLOT_POWERED`, `EARLY` or ""), and of its
    other operators.

    Limit of the slot: PCI Express Card Electromechanical Specification, 75 W. Estimate: that boards
    so fed, early ones and other vendors' depart from the rest is this project's finding.
    """
    generation = generation_of(device)
    if not generation.is_reference:
        return OTHER_VENDOR, OTHER_VENDOR
    limit = device.power.limit_w
    if limit is not None and limit.value <= _SLOT_W * device.slice_fraction:
        return SLOT_POWERED, ""
    return (EARLY if generation.is_early else ""), ""
