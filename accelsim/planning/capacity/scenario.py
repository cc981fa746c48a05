"""A question of capacity: services with their load and limits, candidates, constraints, objective.

Read from a YAML or JSON file by pydantic, the boundary; unit suffixes are those of all data files
(``latency_p99_ms`` is read as ``latency_p99_s``).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from accelsim.datafile import read_mapping, validated
from accelsim.economics.offer import PriceKind, price_kind
from accelsim.errors import ProfileError
from accelsim.planning.options import RunKeywords
from accelsim.units import to_si

__all__ = [
    "TEMPLATE",
    "Candidates",
    "Constraints",
    "Scenario",
    "Service",
    "load_scenario",
    "scenario_content",
]

#: Fields of `accelsim.estimate` a service may not set: the planner does.
_PLANNED: Final = frozenset(
    ("batch", "mode", "offer", "usd_per_hour", "provider", "region", "kind", "host")
)
_LARGEST_RATE: Final = 1e9

#: What ``accelsim init`` writes.
TEMPLATE: Final = """\
# A question for: accelsim plan FILE
name: vision-api
objective: cost              # or energy, carbon
currency: USD                # prices are known in USD alone
months: 1                    # months that the load grows over

services:
  - name: classifier
    model: resnet-50         # a workload, or the path of one
    requests_per_s: 2000     # Poisson arrivals at the peak
    mean_load_fraction: 1.0  # load of the mean hour over that of the peak; for energy
    growth_fraction_per_month: 0.0
    latency_p99_ms: 100      # 99 of 100 requests are answered within
    max_batch: 128           # largest batch a device may take at once
    run:                     # fields of accelsim.estimate: precision, stack, execution ...
      execution: compiled

candidates:
  devices: [cpu, gpu, fpga, tpu]  # names, or classes: cpu, gpu, fpga, asic, tpu
  providers: [aws, gcp]           # names or patterns, "*" for all
  regions: [us-*]                 # codes or patterns
  kinds: [on_demand]              # spot, committed_1y, committed_3y

constraints:
  slo_probability: 0.9            # that the limit of latency holds, model error included
  redundancy: 0                   # instances that may be down: N+k
  # budget_usd_per_month: 5000
  # carbon_kgco2e_per_month: 500
  # power_w: 3000                 # mean power of all devices, site overhead included
  # instance_count: 20            # instances in all
  # quota: {gcp: 4, h100-sxm-80gb: 2}  # instances by provider, device or offer
  carbon_basis: location          # or market

draws: 200                   # of model error and arrivals, for the probability
seed: 0
"""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Service(_Model):
    """A model that answers requests as they come.

    Attributes:
        name: Its name in the answer.
        model: Workload name or file.
        requests_per_s: Mean rate of Poisson arrivals at the peak; a request is one sample.
        mean_load_fraction: Load of the mean hour over the peak's; decides energy, not size.
        growth_fraction_per_month: Growth of the load, compound.
        latency_p99_s: Limit that 99 % of the requests keep.
        max_batch: Largest batch.
        run: Keywords of `accelsim.estimate`.
    """

    name: str = Field(min_length=1, max_length=100)
    model: str = Field(min_length=1)
    requests_per_s: float = Field(gt=0, le=_LARGEST_RATE)
    mean_load_fraction: float = Field(default=1.0, gt=0, le=1)
    growth_fraction_per_month: float = Field(default=0.0, ge=-0.9, le=10)
    latency_p99_s: float = Field(gt=0, le=86_400)
    max_batch: int = Field(default=128, ge=1, le=4096)
    run: Mapping[str, Any] = Field(default_factory=dict)

    @field_validator("run")
    @classmethod
    def _is_no_plan(cls, run: Mapping[str, Any]) -> Mapping[str, Any]:
        planned = sorted(_PLANNED & run.keys())
        if planned:
            raise ValueError(f"{planned[0]} is what the plan decides; leave it out")
        unknown = sorted(run.keys() - RunKeywords.__annotations__.keys())
        if unknown:
            raise ValueError(f"{unknown[0]} is no keyword of accelsim.estimate")
        return run


class Candidates(_Model):
    """What may be rented.

    Attributes:
        devices: Device names, or the classes cpu, gpu, fpga, asic, and tpu.
        providers: Names or shell patterns.
        regions: Codes or shell patterns.
        kinds: Price kinds.
    """

    devices: tuple[str, ...] = Field(default=("cpu", "gpu", "fpga", "asic"), min_length=1)
    providers: tuple[str, ...] = Field(default=("*",), min_length=1)
    regions: tuple[str, ...] = Field(default=("*",), min_length=1)
    kinds: tuple[PriceKind, ...] = Field(default=("on_demand",), min_length=1)

    @field_validator("devices", "providers", "regions", "kinds", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value

    @field_validator("kinds", mode="before")
    @classmethod
    def _spelled(cls, value: Any) -> Any:
        return tuple(price_kind(kind) if isinstance(kind, str) else kind for kind in value)


class Constraints(_Model):
    """Limits of the fleet; None sets none.

    Attributes:
        slo_probability: Least probability that a service keeps its latency.
        redundancy: Largest instances that may fail while the load is still carried.
        budget_usd_per_month: Cost.
        carbon_kgco2e_per_month: Operational carbon.
        power_w: Mean power of devices and site overhead.
        instance_count: Instances in all.
        quota: Instances of a provider, a device, or an offer (provider/region/instance).
        carbon_basis: Grid intensity by place, or by what the provider buys.
    """

    slo_probability: float = Field(default=0.9, ge=0.01, le=0.999)
    redundancy: int = Field(default=0, ge=0, le=100)
    budget_usd_per_month: float | None = Field(default=None, gt=0, le=1e15)
    carbon_kgco2e_per_month: float | None = Field(default=None, gt=0, le=1e15)
    power_w: float | None = Field(default=None, gt=0, le=1e15)
    instance_count: int | None = Field(default=None, ge=1, le=1_000_000)
    quota: Mapping[str, int] = Field(default_factory=dict)
    carbon_basis: Literal["location", "market"] = "location"

    @field_validator("quota")
    @classmethod
    def _is_count(cls, quota: Mapping[str, int]) -> Mapping[str, int]:
        for name, count in quota.items():
            if count < 0:
                raise ValueError(f"quota of {name}: expected 0 or more, got {count}")
        return quota


class Scenario(_Model):
    """A question of capacity.

    Attributes:
        name: Its name in the answer.
        objective: What is least: cost, energy or carbon.
        currency: USD, the currency of the price book.
        months: Months the growth of the load is followed over.
        services: What is to be served.
        candidates: What may be rented.
        constraints: Limits.
        draws: Joint draws of model error and arrivals behind `slo_probability`.
        seed: Seed of the draws.
    """

    name: str = Field(min_length=1, max_length=200)
    objective: Literal["cost", "energy", "carbon"] = "cost"
    currency: str = "USD"
    months: int = Field(default=1, ge=1, le=60)
    services: tuple[Service, ...] = Field(min_length=1, max_length=100)
    candidates: Candidates = Candidates()
    constraints: Constraints = Constraints()
    draws: int = Field(default=200, ge=1, le=100_000)
    seed: int = Field(default=0, ge=0)

    @field_validator("services", mode="before")
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
        names = [service.name for service in self.services]
        if len(set(names)) < len(names):
            raise ValueError("two services have one name")
        return self


def scenario_content(path: str | Path) -> dict[str, Any]:
    """What a scenario's file says, with units in SI.

    Args:
        path: File.

    Raises:
        ProfileError: If it cannot be read.
    """
    return dict(to_si(read_mapping(Path(path))))


def load_scenario(source: str | Path | Mapping[str, Any]) -> Scenario:
    """Read a scenario.

    Args:
        source: File, or its content as a mapping.

    Raises:
        ProfileError: If it cannot be read or a field is wrong; names the line and field.
    """
    if isinstance(source, Mapping):
        return _of_mapping(source)
    path = Path(source)
    return validated(path, lambda: Scenario.model_validate(to_si(read_mapping(path))))


def _of_mapping(content: Mapping[str, Any]) -> Scenario:
    from pydantic import ValidationError

    try:
        return Scenario.model_validate(to_si(content))
    except ValidationError as error:
        problems = [
            f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}" for detail in error.errors()
        ]
        raise ProfileError("scenario", problems) from None
    except ValueError as error:
        raise ProfileError("scenario", [str(error)]) from None
