"""Unit suffixes: data files may use spec-sheet units, everything inside is SI.

A key such as ``memory_bandwidth_gb_per_s: 3350`` is read as ``memory_bandwidth_bytes_per_s:
3.35e12``. Decimal prefixes (kB, MB, GB, TB) are powers of 1000, binary ones (KiB, MiB, GiB) of 1024
(IEC 80000-13). The suffix is always explicit: a key without a known suffix is left as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Spec-sheet suffix -> (SI suffix, factor).
SUFFIXES: Mapping[str, tuple[str, float]] = {
    "_kb_per_s": ("_bytes_per_s", 1e3),
    "_mb_per_s": ("_bytes_per_s", 1e6),
    "_gb_per_s": ("_bytes_per_s", 1e9),
    "_tb_per_s": ("_bytes_per_s", 1e12),
    "_gbit_per_s": ("_bytes_per_s", 1e9 / 8),
    "_gflop_per_s": ("_flop_per_s", 1e9),
    "_tflop_per_s": ("_flop_per_s", 1e12),
    "_kib": ("_bytes", 1024.0),
    "_mib": ("_bytes", 1024.0**2),
    "_gib": ("_bytes", 1024.0**3),
    "_kb": ("_bytes", 1e3),
    "_mb": ("_bytes", 1e6),
    "_gb": ("_bytes", 1e9),
    "_tb": ("_bytes", 1e12),
    "_mhz": ("_hz", 1e6),
    "_ghz": ("_hz", 1e9),
    "_ns": ("_s", 1e-9),
    "_us": ("_s", 1e-6),
    "_ms": ("_s", 1e-3),
    "_hours": ("_s", 3600.0),
    "_days": ("_s", 86_400.0),
    "_pj": ("_j", 1e-12),
    "_nj": ("_j", 1e-9),
    "_mw": ("_w", 1e-3),
    "_kw": ("_w", 1e3),
}
_LONGEST_FIRST = sorted(SUFFIXES, key=len, reverse=True)


def si_key(key: str) -> tuple[str, float]:
    """SI name of a key and the factor its value takes.

    Args:
        key: Field name, with or without a spec-sheet suffix.

    Returns:
        ``(name, factor)``; ``(key, 1.0)`` when no suffix matches.
    """
    for suffix in _LONGEST_FIRST:
        if key.endswith(suffix) and not key.endswith(f"_per{suffix}"):  # a rate per other time
            target, factor = SUFFIXES[suffix]
            return key[: -len(suffix)] + target, factor
    return key, 1.0


def to_si(data: object) -> Any:
    """Rename and scale every suffixed key of nested mappings and lists.

    A scaled entry is a number, a ``{"value": number, ...}`` mapping, or a mapping of such entries
    by dtype (``matrix_tflop_per_s: {fp16: {value: 312, ...}}``).

    Args:
        data: Parsed YAML or JSON.

    Returns:
        A new structure in SI units.

    Raises:
        ValueError: If two keys of one mapping name the same SI field.
    """
    if isinstance(data, list):
        return [to_si(item) for item in data]
    if not isinstance(data, Mapping):
        return data
    converted: dict[object, object] = {}
    for key, value in data.items():
        name, factor = si_key(key) if isinstance(key, str) else (key, 1.0)
        if name in converted:
            raise ValueError(f"{key} repeats {name} in another unit")
        converted[name] = to_si(value) if factor == 1.0 else _scale(value, factor)
    return converted


def _scale(value: object, factor: float) -> object:
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, (int, float)):
        return value * factor
    if isinstance(value, list):
        return [_scale(item, factor) for item in value]
    if isinstance(value, Mapping):
        if "value" in value:
            return {**value, "value": _scale(value["value"], factor)}
        return {key: _scale(item, factor) for key, item in value.items()}
    return value
