"""Measured surfaces in a packed binary file beside the overlay they belong to.

``<device>.surfaces.npz`` holds two arrays: `index`, JSON with everything but the values (rows,
spread, knots in sizes, place of the values) by the name of the surface, and `planes`, the bytes of
all surfaces' differences (`Surface.differences`) in one column, low bytes first, shape (bytes,
values): a third smaller than the values. Signs are in the lowest bit, so that high bytes are mostly
0. Nothing is read before a surface is asked for; a surface is put together when it is first used.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile

import numpy as np

from accelsim.cost.shape_surface import LazySurfaces, Surface, surface_from_differences
from accelsim.errors import ProfileError
from accelsim.plain import Document
from accelsim.workloads.graph import IntArray

SUFFIX = ".surfaces.npz"
_INDEX, _PLANES, _FIRST = "index", "planes", "first"
_DAMAGE = (BadZipFile, EOFError, IndexError, KeyError, OSError, TypeError, ValueError)


def surface_file_name(device: str) -> str:
    """Name of the file of a device's surfaces."""
    return device + SUFFIX


class SurfaceFile(LazySurfaces):
    """The surfaces of a file by name, each read when it is first asked for.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def names(self) -> Collection[str]:
        """Names in the file's index."""
        return self._index

    def make(self, name: str) -> Surface:
        """Read one surface."""
        header = self._index[name]
        try:
            start = int(header[_FIRST])
            return surface_from_differences(header, self._differences[start:])
        except _DAMAGE as error:
            raise self._damaged(f"{name}: {error}") from None

    @cached_property
    def _index(self) -> Document:
        """What the file says of each surface."""
        index = json.loads(self._array(_INDEX).tobytes())
        if not isinstance(index, dict):
            raise self._damaged("its index is no mapping")
        return index

    @cached_property
    def _differences(self) -> IntArray:
        planes = np.ascontiguousarray(self._array(_PLANES).T)
        size = planes.shape[-1]
        codes = planes.view(f"<u{size}")[:, 0]
        return ((codes >> 1) ^ -(codes & 1)).view(f"<i{size}")

    def _array(self, name: str) -> Any:
        try:
            with np.load(self.path, allow_pickle=False) as archive:
                return archive[name]
        except _DAMAGE as error:
            raise self._damaged(error) from None

    def _damaged(self, problem: object) -> ProfileError:
        return ProfileError(str(self.path), [f"damaged: {problem}; write it anew"])


def write_surfaces(surfaces: Mapping[str, Surface], path: Path) -> None:
    """Write surfaces, whole or not at all; the same surfaces give the same bytes.

    Args:
        surfaces: By name.
        path: Where.
    """
    index: Document = {}
    columns: list[IntArray] = []
    start = 0
    for name, surface in sorted(surfaces.items()):
        column = surface.differences
        index[name] = {**surface.header(), _FIRST: start}
        columns.append(column)
        start += len(column)
    values = np.concatenate(columns)
    codes = (values << 1) ^ (values >> 63)
    size = np.min_scalar_type(codes.max(initial=0)).itemsize
    text = json.dumps(index, separators=(",", ":"))
    members: Document = {
        _INDEX: np.frombuffer(text.encode(), dtype=np.uint8),
        _PLANES: codes.astype("<i8").view(np.uint8).reshape(-1, 8).T[:size],
    }
    unfinished = path.with_name(path.name + ".tmp.npz")
    with ZipFile(unfinished, "w", ZIP_DEFLATED, compresslevel=9) as archive:
        for name, array in members.items():
            with archive.open(f"{name}.npy", "w") as file:
                np.lib.format.write_array(file, np.asarray(array))
    unfinished.replace(path)
