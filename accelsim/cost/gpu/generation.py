"""Traits of a generation of GPUs that no data sheet states: which tiles its libraries' kernels
have, how they hold scores, and whether the class-wide parameters are of them.

``calibration/class/gpu-generations.yaml`` has them, with their sources.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TypeAlias

from accelsim.files.datafile import data_root, read_mapping
from accelsim.frozen import frozen
from accelsim.hardware.profile import GpuProfile
from accelsim.plain import Document

Tiles: TypeAlias = tuple[tuple[int, ...], ...]


@frozen
class Generation:
    """What boards of one vendor and architecture have in common; the file says what each means."""

    is_early: bool
    product_fraction: float
    is_reference: bool
    has_flash_attention: bool
    has_page_walks: bool
    plain_tiles: Tiles
    batched_tiles: Tiles
    scaled_tiles: Tiles
    winograd_tiles: Tiles
    winograd_covers: Tiles


def tiles_of(names: str) -> Tiles:
    """Tiles (rows, columns) as kernels' names have them: "128x64 64x128"."""
    return tuple(tuple(map(int, name.split("x"))) for name in names.split())


def generation_of(device: GpuProfile) -> Generation:
    """The generation of a board."""
    return vendor_generation(device.vendor, device.architecture)


@lru_cache(maxsize=64)
def vendor_generation(vendor: str, architecture: str = "") -> Generation:
    """A vendor's boards of an architecture; what all of them have in common where it is empty.

    Args:
        vendor: As in profiles.
        architecture: As in profiles.
    """
    data = _data()
    specific = data["vendors"].get(vendor, {}), data["architectures"].get(architecture, {})
    traits = {**data["usual"], **specific[0], **specific[1]}
    tiles = {name: tiles_of(text) for name, text in traits.items() if isinstance(text, str)}
    return Generation(**{**traits, **tiles})


@cache
def _data() -> Document:
    return read_mapping(data_root() / "calibration" / "class" / "gpu-generations.yaml")
