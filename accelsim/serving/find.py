"""Questions to the simulator: the most load that replicas serve well, the fewest replicas for one,
the cheapest layout of ranks and replicas for it, and the limits under which it is served best.

A bracket is halved with simulations of the same random draws (common random numbers; Law,
Simulation Modeling and Analysis, chapter 11), from the bound that full batches set. Layouts are
tried in the order of their bounds' prices, until a bound costs more than what is found (branch and
bound; Land and Doig, Econometrica 28(3), 1960). Limits of batches are narrowed by thirds over
rising numbers of sequences, one limit of tokens at a time, and the memory share by halves. What is
found comes with the share of requests that met the targets and its Wilson interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from accelsim.confidence.quantiles import Z95
from accelsim.economics.device_price import device_price
from accelsim.errors import DoesNotFitError, InvalidValueError
from accelsim.estimation.options import PriceChoice, RunOptions, options_and_price
from accelsim.frozen import frozen
from accelsim.quantity import duration
from accelsim.serving.layouts import MOST_REPLICAS, Layouts, LayoutSearch, least_met, share_met
from accelsim.serving.loads.arrivals import Arrivals
from accelsim.serving.loads.requests import RequestColumns
from accelsim.serving.options import ServingOptions
from accelsim.serving.plan import predicted_tokens
from accelsim.serving.replica_memory import memory_fraction, memory_of
from accelsim.serving.result import ServingResult
from accelsim.serving.speculation import USUAL_GUESSES
from accelsim.serving.steps.step_times import StepTimes

if TYPE_CHECKING:
    from accelsim.hardware.profile import DeviceProfile
    from accelsim.workloads.model import Workload

#: Where halving a bracket of rates ends.
_TOLERANCE = 0.01
QUESTIONS = ("max-rate", "min-replicas", "cheapest", "limits")
#: Limits of sequences and of tokens of a step that "limits" tries, and where halving its memory
#: share ends.
_SEQS = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
_TOKENS = (2048, 8192, 16_384)
_SHARE_STEP = 0.02


@frozen
class Found:
    """The answer of a search.

    Attributes:
        question: One of `QUESTIONS`.
        value: Requests per second, replicas, USD per hour, or the share of requests that meet the
            targets.
        bound: What no load above, no fewer replicas, no less money or no larger share can do: from
            full batches alone.
        attainment_low: Lower end of the 95 % interval of the share that meets the targets.
        attainment_high: Upper end.
        simulations: Simulations made.
        result: The simulation of the answer.
    """

    question: str
    value: float
    bound: float
    attainment_low: float
    attainment_high: float
    simulations: int
    result: ServingResult

    @property
    def sentence(self) -> str:
        """The answer in words."""
        result, low, high = self.result, self.attainment_low, self.attainment_high
        attainment_fraction = result.inputs["options"]["slo"]["attainment_fraction"]
        ends = f"{100 * low:.1f} to {100 * high:.1f} %"
        sample = f"95 % interval, {result.requests:,} requests"
        if self.question == "limits":
            plan, options = result.plan, result.inputs["options"]
            return (
                f"Up to {plan['max_seqs']:,} sequences, {plan['max_batch_tokens']:,} tokens a step "
                f"and {options['memory_fraction']:.2f} of the memory: {100 * self.value:.1f} "
                f"% of the requests meet the targets ({ends} in the {sample}). Nothing above "
                f"{100 * self.bound:.1f} % can be had."
            )
        unit, best, limit = _WORDS[self.question]
        if result.sessions is not None:
            unit = unit.replace("requests", "sessions")
        scope = " of each class" if result.classes else ""
        deployed = "" if self.question == "max-rate" else f": {result.deployed}"
        return (
            f"{self.value:.4g} {unit} {best} for the targets{deployed}. {ends} of the requests"
            f"{scope} meet them ({sample}), {100 * attainment_fraction:g} % have to. Nothing "
            f"{limit} {self.bound:.4g} {unit} can."
        )


#: Unit of a value, words after it, and before its bound.
_WORDS = {
    "max-rate": ("requests/s", "is the most", "above"),
    "min-replicas": ("replicas", "are the fewest", "below"),
    "cheapest": ("USD per hour", "is the least", "below"),
}


def find(
    question: str,
    workload: str | Workload,
    device: str | DeviceProfile,
    arrivals: Arrivals | RequestColumns,
    options: ServingOptions,
    run: RunOptions | None = None,
    price: PriceChoice | None = None,
    *,
    steps: StepTimes | None = None,
    seed: int = 0,
    **keywords: Any,
) -> Found:
    """Find the most load or the fewest replicas under the targets of `options`.

    Args:
        question: "max-rate"; or, for the rate of `arrivals`: "min-replicas", "cheapest" (ranks and
            replicas) or "limits" (of batches and memory).
        workload: The model.
        device: Every rank's device.
        arrivals: The load, or requests as columns, whose gaps other rates stretch.
        options: How the model is served, with targets.
        run: Precision and formats.
        price: Which price.
        steps: Step times to use in place of predicted ones; of the ranks that `options` has.
        seed: Of the random numbers.
        keywords: Fields of `RunOptions` and `PriceChoice`.

    Raises:
        InvalidValueError: If there are no targets or no rate (a burst has none), or nothing
            meets the targets.
    """
    usual = _rate(question, arrivals, options, has_steps=steps is not None)
    chosen, paid = options_and_price(run, price, keywords)
    of_load = None if question == "max-rate" else usual
    layouts = Layouts(workload, device, chosen, arrivals, of_load, steps, seed)

    def answered(options: ServingOptions) -> Found:
        if question == "cheapest":
            return _cheapest(layouts, options, paid)
        search = layouts.of(options)
        search.price = lambda _: device_price(search.plan.run.device, paid)
        if question == "max-rate":
            return _max_rate(search)
        return _limits(search) if question == "limits" else _min_replicas(search)

    answer = answered(options)
    return answer if steps is not None else _told_of_guesses(answer, options, answered)


def _told_of_guesses(
    answer: Found, options: ServingOptions, answered: Callable[[ServingOptions], Found]
) -> Found:
    """An answer with what it is where the model guesses tokens with layers of its own, if it has
    them and nobody says.
    """
    runs = answer.result.runs.values()
    if options.speculation is not None or not any(predicted_tokens(run.workload) for run in runs):
        return answer
    guessing_value = "unmet"
    with suppress(DoesNotFitError, InvalidValueError):
        guessing_value = f"{answered(replace(options, speculation=USUAL_GUESSES)).value:.4g}"
    told = (
        f"speculation is not said: this is without it, and {guessing_value} in place of "
        f"{answer.value:.4g} with the model's own layers of multi-token prediction "
        "(--speculate 1:0.85:mtp)"
    )
    result = answer.result
    return replace(answer, result=replace(result, warnings=(*result.warnings, told)))


def _rate(
    question: str, load: Arrivals | RequestColumns, options: ServingOptions, *, has_steps: bool
) -> float:
    """Rate of a load of which a question can be asked.

    Raises:
        InvalidValueError: If there is no such question, no target or no rate.
    """
    if question not in QUESTIONS:
        raise InvalidValueError("find", question, "one of " + ", ".join(QUESTIONS))
    if question == "cheapest" and has_steps:
        remedy = "Ask for min-replicas."
        raise InvalidValueError("find", question, "no question about other ranks", remedy)
    if all(slo.is_empty for slo in options.targets):
        remedy = "Add --slo-ttft, --slo-tpot or --slo-e2e."
        raise InvalidValueError("slo", None, "at least one target", remedy)
    if load.rate_per_s is None:
        raise InvalidValueError("rate", None, "a rate", "A closed loop has none: use --rate.")
    if isinstance(load, Arrivals) and load.process == "burst":
        raise InvalidValueError("process", "burst", "arrivals that have a rate")
    return load.rate_per_s


def _cheapest(layouts: Layouts, options: ServingOptions, paid: PriceChoice | None) -> Found:
    """The cheapest of all layouts with as many replicas as each needs, whole instances paid.

    Raises:
        InvalidValueError: If none meets the targets.
    """
    able = _able(layouts, options, paid)
    bound, best, count = able[0].bound_usd_per_hour, None, 0
    for search in able:
        if best is not None and search.bound_usd_per_hour >= best.value:
            break
        fewest = search.fewest_within(search.most_below(math.inf if best is None else best.value))
        count += search.count
        if fewest is not None:
            usd_per_hour = search.usd_per_hour(fewest[0])
            best = _answer(search, "cheapest", usd_per_hour, bound, fewest[1])
    if best is None:
        raise InvalidValueError("slo", str(options.slo), "targets that a layout meets")
    return replace(best, simulations=count)


def _able(
    layouts: Layouts, options: ServingOptions, paid: PriceChoice | None
) -> list[LayoutSearch]:
    """Layouts that fit and whose requests meet the targets alone, by the price of their bounds.

    Raises:
        InvalidValueError: If there are none, or the device has no price.
        DoesNotFitError: If no layout fits.
    """
    searches = list(layouts.that_fit(options))
    if not searches:
        layouts.of(options)  # says why
    for search in searches:
        search.price = search.in_instances(paid)
    if searches[0].price(1).usd_per_hour is None:
        remedy = "Give --usd-per-hour."
        raise InvalidValueError("device", layouts.device, "a device with an offer", remedy)
    able = [search for search in searches if search.is_able]
    if not able:
        first_s, further_s = map(min, zip(*(search.alone_s for search in searches), strict=True))
        alone = f"TTFT {duration(first_s)}, TPOT {duration(further_s)}"
        allowed = f"targets that a request alone meets ({alone})"
        raise InvalidValueError("slo", str(options.slo), allowed, "Choose a faster device.")
    return sorted(able, key=lambda search: search.bound_usd_per_hour)


def _max_rate(search: LayoutSearch) -> Found:
    """Halve the rates between one that is served well and the bound. Estimate: a load that is
    served well stays so at lower rates.
    """
    replicas = search.plan.options.replicas
    bound = search.full.requests_per_s * replicas
    low, high = bound / 64, bound
    best = search.simulate(low, replicas)
    if not search.is_good(best):
        _refuse(search, best)
    while high / low > 1 + _TOLERANCE:
        middle = math.sqrt(low * high)
        result = search.simulate(middle, replicas)
        if search.is_good(result):
            low, best = middle, result
        else:
            high = middle
    return _answer(search, "max-rate", low, bound, best)


def _min_replicas(search: LayoutSearch) -> Found:
    """The fewest replicas.

    Raises:
        InvalidValueError: If no number of them meets the targets.
    """
    fewest = search.fewest_within(MOST_REPLICAS)
    if fewest is None:
        _refuse(search, search.simulate(search.rate_per_s, MOST_REPLICAS))
    return _answer(search, "min-replicas", fewest[0], search.fewest, fewest[1])


def _limits(search: LayoutSearch) -> Found:
    """The limits under which most requests meet the targets, and the least memory for them.
    Estimate: where a share of the memory is too small, all smaller ones are.
    """
    plan = search.plan
    usual = memory_fraction(plan.run, plan.engine, plan.options, plan.max_batch_tokens)
    best = max((_sequences(search, tokens, usual) for tokens in _TOKENS), key=share_met)
    low, high = 0.0, usual
    while high - low > _SHARE_STEP:
        middle = 0.5 * (low + high)
        limits, smaller = (best.plan["max_seqs"], best.plan["max_batch_tokens"]), None
        with suppress(DoesNotFitError):
            smaller = _under(search, *limits, middle)
        if smaller is not None and share_met(smaller) >= share_met(best):
            high, best = middle, smaller
        else:
            low = middle
    return _answer(search, "limits", share_met(best), 1.0, best)


def _sequences(search: LayoutSearch, tokens: int, fraction: float) -> ServingResult:
    """The best limit of sequences beside one of tokens; of those that are equally good, the
    smallest. Estimate: with more sequences the share that meets the targets rises and then falls.
    """
    counts = [count for count in _SEQS if count <= tokens]
    tried = lru_cache(lambda index: _under(search, counts[index], tokens, fraction))
    low, high = 0, len(counts) - 1
    while high - low > 2:
        lower_third, upper_third = low + (high - low) // 3, high - (high - low) // 3
        if share_met(tried(lower_third)) >= share_met(tried(upper_third)) > 0.0:
            high = upper_third
        else:
            low = lower_third
    return max(map(tried, range(low, high + 1)), key=share_met)


def _under(
    search: LayoutSearch, max_seqs: int, max_batch_tokens: int, fraction: float
) -> ServingResult:
    """The load under limits.

    Raises:
        DoesNotFitError: If the share of the memory leaves no room for a cache.
    """
    plan = search.plan
    options = replace(plan.options, memory_fraction=fraction)
    parts = memory_of(plan.run, plan.engine, options, max_batch_tokens)
    under = replace(
        plan, options=options, max_seqs=max_seqs, max_batch_tokens=max_batch_tokens, **parts
    )
    return search.simulate(search.rate_per_s, options.replicas, under)


def _refuse(search: LayoutSearch, result: ServingResult) -> NoReturn:
    share = 100 * share_met(result)
    first_s, further_s = result.ttft_s["p50"], result.tpot_s["p50"]
    times = ", ".join(
        f"{name} {duration(value)}"
        for name, value in (("TTFT", first_s), ("TPOT", further_s))
        if value
    )
    allowed = f"targets that can be met: with little load {share:.1f} % do; medians {times}"
    targets = "; ".join(str(slo) for slo in search.plan.options.targets if not slo.is_empty)
    raise InvalidValueError("slo", targets, allowed, "Choose a faster device.")


def _answer(
    search: LayoutSearch, question: str, value: float, bound: float, best: ServingResult
) -> Found:
    low, high = _wilson(*least_met(best))
    return Found(question, value, bound, low, high, search.count, best)


def _wilson(share: float, count: int) -> tuple[float, float]:
    """95 % interval of a share (Wilson 1927)."""
    z2 = Z95**2 / count
    middle = (share + z2 / 2) / (1 + z2)
    half = Z95 / (1 + z2) * np.sqrt(share * (1 - share) / count + z2 / (4 * count))
    return float(middle - half), float(middle + half)
