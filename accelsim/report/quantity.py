"""Quantities as people read them: three significant digits with an SI prefix.

Prefixes are decimal (BIPM, The International System of Units, 9th edition, table 7); bytes too, as
in datasheets of links and memory bandwidth. An unknown quantity (None) reads "unknown", never 0.
"""

from __future__ import annotations

import math
import os
from datetime import UTC, date, datetime

UNKNOWN = "unknown"
_PREFIXES = (
    (1e18, "E"),
    (1e15, "P"),
    (1e12, "T"),
    (1e9, "G"),
    (1e6, "M"),
    (1e3, "k"),
    (1.0, ""),
)
_SMALL = ((1e-3, "m"), (1e-6, "µ"), (1e-9, "n"), (1e-12, "p"))
_DAYS_PER_YEAR = 365.25
#: Moment that outputs are dated by, seconds since 1970 (reproducible-builds.org); now where unset.
_NOW_VARIABLE = "SOURCE_DATE_EPOCH"
_LONG_TIMES = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"))


def amount(value: float | None, unit: str, *, small: bool = True) -> str:
    """A quantity with an SI prefix: ``amount(0.0123, "J")`` is "12.3 mJ".

    Args:
        value: In the unit without prefix; None is unknown.
        unit: Symbol put after the prefix; may be empty.
        small: Whether prefixes below one apply (not for bytes and counts).
    """
    if value is None or not math.isfinite(value):
        return UNKNOWN
    rounded = _round(value)
    scales = _PREFIXES + (_SMALL if small else ())
    if rounded == 0:
        return f"0 {unit}".rstrip()
    scale, prefix = next(((s, p) for s, p in scales if abs(rounded) >= s * (1 - 1e-12)), scales[-1])
    return f"{_digits(rounded / scale)} {prefix}{unit}".rstrip()


def duration(value_s: float | None) -> str:
    """A time: ns to s, and minutes, hours or days from 1,000 s."""
    if value_s is not None and math.isfinite(value_s) and abs(_round(value_s)) >= 1_000:
        scale, unit = next(
            ((s, u) for s, u in _LONG_TIMES if abs(value_s) >= 2 * s), _LONG_TIMES[-1]
        )
        return f"{decimal(value_s / scale)} {unit}"
    return amount(value_s, "s")


def number(value: float | None) -> str:
    """A plain number with a prefix: "25.6 M"."""
    return amount(value, "", small=False)


def decimal(value: float | None) -> str:
    """Three significant digits, no prefix; thousands separated."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    return _digits(_round(value))


def whole(value: float | None) -> str:
    """A count in full, thousands separated."""
    return UNKNOWN if value is None or not math.isfinite(value) else f"{value:,.0f}"


def percent(fraction: float | None) -> str:
    """A fraction as a percentage with three digits at most."""
    if fraction is None or not math.isfinite(fraction):
        return UNKNOWN
    return f"{100 * fraction:.3g} %"


def usd(value_usd: float | None) -> str:
    """US dollars to three significant digits; scientific below a thousandth of a cent."""
    if value_usd is None or not math.isfinite(value_usd):
        return UNKNOWN
    if value_usd == 0:
        return "$0"
    return f"${value_usd:.3g}" if abs(value_usd) < 1e-5 else f"${decimal(value_usd)}"


def dated_words(as_of: str, first_day: date | None) -> str:
    """A date and its age: ", as of 2024, up to 2.9 years old"; empty where there is no date.

    Args:
        as_of: ISO 8601 date, month, year or interval.
        first_day: First day of it; None where unknown.
    """
    if not as_of or first_day is None:
        return f", as of {as_of}" if as_of else ""
    stamp = os.environ.get(_NOW_VARIABLE, "")
    now = datetime.fromtimestamp(int(stamp), UTC) if stamp.isdigit() else datetime.now(UTC)
    years = (now.date() - first_day).days / _DAYS_PER_YEAR
    most = "" if as_of == first_day.isoformat() else "up to "
    return f", as of {as_of}, {most}{max(years, 0.0):.1f} years old"


def _round(value: float) -> float:
    """Three significant digits."""
    return float(f"{value:.2e}")


def _digits(value: float) -> str:
    """Text of a number already rounded to three significant digits, zeros kept: 1.2 is "1.20"."""
    if value == 0:
        return "0"
    places = max(0, 2 - math.floor(math.log10(abs(value)) + 1e-12))
    return f"{value:,.{places}f}"
