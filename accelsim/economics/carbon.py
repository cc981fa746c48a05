"""Carbon of electricity by region: grid intensity, and the overhead of the site.

Intensities are of the place (grid average) or of the market (what the provider buys), as the
GHG Protocol's Scope 2 Guidance (2015) tells them apart. Each row of ``carbon.csv`` and ``pue.csv``
beside the prices names its source; a region without a row is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Literal

from accelsim.economics.result import HOURS_PER_YEAR, JOULES_PER_KWH, SECONDS_PER_HOUR, require
from accelsim.errors import InvalidValueError
from accelsim.files.csvfile import csv_rows
from accelsim.files.prices import prices_folder

CarbonBasis = Literal["location", "market"]
_GRAM_PER_KG = 1e3
_SECONDS_PER_YEAR = HOURS_PER_YEAR * SECONDS_PER_HOUR
#: Making a server: least and most of 48 Dell and HPE servers (Boavizta, environmental-footprint
#: data 61323eb).
_HOST_KGCO2E = (465.0, 2503.0)
#: Making an accelerator: EcoDiag's 60 kg less its 60 %; and Google's a2 host of 8 A100 (5,464 kg,
#: Cloud Carbon Footprint b7a049c7) less the median server (1,208 kg), an eighth of it.
_ACCELERATOR_KGCO2E = (24.0, 532.0)


def carbon_kgco2e(energy_j: float, kgco2e_per_kwh: float, pue_ratio: float = 1.0) -> float:
    """Operational carbon of an energy: energy × PUE × intensity.

    Lannelongue et al., Green Algorithms, Advanced Science 8, 2021, equation 1.

    Args:
        energy_j: Energy of the equipment, joules, >= 0.
        kgco2e_per_kwh: Intensity of the grid, kg CO2e per kWh, >= 0.
        pue_ratio: Power usage effectiveness of the site, >= 1.

    Raises:
        InvalidValueError: If an argument is outside its range.
    """
    require("energy_j", energy_j)
    require("kgco2e_per_kwh", kgco2e_per_kwh)
    require("pue_ratio", pue_ratio, 1)
    return energy_j / JOULES_PER_KWH * pue_ratio * kgco2e_per_kwh


def embodied_kgco2e(
    host_count: float, accelerator_count: float, used_s: float, life_years: float = 4.0
) -> tuple[float, float]:
    """Share of a time in the carbon of making hardware, least and most.

    Time over service life × what making it took (Gupta et al., ACT, ISCA 2022, equation 1).

    Args:
        host_count: Servers, >= 0.
        accelerator_count: Accelerators in them, >= 0.
        used_s: Time they are held, seconds, >= 0.
        life_years: Service life, > 0; 4 is that of the servers' own figures.

    Raises:
        InvalidValueError: If an argument is outside its range.
    """
    require("host_count", host_count)
    require("accelerator_count", accelerator_count)
    require("used_s", used_s)
    require("life_years", life_years, is_above=True)
    share = used_s / (life_years * _SECONDS_PER_YEAR)
    low, high = (
        share * (host_count * host + accelerator_count * accelerator)
        for host, accelerator in zip(_HOST_KGCO2E, _ACCELERATOR_KGCO2E, strict=True)
    )
    return low, high


def grid_kgco2e_per_kwh(
    provider: str, region: str, basis: CarbonBasis = "location"
) -> float | None:
    """Intensity of a provider's region, kg CO2e per kWh; None where unknown.

    Args:
        provider: As offers spell it.
        region: As offers spell it.
        basis: Of the place, or of what the provider buys.

    Raises:
        InvalidValueError: If there is no such basis.
    """
    if basis not in {"location", "market"}:
        raise InvalidValueError("carbon_basis", basis, "location or market")
    return _intensities().get((provider, region, basis))


def pue_ratio(provider: str, region: str) -> float:
    """Power usage effectiveness of a region; else the provider's; else the industry's of 2024."""
    ratios = _effectiveness()
    return ratios.get((provider, region)) or ratios.get((provider, "")) or ratios["", ""]


def site_kgco2e_per_kwh(provider: str, region: str) -> float | None:
    """Carbon of what hardware uses in a region, its site's overhead included; None where unknown.

    Args:
        provider: As offers spell it.
        region: As offers spell it.
    """
    grid = grid_kgco2e_per_kwh(provider, region)
    return None if grid is None else grid * pue_ratio(provider, region)


@cache
def _intensities() -> Mapping[tuple[str, str, str], float]:
    rows = csv_rows(prices_folder() / "carbon.csv")
    return {
        (row["provider"], row["region"], row["basis"]): float(row["gco2e_per_kwh"]) / _GRAM_PER_KG
        for _, row in rows
    }


@cache
def _effectiveness() -> Mapping[tuple[str, str], float]:
    rows = csv_rows(prices_folder() / "pue.csv")
    return {(row["provider"], row["region"]): float(row["pue_ratio"]) for _, row in rows}
