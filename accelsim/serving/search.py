"""Search: devices x ranks x limits of batches x formats, all scored at once, some simulated.

Every layout of ranks is priced once and its limits are columns (`operating_points`). Two layouts of
one device and format make one more: prompts on replicas of the first, further tokens on replicas of
the second, in numbers that keep both busy. What cannot run is counted by its reason. Of the
configurations that meet the targets at full batches, those that no other beats in USD per million
tokens and in time per token are the front; the cheapest of different layouts are simulated under
the load, and the cheapest of those that meet the targets there is best.
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from accelsim import __version__, catalog
from accelsim.catalog.engines import engine
from accelsim.confidence.best import near_best_probability
from accelsim.economics.device_price import device_price
from accelsim.economics.result import SECONDS_PER_HOUR
from accelsim.errors import (
    DoesNotFitError,
    InputError,
    InvalidValueError,
    UnsupportedOperatorError,
)
from accelsim.estimation.options import PriceChoice, RunOptions, options_and_price
from accelsim.estimation.pareto import pareto_mask
from accelsim.estimation.resolution import resolve
from accelsim.estimation.run import ResolvedRun
from accelsim.frozen import frozen
from accelsim.plain import Document, Values
from accelsim.result import Provenance
from accelsim.serving.deployment import cache_link
from accelsim.serving.layouts import ranks_tried
from accelsim.serving.loads.arrivals import Arrivals
from accelsim.serving.loads.requests import RequestColumns
from accelsim.serving.memory_capacity import LoadShape
from accelsim.serving.operating_points import (
    PricedRanks,
    operating_points,
    priced_ranks,
    split_points,
)
from accelsim.serving.options import PrefillOptions, ServingOptions, SloTargets
from accelsim.serving.plan import deployed_run, predicted_tokens
from accelsim.serving.result import ServingResult
from accelsim.serving.search_result import ServingSearch
from accelsim.serving.search_space import SearchSpace
from accelsim.serving.serve import described, serve
from accelsim.serving.trust import ServedRun
from accelsim.simulation.randomness import RandomStreams
from accelsim.workloads.graph import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    from accelsim.workloads.model import Workload

#: Extra replicas that a simulation may take before a configuration counts as too slow.
_MORE_REPLICAS = 3
#: Batches of a layout that are simulated until one meets the targets.
_TRIES = 4
#: Why layouts cannot run, by the error that says so.
_REASONS: Mapping[type[InputError], str] = {
    DoesNotFitError: "the memory has no room for the cache",
    UnsupportedOperatorError: "the device cannot run the model",
    InvalidValueError: "no node joins the ranks, or they do not divide the model",
}
_RANKS = frozenset({"tp", "pp", "ep", "etp", "stage"})
_UNPRICED = "no offer of the device"
_TOO_MANY = "more devices than there may be"
#: Columns that tell layouts apart.
_LAYOUT = ("device", "precision", "tp", "pp", "ep", "prefill_tp")
#: Replicas that generate in a split deployment for which no rate is asked; replicas of prompts are
#: as many as keep up with them.
_SPLIT_REPLICAS = (1, 2, 4)
Report = Callable[[float, float | None, str], None]


@frozen(eq=False)
class _Counts:
    """Replicas of a layout's configurations, shape (n,) each.

    Attributes:
        replicas: Those that generate.
        served_per_s: Requests per second of all.
        prompt_tp: Ranks of a replica of prompts; 0 where there is none.
        prompt_replicas: Those that compute prompts alone.
    """

    replicas: FloatArray
    served_per_s: FloatArray | float
    prompt_tp: int = 0
    prompt_replicas: FloatArray | float = 0.0


_NO_GUESSES = (
    "speculation with the model's own layers of multi-token prediction is left out: serve asks it"
)
_NEAREST = "no simulated configuration meets the targets: best is the nearest"


def search(
    workload: str | Workload,
    arrivals: Arrivals | RequestColumns,
    options: ServingOptions | None = None,
    space: SearchSpace | None = None,
    run: RunOptions | None = None,
    price: PriceChoice | None = None,
    *,
    simulate: int = 4,
    seed: int = 0,
    report: Report | None = None,
    **keywords: Any,
) -> ServingSearch:
    """Find the cheapest way to serve a load.

    Args:
        workload: The model.
        arrivals: The load, or requests as columns; users of a closed loop stand for full batches
            of whatever size.
        options: Engine and targets; what `space` varies is not read.
        space: What is tried.
        run: Formats but the precision.
        price: Which price.
        simulate: Configurations that are simulated, of different layouts; at least 1.
        seed: Of the random numbers.
        report: Called with layouts done, their number, and the device.
        keywords: Fields of `RunOptions` and `PriceChoice`.

    Raises:
        InvalidValueError: If nothing runs, nothing has a price, or nothing meets the targets.
        InputError: If a name is wrong.
    """
    if simulate < 1:
        raise InvalidValueError("simulate", simulate, "a whole number >= 1")
    chosen, paid = options_and_price(run, price, keywords)
    options, space = options or ServingOptions(), space or SearchSpace()
    grid = _Grid(workload, arrivals, options, space, chosen, paid)
    started = time.perf_counter()
    grid.score(RandomStreams(seed), report)
    elapsed_s = max(time.perf_counter() - started, 1e-9)
    columns = grid.columns()
    meets = _meets(columns, grid.options.slo)
    if not meets.any():
        raise _nothing(columns, grid)
    simulated = grid.simulate(_different(columns, meets, simulate), seed)
    count = len(columns["device"]) + sum(grid.rejected.values())
    nearest = "" if simulated[0]["meets_targets"] else _NEAREST
    return ServingSearch(
        workload=grid.workload_name,
        best=simulated[0],
        simulated=tuple(simulated),
        pareto=tuple(_rows(columns, _front(columns, meets))),
        considered_count=count,
        rejected=dict(grid.rejected),
        configurations_per_s=count / elapsed_s,
        columns=columns,
        inputs=grid.inputs(),
        provenance=Provenance(__version__, seed),
        warnings=(*grid.notices, *filter(None, (grid.engine.note, nearest, grid.left_out))),
    )


@dataclass(eq=False)
class _Grid:
    """Every configuration of a space, layout by layout."""

    workload: str | Workload
    arrivals: Arrivals | RequestColumns
    options: ServingOptions
    space: SearchSpace
    run: RunOptions
    price: PriceChoice | None

    def __post_init__(self) -> None:
        """Begin with no layout."""
        self.rejected: Counter[str] = Counter()
        self.engine_name = self.options.engine or "vllm"
        self.engine = engine(self.engine_name)
        self.layouts: list[Document] = []
        self.workload_name = self.left_out = ""

    def inputs(self) -> Document:
        """What was asked, as plain values."""
        slo = asdict(self.options.slo)
        return {"load": described(self.arrivals), "engine": self.engine_name, "slo": slo}

    @property
    def limits(self) -> tuple[IntArray, IntArray]:
        """Both limits of every configuration of a layout."""
        pairs = product(self.space.max_seqs, self.space.max_batch_tokens)
        seqs, tokens = np.array([(s, t) for s, t in pairs if t >= s]).T
        return seqs, tokens

    def score(self, streams: RandomStreams, report: Report | None) -> None:
        """Score all layouts."""
        arrivals = self.arrivals
        load = LoadShape.of(
            arrivals.columns(streams) if isinstance(arrivals, Arrivals) else arrivals
        )
        devices = self.space.devices or _priced_gpus()
        layouts = list(self._layouts(devices))
        ranks: dict[tuple[str, str | None], list[PricedRanks]] = defaultdict(list)
        for index, (device, precision, tp, pp, ep) in enumerate(layouts):
            if report is not None:
                report(index, len(layouts), device)
            options = replace(self.options, tp=tp, pp=pp, ep=ep)
            ranks[device, precision] += self._priced(device, precision, options, load)
        for alike in ranks.values():
            for layout in alike:
                self._add_together(layout)
            if not self.space.together and load.output_tokens > 1:
                self._add_splits(alike)

    def _layouts(self, devices: Sequence[str]) -> Iterator[tuple[str, str | None, int, int, int]]:
        space = self.space
        precisions: tuple[str | None, ...] = space.precisions or (None,)
        ranks = list(ranks_tried(self.workload, space.tp, space.pp, space.ep))
        for device, precision, split in product(devices, precisions, ranks):
            yield device, precision, *split

    def _priced(
        self, device: str, precision: str | None, options: ServingOptions, load: LoadShape
    ) -> list[PricedRanks]:
        """Ranks with their steps priced; none where they cannot run or have no price: their limits
        are counted by the reason.
        """
        run_options, reason = self._of_precision(precision), _UNPRICED
        try:
            resolved = resolve(self.workload, device, run_options)
            self.workload_name = resolved.workload.name
            self.notices = resolved.workload.notices
            self.left_out = _NO_GUESSES if predicted_tokens(resolved.workload) else ""
            if device_price(resolved.device, self.price).usd_per_hour is not None:
                run = deployed_run(resolved, run_options, options, self.engine)
                return [priced_ranks(run, self.engine, options, load, self.limits)]
        except InputError as error:
            reason = _reason(error)
        self.rejected[reason] += len(self.limits[0])
        return []

    def _of_precision(self, precision: str | None) -> RunOptions:
        """Run options with a precision; their own where None."""
        model = replace(self.run.model, precision=precision or self.run.model.precision)
        return replace(self.run, model=model)

    def _add_together(self, ranks: PricedRanks) -> None:
        """Replicas that do all of a request; as many as a rate needs."""
        points, rate = operating_points(ranks), self.arrivals.rate_per_s
        served = points.pop("requests_per_s")
        replicas = np.ones(len(served)) if rate is None else np.ceil(rate / served)
        self._add(ranks, points, _Counts(replicas, served if rate is None else rate))

    def _add_splits(self, alike: Sequence[PricedRanks]) -> None:
        """Replicas of one device and format with prompts apart, in numbers that keep both busy
        (Zhong et al., DistServe, OSDI 2024, section 4).
        """
        alone = [layout for layout in alike if layout.options.pp == layout.options.ep == 1]
        rate = self.arrivals.rate_per_s
        for prompts, further in product(alone, alike):
            link = cache_link(prompts.sequence_cache, self.space.kv_link)
            points = split_points(prompts, further, link)
            served, computed = points.pop("requests_per_s"), points.pop("prompts_per_s")
            tp = prompts.options.tp
            if rate is not None:
                counts = np.ceil(rate / served), rate, tp, np.ceil(rate / computed)
                self._add(further, points, _Counts(*counts))
                continue
            for count in _SPLIT_REPLICAS:
                needed = np.maximum(np.rint(count * served / computed), 1.0)
                both = np.minimum(count * served, needed * computed)
                replicas = np.full(len(served), float(count))
                self._add(further, points, _Counts(replicas, both, tp, needed))

    def _add(self, ranks: PricedRanks, points: Mapping[str, FloatArray], counts: _Counts) -> None:
        """A layout's configurations: those of no more devices than there may be. Estimate: all
        devices are paid all the time.
        """
        run, options = ranks.run, ranks.options
        devices = counts.replicas * options.devices_per_replica
        devices = devices + counts.prompt_replicas * counts.prompt_tp
        tokens_per_s = counts.served_per_s * ranks.output * np.ones(len(devices))
        usd_per_s = (device_price(run.device, self.price).usd_per_hour or 0.0) / SECONDS_PER_HOUR
        layout = {
            "device": run.device.name,
            "precision": run.precision.name,
            "tp": options.tp,
            "pp": options.pp,
            "ep": options.ep,
            "prefill_tp": counts.prompt_tp,
            "prefill_replicas": counts.prompt_replicas,
            **dict(zip(("max_seqs", "max_batch_tokens"), self.limits, strict=True)),
            "replicas": counts.replicas,
            "devices": devices,
            **points,
            "tokens_per_s": tokens_per_s,
            "cost_usd_per_million_tokens": 1e6 * usd_per_s * devices / tokens_per_s,
        }
        is_allowed = devices <= (self.space.most_devices or math.inf)
        if not is_allowed.all():
            self.rejected[_TOO_MANY] += int((~is_allowed).sum())
        columns = {
            name: np.broadcast_to(values, is_allowed.shape)[is_allowed]
            for name, values in layout.items()
        }
        self.layouts.append(columns)

    def columns(self) -> Document:
        """All configurations.

        Raises:
            InvalidValueError: If nothing runs.
        """
        if not any(len(layout["device"]) for layout in self.layouts):
            reasons = "; ".join(reason for reason, _ in self.rejected.most_common(3))
            raise InvalidValueError(
                "devices", ",".join(self.space.devices), f"what can run it: {reasons}"
            )
        return {
            name: np.concatenate([layout[name] for layout in self.layouts])
            for name in self.layouts[0]
        }

    def simulate(self, layouts: Sequence[Sequence[Values]], seed: int) -> list[Document]:
        """Simulate layouts under the load, each with smaller batches until it meets the targets;
        those that do first, by cost.
        """
        best_rows = []
        for rows in layouts:
            for row in rows:
                result = self._simulated(row, seed)
                if result["meets_targets"]:
                    break
            best_rows.append(result)
        price = "simulated_usd_per_million_tokens"
        runs = [self._resolved(row) for row in best_rows]
        chances = near_best_probability(
            np.array([row[price] for row in best_rows]),
            np.array([ServedRun(run).log_sigma("tpot") for run in runs]),
            [str(run.device.device_class) for run in runs],
        )
        for row, chance in zip(best_rows, chances.tolist(), strict=True):
            row["near_best_probability"] = chance
        return sorted(best_rows, key=lambda row: (not row["meets_targets"], row[price]))

    def _resolved(self, row: Values) -> ResolvedRun:
        return resolve(self.workload, str(row["device"]), self._of_precision(row["precision"]))

    def _simulated(self, row: Values, seed: int) -> Document:
        names = ("tp", "pp", "ep", "max_seqs", "max_batch_tokens")
        limits: Document = {name: int(row[name]) for name in names}
        options = replace(self.options, **limits)
        arrivals, most = self.arrivals, _MORE_REPLICAS
        if isinstance(arrivals, Arrivals) and arrivals.users is not None:
            users = row["sequences"] * row["replicas"] + row["prefill_replicas"]
            arrivals, most = replace(arrivals, users=int(users)), 0
        for added in range(most + 1):
            result = serve(
                self.workload,
                str(row["device"]),
                arrivals,
                self._with_replicas(options, row, added),
                self._of_precision(row["precision"]),
                self.price,
                seed=seed,
                intervals=False,
            )
            if meets := self._is_good(result):
                break
        return dict(row) | {
            "replicas": result.replicas,
            "prefill_replicas": sum(
                pool["replicas"] for pool in result.pools if pool["part"] == "prompts"
            ),
            "devices": result.devices,
            "instances": result.instances,
            "meets_targets": meets,
            "simulated_tpot_s": result.tpot_s["p50"],
            "simulated_ttft_s": result.ttft_s["p50"],
            "simulated_tokens_per_s": result.output_tokens_per_s,
            "simulated_usd_per_million_tokens": result.cost_usd_per_million_tokens,
            "cost_usd_per_month": result.cost_usd_per_month,
            "energy_kwh_per_month": result.energy_kwh_per_month,
            "carbon_kgco2e_per_month": result.carbon_kgco2e_per_month,
        }

    def _with_replicas(self, options: ServingOptions, row: Values, added: int) -> ServingOptions:
        """Options with a row's replicas and some more; of split ones, first of prompts."""
        replicas, apart = int(row["replicas"]), int(row["prefill_replicas"])
        if not apart:
            return replace(options, replicas=replicas + added)
        apart += (added + 1) // 2
        prompts = PrefillOptions(replicas=apart, tp=int(row["prefill_tp"]), link=self.space.kv_link)
        return replace(options, replicas=replicas + added // 2, prefill=prompts)

    def _is_good(self, result: ServingResult) -> bool:
        slo = self.options.slo
        share = result.slo_attainment_fraction
        return not result.saturated and (share is None or share >= slo.attainment_fraction)


def _reason(error: InputError) -> str:
    """Why a layout cannot run, without the numbers that differ from layout to layout.

    Raises:
        InputError: If a name or a file is wrong, which no other layout makes right.
    """
    if isinstance(error, InvalidValueError) and error.field not in _RANKS:
        raise error
    for kind, reason in _REASONS.items():
        if isinstance(error, kind):
            return reason
    raise error


def _priced_gpus() -> tuple[str, ...]:
    """GPUs with an on-demand offer."""
    devices = [catalog.device(name) for name in catalog.device_names()]
    return tuple(
        device.name
        for device in devices
        if device.device_class == "gpu" and device_price(device).usd_per_hour is not None
    )


def _meets(columns: Values, slo: SloTargets) -> BoolArray:
    """Configurations whose full batches keep the targets on their means."""
    good = np.ones(len(columns["tpot_s"]), dtype=bool)
    for name, limit in (("tpot_s", slo.tpot_s), ("ttft_s", slo.ttft_s)):
        if limit is not None:
            good &= columns[name] <= limit
    return good


def _nothing(columns: Values, grid: _Grid) -> InvalidValueError:
    least = {name: float(columns[name].min()) for name in ("tpot_s", "ttft_s")}
    allowed = f"TPOT of {least['tpot_s']:.3g} s and TTFT of {least['ttft_s']:.3g} s or more"
    return InvalidValueError("slo", str(grid.options.slo), allowed, "Add devices or ranks.")


def _front(columns: Values, meets: BoolArray) -> list[int]:
    """Places that nothing beats in cost and time per token, cheapest first."""
    goals: FloatArray = np.stack(
        [columns[name][meets] for name in ("cost_usd_per_million_tokens", "tpot_s")], axis=1
    )
    rounded = np.round(np.log(goals), 6)  # equal but for rounding: of the same sequences
    _, unique = np.unique(rounded, axis=0, return_index=True)
    rows = np.flatnonzero(meets)[unique]
    front = rows[pareto_mask(goals[unique])]
    order = np.argsort(columns["cost_usd_per_million_tokens"][front], kind="stable")
    return [int(row) for row in front[order]]


def _different(columns: Values, meets: BoolArray, count: int) -> list[list[Values]]:
    """The cheapest layouts: of each, configurations that run different batches, cheapest first."""
    rows = np.flatnonzero(meets)
    cost = columns["cost_usd_per_million_tokens"][rows]
    layouts: dict[tuple[object, ...], dict[float, int]] = {}
    for row in rows[np.lexsort((columns["tpot_s"][rows], cost))].tolist():
        layout = tuple(columns[name][row] for name in _LAYOUT)
        if layout in layouts or len(layouts) < count:
            layouts.setdefault(layout, {}).setdefault(float(columns["sequences"][row]), row)
    return [_rows(columns, list(by_batch.values())[:_TRIES]) for by_batch in layouts.values()]


def _rows(columns: Values, rows: Sequence[int]) -> list[Values]:
    return [{name: _plain(column[row]) for name, column in columns.items()} for row in rows]


def _plain(value: np.generic) -> object:
    """A number or text of its own; None where unknown."""
    number = value.item()
    return None if isinstance(number, float) and math.isnan(number) else number
