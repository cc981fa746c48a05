"""Search: devices x ranks x limits of batches x formats, all scored at once, some simulated.

Every layout of ranks is priced once and its limits are columns (`operating_points`). What cannot
run is counted by its reason. Of the configurations that meet the targets at full batches, those
that no other beats in USD per million tokens and in time per token are the front; the cheapest of
different layouts are simulated under the load, and the cheapest of those that meet the targets
there is best.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, field, replace
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from accelsim import __version__, catalog
from accelsim.catalog.engines import engine
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
from accelsim.estimation.run import resolve
from accelsim.frozen import frozen
from accelsim.option import integers, option, words
from accelsim.plain import Document, Values
from accelsim.result import Metric, Provenance, Result
from accelsim.serving.loads.arrivals import Arrivals
from accelsim.serving.loads.requests import RequestColumns
from accelsim.serving.memory_capacity import LoadShape
from accelsim.serving.operating_points import operating_points
from accelsim.serving.options import ServingOptions, SloTargets
from accelsim.serving.plan import deployed_run, predicted_tokens
from accelsim.serving.result import ServingResult
from accelsim.serving.serve import described, serve
from accelsim.simulation.randomness import RandomStreams
from accelsim.workloads.graph import BoolArray, FloatArray

if TYPE_CHECKING:
    import pandas as pd

    from accelsim.workloads.model import Workload

_SEQS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
_TOKENS = (1024, 2048, 4096, 8192, 16_384)
#: Extra replicas that a simulation may take before a configuration counts as too slow.
_MORE_REPLICAS = 3
#: Batches of a layout that are simulated until one meets the targets.
_TRIES = 4
_FIGURES = (
    *("tpot_s", "ttft_s", "stall_s", "tokens_per_s"),
    *("cost_usd_per_million_tokens", "energy_j_per_token"),
)
#: Why layouts cannot run, by the error that says so.
_REASONS: Mapping[type[InputError], str] = {
    DoesNotFitError: "the memory has no room for the cache",
    UnsupportedOperatorError: "the device cannot run the model",
    InvalidValueError: "no node joins the ranks, or they do not divide the model",
}
_RANKS = frozenset({"tp", "pp", "ep", "etp", "stage"})
_UNPRICED = "no offer of the device"
Report = Callable[[float, float | None, str], None]


@frozen
class SearchSpace:
    """What is tried."""

    devices: tuple[str, ...] = option(
        "Devices to try; every GPU with an on-demand offer if none.",
        (),
        "D,D,...",
        "--devices -d",
        words,
    )
    precisions: tuple[str, ...] = option(
        "Formats to try; the model's usual one if none.", (), "P,P,...", parse=words
    )
    tp: tuple[int, ...] = option(
        "Ranks that share heads and columns.", (1, 2, 4, 8), "N,N,...", parse=integers
    )
    pp: tuple[int, ...] = option("Pipeline stages.", (1,), "N,N,...", parse=integers)
    ep: tuple[int, ...] = option(
        "Ranks that share the experts; of a mixture 1 and tp if none.",
        (),
        "N,N,...",
        parse=integers,
    )
    max_seqs: tuple[int, ...] = option(
        "Limits of sequences at once to try.", _SEQS, "N,N,...", parse=integers
    )
    max_batch_tokens: tuple[int, ...] = option(
        "Limits of tokens of a step to try.", _TOKENS, "N,N,...", parse=integers
    )

    def __post_init__(self) -> None:
        """Refuse numbers out of range.

        Raises:
            InvalidValueError: Naming the field.
        """
        for name in ("tp", "pp", "ep", "max_seqs", "max_batch_tokens"):
            values = getattr(self, name)
            if any(value < 1 for value in values) or (not values and name != "ep"):
                raise InvalidValueError(name, values, "one or more whole numbers >= 1")


@frozen(repr=False)
class ServingSearch(Result):
    """What a search found.

    Attributes:
        workload: Workload name.
        best: The cheapest simulated configuration that meets the targets.
        simulated: The simulated ones, cheapest first, with both kinds of figures.
        pareto: Configurations that no other beats in cost and time per token, cheapest first.
        considered_count: Configurations scored.
        rejected: Those that cannot run, by reason; of layouts, all their limits.
        configurations_per_s: Configurations scored per second.
        columns: Every scored configuration.
        inputs: What was asked.
        provenance: Version of accelsim, and the seed.
        warnings: What to know before trusting it.
    """

    kind: ClassVar[str] = "serving-search"
    nested: ClassVar[frozenset[str]] = frozenset({"best", "simulated", "pareto", "rejected"})

    workload: str
    best: Values
    simulated: tuple[Values, ...]
    pareto: tuple[Values, ...]
    considered_count: int
    rejected: Mapping[str, int]
    configurations_per_s: float
    columns: Values = field(default_factory=dict, compare=False)
    inputs: Values = field(default_factory=dict, compare=False)
    provenance: Provenance = field(default_factory=lambda: Provenance(""), compare=False)
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<ServingSearch: {self.workload}, {self.considered_count} configurations>"

    @property
    def metrics(self) -> dict[str, Metric]:
        """Figures of the best configuration."""
        names = (
            *_FIGURES,
            "simulated_tpot_s",
            "simulated_ttft_s",
            "simulated_usd_per_million_tokens",
        )
        return {name: Metric(self.best.get(name)) for name in names}

    def figures(self) -> Document:
        """Flat figures and lists, ready for JSON."""
        names = ("workload", "considered_count", "configurations_per_s")
        lists = {"simulated": self.simulated, "pareto": self.pareto}
        found = {name: getattr(self, name) for name in names}
        found |= {"best": dict(self.best), "rejected": dict(self.rejected)}
        return found | {name: [dict(row) for row in rows] for name, rows in lists.items()}

    def to_frame(self) -> pd.DataFrame:
        """One row per scored configuration."""
        import pandas as pd

        return pd.DataFrame(dict(self.columns))


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
    asked = options or ServingOptions(), space or SearchSpace()
    grid = _Grid(workload, arrivals, *asked, chosen, paid)
    started = time.perf_counter()
    grid.score(RandomStreams(seed), report)
    elapsed_s = max(time.perf_counter() - started, 1e-9)
    columns = grid.columns()
    meets = _meets(columns, grid.options.slo)
    if not meets.any():
        raise _nothing(columns, grid)
    front = tuple(_rows(columns, _front(columns, meets)))
    simulated = grid.simulate(_different(columns, meets, simulate), seed)
    count = len(columns["device"]) + sum(grid.rejected.values())
    nearest = "" if simulated[0]["meets_targets"] else _NEAREST
    return ServingSearch(
        workload=grid.workload_name,
        best=simulated[0],
        simulated=tuple(simulated),
        pareto=front,
        considered_count=count,
        rejected=dict(grid.rejected),
        configurations_per_s=count / elapsed_s,
        columns=columns,
        inputs=grid.inputs(),
        provenance=Provenance(__version__, seed),
        warnings=tuple(filter(None, (grid.engine.note, nearest, grid.left_out))),
    )


class _Grid:
    """Every configuration of a space, layout by layout."""

    def __init__(
        self,
        workload: str | Workload,
        arrivals: Arrivals | RequestColumns,
        options: ServingOptions,
        space: SearchSpace,
        run: RunOptions,
        price: PriceChoice | None,
    ) -> None:
        self.workload, self.arrivals, self.options = workload, arrivals, options
        self.space, self.run, self.price = space, run, price
        self.rejected: Counter[str] = Counter()
        self.engine_name = options.engine or "vllm"
        self.engine = engine(self.engine_name)
        self.layouts: list[Document] = []
        self.workload_name = self.left_out = ""

    def inputs(self) -> Document:
        """What was asked, as plain values."""
        slo = asdict(self.options.slo)
        return {"load": described(self.arrivals), "engine": self.engine_name, "slo": slo}

    @property
    def limits(self) -> tuple[Any, Any]:
        """Both limits of every configuration of a layout."""
        pairs = product(self.space.max_seqs, self.space.max_batch_tokens)
        seqs, tokens = np.array([(s, t) for s, t in pairs if t >= s]).T
        return seqs, tokens

    def score(self, streams: RandomStreams, report: Report | None) -> None:
        """Score all layouts."""
        asked = self.arrivals
        load = LoadShape.of(asked.columns(streams) if isinstance(asked, Arrivals) else asked)
        devices = self.space.devices or _priced_gpus()
        layouts = list(self._layouts(devices))
        for place, (device, precision, tp, pp, ep) in enumerate(layouts):
            if report is not None:
                report(place, len(layouts), device)
            options = replace(self.options, tp=tp, pp=pp, ep=ep)
            try:
                self._add(device, precision, options, load)
            except InputError as error:
                self.rejected[_reason(error)] += len(self.limits[0])

    def _layouts(self, devices: Sequence[str]) -> Iterator[tuple[str, str | None, int, int, int]]:
        space = self.space
        precisions: tuple[str | None, ...] = space.precisions or (None,)
        for device, precision, tp, pp in product(devices, precisions, space.tp, space.pp):
            for ep in space.ep or ((1, tp) if tp > 1 and self._is_mixture() else (1,)):
                yield device, precision, tp, pp, ep

    def _is_mixture(self) -> bool:
        from accelsim.catalog import workloads as workload_catalog

        found = self.workload
        model = workload_catalog.workload(found) if isinstance(found, str) else found
        return model.has_experts

    def _add(
        self, device: str, precision: str | None, options: ServingOptions, load: LoadShape
    ) -> None:
        model = replace(self.run.model, precision=precision or self.run.model.precision)
        run_options = replace(self.run, model=model)
        resolved = resolve(self.workload, device, run_options)
        self.workload_name = resolved.workload.name
        self.left_out = _NO_GUESSES if predicted_tokens(resolved.workload) else ""
        paid = device_price(resolved.device, self.price)
        if paid.usd_per_hour is None:
            self.rejected[_UNPRICED] += len(self.limits[0])
            return
        own = self.engine
        run = deployed_run(resolved, run_options, options, own)
        points = operating_points(run, own, options, load, self.limits)
        served, energy_j = points.pop("requests_per_s"), points.pop("energy_j_per_token")
        replicas, rate = np.ones(len(served)), self.arrivals.rate_per_s
        if rate is not None:  # as many as it needs
            replicas, served = np.ceil(rate / served), np.full(len(served), rate)
        tokens_per_s = served * max(load.output_tokens, 1.0)
        usd_per_s = paid.usd_per_hour * options.devices_per_replica / SECONDS_PER_HOUR
        self.layouts.append(
            {
                "device": resolved.device.name,
                "precision": resolved.precision.name,
                **{name: getattr(options, name) for name in ("tp", "pp", "ep")},
                **dict(zip(("max_seqs", "max_batch_tokens"), self.limits, strict=True)),
                "sequences": points.pop("sequences"),
                "replicas": replicas,
                "devices": replicas * options.devices_per_replica,
                **points,
                "tokens_per_s": tokens_per_s,
                "cost_usd_per_million_tokens": 1e6 * usd_per_s * replicas / tokens_per_s,
                "energy_j_per_token": energy_j,
            }
        )

    def columns(self) -> Document:
        """All configurations.

        Raises:
            InvalidValueError: If nothing runs.
        """
        if not self.layouts:
            reasons = "; ".join(reason for reason, _ in self.rejected.most_common(3))
            raise InvalidValueError("devices", self.space.devices, f"what can run it: {reasons}")
        count = len(self.limits[0])
        return {
            name: np.concatenate([np.broadcast_to(row[name], (count,)) for row in self.layouts])
            for name in self.layouts[0]
        }

    def simulate(self, layouts: Sequence[Sequence[Values]], seed: int) -> list[Document]:
        """Simulate layouts under the load, each with smaller batches until it meets the targets;
        those that do first, by cost.
        """
        found = []
        for rows in layouts:
            for row in rows:
                result = self._simulated(row, seed)
                if result["meets_targets"]:
                    break
            found.append(result)
        price = "simulated_usd_per_million_tokens"
        return sorted(found, key=lambda row: (not row["meets_targets"], row[price]))

    def _simulated(self, row: Values, seed: int) -> Document:
        names = ("tp", "pp", "ep", "max_seqs", "max_batch_tokens")
        limits: Document = {name: int(row[name]) for name in names}
        options = replace(self.options, **limits)
        model = replace(self.run.model, precision=row["precision"])
        arrivals, least = self.arrivals, int(row["replicas"])
        most = least + _MORE_REPLICAS
        if isinstance(arrivals, Arrivals) and arrivals.users is not None:
            arrivals, most = replace(arrivals, users=int(row["sequences"])), least
        for replicas in range(least, most + 1):
            result = serve(
                self.workload,
                str(row["device"]),
                arrivals,
                replace(options, replicas=replicas),
                replace(self.run, model=model),
                self.price,
                seed=seed,
                intervals=False,
            )
            if meets := self._is_good(result):
                break
        return dict(row) | {
            "replicas": replicas,
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
    found = [catalog.device(name) for name in catalog.device_names()]
    return tuple(
        device.name
        for device in found
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
    return InvalidValueError("slo", grid.options.slo, allowed, "Add devices or ranks.")


def _front(columns: Values, meets: BoolArray) -> list[int]:
    """Places that nothing beats in cost and time per token, cheapest first."""
    goals: FloatArray = np.stack(
        [columns[name][meets] for name in ("cost_usd_per_million_tokens", "tpot_s")], axis=1
    )
    rounded = np.round(np.log(goals), 6)  # equal but for rounding: of the same sequences
    _, first = np.unique(rounded, axis=0, return_index=True)
    places = np.flatnonzero(meets)[first]
    kept = places[pareto_mask(goals[first])]
    order = np.argsort(columns["cost_usd_per_million_tokens"][kept], kind="stable")
    return [int(place) for place in kept[order]]


def _different(columns: Values, meets: BoolArray, count: int) -> list[list[Values]]:
    """The cheapest layouts: of each, configurations that run different batches, cheapest first."""
    places = np.flatnonzero(meets)
    cost = columns["cost_usd_per_million_tokens"][places]
    kept: dict[tuple[Any, ...], dict[float, int]] = {}
    for place in places[np.lexsort((columns["tpot_s"][places], cost))].tolist():
        layout = tuple(columns[name][place] for name in ("device", "precision", "tp", "pp", "ep"))
        if layout in kept or len(kept) < count:
            kept.setdefault(layout, {}).setdefault(float(columns["sequences"][place]), place)
    return [_rows(columns, list(found.values())[:_TRIES]) for found in kept.values()]


def _rows(columns: Values, places: Sequence[int]) -> list[Values]:
    return [{name: _plain(column[place]) for name, column in columns.items()} for place in places]


def _plain(value: Any) -> Any:
    """A number or text of its own; None where unknown."""
    own = value.item()
    return None if isinstance(own, float) and math.isnan(own) else own
