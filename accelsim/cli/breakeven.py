"""``accelsim breakeven``: from which volume the development of an FPGA design or a chip pays off
against a GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from accelsim.cli.result_writer import ResultWriter, with_output
from accelsim.errors import InvalidValueError
from accelsim.frozen import frozen
from accelsim.option import argument, option
from accelsim.plain import Document

if TYPE_CHECKING:
    from accelsim.capacity.breakeven import DeploymentOption

_COLUMNS = (
    *("option", "reference", "nre_usd", "usd_per_demand", "reference_usd_per_demand"),
    *("volume", "units", "demand_per_s", "life_years", "rate_per_s", "reference_rate_per_s"),
    "reason",
)
_SHOWN = (
    "option | against=reference | >NRE=nre_usd | >per demand=usd_per_demand | >reference="
    "reference_usd_per_demand | >from demands=volume? | >from units=units? | ~why never=reason"
)
_NOTE = (
    "a demand is a sustained rate of inferences; "
    "USD per demand is hardware and electricity over its life"
)


@frozen
class Rivals:
    """What is bought, and what is developed instead."""

    reference: str = option("Device one buys.", "a10", "DEVICE")
    fpga: str | None = option("FPGA board.", metavar="DEVICE")
    asic: str | None = option("Chip to develop, or like it.", metavar="DEVICE")
    fpga_nre_usd: float = option("Development of the FPGA design.", 0.0)
    asic_nre_usd: float = option("Development of the chip, masks included.", 0.0)
    reference_usd: float | None = option("Price of the reference; the profile's if left out.")
    fpga_usd: float | None = option("Price of a board.")
    asic_usd: float | None = option("Price of one more chip on its board.")


@frozen
class Demand:
    """What is asked of them, and where."""

    demand_per_s: float = option("Inferences per second of one demand.", 1000.0)
    life_years: float = option("Years of service.", 3.0)
    electricity_usd_per_kwh: float = option("Energy price.", 0.10, flags="--usd-per-kwh")
    pue: float = option("Power usage effectiveness of the site.", 1.0)


@with_output
def breakeven(
    output: ResultWriter,
    rivals: Rivals,
    demand: Annotated[Document, Demand],
    model: str = argument("Workload name or file.", "MODEL"),
    batch: int | None = option("Samples or sequences per batch."),
) -> None:
    """Volumes from which an FPGA design or a chip is cheaper than buying the reference, development
    included.
    """
    from accelsim.capacity.breakeven import breakeven as points_of

    base = _option(model, rivals.reference, rivals.reference_usd, 0.0, batch, "--reference-usd")
    _check_class("--fpga", rivals.fpga, "fpga")
    _check_class("--asic", rivals.asic, "asic")
    asked = (
        (rivals.fpga, rivals.fpga_usd, rivals.fpga_nre_usd, "--fpga-usd"),
        (rivals.asic, rivals.asic_usd, rivals.asic_nre_usd, "--asic-usd"),
    )
    choices = [
        _option(model, name, usd, nre, batch, flag)
        for name, usd, nre, flag in asked
        if name is not None
    ]
    points = points_of(base, choices, **demand)
    rows = [point.to_dict() for point in points]
    output.emit(rows, _SHOWN, columns=_COLUMNS, note=_NOTE)


def _check_class(option: str, device: str | None, wanted: str) -> None:
    from accelsim import catalog

    if device is not None and (device_class := catalog.device(device).device_class) != wanted:
        remedy = f"List them with: accelsim devices list --class {wanted}"
        raise InvalidValueError(
            option, device, f"a device of class {wanted}, not {device_class}", remedy
        )


def _option(
    model: str, device: str, unit_usd: float | None, nre_usd: float, batch: int | None, flag: str
) -> DeploymentOption:
    from accelsim import catalog
    from accelsim.capacity.breakeven import option_of_estimate
    from accelsim.estimation.estimate import estimate

    profile = catalog.device(device)
    listed = profile.launch_price_usd
    price = listed.value if unit_usd is None and listed is not None else unit_usd
    if price is None:
        raise InvalidValueError(
            f"{profile.name}: price", None, "a price in USD", f"Its profile has none: give {flag}."
        )
    return option_of_estimate(
        estimate(model, profile, batch=batch, execution="compiled"), price, nre_usd
    )
