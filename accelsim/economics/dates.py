"""Dates of prices: ISO 8601 dates, months, years, and intervals of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date
from typing import Final

__all__ = ["STALE_DAYS", "age_days", "is_mixed", "price_date"]

#: Age from which a price is called stale: clouds change list prices of accelerators about once a
#: year (an estimate).
STALE_DAYS: Final = 365
#: Prices this far apart are not of one time.
_MIXED_DAYS: Final = 180
_DATE: Final = re.compile(r"(\d{4})(?:-(\d{2})(?:-(\d{2}))?)?")


def price_date(as_of: str) -> date | None:
    """First day that a price's date may mean; None where it has none.

    Args:
        as_of: A date, month, year, or two of them with "/" between.
    """
    found = _DATE.match(as_of)
    if found is None:
        return None
    year, month, day = (int(part or 1) for part in found.groups())
    try:
        return date(year, month, day)
    except ValueError:
        return None


def age_days(as_of: str, today: date) -> int | None:
    """Days since a price was read; None where its date is unknown.

    Args:
        as_of: Date of the price.
        today: The day it is asked.
    """
    day = price_date(as_of)
    return None if day is None else (today - day).days


def is_mixed(dates: Iterable[str]) -> bool:
    """Whether prices are half a year and more apart.

    Args:
        dates: Of the prices; unknown ones are left out.
    """
    days = [day for text in dates if (day := price_date(text)) is not None]
    return bool(days) and (max(days) - min(days)).days > _MIXED_DAYS
