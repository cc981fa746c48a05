"""Writes fitted parameter overlays; `accelsim.cost.fitted` reads them.

Files are replaced as a whole and only once they are complete, so that a fit that is interrupted
leaves the previous overlay.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from accelsim.calibration.files import write_text
from accelsim.confidence.residual import FamilyResidual
from accelsim.cost.fitted import FittedParameters, calibration_folders
from accelsim.cost.gpu import GpuParameters
from accelsim.cost.surface_file import surface_file_name, write_surfaces
from accelsim.plain import Values


def user_folder() -> Path:
    """Folder of the user's own overlays."""
    return calibration_folders()[0] / "fitted"


def number(value: float) -> str:
    """A number as the data files take it: four digits, with a point or an exponent that YAML reads
    as a number.
    """
    short = repr(float(f"{value:.4g}"))
    return short.replace("e", ".0e") if "e" in short and "." not in short else short


def as_written(parameters: GpuParameters) -> GpuParameters:
    """A parameter set with its numbers as files state them: fits on top of it and on top of the
    file are the same.
    """
    stated = {name: float(number(value)) for name, value in parameters.numbers().items()}
    return parameters.with_values(stated)


def overlay_text(overlay: FittedParameters) -> str:
    """An overlay as YAML but for its surfaces, which it names the file of; to four digits."""
    lines = [
        f"# What measurements change of the class's parameters for {overlay.device}.",
        f"device: {overlay.device}",
        f"device_class: {overlay.device_class}",
        f"tier: {overlay.tier}",
        f'date: "{overlay.date}"',
        f"data: {{rows: {overlay.rows}, source: {_quoted(overlay.data)}}}",
    ]
    if overlay.held_out is not None:
        lines.append(f"held_out: {_mapping(asdict(overlay.held_out))}")
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
            "# ln(measured / predicted) by operator family: spread of a row, part all rows share",
            "families:",
        ]
        lines += [
            f"  {name}: {family_line(entry)}" for name, entry in sorted(overlay.families.items())
        ]
    if overlay.surfaces:
        lines += [
            "# Corrections over the shape, ln(measured / modelled): a packed file beside this one",
            f"surfaces: {surface_file_name(overlay.device)}",
        ]
    return "\n".join(lines) + "\n"


def family_line(entry: FamilyResidual) -> str:
    """Residuals of a family as one line of YAML."""
    return _mapping(entry.to_mapping())


def _mapping(values: Values) -> str:
    texts = (f"{name}: {_value(value)}" for name, value in values.items())
    return "{" + ", ".join(texts) + "}"


def _value(value: object) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(number(item) for item in value) + "]"
    return str(value) if isinstance(value, int) else number(float(value))  # type: ignore[arg-type]


def _quoted(text: str) -> str:
    return json.dumps(" ".join(text.split()), ensure_ascii=False)


def write_overlay(overlay: FittedParameters, folder: Path | None = None) -> Path:
    """Write ``<folder>/<device>.yaml`` and the file of its surfaces, each whole or not at all; a
    file that says the same keeps its date.

    Args:
        overlay: What to write.
        folder: Where; the user's folder where None.

    Returns:
        The YAML file.
    """
    target = (folder or user_folder()) / f"{overlay.device}.yaml"
    target.parent.mkdir(parents=True, exist_ok=True)
    packed = target.with_name(Path(surface_file_name(overlay.device)).name)
    if overlay.surfaces:
        write_surfaces(overlay.surfaces, packed)
    text = overlay_text(overlay)
    if not target.is_file() or _undated(target.read_text(encoding="utf-8")) != _undated(text):
        write_text(target, text)
    if not overlay.surfaces:
        packed.unlink(missing_ok=True)
    return target


def _undated(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("date: ")]
