"""A row for each device: the best fleet on it alone, a bound of its cost, or why it cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from accelsim.capacity.answer import FleetAnswer, layouts
from accelsim.capacity.fleet_answer import fleet_answer
from accelsim.capacity.fleet_ways import Question, Way, WayMaker
from accelsim.catalog.devices import device
from accelsim.confidence.best import is_tie, near_best_probability
from accelsim.plain import Document

#: Figures of a row; None where the device cannot, and what a bound does not say.
_FIGURES = (
    *("fleet", "device_count", "instance_count", "cost_usd_per_month"),
    *("energy_j_per_month", "carbon_kgco2e_per_month", "near_best_probability"),
)
#: Status of a fleet that was searched to the end.
_ALONE = "best alone"
Bound = Callable[[Question], list[Way] | None]


def candidate_rows(
    maker: WayMaker,
    best: FleetAnswer | None,
    question: Question,
    bound: Bound,
) -> Iterator[Document]:
    """Rows of all devices, the cheapest first, then those that cannot.

    Args:
        maker: What made the ways.
        best: The recommended fleet; None where there is none.
        question: What they were chosen for.
        bound: The best fleet of a question as far as it is known.
    """
    rows, reasons = [], []
    for choice in dict.fromkeys(offer.choice for offer in maker.offers):
        ways = bound(replace(question, only=choice))
        if ways is None:
            reasons.append(
                dict.fromkeys(_FIGURES) | {"device": choice, "status": _reason(maker, choice)}
            )
        else:
            rows.append((ways, _row(maker, choice, ways)))
    rows.sort(key=lambda pair: float(pair[1]["cost_usd_per_month"]))
    _add_chances(maker, rows)
    for ways, row in rows:
        if row["status"] == _ALONE and best is not None:
            row["status"] = _status(maker, ways, row, best)
        yield row
    yield from reasons


def _status(maker: WayMaker, ways: Sequence[Way], row: Document, best: FleetAnswer) -> str:
    """What a fleet that was searched to the end is beside the recommended one."""
    if fleet_answer(maker, ways).offers == best.offers:
        return "recommended"
    return "a tie" if _is_tied(maker, ways, row, best) else _ALONE


def _add_chances(maker: WayMaker, rows: Sequence[tuple[Sequence[Way], Document]]) -> None:
    """Add the probability that each fleet, of those searched to the end, costs at most 5 % more
    than the best of them.
    """
    final = [(ways, row) for ways, row in rows if all(way.is_final for way in ways)]
    if not final:
        return
    classes = [device(maker.offer(ways[0]).device) for ways, _ in final]
    chances = near_best_probability(
        np.array([float(row["cost_usd_per_month"]) for _, row in final]),
        np.array([max(way.log_sigma for way in ways) for ways, _ in final]),
        [str(profile.device_class) for profile in classes],
    )
    for (_, row), chance in zip(final, chances.tolist(), strict=True):
        row["near_best_probability"] = chance


def _row(maker: WayMaker, choice: str, ways: Sequence[Way]) -> Document:
    fleet = fleet_answer(maker, ways)
    is_final = all(way.is_final for way in ways)
    figures: Document = {
        "fleet": layouts(fleet),
        "device_count": fleet.device_count,
        "instance_count": fleet.instance_count,
        "cost_usd_per_month": fleet.cost_usd_per_month,
        "energy_j_per_month": fleet.energy_j_per_month if is_final else None,
        "carbon_kgco2e_per_month": fleet.carbon_kgco2e_per_month if is_final else None,
        "near_best_probability": None,
    }
    status = _ALONE if is_final else "no less than this"
    return {"device": choice, "status": status} | figures


def _is_tied(maker: WayMaker, ways: Sequence[Way], row: Document, best: FleetAnswer) -> bool:
    """Whether the interval of the difference of two costs holds zero: rents follow times, whose
    errors devices of a class share; on one device they are the same and cancel.
    """
    sigmas = {maker.offer(way).device: way.log_sigma for way in ways}
    mine = {row["device"]: maker.sigma_of(str(row["device"])) for row in best.placement}
    if set(sigmas) == set(mine):
        sigmas = mine = {"": 0.0}
    classes = {str(device(name).device_class) for name in (*sigmas, *mine) if name}
    costs = (float(row["cost_usd_per_month"]), best.cost_usd_per_month)
    pairs = zip(costs, (max(sigmas.values()), max(mine.values())), strict=True)
    return is_tie(*pairs, is_alike=len(classes) <= 1)


def _reason(maker: WayMaker, choice: str) -> str:
    """The one reason why a device cannot."""
    names = [task.name for task in (*maker.scenario.services, *maker.scenario.jobs)]
    device = next(offer.device for offer in maker.offers if offer.choice == choice)
    for name in names:
        if (device, name) in maker.reasons:
            return f"{name}: {maker.reasons[device, name].partition('. ')[0]}"
    for index, service in enumerate(maker.scenario.services):
        missed = maker.shortfall(index, device)
        if missed is not None:
            name, time_s = missed
            return f"{service.name}: {name} is {time_s * 1e3:,.3g} ms for a request alone"
    return "no number of instances keeps all limits"
