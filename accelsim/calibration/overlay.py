"""Writes fitted parameter overlays; `accelsim.cost.fitted` reads them.

The file is replaced as a whole and only once it is complete, so that a fit that is interrupted
leaves the previous overlay.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

from accelsim.cost.fitted import (
    FittedParameters,
    calibration_folders,
    fitted_parameters,
    read_fitted,
)
from accelsim.cost.residual import FamilyResidual

__all__ = [
    "FittedParameters",
    "as_written",
    "family_line",
    "fitted_parameters",
    "number",
    "overlay_text",
    "read_fitted",
    "user_folder",
    "write_overlay",
]

P = TypeVar("P")


def user_folder() -> Path:
    """Folder of the user's own overlays."""
    return calibration_folders()[0] / "fitted"


def number(value: float) -> str:
    """A number as the data files take it: four digits, with a point or an exponent that YAML reads
    as a number.
    """
    short = repr(float(f"{value:.4g}"))
    return short.replace("e", ".0e") if "e" in short and "." not in short else short


def as_written(parameters: P) -> P:
    """A parameter set with its numbers as files state them: fits on top of it and on top of the
    file are the same.
    """
    numbers = {f.name: getattr(parameters, f.name) for f in fields(parameters)}  # type: ignore[arg-type]
    stated: dict[str, Any] = {
        name: float(number(value)) for name, value in numbers.items() if type(value) is float
    }
    written: P = replace(parameters, **stated)  # type: ignore[type-var]
    return written


def overlay_text(overlay: FittedParameters) -> str:
    """An overlay as YAML; `read_fitted` reads it back, to four digits."""
    lines = [
        f"# Parameters of {overlay.device} fitted to measurements (tier `fitted`): they replace those of the class.",
        f"device: {overlay.device}",
        f"device_class: {overlay.device_class}",
        f'date: "{overlay.date}"',
        f"data: {{rows: {overlay.rows}, source: {_quoted(overlay.data)}}}",
    ]
    if overlay.note:
        lines.append(f"note: {_quoted(overlay.note)}")
    lines.append("parameters:" if overlay.parameters else "parameters: {}")
    lines += [
        f"  {name}: {{value: {number(value)}, kind: measured, source: fit to data.source}}"
        for name, value in sorted(overlay.parameters.items())
    ]
    if overlay.pinned:
        lines += [
            "# Class-wide values on the day of the fit: the surfaces correct a model with these",
            "pinned:",
        ]
        lines += [f"  {name}: {number(value)}" for name, value in sorted(overlay.pinned.items())]
    if overlay.families:
        lines += [
            "# ln(measured / predicted) by operator family: spread of a row, and the part all rows share"
        ]
        lines.append("families:")
        lines += [
            f"  {name}: {family_line(entry)}" for name, entry in sorted(overlay.families.items())
        ]
    if overlay.surfaces:
        lines.append(
            "# Corrections over the shape: ln(measured / modelled) in thousandths at the knots, last axis fastest"
        )
        lines.append("surfaces:")
        for name, surface in sorted(overlay.surfaces.items()):
            entry = surface.to_mapping()
            knots = ", ".join(
                "[" + ", ".join(f"{knot:g}" for knot in axis) + "]" for axis in entry["knots"]
            )
            lines += [
                f"  {name}:",
                f"    rows: {surface.rows}",
                f"    log_sigma: {number(surface.log_sigma)}",
            ]
            lines += [f"    knots: [{knots}]", *_value_lines(entry)]
    return "\n".join(lines) + "\n"


def _value_lines(entry: Mapping[str, Any]) -> list[str]:
    """Values of a surface: of its one grid, or of each term of a sum."""
    if "terms" not in entry:
        return [f'    values: "{entry["values"]}"']
    return [
        "    terms:",
        *(
            f'      - {{axes: {term["axes"]}, values: "{term["values"]}"}}'
            for term in entry["terms"]
        ),
    ]


def family_line(entry: FamilyResidual) -> str:
    """Residuals of a family as one line of YAML."""
    return (
        "{"
        + ", ".join(f"{name}: {_value(value)}" for name, value in entry.to_mapping().items())
        + "}"
    )


def _value(value: object) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(number(item) for item in value) + "]"
    return str(value) if isinstance(value, int) else number(float(value))  # type: ignore[arg-type]


def _quoted(text: str) -> str:
    return '"' + " ".join(text.split()).replace("\\", "\\\\").replace('"', '\\"') + '"'


def write_overlay(overlay: FittedParameters, folder: Path | None = None) -> Path:
    """Write ``<folder>/<device>.yaml``, whole or not at all; a file that says the same keeps its
    date.

    Args:
        overlay: What to write.
        folder: Where; the user's folder where None.

    Returns:
        The file.
    """
    target = (folder or user_folder()) / f"{overlay.device}.yaml"
    target.parent.mkdir(parents=True, exist_ok=True)
    text = overlay_text(overlay)
    if target.is_file() and _undated(target.read_text(encoding="utf-8")) == _undated(text):
        return target
    unfinished = target.with_suffix(".yaml.tmp")
    unfinished.write_text(text, encoding="utf-8")
    os.replace(unfinished, target)  # noqa: PTH105
    return target


def _undated(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("date: ")]
