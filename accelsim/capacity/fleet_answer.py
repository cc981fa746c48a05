"""A fleet of chosen ways as it is told: instances, amounts, placement, and how sure it is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from accelsim import catalog
from accelsim.capacity import rent_or_buy
from accelsim.capacity.answer import FleetAnswer, OfferCount
from accelsim.capacity.candidates import OWNED
from accelsim.capacity.certainty import Held, held, slack_fraction, together
from accelsim.capacity.fleet_ways import Way, WayMaker
from accelsim.capacity.scenario import BatchJob, TrainingJob
from accelsim.capacity.spares import up_probability
from accelsim.economics.carbon import embodied_kgco2e
from accelsim.economics.result import SECONDS_PER_MONTH
from accelsim.plain import Document, Values

_RANKS = ("tp", "pp", "ep")


def fleet_answer(maker: WayMaker, ways: Sequence[Way], *, is_sure: bool = False) -> FleetAnswer:
    """The answer of ways.

    Args:
        maker: What made them.
        ways: One for each service and job.
        is_sure: Whether the probability is asked for that its limits hold, which takes simulations.
    """
    sure = _odds(ways) if is_sure else {}
    services = _together(maker, ways, sure)
    jobs = _together(maker, ways, _odds_in_time(maker, ways))
    return FleetAnswer(
        offers=_offers(maker, ways),
        device_count=sum(way.devices for way in ways),
        cost_usd_per_month=float(sum(way.usd_per_month for way in ways)),
        energy_j_per_month=_total(way.energy_j_per_month for way in ways),
        carbon_kgco2e_per_month=_total(map(maker.carbon_of, ways)),
        headroom_fraction=float(min(_slack(maker, way, sure.get(way.task)) for way in ways)),
        placement=tuple(_placed(maker, way) for way in ways),
        slo_probability=None if services is None else services.middle,
        deadline_probability=None if jobs is None else jobs.middle,
        half_width=max((odds.half_width for odds in filter(None, (services, jobs))), default=0.0),
        embodied_kgco2e_per_month=_embodied(maker, ways),
        log_sigma=max(map(maker.sigma_of, {maker.offer(way).device for way in ways})),
    )


def _total(amounts: Iterable[float | None]) -> float | None:
    """The sum; None where one is unknown."""
    listed = list(amounts)
    return None if None in listed else sum(filter(None, listed))


def _odds(ways: Sequence[Way]) -> dict[int, Held]:
    """Probability that each service keeps its limits over the error of the model."""
    return {
        way.task: held(way.served.answer, way.served.needed_replicas, way.served.load)
        for way in ways
        if way.served is not None
    }


def _odds_in_time(maker: WayMaker, ways: Sequence[Way]) -> dict[int, Held]:
    """Probability that each job keeps its deadline."""
    chances = {
        way.task: way.run.in_time(_job(maker, way).deadline_s)
        for way in ways
        if way.run is not None
    }
    return {task: Held(chance, chance) for task, chance in chances.items()}


def _job(maker: WayMaker, way: Way) -> TrainingJob | BatchJob:
    return maker.scenario.jobs[way.task - len(maker.scenario.services)]


def _together(maker: WayMaker, ways: Sequence[Way], odds: Mapping[int, Held]) -> Held | None:
    """Probability that all that have one hold, and that instances enough are up; None of none."""
    if not odds:
        return None
    by_device: dict[str, list[Held]] = defaultdict(list)
    up = 1.0
    for way in ways:
        if way.task in odds:
            by_device[maker.offer(way).device].append(odds[way.task])
            up *= _up(maker, way)
    both = together(by_device)
    return Held(both.low * up, both.high * up)


def _up(maker: WayMaker, way: Way) -> float:
    """Share of the time that instances enough of a service are up."""
    if way.served is None:
        return 1.0
    capacities = [
        maker.offers[column].device_count // way.served.answer.ranks
        for column, count in way.instances
        for _ in range(count)
    ]
    spare, left = 0, sum(capacities) - way.served.needed_replicas
    for capacity in sorted(capacities, reverse=True):
        left -= capacity
        spare += left >= 0
    kind = maker.offer(way).quote.kind
    up_fraction = maker.scenario.reliability.up_fraction(kind)
    return up_probability(way.instance_count, spare, up_fraction)


def _slack(maker: WayMaker, way: Way, odds: Held | None) -> float:
    """How much slower than predicted a service or job may be."""
    if way.run is not None:
        return _job(maker, way).deadline_s / way.run.time_s - 1
    if way.served is None:
        return 0.0
    if odds is None:
        return way.served.load.factor(way.log_sigma) - 1
    return slack_fraction(odds, way.log_sigma)


def _offers(maker: WayMaker, ways: Sequence[Way]) -> tuple[OfferCount, ...]:
    """Instances of all ways by offer, with their part of the rent."""
    counts: dict[int, int] = defaultdict(int)
    usd: dict[int, float] = defaultdict(float)
    for way in ways:
        rents = [n * maker.offers[c].quote.instance_usd_per_hour for c, n in way.instances]
        for (column, count), rent in zip(way.instances, rents, strict=True):
            counts[column] += count
            usd[column] += way.usd_per_month * rent / sum(rents)
    return tuple(
        OfferCount(offer.quote.quote_id, offer.device, counts[column], usd[column])
        for column, offer in enumerate(maker.offers)
        if column in counts
    )


def _embodied(maker: WayMaker, ways: Sequence[Way]) -> tuple[float, float]:
    """Carbon of making instances, those of services held all month, those of jobs as long as they
    run.
    """
    shares = []
    for way in ways:
        seconds = SECONDS_PER_MONTH if way.run is None else way.time_s * way.runs_per_month
        for column, count in way.instances:
            accelerators = maker.offers[column].accelerator_count
            shares.append(embodied_kgco2e(1, accelerators, count * seconds))
    return sum(low for low, _ in shares), sum(high for _, high in shares)


def _placed(maker: WayMaker, way: Way) -> Document:
    """A service or job on its offers: all that carries it out."""
    first = maker.offer(way)
    instances = [(maker.offers[column], count) for column, count in way.instances]
    where: Document = {
        "device": first.device,
        "device_count": way.devices,
        "offer": " + ".join(candidate.quote.quote_id for candidate, _ in instances),
        "count": way.instance_count,
        "instance_count": way.instance_count,
        "offers": [
            {
                "offer": candidate.quote.quote_id,
                "device": candidate.device,
                "instance": candidate.quote.offer.instance,
                "count": count,
                "device_count": candidate.device_count,
                "usd_per_hour": candidate.quote.instance_usd_per_hour,
            }
            for candidate, count in instances
        ],
        "provider": first.quote.offer.provider,
        "region": first.quote.offer.region,
        "price_kind": first.quote.kind,
        "cost_usd_per_month": way.usd_per_month,
        "energy_j_per_month": way.energy_j_per_month,
        "carbon_kgco2e_per_month": maker.carbon_of(way),
    }
    if (served := way.served) is not None:
        service = maker.scenario.services[way.task]
        task = {"service": service.name, "model": service.model, "replicas": served.replicas}
        task |= {"layout": _layout(served.replicas, way.about)}
        times = {
            "requests_per_s": served.load.rate_per_s,
            **served.answer.request_times(served.load),
        }
    else:
        job = _job(maker, way)
        plan = str(way.about.get("plan") or "batches")
        task = {"job": job.name, "model": job.model, "layout": plan}
        times = {"time_s": way.time_s, "cost_usd": way.usd_per_month / job.runs_per_month}
    return task | where | times | dict(way.about)


def _layout(replicas: int, settings: Values) -> str:
    """Replicas and their ranks in words: "5 x tp 4"; nothing where a replica is a device."""
    split = [f"{name} {settings[name]}" for name in _RANKS if settings.get(name, 1) != 1]
    return f"{replicas:,} x {' '.join(split)}" if split else ""


def ways_to_own(maker: WayMaker, way: Way) -> list[Document]:
    """A service of tokens rented as recommended, bought, colocated, or called as a hosted API, each
    at what a month costs, cheapest first; last the ways that have no price, with the reason.

    Args:
        maker: What made the way.
        way: The way that is recommended.
    """
    if way.served is None or (tokens := way.served.answer.mean_tokens) is None:
        return []
    service = maker.scenario.services[way.task]
    requests = service.peak_per_s * service.mean_fraction * SECONDS_PER_MONTH
    prompt, output = (requests * count for count in tokens)
    first = maker.offer(way)
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
    rows = [{"service": service.name, **own.to_dict(), "reason": ""} for own in ways]
    none = dict.fromkeys(("of", "usd_per_month", "usd_per_million_tokens", "as_of", "source"))
    without_price: Document = {"service": service.name, "way": "none", **none}
    return rows + [{**without_price, "reason": text} for text in lacks]
