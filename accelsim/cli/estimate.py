"""``accelsim estimate``: one model on one device."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelsim.cli.report_file import check_report, command_text, offer_quote, write_report
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
    report: Path | None = None,
    *,
    keywords: dict[str, Any],
) -> None:
    """Estimate the time, energy, memory and cost of one model on one device."""
    from accelsim.planning.estimate import estimate as estimate_run

    check_report(report, output)
    profile = _profile(device, device_file)
    result = estimate_run(model, profile, mode=mode, offer=offer, **keywords)

    from accelsim.report.tables import estimate_view

    scalars = {key: value for key, value in result.figures().items() if key != "operators"}
    quote = offer_quote(result, profile)
    if report is not None:
        asked = {**keywords, "mode": mode}
        write_report(report, _page(model, result, profile, asked), output)
    output.emit(result.to_dict(), lambda: estimate_view(result, profile, quote), rows=[scalars])


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
    from accelsim.planning.simulate import simulate
    from accelsim.report.run_page import run_page

    options, _ = options_and_price(None, None, keywords)
    simulation = simulate(model, profile, options) if result.fits else None
    return run_page(result, profile, simulation, offer_quote(result), command_text())
