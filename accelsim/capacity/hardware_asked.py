"""Hardware that a question of capacity may rent or has: a part of `capacity.scenario`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator

from accelsim.economics.eligible import SPOT_AGE_DAYS, OfferRule
from accelsim.economics.offer import LARGEST_USD_PER_HOUR, PriceKind, price_kind
from accelsim.economics.ownership import OwnedHardware
from accelsim.errors import InvalidValueError

_DAY_S = 86_400.0


def _one_line(name: str) -> str:
    if not name.isprintable():
        raise ValueError("expected letters, digits and signs on one line")
    return name


Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_one_line)]


class Part(BaseModel):
    """A part of a scenario: frozen, and strict about fields and types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Owned(Part):
    """Hardware of one's own.

    Attributes:
        name: Its name in the answer.
        device: Device in it.
        device_count: How many.
        used_fraction: Share of the time that it works, over which its cost is spread.
        region: Where it is; for residency.
        kgco2e_per_kwh: Of its electricity; None where unknown.
        price_usd: Paid at the start; the other figures are those of
            `accelsim.economics.ownership.OwnedHardware`.
        life_years: Years of service.
        busy_power_w: Power at work.
        idle_power_w: Power at rest.
        electricity_usd_per_kwh: Energy price.
        pue_ratio: Overhead of the site, cooling in it.
        residual_fraction: Of the price, what it is sold for at the end.
        space_usd_per_kw_month: Rent of the room by kW of busy power.
        staff_usd_per_year: People.
    """

    name: Name
    device: str = Field(min_length=1)
    device_count: int = Field(default=1, ge=1, le=10_000)
    used_fraction: float = Field(default=1.0, gt=0, le=1)
    region: str = Field(default="site", min_length=1, max_length=100)
    kgco2e_per_kwh: float | None = Field(default=None, ge=0, le=10)
    price_usd: float = Field(gt=0, le=1e12)
    life_years: float = Field(gt=0, le=100)
    busy_power_w: float = Field(ge=0, le=1e9)
    idle_power_w: float = Field(default=0.0, ge=0, le=1e9)
    electricity_usd_per_kwh: float = Field(ge=0, le=100)
    pue_ratio: float = Field(default=1.0, ge=1, le=10)
    residual_fraction: float = Field(default=0.0, ge=0, le=1)
    space_usd_per_kw_month: float = Field(default=0.0, ge=0, le=1e6)
    staff_usd_per_year: float = Field(default=0.0, ge=0, le=1e12)

    @property
    def hardware(self) -> OwnedHardware:
        """What owning it costs."""
        return OwnedHardware(
            **{field.name: getattr(self, field.name) for field in fields(OwnedHardware)}
        )


class CandidateHardware(Part):
    """What may be rented, or is one's own.

    Attributes:
        devices: Device names, or the classes cpu, gpu, fpga, asic, and tpu.
        providers: Names or shell patterns.
        regions: Codes or shell patterns.
        kinds: Price kinds.
        counts: Instances that a job may take.
        discounts: Share taken off the prices of a provider.
        max_usd_per_hour: Most that an instance may cost.
        provider_classes: Classes of providers (hyperscaler, specialised, marketplace, unlisted,
            any); all but marketplaces where empty.
        spot_age_s: Oldest spot price that is chosen.
        owned: Hardware of one's own, whatever devices, providers and regions are named.
    """

    devices: tuple[str, ...] = Field(default=("cpu", "gpu", "fpga", "asic"), min_length=1)
    providers: tuple[str, ...] = Field(default=("*",), min_length=1)
    regions: tuple[str, ...] = Field(default=("*",), min_length=1)
    kinds: tuple[PriceKind, ...] = Field(default=("on_demand",), min_length=1)
    counts: tuple[int, ...] = Field(default=(1, 2, 4, 8), min_length=1, max_length=50)
    discounts: Mapping[str, Annotated[float, Field(ge=0, lt=1)]] = Field(default_factory=dict)
    max_usd_per_hour: float | None = Field(default=None, gt=0, le=LARGEST_USD_PER_HOUR)
    provider_classes: tuple[str, ...] = Field(default=(), max_length=5)
    spot_age_s: float = Field(default=SPOT_AGE_DAYS * _DAY_S, ge=0, le=1e10)
    owned: tuple[Owned, ...] = Field(default=(), max_length=100)

    @field_validator("counts")
    @classmethod
    def _are_counts(cls, counts: tuple[int, ...]) -> tuple[int, ...]:
        if not all(1 <= count <= 100_000 for count in counts):
            raise ValueError("expected whole numbers from 1 to 100,000")
        return tuple(sorted(set(counts)))

    @property
    def rule(self) -> OfferRule:
        """What an offer must be to be chosen."""
        return OfferRule(self.provider_classes, self.spot_age_s / _DAY_S)

    @field_validator("provider_classes")
    @classmethod
    def _are_classes(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        try:
            OfferRule(names)
        except InvalidValueError as error:
            raise ValueError(str(error)) from None
        return names

    @field_validator(
        *("devices", "providers", "regions", "kinds", "counts", "owned", "provider_classes"),
        mode="before",
    )
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value

    @field_validator("kinds", mode="before")
    @classmethod
    def _spelled(cls, value: Any) -> Any:
        if not isinstance(value, (tuple, list)):
            return value
        return tuple(price_kind(kind) if isinstance(kind, str) else kind for kind in value)
