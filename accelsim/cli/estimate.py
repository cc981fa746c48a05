"""``accelsim estimate``: one model on one device."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelsim.cli.report_file import command_text
from accelsim.cli.result_writer import ResultWriter, with_output

if TYPE_CHECKING:
    from accelsim.hardware.profile import DeviceProfile
    from accelsim.planning.estimate import Estimate
    from accelsim.report.page import Page

__all__ = ["estimate"]


@with_output
def estimate(
    output: ResultWriter,
    model: str,
    device: str | None = None,
    mode: str = "inference",
    offer: str | None = None,
    device_file: Path | None = None,
    *,
    keywords: dict[str, Any],
) -> None:
    """Estimate the time, energy, memory and cost of one model on one device."""
    from accelsim.planning.estimate import estimate as estimate_run

    profile = _profile(device, device_file)
    result = estimate_run(model, profile, mode=mode, offer=offer, **keywords)

    from accelsim.report.parts import offer_quote
    from accelsim.report.tables import estimate_view

    scalars = {key: value for key, value in result.figures().items() if key != "operators"}
    quote = offer_quote(result.offer, profile)
    asked = {**keywords, "mode": mode, "offer": offer}
    output.emit(
        result.to_dict(),
        lambda: estimate_view(result, profile, quote),
        rows=[scalars],
        page=lambda: _page(model, result, profile, asked),
    )


def _profile(device: str | None, device_file: Path | None) -> DeviceProfile:
    """The device to estimate: that of the file, which a name given beside it must be."""
    from accelsim import catalog
    from accelsim.errors import InvalidValueError

    if device_file is None:
        if device is None:
            remedy = "See all with: accelsim devices list."
            raise InvalidValueError("device", None, "--device NAME or --device-file FILE", remedy)
        return catalog.device(device)
    profile = catalog.load_device_file(device_file)
    if device is not None and device.lower() not in {profile.name, *profile.aliases}:
        raise InvalidValueError(
            "device", device, f"{profile.name}, the device of {device_file}", "Leave --device out."
        )
    return profile


def _page(model: str, result: Estimate, profile: DeviceProfile, keywords: dict[str, Any]) -> Page:
    from accelsim.planning.options import options_and_price
    from accelsim.planning.run_changes import batch_curve, batch_knee, run_changes
    from accelsim.planning.simulate import simulate
    from accelsim.report import run_sections
    from accelsim.report.comparison_page import break_even_section
    from accelsim.report.parts import offer_quote
    from accelsim.report.run_page import bound_seconds, run_page

    options, price = options_and_price(None, None, keywords)
    quote = offer_quote(result.offer, profile)
    if not result.fits:
        return run_page(result, profile, None, quote, command_text())
    simulation = simulate(model, profile, options)
    curve = batch_curve(model, profile, options, price)
    changes = run_changes(model, profile, options, price, result)
    row = {**result.to_dict(), "reason": None, "name": result.device}
    further = (
        run_sections.knee_section(curve, batch_knee(curve)),
        run_sections.changes_section(result, changes, bound_seconds(simulation)),
        break_even_section([row], [profile], "cost"),
        run_sections.offers_section(result),
        run_sections.accuracy_section(result),
    )
    known = [section for section in further if section is not None]
    return run_page(result, profile, simulation, quote, command_text(), known)
