"""Which measured shapes a fit may see and which are kept to score it.

The split goes by shape, not by row: a shape measured on several devices, or twice on one, is on the same side everywhere, so
that a fit never sees a held-out shape under another name. The side is decided by a hash of the shape's label alone: it does
not depend on the order of rows or on which rows a file has.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import md5

import numpy as np
from numpy.typing import NDArray

__all__ = ["HELD_OUT_SHARE", "held_out_mask"]

#: Share of shapes kept from every fit.
HELD_OUT_SHARE = 0.2
_BUCKETS = 1000


def held_out_mask(labels: Iterable[str], share: float = HELD_OUT_SHARE) -> NDArray[np.bool_]:
    """Which shapes are kept from the fit, shape (n,).

    Args:
        labels: One label per row, naming operator and dimensions but not the device ("bmm 12x64x512x512").
        share: Part of the shapes to keep, 0 to 1.
    """
    limit = round(share * _BUCKETS)
    known: dict[str, bool] = {}
    sides = [known[label] if label in known else known.setdefault(label, _bucket(label) < limit) for label in labels]
    return np.array(sides, dtype=np.bool_)


def _bucket(label: str) -> int:
    digest = md5(label.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big") % _BUCKETS
