"""A service that generates tokens: layouts of ranks on a device, searched as `serve` does.

A layout is judged as a whole fleet behind its router (`serving.layouts`); what its full batches
serve is the bound that decides whether it is simulated at all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import field, replace
from functools import cached_property
from itertools import product
from pathlib import Path

from accelsim.capacity.replica_answers import ReplicaLoad, ServiceAnswer, sample_answer
from accelsim.capacity.scenario import Service
from accelsim.catalog import workloads as workload_catalog
from accelsim.errors import InputError
from accelsim.estimation.options import RunOptions, run_options
from accelsim.frozen import frozen
from accelsim.plain import Values
from accelsim.serving.layouts import RANKS, Layouts, LayoutSearch, ranks_tried
from accelsim.serving.loads.arrivals import Arrivals
from accelsim.serving.loads.requests import RequestColumns
from accelsim.serving.loads.sessions import session_options
from accelsim.serving.options import ServingOptions
from accelsim.serving.trust import ServedRun

#: Most replicas over those of full batches: a layout that needs more is no answer.
_MOST_RATIO = 64
_FIELDS = ("ttft_s", "tpot_s")


@frozen(eq=False, slots=False)
class TokenAnswer:
    """How replicas of one layout answer requests of tokens; see `ServiceAnswer`.

    Attributes:
        layouts: The model on the device under the load.
        first: The layout at the service's rate.
        searches: Layouts by rate and slowness.
    """

    layouts: Layouts
    first: LayoutSearch
    searches: dict[ReplicaLoad, LayoutSearch] = field(default_factory=dict)

    @property
    def about(self) -> Values:
        """Ranks, engine, formats and limits of a replica."""
        plan = self.first.plan
        names = ("tp", "pp", "ep", "precision", "kv_format", "max_seqs", "max_batch_tokens")
        document = plan.to_dict()
        lengths = {"max_context": self.first.longest}
        return {"engine": plan.engine_name} | {name: document[name] for name in names} | lengths

    @property
    def ranks(self) -> int:
        """Devices of the replica."""
        return self.first.plan.options.devices_per_replica

    @cached_property
    def _sigmas(self) -> tuple[float, float]:
        """Spreads of further tokens and of prompts."""
        plan = self.first.plan
        served, steps = ServedRun(plan.run, engine_name=plan.engine_name), plan.steps
        return served.common_log_sigma(steps), served.prompt_log_sigma(steps)

    @property
    def log_sigma(self) -> float:
        """Spread of what all step times have in common."""
        return self._sigmas[0]

    @property
    def alone_s(self) -> float:
        """Time of a request of mean lengths alone."""
        shape, steps = self.first.shape, self.first.plan.steps
        prompt = max(round(shape.prompt_tokens), 1)
        first = steps.step(prompt, prompt * shape.prompt_context, 0, 0)[0]
        further = max(round(shape.output_tokens) - 1, 0)
        rest = steps.decode_run(1, shape.decode_context, 1)[0] * further if further else 0.0
        return first + rest

    @property
    def idle_w(self) -> float | None:
        """Power of a replica without load."""
        return self.first.plan.steps.idle_w

    def _search(self, load: ReplicaLoad) -> LayoutSearch:
        if load not in self.searches:
            search, usual = self.first, self.first
            if load.rate_per_s != usual.rate_per_s:
                search = self.layouts.at_rate(load.rate_per_s).of(search.plan.options)
                # fleets for shares of a load are enough for all of it
                shares = math.ceil(usual.rate_per_s / load.rate_per_s - 1e-9)
                search.too_few = max(search.too_few, -(-(usual.too_few + 1) // shares) - 1)
            if load.z:
                search = search.slower(*(math.exp(load.z * sigma) for sigma in self._sigmas))
                usual = self._search(replace(load, z=0.0))
                # as many times slower, a service is one of as much more load and tighter limits
                ratio = math.exp(load.z * self.log_sigma)
                search.too_few = max(search.too_few, int(ratio * usual.too_few))
            for other, known in self.searches.items():
                if other.z <= load.z and other.rate_per_s <= load.rate_per_s:
                    search.too_few = max(search.too_few, known.too_few)
            self.searches[load] = search
        return self.searches[load]

    def fewest(self, load: ReplicaLoad) -> int | None:
        """Full batches that never wait, and what was simulated by now; see `ServiceAnswer`."""
        search = self._search(load)
        is_none = not search.is_able or search.too_few >= _MOST_RATIO * search.fewest
        return None if is_none else search.too_few + 1

    def is_simulated(self, load: ReplicaLoad) -> bool:
        """See `ServiceAnswer`."""
        return self._search(load).is_settled

    def needed(self, load: ReplicaLoad) -> int | None:
        """The fewest replicas of a simulated fleet; see `ServiceAnswer`."""
        search = self._search(load)
        if not search.is_able:
            return None
        fleet = search.fewest_within(_MOST_RATIO * search.fewest)
        return None if fleet is None else fleet[0]

    def narrow(self, load: ReplicaLoad, most: float) -> None:
        """One simulation of a fleet; see `ServiceAnswer`."""
        search = self._search(load)
        limit = int(min(most, _MOST_RATIO * search.fewest))
        search.narrow(max(limit, search.too_few + 1), self._guess(load))

    def _guess(self, load: ReplicaLoad) -> int:
        """Replicas in proportion to those that are needed at the median of the usual load; of more
        load a little less, as more of them share it better.
        """
        usual = self.first
        if usual.enough is None or self._search(load) is usual:
            return 0
        ratio = load.rate_per_s / usual.rate_per_s
        count = usual.enough[0] - (ratio > 1)
        return math.ceil(count * ratio * math.exp(load.z * self.log_sigma))

    def holds(self, replicas: int, load: ReplicaLoad, planned: ReplicaLoad) -> bool:  # noqa: ARG002
        """See `ServiceAnswer`; batches are the engine's own."""
        search = self._search(load)
        return search.is_able and search.suffices(replicas)

    def dynamic_j(self, load: ReplicaLoad) -> float:
        """As simulated, or of a full batch; see `ServiceAnswer`."""
        search, idle_w = self._search(load), self.idle_w
        if idle_w is None:
            return math.nan
        if search.enough is None or not self.is_simulated(load):
            return search.full_dynamic_j(idle_w)
        replicas, result = search.enough
        if result.average_power_w is None:
            return math.nan
        return max(result.average_power_w - replicas * idle_w, 0.0) / load.rate_per_s

    @property
    def mean_tokens(self) -> tuple[float, float] | None:
        """Those of the load, of a session all of its requests'; see `ServiceAnswer`."""
        columns = self.first.columns
        means = (columns.prompt_tokens.mean(), columns.output_tokens.mean())
        prompt, output = (columns.per_start * float(mean) for mean in means)
        return (prompt, output) if output else None

    def request_times(self, load: ReplicaLoad) -> Values:
        """First and further tokens; see `ServiceAnswer`."""
        simulated = self._search(load).enough
        if simulated is None:
            return {}
        return {f"{name[:4]}_p99_s": getattr(simulated[1], name)["p99"] for name in _FIELDS}

    def shortfall(self) -> tuple[str, float] | None:
        """See `ServiceAnswer`."""
        slo = self.first.plan.options.slo
        limits = (slo.ttft_s, slo.tpot_s)
        for name, time_s, limit in zip(_FIELDS, self.first.alone_s, limits, strict=True):
            if limit is not None and time_s > limit:
                return name, time_s
        return None


def service_answers(service: Service, device: str, seed: int) -> list[ServiceAnswer] | str:
    """Layouts of a service on a device; the reason where there is none.

    Args:
        service: What is served.
        device: Name of a device or slice.
        seed: Of the random numbers.

    Raises:
        InputError: If a trace cannot be read.
    """
    load = _load(service)
    if load is None:
        answer = sample_answer(service, device, seed)
        return answer if isinstance(answer, str) else [answer]
    answers: list[ServiceAnswer] = []
    reason = ""
    for run, options in _layouts(service):
        layouts = Layouts(service.model, device, run, load, service.peak_per_s, seed=seed)
        try:
            answers.append(TokenAnswer(layouts, layouts.of(options)))
        except InputError as error:
            reason = str(error)
    return answers or reason


def _layouts(service: Service) -> Iterator[tuple[RunOptions, ServingOptions]]:
    """Formats, engines and ranks that are tried."""
    own = {
        name: value for name, value in service.run.items() if name not in {"seq_len", "output_len"}
    }
    slo = service.targets
    formats = [own | {"precision": precision} for precision in service.precision] or [own]
    engines: tuple[str | None, ...] = service.engine or (None,)
    ranks = list(ranks_tried(service.model, service.tp or RANKS, service.pp or (1,), service.ep))
    for run, engine, (tp, pp, ep) in product(formats, engines, ranks):
        yield run_options(None, run), ServingOptions(engine=engine, tp=tp, pp=pp, ep=ep, slo=slo)


def _load(service: Service) -> Arrivals | RequestColumns | None:
    """Requests of tokens at the peak; None of a model that answers samples."""
    if service.trace is not None:
        from accelsim.serving.loads.traces import read_trace

        return read_trace(Path(service.trace)).requests
    model = workload_catalog.workload(service.model)
    length = service.run.get("output_len", model.output_len)
    prompt, output = service.prompt, service.output
    if not model.autoregressive or (output is None and not length):
        return None
    usual = service.run.get("seq_len", model.default.seq_len)
    return Arrivals(
        rate_per_s=service.peak_per_s,
        session=session_options("session", service.session) if service.session else None,
        prefix_tokens=service.prefix_tokens,
        prompt=prompt or str(usual),
        output=output or str(length),
    )
