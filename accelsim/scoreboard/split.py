"""Which measured shapes a fit may see and which are kept to score it.

The split goes by shape, not by row: a shape measured on several devices, or twice on one, is on the
same side everywhere, so that a fit never sees a held-out shape under another name. The side is
decided by a hash of the shape's label alone: it does not depend on the order of rows or on which
rows a file has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import md5
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accelsim.workloads.graph import BoolArray

#: Share of shapes kept from every fit.
HELD_OUT_SHARE = 0.2
_BUCKETS = 1000
_SEED = 2024


def held_out_mask(labels: Iterable[str], share: float = HELD_OUT_SHARE) -> BoolArray:
    """Which shapes are kept from the fit, shape (n,).

    Args:
        labels: One label per row, naming operator and dimensions but not the device ("bmm
            12x64x512x512").
        share: Part of the shapes to keep, 0 to 1.
    """
    limit = round(share * _BUCKETS)
    labels = list(labels)
    is_held_out = {label: _bucket(label) < limit for label in set(labels)}
    return np.array([is_held_out[label] for label in labels], dtype=bool)


def _bucket(label: str) -> int:
    digest = md5(label.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big") % _BUCKETS


def held_out_rows(columns: Sequence[NDArray[Any]], share: float = HELD_OUT_SHARE) -> BoolArray:
    """The same for shapes given as columns of whole numbers, shape (n,); vectorised.

    Each row's numbers are mixed into 64 bits one after the other (the finaliser of SplitMix64;
    Steele et al., OOPSLA 2014).

    Args:
        columns: Dimensions, shape (n,) each.
        share: Part of the shapes to keep, 0 to 1.
    """
    mixed = np.full(len(columns[0]), _SEED, dtype=np.uint64)
    for column in columns:
        mixed = _mixed(mixed ^ np.asarray(column).astype(np.int64).view(np.uint64))
    return mixed % np.uint64(_BUCKETS) < np.uint64(round(share * _BUCKETS))


def _mixed(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    value = value + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
