"""Ages of prices, by the first day that their date may stand for."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import UTC, date, datetime

from accelsim.economics.offer import first_day

#: Age from which a price is called stale: clouds change list prices of accelerators about once a
#: year (an estimate).
STALE_DAYS = 365
#: Prices this far apart are not of one time.
_MIXED_DAYS = 180
_DAYS_PER_YEAR = 365.25
#: Moment that outputs are dated by, seconds since 1970 (reproducible-builds.org); now where unset.
_NOW_VARIABLE = "SOURCE_DATE_EPOCH"


def today() -> date:
    """The day that ages count to: that of ``SOURCE_DATE_EPOCH`` where it is set."""
    stamp = os.environ.get(_NOW_VARIABLE, "")
    now = datetime.fromtimestamp(int(stamp), UTC) if stamp.isdigit() else datetime.now(UTC)
    return now.date()


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


def dated_words(as_of: str) -> str:
    """A date and its age: ", as of 2024, up to 2.9 years old"; empty where there is no date.

    Args:
        as_of: ISO 8601 date, month, year or interval.
    """
    day = first_day(as_of)
    if day is None:
        return f", as of {as_of}" if as_of else ""
    years = (today() - day).days / _DAYS_PER_YEAR
    most = "" if as_of == day.isoformat() else "up to "
    return f", as of {as_of}, {most}{max(years, 0.0):.1f} years old"
