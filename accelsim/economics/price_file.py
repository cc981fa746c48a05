"""Price files: the project's CSV and a user's own CSV, YAML or JSON, one offer per row.

A file has the columns of `COLUMNS`; host memory is in GiB, as providers state it. Nothing is
corrected here: a row that is wrong is an error that names its line and field. Feeds with their
defects go through `accelsim.economics.ingest` first.
"""

from __future__ import annotations

import csv
import difflib
import io
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from accelsim.datafile import read_mapping, read_text
from accelsim.economics.feed import Finding
from accelsim.economics.ingest import DeviceRule
from accelsim.economics.offer import Offer
from accelsim.errors import InvalidValueError, ProfileError

__all__ = ["COLUMNS", "findings_csv", "offers_csv", "read_offers", "read_regions", "read_rules"]

#: Columns of a price file, in order.
COLUMNS: Final = (
    "provider",
    "region",
    "instance",
    "device",
    "accelerator",
    "device_count",
    "vcpu_count",
    "vcpus_per_core",
    "host_memory_gib",
    "on_demand_usd_per_hour",
    "spot_usd_per_hour",
    "committed_1y_usd_per_hour",
    "committed_3y_usd_per_hour",
    "source",
    "as_of",
    "spot_as_of",
    "note",
)
_TEXT_COLUMNS: Final = frozenset(
    (
        "provider",
        "region",
        "instance",
        "device",
        "accelerator",
        "source",
        "as_of",
        "spot_as_of",
        "note",
    )
)
_KNOWN_COLUMNS: Final = frozenset(COLUMNS)
_NUMBER_COLUMNS: Final = _KNOWN_COLUMNS - _TEXT_COLUMNS
_PRICE_COLUMNS: Final = frozenset(column for column in COLUMNS if column.endswith("_usd_per_hour"))
_FINDING_COLUMNS: Final = (
    "action",
    "provider",
    "region",
    "instance",
    "field",
    "value",
    "reason",
    "source",
    "as_of",
)
_MAX_BYTES: Final = 5_000_000
_GIB: Final = 1024.0**3
_SHOWN_PROBLEMS: Final = 20
_LONGEST_TEXT: Final = 500


def read_offers(path: Path) -> tuple[Offer, ...]:
    """Read a price file.

    Args:
        path: CSV with a header, or YAML or JSON with one key ``offers`` that lists mappings. Only a
            device (or an instance) and one price are needed: provider defaults to ``user``, region
            to ``any``, instance to the device, source to the file's name, and the count to one
            device.

    Returns:
        The offers, in the file's order.

    Raises:
        ProfileError: If the file cannot be read, a row is wrong, or two rows have one id.
    """
    path = Path(path)
    is_table = path.suffix.lower() == ".csv"
    rows = _csv_rows(path) if is_table else _listed_rows(path)
    offers: list[Offer] = []
    problems: list[str] = []
    places: dict[str, str] = {}
    for place, row in rows:
        try:
            offer = _offer(row, path.name)
        except InvalidValueError as error:
            problems.append(f"{place}: {error}")
            if is_table and error.field == "field":  # a column that every row has
                break
            continue
        first = places.setdefault(offer.offer_id, place)
        if first != place:
            problems.append(f"{place}: {offer.offer_id} is already on {first}")
        offers.append(offer)
    if problems:
        more = len(problems) - _SHOWN_PROBLEMS
        raise ProfileError(
            str(path), problems[:_SHOWN_PROBLEMS] + ([f"and {more} more"] if more > 0 else [])
        )
    return tuple(offers)


def read_rules(path: Path) -> tuple[DeviceRule, ...]:
    """Read device rules, a CSV with the fields of `DeviceRule`.

    Raises:
        ProfileError: If the file cannot be read or a row is wrong.
    """
    rules: list[DeviceRule] = []
    for place, row in _csv_rows(Path(path)):
        per_core = row.get("vcpus_per_core", "")
        if not row.get("provider") or not row.get("instance") or per_core not in ("", "1", "2"):
            problem = (
                "a rule has provider, instance, accelerator, device and vcpus_per_core of "
                "1, 2 or empty"
            )
            raise ProfileError(str(path), [f"{place}: {problem}"])
        rule = DeviceRule(
            row["provider"],
            row["instance"],
            row.get("accelerator", ""),
            row.get("device") or None,
            int(per_core) if per_core else None,
            row.get("rename") or None,
            row.get("note", ""),
        )
        rules.append(rule)
    return tuple(rules)


def read_regions(path: Path) -> dict[str, tuple[str, ...]]:
    """Read region codes per provider, a CSV with columns provider and region.

    Raises:
        ProfileError: If the file cannot be read.
    """
    regions: dict[str, tuple[str, ...]] = {}
    for _, row in _csv_rows(Path(path)):
        provider = row.get("provider", "")
        regions[provider] = (*regions.get(provider, ()), row.get("region", ""))
    return regions


def offers_csv(offers: Iterable[Offer]) -> str:
    """Text of the price file with these offers; `read_offers` gives them back.

    Args:
        offers: The offers.

    Returns:
        CSV with a header line.
    """
    return _csv_text(COLUMNS, ([_cell(offer, column) for column in COLUMNS] for offer in offers))


def findings_csv(findings: Iterable[Finding]) -> str:
    """Text of a file with refusals and corrections, one per line.

    Args:
        findings: What `accelsim.economics.ingest.ingest` returned.

    Returns:
        CSV with a header line.
    """
    return _csv_text(
        _FINDING_COLUMNS, ([getattr(f, name) for name in _FINDING_COLUMNS] for f in findings)
    )


def _csv_text(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return stream.getvalue()


def _cell(offer: Offer, column: str) -> str:
    if column == "host_memory_gib":
        value: object = None if offer.memory_bytes is None else offer.memory_bytes / _GIB
    else:
        value = getattr(offer, column)
    if value is None:
        return ""
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


def _csv_rows(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    reader = csv.reader(io.StringIO(read_text(path, _MAX_BYTES), newline=""), strict=True)
    try:
        header = next(reader, [])
        if not header or len(set(header)) < len(header) or not all(header):
            raise ProfileError(
                str(path), ["line 1: the header needs distinct, non-empty column names"]
            )
        for row in reader:
            if not row:
                continue
            if len(row) != len(header):
                problem = (
                    f"line {reader.line_num}: {len(row)} fields under a header of {len(header)}"
                )
                raise ProfileError(str(path), [problem])
            yield f"line {reader.line_num}", dict(zip(header, row, strict=True))
    except csv.Error as error:
        raise ProfileError(str(path), [f"line {reader.line_num}: not valid CSV: {error}"]) from None


def _listed_rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    data = read_mapping(path, max_bytes=_MAX_BYTES)
    listed = data.get("offers")
    if set(data) != {"offers"} or not isinstance(listed, list):
        raise ProfileError(str(path), ["expected one key, offers, with a list of offers"])
    for index, row in enumerate(listed):
        if not isinstance(row, Mapping):
            raise ProfileError(str(path), [f"offers.{index}: expected 'key: value' entries"])
        yield f"offers.{index}", row


def _offer(row: Mapping[str, Any], file_name: str) -> Offer:
    fields = _fields(row)
    if "device" not in fields and "instance" not in fields:
        raise InvalidValueError(
            "device", "", "the catalogue name of a device", "Name a device or an instance."
        )
    if fields.keys().isdisjoint(_PRICE_COLUMNS):
        raise InvalidValueError(
            "on_demand_usd_per_hour", "", "at least one price", "Give a price in USD per hour."
        )
    per_core = fields.get("vcpus_per_core")
    if per_core is not None:
        if per_core not in (1, 2):
            raise InvalidValueError("vcpus_per_core", per_core, "1 or 2")
        fields["vcpus_per_core"] = int(per_core)
    if "host_memory_gib" in fields:
        fields["memory_bytes"] = fields.pop("host_memory_gib") * _GIB
    if fields.keys().isdisjoint(("provider", "device_count", "vcpu_count")):
        fields["device_count"] = 1.0
    defaults: dict[str, Any] = {
        "provider": "user",
        "region": "any",
        "instance": fields.get("device"),
        "source": file_name,
    }
    return Offer(**(defaults | fields))


def _fields(row: Mapping[str, Any]) -> dict[str, Any]:
    """Checked values of the fields that are not empty."""
    fields: dict[str, Any] = {}
    for name, value in row.items():
        if value == "" or value is None:
            if name not in _KNOWN_COLUMNS:
                _refuse_field(name)
        elif name in _NUMBER_COLUMNS:
            fields[name] = _as_number(name, value)
        elif name in _KNOWN_COLUMNS:
            plain = type(value) is str and value.isprintable() and len(value) <= _LONGEST_TEXT
            fields[name] = value if plain else _as_text(name, value)
        else:
            _refuse_field(name)
    return fields


def _refuse_field(name: str) -> None:
    near = difflib.get_close_matches(str(name), COLUMNS, n=2)
    remedy = f"Did you mean {' or '.join(near)}?" if near else f"Fields: {', '.join(COLUMNS)}."
    raise InvalidValueError("field", name, "a field of an offer", remedy)


def _as_text(name: str, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise InvalidValueError(name, value, "text")
    text = str(value)
    if len(text) > _LONGEST_TEXT or not text.isprintable():
        raise InvalidValueError(
            name, text, f"one line of at most {_LONGEST_TEXT} printable characters"
        )
    return text


def _as_number(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 < number < math.inf or value is True or (type(value) is str and "_" in value):
        raise InvalidValueError(name, value, "a finite number > 0", "Leave an unknown one empty.")
    return number
