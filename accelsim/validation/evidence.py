"""Residuals of whole-model runs by device, mode, number format and kind of model: what estimates
quote, and what their intervals are never narrower than.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from accelsim.frozen import frozen
from accelsim.plain import Document
from accelsim.planning.evidence import residual_places
from accelsim.planning.likeness import Setting
from accelsim.validation.metrics import Z_LEVEL
from accelsim.validation.names import device_of
from accelsim.validation.score import Scoreboard
from accelsim.workloads.graph import FloatArray

_COVERED = 0.9


@frozen(eq=False)
class _Runs:
    """Runs of one suite on one board in one setting, with ln(measured / predicted)."""

    suite: str
    profile: str
    device_class: str
    setting: Setting
    residual: FloatArray


def evidence_dict(board: Scoreboard) -> Document:
    """What estimates take from a scoreboard, ready for JSON.

    ``runs`` has a line per suite, board and setting: rows, median and 90th percentile of the error.
    ``spreads`` has, by class of devices and setting (and by less of it, ``*`` for all), rows and
    the spread of ln(measured / predicted): its 90th percentile over the normal's; with the same
    from all boards but one.
    """
    found = list(_runs(board))
    lines = [_line(runs) for runs in found]
    places: dict[str, list[_Runs]] = {}
    for runs in found:
        for place in residual_places(runs.device_class, runs.setting):
            places.setdefault(place, []).append(runs)
    return {"runs": lines, "spreads": {key: _spread(places[key]) for key in sorted(places)}}


def _runs(board: Scoreboard) -> Iterator[_Runs]:
    for score in board.suites:
        by_place: dict[tuple[str, str], list[FloatArray]] = {}
        for part in score.rows:
            if part.refusal or not part.profile:
                continue
            with np.errstate(divide="ignore", invalid="ignore"):
                residual = np.log(part.measured_s / part.predicted_s)
            for setting in sorted(set(part.setting.tolist()) - {""}):
                own = residual[(part.setting == setting) & np.isfinite(residual)]
                place = (part.profile.partition("@")[0], setting)
                by_place.setdefault(place, []).append(own)
        for (profile, setting), columns in sorted(by_place.items()):
            whole = np.concatenate(columns)
            if whole.size:
                name = str(device_of(profile).device_class)
                yield _Runs(score.suite.name, profile, name, Setting(*setting.split()), whole)


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


def _spread(parts: list[_Runs]) -> Document:
    boards = sorted({runs.profile for runs in parts})
    without = {
        board: _log_sigma(others)
        for board in boards
        if (others := [runs for runs in parts if runs.profile != board])
    }
    count = sum(len(runs.residual) for runs in parts)
    return {"rows": count, "log_sigma": _log_sigma(parts), "without": without}


def _log_sigma(parts: list[_Runs]) -> float:
    residual = np.abs(np.concatenate([runs.residual for runs in parts]))
    return _rounded(np.quantile(residual, _COVERED) / Z_LEVEL)


def _rounded(value: Any) -> float:
    return round(float(value), 4)
