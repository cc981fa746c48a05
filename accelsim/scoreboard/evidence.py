"""Residuals of whole-model runs by device, mode, number format and kind of model: what estimates
quote, and what their intervals are never narrower than.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from accelsim.confidence.quantiles import Z90
from accelsim.estimation.evidence import residual_places
from accelsim.estimation.likeness import Setting
from accelsim.frozen import frozen
from accelsim.plain import Document
from accelsim.scoreboard.names import device_of
from accelsim.scoreboard.scores import Scoreboard
from accelsim.workloads.graph import FloatArray, TextArray

_COVERED = 0.9
#: Modes whose figure is the time of an iteration.
_ITERATIONS = frozenset({"inference", "training", "parallel-training"})


@frozen(eq=False)
class _Runs:
    """Runs of one suite on one board in one setting, with ln(measured / predicted) and what each is
    left out with.
    """

    suite: str
    profile: str
    device_class: str
    setting: Setting
    residual: FloatArray
    origin: TextArray

    def places(self) -> tuple[str, ...]:
        """Keys of the spreads they count in; figures under load are no like of an iteration."""
        own_places = residual_places(self.device_class, self.setting)
        return own_places if self.setting.mode in _ITERATIONS else own_places[:-1]


def evidence_dict(board: Scoreboard) -> Document:
    """What estimates take from a scoreboard, ready for JSON.

    ``runs`` has a line per suite, board and setting: rows, median and 90th percentile of the error.
    ``spreads`` has, by class of devices and setting (and by less of it, ``*`` for all), rows and
    the spread of ln(measured / predicted): its 90th percentile over the normal's; and how many
    boards it is of; of figures of served and of many devices, how many models.
    """
    lines = [_line(runs) for runs in _runs(board)]
    spreads = {
        key: {
            "rows": len(residual),
            "log_sigma": log_sigma(residual),
            "origins": len(np.unique(origin)),
        }
        for key, residual, origin in residuals(board)
    }
    return {"runs": lines, "spreads": spreads}


def residuals(board: Scoreboard) -> Iterator[tuple[str, FloatArray, TextArray]]:
    """Residuals of whole-model runs and what each is left out with, by place of the spreads."""
    places: dict[str, list[_Runs]] = {}
    for runs in _runs(board):
        for key in runs.places():
            places.setdefault(key, []).append(runs)
    for key, parts in sorted(places.items()):
        residual = np.concatenate([runs.residual for runs in parts])
        yield key, residual, np.concatenate([runs.origin for runs in parts])


def _runs(board: Scoreboard) -> Iterator[_Runs]:
    for score in board.suites:
        by_setting: dict[tuple[str, str], list[tuple[FloatArray, TextArray]]] = {}
        for batch in score.rows:
            if batch.refusal or not batch.profile:
                continue
            with np.errstate(divide="ignore", invalid="ignore"):
                residual = np.log(batch.measured_s / batch.predicted_s)
            for setting in sorted(set(batch.setting.tolist()) - {""}):
                rows = (batch.setting == setting) & np.isfinite(residual)
                columns = by_setting.setdefault((batch.profile.partition("@")[0], setting), [])
                columns.append((residual[rows], batch.origin[rows]))
        for (profile, setting), columns in sorted(by_setting.items()):
            residual, origin = map(np.concatenate, zip(*columns, strict=True))
            if residual.size:
                name = str(device_of(profile).device_class)
                like = Setting(*setting.split())
                yield _Runs(score.suite.name, profile, name, like, residual, origin)


def _line(runs: _Runs) -> Document:
    error = np.abs(np.expm1(-runs.residual))
    return {
        "suite": runs.suite,
        "class": runs.device_class,
        "profile": runs.profile,
        "setting": str(runs.setting),
        "rows": len(error),
        "median": _rounded(np.median(error)),
        "p90": _rounded(np.quantile(error, _COVERED)),
    }


def log_sigma(residual: FloatArray) -> float:
    """Spread of residuals: their 90th percentile over the normal's."""
    return _rounded(np.quantile(np.abs(residual), _COVERED) / Z90)


def _rounded(value: Any) -> float:
    return round(float(value), 4)
