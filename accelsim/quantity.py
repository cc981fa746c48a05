"""Quantities as people read them: three significant digits with an SI prefix.

Prefixes are decimal (BIPM, The International System of Units, 9th edition, table 7); bytes too, as
in datasheets of links and memory bandwidth. An unknown quantity (None) reads "unknown", never 0.

The name of a figure says what it is and ends in its unit, so it says how a value is written, too
(`written`): tables, pages and sentences name figures and write none themselves.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

from accelsim.plain import Values

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
_KG_PER_TONNE = 1e3
_LONG_TIMES = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"))


def amount(value: float | None, unit: str, *, small: bool = True) -> str:
    """A quantity with an SI prefix (BIPM, The International System of Units, 9th edition, 2019,
    table 7): ``amount(0.0123, "J")`` is "12.3 mJ".

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


def _round(value: float) -> float:
    """Three significant digits."""
    return float(f"{value:.2e}")


def _digits(value: float) -> str:
    """Text of a number already rounded to three significant digits, zeros kept: 1.2 is "1.20"."""
    if value == 0:
        return "0"
    places = max(0, 2 - math.floor(math.log10(abs(value)) + 1e-12))
    return f"{value:,.{places}f}"


joules = partial(amount, unit="J")
watts = partial(amount, unit="W")
size = partial(amount, unit="B", small=False)
flop_rate = partial(amount, unit="FLOP/s", small=False)
Writer = Callable[[float | None], str]


def _shares(fraction: float | None) -> str:
    """A fraction as a percentage whose sign stands in the title of its column."""
    return UNKNOWN if fraction is None else f"{100 * fraction:.1f}"


def _digits_of_five(value: float | None) -> str:
    """A number to be compared with another, in full up to five digits."""
    return UNKNOWN if value is None else f"{value:.5g}"


def _signed(value: float | None) -> str:
    """A share that is more or less than another: "+12 %"."""
    return percent(value) if value is None or value <= 0 else f"+{percent(value)}"


def _mass(value_kg: float | None) -> str:
    """Grams or kilograms, tonnes from 1,000 kg on."""
    if value_kg is not None and _round(value_kg) >= _KG_PER_TONNE:
        return amount(value_kg / _KG_PER_TONNE, "t")
    return amount(None if value_kg is None else 1e3 * value_kg, "g")


def _unit(symbol: str, write: Writer) -> Writer:
    """What writes a number with a unit that takes no prefix."""
    return lambda value: UNKNOWN if value is None else f"{write(value)} {symbol}"


#: Ending of a name -> how its value is written; the first that fits.
_FORMS: Mapping[str, Writer] = {
    "_fraction": percent,
    "_probability": percent,
    "_level": percent,
    "_bytes_per_s": partial(amount, unit="B/s", small=False),
    "_flop_per_s": flop_rate,
    "_per_s": number,
    "_bytes": size,
    "_flop": partial(amount, unit="FLOP", small=False),
    "_usd": usd,
    "_j": joules,
    "_kwh": _unit("kWh", whole),
    "_kgco2e": _mass,
    "_mm2": _unit("mm2", decimal),
    "_w": watts,
    "_s": duration,
    "_hz": partial(amount, unit="Hz", small=False),
    "_nm": partial(amount, unit="nm", small=False),
    "_count": whole,
    # asked for in their own words
    "_number": number,
    "_decimal": decimal,
    "_digits": _digits_of_five,
    "_shares": _shares,
    "_signed": _signed,
}
_UNIT = re.compile(r"_(bytes|flop)_per_s$|(?<!_per)_(s|j|w|bytes|usd|kwh|fraction)$")
_UNIT_OF_RATE = re.compile(r"(?<=[a-z])_(usd|j|kwh)_per_")
#: Numbers that name something and have no thousands.
_NAMES = frozenset(("year", "seed"))
_FIGURE = re.compile(r"\{([^{}:?]+)(\??)(?::(\w+))?\}")
_OPTIONAL = re.compile(r"\[([^\[\]]*)\]")


def form_of(name: str) -> Writer | None:
    """What writes the values of a figure; None where its name has no unit.

    Args:
        name: Of the figure, after a dot of a part of it: a rate as ``cost_usd_per_1000`` is
            written as what it is a rate of.
    """
    for section in reversed(name.split(".")):
        stem = f"_{section}".removesuffix("_low").removesuffix("_high")
        while stem:
            for ending, write in _FORMS.items():
                if stem.endswith(ending):
                    return write
            stem = stem.rpartition("_per_")[0]
    return None


def written(name: str, value: object) -> str:
    """A value as the name of its figure says; texts as they are, None as unknown."""
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return _written_number(name, value)
    if isinstance(value, Mapping) and value:
        return _written_entries(name, value)
    if isinstance(value, list | tuple | Mapping):
        return ", ".join(written(name, item) for item in value) or "none"
    return str(value)


def _written_number(name: str, value: float) -> str:
    write = form_of(name) or (whole if isinstance(value, int) else decimal)
    return str(value) if name in _NAMES else write(value)


def _written_entries(name: str, values: Mapping[object, object]) -> str:
    """Figures with what each is of, in its own unit, or in that of all."""
    figures = {str(key): value for key, value in values.items() if value is not None}
    texts = (
        f"{words(key)} {written(key if form_of(key) else name, value)}"
        for key, value in figures.items()
    )
    return ", ".join(texts)


def words(name: str) -> str:
    """A name of a figure as people read it, without the unit that its values have."""
    field, dot, section = name.partition(".")
    field = _UNIT_OF_RATE.sub("_per_", field)
    return f"{_UNIT.sub('', field)}{dot and ', '}{section}".replace("_", " ")


def value_at(values: Values, path: str) -> object:
    """What stands under a name, or under names with dots between them.

    Raises:
        LookupError: If there is nothing of that name.
    """
    if path in values:
        return values[path]
    key, dot, below = path.partition(".")
    inner = values[key]
    if not dot or not isinstance(inner, Mapping):
        raise LookupError(path)
    return value_at(inner, below)


def say(text: str, values: Values) -> str:
    """A text with figures in its braces, each written as its name says.

    A part in brackets is left out where a figure of it is missing, unknown or empty, or a count of
    0. ``{name?}`` is empty where unknown, ``{name:usd}`` is written in that unit.

    Args:
        text: As "{latency_s} per batch[, {tokens_per_s} tokens/s]".
        values: The figures by name; of nested ones the names have dots between them.

    Raises:
        LookupError: If there is no figure of a name outside of brackets.
    """

    def optional(match: re.Match[str]) -> str:
        with suppress(LookupError):
            figures = (value_at(values, name) for name, _, _ in _FIGURE.findall(match[1]))
            return match[1] if all(isinstance(value, float) or value for value in figures) else ""
        return ""

    def figure(match: re.Match[str]) -> str:
        value = value_at(values, match[1])
        return "" if match[2] and value is None else written(match[3] or match[1], value)

    return _FIGURE.sub(figure, _OPTIONAL.sub(optional, text))
