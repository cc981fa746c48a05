"""Fits the rates of DPU releases to published throughput, leaving families of networks out.

The residuals are logarithms of predicted over published time of one thread and of all cores; a soft
L1 loss keeps single outliers from bending the fit. All releases are fitted together first; each
release then starts there and is held near it, since a release has few families. A family's figures
are always predicted with rates that were fitted without it, under any framework, at any pruning and
in any release.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from accelsim.cost.fpga.network import DpuNetworks, DpuRates, thread_times_s
from accelsim.workloads.graph import FloatArray, IntArray

#: Groups of families; each is predicted with rates fitted to the other groups.
FOLDS = 10
#: Residual from which the loss grows linearly: most are larger, so that the fit is one of medians.
_LOSS_SCALE = 0.04
#: Strength of the first guess, and of the common fit, per logarithm of a rate.
_WEAK, _HELD = 0.05, 1.0
#: Farthest a logarithm of a rate goes from where it starts: a hundredfold.
_FARTHEST = 4.6

#: Times of one thread and of all, from networks and rates.
TimeModel = Callable[[DpuNetworks, DpuRates], tuple[FloatArray, FloatArray]]


def fit_rates(
    networks: DpuNetworks,
    single_s: FloatArray,
    multi_s: FloatArray,
    start: DpuRates | None = None,
    *,
    first: DpuRates | None = None,
    times: TimeModel = thread_times_s,
) -> DpuRates:
    """The rates that fit published times best.

    Args:
        networks: Network runs.
        single_s: Time per image of one thread, s; NaN where not published.
        multi_s: Time per image with all cores busy; NaN where not published.
        start: Rates of all releases that a release is held near; the first guess, weakly held, if
            None.
        first: First guess where there is no `start`; that of Zynq boards if None.
        times: Time model of the overlay; that of cores of their own unless given.
    """
    from scipy.optimize import least_squares

    guess = (start or first or DpuRates()).vector()
    strength = _WEAK if start is None else _HELD
    measured = np.stack([single_s, multi_s])
    known = np.isfinite(measured)

    def residuals(values: FloatArray) -> FloatArray:
        near = guess + np.clip(values - guess, -_FARTHEST, _FARTHEST)
        predicted = np.stack(times(networks, DpuRates.of_vector(near)))
        errors = np.log(predicted[known] / measured[known])
        return np.concatenate([errors, (values - guess) * strength])

    solution = least_squares(residuals, guess, loss="soft_l1", f_scale=_LOSS_SCALE, max_nfev=40)
    return DpuRates.of_vector(solution.x)


def family_folds(families: Sequence[str], folds: int = FOLDS) -> IntArray:
    """Fold of each row; rows of one family share it. Families are dealt in the order of their
    names' digests.

    Args:
        families: Family of each row.
        folds: Number of folds.
    """
    from hashlib import md5

    def digest(name: str) -> str:
        return md5(name.encode(), usedforsecurity=False).hexdigest()

    order = {name: index % folds for index, name in enumerate(sorted(set(families), key=digest))}
    return np.array([order[name] for name in families], dtype=np.int64)
