"""Ways to serve a model: rent, buy, colocate, or call a hosted API, each at what a month costs.

The devices are those of ``serve --find cheapest``. Hardware of one's own costs its boards at the
street price with what stands around them, spread over its life, and its electricity; colocated
hardware the rent of its room besides. What is rented is whole instances. A hosted API costs its
price per million tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace

import numpy as np

from accelsim import catalog
from accelsim.economics.hosted import hosted_prices, street_price
from accelsim.economics.offer import PRICE_KINDS
from accelsim.economics.ownership import OwnedHardware
from accelsim.economics.price import PriceBook
from accelsim.economics.result import HOURS_PER_MONTH, SECONDS_PER_MONTH
from accelsim.errors import InvalidValueError
from accelsim.estimation.options import RunOptions
from accelsim.frozen import frozen
from accelsim.hardware.profile import DeviceProfile
from accelsim.plain import Document
from accelsim.serving.find import find
from accelsim.serving.loads.arrivals import Arrivals
from accelsim.serving.options import ServingOptions
from accelsim.serving.result import ServingResult
from accelsim.simulation.randomness import RandomStreams

_MILLION = 1e6
#: Requests whose mean lengths are taken where none are asked for.
_DRAWN = 1000
#: Price of all but the boards of a server over that of its boards: 32,010 USD beside eight H100 of
#: 30,000 (Epoch AI, training-cost-trends, on a DGX H100, 2023-05).
_AROUND_BOARDS = 32_010 / 240_000
#: Power of hosts, fans and network over that of the boards. Estimate: a DGX H100 draws 10.2 kW at
#: most, 5.6 of them its boards (NVIDIA's datasheet); half of the rest goes with the load.
_AROUND_POWER = 0.4


@frozen(kw_only=True)
class Terms:
    """What hardware of one's own costs beside its boards, and how a hosted API is called.

    Attributes:
        life_years: Years of service.
        electricity_usd_per_kwh: Energy price.
        pue: Power usage effectiveness of the site.
        usd_per_kw_month: Rent of a colocated kilowatt; CBRE's average asking rate for 250 to 500 kW
            at the end of 2024 (North America Data Center Trends H2 2024, 26 February 2025).
        board_usd: Price of one board; the street's, else that of its launch, where None.
        cached_fraction: Share of the prompts' tokens that a hosted API finds in its cache.
    """

    life_years: float = 3.0
    electricity_usd_per_kwh: float = 0.10
    pue: float = 1.3
    usd_per_kw_month: float = 184.06
    board_usd: float | None = None
    cached_fraction: float = 0.0


@frozen
class Way:
    """One way to serve, and what it costs.

    Attributes:
        way: rent, buy, colocate or call.
        of: What: an offer, boards, or a provider's model.
        usd_per_month: Cost of a month.
        usd_per_million_tokens: The same of a million tokens of output.
        as_of: Date of its price.
        source: Where the price was read.
    """

    way: str
    of: str
    usd_per_month: float
    usd_per_million_tokens: float
    as_of: str
    source: str

    def to_dict(self) -> Document:
        """Field by field."""
        return asdict(self)


@frozen
class Demand:
    """What a month of a service takes.

    Attributes:
        devices: Devices.
        power_w: Their mean power.
        input_tokens: Tokens of prompts.
        output_tokens: Tokens generated, above 0.
    """

    devices: int
    power_w: float
    input_tokens: float
    output_tokens: float


def ways_to_serve(
    model: str,
    device: str | DeviceProfile,
    load: Arrivals,
    options: ServingOptions,
    run: RunOptions | None = None,
    terms: Terms | None = None,
) -> tuple[tuple[Way, ...], ServingResult, tuple[str, ...]]:
    """Ways to serve a load of a model, cheapest first.

    Args:
        model: Name of a language model.
        device: Device of the fleet that is rented or bought.
        load: The load, with a rate.
        options: How the model is served, with targets.
        run: Precision and formats.
        terms: What hardware of one's own costs, and how an API is called.

    Returns:
        The ways, how the fleet serves, and what no price is known of.

    Raises:
        InputError: If a name or choice is wrong or nothing meets the targets.
    """
    result = find("cheapest", model, device, load, options, run).result
    drawn = replace(load, requests=load.requests or _DRAWN).columns(RandomStreams(0))
    requests = (load.rate_per_s or 0.0) * SECONDS_PER_MONTH
    prompt, output = (
        requests * float(np.mean(lengths)) for lengths in (drawn.prompt_tokens, drawn.output_tokens)
    )
    if not output:
        raise InvalidValueError("output", load.output, "tokens of output, which APIs are paid for")
    profile = catalog.device(device) if isinstance(device, str) else device
    power_w = result.average_power_w or 0.0
    ways, lacks = ways_for(
        (model, result.workload),
        profile,
        _rented(result, profile, output),
        Demand(result.devices, power_w, prompt, output),
        terms or Terms(),
    )
    is_rented = any(way.way == "rent" for way in ways)
    notes = () if is_rented else (f"no offer of {profile.name} may be chosen",)
    return ways, result, (*notes, *lacks)


def ways_for(
    models: Sequence[str],
    device: DeviceProfile,
    rented: Iterable[Way],
    demand: Demand,
    terms: Terms,
) -> tuple[tuple[Way, ...], tuple[str, ...]]:
    """Ways to serve, cheapest first, and what no price is known of.

    Args:
        models: Names of the model.
        device: Device that is rented or bought.
        rented: Ways to rent.
        demand: What is bought, and the tokens that an API is paid for.
        terms: What hardware of one's own costs, and how an API is called.
    """
    rows = [*rented, *_owned(demand, device, terms)]
    tokens = demand.output_tokens
    for price in hosted_prices(models):
        month = price.cost_usd(demand.input_tokens, tokens, terms.cached_fraction)
        subject = f"{price.provider}, {price.served_as}"
        rows.append(
            Way("call", subject, month, _MILLION * month / tokens, price.as_of, price.source)
        )
    lacks = {
        "buy": f"no price of a board of {device.name} is known: --reference-usd gives one",
        "call": f"no hosted price of {models[0]} is known",
    }
    notes = tuple(text for way, text in lacks.items() if all(row.way != way for row in rows))
    return tuple(sorted(rows, key=lambda row: row.usd_per_month)), notes


def _rented(result: ServingResult, device: DeviceProfile, tokens: float) -> Iterator[Way]:
    """The fleet at each kind of price, in whole instances that hold a replica; one's own prices
    before others.
    """
    book, name = PriceBook.load(device=device.whole_name), device.whole_name
    for kind in PRICE_KINDS:
        fleets = [
            (not book.is_own(offer), count * (offer.usd_per_hour(kind) or 0.0), count, offer)
            for offer in book.eligible(name, kind).offers
            if (count := _instances(result, offer.device_count or 0.0))
        ]
        if fleets:
            _, usd_per_hour, count, offer = min(
                fleets, key=lambda fleet: (*fleet[:3], fleet[3].offer_id)
            )
            month = usd_per_hour * HOURS_PER_MONTH
            subject = f"{count} x {offer.offer_id}, {kind.replace('_', ' ')}"
            as_of = offer.dated(kind)
            yield Way("rent", subject, month, _MILLION * month / tokens, as_of, offer.source)


def _instances(result: ServingResult, devices: float) -> int:
    """Instances of so many devices that hold all replicas; 0 where none holds one."""
    replicas_each = int(devices // (result.devices / result.replicas))
    return math.ceil(result.replicas / replicas_each) if replicas_each else 0


def _owned(demand: Demand, device: DeviceProfile, terms: Terms) -> Iterator[Way]:
    """The fleet's boards bought, in a room of one's own and in a colocated one."""
    usd, as_of, source = board_price(device, terms.board_usd)
    if usd is None:
        return
    power_w = demand.power_w * (1 + _AROUND_POWER)
    for way, rent in (("buy", 0.0), ("colocate", terms.usd_per_kw_month)):
        owned = OwnedHardware(
            price_usd=demand.devices * usd * (1 + _AROUND_BOARDS),
            life_years=terms.life_years,
            busy_power_w=power_w,
            electricity_usd_per_kwh=terms.electricity_usd_per_kwh,
            pue_ratio=terms.pue,
            space_usd_per_kw_month=rent,
        )
        month = owned.cost(1.0).total_usd / (12 * terms.life_years)
        subject = f"{demand.devices} {device.name} at {usd:,.0f} USD"
        yield Way(way, subject, month, _MILLION * month / demand.output_tokens, as_of, source)


def board_price(device: DeviceProfile, given: float | None = None) -> tuple[float | None, str, str]:
    """Price of a board in USD, its date and source: the one given, the street's, else that of its
    launch; None where there is none.

    Args:
        device: Profile.
        given: The user's own.
    """
    if given is not None:
        return given, "", "own price"
    if street := street_price(device.whole_name):
        return street
    launch = device.launch_price_usd
    if launch is None:
        return None, "", ""
    return launch.value, str(device.year), f"price at launch ({launch.source})"
