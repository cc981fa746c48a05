"""A fleet of chosen ways as it is told: instances, amounts, placement, and how sure it is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from accelsim import catalog
from accelsim.capacity import rent_or_buy
from accelsim.capacity.answer import FleetAnswer, OfferCount
from accelsim.capacity.candidates import OWNED
from accelsim.capacity.certainty import Held, held, slack_fraction, together
from accelsim.capacity.fleet_ways import SECONDS_PER_MONTH, Way, WayMaker
from accelsim.capacity.spares import up_probability
from accelsim.economics.carbon import embodied_kgco2e
from accelsim.plain import Document, Values

_RANKS = ("tp", "pp", "ep")


def fleet_answer(maker: WayMaker, ways: Sequence[Way], *, is_sure: bool = False) -> FleetAnswer:
    """The answer of ways.

    Args:
        maker: What made them.
        ways: One for each service and job.
        is_sure: Whether the probability is asked for that its limits hold, which takes simulations.
    """
    energies = [way.energy_j_per_month for way in ways]
    carbons = [maker.carbon_of(way) for way in ways]
    sure = _odds(ways) if is_sure else {}
    services = _together(maker, [way for way in ways if way.part in sure], sure)
    on_time = {way.part: Held(p, p) for way in ways if (p := _in_time(maker, way)) is not None}
    jobs = _together(maker, [way for way in ways if way.part in on_time], on_time)
    known = [odds for odds in (services, jobs) if odds is not None]
    return FleetAnswer(
        offers=_offers(maker, ways),
        device_count=sum(way.devices for way in ways),
        cost_usd_per_month=float(sum(way.usd_per_month for way in ways)),
        energy_j_per_month=None if None in energies else sum(filter(None, energies)),
        carbon_kgco2e_per_month=None if None in carbons else sum(filter(None, carbons)),
        headroom_fraction=float(min(_slack(maker, way, sure.get(way.part)) for way in ways)),
        placement=tuple(_placed(maker, way) for way in ways),
        slo_probability=None if services is None else services.middle,
        deadline_probability=None if jobs is None else jobs.middle,
        half_width=max((odds.half_width for odds in known), default=0.0),
        embodied_kgco2e_per_month=_embodied(maker, ways),
        log_sigma=max(maker.sigma_of(maker.offers[way.instances[0][0]].device) for way in ways),
    )


def _odds(ways: Sequence[Way]) -> dict[int, Held]:
    """Probability that each service keeps its limits over the error of the model."""
    found = {}
    for way in ways:
        if way.served is not None:
            answer, asked, _, _ = way.served
            found[way.part] = held(answer, answer.needed(asked) or 1, asked)
    return found


def _together(maker: WayMaker, ways: Sequence[Way], odds: Mapping[int, Held]) -> Held | None:
    """Probability that all hold, and that instances enough are up; None of none."""
    if not ways:
        return None
    by_device: dict[str, list[Held]] = defaultdict(list)
    up = 1.0
    for way in ways:
        by_device[maker.offers[way.instances[0][0]].device].append(odds[way.part])
        up *= _up(maker, way)
    both = together(by_device)
    return Held(both.low * up, both.high * up)


def _up(maker: WayMaker, way: Way) -> float:
    """Share of the time that instances enough of a service are up."""
    if way.served is None:
        return 1.0
    answer, asked, _, _ = way.served
    places = [
        maker.offers[column].device_count // answer.ranks
        for column, count in way.instances
        for _ in range(count)
    ]
    spare, left = 0, sum(places) - (answer.needed(asked) or 1)
    for held_there in sorted(places, reverse=True):
        left -= held_there
        spare += left >= 0
    kind = maker.offers[way.instances[0][0]].quote.kind
    up_fraction = maker.scenario.reliability.up_fraction(kind)
    return up_probability(way.instance_count, spare, up_fraction)


def _in_time(maker: WayMaker, way: Way) -> float | None:
    """Probability that a job keeps its deadline; None of a service."""
    if way.run is None:
        return None
    job = maker.scenario.jobs[way.part - len(maker.scenario.services)]
    return way.run[0].in_time(job.deadline_s)


def _slack(maker: WayMaker, way: Way, odds: Held | None) -> float:
    """How much slower than predicted a service or job may be."""
    if way.run is not None:
        job = maker.scenario.jobs[way.part - len(maker.scenario.services)]
        return job.deadline_s / way.run[0].time_s - 1
    if way.served is None:
        return 0.0
    answer, asked, _, _ = way.served
    if odds is None:
        return asked.factor(answer.log_sigma) - 1
    return slack_fraction(odds, answer.log_sigma)


def _offers(maker: WayMaker, ways: Sequence[Way]) -> tuple[OfferCount, ...]:
    """Instances of all ways by offer, with their part of the rent."""
    counts: dict[int, int] = defaultdict(int)
    usd: dict[int, float] = defaultdict(float)
    for way in ways:
        rents = [n * maker.offers[c].quote.instance_usd_per_hour for c, n in way.instances]
        for (column, count), rent in zip(way.instances, rents, strict=True):
            counts[column] += count
            usd[column] += way.usd_per_month * rent / sum(rents)
    found = ((maker.offers[column], column) for column in sorted(counts))
    return tuple(
        OfferCount(one.quote.quote_id, one.device, counts[column], usd[column])
        for one, column in found
    )


def _embodied(maker: WayMaker, ways: Sequence[Way]) -> tuple[float, float]:
    """Carbon of making instances, those of services held all month, those of jobs as long as they
    run.
    """
    shares = []
    for way in ways:
        seconds = SECONDS_PER_MONTH if way.run is None else way.run[0].time_s * way.run[1]
        for column, count in way.instances:
            accelerators = maker.offers[column].accelerator_count
            shares.append(embodied_kgco2e(1, accelerators, count * seconds))
    return sum(low for low, _ in shares), sum(high for _, high in shares)


def _placed(maker: WayMaker, way: Way) -> Document:
    """A service or job on its offers: all that carries it out."""
    first = maker.offers[way.instances[0][0]]
    of = first.quote.offer
    about: Document = {
        "device": first.device,
        "device_count": way.devices,
        "offer": " + ".join(maker.offers[column].quote.quote_id for column, _ in way.instances),
        "count": way.instance_count,
        "instance_count": way.instance_count,
        "offers": [
            {
                "offer": maker.offers[column].quote.quote_id,
                "device": maker.offers[column].device,
                "instance": maker.offers[column].quote.offer.instance,
                "count": count,
                "device_count": maker.offers[column].device_count,
                "usd_per_hour": maker.offers[column].quote.instance_usd_per_hour,
            }
            for column, count in way.instances
        ],
        "provider": of.provider,
        "region": of.region,
        "price_kind": first.quote.kind,
        "cost_usd_per_month": way.usd_per_month,
        "energy_j_per_month": way.energy_j_per_month,
        "carbon_kgco2e_per_month": maker.carbon_of(way),
    }
    services = maker.scenario.services
    if way.served is not None:
        answer, asked, replicas, _ = way.served
        service = services[way.part]
        own = {"service": service.name, "model": service.model, "replicas": replicas}
        own |= {"layout": _layout(replicas, answer.about)}
        load = {"requests_per_s": asked.rate_per_s, **answer.request_times(asked)}
        return own | about | load | dict(way.about)
    job = maker.scenario.jobs[way.part - len(services)]
    own = {"job": job.name, "model": job.model, "layout": str(way.about.get("plan") or "batches")}
    times = {"time_s": way.time_s, "cost_usd": way.usd_per_month / job.runs_per_month}
    return own | about | times | dict(way.about)


def _layout(replicas: int, about: Values) -> str:
    """Replicas and their ranks in words: "5 x tp 4"; nothing where a replica is a device."""
    split = [f"{name} {about[name]}" for name in _RANKS if about.get(name, 1) != 1]
    return f"{replicas:,} x {' '.join(split)}" if split else ""


def ways_to_own(maker: WayMaker, way: Way) -> list[Document]:
    """A service of tokens rented as recommended, bought, colocated, or called as a hosted API, each
    at what a month costs, cheapest first; last the ways that have no price, with the reason.

    Args:
        maker: What made the way.
        way: The way that is recommended.
    """
    if way.served is None or (tokens := way.served[0].mean_tokens) is None:
        return []
    service = maker.scenario.services[way.part]
    requests = service.peak_per_s * service.mean_fraction * SECONDS_PER_MONTH
    prompt, output = (requests * count for count in tokens)
    first = maker.offers[way.instances[0][0]]
    offer = first.quote.offer
    rent = rent_or_buy.Way(
        "own" if offer.provider == OWNED else "rent",
        " + ".join(f"{n} x {maker.offers[column].quote.quote_id}" for column, n in way.instances),
        way.usd_per_month,
        1e6 * way.usd_per_month / output,
        offer.dated(first.quote.kind),
        offer.source,
    )
    power_w = (way.energy_j_per_month or 0.0) / SECONDS_PER_MONTH
    ways, lacks = rent_or_buy.ways_for(
        (service.model,),
        catalog.device(first.device),
        (rent,),
        rent_or_buy.Demand(way.devices, power_w, prompt, output),
        rent_or_buy.Terms(),
    )
    rows = [{"service": service.name, **each.to_dict(), "reason": ""} for each in ways]
    none = dict.fromkeys(("of", "usd_per_month", "usd_per_million_tokens", "as_of", "source"))
    named: Document = {"service": service.name, "way": "none", **none}
    return rows + [{**named, "reason": text} for text in lacks]
