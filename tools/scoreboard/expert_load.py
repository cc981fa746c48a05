"""Token rows on the busiest device of a mixture-of-experts layer, for even and skewed routing.

The measured tables name a distribution of tokens over experts: "balanced", or
"power_law_<exponent>", where an expert's popularity is drawn from a bounded power law and the
device measured is the one whose experts got most rows. This module repeats that construction with
the popularities at evenly spaced quantiles, experts dealt to devices at random.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from accelsim.errors import InvalidValueError
from accelsim.workloads.graph import FloatArray

_PREFIX = "power_law_"
#: Ways of dealing the experts to devices that are averaged, and the seed they come from.
_DEALS, _SEED = 16, 0
#: Bounds of an expert's popularity: with more rows than experts up to this share of the tokens,
#: else a fixed range.
_MOST_SHARE = 0.8
_SPARSE_RANGE = (0.01, 2.0)


def routing_exponent(distribution: str) -> float:
    """Exponent of a distribution's name: 0 for "balanced".

    Raises:
        InvalidValueError: If the name is none of those.
    """
    if distribution == "balanced":
        return 0.0
    try:
        return float(distribution.removeprefix(_PREFIX))
    except ValueError:
        raise InvalidValueError(
            "distribution", distribution, f"balanced or {_PREFIX}<exponent>"
        ) from None


def busiest_device_load(
    tokens: FloatArray,
    top_k: FloatArray,
    experts: FloatArray,
    devices: FloatArray,
    exponent: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Rows routed to the busiest device and its experts that get any, shape (n,) each, both >= 1.

    Args:
        tokens: Tokens of the layer.
        top_k: Experts per token.
        experts: Experts of the layer.
        devices: Devices the experts are spread over.
        exponent: Of the power law of popularity; 0 is even.
    """
    columns = np.stack([tokens, top_k, experts, devices, exponent], axis=1)
    cases, inverse = np.unique(columns, axis=0, return_inverse=True)
    loads = np.array([_load(*case) for case in cases.tolist()]).reshape(-1, 2)[inverse.reshape(-1)]
    return loads[:, 0], loads[:, 1]


@lru_cache(maxsize=65536)
def _load(
    tokens: float, top_k: float, experts: float, devices: float, exponent: float
) -> tuple[float, float]:
    rows = tokens * top_k
    own = max(int(experts // max(devices, 1.0)), 1)
    if exponent == 0:
        share = max(rows / devices, 1.0)
        return share, max(min(share, float(own)), 1.0)
    counts = _rows_by_expert(tokens, rows, int(experts), exponent)
    if devices <= 1:
        return max(rows, 1.0), max(float((counts > 0).sum()), 1.0)
    order = np.random.default_rng(_SEED).permuted(
        np.tile(np.arange(len(counts)), (_DEALS, 1)), axis=1
    )
    dealt = counts[order][:, : own * (len(counts) // own)].reshape(_DEALS, -1, own)
    busiest = dealt[np.arange(_DEALS), dealt.sum(axis=2).argmax(axis=1)]
    return max(float(busiest.sum(axis=1).mean()), 1.0), max(
        float((busiest > 0).sum(axis=1).mean()), 1.0
    )


def _rows_by_expert(tokens: float, rows: float, experts: int, exponent: float) -> FloatArray:
    """Whole rows of each expert, most popular first, adding up to `rows`."""
    low, high = (1.0, max(_MOST_SHARE * tokens, 1.0 + 1e-9)) if rows > experts else _SPARSE_RANGE
    quantile = (np.arange(experts) + 0.5) / experts
    power = 1.0 - exponent
    popularity = (low**power + quantile * (high**power - low**power)) ** (1.0 / power)
    wanted = np.sort(popularity)[::-1] / popularity.sum() * rows
    counts = np.round(wanted)
    missing = int(rows - counts.sum())
    counts[: abs(missing) % experts] += np.sign(missing)
    whole: FloatArray = np.maximum(counts, 0.0)
    return whole
