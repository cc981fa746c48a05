"""Prices of tokens and of boards: what a hosted API asks, and what a board costs in the street.

Both are data with a source and a date (``hosted.yaml``, ``street.csv``).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from accelsim.errors import InvalidValueError, ProfileError
from accelsim.files.csvfile import csv_rows
from accelsim.files.datafile import read_mapping
from accelsim.files.prices import prices_folder
from accelsim.frozen import frozen

_MILLION = 1e6
_NUMBERS = ("input_usd_per_million", "output_usd_per_million", "cached_usd_per_million")


@frozen(kw_only=True)
class HostedPrice:
    """What a provider asks for tokens of one model.

    Attributes:
        model: The model, as the catalogue names it or as an alias of it.
        provider: Who serves it.
        served_as: The provider's name of it.
        input_usd_per_million: USD per million tokens of input.
        output_usd_per_million: USD per million tokens of output.
        cached_usd_per_million: The same of input that is found in a cache; None where it is not
            priced apart.
        as_of: ISO 8601 date or month.
        source: Page with the price.

    Raises:
        InvalidValueError: If a price is below 0.
    """

    model: str
    provider: str
    served_as: str
    input_usd_per_million: float
    output_usd_per_million: float
    cached_usd_per_million: float | None = None
    as_of: str
    source: str

    def __post_init__(self) -> None:
        for name in _NUMBERS:
            price = getattr(self, name)
            if price is not None and not 0 <= price < _MILLION:
                raise InvalidValueError(name, price, "USD per million tokens, from 0 to a million")

    def cost_usd(self, input_tokens: float, output_tokens: float, cached: float = 0.0) -> float:
        """What tokens cost. Estimate: providers bill input, cached input and output by count.

        Args:
            input_tokens: Tokens of input, those found in a cache among them.
            output_tokens: Tokens of output.
            cached: Share of the input that is found in a cache, in [0, 1].

        Raises:
            InvalidValueError: If the share is outside its range.
        """
        if not 0 <= cached <= 1:
            raise InvalidValueError("cached_fraction", cached, "a number from 0 to 1")
        hit = self.cached_usd_per_million
        hit = self.input_usd_per_million if hit is None else hit
        input_usd = input_tokens * ((1 - cached) * self.input_usd_per_million + cached * hit)
        return (input_usd + output_tokens * self.output_usd_per_million) / _MILLION


class StreetPrice(NamedTuple):
    """What one board costs.

    Attributes:
        usd: USD.
        as_of: ISO 8601 date, month or year.
        source: Where it was read.
    """

    usd: float
    as_of: str
    source: str


def hosted_prices(models: Iterable[str]) -> tuple[HostedPrice, ...]:
    """Prices of a model under the first of some names that has any, sorted by provider.

    Args:
        models: Names of one model, the most specific first.
    """
    for name in models:
        prices = [price for price in _hosted() if price.model == name.lower()]
        if prices:
            return tuple(sorted(prices, key=lambda price: price.provider))
    return ()


@cache
def _hosted() -> tuple[HostedPrice, ...]:
    path = prices_folder() / "hosted.yaml"
    data = read_mapping(path)
    try:
        dated = {"as_of": str(data["as_of"])}
        return tuple(HostedPrice(**(dated | row)) for row in data["prices"])
    except (KeyError, TypeError, InvalidValueError) as error:
        raise ProfileError(str(path), [str(error)]) from None


def street_price(device: str) -> StreetPrice | None:
    """What a board costs; None where no price is known.

    Args:
        device: Catalogue name.
    """
    return _street().get(device)


@cache
def _street() -> dict[str, StreetPrice]:
    rows = csv_rows(prices_folder() / "street.csv")
    return {
        row["device"]: StreetPrice(float(row["usd"]), row["as_of"], row["source"])
        for _, row in rows
    }
