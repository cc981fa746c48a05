"""Price files: the project's CSV and a user's own CSV, YAML or JSON, one offer per row.

A file has the columns of `COLUMNS`; host memory is in GiB, as providers state it. Nothing is
corrected here: a row that is wrong is an error that names its line and field. Feeds with their
defects go through `accelsim.economics.feeds` first.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from accelsim.economics.offer import Offer
from accelsim.errors import InvalidValueError, ProfileError
from accelsim.files.csvfile import csv_rows
from accelsim.files.datafile import first_problems, read_mapping
from accelsim.plain import Document, Values

#: Columns of a price file, in order.
COLUMNS = (
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
    "disk_gb",
    "minimum_billing_s",
    "device_reason",
)
_KNOWN_COLUMNS = frozenset(COLUMNS)
_PRICE_COLUMNS = frozenset(column for column in COLUMNS if column.endswith("_usd_per_hour"))
_NUMBER_COLUMNS = _PRICE_COLUMNS | {
    *("device_count", "vcpu_count", "vcpus_per_core", "host_memory_gib"),
    *("disk_gb", "minimum_billing_s"),
}
_MAX_BYTES = 5_000_000
_GIB = 1024.0**3
_LONGEST_TEXT = 500


def read_offers(path: Path) -> tuple[Offer, ...]:
    """Read a price file.

    Args:
        path: CSV with a header, or YAML or JSON with one key ``offers`` that lists mappings. Only a
            device (or an instance) and one price are needed: provider defaults to ``user``, region
            to ``any``, instance to the device, source to the file's name, and the count to one
            device where there are no vCPUs.

    Returns:
        The offers, in the file's order.

    Raises:
        ProfileError: If the file cannot be read, a row is wrong, or two rows have one id.
    """
    path = Path(path)
    is_table = path.suffix.lower() == ".csv"
    return offers_of(csv_rows(path) if is_table else _listed_rows(path), path)


def offers_of(rows: Iterable[tuple[str, Values]], path: Path) -> tuple[Offer, ...]:
    """Offers of some rows of a price file.

    Args:
        rows: Rows, each with the name of its place in the file.
        path: The file.

    Raises:
        ProfileError: If a row is wrong, or two rows have one id.
    """
    offers: list[Offer] = []
    problems: list[str] = []
    lines: dict[str, str] = {}
    for line, row in rows:
        try:
            offer = _offer(row, path.name)
        except InvalidValueError as error:
            problems.append(f"{line}: {error}")
            if error.field == "field" and path.suffix.lower() == ".csv":  # all rows have the column
                break
            continue
        if (first_line := lines.setdefault(offer.offer_id, line)) != line:
            problems.append(f"{line}: {offer.offer_id} is already on {first_line}")
        offers.append(offer)
    if problems:
        raise ProfileError(str(path), first_problems(problems))
    return tuple(offers)


def _listed_rows(path: Path) -> Iterator[tuple[str, Values]]:
    data = read_mapping(path, max_bytes=_MAX_BYTES)
    listed = data.get("offers")
    if set(data) != {"offers"} or not isinstance(listed, list):
        raise ProfileError(str(path), ["expected one key, offers, with a list of offers"])
    for index, row in enumerate(listed):
        if not isinstance(row, Mapping):
            raise ProfileError(str(path), [f"offers.{index}: expected 'key: value' entries"])
        yield f"offers.{index}", row


def _offer(row: Values, file_name: str) -> Offer:
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
    if fields.keys().isdisjoint(("device_count", "vcpu_count")):
        fields["device_count"] = 1.0
    elif "device" in fields and fields.keys().isdisjoint(("device_count", "vcpus_per_core")):
        allowed = "the accelerators of the instance; of a CPU, vcpus_per_core in its place"
        raise InvalidValueError("device_count", "", allowed, "A price without it cannot be used.")
    defaults: Document = {
        "provider": "user",
        "region": "any",
        "instance": fields.get("device"),
        "source": file_name,
    }
    return Offer(**(defaults | fields))


def _fields(row: Values) -> Document:
    """Checked values of the fields that are not empty."""
    fields: Document = {}
    for name, value in row.items():
        if name not in _KNOWN_COLUMNS:
            near = difflib.get_close_matches(str(name), COLUMNS, n=2)
            all_fields = f"Fields: {', '.join(COLUMNS)}."
            remedy = f"Did you mean {' or '.join(near)}?" if near else all_fields
            raise InvalidValueError("field", name, "a field of an offer", remedy)
        if value != "" and value is not None:
            convert = _as_number if name in _NUMBER_COLUMNS else _as_text
            fields[name] = convert(name, value)
    return fields


def _as_text(name: str, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise InvalidValueError(name, value, "text")
    text = str(value)
    if len(text) > _LONGEST_TEXT or not text.isprintable():
        raise InvalidValueError(
            name, text, f"one line of at most {_LONGEST_TEXT} printable characters"
        )
    return text


def _as_number(name: str, value: object) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = math.nan
    if not 0 < number < math.inf or value is True or (type(value) is str and "_" in value):
        raise InvalidValueError(name, value, "a finite number > 0", "Leave an unknown one empty.")
    return number
