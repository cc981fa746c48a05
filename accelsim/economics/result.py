"""What a result costs: price per hour × the hours a result takes.

Pure functions from a price and a rate to USD per 1,000 inferences, per million tokens, per epoch
and per training run, and the electricity behind them. A cloud price already includes electricity;
it is reported beside the price and is part of the bill only of hardware one owns
(`accelsim.economics.ownership`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from accelsim.errors import InvalidValueError

__all__ = [
    "CostReport",
    "cost_report",
    "electricity_usd",
    "usd_per_1000_inferences",
    "usd_per_epoch",
    "usd_per_million_tokens",
    "usd_per_training_run",
]

SECONDS_PER_HOUR: Final = 3600.0
JOULES_PER_KWH: Final = 3.6e6
F = TypeVar("F", float, NDArray[np.float64])


def usd_per_1000_inferences(usd_per_hour: F, throughput_per_s: F) -> F:
    """Cost of 1,000 inferences.

    1000 · price / (3600 · throughput), the device busy all the time that is paid for.

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

    Args:
        usd_per_hour: Price of what trains, USD per hour, >= 0.
        samples_per_s: Training throughput, samples per second, > 0.
        epoch_sample_count: Samples in the training set, > 0.

    Returns:
        USD per epoch.

    Raises:
        InvalidValueError: If an argument is outside its range.
    """
    _require("sample_count", epoch_sample_count, zero_allowed=False)
    return epoch_sample_count * _usd_per_item(usd_per_hour, samples_per_s, "samples_per_s")


def usd_per_training_run(usd_per_hour: F, step_time_s: F, step_count: float) -> F:
    """Cost of a training run of a number of steps.

    Args:
        usd_per_hour: Price of what trains, USD per hour, >= 0.
        step_time_s: Seconds per step, >= 0.
        step_count: Steps, > 0.

    Returns:
        USD per run.

    Raises:
        InvalidValueError: If an argument is outside its range.
    """
    _require("usd_per_hour", usd_per_hour, zero_allowed=True)
    _require("step_time_s", step_time_s, zero_allowed=True)
    _require("step_count", step_count, zero_allowed=False)
    return usd_per_hour * step_time_s * (step_count / SECONDS_PER_HOUR)


def electricity_usd(energy_j: F, usd_per_kwh: float, pue_ratio: float = 1.0) -> F:
    """Cost of the electricity behind a result.

    Args:
        energy_j: Energy of the equipment, joules, >= 0.
        usd_per_kwh: Price of electricity, USD per kWh, >= 0.
        pue_ratio: Power usage effectiveness of the site: its whole energy over its equipment's, >=
            1.

    Returns:
        USD.

    Raises:
        InvalidValueError: If an argument is outside its range.
    """
    _require("energy_j", energy_j, zero_allowed=True)
    _require("usd_per_kwh", usd_per_kwh, zero_allowed=True)
    if not (pue_ratio >= 1 and np.isfinite(pue_ratio)):
        raise InvalidValueError("pue_ratio", pue_ratio, "a finite number >= 1")
    return energy_j * (usd_per_kwh * pue_ratio / JOULES_PER_KWH)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostReport:
    """Costs of one result; None is unknown or not asked for.

    Attributes:
        offer: Id of the quote the price comes from, or ``user`` for a price the user gave.
        usd_per_hour: Price of the devices used, USD per hour.
        usd_per_1000: USD per 1,000 items (inferences, or training samples).
        usd_per_million_tokens: USD per million tokens.
        usd_per_epoch: USD per pass over the training set.
        usd_per_training_run: USD per training run.
        electricity_usd_per_1000: Electricity of 1,000 items, USD; included in a cloud price, not
            added to it.
    """

    offer: str | None = None
    usd_per_hour: float | None = None
    usd_per_1000: float | None = None
    usd_per_million_tokens: float | None = None
    usd_per_epoch: float | None = None
    usd_per_training_run: float | None = None
    electricity_usd_per_1000: float | None = None


def cost_report(
    usd_per_hour: float | None,
    throughput_per_s: float,
    *,
    offer: str | None = None,
    tokens_per_s: float | None = None,
    epoch_sample_count: float | None = None,
    run_sample_count: float | None = None,
    energy_per_item_j: float | None = None,
    electricity_usd_per_kwh: float | None = None,
    pue_ratio: float = 1.0,
) -> CostReport:
    """Every cost of a result that its inputs allow.

    Barroso et al., The Datacenter as a Computer, 3rd edition, 2018, chapter on modelling costs.

    Args:
        usd_per_hour: Price of the devices used, USD per hour; None if unknown, then so are the
            costs.
        throughput_per_s: Items (inferences, training samples) per second, > 0.
        offer: Id of the quote the price comes from.
        tokens_per_s: Tokens per second, > 0, where the workload has tokens.
        epoch_sample_count: Samples in the training set, > 0.
        run_sample_count: Samples of the whole training run (steps × global batch), > 0.
        energy_per_item_j: Energy per item, joules, >= 0.
        electricity_usd_per_kwh: Price of electricity, USD per kWh, >= 0.
        pue_ratio: Power usage effectiveness of the site, >= 1.

    Returns:
        The report.

    Raises:
        InvalidValueError: If an argument is outside its range.
    """
    electricity = (
        None
        if energy_per_item_j is None or electricity_usd_per_kwh is None
        else electricity_usd(1e3 * energy_per_item_j, electricity_usd_per_kwh, pue_ratio)
    )
    if usd_per_hour is None:
        _require("throughput_per_s", throughput_per_s, zero_allowed=False)
        return CostReport(electricity_usd_per_1000=electricity)
    rate, price = throughput_per_s, usd_per_hour
    return CostReport(
        offer=offer,
        usd_per_hour=price,
        usd_per_1000=usd_per_1000_inferences(price, rate),
        usd_per_million_tokens=None
        if tokens_per_s is None
        else usd_per_million_tokens(price, tokens_per_s),
        usd_per_epoch=None
        if epoch_sample_count is None
        else usd_per_epoch(price, rate, epoch_sample_count),
        usd_per_training_run=(
            None
            if run_sample_count is None
            else usd_per_training_run(price, 1 / rate, run_sample_count)
        ),
        electricity_usd_per_1000=electricity,
    )


def _usd_per_item(usd_per_hour: F, rate_per_s: F, rate_name: str) -> F:
    _require("usd_per_hour", usd_per_hour, zero_allowed=True)
    _require(rate_name, rate_per_s, zero_allowed=False)
    return usd_per_hour / (SECONDS_PER_HOUR * rate_per_s)


def _require(field: str, value: float | NDArray[np.float64], *, zero_allowed: bool) -> None:
    array = np.asarray(value)
    inside = np.isfinite(array) & ((array >= 0) if zero_allowed else (array > 0))
    if not inside.all():
        raise InvalidValueError(field, value, f"a finite number {'>=' if zero_allowed else '>'} 0")
