"""A question of capacity: services with their load and limits, jobs with their deadlines,
candidates, constraints, objective.

Read from a YAML or JSON file by pydantic, the boundary; unit suffixes are those of all data files
(``latency_p99_ms`` is read as ``latency_p99_s``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, Field, field_validator, model_validator

from accelsim.capacity.hardware_asked import CandidateHardware, Name, Part
from accelsim.economics.offer import PriceKind
from accelsim.errors import ProfileError
from accelsim.estimation.options import PriceKeywords, RunKeywords
from accelsim.files.datafile import read_mapping, validated
from accelsim.plain import Document, Values
from accelsim.serving.loads.requests import LONGEST_TOKENS
from accelsim.serving.options import ATTAINMENT_FRACTION, SloTargets
from accelsim.training.plan import ParallelismPlan
from accelsim.units import to_si

#: Fields of `accelsim.estimate` a service may not set: the planner does.
_PLANNED = frozenset(("batch", "mode", "host", *PriceKeywords.__annotations__))
_LARGEST_RATE = 1e9
_HOURS = 24
#: Share of the requests that keep limits whose names say p99.
_STRICT = 0.99
#: Limits of a service, in words.
_TIMES = {
    "latency": "within",
    "ttft": "with first tokens within",
    "tpot": "with a token every",
}
_Ranks = Annotated[int, Field(ge=1, le=64)]
_M = TypeVar("_M", bound=BaseModel)
Objective = Literal["cost", "energy", "carbon", "latency", "time"]
_NEEDED = {"latency": "services", "time": "training_jobs or batch_jobs"}


def _unplanned(run: Values) -> Values:
    """Keywords of a run, none of which the plan decides."""
    planned = sorted(_PLANNED & run.keys())
    if planned:
        raise ValueError(f"{planned[0]} is what the plan decides; leave it out")
    unknown = sorted(run.keys() - RunKeywords.__annotations__.keys())
    if unknown:
        raise ValueError(f"{unknown[0]} is no keyword of accelsim.estimate")
    return run


class Service(Part):
    """A model that answers requests as they come.

    Attributes:
        name: Its name in the answer.
        model: Workload name or file.
        requests_per_s: Mean rate of Poisson arrivals at the peak; a request is one sample.
        hourly_requests_per_s: Rates of the 24 hours of a day, in place of it: the largest is served
            and the mean decides energy.
        mean_load_fraction: Load of the mean hour over the peak's; decides energy, not size.
        growth_fraction_per_month: Growth of the load, compound.
        latency_p99_s: Limit that 99 % of the requests keep.
        latency_s: Limit that the share `attainment_fraction` keeps.
        attainment_fraction: Share of the requests that keep all limits; 0.99 of limits that say so,
            else that of `accelsim.serve`.
        max_batch: Largest batch.
        prompt: Lengths of prompts in tokens, as `accelsim.serve` takes them; those of a model that
            generates are its usual ones where None.
        output: Lengths of outputs.
        session: Sessions of an agent, as `accelsim.serve` takes them; rates are of sessions then.
        prefix_tokens: Tokens of a system prompt that all prompts start with.
        trace: File of requests in place of these; they come at the rate of the service.
        ttft_p99_s: Limit of the time to the first token.
        tpot_p99_s: Limit of the mean time of a further token.
        ttft_s: The same of the share `attainment_fraction`.
        tpot_s: The same of the share `attainment_fraction`.
        tp: Devices of a replica that generates, sharing heads and columns: those that are tried.
        pp: Pipeline stages of such a replica that are tried; one where empty.
        ep: Ranks that share its experts that are tried; one and tp where empty.
        engine: What serves a model that generates: those that are tried.
        precision: Formats that are tried; that of `run` where empty.
        run: Keywords of `accelsim.estimate`.
    """

    name: Name
    model: str = Field(min_length=1)
    requests_per_s: float | None = Field(default=None, gt=0, le=_LARGEST_RATE)
    hourly_requests_per_s: tuple[Annotated[float, Field(ge=0, le=_LARGEST_RATE)], ...] = ()
    mean_load_fraction: float = Field(default=1.0, gt=0, le=1)
    growth_fraction_per_month: float = Field(default=0.0, ge=-0.9, le=10)
    latency_p99_s: float | None = Field(default=None, gt=0, le=86_400)
    latency_s: float | None = Field(default=None, gt=0, le=86_400)
    attainment_fraction: float | None = Field(default=None, gt=0, lt=1)
    max_batch: int = Field(default=128, ge=1, le=4096)
    prompt: str | None = None
    output: str | None = None
    session: str | None = None
    prefix_tokens: int = Field(default=0, ge=0, le=LONGEST_TOKENS)
    trace: str | None = None
    ttft_p99_s: float | None = Field(default=None, gt=0, le=86_400)
    tpot_p99_s: float | None = Field(default=None, gt=0, le=86_400)
    ttft_s: float | None = Field(default=None, gt=0, le=86_400)
    tpot_s: float | None = Field(default=None, gt=0, le=86_400)
    tp: tuple[_Ranks, ...] = ()
    pp: tuple[_Ranks, ...] = ()
    ep: tuple[_Ranks, ...] = ()
    engine: tuple[str, ...] = ()
    precision: tuple[str, ...] = ()
    run: Values = Field(default_factory=dict)

    @field_validator("run")
    @classmethod
    def _is_no_plan(cls, run: Values) -> Values:
        return _unplanned(run)

    @field_validator(
        "tp", "pp", "ep", "engine", "precision", "hourly_requests_per_s", mode="before"
    )
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value if value == () else (value,)

    @model_validator(mode="after")
    def _has_limit(self) -> Service:
        strict, others = self._strict, self._others
        if not strict and not others:
            needed = "latency_p99_s (or ttft_p99_s or tpot_p99_s of tokens)"
            raise ValueError(f"{needed} is needed, or latency_s, ttft_s or tpot_s")
        if strict and (others or self.attainment_fraction is not None):
            other = others[0][0] if others else "attainment_fraction"
            raise ValueError(f"{strict[0][0]} is of 99 % of the requests: leave {other} out")
        return self

    @model_validator(mode="after")
    def _says_once(self) -> Service:
        lengths = ("prompt", "output", "session", "prefix_tokens")
        given = [name for name in lengths if getattr(self, name)]
        if self.trace is not None and given:
            raise ValueError(f"trace has the lengths of the requests: leave {given[0]} out")
        if "precision" in self.run and self.precision:
            raise ValueError("precision stands in run, too: give it once")
        return self

    @model_validator(mode="after")
    def _has_load(self) -> Service:
        hours = self.hourly_requests_per_s
        if (self.requests_per_s is None) == (not hours):
            raise ValueError("give requests_per_s or hourly_requests_per_s, one of them")
        if hours and (len(hours) != _HOURS or not max(hours)):
            raise ValueError(f"hourly_requests_per_s: expected {_HOURS} rates, one above 0")
        if hours and self.mean_load_fraction != 1.0:
            raise ValueError(
                "hourly_requests_per_s says the mean load: leave mean_load_fraction out"
            )
        return self

    @property
    def peak_per_s(self) -> float:
        """Requests per second of the hour with the most."""
        return max(self.hourly_requests_per_s, default=self.requests_per_s or 0.0)

    @property
    def mean_fraction(self) -> float:
        """Load of the mean hour over the peak's."""
        hours = self.hourly_requests_per_s
        return sum(hours) / len(hours) / max(hours) if hours else self.mean_load_fraction

    @property
    def _strict(self) -> list[tuple[str, str, float]]:
        return self._said({name: getattr(self, f"{name}_p99_s") for name in _TIMES}, "_p99_s")

    @property
    def _others(self) -> list[tuple[str, str, float]]:
        return self._said({name: getattr(self, f"{name}_s") for name in _TIMES}, "_s")

    @staticmethod
    def _said(limits: Mapping[str, float | None], ending: str) -> list[tuple[str, str, float]]:
        return [(n + ending, _TIMES[n], limit) for n, limit in limits.items() if limit is not None]

    @property
    def limits(self) -> tuple[tuple[str, str, float], ...]:
        """Limits that requests keep: field, words, seconds."""
        return tuple(self._strict or self._others)

    @property
    def targets(self) -> SloTargets:
        """The limits as a simulation has them."""
        limits = {field.split("_")[0]: limit for field, _, limit in self.limits}
        share = _STRICT if self._strict else self.attainment_fraction or ATTAINMENT_FRACTION
        return SloTargets(limits.get("ttft"), limits.get("tpot"), limits.get("latency"), share)


class _Job(Part):
    """Work with an end and a deadline.

    Attributes:
        name: Its name in the answer.
        model: Workload name or file.
        deadline_s: Time within which it must be done.
        runs_per_month: How often it is run a month; decides cost and energy a month.
        run: Keywords of `accelsim.estimate`.
    """

    name: Name
    model: str = Field(min_length=1)
    deadline_s: float = Field(gt=0, le=1e10)
    runs_per_month: float = Field(default=1.0, gt=0, le=1e6)
    run: Values = Field(default_factory=dict)

    @field_validator("run")
    @classmethod
    def _is_no_plan(cls, run: Values) -> Values:
        return _unplanned(run)


class TrainingJob(_Job):
    """A model to be trained on a number of samples or tokens, exactly one of them.

    Attributes:
        samples: Samples.
        tokens: Tokens.
        global_batch: Samples of an iteration; the smallest of the devices where None.
        plan: Fields of the parallelism that stay as they are; the others are searched, as
            `accelsim.train` does.
        checkpoint_s: Time from a checkpoint to the next; the best one where None.
    """

    samples: float | None = Field(default=None, gt=0, le=1e18)
    tokens: float | None = Field(default=None, gt=0, le=1e18)
    global_batch: int | None = Field(default=None, ge=1, le=10_000_000)
    plan: str | None = None
    checkpoint_s: float | None = Field(default=None, gt=0, le=1e9)

    @field_validator("run")
    @classmethod
    def _is_of_run(cls, run: Values) -> Values:
        names = sorted({field.name for field in fields(ParallelismPlan)} & run.keys())
        if names:
            written = f"{names[0]}={run[names[0]]}"
            raise ValueError(f'{names[0]} is a field of the plan; give plan: "{written}"')
        return run

    @model_validator(mode="after")
    def _has_length(self) -> TrainingJob:
        if (self.samples is None) == (self.tokens is None):
            raise ValueError("give samples or tokens, one of them")
        return self


class BatchJob(_Job):
    """Samples to be answered by a deadline, in batches as large as pays.

    Attributes:
        samples: Samples.
        max_batch: Largest batch.
    """

    samples: float = Field(gt=0, le=1e18)
    max_batch: int = Field(default=128, ge=1, le=4096)


class Reliability(Part):
    """What fails; what is None never does.

    Attributes:
        instance_mtbf_s: Mean time between failures of an instance.
        repair_s: Time until it is back.
        spot_mtbf_s: Mean time between preemptions of a spot instance.
        restart_s: From a failure of a job to its first new step.
    """

    instance_mtbf_s: float | None = Field(default=None, gt=0, le=1e12)
    repair_s: float = Field(default=3600.0, ge=0, le=1e9)
    spot_mtbf_s: float | None = Field(default=None, gt=0, le=1e12)
    restart_s: float = Field(default=600.0, ge=0, le=1e9)

    def mtbf_s(self, kind: PriceKind) -> float | None:
        """Mean time between failures and preemptions of an instance; None where neither is."""
        rates = [1 / self.instance_mtbf_s] if self.instance_mtbf_s else []
        if kind == "spot" and self.spot_mtbf_s:
            rates.append(1 / self.spot_mtbf_s)
        return 1 / sum(rates) if rates else None

    def up_fraction(self, kind: PriceKind) -> float:
        """Share of the time that an instance is there: mtbf / (mtbf + repair)."""
        mtbf = self.mtbf_s(kind)
        return 1.0 if mtbf is None else mtbf / (mtbf + self.repair_s)


class Constraints(Part):
    """Limits of the fleet; None sets none.

    Attributes:
        slo_probability: Least probability that a service keeps its latency; the median of the
            model's error is planned for where None.
        deadline_probability: The same that a job keeps its deadline.
        redundancy: Largest instances that may fail while the load is still carried.
        budget_usd_per_month: Cost.
        carbon_kgco2e_per_month: Operational carbon.
        power_w: Mean power of devices and site overhead.
        instance_count: Instances in all.
        quota: Instances of a provider, a device, or an offer (provider/region/instance).
        residency: Codes or shell patterns of regions that every instance must be in.
        carbon_basis: Grid intensity by place, or by what the provider buys.
    """

    slo_probability: float | None = Field(default=None, ge=0.01, le=0.999)
    deadline_probability: float | None = Field(default=None, ge=0.01, le=0.999)
    redundancy: int = Field(default=0, ge=0, le=100)
    budget_usd_per_month: float | None = Field(default=None, gt=0, le=1e15)
    carbon_kgco2e_per_month: float | None = Field(default=None, gt=0, le=1e15)
    power_w: float | None = Field(default=None, gt=0, le=1e15)
    instance_count: int | None = Field(default=None, ge=1, le=1_000_000)
    quota: Mapping[str, int] = Field(default_factory=dict)
    residency: tuple[str, ...] = ()
    carbon_basis: Literal["location", "market"] = "location"

    @field_validator("residency", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value

    @field_validator("quota")
    @classmethod
    def _is_count(cls, quota: Mapping[str, int]) -> Mapping[str, int]:
        for name, count in quota.items():
            if count < 0:
                raise ValueError(f"quota of {name}: expected 0 or more, got {count}")
        return quota


def _refuses_by_name(model: type[_M]) -> type[_M]:
    """The model, whose constructor says what is wrong as its reader does."""
    from pydantic import ValidationError

    made: Any = model
    validate = made.__init__

    @wraps(validate)
    def construct(self: Any, **values: Any) -> None:
        try:
            validate(self, **values)
        except ValidationError as error:
            problems = [
                f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}"
                for problem in error.errors(include_url=False)
            ]
            raise ProfileError("scenario", problems) from None

    made.__init__ = construct
    return model


@_refuses_by_name
class Scenario(Part):
    """Services and jobs to run, devices to choose among, and limits to keep: what `plan` answers.

    Attributes:
        name: Its name in the answer.
        objective: What is least: cost, energy, carbon, latency of services, or time of jobs.
        currency: USD, the currency of the price book.
        months: Months the growth of the load is followed over.
        services: What is to be served.
        training_jobs: What is to be trained.
        batch_jobs: What is to be answered by a deadline.
        reliability: What fails.
        candidates: What may be rented.
        constraints: Limits.
        seed: Seed of the arrivals.
    """

    name: Name
    objective: Objective = "cost"
    currency: str = "USD"
    months: int = Field(default=1, ge=1, le=60)
    services: tuple[Service, ...] = Field(default=(), max_length=100)
    training_jobs: tuple[TrainingJob, ...] = Field(default=(), max_length=100)
    batch_jobs: tuple[BatchJob, ...] = Field(default=(), max_length=100)
    reliability: Reliability = Reliability()
    candidates: CandidateHardware = CandidateHardware()
    constraints: Constraints = Constraints()
    seed: int = Field(default=0, ge=0)

    @model_validator(mode="before")
    @classmethod
    def _has_known_parts(cls, content: Any) -> Any:
        if isinstance(content, Mapping) and "jobs" in content:
            raise ValueError(
                "jobs: write training_jobs (or batch_jobs, for samples to be answered)"
            )
        return content

    @field_validator("services", "training_jobs", "batch_jobs", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value

    @field_validator("currency")
    @classmethod
    def _is_known(cls, currency: str) -> str:
        if currency != "USD":
            raise ValueError("prices are known in USD alone; convert the budget and write USD")
        return currency

    @model_validator(mode="after")
    def _is_distinct(self) -> Scenario:
        names = [task.name for task in (*self.services, *self.jobs)]
        if not names:
            raise ValueError("services, training_jobs or batch_jobs: at least one is needed")
        if len(set(names)) < len(names):
            raise ValueError("two services or jobs have one name")
        for goal, needed in (("latency", self.services), ("time", self.jobs)):
            if self.objective == goal and not needed:
                raise ValueError(f"objective {goal} needs {_NEEDED[goal]}")
        return self

    @property
    def jobs(self) -> tuple[TrainingJob | BatchJob, ...]:
        """Training jobs, then batch jobs."""
        return (*self.training_jobs, *self.batch_jobs)


def scenario_content(path: str | Path) -> dict[str, Any]:
    """What a scenario's file says, with units in SI.

    Args:
        path: File.

    Raises:
        ProfileError: If it cannot be read.
    """
    return dict(to_si(read_mapping(Path(path))))


def load_scenario(source: str | Path | Values) -> Scenario:
    """Read a scenario.

    Args:
        source: File, or its content as a mapping.

    Raises:
        ProfileError: If it cannot be read or a field is wrong; names the line and field.
    """
    if isinstance(source, Mapping):
        return Scenario(**_in_si(source))
    path = Path(source)
    return validated(path, lambda: Scenario.model_validate(to_si(read_mapping(path))))


def _in_si(content: Values) -> Document:
    try:
        return {str(key): value for key, value in to_si(content).items()}
    except ValueError as error:
        raise ProfileError("scenario", [str(error)]) from None
