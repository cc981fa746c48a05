"""Class-wide parameters of the cost models, read from ``calibration/class/<class>.yaml``.

Each entry is ``name: {value, kind, source}``. A cost model's parameters are a frozen dataclass
whose fields are those names; fitted overlays replace fields of it (`dataclasses.replace`) and never
touch a datasheet value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from accelsim.datafile import data_root, read_yaml, validation_problems
from accelsim.errors import ProfileError
from accelsim.units import to_si

if TYPE_CHECKING:
    from pydantic import BaseModel

__all__ = ["class_file", "class_parameters"]

P = TypeVar("P")
M = TypeVar("M", bound="BaseModel")


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
    problems = [
        problem for name, entry in entries.items() for problem in _problems(name, entry, names)
    ]
    if problems:
        raise ProfileError(str(path), problems)
    try:
        return parameters(**{name: entry["value"] for name, entry in entries.items()})
    except TypeError as error:
        raise ProfileError(str(path), [f"parameters: {error}"]) from None


def _problems(name: str, entry: Any, names: set[str]) -> list[str]:
    if name not in names:
        return [f"parameters.{name}: unknown; expected one of {', '.join(sorted(names))}"]
    if not isinstance(entry, Mapping) or not isinstance(entry.get("value"), (int, float)):
        return [f"parameters.{name}: expected {{value: number, kind, source}}"]
    if not entry.get("source") or not entry.get("kind"):
        return [f"parameters.{name}: a number needs a kind and a source"]
    return []


def class_file(name: str, model: type[M], folder: Path | None = None) -> M:
    """A file of ``calibration/class`` as its model.

    Args:
        name: File name without its ending.
        model: What it holds.
        folder: Another folder to read it from.

    Raises:
        ProfileError: If the file is missing or malformed; names each wrong entry.
    """
    from pydantic import ValidationError

    path = (folder or data_root() / "calibration" / "class") / f"{name}.yaml"
    try:
        return model.model_validate(read_yaml(path))
    except ValidationError as error:
        raise ProfileError(str(path), validation_problems(path, error)) from None
