"""What a result costs: price per hour × the hours a result takes.

Pure functions from a price and a rate to USD per 1,000 inferences, per million tokens and per
epoch, and the electricity of hardware one owns: a cloud price already includes it.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from accelsim.errors import InvalidValueError
from accelsim.workloads.graph import FloatArray

#: Hours of a Julian year, 365.25 days.
HOURS_PER_YEAR = 8766.0
HOURS_PER_MONTH = HOURS_PER_YEAR / 12
SECONDS_PER_HOUR = 3600.0
SECONDS_PER_MONTH = HOURS_PER_MONTH * SECONDS_PER_HOUR
JOULES_PER_KWH = 3.6e6
F = TypeVar("F", float, FloatArray)


def usd_per_1000_inferences(usd_per_hour: F, throughput_per_s: F) -> F:
    """Cost of 1,000 inferences.

    1000 · price / (3600 · throughput), the device busy all the time that is paid for; the
    inference cost of DAWNBench (Coleman et al., 2017) for another number of samples.

    Args:
        usd_per_hour: Price of what serves them, USD per hour, >= 0; scalar or array.
        throughput_per_s: Inferences per second, > 0; the same shape.

    Returns:
        USD per 1,000 inferences.

    Raises:
        InvalidValueError: If an argument is outside its range.
    """
    return 1e3 * _usd_per_item(usd_per_hour, throughput_per_s, "throughput_per_s")


def usd_per_million_tokens(usd_per_hour: F, tokens_per_s: F) -> F:
    """Cost of 10⁶ tokens.

    Args:
        usd_per_hour: Price of what serves them, USD per hour, >= 0.
        tokens_per_s: Tokens per second, > 0.

    Returns:
        USD per million tokens.

    Raises:
        InvalidValueError: If an argument is outside its range.
    """
    return 1e6 * _usd_per_item(usd_per_hour, tokens_per_s, "tokens_per_s")


def usd_per_epoch(usd_per_hour: F, samples_per_s: F, epoch_sample_count: float) -> F:
    """Cost of one pass over a training set.

    Price by time, as the training cost of DAWNBench (Coleman et al., 2017), for one epoch.

    Args:
        usd_per_hour: Price of what trains, USD per hour, >= 0.
        samples_per_s: Training throughput, samples per second, > 0.
        epoch_sample_count: Samples in the training set, > 0.

    Returns:
        USD per epoch.

    Raises:
        InvalidValueError: If an argument is outside its range.
    """
    require("sample_count", epoch_sample_count, is_above=True)
    return epoch_sample_count * _usd_per_item(usd_per_hour, samples_per_s, "samples_per_s")


def electricity_usd_per_hour(
    power_w: float, electricity_usd_per_kwh: float, pue_ratio: float = 1.0
) -> float:
    """Electricity of one hour at a constant power.

    Barroso et al., The Datacenter as a Computer, 3rd edition, 2018, chapter on modelling costs;
    power usage effectiveness: ISO/IEC 30134-2:2016.

    Args:
        power_w: Power of the equipment, watts, >= 0.
        electricity_usd_per_kwh: USD per kWh, >= 0.
        pue_ratio: Power usage effectiveness of the site, >= 1.

    Returns:
        USD per hour.

    Raises:
        InvalidValueError: If an argument is outside its range.
    """
    require("power_w", power_w)
    require("electricity_usd_per_kwh", electricity_usd_per_kwh)
    require("pue_ratio", pue_ratio, 1)
    return power_w / 1e3 * electricity_usd_per_kwh * pue_ratio


def _usd_per_item(usd_per_hour: F, rate_per_s: F, rate_name: str) -> F:
    require("usd_per_hour", usd_per_hour)
    require(rate_name, rate_per_s, is_above=True)
    return usd_per_hour / (SECONDS_PER_HOUR * rate_per_s)


def require(
    field: str, value: float | FloatArray, least: int = 0, *, is_above: bool = False
) -> None:
    """Refuse numbers that are not finite, or too small.

    Args:
        field: Their name.
        value: A number, or an array of them.
        least: The smallest that is allowed.
        is_above: Whether they must be above it.

    Raises:
        InvalidValueError: If one is out of range.
    """
    numbers = np.asarray(value)
    inside = np.isfinite(numbers) & ((numbers > least) if is_above else (numbers >= least))
    if not inside.all():
        raise InvalidValueError(
            field, value, f"a finite number {'>' if is_above else '>='} {least}"
        )
