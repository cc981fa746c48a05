"""``accelsim breakeven``: from which volume the development of an FPGA design or a chip pays off
against a GPU.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from accelsim.cli.result_writer import ResultWriter, with_output
from accelsim.errors import InvalidValueError
from accelsim.frozen import frozen
from accelsim.option import argument, option, seconds
from accelsim.plain import Document

if TYPE_CHECKING:
    from accelsim.capacity.breakeven import DeploymentOption
    from accelsim.hardware.profile import DeviceProfile

_COLUMNS = (
    *("option", "reference", "nre_usd", "usd_per_demand", "reference_usd_per_demand"),
    *("volume", "units", "demand_per_s", "life_years", "rate_per_s", "reference_rate_per_s"),
    "reason",
)
_SHOWN = (
    "option | against=reference | >NRE=nre_usd | >per demand=usd_per_demand | >reference="
    "reference_usd_per_demand | >from demands=volume? | >from units=units? | ~why never=reason"
)
_WAYS = (
    "way | ~of | >a month=usd_per_month | >per million tokens out=usd_per_million_tokens | "
    "as of=as_of?"
)
_WAYS_NOTE = (
    "bought boards with their server over their life, without people; APIs at their standard rate"
)
_NOTE = (
    "a demand is a sustained rate of inferences; "
    "USD per demand is hardware and electricity over its life"
)


@frozen
class Rivals:
    """What is bought, and what is developed instead."""

    reference: str | None = option(
        "Device to compare with, or a device profile of yours (YAML). Default: "
        "a10; with --rate h100-sxm-80gb.",
        metavar="DEVICE",
    )
    fpga: str | None = option("FPGA board, or a device profile of yours (YAML).", metavar="DEVICE")
    asic: str | None = option(
        "Chip to develop, a similar chip, or a device profile of yours (YAML).", metavar="DEVICE"
    )
    rent: bool = option("Rent the reference by the hour instead of buying it.", False)
    fpga_nre_usd: float = option("Cost to develop the FPGA design.", 0.0)
    asic_nre_usd: float = option("Cost to develop the chip, masks included.", 0.0)
    reference_usd: float | None = option("Price of the reference. Default: its street price.")
    fpga_usd: float | None = option("Price of an FPGA board.")
    asic_usd: float | None = option("Price of each further chip on its board.")


@frozen
class Demand:
    """What is asked of them, and where."""

    demand_per_s: float = option("Inferences per second of a demand, a sustained rate.", 1000.0)
    life_years: float = option("Years of service.", 3.0)
    electricity_usd_per_kwh: float = option("Energy price.", 0.10, flags="--usd-per-kwh")
    pue: float = option("Power usage effectiveness of the site.", 1.0)


@frozen
class Service:
    """A service, for which to rent, buy, colocate or call a hosted API stand in one table."""

    rate: float | None = option(
        "Requests per second of a service. Shows what it costs to rent, buy, "
        "colocate or call an API."
    )
    prompt: str = option("With --rate: lengths of prompts, as in serve.", "512")
    output: str = option("With --rate: lengths of outputs, as in serve.", "128", flags="--output")
    slo_ttft: float | None = option(
        "With --rate: longest time to the first token. Default: 2s.", metavar="TIME", parse=seconds
    )
    slo_tpot: float | None = option(
        "With --rate: longest time per further token. Default: 100ms.",
        metavar="TIME",
        parse=seconds,
    )
    cached: float = option("Share of a prompt's tokens that a hosted API has cached.", 0.0)
    usd_per_kw_month: float = option(
        "Rent of a colocated kilowatt; CBRE's average asking rate of 2024.", 184.06
    )


@with_output
def breakeven(
    output: ResultWriter,
    rivals: Rivals,
    demand: Annotated[Document, Demand],
    service: Service,
    model: str = argument("Workload name or file.", "MODEL"),
    batch: int | None = option("Samples or sequences per batch."),
) -> None:
    """Show from which volume an FPGA design or a chip, development included, is cheaper than buying
    the reference.

    With --rate: what a service costs rented, bought, colocated, and from a hosted API.
    """
    from accelsim.capacity.breakeven import breakeven as points_of

    if service.rate is not None:
        _emit_ways(output, model, rivals, demand, service)
        return
    reference_usd = 0.0 if rivals.rent else rivals.reference_usd
    base = _option(model, rivals.reference or "a10", reference_usd, 0.0, batch, "reference")
    if rivals.rent:
        base = _rented(base, rivals)
    developed = (
        (rivals.fpga, rivals.fpga_usd, rivals.fpga_nre_usd, "fpga"),
        (rivals.asic, rivals.asic_usd, rivals.asic_nre_usd, "asic"),
    )
    for device, _, _, device_class in developed:
        _check_class(device, device_class)
    options = [
        _option(model, device, unit_usd, nre_usd, batch, device_class)
        for device, unit_usd, nre_usd, device_class in developed
        if device is not None
    ]
    rows = [point.to_dict() for point in points_of(base, options, **demand)]
    output.emit(rows, _SHOWN, columns=_COLUMNS, note=_NOTE)


def _emit_ways(
    output: ResultWriter, model: str, rivals: Rivals, demand: Document, service: Service
) -> None:
    """The table of ways to serve.

    Raises:
        InvalidValueError: If a rival stands beside the service.
    """
    from accelsim.capacity.rent_or_buy import Terms, ways_to_serve
    from accelsim.serving.loads.arrivals import Arrivals
    from accelsim.serving.options import ServingOptions, SloTargets

    for flag, value in (("--fpga", rivals.fpga), ("--asic", rivals.asic)):
        if value is not None:
            raise InvalidValueError(flag, value, "no value beside --rate", "Ask for one of them.")
    terms = Terms(
        **{name: value for name, value in demand.items() if name != "demand_per_s"},
        usd_per_kw_month=service.usd_per_kw_month,
        board_usd=rivals.reference_usd,
        cached_fraction=service.cached,
    )
    targets = SloTargets(
        ttft_s=2.0 if service.slo_ttft is None else service.slo_ttft,
        tpot_s=0.1 if service.slo_tpot is None else service.slo_tpot,
    )
    load = Arrivals(rate_per_s=service.rate, prompt=service.prompt, output=service.output)
    device = _profile(rivals.reference or "h100-sxm-80gb")
    with output.progress("searching"):
        ways, served, lacks = ways_to_serve(
            model, device, load, ServingOptions(slo=targets), terms=terms
        )
    for text in lacks:
        output.note(text)
    rows = [way.to_dict() for way in ways]
    note = f"{served.deployed}; {_WAYS_NOTE}"
    output.emit(rows, _WAYS, columns=tuple(rows[0]) if rows else (), note=note)


def _rented(bought: DeploymentOption, rivals: Rivals) -> DeploymentOption:
    """The reference at the cheapest rent that may be chosen."""
    from accelsim.capacity.breakeven import rented
    from accelsim.economics.device_price import device_price

    device = _profile(rivals.reference or "a10")
    if rivals.reference_usd is not None:
        allowed = "no price beside --rent"
        raise InvalidValueError("--reference-usd", rivals.reference_usd, allowed)
    price = device_price(device)
    if price.usd_per_hour is None:
        reason = "; ".join(price.notes) or "no offer is known"
        raise InvalidValueError("--rent", device.name, f"a device with an offer ({reason})")
    return rented(bought, price.usd_per_hour)


def _profile(word: str) -> DeviceProfile:
    """A device of the catalogue, or of a file."""
    from accelsim import catalog

    is_file = Path(word).suffix.lower() in {".yaml", ".yml", ".json"}
    return catalog.load_device_file(word) if is_file else catalog.device(word)


def _check_class(device: str | None, wanted: str) -> None:
    if device is not None and (device_class := _profile(device).device_class) != wanted:
        raise InvalidValueError(
            f"--{wanted}",
            device,
            f"a device of class {wanted}, not {device_class}",
            f"List them with: accelsim devices list --class {wanted}",
        )


def _option(
    model: str, device: str, unit_usd: float | None, nre_usd: float, batch: int | None, flag: str
) -> DeploymentOption:
    from accelsim.capacity.breakeven import option_of_estimate
    from accelsim.capacity.rent_or_buy import board_price
    from accelsim.estimation.estimate import estimate

    profile = _profile(device)
    price, _, _ = board_price(profile, unit_usd)
    if price is None:
        remedy = f"None is known: give --{flag}-usd."
        raise InvalidValueError(f"{profile.name}: price", None, "a price in USD", remedy)
    return option_of_estimate(
        estimate(model, profile, batch=batch, execution="compiled"), price, nre_usd
    )
