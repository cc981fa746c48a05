"""Class-wide parameters of the cost models, read from ``calibration/class/<class>.yaml``.

Each entry is ``name: {value, kind, source}``. A cost model's parameters are a frozen dataclass
whose fields are those names; fitted overlays replace fields of it (`dataclasses.replace`) and never
touch a datasheet value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from typing import TypeVar

from accelsim.errors import ProfileError
from accelsim.files.datafile import data_root, read_yaml
from accelsim.plain import Values
from accelsim.units import to_si

P = TypeVar("P")


@lru_cache(maxsize=16)
def class_parameters(device_class: str, parameters: type[P]) -> P:
    """The class-wide parameters of one device class.

    Args:
        device_class: "cpu", "gpu", "fpga" or "asic".
        parameters: Dataclass whose fields without a default must all be in the file.

    Raises:
        ProfileError: If the file is missing, or an entry is unknown, missing, not a number or
            without a source.
    """
    path = data_root() / "calibration" / "class" / f"{device_class}.yaml"
    entries = to_si(read_yaml(path)).get("parameters")
    names = {f.name for f in fields(parameters)}  # type: ignore[arg-type]
    if not isinstance(entries, Mapping):
        raise ProfileError(
            str(path), ["parameters: expected a mapping of name: {value, kind, source}"]
        )
    expected = f"expected one of {', '.join(sorted(names))}"
    problems = [f"parameters.{name}: unknown; {expected}" for name in entries if name not in names]
    problems += entry_problems(entries, ("source", "kind"))
    if problems:
        raise ProfileError(str(path), problems)
    try:
        return parameters(**{name: entry["value"] for name, entry in entries.items()})
    except TypeError as error:
        raise ProfileError(str(path), [f"parameters: {error}"]) from None


def entry_problems(entries: Values, notes: Sequence[str] = ("source",)) -> list[str]:
    """What is wrong with entries ``name: {value, kind, source}`` of a parameter file.

    Args:
        entries: By name.
        notes: What must stand beside each number.
    """
    problems = []
    for name, entry in entries.items():
        if not isinstance(entry, Mapping) or not isinstance(entry.get("value"), (int, float)):
            problems.append(f"parameters.{name}: expected {{value: number, kind, source}}")
        elif not all(entry.get(note) for note in notes):
            problems.append(f"parameters.{name}: a number needs a {' and a '.join(notes)}")
    return problems
