"""``accelsim estimate``: one model on one device."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from accelsim.cli.result_writer import ResultWriter, with_output
from accelsim.cli.run_options import with_run_options

if TYPE_CHECKING:
    from accelsim.economics.offer import Quote
    from accelsim.hardware.profile import DeviceProfile

__all__ = ["estimate"]


@with_output
@with_run_options
def estimate(
    output: ResultWriter,
    model: Annotated[
        str,
        typer.Argument(help="Workload name, or a file: workload, captured module, HF config.json."),
    ],
    device: Annotated[
        str | None,
        typer.Option("--device", "-d", metavar="NAME", help="Device, or a slice: epyc-7763@8vcpu."),
    ] = None,
    mode: Annotated[
        str, typer.Option("--mode", metavar="MODE", help="inference or training.")
    ] = "inference",
    offer: Annotated[
        str | None,
        typer.Option(
            "--offer",
            metavar="ID",
            help="Price to use: provider/region/instance[:spot]; else the cheapest.",
        ),
    ] = None,
    device_file: Annotated[
        Path | None,
        typer.Option(
            "--device-file", metavar="FILE", help="Device profile of yours, instead of --device."
        ),
    ] = None,
    *,
    keywords: dict[str, Any],
) -> None:
    """Estimate the time, energy, memory and cost of one model on one device."""
    from accelsim.planning.estimate import estimate as estimate_run

    profile = _profile(device, device_file)
    result = estimate_run(model, profile, mode=mode, offer=offer, **keywords)

    from accelsim.report.tables import estimate_view

    scalars = {key: value for key, value in result.figures().items() if key != "operators"}
    quote = _quote(result.offer)
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


def _quote(offer: str | None) -> Quote | None:
    from accelsim.economics.price import PriceBook

    return None if offer is None else PriceBook.load().find(offer)
