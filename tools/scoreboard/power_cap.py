"""Suite `power-cap`: what a power limit does to training runs on V100 and P100.

Zeus' sweep (You et al., NSDI 2023) meters epochs of one run under falling limits. Times count
relative to the run's highest limit, power and energy as they are; what is asked is how a run whose
mean power at its highest limit is known answers a lower one. The board's response
(`tools.scoreboard.cap_response`) is fitted to the other networks on the same board, never to a
row's own network; its spread is that of the other networks, each as the rest of them answers it.
Limits above a run's own power
do not bind and are not asked, nor is the highest limit, which the others are relative to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple
from typing import Any

import numpy as np

from accelsim.scoreboard.data_folder import DataFolder, Table, schema
from accelsim.scoreboard.measured_runs import MeasuredRun, run_batches
from accelsim.scoreboard.suite import MeasuredBatch, register_suite
from accelsim.workloads.graph import BoolArray, FloatArray, TextArray
from tools.scoreboard.cap_response import CapResponse, capped_run
from tools.scoreboard.left_out import others_log_sigma
from tools.scoreboard.quantity_batches import QUANTITY

CAP_SCHEMA = schema("power/zeus_power_limit_curves.csv.gz")
_RUN = ("gpu", "dataset", "network", "batch_size", "optimizer")
#: A V100's figures to start from, and the range each may have.
_START = CapResponse(0.97, 40.0, 0.7, 230.0, 0.5, 0.8)
_LEAST = (0.7, 20.0, 0.1, 150.0, 0.0, 0.4)
_MOST = (1.05, 80.0, 1.0, 300.0, 1.0, 0.99)
#: Relative error from which a row pulls the fit no harder.
_OUTLIER = 0.05
_ABOVE = "its limit is above the power of the run without one"
_ALONE = "no two other networks on its board to fit its response to"
_TOP = "the highest limit of its run, which the others are relative to"


@register_suite(
    "power-cap",
    "training under a power limit: time, power and energy, networks left out",
    (CAP_SCHEMA,),
    "operator",
    quantity=QUANTITY,
    has_best_alone=True,
)
def load(folder: DataFolder) -> list[MeasuredBatch]:
    """Time, power and energy of each row."""
    table = folder.table(CAP_SCHEMA)
    return [] if table is None else run_batches(_rows(_Runs(table)))


class _Runs:
    """Rows beside the highest limit of their run.

    Args:
        table: Zeus' sweep.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        words = [str(cells) for cells in zip(*(table[name] for name in _RUN), strict=True)]
        run = np.unique(words, return_inverse=True)[1]
        order = np.lexsort((table["power_limit"], run))
        last = order[np.append(np.diff(run[order]) != 0, True)]
        top = last[run]
        self.limit_w: FloatArray = table["power_limit"]
        self.uncapped_w: FloatArray = table["average_power"][top]
        self.time_ratio: FloatArray = table["time_per_epoch"] / table["time_per_epoch"][top]
        self.power_w: FloatArray = table["average_power"]
        self.is_top: BoolArray = top == np.arange(len(top))
        self.binds: BoolArray = ~self.is_top & (self.limit_w < self.uncapped_w)

    def measured(self, rows: BoolArray) -> FloatArray:
        """Time ratio, power and their product of rows, shape (3, n)."""
        time = self.time_ratio[rows]
        power = self.power_w[rows]
        return np.stack([time, power, time * power])

    def predicted(self, rows: BoolArray, response: CapResponse) -> FloatArray:
        """The same as a response has them."""
        time, power = capped_run(self.uncapped_w[rows], self.limit_w[rows], response)
        return np.stack([time, power, time * power])


def fitted_response(runs: _Runs, rows: BoolArray) -> CapResponse:
    """The response with the least errors of time and power, outliers damped.

    Args:
        runs: Rows.
        rows: Those to fit.
    """
    from scipy.optimize import least_squares

    measured = np.log(runs.measured(rows)[:2])

    def errors(values: FloatArray) -> FloatArray:
        off: FloatArray = np.log(runs.predicted(rows, CapResponse(*values))[:2]) - measured
        return off.ravel()

    bounds = (_LEAST, _MOST)
    solution = least_squares(
        errors, astuple(_START), bounds=bounds, loss="soft_l1", f_scale=_OUTLIER
    )
    return CapResponse(*map(float, solution.x))


def _rows(runs: _Runs) -> Iterator[MeasuredRun]:
    gpus = np.asarray(runs.table["gpu"])
    networks = np.asarray(runs.table["network"])
    for gpu in np.unique(gpus).tolist():
        for network in np.unique(networks).tolist():
            own = (gpus == gpu) & (networks == network)
            asked = own & runs.binds
            others = (gpus == gpu) & (networks != network) & runs.binds
            if asked.any() and len(np.unique(networks[others])) > 1:
                off = [*_left_out(runs, others, networks)]
                yield from _answered(runs, asked, fitted_response(runs, others), off)
            else:
                yield from _refused(runs, asked, _ALONE)
            yield from _refused(runs, own & runs.is_top, _TOP)
            yield from _refused(runs, own & ~runs.binds & ~runs.is_top, _ABOVE)


def _left_out(runs: _Runs, rows: BoolArray, networks: TextArray) -> Iterator[FloatArray]:
    """ln(predicted / measured) of each network's rows, of time, power and energy, by the response
    of the other networks, shape (3, n) each.
    """
    for network in np.unique(networks[rows]).tolist():
        own = rows & (networks == network)
        response = fitted_response(runs, rows & ~own)
        yield np.log(runs.predicted(own, response) / runs.measured(own))


def _answered(
    runs: _Runs, asked: BoolArray, response: CapResponse, off: Sequence[FloatArray]
) -> Iterator[MeasuredRun]:
    measured = runs.measured(asked)
    predicted = runs.predicted(asked, response)
    sigma = [others_log_sigma(figure) for figure in zip(*off, strict=True)]
    for column, place in enumerate(np.flatnonzero(asked).tolist()):
        for of, quantity in enumerate(("time", "power", "energy")):
            yield MeasuredRun(
                **_named(runs, place),
                group=quantity,
                measured_s=float(measured[of, column]),
                predicted_s=float(predicted[of, column]),
                log_sigma=sigma[of],
                views=frozenset((f"{quantity}: {runs.table['network'][place]}",)),
            )


def _refused(runs: _Runs, rows: BoolArray, refusal: str) -> Iterator[MeasuredRun]:
    for place in np.flatnonzero(rows).tolist():
        power = float(runs.power_w[place])
        yield MeasuredRun(**_named(runs, place), group="power", measured_s=power, refusal=refusal)


def _named(runs: _Runs, place: int) -> dict[str, Any]:
    words = {name: runs.table[name][place] for name in _RUN}
    run = "{network} on {dataset}, batch {batch_size:g}, {optimizer}".format(**words)
    return {"device": str(words["gpu"]), "label": f"{run}, {runs.limit_w[place]:g} W"}
