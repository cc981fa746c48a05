"""Which parameters predict a device at a tier, and what they have seen.

`spec`: one set for the whole class. For an honest score the device's own rows must not have shaped
it, so the set fitted without the device (or its chip) is used where there is one
(`accelsim.scoreboard.parameters`). `fitted`: the overlay of the device in
``calibration/fitted/<device>.yaml``, of whichever tier it is. `measured`: the same where its
surfaces interpolate the device's own kernel tables, and nothing else. `best`: the highest that
there is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

from accelsim.cost.fitted import fitted_parameters
from accelsim.cost.gpu import GpuParameters
from accelsim.cost.gpu.measured_boards import Board
from accelsim.cost.gpu.relatives import with_relative_surfaces
from accelsim.cost.registry import Parameters
from accelsim.cost.table import ParameterTier
from accelsim.errors import InvalidValueError
from accelsim.frozen import frozen
from accelsim.hardware.profile import DeviceProfile, GpuProfile
from accelsim.scoreboard.parameters import parameters

TierName = Literal["best", "spec", "fitted", "measured"]
TIERS = get_args(TierName)


@frozen
class Choice:
    """Parameters of one device at one tier.

    Attributes:
        tier: "spec", "fitted" or "measured".
        parameters: Handed to the cost model; None takes the class-wide ones.
        note: What a reader should know of them.
        refusal: Why there are none; empty where there are.
        saw_operators: Whether they were fitted to the device's single operators, of which shapes
            are kept back for scoring.
    """

    tier: str
    parameters: Parameters | None
    note: str = ""
    refusal: str = ""
    saw_operators: bool = False


def tier_name(value: str) -> TierName:
    """Check a tier's name.

    Raises:
        InvalidValueError: If there is no such tier.
    """
    for name in TIERS:
        if value == name:
            return name  # type: ignore[no-any-return]
    raise InvalidValueError("tier", value, "one of " + ", ".join(TIERS))


def choose(device: DeviceProfile, tier: TierName) -> Choice:
    """Parameters for a device.

    Args:
        device: Its profile.
        tier: The tier asked for.
    """
    return _CHOICES[tier](device)


def _spec(device: DeviceProfile) -> Choice:
    if device.device_class != "gpu":
        return Choice("spec", None)
    for chip in chips_of(device):
        left_out = parameters().class_set(chip)
        if left_out is not None:
            return _with_relative(
                left_out, device, f"class-wide parameters fitted without {chip}", as_fitted=False
            )
    note = "class-wide parameters: there is no set fitted without this device"
    return _with_relative(GpuParameters.class_wide(), device, note, as_fitted=True)


def _with_relative(
    parameters: GpuParameters, device: DeviceProfile, note: str, *, as_fitted: bool
) -> Choice:
    """Tier `spec` of a GPU: kernels follow those of the nearest measured board, never the device's
    own.
    """
    if not isinstance(device, GpuProfile):
        return Choice("spec", parameters, note)
    corrected = with_relative_surfaces(parameters, Board.of(device), as_fitted=as_fitted)
    if corrected.relatives:
        note += f"; kernels after those of {', '.join(corrected.relatives)}"
    return Choice("spec", corrected, note)


def _fitted(device: DeviceProfile) -> Choice:
    overlay = fitted_parameters(device.name)
    if overlay is None or device.device_class != "gpu":
        return Choice("fitted", None, refusal=f"no overlay calibration/fitted/{_base(device)}.yaml")
    how = "interpolated between" if overlay.tier is ParameterTier.MEASURED else "fitted to"
    note = f"{how} {overlay.rows:,} rows: {overlay.data}"
    # residuals by family come with a fit to operators; overlays of kernel tables have surfaces
    # alone
    parameters = GpuParameters.class_wide().with_overlay(overlay)
    return Choice(str(overlay.tier), parameters, note, saw_operators=bool(overlay.families))


def _measured(device: DeviceProfile) -> Choice:
    overlay = _fitted(device)
    if overlay.refusal or overlay.tier != ParameterTier.MEASURED:
        return Choice("measured", None, refusal=f"no measured table of {_base(device)}")
    return overlay


def _best(device: DeviceProfile) -> Choice:
    fitted = _fitted(device)
    return _spec(device) if fitted.refusal else fitted


_CHOICES: dict[str, Callable[[DeviceProfile], Choice]] = {
    "best": _best,
    "spec": _spec,
    "fitted": _fitted,
    "measured": _measured,
}


def _base(device: DeviceProfile) -> str:
    """Name without the slice: a share of a device has its parameters."""
    return device.name.partition("@")[0]


def chips_of(device: DeviceProfile) -> list[str]:
    """A board's name and the chips it may carry, longest first: "a100-pcie-40gb", "a100-pcie",
    "a100".
    """
    parts = _base(device).split("-")
    return ["-".join(parts[:count]) for count in range(len(parts), 0, -1)]
