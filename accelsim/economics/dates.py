"""Ages of prices, by the first day that their date may stand for."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

from accelsim.economics.offer import first_day

#: Age from which a price is called stale: clouds change list prices of accelerators about once a
#: year (an estimate).
STALE_DAYS = 365
#: Prices this far apart are not of one time.
_MIXED_DAYS = 180


def age_days(as_of: str, today: date) -> int | None:
    """Days since a price was read; None where its date is unknown.

    Args:
        as_of: Date of the price.
        today: The day it is asked.
    """
    day = first_day(as_of)
    return None if day is None else (today - day).days


def is_mixed(dates: Iterable[str]) -> bool:
    """Whether prices are half a year and more apart.

    Args:
        dates: Of the prices; unknown ones are left out.
    """
    days = [day for text in dates if (day := first_day(text)) is not None]
    return bool(days) and (max(days) - min(days)).days > _MIXED_DAYS
